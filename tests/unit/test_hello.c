/* SPDX-License-Identifier: Apache-2.0 */
/* The server name of a TLS client, in any records and any pieces. */
#include "base/auto.h"
#include "base/buf.h"
#include "proxy/hello.h"
#include "test.h"

/* ---- making hellos ---- */

static void add(struct sp_buf *b, struct sp_str s)
{
    assert_true(sp_buf_add_str(b, s));
}

static void add_number(struct sp_buf *b, size_t n, unsigned width)
{
    while (width-- != 0)
        assert_true(sp_buf_add(b, &(uint8_t){(uint8_t)(n >> 8 * width)}, 1));
}

static void add_extension(struct sp_buf *b, unsigned type, struct sp_str bytes)
{
    add_number(b, type, 2);
    add_number(b, bytes.n, 2);
    add(b, bytes);
}

static void add_name_entry(struct sp_buf *list, unsigned type, struct sp_str name)
{
    add_number(list, type, 1);
    add_number(list, name.n, 2);
    add(list, name);
}

static void add_name(struct sp_buf *b, struct sp_str name)
{
    auto_buf struct sp_buf list = {0};

    add_number(&list, name.n + 3, 2);
    add_name_entry(&list, 0, name);
    add_extension(b, 0, sp_buf_str(&list));
}

/* A handshake message around these extensions, without a record. */
static void make_hello(struct sp_buf *ret, struct sp_str extensions)
{
    auto_buf struct sp_buf body = {0};

    add_number(&body, 0x0303, 2);
    for (unsigned i = 0; i < 32; i++)
        add_number(&body, i, 1);
    add(&body, SP_STR("\4sess"));
    add(&body, SP_STR("\0\4\x13\1\x13\2"));
    add(&body, SP_STR("\1\0"));
    add_number(&body, extensions.n, 2);
    add(&body, extensions);
    add_number(ret, 1, 1);
    add_number(ret, body.len, 3);
    add(ret, sp_buf_str(&body));
}

static void make_records(struct sp_buf *ret, struct sp_str message, size_t each)
{
    while (message.n != 0) {
        const size_t n = each < message.n ? each : message.n;

        add(ret, SP_STR("\x16\3\1"));
        add_number(ret, n, 2);
        add(ret, (struct sp_str){message.p, n});
        message = (struct sp_str){message.p + n, message.n - n};
    }
}

/* ---- reading ---- */

static enum sp_hello read_part(struct sp_str bytes, char name[256], size_t *ret_len)
{
    auto_free char *copy = test_copy(bytes);

    return sp_hello_read((struct sp_str){copy, bytes.n}, name, ret_len);
}

/* The same in one piece and byte by byte. */
static enum sp_hello read_hello(struct sp_str bytes, char name[256])
{
    enum sp_hello part = SP_HELLO_PARTIAL;
    char part_name[256] = "";
    size_t part_len = 0;
    size_t len = 0;

    name[0] = 0;
    const enum sp_hello whole = read_part(bytes, name, &len);
    assert_int_equal(len, strlen(name));
    for (size_t n = 0; n <= bytes.n && part == SP_HELLO_PARTIAL; n++)
        part = read_part((struct sp_str){bytes.p, n}, part_name, &part_len);
    assert_int_equal(part, whole);
    assert_string_equal(part_name, name);
    return whole;
}

/* One record; then two at each place; then one for each byte. */
static void has_result(struct sp_str message, enum sp_hello want, const char *want_name)
{
    char name[256];

    for (size_t each = 1; each <= message.n; each++) {
        auto_buf struct sp_buf bytes = {0};

        make_records(&bytes, message, each);
        assert_int_equal(read_hello(sp_buf_str(&bytes), name), want);
        if (want == SP_HELLO_NAMED)
            assert_string_equal(name, want_name);
    }
}

static void extensions_give(struct sp_str extensions, enum sp_hello want, const char *want_name)
{
    auto_buf struct sp_buf message = {0};

    make_hello(&message, extensions);
    has_result(sp_buf_str(&message), want, want_name);
}

static void test_the_name_is_found(void **state)
{
    auto_buf struct sp_buf extensions = {0};

    (void)state;
    add_extension(&extensions, 0x0a0a, SP_STR(""));
    add_extension(&extensions, 43, SP_STR("\2\3\4"));
    add_name(&extensions, SP_STR("A.example"));
    add_extension(&extensions, 21, SP_STR("\0\0\0\0\0"));
    extensions_give(sp_buf_str(&extensions), SP_HELLO_NAMED, "A.example");
}

static void test_a_hello_without_name(void **state)
{
    auto_buf struct sp_buf extensions = {0};
    auto_buf struct sp_buf message = {0};

    (void)state;
    extensions_give(SP_STR(""), SP_HELLO_NO_NAME, NULL);
    add_extension(&extensions, 43, SP_STR("\2\3\4"));
    extensions_give(sp_buf_str(&extensions), SP_HELLO_NO_NAME, NULL);
    make_hello(&message, SP_STR("")); /* as old clients: no list of extensions at all */
    message.len -= 2;
    message.data[3] = (char)(message.data[3] - 2);
    has_result(sp_buf_str(&message), SP_HELLO_NO_NAME, NULL);
}

static void test_bytes_of_the_next_message_do_not_matter(void **state)
{
    auto_buf struct sp_buf extensions = {0};
    auto_buf struct sp_buf message = {0};
    auto_buf struct sp_buf bytes = {0};
    char name[256];

    (void)state;
    add_name(&extensions, SP_STR("a.example"));
    make_hello(&message, sp_buf_str(&extensions));
    make_records(&bytes, sp_buf_str(&message), 1000);
    add(&bytes, SP_STR("\x14\3\3\0\1\1\x17 anything"));
    assert_int_equal(read_hello(sp_buf_str(&bytes), name), SP_HELLO_NAMED);
    assert_string_equal(name, "a.example");
}

static void test_other_protocols_are_told_apart(void **state)
{
    char name[256];

    (void)state;
    assert_int_equal(read_hello(SP_STR("SSH-2.0-x\r\n"), name), SP_HELLO_OTHER);
    assert_int_equal(read_hello(SP_STR("\x16\2"), name), SP_HELLO_OTHER);
    assert_int_equal(read_hello(SP_STR("\x15\2"), name), SP_HELLO_OTHER);
    assert_int_equal(read_hello(SP_STR("\x15\3\3\0\2\1\x5a\x16\3\1"), name), SP_HELLO_BROKEN);
    assert_int_equal(read_hello(SP_STR("\x14\3\3\0\1\1"), name), SP_HELLO_BROKEN);
    assert_int_equal(read_hello(SP_STR("\x80\x2e\1"), name), SP_HELLO_OTHER);
    assert_int_equal(read_hello(SP_STR("\0"), name), SP_HELLO_OTHER);
    assert_int_equal(read_hello(SP_STR(""), name), SP_HELLO_PARTIAL);
    assert_int_equal(read_hello(SP_STR("\x16"), name), SP_HELLO_PARTIAL);
    assert_int_equal(read_hello(SP_STR("\x16\3\1\1\0\1"), name), SP_HELLO_PARTIAL);
}

static void test_broken_records(void **state)
{
    char name[256];

    (void)state;
    assert_int_equal(read_hello(SP_STR("\x16\3\1\0\0"), name), SP_HELLO_BROKEN);
    assert_int_equal(read_hello(SP_STR("\x16\3\1\x40\1"), name), SP_HELLO_BROKEN);
    assert_int_equal(read_hello(SP_STR("\x16\3\1\0\1\2"), name), SP_HELLO_BROKEN);
    assert_int_equal(read_hello(SP_STR("\x16\3\1\0\1\1\x17\3\1"), name), SP_HELLO_BROKEN);
    assert_int_equal(read_hello(SP_STR("\x16\3\1\0\1\1\x16\2\1"), name), SP_HELLO_BROKEN);
    assert_int_equal(read_hello(SP_STR("\x16\3\1\0\1\1SSH"), name), SP_HELLO_BROKEN);
    assert_int_equal(read_hello(SP_STR("\x16\3\1\0\4\1\0\0\0"), name), SP_HELLO_BROKEN);
}

static void test_names_that_can_be_read_in_two_ways(void **state)
{
    auto_buf struct sp_buf twice = {0};
    auto_buf struct sp_buf list = {0};
    auto_buf struct sp_buf two = {0};
    auto_buf struct sp_buf nul = {0};
    auto_buf struct sp_buf empty = {0};
    auto_buf struct sp_buf other = {0};

    (void)state;
    add_name(&twice, SP_STR("a.example"));
    add_name(&twice, SP_STR("a.example"));
    extensions_give(sp_buf_str(&twice), SP_HELLO_BROKEN, NULL);

    add_number(&list, 8, 2);
    add_name_entry(&list, 0, SP_STR("a"));
    add_name_entry(&list, 0, SP_STR("b"));
    add_extension(&two, 0, sp_buf_str(&list));
    extensions_give(sp_buf_str(&two), SP_HELLO_BROKEN, NULL);

    list.len = 0;
    add_number(&list, 4, 2);
    add_name_entry(&list, 1, SP_STR("a"));
    add_extension(&other, 0, sp_buf_str(&list));
    extensions_give(sp_buf_str(&other), SP_HELLO_BROKEN, NULL);

    add_name(&nul, SP_STR("a.example\0.b.example"));
    extensions_give(sp_buf_str(&nul), SP_HELLO_BROKEN, NULL);
    add_name(&empty, SP_STR(""));
    extensions_give(sp_buf_str(&empty), SP_HELLO_BROKEN, NULL);
    extensions_give(SP_STR("\0\0\0\0"), SP_HELLO_BROKEN, NULL);
    extensions_give(SP_STR("\0\0\0\2\0\0"), SP_HELLO_BROKEN, NULL);
    extensions_give(SP_STR("\0\0\0\5\0\4\0\0\1"), SP_HELLO_BROKEN, NULL);
    extensions_give(SP_STR("\0\0\0\7\0\4\0\0\1a-"), SP_HELLO_BROKEN, NULL);
    extensions_give(SP_STR("\0\x2b\0\4\2\3\4"), SP_HELLO_BROKEN, NULL);
    extensions_give(SP_STR("\0\x2b\0"), SP_HELLO_BROKEN, NULL);
}

static void name_of_length_gives(size_t n, enum sp_hello want)
{
    auto_buf struct sp_buf extensions = {0};
    auto_buf struct sp_buf message = {0};
    auto_buf struct sp_buf bytes = {0};
    char text[300];
    char name[256];

    memset(text, 'x', sizeof text);
    add_name(&extensions, (struct sp_str){text, n});
    make_hello(&message, sp_buf_str(&extensions));
    make_records(&bytes, sp_buf_str(&message), 1000);
    assert_int_equal(read_hello(sp_buf_str(&bytes), name), want);
    if (want == SP_HELLO_NAMED)
        assert_int_equal(strlen(name), n);
}

static void test_names_have_at_most_255_bytes(void **state)
{
    (void)state;
    name_of_length_gives(255, SP_HELLO_NAMED);
    name_of_length_gives(256, SP_HELLO_BROKEN);
}

/* Each byte of the message cut off, with the lengths around it made right. */
static void test_truncated_messages_are_broken(void **state)
{
    auto_buf struct sp_buf extensions = {0};
    auto_buf struct sp_buf message = {0};
    const size_t before_extensions = 4 + 2 + 32 + 5 + 6 + 2;

    (void)state;
    add_name(&extensions, SP_STR("a.example"));
    make_hello(&message, sp_buf_str(&extensions));
    for (size_t n = 4; n < message.len; n++) {
        auto_buf struct sp_buf bytes = {0};
        auto_buf struct sp_buf part = {0};
        char name[256];

        add_number(&part, 1, 1);
        add_number(&part, n - 4, 3);
        add(&part, (struct sp_str){message.data + 4, n - 4});
        make_records(&bytes, sp_buf_str(&part), 1000);
        assert_int_equal(read_hello(sp_buf_str(&bytes), name),
                         n == before_extensions ? SP_HELLO_NO_NAME : SP_HELLO_BROKEN);
    }
}

/* Of `total` bytes with its records, and a name in the last extension. */
static void make_large(struct sp_buf *ret, size_t total, size_t each)
{
    static const char zeros[20000];
    const size_t overhead = 4 + 49 + 4 + 18; /* heads of message and padding, fields, the name */
    auto_buf struct sp_buf extensions = {0};
    auto_buf struct sp_buf message = {0};
    const size_t records = (total + each + 4) / (each + 5);

    add_extension(&extensions, 21, (struct sp_str){zeros, total - 5 * records - overhead});
    add_name(&extensions, SP_STR("a.example"));
    make_hello(&message, sp_buf_str(&extensions));
    make_records(ret, sp_buf_str(&message), each);
    assert_int_equal(ret->len, total);
}

static void test_the_length_is_bounded(void **state)
{
    static const size_t each[] = {16384, 4000};
    char name[256];
    size_t len = 0;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        auto_buf struct sp_buf fits = {0};
        auto_buf struct sp_buf longer = {0};
        auto_buf struct sp_buf longest = {0};

        make_large(&fits, SP_HELLO_MAX, each[i]);
        assert_int_equal(read_part(sp_buf_str(&fits), name, &len), SP_HELLO_NAMED);
        assert_string_equal(name, "a.example");
        fits.len--;
        assert_int_equal(read_part(sp_buf_str(&fits), name, &len), SP_HELLO_PARTIAL);
        make_large(&longer, SP_HELLO_MAX + 1, each[i]);
        assert_int_equal(read_part(sp_buf_str(&longer), name, &len), SP_HELLO_TOO_LONG);
        make_large(&longest, 17 << 10, each[i]);
        assert_int_equal(read_part(sp_buf_str(&longest), name, &len), SP_HELLO_TOO_LONG);
        longest.len = 9; /* its head is enough to tell */
        assert_int_equal(read_part(sp_buf_str(&longest), name, &len), SP_HELLO_TOO_LONG);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_name_is_found),
    cmocka_unit_test(test_a_hello_without_name),
    cmocka_unit_test(test_bytes_of_the_next_message_do_not_matter),
    cmocka_unit_test(test_other_protocols_are_told_apart),
    cmocka_unit_test(test_broken_records),
    cmocka_unit_test(test_names_that_can_be_read_in_two_ways),
    cmocka_unit_test(test_names_have_at_most_255_bytes),
    cmocka_unit_test(test_truncated_messages_are_broken),
    cmocka_unit_test(test_the_length_is_bounded),
};

TEST_MAIN(tests)
