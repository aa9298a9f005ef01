/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport mcp`: the engine as tools of an MCP server. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/mcp_selftest.h"
#include "cli/mcp_server.h"
#include "mcp/lines.h"

static const char *const output_choices[] = {"auto", "always", "never", NULL};

static const struct sp_option options[] = {
    SP_OPT_HEADING("What commands may do:"),
    SP_OPT_STRING(struct sp_mcp_flags, sandbox, "sandbox", "MODE",
                  ":workspace, :read-only, :danger-full-access, a mode or a profile of the "
                  "configuration (default: default_permissions, else :workspace)"),
    SP_OPT_STRING(
        struct sp_mcp_flags, approve, "approve", "POLICY",
        "what is asked: untrusted, on-failure, on-request, never, or the JSON of granular "
        "(default: approval_policy, else on-request)"),
    SP_OPT_LIST(struct sp_mcp_flags, rules, "rules", "FILE",
                "rules besides those of the usual places (repeatable)"),
    SP_OPT_LIST(struct sp_mcp_flags, approvers, "approver", "WHO",
                "who answers: client (the host's user, first unless named), program:PATH, terminal "
                "(with --listen) or deny; A,B: both are asked at once; given again: asked if those "
                "before gave no answer (default: approver of the configuration, else deny)"),
    SP_OPT_HEADING("Where they run:"),
    SP_OPT_STRING(struct sp_mcp_flags, cwd, "cwd", "DIR",
                  "the workspace (default: the current directory; on a server: the server's)"),
    SP_OPT_LIST(struct sp_mcp_flags, on, "on", "NAME|URL",
                "`local`, an environment of the configuration, ws://HOST:PORT or unix:///PATH "
                "(default: default_environment, else local). Given again: one more environment, by "
                "name; tools then have environment_id"),
    SP_OPT_HEADING("Who may call:"),
    SP_OPT_LIST(struct sp_mcp_flags, listen, "listen", "URL",
                "unix:///PATH or http://127.0.0.1:PORT/PATH instead of stdio (repeatable; port 0: "
                "any); the URLs are printed on stdout"),
    SP_OPT_STRING(struct sp_mcp_flags, token_file, "token-file", "FILE",
                  "http: the bearer tokens, one a line, each for a caller of its own; mode 0600 "
                  "(default: one is made, and the file that has it is named on stderr)"),
    SP_OPT_LIST(struct sp_mcp_flags, origins, "allow-origin", "ORIGIN",
                "http: let web pages of this origin call (repeatable)"),
    SP_OPT_FLAG(struct sp_mcp_flags, allows_remote, "allow-remote",
                "http: let the address be one that other machines can reach"),
    SP_OPT_CHOICE(struct sp_mcp_flags, structured_output, "structured-output", "WHEN",
                  output_choices,
                  "repeat output in structured results: auto (by the host's name), always or never "
                  "(default: mcp_structured_output, else auto)"),
    SP_OPT_FLAG(struct sp_mcp_flags, keeps_cancelled, "keep-cancelled",
                "let the process of a cancelled exec_command run on (default: it is ended)"),
    SP_OPT_STRING(struct sp_mcp_flags, connect, "connect", "URL",
                  "only connect stdio to a server that listens on unix:///PATH"),
    SP_OPT_HEADING("Other:"),
    SP_OPT_FLAG(struct sp_mcp_flags, is_selftest, "selftest",
                "try everything once with a server of its own, and report what works"),
    SP_OPT_TABLE(struct sp_mcp_flags, config, sp_config_options),
    SP_OPT_END,
};

/* NULL: the options fit together. */
static const char *find_misuse(const struct sp_mcp_flags *f, char **operands)
{
    bool is_http = false;

    for (size_t i = 0; i < f->listen.count; i++)
        is_http |= strncmp(f->listen.items[i], "http:", 5) == 0;
    if (operands[0] != NULL)
        return "it takes no arguments beside its options";
    if (f->connect != NULL && (f->listen.count > 0 || f->is_selftest))
        return "--connect goes with neither --listen nor --selftest";
    if (f->connect != NULL && strncmp(f->connect, "unix:///", 8) != 0)
        return "--connect: want unix:///PATH";
    if (f->is_selftest && f->listen.count > 0)
        return "--selftest has a server of its own: leave --listen out";
    if (!is_http && f->token_file != NULL)
        return "--token-file is for --listen http://...";
    if (!is_http && (f->origins.count > 0 || f->allows_remote))
        return "--allow-origin and --allow-remote are for --listen http://...";
    return NULL;
}

static int serve_mcp(const struct sp_mcp_flags *flags)
{
    struct sp_mcp_server s = {.flags = flags};
    struct sp_err e = {0};
    int r = sp_mcp_server_begin(&s, &e);

    if (r == 0)
        r = sp_mcp_server_listen(&s, &e);
    if (r == 0)
        r = sp_loop_run(s.loop, &e);
    sp_mcp_server_end(&s);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static int run_mcp(void *values, char **operands)
{
    const struct sp_mcp_flags *f = values;
    const char *misuse = find_misuse(f, operands);
    struct sp_err e = {0};

    if (misuse != NULL)
        return sp_command_misused(&sp_command_mcp, misuse);
    (void)sp_log_set_level("error");
    if (f->is_selftest)
        return sp_mcp_selftest(f->argc, f->argv);
    if (f->connect == NULL)
        return serve_mcp(f);
    return sp_mcp_relay(f->connect + strlen("unix://"), &e) != 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static int mcp_main(int argc, char **argv)
{
    struct sp_mcp_flags f = {.argc = argc, .argv = argv};

    return sp_command_run(&sp_command_mcp, argc, argv, &f, run_mcp);
}

const struct sp_cli_command sp_command_mcp = {
    .name = "mcp",
    .summary = "tools for any agent: run commands over the Model Context Protocol",
    .usage =
        "sallyport mcp [OPTIONS]\n"
        "\n"
        "Offers exec_command, write_stdin, read_output and more to any MCP host, over stdio.\n",
    .notes = "Over stdio the server ends with its input, and every process with it.\n"
             "Example: sallyport mcp --sandbox :workspace --cwd ~/project\n",
    .options = options,
    .max_operands = UINT_MAX,
    .main = mcp_main,
};
