/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop's thread owns the sockets and all lists of clients. The other threads take jobs from
 * `todo` and put them into `done`, under the lock, and see nothing else.
 */
#include "proxy/resolver.h"

#include <errno.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef SP_TEST_HOOKS
#include <arpa/inet.h>
#include <time.h>
#endif

#include "base/auto.h"
#include "base/hostname.h"
#include "base/list.h"
#include "os/fd.h"
#include "os/loop.h"
#include "proxy/proxy_confine.h"

#define STACK_BYTES (512U << 10) /* of a thread that is in getaddrinfo and its modules */
#define TURN_MAX    64           /* messages of one client in a turn of the loop */

struct resolver {
    struct sp_loop *loop;
    struct sp_watch control, wake;
    struct sp_deferred freeing;
    struct sp_list clients, gone;
    unsigned busy; /* threads */
    int result;
    struct sp_err *e;

    pthread_mutex_t lock; /* of the lists below */
    pthread_cond_t has_work;
    struct sp_list todo, done;
};

/* A proxy. */
struct client {
    struct resolver *r;
    struct sp_list
        link; /* in `clients`: the one that was served last is at the end; or in `gone` */
    struct sp_watch watch;
    struct sp_list waiting, working, unsent; /* jobs */
    unsigned waiting_count, working_count;
    bool is_gone; /* freed when no thread works for it */
};

struct job {
    struct sp_list link;   /* in a list of the client */
    struct sp_list queued; /* in `todo` or `done` */
    struct client *client;
    _Atomic bool is_abandoned; /* the client is gone */
    struct sp_resolver_ask ask;
    struct sp_resolver_answer answer;
};

/* ---- looking up ---- */

static void add_address(struct sp_resolver_answer *a, const struct sockaddr *from)
{
    struct sp_resolver_address *to = &a->addresses[a->count];
    const struct sockaddr_in *v4 = (const void *)from;
    const struct sockaddr_in6 *v6 = (const void *)from;

    if (a->count == SP_RESOLVER_ADDRESSES ||
        (from->sa_family != AF_INET && from->sa_family != AF_INET6))
        return;
    to->family = from->sa_family == AF_INET ? 4 : 6;
    if (to->family == 4)
        memcpy(to->bytes, &v4->sin_addr, 4);
    else
        memcpy(to->bytes, &v6->sin6_addr, 16);
    a->count++;
}

/* Without AI_ADDRCONFIG: the proxy judges every address of a name, not only those that this host
 * could reach now. */
static void ask_library(const char *host, struct sp_resolver_answer *a)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    const int err = getaddrinfo(host, NULL, &hints, &all);

    for (const struct addrinfo *i = err == 0 ? all : NULL; i != NULL; i = i->ai_next)
        add_address(a, i->ai_addr);
    if (err == 0)
        freeaddrinfo(all);
    if (a->count != 0)
        a->status = SP_RESOLVER_FOUND;
    else if (err == 0 || err == EAI_NONAME || err == EAI_NODATA || err == EAI_ADDRFAMILY)
        a->status = SP_RESOLVER_NONE;
    else
        a->status = SP_RESOLVER_FAILED;
}

#ifdef SP_TEST_HOOKS

/* "NAME[:PORT]=ADDRESS[:PORT][*][+...][>...],...": names of tests. `*`: counts as public. An IPv6
 * address with a port stands in brackets. "NAME=-" does not exist, "NAME=?" is never answered.
 * After `>` stands the answer to the next question; the last one is given from then on. */
#define TEST_HOSTS       "SALLYPORT_TEST_HOSTS"
#define TEST_CHANGES_MAX 16 /* entries with a `>` */

static uint16_t cut_port(struct sp_str *s)
{
    const char *colon = s->n == 0 ? NULL : memrchr(s->p, ':', s->n);
    uint64_t port = 0;

    /* An IPv6 address without brackets has several colons and no port. */
    if (colon == NULL || (s->p[0] != '[' && memchr(s->p, ':', s->n) != colon) ||
        !sp_str_to_u64((struct sp_str){colon + 1, (size_t)(s->p + s->n - colon) - 1}, UINT16_MAX,
                       &port))
        return 0;
    s->n = (size_t)(colon - s->p);
    return (uint16_t)port;
}

static void add_test_address(struct sp_resolver_answer *a, struct sp_str s)
{
    struct sp_resolver_address *to = &a->addresses[a->count];
    char text[INET6_ADDRSTRLEN + 1] = {0};

    if (a->count == SP_RESOLVER_ADDRESSES)
        return;
    to->is_public = s.n != 0 && s.p[s.n - 1] == '*';
    s.n -= to->is_public;
    to->port = cut_port(&s);
    if (s.n > 1 && s.p[0] == '[')
        s = (struct sp_str){s.p + 1, s.n - 2};
    if (s.n < sizeof text)
        memcpy(text, s.p, s.n);
    to->family = memchr(text, ':', sizeof text) != NULL ? 6 : 4;
    if (inet_pton(to->family == 4 ? AF_INET : AF_INET6, text, to->bytes) == 1)
        a->count++;
}

/* The answer whose turn it is. */
static struct sp_str take_turn(struct sp_str answers)
{
    static struct {
        _Atomic(const char *) entry;
        _Atomic unsigned asked;
    } turns[TEST_CHANGES_MAX];
    unsigned skip = 0;

    for (size_t i = 0; memchr(answers.p, '>', answers.n) != NULL && i < TEST_CHANGES_MAX; i++) {
        const char *expected = NULL;

        if (!atomic_compare_exchange_strong(&turns[i].entry, &expected, answers.p) &&
            expected != answers.p)
            continue;
        for (skip = turns[i].asked++; skip > 0 && memchr(answers.p, '>', answers.n) != NULL; skip--)
            (void)sp_str_cut(&answers, '>');
        break;
    }
    return sp_str_cut(&answers, '>');
}

/* The addresses of the host; p NULL: it is not in the table. An entry with the port wins. */
static struct sp_str find_test_host(const struct sp_resolver_ask *ask, struct sp_str table)
{
    struct sp_str found = {0};

    while (table.n != 0) {
        struct sp_str addresses = sp_str_cut(&table, ',');
        struct sp_str name = sp_str_cut(&addresses, '=');
        const uint16_t port = cut_port(&name);

        if (!sp_str_eq(name, sp_str_of(ask->host)) || (port != 0 && port != ask->port))
            continue;
        if (port != 0)
            return addresses;
        if (found.p == NULL)
            found = addresses;
    }
    return found;
}

/* false: there is no table. */
static bool ask_table(struct job *j)
{
    const char *table = getenv(TEST_HOSTS);

    if (table == NULL)
        return false;
    struct sp_str left = find_test_host(&j->ask, sp_str_of(table));
    j->answer.status = SP_RESOLVER_NONE;
    if (left.p != NULL)
        left = take_turn(left);
    if (left.p == NULL || sp_str_eq(left, SP_STR("-")))
        return true;
    while (sp_str_eq(left, SP_STR("?")) && !j->is_abandoned)
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    while (left.n != 0)
        add_test_address(&j->answer, sp_str_cut(&left, '+'));
    j->answer.status = j->answer.count != 0 ? SP_RESOLVER_FOUND : SP_RESOLVER_FAILED;
    return true;
}

#else

static bool ask_table(const struct job *j)
{
    (void)j;
    return false;
}

#endif

static void *work(void *user)
{
    struct resolver *r = user;

    for (;;) {
        (void)pthread_mutex_lock(&r->lock);
        while (sp_list_is_empty(&r->todo))
            (void)pthread_cond_wait(&r->has_work, &r->lock);
        struct job *j = SP_CONTAINER(sp_list_take_first(&r->todo), struct job, queued);
        (void)pthread_mutex_unlock(&r->lock);

        if (!ask_table(j))
            ask_library(j->ask.host, &j->answer);

        (void)pthread_mutex_lock(&r->lock);
        sp_list_append(&r->done, &j->queued);
        (void)pthread_mutex_unlock(&r->lock);
        (void)eventfd_write(r->wake.fd, 1); /* fails only if it is readable anyway */
    }
    return NULL;
}

static int start_threads(struct resolver *r)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    int err = pthread_attr_init(&attr);

    if (err != 0)
        return err;
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; err == 0 && i < SP_RESOLVER_THREADS; i++)
        err = pthread_create(&thread, &attr, work, r);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attr);
    return err;
}

/* ---- clients ---- */

static struct job *first_job(const struct sp_list *jobs)
{
    struct sp_list *first = sp_list_first(jobs);

    return first == NULL ? NULL : SP_CONTAINER(first, struct job, link);
}

static void free_jobs(struct sp_list *jobs)
{
    struct job *j;

    while ((j = first_job(jobs)) != NULL) {
        sp_list_remove(&j->link);
        free(j);
    }
}

static void free_gone(struct sp_deferred *d)
{
    struct resolver *r = SP_CONTAINER(d, struct resolver, freeing);
    struct sp_list *i;

    while ((i = sp_list_take_first(&r->gone)) != NULL)
        free(SP_CONTAINER(i, struct client, link));
}

/* From deferred work, because a callback of the client may be running. */
static void free_when_idle(struct client *c)
{
    if (!c->is_gone || c->working_count != 0)
        return;
    sp_list_append(&c->r->gone, &c->link);
    sp_loop_defer(c->r->loop, &c->r->freeing, free_gone);
}

static void close_client(struct client *c)
{
    const int fd = c->watch.fd;

    if (c->is_gone)
        return;
    c->is_gone = true;
    sp_loop_unwatch(c->r->loop, &c->watch);
    (void)close(fd);
    sp_list_remove(&c->link);
    free_jobs(&c->waiting);
    free_jobs(&c->unsent);
    sp_list_each(i, &c->working)
        SP_CONTAINER(i, struct job, link)->is_abandoned = true;
    free_when_idle(c);
}

/* 1: sent; 0: the socket is full; -1: the client is gone. */
static int send_answer(struct client *c, const struct sp_resolver_answer *a)
{
    ssize_t n;

    do
        n = send(c->watch.fd, a, sizeof *a, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return 1;
    if (errno == EAGAIN)
        return 0;
    close_client(c);
    return -1;
}

/* A client with unsent answers is not read from and gets no new job, so at most
 * SP_RESOLVER_WORKING + 1 answers pile up. */
static void send_unsent(struct client *c)
{
    struct job *j;

    while (!c->is_gone && (j = first_job(&c->unsent)) != NULL) {
        const int r = send_answer(c, &j->answer);

        if (r < 0)
            return;
        if (r == 0)
            break;
        sp_list_remove(&j->link);
        free(j);
    }
    sp_loop_rewatch(c->r->loop, &c->watch, sp_list_is_empty(&c->unsent) ? EPOLLIN : EPOLLOUT);
}

/* The clients take turns. NULL: no job may start. */
static struct job *next_job(struct resolver *r)
{
    sp_list_each(i, &r->clients) {
        struct client *c = SP_CONTAINER(i, struct client, link);
        struct job *j = first_job(&c->waiting);

        if (j == NULL || c->working_count == SP_RESOLVER_WORKING || !sp_list_is_empty(&c->unsent))
            continue;
        sp_list_remove(&c->link);
        sp_list_append(&r->clients, &c->link);
        return j;
    }
    return NULL;
}

static void start_jobs(struct resolver *r)
{
    struct job *j;

    while (r->busy < SP_RESOLVER_THREADS && (j = next_job(r)) != NULL) {
        struct client *c = j->client;

        sp_list_remove(&j->link);
        sp_list_append(&c->working, &j->link);
        c->waiting_count--;
        c->working_count++;
        r->busy++;
        (void)pthread_mutex_lock(&r->lock);
        sp_list_append(&r->todo, &j->queued);
        (void)pthread_cond_signal(&r->has_work);
        (void)pthread_mutex_unlock(&r->lock);
    }
}

static void finish_job(struct resolver *r, struct job *j)
{
    struct client *c = j->client;

    r->busy--;
    c->working_count--;
    sp_list_remove(&j->link);
    if (c->is_gone) {
        free(j);
        free_when_idle(c);
        return;
    }
    sp_list_append(&c->unsent, &j->link);
    send_unsent(c);
}

static void on_wake(struct sp_watch *w, uint32_t events)
{
    struct resolver *r = SP_CONTAINER(w, struct resolver, wake);
    struct sp_list done = SP_LIST_EMPTY(done);
    struct sp_list *i;
    eventfd_t count;

    (void)events;
    (void)eventfd_read(w->fd, &count);
    (void)pthread_mutex_lock(&r->lock);
    while ((i = sp_list_take_first(&r->done)) != NULL)
        sp_list_append(&done, i);
    (void)pthread_mutex_unlock(&r->lock);
    while ((i = sp_list_take_first(&done)) != NULL)
        finish_job(r, SP_CONTAINER(i, struct job, queued));
    start_jobs(r);
}

static bool is_ask(const struct sp_resolver_ask *a, ssize_t n)
{
    struct sp_hostname h;

    if (n != (ssize_t)sizeof *a || memchr(a->host, 0, sizeof a->host) == NULL)
        return false;
    return sp_hostname_read(sp_str_of(a->host), &h) == NULL && strcmp(h.text, a->host) == 0;
}

/* false: the client is gone. */
static bool take_ask(struct client *c, const struct sp_resolver_ask *ask)
{
    struct job *j = calloc(1, sizeof *j);

    if (j == NULL) {
        close_client(c);
        return false;
    }
    j->client = c;
    j->ask = *ask;
    j->answer = (struct sp_resolver_answer){.number = ask->number, .status = SP_RESOLVER_FAILED};
    if (c->waiting_count == SP_RESOLVER_WAITING) {
        sp_list_append(&c->unsent, &j->link);
        send_unsent(c);
        return !c->is_gone;
    }
    sp_list_append(&c->waiting, &j->link);
    c->waiting_count++;
    start_jobs(c->r);
    return true;
}

static void on_client(struct sp_watch *w, uint32_t events)
{
    struct client *c = SP_CONTAINER(w, struct client, watch);

    if ((events & EPOLLOUT) != 0)
        send_unsent(c);
    for (int i = 0; i < TURN_MAX && !c->is_gone && sp_list_is_empty(&c->unsent); i++) {
        struct sp_resolver_ask ask;
        const ssize_t n = recv(w->fd, &ask, sizeof ask, MSG_DONTWAIT | MSG_TRUNC);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (!is_ask(&ask, n))
            close_client(c); /* its end, or bytes that no proxy sends */
        else if (!take_ask(c, &ask))
            break;
    }
    if (!c->is_gone && (events & (EPOLLHUP | EPOLLERR)) != 0 && !sp_list_is_empty(&c->unsent))
        close_client(c); /* these events come also while nothing is read */
    start_jobs(c->r);
}

static bool add_client(struct resolver *r, int fd)
{
    struct client *c = calloc(1, sizeof *c);
    struct sp_err e;

    if (c == NULL)
        return false;
    c->r = r;
    sp_list_init(&c->waiting);
    sp_list_init(&c->working);
    sp_list_init(&c->unsent);
    if (sp_loop_watch(r->loop, &c->watch, fd, EPOLLIN, on_client, &e) < 0) {
        free(c);
        return false;
    }
    sp_list_append(&r->clients, &c->link);
    return true;
}

/* ---- the front ---- */

static void stop(struct resolver *r, int result)
{
    r->result = result;
    sp_loop_unwatch(r->loop, &r->control);
    sp_loop_stop(r->loop);
}

static void on_control(struct sp_watch *w, uint32_t events)
{
    struct resolver *r = SP_CONTAINER(w, struct resolver, control);
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    int count;
    int fd = -1;
    const ssize_t n = sp_fd_recv(w->fd, &h, MSG_DONTWAIT, &fd, 1, &count);

    (void)events;
    if (n < 0 && errno == EAGAIN)
        return;
    if (n < 0 && errno != ECONNRESET) {
        stop(r, sp_fail(r->e, SP_E_SYSTEM, errno, "receive from the front"));
    } else if (n <= 0) {
        stop(r, 0);
    } else if (count != 1 || (h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        if (count == 1)
            (void)close(fd);
        stop(r, sp_fail(r->e, SP_E_MALFORMED, 0, "the front sent no socket of a proxy"));
    } else if (!add_client(r, fd)) {
        (void)close(fd); /* the proxy sees that and asks the front for another one */
    }
}

/* What is allocated here lives as long as the process: threads use it when this function returns,
 * and getaddrinfo cannot be interrupted. */
int sp_resolver_run(int control, struct sp_err *e)
{
    int r = sp_resolver_confine(e);

    if (r < 0)
        return r;
    (void)mallopt(M_ARENA_MAX, 1); /* else each thread gets an arena of its own */
    struct resolver *all = calloc(1, sizeof *all);
    const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (all == NULL || wake < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "start the resolver");
    all->e = e;
    sp_list_init(&all->clients);
    sp_list_init(&all->gone);
    sp_list_init(&all->todo);
    sp_list_init(&all->done);
    (void)pthread_mutex_init(&all->lock, NULL);
    (void)pthread_cond_init(&all->has_work, NULL);
    r = sp_loop_new(&all->loop, e);
    if (r == 0)
        r = sp_loop_watch(all->loop, &all->wake, wake, EPOLLIN, on_wake, e);
    if (r == 0)
        r = sp_loop_watch(all->loop, &all->control, control, EPOLLIN, on_control, e);
    if (r < 0)
        return r;
    const int err = start_threads(all);
    if (err != 0)
        return sp_fail(e, SP_E_SYSTEM, err, "start the threads of the resolver");
    r = sp_loop_run(all->loop, e);
    return r < 0 ? r : all->result;
}
