/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message: what the front and the process that speaks HTTP for it say to each other, over a socket
 * that keeps messages whole: a fixed head, then bytes. Neither side trusts the other: sp_web_check
 * looks at sizes and counts before anybody reads one.
 *
 * A request comes with a descriptor of sealed memory that holds method, URL, fields and body, one
 * behind the other. Of a response the fields come first, in pieces, then HEAD, then the body in
 * pieces, then DONE. Of a body at most a window is on its way: the front says what it has taken.
 */
#ifndef SP_CORE_HTTP_MESSAGE_H
#define SP_CORE_HTTP_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

#define SP_WEB_VERSION    2
#define SP_WEB_PIECE      (64U << 10)  /* bytes of one message, at most */
#define SP_WEB_WINDOW     (256U << 10) /* of one body, on its way */
#define SP_WEB_MAX_METHOD 256U
#define SP_WEB_MAX_URL    (64U << 10)
#define SP_WEB_MAX_FIELDS (1U << 20)   /* of a request */
#define SP_WEB_MAX_HEAD   (256U << 10) /* fields of a response */
#define SP_WEB_MAX_SENT   (48U << 20)  /* body of a request */
#define SP_WEB_MAX_WHY    1024U
#define SP_WEB_NO_TIMEOUT UINT64_MAX

enum sp_web_op {
    SP_WEB_ASK = 1, /* front: struct sp_web_order + memory */
    SP_WEB_TAKE,    /* front: value bytes of the body were used, as many more may come */
    SP_WEB_DROP,    /* front: nobody waits for it any more */
    SP_WEB_PING,    /* front: number comes back in a PONG */
    SP_WEB_FIELDS,  /* worker: a piece of the fields */
    SP_WEB_HEAD,    /* worker: value is the status; the fields are all there */
    SP_WEB_BODY,    /* worker: a piece of the body */
    SP_WEB_DONE,    /* worker: the end; value 0: a good one, else the bytes say why not */
    SP_WEB_UNABLE,  /* worker: it can do nothing; the bytes say why */
    SP_WEB_PONG,    /* worker: it is at work, however long its requests take */
    SP_WEB_OP_MAX
};

struct sp_web_message {
    uint16_t version;
    uint16_t op;
    uint32_t len; /* of the bytes behind */
    uint64_t number;
    uint64_t value;
};

enum { SP_WEB_FOLLOWS = 1 };

struct sp_web_order {
    struct sp_web_message head; /* value: flags; len: of the rest of this struct */
    uint64_t timeout_ms;
    uint32_t method_len, url_len, fields_len, body_len;
};

/* n bytes that came, aligned for the structs above. */
bool sp_web_check(const void *bytes, size_t n, bool is_from_worker, bool has_fd);
/* The bytes behind the head. */
struct sp_str sp_web_bytes(const struct sp_web_message *m);
size_t sp_web_order_size(const struct sp_web_order *o); /* of the memory */

/* Fields: a list of names and values, in order. */
struct sp_web_field {
    struct sp_str name, value;
    bool is_private; /* it has something of the server's environment: for one origin alone */
};

/* false: no memory, or beyond the buffer's bound. */
bool sp_web_field_put(struct sp_buf *fields, const struct sp_web_field *field);
bool sp_web_field_add(struct sp_buf *fields, struct sp_str name, struct sp_str value);
/* Takes the first off *rest. false: there is none, or what is there is no list. */
bool sp_web_field_take(struct sp_str *rest, struct sp_web_field *ret);
bool sp_web_field_next(struct sp_str *rest, struct sp_str *ret_name, struct sp_str *ret_value);
bool sp_web_fields_are_whole(struct sp_str fields);

/* A method or the name of a field. */
bool sp_web_is_token(struct sp_str s);
/* What may be a field's value: no control characters but the tab. */
bool sp_web_is_value(struct sp_str s);
/* The same, and ASCII. */
bool sp_web_is_visible(struct sp_str s);
char sp_web_lower(char c);
bool sp_web_add_lower(struct sp_buf *b, struct sp_str s);

#endif
