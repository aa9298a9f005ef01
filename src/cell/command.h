/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command: one process in its cell, from START to FORGET.
 *
 *   pending --exec--> running --exit--> (exiting -->) exited --streams end--> closed
 *
 * Exit and the end of the streams are two facts: a grandchild may hold a stream for hours, and a
 * program may close its output and live on. Both become records in the ring as they happen.
 */
#ifndef SP_CELL_COMMAND_H
#define SP_CELL_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cell/bell.h"
#include "cell/ring.h"
#include "cell/wire.h"
#include "os/cgroup.h"
#include "os/spawn.h"

struct rlimit;

/* EXITING: reaped, but what it wrote last may still be on its way; of failures in a confined cell
 * alone, for its output is looked through when the exit is told. */
enum sp_life { SP_LIFE_NONE, SP_LIFE_RUNNING, SP_LIFE_EXITING, SP_LIFE_EXITED, SP_LIFE_CLOSED };

/* A start under way, and all that its child uses until it has executed its program. */
struct sp_pending_start {
    struct sp_spawn spawn;
    struct sp_wire_strings strings;
    struct sp_wire_started reply;
    unsigned patience_ms; /* so long the cell may stand still for it */
    int input;            /* what feeds it; -1: none */
    int pidfd;            /* it was given up, and its child has not ended yet; else -1 */
};

struct sp_command {
    enum sp_life life;                /* NONE: the slot is free */
    struct sp_pending_start *pending; /* RUNNING, but its program is not executed yet; else NULL */
    bool is_tty;
    bool is_watched;    /* its streams are; they are not while it is paused or resting */
    bool is_paused;     /* waits for its reader */
    bool is_resting;    /* writes in drops: let some gather before we read again */
    bool is_terminated; /* closes as soon as what is readable has been read */
    uint32_t slot;
    uint64_t number, session;
    pid_t pid;
    int pidfd;
    int stream[2]; /* stdout and stderr, or the terminal's master; -1: ended */
    int slave;     /* of the terminal, kept until the leader is reaped: no early end of file */
    int leaf_fd;   /* its cgroup; -1: none */
    uint32_t leaf;
    uint32_t leaf_number; /* in its directory's name; 0: none */
    uint64_t drops_since_ms, rests_until_ms;
    uint32_t drops; /* small chunks since then */
    uint32_t refusal_count;
    struct sp_refusal refusals[SP_EXIT_REFUSALS];
    uint64_t net_before;   /* the yard's count of those who found no way out, when it started */
    uint64_t start_number; /* of the yard's starts */
    bool was_alone;        /* nothing else ran when it started */
    uint32_t left_network; /* connects to what lies beyond its network */
    struct sp_exit how;    /* EXITING */
    uint64_t exit_due_ms;
    uint64_t exited_ms;
    struct sp_ring ring;
};

#define SP_MAX_RESTING 64
#define SP_MAX_EXITING 64
#define SP_SPARE       4

/* What all commands of a cell share. */
struct sp_yard {
    uint64_t now_ms; /* of this turn */
    int epoll;
    struct sp_bell bell;
    const struct rlimit *nofile;
    struct sp_cgroup cgroup; /* dir -1: trees are found by parentage */
    uint32_t running;        /* commands that have not exited */
    uint64_t starts;         /* so far */
    int spare[SP_SPARE];     /* descriptors kept for killing when the table is full */
    uint32_t resting[SP_MAX_RESTING], resting_count; /* slots */

    /* A confined cell: */
    bool is_confined;
    bool hides_cwds; /* the view has only what its policy names: a directory may be missing in it */
    int scope;       /* each command's own Landlock scope; -1: none */
    int net_count;   /* the kernel's counters of a network of our own; -1: none */
    uint32_t exiting[SP_MAX_EXITING], exiting_count; /* slots */
};

/* What an epoll event is about: a kind, and a slot (or descriptor) beside it. */
enum sp_cell_event {
    SP_EV_CONTROL = 1,
    SP_EV_BELL,
    SP_EV_CHILD,
    SP_EV_OUT,
    SP_EV_ERR,
    SP_EV_EXIT,
    SP_EV_REAP,
    SP_EV_NOTICE
};
#define SP_EV(kind, n) ((uint64_t)(kind) << 32 | (uint32_t)(n))

/*
 * Starts what the message and p->strings ask for into the free slot *c. The leaf is the caller's
 * choice. true: p->reply says how it went. After a success p->input is the descriptor that feeds
 * it, or -1; for a terminal it is the master, which stays the command's, for a pipe it is the
 * caller's. After a failure *c is free again. false: the child waits for a disk; *p stays in use.
 */
bool sp_command_start(struct sp_yard *y, struct sp_command *c, const struct sp_wire_start *s,
                      struct sp_pending_start *p);
/* The same answer for a start under way. */
bool sp_command_poll_start(struct sp_yard *y, struct sp_command *c);
/* Kills a start under way, because it takes too long; p->reply says so, p->pidfd is the child's. */
void sp_command_give_up(struct sp_yard *y, struct sp_command *c);

/* A stream is readable or has ended. */
void sp_command_readable(struct sp_yard *y, struct sp_command *c, int which);
/* The leader has ended: reap it, read what is there, tell. Not ended yet: nothing. */
void sp_command_exited(struct sp_yard *y, struct sp_command *c);
/* Those whose rest is over are read again; `commands` is the table of all slots. */
void sp_command_wake_rested(struct sp_yard *y, struct sp_command *commands);
/* Those who have waited long enough for the end of their streams have exited now. */
void sp_command_end_waits(struct sp_yard *y, struct sp_command *commands);
/* The sandbox has refused it, or one of its descendants, a system call. */
void sp_command_refused(struct sp_command *c, int call);
/* The front has moved on, or nobody is attached any more. */
void sp_command_served(struct sp_yard *y, struct sp_command *c);

/* Between these two there are descriptors free to look at /proc or a cgroup with. */
void sp_yard_free_spare(struct sp_yard *y);
void sp_yard_take_spare(struct sp_yard *y);

/* 0 or errno. Ended: 0; a KILL then ends what is left of its group, if it comes soon. */
int sp_command_signal(const struct sp_yard *y, struct sp_command *c, int signal);
void sp_command_terminate(struct sp_yard *y, struct sp_command *c);
/* Frees the slot. A live one is killed with its tree and reaped later (SP_EV_REAP, its pidfd); of a
 * start under way the pidfd is in its sp_pending_start. */
void sp_command_forget(struct sp_yard *y, struct sp_command *c);

#endif
