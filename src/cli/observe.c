/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections to servers. Requests are made one after the other: sp_observe_ask() runs the loop
 * until the answer is there, while notifications go to the ops of the command.
 */
#include "cli/observe.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/redact.h"
#include "base/uri.h"
#include "cli/escape_text.h"
#include "cli/own_stdio.h"
#include "os/notify.h"
#include "server/net/own_sockets.h"

#define RESUME_MS  5000 /* a person waits for the connection to come back */
#define LOCAL_MS   500  /* a socket of this machine is lost when its program ends */
#define SILENCE_MS 3000 /* for an answer of one server among several: a stopped one is left out */
#define SETTLE_MS  100  /* from the first change of the directory of sockets to the next scan */
#define LISTEN_MS  1000 /* to the scan after that: a socket appears before its server listens */

const struct sp_option sp_observe_options[] = {
    SP_OPT_HEADING("Which server:"),
    SP_OPT_STRING(
        struct sp_observe_options, server, "on", "SERVER",
        "ws://HOST:PORT, unix:///PATH, an environment of the configuration, or the pid or "
        "the name of a server of this user (default: `server` of the configuration, else "
        "every serve, mcp and exec of this user on this machine)"),
    SP_OPT(STRING, SP_OPT_WORDS("server", "SERVER", "--on"),
           SP_OPT_AT(struct sp_observe_options, server, const char *), .is_hidden = true),
    SP_OPT_STRING(struct sp_observe_options, token_file, "token-file", "FILE",
                  "the token of the server"),
    SP_OPT_TABLE(struct sp_observe_options, config, sp_config_options),
    SP_OPT_END,
};

/* ---- which servers ---- */

/* The URL is copied twice: with its query for the connection, without it for messages. */
static int add_server(struct sp_observe_all *a, const char *url, const char *token_file,
                      struct sp_err *e)
{
    struct sp_observe *o = &a->servers[a->count++];

    o->all = a;
    o->url = strdup(url);
    o->shown_url = sp_redact_url(url);
    if (o->url == NULL || o->shown_url == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the URL of the server");
    return token_file == NULL ? 0 : sp_config_read_token(token_file, &o->token, e);
}

/* r: of add_server. An error of the file that an option names has the option in it. */
static int name_token_file(const struct sp_observe_options *o, int r, struct sp_err *e)
{
    return r < 0 && o->token_file != NULL ? sp_wrap(e, "--token-file") : r;
}

/* Every server of this user that runs here. Their sockets need no token. */
static int add_local(struct sp_observe_all *a, struct sp_err *e)
{
    auto_free struct sp_own_socket *found = NULL;
    int r = 0;

    a->is_local = true;
    if (a->follows && a->unknown == NULL)
        return 0; /* sp_observe_follow finds them */
    found = calloc(SP_OWN_SOCKETS_MAX, sizeof *found);
    if (found == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look for servers");
    const unsigned count = sp_own_sockets_find(found);
    for (unsigned i = 0; r == 0 && i < count; i++) {
        bool is_known = false; /* NAME.sock and PID.sock of one server */

        for (unsigned k = 0; k < i && found[i].pid != 0; k++)
            is_known = is_known || found[k].pid == found[i].pid;
        if (!is_known)
            r = add_server(a, found[i].url, NULL, e);
    }
    return r;
}

/* --on with the pid or the name of a server of this user. */
static int add_named(struct sp_observe_all *a, const char *name, struct sp_err *e)
{
    struct sp_own_socket found, local;
    char pid[16];

    if (sp_own_socket_named(name, &found)) {
        /* user:NAME is a socket for clients; questions are told at the one named after the pid. */
        (void)snprintf(pid, sizeof pid, "%d", (int)found.pid);
        if (found.pid != 0 && sp_own_socket_named(pid, &local) && local.pid == found.pid)
            found = local;
        return add_server(a, found.url, NULL, e);
    }
    a->unknown = name;
    return add_local(a, e);
}

/* --on, else `server` of the configuration, else all of this user. */
static int find_servers(struct sp_observe_all *a, const struct sp_observe_options *options,
                        struct sp_err *e)
{
    struct sp_config c __attribute__((cleanup(sp_config_done))) = {0};
    const int r = sp_cli_load_config(&options->config, "sallyport", &c, e);

    if (r < 0)
        return r;
    /* The configured token is sent to the configured server only. */
    const char *server = options->server != NULL ? options->server : c.server;
    const char *token_file = options->token_file;
    if (token_file == NULL && c.server != NULL && strcmp(server, c.server) == 0)
        token_file = c.token_file;
    if (server == NULL)
        return add_local(a, e);
    if (strstr(server, "://") != NULL)
        return name_token_file(options, add_server(a, server, token_file, e), e);
    const struct sp_config_environment *env = sp_config_find_environment(&c, server);
    if (env == NULL)
        return add_named(a, server, e);
    if (env->url == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the environment %s is a program that is started for each use: no server "
                       "runs there",
                       server);
    a->servers[0].connect_timeout_ms = env->connect_timeout_ms;
    return name_token_file(
        options, add_server(a, env->url, token_file != NULL ? token_file : env->token_file, e), e);
}

/* ---- events of the connections ---- */

/* The ops that get the events of this server; NULL: they are ignored. */
static const struct sp_observe_ops *ops_of(const struct sp_observe *o)
{
    return o->all->only == NULL || o->all->only == o ? o->all->ops : NULL;
}

/* What the server says about itself; it goes to a terminal, and a foreign server may lie. */
static void read_server(struct sp_observe *o, struct sp_json *j, uint32_t result)
{
    const uint32_t info = sp_json_get(j, result, "environmentInfo");
    const uint32_t server = sp_json_get(j, result, "server");
    const bool has_info = info != SP_JSON_NONE && sp_json_type(j, info) == SP_JSON_OBJECT;
    const uint32_t can = has_info ? sp_json_get(j, info, "capabilities") : SP_JSON_NONE;
    auto_uri struct sp_uri uri = {0};
    struct sp_str kind = {0};
    struct sp_str cwd = {0};
    uint64_t pid = 0;
    uint64_t started = 0;

    if (can != SP_JSON_NONE && sp_json_type(j, can) == SP_JSON_OBJECT) {
        const uint32_t observe = sp_json_get(j, can, "observe");
        const uint32_t watch = sp_json_get(j, can, "approvalWatch");
        const uint32_t history = sp_json_get(j, can, "history");

        o->can_observe = observe != SP_JSON_NONE && sp_json_type(j, observe) == SP_JSON_TRUE;
        o->has_history = history != SP_JSON_NONE && sp_json_type(j, history) == SP_JSON_TRUE;
        o->can_watch = watch != SP_JSON_NONE && sp_json_type(j, watch) == SP_JSON_TRUE;
    }
    if (server == SP_JSON_NONE || sp_json_type(j, server) != SP_JSON_OBJECT ||
        sp_json_need_str(j, server, "kind", &kind, NULL) < 0 ||
        sp_json_need_u64(j, server, "pid", INT32_MAX, &pid, NULL) < 0 ||
        sp_json_need_u64(j, server, "startedAtMs", INT64_MAX, &started, NULL) < 0)
        return;
    (void)snprintf(o->kind, sizeof o->kind, "%.*s", (int)kind.n, kind.p);
    for (char *at = o->kind; *at != 0; at++)
        if (!isalnum((unsigned char)*at))
            *at = '?';
    o->pid = (pid_t)pid;
    o->started_ms = (int64_t)started;
    if (has_info && sp_json_opt_str(j, info, "cwd", &cwd, NULL) == 0 && cwd.p != NULL &&
        sp_uri_read(cwd, &uri, NULL) == 0 && uri.path != NULL)
        o->directory = sp_listed_copy(sp_str_of(uri.path));
}

/* The first time this ends connect_all(); later it is a reconnect. */
static void on_ready(void *user, struct sp_json *j, uint32_t at, bool was_resumed)
{
    struct sp_observe *o = user;
    const struct sp_observe_all *a = o->all;
    const struct sp_observe_ops *ops = ops_of(o);

    o->is_fresh = true;
    if (a->follows)
        sp_loop_stop(a->loop);
    (void)was_resumed; /* attachments end with the connection also if the session is resumed */
    if (o->is_ready) {
        if (ops != NULL && ops->back != NULL)
            ops->back(a->user);
        return;
    }
    if (sp_json_type(j, at) == SP_JSON_OBJECT)
        read_server(o, j, at);
    o->is_ready = true;
    sp_loop_stop(a->loop);
}

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    const struct sp_observe *o = user;
    const struct sp_observe_ops *ops = ops_of(o);

    if (ops != NULL && ops->notified != NULL)
        ops->notified(o->all->user, method, j, params);
    else if (ops != NULL && ops->notified_by != NULL)
        ops->notified_by(o->all->user, o, method, j, params);
}

static void on_interrupted(void *user, const char *why)
{
    const struct sp_observe *o = user;
    const struct sp_observe_ops *ops = ops_of(o);

    if (ops != NULL && ops->interrupted != NULL)
        ops->interrupted(o->all->user, why);
}

/* The loop stops in any case, so that sp_observe_ask() does not wait for ever. */
static void on_dead(void *user, const struct sp_err *why)
{
    struct sp_observe *o = user;
    const struct sp_observe_ops *ops = ops_of(o);

    o->death = *why;
    if (o->death.code == SP_E_NONE)
        o->death.code = SP_E_FAILED;
    if (ops != NULL && ops->dead != NULL)
        ops->dead(o->all->user);
    sp_loop_stop(o->all->loop);
}

/* ---- connecting ---- */

static void on_late(struct sp_timer *t)
{
    struct sp_observe_all *a = SP_CONTAINER(t, struct sp_observe_all, timer);

    a->is_late = true;
    sp_loop_stop(a->loop);
}

/* Starts the clock for the answers of several servers; one alone is waited for. */
static void limit_silence(struct sp_observe_all *a)
{
    a->is_late = false;
    if (a->is_local &&
        !sp_loop_timer(a->loop, &a->timer, sp_loop_now(a->loop) + SILENCE_MS, on_late))
        a->is_late = true;
}

static bool is_connecting(const struct sp_observe_all *a)
{
    for (size_t i = 0; i < a->count; i++)
        if (!a->servers[i].is_ready && a->servers[i].death.code == SP_E_NONE)
            return true;
    return false;
}

static int begin_connecting(struct sp_observe *o, struct sp_err *e)
{
    static const struct sp_client_ops client_ops = {
        .ready = on_ready, .notified = on_notified, .interrupted = on_interrupted, .dead = on_dead};
    const struct sp_client_options options = {
        .url = o->url,
        .token = o->token,
        .connect_timeout_ms = o->connect_timeout_ms,
        .resume_ms = o->all->is_local ? LOCAL_MS : RESUME_MS,
        .client_name = "sallyport",
        .wants_receipts = true,
        .console = o->all->console,
    };
    const int r = sp_client_new(o->all->loop, &options, &client_ops, o, &o->client, e);

    if (r == 0)
        sp_client_connect(o->client);
    return r;
}

static void free_server(struct sp_observe *o)
{
    sp_client_free(o->client, 0);
    free(o->url);
    free(o->shown_url);
    free(o->token);
    free(o->directory);
}

/* Of several servers, those that end meanwhile, do not answer, or are known already by another
 * socket are left out. */
static void drop_silent(struct sp_observe_all *a)
{
    size_t kept = 0;

    for (size_t i = 0; i < a->count; i++) {
        struct sp_observe *o = &a->servers[i];
        bool is_known = false;

        for (size_t k = 0; k < kept; k++)
            is_known |= o->is_ready && a->order[k]->pid == o->pid;
        if (!o->is_ready && o->death.code == SP_E_NONE)
            (void)fprintf(stderr, "sallyport: the server at %s does not answer\n", o->shown_url);
        if (o->is_ready && o->can_observe && !is_known)
            a->order[kept++] = o;
    }
    a->order_count = kept;
}

static int connect_all(struct sp_observe_all *a, struct sp_err *e)
{
    int r = sp_loop_new(&a->loop, e);

    for (size_t i = 0; r == 0 && i < a->count; i++)
        r = begin_connecting(&a->servers[i], e);
    if (r == 0)
        limit_silence(a);
    while (r == 0 && is_connecting(a) && !a->is_late)
        r = sp_loop_run(a->loop, e); /* until on_ready, on_dead or on_late */
    if (r < 0)
        return r;
    sp_loop_cancel(a->loop, &a->timer);
    if (a->is_local) {
        drop_silent(a);
        return 0;
    }
    struct sp_observe *o = &a->servers[0];
    a->order[0] = o;
    a->order_count = 1;
    if (o->death.code != SP_E_NONE) {
        *e = o->death;
        return -(int)e->code;
    }
    return o->can_observe
               ? 0
               : sp_fail(e, SP_E_FAILED, 0,
                         "the server at %s does not let its processes be observed", o->shown_url);
}

/* ---- requests ---- */

struct question {
    struct sp_client_request request;
    struct sp_observe *observe;
    void (*fn)(void *user, struct sp_json *j, uint32_t result);
    void *user;
    struct sp_err *error;
    int result;
    bool is_answered;
};

/* The message of a refusal comes from the server, so it is escaped. */
static void on_answer(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct question *q = SP_CONTAINER(r, struct question, request);
    auto_buf struct sp_buf text = {0};

    q->is_answered = true;
    sp_loop_stop(q->observe->all->loop);
    if (reply->fate == SP_CLIENT_RESULT) {
        if (q->fn != NULL)
            q->fn(q->user, reply->j, reply->value);
        return;
    }
    const bool is_attached =
        reply->fate == SP_CLIENT_REFUSED && reply->code == sp_code_wire(SP_E_ATTACHED);
    (void)sp_plain_add(&text, reply->message); /* out of memory: an error without text */
    q->result = sp_fail(q->error, is_attached ? SP_E_ATTACHED : SP_E_FAILED, 0, SP_STR_FMT,
                        (int)text.len, text.data != NULL ? text.data : "");
}

int sp_observe_ask(struct sp_observe *o, const char *method, struct sp_str params,
                   void (*fn)(void *user, struct sp_json *j, uint32_t result), void *user,
                   struct sp_err *e)
{
    struct question q = {
        .request = {.fn = on_answer, .is_repeatable = true},
        .observe = o,
        .fn = fn,
        .user = user,
        .error = e,
    };
    int r = 0;

    sp_client_ask(o->client, &q.request, method, params);
    while (r == 0 && !q.is_answered && !o->all->is_late && o->death.code == SP_E_NONE)
        r = sp_loop_run(o->all->loop, e);
    if (q.is_answered)
        return q.result;
    sp_client_forget(&q.request);
    if (r == 0 && o->all->is_late) {
        r = sp_fail(e, SP_E_FAILED, 0, "the server at %s does not answer", o->shown_url);
    } else if (r == 0) {
        *e = o->death;
        r = -(int)o->death.code;
    }
    return r;
}

/* ---- following ---- */

struct following {
    struct sp_observe_all *all;
    const char *method;
    void (*fn)(void *user, struct sp_observe *o, struct sp_json *j, uint32_t result);
    void *user;
    struct sp_watch in;
    struct sp_timer timer;
    int fd;    /* inotify, on the directory of sockets */
    int error; /* -errno of the last read of it */
    bool has_changed, is_settling, is_due;
};

static void on_due(struct sp_timer *t)
{
    struct following *f = SP_CONTAINER(t, struct following, timer);

    f->is_due = true;
    sp_loop_stop(f->all->loop);
}

/* Scans in ms milliseconds; at once without memory for the timer. */
static void scan_in(struct following *f, unsigned ms)
{
    if (!sp_loop_timer(f->all->loop, &f->timer, sp_loop_now(f->all->loop) + ms, on_due))
        on_due(&f->timer);
}

/* Later changes do not postpone the scan. */
static void scan_soon(struct following *f)
{
    if (!f->is_settling)
        scan_in(f, SETTLE_MS);
    f->is_settling = true;
}

static void on_notice(void *user, const struct sp_file_notice *n)
{
    struct following *f = user;

    f->has_changed |= !n->is_gone;
}

static void on_changed(struct sp_watch *in, uint32_t events)
{
    struct following *f = SP_CONTAINER(in, struct following, in);

    (void)events;
    f->error = sp_notify_read(f->fd, on_notice, f);
    if (f->error < 0)
        sp_loop_stop(f->all->loop);
    if (f->has_changed)
        scan_soon(f);
    f->has_changed = false;
}

static void forget_server(struct sp_observe *o)
{
    free_server(o);
    *o = (struct sp_observe){0};
}

/* A server may have two sockets: PID.sock and NAME.sock. */
static bool is_connected(const struct sp_observe_all *a, const struct sp_own_socket *s)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct sp_observe *o = &a->servers[i];

        if (o->url != NULL &&
            (strcmp(o->url, s->url) == 0 || (s->pid != 0 && o->listener == s->pid)))
            return true;
    }
    return false;
}

/* A socket for which there is no memory, or no place, is tried again with the next scan. */
static void begin_following(struct sp_observe_all *a, const struct sp_own_socket *s)
{
    struct sp_err e = {0};
    size_t at = 0;

    while (at < a->count && a->servers[at].url != NULL)
        at++;
    if (at == SP_OWN_SOCKETS_MAX)
        return;
    const size_t end = at == a->count ? at + 1 : a->count;
    a->count = at;
    const int r = add_server(a, s->url, NULL, &e);
    a->count = end;
    struct sp_observe *o = &a->servers[at];
    o->listener = s->pid;
    o->since_ms = sp_loop_now(a->loop);
    if (r < 0 || begin_connecting(o, &e) < 0)
        forget_server(o);
}

/* Adds the watch before it reads the directory, and again each time: the directory may have been
 * removed. */
static int scan(struct following *f, struct sp_err *e)
{
    auto_free struct sp_own_socket *found = calloc(SP_OWN_SOCKETS_MAX, sizeof *found);
    char path[600];
    int r = sp_own_socket_path("default", path, sizeof path, e);

    if (r < 0)
        return r;
    *strrchr(path, '/') = 0;
    r = sp_notify_add(f->fd, path, SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER);
    if (r < 0)
        return sp_fail(e, SP_E_SYSTEM, -r, "watch %s for new servers", path);
    if (found == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look for servers");
    const unsigned count = sp_own_sockets_find(found);
    for (unsigned i = 0; i < count; i++)
        if (!is_connected(f->all, &found[i]))
            begin_following(f->all, &found[i]);
    return 0;
}

/* The socket of a server that has ended may belong to another one by now. A silent server is tried
 * again with the next change of the directory. */
static void drop_dead(struct following *f)
{
    struct sp_observe_all *a = f->all;

    for (size_t i = 0; i < a->count; i++) {
        struct sp_observe *o = &a->servers[i];

        if (o->death.code == SP_E_NONE)
            continue;
        if (o->is_ready)
            scan_soon(f);
        else if (sp_loop_now(a->loop) - o->since_ms >= SILENCE_MS)
            (void)fprintf(stderr,
                          "sallyport: the server at %s does not answer; it is tried again when "
                          "another one starts\n",
                          o->shown_url);
        forget_server(o);
    }
}

static void on_followed(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct sp_observe *o = SP_CONTAINER(r, struct sp_observe, request);
    const struct following *f = o->all->following;

    if (reply->fate == SP_CLIENT_RESULT)
        f->fn(f->user, o, reply->j, reply->value);
}

/* After a reconnect, a request without an answer is sent again by the client. */
static void ask_fresh(const struct following *f)
{
    for (size_t i = 0; i < f->all->count; i++) {
        struct sp_observe *o = &f->all->servers[i];

        if (!o->is_fresh)
            continue;
        o->is_fresh = false;
        if (o->can_observe && o->can_watch && o->request.client == NULL) {
            o->request = (struct sp_client_request){.fn = on_followed, .is_repeatable = true};
            sp_client_ask(o->client, &o->request, f->method, SP_STR("{}"));
        }
    }
}

static int follow_named(struct following *f, struct sp_err *e)
{
    struct sp_observe_all *a = f->all;
    const struct sp_observe *o = &a->servers[0];
    int r = 0;

    while (r == 0 && !a->is_over && o->death.code == SP_E_NONE) {
        ask_fresh(f);
        r = sp_loop_run(a->loop, e);
    }
    if (r < 0 || a->is_over)
        return r;
    a->is_unreachable = true;
    return sp_fail(e, SP_E_NOT_FOUND, 0, "the server at %s has ended", o->shown_url);
}

static int follow_local(struct following *f, struct sp_err *e)
{
    struct sp_observe_all *a = f->all;
    int r = scan(f, e);

    while (r == 0 && !a->is_over) {
        ask_fresh(f);
        r = sp_loop_run(a->loop, e);
        drop_dead(f);
        if (r == 0 && f->error < 0)
            r = sp_fail(e, SP_E_SYSTEM, -f->error, "watch the directory of sockets");
        if (r < 0 || !f->is_due)
            continue;
        f->is_due = false;
        if (f->is_settling)
            scan_in(f, LISTEN_MS);
        f->is_settling = false;
        r = scan(f, e);
    }
    return r;
}

static int watch_local(struct following *f, struct sp_err *e)
{
    struct sp_loop *l = f->all->loop;

    f->fd = sp_notify_open();
    if (f->fd < 0)
        return sp_fail(e, SP_E_SYSTEM, -f->fd,
                       "watch for new servers (the sysctl fs.inotify.max_user_instances limits "
                       "watches)");
    int r = sp_loop_watch(l, &f->in, f->fd, EPOLLIN, on_changed, e);
    if (r == 0) {
        scan_soon(f);
        r = follow_local(f, e);
        sp_loop_unwatch(l, &f->in);
    }
    sp_loop_cancel(l, &f->timer);
    (void)close(f->fd);
    return r;
}

int sp_observe_follow(struct sp_observe_all *a, const char *method,
                      void (*fn)(void *user, struct sp_observe *o, struct sp_json *j,
                                 uint32_t result),
                      void *user, struct sp_err *e)
{
    struct following f = {.all = a, .method = method, .fn = fn, .user = user, .fd = -1};

    a->following = &f;
    const int r = a->is_local ? watch_local(&f, e) : follow_named(&f, e);
    a->following = NULL;
    return r;
}

/* ---- the list of processes ---- */

struct reading {
    struct sp_listed_all *list;
    struct sp_observe *server;
    int result;
    struct sp_err *error;
};

static void on_list(void *user, struct sp_json *j, uint32_t result)
{
    struct reading *r = user;

    r->result = sp_listed_read(r->list, r->server, j, result, r->error);
}

int sp_observe_list(struct sp_observe_all *a, struct sp_err *e)
{
    int r = 0;

    a->has_list = true;
    for (size_t i = 0; r == 0 && i < a->order_count; i++) {
        struct sp_observe *o = a->order[i];
        struct reading reading = {.list = &a->all, .server = o, .error = e};

        limit_silence(a);
        r = sp_observe_ask(o, "process/list", SP_STR("{\"all\":true}"), on_list, &reading, e);
        sp_loop_cancel(a->loop, &a->timer);
        if (r == 0 && reading.result < 0)
            r = sp_wrap(e, "the list of %s cannot be read", o->shown_url);
        else if (r < 0 && a->is_local) { /* it ended just now, or was stopped */
            if (a->is_late)
                (void)sp_cli_complain(e);
            *e = (struct sp_err){0};
            r = 0;
        }
        a->is_late = false;
    }
    return r;
}

#define PAGE 200 /* entries of an answer to history/list */

static int add_history(struct sp_observe_all *a, struct sp_observe *o, struct sp_err *e)
{
    struct reading reading = {.list = &a->all, .server = o, .error = e};
    uint64_t before = INT64_MAX;
    size_t more = PAGE;
    int r = 0;

    while (r == 0 && more >= PAGE) {
        const size_t count = a->all.count;
        auto_buf struct sp_buf params = {0};

        if (!sp_buf_printf(&params, "{\"limit\":%d,\"before\":%llu}", PAGE,
                           (unsigned long long)before))
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
        limit_silence(a);
        r = sp_observe_ask(o, "history/list", sp_buf_str(&params), on_list, &reading, e);
        sp_loop_cancel(a->loop, &a->timer);
        r = r == 0 ? reading.result : r;
        more = r == 0 ? a->all.count - count : 0;
        for (size_t i = count; r == 0 && i < a->all.count; before = a->all.items[i++].history_id)
            if (a->all.items[i].history_id == 0 || a->all.items[i].history_id >= before)
                r = sp_fail(e, SP_E_INVALID, 0, "history ids that do not count down");
    }
    return r < 0 ? sp_wrap(e, "the history of %s cannot be read", o->shown_url) : 0;
}

int sp_observe_add_history(struct sp_observe_all *a, struct sp_err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && !a->has_history && i < a->order_count; i++)
        if (a->order[i]->has_history) {
            r = add_history(a, a->order[i], e);
            if (r < 0 && a->is_local && a->order[i]->death.code != SP_E_NONE) {
                *e = (struct sp_err){0}; /* it ended just now */
                r = 0;
            }
            a->is_late = false;
        }
    a->has_history = true;
    return r;
}

/* ---- the table of servers ---- */

#define DIRECTORY_WIDTH 24

void sp_observe_print_servers(const struct sp_observe_all *a, FILE *to)
{
    const int64_t now = (int64_t)sp_clock_unix_ms();
    char age[32];

    size_t width = strlen("DIRECTORY");

    for (size_t i = 0; i < a->order_count; i++)
        if (a->order[i]->directory != NULL && strlen(a->order[i]->directory) > width)
            width = strlen(a->order[i]->directory);
    if (width > DIRECTORY_WIDTH)
        width = DIRECTORY_WIDTH;
    (void)fprintf(to, "%-8s %-6s %-7s %-*s %s\n", "PID", "KIND", "AGE", (int)width, "DIRECTORY",
                  "URL");
    for (size_t i = 0; i < a->order_count; i++) {
        const struct sp_observe *o = a->order[i];
        const char *dir = o->directory != NULL ? o->directory : "?";
        const size_t n = strlen(dir);

        sp_listed_write_age(now - o->started_ms, age, sizeof age);
        (void)fprintf(to, "%-8d %-6s %-7s ", (int)o->pid, o->kind, age);
        (void)(n <= width ? fprintf(to, "%-*s", (int)width, dir) /* else the end tells more */
                          : fprintf(to, "...%s", dir + n - (width - 3)));
        (void)fprintf(to, " %s\n", o->shown_url);
    }
}

/* ---- the whole ---- */

static int run_connected(struct sp_observe_all *a,
                         int (*run)(struct sp_observe_all *a, void *user, struct sp_err *e),
                         void *user, struct sp_err *e)
{
    if (a->is_local && a->order_count == 0 && (!a->follows || a->unknown != NULL)) {
        a->is_unreachable = true;
        if (a->unknown != NULL)
            return sp_fail(e, SP_E_NOT_FOUND, 0,
                           "no such server: %s is neither a URL nor an environment of the "
                           "configuration, and no server is running",
                           a->unknown);
        if (a->console != NULL) /* a server would bring no question */
            return sp_fail(e, SP_E_NOT_FOUND, 0,
                           "there is no question: no sallyport serve, mcp or exec of this user "
                           "is running");
        return sp_fail(e, SP_E_NOT_FOUND, 0,
                       "no server is running; start one: sallyport exec -d -- COMMAND, "
                       "or sallyport serve");
    }
    if (a->unknown == NULL)
        return run(a, user, e);
    (void)sp_fail(e, SP_E_INVALID, 0,
                  "no such server: %s is neither a URL, an environment of the configuration, nor "
                  "the pid or the name of a running server:",
                  a->unknown);
    (void)sp_cli_complain(e);
    sp_observe_print_servers(a, stderr);
    return SP_EXIT_FAILED;
}

int sp_observe_run(const struct sp_observe_options *options, const char *console,
                   int (*run)(struct sp_observe_all *a, void *user, struct sp_err *e), void *user)
{
    struct sp_observe_all a = {.console = console, .follows = options->follows};
    struct sp_err e = {0};
    int r;

    sp_port_fill_gaps();
    (void)signal(SIGCHLD, SIG_DFL);
    a.servers = calloc(SP_OWN_SOCKETS_MAX, sizeof *a.servers);
    a.order = calloc(SP_OWN_SOCKETS_MAX, sizeof(struct sp_observe *));
    if (a.servers == NULL || a.order == NULL)
        r = sp_fail(&e, SP_E_SYSTEM, ENOMEM, "look for servers");
    else
        r = find_servers(&a, options, &e);
    if (r == 0)
        r = connect_all(&a, &e);
    if (r == 0)
        r = run_connected(&a, run, user, &e);
    if (r < 0) {
        r = sp_observe_complain(&a, &e);
        for (size_t i = 0; i < a.count && !a.is_local; i++)
            a.is_unreachable |= a.servers[i].death.code != SP_E_NONE;
        if (a.is_unreachable)
            r = SP_EXIT_UNREACHABLE;
    }
    a.ops = NULL;
    for (size_t i = 0; i < a.count; i++)
        free_server(&a.servers[i]);
    if (a.loop != NULL)
        sp_loop_cancel(a.loop, &a.timer);
    sp_loop_free(a.loop);
    sp_listed_done(&a.all);
    sp_buf_done(&a.candidates);
    free(a.servers);
    free(a.order);
    return r;
}
