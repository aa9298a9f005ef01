/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell_record: what outlives a front of a cell: its record in the ledger, and with the keeper the
 * front's ends of its socket and bell, and its pidfd.
 *
 * In this order, so that a front may die anywhere in between: record, KEEP of socket and bell, the
 * process, KEEP with its pidfd, HELLO. A cell that has not got HELLO ends when it reads ADOPT, or
 * the end of the socket, if no keeper has the other end.
 */
#ifndef SP_CORE_CELL_RECORD_H
#define SP_CORE_CELL_RECORD_H

#include "core/cells.h"
#include "keeper/hold.h"

/* Of kind SP_LEDGER_CELL, without loose bytes. */
struct sp_cell_record {
    uint64_t session; /* of a confined cell */
    uint32_t key;     /* SP_HOLD_KEY(SP_HOLD_CELL, key) */
    uint32_t wire_version;
    uint32_t slots;
    uint32_t tier;
    uint32_t place; /* of an open cell */
    uint32_t text_len;
    char cgroup[SP_CGROUP_NAME];
    char cgroup_path[SP_CGROUP_PATH];
    char text[]; /* of the owner of the cell */
};

/* The descriptors of a key, and its text if the pidfd is that of a maker. */
#define SP_KEPT_MAKER "maker"
enum {
    SP_KEPT_SOCKET,
    SP_KEPT_PAGE, /* of the bell */
    SP_KEPT_WAKE,
    SP_KEPT_PIDFD,
    SP_KEPT_MIN = SP_KEPT_PIDFD
};

/* Without a keeper these functions do nothing. */
int sp_cell_record_begin(struct sp_cell *c, struct sp_err *e);
/* Gives the keeper what there is now; pidfd -1: no process yet. */
int sp_cell_record_keep(struct sp_cell *c, int socket, int pidfd, bool is_maker, struct sp_err *e);
/* The cell has told its pid. */
void sp_cell_record_born(struct sp_cell *c);
void sp_cell_record_end(struct sp_cell *c);

#endif
