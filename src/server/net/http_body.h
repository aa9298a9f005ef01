/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_body: the body of one HTTP/1.x request, taken out of the bytes that arrive. It does no I/O
 * and keeps no bytes.
 *
 * Strict for the same reason as http.h: where two readers disagree about the end of a body, what
 * follows it is somebody's second request. A length or chunks, never both, and each said once.
 */
#ifndef SP_SERVER_NET_HTTP_BODY_H
#define SP_SERVER_NET_HTTP_BODY_H

#include "server/net/http.h"

#define SP_HTTP_MAX_CHUNK_LINE 256  /* a chunk's size with its extensions */
#define SP_HTTP_MAX_TRAILERS   4096 /* bytes after the last chunk; they are read and forgotten */

struct sp_http_body {
    uint64_t left;  /* of the body, or of the chunk */
    uint64_t total; /* announced so far */
    uint64_t max;
    uint16_t line; /* bytes of the chunk's line, or of the trailers */
    uint8_t state;
};

enum sp_http_body_result {
    SP_HTTP_BODY_MORE,    /* all that is there was taken */
    SP_HTTP_BODY_PIECE,   /* some bytes of the body; call again */
    SP_HTTP_BODY_DONE,    /* what is left belongs to the next request */
    SP_HTTP_BODY_BAD,     /* nobody can tell where it ends: the connection must not go on */
    SP_HTTP_BODY_TOO_BIG, /* it was announced to be larger than max */
};

/* How the body of this request is told apart from what follows. DONE: there is none. max is below
 * 2^60. */
enum sp_http_body_result sp_http_body_begin(struct sp_http_body *b, const struct sp_http_request *r,
                                            uint64_t max);

/* Takes bytes off the front of *in. *ret_piece is a view of them, and empty unless PIECE. */
enum sp_http_body_result sp_http_body_next(struct sp_http_body *b, struct sp_str *in,
                                           struct sp_str *ret_piece);

#endif
