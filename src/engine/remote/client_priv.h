/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_priv: shared by client.c (connection and session) and client_wire.c (messages and
 * requests).
 *
 *   IDLE --connect--> DIALING --> OPENING --link--> GREETING --initialize--> READY
 *                        ^                             |                       |
 *                        '---time--- RESTING <---------'------- lost ----------'
 *
 * LEAVING: we are closing the link; its close event continues. DEAD can follow any state.
 */
#ifndef SP_ENGINE_REMOTE_CLIENT_PRIV_H
#define SP_ENGINE_REMOTE_CLIENT_PRIV_H

#include "engine/remote/client.h"
#include "engine/remote/dial.h"
#include "engine/remote/remote_program.h"
#include "server/net/intake.h"
#include "server/net/link_open.h"

enum sp_client_state { IDLE, DIALING, OPENING, GREETING, READY, LEAVING, RESTING, DEAD };

struct sp_client {
    struct sp_loop *loop;
    const struct sp_client_ops *ops;
    void *user;
    enum sp_client_state state;

    char *where; /* URL without its query, or the program's name; for messages */
    char **program, **env;
    char *token, *name;
    uint64_t connect_ms, resume_ms;
    struct sp_target target;

    struct sp_link_host host;
    struct sp_link *link; /* the open one; NULL: none */
    struct sp_dial dial;
    struct sp_remote_program child;
    struct sp_timer timer; /* GREETING: limit or next try; RESTING: next try */
    struct sp_deferred begin;
    struct sp_deferred refusals; /* answers c->refused */
    struct sp_deferred sweep;
    struct sp_json json;

    char *session;     /* session id; NULL: none yet */
    uint64_t greeting; /* id of the pending initialize; 0: none */
    uint64_t greet_until_ms;
    uint64_t lost_ms;  /* when the connection was lost or first wanted; 0: never */
    uint64_t ready_ms; /* when it last became READY */
    unsigned tries;
    struct sp_err error;

    struct sp_list sent, queued, refused; /* struct sp_client_request */
    uint32_t count;
    size_t bytes; /* total of the kept request texts */
    uint64_t last_id;

    unsigned depth; /* nested callbacks; destroyed when 0 and is_freed */
    bool has_heard; /* a valid message arrived on this connection after initialize */
    bool is_paused, is_freed;
    char scratch[SP_INTAKE_SCRATCH + 1];
};

/* client.c */
void sp_client_enter(struct sp_client *c);
void sp_client_leave(struct sp_client *c);
void sp_client_die(struct sp_client *c); /* with c->error */
void sp_client_abandon(struct sp_client *c,
                       const char *why); /* closes this connection and connects again */
void sp_client_retry_greeting(struct sp_client *c);

/* client_wire.c */
void sp_client_flush(struct sp_client *c);
void sp_client_requeue(
    struct sp_client *c); /* repeatable requests are queued again, the others answered LOST */
void sp_client_lose_all(struct sp_client *c);
void sp_client_forget_all(struct sp_client *c);

void sp_client_greet(struct sp_client *c);
void sp_client_hear(struct sp_client *c, char *text, size_t len);

#endif
