/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines: headers, and keys with their values. What was defined once is not defined again; who may
 * add to a table follows from how it came to be (toml_priv.h).
 */
#include "base/toml_priv.h"

#define SHOWN_BYTES 60 /* of a key in a message */

/* A key as it is shown. */
#define SHOWN(key) (int)((key).n > SHOWN_BYTES ? SHOWN_BYTES : (key).n), (key).p

/* ---- small steps ---- */

void sp_toml_skip_blanks(struct sp_toml_reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t'))
        r->p++;
}

bool sp_toml_is_here(const struct sp_toml_reader *r, const char *text)
{
    const size_t n = strlen(text);

    return (size_t)(r->end - r->p) >= n && memcmp(r->p, text, n) == 0;
}

bool sp_toml_at_newline(const struct sp_toml_reader *r)
{
    return sp_toml_is_here(r, "\n") || sp_toml_is_here(r, "\r\n");
}

void sp_toml_skip_newline(struct sp_toml_reader *r)
{
    r->p += *r->p == '\r' ? 2 : 1;
}

bool sp_toml_skip_comment(struct sp_toml_reader *r)
{
    if (r->p == r->end || *r->p != '#')
        return true;
    while (r->p < r->end && !sp_toml_at_newline(r)) {
        const unsigned char c = (unsigned char)*r->p;

        if ((c < ' ' && c != '\t') || c == 0x7F)
            return sp_toml_fail(r, r->p, "a control character in a comment");
        r->p++;
    }
    return true;
}

static bool end_line(struct sp_toml_reader *r, const char *after)
{
    sp_toml_skip_blanks(r);
    if (!sp_toml_skip_comment(r))
        return false;
    if (r->p == r->end)
        return true;
    if (!sp_toml_at_newline(r))
        return sp_toml_fail(r, r->p, "expected the end of the line after %s", after);
    sp_toml_skip_newline(r);
    return true;
}

/* ---- keys ---- */

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static bool read_bare(struct sp_toml_reader *r, struct sp_str *ret)
{
    const char *first = r->p;

    while (r->p < r->end && is_bare(*r->p))
        r->p++;
    if (r->p == first)
        return sp_toml_fail(r, r->p, "expected a key");
    const size_t n = (size_t)(r->p - first);
    const char *copy = sp_arena_copy(&r->doc->arena, (struct sp_str){first, n});
    *ret = (struct sp_str){copy, n};
    return copy != NULL || sp_toml_no_memory(r);
}

static bool read_key_part(struct sp_toml_reader *r, struct sp_str *ret, const char **ret_at)
{
    sp_toml_skip_blanks(r);
    *ret_at = r->p;
    if (r->p < r->end && (*r->p == '"' || *r->p == '\''))
        return sp_toml_read_string(r, false, ret);
    return read_bare(r, ret);
}

/* Whether another part follows; steps over the dot. */
static bool skip_dot(struct sp_toml_reader *r)
{
    sp_toml_skip_blanks(r);
    if (r->p == r->end || *r->p != '.')
        return false;
    r->p++;
    return true;
}

static bool refuse_twice(struct sp_toml_reader *r, const char *at, struct sp_str key)
{
    return sp_toml_fail(r, at, "`%.*s` is defined already", SHOWN(key));
}

static bool refuse_fixed(struct sp_toml_reader *r, const char *at, struct sp_str key)
{
    return sp_toml_fail(r, at, "`%.*s` is defined already, and nothing can be added to it here",
                        SHOWN(key));
}

/* ---- keys with values ---- */

/* One step of a dotted key down from *table. */
static bool step_by_dots(struct sp_toml_reader *r, struct sp_str key, const char *at,
                         struct sp_toml_value **table)
{
    struct sp_toml_value *v = sp_toml_find(r, *table, key);

    if (v == NULL) {
        v = sp_toml_add(r, *table, key, at);
        *table = v;
        return v != NULL && sp_toml_become(r, v, SP_TOML_TABLE, SP_TOML_BY_DOTS);
    }
    if (v->type != SP_TOML_TABLE || v->made == SP_TOML_BY_HEADER || v->made == SP_TOML_BY_VALUE ||
        (v->made == SP_TOML_BY_DOTS && v->section != r->section))
        return refuse_fixed(r, at, key);
    v->made = SP_TOML_BY_DOTS;
    v->section = r->section;
    *table = v;
    return true;
}

bool sp_toml_read_pair(struct sp_toml_reader *r, struct sp_toml_value *table)
{
    struct sp_str key = {0};
    const char *at = r->p;

    if (!read_key_part(r, &key, &at))
        return false;
    while (skip_dot(r))
        if (!step_by_dots(r, key, at, &table) || !read_key_part(r, &key, &at))
            return false;
    if (r->p == r->end || *r->p != '=')
        return sp_toml_fail(r, r->p, "expected `=` after a key");
    r->p++;
    sp_toml_skip_blanks(r);
    if (sp_toml_find(r, table, key) != NULL)
        return refuse_twice(r, at, key);
    struct sp_toml_value *v = sp_toml_add(r, table, key, at);
    return v != NULL && sp_toml_read_value(r, v);
}

/* ---- headers ---- */

/* One step of a header's name down from *table. */
static bool step_by_header(struct sp_toml_reader *r, struct sp_str key, const char *at,
                           struct sp_toml_value **table)
{
    struct sp_toml_value *v = sp_toml_find(r, *table, key);

    if (v == NULL) {
        v = sp_toml_add(r, *table, key, at);
        *table = v;
        return v != NULL && sp_toml_become(r, v, SP_TOML_TABLE, SP_TOML_BY_PASSING);
    }
    if (v->type == SP_TOML_ARRAY && v->made == SP_TOML_BY_HEADER)
        v = v->last; /* a name means the newest of an array of tables */
    if (v->type != SP_TOML_TABLE || v->made == SP_TOML_BY_VALUE)
        return refuse_fixed(r, at, key);
    *table = v;
    return true;
}

static bool define_table(struct sp_toml_reader *r, struct sp_str key, const char *at,
                         struct sp_toml_value **table)
{
    struct sp_toml_value *v = sp_toml_find(r, *table, key);

    if (v != NULL && (v->type != SP_TOML_TABLE || v->made != SP_TOML_BY_PASSING))
        return refuse_twice(r, at, key);
    if (v == NULL) {
        v = sp_toml_add(r, *table, key, at);
        if (v == NULL || !sp_toml_become(r, v, SP_TOML_TABLE, SP_TOML_BY_HEADER))
            return false;
    }
    v->made = SP_TOML_BY_HEADER;
    *table = v;
    return true;
}

static bool add_to_array(struct sp_toml_reader *r, struct sp_str key, const char *at,
                         struct sp_toml_value **table)
{
    struct sp_toml_value *v = sp_toml_find(r, *table, key);

    if (v != NULL && (v->type != SP_TOML_ARRAY || v->made != SP_TOML_BY_HEADER))
        return refuse_twice(r, at, key);
    if (v == NULL) {
        v = sp_toml_add(r, *table, key, at);
        if (v == NULL || !sp_toml_become(r, v, SP_TOML_ARRAY, SP_TOML_BY_HEADER))
            return false;
    }
    struct sp_toml_value *one = sp_toml_add(r, v, (struct sp_str){0}, at);
    *table = one;
    return one != NULL && sp_toml_become(r, one, SP_TOML_TABLE, SP_TOML_BY_HEADER);
}

/* [NAME] or [[NAME]]; *table becomes what it names. */
static bool read_header(struct sp_toml_reader *r, struct sp_toml_value **table)
{
    const bool is_array = sp_toml_is_here(r, "[[");
    const char *close = is_array ? "]]" : "]";
    struct sp_str key = {0};
    const char *at = r->p;

    r->p += strlen(close);
    r->section++;
    *table = r->doc->root;
    if (!read_key_part(r, &key, &at))
        return false;
    while (skip_dot(r))
        if (!step_by_header(r, key, at, table) || !read_key_part(r, &key, &at))
            return false;
    if (!sp_toml_is_here(r, close))
        return sp_toml_fail(r, r->p, "expected `%s` at the end of a header", close);
    r->p += strlen(close);
    if (!(is_array ? add_to_array(r, key, at, table) : define_table(r, key, at, table)))
        return false;
    return end_line(r, "a header");
}

bool sp_toml_read_document(struct sp_toml_reader *r)
{
    struct sp_toml_value *table = r->doc->root;

    for (;;) {
        sp_toml_skip_blanks(r);
        if (r->p == r->end)
            return true;
        if (*r->p == '[') {
            if (!read_header(r, &table))
                return false;
        } else if (*r->p == '#' || sp_toml_at_newline(r)) {
            if (!end_line(r, "a comment"))
                return false;
        } else if (!sp_toml_read_pair(r, table) || !end_line(r, "a value")) {
            return false;
        }
    }
}
