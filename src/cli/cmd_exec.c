/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport exec`: runs one command, here or on a server.
 *
 *   options --> where it runs --> its policy --> approval (--approve, --rules) --> carry --> status
 *
 * On a server, the policy and the approval wait until the server has said what it is.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
#include "cli/network_options.h"
#include "cli/run_place.h"
#include "config/policy.h"
#include "engine/delta.h"
#include "engine/network_job.h"
#include "engine/run.h"
#include "engine/shell.h"
#include "mcp/tools.h"
#include "os/seccomp.h"

enum { EXIT_REJECTED = 122, EXIT_LOST = 123, EXIT_TIMEOUT = 124, EXIT_OURS = 125 };

#define MAX_TIMEOUT_S 1e9

struct exec_options {
    const char *on, *cwd, *sandbox;
    struct sp_option_list env;
    struct sp_cli_approval_flags approval;
    struct sp_network_options network;
    bool is_tty, has_no_stdin, is_json;
    uint64_t timeout_ms; /* 0: none */
    struct sp_config_options config;
};

static const char *read_timeout(const char *argument, void *value)
{
    char *end;
    const double s = strtod(argument, &end);

    /* strtod also reads inf, nan and 0x1p3. */
    if (argument[0] == 0 || argument[strspn(argument, "0123456789.")] != 0 || *end != 0 ||
        !(s > 0) || s > MAX_TIMEOUT_S)
        return "a number of seconds above 0, such as 30 or 0.5";
    *(uint64_t *)value = s < 0.001 ? 1 : (uint64_t)(s * 1000);
    return NULL;
}

static const struct sp_option options[] = {
    SP_OPT_STRING(struct exec_options, on, "on", "NAME|URL",
                  "where to run it: `local`, an environment of the configuration, ws://HOST:PORT "
                  "or unix:///PATH (default: default_environment, else local)"),
    SP_OPT_STRING(struct exec_options, cwd, "cwd", "DIR",
                  "its working directory (default: the current one; on a server: the server's)"),
    SP_OPT_LIST(struct exec_options, env, "env", "NAME=VALUE",
                "set a variable, besides ours (repeatable)"),
    SP_OPT_STRING(struct exec_options, sandbox, "sandbox", "MODE",
                  "under this policy: :read-only, :workspace, :danger-full-access, a mode or a "
                  "profile of the configuration (default: default_permissions, else none)"),
    SP_OPT_TABLE(struct exec_options, network, sp_network_options),
    SP_OPT_FLAG(struct exec_options, is_tty, "tty", "give it a terminal of its own"),
    SP_OPT_FLAG(struct exec_options, has_no_stdin, "no-stdin", "give it no stdin"),
    SP_OPT_READ(struct exec_options, timeout_ms, "timeout", "SECONDS", read_timeout,
                "kill it and all its descendants after this time"),
    SP_OPT_FLAG(struct exec_options, is_json, "json",
                "print events on stdout, one a line, then the result"),
    SP_CLI_APPROVAL_OPTIONS(
        struct exec_options, approval,
        "judge the command first, and ask what the policy asks: untrusted, on-failure, "
        "on-request, never, or the JSON of granular",
        "; the command is judged then",
        "who answers: terminal, program:PATH or deny; A,B: both are asked at once; given "
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
    struct sp_carry *carry;
};

static bool is_judged(const struct exec_options *o)
{
    return o->approval.policy != NULL || o->approval.rules.count > 0;
}

/* ---- approval ---- */

/* After the policy. */
static int open_approval(struct exec_run *x, struct sp_err *e)
{
    struct approval *a = &x->approval;
    const struct sp_cli_approval_ask ask = {
        .loop = sp_carry_loop(x->carry),
        .config = &x->config,
        .flags = &x->o->approval,
        .cwd = x->place.is_local ? x->cwd : NULL,
        .policy = x->launch.policy,
        .needs_files = true,
        .who = {.choices = "deny, terminal or program:PATH", .open_terminal = sp_approver_tty_new},
        .asks_terminal = true,
    };
    struct sp_approvals_options *settings = &a->setup.found.options;
    int r = sp_cli_approval_open(&ask, &a->setup, e);

    if (r == 0 && a->setup.approvers != NULL)
        r = sp_approvers_chain(a->setup.approvers, NULL, &a->approver, e);
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
    if (x->place.is_local && x->launch.policy != NULL && !x->has_said_left_out)
        sp_place_say_left_out(&x->env);
    x->has_said_left_out = true;
}

static void on_refused_host(void *user, const struct sp_network_outcome *o)
{
    struct exec_run *x = user;

    x->approval.plan.reason.len = 0;
    (void)sp_buf_add_str(&x->approval.plan.reason, o->text); /* without memory: no reason */
    sp_carry_reject(x->carry);
}

/* Lets the approvals judge the hosts of a local command; without --approve the lists decide. */
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
    return x->place.is_local ? sp_network_job_new(&o, &x->launch, &x->network, e) : 0;
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
        const struct sp_run_plan_ask ask = {
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
        sp_job_apply_plan(&x->launch, &a->plan);
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
        return EXIT_OURS;
    }
    (void)snprintf(text, size, "%s: %s", x->command[0], strerror(err));
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
        if (r->exit.code >= 0)
            return r->exit.code;
        (void)snprintf(text, size, "how the command ended is not known");
        return EXIT_LOST;
    case SP_CARRY_ABANDONED:
        return r->exit.code;
    case SP_CARRY_OUTPUT_CLOSED:
        return 128 + SIGPIPE;
    case SP_CARRY_REFUSED:
        return refusal_status(x, &r->error, text, size);
    case SP_CARRY_REJECTED:
        write_reason(sp_buf_str(&x->approval.plan.reason), text, size);
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
static const char *kind_of(const struct sp_carry_result *r)
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
    case SP_CARRY_REFUSED:
        break;
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

/* The result line; r NULL: the command was never started. */
static bool add_result(struct sp_buf *out, const struct sp_carry_result *r, int status,
                       const char *message)
{
    bool ok = sp_buf_printf(out, "{\"type\":\"result\",\"kind\":\"%s\",\"exit_code\":%d",
                            r == NULL ? "error" : kind_of(r), status);

    if (r != NULL && r->exit.signal != 0)
        ok = ok && sp_buf_printf(out, ",\"signal\":%d", r->exit.signal);
    ok = ok && sp_buf_printf(out, ",\"denials\":[") &&
         (r == NULL || !r->was_denied || add_denials(out, r)) && sp_buf_add(out, "]", 1);
    if (message[0] != 0)
        ok = ok && sp_buf_printf(out, ",\"message\":") && sp_json_add_str(out, sp_str_of(message));
    return ok && sp_buf_printf(out, "}\n");
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
    return (!j->has_begun || add_end(x, r, status, out)) && add_result(out, r, status, text);
}

/* ---- preparing the run ---- */

/* After x->cwd is set. */
static int make_policy(struct exec_run *x, struct sp_err *e)
{
    const char *name = x->o->sandbox != NULL                   ? x->o->sandbox
                       : x->config.default_permissions != NULL ? x->config.default_permissions
                                                               : ":danger-full-access";
    bool is_open = false;
    int r = sp_config_policy(&x->config, name, x->cwd, &x->policy, &is_open, e);

    if (r == 0)
        r = sp_network_options_apply(&x->o->network, &x->policy.profile, e);
    if (r == 0 && x->place.is_local)
        r = sp_config_keep_dot_files(&x->config, &x->policy, e);
    if (r == 0)
        x->launch.policy = is_open ? NULL : &x->policy;
    x->policy_name = name;
    return r < 0 || !is_judged(x->o) ? r : open_approval(x, e);
}

/* For sp_carry_options: the server has said what it is. */
static int prepare_there(void *user, const struct sp_backend_facts *facts, struct sp_err *e)
{
    struct exec_run *x = user;
    const char *cwd = x->o->cwd != NULL ? x->o->cwd : facts->cwd;
    struct stat st;

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

/* Here the command gets all of our variables; on a server, what the policy makes of the server's.
 * --env comes on top. */
static int choose_env(struct exec_run *x, struct sp_err *e)
{
    static char *const nothing[] = {NULL};
    const struct sp_option_list *given = &x->o->env;

    if (x->place.is_local) {
        x->env.own = environ;
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
    for (size_t i = 0; i < given->count; i++) {
        const char *name = given->items[i];
        const char *equals = strchr(name, '=');

        x->env_vars[i] =
            (struct sp_env_var){{name, (size_t)(equals - name)}, sp_str_of(equals + 1)};
    }
    x->env.plain = (struct sp_env_vars){x->env_vars, (uint32_t)given->count};
    return 0;
}

/* Everything that does not need the server. */
static int prepare_run(struct exec_run *x, struct sp_err *e)
{
    const struct sp_own_places_ask own = {.config = &x->config,
                                          .rules = x->o->approval.rules.items,
                                          .approvers = x->o->approval.approvers.items};
    struct sp_hidden_paths hidden = {0};
    int r = sp_config_place(&x->config, x->o->on, &x->place, e);

    if (r == 0)
        r = choose_env(x, e);
    if (r < 0)
        return r;
    x->launch.label = SP_STR("exec");
    x->launch.is_tty = x->o->is_tty;
    x->launch.wants_stdin = !x->o->has_no_stdin;
    x->launch.environ = &x->env;
    x->launch.argv = x->argv = sp_cli_words(x->command, &x->launch.argc);
    if (x->argv == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy arguments");
    r = sp_carry_new(&x->carry, e);
    if (r < 0)
        return r;
    if (!x->place.is_local)
        return sp_place_there(sp_carry_loop(x->carry), &x->place, &x->backend, e);
    x->cwd = sp_place_dir(x->o->cwd, e);
    if (x->cwd == NULL)
        return -(int)e->code;
    x->launch.cwd = sp_str_of(x->cwd);
    r = make_policy(x, e);
    if (r == 0 && !is_judged(x->o))
        say_left_out(x);
    if (r == 0)
        r = sp_place_hidden_paths(&own, &hidden, e);
    if (r == 0)
        r = sp_place_here(sp_carry_loop(x->carry), x->cwd, &hidden, false, &x->backend, e);
    sp_hidden_paths_done(&hidden);
    return r;
}

/* NULL: it is right. */
static const char *find_misuse(const struct exec_options *o, char **command)
{
    if (command[0][0] == 0)
        return "the command's name is empty";
    if (o->approval.approvers.count != 0 && !is_judged(o))
        return "--approver answers nothing without --approve or --rules";
    for (size_t i = 0; i < o->env.count; i++)
        if (o->env.items[i][0] == '=' || strchr(o->env.items[i], '=') == NULL)
            return "--env: want NAME=VALUE";
    return NULL;
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

    if (misuse != NULL)
        return sp_command_misused(&sp_command_exec, misuse);
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
        .timeout_ms = o->timeout_ms,
        .after_ms = SP_RUN_DRAIN_MS,
        .scribe = o->is_json ? &scribe : NULL,
        .prepare = x.place.is_local ? NULL : prepare_there,
        .may_start = is_judged(o) ? may_start : NULL,
        .tries_again = is_judged(o) ? tries_again : NULL,
        .user = &x,
    };
    if (r == 0)
        r = sp_carry_run(x.carry, &how, &result, &e);
    const int status = r < 0 ? EXIT_OURS : exec_status(&x, &result, text, sizeof text);
    if (r < 0 && !o->is_json) {
        (void)sp_cli_complain(&e);
    } else if (r < 0) {
        if (add_result(&line, NULL, status, sp_error_text(&e, text, sizeof text)))
            (void)sp_cli_print(sp_buf_str(&line), &e);
    } else if (!o->is_json) { /* otherwise the last event has it */
        sp_carry_print_denied(&result, false);
        sp_carry_print_denied_hosts(&result);
        if (text[0] != 0)
            sp_plain_say("sallyport", text);
    }
    free(result.network);
    sp_run_plan_done(&x.approval.plan);
    sp_buf_done(&x.approval.made_env);
    sp_network_job_free(x.network);
    sp_approvals_free(x.approval.approvals);
    sp_approver_free(x.approval.approver);
    sp_cli_approval_done(&x.approval.setup); /* uses the loop of the carry */
    sp_shell_done(&x.approval.shell);
    sp_backend_free(x.backend);
    sp_carry_free(x.carry);
    for (int i = 0; i < 2; i++)
        sp_headtail_done(&x.json.kept[i]);
    sp_policy_done(&x.policy);
    free(x.cwd);
    free(x.argv);
    free(x.env_vars);
    sp_config_place_done(&x.place);
    sp_config_done(&x.config);
    return status;
}

const struct sp_cli_command sp_command_exec = {
    .name = "exec",
    .summary = "run one command, here or on a server, with our own stdin and stdout",
    .usage =
        "sallyport exec [OPTIONS] -- COMMAND [ARGUMENT ...]\n"
        "\n"
        "Runs one command, here or on a server, with our stdin, stdout and stderr as its own.\n",
    .notes =
        "Exit status: that of the command, 128 + N if signal N ended it; 122 it was refused,\n"
        "123 the server cannot be reached or was lost, 124 --timeout has passed, 125 sallyport\n"
        "failed (a wrong command line, no sandbox), 126 the command cannot be run, 127 it is\n"
        "not there.\n"
        "Example: sallyport exec --on builder --timeout 600 -- make test\n",
    .options = options,
    .runs_program = true,
    .missing = "no command",
    .max_operands = UINT_MAX,
    .usage_status = EXIT_OURS,
    .values_size = sizeof(struct exec_options),
    .run = run_exec,
};
