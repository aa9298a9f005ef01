/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_approvals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/rules/rules_watch.h"
#include "base/auto.h"
#include "sandbox/resolve.h"

#define SYSTEM_DIR "/etc/sallyport"

/* The key is not set: audit.jsonl in config.home, if there is a home. "": no log. */
int sp_config_audit_log(const struct sp_config *c, char **ret, struct sp_err *e)
{
    *ret = NULL;
    if (c->audit_log != NULL ? c->audit_log[0] == 0 : c->home == NULL)
        return 0;
    if (c->audit_log != NULL)
        *ret = strdup(c->audit_log);
    else if (asprintf(ret, "%s/audit.jsonl", c->home) < 0)
        *ret = NULL;
    return *ret != NULL ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "name the audit log");
}

/* A longer path is deeper: all of them contain the same directory. */
static int by_length(const void *a, const void *b)
{
    const size_t n = strlen(*(const char *const *)a);
    const size_t m = strlen(*(const char *const *)b);

    return (n > m) - (n < m);
}

/* The trusted projects that contain cwd, the outermost first. The caller frees the list. */
static int find_projects(const struct sp_config *c, const char *cwd, const char ***ret,
                         struct sp_err *e)
{
    char *const *trusted = c->trusted_projects;
    size_t n = 0;

    while (trusted != NULL && trusted[n] != NULL)
        n++;
    const char **projects = calloc(n + 1, sizeof *projects);
    if (projects == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "load rules");
    *ret = projects;
    size_t found = 0;
    for (size_t i = 0; cwd != NULL && i < n; i++)
        if (trusted[i][0] == '/' && sp_path_is_in(cwd, trusted[i]))
            projects[found++] = trusted[i];
    qsort(projects, found, sizeof *projects, by_length);
    return 0;
}

static void ignore_warning(void *user, const char *text)
{
    (void)user;
    (void)text;
}

/* Once, or with a loop again and again. */
static int load_rules(const struct sp_config *c, const struct sp_config_approvals_options *ask,
                      struct sp_config_approvals *ret, struct sp_err *e)
{
    auto_free const char **projects = NULL;
    int r = find_projects(c, ask->cwd, &projects, e);
    const struct sp_rules_places places = {
        .system_dir = ask->system_dir != NULL ? ask->system_dir : SYSTEM_DIR,
        .user_dir = c->home,
        .projects = projects,
        .ignores_user_and_project = c->ignore_user_and_project_rules,
        .files = ask->files,
    };
    const struct sp_rules_watch_options watch = {.loop = ask->loop,
                                                 .places = &places,
                                                 .changed = ask->changed,
                                                 .warn = ask->warn,
                                                 .user = ask->user};

    if (r == 0)
        r = ask->loop != NULL
                ? sp_rules_watch_new(&watch, &ret->watch, &ret->options.rules,
                                     &ret->options.fingerprint, e)
                : sp_rules_load(&places, NULL, ask->warn != NULL ? ask->warn : ignore_warning,
                                ask->user, &ret->options.rules, e);
    if (r < 0)
        return r;
    if (ask->loop != NULL) {
        (void)sp_rules_ref(ret->options.rules);
        return 0;
    }
    if (!sp_rules_add_fingerprint(&ret->fingerprint, ret->options.rules))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "load rules");
    ret->options.fingerprint = sp_buf_str(&ret->fingerprint);
    return 0;
}

int sp_config_approvals(const struct sp_config *c, const struct sp_config_approvals_options *ask,
                        struct sp_config_approvals *ret, struct sp_err *e)
{
    struct sp_approvals_options *o = &ret->options;
    const char *policy = ask->policy != NULL ? ask->policy : c->approval_policy;
    int r = 0;

    o->policy = (struct sp_approval_policy){.kind = SP_APPROVAL_ON_REQUEST};
    if (policy != NULL)
        r = sp_approval_read(sp_str_of(policy), &o->policy, e);
    if (c->known_safe != NULL) /* the configuration has checked the word */
        o->known_safe = strcmp(c->known_safe, "off") == 0        ? SP_KNOWN_SAFE_OFF
                        : strcmp(c->known_safe, "list+git") == 0 ? SP_KNOWN_SAFE_LIST_GIT
                                                                 : SP_KNOWN_SAFE_LIST;
    if (r == 0)
        r = sp_config_audit_log(c, &ret->audit_log, e);
    o->audit_log = ret->audit_log;
    o->audits_receipts = c->audit_receipts;
    /* Without a log that was configured nothing may run; the default one may fail. */
    o->must_audit = c->audit_log != NULL && ret->audit_log != NULL;
    if (r == 0)
        r = load_rules(c, ask, ret, e);
    o->retry_reuses_approval = c->retry_reuses_approval;
    o->ignores_heuristic = !c->retry_on_heuristic;
    o->timeout_ms = c->approval_timeout_s * 1000;
    o->user_dir = c->home;
    o->ignores_user_dir = c->ignore_user_and_project_rules;
    o->strict_review = c->strict_review;
    o->needs_hooks =
        (c->permission_hooks != NULL && c->permission_hooks[0] != NULL) || c->reviewer != NULL;
    return r;
}

void sp_config_approvals_done(struct sp_config_approvals *a)
{
    sp_rules_watch_free(a->watch);
    sp_rules_unref(a->options.rules);
    sp_buf_done(&a->fingerprint);
    free(a->audit_log);
    *a = (struct sp_config_approvals){0};
}

void sp_config_manager(const struct sp_config *c, struct sp_manager_options *ret)
{
    ret->poll_max_ms = c->poll_max_ms;
    ret->output_allowance =
        (struct sp_allowance){.unit = SP_ALLOWANCE_TOKENS, .limit = c->tool_output_token_limit};
    ret->notify_at = c->notify_at;
    ret->hides_denied_start = !c->report_denied_start;
    ret->exited_ttl_ms = c->exited_ttl_s * 1000;
    ret->idle_ttl_ms = c->idle_ttl_s * 1000;
    ret->refuses_login_shell = !c->allow_login_shell;
    ret->has_no_timeout = c->has_write_stdin_no_timeout;
    ret->has_additional_permissions = c->has_exec_permission_approvals;
    ret->keeps_line_endings = c->preserve_line_endings;
}
