/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask: requests from the server to its client. Each connection numbers its own from 1. A second
 * answer, and an answer to a request that was withdrawn, are ignored.
 */
#ifndef SP_SERVER_RPC_ASK_H
#define SP_SERVER_RPC_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/str.h"

struct sp_conn;

#define SP_ASK_MAX 256 /* unanswered requests of one connection */

/* One unanswered request; embedded in the caller's struct. */
struct sp_ask {
    /* The request is closed when this is called. result: JSON, borrowed for the call; p NULL: the
     * client answered with an error. */
    void (*answered)(struct sp_ask *a, struct sp_str result);
    struct sp_conn *conn; /* NULL: not sent, answered or withdrawn */
    uint64_t number;
    struct sp_list link; /* in conn->asks */
};

/* params: JSON. false: SP_ASK_MAX are open, or out of memory; nothing was sent. */
bool sp_ask_send(struct sp_ask *a, struct sp_conn *conn, const char *method, struct sp_str params,
                 void (*answered)(struct sp_ask *a, struct sp_str result));
/* Forgets the request without telling the client. Does nothing if it is not open. */
void sp_ask_withdraw(struct sp_ask *a);

#endif
