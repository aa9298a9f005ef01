/* SPDX-License-Identifier: Apache-2.0 */
#include "core/http_worker.h"
#include "test.h"

static struct sp_web_message head(enum sp_web_op op, uint32_t len, uint64_t value)
{
    return (struct sp_web_message){
        .version = SP_WEB_VERSION, .op = (uint16_t)op, .len = len, .number = 7, .value = value};
}

static struct sp_web_order order(void)
{
    return (struct sp_web_order){
        .head = head(SP_WEB_ASK, sizeof(struct sp_web_order) - sizeof(struct sp_web_message), 0),
        .timeout_ms = 5,
        .method_len = 3,
        .url_len = 9};
}

static bool is_order(struct sp_web_order o)
{
    return sp_web_check(&o, sizeof o, false, true);
}

/* With `len` bytes behind the head, as the head says. */
static bool is_worker_message(enum sp_web_op op, uint32_t len, uint64_t value)
{
    struct sp_web_message *m = calloc(1, sizeof *m + len);

    assert_non_null(m);
    *m = head(op, len, value);
    const bool ok = sp_web_check(m, sizeof *m + len, true, false);
    assert_false(sp_web_check(m, sizeof *m + len, true, true)); /* nothing comes with it */
    free(m);
    return ok;
}

static void test_orders(void **state)
{
    struct sp_web_order o = order();

    (void)state;
    assert_true(is_order(o));
    assert_false(sp_web_check(&o, sizeof o, false, false));
    assert_false(sp_web_check(&o, sizeof o, true, true));
    assert_false(sp_web_check(&o, sizeof o - 1, false, true));
    assert_false(sp_web_check(&o, sizeof o.head, false, true));
    o.head.value = SP_WEB_FOLLOWS;
    assert_true(is_order(o));
    o.head.value = 2;
    assert_false(is_order(o));
#define REFUSED(field, worst)      \
    do {                           \
        o = order();               \
        o.field = (worst);         \
        assert_false(is_order(o)); \
    } while (0)
    REFUSED(head.version, SP_WEB_VERSION + 1);
    REFUSED(head.op, 0);
    REFUSED(head.op, SP_WEB_OP_MAX);
    REFUSED(head.len, 0);
    REFUSED(method_len, 0);
    REFUSED(method_len, SP_WEB_MAX_METHOD + 1);
    REFUSED(url_len, 0);
    REFUSED(url_len, SP_WEB_MAX_URL + 1);
    REFUSED(fields_len, SP_WEB_MAX_FIELDS + 1);
    REFUSED(body_len, SP_WEB_MAX_SENT + 1);
#undef REFUSED
}

static void test_what_else_the_front_says(void **state)
{
    struct sp_web_message m = head(SP_WEB_TAKE, 0, 1);

    (void)state;
    assert_true(sp_web_check(&m, sizeof m, false, false));
    assert_false(sp_web_check(&m, sizeof m, false, true));
    assert_false(sp_web_check(&m, sizeof m, true, false));
    m.value = 0;
    assert_false(sp_web_check(&m, sizeof m, false, false));
    m.value = SP_WEB_WINDOW + 1;
    assert_false(sp_web_check(&m, sizeof m, false, false));
    m = head(SP_WEB_DROP, 0, 0);
    assert_true(sp_web_check(&m, sizeof m, false, false));
    m = head(SP_WEB_BODY, 0, 0);
    assert_false(sp_web_check(&m, sizeof m, false, false));
}

static void test_what_the_worker_says(void **state)
{
    (void)state;
    assert_true(is_worker_message(SP_WEB_FIELDS, 1, 0));
    assert_true(is_worker_message(SP_WEB_BODY, SP_WEB_PIECE, 0));
    assert_false(is_worker_message(SP_WEB_BODY, SP_WEB_PIECE + 1, 0));
    assert_false(is_worker_message(SP_WEB_BODY, 0, 0));
    assert_true(is_worker_message(SP_WEB_HEAD, 0, 100));
    assert_true(is_worker_message(SP_WEB_HEAD, 0, 999));
    assert_false(is_worker_message(SP_WEB_HEAD, 0, 99));
    assert_false(is_worker_message(SP_WEB_HEAD, 0, 1000));
    assert_false(is_worker_message(SP_WEB_HEAD, 1, 200));
    assert_true(is_worker_message(SP_WEB_DONE, 0, 0));
    assert_true(is_worker_message(SP_WEB_DONE, 5, 1));
    assert_false(is_worker_message(SP_WEB_DONE, 5, 0));
    assert_false(is_worker_message(SP_WEB_DONE, 0, 1));
    assert_false(is_worker_message(SP_WEB_DONE, 5, 2));
    assert_false(is_worker_message(SP_WEB_DONE, SP_WEB_MAX_WHY + 1, 1));
    assert_true(is_worker_message(SP_WEB_UNABLE, SP_WEB_MAX_WHY, 0));
    assert_false(is_worker_message(SP_WEB_UNABLE, 0, 0));
    assert_false(is_worker_message(SP_WEB_ASK, 0, 0));
    assert_false(is_worker_message(SP_WEB_OP_MAX, 0, 0));
}

static void test_fields_in_order(void **state)
{
    auto_buf struct sp_buf b = {0};
    struct sp_web_field f;

    (void)state;
    assert_true(sp_web_field_add(&b, SP_STR("x-a"), SP_STR("1")));
    assert_true(sp_web_field_add(&b, SP_STR("x-b"), SP_STR("")));
    assert_true(sp_web_field_add(&b, SP_STR("x-a"), SP_STR("2 3")));
    char *exact = test_copy((struct sp_str){b.data, b.len});
    struct sp_str rest = {exact, b.len};
    assert_true(sp_web_fields_are_whole(rest));
    assert_true(sp_web_field_next(&rest, &f));
    assert_bytes(f.name.p, f.name.n, "x-a");
    assert_bytes(f.value.p, f.value.n, "1");
    assert_true(sp_web_field_next(&rest, &f));
    assert_bytes(f.value.p, f.value.n, "");
    assert_true(sp_web_field_next(&rest, &f));
    assert_bytes(f.name.p, f.name.n, "x-a");
    assert_bytes(f.value.p, f.value.n, "2 3");
    assert_false(sp_web_field_next(&rest, &f));
    free(exact);
    for (size_t n = 1; n < b.len; n++) { /* cut anywhere, it is whole only between two fields */
        char *cut = test_copy((struct sp_str){b.data, n});

        assert_int_equal(sp_web_fields_are_whole((struct sp_str){cut, n}), n == 12 || n == 23);
        free(cut);
    }
    assert_true(sp_web_fields_are_whole(SP_STR("")));
}

static void test_a_private_field_stays_one(void **state)
{
    const struct sp_web_field given = {SP_STR("x-key"), SP_STR("secret"), true};
    auto_buf struct sp_buf b = {0};
    struct sp_web_field f;

    (void)state;
    assert_true(sp_web_field_put(&b, &given));
    assert_true(sp_web_field_add(&b, SP_STR("x-a"), SP_STR("1")));
    struct sp_str rest = {b.data, b.len};
    assert_true(sp_web_fields_are_whole(rest));
    assert_true(sp_web_field_next(&rest, &f));
    assert_bytes(f.name.p, f.name.n, "x-key");
    assert_bytes(f.value.p, f.value.n, "secret");
    assert_true(f.is_private);
    assert_true(sp_web_field_next(&rest, &f));
    assert_bytes(f.name.p, f.name.n, "x-a");
    assert_false(f.is_private);
}

static void test_fields_that_are_none(void **state)
{
    static const struct {
        struct sp_str name, value;
    } bad[] = {{SP_STR(""), SP_STR("x")},     {SP_STR("a b"), SP_STR("x")},
               {SP_STR("a:"), SP_STR("x")},   {SP_STR("a"), SP_STR("x\r\ny: z")},
               {SP_STR("a"), SP_STR("x\0y")}, {SP_STR("a\n"), SP_STR("")}};
    static const uint32_t lies[] = {UINT32_MAX, UINT32_MAX};
    auto_buf struct sp_buf small = {.max = 10};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        auto_buf struct sp_buf b = {0};

        assert_true(sp_web_field_add(&b, bad[i].name, bad[i].value));
        assert_false(sp_web_fields_are_whole((struct sp_str){b.data, b.len}));
    }
    assert_false(sp_web_fields_are_whole((struct sp_str){(const char *)lies, sizeof lies}));
    assert_false(sp_web_field_add(&small, SP_STR("abc"), SP_STR("def")));
    assert_int_equal(small.len, 0);
}

static void test_words(void **state)
{
    (void)state;
    assert_true(sp_web_is_token(SP_STR("GET")));
    assert_true(sp_web_is_token(SP_STR("!#$%&'*+-.^_`|~09azAZ")));
    assert_false(sp_web_is_token(SP_STR("")));
    for (int c = 0; c < 256; c++) {
        const char text[1] = {(char)c};
        const struct sp_str s = {text, 1};
        const bool is_control = (c < 0x20 && c != '\t') || c == 0x7f;

        assert_int_equal(sp_web_is_value(s), !is_control);
        if (c <= ' ' || c >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", c) != NULL)
            assert_false(sp_web_is_token(s));
        else
            assert_true(sp_web_is_token(s));
    }
}

#ifdef SP_HAVE_CURL
/* A response may have values in other encodings: they are left out. */
static void test_values_of_a_response(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        const char line[] = {'x', ':', '<', (char)c, '>'};
        struct sp_web_task t = {0};

        assert_true(sp_web_response_line(&t, (struct sp_str){line, sizeof line}));
        assert_int_equal(t.head.len > 0, (c >= 0x20 || c == '\t') && c < 0x7f);
        sp_buf_done(&t.head);
    }
}
#endif

static const struct CMUnitTest tests[] = {
#ifdef SP_HAVE_CURL
    cmocka_unit_test(test_values_of_a_response),
#endif
    cmocka_unit_test(test_orders),
    cmocka_unit_test(test_what_else_the_front_says),
    cmocka_unit_test(test_what_the_worker_says),
    cmocka_unit_test(test_fields_in_order),
    cmocka_unit_test(test_a_private_field_stays_one),
    cmocka_unit_test(test_fields_that_are_none),
    cmocka_unit_test(test_words),
};

TEST_MAIN(tests)
