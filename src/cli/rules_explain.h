/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_explain: what becomes of a command before it runs, under each policy (approvals.md 5.5).
 */
#ifndef SP_CLI_RULES_EXPLAIN_H
#define SP_CLI_RULES_EXPLAIN_H

#include "approve/judge.h"

struct sp_explain_ask {
    struct sp_words argv;
    const struct sp_rules *rules;
    const struct sp_policy *profile;
    const char *profile_name, *shell;
    enum sp_known_safe known_safe;
    struct sp_str environ; /* of the command: NAME=VALUE strings with their NULs */
    bool is_open;          /* the profile confines nothing */
    bool is_json;
};
/* Writes it down. */
int sp_rules_explain(const struct sp_explain_ask *ask, struct sp_buf *out, struct sp_err *e);

#endif
