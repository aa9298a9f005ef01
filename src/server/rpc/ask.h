/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask: requests from the server to its client (exec-server-protocol.md 2.7). They are numbered 1,
 * 2, 3... on each connection. An answer to one that was withdrawn, or a second one, is ignored.
 */
#ifndef SP_SERVER_RPC_ASK_H
#define SP_SERVER_RPC_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct sp_conn;
struct sp_json;

#define SP_ASK_MAX 256 /* open at once on a connection */

/* An open one; embedded in whoever asks. */
struct sp_ask {
    /* Not open any more. The raw text of the result, there for the call; p NULL: an error. */
    void (*answered)(struct sp_ask *a, struct sp_str result);
    struct sp_conn *conn; /* NULL: not open */
    uint64_t number;
    struct sp_ask *prev, *next;
};

/* params: JSON. false: too many are open, or no memory; nothing was sent. */
bool sp_ask_send(struct sp_ask *a, struct sp_conn *conn, const char *method, struct sp_str params,
                 void (*answered)(struct sp_ask *a, struct sp_str result));
void sp_ask_withdraw(struct sp_ask *a); /* nothing is sent; not open is fine */

/* For conn.c: a message that is an answer; id is its token. false: to nothing that was asked. */
bool sp_ask_take(struct sp_conn *conn, struct sp_json *j, uint32_t id);

#endif
