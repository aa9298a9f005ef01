/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_priv: the remote backend from inside. remote.c has its life and its connection,
 * remote_facts.c what the server is, remote_launch.c how a start is said, remote_job.c one process,
 * remote_calls.c and remote_look.c what is asked of it, remote_file.c its files; nobody else
 * includes this.
 */
#ifndef SP_ENGINE_REMOTE_REMOTE_PRIV_H
#define SP_ENGINE_REMOTE_REMOTE_PRIV_H

#include "base/auto.h"
#include "engine/remote/mirror.h"
#include "engine/remote/remote.h"

#define SP_REMOTE_MAX_EARLY (16U << 20) /* output of a process whose start is not answered yet */
#define SP_REMOTE_MAX_INPUT (1U << 20)  /* written and not answered, for one process */
#define SP_REMOTE_MAX_CALLS 1024        /* not answered, for one process */

struct sp_remote_job;

/* Asked of the server by nobody who waits: the end of a process that was released. */
struct sp_remote_farewell {
    struct sp_client_request request;
    struct sp_remote *remote;
    struct sp_remote_farewell *prev, *next;
};

struct sp_remote {
    struct sp_backend backend;
    struct sp_client_options options; /* all copies */
    struct sp_client *client;         /* NULL: none yet, or the last one died */

    struct sp_backend_facts facts;
    bool has_facts;
    bool can_resize, can_signal, can_end_session, can_inspect;
    char *shell_name, *shell_path, *cwd;
    struct sp_list waits;          /* struct sp_backend_wait, for the facts */
    struct sp_client_request info; /* environment/info, for servers that do not greet with it */
    struct sp_deferred turn;       /* tells facts that are known */
    struct sp_timer facts_late;    /* who waits for them does not wait for ever */

    struct sp_remote_job *jobs, *graves;
    struct sp_remote_farewell *farewells;
    struct sp_remote_file *files; /* operations that are not answered */
    uint32_t full;                /* jobs with more output than their owners take */

    unsigned depth; /* callbacks we are in */
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
    char *id; /* on the wire */
    struct sp_mirror mirror;
    struct sp_client_request start, read;
    struct sp_buf launch; /* the params of its start, while it is starting */
    bool is_start_lost;   /* nobody knows whether the server has it */
    unsigned start_tries; /* beyond the first */
    bool is_sandboxed, has_tty;
    bool is_full;
    bool is_seen, is_doomed; /* while all are gone through */
    struct sp_timer timer;   /* STARTING: to look again; LIVE: for the verdict */
    struct sp_deferred turn; /* what is due at the end of the turn */
    bool is_unblocked;       /* go_on was called */
    struct sp_remote_call *calls;
    struct sp_job_call *answered; /* at once; told at the end of the turn */
    uint32_t call_count;
    size_t input_bytes;
    uint64_t last_write;
};

/* remote.c */
void sp_remote_enter(struct sp_remote *r);
void sp_remote_leave(struct sp_remote *r);
int sp_remote_need_client(struct sp_remote *r, struct sp_err *e);

/* remote_launch.c */
int sp_remote_write_launch(struct sp_buf *out, const char *id, const struct sp_launch *l,
                           const char *cwd, struct sp_err *e);
/* The name and a random UUID, to be freed: a server keeps an ended process for a while, under its
 * name. NULL: no memory, or no chance. */
char *sp_remote_make_id(struct sp_str name);

/* Each appends one member's value; 0 or why it has no spelling. */
int sp_remote_add_uri(struct sp_buf *out, struct sp_str path, struct sp_err *e);
int sp_remote_add_sandbox(struct sp_buf *out, const struct sp_policy *p, struct sp_err *e);

/* remote_file.c */
int sp_remote_ask_file(struct sp_backend *b, struct sp_backend_file *f, struct sp_err *e);
void sp_remote_forget_file(struct sp_backend_file *f);
void sp_remote_drop_files(struct sp_remote *r); /* none of them is told */

/* remote_job.c */
int sp_remote_start(struct sp_backend *b, struct sp_job *j, const struct sp_launch *l,
                    struct sp_err *e);
void sp_remote_go_on(struct sp_job *j);
void sp_remote_release(struct sp_job *j);
void sp_remote_notified(struct sp_remote *r, struct sp_str method, struct sp_json *j,
                        uint32_t params);
void sp_remote_resumed(struct sp_remote_job *rj);
void sp_remote_died(struct sp_remote_job *rj, const struct sp_err *why);
void sp_remote_job_free(struct sp_remote_job *rj); /* one that is in its grave */
void sp_remote_at_turn_end(struct sp_remote_job *rj);

/* remote_calls.c */
void sp_remote_write(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes);
void sp_remote_close_stdin(struct sp_job *j, struct sp_job_call *c);
void sp_remote_signal(struct sp_job *j, struct sp_job_call *c, int signal);
void sp_remote_resize(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols);
void sp_remote_terminate(struct sp_job *j, struct sp_job_call *c);
bool sp_remote_look(struct sp_job *j, struct sp_job_look *l);
void sp_remote_tell_answered(struct sp_remote_job *rj); /* answers that were known at once */
void sp_remote_fail_calls(struct sp_remote_job *rj, const char *why); /* all that are left */
void sp_remote_drop_calls(struct sp_remote_job *rj);
/* {"processId":"ID", and what follows is the caller's */
bool sp_remote_begin_params(struct sp_buf *b, const struct sp_remote_job *rj);
void sp_remote_say_farewell(struct sp_remote_job *rj);
void sp_remote_end_farewell(struct sp_remote_farewell *f);

#endif
