/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inventory: what a kept cell tells a new front about itself (ADOPT in cell/wire.h).
 *
 * The new front requests one message after the other, so few descriptors are in the socket at any
 * time: the kernel bounds them by the limit of the sender.
 */
#ifndef SP_CELL_INVENTORY_H
#define SP_CELL_INVENTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "cell/command.h"

struct sp_inventory {
    int pidfd; /* of the cell; -1: none */
    uint64_t generation;
    bool is_due;    /* an ADOPT has no answer yet */
    int32_t index;  /* of that ADOPT */
    bool has_begun; /* its BEGIN is sent, PORTS follow */
    uint32_t ports; /* so many of them are sent */
    bool is_short;  /* as in struct sp_answers */
};

/* Answers an ADOPT without waiting. false: the socket does not take the answer yet. */
bool sp_inventory_send(struct sp_inventory *v, const struct sp_cell_state *cell, int socket);

#endif
