/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor_network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "cli/cli.h"
#include "engine/local.h"
#include "engine/run.h"

#define GREETING     "sallyport doctor\n"
#define UNLISTED     "sallyport-doctor.example" /* reserved: exists nowhere (RFC 2606) */
#define NOWHERE      "192.0.2.1"                /* reserved for documents (RFC 5737) */
#define TRIAL_MS     10000
#define STEP_S       5
#define NAMES_PREFIX 0x7F40 /* 127.64.0.0/10 has the addresses of names */

/* ---- inside: `sallyport doctor-inside PORT` ---- */

static int connect_to(const struct sockaddr_in *to)
{
    const struct timeval limit = {.tv_sec = STEP_S};
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0 ||
        connect(fd, (const struct sockaddr *)to, sizeof *to) < 0)
        return -1;
    return TAKE_FD(fd);
}

static struct sockaddr_in address_of(const char *text, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

    (void)inet_pton(AF_INET, text, &a.sin_addr);
    return a;
}

/* Sends a request, and reads until the answer holds the text or ends. */
static bool is_answered(const struct sockaddr_in *to, const char *request, const char *with)
{
    auto_close int fd = connect_to(to);
    char answer[4096] = "";
    size_t len = 0;

    if (fd < 0 || sp_write_all(fd, request, strlen(request)) != 0)
        return false;
    while (strstr(answer, with) == NULL && len < sizeof answer - 1) {
        const ssize_t n = read(fd, answer + len, sizeof answer - 1 - len);

        if (n <= 0)
            break;
        len += (size_t)n;
        answer[len] = 0;
    }
    return strstr(answer, with) != NULL;
}

static bool look_up(const char *name, uint16_t port, struct sockaddr_in *ret)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;

    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    memcpy(ret, found->ai_addr, sizeof *ret);
    freeaddrinfo(found);
    ret->sin_port = htons(port);
    return (ntohl(ret->sin_addr.s_addr) >> 16 & 0xFFC0) == NAMES_PREFIX;
}

/* NULL: all steps succeeded; otherwise the one that did not. */
static const char *try_steps(const char *port)
{
    const struct sockaddr_in proxy = address_of("127.0.0.1", SP_NETWORK_PROXY_PORT);
    const struct sockaddr_in nowhere = address_of(NOWHERE, 80);
    struct sockaddr_in named;
    char request[200];

    (void)snprintf(request, sizeof request,
                   "CONNECT 127.0.0.1:%.5s HTTP/1.1\r\nHost: 127.0.0.1:%.5s\r\n\r\n", port, port);
    if (!is_answered(&proxy, request, GREETING))
        return "a listed address is not reached through the proxy";
    if (!is_answered(&proxy, "CONNECT " UNLISTED ":443 HTTP/1.1\r\nHost: " UNLISTED ":443\r\n\r\n",
                     " 403 "))
        return "a host that is not listed is not refused by the proxy";
    if (!look_up(UNLISTED, 80, &named))
        return "a name has no address in the sandbox";
    if (!is_answered(&named, "GET / HTTP/1.1\r\nHost: " UNLISTED "\r\nConnection: close\r\n\r\n",
                     " 403 "))
        return "a host that is not listed is not refused by name";
    auto_close int fd = connect_to(&nowhere);
    return fd < 0 && errno == ENETUNREACH ? NULL : "there is a route to other hosts";
}

static int inside_main(int argc, char **argv)
{
    const char *failed = argc == 1 ? try_steps(argv[0]) : "usage: doctor-inside PORT";

    (void)puts(failed == NULL ? "ok" : failed);
    return fflush(stdout) == 0 && failed == NULL ? SP_EXIT_OK : SP_EXIT_FAILED;
}

const struct sp_cli_command sp_command_doctor_inside = {.name = "doctor-inside",
                                                        .main = inside_main};

/* ---- outside ---- */

struct trial {
    struct sp_loop *loop;
    struct sp_backend *backend;
    struct sp_watch listener;
    int fd;
    uint16_t port;
    struct sp_policy policy;
    struct sp_run *run;
    int r;
    struct sp_err *e;
};

static void on_connection(struct sp_watch *w, uint32_t events)
{
    const struct trial *t = SP_CONTAINER(w, struct trial, listener);
    auto_close int fd = accept4(t->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)events;
    if (fd >= 0)
        (void)!write(fd, GREETING, strlen(GREETING)); /* fits into any send buffer */
}

static int open_listener(struct trial *t, struct sp_err *e)
{
    struct sockaddr_in a = address_of("127.0.0.1", 0);
    socklen_t len = sizeof a;

    t->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->fd < 0 || bind(t->fd, (const struct sockaddr *)&a, sizeof a) < 0 ||
        listen(t->fd, 8) < 0 || getsockname(t->fd, (struct sockaddr *)&a, &len) < 0)
        return sp_fail(e, SP_E_FAILED, errno, "listen on 127.0.0.1");
    t->port = ntohs(a.sin_port);
    return sp_loop_watch(t->loop, &t->listener, t->fd, EPOLLIN, on_connection, e);
}

/* A policy that allows the listener's address, and nothing else. */
static int make_policy(struct trial *t, struct sp_err *e)
{
    const struct sp_legacy read_only = {.mode = SP_MODE_READ_ONLY};
    int r = sp_profile_from_legacy(&read_only, &t->policy.profile, e);

    if (r < 0)
        return r;
    struct sp_network_policy *p = t->policy.profile.managed = sp_network_policy_new();
    t->policy.cwd = strdup("/");
    if (p == NULL || t->policy.cwd == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a policy");
    p->asks = p->uses_upstream = false;
    return sp_network_policy_add(p, SP_STR("127.0.0.1"), SP_DOMAIN_ALLOW, true, true, e);
}

static void on_run(void *user, const struct sp_run_result *r)
{
    struct trial *t = user;
    struct sp_str line = r->out;

    line = sp_str_cut(&line, '\n');
    t->run = NULL;
    if (r->kind == SP_RUN_EXITED && r->exit_code == 0)
        t->r = 0;
    else if (r->error != NULL)
        t->r = sp_fail(t->e, SP_E_FAILED, r->error->sys, "%s", r->error->msg);
    else if (r->kind == SP_RUN_EXITED && line.n != 0)
        t->r = sp_fail(t->e, SP_E_FAILED, 0, SP_STR_FMT, SP_STR_ARG(line));
    else
        t->r = sp_fail(t->e, SP_E_FAILED, 0, "the command in it did not end well");
    sp_loop_stop(t->loop);
}

static int run_trial(struct trial *t, struct sp_err *e)
{
    const struct sp_local_options o = {
        .program = "/proc/self/exe", .max_processes = 4, .cwd = "/", .owns_program = true};
    const struct sp_env_request everything = {
        .own = environ, .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true}};
    char port[8];
    struct sp_str argv[3] = {SP_STR("/proc/self/exe"), SP_STR("doctor-inside")};
    int r = sp_loop_new(&t->loop, e);

    if (r == 0)
        r = open_listener(t, e);
    if (r == 0)
        r = make_policy(t, e);
    if (r == 0)
        r = sp_local_new(t->loop, &o, &t->backend, e);
    (void)snprintf(port, sizeof port, "%u", t->port);
    argv[2] = sp_str_of(port);
    const struct sp_run_request ask = {
        .launch = {.label = SP_STR("doctor"),
                   .cwd = SP_STR("/"),
                   .argv = argv,
                   .argc = 3,
                   .environ = &everything,
                   .policy = &t->policy,
                   .is_own_program = true},
        .timeout_ms = TRIAL_MS,
    };
    if (r == 0)
        r = sp_run_start(t->backend, &ask, on_run, t, &t->run, e);
    if (r == 0)
        r = sp_loop_run(t->loop, e);
    return r < 0 ? r : t->r;
}

int sp_doctor_try_network(struct sp_err *e)
{
    struct trial t = {.fd = -1, .e = e};
    const int r = run_trial(&t, e);

    sp_run_free(t.run);
    sp_backend_free(t.backend);
    if (t.loop != NULL)
        sp_loop_unwatch(t.loop, &t.listener);
    if (t.fd >= 0)
        (void)close(t.fd);
    sp_loop_free(t.loop);
    sp_policy_done(&t.policy);
    return r;
}

/* ---- upstream proxies ---- */

/* As core/managed.c reads them: small letters win. */
static const char *find_variable(const char *upper, const char *lower)
{
    const char *found = getenv(lower);

    return found != NULL ? found : getenv(upper);
}

static void show_upstream(const char *url, char *ret, size_t size, bool *is_unusable)
{
    if (url == NULL || url[0] == 0)
        return;
    if (strncmp(url, "http://", 7) == 0)
        url += 7;
    else if (strstr(url, "://") != NULL) {
        *is_unusable = true;
        return;
    }
    const size_t n = strcspn(url, "/");
    const char *at = memrchr(url, '@', n);
    const char *host = at == NULL ? url : at + 1;
    (void)snprintf(ret, size, "%.*s", (int)(url + n - host), host);
}

void sp_doctor_find_upstream(struct sp_doctor_upstream *ret)
{
    const char *all = find_variable("ALL_PROXY", "all_proxy");
    const char *http = find_variable("HTTP_PROXY", "http_proxy");
    const char *https = find_variable("HTTPS_PROXY", "https_proxy");
    const char *none = find_variable("NO_PROXY", "no_proxy");

    *ret = (struct sp_doctor_upstream){0};
    show_upstream(http != NULL ? http : all, ret->http, sizeof ret->http, &ret->is_unusable);
    show_upstream(https != NULL ? https : all, ret->https, sizeof ret->https, &ret->is_unusable);
    (void)snprintf(ret->no_proxy, sizeof ret->no_proxy, "%s", none == NULL ? "" : none);
}
