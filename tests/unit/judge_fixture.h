/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge_fixture: the acceptance cases of approvals as rows, in its notation, and what judging
 * a row gives.
 */
#ifndef SP_JUDGE_FIXTURE_H
#define SP_JUDGE_FIXTURE_H

#include <stdio.h>

#include "approve/judge.h"
#include "approve/rules/rules_priv.h"
#include "test.h"

enum judge_policy { N, R, U, F, G }; /* G: with .sandbox and .by_rule */
enum judge_profile { RO, WS, FA, EX, NO_READ /* WS with an entry that denies */ };
enum judge_want { SKIP, FREE, ASK, REJ };
#define ESC SP_PERMISSIONS_ESCALATED
#define ADD SP_PERMISSIONS_ADDITIONAL
#define ANY "(any)" /* a text that does not matter */
#define ALL "(all)" /* the whole command as a rule */

struct judge_row {
    int number;
    enum judge_policy policy;
    bool sandbox, by_rule;
    enum judge_profile profile;
    const char *command; /* words as a shell would split them */
    const char *script;  /* or /bin/bash -lc SCRIPT */
    enum sp_permissions permissions;
    bool is_preapproved, has_no_approver;
    enum sp_known_safe known_safe;
    const char *rules;  /* of a file; NULL: none */
    bool is_incomplete; /* some other file did not parse */
    const char *prefix; /* NULL: none */
    enum judge_want want;
    const char *reason;    /* NULL: none at all */
    const char *amendment; /* quoted words; NULL: none */
};

static inline void judge_profile_of(enum judge_profile kind, struct sp_policy *ret)
{
    static const enum sp_mode modes[] = {SP_MODE_READ_ONLY, SP_MODE_WORKSPACE_WRITE,
                                         SP_MODE_FULL_ACCESS, SP_MODE_EXTERNAL,
                                         SP_MODE_WORKSPACE_WRITE};
    struct sp_legacy legacy = {.mode = modes[kind]};
    struct sp_err e = {0};

    *ret = (struct sp_policy){0};
    assert_int_equal(sp_profile_from_legacy(&legacy, &ret->profile, &e), 0);
    if (kind == NO_READ)
        assert_int_equal(sp_profile_add(&ret->profile, SP_PLACE_PATH, SP_ACCESS_DENY, false,
                                        SP_STR("/secret"), (struct sp_str){0}, &e),
                         0);
}

static inline struct sp_rules *judge_rules_of(const struct judge_row *row)
{
    struct sp_rules_maker *maker;
    struct sp_err e = {0};

    if (row->rules == NULL && !row->is_incomplete)
        return NULL;
    maker = sp_rules_maker_new();
    assert_non_null(maker);
    if (row->rules != NULL &&
        sp_rules_add_text(maker, "x", sp_str_of(row->rules), NULL, NULL, &e) < 0)
        fail_msg("case %d: %s", row->number, e.msg);
    if (row->is_incomplete)
        maker->is_incomplete = true;
    struct sp_rules *rules = sp_rules_make(maker);
    assert_non_null(rules);
    sp_rules_maker_free(maker);
    return rules;
}

static inline struct sp_approval_policy judge_policy_of(const struct judge_row *row)
{
    static const enum sp_approval_kind kinds[] = {SP_APPROVAL_NEVER, SP_APPROVAL_ON_REQUEST,
                                                  SP_APPROVAL_UNTRUSTED, SP_APPROVAL_ON_FAILURE,
                                                  SP_APPROVAL_GRANULAR};

    return (struct sp_approval_policy){
        .kind = kinds[row->policy], .sandbox_approval = row->sandbox, .rules = row->by_rule};
}

static inline void judge_is_text(const struct judge_row *row, const char *what,
                                 const struct sp_buf *got, const char *want)
{
    const struct sp_str text = {got->data, got->len};

    if (want != NULL && strcmp(want, ANY) == 0)
        return;
    if (!sp_str_eq(text, sp_str_of(want == NULL ? "" : want)))
        fail_msg("case %d, %s: %s is `" SP_STR_FMT "`, not `%s`", row->number,
                 row->script == NULL ? row->command : row->script, what, SP_STR_ARG(text),
                 want == NULL ? "" : want);
}

static inline enum judge_want judge_kind_of(const struct sp_requirement *q)
{
    if (q->kind == SP_REQUIRE_NOTHING)
        return q->is_free ? FREE : SKIP;
    assert_false(q->is_free);
    return q->kind == SP_REQUIRE_ANSWER ? ASK : REJ;
}

static inline void judge_one(const struct judge_row *row)
{
    static const char *const names[] = {"skip", "free", "ask", "rej"};
    struct sp_str wrapped[] = {SP_STR("/bin/bash"), SP_STR("-lc"),
                               sp_str_of(row->script == NULL ? "" : row->script)};
    auto_segments struct sp_segments words = {0};
    auto_segments struct sp_segments prefix = {0};
    auto_buf struct sp_buf amendment = {0};
    struct sp_requirement q;
    struct sp_policy profile;
    struct sp_err e = {0};
    struct sp_rules *rules = judge_rules_of(row);

    judge_profile_of(row->profile, &profile);
    if (row->command != NULL)
        assert_int_equal(sp_words_split(&words, sp_str_of(row->command), &e), 0);
    if (row->prefix != NULL)
        assert_int_equal(sp_words_split(&prefix, sp_str_of(row->prefix), &e), 0);
    const struct sp_judge_request ask = {
        .argv = row->command != NULL ? words.items[0] : (struct sp_words){wrapped, 3},
        .rules = rules,
        .policy = judge_policy_of(row),
        .profile = &profile,
        .permissions = row->permissions,
        .is_preapproved = row->is_preapproved,
        .has_no_approver = row->has_no_approver,
        .prefix = row->prefix == NULL ? (struct sp_words){0} : prefix.items[0],
        .known_safe = row->known_safe,
        .shell = "/bin/bash",
    };

    if (sp_judge(&ask, &q, &e) < 0)
        fail_msg("case %d: %s", row->number, e.msg);
    sp_segments_done(&prefix); /* what is offered is the requirement's own */
    const enum judge_want kind = judge_kind_of(&q);
    if (kind != row->want)
        fail_msg("case %d, %s: %s, not %s", row->number,
                 row->script == NULL ? row->command : row->script, names[kind], names[row->want]);
    judge_is_text(row, "the reason", &q.reason, row->reason);
    if (row->amendment != NULL && strcmp(row->amendment, ALL) == 0) {
        if (!sp_words_equal(q.amendment, ask.argv))
            fail_msg("case %d: the whole command is not offered", row->number);
    } else {
        assert_true(sp_words_add_quoted(&amendment, q.amendment));
        judge_is_text(row, "the offered rule", &amendment, row->amendment);
    }
    sp_requirement_done(&q);
    sp_rules_unref(rules);
    sp_policy_done(&profile);
}

#define JUDGE_ALL(rows)                                           \
    for (size_t i_ = 0; i_ < sizeof(rows) / sizeof *(rows); i_++) \
    judge_one(&(rows)[i_])

#endif
