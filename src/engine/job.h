/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job: one process behind a backend, as its owner sees it; and the backend, local or remote.
 *
 * A job is embedded in whatever its owner keeps about the process. The owner asks through the
 * functions below and is told through the ops it gave, in this order:
 *
 *   start --> started --> output* --> exited --> output* --> closed
 *        '--> refused         '-----------'-----------'----> failed (instead of what is left)
 *
 * Nothing is told from within a function that the owner calls: the loop tells it later. After
 * refused, closed or failed nothing more is told, and the job may be released or started again. A
 * backend never blocks the loop and never drops output silently.
 */
#ifndef SP_ENGINE_JOB_H
#define SP_ENGINE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env_policy.h"
#include "base/error.h"
#include "base/str.h"
#include "base/stream.h"
#include "core/proc.h"
#include "engine/shell.h"
#include "os/inspect.h"
#include "os/loop.h"

struct sp_backend;
struct sp_job;

/* Under what it really runs; the heuristics of a denial need to know. */
enum sp_job_sandbox { SP_JOB_SANDBOX_UNKNOWN, SP_JOB_SANDBOX_NONE, SP_JOB_SANDBOX_LINUX };

struct sp_job_exit {
    int code;   /* 0 to 255, 128 + signal; -1: not known */
    int signal; /* 0: it exited, or nobody told */
    int denied; /* by the sandbox, as its executor judged: 1, 0; -1: not judged */
    const struct sp_denial_facts *denial; /* what points to it; NULL: not known. Borrowed */
    const struct sp_exit *kernel;         /* all that the kernel said; NULL: not known. Borrowed */
};

struct sp_job_ops {
    void (*started)(struct sp_job *j, enum sp_job_sandbox sandbox);
    void (*refused)(struct sp_job *j, const struct sp_err *e);
    /* Bytes of stdout, stderr or a terminal, borrowed, never empty. false: not now; the same bytes
     * come again after sp_job_go_on, and nothing before them. */
    bool (*output)(struct sp_job *j, enum sp_stream stream, struct sp_str bytes);
    /* Output was lost before what comes next: so many bytes, 0 if nobody knows. */
    void (*gap)(struct sp_job *j, uint64_t bytes);
    void (*exited)(struct sp_job *j, const struct sp_job_exit *how); /* once */
    void (*closed)(struct sp_job *j);                                /* once, after exited */
    /* The connection or the cell is gone for good: nothing more is known. Not an exit. */
    void (*failed)(struct sp_job *j, const char *why);
};

struct sp_job {
    struct sp_backend *backend; /* NULL: not started, or released */
    const struct sp_job_ops *ops;
    void *impl; /* the backend's */
};

/* What is to be started. Everything is borrowed for the call. */
struct sp_launch {
    struct sp_str name; /* the beginning of its name on a wire: "1000", "shell" */
    bool is_tty;
    bool wants_stdin;    /* on pipes: an open stdin; else /dev/null. A terminal always has one */
    uint16_t rows, cols; /* of a terminal; 0: 24 x 80 */
    struct sp_str cwd;   /* an absolute path where the process runs */
    struct sp_str arg0;  /* p NULL: argv[0] */
    const struct sp_str *argv;
    uint32_t argc;
    struct sp_str file; /* local: what is executed, an absolute path; p NULL: argv[0], looked up */
    uint64_t dev, ino;  /* of file; ino 0: any file may be there */
    const struct sp_environ_ask *environ; /* local: made here. Remote: as policy and overlay */
    const struct sp_policy *policy;       /* NULL: no sandbox */
    bool is_own_program;                  /* argv[0] is /proc/self/exe: found in any sandbox */
    uint32_t inherited_fds;               /* descriptors it would need of ours; only 0 can be had */
};

struct sp_run_plan;
/* Applies an approved plan to a launch: its sandbox, or the argv and program of a run without one.
 * The plan must outlive the launch. The caller adds the variables in plan->free.marks. */
void sp_launch_apply(struct sp_launch *l, const struct sp_run_plan *p);

enum sp_job_result {
    SP_JOB_OK,
    SP_JOB_FULL,     /* a write: the queue is full, nothing was taken */
    SP_JOB_NO_STDIN, /* it has none, or nobody reads it any more */
    SP_JOB_GONE,     /* it has exited, or its executor has forgotten it */
    SP_JOB_NOT_YET,  /* it is still starting */
    SP_JOB_LOST,     /* the connection is gone for good; error says how */
    SP_JOB_REFUSED,  /* anything else; error says why */
};

/* Something asked of a job. fn is called once, from the loop, with result and error filled;
 * embedded in the asker. Dropped silently when the job is released. */
struct sp_job_call {
    void (*fn)(struct sp_job_call *c);
    struct sp_job *job;
    enum sp_job_result result;
    struct sp_err error;
    void *impl; /* the backend's */
};

/* What a command is doing, as its executor sees it. */
struct sp_job_look {
    struct sp_job_call call;       /* its result OK: `found` is there */
    uint16_t ports[SP_LOOK_PORTS]; /* which of these does it listen on? */
    uint32_t port_count;
    bool wants_doing; /* state and holders; false: the ports alone */
    struct sp_look found;
};

/* 0: started or refused will be told. -SP_E_...: nothing was started, nothing will be told. */
int sp_job_start(struct sp_backend *b, struct sp_job *j, const struct sp_job_ops *ops,
                 const struct sp_launch *l, struct sp_err *e);

/* OK means queued: typed once, also over a reconnect. The bytes are copied. */
void sp_job_write(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes);
void sp_job_close_stdin(struct sp_job *j, struct sp_job_call *c); /* after what was written */
/* Answered once the process has taken all that was written, or nobody will: whoever carries much
 * writes the next piece then. false: this backend answers a write no sooner; nothing is asked. */
bool sp_job_flush(struct sp_job *j, struct sp_job_call *c);
/* To the process group. OK as well if it has exited; KILL then ends what is left of its group. */
void sp_job_signal(struct sp_job *j, struct sp_job_call *c, int signal);
void sp_job_resize(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols);
/* Kills the tree. OK: confirmed; a local one has been reaped by then or 100 ms have passed. What it
 * wrote, its exit and its close are told as always. */
void sp_job_terminate(struct sp_job *j, struct sp_job_call *c);
/* Looks at it; may be asked from started to closed. false: this backend cannot tell, or not of this
 * job, and nothing is asked. */
bool sp_job_look(struct sp_job *j, struct sp_job_look *l);
/* The owner has room again for the output that it refused. */
void sp_job_go_on(struct sp_job *j);
/* Nothing more is told and no call of it answered. A live process is terminated. */
void sp_job_release(struct sp_job *j);

/* ---- backends ---- */

/* What is known of the place where commands run. */
struct sp_backend_facts {
    bool is_remote;
    enum sp_shell_type shell_type; /* SP_SHELL_UNKNOWN: reports none (remote) */
    const char *shell_name;        /* as the executor calls it; NULL: none */
    const char *shell_path;        /* NULL: none */
    const char *cwd;               /* absolute path; NULL: not told */
    bool can_close_stdin;
};

/* Who wants to know the facts. fn is called once, from the loop: facts NULL means that the place
 * cannot be reached, and error says why. */
struct sp_backend_wait {
    void (*fn)(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
               const struct sp_err *e);
    struct sp_backend_wait *prev, *next;
    struct sp_backend *backend; /* NULL: not waiting */
};

/* ---- files of the place where commands run ---- */

enum sp_backend_file_op {
    SP_BACKEND_STAT,
    SP_BACKEND_READ,
    SP_BACKEND_WRITE,    /* creates or replaces, in place */
    SP_BACKEND_MAKE_DIR, /* with its parents; one that is there is fine */
    SP_BACKEND_COPY,     /* a file, with its mode, to `target` */
    SP_BACKEND_REMOVE,   /* a file */
};

/* One operation, embedded in the asker. What is asked is borrowed for the call; fn is called once,
 * from the loop. */
struct sp_backend_file {
    void (*fn)(struct sp_backend_file *f);
    enum sp_backend_file_op op;
    const char *path, *target;
    struct sp_str data;             /* WRITE */
    const struct sp_policy *policy; /* NULL: no sandbox */
    bool refuses_links;             /* in any component; not of COPY */

    struct sp_err error;  /* code NONE: it was done. sys: errno, where the place tells it */
    bool is_file, is_dir; /* STAT */
    uint64_t size;
    struct sp_buf text; /* READ; the asker's, to be freed */

    struct sp_backend *backend; /* NULL: not asked */
    void *impl;                 /* the backend's */
};

struct sp_backend_ops {
    int (*start)(struct sp_backend *b, struct sp_job *j, const struct sp_launch *l,
                 struct sp_err *e);
    void (*write)(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes);
    void (*close_stdin)(struct sp_job *j, struct sp_job_call *c);
    void (*signal)(struct sp_job *j, struct sp_job_call *c, int signal);
    void (*resize)(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols);
    void (*terminate)(struct sp_job *j, struct sp_job_call *c);
    void (*go_on)(struct sp_job *j);
    void (*release)(struct sp_job *j);
    void (*ask_facts)(struct sp_backend *b, struct sp_backend_wait *w);
    void (*forget_facts)(struct sp_backend_wait *w);        /* stops waiting; not waiting is fine */
    void (*free)(struct sp_backend *b);                     /* every job has been released */
    void (*flush)(struct sp_job *j, struct sp_job_call *c); /* NULL: see sp_job_flush */
    bool (*look)(struct sp_job *j, struct sp_job_look *l);  /* NULL: it cannot tell */
    int (*file)(struct sp_backend *b, struct sp_backend_file *f, struct sp_err *e); /* or NULL */
    void (*forget_file)(struct sp_backend_file *f);
};

struct sp_backend {
    const struct sp_backend_ops *ops;
    struct sp_loop *loop;
};

void sp_backend_ask_facts(struct sp_backend *b, struct sp_backend_wait *w);
void sp_backend_forget_facts(struct sp_backend_wait *w);
/* Whether files are asked of it; those of a local one are on our own disk. */
bool sp_backend_has_files(const struct sp_backend *b);
/* 0: fn will be called. -SP_E_...: it will not. */
int sp_backend_ask_file(struct sp_backend *b, struct sp_backend_file *f, struct sp_err *e);
void sp_backend_forget_file(struct sp_backend_file *f); /* its end is not told; not asked is fine */
void sp_backend_free(struct sp_backend *b);             /* NULL is fine */

#endif
