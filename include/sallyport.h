/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sallyport: run commands from a program, here or on another machine, with or without a sandbox.
 *
 * An engine starts commands and keeps them. A command that is started (exec) answers when it ends
 * or after a while, whichever is first; one that lives on has a session, a small number, and can be
 * typed into, polled, waited for and terminated. A command that is run (run) has a time-out instead
 * and answers when it has ended. Everything a command prints can be watched while it happens.
 *
 * An engine has no thread, no signal handler and no global state, and prints nothing. It belongs to
 * one thread at a time; a program may have several. Put its descriptor into your event loop and
 * call sp_engine_dispatch when it is readable; or have no loop and call sp_engine_dispatch with a
 * time. Your functions are called from within sp_engine_dispatch and nowhere else.
 *
 *     struct sp_engine_options options = {.size = sizeof options};
 *     struct sp_engine *engine;
 *     struct sp_error error;
 *
 *     if (sp_engine_new(&options, &engine, &error) < 0)
 *         errx(1, "%s", error.msg);
 *
 * Structs that you fill begin with their size and are otherwise zero where you have nothing to say;
 * those that you are given begin with theirs. They only ever grow at their end, so a program that
 * was built against an older header goes on. What you pass is copied; what you are given is
 * borrowed until your function returns. Functions return 0, or minus an enum sp_error_code with the
 * story in *e (which may be NULL).
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
    SP_ERROR_STATE = 2,     /* not now: from a callback, after a fork ... */
    SP_ERROR_INVALID = 4,   /* an argument, an option or the configuration is wrong */
    SP_ERROR_NOT_FOUND = 5, /* no such session, call, program, file */
    SP_ERROR_LIMIT = 7,     /* a bound of ours was reached */
    SP_ERROR_SYSTEM = 8,    /* the kernel said no: sys says what */
    SP_ERROR_FAILED = 9     /* anything else; other numbers mean the same */
};

/* On your stack; it never changes its size. */
struct sp_error {
    int code; /* enum sp_error_code */
    int sys;  /* errno if the kernel said no, else 0 */
    char msg[400];
};

/* ---- what is told while a command lives ---- */

/* For one command: STARTED, then OUTPUT and INPUT, then ENDED, which is told once and last. It may
 * come long after the call was answered. */
enum sp_event_kind {
    SP_EVENT_STARTED = 0,
    SP_EVENT_OUTPUT = 1,
    SP_EVENT_INPUT = 2, /* something was typed, or it was polled */
    SP_EVENT_ENDED = 3,
    SP_EVENT_WARNED = 4, /* about the engine as a whole, e.g. that many sessions are open */
    SP_EVENT_NOTED = 5   /* about a call, before its answer: "Execution failed: ..." before you are
                            asked for a second attempt, then "retrying command without sandbox".
                            Later versions may have more kinds: ignore those you do not know */
};

enum sp_output_stream { SP_OUTPUT_STDOUT = 0, SP_OUTPUT_STDERR = 1 };

struct sp_event {
    size_t size;
    enum sp_event_kind kind;
    int session;    /* 0: a run has none */
    uint64_t call;  /* the call that started the command */
    int64_t at_ms;  /* STARTED, ENDED: when, in milliseconds since 1970 */
    uint64_t ns;    /* ENDED: how long it lived */
    int exit_code;  /* ENDED: as in struct sp_answer */
    bool is_failed; /* ENDED: not by itself with code 0 */

    const char *const *argv; /* STARTED, ENDED; NULL at the end */
    const char *cwd;         /* STARTED, ENDED */

    /* OUTPUT: bytes that were printed, cut between characters. INPUT: those that were typed, none
     * for a poll. ENDED: all that it printed as text, the middle left out beyond 1 MiB. WARNED,
     * NOTED: a text. There is no NUL behind. */
    const char *bytes;
    size_t byte_count;
    enum sp_output_stream stream; /* OUTPUT: of a run; sessions do not tell them apart */
};

/* ---- questions ---- */

enum sp_question_topic {
    SP_QUESTION_UNCONFINED = 0, /* a call asks to run without the sandbox: reason says why */
    SP_QUESTION_TRY_AGAIN = 1,  /* the sandbox got in its way: run it again without? */
    SP_QUESTION_MAY_RUN = 2,    /* a rule or the policy wants to know first: may it run at all? */
    SP_QUESTION_MORE = 3,       /* a call asks for more than the sandbox allows: json has what */
    SP_QUESTION_CHANGES = 4,    /* files are to be changed: json has which and how */
    SP_QUESTION_HOST = 5, /* a command wants to reach a host that is not listed: json has it */
    SP_QUESTION_FROM_NOW_ON = 6 /* all commands are to be allowed more: json has what. Yes is for
                                   the turn, FOR_SESSION for as long as the engine lives */
};

struct sp_question {
    size_t size;
    uint64_t id; /* for sp_engine_reply */
    enum sp_question_topic topic;
    uint64_t call;
    const char *reason;
    const char *command; /* as a person would type it */
    const char *const *argv;
    const char *cwd;
    bool is_unconfined;      /* yes means: without a sandbox */
    const char *const *rule; /* commands that begin with these words would run unasked from then on;
                                NULL at the end; NULL: no rule is offered */
    const char *json;        /* all there is to know; NULL: no memory */
};

enum sp_consent {
    SP_CONSENT_YES = 0,
    SP_CONSENT_NO = 1,          /* the call is told so and may try something else */
    SP_CONSENT_ABORT = 2,       /* no, and stop: all other calls are cancelled */
    SP_CONSENT_FOR_SESSION = 3, /* yes, and the same is not asked again by this engine */
    SP_CONSENT_RULE = 4         /* yes, and the rule that is offered is kept; none is: no */
};

/* ---- the engine ---- */

struct sp_engine;

struct sp_engine_options {
    size_t size;
    /* The program `sallyport` of the same version, of which commands here become children, not of
     * yours. NULL: $SALLYPORT_PROGRAM, else where it was installed with this library. */
    const char *program;
    const char *config;  /* a configuration file; NULL: the usual places; "/dev/null": none */
    const char *on;      /* "local", the name of an environment, or ws://... or unix://...; NULL: as
                            configured, else local */
    const char *sandbox; /* a permissions profile or a mode; NULL: as configured, else none */
    const char *approve; /* "never", "on-request", "on-failure", "untrusted", or the JSON
                            {"granular":{...}}; NULL: as configured */
    void *user;          /* what the two functions below are called with */
    void (*event)(void *user, const struct sp_event *event);     /* NULL: nobody watches */
    void (*ask)(void *user, const struct sp_question *question); /* NULL: the approver of
                                                                     the configuration */
    const char *cwd; /* where commands begin; NULL: where we are (remote: where the server is) */
};

SP_API int sp_engine_new(const struct sp_engine_options *options, struct sp_engine **ret,
                         struct sp_error *e);

/*
 * Ends every command and forgets the engine. None of your functions is called any more: a call that
 * is not answered by now never is. From within one of your functions: it is free when
 * sp_engine_dispatch returns. After a fork, in the child: only the memory is lost. NULL is fine.
 */
SP_API void sp_engine_free(struct sp_engine *engine);

/* Readable (POLLIN) when sp_engine_dispatch has something to do, and only then. It stays the same,
 * and is the engine's: poll it, and do not read it. */
SP_API int sp_engine_fd(const struct sp_engine *engine);

/*
 * Does what there is to do and calls your functions. If there is nothing it waits for something, at
 * most so long: 0: not at all; -1: as long as it takes. A signal ends the wait. Not from within one
 * of your functions.
 */
SP_API int sp_engine_dispatch(struct sp_engine *engine, int timeout_ms, struct sp_error *e);

/* "0.1.0": of the library that is in use. */
SP_API const char *sp_engine_version(void);

/* ---- environments ---- */

/*
 * An engine begins with one environment, "primary", as its options say: a place to run commands in,
 * a working directory, and a sandbox for what runs there. There may be more, each with a name:
 * commands name the one they are for (`environment`, or `environment_id` in the arguments of a
 * tool). What was approved or granted in one counts for that one alone.
 */
struct sp_environment_options {
    size_t size;
    const char *name; /* 1 to 64 letters, digits, - and _; NULL: "primary" */
    const char *on;   /* as in sp_engine_options; NULL: where it is; of a new one: the environment
                         of the configuration that has this name, else local */
    const char *sandbox; /* the same; NULL: as it is; of a new one: as the primary one's */
    const char *cwd;     /* the same; NULL: as it is; of a new one: as for an engine */
};

/*
 * Adds an environment, or changes one for commands that begin from now on; those that run keep what
 * they have. At most 64.
 */
SP_API int sp_engine_update_environment(struct sp_engine *engine,
                                        const struct sp_environment_options *options,
                                        struct sp_error *e);
/* Its sessions are killed. Not the primary one: NOT_FOUND. */
SP_API int sp_engine_remove_environment(struct sp_engine *engine, const char *name,
                                        struct sp_error *e);

/* ---- calls ---- */

/* How a call ended. */
enum sp_outcome {
    SP_OUTCOME_RUNNING = 0,   /* the command lives on: `session` names it */
    SP_OUTCOME_EXITED = 1,    /* `exit_code` */
    SP_OUTCOME_SIGNALLED = 2, /* it was killed by `signal`; exit_code is 128 + signal */
    SP_OUTCOME_TIMED_OUT = 3, /* of a run, which was killed; exit_code is 124 */
    SP_OUTCOME_CANCELLED = 4, /* the call was; a session lives on, a run has been ended */
    SP_OUTCOME_REFUSED = 5,   /* by a person or a policy: nothing ran; or, if a second attempt was
                                 refused, `was_denied`: exit_code and output are the first one's */
    SP_OUTCOME_UNKNOWN = 6,   /* there is no such session: it never was, or its end has been told */
    SP_OUTCOME_FAILED = 7,    /* could not be started, written to, or the connection was lost */
    SP_OUTCOME_DONE = 8       /* of terminate: it has been ended; of request_permissions: granted */
};

struct sp_answer {
    size_t size;
    uint64_t call;
    enum sp_outcome outcome;
    int session;          /* RUNNING; else 0 */
    int exit_code;        /* 0 to 255; 128 + signal; -1: not known, or it has not ended */
    int signal;           /* that ended it; 0: none */
    bool was_denied;      /* the sandbox got in its way, as far as can be told */
    bool has_lost_output; /* the server had to drop some before it could be read */
    uint64_t wall_ns;     /* from the start or the write to this answer */

    /*
     * What the command printed since the last answer about it: UTF-8, with U+FFFD for what is not,
     * and if it was more than 1 MiB without the middle, which is marked. A run: as it was printed,
     * the first MiB of each stream, first stdout and then stderr; `out` and `err` are the same
     * apart. There is no NUL behind any of them.
     */
    const char *output;
    size_t output_size;
    const char *out;
    size_t out_size;
    const char *err;
    size_t err_size;
    uint64_t omitted;  /* bytes that are missing in it */
    uint64_t from, to; /* which bytes of the whole output of a session it covers */

    /* All of that in words, for a language model: at most about 10,000 tokens (max_tokens). */
    const char *text;
    size_t text_size;
    const char *error; /* REFUSED, UNKNOWN, FAILED: why; else NULL */
    const char *json;  /* of a tool: its structured answer, an object; NULL: none */
};

/* Called once for each call that was begun. */
typedef void sp_answer_fn(void *user, const struct sp_answer *answer);

struct sp_exec_options {
    size_t size;
    const char *script;      /* for the shell, ... */
    const char *const *argv; /* ... or a program and its arguments, NULL at the end. One of both. */
    const char *cwd;         /* relative to the engine's; NULL: that one */
    const char *const *env;  /* NAME=VALUE besides, NULL at the end; NULL: nothing */
    const char *shell;       /* a path; NULL: the user's own */
    bool is_tty;             /* on a terminal of rows x cols (0: 24 x 80); else on pipes ... */
    bool has_stdin;          /* ... with an open stdin; else with none */
    bool is_no_login;        /* a script: not as a login shell would run it */
    bool is_unconfined;      /* asks for no sandbox: `ask` is asked with the reason */
    uint16_t rows, cols;
    uint64_t yield_ms;       /* answer at the latest after so long: 250 to 30000; 0: 10000 */
    uint64_t max_tokens;     /* of the answer's text; 0: as configured */
    const char *reason;      /* with is_unconfined: the question to a person; NULL: none */
    const char *environment; /* where; NULL: the primary one */
};

/*
 * Each begins a call and returns; its answer comes to fn (NULL: nobody wants it) with `user`.
 * ret_call (may be NULL) is its number, which is never used again.
 *
 * At most 64 sessions are kept: one more ends the one that was not used for longest, ended ones
 * first.
 */
SP_API int sp_engine_exec(struct sp_engine *engine, const struct sp_exec_options *options,
                          sp_answer_fn *fn, void *user, uint64_t *ret_call, struct sp_error *e);

/*
 * Types into a session, and answers with what it prints within yield_ms (250 to 30000; 0: 250), or
 * at once when it ends. n = 0 is a poll: 5000 to 300000 ms; 0: 5000. Calls about one session wait
 * for each other; but one that types ends a poll or a wait that goes on.
 *
 * When a command has ended, the first answer that says so is the last: its number is free then.
 */
SP_API int sp_engine_write(struct sp_engine *engine, int session, const void *bytes, size_t n,
                           uint64_t yield_ms, sp_answer_fn *fn, void *user, uint64_t *ret_call,
                           struct sp_error *e);

/* Answers when the session ends, however long it takes; or RUNNING if somebody types meanwhile. */
SP_API int sp_engine_wait(struct sp_engine *engine, int session, sp_answer_fn *fn, void *user,
                          uint64_t *ret_call, struct sp_error *e);

/* Kills a session with all that it has started. DONE, or UNKNOWN. A call that waits for it is
 * answered too. */
SP_API int sp_engine_terminate(struct sp_engine *engine, int session, sp_answer_fn *fn, void *user,
                               uint64_t *ret_call, struct sp_error *e);

#define SP_FOREVER (~(uint64_t)0)

struct sp_run_options {
    size_t size;
    const char *const *argv; /* NULL at the end; no shell: {"sh", "-c", script, NULL} is one */
    const char *cwd;         /* relative to the engine's; NULL: that one */
    const char *const *env;  /* NAME=VALUE besides, NULL at the end; NULL: nothing */
    uint64_t timeout_ms;     /* 0: 10000; SP_FOREVER: none */
    bool keeps_all;          /* all output instead of 1 MiB: for what you trust. No time-out. */
    bool is_silent;          /* no events */
    const char *environment; /* where; NULL: the primary one */
};

/*
 * Runs a command to its end on pipes, with no stdin. When it was ended by its time-out or by
 * sp_engine_cancel, nothing of it is left. What it leaves in the background when it ends by itself
 * lives on until the engine is freed.
 */
SP_API int sp_engine_run(struct sp_engine *engine, const struct sp_run_options *options,
                         sp_answer_fn *fn, void *user, uint64_t *ret_call, struct sp_error *e);

/* ---- tools of a language model ---- */

/*
 * The tools that an agent can offer its model as they are: exec_command and write_stdin, and if the
 * configuration switches them on (features.exec_permission_approvals, features.unified_exec)
 * request_permissions and unified_exec. fn is called once, before this returns, with a JSON array
 * of
 * {"type":"function","name","description","strict","parameters","output_schema"}.
 */
SP_API int sp_engine_tools(struct sp_engine *engine,
                           void (*fn)(void *user, const char *json, size_t n), void *user,
                           struct sp_error *e);

struct sp_tool_options {
    size_t size;
    const char *tool;      /* its name */
    const char *arguments; /* a JSON object, as the model wrote it */
    const char *turn;      /* the turn of the conversation, any text: what was granted for a turn is
                              for calls of the same text; NULL: none, and it can be granted for the
                              session alone */
};

/*
 * Calls a tool. The answer's `text` is for the model, also if the arguments are wrong (FAILED); its
 * `json` is the same for programs. NOT_FOUND: there is no such tool, or it is not switched on.
 */
SP_API int sp_engine_call_tool(struct sp_engine *engine, const struct sp_tool_options *options,
                               sp_answer_fn *fn, void *user, uint64_t *ret_call,
                               struct sp_error *e);

/* ---- at once ---- */

/* The call is answered with CANCELLED. A command that had not started yet is killed. */
SP_API int sp_engine_cancel(struct sp_engine *engine, uint64_t call, struct sp_error *e);

/* The answer to a question, also from within `ask`. Until then the call waits. */
SP_API int sp_engine_reply(struct sp_engine *engine, uint64_t question, enum sp_consent consent,
                           struct sp_error *e);

/* End of file for a command with has_stdin, after what was written; a terminal gets its ^D. */
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
    const char *environment; /* where it runs */
};
/* Calls fn, before it returns, for each session that lives, by number. */
SP_API int sp_engine_list(struct sp_engine *engine,
                          void (*fn)(void *user, const struct sp_session_info *info), void *user,
                          struct sp_error *e);

/* Kills every session; calls that wait for one are answered. Runs go on. */
SP_API int sp_engine_terminate_all(struct sp_engine *engine, struct sp_error *e);

/*
 * Time stands still for calls while you ask a person something of your own: none is answered, and
 * their yield_ms are longer by that, until it is unpaused as often as it was paused. Questions that
 * come to `ask` need no pause: while one is open, yields do not run out anyway (at most 60 s).
 */
SP_API int sp_engine_pause(struct sp_engine *engine, struct sp_error *e);
SP_API int sp_engine_unpause(struct sp_engine *engine, struct sp_error *e);

#ifdef __cplusplus
}
#endif

#endif
