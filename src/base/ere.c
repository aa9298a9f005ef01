/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search: a lazy DFA.
 *
 * All paths through the program are followed at once. A state is the set of steps they have reached
 * between two bytes; a byte leads from one state to the next. States are computed when they are
 * first needed and cached in a table, so that most bytes cost one table lookup. A full table is
 * emptied and filled again. Computing a state is at most one walk over the program, which bounds
 * the time of every byte; all memory is allocated in sp_ere_new.
 *
 * `^` depends on the byte before, which is part of the state. `$` and `\b` stay in the state until
 * the next byte, or the end, is known.
 */
#include "base/ere.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/ere_priv.h"

#define UNKNOWN 0 /* not computed yet */
#define MATCHED 1
#define START   2 /* the first real state: the beginning of a stream */

#define TABLE_BYTES 131072 /* of cached states: 170 of the longest program */
#define STATES_MAX  1024

/* The kind of the byte before, as far as the program depends on it. */
enum before { AFTER_OTHER, AFTER_LINE_FEED, AFTER_WORD };

struct sp_ere {
    struct sp_ere_step *step;
    struct sp_ere_set *set;
    size_t steps, words; /* words: uint64_t in a bitmap of steps */
    bool has_line_begin, has_word_edge, has_line_end;

    /* Bytes that no step distinguishes form a class; speaker is one byte of each. */
    uint8_t class_of[256];
    uint8_t speaker[256];
    size_t classes;

    /* The states: their steps, the kind of the byte before, the next state for each class. */
    uint64_t *state_steps;
    uint8_t *state_before;
    uint16_t *state_next;
    uint16_t *index; /* hash table with open addressing; index_size is a power of two */
    size_t states, states_max, index_size;
    uint16_t now;

    /* Scratch space for computing a state: bitmaps and a stack of steps. */
    uint64_t *seen, *found, *old;
    uint16_t *todo;
};

static bool has(const uint64_t *bits, size_t i)
{
    return (bits[i / 64] >> i % 64 & 1) != 0;
}

static void put(uint64_t *bits, size_t i)
{
    bits[i / 64] |= UINT64_C(1) << i % 64;
}

/* ---- classes ---- */

/* Splits the classes that are partly in the set. */
static void split_classes(struct sp_ere *x, const struct sp_ere_set *set)
{
    int split_to[256]; /* by class: the new class of its members in the set; -1: none yet */
    bool has_outside[256] = {false};

    memset(split_to, 0xFF, sizeof split_to);
    for (unsigned c = 0; c < 256; c++)
        if (!sp_ere_set_has(set, (unsigned char)c))
            has_outside[x->class_of[c]] = true;
    for (unsigned c = 0; c < 256; c++) {
        const uint8_t old = x->class_of[c];

        if (!sp_ere_set_has(set, (unsigned char)c) || !has_outside[old])
            continue;
        if (split_to[old] < 0)
            split_to[old] = (int)x->classes++;
        x->class_of[c] = (uint8_t)split_to[old];
    }
}

static void classify_bytes(struct sp_ere *x, size_t sets)
{
    struct sp_ere_set words = {0};
    struct sp_ere_set alone = {0}; /* single-byte classes */

    x->classes = 1;
    for (size_t i = 0; i < sets; i++)
        split_classes(x, &x->set[i]);
    for (unsigned c = 0; x->has_word_edge && c < 256; c++)
        if (sp_ere_is_word((unsigned char)c))
            sp_ere_set_add(&words, (unsigned char)c);
    split_classes(x, &words);
    sp_ere_set_add(&alone, '\n');
    for (size_t i = 0; i < x->steps; i++)
        if (x->step[i].op == SP_ERE_BYTE)
            sp_ere_set_add(&alone, x->step[i].byte);
    for (unsigned c = 0; c < 256; c++) {
        struct sp_ere_set one = {0};

        sp_ere_set_add(&one, (unsigned char)c);
        if (sp_ere_set_has(&alone, (unsigned char)c))
            split_classes(x, &one);
    }
    for (unsigned c = 0; c < 256; c++)
        x->speaker[x->class_of[c]] = (uint8_t)c;
}

/* ---- computing states ---- */

/* A place between two bytes. The byte behind is known only once it has arrived. */
struct place {
    enum before before;
    bool is_behind_known, is_line_end, is_word_behind;
};

static enum before before_of(const struct sp_ere *x, unsigned char c)
{
    if (x->has_line_begin && c == '\n')
        return AFTER_LINE_FEED;
    return x->has_word_edge && sp_ere_is_word(c) ? AFTER_WORD : AFTER_OTHER;
}

static void visit(struct sp_ere *x, size_t *todo, size_t i)
{
    if (has(x->seen, i))
        return;
    put(x->seen, i);
    x->todo[(*todo)++] = (uint16_t)i;
}

/* Follows one step that takes no byte; a step that needs one is added to found. */
static void follow_one(struct sp_ere *x, size_t i, struct place p, size_t *todo)
{
    const struct sp_ere_step *s = &x->step[i];
    bool is_so = false;

    switch (s->op) {
    case SP_ERE_SPLIT:
        visit(x, todo, (size_t)((ptrdiff_t)i + s->to));
        visit(x, todo, i + 1);
        return;
    case SP_ERE_JUMP:
        visit(x, todo, (size_t)((ptrdiff_t)i + s->to));
        return;
    case SP_ERE_LINE_BEGIN:
        if (p.before == AFTER_LINE_FEED)
            visit(x, todo, i + 1);
        return;
    case SP_ERE_LINE_END:
        is_so = p.is_line_end;
        break;
    case SP_ERE_WORD_EDGE:
        is_so = (p.before == AFTER_WORD) != p.is_word_behind;
        break;
    default:
        put(x->found, i);
        return;
    }
    if (!p.is_behind_known)
        put(x->found, i);
    else if (is_so)
        visit(x, todo, i + 1);
}

/* All steps that are reached from `from` without taking a byte. */
static void follow(struct sp_ere *x, size_t from, struct place p)
{
    size_t todo = 0;

    visit(x, &todo, from);
    while (todo > 0)
        follow_one(x, x->todo[--todo], p, &todo);
}

static void clear_found(struct sp_ere *x)
{
    memset(x->seen, 0, x->words * sizeof *x->seen);
    memset(x->found, 0, x->words * sizeof *x->found);
}

static bool is_match_found(const struct sp_ere *x)
{
    return has(x->found, x->steps - 1);
}

/* Goes on from x->old, now that the byte behind is known. */
static void follow_old(struct sp_ere *x, struct place p)
{
    clear_found(x);
    for (size_t w = 0; w < x->words; w++)
        for (uint64_t bits = x->old[w]; bits != 0; bits &= bits - 1)
            follow(x, w * 64 + (size_t)__builtin_ctzll(bits), p);
}

/* The steps after c, from x->old. A match may also begin behind c. */
static void take_byte(struct sp_ere *x, unsigned char c)
{
    const struct place behind = {.before = before_of(x, c)};

    clear_found(x);
    for (size_t w = 0; w < x->words; w++) {
        for (uint64_t bits = x->old[w]; bits != 0; bits &= bits - 1) {
            const size_t i = w * 64 + (size_t)__builtin_ctzll(bits);
            const struct sp_ere_step *s = &x->step[i];

            if ((s->op == SP_ERE_BYTE && s->byte == c) ||
                (s->op == SP_ERE_SET && sp_ere_set_has(&x->set[s->to], c)))
                follow(x, i + 1, behind);
        }
    }
    follow(x, 0, behind);
}

/* ---- the table of states ---- */

static uint64_t *steps_of(const struct sp_ere *x, size_t state)
{
    return x->state_steps + state * x->words;
}

/* The slot of x->found in the index, or the free slot where it belongs. */
static size_t find_slot(const struct sp_ere *x, enum before before)
{
    uint64_t h = 0xCBF29CE484222325U ^ (uint64_t)before;

    for (size_t w = 0; w < x->words; w++) {
        h = (h ^ x->found[w]) * 0x9E3779B97F4A7C15U;
        h ^= h >> 32;
    }
    for (size_t at = h & (x->index_size - 1);; at = (at + 1) & (x->index_size - 1)) {
        const uint16_t state = x->index[at];

        if (state == UNKNOWN)
            return at;
        if (x->state_before[state] == before &&
            memcmp(steps_of(x, state), x->found, x->words * sizeof *x->found) == 0)
            return at;
    }
}

/* The state of x->found, added if it is new. The caller has made room. */
static uint16_t remember(struct sp_ere *x, enum before before)
{
    const size_t at = find_slot(x, before);

    if (x->index[at] != UNKNOWN)
        return x->index[at];
    const uint16_t state = (uint16_t)x->states++;
    memcpy(steps_of(x, state), x->found, x->words * sizeof *x->found);
    x->state_before[state] = (uint8_t)before;
    memset(x->state_next + state * x->classes, 0, x->classes * sizeof *x->state_next);
    x->index[at] = state;
    return state;
}

/* Empties the table and adds the state at the beginning of a stream. */
static void remember_start(struct sp_ere *x)
{
    const enum before before = x->has_line_begin ? AFTER_LINE_FEED : AFTER_OTHER;

    memset(x->index, 0, x->index_size * sizeof *x->index);
    x->states = START; /* the numbers below are no states */
    clear_found(x);
    follow(x, 0, (struct place){.before = before});
    (void)remember(x, before); /* the first is START */
}

/* Steps of x->old that wait for the byte behind go on, now that it is c. true: a match before c. */
static bool does_match_before(struct sp_ere *x, unsigned char c)
{
    if (!x->has_line_end && !x->has_word_edge)
        return false;
    follow_old(x, (struct place){.before = x->state_before[x->now],
                                 .is_behind_known = true,
                                 .is_line_end = c == '\n',
                                 .is_word_behind = sp_ere_is_word(c)});
    memcpy(x->old, x->found, x->words * sizeof *x->old);
    return is_match_found(x);
}

/* Empties a full table (true) without losing x->found. */
static bool make_room(struct sp_ere *x)
{
    if (x->states < x->states_max)
        return false;
    memcpy(x->old, x->found, x->words * sizeof *x->old);
    remember_start(x);
    memcpy(x->found, x->old, x->words * sizeof *x->found);
    return true;
}

/* Computes where the state leads with bytes of c's class, and caches the answer. */
static uint16_t compute_next(struct sp_ere *x, unsigned char c)
{
    const size_t from = x->now;

    memcpy(x->old, steps_of(x, from), x->words * sizeof *x->old);
    if (!does_match_before(x, c))
        take_byte(x, c);
    if (is_match_found(x)) {
        x->state_next[from * x->classes + x->class_of[c]] = MATCHED;
        return MATCHED;
    }
    const bool is_emptied = make_room(x);
    const uint16_t to = remember(x, before_of(x, c));
    if (!is_emptied) /* after emptying, index `from` denotes a different state */
        x->state_next[from * x->classes + x->class_of[c]] = to;
    return to;
}

/* ---- the interface ---- */

bool sp_ere_feed(struct sp_ere *x, struct sp_str bytes)
{
    const unsigned char *p = (const unsigned char *)bytes.p;
    const uint16_t *next = x->state_next;
    const size_t classes = x->classes;
    size_t now = x->now;

    for (size_t i = 0; i < bytes.n && now != MATCHED; i++) {
        size_t to = next[now * classes + x->class_of[p[i]]];

        if (to == UNKNOWN) {
            x->now = (uint16_t)now;
            to = compute_next(x, x->speaker[x->class_of[p[i]]]);
        }
        now = to;
    }
    x->now = (uint16_t)now;
    return now == MATCHED;
}

bool sp_ere_finish(struct sp_ere *x)
{
    if (x->now == MATCHED)
        return true;
    memcpy(x->old, steps_of(x, x->now), x->words * sizeof *x->old);
    if (does_match_before(x, '\n'))
        x->now = MATCHED;
    return x->now == MATCHED;
}

void sp_ere_reset(struct sp_ere *x)
{
    x->now = has(steps_of(x, START), x->steps - 1) ? MATCHED : START;
}

void sp_ere_free(struct sp_ere *x)
{
    if (x == NULL)
        return;
    free(x->step);
    free(x->set);
    free(x->state_steps);
    free(x->state_before);
    free(x->state_next);
    free(x->index);
    free(x->seen);
    free(x->todo);
    free(x);
}

static void *copy_of(const void *bytes, size_t n)
{
    void *copy = calloc(1, n == 0 ? 1 : n);

    if (copy != NULL)
        memcpy(copy, bytes, n);
    return copy;
}

static bool make_table(struct sp_ere *x)
{
    const size_t each = x->words * sizeof(uint64_t) + x->classes * sizeof(uint16_t);

    x->states_max = TABLE_BYTES / each;
    if (x->states_max > STATES_MAX)
        x->states_max = STATES_MAX;
    for (x->index_size = 32; x->index_size < 2 * x->states_max;)
        x->index_size *= 2;
    x->state_steps = malloc(x->states_max * x->words * sizeof *x->state_steps);
    x->state_before = malloc(x->states_max);
    x->state_next = malloc(x->states_max * x->classes * sizeof *x->state_next);
    x->index = malloc(x->index_size * sizeof *x->index);
    x->seen = malloc(3 * x->words * sizeof *x->seen);
    x->todo = malloc(x->steps * sizeof *x->todo);
    if (x->state_steps == NULL || x->state_before == NULL || x->state_next == NULL ||
        x->index == NULL || x->seen == NULL || x->todo == NULL)
        return false;
    x->found = x->seen + x->words;
    x->old = x->found + x->words;
    remember_start(x);
    sp_ere_reset(x);
    return true;
}

static void free_half_built(struct sp_ere **x)
{
    sp_ere_free(*x);
}

int sp_ere_new(struct sp_str text, struct sp_ere **ret, struct sp_err *e)
{
    if (text.n > SP_ERE_TEXT_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "the expression is longer than %d bytes",
                       SP_ERE_TEXT_MAX);

    auto_free struct sp_ere_reader *r = calloc(1, sizeof *r);
    if (r == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the expression");
    r->text = text;
    const int failed = sp_ere_read(r, e);
    if (failed < 0)
        return failed;

    __attribute__((cleanup(free_half_built))) struct sp_ere *x = calloc(1, sizeof *x);
    if (x == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the expression");
    x->steps = r->steps;
    x->words = (r->steps + 63) / 64;
    x->step = copy_of(r->step, r->steps * sizeof *r->step);
    x->set = copy_of(r->set, r->sets * sizeof *r->set);
    for (size_t i = 0; x->step != NULL && i < x->steps; i++) {
        x->has_line_begin = x->has_line_begin || x->step[i].op == SP_ERE_LINE_BEGIN;
        x->has_line_end = x->has_line_end || x->step[i].op == SP_ERE_LINE_END;
        x->has_word_edge = x->has_word_edge || x->step[i].op == SP_ERE_WORD_EDGE;
    }
    if (x->step != NULL && x->set != NULL)
        classify_bytes(x, r->sets);
    if (x->step == NULL || x->set == NULL || !make_table(x))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the expression");
    *ret = TAKE_PTR(x);
    return 0;
}
