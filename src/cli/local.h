/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local: one command, run here and now, with our own stdin, stdout and stderr as its own.
 *
 * A front with a single client: ourselves. The command runs in a cell as those of a server do, so
 * that a policy means the same in both. Its output is carried as fast as ours is taken and no
 * faster; its input likewise. INT, TERM, HUP, QUIT, USR1 and USR2 are passed on; with a terminal of
 * its own, changes of our window's size as well, and ours is raw while it runs.
 *
 * The command's end is the end: what it leaves running is given a moment to say its last words, and
 * killed.
 */
#ifndef SP_CLI_LOCAL_H
#define SP_CLI_LOCAL_H

#include "core/proc.h"
#include "sandbox/profile.h"

struct sp_local_options {
    char *const *argv;              /* at least one; NULL at the end */
    const char *cwd;                /* absolute */
    char *const *env;               /* NAME=VALUE; NULL at the end */
    const struct sp_policy *policy; /* NULL: no sandbox */
    bool is_tty;                    /* it gets a terminal of its own */
};

enum sp_local_end {
    SP_LOCAL_EXITED,        /* exit says how */
    SP_LOCAL_LOST,          /* the cell was lost, and with it the command */
    SP_LOCAL_OUTPUT_CLOSED, /* nobody reads our output any more: the command was killed */
};

struct sp_local_result {
    enum sp_local_end end;
    struct sp_exit exit;
    bool was_denied; /* by the sandbox, as far as can be told */
    struct sp_denial_facts denial;
};

/* Call it at most once in a process, before anything else is opened. Refused: the sandbox could not
 * be made, or our output failed. A program that is missing (127) or may not be run (126) is said on
 * stderr. */
int sp_local_run(const struct sp_local_options *o, struct sp_local_result *ret, struct sp_error *e);

/* As shells have it: the command's own, or 128 + the signal that ended it. */
int sp_local_status(const struct sp_local_result *r);

#endif
