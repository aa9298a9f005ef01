/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: one connection to an exec-server, from the other side: requests and their answers,
 * notifications, and the session that outlives the connection.
 *
 *   IDLE --connect--> CONNECTING --initialize--> READY --lost--> CONNECTING (resume) ... --> DEAD
 *
 * Requests that were sent and not answered when the connection was lost are answered with
 * SP_CLIENT_LOST, or sent again after the resume if they say so (is_repeatable).
 */
#ifndef SP_ENGINE_REMOTE_CLIENT_H
#define SP_ENGINE_REMOTE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "os/loop.h"

/* Where a server is: exactly one of url and program. */
struct sp_client_options {
    const char *url; /* ws://HOST:PORT[/PATH], unix:///PATH */
    const char *const
        *program; /* argv of a program that speaks it on stdin and stdout; NULL: url */
    const char *const
        *env;          /* NAME=VALUE besides our own environment, for the program; may be NULL */
    const char *cwd;   /* default directory of commands there; NULL: the server's */
    const char *token; /* bearer; NULL: none */
    uint64_t connect_timeout_ms; /* 0: 10 s */
    uint64_t resume_ms;          /* how long a lost connection is tried again; 0: 25 s */
    const char *client_name;     /* of initialize; NULL: "sallyport" */
};

struct sp_client;

#define SP_CLIENT_MAX_REQUESTS 4096
#define SP_CLIENT_MAX_BYTES    (64U << 20)

enum sp_client_fate {
    SP_CLIENT_RESULT,  /* the server's result: token `value` of *j */
    SP_CLIENT_REFUSED, /* the server's error: code and message */
    SP_CLIENT_LOST,    /* no answer, and there will be none */
};

struct sp_client_reply {
    enum sp_client_fate fate;
    struct sp_json *j; /* RESULT: gone after return */
    uint32_t value;
    int64_t code;          /* REFUSED */
    struct sp_str message; /* REFUSED, LOST */
    bool is_final;         /* LOST: for good; dead comes next */
};

/* Embedded in the asker. */
struct sp_client_request {
    void (*fn)(struct sp_client_request *r, const struct sp_client_reply *reply);
    bool is_repeatable; /* send it again after a resume */
    /* the client's */
    uint64_t id;
    struct sp_client_request *prev, *next;
    struct sp_client *client; /* NULL: not asked */
    struct sp_buf text;
    const char *refusal; /* ours: the server will not see it */
};

struct sp_client_ops {
    /* Connected and initialized: `value` is the result of initialize. was_resumed: the old session
     * is there again (false on the first connection). */
    void (*ready)(void *user, struct sp_json *j, uint32_t value, bool was_resumed);
    void (*notified)(void *user, struct sp_str method, struct sp_json *j, uint32_t params);
    void (*interrupted)(void *user, const char *why); /* lost for now; it is being tried again */
    /* The last call, also if it never came to be. Requests were answered LOST before. */
    void (*dead)(void *user, const struct sp_err *why);
};

int sp_client_new(struct sp_loop *loop, const struct sp_client_options *o,
                  const struct sp_client_ops *ops, void *user, struct sp_client **ret,
                  struct sp_err *e);
void sp_client_connect(struct sp_client *c); /* begins; being connected is fine */
/*
 * params: the JSON text of the params value. Waits for READY if it must (and begins); answered from
 * the loop. At most SP_CLIENT_MAX_REQUESTS wait for their answers, and texts that must be kept are
 * at most SP_CLIENT_MAX_BYTES: one more is REFUSED with the code -32603.
 */
void sp_client_ask(struct sp_client *c, struct sp_client_request *r, const char *method,
                   struct sp_str params);
void sp_client_forget(struct sp_client_request *r); /* its answer will not be told */
/* Reads nothing from the server for now: what it sends waits in the kernel, then there. */
void sp_client_pause(struct sp_client *c, bool is_paused);
/* Waits for the answers that are due, at most so long, without the loop: for what must be done
 * before the end. Not from within a callback of this client. */
void sp_client_settle(struct sp_client *c, unsigned timeout_ms);
/*
 * The session ends where the server lets it. What is queued is sent if that is possible at once;
 * nothing more is told, no request answered. A program is given up to 2.5 s to end. NULL is fine;
 * so is a call from within a callback of this client.
 */
void sp_client_free(struct sp_client *c);

#endif
