/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment: the shared memory of up to 64 rings (cell/ring.h), one memory file.
 *
 *   | 64 headers of 512 bytes | data area 0 | data area 1 | ... | data area 63 |
 *
 * It has fewer areas where the address space or the size of files is limited.
 *
 * The front makes a segment for one cell, which is the only writer. It is sealed against changes of
 * its size; a seal against later writable mappings would make the kernel refuse to punch holes. The
 * cell keeps the descriptor.
 */
#ifndef SP_CELL_SEGMENT_H
#define SP_CELL_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define SP_SEGMENT_RINGS 64U
#define SP_RING_HEADER   512U
#define SP_RING_AREA     2863104U /* of one ring: its retention, and room for reads (cell/ring.c) */
#define SP_RING_PAGE     4096U
#define SP_RING_PAGES    (SP_RING_AREA / SP_RING_PAGE)

struct sp_segment {
    uint8_t *map;
    size_t size;
    uint32_t rings; /* areas */
    int fd;         /* -1: closed */
    unsigned users;
};

/* The front's, of so many rings: mapped read-only, with one user. */
int sp_segment_new(uint32_t rings, struct sp_segment **ret, struct sp_err *e);
/* One that another process has made: the cell's, mapped writable, or that of a front that takes the
 * cell over. Checks size and seals; *fd is taken on success. */
int sp_segment_take(int *fd, bool is_writable, struct sp_segment **ret, struct sp_err *e);
/* Unmaps and closes it with its last user; NULL is fine. */
void sp_segment_drop(struct sp_segment *s);

#endif
