/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approval_records: what was approved for a session, in the ledger (core/ledger.h), so that the
 * next front does not ask again.
 */
#ifndef SP_CLI_APPROVAL_RECORDS_H
#define SP_CLI_APPROVAL_RECORDS_H

#include "approve/approvals.h"

struct sp_ledger;

struct sp_approval_records {
    struct sp_ledger *ledger; /* NULL: nothing is kept */
    uint64_t session;         /* number */
    const struct sp_str
        *fingerprint; /* of the managed rules, now: an answer counts for them alone */
};

/* For sp_approvals_options.store; `r` outlives the approvals. */
struct sp_cache_backing sp_approval_records_store(struct sp_approval_records *r);
/* Gives what an earlier front kept for the session to new approvals. */
void sp_approval_records_restore(struct sp_approval_records *r, struct sp_approvals *a);
/* The session ends, and has no approvals in this front. */
void sp_approval_records_forget(struct sp_ledger *l, uint64_t session);

#endif
