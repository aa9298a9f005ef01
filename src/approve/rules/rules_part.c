/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a set of rules: each what one text says. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "approve/rules/rules_priv.h"
#include "base/auto.h"
#include "base/utf8.h"

/* ---- parts ---- */

struct sp_rules_part *sp_rules_part_new(const char *name)
{
    struct sp_rules_part *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->refs = 1;
    p->name = strdup(name);
    if (p->name == NULL) {
        free(p);
        return NULL;
    }
    return p;
}

bool sp_rules_part_set_file(struct sp_rules_part *p, const char *path)
{
    auto_free char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);

    if (path[0] != '/' && here == NULL)
        return false;
    if (asprintf(&p->file, "%s%s%s", here == NULL ? "" : here, here == NULL ? "" : "/", path) < 0)
        p->file = NULL;
    return p->file != NULL;
}

struct sp_rules_part *sp_rules_part_ref(struct sp_rules_part *p)
{
    p->refs++;
    return p;
}

void sp_rules_part_unref(struct sp_rules_part *p)
{
    if (p == NULL || --p->refs > 0)
        return;
    sp_arena_done(&p->arena);
    free(p->name);
    free(p->file);
    free(p->rules);
    free(p->hosts);
    free(p->network);
    free(p);
}

void *sp_rules_grow(void *array, uint32_t count, uint32_t *cap, size_t size, void **ret_array)
{
    *ret_array = array;
    if (count == *cap) {
        const uint32_t more = *cap == 0 ? 8 : *cap * 2;
        void *bigger = more <= *cap ? NULL : realloc(array, (size_t)more * size);

        if (bigger == NULL)
            return NULL;
        *ret_array = bigger;
        *cap = more;
    }
    return (char *)*ret_array + count * size;
}

bool sp_rules_parts_add(struct sp_rules_parts *l, struct sp_rules_part *p)
{
    void *array = NULL;
    struct sp_rules_part **place =
        sp_rules_grow(l->items, l->count, &l->cap, sizeof(struct sp_rules_part *), &array);

    if (place == NULL)
        return false;
    l->items = array;
    *place = sp_rules_part_ref(p);
    l->count++;
    return true;
}

void sp_rules_parts_done(struct sp_rules_parts *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        sp_rules_part_unref(l->items[i]);
    free(l->items);
    *l = (struct sp_rules_parts){0};
}

/* ---- a text ---- */

static bool check_bytes(struct sp_rules_reader *r)
{
    const size_t valid = sp_utf8_valid_prefix(r->text);
    const char *nul = r->text.n == 0 ? NULL : memchr(r->text.p, 0, r->text.n);

    if (r->text.n > SP_RULES_MAX_BYTES)
        return sp_rules_fail(r, r->text.p, "the file has more than %d bytes", SP_RULES_MAX_BYTES);
    if (nul != NULL && (size_t)(nul - r->text.p) <= valid)
        return sp_rules_fail(r, nul, "a NUL byte");
    if (valid != r->text.n)
        return sp_rules_fail(r, r->text.p + valid, "not valid UTF-8");
    return true;
}

int sp_rules_read_part(const struct sp_rules_parts *before, const char *name, struct sp_str text,
                       void (*tell)(void *user, const char *text), void *user,
                       struct sp_rules_part **ret, struct sp_err *e)
{
    struct sp_err unheard = {0};
    struct sp_rules_reader r = {.name = name,
                                .text = text,
                                .p = text.p,
                                .before = before,
                                .part = sp_rules_part_new(name),
                                .tell = tell,
                                .user = user,
                                .e = e == NULL ? &unheard : e};

    if (r.text.n == 0)
        r.text.p = r.p = "";
    if (r.part == NULL)
        (void)sp_rules_no_memory(&r);
    else if (check_bytes(&r) && sp_rules_read_file(&r))
        (void)sp_rules_check_examples(&r);
    sp_arena_done(&r.scratch);
    sp_rules_table_done(&r.names);
    free(r.named);
    free(r.examples);
    if (r.faults > 0) {
        sp_rules_part_unref(r.part);
        return -(int)r.e->code;
    }
    *ret = r.part;
    return 0;
}
