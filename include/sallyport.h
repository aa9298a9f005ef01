/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sallyport: run commands from a program, here or on another machine, with or without a sandbox.
 *
 * An engine starts commands and keeps them. sp_engine_exec answers when the command ends or after
 * yield_ms, whichever is first. A command that still runs then has a session, a small number, for
 * typing, polling, waiting and terminating. sp_engine_run has a time-out instead and answers when
 * the command has ended. Events report all output while it is printed.
 *
 * An engine has no thread, no signal handler and no global state, and prints nothing. It may be
 * used by one thread at a time; a program may have several engines. Put its descriptor into your
 * event loop and call sp_engine_dispatch when it is readable; or call sp_engine_dispatch with a
 * time-out. Your functions are called from within sp_engine_dispatch and nowhere else.
 *
 *     struct sp_engine_options options = {.size = sizeof options};
 *     struct sp_engine *engine;
 *     struct sp_error error;
 *
 *     if (sp_engine_new(&options, &engine, &error) < 0)
 *         errx(1, "%s", error.msg);
 *
 * Structs that you fill begin with their size; members that you do not set are zero. Structs that
 * you are given begin with their size, too. They only grow at their end, so a program that was
 * built with an older header keeps working. What you pass is copied; what you are given is valid
 * until your function returns. Functions return 0, or minus an enum sp_error_code and a description
 * in *e (which may be NULL).
 *
 * examples/ has three small programs; the manual page is libsallyport(3).
 */
#ifndef SALLYPORT_H
#define SALLYPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SP_API __attribute__((visibility("default")))

/* ---- errors ---- */

enum sp_error_code {
    SP_ERROR_NONE = 0,
    SP_ERROR_STATE = 2,     /* not allowed now: from a callback, after a fork ... */
    SP_ERROR_INVALID = 4,   /* an argument, an option or the configuration is wrong */
    SP_ERROR_NOT_FOUND = 5, /* no such session, call, program, file */
    SP_ERROR_LIMIT = 7,     /* a limit of the library was reached */
    SP_ERROR_SYSTEM = 8,    /* a system call failed: sys is its errno */
    SP_ERROR_FAILED = 9     /* anything else; other numbers mean the same */
};

/* Lives on your stack; its size never changes. */
struct sp_error {
    int code; /* enum sp_error_code */
    int sys;  /* errno of a failed system call, else 0 */
    char msg[400];
};

/* ---- events ---- */

/* For one command: STARTED, then OUTPUT and INPUT, then ENDED, once and last. ENDED may come long
 * after the call was answered. */
enum sp_event_kind {
    SP_EVENT_STARTED = 0,
    SP_EVENT_OUTPUT = 1,
    SP_EVENT_INPUT = 2, /* a write, or a poll */
    SP_EVENT_ENDED = 3,
    SP_EVENT_WARNED = 4, /* about the engine as a whole, e.g. that many sessions are open */
    SP_EVENT_NOTED = 5   /* about a call, before its answer: "Execution failed: ..." before the
                            question for a second attempt, then "retrying command without sandbox".
                            Later versions may add kinds: ignore unknown ones */
};

enum sp_output_stream { SP_OUTPUT_STDOUT = 0, SP_OUTPUT_STDERR = 1 };

/* A number of a receipt that is not known. */
#define SP_RECEIPT_UNKNOWN UINT64_MAX

/* What a command consumed, and why it ended. */
struct sp_receipt {
    size_t size;
    /* "exit", "signal", "terminated", "session_end", "memory_limit", "cpu_limit", "wall_limit",
     * "output_limit" or "lost"; later versions may add words. */
    const char *reason;
    uint64_t wall_ms;                           /* from the start to the end */
    uint64_t user_ms, system_ms;                /* of it and of descendants that were waited for */
    uint64_t max_rss_bytes;                     /* of the largest process */
    uint64_t peak_memory_bytes, peak_processes; /* of the whole tree */
    uint64_t read_bytes, written_bytes;         /* of storage */
    uint64_t voluntary_switches, involuntary_switches;
    uint64_t major_faults;
    uint64_t stdout_bytes, stderr_bytes, pty_bytes; /* written */
    uint64_t dropped_bytes;                         /* of these, forgotten by the executor */
};

struct sp_event {
    size_t size;
    enum sp_event_kind kind;
    int session;    /* 0 for a run */
    uint64_t call;  /* the call that started the command */
    int64_t at_ms;  /* STARTED, ENDED: when, in milliseconds since 1970 */
    uint64_t ns;    /* ENDED: duration in nanoseconds */
    int exit_code;  /* ENDED: as in struct sp_answer */
    bool is_failed; /* ENDED: killed, or exit code not 0 */

    const char *const *argv; /* STARTED, ENDED; NULL at the end */
    const char *cwd;         /* STARTED, ENDED */

    /* OUTPUT: printed bytes, cut between characters. INPUT: written bytes, none for a poll. ENDED:
     * the whole output as text, without the middle if it is more than 1 MiB. WARNED, NOTED: a text.
     * Not NUL-terminated. */
    const char *bytes;
    size_t byte_count;
    enum sp_output_stream stream;     /* OUTPUT: of a run; sessions do not tell them apart */
    const struct sp_receipt *receipt; /* ENDED; NULL: nothing is known */
};

/* ---- questions ---- */

enum sp_question_topic {
    SP_QUESTION_UNCONFINED = 0, /* a call asks to run without the sandbox, for `reason` */
    SP_QUESTION_TRY_AGAIN = 1,  /* the sandbox made the command fail: retry without it? */
    SP_QUESTION_MAY_RUN = 2,    /* a rule or the policy requires approval: may it run at all? */
    SP_QUESTION_MORE = 3,       /* a call asks for additional permissions: see json */
    SP_QUESTION_CHANGES = 4,    /* a patch wants to change files: see json */
    SP_QUESTION_HOST = 5,       /* a command wants to reach a host that is not listed: see json */
    SP_QUESTION_FROM_NOW_ON = 6 /* permissions for all later commands: see json. YES lasts for the
                                   turn, FOR_SESSION as long as the engine lives */
};

struct sp_question {
    size_t size;
    uint64_t id; /* for sp_engine_reply */
    enum sp_question_topic topic;
    uint64_t call;
    const char *reason;
    const char *command; /* as typed into a shell */
    const char *const *argv;
    const char *cwd;
    bool is_unconfined;      /* YES runs the command without a sandbox */
    const char *const *rule; /* RULE allows all commands that begin with these words; NULL at the
                                end; NULL: no rule is offered */
    const char *json;        /* all details; NULL: out of memory */
};

enum sp_consent {
    SP_CONSENT_YES = 0,
    SP_CONSENT_NO = 1,          /* the call is refused; the agent may try something else */
    SP_CONSENT_ABORT = 2,       /* no, and stop: all other calls are cancelled */
    SP_CONSENT_FOR_SESSION = 3, /* yes, and this engine does not ask the same again */
    SP_CONSENT_RULE = 4         /* yes, and the offered rule is saved; without one: no */
};

/* ---- the engine ---- */

struct sp_engine;

struct sp_engine_options {
    size_t size;
    /* The program `sallyport` of the same version, which becomes the parent of local commands.
     * NULL: $SALLYPORT_PROGRAM, else the one that was installed with this library. */
    const char *program;
    const char *config;  /* a configuration file; NULL: the usual places; "/dev/null": none */
    const char *on;      /* "local", the name of an environment, or ws://... or unix://...; NULL: as
                            configured, else local */
    const char *sandbox; /* a permissions profile or a mode; NULL: as configured, else none */
    const char *approve; /* "never", "on-request", "on-failure", "untrusted", or the JSON
                            {"granular":{...}}; NULL: as configured */
    void *user;          /* passed to the two functions below */
    void (*event)(void *user, const struct sp_event *event);     /* NULL: no events */
    void (*ask)(void *user, const struct sp_question *question); /* NULL: the approver of
                                                                     the configuration */
    const char *cwd; /* working directory of commands; NULL: that of this process (remote: of the
                        server) */
    /* Listens on a private unix socket of this user: `sallyport ps`, `logs`, `attach`, `kill` and
     * `wait` then reach the commands that run on this machine, and `sallyport approvals` answers
     * what `ask` is asked; the first answer counts. Nothing can be started there. One engine of a
     * process can listen. */
    bool has_local_socket;
};

SP_API int sp_engine_new(const struct sp_engine_options *options, struct sp_engine **ret,
                         struct sp_error *e);

/*
 * Ends every command and frees the engine. No function of yours is called any more: calls without
 * an answer never get one. From within one of your functions, the engine is freed when
 * sp_engine_dispatch returns. In the child of a fork it does nothing. NULL is allowed.
 */
SP_API void sp_engine_free(struct sp_engine *engine);

/* Readable (POLLIN) if and only if sp_engine_dispatch has work. The descriptor never changes and
 * belongs to the engine: poll it, but do not read or close it. */
SP_API int sp_engine_fd(const struct sp_engine *engine);

/*
 * Does pending work and calls your functions. If there is none, waits for some: 0: not at all; -1:
 * without a limit. A signal ends the wait. Must not be called from within one of your functions.
 */
SP_API int sp_engine_dispatch(struct sp_engine *engine, int timeout_ms, struct sp_error *e);

/* The version of the library in use, "0.1.0". */
SP_API const char *sp_engine_version(void);

/* ---- environments ---- */

/*
 * An engine starts with one environment, "primary", made of its options: a machine, a working
 * directory and a sandbox. More can be added, each with a name; a command selects one with
 * `environment`, or `environment_id` in the arguments of a tool. An approval or a grant counts for
 * its environment alone.
 */
struct sp_environment_options {
    size_t size;
    const char *name;    /* 1 to 64 letters, digits, - and _; NULL: "primary" */
    const char *on;      /* as in sp_engine_options; NULL: unchanged; for a new one: the environment
                            of this name in the configuration, else local */
    const char *sandbox; /* the same; NULL: unchanged; for a new one: that of the primary one */
    const char *cwd;     /* the same; NULL: unchanged; for a new one: as for an engine */
};

/*
 * Adds an environment, or changes one for later commands; running commands keep theirs. At most 64
 * environments.
 */
SP_API int sp_engine_update_environment(struct sp_engine *engine,
                                        const struct sp_environment_options *options,
                                        struct sp_error *e);
/* Kills its sessions. The primary one cannot be removed: NOT_FOUND. */
SP_API int sp_engine_remove_environment(struct sp_engine *engine, const char *name,
                                        struct sp_error *e);

/* ---- calls ---- */

/* How a call ended. */
enum sp_outcome {
    SP_OUTCOME_RUNNING = 0,   /* the command still runs, as `session` */
    SP_OUTCOME_EXITED = 1,    /* `exit_code` */
    SP_OUTCOME_SIGNALLED = 2, /* killed by `signal`; exit_code is 128 + signal */
    SP_OUTCOME_TIMED_OUT = 3, /* a run was killed by its time-out; exit_code is 124 */
    SP_OUTCOME_CANCELLED = 4, /* the call was cancelled; a session goes on, a run was killed */
    SP_OUTCOME_REFUSED = 5,   /* by a person or a policy: nothing ran; or, with `was_denied`, a
                                 retry was refused: exit_code and output are the first attempt's */
    SP_OUTCOME_UNKNOWN = 6,   /* no such session: it never existed, or its end was reported */
    SP_OUTCOME_FAILED = 7,    /* could not be started or written to, or the connection was lost */
    SP_OUTCOME_DONE = 8       /* terminate: killed; request_permissions: granted */
};

struct sp_answer {
    size_t size;
    uint64_t call;
    enum sp_outcome outcome;
    int session;          /* RUNNING; else 0 */
    int exit_code;        /* 0 to 255; 128 + signal; 1: a cancelled run; -1: unknown, or still
                             running */
    int signal;           /* that killed it; 0: none, or the server does not tell */
    bool was_denied;      /* the sandbox made it fail, as far as is known */
    bool has_lost_output; /* the server dropped output before it could be read */
    uint64_t wall_ns;     /* from the start or the write to this answer */

    /*
     * Output since the last answer about the session: UTF-8, with U+FFFD for invalid bytes, and
     * without the middle (marked) if it is more than 1 MiB. Of a run: unchanged bytes, the first
     * MiB of stdout, then of stderr; `out` and `err` have each stream alone. Not NUL-terminated.
     */
    const char *output;
    size_t output_size;
    const char *out;
    size_t out_size;
    const char *err;
    size_t err_size;
    uint64_t omitted;  /* bytes left out */
    uint64_t from, to; /* byte range in the whole output of the session */

    /* The answer as text for a language model: at most about max_tokens tokens. */
    const char *text;
    size_t text_size;
    const char *error; /* REFUSED, UNKNOWN, FAILED: why; else NULL */
    const char *json;  /* call_tool: the structured answer, an object; NULL: none */
    /* Hosts that the command reached through its managed network, and those that it was denied:
     * {"reached":[...],"denied":[...],"truncated":false}; NULL: none. Up to this answer. */
    const char *network_json;
    const struct sp_receipt *receipt; /* of a command that has ended; NULL: nothing is known */
    /* Limits that the ended command reached: [{"limit":"memory","value":536870912,"count":1,
     * "leader":true}]; NULL: none. */
    const char *limits_json;
};

/* Called once for each call. */
typedef void sp_answer_fn(void *user, const struct sp_answer *answer);

/*
 * What a command may consume; 0: no limit of its own. The configuration ([limits]) may have lower
 * ones, which cannot be raised. If the machine cannot enforce one for all processes of the command
 * together, the answer is FAILED, unless is_best: then it is enforced for each process alone, or
 * not at all.
 */
struct sp_limits {
    size_t size;
    uint64_t memory_bytes; /* at least 16 MiB */
    uint64_t pids;         /* processes and threads */
    double cpus;           /* processors, as 1.5 */
    uint64_t cpu_ms;       /* CPU time */
    uint64_t wall_ms;
    uint64_t output_bytes;
    uint64_t open_files;      /* of each process */
    uint64_t file_size_bytes; /* that a process writes */
    bool is_best;
};

struct sp_exec_options {
    size_t size;
    const char *script;      /* for the shell, ... */
    const char *const *argv; /* ... or a program and its arguments, NULL at the end: give one */
    const char *cwd;         /* relative to the engine's; NULL: that one */
    const char *const *env;  /* additional NAME=VALUE, NULL at the end; NULL: none */
    const char *shell;       /* a path; NULL: the user's login shell */
    bool is_tty;             /* on a terminal of rows x cols (0: 24 x 80); else on pipes ... */
    bool has_stdin;          /* ... with an open stdin; else /dev/null */
    bool is_no_login;        /* a script: not in a login shell */
    bool is_unconfined;      /* without a sandbox, if `ask` consents */
    uint16_t rows, cols;
    uint64_t yield_ms;       /* the answer comes at the latest then: 250 to 30000; 0: 10000 */
    uint64_t max_tokens;     /* of the answer's text; 0: as configured */
    const char *reason;      /* with is_unconfined: text of the question; NULL: none */
    const char *environment; /* NULL: the primary one */
    const struct sp_limits *limits; /* NULL: none of its own */
};

/*
 * Each of the following begins a call and returns. The answer goes to fn (NULL: it is dropped) with
 * `user`. *ret_call (may be NULL) is the number of the call, which is never reused.
 *
 * At most 64 sessions are kept: one more kills the least recently used one, exited ones first.
 */
SP_API int sp_engine_exec(struct sp_engine *engine, const struct sp_exec_options *options,
                          sp_answer_fn *fn, void *user, uint64_t *ret_call, struct sp_error *e);

/*
 * Writes to a session and answers with its output within yield_ms (250 to 30000; 0: 250), or when
 * it ends. n = 0 is a poll: 5000 to 300000 ms; 0: 5000. Calls about one session are queued; but a
 * write ends a poll or a wait that is under way.
 *
 * The first answer that reports the end of the command is the last one: then the number is free.
 */
SP_API int sp_engine_write(struct sp_engine *engine, int session, const void *bytes, size_t n,
                           uint64_t yield_ms, sp_answer_fn *fn, void *user, uint64_t *ret_call,
                           struct sp_error *e);

/* Answers when the session ends, without a time-out; RUNNING if a write comes in between. */
SP_API int sp_engine_wait(struct sp_engine *engine, int session, sp_answer_fn *fn, void *user,
                          uint64_t *ret_call, struct sp_error *e);

/* Kills a session and its descendants: DONE, or UNKNOWN. Other calls that wait for the session are
 * answered, too. */
SP_API int sp_engine_terminate(struct sp_engine *engine, int session, sp_answer_fn *fn, void *user,
                               uint64_t *ret_call, struct sp_error *e);

#define SP_FOREVER (~(uint64_t)0)

struct sp_run_options {
    size_t size;
    const char *const *argv; /* NULL at the end; no shell: {"sh", "-c", script, NULL} is one */
    const char *cwd;         /* relative to the engine's; NULL: that one */
    const char *const *env;  /* additional NAME=VALUE, NULL at the end; NULL: none */
    uint64_t timeout_ms;     /* 0: 10000; SP_FOREVER: none */
    bool keeps_all;          /* keeps all output instead of 1 MiB, and has no time-out */
    bool is_silent;          /* no events */
    const char *environment; /* NULL: the primary one */
    const struct sp_limits *limits; /* NULL: none of its own */
};

/*
 * Runs a command to its end on pipes, without stdin. Its time-out and sp_engine_cancel kill all of
 * its descendants. Background processes of a command that exits by itself run until the engine is
 * freed.
 */
SP_API int sp_engine_run(struct sp_engine *engine, const struct sp_run_options *options,
                         sp_answer_fn *fn, void *user, uint64_t *ret_call, struct sp_error *e);

/* ---- tools of a language model ---- */

/*
 * The tools that an agent can offer its model: exec_command and write_stdin, and, if the
 * configuration enables them (features.exec_permission_approvals, features.unified_exec),
 * request_permissions and unified_exec. fn is called once, before this returns, with a JSON array
 * of {"type":"function","name","description","strict","parameters","output_schema"}.
 */
SP_API int sp_engine_tools(struct sp_engine *engine,
                           void (*fn)(void *user, const char *json, size_t n), void *user,
                           struct sp_error *e);

struct sp_tool_options {
    size_t size;
    const char *tool;      /* its name */
    const char *arguments; /* a JSON object, as the model wrote it */
    const char *turn;      /* the turn of the conversation, any text: a grant for a turn counts for
                              calls with the same text; NULL: grants are for the session only */
};

/*
 * Calls a tool. The answer's `text` is for the model, also if the arguments are wrong (FAILED); its
 * `json` is the same for programs. NOT_FOUND: the tool is unknown or not enabled.
 */
SP_API int sp_engine_call_tool(struct sp_engine *engine, const struct sp_tool_options *options,
                               sp_answer_fn *fn, void *user, uint64_t *ret_call,
                               struct sp_error *e);

/* ---- functions that are done when they return ---- */

/* The call is answered with CANCELLED. A command that had not started yet is killed. */
SP_API int sp_engine_cancel(struct sp_engine *engine, uint64_t call, struct sp_error *e);

/* Answers a question, also from within `ask`. The call waits until then. An answer to a question
 * that is not open (any more) is ignored. */
SP_API int sp_engine_reply(struct sp_engine *engine, uint64_t question, enum sp_consent consent,
                           struct sp_error *e);

/* End of file for a command with has_stdin, after pending input; a terminal gets ^D. */
SP_API int sp_engine_close_stdin(struct sp_engine *engine, int session, struct sp_error *e);
SP_API int sp_engine_resize(struct sp_engine *engine, int session, uint16_t rows, uint16_t cols,
                            struct sp_error *e);
/* To the command and what it has started, but for what has left its process group. */
SP_API int sp_engine_signal(struct sp_engine *engine, int session, int signal, struct sp_error *e);

struct sp_session_info {
    size_t size;
    int session;
    uint64_t call;
    const char *command, *cwd;
    bool is_tty;
    const char *environment; /* its name */
};
/* Calls fn for each running session, by number, before it returns. */
SP_API int sp_engine_list(struct sp_engine *engine,
                          void (*fn)(void *user, const struct sp_session_info *info), void *user,
                          struct sp_error *e);

/* Kills every session; calls that wait for one are answered. Runs continue. */
SP_API int sp_engine_terminate_all(struct sp_engine *engine, struct sp_error *e);

/*
 * Stops the clock of all calls, for example while you ask a person something: no call is answered,
 * and yield_ms is extended by the pause. Pauses nest. A question that went to `ask` pauses by
 * itself, for at most 60 s.
 */
SP_API int sp_engine_pause(struct sp_engine *engine, struct sp_error *e);
SP_API int sp_engine_unpause(struct sp_engine *engine, struct sp_error *e);

#ifdef __cplusplus
}
#endif

#endif
