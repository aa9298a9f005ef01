/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch: what a patch says of its files before any of them is looked at, and where what is found
 * out about them is kept.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"
#include "sandbox/resolve.h"

static void store_free(struct sp_patch_store *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->count; i++) {
        sp_buf_done(&s->before[i]);
        sp_buf_done(&s->after[i]);
        free((void *)(uintptr_t)s->items[i].full_path);
        free((void *)(uintptr_t)s->items[i].full_target);
    }
    free(s->items);
    free(s->before);
    free(s->after);
    free(s->words);
    free(s->added);
    free(s);
}

void sp_patch_changes_done(struct sp_patch_changes *c)
{
    if (c == NULL)
        return;
    store_free(c->impl);
    *c = (struct sp_patch_changes){0};
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "verify a patch");
}

/* ---- paths and contents outlive the patch ---- */

static struct sp_str keep(char **at, struct sp_str s)
{
    char *p = *at;

    if (s.p == NULL)
        return s;
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    p[s.n] = 0;
    *at += s.n + 1;
    return (struct sp_str){p, s.n};
}

static struct sp_patch_store *store_new(const struct sp_patch *p)
{
    struct sp_patch_store *s = calloc(1, sizeof *s);
    size_t words = 1;
    size_t added = 1;

    if (s == NULL)
        return NULL;
    for (uint32_t i = 0; i < p->hunk_count; i++) {
        words += p->hunks[i].path.n + p->hunks[i].move_to.n + 2;
        added += p->hunks[i].content.n + 1;
    }
    s->items = calloc((size_t)p->hunk_count + 1, sizeof *s->items);
    s->before = calloc((size_t)p->hunk_count + 1, sizeof *s->before);
    s->after = calloc((size_t)p->hunk_count + 1, sizeof *s->after);
    s->words = malloc(words);
    s->added = malloc(added);
    if (s->items == NULL || s->before == NULL || s->after == NULL || s->words == NULL ||
        s->added == NULL) {
        store_free(s);
        return NULL;
    }
    s->count = p->hunk_count;
    char *word = s->words;
    char *text = s->added;
    for (uint32_t i = 0; i < p->hunk_count; i++) {
        const struct sp_patch_hunk *h = &p->hunks[i];

        s->items[i].kind = h->kind;
        s->items[i].path = keep(&word, h->path);
        s->items[i].move_to = keep(&word, h->move_to);
        if (h->kind == SP_PATCH_ADD)
            s->items[i].after = keep(&text, h->content);
    }
    return s;
}

/* Absolute and normal, or NULL with the reason in e. */
static const char *resolve(const char *cwd, struct sp_str path, struct sp_err *e)
{
    errno = 0;
    char *full = path.n < PATH_MAX ? sp_path_normalise(path.p, cwd) : NULL;

    if (full != NULL && strlen(full) < PATH_MAX)
        return full;
    if (full == NULL && errno == ENOMEM) {
        (void)no_memory(e);
        return NULL;
    }
    free(full);
    (void)sp_fail(e, SP_E_INVALID, 0,
                  "invalid patch: the path '" SP_STR_FMT "' is too long or cannot be made absolute",
                  SP_STR_ARG(sp_patch_cut(path, 100)));
    return NULL;
}

static int resolve_all(struct sp_patch_store *s, const char *cwd, struct sp_err *e)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct sp_patch_change *c = &s->items[i];

        c->full_path = resolve(cwd, c->path, e);
        if (c->full_path == NULL)
            return -(int)e->code;
        if (c->move_to.p == NULL)
            continue;
        c->full_target = resolve(cwd, c->move_to, e);
        if (c->full_target == NULL)
            return -(int)e->code;
        if (strcmp(c->full_target, c->full_path) == 0) { /* to where it is: no move */
            free((void *)(uintptr_t)c->full_target);
            c->full_target = NULL;
        }
    }
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What a hunk finds must be what is there: no file is touched by two. */
static int refuse_twice(const struct sp_patch_store *s, struct sp_err *e)
{
    auto_free const char **paths = calloc((size_t)s->count * 2 + 1, sizeof *paths);
    size_t n = 0;

    if (paths == NULL)
        return no_memory(e);
    for (uint32_t i = 0; i < s->count; i++) {
        paths[n++] = s->items[i].full_path;
        if (s->items[i].full_target != NULL)
            paths[n++] = s->items[i].full_target;
    }
    qsort(paths, n, sizeof *paths, by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(paths[i - 1], paths[i]) == 0)
            return sp_fail(e, SP_E_INVALID, 0, "invalid patch: multiple operations target %s",
                           paths[i]);
    return 0;
}

int sp_patch_list(const struct sp_patch *p, const char *cwd, struct sp_patch_changes *ret,
                  struct sp_err *e)
{
    struct sp_patch_store *s = store_new(p);
    struct sp_err own;

    if (e == NULL)
        e = &own;
    if (s == NULL)
        return no_memory(e);
    int r = resolve_all(s, cwd, e);
    if (r == 0)
        r = refuse_twice(s, e);
    if (r < 0)
        store_free(s);
    else
        *ret = (struct sp_patch_changes){s->items, s->count, s};
    return r;
}
