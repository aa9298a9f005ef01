/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames: between bytes and messages, as WebSocket frames (RFC 6455) or as lines. No I/O.
 */
#ifndef SP_SERVER_NET_FRAMES_H
#define SP_SERVER_NET_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* ---- headers, masks and the key of the handshake: no state ---- */

enum sp_ws_opcode {
    SP_WS_CONTINUATION = 0,
    SP_WS_TEXT = 1,
    SP_WS_BINARY = 2,
    SP_WS_CLOSE = 8,
    SP_WS_PING = 9,
    SP_WS_PONG = 10,
};

enum sp_ws_status { /* of close frames */
                    SP_WS_NORMAL = 1000,
                    SP_WS_GOING_AWAY = 1001,
                    SP_WS_PROTOCOL_ERROR = 1002,
                    SP_WS_NOT_TEXT = 1007,
                    SP_WS_TOO_BIG = 1009,
};

/* A server receives masked frames and sends unmasked ones, a client the reverse. */
enum sp_ws_role { SP_WS_SERVER, SP_WS_CLIENT };

#define SP_WS_MAX_HEADER  14
#define SP_WS_MAX_CONTROL 125 /* payload of a control frame */
#define SP_WS_ACCEPT_LEN  28

struct sp_ws_header {
    uint64_t len; /* of the payload */
    uint8_t size; /* of the header itself */
    uint8_t opcode;
    bool is_final;
    uint8_t mask[4]; /* zero if not masked */
};

enum sp_ws_result { SP_WS_MORE, SP_WS_OK, SP_WS_BAD };

/*
 * Reads the header at the front of n bytes. Bad: reserved bits or opcodes, a missing or an
 * unexpected mask, a length not in its shortest form or above 2^63, a control frame that is long or
 * fragmented; *ret_why says which. Refuses on the first two bytes where possible.
 */
enum sp_ws_result sp_ws_read_header(enum sp_ws_role role, const void *bytes, size_t n,
                                    struct sp_ws_header *ret, const char **ret_why);

static inline bool sp_ws_is_control(uint8_t opcode)
{
    return opcode >= 8;
}

/* Applies or removes the mask in place; `at` is the offset of the first byte in the payload. */
void sp_ws_mask(void *bytes, size_t n, const uint8_t mask[4], size_t at);

/* Masks and moves the payload; `to` <= `from`, and they may overlap. */
void sp_ws_mask_to(void *to, const void *from, size_t n, const uint8_t mask[4], size_t at);

/* The length of the shortest header: 2, 4 or 10 bytes, and 4 more with a mask. */
size_t sp_ws_header_size(uint64_t len, bool is_masked);

/* Writes a header and returns its size. mask NULL: unmasked. */
size_t sp_ws_write_header(void *out, enum sp_ws_opcode opcode, bool is_final, uint64_t len,
                          const uint8_t *mask);

/* The value of Sec-WebSocket-Accept, without NUL. false: the key is too long to be valid. */
bool sp_ws_accept(struct sp_str key, char ret[SP_WS_ACCEPT_LEN]);

/*
 * Intake turns received bytes into messages.
 *
 * One buffer has the payload of the unfinished message, then the bytes not yet parsed. Bytes of a
 * large frame are unmasked and checked for UTF-8 as they arrive, while they are in the CPU cache,
 * and are received at their final place.
 * The buffer grows to at most twice the received bytes, so that an announced length alone allocates
 * nothing. Between messages there is no buffer: bytes are received into the caller's scratch
 * memory, and only the rest is copied out of it.
 *
 *   room, added, next ... next, settle: in this order, within one callback of the loop
 */
#define SP_INTAKE_SCRATCH (64U << 10) /* the caller's scratch memory has one byte more */

enum sp_intake_mode { SP_INTAKE_RAW, SP_INTAKE_FRAMES, SP_INTAKE_LINES };

struct sp_intake {
    char *data;
    size_t whole;      /* payload of the unfinished message, at data */
    size_t valid;      /* of these, checked to be UTF-8 */
    size_t start, end; /* the bytes not yet parsed */
    size_t cap;        /* the allocation has one byte more */
    size_t need;       /* hint: bytes from start that complete the frame or line */
    size_t used;       /* bytes from start of the last event */
    size_t searched;   /* bytes from start known to hold no line end */
    size_t max_frame, max_message;
    uint64_t rest;   /* payload of the current frame that has not arrived */
    size_t taken;    /* payload of the current frame that has arrived */
    uint8_t mask[4]; /* of the current frame */
    char *patch;     /* the byte after the last event's text, which the reader may overwrite */
    char patched;
    bool is_last;     /* the current frame ends the message */
    bool is_done;     /* the last event was the message in `whole` */
    bool is_borrowed; /* data is the scratch memory */
    bool keeps_on;    /* a line that is too long or not UTF-8 is NOT_TEXT, not BAD */
    bool is_skipping; /* keeps_on: this line is too long, and is dropped as it arrives */
    uint8_t mode;
    uint8_t role;   /* enum sp_ws_role */
    uint8_t opcode; /* of the unfinished message; 0: none */
};

enum sp_intake_what {
    SP_INTAKE_MORE,     /* more bytes are needed */
    SP_INTAKE_HELD,     /* a message is complete, but may_deliver is false */
    SP_INTAKE_MESSAGE,  /* valid UTF-8; text[len] may be written */
    SP_INTAKE_NOT_TEXT, /* a binary message that is not UTF-8 */
    SP_INTAKE_PING,
    SP_INTAKE_PONG,
    SP_INTAKE_CLOSE,
    SP_INTAKE_BAD, /* the connection must close: why, status */
};

struct sp_intake_event {
    char *text; /* valid until the next call */
    size_t len;
    const char *why;
    enum sp_ws_status status;
};

/* Zero but for role, max_frame, max_message and keeps_on at first. */
void sp_intake_done(struct sp_intake *in); /* frees the buffer; may be used again */

/* Where to receive, and how many bytes at most. NULL: no memory. */
char *sp_intake_room(struct sp_intake *in, char *scratch, size_t *ret_n);
static inline void sp_intake_added(struct sp_intake *in, size_t n)
{
    in->end += n;
}

enum sp_intake_what sp_intake_next(struct sp_intake *in, bool may_deliver,
                                   struct sp_intake_event *ret);

/* The scratch memory goes back. false: no memory for what must be kept. */
bool sp_intake_settle(struct sp_intake *in);

/* End of input: an unfinished line becomes a message. */
void sp_intake_finish(struct sp_intake *in);

/* RAW mode: look at the bytes, take some off, and change to another mode. */
static inline struct sp_str sp_intake_peek(const struct sp_intake *in)
{
    return (struct sp_str){in->data == NULL ? "" : in->data + in->start, in->end - in->start};
}
static inline void sp_intake_skip(struct sp_intake *in, size_t n)
{
    in->start += n;
}

/* Bytes that wait. */
static inline size_t sp_intake_size(const struct sp_intake *in)
{
    return in->whole + (in->end - in->start);
}

/* An empty buffer kept for the next large message; sp_intake_done gives it back. */
static inline bool sp_intake_is_idle(const struct sp_intake *in)
{
    return in->data != NULL && sp_intake_size(in) == 0;
}

/*
 * Outq is a queue of outgoing messages, as the bytes to send.
 *
 * One buffer has all queued bytes, so that one send takes several messages. The caller writes a
 * message straight into the buffer, after room for its header. Commit writes the header in its
 * shortest form; for a large message it moves the bytes after the first fragment to the right, to
 * make room for the headers of the other fragments.
 */
struct sp_outq {
    char *data;
    size_t start, end; /* queued bytes */
    size_t cap;
    size_t reserved;  /* for the message being written */
    size_t head_room; /* for its header */
    size_t fragment;  /* 0: lines; else the most payload bytes of a frame */
    bool is_masked;   /* a client's frames: each has a random mask */
};

void sp_outq_done(struct sp_outq *q); /* frees the buffer; fragment and is_masked stay */

/* Room for one message of at most `max` bytes; NULL: no memory. Commit with len 0 queues nothing.
 */
char *sp_outq_reserve(struct sp_outq *q, size_t max);
/* A part that is not both first and last has at most `fragment` bytes. */
void sp_outq_commit(struct sp_outq *q, size_t len, bool is_first, bool is_last);

/* One control frame. Not between reserve and commit. false: no memory. */
bool sp_outq_control(struct sp_outq *q, enum sp_ws_opcode opcode, const void *bytes, size_t n);

/* Bytes without framing. false: no memory. */
bool sp_outq_raw(struct sp_outq *q, const void *bytes, size_t n);

static inline size_t sp_outq_size(const struct sp_outq *q)
{
    return q->end - q->start;
}

/* The first n bytes were sent. An empty buffer above 4 MiB is freed. */
void sp_outq_sent(struct sp_outq *q, size_t n);

#endif
