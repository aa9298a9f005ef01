/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml: strict reading of one TOML 1.0 text into a tree, merging, selecting and writing of trees.
 *
 * Every value knows its place in the text, so that messages about it can give line and column.
 * Bounds: 1 MiB of text, containers 127 deep, 65,536 values (including tables that a header only
 * passes through); integers are 64 bits wide. Line ends in strings become LF. Dates and times are
 * checked and kept as text.
 */
#ifndef SP_BASE_TOML_H
#define SP_BASE_TOML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define SP_TOML_MAX_BYTES  (1 << 20)
#define SP_TOML_MAX_DEPTH  127
#define SP_TOML_MAX_VALUES 65536

enum sp_toml_type {
    SP_TOML_STRING,
    SP_TOML_INTEGER,
    SP_TOML_FLOAT,
    SP_TOML_BOOLEAN,
    SP_TOML_OFFSET_DATE_TIME,
    SP_TOML_LOCAL_DATE_TIME,
    SP_TOML_LOCAL_DATE,
    SP_TOML_LOCAL_TIME,
    SP_TOML_ARRAY,
    SP_TOML_TABLE,
};

struct sp_toml;

struct sp_toml_value {
    enum sp_toml_type type;
    const struct sp_toml *doc; /* where it was written */
    uint32_t at, key_at;       /* offsets in the doc's text */
    struct sp_str key;         /* in a table: the name, with a NUL behind it; p NULL: none */
    union {
        struct sp_str text; /* STRING (may hold NUL); dates and times as they were written */
        int64_t integer;
        double real;
        bool boolean;
        struct {
            struct sp_toml_value *first, *last; /* children, in order */
            uint32_t count;
        };
    };
    struct sp_toml_value *next; /* the next child of the same parent */
    /* the reader's */
    struct sp_toml_value *parent;
    uint32_t depth, section;
    uint8_t made;
};

struct sp_toml {
    const char *name;   /* for messages */
    bool has_no_places; /* the text is generated: messages give the name without line and column */
    struct sp_str text; /* a copy */
    struct sp_toml_value *root;
    struct sp_arena arena;
};

/* `name` stands in messages: the path of the file, or the name of another source. Refusals are
 * SP_E_INVALID, "NAME: line L, column C: ..."; SP_E_SYSTEM without memory. *t is {0} before, and
 * after a failure. Values point to *t, so it must not be moved. */
int sp_toml_parse(struct sp_toml *t, const char *name, struct sp_str text, struct sp_err *e);
static inline void sp_toml_done(struct sp_toml *t)
{
    sp_arena_done(&t->arena);
    *t = (struct sp_toml){0};
}

/* NULL: no such key. */
struct sp_toml_value *sp_toml_get(const struct sp_toml_value *table, struct sp_str key);

/* Lays `over` on `table`: tables are merged, other values are replaced. Children of `over` move
 * into `table`; both documents must outlive it. */
void sp_toml_merge(struct sp_toml_value *table, struct sp_toml_value *over);

/* "a string", "an integer", ... */
const char *sp_toml_type_name(enum sp_toml_type type);

/* A path of keys from the root down: at least one. */
struct sp_toml_path {
    const struct sp_str *keys;
    uint32_t count;
};

/*
 * Removes from the table everything that no path leads to. A path that ends at a value selects all
 * of it. A path that goes on below a value that is not a table selects that value too, because the
 * value still overrides what lower layers say about its key. A table on the way stays, even empty.
 * Sorts the paths. false: nothing is left.
 */
bool sp_toml_select(struct sp_toml_value *table, struct sp_toml_path *paths, uint32_t count);

/*
 * Writes a table in the form of Codex' TOML library: in every table first the values, then the
 * tables under headers; arrays of tables as such; strings in quotes that need no escapes, if
 * possible.
 *
 * root: as it was parsed, and perhaps selected from, but not merged into. false: no room in out.
 * Set out->max: long names above many tables make a long text.
 */
bool sp_toml_write(struct sp_buf *out, const struct sp_toml_value *root);

/* Refuses a value, or its key: "NAME: line L, column C: ...". */
SP_PRINTF(3, 4)
int sp_toml_refuse(const struct sp_toml_value *v, struct sp_err *e, const char *fmt, ...);
SP_PRINTF(3, 4)
int sp_toml_refuse_key(const struct sp_toml_value *v, struct sp_err *e, const char *fmt, ...);

#define auto_toml __attribute__((cleanup(sp_toml_done)))

#endif
