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

/* A command that was started and has not closed. */
struct sp_inspect_command {
    pid_t cell;      /* its cell, in our /proc */
    pid_t pid;       /* its first process, in the pid namespace of the cell */
    bool has_exited; /* the first process */
    const char *cgroup;
    uint32_t leaf;       /* its cgroup is this leaf of `cgroup` (os/cgroup.h); 0: none */
    int terminal;        /* the N of /dev/pts/N; -1: pipes */
    uint64_t input;      /* inode of its stdin pipe while a client may still write; 0: none */
    uint64_t outputs[2]; /* inodes of its output pipes; 0: none */
};

struct sp_inspect_request {
    bool wants_doing; /* state and holders; false: the ports alone */
    const uint16_t *ports;
    uint32_t port_count;
};

/* Everything is looked up anew each time: a fraction of a millisecond for a usual command, some for
 * one of hundreds of processes. */
void sp_inspect(const struct sp_inspect_command *c, const struct sp_inspect_request *request,
                struct sp_inspection *ret);

/* Entries of /proc that a search may still read. */
struct sp_inspect_budget {
    int descriptors, processes;
};

/* Whether a process of the command has the socket with this inode, or its cell has no processes but
 * the command's. false, too, when the budget is used up. *leader: the pid of its first process as
 * an earlier call found it; 0: not known. */
bool sp_inspect_has_socket(const struct sp_inspect_command *c, uint64_t inode, pid_t *leader,
                           struct sp_inspect_budget *budget);

#endif
