/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_priv: what the tools share.
 */
#ifndef SP_MCP_TOOL_PRIV_H
#define SP_MCP_TOOL_PRIV_H

#include "approve/explain.h"
#include "engine/keep.h"
#include "mcp/arguments.h"
#include "mcp/memory.h"
#include "mcp/tool.h"

/* tool_*.c: how each begins. */
typedef int sp_mcp_tool_start(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e);
sp_mcp_tool_start sp_mcp_tool_exec, sp_mcp_tool_write, sp_mcp_tool_read, sp_mcp_tool_list,
    sp_mcp_tool_signal, sp_mcp_tool_resize, sp_mcp_tool_explain, sp_mcp_tool_patch,
    sp_mcp_tool_permissions, sp_mcp_tool_unified_exec;

/* ---- tool.c ---- */

static inline const struct sp_mcp_options *sp_mcp_run_options(const struct sp_mcp_run *r)
{
    return sp_mcp_options(r->caller->mcp);
}

static inline struct sp_str sp_mcp_view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

/* The loop ends the run with this text, an error for the model. The run has no data yet. */
SP_PRINTF(3, 4)
int sp_mcp_tool_refuse(struct sp_mcp_run *r, struct sp_err *e, const char *fmt, ...);
/* The same for arguments that could not be read: *e says why, and is -SP_E_SYSTEM's own. */
int sp_mcp_tool_refuse_arguments(struct sp_mcp_run *r, struct sp_err *e);
/* Reads an object into slots; an empty text is an empty one. */
int sp_mcp_tool_read_arguments(struct sp_arguments *a, struct sp_str text, struct sp_slots slots,
                               struct sp_err *e);
/* "SIGTERM" for 15; `room` is for numbers without a name. */
const char *sp_mcp_signal_name(int number, char room[16]);
const char *sp_mcp_end_reason_name(enum sp_end_reason r); /* NULL: it lives */
/* Its output is open a moment longer than it lives: held is what somebody holds. */
bool sp_mcp_is_held(bool is_output_held, const struct sp_look *look);
/* What it is doing; look NULL: nobody can tell. */
const char *sp_mcp_state_name(bool has_exited, bool is_output_held, const struct sp_look *look);
/* A copy with a NUL behind it, to be freed; NULL: no memory. */
char *sp_mcp_tool_copy(struct sp_str s);
/* Where commands of the first environment run: absolute, or NULL if nobody here knows. */
const char *sp_mcp_tool_cwd(const struct sp_mcp *m);
/* The first one if id.p is NULL; NULL: there is none of that name. */
const struct sp_environment_spec *sp_mcp_tool_environment(const struct sp_mcp *m, struct sp_str id);
/* Of first attempts there; NULL: no sandbox. */
const struct sp_policy *sp_mcp_tool_policy(const struct sp_mcp *m,
                                           const struct sp_environment_spec *environment);
static inline bool sp_mcp_tool_is_remote(const struct sp_mcp *m,
                                         const struct sp_environment_spec *environment)
{
    return environment != NULL && sp_mcp_options(m)->manager->environment_count > 1
               ? environment->is_remote
               : sp_mcp_options(m)->is_remote;
}
/* `,"output":...`, or nothing where the host shows its model the text. false: no memory. */
bool sp_mcp_run_add_output(struct sp_buf *out, const struct sp_mcp_run *r, struct sp_str output);
/* Why an answer comes before its deadline. */
#define SP_MCP_EARLY                                                                              \
    "the host sent no progress token, so this call could wait no longer; call write_stdin again " \
    "to go on waiting"
/* The run ends: nothing else can be said. */
void sp_mcp_tool_no_memory(struct sp_mcp_run *r);
/* For an id that means nothing: what to do about it. */
#define SP_MCP_UNKNOWN_HINT                                                                        \
    "A session is known until its end was told, and its output for a while longer; list_sessions " \
    "names those that there are."

/* ---- tool_denial.c ---- */

struct sp_mcp_denial {
    const char *access; /* "write", "connect", or a system call */
    const char *target; /* a path or a host; "": not known */
    const char *rule;   /* what in the policy says so */
    const char *layer, *evidence;
    const char *amendment; /* JSON; NULL: nothing to propose */
};

#define SP_MCP_DENIALS_MAX 16
struct sp_mcp_denials {
    struct sp_mcp_denial items[SP_MCP_DENIALS_MAX];
    uint32_t count;
    struct sp_keep keep;
};
void sp_mcp_denials_done(struct sp_mcp_denials *d);

/* What is known of one process. */
struct sp_mcp_denied {
    const struct sp_exit *kernel;         /* NULL: not known */
    const struct sp_denial_facts *denial; /* NULL: none */
    bool was_denied;
    struct sp_str cwd;       /* n 0: not known */
    const char *environment; /* its id; NULL: the first */
    /* For what is denied by an executor that does not tell what. */
    struct sp_str output;
    int exit_code;
};
/* false: no memory. */
bool sp_mcp_denials_find(struct sp_mcp_denials *d, const struct sp_mcp *m,
                         const struct sp_mcp_denied *what);
/* A path under the policy, whoever tried it; *ret says all of it. */
int sp_mcp_denials_of_path(struct sp_mcp_denials *d, const struct sp_mcp *m,
                           const struct sp_environment_spec *where, const char *path,
                           struct sp_explained *ret, struct sp_err *e);
bool sp_mcp_denials_of_host(struct sp_mcp_denials *d, const struct sp_mcp *m, const char *host,
                            const char *rule);
/* `"denials":[...]` */
bool sp_mcp_denials_add_json(struct sp_buf *out, const struct sp_mcp_denials *d);
/* "write /etc/hosts: entry 0 (...)" */
bool sp_mcp_denial_add(struct sp_buf *out, const struct sp_mcp_denial *x);
/* `Sandbox denied: ...` lines, three at most and then how many more. */
bool sp_mcp_denials_add_lines(struct sp_buf *out, const struct sp_mcp_denials *d);

/* ---- tool_until.c ---- */

struct sp_mcp_until {
    struct sp_until items[SP_UNTIL_COUNT_MAX]; /* patterns point into the arguments */
    uint32_t count;
};
/* SP_JSON_NONE: none given. SP_E_INVALID says what is wrong. */
int sp_mcp_until_read(struct sp_json *j, uint32_t token, struct sp_mcp_until *ret,
                      struct sp_err *e);
/* What ended a wait: the condition of this index; -1: the deadline, or the end of the process. */
bool sp_mcp_until_add_text(struct sp_buf *out, const struct sp_mcp_until *u, int woken_by,
                           bool has_exited);
bool sp_mcp_until_add_json(struct sp_buf *out, const struct sp_mcp_until *u, int woken_by,
                           bool has_exited);

/* ---- tool_result.c ---- */

/* A call about a process, exec_command's or write_stdin's, from its arguments to its answer. */
struct sp_mcp_work {
    struct sp_mcp_run *run;
    struct sp_arguments arguments; /* what the ask points into */
    struct sp_mcp_until until;
    struct sp_exec_ask exec;
    struct sp_write_ask write;
    struct sp_str id;                /* its key or write id; n 0: none */
    struct sp_mcp_memory_item *item; /* that it is remembered by; NULL: none */
    struct sp_mcp_memory_wait wait;  /* for the call that has the same key */
    struct sp_buf typed;             /* characters and keys; of argv, how it is shown */
    struct sp_reply reply;           /* what it points to is below */
    struct sp_buf output;
    char chunk_id[16];
    struct sp_mcp_denials denials;
    struct sp_mcp_glance *glance;
};
/* The run's data from now on. NULL: no memory. */
struct sp_mcp_work *sp_mcp_work_new(struct sp_mcp_run *r);

/* The loop ends the run with this and what *e says; -SP_E_SYSTEM stays what it is. */
int sp_mcp_work_refuse(struct sp_mcp_work *c, const char *prefix, struct sp_err *e);
/* Answers with what the manager replied, or with what is known of a process whose end was answered
 * before. Both end the run, the first perhaps a little later. */
void sp_mcp_work_answer(struct sp_mcp_work *c, const struct sp_reply *reply);
void sp_mcp_work_answer_view(struct sp_mcp_work *c, const struct sp_manager_view *v);

/* ---- tool_keys.c ---- */

/* Appends what a terminal would send for each name: one token, a string of names or an array of
 * them. SP_E_INVALID: which is none. */
int sp_mcp_keys_add(struct sp_buf *out, struct sp_json *j, uint32_t token, struct sp_err *e);

#endif
