/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts, paths and white space as rules have them: normal forms, so that equal ones are equal. */
#include "approve/rules/rules_priv.h"

/* ---- white space: Unicode's White_Space ---- */

/* How many bytes of white space are at the front of s, which is valid UTF-8; 0: none. */
static size_t blank_at(struct sp_str s)
{
    static const char *const wide[] = {
        "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\xA8",
        "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80",
    };

    if (s.n == 0)
        return 0;
    if (s.p[0] == ' ' || (s.p[0] >= '\t' && s.p[0] <= '\r'))
        return 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (s.n >= strlen(wide[i]) && memcmp(s.p, wide[i], strlen(wide[i])) == 0)
            return strlen(wide[i]);
    /* U+2000 to U+200A */
    return s.n >= 3 && memcmp(s.p, "\xE2\x80", 2) == 0 && (unsigned char)s.p[2] >= 0x80 &&
                   (unsigned char)s.p[2] <= 0x8A
               ? 3
               : 0;
}

static struct sp_str behind(struct sp_str s, size_t n)
{
    return (struct sp_str){s.p + n, s.n - n};
}

static struct sp_str trim_end(struct sp_str s)
{
    size_t end = 0; /* behind the last byte that is not blank */

    for (size_t i = 0; i < s.n;) {
        const size_t n = blank_at(behind(s, i));

        i += n == 0 ? 1 : n;
        if (n == 0)
            end = i;
    }
    return (struct sp_str){s.p, end};
}

struct sp_str sp_rules_trim(struct sp_str s)
{
    for (size_t n = blank_at(s); n != 0; n = blank_at(s))
        s = behind(s, n);
    return trim_end(s);
}

bool sp_rules_has_blank(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (blank_at(behind(s, i)) != 0)
            return true;
    return false;
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

/* [ADDRESS] or [ADDRESS]:PORT. Returns what is wrong, or NULL. */
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

/* HOST:PORT; more than one colon is an address. */
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

    s = sp_rules_trim(s);
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
    s = sp_rules_trim(s);
    if (s.n == 0)
        return "cannot be empty";
    if (has(s, '*'))
        return "must be a specific host; wildcards are not allowed";
    if (sp_rules_has_blank(s))
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

struct sp_str sp_rules_base_name(struct sp_str path)
{
    size_t i = path.n;

    while (i > 0 && path.p[i - 1] != '/')
        i--;
    return behind(path, i);
}
