/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_fixture: rules from a text, and what they say of a command.
 */
#ifndef SP_RULES_FIXTURE_H
#define SP_RULES_FIXTURE_H

#include <stdio.h>

#include "approve/rules/rules.h"
#include "test.h"

/* From an exact copy on the heap, which is gone after. */
static inline int add_rules(struct sp_rules_maker *m, struct sp_str text, struct sp_err *e)
{
    char *copy = test_copy(text);
    const int r = sp_rules_add_text(m, "x.rules", (struct sp_str){copy, text.n}, NULL, NULL, e);

    free(copy);
    return r;
}

/* All rules of a set, for commands and hosts. */
static inline uint32_t count_rules(const struct sp_rules *r)
{
    struct sp_rules_file file;
    uint32_t all = 0;

    for (uint32_t i = 0; sp_rules_file(r, i, &file); i++)
        all += file.count;
    return all;
}

static inline struct sp_rules *rules_of(const char *text)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};

    assert_non_null(m);
    if (add_rules(m, sp_str_of(text), &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    struct sp_rules *r = sp_rules_make(m);
    assert_non_null(r);
    sp_rules_maker_free(m);
    return r;
}

/* Appends the rule of an accepted amendment to the file of the user. */
static inline int amend_prefix(const char *user_dir, struct sp_words prefix, struct sp_err *e)
{
    struct sp_err why = {0};
    struct sp_rules *r = sp_rules_with_prefix(NULL, user_dir, prefix, &why);

    if (r == NULL && e != NULL)
        *e = why;
    sp_rules_unref(r);
    return -(int)why.code;
}

/* Words with blanks between them; the same memory each time. */
static inline struct sp_words words(const char *text)
{
    static struct sp_str items[64];
    uint32_t n = 0;

    while (*text != 0) {
        const size_t len = strcspn(text, " ");

        assert_true(n < 64);
        items[n++] = (struct sp_str){text, len};
        text += len + (text[len] == ' ');
    }
    return (struct sp_words){items, n};
}

/* "allow git status, prompt git", in the order in which they matched; the same memory each time. */
static inline const char *said_by(const struct sp_rules *r, struct sp_words command)
{
    static char text[4096];
    struct sp_rule_matches m = {0};
    size_t n = 0;

    text[0] = 0;
    assert_true(sp_rules_match(r, command, true, &m));
    for (uint32_t i = 0; i < m.count; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i == 0 ? "" : ", ",
                              sp_verdict_name(m.items[i].verdict));
        for (uint32_t w = 0; w < m.items[i].prefix.count; w++)
            n += (size_t)snprintf(text + n, sizeof text - n, " %.*s",
                                  (int)m.items[i].prefix.items[w].n, m.items[i].prefix.items[w].p);
        if (m.items[i].resolved_program.p != NULL)
            n +=
                (size_t)snprintf(text + n, sizeof text - n, " (%.*s)",
                                 (int)m.items[i].resolved_program.n, m.items[i].resolved_program.p);
    }
    sp_rule_matches_done(&m);
    return text;
}

static inline void assert_said(const struct sp_rules *r, const char *command, const char *expected)
{
    assert_string_equal(said_by(r, words(command)), expected);
}

static inline void says(const char *rules, const char *command, const char *expected)
{
    struct sp_rules *r = rules_of(rules);

    assert_said(r, command, expected);
    sp_rules_unref(r);
}

/* The text is refused so, and leaves the maker as it was. */
static inline void refuses(const char *text, const char *expected)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};

    assert_int_equal(add_rules(m, SP_STR("prefix_rule([\"before\"])"), &e), 0);
    assert_int_equal(add_rules(m, sp_str_of(text), &e), -SP_E_INVALID);
    assert_string_equal(e.msg, expected);
    struct sp_rules *r = sp_rules_make(m);
    assert_int_equal(count_rules(r), 1);
    sp_rules_unref(r);
    sp_rules_maker_free(m);
}

#endif
