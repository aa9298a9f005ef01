/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn: one client's connection: the envelope, the order of checks, requests that wait, and what
 * is pushed to it.
 *
 *   NEW --initialize--> GREETED --initialized--> READY
 *
 * A request is answered at once or becomes a sp_request that waits for its process or its time. A
 * waiting request stalls no other. Everything here is bounded: see the limits below.
 */
#ifndef SP_SERVER_RPC_CONN_H
#define SP_SERVER_RPC_CONN_H

#include "base/json.h"
#include "core/files.h"
#include "core/http_client.h"
#include "core/session.h"
#include "os/host.h"
#include "server/net/link.h"

#define SP_CONN_MAX_READS  4096        /* parked process/read */
#define SP_CONN_MAX_WRITES 1024        /* blocked process/write */
#define SP_CONN_MAX_PARKED (64U << 20) /* bytes that waiting requests hold */
#define SP_CONN_MAX_VIEWS  256         /* attached processes of other sessions */
#define SP_CONN_MAX_QUEUED (4U << 20)  /* replies not sent: read no more requests beyond this */

/* Upper bounds of the request duration histogram, in microseconds. */
#define SP_RPC_BUCKETS 21
extern const uint64_t sp_rpc_bucket_us[SP_RPC_BUCKETS];

struct sp_method_stats {
    uint64_t ok, error, disconnected;
    uint64_t total_us;
    uint64_t buckets[SP_RPC_BUCKETS + 1];
};

struct sp_start_gate;
struct sp_method;
struct sp_watches;

/* What all connections share. */
struct sp_rpc {
    struct sp_server *server;
    struct sp_host host;
    char *const *environ;
    bool keeps_sessions;        /* false on stdio: the session ends with its connection */
    struct sp_start_gate *gate; /* who is asked before a process starts; NULL: nobody */
    struct sp_json json;
    struct sp_watches *watches; /* of missing files; NULL: none yet */
    struct sp_web *web;         /* requests to web servers; NULL: none yet */
    struct sp_conn *first;
    struct sp_method_stats *stats; /* by method, the last one for unknown methods */
    uint64_t connections;
};

enum sp_conn_state { SP_CONN_NEW, SP_CONN_GREETED, SP_CONN_READY };

struct sp_ask;
struct sp_fs;
struct sp_fs_handle;
struct sp_gated;
struct sp_request;
struct sp_process_view;
struct sp_web_job;

struct sp_conn {
    struct sp_session_client client;
    struct sp_rpc *rpc;
    struct sp_link *link;
    struct sp_conn *prev, *next;
    enum sp_conn_state state;
    bool is_closing;
    bool is_paused;       /* reads no requests: too much is queued */
    bool waits_for_cell;  /* ... for a cell that it asked for something */
    bool ends_session;    /* its client has no use for the session any more */
    bool takes_approvals; /* its client answers approval/request */
    struct sp_session *session;
    struct sp_request *requests; /* those that wait */
    unsigned parked_reads, parked_writes;
    size_t parked_bytes;
    struct sp_waiters on_drained; /* reads that are ready but found the link full */
    struct sp_proc *news_first, *news_last;
    struct sp_process_view *views; /* what it is attached to besides its own processes */
    unsigned view_count;
    struct sp_process_view *view_news_first, *view_news_last;
    bool is_views_turn;     /* its own processes were served last */
    struct sp_gated *gated; /* starts that wait for leave */
    struct sp_ask *asks;    /* what its client was asked and has not answered */
    unsigned ask_count;
    uint64_t last_ask;
    struct sp_files_client files;
    struct sp_fs *fs; /* its open files; NULL: none yet */
    struct sp_web_client web;
    struct sp_web_job *web_jobs; /* its requests to web servers */
};

/* One request while it is looked at. All strings are borrowed from the message. */
struct sp_rpc_call {
    struct sp_conn *conn;
    struct sp_json *json;
    const struct sp_method *method;
    uint32_t params;  /* token, or SP_JSON_NONE */
    struct sp_str id; /* as it was written */
    uint64_t started_us;
    struct sp_str text; /* a copy of the whole message, if it may be about a starting process */
};

/* What a request does in several steps: its first member. */
struct sp_task {
    void (*free)(struct sp_task *t); /* the request ends, in whatever way */
};

/* A request that waits. */
struct sp_request {
    struct sp_conn *conn;
    struct sp_request *prev, *next;
    const struct sp_method *method;
    uint64_t started_us;
    struct sp_proc *proc; /* NULL: none yet */
    struct sp_waiter waiter;
    struct sp_waiter on_freed; /* the process is gone: it belonged to a session that ended */
    struct sp_timer timer;
    size_t held_bytes;
    bool is_read, is_write, is_ask, is_stdin_end, is_file;
    struct sp_fs_handle *handle; /* that a block is read from or written to; NULL: none */
    struct sp_gated *gated;      /* a start that waits for leave; else NULL */
    struct sp_task *task;        /* NULL: none */
    union {
        struct {
            uint64_t after_seq, max_bytes;
            bool is_due; /* its time has passed: answered as soon as the link has room */
        } read;
        struct {
            struct sp_str id, bytes; /* behind the struct */
        } write;
        struct {
            struct sp_start_wait wait;
        } start;
        struct {
            struct sp_proc_call call;
            bool is_signal;
        } ask;
        struct {
            struct sp_str text; /* behind the struct: the message, to be read again */
        } again;
        struct {
            struct sp_files_call call;
            void (*done)(struct sp_request *r, const struct sp_file_answer *a);
            struct sp_str name; /* behind the struct: what the answer is about */
            bool follows;
        } file;
    };
    struct sp_str id; /* behind the struct and its extra bytes */
};

struct sp_method {
    const char *name;
    const char *family; /* in the texts of state errors; NULL: allowed in every state */
    /* 0: answered or waiting; else the error is sent. Order: decode, sp_rpc_call_check, work. */
    int (*fn)(struct sp_rpc_call *c, struct sp_err *e);
    /* The same about a process whose start waits for leave; NULL: the error that it is starting. */
    int (*gated)(struct sp_rpc_call *c, struct sp_request *start, struct sp_err *e);
};

extern const struct sp_method sp_methods[];
extern const size_t sp_method_count;

/* For sp_listen_options.opened; user is the struct sp_rpc. */
bool sp_conn_opened(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                    void **ret_user);
/* The cell takes messages again. */
void sp_conn_resume_all(struct sp_rpc *rpc);

/* ---- for the methods ---- */

/* Whether the connection is in the state that the method needs. */
int sp_rpc_call_check(const struct sp_rpc_call *c, struct sp_err *e);
/* The params as an object. */
int sp_rpc_call_params(const struct sp_rpc_call *c, struct sp_err *e);
/* No params: absent, null or {}. */
int sp_rpc_call_no_params(const struct sp_rpc_call *c, struct sp_err *e);

/* A reply under construction: text for "result" goes to the returned place, at most `max` bytes;
 * NULL: no memory, the connection is closing. */
char *sp_reply_begin(struct sp_conn *conn, struct sp_str id, size_t max);
void sp_reply_end(struct sp_conn *conn, struct sp_str id, const char *begin, char *end);
void sp_rpc_call_reply(struct sp_rpc_call *c, struct sp_str result);
void sp_rpc_call_done(struct sp_rpc_call *c); /* the reply was written by the caller */

/* A waiting request with `extra` bytes of its own behind it. NULL and an error: at a limit. */
struct sp_request *sp_rpc_call_park(struct sp_rpc_call *c, size_t extra, struct sp_err *e);
/* It holds so much elsewhere, too. */
int sp_request_charge(struct sp_request *r, size_t bytes, struct sp_err *e);
/* The process it waits for: not forgotten while a request refers to it. */
void sp_request_hold(struct sp_request *r, struct sp_proc *p);
char *sp_request_extra(struct sp_request *r); /* where those bytes are, aligned for anything */
void sp_request_reply(struct sp_request *r, struct sp_str result);  /* ends it */
void sp_request_fail(struct sp_request *r, const struct sp_err *e); /* ends it */
void sp_request_end(struct sp_request *r, bool is_ok); /* the reply was written by the caller */

/*
 * The process of a session that the call is about, or NULL. One that is starting: the call waits
 * for that and is then read again from the beginning; *ret_waits says so, also of a call that was
 * answered here, since the start waits for leave.
 */
int sp_rpc_call_proc(struct sp_rpc_call *c, const struct sp_session *s, struct sp_str id,
                     struct sp_proc **ret, bool *ret_waits, struct sp_err *e);

#endif
