/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output_fixture: outputs to read from, and what is read.
 */
#ifndef SP_OUTPUT_FIXTURE_H
#define SP_OUTPUT_FIXTURE_H

#include "base/utf8.h"
#include "mcp/output.h"
#include "test.h"

#define auto_output __attribute__((cleanup(sp_mcp_output_done)))

/* The output of one that has ended, or not. What is behind the gap is in two parts, as in a ring.
 */
static inline struct sp_manager_view view(struct sp_str head, uint64_t omitted, struct sp_str tail)
{
    const size_t half = tail.n / 2;

    return (struct sp_manager_view){
        .has_exited = true,
        .head = head,
        .omitted = omitted,
        .tail = {{tail.p, half}, {tail.p + half, tail.n - half}},
        .total = head.n + omitted + tail.n,
    };
}

static inline struct sp_manager_view whole(const char *text)
{
    return view(sp_str_of(text), 0, SP_STR(""));
}

static inline struct sp_manager_view live(const char *text)
{
    struct sp_manager_view v = whole(text);

    v.has_exited = false;
    return v;
}

static inline struct sp_mcp_output read_it(struct sp_manager_view v,
                                           struct sp_mcp_output_request ask)
{
    struct sp_mcp_output o = {0};
    struct sp_err e = {0};

    if (sp_mcp_output_read(&v, &ask, &o, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(sp_utf8_is_valid((struct sp_str){o.text.data, o.text.len}));
    assert_int_equal(o.end_byte, v.total);
    assert_true(o.from_byte <= o.next_byte && o.next_byte <= o.end_byte);
    return o;
}

static inline void says(const struct sp_mcp_output *o, const char *want)
{
    auto_buf struct sp_buf text = {0};

    assert_true(sp_buf_add(&text, o->text.data, o->text.len) && sp_buf_add(&text, "", 1));
    assert_string_equal(text.data, want);
}

static inline void gives(struct sp_manager_view v, struct sp_mcp_output_request ask,
                         const char *text, uint64_t from, uint64_t next)
{
    auto_output struct sp_mcp_output o = read_it(v, ask);

    says(&o, text);
    assert_int_equal(o.from_byte, from);
    assert_int_equal(o.next_byte, next);
}

static inline void refuses(struct sp_manager_view v, struct sp_mcp_output_request ask,
                           const char *why)
{
    struct sp_mcp_output o = {.matches = 7};
    struct sp_err e = {0};

    assert_int_equal(sp_mcp_output_read(&v, &ask, &o, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_int_equal(o.matches, 7);
    assert_null(o.text.data);
}

#define FROM(n)    .has_from_byte = true, .from_byte = (n)
#define LINE(n)    .has_line = true, .line = (n)
#define GREP(x)    .has_grep = true, .grep = SP_STR(x)
#define ASK(...)   ((struct sp_mcp_output_request){__VA_ARGS__})
#define LIMITED(n) .limit = (n)

#endif
