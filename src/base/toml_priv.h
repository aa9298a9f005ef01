/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml_priv: what the files of the TOML reader share.
 *
 * All that read return whether they could; if not, *r->e says why and where.
 */
#ifndef SP_BASE_TOML_PRIV_H
#define SP_BASE_TOML_PRIV_H

#include "base/toml.h"

/* How a table or array came to be: it decides what may be added later. */
enum {
    SP_TOML_BY_PASSING, /* named on the way by a header: a header may still define it */
    SP_TOML_BY_HEADER,
    SP_TOML_BY_DOTS,  /* by a dotted key: more dotted keys of the same section may add to it */
    SP_TOML_BY_VALUE, /* written out: nothing is added */
};

struct sp_toml_reader {
    struct sp_toml *doc;
    const char *p, *end;          /* what is left */
    struct sp_toml_value **slots; /* every value with a key, by its table and key */
    uint32_t slot_count, keyed;
    uint32_t values, section; /* a section: from one header to the next */
    struct sp_err *e;
};

SP_PRINTF(3, 4)
bool sp_toml_fail(struct sp_toml_reader *r, const char *at, const char *fmt, ...);
bool sp_toml_no_memory(struct sp_toml_reader *r);

/* ---- small steps ---- */

void sp_toml_skip_blanks(struct sp_toml_reader *r); /* spaces and tabs */
/* A line's end, if one is here; CR LF counts. */
bool sp_toml_at_newline(const struct sp_toml_reader *r);
void sp_toml_skip_newline(struct sp_toml_reader *r);
bool sp_toml_skip_comment(struct sp_toml_reader *r); /* to the end of the line, if one begins */
bool sp_toml_is_here(const struct sp_toml_reader *r, const char *text);

/* ---- the tree ---- */

/* A new last child, without a type; key.p NULL in an array. NULL: refused. */
struct sp_toml_value *sp_toml_add(struct sp_toml_reader *r, struct sp_toml_value *parent,
                                  struct sp_str key, const char *key_at);
/* Makes an array or a table of it, if that is not too deep. */
bool sp_toml_become(struct sp_toml_reader *r, struct sp_toml_value *v, enum sp_toml_type type,
                    uint8_t made);
struct sp_toml_value *sp_toml_find(const struct sp_toml_reader *r,
                                   const struct sp_toml_value *table, struct sp_str key);

/* ---- parts of the text ---- */

bool sp_toml_read_document(struct sp_toml_reader *r);
/* KEY = VALUE, into a table. */
bool sp_toml_read_pair(struct sp_toml_reader *r, struct sp_toml_value *table);
/* Fills v, which has its place in the tree already. */
bool sp_toml_read_value(struct sp_toml_reader *r, struct sp_toml_value *v);
bool sp_toml_read_string(struct sp_toml_reader *r, bool allows_lines, struct sp_str *ret);
bool sp_toml_read_number(struct sp_toml_reader *r, struct sp_toml_value *v);
/* *ret_is: whether it is one at all; if not, nothing was read. */
bool sp_toml_read_date(struct sp_toml_reader *r, struct sp_toml_value *v, bool *ret_is);

#endif
