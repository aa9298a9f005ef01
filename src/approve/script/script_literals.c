/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every simple command of a script, wherever it stands: a reader of shell grammar by recursive
 * descent. It need not know what a script means, only where its commands are, and so it is a little
 * more tolerant than a shell; at what no shell would read it stops.
 */
#include "approve/script/script_read.h"

bool sp_reader_enter(struct sp_reader *r)
{
    if (r->has_failed)
        return false;
    if (r->depth > SP_SCRIPT_MAX_DEPTH) {
        *r->is_too_deep = r->has_failed = true;
        return false;
    }
    r->depth++;
    return true;
}

void sp_reader_leave(struct sp_reader *r)
{
    r->depth--;
}

/* ---- between words ---- */

void sp_reader_skip_blanks(struct sp_reader *r)
{
    for (;;) {
        if (sp_is_blank(sp_reader_peek(r, 0)))
            r->p++;
        else if (sp_reader_is_at(r, "\\\n"))
            r->p += 2;
        else
            return;
    }
}

static void skip_comment(struct sp_reader *r)
{
    if (sp_reader_peek(r, 0) != '#')
        return;
    const char *newline = memchr(r->p, '\n', (size_t)(r->end - r->p));
    r->p = newline == NULL ? r->end : newline;
}

void sp_reader_skip_lines(struct sp_reader *r)
{
    for (;;) {
        sp_reader_skip_blanks(r);
        skip_comment(r);
        if (sp_reader_peek(r, 0) != '\n')
            return;
        sp_reader_newline(r);
    }
}

struct sp_str sp_reader_keyword(const struct sp_reader *r)
{
    size_t n = 0;
    const size_t longest = sizeof "function" - 1;

    if (sp_reader_is_at_end(r))
        return (struct sp_str){NULL, 0};
    while (n <= longest && (size_t)(r->end - r->p) > n && !sp_is_meta(r->p[n]) && r->p[n] != '\\')
        n++;
    return (struct sp_str){r->p, n > longest ? 0 : n};
}

bool sp_reader_accept(struct sp_reader *r, const char *keyword)
{
    const struct sp_str here = sp_reader_keyword(r);

    if (here.n == 0 || !sp_str_eq(here, sp_str_of(keyword)))
        return false;
    r->p += here.n;
    return true;
}

/* ---- redirections ---- */

static bool is_redirection(const struct sp_reader *r)
{
    const char c = sp_reader_peek(r, 0);
    const char next = sp_reader_peek(r, 1);

    return ((c == '<' || c == '>') && next != '(') || (c == '&' && next == '>');
}

static void read_redirection(struct sp_reader *r)
{
    struct sp_reader_word ignored;

    if (sp_reader_is_at(r, "<<") && !sp_reader_is_at(r, "<<<")) {
        const bool strips_tabs = sp_reader_is_at(r, "<<-");

        r->p += strips_tabs ? 3 : 2;
        sp_reader_here(r, strips_tabs);
        return;
    }
    while (is_redirection(r)) /* <<< >> <> &> &>> */
        r->p++;
    if (sp_reader_peek(r, 0) == '&' || sp_reader_peek(r, 0) == '|')
        r->p++;
    sp_reader_skip_blanks(r);
    if (sp_reader_is_at_word(r))
        sp_reader_word(r, &ignored);
    else
        r->has_failed = true;
}

static void read_redirections(struct sp_reader *r)
{
    struct sp_reader_word ignored;

    for (;;) {
        sp_reader_skip_blanks(r);
        if (sp_reader_peek(r, 0) >= '0' && sp_reader_peek(r, 0) <= '9')
            sp_reader_word(r, &ignored);
        if (!is_redirection(r))
            return;
        read_redirection(r);
    }
}

/* ---- simple commands ---- */

struct simple {
    struct sp_word_list words; /* the literal ones */
    uint32_t count;            /* of all words but assignments */
    bool is_begun;
};

static bool is_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static bool is_digits(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n != 0;
}

/* NAME=, NAME+=, NAME[...]= */
static bool is_assignment(const struct sp_reader *r, const struct sp_reader_word *w)
{
    const char *p = w->source;

    if (p >= r->p || !is_letter(*p))
        return false;
    while (p < r->p && (is_letter(*p) || (*p >= '0' && *p <= '9')))
        p++;
    if (p < r->p && *p == '[') {
        p = memchr(p, ']', (size_t)(r->p - p));
        if (p == NULL)
            return false;
        p++;
    }
    if (p < r->p && *p == '+')
        p++;
    return p < r->p && *p == '=';
}

/* NAME=(...) */
static void read_array(struct sp_reader *r)
{
    struct sp_reader_word ignored;

    if (sp_reader_peek(r, 0) != '(')
        return;
    r->p++;
    for (sp_reader_skip_lines(r); sp_reader_is_at_word(r); sp_reader_skip_lines(r))
        sp_reader_word(r, &ignored);
    if (sp_reader_peek(r, 0) == ')')
        r->p++;
    else
        r->has_failed = true;
}

static void read_simple_word(struct sp_reader *r, struct simple *s)
{
    struct sp_reader_word w;

    sp_reader_word(r, &w);
    if (is_redirection(r) && *r->p != '&' && !w.is_quoted && is_digits(w.text))
        return; /* the number of a descriptor */
    if (is_assignment(r, &w) && (s->count == 0 || sp_reader_peek(r, 0) == '(')) {
        if (r->p[-1] == '=')
            read_array(r);
        return;
    }
    s->count++;
    if (w.is_literal && !r->has_failed)
        sp_segment_list_add_word(r->list, &s->words, w.text);
}

/* false: the command is over. */
static bool read_simple_step(struct sp_reader *r, struct simple *s)
{
    sp_reader_skip_blanks(r);
    if (sp_reader_is_at_end(r) || *r->p == '#')
        return false;
    if (is_redirection(r)) {
        read_redirection(r);
    } else if (sp_reader_is_at_word(r)) {
        read_simple_word(r, s);
    } else if (*r->p == '(' && s->count == 1) {
        s->words.count = 0; /* the name of a function is no command */
        r->p++;
        sp_reader_function(r);
        s->is_begun = true;
        return false;
    } else {
        return false;
    }
    s->is_begun = true;
    return true;
}

static void read_simple(struct sp_reader *r)
{
    struct simple s = {0};

    while (read_simple_step(r, &s))
        ;
    if (!s.is_begun)
        r->has_failed = true;
    if (s.words.count != 0 && !r->has_failed)
        sp_segment_list_add(r->list, &s.words);
}

/* ---- lists ---- */

/* What may stand before a command and does not change which one it is. */
static bool skip_prefix(struct sp_reader *r)
{
    if (sp_reader_accept(r, "time")) {
        sp_reader_skip_blanks(r);
        (void)sp_reader_accept(r, "-p");
    } else if (!sp_reader_accept(r, "!") && !sp_reader_accept(r, "coproc")) {
        return false;
    }
    sp_reader_skip_blanks(r);
    return true;
}

void sp_reader_command(struct sp_reader *r)
{
    while (skip_prefix(r))
        ;
    if (sp_reader_compound(r))
        read_redirections(r);
    else
        read_simple(r);
}

static bool is_list_end(const struct sp_reader *r)
{
    static const char *const closers[] = {"then", "elif", "else", "fi", "do", "done", "esac", "}"};
    const struct sp_str here = sp_reader_keyword(r);

    if (sp_reader_is_at_end(r) || *r->p == ')' || sp_reader_is_at(r, ";;") ||
        sp_reader_is_at(r, ";&"))
        return true;
    for (size_t i = 0; i < sizeof closers / sizeof *closers; i++)
        if (here.n != 0 && sp_str_eq(here, sp_str_of(closers[i])))
            return true;
    return false;
}

/* What comes after a command. false: the list is over. */
static bool read_separator(struct sp_reader *r, bool *ret_needs_more)
{
    sp_reader_skip_blanks(r);
    skip_comment(r);
    const char *const start = r->p;
    const char c = sp_reader_peek(r, 0);

    *ret_needs_more = false;
    if (c == '\n') {
        sp_reader_newline(r);
        return true;
    }
    if (!sp_is_one_of(c, ";&|"))
        return false;
    r->p++;
    while (sp_reader_is_at(r, "\\\n")) /* an operator may go on in the next line */
        r->p += 2;
    const char next = sp_reader_peek(r, 0);
    if (c == ';' && (next == ';' || next == '&')) {
        r->p = start;
        return false;
    }
    *ret_needs_more = c == '|' || (c == '&' && next == '&');
    if ((c == '|' && (next == '|' || next == '&')) || (c == '&' && next == '&'))
        r->p++;
    return true;
}

bool sp_reader_list(struct sp_reader *r)
{
    bool has_any = false;
    bool needs_more = false;
    bool goes_on = true;

    if (!sp_reader_enter(r))
        return false;
    while (goes_on) {
        sp_reader_skip_lines(r);
        if (is_list_end(r))
            break;
        sp_reader_command(r);
        has_any = true;
        goes_on = read_separator(r, &needs_more);
    }
    if (needs_more)
        r->has_failed = true;
    sp_reader_leave(r);
    return has_any && !r->has_failed;
}

void sp_reader_nested(struct sp_reader *r, struct sp_str text)
{
    struct sp_reader inner = {.list = r->list,
                              .p = text.p,
                              .end = text.p + text.n,
                              .bytes = sp_arena_new(&r->list->arena, text.n),
                              .size = text.n,
                              .depth = r->depth,
                              .is_too_deep = r->is_too_deep};

    if (inner.bytes == NULL)
        r->list->has_no_memory = r->has_failed = true;
    else
        (void)sp_reader_list(&inner);
}

int sp_script_literals(struct sp_segments *ret, struct sp_str script, struct sp_err *e)
{
    struct sp_segment_list list = {0};
    bool is_too_deep = script.n > SP_SCRIPT_MAX_BYTES;
    struct sp_reader r = {.list = &list, .is_too_deep = &is_too_deep};

    *ret = (struct sp_segments){0};
    if (!is_too_deep)
        sp_reader_nested(&r, script);
    const int result = sp_segment_list_finish(&list, ret, e);
    ret->is_opaque = is_too_deep;
    return result;
}
