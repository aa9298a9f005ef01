/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_priv: a link from inside. link.c has its life and its clock, link_in.c what arrives,
 * link_out.c what leaves; nobody else includes this.
 */
#ifndef SP_SERVER_NET_LINK_PRIV_H
#define SP_SERVER_NET_LINK_PRIV_H

#include "server/net/intake.h"
#include "server/net/link_open.h"
#include "server/net/outq.h"

#define SP_LINK_NO_STATUS 1005 /* a close frame without one; never on the wire */

/*
 *   SNIFF --capital--> HTTP --101--> FRAMES --close--> CLOSING --sent--> LINGER --end--> GONE
 *     |                 '----------answered--------------^
 *     '---other byte--> LINES --close--------------------'
 *
 * A client's link begins in HTTP too, with a request of its own, or in LINES. And to GONE from
 * anywhere when the peer is, or when time is up. ops.closed is called on the way out of CLOSING:
 * nobody above waits for the lingering.
 */
enum sp_link_phase { SNIFF, HTTP, FRAMES, LINES, CLOSING, LINGER, GONE };

/* What a client asked with, and how that went. */
struct sp_link_asked {
    struct sp_upgrade upgrade;
    bool is_told; /* opened or failed was called */
    bool is_refused;
    char why[300]; /* it was refused */
};

struct sp_link {
    struct sp_link_host *host;
    struct sp_link *next, **at;    /* in host->first; *at points here */
    const struct sp_link_ops *ops; /* NULL: nobody above, not yet or not any more */
    void *user;
    const char *why;

    struct sp_watch in;
    struct sp_watch out;         /* of a pair, while blocked */
    struct sp_timer tick;        /* the earliest of the times below */
    struct sp_deferred turn_end; /* send, watch, sweep */
    struct sp_deferred again;    /* more is to be done with what has arrived */

    uint64_t deadline_ms;  /* HTTP, CLOSING, LINGER: the end of patience */
    uint64_t heard_ms;     /* last sign of life */
    uint64_t ping_ms;      /* next ping */
    uint64_t challenge_ms; /* 0: not challenged */
    uint64_t release_ms;   /* 0: no unused buffer */

    struct sp_intake intake;
    struct sp_outq outq;
    struct sp_outq piece;           /* what is made of the first source, while there is one */
    struct sp_link_source *sources; /* each sent after `before` bytes of outq */
    struct sp_http_parser parser;
    size_t lingered;
    size_t unfinished; /* of this link in host->unfinished */

    int fd_in, fd_out;
    int flags_in, flags_out; /* to restore; -1: not changed */
    uint16_t close_status;   /* of the close frame to send; 0: none */
    uint8_t phase, kind;
    struct sp_link_asked *asked; /* of a client that upgrades; NULL: a server's link, or lines */
    bool is_pair, is_file_in, is_socket_in, is_socket_out;
    bool owns_out;                /* fd_out is a description of our own of the caller's terminal */
    bool is_paused, is_held_back; /* held back: the descriptor is not watched for input */
    bool is_blocked;              /* the kernel took less than we had */
    bool was_full, was_used;
    bool is_hearing; /* messages are being delivered right now */
    bool has_ended;  /* the peer sends no more */
    bool wants_ping;
    uint8_t pong_len;
    bool has_pong; /* to be sent when the queue is not full any more */
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

/* A sign of life. */
static inline void sp_link_heard(struct sp_link *l)
{
    l->heard_ms = sp_link_now(l);
    l->challenge_ms = 0;
}

/* link.c */
void sp_link_drop(struct sp_link *l, const char *why);
void sp_link_begin_close(struct sp_link *l, unsigned status, const char *why);
void sp_link_arm(struct sp_link *l); /* after one of the times changed */
void sp_link_at_turn_end(struct sp_link *l);

struct sp_link *sp_link_make(struct sp_link_host *h, int in, int out, const char *peer);

/* link_client.c */
void sp_link_hear_answer(struct sp_link *l, bool is_end);
void sp_link_tell_failed(struct sp_link *l);

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
