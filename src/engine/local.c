/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local: one server with one session, made for the first command, and a task for each command.
 *
 * A task forwards the ring of its process to the owner of the job, some of it in each turn of the
 * loop (take_turn), so that a noisy command does not starve the others. Only what the owner
 * accepted counts as served; the cell stops reading when the ring is full.
 *
 * Calls of the owner are never answered inside its own call, but in the next turn.
 */
#include "engine/local.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/auto.h"
#include "base/json.h"
#include "core/observer.h"
#include "core/proc_receipt.h"
#include "core/session.h"
#include "os/inspect.h"
#include "sandbox/hidden_paths.h"
#include "sandbox/resolve.h"

#define MAX_PROCESSES 1024
#define CLOSED_TTL_MS 3600000    /* irrelevant: a closed process is freed in the next turn */
#define TERMINATE_MS  1000       /* a terminate is answered by then even without an exit */
#define MAX_QUEUED    (1U << 20) /* input that the process has not read */
#define TURN_BYTES    (192U << 10)

struct sp_local {
    struct sp_backend backend;
    struct sp_local_options options; /* its strings live in keep */
    struct sp_arena keep;
    struct sp_hidden_paths hidden_paths;
    uint16_t own_ports[SP_PROXY_PORTS_MAX];
    uint32_t own_port_count;
    struct sp_publish *publish; /* NULL: no ports */
    struct sp_front *front;     /* NULL: no command yet */
    struct sp_session *session;
    struct sp_session_client client;
    uint64_t next_id;
    struct sp_list waits; /* struct sp_backend_wait, for the facts */
    struct sp_deferred tell_facts;
    void (*drained)(void *user); /* of sp_local_front; NULL: none */
    void *drained_user;
};

/* ---- answers ---- */

static void take_turn(struct sp_deferred *d);

static void answer(struct sp_local_task *t, struct sp_job_call *c, enum sp_job_result result)
{
    c->result = result;
    sp_list_append(&t->answered, &c->link);
    /* sp_loop_again, not defer: an owner that asks again from each answer would never let this
     * turn of the loop end. */
    sp_loop_again(t->local->backend.loop, &t->turn, take_turn);
}

static void answer_all(struct sp_local_task *t, struct sp_list *calls, enum sp_job_result result)
{
    for (struct sp_list *i; (i = sp_list_take_first(calls)) != NULL;)
        answer(t, SP_CONTAINER(i, struct sp_job_call, link), result);
}

static void refuse(struct sp_local_task *t, struct sp_job_call *c, int err, const char *what)
{
    (void)sp_fail(&c->error, SP_E_SYSTEM, err, "%s", what);
    answer(t, c, SP_JOB_REFUSED);
}

/* The process has ended, whether or not the owner knows yet. */
static bool has_exited(const struct sp_local_task *t)
{
    return t->proc == NULL || t->proc->life >= SP_PROC_EXITED;
}

static bool is_starting(const struct sp_local_task *t)
{
    return t->proc != NULL && t->proc->life == SP_PROC_STARTING;
}

/* The cell ended before it reported how the process ended. */
static bool is_lost(const struct sp_local_task *t)
{
    return t->is_lost || (t->proc != NULL && t->proc->is_lost && t->proc->state.exit.code < 0);
}

/* SP_JOB_GONE becomes SP_JOB_LOST if the cell took the process with it. */
static void answer_unless_lost(struct sp_local_task *t, struct sp_job_call *c,
                               enum sp_job_result result)
{
    if (result == SP_JOB_GONE && is_lost(t)) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "process cell ended");
        result = SP_JOB_LOST;
    }
    answer(t, c, result);
}

/* ---- signals and sizes, which the cell answers ---- */

struct request {
    struct sp_proc_call call;
    struct sp_local_task *task;
    struct sp_job_call *asker;
};

static void on_request_done(struct sp_waiter *w)
{
    struct request *r = SP_CONTAINER(w, struct request, call.waiter);
    struct sp_local_task *t = r->task;
    struct sp_job_call *c = r->asker;
    const int err = r->call.err;

    free(r);
    if (err == 0)
        answer(t, c, SP_JOB_OK);
    else if (is_lost(t))
        answer_unless_lost(t, c, SP_JOB_GONE);
    else
        refuse(t, c, err, "ask the process");
}

/* NULL: out of memory, and the call is answered. */
static struct request *new_request(struct sp_local_task *t, struct sp_job_call *c)
{
    struct request *r = calloc(1, sizeof *r);

    if (r == NULL) {
        refuse(t, c, ENOMEM, "ask the process");
        return NULL;
    }
    *r = (struct request){.call.waiter.fn = on_request_done, .task = t, .asker = c};
    return r;
}

static void send_signal(struct sp_job *j, struct sp_job_call *c, int signal)
{
    struct sp_local_task *t = j->impl;

    if (is_starting(t)) {
        answer(t, c, SP_JOB_NOT_YET);
        return;
    }
    /* SIGKILL still reaches the rest of the process group after the exit. */
    if (t->proc == NULL || (has_exited(t) && (signal != SIGKILL || t->proc->is_lost))) {
        answer(t, c, SP_JOB_OK);
        return;
    }
    struct request *r = new_request(t, c);
    if (r != NULL)
        sp_proc_signal(t->proc, &r->call, signal);
}

static void resize_terminal(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols)
{
    struct sp_local_task *t = j->impl;

    if (is_starting(t) || has_exited(t)) {
        answer_unless_lost(t, c, is_starting(t) ? SP_JOB_NOT_YET : SP_JOB_GONE);
        return;
    }
    if (!t->proc->is_tty) {
        (void)sp_fail(&c->error, SP_E_INVALID, 0, "the process has no terminal");
        answer(t, c, SP_JOB_REFUSED);
        return;
    }
    /* While a person at another terminal types, the process keeps the size of that terminal. */
    if (!sp_observers_resize(t->proc, true, rows, cols)) {
        answer(t, c, SP_JOB_OK);
        return;
    }
    struct request *r = new_request(t, c);
    if (r != NULL)
        sp_proc_resize(t->proc, &r->call, rows, cols);
}

/* ---- terminate ---- */

static void on_kill_timer(struct sp_timer *timer)
{
    struct sp_local_task *t = SP_CONTAINER(timer, struct sp_local_task, kill_timer);

    answer_all(t, &t->terminates, SP_JOB_OK);
}

/* Kills the process now, or once it has started (see on_start_answered). The callers wait for its
 * exit, but at most TERMINATE_MS. */
static void kill_now(struct sp_local_task *t)
{
    struct sp_loop *loop = t->local->backend.loop;

    if ((!is_starting(t) && !sp_proc_terminate(t->proc)) ||
        !sp_loop_timer(loop, &t->kill_timer, sp_loop_now(loop) + TERMINATE_MS, on_kill_timer))
        answer_all(t, &t->terminates, SP_JOB_OK);
}

static void terminate_process(struct sp_job *j, struct sp_job_call *c)
{
    struct sp_local_task *t = j->impl;

    if (has_exited(t)) {
        answer(t, c, SP_JOB_OK);
        return;
    }
    sp_list_append(&t->terminates, &c->link);
    t->is_terminating = true;
    if (t->kill_timer.slot == 0)
        kill_now(t);
}

/* The process is about to be freed: answers the calls that wait for it, or drops them. */
static void end_calls(struct sp_local_task *t, bool is_dropped)
{
    struct sp_waiter *w;

    sp_loop_cancel(t->local->backend.loop, &t->kill_timer);
    sp_waiters_remove(&t->on_room);
    while (t->proc != NULL && (w = t->proc->on_done.first) != NULL) {
        struct request *r = SP_CONTAINER(w, struct request, call.waiter);

        sp_waiters_remove(w);
        if (!is_dropped)
            answer(t, r->asker, SP_JOB_OK); /* the process has exited: nothing left to signal */
        free(r);
    }
    if (is_dropped)
        return;
    answer_all(t, &t->terminates, SP_JOB_OK);
    answer_all(t, &t->flushes, SP_JOB_GONE);
}

/* ---- a turn: reports to the owner ---- */

/* Closed or lost: frees the process with its seat and its ring. */
static void free_process(struct sp_local_task *t)
{
    end_calls(t, false);
    sp_proc_free(t->proc);
    t->proc = NULL;
}

/* The next turn starts with this record again. */
static void hold_record(struct sp_proc *p, const struct sp_record *r)
{
    p->sent.pos = r->pos;
    p->sent.seq = r->seq - 1;
    p->sent.bytes = r->bytes_before;
}

static void tell_receipt(const struct sp_local_task *t)
{
    struct sp_kept_receipt r __attribute__((cleanup(sp_receipt_drop))) = {0};

    if (t->job->ops->receipt != NULL && sp_proc_receipt(t->proc, &r)) /* else no memory */
        t->job->ops->receipt(t->job, &r.is);
}

/* Reports one record of the ring. true: the next one may follow. Each callback may release the
 * task, which is_released shows. */
static bool tell_record(struct sp_local_task *t, const struct sp_record *r)
{
    struct sp_proc *p = t->proc;

    if (p->is_lost && r->seq > p->last_real_seq) {
        const bool has_cell = p->seat.cell != NULL;

        t->is_lost = true;
        free_process(t);
        t->job->ops->failed(t->job, has_cell ? "process output is broken" : "process cell ended");
        return false;
    }
    /* Its last connections are still being reported: go on with the same record after that. */
    if (p->net.is_settling && p->state.exit_seq != 0 && r->seq >= p->state.exit_seq) {
        hold_record(p, r);
        return false;
    }
    /* The retention limit may drop the exit record, so the exit is taken from the state. */
    if (!t->has_told_exit && p->state.exit_seq != 0 && r->seq >= p->state.exit_seq) {
        auto_buf struct sp_buf network = {0};
        const bool has_network = sp_managed_add_receipt(p, &network); /* else no memory */
        const struct sp_job_exit how = {
            .code = p->state.exit.code,
            .signal = p->state.exit.signal,
            .denied = p->was_denied,
            .denial = p->denial,
            .kernel = &p->state.exit,
            .by = p->ended_by,
            .by_uid = p->ended_by_uid,
            .limits = *sp_proc_hits(p),
            .network = has_network ? sp_buf_str(&network) : (struct sp_str){0},
        };

        t->has_told_exit = true;
        tell_receipt(t);
        t->job->ops->exited(t->job, &how);
    }
    if (t->is_released)
        return false;
    if (r->type == SP_RECORD_OUTPUT && r->len > 0) {
        const struct sp_str bytes = {(const char *)r->data, r->len};

        if (t->job->ops->output(t->job, r->stream, bytes) || t->is_released)
            return !t->is_released;
        /* Not accepted: the next turn after go_on starts with this record again. */
        t->is_blocked = true;
        hold_record(p, r);
        return false;
    }
    if (r->type == SP_RECORD_CLOSED) {
        tell_receipt(t);
        free_process(t);
        t->job->ops->closed(t->job);
        return false;
    }
    return true;
}

static void tell_log(struct sp_local_task *t)
{
    uint32_t told = 0;
    bool goes_on = true;

    while (goes_on && told < TURN_BYTES) {
        struct sp_proc *p = t->proc;
        const uint64_t missed = p->sent.missed_bytes;
        struct sp_record r;

        goes_on = sp_proc_next(p, &p->sent, &r) > 0;
        if (!goes_on)
            break;
        told += r.len;
        if (p->sent.missed_bytes != missed)
            t->job->ops->gap(t->job, p->sent.missed_bytes - missed);
        goes_on = !t->is_released && tell_record(t, &r);
    }
    if (t->is_released || t->proc == NULL)
        return;
    sp_proc_served(t->proc);
    if (goes_on)
        sp_loop_again(t->local->backend.loop, &t->turn, take_turn);
}

static void tell_denials(struct sp_local_task *t)
{
    struct sp_net_denial d;

    while (t->job->ops->denied != NULL && sp_proc_denial(t->proc, t->told_denials, &d)) {
        t->told_denials++;
        t->job->ops->denied(t->job, &d);
    }
}

static void tell_news(struct sp_local_task *t)
{
    struct sp_list *i = NULL;

    if (has_exited(t)) {
        sp_loop_cancel(t->local->backend.loop, &t->kill_timer);
        answer_all(t, &t->terminates, SP_JOB_OK);
    }
    /* Calls made by these callbacks are answered in the next turn. */
    const struct sp_list *last = sp_list_last(&t->answered);
    while (!t->is_released && i != last && (i = sp_list_take_first(&t->answered)) != NULL) {
        struct sp_job_call *c = SP_CONTAINER(i, struct sp_job_call, link);

        c->fn(c);
    }
    if (t->is_released)
        return;
    if (!t->has_told_started && t->refusal.code != SP_E_NONE) {
        t->has_told_started = true;
        t->job->ops->refused(t->job, &t->refusal);
    } else if (!t->has_told_started && t->proc != NULL && !is_starting(t)) {
        t->has_told_started = true;
        t->job->ops->started(t->job, t->is_confined ? SP_JOB_SANDBOX_LINUX : SP_JOB_SANDBOX_NONE);
    }
    if (!t->is_released && t->has_told_started && t->proc != NULL && !t->has_told_exit)
        tell_denials(t);
    if (!t->is_released && t->has_told_started && t->proc != NULL && !t->is_blocked)
        tell_log(t);
}

static void take_turn(struct sp_deferred *d)
{
    struct sp_local_task *t = SP_CONTAINER(d, struct sp_local_task, turn);

    t->is_telling = true;
    tell_news(t);
    t->is_telling = false;
    if (t->is_released)
        free(t);
}

/* ---- the server ---- */

static void on_news(struct sp_session_client *c, struct sp_proc *p)
{
    struct sp_local_task *t = p->user;

    (void)c;
    if (t != NULL)
        sp_loop_defer(t->local->backend.loop, &t->turn, take_turn);
}

static void on_gone(struct sp_session_client *c, struct sp_proc *p)
{
    (void)c;
    (void)p; /* its task frees it */
}

static void on_challenge(struct sp_session_client *c)
{
    (void)c; /* no other client can attach to our session */
}

static void on_drained(void *user)
{
    const struct sp_local *l = user;

    if (l->drained != NULL) /* our own starts: max_processes refuses them long before */
        l->drained(l->drained_user);
}

static int open_server(struct sp_local *l, bool is_cell_late, struct sp_err *e)
{
    struct rlimit nofile = {1024, 4096};

    if (l->front != NULL)
        return 0;
    (void)getrlimit(RLIMIT_NOFILE, &nofile);
    const struct sp_front_options o = {
        .program = l->options.program,
        .max_processes = l->options.max_processes,
        .history = l->options.history,
        .closed_ttl_ms = CLOSED_TTL_MS,
        .use_cgroups = l->options.use_cgroups,
        .nofile_soft = nofile.rlim_cur,
        .nofile_hard = nofile.rlim_max,
        .limits = l->options.limits,
        .default_pids = l->options.default_pids,
        .fixed = l->options.fixed,
        .runtime_dir = l->options.runtime_dir,
        .is_embedded = !l->options.owns_program,
        .is_cell_late = is_cell_late,
        .kills_silent_cells = true, /* no other client could tell the user what to kill */
        .user = l,
        .drained = on_drained,
        .publish = l->publish,
    };
    int r = sp_front_new(l->backend.loop, &o, &l->front, e);
    for (uint32_t i = 0; r == 0 && i < l->own_port_count; i++)
        sp_cell_pool_add_own_port(l->front->cell_pool, l->own_ports[i]);
    if (r == 0)
        r = sp_session_new(l->front, &l->client, &l->session, e);
    if (r < 0) {
        sp_front_free(l->front);
        l->front = NULL;
    }
    return r;
}

int sp_local_front(struct sp_backend *b, void (*drained)(void *user), void *user,
                   struct sp_front **ret, struct sp_err *e)
{
    struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);
    const int r = open_server(l, true, e);

    l->drained = drained;
    l->drained_user = user;
    *ret = l->front;
    return r;
}

bool sp_local_add_own_port(struct sp_backend *b, uint16_t port)
{
    struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);

    assert(l->front == NULL);
    if (l->own_port_count == SP_PROXY_PORTS_MAX)
        return false;
    l->own_ports[l->own_port_count++] = port;
    return true;
}

int sp_local_publish(struct sp_backend *b, const struct sp_published *port, struct sp_err *e)
{
    struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);
    const struct sp_publish_options o = {b->loop, l->options.program, environ};

    assert(l->front == NULL);
    const int r = sp_publish_add(&l->publish, &o, port, e);
    if (r == 0 && !sp_local_add_own_port(b, port->host))
        return sp_fail(e, SP_E_LIMIT, 0, "too many ports");
    return r;
}

const struct sp_published *sp_local_published(struct sp_backend *b, uint32_t i)
{
    const struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);

    return l->publish == NULL ? NULL : sp_publish_port(l->publish, i);
}

void sp_local_unpublish(struct sp_backend *b)
{
    struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);

    if (l->publish != NULL)
        sp_publish_stop(l->publish);
}

/* ---- start ---- */

static void on_start_answered(struct sp_start_wait *w, struct sp_proc *p, const struct sp_err *e)
{
    struct sp_local_task *t = SP_CONTAINER(w, struct sp_local_task, start);

    if (p == NULL) {
        t->refusal = *e;
        t->proc = NULL; /* the session frees it */
        end_calls(t, false);
    } else if (t->is_terminating) {
        kill_now(t);
    }
    sp_loop_defer(t->local->backend.loop, &t->turn, take_turn);
}

static int start_process(struct sp_local_task *t, const struct sp_start *o, struct sp_err *e)
{
    struct sp_local *l = t->local;
    auto_buf struct sp_buf env = {0};
    auto_buf struct sp_buf label = {0};
    char name[128]; /* unique among the processes of this user, for `sallyport ps` and the like */
    const int n =
        snprintf(name, sizeof name, "%.*s-%d.%llu", (int)(o->label.n > 64 ? 64 : o->label.n),
                 o->label.n > 0 ? o->label.p : "", (int)getpid(), (unsigned long long)++l->next_id);
    struct sp_start s = *o;
    s.id = (struct sp_str){name, (size_t)n};
    s.env = &env;
    if (!sp_json_add_str(&label, s.id))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "start a command");
    s.label = sp_buf_str(&label);
    int r = o->environ == NULL ? 0 : sp_env_make(o->environ, &env, &s.envc, e);

    if (r == 0)
        r = sp_proc_start(l->session, &s, &t->start, &t->proc, e);
    if (r != 0)
        return r;
    t->proc->user = t;
    t->proc->requests++; /* keeps it alive until free_process or release */
    t->is_confined = t->proc->is_confined;
    return 0;
}

/*
 * Makes our own program runnable under the policy. Where the cell sees the host's root,
 * /proc/self/exe is the program that the cell itself runs, which no command can replace, and *ret
 * stays NULL. A cell with a root of its own sees only what its policy opens: the program's path is
 * added to the policy and returned, to be freed.
 */
static int add_program_to_policy(const struct sp_local *l, struct sp_policy *policy, char **ret,
                                 struct sp_err *e)
{
    struct sp_resolved rules __attribute__((cleanup(sp_resolved_done))) = {0};
    auto_free char *program = NULL;
    int r = sp_resolve(policy, &rules, e);

    if (r < 0 || sp_resolved_access(&rules, "/", NULL) != SP_ACCESS_DENY)
        return r;
    program = realpath(l->options.program != NULL ? l->options.program : "/proc/self/exe", NULL);
    if (program == NULL)
        return sp_fail(e, SP_E_SYSTEM, errno, "find the sallyport program");
    if (sp_resolved_can_write(&rules, program, NULL, NULL))
        return sp_fail(e, SP_E_INVALID, 0,
                       "the sallyport program, %s, is where commands may write, so it is not run "
                       "for them; install it elsewhere, or let the sandbox read all files",
                       program);
    r = sp_profile_add(&policy->profile, SP_PLACE_PATH, SP_ACCESS_READ, true, sp_str_of(program),
                       (struct sp_str){0}, e);
    if (r == 0)
        *ret = TAKE_PTR(program);
    return r;
}

static int start_own_program(struct sp_local_task *t, const struct sp_start *o, struct sp_err *e)
{
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    auto_free struct sp_str *argv = calloc((size_t)o->argc + 1, sizeof *argv);
    auto_free char *program = NULL;
    struct sp_start own = *o;

    if (argv == NULL || !sp_policy_copy(o->policy, &policy))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "start a command");
    const int r = add_program_to_policy(t->local, &policy, &program, e);
    if (r < 0)
        return r;
    memcpy(argv, o->argv, o->argc * sizeof *argv);
    if (program != NULL)
        argv[0] = sp_str_of(program);
    own.argv = argv;
    own.policy = &policy; /* read completely before start_process returns */
    return start_process(t, &own, e);
}

static int start_job(struct sp_backend *b, struct sp_job *j, const struct sp_start *o,
                     struct sp_err *e)
{
    struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);
    bool has_nul = sp_str_has_nul(o->cwd) || (o->arg0.p != NULL && sp_str_has_nul(o->arg0));

    for (uint32_t i = 0; i < o->argc; i++)
        has_nul = has_nul || sp_str_has_nul(o->argv[i]);
    if (has_nul)
        return sp_fail(e, SP_E_INVALID, 0, "nul byte found in provided data");
    int r = open_server(l, false, e);
    if (r < 0)
        return r;
    auto_free struct sp_local_task *t = calloc(1, sizeof *t);
    if (t == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "start a command");
    t->local = l;
    t->job = j;
    t->start.done = on_start_answered;
    sp_list_init(&t->answered);
    sp_list_init(&t->terminates);
    sp_list_init(&t->flushes);
    r = o->is_own_program && o->policy != NULL ? start_own_program(t, o, e)
                                               : start_process(t, o, e);
    if (r < 0)
        return r;
    j->impl = TAKE_PTR(t);
    return 0;
}

/* ---- input ---- */

static enum sp_job_result input_result(const struct sp_local_task *t)
{
    if (is_starting(t))
        return SP_JOB_NOT_YET;
    if (has_exited(t) || t->proc->input.state == SP_INPUT_BROKEN)
        return SP_JOB_GONE;
    return t->proc->input.state == SP_INPUT_OPEN ? SP_JOB_OK : SP_JOB_NO_STDIN;
}

static void write_input(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes)
{
    static const struct sp_str no_id = {0}; /* a local write is never repeated */
    struct sp_local_task *t = j->impl;
    const enum sp_job_result result = input_result(t);

    if (result != SP_JOB_OK) {
        answer_unless_lost(t, c, result);
        return;
    }
    const size_t queued = t->proc->input.bytes;
    const bool fits = queued == 0 || (queued <= MAX_QUEUED && bytes.n <= MAX_QUEUED - queued);
    const enum sp_input_result r = fits ? sp_proc_write(t->proc, no_id, bytes) : SP_INPUT_FULL;
    if (r == SP_INPUT_FAILED)
        refuse(t, c, ENOMEM, "write to its stdin");
    else /* the write may have found stdin closed */
        answer_unless_lost(t, c, r == SP_INPUT_FULL ? SP_JOB_FULL : input_result(t));
}

static void close_input(struct sp_job *j, struct sp_job_call *c)
{
    struct sp_local_task *t = j->impl;
    const enum sp_job_result result = input_result(t);
    const bool is_closing = result == SP_JOB_NO_STDIN && t->proc->input.state == SP_INPUT_CLOSING;

    if (result == SP_JOB_OK)
        (void)sp_input_close(&t->proc->input);
    answer_unless_lost(t, c, is_closing ? SP_JOB_OK : result);
}

static void on_room(struct sp_waiter *w)
{
    struct sp_local_task *t = SP_CONTAINER(w, struct sp_local_task, on_room);

    if (t->proc != NULL && t->proc->input.bytes > 0)
        sp_waiters_add_first(&t->proc->on_room, w);
    else
        answer_all(t, &t->flushes, SP_JOB_OK);
}

static void flush_input(struct sp_job *j, struct sp_job_call *c)
{
    struct sp_local_task *t = j->impl;

    if (t->proc == NULL || t->proc->input.bytes == 0) {
        answer_unless_lost(t, c, input_result(t));
        return;
    }
    sp_list_append(&t->flushes, &c->link);
    t->on_room.fn = on_room;
    if (t->on_room.list == NULL)
        sp_waiters_add(&t->proc->on_room, &t->on_room);
}

/* ---- inspect, go on, release ---- */

static bool inspect_process(struct sp_job *j, struct sp_job_inspection *l)
{
    struct sp_local_task *t = j->impl;
    const struct sp_inspect_request ask = {
        .wants_doing = l->wants_doing,
        .ports = l->ports,
        .port_count = l->port_count < SP_INSPECT_PORTS ? l->port_count : SP_INSPECT_PORTS,
    };

    if (is_starting(t)) {
        answer(t, &l->call, SP_JOB_NOT_YET);
    } else if (t->proc == NULL || is_lost(t)) {
        answer_unless_lost(t, &l->call, SP_JOB_GONE);
    } else {
        sp_proc_inspect(t->proc, &ask, &l->found);
        answer(t, &l->call, SP_JOB_OK);
    }
    return true;
}

static void go_on(struct sp_job *j)
{
    struct sp_local_task *t = j->impl;

    t->is_blocked = false;
    sp_loop_again(t->local->backend.loop, &t->turn, take_turn);
}

static void release_job(struct sp_job *j)
{
    struct sp_local_task *t = j->impl;

    end_calls(t, true);
    sp_loop_undefer(t->local->backend.loop, &t->turn);
    if (t->proc != NULL)
        sp_proc_free(t->proc); /* kills a live process with its tree */
    t->proc = NULL;
    t->is_released = true;
    if (!t->is_telling) /* otherwise take_turn frees it */
        free(t);
}

/* ---- facts ---- */

static void forget_facts(struct sp_backend_wait *w)
{
    sp_list_remove(&w->link);
    w->backend = NULL;
}

/* Those that limits of commands can use, also before there is a server. */
static unsigned find_controllers(const struct sp_local *l)
{
    struct sp_limit_host host;

    if (l->front != NULL)
        return sp_leaves_prepare(l->front->leaves, ~0U, false);
    sp_limit_host_find(getpid(), l->options.owns_program, &host);
    return host.controllers;
}

static void tell_facts(struct sp_deferred *d)
{
    struct sp_local *l = SP_CONTAINER(d, struct sp_local, tell_facts);
    struct sp_backend_facts facts = {.cwd = l->options.cwd, .can_close_stdin = true};
    const struct sp_err none = {0};

    const unsigned controllers = find_controllers(l);
    for (int i = 0; i < SP_LIMIT_COUNT; i++)
        facts.limits[i] = sp_limits_scope(controllers, (enum sp_limit)i);

    /* A callback may ask again: it is told in the next turn. */
    const struct sp_list *last = sp_list_last(&l->waits);
    struct sp_list *i = NULL;
    while (i != last && (i = sp_list_first(&l->waits)) != NULL) {
        struct sp_backend_wait *w = SP_CONTAINER(i, struct sp_backend_wait, link);

        forget_facts(w);
        w->fn(w, &facts, &none);
    }
}

static void ask_facts(struct sp_backend *b, struct sp_backend_wait *w)
{
    struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);

    w->backend = b;
    sp_list_append(&l->waits, &w->link);
    sp_loop_again(b->loop, &l->tell_facts, tell_facts);
}

static void free_local(struct sp_backend *b)
{
    struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);
    struct sp_list *i;

    sp_loop_undefer(b->loop, &l->tell_facts);
    while ((i = sp_list_first(&l->waits)) != NULL)
        forget_facts(SP_CONTAINER(i, struct sp_backend_wait, link));
    if (l->session != NULL)
        sp_session_detach(l->session, false); /* kills what commands left behind */
    sp_front_free(l->front);
    sp_publish_free(l->publish);
    sp_hidden_paths_done(&l->hidden_paths);
    sp_arena_done(&l->keep);
    free(l);
}

static const struct sp_backend_job_ops local_job_ops = {
    .start = start_job,
    .write = write_input,
    .close_stdin = close_input,
    .flush = flush_input,
    .signal = send_signal,
    .resize = resize_terminal,
    .terminate = terminate_process,
    .inspect = inspect_process,
    .go_on = go_on,
    .release = release_job,
};

static const struct sp_backend_ops local_ops = {
    .job = &local_job_ops,
    .ask_facts = ask_facts,
    .forget_facts = forget_facts,
    .free = free_local,
};

/* ---- creation ---- */

int sp_local_new(struct sp_loop *loop, const struct sp_local_options *o, struct sp_backend **ret,
                 struct sp_err *e)
{
    struct sp_local *l = calloc(1, sizeof *l);

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a place for commands");
    l->backend = (struct sp_backend){.ops = &local_ops, .loop = loop};
    l->client =
        (struct sp_session_client){.news = on_news, .gone = on_gone, .challenge = on_challenge};
    sp_list_init(&l->waits);
    l->options = *o;
    if (l->options.max_processes == 0)
        l->options.max_processes = MAX_PROCESSES;
    if (!sp_arena_text(&l->keep, o->program, &l->options.program) ||
        !sp_arena_text(&l->keep, o->runtime_dir, &l->options.runtime_dir) ||
        !sp_arena_text(&l->keep, o->cwd, &l->options.cwd) ||
        !sp_hidden_paths_copy(&o->fixed, &l->hidden_paths)) {
        free_local(&l->backend);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a place for commands");
    }
    l->options.fixed = sp_hidden_paths_places(&l->hidden_paths);
    *ret = &l->backend;
    return 0;
}
