/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp: the engine as a server of the Model Context Protocol.
 *
 *   lines, mcp_http*           transports: stdio, unix socket, HTTP
 *   mcp_message, peer, task    the protocol: both eras, their methods, their envelopes
 *   mcp_call, elicit           one tools/call, its questions, and parked runs
 *   caller, mcp_run            who calls, and one call of a tool from its start to its result
 *   tool*, arguments, output   the tools, over the engine
 *
 * A caller is an authenticated client: a pipe, a user id, a token. Sessions, and everything else
 * that outlives a message, belong to one caller and are invisible to others. Nothing else is
 * remembered about a modern client.
 */
#ifndef SP_MCP_MCP_H
#define SP_MCP_MCP_H

#include "base/list.h"
#include "engine/manager.h"
#include "mcp/tools.h"
#include "sandbox/survey.h"

struct sp_mcp;
struct sp_mcp_caller;

#define SP_MCP_NAME          "sallyport"
#define SP_MCP_MODERN        "2026-07-28"
#define SP_MCP_LEGACY_NEWEST "2025-11-25"
#define SP_MCP_CALLERS_MAX   64
#define SP_MCP_PATIENCE_MS   50000 /* a call without a progress token is answered by then */
#define SP_MCP_PROGRESS_MS   15000 /* between two progress messages */

/* Whether structured results repeat the output of the text. */
enum sp_mcp_structured_output {
    SP_MCP_OUTPUT_AUTO, /* by the name of the host */
    SP_MCP_OUTPUT_ALWAYS,
    SP_MCP_OUTPUT_NEVER,
};

struct sp_console;

struct sp_mcp_options {
    struct sp_loop *loop;
    /* For every caller's manager, which gets its own ops, user, approver and ids. What it points to
     * outlives the server. */
    const struct sp_manager_options *manager;
    struct sp_tools_options tools;
    /* Who answers questions, the host (`client`) among them; NULL: the host alone. */
    struct sp_approvers *approvers;
    struct sp_console *console;              /* that they may name; NULL: none */
    struct sp_fixed_places fixed;            /* for explain_denial, as for sp_survey_make */
    const char *cwd;                         /* where commands run; NULL: the executor's */
    const char *instructions;                /* for models */
    const char *instructions_without_asking; /* if the host cannot ask a person */
    bool is_remote;                          /* commands run elsewhere */
    bool keeps_cancelled; /* a cancelled exec_command leaves its process running */
    enum sp_mcp_structured_output structured_output;
    uint64_t detached_ttl_ms; /* a caller without a connection ends after this; 0: never */
};

/* Strings are copied. */
int sp_mcp_new(const struct sp_mcp_options *o, struct sp_mcp **ret, struct sp_err *e);
/* Ends every process. All peers have been freed. NULL is fine. */
void sp_mcp_free(struct sp_mcp *m);
const struct sp_mcp_options *sp_mcp_options(const struct sp_mcp *m);

/* Replaces the rules of all callers. false: out of memory, nothing changed. */
bool sp_mcp_set_rules(struct sp_mcp *m, struct sp_rules *rules, struct sp_str fingerprint);

/*
 * Takes a reference to the caller with this identity ("stdio", "uid 1000", "token 2"), which is
 * made on first use. Without references it ends, with its processes, after detached_ttl_ms.
 * SP_E_LIMIT: too many callers.
 */
int sp_mcp_caller_hold(struct sp_mcp *m, struct sp_str identity, struct sp_mcp_caller **ret,
                       struct sp_err *e);
void sp_mcp_caller_release(struct sp_mcp_caller *c);

/* Reports the end of a caller to code that does not hold it. */
struct sp_mcp_caller_watch {
    struct sp_list link;
    struct sp_mcp_caller *caller; /* NULL: watches none */
    /* The watch is removed already; requests made in the caller's name must be dropped now. */
    void (*ended)(struct sp_mcp_caller_watch *w);
};
/* Makes w watch c instead of the caller it watched before; c NULL: stops watching. */
void sp_mcp_caller_watch(struct sp_mcp_caller_watch *w, struct sp_mcp_caller *c);

#endif
