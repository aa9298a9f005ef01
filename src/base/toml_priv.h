/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml_priv: shared by the files of the TOML reader. Reading functions return false after they have
 * filled *r->e.
 */
#ifndef SP_BASE_TOML_PRIV_H
#define SP_BASE_TOML_PRIV_H

#include "base/toml.h"

/* How a table or array came to be, which decides what later lines may add to it. */
enum {
    SP_TOML_BY_PASSING, /* [a] of a header [a.b]: a header may still define it */
    SP_TOML_BY_HEADER,
    SP_TOML_BY_DOTS,  /* by a dotted key: dotted keys of the same section may add to it */
    SP_TOML_BY_VALUE, /* inline: closed */
};

struct sp_toml_reader {
    struct sp_toml *doc;
    const char *p, *end;          /* the rest of the text */
    struct sp_toml_value **slots; /* hash index: (table, key) to value */
    uint32_t slot_count, keyed;
    uint32_t values, section; /* a section: from one header to the next */
    struct sp_err *e;
};

SP_PRINTF(3, 4)
bool sp_toml_fail(struct sp_toml_reader *r, const char *at, const char *fmt, ...);
bool sp_toml_no_memory(struct sp_toml_reader *r);

/* Appends v to the children of an array or a table. */
void sp_toml_append(struct sp_toml_value *parent, struct sp_toml_value *v);

#endif
