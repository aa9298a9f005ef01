/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that hold others: loops, conditions, groups, functions. */
#include "approve/script/script_read.h"

#define MAX_TWICE 8

static void expect(struct sp_reader *r, const char *keyword)
{
    if (!sp_reader_accept(r, keyword))
        r->has_failed = true;
}

static void expect_byte(struct sp_reader *r, char c)
{
    if (sp_reader_peek(r, 0) == c)
        r->p++;
    else
        r->has_failed = true;
}

static void need_list(struct sp_reader *r)
{
    if (!sp_reader_list(r))
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

static void read_if(struct sp_reader *r)
{
    do {
        need_list(r);
        expect(r, "then");
        need_list(r);
    } while (sp_reader_accept(r, "elif"));
    if (sp_reader_accept(r, "else"))
        need_list(r);
    expect(r, "fi");
}

static void read_loop_body(struct sp_reader *r)
{
    if (sp_reader_accept(r, "{")) {
        need_list(r);
        expect(r, "}");
        return;
    }
    expect(r, "do");
    need_list(r);
    expect(r, "done");
}

static void read_while(struct sp_reader *r)
{
    need_list(r);
    read_loop_body(r);
}

static void skip_for_words(struct sp_reader *r)
{
    sp_reader_skip_blanks(r);
    while (sp_reader_is_at_word(r) && *r->p != '#') {
        need_word(r);
        sp_reader_skip_blanks(r);
    }
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
        sp_reader_skip_lines(r);
        if (sp_reader_accept(r, "in"))
            skip_for_words(r);
    }
    if (sp_reader_peek(r, 0) == ';')
        r->p++;
    sp_reader_skip_lines(r);
    read_loop_body(r);
}

/* false: the last one was read, or something else than an item. */
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
    sp_reader_skip_lines(r);
    return true;
}

static void read_case(struct sp_reader *r)
{
    need_word(r);
    sp_reader_skip_lines(r);
    expect(r, "in");
    sp_reader_skip_lines(r);
    while (!r->has_failed && !sp_reader_accept(r, "esac")) {
        if (!read_case_item(r)) {
            expect(r, "esac");
            return;
        }
    }
}

static void read_group(struct sp_reader *r)
{
    need_list(r);
    expect(r, "}");
}

/* [[ ... ]]: only what is substituted in it counts. */
static void read_test(struct sp_reader *r)
{
    while (!sp_reader_is_at_end(r) && !sp_reader_accept(r, "]]")) {
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
    sp_reader_function(r);
}

void sp_reader_function(struct sp_reader *r)
{
    sp_reader_skip_blanks(r);
    if (sp_reader_peek(r, 0) == ')')
        r->p++;
    sp_reader_skip_lines(r);
    if (sp_reader_is_at_end(r) || !sp_reader_enter(r))
        return;
    sp_reader_command(r);
    sp_reader_leave(r);
}

/*
 * Behind "((" of what may be arithmetic. Not every shell has that: to the others these are two
 * subshells, and what is in them runs. So it is read for its commands as well, but not in the depth
 * of many such, for each doubles the work: there something is left out, and that is told.
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

bool sp_reader_compound(struct sp_reader *r)
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
        if (sp_reader_accept(r, kinds[i].keyword)) {
            kinds[i].read(r);
            return true;
        }
    return false;
}
