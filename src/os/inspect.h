/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look: what the kernel says a command is doing: on the CPU, waiting, and for what; who holds its
 * output open; which TCP ports its processes listen on. Only /proc is read, nothing waits.
 */
#ifndef SP_OS_INSPECT_H
#define SP_OS_INSPECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum sp_doing {
    SP_DOING_UNKNOWN, /* the kernel does not tell, or nobody asked it */
    SP_DOING_RUNNING, /* on the CPU, or about to be */
    SP_DOING_SLEEPING,
    SP_DOING_READING_TERMINAL, /* of its own terminal, whether by read, poll, select or epoll */
    SP_DOING_READING_STDIN,    /* the same of a pipe that somebody could write to */
    SP_DOING_WAITING_FOR_CHILD,
    SP_DOING_STOPPED,
    SP_DOING_MAX
};
/* "unknown", "running", "sleeping", "reading_terminal" ... */
const char *sp_doing_name(enum sp_doing d);

#define SP_LOOK_HOLDERS   8
#define SP_LOOK_PORTS     8
#define SP_LOOK_PROCESSES 256 /* of one command: no more are looked at */

struct sp_look_holder {
    int pid;       /* as the command's own processes number it */
    char name[64]; /* as the kernel has it, made harmless: printable ASCII */
};

struct sp_look {
    enum sp_doing doing; /* of the tree's foreground */
    /* Who has a stream of its output open though the command has exited. */
    uint32_t holder_count; /* all of them; the first are in holders */
    struct sp_look_holder holders[SP_LOOK_HOLDERS];
    uint16_t listening; /* the first of the ports asked for that it listens on; 0: none */
};

/* A command as /proc knows it. Everything is a number of our own /proc, and may be stale. */
struct sp_look_at {
    pid_t leader;         /* its first process; 0: gone, or not known */
    pid_t cell;           /* whose processes' numbers are told; 0: ours are */
    const pid_t *members; /* its processes as far as they are known, the leader too */
    uint32_t member_count;
    int terminal;        /* the N of /dev/pts/N; -1: it runs on pipes */
    uint64_t input;      /* the inode of the pipe for its stdin, if somebody may write; 0: none */
    uint64_t outputs[2]; /* of those for its output; 0: none */
};

/*
 * What the foreground does. On a terminal that is the terminal's foreground process group; on pipes
 * the leader. Whoever only waits there, for a child or something else, is followed to its children.
 * Of several that are found the busiest counts: running, then reading, then waiting for a child
 * that cannot be seen, then sleeping; stopped if all are. In doubt it is sleeping, never reading.
 */
enum sp_doing sp_look_doing(const struct sp_look_at *at);

/* Those among the members that can still write to its output, into ret->holders. */
void sp_look_holders(const struct sp_look_at *at, struct sp_look *ret);

/* The first of the ports that one of the members listens on, in whatever network it is; 0: none. */
uint16_t sp_look_listening(const struct sp_look_at *at, const uint16_t *ports, uint32_t count);

/* Adds everyone below `root`, nearest first, to those in `pids`; nobody twice. Returns how many
 * there are now, `max` at most. */
uint32_t sp_look_add_below(pid_t root, pid_t *pids, uint32_t count, uint32_t max);
bool sp_look_add(pid_t pid, pid_t *pids, uint32_t *count, uint32_t max); /* false: had, or full */

/* The number of `pid` as its `like` (a process of another pid namespace) sees it; 0: none. */
pid_t sp_look_number(pid_t pid, pid_t like);
pid_t sp_look_session(pid_t pid, pid_t like); /* the same of its session */
/* The child of `parent` that has this number in the parent's own pid namespace; 0: none. */
pid_t sp_look_child(pid_t parent, pid_t number);

#endif
