/* SPDX-License-Identifier: Apache-2.0 */
/* manager: creation and end, environments, questions to an approver, orders to processes, and what
 * can be read under an id: views of processes, and the records of ended ones. */
#include "engine/manager.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "engine/manager_priv.h"

#define DEFAULT_DENIAL "Network access was denied by the sandbox network proxy."

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
    const struct sp_policy *policy = environment->has_own_policy ? environment->policy
                                     : m->has_policy             ? &m->policy
                                                                 : NULL;
    struct sp_environment *h = calloc(1, sizeof *h);

    if (h == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember an environment");
    h->m = m;
    h->refs = 1;
    sp_list_prepend(&m->all_environments, &h->link);
    h->backend = environment->backend;
    h->has_policy = policy != NULL;
    if (!copy_text(environment->id, &h->id) || !copy_text(environment->cwd, &h->cwd) ||
        !copy_text(environment->has_own_policy ? environment->policy_name : m->options.policy_name,
                   &h->policy_name) ||
        (policy != NULL && !sp_policy_copy(policy, &h->policy))) {
        sp_environment_unref(h);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember an environment");
    }
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
    sp_each_process(p, m)
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

/*
 * ---- orders ----
 *
 * Requests to a process that are not calls of the model: terminate, signal, resize, close stdin,
 * inspect; and the verdicts of outside observers. An order counts in process->orders, so that the
 * process is not freed before its job has answered.
 */

enum order_kind { TERMINATE, SIGNAL, RESIZE, CLOSE_STDIN, INSPECT };

struct sp_order {
    struct sp_manager *m;
    struct sp_list link; /* m->orders */
    enum order_kind kind;
    struct sp_process *process;          /* NULL: unknown id */
    struct sp_job_inspection inspection; /* inspection.call serves every kind */
    struct sp_deferred deferred;
    bool is_asked, is_done;
    bool is_held;        /* CLOSE_STDIN: waits until pending input is written */
    uint64_t after_call; /* ... by calls up to this number */
    sp_manager_done_fn *fn;
    sp_manager_inspect_fn *inspect_fn;
    void *user;
};

static struct sp_order *order_at(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_order, link);
}

static void finish_order(struct sp_order *o)
{
    struct sp_process *p = o->process;

    if (o->is_done && o->kind == TERMINATE) {
        if (!sp_process_has_exited(p))
            sp_process_count_as_exited(p);
        if (p->initial == NULL) /* a creating call that still waits removes the entry itself */
            sp_manager_remove(p);
    }
    sp_list_remove(&o->link);
    sp_loop_undefer(o->m->loop, &o->deferred);
    if (p != NULL) {
        p->orders--;
        p->job_calls -= o->is_asked;
        sp_process_changed(p);
    }
    if (o->inspect_fn != NULL)
        o->inspect_fn(o->user, o->is_done ? &o->inspection.found : NULL);
    else if (o->fn != NULL)
        o->fn(o->user, o->is_done);
    free(o);
}

static void on_order_deferred(struct sp_deferred *d)
{
    finish_order(SP_CONTAINER(d, struct sp_order, deferred));
}

static void on_order_answered(struct sp_job_call *c)
{
    struct sp_order *o =
        SP_CONTAINER(SP_CONTAINER(c, struct sp_job_inspection, call), struct sp_order, inspection);

    o->is_done = c->result == SP_JOB_OK || (c->result == SP_JOB_GONE && o->kind <= SIGNAL);
    if (o->kind == TERMINATE && !o->is_done && !sp_process_has_exited(o->process))
        o->process->ended_by = SP_END_NONE; /* the process lives on */
    finish_order(o);
}

/* NULL: out of memory, and the caller was told. */
static struct sp_order *new_order(struct sp_manager *m, enum order_kind kind, struct sp_process *p,
                                  sp_manager_done_fn *fn, void *user)
{
    struct sp_order *o = calloc(1, sizeof *o);

    if (o == NULL) {
        if (fn != NULL)
            fn(user, false);
        return NULL;
    }
    *o = (struct sp_order){.m = m, .kind = kind, .process = p, .fn = fn, .user = user};
    o->inspection.call.fn = on_order_answered;
    sp_list_prepend(&m->orders, &o->link);
    if (p != NULL)
        p->orders++;
    return o;
}

static struct sp_order *new_order_for(struct sp_manager *m, enum order_kind kind, int process_id,
                                      sp_manager_done_fn *fn, void *user)
{
    struct sp_process *p = sp_manager_find(m, process_id);

    if (p != NULL)
        sp_process_use(p);
    return new_order(m, kind, p, fn, user);
}

/* Whether the job is to be asked. If not, the loop reports the result: an exit counts as success
 * for the kinds up to SIGNAL. */
static bool can_ask(struct sp_order *o)
{
    struct sp_process *p = o->process;
    const bool is_done = p != NULL && o->kind <= SIGNAL && sp_process_has_exited(p);

    if (p != NULL && !is_done && sp_process_can_ask(p)) {
        o->is_asked = true;
        p->job_calls++;
        return true;
    }
    o->is_done = is_done;
    sp_loop_defer(o->m->loop, &o->deferred, on_order_deferred);
    return false;
}

void sp_manager_terminate(struct sp_manager *m, int process_id, sp_manager_done_fn *fn, void *user)
{
    struct sp_order *o = new_order_for(m, TERMINATE, process_id, fn, user);

    if (o == NULL || !can_ask(o))
        return;
    sp_process_blame(o->process, SP_END_TERMINATED);
    sp_job_terminate(&o->process->job, &o->inspection.call);
}

void sp_manager_signal(struct sp_manager *m, int process_id, int signal, sp_manager_done_fn *fn,
                       void *user)
{
    struct sp_order *o = new_order_for(m, SIGNAL, process_id, fn, user);

    if (o != NULL && can_ask(o))
        sp_job_signal(&o->process->job, &o->inspection.call, signal);
}

void sp_manager_resize(struct sp_manager *m, int process_id, uint16_t rows, uint16_t cols,
                       sp_manager_done_fn *fn, void *user)
{
    struct sp_order *o = new_order_for(m, RESIZE, process_id, fn, user);

    if (o != NULL && can_ask(o))
        sp_job_resize(&o->process->job, &o->inspection.call, rows, cols);
}

/* ---- close stdin, behind the input of earlier calls ---- */

static void close_stdin(struct sp_order *o)
{
    o->is_held = false;
    if (o->process != NULL)
        sp_each_waiting(c, o->process)
            o->is_held |= c->chars.n != 0 && c->number <= o->after_call;
    if (!o->is_held && can_ask(o))
        sp_job_close_stdin(&o->process->job, &o->inspection.call);
}

static void on_close_stdin(struct sp_deferred *d)
{
    close_stdin(SP_CONTAINER(d, struct sp_order, deferred));
}

/* Deferred like the steps of calls, so that calls which began earlier are in process->waiting. */
void sp_manager_close_stdin(struct sp_manager *m, int process_id, sp_manager_done_fn *fn,
                            void *user)
{
    struct sp_order *o = new_order_for(m, CLOSE_STDIN, process_id, fn, user);

    if (o == NULL)
        return;
    o->after_call = m->next_call;
    sp_loop_defer(m->loop, &o->deferred, on_close_stdin);
}

void sp_manager_serve_orders(struct sp_process *p)
{
    if (p->orders == 0)
        return;
    sp_list_each_safe(i, &p->m->orders)
        if (order_at(i)->process == p && order_at(i)->is_held)
            close_stdin(order_at(i));
}

/* ---- inspect ---- */

void sp_manager_inspect(struct sp_manager *m, int process_id, sp_manager_inspect_fn *fn, void *user)
{
    struct sp_process *p = sp_manager_find(m, process_id);

    /* A process that lost its entry can still be inspected while its output is held open. */
    if (p == NULL)
        sp_each_process(i, m)
            if (i->id == process_id && !i->is_discarded && i->life != SP_PROCESS_STARTING)
                p = i; /* the newest */
    struct sp_order *o = new_order(m, INSPECT, p, NULL, user);
    if (o == NULL) {
        fn(user, NULL);
        return;
    }
    o->inspect_fn = fn;
    o->inspection.wants_doing = true;
    if (!can_ask(o))
        return;
    if (!sp_job_inspect(&p->job, &o->inspection)) {
        p->job_calls--;
        o->is_asked = false;
        sp_loop_defer(m->loop, &o->deferred, on_order_deferred);
    }
}

/* ---- all of them ---- */

static void drop_orders(struct sp_manager *m)
{
    struct sp_list *first;

    while ((first = sp_list_first(&m->orders)) != NULL) {
        struct sp_order *o = order_at(first);

        if (o->process != NULL)
            sp_job_release(&o->process->job); /* so that the job call is dropped */
        o->is_done = false;
        finish_order(o);
    }
}

/* All entries go first, so that no callback finds one; then the processes are killed. Calls that
 * have no process yet are cancelled. */
void sp_manager_terminate_all(struct sp_manager *m)
{
    sp_each_process(p, m)
        sp_manager_remove(p);
    sp_each_call(c, &m->calls) {
        sp_manager_unreserve(m, c->reserved_id);
        c->reserved_id = 0;
        if (c->is_exec && c->process == NULL)
            c->is_cancelled = true;
        sp_call_changed(c);
    }
    sp_each_process(p, m)
        if (!p->is_discarded) {
            sp_process_end(p, SP_END_TERMINATED);
        }
}

/* ---- refusals of a running process ---- */

/* Also finds a process that its creating call has not stored yet. */
static struct sp_process *find_any(struct sp_manager *m, int id)
{
    struct sp_process *stored = sp_manager_find(m, id);

    if (stored != NULL)
        return stored;
    sp_each_process(p, m)
        if (p->id == id && p->initial != NULL && !p->is_discarded)
            stored = p; /* the newest */
    return stored;
}

bool sp_manager_fail(struct sp_manager *m, int process_id, const char *message)
{
    struct sp_process *p = find_any(m, process_id);

    if (p == NULL)
        return false;
    sp_process_blame(p, SP_END_TERMINATED);
    sp_process_fail(p, message != NULL ? message : DEFAULT_DENIAL);
    return true;
}

/* ---- records of ended processes ---- */

static struct sp_remembered *oldest_of(const struct sp_manager *m)
{
    struct sp_list *first = sp_list_first(&m->remembered);

    return first == NULL ? NULL : SP_CONTAINER(first, struct sp_remembered, link);
}

static void forget(struct sp_remembered *r)
{
    struct sp_manager *m = r->m;

    sp_list_remove(&r->link);
    m->remembered_count--;
    m->remembered_bytes -= r->bytes;
    sp_manager_unreserve(m, r->view.process_id);
    sp_headtail_done(&r->transcript);
    sp_environment_unref(r->environment);
    sp_arena_done(&r->keep);
    free(r);
}

static void on_expired(struct sp_timer *t);

static void forget_old(struct sp_manager *m)
{
    const uint64_t now = sp_loop_now(m->loop);
    struct sp_remembered *r;

    while ((r = oldest_of(m)) != NULL &&
           (r->until_ms <= now || m->remembered_count > SP_REMEMBERED_MAX ||
            m->remembered_bytes > SP_REMEMBERED_BYTES))
        forget(r);
    if (r == NULL || r->until_ms == UINT64_MAX)
        sp_loop_cancel(m->loop, &m->remembered_timer);
    else /* out of memory: they stay until the next record is made */
        (void)sp_loop_timer(m->loop, &m->remembered_timer, r->until_ms, on_expired);
}

static void on_expired(struct sp_timer *t)
{
    forget_old(SP_CONTAINER(t, struct sp_manager, remembered_timer));
}

/* ---- views ---- */

static void view_output(struct sp_manager_view *v, const struct sp_headtail *transcript)
{
    sp_headtail_view(transcript, &v->head, v->tail);
    v->omitted = transcript->omitted;
    v->total = sp_headtail_total(transcript);
}

static bool was_denied(const struct sp_process *p)
{
    return p->was_denied || (p->is_code_known && !sp_process_has_failed(p) &&
                             sp_denied_judge(p->sandbox, &p->exit, SP_STR(""), SP_STR("")));
}

static void view_process(const struct sp_process *p, struct sp_manager_view *ret)
{
    const bool has_exited = sp_process_has_exited(p);

    *ret = (struct sp_manager_view){
        .process_id = p->id,
        .call_id = p->call_id,
        .command = p->command,
        .cwd = p->cwd,
        .environment = p->environment == NULL ? "" : p->environment->id,
        .policy = p->environment == NULL ? NULL : sp_environment_policy(p->environment),
        .is_remote = p->is_remote,
        .is_tty = p->is_tty,
        .started_at_ms = p->started_at_ms,
        .has_exited = has_exited,
        .is_output_held = sp_process_is_output_held(p),
        .is_answered = !p->is_stored,
        .is_end_told = !p->is_stored && !p->was_pruned,
        .exit_code = has_exited ? p->exit.code : -1,
        .signal = has_exited ? p->exit.signal : 0,
        .end_reason = sp_process_end_reason(p),
        .limits = p->exit.limits,
        .was_denied = has_exited && was_denied(p),
        .was_confined = p->sandbox != SP_JOB_SANDBOX_NONE,
        .denial = has_exited ? p->exit.denial : NULL,
        .kernel = has_exited ? p->exit.kernel : NULL,
        .receipt = sp_process_receipt(p),
        .network = sp_network_job_receipt(p->network),
        .answered = p->answered,
    };
    view_output(ret, &p->transcript);
}

/* The process or record with the lowest id from `id` on. */
static bool view_from(const struct sp_manager *m, int id, struct sp_manager_view *ret)
{
    const struct sp_process *process = NULL;
    const struct sp_remembered *record = NULL;

    sp_each_process(p, m)
        if ((p->is_stored || p->holds_id) && p->id >= id &&
            (process == NULL || p->id < process->id))
            process = p;
    sp_list_each(i, &m->remembered) {
        const struct sp_remembered *r = SP_CONTAINER(i, struct sp_remembered, link);

        if (r->view.process_id >= id &&
            (record == NULL || r->view.process_id < record->view.process_id))
            record = r;
    }
    if (process != NULL && (record == NULL || process->id <= record->view.process_id)) {
        view_process(process, ret);
    } else if (record != NULL) {
        *ret = record->view;
        view_output(ret, &record->transcript);
    } else {
        return false;
    }
    return true;
}

bool sp_manager_view(struct sp_manager *m, int process_id, struct sp_manager_view *ret)
{
    struct sp_process *p = sp_manager_find(m, process_id);
    struct sp_manager_view v;

    if (p != NULL)
        sp_process_use(p);
    if (!view_from(m, process_id, &v) || v.process_id != process_id)
        return false;
    *ret = v;
    return true;
}

void sp_manager_each(struct sp_manager *m, void (*fn)(void *user, const struct sp_manager_view *v),
                     void *user)
{
    struct sp_manager_view v;

    for (int id = 0; view_from(m, id, &v); id = v.process_id + 1)
        fn(user, &v);
}

static bool copy_view(struct sp_remembered *r, const struct sp_manager_view *v)
{
    struct sp_manager_view *own = &r->view;

    *own = *v;
    own->is_answered = true;
    own->is_output_held = false; /* the job is released, so no more output arrives */
    if (v->denial != NULL) {
        struct sp_denial_facts *denial = sp_arena_new(&r->keep, sizeof *denial);

        if (denial == NULL)
            return false;
        *denial = *v->denial;
        own->denial = denial;
    }
    if (v->kernel != NULL) {
        struct sp_exit *kernel = sp_arena_new(&r->keep, sizeof *kernel);

        if (kernel == NULL)
            return false;
        *kernel = *v->kernel;
        own->kernel = kernel;
    }
    if (v->receipt != NULL) {
        struct sp_command_receipt *receipt = sp_arena_new(&r->keep, sizeof *receipt);

        if (receipt == NULL)
            return false;
        *receipt = *v->receipt;
        own->receipt = receipt;
    }
    return sp_network_receipt_copy(&r->keep, v->network, &own->network) &&
           sp_arena_str(&r->keep, v->call_id, &own->call_id) &&
           sp_arena_str(&r->keep, v->command, &own->command) &&
           sp_arena_str(&r->keep, v->cwd, &own->cwd);
}

void sp_manager_remember(struct sp_process *p)
{
    struct sp_manager *m = p->m;
    const uint64_t ttl_ms = m->options.exited_ttl_ms;
    struct sp_remembered *r = m->is_closing ? NULL : calloc(1, sizeof *r);
    struct sp_manager_view v;

    p->holds_id = false;
    view_process(p, &v);
    if (r == NULL || !copy_view(r, &v)) {
        if (r != NULL)
            sp_arena_done(&r->keep);
        free(r);
        sp_manager_unreserve(m, p->id);
        return;
    }
    r->m = m;
    r->environment = p->environment == NULL ? NULL : sp_environment_ref(p->environment);
    r->transcript = sp_headtail_drain(&p->transcript);
    sp_headtail_trim(&r->transcript);
    r->bytes =
        sp_headtail_retained(&r->transcript) + v.call_id.n + v.command.n + v.cwd.n + sizeof *r;
    r->until_ms = ttl_ms == 0 ? UINT64_MAX : sp_loop_now(m->loop) + ttl_ms;
    sp_list_append(&m->remembered, &r->link);
    m->remembered_count++;
    m->remembered_bytes += r->bytes;
    forget_old(m);
}

/* ---- questions to an approver ---- */

/* Moves the deadlines by the time an open question stopped the clock; output silences still count.
 */
static void start_clock(struct sp_manager *m)
{
    const uint64_t now_ms = sp_manager_clock_ms();

    if (!m->is_clock_stopped)
        return;
    m->is_clock_stopped = false;
    sp_loop_cancel(m->loop, &m->clock_timer);
    sp_each_call(c, &m->calls) {
        const uint64_t from = c->from_ms > m->stopped_ms ? c->from_ms : m->stopped_ms;

        if (c->is_collecting && now_ms > from)
            c->deadline_ms = sp_later_ms(c->deadline_ms, now_ms - from);
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

static void forward_question(struct sp_approver *a, const struct sp_approval_question *q,
                             sp_approver_fn *done, void *user)
{
    struct sp_manager *m = SP_CONTAINER(a, struct sp_manager, callback);

    (void)done; /* sp_approvals_decide delivers the answer instead */
    (void)user;
    m->ops.ask(m->user, q);
}

/* The caller is not told: sp_approvals_decide refuses an answer that comes too late. */
static void ignore_withdrawal(struct sp_approver *a, uint64_t question, void *user)
{
    (void)a;
    (void)question;
    (void)user;
}

static void warn(void *user, const char *text)
{
    struct sp_manager *m = user;
    const struct sp_exec_event e = {.type = SP_EVENT_WARNING, .message = sp_str_of(text)};

    sp_manager_event(m, &e);
}

struct sp_approvals *sp_manager_approvals(struct sp_manager *m)
{
    return m->approvals;
}

/* ---- creation and end ---- */

/* Copies what the options point to. Pointers that are borrowed for sp_manager_new are cleared. */
static int open_manager(struct sp_manager *m, const struct sp_manager_options *o, struct sp_err *e)
{
    static const struct sp_approver_ops callback_ops = {.ask = forward_question,
                                                        .withdraw = ignore_withdrawal};
    const struct sp_env_request usual = {
        .own = environ,
        .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true},
    };
    struct sp_approvals_options approvals = o->approvals;
    auto_free char *shell = NULL;
    int r = 0;

    m->options = *o;
    m->options.environments = NULL;
    m->options.policy = NULL;
    m->options.environ = NULL;
    m->options.ops = NULL;
    m->has_policy = o->policy != NULL;
    if ((m->has_policy && !sp_policy_copy(o->policy, &m->policy)) ||
        !sp_env_copy_request(&m->keep, o->environ != NULL ? o->environ : &usual, &m->environ) ||
        !sp_arena_text(&m->keep, o->policy_name, &m->options.policy_name) ||
        !sp_arena_text(&m->keep, o->thread_id, &m->options.thread_id) ||
        !sp_arena_text(&m->keep, o->conversation_id, &m->options.conversation_id))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process manager");
    for (uint32_t i = 0; r == 0 && i < o->environment_count; i++)
        r = sp_manager_set_environment(m, &o->environments[i], e);
    if (r == 0)
        r = sp_shell_of_account(&shell, e);
    if (r == 0 && !sp_arena_text(&m->keep, shell, &m->account_shell))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process manager");
    if (r < 0)
        return r;
    m->callback.ops = &callback_ops;
    approvals.loop = m->loop;
    approvals.warn = warn;
    approvals.asking = on_asking;
    approvals.user = m;
    if (m->ops.ask != NULL)
        approvals.approver = &m->callback;
    r = sp_approvals_new(&approvals, &m->approvals, e);
    if (r == 0 && m->environment_count != 0)
        m->environments[0]->has_snapshots = true;
    return r;
}

static void free_parts(struct sp_manager *m)
{
    sp_loop_cancel(m->loop, &m->clock_timer);
    while (m->environment_count != 0)
        sp_environment_unref(m->environments[--m->environment_count]);
    sp_ids_done(&m->ids);
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
    sp_list_init(&m->processes);
    sp_list_init(&m->calls);
    sp_list_init(&m->dead);
    sp_list_init(&m->remembered);
    m->poll_max_ms = o->poll_max_ms == 0 ? SP_YIELD_POLL_MAX_MS : o->poll_max_ms;
    m->allowance = o->output_allowance;
    if (m->allowance.unit == SP_ALLOWANCE_BYTES && m->allowance.limit == 0)
        m->allowance = (struct sp_allowance){SP_ALLOWANCE_TOKENS, SP_ANSWER_DEFAULT_TOKENS};
    m->ids.is_deterministic = o->has_deterministic_ids;
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
    for (struct sp_list *i; (i = sp_list_first(&m->calls)) != NULL;) {
        struct sp_call *c = SP_CONTAINER(i, struct sp_call, link);

        c->is_cancelled = true;
        if (c->is_exec)
            sp_exec_step(c);
        else
            sp_call_abort(c);
    }
    drop_orders(m);
    for (struct sp_remembered *r; (r = oldest_of(m)) != NULL;)
        forget(r);
    sp_loop_cancel(m->loop, &m->remembered_timer);
    for (struct sp_list *i; (i = sp_list_first(&m->processes)) != NULL;) {
        struct sp_process *p = SP_CONTAINER(i, struct sp_process, link);

        p->interaction = p->initial = NULL; /* their calls are answered */
        sp_list_init(&p->waiting);
        sp_process_free(p);
    }
    for (struct sp_list *i; (i = sp_list_first(&m->dead)) != NULL;)
        sp_call_free(SP_CONTAINER(i, struct sp_call, link));
    sp_loop_undefer(m->loop, &m->sweeping);
    free_parts(m);
}
