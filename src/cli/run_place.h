/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place: where a verb runs commands: here, in cells of our own, or on a server.
 */
#ifndef SP_CLI_RUN_PLACE_H
#define SP_CLI_RUN_PLACE_H

#include "config/config_place.h"
#include "config/own_places.h"
#include "engine/job.h"

/*
 * Here. The whole program is ours: whatever commands leave behind is killed at the end. No confined
 * command writes what `own` finds, nor reaches the audit log and the tokens: a process that can
 * read the log can lock it, and nothing would be written down any more.
 */
int sp_place_here(struct sp_loop *loop, const char *cwd, const struct sp_own_places_ask *own,
                  struct sp_backend **ret, struct sp_err *e);
/* The same for one that runs many commands, with what is to be covered as sp_place_hidden_paths
 * found it, and perhaps more. */
int sp_place_here_for_many(struct sp_loop *loop, const char *cwd,
                           const struct sp_hidden_paths *hidden_paths, struct sp_backend **ret,
                           struct sp_err *e);
/* What no confined command may reach; *ret is zero, and to be ended also after a failure. */
int sp_place_hidden_paths(const struct sp_own_places_ask *ask, struct sp_hidden_paths *ret,
                          struct sp_err *e);
/* On the server that the place names, which is not here. Nothing is connected yet. */
int sp_place_there(struct sp_loop *loop, const struct sp_config_place *p, struct sp_backend **ret,
                   struct sp_err *e);

/* On stderr: the names of the variables that commands in a sandbox do not get, if there are any. */
void sp_place_say_left_out(const struct sp_environ_ask *ask);

/* The directory that a command line names (NULL: ours), which has to be one; to be freed. */
char *sp_place_dir(const char *given, struct sp_err *e);

#endif
