/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_priv: what the files of the manager share.
 *
 * A process and a call each have a settling function that looks at the whole state and does what is
 * due; whatever changes something asks for it, and the loop runs it at the end of the turn. So no
 * edge can be missed, nothing is told from within somebody else's call, and nobody frees what is
 * still being looked at.
 *
 *   exec   CHECKING -> FACTS -> PREPARING -> [ASKING] -> [SNAPSHOT] -> STARTING -> EARLY
 *             -> [STRAGGLING -> [ASKING -> STARTING ...]] -> COLLECTING -> answered
 *   write  WAITING (for its turn) -> [WRITING] -> COLLECTING -> answered
 *
 * The output that no call has answered yet is in the process's `pending`; a call that is done takes
 * all of it at once. So a call that is given up takes nothing with it.
 *
 * A process is seen while its id leads to it: as an entry, and then, if what ended is remembered,
 * until it has become one of the remembered.
 */
#ifndef SP_ENGINE_MANAGER_PRIV_H
#define SP_ENGINE_MANAGER_PRIV_H

#include "base/buf.h"
#include "base/headtail.h"
#include "engine/delta.h"
#include "engine/denied.h"
#include "engine/ids.h"
#include "engine/keep.h"
#include "engine/manager.h"
#include "sandbox/profile.h"

#define SP_START_MS         50  /* a local start that takes longer has waited for its cell */
#define SP_EARLY_MS         150 /* for a command to fail before it counts as started */
#define SP_STRAGGLER_MS     20  /* of output, before an early exit is judged */
#define SP_POST_EXIT_MS     50  /* a call waits for the streams of an exited process */
#define SP_TRAILING_MS      100 /* ... and so do its events */
#define SP_VERDICT_MS       100 /* for a verdict from outside about an exit */
#define SP_COALESCE_MS      5
#define SP_TYPING_MS        30000 /* until a call goes on although its characters are on their way */
#define SP_HELD_MAX         1048576 /* output before the begin event; with more, it has begun */
#define SP_NO_MEMORY_MS     100     /* until output that found no memory is tried again */
#define SP_CALLS_MAX        4096    /* calls that wait at a time */
#define SP_PROMPT_MS        100     /* of silence, and a line without its end counts as ended */
#define SP_LOOK_MS          100     /* between two looks at the ports of a process */
#define SP_LOOK_FAR_MS      300     /* ... of a remote one */
#define SP_QUESTION_MS      60000   /* a question stops the clock of other calls for that long */
#define SP_KILL_AGAIN_MS    1000    /* until a refused kill is tried again */
#define SP_REMEMBERED_MAX   256
#define SP_REMEMBERED_BYTES 67108864 /* of all that is remembered */

struct sp_call;

/* ---- what a wait is for (until.c) ---- */

struct sp_until_set {
    const struct sp_until *items;
    uint32_t count;
    struct sp_ere *patterns[SP_UNTIL_COUNT_MAX]; /* NULL: the item is no pattern */
    struct sp_err misuse;                        /* code NONE: the items are fine */
    bool is_on;                                  /* the wait has begun */
    bool is_blind;                               /* nobody can tell who listens on what */
    bool is_line_open; /* something was heard, and not yet taken for the end of a line */
    bool is_late;      /* its patterns take too much time: they are looked for no more */
    bool was_told;     /* that they do */
    int woken_by;      /* -1: nothing has been met yet */
    uint64_t quiet_since_ms;
    uint64_t spent_ns, allowed_ns; /* of CPU time, on the patterns */
    uint64_t next_look_ms;         /* UINT64_MAX: one is under way */
};

/* Whether one of these ports is listened on: asked on behalf of a call, which may be gone when the
 * answer comes. */
struct sp_port_watch {
    struct sp_process *process;
    struct sp_job_look look;
    uint64_t call; /* its number */
    bool is_asked;
};

/* Keeps the items with the call and makes their patterns. -SP_E_SYSTEM: no memory. What is wrong
 * with them is a misuse, which is for the call to answer. */
int sp_until_copy(struct sp_call *c, const struct sp_until *items, uint32_t count,
                  struct sp_err *e);
const char *sp_until_misuse(const struct sp_call *c); /* NULL: fine */
void sp_until_done(struct sp_call *c);
/* The wait of the call for its process begins, perhaps once more. */
void sp_until_begin(struct sp_call *c);
void sp_until_hear(struct sp_process *p, struct sp_str bytes); /* what was just taken */
/* This call has taken what was pending: those who wait besides it have not heard it. */
void sp_until_forget(struct sp_process *p, const struct sp_call *taker);
/* Whether something was met while the process lives; if not, when to look again. */
bool sp_until_is_met(struct sp_call *c, uint64_t now_ms, uint64_t *ret_due_ms);
int sp_until_woken_by(struct sp_call *c); /* at the end of its wait; -1: nothing */
void sp_until_shift(struct sp_call *c, uint64_t paused_from_ms, uint64_t now_ms);

/* ---- processes (process.c, process_output.c, process_events.c) ---- */

enum sp_process_life {
    SP_PROCESS_STARTING,
    SP_PROCESS_RUNNING,
    SP_PROCESS_EXITED, /* or counted so: terminated, failed, forgotten by its executor */
    SP_PROCESS_CLOSED,
};

struct sp_process {
    struct sp_manager *m;
    struct sp_process *prev, *next; /* all of the manager's, in the order of their starts */
    struct sp_job job;
    struct sp_deferred settling, memory_again;
    struct sp_timer grace_timer, verdict_timer, ttl_timer, quiet_timer, memory_timer;
    struct sp_timer timeout_timer, idle_timer;

    int id;
    enum sp_process_life life;
    enum sp_job_sandbox sandbox; /* of this attempt */
    unsigned asked;              /* of the job, and not answered yet */
    unsigned orders;             /* terminate, a look and the like, under way */
    unsigned quota;              /* of deltas */
    uint32_t argc;
    bool is_remote, is_tty, has_stdin;
    bool is_job_over;  /* its last word was told */
    bool is_stored;    /* it has an entry: the id leads to it */
    bool holds_id;     /* it has none, but will be remembered under its id */
    bool is_forgotten; /* it will not be */
    bool was_denied;   /* as an answer said */
    bool is_discarded; /* nobody will ever hear of it */
    bool was_typed_into;
    bool is_killing;    /* and no answer yet */
    bool has_exit_code; /* perhaps -1; there before the life says that it has exited */
    bool is_code_known; /* somebody told it: it stays */
    bool is_verdict_open;
    bool is_verdict_late; /* the time for it has passed */
    bool owes_gap;        /* that output was lost is still to be said */
    bool has_begun;       /* the begin event was told */
    bool is_hidden;       /* no event at all */
    bool is_at_end;       /* no more output counts: closed, or the grace is over */
    bool is_drained;      /* the last delta was told */
    bool has_ended;       /* the end event was told */

    struct sp_job_call kill;
    struct sp_job_exit exit;
    struct sp_denial_facts denial;   /* what exit.denial points to */
    struct sp_exit kernel;           /* ... and exit.kernel */
    enum sp_end_reason ended_by;     /* what we did to end it; NONE: nothing */
    uint64_t timeout_ms;             /* 0: none */
    uint64_t idle_from_ms;           /* when it was last used */
    uint64_t kill_again_ms;          /* not before */
    struct sp_port_watch watches[2]; /* of the creating call, and of the interaction */
    struct sp_err refusal;           /* code NONE: not refused */
    struct sp_err failure;           /* code NONE: it has not failed; the first one stays */
    uint64_t start_ns, start_ms;     /* monotonic, as all but the next */
    int64_t started_at_ms;           /* since 1970 */
    uint64_t exited_ns, last_used_ns;

    /* Each consumer has its own copy of the output. */
    struct sp_headtail pending, transcript;
    struct sp_delta delta;
    struct sp_buf held;          /* for deltas: until the begin event, then for a moment */
    uint64_t received, answered; /* bytes */
    size_t ahead;                /* of what comes again, the transcript has so many bytes */

    struct sp_keep keep; /* of what follows */
    struct sp_str call_id, turn_id, command, cwd;
    const struct sp_str *argv;
    struct sp_environment *environment; /* a reference */

    struct sp_call *initial;     /* the creating call, while it is active */
    struct sp_call *interaction; /* the one in progress */
    struct sp_call *waiting;     /* further ones, in the order of arrival */
};

/* A process of no life yet, of this call. NULL: no memory. */
struct sp_process *sp_process_new(struct sp_manager *m, int id, struct sp_call *initial);
void sp_process_free(struct sp_process *p); /* at once; a live one is terminated */
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

/* It has exited, and somebody else has its output open. */
static inline bool sp_process_is_output_held(const struct sp_process *p)
{
    return p->life == SP_PROCESS_EXITED && p->is_code_known && !p->is_job_over;
}

/* Exited, and what has still to be said about it from outside was said or will not be. */
bool sp_process_is_judged(const struct sp_process *p);

/* It is gone, although nobody told how. */
void sp_process_count_as_exited(struct sp_process *p);
/* The first failure stays. It counts as exited and is killed. */
void sp_process_fail(struct sp_process *p, const char *message);
/* Killed; counts as exited once that is confirmed, or refused: there is no entry to keep. */
void sp_process_kill(struct sp_process *p);
/* May its job be asked something? */
bool sp_process_can_ask(const struct sp_process *p);

/* process_end.c */
/* What is about to be done to a live one; the first reason stays. */
void sp_process_blame(struct sp_process *p, enum sp_end_reason reason);
enum sp_end_reason sp_process_end_reason(const struct sp_process *p);
void sp_process_use(struct sp_process *p); /* somebody does: it is not idle */

/* process_output.c */
bool sp_process_take(struct sp_process *p, struct sp_str bytes); /* false: not now */
void sp_process_take_gap(struct sp_process *p);
void sp_process_at_end(struct sp_process *p); /* no more output counts */
void sp_process_done_output(struct sp_process *p);

/* process_events.c */
void sp_process_begin(struct sp_process *p);
void sp_process_tell_delta(void *process, struct sp_str frame);
void sp_process_tell_interaction(struct sp_process *p, struct sp_str input);
void sp_process_tell_warning(struct sp_process *p, const char *message);
/* The end event, if it is due. */
void sp_process_publish_end(struct sp_process *p);

/* ---- calls (call.c, call_reply.c) ---- */

struct sp_call {
    struct sp_manager *m;
    struct sp_call *prev, *next; /* of the manager's live ones; dead ones: next alone */
    uint64_t number;
    sp_reply_fn *fn;
    void *user;
    bool is_exec;
    void (*step)(struct sp_call *c);    /* without a process */
    void (*release)(struct sp_call *c); /* what it holds; it has been answered, or never will */
    bool is_cancelled, is_answered;
    bool is_awaited;    /* a job will still answer into it */
    bool is_due;        /* its timer has no memory: it waits no longer */
    bool is_hurried;    /* it is to answer with what there is */
    bool shows_attempt; /* a fault is told with what its process has printed */
    bool has_typed;     /* its characters have gone to the job, and were not refused */
    uint64_t began_ns;
    struct sp_keep keep;
    struct sp_deferred deferred;
    struct sp_timer timer;

    struct sp_process *process; /* NULL: none (yet, or any more) */
    int reserved_id;            /* that it holds; freed when it is answered. 0: none */
    bool has_max_tokens;
    uint64_t max_tokens;

    bool is_collecting;
    uint64_t from_ns;      /* where its wall time begins */
    uint64_t from_ms;      /* the same for pauses */
    uint64_t deadline_ms;  /* UINT64_MAX: none */
    uint64_t post_exit_ms; /* UINT64_MAX: not set */
    struct sp_call *next_waiting;
    struct sp_str chars;        /* of an interaction */
    struct sp_until_set *until; /* NULL: none was given */
};

/* Puts it into the manager's list and has it looked at. c is from calloc, as all of them. */
void sp_call_begin(struct sp_manager *m, struct sp_call *c, sp_reply_fn *fn, void *user);
void sp_call_changed(struct sp_call *c);
void sp_call_free(struct sp_call *c);
/* Answered: it tells nobody anything any more, and goes at the end of the turn. */
void sp_call_finish(struct sp_call *c, const struct sp_reply *reply);
/* One that was answered before its job had: nothing more is waited for, of one or of all. */
void sp_call_let_go(struct sp_call *c);
void sp_call_let_all_go(struct sp_process *p);

/* The window of yield_ms (SP_YIELD_FOREVER: none) that began at from_ns. */
void sp_call_collect(struct sp_call *c, uint64_t from_ns, uint64_t yield_ms);
/* Whether it is done; if not, its timer is set. */
bool sp_call_is_done(struct sp_call *c);
void sp_call_shift(struct sp_call *c, uint64_t paused_from_ms, uint64_t now_ms);
/* The same of a clock that a question has stopped: the yield alone is longer by that. */
void sp_call_prolong(struct sp_call *c, uint64_t stopped_ms, uint64_t now_ms);
void sp_call_wake_at(struct sp_call *c, uint64_t due_ms);

/* Replies: each is the last thing about a call. */
SP_PRINTF(3, 4) void sp_call_fault(struct sp_call *c, enum sp_fault fault, const char *fmt, ...);
void sp_call_abort(struct sp_call *c);
void sp_call_fail_create(struct sp_call *c, const struct sp_err *why, uint32_t inherited_fds);
/* What was collected, about c->process: it has exited, or runs. false: no memory; nothing was
 * answered and nothing is lost. */
bool sp_call_answer(struct sp_call *c, enum sp_answer_fate fate);
void sp_call_answer_hook(struct sp_call *c, struct sp_str output, int exit_code,
                         const struct sp_patch_changes *changes);

/* write.c */
/* Serves the interactions of a process, one after the other. */
void sp_write_serve(struct sp_process *p);

/* exec.c: what the creating call does next. */
void sp_exec_step(struct sp_call *c);

/* ---- the manager (manager.c, manager_store.c) ---- */

/* ---- environments (manager.c) ---- */

/* A place to run commands in, as it was when a call began: it never changes. */
struct sp_environment {
    struct sp_manager *m;
    struct sp_environment *prev, *next; /* of all that are referred to */
    uint32_t refs;
    char *id;
    struct sp_backend *backend;
    char *cwd; /* NULL: the backend's */
    struct sp_policy policy;
    bool has_policy;
    char *policy_name;  /* NULL: none */
    bool has_snapshots; /* those of the options are of this place, and of its policy */
};
struct sp_environment *sp_environment_ref(struct sp_environment *h);
void sp_environment_unref(struct sp_environment *h); /* NULL is fine */
/* The primary one if id.p is NULL; NULL: there is none of that id. */
struct sp_environment *sp_manager_find_environment(const struct sp_manager *m, struct sp_str id);

static inline const struct sp_policy *sp_environment_policy(const struct sp_environment *h)
{
    return h->has_policy ? &h->policy : NULL;
}

struct sp_manager {
    struct sp_loop *loop;
    struct sp_manager_ops ops;
    void *user;
    struct sp_keep keep;
    struct sp_manager_options options; /* its pointers are kept ones */
    struct sp_environ_ask environ;
    struct sp_policy policy;
    bool has_policy;
    struct sp_allowance allowance;
    uint64_t poll_max_ms;
    const char *account_shell;
    struct sp_environment *environments[SP_ENVIRONMENTS_MAX]; /* the first is the primary one */
    uint32_t environment_count;
    struct sp_environment
        *all_environments; /* with those that were replaced and are still in use */

    struct sp_ids *ids;
    struct sp_process *first, *last;
    uint32_t stored;
    struct sp_call *calls, *calls_last, *dead;
    uint32_t call_count;
    struct sp_deferred sweeping;
    struct sp_order *orders;
    struct sp_glance *glances;
    struct sp_remembered *remembered, *remembered_last; /* the oldest first */
    uint32_t remembered_count;
    size_t remembered_bytes;
    struct sp_timer remembered_timer;
    uint64_t next_call;
    struct sp_approver callback; /* asks whoever the ops name */
    struct sp_approvals *approvals;

    bool is_closing;
    unsigned pauses;
    uint64_t paused_from_ms;
    unsigned questions;    /* that wait for a person */
    bool is_clock_stopped; /* by the first of them: yields do not run out ... */
    uint64_t stopped_ms;   /* ... since then */
    struct sp_timer clock_timer;
};

uint64_t sp_manager_clock_ns(void);
/* The next whole ms: a deadline that begins there is never early. */
uint64_t sp_manager_clock_ms(void);
/* Whether a call may begin. */
int sp_manager_admit(const struct sp_manager *m, struct sp_err *e);
void sp_manager_event(struct sp_manager *m, const struct sp_exec_event *e);

int sp_manager_reserve(struct sp_manager *m, int *ret, struct sp_err *e);
void sp_manager_unreserve(struct sp_manager *m, int id);           /* 0: nothing */
void sp_manager_store(struct sp_manager *m, struct sp_process *p); /* prunes first */
/* Its entry; none is fine. Frees the id, unless it will be remembered under it. */
void sp_manager_remove(struct sp_process *p);
struct sp_process *sp_manager_find(struct sp_manager *m, int id);
/* Stored, or about to be. */
struct sp_process *sp_manager_find_any(struct sp_manager *m, int id);
void sp_manager_wait_ttl(struct sp_process *p);
void sp_manager_drop_orders(struct sp_manager *m);  /* each is told: not done */
void sp_manager_serve_orders(struct sp_process *p); /* those that wait for what is to be typed */
void sp_manager_drop_glances(struct sp_manager *m); /* each is told: nobody can tell */

/* remembered.c */
/* One that holds its id goes: it is remembered if there is memory, and its id freed if not. */
void sp_manager_remember(struct sp_process *p);
bool sp_manager_is_remembered(const struct sp_manager *m, int id);
void sp_manager_forget_all(struct sp_manager *m);

/* NULL, or which invariant does not hold (unified-exec.md 2). For tests, after any turn. */
const char *sp_manager_check(const struct sp_manager *m);

#endif
