/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run: one call of a tool, from its beginning to its result. It belongs to its caller, not to the
 * message that asked for it: whoever waits for it may go, and another may come back to it.
 *
 *   started -> [question -> decided]... -> done
 *
 * Nothing is told from within a function of this file: the loop tells it later.
 */
#ifndef SP_MCP_MCP_RUN_H
#define SP_MCP_MCP_RUN_H

#include "approve/approver.h"
#include "base/buf.h"
#include "mcp/caller.h"

#define SP_MCP_RUNS_MAX 1024 /* of one caller; more are refused: SP_E_LIMIT */

/* What came of it. Borrowed for the call that tells it. */
struct sp_mcp_result {
    bool is_error;
    struct sp_str text;       /* for a model; valid UTF-8 */
    struct sp_str note;       /* a second text block; n 0: none */
    struct sp_str structured; /* a JSON object; n 0: none */
};

/* Who waits for it. All are called from the loop. */
struct sp_mcp_run_ops {
    /* The last call; the run is gone after it. */
    void (*done)(void *user, const struct sp_mcp_result *r);
    /* There is a question: sp_mcp_run_question. If sp_mcp_run_asks_host, the host has to be asked;
     * that leads to sp_mcp_run_decide or sp_mcp_run_ask_next, or the run is parked or cancelled. */
    void (*question)(void *user);
    void (*withdrawn)(void *user); /* nobody need be asked any more */
    /* Its process has begun, and has this id. May be NULL. */
    void (*started)(void *user, int session_id);
};

struct sp_mcp_run_ask {
    struct sp_str tool;
    struct sp_str arguments; /* the JSON object as it came; n 0: none */
    bool waits_for_end;      /* of exec_command: no deadline (a task) */
    bool cannot_ask_host;    /* whoever called has no way to ask a person */
    bool repeats_output;     /* the structured form has the output, too (host.h) */
};

/* SP_E_NO_METHOD: no such tool. SP_E_LIMIT: too many at a time. Bad arguments are a result. */
int sp_mcp_run_start(struct sp_mcp_caller *c, const struct sp_mcp_run_ask *ask,
                     const struct sp_mcp_run_ops *ops, void *user, struct sp_mcp_run **ret,
                     struct sp_err *e);
/* Somebody else waits from now on, and it is held no longer. A question that is open is told
 * (again) to the new one, and a result that came while it was held. */
void sp_mcp_run_attach(struct sp_mcp_run *r, const struct sp_mcp_run_ops *ops, void *user);
/* Nobody waits any more, and nothing is told: a process that was started lives on, one that was not
 * is never started. */
void sp_mcp_run_cancel(struct sp_mcp_run *r);
/* The same for a caller that gives the call up: a process that this call has started, and that no
 * answer or key has named, ends, unless the options keep it. */
void sp_mcp_run_abandon(struct sp_mcp_run *r);
/* Answers with what there is, soon. An open question stays open. */
void sp_mcp_run_answer_now(struct sp_mcp_run *r);

/* For progress: the last line of output that is not empty, else what it is doing; at most 200
 * bytes of harmless UTF-8. */
bool sp_mcp_run_describe(struct sp_mcp_run *r, struct sp_buf *out);
/* Whether the call asks to run to completion: `until` is exactly {"exit":true}, no yield_time_ms.
 */
bool sp_mcp_run_is_to_completion(struct sp_str tool, struct sp_str arguments);

/* ---- its question ---- */

/* NULL: none is open. */
const struct sp_approval_question *sp_mcp_run_question(const struct sp_mcp_run *r);
/* Whether it is the host's turn to answer; else another approver's. */
bool sp_mcp_run_asks_host(const struct sp_mcp_run *r);
/* The host's answer; while the run is held it waits until it is not. One that is not asked: nothing
 * happens. */
void sp_mcp_run_decide(struct sp_mcp_run *r, const struct sp_decision *d);
/* The host is shown the question now; what it answers faster than a person reads is its own. */
void sp_mcp_run_is_shown(struct sp_mcp_run *r);
bool sp_mcp_run_is_too_quick(const struct sp_mcp_run *r);
/* The host gives no answer: the next approver is asked, and if there is none it is denied. */
void sp_mcp_run_ask_next(struct sp_mcp_run *r, const char *why);
/* A held run starts nothing: an answer is kept for when it is held no more. A result that comes
 * all the same (nobody answered in time) is kept for whoever is attached. */
void sp_mcp_run_hold(struct sp_mcp_run *r, bool is_held);

/* ---- for the tools (tool.h) ---- */

/* What waits for the host's answer; done NULL: nothing does. */
struct sp_mcp_host {
    sp_approver_fn *done;
    void *user;
    uint64_t shown_ms; /* when it was last shown the question; 0: not yet */
};

struct sp_mcp_run {
    struct sp_mcp_caller *caller;
    struct sp_mcp_run *prev, *next;
    const struct sp_mcp_run_ops *ops;
    void *user;
    char call_id[40];
    const struct sp_mcp_tool *tool;
    bool waits_for_end;
    bool repeats_output;
    bool was_cut_short;   /* sp_mcp_run_answer_now ended its wait */
    bool nobody_answers;  /* neither the host nor an approver: for sp_exec_ask */
    uint64_t engine_call; /* of the manager; 0: none */
    int session_id;       /* of the process that it is about; 0: none, or not yet */
    bool owns_process;    /* it has started that, and its answer is the first to name it */
    void *data;           /* the tool's; freed with free_data */
    void (*free_data)(struct sp_mcp_run *r);
    struct sp_deferred deferred; /* the tool's, to do something from the loop */
    /* The tool's, from the loop; NULL: nothing to do. begun: session_id has become known. hurry: it
     * has no engine call and is to answer soon, for sp_mcp_run_answer_now or because it was
     * cancelled. */
    void (*begun)(struct sp_mcp_run *r);
    void (*hurry)(struct sp_mcp_run *r);

    /* run_ask.c's */
    uint64_t question; /* 0: none is open */
    uint32_t asked;    /* questions so far: a ticket is good for one of them */
    bool is_held, is_told, was_withdrawn, is_cancelled, is_in_hurry;
    struct sp_mcp_host host;
    struct sp_decision_text *kept;     /* an answer that came while it was held */
    struct sp_mcp_kept_result *result; /* the same of a result */
    struct sp_buf warnings;            /* of the manager, for the result's note */
    struct sp_mcp_looking *looking;    /* what it is doing is being asked */
    const char *doing;                 /* as it was last told; NULL: not yet */
    struct sp_deferred telling;
};

/* The result, from the loop only; the run is freed. What the manager has warned of goes to its
 * note, behind the tool's own. */
void sp_mcp_run_done(struct sp_mcp_run *r, const struct sp_mcp_result *result);
/* An error for the model, formatted; as sp_mcp_run_done. */
SP_PRINTF(2, 3) void sp_mcp_run_fail(struct sp_mcp_run *r, const char *fmt, ...);

#endif
