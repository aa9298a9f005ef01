/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the command that the first argument names. */
#include <stdio.h>
#include <string.h>

#include "base/redact.h"
#include "cli/cli.h"
#include "cli/escape_text.h"

/* In the order of `sallyport help`. */
static const struct sp_cli_command *const commands[] = {
    &sp_command_serve, &sp_command_exec,  &sp_command_mcp,          &sp_command_sandbox,
    &sp_command_patch, &sp_command_rules, &sp_command_audit,        &sp_command_doctor,
    &sp_command_ps,    &sp_command_logs,  &sp_command_attach,       &sp_command_kill,
    &sp_command_cell,  &sp_command_http,  &sp_command_patch_inside,
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static void print_usage(FILE *to)
{
    (void)fputs(
        "sallyport runs commands for programs: interactive shells, builds, servers, tests.\n"
        "\n"
        "Usage: sallyport COMMAND [OPTIONS]\n"
        "\n",
        to);
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i]->summary != NULL)
            (void)fprintf(to, "  %-9s  %s\n", commands[i]->name, commands[i]->summary);
    (void)fputs("  help       show this text; `sallyport COMMAND --help` tells more\n"
                "  version    print the version\n"
                "\n"
                "Example: sallyport serve --listen ws://127.0.0.1:8765\n",
                to);
}

int sp_cli_complain(const struct sp_err *e)
{
    char text[640];

    sp_plain_say("Error", sp_error_text(e, text, sizeof text)); /* may quote a server */
    return SP_EXIT_FAILED;
}

/* Other users can read /proc/PID/cmdline: each URL there loses its query, which may hold a token.
 * The copies that argv points to instead live as long as the process. */
static bool hide_tokens(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!sp_redact_is_needed(argv[i]))
            continue;
        char *copy = strdup(argv[i]);
        if (copy == NULL)
            return false;
        sp_redact_in_place(argv[i]);
        argv[i] = copy;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!hide_tokens(argc, argv)) {
        (void)fputs("sallyport: out of memory\n", stderr);
        return SP_EXIT_FAILED;
    }
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i]->name) == 0)
            return sp_command_main(commands[i], argc - 2, argv + 2);
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        (void)printf("sallyport %s\n", SP_VERSION);
        return SP_EXIT_OK;
    }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_usage(stdout);
        return SP_EXIT_OK;
    }
    if (name[0] == 0)
        print_usage(stderr);
    else
        (void)fprintf(stderr, "sallyport: no such command: %s (see `sallyport help`)\n", name);
    return SP_EXIT_USAGE;
}
