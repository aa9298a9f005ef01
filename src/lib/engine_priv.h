/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_priv: the parts of an engine of the library; for src/lib/ alone.
 *
 *   engine.c    makes and frees it, with its environments: where commands run, with which program
 *               and policy
 *   lib_host.c  guards every entry, tells events and questions
 *   lib_console.c  its local socket, for other terminals, if the host wants one
 *   calls.c     calls, from the options to the manager, and their answers
 */
#ifndef SP_LIB_ENGINE_PRIV_H
#define SP_LIB_ENGINE_PRIV_H

#include "approve/approver_program.h"
#include "approve/approvers.h"
#include "base/list.h"
#include "config/config_approvals.h"
#include "config/own_places.h"
#include "engine/ids.h"
#include "engine/job.h"
#include "engine/manager.h"
#include "engine/run.h"
#include "engine/snapshot.h"
#include "lib/public.h"
#include "mcp/tools.h"

#define SP_LIB_BUCKETS      64
#define SP_LIB_WARNINGS_MAX 64 /* kept until the first dispatch; more are dropped */

enum sp_lib_call_kind { SP_LIB_EXEC, SP_LIB_WRITE, SP_LIB_TERMINATE, SP_LIB_RUN, SP_LIB_TOOL };

#define SP_LIB_PRIMARY "primary"

/* A backend. All local environments share one. */
struct sp_lib_where {
    struct sp_lib_where *next;
    struct sp_backend *backend;
    bool is_local;
    char *on;      /* the option `on`; NULL: as configured */
    uint32_t refs; /* places that use it */
};

/* An environment. Never changed: an update makes a new one. */
struct sp_lib_place {
    uint32_t refs;
    char *name;
    struct sp_lib_where *where;
    char *cwd; /* absolute; NULL: only the server knows it */
    struct sp_policy policy;
    bool is_confined;              /* there is a policy */
    char *policy_name;             /* NULL: none */
    struct sp_env_request environ; /* variables that commands inherit; borrowed from the engine */
};

/* One unanswered call; a RUN is a struct run_call (calls.c). */
struct sp_lib_call {
    struct sp_engine *engine;
    struct sp_list link; /* in its bucket */
    uint64_t number;
    enum sp_lib_call_kind kind;
    sp_answer_fn *fn; /* NULL: the answer is dropped */
    void *user;
    uint64_t began_ms;
    uint64_t manager_call; /* EXEC, WRITE, TOOL */
    bool starts_nothing;   /* TOOL: request_permissions */
    int session;           /* TERMINATE */
};

struct sp_lib_console;

struct sp_lib_warnings {
    char *texts[SP_LIB_WARNINGS_MAX];
    uint32_t count;
};

struct sp_engine {
    int64_t owner;  /* pid that made it; a child of fork() may not use it */
    bool is_doomed; /* sp_engine_free from a callback: freed at the end of dispatch */
    void *user;
    void (*event)(void *user, const struct sp_event *event);
    void (*ask)(void *user, const struct sp_question *question);

    struct sp_loop *loop;
    int fd;
    struct sp_config config;
    struct sp_manager *manager;
    struct sp_snapshots *snapshots; /* NULL: none */
    struct sp_lib_console *console; /* NULL: no local socket */
    struct sp_backend *local;       /* what the local socket shows; NULL: none is open */
    struct sp_approvers *approvers; /* NULL: the host alone answers, or all is denied */
    struct sp_approver *approver;   /* the chain of all approvers */
    struct sp_hooks hooks;
    struct sp_config_approvals approvals; /* watches the rules files */
    struct sp_lib_warnings warnings;
    struct sp_deferred warn_later;
    char *program; /* the option; NULL: not given */
    struct sp_lib_where *wheres;
    struct sp_lib_place *places[SP_ENVIRONMENTS_MAX]; /* references; the first is the primary one */
    uint32_t place_count;
    struct sp_hidden_paths hidden_paths;
    char thread_id[SP_UUID_SIZE]; /* of the conversation; commands get it in CODEX_THREAD_ID */
    char runtime_dir[512];

    struct sp_list calls[SP_LIB_BUCKETS]; /* by number */
    uint64_t last_call;
};

/* ---- lib_host.c ---- */

/* Whether the session exists and its command runs. */
static inline bool sp_lib_has_session(struct sp_engine *engine, int session)
{
    struct sp_manager_view v;

    return sp_manager_view(engine->manager, session, &v) && !v.is_answered && !v.has_exited;
}
/* Called first by every public function: refuses a wrong process and an engine being freed. */
int sp_lib_enter(struct sp_engine *engine, struct sp_error *e);
/* Called last: copies the error into the public struct. Returns r. */
int sp_lib_give(int r, const struct sp_err *from, struct sp_error *to);
/*
 * Copies a struct of the caller, which begins with its size. A shorter one (of an older program) is
 * filled up with zeros; of a longer one (a newer program) the rest must be zero.
 */
int sp_lib_take(const void *from, void *to, size_t size, size_t least, const char *name,
                struct sp_err *e);
/* The size that the struct had in the first version, when `last` was its last member. */
#define SP_LIB_LEAST(type, last) (offsetof(type, last) + sizeof(((const type *)NULL)->last))

/* The receipt in the type of sallyport.h, in *room; from NULL, or without a reason: NULL. */
const struct sp_receipt *sp_lib_receipt(const struct sp_command_receipt *from,
                                        struct sp_receipt *room);

/* An event in the type of sallyport.h. */
void sp_lib_tell_event(void *engine, const struct sp_exec_event *ev);

/* Called only if the host has an `ask` function. */
void sp_lib_tell_question(void *engine, const struct sp_approval_question *from);

/* ---- engine.c ---- */

void sp_lib_place_unref(struct sp_lib_place *p); /* NULL is fine */
/* ---- lib_console.c ---- */

/* Also sets *ret when it fails, to be freed. */
int sp_lib_console_new(struct sp_engine *engine, struct sp_lib_console **ret, struct sp_err *e);
/* After the manager and the approvers, before the backends; NULL is fine. */
void sp_lib_console_free(struct sp_lib_console *c);
/* The approvers of the set as one; its client is the `ask` function, if there is one. */
int sp_lib_console_chain(struct sp_lib_console *c, struct sp_approvers *set, const char *user_dir,
                         struct sp_approver **ret, struct sp_err *e);
/* ---- calls.c ---- */

/* only_runs: before the backends and the manager; the rest after the manager, which answers them.
 */
void sp_lib_calls_free(struct sp_engine *engine, bool only_runs);

#endif
