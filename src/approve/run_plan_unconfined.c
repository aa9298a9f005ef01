/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_plan_unconfined: a command that runs without its sandbox: which file it is, and what it does
 * not read.
 *
 * Nothing that a confined command could write may decide what runs without a sandbox. A rule allows
 * a name, so the file is found first (approve/program.h) and started as it was found, with the PATH
 * that it was found by: a run that a rule sets free is therefore never a login shell, whose profile
 * may set another PATH. What a person allows is found as usual; but it is a login shell, or uses
 * the snapshot of one, only where no command could have written the files that the shell reads.
 */
#include <stdio.h>
#include <stdlib.h>

#include "approve/approvals_priv.h"

/* ---- judging ---- */

/* Whether the command, if no rule sets it free, runs in the sandbox without a question. */
static bool is_confined_otherwise(const struct sp_run_plan *p)
{
    switch (p->ask.permissions) {
    case SP_PERMISSIONS_DEFAULT:
        return true;
    case SP_PERMISSIONS_ADDITIONAL:
        return p->is_preapproved;
    case SP_PERMISSIONS_ESCALATED:
        break;
    }
    return !sp_judge_may_run_free(&p->policy);
}

int sp_run_plan_judge_programs(struct sp_run_plan *p, struct sp_judge_ask *ask, struct sp_err *e)
{
    struct sp_requirement *q = &p->requirement;
    const struct sp_policy *profile =
        p->has_policy && sp_profile_needs_sandbox(&p->policy.profile) ? &p->reach : NULL;
    const struct sp_program_ask files = {
        .argv = p->ask.argv, .judged = q, .profile = profile, .environ = p->ask.environ};

    if (q->kind != SP_REQUIRE_NOTHING || q->matches.count == 0 ||
        (profile != NULL && p->ask.keeps_policy))
        return 0;
    if (profile == NULL ? sp_program_is_named(&files)
                        : q->is_free && sp_program_find(&files, &p->free.program))
        return 0;
    q->is_free = false;
    if (profile != NULL && is_confined_otherwise(p))
        return 0;
    /* It would run free or get more permissions: judge it as if no rule allowed it. */
    sp_requirement_done(q);
    ask->ignores_allow = true;
    return sp_judge(ask, q, e);
}

bool sp_run_plan_does_approval_hold(const struct sp_run_plan *p)
{
    const struct sp_program_ask files = {.argv = p->ask.argv,
                                         .judged = &p->requirement,
                                         .profile = &p->reach,
                                         .environ = p->ask.environ};
    struct sp_program program = {0};

    if (!p->has_policy || !sp_profile_needs_sandbox(&p->policy.profile) ||
        !sp_run_plan_would_be_unconfined(p) || p->ask.environ.p == NULL)
        return true;
    /* The programs of an opaque script are unknown, so no entry of its PATH may be writable. */
    const bool holds = sp_program_find(&files, &program) &&
                       (program.search_path == NULL || !p->requirement.segments.is_opaque);
    sp_program_done(&program);
    return holds;
}

/* ---- starting ---- */

static void add_mark(struct sp_run_plan_unconfined *f, const char *name, const char *value)
{
    f->marks[f->mark_count++] = (struct sp_env_var){sp_str_of(name), sp_str_of(value)};
}

/* Git takes a directory that looks like a bare repository for one, with settings that run programs,
 * and any command can make one in a workspace. So make Git accept only a `.git`, unless --git-dir
 * or GIT_DIR says otherwise. Settings in the environment stay in force. */
static void add_git_marks(struct sp_run_plan *p)
{
    struct sp_run_plan_unconfined *f = &p->free;
    const struct sp_str set = sp_env_value(p->ask.environ, "GIT_CONFIG_COUNT");
    uint64_t count = 0;

    if (p->ask.environ.p == NULL ||
        (set.p != NULL && set.n != 0 && !sp_str_to_u64(set, 10000, &count)))
        return; /* it runs elsewhere, or Git rejects the number */
    (void)snprintf(f->git_count, sizeof f->git_count, "%u", (unsigned)count + 1);
    (void)snprintf(f->git_key, sizeof f->git_key, "GIT_CONFIG_KEY_%u", (unsigned)count);
    (void)snprintf(f->git_value, sizeof f->git_value, "GIT_CONFIG_VALUE_%u", (unsigned)count);
    add_mark(f, "GIT_CONFIG_COUNT", f->git_count);
    add_mark(f, f->git_key, "safe.bareRepository");
    add_mark(f, f->git_value, "explicit");
}

/* [SHELL, -lc, SCRIPT] becomes [SHELL, -c, SCRIPT]; -f because zsh reads .zshenv even without
 * -l. */
static bool drop_login(struct sp_run_plan_unconfined *f, struct sp_words argv, struct sp_str script)
{
    f->argv = calloc(4, sizeof *f->argv);
    if (f->argv == NULL)
        return false;
    f->argv[f->argc++] = argv.items[0];
    const struct sp_str shell = argv.items[0];
    if (shell.n >= 3 && memcmp(shell.p + shell.n - 3, "zsh", 3) == 0)
        f->argv[f->argc++] = SP_STR("-f");
    f->argv[f->argc++] = SP_STR("-c");
    f->argv[f->argc++] = script;
    f->drops_login = true;
    return true;
}

bool sp_run_plan_make_unconfined(struct sp_run_plan *p)
{
    struct sp_run_plan_unconfined *f = &p->free;
    const bool is_by_rule = p->requirement.kind == SP_REQUIRE_NOTHING && f->program.path != NULL;
    struct sp_str script;

    if (!p->has_policy || !sp_profile_needs_sandbox(&p->policy.profile) ||
        sp_run_plan_is_patch(p) || f->argv != NULL)
        return true;
    if (!is_by_rule)
        sp_program_done(&f->program);
    f->mark_count = 0;
    add_git_marks(p);
    if (f->program.search_path != NULL)
        add_mark(f, "PATH", f->program.search_path);
    if (!sp_script_is_wrapper(p->ask.argv, &script))
        return true;
    if (is_by_rule)
        return drop_login(f, p->ask.argv, script);
    if (!sp_startup_is_writable(&p->reach, p->ask.environ))
        return true;
    add_mark(f, "BASH_ENV", "");
    add_mark(f, "ENV", "");
    return drop_login(f, p->ask.argv, script);
}

void sp_run_plan_unconfined_done(struct sp_run_plan_unconfined *f)
{
    sp_program_done(&f->program);
    free(f->argv);
    *f = (struct sp_run_plan_unconfined){0};
}
