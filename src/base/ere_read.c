/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ere_read: the text of an expression into a program.
 *
 * One pass, without recursion: steps are added as they are read. What turns out to be repeated or
 * to be a branch is the end of the program by then, and is copied, or moved to make room for a step
 * before it. So the program is the only size that needs a bound, whatever is nested in what.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/ere_priv.h"
#include "base/utf8.h"

#define UNBOUNDED  UINT32_MAX
#define NUMBER_MAX 32767 /* more comes to too much anyway */

/* {least,most}; where it stands in the text, for what is said about it. */
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

/* One place stays free for the last step. */
static bool has_room(const struct sp_ere_reader *r, size_t n)
{
    return n < SP_ERE_PROGRAM_MAX - r->steps;
}

int sp_ere_add_step(struct sp_ere_reader *r, struct sp_ere_step step, struct sp_err *e)
{
    if (!has_room(r, 1))
        return refuse_size(r, e);
    r->step[r->steps++] = step;
    return 0;
}

int sp_ere_add_set(struct sp_ere_reader *r, const struct sp_ere_set *set, struct sp_err *e)
{
    size_t i = 0;

    while (i < r->sets && memcmp(&r->set[i], set, sizeof *set) != 0)
        i++;
    r->set[i] = *set;
    r->sets += i == r->sets;
    return sp_ere_add_step(r, (struct sp_ere_step){.op = SP_ERE_SET, .to = (int16_t)i}, e);
}

int sp_ere_add_bytes(struct sp_ere_reader *r, struct sp_str bytes, struct sp_err *e)
{
    for (size_t i = 0; i < bytes.n; i++) {
        const struct sp_ere_step step = {.op = SP_ERE_BYTE, .byte = (uint8_t)bytes.p[i]};
        const int failed = sp_ere_add_step(r, step, e);

        if (failed < 0)
            return failed;
    }
    return 0;
}

/* Moves what begins at `at` by one. There is room. */
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

int sp_ere_next_branch(struct sp_ere_reader *r, struct sp_ere_choice *c, struct sp_err *e)
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

void sp_ere_end_choice(struct sp_ere_reader *r, const struct sp_ere_choice *c)
{
    size_t at = c->jump; /* never the first step: a split stands before it */

    while (at != 0) {
        const size_t before = r->step[at].to == 0 ? 0 : at - (size_t)r->step[at].to;

        r->step[at] = step_to(SP_ERE_JUMP, at, r->steps);
        at = before;
    }
}

struct sp_str sp_ere_take_character(struct sp_ere_reader *r)
{
    const unsigned char lead = (unsigned char)r->text.p[r->at];
    const size_t n = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    struct sp_str c = {r->text.p + r->at, n};

    if (n > r->text.n - r->at || !sp_utf8_is_valid(c))
        c.n = 1; /* it is not UTF-8: the byte is meant */
    r->at += c.n;
    return c;
}

/* Digits at *at. UNBOUNDED: none there. */
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

/* A `{` that begins nothing of this kind stands for itself: people wait for `{"ready":true}`. */
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

/* false: what comes next repeats nothing, and was not read. */
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

static void copy_unit(struct sp_ere_reader *r, size_t from, size_t n)
{
    memmove(r->step + r->steps, r->step + from, n * sizeof *r->step);
    r->steps += n;
}

/* How many steps n of them take in the end. Numbers are small enough for this to hold. */
static uint64_t repeated_size(const struct repeat *p, uint64_t n)
{
    if (p->most != UNBOUNDED)
        return p->least * n + (p->most - p->least) * (n + 1);
    return p->least == 0 ? n + 2 : p->least * n + 1;
}

/* The unit is the program's end, from `from`. */
static void write_out(struct sp_ere_reader *r, size_t from, const struct repeat *p)
{
    const size_t n = r->steps - from;
    const size_t end = from + (size_t)repeated_size(p, n);

    if (p->least == 0) { /* the first is optional */
        if (p->most == 0) {
            r->steps = from;
            return;
        }
        insert(r, from, step_to(SP_ERE_SPLIT, from, end));
        if (p->most == UNBOUNDED) {
            r->step[r->steps] = step_to(SP_ERE_JUMP, r->steps, from);
            r->steps++;
            return;
        }
        from++;
    }
    for (uint32_t i = 1; i < p->least; i++)
        copy_unit(r, from, n);
    if (p->most == UNBOUNDED) { /* the last may come again */
        r->step[r->steps] = step_to(SP_ERE_SPLIT, r->steps, r->steps - n);
        r->steps++;
        return;
    }
    for (uint32_t i = p->least == 0 ? 1 : p->least; i < p->most; i++) {
        r->step[r->steps] = step_to(SP_ERE_SPLIT, r->steps, end);
        r->steps++;
        copy_unit(r, from, n);
    }
}

static int repeat_unit(struct sp_ere_reader *r, size_t from, const struct repeat *p,
                       struct sp_err *e)
{
    if (p->most != UNBOUNDED && p->least > p->most)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`" SP_STR_FMT "` at byte %zu: at least %u and at most %u",
                       SP_STR_ARG(p->said), p->at, (unsigned)p->least, (unsigned)p->most);
    if (repeated_size(p, r->steps - from) >= SP_ERE_PROGRAM_MAX - from)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`" SP_STR_FMT "` at byte %zu makes it longer than %d steps; ask for fewer",
                       SP_STR_ARG(p->said), p->at, SP_ERE_PROGRAM_MAX);
    write_out(r, from, p);
    return 0;
}

/*
 * What follows a unit. A `?` behind another of them asks for as few as possible elsewhere, which is
 * no question here: whether there is a match does not depend on it.
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

static int add_any(struct sp_ere_reader *r, struct sp_err *e)
{
    struct sp_ere_set any;

    memset(&any, 0xFF, sizeof any);
    any.bits['\n' / 64] &= ~(UINT64_C(1) << '\n' % 64);
    return sp_ere_add_set(r, &any, e);
}

static int read_backslash(struct sp_ere_reader *r, struct sp_err *e)
{
    struct sp_ere_escape escape;
    const int failed = sp_ere_read_escape(r, &escape, e);

    if (failed < 0)
        return failed;
    if (escape.is_class)
        return sp_ere_add_set(r, &escape.set, e);
    return sp_ere_add_bytes(r, (struct sp_str){(const char *)&escape.byte, 1}, e);
}

/* Anchors: the steps that take no byte. */
static bool read_anchor(struct sp_ere_reader *r, enum sp_ere_op *ret)
{
    const size_t left = r->text.n - r->at;
    const char *p = r->text.p + r->at;

    if (p[0] == '\\' && left > 1 && p[1] == 'b') {
        *ret = SP_ERE_WORD_EDGE;
        r->at += 2;
        return true;
    }
    if (p[0] != '^' && p[0] != '$')
        return false;
    *ret = p[0] == '^' ? SP_ERE_LINE_BEGIN : SP_ERE_LINE_END;
    r->at++;
    return true;
}

/* One that is not a group. */
static int read_unit(struct sp_ere_reader *r, struct sp_err *e)
{
    switch (r->text.p[r->at]) {
    case '.':
        r->at++;
        return add_any(r, e);
    case '[':
        r->at++;
        return sp_ere_read_bracket(r, e);
    case '\\':
        r->at++;
        return read_backslash(r, e);
    default:
        return sp_ere_add_bytes(r, sp_ere_take_character(r), e);
    }
}

/* The groups that are open, the whole being the first. */
struct groups {
    size_t n;
    struct sp_ere_choice choice[SP_ERE_TEXT_MAX + 1];
};

static void open_choice(const struct sp_ere_reader *r, struct groups *g, size_t open)
{
    const uint16_t here = (uint16_t)r->steps;

    g->choice[g->n++] =
        (struct sp_ere_choice){.begin = here, .branch = here, .open = (uint16_t)open};
}

static int open_group(struct sp_ere_reader *r, struct groups *g, struct sp_err *e)
{
    const size_t open = r->at++;

    if (r->at < r->text.n && r->text.p[r->at] == '?') {
        if (r->at + 1 == r->text.n || r->text.p[r->at + 1] != ':')
            return sp_fail(e, SP_E_INVALID, 0, "`(?` at byte %zu is none of this dialect", open);
        r->at += 2;
    }
    open_choice(r, g, open);
    return 0;
}

static int close_group(struct sp_ere_reader *r, struct groups *g, struct sp_err *e)
{
    if (g->n == 1)
        return sp_fail(e, SP_E_INVALID, 0, "`)` at byte %zu closes nothing; write \\) for itself",
                       r->at);
    r->at++;
    const struct sp_ere_choice *c = &g->choice[--g->n];
    sp_ere_end_choice(r, c);
    return read_repeats(r, c->begin, e);
}

static int read_next(struct sp_ere_reader *r, struct groups *g, struct sp_err *e)
{
    const size_t from = r->steps;
    const size_t at = r->at;
    enum sp_ere_op anchor;
    struct repeat p;

    if (r->text.p[r->at] == '(')
        return open_group(r, g, e);
    if (r->text.p[r->at] == ')')
        return close_group(r, g, e);
    if (r->text.p[r->at] == '|') {
        r->at++;
        return sp_ere_next_branch(r, &g->choice[g->n - 1], e);
    }
    if (read_anchor(r, &anchor))
        return sp_ere_add_step(r, (struct sp_ere_step){.op = (uint8_t)anchor}, e);
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
    sp_ere_end_choice(r, &g->choice[0]);
    r->step[r->steps++] = (struct sp_ere_step){.op = SP_ERE_MATCH};
    return 0;
}
