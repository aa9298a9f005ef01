/* SPDX-License-Identifier: Apache-2.0 */
/* manager_state: what a manager holds, and the invariants of that between two turns of the loop. */
#ifndef SP_MANAGER_STATE_H
#define SP_MANAGER_STATE_H

#include "engine/manager_priv.h"

/* NULL: the manager has no process. */
static inline struct sp_process *first_process(const struct sp_manager *m)
{
    struct sp_list *first = sp_list_first(&m->processes);

    return first == NULL ? NULL : SP_CONTAINER(first, struct sp_process, link);
}

/* Ids in use. */
static inline uint32_t sp_manager_reserved(const struct sp_manager *m)
{
    return m->ids.reserved_count;
}

/* Entries. */
static inline uint32_t sp_manager_stored(const struct sp_manager *m)
{
    return m->stored;
}

static inline const char *check_remembered(const struct sp_manager *m, uint32_t *ret_ids)
{
    uint32_t count = 0;
    size_t bytes = 0;

    sp_list_each(i, &m->remembered) {
        const struct sp_remembered *r = SP_CONTAINER(i, struct sp_remembered, link);

        if (!sp_ids_is_reserved(&m->ids, r->view.process_id))
            return "I5: a record without an id";
        if (!r->view.has_exited || r->view.end_reason == SP_END_NONE)
            return "a record of a process that has not ended";
        bytes += r->bytes;
        count++;
    }
    if (count != m->remembered_count || bytes != m->remembered_bytes)
        return "the records were miscounted";
    if (count > SP_REMEMBERED_MAX || bytes > SP_REMEMBERED_BYTES)
        return "too many records";
    *ret_ids = count;
    return NULL;
}

static inline const char *check_process(const struct sp_process *p)
{
    if (sp_process_has_exited(p) && !p->has_exit_code && !sp_process_has_failed(p))
        return "I1: exited without an exit code or a failure";
    if (p->received != p->answered + sp_headtail_total(&p->pending))
        return "I2: output was lost, or answered twice";
    if ((!p->is_at_end || p->m->options.remembers_ended) &&
        p->received + p->ahead != sp_headtail_total(&p->transcript))
        return "I3: the transcript is not the whole output";
    if (p->has_ended && !p->is_drained)
        return "I4: the end before the last of the output";
    if (p->has_ended && !p->m->options.remembers_ended && sp_headtail_total(&p->transcript) != 0)
        return "I4: a transcript after the end event";
    if ((p->is_stored || p->holds_id) && !sp_ids_is_reserved(&p->m->ids, p->id))
        return "I5: an entry without an id";
    if (p->is_stored && p->holds_id)
        return "I5: an id that is held twice";
    if (sp_process_has_exited(p) != (sp_process_end_reason(p) != SP_END_NONE))
        return "ended without a reason, or the other way round";
    if (p->life == SP_PROCESS_CLOSED && !p->is_job_over)
        return "closed, but its job goes on";
    return NULL;
}

static inline const char *check_call(const struct sp_call *c)
{
    if (c->is_answered)
        return "an answered call among the live ones";
    if (c->reserved_id != 0 && !sp_ids_is_reserved(&c->m->ids, c->reserved_id))
        return "I5: a call without its id";
    if (c->is_collecting && c->m->pauses == 0 && !c->m->is_clock_stopped &&
        c->deadline_ms <= sp_loop_now(c->m->loop))
        return "I6: a call waits past its deadline";
    if (c->is_collecting && c->is_hurried && c->process->has_begun &&
        !sp_process_has_exited(c->process))
        return "I6: a call waits although it is to answer now";
    if (c->is_collecting && c->m->pauses == 0 && c->until != NULL && c->until->woken_by >= 0 &&
        c->process->has_begun && !sp_process_has_exited(c->process))
        return "I6: a call waits although what it waited for has come";
    return NULL;
}

/* NULL, or the invariant that does not hold. */
static inline const char *sp_manager_check(const struct sp_manager *m)
{
    uint32_t ids = 0;
    uint32_t stored = 0;
    const char *forgotten = check_remembered(m, &ids);

    if (forgotten != NULL)
        return forgotten;

    sp_each_process(p, m) {
        const char *wrong = check_process(p);

        if (wrong != NULL)
            return wrong;
        stored += p->is_stored;
        ids += p->holds_id;
    }
    sp_each_call(c, &m->calls) {
        const char *wrong = check_call(c);

        if (wrong != NULL)
            return wrong;
        ids += c->reserved_id != 0;
    }
    if (stored != m->stored)
        return "entries were miscounted";
    return ids + stored == m->ids.reserved_count ? NULL : "I5: a reserved id without a holder";
}

#endif
