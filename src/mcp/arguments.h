/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments: a JSON object of arguments, parsed once and read member by member into typed
 * variables. Whether a request is permitted is decided by the manager.
 *
 * The first wrong member, in the order of the text, is reported; then the first missing one.
 * Null counts as absent, and a whole number may be written as 1000.0 or 1e3. Unknown members are
 * ignored in the words of codex, as codex does, and refused otherwise.
 */
#ifndef SP_MCP_ARGUMENTS_H
#define SP_MCP_ARGUMENTS_H

#include "base/arena.h"
#include "base/json.h"
#include "mcp/tools.h"
#include "sandbox/profile.h"

/* Parsed arguments and what the values read from them point into. {0} at first. */
struct sp_arguments {
    struct sp_str written; /* borrowed: valid until the tool has started */
    char *text;            /* a copy; strings are unescaped in place */
    struct sp_json json;
    struct sp_arena keep;
    struct sp_grant grant;
};
/* Copies and parses a text. SP_E_MALFORMED with the reason, or SP_E_SYSTEM. */
int sp_arguments_parse(struct sp_arguments *a, struct sp_str text, struct sp_err *e);
void sp_arguments_done(struct sp_arguments *a);
#define auto_arguments __attribute__((cleanup(sp_arguments_done)))

/* ---- slots ---- */

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

#define SP_SLOT(type_, ...) /* SP_SLOT(BOOL, "tty", .to = &is_tty) */ \
    {                                                                 \
        .type = SP_SLOT_##type_, .name = __VA_ARGS__                  \
    }

struct sp_slots {
    const struct sp_slot *items;
    size_t count; /* at most SP_SLOTS_MAX */
    /* Errors are worded like those of codex, with a line and a column. Else they name the member,
     * in plain words. */
    bool is_codex;
};
#define SP_SLOTS_MAX   32
#define SP_SLOTS(list) ((struct sp_slots){.items = (list), .count = sizeof(list) / sizeof(list)[0]})
#define SP_SLOTS_CODEX ((struct sp_slots){.is_codex = true})

/* SP_E_INVALID with the reason, or SP_E_SYSTEM. The variables are unusable after an error. */
int sp_slots_read(struct sp_arguments *a, struct sp_slots slots, struct sp_err *e);

/* ---- what the manager is asked; it borrows from the arguments ---- */

/* `more`: members that only MCP has, or SP_SLOTS_CODEX, with which `cmd` is required. The caller
 * sets call_id and turn_id. Errors as sp_slots_read. */
int sp_arguments_exec(struct sp_arguments *a, const struct sp_tools_options *o,
                      struct sp_slots more, struct sp_exec_request *ret, struct sp_err *e);
int sp_arguments_write(struct sp_arguments *a, const struct sp_tools_options *o,
                       struct sp_slots more, struct sp_write_request *ret, struct sp_err *e);

/* `until`: the conditions that end a wait. */
struct sp_mcp_until {
    struct sp_until items[SP_UNTIL_COUNT_MAX]; /* patterns point into the arguments */
    uint32_t count;
};

/* unified_exec: without session_id `input` is a command, with it `chars` are typed. */
struct sp_compat_request {
    const struct sp_str *input;
    uint32_t input_count;
    struct sp_str chars;      /* the input, joined by a space where neither side has white space */
    struct sp_str session_id; /* p NULL: none */
    int id;                   /* session_id, parsed */
    struct sp_yield_request timeout;
};
/* SP_E_NOT_FOUND: session_id is no number. */
int sp_arguments_compat(struct sp_arguments *a, struct sp_compat_request *ret, struct sp_err *e);

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

/* ---- the digest of a call ---- */

/* Identifies a call by its tool and arguments. The order of members, white space, escapes and the
 * spelling of numbers do not matter. */
struct sp_mcp_digest {
    uint8_t bytes[32];
};
/* false: out of memory. */
bool sp_arguments_digest(struct sp_arguments *a, struct sp_str tool, struct sp_mcp_digest *ret);

#endif
