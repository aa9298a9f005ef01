/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch: what would become of the files (approvals.md 14.3). Nothing is written here.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/patch_priv.h"
#include "base/auto.h"
#include "base/utf8.h"
#include "sandbox/resolve.h"

/* What changes point into. */
struct store {
    struct sp_patch_change *items;
    struct sp_buf *before, *after; /* of each */
    char *added;                   /* the contents of new files */
    char *words;                   /* paths as written */
    uint32_t count;
};

struct verifier {
    const struct sp_patch *patch;
    const char *cwd;
    bool keeps_endings;
    struct store *store;
    uint64_t steps, bytes; /* what is left of our bounds */
    struct sp_buf *why;
};

static void store_free(struct store *s)
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

static int no_memory(struct sp_error *e)
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

static struct store *store_new(const struct sp_patch *p)
{
    struct store *s = calloc(1, sizeof *s);
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
static const char *resolve(const struct verifier *v, struct sp_str path, struct sp_error *e)
{
    errno = 0;
    char *full = path.n < PATH_MAX ? sp_path_normalise(path.p, v->cwd) : NULL;

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

static int resolve_all(struct verifier *v, struct sp_error *e)
{
    for (uint32_t i = 0; i < v->store->count; i++) {
        struct sp_patch_change *c = &v->store->items[i];

        c->full_path = resolve(v, c->path, e);
        if (c->full_path == NULL)
            return -(int)e->code;
        if (c->move_to.p == NULL)
            continue;
        c->full_target = resolve(v, c->move_to, e);
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
static int refuse_twice(const struct verifier *v, struct sp_error *e)
{
    auto_free const char **paths = calloc((size_t)v->store->count * 2 + 1, sizeof *paths);
    size_t n = 0;

    if (paths == NULL)
        return no_memory(e);
    for (uint32_t i = 0; i < v->store->count; i++) {
        paths[n++] = v->store->items[i].full_path;
        if (v->store->items[i].full_target != NULL)
            paths[n++] = v->store->items[i].full_target;
    }
    qsort(paths, n, sizeof *paths, by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(paths[i - 1], paths[i]) == 0)
            return sp_fail(e, SP_E_INVALID, 0, "invalid patch: multiple operations target %s",
                           paths[i]);
    return 0;
}

/* ---- reading ---- */

/* A regular file of at most max bytes. -errno; EFBIG: it has more. */
static int read_file(const char *path, uint64_t max, struct sp_buf *out)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    for (;;) {
        const size_t want = 65536;
        char *room = sp_buf_room(out, want);
        const ssize_t n = room == NULL ? -1 : read(fd, room, want);

        if (room == NULL)
            return -ENOMEM;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        out->len += (size_t)n;
        if (out->len > max)
            return -EFBIG;
        if (n == 0)
            return 0;
    }
}

static struct sp_str text_of(const struct sp_buf *b)
{
    return b->len == 0 ? SP_STR("") : (struct sp_str){b->data, b->len};
}

static int unreadable(const char *path, int err, struct sp_error *e)
{
    if (err == EINVAL)
        return sp_fail(e, SP_E_FAILED, 0,
                       "Failed to read file to update %s: it is not a regular file", path);
    return sp_fail(e, SP_E_SYSTEM, err, "Failed to read file to update %s", path);
}

static int read_source(struct verifier *v, uint32_t i, struct sp_error *e)
{
    struct sp_patch_change *c = &v->store->items[i];
    struct sp_buf *text = &v->store->before[i];
    const uint64_t max = v->bytes < SP_PATCH_FILE_BYTES ? v->bytes : SP_PATCH_FILE_BYTES;
    const int r = read_file(c->full_path, max, text);

    if (r < 0)
        return unreadable(c->full_path, -r, e);
    c->before = text_of(text);
    v->bytes -= text->len;
    if (!sp_utf8_is_valid(c->before))
        return sp_fail(e, SP_E_FAILED, 0, "Failed to read file to update %s: it is not valid UTF-8",
                       c->full_path);
    return 0;
}

/* ---- each kind ---- */

static int check_target(const char *path, struct sp_error *e)
{
    struct stat st;

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return sp_fail(e, SP_E_FAILED, 0, "Failed to write file %s: %s", path,
                       S_ISDIR(st.st_mode) ? "Is a directory" : "it is not a regular file");
    return 0;
}

static int verify_update(struct verifier *v, uint32_t i, struct sp_error *e)
{
    struct sp_patch_change *c = &v->store->items[i];
    int r = read_source(v, i, e);

    if (r == 0)
        r = sp_patch_update(c->before, &v->patch->hunks[i], c->full_path, v->keeps_endings,
                            &v->steps, &v->store->after[i], v->why, e);
    if (r == 0 && c->full_target != NULL)
        r = check_target(c->full_target, e);
    if (r == 0)
        c->after = text_of(&v->store->after[i]);
    return r;
}

static int verify_delete(struct verifier *v, uint32_t i, struct sp_error *e)
{
    struct sp_patch_change *c = &v->store->items[i];
    struct sp_buf *text = &v->store->before[i];
    struct stat st;

    if (lstat(c->full_path, &st) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "Failed to delete file %s", c->full_path);
    if (S_ISLNK(st.st_mode) && stat(c->full_path, &st) < 0)
        return 0; /* it leads nowhere, and goes as it is */
    if (S_ISDIR(st.st_mode))
        return sp_fail(e, SP_E_FAILED, 0, "Failed to delete file %s: path is a directory",
                       c->full_path);
    const uint64_t max = v->bytes < SP_PATCH_SHOWN_BYTES ? v->bytes : SP_PATCH_SHOWN_BYTES;
    if (read_file(c->full_path, max, text) == 0 && sp_utf8_is_valid(text_of(text))) {
        c->before = text_of(text);
        v->bytes -= text->len;
    } else {
        sp_buf_done(text);
    }
    return 0;
}

static int verify_one(struct verifier *v, uint32_t i, struct sp_error *e)
{
    switch (v->store->items[i].kind) {
    case SP_PATCH_ADD:
        return check_target(v->store->items[i].full_path, e);
    case SP_PATCH_DELETE:
        return verify_delete(v, i, e);
    case SP_PATCH_UPDATE:
        return verify_update(v, i, e);
    }
    return sp_fail(e, SP_E_INVALID, 0, "invalid patch: an unknown kind of hunk");
}

int sp_patch_verify(const struct sp_patch *p, const char *cwd, bool keeps_line_endings,
                    struct sp_patch_changes *ret, struct sp_buf *ret_why, struct sp_error *e)
{
    struct sp_error own;
    struct verifier v = {
        .patch = p,
        .cwd = cwd,
        .keeps_endings = keeps_line_endings,
        .store = store_new(p),
        .steps = SP_PATCH_MAX_STEPS,
        .bytes = SP_PATCH_ALL_BYTES,
        .why = ret_why,
    };

    if (e == NULL)
        e = &own;
    if (v.store == NULL)
        return no_memory(e);
    int r = resolve_all(&v, e);
    if (r == 0)
        r = refuse_twice(&v, e);
    for (uint32_t i = 0; r == 0 && i < v.store->count; i++)
        r = verify_one(&v, i, e);
    if (r < 0) {
        store_free(v.store);
        return r;
    }
    *ret = (struct sp_patch_changes){v.store->items, v.store->count, v.store};
    return 0;
}
