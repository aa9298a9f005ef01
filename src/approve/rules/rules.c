/* SPDX-License-Identifier: Apache-2.0 */
/* rules: makers, and the sets that they make. */
#include "approve/rules/rules.h"

#include <errno.h>
#include <stdlib.h>

#include "approve/rules/rules_set.h"

const char *sp_verdict_name(enum sp_verdict v)
{
    static const char *const names[] = {"allow", "prompt", "forbidden"};

    return names[v];
}

/* ---- makers ---- */

struct sp_rules_maker *sp_rules_maker_new(void)
{
    return calloc(1, sizeof(struct sp_rules_maker));
}

void sp_rules_maker_free(struct sp_rules_maker *m)
{
    if (m == NULL)
        return;
    sp_rules_parts_done(&m->parts);
    free(m);
}

void sp_rules_mark_incomplete(struct sp_rules_maker *m)
{
    m->is_incomplete = true;
}

static int add_part(struct sp_rules_maker *m, struct sp_rules_part *p, struct sp_err *e)
{
    const bool is_good = sp_rules_parts_add(&m->parts, p);

    sp_rules_part_unref(p);
    return is_good ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "add rules");
}

int sp_rules_add_text(struct sp_rules_maker *m, const char *name, struct sp_str text,
                      struct sp_err *e)
{
    struct sp_rules_part *p;
    const int r = sp_rules_read_part(&m->parts, name, text, NULL, NULL, &p, e);

    return r < 0 ? r : add_part(m, p, e);
}

/* A rule that allows these words, as an array of elements in the part's memory. */
static bool allow_prefix(struct sp_rules_part *p, struct sp_words prefix)
{
    struct sp_rules_element *rest = sp_arena_new(&p->arena, prefix.count * sizeof *rest);
    struct sp_str *words = sp_arena_new(&p->arena, prefix.count * sizeof *words);

    p->rules = calloc(1, sizeof *p->rules);
    if (rest == NULL || words == NULL || p->rules == NULL)
        return false;
    for (uint32_t i = 0; i < prefix.count; i++) {
        words[i] = (struct sp_str){sp_arena_copy(&p->arena, prefix.items[i]), prefix.items[i].n};
        if (words[i].p == NULL)
            return false;
        rest[i] = (struct sp_rules_element){&words[i], 1};
    }
    p->rules[0] = (struct sp_prefix_rule){.first = words[0],
                                          .rest = rest + 1,
                                          .rest_count = prefix.count - 1,
                                          .verdict = SP_VERDICT_ALLOW};
    p->rule_count = p->rule_cap = 1;
    return true;
}

int sp_rules_add_prefix(struct sp_rules_maker *m, struct sp_words prefix, struct sp_err *e)
{
    if (prefix.count == 0)
        return sp_fail(e, SP_E_INVALID, 0, "prefix rule requires at least one token");
    struct sp_rules_part *p = sp_rules_part_new("amendment");
    if (p == NULL || !allow_prefix(p, prefix)) {
        sp_rules_part_unref(p);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
    }
    p->is_amendment = true;
    return add_part(m, p, e);
}

/* ---- sets ---- */

struct sp_rules *sp_rules_ref(struct sp_rules *r)
{
    r->refs++;
    return r;
}

void sp_rules_unref(struct sp_rules *r)
{
    if (r == NULL || --r->refs > 0)
        return;
    for (int l = 0; l < SP_SET_LAYERS; l++) {
        sp_rules_table_done(&r->layers[l].programs);
        sp_rules_hosts_done(&r->layers[l].hosts);
    }
    sp_rules_table_done(&r->words);
    sp_rules_parts_done(&r->parts);
    sp_arena_done(&r->arena);
    free(r);
}

bool sp_rules_are_complete(const struct sp_rules *r)
{
    return r->is_complete;
}

uint32_t sp_rules_count(const struct sp_rules *r)
{
    return r->count;
}

bool sp_rules_file(const struct sp_rules *r, uint32_t index, const char **ret_name,
                   uint32_t *ret_count)
{
    if (index >= r->parts.count)
        return false;
    *ret_name = r->parts.items[index]->name;
    *ret_count = r->parts.items[index]->rule_count + r->parts.items[index]->network_count;
    return true;
}

bool sp_rules_allowing_file(const struct sp_rules *r, uint32_t index, const char **ret)
{
    *ret = NULL;
    if (index >= r->parts.count)
        return false;
    for (uint32_t i = 0; i < r->parts.items[index]->rule_count; i++)
        if (r->parts.items[index]->rules[i].verdict == SP_VERDICT_ALLOW)
            *ret = r->parts.items[index]->file;
    return true;
}

/* ---- making the index ---- */

static bool number_word(struct sp_rules *r, struct sp_str word, uint32_t *ret)
{
    const uint32_t *number = sp_rules_put(&r->words, word, r->words.count);

    if (number == NULL)
        return false;
    *ret = *number;
    return true;
}

static const struct sp_set_element *number_rest(struct sp_rules *r,
                                                const struct sp_prefix_rule *rule)
{
    struct sp_set_element *rest = sp_arena_new(&r->arena, (rule->rest_count + 1) * sizeof *rest);

    for (uint32_t i = 0; rest != NULL && i < rule->rest_count; i++) {
        const struct sp_rules_element *x = &rule->rest[i];
        uint32_t *numbers = sp_arena_new(&r->arena, x->count * sizeof *numbers);

        rest[i] = (struct sp_set_element){x, numbers};
        for (uint32_t n = 0; numbers != NULL && n < x->count; n++)
            if (!number_word(r, x->words[n], &numbers[n]))
                return NULL;
        if (numbers == NULL)
            return NULL;
    }
    return rest;
}

static struct sp_set_layer *layer_of(struct sp_rules *r, const struct sp_rules_part *p)
{
    return &r->layers[p->is_managed ? SP_SET_MANAGED : SP_SET_OPEN];
}

/* First the programs and how many rules each has. */
static bool count_programs(struct sp_rules *r)
{
    for (uint32_t i = 0; i < r->parts.count; i++) {
        const struct sp_rules_part *p = r->parts.items[i];
        struct sp_set_layer *l = layer_of(r, p);

        for (uint32_t n = 0; n < p->rule_count; n++)
            if (sp_rules_put(&l->programs, p->rules[n].first, l->programs.count) == NULL)
                return false;
        if (!sp_rules_hosts_add(&l->hosts, p))
            return false;
        r->count += p->rule_count + p->network_count;
    }
    return true;
}

static bool place_programs(struct sp_rules *r)
{
    for (int i = 0; i < SP_SET_LAYERS; i++) {
        struct sp_set_layer *l = &r->layers[i];

        l->items = sp_arena_new(&r->arena, (l->programs.count + 1) * sizeof *l->items);
        if (l->items == NULL)
            return false;
    }
    for (uint32_t i = 0; i < r->parts.count; i++) {
        const struct sp_rules_part *p = r->parts.items[i];
        const struct sp_set_layer *l = layer_of(r, p);

        for (uint32_t n = 0; n < p->rule_count; n++)
            l->items[sp_rules_find(&l->programs, p->rules[n].first)].count++;
    }
    for (int i = 0; i < SP_SET_LAYERS; i++) {
        struct sp_set_layer *l = &r->layers[i];
        uint32_t first = 0;

        for (uint32_t n = 0; n < l->programs.count; n++) {
            l->items[n].first = first;
            first += l->items[n].count;
            l->items[n].count = 0; /* counts again as they are filled */
        }
        l->rules = sp_arena_new(&r->arena, (first + 1) * sizeof *l->rules);
        if (l->rules == NULL)
            return false;
    }
    return true;
}

static bool fill_programs(struct sp_rules *r, const struct sp_rules_part *p)
{
    const struct sp_set_layer *l = layer_of(r, p);
    const struct sp_set_element *rest = NULL;

    for (uint32_t n = 0; n < p->rule_count; n++) {
        const struct sp_prefix_rule *say = &p->rules[n];
        struct sp_set_program *program = &l->items[sp_rules_find(&l->programs, say->first)];

        if (n == 0 || say->rest != p->rules[n - 1].rest) /* rules of one call share it */
            rest = number_rest(r, say);
        if (rest == NULL)
            return false;
        l->rules[program->first + program->count++] = (struct sp_set_rule){say, rest, p->file};
        if (say->rest_count > program->longest)
            program->longest = say->rest_count;
    }
    return true;
}

struct sp_rules *sp_rules_make(const struct sp_rules_maker *m)
{
    struct sp_rules *r = calloc(1, sizeof *r);
    bool is_good = r != NULL;

    if (r == NULL)
        return NULL;
    r->refs = 1;
    r->is_complete = !m->is_incomplete;
    for (uint32_t i = 0; is_good && i < m->parts.count; i++)
        is_good = sp_rules_parts_add(&r->parts, m->parts.items[i]);
    is_good = is_good && count_programs(r) && place_programs(r);
    for (uint32_t i = 0; is_good && i < r->parts.count; i++)
        is_good = fill_programs(r, r->parts.items[i]);
    if (is_good)
        return r;
    sp_rules_unref(r);
    return NULL;
}

struct sp_rules_part *sp_rules_find_part(const struct sp_rules *r, const char *name)
{
    for (uint32_t i = 0; i < r->parts.count; i++)
        if (!r->parts.items[i]->is_amendment && strcmp(r->parts.items[i]->name, name) == 0)
            return r->parts.items[i];
    return NULL;
}

uint32_t sp_rules_part_count(const struct sp_rules *r)
{
    return r->parts.count;
}

struct sp_rules_part *sp_rules_part_at(const struct sp_rules *r, uint32_t index)
{
    return r->parts.items[index];
}

struct sp_rules *sp_rules_with_prefix(struct sp_rules *r, struct sp_words prefix, struct sp_err *e)
{
    struct sp_rules_maker m = {.is_incomplete = r != NULL && !r->is_complete};
    struct sp_rules *extended = NULL;
    bool is_good = true;

    if (r != NULL && sp_rules_do_allow(r, prefix))
        return sp_rules_ref(r);
    for (uint32_t i = 0; r != NULL && is_good && i < r->parts.count; i++)
        is_good = sp_rules_parts_add(&m.parts, r->parts.items[i]);
    if (!is_good)
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
    else if (sp_rules_add_prefix(&m, prefix, e) == 0) {
        extended = sp_rules_make(&m);
        if (extended == NULL)
            (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
    }
    sp_rules_parts_done(&m.parts);
    return extended;
}
