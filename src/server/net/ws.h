/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ws: WebSocket framing (RFC 6455): headers, masks and the key of the handshake. No I/O, no state.
 * intake.h assembles messages, outq.h splits them into frames.
 */
#ifndef SP_SERVER_NET_WS_H
#define SP_SERVER_NET_WS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum sp_ws_opcode {
    SP_WS_CONTINUATION = 0,
    SP_WS_TEXT = 1,
    SP_WS_BINARY = 2,
    SP_WS_CLOSE = 8,
    SP_WS_PING = 9,
    SP_WS_PONG = 10,
};

enum sp_ws_status { /* of close frames */
                    SP_WS_NORMAL = 1000,
                    SP_WS_GOING_AWAY = 1001,
                    SP_WS_PROTOCOL_ERROR = 1002,
                    SP_WS_NOT_TEXT = 1007,
                    SP_WS_TOO_BIG = 1009,
};

/* A server receives masked frames and sends unmasked ones, a client the reverse. */
enum sp_ws_role { SP_WS_SERVER, SP_WS_CLIENT };

#define SP_WS_MAX_HEADER  14
#define SP_WS_MAX_CONTROL 125 /* payload of a control frame */
#define SP_WS_ACCEPT_LEN  28

struct sp_ws_header {
    uint64_t len; /* of the payload */
    uint8_t size; /* of the header itself */
    uint8_t opcode;
    bool is_final;
    uint8_t mask[4]; /* zero if not masked */
};

enum sp_ws_result { SP_WS_MORE, SP_WS_OK, SP_WS_BAD };

/*
 * Reads the header at the front of n bytes. Bad: reserved bits or opcodes, a missing or an
 * unexpected mask, a length not in its shortest form or above 2^63, a control frame that is long or
 * fragmented; *ret_why says which. Refuses on the first two bytes where possible.
 */
enum sp_ws_result sp_ws_read_header(enum sp_ws_role role, const void *bytes, size_t n,
                                    struct sp_ws_header *ret, const char **ret_why);

static inline bool sp_ws_is_control(uint8_t opcode)
{
    return opcode >= 8;
}

/* Applies or removes the mask in place; `at` is the offset of the first byte in the payload. */
void sp_ws_mask(void *bytes, size_t n, const uint8_t mask[4], size_t at);

/* Masks and moves the payload; `to` <= `from`, and they may overlap. */
void sp_ws_mask_to(void *to, const void *from, size_t n, const uint8_t mask[4], size_t at);

/* The length of the shortest header: 2, 4 or 10 bytes, and 4 more with a mask. */
size_t sp_ws_header_size(uint64_t len, bool is_masked);

/* Writes a header and returns its size. mask NULL: unmasked. */
size_t sp_ws_write_header(void *out, enum sp_ws_opcode opcode, bool is_final, uint64_t len,
                          const uint8_t *mask);

/* The value of Sec-WebSocket-Accept, without NUL. false: the key is too long to be valid. */
bool sp_ws_accept(struct sp_str key, char ret[SP_WS_ACCEPT_LEN]);

#endif
