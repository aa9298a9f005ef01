/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_priv: what the files of exec_command share: its way (exec.c), what it demands before
 * anything runs (exec_checks.c), the variables it is given (exec_env.c), how an attempt is started
 * (exec_launch.c), and patches, which are verified (exec_verify.c) and applied (exec_patch.c)
 * instead, behind a server by exec_files.c.
 */
#ifndef SP_ENGINE_EXEC_PRIV_H
#define SP_ENGINE_EXEC_PRIV_H

#include "approve/run_plan.h"
#include "base/utf8.h"
#include "engine/manager_priv.h"
#include "engine/run.h"
#include "engine/snapshot.h"

enum sp_exec_stage {
    SP_EXEC_CHECKING,
    SP_EXEC_FACTS, /* where does it run? */
    SP_EXEC_PREPARING,
    SP_EXEC_VERIFYING, /* what would a patch change? */
    SP_EXEC_ASKING,    /* a person */
    SP_EXEC_PATCHING,  /* a patch is applied */
    SP_EXEC_SNAPSHOT,  /* of the login shell */
    SP_EXEC_STARTING,
    SP_EXEC_EARLY,      /* it runs; perhaps it fails at once */
    SP_EXEC_STRAGGLING, /* it has failed at once: what does it still print? */
    SP_EXEC_COLLECTING,
    SP_EXEC_STAGE_MAX
};

#define SP_EXEC_VERIFY_MS 30000 /* for a patch to be held against its files */
#define SP_EXEC_PATCH_MS  60000 /* for it to be applied */
#define SP_EXEC_FILES_MAX 256   /* of one patch, behind a server */

/* A command that is a patch. */
struct sp_exec_patch {
    bool is_one;
    struct sp_buf text;
    struct sp_str base; /* of relative paths */
    struct sp_patch patch;
    struct sp_patch_changes changes;
    struct sp_run *run;          /* NULL: not now */
    struct sp_exec_files *files; /* the same, where the files are behind a server */
    struct sp_buf output;
    struct sp_buf refusal; /* it cannot be: why; empty: it can */
    bool is_over, is_applied, was_denied, is_guess, is_out_of_memory;
};

struct sp_exec {
    struct sp_call call;
    struct sp_exec_ask ask; /* its strings are the call's */
    struct sp_grant grant;  /* what ask.additional points to */
    uint64_t yield_ms, early_ms;

    struct sp_environment *environment; /* a reference; NULL: not found yet */
    struct sp_backend_wait facts_wait;
    struct sp_backend_facts facts;
    struct sp_err unreachable; /* code NONE: it is not */

    struct sp_shell shell; /* path NULL: argv was given */
    const struct sp_str *argv;
    struct sp_str cwd;
    const char *environment_cwd; /* NULL: not known */
    const char *snapshot;        /* NULL: none */
    struct sp_snapshot_wait snapshot_wait;
    struct sp_run_plan plan;
    struct sp_buf environ; /* as the plan sees it */
    struct sp_exec_patch patch;

    uint32_t argc;
    enum sp_exec_stage stage;
    bool has_facts;
    bool is_login;
    bool is_snapshot_asked, is_snapshot_told;
};

/* exec.c: an attempt was denied something; is_guess: by its output alone. false: that is the
 * result. true: the plan says what is next. */
bool sp_exec_ask_again(struct sp_exec *x, bool is_guess, int exit_code);

/* exec_checks.c: the checks of 3.4; each answers the call and returns false if it fails. */
bool sp_exec_check_ask(struct sp_exec *x);   /* C1 to C3; finds the environment */
bool sp_exec_check_facts(struct sp_exec *x); /* C4 to C12 */
bool sp_exec_resolve(struct sp_exec *x);     /* shell, argv and directory */

/* exec_snapshot.c */
/* Whether what there is to know of a snapshot is known; if not, it has been asked for. */
bool sp_exec_has_snapshot(struct sp_exec *x);

/* exec_verify.c: each answers the call and returns false if it fails. */
bool sp_exec_find_patch(struct sp_exec *x);   /* x->patch.is_one: the command is a patch */
bool sp_exec_verify_patch(struct sp_exec *x); /* begins to hold it against its files */
bool sp_exec_has_changes(struct sp_exec *x);  /* false, too: not yet */

bool sp_exec_keep_refusal(struct sp_exec_patch *p, struct sp_str why); /* false: no memory */

/* exec_files.c: a patch whose files are behind a server. Each begins, and changes p->is_over at its
 * end, or answers the call and returns false. */
bool sp_exec_read_files(struct sp_exec *x, const struct sp_policy *policy);
bool sp_exec_write_files(struct sp_exec *x);
void sp_exec_files_free(struct sp_exec_files *f); /* NULL is fine */

/* exec_patch.c */
bool sp_exec_refuse_without_memory(struct sp_exec *x); /* false */
/* Begins to apply it as the plan says, or answers the call and returns false. */
bool sp_exec_apply_patch(struct sp_exec *x);
bool sp_exec_await_patch(struct sp_exec *x); /* as a stage */
void sp_exec_patch_done(struct sp_exec_patch *p);

/* exec_env.c: what the caller says of the environment, into what is judged. false: no memory. */
bool sp_exec_say_env(struct sp_exec *x, struct sp_run_plan_ask *ask);

/* exec_launch.c */
/* The environment of the next attempt. */
struct sp_exec_environ {
    struct sp_environ_ask ask;
};
bool sp_exec_make_environ(struct sp_exec *x, struct sp_exec_environ *ret); /* false: no memory */
/* Starts the attempt as c->process, or answers the call and returns false. */
bool sp_exec_launch(struct sp_exec *x);
/* Descriptors that it would have to take to another host. */
static inline uint32_t sp_exec_alien_fds(const struct sp_exec *x)
{
    return x->facts.is_remote ? x->ask.inherited_fds : 0;
}

#endif
