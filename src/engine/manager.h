/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager: the processes of one conversation, and the calls that a model makes about them
 * (unified-exec.md 2 to 7): exec_command starts one and waits a bounded time, write_stdin types or
 * polls. A call is a state machine on the loop: STARTING, COLLECTING, ANSWERED.
 *
 * Asked in C terms; src/tools/ reads a model's JSON into these and writes the replies.
 */
#ifndef SP_ENGINE_MANAGER_H
#define SP_ENGINE_MANAGER_H

#include "approve/approvals.h"
#include "engine/answer.h"
#include "engine/event.h"
#include "engine/job.h"
#include "engine/yield.h"

struct sp_manager;
struct sp_snapshots;

#define SP_ENVIRONMENTS_MAX 64

/* A place to run commands in. The first is the primary one. */
struct sp_environment_spec {
    const char *id;
    struct sp_backend *backend; /* borrowed; outlives its use, see sp_manager_uses */
    const char *cwd;            /* absolute, of that host; NULL: the backend's */
    bool is_remote;             /* for whoever describes it */
    bool has_own_policy;        /* the next two count; else those of the manager's options */
    const struct sp_policy *policy;
    const char *policy_name;
};

/* What ends a wait before its deadline, besides the end of the process. */
enum sp_until_kind {
    SP_UNTIL_EXIT, /* which always does */
    /* In output that no call has answered yet, wherever chunks begin and end. A line that has no
     * end (a prompt) counts as ended after a moment of silence. */
    SP_UNTIL_PATTERN,
    SP_UNTIL_QUIET, /* no output for so long, since the wait began */
    SP_UNTIL_PORT,  /* a process of its tree listens on this TCP port */
};
struct sp_until {
    enum sp_until_kind kind;
    struct sp_str pattern; /* base/ere.h */
    uint64_t quiet_ms;
    uint16_t port;
};
#define SP_UNTIL_COUNT_MAX 8 /* of one call, and so many of them ports */

struct sp_exec_ask {
    struct sp_str call_id, turn_id;
    struct sp_str cmd;         /* a script for the shell, ... */
    const struct sp_str *argv; /* ... unless argc > 0: then no shell */
    struct sp_str workdir;     /* empty: the environment's */
    struct sp_yield_ask yield;
    uint64_t max_tokens;
    struct sp_str shell;               /* p NULL: the user's */
    struct sp_str environment_id;      /* p NULL: the primary one */
    const struct sp_grant *additional; /* NULL: none given */
    struct sp_str justification;       /* p NULL: none */
    const struct sp_str *prefix_rule;
    struct sp_environ_vars env; /* over everything but the marks of the sandbox */
    const struct sp_until *until;
    uint64_t timeout_ms; /* after its start the tree is killed; 0: never */
    uint32_t argc, prefix_rule_count, until_count;
    uint32_t inherited_fds;
    enum sp_permissions permissions;
    uint16_t rows, cols; /* of a terminal; 0: 24 x 80 */
    bool is_tty;
    bool is_compat; /* the times of the old unified_exec tool */
    bool has_max_tokens;
    bool has_login, login;
    bool has_permissions;
    bool wants_stdin;    /* on pipes: stdin is open, and characters are typed into it */
    bool waits_for_end;  /* no deadline at all */
    bool nobody_answers; /* no person can be asked about this call, though perhaps about others */
};

struct sp_write_ask {
    struct sp_str call_id;
    int session_id;
    struct sp_str chars; /* empty: a poll */
    bool is_compat;
    struct sp_yield_ask yield;
    bool no_timeout;
    bool has_max_tokens;
    uint64_t max_tokens;
    const struct sp_until *until;
    uint32_t until_count;
};

/* Why a process is no more. */
enum sp_end_reason {
    SP_END_NONE, /* it lives */
    SP_END_EXIT,
    SP_END_SIGNAL,
    SP_END_TIMEOUT,    /* of its own timeout_ms */
    SP_END_TERMINATED, /* by sp_manager_terminate, or pruned */
    SP_END_IDLE,       /* nobody used it for idle_ttl_ms */
    SP_END_LOST,       /* its executor is gone */
};

/* More than commands may do, for a while (approvals.md 9.3). */
struct sp_permissions_ask {
    struct sp_str call_id, turn_id;
    struct sp_str environment_id; /* p NULL: the primary one */
    struct sp_str reason;         /* n 0: none */
    const struct sp_grant *permissions;
};

/* Why a call failed; the texts are unified-exec.md 3.4 and 3.7. */
enum sp_fault {
    SP_FAULT_NONE,
    SP_FAULT_ARGUMENTS, /* 3.4; no prefix */
    SP_FAULT_UNKNOWN,
    SP_FAULT_STDIN_CLOSED,
    SP_FAULT_WRITE,
    SP_FAULT_CREATE,
    SP_FAULT_REJECTED,
    SP_FAULT_FAILED,
    SP_FAULT_ABORTED, /* the call was cancelled */
};

/* How a call ended. Borrowed for the call of sp_reply_fn. */
struct sp_reply {
    enum sp_fault fault;
    struct sp_str text;           /* what a model reads: the answer, or the error with its prefix */
    struct sp_exec_answer answer; /* without a fault */
    bool has_max_tokens;          /* as the caller asked: the structured form needs it */
    uint64_t max_tokens;
    bool was_denied;     /* by the sandbox, as far as can be told */
    int process_id;      /* of the process it was about, also if that has ended; 0: none */
    int signal;          /* that ended it; 0: none or not known */
    uint64_t from, to;   /* which bytes of the process's whole output the answer covers */
    struct sp_str error; /* with a fault: the text without the tool's prefix */
    int woken_by;        /* which of its `until`; -1: its deadline, or none given, or (if it
                          * has_exited) the exit though that was not among them */
    bool has_exited;     /* the process has, also if somebody holds its output open ... */
    bool is_output_held; /* ... which is this */
    bool has_typed;      /* its characters have gone to the process, or may have */
    enum sp_end_reason end_reason;
    const struct sp_denial_facts *denial;   /* NULL: nothing points to one */
    const struct sp_patch_changes *changes; /* of a patch that was applied; else NULL. Borrowed */
    const struct sp_exit *kernel; /* all that the kernel said of its end; NULL: not known */
};
typedef void sp_reply_fn(void *user, const struct sp_reply *reply);

struct sp_manager_ops {
    void (*event)(void *user, const struct sp_exec_event *e); /* NULL: nobody watches */
    /* Must lead to sp_manager_decide, now or later; the question is there until then. NULL: the
     * approver of the options; neither: nobody answers. */
    void (*ask)(void *user, const struct sp_approval_question *q);
    void (*withdraw)(void *user,
                     uint64_t question); /* nobody wants to know any more; may be NULL */
    /* May take a command over before it is spawned: true, with its text in *out. NULL: never. */
    bool (*intercept)(void *user, const struct sp_exec_ask *ask, struct sp_buf *out);
};

struct sp_manager_options {
    struct sp_loop *loop;
    const struct sp_environment_spec *environments; /* copied; none: every exec is refused (C1) */
    uint32_t environment_count;
    const struct sp_manager_ops *ops;
    void *user;

    bool has_deterministic_ids;
    uint64_t poll_max_ms;                 /* 0: the default */
    struct sp_allowance output_allowance; /* limit 0 and bytes: the default, 10,000 tokens */
    uint32_t notify_at;                   /* 0: never */
    bool hides_denied_start;              /* report_denied_start is off */
    uint64_t exited_ttl_ms;               /* of exited entries that nobody polls; 0: for ever */
    uint64_t idle_ttl_ms; /* live ones that no call uses for so long end; 0: never */
    /* What ended can still be read (sp_manager_view) for exited_ttl_ms after its exit was answered;
     * its id is not given away meanwhile. The oldest go when there are more than 256 of them, or
     * more than 64 MiB of their output. */
    bool remembers_ended;
    bool refuses_login_shell;        /* allow_login_shell is off */
    bool has_additional_permissions; /* the feature exec_permission_approvals */
    bool has_no_timeout;             /* the feature write_stdin_no_timeout */
    bool keeps_line_endings;         /* preserve_line_endings: of files that patches change */
    /* What may run, and who says so; its loop, warn and user are the manager's. */
    struct sp_approvals_options approvals;
    const struct sp_policy *policy;       /* of first attempts; copied; NULL: no sandbox */
    const char *policy_name;              /* for CODEX_PERMISSION_PROFILE; NULL: none */
    const char *thread_id, *session_id;   /* NULL: none */
    const struct sp_environ_ask *environ; /* own, policy, set, never_seen; copied deeply */
    struct sp_snapshots *snapshots;       /* NULL: the feature shell_snapshot is off */
    uint64_t write_yield_default_ms;      /* 0: 250 */
};

int sp_manager_new(const struct sp_manager_options *o, struct sp_manager **ret, struct sp_err *e);
/* Terminates all, answers every call (aborted) and frees; end events are told. Not from within one
 * of its own callbacks. */
void sp_manager_free(struct sp_manager *m);

/*
 * Each begins a call and returns its number; fn is called once, from the loop. What an ask holds is
 * copied. They fail only without memory, or while the manager is being freed; everything else is a
 * reply.
 */
int sp_manager_exec(struct sp_manager *m, const struct sp_exec_ask *ask, sp_reply_fn *fn,
                    void *user, uint64_t *ret_call, struct sp_err *e);
int sp_manager_write(struct sp_manager *m, const struct sp_write_ask *ask, sp_reply_fn *fn,
                     void *user, uint64_t *ret_call, struct sp_err *e);

/* Its reply's text is what was granted, as JSON (approvals.md 12.3). */
int sp_manager_request_permissions(struct sp_manager *m, const struct sp_permissions_ask *ask,
                                   sp_reply_fn *fn, void *user, uint64_t *ret_call,
                                   struct sp_err *e);

/* A call whose arguments nobody could read: answered with SP_FAULT_ARGUMENTS and this text, which
 * is copied, from the loop like any other. */
int sp_manager_refuse(struct sp_manager *m, struct sp_str text, sp_reply_fn *fn, void *user,
                      uint64_t *ret_call, struct sp_err *e);

/* One call, or all of them (the turn was interrupted): answered as aborted. A process that is
 * stored lives on; one that is STARTING is killed. false: no such call. */
bool sp_manager_cancel(struct sp_manager *m, uint64_t call);
void sp_manager_interrupt(struct sp_manager *m);

/* The call waits no longer: it answers with what there is as soon as it has a process. */
void sp_manager_answer_now(struct sp_manager *m, uint64_t call);

/*
 * An environment of a new id is added; one of a known id is replaced for calls that begin from now
 * on: its processes live on as they are. All is copied. SP_E_LIMIT: there are too many.
 */
int sp_manager_set_environment(struct sp_manager *m, const struct sp_environment_spec *environment,
                               struct sp_err *e);
/* Its processes are terminated; calls under way go on. false: there is none, or it is the primary
 * one. */
bool sp_manager_remove_environment(struct sp_manager *m, const char *id);
uint32_t sp_manager_environment_count(const struct sp_manager *m);
/* Whether a call, a process or an environment still needs this backend. */
bool sp_manager_uses(const struct sp_manager *m, const struct sp_backend *b);

/* The answer to a question; one that is not asked any more: nothing happens. */
void sp_manager_decide(struct sp_manager *m, uint64_t question, const struct sp_decision *d);
/* All the manager knows of leave to run things: to change its rules, or to grant more. */
struct sp_approvals *sp_manager_approvals(struct sp_manager *m);

/* fn(user, true): it has been confirmed. Unknown id, or refused: false. From the loop. */
typedef void sp_manager_done_fn(void *user, bool was_done);
void sp_manager_terminate(struct sp_manager *m, int process_id, sp_manager_done_fn *fn, void *user);
void sp_manager_terminate_all(struct sp_manager *m);

/* Straight to the process, from the loop; no fn: nobody wants to know. */
void sp_manager_signal(struct sp_manager *m, int process_id, int signal, sp_manager_done_fn *fn,
                       void *user);
void sp_manager_resize(struct sp_manager *m, int process_id, uint16_t rows, uint16_t cols,
                       sp_manager_done_fn *fn, void *user);
void sp_manager_close_stdin(struct sp_manager *m, int process_id, sp_manager_done_fn *fn,
                            void *user);

/* Time stands still for the model while a person is asked something (4.9); counted. */
void sp_manager_pause(struct sp_manager *m);
void sp_manager_unpause(struct sp_manager *m);

/* Somebody outside found that the command broke a rule (4.10); message NULL: the default one. The
 * first one stays. false: no such process. */
bool sp_manager_fail(struct sp_manager *m, int process_id, const char *message);
/* Verdicts may come a little late: hold the judgement of an exit for up to 100 ms while open. */
bool sp_manager_watch_for_denial(struct sp_manager *m, int process_id, bool is_open);

struct sp_manager_entry {
    struct sp_str call_id;
    int process_id;
    struct sp_str command, cwd;
    bool is_tty;
    const char *environment; /* its id */
};
/* The live ones by id; each is borrowed for its call. */
void sp_manager_list(struct sp_manager *m, void (*fn)(void *user, const struct sp_manager_entry *e),
                     void *user);

/* All that is known of one process, live or remembered; borrowed until the loop goes on. */
struct sp_manager_view {
    int process_id;
    struct sp_str call_id, command, cwd;
    const char *environment;        /* its id */
    const struct sp_policy *policy; /* of its first attempt; NULL: no sandbox */
    bool is_remote;
    bool is_tty;
    int64_t started_at_ms; /* since 1970 */
    bool has_exited;
    bool is_output_held; /* ... and more of it may come; never of a remembered one */
    bool is_answered;    /* its exit was: write_stdin does not find it any more */
    int exit_code, signal;
    enum sp_end_reason end_reason;
    bool was_denied;
    const struct sp_denial_facts *denial;
    const struct sp_exit *kernel; /* NULL: not known */
    /* Its output: head, then `omitted` bytes that nobody has, then both parts of the tail. */
    struct sp_str head, tail[2];
    uint64_t omitted, total;
    uint64_t answered; /* bytes that calls have answered */
};
bool sp_manager_view(struct sp_manager *m, int process_id, struct sp_manager_view *ret);
/* Live and remembered ones, by id. */
void sp_manager_each(struct sp_manager *m, void (*fn)(void *user, const struct sp_manager_view *v),
                     void *user);

/* What it is doing; fn is called once, from the loop (at once only if there is no memory at all).
 * look NULL: nobody can tell. */
typedef void sp_manager_look_fn(void *user, const struct sp_look *look);
void sp_manager_look(struct sp_manager *m, int process_id, sp_manager_look_fn *fn, void *user);

uint32_t sp_manager_reserved(const struct sp_manager *m); /* ids in use */
uint32_t sp_manager_stored(const struct sp_manager *m);   /* entries */

#endif
