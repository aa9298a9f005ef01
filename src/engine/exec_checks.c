/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_checks: what exec_command demands before anything runs. Clients see which check fails first,
 * so the order of the checks must not change.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "engine/exec_priv.h"
#include "sandbox/resolve.h"

#define REFUSE(x, ...) (sp_call_fault(&(x)->call, SP_FAULT_ARGUMENTS, __VA_ARGS__), false)

static bool fail_create(struct sp_exec *x, const struct sp_err *why)
{
    sp_call_fail_create(&x->call, why, 0);
    return false;
}

/* ---- before the backend is asked for its facts ---- */

bool sp_exec_check_ask(struct sp_exec *x)
{
    const struct sp_manager *m = x->call.m;

    if (m->environment_count == 0)
        return REFUSE(x, "unified exec is unavailable in this session");
    struct sp_environment *environment = sp_manager_find_environment(m, x->ask.environment_id);
    if (environment == NULL)
        return REFUSE(x, "unknown turn environment id `" SP_STR_FMT "`",
                      SP_STR_ARG(x->ask.environment_id));
    x->environment = sp_environment_ref(environment);
    if (x->ask.justification.p != NULL && !x->ask.has_permissions)
        return REFUSE(x, "`justification` requires an explicit `sandbox_permissions`; use "
                         "`sandbox_permissions: \"require_escalated\"` for unsandboxed execution, "
                         "or omit `justification`.");
    return true;
}

/* ---- with the facts ---- */

/* Whether the additional permissions were granted by an earlier request. */
static bool is_granted(const struct sp_exec *x)
{
    const struct sp_manager *m = x->call.m;

    return x->ask.permissions == SP_PERMISSIONS_ADDITIONAL && x->ask.additional != NULL &&
           sp_run_plan_is_granted(m->approvals, sp_str_of(x->environment->id), x->ask.turn_id,
                                  x->ask.additional, sp_environment_policy(x->environment));
}

/* Refuses with the name of the approval policy between `before` and `after`. */
static bool refuse_by_policy(struct sp_exec *x, const char *before, const char *after,
                             bool ends_with_name)
{
    auto_buf struct sp_buf name = {0};

    if (!sp_approval_add_name(&name, sp_approvals_policy(x->call.m->approvals)) ||
        !sp_buf_add(&name, "", 1))
        return sp_exec_refuse_without_memory(x);
    return REFUSE(x, "%s%s%s%s", before, name.data, after, ends_with_name ? name.data : "");
}

static bool check_additional(struct sp_exec *x)
{
    const struct sp_manager *m = x->call.m;
    const bool is_asked = x->ask.permissions == SP_PERMISSIONS_ADDITIONAL;
    struct sp_err e = {0};

    if (!m->options.has_additional_permissions && (is_asked || x->ask.additional != NULL))
        return REFUSE(x, "additional permissions are disabled; enable "
                         "`features.exec_permission_approvals` before using "
                         "`with_additional_permissions`");
    if (!is_asked)
        return x->ask.additional == NULL ||
               REFUSE(x, "`additional_permissions` requires `sandbox_permissions` set to "
                         "`with_additional_permissions`");
    if (sp_approvals_policy(m->approvals)->kind != SP_APPROVAL_ON_REQUEST && !is_granted(x))
        return refuse_by_policy(x, "approval policy is ",
                                "; reject command — you cannot request additional permissions "
                                "unless the approval policy is OnRequest",
                                false);
    if (x->ask.additional == NULL)
        return REFUSE(x, "missing `additional_permissions`; provide at least one of `network` or "
                         "`file_system` when using `with_additional_permissions`");
    if (sp_grant_normalise(&x->grant, &e) < 0)
        return REFUSE(x, "%s", e.msg);
    if (x->grant.extra.count == 0 && !x->grant.extra.has_network)
        return REFUSE(x, "`additional_permissions` must include at least one requested permission "
                         "in `network` or `file_system`");
    return true;
}

static bool check_permissions(struct sp_exec *x)
{
    const struct sp_approval_policy *p = sp_approvals_policy(x->call.m->approvals);
    const bool can_escalate =
        p->kind != SP_APPROVAL_NEVER && (p->kind != SP_APPROVAL_GRANULAR || p->sandbox_approval);

    if (x->ask.additional != NULL) /* check_additional reports a failure, in its turn */
        (void)sp_grant_normalise(&x->grant, NULL);
    if (x->ask.permissions != SP_PERMISSIONS_DEFAULT && !can_escalate && !is_granted(x))
        return refuse_by_policy(x, "approval policy is ",
                                "; reject command — you cannot ask for escalated permissions if "
                                "the approval policy is ",
                                true);
    return check_additional(x);
}

bool sp_exec_check_facts(struct sp_exec *x)
{
    const bool allows_login = !x->call.m->options.refuses_login_shell;
    struct sp_err e = {0};

    if (x->unreachable.code != SP_E_NONE)
        return fail_create(x, &x->unreachable);
    if (x->facts.is_remote && x->ask.shell.p != NULL && x->ask.argc == 0) {
        if (x->facts.shell_type == SP_SHELL_UNKNOWN)
            return REFUSE(x, "environment `%s` does not report a shell", x->environment->id);
        if (sp_shell_type_of(x->ask.shell) != x->facts.shell_type)
            return REFUSE(x, "environment `%s` only supports `%s`", x->environment->id,
                          x->facts.shell_name != NULL ? x->facts.shell_name
                                                      : sp_shell_type_name(x->facts.shell_type));
    }
    if (sp_shell_login(x->ask.has_login, x->ask.login, allows_login, &x->is_login, &e) < 0)
        return REFUSE(x, "%s", e.msg);
    return check_permissions(x);
}

/* ---- shell, argv and working directory ---- */

static int find_shell(struct sp_exec *x, struct sp_err *e)
{
    const struct sp_manager *m = x->call.m;
    struct sp_shell_places places = {.account_shell = m->account_shell};

    if (x->facts.is_remote) {
        const bool has_one = x->facts.shell_type != SP_SHELL_UNKNOWN && x->facts.shell_path != NULL;
        char *path = strdup(has_one ? x->facts.shell_path : "/bin/sh");

        if (path == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "find a shell");
        x->shell = (struct sp_shell){has_one ? x->facts.shell_type : SP_SHELL_SH, path};
        return 0;
    }
    for (char *const *v = m->environ.own; v != NULL && *v != NULL && places.path == NULL; v++)
        if (strncmp(*v, "PATH=", 5) == 0)
            places.path = *v + 5;
    return x->ask.shell.p != NULL ? sp_shell_of_name(&places, x->ask.shell, &x->shell, e)
                                  : sp_shell_of_user(&places, &x->shell, e);
}

static bool resolve_argv(struct sp_exec *x)
{
    struct sp_shell_argv argv;
    struct sp_err e = {0};

    if (x->ask.argc != 0) {
        x->argv = x->ask.argv;
        x->argc = x->ask.argc;
        return true;
    }
    if (x->ask.cmd.p == NULL) {
        sp_call_fault(&x->call, SP_FAULT_CREATE, "missing command line for unified exec request");
        return false;
    }
    if (find_shell(x, &e) < 0 || sp_shell_argv(&x->shell, x->is_login, x->ask.cmd, &argv, &e) < 0)
        return fail_create(x, &e);
    if (!sp_keep_strs(&x->call.keep, argv.items, argv.count, &x->argv))
        return sp_exec_refuse_without_memory(x);
    x->argc = argv.count;
    return true;
}

/* The remote host may be no Unix: an absolute path in another style is passed on unchanged. */
static char *remote_workdir(const struct sp_exec *x, struct sp_err *e)
{
    const struct sp_str dir = x->ask.workdir;
    const char *cwd = x->environment_cwd;

    if (dir.n != 0 && (dir.p[0] == '/' || sp_shell_is_foreign_path(dir)))
        return strndup(dir.p, dir.n);
    if (cwd == NULL) {
        (void)sp_fail(e, SP_E_FAILED, 0,
                      "environment `%s` does not tell its working directory; give an absolute "
                      "`workdir`",
                      x->environment->id);
        return NULL;
    }
    return dir.n == 0 ? strdup(cwd) : sp_path_normalise(dir.p, cwd);
}

static bool resolve_cwd(struct sp_exec *x)
{
    auto_free char *cwd = NULL;
    struct sp_err e = {0};
    int r = 0;

    x->environment_cwd = x->environment->cwd != NULL ? x->environment->cwd : x->facts.cwd;
    if (x->facts.is_remote)
        cwd = remote_workdir(x, &e);
    else
        r = sp_shell_workdir(x->ask.workdir, x->environment_cwd != NULL ? x->environment_cwd : "/",
                             &cwd, &e);
    if (r == -SP_E_INVALID) {
        sp_call_fault(&x->call, SP_FAULT_CREATE, "%s", e.msg);
        return false;
    }
    if (r < 0 || (cwd == NULL && e.code != SP_E_NONE))
        return fail_create(x, &e);
    if (cwd == NULL || !sp_keep_str(&x->call.keep, sp_str_of(cwd), &x->cwd))
        return sp_exec_refuse_without_memory(x);
    return true;
}

bool sp_exec_resolve(struct sp_exec *x)
{
    return resolve_argv(x) && resolve_cwd(x);
}
