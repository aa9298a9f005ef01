/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_approvals: from the configuration to the options of the engine: who may run what (policy,
 * rules, audit log), and the limits of a manager.
 */
#ifndef SP_CONFIG_CONFIG_APPROVALS_H
#define SP_CONFIG_CONFIG_APPROVALS_H

#include "approve/approvals.h"
#include "base/buf.h"
#include "config/config.h"
#include "engine/manager.h"

struct sp_rules_watch;

struct sp_config_approvals_options {
    const char *policy;       /* --approve; NULL: as configured */
    const char *cwd;          /* rules of its trusted projects are read; NULL: of none */
    const char *const *files; /* --rules; NULL at the end, or NULL */
    const char *system_dir;   /* NULL: /etc/sallyport */
    /* Called for a rules file that does not parse; NULL: ignored. */
    void (*warn)(void *user, const char *text);
    /*
     * With a loop, rules are read again when their files change, and `changed` passes them on: it
     * calls sp_approvals_set_rules and returns its result. NULL: rules are read once.
     */
    struct sp_loop *loop;
    bool (*changed)(void *user, struct sp_rules *rules, struct sp_str fingerprint);
    void *user;
};

/*
 * The options of approvals. The caller adds loop, approver and hooks (approve/approver_program.h).
 * With a loop this watches the rules files, so it must be ended before the loop.
 */
struct sp_config_approvals {
    struct sp_approvals_options options;
    char *audit_log; /* owns options.audit_log */
    struct sp_buf fingerprint;
    struct sp_rules_watch *watch;
};

/* *ret is zero before, and needs sp_config_approvals_done also after a failure. */
int sp_config_approvals(const struct sp_config *c, const struct sp_config_approvals_options *ask,
                        struct sp_config_approvals *ret, struct sp_err *e);
void sp_config_approvals_done(struct sp_config_approvals *a);

/* The path of the audit log, which the caller frees; *ret NULL: none is kept. */
int sp_config_audit_log(const struct sp_config *c, char **ret, struct sp_err *e);

/* Sets the members of *ret that the configuration has, and no other. */
void sp_config_manager(const struct sp_config *c, struct sp_manager_options *ret);

#endif
