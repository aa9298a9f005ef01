/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_digest_fixture: the digest of a call from the text of its arguments, as mcp_call.c makes it.
 */
#ifndef SP_MCP_DIGEST_FIXTURE_H
#define SP_MCP_DIGEST_FIXTURE_H

#include <errno.h>

#include "mcp/arguments.h"
#include "test.h"

static inline int parse_and_digest(struct sp_str tool, struct sp_str arguments,
                                   struct sp_mcp_digest *ret, struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    const int r = sp_arguments_parse(&a, arguments.n == 0 ? SP_STR("{}") : arguments, e);

    if (r < 0)
        return r;
    return sp_arguments_digest(&a, tool, ret)
               ? 0
               : sp_fail(e, SP_E_SYSTEM, ENOMEM, "compute the digest of a call");
}

static inline struct sp_mcp_digest digest_of(const char *tool, const char *arguments)
{
    struct sp_mcp_digest d = {0};
    struct sp_err e = {0};

    if (parse_and_digest(sp_str_of(tool), sp_str_of(arguments), &d, &e) < 0)
        fail_msg("%s: %s", arguments, e.msg);
    return d;
}

#endif
