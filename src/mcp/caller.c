/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers come when they are first asked for and stay for as long as somebody holds them, or a
 * while longer. Each has a manager of its own, so no number of one means anything to another.
 */
#include "mcp/caller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "engine/ids.h"
#include "mcp/mcp_priv.h"
#include "mcp/memory.h"
#include "mcp/parking.h"
#include "mcp/task.h"

#define IDENTITY_MAX 255

/* ---- the server ---- */

static bool keep_text(const char **text)
{
    char *copy = *text == NULL ? NULL : strdup(*text);
    const bool ok = *text == NULL || copy != NULL;

    *text = copy;
    return ok;
}

static void free_text(const char *text)
{
    free((char *)(uintptr_t)text);
}

int sp_mcp_new(const struct sp_mcp_options *o, struct sp_mcp **ret, struct sp_err *e)
{
    struct sp_mcp *m = calloc(1, sizeof *m);

    if (m == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the MCP server");
    m->options = *o;
    m->manager = *o->manager;
    m->options.manager = &m->manager;
    const bool has_cwd = keep_text(&m->options.cwd);
    const bool has_instructions = keep_text(&m->options.instructions);
    const bool has_others = keep_text(&m->options.instructions_without_asking);
    if (!has_cwd || !has_instructions || !has_others ||
        (o->approvers == NULL &&
         sp_approvers_add(&m->host_alone, o->loop, 0, NULL, false, NULL) < 0)) {
        sp_mcp_free(m);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the MCP server");
    }
    if (o->approvers == NULL)
        m->options.approvers = m->host_alone;
    if (getrandom(m->key, sizeof m->key, 0) != (ssize_t)sizeof m->key) {
        const int sys = errno;

        sp_mcp_free(m);
        return sp_fail(e, SP_E_SYSTEM, sys, "make the key of approval tickets");
    }
    *ret = m;
    return 0;
}

static void end_caller(struct sp_mcp_caller *c);

void sp_mcp_free(struct sp_mcp *m)
{
    if (m == NULL)
        return;
    while (m->callers != NULL)
        end_caller(m->callers);
    sp_approvers_free(m->host_alone);
    sp_rules_unref(m->rules);
    free(m->fingerprint);
    free_text(m->options.cwd);
    free_text(m->options.instructions);
    free_text(m->options.instructions_without_asking);
    explicit_bzero(m->key, sizeof m->key);
    free(m);
}

const struct sp_mcp_options *sp_mcp_options(const struct sp_mcp *m)
{
    return &m->options;
}

/* ---- rules ---- */

static bool set_rules_of(struct sp_mcp_caller *c, struct sp_rules *rules, struct sp_str fingerprint)
{
    return sp_approvals_set_rules(sp_manager_approvals(c->manager), rules, fingerprint);
}

/* Those before this one have the new ones already. */
static void take_rules_back(struct sp_mcp *m, const struct sp_mcp_caller *failed)
{
    for (struct sp_mcp_caller *c = m->callers; c != failed; c = c->next)
        (void)set_rules_of(c, m->manager.approvals.rules, m->manager.approvals.fingerprint);
}

bool sp_mcp_set_rules(struct sp_mcp *m, struct sp_rules *rules, struct sp_str fingerprint)
{
    auto_free char *copy = malloc(fingerprint.n + 1);

    if (copy == NULL)
        return false;
    if (fingerprint.n != 0)
        memcpy(copy, fingerprint.p, fingerprint.n);
    copy[fingerprint.n] = 0;
    for (struct sp_mcp_caller *c = m->callers; c != NULL; c = c->next)
        if (!set_rules_of(c, rules, fingerprint)) {
            take_rules_back(m, c);
            return false;
        }
    struct sp_rules *before = m->rules;
    m->rules = rules == NULL ? NULL : sp_rules_ref(rules);
    sp_rules_unref(before);
    free(m->fingerprint);
    m->fingerprint = TAKE_PTR(copy);
    m->manager.approvals.rules = m->rules;
    m->manager.approvals.fingerprint = (struct sp_str){m->fingerprint, fingerprint.n};
    return true;
}

/* ---- one caller ---- */

static void link_caller(struct sp_mcp *m, struct sp_mcp_caller *c)
{
    c->prev = m->newest;
    *(c->prev != NULL ? &c->prev->next : &m->callers) = c;
    m->newest = c;
    m->caller_count++;
}

static void unlink_caller(struct sp_mcp *m, struct sp_mcp_caller *c)
{
    *(c->prev != NULL ? &c->prev->next : &m->callers) = c->next;
    *(c->next != NULL ? &c->next->prev : &m->newest) = c->prev;
    m->caller_count--;
}

void sp_mcp_caller_watch_add(struct sp_mcp_caller_watch *w, struct sp_mcp_caller *c)
{
    w->caller = c;
    sp_list_prepend(&c->watches, &w->link);
}

void sp_mcp_caller_watch_remove(struct sp_mcp_caller_watch *w)
{
    sp_list_remove(&w->link);
    w->caller = NULL;
}

/* Not from within anything that its manager tells. */
static void end_caller(struct sp_mcp_caller *c)
{
    struct sp_list *i;

    while ((i = sp_list_first(&c->watches)) != NULL) {
        struct sp_mcp_caller_watch *w = SP_CONTAINER(i, struct sp_mcp_caller_watch, link);

        sp_mcp_caller_watch_remove(w);
        w->ended(w);
    }
    sp_loop_cancel(c->mcp->options.loop, &c->detached_timer);
    sp_loop_undefer(c->mcp->options.loop, &c->ending);
    sp_loop_undefer(c->mcp->options.loop, &c->logging);
    sp_mcp_tasks_free(c->tasks);
    sp_mcp_parking_free(c->parking);
    sp_mcp_runs_let_go(c);
    sp_manager_free(c->manager);
    sp_mcp_runs_free(c);
    sp_approver_free(c->approver);
    sp_mcp_lookings_free(c);
    sp_mcp_memory_free(c->memory);
    unlink_caller(c->mcp, c);
    sp_buf_done(&c->warnings);
    free(c->identity);
    free(c);
}

static int open_manager(struct sp_mcp_caller *c, struct sp_err *e)
{
    struct sp_manager_options o = c->mcp->manager;
    char thread_id[SP_UUID_SIZE];

    if (!sp_uuid_make(thread_id))
        return sp_fail(e, SP_E_SYSTEM, errno, "name the conversation");
    o.thread_id = o.session_id = thread_id; /* copied; one conversation is one session */
    o.loop = c->mcp->options.loop;
    o.ops = &sp_mcp_manager_ops;
    o.user = c;
    o.remembers_ended = true;
    return sp_manager_new(&o, &c->manager, e);
}

static struct sp_mcp_caller *make_caller(struct sp_mcp *m, struct sp_str identity, struct sp_err *e)
{
    struct sp_mcp_caller *c = calloc(1, sizeof *c);

    if (c == NULL || (c->identity = strndup(identity.p, identity.n)) == NULL) {
        free(c);
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "serve one more caller");
        return NULL;
    }
    c->mcp = m;
    sp_list_init(&c->watches);
    c->number = m->caller_total + 1;
    c->warnings.max = SP_MCP_WARNINGS_MAX;
    if (sp_mcp_caller_open_approvers(c, e) < 0 || open_manager(c, e) < 0) {
        sp_approver_free(c->approver);
        free(c->identity);
        free(c);
        return NULL;
    }
    m->caller_total++;
    link_caller(m, c);
    return c;
}

static struct sp_mcp_caller *find_caller(const struct sp_mcp *m, struct sp_str identity)
{
    struct sp_mcp_caller *c = m->callers;

    while (c != NULL && !sp_str_eq(sp_str_of(c->identity), identity))
        c = c->next;
    return c;
}

int sp_mcp_caller_hold(struct sp_mcp *m, struct sp_str identity, struct sp_mcp_caller **ret,
                       struct sp_err *e)
{
    struct sp_err why = {0};

    if (identity.n == 0 || identity.n > IDENTITY_MAX || sp_str_has_nul(identity))
        return sp_fail(e, SP_E_INVALID, 0, "a caller's identity has 1 to %d bytes", IDENTITY_MAX);
    struct sp_mcp_caller *c = find_caller(m, identity);
    if (c == NULL && m->caller_count >= SP_MCP_CALLERS_MAX)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "%d callers have sessions here already: more can come when one of them has "
                       "been away for detached_ttl_s",
                       SP_MCP_CALLERS_MAX);
    if (c == NULL && (c = make_caller(m, identity, &why)) == NULL)
        return sp_fail(e, why.code, why.sys, "%s", why.msg);
    c->held++;
    sp_loop_cancel(m->options.loop, &c->detached_timer);
    sp_loop_undefer(m->options.loop, &c->ending);
    *ret = c;
    return 0;
}

/* ---- nobody holds it ---- */

static void on_detached(struct sp_timer *t)
{
    end_caller(SP_CONTAINER(t, struct sp_mcp_caller, detached_timer));
}

static void on_ending(struct sp_deferred *d)
{
    end_caller(SP_CONTAINER(d, struct sp_mcp_caller, ending));
}

void sp_mcp_caller_release(struct sp_mcp_caller *c)
{
    struct sp_loop *loop = c->mcp->options.loop;
    const uint64_t ttl_ms = c->mcp->options.detached_ttl_ms;

    if (--c->held != 0 || ttl_ms == 0)
        return;
    if (!sp_loop_timer(loop, &c->detached_timer, sp_loop_now(loop) + ttl_ms, on_detached))
        sp_loop_again(loop, &c->ending, on_ending); /* sooner, rather than never */
}
