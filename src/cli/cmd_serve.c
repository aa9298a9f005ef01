/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport serve`: the exec-server. Puts the listener, the server and the approvals together. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "cli/cli.h"
#include "cli/observe.h"
#include "cli/serve_approve.h"
#include "cli/signals.h"
#include "config/own_places.h"
#include "core/journal.h"
#include "os/spawn.h"
#include "sandbox/hidden_paths.h"
#include "server/net/listen.h"
#include "server/rpc/conn.h"
#include "server/rpc/metrics.h"

#define MAX_HOSTS            16           /* names of --host-name */
#define MAX_LOCAL            128          /* connections on the local socket */
#define MAX_UNFINISHED       (256U << 20) /* bytes of unfinished input of all connections */
#define MAX_LOCAL_UNFINISHED (64U << 20)  /* ... on the local socket */
#define MAX_TTL_S            31536000     /* a year */

#define PROBE_MS 2 /* after the server began to listen */

struct serve_options {
    const char *listen;
    struct sp_option_list hosts;
    uint64_t max_connections;
    bool has_no_local_socket;
    const char *token_file;    /* of --token-file: another spelling of auth.token_file */
    bool has_no_auth;          /* ws:// without a token */
    bool is_anonymous_allowed; /* the same, also beyond loopback */
    struct sp_auth_options auth;
    uint64_t max_processes, session_ttl_s, closed_ttl_s, concurrent_requests;
    bool has_no_cgroups, accepts_exposure;
    struct sp_cli_approval_flags approval;
    bool has_metrics;
    const char *log_level, *log_format;
};

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
static const char *const log_levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const log_formats[] = {"human", "json", NULL};

static const struct sp_option options[] = {
    SP_OPT_HEADING("Where to listen:"),
    SP_OPT_STRING(struct serve_options, listen, "listen", "URL",
                  "ws://IP:PORT, unix:///PATH or stdio (default ws://127.0.0.1:0)"),
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
                  "limit of processes, closed ones included (default 10000)"),
    SP_OPT_NUMBER(struct serve_options, session_ttl_s, "session-ttl", "SECONDS", 0, MAX_TTL_S,
                  "how long the session of a lost connection is kept (default 30)"),
    SP_OPT_NUMBER(struct serve_options, closed_ttl_s, "closed-ttl", "SECONDS", 0, MAX_TTL_S,
                  "how long a closed process can be read (default 30)"),
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
        "who answers questions: deny, program:PATH or client; A,B: both are asked at once; "
        "given again: asked if those before gave no answer (default: approver of the "
        "configuration, else deny)"),
    SP_OPT_HEADING("Operation:"),
    SP_OPT_FLAG(struct serve_options, has_metrics, "metrics",
                "answer GET /metrics also beyond loopback"),
    SP_OPT_CHOICE(struct serve_options, log_level, "log-level", "LEVEL", log_levels,
                  "error, warn, info or debug (default warn)"),
    SP_OPT_CHOICE(struct serve_options, log_format, "log-format", "FORMAT", log_formats,
                  "human or json (default human)"),
    SP_OPT_END,
};

struct serve {
    struct sp_loop *loop;
    struct sp_front *front;
    struct sp_rpc rpc;
    struct sp_auth *auth;
    char token[SP_AUTH_TOKEN_LEN + 1]; /* that we made; "": none, or printed already */
    struct sp_listener *listener;
    struct sp_listener *local; /* NULL: none */
    struct sp_ending ending;
    char runtime_dir[512];
    struct sp_hidden_paths hidden_paths;
    struct sp_serve_approve *approve; /* NULL: every start is permitted */
    struct sp_timer probe;
};

/* ---- authentication ---- */

/* At most one kind of token; without any, one is made unless the options forbid it. */
static int open_auth(struct serve *s, struct serve_options *o, const struct sp_listen_url *url,
                     struct sp_err *e)
{
    if (o->auth.mode == NULL && o->auth.token_file != NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-token-file` requires `--ws-auth capability-token`");
    if (o->token_file != NULL) {
        if (o->auth.token_file != NULL || o->auth.token_sha256 != NULL ||
            (o->auth.mode != NULL && strcmp(o->auth.mode, "capability-token") != 0))
            return sp_fail(e, SP_E_INVALID, 0,
                           "`--token-file` cannot be combined with another kind of token");
        o->auth.mode = "capability-token";
        o->auth.token_file = o->token_file;
    }
    const int r = sp_auth_new(&o->auth, &s->auth, e);
    if (r < 0)
        return r;
    if (s->auth != NULL && url->kind == SP_LISTEN_STDIO)
        return sp_fail(e, SP_E_INVALID, 0,
                       "WebSocket auth requires a WebSocket listener, not stdio");
    if (s->auth != NULL || url->kind != SP_LISTEN_WS)
        return 0;
    if (!o->has_no_auth && !o->is_anonymous_allowed)
        return sp_auth_make(&s->auth, s->token, e);
    if (!url->is_loopback && !o->is_anonymous_allowed)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`%s` is reachable from other machines: leave out `--no-auth`, or give "
                       "`--allow-anonymous` if every machine that reaches it may run commands here",
                       o->listen);
    return 0;
}

/* The first line of stdout. The token is erased: nothing needs it afterwards. */
static int print_url(struct serve *s, struct sp_err *e)
{
    const bool has_token = s->token[0] != 0;
    struct stat st;

    if (has_token && fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode))
        (void)fputs("Warning: the URL with the token goes to a file: every reader of that file can "
                    "run commands here; use --token-file or --listen unix:///PATH instead\n",
                    stderr);
    const int n =
        printf("%s%s%s\n", sp_listener_url(s->listener), has_token ? "/?token=" : "", s->token);
    explicit_bzero(s->token, sizeof s->token);
    return n < 0 || fflush(stdout) != 0 ? sp_fail(e, SP_E_SYSTEM, errno, "print the URL on stdout")
                                        : 0;
}

/* ---- events ---- */

static void on_finished(void *user)
{
    sp_loop_stop(((struct serve *)user)->loop);
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

static bool forbids_host(void *user, const struct sp_hostname *host)
{
    return sp_serve_approve_forbids_host(((struct serve *)user)->approve, host);
}

static bool on_opened(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                      void **ret_user)
{
    return sp_conn_opened(&((struct serve *)user)->rpc, l, ret_ops, ret_user);
}

/* The two listeners are one server to the reader of the metrics. */
static void on_metrics(void *user, struct sp_buf *out)
{
    struct serve *s = user;
    struct sp_listener_stats net = {0};
    struct sp_listener_stats local = {0};

    sp_listener_stats(s->listener, &net);
    if (s->local != NULL)
        sp_listener_stats(s->local, &local);
    net.accepted += local.accepted;
    net.refused += local.refused;
    net.active += local.active;
    net.bytes_in += local.bytes_in;
    net.bytes_out += local.bytes_out;
    net.queued_bytes += local.queued_bytes;
    sp_metrics_write(&s->rpc, &net, out);
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
    o.max_connections = MAX_LOCAL;
    o.max_unfinished = MAX_LOCAL_UNFINISHED;
    int r = sp_observe_own_url(name, sizeof name, &e);
    if (r == 0)
        r = sp_listen_parse(name, &url, &e);
    if (r == 0)
        r = sp_listener_new(s->loop, &url, &o, &s->local, &e);
    if (r < 0)
        sp_log(SP_LOG_WARN, "no local socket: %s", sp_error_text(&e, why, sizeof why));
}

/* Commands in managed networks do not reach our own port. */
static void keep_port_apart(const struct serve *s)
{
    const char *colon = strrchr(sp_listener_url(s->listener), ':');
    uint64_t port = 0;

    if (colon != NULL && sp_str_to_u64(sp_str_of(colon + 1), UINT16_MAX, &port))
        sp_cell_pool_add_own_port(s->front->cell_pool, (uint16_t)port);
}

/* Listens last: a client that connects finds a complete server. */
/* Clients are told what the host allows when they connect: it is found out before, so that the
 * first of them does not wait for it. */
static void on_probe(struct sp_timer *t)
{
    (void)sp_cell_pool_has_networks(SP_CONTAINER(t, struct serve, probe)->front->cell_pool);
}

static int begin_serving(struct serve *s, struct serve_options *o, struct sp_err *e)
{
    struct sp_listen_url url = {0};
    struct rlimit nofile = {1024, 4096};
    struct rlimit raised = {1048576, 1048576};
    char socket[sizeof url.addr.un.sun_path + 1] = "";
    int r = sp_spawn_reserve(e);

    sp_spawn_fill_low();
    if (r == 0)
        r = sp_listen_parse(o->listen, &url, e);
    if (r == 0)
        r = open_auth(s, o, &url, e);
    /* The sockets and secrets by which a confined command could ask us for an unconfined one. */
    sp_runtime_dir(s->runtime_dir, sizeof s->runtime_dir);
    if (url.kind == SP_LISTEN_UNIX)
        (void)snprintf(socket, sizeof socket, "%.*s", (int)sizeof url.addr.un.sun_path,
                       url.addr.un.sun_path);
    if (r == 0 && !(sp_hidden_paths_find(s->runtime_dir, &s->hidden_paths) &&
                    sp_hidden_paths_add(&s->hidden_paths, socket) &&
                    sp_hidden_paths_add_real(&s->hidden_paths, o->auth.shared_secret_file)))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "collect the paths to hide from sandboxes");
    if (r == 0)
        r = sp_loop_new(&s->loop, e);
    if (r == 0)
        r = sp_ending_begin(&s->ending, s->loop, e);
    sp_host_detect(&s->rpc.host);
    const struct sp_serve_approve_ask approve = {
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
    /* Files that decide what this and any other sallyport of the user may run. The audit log is
     * among them: a process that can read it can lock it, and all starts would wait. */
    const struct sp_own_places_ask own = {
        .config = s->approve == NULL ? NULL : &s->approve->config,
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
    const struct sp_front_options so = {
        .program = "/proc/self/exe",
        .max_processes = (uint32_t)o->max_processes,
        .session_ttl_ms = o->session_ttl_s * 1000,
        .closed_ttl_ms = o->closed_ttl_s * 1000,
        .use_cgroups = !o->has_no_cgroups,
        .nofile_soft = nofile.rlim_cur,
        .nofile_hard = nofile.rlim_max,
        .fixed = sp_hidden_paths_places(&s->hidden_paths),
        .runtime_dir = s->runtime_dir,
        .is_exposed = url.kind == SP_LISTEN_WS && s->auth == NULL && !o->accepts_exposure,
        .is_exposed_widely = !url.is_loopback,
        .user = s,
        .drained = on_drained,
        .ended = s->approve != NULL ? on_ended : NULL,
        .forbids_host = s->approve != NULL ? forbids_host : NULL,
    };
    r = sp_front_new(s->loop, &so, &s->front, e);
    if (r < 0)
        return r;
    s->rpc.front = s->front;
    s->rpc.env = environ;
    s->rpc.keeps_sessions = url.kind != SP_LISTEN_STDIO;
    if (!sp_rpc_init(&s->rpc))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the counters");
    const struct sp_listen_options lo = {
        .auth = s->auth,
        .hosts = o->hosts.items,
        .has_metrics = o->has_metrics || url.is_loopback,
        .is_narrow = true,
        .max_unfinished = MAX_UNFINISHED,
        .max_connections = (unsigned)o->max_connections,
        .ping_every_ms = 30000,
        .silence_ms = 60000,
        .handshake_ms = 10000,
        .user = s,
        .opened = on_opened,
        .metrics = on_metrics,
        .finished = on_finished,
    };
    r = sp_listener_new(s->loop, &url, &lo, &s->listener, e);
    if (r == 0 && url.kind == SP_LISTEN_WS)
        keep_port_apart(s);
    if (r == 0 && url.kind != SP_LISTEN_STDIO && !o->has_no_local_socket)
        listen_locally(s, &lo);
    if (r == 0)
        (void)sp_loop_timer(s->loop, &s->probe, sp_loop_now(s->loop) + PROBE_MS, on_probe);
    return r == 0 && url.kind != SP_LISTEN_STDIO ? print_url(s, e) : r;
}

/* Connections first, since they use all the rest; the loop last. */
static void end_serving(struct serve *s)
{
    if (s->loop != NULL)
        sp_loop_cancel(s->loop, &s->probe);
    sp_listener_free(s->local);
    sp_listener_free(s->listener);
    sp_rpc_done(&s->rpc);
    sp_front_free(s->front);
    sp_serve_approve_free(s->approve);
    sp_auth_free(s->auth);
    sp_hidden_paths_done(&s->hidden_paths);
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
    int r = begin_serving(&s, o, &e);
    if (r == 0)
        r = sp_loop_run(s.loop, &e);
    end_serving(&s);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static const struct serve_options defaults = {.listen = "ws://127.0.0.1:0",
                                              .max_connections = 1024,
                                              .max_processes = 10000,
                                              .session_ttl_s = 30,
                                              .closed_ttl_s = 30};

const struct sp_cli_command sp_command_serve = {
    .name = "serve",
    .summary = "run the exec-server: processes over WebSocket, a unix socket or stdio",
    .usage = "sallyport serve [OPTIONS]\n"
             "\n"
             "Runs processes for clients of the exec-server protocol. The first line of stdout is\n"
             "the URL.\n",
    .notes = "SIGTERM, SIGINT and SIGHUP end the server and every process it runs; exit status 0.\n"
             "Example: sallyport serve --listen ws://127.0.0.1:8765 --log-level info\n",
    .options = options,
    .values_size = sizeof(struct serve_options),
    .defaults = &defaults,
    .run = run_serve,
};
