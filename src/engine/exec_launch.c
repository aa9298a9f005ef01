/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt of a command: its environment, its sandbox, its job (unified-exec.md 7.7, 9.1). What
 * the marks in the environment say is true of this attempt alone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/exec_priv.h"

/* ---- environment ---- */

/* Of a free run, and of the sandbox, also where the executor is told the policy in another way. */
static void add_marks(struct sp_exec_environ *env, const struct sp_exec *x)
{
    const struct sp_profile *profile = &x->plan.policy.profile;

    if (x->plan.is_free)
        env->ask.marks = (struct sp_environ_vars){x->plan.free.marks, x->plan.free.mark_count};
    if (!x->plan.has_policy || x->plan.is_free)
        return;
    env->ask.has_no_network = profile->kind != SP_PROFILE_DISABLED && !profile->has_network;
    env->ask.is_confined = sp_run_plan_is_confined(&x->plan);
}

/* The plain variables, and what the caller lays over them. A patch is our own program's work, and
 * nobody has judged what they would make of that. */
static bool add_plain(struct sp_exec_environ *env, struct sp_exec *x)
{
    const uint32_t count = sp_environ_plain.count + x->ask.env.count;
    struct sp_environ_var *all;

    env->ask.plain = sp_environ_plain;
    if (x->ask.env.count == 0 || x->patch.is_one)
        return true;
    all = sp_keep_alloc(&x->call.keep, count * sizeof *all);
    if (all == NULL)
        return false;
    memcpy(all, sp_environ_plain.items, sp_environ_plain.count * sizeof *all);
    memcpy(all + sp_environ_plain.count, x->ask.env.items, x->ask.env.count * sizeof *all);
    env->ask.plain = (struct sp_environ_vars){all, count};
    return true;
}

static struct sp_str optional(const char *text)
{
    return (struct sp_str){text, text == NULL ? 0 : strlen(text)};
}

bool sp_exec_make_environ(struct sp_exec *x, struct sp_exec_environ *env)
{
    const struct sp_manager *m = x->call.m;

    *env = (struct sp_exec_environ){.ask = m->environ};
    env->ask.thread_id = optional(m->options.thread_id);
    env->ask.session_id = optional(m->options.session_id);
    if (x->ask.call_id.n != 0)
        env->ask.call_id = x->ask.call_id;
    if (!x->plan.is_free)
        env->ask.permission_profile = optional(x->home->policy_name);
    add_marks(env, x);
    return add_plain(env, x);
}

/* ---- the process ---- */

static bool describe(struct sp_process *p, const struct sp_exec *x)
{
    p->home = sp_home_ref(x->home);
    p->is_remote = x->facts.is_remote;
    p->is_tty = x->ask.is_tty;
    p->has_stdin = x->ask.wants_stdin;
    p->timeout_ms = x->ask.timeout_ms;
    p->argc = x->argc;
    return sp_keep_str(&p->keep, x->ask.call_id, &p->call_id) &&
           sp_keep_str(&p->keep, x->ask.turn_id, &p->turn_id) &&
           sp_keep_str(&p->keep, x->ask.cmd.p != NULL ? x->ask.cmd : x->argv[0], &p->command) &&
           sp_keep_str(&p->keep, x->cwd, &p->cwd) &&
           sp_keep_strs(&p->keep, x->argv, x->argc, &p->argv);
}

static int start_job(struct sp_exec *x, struct sp_process *p, struct sp_err *e)
{
    struct sp_exec_environ env;
    auto_buf struct sp_buf script = {0};
    struct sp_str rewritten[3];
    char name[16];

    if (!sp_exec_make_environ(x, &env) || !describe(p, x))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a command");
    (void)snprintf(name, sizeof name, "%d", p->id);
    struct sp_launch launch = {
        .name = sp_str_of(name),
        .is_tty = x->ask.is_tty,
        .wants_stdin = x->ask.wants_stdin,
        .rows = x->ask.rows,
        .cols = x->ask.cols,
        .cwd = x->cwd,
        .argv = x->argv,
        .argc = x->argc,
        .environ = &env.ask,
        .inherited_fds = x->ask.inherited_fds,
    };
    sp_launch_apply(&launch, &x->plan);
    if (x->snapshot != NULL && sp_exec_add_snapshot_script(x, &env.ask, &script)) {
        rewritten[0] = x->argv[0];
        rewritten[1] = SP_STR("-c");
        rewritten[2] = (struct sp_str){script.data, script.len};
        launch.argv = rewritten;
    }
    return sp_job_start(x->home->backend, &p->job, &sp_process_job_ops, &launch, e);
}

bool sp_exec_launch(struct sp_exec *x)
{
    struct sp_call *c = &x->call;
    struct sp_process *p = sp_process_new(c->m, c->reserved_id, c);
    struct sp_err e = {0};
    const int r =
        p != NULL ? start_job(x, p, &e) : sp_fail(&e, SP_E_SYSTEM, ENOMEM, "begin a command");

    if (r == 0) {
        c->process = p;
        return true;
    }
    if (p != NULL)
        sp_process_free(p);
    sp_call_fail_create(c, &e, sp_exec_alien_fds(x));
    return false;
}
