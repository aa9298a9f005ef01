/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_priv: the struct behind a link, for link.c, for the listener that owns its links, and for
 * the tests that look at their buffers.
 */
#ifndef SP_SERVER_NET_LINK_PRIV_H
#define SP_SERVER_NET_LINK_PRIV_H

#include "server/net/frames.h"
#include "server/net/link_open.h"
#include "server/net/marks.h"

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

    uint64_t deadline_ms;  /* of HTTP, CLOSING and LINGER; SNIFF has none: eviction makes room */
    uint64_t heard_ms;     /* time of the last input, or of output that the peer took */
    uint64_t ping_ms;      /* next ping */
    uint64_t challenge_ms; /* 0: not challenged */
    uint64_t release_ms;   /* when unused buffers are freed; 0: none */

    struct sp_intake intake;
    struct sp_outq outq;
    struct sp_outq piece;           /* a fragment of the first source */
    struct sp_link_source *sources; /* each is sent after `before` bytes of outq */
    struct sp_http_parser parser;
    struct sp_marks marks;
    uint64_t written;  /* bytes that the kernel has taken */
    size_t lingered;   /* bytes dropped in LINGER */
    size_t unfinished; /* the part of host->unfinished of this link */

    int fd_in, fd_out;
    int flags_in, flags_out; /* to restore; -1: not changed */
    uint16_t close_status;   /* of the close frame to send; 0: none */
    uint8_t phase, kind;
    struct sp_link_asked *asked; /* a client's; NULL: a server's link, or lines */
    bool is_pair, is_file_in, is_socket_in, is_socket_out, is_pipe_out;
    bool owns_out;                /* fd_out is our own open file description of the terminal */
    bool is_paused, is_held_back; /* is_held_back: input is not watched */
    bool is_blocked;              /* the last send was partial: wait for EPOLLOUT */
    bool was_full;                /* ops.drained is owed */
    bool was_used;                /* since the last tick: buffers are not freed */
    bool is_hearing;              /* inside ops.message */
    bool has_ended;               /* the peer has shut down its side */
    bool wants_ping;
    uint8_t pong_len;
    bool has_pong; /* to be sent once the queue has room */
    char pong[SP_WS_MAX_CONTROL];
    char peer[64];
};

#endif
