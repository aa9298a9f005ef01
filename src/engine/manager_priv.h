/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_priv: shared by the files of the manager.
 *
 * A process and a call each have one function that looks at their whole state and does what is due
 * (settle in process.c, the step of a call). Every change requests it with sp_process_changed or
 * sp_call_changed, and the loop runs it at the end of the turn. So no transition can be missed, no
 * callback runs inside a caller's function, and nothing is freed while it is in use.
 *
 * The stages of exec_command are in exec_priv.h. write_stdin waits for its turn (write_stdin.c),
 * types, and collects output as exec_command does.
 *
 * Output that no call has answered yet is in the process's `pending`; the call that answers takes
 * all of it at once, so a cancelled call loses no output.
 *
 * An id leads to a stored process, and afterwards, with options.remembers_ended, to its record
 * among the remembered ones until that expires.
 */
#ifndef SP_ENGINE_MANAGER_PRIV_H
#define SP_ENGINE_MANAGER_PRIV_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/headtail.h"
#include "base/list.h"
#include "engine/delta.h"
#include "engine/ids.h"
#include "engine/manager.h"
#include "engine/network_job.h"
#include "sandbox/profile.h"

#define SP_START_MS         50  /* a local start that takes longer was waiting for its cell */
#define SP_EARLY_MS         150 /* a command that fails within it counts as failed at once */
#define SP_STRAGGLER_MS     20  /* wait for output before an early exit is judged */
#define SP_POST_EXIT_MS     50  /* a call waits for the streams of an exited process */
#define SP_TRAILING_MS      100 /* ... and so does its end event */
#define SP_COALESCE_MS      5
#define SP_TYPING_MS        30000 /* a write that is not acknowledged by then is answered anyway */
#define SP_HELD_MAX         1048576 /* output held back before the begin event, at most */
#define SP_NO_MEMORY_MS     100 /* retry of output that could not be stored for want of memory */
#define SP_CALLS_MAX        4096
#define SP_PROMPT_MS        100   /* of silence, after which an unfinished line counts as ended */
#define SP_INSPECT_MS       100   /* between two inspections of a process's ports */
#define SP_INSPECT_FAR_MS   300   /* ... of a remote one */
#define SP_QUESTION_MS      60000 /* an open question stops the clock of other calls, at most */
#define SP_KILL_AGAIN_MS    1000  /* retry of a refused kill */
#define SP_REMEMBERED_MAX   256
#define SP_REMEMBERED_BYTES 67108864 /* over all remembered processes */

struct sp_call;

/* ---- conditions of a wait (manager_call.c) ---- */

struct sp_until_set {
    const struct sp_until *items;
    uint32_t count;
    struct sp_ere *patterns[SP_UNTIL_COUNT_MAX]; /* NULL: the item is not a pattern */
    struct sp_err misuse;                        /* first invalid item; code NONE: all are valid */
    bool is_on;                                  /* the wait has begun */
    bool is_blind;                               /* the backend cannot inspect ports */
    bool is_line_open; /* bytes arrived since the last end of line was assumed */
    bool is_late;      /* the patterns used up their CPU time: matching has stopped */
    bool was_told;     /* the warning about is_late was sent */
    int woken_by;      /* index of the condition met; -1: none */
    uint64_t quiet_since_ms;
    uint64_t spent_ns, allowed_ns; /* CPU time of the patterns */
    uint64_t next_inspection_ms;   /* earliest time of the next port inspection */
};

/* A port inspection. The call it was started for may be gone when the answer arrives, so the call
 * is known by its number. */
struct sp_port_watch {
    struct sp_process *process;
    struct sp_job_inspection inspection;
    uint64_t call; /* sp_call.number */
    bool is_asked;
};

/* Copies the items into the call's arena and compiles their patterns. false: out of memory. An
 * invalid item is no failure here: sp_until_misuse reports it. */
bool sp_until_copy(struct sp_call *c, const struct sp_until *items, uint32_t count);
const char *sp_until_misuse(const struct sp_call *c); /* NULL: all items are valid */
/* Starts the wait of the call, or restarts it for a retry. */
void sp_until_begin(struct sp_call *c);
/* Feeds new output to the patterns of the calls that wait. */
void sp_until_feed(struct sp_process *p, struct sp_str bytes);
/* The call is answered with the pending output: returns the index of the condition that woke it;
 * -1: none. A pattern of another call that matched in this output has not matched for that call,
 * and matching begins anew with the output that is left. */
int sp_until_end(struct sp_call *c);

/* ---- processes (process.c, write_stdin.c) ---- */

enum sp_process_life {
    SP_PROCESS_STARTING,
    SP_PROCESS_RUNNING,
    SP_PROCESS_EXITED, /* or counts as exited: terminated, failed, unknown to its executor */
    SP_PROCESS_CLOSED,
};

struct sp_process {
    struct sp_manager *m;
    struct sp_list link; /* m->processes, by start */
    struct sp_job job;
    struct sp_deferred settling, memory_again;
    struct sp_timer grace_timer, ttl_timer, quiet_timer, memory_timer;
    struct sp_timer timeout_timer, idle_timer;

    int id;
    enum sp_process_life life;
    enum sp_job_sandbox sandbox; /* what this attempt runs under */
    unsigned job_calls;          /* job calls that are not answered yet */
    unsigned orders;             /* orders that refer to it */
    unsigned quota;              /* delta events that may still be sent */
    uint32_t argc;
    bool is_remote, is_tty, has_stdin;
    bool is_job_over;  /* the job reported refused, closed or failed */
    bool is_stored;    /* sp_manager_find finds it */
    bool holds_id;     /* not stored any more; its id stays reserved to remember it */
    bool is_forgotten; /* not to be remembered */
    bool was_pruned;   /* lost its entry to another process; no call has answered its exit */
    bool was_denied;   /* an answer reported a denial */
    bool is_discarded; /* no event is sent and no call answers for it */
    bool was_typed_into;
    bool is_killing;    /* a kill is not answered yet */
    bool has_exit_code; /* exit is filled, perhaps with code -1; set before life is EXITED */
    bool is_code_known; /* the executor reported the code: final */
    bool owes_gap;      /* the note about lost output found no memory */
    bool has_begun;     /* the begin event was sent */
    bool is_hidden;     /* no event is sent for it */
    bool is_at_end;     /* stops counting output and flushes the deltas */
    bool is_drained;    /* the last delta was sent */
    bool has_ended;     /* the end event was sent */

    struct sp_job_call kill;
    struct sp_job_exit exit;
    struct sp_denial_facts denial;     /* exit.denial points here */
    struct sp_exit kernel;             /* exit.kernel points here */
    struct sp_command_receipt receipt; /* reason NONE: nothing is known; without strings */
    enum sp_end_reason ended_by;       /* why the manager ended it; NONE: it did not */
    uint64_t timeout_ms;               /* 0: none */
    uint64_t idle_from_ms;             /* last use by a call or an order */
    uint64_t kill_again_ms;            /* earliest next kill */
    struct sp_port_watch watches[2];   /* of the creating call and of the interaction */
    struct sp_err refusal;             /* why the start failed; code NONE: it did not */
    struct sp_err failure;             /* the first failure; code NONE: none */
    uint64_t start_ns, start_ms;       /* monotonic, as all times but started_at_ms */
    int64_t started_at_ms;             /* since the epoch */
    uint64_t exited_ns, last_used_ns;

    /* Each consumer has its own copy of the output: the next call, the end event, the deltas. */
    struct sp_headtail pending, transcript;
    struct sp_delta delta;
    struct sp_buf held; /* bytes for deltas: held until the begin event, then for SP_COALESCE_MS */
    uint64_t received, answered; /* bytes */
    size_t ahead; /* bytes of the output being retried that the transcript already has */

    struct sp_arena keep; /* owns the strings below */
    struct sp_str call_id, turn_id, command, cwd;
    const struct sp_str *argv;
    struct sp_environment *environment; /* a reference */
    struct sp_network_job *network;     /* NULL: its network is not managed */

    struct sp_call *initial;     /* the creating call, until it is answered */
    struct sp_call *interaction; /* the write_stdin call in progress */
    struct sp_list waiting;      /* the write_stdin calls behind it, in order of arrival */
};

/* A process that is not started yet. NULL: out of memory. */
struct sp_process *sp_process_new(struct sp_manager *m, int id, struct sp_call *initial);
/* At once; a running one is terminated. If the manager is closing, its end event is sent before. */
void sp_process_free(struct sp_process *p);
void sp_process_changed(struct sp_process *p);
extern const struct sp_job_ops sp_process_job_ops;

static inline bool sp_process_has_exited(const struct sp_process *p)
{
    return p->life >= SP_PROCESS_EXITED;
}

static inline bool sp_process_has_failed(const struct sp_process *p)
{
    return p->failure.code != SP_E_NONE;
}

/* It has exited, but another process holds its output open. */
static inline bool sp_process_is_output_held(const struct sp_process *p)
{
    return p->life == SP_PROCESS_EXITED && p->is_code_known && !p->is_job_over;
}

/* Treats the process as exited without a reported code. */
void sp_process_count_as_exited(struct sp_process *p);
/* Records a failure (only the first) and kills the process, which counts as exited at once. */
void sp_process_fail(struct sp_process *p, const char *message);
/* Whether the job can take calls. */
bool sp_process_can_ask(const struct sp_process *p);

/* Records why a live process is about to be ended; the first reason wins. */
void sp_process_blame(struct sp_process *p, enum sp_end_reason reason);
/* The same, and kills the process. */
void sp_process_end(struct sp_process *p, enum sp_end_reason reason);
enum sp_end_reason sp_process_end_reason(const struct sp_process *p);
/* NULL: it runs, or nothing is known. */
static inline const struct sp_command_receipt *sp_process_receipt(const struct sp_process *p)
{
    return sp_process_has_exited(p) && p->receipt.reason != SP_END_NONE ? &p->receipt : NULL;
}
void sp_process_use(struct sp_process *p); /* restarts the idle time */

/* The process counts as started: sends the begin event and stores the process, so that it has an
 * entry before another call can name its id. Clears *reserved_id if the process keeps it. */
void sp_process_begin(struct sp_process *p, int *reserved_id);
/* An event of this type with the members that all events of a process share. */
struct sp_exec_event sp_process_event(const struct sp_process *p, enum sp_event_type type);
/* write_stdin.c: serves the write_stdin calls, one at a time, after every change of the process. */
void sp_process_serve_writes(struct sp_process *p);

/* ---- calls (manager_call.c, answer.c) ---- */

struct sp_call {
    struct sp_manager *m;
    struct sp_list link; /* m->calls until it is answered, then m->dead */
    uint64_t number;
    sp_reply_fn *fn;
    void *user;
    bool is_exec;
    void (*step)(struct sp_call *c);    /* runs the call while it has no process */
    void (*release)(struct sp_call *c); /* frees what the call holds */
    bool is_cancelled, is_answered;
    bool is_awaited;    /* a job call into it is not answered yet */
    bool is_due;        /* out of memory for its timer: do not wait */
    bool is_hurried;    /* answer now with the output so far */
    bool shows_attempt; /* a fault quotes the output of its process */
    bool has_typed;     /* its characters were sent and not refused */
    uint64_t began_ns;
    struct sp_arena keep;
    struct sp_deferred deferred;
    struct sp_timer timer;

    struct sp_process *process; /* NULL: not started yet, or released */
    int reserved_id;            /* reserved for the process; released with the answer. 0: none */
    bool has_max_tokens, omits_text;
    uint64_t max_tokens;

    bool is_collecting;
    uint64_t from_ns;           /* begin of its wall time */
    uint64_t from_ms;           /* the same in ms, rounded up */
    uint64_t deadline_ms;       /* UINT64_MAX: none */
    uint64_t post_exit_ms;      /* UINT64_MAX: not set */
    struct sp_list waiting;     /* process->waiting */
    struct sp_str chars;        /* what write_stdin types */
    struct sp_until_set *until; /* NULL: no conditions */
};

/* Allocates a call of `size` bytes, which begin with its struct sp_call. Fails without memory, or
 * while the manager is being freed. */
int sp_call_new(struct sp_manager *m, size_t size, struct sp_call **ret, struct sp_err *e);
/* Adds the call to the manager and schedules its step. is_ready false: it could not be filled for
 * want of memory; frees it and fails. */
int sp_call_begin(struct sp_call *c, bool is_ready, sp_reply_fn *fn, void *user, uint64_t *ret_call,
                  struct sp_err *e);
void sp_call_changed(struct sp_call *c);
void sp_call_free(struct sp_call *c);
/* Answers the call. It is freed at the end of the turn, or when its job call is answered. */
void sp_call_finish(struct sp_call *c, const struct sp_reply *reply);
/* Drops the job call still in flight for a call that is already answered. */
void sp_call_drop_job_call(struct sp_call *c);

/* Starts the wait of yield_ms (SP_YIELD_FOREVER: no deadline) from from_ns on. */
void sp_call_collect(struct sp_call *c, uint64_t from_ns, uint64_t yield_ms);
/* Whether the wait is over; if not, sets the timer. */
bool sp_call_is_done(struct sp_call *c);
void sp_call_wake_at(struct sp_call *c, uint64_t due_ms);

/* Each of these answers the call. Those with a result return false. */
SP_PRINTF(3, 4) bool sp_call_fault(struct sp_call *c, enum sp_fault fault, const char *fmt, ...);
void sp_call_abort(struct sp_call *c);
bool sp_call_fail_create(struct sp_call *c, const struct sp_err *why);
bool sp_call_fail_memory(struct sp_call *c); /* a command could not begin for want of memory */
/* With the pending output of c->process. Out of memory: with a fault, and no output is lost. */
void sp_call_answer(struct sp_call *c, enum sp_answer_fate fate);
/* With the failure of c->process, whose entry is removed. */
void sp_call_fail_process(struct sp_call *c);
void sp_call_answer_patch(struct sp_call *c, struct sp_str output, int exit_code,
                          const struct sp_patch_changes *changes);

/* poll_max_ms is used for polls only. */
uint64_t sp_yield_ms(enum sp_yield_kind kind, struct sp_yield_request request,
                     uint64_t poll_max_ms);

/* exec.c: runs the stages of an exec_command call. */
void sp_exec_step(struct sp_call *c);

/* ---- environments (manager.c) ---- */

/* A place where commands run. Immutable and reference-counted, so that a call keeps the environment
 * it began in when the caller replaces it. */
struct sp_environment {
    struct sp_manager *m;
    struct sp_list link; /* m->all_environments */
    uint32_t refs;
    char *id;
    struct sp_backend *backend;
    char *cwd; /* NULL: the backend's */
    struct sp_policy policy;
    bool has_policy;
    char *policy_name;  /* NULL: none */
    bool has_snapshots; /* options.snapshots belongs to this place and its policy */
};
struct sp_environment *sp_environment_ref(struct sp_environment *h);
void sp_environment_unref(struct sp_environment *h); /* NULL is fine */
/* id.p NULL: the primary one. NULL: unknown id. */
struct sp_environment *sp_manager_find_environment(const struct sp_manager *m, struct sp_str id);

static inline const struct sp_policy *sp_environment_policy(const struct sp_environment *h)
{
    return h->has_policy ? &h->policy : NULL;
}

struct sp_manager {
    struct sp_loop *loop;
    struct sp_manager_ops ops;
    void *user;
    struct sp_arena keep;
    struct sp_manager_options options; /* its strings live in keep */
    struct sp_env_request environ;
    struct sp_policy policy;
    bool has_policy;
    struct sp_allowance allowance;
    uint64_t poll_max_ms;
    const char *account_shell;
    struct sp_environment *environments[SP_ENVIRONMENTS_MAX]; /* [0] is the primary one */
    uint32_t environment_count;
    struct sp_list all_environments; /* with replaced ones still in use */

    struct sp_ids ids;
    struct sp_list processes;
    uint32_t stored;
    struct sp_list calls, dead; /* unanswered ones; answered ones until they can be freed */
    uint32_t call_count;
    struct sp_deferred sweeping;
    struct sp_list orders;
    struct sp_list remembered; /* oldest first */
    uint32_t remembered_count;
    size_t remembered_bytes;
    struct sp_timer remembered_timer;
    uint64_t next_call;
    struct sp_approver callback; /* forwards to ops.ask */
    struct sp_approvals *approvals;

    bool is_closing;
    unsigned pauses;
    uint64_t paused_from_ms;
    unsigned questions;    /* open questions to an approver */
    bool is_clock_stopped; /* an open question stops the deadlines of calls ... */
    uint64_t stopped_ms;   /* ... from here */
    struct sp_timer clock_timer;
};

/* NOLINTBEGIN(bugprone-macro-parentheses) */
/* The body must not remove the current one, except to leave the loop. */
#define sp_each_of(type, p, head, member)                                          \
    for (type *p = SP_CONTAINER((head)->next, type, member); &p->member != (head); \
         p = SP_CONTAINER(p->member.next, type, member))
#define sp_each_process(p, m) sp_each_of(struct sp_process, p, &(m)->processes, link)
#define sp_each_call(c, head) sp_each_of(struct sp_call, c, head, link)
#define sp_each_waiting(c, p) sp_each_of(struct sp_call, c, &(p)->waiting, waiting)
/* NOLINTEND(bugprone-macro-parentheses) */

/* Monotonic, rounded up: a deadline computed from it is never early. */
static inline uint64_t sp_manager_clock_ms(void)
{
    return (sp_clock_ns() + 999999) / 1000000;
}

/* Saturates: UINT64_MAX means never. */
static inline uint64_t sp_later_ms(uint64_t ms, uint64_t by_ms)
{
    return ms > UINT64_MAX - by_ms ? UINT64_MAX : ms + by_ms;
}
void sp_manager_event(struct sp_manager *m, const struct sp_exec_event *e);

/* ---- entries (process.c) ---- */

/* Which process is evicted when too many are stored: a decision over facts. */
#define SP_PRUNE_LIMIT     64 /* stored entries from which the next store prunes first */
#define SP_PRUNE_PROTECTED 8  /* the most recently used entries are never chosen */
#define SP_PRUNE_NONE      SIZE_MAX

struct sp_prune_entry {
    int id;
    uint64_t last_used; /* any monotonic clock */
    bool has_exited;
    bool is_busy; /* a call is in progress, or its end event is pending */
};

/* Index of the victim, or SP_PRUNE_NONE: store without pruning. The entries may be in any order;
 * for equal times the lower id counts as older. */
size_t sp_prune_choose(const struct sp_prune_entry *entries, size_t count);

void sp_manager_unreserve(struct sp_manager *m, int id); /* 0: no id */
/* Removes its entry, if it has one, and releases the id unless the process will be remembered. */
void sp_manager_remove(struct sp_process *p);
struct sp_process *sp_manager_find(struct sp_manager *m, int id);

/* ---- records (manager.c) ---- */

/* What an ended process leaves: its output and how it ended. */
struct sp_remembered {
    struct sp_manager *m;
    struct sp_list link; /* m->remembered */
    uint64_t until_ms;   /* UINT64_MAX: no expiry */
    size_t bytes;
    struct sp_arena keep;
    struct sp_headtail transcript;
    struct sp_environment *environment; /* a reference: view.policy points into it */
    struct sp_manager_view view;        /* without the output */
};

/* Runs close-stdin orders that wait for pending input. */
void sp_manager_serve_orders(struct sp_process *p);

/* Keeps the record of a process that is being freed and holds its id. Without memory for the record
 * the id is released. */
void sp_manager_remember(struct sp_process *p);

#endif
