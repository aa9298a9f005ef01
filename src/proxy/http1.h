/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http1: heads and bodies of HTTP/1.0 and 1.1, read into fields and written anew, so that no byte
 * means two things to two readers. Pure: bytes in, struct out; strings point into the input.
 *
 * Refused with 400: a bare CR or LF, folded lines, a blank before the colon, control characters but
 * the tab, Content-Length with Transfer-Encoding, two lengths or a malformed one, every coding but
 * chunked, a Host that is missing in 1.1, given twice or not the target's, userinfo, fragments
 * and blanks in a target. 431: more than SP_HTTP1_HEAD_MAX bytes or SP_HTTP1_FIELDS_MAX fields.
 * 501: another scheme than http in absolute form. 505: another version.
 */
#ifndef SP_PROXY_HTTP1_H
#define SP_PROXY_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

#define SP_HTTP1_HEAD_MAX   (64U << 10)
#define SP_HTTP1_FIELDS_MAX 256U
#define SP_HTTP1_METHOD_MAX 32U
#define SP_HTTP1_LINE_MAX   (8U << 10) /* of a chunk's size or a trailer, with its CR LF */

struct sp_http1_field {
    struct sp_str name, value; /* value: trimmed */
};

enum sp_http1_form {
    SP_HTTP1_ORIGIN,    /* /path: the host is that of the Host field */
    SP_HTTP1_ABSOLUTE,  /* http://host/path */
    SP_HTTP1_AUTHORITY, /* host:port, of CONNECT only */
    SP_HTTP1_ASTERISK,  /* *, of OPTIONS only */
};

enum sp_http1_body_kind {
    SP_HTTP1_NO_BODY,
    SP_HTTP1_LENGTH,
    SP_HTTP1_CHUNKED,
    SP_HTTP1_UNTIL_CLOSE, /* responses only */
};

struct sp_http1_head {
    /* a request */
    struct sp_str method;
    enum sp_http1_form form;
    struct sp_str host; /* without brackets and port; n 0: none (1.0 without Host) */
    uint16_t port;      /* 80 if the target has none; CONNECT always has one */
    struct sp_str path; /* with query; "/" if the target has none; "*"; "?query" of
                           http://host?query is written as "/?query" */
    /* a response */
    int status;
    struct sp_str reason;
    /* both */
    int minor; /* HTTP/1.minor: 0 or 1 */
    enum sp_http1_body_kind body;
    uint64_t length;  /* LENGTH */
    bool keeps_alive; /* the sender allows another message on this connection */
    bool is_upgrade;  /* Upgrade with Connection: upgrade, but not to h2c; or status 101 */
    bool expects_continue;
    struct sp_http1_field fields[SP_HTTP1_FIELDS_MAX];
    size_t field_count;
};

struct sp_http1_refusal {
    int status; /* 400, 431, 501, 505; of a response always 502 */
    const char *text;
};

/* The length of the head at the start of `bytes`, with its empty line; 0: not complete yet.
 * *scanned says how far an earlier call got, 0 at first. Bytes that no head contains end it at
 * once, and so does the first byte above SP_HTTP1_HEAD_MAX: reading what was returned gives the
 * refusal. */
size_t sp_http1_head_length(struct sp_str bytes, size_t *scanned);

/* false: *why says what to answer, *ret is undefined. CONNECT needs no Host and none of its port.
 */
bool sp_http1_read_request(struct sp_str head, struct sp_http1_head *ret,
                           struct sp_http1_refusal *why);
/* method: of the request; HEAD and CONNECT change what follows. false: malformed or ambiguous. */
bool sp_http1_read_response(struct sp_str head, struct sp_str method, struct sp_http1_head *ret,
                            struct sp_http1_refusal *why);

/*
 * Writes the head without hop-by-hop fields (Connection and the fields it names, Proxy-*,
 * Keep-Alive, TE, Trailer stays, Upgrade unless the head is_upgrade), with one Host and one field
 * that frames the body. A request is written in origin form, or with is_absolute in absolute form
 * (for an upstream proxy); not for CONNECT. `extra` is a complete field line or empty. closes: adds
 * Connection: close, unless the head is_upgrade. The version stays that of the head. false: no
 * memory; nothing was added.
 */
bool sp_http1_write_request(struct sp_buf *out, const struct sp_http1_head *h, bool is_absolute,
                            struct sp_str extra, bool closes);
bool sp_http1_write_response(struct sp_buf *out, const struct sp_http1_head *h, bool closes);

/* ---- bodies ---- */

/* Reads one body, piece by piece. */
struct sp_http1_body {
    enum sp_http1_body_kind kind;
    uint64_t left;     /* of the length, or of the present chunk */
    int state;         /* private, of a chunked body */
    uint32_t line;     /* private: bytes of the present line that were looked at */
    uint32_t trailers; /* private: bytes of all trailer lines */
    bool is_over;
};
void sp_http1_body_begin(struct sp_http1_body *b, const struct sp_http1_head *h);

/*
 * Takes some of `in`, appends to `out` what to send on (chunks are framed anew, without extensions;
 * trailers pass if they are no field that frames or routes), and returns how many bytes of `in`
 * were taken; -1: malformed; -2: no memory. Call it until it takes nothing or is_over. Lines are
 * taken whole: bytes that were not taken come again, with more behind them, so the caller's buffer
 * holds at least SP_HTTP1_LINE_MAX. Payload bytes are added to *ret_payload. For LENGTH and
 * UNTIL_CLOSE the bytes could be moved without this function: `left` says how many.
 */
ptrdiff_t sp_http1_body_move(struct sp_http1_body *b, struct sp_str in, struct sp_buf *out,
                             uint64_t *ret_payload);

#endif
