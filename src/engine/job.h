/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job: one process behind a backend, as its owner sees it; and the backend, local or remote.
 *
 * A job is embedded in the owner's struct. The owner calls the functions below; the backend reports
 * through the ops, in this order:
 *
 *   start --> started --> output* --> exited --> output* --> closed
 *        '--> refused         '-----------'-----------'----> failed (instead of the rest)
 *
 * No op is called from inside a function that the owner calls, only from the loop. After refused,
 * closed or failed no op is called any more, and the job may be released or started again. A
 * backend never blocks the loop and never drops output without calling gap.
 */
#ifndef SP_ENGINE_JOB_H
#define SP_ENGINE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "base/receipt.h"
#include "base/str.h"
#include "base/stream.h"
#include "core/proc.h"
#include "engine/command_env.h"
#include "engine/shell.h"
#include "os/inspect.h"
#include "os/loop.h"

struct sp_backend;
struct sp_job;

/* What the process really runs under; the denial heuristics need it. */
enum sp_job_sandbox { SP_JOB_SANDBOX_UNKNOWN, SP_JOB_SANDBOX_NONE, SP_JOB_SANDBOX_LINUX };

struct sp_job_exit {
    int code;   /* 0 to 255, 128 + signal; -1: unknown */
    int signal; /* 0: none, or unknown */
    int denied; /* by the sandbox, as the executor judged: 1 or 0; -1: not judged */
    const struct sp_denial_facts *denial; /* evidence; NULL: unknown. Borrowed */
    const struct sp_exit *kernel;         /* the kernel's record; NULL: unknown. Borrowed */
    pid_t by; /* who ended it from elsewhere, by a local socket; 0: not known */
    uid_t by_uid;
    struct sp_limit_hits limits;
    struct sp_str network; /* sp_managed_add_receipt; n 0: unknown or empty. Borrowed */
};

struct sp_job_ops {
    void (*started)(struct sp_job *j, enum sp_job_sandbox sandbox);
    void (*refused)(struct sp_job *j, const struct sp_err *e);
    /* Bytes of stdout, stderr or a terminal; borrowed, never empty. false: not accepted; the same
     * bytes come again, first, after sp_job_go_on. */
    bool (*output)(struct sp_job *j, enum sp_stream stream, struct sp_str bytes);
    /* Output was lost before the next bytes; bytes 0: unknown amount. */
    void (*gap)(struct sp_job *j, uint64_t bytes);
    void (*exited)(struct sp_job *j, const struct sp_job_exit *how); /* once */
    void (*closed)(struct sp_job *j);                                /* once, after exited */
    /* Its network has denied something, for the first time (sp_proc_denial); after started, before
     * exited. Borrowed; may not release the job. May be NULL. */
    void (*denied)(struct sp_job *j, const struct sp_net_denial *d);
    /* The connection or the cell is gone for good; the process's fate is unknown. Not an exit. */
    void (*failed)(struct sp_job *j, const char *why);
    /* What it consumed, as far as the executor tells: before exited, perhaps in part, and before
     * closed. Borrowed; may not release the job. May be NULL. */
    void (*receipt)(struct sp_job *j, const struct sp_command_receipt *r);
};

struct sp_job {
    struct sp_backend *backend; /* NULL: not started or released */
    const struct sp_job_ops *ops;
    void *impl; /* private to the backend */
};

struct sp_run_plan;
/* Applies an approved plan to a start: its sandbox, or the argv and program of a run without one.
 * The plan must outlive the start. The caller adds the variables in plan->unconfined.marks. */
void sp_job_apply_plan(struct sp_start *s, const struct sp_run_plan *p);

enum sp_job_result {
    SP_JOB_OK,
    SP_JOB_FULL,     /* write: the queue is full, no byte was taken */
    SP_JOB_NO_STDIN, /* no stdin, or it is closed */
    SP_JOB_GONE,     /* it has exited, or is unknown to the executor */
    SP_JOB_NOT_YET,  /* still starting */
    SP_JOB_LOST,     /* the connection is gone for good; see error */
    SP_JOB_REFUSED,  /* any other failure; see error */
};

/* One call to a job, embedded in the caller. fn is called once, from the loop, with result and
 * error set. Dropped without a callback when the job is released. */
struct sp_job_call {
    void (*fn)(struct sp_job_call *c);
    struct sp_job *job;
    enum sp_job_result result;
    struct sp_err error;
    struct sp_list link; /* private to the backend */
};

/* An inspection of a process by its executor. */
struct sp_job_inspection {
    struct sp_job_call call;          /* result OK: `found` is filled */
    uint16_t ports[SP_INSPECT_PORTS]; /* ports to look for among its listening sockets */
    uint32_t port_count;
    bool wants_doing; /* state and holders of its output; false: only the ports */
    struct sp_inspection found;
};

/* The label begins its id on the wire, unless s->id is given; cwd is a path on the host of the
 * process. 0: started or refused follows. -SP_E_...: not started, no op is called. */
int sp_job_start(struct sp_backend *b, struct sp_job *j, const struct sp_job_ops *ops,
                 const struct sp_start *s, struct sp_err *e);

/* OK: queued, and delivered exactly once even over a reconnect. The bytes are copied. */
void sp_job_write(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes);
void sp_job_close_stdin(struct sp_job *j, struct sp_job_call *c); /* after all queued input */
/* Answered when the process has read all input, or never will; a caller with much input then writes
 * the next piece. false: not supported by this backend, and not needed: it answers writes late
 * enough. */
bool sp_job_flush(struct sp_job *j, struct sp_job_call *c);
/* To the process group. Also OK after the exit; SIGKILL then ends the rest of the group. */
void sp_job_signal(struct sp_job *j, struct sp_job_call *c, int signal);
void sp_job_resize(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols);
/* Kills the process tree. OK: confirmed; a local process has been reaped by then, or 1 s has
 * passed. Output, exit and close are reported as usual. */
void sp_job_terminate(struct sp_job *j, struct sp_job_call *c);
/* Between started and closed. false: this backend cannot inspect this job, and fn is not called. */
bool sp_job_inspect(struct sp_job *j, struct sp_job_inspection *l);
/* The owner can accept the output that it refused. */
void sp_job_go_on(struct sp_job *j);
/* No op and no callback follows. A live process is terminated, unless it has a name and runs on a
 * server: then it is left there, with its session. */
void sp_job_release(struct sp_job *j);

/*
 * ---- whether a command failed because its sandbox denied it something ----
 *
 * For runs and sessions alike: first the executor's verdict, then the kernel's evidence, and last
 * the words of the output, which are only a guess.
 */

/* The guess alone, from both streams; output collected as one stream goes into `err`. false without
 * a sandbox or without an exit code (-1). */
bool sp_denied_is_likely(enum sp_job_sandbox sandbox, int exit_code, struct sp_str out,
                         struct sp_str err);

/* Verdict, evidence and guess. `sandbox` is that of the attempt that ran. */
bool sp_denied_judge(enum sp_job_sandbox sandbox, const struct sp_job_exit *how, struct sp_str out,
                     struct sp_str err);

/* Name of a system call; NULL: unknown. */
const char *sp_denied_call_name(int call);

/* ---- backends ---- */

/* Facts about the host where commands run. */
struct sp_backend_facts {
    bool is_remote;
    /* The shell of a remote host; the engine looks for a local one itself (sp_shell_find). */
    enum sp_shell_type shell_type; /* SP_SHELL_UNKNOWN: none */
    const char *shell_name;        /* in the executor's words; NULL: none */
    const char *shell_path;        /* NULL: none */
    const char *cwd;               /* absolute; NULL: unknown */
    bool can_close_stdin;
    bool can_name;                              /* struct sp_start.name has an effect */
    bool can_limit;                             /* struct sp_start.limits */
    bool judges;                                /* a start may wait for a person there */
    enum sp_limit_scope limits[SP_LIMIT_COUNT]; /* what each limit counts there */
};

/* A request for the facts. fn is called once, from the loop: facts NULL means that the host cannot
 * be reached, and e says why. */
struct sp_backend_wait {
    void (*fn)(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
               const struct sp_err *e);
    struct sp_list link;
    struct sp_backend *backend; /* NULL: not waiting */
};

/* ---- files of a remote host ---- */

enum sp_backend_file_op {
    SP_BACKEND_STAT,
    SP_BACKEND_READ,
    SP_BACKEND_WRITE,    /* creates or replaces, in place */
    SP_BACKEND_MAKE_DIR, /* with its parents; an existing one is fine */
    SP_BACKEND_COPY,     /* a file, with its mode, to `target` */
    SP_BACKEND_REMOVE,   /* a file */
};

/* One file operation, embedded in the caller. The request members are borrowed until fn, which is
 * called once, from the loop. */
struct sp_backend_file {
    void (*fn)(struct sp_backend_file *f);
    enum sp_backend_file_op op;
    const char *path, *target;
    struct sp_str data;             /* WRITE */
    const struct sp_policy *policy; /* NULL: no sandbox */
    bool refuses_links;             /* refuse symbolic links in any component; not for COPY */

    struct sp_err error;  /* code NONE: done. sys: errno, if the server sent one */
    bool is_file, is_dir; /* STAT */
    uint64_t size;
    struct sp_buf text; /* READ; the caller frees it */

    struct sp_backend *backend; /* NULL: not asked */
    void *impl;                 /* private to the backend */
};

/* What a backend does with a job. */
struct sp_backend_job_ops {
    int (*start)(struct sp_backend *b, struct sp_job *j, const struct sp_start *s,
                 struct sp_err *e);
    void (*write)(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes);
    void (*close_stdin)(struct sp_job *j, struct sp_job_call *c);
    void (*signal)(struct sp_job *j, struct sp_job_call *c, int signal);
    void (*resize)(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols);
    void (*terminate)(struct sp_job *j, struct sp_job_call *c);
    void (*go_on)(struct sp_job *j);
    void (*release)(struct sp_job *j);
    void (*flush)(struct sp_job *j, struct sp_job_call *c);         /* NULL: see sp_job_flush */
    bool (*inspect)(struct sp_job *j, struct sp_job_inspection *l); /* NULL: not supported */
};

struct sp_backend_ops {
    const struct sp_backend_job_ops *job;
    void (*ask_facts)(struct sp_backend *b, struct sp_backend_wait *w);
    void (*forget_facts)(struct sp_backend_wait *w); /* only if w->backend is set */
    void (*free)(struct sp_backend *b);              /* after all its jobs were released */
    int (*file)(struct sp_backend *b, struct sp_backend_file *f,
                struct sp_err *e); /* NULL: local files are read directly */
    void (*forget_file)(struct sp_backend_file *f);
};

struct sp_backend {
    const struct sp_backend_ops *ops;
    struct sp_loop *loop;
    /* The connection to a server is lost and being resumed (why), or has been resumed (NULL). Set
     * by the owner; NULL: it is not told. */
    void (*connection)(void *user, const char *why);
    void *user;
};

void sp_backend_ask_facts(struct sp_backend *b, struct sp_backend_wait *w);
void sp_backend_forget_facts(struct sp_backend_wait *w);
void sp_backend_free(struct sp_backend *b); /* NULL is fine */

#endif
