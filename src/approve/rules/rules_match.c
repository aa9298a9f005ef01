/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_match: what a set of rules says of a segment, and as JSON for `rules check` and the audit
 * log.
 */
#include <limits.h>
#include <stdlib.h>

#include "approve/rules/rules_priv.h"
#include "approve/script/script_priv.h"
#include "base/grow.h"
#include "base/json.h"

/* ---- matching ---- */

/* A segment with the numbers of its words, looked up as rules need them. */
struct query {
    const struct sp_rules *rules;
    struct sp_words segment;
    uint32_t *numbers;      /* of the words behind the first */
    uint32_t known, room;   /* entries of numbers: filled, allocated */
    struct sp_str resolved; /* normalised path if its base name is matched; p NULL: the first word
                               itself is */
    bool climbs; /* that path had a `..`, which a link may lead elsewhere: allow rules do not match
                  */
    struct sp_rule_matches *out;
    struct sp_arena *arena;
};

static bool does_match(struct query *q, const struct sp_set_rule *rule)
{
    if (q->segment.count <= rule->say->rest_count)
        return false;
    if (q->climbs && rule->say->verdict == SP_VERDICT_ALLOW)
        return false;
    for (uint32_t i = 0; i < rule->say->rest_count; i++) {
        const struct sp_set_element *x = &rule->rest[i];
        uint32_t n = 0;

        for (; q->known <= i; q->known++) /* each word is looked up once */
            q->numbers[q->known] = sp_rules_find(&q->rules->words, q->segment.items[q->known + 1]);
        const uint32_t number = q->numbers[i];
        while (n < x->words->count && x->numbers[n] != number)
            n++;
        if (number == SP_RULES_NONE || n == x->words->count)
            return false;
    }
    return true;
}

static bool add_match(struct query *q, const struct sp_set_rule *rule)
{
    const struct sp_prefix_rule *say = rule->say;
    struct sp_rule_match m = {.verdict = say->verdict};
    struct sp_str *words = sp_arena_new(q->arena, (say->rest_count + 1) * sizeof *words);

    for (uint32_t i = 0; words != NULL && i <= say->rest_count; i++) /* spelled as in the rule */
        if (!sp_arena_str(q->arena, i == 0 ? say->first : q->segment.items[i], &words[i]))
            return false;
    m.prefix = (struct sp_words){words, say->rest_count + 1};
    if (words == NULL || !SP_GROW(q->out->items, q->out->count, q->out->cap) ||
        !sp_arena_str(q->arena, say->justification, &m.justification) ||
        !sp_arena_str(q->arena, q->resolved, &m.resolved_program) ||
        !sp_arena_text(q->arena, rule->file, &m.file))
        return false;
    q->out->items[q->out->count++] = m;
    return true;
}

/* All rules of a layer that begin with this name. */
static bool match_name(struct query *q, const struct sp_set_layer *l, struct sp_str name)
{
    const uint32_t number = sp_rules_find(&l->programs, name);

    if (number == SP_RULES_NONE)
        return true;
    const struct sp_set_program *program = &l->items[number];
    if (q->numbers == NULL || q->room < program->longest) {
        q->known = 0;
        q->room = program->longest;
        q->numbers = sp_arena_new(q->arena, (q->room + 1U) * sizeof *q->numbers);
        if (q->numbers == NULL)
            return false;
    }
    for (uint32_t i = 0; i < program->count; i++) {
        const struct sp_set_rule *rule = &l->rules[program->first + i];

        if (does_match(q, rule) && !add_match(q, rule))
            return false;
    }
    return true;
}

/* First the word itself; only if no rule matches, the base name that an absolute path stands for.
 */
static bool match_layer(struct query *q, const struct sp_set_layer *l, bool resolves_hosts)
{
    const struct sp_str first = q->segment.items[0];
    const uint32_t before = q->out->count;

    q->resolved = (struct sp_str){NULL, 0};
    q->climbs = false;
    if (l->programs.count == 0)
        return true;
    if (!match_name(q, l, first))
        return false;
    if (!resolves_hosts || q->out->count != before || first.n == 0 || first.p[0] != '/')
        return true;
    char *room = sp_arena_new(q->arena, first.n + 1);
    if (room == NULL)
        return false;
    const struct sp_str path = sp_rules_normal_path(first, room, &q->climbs);
    if (path.n == 1 || !sp_rules_hosts_allow(&l->hosts, path))
        return true;
    q->resolved = path;
    return match_name(q, l, sp_base_name(path));
}

bool sp_rules_match(const struct sp_rules *r, struct sp_words segment, bool resolves_hosts,
                    struct sp_rule_matches *ret)
{
    struct query q = {.rules = r, .segment = segment, .out = ret};

    if (segment.count == 0)
        return true;
    if (ret->impl == NULL)
        ret->impl = calloc(1, sizeof(struct sp_arena));
    q.arena = ret->impl;
    return q.arena != NULL && match_layer(&q, &r->layers[SP_SET_OPEN], resolves_hosts) &&
           match_layer(&q, &r->layers[SP_SET_MANAGED], resolves_hosts);
}

void sp_rule_matches_done(struct sp_rule_matches *m)
{
    if (m->impl != NULL)
        sp_arena_done(m->impl);
    free(m->impl);
    free(m->items);
    *m = (struct sp_rule_matches){0};
}

bool sp_rules_network(const struct sp_rules *r, uint32_t index, struct sp_network_rule *ret)
{
    for (uint32_t i = 0; i < r->parts.count; i++) {
        const struct sp_rules_part *p = r->parts.items[i];

        if (index < p->network_count) {
            *ret = p->network[index];
            ret->is_amendment = p->is_amendment;
            return true;
        }
        index -= p->network_count;
    }
    return false;
}

/* ---- without a list of matches ---- */

bool sp_rules_would_match(const struct sp_rules *r, struct sp_words prefix, struct sp_words segment)
{
    char room[PATH_MAX]; /* longer paths name no program */
    bool climbs;

    if (prefix.count == 0 || segment.count < prefix.count)
        return false;
    const struct sp_str first = segment.items[0];
    if (!sp_str_eq(prefix.items[0], first)) {
        if (first.n == 0 || first.p[0] != '/' || first.n >= sizeof room)
            return false;
        const struct sp_str path = sp_rules_normal_path(first, room, &climbs);
        if (climbs || !sp_str_eq(sp_base_name(path), prefix.items[0]) ||
            (r != NULL && !sp_rules_hosts_allow(&r->layers[SP_SET_OPEN].hosts, path)))
            return false;
    }
    const uint32_t rest = prefix.count - 1;
    return sp_words_equal((struct sp_words){prefix.items + 1, rest},
                          (struct sp_words){segment.items + 1, rest});
}

/* ---- as JSON ---- */

static bool add_list(struct sp_buf *out, const struct sp_rule_matches *all)
{
    bool ok = sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; ok && i < all->count; i++) {
        const struct sp_rule_match *m = &all->items[i];

        ok = (i == 0 || sp_buf_add(out, ",", 1)) &&
             sp_buf_add_str(out, SP_STR("{\"prefixRuleMatch\":{\"matchedPrefix\":")) &&
             sp_words_add_json(out, m->prefix) &&
             sp_json_add_member(out, "decision", sp_str_of(sp_verdict_name(m->verdict))) &&
             (m->resolved_program.p == NULL ||
              sp_json_add_member(out, "resolvedProgram", m->resolved_program)) &&
             (m->justification.p == NULL ||
              sp_json_add_member(out, "justification", m->justification)) &&
             sp_buf_add(out, "}}", 2);
    }
    return ok && sp_buf_add(out, "]", 1);
}

/* Compact JSON with a line for each member and element, indented by two blanks a level. */
static bool add_indented(struct sp_buf *out, struct sp_str json)
{
    bool is_string = false;
    bool ok = true;
    int depth = 0;

    for (size_t i = 0; ok && i < json.n; i++) {
        const char c = json.p[i];
        const bool is_escape = is_string && c == '\\';
        const bool opens = !is_string && (c == '{' || c == '[');
        const bool closes = !is_string && (c == '}' || c == ']');

        depth += opens - closes;
        if (closes && json.p[i - 1] != '{' && json.p[i - 1] != '[')
            ok = sp_buf_printf(out, "\n%*s", 2 * depth, "");
        ok = ok && sp_buf_add(out, json.p + i, is_escape ? 2 : 1);
        i += is_escape;
        is_string = is_string != (c == '"');
        if (!is_string && c == ':')
            ok = ok && sp_buf_add(out, " ", 1);
        if ((!is_string && c == ',') || (opens && json.p[i + 1] != '}' && json.p[i + 1] != ']'))
            ok = ok && sp_buf_printf(out, "\n%*s", 2 * depth, "");
    }
    return ok;
}

bool sp_rule_matches_add_json(struct sp_buf *out, const struct sp_rule_matches *m,
                              enum sp_matches_form form)
{
    enum sp_verdict strictest = SP_VERDICT_ALLOW;
    auto_buf struct sp_buf json = {0};

    if (form == SP_MATCHES_LIST)
        return add_list(out, m);
    for (uint32_t i = 0; i < m->count; i++)
        if (m->items[i].verdict > strictest)
            strictest = m->items[i].verdict;
    return sp_buf_add_str(&json, SP_STR("{\"matchedRules\":")) && add_list(&json, m) &&
           (m->count == 0 ||
            sp_json_add_member(&json, "decision", sp_str_of(sp_verdict_name(strictest)))) &&
           sp_buf_add(&json, "}", 1) &&
           (form == SP_MATCHES_CHECK_PRETTY ? add_indented(out, sp_buf_str(&json))
                                            : sp_buf_add_str(out, sp_buf_str(&json)));
}
