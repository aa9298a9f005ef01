/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: what is remembered of a caller's calls besides its processes: keys of starts and ids of
 * writes, so that a call that comes twice acts once (mcp-and-acp.md 4, 6); and looks at processes
 * that are on their way.
 *
 * A key or id is remembered for ten minutes after its call began, and for as long as that call
 * lasts. At most 1024: then the oldest goes whose call is over.
 */
#ifndef SP_MCP_MEMORY_H
#define SP_MCP_MEMORY_H

#include "mcp/mcp_run.h"

#define SP_MCP_MEMORY_MS     600000
#define SP_MCP_MEMORY_MAX    1024
#define SP_MCP_MEMORY_ID_MAX 256 /* bytes of a key or an id */

struct sp_mcp_memory;
void sp_mcp_memory_free(struct sp_mcp_memory *m); /* after the runs and the manager; NULL is fine */

/* Somebody who waits for the call of a key; embedded in what belongs to its run. */
struct sp_mcp_memory_wait {
    struct sp_mcp_run *run;
    struct sp_mcp_memory_item *item; /* NULL: waits for nothing */
    struct sp_mcp_memory_wait *next;
};

struct sp_mcp_memory_item {
    struct sp_mcp_memory_item *prev, *next; /* by age */
    struct sp_mcp_run *run; /* whose call it is; NULL: that is over, or does not matter */
    int session_id;         /* that it started; 0: none, or not yet */
    struct sp_mcp_memory_wait *waits;
    uint64_t due_ms;
    int scope; /* 0: a key; else the session that was written to */
    size_t n;
    char id[];
};

/*
 * What is remembered under this id. *ret_is_new: nothing was, and from now on it is; the run is the
 * caller's to fill. SP_E_INVALID: no id that can be remembered. SP_E_LIMIT: too many are under way.
 */
int sp_mcp_memory_take(struct sp_mcp_caller *c, int scope, struct sp_str id,
                       struct sp_mcp_memory_item **ret, bool *ret_is_new, struct sp_err *e);
/* As if it had never been said. Who waits for it waits for nothing. */
void sp_mcp_memory_forget(struct sp_mcp_caller *c, struct sp_mcp_memory_item *i);

void sp_mcp_memory_wait(struct sp_mcp_memory_item *i, struct sp_mcp_memory_wait *w);
void sp_mcp_memory_unwait(struct sp_mcp_memory_wait *w); /* waits for nothing: fine */

/* ---- looks ---- */

#define SP_MCP_LOOK_MS 1000 /* then it counts as: nobody can tell */

/* What a process is doing. fn is called once, from the loop and soon: look NULL means that nobody
 * can tell. NULL: no memory, and fn is not called. */
struct sp_mcp_glance;
struct sp_mcp_glance *sp_mcp_glance(struct sp_mcp_caller *c, int session_id, sp_manager_look_fn *fn,
                                    void *user);
void sp_mcp_glance_forget(struct sp_mcp_glance *g); /* fn is not called any more; NULL is fine */

#endif
