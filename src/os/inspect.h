/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect: what the kernel says a command is doing: on the CPU, waiting, and for what; which
 * processes hold its output open; which TCP ports its processes listen on. All of it comes from
 * /proc, and nothing here blocks.
 */
#ifndef SP_OS_INSPECT_H
#define SP_OS_INSPECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum sp_doing {
    SP_DOING_UNKNOWN, /* the kernel does not tell, or was not asked */
    SP_DOING_RUNNING, /* on the CPU, or runnable */
    SP_DOING_SLEEPING,
    SP_DOING_READING_TERMINAL, /* its own terminal, by read, poll, select or epoll */
    SP_DOING_READING_STDIN,    /* its stdin pipe, likewise, while a client may still write */
    SP_DOING_WAITING_FOR_CHILD,
    SP_DOING_STOPPED,
    SP_DOING_MAX
};
/* "unknown", "running", "sleeping", "reading_terminal" ... */
const char *sp_doing_name(enum sp_doing d);

#define SP_INSPECT_HOLDERS   8
#define SP_INSPECT_PORTS     8
#define SP_INSPECT_PROCESSES 256 /* of one command; further processes are ignored */

struct sp_inspect_holder {
    int pid;       /* in the pid namespace of the command */
    char name[64]; /* comm, with '?' for bytes that are not printable ASCII */
};

struct sp_inspection {
    enum sp_doing doing; /* of the foreground */
    /* Processes that hold its output open after the command has exited. */
    uint32_t holder_count; /* total number, may exceed SP_INSPECT_HOLDERS */
    struct sp_inspect_holder holders[SP_INSPECT_HOLDERS];
    uint16_t listening; /* the first of the requested ports that the command listens on; 0: none */
};

/* A command. All pids are those of our own /proc, and may be stale. */
struct sp_inspect_target {
    pid_t leader;         /* its first process; 0: exited, or not known */
    pid_t cell;           /* a process of the pid namespace that holders are reported in; 0: ours */
    const pid_t *members; /* its known processes, including the leader */
    uint32_t member_count;
    int terminal;        /* the N of /dev/pts/N; -1: pipes */
    uint64_t input;      /* inode of its stdin pipe while a client may still write; 0: none */
    uint64_t outputs[2]; /* inodes of its output pipes; 0: none */
};

/*
 * What the foreground does: the terminal's foreground process group, on pipes the leader. From a
 * process that neither runs nor reads the search goes on to its children. Of all these the busiest
 * counts: running, then reading, then waiting for a child that cannot be seen, then sleeping;
 * stopped if all are stopped. In doubt the answer is sleeping, never reading.
 */
enum sp_doing sp_inspect_doing(const struct sp_inspect_target *at);

/* Fills ret->holders with the members that can still write to the output. */
void sp_inspect_holders(const struct sp_inspect_target *at, struct sp_inspection *ret);

/* The first of the ports that a member listens on, in any network namespace; 0: none. */
uint16_t sp_inspect_listening(const struct sp_inspect_target *at, const uint16_t *ports,
                              uint32_t count);

/* Adds the descendants of `root` to `pids`, nearest first and without duplicates. Returns the new
 * count, `max` at most. */
uint32_t sp_inspect_add_below(pid_t root, pid_t *pids, uint32_t count, uint32_t max);
bool sp_inspect_add(pid_t pid, pid_t *pids, uint32_t *count,
                    uint32_t max); /* false: duplicate, or full */

/* The pid of `pid` in the pid namespace of the process `like`; 0: none. */
pid_t sp_inspect_number(pid_t pid, pid_t like);
pid_t sp_inspect_session(pid_t pid, pid_t like); /* its session id there */
/* The child of `parent` with pid `number` in the parent's own pid namespace; 0: none. */
pid_t sp_inspect_child(pid_t parent, pid_t number);

#endif
