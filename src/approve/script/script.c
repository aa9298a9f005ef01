/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/script/script.h"

#include "approve/script/script_priv.h"
#include "base/utf8.h"

/* ---- shells and wrappers ---- */

bool sp_script_is_wrapper(struct sp_words argv, struct sp_str *ret_script)
{
    if (argv.count != 3)
        return false;
    const struct sp_str name = sp_base_name(argv.items[0]);
    if (!sp_str_eq(name, SP_STR("bash")) && !sp_str_eq(name, SP_STR("zsh")) &&
        !sp_str_eq(name, SP_STR("sh")))
        return false;
    if (!sp_str_eq(argv.items[1], SP_STR("-lc")) && !sp_str_eq(argv.items[1], SP_STR("-c")))
        return false;
    *ret_script = argv.items[2];
    return true;
}

static bool is_in(struct sp_str path, struct sp_str dir)
{
    return path.n > dir.n && memcmp(path.p, dir.p, dir.n) == 0 &&
           memchr(path.p + dir.n, '/', path.n - dir.n) == NULL;
}

bool sp_script_is_trusted_shell(struct sp_str argv0, const char *configured_shell)
{
    if (configured_shell != NULL && sp_str_eq(argv0, sp_str_of(configured_shell)))
        return true;
    return is_in(argv0, SP_STR("/bin/")) || is_in(argv0, SP_STR("/usr/bin/"));
}

/* ---- plain scripts ---- */

/*
 * Simple commands of literal words, joined by && || ; | and newlines. All shells read them alike,
 * so the segments are exactly what runs. At the first byte of anything else the reader gives up.
 */
struct plain {
    struct sp_segment_list *list;
    const char *p, *end;
    char *bytes; /* for words of several parts, never longer than their source; NULL: none yet */
    size_t used;
    size_t size;
};

/* Bytes with a meaning outside of quotes; callers check blanks and newlines first. */
static bool is_special(char c)
{
    return (unsigned char)c < ' ' || sp_is_one_of(c, "{}*?[]\\~^#$`()<>&;|'\"");
}

/* Keywords at the beginning of a command, some of them in one shell only; and the builtins that
 * declare variables, because they change the meaning of later names. */
static bool is_reserved(struct sp_str name)
{
    static const char *const words[] = {
        "if",        "then",    "elif",    "else",    "fi",       "case",   "esac",
        "for",       "select",  "while",   "until",   "do",       "done",   "in",
        "function",  "time",    "coproc",  "foreach", "end",      "repeat", "always",
        "nocorrect", "declare", "typeset", "export",  "readonly", "local",  "unset",
        "unsetenv",  "integer", "float",   "private", NULL};

    return sp_str_is_any_of(name, words);
}

/* Not an assignment, a negation or a keyword. */
static bool is_name(struct sp_str s)
{
    return s.n != 0 && s.p[0] != '!' && memchr(s.p, '=', s.n) == NULL && !is_reserved(s);
}

static bool read_bare(struct plain *r, struct sp_str *ret)
{
    const char *start = r->p;

    if (*start == '=') /* zsh replaces =ls by the path of ls */
        return false;
    while (r->p < r->end && !is_special(*r->p) && !sp_is_blank(*r->p))
        r->p++;
    *ret = (struct sp_str){start, (size_t)(r->p - start)};
    return ret->n != 0;
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
    const char *start = r->p + 1;

    if (*r->p == '"')
        return read_double(r, ret);
    if (*r->p != '\'')
        return read_bare(r, ret);
    const char *quote = memchr(start, '\'', (size_t)(r->end - start));
    if (quote == NULL)
        return false;
    r->p = quote + 1;
    *ret = (struct sp_str){start, (size_t)(quote - start)};
    return true;
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

/* A word of one part points into the script. */
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

/* The operator behind a command. *ret_needs_more: a command must follow. */
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

/* false: not a plain script, or no memory (in the list). */
static bool read_plain(struct sp_segment_list *l, struct sp_str script)
{
    struct plain r = {.list = l, .p = script.p, .end = script.p + script.n, .size = script.n};
    bool needs_more = true;

    /* bash uses \1 and \x7f (CTLESC, CTLNUL) internally, and older versions confused them with
     * input. */
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

int sp_segments_read(struct sp_segments *ret, struct sp_words argv, struct sp_err *e)
{
    struct sp_segment_list list = {0};
    struct sp_str script = {0};

    *ret = (struct sp_segments){.is_wrapper = sp_script_is_wrapper(argv, &script)};
    if (ret->is_wrapper && read_plain(&list, script))
        return sp_segment_list_finish(&list, ret, e);
    /* Not plain: drop the commands before that place. */
    const bool has_no_memory = list.has_no_memory;
    sp_arena_done(&list.arena);
    list = (struct sp_segment_list){.has_no_memory = has_no_memory};
    ret->is_opaque = ret->is_wrapper;
    struct sp_word_list words = {0};
    for (uint32_t i = 0; i < argv.count; i++)
        sp_segment_list_add_word(&list, &words, argv.items[i]);
    sp_segment_list_add(&list, &words);
    return sp_segment_list_finish(&list, ret, e);
}
