/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn: one client's connection.
 *
 * Words, from the bytes up: a link carries messages (net/link.h). A conn is the JSON-RPC state of
 * one link. A client is who speaks at its other end. A session is what the client owns, above all
 * its processes; it outlives the conn, and another conn can resume it. A call is one request while
 * its method runs; a sp_request is a call that was parked.
 *
 * conn.c reads the JSON-RPC envelope, calls the method and writes replies. A request is answered at
 * once or parked as a sp_request until its process, its file or its time-out comes; a parked
 * request delays no other. The limits below bound what a client can make the server hold.
 *
 *   NEW --initialize--> GREETED --initialized--> READY
 */
#ifndef SP_SERVER_RPC_CONN_H
#define SP_SERVER_RPC_CONN_H

#include "base/json.h"
#include "base/list.h"
#include "core/files.h"
#include "core/http_client.h"
#include "core/session.h"
#include "core/strikes.h"
#include "os/host.h"
#include "server/net/link.h"
#include "server/rpc/confirm.h"
#include "server/rpc/params.h"

#define SP_CONN_MAX_READS  4096        /* parked process/read */
#define SP_CONN_MAX_WRITES 1024        /* blocked process/write */
#define SP_CONN_MAX_PARKED (64U << 20) /* bytes that parked requests hold */
#define SP_CONN_MAX_VIEWS  256         /* attached processes of other sessions */
#define SP_CONN_MAX_QUEUED (4U << 20)  /* unsent replies: no further request is read beyond this */

#define SP_RPC_BUCKETS 21 /* of the request duration histogram */

struct sp_method_stats {
    const struct sp_method *method; /* NULL: of requests for unknown methods */
    uint64_t ok, error, disconnected;
    uint64_t total_us;
    uint64_t buckets[SP_RPC_BUCKETS + 1];
};

/* What kind of listener a connection came by: which methods it may call (conn.c). */
enum sp_door {
    SP_DOOR_CLIENTS,  /* of a server: clients, by their token */
    SP_DOOR_LOCAL,    /* a server's local socket: programs of this user */
    SP_DOOR_OVERSEER, /* the local socket of a front that is no server: look and intervene */
};

struct sp_rpc_door {
    struct sp_rpc *rpc;
    enum sp_door kind;
};

/* A console: a person's program, which named the person in `initialize`. */
struct sp_console_peer {
    char *who, *via; /* owned; who NULL: the connection is no console */
    bool may_decide; /* its roles include `approver` */
};

struct sp_fs;
struct sp_fs_handle;
struct sp_method;
struct sp_questions;
struct sp_request;
struct sp_start_gate;
struct sp_watches;

/* Shared by all connections. */
struct sp_rpc {
    struct sp_front *front;
    struct sp_host host;
    char *const *env;               /* variables that commands may inherit */
    bool keeps_sessions;            /* false on stdio: the session ends with its connection */
    struct sp_start_gate *gate;     /* decides about every start; NULL: all may start */
    struct sp_questions *questions; /* that a console may answer; NULL: there are none */
    const char *kind;               /* of this program: serve, user, mcp, exec or library */
    pid_t keeper;                   /* the server's pid; 0: ours */
    struct sp_json json;            /* the tape of the message that is being read */
    struct sp_watches *watches;     /* fs/watchMissing; NULL until the first one */
    struct sp_web *web;             /* http/request; NULL until the first one */
    struct sp_list conns;
    struct sp_method_stats *stats; /* in the order of the tables; the last is for unknown methods */
    size_t stats_count;
    uint64_t connections;
    int64_t started_ms; /* since 1970; of the server */
    struct sp_strikes strikes;
};

enum sp_conn_state { SP_CONN_NEW, SP_CONN_GREETED, SP_CONN_READY };

struct sp_conn {
    struct sp_session_client client; /* how the session calls us: news, gone, challenge */
    struct sp_rpc *rpc;
    struct sp_link *link; /* valid until its ops.closed, which frees this struct */
    struct sp_list in_rpc;
    enum sp_conn_state state;
    enum sp_door door;
    struct sp_console_peer console;
    bool watches_approvals; /* approval/watch was called */
    /* We have hung up: further messages are ignored. A link that the peer closes does not set it:
     * records pushed until ops.closed are lost to the connection, but not to process/read. */
    bool is_closing;
    bool is_paused;             /* the link reads no requests: replies pile up, or ... */
    bool waits_for_cell;        /* ... the socket of a cell is full */
    bool ends_session;          /* session/end was called: no resume */
    bool takes_approvals;       /* the client answers approval/request */
    bool takes_receipts;        /* it is told what its commands consumed */
    bool takes_denials;         /* it is told at once what a network denies them */
    struct sp_session *session; /* NULL until initialize; detached, not freed, with the link */
    struct sp_list requests;    /* parked */
    unsigned parked_reads, parked_writes;
    size_t parked_bytes;
    struct sp_waiters on_drained; /* reads with a result that found the link full */
    struct sp_list news;          /* sp_proc.in_news: own processes with records to send */
    struct sp_confirm confirm;    /* what the client has read of them */
    struct sp_list views;         /* attached processes of other sessions */
    unsigned view_count;
    struct sp_list view_news; /* those with records to send */
    bool is_views_turn;       /* own processes were served last */
    struct sp_list gated;     /* struct sp_gated */
    struct sp_list asks;      /* requests to the client without an answer */
    unsigned ask_count;
    uint64_t last_ask; /* number of the last request to the client, for its id */
    struct sp_files_client files;
    struct sp_fs *fs; /* open files; NULL until the first one */
    struct sp_web_client web;
    struct sp_list web_jobs; /* http/request under way */
};

/* One request while its method runs. All strings are borrowed from the message. */
struct sp_rpc_call {
    struct sp_conn *conn;
    struct sp_json *json;
    const struct sp_method *method;
    struct sp_method_stats *stats; /* of the method */
    uint32_t params;               /* token, or SP_JSON_NONE */
    struct sp_str id;              /* raw JSON */
    uint64_t started_us;
    struct sp_str text; /* copy of the message if its process may still be starting; else p NULL */
};

/* State of a request that takes several steps; embedded as the first member. */
struct sp_task {
    void (*free)(struct sp_task *t); /* called once, when the request ends or is dropped */
};

/* A parked request. */
struct sp_request {
    struct sp_conn *conn;
    struct sp_list link;           /* in conn->requests */
    struct sp_method_stats *stats; /* of its method */
    uint64_t started_us;
    struct sp_proc *proc; /* counted in proc->requests; NULL: none */
    struct sp_waiter waiter;
    struct sp_waiter on_freed; /* the process is freed with its session: the request fails */
    struct sp_timer timer;
    size_t held_bytes;
    bool is_read, is_write, is_cell_call, is_stdin_end; /* the live member of the union below */
    bool is_file;         /* file.call is pending, and must be dropped with the request */
    struct sp_task *task; /* NULL: none */
    /* The flags above say which member is live; without a flag it is start or again, by who parked
     * the request. is_stdin_end is a closeStdin, which has no member. */
    union {
        struct {
            uint64_t after_seq, max_bytes;
            bool is_due; /* timed out: answered as soon as the link has room */
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
        } cell_call;
        struct {
            struct sp_str text; /* behind the struct: the message, to be parsed again */
        } again;
        struct {
            struct sp_files_call call;
            void (*done)(struct sp_request *r, const struct sp_file_answer *a);
            struct sp_task task;         /* drops the reference to the handle */
            struct sp_fs_handle *handle; /* of fs/open or a block; NULL: none */
            struct sp_str name;          /* behind the struct: the path, for error texts */
            bool follows;
            char *reply;          /* room for the result, reserved while a file is read; or NULL */
            size_t encoded, room; /* bytes of the file: encoded so far, and that fit */
        } file;
    };
    struct sp_str id; /* behind the struct and its extra bytes */
};

/* The answer of a method about a process that waits for the gate. */
enum sp_gated_answer {
    SP_GATED_REFUSE,   /* the error "is starting" */
    SP_GATED_EXISTS,   /* the error "already exists" */
    SP_GATED_STARTING, /* the status `starting` */
    SP_GATED_NOTHING,  /* {} */
    SP_GATED_CANCEL,   /* that it is running; the start ends with an error */
};

/* A start that waits for the gate, in conn->gated (m_start.c). */
struct sp_gated {
    struct sp_list link;
    struct sp_request *request; /* of the start */
    struct sp_str id;           /* of the process */
};

struct sp_method {
    const char *name;   /* NULL: the end of the table */
    const char *family; /* for the texts of state errors; NULL: allowed in every state */
    /* Negative: the error in *e is sent; else the call is answered or parked. Order: decode,
     * sp_rpc_call_check, work. */
    int (*fn)(struct sp_rpc_call *c, struct sp_err *e);
    enum sp_gated_answer gated;
};

/* The methods of a family, and what it keeps for a connection. Each m_ file has one, at its end;
 * conn.c joins them. */
struct sp_family {
    const struct sp_method *methods;
    /* A connection ended, and its requests before it; the server ends, after all connections. NULL:
     * nothing to do. */
    void (*closed)(struct sp_conn *conn);
    void (*ended)(struct sp_rpc *rpc);
};
extern const struct sp_family sp_session_family, sp_config_family, sp_discover_family,
    sp_start_family, sp_process_family, sp_observe_family, sp_history_family, sp_fs_family,
    sp_watch_family, sp_http_family, sp_network_family, sp_approval_family;

/* The caller sets front, host, env, keeps_sessions and gate. false: no memory. */
bool sp_rpc_init(struct sp_rpc *rpc);
/* Frees what the connections shared; all of them are closed. */
void sp_rpc_done(struct sp_rpc *rpc);

/* For sp_listen_options.opened; user is a struct sp_rpc_door, which outlives the listener. */
bool sp_conn_opened(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                    void **ret_user);
/* Ends the connection, after a protocol violation for example. The link's ops.closed frees it
 * later, from the loop. why: static text. */
void sp_conn_hang_up(struct sp_conn *conn, const char *why);
/* Tells clients that the server ends, before the listeners close their links: those with lines on a
 * unix socket by the notification server/ending. A WebSocket says it with its close frame, and a
 * client on stdio sees the end of its pipes. */
void sp_conn_tell_end(struct sp_rpc *rpc);
/* A cell's socket has room again. */
void sp_conn_resume_all(struct sp_rpc *rpc);

/* ---- for the methods ---- */

/* Whether the connection is in the state that the method needs. */
int sp_rpc_call_check(const struct sp_rpc_call *c, struct sp_err *e);
/* The params, which must be an object. */
struct sp_params sp_rpc_call_params(const struct sp_rpc_call *c, struct sp_err *e);

/* Reserves room for a reply: the text of "result", at most `max` bytes, goes to the returned place.
 * NULL: the link is closing. */
char *sp_reply_begin(struct sp_conn *conn, struct sp_str id, size_t max);
void sp_reply_end(struct sp_conn *conn, struct sp_str id, const char *begin, char *end);
void sp_conn_reply_error(struct sp_conn *conn, struct sp_str id, int code, struct sp_str message);
/* The same for a start that rules, the policy or an answer refused: `data` says so. */
void sp_conn_reply_rejected(struct sp_conn *conn, struct sp_str id, int code,
                            struct sp_str message);
/* Returns 0, so that a method can end with it. */
int sp_rpc_call_reply(struct sp_rpc_call *c, struct sp_str result);

/* Parks the request, with `extra` bytes behind it. NULL and an error: at a limit, no memory. */
struct sp_request *sp_rpc_call_park(struct sp_rpc_call *c, size_t extra, struct sp_err *e);
/* Counts memory elsewhere that lives as long as the request. */
int sp_request_charge(struct sp_request *r, size_t bytes, struct sp_err *e);
/* Refers to a process, which is not forgotten until the request ends. */
void sp_request_hold(struct sp_request *r, struct sp_proc *p);
char *sp_request_extra(struct sp_request *r); /* the extra bytes, aligned for any type */

/* Each of these ends the request and frees it. */
void sp_request_reply(struct sp_request *r, struct sp_str result);
void sp_request_fail(struct sp_request *r, const struct sp_err *e);
void sp_request_end(struct sp_request *r, bool is_ok); /* after sp_reply_end */
void sp_request_drop(struct sp_request *r);            /* without an answer */

/* With an error made of the arguments of sp_fail behind its first. */
#define sp_request_refuse(r, ...)        \
    do {                                 \
        struct sp_err e_ = {0};          \
        (void)sp_fail(&e_, __VA_ARGS__); \
        sp_request_fail(r, &e_);         \
    } while (0)
#define sp_request_fail_memory(r, what) sp_request_refuse(r, SP_E_SYSTEM, ENOMEM, what)

/* ---- which process a request is about ---- */

struct sp_proc_target {
    struct sp_str session; /* p NULL: the connection's own */
    struct sp_str id;
};
/* processId, and sessionId if it is there. */
void sp_proc_target_read(const struct sp_params *p, struct sp_proc_target *ret);
/*
 * Checks the state and finds the process; *ret NULL: unknown. 1: the method returns. Then the
 * process is starting, and the call is parked and parsed again from the beginning once it has
 * started; or its start waits for the gate, and the call was answered as sp_method.gated says.
 */
int sp_proc_target_find(struct sp_rpc_call *c, const struct sp_proc_target *t, struct sp_proc **ret,
                        struct sp_err *e);
int sp_proc_target_unknown(const struct sp_proc_target *t, struct sp_err *e); /* the error */

/* ---- output of processes (m_output.c) ---- */

extern const struct sp_str sp_stream_names[SP_STREAM_MAX];
/* Sends the new records of all processes, in turns, until the link is full. Each byte is
 * read once, in the ring, and written once, as base64 in the frame. */
void sp_push_all(struct sp_conn *c);
/* Whether no other connection has the process's input. */
bool sp_process_view_may_type(const struct sp_conn *c, const struct sp_proc *p);

#endif
