/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The examples of a file, tried once all of it has been read: each against the rules of its own
 * call, with the host executables of all files so far. First what must not match, then what must.
 */
#include "approve/rules/rules_priv.h"
#include "base/auto.h"
#include "base/json.h"

#define SHOWN_RULE     100 /* bytes of a rule, and of examples, in a message */
#define SHOWN_EXAMPLES 200

/* ---- does it match ---- */

static bool element_has(const struct sp_rules_element *x, struct sp_str word)
{
    for (uint32_t i = 0; i < x->count; i++)
        if (sp_str_eq(x->words[i], word))
            return true;
    return false;
}

/* All rules of a call differ in their first word alone. */
static bool matches_named(const struct sp_prefix_rule *rules, uint32_t count, struct sp_str name,
                          struct sp_words example)
{
    if (example.count < rules[0].rest_count + 1)
        return false;
    for (uint32_t i = 0; i < rules[0].rest_count; i++)
        if (!element_has(&rules[0].rest[i], example.items[i + 1]))
            return false;
    for (uint32_t i = 0; i < count; i++)
        if (sp_str_eq(rules[i].first, name))
            return true;
    return false;
}

static bool matches(struct sp_rules_reader *r, const struct sp_rules_hosts *hosts,
                    const struct sp_rules_examples *x, struct sp_words example, bool *ret)
{
    const struct sp_prefix_rule *rules = &r->part->rules[x->first_rule];
    const struct sp_str first = example.items[0];
    bool climbs;

    *ret = matches_named(rules, x->rule_count, first, example);
    if (*ret || first.n == 0 || first.p[0] != '/')
        return true;
    char *room = sp_rules_memory(r, first.n + 1, 1);
    if (room == NULL)
        return false;
    const struct sp_str path = sp_rules_normal_path(first, room, &climbs);
    if ((!climbs || rules[0].verdict != SP_VERDICT_ALLOW) && path.n > 1 &&
        sp_rules_hosts_allow(hosts, path))
        *ret = matches_named(rules, x->rule_count, sp_rules_base_name(path), example);
    return true;
}

/* ---- what is said if not ---- */

static bool add_element(struct sp_buf *out, const struct sp_str *words, uint32_t count)
{
    bool is_good = count == 1 || sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; is_good && i < count && out->len <= SHOWN_RULE; i++)
        is_good = (i == 0 || sp_buf_add(out, ", ", 2)) && sp_json_add_str(out, words[i]);
    return is_good && (count == 1 || sp_buf_add(out, "]", 1));
}

/* Cuts at a character's border. */
static void cut(struct sp_buf *b, size_t max)
{
    if (b->len <= max)
        return;
    b->len = max;
    while (b->len > 0 && ((unsigned char)b->data[b->len] & 0xC0) == 0x80)
        b->len--;
    (void)sp_buf_add(b, "...", 3); /* there is room: it was longer */
}

/* The pattern as it may be written. */
static bool add_rule(struct sp_buf *out, const struct sp_prefix_rule *rules, uint32_t count)
{
    bool is_good = sp_buf_add_str(out, SP_STR("prefix_rule(["));

    if (count > 1)
        is_good = is_good && sp_buf_add(out, "[", 1);
    for (uint32_t i = 0; is_good && i < count && out->len <= SHOWN_RULE; i++)
        is_good = (i == 0 || sp_buf_add(out, ", ", 2)) && sp_json_add_str(out, rules[i].first);
    if (count > 1)
        is_good = is_good && sp_buf_add(out, "]", 1);
    for (uint32_t i = 0; is_good && i < rules[0].rest_count && out->len <= SHOWN_RULE; i++)
        is_good = sp_buf_add(out, ", ", 2) &&
                  add_element(out, rules[0].rest[i].words, rules[0].rest[i].count);
    is_good = is_good && sp_buf_add_str(out, SP_STR("])"));
    cut(out, SHOWN_RULE);
    return is_good;
}

static bool fail_matched(struct sp_rules_reader *r, const struct sp_rules_examples *x,
                         struct sp_words example)
{
    auto_buf struct sp_buf rule = {0};
    auto_buf struct sp_buf text = {0};

    if (!add_rule(&rule, &r->part->rules[x->first_rule], x->rule_count) ||
        !sp_words_add_quoted(&text, example))
        return sp_rules_no_memory(r);
    cut(&text, SHOWN_EXAMPLES);
    return sp_rules_fail(r, x->at, "expected example to not match rule `%.*s`: %.*s", (int)rule.len,
                         rule.data, (int)text.len, text.data);
}

static bool fail_unmatched(struct sp_rules_reader *r, const struct sp_rules_examples *x,
                           struct sp_buf *unmatched)
{
    auto_buf struct sp_buf rule = {0};

    if (!add_rule(&rule, &r->part->rules[x->first_rule], x->rule_count))
        return sp_rules_no_memory(r);
    cut(unmatched, SHOWN_EXAMPLES);
    return sp_rules_fail(r, x->at,
                         "expected every example to match at least one rule. rules: [%.*s]; "
                         "unmatched examples: [%.*s]",
                         (int)rule.len, rule.data, (int)unmatched->len, unmatched->data);
}

static bool add_unmatched(struct sp_buf *out, struct sp_words example)
{
    auto_buf struct sp_buf text = {0};

    return (out->len == 0 || sp_buf_add(out, ", ", 2)) && sp_words_add_quoted(&text, example) &&
           sp_json_add_str(out, (struct sp_str){text.data, text.len});
}

/* ---- the calls ---- */

static bool check_not_match(struct sp_rules_reader *r, const struct sp_rules_hosts *hosts,
                            const struct sp_rules_examples *x)
{
    bool does;

    for (uint32_t i = 0; i < x->not_match_count; i++) {
        if (!matches(r, hosts, x, x->not_match[i], &does))
            return false;
        if (does && !fail_matched(r, x, x->not_match[i]) && r->tell == NULL)
            return false;
    }
    return true;
}

static bool check_match(struct sp_rules_reader *r, const struct sp_rules_hosts *hosts,
                        const struct sp_rules_examples *x)
{
    auto_buf struct sp_buf unmatched = {0};
    bool does;

    for (uint32_t i = 0; i < x->match_count; i++) {
        if (!matches(r, hosts, x, x->match[i], &does))
            return false;
        if (!does && unmatched.len <= SHOWN_EXAMPLES && !add_unmatched(&unmatched, x->match[i]))
            return sp_rules_no_memory(r);
    }
    return unmatched.len == 0 || fail_unmatched(r, x, &unmatched) || r->tell != NULL;
}

/* What it costs to try the examples of a call: bounded, whoever wrote them. */
static bool count_work(struct sp_rules_reader *r, const struct sp_rules_examples *x, uint64_t *work)
{
    const struct sp_prefix_rule *rule = &r->part->rules[x->first_rule];
    uint64_t words = x->rule_count;

    for (uint32_t i = 0; i < rule->rest_count; i++)
        words += rule->rest[i].count;
    *work += words * ((uint64_t)x->match_count + x->not_match_count);
    return *work <= SP_RULES_MAX_WORK ||
           sp_rules_fail(r, x->at, "too many examples for so many alternatives");
}

bool sp_rules_check_examples(struct sp_rules_reader *r)
{
    struct sp_rules_hosts hosts = {0};
    uint64_t work = 0;
    bool is_good = true;

    for (uint32_t i = 0; is_good && i < r->before->count; i++)
        is_good = sp_rules_hosts_add(&hosts, r->before->items[i]);
    is_good = is_good && sp_rules_hosts_add(&hosts, r->part);
    if (!is_good)
        (void)sp_rules_no_memory(r);
    for (uint32_t i = 0; is_good && i < r->example_count; i++)
        is_good = count_work(r, &r->examples[i], &work) &&
                  check_not_match(r, &hosts, &r->examples[i]) &&
                  check_match(r, &hosts, &r->examples[i]);
    sp_rules_hosts_done(&hosts);
    return is_good;
}
