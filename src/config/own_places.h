/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_places: files that no sandbox lets a command write, because they decide about later commands:
 * rules, configuration, tokens, the audit log, approver programs and sallyport itself.
 */
#ifndef SP_CONFIG_OWN_PLACES_H
#define SP_CONFIG_OWN_PLACES_H

#include "config/config.h"
#include "sandbox/hidden_paths.h"

struct sp_own_places_options {
    const struct sp_config *config; /* NULL: protects only the default places */
    const char *const *rules;       /* --rules; NULL at the end, or NULL */
    const char *const *approvers;   /* --approver; NULL at the end, or NULL */
    const char *token_file;         /* --token-file; NULL: none */
    const char *program;            /* the sallyport binary; NULL: /proc/self/exe */
};

/*
 * Added to *ret, which has been filled by sp_hidden_paths_find. A configured audit log that is
 * missing is made, empty: a command would otherwise be the first to open it.
 */
int sp_own_places_find(const struct sp_own_places_options *ask, struct sp_hidden_paths *ret,
                       struct sp_err *e);

#endif
