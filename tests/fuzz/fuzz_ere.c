/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is an expression up to the first LF, and a text behind it. What is refused says why;
 * what is taken finds the same in the text however that is cut into pieces, and again after a
 * reset. Both are then an output that is searched and read on in small steps to its end.
 */
#include "base/auto.h"
#include "base/ere.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "mcp/output.h"

static bool search(struct sp_ere *x, struct sp_str text, size_t piece)
{
    sp_ere_reset(x);
    while (text.n > 0) {
        const size_t n = text.n < piece ? text.n : piece;
        char *exact = fuzz_copy(text.p, n);
        const bool is_match = sp_ere_feed(x, (struct sp_str){exact, n});

        free(exact);
        if (is_match)
            return sp_ere_feed(x, text) && sp_ere_finish(x);
        text = (struct sp_str){text.p + n, text.n - n};
    }
    return sp_ere_finish(x);
}

static void check_search(struct sp_ere *x, struct sp_str text)
{
    const bool is_match = search(x, text, SIZE_MAX);

    for (size_t piece = 1; piece < 4; piece++)
        CHECK(search(x, text, piece) == is_match);
    CHECK(search(x, text, SIZE_MAX) == is_match);
}

static void check_read(const struct sp_manager_view *v, struct sp_mcp_output_request ask)
{
    struct sp_mcp_output o = {0};
    struct sp_err e = {0};

    ask.has_from_byte = true;
    do {
        CHECK(sp_mcp_output_read(v, &ask, &o, &e) == 0);
        CHECK(sp_utf8_is_valid((struct sp_str){o.text.data, o.text.len}));
        CHECK(o.next_byte > ask.from_byte || o.next_byte == v->total);
        ask.from_byte = o.next_byte;
        sp_mcp_output_done(&o);
    } while (ask.from_byte < v->total);
}

/* The text twice, with a gap between or not. */
static void check_output(struct sp_str expression, struct sp_str text, uint64_t omitted)
{
    const struct sp_manager_view v = {
        .has_exited = true,
        .head = text,
        .omitted = omitted,
        .tail = {text},
        .total = 2 * text.n + omitted,
    };

    for (int is_plain = 0; is_plain < 2; is_plain++) {
        check_read(&v, (struct sp_mcp_output_request){.limit = 5, .is_plain = is_plain != 0});
        check_read(&v, (struct sp_mcp_output_request){.limit = 30,
                                                      .is_plain = is_plain != 0,
                                                      .has_grep = true,
                                                      .grep = expression,
                                                      .context = 1});
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size == 0 ? NULL : memchr(data, '\n', size);
    const size_t n = end == NULL ? size : (size_t)(end - data);
    const size_t from = end == NULL ? size : n + 1;
    auto_free char *exact = fuzz_copy(data, n);
    auto_free char *text = fuzz_copy(data + from, size - from);
    struct sp_ere *x = NULL;
    struct sp_err e = {0};

    const int failed = sp_ere_new((struct sp_str){exact, n}, &x, &e);
    if (failed < 0) {
        CHECK(failed == -SP_E_INVALID && e.msg[0] != 0 && x == NULL);
        CHECK(sp_utf8_is_valid(sp_str_of(e.msg)));
        return 0;
    }
    /* The slowest of them are for the clock of the search, not for this. */
    const struct sp_str all = {text, size - from < 2048 ? size - from : 2048};
    check_search(x, all);
    sp_ere_free(x);
    check_output((struct sp_str){exact, n}, all, 0);
    check_output((struct sp_str){exact, n}, all, 1000);
    return 0;
}
