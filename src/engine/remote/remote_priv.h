/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_priv: shared by the files of the remote backend. remote.c has its connection and facts,
 * remote_launch.c writes process/start, remote_job.c follows one process, remote_calls.c sends its
 * calls, remote_file.c its file operations.
 */
#ifndef SP_ENGINE_REMOTE_REMOTE_PRIV_H
#define SP_ENGINE_REMOTE_REMOTE_PRIV_H

#include "base/auto.h"
#include "engine/remote/mirror.h"
#include "engine/remote/remote.h"

#define SP_REMOTE_MAX_EARLY (16U << 20) /* output before the answer to process/start */
#define SP_REMOTE_MAX_INPUT (1U << 20)  /* unanswered input of one process */
#define SP_REMOTE_MAX_CALLS 1024        /* unanswered calls of one process */

struct sp_remote_job;

/* A process/terminate for the process of a released job. */
struct sp_remote_farewell {
    struct sp_client_request request;
    struct sp_remote *remote;
    struct sp_remote_farewell *prev, *next;
};

struct sp_remote {
    struct sp_backend backend;
    struct sp_client_options options; /* owned copies */
    struct sp_client *client;         /* NULL: not connected, or the last one died */

    struct sp_backend_facts facts;
    bool has_facts;
    bool can_resize, can_signal, can_end_session, can_inspect;
    char *shell_name, *shell_path, *cwd;
    struct sp_list waits;          /* struct sp_backend_wait, for the facts */
    struct sp_client_request info; /* environment/info, if initialize did not have it */
    struct sp_deferred turn;       /* reports known facts */
    struct sp_timer facts_late;    /* limit for waits */

    struct sp_remote_job *jobs, *graves;
    struct sp_remote_farewell *farewells;
    struct sp_remote_file *files; /* unanswered operations */
    uint32_t full;                /* number of jobs with is_full */

    unsigned depth; /* nested callbacks; destroyed when 0 and is_freed */
    bool is_freed;
    struct sp_deferred sweep;
};

/*
 *   STARTING --answered--> LIVE --closed, failed--> OVER
 *      '--refused, failed----------------------------^
 */
enum sp_remote_state { SP_REMOTE_STARTING, SP_REMOTE_LIVE, SP_REMOTE_OVER };

struct sp_remote_job {
    struct sp_remote *remote;
    struct sp_remote_job *prev, *next;
    struct sp_job *job; /* NULL: released */
    enum sp_remote_state state;
    char *id; /* processId */
    struct sp_mirror mirror;
    struct sp_client_request start, read;
    struct sp_buf launch; /* params of process/start, while STARTING */
    bool is_start_lost;   /* the connection broke before the answer to the start */
    unsigned start_tries; /* repeated starts */
    bool is_sandboxed, has_tty;
    bool is_full;
    bool is_seen, is_doomed; /* marks of the loops over all jobs */
    struct sp_timer timer;   /* STARTING: next check; LIVE: limit for the verdict */
    struct sp_deferred turn; /* work at the end of the turn */
    bool is_unblocked;       /* sp_job_go_on was called */
    struct sp_remote_call *calls;
    struct sp_list answered; /* calls answered locally; called back at the end of the turn */
    uint32_t call_count;
    size_t input_bytes;
    uint64_t last_write;
};

/* remote.c */
void sp_remote_enter(struct sp_remote *r);
void sp_remote_leave(struct sp_remote *r);
int sp_remote_need_client(struct sp_remote *r, struct sp_err *e);

/* remote_launch.c */
int sp_remote_write_launch(struct sp_buf *out, const char *id, const struct sp_start *l,
                           const char *cwd, struct sp_err *e);
/* NAME-UUID, to be freed: unique, since a server keeps an ended process under its name for a while.
 * NULL: out of memory or of randomness. */
char *sp_remote_make_id(struct sp_str name);

/* Each appends one JSON value. Fails if the value cannot be expressed. */
int sp_remote_add_uri(struct sp_buf *out, struct sp_str path, struct sp_err *e);
int sp_remote_add_sandbox(struct sp_buf *out, const struct sp_policy *p, struct sp_err *e);

/* remote_file.c */
int sp_remote_ask_file(struct sp_backend *b, struct sp_backend_file *f, struct sp_err *e);
void sp_remote_forget_file(struct sp_backend_file *f);
void sp_remote_drop_files(struct sp_remote *r); /* without callbacks */

/* remote_job.c */
int sp_remote_start(struct sp_backend *b, struct sp_job *j, const struct sp_start *l,
                    struct sp_err *e);
void sp_remote_go_on(struct sp_job *j);
void sp_remote_release(struct sp_job *j);
void sp_remote_notified(struct sp_remote *r, struct sp_str method, struct sp_json *j,
                        uint32_t params);
void sp_remote_resumed(struct sp_remote_job *rj);
void sp_remote_died(struct sp_remote_job *rj, const struct sp_err *why);
void sp_remote_job_free(struct sp_remote_job *rj); /* a released job, at the end of the turn */
void sp_remote_at_turn_end(struct sp_remote_job *rj);

/* remote_calls.c */
void sp_remote_write(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes);
void sp_remote_close_stdin(struct sp_job *j, struct sp_job_call *c);
void sp_remote_signal(struct sp_job *j, struct sp_job_call *c, int signal);
void sp_remote_resize(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols);
void sp_remote_terminate(struct sp_job *j, struct sp_job_call *c);
bool sp_remote_look(struct sp_job *j, struct sp_job_look *l);
void sp_remote_tell_answered(struct sp_remote_job *rj); /* calls back for rj->answered */
void sp_remote_fail_calls(struct sp_remote_job *rj, const char *why); /* all calls left */
void sp_remote_drop_calls(struct sp_remote_job *rj);
/* Begins params: {"processId":"ID" */
bool sp_remote_begin_params(struct sp_buf *b, const struct sp_remote_job *rj);
void sp_remote_say_farewell(struct sp_remote_job *rj);
void sp_remote_end_farewell(struct sp_remote_farewell *f);

#endif
