/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_launch: one attempt of a command: the variables it gets, the snapshot of its login shell,
 * and its job.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "engine/exec_priv.h"

/*
 * The caller's variables are judged with the command, as if it began with `env NAME=VALUE ...`:
 * PATH or LD_PRELOAD can change which program a known command is. So a rule for the bare command
 * does not match, the approver sees the variables, and an approval for the session covers exactly
 * these. A patch gets none of them.
 */

bool sp_exec_say_env(struct sp_exec *x, struct sp_run_plan_ask *ask)
{
    const struct sp_env_vars vars = x->ask.env;
    struct sp_arena *k = &x->call.keep;
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf key = {0};

    if (vars.count == 0 || x->patch.is_one)
        return true;
    struct sp_str *words = sp_arena_new(k, ((size_t)vars.count + 1) * sizeof *words);
    if (words == NULL)
        return false;
    words[0] = SP_STR("env");
    for (uint32_t i = 0; i < vars.count; i++) {
        text.len = 0;
        if (!sp_buf_add_str(&text, vars.items[i].name) || !sp_buf_add(&text, "=", 1) ||
            !sp_buf_add_str(&text, vars.items[i].value) ||
            !sp_arena_str(k, sp_buf_str(&text), &words[i + 1]))
            return false;
    }
    /* Each word with its length, so that different lists never have the same key. */
    for (uint32_t i = 0; i <= vars.count; i++)
        if (!sp_buf_printf(&key, "%zu:", words[i].n) || !sp_buf_add_str(&key, words[i]))
            return false;
    ask->preface = (struct sp_words){words, vars.count + 1};
    return sp_arena_str(k, sp_buf_str(&key), &ask->key_more);
}

/*
 * A snapshot replaces the profile of a login shell: the command sources what the profile resulted
 * in, captured once, and then restores the variables that this attempt sets itself.
 */

/* Only for [shell, "-lc", cmd] of a shell that can be captured, in the environment's own directory;
 * and not for an unsandboxed run of a profile that commands may have written. */
static bool wants_snapshot(const struct sp_exec *x)
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
    if (!sp_arena_text(&x->call.keep, path, &x->snapshot))
        x->snapshot = NULL; /* out of memory: run the command with its real profile */
    sp_call_changed(&x->call);
}

bool sp_exec_get_snapshot(struct sp_exec *x)
{
    struct sp_env_request env;

    if (!wants_snapshot(x) || x->is_snapshot_told)
        return true;
    if (x->is_snapshot_asked)
        return false;
    x->is_snapshot_asked = true;
    if (!sp_exec_make_env(x, &env))
        return x->is_snapshot_told = true;
    x->snapshot_wait.fn = on_snapshot;
    sp_snapshots_get(x->call.m->options.snapshots, &x->shell, x->cwd, &env, &x->snapshot_wait);
    return false;
}

/* Set by us for each attempt: the snapshot must not override them. */
static const struct sp_str runtime[] = {
    {"CODEX_THREAD_ID", 15},
    {"CODEX_SESSION_ID", 16},
    {"CODEX_TOOL_CALL_ID", 18},
    {"CODEX_PERMISSION_PROFILE", 24},
    {"CODEX_SANDBOX_NETWORK_DISABLED", 30},
    {"SALLYPORT_SANDBOX", 17},
};
#define RUNTIME_COUNT (sizeof runtime / sizeof runtime[0])

/* Appends the script that runs instead of the command. false: run the command itself. */
static bool add_snapshot_script(const struct sp_exec *x, const struct sp_env_request *env,
                                struct sp_buf *out)
{
    /* marks holds, among others, the proxy in force, so they too must outlive the profile. */
    const struct sp_env_vars lists[] = {env->set, env->plain, env->marks};
    auto_buf struct sp_buf made = {0};
    uint32_t count = 0;
    auto_free struct sp_str *names = malloc(
        (RUNTIME_COUNT + env->set.count + env->plain.count + env->marks.count) * sizeof *names);

    if (names == NULL || sp_env_make(env, &made, &count, NULL) < 0)
        return false;
    memcpy(names, runtime, sizeof runtime);
    count = RUNTIME_COUNT;
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++)
        for (uint32_t i = 0; i < lists[l].count; i++)
            names[count++] = lists[l].items[i].name;
    return sp_snapshot_script(out, &x->shell, x->snapshot, x->ask.cmd, sp_buf_str(&made), names,
                              count);
}

/* ---- variables ---- */

static struct sp_str optional(const char *text)
{
    return (struct sp_str){text, text == NULL ? 0 : strlen(text)};
}

bool sp_exec_make_env(struct sp_exec *x, struct sp_env_request *env)
{
    const struct sp_manager *m = x->call.m;
    const struct sp_profile *profile = &x->plan.policy.profile;

    *env = m->environ;
    env->thread_id = optional(m->options.thread_id);
    env->session_id = optional(m->options.session_id);
    if (x->ask.call_id.n != 0)
        env->call_id = x->ask.call_id;
    /* The marks say how this attempt is confined; a retry may have others. */
    if (x->plan.is_free) {
        env->marks = (struct sp_env_vars){x->plan.free.marks, x->plan.free.mark_count};
    } else {
        env->permission_profile = optional(x->environment->policy_name);
        if (x->plan.has_policy) {
            env->has_no_network = profile->kind != SP_PROFILE_DISABLED && !profile->has_network;
            env->is_confined = sp_run_plan_is_confined(&x->plan);
        }
    }
    env->plain = sp_env_plain;
    /* Our own program applies patches; the caller's variables were not judged for it. */
    if (x->ask.env.count == 0 || x->patch.is_one)
        return true;
    const uint32_t count = sp_env_plain.count + x->ask.env.count;
    struct sp_env_var *all = sp_arena_new(&x->call.keep, count * sizeof *all);
    if (all == NULL)
        return false;
    memcpy(all, sp_env_plain.items, sp_env_plain.count * sizeof *all);
    memcpy(all + sp_env_plain.count, x->ask.env.items, x->ask.env.count * sizeof *all);
    env->plain = (struct sp_env_vars){all, count};
    return true;
}

/* ---- the process ---- */

static bool describe_process(struct sp_process *p, const struct sp_exec *x)
{
    p->environment = sp_environment_ref(x->environment);
    p->is_remote = x->facts.is_remote;
    p->is_tty = x->ask.is_tty;
    p->has_stdin = x->ask.wants_stdin;
    p->timeout_ms = x->ask.timeout_ms;
    p->argc = x->argc;
    return sp_arena_str(&p->keep, x->ask.call_id, &p->call_id) &&
           sp_arena_str(&p->keep, x->ask.turn_id, &p->turn_id) &&
           sp_arena_str(&p->keep, x->ask.cmd.p != NULL ? x->ask.cmd : x->argv[0], &p->command) &&
           sp_arena_str(&p->keep, x->cwd, &p->cwd) &&
           sp_arena_strs(&p->keep, x->argv, x->argc, &p->argv);
}

static int start_job(struct sp_exec *x, struct sp_process *p, struct sp_err *e)
{
    struct sp_env_request env;
    auto_buf struct sp_buf script = {0};
    struct sp_str rewritten[3];
    char name[16];

    if (!sp_exec_make_env(x, &env) || !describe_process(p, x))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a command");
    (void)snprintf(name, sizeof name, "%d", p->id);
    struct sp_start launch = {
        .label = sp_str_of(name),
        .is_tty = x->ask.is_tty,
        .wants_stdin = x->ask.wants_stdin,
        .rows = x->ask.rows,
        .cols = x->ask.cols,
        .cwd = x->cwd,
        .argv = x->argv,
        .argc = x->argc,
        .environ = &env,
    };
    sp_job_apply_plan(&launch, &x->plan);
    if (x->snapshot != NULL && add_snapshot_script(x, &env, &script)) {
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
    sp_call_fail_create(c, &e);
    return false;
}
