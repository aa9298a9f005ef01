/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn: start one program, at a price that grows neither with our memory nor with our descriptors.
 *
 * The child shares our memory and descriptor table until it has made itself a table of its own with
 * the first seven entries only, so 3 to 6 belong to the spawner: sp_spawn_reserve claims them
 * before anything else is opened. With sp_spawn the parent stands still until the child has called
 * execve or failed; a failure comes back as the step and its errno. One spawner at a time.
 *
 * The working directory or the program may lie on a file system that does not answer (a dead NFS
 * server, a FUSE daemon that hangs). With sp_spawn_begin the child alone waits for it: the parent
 * goes on after a moment and polls.
 *
 * A spawner in somebody else's program has no numbers of its own there (is_apart, and nothing was
 * reserved): the child then gets a copy of the whole table, which takes a little longer, and any
 * number of threads may spawn.
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

struct sp_spawn {
    int stdio[3];            /* become 0, 1, 2; each above 6 or -1 for /dev/null */
    bool is_apart;           /* nothing may be reserved: stdio has any numbers then. The program
                                begins with all signals blocked, and none of what is below but cwd
                                and nofile */
    bool is_tty;             /* stdio[0] becomes the controlling terminal */
    bool dies_with_us;       /* SIGKILL when we end, however we end */
    bool is_subreaper;       /* orphans below the program become its children, not ours */
    bool has_no_new_privs;   /* no program it runs gains rights by its file */
    int scope;               /* a Landlock rule set it enters; 0 or -1: none */
    int cgroup;              /* descriptor of a cgroup directory to be born in; -1: ours */
    const char *cwd;         /* NULL: ours */
    const char *other_cwd;   /* if cwd is not there; then /. NULL: cwd has to be there */
    const char *file;        /* looked up in search_path if it has no slash */
    uint64_t dev, ino;       /* of the file, which has a slash; ino 0: any. Another one there fails
                                with step PROGRAM and ESTALE */
    const char *search_path; /* NULL: the C library's default */
    char *const *argv;
    char *const *envp;
    const struct rlimit *nofile; /* NULL: ours */

    unsigned patience_ms; /* sp_spawn_begin: so long it waits for the child to execute */
    char *stack; /* sp_spawn_begin: SP_SPAWN_STACK bytes, the child's until it is no longer busy */

    /* filled by sp_spawn and sp_spawn_begin */
    pid_t pid;
    int pidfd;
    enum sp_step failed_step;
    int failed_errno;
    enum sp_step step; /* CWD or EXEC: what the child waits for */
    bool is_at_disk;   /* nothing but these two steps is left */
    uint32_t is_busy;  /* cleared by the kernel when the child has executed, or has ended */
};

/* Puts /dev/null on 3 to 6. Call first thing in main. */
int sp_spawn_reserve(struct sp_err *e);

/*
 * Fills the numbers below 64 once and for all, for a spawner that has files open whose close may
 * take long: the kernel copies these few into the child's table, and closes them there again before
 * the parent goes on. After sp_spawn_reserve; not where only few descriptors may be open.
 */
void sp_spawn_fill_low(void);

/* Opens /dev/null again, where the one that was reserved lies outside of what is visible now. */
int sp_spawn_renew_null(void); /* 0 or minus errno */

/* 0: the program runs. Otherwise failed_step and failed_errno say why; nothing is left behind. */
int sp_spawn(struct sp_spawn *s);

/*
 * As sp_spawn, but waits patience_ms only once the child has come to the file system. 1: it is not
 * done yet; *s, all that it points to and the stack stay in use until sp_spawn_poll answers
 * something else, or the child was reaped. pid and pidfd are there already.
 */
char *sp_spawn_new_stack(void); /* NULL: no memory */
void sp_spawn_free_stack(char *stack);
int sp_spawn_begin(struct sp_spawn *s);
int sp_spawn_poll(struct sp_spawn *s); /* as sp_spawn_begin; does not wait */

#endif
