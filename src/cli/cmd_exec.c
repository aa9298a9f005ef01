/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport exec`: runs one command, here or on a server.
 *
 *   options --> where it runs --> its policy --> approval (--approve, --rules) --> carry --> status
 *
 * On a server, the policy and the approval wait until the server has said what it is.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "approve/run_plan.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/headtail.h"
#include "base/json.h"
#include "base/log.h"
#include "base/truncate.h"
#include "base/utf8.h"
#include "cli/approval.h"
#include "cli/approver_tty.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "cli/policy_options.h"
#include "cli/run_place.h"
#include "cli/user_server.h"
#include "config/policy.h"
#include "engine/console.h"
#include "engine/delta.h"
#include "engine/local.h"
#include "engine/local_socket.h"
#include "engine/network_job.h"
#include "engine/run.h"
#include "engine/shell.h"
#include "mcp/tools.h"
#include "os/seccomp.h"
#include "os/spawn.h"

enum { EXIT_REJECTED = 122, EXIT_LOST = 123, EXIT_TIMEOUT = 124, EXIT_OURS = 125 };

#define MAX_TIMEOUT_MS (365 * (uint64_t)86400000)
#define MAX_NAME       64
#define ID_SIZE        9 /* 8 letters, and the NUL */

struct exec_options {
    const char *on, *cwd, *token_file;
    struct sp_option_list env;
    struct sp_cli_approval_flags approval;
    struct sp_policy_options policy;
    bool is_tty, has_no_stdin, is_interactive, is_verbose, is_quiet, is_json, has_no_local_socket,
        is_detached, has_receipt;
    const char *name;
    uint64_t timeout_ms; /* 0: none */
    struct sp_limit_levels limits;
    struct sp_config_options config;
};

static const struct sp_option options[] = {
    SP_OPT_STRING(struct exec_options, on, "on", "NAME|URL",
                  "where to run it: `local`, an environment of the configuration, ws://HOST:PORT, "
                  "unix:///PATH, or the pid or the name of a server of this user (default: "
                  "default_environment, else local)"),
    SP_OPT_STRING(struct exec_options, token_file, "token-file", "FILE",
                  "the token of the server that --on names"),
    SP_OPT_STRING(struct exec_options, cwd, "cwd", "DIR",
                  "its working directory (default: the current one; on a server: the server's)",
                  .short_name = 'w'),
    SP_OPT_LIST(struct exec_options, env, "env", "NAME=VALUE",
                "set a variable, besides ours (repeatable)", .short_name = 'e'),
    SP_OPT_TABLE(struct exec_options, policy, sp_policy_options),
    SP_OPT_FLAG(struct exec_options, is_detached, "detach",
                "start it on the server of this user, which is started on demand, or with --on on "
                "that server; print its id and return (not with --publish)",
                .short_name = 'd'),
    SP_OPT_STRING(struct exec_options, name, "name", "NAME",
                  "with --detach: a name for ps, logs, attach and kill (default: its id)"),
    SP_OPT_FLAG(struct exec_options, is_tty, "tty", "give it a terminal of its own",
                .short_name = 't'),
    SP_OPT_FLAG(struct exec_options, has_no_stdin, "no-stdin", "give it no stdin"),
    SP_OPT_FLAG(struct exec_options, is_interactive, "interactive",
                "give it our stdin, which is the default; with --detach: keep its stdin open",
                .short_name = 'i'),
    SP_OPT_TIME(struct exec_options, timeout_ms, "timeout", "TIME", 1, MAX_TIMEOUT_MS,
                "kill it and all its descendants after this time: 30 or 0.5 (seconds), 5m, 1h"),
    SP_OPT_TABLE(struct exec_options, limits, sp_limit_options),
    SP_OPT_FLAG(struct exec_options, is_verbose, "verbose",
                "after a failure, list all that the sandbox denied", .short_name = 'v'),
    SP_OPT_FLAG(struct exec_options, is_quiet, "quiet",
                "say nothing about the sandbox: only errors, and questions", .short_name = 'q'),
    SP_OPT_FLAG(struct exec_options, is_json, "json",
                "print events on stdout, one a line, then the result"),
    SP_OPT_FLAG(struct exec_options, has_receipt, "receipt",
                "say on stderr what it consumed and why it ended"),
    SP_OPT_FLAG(struct exec_options, has_no_local_socket, "no-local-socket",
                "do not listen for `sallyport ps`, `logs`, `attach`, `kill` and `approvals` of "
                "this user"),
    SP_CLI_APPROVAL_OPTIONS(
        struct exec_options, approval,
        "judge the command first, and ask what the policy asks: untrusted, on-failure, "
        "on-request, never, or the JSON of granular",
        "; the command is judged then",
        "who answers: terminal, console (`sallyport approvals`), program:PATH or deny; A,B: both "
        "are asked at once; given "
        "again: asked if those before gave no answer (default: approver of the "
        "configuration, else the terminal if there is one)"),
    SP_OPT_TABLE(struct exec_options, config, sp_config_options),
    SP_OPT_END,
};

/* The judgement of the command: before it starts, and again if its sandbox denied it something. */
struct approval {
    struct sp_cli_approval setup;
    struct sp_approver *approver; /* the chain of all approvers; NULL: none answers */
    struct sp_approvals *approvals;
    struct sp_run_plan plan;
    struct sp_shell shell;     /* the user's, for parsing scripts; empty on a server */
    struct sp_env_request env; /* of a run without its sandbox */
    struct sp_buf made_env;    /* what the plan sees of the variables */
};

/* What --json remembers between events. */
struct exec_json {
    bool has_begun;
    unsigned quota; /* of deltas; set so high that it never ends */
    struct sp_delta deltas[2];
    struct sp_headtail kept[2];
    struct sp_buf *out; /* what on_frame appends to */
    enum sp_stream stream;
    bool ok;
};

struct exec_run {
    const struct exec_options *o;
    char **command;
    struct sp_config config;
    struct sp_config_place place;
    bool is_here;         /* on this machine, as this user: in our own cells or the user's server */
    char server_url[160]; /* of the user's server */
    char id[ID_SIZE];     /* of a detached process */
    char **own_env;       /* what a detached command inherits; NULL: as usual */
    struct sp_env_request env;
    struct sp_env_var *env_vars; /* of --env */
    bool has_said_left_out;
    struct sp_start launch;
    struct sp_str *argv;
    char *cwd;
    struct sp_policy policy;
    const char *policy_name;
    struct approval approval;
    struct sp_network_job *network; /* NULL: none is judged */
    struct exec_json json;
    char call_id[32];
    struct sp_backend *backend;
    struct sp_local_socket *local_socket; /* NULL: --no-local-socket */
    struct sp_console *console;           /* NULL: nothing is judged, or the same */
    struct sp_approver *console_approver;
    struct sp_carry *carry;
};

/* The configuration judges, too, if it has an approval_policy. */
static bool is_judged(const struct exec_run *x)
{
    return x->o->approval.policy != NULL || x->o->approval.rules.count > 0 ||
           x->config.has_approval_policy;
}

/* ---- approval ---- */

/* After the policy. */
static int open_approval(struct exec_run *x, struct sp_err *e)
{
    struct approval *a = &x->approval;
    int r = 0;

    if (x->local_socket != NULL)
        r = sp_console_new(sp_local_socket_rpc(x->local_socket), x->local_socket, &x->console, e);
    if (r < 0)
        return r;
    const struct sp_cli_approval_options ask = {
        .loop = sp_carry_loop(x->carry),
        .config = &x->config,
        .flags = &x->o->approval,
        .cwd = x->place.is_local ? x->cwd : NULL,
        .policy = x->launch.policy,
        .who = {.choices = "deny, terminal, console or program:PATH",
                .has_console = x->console != NULL,
                .joins_console = x->console != NULL,
                .open_terminal = sp_approver_tty_new,
                .is_once = true},
        .asks_terminal = true,
    };
    struct sp_approvals_options *settings = &a->setup.found.options;
    r = sp_cli_approval_open(&ask, &a->setup, e);
    if (r == 0 && x->console != NULL)
        r = sp_console_approver_new(x->console,
                                    &(struct sp_console_options){.client_name = "sallyport exec",
                                                                 .user_dir = settings->user_dir},
                                    &x->console_approver, e);
    if (r == 0 && a->setup.approvers != NULL)
        r = sp_approvers_chain(a->setup.approvers, NULL, x->console_approver, &a->approver, e);
    if (r == 0 && x->place.is_local)
        r = sp_place_find_shell(&a->shell, e);
    settings->approver = a->approver;
    return r < 0 ? r : sp_approvals_new(settings, &a->approvals, e);
}

static void on_plan_decided(struct sp_run_plan *p)
{
    sp_carry_wake(SP_CONTAINER(p, struct exec_run, approval.plan)->carry);
}

/* Prints the names of the variables that the sandbox keeps from the command; once. */
static void say_left_out(struct exec_run *x)
{
    if (x->is_here && x->launch.policy != NULL && !x->has_said_left_out && !x->o->is_quiet)
        sp_place_say_left_out(&x->env);
    x->has_said_left_out = true;
}

/* A rule lets the command run without the sandbox that the command line asks for. */
static void say_unconfined(const struct exec_run *x)
{
    const struct sp_run_plan *p = &x->approval.plan;
    const struct sp_policy_options *o = &x->o->policy;
    char text[160];

    if (!p->is_unconfined || p->is_retry || x->o->is_quiet || !p->has_policy ||
        !sp_profile_needs_sandbox(&p->policy.profile) ||
        p->requirement.kind != SP_REQUIRE_NOTHING ||
        (o->sandbox == NULL && o->profile_file == NULL))
        return;
    (void)snprintf(text, sizeof text,
                   "this runs without the sandbox %.60s: a rule allows it (see `sallyport rules "
                   "explain`)",
                   sp_policy_options_name(o, ""));
    sp_plain_say("sallyport", text);
}

static void on_refused_host(void *user, const struct sp_network_outcome *o)
{
    struct exec_run *x = user;

    x->approval.plan.reason.len = 0;
    (void)sp_buf_add_str(&x->approval.plan.reason, o->text); /* without memory: no reason */
    sp_carry_reject(x->carry);
}

/* Lets the approvals judge the hosts of the command; without --approve the lists decide. */
static int begin_network(struct exec_run *x, struct sp_err *e)
{
    const struct sp_network_job_options o = {
        .approvals = x->approval.approvals,
        .call_id = sp_str_of(x->call_id),
        .environment = sp_str_of(x->place.name),
        .cwd = x->launch.cwd,
        .argv = {x->launch.argv, x->launch.argc},
        .policy = x->launch.policy,
        .policy_name = x->policy_name,
        .refused = on_refused_host,
        .user = x,
    };

    sp_network_job_free(x->network);
    x->network = NULL;
    x->launch.net_ops = NULL;
    x->launch.network = NULL;
    return sp_network_job_new(&o, &x->launch, &x->network, e);
}

/* For sp_carry_options. */
static enum sp_carry_permission may_start(void *user, struct sp_err *e)
{
    struct exec_run *x = user;
    struct approval *a = &x->approval;

    if (a->plan.state == SP_RUN_PLAN_NEW) {
        const struct sp_start *l = &x->launch;
        uint32_t count;
        const bool knows_env =
            x->place.is_local && sp_env_make(l->environ, &a->made_env, &count, NULL) == 0;
        const struct sp_run_plan_request ask = {
            .call_id = sp_str_of(x->call_id),
            .environment = sp_str_of(x->place.name),
            .argv = {l->argv, l->argc},
            .cwd = l->cwd,
            .is_tty = l->is_tty,
            .policy = l->policy,
            .policy_name = x->policy_name,
            .shell = a->shell.path,
            .environ = {knows_env ? a->made_env.data : NULL, knows_env ? a->made_env.len : 0},
        };

        sp_run_plan_begin(&a->plan, a->approvals, &ask, on_plan_decided);
    }
    switch (a->plan.state) {
    case SP_RUN_PLAN_ASKING:
        return SP_CARRY_WAIT;
    case SP_RUN_PLAN_GO:
        if (a->plan.is_retry)
            sp_plain_say("sallyport", SP_RUN_PLAN_RETRY_NOTICE);
        say_unconfined(x);
        sp_job_apply_plan(&x->launch, &a->plan);
        if (a->plan.is_unconfined && x->place.is_local)
            sp_local_unpublish(x->backend);
        if (a->plan.is_unconfined && a->plan.unconfined.mark_count != 0) {
            a->env = *x->launch.environ;
            a->env.marks =
                (struct sp_env_vars){a->plan.unconfined.marks, a->plan.unconfined.mark_count};
            x->launch.environ = &a->env;
        }
        say_left_out(x);
        return begin_network(x, e) < 0 ? SP_CARRY_FAIL : SP_CARRY_GO;
    case SP_RUN_PLAN_FAILED:
        *e = a->plan.error;
        return SP_CARRY_FAIL;
    case SP_RUN_PLAN_REFUSED:
    case SP_RUN_PLAN_NEW:
        break;
    }
    (void)sp_fail(e, SP_E_FAILED, 0, "refused"); /* plan.reason may be longer than an error */
    return SP_CARRY_NO;
}

static bool tries_again(void *user, const struct sp_carry_result *r)
{
    struct approval *a = &((struct exec_run *)user)->approval;
    const bool is_guess = !r->denial.has_evidence;
    char text[128];

    if (!sp_run_plan_can_retry(&a->plan, is_guess))
        return false;
    (void)snprintf(text, sizeof text, SP_RUN_PLAN_FAILED_NOTICE, r->exit.code);
    sp_plain_say("sallyport", text);
    return sp_run_plan_retry(&a->plan, is_guess);
}

/* ---- the result ---- */

/* The start failed. 126 and 127 if the reason is the program, as shells have it. */
static int refusal_status(const struct exec_run *x, const struct sp_err *why, char *text,
                          size_t size)
{
    int err = 0;
    /* In a sandbox of ours a missing program is a command that exits with 127, not a refusal. */
    const int status =
        x->place.is_local && x->launch.policy != NULL ? 0 : sp_carry_not_run(why, &err);

    if (!x->place.is_local && why->code == SP_E_SYSTEM) { /* the connection broke */
        (void)sp_error_text(why, text, size);
        return EXIT_LOST;
    }
    if (status == 0) {
        (void)sp_error_text(why, text, size);
        /* STATE: the server judges starts, and the decision was no. */
        return !x->place.is_local && why->code == SP_E_STATE ? EXIT_REJECTED : EXIT_OURS;
    }
    (void)sp_spawn_explain(x->command[0], x->command[1] == NULL, err, text, size);
    return status;
}

/* Lines after the first are indented: a newline in a command must not begin a message of ours. Cut
 * in the middle: a reason begins with what was refused and ends with why. */
static void write_reason(struct sp_str reason, char *text, size_t size)
{
    auto_buf struct sp_buf lines = {0};
    struct sp_str rest = reason;
    bool ok = true;

    while (ok && rest.n > 0)
        ok = (rest.p == reason.p || sp_buf_printf(&lines, "\n    ")) &&
             sp_plain_add(&lines, sp_str_cut(&rest, '\n'));
    if (ok)
        reason = sp_buf_str(&lines);
    const struct sp_split cut = sp_truncate_split(reason, size / 2 - 4, size / 2 - 4);
    if (reason.n < size)
        (void)snprintf(text, size, "%.*s", (int)reason.n, reason.p);
    else
        (void)snprintf(text, size, "%.*s…%.*s", (int)cut.prefix_end, reason.p,
                       (int)(reason.n - cut.suffix_start), reason.p + cut.suffix_start);
}

/* The exit status; `text` is a message about the end, or empty. */
static int exec_status(const struct exec_run *x, const struct sp_carry_result *r, char *text,
                       size_t size)
{
    char why[500];

    switch (r->end) {
    case SP_CARRY_EXITED:
        if (r->killed_by != 0)
            (void)snprintf(text, size, "killed by process %d of user %u (sallyport kill)",
                           (int)r->killed_by, (unsigned)r->killed_by_uid);
        if (r->exit.code == 0 && r->has_gap) {
            (void)snprintf(text, size, "the command ended with 0, but not all of its output came");
            return EXIT_LOST;
        }
        if (r->exit.code >= 0)
            return r->exit.code;
        (void)snprintf(text, size, "how the command ended is not known");
        return EXIT_LOST;
    case SP_CARRY_DETACHED:
        return 0;
    case SP_CARRY_ABANDONED:
        return r->exit.code;
    case SP_CARRY_OUTPUT_CLOSED:
        return 128 + SIGPIPE;
    case SP_CARRY_REFUSED:
        return refusal_status(x, &r->error, text, size);
    case SP_CARRY_REJECTED:
        write_reason(sp_judge_plain_reason(sp_buf_str(&x->approval.plan.reason)), text, size);
        return EXIT_REJECTED;
    case SP_CARRY_UNREACHABLE:
        (void)snprintf(text, size, "%s cannot be reached: %s", x->place.name,
                       sp_error_text(&r->error, why, sizeof why));
        return EXIT_LOST;
    case SP_CARRY_LOST:
        (void)snprintf(text, size, "the command was lost: %s",
                       sp_error_text(&r->error, why, sizeof why));
        return EXIT_LOST;
    case SP_CARRY_TIMED_OUT:
        (void)snprintf(text, size, "timed out after %g s, %s", (double)x->o->timeout_ms / 1000,
                       r->was_killed ? "the command was killed"
                                     : "and it is not known whether the command was killed");
        return EXIT_TIMEOUT;
    }
    return EXIT_OURS;
}

/* ---- --json: events, one a line: begin, deltas of both streams, end, and the result ----
 *
 * The deltas have all output. The end event has the first and last part of each stream, 1 MiB at
 * most.
 */

static struct sp_exec_event event_of(const struct exec_run *x, enum sp_event_type type)
{
    return (struct sp_exec_event){
        .type = type,
        .call_id = sp_str_of(x->call_id),
        .turn_id = SP_STR(""),
        .at_ms = (int64_t)sp_clock_unix_ms(),
        .argv = x->launch.argv,
        .argc = x->launch.argc,
        .cwd = x->launch.cwd,
        .source = SP_SOURCE_USER_SHELL,
    };
}

static bool add_event(struct sp_buf *out, const struct sp_exec_event *e)
{
    return sp_tools_add_event(out, e) && sp_buf_add(out, "\n", 1);
}

static void on_frame(void *arg, struct sp_str frame);

static void forget_output(struct exec_run *x)
{
    struct exec_json *j = &x->json;

    for (int i = 0; i < 2; i++) {
        sp_headtail_done(&j->kept[i]);
        sp_delta_init(&j->deltas[i], &j->quota, on_frame, x);
        sp_headtail_init(&j->kept[i], SP_HEADTAIL_CAPACITY);
    }
}

static bool on_started(void *user, struct sp_buf *out)
{
    struct exec_run *x = user;
    const struct sp_exec_event e = event_of(x, SP_EVENT_BEGIN);

    if (x->json.has_begun)
        forget_output(x); /* that of the attempt that was denied */
    x->json.has_begun = true;
    return add_event(out, &e);
}

static void on_frame(void *arg, struct sp_str frame)
{
    struct exec_run *x = arg;
    struct exec_json *j = &x->json;
    struct sp_exec_event e = event_of(x, SP_EVENT_DELTA);

    e.stream = j->stream;
    e.chunk = frame;
    j->ok = j->ok && add_event(j->out, &e);
}

static void select_stream(struct exec_json *j, int which, struct sp_buf *out)
{
    j->out = out;
    j->stream = which == 1 ? SP_STREAM_STDERR : SP_STREAM_STDOUT;
    j->quota = UINT_MAX;
    j->ok = true;
}

static bool on_output(void *user, enum sp_stream stream, struct sp_str bytes, struct sp_buf *out)
{
    struct exec_json *j = &((struct exec_run *)user)->json;
    const int which = stream == SP_STREAM_STDERR ? 1 : 0;

    select_stream(j, which, out);
    sp_delta_push(&j->deltas[which], bytes);
    return sp_headtail_push(&j->kept[which], bytes) && j->ok;
}

static bool on_gap(void *user, uint64_t bytes, struct sp_buf *out)
{
    struct sp_exec_event e = event_of(user, SP_EVENT_WARNING);
    char text[64];

    if (bytes > 0)
        (void)snprintf(text, sizeof text, "%llu bytes of output were lost here",
                       (unsigned long long)bytes);
    else
        (void)snprintf(text, sizeof text, "some output was lost here");
    e.message = sp_str_of(text);
    return add_event(out, &e);
}

/* stdout and stderr share SP_RUN_CAP in the aggregated output. */
static bool add_end(struct exec_run *x, const struct sp_carry_result *r, int status,
                    struct sp_buf *out)
{
    auto_buf struct sp_buf raw = {0};
    auto_buf struct sp_buf std = {0};
    auto_buf struct sp_buf err = {0};
    auto_buf struct sp_buf all = {0};
    struct sp_exec_event e = event_of(x, SP_EVENT_END);
    size_t n_out = 0;
    size_t n_err = 0;

    for (int i = 0; i < 2; i++) {
        raw.len = 0;
        if (!sp_headtail_add_marked(&x->json.kept[i], &raw) ||
            !sp_utf8_add_lossy(i == 0 ? &std : &err, sp_buf_str(&raw)))
            return false;
    }
    sp_run_share(std.len, err.len, SP_RUN_CAP, &n_out, &n_err);
    n_out = sp_delta_boundary((struct sp_str){sp_buf_str(&std).p, n_out});
    n_err = sp_delta_boundary((struct sp_str){sp_buf_str(&err).p, n_err});
    if (!sp_buf_add(&all, sp_buf_str(&std).p, n_out) ||
        !sp_buf_add(&all, sp_buf_str(&err).p, n_err))
        return false;
    e.out = sp_buf_str(&std);
    e.err = sp_buf_str(&err);
    e.aggregated = e.formatted = sp_buf_str(&all);
    e.exit_code = r->end == SP_CARRY_LOST ? -1 : status;
    e.duration_ns = r->duration_ns;
    e.status = status == 0 ? SP_STATUS_COMPLETED : SP_STATUS_FAILED;
    return add_event(out, &e);
}

/* `kind` of the result line. */
static const char *kind_of(const struct sp_carry_result *r, int status)
{
    switch (r->end) {
    case SP_CARRY_EXITED:
        return r->exit.code < 0 ? "lost" : r->exit.signal != 0 ? "signalled" : "exited";
    case SP_CARRY_TIMED_OUT:
        return "timed_out";
    case SP_CARRY_ABANDONED:
    case SP_CARRY_OUTPUT_CLOSED:
        return "cancelled";
    case SP_CARRY_UNREACHABLE:
    case SP_CARRY_LOST:
        return "lost";
    case SP_CARRY_REJECTED:
        return "refused";
    case SP_CARRY_DETACHED:
        return "detached";
    case SP_CARRY_REFUSED: /* by a server; one that judges says no with EXIT_REJECTED */
        return status == EXIT_REJECTED ? "refused" : "error";
    }
    return "error";
}

/* What the sandbox refused: the kernel's facts first, the guess from the output last. */
static bool add_denials(struct sp_buf *out, const struct sp_carry_result *r)
{
    const struct sp_exit *how = &r->exit;
    const size_t begin = out->len;
    bool ok = true;

    for (uint32_t i = 0; ok && i < how->refusal_count && i < SP_EXIT_REFUSALS; i++) {
        const char *name = sp_syscall_name(how->refusals[i].call);

        ok = sp_buf_printf(out, "%s{\"source\":\"seccomp\",\"call\":\"%s\",\"count\":%u}",
                           i == 0 ? "" : ",", name != NULL ? name : "unknown",
                           how->refusals[i].count);
    }
    if (how->left_network > 0)
        ok = ok &&
             sp_buf_printf(out, "%s{\"source\":\"network\",\"reason\":\"no_route\",\"count\":%u}",
                           out->len == begin ? "" : ",", how->left_network);
    if (r->denial.reason == NULL)
        return ok;
    ok = ok && sp_buf_printf(out, "%s{\"source\":\"heuristic\",\"reason\":\"%s\"",
                             out->len == begin ? "" : ",", r->denial.reason);
    if (r->denial.path[0] != 0)
        ok = ok && sp_buf_printf(out, ",\"path\":") &&
             sp_json_add_str(out, sp_str_of(r->denial.path));
    return ok && sp_buf_add(out, "}", 1);
}

static const char *name_of(const struct exec_run *x)
{
    return x->o->name != NULL ? x->o->name : x->id;
}

/* The result line; r NULL: the command was never started. */
static bool add_result(const struct exec_run *x, struct sp_buf *out,
                       const struct sp_carry_result *r, int status, const char *message)
{
    bool ok = sp_buf_printf(out, "{\"type\":\"result\",\"kind\":\"%s\",\"exit_code\":%d",
                            r == NULL ? "error" : kind_of(r, status), status);

    if (r != NULL && r->exit.signal != 0)
        ok = ok && sp_buf_printf(out, ",\"signal\":%d", r->exit.signal);
    if (r != NULL && r->end == SP_CARRY_DETACHED)
        ok = ok && sp_buf_printf(out, ",\"id\":\"%s\",\"name\":\"%s\"", x->id, name_of(x));
    if (r != NULL && r->limits.is_host_suspected)
        ok = ok && sp_json_add_member(out, "suspected", SP_STR("host_out_of_memory"));
    ok = ok && sp_buf_printf(out, ",\"denials\":[") &&
         (r == NULL || !r->was_denied || add_denials(out, r)) && sp_buf_add(out, "]", 1);
    if (r != NULL && r->receipt.is_known)
        ok = ok && sp_json_add_key(out, "receipt") &&
             sp_receipt_add(out, &r->receipt.is, SP_RECEIPT_SNAKE);
    if (message[0] != 0)
        ok = ok && sp_buf_printf(out, ",\"message\":") && sp_json_add_str(out, sp_str_of(message));
    return ok && sp_buf_printf(out, "}\n");
}

static void say_time(const struct sp_command_receipt *r, enum sp_receipt_item i, const char *what)
{
    const uint64_t ms = r->numbers[i];

    if (sp_receipt_knows(r, i))
        (void)fprintf(stderr, ", %s %" PRIu64 ".%02u s", what, ms / 1000,
                      (unsigned)(ms % 1000 / 10));
}

static void say_size(const struct sp_command_receipt *r, enum sp_receipt_item i, const char *what)
{
    char size[SP_RECEIPT_SIZE];

    sp_receipt_write_size(r->numbers[i], size);
    if (sp_receipt_knows(r, i))
        (void)fprintf(stderr, ", %s %s", what, size);
}

/* --receipt */
static void say_receipt(const struct sp_kept_receipt *kept)
{
    const struct sp_command_receipt *r = &kept->is;
    const bool has_peak = sp_receipt_knows(r, SP_RECEIPT_PEAK_MEMORY);

    if (!kept->is_known)
        return; /* it did not run */
    (void)fprintf(stderr, "sallyport: receipt: %s", sp_end_reason_name(r->reason));
    say_time(r, SP_RECEIPT_WALL_MS, "wall");
    say_time(r, SP_RECEIPT_USER_MS, "user");
    say_time(r, SP_RECEIPT_SYSTEM_MS, "system");
    say_size(r, has_peak ? SP_RECEIPT_PEAK_MEMORY : SP_RECEIPT_MAX_RSS, "memory");
    say_size(r, SP_RECEIPT_READ, "read");
    say_size(r, SP_RECEIPT_WRITTEN, "written");
    (void)fputc('\n', stderr);
}

static bool on_ended(void *user, const struct sp_carry_result *r, struct sp_buf *out)
{
    struct exec_run *x = user;
    struct exec_json *j = &x->json;
    char text[4096] = "";
    const int status = exec_status(x, r, text, sizeof text);

    for (int i = 0; i < 2; i++) {
        select_stream(j, i, out);
        sp_delta_finish(&j->deltas[i]);
        if (!j->ok)
            return false;
    }
    return (!j->has_begun || add_end(x, r, status, out)) && add_result(x, out, r, status, text);
}

/* ---- preparing the run ---- */

/* After x->cwd is set. */
static int make_policy(struct exec_run *x, struct sp_err *e)
{
    const char *configured = x->config.default_permissions;
    const char *name = configured != NULL ? configured : ":danger-full-access";
    bool is_open = false;
    int r = sp_policy_options_make(&x->o->policy, &x->config, name, x->cwd, x->is_here, &x->policy,
                                   &is_open, e);

    if (r == 0 && x->is_here)
        r = sp_config_keep_dot_files(&x->config, &x->policy, e);
    if (r == 0)
        x->launch.policy = is_open ? NULL : &x->policy;
    if (r == 0 && !x->place.is_local && !x->o->is_quiet)
        r = sp_policy_options_publish(&x->o->policy, &x->config, &x->policy, NULL, e);
    x->policy_name = sp_policy_options_name(&x->o->policy, name);
    return r < 0 || !is_judged(x) ? r : open_approval(x, e);
}

/* Those of the configuration, among which are those of --limit then, are for commands that run
 * here. */
static const struct sp_limit_levels *limits_of(const struct exec_run *x)
{
    return x->place.is_local ? &x->config.limits : &x->o->limits;
}

static bool is_in(const struct sp_limit_levels *limits, int limit)
{
    bool ret = false;

    for (int level = 0; level < SP_LIMIT_LEVELS; level++)
        ret = ret || limits->level[level].of[limit] != 0;
    return ret;
}

/* A limit asks for what can be had; one that the command runs without, or that counts less, is not
 * kept quiet. */
static void say_unenforced(const struct exec_run *x, const struct sp_backend_facts *facts)
{
    if (!x->o->is_quiet && is_in(limits_of(x), SP_LIMIT_MEMORY) &&
        facts->limits[SP_LIMIT_MEMORY] == SP_LIMIT_PER_PROCESS)
        (void)fprintf(stderr,
                      "sallyport: %s memory holds for each process alone %s, and below 1G as 1G: "
                      "no cgroup can be used%s\n",
                      is_in(&x->o->limits, SP_LIMIT_MEMORY) ? "--limit" : "the configured limit",
                      x->is_here ? "here" : "on that server",
                      x->is_here ? " (see sallyport doctor)" : "");
    for (int i = 0; i < SP_LIMIT_COUNT && !x->o->is_quiet; i++)
        if (is_in(limits_of(x), i) && facts->limits[i] == SP_LIMIT_NOWHERE)
            (void)fprintf(stderr,
                          "sallyport: %s %s cannot be enforced %s: the command runs without "
                          "it%s\n",
                          is_in(&x->o->limits, i) ? "--limit" : "the configured limit",
                          sp_limit_kinds[i].name, x->is_here ? "here" : "on that server",
                          x->is_here ? " (see sallyport doctor)" : "");
}

static bool has_limits(const struct exec_run *x)
{
    static const struct sp_limit_levels none;

    return memcmp(limits_of(x), &none, sizeof none) != 0;
}

/* For sp_carry_options: the server, or this host, has said what it is. */
static int prepare_there(void *user, const struct sp_backend_facts *facts, struct sp_err *e)
{
    struct exec_run *x = user;
    const char *cwd = x->o->cwd != NULL ? x->o->cwd : facts->cwd;
    struct stat st;

    if (x->o->is_detached && !facts->can_name)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s keeps no command after its client has gone (its capability processNames "
                       "is not set)",
                       x->place.name);
    say_unenforced(x, facts);
    if (x->is_here) /* prepare_run has made the rest */
        return 0;

    if (cwd == NULL || cwd[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0,
                       cwd == NULL ? "%s does not say where commands run: give --cwd"
                                   : "--cwd: want an absolute path on %s",
                       x->place.name);
    if (!facts->can_close_stdin && x->launch.wants_stdin && fstat(STDIN_FILENO, &st) == 0 &&
        S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)) /* /dev/null */
        x->launch.wants_stdin = false;
    if (!facts->can_close_stdin && x->launch.wants_stdin &&
        !(x->launch.is_tty && isatty(STDIN_FILENO)))
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s cannot tell a command that its stdin has ended: give --no-stdin",
                       x->place.name);
    free(x->cwd);
    x->cwd = strdup(cwd);
    if (x->cwd == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy --cwd");
    x->launch.cwd = sp_str_of(x->cwd);
    return make_policy(x, e);
}

/* The TERM that a command with --tty gets on a server, which has none or that of another terminal;
 * p NULL: the configuration sets one, or we have none. */
static struct sp_str term_of_ours(const struct exec_run *x)
{
    const char *term = getenv("TERM");

    if (x->is_here || !x->o->is_tty || term == NULL || term[0] == 0 ||
        !sp_utf8_is_valid(sp_str_of(term)))
        return (struct sp_str){0};
    for (uint32_t i = 0; i < x->config.env_set.count; i++)
        if (sp_str_eq(x->config.env_set.items[i].name, SP_STR("TERM")))
            return (struct sp_str){0};
    return sp_str_of(term);
}

/* Here the command gets all of our variables; on a server, what the policy makes of the server's,
 * and with --tty our TERM. --env comes on top. */
static int choose_env(struct exec_run *x, struct sp_err *e)
{
    static char *const nothing[] = {NULL};
    const struct sp_option_list *given = &x->o->env;
    const struct sp_str term = term_of_ours(x);
    uint32_t count = 0;

    if (x->is_here) {
        x->env.own = x->own_env != NULL ? x->own_env : environ;
        x->env.is_sent_whole = !x->place.is_local;
        x->env.policy = (struct sp_env_policy){.inherit = SP_ENV_ALL,
                                               .ignores_default_excludes = true,
                                               .keep = x->config.env_policy.keep,
                                               .keep_count = x->config.env_policy.keep_count};
    } else {
        x->env.own = nothing;
        x->env.policy = x->config.env_policy;
        x->env.set = x->config.env_set;
    }
    x->env_vars = calloc(given->count + 1, sizeof *x->env_vars);
    if (x->env_vars == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy variables");
    if (term.p != NULL)
        x->env_vars[count++] = (struct sp_env_var){SP_STR("TERM"), term};
    for (size_t i = 0; i < given->count; i++) {
        const char *name = given->items[i];
        const char *equals = strchr(name, '=');

        x->env_vars[count++] =
            (struct sp_env_var){{name, (size_t)(equals - name)}, sp_str_of(equals + 1)};
    }
    x->env.plain = (struct sp_env_vars){x->env_vars, count};
    return 0;
}

/* ---- --detach ---- */

/* Short enough to type, and no number, which could be a pid. */
static int make_id(char ret[ID_SIZE], struct sp_err *e)
{
    static const char letters[] = "abcdefghijkmnpqrstuvwxyz23456789"; /* 32, none that look alike */
    unsigned char random[ID_SIZE - 1];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return sp_fail(e, SP_E_SYSTEM, errno, "make an id");
    for (size_t i = 0; i < sizeof random; i++)
        ret[i] = letters[random[i] % (i == 0 ? 24 : 32)]; /* the first is a letter */
    ret[ID_SIZE - 1] = 0;
    return 0;
}

/* JSON carries no bytes that are not UTF-8: such variables are left out, and told. */
static int choose_own_env(struct exec_run *x, struct sp_err *e)
{
    size_t count = 0;
    size_t n = 0;

    while (environ[count] != NULL)
        count++;
    x->own_env = calloc(count + 1, sizeof *x->own_env);
    if (x->own_env == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy variables");
    for (size_t i = 0; i < count; i++) {
        char text[160];

        if (sp_utf8_is_valid(sp_str_of(environ[i]))) {
            x->own_env[n++] = environ[i];
            continue;
        }
        (void)snprintf(text, sizeof text, "%.*s is not UTF-8; the command does not get it",
                       (int)strcspn(environ[i], "=") < 80 ? (int)strcspn(environ[i], "=") : 80,
                       environ[i]);
        sp_plain_say("sallyport", text);
    }
    return 0;
}

/* A detached command that would run here runs on the server of this user. */
static int detach(struct exec_run *x, struct sp_err *e)
{
    const char *const name = SP_USER_SERVER_DEFAULT;
    char path[sizeof x->server_url - 8];
    int fd = -1;
    int r = make_id(x->id, e);

    x->launch.id = sp_str_of(x->id);
    x->launch.name = sp_str_of(name_of(x));
    if (r == 0 && !x->place.is_local && x->place.url == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--detach: %s is a program that ends with this connection, and the command "
                       "with it; run it without --detach, or give the URL of a server to --on",
                       x->place.name);
    if (r < 0 || !x->place.is_local)
        return r;
    r = sp_user_server_connect(name, true, &fd, e);
    if (r == 0)
        (void)close(fd); /* it listens; the backend makes a connection of its own */
    if (r == 0)
        r = sp_user_server_path(name, path, sizeof path, e);
    if (r == 0)
        r = choose_own_env(x, e);
    if (r < 0)
        return r;
    (void)snprintf(x->server_url, sizeof x->server_url, "unix://%s", path);
    x->place.is_local = false;
    x->place.name = "the server of this user";
    x->place.url = x->server_url;
    return 0;
}

/* Everything that does not need the server. */
static int prepare_run(struct exec_run *x, struct sp_err *e)
{
    const struct sp_own_places_options own = {.config = &x->config,
                                              .rules = x->o->approval.rules.items,
                                              .approvers = x->o->approval.approvers.items};
    struct sp_hidden_paths hidden = {0};
    int r = sp_place_find(&x->config, x->o->on, &x->place, e);

    if (r == 0 && x->o->approval.approvers.count != 0 && !is_judged(x))
        r = sp_fail(e, SP_E_INVALID, 0,
                    "--approver answers nothing without --approve, --rules or a configured "
                    "approval_policy");
    if (r == 0 && x->o->token_file != NULL) {
        if (x->place.is_local || x->place.url == NULL)
            r = sp_fail(e, SP_E_INVALID, 0, "--token-file is for a server: name one with --on");
        free(x->place.token);
        x->place.token = NULL;
        if (r == 0 && sp_config_read_token(x->o->token_file, &x->place.token, e) < 0)
            r = sp_wrap(e, "--token-file");
    }
    x->is_here = x->place.is_local;
    if (r == 0 && x->o->is_detached)
        r = detach(x, e);
    if (r == 0)
        r = choose_env(x, e);
    if (r < 0)
        return r;
    x->launch.label = SP_STR("exec");
    x->launch.is_tty = x->o->is_tty;
    x->launch.wants_stdin = x->o->is_detached ? x->o->is_interactive : !x->o->has_no_stdin;
    x->launch.environ = &x->env;
    x->launch.argv = x->argv = sp_cli_words(x->command, &x->launch.argc);
    if (x->argv == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy arguments");
    r = sp_carry_new(&x->carry, e);
    const struct sp_local_socket_options local_socket = {
        .loop = r == 0 ? sp_carry_loop(x->carry) : NULL,
        .kind = "exec",
        .backend = x->place.is_local ? &x->backend : NULL,
    };
    if (r == 0 && !x->o->has_no_local_socket)
        r = sp_local_socket_new(&local_socket, &x->local_socket, e);
    if (r < 0)
        return r;
    if (!x->place.is_local)
        r = sp_policy_options_publish(&x->o->policy, &x->config, NULL, NULL, e);
    if (r == 0 && !x->place.is_local)
        r = sp_place_there(sp_carry_loop(x->carry), &x->place, &x->o->limits, &x->backend, e);
    if (r < 0 || !x->is_here)
        return r;
    x->cwd = sp_place_dir(x->o->cwd, e);
    if (x->cwd == NULL)
        return -(int)e->code;
    x->launch.cwd = sp_str_of(x->cwd);
    r = make_policy(x, e);
    if (r == 0 && !is_judged(x))
        say_left_out(x);
    if (!x->place.is_local) /* the server has hidden paths of its own */
        return r;
    if (r == 0)
        r = sp_place_hidden_paths(&own, &hidden, e);
    sp_limits_put_over(&x->config.limits, &x->o->limits);
    sp_loop_busy_poll(sp_carry_loop(x->carry))->mode = sp_busy_poll_mode_of(x->config.busy_poll);
    if (r == 0)
        r = sp_place_here(sp_carry_loop(x->carry), x->cwd, &hidden, &x->config.limits, false,
                          &x->backend, e);
    if (r == 0)
        r = sp_policy_options_publish(&x->o->policy, &x->config, &x->policy, x->backend, e);
    sp_hidden_paths_done(&hidden);
    return r;
}

/* One line for each limit that was reached. */
static void print_limits(const struct sp_carry_result *r)
{
    for (uint32_t i = 0; i < r->limits.count; i++) {
        auto_buf struct sp_buf line = {0};

        if (sp_limits_add_text(&line, &r->limits.items[i]))
            (void)fprintf(stderr, "sallyport: " SP_STR_FMT "\n", SP_STR_ARG(sp_buf_str(&line)));
    }
    if (r->limits.is_host_suspected)
        (void)fputs("sallyport: killed, perhaps because this host has no memory left\n", stderr);
}

/* NULL: it is right. */
static const char *find_misuse(const struct exec_options *o, char **command)
{
    if (command[0][0] == 0)
        return "the command's name is empty";
    if (o->is_interactive && o->has_no_stdin)
        return "--interactive and --no-stdin: give one of them";
    if (o->is_quiet && o->is_verbose)
        return "--quiet and --verbose: give one of them";
    if (!o->is_detached && o->name != NULL)
        return "--name has no effect without --detach";
    if (o->is_detached && o->has_receipt)
        return "--receipt: the command has not ended when --detach returns; see ps --json";
    if (o->is_detached && o->timeout_ms != 0)
        return "--timeout is not for --detach, which leaves nothing behind that could end the "
               "command: give --limit wall=TIME instead";
    if (o->is_detached && o->policy.publish.count != 0) /* before the server is started */
        return "--publish is not for --detach: a server publishes no ports of its sandboxes; run "
               "it without --detach, or give --network, with which the command listens on this "
               "machine itself";
    return NULL;
}

/* The same for single words. false: it has been written to `text`. */
static bool are_words_right(const struct exec_options *o, char *text, size_t size)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    for (size_t i = 0; i < o->env.count; i++)
        if (o->env.items[i][0] == '=' || strchr(o->env.items[i], '=') == NULL) {
            (void)snprintf(text, size, "--env: `%.80s` is not NAME=VALUE", o->env.items[i]);
            return false;
        }
    if (o->name == NULL)
        return true;
    const size_t n = strlen(o->name);
    if (n > 0 && n <= MAX_NAME && o->name[0] != '-' && strspn(o->name, letters) == n)
        return true;
    (void)snprintf(text, size,
                   "--name: `%.80s` is not 1 to %d letters, digits, `.`, `_` or `-`, the first of "
                   "them no `-`",
                   o->name, MAX_NAME);
    return false;
}

/* false: stdout cannot be written. The command runs, so its id goes to stderr. */
static bool print_id(const struct exec_run *x)
{
    if (printf("%s\n", x->id) >= 0 && fflush(stdout) == 0)
        return true;
    (void)fprintf(stderr, "sallyport: the command was started as %s; write stdout: %s\n", x->id,
                  strerror(errno));
    return false;
}

static int run_exec(void *values, char **command)
{
    const struct exec_options *o = values;
    struct exec_run x = {.o = o, .command = command};
    struct sp_carry_result result = {0};
    auto_buf struct sp_buf line = {0};
    struct sp_err e = {0};
    char text[4096] = "";
    const char *misuse = find_misuse(o, command);

    if (misuse != NULL || !are_words_right(o, text, sizeof text))
        return sp_command_misused(&sp_command_exec, misuse != NULL ? misuse : text);
    (void)sp_log_set_level("error");
    int r = sp_cli_load_config(&o->config, "sallyport", &x.config, &e);
    forget_output(&x);
    (void)snprintf(x.call_id, sizeof x.call_id, "exec-%d", (int)getpid());
    if (r == 0)
        r = prepare_run(&x, &e);
    const struct sp_carry_scribe scribe = {
        .user = &x, .started = on_started, .output = on_output, .gap = on_gap, .ended = on_ended};
    const struct sp_carry_options how = {
        .backend = x.backend,
        .launch = &x.launch,
        .is_detached = o->is_detached,
        .timeout_ms = o->timeout_ms,
        .after_ms = SP_RUN_DRAIN_MS,
        .tells_denials = !o->is_quiet,
        .scribe = o->is_json ? &scribe : NULL,
        .prepare = x.place.is_local && !has_limits(&x) ? NULL : prepare_there,
        .may_start = is_judged(&x) ? may_start : NULL,
        .tries_again = is_judged(&x) ? tries_again : NULL,
        .user = &x,
    };
    if (r == 0)
        r = sp_carry_run(x.carry, &how, &result, &e);
    sp_local_socket_flush(x.local_socket); /* `kill` and `wait` elsewhere hear of the end */
    int status = r < 0 ? EXIT_OURS : exec_status(&x, &result, text, sizeof text);
    if (r < 0 && !o->is_json) {
        (void)sp_cli_complain(&e);
    } else if (r < 0) {
        if (!add_result(&x, &line, NULL, status, sp_error_text(&e, text, sizeof text)) ||
            sp_cli_print(sp_buf_str(&line), &e) < 0)
            (void)sp_cli_complain(&e);
    } else if (!o->is_json) { /* otherwise the last event has it */
        print_limits(&result);
        if (!o->is_quiet) {
            sp_carry_print_denied(&result, o->is_verbose);
            sp_carry_print_denied_hosts(&result);
        }
        if (result.killed_by != 0 && isatty(STDERR_FILENO))
            (void)fputc('\n', stderr); /* its last line may have no end */
        if (text[0] != 0)
            sp_plain_say("sallyport", text);
        if (result.end == SP_CARRY_DETACHED && !print_id(&x))
            status = EXIT_OURS;
    }
    if (o->has_receipt)
        say_receipt(&result.receipt);
    if (x.approval.approvals != NULL && result.receipt.is_known)
        sp_approvals_note_end(x.approval.approvals, sp_str_of(x.call_id), sp_str_of(x.place.name),
                              &result.receipt.is);
    free(result.network);
    sp_receipt_drop(&result.receipt);
    sp_run_plan_done(&x.approval.plan);
    sp_buf_done(&x.approval.made_env);
    sp_network_job_free(x.network);
    sp_approvals_free(x.approval.approvals);
    sp_approver_free(x.approval.approver);
    sp_cli_approval_done(&x.approval.setup); /* uses the loop of the carry */
    sp_shell_done(&x.approval.shell);
    sp_approver_free(x.console_approver);
    sp_console_free(x.console);
    sp_local_socket_free(x.local_socket);
    sp_backend_free(x.backend);
    sp_carry_free(x.carry);
    for (int i = 0; i < 2; i++)
        sp_headtail_done(&x.json.kept[i]);
    sp_policy_done(&x.policy);
    free(x.cwd);
    free(x.argv);
    free(x.env_vars);
    free(x.own_env);
    sp_config_place_done(&x.place);
    sp_config_done(&x.config);
    return status;
}

const struct sp_cli_command sp_command_exec = {
    .name = "exec",
    .summary = "run one command, here or on a server",
    .usage = "sallyport exec [OPTIONS] -- COMMAND [ARGUMENT ...]\n"
             "\n"
             "Runs one command, here or on a server, with our stdin, stdout and stderr as "
             "its own. With --detach it runs on without us: see ps, logs, attach and kill.\n",
    .notes = "Exit status: that of the command, 128 + N if signal N ended it; 122 it was "
             "refused, 123 the server cannot be reached or was lost, 124 --timeout has "
             "passed, 125 sallyport failed (a wrong command line, no sandbox), 126 the "
             "command cannot be run, 127 it is not there.\n"
             "Example: sallyport exec --on builder --timeout 600 -- make test\n",
    .options = options,
    .runs_program = true,
    .missing = "no command",
    .max_operands = UINT_MAX,
    .usage_status = EXIT_OURS,
    .values_size = sizeof(struct exec_options),
    .run = run_exec,
};
