/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvals: what the configuration says about leave to run things (approvals.md, unified-exec.md
 * 14.2): the policy, the rules of all places, the log.
 */
#ifndef SP_CONFIG_CONFIG_APPROVALS_H
#define SP_CONFIG_CONFIG_APPROVALS_H

#include "approve/approvals.h"
#include "base/buf.h"
#include "config/config.h"

struct sp_rules_watch;

struct sp_config_approvals_ask {
    const char *policy;       /* --approve; NULL: as configured */
    const char *cwd;          /* whose project may have rules; NULL: none */
    const char *const *files; /* --rules; NULL at the end, or NULL */
    const char *system_dir;   /* NULL: /etc/sallyport */
    /* A file of rules that does not parse; NULL: nobody wants to know. */
    void (*warn)(void *user, const char *text);
    /*
     * Rules are read again when their files change, and changed() hands them to the approvals that
     * were made (sp_approvals_set_rules; its result is returned). NULL: they are read once.
     */
    struct sp_loop *loop;
    bool (*changed)(void *user, struct sp_rules *rules, struct sp_str fingerprint);
    void *user;
};

/*
 * What is needed to make approvals; loop, approver and hooks (hooks.h, by what the configuration
 * says) are the caller's to fill. As long as it is there, and the ask had a loop, changes of the
 * rules are told: to be ended before the loop.
 */
struct sp_config_approvals {
    struct sp_approvals_options options;
    char *audit_log; /* what options.audit_log points to */
    struct sp_buf fingerprint;
    struct sp_rules_watch *watch;
};

/* *ret is zero, and to be ended also after a failure. */
int sp_config_approvals(const struct sp_config *c, const struct sp_config_approvals_ask *ask,
                        struct sp_config_approvals *ret, struct sp_err *e);
void sp_config_approvals_done(struct sp_config_approvals *a);

/* The path of the log, to be freed; *ret is NULL: none is kept. */
int sp_config_audit_log(const struct sp_config *c, char **ret, struct sp_err *e);

#endif
