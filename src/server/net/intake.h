/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intake: turns received bytes into messages. No I/O.
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
#ifndef SP_SERVER_NET_INTAKE_H
#define SP_SERVER_NET_INTAKE_H

#include "server/net/ws.h"

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

void sp_intake_init(struct sp_intake *in, enum sp_ws_role role, size_t max_frame,
                    size_t max_message);
void sp_intake_done(struct sp_intake *in);

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

/* An empty buffer kept for the next large message; release gives it back. */
static inline bool sp_intake_is_idle(const struct sp_intake *in)
{
    return in->data != NULL && sp_intake_size(in) == 0;
}
void sp_intake_release(struct sp_intake *in);

#endif
