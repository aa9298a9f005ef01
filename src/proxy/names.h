/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: the loopback addresses that stand for names in a managed cell: 127.64.1.0 up to
 * 127.127.255.254, each given once, the same for the cell's life.
 *
 * At most SP_NAMES_MAX names are live. One more takes the place of the name that was unused longest
 * and has no connection, unlisted ones first; the address of the old name stays dead. The table is
 * in memory that the front creates, hands to each proxy of the cell in turn, and never reads. A new
 * proxy checks each entry, because the one before may have been taken over.
 */
#ifndef SP_PROXY_NAMES_H
#define SP_PROXY_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

#define SP_NAMES_MAX   1024U
#define SP_NAMES_FIRST 0x7f400100U /* host order */
#define SP_NAMES_LAST  0x7f7ffffeU

struct sp_names;

size_t sp_names_bytes(void); /* of the memory */
/* Maps the memory and checks it; entries that are malformed are dropped. The descriptor stays the
 * caller's. */
int sp_names_open(int memory, struct sp_names **ret, struct sp_err *e);
void sp_names_close(struct sp_names *n); /* NULL is fine */

/* The address of this name (canonical text of a struct sp_hostname), new or known, in host order;
 * 0: every live name has a connection, or the addresses are used up. Marks it as used. */
uint32_t sp_names_address(struct sp_names *n, struct sp_str name, bool is_listed);
/* The name of an address; NULL: it is dead or was never given. Marks it as used. The text is valid
 * until the next sp_names_address. */
const char *sp_names_find(struct sp_names *n, uint32_t address);
/* A connection to this address began or ended. */
void sp_names_hold(struct sp_names *n, uint32_t address, bool is_held);
uint32_t sp_names_count(const struct sp_names *n);

#endif
