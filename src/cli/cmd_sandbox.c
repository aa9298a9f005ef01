/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport sandbox`: runs one command under a policy, or shows what the policy means. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "approve/explain.h"
#include "approve/explain_host.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/own_stdio.h"
#include "cli/policy_options.h"
#include "cli/run_place.h"
#include "config/policy.h"
#include "core/cell_pool.h"
#include "os/spawn.h"
#include "sandbox/policy_json.h"
#include "sandbox/seatbelt.h"

#define EXIT_OURS 125 /* as env and timeout do: few commands use this status */
#define QUIET_MS  200 /* see struct sp_carry_options */
#define AFTER_MS  5000

struct sandbox_options {
    struct sp_policy_options policy;
    const char *cwd; /* as given */
    bool is_tty, is_not_tty, is_verbose;
    bool prints_plan, explains, is_json;
    const char *host;   /* of --explain-host; NULL: not given */
    const char *system; /* of --for; NULL: not given */
    struct sp_config_options config;
};

static const char *const systems[] = {"linux", "macos", NULL};

static const struct sp_option options[] = {
    SP_OPT_HEADING("The policy (default: read-only):"),
    SP_OPT_TABLE(struct sandbox_options, policy, sp_policy_options),
    SP_OPT_STRING(struct sandbox_options, cwd, "cwd", "DIR",
                  "where the command runs; workspace-write: what it may write (default: the "
                  "current directory)",
                  .short_name = 'w'),
    SP_OPT_HEADING("The command:"),
    SP_OPT_FLAG(struct sandbox_options, is_tty, "tty",
                "give it a terminal of its own (default: if stdin and stdout are one)",
                .short_name = 't'),
    SP_OPT_FLAG(struct sandbox_options, is_not_tty, "no-tty", "give it pipes"),
    SP_OPT_FLAG(struct sandbox_options, is_verbose, "verbose",
                "after a failure, list all that the sandbox denied", .short_name = 'v'),
    SP_OPT_TABLE(struct sandbox_options, config, sp_config_options),
    SP_OPT_HEADING("Instead of running it:"),
    SP_OPT_FLAG(struct sandbox_options, prints_plan, "print-plan",
                "show how the sandbox would be made"),
    SP_OPT_CHOICE(struct sandbox_options, system, "for", "SYSTEM", systems,
                  "with --print-plan: on linux (the default) or macos"),
    SP_OPT_FLAG(struct sandbox_options, explains, "explain",
                "say for each PATH whether it can be read and written, and why"),
    SP_OPT_FLAG(struct sandbox_options, is_json, "json",
                "with these: JSON, for --explain one object a line"),
    SP_OPT_STRING(struct sandbox_options, host, "explain-host", "HOST[:PORT]",
                  "say whether a host can be reached, and why (default: port 443); nothing is "
                  "looked up"),
    SP_OPT_END,
};

static int fail_with(const struct sp_err *e)
{
    (void)sp_cli_complain(e);
    return EXIT_OURS;
}

/* ---- running a command ---- */

static int run_command(const struct sandbox_options *o, char **command, const char *cwd,
                       const struct sp_policy *policy, const struct sp_config *config)
{
    const bool is_on_terminal = sp_terminal_is_ours(STDIN_FILENO) && isatty(STDOUT_FILENO);
    const struct sp_own_places_options own = {.config = config};
    const struct sp_env_request everything = {
        .own = environ,
        .policy = {.inherit = SP_ENV_ALL,
                   .ignores_default_excludes = true,
                   .keep = config->env_policy.keep,
                   .keep_count = config->env_policy.keep_count},
    };
    struct sp_start launch = {
        .label = SP_STR("command"),
        .is_tty = o->is_tty || (is_on_terminal && !o->is_not_tty),
        .wants_stdin = true,
        .cwd = sp_str_of(cwd),
        .environ = &everything,
        .policy = policy,
    };
    const struct sp_place_run how = {.cwd = cwd,
                                     .own = &own,
                                     .options = &o->policy,
                                     .quiet_ms = QUIET_MS,
                                     .after_ms = AFTER_MS,
                                     .is_verbose = o->is_verbose,
                                     .failed = EXIT_OURS,
                                     .what = "the command"};

    if (policy->profile.kind != SP_PROFILE_DISABLED)
        sp_place_say_left_out(&everything);
    return sp_place_run(command, &launch, &how);
}

/* ---- showing the policy ---- */

/* The plan that the front would send to a cell; nothing is started. */
static int make_plan(const struct sp_policy *policy, const struct sp_fixed_places *fixed,
                     struct sp_buf *ret, struct sp_err *e)
{
    const struct sp_cell_pool_options o = {.cell = {.program = "/proc/self/exe"}, .fixed = *fixed};
    struct sp_loop *loop = NULL;
    struct sp_cells *cells = NULL;
    struct sp_cell_pool *pool = NULL;
    int r = sp_spawn_reserve(e);

    if (r == 0)
        r = sp_loop_new(&loop, e);
    if (r == 0)
        r = sp_cells_new(loop, false, &cells, e);
    if (r == 0)
        r = sp_cell_pool_new(loop, cells, &o, &pool, e);
    if (r == 0)
        r = sp_cell_pool_plan(pool, policy, ret, e);
    sp_cell_pool_free(pool);
    sp_cells_free(cells);
    sp_loop_free(loop);
    return r;
}

static bool add_seatbelt_json(const struct sp_seatbelt *s, struct sp_buf *out)
{
    bool ok =
        sp_buf_printf(out, "{\"program\":\"%s\",\"arguments\":[\"-p\",", SP_SEATBELT_PROGRAM) &&
        sp_json_add_str(out, sp_buf_str(&s->text));

    for (size_t i = 0; ok && i < s->params.len; i += strlen(s->params.data + i) + 1)
        ok = sp_buf_add(out, ",", 1) && sp_json_add_str(out, sp_str_of(s->params.data + i));
    return ok && sp_buf_printf(out, ",\"--\"]}\n");
}

/* fixed NULL: for macOS. */
static int show_plan(const struct sp_policy *policy, const struct sp_fixed_places *fixed,
                     bool is_json)
{
    auto_seatbelt struct sp_seatbelt seatbelt = {0};
    auto_buf struct sp_buf plan = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};
    bool ok;

    if (policy->profile.kind == SP_PROFILE_DISABLED) {
        ok = is_json
                 ? sp_buf_printf(&text,
                                 "{\"confinement\":\"none\",\"files\":\"the host's files as they "
                                 "are\",\"network\":\"the host's\",\"places\":[]}\n")
                 : sp_buf_printf(&text, "confinement: none\nfiles: the host's files as they are\n"
                                        "network: the host's\nplaces:\n");
    } else if (fixed == NULL) {
        if (sp_profile_managed(&policy->profile) != NULL) {
            (void)sp_fail(&e, SP_E_INVALID, 0,
                          "--for macos: a managed network is made on Linux only");
            return fail_with(&e);
        }
        if (sp_seatbelt_make(policy, &seatbelt, &e) < 0)
            return fail_with(&e);
        ok = is_json ? add_seatbelt_json(&seatbelt, &text)
                     : sp_seatbelt_print(&seatbelt, policy->profile.has_network, &text);
    } else {
        if (make_plan(policy, fixed, &plan, &e) < 0)
            return fail_with(&e);
        ok = (is_json ? sp_plan_add_json : sp_plan_print)((const void *)plan.data, &text);
    }
    const int r = ok ? sp_cli_print(sp_buf_str(&text), &e)
                     : sp_fail(&e, SP_E_SYSTEM, ENOMEM, "show the plan");
    return r < 0 ? fail_with(&e) : SP_EXIT_OK;
}

static bool add_explained_text(struct sp_buf *out, const struct sp_explained *x)
{
    return sp_buf_printf(out, "%s\n", x->path) &&
           (strcmp(x->path, x->real) == 0 || sp_buf_printf(out, "  leads to %s\n", x->real)) &&
           sp_buf_printf(out, "  read: %s, %s\n", x->can_read ? "yes" : "no", x->reason.data) &&
           sp_buf_printf(out, "  write: %s, %s\n", x->can_write ? "yes" : "no", x->reason.data) &&
           sp_buf_add(out, x->notes.data, x->notes.len);
}

/* Each note is a line that begins with two blanks and a word. */
static bool add_explained_json(struct sp_buf *out, const struct sp_explained *x)
{
    struct sp_str notes = sp_str_of(x->notes.data != NULL ? x->notes.data : "");
    bool ok =
        sp_buf_printf(out, "{\"path\":") && sp_json_add_str(out, sp_str_of(x->path)) &&
        sp_buf_printf(out, ",\"real\":") && sp_json_add_str(out, sp_str_of(x->real)) &&
        sp_buf_printf(out, ",\"read\":%s,\"write\":%s,\"reason\":", x->can_read ? "true" : "false",
                      x->can_write ? "true" : "false") &&
        sp_json_add_str(out, sp_str_of(x->reason.data)) && sp_buf_printf(out, ",\"notes\":[");

    for (bool is_first = true; ok && notes.n > 0; is_first = false) {
        struct sp_str line = sp_str_cut(&notes, '\n');

        (void)sp_str_skip_prefix(&line, SP_STR("  note: "));
        ok = (is_first || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, line);
    }
    return ok && sp_buf_printf(out, "]}\n");
}

/* The answers for all paths (NULL at the end). */
static int explain_paths(const struct sp_policy *p, const struct sp_fixed_places *fixed,
                         const char *cwd, char *const *paths, bool is_json, struct sp_buf *out,
                         struct sp_err *e)
{
    auto_explainer struct sp_explainer q = {0};
    int r = sp_explainer_init(&q, p, fixed, e);

    for (; r == 0 && *paths != NULL; paths++) {
        auto_explained struct sp_explained x = {0};

        r = sp_explain_path(&q, cwd, *paths, &x, e);
        if (r == 0 && !(is_json ? add_explained_json(out, &x) : add_explained_text(out, &x)))
            r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain a policy");
    }
    return r;
}

/* Of the text that people see: its first line is the host, the next ones say why. */
static bool add_host_json(const struct sp_host_explained *x, const struct sp_buf *text,
                          struct sp_buf *out)
{
    struct sp_str lines = sp_buf_str(text);
    bool ok = sp_buf_add(out, "{", 1) && sp_json_add_member(out, "host", sp_str_of(x->host.text)) &&
              sp_json_add_value(out, "port", "%u", x->port);

    (void)sp_str_cut(&lines, '\n');
    for (bool is_first = true; ok && lines.n > 0; is_first = false) {
        struct sp_str line = sp_str_cut(&lines, '\n');
        struct sp_str rest = line;

        (void)sp_str_skip_prefix(&line, SP_STR("  "));
        (void)sp_str_skip_prefix(&rest, SP_STR("  "));
        if (is_first)
            ok = sp_json_add_value(out, "allowed", "%s",
                                   sp_str_skip_prefix(&rest, SP_STR("allowed: ")) ? "true"
                                                                                  : "false") &&
                 sp_json_add_value(out, "reasons", "[");
        ok = ok && (is_first || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, line);
    }
    return ok && sp_buf_printf(out, "]}\n");
}

/* The decision of the lists alone: `sandbox` reads no rules and has no approver. */
static int explain_host(const struct sandbox_options *o, const struct sp_policy *policy)
{
    struct sp_host_explained x = {0};
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf json = {0};
    struct sp_err e = {0};

    if (sp_explain_host(&policy->profile, o->host, &x, &e) < 0)
        return fail_with(&e);
    if (x.domain != NULL)
        x.origin = sp_network_options_origin(&o->policy.network, x.domain);
    if (x.origin == NULL)
        x.origin = o->policy.profile_file;
    x.remedy = "give --allow-host";
    if (!sp_host_explained_add_text(&x, &text) || (o->is_json && !add_host_json(&x, &text, &json)))
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "explain a policy");
    return e.code != SP_E_NONE || sp_cli_print(sp_buf_str(o->is_json ? &json : &text), &e) < 0
               ? fail_with(&e)
               : SP_EXIT_OK;
}

static int show_policy(const struct sandbox_options *o, char **paths, const char *cwd,
                       const struct sp_policy *policy, const struct sp_config *config)
{
    const struct sp_own_places_options own = {.config = config};
    struct sp_hidden_paths hidden = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};
    int status = EXIT_OURS;

    if (sp_place_hidden_paths(&own, &hidden, &e) < 0) {
        status = fail_with(&e);
    } else {
        const struct sp_fixed_places fixed = sp_hidden_paths_places(&hidden);

        if (o->prints_plan)
            status = show_plan(policy, &fixed, o->is_json);
        else
            status = explain_paths(policy, &fixed, cwd, paths, o->is_json, &text, &e) < 0 ||
                             sp_cli_print(sp_buf_str(&text), &e) < 0
                         ? fail_with(&e)
                         : SP_EXIT_OK;
    }
    sp_hidden_paths_done(&hidden);
    return status;
}

/* ---- the command line ---- */

/* NULL: it is right. */
static const char *find_misuse(const struct sandbox_options *o, char **operands)
{
    if (o->is_tty && o->is_not_tty)
        return "--tty and --no-tty: give one of them";
    if (o->prints_plan + o->explains + (o->host != NULL) > 1)
        return "--print-plan, --explain and --explain-host: give one of them";
    if (o->is_json && !o->explains && !o->prints_plan && o->host == NULL)
        return "--json is for --print-plan, --explain and --explain-host";
    if (o->system != NULL && !o->prints_plan)
        return "--for is for --print-plan";
    if (o->prints_plan || o->host != NULL)
        return operands[0] == NULL ? NULL
               : o->prints_plan    ? "--print-plan runs no command"
                                   : "--explain-host runs no command";
    if (operands[0] == NULL)
        return o->explains ? "--explain needs a path" : "no command";
    for (size_t i = 1; o->explains && operands[i] != NULL; i++)
        if (operands[i][0] == '-') /* options end at the first path, and these would be paths */
            return "--explain: options come before the paths; write ./-NAME for a path -NAME";
    return !o->explains && operands[0][0] == 0 ? "the command's name is empty" : NULL;
}

static int run_sandbox(void *values, char **operands)
{
    const struct sandbox_options *o = values;
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_err e = {0};
    const char *misuse = find_misuse(o, operands);

    if (misuse != NULL)
        return sp_command_misused(&sp_command_sandbox, misuse);
    (void)sp_log_set_level(o->is_verbose ? "warn" : "error");
    auto_free char *cwd = sp_place_dir(o->cwd, &e);
    bool is_open;
    if (cwd == NULL || sp_cli_load_config(&o->config, NULL, &config, &e) < 0 ||
        sp_policy_options_make(&o->policy, &config, "read-only", cwd, true, &policy, &is_open, &e) <
            0)
        return fail_with(&e);
    if (o->host != NULL)
        return explain_host(o, &policy);
    if (o->system != NULL && strcmp(o->system, "macos") == 0)
        return show_plan(&policy, NULL, o->is_json);
    if (sp_config_keep_dot_files(&config, &policy, &e) < 0)
        return fail_with(&e);
    return o->prints_plan || o->explains ? show_policy(o, operands, cwd, &policy, &config)
                                         : run_command(o, operands, cwd, &policy, &config);
}

const struct sp_cli_command sp_command_sandbox = {
    .name = "sandbox",
    .summary = "run one command under a policy, or show what the policy means",
    .usage = "sallyport sandbox [OPTIONS] -- COMMAND [ARGUMENT ...]\n"
             "       sallyport sandbox [OPTIONS] --print-plan\n"
             "       sallyport sandbox [OPTIONS] --explain PATH ...\n"
             "       sallyport sandbox [OPTIONS] --explain-host HOST[:PORT]\n"
             "\n"
             "Runs one command under a policy, or shows what the policy means.\n",
    .notes = "Exit status: that of the command, 128 + N if signal N ended it, 126 if it "
             "cannot be run, 127 if it is not there; 125 if sallyport failed: a wrong "
             "command line, no sandbox.\n"
             "Example: sallyport sandbox --sandbox :workspace -- make test\n",
    .options = options,
    .runs_program = true,
    .max_operands = UINT_MAX,
    .usage_status = EXIT_OURS,
    .values_size = sizeof(struct sandbox_options),
    .run = run_sandbox,
};
