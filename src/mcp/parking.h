/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parking: runs that nobody waits for, because somebody is asked and the call had to end before the
 * answer (mcp-and-acp.md 2.7, 4). A parked run is held: it starts nothing until a call comes back
 * for it, once, within ten minutes; then it is cancelled. At most 64 a caller; then the oldest
 * goes.
 */
#ifndef SP_MCP_PARKING_H
#define SP_MCP_PARKING_H

#include "mcp/mcp_run.h"

#define SP_MCP_PARKED_MAX 64
#define SP_MCP_PARKED_MS  600000

/* What a call is about: its tool and its arguments, in one spelling. */
struct sp_mcp_digest {
    uint8_t bytes[32];
};
/* Members in any order, white space and spellings of one string aside. */
int sp_mcp_digest_of(struct sp_str tool, struct sp_str arguments, struct sp_mcp_digest *ret,
                     struct sp_err *e);

/* The run is the parking's. wants_repeat: any call with the same digest gets it; else only the
 * ticket's. *ret_number is never used again. false: no memory, and the run is cancelled. */
bool sp_mcp_park(struct sp_mcp_run *r, const struct sp_mcp_digest *d, bool wants_repeat,
                 uint64_t *ret_number);
/* Takes one out: NULL if it is not there (any more). Held no longer, once it is attached. */
struct sp_mcp_run *sp_mcp_unpark(struct sp_mcp_caller *c, uint64_t number);
/* The one with this number, which stays parked: for an answer that comes late. NULL as above. */
struct sp_mcp_run *sp_mcp_parked(const struct sp_mcp_caller *c, uint64_t number);
struct sp_mcp_run *sp_mcp_unpark_same(struct sp_mcp_caller *c, const struct sp_mcp_digest *d);
void sp_mcp_parking_free(struct sp_mcp_parking *p); /* cancels all; NULL is fine */

/*
 * requestState: `v1.<payload>.<mac>`, both base64url. The payload has the number of a parked run,
 * the key of its question, who called, when it expires, and the digest. Keys of questions are
 * `approve_1`, `approve_2` ...
 */
bool sp_mcp_ticket_add(struct sp_buf *out, const struct sp_mcp_caller *c, uint64_t number,
                       const struct sp_mcp_digest *d);
/* SP_E_INVALID: broken, somebody else's, expired, or of another call. It can be read again: what it
 * leads to cannot be had twice. */
int sp_mcp_ticket_read(struct sp_str state, const struct sp_mcp_caller *c,
                       const struct sp_mcp_digest *d, uint64_t *ret_number, struct sp_err *e);

#endif
