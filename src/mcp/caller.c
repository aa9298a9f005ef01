/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller: the server and its callers.
 *
 *   made on first use --> held <--> detached (timer) --detached_ttl_ms--> ended
 *
 * A caller counts references: one for each connection and each HTTP session in use. Each has a
 * manager of its own, so session ids of one mean nothing to another. When a caller ends, all its
 * processes end; HTTP sessions that are bound to it are told through a watch and continue with a
 * new caller of the same identity.
 */
#include "mcp/caller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "base/log.h"
#include "engine/ids.h"
#include "mcp/mcp_priv.h"
#include "mcp/memory.h"
#include "mcp/parking.h"
#include "mcp/task.h"

#define IDENTITY_MAX 255
#define COMMAND_MAX  80 /* bytes of a command in a note */

static struct sp_mcp_caller *caller_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_mcp_caller, link);
}

/* ---- the server ---- */

static void end_caller(struct sp_mcp_caller *c);

/* Replaces a borrowed text by a copy. On failure it becomes NULL, so that sp_mcp_free is safe. */
static bool copy_option(const char **text)
{
    const bool is_given = *text != NULL;

    *text = is_given ? strdup(*text) : NULL;
    return !is_given || *text != NULL;
}

static void free_option(const char *text)
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
    sp_list_init(&m->callers);
    const bool has_cwd = copy_option(&m->options.cwd);
    const bool has_instructions = copy_option(&m->options.instructions);
    const bool has_others = copy_option(&m->options.instructions_without_asking);
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

void sp_mcp_free(struct sp_mcp *m)
{
    if (m == NULL)
        return;
    while (!sp_list_is_empty(&m->callers))
        end_caller(caller_of(sp_list_first(&m->callers)));
    sp_approvers_free(m->host_alone);
    sp_rules_unref(m->rules);
    free(m->fingerprint);
    free_option(m->options.cwd);
    free_option(m->options.instructions);
    free_option(m->options.instructions_without_asking);
    explicit_bzero(m->key, sizeof m->key);
    free(m);
}

const struct sp_mcp_options *sp_mcp_options(const struct sp_mcp *m)
{
    return &m->options;
}

static bool set_rules_of(struct sp_mcp_caller *c, struct sp_rules *rules, struct sp_str fingerprint)
{
    return sp_approvals_set_rules(sp_manager_approvals(c->manager), rules, fingerprint);
}

bool sp_mcp_set_rules(struct sp_mcp *m, struct sp_rules *rules, struct sp_str fingerprint)
{
    auto_free char *copy = malloc(fingerprint.n + 1);

    if (copy == NULL)
        return false;
    if (fingerprint.n != 0)
        memcpy(copy, fingerprint.p, fingerprint.n);
    copy[fingerprint.n] = 0;
    sp_list_each(i, &m->callers) {
        if (set_rules_of(caller_of(i), rules, fingerprint))
            continue;
        for (struct sp_list *b = i->prev; b != &m->callers; b = b->prev) /* undo the ones before */
            (void)set_rules_of(caller_of(b), m->manager.approvals.rules,
                               m->manager.approvals.fingerprint);
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

/* ---- sessions that ended while no call waited for them ---- */

static void forget_ended(struct sp_mcp_caller *c, uint32_t i)
{
    c->ended_count--;
    memmove(&c->ended[i], &c->ended[i + 1], (c->ended_count - i) * sizeof c->ended[0]);
}

static void add_ended(struct sp_mcp_caller *c, int session_id)
{
    if (c->ended_count == SP_MCP_ENDED_MAX)
        forget_ended(c, 0);
    c->ended[c->ended_count++] = (struct sp_mcp_ended){.session_id = session_id};
}

bool sp_mcp_ended_list(struct sp_mcp_caller *c, int session_id)
{
    for (uint32_t i = 0; i < c->ended_count; i++)
        if (c->ended[i].session_id == session_id) {
            forget_ended(c, i);
            return true;
        }
    return false;
}

static bool add_ended_line(struct sp_buf *out, const struct sp_manager_view *v)
{
    struct sp_str command = v->command;

    if (command.n > COMMAND_MAX)
        command.n = COMMAND_MAX;
    return (out->len == 0 || sp_buf_add(out, "\n", 1)) &&
           sp_buf_printf(out, "Session %d has ended with code %d: ", v->process_id, v->exit_code) &&
           sp_question_add_visible(out, command, false) &&
           (command.n == v->command.n || sp_buf_add_str(out, SP_STR(" ...")));
}

bool sp_mcp_ended_add_note(struct sp_mcp_caller *c, int told, struct sp_buf *out)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < c->ended_count; i++) {
        struct sp_mcp_ended *e = &c->ended[i];
        struct sp_manager_view v;

        if (!e->is_noted && e->session_id != told &&
            sp_manager_view(c->manager, e->session_id, &v) && v.has_exited && !v.is_answered)
            ok = add_ended_line(out, &v);
        e->is_noted = true;
    }
    return ok;
}

/* ---- events of the manager ---- */

static void on_warning(struct sp_mcp_caller *c, const struct sp_exec_event *e)
{
    struct sp_mcp_run *r = e->call_id.n == 0 ? NULL : sp_mcp_run_of_call(c, e->call_id);
    struct sp_buf *to = r != NULL && !r->is_cancelled ? &r->warnings : &c->warnings;
    const size_t before = to->len;

    if ((before != 0 && !sp_buf_add(to, "\n", 1)) || !sp_buf_add_str(to, e->message)) {
        to->len = before;
        sp_log(SP_LOG_WARN, SP_STR_FMT, SP_STR_ARG(e->message));
    }
}

static void on_begin(struct sp_mcp_caller *c, const struct sp_exec_event *e)
{
    struct sp_mcp_run *r = sp_mcp_run_of_call(c, e->call_id);

    if (r == NULL)
        return;
    r->session_id = e->process_id;
    if (e->process_id != 0)
        sp_mcp_log(c, e->process_id, false);
    if (r->begun != NULL)
        r->begun(r);
    if (r->ops != NULL && r->ops->started != NULL)
        r->ops->started(r->user, r->session_id);
}

static void on_end(struct sp_mcp_caller *c, const struct sp_exec_event *e)
{
    struct sp_manager_view v = {0};

    if (e->process_id == 0)
        return;
    sp_mcp_log(c, e->process_id, true);
    sp_list_each(i, &c->runs) {
        const struct sp_mcp_run *r = SP_CONTAINER(i, struct sp_mcp_run, link);

        if (r->session_id == e->process_id && !r->is_cancelled)
            return; /* a call waits for the process and reports its end */
    }
    /* A process that a call or its cancellation terminated is no news. */
    if (sp_manager_view(c->manager, e->process_id, &v) && v.end_reason != SP_END_TERMINATED)
        add_ended(c, e->process_id);
}

static void on_event(void *user, const struct sp_exec_event *e)
{
    if (e->type == SP_EVENT_BEGIN)
        on_begin(user, e);
    else if (e->type == SP_EVENT_END)
        on_end(user, e);
    else if (e->type == SP_EVENT_WARNING)
        on_warning(user, e);
    else if (e->type == SP_EVENT_NOTICE)
        sp_mcp_log_notice(user, e->message);
}

const struct sp_manager_ops sp_mcp_manager_ops = {.event = on_event};

/* ---- one caller ---- */

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

/* Must not be called from within a callback of the manager. */
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
    /* Order: no waiter is left when sp_manager_free answers all calls as aborted. */
    sp_mcp_tasks_free(c->tasks);
    sp_mcp_parking_free(c->parking);
    sp_list_each(r, &c->runs)
        sp_mcp_run_cancel(SP_CONTAINER(r, struct sp_mcp_run, link));
    sp_manager_free(c->manager);
    sp_mcp_runs_free(c);
    sp_approver_free(c->approvers);
    sp_mcp_memory_free(c->memory);
    sp_list_remove(&c->link);
    c->mcp->caller_count--;
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
    o.approvals.approver = &c->questions;
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
    sp_list_init(&c->runs);
    sp_list_init(&c->peers);
    sp_list_init(&c->watches);
    c->number = m->caller_total + 1;
    c->warnings.max = SP_MCP_WARNINGS_MAX;
    if (sp_mcp_caller_open_approvers(c, e) < 0 || open_manager(c, e) < 0) {
        sp_approver_free(c->approvers);
        free(c->identity);
        free(c);
        return NULL;
    }
    m->caller_total++;
    sp_list_append(&m->callers, &c->link);
    m->caller_count++;
    return c;
}

int sp_mcp_caller_hold(struct sp_mcp *m, struct sp_str identity, struct sp_mcp_caller **ret,
                       struct sp_err *e)
{
    struct sp_mcp_caller *c = NULL;
    struct sp_err why = {0};

    if (identity.n == 0 || identity.n > IDENTITY_MAX || sp_str_has_nul(identity))
        return sp_fail(e, SP_E_INVALID, 0, "a caller's identity has 1 to %d bytes", IDENTITY_MAX);
    sp_list_each(i, &m->callers) {
        if (sp_str_eq(sp_str_of(caller_of(i)->identity), identity))
            c = caller_of(i);
    }
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
    /* Out of memory for the timer: end it now rather than never. */
    if (!sp_loop_timer(loop, &c->detached_timer, sp_loop_now(loop) + ttl_ms, on_detached))
        sp_loop_again(loop, &c->ending, on_ending);
}
