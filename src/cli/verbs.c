/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of all commands: finding one, and `help` and `version`. The options, subcommands and
 * operands of a command are in its own table (options.h).
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/escape_text.h"

static const struct sp_cli_command command_help, command_version;

/* In the order of `sallyport help`. */
/* clang-format off: one a line */
const struct sp_cli_command *const sp_verbs[] = {
    &sp_command_serve,
    &sp_command_exec,
    &sp_command_mcp,
    &sp_command_sandbox,
    &sp_command_patch,
    &sp_command_rules,
    &sp_command_audit,
    &sp_command_config,
    &sp_command_doctor,
    &sp_command_connect,
    &sp_command_ps,
    &sp_command_logs,
    &sp_command_attach,
    &sp_command_kill,
    &sp_command_rm,
    &sp_command_wait,
    &sp_command_approvals,
    &command_help,
    &command_version,
    &sp_command_completion,
    /* internal */
    &sp_command_front,
    &sp_command_cell,
    &sp_command_http,
    &sp_command_proxy,
    &sp_command_resolver,
    &sp_command_patch_inside,
    &sp_command_doctor_inside,
    &sp_command_complete,
    NULL,
};
/* clang-format on */

static int report_unknown(const char *name)
{
    struct sp_nearest near = sp_nearest_to(sp_str_of(name));
    /* What docker and systemctl call it. */
    static const char *const habits[][2] = {{"run", "exec"}, {"start", "exec"}, {"stop", "kill"},
                                            {"list", "ps"},  {"ls", "ps"},      {"top", "ps"},
                                            {"status", "ps"}};
    char text[300];

    for (size_t i = 0; sp_verbs[i] != NULL; i++)
        if (sp_verbs[i]->summary != NULL)
            sp_nearest_offer(&near, sp_verbs[i]->name);
    sp_nearest_offer(&near, "--help");
    sp_nearest_offer(&near, "--version");
    for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++)
        if (strcmp(name, habits[i][0]) == 0)
            near.best = habits[i][1];
    if (near.best != NULL)
        (void)snprintf(text, sizeof text, "no such command: %.200s; did you mean `%s`?", name,
                       near.best);
    else
        (void)snprintf(text, sizeof text, "no such command: %.200s (see sallyport help)", name);
    sp_plain_say("sallyport", text);
    return SP_EXIT_USAGE;
}

/* ---- help and version ---- */

static void print_usage(FILE *to)
{
    (void)fputs("sallyport runs commands for programs: shells, builds, servers, tests.\n"
                "\n"
                "Usage: sallyport COMMAND [OPTIONS]\n"
                "\n",
                to);
    for (size_t i = 0; sp_verbs[i] != NULL; i++)
        if (sp_verbs[i]->summary != NULL) {
            (void)fprintf(to, "  %-10s  ", sp_verbs[i]->name);
            sp_help_print_wrapped(to, sp_verbs[i]->summary, 14, 14);
        }
    (void)fputs("\n"
                "`sallyport help COMMAND` tells more.\n"
                "Example: sallyport exec --sandbox :workspace -- make test\n",
                to);
}

static int finish_stdout(void)
{
    struct sp_err e = {0};

    return sp_cli_print(SP_STR(""), &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static int run_help(int argc, char **argv)
{
    char help[] = "--help";
    char *args[] = {NULL, help, NULL};

    if (argc == 0) {
        print_usage(stdout);
        return finish_stdout();
    }
    if (strcmp(argv[0], "-h") == 0 || strcmp(argv[0], "--help") == 0)
        return sp_command_print_help(&command_help);
    const struct sp_cli_command *c = sp_verb_find(argv[0]);
    if (c == NULL || c->summary == NULL)
        return report_unknown(argv[0]);
    if (c->subcommands == NULL || argc == 1)
        return sp_command_print_help(c);
    args[0] = argv[1];
    return sp_command_main(c, 2, args);
}

static int run_version(void *values, char **operands)
{
    (void)values;
    (void)operands;
    (void)printf("sallyport %s\n", SP_VERSION);
    return finish_stdout();
}

static const struct sp_option no_options[] = {SP_OPT_END};

static const struct sp_cli_command command_help = {
    .name = "help",
    .summary = "show this list, or the help of a command",
    .usage = "sallyport help [COMMAND [SUBCOMMAND]]\n",
    .options = no_options,
    .operand = "COMMAND",
    .max_operands = 2,
    .main = run_help,
};

static const struct sp_cli_command command_version = {
    .name = "version",
    .summary = "print the version",
    .usage = "sallyport version\n",
    .options = no_options,
    .run = run_version,
};

/* ---- all commands ---- */

int sp_verbs_run(int argc, char **argv)
{
    const char *name = argc == 0 ? "" : argv[0];
    const bool is_help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    const bool is_version = strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 ||
                            strcmp(name, "-v") == 0; /* as git and docker have it */
    const struct sp_cli_command *c = is_help      ? &command_help
                                     : is_version ? &command_version
                                                  : sp_verb_find(name);

    if (c != NULL)
        return sp_command_main(c, argc - 1, argv + 1);
    if (name[0] != 0)
        return report_unknown(name);
    print_usage(stderr);
    return SP_EXIT_USAGE;
}
