/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output_priv: what is kept of an output, in one or two parts, for mcp/output*.c alone.
 */
#ifndef SP_MCP_OUTPUT_PRIV_H
#define SP_MCP_OUTPUT_PRIV_H

#include "mcp/output.h"

/* Bytes that are neighbours, and the position of the first. */
struct sp_mcp_part {
    struct sp_str bytes;
    uint64_t at;
    bool is_counted; /* its lines: it begins with the first byte */
    bool is_open;    /* more may come behind it */
};

struct sp_mcp_kept {
    struct sp_buf bytes;
    struct sp_mcp_part part[2];
    size_t parts; /* 2: the gap is between them */
    uint64_t omitted;
    uint64_t gap, end; /* gap: where it begins; the end of all */
};

/* Where the gap ends, if there is one. */
static inline uint64_t sp_mcp_gap_end(const struct sp_mcp_kept *k)
{
    return k->gap + k->omitted;
}

static inline bool sp_mcp_is_in_gap(const struct sp_mcp_kept *k, uint64_t at)
{
    return at >= k->gap && at < sp_mcp_gap_end(k);
}

bool sp_mcp_add_gap_mark(struct sp_buf *out, uint64_t omitted);

/* ask, with its from_byte and its bounds made good; o has all but its text and next_byte. */
int sp_mcp_output_grep(const struct sp_mcp_kept *k, const struct sp_mcp_output_ask *ask,
                       struct sp_mcp_output *o, struct sp_err *e);

#endif
