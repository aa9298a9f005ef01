/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/ws.h"

#include <string.h>

#include "base/base64.h"
#include "base/sha.h"

#define FIN      0x80
#define RESERVED 0x70
#define MASKED   0x80

static enum sp_ws_result bad(const char **ret_why, const char *why)
{
    *ret_why = why;
    return SP_WS_BAD;
}

static uint64_t big_endian(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

static bool is_opcode(uint8_t opcode)
{
    return opcode <= SP_WS_BINARY || (opcode >= SP_WS_CLOSE && opcode <= SP_WS_PONG);
}

enum sp_ws_result sp_ws_read_header(enum sp_ws_role role, const void *bytes, size_t n,
                                    struct sp_ws_header *ret, const char **ret_why)
{
    const uint8_t *p = bytes;

    if (n < 2)
        return SP_WS_MORE;
    const uint8_t opcode = p[0] & 0x0F;
    const bool is_final = (p[0] & FIN) != 0;
    const bool is_masked = (p[1] & MASKED) != 0;
    const uint8_t len7 = p[1] & 0x7F;

    if ((p[0] & RESERVED) != 0)
        return bad(ret_why, "frame with reserved bits set");
    if (!is_opcode(opcode))
        return bad(ret_why, "frame with a reserved opcode");
    if (is_masked != (role == SP_WS_SERVER))
        return bad(ret_why, is_masked ? "masked frame from a server" : "frame without a mask");
    if (sp_ws_is_control(opcode) && !is_final)
        return bad(ret_why, "fragmented control frame");
    if (sp_ws_is_control(opcode) && len7 > SP_WS_MAX_CONTROL)
        return bad(ret_why, "control frame above 125 bytes");

    const size_t extended = len7 == 126 ? 2 : len7 == 127 ? 8 : 0;
    const size_t size = 2 + extended + (is_masked ? 4 : 0);
    if (n < size)
        return SP_WS_MORE;
    const uint64_t len = extended == 0 ? len7 : big_endian(p + 2, extended);
    if (len >> 63 != 0)
        return bad(ret_why, "frame length with its top bit set");
    if ((extended == 2 && len < 126) || (extended == 8 && len <= UINT16_MAX))
        return bad(ret_why, "frame length not in its shortest form");

    *ret = (struct sp_ws_header){
        .len = len, .size = (uint8_t)size, .opcode = opcode, .is_final = is_final};
    if (is_masked)
        memcpy(ret->mask, p + size - 4, 4);
    return SP_WS_OK;
}

void sp_ws_mask(void *bytes, size_t n, const uint8_t mask[4], size_t at)
{
    sp_ws_mask_to(bytes, bytes, n, mask, at);
}

void sp_ws_mask_to(void *to, const void *from, size_t n, const uint8_t mask[4], size_t at)
{
    const uint8_t *in = from;
    uint8_t *out = to;
    uint8_t turned[8];
    uint64_t word;

    for (size_t i = 0; i < sizeof turned; i++)
        turned[i] = mask[(at + i) & 3];
    memcpy(&word, turned, sizeof word);

    size_t i = 0;
    for (; i + 32 <= n; i += 32) { /* four words at a time: compilers vectorize this */
        uint64_t v[4];

        memcpy(v, in + i, sizeof v);
        for (size_t k = 0; k < 4; k++)
            v[k] ^= word;
        memcpy(out + i, v, sizeof v);
    }
    for (; i < n; i++)
        out[i] = in[i] ^ turned[i & 7];
}

size_t sp_ws_header_size(uint64_t len, bool is_masked)
{
    const size_t size = len < 126 ? 2 : len <= UINT16_MAX ? 4 : 10;

    return is_masked ? size + 4 : size;
}

size_t sp_ws_write_header(void *out, enum sp_ws_opcode opcode, bool is_final, uint64_t len,
                          const uint8_t *mask)
{
    uint8_t *p = out;
    const size_t bare = sp_ws_header_size(len, false);

    p[0] = (uint8_t)((is_final ? FIN : 0) | (unsigned)opcode);
    p[1] = bare == 2 ? (uint8_t)len : bare == 4 ? 126 : 127;
    for (size_t i = bare - 1; i >= 2; i--, len >>= 8)
        p[i] = (uint8_t)len;
    if (mask == NULL)
        return bare;
    p[1] |= MASKED;
    memcpy(p + bare, mask, 4);
    return bare + 4;
}

bool sp_ws_accept(struct sp_str key, char ret[SP_WS_ACCEPT_LEN])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[128 + sizeof guid];
    uint8_t digest[20];

    if (key.n > 128)
        return false;
    memcpy(text, key.p, key.n);
    memcpy(text + key.n, guid, sizeof guid - 1);
    sp_sha1((struct sp_str){text, key.n + sizeof guid - 1}, digest);
    (void)sp_base64_encode(ret, digest, sizeof digest);
    return true;
}
