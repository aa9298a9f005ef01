/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every simple command of a script, at any depth: a reader of shell grammar by recursive descent.
 * It only has to find the commands, not what the script means, so it accepts a little more than a
 * shell does; where no shell would go on, it stops.
 */
#include "approve/script/script_read.h"

/* Arithmetic that is read twice: see read_both_ways. */
#define MAX_TWICE 8

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

/* ---- keywords ---- */

static void skip_comment(struct sp_reader *r)
{
    if (sp_reader_peek(r, 0) != '#')
        return;
    const char *newline = memchr(r->p, '\n', (size_t)(r->end - r->p));
    r->p = newline == NULL ? r->end : newline;
}

/* The unquoted word here if it is short enough for a keyword; n is 0 if not. */
static struct sp_str keyword_here(const struct sp_reader *r)
{
    size_t n = 0;
    const size_t longest = sizeof "function" - 1;

    if (sp_reader_is_at_end(r))
        return (struct sp_str){NULL, 0};
    while (n <= longest && (size_t)(r->end - r->p) > n && !sp_is_meta(r->p[n]) && r->p[n] != '\\')
        n++;
    return (struct sp_str){r->p, n > longest ? 0 : n};
}

/* Skips the keyword. false: another word is here. */
static bool accept_keyword(struct sp_reader *r, const char *keyword)
{
    const struct sp_str here = keyword_here(r);

    if (here.n == 0 || !sp_str_eq(here, sp_str_of(keyword)))
        return false;
    r->p += here.n;
    return true;
}

/* ---- what must come next; else it is a syntax error ---- */

static void expect_keyword(struct sp_reader *r, const char *keyword)
{
    if (!accept_keyword(r, keyword))
        r->has_failed = true;
}

static void expect_byte(struct sp_reader *r, char c)
{
    if (sp_reader_peek(r, 0) == c)
        r->p++;
    else
        r->has_failed = true;
}

static void need_word(struct sp_reader *r)
{
    struct sp_reader_word ignored;

    sp_reader_skip_blanks(r);
    if (sp_reader_is_at_word(r))
        sp_reader_word(r, &ignored);
    else
        r->has_failed = true;
}

/* Blanks, comments, and newlines with their here-documents. */
static void skip_lines(struct sp_reader *r)
{
    for (;;) {
        sp_reader_skip_blanks(r);
        skip_comment(r);
        if (sp_reader_peek(r, 0) != '\n')
            return;
        sp_reader_newline(r);
    }
}

/* ---- redirections ---- */

/* A redirection, without the number in front of it. */
static bool is_redirection(const struct sp_reader *r)
{
    const char c = sp_reader_peek(r, 0);
    const char next = sp_reader_peek(r, 1);

    return ((c == '<' || c == '>') && next != '(') || (c == '&' && next == '>');
}

static void read_redirection(struct sp_reader *r)
{
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
    need_word(r);
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

static void read_function_body(struct sp_reader *r);

struct simple {
    struct sp_word_list words; /* the literal words */
    uint32_t count;            /* all words except assignments */
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
    for (skip_lines(r); sp_reader_is_at_word(r); skip_lines(r))
        sp_reader_word(r, &ignored);
    expect_byte(r, ')');
}

static void read_simple_word(struct sp_reader *r, struct simple *s)
{
    struct sp_reader_word w;

    sp_reader_word(r, &w);
    if (is_redirection(r) && *r->p != '&' && !w.is_quoted && is_digits(w.text))
        return; /* a descriptor number: 2>file */
    if (is_assignment(r, &w) && (s->count == 0 || sp_reader_peek(r, 0) == '(')) {
        if (r->p[-1] == '=')
            read_array(r);
        return;
    }
    s->count++;
    if (w.is_literal && !r->has_failed)
        sp_segment_list_add_word(r->list, &s->words, w.text);
}

static void read_simple(struct sp_reader *r)
{
    struct simple s = {0};
    bool is_begun = false;

    for (sp_reader_skip_blanks(r); !sp_reader_is_at_end(r) && *r->p != '#';
         sp_reader_skip_blanks(r)) {
        if (is_redirection(r)) {
            read_redirection(r);
        } else if (sp_reader_is_at_word(r)) {
            read_simple_word(r, &s);
        } else if (*r->p == '(' && s.count == 1) { /* NAME (): a function, not a command */
            s.words.count = 0;
            r->p++;
            read_function_body(r);
            is_begun = true;
            break;
        } else {
            break;
        }
        is_begun = true;
    }
    if (!is_begun)
        r->has_failed = true;
    if (s.words.count != 0 && !r->has_failed)
        sp_segment_list_add(r->list, &s.words);
}

/* ---- compound commands ---- */

static void read_command(struct sp_reader *r);

static void need_list(struct sp_reader *r)
{
    if (!sp_reader_list(r))
        r->has_failed = true;
}

static void read_if(struct sp_reader *r)
{
    do {
        need_list(r);
        expect_keyword(r, "then");
        need_list(r);
    } while (accept_keyword(r, "elif"));
    if (accept_keyword(r, "else"))
        need_list(r);
    expect_keyword(r, "fi");
}

static void read_loop_body(struct sp_reader *r)
{
    if (accept_keyword(r, "{")) {
        need_list(r);
        expect_keyword(r, "}");
        return;
    }
    expect_keyword(r, "do");
    need_list(r);
    expect_keyword(r, "done");
}

static void read_while(struct sp_reader *r)
{
    need_list(r);
    read_loop_body(r);
}

static void read_for(struct sp_reader *r)
{
    sp_reader_skip_blanks(r);
    if (sp_reader_is_at(r, "((")) {
        r->p += 2;
        sp_reader_arithmetic(r);
        sp_reader_skip_blanks(r);
    } else {
        need_word(r);
        skip_lines(r);
        if (accept_keyword(r, "in"))
            for (sp_reader_skip_blanks(r); sp_reader_is_at_word(r) && *r->p != '#';
                 sp_reader_skip_blanks(r))
                need_word(r);
    }
    if (sp_reader_peek(r, 0) == ';')
        r->p++;
    skip_lines(r);
    read_loop_body(r);
}

/* false: no item follows. */
static bool read_case_item(struct sp_reader *r)
{
    if (sp_reader_peek(r, 0) == '(')
        r->p++;
    need_word(r);
    for (sp_reader_skip_blanks(r); sp_reader_peek(r, 0) == '|'; sp_reader_skip_blanks(r)) {
        r->p++;
        need_word(r);
    }
    expect_byte(r, ')');
    (void)sp_reader_list(r);
    if (!sp_reader_is_at(r, ";;") && !sp_reader_is_at(r, ";&"))
        return false;
    r->p += sp_reader_is_at(r, ";;&") ? 3 : 2;
    skip_lines(r);
    return true;
}

static void read_case(struct sp_reader *r)
{
    need_word(r);
    skip_lines(r);
    expect_keyword(r, "in");
    skip_lines(r);
    while (!r->has_failed && !accept_keyword(r, "esac")) {
        if (!read_case_item(r)) {
            expect_keyword(r, "esac");
            return;
        }
    }
}

static void read_group(struct sp_reader *r)
{
    need_list(r);
    expect_keyword(r, "}");
}

/* [[ ... ]]: only its substitutions contain commands. */
static void read_test(struct sp_reader *r)
{
    while (!sp_reader_is_at_end(r) && !accept_keyword(r, "]]")) {
        if (sp_reader_is_at_word(r))
            need_word(r);
        else if (*r->p == '\n')
            sp_reader_newline(r);
        else
            r->p++;
    }
}

static void read_function(struct sp_reader *r)
{
    need_word(r);
    sp_reader_skip_blanks(r);
    if (sp_reader_peek(r, 0) == '(')
        r->p++;
    else if (!sp_reader_is_at_end(r) && *r->p != '{' && *r->p != '\n')
        r->has_failed = true;
    read_function_body(r);
}

static void read_function_body(struct sp_reader *r)
{
    sp_reader_skip_blanks(r);
    if (sp_reader_peek(r, 0) == ')')
        r->p++;
    skip_lines(r);
    if (sp_reader_is_at_end(r) || !sp_reader_enter(r))
        return;
    read_command(r);
    sp_reader_leave(r);
}

/*
 * Behind a "((" that may be arithmetic. In shells without arithmetic commands these are two
 * subshells, whose commands run, so it is read for commands as well. Each nesting level doubles the
 * work: beyond MAX_TWICE levels the rest is skipped, and is_too_deep is set.
 */
static void read_both_ways(struct sp_reader *r)
{
    struct sp_reader inner = *r;

    if (r->depth > MAX_TWICE) {
        *r->is_too_deep = r->has_failed = true;
        return;
    }
    inner.p--;
    (void)sp_reader_list(&inner);
    if (r->here_last != NULL)
        r->here_last->next = NULL;
    r->used = inner.used;
    sp_reader_arithmetic(r);
}

static void read_parenthesis(struct sp_reader *r)
{
    r->p++;
    if (sp_reader_peek(r, 0) == '(') {
        r->p++;
        if (sp_reader_is_arithmetic(r)) {
            read_both_ways(r);
            return;
        }
        r->p--;
    }
    need_list(r);
    expect_byte(r, ')');
}

static bool read_compound(struct sp_reader *r)
{
    static const struct {
        const char *keyword;
        void (*read)(struct sp_reader *r);
    } kinds[] = {
        {"if", read_if},      {"while", read_while}, {"until", read_while},       {"for", read_for},
        {"select", read_for}, {"case", read_case},   {"function", read_function}, {"{", read_group},
        {"[[", read_test},
    };

    if (sp_reader_peek(r, 0) == '(') {
        read_parenthesis(r);
        return true;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (accept_keyword(r, kinds[i].keyword)) {
            kinds[i].read(r);
            return true;
        }
    return false;
}

/* ---- lists ---- */

/* `time`, `!` and `coproc` in front of a command. */
static bool skip_prefix(struct sp_reader *r)
{
    if (accept_keyword(r, "time")) {
        sp_reader_skip_blanks(r);
        (void)accept_keyword(r, "-p");
    } else if (!accept_keyword(r, "!") && !accept_keyword(r, "coproc")) {
        return false;
    }
    sp_reader_skip_blanks(r);
    return true;
}

static void read_command(struct sp_reader *r)
{
    while (skip_prefix(r))
        ;
    if (read_compound(r))
        read_redirections(r);
    else
        read_simple(r);
}

static bool is_list_end(const struct sp_reader *r)
{
    static const char *const closers[] = {"then", "elif", "else", "fi", "do", "done", "esac", "}"};
    const struct sp_str here = keyword_here(r);

    if (sp_reader_is_at_end(r) || *r->p == ')' || sp_reader_is_at(r, ";;") ||
        sp_reader_is_at(r, ";&"))
        return true;
    for (size_t i = 0; i < sizeof closers / sizeof *closers; i++)
        if (here.n != 0 && sp_str_eq(here, sp_str_of(closers[i])))
            return true;
    return false;
}

/* The separator behind a command. false: the end of the list. */
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
    while (sp_reader_is_at(r, "\\\n")) /* "\\n" may split an operator */
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
        skip_lines(r);
        if (is_list_end(r))
            break;
        read_command(r);
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
