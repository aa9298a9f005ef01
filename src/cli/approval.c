/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/approval.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "cli/cli.h"

/* ---- rules ---- */

/* A kept rule outlives the command, so its file is named. */
static void say_kept(void *user, const char *path)
{
    const char *home = getenv("HOME");
    const size_t n = home == NULL ? 0 : strlen(home);
    const bool is_below = n > 1 && strncmp(path, home, n) == 0 && path[n] == '/';
    char text[PATH_MAX + 32];

    (void)user;
    (void)snprintf(text, sizeof text, "the rule is kept in %s%s", is_below ? "~" : "",
                   is_below ? path + n : path);
    sp_cli_warn(NULL, text);
}

/* ---- approvers ---- */

/* Whether we have a controlling terminal. */
static bool has_terminal(void)
{
    auto_close int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

    return fd >= 0;
}

static int open_approvers(const struct sp_cli_approval_options *ask, struct sp_cli_approval *a,
                          struct sp_err *e)
{
    static const char *const terminal[] = {"terminal", NULL};
    char *const *configured = ask->config->approvers;
    /* `client` in the configuration is for servers; alone it is no approver of another command. */
    const bool is_client_alone = configured != NULL && configured[0] != NULL &&
                                 configured[1] == NULL && strcmp(configured[0], "client") == 0;
    struct sp_approvers_options who = ask->who;

    who.loop = ask->loop;
    who.timeout_ms = a->found.options.timeout_ms;
    who.words = ask->flags->approvers.items;
    if (who.words == NULL && (who.has_client || !is_client_alone)) {
        who.words = (const char *const *)configured;
        who.is_configured = true;
    }
    if (who.words == NULL && ask->asks_terminal && has_terminal())
        who.words = terminal;
    if (sp_approvers_open(&who, &a->approvers, e) < 0)
        return sp_wrap(e, who.is_configured ? "`approver` of the configuration" : "--approver");
    a->found.options.timeout_ms = sp_approvers_timeout_ms(a->approvers);
    return 0;
}

int sp_cli_approval_open(const struct sp_cli_approval_options *ask, struct sp_cli_approval *ret,
                         struct sp_err *e)
{
    struct sp_approvals_options *o = &ret->found.options;
    void (*const warn)(void *user, const char *text) = ask->warn != NULL ? ask->warn : sp_cli_warn;
    const struct sp_config_approvals_options rules = {.policy = ask->flags->policy,
                                                      .cwd = ask->cwd,
                                                      .files = ask->flags->rules.items,
                                                      .warn = warn,
                                                      .loop =
                                                          ask->changed == NULL ? NULL : ask->loop,
                                                      .changed = ask->changed,
                                                      .user = ask->user};
    int r = sp_config_approvals(ask->config, &rules, &ret->found, e);

    if (r == 0 && ret->found.audit_log == NULL && ask->config->audit_log == NULL)
        warn(ask->user, "decisions are not logged: HOME is not set to a directory; set it, or "
                        "`audit_log` in the configuration");
    if (r < 0)
        return r;
    sp_judge_tell_doubtful(o->rules, ask->policy, warn, ask->user);
    o->loop = ask->loop;
    o->warn = warn;
    o->user = ask->user;
    o->kept = ask->asks_terminal ? say_kept : NULL;
    r = open_approvers(ask, ret, e);
    if (r == 0)
        r = sp_hooks_open(&ret->hooks, ask->loop, ask->config->permission_hooks,
                          ask->config->reviewer, &ret->found.options, e);
    return r;
}

void sp_cli_approval_done(struct sp_cli_approval *a)
{
    sp_approvers_free(a->approvers);
    sp_hooks_done(&a->hooks);
    sp_config_approvals_done(&a->found);
}
