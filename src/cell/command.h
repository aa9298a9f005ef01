/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command: one process of a cell, from START to FORGET.
 *
 *   pending --exec--> running --exit--> (exiting -->) exited --streams end--> closed
 *
 * Exit and the end of the streams are two events: a grandchild may hold a stream for hours, and a
 * program may close its output and live on. Each becomes a record in the ring when it happens.
 */
#ifndef SP_CELL_COMMAND_H
#define SP_CELL_COMMAND_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cell/bell.h"
#include "cell/pids.h"
#include "cell/ring.h"
#include "cell/wire.h"
#include "os/cgroup.h"
#include "os/spawn.h"

struct rlimit;
struct rusage;

/* EXITING: reaped, but its last output may still be in a pipe. Only used for failures in a confined
 * cell: the front searches the output for denials when it sees the exit. */
enum sp_life { SP_LIFE_NONE, SP_LIFE_RUNNING, SP_LIFE_EXITING, SP_LIFE_EXITED, SP_LIFE_CLOSED };

/* A start under way. Its child shares our memory and uses all of this until execve. */
struct sp_pending_start {
    struct sp_spawn spawn;
    struct sp_wire_strings strings;
    struct sp_wire_started reply;
    unsigned patience_ms; /* how long the cell may block on this start */
    int input;            /* our end of its stdin; -1: none */
    pid_t child;          /* a killed child of this start, until waitid(); 0: none */
    struct sp_rlimit rlimits[SP_WIRE_RLIMITS];
    int joins[SP_WIRE_FDS]; /* of its START; closed when the child has entered */
    uint32_t join_count;
};

struct sp_command {
    enum sp_life life;                /* NONE: the slot is free */
    struct sp_pending_start *pending; /* RUNNING, but before execve; else NULL */
    bool is_tty;
    bool is_watched;    /* the streams are in epoll: not while paused or resting */
    bool is_paused;     /* the owner is too far behind */
    bool is_resting;    /* many small reads: let output gather before the next read */
    bool is_reaped;     /* the leader has ended; RUNNING only while the start is pending */
    bool is_terminated; /* streams are closed once the readable data has been read */
    uint32_t slot;
    uint64_t number, session;
    uint32_t next, prev; /* slots with a session of the same bucket; SP_NO_SLOT: the end */
    pid_t pid;
    int stream[2];     /* stdout and stderr, or the terminal's master; -1: ended. While the start is
                          under way a master is in sp_pending_start.input, too, but owned here; the
                          front gets a duplicate, which sp_input closes */
    bool is_large[2];  /* these streams are pipes that were enlarged */
    uint32_t piped[2]; /* bytes read from these pipes, as long as they are not many */
    int input;         /* kept cell: our copy of its stdin pipe's write end; -1: none, or closed */
    int log;           /* kept cell: what the front writes to it (SP_WIRE_INPUT); -1: none */
    int slave;         /* of the terminal, open until the leader is reaped: prevents an early EIO */
    int leaf_fd;       /* its cgroup directory, until the clone; -1: none */
    int lent_leaf;     /* the same of a leaf of the front, for kill_leaf; -1: none */
    uint32_t leaf_index;  /* in the table of sp_strays; SP_NO_LEAF: none */
    uint32_t leaf_number; /* in its directory's name; 0: none */
    uint64_t small_reads_since_ms, rests_until_ms;
    uint32_t small_reads; /* small chunks since then */
    uint32_t refusal_count;
    struct sp_refusal refusals[SP_EXIT_REFUSALS];
    uint64_t max_output;   /* 0: no limit */
    uint64_t net_before;   /* the cell's OutNoRoutes counter when it started */
    uint64_t started_us;   /* for its wall time */
    uint64_t start_number; /* value of sp_cell_state.starts */
    bool was_alone;        /* no other command ran when it started */
    uint32_t left_network; /* connects to addresses outside of its network namespace */
    struct sp_exit how;    /* once it is reaped */
    uint64_t exit_due_ms;
    uint64_t exited_ms;
    struct sp_ring ring; /* of the slot: begun for each command, mapped while its segment is */
};

#define SP_REST_MS     1 /* how long a command with many small reads rests */
#define SP_EXITING_MS  5 /* between looks at commands that are EXITING */
#define SP_MAX_RESTING 64
#define SP_MAX_EXITING 64
#define SP_SPARE       4

/* The memory of 64 slots' rings, which a START needs. */
struct sp_cell_rings {
    struct sp_segment *segment; /* NULL: none */
    int err;                    /* why the cell could not take it; 0: none was sent */
};

#define SP_NO_SLOT         UINT32_MAX
#define SP_NO_LEAF         UINT32_MAX
#define SP_SESSION_BUCKETS 1024

/* State of the cell that all of its commands share. */
struct sp_cell_state {
    uint64_t now_ms; /* read once a turn */
    int epoll;
    struct sp_command *commands; /* by slot */
    uint32_t slots;
    uint32_t slot_end;                       /* one past the highest slot ever used */
    struct sp_cell_rings *rings;             /* slots / SP_SEGMENT_RINGS of them */
    bool is_sweep_due;                       /* for strays */
    uint32_t by_session[SP_SESSION_BUCKETS]; /* session modulo buckets: first slot of the list */
    pid_t pid;                               /* ours */
    bool is_kept;                            /* SP_HELLO_KEPT */
    int oom_score;                           /* of commands; -1: as ours */
    struct sp_bell bell;
    struct sp_pids pids; /* all children that we know of */
    bool has_dead;       /* children may wait to be reaped */
    const struct rlimit *nofile;
    struct sp_cgroup cgroup; /* dir -1: none, process trees are found through /proc */
    uint32_t running;        /* commands that have not exited */
    uint64_t starts;         /* so far */
    int spare[SP_SPARE];     /* descriptors held back, so that killing works at RLIMIT_NOFILE */
    uint32_t resting[SP_MAX_RESTING], resting_count; /* slots */
    uint32_t large_pipes;                            /* streams with is_large */

    /* A confined cell: */
    bool is_confined;
    bool hides_cwds; /* the view is built from nothing, so a working directory may be missing */
    int scope;       /* a Landlock ruleset that each command enters; -1: none */
    int net_count;   /* /proc/self/net/snmp of our own network namespace; -1: none */
    uint32_t exiting[SP_MAX_EXITING], exiting_count; /* slots */
};

/* Tag of an epoll event: a kind, and a slot in the lower half. */
enum sp_cell_event {
    SP_EV_CONTROL = 1,
    SP_EV_BELL,
    SP_EV_CHILD,
    SP_EV_OUT,
    SP_EV_ERR,
    SP_EV_NOTICE
};
#define SP_EV(kind, n) ((uint64_t)(kind) << 32 | (uint32_t)(n))

/*
 * Starts the command of *s and p->strings in the free slot *c; the caller has set c->leaf* and
 * begun c->ring. true: p->reply has the result. After a success p->input is the descriptor to write
 * stdin to, or -1: the terminal's master (owned by the command) or a pipe (owned by the caller).
 * After a failure *c is free again. In a sandbox a program that cannot be executed is a success: a
 * command that has CLOSED already, with pid 0. If p->child is not 0, it was killed but not reaped,
 * and *p must stay until it is. false: the child still waits for a disk, and *p must stay until
 * sp_command_poll_start returns true.
 */
bool sp_command_start(struct sp_cell_state *cell, struct sp_command *c,
                      const struct sp_wire_start *s, struct sp_pending_start *p);
/* The same result for a pending start. If it is_late, it is killed (ETIMEDOUT in its reply). */
bool sp_command_poll_start(struct sp_cell_state *cell, struct sp_command *c, bool is_late);
/* What identifies its streams in /proc/PID/fd, as in struct sp_wire_started. */
void sp_command_streams(const struct sp_command *c, int32_t *ret_terminal, uint64_t ret_outputs[2]);
/* The copy of its stdin is closed. The log stays: a write that is repeated is found there. */
void sp_command_close_input(struct sp_command *c);
/* The running command with this pid; NULL: none. */
static inline struct sp_command *sp_command_of(const struct sp_cell_state *cell, pid_t pid)
{
    const struct sp_pid *child = sp_pids_find(&cell->pids, pid);

    return child != NULL && child->kind == SP_PID_COMMAND ? &cell->commands[child->at] : NULL;
}

/* A stream is readable or has ended. */
void sp_command_readable(struct sp_cell_state *cell, struct sp_command *c, int which);
/* The leader was reaped: reads its remaining output and records the exit, unless the start is still
 * pending; then call it again, with NULL, after the answer to the start. */
void sp_command_exited(struct sp_cell_state *cell, struct sp_command *c, const siginfo_t *info,
                       const struct rusage *use);
/* Watches the streams of commands again that have rested REST_MS, and records the exit of EXITING
 * commands that have waited LAST_OUTPUT_MS for the end of their streams. */
void sp_command_end_waits(struct sp_cell_state *cell);
/* The owner was served, or is gone: resumes a paused command. */
void sp_command_served(struct sp_cell_state *cell, struct sp_command *c);

/* Releases and reserves the spare descriptors: code between the two calls can open /proc or cgroup
 * files even when the descriptor table was full. */
void sp_cell_free_spare(struct sp_cell_state *cell);
void sp_cell_take_spare(struct sp_cell_state *cell);

/* 0 or errno. After the exit only SIGKILL has an effect: within GROUP_MS it kills the rest of the
 * process group. */
int sp_command_signal(const struct sp_cell_state *cell, struct sp_command *c, int signal);
void sp_command_terminate(struct sp_cell_state *cell, struct sp_command *c);
/* Frees the slot. A running command is killed with its tree; until it is reaped its pid is in the
 * table as SP_PID_OTHER, and that of a pending start in its sp_pending_start. */
void sp_command_forget(struct sp_cell_state *cell, struct sp_command *c);

#endif
