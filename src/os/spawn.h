/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn: starts a program, at a cost that depends neither on our memory nor on the number of our
 * descriptors.
 *
 * The child shares our memory (CLONE_VM) and our descriptor table until it has made a table of its
 * own with only the first seven entries. Numbers 3 to 6 therefore belong to the spawner;
 * sp_spawn_reserve claims them before anything else is opened. With sp_spawn the parent is
 * suspended until the child has called execve or failed; a failure comes back as the step and its
 * errno. Only one thread may spawn.
 *
 * The working directory or the program may be on a file system that hangs (a dead NFS server, a
 * FUSE daemon). With sp_spawn_begin only the child waits for it: the parent goes on after
 * patience_ms and polls.
 *
 * In a program that is not ours no numbers can be reserved (is_apart without sp_spawn_reserve): the
 * child then gets a copy of the whole table, which is a little slower, and any number of threads
 * may spawn.
 */
#ifndef SP_OS_SPAWN_H
#define SP_OS_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/error.h"

#define SP_SPAWN_STACK (64UL << 10)

#define SP_STEPS(X)                     \
    X(NONE, "none")                     \
    X(CLONE, "clone")                   \
    X(FDS, "descriptors")               \
    X(STDIO, "stdio")                   \
    X(SESSION, "session")               \
    X(TERMINAL, "controlling terminal") \
    X(PARENT, "parent")                 \
    X(LIMITS, "limits")                 \
    X(CONFINE, "sandbox")               \
    X(CWD, "working directory")         \
    X(PROGRAM, "program")               \
    X(EXEC, "execute")                  \
    X(PREPARE, "prepare")

enum sp_step {
#define X(name, text) SP_STEP_##name,
    SP_STEPS(X)
#undef X
        SP_STEP_MAX
};
const char *sp_step_name(enum sp_step step);

struct sp_rlimit {
    int resource;
    struct rlimit limit;
};

struct sp_spawn {
    int stdio[3];            /* become 0, 1, 2; each above 6, or -1 for /dev/null */
    bool is_apart;           /* 3 to 6 may not be reserved. If they are not, stdio may have any
                                numbers, and is_tty, is_sibling, dies_with_us, is_subreaper,
                                has_no_new_privs, scope and cgroup are ignored. In both cases the
                                program starts with all signals blocked */
    bool is_tty;             /* stdio[0] becomes the controlling terminal */
    bool is_sibling;         /* a child of our parent (CLONE_PARENT), which reaps it: waitid answers
                                ECHILD, and its pidfd tells when it has ended */
    bool dies_with_us;       /* SIGKILL when this thread dies (PR_SET_PDEATHSIG), or, of a sibling,
                                our parent */
    bool is_subreaper;       /* orphans below the program are reparented to it */
    bool has_no_new_privs;   /* PR_SET_NO_NEW_PRIVS */
    int scope;               /* Landlock rule set to enter; 0 or -1: none */
    int cgroup;              /* descriptor of a cgroup directory to start in; -1: ours */
    const char *cwd;         /* NULL: ours */
    const char *other_cwd;   /* if cwd does not exist, then "/"; NULL: cwd must exist */
    const char *file;        /* looked up in search_path if it has no slash */
    uint64_t dev, ino;       /* expected inode of file, which has a slash; ino 0: any. Another
                                inode fails with step PROGRAM and ESTALE */
    const char *search_path; /* NULL: the C library's default */
    char *const *argv;
    char *const *envp;
    const struct rlimit *nofile;     /* NULL: ours */
    pid_t parent;                    /* our pid, for dies_with_us; 0: ask */
    bool has_no_pidfd;               /* pidfd stays -1: the caller reaps by pid */
    const struct sp_rlimit *rlimits; /* further ones; not if is_apart */
    unsigned rlimit_count;
    const int *joins; /* cgroup.procs files, open for writing, of cgroups that it enters; not if
                         is_apart */
    unsigned join_count;

    unsigned patience_ms; /* sp_spawn_begin: how long it waits for execve */
    char *stack; /* sp_spawn_begin: SP_SPAWN_STACK bytes, in use until is_busy is cleared */

    /* filled by sp_spawn and sp_spawn_begin */
    pid_t pid;
    int pidfd;
    enum sp_step failed_step;
    int failed_errno;
    enum sp_step step; /* CWD or EXEC: the step that the child is at */
    bool is_at_disk;   /* the child has reached these two steps */
    bool is_reaped;    /* set by the caller, if it has reaped the child before sp_spawn_poll */
    uint32_t is_busy;  /* cleared by the kernel at execve or exit of the child, or by the process
                          that reaps a child which was killed too early for that */
};

/* Puts /dev/null on 3 to 6. To be called first in main. */
int sp_spawn_reserve(struct sp_err *e);

/*
 * Occupies the numbers below 64, for a process that has files open whose close may block: the
 * kernel copies the first 64 entries into the child's table and closes them again before the parent
 * resumes. Call after sp_spawn_reserve; does nothing under a low RLIMIT_NOFILE.
 */
void sp_spawn_fill_low(void);

/* Opens /dev/null again, after a change of root hid the reserved one. */
int sp_spawn_renew_null(void); /* 0 or minus errno */

/* 0: the program runs. Otherwise failed_step and failed_errno are set, and the child is reaped. */
int sp_spawn(struct sp_spawn *s);

/*
 * As sp_spawn, but waits at most patience_ms for the steps that access a file system. 1: not done
 * yet; pid and pidfd are valid, and *s, everything it points to and the stack must stay until
 * sp_spawn_poll returns something else or the child was reaped.
 */
char *sp_spawn_new_stack(void); /* NULL: no memory */
void sp_spawn_free_stack(char *stack);
int sp_spawn_begin(struct sp_spawn *s);
int sp_spawn_poll(struct sp_spawn *s); /* returns as sp_spawn_begin; does not wait */

/* Why a program was not executed, as shells say it: "NAME: command not found". is_alone: it has no
 * arguments, so a name with the characters of a script was meant as one. Returns as snprintf. */
int sp_spawn_explain(const char *name, bool is_alone, int err, char *ret, size_t size);

#endif
