/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parking_priv: what parked runs and their tickets share.
 */
#ifndef SP_MCP_PARKING_PRIV_H
#define SP_MCP_PARKING_PRIV_H

#include "mcp/mcp_priv.h"
#include "mcp/parking.h"

struct sp_mcp_parked {
    struct sp_mcp_parked *prev, *next;
    struct sp_mcp_run *run;
    uint64_t number, expires_ms;
    struct sp_mcp_digest digest;
    bool wants_repeat;
};

struct sp_mcp_parking {
    struct sp_mcp_caller *caller;
    struct sp_mcp_parked *oldest, *newest;
    uint32_t count;
    uint64_t last_number;
    struct sp_timer timer;
};

/* NULL: it is not there (any more). */
struct sp_mcp_parked *sp_mcp_parked_find(const struct sp_mcp_caller *c, uint64_t number);

#endif
