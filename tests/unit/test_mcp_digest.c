/* SPDX-License-Identifier: Apache-2.0 */
/* What a call is about, whichever way it is spelled. */
#include <stdio.h>

#include "base/auto.h"
#include "mcp_digest_fixture.h"
#include "memory_fixture.h"
#include "test.h"

static bool is_same_call(const char *a, const char *b)
{
    const struct sp_mcp_digest x = digest_of("exec_command", a);
    const struct sp_mcp_digest y = digest_of("exec_command", b);

    return memcmp(&x, &y, sizeof x) == 0;
}

#define assert_same(a, b)                       \
    do {                                        \
        if (!is_same_call((a), (b)))            \
            fail_msg("%s is not %s", (a), (b)); \
    } while (0)
#define assert_other(a, b)                       \
    do {                                         \
        if (is_same_call((a), (b)))              \
            fail_msg("%s is also %s", (a), (b)); \
    } while (0)

static void test_one_call_has_one_digest(void **state)
{
    (void)state;
    assert_same("{\"cmd\":\"ls\",\"tty\":true}", " { \"tty\" : true,\n\"cmd\":\"ls\"\t} ");
    assert_same("{\"a\":{\"x\":1,\"y\":[1,2]},\"b\":null}",
                "{\"b\":null,\"a\":{\"y\":[1,2],\"x\":1}}");
    assert_same("{\"cmd\":\"l\\u0073 \\/\"}", "{\"c\\u006dd\":\"ls /\"}");
    assert_same("{\"c\":\"\\ud83d\\ude00\"}", "{\"c\":\"\xf0\x9f\x98\x80\"}");
    assert_same("", "{}");
    assert_same("{\"n\":1}", "{\"n\":1.0}");
    assert_same("{\"n\":1000}", "{\"n\":1e3}");
    assert_same("{\"n\":1000}", "{\"n\":1.000E+03}");
    assert_same("{\"n\":0.001}", "{\"n\":1e-3}");
    assert_same("{\"n\":-0.0}", "{\"n\":0}");
    assert_same("{\"n\":0e99999999999999999999}", "{\"n\":0}");
    assert_same("{\"n\":18446744073709551615}", "{\"n\":1844674407370955161.5e1}");
    assert_same("{\"n\":1e99999999999999999999}", "{ \"n\": 1e99999999999999999999 }");
}

static void test_another_call_has_another_digest(void **state)
{
    (void)state;
    assert_other("{\"cmd\":\"ls\"}", "{\"cmd\":\"ls \"}");
    assert_other("{\"cmd\":\"ls\"}", "{\"Cmd\":\"ls\"}");
    assert_other("{\"n\":1}", "{\"n\":\"1\"}");
    assert_other("{\"n\":1}", "{\"n\":-1}");
    assert_other("{\"n\":1}", "{\"n\":10}");
    assert_other("{\"n\":1}", "{\"n\":1.0000000000000000000000000000001}");
    assert_other("{\"n\":18446744073709551615}", "{\"n\":18446744073709551614}");
    assert_other("{\"n\":9007199254740993}", "{\"n\":9007199254740992.0}");
    assert_other("{\"n\":1e99999999999999999999}", "{\"n\":1e99999999999999999998}");
    assert_other("{\"n\":1e-5}", "{\"n\":1e5}");
    assert_other("{\"n\":true}", "{\"n\":false}");
    assert_other("{\"n\":null}", "{\"n\":false}");
    assert_other("{\"n\":null}", "{}");
    assert_other("{\"n\":[]}", "{\"n\":{}}");
    assert_other("{\"n\":[1,2]}", "{\"n\":[2,1]}");
    assert_other("{\"n\":[[1],2]}", "{\"n\":[[1,2]]}");
    assert_other("{\"a\":\"b\",\"c\":\"d\"}", "{\"a\":\"d\",\"c\":\"b\"}");
    assert_other("{\"a\":\"1:s\"}", "{\"a\":\"1\",\"s\":\"\"}");
    assert_other("{\"a\":\"\"}", "{\"\":\"a\"}");
    assert_other("{\"a\":{\"b\":1},\"c\":2}", "{\"a\":{\"b\":1,\"c\":2}}");
    const struct sp_mcp_digest x = digest_of("exec_command", "{}");
    const struct sp_mcp_digest y = digest_of("write_stdin", "{}");
    assert_memory_not_equal(&x, &y, sizeof x);
}

/* A value, written in one way or another. */
struct writer {
    uint64_t seed;  /* of what is written: the same for both */
    uint64_t style; /* of how */
    int change;     /* which scalar is another one; below 0: none any more */
    struct sp_buf out;
};

static void blank(struct writer *w)
{
    static const char *const blanks[] = {"", "", " ", "\n", "\t "};

    assert_true(sp_buf_add_str(&w->out, sp_str_of(blanks[test_random(&w->style) % 5])));
}

static void write_text(struct writer *w, uint32_t number)
{
    char plain[16];

    (void)snprintf(plain, sizeof plain, "k%u", number);
    assert_true(sp_buf_add(&w->out, "\"", 1));
    for (const char *p = plain; *p != 0; p++)
        assert_true(test_random(&w->style) % 2 == 0 ? sp_buf_add(&w->out, p, 1)
                                                    : sp_buf_printf(&w->out, "\\u%04x", *p));
    assert_true(sp_buf_add(&w->out, "\"", 1));
}

static void write_scalar(struct writer *w)
{
    uint32_t value = test_random(&w->seed) % 1000;
    const uint32_t kind = test_random(&w->seed) % 3;

    if (w->change-- == 0)
        value += 1000;
    if (kind == 0)
        write_text(w, value);
    else if (test_random(&w->style) % 2 == 0)
        assert_true(sp_buf_printf(&w->out, "%s%u", kind == 1 ? "-" : "", value + 1));
    else
        assert_true(sp_buf_printf(&w->out, "%s%u.00e-2", kind == 1 ? "-" : "", (value + 1) * 100));
}

static void write_value(struct writer *w, unsigned depth);

/* Its members from any one on, and round. */
static void write_object(struct writer *w, unsigned depth)
{
    const uint32_t count = 1 + test_random(&w->seed) % 4;
    const uint32_t from = test_random(&w->style) % count;
    const uint64_t seed = w->seed;
    const int change = w->change;
    struct writer parts[4];

    for (uint32_t i = 0; i < count; i++) { /* each in a buffer of its own */
        parts[i] = (struct writer){.seed = seed + i * 7919, .style = w->style + i, .change = -1};
        if (change >= 0 && i == (uint32_t)change % count)
            parts[i].change = change / (int)count;
        write_text(&parts[i], i);
        blank(&parts[i]);
        assert_true(sp_buf_add(&parts[i].out, ":", 1));
        write_value(&parts[i], depth + 1);
    }
    assert_true(sp_buf_add(&w->out, "{", 1));
    for (uint32_t i = 0; i < count; i++) {
        struct sp_buf *part = &parts[(from + i) % count].out;

        blank(w);
        assert_true((i == 0 || sp_buf_add(&w->out, ",", 1)) &&
                    sp_buf_add(&w->out, part->data, part->len));
        sp_buf_done(part);
    }
    assert_true(sp_buf_add(&w->out, "}", 1));
    w->seed = seed + 104729;
}

static void write_value(struct writer *w, unsigned depth)
{
    const uint32_t kind = test_random(&w->seed) % 4;

    blank(w);
    if (depth == 0 || (depth < 4 && kind == 0)) {
        write_object(w, depth);
    } else if (depth < 4 && kind == 1) {
        assert_true(sp_buf_add(&w->out, "[", 1));
        write_scalar(w);
        assert_true(sp_buf_add(&w->out, ",", 1));
        write_scalar(w);
        assert_true(sp_buf_add(&w->out, "]", 1));
    } else {
        write_scalar(w);
    }
    blank(w);
}

static void write_all(struct writer *w, uint64_t seed, uint64_t style, int change)
{
    *w = (struct writer){.seed = seed, .style = style, .change = change};
    write_value(w, 0);
    assert_true(sp_buf_add(&w->out, "", 1));
}

static void test_any_spelling_is_the_same_and_any_change_another(void **state)
{
    unsigned changed = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct writer a;
        struct writer b;
        struct writer c;

        write_all(&a, seed, seed * 3, -1);
        write_all(&b, seed, seed * 5 + 1, -1);
        write_all(&c, seed, seed * 3, (int)(seed % 3));
        assert_same(a.out.data, b.out.data);
        if (strcmp(a.out.data, c.out.data) != 0) { /* not every one has so many values */
            assert_other(a.out.data, c.out.data);
            changed++;
        }
        sp_buf_done(&a.out);
        sp_buf_done(&b.out);
        sp_buf_done(&c.out);
    }
    assert_true(changed > 250);
}

static void test_what_is_no_json_has_no_digest(void **state)
{
    struct sp_mcp_digest d;
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(parse_and_digest(SP_STR("t"), SP_STR("{"), &d, &e), -SP_E_MALFORMED);
    assert_int_equal(parse_and_digest(SP_STR("t"), SP_STR("{\"a\":1,\"a\":2}"), &d, &e),
                     -SP_E_MALFORMED);
}

/* ---- memory ---- */

static void test_without_memory_there_is_no_digest(void **state)
{
    static const char text[] = "{\"a\":[1,{\"b\":2.5,\"c\":\"x\"}],\"d\":null}";
    const struct sp_mcp_digest want = digest_of("t", text);
    bool has_ended = true;

    (void)state;
    for (long n = 1; has_ended; n++) {
        struct sp_mcp_digest d;
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = parse_and_digest(SP_STR("t"), sp_str_of(text), &d, &e);
        has_ended = did_memory_end();
        assert_int_equal(r, has_ended ? -SP_E_SYSTEM : 0);
        if (r == 0)
            assert_memory_equal(&d, &want, sizeof d);
    }
}

int main(void)
{
    const struct CMUnitTest tests_of_this[] = {
        cmocka_unit_test(test_one_call_has_one_digest),
        cmocka_unit_test(test_another_call_has_another_digest),
        cmocka_unit_test(test_any_spelling_is_the_same_and_any_change_another),
        cmocka_unit_test(test_what_is_no_json_has_no_digest),
        cmocka_unit_test(test_without_memory_there_is_no_digest),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests_of_this, NULL, NULL);
}
