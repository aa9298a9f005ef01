/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_denial: what the sandbox denied a command, and which part of the policy says so.
 */
#ifndef SP_MCP_TOOL_DENIAL_H
#define SP_MCP_TOOL_DENIAL_H

#include "base/arena.h"
#include "mcp/mcp.h"

struct sp_network_receipt;

struct sp_mcp_denial {
    const char *access; /* "write", "connect", or a system call */
    const char *target; /* a path or a host; "": unknown */
    const char *rule;   /* what in the policy denies it */
    const char *layer, *evidence;
    const char *amendment; /* proposed permission, JSON; NULL: none */
};

#define SP_MCP_DENIALS_MAX 16
struct sp_mcp_denials {
    struct sp_mcp_denial items[SP_MCP_DENIALS_MAX];
    uint32_t count;
    struct sp_arena keep;
};
static inline void sp_mcp_denials_done(struct sp_mcp_denials *d)
{
    sp_arena_done(&d->keep);
    *d = (struct sp_mcp_denials){0};
}

/* What is known about one process. */
struct sp_mcp_denied {
    const struct sp_exit *kernel;         /* NULL: unknown */
    const struct sp_denial_facts *denial; /* NULL: none */
    bool was_denied;
    bool was_confined;       /* false: its refused system calls and its SIGSYS are no denials */
    struct sp_str cwd;       /* n 0: unknown */
    const char *environment; /* its id; NULL: the first */
    /* Searched for the words of a denial if a remote executor reports one without details. */
    struct sp_str output;
    int exit_code;
    const struct sp_network_receipt *network; /* NULL: none */
};
/* false: out of memory. */
bool sp_mcp_denials_find(struct sp_mcp_denials *d, const struct sp_mcp *m,
                         const struct sp_mcp_denied *what);
/* As JSON `"denials":[...]`; as text `Sandbox denied: write /etc/hosts: entry 0 (...)`, at most
 * three lines and then the number of further ones. */
bool sp_mcp_denials_add(struct sp_buf *out, const struct sp_mcp_denials *d, bool is_json);

#endif
