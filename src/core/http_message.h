/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_message: messages between the front and the HTTP worker, over a SOCK_SEQPACKET socket: a
 * fixed head, then bytes. Neither side trusts the other: sp_web_check checks sizes and counts
 * first.
 *
 * A request comes with a descriptor of sealed memory that holds method, URL, fields and body, in
 * this order. A response is FIELDS (in pieces), HEAD, BODY (in pieces), DONE. Flow control: at most
 * SP_WEB_WINDOW bytes of a body are in flight; the front reports with TAKE what it has used.
 */
#ifndef SP_CORE_HTTP_MESSAGE_H
#define SP_CORE_HTTP_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

#define SP_WEB_VERSION    2
#define SP_WEB_PIECE      (64U << 10)  /* the most bytes of one message */
#define SP_WEB_WINDOW     (256U << 10) /* of one body, in flight */
#define SP_WEB_MAX_METHOD 256U
#define SP_WEB_MAX_URL    (64U << 10)
#define SP_WEB_MAX_FIELDS (1U << 20)   /* of a request */
#define SP_WEB_MAX_HEAD   (256U << 10) /* fields of a response */
#define SP_WEB_MAX_SENT   (48U << 20)  /* body of a request */
#define SP_WEB_MAX_WHY    1024U
#define SP_WEB_NO_TIMEOUT UINT64_MAX

enum sp_web_op {
    SP_WEB_ASK = 1, /* front: struct sp_web_order + memory */
    SP_WEB_TAKE,    /* front: value bytes of the body were used, as many more may be sent */
    SP_WEB_DROP,    /* front: cancels the request */
    SP_WEB_PING,    /* front: number comes back in a PONG */
    SP_WEB_FIELDS,  /* worker: a piece of the fields */
    SP_WEB_HEAD,    /* worker: value is the status; all fields were sent */
    SP_WEB_BODY,    /* worker: a piece of the body */
    SP_WEB_DONE,    /* worker: the end; value 0: success, 1: the bytes are an error message */
    SP_WEB_UNABLE,  /* worker: libcurl cannot be used; the bytes are an error message */
    SP_WEB_PONG,    /* worker: answers PING */
    SP_WEB_OP_MAX
};

struct sp_web_message {
    uint16_t version;
    uint16_t op;
    uint32_t len; /* of the bytes that follow */
    uint64_t number;
    uint64_t value;
};

enum { SP_WEB_FOLLOWS = 1 };

struct sp_web_order {
    struct sp_web_message head; /* value: flags; len: of the rest of this struct */
    uint64_t timeout_ms;
    uint32_t method_len, url_len, fields_len, body_len;
};

/* Checks a received message of n bytes, aligned for the structs above. */
bool sp_web_check(const void *bytes, size_t n, bool is_from_worker, bool has_fd);

/* Fields: a list of names and values, in order. */
struct sp_web_field {
    struct sp_str name, value;
    bool is_private; /* contains a value of the server's env: for one origin only */
};

/* false: no memory, or beyond the buffer's bound. */
bool sp_web_field_put(struct sp_buf *fields, const struct sp_web_field *field);
bool sp_web_field_add(struct sp_buf *fields, struct sp_str name, struct sp_str value);
/* Removes the first field from *rest. false: the list is empty or malformed. */
bool sp_web_field_next(struct sp_str *rest, struct sp_web_field *ret);
bool sp_web_fields_are_whole(struct sp_str fields);

/* A method or the name of a field. */
bool sp_web_is_token(struct sp_str s);
/* A field value: no control characters but the tab. */
bool sp_web_is_value(struct sp_str s);
bool sp_web_add_lower(struct sp_buf *b, struct sp_str s);

#endif
