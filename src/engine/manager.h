/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager: the processes of one MCP caller or of one engine of the library, and the calls that a
 * model makes about them. exec_command starts a process and waits a bounded time, write_stdin types
 * or polls. A call is a state machine on the loop (enum sp_exec_stage in exec_priv.h).
 *
 * src/mcp and src/lib translate a model's JSON into these structs and the replies back.
 */
#ifndef SP_ENGINE_MANAGER_H
#define SP_ENGINE_MANAGER_H

#include "approve/approvals.h"
#include "base/receipt.h"
#include "engine/answer.h"
#include "engine/event.h"
#include "engine/job.h"

struct sp_manager;
struct sp_network_receipt;
struct sp_snapshots;

#define SP_ENVIRONMENTS_MAX 64

/* ---- how long a call waits before it answers for a process that still runs ---- */

enum sp_yield_kind {
    SP_YIELD_EXEC,
    SP_YIELD_WRITE,  /* write_stdin with characters */
    SP_YIELD_POLL,   /* write_stdin without */
    SP_YIELD_COMPAT, /* the old unified_exec tool */
    SP_YIELD_MAX
};

#define SP_YIELD_POLL_MAX_MS 300000     /* longest poll, unless configured otherwise */
#define SP_YIELD_FOREVER     UINT64_MAX /* until the process exits */

/* The time requested by a call. */
struct sp_yield_request {
    bool has_yield_time;
    uint64_t yield_time_ms; /* if has_yield_time */
};

/* Describes a place where commands run. The first of a manager is the primary one. */
struct sp_environment_spec {
    const char *id;
    struct sp_backend *backend; /* borrowed; outlives its use, see sp_manager_uses */
    const char *cwd;            /* absolute, of that host; NULL: the backend's */
    bool is_remote;             /* only reported to callers */
    bool has_own_policy;        /* policy and policy_name apply; otherwise the manager's */
    const struct sp_policy *policy;
    const char *policy_name;
};

/* What ends a wait before its deadline. */
enum sp_until_kind {
    SP_UNTIL_EXIT, /* ends every wait, named or not */
    /* Matches in output that no call has answered yet, across chunks. A line without an end (a
       prompt) counts as ended after SP_PROMPT_MS of silence. */
    SP_UNTIL_PATTERN,
    SP_UNTIL_QUIET, /* no output for quiet_ms, since the wait began at the earliest */
    SP_UNTIL_PORT,  /* a process of its tree listens on this TCP port */
};
struct sp_until {
    enum sp_until_kind kind;
    struct sp_str pattern; /* base/ere.h */
    uint64_t quiet_ms;
    uint16_t port;
};
#define SP_UNTIL_COUNT_MAX 8 /* conditions of one call */

struct sp_exec_request {
    struct sp_str call_id, turn_id;
    struct sp_str cmd;         /* a script for the shell; ignored if argc > 0 */
    const struct sp_str *argv; /* run without a shell, if argc > 0 */
    struct sp_str workdir;     /* empty: the environment's */
    struct sp_yield_request yield;
    uint64_t max_tokens;
    struct sp_str shell;               /* p NULL: the user's */
    struct sp_str environment_id;      /* p NULL: the primary one */
    const struct sp_grant *additional; /* NULL: none given */
    struct sp_str justification;       /* p NULL: none */
    const struct sp_str *prefix_rule;
    struct sp_env_vars env; /* overrides all variables but the sandbox's own */
    const struct sp_until *until;
    uint64_t timeout_ms; /* after which the process tree is killed; 0: never */
    struct sp_limit_ask limits;
    uint32_t argc, prefix_rule_count, until_count;
    enum sp_permissions permissions;
    uint16_t rows, cols; /* terminal size; 0: 24 x 80 */
    bool is_tty;
    bool is_compat; /* the yield times of the old unified_exec tool */
    bool has_max_tokens;
    bool has_login, login;
    bool has_permissions;
    bool wants_stdin;     /* without a terminal: keep stdin open for write_stdin */
    bool waits_for_end;   /* no deadline */
    bool needs_shell;     /* refused if `shell` is not there; else another shell takes its place */
    bool has_no_approver; /* the call must not wait for an approver */
    bool omits_text;      /* the caller formats reply.answer itself: reply.text only has faults */
};

struct sp_write_request {
    struct sp_str call_id;
    int session_id;
    struct sp_str chars; /* empty: a poll */
    bool is_compat;
    struct sp_yield_request yield;
    bool no_timeout;
    bool has_max_tokens;
    bool omits_text; /* as in sp_exec_request */
    uint64_t max_tokens;
    const struct sp_until *until;
    uint32_t until_count;
};

/* request_permissions: grants more to the commands of a turn or of the session. */
struct sp_permissions_request {
    struct sp_str call_id, turn_id;
    struct sp_str environment_id; /* p NULL: the primary one */
    struct sp_str reason;         /* empty: none */
    const struct sp_grant *permissions;
};

/* Why a call failed. */
enum sp_fault {
    SP_FAULT_NONE,
    SP_FAULT_ARGUMENTS, /* invalid arguments; the text has no prefix */
    SP_FAULT_UNKNOWN,
    SP_FAULT_STDIN_CLOSED,
    SP_FAULT_WRITE,
    SP_FAULT_CREATE,
    SP_FAULT_REJECTED,
    SP_FAULT_FAILED,
    SP_FAULT_ABORTED, /* the call was cancelled */
};

/* How a call ended. Valid during the call of sp_reply_fn. */
struct sp_reply {
    enum sp_fault fault;
    struct sp_str text;           /* for the model: the answer, or the error with its prefix */
    struct sp_exec_answer answer; /* if fault is NONE */
    bool has_max_tokens;          /* as in the request: the structured form needs it */
    uint64_t max_tokens;
    bool was_denied;     /* by the sandbox, as far as known */
    bool was_confined;   /* false: no process, or it certainly had no sandbox */
    int process_id;      /* also of an ended process; 0: none */
    int signal;          /* that ended the process; 0: none or unknown */
    uint64_t from, to;   /* byte range of the process's output that the answer covers */
    struct sp_str error; /* if fault is not NONE: the text without the prefix */
    int woken_by;    /* index into until; -1: the deadline, no conditions, or an exit that was not
                        among them */
    bool has_exited; /* the process has exited, even if its output is still open */
    bool is_output_held; /* exited, but another process holds its output open */
    bool has_typed;      /* its characters were sent to the process, or may have been */
    enum sp_end_reason end_reason;
    struct sp_limit_hits limits;
    const struct sp_denial_facts *denial;     /* NULL: no evidence */
    const struct sp_patch_changes *changes;   /* of an applied patch; otherwise NULL */
    const struct sp_exit *kernel;             /* the kernel's record of the exit; NULL: unknown */
    const struct sp_command_receipt *receipt; /* NULL: it runs, or nothing is known */
    const struct sp_network_receipt *network; /* NULL: it reached nothing, and was denied nothing */
};
typedef void sp_reply_fn(void *user, const struct sp_reply *reply);

struct sp_manager_ops {
    void (*event)(void *user, const struct sp_exec_event *e); /* NULL: no events */
    /* Must lead to sp_approvals_decide, at once or later; the question is valid until then. NULL:
     * options.approvals.approver is used; without either, questions are refused. */
    void (*ask)(void *user, const struct sp_approval_question *q);
};

struct sp_manager_options {
    struct sp_loop *loop;
    const struct sp_environment_spec *environments; /* copied; without any, exec is refused */
    uint32_t environment_count;
    const struct sp_manager_ops *ops;
    void *user;

    bool has_deterministic_ids;
    uint64_t poll_max_ms;                 /* 0: default */
    struct sp_allowance output_allowance; /* limit 0 in bytes: the default, 10,000 tokens */
    uint32_t notify_at;      /* number of stored processes that triggers a warning; 0: never */
    bool hides_denied_start; /* no events for a command that the sandbox denied at once */
    uint64_t exited_ttl_ms;  /* life of exited entries that no call polls; 0: unlimited */
    uint64_t idle_ttl_ms;    /* running processes unused for so long are killed; 0: never */
    /* An ended process can be read with sp_manager_view for exited_ttl_ms after its exit was
     * answered, and keeps its id. The oldest are dropped above SP_REMEMBERED_MAX processes or
     * SP_REMEMBERED_BYTES of output. */
    bool remembers_ended;
    bool refuses_login_shell;        /* refuse login shells */
    bool has_additional_permissions; /* the feature exec_permission_approvals */
    bool has_no_timeout;             /* the feature write_stdin_no_timeout */
    bool keeps_line_endings;         /* patches preserve the line endings of files */
    /* Approval settings; loop, warn and user are set by the manager. */
    struct sp_approvals_options approvals;
    const struct sp_policy *policy;          /* of first attempts; copied; NULL: no sandbox */
    const char *policy_name;                 /* for CODEX_PERMISSION_PROFILE; NULL: none */
    const char *thread_id, *conversation_id; /* for CODEX_THREAD_ID, CODEX_SESSION_ID; NULL: none */
    const struct sp_env_request *environ;    /* own, policy, set and never_seen; copied deeply */
    struct sp_snapshots *snapshots;          /* NULL: no shell snapshots */
};

int sp_manager_new(const struct sp_manager_options *o, struct sp_manager **ret, struct sp_err *e);
/* Terminates all processes, sends their end events, answers every call as aborted and frees the
 * manager. Must not be called from one of its callbacks. */
void sp_manager_free(struct sp_manager *m);

/* Each starts a call and returns its number; fn is called once, from the loop. The request is
 * copied. They fail only without memory or while the manager is being freed; all other errors are
 * replies.
 */
int sp_manager_exec(struct sp_manager *m, const struct sp_exec_request *request, sp_reply_fn *fn,
                    void *user, uint64_t *ret_call, struct sp_err *e);
int sp_manager_write(struct sp_manager *m, const struct sp_write_request *request, sp_reply_fn *fn,
                     void *user, uint64_t *ret_call, struct sp_err *e);

/* The text of the reply is JSON: what was granted. */
int sp_manager_request_permissions(struct sp_manager *m,
                                   const struct sp_permissions_request *request, sp_reply_fn *fn,
                                   void *user, uint64_t *ret_call, struct sp_err *e);

/* A call with unparsable arguments: answered from the loop with SP_FAULT_ARGUMENTS and a copy of
 * this text. */
int sp_manager_refuse(struct sp_manager *m, struct sp_str text, sp_reply_fn *fn, void *user,
                      uint64_t *ret_call, struct sp_err *e);

/* Aborts one call, or all of them when the turn is interrupted. A stored process lives on; one that
 * is starting is killed. false: no such call. */
bool sp_manager_cancel(struct sp_manager *m, uint64_t call);
void sp_manager_interrupt(struct sp_manager *m);

/* Ends the wait of the call: it answers with the output so far, once it has a process. */
void sp_manager_answer_now(struct sp_manager *m, uint64_t call);
/* Takes sp_manager_answer_now back: the call waits for its yield time again. false: no such call,
 * or it is answered already. */
bool sp_manager_wait_on(struct sp_manager *m, uint64_t call);

/* Adds an environment, or replaces the one of the same id for calls that begin afterwards; its
 * running processes are unaffected. The spec is copied. SP_E_LIMIT: too many environments. */
int sp_manager_set_environment(struct sp_manager *m, const struct sp_environment_spec *environment,
                               struct sp_err *e);
/* Terminates its processes; calls in progress continue. false: unknown, or the primary one. */
bool sp_manager_remove_environment(struct sp_manager *m, const char *id);
/* Whether a call, a process or an environment still needs the backend. */
bool sp_manager_uses(const struct sp_manager *m, const struct sp_backend *b);

/* Rules, grants and policy of the manager. */
struct sp_approvals *sp_manager_approvals(struct sp_manager *m);

/* fn(user, true): confirmed. false: unknown id or refused. fn is called from the loop. */
typedef void sp_manager_done_fn(void *user, bool was_done);
void sp_manager_terminate(struct sp_manager *m, int process_id, sp_manager_done_fn *fn, void *user);
void sp_manager_terminate_all(struct sp_manager *m);

/* Forwarded to the process; fn may be NULL and is called from the loop. */
void sp_manager_signal(struct sp_manager *m, int process_id, int signal, sp_manager_done_fn *fn,
                       void *user);
void sp_manager_resize(struct sp_manager *m, int process_id, uint16_t rows, uint16_t cols,
                       sp_manager_done_fn *fn, void *user);
void sp_manager_close_stdin(struct sp_manager *m, int process_id, sp_manager_done_fn *fn,
                            void *user);

/* Stops the deadlines of all calls, for example while a person is asked. Nests. */
void sp_manager_pause(struct sp_manager *m, bool is_paused);

/* Ends the process because a person refused what it does, for example to reach a host. message
 * NULL: a default text. Only the first failure counts. false: no such process. */
bool sp_manager_fail(struct sp_manager *m, int process_id, const char *message);

/* One process, running or remembered; valid until the loop continues. */
struct sp_manager_view {
    int process_id;
    struct sp_str call_id, command, cwd;
    const char *environment;        /* environment id */
    const struct sp_policy *policy; /* of its first attempt; NULL: no sandbox */
    bool is_remote;
    bool is_tty;
    int64_t started_at_ms; /* since the epoch */
    bool has_exited;
    bool is_output_held; /* another process holds its output open; never of a remembered one */
    bool is_answered;    /* its exit was answered, or it was pruned: write_stdin finds it no more */
    bool is_end_told;    /* its exit was answered */
    int exit_code, signal;
    enum sp_end_reason end_reason;
    struct sp_limit_hits limits;
    bool was_denied;
    bool was_confined; /* false: it certainly had no sandbox */
    const struct sp_denial_facts *denial;
    const struct sp_exit *kernel;             /* NULL: unknown */
    const struct sp_command_receipt *receipt; /* NULL: it runs, or nothing is known */
    const struct sp_network_receipt *network; /* NULL: it reached nothing, and was denied nothing */
    /* Its output: head, then `omitted` bytes that were not kept, then both parts of the tail. */
    struct sp_str head, tail[2];
    uint64_t omitted, total;
    uint64_t answered; /* bytes that calls have answered */
};
bool sp_manager_view(struct sp_manager *m, int process_id, struct sp_manager_view *ret);
/* Running and remembered processes, by id. */
void sp_manager_each(struct sp_manager *m, void (*fn)(void *user, const struct sp_manager_view *v),
                     void *user);

/* Inspects what the process is doing. fn is called once, from the loop (at once only without
 * memory). found NULL: unknown. */
typedef void sp_manager_inspect_fn(void *user, const struct sp_inspection *found);
void sp_manager_inspect(struct sp_manager *m, int process_id, sp_manager_inspect_fn *fn,
                        void *user);

#endif
