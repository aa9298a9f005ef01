/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport serve`: the exec-server. Puts the listener, the server and the approvals together. */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "cli/cli.h"
#include "cli/serve_approve.h"
#include "cli/signals.h"
#include "cli/user_server.h"
#include "config/own_places.h"
#include "core/history.h"
#include "core/journal.h"
#include "engine/console.h"
#include "os/spawn.h"
#include "sandbox/hidden_paths.h"
#include "server/net/listen.h"
#include "server/net/own_sockets.h"
#include "server/rpc/conn.h"
#include "server/rpc/metrics.h"

#define MAX_HOSTS            16           /* names of --host-name */
#define MAX_LOCAL            128          /* connections on the local socket */
#define MAX_UNFINISHED       (256U << 20) /* bytes of unfinished input of all connections */
#define MAX_LOCAL_UNFINISHED (64U << 20)  /* ... on the local socket */
#define MAX_TTL_MS           (365 * (uint64_t)86400000)
#define MAX_LISTEN           4        /* --listen */
#define REMEMBERED_MS        86400000 /* named runs keep the server so long after their end */
#define MAX_IDLE_CHECK_MS    15000U   /* between two looks whether the server is idle */

#define PROBE_MS 2 /* after the server began to listen */

struct serve_options {
    struct sp_option_list listen, hosts;
    uint64_t max_connections;
    bool has_no_local_socket;
    const char *token_file;    /* of --token-file: another spelling of auth.token_file */
    bool has_no_auth;          /* ws:// without a token */
    bool is_anonymous_allowed; /* the same, also beyond loopback */
    struct sp_auth_options auth;
    uint64_t max_processes, max_session_processes, cells, output_memory, kept_memory,
        session_ttl_ms, closed_ttl_ms, history, concurrent_requests;
    uint64_t idle_exit_ms, log_max;
    struct sp_limit_levels limits;
    bool has_no_cgroups, accepts_exposure;
    struct sp_cli_approval_flags approval;
    bool has_metrics;
    const char *busy_poll, *log_level, *log_format;
};

/* A number of bytes, or of KiB, MiB or GiB, from `least` to 1 TiB. */
static bool read_bytes(const char *argument, uint64_t least, uint64_t *ret)
{
    static const char units[] = "KMG";
    struct sp_str digits = sp_str_of(argument);
    const char *unit = digits.n > 0 ? strchr(units, argument[digits.n - 1]) : NULL;
    const int shift = unit == NULL ? 0 : (int)(unit - units + 1) * 10;
    uint64_t n;

    digits.n -= unit != NULL;
    if (!sp_str_to_u64(digits, ((uint64_t)1 << 40) >> shift, &n) || n << shift < least)
        return false;
    *ret = n << shift;
    return true;
}

static const char *read_output_memory(const char *argument, void *value)
{
    return read_bytes(argument, SP_OUTPUT_LEAST, value)
               ? NULL
               : "a number of bytes such as 512M, from 64M to 1024G";
}

static const char *read_kept_memory(const char *argument, void *value)
{
    return read_bytes(argument, SP_KEPT_LEAST, value)
               ? NULL
               : "a number of bytes such as 64M, from 1M to 1024G";
}

/* The verifier parses the number itself; here it is only checked. */
static const char *read_clock_skew(const char *argument, void *value)
{
    uint64_t seconds;

    *(const char **)value = argument;
    return sp_str_to_u64(sp_str_of(argument), UINT32_MAX, &seconds)
               ? NULL
               : "a number from 0 to 4294967295";
}

static const char *const auth_modes[] = {"capability-token", "signed-bearer-token", NULL};
static const char *const busy_poll_words[] = {"auto", "off", "on", NULL};
static const char *const log_levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const log_formats[] = {"human", "json", NULL};

static const struct sp_option options[] = {
    SP_OPT_HEADING("Where to listen:"),
    SP_OPT(LIST,
           SP_OPT_WORDS("listen", "URL",
                        "ws://IP:PORT, PORT of 127.0.0.1, unix:///PATH, user[:NAME] (the server of "
                        "this user, for "
                        "`sallyport connect`) or stdio (default ws://127.0.0.1:0); up to 4 times, "
                        "stdio only alone"),
           SP_OPT_AT(struct serve_options, listen, struct sp_option_list), .max = MAX_LISTEN),
    SP_OPT(
        LIST,
        SP_OPT_WORDS("host-name", "NAME", "accept this name in the Host header, too (repeatable)"),
        SP_OPT_AT(struct serve_options, hosts, struct sp_option_list), .max = MAX_HOSTS),
    SP_OPT(LIST, SP_OPT_WORDS("allow-host", "NAME", "--host-name"),
           SP_OPT_AT(struct serve_options, hosts, struct sp_option_list), .max = MAX_HOSTS,
           .is_hidden = true),
    SP_OPT_NUMBER(struct serve_options, max_connections, "max-connections", "N", 1, 1000000,
                  "limit of connections (default 1024)"),
    SP_OPT_FLAG(
        struct serve_options, has_no_local_socket, "no-local-socket",
        "do not also listen for `sallyport ps`, `logs`, `attach` and `kill`, on a socket in "
        "the runtime directory of this user"),
    SP_OPT_HEADING(
        "Who may connect (ws://): clients that have the token, as `?token=TOKEN` in the "
        "URL or as `Authorization: Bearer TOKEN`. Without these options the server makes "
        "a token when it starts, and prints it as part of the URL."),
    SP_OPT_STRING(struct serve_options, token_file, "token-file", "FILE",
                  "read the token from FILE, and print the URL without it"),
    SP_OPT_FLAG(struct serve_options, has_no_auth, "no-auth",
                "no token: every user and program of this machine may run commands here"),
    SP_OPT_FLAG(struct serve_options, is_anonymous_allowed, "allow-anonymous",
                "as --no-auth, also when listening beyond loopback"),
    SP_OPT_CHOICE(struct serve_options, auth.mode, "ws-auth", "MODE", auth_modes,
                  "capability-token or signed-bearer-token"),
    SP_OPT_STRING(struct serve_options, auth.token_file, "ws-token-file", "FILE",
                  "the capability token"),
    SP_OPT_STRING(struct serve_options, auth.token_sha256, "ws-token-sha256", "HEX",
                  "or its SHA-256"),
    SP_OPT_STRING(struct serve_options, auth.shared_secret_file, "ws-shared-secret-file", "FILE",
                  "the secret of signed tokens (HS256)"),
    SP_OPT_STRING(struct serve_options, auth.issuer, "ws-issuer", "TEXT",
                  "the issuer that a signed token must have"),
    SP_OPT_STRING(struct serve_options, auth.audience, "ws-audience", "TEXT",
                  "the audience that a signed token must have"),
    SP_OPT_READ(struct serve_options, auth.max_clock_skew_seconds, "ws-max-clock-skew-seconds", "N",
                read_clock_skew, "tolerance for the times of a signed token (default 30)"),
    SP_OPT_HEADING("Limits:"),
    SP_OPT_NUMBER(struct serve_options, max_processes, "max-processes", "N", 1, 1000000,
                  "limit of processes that run at once (default 10000)"),
    SP_OPT_NUMBER(struct serve_options, max_session_processes, "max-session-processes", "N", 1,
                  1000000, "the same for the processes of one session (default: as for all)"),
    SP_OPT_NUMBER(struct serve_options, cells, "cells", "N", 1, SP_OPEN_CELLS_MAX,
                  "how many processes start commands, made when needed (default: as many as there "
                  "are processors, at most 8)"),
    SP_OPT_READ(
        struct serve_options, output_memory, "output-memory", "BYTES", read_output_memory,
        "memory for the output of all processes: 200000000, 512M, 2G (default: an eighth of "
        "the memory, from 64M to 1G)"),
    SP_OPT_READ(struct serve_options, kept_memory, "kept-memory", "BYTES", read_kept_memory,
                "memory for closed processes, which are evicted above it (default 64M)"),
    SP_OPT_TABLE(struct serve_options, limits, sp_limit_options),
    SP_OPT_TIME(
        struct serve_options, session_ttl_ms, "session-ttl", "TIME", 0, MAX_TTL_MS,
        "how long the session of a lost connection is kept: 30 (seconds), 5m, 1h (default 30s)"),
    SP_OPT_TIME(
        struct serve_options, closed_ttl_ms, "closed-ttl", "TIME", 0, MAX_TTL_MS,
        "how long a closed process can be read, as long as --kept-memory has room (default 30s)"),
    SP_OPT_NUMBER(struct serve_options, history, "history", "N", 0, SP_HISTORY_MAX_ENTRIES,
                  "how many ended processes `logs` and `ps -a` still find (default 1000)"),
    SP_OPT_TIME(struct serve_options, idle_exit_ms, "idle-exit", "TIME", 0, MAX_TTL_MS,
                "end after so long without a connection and without a live process; 0: never (the "
                "default)"),
    SP_OPT_FLAG(struct serve_options, has_no_cgroups, "no-cgroups",
                "find the processes of a command by parentage, not by cgroup"),
    SP_OPT_FLAG(struct serve_options, accepts_exposure, "expose-to-sandboxes",
                "with --no-auth: run confined commands with network, too, though they can reach "
                "this server and ask for a command without a sandbox"),
    SP_OPT_NUMBER(struct serve_options, concurrent_requests, "concurrent-requests", "N", 1,
                  UINT64_MAX, "accepted for compatibility: no request ever stalls another"),
    SP_OPT_HEADING("Permission to run commands:"),
    SP_CLI_APPROVAL_OPTIONS(
        struct serve_options, approval,
        "judge every start first: untrusted, on-failure, on-request, never, or the JSON "
        "of granular (default: every start is permitted)",
        "",
        "who answers questions: deny, program:PATH, console (`sallyport approvals`) or client; "
        "A,B: both are asked at once; given again: asked if those before gave no answer (default: "
        "approver of the configuration, else deny)"),
    SP_OPT_HEADING("Operation:"),
    SP_OPT_FLAG(struct serve_options, has_metrics, "metrics",
                "answer GET /metrics also beyond loopback"),
    SP_OPT_CHOICE(struct serve_options, busy_poll, "busy-poll", "WHEN", busy_poll_words,
                  "poll for output instead of sleeping: auto (a little, where waking up takes "
                  "long), off or on (default: busy_poll of the configuration, else auto)"),
    SP_OPT_CHOICE(struct serve_options, log_level, "log-level", "LEVEL", log_levels,
                  "error, warn, info or debug (default warn)"),
    SP_OPT_CHOICE(struct serve_options, log_format, "log-format", "FORMAT", log_formats,
                  "human or json (default human)"),
    SP_OPT(NUMBER, SP_OPT_WORDS("log-max", "BYTES", "of a file on stderr, which is emptied then"),
           SP_OPT_AT(struct serve_options, log_max, uint64_t), .max = UINT64_MAX,
           .is_hidden = true),
    SP_OPT_END,
};

/* One --listen. */
struct serve_place {
    char text[160]; /* its URL, complete: of user:NAME, 8799 and the like, too */
    struct sp_listen_url url;
    bool is_user; /* the socket of user:NAME, which needs no token */
    struct sp_listener *listener;
};

struct serve {
    struct sp_loop *loop;
    struct sp_front *front;
    struct sp_rpc rpc;
    struct sp_rpc_door door, local_door;
    struct sp_auth *auth;
    char token[SP_AUTH_TOKEN_LEN + 1]; /* that we made; "": none, or printed already */
    bool has_own_token;                /* ... which is asked for on ws:// only */
    struct serve_place places[MAX_LISTEN];
    unsigned place_count;
    struct sp_listener *local; /* NULL: none */
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

/* ---- authentication ---- */

/* At most one kind of token; without any, one is made unless the options forbid it. */
static int open_auth(struct serve *s, struct serve_options *o, struct sp_err *e)
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
        if (stat(o->token_file, &st) == 0 && (S_ISDIR(st.st_mode) || S_ISCHR(st.st_mode)))
            return sp_fail(e, SP_E_INVALID, 0, "--token-file: %s is a %s, not a file with a token",
                           o->token_file, S_ISDIR(st.st_mode) ? "directory" : "device");
        if (stat(o->token_file, &st) == 0 && (st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
            return sp_fail(e, SP_E_INVALID, 0,
                           "--token-file: others may read or write %s (mode %04o); a token is for "
                           "its owner alone: chmod 600 it",
                           o->token_file, (unsigned)st.st_mode & 07777);
        o->auth.mode = "capability-token";
        o->auth.token_file = o->token_file;
        o->auth.token_flag = "--token-file";
    }
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
        return sp_auth_make(&s->auth, s->token, e);
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

/* ---- setting up ---- */

/* For `ps`, `logs`, `attach` and `kill` of this user: the directory is private, so the socket needs
 * no token. A failure is only logged: the server works without it. */
static void listen_locally(struct serve *s, const struct sp_listen_options *like)
{
    struct sp_listen_options o = *like;
    struct sp_listen_url url;
    struct sp_err e = {0};
    char name[600];
    char why[640];

    o.auth = NULL;
    o.user = &s->local_door;
    o.max_connections = MAX_LOCAL;
    o.max_unfinished = MAX_LOCAL_UNFINISHED;
    int r = sp_own_socket_url(name, sizeof name, &e);
    if (r == 0)
        r = sp_listen_parse(name, &url, &e);
    if (r == 0)
        r = sp_listener_new(s->loop, &url, &o, &s->local, &e);
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
static int listen_everywhere(struct serve *s, const struct serve_options *o,
                             const struct sp_listen_options *like, struct sp_err *e)
{
    for (unsigned i = 0; i < s->place_count; i++) {
        struct serve_place *p = &s->places[i];
        struct sp_listen_options lo = *like;

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
    const struct sp_config_request ask = {.env = environ};

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

/* Listens last: a client that connects finds a complete server. */
static int begin_serving(struct serve *s, struct serve_options *o, struct sp_err *e)
{
    struct rlimit nofile = {1024, 4096};
    struct rlimit raised = {1048576, 1048576};
    int r = sp_spawn_reserve(e);

    sp_spawn_fill_low();
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
    /* Raise our limit of descriptors; commands get the limit that we were started with. Up to the
     * hard limit that is always allowed. */
    (void)getrlimit(RLIMIT_NOFILE, &nofile);
    if (nofile.rlim_max >= raised.rlim_max || setrlimit(RLIMIT_NOFILE, &raised) < 0) {
        raised = (struct rlimit){nofile.rlim_max, nofile.rlim_max};
        (void)setrlimit(RLIMIT_NOFILE, &raised);
    }
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
        .nofile_soft = nofile.rlim_cur,
        .nofile_hard = nofile.rlim_max,
        .limits = limits,
        .has_no_leaves = o->has_no_cgroups,
        .fixed = sp_hidden_paths_places(&s->hidden_paths),
        .runtime_dir = s->runtime_dir,
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
    if (!sp_rpc_init(&s->rpc))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the counters");
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
    return is_stdio ? 0 : print_urls(s, e);
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
}

/* NULL: the options fit together. */
static const char *find_misuse(const struct serve_options *o)
{
    const bool has_token = o->token_file != NULL || o->auth.mode != NULL ||
                           o->auth.token_file != NULL || o->auth.token_sha256 != NULL ||
                           o->auth.shared_secret_file != NULL;

    if (has_token && o->has_no_auth)
        return "--no-auth cannot be combined with a token";
    if (has_token && o->is_anonymous_allowed)
        return "--allow-anonymous cannot be combined with a token";
    if (o->approval.policy == NULL &&
        (o->approval.rules.count > 0 || o->approval.approvers.count > 0))
        return "--rules and --approver judge nothing without --approve";
    return NULL;
}

static int run_serve(void *values, char **operands)
{
    struct serve_options *o = values;
    struct serve s = {0};
    struct sp_err e = {0};
    const char *misuse = find_misuse(o);

    (void)operands;
    if (misuse != NULL)
        return sp_command_misused(&sp_command_serve, misuse);
    if (o->log_level != NULL)
        (void)sp_log_set_level(o->log_level);
    if (o->log_format != NULL)
        sp_log_set_json(strcmp(o->log_format, "json") == 0);
    sp_log_set_max(o->log_max);
    int r = begin_serving(&s, o, &e);
    if (r == 0)
        r = sp_loop_run(s.loop, &e);
    end_serving(&s);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static const struct serve_options defaults = {.max_connections = 1024,
                                              .max_processes = 10000,
                                              .session_ttl_ms = 30000,
                                              .closed_ttl_ms = 30000,
                                              .history = 1000};

const struct sp_cli_command sp_command_serve = {
    .name = "serve",
    .summary = "run the exec-server, over WebSocket, a unix socket or stdio",
    .usage = "sallyport serve [OPTIONS]\n"
             "\n"
             "Runs processes for clients of the exec-server protocol. The first line of "
             "stdout is the URL.\n",
    .notes = "SIGTERM, SIGINT and SIGHUP end the server and every process it runs; exit "
             "status 0.\n"
             "Example: sallyport serve --listen ws://127.0.0.1:8765 --log-level info\n",
    .options = options,
    .values_size = sizeof(struct serve_options),
    .defaults = &defaults,
    .run = run_serve,
};
