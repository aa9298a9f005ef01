/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/http_body.h"

/*
 *   LENGTH --all there--> END
 *
 *   SIZE --;--> EXTENSION        .--> (size 0) TRAILER_LINE --CR--> LAST_LF --LF--> END
 *     |CR           |CR          |               |  ^
 *     '--> SIZE_LF <'----LF------+             token '------LF-------.
 *            ^                   '--> DATA       v                   |
 *     DATA_LF <--CR-- DATA_CR <--'          TRAILER_NAME -:-> TRAILER_VALUE -CR-> TRAILER_LF
 *       '----LF----> SIZE
 */
enum state {
    LENGTH,
    SIZE_FIRST,
    SIZE,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_LINE,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    LAST_LF,
    END,
    WRONG,
    TOO_BIG,
};

/* ---- framing headers ---- */

static enum sp_http_body_result begin_chunks(struct sp_http_body *b,
                                             const struct sp_http_request *r)
{
    struct sp_str value = {"", 0};
    struct sp_str length;

    if (sp_http_header(r, "transfer-encoding", &value) != 1 ||
        !sp_str_eq_nocase(value, SP_STR("chunked")) || r->is_1_0 ||
        sp_http_header(r, "content-length", &length) != 0)
        return SP_HTTP_BODY_BAD;
    b->state = SIZE_FIRST;
    return SP_HTTP_BODY_MORE;
}

static bool is_digits(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n != 0;
}

enum sp_http_body_result sp_http_body_begin(struct sp_http_body *b, const struct sp_http_request *r,
                                            uint64_t max)
{
    struct sp_str value = {"", 0};

    *b = (struct sp_http_body){.max = max, .state = WRONG};
    if (sp_http_header(r, "transfer-encoding", &value) != 0)
        return begin_chunks(b, r);
    const unsigned lengths = sp_http_header(r, "content-length", &value);
    if (lengths > 1 || (lengths == 1 && !is_digits(value)))
        return SP_HTTP_BODY_BAD;
    if (lengths == 1 && !sp_str_to_u64(value, max, &b->left)) {
        b->state = TOO_BIG;
        return SP_HTTP_BODY_TOO_BIG;
    }
    b->total = b->left;
    b->state = b->left == 0 ? END : LENGTH;
    return b->left == 0 ? SP_HTTP_BODY_DONE : SP_HTTP_BODY_MORE;
}

/* ---- the bytes ---- */

static bool is_text(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7F);
}

/* Checked after each digit, so that the size cannot overflow. */
static enum state in_size(struct sp_http_body *b, unsigned char c)
{
    const int digit = sp_hex_digit((char)c);

    if (digit >= 0) {
        b->left = b->left << 4 | (unsigned)digit;
        return b->left > b->max - b->total ? TOO_BIG : SIZE;
    }
    if (b->state == SIZE_FIRST)
        return WRONG;
    return c == '\r' ? SIZE_LF : c == ';' ? EXTENSION : WRONG;
}

static enum state end_size(struct sp_http_body *b)
{
    b->line = 0;
    b->total += b->left;
    return b->left == 0 ? TRAILER_LINE : DATA;
}

static enum state step(struct sp_http_body *b, unsigned char c)
{
    switch ((enum state)b->state) {
    case SIZE_FIRST:
    case SIZE:
        return in_size(b, c);
    case EXTENSION:
        return c == '\r' ? SIZE_LF : is_text(c) ? EXTENSION : WRONG;
    case SIZE_LF:
        return c == '\n' ? end_size(b) : WRONG;
    case DATA_CR:
        return c == '\r' ? DATA_LF : WRONG;
    case DATA_LF:
        b->line = 0;
        return c == '\n' ? SIZE_FIRST : WRONG;
    case TRAILER_LINE:
        return c == '\r' ? LAST_LF : sp_http_is_token(c) ? TRAILER_NAME : WRONG;
    case TRAILER_NAME:
        return c == ':' ? TRAILER_VALUE : sp_http_is_token(c) ? TRAILER_NAME : WRONG;
    case TRAILER_VALUE:
        return c == '\r' ? TRAILER_LF : is_text(c) ? TRAILER_VALUE : WRONG;
    case TRAILER_LF:
        return c == '\n' ? TRAILER_LINE : WRONG;
    case LAST_LF:
        return c == '\n' ? END : WRONG;
    case LENGTH:
    case DATA:
    case END:
    case WRONG:
    case TOO_BIG:
        break;
    }
    return WRONG;
}

enum sp_http_body_result sp_http_body_next(struct sp_http_body *b, struct sp_str *in,
                                           struct sp_str *ret_piece)
{
    *ret_piece = (struct sp_str){in->p, 0};
    while (in->n != 0 && b->state < END) {
        const bool is_payload = b->state == LENGTH || b->state == DATA;
        const bool is_trailer = b->state >= TRAILER_LINE;
        const size_t n = !is_payload ? 1 : b->left < in->n ? (size_t)b->left : in->n;
        const struct sp_str taken = {in->p, n};

        if (!is_payload &&
            b->line++ == (is_trailer ? SP_HTTP_MAX_TRAILERS : SP_HTTP_MAX_CHUNK_LINE)) {
            b->state = WRONG;
            break;
        }
        *in = (struct sp_str){in->p + n, in->n - n};
        if (!is_payload) {
            b->state = (uint8_t)step(b, (unsigned char)taken.p[0]);
            continue;
        }
        b->left -= n;
        if (b->left == 0)
            b->state = b->state == LENGTH ? END : DATA_CR;
        *ret_piece = taken;
        return SP_HTTP_BODY_PIECE;
    }
    return b->state == END       ? SP_HTTP_BODY_DONE
           : b->state == WRONG   ? SP_HTTP_BODY_BAD
           : b->state == TOO_BIG ? SP_HTTP_BODY_TOO_BIG
                                 : SP_HTTP_BODY_MORE;
}
