/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: keys of exec_command and write ids of write_stdin, so that a repeated call acts once; and
 * inspections of processes that are under way.
 *
 * A key or id is remembered for ten minutes after its call started, and while that call lasts. At
 * most 1024 are kept; then the oldest one whose call is over is evicted.
 */
#ifndef SP_MCP_MEMORY_H
#define SP_MCP_MEMORY_H

#include "base/list.h"
#include "mcp/caller.h"

#define SP_MCP_MEMORY_MS     600000
#define SP_MCP_MEMORY_MAX    1024
#define SP_MCP_MEMORY_ID_MAX 256 /* bytes of a key or an id */

struct sp_mcp_memory;
void sp_mcp_memory_free(struct sp_mcp_memory *m); /* after the runs and the manager; NULL is fine */

struct sp_mcp_memory_item {
    struct sp_list link;    /* by age */
    struct sp_mcp_run *run; /* the call that said it first; NULL: that call is over */
    int session_id;         /* of the process that the call started; 0: none */
    struct sp_list waits;   /* runs with the same key: sp_mcp_run.key_wait, first come first */
    uint64_t due_ms;
    int scope; /* 0: a key; else the session that was written to */
    size_t n;
    char id[];
};

/*
 * Finds or adds the item of this id; *ret_is_new: added, and the caller sets its run. SP_E_INVALID:
 * bad id. SP_E_LIMIT: too many calls with a key are running.
 */
int sp_mcp_memory_take(struct sp_mcp_caller *c, int scope, struct sp_str id,
                       struct sp_mcp_memory_item **ret, bool *ret_is_new, struct sp_err *e);
/* Frees the item, as if the id had never been used. Waiting runs are unlinked. */
void sp_mcp_memory_forget(struct sp_mcp_caller *c, struct sp_mcp_memory_item *i);

/* ---- inspections ---- */

#define SP_MCP_INSPECT_MS 1000 /* how long an answer waits for one */

/*
 * Asks the kernel what the process of a session is doing. fn is called once, from the loop: with
 * NULL if that is unknown, or after wait_ms (0: no deadline). NULL: out of memory, or the manager
 * cannot ask; fn is not called.
 */
struct sp_mcp_inspection;
struct sp_mcp_inspection *sp_mcp_inspect(struct sp_mcp_caller *c, int session_id, uint64_t wait_ms,
                                         sp_manager_look_fn *fn, void *user);
void sp_mcp_inspection_forget(struct sp_mcp_inspection *x); /* fn is not called; NULL is fine */

#endif
