/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell_pool: the confined cells of a server, one for each session and policy.
 *
 * A cell is made for the first command or file operation of a policy, and reused while the paths of
 * the policy are unchanged on disk. It ends after an idle time (at once if it has placeholders),
 * with its session, or when another cell needs its place.
 */
#ifndef SP_CORE_CELL_POOL_H
#define SP_CORE_CELL_POOL_H

#include "core/cells.h"
#include "core/managed.h"
#include "core/placeholder.h"
#include "core/publish.h"
#include "core/surveyor.h"
#include "os/remote_mounts.h"
#include "sandbox/compile.h"

#define SP_MAX_CONFINED            80
#define SP_MAX_CONFINED_MORE       63  /* beyond the first of each session, of all sessions */
#define SP_MAX_POLICY_PLACEHOLDERS 256 /* of one policy */
#define SP_CELL_IDLE_MS            60000
#define SP_CELL_UNUSED_MS          2000 /* after a use that on_idle did not follow: a start that failed */
/* A cell with placeholders, which users can see, ends with its last command. Except in a burst:
 * after SP_BURST_STARTS starts, each within SP_BURST_MS of the last command, a new cell would be
 * made for each command. Then the cell stays for SP_BURST_MS after each command, until the session
 * has paused for SP_BURST_KEPT_MS. */
#define SP_BURST_STARTS  10
#define SP_BURST_MS      50
#define SP_BURST_KEPT_MS 10000

#define SP_PLANTED_CHECK_MS 500 /* between two checks for planted files while commands run */

struct sp_cell_pool_options {
    struct sp_cell_options cell;  /* without plan; of its callbacks only drained is used */
    struct sp_fixed_places fixed; /* borrowed */
    bool is_exposed;              /* a command with network could send us requests */
    bool is_exposed_widely;       /* ... and does not have to come over loopback */
    /* Rules about hosts (sp_managed_hub_set_rules); NULL: none. */
    bool (*forbids_host)(void *user, const struct sp_hostname *host);
    void *user;                 /* of forbids_host */
    char *const *environ;       /* the server's variables: upstream proxies; borrowed */
    struct sp_publish *publish; /* ports that lead into its cells; NULL: none; borrowed */
};

#define SP_CELL_BURSTS 16 /* sessions with a counter of starts */

/* Counts starts (and file operations) of a session that follow each other closely. */
struct sp_cell_burst {
    uint64_t session;
    uint64_t last_ms; /* of the last start or exit */
    uint32_t count;
};

struct sp_cell_pool {
    struct sp_loop *loop;
    struct sp_cells *cells;
    struct sp_cell_pool_options options;
    struct sp_list in_use; /* struct pool_cell, the most recently used first */
    uint32_t count;        /* without the ending cells */
    struct sp_cell_burst bursts[SP_CELL_BURSTS];
    bool has_features;
    uint64_t features_until_ms;
    struct sp_host_features host_features;
    struct sp_managed_hub *networks; /* NULL: no managed cell yet */
    uint16_t own_ports[SP_PROXY_PORTS_MAX];
    uint32_t own_port_count;
    struct sp_placeholders placeholders;
    struct sp_surveyor *surveyor;
    struct sp_remote_mounts mounts;
};

int sp_cell_pool_new(struct sp_loop *loop, struct sp_cells *cells,
                     const struct sp_cell_pool_options *o, struct sp_cell_pool **ret,
                     struct sp_err *e);
/* Before the cells are freed. */
void sp_cell_pool_free(struct sp_cell_pool *pool);

/* An existing cell for this session and policy, or a new one, which builds its sandbox while the
 * first start or file worker waits in its socket. Fails if the policy is wrong or cannot be
 * enforced on this host, or if there are too many cells. Blocks for the disk: SP_DISK_BUDGET_MS
 * bounds each look at it, of which there may be several, and a system call that hangs is not
 * interrupted.
 */
int sp_cell_pool_get(struct sp_cell_pool *pool, uint64_t session, const struct sp_policy *p,
                     struct sp_cell **ret, struct sp_err *e);

/* The same without blocking, in two steps. First: an existing cell that can be checked at once.
 * *ret NULL: there is none, use sp_cell_pool_request. */
int sp_cell_pool_find(struct sp_cell_pool *pool, uint64_t session, const struct sp_policy *p,
                      struct sp_cell **ret, struct sp_err *e);
/* Second: surveys the policy in a thread; done is called later, with a cell, or NULL and an error.
 * The caller sets the deadline, and may cancel with sp_surveyor_cancel. */
struct sp_cell_request {
    void (*done)(struct sp_cell_request *a, struct sp_cell *cell, struct sp_err *e);
    struct sp_cell_pool *pool;
    uint64_t session;
    int tries;
    struct sp_survey_request survey;
};
int sp_cell_pool_request(struct sp_cell_pool *pool, uint64_t session, const struct sp_policy *p,
                         struct sp_cell_request *a, struct sp_err *e);
/* A cell that an earlier front has made (sp_cell_adopt): it takes no more starts, and ends with its
 * last command. Takes the descriptors. */
struct sp_cell_record;
int sp_cell_pool_adopt(struct sp_cell_pool *pool, struct sp_cell_record *record, size_t fixed,
                       struct sp_cell_ends *ends, struct sp_err *e);
void sp_cell_pool_end_session(struct sp_cell_pool *pool, uint64_t session);

/* Makes the plan but no cell. The host is probed when its features are first needed. */
int sp_cell_pool_plan(struct sp_cell_pool *pool, const struct sp_policy *p, struct sp_buf *ret,
                      struct sp_err *e);
int sp_cell_pool_features(struct sp_cell_pool *pool, const struct sp_host_features **ret,
                          struct sp_err *e);

/* Whether managed networks can be made here: cells have a network of their own. The host is probed
 * at the first call. */
bool sp_cell_pool_has_networks(struct sp_cell_pool *pool);

/* A TCP port of this server, which no managed network reaches on this machine. To be called before
 * the first cell is made. */
void sp_cell_pool_add_own_port(struct sp_cell_pool *pool, uint16_t port);

#endif
