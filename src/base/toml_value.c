/* SPDX-License-Identifier: Apache-2.0 */
/* Values. Arrays and inline tables call each other, no deeper than SP_TOML_MAX_DEPTH. */
#include "base/toml_priv.h"

/* ---- arrays ---- */

/* Everything that may stand between two values of an array. */
static bool skip_space(struct sp_toml_reader *r)
{
    for (;;) {
        sp_toml_skip_blanks(r);
        if (!sp_toml_skip_comment(r))
            return false;
        if (!sp_toml_at_newline(r))
            return true;
        sp_toml_skip_newline(r);
    }
}

static bool read_item(struct sp_toml_reader *r, struct sp_toml_value *array)
{
    struct sp_toml_value *v = sp_toml_add(r, array, (struct sp_str){0}, r->p);

    return v != NULL && sp_toml_read_value(r, v) && skip_space(r);
}

static bool read_array(struct sp_toml_reader *r, struct sp_toml_value *v)
{
    if (!sp_toml_become(r, v, SP_TOML_ARRAY, SP_TOML_BY_VALUE))
        return false;
    r->p++;
    if (!skip_space(r))
        return false;
    while (!sp_toml_is_here(r, "]")) {
        if (!read_item(r, v))
            return false;
        if (sp_toml_is_here(r, "]"))
            break;
        if (!sp_toml_is_here(r, ","))
            return sp_toml_fail(r, r->p, "expected `,` or `]` in an array");
        r->p++;
        if (!skip_space(r))
            return false;
    }
    r->p++;
    return true;
}

/* ---- inline tables ---- */

/* On one line, and without a comma at the end: so says TOML 1.0. */
static bool read_inline_table(struct sp_toml_reader *r, struct sp_toml_value *v)
{
    if (!sp_toml_become(r, v, SP_TOML_TABLE, SP_TOML_BY_VALUE))
        return false;
    r->p++;
    sp_toml_skip_blanks(r);
    if (sp_toml_is_here(r, "}")) {
        r->p++;
        return true;
    }
    for (;;) {
        if (!sp_toml_read_pair(r, v))
            return false;
        sp_toml_skip_blanks(r);
        if (sp_toml_is_here(r, "}"))
            break;
        if (!sp_toml_is_here(r, ","))
            return sp_toml_fail(r, r->p, "expected `,` or `}` in an inline table");
        r->p++;
    }
    r->p++;
    return true;
}

/* ---- all of them ---- */

static bool read_word(struct sp_toml_reader *r, struct sp_toml_value *v)
{
    const bool is_true = sp_toml_is_here(r, "true");

    if (!is_true && !sp_toml_is_here(r, "false"))
        return sp_toml_fail(r, r->p, "expected a value (a string stands in quotes)");
    v->type = SP_TOML_BOOLEAN;
    v->boolean = is_true;
    r->p += is_true ? 4 : 5;
    return true;
}

static bool read_string(struct sp_toml_reader *r, struct sp_toml_value *v)
{
    v->type = SP_TOML_STRING;
    return sp_toml_read_string(r, true, &v->text);
}

static bool read_number_or_date(struct sp_toml_reader *r, struct sp_toml_value *v)
{
    bool is_date = false;

    if (!sp_toml_read_date(r, v, &is_date))
        return false;
    return is_date || sp_toml_read_number(r, v);
}

bool sp_toml_read_value(struct sp_toml_reader *r, struct sp_toml_value *v)
{
    const char c = r->p == r->end ? 0 : *r->p;

    v->at = (uint32_t)(r->p - r->doc->text.p);
    v->made = SP_TOML_BY_VALUE;
    if (c == '"' || c == '\'')
        return read_string(r, v);
    if (c == '[')
        return read_array(r, v);
    if (c == '{')
        return read_inline_table(r, v);
    if ((c >= '0' && c <= '9') || c == '+' || c == '-' || sp_toml_is_here(r, "inf") ||
        sp_toml_is_here(r, "nan"))
        return read_number_or_date(r, v);
    return read_word(r, v);
}
