/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvals: what the configuration says about leave to run things (approvals.md, unified-exec.md
 * 14.2): the policy, the rules of all places, the log.
 */
#ifndef SP_CONFIG_APPROVALS_H
#define SP_CONFIG_APPROVALS_H

#include "config/config.h"
#include "engine/approvals.h"

struct sp_config_approvals_ask {
    const char *policy;       /* --approve; NULL: as configured */
    const char *cwd;          /* whose project may have rules; NULL: none */
    const char *const *files; /* --rules; NULL at the end, or NULL */
    const char *system_dir;   /* NULL: /etc/sallyport */
    /* A file of rules that does not parse; NULL: nobody wants to know. */
    void (*warn)(void *user, const char *text);
    void *user;
};

/* What is needed to make approvals; loop and approver are the caller's to fill. */
struct sp_config_approvals {
    struct sp_approvals_options options;
    char *audit_log; /* what options.audit_log points to */
};

/* *ret is zero, and to be ended also after a failure. */
int sp_config_approvals(const struct sp_config *c, const struct sp_config_approvals_ask *ask,
                        struct sp_config_approvals *ret, struct sp_error *e);
void sp_config_approvals_done(struct sp_config_approvals *a);

/* Whether cwd is in a project that the user trusts. */
bool sp_config_trusts(const struct sp_config *c, const char *cwd);

#endif
