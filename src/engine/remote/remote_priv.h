/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_priv: shared by the files of the remote backend. remote.c has its connection, its facts
 * and its files, remote_launch.c writes the params of process/start and of the file methods,
 * remote_job.c follows one process, remote_ask.c answers what the server asks.
 */
#ifndef SP_ENGINE_REMOTE_REMOTE_PRIV_H
#define SP_ENGINE_REMOTE_REMOTE_PRIV_H

#include "base/arena.h"
#include "base/auto.h"
#include "engine/network_job.h"
#include "engine/remote/mirror.h"
#include "engine/remote/remote.h"

struct sp_remote_job;

/* A process/terminate for the process of a released job. */
struct sp_remote_farewell {
    struct sp_client_request request;
    struct sp_list link; /* remote->farewells */
};

struct sp_remote {
    struct sp_backend backend;
    struct sp_arena keep;
    struct sp_client_options options; /* its strings live in keep */
    struct sp_client *client;         /* NULL: not connected, or the last one died */

    struct sp_backend_facts facts;
    bool has_facts;
    bool can_resize, can_signal, can_end_session, can_inspect, can_proxy;
    bool has_kept; /* a named process has started: it is left to the server, with the session */
    char *shell_name, *shell_path, *cwd;
    struct sp_list waits;          /* struct sp_backend_wait, for the facts */
    struct sp_client_request info; /* environment/info, if initialize did not have it */
    struct sp_deferred turn;       /* reports known facts */
    struct sp_timer facts_late;    /* limit for waits */

    struct sp_list jobs, graves; /* struct sp_remote_job; the released ones until the turn ends */
    struct sp_list farewells;    /* struct sp_remote_farewell */
    struct sp_list files;        /* unanswered file operations */
    uint32_t full;               /* number of jobs with is_full */
    uint32_t question_count;     /* of all jobs */

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
    struct sp_list link; /* remote->jobs or remote->graves */
    struct sp_job *job;  /* NULL: released */
    enum sp_remote_state state;
    char *id; /* processId */
    struct sp_mirror mirror;
    struct sp_client_request start, read;
    struct sp_buf launch; /* params of process/start, while STARTING */
    bool is_start_lost;   /* the connection broke before the answer to the start */
    unsigned start_tries; /* repeated starts */
    bool is_sandboxed, has_tty;
    bool is_named;
    struct sp_limit_hits limits;
    bool is_full;
    bool is_due;                    /* mark of a loop over all jobs */
    struct sp_timer timer;          /* STARTING: next check; LIVE: limit for the verdict */
    struct sp_deferred turn;        /* work at the end of the turn */
    bool is_unblocked;              /* sp_job_go_on was called */
    struct sp_network_job *network; /* judges hosts for the server; NULL: they are denied */
    struct sp_list questions;       /* of the server, open */
    struct sp_list calls;           /* requests without an answer */
    struct sp_list answered;        /* calls answered locally; called back at the end of the turn */
    uint32_t call_count;
    size_t input_bytes;
    uint64_t last_write;
};

/* remote.c */
static inline void sp_remote_enter(struct sp_remote *r)
{
    r->depth++;
}
void sp_remote_leave(struct sp_remote *r);
int sp_remote_need_client(struct sp_remote *r, struct sp_err *e);

/* remote_launch.c: each fails if a path or a text cannot be expressed in JSON. */
int sp_remote_write_launch(struct sp_buf *out, const char *id, const struct sp_start *l,
                           const char *cwd, struct sp_err *e);
int sp_remote_write_file(struct sp_buf *out, const struct sp_backend_file *f, struct sp_err *e);

/* remote_ask.c: a request of the server; false: its method is not known. */
bool sp_remote_asked(struct sp_remote *r, struct sp_str method, struct sp_str id, struct sp_json *j,
                     uint32_t params);
void sp_remote_drop_questions(struct sp_remote_job *rj); /* without answers */

/* remote_job.c */
struct sp_remote_job *sp_remote_find_job(const struct sp_remote *r, struct sp_str id);
extern const struct sp_backend_job_ops sp_remote_job_ops;
void sp_remote_notified(struct sp_remote *r, struct sp_str method, struct sp_json *j,
                        uint32_t params);
/* The connection was resumed, or is gone for good (why). */
void sp_remote_tell(struct sp_remote_job *rj, const struct sp_err *why);
void sp_remote_job_free(struct sp_remote_job *rj); /* a released job, at the end of the turn */

#endif
