/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parking: runs that wait for a person's answer after their call had to end. A parked
 * run is held: it starts nothing until a call comes back for it, once, within ten minutes; then it
 * is cancelled. At most 64 per caller; then the oldest is cancelled.
 */
#ifndef SP_MCP_PARKING_H
#define SP_MCP_PARKING_H

#include "mcp/mcp_run.h"

#define SP_MCP_PARKED_MAX 64
#define SP_MCP_PARKED_MS  600000

/* Identifies a call by its tool and arguments. The order of members, white space, escapes and the
 * spelling of numbers do not matter. */
struct sp_mcp_digest {
    uint8_t bytes[32];
};
bool sp_mcp_digest_of(struct sp_str tool, struct sp_json *arguments, struct sp_mcp_digest *ret);

/* The parking owns the run. wants_repeat: any call with the same digest takes it; else only the
 * ticket does. *ret_number is never used again. false: out of memory; the run is cancelled. */
bool sp_mcp_park(struct sp_mcp_run *r, const struct sp_mcp_digest *d, bool wants_repeat,
                 uint64_t *ret_number);
/* Takes a run out; NULL: not (or no longer) parked. sp_mcp_run_attach ends the hold. */
struct sp_mcp_run *sp_mcp_unpark(struct sp_mcp_caller *c, uint64_t number);
struct sp_mcp_run *sp_mcp_unpark_same(struct sp_mcp_caller *c, const struct sp_mcp_digest *d);
/* The run with this number, which stays parked: for a late answer. */
struct sp_mcp_run *sp_mcp_parked(const struct sp_mcp_caller *c, uint64_t number);
void sp_mcp_parking_free(struct sp_mcp_parking *p); /* cancels all; NULL is fine */

/* A ticket (requestState) leads a client back to a parked run. */
bool sp_mcp_ticket_add(struct sp_buf *out, const struct sp_mcp_caller *c, uint64_t number,
                       const struct sp_mcp_digest *d);
/* SP_E_MALFORMED: not signed by this server. SP_E_INVALID: another caller's, expired, or of another
 * call. A ticket can be read again; its run can be taken only once. */
int sp_mcp_ticket_read(struct sp_str state, const struct sp_mcp_caller *c,
                       const struct sp_mcp_digest *d, uint64_t *ret_number, struct sp_err *e);

#endif
