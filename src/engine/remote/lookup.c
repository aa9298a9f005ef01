/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/remote/lookup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/str.h"

struct question {
    char host[SP_TARGET_MAX_HOST + 1];
    char port[8];
    int fd;
};

_Static_assert(sizeof(struct sp_lookup_answer) <= 4096, "one write into a pipe is whole");

static void take_addresses(const struct addrinfo *list, struct sp_lookup_answer *a)
{
    for (const struct addrinfo *i = list; i != NULL && a->count < SP_DIAL_ADDRESSES; i = i->ai_next)
        if (i->ai_addrlen <= sizeof a->addresses[0])
            memcpy(&a->addresses[a->count++], i->ai_addr, i->ai_addrlen);
}

static void *look_up(void *p)
{
    struct question *q = p;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    struct sp_lookup_answer a = {0};
    struct addrinfo *list = NULL;

    a.error = getaddrinfo(q->host, q->port, &hints, &list);
    a.sys_error = a.error == EAI_SYSTEM ? errno : 0;
    if (a.error == 0) {
        take_addresses(list, &a);
        freeaddrinfo(list);
    }
    (void)!write(q->fd, &a, sizeof a); /* nobody may be there any more */
    (void)close(q->fd);
    free(q);
    return NULL;
}

/* All signals are blocked in it: they are the program's that we live in. */
static int start_thread(struct question *q)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all;
    sigset_t old;
    int err = pthread_attr_init(&attr);

    if (err != 0)
        return err;
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&thread, &attr, look_up, q);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attr);
    return err;
}

int sp_lookup_begin(const char *host, uint16_t port, int *ret_fd, struct sp_err *e)
{
    int ends[2];
    auto_free struct question *q = calloc(1, sizeof *q);

    if (q == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look up %s", host);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "look up %s", host);
    (void)snprintf(q->host, sizeof q->host, "%s", host);
    (void)snprintf(q->port, sizeof q->port, "%u", port);
    q->fd = ends[1];
    const int err = start_thread(q);
    if (err != 0) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        return sp_fail(e, SP_E_SYSTEM, err, "look up %s", host);
    }
    (void)TAKE_PTR(q);
    *ret_fd = ends[0];
    return 0;
}

static union sp_dial_address ipv4(struct in_addr a, uint16_t port)
{
    return (union sp_dial_address){
        .in = {.sin_family = AF_INET, .sin_addr = a, .sin_port = htons(port)}};
}

static union sp_dial_address ipv6(struct in6_addr a, uint16_t port)
{
    return (union sp_dial_address){
        .in6 = {.sin6_family = AF_INET6, .sin6_addr = a, .sin6_port = htons(port)}};
}

uint32_t sp_lookup_literal(const char *host, uint16_t port,
                           union sp_dial_address ret[SP_DIAL_ADDRESSES])
{
    struct in_addr v4;
    struct in6_addr v6;

    if (sp_str_eq_nocase(sp_str_of(host), SP_STR("localhost"))) {
        ret[0] = ipv4((struct in_addr){htonl(INADDR_LOOPBACK)}, port);
        ret[1] = ipv6(in6addr_loopback, port);
        return 2;
    }
    if (inet_pton(AF_INET, host, &v4) == 1) {
        ret[0] = ipv4(v4, port);
        return 1;
    }
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        ret[0] = ipv6(v6, port);
        return 1;
    }
    return 0;
}
