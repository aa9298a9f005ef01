/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output: addresses in what is kept of a session's output: by byte, by line, by what it says. It
 * only reads; the middle may be missing.
 */
#ifndef SP_MCP_OUTPUT_H
#define SP_MCP_OUTPUT_H

#include "base/buf.h"
#include "base/error.h"
#include "engine/manager.h"

#define SP_MCP_OUTPUT_LIMIT       16384   /* bytes, unless asked for others */
#define SP_MCP_OUTPUT_LIMIT_MAX   1048576 /* and never more than these */
#define SP_MCP_OUTPUT_CONTEXT     2       /* lines around a match */
#define SP_MCP_OUTPUT_CONTEXT_MAX 100

struct sp_mcp_output_ask {
    /* At most one, but grep may begin at from_byte; none: from the first byte kept. */
    bool has_from_byte, has_line, has_grep;
    uint64_t from_byte;
    uint64_t line; /* 1-based */
    struct sp_str grep;
    uint64_t context, limit; /* limit 0: SP_MCP_OUTPUT_LIMIT */
    bool is_plain;           /* without escape sequences, and with LF for CR LF */
};

struct sp_mcp_output {
    struct sp_buf text;            /* valid UTF-8 */
    uint64_t from_byte, next_byte; /* what it covers; next_byte is where to go on */
    uint64_t first_byte, end_byte; /* first_byte: 0, or behind the gap if the head is gone */
    uint64_t omitted_bytes;        /* of what it covers, or of the gap if it begins there */
    bool has_matches;
    uint64_t matches; /* lines that match in all that is kept */
};

/*
 * A byte in the gap leads to the first one behind it. Lines count from the first byte; one behind
 * the gap cannot be counted and is refused, as is one that is not there (yet). grep gives matching
 * lines with their numbers (`12:text`; behind the gap `+3:text` counts from there) and context
 * (`11-text`), groups parted by `--`, like grep does; next_byte is then where the search can go on,
 * which is from_byte beside grep. SP_E_INVALID says what is wrong with the address; SP_E_LIMIT: the
 * search would take too long. A limit is passed only by the first character, or the first match's
 * number and mark. While more may come, a character or an escape sequence that is not whole, or (in
 * a search) the last line, is left for the next time.
 */
int sp_mcp_output_read(const struct sp_manager_view *v, const struct sp_mcp_output_ask *ask,
                       struct sp_mcp_output *ret, struct sp_err *e);
void sp_mcp_output_done(struct sp_mcp_output *o);

/* Takes escape sequences out of text, appending what is left. State survives pieces. */
struct sp_mcp_plain {
    uint8_t state;
    bool has_cr;
};
bool sp_mcp_plain_add(struct sp_mcp_plain *p, struct sp_buf *out, struct sp_str bytes);

#endif
