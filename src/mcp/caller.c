/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller: the server, its callers, and what a caller has: keys, inspections, log messages.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "base/utf8.h"
#include "engine/console.h"
#include "engine/ids.h"
#include "mcp/mcp_run.h"
#include "mcp/peer_priv.h"
#include "mcp/task.h"

#define IDENTITY_MAX 255

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

/* ---- keys of exec_command and write ids of write_stdin ----
 *
 * Searched linearly: there are at most 1024 of at most 256 bytes, and a search happens once per
 * call that names one, so an index would not pay.
 */

static struct sp_mcp_key *key_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_mcp_key, link);
}

void sp_mcp_key_forget(struct sp_mcp_key *k)
{
    while (sp_list_take_first(&k->waits) != NULL)
        continue;
    sp_list_remove(&k->link);
    k->caller->key_count--;
    free(k);
}

int sp_mcp_key_take(struct sp_mcp_caller *c, int scope, struct sp_str id, struct sp_mcp_key **ret,
                    bool *ret_is_new, struct sp_err *e)
{
    const uint64_t now = sp_loop_now(c->loop);
    struct sp_mcp_key *oldest = NULL; /* key of a finished call */

    if (id.n == 0 || id.n > SP_MCP_KEY_BYTES_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "`%s` has 1 to %d bytes",
                       scope == 0 ? "key" : "write_id", SP_MCP_KEY_BYTES_MAX);
    sp_list_each_safe(i, &c->keys) { /* oldest first */
        if (key_of(i)->due_ms > now)
            break;
        if (key_of(i)->run == NULL)
            sp_mcp_key_forget(key_of(i));
    }
    *ret_is_new = false;
    sp_list_each(i, &c->keys) {
        *ret = key_of(i);
        if ((*ret)->scope == scope && sp_str_eq((struct sp_str){(*ret)->id, (*ret)->n}, id))
            return 0;
        if (oldest == NULL && (*ret)->run == NULL)
            oldest = *ret;
    }
    if (c->key_count >= SP_MCP_KEYS_MAX && oldest == NULL)
        return sp_fail(e, SP_E_LIMIT, 0, "%d calls with a key are under way; wait for some of them",
                       SP_MCP_KEYS_MAX);
    if (c->key_count >= SP_MCP_KEYS_MAX)
        sp_mcp_key_forget(oldest);
    struct sp_mcp_key *k = calloc(1, sizeof *k + id.n);
    if (k == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember a call");
    k->caller = c;
    sp_list_init(&k->waits);
    k->scope = scope;
    k->due_ms = now + SP_MCP_KEY_MS;
    k->n = id.n;
    memcpy(k->id, id.p, id.n);
    sp_list_append(&c->keys, &k->link);
    c->key_count++;
    *ret = k;
    *ret_is_new = true;
    return 0;
}

/* ---- inspections ----
 *
 * An inspection cannot be cancelled: the manager always answers it, at the latest when it is freed.
 * It therefore belongs to the caller and not to the run, which may be gone by then.
 */

struct sp_mcp_inspection {
    struct sp_mcp_caller *caller;
    struct sp_list link;
    sp_manager_inspect_fn *fn; /* NULL: forgotten, or its deadline has passed */
    void *user;
    bool is_asking; /* inside sp_manager_inspect, which answers at once if it is out of memory */
    struct sp_timer deadline;
};

static void free_inspection(struct sp_mcp_inspection *x)
{
    sp_loop_cancel(x->caller->loop, &x->deadline);
    sp_list_remove(&x->link);
    free(x);
}

static void on_inspected(void *user, const struct sp_inspection *found)
{
    struct sp_mcp_inspection *x = user;
    sp_manager_inspect_fn *fn = x->fn;
    void *owner = x->user;

    if (x->is_asking) {
        x->is_asking = false;
        return;
    }
    free_inspection(x);
    if (fn != NULL)
        fn(owner, found);
}

/* The inspection itself stays until the manager answers. */
static void on_deadline(struct sp_timer *t)
{
    struct sp_mcp_inspection *x = SP_CONTAINER(t, struct sp_mcp_inspection, deadline);
    sp_manager_inspect_fn *fn = x->fn;

    x->fn = NULL;
    if (fn != NULL)
        fn(x->user, NULL);
}

struct sp_mcp_inspection *sp_mcp_inspect(struct sp_mcp_caller *c, int session_id, uint64_t wait_ms,
                                         sp_manager_inspect_fn *fn, void *user)
{
    struct sp_mcp_inspection *x = calloc(1, sizeof *x);

    if (x == NULL)
        return NULL;
    *x = (struct sp_mcp_inspection){.caller = c, .fn = fn, .user = user};
    if (wait_ms != 0 &&
        !sp_loop_timer(c->loop, &x->deadline, sp_loop_now(c->loop) + wait_ms, on_deadline)) {
        free(x);
        return NULL;
    }
    sp_list_append(&c->inspections, &x->link);
    x->is_asking = true;
    sp_manager_inspect(c->manager, session_id, on_inspected, x);
    if (!x->is_asking) { /* answered from within the call: unknown */
        free_inspection(x);
        return NULL;
    }
    x->is_asking = false;
    return x;
}

void sp_mcp_inspection_forget(struct sp_mcp_inspection *x)
{
    if (x != NULL)
        x->fn = NULL;
}

/* ---- log messages ----
 *
 * `notifications/message` about sessions that start (debug) or end (info) and commands that are run
 * again (info). A legacy host asks for them with logging/setLevel; a modern one names a level in a
 * request and hears them while that request is open. A host that does not read loses them.
 */

static bool is_wanted(enum sp_mcp_log_level from, enum sp_mcp_log_level level)
{
    return from != SP_MCP_LOG_NONE && level >= from;
}

/* Where a log message of this level goes; NULL: the peer does not want it. HTTP has no `out` for
 * the whole conversation: there the message goes with an open request. */
static struct sp_mcp_out *find_log_out(const struct sp_mcp_peer *p, enum sp_mcp_log_level level)
{
    const bool peer_wants = is_wanted(p->log_level, level);

    if (peer_wants && p->out != NULL)
        return p->out;
    sp_list_each(i, &p->open) {
        const struct sp_mcp_request *r = SP_CONTAINER(i, struct sp_mcp_request, link);

        if (r->out != NULL && !r->is_subscription &&
            (r->revision->is_modern ? is_wanted(r->log_level, level) : peer_wants))
            return r->out;
    }
    return NULL;
}

static enum sp_mcp_log_level level_of(const struct sp_mcp_event *e)
{
    return e->has_ended ? SP_MCP_LOG_INFO : SP_MCP_LOG_DEBUG;
}

static bool add_log_data(struct sp_buf *b, const struct sp_mcp_caller *c,
                         const struct sp_mcp_event *e)
{
    struct sp_manager_view v = {0};

    if (!sp_buf_printf(b, "{\"level\":\"%s\",\"logger\":\"sallyport\",\"data\":",
                       e->has_ended ? "info" : "debug"))
        return false;
    if (e->session_id == 0)
        return sp_buf_add_str(b, SP_STR("{\"event\":\"notice\"")) &&
               sp_json_add_member(b, "message", sp_str_of(e->notice)) &&
               sp_buf_add_str(b, SP_STR("}}"));
    if (!sp_buf_printf(b, "{\"event\":\"%s\",\"session_id\":%d",
                       e->has_ended ? "session_ended" : "session_started", e->session_id))
        return false;
    if (sp_manager_view(c->manager, e->session_id, &v) &&
        (!sp_json_add_member(b, "command", v.command) ||
         (v.has_exited && !sp_json_add_value(b, "exit_code", "%d", v.exit_code))))
        return false;
    return sp_buf_add_str(b, SP_STR("}}"));
}

static void on_logging(struct sp_deferred *d)
{
    struct sp_mcp_caller *c = SP_CONTAINER(d, struct sp_mcp_caller, logging);

    for (uint32_t n = 0; n < c->event_count; n++) {
        auto_buf struct sp_buf b = {0};

        if (!add_log_data(&b, c, &c->events[n]))
            continue;
        /* Sending may find that the client is gone: that ends requests, but frees no peer. */
        sp_list_each(i, &c->peers) {
            const struct sp_mcp_peer *p = SP_CONTAINER(i, struct sp_mcp_peer, link);
            struct sp_mcp_out *out = find_log_out(p, level_of(&c->events[n]));

            if (out != NULL && !out->is_full(out))
                (void)sp_mcp_say_notice(out, "notifications/message", sp_buf_str(&b));
        }
    }
    c->event_count = 0;
}

void sp_mcp_caller_log(struct sp_mcp_caller *c, int session_id, bool has_ended,
                       struct sp_str notice)
{
    struct sp_mcp_event e = {.session_id = session_id, .has_ended = has_ended};

    if (c->event_count == SP_MCP_EVENTS_MAX)
        return;
    (void)snprintf(e.notice, sizeof e.notice, SP_STR_FMT, SP_STR_ARG(notice));
    sp_list_each(i, &c->peers) {
        if (find_log_out(SP_CONTAINER(i, struct sp_mcp_peer, link), level_of(&e)) == NULL)
            continue;
        c->events[c->event_count++] = e;
        sp_loop_defer(c->loop, &c->logging, on_logging);
        return;
    }
}

/* ---- one caller ---- */

void sp_mcp_caller_watch(struct sp_mcp_caller_watch *w, struct sp_mcp_caller *c)
{
    sp_list_remove(&w->link);
    w->caller = c;
    if (c != NULL)
        sp_list_prepend(&c->watches, &w->link);
}

/* Must not be called from within a callback of the manager. */
static void end_caller(struct sp_mcp_caller *c)
{
    struct sp_list *i;

    while ((i = sp_list_first(&c->watches)) != NULL) {
        struct sp_mcp_caller_watch *w = SP_CONTAINER(i, struct sp_mcp_caller_watch, link);

        sp_mcp_caller_watch(w, NULL);
        w->ended(w);
    }
    sp_loop_cancel(c->loop, &c->detached_timer);
    sp_loop_undefer(c->loop, &c->ending);
    sp_loop_undefer(c->loop, &c->logging);
    /* Order: no waiter is left when sp_manager_free answers all calls as aborted. */
    sp_mcp_tasks_free(c->tasks);
    sp_mcp_parking_free(c->parking);
    sp_mcp_runs_close(c);
    sp_list_each_safe(k, &c->keys)
        sp_mcp_key_forget(SP_CONTAINER(k, struct sp_mcp_key, link));
    sp_list_each_safe(x, &c->inspections)
        free_inspection(SP_CONTAINER(x, struct sp_mcp_inspection, link));
    sp_list_remove(&c->link);
    c->mcp->caller_count--;
    sp_buf_done(&c->warnings);
    free(c->identity);
    free(c);
}

void sp_mcp_caller_set_client_name(struct sp_mcp_caller *c, struct sp_str client)
{
    const size_t most = sizeof c->client_name - 1;
    const size_t n =
        sp_utf8_valid_prefix((struct sp_str){client.p, client.n < most ? client.n : most});

    if (n > 0)
        memcpy(c->client_name, client.p, n);
    c->client_name[n] = 0;
}

/* With c->questions as its approver and c->approvers behind it. */
static int open_manager(struct sp_mcp_caller *c, struct sp_err *e)
{
    struct sp_manager_options o = c->mcp->manager;
    char thread_id[SP_UUID_SIZE];

    c->warnings.max = SP_MCP_WARNINGS_MAX;
    c->questions = (struct sp_approver){.ops = &sp_mcp_question_ops};
    c->host = (struct sp_approver){.ops = &sp_mcp_host_ops, .name = "the host"};
    if (!sp_uuid_make(thread_id))
        return sp_fail(e, SP_E_SYSTEM, errno, "name the conversation");
    const struct sp_mcp_options *mcp = &c->mcp->options;
    int r = mcp->console == NULL
                ? 0
                : sp_console_approver_new(mcp->console,
                                          &(struct sp_console_options){
                                              .client_name = c->client_name,
                                              .user_dir = c->mcp->manager.approvals.user_dir,
                                          },
                                          &c->console, e);
    if (r == 0)
        r = sp_approvers_chain(mcp->approvers, &c->host, c->console, &c->approvers, e);
    if (r < 0) {
        sp_approver_free(c->console);
        return r;
    }
    o.thread_id = o.conversation_id = thread_id; /* copied; one conversation is one session */
    o.loop = c->loop;
    o.ops = &sp_mcp_manager_ops;
    o.user = c;
    o.approvals.approver = &c->questions;
    o.remembers_ended = true;
    r = sp_manager_new(&o, &c->manager, e);
    if (r < 0) {
        sp_approver_free(c->approvers);
        sp_approver_free(c->console);
    }
    return r;
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
    c->loop = m->options.loop;
    sp_list_init(&c->runs);
    sp_list_init(&c->host_questions);
    sp_list_init(&c->peers);
    sp_list_init(&c->watches);
    sp_list_init(&c->keys);
    sp_list_init(&c->inspections);
    c->number = m->caller_total + 1;
    if (open_manager(c, e) < 0) {
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
    const uint64_t ttl_ms = c->mcp->options.detached_ttl_ms;

    if (--c->held != 0 || ttl_ms == 0)
        return;
    /* Out of memory for the timer: end it now rather than never. */
    if (!sp_loop_timer(c->loop, &c->detached_timer, sp_loop_now(c->loop) + ttl_ms, on_detached))
        sp_loop_again(c->loop, &c->ending, on_ending);
}
