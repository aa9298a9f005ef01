/* SPDX-License-Identifier: Apache-2.0 */
/* What a set of rules says of a segment (5.4, steps 1 and 2). */
#include <limits.h>
#include <stdlib.h>

#include "approve/rules/rules_set.h"

/* ---- asking ---- */

/* A segment that is held against the rules: the numbers of its words, as far as they are known. */
struct query {
    const struct sp_rules *rules;
    struct sp_words segment;
    uint32_t *numbers;      /* of the words behind the first */
    uint32_t known, room;   /* how many are there, and may be */
    struct sp_str resolved; /* p NULL: the first word is as the rules have it */
    bool climbs;            /* ... by a path whose `..` may lead elsewhere: it allows nothing */
    struct sp_rule_matches *out;
    struct sp_arena *arena;
};

static uint32_t number_at(struct query *q, uint32_t index)
{
    while (q->known <= index) {
        q->numbers[q->known] = sp_rules_find(&q->rules->words, q->segment.items[q->known + 1]);
        q->known++;
    }
    return q->numbers[index];
}

/* Which of the element's words it is; SP_RULES_NONE: none. */
static uint32_t find_word(const struct sp_set_element *x, uint32_t number)
{
    for (uint32_t i = 0; number != SP_RULES_NONE && i < x->words->count; i++)
        if (x->numbers[i] == number)
            return i;
    return SP_RULES_NONE;
}

static bool does_match(struct query *q, const struct sp_set_rule *rule)
{
    if (q->segment.count <= rule->say->rest_count)
        return false;
    if (q->climbs && rule->say->verdict == SP_VERDICT_ALLOW)
        return false;
    for (uint32_t i = 0; i < rule->say->rest_count; i++)
        if (find_word(&rule->rest[i], number_at(q, i)) == SP_RULES_NONE)
            return false;
    return true;
}

static bool copy(struct query *q, struct sp_str s, struct sp_str *ret)
{
    *ret = (struct sp_str){NULL, 0};
    if (s.p == NULL)
        return true;
    *ret = (struct sp_str){sp_arena_copy(q->arena, s), s.n};
    return ret->p != NULL;
}

static bool copy_file(struct query *q, const char *file, const char **ret)
{
    *ret = file == NULL ? NULL : sp_arena_copy(q->arena, sp_str_of(file));
    return file == NULL || *ret != NULL;
}

static bool add_match(struct query *q, const struct sp_set_rule *rule)
{
    const struct sp_prefix_rule *say = rule->say;
    struct sp_rule_match m = {.verdict = say->verdict};
    struct sp_str *words = sp_arena_new(q->arena, (say->rest_count + 1) * sizeof *words);
    void *array = q->out->items;

    if (words == NULL || !copy(q, say->first, &words[0]))
        return false;
    for (uint32_t i = 0; i < say->rest_count; i++)
        if (!copy(q, q->segment.items[i + 1], &words[i + 1])) /* the same as the rule's word */
            return false;
    m.prefix = (struct sp_words){words, say->rest_count + 1};
    struct sp_rule_match *place =
        sp_rules_grow(q->out->items, q->out->count, &q->out->cap, sizeof m, &array);
    q->out->items = array;
    if (place == NULL || !copy(q, say->justification, &m.justification) ||
        !copy(q, q->resolved, &m.resolved_program) || !copy_file(q, rule->file, &m.file))
        return false;
    *place = m;
    q->out->count++;
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
    return match_name(q, l, sp_rules_base_name(path));
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

/* ---- without an answer in full ---- */

static bool element_has(const struct sp_rules_element *x, struct sp_str word)
{
    for (uint32_t i = 0; i < x->count; i++)
        if (sp_str_eq(x->words[i], word))
            return true;
    return false;
}

static bool rule_has(const struct sp_prefix_rule *rule, struct sp_words words)
{
    bool has = words.count > rule->rest_count && sp_str_eq(rule->first, words.items[0]);

    for (uint32_t i = 0; has && i < rule->rest_count; i++)
        has = element_has(&rule->rest[i], words.items[i + 1]);
    return has;
}

bool sp_rules_do_allow(const struct sp_rules *r, struct sp_words words)
{
    for (int l = 0; words.count > 0 && l < SP_SET_LAYERS; l++) {
        const struct sp_set_layer *layer = &r->layers[l];
        const uint32_t number = sp_rules_find(&layer->programs, words.items[0]);

        if (number == SP_RULES_NONE)
            continue;
        for (uint32_t i = 0; i < layer->items[number].count; i++) {
            const struct sp_prefix_rule *rule = layer->rules[layer->items[number].first + i].say;

            if (rule->verdict == SP_VERDICT_ALLOW && rule->rest_count + 1 == words.count &&
                rule_has(rule, words))
                return true;
        }
    }
    return false;
}

/* Whether the path may stand for the name. One that is longer than any program's is nobody's. */
static bool may_stand_for(const struct sp_rules *r, struct sp_str path, struct sp_str name)
{
    char room[PATH_MAX];
    bool climbs;

    if (path.n == 0 || path.p[0] != '/' || path.n >= sizeof room)
        return false;
    const struct sp_str normal = sp_rules_normal_path(path, room, &climbs);
    return !climbs && sp_str_eq(sp_rules_base_name(normal), name) &&
           (r == NULL || sp_rules_hosts_allow(&r->layers[SP_SET_OPEN].hosts, normal));
}

bool sp_rules_would_match(const struct sp_rules *r, struct sp_words prefix, struct sp_words segment)
{
    if (prefix.count == 0 || segment.count < prefix.count)
        return false;
    if (!sp_str_eq(prefix.items[0], segment.items[0]) &&
        !may_stand_for(r, segment.items[0], prefix.items[0]))
        return false;
    for (uint32_t i = 1; i < prefix.count; i++)
        if (!sp_str_eq(prefix.items[i], segment.items[i]))
            return false;
    return true;
}
