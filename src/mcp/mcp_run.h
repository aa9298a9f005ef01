/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_run: one call of a tool, from its start to its result. A run belongs to its caller, not to
 * the message that asked for it: the waiting client may go, and another message may come back to
 * it.
 *
 *   started -> [question -> decided]... -> done
 *
 * The functions of this file never call back directly; all callbacks come later, from the loop.
 */
#ifndef SP_MCP_MCP_RUN_H
#define SP_MCP_MCP_RUN_H

#include "mcp/arguments.h"
#include "mcp/caller.h"
#include "mcp/tool_denial.h"

#define SP_MCP_RUNS_MAX 1024 /* of one caller; more are refused with SP_E_LIMIT */

/* Borrowed for the call that reports it. */
struct sp_mcp_result {
    bool is_error;
    struct sp_str text;       /* for a model; valid UTF-8 */
    struct sp_str note;       /* a second text block; n 0: none */
    struct sp_str structured; /* a JSON object; n 0: none */
};

/* Callbacks of the waiter, all from the loop. */
struct sp_mcp_run_ops {
    /* The last call; the run is freed after it. */
    void (*done)(void *user, const struct sp_mcp_result *r);
    /* sp_mcp_run_question has become open. If sp_mcp_run_asks_host, the host has to be asked: this
     * must lead to sp_mcp_run_decide or sp_mcp_run_ask_next, or the run is parked or cancelled. */
    void (*question)(void *user);
    void (*withdrawn)(void *user); /* the question is closed */
    /* The process has started, with this session id. May be NULL. */
    void (*started)(void *user, int session_id);
};

struct sp_mcp_run_request {
    struct sp_str tool;
    struct sp_arguments *arguments; /* parsed; they move to the run */
    bool waits_for_end;             /* exec_command without a deadline (a task) */
    bool cannot_ask_host;           /* the client cannot show a question to a person */
    bool repeats_output;            /* the structured result has the output, too */
};

/* SP_E_NO_METHOD: no such tool. SP_E_LIMIT: too many runs. Bad arguments are a result. */
int sp_mcp_run_start(struct sp_mcp_caller *c, const struct sp_mcp_run_request *request,
                     const struct sp_mcp_run_ops *ops, void *user, struct sp_mcp_run **ret,
                     struct sp_err *e);
/* Replaces the waiter. An open question, or a result that came during a hold, is reported to the
 * new one. ops NULL: the run has no waiter and is held until the next waiter comes. A held run
 * starts nothing: answers and results are kept. */
void sp_mcp_run_attach(struct sp_mcp_run *r, const struct sp_mcp_run_ops *ops, void *user);
/* Detaches the waiter; nothing more is reported. A running process continues; one that has not
 * started never will. */
void sp_mcp_run_cancel(struct sp_mcp_run *r);
/* Answers soon with what there is. An open question stays open. */
void sp_mcp_run_answer_now(struct sp_mcp_run *r);

/* For progress messages: the last non-empty line of output, else what the process is doing; at most
 * 200 bytes of harmless UTF-8. */
bool sp_mcp_run_describe(struct sp_mcp_run *r, struct sp_buf *out);

/* ---- the runs of a caller ---- */

/* Bytes of warnings that wait for the next result; further ones are logged. */
#define SP_MCP_WARNINGS_MAX 4096

/* Of each caller's manager, with the caller as its user; of c->questions, and of c->host. */
extern const struct sp_manager_ops sp_mcp_manager_ops;
extern const struct sp_approver_ops sp_mcp_question_ops, sp_mcp_host_ops;
/* Cancels all runs, frees the manager, which ends every process, then the runs. */
void sp_mcp_runs_close(struct sp_mcp_caller *c);

/* ---- parked runs (mcp_call.c) ---- */

#define SP_MCP_PARKED_MAX 64 /* of one caller; then the oldest is cancelled */
#define SP_MCP_PARKED_MS  600000

void sp_mcp_parking_free(struct sp_mcp_parking *p); /* cancels all; NULL is fine */

/* ---- its question ---- */

/* NULL: none is open. */
const struct sp_approval_question *sp_mcp_run_question(const struct sp_mcp_run *r);
/* Whether the host is to answer now; else another approver is being asked. */
bool sp_mcp_run_asks_host(const struct sp_mcp_run *r);
/* The host's answer. While the run is held it is kept until the hold ends. Ignored unless the host
 * is asked. */
void sp_mcp_run_decide(struct sp_mcp_run *r, const struct sp_decision *d);
/* The host shows the question from now on. A refusal within 500 ms is a program's, not a person's.
 */
void sp_mcp_run_note_shown(struct sp_mcp_run *r);
bool sp_mcp_run_is_too_quick(const struct sp_mcp_run *r);
/* The host gives no answer: asks the next approver, or denies if there is none. */
void sp_mcp_run_ask_next(struct sp_mcp_run *r, const char *why);

/* ---- for the tools ---- */

/* Where an answer to a question goes: the `done` of an approver's ask. NULL: nowhere. */
struct sp_mcp_asker {
    sp_approver_fn *done;
    void *user;
};

/* An answer that came during a hold, and what it points into. */
struct sp_mcp_kept_decision {
    struct sp_decision decision;
    struct sp_grant grant;
    struct sp_arena keep;
};

struct sp_mcp_run {
    struct sp_mcp_caller *caller;
    struct sp_list link;
    const struct sp_mcp_run_ops *ops; /* NULL: no waiter */
    void *user;
    char call_id[40];
    const struct sp_mcp_tool *tool;
    bool waits_for_end;
    bool repeats_output;
    bool was_cut_short;   /* sp_mcp_run_answer_now ended its wait */
    bool has_no_approver; /* neither the host nor an approver: for sp_exec_request */
    uint64_t engine_call; /* of the manager; 0: none */
    int session_id;       /* the process of this call; 0: none started yet */
    bool owns_process;    /* started it, and no other call can name it yet */
    bool omits_end;       /* its result does not report an end of the session from now on */

    /* The tool's. `begun` and `hurry` are called from the loop; NULL: ignored. */
    struct sp_arguments arguments; /* what asks and `until` point into */
    void *data;                    /* freed by free_data */
    void (*free_data)(struct sp_mcp_run *r);
    struct sp_deferred deferred;
    void (*begun)(struct sp_mcp_run *r); /* session_id has become known */
    void (*hurry)(struct sp_mcp_run *r); /* no engine call, and it has to answer soon */
    char *refusal;                       /* text of an error that the loop reports */
    struct sp_mcp_inspection *inspection;
    void (*tell)(struct sp_mcp_run *r, const struct sp_inspection *found); /* after it */

    /* exec_command and write_stdin, from their arguments to their answer. */
    struct sp_exec_request exec;
    struct sp_write_request write;
    struct sp_mcp_until until;
    struct sp_str key;           /* key or write_id; p NULL: none */
    struct sp_mcp_key *key_item; /* that this run was the first to use; NULL: none */
    struct sp_list key_wait;     /* waits for the run that used the key first */
    struct sp_buf typed;         /* characters and keys; for argv the quoted command */
    struct sp_reply reply;       /* of the manager; points to the next two */
    struct sp_buf output;
    char chunk_id[16];
    struct sp_command_receipt receipt; /* reply.receipt points here */
    struct sp_mcp_denials denials;
    struct sp_buf network; /* the receipt of its managed network, JSON; empty: none */

    /* mcp_run.c's */
    uint64_t question;         /* id; 0: none is open */
    uint32_t asked;            /* questions so far: a ticket is valid for one of them */
    struct sp_mcp_asker asker; /* of the open question */
    struct sp_mcp_asker host;  /* set while the host is asked */
    uint64_t host_shown_ms;
    bool is_held, is_told, was_withdrawn, is_cancelled, is_in_hurry;
    struct sp_mcp_kept_decision *kept;
    struct sp_mcp_kept_result *result;    /* that came during the hold */
    struct sp_buf warnings;               /* of the manager, for the result's note */
    struct sp_mcp_inspection *describing; /* for sp_mcp_run_describe */
    const char *doing;                    /* the last description; NULL: none yet */
    struct sp_deferred telling;
};

static inline const struct sp_mcp_options *sp_mcp_run_options(const struct sp_mcp_run *r)
{
    return sp_mcp_options(r->caller->mcp);
}

/* Reports the result and frees the run; from the loop only. Warnings of the manager are added to
 * the note. */
void sp_mcp_run_done(struct sp_mcp_run *r, const struct sp_mcp_result *result);
/* The same with a formatted error for the model. */
SP_PRINTF(2, 3) void sp_mcp_run_fail(struct sp_mcp_run *r, const char *fmt, ...);

#endif
