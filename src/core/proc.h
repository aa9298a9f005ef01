/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc: the front's view of one process.
 *
 *   STARTING --started--> RUNNING --exit--> EXITED --end of streams--> CLOSED --> a record
 *      '----refused----> freed                                                    (core/ended.h)
 *
 * Its owner is the connection that has its session; other connections may observe it
 * (core/observer.h, process/attach).
 *
 * The output is in the ring that the cell writes, or in the record. The front keeps positions in
 * that log (how far it has parsed, how far the owner was served) and the lists of requests that
 * wait.
 */
#ifndef SP_CORE_PROC_H
#define SP_CORE_PROC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "cell/ring.h"
#include "core/cells.h"
#include "core/input.h"
#include "core/managed.h"
#include "core/output_times.h"
#include "core/past.h"
#include "core/proc_limits.h"
#include "os/loop.h"
#include "sandbox/denial.h"

struct sp_env_request;
struct sp_front;
struct sp_inspect_request;
struct sp_inspection;
struct sp_network_job;
struct sp_observer;
struct sp_policy;
struct sp_proc_record;
struct sp_session;

enum sp_proc_life { SP_PROC_STARTING, SP_PROC_RUNNING, SP_PROC_EXITED, SP_PROC_CLOSED };

/* A request that waits for an event of a process. It is unlinked before fn is called. */
struct sp_waiters {
    struct sp_waiter *first, *last;
    unsigned count;
};
struct sp_waiter {
    void (*fn)(struct sp_waiter *w);
    struct sp_waiters *list; /* NULL: in no list */
    struct sp_waiter *prev, *next;
};
void sp_waiters_add(struct sp_waiters *l, struct sp_waiter *w);
void sp_waiters_add_first(struct sp_waiters *l, struct sp_waiter *w);
void sp_waiters_remove(struct sp_waiter *w); /* in no list: fine */
/* Calls the waiters that are in the list now, in order. One that adds itself again waits for the
 * next wake. */
void sp_waiters_wake(struct sp_waiters *l);
/* The same, but stops at a waiter that adds itself in front again, so that none overtakes it. */
void sp_waiters_wake_in_turn(struct sp_waiters *l);

/* Why a failed process counts as denied. */
struct sp_denial_facts {
    /* The kernel refused: system calls, the network, or SIGSYS, which comes from another filter
     * than ours (a container's, the command's own): ours answers with an errno. */
    bool has_evidence;
    bool has_words;                /* the output contains a known error message */
    const char *reason;            /* class of that message; NULL: none */
    char path[SP_DENIAL_PATH + 1]; /* named by the message; "": none */
};

enum sp_proc_network { SP_PROC_NETWORK_HOST, SP_PROC_NETWORK_NONE, SP_PROC_NETWORK_MANAGED };

/* Of a process that is held (core/held.h). */
struct sp_held_log {
    uint64_t end_seq, end_pos;   /* the end of the log at the resume; 0: not resumed */
    uint64_t read_seq, read_pos; /* what the client has read of the records behind it */
    bool is_asked;               /* the client has called process/read */
};

struct sp_proc {
    struct sp_seat seat;
    struct sp_session *session;
    void *user; /* for the client's use; not NULL: the client frees it, and it makes no record */
    struct sp_proc *next_in_bucket;
    struct sp_list link; /* of the session */
    uint64_t number;     /* counts the starts of the front */
    enum sp_proc_life life;
    bool is_tty;
    bool is_confined;
    enum sp_proc_network network;
    bool was_denied;       /* by the sandbox, as far as can be told; valid after the exit */
    uint32_t told_denials; /* to the owner */
    bool has_left_network; /* it has tried to connect to an address outside of its network */
    bool was_terminated;
    bool was_killed; /* it was sent SIGKILL */
    pid_t ended_by;  /* who asked for the end or a signal over a local socket; 0: not known */
    uid_t ended_by_uid;
    bool is_answered;     /* start_wait was answered, and `starting` counted down */
    bool is_forgotten;    /* it does not enter the history */
    bool is_held;         /* the owner has not come back after a takeover: core/held.h */
    bool is_lost;         /* its cell is gone: exit and close are made up */
    bool is_input_ending; /* closeStdin waits behind blocked writes */
    bool has_writer_size; /* the terminal has the writer's size, not the owner's */
    uint16_t rows, cols;  /* the owner's terminal size */
    uint32_t tier;        /* enum sp_tier */
    uint64_t last_real_seq;
    pid_t pid;             /* in the cell's pid namespace */
    uint32_t leaf;         /* number of its cgroup; 0: none */
    int terminal;          /* the N of its /dev/pts/N; -1: none */
    uint64_t outputs[2];   /* the inodes of the pipes for its output; 0: none */
    struct sp_str id;      /* owned */
    struct sp_str label;   /* owned: the id as a JSON string, with its quotes; opaque here */
    char *name;            /* NULL: none; see struct sp_start */
    struct sp_buf strings; /* cwd, file, argv as in START, without env */
    uint32_t argc;
    int64_t started_ms; /* since 1970 */
    int64_t ended_ms;   /* 0: has not exited */

    struct sp_log_view view;
    struct sp_ring_cursor tail;                 /* what was parsed */
    struct sp_ring_state state;                 /* ... at the tail */
    struct sp_output_times times;               /* when output arrived */
    struct sp_ring_cursor sent;                 /* what is queued for the owner, or was sent */
    struct sp_ring_cursor page_start, page_end; /* of the last page read */
    uint64_t confirmed_seq, confirmed_pos;      /* what the owner has read */
    struct sp_held_log held;
    uint32_t unmarked;      /* for the client: bytes of records sent behind its last mark, ... */
    uint32_t marks;         /* ... and its marks under way; it hears of `gone` while there is one */
    struct sp_list in_news; /* linked by the client while there are records to send */

    /* CLOSED, see core/ended.h. */
    struct sp_past *past;     /* NULL: the log is in the ring */
    struct sp_list unsettled; /* to be looked at, at the end of this turn */
    struct sp_list in_ring;   /* closed, and its output stays in the ring for now; or it has a
                                 record that observers alone read (core/ended.c) */
    bool is_unsent;           /* counted: the owner was not sent the end */
    uint32_t unsent_bytes;
    bool is_output_evicted; /* from its record */

    struct sp_proc_record *record; /* in the ledger; NULL: none */
    bool was_restored;             /* an earlier front started it, */
    bool is_restored;              /* ... and its cell has not told it yet */

    struct sp_net_proc net; /* core/managed.h */
    struct sp_proc_limits limits;
    struct sp_input input;
    struct sp_waiters waits_for_start; /* STARTING: requests that came too early */
    struct sp_waiters on_news;         /* parked reads */
    struct sp_waiters on_room;         /* blocked writes */
    struct sp_waiters on_done;         /* struct sp_proc_call: signals and resizes on their way */
    struct sp_waiters on_freed;        /* requests to be failed when the process is freed */
    struct sp_list observers;
    struct sp_observer *writer; /* NULL: none */
    unsigned observer_count;
    uint64_t last_token;
    struct sp_denial_facts *denial; /* NULL: not denied, or no memory */
    unsigned requests;              /* unanswered ones: the process is not freed before */
    struct sp_timer life_timer;     /* STARTING: deadline of the survey, then of the cell's answer;
                                       CLOSED, in a ring: when it is freed */
    struct sp_start_wait *start_wait; /* STARTING only */
    struct sp_kept_start *kept_start; /* STARTING: to request it again; NULL: it is not */
};

/* What starts a process. Everything is borrowed for the call. */
struct sp_start {
    struct sp_str id;    /* for sp_job_start n 0: made of the label */
    struct sp_str label; /* the id in JSON; for sp_job_start a name ("1000", "shell"), of which it
                            makes the id */
    /* p NULL: none. Names the process for people, and keeps its session: a detached session does
     * not expire while it has a named process. No two processes that have not closed share a name.
     */
    struct sp_str name;
    bool is_tty, wants_stdin;
    bool is_unrecorded; /* it does not enter the history */
    uint16_t rows, cols;
    struct sp_str cwd;  /* a path */
    struct sp_str arg0; /* p NULL: argv[0] */
    const struct sp_str *argv;
    uint32_t argc;
    struct sp_str file; /* absolute path to execute; p NULL: argv[0], searched in PATH */
    uint64_t dev, ino;  /* of file; ino 0: not checked */
    struct sp_limit_ask limits;
    const struct sp_buf *env; /* NAME=VALUE strings, each with its NUL */
    uint32_t envc;
    const struct sp_policy *policy;   /* NULL: no sandbox */
    const struct sp_net_ops *net_ops; /* answers for its managed network; NULL: the lists alone */
    void *net_user;                   /* for net_ops: p->net.user */

    /* Only for sp_job_start (engine/job.h). */
    const struct sp_env_request *environ; /* makes env here, or goes to the server as a policy */
    struct sp_network_job *network; /* judges hosts for a server; NULL: the lists alone count */
    bool is_own_program;            /* argv[0] is /proc/self/exe: made available in any sandbox */
};

/* The answer to a start. On failure p is NULL and e says why; the process is freed right after done
 * returns. */
struct sp_start_wait {
    void (*done)(struct sp_start_wait *w, struct sp_proc *p, const struct sp_err *e);
};

/* Refused at once (limits), or w->done is called later. The id must be free. */
int sp_proc_start(struct sp_session *s, const struct sp_start *o, struct sp_start_wait *w,
                  struct sp_proc **ret, struct sp_err *e);
/* Whether a process that has not closed has the name: then an error, which says what to do. */
int sp_proc_check_name(const struct sp_front *f, struct sp_str name, struct sp_err *e);
/* Memory whose size clients choose; bounded by SP_FRONT_MAX_HELD. */
static inline size_t sp_proc_held_bytes(const struct sp_proc *p)
{
    return p->id.n + p->label.n + p->strings.len + (p->name == NULL ? 0 : strlen(p->name));
}
/* Takes over a process of an earlier front (core/adopt.h). It is STARTING until its cell tells
 * whether it knows it. `fixed`: size of the record. */
int sp_proc_restore(struct sp_session *s, struct sp_proc_record *r, size_t fixed,
                    struct sp_proc **ret, struct sp_err *e);
/* Frees the struct alone. */
void sp_proc_release(struct sp_proc *p);
/* Kills a live process with its tree. Wakes the waiters for its start and on_freed; no other
 * reference may be left. */
void sp_proc_free(struct sp_proc *p);

/* What its network has denied it so far, oldest first; the client gets news of each. host NULL: a
 * connection out of a sandbox that has no network. false: there is no such one. */
bool sp_proc_denial(const struct sp_proc *p, uint32_t i, struct sp_net_denial *ret);

/* The answer to a signal or resize: err is an errno or 0. */
struct sp_proc_call {
    struct sp_waiter waiter; /* its fn is called when err is set */
    uint64_t token;
    int err;
};
void sp_proc_signal(struct sp_proc *p, struct sp_proc_call *c, int signal);
void sp_proc_resize(struct sp_proc *p, struct sp_proc_call *c, uint16_t rows, uint16_t cols);

/* Bytes for stdin. The loop polls a little for the program's answer. */
enum sp_input_result sp_proc_write(struct sp_proc *p, struct sp_str id, struct sp_str bytes);

/* Kills the tree without waiting. Returns whether it was running. */
bool sp_proc_terminate(struct sp_proc *p);

/* What it is doing, as the kernel tells it (os/inspect.h). After its end `doing` is UNKNOWN;
 * holders are looked for between its exit and its close. */
void sp_proc_inspect(const struct sp_proc *p, const struct sp_inspect_request *ask,
                     struct sp_inspection *ret);

/* ---- its log ---- */

static inline uint64_t sp_proc_next_seq(const struct sp_proc *p)
{
    return p->tail.seq + 1;
}

/* The chunks that one process/read returns. */
struct sp_page {
    struct sp_ring_cursor after; /* behind the records up to after_seq */
    struct sp_ring_cursor end;   /* behind the last record of the page */
    struct sp_ring_cursor from;  /* start sp_ring_next here ... */
    uint64_t last_seq;           /* ... and stop after this one; 0: no chunk */
    uint32_t chunks;
    uint64_t bytes;
    uint64_t next_seq;
};
/* max_bytes UINT64_MAX: no bound. -SP_E_MALFORMED: the ring is broken, the process is lost. */
int sp_proc_page(struct sp_proc *p, uint64_t after_seq, uint64_t max_bytes, struct sp_page *ret);

/* The next record behind a reader's position (the owner's: p->sent), which moves past it: 1, or 0
 * if there is none. The ring may have overwritten records before it. */
int sp_proc_next(struct sp_proc *p, struct sp_ring_cursor *at, struct sp_record *ret);
/* All records before p->sent are queued for the owner; or it has them already. */
void sp_proc_sent(struct sp_proc *p);
void sp_proc_served(struct sp_proc *p);
/* The owner has read the records up to `seq`, which end at `pos` of the log. Of those that it was
 * not sent, none counts. The cell pauses a process that is too far ahead of its owner, and keeps
 * what the owner has not read. */
void sp_proc_confirm(struct sp_proc *p, uint64_t seq, uint64_t pos);
/* The session got or lost its connection. A new owner gets the records from now on. */
void sp_proc_set_owned(struct sp_proc *p, bool is_owned);

#endif
