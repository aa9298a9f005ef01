/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: the processes of one client, which outlive its connections; and the server that holds
 * the sessions and counts every limit.
 *
 *   new --> ATTACHED --connection ends--> DETACHED --session_ttl--> ended, its processes killed
 *               ^---------resume-------------'
 */
#ifndef SP_CORE_SESSION_H
#define SP_CORE_SESSION_H

#include "core/cell_pool.h"
#include "core/proc.h"

#define SP_SESSION_ID 36

/* The connection a session is attached to. */
struct sp_session_client {
    void (*news)(struct sp_session_client *c, struct sp_proc *p); /* p has records to send */
    void (*gone)(struct sp_session_client *c,
                 struct sp_proc *p);                /* p is being freed; it had news */
    void (*challenge)(struct sp_session_client *c); /* somebody wants your session: still there? */
};

struct sp_server;

struct sp_session {
    struct sp_server *server;
    struct sp_session *prev, *next;
    char id[SP_SESSION_ID + 1];
    uint64_t number;
    struct sp_session_client *client; /* NULL: detached */
    struct sp_timer expiry;
    struct sp_proc *first, *last;
    struct sp_proc **buckets;
    uint32_t bucket_count, proc_count;
    uint32_t starting; /* processes that are STARTING */
};

/* Counts for metrics; every one only grows, but for the last. */
struct sp_server_stats {
    uint64_t started, failed_starts;
    uint64_t finished_ok, finished_error, finished_terminated, finished_lost;
    uint64_t output_bytes, dropped_bytes;
    uint32_t live; /* STARTING, RUNNING or EXITED */
};

/* What the processes' ids, arguments and directories may take together. */
#define SP_SERVER_MAX_HELD (256U << 20)

struct sp_server_options {
    const char *program;
    uint32_t max_processes;
    uint64_t session_ttl_ms, closed_ttl_ms;
    bool use_cgroups;
    uint64_t nofile_soft, nofile_hard;
    struct sp_fixed_places fixed; /* what no policy opens; borrowed */
    const char *runtime_dir;      /* NULL: none */
    bool is_exposed;              /* whoever has network can ask us for anything */
    bool is_embedded; /* in somebody else's program; the cell is made for the first command */
    void *user;
    void (*drained)(void *user); /* the cell was congested and is not any more */
    /* A session ends: nothing of its kind comes again. NULL: nobody wants to know. */
    void (*ended)(void *user, const struct sp_session *session);
};

struct sp_files;

struct sp_server {
    struct sp_loop *loop;
    struct sp_server_options options;
    struct sp_cells *cells;
    struct sp_cell *cell; /* the open one */
    bool has_lost_cell;   /* the next start makes a new one */
    struct sp_journal *journal;
    struct sp_cell_pool *cell_pool;
    struct sp_files *files; /* file operations (files.h) */
    struct sp_session *first;
    uint32_t session_count;
    uint32_t proc_count; /* of all sessions */
    uint32_t starting;   /* likewise: processes that are STARTING */
    uint64_t next_session;
    size_t held_bytes; /* ids, arguments and directories of all processes */
    struct sp_server_stats stats;
};

int sp_server_new(struct sp_loop *loop, const struct sp_server_options *o, struct sp_server **ret,
                  struct sp_err *e);
/* Ends every session and the cell. All clients must have detached. */
void sp_server_free(struct sp_server *s);

/* An open cell that takes starts: the one there is, or a new one if that was lost. */
int sp_server_cell(struct sp_server *s, struct sp_cell **ret, struct sp_err *e);
uint64_t sp_server_pushes(const struct sp_server *s); /* as sp_cells_pushes */

int sp_session_new(struct sp_server *s, struct sp_session_client *c, struct sp_session **ret,
                   struct sp_err *e);
/* SP_E_STATE: unknown; SP_E_ATTACHED: another connection has it (which is asked for a sign of
 * life). */
int sp_session_resume(struct sp_server *s, struct sp_str id, struct sp_session_client *c,
                      struct sp_session **ret, struct sp_err *e);
/* NULL: there is none of that id. */
struct sp_session *sp_server_find(const struct sp_server *s, struct sp_str id);
/* The connection has ended. keep: for session_ttl; else the session ends now. */
void sp_session_detach(struct sp_session *s, bool keep);

struct sp_proc *sp_session_find(const struct sp_session *s, struct sp_str id);
/* For proc.c. */
bool sp_session_add(struct sp_session *s, struct sp_proc *p);
void sp_session_remove(struct sp_session *s, struct sp_proc *p);

#endif
