/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link: one connection that carries whole messages, as WebSocket frames or as lines.
 *
 * The layer above sees messages; HTTP, frames, masks, pings and partial writes stay here. A link
 * never blocks. Its queue of outgoing bytes says when it is full; whoever produces output stops
 * then and goes on when it has drained. Replies may always be queued: the layer above bounds them
 * by not reading more requests (sp_link_pause).
 */
#ifndef SP_SERVER_NET_LINK_H
#define SP_SERVER_NET_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "os/loop.h"

struct sp_link;

#define SP_LINK_MAX_MESSAGE (64U << 20)  /* received, sum of fragments, or one line */
#define SP_LINK_MAX_FRAME   (16U << 20)  /* received, one frame's payload */
#define SP_LINK_MAX_FIRST   (64U << 10)  /* received before the layer above calls sp_link_widen */
#define SP_LINK_FRAGMENT    (1U << 20)   /* sent: larger messages go in fragments of this size */
#define SP_LINK_FULL        (256U << 10) /* queued bytes from which the link counts as full */

enum sp_link_kind {
    SP_LINK_WEBSOCKET, /* TCP or unix socket, after the upgrade */
    SP_LINK_LINES,     /* stdio or unix socket: one message a line */
};

struct sp_link_ops {
    /* One message, valid UTF-8, len bytes, writable in place, gone after return. text[len] may be
     * written too (one byte of room). */
    void (*message)(void *user, char *text, size_t len);
    /* A binary message that is not UTF-8: answered like malformed JSON, the link lives on. */
    void (*not_text)(void *user);
    /* The queue was full and is not any more. */
    void (*drained)(void *user);
    /* The last call; the link is freed after it. why is for logs. */
    void (*closed)(void *user, const char *why);
};

/* Room for one message of at most `max` bytes; NULL: no memory, and the link is closing. Every
 * reserve is followed by one commit (len 0: nothing is sent) before the next reserve. */
char *sp_link_reserve(struct sp_link *l, size_t max);
void sp_link_commit(struct sp_link *l, size_t len);

/* A long message that is made while it is sent, so that it is never in memory as a whole. */
struct sp_link_source {
    /* Writes the next bytes of the text, at least one and at most max, and says how many. */
    size_t (*write)(struct sp_link_source *s, char *out, size_t max);
    /* The last call: all was handed to the kernel, or the link is gone. It may free *s; neither
     * call may use the link. */
    void (*done)(struct sp_link_source *s);
    size_t left; /* all bytes of the text; counted down here */

    /* its own */
    struct sp_link_source *next;
    size_t before; /* queued bytes that are sent first */
    bool is_begun;
};

/* Sends it in its turn, in fragments. Not between reserve and commit. */
void sp_link_send(struct sp_link *l, struct sp_link_source *s);

bool sp_link_is_full(const struct sp_link *l);
size_t sp_link_queued(const struct sp_link *l); /* bytes, also those that are still to be made */

/* Stop and resume reading messages from the peer. What was received already waits. */
void sp_link_pause(struct sp_link *l, bool is_paused);

/* Ends the link after what is queued has been handed to the kernel or 2 s have passed; ops.closed
 * comes later, from the loop. Messages that arrive meanwhile are dropped. why: static text. */
void sp_link_close(struct sp_link *l, const char *why);

/* Pings now (WebSocket) and drops the link unless the peer gives a sign of life within 2 s. */
void sp_link_challenge(struct sp_link *l);

/* The peer has introduced itself: where its messages were bounded by SP_LINK_MAX_FIRST so far, they
 * may have the full size now. */
void sp_link_widen(struct sp_link *l);

enum sp_link_kind sp_link_kind(const struct sp_link *l);
const char *sp_link_peer(const struct sp_link *l); /* "127.0.0.1:34346", "unix", "stdio" */

#endif
