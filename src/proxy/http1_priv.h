/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http1_priv: lines and fields, for the reader of heads and for the one of trailers.
 */
#ifndef SP_PROXY_HTTP1_PRIV_H
#define SP_PROXY_HTTP1_PRIV_H

#include "proxy/http1.h"

/* Options of all Connection fields together. Each is compared with each field, so their number is
 * bounded. */
#define SP_HTTP1_OPTIONS_MAX 64U

/* Whether c may be in a line, apart from the CR LF at its end. */
static inline bool sp_http1_is_text(char c)
{
    return ((unsigned char)c >= 0x20 && c != 0x7f) || c == '\t';
}

/* Whether the byte at i is no text and no part of a CR LF either. */
static inline bool sp_http1_is_stray(struct sp_str s, size_t i)
{
    const char c = s.p[i];
    const bool is_after_cr = i > 0 && s.p[i - 1] == '\r';

    return (c == '\n') != is_after_cr || (c != '\r' && c != '\n' && !sp_http1_is_text(c));
}

/* NAME: VALUE. NULL, or the error text. */
const char *sp_http1_read_field(struct sp_str line, struct sp_http1_field *ret);

#endif
