/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_client_priv: the state of the HTTP client, for its unit test.
 */
#ifndef SP_CORE_HTTP_CLIENT_PRIV_H
#define SP_CORE_HTTP_CLIENT_PRIV_H

#include "core/cell_child.h"
#include "core/http_client.h"
#include "core/outbox.h"

/* A worker process. */
struct sp_web_child {
    struct sp_web *http;
    struct sp_web_child *next;
    struct sp_cell_child process;
    int socket; /* -1: the process is ending */
    struct sp_watch watch;
    struct sp_deferred end;
    struct sp_outbox outbox;
    struct sp_timer ping;
    uint32_t unanswered; /* pings since its last message */
};

struct sp_web {
    struct sp_loop *loop;
    const char *program;
    char *const *environ;
    struct sp_web_child *child;    /* takes requests; NULL: none */
    struct sp_web_child *children; /* includes ending processes */
    struct sp_timer idle;
    struct sp_list working, waiting; /* struct sp_web_call */
    uint32_t working_count, waiting_count;
    uint64_t number;
    bool is_unable; /* the last worker could not load libcurl */
    uint32_t ping_ms;
    struct sp_deferred more;
    char *heard; /* room for one message */
};

#endif
