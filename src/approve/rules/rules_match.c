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

    for (uint32_t i = 0; words != NULL && i <= say->rest_count; i++) /* the same as the rule's */
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

/* A JSON text under construction: begin_child starts each member or element. */
struct writer {
    struct sp_buf *out;
    bool is_pretty, is_good;
    unsigned depth;
    bool has_some; /* the innermost container has a child already */
};

static void add(struct writer *w, struct sp_str s)
{
    w->is_good = w->is_good && sp_buf_add_str(w->out, s);
}

static void break_line(struct writer *w)
{
    if (!w->is_pretty)
        return;
    add(w, SP_STR("\n"));
    for (unsigned i = 0; i < w->depth; i++)
        add(w, SP_STR("  "));
}

/* key NULL: an element of an array. */
static void begin_child(struct writer *w, const char *key)
{
    if (w->has_some)
        add(w, SP_STR(","));
    break_line(w);
    w->has_some = true;
    if (key == NULL)
        return;
    w->is_good = w->is_good && sp_json_add_str(w->out, sp_str_of(key));
    add(w, w->is_pretty ? SP_STR(": ") : SP_STR(":"));
}

static void open_container(struct writer *w, struct sp_str bracket)
{
    add(w, bracket);
    w->depth++;
    w->has_some = false;
}

static void close_container(struct writer *w, struct sp_str bracket)
{
    w->depth--;
    if (w->has_some)
        break_line(w);
    add(w, bracket);
    w->has_some = true;
}

static void add_text(struct writer *w, const char *key, struct sp_str text)
{
    begin_child(w, key);
    w->is_good = w->is_good && sp_json_add_str(w->out, text);
}

static void write_matches(struct writer *w, const struct sp_rule_matches *all)
{
    open_container(w, SP_STR("["));
    for (uint32_t i = 0; i < all->count; i++) {
        const struct sp_rule_match *m = &all->items[i];

        begin_child(w, NULL);
        open_container(w, SP_STR("{"));
        begin_child(w, "prefixRuleMatch");
        open_container(w, SP_STR("{"));
        begin_child(w, "matchedPrefix");
        open_container(w, SP_STR("["));
        for (uint32_t k = 0; k < m->prefix.count; k++)
            add_text(w, NULL, m->prefix.items[k]);
        close_container(w, SP_STR("]"));
        add_text(w, "decision", sp_str_of(sp_verdict_name(m->verdict)));
        if (m->resolved_program.p != NULL)
            add_text(w, "resolvedProgram", m->resolved_program);
        if (m->justification.p != NULL)
            add_text(w, "justification", m->justification);
        close_container(w, SP_STR("}"));
        close_container(w, SP_STR("}"));
    }
    close_container(w, SP_STR("]"));
}

bool sp_rule_matches_add_json(struct sp_buf *out, const struct sp_rule_matches *m,
                              enum sp_matches_form form)
{
    struct writer w = {.out = out, .is_pretty = form == SP_MATCHES_CHECK_PRETTY, .is_good = true};
    enum sp_verdict strictest = SP_VERDICT_ALLOW;

    if (form == SP_MATCHES_LIST) {
        write_matches(&w, m);
        return w.is_good;
    }
    open_container(&w, SP_STR("{"));
    begin_child(&w, "matchedRules");
    write_matches(&w, m);
    for (uint32_t i = 0; i < m->count; i++)
        if (m->items[i].verdict > strictest)
            strictest = m->items[i].verdict;
    if (m->count > 0)
        add_text(&w, "decision", sp_str_of(sp_verdict_name(strictest)));
    close_container(&w, SP_STR("}"));
    return w.is_good;
}
