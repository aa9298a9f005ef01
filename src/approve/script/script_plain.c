/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain scripts: simple commands of literal words, joined by && || ; | and newlines. Every shell
 * reads them alike, so what is read here is what runs. At the first byte of anything else the
 * script is given up.
 */
#include "approve/script/script_priv.h"
#include "base/utf8.h"

struct plain {
    struct sp_segment_list *list;
    const char *p, *end;
    char *bytes; /* words of several parts are put together here; a word is never longer than its
                    source, so there is room for all */
    size_t used;
    size_t size;
};

/* Bytes with a meaning outside of quotes; the newline and blanks are looked at before. */
static bool is_special(char c)
{
    return (unsigned char)c < ' ' || sp_is_one_of(c, "{}*?[]\\~^#$`()<>&;|'\"");
}

/* A word that a shell takes for grammar where a command begins; some of them in one shell only.
 * Those that declare are no simple commands either: they change what later names mean. */
static bool is_reserved(struct sp_str name)
{
    static const char *const words[] = {
        "if",     "then",     "elif",  "else",   "fi",       "case",      "esac",     "for",
        "select", "while",    "until", "do",     "done",     "in",        "function", "time",
        "coproc", "foreach",  "end",   "repeat", "always",   "nocorrect", "declare",  "typeset",
        "export", "readonly", "local", "unset",  "unsetenv", "integer",   "float",    "private",
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (sp_str_eq(name, sp_str_of(words[i])))
            return true;
    return false;
}

/* Whatever could be an assignment or a negation is no name. */
static bool is_name(struct sp_str s)
{
    return s.n != 0 && s.p[0] != '!' && memchr(s.p, '=', s.n) == NULL && !is_reserved(s);
}

/* ---- words ---- */

static bool read_bare(struct plain *r, struct sp_str *ret)
{
    const char *start = r->p;

    if (*start == '=') /* one shell takes the rest for a program to be found */
        return false;
    while (r->p < r->end && !is_special(*r->p) && !sp_is_blank(*r->p))
        r->p++;
    *ret = (struct sp_str){start, (size_t)(r->p - start)};
    return ret->n != 0;
}

static bool read_single(struct plain *r, struct sp_str *ret)
{
    const char *start = r->p + 1;
    const char *quote = memchr(start, '\'', (size_t)(r->end - start));

    if (quote == NULL)
        return false;
    r->p = quote + 1;
    *ret = (struct sp_str){start, (size_t)(quote - start)};
    return true;
}

static bool read_double(struct plain *r, struct sp_str *ret)
{
    const char *start = r->p + 1;
    const char *p = start;

    for (; p < r->end && *p != '"'; p++) {
        if (*p == '$' || *p == '`')
            return false;
        if (*p == '\\' && (p + 1 == r->end || sp_is_one_of(p[1], "$`\"\\\n")))
            return false;
    }
    if (p >= r->end)
        return false;
    r->p = p + 1;
    *ret = (struct sp_str){start, (size_t)(p - start)};
    return true;
}

static bool read_part(struct plain *r, struct sp_str *ret)
{
    if (*r->p == '\'')
        return read_single(r, ret);
    if (*r->p == '"')
        return read_double(r, ret);
    return read_bare(r, ret);
}

static bool is_word_end(const struct plain *r)
{
    return r->p >= r->end || sp_is_blank(*r->p) || sp_is_one_of(*r->p, "\n;&|");
}

static bool add_part(struct plain *r, struct sp_str part)
{
    if (r->bytes == NULL)
        r->bytes = sp_arena_new(&r->list->arena, r->size);
    if (r->bytes == NULL) {
        r->list->has_no_memory = true;
        return false;
    }
    if (part.n != 0)
        memcpy(r->bytes + r->used, part.p, part.n);
    r->used += part.n;
    return true;
}

/* A word of one part is borrowed from the script. */
static bool read_word(struct plain *r, struct sp_str *ret)
{
    const size_t start = r->used;

    if (!read_part(r, ret))
        return false;
    if (is_word_end(r))
        return true;
    if (!add_part(r, *ret))
        return false;
    while (!is_word_end(r)) {
        struct sp_str part;

        if (!read_part(r, &part) || !add_part(r, part))
            return false;
    }
    *ret = (struct sp_str){r->bytes + start, r->used - start};
    return ret->n != 0;
}

/* ---- commands ---- */

static void skip_blanks(struct plain *r)
{
    while (r->p < r->end && sp_is_blank(*r->p))
        r->p++;
}

static void skip_lines(struct plain *r)
{
    while (r->p < r->end && (sp_is_blank(*r->p) || *r->p == '\n'))
        r->p++;
}

static bool read_command(struct plain *r)
{
    struct sp_word_list words = {0};
    struct sp_str word;

    if (!read_bare(r, &word) || !is_word_end(r) || !is_name(word))
        return false;
    sp_segment_list_add_word(r->list, &words, word);
    for (skip_blanks(r); !is_word_end(r); skip_blanks(r)) {
        if (!read_word(r, &word))
            return false;
        sp_segment_list_add_word(r->list, &words, word);
    }
    sp_segment_list_add(r->list, &words);
    return true;
}

/* What joins two commands. *ret_needs_more: it is not fine at the end. */
static bool read_operator(struct plain *r, bool *ret_needs_more)
{
    const char c = *r->p++;
    const bool is_doubled = r->p < r->end && *r->p == c;

    *ret_needs_more = c == '&' || c == '|';
    if (c == '\n' || c == ';')
        return true;
    if (is_doubled)
        r->p++;
    else if (c == '&' || (r->p < r->end && *r->p == '&'))
        return false; /* & and |& */
    return true;
}

bool sp_script_read_plain(struct sp_segment_list *l, struct sp_str script)
{
    struct plain r = {.list = l, .p = script.p, .end = script.p + script.n, .size = script.n};
    bool needs_more = true;

    /* \1 and \x7f are marks of its own inside of bash, which did not always keep them apart. */
    if (script.n == 0 || script.n > SP_SCRIPT_MAX_BYTES || sp_str_has_nul(script) ||
        !sp_utf8_is_valid(script) || memchr(script.p, '\1', script.n) != NULL ||
        memchr(script.p, '\x7f', script.n) != NULL)
        return false;
    for (skip_lines(&r); r.p < r.end; skip_lines(&r)) {
        if (!read_command(&r))
            return false;
        needs_more = false;
        if (r.p < r.end && !read_operator(&r, &needs_more))
            return false;
    }
    return !needs_more;
}
