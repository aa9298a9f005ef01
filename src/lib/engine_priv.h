/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_priv: what an engine of the library is made of; for src/lib/ alone.
 *
 *   engine.c     its beginning, its end, and the door: who may call what when
 *   environment.c  where its commands run, and under what policy
 *   place.c      its manager, and who says what may run
 *   calls.c      calls, from their beginning to their answer
 *   call_run.c   ... of one-shot runs
 *   call_tool.c  ... of tools of a language model
 *   tell.c       events, answers and questions in the words of sallyport.h
 *   warn.c       warnings about the engine as a whole
 *   binary.c     the program that runs commands
 */
#ifndef SP_LIB_ENGINE_PRIV_H
#define SP_LIB_ENGINE_PRIV_H

#include "approve/approvers.h"
#include "approve/hooks.h"
#include "config/config_approvals.h"
#include "config/own_places.h"
#include "engine/ids.h"
#include "engine/job.h"
#include "engine/judged.h"
#include "engine/manager.h"
#include "engine/run.h"
#include "engine/snapshot.h"
#include "lib/public.h"
#include "mcp/tools.h"

#define SP_LIB_BUCKETS      64
#define SP_LIB_WARNINGS_MAX 64 /* that wait for the first dispatch; more are dropped */

enum sp_lib_call_kind { SP_LIB_EXEC, SP_LIB_WRITE, SP_LIB_TERMINATE, SP_LIB_RUN, SP_LIB_TOOL };

#define SP_LIB_PRIMARY "primary"

/* A backend; those that are local share one. */
struct sp_lib_where {
    struct sp_lib_where *next;
    struct sp_backend *backend;
    bool is_local;
    char *on;      /* as it was asked for; NULL: as configured */
    uint32_t refs; /* of places */
};

/* An environment, as it is since its last update. */
struct sp_lib_place {
    uint32_t refs;
    char *name;
    struct sp_lib_where *where;
    char *cwd; /* absolute, where commands run; NULL: not known before the server says so */
    struct sp_policy policy;
    bool is_confined;  /* there is a policy */
    char *policy_name; /* NULL: none */
};

/* One call that has not been answered. */
struct sp_lib_call {
    struct sp_engine *engine;
    struct sp_lib_call *prev, *next; /* in its bucket */
    uint64_t number;
    enum sp_lib_call_kind kind;
    sp_answer_fn *fn; /* NULL: nobody wants to know */
    void *user;
    uint64_t began_ms;
    uint64_t manager_call; /* EXEC, WRITE, TOOL */
    bool starts_nothing;   /* TOOL: request_permissions */
    int session;           /* TERMINATE */

    /* RUN */
    struct sp_lib_place *place;   /* a reference */
    struct sp_judged *run;        /* NULL: not started yet */
    struct sp_backend_wait facts; /* while it waits for the server's directory */
    struct sp_lib_launch *launch; /* what it will start then */
    struct sp_deferred later;     /* it was cancelled, or refused, before it started */
    struct sp_err why;            /* code NONE: cancelled */
};

struct sp_lib_warnings {
    char *texts[SP_LIB_WARNINGS_MAX];
    uint32_t count;
};

struct sp_engine {
    int64_t owner;  /* the process that made it; a child of fork() has no business here */
    bool is_doomed; /* freed from within a callback: ends when dispatch does */
    void *user;
    void (*event)(void *user, const struct sp_event *event);
    void (*ask)(void *user, const struct sp_question *question);

    struct sp_loop *loop;
    int fd;
    struct sp_config config;
    struct sp_manager *manager;
    struct sp_snapshots *snapshots; /* NULL: none */
    struct sp_approvers *approvers; /* NULL: the host answers, or nobody */
    struct sp_approver *approver;   /* all of them */
    struct sp_hooks hooks;
    struct sp_config_approvals approvals; /* keeps an eye on the rules */
    struct sp_lib_warnings warnings;
    struct sp_deferred warn_later;
    char *program; /* as asked; NULL: found */
    struct sp_lib_where *wheres;
    struct sp_lib_place *places[SP_ENVIRONMENTS_MAX]; /* references; the first is the primary one */
    uint32_t place_count;
    struct sp_hidden_paths hidden_paths;
    char thread_id[SP_UUID_SIZE]; /* of the conversation, which commands are told */
    char runtime_dir[512];

    struct sp_lib_call *calls[SP_LIB_BUCKETS];
    uint64_t last_call;
};

/* ---- engine.c ---- */

/* Whether there is one whose command lives. */
bool sp_lib_has_session(struct sp_engine *engine, int session);
/* The beginning of every function of the library: may it be called now? */
int sp_lib_enter(struct sp_engine *engine, struct sp_error *e);
/* The end: an error of ours in the library's words. */
int sp_lib_give(int r, const struct sp_err *from, struct sp_error *to);
/*
 * Reads a struct of the caller's, which may be shorter than ours (an older program: the rest is
 * zero) or longer (a newer one: the rest must be zero).
 */
int sp_lib_take(const void *from, void *to, size_t size, size_t least, const char *name,
                struct sp_err *e);
/* How long the struct was in the first version, where that was its last member. */
#define SP_LIB_LEAST(type, last) (offsetof(type, last) + sizeof(((const type *)NULL)->last))

/* ---- environment.c ---- */

int sp_lib_open_primary(struct sp_engine *engine, const struct sp_engine_options *o,
                        struct sp_err *e);
void sp_lib_places_free(struct sp_engine *engine);
void sp_lib_wheres_free(struct sp_engine *engine); /* after the manager and all calls */
/* Connections that nothing needs any more. */
void sp_lib_drop_unused(struct sp_engine *engine);
struct sp_lib_place *sp_lib_place_ref(struct sp_lib_place *p);
void sp_lib_place_unref(struct sp_lib_place *p); /* NULL is fine */
/* NULL: the primary one. */
struct sp_lib_place *sp_lib_place_find(const struct sp_engine *engine, const char *name);
struct sp_environment_spec sp_lib_place_environment(const struct sp_lib_place *p); /* borrowed */

/* ---- place.c ---- */

int sp_lib_open_manager(struct sp_engine *engine, const struct sp_engine_options *o,
                        struct sp_err *e);
/* What commands inherit, as the configuration has it; borrowed from the engine. */
struct sp_environ_ask sp_lib_environ(const struct sp_engine *engine,
                                     const struct sp_lib_place *place);

/* ---- calls.c ---- */

/* NULL: no memory, and e says so. */
struct sp_lib_call *sp_lib_call_new(struct sp_engine *engine, enum sp_lib_call_kind kind,
                                    sp_answer_fn *fn, void *user, struct sp_error *e);
struct sp_lib_call *sp_lib_call_find(const struct sp_engine *engine, uint64_t number);
void sp_lib_call_free(struct sp_lib_call *c); /* with its run, if it has one */
/* Tells the answer, unless nobody wants it, and frees the call. */
void sp_lib_call_answer(struct sp_lib_call *c, struct sp_answer *a);
void sp_lib_runs_free(struct sp_engine *engine);  /* before their backend */
void sp_lib_calls_free(struct sp_engine *engine); /* after the manager, which answers its own */

/* "17": what the engine calls it. */
struct sp_lib_id {
    char text[24];
};
struct sp_str sp_lib_id_of(uint64_t number, struct sp_lib_id *ret);

/* NAME=VALUE strings as variables; to be freed. */
int sp_lib_env(const char *const *env, struct sp_environ_var **ret, uint32_t *ret_count,
               struct sp_err *e);
/* A list with NULL at its end; to be freed. */
int sp_lib_argv(const char *const *argv, struct sp_str **ret, uint32_t *ret_count,
                struct sp_err *e);

/* ---- call_run.c ---- */

void sp_lib_run_free(struct sp_lib_call *c);
void sp_lib_run_cancel(struct sp_lib_call *c);

/* ---- warn.c ---- */

/* Tells it as an event: at once, or when the host calls sp_engine_dispatch. */
void sp_lib_warn(void *engine, const char *text);
void sp_lib_warnings_free(struct sp_engine *engine); /* before the loop */

/* ---- tell.c ---- */

void sp_lib_tell_event(void *engine, const struct sp_exec_event *ev);
void sp_lib_tell_question(void *engine, const struct sp_approval_question *q);
void sp_lib_tell_reply(void *call, const struct sp_reply *r);
void sp_lib_tell_tool(void *call, const struct sp_tool_reply *r);
void sp_lib_tell_result(void *call, const struct sp_run_result *r);
int sp_lib_tell_list(struct sp_engine *engine,
                     void (*fn)(void *user, const struct sp_session_info *info), void *user);

#endif
