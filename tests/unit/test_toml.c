/* SPDX-License-Identifier: Apache-2.0 */
/* What TOML is and means, tests/functional/test_toml_oracle.py asks another reader. */
#include <math.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/toml.h"
#include "memory_fixture.h"
#include "test.h"

/* From an exact copy on the heap, which is gone after: the document keeps its own. */
static int parse_n(struct sp_toml *t, struct sp_str text, struct sp_err *e)
{
    char *copy = test_copy(text);
    const int r = sp_toml_parse(t, "x.toml", (struct sp_str){copy, text.n}, e);

    free(copy);
    return r;
}

static void parse(struct sp_toml *t, const char *text)
{
    struct sp_err e = {0};

    if (parse_n(t, sp_str_of(text), &e) < 0)
        fail_msg("%s: %s", text, e.msg);
}

static void refused(const char *text, const char *why)
{
    struct sp_toml t = {0};
    struct sp_err e = {0};

    assert_int_equal(parse_n(&t, sp_str_of(text), &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_null(t.root);
    assert_null(t.arena.newest);
}

static const struct sp_toml_value *get(const struct sp_toml_value *table, const char *key)
{
    const struct sp_toml_value *v = sp_toml_get(table, sp_str_of(key));

    if (v == NULL)
        fail_msg("there is no %s", key);
    return v;
}

static void is_string(const struct sp_toml_value *v, struct sp_str want)
{
    assert_int_equal(v->type, SP_TOML_STRING);
    assert_int_equal(v->text.n, want.n);
    assert_memory_equal(v->text.p, want.p, want.n);
}

static void test_every_type_is_read(void **state)
{
    auto_toml struct sp_toml t = {0};

    (void)state;
    parse(&t,
          "s = \"a\\u0000b\"\ni = -9_223_372_036_854_775_808\nf = 6.5e-1\nt = true\nn = -nan\n"
          "odt = 1979-05-27 07:32:00Z\nldt = 1979-05-27T07:32:00\nld = 1979-05-27\nlt = 07:32:00\n"
          "a = [1, 'two', [3]]\n[t2]\nx.y = {z = 0x10}\n");
    const struct sp_toml_value *r = t.root;
    is_string(get(r, "s"), SP_STR("a\0b"));
    assert_true(get(r, "i")->integer == INT64_MIN);
    assert_true(get(r, "f")->real == 0.65);
    assert_true(get(r, "t")->boolean);
    assert_true(isnan(get(r, "n")->real));
    assert_int_equal(get(r, "odt")->type, SP_TOML_OFFSET_DATE_TIME);
    assert_int_equal(get(r, "ldt")->type, SP_TOML_LOCAL_DATE_TIME);
    assert_int_equal(get(r, "ld")->type, SP_TOML_LOCAL_DATE);
    assert_int_equal(get(r, "lt")->type, SP_TOML_LOCAL_TIME);
    assert_true(sp_str_eq(get(r, "odt")->text, SP_STR("1979-05-27 07:32:00Z")));
    const struct sp_toml_value *a = get(r, "a");
    assert_int_equal(a->count, 3);
    assert_int_equal(a->first->integer, 1);
    is_string(a->first->next, SP_STR("two"));
    assert_int_equal(a->last->type, SP_TOML_ARRAY);
    assert_int_equal(get(get(get(get(r, "t2"), "x"), "y"), "z")->integer, 16);
    assert_int_equal(r->count, 11);
}

static void test_a_refusal_says_where(void **state)
{
    (void)state;
    refused("a = 1\nb = ",
            "x.toml: line 2, column 5: expected a value (a string stands in quotes)");
    refused("a = 1\na = 2", "x.toml: line 2, column 1: `a` is defined already");
    refused("\xc3\xa9 = 1", "x.toml: line 1, column 1: expected a key");
    refused("\"\xc3\xa9\" 1", "x.toml: line 1, column 5: expected `=` after a key");
    refused("a = [1\n\n2]", "x.toml: line 3, column 1: expected `,` or `]` in an array");
    refused("a = \"\\uD800\"", "x.toml: line 1, column 6: U+D800 is not a character");
    refused("a = \"x", "x.toml: line 1, column 5: a string without an end");
    refused("a = \"\xff\"", "x.toml: line 1, column 6: not UTF-8");
    refused("[a]\nb.c = 1\n[a.b]", "x.toml: line 3, column 4: `b` is defined already");
    refused(
        "a = {}\n[a.b]",
        "x.toml: line 2, column 2: `a` is defined already, and nothing can be added to it here");
}

static void test_a_long_name_is_shown_in_part_and_whole_characters(void **state)
{
    auto_buf struct sp_buf text = {0};
    struct sp_toml t = {0};
    struct sp_err e = {0};

    (void)state;
    for (int twice = 0; twice < 2; twice++) {
        assert_true(sp_buf_printf(&text, "\"x"));
        for (int i = 0; i < 60; i++)
            assert_true(sp_buf_printf(&text, "\xc3\xa9")); /* the border falls inside of one */
        assert_true(sp_buf_printf(&text, "\" = 1\n"));
    }
    assert_int_equal(parse_n(&t, (struct sp_str){text.data, text.len}, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "\xc3\xa9?` is defined already"));
}

static void test_layers_merge_tables_and_replace_the_rest(void **state)
{
    auto_toml struct sp_toml base = {0};
    auto_toml struct sp_toml over = {0};
    uint32_t seen = 0;

    (void)state;
    parse(&base, "a = 1\nl = [1, 2]\n[t]\nx = 1\ny = 2\n[t.u]\nz = 3\n");
    parse(&over, "l = [3]\nt.y = 5\nt.u.w = 6\nn = 7\na = {b = 8}\n");
    const struct sp_toml_value *r = base.root;
    sp_toml_merge(base.root, over.root);
    assert_int_equal(get(get(r, "a"), "b")->integer, 8);
    assert_int_equal(get(r, "l")->count, 1);
    assert_int_equal(get(get(r, "t"), "x")->integer, 1);
    assert_int_equal(get(get(r, "t"), "y")->integer, 5);
    assert_int_equal(get(get(get(r, "t"), "u"), "z")->integer, 3);
    assert_int_equal(get(get(get(r, "t"), "u"), "w")->integer, 6);
    assert_int_equal(get(r, "n")->integer, 7);
    for (const struct sp_toml_value *v = r->first; v != NULL; v = v->next) {
        seen++;
        assert_true(v->next != NULL || v == r->last);
    }
    assert_int_equal(seen, r->count);
    assert_ptr_equal(get(r, "n")->doc, &over);
}

static void test_a_value_can_be_refused_later(void **state)
{
    auto_toml struct sp_toml t = {0};
    struct sp_err e = {0};

    (void)state;
    parse(&t, "\n  key = 'value'\n");
    assert_int_equal(sp_toml_refuse(get(t.root, "key"), &e, "not %d", 5), -SP_E_INVALID);
    assert_string_equal(e.msg, "x.toml: line 2, column 9: not 5");
    assert_int_equal(sp_toml_refuse_key(get(t.root, "key"), &e, "no"), -SP_E_INVALID);
    assert_string_equal(e.msg, "x.toml: line 2, column 3: no");
    t.has_no_places = true;
    (void)sp_toml_refuse(get(t.root, "key"), &e, "no");
    assert_string_equal(e.msg, "x.toml: no");
}

/* Many keys, many times over: what is looked up each time must not be a list. */
static void test_many_keys_are_read_at_once(void **state)
{
    auto_buf struct sp_buf text = {0};
    struct sp_toml t = {0};
    struct sp_err e = {0};

    (void)state;
    for (int i = 0; i < 60000; i++)
        assert_true(sp_buf_printf(&text, "k%d=%d\n", i, i));
    assert_int_equal(parse_n(&t, (struct sp_str){text.data, text.len}, &e), 0);
    assert_int_equal(t.root->count, 60000);
    assert_int_equal(t.root->last->integer, 59999);
    sp_toml_done(&t);
}

static void test_every_missing_byte_is_survived(void **state)
{
    static const char text[] =
        "[a.'b']\nc.\"d\\u00e9\" = [1979-05-27T07:32:00.5+01:00, {x = 1_0.5e1}]\n"
        "e = '''\nx''''\nf = \"\"\"\\\n y\"\"\"\n[[g]]\nh = [ # c\n 0b1, ]\n";
    (void)state;
    for (size_t n = 0; n < sizeof text; n++) {
        struct sp_toml t = {0};
        struct sp_err e = {0};
        const int r = parse_n(&t, (struct sp_str){text, n}, &e);

        assert_true(r == 0 || (r == -SP_E_INVALID && e.msg[0] != 0));
        sp_toml_done(&t);
    }
}

static void test_memory_that_ends_is_told(void **state)
{
    static const char text[] = "[a.b]\nc = [1, 2.5, 'x']\n";

    (void)state;
    for (long n = 1;; n++) {
        struct sp_toml t = {0};
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = sp_toml_parse(&t, "x", sp_str_of(text), &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_true(n > 3);
            sp_toml_done(&t);
            return;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_null(t.arena.newest);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_type_is_read),
    cmocka_unit_test(test_a_refusal_says_where),
    cmocka_unit_test(test_a_long_name_is_shown_in_part_and_whole_characters),
    cmocka_unit_test(test_layers_merge_tables_and_replace_the_rest),
    cmocka_unit_test(test_a_value_can_be_refused_later),
    cmocka_unit_test(test_many_keys_are_read_at_once),
    cmocka_unit_test(test_every_missing_byte_is_survived),
    cmocka_unit_test(test_memory_that_ends_is_told),
};
TEST_MAIN(tests)
