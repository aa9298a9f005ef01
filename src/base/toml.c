/* SPDX-License-Identifier: Apache-2.0 */
/* The text as a whole: its tree, and what is said about it. */
#include "base/toml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/toml_priv.h"
#include "base/utf8.h"

#define FIRST_SLOTS 64 /* a power of two, as all sizes of the index */

/* ---- messages ---- */

/* Lines by LF, columns by characters; both from 1. */
static void find_place(struct sp_str text, size_t at, uint32_t *ret_line, uint32_t *ret_column)
{
    uint32_t line = 1;
    uint32_t column = 1;

    for (size_t i = 0; i < at && i < text.n; i++) {
        if (text.p[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text.p[i] & 0xC0) != 0x80) {
            column++;
        }
    }
    *ret_line = line;
    *ret_column = column;
}

/* Names are shown in part: where a character was cut there is a question mark. */
static void make_valid(char *story)
{
    size_t n = sp_utf8_valid_prefix(sp_str_of(story));

    while (story[n] != 0) {
        story[n] = '?';
        n = sp_utf8_valid_prefix(sp_str_of(story));
    }
}

static int refuse(const struct sp_toml *doc, size_t at, struct sp_err *e, const char *fmt,
                  va_list args)
{
    char story[sizeof e->msg];
    uint32_t line;
    uint32_t column;

    (void)vsnprintf(story, sizeof story, fmt, args); /* cut: it is a message */
    make_valid(story);
    if (doc->has_no_places)
        return sp_fail(e, SP_E_INVALID, 0, "%s: %s", doc->name, story);
    find_place(doc->text, at, &line, &column);
    return sp_fail(e, SP_E_INVALID, 0, "%s: line %u, column %u: %s", doc->name, line, column,
                   story);
}

bool sp_toml_fail(struct sp_toml_reader *r, const char *at, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)refuse(r->doc, (size_t)(at - r->doc->text.p), r->e, fmt, args);
    va_end(args);
    return false;
}

bool sp_toml_no_memory(struct sp_toml_reader *r)
{
    (void)sp_fail(r->e, SP_E_SYSTEM, ENOMEM, "read %s", r->doc->name);
    return false;
}

int sp_toml_refuse(const struct sp_toml_value *v, struct sp_err *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    const int r = refuse(v->doc, v->at, e, fmt, args);
    va_end(args);
    return r;
}

int sp_toml_refuse_key(const struct sp_toml_value *v, struct sp_err *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    const int r = refuse(v->doc, v->key_at, e, fmt, args);
    va_end(args);
    return r;
}

const char *sp_toml_type_name(enum sp_toml_type type)
{
    static const char *const names[] = {
        [SP_TOML_STRING] = "a string",
        [SP_TOML_INTEGER] = "an integer",
        [SP_TOML_FLOAT] = "a float",
        [SP_TOML_BOOLEAN] = "a boolean",
        [SP_TOML_OFFSET_DATE_TIME] = "a date and time",
        [SP_TOML_LOCAL_DATE_TIME] = "a date and time",
        [SP_TOML_LOCAL_DATE] = "a date",
        [SP_TOML_LOCAL_TIME] = "a time",
        [SP_TOML_ARRAY] = "an array",
        [SP_TOML_TABLE] = "a table",
    };

    return names[type];
}

/* ---- the index of keys ---- */

/* The slot of this key of this table: taken by it, or free. */
static struct sp_toml_value **slot_of(struct sp_toml_value **slots, uint32_t count,
                                      const struct sp_toml_value *table, struct sp_str key)
{
    const struct sp_hash of_key = sp_hash(key);
    const uint64_t of_table = (uint64_t)(uintptr_t)table * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t i = (uint32_t)((of_key.a ^ of_table >> 17) & (count - 1));

    while (slots[i] != NULL && (slots[i]->parent != table || !sp_str_eq(slots[i]->key, key)))
        i = (i + 1) & (count - 1);
    return &slots[i];
}

static bool grow_index(struct sp_toml_reader *r)
{
    const uint32_t count = r->slot_count == 0 ? FIRST_SLOTS : r->slot_count * 2;
    struct sp_toml_value **slots = calloc(count, sizeof(struct sp_toml_value *));

    if (slots == NULL)
        return sp_toml_no_memory(r);
    for (uint32_t i = 0; i < r->slot_count; i++)
        if (r->slots[i] != NULL)
            *slot_of(slots, count, r->slots[i]->parent, r->slots[i]->key) = r->slots[i];
    free(r->slots);
    r->slots = slots;
    r->slot_count = count;
    return true;
}

struct sp_toml_value *sp_toml_find(const struct sp_toml_reader *r,
                                   const struct sp_toml_value *table, struct sp_str key)
{
    return r->slot_count == 0 ? NULL : *slot_of(r->slots, r->slot_count, table, key);
}

/* ---- the tree ---- */

static void append(struct sp_toml_value *parent, struct sp_toml_value *v)
{
    v->next = NULL;
    if (parent->last == NULL)
        parent->first = v;
    else
        parent->last->next = v;
    parent->last = v;
    parent->count++;
}

struct sp_toml_value *sp_toml_add(struct sp_toml_reader *r, struct sp_toml_value *parent,
                                  struct sp_str key, const char *key_at)
{
    if (r->values == SP_TOML_MAX_VALUES) {
        (void)sp_toml_fail(r, key_at, "more than %d values", SP_TOML_MAX_VALUES);
        return NULL;
    }
    struct sp_toml_value *v = sp_arena_new(&r->doc->arena, sizeof *v);
    if (v == NULL) {
        (void)sp_toml_no_memory(r);
        return NULL;
    }
    v->doc = r->doc;
    v->key = key;
    v->at = v->key_at = (uint32_t)(key_at - r->doc->text.p);
    v->parent = parent;
    v->depth = parent->depth + 1;
    if (key.p != NULL) {
        if (r->keyed >= r->slot_count / 2 && !grow_index(r))
            return NULL;
        *slot_of(r->slots, r->slot_count, parent, key) = v;
        r->keyed++;
    }
    append(parent, v);
    r->values++;
    return v;
}

bool sp_toml_become(struct sp_toml_reader *r, struct sp_toml_value *v, enum sp_toml_type type,
                    uint8_t made)
{
    if (v->depth > SP_TOML_MAX_DEPTH)
        return sp_toml_fail(r, r->doc->text.p + v->at, "more than %d tables and arrays deep",
                            SP_TOML_MAX_DEPTH);
    v->type = type;
    v->made = made;
    v->section = r->section;
    return true;
}

struct sp_toml_value *sp_toml_get(const struct sp_toml_value *table, struct sp_str key)
{
    for (struct sp_toml_value *v = table->first; v != NULL; v = v->next)
        if (sp_str_eq(v->key, key))
            return v;
    return NULL;
}

/* Puts `by` where `old` was. */
static void replace(struct sp_toml_value *table, const struct sp_toml_value *old,
                    struct sp_toml_value *by)
{
    struct sp_toml_value **link = &table->first;

    while (*link != old)
        link = &(*link)->next;
    by->next = old->next;
    *link = by;
    if (table->last == old)
        table->last = by;
}

void sp_toml_merge(struct sp_toml_value *table, struct sp_toml_value *over)
{
    struct sp_toml_value *next;

    for (struct sp_toml_value *v = over->first; v != NULL; v = next) {
        struct sp_toml_value *old = sp_toml_get(table, v->key);

        next = v->next;
        if (old == NULL)
            append(table, v);
        else if (old->type == SP_TOML_TABLE && v->type == SP_TOML_TABLE)
            sp_toml_merge(old, v);
        else
            replace(table, old, v);
    }
    over->first = over->last = NULL;
    over->count = 0;
}

/* ---- the whole text ---- */

void sp_toml_done(struct sp_toml *t)
{
    sp_arena_done(&t->arena);
    *t = (struct sp_toml){0};
}

static bool read_all(struct sp_toml_reader *r, struct sp_str text)
{
    struct sp_toml *doc = r->doc;

    if (text.n > SP_TOML_MAX_BYTES) {
        (void)sp_fail(r->e, SP_E_INVALID, 0, "%s: more than %d bytes", doc->name,
                      SP_TOML_MAX_BYTES);
        return false;
    }
    const char *copy = sp_arena_copy(&doc->arena, text);
    doc->root = sp_arena_new(&doc->arena, sizeof *doc->root);
    if (copy == NULL || doc->root == NULL)
        return sp_toml_no_memory(r);
    doc->text = (struct sp_str){copy, text.n};
    doc->root->type = SP_TOML_TABLE;
    doc->root->doc = doc;
    r->p = copy;
    r->end = copy + text.n;
    const size_t good = sp_utf8_valid_prefix(doc->text); /* the copy: nobody changes it */
    if (good != text.n)
        return sp_toml_fail(r, copy + good, "not UTF-8");
    return sp_toml_read_document(r);
}

int sp_toml_parse(struct sp_toml *t, const char *name, struct sp_str text, struct sp_err *e)
{
    struct sp_err own = {0};
    struct sp_toml_reader r = {.doc = t, .e = e == NULL ? &own : e};

    t->name = sp_arena_copy(&t->arena, sp_str_of(name));
    if (t->name == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", name);
    const bool is_read = read_all(&r, text);
    free(r.slots);
    if (is_read)
        return 0;
    sp_toml_done(t);
    return -(int)r.e->code;
}
