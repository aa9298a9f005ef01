/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a client's file operations may begin: large files. */
#include "files_front_fixture.h"

/* The end that has been asked for this, and has not answered. */
static struct end *find_asked(uint32_t length)
{
    for (int i = 0; i < end_count; i++)
        if (has_been_asked(&ends[i]) && ends[i].asked.length == length)
            return &ends[i];
    return NULL;
}

static void refuse_as_too_large(const struct end *end)
{
    struct sp_file_wire_answer m = fine(end);

    m.refusal = SP_FILE_TOO_LARGE;
    m.value = end->asked.length;
    say(end, &m, sizeof m, NULL, 0);
}

static void answer_empty(const struct end *end)
{
    const struct sp_file_wire_answer m = fine(end);

    say(end, &m, sizeof m, NULL, 0);
}

static bool has_one_large(const void *nothing)
{
    (void)nothing;
    return client.waiting == 1;
}

/* A client has room for one of the largest files, or for eight that are not so large. */
static void test_a_large_file_is_read_alone(void **state)
{
    static struct call large;
    static struct call small[2];
    static struct call later;
    static struct call other;
    const struct sp_files_job job = a_job(SP_FILE_READ, "f");
    const struct sp_files_job look = a_job(SP_FILE_STAT, "f");
    struct end *asked[3];

    (void)state;
    asks(&large, &job);
    asks(&small[0], &job);
    asks(&small[1], &job);
    assert_int_equal(client.reading, 3 * SP_FILES_SMALL_READ);
    for (int i = 0; i < 3; i++) {
        until(has_been_asked, &ends[i]);
        assert_int_equal(ends[i].asked.length, SP_FILES_SMALL_READ);
        asked[i] = &ends[i];
    }
    refuse_as_too_large(asked[0]);
    until(has_one_large, NULL);
    assert_false(large.is_done);
    assert_int_equal(client.reading, 2 * SP_FILES_SMALL_READ);
    asks(&later, &job); /* behind the large one, or that would never have its turn */
    asks(&other, &look);
    assert_int_equal(client.waiting, 2);
    until(has_been_asked, asked[0]); /* the one at rest */
    assert_int_equal(asked[0]->asked.op, SP_FILE_STAT);
    answer_empty(asked[0]);
    awaits(&other);
    answer_empty(asked[1]);
    awaits(&small[0]);
    assert_null(find_asked(SP_FILE_MAX_READ));
    answer_empty(asked[2]);
    awaits(&small[1]);
    struct end *alone = find_asked(SP_FILE_MAX_READ);
    assert_non_null(alone);
    assert_int_equal(client.reading, SP_FILE_MAX_READ);
    let_pass(20);
    assert_int_equal(client.waiting, 1);
    refuse_as_too_large(alone); /* too large for anybody */
    awaits(&large);
    assert_int_equal(large.answer.refusal, SP_FILE_TOO_LARGE);
    struct end *last = find_asked(SP_FILES_SMALL_READ);
    assert_non_null(last);
    answer_empty(last);
    awaits(&later);
    assert_int_equal(client.reading, 0);
}

static void test_a_large_file_that_waits_is_dropped(void **state)
{
    static struct call first;
    static struct call large;
    const struct sp_files_job job = a_job(SP_FILE_READ, "f");

    (void)state;
    asks(&first, &job);
    asks(&large, &job);
    until(has_been_asked, &ends[0]);
    until(has_been_asked, &ends[1]);
    refuse_as_too_large(&ends[1]);
    until(has_one_large, NULL);
    sp_files_drop(&large.call);
    assert_int_equal(client.waiting, 0);
    answer_empty(&ends[0]);
    awaits(&first);
    assert_int_equal(client.reading, 0);
    assert_false(large.is_done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        front_test(test_a_large_file_is_read_alone),
        front_test(test_a_large_file_that_waits_is_dropped),
    };

    return files_main(tests, sizeof tests / sizeof tests[0]);
}
