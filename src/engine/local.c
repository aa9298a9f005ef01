/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local: the backend that runs commands in cells on this host.
 */
#include "engine/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/auto.h"
#include "engine/local_priv.h"
#include "sandbox/resolve.h"

/*
 * local: our own program in a sandbox, wherever it is installed.
 *
 * In a cell that sees the host's root, /proc/self/exe is what the cell itself runs: nothing that a
 * command could have put there. A cell with a root of its own has only the places that its policy
 * opens, and no other way leads to them: there the program is opened, too, and run by its path.
 */

/* At the end of this turn of the loop. */
static void wake(struct sp_local_task *t)
{
    sp_loop_defer(t->local->backend.loop, &t->turn, sp_local_turn);
}

static int open_program(const struct sp_local *l, struct sp_policy *policy,
                        const struct sp_resolved *rules, char **ret, struct sp_err *e)
{
    auto_free char *program =
        realpath(l->options.program != NULL ? l->options.program : "/proc/self/exe", NULL);

    if (program == NULL)
        return sp_fail(e, SP_E_SYSTEM, errno, "find the sallyport program");
    if (sp_resolved_can_write(rules, program, NULL, NULL))
        return sp_fail(e, SP_E_INVALID, 0,
                       "the sallyport program, %s, is where commands may write, so it is not run "
                       "for them; install it elsewhere, or let the sandbox read all files",
                       program);
    const int r = sp_profile_add(&policy->profile, SP_PLACE_PATH, SP_ACCESS_READ, true,
                                 sp_str_of(program), (struct sp_str){0}, e);
    if (r == 0)
        *ret = TAKE_PTR(program);
    return r;
}

/* local_own.c: our own program can be run under the policy; *ret is its path there, to be freed,
 * and stays NULL for /proc/self/exe. */
static int add_program_to_policy(const struct sp_local *l, struct sp_policy *policy, char **ret,
                                 struct sp_err *e)
{
    struct sp_resolved rules = {0};
    int r = sp_resolve(policy, &rules, e);

    if (r == 0 && sp_resolved_access(&rules, "/", NULL) == SP_ACCESS_DENY)
        r = open_program(l, policy, &rules, ret, e);
    sp_resolved_done(&rules);
    return r;
}

#define MAX_PROCESSES 1024
#define ANSWER_MS     30000   /* far more than a sandbox takes to be made */
#define CLOSED_TTL_MS 3600000 /* nobody's: what has closed is let go of in the next turn */

static struct sp_local *local_of(struct sp_backend *b)
{
    return SP_CONTAINER(b, struct sp_local, backend);
}

/* ---- the front ---- */

static void on_news(struct sp_session_client *c, struct sp_proc *p)
{
    (void)c;
    if (p->owner != NULL)
        wake(p->owner);
}

static void on_gone(struct sp_session_client *c, struct sp_proc *p)
{
    (void)c;
    (void)p; /* each is let go of by its task */
}

static void on_challenge(struct sp_session_client *c)
{
    (void)c; /* nobody else can ask for our session */
}

static void on_drained(void *user)
{
    (void)user; /* starts are refused by the count of processes long before */
}

static int make_server(struct sp_local *l, struct sp_err *e)
{
    struct rlimit nofile = {1024, 4096};

    (void)getrlimit(RLIMIT_NOFILE, &nofile);
    const struct sp_server_options o = {
        .program = l->options.program,
        .max_processes = l->options.max_processes,
        .closed_ttl_ms = CLOSED_TTL_MS,
        .use_cgroups = l->options.use_cgroups,
        .nofile_soft = nofile.rlim_cur,
        .nofile_hard = nofile.rlim_max,
        .fixed = l->options.fixed,
        .runtime_dir = l->options.runtime_dir,
        .is_embedded = !l->options.owns_program,
        .user = l,
        .drained = on_drained,
    };
    int r = sp_server_new(l->backend.loop, &o, &l->server, e);
    if (r == 0)
        r = sp_session_new(l->server, &l->client, &l->session, e);
    if (r < 0) {
        sp_server_free(l->server);
        l->server = NULL;
    }
    return r;
}

/* ---- starting ---- */

static void on_started(struct sp_start_wait *w, struct sp_proc *p, const struct sp_err *e)
{
    struct sp_local_task *t = SP_CONTAINER(w, struct sp_local_task, start);

    sp_loop_cancel(t->local->backend.loop, &t->start_timer);
    if (p == NULL) {
        t->refusal = *e;
        if (t->is_late)
            (void)sp_fail(&t->refusal, SP_E_FAILED, 0, "process cell does not answer");
        t->proc = NULL; /* freed by whoever tells us */
        sp_local_end_calls(t, false);
    } else {
        sp_local_kill_late(t);
    }
    wake(t);
}

/* Stopped, perhaps: nothing that it holds can go on. */
static void on_late(struct sp_timer *timer)
{
    struct sp_local_task *t = SP_CONTAINER(timer, struct sp_local_task, start_timer);

    t->is_late = true;
    if (t->proc != NULL && t->proc->seat.cell != NULL)
        sp_cell_abandon(t->proc->seat.cell);
}

/* So that no two of a session have one name. */
static int name_of(struct sp_local *l, struct sp_str name, char *ret, size_t size)
{
    return snprintf(ret, size, "%.*s-%llu", (int)(name.n > 64 ? 64 : name.n),
                    name.n > 0 ? name.p : "", (unsigned long long)++l->next_id);
}

static int start_process(struct sp_local_task *t, const struct sp_launch *o, struct sp_err *e)
{
    auto_buf struct sp_buf env = {0};
    char name[96];
    const int n = name_of(t->local, o->name, name, sizeof name);
    struct sp_start s = {
        .id = {name, (size_t)n},
        .label = {name, (size_t)n},
        .is_tty = o->is_tty,
        .wants_stdin = o->wants_stdin,
        .rows = o->rows,
        .cols = o->cols,
        .cwd = o->cwd,
        .arg0 = o->arg0,
        .argv = o->argv,
        .argc = o->argc,
        .file = o->file,
        .dev = o->dev,
        .ino = o->ino,
        .env = &env,
        .policy = o->policy,
    };
    int r = o->environ == NULL ? 0 : sp_environ_make(o->environ, &env, &s.envc, e);

    if (r == 0)
        r = sp_proc_start(t->local->session, &s, &t->start, &t->proc, e);
    if (r != 0)
        return r;
    struct sp_loop *loop = t->local->backend.loop;
    (void)sp_loop_timer(loop, &t->start_timer, sp_loop_now(loop) + ANSWER_MS, on_late);
    t->proc->owner = t;
    t->proc->requests++; /* it stays until we let go of it */
    t->is_confined = t->proc->is_confined;
    return 0;
}

static int start_own(struct sp_local_task *t, const struct sp_launch *o, struct sp_err *e)
{
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    auto_free struct sp_str *argv = calloc(o->argc, sizeof *argv);
    auto_free char *program = NULL;
    struct sp_launch own = *o;

    if (argv == NULL || !sp_policy_copy(o->policy, &policy))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "start a command");
    const int r = add_program_to_policy(t->local, &policy, &program, e);
    if (r < 0)
        return r;
    memcpy(argv, o->argv, o->argc * sizeof *argv);
    if (program != NULL)
        argv[0] = sp_str_of(program);
    own.argv = argv;
    own.policy = &policy; /* all of it is read before this returns */
    return start_process(t, &own, e);
}

static bool has_nul(const struct sp_launch *o)
{
    bool has = sp_str_has_nul(o->cwd) || (o->arg0.p != NULL && sp_str_has_nul(o->arg0));

    for (uint32_t i = 0; i < o->argc; i++)
        has = has || sp_str_has_nul(o->argv[i]);
    return has;
}

static int start(struct sp_backend *b, struct sp_job *j, const struct sp_launch *o,
                 struct sp_err *e)
{
    struct sp_local *l = local_of(b);

    if (o->inherited_fds > 0)
        return sp_fail(e, SP_E_INVALID, 0, "a command cannot inherit descriptors (%u asked for)",
                       o->inherited_fds);
    if (has_nul(o))
        return sp_fail(e, SP_E_INVALID, 0, "nul byte found in provided data");
    if (l->server == NULL) {
        const int r = make_server(l, e);

        if (r < 0)
            return r;
    }
    auto_free struct sp_local_task *t = calloc(1, sizeof *t);
    if (t == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "start a command");
    t->local = l;
    t->job = j;
    t->start.done = on_started;
    const int r =
        o->is_own_program && o->policy != NULL ? start_own(t, o, e) : start_process(t, o, e);
    if (r < 0)
        return r;
    l->tasks++;
    j->impl = TAKE_PTR(t);
    return 0;
}

/* ---- letting go ---- */

static void go_on(struct sp_job *j)
{
    struct sp_local_task *t = j->impl;

    t->is_blocked = false;
    sp_loop_again(t->local->backend.loop, &t->turn, sp_local_turn);
}

static void release(struct sp_job *j)
{
    struct sp_local_task *t = j->impl;

    sp_local_end_calls(t, true);
    sp_loop_undefer(t->local->backend.loop, &t->turn);
    if (t->proc != NULL)
        sp_proc_free(t->proc); /* a live one is killed with its tree */
    t->proc = NULL;
    t->local->tasks--;
    t->is_released = true;
    if (!t->is_telling) /* else at the end of its turn */
        free(t);
}

/* ---- facts ---- */

static void forget_facts(struct sp_backend_wait *w)
{
    struct sp_local *l = local_of(w->backend);

    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        l->first_wait = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    else
        l->last_wait = w->prev;
    w->backend = NULL;
}

static void tell_facts(struct sp_deferred *d)
{
    struct sp_local *l = SP_CONTAINER(d, struct sp_local, tell_facts);
    struct sp_shell shell = {0};
    auto_free char *account = NULL;
    struct sp_err e = {0};

    (void)sp_shell_of_account(&account, NULL); /* none: the next best */
    const struct sp_shell_places places = {.account_shell = account, .path = getenv("PATH")};
    const bool ok = sp_shell_of_user(&places, &shell, &e) == 0;
    const struct sp_backend_facts facts = {
        .shell_type = shell.type,
        .shell_name = sp_shell_type_name(shell.type),
        .shell_path = shell.path,
        .cwd = l->options.cwd,
        .can_close_stdin = true,
    };
    /* Who asks again is told the next time. */
    const struct sp_backend_wait *last = l->last_wait;
    struct sp_backend_wait *w = NULL;
    while (w != last && (w = l->first_wait) != NULL) {
        forget_facts(w);
        w->fn(w, ok ? &facts : NULL, &e);
    }
    sp_shell_done(&shell);
}

static void ask_facts(struct sp_backend *b, struct sp_backend_wait *w)
{
    struct sp_local *l = local_of(b);

    w->backend = b;
    w->next = NULL;
    w->prev = l->last_wait;
    if (w->prev != NULL)
        w->prev->next = w;
    else
        l->first_wait = w;
    l->last_wait = w;
    sp_loop_again(b->loop, &l->tell_facts, tell_facts);
}

/* ---- beginning and end ---- */

static void free_local(struct sp_backend *b)
{
    struct sp_local *l = local_of(b);

    sp_loop_undefer(b->loop, &l->tell_facts);
    while (l->first_wait != NULL)
        forget_facts(l->first_wait);
    if (l->session != NULL)
        sp_session_detach(l->session, false); /* what commands left behind is killed */
    sp_server_free(l->server);
    sp_hidden_paths_done(&l->hidden_paths);
    free((void *)(uintptr_t)l->options.program);
    free((void *)(uintptr_t)l->options.runtime_dir);
    free((void *)(uintptr_t)l->options.cwd);
    free(l);
}

static const struct sp_backend_ops local_ops = {
    .start = start,
    .write = sp_local_write,
    .close_stdin = sp_local_close_stdin,
    .flush = sp_local_flush,
    .signal = sp_local_signal,
    .resize = sp_local_resize,
    .terminate = sp_local_terminate,
    .look = sp_local_look,
    .go_on = go_on,
    .release = release,
    .ask_facts = ask_facts,
    .forget_facts = forget_facts,
    .free = free_local,
};

static bool copy_text(const char *from, const char **ret)
{
    *ret = from != NULL ? strdup(from) : NULL;
    return from == NULL || *ret != NULL;
}

static bool copy_hidden_paths(struct sp_local *l, const struct sp_fixed_places *from)
{
    if (!sp_hidden_paths_copy(from, &l->hidden_paths))
        return false;
    l->options.fixed = sp_hidden_paths_places(&l->hidden_paths);
    return true;
}

int sp_local_new(struct sp_loop *loop, const struct sp_local_options *o, struct sp_backend **ret,
                 struct sp_err *e)
{
    struct sp_local *l = calloc(1, sizeof *l);

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a place for commands");
    l->backend = (struct sp_backend){.ops = &local_ops, .loop = loop};
    l->client =
        (struct sp_session_client){.news = on_news, .gone = on_gone, .challenge = on_challenge};
    l->options.max_processes = o->max_processes != 0 ? o->max_processes : MAX_PROCESSES;
    l->options.use_cgroups = o->use_cgroups;
    l->options.owns_program = o->owns_program;
    if (!copy_text(o->program, &l->options.program) ||
        !copy_text(o->runtime_dir, &l->options.runtime_dir) ||
        !copy_text(o->cwd, &l->options.cwd) || !copy_hidden_paths(l, &o->fixed)) {
        free_local(&l->backend);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a place for commands");
    }
    *ret = &l->backend;
    return 0;
}

/* local: what the owner of a job is told, a piece a turn, so that the noisy starve nobody. */

#define TURN_BYTES (192U << 10)

/* ---- ends ---- */

/* Nothing more will be heard of it. Its place, its ring and its memory are free now. */
static void let_go(struct sp_local_task *t)
{
    t->is_over = true;
    sp_local_end_calls(t, false);
    sp_proc_free(t->proc);
    t->proc = NULL;
}

static void tell_lost(struct sp_local_task *t)
{
    const bool has_cell = t->proc->seat.cell != NULL;

    t->is_lost = true;
    let_go(t);
    t->job->ops->failed(t->job, has_cell ? "process output is broken" : "process cell ended");
}

static void tell_exit(struct sp_local_task *t)
{
    const struct sp_proc *p = t->proc;
    const struct sp_job_exit how = {
        .code = p->state.exit.code,
        .signal = p->state.exit.signal,
        .denied = p->was_denied,
        .denial = p->denial,
        .kernel = &p->state.exit,
    };

    t->has_told_exit = true;
    t->job->ops->exited(t->job, &how);
}

static void tell_closed(struct sp_local_task *t)
{
    let_go(t);
    t->job->ops->closed(t->job);
}

/* ---- the log ---- */

/* What is not taken comes again, and counts as read up to where it begins. */
static bool tell_output(struct sp_local_task *t, const struct sp_record *r)
{
    const struct sp_str bytes = {(const char *)r->data, r->len};

    if (t->job->ops->output(t->job, r->stream, bytes) || t->is_released)
        return !t->is_released;
    t->is_blocked = true;
    t->proc->sent.pos = r->pos;
    t->proc->sent.seq = r->seq - 1;
    t->proc->sent.bytes = r->bytes_before;
    return false;
}

/* true: go on with the next. */
static bool tell_record(struct sp_local_task *t, const struct sp_record *r)
{
    const struct sp_proc *p = t->proc;

    if (p->is_lost && r->seq > p->last_real_seq) {
        tell_lost(t);
        return false;
    }
    /* Retention may have forgotten the record of the exit, and never the exit. */
    if (!t->has_told_exit && p->state.exit_seq != 0 && r->seq >= p->state.exit_seq)
        tell_exit(t);
    if (t->is_released)
        return false;
    if (r->type == SP_RECORD_OUTPUT && r->len > 0)
        return tell_output(t, r);
    if (r->type == SP_RECORD_CLOSED) {
        tell_closed(t);
        return false;
    }
    return true;
}

/* The next record, or the word that some are missing before it. false: nothing to tell now. */
static bool tell_next(struct sp_local_task *t, uint32_t *told)
{
    struct sp_proc *p = t->proc;
    const uint64_t missed = p->sent.missed_bytes;
    struct sp_record r;

    if (sp_proc_next(p, &r) <= 0)
        return false;
    *told += r.len;
    if (p->sent.missed_bytes != missed)
        t->job->ops->gap(t->job, p->sent.missed_bytes - missed);
    return !t->is_released && tell_record(t, &r);
}

static void tell_log(struct sp_local_task *t)
{
    uint32_t told = 0;
    bool goes_on = true;

    while (goes_on && told < TURN_BYTES)
        goes_on = tell_next(t, &told);
    if (t->is_released || t->proc == NULL)
        return;
    sp_proc_served(t->proc);
    if (goes_on)
        sp_loop_again(t->local->backend.loop, &t->turn, sp_local_turn);
}

/* ---- a turn ---- */

static void tell_start(struct sp_local_task *t)
{
    t->has_told_started = true;
    if (t->proc != NULL) {
        t->job->ops->started(t->job, t->is_confined ? SP_JOB_SANDBOX_LINUX : SP_JOB_SANDBOX_NONE);
        return;
    }
    t->is_over = true;
    t->job->ops->refused(t->job, &t->refusal);
}

static bool is_answered(const struct sp_local_task *t)
{
    return t->refusal.code != SP_E_NONE || (t->proc != NULL && t->proc->life != SP_PROC_STARTING);
}

static void take_turn(struct sp_local_task *t)
{
    sp_local_check_calls(t);
    if (!sp_local_tell_calls(t))
        return;
    if (!t->has_told_started && is_answered(t))
        tell_start(t);
    if (!t->is_released && t->has_told_started && t->proc != NULL && !t->is_blocked)
        tell_log(t);
}

void sp_local_turn(struct sp_deferred *d)
{
    struct sp_local_task *t = SP_CONTAINER(d, struct sp_local_task, turn);

    t->is_telling = true;
    take_turn(t);
    t->is_telling = false;
    if (t->is_released)
        free(t);
}
