/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec: exec_command, from the arguments to the answer.
 *
 * Each stage is a function that does what it can and returns true when the next stage can run at
 * once. false: the call waits, and sp_exec_step runs the same stage again after a change.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "engine/exec_priv.h"
#include "sandbox/resolve.h"

/*
 * ---- checks ----
 *
 * Each answers the call and returns false if it fails. Clients see which check fails first, so the
 * order of the checks must not change.
 */

#define REFUSE(x, ...) (sp_call_fault(&(x)->call, SP_FAULT_ARGUMENTS, __VA_ARGS__), false)

/* Whether the additional permissions were granted by an earlier request. */
static bool is_granted(const struct sp_exec *x)
{
    const struct sp_manager *m = x->call.m;

    return x->request.permissions == SP_PERMISSIONS_ADDITIONAL && x->request.additional != NULL &&
           sp_approvals_cover(m->approvals, sp_str_of(x->environment->id), x->request.turn_id,
                              x->request.additional, sp_environment_policy(x->environment));
}

/* Refuses with the name of the approval policy before `why`, and behind it if ends_with_name. */
static bool refuse_by_policy(struct sp_exec *x, const char *why, bool ends_with_name)
{
    auto_buf struct sp_buf name = {0};

    if (!sp_approval_add_name(&name, sp_approvals_policy(x->call.m->approvals)) ||
        !sp_buf_add(&name, "", 1))
        return sp_call_fail_memory(&x->call);
    return REFUSE(x, "approval policy is %s%s%s", name.data, why, ends_with_name ? name.data : "");
}

static bool check_permissions(struct sp_exec *x)
{
    const struct sp_manager *m = x->call.m;
    const struct sp_approval_policy *p = sp_approvals_policy(m->approvals);
    const bool can_escalate =
        p->kind != SP_APPROVAL_NEVER && (p->kind != SP_APPROVAL_GRANULAR || p->sandbox_approval);
    const bool is_asked = x->request.permissions == SP_PERMISSIONS_ADDITIONAL;
    struct sp_err e = {0};

    if (x->request.additional != NULL) /* a failure is reported below, in its turn */
        (void)sp_grant_normalise(&x->grant, NULL);
    if (x->request.permissions != SP_PERMISSIONS_DEFAULT && !can_escalate && !is_granted(x))
        return refuse_by_policy(x,
                                "; reject command — you cannot ask for escalated permissions if "
                                "the approval policy is ",
                                true);
    if (!m->options.has_additional_permissions && (is_asked || x->request.additional != NULL))
        return REFUSE(x, "additional permissions are disabled; enable "
                         "`features.exec_permission_approvals` before using "
                         "`with_additional_permissions`");
    if (!is_asked)
        return x->request.additional == NULL ||
               REFUSE(x, "`additional_permissions` requires `sandbox_permissions` set to "
                         "`with_additional_permissions`");
    if (p->kind != SP_APPROVAL_ON_REQUEST && !is_granted(x))
        return refuse_by_policy(x,
                                "; reject command — you cannot request additional permissions "
                                "unless the approval policy is OnRequest",
                                false);
    if (x->request.additional == NULL)
        return REFUSE(x, "missing `additional_permissions`; provide at least one of `network` or "
                         "`file_system` when using `with_additional_permissions`");
    if (sp_grant_normalise(&x->grant, &e) < 0)
        return REFUSE(x, "%s", e.msg);
    if (x->grant.extra.count == 0 && !x->grant.extra.has_network)
        return REFUSE(x, "`additional_permissions` must include at least one requested permission "
                         "in `network` or `file_system`");
    return true;
}

/* login as the call asks, by default as allowed. */
static int choose_login(bool has_login, bool login, bool is_allowed, bool *ret, struct sp_err *e)
{
    if (has_login && login && !is_allowed)
        return sp_fail(e, SP_E_INVALID, 0,
                       "login shell is disabled by config; omit `login` or set it to false.");
    *ret = has_login ? login : is_allowed;
    return 0;
}

static int find_local_shell(const struct sp_exec *x, struct sp_shell *ret, struct sp_err *e)
{
    const struct sp_manager *m = x->call.m;
    struct sp_shell_places places = {.account_shell = m->account_shell};

    for (char *const *v = m->environ.own; v != NULL && *v != NULL && places.path == NULL; v++)
        if (strncmp(*v, "PATH=", 5) == 0)
            places.path = *v + 5;
    return sp_shell_find(&places, x->request.shell, ret, e);
}

/* Whether the shell that would run is the one that was named, not one in its place. A path must be
 * the same file: a shell at a path of the caller's choice is not run. */
static bool has_shell(const struct sp_exec *x)
{
    const struct sp_str asked = x->request.shell;
    auto_free char *path = sp_str_dup(asked);
    struct sp_shell found = {0};
    struct stat named;
    struct stat is;

    if (path == NULL || find_local_shell(x, &found, NULL) < 0)
        return false;
    const bool ok =
        found.type == sp_shell_type_of(asked) &&
        (strchr(path, '/') == NULL || (stat(path, &named) == 0 && stat(found.path, &is) == 0 &&
                                       named.st_dev == is.st_dev && named.st_ino == is.st_ino));
    sp_shell_done(&found);
    return ok;
}

static bool check_facts(struct sp_exec *x)
{
    struct sp_err e = {0};

    if (x->unreachable.code != SP_E_NONE)
        return sp_call_fail_create(&x->call, &x->unreachable);
    if (x->facts.is_remote && x->request.shell.p != NULL && x->request.argc == 0) {
        if (x->facts.shell_type == SP_SHELL_UNKNOWN)
            return REFUSE(x, "environment `%s` does not report a shell", x->environment->id);
        if (sp_shell_type_of(x->request.shell) != x->facts.shell_type)
            return REFUSE(x, "environment `%s` only supports `%s`", x->environment->id,
                          x->facts.shell_name != NULL ? x->facts.shell_name
                                                      : sp_shell_type_name(x->facts.shell_type));
    }
    if (!x->facts.is_remote && x->request.needs_shell && x->request.shell.p != NULL &&
        x->request.argc == 0 && !has_shell(x))
        return REFUSE(x,
                      "`shell`: there is no `%.*s` here, expected the name or the path of bash, "
                      "zsh or sh",
                      (int)(x->request.shell.n > 80 ? 80 : x->request.shell.n), x->request.shell.p);
    if (choose_login(x->request.has_login, x->request.login,
                     !x->call.m->options.refuses_login_shell, &x->is_login, &e) < 0)
        return REFUSE(x, "%s", e.msg);
    return check_permissions(x);
}

/* ---- shell, argv and working directory ---- */

static int find_shell(struct sp_exec *x, struct sp_err *e)
{
    if (x->facts.is_remote) {
        const bool has_one = x->facts.shell_type != SP_SHELL_UNKNOWN && x->facts.shell_path != NULL;
        char *path = strdup(has_one ? x->facts.shell_path : "/bin/sh");

        if (path == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "find a shell");
        x->shell = (struct sp_shell){has_one ? x->facts.shell_type : SP_SHELL_SH, path};
        return 0;
    }
    return find_local_shell(x, &x->shell, e);
}

#define SHELL_ARGC_MAX 4

/* Sets the argv that runs the script, borrowed from both. SP_E_FAILED: a NUL byte in the script. */
static int call_shell(const struct sp_shell *s, bool is_login, struct sp_str script,
                      struct sp_str argv[SHELL_ARGC_MAX], uint32_t *ret_argc, struct sp_err *e)
{
    uint32_t n = 0;

    if (sp_str_has_nul(script))
        return sp_fail(e, SP_E_FAILED, 0, "nul byte found in provided data");
    argv[n++] = sp_str_of(s->path);
    if (s->type == SP_SHELL_POWERSHELL && !is_login)
        argv[n++] = SP_STR("-NoProfile");
    argv[n++] = s->type == SP_SHELL_CMD          ? SP_STR("/c")
                : s->type == SP_SHELL_POWERSHELL ? SP_STR("-Command")
                : is_login                       ? SP_STR("-lc")
                                                 : SP_STR("-c");
    argv[n++] = script;
    *ret_argc = n;
    return 0;
}

static bool resolve_argv(struct sp_exec *x)
{
    struct sp_str argv[SHELL_ARGC_MAX];
    struct sp_err e = {0};

    if (x->request.argc != 0) {
        x->argv = x->request.argv;
        x->argc = x->request.argc;
        return true;
    }
    if (x->request.cmd.p == NULL)
        return sp_call_fault(&x->call, SP_FAULT_CREATE,
                             "missing command line for unified exec request");
    if (find_shell(x, &e) < 0 ||
        call_shell(&x->shell, x->is_login, x->request.cmd, argv, &x->argc, &e) < 0)
        return sp_call_fail_create(&x->call, &e);
    return sp_arena_strs(&x->call.keep, argv, x->argc, &x->argv) || sp_call_fail_memory(&x->call);
}

/* A Windows path: a drive or a network share. */
static bool is_foreign_path(struct sp_str path)
{
    if (path.n >= 2 && path.p[0] == '\\' && path.p[1] == '\\')
        return true;
    return path.n >= 3 &&
           ((path.p[0] >= 'a' && path.p[0] <= 'z') || (path.p[0] >= 'A' && path.p[0] <= 'Z')) &&
           path.p[1] == ':' && (path.p[2] == '\\' || path.p[2] == '/');
}

/* workdir relative to cwd, which is absolute; to be freed. It need not exist. SP_E_INVALID: a
 * foreign path; SP_E_FAILED: a NUL byte. */
static int local_workdir(struct sp_str workdir, const char *cwd, char **ret, struct sp_err *e)
{
    if (sp_str_has_nul(workdir))
        return sp_fail(e, SP_E_FAILED, 0, "nul byte found in provided data");
    if (is_foreign_path(workdir))
        return sp_fail(e, SP_E_INVALID, 0, SP_STR_FMT " is not valid on linux",
                       SP_STR_ARG(workdir));
    auto_free char *path = workdir.n == 0 ? strdup(cwd) : sp_str_dup(workdir);
    char *found = path == NULL || path[0] == '/' ? TAKE_PTR(path) : sp_path_normalise(path, cwd);
    if (found == NULL)
        return sp_fail(e, SP_E_SYSTEM, errno, "resolve the working directory");
    *ret = found;
    return 0;
}

/* The remote host may be no Unix: an absolute path in another style is passed on unchanged. */
static char *remote_workdir(const struct sp_exec *x, struct sp_err *e)
{
    const struct sp_str dir = x->request.workdir;
    const char *cwd = x->environment_cwd;

    if (dir.n != 0 && (dir.p[0] == '/' || is_foreign_path(dir)))
        return sp_str_dup(dir);
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
        r = local_workdir(x->request.workdir, x->environment_cwd != NULL ? x->environment_cwd : "/",
                          &cwd, &e);
    if (r == -SP_E_INVALID)
        return sp_call_fault(&x->call, SP_FAULT_CREATE, "%s", e.msg);
    if (r < 0 || (cwd == NULL && e.code != SP_E_NONE))
        return sp_call_fail_create(&x->call, &e);
    if (cwd == NULL || !sp_arena_str(&x->call.keep, sp_str_of(cwd), &x->cwd))
        return sp_call_fail_memory(&x->call);
    return true;
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
    env->session_id = optional(m->options.conversation_id);
    if (x->request.call_id.n != 0)
        env->call_id = x->request.call_id;
    /* These depend on how the attempt is confined; a retry may have others. */
    if (x->plan.is_unconfined) {
        env->marks = (struct sp_env_vars){x->plan.unconfined.marks, x->plan.unconfined.mark_count};
    } else {
        env->permission_profile = optional(x->environment->policy_name);
        if (x->plan.has_policy) {
            env->is_confined = sp_run_plan_is_confined(&x->plan);
            env->network = env->is_confined ? sp_profile_managed(profile) : NULL;
            env->has_no_network = profile->kind != SP_PROFILE_DISABLED && !profile->has_network &&
                                  env->network == NULL;
        }
    }
    env->plain = sp_env_plain;
    /* Our own program applies patches; the caller's variables were not judged for it. */
    if (x->request.env.count == 0 || x->patch.is_one)
        return true;
    const uint32_t count = sp_env_plain.count + x->request.env.count;
    struct sp_env_var *all = sp_arena_new(&x->call.keep, count * sizeof *all);
    if (all == NULL)
        return false;
    memcpy(all, sp_env_plain.items, sp_env_plain.count * sizeof *all);
    memcpy(all + sp_env_plain.count, x->request.env.items, x->request.env.count * sizeof *all);
    env->plain = (struct sp_env_vars){all, count};
    return true;
}

/*
 * The caller's variables are judged with the command, as if it began with `env NAME=VALUE ...`:
 * PATH or LD_PRELOAD can change which program a known command is. So a rule for the bare command
 * does not match, the approver sees the variables, and an approval for the session covers exactly
 * these. A patch gets none of them.
 */

static bool add_env_to_request(struct sp_exec *x, struct sp_run_plan_request *request)
{
    const struct sp_env_vars vars = x->request.env;
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
    request->preface = (struct sp_words){words, vars.count + 1};
    return sp_arena_str(k, sp_buf_str(&key), &request->key_more);
}

/* ---- facts ---- */

static void on_facts(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
                     const struct sp_err *e)
{
    struct sp_exec *x = SP_CONTAINER(w, struct sp_exec, facts_wait);
    struct sp_arena *k = &x->call.keep;

    x->has_facts = true;
    if (facts != NULL) {
        x->facts = *facts;
        if (!sp_arena_text(k, facts->shell_name, &x->facts.shell_name) ||
            !sp_arena_text(k, facts->shell_path, &x->facts.shell_path) ||
            !sp_arena_text(k, facts->cwd, &x->facts.cwd))
            (void)sp_fail(&x->unreachable, SP_E_SYSTEM, ENOMEM, "begin a command");
    } else {
        x->unreachable = *e;
    }
    sp_call_changed(&x->call);
}

/* The stage SP_EXEC_CHECKING: resolves the environment and asks its backend for the facts. */
static bool check(struct sp_exec *x)
{
    const struct sp_manager *m = x->call.m;
    const char *misuse = sp_until_misuse(&x->call);
    struct sp_err e;

    if (m->call_count > SP_CALLS_MAX) {
        (void)sp_fail(&e, SP_E_LIMIT, 0, "too many calls are waiting");
        return sp_call_fail_create(&x->call, &e);
    }
    if (m->environment_count == 0)
        return REFUSE(x, "unified exec is unavailable in this session");
    struct sp_environment *environment = sp_manager_find_environment(m, x->request.environment_id);
    if (environment == NULL)
        return REFUSE(x, "unknown turn environment id `" SP_STR_FMT "`",
                      SP_STR_ARG(x->request.environment_id));
    x->environment = sp_environment_ref(environment);
    if (x->request.justification.p != NULL && !x->request.has_permissions)
        return REFUSE(x, "`justification` requires an explicit `sandbox_permissions`; use "
                         "`sandbox_permissions: \"require_escalated\"` for unsandboxed execution, "
                         "or omit `justification`.");
    if (misuse != NULL)
        return REFUSE(x, "%s", misuse);
    x->stage = SP_EXEC_FACTS;
    x->facts_wait.fn = on_facts;
    sp_backend_ask_facts(x->environment->backend, &x->facts_wait);
    return true;
}

static bool await_facts(struct sp_exec *x)
{
    if (x->has_facts)
        x->stage = SP_EXEC_PREPARING;
    return x->has_facts;
}

/* ---- approval ---- */

static void on_decided(struct sp_run_plan *p)
{
    sp_call_changed(&SP_CONTAINER(p, struct sp_exec, plan)->call);
}

static bool begin_plan(struct sp_exec *x)
{
    const struct sp_manager *m = x->call.m;
    const bool is_patch = x->patch.is_one;
    struct sp_env_request env;
    uint32_t count;
    struct sp_run_plan_request request = {
        .call_id = x->request.call_id,
        .turn_id = x->request.turn_id,
        .environment = sp_str_of(x->environment->id),
        .argv = {x->argv, x->argc},
        .command = x->request.argc == 0 ? x->request.cmd : (struct sp_str){0},
        .cwd = x->cwd,
        .is_tty = x->request.is_tty,
        /* The changes of a patch are known and judged, so more permissions than those already
         * granted are never requested for it. */
        .permissions = is_patch ? SP_PERMISSIONS_DEFAULT : x->request.permissions,
        .additional = is_patch ? NULL : x->request.additional,
        .justification = x->request.justification,
        .prefix = {x->request.prefix_rule, x->request.prefix_rule_count},
        .policy = sp_environment_policy(x->environment),
        .policy_name = x->environment->policy_name,
        .policy_cwd = x->environment_cwd,
        .shell = x->shell.path,
        .changes = is_patch ? &x->patch.changes : NULL,
        .has_no_approver = x->request.has_no_approver,
    };

    if (!add_env_to_request(x, &request))
        return sp_call_fail_memory(&x->call);
    /* PATH and LD_PRELOAD decide which program a word names; a remote host's are unknown. */
    if (!x->facts.is_remote && !is_patch) {
        if (!sp_exec_make_env(x, &env))
            return sp_call_fail_memory(&x->call);
        if (sp_env_make(&env, &x->environ, &count, NULL) >= 0) /* else the start reports it */
            request.environ = sp_buf_str(&x->environ);
    }
    sp_run_plan_begin(&x->plan, m->approvals, &request, on_decided);
    x->stage = SP_EXEC_ASKING;
    return true;
}

static int reserve_id(struct sp_exec *x, struct sp_err *e)
{
    struct sp_manager *m = x->call.m;

    return sp_ids_allocate(&m->ids, sp_loop_now(m->loop), &x->call.reserved_id, e);
}

/* The stage SP_EXEC_PREPARING. The id is reserved before approval, so that no approver is
 * asked about a call that cannot get one. */
static bool prepare(struct sp_exec *x)
{
    struct sp_err e = {0};

    if (!check_facts(x) || !resolve_argv(x) || !resolve_cwd(x))
        return false;
    if (reserve_id(x, &e) < 0)
        return sp_call_fail_create(&x->call, &e);
    return sp_exec_begin_patch(x) && (x->patch.is_one || begin_plan(x));
}

/* The patch was compared with its files: go on if it applies. */
static bool await_changes(struct sp_exec *x)
{
    struct sp_exec_patch *p = &x->patch;

    if (!p->is_over)
        return false;
    if (p->is_out_of_memory)
        return sp_call_fail_memory(&x->call);
    if (p->refusal.len != 0)
        return REFUSE(x, "apply_patch verification failed: %s", p->refusal.data);
    return begin_plan(x);
}

/* Ends an attempt: if its begin event was sent, its end event follows; otherwise no event ever is.
 */
static void end_attempt(struct sp_process *p)
{
    if (p->has_begun)
        sp_manager_remove(p);
    else
        p->is_discarded = true;
}

static void discard_process(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;

    if (p == NULL)
        return;
    x->call.process = NULL;
    x->call.shows_attempt = false; /* set again if the next attempt is denied something, too */
    p->initial = NULL;
    end_attempt(p);
    sp_process_changed(p);
}

static void tell_notice(const struct sp_exec *x, const char *text)
{
    const struct sp_exec_event e = {.type = SP_EVENT_NOTICE,
                                    .call_id = x->request.call_id,
                                    .turn_id = x->request.turn_id,
                                    .exit_code = -1,
                                    .message = sp_str_of(text)};

    sp_manager_event(x->call.m, &e);
}

/* The sandbox denied the attempt something (is_guess: concluded from its output alone). Asks for a
 * retry. false: the result of the attempt stands; true: x->plan decides what comes next. */
static bool ask_again(struct sp_exec *x, bool is_guess, int exit_code)
{
    char text[128];

    if (!sp_run_plan_can_retry(&x->plan, is_guess))
        return false;
    (void)snprintf(text, sizeof text, SP_RUN_PLAN_FAILED_NOTICE, exit_code);
    tell_notice(x, text);
    return sp_run_plan_retry(&x->plan, is_guess);
}

static void reject(struct sp_exec *x)
{
    struct sp_manager *m = x->call.m;
    const bool is_abort = x->plan.is_abort;
    auto_buf struct sp_buf reason = x->plan.reason;

    x->plan.reason = (struct sp_buf){0};
    if (x->call.process != NULL)
        end_attempt(x->call.process); /* the answer quotes its output */
    sp_call_fault(&x->call, SP_FAULT_REJECTED, "Failed to create unified exec process: %.*s",
                  (int)reason.len, reason.len == 0 ? "" : reason.data);
    if (is_abort)
        sp_manager_interrupt(m);
}

/* The stage SP_EXEC_ASKING, before the first attempt and before a retry. */
static bool await_decision(struct sp_exec *x)
{
    struct sp_err e = {0};

    switch (x->plan.state) {
    case SP_RUN_PLAN_ASKING:
        return false;
    case SP_RUN_PLAN_GO:
        discard_process(x);
        if (x->plan.is_retry)
            tell_notice(x, SP_RUN_PLAN_RETRY_NOTICE);
        /* The first attempt keeps its id once its begin event was sent: the retry needs another. */
        if (x->call.reserved_id == 0 && reserve_id(x, &e) < 0)
            return sp_call_fail_create(&x->call, &e);
        x->stage = x->patch.is_one ? SP_EXEC_PATCHING : SP_EXEC_SNAPSHOT;
        return !x->patch.is_one || sp_exec_apply_patch(x);
    case SP_RUN_PLAN_FAILED:
        discard_process(x);
        sp_call_fail_create(&x->call, &x->plan.error);
        return false;
    case SP_RUN_PLAN_REFUSED:
    case SP_RUN_PLAN_NEW:
        break;
    }
    reject(x);
    return false;
}

static bool await_patch(struct sp_exec *x)
{
    struct sp_exec_patch *p = &x->patch;

    if (p->is_out_of_memory)
        return sp_call_fail_memory(&x->call);
    if (!p->is_over)
        return false;
    if (p->was_denied && ask_again(x, p->is_guess, 1)) {
        x->stage = SP_EXEC_ASKING;
        return true;
    }
    sp_call_answer_patch(&x->call, sp_buf_str(&p->output), p->is_applied ? 0 : 1,
                         p->is_applied ? &p->changes : NULL);
    return false;
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

    if (x->plan.is_unconfined && x->plan.unconfined.drops_login)
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

/* Set by us for each attempt: the snapshot must not override them. */
static const struct sp_str runtime[] = {
    SP_STR("CODEX_THREAD_ID"),
    SP_STR("CODEX_SESSION_ID"),
    SP_STR("CODEX_TOOL_CALL_ID"),
    SP_STR("CODEX_PERMISSION_PROFILE"),
    SP_STR("CODEX_SANDBOX_NETWORK_DISABLED"),
    SP_STR("SALLYPORT_SANDBOX"),
};

#define RUNTIME_COUNT (sizeof runtime / sizeof runtime[0])

#define PROXY_NAMES_MAX 64

struct name_list {
    struct sp_str *items;
    uint32_t count, max;
};

static bool add_name(void *user, const char *name, const char *value)
{
    struct name_list *l = user;

    (void)value;
    if (l->count < l->max)
        l->items[l->count++] = sp_str_of(name);
    return true;
}

/* Appends the script that runs instead of the command. false: run the command itself. */
static bool add_snapshot_script(const struct sp_exec *x, const struct sp_env_request *env,
                                struct sp_buf *out)
{
    /* marks protects a run without its sandbox, so the profile must not replace them either. */
    const struct sp_env_vars lists[] = {env->set, env->plain, env->marks};
    auto_buf struct sp_buf made = {0};
    uint32_t count = 0;
    auto_free struct sp_str *names = malloc(
        (RUNTIME_COUNT + PROXY_NAMES_MAX + env->set.count + env->plain.count + env->marks.count) *
        sizeof *names);

    if (names == NULL || sp_env_make(env, &made, &count, NULL) < 0)
        return false;
    memcpy(names, runtime, sizeof runtime);
    count = RUNTIME_COUNT;
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++)
        for (uint32_t i = 0; i < lists[l].count; i++)
            names[count++] = lists[l].items[i].name;
    struct name_list proxy = {names + count, 0, PROXY_NAMES_MAX};
    if (env->network != NULL)
        (void)sp_network_policy_variables(env->network, add_name, &proxy);
    count += proxy.count;
    return sp_snapshot_script(out, &x->shell, x->snapshot, x->request.cmd, sp_buf_str(&made), names,
                              count);
}

/* ---- starting ---- */

static void on_refused_host(void *user, const struct sp_network_outcome *o)
{
    struct sp_process *p = user;
    struct sp_manager *m = p->m;
    auto_free char *text = sp_str_dup(o->text);

    (void)sp_manager_fail(m, p->id, text);
    if (o->is_interrupted)
        sp_manager_interrupt(m);
}

/* The approvals judge the hosts of the command; a server asks about those on no list. */
static int begin_network(const struct sp_exec *x, struct sp_process *p, struct sp_start *start,
                         struct sp_err *e)
{
    const struct sp_network_job_options o = {
        .approvals = p->m->approvals,
        .call_id = p->call_id,
        .turn_id = p->turn_id,
        .environment = sp_str_of(x->environment->id),
        .cwd = p->cwd,
        .argv = {p->argv, p->argc},
        .policy = start->policy,
        .policy_name = x->environment->policy_name,
        .has_no_approver = x->request.has_no_approver,
        .refused = on_refused_host,
        .user = p,
    };

    return sp_network_job_new(&o, start, &p->network, e);
}

/* Starts the job of the attempt. Everything that the process tells about itself is copied into it.
 */
static int start_job(struct sp_exec *x, struct sp_process *p, struct sp_err *e)
{
    struct sp_arena *k = &p->keep;
    auto_buf struct sp_buf script = {0};
    struct sp_env_request env;
    struct sp_str rewritten[3];
    char name[16];

    p->environment = sp_environment_ref(x->environment);
    p->is_remote = x->facts.is_remote;
    p->is_tty = x->request.is_tty;
    p->has_stdin = x->request.wants_stdin;
    p->timeout_ms = x->request.timeout_ms;
    p->argc = x->argc;
    if (!sp_exec_make_env(x, &env) || !sp_arena_str(k, x->request.call_id, &p->call_id) ||
        !sp_arena_str(k, x->request.turn_id, &p->turn_id) ||
        !sp_arena_str(k, x->request.cmd.p != NULL ? x->request.cmd : x->argv[0], &p->command) ||
        !sp_arena_str(k, x->cwd, &p->cwd) || !sp_arena_strs(k, x->argv, x->argc, &p->argv))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a command");
    (void)snprintf(name, sizeof name, "%d", p->id);
    struct sp_start start = {
        .label = sp_str_of(name),
        .is_tty = x->request.is_tty,
        .wants_stdin = x->request.wants_stdin,
        .rows = x->request.rows,
        .cols = x->request.cols,
        .limits = x->request.limits,
        .cwd = x->cwd,
        .argv = x->argv,
        .argc = x->argc,
        .environ = &env,
    };
    sp_job_apply_plan(&start, &x->plan);
    /* Asked again: a retry without the sandbox must not source the first attempt's snapshot. */
    if (x->snapshot != NULL && wants_snapshot(x) && add_snapshot_script(x, &env, &script)) {
        rewritten[0] = x->argv[0];
        rewritten[1] = SP_STR("-c");
        rewritten[2] = sp_buf_str(&script);
        start.argv = rewritten;
    }
    const int r = begin_network(x, p, &start, e);
    return r < 0 ? r
                 : sp_job_start(x->environment->backend, &p->job, &sp_process_job_ops, &start, e);
}

static bool await_snapshot(struct sp_exec *x)
{
    struct sp_call *c = &x->call;
    struct sp_env_request env;
    struct sp_err e = {0};

    if (wants_snapshot(x) && !x->is_snapshot_told) {
        if (x->is_snapshot_asked)
            return false;
        x->is_snapshot_asked = true;
        x->is_snapshot_told = !sp_exec_make_env(x, &env);
        if (!x->is_snapshot_told) {
            x->snapshot_wait.fn = on_snapshot;
            sp_snapshots_get(c->m->options.snapshots, &x->shell, x->cwd, &env, &x->snapshot_wait);
            return false;
        }
    }
    struct sp_process *p = sp_process_new(c->m, c->reserved_id, c);
    if (p == NULL)
        return sp_call_fail_memory(&x->call);
    if (start_job(x, p, &e) < 0) {
        sp_process_free(p);
        return sp_call_fail_create(c, &e);
    }
    c->process = p;
    x->stage = SP_EXEC_STARTING;
    return true;
}

static bool await_start(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;

    if (p->refusal.code != SP_E_NONE) {
        const struct sp_err why = p->refusal;

        discard_process(x);
        return sp_call_fail_create(&x->call, &why);
    }
    if (p->life == SP_PROCESS_STARTING)
        return false;
    sp_call_collect(&x->call, p->start_ns, x->yield_ms);
    sp_until_begin(&x->call);
    x->early_ms = p->start_ms + SP_EARLY_MS;
    if (x->early_ms > x->call.deadline_ms)
        x->early_ms = x->call.deadline_ms;
    x->stage = SP_EXEC_EARLY;
    return true;
}

static void mark_started(struct sp_exec *x)
{
    struct sp_call *c = &x->call;

    x->stage = SP_EXEC_COLLECTING;
    c->is_due = false;
    sp_process_begin(c->process, &c->reserved_id);
}

/* ---- denied at once ---- */

/* SIGSYS is the only signal that a sandbox sends, so other signals are no denial. */
static bool can_be_denied(const struct sp_process *p)
{
    return p->is_code_known && p->exit.code > 0 && !sp_process_has_failed(p) &&
           p->sandbox != SP_JOB_SANDBOX_NONE && (p->exit.signal == 0 || p->exit.signal == SIGSYS);
}

static bool watch_early(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;

    if (sp_process_has_exited(p) && can_be_denied(p)) {
        x->stage = SP_EXEC_STRAGGLING;
        return true;
    }
    if (sp_process_has_exited(p) || x->call.is_due || p->held.len >= SP_HELD_MAX ||
        sp_loop_now(x->call.m->loop) >= x->early_ms) {
        mark_started(x);
        return true;
    }
    sp_call_wake_at(&x->call, x->early_ms);
    return false;
}

enum denial { NOT_DENIED, DENIED_BY_GUESS, DENIED };

/* Only what the kernel reported is certain: the executor's own verdict counts known messages in the
 * output, too. */
static enum denial judge_denial(const struct sp_process *p)
{
    const bool has_evidence = p->exit.denial != NULL && p->exit.denial->has_evidence;
    auto_buf struct sp_buf text = {0};

    if (sp_process_has_failed(p))
        return NOT_DENIED;
    (void)sp_headtail_add_raw(&p->pending, &text); /* out of memory: judge without the output */
    if (!sp_denied_judge(p->sandbox, &p->exit, SP_STR(""), sp_buf_str(&text)))
        return NOT_DENIED;
    return has_evidence ? DENIED : DENIED_BY_GUESS;
}

/* Whether the sandbox denied the attempt something and the plan asks for a retry. A command that
 * read typed input is not repeated: the input is gone. */
static bool ask_for_retry(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;
    const enum denial denial =
        can_be_denied(p) && !p->was_typed_into ? judge_denial(p) : NOT_DENIED;

    if (denial == NOT_DENIED || !ask_again(x, denial == DENIED_BY_GUESS, p->exit.code))
        return false;
    x->call.is_collecting = false; /* the wait restarts with the retry */
    x->call.shows_attempt = true;
    x->stage = SP_EXEC_ASKING;
    return true;
}

static bool await_stragglers(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;
    const uint64_t due_ms = p->exited_ns / 1000000 + 1 + SP_STRAGGLER_MS;

    if (p->life != SP_PROCESS_CLOSED && !x->call.is_due && sp_loop_now(x->call.m->loop) < due_ms) {
        sp_call_wake_at(&x->call, due_ms);
        return false;
    }
    if (ask_for_retry(x))
        return true;
    if (judge_denial(p) != NOT_DENIED)
        p->is_hidden = x->call.m->options.hides_denied_start;
    mark_started(x);
    return true;
}

/* ---- answering ---- */

/* The stage SP_EXEC_COLLECTING: the process has its entry, and the call waits for its yield time.
 */
static bool collect(struct sp_exec *x)
{
    struct sp_call *c = &x->call;
    struct sp_process *p = c->process;

    if (!sp_call_is_done(c))
        return false;
    if (sp_process_has_failed(p)) {
        sp_call_fail_process(c);
        return false;
    }
    if (sp_process_has_exited(p) && ask_for_retry(x))
        return true;
    /* A process without an entry is being terminated: report it as exited, since its id is not
     * valid any more. */
    const bool is_alive = !sp_process_has_exited(p) && p->is_stored;
    sp_call_answer(c, is_alive ? SP_ANSWER_RUNNING : SP_ANSWER_EXITED);
    return false;
}

/* ---- the call ---- */

static bool (*const stages[SP_EXEC_STAGE_MAX])(struct sp_exec *x) = {
    [SP_EXEC_CHECKING] = check,          [SP_EXEC_FACTS] = await_facts,
    [SP_EXEC_PREPARING] = prepare,       [SP_EXEC_ASKING] = await_decision,
    [SP_EXEC_SNAPSHOT] = await_snapshot, [SP_EXEC_STARTING] = await_start,
    [SP_EXEC_EARLY] = watch_early,       [SP_EXEC_STRAGGLING] = await_stragglers,
    [SP_EXEC_COLLECTING] = collect,      [SP_EXEC_PATCHING] = await_patch,
    [SP_EXEC_VERIFYING] = await_changes,
};

void sp_exec_step(struct sp_call *c)
{
    struct sp_exec *x = SP_CONTAINER(c, struct sp_exec, call);

    if (c->is_cancelled && !c->is_answered) {
        if (x->stage == SP_EXEC_ASKING && c->process != NULL)
            end_attempt(c->process); /* the answer quotes its output */
        else if (x->stage != SP_EXEC_COLLECTING)
            discard_process(x); /* a stored process lives on */
        sp_call_abort(c);
    }
    while (!c->is_answered && stages[x->stage](x))
        ;
}

static void release_exec(struct sp_call *c)
{
    struct sp_exec *x = SP_CONTAINER(c, struct sp_exec, call);

    sp_backend_forget_facts(&x->facts_wait);
    sp_list_remove(&x->snapshot_wait.link);
    sp_run_plan_done(&x->plan);
    sp_buf_done(&x->environ);
    sp_exec_patch_done(&x->patch);
    sp_shell_done(&x->shell);
    sp_environment_unref(x->environment);
    sp_grant_done(&x->grant);
}

int sp_manager_exec(struct sp_manager *m, const struct sp_exec_request *request, sp_reply_fn *fn,
                    void *user, uint64_t *ret_call, struct sp_err *e)
{
    struct sp_call *call;
    const int r = sp_call_new(m, sizeof(struct sp_exec), &call, e);

    if (r < 0)
        return r;
    struct sp_exec *x = SP_CONTAINER(call, struct sp_exec, call);
    struct sp_arena *k = &call->keep;
    bool is_copied = true;

    call->release = release_exec;
    x->request = *request;
    if (request->additional != NULL) {
        is_copied = sp_profile_copy(&request->additional->extra, &x->grant.extra);
        x->request.additional = &x->grant;
    }
    is_copied = is_copied && sp_arena_str(k, request->call_id, &x->request.call_id) &&
                sp_arena_str(k, request->turn_id, &x->request.turn_id) &&
                sp_arena_str(k, request->cmd, &x->request.cmd) &&
                sp_arena_strs(k, request->argv, request->argc, &x->request.argv) &&
                sp_arena_str(k, request->workdir, &x->request.workdir) &&
                sp_arena_str(k, request->shell, &x->request.shell) &&
                sp_arena_str(k, request->environment_id, &x->request.environment_id) &&
                sp_arena_str(k, request->justification, &x->request.justification) &&
                sp_arena_strs(k, request->prefix_rule, request->prefix_rule_count,
                              &x->request.prefix_rule) &&
                sp_env_copy_vars(k, request->env, &x->request.env) &&
                sp_until_copy(call, request->until, request->until_count);
    x->request.until = x->call.until == NULL ? NULL : x->call.until->items;
    x->request.until_count = x->call.until == NULL ? 0 : x->call.until->count;
    call->is_exec = true;
    call->step = sp_exec_step;
    call->has_max_tokens = request->has_max_tokens;
    call->max_tokens = request->max_tokens;
    call->omits_text = request->omits_text;
    x->yield_ms =
        sp_yield_ms(request->is_compat ? SP_YIELD_COMPAT : SP_YIELD_EXEC, request->yield, 0);
    if (request->waits_for_end)
        x->yield_ms = SP_YIELD_FOREVER;
    return sp_call_begin(call, is_copied, fn, user, ret_call, e);
}
