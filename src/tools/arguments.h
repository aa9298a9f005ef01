/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments: what a model said, read into what the manager is asked (unified-exec.md 3.4).
 *
 * The first member that is wrong, in the order of the text, is told with its place; then the first
 * that is missing. Members that are not known are ignored, null is as good as absent, and a number
 * may be written with a fraction of zero. Whether what was asked is allowed is the manager's
 * business.
 */
#ifndef SP_TOOLS_ARGUMENTS_H
#define SP_TOOLS_ARGUMENTS_H

#include "rpc/json.h"
#include "sandbox/profile.h"
#include "tools/tools.h"

#define SP_COMPAT_MAX_MS 60000 /* what timeout_ms is cut to */

/* What an ask borrows from while the manager is asked. {0} at first. */
struct sp_arguments {
    char *text; /* a copy that is unescaped in place */
    struct sp_json json;
    struct sp_str *words;
    struct sp_grant grant;
};
void sp_arguments_done(struct sp_arguments *a);

/* The old tool (3.9): without an id `input` is a command, with one it is typed. */
struct sp_compat_ask {
    const struct sp_str *input;
    uint32_t input_count;
    struct sp_str session_id; /* p NULL: none */
    struct sp_yield_ask timeout;
};

/* SP_E_INVALID or SP_E_MALFORMED with the reason, SP_E_SYSTEM without memory. *ret is then
 * unusable. call_id and turn_id stay the caller's to fill. */
int sp_arguments_exec(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                      struct sp_exec_ask *ret, struct sp_error *e);
int sp_arguments_write(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                       struct sp_write_ask *ret, struct sp_error *e);
int sp_arguments_permissions(struct sp_arguments *a, struct sp_str text,
                             struct sp_permissions_ask *ret, struct sp_error *e);
int sp_arguments_compat(struct sp_arguments *a, struct sp_str text, struct sp_compat_ask *ret,
                        struct sp_error *e);

#define auto_arguments __attribute__((cleanup(sp_arguments_done)))

#endif
