/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <time.h>

#include "base/json.h"
#include "test.h"

#ifdef SP_HAVE_JANSSON
#include <jansson.h>
#endif

/* One parsed text: an exact copy on the heap, so that a read past its end is seen. */
struct doc {
    struct sp_json j;
    char *text;
    struct sp_err e;
    int r;
};

static struct doc parse_n(struct sp_str text)
{
    struct doc d = {.text = test_copy(text)};

    d.r = sp_json_parse(&d.j, d.text, text.n, &d.e);
    return d;
}

static void done(struct doc *d)
{
    sp_json_done(&d->j);
    free(d->text);
}

static struct doc parse(const char *text)
{
    struct doc d = parse_n(sp_str_of(text));

    if (d.r < 0)
        fail_msg("%s: %s", text, d.e.msg);
    return d;
}

static void accepted_n(struct sp_str text)
{
    struct doc d = parse_n(text);

    if (d.r < 0)
        fail_msg("%.*s: %s", (int)text.n, text.p, d.e.msg);
    assert_int_equal(d.j.tokens[0].next, d.j.count);
    done(&d);
}

static void accepted(const char *text)
{
    accepted_n(sp_str_of(text));
}

static void refused_n(struct sp_str text, const char *why)
{
    struct doc d = parse_n(text);

    assert_int_equal(d.r, -SP_E_MALFORMED);
    assert_string_equal(d.e.msg, why);
    assert_int_equal(d.j.count, 0);
    done(&d);
}

static void refused(const char *text, const char *why)
{
    refused_n(sp_str_of(text), why);
}

static void test_the_tape_says_what_the_text_says(void **state)
{
    struct doc d =
        parse(" {\"a\" : [1, \"two\" ,null], \"b\":{}, \"c\":true,\"d\":[] ,\"e\":-1.5e3}\r\n");
    struct sp_json *j = &d.j;
    static const struct sp_json_token want[] = {
        {SP_JSON_OBJECT, false, 1, 57, 5, 14}, {SP_JSON_STRING, false, 3, 1, 0, 2},
        {SP_JSON_ARRAY, false, 8, 16, 3, 6},   {SP_JSON_INT, false, 9, 1, 0, 4},
        {SP_JSON_STRING, false, 13, 3, 0, 5},  {SP_JSON_NULL, false, 19, 4, 0, 6},
        {SP_JSON_STRING, false, 27, 1, 0, 7},  {SP_JSON_OBJECT, false, 30, 2, 0, 8},
        {SP_JSON_STRING, false, 35, 1, 0, 9},  {SP_JSON_TRUE, false, 38, 4, 0, 10},
        {SP_JSON_STRING, false, 44, 1, 0, 11}, {SP_JSON_ARRAY, false, 47, 2, 0, 12},
        {SP_JSON_STRING, false, 52, 1, 0, 13}, {SP_JSON_REAL, false, 55, 6, 0, 14},
    };

    (void)state;
    assert_int_equal(j->count, sizeof want / sizeof want[0]);
    for (uint32_t i = 0; i < j->count; i++) {
        const struct sp_json_token *t = &j->tokens[i];

        assert_int_equal(t->type, want[i].type);
        assert_int_equal(t->is_escaped, want[i].is_escaped);
        assert_int_equal(t->off, want[i].off);
        if (i != 0)
            assert_int_equal(t->len, want[i].len);
        assert_int_equal(t->children, want[i].children);
        assert_int_equal(t->next, want[i].next);
    }
    assert_int_equal(d.text[j->tokens[0].off + j->tokens[0].len - 1], '}');

    /* Members: the child is the key, its value is the token after it. */
    char keys[6] = "";
    for (uint32_t k = sp_json_first(j, 0); k != SP_JSON_NONE; k = sp_json_next(j, 0, k))
        strncat(keys, sp_json_str(j, k).p, 1);
    assert_string_equal(keys, "abcde");
    const uint32_t a = sp_json_get(j, 0, "a");
    assert_int_equal(a, 2);
    assert_int_equal(sp_json_first(j, a), 3);
    assert_int_equal(sp_json_next(j, a, 3), 4);
    assert_int_equal(sp_json_next(j, a, 4), 5);
    assert_int_equal(sp_json_next(j, a, 5), SP_JSON_NONE);
    assert_int_equal(sp_json_first(j, sp_json_get(j, 0, "b")), SP_JSON_NONE);
    assert_int_equal(sp_json_first(j, sp_json_get(j, 0, "d")), SP_JSON_NONE);
    assert_int_equal(sp_json_get(j, 0, "z"), SP_JSON_NONE);
    assert_int_equal(sp_json_get(j, a, "a"), SP_JSON_NONE);            /* not an object */
    assert_int_equal(sp_json_get(j, SP_JSON_NONE, "a"), SP_JSON_NONE); /* not there */
    done(&d);
}

static void test_one_value_of_any_kind_is_a_text(void **state)
{
    static const char *const text[] = {"null", "true", "false",          "0", "-0", "\"\"",
                                       "[]",   "{}",   " \t\r\n1 \t\r\n"};

    (void)state;
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++)
        accepted(text[i]);
}

static void test_one_tape_serves_message_after_message(void **state)
{
    struct sp_json j = {0};
    struct sp_err e;
    char first[] = "[1,2,3]";
    char second[] = "{\"x\":1}";
    char bad[] = "[";

    (void)state;
    assert_int_equal(sp_json_parse(&j, first, 7, &e), 0);
    const struct sp_json_token *tape = j.tokens;
    assert_int_equal(sp_json_parse(&j, bad, 1, &e), -SP_E_MALFORMED);
    assert_int_equal(sp_json_get(&j, 0, "x"), SP_JSON_NONE);
    assert_int_equal(sp_json_parse(&j, second, 7, &e), 0);
    assert_ptr_equal(j.tokens, tape);
    assert_int_equal(j.count, 3);
    sp_json_trim(&j);
    assert_ptr_equal(j.tokens, tape); /* small: kept */
    assert_int_equal(j.count, 3);
    sp_json_done(&j);
    sp_json_done(&j);
}

static void test_a_large_tape_is_given_back(void **state)
{
    char text[20001];
    struct sp_json j = {0};
    struct sp_err e;

    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i == 0 ? '[' : i == sizeof text - 1 ? ']' : i % 2 != 0 ? '1' : ',';
    assert_int_equal(sp_json_parse(&j, text, sizeof text, &e), 0);
    assert_int_equal(j.tokens[0].children, 10000);
    sp_json_trim(&j);
    assert_null(j.tokens);
    assert_int_equal(j.cap, 0);
    assert_int_equal(sp_json_parse(&j, text, sizeof text, &e), 0);
    sp_json_done(&j);
}

static void test_every_fault_has_its_text_and_its_place(void **state)
{
    (void)state;
    refused("", "EOF while parsing a value at line 1 column 0");
    refused("  ", "EOF while parsing a value at line 1 column 2");
    refused("\n\n ", "EOF while parsing a value at line 3 column 1");
    refused("garbage", "expected value at line 1 column 1");
    refused("\n  garbage", "expected value at line 2 column 3");
    refused("not json", "expected ident at line 1 column 2");
    refused("nul", "EOF while parsing a value at line 1 column 3");
    refused("[tru]", "expected ident at line 1 column 5");
    refused("True", "expected value at line 1 column 1");
    refused("{\"id\":1,\"method\":\"environment/status\"",
            "EOF while parsing an object at line 1 column 37");
    refused("{", "EOF while parsing an object at line 1 column 1");
    refused("{\"a\"", "EOF while parsing an object at line 1 column 4");
    refused("{\"a\":", "EOF while parsing a value at line 1 column 5");
    refused("{\"a\":1,", "EOF while parsing an object at line 1 column 7");
    refused("[", "EOF while parsing a list at line 1 column 1");
    refused("[1", "EOF while parsing a list at line 1 column 2");
    refused("[1,", "EOF while parsing a value at line 1 column 3");
    refused("[1 2]", "expected `,` or `]` at line 1 column 4");
    refused("{\"a\":1 \"b\"}", "expected `,` or `}` at line 1 column 8");
    refused("{\"a\":1]", "expected `,` or `}` at line 1 column 7");
    refused("[1}", "expected `,` or `]` at line 1 column 3");
    refused("{\"a\" 1}", "expected `:` at line 1 column 6");
    refused("{a:1}", "key must be a string at line 1 column 2");
    refused("{1:1}", "key must be a string at line 1 column 2");
    refused("{\"a\":1,b:1}", "key must be a string at line 1 column 8");
    refused("[1,]", "trailing comma at line 1 column 4");
    refused("{\"a\":1, }", "trailing comma at line 1 column 9");
    refused("[,1]", "expected value at line 1 column 2");
    refused("]", "expected value at line 1 column 1");
    refused("{} x", "trailing characters at line 1 column 4");
    refused("{}{}", "trailing characters at line 1 column 3");
    refused("1 2", "trailing characters at line 1 column 3");
    refused("{}\n\n]", "trailing characters at line 3 column 1");
    refused_n(SP_STR("{}\0"), "trailing characters at line 1 column 3");
    refused("\xEF\xBB\xBF{}", "expected value at line 1 column 1"); /* a byte order mark */
    refused("[1/*x*/]", "expected `,` or `]` at line 1 column 3");
    refused("['a']", "expected value at line 1 column 2");
    refused("[NaN]", "expected value at line 1 column 2");
    refused("[Infinity]", "expected value at line 1 column 2");
    refused("[\f1]", "expected value at line 1 column 2");
    refused("[\xC2\xA0"
            "1]",
            "expected value at line 1 column 2");
}

static void test_strings_are_strict(void **state)
{
    (void)state;
    refused("\"", "EOF while parsing a string at line 1 column 1");
    refused("\"abc", "EOF while parsing a string at line 1 column 4");
    refused("\"abc\\", "EOF while parsing a string at line 1 column 5");
    refused("\"\\u12", "EOF while parsing a string at line 1 column 5");
    refused("\"\\ud83d", "EOF while parsing a string at line 1 column 7");
    refused("\"\\ud83d\\u12", "EOF while parsing a string at line 1 column 11");
    refused("\"a\\x\"", "invalid escape at line 1 column 4");
    refused("\"a\\'\"", "invalid escape at line 1 column 4");
    refused("\"\\u12g4\"", "invalid escape at line 1 column 6");
    refused("\"\\u+123\"", "invalid escape at line 1 column 4");
    refused("\"\\u 123\"", "invalid escape at line 1 column 4");
    refused("\"\\U0041\"", "invalid escape at line 1 column 3");
    refused_n(SP_STR("\"\\\0\""), "invalid escape at line 1 column 3");
    refused("\"a\nb\"",
            "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 3");
    refused("[\n\"a\tb\"]",
            "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 3");
    refused_n(
        SP_STR("\"\0\""),
        "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 2");
    accepted("\"\x7F\"");
}

static void test_lone_surrogates_are_refused(void **state)
{
    (void)state;
    refused("\"\\ud83d\"", "lone leading surrogate in hex escape at line 1 column 8");
    refused("\"\\ud83dx\"", "lone leading surrogate in hex escape at line 1 column 8");
    refused("\"\\ud83d\\n\"", "lone leading surrogate in hex escape at line 1 column 8");
    refused("\"\\ud83d\\ud83d\"", "lone leading surrogate in hex escape at line 1 column 13");
    refused("\"\\uDBFF\\u0041\"", "lone leading surrogate in hex escape at line 1 column 13");
    refused("\"\\udc00\"", "lone trailing surrogate in hex escape at line 1 column 7");
    refused("\"\\uDFFF\\uD800\"", "lone trailing surrogate in hex escape at line 1 column 7");
    refused("{\"\\ud800\":1}", "lone leading surrogate in hex escape at line 1 column 9");
    accepted("\"\\ud800\\udc00\\uDBFF\\uDFFF\\ud7ff\\ue000\"");
}

static void test_control_characters_are_found_at_every_place(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++)
        for (size_t at = 1; at < 50; at++) {
            char text[52];
            struct doc d;

            memset(text, 'x', sizeof text);
            text[0] = text[51] = '"';
            text[at] = (char)c;
            d = parse_n((struct sp_str){text, sizeof text});
            if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\')
                assert_int_equal(d.r, 0);
            else
                assert_int_equal(d.r, -SP_E_MALFORMED);
            done(&d);
        }
}

static void test_invalid_utf8_is_refused_wherever_it_is(void **state)
{
    static const struct sp_str bad[] = {
        SP_STR("\xFF"),     SP_STR("\xC0\x80"),         SP_STR("\xED\xA0\x80"),
        SP_STR("\xE2\x82"), SP_STR("\xF4\x90\x80\x80"), SP_STR("\x80")};
    static const char *const frame[] = {
        "\"@\"",      "{\"@\":1}",
        "[1,\"a@\"]", "{\"a\":\"\\n@\"}",
        "[@]",        "@",
        "1@",         "{@}",
        "{\"a\"@:1}", "\"0123456789abcdef@0123456789abcdef0123456789\""};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (size_t k = 0; k < sizeof frame / sizeof frame[0]; k++) {
            char text[100];
            const size_t at = strcspn(frame[k], "@");
            const size_t rest = strlen(frame[k]) - at - 1;

            memcpy(text, frame[k], at);
            memcpy(text + at, bad[i].p, bad[i].n);
            memcpy(text + at + bad[i].n, frame[k] + at + 1, rest);
            struct doc d = parse_n((struct sp_str){text, at + bad[i].n + rest});
            assert_int_equal(d.r, -SP_E_MALFORMED);
            done(&d);
        }
    refused("[\"a\xC3\xA9\xFF\"]", "invalid unicode code point at line 1 column 6");
    /* A character torn by an escape is not one. */
    refused("\"\xC3\\u0041\xA9\"", "invalid unicode code point at line 1 column 2");
    accepted("{\"\xC3\xA9\":\"\xE2\x82\xAC \xF0\x9F\x98\x80\"}");
}

static enum sp_json_type type_of(const char *text)
{
    struct doc d = parse(text);
    const enum sp_json_type type = sp_json_type(&d.j, 0);

    done(&d);
    return type;
}

static void i64_is(const char *text, int64_t want)
{
    struct doc d = parse(text);
    int64_t v = 0;

    assert_true(sp_json_i64(&d.j, 0, &v));
    assert_true(v == want);
    done(&d);
}

static void test_numbers_are_exact_to_the_last_one(void **state)
{
    (void)state;
    i64_is("0", 0);
    i64_is("-0", 0);
    i64_is("-1", -1);
    i64_is("1234567890123456789", 1234567890123456789);
    i64_is("9223372036854775807", INT64_MAX);
    i64_is("-9223372036854775808", INT64_MIN);
    assert_int_equal(type_of("9223372036854775808"), SP_JSON_UINT);
    assert_int_equal(type_of("18446744073709551615"), SP_JSON_UINT);
    assert_int_equal(type_of("18446744073709551616"), SP_JSON_REAL);
    assert_int_equal(type_of("-9223372036854775809"), SP_JSON_REAL);
    assert_int_equal(type_of("99999999999999999999"), SP_JSON_REAL);
    assert_int_equal(type_of("123456789012345678901234567890"), SP_JSON_REAL);
    assert_int_equal(type_of("1.0"), SP_JSON_REAL);
    assert_int_equal(type_of("1e3"), SP_JSON_REAL);
    assert_int_equal(type_of("1E+3"), SP_JSON_REAL);
    assert_int_equal(type_of("-0.0e-0"), SP_JSON_REAL);
    assert_int_equal(type_of("1e999999"), SP_JSON_REAL);
}

static void test_what_is_not_a_number_is_not_one(void **state)
{
    struct doc d = parse("[1.0,9223372036854775808,\"1\",true]");
    int64_t v = 5;

    (void)state;
    for (uint32_t t = sp_json_first(&d.j, 0); t != SP_JSON_NONE; t = sp_json_next(&d.j, 0, t))
        assert_false(sp_json_i64(&d.j, t, &v));
    assert_int_equal(v, 5);
    done(&d);
    refused("-", "EOF while parsing a value at line 1 column 1");
    refused("-x", "invalid number at line 1 column 2");
    refused("01", "invalid number at line 1 column 2");
    refused("-01", "invalid number at line 1 column 3");
    refused("00", "invalid number at line 1 column 2");
    refused("1.", "EOF while parsing a value at line 1 column 2");
    refused("[1.]", "invalid number at line 1 column 4");
    refused("1.e3", "invalid number at line 1 column 3");
    refused("1e", "EOF while parsing a value at line 1 column 2");
    refused("1e+", "EOF while parsing a value at line 1 column 3");
    refused("[1e+]", "invalid number at line 1 column 5");
    refused(".5", "expected value at line 1 column 1");
    refused("+1", "expected value at line 1 column 1");
    refused("0x10", "trailing characters at line 1 column 2");
    refused("1a", "trailing characters at line 1 column 2");
}

static void test_containers_nest_127_deep_and_no_deeper(void **state)
{
    char text[1024];

    (void)state;
    for (int depth = 126; depth <= 129; depth++) {
        const size_t n = (size_t)depth;

        memset(text, '[', n);
        memset(text + n, ']', n);
        if (depth <= 127)
            accepted_n((struct sp_str){text, 2 * n});
        else
            refused_n((struct sp_str){text, 2 * n},
                      "recursion limit exceeded at line 1 column 128");

        for (size_t i = 0; i < n - 1; i++)
            memcpy(text + 5 * i, "{\"a\":", 5);
        memcpy(text + 5 * (n - 1), "{}", 2);
        memset(text + 5 * (n - 1) + 2, '}', n - 1);
        struct doc d = parse_n((struct sp_str){text, 6 * (n - 1) + 2});
        assert_int_equal(d.r, depth <= 127 ? 0 : -SP_E_MALFORMED);
        done(&d);
    }
    /* Side by side is not deep. */
    text[0] = '[';
    for (size_t i = 0; i < 200; i++)
        memcpy(text + 1 + 3 * i, i < 199 ? "{}," : "[]]", 3);
    accepted_n((struct sp_str){text, 601});
}

static void test_262144_values_are_the_most(void **state)
{
    const size_t room = 3 * (size_t)SP_JSON_MAX_VALUES;
    char *text = malloc(room);

    (void)state;
    assert_non_null(text);
    for (size_t values = SP_JSON_MAX_VALUES - 1; values <= SP_JSON_MAX_VALUES + 1; values++) {
        size_t n = 0;

        text[n++] = '[';
        for (size_t i = 1; i < values; i++) { /* the array is one itself */
            text[n++] = '1';
            text[n++] = i + 1 < values ? ',' : ']';
        }
        struct doc d = parse_n((struct sp_str){text, n});
        if (values <= SP_JSON_MAX_VALUES) {
            assert_int_equal(d.r, 0);
            assert_int_equal(d.j.tokens[0].children, values - 1);
        } else {
            assert_int_equal(d.r, -SP_E_MALFORMED);
            assert_string_equal(d.e.msg, "more than 262144 JSON values at line 1 column 524288");
        }
        done(&d);
    }
    free(text);
}

/* {"k0":1,"k1":1,...}; every `escaped`th key has its first letter spelled as an escape. */
static char *many_keys(size_t keys, size_t escaped, const char *last, size_t *ret_len)
{
    char *text = malloc(keys * 24 + 64);
    size_t n = 0;

    assert_non_null(text);
    text[n++] = '{';
    for (size_t i = 0; i < keys; i++)
        n += (size_t)sprintf(text + n, "%s\"%s%zu\":1", i != 0 ? "," : "",
                             escaped != 0 && i % escaped == 0 ? "\\u006b" : "k", i);
    n += (size_t)sprintf(text + n, "%s}", last);
    *ret_len = n;
    return text;
}

static void many(size_t keys, size_t escaped, const char *last, bool is_duplicate)
{
    size_t n = 0;
    char *text = many_keys(keys, escaped, last, &n);
    struct doc d = parse_n((struct sp_str){text, n});

    assert_int_equal(d.r, is_duplicate ? -SP_E_MALFORMED : 0);
    if (is_duplicate)
        assert_non_null(strstr(d.e.msg, "duplicate JSON object key `k"));
    else
        assert_int_equal(d.j.tokens[0].children, keys);
    done(&d);
    free(text);
}

static void test_duplicate_keys_are_refused_at_any_size(void **state)
{
    (void)state;
    for (size_t keys = 1; keys < 70; keys++) {
        char last[40];

        many(keys, 0, "", false);
        many(keys, 3, "", false);
        many(keys, 0, ",\"k0\":2", true);
        many(keys, 1, ",\"k0\":2", true);
        many(keys, 0, ",\"\\u006b0\":2", true);
        (void)snprintf(last, sizeof last, ",\"k%zu\":2", keys - 1);
        many(keys, 0, last, true);
        many(keys, 2, last, true);
    }
}

static void test_duplicates_are_told_by_name_and_place(void **state)
{
    (void)state;
    refused("{\"id\":1,\"id\":2,\"method\":\"environment/status\"}",
            "duplicate JSON object key `id` at line 1 column 12");
    refused("{\"a\":{\"b\":[{\"c\":1,\n\"c\":2}]}}",
            "duplicate JSON object key `c` at line 2 column 3");
    refused("{\"\":1,\"\":2}", "duplicate JSON object key `` at line 1 column 8");
    refused("{\"a\":1,\"\\u0061\":2}", "duplicate JSON object key `a` at line 1 column 15");
    refused("{\"\\u0061\":1,\"a\":2}", "duplicate JSON object key `a` at line 1 column 15");
    refused("{\"\\/\":1,\"/\":2}", "duplicate JSON object key `/` at line 1 column 11");
    refused("{\"\\n\\u0000\":1,\"\\u000a\\u0000\":2}",
            "duplicate JSON object key `\\u000a\\u0000` at line 1 column 28");
    refused("{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":2}",
            "duplicate JSON object key `\xF0\x9F\x98\x80` at line 1 column 24");
    refused("{\"a\":1,\"a\":{}}", "duplicate JSON object key `a` at line 1 column 10");
    accepted("{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":2}]}");
    accepted("{\"a\":1,\"A\":2,\"a \":3,\"\\\\u0061\":4,\"\":5,\"\\u0000\":6}");
}

static void test_a_long_key_does_not_crowd_out_its_place(void **state)
{
    char text[1300];
    struct sp_str s;

    (void)state;
    for (size_t shift = 0; shift < 3; shift++) {
        char key[500] = "xx";
        size_t n = shift;

        for (; n + 3 < sizeof key; n += 3)
            memcpy(key + n, "\xE2\x82\xAC", 4);
        s = (struct sp_str){text,
                            (size_t)snprintf(text, sizeof text, "{\"%s\":1,\"%s\":2}", key, key)};
        struct doc d = parse_n(s);
        assert_int_equal(d.r, -SP_E_MALFORMED);
        assert_non_null(strstr(d.e.msg, "\xE2\x82\xAC…` at line 1 column "));
        done(&d);
    }
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Quadratic would be twenty thousand million comparisons: minutes. The bound is far from both. */
static void test_200000_keys_take_linear_time(void **state)
{
    const double start = seconds();

    (void)state;
    many(200000, 0, "", false);
    many(200000, 2, "", false);
    many(200000, 0, ",\"k199999\":2", true);
    many(200000, 1, ",\"k7\":2", true);
    assert_true(seconds() - start < 20);
}

static void test_strings_are_unescaped_in_place_when_asked_for(void **state)
{
    struct doc d =
        parse("[\"plain\",\"\",\"\\\"\\\\\\/"
              "\\b\\f\\n\\r\\t\",\"a\\u0000b\",\"\\u00e9\\u20AC\\ud83d\\ude00\","
              "\"x\\u0041y\\u0042z\",\"\\u007f\\u0080\\u07ff\\u0800\\uffff\\udbff\\udfff\"]");
    static const struct sp_str want[] = {
        SP_STR("plain"),
        SP_STR(""),
        SP_STR("\"\\/\b\f\n\r\t"),
        SP_STR("a\0b"),
        SP_STR("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"),
        SP_STR("xAyBz"),
        SP_STR("\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF\xF4\x8F\xBF\xBF"),
    };
    size_t i = 0;

    (void)state;
    for (uint32_t t = sp_json_first(&d.j, 0); t != SP_JSON_NONE; t = sp_json_next(&d.j, 0, t), i++)
        for (int again = 0; again < 2; again++) { /* the second time it is as it is */
            const struct sp_str s = sp_json_str(&d.j, t);

            assert_int_equal(s.n, want[i].n);
            assert_memory_equal(s.p, want[i].p, s.n);
        }
    assert_int_equal(i, sizeof want / sizeof want[0]);
    done(&d);
}

static void test_a_backslash_made_by_an_escape_is_not_an_escape(void **state)
{
    struct doc d = parse("{\"a\\\\n\":\"\\\\u0041\\\\\"}");

    (void)state;
    assert_int_equal(sp_json_get(&d.j, 0, "a\\n"), 2);
    assert_bytes(sp_json_str(&d.j, 1).p, sp_json_str(&d.j, 1).n, "a\\n");
    assert_bytes(sp_json_str(&d.j, 2).p, sp_json_str(&d.j, 2).n, "\\u0041\\");
    assert_int_equal(sp_json_get(&d.j, 0, "a\\n"), 2);
    done(&d);
}

static void test_looking_up_a_key_leaves_the_raw_text_alone(void **state)
{
    static const char text[] = "{\"\\u0061\":{\"\\u0062\":\"\\n\"},\"c\":[1 , 2]}";
    struct doc d = parse(text);

    (void)state;
    const uint32_t a = sp_json_get(&d.j, 0, "a");
    assert_int_equal(a, 2);
    assert_int_equal(sp_json_get(&d.j, 0, "ab"), SP_JSON_NONE);
    assert_int_equal(sp_json_get(&d.j, 0, ""), SP_JSON_NONE);
    const uint32_t b = sp_json_get(&d.j, a, "b");
    assert_bytes(sp_json_raw(&d.j, a).p, sp_json_raw(&d.j, a).n, "{\"\\u0062\":\"\\n\"}");
    assert_bytes(sp_json_raw(&d.j, b).p, sp_json_raw(&d.j, b).n, "\"\\n\"");
    const struct sp_str raw = sp_json_raw(&d.j, sp_json_get(&d.j, 0, "c"));
    assert_bytes(raw.p, raw.n, "[1 , 2]");
    assert_bytes(sp_json_raw(&d.j, 0).p, sp_json_raw(&d.j, 0).n,
                 "{\"\\u0061\":{\"\\u0062\":\"\\n\"},\"c\":[1 , 2]}");
    done(&d);
}

static void says(int r, const struct sp_err *e, const char *why)
{
    assert_int_equal(r, -SP_E_INVALID);
    assert_string_equal(e->msg, why);
}

static void test_needed_members_are_there_and_not_null(void **state)
{
    struct doc d =
        parse("{\"s\":\"x\\ty\",\"t\":true,\"f\":false,\"n\":null,\"i\":7,\"o\":{},\"a\":[]}");
    struct sp_json *j = &d.j;
    struct sp_err e;
    struct sp_str s = SP_STR("kept");
    bool b = false;
    uint64_t u = 99;
    uint32_t t = SP_JSON_NONE;

    (void)state;
    assert_int_equal(sp_json_need_str(j, 0, "s", &s, &e), 0);
    assert_bytes(s.p, s.n, "x\ty");
    assert_int_equal(sp_json_need_bool(j, 0, "t", &b, &e), 0);
    assert_true(b);
    assert_int_equal(sp_json_need_bool(j, 0, "f", &b, &e), 0);
    assert_false(b);
    assert_int_equal(sp_json_need_u64(j, 0, "i", 7, &u, &e), 0);
    assert_int_equal(u, 7);
    assert_int_equal(sp_json_need_object(j, 0, "o", &t, &e), 0);
    assert_int_equal(sp_json_type(j, t), SP_JSON_OBJECT);
    assert_int_equal(sp_json_need_array(j, 0, "a", &t, &e), 0);
    assert_int_equal(sp_json_type(j, t), SP_JSON_ARRAY);

    s = SP_STR("kept");
    t = 12345;
    says(sp_json_need_str(j, 0, "zz", &s, &e), &e, "missing field `zz`");
    says(sp_json_need_bool(j, 0, "zz", &b, &e), &e, "missing field `zz`");
    says(sp_json_need_u64(j, 0, "zz", 7, &u, &e), &e, "missing field `zz`");
    says(sp_json_need_object(j, 0, "zz", &t, &e), &e, "missing field `zz`");
    says(sp_json_need_array(j, 0, "zz", &t, &e), &e, "missing field `zz`");
    says(sp_json_need_str(j, 0, "n", &s, &e), &e, "invalid type: null, expected a string");
    says(sp_json_need_bool(j, 0, "n", &b, &e), &e, "invalid type: null, expected a boolean");
    says(sp_json_need_u64(j, 0, "n", 7, &u, &e), &e, "invalid type: null, expected u64");
    says(sp_json_need_object(j, 0, "n", &t, &e), &e, "invalid type: null, expected a map");
    says(sp_json_need_array(j, 0, "n", &t, &e), &e, "invalid type: null, expected a sequence");
    says(sp_json_need_str(j, SP_JSON_NONE, "s", &s, &e), &e, "missing field `s`");
    assert_bytes(s.p, s.n, "kept");
    assert_int_equal(t, 12345);
    done(&d);
}

static void test_optional_members_may_be_absent_or_null(void **state)
{
    struct doc d = parse("{\"s\":\"x\",\"n\":null,\"i\":7,\"o\":{},\"a\":[],\"t\":true}");
    struct sp_json *j = &d.j;
    struct sp_err e;
    struct sp_str s = SP_STR("kept");
    bool b = true;
    uint64_t u = 99;
    uint32_t t = SP_JSON_NONE;
    static const char *const nothing[] = {"n", "zz"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sp_json_opt_str(j, 0, nothing[i], &s, &e), 0);
        assert_int_equal(sp_json_opt_u64(j, 0, nothing[i], 7, &u, &e), 0);
        assert_int_equal(sp_json_opt_object(j, 0, nothing[i], &t, &e), 0);
        assert_int_equal(sp_json_opt_array(j, 0, nothing[i], &t, &e), 0);
    }
    assert_bytes(s.p, s.n, "kept");
    assert_int_equal(u, 99);
    assert_int_equal(t, SP_JSON_NONE);
    assert_int_equal(sp_json_opt_str(j, 0, "s", &s, &e), 0);
    assert_bytes(s.p, s.n, "x");
    assert_int_equal(sp_json_opt_u64(j, 0, "i", UINT64_MAX, &u, &e), 0);
    assert_int_equal(u, 7);
    assert_int_equal(sp_json_opt_object(j, 0, "o", &t, &e), 0);
    assert_int_equal(sp_json_type(j, t), SP_JSON_OBJECT);
    assert_int_equal(sp_json_opt_array(j, 0, "a", &t, &e), 0);
    assert_int_equal(sp_json_type(j, t), SP_JSON_ARRAY);

    /* A default is for what is absent: null is refused. */
    assert_int_equal(sp_json_def_bool(j, 0, "zz", &b, &e), 0);
    assert_true(b);
    b = false;
    assert_int_equal(sp_json_def_bool(j, 0, "t", &b, &e), 0);
    assert_true(b);
    says(sp_json_def_bool(j, 0, "n", &b, &e), &e, "invalid type: null, expected a boolean");
    done(&d);
}

static void test_a_wrong_type_is_named(void **state)
{
    struct doc d = parse("{\"t\":true,\"f\":false,\"i\":5,\"u\":18446744073709551615,\"r\":1.5,"
                         "\"s\":\"x\\u0000\\n\",\"a\":[1],\"o\":{\"x\":1}}");
    struct sp_json *j = &d.j;
    struct sp_err e;
    struct sp_str s;
    uint64_t u;
    bool b;
    uint32_t t;

    (void)state;
    says(sp_json_need_str(j, 0, "t", &s, &e), &e,
         "invalid type: boolean `true`, expected a string");
    says(sp_json_opt_str(j, 0, "f", &s, &e), &e,
         "invalid type: boolean `false`, expected a string");
    says(sp_json_need_str(j, 0, "i", &s, &e), &e, "invalid type: number, expected a string");
    says(sp_json_need_str(j, 0, "u", &s, &e), &e, "invalid type: number, expected a string");
    says(sp_json_need_str(j, 0, "r", &s, &e), &e, "invalid type: number, expected a string");
    says(sp_json_need_str(j, 0, "a", &s, &e), &e, "invalid type: sequence, expected a string");
    says(sp_json_need_str(j, 0, "o", &s, &e), &e, "invalid type: map, expected a string");
    says(sp_json_need_bool(j, 0, "s", &b, &e), &e,
         "invalid type: string \"x\\u0000\\u000a\", expected a boolean");
    says(sp_json_need_u64(j, 0, "s", 9, &u, &e), &e,
         "invalid type: string \"x\\u0000\\u000a\", expected u64");
    says(sp_json_opt_object(j, 0, "a", &t, &e), &e, "invalid type: sequence, expected a map");
    says(sp_json_opt_array(j, 0, "o", &t, &e), &e, "invalid type: map, expected a sequence");
    says(sp_json_wrong_type(j, 0, "unit", &e), &e, "invalid type: map, expected unit");
    done(&d);
}

static void test_unsigned_numbers_are_plain_and_in_range(void **state)
{
    static const char *const bad[] = {"-1", "1.5", "1.0", "1e3", "-0", "18446744073709551616",
                                      "101"};
    struct sp_err e;
    uint64_t u = 42;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];

        (void)snprintf(text, sizeof text, "{\"v\":%s}", bad[i]);
        struct doc d = parse(text);
        const uint64_t max = strcmp(bad[i], "101") == 0 ? 100 : UINT64_MAX;
        says(sp_json_need_u64(&d.j, 0, "v", max, &u, &e), &e, "invalid number");
        says(sp_json_opt_u64(&d.j, 0, "v", max, &u, &e), &e, "invalid number");
        assert_int_equal(u, 42);
        done(&d);
    }
    struct doc d = parse("{\"v\":18446744073709551615,\"w\":0}");
    assert_int_equal(sp_json_need_u64(&d.j, 0, "v", UINT64_MAX, &u, &e), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(sp_json_need_u64(&d.j, 0, "w", 0, &u, &e), 0);
    assert_int_equal(u, 0);
    done(&d);
}

static void written_as(struct sp_str s, struct sp_str want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_json_add_str(&out, s));
    assert_int_equal(out.len, want.n);
    assert_memory_equal(out.data, want.p, want.n);
    assert_true(out.len <= s.n * 6 + 2);
}

static void test_strings_are_written_compact(void **state)
{
    (void)state;
    written_as(SP_STR(""), SP_STR("\"\""));
    written_as((struct sp_str){NULL, 0}, SP_STR("\"\""));
    written_as(SP_STR("plain /text\x7F"), SP_STR("\"plain /text\x7F\""));
    written_as(SP_STR("\"\\\b\f\n\r\t"), SP_STR("\"\\\"\\\\\\b\\f\\n\\r\\t\""));
    written_as(SP_STR("\0\x01\x1F"), SP_STR("\"\\u0000\\u0001\\u001f\""));
    written_as(SP_STR("\xC3\xA9\xE2\x82\xAC"), SP_STR("\"\xC3\xA9\xE2\x82\xAC\""));
    written_as(SP_STR("a\xFF\"\xE2\x82"), SP_STR("\"a\xEF\xBF\xBD\\\"\xEF\xBF\xBD\""));
    written_as(SP_STR("0123456789abcdef\n0123456789abcdef0123456789abcdef\xC3\xA9"),
               SP_STR("\"0123456789abcdef\\n0123456789abcdef0123456789abcdef\xC3\xA9\""));
}

static void test_no_room_leaves_the_buffer_as_it_was(void **state)
{
    (void)state;
    for (size_t max = 1; max < 30; max++) {
        auto_buf struct sp_buf out = {.max = max};

        assert_true(sp_buf_add(&out, "<", 1));
        if (!sp_json_add_str(&out, SP_STR("a\nb\x01\xFF")))
            assert_bytes(out.data, out.len, "<");
        else
            assert_bytes(out.data, out.len, "<\"a\\nb\\u0001\xEF\xBF\xBD\"");
    }
}

static void test_every_string_written_reads_back(void **state)
{
    uint64_t seed = 4;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        auto_buf struct sp_buf out = {0};
        char bytes[60];
        const size_t n = test_random(&seed) % sizeof bytes;

        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)(test_random(&seed) % 4 == 0 ? test_random(&seed) % 0x30
                                                          : test_random(&seed) % 0x80);
        assert_true(sp_json_add_str(&out, (struct sp_str){bytes, n}));
        struct doc d = parse_n((struct sp_str){out.data, out.len});
        assert_int_equal(d.r, 0);
        const struct sp_str back = sp_json_str(&d.j, 0);
        assert_int_equal(back.n, n);
        assert_memory_equal(back.p, bytes, n);
        done(&d);
    }
}

/* ---- an independent reader ---- */

#ifdef SP_HAVE_JANSSON
static bool agrees(struct sp_json *j, uint32_t t, json_t *want)
{
    int64_t v;

    switch (sp_json_type(j, t)) {
    case SP_JSON_NULL:
        return json_is_null(want);
    case SP_JSON_FALSE:
        return json_is_false(want);
    case SP_JSON_TRUE:
        return json_is_true(want);
    case SP_JSON_INT:
        return json_is_integer(want) && sp_json_i64(j, t, &v) && v == json_integer_value(want);
    case SP_JSON_UINT:
    case SP_JSON_REAL:
        return json_is_real(want);
    case SP_JSON_STRING:
        return json_is_string(want) &&
               sp_str_eq(sp_json_str(j, t),
                         (struct sp_str){json_string_value(want), json_string_length(want)});
    case SP_JSON_ARRAY: {
        size_t i = 0;

        for (uint32_t c = sp_json_first(j, t); c != SP_JSON_NONE; c = sp_json_next(j, t, c))
            if (!agrees(j, c, json_array_get(want, i++)))
                return false;
        return json_is_array(want) && i == json_array_size(want) && i == j->tokens[t].children;
    }
    case SP_JSON_OBJECT: {
        size_t i = 0;
        const char *key;
        json_t *value;
        bool same = json_is_object(want);

        json_object_foreach(want, key, value)
        {
            const uint32_t c = sp_json_get(j, t, key);

            i++;
            same = same && c != SP_JSON_NONE && agrees(j, c, value);
        }
        return same && i == j->tokens[t].children;
    }
    }
    return false;
}
#endif

static void test_another_reader_reads_the_same(void **state)
{
#ifdef SP_HAVE_JANSSON
    static const char alphabet[] =
        "{{}}[[]]\"\"\"\",,,::::  0123-.eEtruefalsn\\\\u00d8dc/bn\xC3\xA9\xFF\n\t";
    static const char *const start[] = {
        "{\"a\":[1,2.5,\"x\\n\",true,null,{\"b\":-3}],\"c\":\"\\ud83d\\ude00\"}",
        "[\"\\u0041\",{\"k\":{\"k\":[]}},0,-1e5]",
        "{\"k1\":1,\"k2\":2,\"k\\u0033\":3}",
    };
    uint64_t seed = 5;
    unsigned read = 0;

    (void)state;
    for (int round = 0; round < 60000; round++) {
        char text[80];
        size_t n = strlen(start[round % 3]);

        memcpy(text, start[round % 3], n);
        for (uint32_t k = test_random(&seed) % 4; k > 0; k--) {
            const size_t at = test_random(&seed) % n;

            if (test_random(&seed) % 3 != 0) {
                text[at] = alphabet[test_random(&seed) % (sizeof alphabet - 1)];
            } else {
                memmove(text + at, text + at + 1, n - at - 1);
                n--;
            }
        }
        struct doc d = parse_n((struct sp_str){text, n});
        json_error_t error;
        json_t *want =
            json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);

        /* It refuses numbers that do not fit and NUL in keys: there we are on our own. */
        const enum json_error_code code =
            want == NULL ? json_error_code(&error) : json_error_unknown;
        if (code != json_error_numeric_overflow && code != json_error_null_byte_in_key) {
            if ((d.r == 0) != (want != NULL) || (d.r == 0 && !agrees(&d.j, 0, want)))
                fail_msg("%.*s: %s", (int)n, text, d.r < 0 ? d.e.msg : error.text);
            read += d.r == 0;
        }
        json_decref(want);
        done(&d);
    }
    assert_true(read > 1000);
#else
    (void)state;
    skip(); /* built without jansson */
#endif
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_tape_says_what_the_text_says),
    cmocka_unit_test(test_one_value_of_any_kind_is_a_text),
    cmocka_unit_test(test_one_tape_serves_message_after_message),
    cmocka_unit_test(test_a_large_tape_is_given_back),
    cmocka_unit_test(test_every_fault_has_its_text_and_its_place),
    cmocka_unit_test(test_strings_are_strict),
    cmocka_unit_test(test_lone_surrogates_are_refused),
    cmocka_unit_test(test_control_characters_are_found_at_every_place),
    cmocka_unit_test(test_invalid_utf8_is_refused_wherever_it_is),
    cmocka_unit_test(test_numbers_are_exact_to_the_last_one),
    cmocka_unit_test(test_what_is_not_a_number_is_not_one),
    cmocka_unit_test(test_containers_nest_127_deep_and_no_deeper),
    cmocka_unit_test(test_262144_values_are_the_most),
    cmocka_unit_test(test_duplicate_keys_are_refused_at_any_size),
    cmocka_unit_test(test_duplicates_are_told_by_name_and_place),
    cmocka_unit_test(test_a_long_key_does_not_crowd_out_its_place),
    cmocka_unit_test(test_200000_keys_take_linear_time),
    cmocka_unit_test(test_strings_are_unescaped_in_place_when_asked_for),
    cmocka_unit_test(test_a_backslash_made_by_an_escape_is_not_an_escape),
    cmocka_unit_test(test_looking_up_a_key_leaves_the_raw_text_alone),
    cmocka_unit_test(test_needed_members_are_there_and_not_null),
    cmocka_unit_test(test_optional_members_may_be_absent_or_null),
    cmocka_unit_test(test_a_wrong_type_is_named),
    cmocka_unit_test(test_unsigned_numbers_are_plain_and_in_range),
    cmocka_unit_test(test_strings_are_written_compact),
    cmocka_unit_test(test_no_room_leaves_the_buffer_as_it_was),
    cmocka_unit_test(test_every_string_written_reads_back),
    cmocka_unit_test(test_another_reader_reads_the_same),
};

TEST_MAIN(tests)
