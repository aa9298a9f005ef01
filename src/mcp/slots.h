/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots: an object of arguments, read member by member into where each goes (unified-exec.md 3.4).
 *
 * The first member that is wrong, in the order of the text, is told with its place; then the first
 * that is missing. Members that are not known are ignored, null is as good as absent, and a number
 * may be written with a fraction of zero.
 */
#ifndef SP_MCP_SLOTS_H
#define SP_MCP_SLOTS_H

#include "base/json.h"
#include "engine/keep.h"
#include "sandbox/profile.h"

/* What was read, and what points into it. {0} at first. */
struct sp_arguments {
    char *text; /* a copy that is unescaped in place */
    struct sp_json json;
    struct sp_keep keep;
    struct sp_grant grant;
};
void sp_arguments_done(struct sp_arguments *a);

enum sp_slot_type {
    SP_SLOT_STRING, /* struct sp_str */
    SP_SLOT_BOOL,
    SP_SLOT_U64,
    SP_SLOT_USIZE, /* the same, under its other name */
    SP_SLOT_U16,   /* uint16_t, and not 0 */
    SP_SLOT_I32,   /* int */
    SP_SLOT_WORDS, /* strings, kept with the arguments; `to` is the pointer, `count` their number */
    SP_SLOT_PERMISSIONS, /* enum sp_permissions */
    SP_SLOT_GRANT,       /* const struct sp_grant * */
    SP_SLOT_TOKEN,       /* uint32_t: anything, for its reader to look at */
};

/* Where a member goes. */
struct sp_slot {
    const char *name;
    void *to;
    bool *has;       /* NULL: nobody wants to know */
    uint32_t *count; /* SP_SLOT_WORDS */
    enum sp_slot_type type;
    bool is_needed;
};

struct sp_slots {
    const struct sp_slot *items;
    size_t count; /* at most SP_SLOTS_MAX */
    /* What is wrong is said with the member's name and in plain words, not as the reference does
     * with a place in the text. */
    bool names_members;
};
#define SP_SLOTS_MAX 32

/* SP_E_INVALID or SP_E_MALFORMED with the reason, SP_E_SYSTEM without memory. */
int sp_slots_read(struct sp_arguments *a, struct sp_str text, struct sp_slots slots,
                  struct sp_err *e);

#define auto_arguments __attribute__((cleanup(sp_arguments_done)))

#endif
