/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp_options.h"

#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "cli/cli.h"

static const char help[] =
    "Usage: sallyport mcp [OPTIONS]\n"
    "\n"
    "Offers exec_command, write_stdin, read_output and more to any MCP host, over stdio.\n"
    "\n"
    "What commands may do:\n"
    "  --sandbox MODE     :workspace, :read-only, :danger-full-access, a mode or a profile of the\n"
    "                     configuration (default: default_permissions, else :workspace)\n"
    "  --approve POLICY   what is asked: untrusted, on-failure, on-request, never, or the JSON of\n"
    "                     granular (default: approval_policy, else on-request)\n"
    "  --rules FILE       rules besides those of the usual places (repeatable)\n"
    "  --approver WHO     who answers: client (the host's user, first unless named), "
    "program:PATH,\n"
    "                     terminal (with --listen) or deny; A,B: both are asked at once; given\n"
    "                     again: the next, if nobody answered (default: approver, else deny)\n"
    "\n"
    "Where they run:\n"
    "  --cwd DIR          the workspace (default: here; on a server: what it says)\n"
    "  --on NAME|URL      `local`, an environment of the configuration, ws://HOST:PORT or\n"
    "                     unix:///PATH (default: default_environment, else local). Given again:\n"
    "                     one more environment, by name; tools then have environment_id\n"
    "\n"
    "Who asks:\n"
    "  --listen URL       unix:///PATH or http://127.0.0.1:PORT/PATH instead of stdio\n"
    "                     (repeatable; port 0: any); the URLs are printed on stdout\n"
    "  --token-file FILE  http: the bearer tokens, one a line, each a caller of its own; mode "
    "0600\n"
    "                     (default: one is made, and the file that has it is named on stderr)\n"
    "  --allow-origin O   http: a web page of this origin may call (repeatable)\n"
    "  --allow-remote     http: an address that other machines can reach\n"
    "  --structured-output WHEN  repeat output in structured results: auto (by the host's name), "
    "always\n"
    "                     or never (default: mcp_structured_output, else auto)\n"
    "  --keep-cancelled   a cancelled exec_command leaves its process running (default: it ends)\n"
    "  --connect URL      carry stdio to a server that listens on unix:///PATH, and do nothing "
    "else\n"
    "\n"
    "  --selftest         try all of it once with a server of our own, and say what works\n"
    "  --config FILE      the configuration (default: the usual one)\n"
    "  --set KEY=TOML     one key of it, for this run (repeatable)\n"
    "  --help             show this text\n"
    "\n"
    "Over stdio the server ends with its input, and every process with it.\n"
    "Example: sallyport mcp --sandbox :workspace --cwd ~/project\n";

enum {
    OPT_SANDBOX = 256,
    OPT_APPROVE,
    OPT_RULES,
    OPT_APPROVER,
    OPT_CWD,
    OPT_ON,
    OPT_LISTEN,
    OPT_TOKEN_FILE,
    OPT_ALLOW_ORIGIN,
    OPT_ALLOW_REMOTE,
    OPT_CONNECT,
    OPT_STRUCTURED_OUTPUT,
    OPT_KEEP_CANCELLED,
    OPT_SELFTEST,
    OPT_CONFIG,
    OPT_SET,
    OPT_HELP,
};

static const struct option known[] = {
    {"sandbox", required_argument, NULL, OPT_SANDBOX},
    {"approve", required_argument, NULL, OPT_APPROVE},
    {"rules", required_argument, NULL, OPT_RULES},
    {"approver", required_argument, NULL, OPT_APPROVER},
    {"cwd", required_argument, NULL, OPT_CWD},
    {"on", required_argument, NULL, OPT_ON},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"token-file", required_argument, NULL, OPT_TOKEN_FILE},
    {"allow-origin", required_argument, NULL, OPT_ALLOW_ORIGIN},
    {"allow-remote", no_argument, NULL, OPT_ALLOW_REMOTE},
    {"connect", required_argument, NULL, OPT_CONNECT},
    {"structured-output", required_argument, NULL, OPT_STRUCTURED_OUTPUT},
    {"keep-cancelled", no_argument, NULL, OPT_KEEP_CANCELLED},
    {"selftest", no_argument, NULL, OPT_SELFTEST},
    {"config", required_argument, NULL, OPT_CONFIG},
    {"set", required_argument, NULL, OPT_SET},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

/* Where a flag's value goes; NULL: it is one of a list, or has none. */
static const char **place_of(struct sp_mcp_flags *f, int opt)
{
    switch (opt) {
    case OPT_SANDBOX:
        return &f->sandbox;
    case OPT_APPROVE:
        return &f->approve;
    case OPT_CWD:
        return &f->cwd;
    case OPT_TOKEN_FILE:
        return &f->token_file;
    case OPT_CONNECT:
        return &f->connect;
    case OPT_STRUCTURED_OUTPUT:
        return &f->structured_output;
    case OPT_CONFIG:
        return &f->config_file;
    default:
        return NULL;
    }
}

static bool take(struct sp_mcp_flags *f, int opt)
{
    const char **place = place_of(f, opt);

    if (place != NULL)
        *place = optarg;
    else if (opt == OPT_RULES)
        f->rules[f->rule_count++] = optarg;
    else if (opt == OPT_APPROVER)
        f->approvers[f->approver_count++] = optarg;
    else if (opt == OPT_SET)
        f->sets[f->set_count++] = optarg;
    else if (opt == OPT_LISTEN)
        f->listen[f->listen_count++] = optarg;
    else if (opt == OPT_ON)
        f->on[f->on_count++] = optarg;
    else if (opt == OPT_ALLOW_ORIGIN)
        f->origins[f->origin_count++] = optarg;
    else if (opt == OPT_ALLOW_REMOTE)
        f->allows_remote = true;
    else if (opt == OPT_KEEP_CANCELLED)
        f->keeps_cancelled = true;
    else if (opt == OPT_SELFTEST)
        f->is_selftest = true;
    else /* getopt has said what is wrong */
        return false;
    return true;
}

static int complain(const char *text)
{
    (void)fprintf(stderr, "sallyport mcp: %s (see --help)\n", text);
    return SP_EXIT_USAGE;
}

static bool listens_by_http(const struct sp_mcp_flags *f)
{
    for (size_t i = 0; f->listen[i] != NULL; i++)
        if (strncmp(f->listen[i], "http:", 5) == 0)
            return true;
    return false;
}

static int check(const struct sp_mcp_flags *f)
{
    const bool is_http = listens_by_http(f);

    if (f->connect != NULL && (f->listen_count > 0 || f->is_selftest))
        return complain("--connect carries messages and nothing else");
    if (f->connect != NULL && strncmp(f->connect, "unix:///", 8) != 0)
        return complain("--connect: want unix:///PATH");
    if (f->is_selftest && f->listen_count > 0)
        return complain("--selftest has a server of its own: leave --listen out");
    if (!is_http && f->token_file != NULL)
        return complain("--token-file is for --listen http://...");
    if (!is_http && (f->origin_count > 0 || f->allows_remote))
        return complain("--allow-origin and --allow-remote are for --listen http://...");
    if (f->structured_output != NULL && strcmp(f->structured_output, "auto") != 0 &&
        strcmp(f->structured_output, "always") != 0 && strcmp(f->structured_output, "never") != 0)
        return complain("--structured-output: want auto, always or never");
    return SP_EXIT_OK;
}

int sp_mcp_flags_read(int argc, char **argv, struct sp_mcp_flags *ret)
{
    const size_t room = (size_t)argc + 2;
    auto_free char **args = calloc(room, sizeof *args);
    int opt;

    ret->rules = calloc(room, sizeof *ret->rules);
    ret->approvers = calloc(room, sizeof *ret->approvers);
    ret->sets = calloc(room, sizeof *ret->sets);
    ret->listen = calloc(room, sizeof *ret->listen);
    ret->origins = calloc(room, sizeof *ret->origins);
    ret->on = calloc(room, sizeof *ret->on);
    if (args == NULL || ret->rules == NULL || ret->approvers == NULL || ret->sets == NULL ||
        ret->listen == NULL || ret->origins == NULL || ret->on == NULL)
        return SP_EXIT_FAILED;
    args[0] = (char *)(uintptr_t) "sallyport mcp"; /* what getopt's complaints begin with */
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    optind = 1;
    while ((opt = getopt_long(argc + 1, args, "", known, NULL)) != -1) {
        if (opt == OPT_HELP) {
            (void)fputs(help, stdout);
            return -1;
        }
        if (!take(ret, opt))
            return SP_EXIT_USAGE;
    }
    if (args[optind] != NULL)
        return complain("it takes no arguments beside its flags");
    return check(ret);
}

void sp_mcp_flags_done(struct sp_mcp_flags *f)
{
    free(f->rules);
    free(f->approvers);
    free(f->sets);
    free(f->listen);
    free(f->origins);
    free(f->on);
}
