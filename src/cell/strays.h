/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strays: what commands left behind when they exited.
 *
 * They live on until their session or the server ends. With cgroups each command's are in its leaf.
 * Without, the cell adopts them as their subreaper; they are found by a look at its own children,
 * and belong to the session of the command that exited. Where two sessions are possible, they end
 * with the later one; where more are, with the server.
 */
#ifndef SP_CELL_STRAYS_H
#define SP_CELL_STRAYS_H

#include "cell/command.h"

#define SP_NO_LEAF UINT32_MAX

struct sp_strays;

struct sp_strays *sp_strays_new(struct sp_yard *y, struct sp_command *commands, uint32_t slots);
void sp_strays_free(struct sp_strays *s);

/* Gives the command an empty leaf, or none where there are no cgroups. false: errno. */
bool sp_strays_take_leaf(struct sp_strays *s, struct sp_command *c);
/* The command has closed or is forgotten: its leaf is free if empty, else its session's. */
void sp_strays_leave_leaf(struct sp_strays *s, struct sp_command *c, bool is_forgotten);

/* A command of this session has exited. */
void sp_strays_note_exit(struct sp_strays *s, const struct sp_command *c);
/* Reaps dead strays and learns of new ones. Linear in our children: not more than ten a second. */
void sp_strays_sweep(struct sp_strays *s);
/* Some who were killed are not gone yet: sweep again. */
bool sp_strays_has_dying(const struct sp_strays *s);

/* A running command is killed and forgotten: what its death leaves is its session's. */
void sp_strays_note_forgotten(struct sp_strays *s, const struct sp_command *c);

/* A child of ours was reaped elsewhere: its number may be another's from now on. */
void sp_strays_note_reaped(struct sp_strays *s, pid_t pid);

/* A child of ours that is nobody's command and that no session takes with it. */
void sp_strays_note_own(struct sp_strays *s, pid_t pid);

/* Kills what the session's commands left: most of it now, the rest in sweeps. */
void sp_strays_end_session(struct sp_strays *s, uint64_t session);

#endif
