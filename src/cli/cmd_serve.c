/* SPDX-License-Identifier: Apache-2.0 */
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
#include "cli/serve_approve.h"
#include "cli/serve_options.h"
#include "cli/signals.h"
#include "cli/sockets.h"
#include "config/own_places.h"
#include "core/journal.h"
#include "os/spawn.h"
#include "sandbox/hidden_paths.h"
#include "server/net/listen.h"
#include "server/rpc/conn.h"
#include "server/rpc/metrics.h"
#include "server/rpc/watches.h"

#define MAX_LOCAL            128          /* connections on the local socket */
#define MAX_UNFINISHED       (256U << 20) /* bytes of unfinished input of all connections */
#define MAX_LOCAL_UNFINISHED (64U << 20)  /* ... on the local socket */

struct serve {
    struct sp_loop *loop;
    struct sp_server *server;
    struct sp_rpc rpc;
    struct sp_auth *auth;
    char token[SP_AUTH_TOKEN_LEN + 1]; /* made here; "": none, or it was printed */
    struct sp_listener *listener;
    struct sp_listener *local; /* NULL: none */
    struct sp_ending ending;
    char runtime_dir[512];
    struct sp_hidden_paths hidden_paths;
    struct sp_serve_approve *approve; /* NULL: the clients have decided */
};

/* ---- authority ---- */

static int check_authority(struct serve *s, struct sp_serve_options *o,
                           const struct sp_listen_url *url, struct sp_err *e)
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

/* The first line of stdout. The token is not needed after it. */
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
    sp_serve_approve_forget(((struct serve *)user)->approve, session->number);
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

/* What would let a confined command ask us for an unconfined one. */
static int find_hidden_paths(struct serve *s, const struct sp_serve_options *o,
                             const struct sp_listen_url *url, struct sp_err *e)
{
    char socket[sizeof url->addr.un.sun_path + 1] = "";

    sp_runtime_dir(s->runtime_dir, sizeof s->runtime_dir);
    if (url->kind == SP_LISTEN_UNIX)
        (void)snprintf(socket, sizeof socket, "%.*s", (int)sizeof url->addr.un.sun_path,
                       url->addr.un.sun_path);
    const bool ok = sp_hidden_paths_find(s->runtime_dir, &s->hidden_paths) &&
                    sp_hidden_paths_add(&s->hidden_paths, socket) &&
                    sp_hidden_paths_add_real(&s->hidden_paths, o->auth.shared_secret_file);
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember what to cover");
}

/* For this user's `ps`, `logs`, `attach` and `kill`: who may open the folder needs no token.
 * Without it everything else still works. */
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
    int r = sp_sockets_own_url(name, sizeof name, &e);
    if (r == 0)
        r = sp_listen_parse(name, &url, &e);
    if (r == 0)
        r = sp_listener_new(s->loop, &url, &o, &s->local, &e);
    if (r < 0)
        sp_log(SP_LOG_WARN, "no local socket: %s", sp_error_text(&e, why, sizeof why));
}

/* The shell is the one that clients are told of. */
static int open_approvals(struct serve *s, const struct sp_serve_options *o, struct sp_err *e)
{
    const struct sp_serve_approve_ask ask = {
        .loop = s->loop,
        .policy = o->approve,
        .rules = o->rules,
        .approvers = o->approver_count != 0 ? o->approvers : NULL,
        .shell = s->rpc.host.shell_path,
        .environ = environ,
    };

    if (o->approve == NULL)
        return 0;
    const int r = sp_serve_approve_new(&ask, &s->approve, e);
    if (r < 0)
        return r;
    s->rpc.gate = sp_serve_approve_gate(s->approve);
    return 0;
}

/* What decides about the commands of this and any other sallyport of the user. A process that can
 * read the audit log can lock it, and all starts would wait for that. */
static int find_own_places(struct serve *s, const struct sp_serve_options *o, struct sp_err *e)
{
    const struct sp_own_places_ask ask = {
        .config = s->approve == NULL ? NULL : sp_serve_approve_config(s->approve),
        .rules = o->rules,
        .approvers = o->approvers,
        .token_file = o->auth.token_file,
    };

    return sp_own_places_find(&ask, &s->hidden_paths, e);
}

static int begin(struct serve *s, struct sp_serve_options *o, struct sp_err *e)
{
    struct sp_listen_url url = {0};
    struct rlimit nofile;
    int r = sp_spawn_reserve(e);

    sp_spawn_fill_low();
    if (r == 0)
        r = sp_listen_parse(o->listen, &url, e);
    if (r == 0)
        r = check_authority(s, o, &url, e);
    if (r == 0)
        r = find_hidden_paths(s, o, &url, e);
    if (r == 0)
        r = sp_loop_new(&s->loop, e);
    if (r == 0)
        r = sp_ending_begin(&s->ending, s->loop, e);
    sp_host_detect(&s->rpc.host);
    if (r == 0)
        r = open_approvals(s, o, e);
    if (r == 0)
        r = find_own_places(s, o, e);
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
        .fixed = sp_hidden_paths_places(&s->hidden_paths),
        .runtime_dir = s->runtime_dir,
        .is_exposed = url.kind == SP_LISTEN_WS && s->auth == NULL && !o->accepts_exposure,
        .user = s,
        .drained = on_drained,
        .ended = s->approve != NULL ? on_ended : NULL,
    };
    r = sp_server_new(s->loop, &so, &s->server, e);
    if (r < 0)
        return r;
    s->rpc.server = s->server;
    s->rpc.env = environ;
    sp_list_init(&s->rpc.conns);
    s->rpc.keeps_sessions = url.kind != SP_LISTEN_STDIO;
    s->rpc.stats = calloc(sp_method_count + 1, sizeof *s->rpc.stats);
    if (s->rpc.stats == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the counters");
    const struct sp_listen_options lo = {
        .auth = s->auth,
        .hosts = o->hosts,
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
    if (r == 0 && url.kind != SP_LISTEN_STDIO && !o->has_no_local_socket)
        listen_locally(s, &lo);
    return r == 0 && url.kind != SP_LISTEN_STDIO ? print_url(s, e) : r;
}

static void end(struct serve *s)
{
    sp_listener_free(s->local);
    sp_listener_free(s->listener);
    sp_watches_free(&s->rpc);
    sp_web_free(s->rpc.web);
    sp_server_free(s->server);
    sp_serve_approve_free(s->approve);
    sp_auth_free(s->auth);
    sp_hidden_paths_done(&s->hidden_paths);
    sp_json_done(&s->rpc.json);
    free(s->rpc.stats);
    sp_ending_done(&s->ending);
    sp_loop_free(s->loop);
}

int sp_cmd_serve(int argc, char **argv)
{
    struct sp_serve_options o = {0};
    struct serve s = {0};
    struct sp_err e = {0};
    const int usage = sp_serve_options_read(argc, argv, &o);

    if (usage != SP_EXIT_OK) {
        sp_serve_options_done(&o);
        return usage < 0 ? SP_EXIT_OK : usage;
    }
    int r = begin(&s, &o, &e);
    if (r == 0)
        r = sp_loop_run(s.loop, &e);
    end(&s);
    sp_serve_options_done(&o);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}
