/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: what it costs to judge a command before it runs, with many rules: a script of 200 bytes
 * and five commands, under the policy that looks closest.
 */
#include "approve/judge.h"
#include "base/buf.h"
#include "cases.h"

enum { RULES = 1000, JUDGEMENTS = 20000, WARM = 100 };

#define SCRIPT                                                                                 \
    "cargo build --release --workspace 2000 && cargo test -p engine 'some test' | grep -n "    \
    "\"FAILED\" ; program250 verb x y z || git status --short --branch --untracked-files=all " \
    "/some/longer/path/of/a/project"

/* Two for each program, so that more than one matches. */
static int make_rules(struct sp_rules **ret, struct sp_err *e)
{
    struct sp_rules_maker *maker = sp_rules_maker_new();
    auto_buf struct sp_buf text = {0};
    bool is_good = maker != NULL;

    for (int i = 0; is_good && i < RULES / 2; i++)
        is_good =
            sp_buf_printf(&text,
                          "prefix_rule([\"program%d\", \"verb\"], \"allow\")\n"
                          "prefix_rule([\"program%d\", [\"a\", \"b\", \"verb\"]], \"prompt\")\n",
                          i, i);
    int r = is_good ? sp_rules_add_text(maker, "bench", (struct sp_str){text.data, text.len}, NULL,
                                        NULL, e)
                    : sp_fail(e, SP_E_LIMIT, 0, "no memory");
    *ret = r < 0 ? NULL : sp_rules_make(maker);
    if (r == 0 && *ret == NULL)
        r = sp_fail(e, SP_E_LIMIT, 0, "no memory");
    sp_rules_maker_free(maker);
    return r;
}

static int judge_once(const struct sp_rules *rules, struct sp_err *e)
{
    static const struct sp_str argv[] = {SP_STR("/bin/bash"), SP_STR("-lc"), SP_STR(SCRIPT)};
    const struct sp_judge_request ask = {
        .argv = {argv, 3}, .rules = rules, .policy = {.kind = SP_APPROVAL_UNTRUSTED}};
    struct sp_requirement q;
    int r = sp_judge(&ask, &q, e);

    if (r < 0)
        return r;
    if (q.segments.count != 5 || q.kind != SP_REQUIRE_ANSWER)
        r = sp_fail(e, SP_E_FAILED, 0, "a command was judged wrongly");
    sp_requirement_done(&q);
    return r;
}

void bench_case_judge(struct bench *b)
{
    struct bench_samples samples = {0};
    struct sp_rules *rules = NULL;
    struct sp_err e = {0};

    if (b->command[BENCH_OURS] == NULL)
        return; /* a run without us */
    int r = make_rules(&rules, &e);
    for (int i = 0; r == 0 && i < WARM; i++)
        r = judge_once(rules, &e);
    for (int i = 0; r == 0 && i < JUDGEMENTS && !bench_is_stopped(); i++) {
        const uint64_t begin = bench_now();

        r = judge_once(rules, &e);
        bench_samples_add(&samples, bench_seconds_since(begin));
    }
    if (r < 0)
        bench_seat_drop(b, &(struct bench_seat){.side = BENCH_OURS}, &e);
    else
        b->report.v[BENCH_M_JUDGE_P50][BENCH_OURS] = bench_samples_at(&samples, 0.5);
    bench_samples_done(&samples);
    sp_rules_unref(rules);
}
