/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_priv: shared by the files of exec_command.
 *
 * exec.c checks the arguments and walks a call through its stages. A command that is a patch does
 * not start a process: exec_patch.c verifies and applies it.
 */
#ifndef SP_ENGINE_EXEC_PRIV_H
#define SP_ENGINE_EXEC_PRIV_H

#include "approve/run_plan.h"
#include "base/utf8.h"
#include "engine/manager_priv.h"
#include "engine/run.h"
#include "engine/snapshot.h"

/*
 * The stages of exec_command. Each may also answer the call with a fault.
 *
 *   CHECKING -> FACTS -> PREPARING -> ASKING -> SNAPSHOT -> STARTING -> EARLY -> COLLECTING
 *   a patch:              PREPARING -> VERIFYING -> ASKING -> PATCHING
 *   it exits in EARLY:    EARLY -> STRAGGLING -> COLLECTING
 *   denied, and retried:  STRAGGLING, COLLECTING or PATCHING -> ASKING
 */
enum sp_exec_stage {
    SP_EXEC_CHECKING,
    SP_EXEC_FACTS, /* asks the backend for its facts */
    SP_EXEC_PREPARING,
    SP_EXEC_VERIFYING, /* a patch is compared with its files */
    SP_EXEC_ASKING,    /* an approver decides */
    SP_EXEC_PATCHING,
    SP_EXEC_SNAPSHOT, /* waits for the login shell's snapshot */
    SP_EXEC_STARTING,
    SP_EXEC_EARLY,      /* the process runs; SP_EARLY_MS decide whether it failed at once */
    SP_EXEC_STRAGGLING, /* it exited early; collects its last output for SP_STRAGGLER_MS */
    SP_EXEC_COLLECTING,
    SP_EXEC_STAGE_MAX
};

#define SP_EXEC_VERIFY_MS 30000 /* to compare a patch with its files */
#define SP_EXEC_PATCH_MS  60000 /* to apply it */
#define SP_EXEC_FILES_MAX 256   /* files in one patch behind a server */

/* Only used if is_one. */
struct sp_exec_patch {
    bool is_one;
    struct sp_buf text;
    struct sp_str base; /* directory of its relative paths */
    struct sp_patch patch;
    struct sp_patch_changes changes;
    struct sp_run *run;          /* our own program reads or writes the files; NULL: not running */
    struct sp_exec_files *files; /* file operations behind a server; NULL: not running */
    struct sp_buf output;        /* what the application printed, or the error of a server */
    struct sp_buf refusal;       /* why the patch does not apply; empty: it does */
    bool is_over;                /* the comparison, or the latest application, has ended */
    bool is_applied;
    bool was_denied; /* by the sandbox; is_guess: concluded from errno or the output alone */
    bool is_guess;
    bool is_out_of_memory;
};

/* One exec_command call. Members are filled by the stages in their order: what a stage needs was
 * set by an earlier one, and release_exec frees all of it, however far the call came. */
struct sp_exec {
    struct sp_call call;
    struct sp_exec_request request; /* its strings live in call.keep */
    struct sp_grant grant;          /* ask.additional points here */
    uint64_t yield_ms;              /* SP_YIELD_FOREVER: until the command ends */
    uint64_t early_ms;              /* end of the stage SP_EXEC_EARLY */

    struct sp_environment *environment; /* a reference; NULL: not resolved yet */
    struct sp_backend_wait facts_wait;
    struct sp_backend_facts facts;
    struct sp_err unreachable; /* why the backend could not be reached; code NONE: it could */

    struct sp_shell shell;       /* path NULL: the caller gave an argv */
    const struct sp_str *argv;   /* with the shell in front, if the caller gave a script */
    struct sp_str cwd;           /* absolute */
    const char *environment_cwd; /* NULL: unknown */
    const char *snapshot;        /* path of the snapshot file; NULL: none */
    struct sp_snapshot_wait snapshot_wait;
    struct sp_run_plan plan; /* decides about the first attempt, and then about a retry */
    struct sp_buf environ;   /* variables the plan judges with */
    struct sp_exec_patch patch;

    uint32_t argc;
    enum sp_exec_stage stage;
    bool has_facts; /* facts or unreachable is set */
    bool is_login;
    /* A retry does not ask again; wants_snapshot decides for each attempt whether it is used. */
    bool is_snapshot_asked, is_snapshot_told;
};

/* exec_patch.c: each answers the call and returns false if it fails. */
/* Sets x->patch.is_one, and then starts comparing the patch with its files. */
bool sp_exec_begin_patch(struct sp_exec *x);
/* Starts applying the patch under the plan's sandbox, or answers the call and returns false. */
bool sp_exec_apply_patch(struct sp_exec *x);
void sp_exec_patch_done(struct sp_exec_patch *p);

/* exec.c: variables of the next attempt. false: out of memory. */
bool sp_exec_make_env(struct sp_exec *x, struct sp_env_request *ret);

#endif
