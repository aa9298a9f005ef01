/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_priv: shared by link.c (life and timers), link_in.c (input) and link_out.c (output).
 */
#ifndef SP_SERVER_NET_LINK_PRIV_H
#define SP_SERVER_NET_LINK_PRIV_H

#include "server/net/intake.h"
#include "server/net/link_open.h"
#include "server/net/outq.h"

#define SP_LINK_NO_STATUS 1005 /* an empty close frame; never on the wire */

/*
 *   SNIFF --capital--> HTTP --101--> FRAMES --close--> CLOSING --sent--> LINGER --end--> GONE
 *     |                 '----------answered--------------^
 *     '---other byte--> LINES --close--------------------'
 *
 * A client's link begins in HTTP too, with a request of its own, or in LINES. Each phase goes to
 * GONE when the peer is gone or a deadline passes. ops.closed is called when CLOSING ends: the
 * layer above does not wait for LINGER.
 */
enum sp_link_phase { SNIFF, HTTP, FRAMES, LINES, CLOSING, LINGER, GONE };

/* The upgrade request of a client, and its result. */
struct sp_link_asked {
    struct sp_upgrade upgrade;
    bool is_told; /* host.opened or host.failed was called */
    bool is_refused;
    char why[300]; /* of the refusal */
};

struct sp_link {
    struct sp_link_host *host;
    struct sp_link *next, **at;    /* in host->first; *at points here */
    const struct sp_link_ops *ops; /* NULL: not opened yet, or closed was called */
    void *user;
    const char *why;

    struct sp_watch in;
    struct sp_watch out;         /* of a pair, while is_blocked */
    struct sp_timer tick;        /* the earliest of the times below */
    struct sp_deferred turn_end; /* send, watch, sweep */
    struct sp_deferred again;    /* received input is left to process */

    uint64_t deadline_ms;  /* of the phases HTTP, CLOSING and LINGER */
    uint64_t heard_ms;     /* time of the last input, or of output that the peer took */
    uint64_t ping_ms;      /* next ping */
    uint64_t challenge_ms; /* 0: not challenged */
    uint64_t release_ms;   /* when unused buffers are freed; 0: none */

    struct sp_intake intake;
    struct sp_outq outq;
    struct sp_outq piece;           /* a fragment of the first source */
    struct sp_link_source *sources; /* each is sent after `before` bytes of outq */
    struct sp_http_parser parser;
    size_t lingered;
    size_t unfinished; /* the part of host->unfinished of this link */

    int fd_in, fd_out;
    int flags_in, flags_out; /* to restore; -1: not changed */
    uint16_t close_status;   /* of the close frame to send; 0: none */
    uint8_t phase, kind;
    struct sp_link_asked *asked; /* a client's; NULL: a server's link, or lines */
    bool is_pair, is_file_in, is_socket_in, is_socket_out;
    bool owns_out;                /* fd_out is our own open file description of the terminal */
    bool is_paused, is_held_back; /* is_held_back: input is not watched */
    bool is_blocked;              /* the last send was partial: wait for EPOLLOUT */
    bool was_full, was_used;
    bool is_hearing; /* inside ops.message */
    bool has_ended;  /* the peer has shut down its side */
    bool wants_ping;
    uint8_t pong_len;
    bool has_pong; /* to be sent once the queue has room */
    char pong[SP_WS_MAX_CONTROL];
    char peer[64];
};

static inline bool sp_link_is_open(const struct sp_link *l)
{
    return l->phase == FRAMES || l->phase == LINES;
}

static inline uint64_t sp_link_now(const struct sp_link *l)
{
    return sp_loop_now(l->host->loop);
}

/* The peer is alive. */
static inline void sp_link_heard(struct sp_link *l)
{
    l->heard_ms = sp_link_now(l);
    l->challenge_ms = 0;
}

/* link.c */
void sp_link_drop(struct sp_link *l, const char *why);
void sp_link_begin_close(struct sp_link *l, unsigned status, const char *why);
void sp_link_arm(struct sp_link *l); /* call after a deadline has changed */
void sp_link_at_turn_end(struct sp_link *l);

/* Reads the answer to a client's upgrade request. */
void sp_link_hear_answer(struct sp_link *l, bool is_end);

/* link_in.c */
void sp_link_count_unfinished(struct sp_link *l);
void sp_link_on_in(struct sp_watch *w, uint32_t events);
void sp_link_on_again(struct sp_deferred *d);
void sp_link_begin_lines(struct sp_link *l);
void sp_link_begin_frames(struct sp_link *l);

/* link_out.c */
bool sp_link_has_output(const struct sp_link *l);
void sp_link_end_sources(struct sp_link *l);
void sp_link_flush(struct sp_link *l);
void sp_link_on_writable(struct sp_link *l);
void sp_link_tell_drained(struct sp_link *l);
void sp_link_queue_control(struct sp_link *l, enum sp_ws_opcode opcode, const void *bytes,
                           size_t n);
void sp_link_answer_ping(struct sp_link *l, const char *payload, size_t n);

#endif
