/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/truncate.h"
#include "cli/cli.h"
#include "cli/denied_text.h"
#include "cli/escape_text.h"
#include "cli/exec_approve.h"
#include "cli/exec_json.h"
#include "cli/run_place.h"
#include "config/policy.h"
#include "engine/run.h"

static const char help[] =
    "Usage: sallyport exec [OPTIONS] -- COMMAND [ARGUMENT ...]\n"
    "\n"
    "Runs one command, here or on a server, with our stdin, stdout and stderr as its own.\n"
    "\n"
    "  --on NAME|URL      where: `local`, an environment of the configuration, ws://HOST:PORT or\n"
    "                     unix:///PATH (default: default_environment, else local)\n"
    "  --cwd DIR          where it runs (default: here; on a server: what it says)\n"
    "  --env NAME=VALUE   in its environment, besides ours (repeatable)\n"
    "  --sandbox MODE     under this policy: :read-only, :workspace, :danger-full-access, a mode "
    "or\n"
    "                     a profile of the configuration (default: default_permissions, else "
    "none)\n"
    "  --tty              it gets a terminal of its own\n"
    "  --no-stdin         it gets no stdin\n"
    "  --timeout S        after S seconds it is killed with all it has started\n"
    "  --json             events on stdout, one a line, then the result\n"
    "  --approve POLICY   it is judged first: untrusted, on-failure, on-request, never, or the\n"
    "                     JSON of granular; and what the policy asks is asked\n"
    "  --rules FILE       rules besides those of the usual places (repeatable); implies a "
    "judgement\n"
    "  --approver WHO     who answers: terminal, program:PATH or deny; A,B: both are asked at "
    "once;\n"
    "                     given again: the next, if nobody answered (default: approver, else "
    "the\n"
    "                     terminal if there is one)\n"
    "  --config FILE      the configuration (default: the usual one)\n"
    "  --set KEY=TOML     one key of it, for this run (repeatable)\n"
    "  --help             show this text\n"
    "\n"
    "Exit status: the command's own, 128 + N if signal N ended it; 122 it was refused, 123 the\n"
    "server cannot be reached or was lost, 124 --timeout has passed, 125 sallyport failed (a "
    "wrong\n"
    "flag, no sandbox), 126 the command cannot be run, 127 it is not there.\n"
    "Example: sallyport exec --on builder --timeout 600 -- make test\n";

enum { EXIT_REJECTED = 122, EXIT_LOST = 123, EXIT_TIMEOUT = 124, EXIT_OURS = 125 };

#define MAX_TIMEOUT_S 1e9

struct options {
    const char *on, *cwd, *sandbox, *config_file, *approve;
    bool is_tty, has_no_stdin, is_json;
    uint64_t timeout_ms; /* 0: none */
    struct sp_environ_var *env;
    uint32_t env_count;
    const char **sets; /* NULL at the end */
    size_t set_count;
    const char **rules;     /* NULL at the end */
    const char **approvers; /* the same */
    size_t approver_count;
    size_t rule_count;
    char **operands; /* the command; NULL at the end */
};

/* One run, and what it needs. */
struct job {
    const struct options *o;
    struct sp_config config;
    struct sp_config_place place;
    struct sp_environ_ask env;
    bool has_said_left_out;
    struct sp_launch launch;
    struct sp_str *argv;
    char *cwd;
    struct sp_policy policy;
    const char *policy_name;
    struct sp_exec_approve approve;
    struct sp_exec_json json;
    struct sp_backend *backend;
    struct sp_carry *carry;
};

/* ---- the command line ---- */

enum {
    OPT_ON = 256,
    OPT_CWD,
    OPT_ENV,
    OPT_SANDBOX,
    OPT_TTY,
    OPT_NO_STDIN,
    OPT_TIMEOUT,
    OPT_JSON,
    OPT_CONFIG,
    OPT_SET,
    OPT_APPROVE,
    OPT_RULES,
    OPT_APPROVER,
    OPT_HELP,
};

static const struct option known[] = {
    {"on", required_argument, NULL, OPT_ON},
    {"cwd", required_argument, NULL, OPT_CWD},
    {"env", required_argument, NULL, OPT_ENV},
    {"sandbox", required_argument, NULL, OPT_SANDBOX},
    {"tty", no_argument, NULL, OPT_TTY},
    {"no-stdin", no_argument, NULL, OPT_NO_STDIN},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"json", no_argument, NULL, OPT_JSON},
    {"config", required_argument, NULL, OPT_CONFIG},
    {"set", required_argument, NULL, OPT_SET},
    {"approve", required_argument, NULL, OPT_APPROVE},
    {"rules", required_argument, NULL, OPT_RULES},
    {"approver", required_argument, NULL, OPT_APPROVER},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static bool complain(const char *text)
{
    (void)fprintf(stderr, "sallyport exec: %s (see --help)\n", text);
    return false;
}

static bool take_env(struct options *o, const char *text)
{
    const char *is = strchr(text, '=');

    if (is == NULL || is == text)
        return complain("--env: want NAME=VALUE");
    o->env[o->env_count++] = (struct sp_environ_var){
        {text, (size_t)(is - text)},
        sp_str_of(is + 1),
    };
    return true;
}

static bool take_timeout(struct options *o, const char *text)
{
    char *end;
    const double s = strtod(text, &end);

    /* What strtod reads besides (inf, nan, 0x1p3) is no number of seconds to a person. */
    if (text[0] == 0 || text[strspn(text, "0123456789.")] != 0 || *end != 0 || !(s > 0) ||
        s > MAX_TIMEOUT_S)
        return complain("--timeout: want a number of seconds above 0, as 30 or 0.5");
    o->timeout_ms = s < 0.001 ? 1 : (uint64_t)(s * 1000);
    return true;
}

/* One option. false: it was bad and that was said. */
static bool take(struct options *o, int opt)
{
    switch (opt) {
    case OPT_ON:
        o->on = optarg;
        return true;
    case OPT_CWD:
        o->cwd = optarg;
        return true;
    case OPT_ENV:
        return take_env(o, optarg);
    case OPT_SANDBOX:
        o->sandbox = optarg;
        return true;
    case OPT_TTY:
        o->is_tty = true;
        return true;
    case OPT_NO_STDIN:
        o->has_no_stdin = true;
        return true;
    case OPT_TIMEOUT:
        return take_timeout(o, optarg);
    case OPT_JSON:
        o->is_json = true;
        return true;
    case OPT_CONFIG:
        o->config_file = optarg;
        return true;
    case OPT_SET:
        o->sets[o->set_count++] = optarg;
        return true;
    case OPT_APPROVE:
        o->approve = optarg;
        return true;
    case OPT_RULES:
        o->rules[o->rule_count++] = optarg;
        return true;
    case OPT_APPROVER:
        o->approvers[o->approver_count++] = optarg;
        return true;
    default: /* getopt has said what is wrong */
        return false;
    }
}

static bool is_judged(const struct options *o)
{
    return o->approve != NULL || o->rule_count > 0;
}

/* 0: go on. EXIT_OURS: it was said what is wrong. -1: help was asked for and given. `args` has room
 * for argc + 2. */
static int read_options(int argc, char **argv, char **args, struct options *o)
{
    int opt;

    args[0] = (char *)(uintptr_t) "sallyport exec"; /* what getopt's complaints begin with */
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    optind = 1;
    while ((opt = getopt_long(argc + 1, args, "+", known, NULL)) != -1) {
        if (opt == OPT_HELP) {
            (void)fputs(help, stdout);
            return -1;
        }
        if (!take(o, opt))
            return EXIT_OURS;
    }
    o->operands = args + optind;
    if (o->operands[0] == NULL)
        return complain("no command") ? 0 : EXIT_OURS;
    if (o->operands[0][0] == 0)
        return complain("the command's name is empty") ? 0 : EXIT_OURS;
    if (o->approver_count != 0 && !is_judged(o))
        return complain("--approver answers nothing without --approve or --rules") ? 0 : EXIT_OURS;
    return 0;
}

/* ---- what a result means ---- */

static bool is_here(const struct job *j)
{
    return j->place.is_local;
}

static int refusal_status(const struct job *j, const struct sp_err *why, char *text, size_t size)
{
    int err = 0;
    /* Under a sandbox of ours a missing program is a command that fails: it was told by that. */
    const int status = is_here(j) && j->launch.policy != NULL ? 0 : sp_carry_not_run(why, &err);

    if (!is_here(j) && why->code == SP_E_SYSTEM) { /* nobody was there to refuse it */
        (void)sp_error_text(why, text, size);
        return EXIT_LOST;
    }
    if (status == 0) {
        (void)sp_error_text(why, text, size);
        return EXIT_OURS;
    }
    (void)snprintf(text, size, "%s: %s", j->o->operands[0], strerror(err));
    return status;
}

/* Lines after the first are indented, so that a command's newline never begins a message of ours.
 */
static bool add_lines(struct sp_buf *out, struct sp_str text)
{
    bool ok = true;

    for (bool is_first = true; ok; is_first = false) {
        const char *end = text.n == 0 ? NULL : memchr(text.p, '\n', text.n);
        const size_t n = end != NULL ? (size_t)(end - text.p) : text.n;

        ok = (is_first || sp_buf_printf(out, "\n    ")) &&
             sp_plain_add(out, (struct sp_str){text.p, n});
        if (end == NULL)
            break;
        text = (struct sp_str){end + 1, text.n - n - 1};
    }
    return ok;
}

/* Cut in the middle if need be: what was refused is at the beginning, why is at the end. */
static void put_reason(struct sp_str reason, char *text, size_t size)
{
    auto_buf struct sp_buf line = {0};

    if (add_lines(&line, reason))
        reason = (struct sp_str){line.len == 0 ? "" : line.data, line.len};
    const struct sp_split cut = sp_truncate_split(reason, size / 2 - 4, size / 2 - 4);
    if (reason.n < size)
        (void)snprintf(text, size, "%.*s", (int)reason.n, reason.p);
    else
        (void)snprintf(text, size, "%.*s…%.*s", (int)cut.prefix_end, reason.p,
                       (int)(reason.n - cut.suffix_start), reason.p + cut.suffix_start);
}

/* The exit status; text says what the command cannot say itself. */
static int status_of(const void *user, const struct sp_carry_result *r, char *text, size_t size)
{
    const struct job *j = user;
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
        return refusal_status(j, &r->error, text, size);
    case SP_CARRY_REJECTED:
        put_reason(sp_exec_approve_reason(&j->approve), text, size);
        return EXIT_REJECTED;
    case SP_CARRY_UNREACHABLE:
        (void)snprintf(text, size, "%s cannot be reached: %s", j->place.name,
                       sp_error_text(&r->error, why, sizeof why));
        return EXIT_LOST;
    case SP_CARRY_LOST:
        (void)snprintf(text, size, "the command was lost: %s",
                       sp_error_text(&r->error, why, sizeof why));
        return EXIT_LOST;
    case SP_CARRY_TIMED_OUT:
        (void)snprintf(text, size, "timed out after %g s, %s", (double)j->o->timeout_ms / 1000,
                       r->was_killed ? "the command was killed"
                                     : "and it is not known whether the command was killed");
        return EXIT_TIMEOUT;
    }
    return EXIT_OURS;
}

static int tell(const struct job *j, const struct sp_carry_result *r)
{
    char text[4096] = "";
    const int status = status_of(j, r, text, sizeof text);

    if (j->o->is_json)
        return status; /* it was told */
    sp_denied_print(r, false);
    if (text[0] != 0)
        sp_plain_say("sallyport", text);
    return status;
}

/* Before there was anything to carry. */
static int give_up(const struct options *o, const struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    char text[640];

    if (!o->is_json) {
        (void)sp_cli_complain(e);
    } else if (sp_exec_json_add_error(&line, EXIT_OURS, sp_error_text(e, text, sizeof text))) {
        (void)fwrite(line.data, 1, line.len, stdout);
        (void)fflush(stdout);
    }
    return EXIT_OURS;
}

/* ---- what is to run ---- */

static int open_approvals(struct job *j, const char *cwd, struct sp_err *e)
{
    const struct sp_exec_approve_ask ask = {
        .config = &j->config,
        .policy = j->o->approve,
        .rules = j->o->rules,
        .approvers = j->o->approver_count != 0 ? j->o->approvers : NULL,
        .cwd = is_here(j) ? cwd : NULL,
        .environment = j->place.name,
        .policy_name = j->policy_name,
        .carry = j->carry,
        .launch = &j->launch,
    };

    return sp_exec_approve_open(&j->approve, &ask, e);
}

/* Once, when it is known that it starts in a sandbox. */
static void say_left_out(struct job *j)
{
    if (is_here(j) && j->launch.policy != NULL && !j->has_said_left_out)
        sp_place_say_left_out(&j->env);
    j->has_said_left_out = true;
}

static enum sp_carry_permission may_start(void *user, struct sp_err *e)
{
    struct job *j = user;
    const enum sp_carry_permission leave = sp_exec_approve_may_start(&j->approve, e);

    if (leave == SP_CARRY_GO)
        say_left_out(j);
    return leave;
}

static bool tries_again(void *user, const struct sp_carry_result *r)
{
    struct job *j = user;

    return sp_exec_approve_tries_again(&j->approve, r);
}

static int make_policy(struct job *j, const char *cwd, struct sp_err *e)
{
    const char *name = j->o->sandbox != NULL                   ? j->o->sandbox
                       : j->config.default_permissions != NULL ? j->config.default_permissions
                                                               : ":danger-full-access";
    bool is_open = false;
    int r = sp_config_policy(&j->config, name, cwd, &j->policy, &is_open, e);

    if (r == 0 && is_here(j))
        r = sp_config_keep_dot_files(&j->config, &j->policy, e);

    if (r == 0)
        j->launch.policy = is_open ? NULL : &j->policy;
    j->policy_name = name;
    return r < 0 || !is_judged(j->o) ? r : open_approvals(j, cwd, e);
}

/* Nothing can be typed there. */
static bool is_null(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

/* The server is known now. */
static int prepare(void *user, const struct sp_backend_facts *facts, struct sp_err *e)
{
    struct job *j = user;
    const char *cwd = j->o->cwd != NULL ? j->o->cwd : facts->cwd;

    if (cwd == NULL || cwd[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0,
                       cwd == NULL ? "%s does not say where commands run: give --cwd"
                                   : "--cwd: want an absolute path on %s",
                       j->place.name);
    if (!facts->can_close_stdin && j->launch.wants_stdin && is_null(STDIN_FILENO))
        j->launch.wants_stdin = false;
    if (!facts->can_close_stdin && j->launch.wants_stdin &&
        !(j->launch.is_tty && isatty(STDIN_FILENO)))
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s cannot tell a command that its stdin has ended: give --no-stdin",
                       j->place.name);
    free(j->cwd);
    j->cwd = strdup(cwd);
    if (j->cwd == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy --cwd");
    j->launch.cwd = sp_str_of(j->cwd);
    return make_policy(j, j->cwd, e);
}

static int prepare_here(struct job *j, struct sp_err *e)
{
    j->cwd = sp_place_dir(j->o->cwd, e);
    if (j->cwd == NULL)
        return -(int)e->code;
    j->launch.cwd = sp_str_of(j->cwd);
    const struct sp_own_places_ask own = {
        .config = &j->config, .rules = j->o->rules, .approvers = j->o->approvers};
    const int r = make_policy(j, j->cwd, e);
    if (r == 0 && !is_judged(j->o))
        say_left_out(j);
    return r < 0 ? r : sp_place_here(sp_carry_loop(j->carry), j->cwd, &own, &j->backend, e);
}

/* Here all of our environment counts; there, what the server's own becomes by the policy. */
static void choose_environment(struct job *j)
{
    static char *const nothing[] = {NULL};

    j->env.plain = (struct sp_environ_vars){j->o->env, j->o->env_count};
    if (is_here(j)) {
        j->env.own = environ;
        j->env.policy = (struct sp_env_policy){.inherit = SP_ENV_ALL,
                                               .ignores_default_excludes = true,
                                               .keep = j->config.env_policy.keep,
                                               .keep_count = j->config.env_policy.keep_count};
    } else {
        j->env.own = nothing;
        j->env.policy = j->config.env_policy;
        j->env.set = j->config.env_set;
    }
    j->launch.environ = &j->env;
}

static int make(struct job *j, struct sp_err *e)
{
    int r = sp_config_place(&j->config, j->o->on, &j->place, e);

    if (r < 0)
        return r;
    j->launch.name = SP_STR("exec");
    j->launch.is_tty = j->o->is_tty;
    j->launch.wants_stdin = !j->o->has_no_stdin;
    choose_environment(j);
    j->argv = sp_carry_argv(j->o->operands, &j->launch);
    if (j->argv == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy arguments");
    r = sp_carry_new(&j->carry, e);
    if (r < 0)
        return r;
    return is_here(j) ? prepare_here(j, e)
                      : sp_place_there(sp_carry_loop(j->carry), &j->place, &j->backend, e);
}

static int run(struct job *j, struct sp_carry_result *ret, struct sp_err *e)
{
    const struct sp_carry_options o = {
        .backend = j->backend,
        .launch = &j->launch,
        .timeout_ms = j->o->timeout_ms,
        .after_ms = SP_RUN_DRAIN_MS,
        .scribe = j->o->is_json ? &j->json.scribe : NULL,
        .prepare = is_here(j) ? NULL : prepare,
        .may_start = is_judged(j->o) ? may_start : NULL,
        .tries_again = is_judged(j->o) ? tries_again : NULL,
        .user = j,
    };

    sp_exec_json_init(&j->json);
    j->json.launch = &j->launch;
    j->json.status = status_of;
    j->json.user = j;
    return sp_carry_run(j->carry, &o, ret, e);
}

static void done(struct job *j)
{
    sp_exec_approve_done(&j->approve);
    sp_backend_free(j->backend);
    sp_carry_free(j->carry);
    sp_exec_json_done(&j->json);
    sp_policy_done(&j->policy);
    free(j->cwd);
    free(j->argv);
    sp_config_place_done(&j->place);
    sp_config_done(&j->config);
}

static void print_warnings(const struct sp_config *c)
{
    for (size_t i = 0; c->warnings != NULL && c->warnings[i] != NULL; i++)
        (void)fprintf(stderr, "sallyport: %s\n", c->warnings[i]);
}

static int do_it(const struct options *o)
{
    const struct sp_config_ask ask = {
        .file = o->config_file, .sets = o->sets, .environment = environ};
    struct job j = {.o = o};
    struct sp_carry_result result = {0};
    struct sp_err e = {0};
    int status;

    int r = sp_config_load(&ask, &j.config, &e);
    if (r == 0) {
        print_warnings(&j.config);
        r = make(&j, &e);
    }
    if (r == 0)
        r = run(&j, &result, &e);
    status = r < 0 ? give_up(o, &e) : tell(&j, &result);
    done(&j);
    return status;
}

int sp_cmd_exec(int argc, char **argv)
{
    struct options o = {0};
    auto_free char **args = calloc((size_t)argc + 2, sizeof *args);
    auto_free struct sp_environ_var *env = calloc((size_t)argc + 1, sizeof *env);
    auto_free const char **sets = calloc((size_t)argc + 1, sizeof *sets);
    auto_free const char **rules = calloc((size_t)argc + 1, sizeof *rules);
    auto_free const char **approvers = calloc((size_t)argc + 1, sizeof *approvers);

    if (args == NULL || env == NULL || sets == NULL || rules == NULL || approvers == NULL)
        return EXIT_OURS;
    o.env = env;
    o.sets = sets;
    o.rules = rules;
    o.approvers = approvers;
    const int usage = read_options(argc, argv, args, &o);
    if (usage != 0)
        return usage < 0 ? SP_EXIT_OK : usage;
    (void)sp_log_set_level("error");
    return do_it(&o);
}
