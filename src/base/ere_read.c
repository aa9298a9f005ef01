/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader: the text of an expression into a program.
 *
 * One pass, without recursion: steps are added as they are read. When a repetition or a `|` is
 * seen, the unit before it is the end of the program, and is copied, or moved to make room for a
 * step in front of it. So the size of the program is the only bound that nesting needs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/ere_priv.h"
#include "base/utf8.h"

#define UNBOUNDED  UINT32_MAX
#define NUMBER_MAX 32767 /* any larger count exceeds SP_ERE_PROGRAM_MAX */

/* Branches that `|` separates. Each branch but the last ends in a jump to the end of the whole;
 * until that is known, the jumps are a list: each holds the distance to the one before it, 0 for
 * none. */
struct choice {
    uint16_t begin, branch; /* the first step of the whole, and of its last branch */
    uint16_t jump;          /* the last of the jumps; 0: none */
    uint16_t open;          /* the offset of its `(` in the text */
    bool ignored_case;      /* outside of it */
};

/* An escape, or a member of a []: a class (\d) as a set, else one byte. */
struct escape {
    bool is_class;
    struct sp_ere_set set;
    unsigned char byte;
};
/* {least,most}; said and at: its text and place, for messages. */
struct repeat {
    uint32_t least, most;
    struct sp_str said;
    size_t at;
};

static int refuse_size(const struct sp_ere_reader *r, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0, "more than %d steps at byte %zu: it is too long",
                   SP_ERE_PROGRAM_MAX, r->at);
}

/* One place is left for SP_ERE_MATCH. */
static bool has_room(const struct sp_ere_reader *r, size_t n)
{
    return n < SP_ERE_PROGRAM_MAX - r->steps;
}

static int add_step(struct sp_ere_reader *r, struct sp_ere_step step, struct sp_err *e)
{
    if (!has_room(r, 1))
        return refuse_size(r, e);
    r->step[r->steps++] = step;
    return 0;
}

static int add_set(struct sp_ere_reader *r, const struct sp_ere_set *set, struct sp_err *e)
{
    size_t i = 0;

    while (i < r->sets && memcmp(&r->set[i], set, sizeof *set) != 0)
        i++;
    r->set[i] = *set;
    r->sets += i == r->sets;
    return add_step(r, (struct sp_ere_step){.op = SP_ERE_SET, .to = (int16_t)i}, e);
}

static bool is_letter(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static int add_bytes(struct sp_ere_reader *r, struct sp_str bytes, struct sp_err *e)
{
    for (size_t i = 0; i < bytes.n; i++) {
        const unsigned char c = (unsigned char)bytes.p[i];
        struct sp_ere_set both = {0};
        int failed;

        if (r->ignores_case && is_letter(c)) {
            sp_ere_set_add(&both, c);
            sp_ere_set_add(&both, c ^ 0x20);
            failed = add_set(r, &both, e);
        } else {
            failed = add_step(r, (struct sp_ere_step){.op = SP_ERE_BYTE, .byte = c}, e);
        }

        if (failed < 0)
            return failed;
    }
    return 0;
}

/* Inserts a step at `at`. The caller has checked has_room. */
static void insert(struct sp_ere_reader *r, size_t at, struct sp_ere_step step)
{
    memmove(r->step + at + 1, r->step + at, (r->steps - at) * sizeof *r->step);
    r->step[at] = step;
    r->steps++;
}

static struct sp_ere_step step_to(enum sp_ere_op op, size_t from, size_t to)
{
    return (struct sp_ere_step){.op = (uint8_t)op, .to = (int16_t)((int)to - (int)from)};
}

/* Ends a branch at a `|` and begins the next one. */
static int next_branch(struct sp_ere_reader *r, struct choice *c, struct sp_err *e)
{
    if (!has_room(r, 2))
        return refuse_size(r, e);
    insert(r, c->branch, step_to(SP_ERE_SPLIT, c->branch, r->steps + 2));
    const int16_t before = (int16_t)(c->jump == 0 ? 0 : r->steps - c->jump);
    c->jump = (uint16_t)r->steps;
    r->step[r->steps++] = (struct sp_ere_step){.op = SP_ERE_JUMP, .to = before};
    c->branch = (uint16_t)r->steps;
    return 0;
}

/* Points the jumps at the ends of branches to the end of the program. */
static void end_choice(struct sp_ere_reader *r, const struct choice *c)
{
    size_t at = c->jump; /* 0 is free for "none": a split stands before each jump */

    while (at != 0) {
        const size_t before = r->step[at].to == 0 ? 0 : at - (size_t)r->step[at].to;

        r->step[at] = step_to(SP_ERE_JUMP, at, r->steps);
        at = before;
    }
}

/* The character at r->at; r->at moves behind it. */
static struct sp_str take_character(struct sp_ere_reader *r)
{
    const unsigned char lead = (unsigned char)r->text.p[r->at];
    const size_t n = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    struct sp_str c = {r->text.p + r->at, n};

    if (n > r->text.n - r->at || !sp_utf8_is_valid(c))
        c.n = 1; /* not UTF-8: a byte stands for itself */
    r->at += c.n;
    return c;
}

/* Digits at *at. UNBOUNDED: no digit there. */
static uint32_t read_number(struct sp_str text, size_t *at)
{
    uint32_t n = UNBOUNDED;

    for (; *at < text.n && text.p[*at] >= '0' && text.p[*at] <= '9'; (*at)++) {
        n = (n == UNBOUNDED ? 0 : n * 10) + (uint32_t)(text.p[*at] - '0');
        if (n > NUMBER_MAX)
            n = NUMBER_MAX + 1; /* stays too large, and cannot overflow */
    }
    return n;
}

/* A `{` that does not begin {m,n} stands for itself: users wait for `{"ready":true}`. */
static bool read_braces(struct sp_ere_reader *r, struct repeat *ret)
{
    size_t at = r->at + 1;
    const uint32_t least = read_number(r->text, &at);
    uint32_t most = least;

    if (at < r->text.n && r->text.p[at] == ',') {
        at++;
        most = read_number(r->text, &at);
        if (least == UNBOUNDED && most == UNBOUNDED)
            return false;
    } else if (least == UNBOUNDED) {
        return false;
    }
    if (at == r->text.n || r->text.p[at] != '}')
        return false;
    at++;
    *ret = (struct repeat){.least = least == UNBOUNDED ? 0 : least,
                           .most = most,
                           .said = {r->text.p + r->at, at - r->at},
                           .at = r->at};
    r->at = at;
    return true;
}

/* false: there is no repetition at r->at; nothing was read. */
static bool read_repeat(struct sp_ere_reader *r, struct repeat *ret)
{
    if (r->at == r->text.n)
        return false;
    *ret = (struct repeat){.most = UNBOUNDED, .said = {r->text.p + r->at, 1}, .at = r->at};
    switch (r->text.p[r->at]) {
    case '*':
        break;
    case '+':
        ret->least = 1;
        break;
    case '?':
        ret->most = 1;
        break;
    case '{':
        return read_braces(r, ret);
    default:
        return false;
    }
    r->at++;
    return true;
}

/* The steps that a unit of n steps takes once it is repeated. NUMBER_MAX and SP_ERE_PROGRAM_MAX
 * keep this far below 2^64. */
static uint64_t repeated_size(const struct repeat *p, uint64_t n)
{
    if (p->most != UNBOUNDED)
        return p->least * n + (p->most - p->least) * (n + 1);
    return p->least == 0 ? n + 2 : p->least * n + 1;
}

static void copy_unit(struct sp_ere_reader *r, size_t from, size_t n)
{
    memmove(r->step + r->steps, r->step + from, n * sizeof *r->step);
    r->steps += n;
}

/* Repeats the unit that the program ends with, from step `from` on. */
static int repeat_unit(struct sp_ere_reader *r, size_t from, const struct repeat *p,
                       struct sp_err *e)
{
    const size_t n = r->steps - from;
    const uint64_t size = repeated_size(p, n);
    const size_t end = from + (size_t)size;

    if (p->most != UNBOUNDED && p->least > p->most)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`" SP_STR_FMT "` at byte %zu: at least %u and at most %u",
                       SP_STR_ARG(p->said), p->at, (unsigned)p->least, (unsigned)p->most);
    if (size >= SP_ERE_PROGRAM_MAX - from)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`" SP_STR_FMT "` at byte %zu makes it longer than %d steps; ask for fewer",
                       SP_STR_ARG(p->said), p->at, SP_ERE_PROGRAM_MAX);
    if (p->most == 0) {
        r->steps = from;
        return 0;
    }
    if (p->least == 0) { /* the first one is optional */
        insert(r, from, step_to(SP_ERE_SPLIT, from, end));
        if (p->most == UNBOUNDED) {
            r->step[r->steps] = step_to(SP_ERE_JUMP, r->steps, from);
            r->steps++;
            return 0;
        }
        from++;
    }
    for (uint32_t i = 1; i < p->least; i++)
        copy_unit(r, from, n);
    if (p->most == UNBOUNDED) { /* the last one may repeat */
        r->step[r->steps] = step_to(SP_ERE_SPLIT, r->steps, r->steps - n);
        r->steps++;
        return 0;
    }
    for (uint32_t i = p->least == 0 ? 1 : p->least; i < p->most; i++) {
        r->step[r->steps] = step_to(SP_ERE_SPLIT, r->steps, end);
        r->steps++;
        copy_unit(r, from, n);
    }
    return 0;
}

/*
 * The repetitions behind a unit. A `?` behind a repetition is Perl's lazy form; it is ignored,
 * because it does not change whether there is a match.
 */
static int read_repeats(struct sp_ere_reader *r, size_t from, struct sp_err *e)
{
    struct repeat p;

    while (read_repeat(r, &p)) {
        const int failed = repeat_unit(r, from, &p, e);

        if (failed < 0)
            return failed;
        if (r->at < r->text.n && r->text.p[r->at] == '?')
            r->at++;
    }
    return 0;
}

/* ---- sets of bytes: `[...]`, and `\` with a letter ---- */

/*
 * A set holds bytes. A longer character becomes a branch beside the set, which is why it cannot be
 * excluded or end a range. A negated set ([^x], \D) never contains the line feed.
 */
struct bracket {
    struct sp_ere_set set;
    struct choice choice;
    size_t open; /* the offset of its `[` in the text */
    bool is_negated;
};

static void add_range(struct sp_ere_set *s, unsigned low, unsigned high)
{
    for (unsigned c = low; c <= high; c++)
        sp_ere_set_add(s, (unsigned char)c);
}

/* All other bytes except the line feed. */
static void negate(struct sp_ere_set *s)
{
    sp_ere_set_add(s, '\n');
    for (size_t i = 0; i < 4; i++)
        s->bits[i] = ~s->bits[i];
}

/* POSIX's classes in the C locale: pairs of the first and the last byte of a range. */
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

/* What follows a `\`, with r->at behind that; \b is read by read_anchor. */
static int read_escape(struct sp_ere_reader *r, struct escape *ret, struct sp_err *e)
{
    const size_t at = r->at - 1;

    *ret = (struct escape){0};
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
        ret->is_class = true;
        (void)add_class(&ret->set, (c | 0x20) == 'd'   ? SP_STR("digit")
                                   : (c | 0x20) == 'w' ? SP_STR("word")
                                                       : SP_STR("space"));
        if (c < 'a')
            negate(&ret->set);
        return 0;
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
static int read_named(struct sp_ere_reader *r, const struct bracket *b, struct escape *ret,
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
static int read_member(struct sp_ere_reader *r, const struct bracket *b, struct escape *ret,
                       struct sp_err *e)
{
    *ret = (struct escape){0};
    if (r->at == r->text.n)
        return unclosed(b, e);

    const char c = r->text.p[r->at++];
    if (c == '\\')
        return read_escape(r, ret, e);
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

/* A byte above 127: a character of several bytes becomes a branch beside the set. */
static int read_long_character(struct sp_ere_reader *r, struct bracket *b, struct sp_err *e)
{
    const size_t at = r->at;
    const struct sp_str c = take_character(r);

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
    const int failed = add_bytes(r, c, e);
    return failed < 0 ? failed : next_branch(r, &b->choice, e);
}

static int read_range(struct sp_ere_reader *r, struct bracket *b, struct sp_err *e)
{
    const size_t at = r->at;
    struct escape low;
    struct escape high;
    int failed = read_member(r, b, &low, e);

    if (failed < 0)
        return failed;
    if (!is_range(r)) {
        if (low.is_class)
            for (size_t i = 0; i < 4; i++)
                b->set.bits[i] |= low.set.bits[i];
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

/* What follows a `[`. */
static int read_bracket(struct sp_ere_reader *r, struct sp_err *e)
{
    const uint16_t here = (uint16_t)r->steps;
    struct bracket b = {.choice = {.begin = here, .branch = here}, .open = r->at - 1};

    b.is_negated = is_next(r, '^');
    r->at += b.is_negated;
    const size_t first = r->at; /* POSIX: a leading `]` is an ordinary member */
    while (r->at == first || !is_next(r, ']')) {
        if (r->at == r->text.n)
            return unclosed(&b, e);
        const int failed = (unsigned char)r->text.p[r->at] < 0x80 ? read_range(r, &b, e)
                                                                  : read_long_character(r, &b, e);
        if (failed < 0)
            return failed;
    }
    r->at++;
    for (unsigned c = 'A'; r->ignores_case && c <= 'z'; c++)
        if (is_letter((unsigned char)c) && sp_ere_set_has(&b.set, (unsigned char)c))
            sp_ere_set_add(&b.set, (unsigned char)(c ^ 0x20));
    if (b.is_negated)
        negate(&b.set);
    const int failed = add_set(r, &b.set, e);
    if (failed < 0)
        return failed;
    end_choice(r, &b.choice);
    return 0;
}

/* ---- the whole ---- */

/* Anything that may be repeated, except a group. */
static int read_unit(struct sp_ere_reader *r, struct sp_err *e)
{
    switch (r->text.p[r->at]) {
    case '.': {
        struct sp_ere_set any = {0};

        negate(&any);
        r->at++;
        return add_set(r, &any, e);
    }
    case '[':
        r->at++;
        return read_bracket(r, e);
    case '\\': {
        struct escape escape;

        r->at++;
        const int failed = read_escape(r, &escape, e);
        if (failed < 0)
            return failed;
        if (escape.is_class)
            return add_set(r, &escape.set, e);
        return add_bytes(r, (struct sp_str){(const char *)&escape.byte, 1}, e);
    }
    default:
        return add_bytes(r, take_character(r), e);
    }
}

/* The open groups; the first one is the whole expression. */
struct groups {
    size_t n;
    struct choice choice[SP_ERE_TEXT_MAX + 1];
};

static void open_choice(const struct sp_ere_reader *r, struct groups *g, size_t open)
{
    const uint16_t here = (uint16_t)r->steps;

    g->choice[g->n++] = (struct choice){
        .begin = here, .branch = here, .open = (uint16_t)open, .ignored_case = r->ignores_case};
}

/* What follows `(`: `?:` or `?i:` begins a group, `?i)` holds up to the end of the group around it.
 * m, ^ and $ at each line, is how it is always. */
static int open_group(struct sp_ere_reader *r, struct groups *g, struct sp_err *e)
{
    const size_t open = r->at++;
    bool ignores_case = r->ignores_case;

    if (!is_next(r, '?')) {
        open_choice(r, g, open);
        return 0;
    }
    r->at++;
    for (; is_next(r, 'i') || is_next(r, 'm'); r->at++)
        ignores_case |= r->text.p[r->at] == 'i';
    if (!is_next(r, ':') && !is_next(r, ')'))
        return sp_fail(e, SP_E_INVALID, 0,
                       "`(?` at byte %zu is unknown; known are (?: (?i) (?i: and (?m)", open);
    if (r->text.p[r->at++] == ':')
        open_choice(r, g, open);
    r->ignores_case = ignores_case;
    return 0;
}

static int close_group(struct sp_ere_reader *r, struct groups *g, struct sp_err *e)
{
    if (g->n == 1)
        return sp_fail(e, SP_E_INVALID, 0, "`)` at byte %zu closes nothing; write \\) for itself",
                       r->at);
    r->at++;
    const struct choice *c = &g->choice[--g->n];
    end_choice(r, c);
    r->ignores_case = c->ignored_case;
    return read_repeats(r, c->begin, e);
}

static int read_next(struct sp_ere_reader *r, struct groups *g, struct sp_err *e)
{
    const size_t from = r->steps;
    const size_t at = r->at;
    const char first = r->text.p[at];
    struct repeat p;

    if (first == '(')
        return open_group(r, g, e);
    if (first == ')')
        return close_group(r, g, e);
    if (first == '|') {
        r->at++;
        return next_branch(r, &g->choice[g->n - 1], e);
    }

    /* Anchors are steps that take no byte. */
    if (first == '\\' && r->text.n - at > 1 && r->text.p[at + 1] == 'b') {
        r->at += 2;
        return add_step(r, (struct sp_ere_step){.op = SP_ERE_WORD_EDGE}, e);
    }
    if (first == '^' || first == '$') {
        r->at++;
        return add_step(
            r, (struct sp_ere_step){.op = first == '^' ? SP_ERE_LINE_BEGIN : SP_ERE_LINE_END}, e);
    }
    if (read_repeat(r, &p))
        return sp_fail(e, SP_E_INVALID, 0,
                       "`" SP_STR_FMT "` at byte %zu has nothing to repeat; write \\%c for itself",
                       SP_STR_ARG(p.said), at, p.said.p[0]);
    const int failed = read_unit(r, e);
    return failed < 0 ? failed : read_repeats(r, from, e);
}

int sp_ere_read(struct sp_ere_reader *r, struct sp_err *e)
{
    auto_free struct groups *g = malloc(sizeof *g);

    if (g == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the expression");
    g->n = 0;
    open_choice(r, g, 0);
    while (r->at < r->text.n) {
        const int failed = read_next(r, g, e);

        if (failed < 0)
            return failed;
    }
    if (g->n > 1)
        return sp_fail(e, SP_E_INVALID, 0, "`(` at byte %u is never closed",
                       g->choice[g->n - 1].open);
    end_choice(r, &g->choice[0]);
    r->step[r->steps++] = (struct sp_ere_step){.op = SP_ERE_MATCH};
    return 0;
}
