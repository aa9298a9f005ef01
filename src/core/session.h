/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: the processes of one client, which outlive its connections; and the front, which has
 * the sessions, the cells and the counters for limits.
 *
 *   new --> ATTACHED --connection ends--> DETACHED --session_ttl--> ended, its processes killed
 *               ^---------resume-------------'
 *
 * A session with a named process ends when session_ttl has passed and the last of them is freed.
 */
#ifndef SP_CORE_SESSION_H
#define SP_CORE_SESSION_H

#include "core/cell_pool.h"
#include "core/leaves.h"
#include "core/past.h"
#include "core/proc.h"
#include "core/records.h"

#define SP_SESSION_ID       36
#define SP_CLIENT_NAME      128 /* bytes kept of a client's name */
#define SP_SESSION_STARTING 128 /* starts without an answer; with more, no request is read */

/* The connection a session is attached to. */
struct sp_session_client {
    void (*news)(struct sp_session_client *c, struct sp_proc *p); /* p has records to send */
    void (*gone)(struct sp_session_client *c, struct sp_proc *p); /* p is freed, and had news */
    void (*challenge)(
        struct sp_session_client *c); /* another client wants the session: ping the peer */
    /* sp_ended_is_pressed or sp_session_is_starting has changed; may be NULL. */
    void (*pressed)(struct sp_session_client *c);
};

struct sp_front;
struct sp_cell_ends;
struct sp_cell_record;
struct sp_history;
struct sp_hold;
struct sp_ledger;
struct sp_session_record;

/*
 * The open cells, which run the commands without a sandbox. The first runs one command after
 * another and the file operations; the next ones are made when all that there are have
 * SP_OPEN_CELL_BUSY starts to answer, and end when no command and nothing that a command left was
 * in them for a while.
 */
#define SP_OPEN_CELLS_MAX     8
#define SP_OPEN_CELL_BUSY     2
#define SP_OPEN_CELL_PAUSE_MS 100   /* between two of them */
#define SP_OPEN_CELL_IDLE_MS  60000 /* after the last process, those above the first end */
#define SP_OPEN_CELL_CHECK_MS 5000  /* between two looks at processes that commands have left */

struct sp_open_cell {
    struct sp_front *front;
    struct sp_cell *cell; /* NULL: not made, or ended */
    struct sp_timer idle_timer;
    uint64_t used_ms; /* when a process was last seen in it */
};

struct sp_session {
    struct sp_front *front;
    struct sp_list link;
    struct sp_session *next_in_bucket; /* of sp_front.by_id */
    char id[SP_SESSION_ID + 1];
    char client_name[SP_CLIENT_NAME + 1]; /* of the client that made it; "": unknown */
    uint64_t number;
    struct sp_session_client *client; /* NULL: detached */
    struct sp_timer expiry;
    struct sp_list procs; /* struct sp_proc without a record, in the order of their starts */
    struct sp_proc **buckets;
    uint32_t bucket_count, proc_count;
    uint32_t starting;              /* processes that are STARTING */
    uint32_t cells;                 /* bits: the open cells that it has used */
    uint32_t named;                 /* processes with a name, which keep the session */
    uint32_t live;                  /* as sp_front_stats.live */
    struct sp_leaf_session *leaves; /* NULL: no command of it had a limit */

    /* Ended processes (core/ended.h). */
    struct sp_pasts pasts;
    struct sp_list opened; /* struct sp_proc that read a record */
    uint32_t unsent;       /* processes whose end the client was not sent, and ... */
    uint64_t unsent_bytes; /* ... the memory of their records */

    bool is_held;                     /* attached when an earlier front died: core/held.h */
    uint32_t held;                    /* its processes that are held */
    struct sp_timer hold;             /* when they are let go */
    bool is_overdue;                  /* session_ttl has passed; `named` keeps the session */
    struct sp_session_record *record; /* in the ledger; NULL: none */
};

/* Cells start commands in the order of the requests: a session with more of them in the queue would
 * keep all others waiting. */
static inline bool sp_session_is_starting(const struct sp_session *s)
{
    return s->starting >= SP_SESSION_STARTING;
}

/* Counters for metrics; all but `live` only grow. */
struct sp_front_stats {
    uint64_t started, failed_starts;
    uint64_t finished_ok, finished_error, finished_terminated, finished_lost;
    uint64_t output_bytes, dropped_bytes;
    uint32_t live;                       /* STARTING, RUNNING or EXITED */
    uint64_t limit_hits[SP_LIMIT_COUNT]; /* commands that reached the limit */
};

/* The most bytes of all processes' ids, arguments and directories. */
#define SP_FRONT_MAX_HELD (256U << 20)

struct sp_front_options {
    const char *program;
    uint32_t max_processes;         /* live ones */
    uint32_t max_session_processes; /* 0: as max_processes */
    uint64_t kept_memory;           /* for the records of ended processes; 0: SP_KEPT_DEFAULT */
    uint32_t open_cells;            /* at most SP_OPEN_CELLS_MAX; 0: 1 */
    uint64_t output_memory; /* for the rings of all processes (core/rings.h); 0: the default */
    uint32_t history;       /* ended processes that are remembered; 0: none */
    uint64_t session_ttl_ms, closed_ttl_ms;
    bool use_cgroups;
    uint64_t nofile_soft, nofile_hard;
    struct sp_limit_levels limits;
    uint32_t default_pids;        /* limit of a session where there is a controller; 0: none */
    bool has_no_leaves;           /* limits make no cgroups */
    struct sp_fixed_places fixed; /* paths that no policy may open; borrowed */
    const char *runtime_dir;      /* NULL: none */
    struct sp_hold *hold;         /* the keeper; NULL: none; borrowed */
    struct sp_ledger *ledger;     /* with a keeper; borrowed */
    bool is_exposed;              /* a command with network could send us requests */
    bool is_exposed_widely;       /* ... and does not have to come over loopback */
    bool is_embedded;             /* in a host program; the cell is made for the first command */
    bool is_cell_late;            /* the same, not in a host program */
    /* A cell that does not answer a start is killed, with its processes. false: it may be stopped
     * on purpose, and its starts are refused until it answers. */
    bool kills_silent_cells;
    void *user;
    void (*drained)(void *user); /* an outbox was full and has room again */
    /* Whether rules of the server deny a host to managed networks; may be NULL. */
    bool (*forbids_host)(void *user, const struct sp_hostname *host);
    struct sp_publish *publish; /* ports that lead into confined cells; NULL: none; borrowed */
    /* A process has closed; may be NULL. */
    void (*closed)(void *user, const struct sp_proc *p);
    /* A session ends; may be NULL. */
    void (*ended)(void *user, const struct sp_session *session);
};

struct sp_files;

/* What was taken over (core/adopt.h). */
struct sp_adopted {
    unsigned sessions, processes, ended, cells;
    unsigned broken; /* records that were dropped */
};

struct sp_front {
    struct sp_loop *loop;
    struct sp_front_options options;
    struct sp_cells *cells;
    struct sp_open_cell open[SP_OPEN_CELLS_MAX];
    uint32_t open_count;   /* cells in `open` */
    uint64_t cell_made_ms; /* time of the latest open cell; 0: none made */
    struct sp_journal *journal;
    struct sp_leaves *leaves;
    struct sp_cell_pool *cell_pool;
    struct sp_history *history; /* NULL: none */
    struct sp_ledger *ledger;   /* NULL: nothing outlives this front */
    struct sp_adopted adopted;  /* of an earlier front */
    struct sp_files *files;     /* file operations (files.h) */
    struct sp_list sessions;    /* the oldest first */
    struct sp_session **by_id;  /* a hash table of session_buckets lists; NULL: none yet */
    uint32_t session_count, session_buckets;
    uint32_t proc_count; /* of all sessions */
    uint32_t starting;   /* processes in STARTING, of all sessions */
    uint64_t next_session, next_process;
    size_t held_bytes; /* ids, arguments and directories of processes without a record */
    struct sp_oom_sample oom_kills;
    struct sp_front_stats stats;

    /* Ended processes (core/ended.h). */
    struct sp_past_store pasts;
    struct sp_list unsettled, in_rings; /* of sp_proc; in_rings: the oldest first */
    struct sp_list observed;            /* of sp_proc.in_ring: those that observers alone read */
    bool needs_slots;                   /* processes in in_rings are to give theirs back */
    struct sp_deferred on_settle;
};

int sp_front_new(struct sp_loop *loop, const struct sp_front_options *o, struct sp_front **ret,
                 struct sp_err *e);
/* Ends every session and the cell. All clients must have detached. */
void sp_front_free(struct sp_front *s);

/* The open cell for a start of the session, or (NULL) for file operations; a new one if there is
 * none, or if it was lost. `full` has no descriptors left, and is not chosen; NULL: none. */
int sp_front_cell(struct sp_front *s, struct sp_session *session, const struct sp_cell *full,
                  struct sp_cell **ret, struct sp_err *e);

/* Takes over an open cell of an earlier front; for core/adopt.c. */
int sp_front_adopt_cell(struct sp_front *f, struct sp_cell_record *r, size_t fixed,
                        struct sp_cell_ends *ends, struct sp_err *e);

int sp_session_new(struct sp_front *s, struct sp_session_client *c, struct sp_session **ret,
                   struct sp_err *e);
/* SP_E_STATE: unknown id. SP_E_ATTACHED: another connection has the session, and is challenged. */
/* 0: it is attached */
static inline void sp_session_record_due(struct sp_session *s, uint64_t due_ms)
{
    if (s->record != NULL)
        atomic_store(&s->record->due_ms, due_ms);
}
/* Sets when a detached session ends. */
void sp_session_expire_at(struct sp_session *s, uint64_t due_ms);
/* The record of a session is complete: its client may be told the id. SP_E_LIMIT: the ledger is
 * full; the session ends when it is detached. */
int sp_session_keep(struct sp_session *s, struct sp_err *e);
/* One that an earlier front had (core/adopt.h); detached. */
int sp_session_restore(struct sp_front *f, struct sp_session_record *r, struct sp_session **ret,
                       struct sp_err *e);
int sp_session_resume(struct sp_front *s, struct sp_str id, struct sp_session_client *c,
                      struct sp_session **ret, struct sp_err *e);
/* NULL: unknown. */
struct sp_session *sp_front_find(const struct sp_front *s, struct sp_str id);
/* The connection has ended. keep: the session stays for session_ttl_ms; else it ends now. */
void sp_session_detach(struct sp_session *s, bool keep);

/* Of ended processes those that are open (core/ended.h). */
struct sp_proc *sp_session_find(const struct sp_session *s, struct sp_str id);
/* One named process less. */
void sp_session_drop_name(struct sp_session *s);
/* For proc.c and ended.c. */
bool sp_session_add(struct sp_session *s, struct sp_proc *p);
void sp_session_remove(struct sp_session *s, struct sp_proc *p);

#endif
