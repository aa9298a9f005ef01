/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt: how a front takes over from one that has died: its sessions, the processes of its cells,
 * and the records of ended processes, from the ledger (core/ledger.h) and from what the keeper
 * holds (keeper/hold.h).
 *
 *   ledger: sessions, ended processes, processes (STARTING) --> each cell is asked (ADOPT)
 *     a process that the cell tells: it goes on   a record that it does not know: never started
 *     a cell that is gone: its processes have ended with code -1
 *
 * Nothing here waits: the cells answer while the front serves already, and requests about a process
 * that its cell has not told yet wait as for a start.
 */
#ifndef SP_CORE_ADOPT_H
#define SP_CORE_ADOPT_H

#include "core/session.h"

#define SP_ADOPT_LEAST_MS 5000 /* a detached session lives at least so long after a takeover */

/* That of an earlier front, or a new one, which the keeper gets. To be called before the first
 * sp_hash. */
int sp_adopt_ledger(struct sp_hold *hold, struct sp_ledger **ret, struct sp_err *e);

/* For sp_front_new, before anything is in the front but its pool. Fills f->adopted. */
int sp_adopt(struct sp_front *f, struct sp_err *e);

#endif
