/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/approval_records.h"

#include <string.h>

#include "base/hash.h"
#include "core/ledger.h"

struct approval_record {
    uint64_t session;
    struct sp_hash fingerprint;
    uint32_t covers_retry, size;
    char key[];
};

static void *keep(void *user, struct sp_str key, bool covers_retry)
{
    struct sp_approval_records *r = user;
    struct approval_record *n =
        r->ledger == NULL || key.n > UINT32_MAX
            ? NULL
            : sp_ledger_alloc(r->ledger, SP_LEDGER_APPROVAL, 0, sizeof *n + key.n);

    if (n == NULL)
        return NULL;
    n->session = r->session;
    n->fingerprint = sp_hash(*r->fingerprint);
    n->covers_retry = covers_retry;
    n->size = (uint32_t)key.n;
    memcpy(n->key, key.p, key.n);
    sp_ledger_commit(r->ledger, n);
    return n;
}

static void drop(void *user, void *kept)
{
    sp_ledger_free(((struct sp_approval_records *)user)->ledger, kept);
}

struct sp_cache_backing sp_approval_records_store(struct sp_approval_records *r)
{
    return (struct sp_cache_backing){.keep = keep, .drop = drop, .user = r};
}

/* The next record of the session, from one to the next: `next` has been found before fn frees
 * one. */
static struct approval_record *next_record(struct sp_ledger *l, uint64_t session, void *after,
                                           bool *ret_is_sound)
{
    size_t loose;
    size_t fixed;
    struct approval_record *n = after;

    while ((n = sp_ledger_next(l, SP_LEDGER_APPROVAL, n, &loose, &fixed)) != NULL) {
        const bool is_sound = loose == 0 && fixed >= sizeof *n && n->size == fixed - sizeof *n;

        if (is_sound && n->session != session)
            continue;
        *ret_is_sound = is_sound;
        return n;
    }
    return NULL;
}

void sp_approval_records_restore(struct sp_approval_records *r, struct sp_approvals *a)
{
    struct sp_hash now;
    bool is_sound = false;
    bool is_next_sound = false;

    if (r->ledger == NULL)
        return;
    now = sp_hash(*r->fingerprint);
    struct approval_record *n = next_record(r->ledger, r->session, NULL, &is_sound);
    for (struct approval_record *next; n != NULL; n = next, is_sound = is_next_sound) {
        next = next_record(r->ledger, r->session, n, &is_next_sound);
        if (is_sound && n->fingerprint.a == now.a && n->fingerprint.b == now.b)
            sp_approvals_restore(a, (struct sp_str){n->key, n->size}, n->covers_retry != 0, n);
        else
            sp_ledger_free(r->ledger, n);
    }
}

void sp_approval_records_forget(struct sp_ledger *l, uint64_t session)
{
    bool is_sound;

    if (l == NULL)
        return;
    struct approval_record *n = next_record(l, session, NULL, &is_sound);
    for (struct approval_record *next; n != NULL; n = next) {
        next = next_record(l, session, n, &is_sound);
        sp_ledger_free(l, n);
    }
}
