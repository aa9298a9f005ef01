/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/redact.h"
#include "cli/cli.h"
#include "cli/escape_text.h"

static const char usage[] =
    "sallyport runs commands for programs: interactive shells, builds, servers, tests.\n"
    "\n"
    "Usage: sallyport VERB [OPTIONS]\n"
    "\n"
    "  serve      run the exec-server: processes over WebSocket, a unix socket or stdio\n"
    "  exec       run one command, here or on a server, with our own stdin and stdout\n"
    "  mcp        tools for any agent: run commands over the Model Context Protocol\n"
    "  sandbox    run one command under a policy, or show what the policy means\n"
    "  patch      apply a patch to files, confined\n"
    "  rules      say which rules match a command, test rule files, explain what comes of them\n"
    "  audit      check the log of decisions\n"
    "  doctor     say which sandbox layers this host has, and what to do about the rest\n"
    "  ps         list the processes of a server\n"
    "  logs       show what a process of a server has written\n"
    "  attach     watch a process of a server, and type into it\n"
    "  kill       end processes of a server\n"
    "  help       show this text; `sallyport VERB --help` tells more\n"
    "  version    print the version\n"
    "\n"
    "Example: sallyport serve --listen ws://127.0.0.1:8765\n";

int sp_cli_complain(const struct sp_err *e)
{
    char text[640];

    sp_plain_say("Error", sp_error_text(e, text, sizeof text)); /* a server's words, perhaps */
    return SP_EXIT_FAILED;
}

/* Other users can read /proc/PID/cmdline: each URL there loses its query, which may hold a token.
 * false: no memory for the copies that are used instead. */
static bool hide_tokens(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!sp_redact_is_needed(argv[i]))
            continue;
        char *copy = strdup(argv[i]);
        if (copy == NULL)
            return false;
        sp_redact_in_place(argv[i]);
        argv[i] = copy; /* lives as long as the process */
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!hide_tokens(argc, argv)) {
        (void)fputs("sallyport: no memory\n", stderr);
        return SP_EXIT_FAILED;
    }
    const char *verb = argc > 1 ? argv[1] : "";

    if (strcmp(verb, "serve") == 0)
        return sp_cmd_serve(argc - 2, argv + 2);
    if (strcmp(verb, "exec") == 0)
        return sp_cmd_exec(argc - 2, argv + 2);
    if (strcmp(verb, "mcp") == 0)
        return sp_cmd_mcp(argc - 2, argv + 2);
    if (strcmp(verb, "sandbox") == 0)
        return sp_cmd_sandbox(argc - 2, argv + 2);
    if (strcmp(verb, "patch") == 0)
        return sp_cmd_patch(argc - 2, argv + 2);
    if (strcmp(verb, "rules") == 0)
        return sp_cmd_rules(argc - 2, argv + 2);
    if (strcmp(verb, "audit") == 0)
        return sp_cmd_audit(argc - 2, argv + 2);
    if (strcmp(verb, "doctor") == 0)
        return sp_cmd_doctor(argc - 2, argv + 2);
    if (strcmp(verb, "ps") == 0)
        return sp_cmd_ps(argc - 2, argv + 2);
    if (strcmp(verb, "logs") == 0)
        return sp_cmd_logs(argc - 2, argv + 2);
    if (strcmp(verb, "attach") == 0)
        return sp_cmd_attach(argc - 2, argv + 2);
    if (strcmp(verb, "kill") == 0)
        return sp_cmd_kill(argc - 2, argv + 2);
    if (strcmp(verb, "cell") == 0) /* internal: what `serve` runs commands in */
        return sp_cmd_cell(argc - 2, argv + 2);
    if (strcmp(verb, "http") == 0) /* internal: what asks web servers for `serve` */
        return sp_cmd_http(argc - 2, argv + 2);
    if (strcmp(verb, "patch-inside") == 0) /* internal: what `patch` confines */
        return sp_cmd_patch_inside(argc - 2, argv + 2);
    if (strcmp(verb, "version") == 0 || strcmp(verb, "--version") == 0) {
        (void)printf("sallyport %s\n", SP_VERSION);
        return SP_EXIT_OK;
    }
    if (strcmp(verb, "help") == 0 || strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        (void)fputs(usage, stdout);
        return SP_EXIT_OK;
    }
    if (verb[0] == 0)
        (void)fputs(usage, stderr);
    else
        (void)fprintf(stderr, "sallyport: no such verb: %s (see `sallyport help`)\n", verb);
    return SP_EXIT_USAGE;
}
