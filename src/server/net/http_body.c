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

enum sp_http_body_result sp_http_body_begin(struct sp_http_body *b, const struct sp_http_request *r,
                                            uint64_t max)
{
    struct sp_str encoding = {"", 0};
    struct sp_str value = {"", 0};
    const unsigned encodings = sp_http_header(r, "transfer-encoding", &encoding);
    const unsigned lengths = sp_http_header(r, "content-length", &value);
    bool is_number = value.n != 0;

    /* Two headers that may disagree about the end of the body are refused: request smuggling. */
    *b = (struct sp_http_body){.max = max, .state = WRONG};
    if (encodings != 0) {
        if (encodings != 1 || !sp_str_eq_nocase(encoding, SP_STR("chunked")) || r->is_1_0 ||
            lengths != 0)
            return SP_HTTP_BODY_BAD;
        b->state = SIZE_FIRST;
        return SP_HTTP_BODY_MORE;
    }
    for (size_t i = 0; i < value.n; i++)
        is_number = is_number && value.p[i] >= '0' && value.p[i] <= '9';
    if (lengths > 1 || (lengths == 1 && !is_number))
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

static enum state step(struct sp_http_body *b, unsigned char c)
{
    const int digit = sp_hex_digit((char)c);

    switch ((enum state)b->state) {
    case SIZE_FIRST:
    case SIZE:
        if (digit >= 0) { /* checked after each one, so that the size cannot overflow */
            b->left = b->left << 4 | (unsigned)digit;
            return b->left > b->max - b->total ? TOO_BIG : SIZE;
        }
        if (b->state == SIZE_FIRST)
            return WRONG;
        return c == '\r' ? SIZE_LF : c == ';' ? EXTENSION : WRONG;
    case EXTENSION:
        return c == '\r' ? SIZE_LF : is_text(c) ? EXTENSION : WRONG;
    case SIZE_LF:
        b->line = 0;
        b->total += b->left;
        return c != '\n' ? WRONG : b->left == 0 ? TRAILER_LINE : DATA;
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
