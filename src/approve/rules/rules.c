/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules: parts, makers, and the immutable sets that they make.
 *
 * A text becomes a part. A maker is a list of parts; a set is such a list with an index over it.
 * Parts are reference-counted and shared between sets, so a set with one more amendment costs one
 * part and a new index.
 */
#include "approve/rules/rules.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "approve/rules/rules_priv.h"
#include "approve/script/script_priv.h"
#include "base/auto.h"
#include "base/json.h"
#include "base/sha.h"

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

/* ---- sets ---- */

struct sp_rules *sp_rules_ref(struct sp_rules *r)
{
    r->refs++;
    return r;
}

void sp_rules_unref(struct sp_rules *r)
{
    if (r == NULL)
        return;
    assert(r->refs > 0);
    if (--r->refs > 0)
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

bool sp_rules_file(const struct sp_rules *r, uint32_t index, struct sp_rules_file *ret)
{
    if (index >= r->parts.count)
        return false;
    const struct sp_rules_part *p = r->parts.items[index];
    *ret = (struct sp_rules_file){.name = p->name, .count = p->rule_count + p->network_count};
    for (uint32_t i = 0; i < p->rule_count; i++)
        if (p->rules[i].verdict == SP_VERDICT_ALLOW)
            ret->allowing_file = p->file;
    return true;
}

bool sp_rules_entry(const struct sp_rules *r, uint32_t index, struct sp_rules_entry *ret)
{
    for (uint32_t i = 0; i < r->parts.count; i++) {
        const struct sp_rules_part *p = r->parts.items[i];

        if (index < p->entry_count) {
            *ret = p->entries[index];
            ret->name = p->name;
            ret->file = p->file;
            ret->is_managed = p->is_managed;
            return true;
        }
        index -= p->entry_count;
    }
    return false;
}

/* ---- making the index ---- */

static const struct sp_set_element *number_rest(struct sp_rules *r,
                                                const struct sp_prefix_rule *rule)
{
    struct sp_set_element *rest = sp_arena_new(&r->arena, (rule->rest_count + 1) * sizeof *rest);

    for (uint32_t i = 0; rest != NULL && i < rule->rest_count; i++) {
        const struct sp_words *x = &rule->rest[i];
        uint32_t *numbers = sp_arena_new(&r->arena, x->count * sizeof *numbers);

        rest[i] = (struct sp_set_element){x, numbers};
        for (uint32_t n = 0; numbers != NULL && n < x->count; n++) {
            const uint32_t *number = sp_rules_put(&r->words, x->items[n], r->words.count);

            if (number == NULL)
                return NULL;
            numbers[n] = *number;
        }
        if (numbers == NULL)
            return NULL;
    }
    return rest;
}

static struct sp_set_layer *layer_of(struct sp_rules *r, const struct sp_rules_part *p)
{
    return &r->layers[p->is_managed ? SP_SET_MANAGED : SP_SET_OPEN];
}

/* Pass 1: enter every first word into the table of its layer. */
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
    }
    return true;
}

/* Pass 2: count the rules of each program, and give it a range of the rules array. */
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
            l->items[n].count = 0; /* fill_programs counts again */
        }
        l->rules = sp_arena_new(&r->arena, (first + 1) * sizeof *l->rules);
        if (l->rules == NULL)
            return false;
    }
    return true;
}

/* Pass 3: fill the ranges, in the order of the parts. */
static bool fill_programs(struct sp_rules *r, const struct sp_rules_part *p)
{
    const struct sp_set_layer *l = layer_of(r, p);
    const struct sp_set_element *rest = NULL;

    for (uint32_t n = 0; n < p->rule_count; n++) {
        const struct sp_prefix_rule *say = &p->rules[n];
        struct sp_set_program *program = &l->items[sp_rules_find(&l->programs, say->first)];

        if (n == 0 || say->rest != p->rules[n - 1].rest) /* rules of one call share their rest */
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

/* ---- the fingerprint of the managed rules: a digest over their sorted lines ---- */

static bool add_part_lines(struct sp_buf *out, const struct sp_rules_part *p)
{
    bool is_good = true;

    for (uint32_t i = 0; is_good && i < p->rule_count; i++) {
        const struct sp_prefix_rule *rule = &p->rules[i];

        is_good = sp_buf_printf(out, "prefix %s ", sp_verdict_name(rule->verdict)) &&
                  sp_words_add_json(out, (struct sp_words){&rule->first, 1});
        for (uint32_t k = 0; is_good && k < rule->rest_count; k++)
            is_good = sp_words_add_json(out, rule->rest[k]);
        is_good = is_good && sp_buf_add(out, "\n", 1);
    }
    for (uint32_t i = 0; is_good && i < p->network_count; i++) {
        const struct sp_network_rule *rule = &p->network[i];

        is_good = sp_buf_printf(out, "network " SP_STR_FMT " " SP_STR_FMT " ",
                                SP_STR_ARG(rule->decision), SP_STR_ARG(rule->protocol)) &&
                  sp_json_add_str(out, rule->host) && sp_buf_add(out, "\n", 1);
    }
    for (uint32_t i = 0; is_good && i < p->host_count; i++)
        is_good = sp_buf_add_str(out, SP_STR("host ")) && sp_json_add_str(out, p->hosts[i].name) &&
                  sp_words_add_json(out, (struct sp_words){p->hosts[i].paths, p->hosts[i].count}) &&
                  sp_buf_add(out, "\n", 1);
    return is_good;
}

static int by_bytes(const void *a, const void *b)
{
    return sp_str_compare(*(const struct sp_str *)a, *(const struct sp_str *)b);
}

bool sp_rules_add_fingerprint(struct sp_buf *out, const struct sp_rules *r)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf sorted = {0};
    char digest[65];
    size_t count = 0;
    bool is_good = true;

    for (uint32_t i = 0; r != NULL && is_good && i < r->parts.count; i++)
        if (r->parts.items[i]->is_managed)
            is_good = add_part_lines(&text, r->parts.items[i]);
    if (!is_good || text.len == 0)
        return is_good;
    for (size_t i = 0; i < text.len; i++)
        count += text.data[i] == '\n'; /* which JSON escapes in strings */
    auto_free struct sp_str *lines = calloc(count + 1, sizeof *lines);
    if (lines == NULL)
        return false;
    struct sp_str rest = sp_buf_str(&text);
    for (size_t i = 0; i < count; i++)
        lines[i] = sp_str_cut(&rest, '\n');
    qsort(lines, count, sizeof *lines, by_bytes);
    for (size_t i = 0; is_good && i < count; i++)
        is_good = sp_buf_add_str(&sorted, lines[i]) && sp_buf_add(&sorted, "\n", 1);
    sp_sha256_hex(sp_buf_str(&sorted), digest);
    return is_good && sp_buf_add_str(out, sp_str_of(digest));
}
