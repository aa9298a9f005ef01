/* SPDX-License-Identifier: Apache-2.0 */
/* Selecting parts of a tree, and the writer. The writer's recursion is as deep as the reader
 * allows, SP_TOML_MAX_DEPTH. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/toml.h"

/* ---- selecting by paths ---- */

/*
 * Sorted paths are a tree that needs no building: paths with the same first keys are neighbours,
 * and the one that ends there comes first. Each key of the document costs one binary search.
 */
struct path_range {
    const struct sp_toml_path *first;
    uint32_t count;
};

static int compare_paths(const void *left, const void *right)
{
    const struct sp_toml_path *a = left;
    const struct sp_toml_path *b = right;

    for (uint32_t i = 0; i < a->count && i < b->count; i++) {
        const int r = sp_str_compare(a->keys[i], b->keys[i]);

        if (r != 0)
            return r;
    }
    return (a->count > b->count) - (a->count < b->count);
}

/* Index of the first path with a key >= `key` at this depth (is_after: > `key`). */
static uint32_t find_bound(struct path_range in, uint32_t depth, struct sp_str key, bool is_after)
{
    uint32_t low = 0;
    uint32_t high = in.count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int r = sp_str_compare(in.first[middle].keys[depth], key);

        if (r < 0 || (is_after && r == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* All paths of the range have a key at `depth`: they lead below this table. */
static void prune_table(struct sp_toml_value *table, struct path_range in, uint32_t depth)
{
    struct sp_toml_value *kept = NULL;
    struct sp_toml_value *next;
    uint32_t count = 0;

    for (struct sp_toml_value *v = table->first; v != NULL; v = next) {
        const uint32_t from = find_bound(in, depth, v->key, false);
        const struct path_range below = {in.first + from,
                                         find_bound(in, depth, v->key, true) - from};

        next = v->next;
        if (below.count == 0)
            continue;
        if (v->type == SP_TOML_TABLE && below.first->count > depth + 1)
            prune_table(v, below, depth + 1);
        if (kept == NULL)
            table->first = v;
        else
            kept->next = v;
        kept = v;
        count++;
    }
    if (kept == NULL)
        table->first = NULL;
    else
        kept->next = NULL;
    table->last = kept;
    table->count = count;
}

bool sp_toml_select(struct sp_toml_value *table, struct sp_toml_path *paths, uint32_t count)
{
    if (count > 1)
        qsort(paths, count, sizeof *paths, compare_paths);
    prune_table(table, (struct path_range){paths, count}, 0);
    return table->count != 0;
}

/* ---- strings and keys ---- */

/* What decides about the quotes of a string. */
struct traits {
    bool has_backslash, has_line, has_control;
    size_t single_run, double_run; /* the longest run of ' and " */
};

static struct traits traits_of(struct sp_str s)
{
    struct traits t = {0};
    size_t single = 0;
    size_t twice = 0;

    for (size_t i = 0; i < s.n; i++) {
        const unsigned char c = (unsigned char)s.p[i];

        single = c == '\'' ? single + 1 : 0;
        twice = c == '"' ? twice + 1 : 0;
        if (single > t.single_run)
            t.single_run = single;
        if (twice > t.double_run)
            t.double_run = twice;
        if (c == '\\')
            t.has_backslash = true;
        else if (c == '\n')
            t.has_line = true;
        else if ((c < ' ' && c != '\t') || c == 0x7F)
            t.has_control = true;
    }
    return t;
}

static bool add_escape(struct sp_buf *out, unsigned char c)
{
    static const char letters[] = "btnfr\"\\";
    static const char bytes[] = "\b\t\n\f\r\"\\";
    const char *known = c == 0 ? NULL : strchr(bytes, c);

    if (known != NULL)
        return sp_buf_printf(out, "\\%c", letters[known - bytes]);
    return sp_buf_printf(out, "\\u%04X", c);
}

/* The content of a string in double quotes. In one of several lines, two quotes in a row need no
 * escape. */
static bool add_escaped(struct sp_buf *out, struct sp_str s, bool has_lines)
{
    size_t quotes = 0;
    size_t plain = 0; /* first of the bytes that are not added yet */

    for (size_t i = 0; i < s.n; i++) {
        const unsigned char c = (unsigned char)s.p[i];
        bool is_escaped = c == '\\' || (c < ' ' && (c != '\n' || !has_lines)) || c == 0x7F;

        quotes = c == '"' ? quotes + 1 : 0;
        if (c == '"' && (!has_lines || quotes > 2)) {
            is_escaped = true;
            quotes = 0;
        }
        if (!is_escaped)
            continue;
        if (!sp_buf_add(out, s.p + plain, i - plain) || !add_escape(out, c))
            return false;
        plain = i + 1;
    }
    return sp_buf_add(out, s.p + plain, s.n - plain);
}

static bool add_quoted(struct sp_buf *out, struct sp_str s, char quote, const struct traits *lines)
{
    const size_t width = lines == NULL ? 1 : 3;
    const char quotes[3] = {quote, quote, quote};

    if (!sp_buf_add(out, quotes, width) ||
        (lines != NULL && lines->has_line && !sp_buf_add(out, "\n", 1)))
        return false;
    const bool ok = quote == '"' ? add_escaped(out, s, lines != NULL) : sp_buf_add(out, s.p, s.n);
    return ok && sp_buf_add(out, quotes, width);
}

static bool is_bare(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        const char c = s.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return s.n != 0;
}

static bool write_key(struct sp_buf *out, struct sp_str key)
{
    const struct traits t = traits_of(key);

    if (is_bare(key))
        return sp_buf_add_str(out, key);
    const bool needs_escape = t.has_backslash || t.double_run != 0;
    const bool can_be_literal = !t.has_control && t.single_run == 0 && !t.has_line;
    return add_quoted(out, key, needs_escape && can_be_literal ? '\'' : '"', NULL);
}

/* ---- numbers and dates ---- */

#define MAX_DIGITS 17 /* that a double may need */

/* The fewest digits d.ddd * 10^power that read back as v. Returns their count. */
static int find_digits(double v, char digits[MAX_DIGITS + 1], int *ret_power)
{
    char text[40];

    for (int n = 1; n <= MAX_DIGITS; n++) {
        (void)snprintf(text, sizeof text, "%.*e", n - 1, v);
        if (n < MAX_DIGITS && strtod(text, NULL) != v)
            continue;
        const char *e = strchr(text, 'e');
        int count = 0;

        for (const char *p = text; p < e && count < MAX_DIGITS; p++)
            if (*p >= '0' && *p <= '9')
                digits[count++] = *p;
        *ret_power = atoi(e + 1); /* NOLINT(cert-err34-c): snprintf wrote it */
        return count;
    }
    return 0;
}

static bool add_zeros(struct sp_buf *out, int n)
{
    bool ok = true;

    while (ok && n-- > 0)
        ok = sp_buf_add(out, "0", 1);
    return ok;
}

/* Without an exponent. */
static bool add_positive(struct sp_buf *out, double v)
{
    char digits[MAX_DIGITS + 1];
    int power = 0;
    const int n = find_digits(v, digits, &power);
    const int whole = power + 1; /* digits before the point */

    if (whole <= 0)
        return sp_buf_printf(out, "0.") && add_zeros(out, -whole) &&
               sp_buf_add(out, digits, (size_t)n);
    if (whole >= n)
        return sp_buf_add(out, digits, (size_t)n) && add_zeros(out, whole - n) &&
               sp_buf_printf(out, ".0");
    return sp_buf_add(out, digits, (size_t)whole) && sp_buf_add(out, ".", 1) &&
           sp_buf_add(out, digits + whole, (size_t)(n - whole));
}

/* As written (the reader has checked it), but with capital T and Z, "+00:00" for "-00:00", and
 * fractions of a second with at most nine digits and no trailing zeros. */
static bool add_date(struct sp_buf *out, struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];

        if (c == '.') {
            const size_t from = ++i;

            while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
                i++;
            size_t n = i - from > 9 ? 9 : i - from;
            while (n > 0 && s.p[from + n - 1] == '0')
                n--;
            if (n != 0 && !(sp_buf_add(out, ".", 1) && sp_buf_add(out, s.p + from, n)))
                return false;
            i--;
            continue;
        }
        if (c == '-' && i + 6 == s.n && memcmp(s.p + i, "-00:00", 6) == 0)
            c = '+';
        else if (c == 't' || c == ' ')
            c = 'T';
        else if (c == 'z')
            c = 'Z';
        if (!sp_buf_add(out, &c, 1))
            return false;
    }
    return true;
}

/* Any value that is not an array or a table. */
static bool write_scalar(struct sp_buf *out, const struct sp_toml_value *v)
{
    switch (v->type) {
    case SP_TOML_STRING: {
        const struct traits t = traits_of(v->text);
        const bool is_plain = !t.has_control && !t.has_backslash;

        if (is_plain && t.double_run == 0 && !t.has_line)
            return add_quoted(out, v->text, '"', NULL);
        if (!t.has_control && t.single_run == 0 && !t.has_line)
            return add_quoted(out, v->text, '\'', NULL);
        if (is_plain && t.double_run <= 2)
            return add_quoted(out, v->text, '"', &t);
        if (!t.has_control && t.single_run <= 2)
            return add_quoted(out, v->text, '\'', &t);
        return add_quoted(out, v->text, '"', t.has_line ? &t : NULL);
    }
    case SP_TOML_INTEGER:
        return sp_buf_printf(out, "%lld", (long long)v->integer);
    case SP_TOML_FLOAT:
        if (isnan(v->real))
            return sp_buf_printf(out, "nan");
        if (signbit(v->real) && !sp_buf_add(out, "-", 1))
            return false;
        if (isinf(v->real))
            return sp_buf_printf(out, "inf");
        return v->real == 0 ? sp_buf_printf(out, "0.0") : add_positive(out, fabs(v->real));
    case SP_TOML_BOOLEAN:
        return sp_buf_printf(out, v->boolean ? "true" : "false");
    case SP_TOML_OFFSET_DATE_TIME:
    case SP_TOML_LOCAL_DATE_TIME:
    case SP_TOML_LOCAL_DATE:
    case SP_TOML_LOCAL_TIME:
        return add_date(out, v->text);
    case SP_TOML_ARRAY:
    case SP_TOML_TABLE:
        break;
    }
    return false;
}

/* ---- on one line ---- */

/* NOLINTBEGIN(misc-no-recursion): SP_TOML_MAX_DEPTH */

static bool write_inline(struct sp_buf *out, const struct sp_toml_value *v);

static bool write_pair(struct sp_buf *out, const struct sp_toml_value *v)
{
    return write_key(out, v->key) && sp_buf_add(out, " = ", 3) && write_inline(out, v);
}

static bool write_inline(struct sp_buf *out, const struct sp_toml_value *v)
{
    const bool is_array = v->type == SP_TOML_ARRAY;
    bool ok;

    if (!is_array && v->type != SP_TOML_TABLE)
        return write_scalar(out, v);
    if (!is_array && v->first == NULL)
        return sp_buf_add(out, "{}", 2);
    ok = sp_buf_printf(out, is_array ? "[" : "{ ");
    for (const struct sp_toml_value *i = v->first; ok && i != NULL; i = i->next)
        ok = (is_array ? write_inline(out, i) : write_pair(out, i)) &&
             (i->next == NULL || sp_buf_add(out, ", ", 2));
    return ok && sp_buf_printf(out, is_array ? "]" : " }");
}

/* ---- under headers ---- */

/* A table, or an array that holds tables only. */
static bool has_header(const struct sp_toml_value *v)
{
    if (v->type != SP_TOML_ARRAY || v->first == NULL)
        return v->type == SP_TOML_TABLE;
    for (const struct sp_toml_value *item = v->first; item != NULL; item = item->next)
        if (item->type != SP_TOML_TABLE)
            return false;
    return true;
}

static bool write_header(struct sp_buf *out, const struct sp_toml_value *table, bool is_item)
{
    const struct sp_toml_value *way[SP_TOML_MAX_DEPTH + 1]; /* up to the root */
    size_t n = 0;
    bool ok =
        (out->len == 0 || sp_buf_add(out, "\n", 1)) && sp_buf_printf(out, is_item ? "[[" : "[");

    for (; table != NULL && n < sizeof way / sizeof way[0]; table = table->parent)
        if (table->key.p != NULL)
            way[n++] = table;
    while (ok && n-- > 0)
        ok = write_key(out, way[n]->key) && (n == 0 || sp_buf_add(out, ".", 1));
    return ok && sp_buf_printf(out, is_item ? "]]\n" : "]\n");
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
