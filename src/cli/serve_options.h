/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve_options: the command line of `sallyport serve`.
 */
#ifndef SP_CLI_SERVE_OPTIONS_H
#define SP_CLI_SERVE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/net/auth.h"

#define SP_SERVE_MAX_HOSTS 16

struct sp_serve_options {
    const char *listen;
    struct sp_auth_options auth;
    const char *own_token_file;
    bool has_no_auth;          /* ws:// without a token */
    bool is_anonymous_allowed; /* the same, also beyond loopback */
    bool has_metrics, has_no_cgroups, accepts_exposure;
    bool has_no_local_socket;
    const char *hosts[SP_SERVE_MAX_HOSTS + 1];
    unsigned host_count;
    uint64_t max_connections, max_processes, session_ttl_s, closed_ttl_s, concurrent_requests;
    uint64_t clock_skew_s;
    const char *approve;             /* NULL: not given */
    const char **rules, **approvers; /* NULL at the end */
    size_t approver_count;
    unsigned rule_count;
};

/* What is wrong was said. SP_EXIT_OK: go on. -1: help was asked for and given. To be ended in any
 * case. */
int sp_serve_options_read(int argc, char **argv, struct sp_serve_options *o);
void sp_serve_options_done(struct sp_serve_options *o);

#endif
