/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_body: decodes the body of one HTTP/1.x request as it arrives. No I/O, no copies.
 *
 * Strict for the same reason as http.h: if two parsers disagree about the end of a body, the rest
 * is a smuggled request. A length or chunks, never both, and each header once.
 */
#ifndef SP_SERVER_NET_HTTP_BODY_H
#define SP_SERVER_NET_HTTP_BODY_H

#include "server/net/http.h"

#define SP_HTTP_MAX_CHUNK_LINE 256  /* bytes of a chunk size with its extensions */
#define SP_HTTP_MAX_TRAILERS   4096 /* bytes after the last chunk; ignored */

struct sp_http_body {
    uint64_t left;  /* of the body, or of the chunk */
    uint64_t total; /* announced so far */
    uint64_t max;
    uint16_t line; /* bytes of the chunk's line, or of the trailers */
    uint8_t state;
};

enum sp_http_body_result {
    SP_HTTP_BODY_MORE,    /* *in is used up */
    SP_HTTP_BODY_PIECE,   /* some bytes of the body; call again */
    SP_HTTP_BODY_DONE,    /* the rest of *in belongs to the next request */
    SP_HTTP_BODY_BAD,     /* the end of the body is unknown: the connection must close */
    SP_HTTP_BODY_TOO_BIG, /* larger than max, as announced */
};

/* Reads the framing headers. DONE: no body. max is below 2^60. */
enum sp_http_body_result sp_http_body_begin(struct sp_http_body *b, const struct sp_http_request *r,
                                            uint64_t max);

/* Consumes the front of *in. PIECE: *ret_piece is a view of body bytes; else empty. */
enum sp_http_body_result sp_http_body_next(struct sp_http_body *b, struct sp_str *in,
                                           struct sp_str *ret_piece);

#endif
