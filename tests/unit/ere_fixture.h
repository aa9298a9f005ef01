/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ere_fixture: an expression, and when it matches.
 */
#ifndef SP_ERE_FIXTURE_H
#define SP_ERE_FIXTURE_H

#include "base/ere.h"
#include "test.h"

static inline void free_ere(struct sp_ere **x)
{
    sp_ere_free(*x);
}

#define auto_ere __attribute__((cleanup(free_ere)))

static inline struct sp_ere *expression(struct sp_str text)
{
    struct sp_ere *x = NULL;
    struct sp_err e = {0};
    char *exact = test_copy(text);

    if (sp_ere_new((struct sp_str){exact, text.n}, &x, &e) < 0)
        fail_msg(SP_STR_FMT ": %s", SP_STR_ARG(text), e.msg);
    free(exact); /* it keeps nothing of it */
    return x;
}

enum when { NEVER, AT_END, AT_ONCE };

static inline enum when search(struct sp_ere *x, struct sp_str text)
{
    char *exact = test_copy(text);

    sp_ere_reset(x);
    const bool is_there = sp_ere_feed(x, (struct sp_str){exact, text.n});
    const bool is_in_the_end = sp_ere_finish(x);
    assert_int_equal(sp_ere_finish(x), is_in_the_end);
    free(exact);
    assert_true(is_in_the_end || !is_there);
    return is_there ? AT_ONCE : is_in_the_end ? AT_END : NEVER;
}

#endif
