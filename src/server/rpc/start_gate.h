/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_gate: decides whether a process may start (serve --approve). A server without a gate starts
 * every command that it can.
 *
 *   process/start --judge--> YES: it starts          NO: it is refused
 *                    '-----> ASKING --decided--> YES or NO
 *
 * A start that is being asked about has no process yet. It belongs to its connection and ends with
 * it; requests about its process id are answered as sp_method.gated says (conn.h).
 */
#ifndef SP_SERVER_RPC_START_GATE_H
#define SP_SERVER_RPC_START_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct sp_conn;
struct sp_proc;
struct sp_start;
struct sp_start_gate;

enum sp_start_gate_answer { SP_START_GATE_NO, SP_START_GATE_YES, SP_START_GATE_ASKING };

/* One start, as the gate sees it. */
struct sp_start_gate_case {
    /* The input; valid until `done` was called. */
    struct sp_conn *conn;
    uint64_t session;     /* its number */
    bool takes_approvals; /* the connection's client answers approval/request */
    const struct sp_start *start;
    /* The gate calls this once when ASKING became YES or NO: from the loop, never from judge. */
    void (*decided)(struct sp_start_gate_case *c);

    /* The gate fills these. */
    enum sp_start_gate_answer answer;
    enum sp_code code;    /* NO: STATE if the decision is no, else the error's code ... */
    struct sp_str reason; /* ... and its message */
    void *impl;
};

struct sp_start_gate_ops {
    void (*judge)(struct sp_start_gate *g, struct sp_start_gate_case *c); /* fills the answer */
    /* Ends a case that was judged and withdraws an open question. */
    void (*done)(struct sp_start_gate *g, struct sp_start_gate_case *c);
    void (*closed)(struct sp_start_gate *g, const struct sp_proc *p); /* it was let start */
    void (*ended)(struct sp_start_gate *g, uint64_t session); /* its approvals are forgotten */
};

struct sp_start_gate {
    const struct sp_start_gate_ops *ops;
};

#endif
