/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was decided about hosts, written down before anything comes of it (approvals.md 12.4).
 *
 * A command may try a host again and again: what nobody was asked about is written once for each
 * command, host and decision, as long as that is remembered.
 */
#include "approve/network_priv.h"

static bool is_noted(struct sp_approvals *a, const struct sp_network_note *n)
{
    auto_buf struct sp_buf key = {0};
    struct sp_network *known = a->network;
    const struct sp_str call = n->command->call_id;

    if (known == NULL ||
        !sp_buf_printf(&key, "%s %s %zu ", n->decision, sp_decider_name(n->by), call.n) ||
        !sp_buf_add_str(&key, call) || !sp_buf_add_str(&key, n->url))
        return false;
    if (known->noted == NULL)
        known->noted = sp_cache_new();
    const struct sp_str text = {key.data, key.len};
    if (known->noted == NULL || sp_cache_has(known->noted, text, false))
        return known->noted != NULL;
    (void)sp_cache_store(known->noted, text, false); /* without memory: written again */
    return false;
}

bool sp_network_audit(struct sp_approvals *a, const struct sp_network_note *n, struct sp_err *e)
{
    const struct sp_str argv[] = {SP_STR("network-access"), n->url};
    const struct sp_audit_entry entry = {
        .call_id = n->command->call_id,
        .environment = n->command->environment,
        .cwd = n->command->cwd,
        .command = {argv, 2},
        .policy = &n->command->approval,
        .requirement = n->requirement,
        .decision = n->decision,
        .decided_by = sp_decider_name(n->by),
    };

    if (a->options.audit_log == NULL || (!n->is_asked && is_noted(a, n)))
        return true;
    return sp_approvals_audit(a, &entry, e);
}
