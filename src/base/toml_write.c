/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and arrays; the depth is what the reader allowed, SP_TOML_MAX_DEPTH. */
#include "base/toml_write.h"

#include "base/toml_write_priv.h"

/* ---- on one line ---- */

/* NOLINTBEGIN(misc-no-recursion): bounded as said above */

static bool write_inline(struct sp_buf *out, const struct sp_toml_value *v);

static bool write_items(struct sp_buf *out, const struct sp_toml_value *array)
{
    bool ok = sp_buf_add(out, "[", 1);

    for (const struct sp_toml_value *v = array->first; ok && v != NULL; v = v->next)
        ok = write_inline(out, v) && (v->next == NULL || sp_buf_add(out, ", ", 2));
    return ok && sp_buf_add(out, "]", 1);
}

static bool write_pair(struct sp_buf *out, const struct sp_toml_value *v)
{
    return sp_toml_write_key(out, v->key) && sp_buf_add(out, " = ", 3) && write_inline(out, v);
}

static bool write_members(struct sp_buf *out, const struct sp_toml_value *table)
{
    if (table->first == NULL)
        return sp_buf_add(out, "{}", 2);
    bool ok = sp_buf_add(out, "{ ", 2);
    for (const struct sp_toml_value *v = table->first; ok && v != NULL; v = v->next)
        ok = write_pair(out, v) && (v->next == NULL || sp_buf_add(out, ", ", 2));
    return ok && sp_buf_add(out, " }", 2);
}

static bool write_inline(struct sp_buf *out, const struct sp_toml_value *v)
{
    if (v->type == SP_TOML_ARRAY)
        return write_items(out, v);
    return v->type == SP_TOML_TABLE ? write_members(out, v) : sp_toml_write_scalar(out, v);
}

/* ---- under headers ---- */

static bool is_array_of_tables(const struct sp_toml_value *v)
{
    if (v->type != SP_TOML_ARRAY || v->first == NULL)
        return false;
    for (const struct sp_toml_value *item = v->first; item != NULL; item = item->next)
        if (item->type != SP_TOML_TABLE)
            return false;
    return true;
}

static bool has_header(const struct sp_toml_value *v)
{
    return v->type == SP_TOML_TABLE || is_array_of_tables(v);
}

/* The keys from the root down to v. */
static bool write_name(struct sp_buf *out, const struct sp_toml_value *v)
{
    const struct sp_toml_value *way[SP_TOML_MAX_DEPTH + 1];
    size_t n = 0;
    bool ok = true;

    for (; v != NULL && n < sizeof way / sizeof way[0]; v = v->parent)
        if (v->key.p != NULL)
            way[n++] = v;
    while (ok && n-- > 0)
        ok = sp_toml_write_key(out, way[n]->key) && (n == 0 || sp_buf_add(out, ".", 1));
    return ok;
}

static bool write_header(struct sp_buf *out, const struct sp_toml_value *table, bool is_item)
{
    return (out->len == 0 || sp_buf_add(out, "\n", 1)) &&
           sp_buf_printf(out, is_item ? "[[" : "[") && write_name(out, table) &&
           sp_buf_printf(out, is_item ? "]]\n" : "]\n");
}

/* A table that only leads to others needs no header. */
static bool needs_header(const struct sp_toml_value *table)
{
    for (const struct sp_toml_value *v = table->first; v != NULL; v = v->next)
        if (!has_header(v))
            return true;
    return table->first == NULL;
}

static bool write_table(struct sp_buf *out, const struct sp_toml_value *table);

static bool write_below(struct sp_buf *out, const struct sp_toml_value *v)
{
    bool ok = true;

    if (v->type == SP_TOML_TABLE)
        return (!needs_header(v) || write_header(out, v, false)) && write_table(out, v);
    for (const struct sp_toml_value *item = v->first; ok && item != NULL; item = item->next)
        ok = write_header(out, item, true) && write_table(out, item);
    return ok;
}

static bool write_table(struct sp_buf *out, const struct sp_toml_value *table)
{
    bool ok = true;

    for (const struct sp_toml_value *v = table->first; ok && v != NULL; v = v->next)
        if (!has_header(v))
            ok = write_pair(out, v) && sp_buf_add(out, "\n", 1);
    for (const struct sp_toml_value *v = table->first; ok && v != NULL; v = v->next)
        if (has_header(v))
            ok = write_below(out, v);
    return ok;
}

/* NOLINTEND(misc-no-recursion) */

bool sp_toml_write(struct sp_buf *out, const struct sp_toml_value *root)
{
    return write_table(out, root);
}
