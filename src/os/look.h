/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look: what the kernel says a command is doing: on the CPU, waiting, and for what; who holds its
 * output open; which TCP ports its processes listen on. Only /proc is read, nothing waits.
 */
#ifndef SP_OS_LOOK_H
#define SP_OS_LOOK_H

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

#define SP_LOOK_HOLDERS 8
#define SP_LOOK_PORTS   8

struct sp_look_holder {
    int pid;
    char name[64]; /* as the kernel has it, made harmless: printable ASCII */
};

struct sp_look {
    enum sp_doing doing; /* of the tree's foreground */
    /* Who has a stream of its output open though the command has exited. */
    uint32_t holder_count; /* all of them; the first are in holders */
    struct sp_look_holder holders[SP_LOOK_HOLDERS];
    uint16_t listening; /* the first of the ports asked for that it listens on; 0: none */
};

#endif
