/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: the client side of one exec-server session: requests and answers, notifications, and
 * reconnection.
 *
 *   IDLE --connect--> CONNECTING --initialize--> READY --lost--> CONNECTING (resume) ... --> DEAD
 *
 * A server that says that it shuts down is not tried again: its sessions end with it.
 *
 * A request that was sent but not answered when the connection was lost is sent again after the
 * resume if is_repeatable, and otherwise answered with SP_CLIENT_LOST.
 */
#ifndef SP_ENGINE_REMOTE_CLIENT_H
#define SP_ENGINE_REMOTE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/list.h"
#include "os/loop.h"

/* Where the server is: exactly one of url and program. The strings are borrowed until
 * sp_client_free. */
struct sp_client_options {
    const char *url;            /* ws://HOST:PORT[/PATH], unix:///PATH */
    const char *const *program; /* argv of a server on stdin and stdout; NULL: url */
    const char *const *env; /* NAME=VALUE added to our own variables for the program; may be NULL */
    const char *cwd;        /* default directory of commands there; NULL: the server's */
    const char *token;      /* bearer; NULL: none */
    uint64_t connect_timeout_ms; /* 0: 10 s */
    struct sp_limit_set limits;  /* of --limit, for commands */
    uint64_t resume_ms;          /* limit for resuming a lost connection; 0: 25 s */
    const char *client_name;     /* sent with initialize; NULL: "sallyport" */
    bool wants_receipts;         /* and denials: asks for both with initialize */
    const char *console; /* for the local socket of a server: {"who":...}; NULL: we are a client */
};

struct sp_client;

#define SP_CLIENT_MAX_REQUESTS 4096
#define SP_CLIENT_MAX_BYTES    (64U << 20)

enum sp_client_fate {
    SP_CLIENT_RESULT,  /* the server's result: token `value` of *j */
    SP_CLIENT_REFUSED, /* the server's error: code and message */
    SP_CLIENT_LOST,    /* the connection was lost before an answer */
};

struct sp_client_reply {
    enum sp_client_fate fate;
    struct sp_json *j; /* RESULT: valid during the callback */
    uint32_t value;
    int64_t code;          /* REFUSED */
    struct sp_str message; /* REFUSED, LOST */
    bool is_rejected;      /* REFUSED: by rules, a policy or an answer of the server's */
    bool is_final;         /* LOST: the client is dead */
};

/* Embedded in the caller. */
struct sp_client_request {
    void (*fn)(struct sp_client_request *r, const struct sp_client_reply *reply);
    bool is_repeatable; /* sent again after a resume */
    /* private to the client */
    uint64_t id;
    struct sp_list link;
    struct sp_client *client; /* NULL: not in use */
    struct sp_buf text;
    const char *refusal; /* why it was refused without being sent */
};

struct sp_client_ops {
    /* Initialized: `value` is the result of initialize. was_resumed: the old session continues
     * (false on the first connection). */
    void (*ready)(void *user, struct sp_json *j, uint32_t value, bool was_resumed);
    void (*notified)(void *user, struct sp_str method, struct sp_json *j, uint32_t params);
    /* A request of the server, to be answered with sp_client_answer, at once or later on the same
     * connection. id is JSON text. false: its method is not known. May be NULL. */
    bool (*asked)(void *user, struct sp_str method, struct sp_str id, struct sp_json *j,
                  uint32_t params);
    void (*interrupted)(void *user, const char *why); /* the connection is lost and being resumed */
    /* The last callback, also if no connection was ever made. All requests were answered LOST
     * before. */
    void (*dead)(void *user, const struct sp_err *why);
};

int sp_client_new(struct sp_loop *loop, const struct sp_client_options *o,
                  const struct sp_client_ops *ops, void *user, struct sp_client **ret,
                  struct sp_err *e);
void sp_client_connect(struct sp_client *c); /* does nothing unless IDLE */
/* params: JSON text. Connects first if necessary; answered from the loop. More than
 * SP_CLIENT_MAX_REQUESTS unanswered requests, or more than SP_CLIENT_MAX_BYTES of kept texts, are
 * REFUSED with the code -32603. */
void sp_client_ask(struct sp_client *c, struct sp_client_request *r, const char *method,
                   struct sp_str params);
void sp_client_forget(struct sp_client_request *r); /* drops the callback */
/* Answers a request of the server with a result. id, result: JSON text. */
void sp_client_answer(struct sp_client *c, struct sp_str id, struct sp_str result);
/* Stops reading from the server, so that its output queues up in the kernel and then at the server.
 */
void sp_client_pause(struct sp_client *c, bool is_paused);
/* Waits up to wait_ms for outstanding answers, but not from within a callback of this client; then
 * sends what can be sent at once and closes; no callback follows. A server program gets up to 2.5 s
 * to end. NULL is fine. */
void sp_client_free(struct sp_client *c, unsigned wait_ms);

#endif
