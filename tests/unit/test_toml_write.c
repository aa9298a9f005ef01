/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as the reference's library writes them: taken from its answers, then read again. */
#include "base/toml.h"
#include "memory_fixture.h"
#include "test.h"

#define MAX_KEYS 8

/* "a.b,c" as paths; a dot alone between commas is the empty key. */
struct paths {
    struct sp_toml_path items[8];
    struct sp_str keys[8][MAX_KEYS];
    uint32_t count;
};

static void read_paths(const char *text, struct paths *ret)
{
    *ret = (struct paths){0};
    for (;;) {
        struct sp_toml_path *p = &ret->items[ret->count];
        struct sp_str *keys = ret->keys[ret->count++];

        p->keys = keys;
        for (;;) {
            const size_t n = strcspn(text, ".,");

            keys[p->count++] = (struct sp_str){text, n};
            text += n;
            if (*text != '.')
                break;
            text++;
        }
        if (*text == 0)
            return;
        text++;
    }
}

static bool write_selected(const char *text, const char *paths, struct sp_buf *out)
{
    auto_toml struct sp_toml t = {0};
    struct sp_err e = {0};
    struct paths p;

    if (sp_toml_parse(&t, "x", sp_str_of(text), &e) < 0) {
        assert_int_equal(e.code, SP_E_SYSTEM); /* memory */
        return false;
    }
    if (paths != NULL) {
        read_paths(paths, &p);
        if (!sp_toml_select(t.root, p.items, p.count))
            return sp_buf_add(out, "(nothing)", 9);
    }
    return sp_toml_write(out, t.root);
}

static void gives(const char *text, const char *paths, const char *want)
{
    auto_buf struct sp_buf out = {0};
    auto_buf struct sp_buf again = {0};

    assert_true(write_selected(text, paths, &out) && sp_buf_add(&out, "", 1));
    if (strcmp(out.data, want) != 0)
        fail_msg("%s of\n%s\nis\n%s\nnot\n%s", paths == NULL ? "all" : paths, text, out.data, want);
    if (strcmp(want, "(nothing)") == 0)
        return;
    assert_true(write_selected(out.data, NULL, &again) && sp_buf_add(&again, "", 1));
    assert_string_equal(again.data, want); /* it is TOML, and means the same */
}

/* A value as it is written. */
static void value_is(const char *written, const char *want)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf lines = {0};

    assert_true(sp_buf_printf(&text, "v = %s\n", written) && sp_buf_add(&text, "", 1) &&
                sp_buf_printf(&lines, "v = %s\n", want) && sp_buf_add(&lines, "", 1));
    gives(text.data, NULL, lines.data);
}

static void test_strings_have_the_plainest_quotes(void **state)
{
    static const char *const values[][2] = {
        {"'plain'", "\"plain\""},
        {"\"\"", "\"\""},
        {"\"tab\\t\"", "\"tab\\t\""},
        {"\"c\\\"q\"", "'c\"q'"},
        {"\"x\\\\y\"", "'x\\y'"},
        {"\"it's\"", "\"it's\""},
        {"\"a'b\\\"c\"", "\"\"\"a'b\"c\"\"\""},
        {"\"a\\nb\"", "\"\"\"\na\nb\"\"\""},
        {"\"\\n\"", "\"\"\"\n\n\"\"\""},
        {"\"a\\\\b'c\"", "'''a\\b'c'''"},
        {"\"a\\\\b'c\\n\"", "'''\na\\b'c\n'''"},
        {"\"a\\r\"", "\"a\\r\""},
        {"\"a\\r\\nb\"", "\"\"\"\na\\r\nb\"\"\""},
        {"\"\\u0000\\u0007\\u007f\\b\\f\"", "\"\\u0000\\u0007\\u007F\\b\\f\""},
        {"\"\\u00e9\\u2028\"", "\"\xC3\xA9\xE2\x80\xA8\""},
        {"\"\\\"\\\"\\\"\"", "'\"\"\"'"},
        {"\"\\\"\\\"\\\"'\"", "'''\"\"\"''''"},
        {"\"\\\"\\\"\\\"'''\"", "\"\\\"\\\"\\\"'''\""},
        {"\"\\\"\\\"\\\"\\\"'''\\n\"", "\"\"\"\n\"\"\\\"\"'''\n\"\"\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        value_is(values[i][0], values[i][1]);
}

static void test_numbers_and_dates_have_one_form(void **state)
{
    static const char *const values[][2] = {
        {"1_000", "1000"},
        {"0x1F", "31"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"1e5", "100000.0"},
        {"0.1", "0.1"},
        {"1e-7", "0.0000001"},
        {"123456789.125", "123456789.125"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"1e22", "10000000000000000000000.0"},
        {"-0.0", "-0.0"},
        {"+0.0", "0.0"},
        {"-inf", "-inf"},
        {"-nan", "nan"},
        {"true", "true"},
        {"1979-05-27t07:32:00z", "1979-05-27T07:32:00Z"},
        {"1979-05-27 07:32:00.500000-07:00", "1979-05-27T07:32:00.5-07:00"},
        {"1979-05-27T07:32:00.123456789123+00:00", "1979-05-27T07:32:00.123456789+00:00"},
        {"1979-05-27T00:32:00-00:00", "1979-05-27T00:32:00+00:00"},
        {"07:32:00.000", "07:32:00"},
        {"1979-05-27", "1979-05-27"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        value_is(values[i][0], values[i][1]);
    auto_buf struct sp_buf tiny = {0};
    assert_true(sp_buf_printf(&tiny, "v = 0.%0323d5\n", 0) && sp_buf_add(&tiny, "", 1));
    gives("v = 5e-324\n", NULL, tiny.data);
}

static void test_keys_are_quoted_where_they_must(void **state)
{
    (void)state;
    gives("a-b_1 = 1\n\"a b\" = 2\n\"\" = 3\n\"a\\\"b\" = 4\n\"a'b\\\"\" = 5\n\"a\\nb\" = 6\n"
          "\"\xC3\xA9\" = 7\n[\"x.y\".'z\"']\nk = 8\n",
          NULL,
          "a-b_1 = 1\n\"a b\" = 2\n\"\" = 3\n'a\"b' = 4\n\"a'b\\\"\" = 5\n\"a\\nb\" = 6\n"
          "\"\xC3\xA9\" = 7\n\n[\"x.y\".'z\"']\nk = 8\n");
}

static void test_values_come_before_tables(void **state)
{
    (void)state;
    gives("a.b = 1\nc = { d = 2 }\ne = 3\nf = [ {g = 4}, {} ]\nh = [1, {i = 5, j = {}}]\nk = []\n"
          "l = [[{m = 6}]]\n",
          NULL,
          "e = 3\nh = [1, { i = 5, j = {} }]\nk = []\nl = [[{ m = 6 }]]\n\n[a]\nb = 1\n\n[c]\n"
          "d = 2\n\n[[f]]\ng = 4\n\n[[f]]\n");
    gives("[a.b.c]\n[a.d]\nx = 1\n[[a.e]]\n[a.e.f.g]\ny = 2\n[[a.e]]\n", NULL,
          "[a.b.c]\n\n[a.d]\nx = 1\n\n[[a.e]]\n\n[a.e.f.g]\ny = 2\n\n[[a.e]]\n");
    gives("", NULL, "");
}

static const char sample[] =
    "m = 1\n[a]\nx = 1\n[a.b]\ny = 2\n[a.c]\n[[l]]\nq = 1\n[a.b.d]\nz = 1\n";

static void test_what_paths_lead_to_is_left(void **state)
{
    (void)state;
    gives(sample, "m", "m = 1\n");
    gives(sample, "m.x.y", "m = 1\n"); /* no table, but it hides what others say */
    gives(sample, "l.0.q", "[[l]]\nq = 1\n");
    gives(sample, "a.b", "[a.b]\ny = 2\n\n[a.b.d]\nz = 1\n");
    gives(sample, "a.c", "[a.c]\n");
    gives(sample, "a.c.nothing", "[a.c]\n");
    gives(sample, "a.nothing", "[a]\n");
    gives(sample, "a.b.d.z,m", "m = 1\n\n[a.b.d]\nz = 1\n");
    gives(sample, "a.b.y,a.x,a.b.y", "[a]\nx = 1\n\n[a.b]\ny = 2\n");
    gives(sample, "a.b,a", "[a]\nx = 1\n\n[a.b]\ny = 2\n\n[a.b.d]\nz = 1\n\n[a.c]\n");
    gives(sample, "a.x,a,a.b", "[a]\nx = 1\n\n[a.b]\ny = 2\n\n[a.b.d]\nz = 1\n\n[a.c]\n");
    gives(sample, "nothing", "(nothing)");
    gives(sample, "nothing,,aa,A,l0", "(nothing)");
    gives("", "a", "(nothing)");
}

/* Long names above many tables make a text without end: it ends at the bound. */
static void test_a_text_stays_within_its_bound(void **state)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf out = {.max = 1 << 20};
    static char name[20000];

    (void)state;
    memset(name, 'n', sizeof name - 1);
    assert_true(sp_buf_printf(&text, "%s = {", name));
    for (int i = 0; i < 1000; i++)
        assert_true(sp_buf_printf(&text, "%sk%d={}", i == 0 ? "" : ",", i));
    assert_true(sp_buf_printf(&text, "}\n") && sp_buf_add(&text, "", 1));
    assert_false(write_selected(text.data, NULL, &out));
    assert_true(out.len <= 1 << 20);
}

static void test_nesting_ends_where_the_reader_says(void **state)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf out = {0};

    (void)state;
    assert_true(sp_buf_printf(&text, "a"));
    for (int i = 1; i < SP_TOML_MAX_DEPTH; i++)
        assert_true(sp_buf_printf(&text, ".a"));
    assert_true(sp_buf_printf(&text, " = [1]\n") && sp_buf_add(&text, "", 1));
    assert_true(write_selected(text.data, NULL, &out));
    assert_true(out.len > 2 * SP_TOML_MAX_DEPTH);
}

static void test_without_memory_nothing_is_half_done(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        auto_buf struct sp_buf out = {0};

        end_memory_at(n);
        const bool ok = write_selected(sample, "a,l,m", &out);
        if (!did_memory_end()) {
            assert_true(ok);
            return;
        }
        assert_false(ok);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_strings_have_the_plainest_quotes),
    cmocka_unit_test(test_numbers_and_dates_have_one_form),
    cmocka_unit_test(test_keys_are_quoted_where_they_must),
    cmocka_unit_test(test_values_come_before_tables),
    cmocka_unit_test(test_what_paths_lead_to_is_left),
    cmocka_unit_test(test_a_text_stays_within_its_bound),
    cmocka_unit_test(test_nesting_ends_where_the_reader_says),
    cmocka_unit_test(test_without_memory_nothing_is_half_done),
};

TEST_MAIN(tests)
