/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placeholder_fixture: tables of two servers over one tree, and the wish that a placeholder be
 * there.
 */
#ifndef SP_PLACEHOLDER_FIXTURE_H
#define SP_PLACEHOLDER_FIXTURE_H

#include "base/auto.h"
#include "base/log.h"
#include "core/journal.h"
#include "core/placeholder.h"
#include "tree_fixture.h"

static struct sp_placeholders *table, *other;
static struct sp_err error;

/* A table with a journal of its own, as each server has them. */
static struct {
    struct sp_placeholders *table;
    struct sp_journal *journal;
} servers[16];

static inline int table_new(const char *dir, struct sp_placeholders **ret, struct sp_err *e)
{
    size_t i = 0;

    while (servers[i].table != NULL)
        i++;
    assert_true(i < sizeof servers / sizeof servers[0]);
    const int r = sp_journal_new(dir, NULL, &servers[i].journal, e);
    if (r < 0)
        return r;
    servers[i].table = *ret = calloc(1, sizeof **ret);
    assert_non_null(*ret);
    (*ret)->journal = servers[i].journal;
    return 0;
}

static inline void table_free(struct sp_placeholders *t)
{
    if (t == NULL)
        return;
    sp_placeholders_free(t);
    free(t);
    for (size_t i = 0; i < sizeof servers / sizeof servers[0]; i++)
        if (servers[i].table == t) {
            sp_journal_free(servers[i].journal);
            servers[i].table = NULL;
            return;
        }
}

static inline int take_at(struct sp_placeholders *t, const char *path, uint64_t *ret_dev,
                          uint64_t *ret_ino, struct sp_err *e)
{
    struct sp_placeholder_at at = {0};
    const int r = sp_placeholder_take(t, path, &at, e);

    *ret_dev = at.dev;
    *ret_ino = at.ino;
    return r;
}

static inline struct sp_placeholders *new_table(const char *dir)
{
    struct sp_placeholders *t = NULL;

    assert_int_equal(table_new(dir, &t, &error), 0);
    assert_non_null(t);
    return t;
}

static inline int tables_begin(void **state)
{
    (void)tree_begin(state);
    make_dir("w");
    table = new_table(at("run"));
    other = new_table(at("run"));
    return 0;
}

static inline int tables_end(void **state)
{
    table_free(table);
    table_free(other);
    table_free(NULL);
    table = other = NULL;
    return tree_end(state);
}

#define placeholder_test(name) cmocka_unit_test_setup_teardown(name, tables_begin, tables_end)

static inline bool is_there(const char *below)
{
    struct stat st;

    return lstat(at(below), &st) == 0;
}

static inline int take(struct sp_placeholders *t, const char *below)
{
    struct stat st;
    uint64_t dev = 0;
    uint64_t ino = 0;

    error = (struct sp_err){0};
    const int r = take_at(t, at(below), &dev, &ino, &error);
    if (r != 0) {
        assert_int_equal(dev, 0);
        assert_int_equal(ino, 0);
        return r;
    }
    assert_int_equal(lstat(at(below), &st), 0);
    assert_int_equal(st.st_mode & (mode_t)~S_ISGID, S_IFDIR | 0500);
    assert_true(st.st_dev == dev && st.st_ino == ino);
    assert_true(sp_placeholder_is_at(at(below)));
    assert_true(sp_placeholder_stands(t, at(below)));
    return 0;
}

static inline void takes(struct sp_placeholders *t, const char *below)
{
    if (take(t, below) != 0)
        fail_msg("%s: %s", below, error.msg);
}

static inline void drop(struct sp_placeholders *t, const char *below)
{
    sp_placeholder_drop(t, at(below));
}

#endif
