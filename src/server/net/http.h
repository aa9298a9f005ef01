/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: parses the head of one HTTP/1.x request as it arrives, and writes small answers. No I/O.
 *
 * Strict, because a difference between two parsers is a way to smuggle requests: lines end in CR
 * LF, no folded lines, no NUL, no control characters, header names are tokens.
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

/* State of the parser. It has offsets only, so the bytes may move between calls. */
struct sp_http_parser {
    uint16_t at; /* bytes seen */
    uint8_t state;
    uint8_t minor; /* HTTP/1.minor */
    uint8_t headers;
    uint8_t version_at;
    uint16_t method_len, target_end, headers_at;
};

/* A request; borrows from the parsed bytes. */
struct sp_http_request {
    struct sp_str method, target;
    struct sp_str path;  /* the target without its query */
    struct sp_str lines; /* the header lines, each with its CR LF */
    bool is_1_0;
    size_t head_len; /* bytes that follow belong to the body or the next protocol */
};

/*
 * `bytes` are all n bytes received so far; *p is zero at first. Bytes are read once, and an invalid
 * byte is refused at once.
 */
enum sp_http_result sp_http_parse(struct sp_http_parser *p, const char *bytes, size_t n,
                                  struct sp_http_request *ret);

/* The number of headers with this name (ASCII case ignored). *ret_first is the trimmed value of the
 * first; unchanged if there is none. */
unsigned sp_http_header(const struct sp_http_request *r, const char *name,
                        struct sp_str *ret_first);

/* Whether the comma-separated lists of these headers contain the word. Case is ignored. */
bool sp_http_has_word(const struct sp_http_request *r, const char *name, const char *word);

/* A character of a method or of a header's name. */
static inline bool sp_http_is_token(unsigned char c)
{
    static const char others[] = "!#$%&'*+-.^_`|~";

    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != 0 && strchr(others, c) != NULL);
}

/* Protects against DNS rebinding by web pages: whether there is one Host header, with an IP
 * address, `localhost` or one of `hosts` (NULL-terminated; may be NULL). HTTP/1.0 may leave it out.
 */
bool sp_http_is_host_ours(const struct sp_http_request *r, const char *const *hosts);

struct sp_http_answer {
    unsigned status;
    const char *header; /* more lines, each with its CR LF, or NULL */
    const char *type;   /* of the body; NULL: plain text */
    struct sp_str body;
};

/* Appends the answer, with `connection: close`. false: no memory. */
bool sp_http_write(struct sp_buf *out, const struct sp_http_answer *a);

const char *sp_http_reason(unsigned status); /* "Not Found" */

#endif
