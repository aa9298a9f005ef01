/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve_front.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "cli/signals.h"
#include "cli/user_server.h"
#include "config/own_places.h"
#include "core/adopt.h"
#include "core/held.h"
#include "core/history.h"
#include "core/journal.h"
#include "core/ledger.h"
#include "engine/console.h"
#include "keeper/hold.h"
#include "os/spawn.h"
#include "sandbox/hidden_paths.h"
#include "server/net/listen.h"
#include "server/net/own_sockets.h"
#include "server/rpc/conn.h"
#include "server/rpc/metrics.h"

#define MAX_LOCAL            128          /* connections on the local socket */
#define MAX_UNFINISHED       (256U << 20) /* bytes of unfinished input of all connections */
#define MAX_LOCAL_UNFINISHED (64U << 20)  /* ... on the local socket */
#define REMEMBERED_MS        86400000     /* named runs keep the server so long after their end */
#define MAX_IDLE_CHECK_MS    15000U       /* between two looks whether the server is idle */
#define MAX_SETTINGS         (16U << 20)  /* bytes of what is kept for the next front */
#define SEALS                (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* Names of settings. */
#define AUTH    "auth"    /* the token or secret */
#define CONFIG  "config"  /* sp_config_request.kept */
#define STARTED "started" /* when the server did, in ms since 1970 */

#define PROBE_MS 2 /* after the server began to listen */

/* One --listen. */
struct serve_place {
    char text[160]; /* its URL, complete: of user:NAME, 8799 and the like, too */
    struct sp_listen_url url;
    bool is_user; /* the socket of user:NAME, which needs no token */
    struct sp_listener *listener;
    struct sp_acceptor_kept kept;
};

struct serve {
    struct sp_hold *hold;                  /* NULL: no keeper */
    struct sp_ledger *ledger;              /* the same */
    bool is_ready;                         /* clients may connect */
    struct sp_buf settings, kept_settings; /* secrets: overwritten at the end */
    struct sp_buf config_text;             /* the same */
    struct rlimit nofile;                  /* at our start: commands get this limit */
    struct sp_loop *loop;
    struct sp_front *front;
    struct sp_rpc rpc;
    struct sp_rpc_door door, local_door;
    struct sp_auth *auth;
    char token[SP_AUTH_TOKEN_LEN + 1]; /* that we made; "": none, or printed already */
    bool has_own_token;                /* ... which is asked for on ws:// only */
    struct serve_place places[SP_SERVE_MAX_LISTEN];
    unsigned place_count;
    struct sp_listener *local; /* NULL: none */
    struct sp_acceptor_kept local_kept;
    struct sp_ending ending;
    char runtime_dir[512];
    struct sp_hidden_paths hidden_paths;
    struct sp_config config;          /* without --approve: for the paths that it names */
    struct sp_console *console;       /* NULL: every start is permitted */
    struct sp_serve_approve *approve; /* NULL: every start is permitted */
    struct sp_timer probe, idle;
    uint64_t idle_exit_ms, busy_ms; /* 0: never; end of the last connection or process */
    bool was_busy;                  /* at the last check */
    uint64_t connections;           /* opened before the last check */
};

/* ---- where to listen ---- */

static bool is_port(const char *text)
{
    return text[0] != 0 && text[strspn(text, "0123456789")] == 0;
}

/* Writes the URL that a short form stands for: PORT, :PORT, localhost:PORT, IP:PORT, user[:NAME].
 */
static int complete_url(const char *given, struct serve_place *p, struct sp_err *e)
{
    const char *rest = strncmp(given, "ws://", 5) == 0 ? given + 5 : given;
    char path[sizeof p->text];
    int r = 0;

    (void)snprintf(p->text, sizeof p->text, "%s", given);
    if (strlen(given) >= sizeof p->text)
        return sp_fail(e, SP_E_INVALID, 0, "--listen `%.40s...`: too long", given);
    if (strcmp(given, "user") == 0 || strncmp(given, "user:", 5) == 0) {
        p->is_user = true;
        r = sp_user_server_path(given[4] == 0 ? SP_USER_SERVER_DEFAULT : given + 5, path,
                                sizeof path - 8, e);
        if (r == 0)
            (void)snprintf(p->text, sizeof p->text, "unix://%.*s", (int)sizeof p->text - 8, path);
    } else if (is_port(given)) {
        (void)snprintf(p->text, sizeof p->text, "ws://127.0.0.1:%.8s", given);
    } else if (given[0] == ':' && is_port(given + 1)) {
        (void)snprintf(p->text, sizeof p->text, "ws://127.0.0.1%.8s", given);
    } else if (strncmp(rest, "localhost:", 10) == 0) {
        (void)snprintf(p->text, sizeof p->text, "ws://127.0.0.1:%.8s", rest + 10);
    } else if (strncmp(given, "unix://", 7) == 0 && given[7] != '/' && given[7] != 0) {
        auto_free char *cwd = getcwd(NULL, 0);

        return sp_fail(e, SP_E_INVALID, 0, "--listen `%s`: the path is not absolute; unix://%s/%s",
                       given, cwd == NULL ? "" : cwd, given + 7);
    } else if (strstr(given, "://") == NULL) {
        (void)snprintf(path, sizeof path, "ws://%.*s", (int)sizeof path - 6, given);
        if (sp_listen_parse(path, &p->url, NULL) == 0)
            (void)snprintf(p->text, sizeof p->text, "%s", path);
    }
    return r;
}

/* Four at most: the option table has the bound. */
static int read_places(struct serve *s, const struct sp_option_list *given, struct sp_err *e)
{
    static const char *const standard[] = {"ws://127.0.0.1:0"};
    const char *const *items = given->count == 0 ? standard : given->items;
    const size_t count = given->count == 0 ? 1 : given->count;

    for (; s->place_count < count; s->place_count++) {
        struct serve_place *p = &s->places[s->place_count];
        assert(items[s->place_count] != NULL);
        int r = complete_url(items[s->place_count], p, e);

        if (r == 0)
            r = sp_listen_parse(p->text, &p->url, e);
        if (r < 0 && strstr(e->msg, "unsupported --listen") != NULL) {
            const struct sp_err refusal = *e;

            return sp_fail(e, SP_E_INVALID, 0, "%.400s, or PORT, localhost:PORT, user[:NAME]",
                           refusal.msg);
        }
        if (r < 0)
            return r;
        if (p->url.kind == SP_LISTEN_STDIO && count > 1)
            return sp_fail(e, SP_E_INVALID, 0, "--listen stdio can be given only alone");
    }
    return 0;
}

static bool listens_on(const struct serve *s, enum sp_listen_kind kind)
{
    for (unsigned i = 0; i < s->place_count; i++)
        if (s->places[i].url.kind == kind)
            return true;
    return false;
}

/* ---- settings: named texts in a sealed memory file, which the keeper holds ---- */

/* Stands before each name and text. */
struct setting {
    uint32_t name, text; /* bytes */
};

/* Cuts the first one off. false: there is none, or the bytes are damaged. */
static bool cut_setting(struct sp_str *rest, struct sp_str *ret_name, struct sp_str *ret_text)
{
    struct setting e;

    if (rest->n < sizeof e)
        return false;
    memcpy(&e, rest->p, sizeof e);
    const size_t room = rest->n - sizeof e;
    if (e.name > room || e.text > room - e.name)
        return false;
    *ret_name = (struct sp_str){rest->p + sizeof e, e.name};
    *ret_text = (struct sp_str){ret_name->p + e.name, e.text};
    *rest = (struct sp_str){ret_text->p + e.text, room - e.name - e.text};
    return true;
}

/* What an earlier front has read or made. p NULL: nothing of that name. */
static struct sp_str find_setting(const struct serve *s, const char *name)
{
    struct sp_str rest = sp_buf_str(&s->kept_settings);
    struct sp_str each;
    struct sp_str text;

    while (cut_setting(&rest, &each, &text))
        if (sp_str_eq(each, sp_str_of(name)))
            return text;
    return (struct sp_str){NULL, 0};
}

static bool add_setting(struct serve *s, const char *name, struct sp_str text)
{
    const struct setting e = {(uint32_t)strlen(name), (uint32_t)text.n};

    s->settings.max = MAX_SETTINGS;
    return text.n <= MAX_SETTINGS && sp_buf_add(&s->settings, &e, sizeof e) &&
           sp_buf_add(&s->settings, name, e.name) && sp_buf_add_str(&s->settings, text);
}

/* What an earlier front has left under the key, the first descriptor; -1: nothing. */
static int take_one(struct serve *s, uint64_t key, char text[SP_HOLD_TEXT + 1])
{
    int fds[SP_HOLD_FDS];
    unsigned count = 0;

    if (!sp_hold_take(s->hold, key, fds, &count, text))
        return -1;
    for (unsigned i = 1; i < count; i++)
        (void)close(fds[i]);
    return fds[0];
}

static int take_settings(struct serve *s, struct sp_err *e)
{
    auto_close int fd = take_one(s, SP_HOLD_KEY(SP_HOLD_SETTINGS, 0), NULL);

    if (fd < 0)
        return 0;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || lseek(fd, 0, SEEK_SET) != 0)
        return sp_fail(e, SP_E_INVALID, 0, "the settings that were kept are not sealed");
    const int err = sp_read_all(fd, MAX_SETTINGS, &s->kept_settings);
    if (err != 0)
        return sp_fail(e, SP_E_SYSTEM, err, "read the settings that were kept");
    const struct sp_str config = find_setting(s, CONFIG);
    return config.p == NULL || sp_buf_add_str(&s->config_text, config)
               ? 0
               : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the settings that were kept");
}

/* What was read or made at the start. A kept secret counts as long as the server lives. */
static int keep_settings(struct serve *s, struct sp_err *e)
{
    const struct sp_str kept = find_setting(s, STARTED);
    uint64_t started_ms = 0;
    char started[24];

    if (s->hold == NULL)
        return 0;
    if (kept.p != NULL && sp_str_to_u64(kept, INT64_MAX, &started_ms))
        s->rpc.started_ms = (int64_t)started_ms;
    (void)snprintf(started, sizeof started, "%lld", (long long)s->rpc.started_ms);
    if ((s->auth != NULL && !add_setting(s, AUTH, sp_auth_kept(s->auth))) ||
        !add_setting(s, CONFIG, sp_buf_str(&s->config_text)) ||
        !add_setting(s, STARTED, sp_str_of(started)))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "write the settings to keep");
    auto_close int fd = memfd_create("sallyport-settings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int err = fd < 0 ? errno : sp_write_all(fd, s->settings.data, s->settings.len);
    if (err != 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return sp_fail(e, SP_E_SYSTEM, err != 0 ? err : errno, "write the settings to keep");
    return sp_hold_keep(s->hold, SP_HOLD_KEY(SP_HOLD_SETTINGS, 0), &fd, 1, NULL, e);
}

static void wipe(struct sp_buf *b)
{
    if (b->data != NULL)
        explicit_bzero(b->data, b->len);
    sp_buf_done(b);
}

/* ---- authentication ---- */

/* At most one kind of token; without any, one is made unless the options forbid it. */
static int open_auth(struct serve *s, struct sp_serve_options *o, struct sp_err *e)
{
    struct stat st;

    if (o->auth.mode == NULL && o->auth.token_file != NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-token-file` requires `--ws-auth capability-token`");
    if (o->token_file != NULL) {
        if (o->auth.token_file != NULL || o->auth.token_sha256 != NULL ||
            (o->auth.mode != NULL && strcmp(o->auth.mode, "capability-token") != 0))
            return sp_fail(e, SP_E_INVALID, 0,
                           "`--token-file` cannot be combined with another kind of token");
        const bool is_read = find_setting(s, AUTH).p == NULL;
        if (is_read && stat(o->token_file, &st) == 0 &&
            (S_ISDIR(st.st_mode) || S_ISCHR(st.st_mode)))
            return sp_fail(e, SP_E_INVALID, 0, "--token-file: %s is a %s, not a file with a token",
                           o->token_file, S_ISDIR(st.st_mode) ? "directory" : "device");
        if (is_read && stat(o->token_file, &st) == 0 && (st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
            return sp_fail(e, SP_E_INVALID, 0,
                           "--token-file: others may read or write %s (mode %04o); a token is for "
                           "its owner alone: chmod 600 it",
                           o->token_file, (unsigned)st.st_mode & 07777);
        o->auth.mode = "capability-token";
        o->auth.token_file = o->token_file;
        o->auth.token_flag = "--token-file";
    }
    const struct sp_str kept = find_setting(s, AUTH);
    if (o->auth.mode != NULL)
        o->auth.kept = kept;
    const int r = sp_auth_new(&o->auth, &s->auth, e);
    if (r < 0)
        return r;
    if (listens_on(s, SP_LISTEN_STDIO) && isatty(STDIN_FILENO))
        sp_cli_warn(NULL,
                    "serving a client on this terminal, which has to speak the protocol; Ctrl-D "
                    "ends it");
    if (s->auth != NULL && listens_on(s, SP_LISTEN_STDIO))
        return sp_fail(e, SP_E_INVALID, 0,
                       "WebSocket auth requires a WebSocket listener, not stdio");
    if (s->auth != NULL || !listens_on(s, SP_LISTEN_WS))
        return 0;
    if (!o->has_no_auth && !o->is_anonymous_allowed) {
        s->has_own_token = true;
        return sp_auth_make(kept, &s->auth, s->token, e);
    }
    for (unsigned i = 0; i < s->place_count; i++)
        if (!s->places[i].url.is_loopback && !o->is_anonymous_allowed)
            return sp_fail(
                e, SP_E_INVALID, 0,
                "`%s` is reachable from other machines: leave out `--no-auth`, or give "
                "`--allow-anonymous` if every machine that reaches it may run commands here",
                s->places[i].text);
    return 0;
}

/* The first lines of stdout, one for each listener. The token is erased: nothing needs it
 * afterwards. */
static int print_urls(struct serve *s, struct sp_err *e)
{
    struct stat st;
    bool ok = true;

    if (s->has_own_token && fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode))
        (void)fputs(
            "sallyport: the URL with the token goes to a file: every reader of that file can "
            "run commands here; use --token-file or --listen unix:///PATH instead\n",
            stderr);
    for (unsigned i = 0; ok && i < s->place_count; i++) {
        const bool has_token = s->has_own_token && s->places[i].url.kind == SP_LISTEN_WS;

        ok = printf("%s%s%s\n", sp_listener_url(s->places[i].listener), has_token ? "/?token=" : "",
                    has_token ? s->token : "") > 0;
    }
    explicit_bzero(s->token, sizeof s->token);
    if (!ok || fflush(stdout) != 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "print the URL on stdout");
    if (isatty(STDOUT_FILENO) && isatty(STDERR_FILENO))
        sp_cli_warn(NULL, "serving; try `sallyport exec --on URL -- COMMAND` elsewhere; Ctrl-C "
                          "ends the server and every process it runs");
    return 0;
}

/* ---- events ---- */

static void on_finished(void *user)
{
    sp_loop_stop(((const struct sp_rpc_door *)user)->rpc->front->loop);
}

static void on_drained(void *user)
{
    sp_conn_resume_all(&((struct serve *)user)->rpc);
}

static void on_ended(void *user, const struct sp_session *session)
{
    struct sp_start_gate *gate = ((struct serve *)user)->rpc.gate;

    gate->ops->ended(gate, session->number);
}

static void on_closed(void *user, const struct sp_proc *p)
{
    struct sp_start_gate *gate = ((struct serve *)user)->rpc.gate;

    gate->ops->closed(gate, p);
}

static bool forbids_host(void *user, const struct sp_hostname *host)
{
    return sp_serve_approve_forbids_host(((struct serve *)user)->approve, host);
}

static void add_stats(struct sp_listener_stats *all, const struct sp_listener *l)
{
    struct sp_listener_stats one = {0};

    sp_listener_stats(l, &one);
    all->accepted += one.accepted;
    all->refused += one.refused;
    all->active += one.active;
    all->bytes_in += one.bytes_in;
    all->bytes_out += one.bytes_out;
    all->queued_bytes += one.queued_bytes;
}

/* The listeners are one server to the reader of the metrics. */
static void on_metrics(void *user, struct sp_buf *out)
{
    struct serve *s = SP_CONTAINER(((const struct sp_rpc_door *)user)->rpc, struct serve, rpc);
    struct sp_listener_stats net = {0};

    for (unsigned i = 0; i < s->place_count; i++)
        if (s->places[i].listener != NULL)
            add_stats(&net, s->places[i].listener);
    if (s->local != NULL)
        add_stats(&net, s->local);
    sp_metrics_write(&s->rpc, &net, out);
}

/* ---- the end of an idle server ---- */

/* Whether the output of a named run that has ended may still be asked for. */
static bool remembers_named_run(const struct serve *s)
{
    const int64_t since = (int64_t)sp_clock_unix_ms() - REMEMBERED_MS;
    struct sp_history_entry past = {.id = UINT64_MAX};

    sp_list_each(i, &s->front->sessions)
        if (SP_CONTAINER(i, struct sp_session, link)->named > 0)
            return true;
    if (s->front->history == NULL)
        return false;
    while (sp_history_before(s->front->history, past.id, &past) && past.ended_ms >= since)
        if (past.name.n > 0)
            return true;
    return false;
}

static void on_idle_check(struct sp_timer *t)
{
    struct serve *s = SP_CONTAINER(t, struct serve, idle);
    const uint64_t now = sp_loop_now(s->loop);
    const uint64_t pause = s->idle_exit_ms / 4 + 1;
    const bool is_busy =
        !sp_list_is_empty(&s->rpc.conns) || s->front->stats.live > 0 || remembers_named_run(s);

    /* A connection or process of the last check, and a connection opened since, may have ended just
     * before this check. */
    if (is_busy || s->was_busy || s->rpc.connections != s->connections)
        s->busy_ms = now;
    s->was_busy = is_busy;
    s->connections = s->rpc.connections;
    if (now - s->busy_ms >= s->idle_exit_ms) {
        sp_log(SP_LOG_INFO, "idle: ending");
        sp_loop_stop(s->loop);
        return;
    }
    if (!sp_loop_timer(s->loop, t, now + (pause < MAX_IDLE_CHECK_MS ? pause : MAX_IDLE_CHECK_MS),
                       on_idle_check))
        sp_log(SP_LOG_WARN, "out of memory: --idle-exit has no effect");
}

/* ---- what the next front goes on with ---- */

/* A listener that an earlier front has left. */
static void take_socket(struct serve *s, uint64_t key, struct sp_acceptor_kept *ret)
{
    *ret = (struct sp_acceptor_kept){.fd = -1, .is_left = sp_hold_generation(s->hold) > 1};
    ret->fd = take_one(s, key, ret->note);
}

/* ---- setting up ---- */

/* For `ps`, `logs`, `attach` and `kill` of this user: the directory is private, so the socket needs
 * no token. A failure is only logged: the server works without it. */
static void listen_locally(struct serve *s, const struct sp_listen_options *like)
{
    struct sp_listen_options o = *like;
    const uint64_t key = SP_HOLD_KEY(SP_HOLD_LOCAL_SOCKET, 0);
    struct sp_listen_url url;
    struct sp_err e = {0};
    char name[600];
    char why[640];

    o.auth = NULL;
    o.user = &s->local_door;
    o.max_connections = MAX_LOCAL;
    take_socket(s, key, &s->local_kept);
    o.kept = &s->local_kept;
    o.max_unfinished = MAX_LOCAL_UNFINISHED;
    int r = sp_own_socket_url(sp_hold_keeper(s->hold), name, sizeof name, &e);
    if (r == 0)
        r = sp_listen_parse(name, &url, &e);
    if (r == 0)
        r = sp_listener_new(s->loop, &url, &o, &s->local, &e);
    if (r == 0)
        r = sp_hold_keep(s->hold, key, &s->local_kept.fd, 1, s->local_kept.note, &e);
    if (r < 0)
        sp_log(SP_LOG_WARN, "no local socket: %s", sp_error_text(&e, why, sizeof why));
}

/* Commands in managed networks do not reach our own port. */
static void keep_port_apart(const struct serve *s, const struct sp_listener *l)
{
    const char *colon = strrchr(sp_listener_url(l), ':');
    uint64_t port = 0;

    if (colon != NULL && sp_str_to_u64(sp_str_of(colon + 1), UINT16_MAX, &port))
        sp_cell_pool_add_own_port(s->front->cell_pool, (uint16_t)port);
}

/* Opens all listeners. A token that we made is for ws:// alone: who reaches a unix socket is our
 * own user. */
static int listen_everywhere(struct serve *s, const struct sp_serve_options *o,
                             const struct sp_listen_options *like, struct sp_err *e)
{
    for (unsigned i = 0; i < s->place_count; i++) {
        struct serve_place *p = &s->places[i];
        const uint64_t key = SP_HOLD_KEY(SP_HOLD_LISTENER, i);
        struct sp_listen_options lo = *like;

        take_socket(s, key, &p->kept);
        lo.kept = &p->kept;
        if (p->is_user || (s->has_own_token && p->url.kind != SP_LISTEN_WS))
            lo.auth = NULL;
        lo.is_own_user_only = p->is_user;
        lo.has_metrics = o->has_metrics || p->url.is_loopback;
        if (sp_listener_new(s->loop, &p->url, &lo, &p->listener, e) < 0)
            return e->sys == EADDRINUSE && p->url.kind == SP_LISTEN_WS
                       ? sp_fail(e, SP_E_SYSTEM, EADDRINUSE,
                                 "listen on %s (give another port, or 0 for a free one; `ss -ltnp` "
                                 "shows who has it)",
                                 p->text)
                       : -(int)e->code;
        if (p->url.kind == SP_LISTEN_WS)
            keep_port_apart(s, p->listener);
        if (p->url.kind != SP_LISTEN_STDIO &&
            sp_hold_keep(s->hold, key, &p->kept.fd, 1, p->kept.note, e) < 0)
            return -(int)e->code;
    }
    return 0;
}

/* The unix sockets of ours, which no sandbox may reach. */
static bool hide_sockets(struct serve *s)
{
    char path[sizeof s->places[0].url.addr.un.sun_path + 1];

    for (unsigned i = 0; i < s->place_count; i++) {
        const struct sp_listen_url *url = &s->places[i].url;

        if (url->kind != SP_LISTEN_UNIX)
            continue;
        (void)snprintf(path, sizeof path, "%.*s", (int)sizeof url->addr.un.sun_path,
                       url->addr.un.sun_path);
        if (!sp_hidden_paths_add(&s->hidden_paths, path))
            return false;
    }
    return true;
}

static bool is_on_loopback(const struct serve *s)
{
    for (unsigned i = 0; i < s->place_count; i++)
        if (!s->places[i].url.is_loopback)
            return false;
    return true;
}

/* Also without --approve: the configuration has limits, and names files that sandboxes must not
 * change: the rules of trusted projects, the audit log, token files. */
static int load_config(struct serve *s, struct sp_err *e)
{
    const struct sp_config_request ask = {.env = environ, .kept = &s->config_text};

    return sp_config_load(&ask, &s->config, e);
}

/* Clients are told what the host allows when they connect: it is found out before, so that the
 * first of them does not wait for it. */
static void on_probe(struct sp_timer *t)
{
    (void)sp_cell_pool_has_networks(SP_CONTAINER(t, struct serve, probe)->front->cell_pool);
}

/* CPUs in our affinity mask: the default of --cells. */
static uint64_t count_processors(void)
{
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    return n < 1 ? 1 : n < SP_OPEN_CELLS_MAX ? (uint64_t)n : SP_OPEN_CELLS_MAX;
}

/* Little address space (RLIMIT_AS) has no room for a ledger: this server's commands end with its
 * front. */
static int open_ledger(struct serve *s, struct sp_err *e)
{
    uint64_t key;
    const bool is_new = !sp_hold_next(s->hold, SP_HOLD_LEDGER, 0, &key);
    char why[640];
    const int r = sp_adopt_ledger(s->hold, &s->ledger, e);

    if (r == 0 || e->sys != ENOMEM || !is_new)
        return r;
    sp_log(SP_LOG_WARN, "commands will not survive the death of the front: %s",
           sp_error_text(e, why, sizeof why));
    return 0;
}

/* Reserves numbers of descriptors, raises their limit and greets the keeper. */
static int prepare_descriptors(struct serve *s, int keeper, struct sp_err *e)
{
    struct rlimit raised = {1048576, 1048576};
    int r = sp_spawn_reserve(e);

    sp_spawn_fill_low();
    /* Raise our limit of descriptors; commands get the limit that we were started with. Up to the
     * hard limit that is always allowed. */
    s->nofile = (struct rlimit){1024, 4096};
    (void)getrlimit(RLIMIT_NOFILE, &s->nofile);
    if (s->nofile.rlim_max >= raised.rlim_max || setrlimit(RLIMIT_NOFILE, &raised) < 0) {
        raised = (struct rlimit){s->nofile.rlim_max, s->nofile.rlim_max};
        (void)setrlimit(RLIMIT_NOFILE, &raised);
    }
    if (r == 0 && keeper >= 0)
        r = sp_hold_begin(keeper, &s->hold, e);
    if (r == 0 && s->hold != NULL)
        r = open_ledger(s, e);
    return r == 0 ? take_settings(s, e) : r;
}

/* Listens last: a client that connects finds a complete server. */
static int begin_serving(struct serve *s, struct sp_serve_options *o, int keeper, struct sp_err *e)
{
    int r = prepare_descriptors(s, keeper, e);

    if (r == 0)
        r = read_places(s, &o->listen, e);
    if (r == 0)
        r = open_auth(s, o, e);
    const bool is_stdio = listens_on(s, SP_LISTEN_STDIO);
    /* The sockets and secrets by which a confined command could ask us for an unconfined one. */
    sp_runtime_dir(s->runtime_dir, sizeof s->runtime_dir);
    if (r == 0 && !(sp_hidden_paths_find(s->runtime_dir, &s->hidden_paths) && hide_sockets(s) &&
                    sp_hidden_paths_add_real(&s->hidden_paths, o->auth.shared_secret_file)))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "collect the paths to hide from sandboxes");
    if (r == 0)
        r = sp_loop_new(&s->loop, e);
    if (r == 0)
        r = sp_ending_begin(&s->ending, s->loop, e);
    sp_host_detect(&s->rpc.host);
    if (r == 0 && o->approval.policy != NULL)
        r = sp_console_new(&s->rpc, NULL, &s->console, e);
    const struct sp_serve_approve_options approve = {
        .console = s->console,
        .loop = s->loop,
        .flags = &o->approval,
        .shell = s->rpc.host.shell_path, /* the one that clients are told */
        .environ = environ,
        .ledger = s->ledger,
        .kept_config = &s->config_text,
    };
    if (r == 0 && o->approval.policy != NULL)
        r = sp_serve_approve_new(&approve, &s->approve, e);
    if (r < 0)
        return r;
    s->rpc.gate = s->approve == NULL ? NULL : &s->approve->gate;
    if (s->approve == NULL)
        r = load_config(s, e);
    if (r < 0)
        return r;
    /* Files that decide what this and any other sallyport of the user may run. The audit log is
     * among them: a process that can read it can lock it, and all starts would wait. */
    const struct sp_own_places_options own = {
        .config = s->approve == NULL ? &s->config : &s->approve->config,
        .rules = o->approval.rules.items,
        .approvers = o->approval.approvers.items,
        .token_file = o->auth.token_file,
    };
    r = sp_own_places_find(&own, &s->hidden_paths, e);
    if (r < 0)
        return r;
#ifndef __SANITIZE_ADDRESS__         /* LeakSanitizer attaches to the process at its end */
    (void)prctl(PR_SET_DUMPABLE, 0); /* tokens, and the output of all clients, are in our memory */
#endif
    sp_loop_busy_poll(s->loop)->mode =
        sp_busy_poll_mode_of(o->busy_poll != NULL ? o->busy_poll : own.config->busy_poll);
    struct sp_limit_levels limits = own.config->limits;
    sp_limits_put_over(&limits, &o->limits);
    const struct sp_front_options so = {
        .program = "/proc/self/exe",
        .max_processes = (uint32_t)o->max_processes,
        .max_session_processes = (uint32_t)o->max_session_processes,
        .output_memory = o->output_memory,
        .kept_memory = o->kept_memory,
        .open_cells = (uint32_t)(o->cells != 0 ? o->cells : count_processors()),
        .history = (uint32_t)o->history,
        .session_ttl_ms = o->session_ttl_ms,
        .closed_ttl_ms = o->closed_ttl_ms,
        .use_cgroups = !o->has_no_cgroups,
        .nofile_soft = s->nofile.rlim_cur,
        .nofile_hard = s->nofile.rlim_max,
        .limits = limits,
        .has_no_leaves = o->has_no_cgroups,
        .fixed = sp_hidden_paths_places(&s->hidden_paths),
        .runtime_dir = s->runtime_dir,
        .hold = s->ledger != NULL ? s->hold : NULL,
        .ledger = s->ledger,
        .is_exposed = listens_on(s, SP_LISTEN_WS) && s->auth == NULL && !o->accepts_exposure,
        .is_exposed_widely = !is_on_loopback(s),
        .user = s,
        .drained = on_drained,
        .closed = s->approve != NULL ? on_closed : NULL,
        .ended = s->approve != NULL ? on_ended : NULL,
        .forbids_host = s->approve != NULL ? forbids_host : NULL,
    };
    r = sp_front_new(s->loop, &so, &s->front, e);
    if (r < 0)
        return r;
    s->rpc.front = s->front;
    s->rpc.kind = s->places[0].is_user ? "user" : "serve";
    s->door = (struct sp_rpc_door){&s->rpc, SP_DOOR_CLIENTS};
    s->local_door = (struct sp_rpc_door){&s->rpc, SP_DOOR_LOCAL};
    s->rpc.env = environ;
    s->rpc.keeps_sessions = !is_stdio;
    s->rpc.keeper = sp_hold_keeper(s->hold);
    sp_strikes_begin(&s->rpc.strikes, s->ledger, sp_hold_last_status(s->hold), sp_clock_ms());
    if (!sp_rpc_init(&s->rpc))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the counters");
    r = keep_settings(s, e);
    if (r < 0)
        return r;
    const struct sp_listen_options lo = {
        .auth = s->auth,
        .hosts = o->hosts.items,
        .is_narrow = true,
        .max_unfinished = MAX_UNFINISHED,
        .max_connections = (unsigned)o->max_connections,
        .ping_every_ms = 30000,
        .silence_ms = 60000,
        .handshake_ms = 10000,
        .user = &s->door,
        .opened = sp_conn_opened,
        .metrics = on_metrics,
        .finished = on_finished,
    };
    r = listen_everywhere(s, o, &lo, e);
    if (r == 0 && !is_stdio && !o->has_no_local_socket)
        listen_locally(s, &lo);
    if (r < 0)
        return r;
    (void)sp_loop_timer(s->loop, &s->probe, sp_loop_now(s->loop) + PROBE_MS, on_probe);
    s->idle_exit_ms = o->idle_exit_ms;
    s->busy_ms = sp_loop_now(s->loop);
    if (s->idle_exit_ms != 0)
        on_idle_check(&s->idle);
    /* Until here another front would have gone on with the sockets. */
    s->local_kept.is_left = false;
    for (unsigned i = 0; i < s->place_count; i++)
        s->places[i].kept.is_left = false;
    /* READY before the URL: a client with the URL relies on a server that outlives this process. */
    sp_hold_ready(s->hold);
    s->is_ready = true;
    sp_held_begin(s->front);
    return is_stdio || sp_hold_generation(s->hold) > 1 ? 0 : print_urls(s, e);
}

static void log_takeover(const struct serve *s, uint64_t began_us)
{
    const struct sp_adopted *a = &s->front->adopted;
    const uint64_t us = sp_clock_us() - began_us;

    if (sp_hold_generation(s->hold) <= 1)
        return;
    sp_log(SP_LOG_WARN,
           "front %" PRIu64 " took over %u processes and %u ended ones of %u sessions in %" PRIu64
           ".%" PRIu64 " ms",
           sp_hold_generation(s->hold), a->processes, a->ended, a->sessions, us / 1000,
           us / 100 % 10);
    if (a->broken > 0)
        sp_log(SP_LOG_ERROR, "%u records of the last front were broken, and are dropped",
               a->broken);
}

/* Connections first, since they use all the rest; the loop last. */
static void end_serving(struct serve *s)
{
    if (s->loop != NULL) {
        sp_loop_cancel(s->loop, &s->probe);
        sp_loop_cancel(s->loop, &s->idle);
    }
    if (s->front != NULL)
        sp_conn_tell_end(&s->rpc);
    sp_listener_free(s->local);
    for (unsigned i = 0; i < s->place_count; i++)
        sp_listener_free(s->places[i].listener);
    sp_rpc_done(&s->rpc);
    sp_front_free(s->front);
    sp_serve_approve_free(s->approve);
    sp_console_free(s->console);
    sp_auth_free(s->auth);
    sp_hidden_paths_done(&s->hidden_paths);
    sp_config_done(&s->config);
    sp_ending_done(&s->ending);
    sp_loop_free(s->loop);
    sp_ledger_close(s->ledger);
    wipe(&s->settings);
    wipe(&s->config_text);
    wipe(&s->kept_settings);
}

int sp_serve_front(struct sp_serve_options *o, int keeper)
{
    struct serve s = {0};
    struct sp_err e = {0};
    const uint64_t began_us = sp_clock_us();
    int r = begin_serving(&s, o, keeper, &e);

    /* What the last front had stays as it is, for the next one. */
    if (r < 0 && !s.is_ready && sp_hold_generation(s.hold) > 1)
        _exit(sp_cli_complain(&e));
    if (r < 0 && s.is_ready)
        sp_hold_ending(s.hold, SP_EXIT_FAILED);
    if (r == 0) {
        log_takeover(&s, began_us);
        r = sp_loop_run(s.loop, &e);
        sp_hold_ending(s.hold, r < 0 ? SP_EXIT_FAILED : SP_EXIT_OK);
    }
    end_serving(&s);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}
