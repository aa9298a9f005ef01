/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: the head of one HTTP/1.x request, read as it arrives, and small answers. It does no I/O.
 *
 * Strict, since whatever two readers can understand differently is somebody's way in: lines end in
 * CR LF, no folded lines, no NUL, no control characters, header names are tokens.
 */
#ifndef SP_SERVER_NET_HTTP_H
#define SP_SERVER_NET_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

#define SP_HTTP_MAX_HEAD    16384
#define SP_HTTP_MAX_HEADERS 100

enum sp_http_result { SP_HTTP_MORE, SP_HTTP_DONE, SP_HTTP_BAD, SP_HTTP_TOO_BIG };

/* Where the reading stands. It holds offsets only, so the bytes may move between calls. */
struct sp_http_parser {
    uint16_t at; /* bytes seen */
    uint8_t state;
    uint8_t minor; /* HTTP/1.minor */
    uint8_t headers;
    uint8_t version_at;
    uint16_t method_len, target_end, headers_at;
};

/* A request, borrowed from the bytes it was read from. */
struct sp_http_request {
    struct sp_str method, target;
    struct sp_str path;  /* the target without its query */
    struct sp_str lines; /* the header lines, each with its CR LF */
    bool is_1_0;
    size_t head_len; /* what follows belongs to the next protocol */
};

/*
 * `bytes` are all n bytes that have arrived, from the first on; *p is zero at first. Bytes seen
 * before are not read again, and a bad one is refused as soon as it is seen.
 */
enum sp_http_result sp_http_parse(struct sp_http_parser *p, const char *bytes, size_t n,
                                  struct sp_http_request *ret);

/* How many headers have this name (ASCII case ignored). *ret_first is the first one's value,
 * without the white space around it; untouched if there is none. */
unsigned sp_http_header(const struct sp_http_request *r, const char *name,
                        struct sp_str *ret_first);

/* Is the word in the comma-separated list that these headers make together? Case is ignored. */
bool sp_http_has_word(const struct sp_http_request *r, const char *name, const char *word);

struct sp_http_answer {
    unsigned status;
    const char *header; /* one more line with its CR LF, or NULL */
    const char *type;   /* of the body; NULL: plain text */
    struct sp_str body;
};

/* Appends it; the connection ends after. false: no room. */
bool sp_http_write(struct sp_buf *out, const struct sp_http_answer *a);

const char *sp_http_reason(unsigned status); /* "Not Found" */

#endif
