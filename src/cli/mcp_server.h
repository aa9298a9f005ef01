/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_server: what `sallyport mcp` is made of: where commands run, under what, who asks and who
 * answers.
 */
#ifndef SP_CLI_MCP_SERVER_H
#define SP_CLI_MCP_SERVER_H

#include "approve/approvers.h"
#include "approve/hooks.h"
#include "cli/mcp_options.h"
#include "cli/mcp_tokens.h"
#include "cli/signals.h"
#include "config/config_approvals.h"
#include "config/config_place.h"
#include "engine/snapshot.h"
#include "mcp/mcp.h"
#include "sandbox/hidden_paths.h"

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
    struct sp_backend_wait facts; /* of a server */
    struct sp_err unreachable;    /* code NONE: it is not */
    bool has_facts;
    char *cwd;

    struct sp_policy policy;
    const char *policy_name; /* of the sandbox, as it was asked for */
    bool is_open;            /* there is none */
    struct sp_config_approvals approvals;
    struct sp_approvers *approvers;
    struct sp_hooks hooks;
    struct sp_snapshots *snapshots; /* NULL: none */
    struct sp_environ_ask environ;
    struct sp_mcp_place *places; /* further environments */
    size_t place_count;
    struct sp_environment_spec *environments; /* with the first */
    struct sp_manager_options manager;
    struct sp_mcp *mcp;

    char runtime_dir[512];
    struct sp_mcp_tokens tokens;
    struct sp_mcp_lines **lines; /* NULL at the end, as the next */
    struct sp_mcp_http **https;
};

/* Everything but the transports. *s is zero but for its flags, and to be ended also after a
 * failure. */
int sp_mcp_server_begin(struct sp_mcp_server *s, struct sp_err *e);
/* Whoever asks may ask from now on. */
int sp_mcp_server_listen(struct sp_mcp_server *s, struct sp_err *e);
void sp_mcp_server_end(struct sp_mcp_server *s);

/* mcp_places.c: the further environments of --on, after the first; s->environments is made. */
int sp_mcp_places_open(struct sp_mcp_server *s, struct sp_err *e);
void sp_mcp_places_done(struct sp_mcp_server *s);

/* What a model is told about the place, by a host that can ask a person or not; to be freed. NULL:
 * no memory. */
char *sp_mcp_instructions(const struct sp_mcp_server *s, bool host_asks);

#endif
