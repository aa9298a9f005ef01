/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_server: the state of `sallyport mcp`, shared by cmd_mcp.c (where commands run and under which
 * policy), mcp_listen.c (the transports) and mcp_selftest.c.
 */
#ifndef SP_CLI_MCP_SERVER_H
#define SP_CLI_MCP_SERVER_H

#include "cli/approval.h"
#include "cli/signals.h"
#include "config/config_place.h"
#include "engine/snapshot.h"
#include "mcp/mcp.h"
#include "sandbox/hidden_paths.h"

#define SP_MCP_TOKENS_MAX 64

struct sp_mcp_flags {
    const char *sandbox, *cwd, *token_file, *connect, *structured_output;
    struct sp_cli_approval_flags approval;
    struct sp_option_list listen, origins, on;
    bool is_selftest, allows_remote, keeps_cancelled;
    struct sp_config_options config;
    int argc; /* all arguments, for the server of --selftest */
    char **argv;
};

/* The bearer tokens of HTTP. */
struct sp_mcp_tokens {
    char *text;                                /* what the tokens point into */
    const char *tokens[SP_MCP_TOKENS_MAX + 1]; /* NULL at the end */
    char *made; /* the file that we wrote, and remove at the end; NULL: none */
};

struct sp_mcp_lines;
struct sp_mcp_http;

/* An environment besides the first. */
struct sp_mcp_place {
    struct sp_config_place place;
    struct sp_backend *backend;
    char *cwd;
    struct sp_policy policy;
};

struct sp_mcp_server {
    const struct sp_mcp_flags *flags;
    struct sp_loop *loop;
    struct sp_ending ending;
    struct sp_config config;
    struct sp_config_place place;
    struct sp_hidden_paths hidden_paths;
    struct sp_backend *backend;
    struct sp_backend_wait facts; /* request for the facts about a server */
    struct sp_err unreachable;    /* code NONE: it answered */
    bool has_facts;
    char *cwd;

    struct sp_policy policy;
    const char *policy_name; /* spelled as in the option or the configuration */
    bool is_open;            /* the policy confines nothing */
    struct sp_cli_approval approval;
    struct sp_snapshots *snapshots; /* NULL: none */
    struct sp_env_request environ;
    struct sp_mcp_place *places; /* further environments */
    size_t place_count;
    struct sp_environment_spec *environments; /* with the first */
    struct sp_manager_options manager;
    struct sp_mcp *mcp;

    struct sp_mcp_tokens tokens;
    struct sp_mcp_lines **lines; /* by index of --listen; NULL: that one is HTTP */
    struct sp_mcp_http **https;  /* the other way round */
};

/* Opens the transports of --listen, or stdio, and prints their URLs. */
int sp_mcp_open_transports(struct sp_mcp_server *s, struct sp_err *e);
void sp_mcp_close_transports(struct sp_mcp_server *s); /* also after a failure */

/* --selftest: starts a server with these arguments but for --selftest, and calls it as a host
 * would. Prints TAP; returns the exit status. */
int sp_mcp_selftest(int argc, char **argv);

#endif
