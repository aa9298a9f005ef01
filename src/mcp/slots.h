/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots: a JSON object of arguments, parsed once and read member by member into typed variables.
 *
 * The first wrong member, in the order of the text, is reported; then the first missing one.
 * Unknown members are ignored, null counts as absent, and a whole number may be written as 1000.0
 * or 1e3.
 */
#ifndef SP_MCP_SLOTS_H
#define SP_MCP_SLOTS_H

#include "base/arena.h"
#include "base/json.h"
#include "sandbox/profile.h"

/* Parsed arguments and what the values read from them point into. {0} at first. */
struct sp_arguments {
    char *text; /* a copy; strings are unescaped in place */
    struct sp_json json;
    struct sp_arena keep;
    struct sp_grant grant;
};
/* Copies and parses a text. SP_E_MALFORMED with the reason, or SP_E_SYSTEM. */
int sp_arguments_parse(struct sp_arguments *a, struct sp_str text, struct sp_err *e);
void sp_arguments_done(struct sp_arguments *a);
#define auto_arguments __attribute__((cleanup(sp_arguments_done)))

enum sp_slot_type {
    SP_SLOT_STRING, /* struct sp_str */
    SP_SLOT_BOOL,
    SP_SLOT_U64,
    SP_SLOT_USIZE,       /* uint64_t, which errors call usize */
    SP_SLOT_U16,         /* uint16_t, not 0 */
    SP_SLOT_I32,         /* int */
    SP_SLOT_WORDS,       /* strings in a.keep: `to` is a pointer, `count` their number */
    SP_SLOT_PERMISSIONS, /* enum sp_permissions */
    SP_SLOT_GRANT,       /* const struct sp_grant * */
    SP_SLOT_TOKEN,       /* uint32_t: the token of any value */
};

/* Where a member goes. */
struct sp_slot {
    const char *name;
    void *to;
    bool *has;       /* set if the member is there; may be NULL */
    uint32_t *count; /* SP_SLOT_WORDS */
    enum sp_slot_type type;
    bool is_needed;
};

struct sp_slots {
    const struct sp_slot *items;
    size_t count; /* at most SP_SLOTS_MAX */
    /* The arguments as they were written: errors are worded like those of codex, with a line and a
     * column. p NULL: errors name the member, in plain words. */
    struct sp_str text;
};
#define SP_SLOTS_MAX   32
#define SP_SLOTS(list) ((struct sp_slots){.items = (list), .count = sizeof(list) / sizeof(list)[0]})

/* SP_E_INVALID with the reason, or SP_E_SYSTEM. */
int sp_slots_read(struct sp_arguments *a, struct sp_slots slots, struct sp_err *e);

/* ---- numbers: whole ones, however JSON spells them; exact, and independent of the locale ---- */

enum sp_number_kind {
    SP_NUMBER_WHOLE,
    SP_NUMBER_TOO_BIG,  /* whole, but above u64 */
    SP_NUMBER_FRACTION, /* not whole */
};

struct sp_number {
    bool is_negative;
    uint64_t magnitude; /* if WHOLE */
};

/* `text` follows JSON's grammar of numbers. */
enum sp_number_kind sp_number_read(struct sp_str text, struct sp_number *ret);

#endif
