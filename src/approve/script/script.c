/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/script/script.h"

#include <errno.h>

#include "approve/script/script_priv.h"
#include "base/json.h"
#include "base/utf8.h"

/* ---- lists that grow ---- */

void sp_segment_list_add_word(struct sp_segment_list *l, struct sp_word_list *words,
                              struct sp_str text)
{
    struct sp_word_node *node = l->has_no_memory ? NULL : sp_arena_new(&l->arena, sizeof *node);

    if (node == NULL || words->count == UINT32_MAX) {
        l->has_no_memory = true;
        return;
    }
    node->text = text;
    if (words->first == NULL)
        words->first = node;
    else
        words->last->next = node;
    words->last = node;
    words->count++;
}

void sp_segment_list_add(struct sp_segment_list *l, const struct sp_word_list *words)
{
    struct sp_segment_node *node = l->has_no_memory ? NULL : sp_arena_new(&l->arena, sizeof *node);
    struct sp_str *items = node == NULL || l->count == UINT32_MAX
                               ? NULL
                               : sp_arena_new(&l->arena, words->count * sizeof *items);
    uint32_t i = 0;

    if (items == NULL) {
        l->has_no_memory = true;
        return;
    }
    for (const struct sp_word_node *w = words->first; w != NULL; w = w->next)
        items[i++] = w->text;
    node->words = (struct sp_words){items, i};
    if (l->first == NULL)
        l->first = node;
    else
        l->last->next = node;
    l->last = node;
    l->count++;
}

int sp_segment_list_finish(struct sp_segment_list *l, struct sp_segments *ret, struct sp_err *e)
{
    struct sp_words *items =
        l->has_no_memory ? NULL : sp_arena_new(&l->arena, l->count * sizeof *items);
    uint32_t i = 0;

    if (items == NULL) {
        sp_arena_done(&l->arena);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to read a command");
    }
    for (const struct sp_segment_node *s = l->first; s != NULL; s = s->next)
        items[i++] = s->words;
    ret->items = items;
    ret->count = i;
    ret->impl = l->arena.newest;
    return 0;
}

void sp_segments_done(struct sp_segments *s)
{
    struct sp_arena arena = {s->impl};

    sp_arena_done(&arena);
    *s = (struct sp_segments){0};
}

/* ---- shells and wrappers ---- */

bool sp_str_is_any_of(struct sp_str s, const char *const *names)
{
    while (*names != NULL && !sp_str_eq(s, sp_str_of(*names)))
        names++;
    return *names != NULL;
}

struct sp_str sp_base_name(struct sp_str path)
{
    const char *slash = path.n == 0 ? NULL : memrchr(path.p, '/', path.n);

    if (slash == NULL)
        return path;
    return (struct sp_str){slash + 1, path.n - (size_t)(slash + 1 - path.p)};
}

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

bool sp_words_add_json(struct sp_buf *out, struct sp_words words)
{
    bool ok = sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; ok && i < words.count; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, words.items[i]);
    return ok && sp_buf_add(out, "]", 1);
}

bool sp_words_equal(struct sp_words a, struct sp_words b)
{
    if (a.count != b.count)
        return false;
    for (uint32_t i = 0; i < a.count; i++)
        if (!sp_str_eq(a.items[i], b.items[i]))
            return false;
    return true;
}

/* ---- splitting and quoting words ---- */

struct split {
    const char *p, *end;
    char *out; /* room for as many bytes as the text has */
    bool is_broken;
};

static void skip_space(struct split *s)
{
    while (s->p < s->end) {
        if (*s->p == '#') {
            const char *line_end = memchr(s->p, '\n', (size_t)(s->end - s->p));

            s->p = line_end == NULL ? s->end : line_end;
        } else if (sp_is_blank(*s->p) || *s->p == '\n') {
            s->p++;
        } else {
            return;
        }
    }
}

/* Behind an opening double quote. */
static void split_double(struct split *s)
{
    while (s->p < s->end && *s->p != '"') {
        const char c = *s->p++;

        if (c != '\\') {
            *s->out++ = c;
            continue;
        }
        if (s->p == s->end)
            break;
        if (!sp_is_one_of(*s->p, "$`\"\\\n"))
            *s->out++ = c;
        if (*s->p != '\n')
            *s->out++ = *s->p;
        s->p++;
    }
    s->is_broken = s->p == s->end;
    s->p += !s->is_broken;
}

static void split_word(struct split *s)
{
    while (!s->is_broken && s->p < s->end && !sp_is_blank(*s->p) && *s->p != '\n') {
        const char c = *s->p++;

        if (c == '\'') {
            while (s->p < s->end && *s->p != '\'')
                *s->out++ = *s->p++;
            s->is_broken = s->p == s->end;
            s->p += !s->is_broken;
        } else if (c == '"') {
            split_double(s);
        } else if (c == '\\') {
            s->is_broken = s->p == s->end;
            if (!s->is_broken && *s->p != '\n')
                *s->out++ = *s->p;
            s->p += !s->is_broken;
        } else {
            *s->out++ = c;
        }
    }
}

int sp_words_split(struct sp_segments *ret, struct sp_str text, struct sp_err *e)
{
    struct sp_segment_list list = {0};
    struct sp_word_list words = {0};
    struct split s = {
        .p = text.p, .end = text.p + text.n, .out = sp_arena_new(&list.arena, text.n)};

    *ret = (struct sp_segments){0};
    list.has_no_memory = s.out == NULL;
    for (skip_space(&s); !list.has_no_memory && !s.is_broken && s.p < s.end; skip_space(&s)) {
        const char *start = s.out;

        split_word(&s);
        sp_segment_list_add_word(&list, &words, (struct sp_str){start, (size_t)(s.out - start)});
    }
    if (s.is_broken) {
        sp_arena_done(&list.arena);
        return sp_fail(e, SP_E_INVALID, 0, "a quote or a backslash has no end");
    }
    sp_segment_list_add(&list, &words);
    return sp_segment_list_finish(&list, ret, e);
}

enum way { BARE = 1, SINGLE = 2, DOUBLE = 4 };

/* The ways in which a byte may be quoted, as Codex does it. ^ may only be the first byte in single
 * quotes (add_quoted). */
static unsigned ways_of(char c)
{
    unsigned ways = 0;

    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
        sp_is_one_of(c, "+-./:@]_"))
        ways |= BARE;
    if (c != '\'' && c != '^' && c != '\\')
        ways |= SINGLE;
    if (c != '`' && c != '$' && c != '!' && c != '^')
        ways |= DOUBLE;
    return ways;
}

/* Writes the word in chunks, each as long as one way of quoting permits. */
static bool add_quoted(struct sp_buf *out, struct sp_str word)
{
    bool ok = word.n != 0 || sp_buf_add(out, "''", 2);

    while (ok && word.n != 0) {
        unsigned ways = word.p[0] == '^' ? SINGLE : BARE | SINGLE | DOUBLE;
        size_t n = word.p[0] == '^';

        for (; n < word.n && (ways & ways_of(word.p[n])) != 0; n++)
            ways &= ways_of(word.p[n]);
        const char *quote = (ways & BARE) != 0 ? "" : (ways & SINGLE) != 0 ? "'" : "\"";
        ok = sp_buf_add_str(out, sp_str_of(quote));
        if (*quote != '"')
            ok = ok && sp_buf_add(out, word.p, n);
        for (size_t i = 0; *quote == '"' && ok && i < n; i++)
            ok = ((word.p[i] != '"' && word.p[i] != '\\') || sp_buf_add(out, "\\", 1)) &&
                 sp_buf_add(out, word.p + i, 1);
        ok = ok && sp_buf_add_str(out, sp_str_of(quote));
        word = (struct sp_str){word.p + n, word.n - n};
    }
    return ok;
}

bool sp_words_add_quoted(struct sp_buf *out, struct sp_words words)
{
    for (uint32_t i = 0; i < words.count; i++)
        if (sp_str_has_nul(words.items[i])) /* cannot be written for a shell */
            return sp_buf_add_str(out, SP_STR("<command included NUL byte>"));
    for (uint32_t i = 0; i < words.count; i++)
        if ((i != 0 && !sp_buf_add(out, " ", 1)) || !add_quoted(out, words.items[i]))
            return false;
    return true;
}
