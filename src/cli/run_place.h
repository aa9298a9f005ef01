/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_place: where a command of the CLI runs commands: here, in cells of its own, or on a server.
 */
#ifndef SP_CLI_RUN_PLACE_H
#define SP_CLI_RUN_PLACE_H

#include "cli/carry.h"
#include "cli/policy_options.h"
#include "config/config.h"
#include "config/own_places.h"
#include "engine/job.h"
#include "engine/shell.h"

/* Paths that confined commands must not reach. *ret is zero, and to be freed also after a failure.
 * */
int sp_place_hidden_paths(const struct sp_own_places_options *ask, struct sp_hidden_paths *ret,
                          struct sp_err *e);
/* A backend here. is_for_many: for a server; otherwise for one command, and all processes that it
 * leaves are killed at the end. */
int sp_place_here(struct sp_loop *loop, const char *cwd, const struct sp_hidden_paths *hidden_paths,
                  const struct sp_limit_levels *limits, bool is_for_many, struct sp_backend **ret,
                  struct sp_err *e);
/* A backend on the server that the place names. It connects with its first use. limits: of --limit;
 * those of the configuration are for commands that run here. */
int sp_place_there(struct sp_loop *loop, const struct sp_config_place *p,
                   const struct sp_limit_levels *limits, struct sp_backend **ret, struct sp_err *e);

/* What --on names: as sp_config_place(), or by its pid or name a server of this user, through its
 * local socket and without a token. */
int sp_place_find(const struct sp_config *c, const char *on, struct sp_config_place *ret,
                  struct sp_err *e);

struct sp_place_run {
    const char *cwd; /* of the launch */
    const struct sp_own_places_options *own;
    uint64_t quiet_ms, after_ms; /* see struct sp_carry_options */
    bool is_verbose;             /* list all that the sandbox denied; otherwise for a terminal only,
                                    in one line */
    const struct sp_policy_options *options; /* for --publish */
    int failed;                              /* the exit status if we failed */
    const char *what; /* is incomplete if the sandbox is lost: "the command" */
};
/* Runs one command here, in l->policy. Returns the exit status; errors have been reported. */
int sp_place_run(char *const *command, struct sp_start *l, const struct sp_place_run *how);

/* The shell of this user. */
int sp_place_find_shell(struct sp_shell *ret, struct sp_err *e);

/* Prints on stderr the names of the variables that commands in a sandbox do not get, if any. */
void sp_place_say_left_out(const struct sp_env_request *ask);

/* The real path of the directory of --cwd (NULL: the current one); to be freed. */
char *sp_place_dir(const char *given, struct sp_err *e);

#endif
