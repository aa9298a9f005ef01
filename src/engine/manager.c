/* SPDX-License-Identifier: Apache-2.0 */
/* manager: creation, environments, the clock of calls, and the end of a manager. */
#include "engine/manager.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "engine/manager_priv.h"

/*
 * ---- environments ----
 *
 * A call holds a reference to the environment that it began in, so replacing an environment does
 * not affect running commands.
 */

struct sp_environment *sp_environment_ref(struct sp_environment *h)
{
    h->refs++;
    return h;
}

void sp_environment_unref(struct sp_environment *h)
{
    if (h == NULL || --h->refs != 0)
        return;
    sp_list_remove(&h->link);
    sp_policy_done(&h->policy);
    free(h->id);
    free(h->cwd);
    free(h->policy_name);
    free(h);
}

static bool copy_text(const char *text, char **ret)
{
    *ret = text == NULL ? NULL : strdup(text);
    return text == NULL || *ret != NULL;
}

static struct sp_environment *new_environment(struct sp_manager *m,
                                              const struct sp_environment_spec *o)
{
    const struct sp_policy *policy = o->has_own_policy ? o->policy
                                     : m->has_policy   ? &m->policy
                                                       : NULL;
    struct sp_environment *h = calloc(1, sizeof *h);

    if (h == NULL)
        return NULL;
    h->m = m;
    h->refs = 1;
    sp_list_prepend(&m->all_environments, &h->link);
    h->backend = o->backend;
    h->has_policy = policy != NULL;
    if (!copy_text(o->id, &h->id) || !copy_text(o->cwd, &h->cwd) ||
        !copy_text(o->has_own_policy ? o->policy_name : m->options.policy_name, &h->policy_name) ||
        (policy != NULL && !sp_policy_copy(policy, &h->policy))) {
        sp_environment_unref(h);
        return NULL;
    }
    return h;
}

struct sp_environment *sp_manager_find_environment(const struct sp_manager *m, struct sp_str id)
{
    for (uint32_t i = 0; i < m->environment_count; i++)
        if (id.p == NULL || sp_str_eq(sp_str_of(m->environments[i]->id), id))
            return m->environments[i];
    return NULL;
}

int sp_manager_set_environment(struct sp_manager *m, const struct sp_environment_spec *environment,
                               struct sp_err *e)
{
    uint32_t i = 0;

    while (i < m->environment_count && strcmp(m->environments[i]->id, environment->id) != 0)
        i++;
    if (i == SP_ENVIRONMENTS_MAX)
        return sp_fail(e, SP_E_LIMIT, 0, "there are %d environments already; remove one of them",
                       SP_ENVIRONMENTS_MAX);
    struct sp_environment *h = new_environment(m, environment);
    if (h == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember an environment");
    if (i == m->environment_count)
        m->environment_count++;
    else
        sp_environment_unref(m->environments[i]);
    m->environments[i] = h;
    return 0;
}

bool sp_manager_remove_environment(struct sp_manager *m, const char *id)
{
    uint32_t i = 1; /* the primary one stays */

    while (i < m->environment_count && strcmp(m->environments[i]->id, id) != 0)
        i++;
    if (i >= m->environment_count)
        return false;
    for (struct sp_process *p = m->first; p != NULL; p = p->next)
        if (p->is_stored && !sp_process_has_exited(p) && p->environment != NULL &&
            strcmp(p->environment->id, id) == 0)
            sp_manager_terminate(m, p->id, NULL, NULL);
    sp_environment_unref(m->environments[i]);
    m->environment_count--;
    memmove(&m->environments[i], &m->environments[i + 1],
            (m->environment_count - i) * sizeof(struct sp_environment *));
    return true;
}

bool sp_manager_uses(const struct sp_manager *m, const struct sp_backend *b)
{
    sp_list_each(i, &m->all_environments)
        if (SP_CONTAINER(i, struct sp_environment, link)->backend == b)
            return true;
    return false;
}

void sp_manager_event(struct sp_manager *m, const struct sp_exec_event *e)
{
    if (m->ops.event != NULL)
        m->ops.event(m->user, e);
}

int sp_manager_admit(const struct sp_manager *m, struct sp_err *e)
{
    return m->is_closing ? sp_fail(e, SP_E_STATE, 0, "the process manager is being closed") : 0;
}

/* ---- creation ---- */

/* Copies what the options point to. Pointers that are borrowed for sp_manager_new are cleared. */
static bool keep_options(struct sp_manager *m, const struct sp_manager_options *o)
{
    const struct sp_env_request usual = {
        .own = environ,
        .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true},
    };

    m->options = *o;
    m->options.environments = NULL;
    m->options.policy = NULL;
    m->options.environ = NULL;
    m->options.ops = NULL;
    m->has_policy = o->policy != NULL;
    if (m->has_policy && !sp_policy_copy(o->policy, &m->policy))
        return false;
    return sp_env_copy_request(&m->keep, o->environ != NULL ? o->environ : &usual, &m->environ) &&
           sp_arena_text(&m->keep, o->policy_name, &m->options.policy_name) &&
           sp_arena_text(&m->keep, o->thread_id, &m->options.thread_id) &&
           sp_arena_text(&m->keep, o->session_id, &m->options.session_id);
}

/* ---- questions to an approver ---- */

static void forward_question(struct sp_approver *a, const struct sp_approval_question *q,
                             sp_approver_fn *done, void *user)
{
    struct sp_manager *m = SP_CONTAINER(a, struct sp_manager, callback);

    (void)done; /* sp_manager_decide delivers the answer instead */
    (void)user;
    m->ops.ask(m->user, q);
}

static void forward_withdrawal(struct sp_approver *a, uint64_t question, void *user)
{
    struct sp_manager *m = SP_CONTAINER(a, struct sp_manager, callback);

    (void)user;
    if (m->ops.withdraw != NULL)
        m->ops.withdraw(m->user, question);
}

static void warn(void *user, const char *text)
{
    struct sp_manager *m = user;
    const struct sp_exec_event e = {.type = SP_EVENT_WARNING, .message = sp_str_of(text)};

    sp_manager_event(m, &e);
}

/* ---- the clock of calls, while a question is open ---- */

static void start_clock(struct sp_manager *m)
{
    const uint64_t now_ms = sp_manager_clock_ms();

    if (!m->is_clock_stopped)
        return;
    m->is_clock_stopped = false;
    sp_loop_cancel(m->loop, &m->clock_timer);
    for (struct sp_call *c = m->calls; c != NULL; c = c->next) {
        sp_call_prolong(c, m->stopped_ms, now_ms);
        sp_call_changed(c);
    }
}

static void on_clock(struct sp_timer *t)
{
    start_clock(SP_CONTAINER(t, struct sp_manager, clock_timer));
}

/* Overlapping questions stop the clock once. The stop ends after SP_QUESTION_MS even without an
 * answer: an abandoned question must not block the other calls for ever. */
static void on_asking(void *user, bool is_open)
{
    struct sp_manager *m = user;

    if (!is_open) {
        if (--m->questions == 0)
            start_clock(m);
        return;
    }
    if (m->questions++ != 0)
        return;
    m->stopped_ms = sp_manager_clock_ms();
    m->is_clock_stopped =
        sp_loop_timer(m->loop, &m->clock_timer, m->stopped_ms + SP_QUESTION_MS, on_clock);
}

static int open_approvals(struct sp_manager *m, const struct sp_manager_options *o,
                          struct sp_err *e)
{
    static const struct sp_approver_ops callback_ops = {.ask = forward_question,
                                                        .withdraw = forward_withdrawal};
    struct sp_approvals_options a = o->approvals;

    m->callback.ops = &callback_ops;
    a.loop = m->loop;
    a.warn = warn;
    a.asking = on_asking;
    a.user = m;
    if (m->ops.ask != NULL)
        a.approver = &m->callback;
    return sp_approvals_new(&a, &m->approvals, e);
}

struct sp_approvals *sp_manager_approvals(struct sp_manager *m)
{
    return m->approvals;
}

void sp_manager_decide(struct sp_manager *m, uint64_t question, const struct sp_decision *d)
{
    sp_approvals_decide(m->approvals, question, d);
}

static int open_manager(struct sp_manager *m, const struct sp_manager_options *o, struct sp_err *e)
{
    auto_free char *shell = NULL;
    int r = 0;

    if (m->ids == NULL || !keep_options(m, o))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process manager");
    for (uint32_t i = 0; r == 0 && i < o->environment_count; i++)
        r = sp_manager_set_environment(m, &o->environments[i], e);
    if (r == 0)
        r = sp_shell_of_account(&shell, e);
    if (r == 0 && !sp_arena_text(&m->keep, shell, &m->account_shell))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process manager");
    if (r == 0)
        r = open_approvals(m, o, e);
    if (r == 0 && m->environment_count != 0)
        m->environments[0]->has_snapshots = true;
    return r;
}

static void free_parts(struct sp_manager *m)
{
    sp_loop_cancel(m->loop, &m->clock_timer);
    while (m->environment_count != 0)
        sp_environment_unref(m->environments[--m->environment_count]);
    sp_ids_free(m->ids);
    sp_approvals_free(m->approvals);
    sp_policy_done(&m->policy);
    sp_arena_done(&m->keep);
    free(m);
}

int sp_manager_new(const struct sp_manager_options *o, struct sp_manager **ret, struct sp_err *e)
{
    struct sp_manager *m = calloc(1, sizeof *m);

    if (m == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process manager");
    m->loop = o->loop;
    m->user = o->user;
    if (o->ops != NULL)
        m->ops = *o->ops;
    sp_list_init(&m->all_environments);
    sp_list_init(&m->orders);
    sp_list_init(&m->remembered);
    m->poll_max_ms = o->poll_max_ms == 0 ? SP_YIELD_POLL_MAX_MS : sp_yield_poll_max(o->poll_max_ms);
    m->allowance = o->output_allowance;
    if (m->allowance.unit == SP_ALLOWANCE_BYTES && m->allowance.limit == 0)
        m->allowance = (struct sp_allowance){SP_ALLOWANCE_TOKENS, SP_ANSWER_DEFAULT_TOKENS};
    m->ids = sp_ids_new(o->has_deterministic_ids);
    const int r = open_manager(m, o, e);
    if (r < 0) {
        free_parts(m);
        return r;
    }
    *ret = m;
    return 0;
}

void sp_manager_free(struct sp_manager *m)
{
    if (m == NULL)
        return;
    m->is_closing = true; /* callbacks from here on cannot begin calls */
    while (m->calls != NULL) {
        m->calls->is_cancelled = true;
        if (m->calls->is_exec)
            sp_exec_step(m->calls);
        else
            sp_call_abort(m->calls);
    }
    sp_manager_drop_orders(m);
    sp_manager_forget_all(m);
    while (m->first != NULL) {
        struct sp_process *p = m->first;

        /* Every begin event gets its end event, even if the exit code is unknown. */
        p->interaction = p->waiting = p->initial = NULL;
        p->is_verdict_open = false;
        sp_process_count_as_exited(p);
        sp_process_at_end(p);
        sp_process_publish_end(p);
        sp_process_free(p);
    }
    while (m->dead != NULL) {
        struct sp_call *c = m->dead;

        m->dead = c->next;
        sp_call_free(c);
    }
    sp_loop_undefer(m->loop, &m->sweeping);
    free_parts(m);
}

/* ---- requests of the caller ---- */

bool sp_manager_cancel(struct sp_manager *m, uint64_t call)
{
    for (struct sp_call *c = m->calls; c != NULL; c = c->next)
        if (c->number == call) {
            c->is_cancelled = true;
            sp_call_changed(c);
            return true;
        }
    return false;
}

void sp_manager_interrupt(struct sp_manager *m)
{
    for (struct sp_call *c = m->calls; c != NULL; c = c->next) {
        c->is_cancelled = true;
        sp_call_changed(c);
    }
}

void sp_manager_answer_now(struct sp_manager *m, uint64_t call)
{
    for (struct sp_call *c = m->calls; c != NULL; c = c->next)
        if (c->number == call) {
            c->is_hurried = true;
            sp_call_changed(c);
        }
}

void sp_manager_pause(struct sp_manager *m)
{
    if (m->pauses++ == 0)
        m->paused_from_ms = sp_manager_clock_ms();
}

void sp_manager_unpause(struct sp_manager *m)
{
    const uint64_t now_ms = sp_manager_clock_ms();

    if (m->pauses == 0 || --m->pauses != 0)
        return;
    for (struct sp_call *c = m->calls; c != NULL; c = c->next) {
        sp_call_shift(c, m->paused_from_ms, now_ms);
        sp_call_changed(c);
    }
}

/* ---- calls with unparsable arguments ---- */

struct refused_call {
    struct sp_call call;
    struct sp_str text;
};

static void say_refused(struct sp_call *c)
{
    const struct sp_str text = SP_CONTAINER(c, struct refused_call, call)->text;
    const struct sp_reply r = {
        .fault = SP_FAULT_ARGUMENTS, .text = text, .error = text, .woken_by = -1};

    if (c->is_cancelled)
        sp_call_abort(c);
    else
        sp_call_finish(c, &r);
}

int sp_manager_refuse(struct sp_manager *m, struct sp_str text, sp_reply_fn *fn, void *user,
                      uint64_t *ret_call, struct sp_err *e)
{
    const int r = sp_manager_admit(m, e);

    if (r < 0)
        return r;
    struct refused_call *c = calloc(1, sizeof *c);
    if (c == NULL || !sp_arena_str(&c->call.keep, text, &c->text)) {
        free(c);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    }
    c->call.step = say_refused;
    sp_call_begin(m, &c->call, fn, user);
    *ret_call = c->call.number;
    return 0;
}
