/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look_priv: what the files behind look.h share. look.c decides over a tree, look_call.c about one
 * thread, look_held.c about descriptors, look_ports.c about sockets, look_proc.c reads /proc.
 */
#ifndef SP_OS_INSPECT_PRIV_H
#define SP_OS_INSPECT_PRIV_H

#include <stddef.h>

#include "os/inspect.h"

/* ---- look_proc.c ---- */

#define SP_LOOK_LINK 64 /* a longer one is none that we look for */

struct sp_look_task {
    char state;
    pid_t parent, group, session;
    int terminal;     /* its controlling one: the N of /dev/pts/N; -1: none, or another kind */
    pid_t foreground; /* the terminal's foreground group; 0 or less: none */
};

/* Up to size - 1 bytes of "/proc/..." with a NUL; -1: it cannot be read. */
ssize_t sp_look_read(const char *path, char *text, size_t size);
/* tid 0: of the process. */
bool sp_look_task(pid_t pid, pid_t tid, struct sp_look_task *ret);
/* What a descriptor is: "pipe:[123]", "/dev/pts/3". */
bool sp_look_link(pid_t pid, int fd, char ret[SP_LOOK_LINK]);
/* The inode of "pipe:[...]" or "socket:[...]"; 0: it is no such thing. */
uint64_t sp_look_inode(const char *link, const char *kind);
/* Whether a descriptor of a process with this controlling terminal is the command's terminal. */
bool sp_look_is_terminal(const struct sp_look_at *at, const char *link, int controlling);
/* Bytes of its memory, if that takes no waiting for a page. */
bool sp_look_memory(pid_t pid, uint64_t address, void *ret, size_t size);

/* ---- look_held.c ---- */

/* Asks about every descriptor of every member. */
struct sp_look_search {
    const struct sp_look_at *at;
    bool (*is_it)(struct sp_look_search *s, const char *link); /* true: enough of this process */
    void (*found)(struct sp_look_search *s, pid_t pid);
    pid_t pid;        /* whose descriptor it is, */
    int dir;          /* where its link is, */
    const char *name; /* and that link's name */
    int looked_at;
};
void sp_look_search(struct sp_look_search *s);

/* ---- look_call.c ---- */

/* What a sleeping thread waits for. *ret_child: the one child it waits for, as the process numbers
 * it; 0: any. */
enum sp_doing sp_look_call(const struct sp_look_at *at, pid_t pid, pid_t tid, int controlling,
                           pid_t *ret_child);

#endif
