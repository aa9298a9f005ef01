/* SPDX-License-Identifier: Apache-2.0 */
#include <regex.h>
#include <time.h>

#include "ere_fixture.h"
#include "test.h"

/* ---- another one's opinion ---- */

#define PATTERN_MAX 200

struct writer {
    uint64_t *seed;
    int repeated; /* groups around this: anchors there confuse the library */
    char text[PATTERN_MAX];
    size_t n;
};

static void add(struct writer *w, const char *text)
{
    const size_t n = strlen(text);

    assert_true(w->n + n < sizeof w->text);
    memcpy(w->text + w->n, text, n + 1);
    w->n += n;
}

static const char *one_of(struct writer *w, const char *const *list, size_t n)
{
    return list[test_random(w->seed) % n];
}

#define ONE_OF(w, list) one_of(w, list, sizeof(list) / sizeof((list)[0]))

static void add_choice(struct writer *w, int depth);

static void add_unit(struct writer *w, int depth)
{
    static const char *const units[] = {
        "a", "a", "b",    "b",   "c",   ".",     "[ab]",        "[^a]",         "[a-c]",
        "_", " ", "\\.",  "\\w", "\\s", "[^ b]", "[[:alpha:]]", "[^[:space:]]", "[]a-]",
        "-", "x", "[b-]",
    };
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}", "{0,1}"};
    const bool is_group = depth > 0 && test_random(w->seed) % 4 == 0;
    const bool is_repeated = test_random(w->seed) % 3 == 0;

    if (is_group) {
        w->repeated += is_repeated;
        add(w, "(");
        add_choice(w, depth - 1);
        add(w, ")");
        w->repeated -= is_repeated;
    } else {
        add(w, ONE_OF(w, units));
    }
    if (is_repeated)
        add(w, ONE_OF(w, repeats));
}

static void add_branch(struct writer *w, int depth)
{
    static const char *const anchors[] = {"^", "$", "\\b"};

    for (uint32_t left = test_random(w->seed) % 4; left > 0; left--) {
        if (w->repeated == 0 && test_random(w->seed) % 7 == 0)
            add(w, ONE_OF(w, anchors));
        else
            add_unit(w, depth);
    }
}

static void add_choice(struct writer *w, int depth)
{
    add_branch(w, depth);
    while (test_random(w->seed) % 4 == 0 && w->n < 60) {
        add(w, "|");
        add_branch(w, depth);
    }
}

static size_t random_text(uint64_t *seed, char *ret, size_t max)
{
    static const char letters[] = "aaabbbcx_ -.\n\n";
    const size_t n = test_random(seed) % max;

    for (size_t i = 0; i < n; i++)
        ret[i] = letters[test_random(seed) % (sizeof letters - 1)];
    ret[n] = 0;
    return n;
}

static void test_the_library_agrees(void **state)
{
    uint64_t seed = 7;
    size_t cases = 0;
    size_t matches = 0;

    (void)state;
    for (int turn = 0; turn < 6000; turn++) {
        struct writer w = {.seed = &seed};
        regex_t other;

        add_choice(&w, 2);
        assert_int_equal(regcomp(&other, w.text, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
        auto_ere struct sp_ere *x = expression(sp_str_of(w.text));
        for (int i = 0; i < 8; i++) {
            char text[24];
            const size_t n = random_text(&seed, text, sizeof text);
            const bool is_match = regexec(&other, text, 0, NULL, 0) == 0;

            if ((search(x, (struct sp_str){text, n}) != NEVER) != is_match)
                fail_msg("%s in \"%s\": the library says %d", w.text, text, is_match);
            cases++;
            matches += is_match;
        }
        regfree(&other);
    }
    print_message("# %zu cases, %zu matches\n", cases, matches);
    assert_true(matches > cases / 10 && matches < cases - cases / 10);
}

/* ---- streams ---- */

/* How many bytes it takes; n + 1: the end; n + 2: none. */
static size_t taken_by_bytes(struct sp_ere *x, struct sp_str text)
{
    sp_ere_reset(x);
    if (sp_ere_feed(x, (struct sp_str){NULL, 0}))
        return 0;
    for (size_t i = 0; i < text.n; i++)
        if (sp_ere_feed(x, (struct sp_str){text.p + i, 1}))
            return i + 1;
    return sp_ere_finish(x) ? text.n + 1 : text.n + 2;
}

static void same_however_split(struct sp_ere *x, struct sp_str text)
{
    const size_t taken = taken_by_bytes(x, text);

    for (size_t cut = 0; cut <= text.n; cut++) {
        sp_ere_reset(x);
        assert_int_equal(sp_ere_feed(x, (struct sp_str){text.p, cut}), taken <= cut);
        assert_int_equal(sp_ere_feed(x, (struct sp_str){text.p + cut, text.n - cut}),
                         taken <= text.n);
        assert_int_equal(sp_ere_finish(x), taken <= text.n + 1);
    }
}

/* One that asks about the end after every byte, and one that asks once. */
static void looks_change_nothing(struct sp_ere *looks, struct sp_ere *fresh, struct sp_str text)
{
    sp_ere_reset(looks);
    for (size_t i = 0; i < text.n; i++) {
        sp_ere_reset(fresh);
        (void)sp_ere_feed(fresh, (struct sp_str){text.p, i + 1});
        (void)sp_ere_feed(looks, (struct sp_str){text.p + i, 1});
        const bool is_match = sp_ere_finish(fresh);
        assert_int_equal(sp_ere_finish(looks), is_match);
        if (is_match) {
            assert_true(sp_ere_feed(looks, SP_STR("zzz")));
            return;
        }
    }
}

static void test_pieces_make_no_difference(void **state)
{
    uint64_t seed = 21;

    (void)state;
    for (int turn = 0; turn < 2000; turn++) {
        struct writer w = {.seed = &seed};

        add_choice(&w, 2);
        auto_ere struct sp_ere *x = expression(sp_str_of(w.text));
        char text[32];
        const size_t n = random_text(&seed, text, sizeof text);
        same_however_split(x, (struct sp_str){text, n});
        auto_ere struct sp_ere *other = expression(sp_str_of(w.text));
        looks_change_nothing(x, other, (struct sp_str){text, n});
    }
}

/* More states than are ever remembered: what is asked for depends on the last 15 bytes. */
static void test_a_table_that_is_begun_anew_forgets_nothing(void **state)
{
    enum { BACK = 15, SIZE = 60000 };
    auto_ere struct sp_ere *x = expression(SP_STR("a[ab]{14}c"));
    char *text = malloc(SIZE);
    uint64_t seed = 3;
    size_t matches = 0;

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < SIZE; i++)
        text[i] = "aabbaabbaabbaabbaabbc"[test_random(&seed) % 21];
    size_t from = 0;
    sp_ere_reset(x);
    for (size_t i = 0; i < SIZE; i++) {
        bool is_match = text[i] == 'c' && i >= from + BACK && text[i - BACK] == 'a';
        for (size_t at = i - (is_match ? BACK : 0); at < i; at++)
            is_match = is_match && text[at] != 'c';
        assert_int_equal(sp_ere_feed(x, (struct sp_str){text + i, 1}), is_match);
        if (is_match) {
            matches++;
            from = i + 1;
            sp_ere_reset(x);
        }
    }
    assert_true(matches > 50);
    free(text);
}

static uint64_t cpu_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void test_hostile_expressions_take_no_longer_than_their_length(void **state)
{
    static const char *const hostile[] = {
        "(a*)*b",
        "(a|a)*b",
        "(a|aa)+$b",
        "(a?){40}a{40}b",
        "((((((a*)*)*)*)*)*)*b",
        "(.*)(.*)(.*)(.*)(.*)(.*)(.*)b",
        "(a+)+(a+)+(a+)+(a+)+b",
        "(^a|a$|\\ba|a)*b",
        "(|a|aa|aaa|(|a)*)*b",
        "((){1000}){1000}b",
        "(((a{0,6}){0,6}){0,6}){0,3}b",
    };
    enum { SIZE = 100000 };
    char *text = malloc(SIZE);

    (void)state;
    assert_non_null(text);
    memset(text, 'a', SIZE);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const uint64_t before = cpu_ms();
        auto_ere struct sp_ere *x = expression(sp_str_of(hostile[i]));

        assert_int_equal(search(x, (struct sp_str){text, SIZE}), NEVER);
        assert_true(cpu_ms() - before < 10000);
    }
    free(text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_library_agrees),
    cmocka_unit_test(test_pieces_make_no_difference),
    cmocka_unit_test(test_a_table_that_is_begun_anew_forgets_nothing),
    cmocka_unit_test(test_hostile_expressions_take_no_longer_than_their_length),
};

TEST_MAIN(tests)
