/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strays: processes that outlive the command that started them.
 *
 * They live on until their session or the server ends. With cgroups the strays of a command are in
 * its leaf. Without cgroups the cell adopts them as their subreaper and finds them among its own
 * children; they belong to the session of the command that exited. A stray that may belong to two
 * sessions is killed when both have ended; one that may belong to more, when the server ends.
 */
#ifndef SP_CELL_STRAYS_H
#define SP_CELL_STRAYS_H

#include "cell/command.h"

#define SP_NO_SESSION 0 /* sessions count from 1 */

struct sp_strays;

struct sp_strays *sp_strays_new(struct sp_cell_state *cell);
void sp_strays_free(struct sp_strays *s);

/* Gives the command an empty leaf (without cgroups: none), or `lent`, the directory of one that the
 * front has made, which is owned from here on; -1: none. false: errno. */
bool sp_strays_take_leaf(struct sp_strays *s, struct sp_command *c, int lent);
/* The clone is over: the command's descriptor of its leaf is not needed any more. */
void sp_strays_note_started(struct sp_strays *s, struct sp_command *c);
/* The command has closed or is forgotten: an empty leaf becomes free, another one belongs to the
 * session from the time the command is forgotten. is_spent: no other command gets this leaf. */
void sp_strays_leave_leaf(struct sp_strays *s, struct sp_command *c, bool is_forgotten,
                          bool is_spent);

/* Reaps dead children: records the exits of commands, whose children belong to their session from
 * then on. Bounded: cell->has_dead says afterwards whether there are more. */
void sp_strays_reap(struct sp_strays *s);
/* Finds new strays. Linear in the number of our children: at most ten times a second.
 * cell->is_sweep_due says afterwards whether killed processes are not gone yet. */
void sp_strays_sweep(struct sp_strays *s);

/* A child of ours that is no command: a running command that was killed and forgotten, whose
 * children will belong to its session; or with SP_NO_SESSION a file worker, which would pass for a
 * stray otherwise. */
void sp_strays_note_child(struct sp_strays *s, pid_t pid, uint64_t session);

/* Kills the session's strays: most of them now, the rest in sweeps. */
void sp_strays_end_session(struct sp_strays *s, uint64_t session);

#endif
