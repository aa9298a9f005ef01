/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_priv: a client from inside. client.c has its life, client_ask.c its requests,
 * client_wire.c the messages; nobody else includes this.
 *
 *   IDLE --connect--> DIALING --> OPENING --link--> GREETING --initialize--> READY
 *                        ^                             |                       |
 *                        '---time--- RESTING <---------'------- lost ----------'
 *
 * LEAVING: the link is being closed by us, and its end moves us on. DEAD from anywhere.
 */
#ifndef SP_ENGINE_REMOTE_CLIENT_PRIV_H
#define SP_ENGINE_REMOTE_CLIENT_PRIV_H

#include "engine/remote/client.h"
#include "engine/remote/dial.h"
#include "engine/remote/remote_program.h"
#include "server/net/intake.h"
#include "server/net/link_open.h"

enum sp_client_state { IDLE, DIALING, OPENING, GREETING, READY, LEAVING, RESTING, DEAD };

struct sp_client_requests {
    struct sp_client_request *first, *last;
};

struct sp_client {
    struct sp_loop *loop;
    const struct sp_client_ops *ops;
    void *user;
    enum sp_client_state state;

    char *where; /* the URL without its query, or the program's name */
    char **program, **env;
    char *token, *name;
    uint64_t connect_ms, resume_ms;
    struct sp_target target;

    struct sp_link_host host;
    struct sp_link *link; /* the open one */
    struct sp_dial dial;
    struct sp_remote_program child;
    struct sp_timer timer;       /* GREETING: patience, or the next try; RESTING: the next try */
    struct sp_deferred begin;    /* connects */
    struct sp_deferred refusals; /* tells them */
    struct sp_deferred sweep;    /* frees */
    struct sp_json json;

    char *session;     /* NULL: none yet */
    uint64_t greeting; /* the id of initialize; 0: not asked */
    uint64_t greet_until_ms;
    uint64_t lost_ms;  /* since when a connection is wanted; 0: it was never lost */
    uint64_t ready_ms; /* when it last had one */
    unsigned tries;
    struct sp_err error; /* why the last connection ended */

    struct sp_client_requests sent, queued, refused;
    uint32_t count;
    size_t bytes; /* of texts that are kept */
    uint64_t last_id;

    unsigned depth; /* callbacks we are in */
    bool has_heard; /* something sensible on this connection, after its greeting */
    bool is_paused, is_freed;
    char scratch[SP_INTAKE_SCRATCH + 1];
};

/* client.c */
void sp_client_enter(struct sp_client *c);
void sp_client_leave(struct sp_client *c);
void sp_client_die(struct sp_client *c);                      /* of c->error */
void sp_client_abandon(struct sp_client *c, const char *why); /* this connection, for another */
void sp_client_retry_greeting(struct sp_client *c);

/* client_ask.c */
void sp_client_flush(struct sp_client *c);
void sp_client_requeue(struct sp_client *c); /* those that may be sent again; the others are lost */
void sp_client_lose_all(struct sp_client *c);
void sp_client_forget_all(struct sp_client *c);

void sp_client_greet(struct sp_client *c);
void sp_client_hear(struct sp_client *c, char *text, size_t len);

#endif
