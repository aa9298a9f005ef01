/* SPDX-License-Identifier: Apache-2.0 */
/* Strings and keys: which quotes they get. */
#include "base/toml_write_priv.h"

/* What is in a string that decides about its quotes. */
struct traits {
    bool has_backslash, has_line, has_control;
    size_t single_run, double_run; /* the longest run of ' and " */
};

static struct traits look_at(struct sp_str s)
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

/* Between double quotes. Of quotes inside, two in a row stand for themselves where lines may. */
static bool add_escaped(struct sp_buf *out, struct sp_str s, bool has_lines)
{
    size_t quotes = 0;
    size_t plain = 0; /* where the bytes begin that are still to be added as they are */

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

bool sp_toml_write_string(struct sp_buf *out, struct sp_str s)
{
    const struct traits t = look_at(s);
    const bool is_plain = !t.has_control && !t.has_backslash;

    if (is_plain && t.double_run == 0 && !t.has_line)
        return add_quoted(out, s, '"', NULL);
    if (!t.has_control && t.single_run == 0 && !t.has_line)
        return add_quoted(out, s, '\'', NULL);
    if (is_plain && t.double_run <= 2)
        return add_quoted(out, s, '"', &t);
    if (!t.has_control && t.single_run <= 2)
        return add_quoted(out, s, '\'', &t);
    return add_quoted(out, s, '"', t.has_line ? &t : NULL);
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

bool sp_toml_write_key(struct sp_buf *out, struct sp_str key)
{
    const struct traits t = look_at(key);

    if (is_bare(key))
        return sp_buf_add_str(out, key);
    if (!t.has_control && !t.has_backslash && t.double_run == 0 && !t.has_line)
        return add_quoted(out, key, '"', NULL);
    if (!t.has_control && t.single_run == 0 && !t.has_line)
        return add_quoted(out, key, '\'', NULL);
    return add_quoted(out, key, '"', NULL);
}
