/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller: an authenticated client and everything that belongs to it: runs, parked runs, tasks,
 * keys, inspections, the sessions that ended, log messages.
 */
#ifndef SP_MCP_CALLER_H
#define SP_MCP_CALLER_H

#include "approve/approver.h"
#include "base/buf.h"
#include "mcp/mcp.h"

struct sp_mcp_run;
struct sp_mcp_parking;
struct sp_mcp_tasks;
struct sp_mcp_peer;

#define SP_MCP_ENDED_MAX  64 /* sessions */
#define SP_MCP_EVENTS_MAX 64 /* log events waiting for the loop; further ones are dropped */

/* A session that ended while no call waited for it. */
struct sp_mcp_ended {
    int session_id;
    bool is_noted; /* a result had a note about it */
};

/* A log message for hosts that want them. */
struct sp_mcp_event {
    int session_id; /* 0: a notice */
    bool has_ended; /* else it has started */
    char notice[96];
};

struct sp_mcp {
    struct sp_mcp_options options;     /* its strings are owned */
    struct sp_manager_options manager; /* the template for each caller's manager */
    struct sp_approvers *host_alone;   /* used if the options name no approvers; else NULL */
    struct sp_rules *rules;            /* a reference; NULL: those of the options */
    char *fingerprint;                 /* of these rules */
    struct sp_list callers;            /* oldest first */
    uint32_t caller_count;
    uint64_t caller_total; /* ever made */
    uint8_t key[32];       /* signs tickets; random for each process */
};

struct sp_mcp_caller {
    struct sp_mcp *mcp;
    struct sp_loop *loop;
    struct sp_list link;
    uint64_t number; /* from 1, never used again */
    char *identity;
    char client_name[129]; /* clientInfo.name, as the last client said; "": none did */
    struct sp_manager *manager;
    struct sp_approver questions;  /* the manager's approver: finds the run, then asks approvers */
    struct sp_approver *console;   /* one of them; NULL: none */
    struct sp_approver *approvers; /* the configured chain, with `host` as its client */
    struct sp_approver host;       /* asks the host of the run */
    struct sp_list host_questions; /* mcp_run.c: open ones about hosts of the network, by age */
    struct sp_list runs;           /* newest first; a run that is being answered is not in it */
    uint32_t run_count;
    uint64_t next_run;              /* for call ids */
    struct sp_mcp_parking *parking; /* made on first use, like the next */
    struct sp_mcp_tasks *tasks;
    struct sp_list keys; /* oldest first */
    uint32_t key_count;
    struct sp_list inspections; /* each until the manager answers */
    struct sp_buf warnings;     /* of the manager, about no particular call: for the next result */
    struct sp_mcp_ended ended[SP_MCP_ENDED_MAX]; /* oldest first */
    uint32_t ended_count;
    struct sp_list peers; /* that may want log messages */
    struct sp_mcp_event events[SP_MCP_EVENTS_MAX];
    uint32_t event_count;
    struct sp_deferred logging;
    unsigned held; /* references */
    struct sp_list watches;
    struct sp_deferred ending;
    struct sp_timer detached_timer;
};

/* ---- keys of exec_command and write ids of write_stdin: a repeated call acts once ---- */

#define SP_MCP_KEY_MS        600000
#define SP_MCP_KEYS_MAX      1024 /* then the oldest key of a finished call is evicted */
#define SP_MCP_KEY_BYTES_MAX 256

/* Remembered for ten minutes after its call started, and while that call lasts. */
struct sp_mcp_key {
    struct sp_mcp_caller *caller;
    struct sp_list link;    /* by age */
    struct sp_mcp_run *run; /* the call that said it first; NULL: that call is over */
    int session_id;         /* of the process that the call started; 0: none */
    struct sp_list waits;   /* runs with the same key: sp_mcp_run.key_wait, first come first */
    uint64_t due_ms;
    uint8_t command[32]; /* SHA-256 of what exec_command was to run */
    int scope;           /* 0: a key; else the session that was written to */
    size_t n;
    char id[];
};

/*
 * Finds or adds a key; *ret_is_new: added, and the caller sets its run. SP_E_INVALID: bad id.
 * SP_E_LIMIT: too many calls with a key are running.
 */
int sp_mcp_key_take(struct sp_mcp_caller *c, int scope, struct sp_str id, struct sp_mcp_key **ret,
                    bool *ret_is_new, struct sp_err *e);
/* Frees the key, as if it had never been used. Waiting runs are unlinked. */
void sp_mcp_key_forget(struct sp_mcp_key *k);

/* ---- inspections ---- */

#define SP_MCP_INSPECT_MS 1000 /* how long an answer waits for one */

/*
 * Asks the kernel what the process of a session is doing. fn is called once, from the loop: with
 * NULL if that is unknown, or after wait_ms (0: no deadline). NULL: out of memory, or the manager
 * cannot ask; fn is not called.
 */
struct sp_mcp_inspection;
struct sp_mcp_inspection *sp_mcp_inspect(struct sp_mcp_caller *c, int session_id, uint64_t wait_ms,
                                         sp_manager_inspect_fn *fn, void *user);
void sp_mcp_inspection_forget(struct sp_mcp_inspection *x); /* fn is not called; NULL is fine */

/* ---- log messages ---- */

/* A session has started or ended; or, with session 0 and has_ended, a notice of level info, which
 * may be cut. Sent from the loop to every peer that wants it. */
void sp_mcp_caller_log(struct sp_mcp_caller *c, int session_id, bool has_ended,
                       struct sp_str notice);

/* The name that the client gives itself, for people who are asked. */
void sp_mcp_caller_set_client_name(struct sp_mcp_caller *c, struct sp_str client);

#endif
