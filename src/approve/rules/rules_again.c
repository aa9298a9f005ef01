/* SPDX-License-Identifier: Apache-2.0 */
/* What is needed when rules are read again: what outlives the old set, and whether what the
 * administrator laid down is the same. */
#include <errno.h>
#include <stdlib.h>

#include "approve/rules/rules_set.h"
#include "base/json.h"
#include "base/sha.h"

/* ---- sets of the parts of others ---- */

static bool add_parts(struct sp_rules_maker *m, const struct sp_rules *from, bool amendments_only)
{
    bool is_good = true;

    for (uint32_t i = 0; from != NULL && is_good && i < from->parts.count; i++)
        if (!amendments_only || from->parts.items[i]->is_amendment)
            is_good = sp_rules_parts_add(&m->parts, from->parts.items[i]);
    return is_good;
}

static struct sp_rules *make(struct sp_rules_maker *m, bool is_good, struct sp_err *e)
{
    struct sp_rules *made = is_good ? sp_rules_make(m) : NULL;

    if (made == NULL)
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "read rules again");
    sp_rules_parts_done(&m->parts);
    return made;
}

static bool has_amendment(const struct sp_rules *r)
{
    for (uint32_t i = 0; r != NULL && i < r->parts.count; i++)
        if (r->parts.items[i]->is_amendment)
            return true;
    return false;
}

struct sp_rules *sp_rules_with_amendments(struct sp_rules *r, const struct sp_rules *from,
                                          struct sp_err *e)
{
    struct sp_rules_maker m = {.is_incomplete = r != NULL && !r->is_complete};

    if (r != NULL && !has_amendment(from))
        return sp_rules_ref(r);
    const bool is_good = add_parts(&m, r, false) && add_parts(&m, from, true);
    return make(&m, is_good, e);
}

struct sp_rules *sp_rules_in_doubt(struct sp_rules *r, struct sp_err *e)
{
    struct sp_rules_maker m = {.is_incomplete = true};

    if (r != NULL && !r->is_complete)
        return sp_rules_ref(r);
    const bool is_good = add_parts(&m, r, false);
    return make(&m, is_good, e);
}

/* ---- the fingerprint ---- */

struct lines {
    struct sp_str *items; /* each from malloc */
    uint32_t count, cap;
};

static bool take_line(struct lines *l, struct sp_buf *line)
{
    void *array = NULL;
    struct sp_str *place = sp_rules_grow(l->items, l->count, &l->cap, sizeof *place, &array);

    if (place == NULL)
        return false;
    l->items = array;
    *place = (struct sp_str){line->data, line->len};
    l->count++;
    *line = (struct sp_buf){0};
    return true;
}

static bool add_words(struct sp_buf *out, const struct sp_rules_element *x)
{
    bool is_good = sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; is_good && i < x->count; i++)
        is_good = (i == 0 || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, x->words[i]);
    return is_good && sp_buf_add(out, "]", 1);
}

static bool add_rule(struct lines *l, const struct sp_prefix_rule *rule)
{
    auto_buf struct sp_buf line = {0};
    const struct sp_rules_element first = {&rule->first, 1};
    bool is_good = sp_buf_printf(&line, "prefix %s ", sp_verdict_name(rule->verdict)) &&
                   add_words(&line, &first);

    for (uint32_t i = 0; is_good && i < rule->rest_count; i++)
        is_good = add_words(&line, &rule->rest[i]);
    return is_good && take_line(l, &line);
}

static bool add_network(struct lines *l, const struct sp_network_rule *rule)
{
    auto_buf struct sp_buf line = {0};

    return sp_buf_add_str(&line, SP_STR("network ")) && sp_buf_add_str(&line, rule->decision) &&
           sp_buf_add(&line, " ", 1) && sp_buf_add_str(&line, rule->protocol) &&
           sp_buf_add(&line, " ", 1) && sp_json_add_str(&line, rule->host) && take_line(l, &line);
}

static bool add_host(struct lines *l, const struct sp_host_executable *host)
{
    auto_buf struct sp_buf line = {0};
    const struct sp_rules_element paths = {host->paths, host->count};

    return sp_buf_add_str(&line, SP_STR("host ")) && sp_json_add_str(&line, host->name) &&
           add_words(&line, &paths) && take_line(l, &line);
}

static bool add_part(struct lines *l, const struct sp_rules_part *p)
{
    bool is_good = true;

    for (uint32_t i = 0; is_good && i < p->rule_count; i++)
        is_good = add_rule(l, &p->rules[i]);
    for (uint32_t i = 0; is_good && i < p->network_count; i++)
        is_good = add_network(l, &p->network[i]);
    for (uint32_t i = 0; is_good && i < p->host_count; i++)
        is_good = add_host(l, &p->hosts[i]);
    return is_good;
}

static int by_bytes(const void *a, const void *b)
{
    const struct sp_str *x = a;
    const struct sp_str *y = b;
    const int r = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return r != 0 ? r : (x->n > y->n) - (x->n < y->n);
}

static bool add_digest(struct sp_buf *out, struct lines *l)
{
    auto_buf struct sp_buf all = {0};
    uint8_t digest[32];
    bool is_good = true;

    if (l->count == 0)
        return true;
    qsort(l->items, l->count, sizeof *l->items, by_bytes);
    for (uint32_t i = 0; is_good && i < l->count; i++)
        is_good = sp_buf_add_str(&all, l->items[i]) && sp_buf_add(&all, "\n", 1);
    if (!is_good)
        return false;
    sp_sha256((struct sp_str){all.data, all.len}, digest);
    for (size_t i = 0; is_good && i < sizeof digest; i++)
        is_good = sp_buf_printf(out, "%02x", digest[i]);
    return is_good;
}

bool sp_rules_add_fingerprint(struct sp_buf *out, const struct sp_rules *r)
{
    struct lines l = {0};
    bool is_good = true;

    for (uint32_t i = 0; r != NULL && is_good && i < r->parts.count; i++)
        if (r->parts.items[i]->is_managed)
            is_good = add_part(&l, r->parts.items[i]);
    is_good = is_good && add_digest(out, &l);
    for (uint32_t i = 0; i < l.count; i++)
        free((char *)(uintptr_t)l.items[i].p);
    free(l.items);
    return is_good;
}
