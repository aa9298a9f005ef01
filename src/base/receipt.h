/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receipt: how a command ended and what it consumed, as every door tells it: the wire in camelCase,
 * everything else in snake_case, with the same numbers.
 */
#ifndef SP_BASE_RECEIPT_H
#define SP_BASE_RECEIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/end_reason.h"
#include "base/json.h"
#include "base/limits.h"

/* The numbers of a receipt, in the order in which they are told. */
enum sp_receipt_item {
    SP_RECEIPT_WALL_MS,   /* from the start until it was reaped */
    SP_RECEIPT_USER_MS,   /* of the leader and of the descendants that were waited for */
    SP_RECEIPT_SYSTEM_MS, /* likewise */
    SP_RECEIPT_MAX_RSS,   /* bytes of the largest process */
    SP_RECEIPT_PEAK_MEMORY,
    SP_RECEIPT_PEAK_PROCESSES,
    SP_RECEIPT_READ,    /* bytes from storage, not from its cache */
    SP_RECEIPT_WRITTEN, /* likewise */
    SP_RECEIPT_VOLUNTARY,
    SP_RECEIPT_INVOLUNTARY,
    SP_RECEIPT_MAJOR_FAULTS,
    SP_RECEIPT_STDOUT, /* these four are in the member `output` */
    SP_RECEIPT_STDERR,
    SP_RECEIPT_PTY,
    SP_RECEIPT_DROPPED, /* bytes that retention has forgotten */
    SP_RECEIPT_ITEMS
};

struct sp_command_receipt {
    enum sp_end_reason reason;
    uint32_t known; /* 1 << enum sp_receipt_item; other numbers are not told */
    uint64_t numbers[SP_RECEIPT_ITEMS];
    bool is_cpu_of_tree; /* USER_MS and SYSTEM_MS count all processes of the command */
    struct sp_limit_hits limits;
    struct sp_str sandbox, network; /* JSON values; n 0: none; borrowed */
};

static inline bool sp_receipt_knows(const struct sp_command_receipt *r, enum sp_receipt_item i)
{
    return (r->known & 1U << i) != 0;
}

static inline void sp_receipt_set(struct sp_command_receipt *r, enum sp_receipt_item i, uint64_t n)
{
    r->known |= 1U << i;
    r->numbers[i] = n;
}

/* Fills in what is missing from what a client itself knows. */
static inline void sp_receipt_note_end(struct sp_command_receipt *r, enum sp_end_reason reason,
                                       uint64_t wall_ns)
{
    if (r->reason == SP_END_NONE)
        r->reason = reason;
    if (!sp_receipt_knows(r, SP_RECEIPT_WALL_MS))
        sp_receipt_set(r, SP_RECEIPT_WALL_MS, wall_ns / 1000000);
}

/* Microseconds as the nearest number of milliseconds. */
static inline uint64_t sp_receipt_ms(uint64_t us)
{
    return us / 1000 + (us % 1000 >= 500);
}

enum sp_receipt_style { SP_RECEIPT_CAMEL, SP_RECEIPT_SNAKE };

#define SP_RECEIPT_SIZE 24
/* For people: 512 B, 8.0 MiB. */
void sp_receipt_write_size(uint64_t bytes, char ret[SP_RECEIPT_SIZE]);

/* Appends the object. false: no memory. */
bool sp_receipt_add(struct sp_buf *out, const struct sp_command_receipt *r,
                    enum sp_receipt_style style);

/* Reads the object as the wire has it; members of a wrong type count as absent. `sandbox` and
 * `network` point into the message. */
void sp_receipt_read(struct sp_json *j, uint32_t object, struct sp_command_receipt *ret);

/* The member `reason` of the object; NONE: there is none that is known. */
enum sp_end_reason sp_receipt_read_reason(struct sp_json *j, uint32_t object);

/* A receipt with its own copies of the strings; {0}: none yet. */
struct sp_kept_receipt {
    bool is_known;
    struct sp_command_receipt is;
    struct sp_buf text; /* sandbox, then network */
};
/* Without memory for the strings they are left out. */
void sp_receipt_keep(struct sp_kept_receipt *to, const struct sp_command_receipt *from);
static inline void sp_receipt_drop(struct sp_kept_receipt *r)
{
    sp_buf_done(&r->text);
    *r = (struct sp_kept_receipt){0};
}

#endif
