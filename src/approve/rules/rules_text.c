/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_text: normal forms of hosts and paths, so that equal ones compare equal.
 */
#include "approve/rules/rules_priv.h"
#include "base/utf8.h"

static struct sp_str behind(struct sp_str s, size_t n)
{
    return (struct sp_str){s.p + n, s.n - n};
}

/* ---- hosts ---- */

static bool has(struct sp_str s, char c)
{
    return s.n != 0 && memchr(s.p, c, s.n) != NULL;
}

static bool is_port(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n != 0;
}

/* [ADDRESS] or [ADDRESS]:PORT. The error text, or NULL. */
static const char *strip_brackets(struct sp_str *s)
{
    const char *close = memchr(s->p, ']', s->n);

    if (close == NULL)
        return "has an invalid bracketed IPv6 literal";
    const struct sp_str rest = behind(*s, (size_t)(close - s->p) + 1);
    if (rest.n != 0 && (rest.p[0] != ':' || !is_port(behind(rest, 1))))
        return "contains an unsupported suffix: ";
    *s = (struct sp_str){s->p + 1, (size_t)(close - s->p) - 1};
    return NULL;
}

/* HOST:PORT. With more than one colon it is an IPv6 address. */
static void strip_port(struct sp_str *s)
{
    const char *colon = memchr(s->p, ':', s->n);

    if (colon == NULL || colon == s->p)
        return;
    const struct sp_str port = behind(*s, (size_t)(colon - s->p) + 1);
    if (is_port(port))
        s->n = (size_t)(colon - s->p);
}

const char *sp_rules_normal_host(struct sp_str s, char *out, struct sp_str *ret)
{
    const char *wrong = NULL;

    s = sp_utf8_trim(s);
    if (s.n == 0)
        return "cannot be empty";
    if (has(s, '/') || has(s, '?') || has(s, '#'))
        return "must be a hostname or IP literal (without scheme or path)";
    if (s.p[0] == '[')
        wrong = strip_brackets(&s);
    else
        strip_port(&s);
    if (wrong != NULL)
        return wrong;
    while (s.n != 0 && s.p[s.n - 1] == '.')
        s.n--;
    s = sp_utf8_trim(s);
    if (s.n == 0)
        return "cannot be empty";
    if (has(s, '*'))
        return "must be a specific host; wildcards are not allowed";
    for (size_t i = 0; i < s.n; i++)
        if (sp_utf8_space_at(behind(s, i)) != 0)
            return "cannot contain whitespace";
    for (size_t i = 0; i < s.n; i++)
        out[i] = (char)(s.p[i] >= 'A' && s.p[i] <= 'Z' ? s.p[i] | 0x20 : s.p[i]);
    *ret = (struct sp_str){out, s.n};
    return NULL;
}

/* ---- paths ---- */

struct sp_str sp_rules_normal_path(struct sp_str s, char *out, bool *ret_climbs)
{
    size_t n = 0;

    *ret_climbs = false;
    for (size_t i = 0; i < s.n;) {
        while (i < s.n && s.p[i] == '/')
            i++;
        const char *end = i < s.n ? memchr(s.p + i, '/', s.n - i) : NULL;
        const struct sp_str part = {s.p + i, end == NULL ? s.n - i : (size_t)(end - s.p) - i};

        i += part.n;
        if (part.n == 0 || sp_str_eq(part, SP_STR(".")))
            continue;
        if (sp_str_eq(part, SP_STR(".."))) {
            *ret_climbs = true;
            while (n > 0 && out[--n] != '/')
                ;
            continue;
        }
        out[n++] = '/';
        memcpy(out + n, part.p, part.n);
        n += part.n;
    }
    if (n == 0)
        out[n++] = '/';
    return (struct sp_str){out, n};
}
