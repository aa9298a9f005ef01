/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve_front: the server that the options of `sallyport serve` describe. Puts the listeners, the
 * server and the approvals together.
 */
#ifndef SP_CLI_SERVE_FRONT_H
#define SP_CLI_SERVE_FRONT_H

#include "cli/cli.h"
#include "cli/serve_approve.h"
#include "server/net/auth.h"

#define SP_SERVE_MAX_LISTEN 4  /* --listen */
#define SP_SERVE_MAX_HOSTS  16 /* names of --host-name */

struct sp_serve_options {
    struct sp_option_list listen, hosts;
    uint64_t max_connections;
    bool has_no_local_socket;
    const char *token_file;    /* of --token-file: another spelling of auth.token_file */
    bool has_no_auth;          /* ws:// without a token */
    bool is_anonymous_allowed; /* the same, also beyond loopback */
    struct sp_auth_options auth;
    uint64_t max_processes, max_session_processes, cells, output_memory, kept_memory,
        session_ttl_ms, closed_ttl_ms, history, concurrent_requests;
    uint64_t idle_exit_ms, log_max;
    struct sp_limit_levels limits;
    bool has_no_cgroups, accepts_exposure;
    struct sp_cli_approval_flags approval;
    bool has_metrics;
    const char *busy_poll, *log_level, *log_format;
    bool has_keeper, has_no_keeper, is_front;
    char *const *arguments; /* behind `serve`; NULL at the end */
};

/* Serves until a signal, or the end of the client on stdio, ends it. Returns the exit status.
 * keeper: the socket to it; -1: this process is the server. */
int sp_serve_front(struct sp_serve_options *o, int keeper);

#endif
