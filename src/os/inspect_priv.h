/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_priv: reading /proc (inspect_proc.c), for inspect.c (what processes do) and inspect_fds.c
 * (what their descriptors are). All return false, 0 or -1 if /proc does not tell.
 */
#ifndef SP_OS_INSPECT_PRIV_H
#define SP_OS_INSPECT_PRIV_H

#include <stddef.h>

#include "os/inspect.h"

#define SP_INSPECT_LINK 64 /* bytes of a link in /proc/PID/fd; longer ones are of no interest */

struct sp_inspect_task {
    char state;
    pid_t parent, group, session;
    int terminal;     /* controlling terminal: the N of /dev/pts/N; -1: none, or another kind */
    pid_t foreground; /* the terminal's foreground group; 0 or less: none */
};

/* /proc/PID/stat, or with a tid that of the thread. */
bool sp_inspect_task(pid_t pid, pid_t tid, struct sp_inspect_task *ret);
/* The link of a descriptor: "pipe:[123]", "/dev/pts/3". */
bool sp_inspect_link(pid_t pid, int fd, char ret[SP_INSPECT_LINK]);
/* The inode in the link "KIND:[...]"; 0: another kind of link. */
uint64_t sp_inspect_inode(const char *link, const char *kind);
/* Whether a descriptor of a process with this controlling terminal is the command's terminal. */
bool sp_inspect_is_terminal(const struct sp_inspect_target *at, const char *link, int controlling);
/* Bytes of its memory, if the pages are present: it never waits for one. */
bool sp_inspect_memory(pid_t pid, uint64_t address, void *ret, size_t size);

#endif
