/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output: read what the manager still holds of a session's output, by byte, by line or by search.
 * The head and the tail are kept; the bytes between them (the gap) may be gone.
 */
#ifndef SP_MCP_OUTPUT_H
#define SP_MCP_OUTPUT_H

#include "base/buf.h"
#include "base/error.h"
#include "engine/manager.h"

#define SP_MCP_OUTPUT_LIMIT       16384   /* bytes of text, by default */
#define SP_MCP_OUTPUT_LIMIT_MAX   1048576 /* larger limits are cut to this */
#define SP_MCP_OUTPUT_CONTEXT     2       /* lines around a match, by default */
#define SP_MCP_OUTPUT_CONTEXT_MAX 100

struct sp_mcp_output_request {
    /* At most one of them, except that from_byte may continue a grep. None: the first kept byte. */
    bool has_from_byte, has_line, has_grep;
    uint64_t from_byte;
    uint64_t line; /* 1-based */
    struct sp_str grep;
    uint64_t context, limit; /* limit 0: SP_MCP_OUTPUT_LIMIT */
    bool is_plain;           /* strip escape sequences, turn CR LF into LF */
};

struct sp_mcp_output {
    struct sp_buf text;            /* valid UTF-8 */
    uint64_t from_byte, next_byte; /* the bytes that text covers; reading continues at next_byte */
    uint64_t first_byte, end_byte; /* first_byte: 0, or the end of the gap if the head is gone */
    uint64_t omitted_bytes;        /* lost bytes inside the covered range, or just before it */
    bool has_matches;
    uint64_t matches; /* matching lines in everything that is kept */
};

/*
 * A from_byte inside the gap moves to the end of the gap. Lines are counted from the first byte; a
 * line behind the gap has no known number and is refused, like one that does not exist (yet).
 *
 * grep returns matching lines with their numbers (`12:text`; behind the gap `+3:text` counts from
 * its end) and context (`11-text`), groups separated by `--`, as grep(1) does. next_byte is where
 * the search continues: pass it as from_byte together with grep.
 *
 * The text exceeds `limit` only by its first character or by the prefix of its first match. While
 * the process may print more, an incomplete character or escape sequence at the end, and for grep
 * an incomplete last line, is left for the next call.
 *
 * SP_E_INVALID: bad address or expression. SP_E_LIMIT: the search needs too much CPU time.
 */
int sp_mcp_output_read(const struct sp_manager_view *v, const struct sp_mcp_output_request *request,
                       struct sp_mcp_output *ret, struct sp_err *e);
static inline void sp_mcp_output_done(struct sp_mcp_output *o)
{
    sp_buf_done(&o->text);
}

/* Appends bytes without escape sequences. The state carries over from one piece to the next. */
struct sp_mcp_plain {
    uint8_t state;
    bool has_cr;
};
bool sp_mcp_plain_add(struct sp_mcp_plain *p, struct sp_buf *out, struct sp_str bytes);

#endif
