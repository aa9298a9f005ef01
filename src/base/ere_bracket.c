/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ere_bracket: sets of bytes, as `[...]` and as `\` with a letter.
 *
 * A set is one of bytes. A character that is longer stands beside it as a branch of its own, which
 * is why it cannot be excluded, nor end a range. A line feed is in a set only if somebody put it
 * there: what says "all but" never means it.
 */
#include <string.h>

#include "base/ere_priv.h"

struct bracket {
    struct sp_ere_set set;
    struct sp_ere_choice choice;
    size_t open; /* the byte of its `[` */
    bool is_negated;
};

static void add_range(struct sp_ere_set *s, unsigned low, unsigned high)
{
    for (unsigned c = low; c <= high; c++)
        sp_ere_set_add(s, (unsigned char)c);
}

static void add_all(struct sp_ere_set *s, const struct sp_ere_set *more)
{
    for (size_t i = 0; i < 4; i++)
        s->bits[i] |= more->bits[i];
}

static void negate(struct sp_ere_set *s)
{
    sp_ere_set_add(s, '\n');
    for (size_t i = 0; i < 4; i++)
        s->bits[i] = ~s->bits[i];
}

/* POSIX's classes in the C locale, as pairs of first and last. */
static const struct class
{
    const char *name;
    const char *ranges;
} classes[] = {
    {"alnum", "09AZaz"},   {"alpha", "AZaz"},   {"blank", "\t\t  "}, {"cntrl", "\001\037\177\177"},
    {"digit", "09"},       {"graph", "!~"},     {"lower", "az"},     {"print", " ~"},
    {"punct", "!/:@[`{~"}, {"space", "\t\r  "}, {"upper", "AZ"},     {"xdigit", "09AFaf"},
    {"word", "09AZaz__"},
};

static bool add_class(struct sp_ere_set *s, struct sp_str name)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (!sp_str_eq(name, sp_str_of(classes[i].name)))
            continue;
        for (const char *p = classes[i].ranges; *p != 0; p += 2)
            add_range(s, (unsigned char)p[0], (unsigned char)p[1]);
        if (strcmp(classes[i].name, "cntrl") == 0)
            sp_ere_set_add(s, 0);
        return true;
    }
    return false;
}

static int escaped_class(char letter, struct sp_ere_escape *ret)
{
    static const char letters[] = "dwsDWS";
    static const char *const names[] = {"digit", "word", "space"};
    const size_t i = (size_t)(strchr(letters, letter) - letters);

    ret->is_class = true;
    (void)add_class(&ret->set, sp_str_of(names[i % 3])); /* it is there */
    if (i >= 3)
        negate(&ret->set);
    return 0;
}

static int refuse_escape(unsigned char c, size_t at, struct sp_err *e)
{
    if (c >= '0' && c <= '9')
        return sp_fail(e, SP_E_INVALID, 0,
                       "`\\%c` at byte %zu: there are no references back to a group", c, at);
    if (c == '<' || c == '>')
        return sp_fail(e, SP_E_INVALID, 0,
                       "`\\%c` at byte %zu: the edge of a word is \\b, and %c stands for itself", c,
                       at, c);
    if (c == 'b')
        return sp_fail(e, SP_E_INVALID, 0, "`\\b` at byte %zu is no byte that a [] could hold", at);
    if (c >= 0x80 || c < ' ')
        return sp_fail(e, SP_E_INVALID, 0, "`\\` at byte %zu stands before a byte that needs none",
                       at);
    return sp_fail(
        e, SP_E_INVALID, 0,
        "`\\%c` at byte %zu is unknown; known are \\d \\w \\s \\D \\W \\S \\b \\t \\n \\r, "
        "and \\ before a punctuation mark",
        c, at);
}

int sp_ere_read_escape(struct sp_ere_reader *r, struct sp_ere_escape *ret, struct sp_err *e)
{
    const size_t at = r->at - 1;

    *ret = (struct sp_ere_escape){0};
    if (r->at == r->text.n)
        return sp_fail(e, SP_E_INVALID, 0, "`\\` at byte %zu has nothing behind it", at);

    const unsigned char c = (unsigned char)r->text.p[r->at++];
    switch (c) {
    case 'd':
    case 'w':
    case 's':
    case 'D':
    case 'W':
    case 'S':
        return escaped_class((char)c, ret);
    case 't':
        ret->byte = '\t';
        return 0;
    case 'n':
        ret->byte = '\n';
        return 0;
    case 'r':
        ret->byte = '\r';
        return 0;
    default:
        if (c < ' ' || c >= 0x7F || (c != '_' && sp_ere_is_word(c)) || c == '<' || c == '>')
            return refuse_escape(c, at, e);
        ret->byte = c;
        return 0;
    }
}

static bool is_next(const struct sp_ere_reader *r, char c)
{
    return r->at < r->text.n && r->text.p[r->at] == c;
}

static int unclosed(const struct bracket *b, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0, "`[` at byte %zu is never closed", b->open);
}

/* [:class:], and [.c.] or [=c=], which are c. r->at is behind the `[`, at the mark. */
static int read_named(struct sp_ere_reader *r, const struct bracket *b, struct sp_ere_escape *ret,
                      struct sp_err *e)
{
    const char end[2] = {r->text.p[r->at], ']'};
    const size_t from = ++r->at;
    const char *found = memmem(r->text.p + from, r->text.n - from, end, sizeof end);

    if (found == NULL)
        return unclosed(b, e);
    const struct sp_str name = {r->text.p + from, (size_t)(found - r->text.p) - from};
    r->at = from + name.n + 2;
    if (end[0] == ':') {
        ret->is_class = true;
        if (add_class(&ret->set, name))
            return 0;
        return sp_fail(e, SP_E_INVALID, 0,
                       "the class at byte %zu is none of alnum alpha blank "
                       "cntrl digit graph lower print punct space upper word xdigit",
                       from - 2);
    }
    if (name.n != 1 || (unsigned char)name.p[0] >= 0x80)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`[%c` at byte %zu: only one ASCII character can be "
                       "named so",
                       end[0], from - 2);
    ret->byte = (unsigned char)name.p[0];
    return 0;
}

/* One member, or an end of a range. */
static int read_member(struct sp_ere_reader *r, const struct bracket *b, struct sp_ere_escape *ret,
                       struct sp_err *e)
{
    *ret = (struct sp_ere_escape){0};
    if (r->at == r->text.n)
        return unclosed(b, e);

    const char c = r->text.p[r->at++];
    if (c == '\\')
        return sp_ere_read_escape(r, ret, e);
    if (c == '[' && (is_next(r, ':') || is_next(r, '.') || is_next(r, '=')))
        return read_named(r, b, ret, e);
    ret->byte = (unsigned char)c;
    return 0;
}

static bool is_range(const struct sp_ere_reader *r)
{
    return is_next(r, '-') && r->at + 1 < r->text.n && r->text.p[r->at + 1] != ']';
}

static int refuse_range(size_t at, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0, "the range at byte %zu is not one of ASCII", at);
}

/* A character of several bytes is a branch beside the set. */
static int read_long_character(struct sp_ere_reader *r, struct bracket *b, struct sp_err *e)
{
    const size_t at = r->at;
    const struct sp_str c = sp_ere_take_character(r);

    if (is_range(r))
        return refuse_range(at, e);
    if (c.n == 1) {
        sp_ere_set_add(&b->set, (unsigned char)c.p[0]);
        return 0;
    }
    if (b->is_negated)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "the [^ at byte %zu cannot leave out the character at byte %zu, which is not "
            "ASCII",
            b->open, at);
    const int failed = sp_ere_add_bytes(r, c, e);
    return failed < 0 ? failed : sp_ere_next_branch(r, &b->choice, e);
}

static int read_range(struct sp_ere_reader *r, struct bracket *b, struct sp_err *e)
{
    const size_t at = r->at;
    struct sp_ere_escape low;
    struct sp_ere_escape high;
    int failed = read_member(r, b, &low, e);

    if (failed < 0)
        return failed;
    if (!is_range(r)) {
        if (low.is_class)
            add_all(&b->set, &low.set);
        else
            sp_ere_set_add(&b->set, low.byte);
        return 0;
    }
    r->at++;
    failed = read_member(r, b, &high, e);
    if (failed < 0)
        return failed;
    if (low.is_class || high.is_class)
        return sp_fail(e, SP_E_INVALID, 0, "the range at byte %zu begins or ends with a class", at);
    if (low.byte >= 0x80 || high.byte >= 0x80)
        return refuse_range(at, e);
    if (low.byte > high.byte)
        return sp_fail(e, SP_E_INVALID, 0, "the range at byte %zu ends before it begins", at);
    add_range(&b->set, low.byte, high.byte);
    return 0;
}

int sp_ere_read_bracket(struct sp_ere_reader *r, struct sp_err *e)
{
    const uint16_t here = (uint16_t)r->steps;
    struct bracket b = {.choice = {.begin = here, .branch = here}, .open = r->at - 1};

    b.is_negated = is_next(r, '^');
    r->at += b.is_negated;
    const size_t first = r->at; /* a `]` here is one that is meant */
    while (r->at == first || !is_next(r, ']')) {
        if (r->at == r->text.n)
            return unclosed(&b, e);
        const int failed = (unsigned char)r->text.p[r->at] < 0x80 ? read_range(r, &b, e)
                                                                  : read_long_character(r, &b, e);
        if (failed < 0)
            return failed;
    }
    r->at++;
    if (b.is_negated)
        negate(&b.set);
    const int failed = sp_ere_add_set(r, &b.set, e);
    if (failed < 0)
        return failed;
    sp_ere_end_choice(r, &b.choice);
    return 0;
}
