/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/sockets.h"
#include "core/covers.h"
#include "core/placeholder.h"
#include "net/listen.h"
#include "os/spawn.h"
#include "rpc/conn.h"
#include "rpc/metrics.h"

static const char help[] =
    "Usage: sallyport serve [OPTIONS]\n"
    "\n"
    "Runs processes for clients of the exec-server protocol. The first line of stdout is the URL.\n"
    "\n"
    "Where to listen:\n"
    "  --listen URL              ws://IP:PORT, unix:///PATH or stdio (default ws://127.0.0.1:0)\n"
    "  --allow-host NAME         accept this name in the Host header too (repeatable)\n"
    "  --max-connections N       at most so many at once (default 1024)\n"
    "  --no-local-socket         do not listen for `sallyport ps`, `logs`, `attach` and `kill`\n"
    "                            in the runtime folder of this user, too\n"
    "\n"
    "Who may connect (ws://):\n"
    "  --token-file FILE         require `Authorization: Bearer TOKEN`, the token is in FILE\n"
    "  --allow-anonymous         listen beyond loopback without a token\n"
    "  --ws-auth MODE            capability-token or signed-bearer-token\n"
    "  --ws-token-file FILE      the capability token\n"
    "  --ws-token-sha256 HEX     or its SHA-256\n"
    "  --ws-shared-secret-file FILE, --ws-issuer S, --ws-audience S,\n"
    "  --ws-max-clock-skew-seconds N\n"
    "                            verification of HS256 tokens\n"
    "\n"
    "Limits:\n"
    "  --max-processes N         at most so many, closed ones included (default 10000)\n"
    "  --session-ttl SECONDS     keep the session of a lost connection (default 30)\n"
    "  --closed-ttl SECONDS      keep a closed process readable (default 30)\n"
    "  --no-cgroups              find a command's processes by parentage, not by cgroup\n"
    "  --expose-to-sandboxes     without a token: run confined commands with network, too,\n"
    "                            though they can reach this server and ask for anything\n"
    "  --concurrent-requests N   accepted for compatibility: no request ever stalls another\n"
    "\n"
    "Operation:\n"
    "  --metrics                 answer GET /metrics also beyond loopback\n"
    "  --log-level LEVEL         error, warn, info or debug (default warn)\n"
    "  --log-format FORMAT       human or json (default human)\n"
    "  --help                    show this text\n"
    "\n"
    "SIGTERM, SIGINT and SIGHUP end the server and every process it runs; exit status 0.\n"
    "Example: sallyport serve --listen ws://127.0.0.1:8765 --log-level info\n";

#define MAX_HOSTS 16
#define MAX_LOCAL 128 /* connections on the local socket */

struct options {
    const char *listen;
    struct sp_auth_options auth;
    const char *own_token_file;
    bool is_anonymous_allowed, has_metrics, has_no_cgroups, accepts_exposure;
    bool has_no_local_socket;
    const char *hosts[MAX_HOSTS + 1];
    unsigned host_count;
    uint64_t max_connections, max_processes, session_ttl_s, closed_ttl_s, concurrent_requests;
    uint64_t clock_skew_s;
};

struct serve {
    struct sp_loop *loop;
    struct sp_server *server;
    struct sp_rpc rpc;
    struct sp_auth *auth;
    struct sp_listener *listener;
    struct sp_listener *local; /* NULL: none */
    int signals;
    struct sp_watch on_signal;
    char runtime_dir[512];
    struct sp_covers covers;
};

/* ---- the command line ---- */

enum {
    OPT_LISTEN = 256,
    OPT_ALLOW_HOST,
    OPT_MAX_CONNECTIONS,
    OPT_NO_LOCAL_SOCKET,
    OPT_TOKEN_FILE,
    OPT_ALLOW_ANONYMOUS,
    OPT_WS_AUTH,
    OPT_WS_TOKEN_FILE,
    OPT_WS_TOKEN_SHA256,
    OPT_WS_SECRET,
    OPT_WS_ISSUER,
    OPT_WS_AUDIENCE,
    OPT_WS_SKEW,
    OPT_MAX_PROCESSES,
    OPT_SESSION_TTL,
    OPT_CLOSED_TTL,
    OPT_NO_CGROUPS,
    OPT_EXPOSE,
    OPT_CONCURRENT,
    OPT_METRICS,
    OPT_LOG_LEVEL,
    OPT_LOG_FORMAT,
    OPT_HELP,
};

static const struct option known[] = {
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"allow-host", required_argument, NULL, OPT_ALLOW_HOST},
    {"max-connections", required_argument, NULL, OPT_MAX_CONNECTIONS},
    {"no-local-socket", no_argument, NULL, OPT_NO_LOCAL_SOCKET},
    {"token-file", required_argument, NULL, OPT_TOKEN_FILE},
    {"allow-anonymous", no_argument, NULL, OPT_ALLOW_ANONYMOUS},
    {"ws-auth", required_argument, NULL, OPT_WS_AUTH},
    {"ws-token-file", required_argument, NULL, OPT_WS_TOKEN_FILE},
    {"ws-token-sha256", required_argument, NULL, OPT_WS_TOKEN_SHA256},
    {"ws-shared-secret-file", required_argument, NULL, OPT_WS_SECRET},
    {"ws-issuer", required_argument, NULL, OPT_WS_ISSUER},
    {"ws-audience", required_argument, NULL, OPT_WS_AUDIENCE},
    {"ws-max-clock-skew-seconds", required_argument, NULL, OPT_WS_SKEW},
    {"max-processes", required_argument, NULL, OPT_MAX_PROCESSES},
    {"session-ttl", required_argument, NULL, OPT_SESSION_TTL},
    {"closed-ttl", required_argument, NULL, OPT_CLOSED_TTL},
    {"no-cgroups", no_argument, NULL, OPT_NO_CGROUPS},
    {"expose-to-sandboxes", no_argument, NULL, OPT_EXPOSE},
    {"concurrent-requests", required_argument, NULL, OPT_CONCURRENT},
    {"metrics", no_argument, NULL, OPT_METRICS},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"log-format", required_argument, NULL, OPT_LOG_FORMAT},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static bool number(const char *flag, uint64_t least, uint64_t most, uint64_t *ret)
{
    uint64_t v;

    if (sp_str_to_u64(sp_str_of(optarg), most, &v) && v >= least) {
        *ret = v;
        return true;
    }
    (void)fprintf(stderr, "sallyport serve: %s: `%s` is not a number from %llu to %llu\n", flag,
                  optarg, (unsigned long long)least, (unsigned long long)most);
    return false;
}

static bool one_of(const char *flag, const char *a, const char *b)
{
    if (strcmp(optarg, a) == 0 || strcmp(optarg, b) == 0)
        return true;
    (void)fprintf(stderr, "sallyport serve: %s: `%s` is neither `%s` nor `%s`\n", flag, optarg, a,
                  b);
    return false;
}

/* One option. false: it was bad and that was said. */
static bool take(struct options *o, int opt)
{
    switch (opt) {
    case OPT_LISTEN:
        o->listen = optarg;
        return true;
    case OPT_ALLOW_HOST:
        if (o->host_count == MAX_HOSTS) {
            (void)fprintf(stderr, "sallyport serve: --allow-host: at most %d names\n", MAX_HOSTS);
            return false;
        }
        o->hosts[o->host_count++] = optarg;
        return true;
    case OPT_MAX_CONNECTIONS:
        return number("--max-connections", 1, 1000000, &o->max_connections);
    case OPT_NO_LOCAL_SOCKET:
        o->has_no_local_socket = true;
        return true;
    case OPT_TOKEN_FILE:
        o->own_token_file = optarg;
        return true;
    case OPT_ALLOW_ANONYMOUS:
        o->is_anonymous_allowed = true;
        return true;
    case OPT_WS_AUTH:
        o->auth.mode = optarg;
        return one_of("--ws-auth", "capability-token", "signed-bearer-token");
    case OPT_WS_TOKEN_FILE:
        o->auth.token_file = optarg;
        return true;
    case OPT_WS_TOKEN_SHA256:
        o->auth.token_sha256 = optarg;
        return true;
    case OPT_WS_SECRET:
        o->auth.shared_secret_file = optarg;
        return true;
    case OPT_WS_ISSUER:
        o->auth.issuer = optarg;
        return true;
    case OPT_WS_AUDIENCE:
        o->auth.audience = optarg;
        return true;
    case OPT_WS_SKEW:
        o->auth.max_clock_skew_seconds = optarg;
        return number("--ws-max-clock-skew-seconds", 0, UINT32_MAX, &o->clock_skew_s);
    case OPT_MAX_PROCESSES:
        return number("--max-processes", 1, 1000000, &o->max_processes);
    case OPT_SESSION_TTL:
        return number("--session-ttl", 0, 31536000, &o->session_ttl_s);
    case OPT_CLOSED_TTL:
        return number("--closed-ttl", 0, 31536000, &o->closed_ttl_s);
    case OPT_EXPOSE:
        o->accepts_exposure = true;
        return true;
    case OPT_NO_CGROUPS:
        o->has_no_cgroups = true;
        return true;
    case OPT_CONCURRENT:
        return number("--concurrent-requests", 1, UINT64_MAX, &o->concurrent_requests);
    case OPT_METRICS:
        o->has_metrics = true;
        return true;
    case OPT_LOG_LEVEL:
        if (sp_log_set_level(optarg))
            return true;
        (void)fprintf(stderr,
                      "sallyport serve: --log-level: `%s` is not error, warn, info or debug\n",
                      optarg);
        return false;
    case OPT_LOG_FORMAT:
        sp_log_set_json(strcmp(optarg, "json") == 0);
        return one_of("--log-format", "human", "json");
    default: /* getopt has said what is wrong */
        return false;
    }
}

/* SP_EXIT_OK: go on. -1: help was asked for and given. */
static int read_options(int argc, char **argv, struct options *o)
{
    char **args = calloc((size_t)argc + 2, sizeof *args);
    int opt;
    int result = SP_EXIT_OK;

    if (args == NULL)
        return SP_EXIT_FAILED;
    args[0] = (char *)(uintptr_t) "sallyport serve"; /* what getopt's complaints begin with */
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    optind = 1;
    while (result == SP_EXIT_OK && (opt = getopt_long(argc + 1, args, "", known, NULL)) != -1) {
        if (opt == OPT_HELP) {
            (void)fputs(help, stdout);
            result = -1;
        } else if (!take(o, opt)) {
            result = SP_EXIT_USAGE;
        }
    }
    if (result == SP_EXIT_OK && optind <= argc) {
        (void)fprintf(stderr, "sallyport serve: unexpected argument `%s` (see --help)\n",
                      args[optind]);
        result = SP_EXIT_USAGE;
    }
    free(args);
    return result;
}

/* ---- authority ---- */

static int check_authority(struct options *o, const struct sp_listen_url *url, struct sp_auth **ret,
                           struct sp_error *e)
{
    if (o->auth.mode == NULL && o->auth.token_file != NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-token-file` requires `--ws-auth capability-token`");
    if (o->own_token_file != NULL) {
        if (o->auth.token_file != NULL || o->auth.token_sha256 != NULL ||
            (o->auth.mode != NULL && strcmp(o->auth.mode, "capability-token") != 0))
            return sp_fail(e, SP_E_INVALID, 0,
                           "`--token-file` cannot be combined with another kind of token");
        o->auth.mode = "capability-token";
        o->auth.token_file = o->own_token_file;
    }
    const int r = sp_auth_new(&o->auth, ret, e);
    if (r < 0)
        return r;
    if (*ret != NULL && url->kind == SP_LISTEN_STDIO)
        return sp_fail(e, SP_E_INVALID, 0,
                       "WebSocket auth requires a WebSocket listener, not stdio");
    if (*ret == NULL && !url->is_loopback && !o->is_anonymous_allowed)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`%s` is reachable from other machines: give `--token-file FILE`, or "
                       "`--allow-anonymous` "
                       "if everybody may run commands here",
                       o->listen);
    return 0;
}

/* ---- events ---- */

static void on_signal(struct sp_watch *w, uint32_t events)
{
    struct serve *s = SP_CONTAINER(w, struct serve, on_signal);
    struct signalfd_siginfo info;

    (void)events;
    if (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        sp_log(SP_LOG_INFO, "signal %u: ending", info.ssi_signo);
        sp_loop_stop(s->loop);
    }
}

static void on_finished(void *user)
{
    sp_loop_stop(((struct serve *)user)->loop);
}

static void on_drained(void *user)
{
    sp_conn_resume_all(&((struct serve *)user)->rpc);
}

static bool on_opened(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                      void **ret_user)
{
    return sp_conn_opened(&((struct serve *)user)->rpc, l, ret_ops, ret_user);
}

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

/* ---- beginning and end ---- */

/* As many descriptors as we may have; commands get what we were started with. */
static void raise_nofile(struct rlimit *ret_before)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, ret_before) < 0) {
        *ret_before = (struct rlimit){1024, 4096};
        return;
    }
    l = (struct rlimit){1048576, 1048576};
    if (ret_before->rlim_max < l.rlim_max && setrlimit(RLIMIT_NOFILE, &l) == 0)
        return;
    l = (struct rlimit){ret_before->rlim_max, ret_before->rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &l); /* up to the hard limit is always allowed */
}

static int take_signals(struct serve *s, struct sp_error *e)
{
    static const int optional[] = {SIGINT, SIGHUP};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++) {
        struct sigaction now;

        /* Ignored by whoever started us, as nohup does: then it is to stay so. */
        if (sigaction(optional[i], NULL, &now) < 0 || now.sa_handler != SIG_IGN)
            sigaddset(&set, optional[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD,
                 SIG_DFL); /* ignored by a careless parent, our cell could not be waited for */
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signals < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "take signals");
    return sp_loop_watch(s->loop, &s->on_signal, s->signals, EPOLLIN, on_signal, e);
}

static bool cover_file(struct sp_covers *c, const char *path)
{
    auto_free char *real = path == NULL ? NULL : realpath(path, NULL);

    return sp_covers_add(c, real);
}

/* What would let a confined command ask us for an unconfined one. */
static int find_covers(struct serve *s, const struct options *o, const struct sp_listen_url *url,
                       struct sp_error *e)
{
    char socket[sizeof url->addr.un.sun_path + 1] = "";

    sp_runtime_dir(s->runtime_dir, sizeof s->runtime_dir);
    if (url->kind == SP_LISTEN_UNIX)
        (void)snprintf(socket, sizeof socket, "%.*s", (int)sizeof url->addr.un.sun_path,
                       url->addr.un.sun_path);
    const bool ok = sp_covers_find(s->runtime_dir, &s->covers) &&
                    sp_covers_add(&s->covers, socket) &&
                    cover_file(&s->covers, o->auth.token_file) &&
                    cover_file(&s->covers, o->auth.shared_secret_file);
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember what to cover");
}

/* For this user's `ps`, `logs`, `attach` and `kill`: who may open the folder needs no token.
 * Without it everything else still works. */
static void listen_locally(struct serve *s, const struct sp_listen_options *like)
{
    struct sp_listen_options o = *like;
    struct sp_listen_url url;
    struct sp_error e = {0};
    char name[600];
    char why[640];

    o.auth = NULL;
    o.max_connections = MAX_LOCAL;
    int r = sp_sockets_own_url(name, sizeof name, &e);
    if (r == 0)
        r = sp_listen_parse(name, &url, &e);
    if (r == 0)
        r = sp_listener_new(s->loop, &url, &o, &s->local, &e);
    if (r < 0)
        sp_log(SP_LOG_WARN, "no local socket: %s", sp_error_text(&e, why, sizeof why));
}

static int begin(struct serve *s, struct options *o, struct sp_error *e)
{
    struct sp_listen_url url = {0};
    struct rlimit nofile;
    int r = sp_spawn_reserve(e);

    if (r == 0)
        r = sp_listen_parse(o->listen, &url, e);
    if (r == 0)
        r = check_authority(o, &url, &s->auth, e);
    if (r == 0)
        r = find_covers(s, o, &url, e);
    if (r == 0)
        r = sp_loop_new(&s->loop, e);
    if (r == 0)
        r = take_signals(s, e);
    if (r < 0)
        return r;
#ifndef __SANITIZE_ADDRESS__         /* which looks at itself from outside when it ends */
    (void)prctl(PR_SET_DUMPABLE, 0); /* tokens and everybody's output are in our memory */
#endif
    raise_nofile(&nofile);
    const struct sp_server_options so = {
        .program = "/proc/self/exe",
        .max_processes = (uint32_t)o->max_processes,
        .session_ttl_ms = o->session_ttl_s * 1000,
        .closed_ttl_ms = o->closed_ttl_s * 1000,
        .use_cgroups = !o->has_no_cgroups,
        .nofile_soft = nofile.rlim_cur,
        .nofile_hard = nofile.rlim_max,
        .covers = (const char *const *)s->covers.paths,
        .runtime_dir = s->runtime_dir,
        .is_exposed = url.kind == SP_LISTEN_WS && s->auth == NULL && !o->accepts_exposure,
        .user = s,
        .drained = on_drained,
    };
    r = sp_server_new(s->loop, &so, &s->server, e);
    if (r < 0)
        return r;
    s->rpc.server = s->server;
    s->rpc.environ = environ;
    s->rpc.keeps_sessions = url.kind != SP_LISTEN_STDIO;
    s->rpc.stats = calloc(sp_method_count + 1, sizeof *s->rpc.stats);
    if (s->rpc.stats == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the counters");
    sp_host_detect(&s->rpc.host);
    const struct sp_listen_options lo = {
        .auth = s->auth,
        .hosts = o->hosts,
        .has_metrics = o->has_metrics || url.is_loopback,
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
    if (r == 0 && url.kind != SP_LISTEN_STDIO && !o->has_no_local_socket)
        listen_locally(s, &lo);
    if (r == 0 && url.kind != SP_LISTEN_STDIO &&
        (printf("%s\n", sp_listener_url(s->listener)) < 0 || fflush(stdout) != 0))
        r = sp_fail(e, SP_E_SYSTEM, errno, "say the URL on stdout");
    return r;
}

static void end(struct serve *s)
{
    sp_listener_free(s->local);
    sp_listener_free(s->listener);
    sp_server_free(s->server);
    sp_auth_free(s->auth);
    sp_covers_done(&s->covers);
    sp_json_done(&s->rpc.json);
    free(s->rpc.stats);
    if (s->loop != NULL)
        sp_loop_unwatch(s->loop, &s->on_signal);
    if (s->signals >= 0)
        (void)close(s->signals);
    sp_loop_free(s->loop);
}

int sp_cmd_serve(int argc, char **argv)
{
    struct options o = {.listen = "ws://127.0.0.1:0",
                        .max_connections = 1024,
                        .max_processes = 10000,
                        .session_ttl_s = 30,
                        .closed_ttl_s = 30};
    struct serve s = {.signals = -1};
    struct sp_error e = {0};
    const int usage = read_options(argc, argv, &o);

    if (usage != SP_EXIT_OK)
        return usage < 0 ? SP_EXIT_OK : usage;
    int r = begin(&s, &o, &e);
    if (r == 0)
        r = sp_loop_run(s.loop, &e);
    end(&s);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}
