/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "approve/explain.h"
#include "base/auto.h"
#include "base/log.h"
#include "cli/carry.h"
#include "cli/cli.h"
#include "cli/denied_text.h"
#include "cli/own_stdio.h"
#include "cli/policy_args.h"
#include "cli/run_place.h"
#include "config/policy.h"
#include "core/cell_pool.h"
#include "os/spawn.h"
#include "sandbox/seatbelt.h"

static const char help[] =
    "Usage: sallyport sandbox [OPTIONS] -- COMMAND [ARGUMENT ...]\n"
    "       sallyport sandbox [OPTIONS] --print-plan\n"
    "       sallyport sandbox [OPTIONS] --explain PATH ...\n"
    "\n"
    "Runs one command under a policy, or shows what the policy means.\n"
    "\n"
    "The policy:\n"
    "  --mode MODE        read-only, workspace-write, danger-full-access or external-sandbox\n"
    "                     (default read-only)\n"
    "  --profile FILE     or a profile as JSON\n"
    "  --writable DIR     this directory may be written, too (repeatable)\n"
    "  --network          the network may be used\n"
    "  --cwd DIR          where the command runs; workspace-write: what it may write\n"
    "                     (default: here)\n"
    "\n"
    "The command:\n"
    "  --tty              it gets a terminal of its own (default: if stdin and stdout are one)\n"
    "  --no-tty           it gets pipes\n"
    "  -v, --verbose      after a failure, say in full what the sandbox denied\n"
    "\n"
    "Instead of running:\n"
    "  --print-plan       show how the sandbox would be made\n"
    "  --for SYSTEM       with --print-plan: on linux (the default) or macos\n"
    "  --explain          say for each PATH whether it can be read and written, and why\n"
    "  --help             show this text\n"
    "\n"
    "Exit status: the command's own, 128 + N if signal N ended it, 126 if it cannot be run, 127\n"
    "if it is not there; 125 if sallyport failed: a wrong flag, no sandbox.\n"
    "Example: sallyport sandbox --mode workspace-write -- make test\n";

/* Beside those of shells: whatever a command answers is above or below. */
#define EXIT_OURS 125
#define MAX_DIRS  64
#define QUIET_MS  200 /* see struct sp_carry_options */
#define AFTER_MS  5000

enum what { WHAT_RUN, WHAT_PLAN, WHAT_EXPLAIN };

struct options {
    struct sp_policy_args policy;
    const char *writable[MAX_DIRS];
    const char *cwd; /* as given */
    enum what what;
    bool is_tty, is_not_tty, is_verbose, is_for_macos, has_system;
    char **operands; /* the command or the paths; NULL at the end */
};

/* ---- the command line ---- */

enum {
    OPT_MODE = 256,
    OPT_PROFILE,
    OPT_WRITABLE,
    OPT_NETWORK,
    OPT_CWD,
    OPT_TTY,
    OPT_NO_TTY,
    OPT_PRINT_PLAN,
    OPT_FOR,
    OPT_EXPLAIN,
    OPT_HELP,
};

static const struct option known[] = {
    {"mode", required_argument, NULL, OPT_MODE},
    {"profile", required_argument, NULL, OPT_PROFILE},
    {"writable", required_argument, NULL, OPT_WRITABLE},
    {"network", no_argument, NULL, OPT_NETWORK},
    {"cwd", required_argument, NULL, OPT_CWD},
    {"tty", no_argument, NULL, OPT_TTY},
    {"no-tty", no_argument, NULL, OPT_NO_TTY},
    {"verbose", no_argument, NULL, 'v'},
    {"print-plan", no_argument, NULL, OPT_PRINT_PLAN},
    {"for", required_argument, NULL, OPT_FOR},
    {"explain", no_argument, NULL, OPT_EXPLAIN},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static bool complain(const char *text)
{
    (void)fprintf(stderr, "sallyport sandbox: %s (see --help)\n", text);
    return false;
}

static bool choose(struct options *o, enum what what)
{
    if (o->what != WHAT_RUN && o->what != what)
        return complain("--print-plan and --explain: give one of them");
    o->what = what;
    return true;
}

/* One option. false: it was bad and that was said. */
static bool take(struct options *o, int opt)
{
    switch (opt) {
    case OPT_MODE:
        o->policy.mode = optarg;
        return true;
    case OPT_PROFILE:
        o->policy.profile_file = optarg;
        return true;
    case OPT_WRITABLE:
        if (o->policy.writable_count == MAX_DIRS)
            return complain("--writable: at most 64 directories");
        o->writable[o->policy.writable_count++] = optarg;
        return true;
    case OPT_NETWORK:
        o->policy.has_network = true;
        return true;
    case OPT_CWD:
        o->cwd = optarg;
        return true;
    case OPT_TTY:
        o->is_tty = true;
        return !o->is_not_tty || complain("--tty and --no-tty: give one of them");
    case OPT_NO_TTY:
        o->is_not_tty = true;
        return !o->is_tty || complain("--tty and --no-tty: give one of them");
    case 'v':
        o->is_verbose = true;
        return true;
    case OPT_PRINT_PLAN:
        return choose(o, WHAT_PLAN);
    case OPT_FOR:
        o->has_system = true;
        o->is_for_macos = strcmp(optarg, "macos") == 0;
        return o->is_for_macos || strcmp(optarg, "linux") == 0 ||
               complain("--for: the system is linux or macos");
    case OPT_EXPLAIN:
        return choose(o, WHAT_EXPLAIN);
    default: /* getopt has said what is wrong */
        return false;
    }
}

static bool check_operands(const struct options *o)
{
    const bool has_any = o->operands[0] != NULL;

    if (o->has_system && o->what != WHAT_PLAN)
        return complain("--for is for --print-plan");
    switch (o->what) {
    case WHAT_RUN:
        if (has_any && o->operands[0][0] == 0)
            return complain("the command's name is empty");
        return has_any || complain("no command");
    case WHAT_PLAN:
        return !has_any || complain("--print-plan runs no command");
    case WHAT_EXPLAIN:
        return has_any || complain("--explain needs a path");
    }
    return false;
}

/* 0: go on. EXIT_OURS: it was said what is wrong. -1: help was asked for and given. `args` has room
 * for argc + 2. */
static int read_options(int argc, char **argv, char **args, struct options *o)
{
    int opt;

    args[0] = (char *)(uintptr_t) "sallyport sandbox"; /* what getopt's complaints begin with */
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    o->policy.writable = o->writable;
    optind = 1;
    while ((opt = getopt_long(argc + 1, args, "+v", known, NULL)) != -1) {
        if (opt == OPT_HELP) {
            (void)fputs(help, stdout);
            return -1;
        }
        if (!take(o, opt))
            return EXIT_OURS;
    }
    o->operands = args + optind;
    return check_operands(o) ? 0 : EXIT_OURS;
}

/* ---- policy ---- */

static int complain_of(const struct sp_err *e)
{
    (void)sp_cli_complain(e);
    return EXIT_OURS;
}

static int print(const struct sp_buf *text)
{
    const bool ok = fwrite(text->data, 1, text->len, stdout) == text->len && fflush(stdout) == 0;

    return ok ? SP_EXIT_OK : EXIT_OURS;
}

/* ---- three things to do with it ---- */

static int refused(const struct options *o, const struct sp_policy *policy,
                   const struct sp_err *why)
{
    const bool is_open = policy->profile.kind == SP_PROFILE_DISABLED;
    int err = 0;
    /* In an open cell a missing program is a start that fails; under a sandbox it is a command that
     * fails, with a line and an exit code. Here both are the latter. */
    const int status = is_open ? sp_carry_not_run(why, &err) : 0;

    if (status == 0)
        return complain_of(why);
    (void)fprintf(stderr, "sallyport: %s: %s\n", o->operands[0], strerror(err));
    return status;
}

static int status_of(const struct options *o, const struct sp_policy *policy,
                     const struct sp_carry_result *r)
{
    switch (r->end) {
    case SP_CARRY_EXITED:
    case SP_CARRY_ABANDONED:
        return r->exit.code < 0 ? EXIT_OURS : r->exit.code;
    case SP_CARRY_OUTPUT_CLOSED:
        return 128 + SIGPIPE;
    case SP_CARRY_REJECTED:
    case SP_CARRY_REFUSED:
        return refused(o, policy, &r->error);
    case SP_CARRY_LOST:
        (void)fprintf(stderr, "Error: the sandbox ended before the command\n");
        return EXIT_OURS;
    case SP_CARRY_UNREACHABLE:
    case SP_CARRY_TIMED_OUT:
        break; /* not here */
    }
    return EXIT_OURS;
}

static int carry(struct sp_launch *launch, const char *cwd, const struct sp_config *config,
                 struct sp_carry_result *ret, struct sp_err *e)
{
    const struct sp_own_places_ask own = {.config = config};
    struct sp_carry *c = NULL;
    struct sp_carry_options how = {.launch = launch, .quiet_ms = QUIET_MS, .after_ms = AFTER_MS};
    int r = sp_carry_new(&c, e);

    if (r == 0)
        r = sp_place_here(sp_carry_loop(c), cwd, &own, &how.backend, e);
    if (r == 0)
        r = sp_carry_run(c, &how, ret, e);
    sp_backend_free(how.backend);
    sp_carry_free(c);
    return r;
}

static int run(const struct options *o, const char *cwd, const struct sp_policy *policy,
               const struct sp_config *config)
{
    const bool is_on_terminal = sp_terminal_is_ours(STDIN_FILENO) && isatty(STDOUT_FILENO);
    const struct sp_environ_ask everything = {
        .own = environ,
        .policy = {.inherit = SP_ENV_ALL,
                   .ignores_default_excludes = true,
                   .keep = config->env_policy.keep,
                   .keep_count = config->env_policy.keep_count},
    };
    struct sp_launch launch = {
        .name = SP_STR("command"),
        .is_tty = o->is_tty || (is_on_terminal && !o->is_not_tty),
        .wants_stdin = true,
        .cwd = sp_str_of(cwd),
        .environ = &everything,
        .policy = policy,
    };
    struct sp_carry_result result = {0};
    struct sp_err e = {0};
    auto_free struct sp_str *argv = sp_carry_argv(o->operands, &launch);

    if (argv == NULL)
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "copy arguments");
    else if (policy->profile.kind != SP_PROFILE_DISABLED)
        sp_place_say_left_out(&everything);
    if (argv == NULL || carry(&launch, cwd, config, &result, &e) < 0)
        return complain_of(&e);
    if (o->is_verbose || isatty(STDERR_FILENO))
        sp_denied_print(&result, o->is_verbose);
    return status_of(o, policy, &result);
}

static bool print_no_plan(struct sp_buf *out)
{
    return sp_buf_printf(out,
                         "tier: %s\nfiles: the host's files as they are\nnetwork: the host's\n"
                         "places:\n",
                         sp_tier_name(SP_TIER_NONE));
}

static int make_plan(const struct sp_policy *policy, const struct sp_fixed_places *fixed,
                     struct sp_buf *ret, struct sp_err *e)
{
    const struct sp_cell_pool_options o = {.cell = {.program = "/proc/self/exe"}, .fixed = *fixed};
    struct sp_loop *loop = NULL;
    struct sp_cells *cells = NULL;
    struct sp_cell_pool *cell_pool = NULL;
    int r = sp_spawn_reserve(e);

    if (r == 0)
        r = sp_loop_new(&loop, e);
    if (r == 0)
        r = sp_cells_new(loop, false, &cells, e);
    if (r == 0)
        r = sp_cell_pool_new(loop, cells, &o, &cell_pool, e);
    if (r == 0)
        r = sp_cell_pool_plan(cell_pool, policy, ret, e);
    sp_cell_pool_free(cell_pool);
    sp_cells_free(cells);
    sp_loop_free(loop);
    return r;
}

static int show_plan(const struct sp_policy *policy, const struct sp_fixed_places *fixed)
{
    auto_buf struct sp_buf plan = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};

    if (policy->profile.kind == SP_PROFILE_DISABLED)
        return print_no_plan(&text) ? print(&text) : EXIT_OURS;
    if (make_plan(policy, fixed, &plan, &e) < 0)
        return complain_of(&e);
    return sp_plan_print((const void *)plan.data, &text) ? print(&text) : EXIT_OURS;
}

static int show_macos(const struct sp_policy *policy)
{
    auto_seatbelt struct sp_seatbelt seatbelt = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};

    if (policy->profile.kind == SP_PROFILE_DISABLED) /* nothing is put around the command */
        return print_no_plan(&text) ? print(&text) : EXIT_OURS;
    if (sp_seatbelt_make(policy, &seatbelt, &e) < 0)
        return complain_of(&e);
    return sp_seatbelt_print(&seatbelt, policy->profile.has_network, &text) ? print(&text)
                                                                            : EXIT_OURS;
}

static int explain(const struct options *o, const char *cwd, const struct sp_policy *policy,
                   const struct sp_fixed_places *fixed)
{
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};

    if (sp_explain(policy, fixed, cwd, o->operands, &text, &e) < 0)
        return complain_of(&e);
    return print(&text);
}

static int show(const struct options *o, const char *cwd, const struct sp_policy *policy,
                const struct sp_config *config)
{
    const struct sp_own_places_ask own = {.config = config};
    struct sp_hidden_paths hidden_paths = {0};
    struct sp_err e = {0};
    int status = EXIT_OURS;

    if (sp_place_hidden_paths(&own, &hidden_paths, &e) < 0) {
        status = complain_of(&e);
    } else {
        const struct sp_fixed_places fixed = sp_hidden_paths_places(&hidden_paths);

        status = o->what == WHAT_PLAN ? show_plan(policy, &fixed) : explain(o, cwd, policy, &fixed);
    }
    sp_hidden_paths_done(&hidden_paths);
    return status;
}

static int do_it(struct options *o)
{
    const struct sp_config_ask ask = {.environment = environ};
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_err e = {0};
    auto_free char *cwd = sp_place_dir(o->cwd, &e);

    o->policy.cwd = cwd;
    if (cwd == NULL || sp_policy_from_args(&o->policy, &policy, &e) < 0)
        return complain_of(&e);
    if (o->is_for_macos)
        return show_macos(&policy);
    /* For what it protects and lets through; the policy is the command line's alone. */
    if (sp_config_load(&ask, &config, &e) < 0)
        return complain_of(&e);
    if (sp_config_keep_dot_files(&config, &policy, &e) < 0)
        return complain_of(&e);
    return o->what == WHAT_RUN ? run(o, cwd, &policy, &config) : show(o, cwd, &policy, &config);
}

int sp_cmd_sandbox(int argc, char **argv)
{
    struct options o = {0};
    auto_free char **args = calloc((size_t)argc + 2, sizeof *args);

    if (args == NULL)
        return EXIT_OURS;
    const int usage = read_options(argc, argv, args, &o);
    if (usage != 0)
        return usage < 0 ? SP_EXIT_OK : usage;
    (void)sp_log_set_level(o.is_verbose ? "warn" : "error");
    return do_it(&o);
}
