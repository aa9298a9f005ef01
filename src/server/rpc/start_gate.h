/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate: somebody who is asked before a process starts (approvals.md 1). A server without a gate
 * starts whatever it is asked to. gated.h has the starts that wait for the answer.
 *
 *   process/start --judge--> YES: it starts          NO: it is refused
 *                    '-----> ASKING --told--> YES or NO
 */
#ifndef SP_SERVER_RPC_START_GATE_H
#define SP_SERVER_RPC_START_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct sp_buf;
struct sp_conn;
struct sp_start_gate;
struct sp_policy;

enum sp_start_gate_answer { SP_START_GATE_NO, SP_START_GATE_YES, SP_START_GATE_ASKING };

/* One start, as the gate sees it. */
struct sp_start_gate_case {
    /* given to it; all of this stays until the case is done: */
    struct sp_conn *conn;
    uint64_t session;     /* its number */
    bool takes_approvals; /* the connection's client answers approval/request */
    struct sp_str id, cwd;
    const struct sp_str *argv;
    uint32_t argc;
    const struct sp_buf *env; /* NAME=VALUE strings, each with its NUL */
    uint32_t envc;
    bool is_tty;
    const struct sp_policy *policy; /* NULL: no sandbox */
    void (*told)(
        struct sp_start_gate_case *c); /* not ASKING any more; from the loop, not from judge */
    /* by it: */
    enum sp_start_gate_answer answer;
    enum sp_code code;    /* NO */
    struct sp_str reason; /* NO: what the client is told */
    void *impl;
};

struct sp_start_gate_ops {
    void (*judge)(struct sp_start_gate *g, struct sp_start_gate_case *c); /* fills the answer */
    /* The end of a case that was judged: an open question is withdrawn. */
    void (*done)(struct sp_start_gate *g, struct sp_start_gate_case *c);
};

struct sp_start_gate {
    const struct sp_start_gate_ops *ops;
};

#endif
