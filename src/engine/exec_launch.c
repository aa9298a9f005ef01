/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_launch: the variables, the shell snapshot and the start of one attempt of a command.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "engine/exec_priv.h"

/*
 * The variables that the caller of exec_command gives are judged with the command, as if it began
 * with `env NAME=VALUE ...`: which program a known command is, and what code it loads, depend on
 * them. A rule for the command alone is none for it with variables, whoever is asked sees them, and
 * an approval for the session is for these. A patch gets none of them.
 */

/* NAME=VALUE, which the call keeps. */
static bool join(struct sp_exec *x, const struct sp_environ_var *v, struct sp_str *ret)
{
    const size_t n = v->name.n + 1 + v->value.n;
    char *text = sp_keep_alloc(&x->call.keep, n);

    if (text == NULL)
        return false;
    memcpy(text, v->name.p, v->name.n);
    text[v->name.n] = '=';
    if (v->value.n != 0)
        memcpy(text + v->name.n + 1, v->value.p, v->value.n);
    *ret = (struct sp_str){text, n};
    return true;
}

/* One after the other, each with its length: no two different lists look alike. */
static bool write_key(struct sp_exec *x, struct sp_words words, struct sp_str *ret)
{
    struct sp_buf key = {0};
    bool ok = true;

    for (uint32_t i = 0; ok && i < words.count; i++)
        ok = sp_buf_printf(&key, "%zu:", words.items[i].n) && sp_buf_add_str(&key, words.items[i]);
    ok = ok && sp_keep_str(&x->call.keep, (struct sp_str){key.data, key.len}, ret);
    sp_buf_done(&key);
    return ok;
}

bool sp_exec_say_env(struct sp_exec *x, struct sp_run_plan_ask *ask)
{
    const struct sp_environ_vars vars = x->ask.env;

    if (vars.count == 0 || x->patch.is_one)
        return true;
    struct sp_str *words = sp_keep_alloc(&x->call.keep, ((size_t)vars.count + 1) * sizeof *words);
    if (words == NULL)
        return false;
    words[0] = SP_STR("env");
    for (uint32_t i = 0; i < vars.count; i++)
        if (!join(x, &vars.items[i], &words[i + 1]))
            return false;
    ask->preface = (struct sp_words){words, vars.count + 1};
    return write_key(x, ask->preface, &ask->key_more);
}

/*
 * A login shell without its profile: the command reads what the profile came to, once captured, and
 * keeps what is set for it here (unified-exec.md 9.3).
 */

/* Exactly [shell, "-lc", cmd] of a shell that we know how to capture, in its own directory; and not
 * where commands may have written the profile of a run without a sandbox. */
static bool is_wanted(const struct sp_exec *x)
{
    const enum sp_shell_type type = x->shell.type;

    if (x->plan.is_free && x->plan.free.drops_login)
        return false;
    return x->call.m->options.snapshots != NULL && x->environment->has_snapshots &&
           !x->facts.is_remote && x->shell.path != NULL && x->is_login &&
           (type == SP_SHELL_BASH || type == SP_SHELL_ZSH || type == SP_SHELL_SH) &&
           x->environment_cwd != NULL && sp_str_eq(x->cwd, sp_str_of(x->environment_cwd));
}

static void on_snapshot(struct sp_snapshot_wait *w, const char *path)
{
    struct sp_exec *x = SP_CONTAINER(w, struct sp_exec, snapshot_wait);

    x->is_snapshot_told = true;
    if (!sp_keep_text(&x->call.keep, path, &x->snapshot))
        x->snapshot = NULL; /* the command runs as it was asked */
    sp_call_changed(&x->call);
}

bool sp_exec_has_snapshot(struct sp_exec *x)
{
    struct sp_exec_environ env;

    if (!is_wanted(x) || x->is_snapshot_told)
        return true;
    if (x->is_snapshot_asked)
        return false;
    x->is_snapshot_asked = true;
    if (!sp_exec_make_environ(x, &env))
        return x->is_snapshot_told = true;
    x->snapshot_wait.fn = on_snapshot;
    sp_snapshots_get(x->call.m->options.snapshots, &x->shell, x->cwd, &env.ask, &x->snapshot_wait);
    return false;
}

/* ---- what the snapshot must not change ---- */

static const struct sp_str runtime[] = {
    {"CODEX_THREAD_ID", 15},
    {"CODEX_SESSION_ID", 16},
    {"CODEX_TOOL_CALL_ID", 18},
    {"CODEX_PERMISSION_PROFILE", 24},
    {"CODEX_SANDBOX_NETWORK_DISABLED", 30},
    {"SALLYPORT_SANDBOX", 17},
};
#define RUNTIME_COUNT (sizeof runtime / sizeof runtime[0])

static uint32_t add_names(struct sp_str *names, uint32_t count, struct sp_environ_vars vars)
{
    for (uint32_t i = 0; i < vars.count; i++)
        names[count++] = vars.items[i].name;
    return count;
}

/* Appends the script that runs instead of the command. false: run the command itself. */
static bool add_snapshot_script(const struct sp_exec *x, const struct sp_environ_ask *environ,
                                struct sp_buf *out)
{
    auto_buf struct sp_buf made = {0};
    uint32_t count = 0;

    /* Whatever is put into marks (a proxy in force is) holds after the profile. */
    auto_free struct sp_str *names =
        malloc((RUNTIME_COUNT + environ->set.count + environ->plain.count + environ->marks.count) *
               sizeof *names);
    if (names == NULL || sp_environ_make(environ, &made, &count, NULL) < 0)
        return false;
    memcpy(names, runtime, sizeof runtime);
    count = add_names(names, RUNTIME_COUNT, environ->set);
    count = add_names(names, count, environ->plain);
    count = add_names(names, count, environ->marks);
    return sp_snapshot_script(out, &x->shell, x->snapshot, x->ask.cmd,
                              (struct sp_str){made.data, made.len}, names, count);
}

/*
 * One attempt of a command: its environment, its sandbox, its job (unified-exec.md 7.7, 9.1). What
 * the marks in the environment say is true of this attempt alone.
 */

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
        env->ask.permission_profile = optional(x->environment->policy_name);
    add_marks(env, x);
    return add_plain(env, x);
}

/* ---- the process ---- */

static bool describe(struct sp_process *p, const struct sp_exec *x)
{
    p->environment = sp_environment_ref(x->environment);
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
    if (x->snapshot != NULL && add_snapshot_script(x, &env.ask, &script)) {
        rewritten[0] = x->argv[0];
        rewritten[1] = SP_STR("-c");
        rewritten[2] = (struct sp_str){script.data, script.len};
        launch.argv = rewritten;
    }
    return sp_job_start(x->environment->backend, &p->job, &sp_process_job_ops, &launch, e);
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
