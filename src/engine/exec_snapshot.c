/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A login shell without its profile: the command reads what the profile came to, once captured, and
 * keeps what is set for it here (unified-exec.md 9.3).
 */
#include <stdlib.h>

#include "base/auto.h"
#include "engine/exec_priv.h"

/* Exactly [shell, "-lc", cmd] of a shell that we know how to capture, in its own directory; and not
 * where commands may have written the profile of a run without a sandbox. */
static bool is_wanted(const struct sp_exec *x)
{
    const enum sp_shell_type type = x->shell.type;

    if (x->plan.is_free && x->plan.free.drops_login)
        return false;
    return x->call.m->options.snapshots != NULL && x->home->has_snapshots && !x->facts.is_remote &&
           x->shell.path != NULL && x->is_login &&
           (type == SP_SHELL_BASH || type == SP_SHELL_ZSH || type == SP_SHELL_SH) &&
           x->home_cwd != NULL && sp_str_eq(x->cwd, sp_str_of(x->home_cwd));
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

bool sp_exec_add_snapshot_script(const struct sp_exec *x, const struct sp_environ_ask *environ,
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
