/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link: one connection that carries whole messages, as WebSocket frames or as lines.
 *
 * The layer above sees messages; HTTP, frames, masks, pings and partial writes stay here. A link
 * never blocks. Its queue of outgoing bytes reports when it is full; a producer of output stops
 * then and continues when it has drained. Replies may always be queued: the layer above bounds them
 * by not reading more requests (sp_link_pause).
 */
#ifndef SP_SERVER_NET_LINK_H
#define SP_SERVER_NET_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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

/* `why` of ops.closed: the peer has shut down in order (WebSocket status 1001). */
extern const char sp_link_going_away[];

struct sp_link_ops {
    /* One message: len bytes of valid UTF-8, borrowed and writable. text[len] may be written, too.
     */
    void (*message)(void *user, char *text, size_t len);
    /* A binary message that is not UTF-8: answered like malformed JSON, the link lives on. */
    void (*not_text)(void *user);
    /* The queue was full and has room again. */
    void (*drained)(void *user);
    /* The last call: do not use the link after it. why is for logs. */
    void (*closed)(void *user, const char *why);
    /* The peer has read all output before the mark. NULL: sp_link_mark is not used. */
    void (*confirmed)(void *user, uint64_t mark);
};

/* Room for one message of at most `max` bytes. NULL: the link is closing: it was closed before, or
 * now for lack of memory. Every reserve is followed by one commit (len 0: nothing is sent) before
 * the next reserve. */
char *sp_link_reserve(struct sp_link *l, size_t max);
void sp_link_commit(struct sp_link *l, size_t len);

/* A long message that is produced while it is sent, never in memory as a whole. */
struct sp_link_source {
    /* Writes the next 1 to max bytes of the text, and returns how many. */
    size_t (*write)(struct sp_link_source *s, char *out, size_t max);
    /* The last call: all bytes are with the kernel, or the link is gone. May free *s; must not use
     * the link, as write must not. */
    void (*done)(struct sp_link_source *s);
    size_t left; /* at first the length of the text; counted down by the link */

    /* private */
    struct sp_link_source *next;
    size_t before; /* queued bytes that are sent first */
    bool is_begun;
};

/* Queues the source behind earlier messages. Not between reserve and commit. */
void sp_link_send(struct sp_link *l, struct sp_link_source *s);

bool sp_link_is_full(const struct sp_link *l);
/* Queued bytes, with those that sources still have to write. */
size_t sp_link_queued(const struct sp_link *l);

/* Asks the peer to confirm the output that is queued so far. Returns the number that ops.confirmed,
 * or a higher one, will tell. Calls in one turn share a mark. */
uint64_t sp_link_mark(struct sp_link *l);
/* The same number without asking: a later mark will confirm it. */
uint64_t sp_link_next_mark(const struct sp_link *l);

/* Stops and resumes delivery. Messages received already wait. */
void sp_link_pause(struct sp_link *l, bool is_paused);

/* Ends the link once the queue is with the kernel, or after 2 s. ops.closed comes later, from the
 * loop. Messages that arrive meanwhile are dropped. why: static text. */
void sp_link_close(struct sp_link *l, const char *why);

/* Sends a ping (WebSocket), and drops the link if the peer is silent for 2 s. */
void sp_link_challenge(struct sp_link *l);

/* The peer has introduced itself: lifts the bound of SP_LINK_MAX_FIRST on its messages. */
void sp_link_widen(struct sp_link *l);

enum sp_link_kind sp_link_kind(const struct sp_link *l);
/* The process at the other end of a unix socket. false: it is none. */
bool sp_link_peer_process(const struct sp_link *l, pid_t *ret_pid, uid_t *ret_uid);
const char *sp_link_peer(const struct sp_link *l); /* "127.0.0.1:34346", "unix", "stdio" */

#endif
