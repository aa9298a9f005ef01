/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_verify: what a patch would do to its files. Nothing is written here.
 *
 * sp_patch_list makes the list of changes from the patch alone: kinds, absolute paths, contents of
 * new files. sp_patch_verify then reads the files and fills in the texts before and after.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/utf8.h"
#include "sandbox/resolve.h"

/* ---- the list of changes ---- */

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

/* Copies s, NUL-terminated, to *at and advances *at. */
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

/* Copies what the changes need of the patch, which may be freed before them. */
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

/* Absolute and lexically normal, to be freed; NULL with the reason in e. */
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
        if (strcmp(c->full_target, c->full_path) ==
            0) { /* the target is the file itself: not a move */
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

/* Hunks are verified against the files on disk, so no file may be touched by two of them. */
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

struct verifier {
    const struct sp_patch *patch;
    bool keeps_endings;
    const struct sp_patch_source *source;
    struct sp_patch_store *store;
    uint64_t steps, bytes; /* what is left of max_steps and max_all */
    struct sp_buf *why;
};

/* ---- reading the files ---- */

static int check_kind(const struct stat *st, uint64_t max)
{
    if (!S_ISREG(st->st_mode))
        return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
    return st->st_size > 0 && (uint64_t)st->st_size > max ? -EFBIG : 0;
}

/* stat comes first because opening a device can have side effects; O_NONBLOCK and fstat guard
 * against a file that is replaced in between. */
static int open_file(const char *path, uint64_t max)
{
    struct stat st;
    int r = stat(path, &st) < 0 ? -errno : check_kind(&st, max);

    if (r < 0)
        return r;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    r = check_kind(&st, max);
    return r < 0 ? r : TAKE_FD(fd);
}

static int read_disk(void *user, const char *path, uint64_t max, struct sp_buf *out)
{
    (void)user;
    auto_close int fd = open_file(path, max);

    if (fd < 0)
        return fd;
    return -sp_read_all(fd, max, out);
}

static int stat_disk(void *user, const char *path, enum sp_patch_there *ret)
{
    struct stat st;

    (void)user;
    if (lstat(path, &st) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode) && stat(path, &st) < 0)
        *ret = SP_PATCH_THERE_DANGLING;
    else
        *ret = S_ISREG(st.st_mode)   ? SP_PATCH_THERE_FILE
               : S_ISDIR(st.st_mode) ? SP_PATCH_THERE_DIR
                                     : SP_PATCH_THERE_OTHER;
    return 0;
}

static const struct sp_patch_source disk = {
    .stat = stat_disk,
    .read = read_disk,
    .max_file = SP_PATCH_FILE_BYTES,
    .max_all = SP_PATCH_ALL_BYTES,
    .max_steps = SP_PATCH_MAX_STEPS,
};

static int unreadable(const struct verifier *v, const char *path, int err, struct sp_err *e)
{
    if (err == EFBIG)
        return sp_fail(
            e, SP_E_LIMIT, 0,
            "Failed to read file to update %s: it is larger than %u MiB, or all files of "
            "the patch are larger than %u MiB",
            path, (unsigned)(v->source->max_file >> 20), (unsigned)(v->source->max_all >> 20));
    if (err == EINVAL)
        return sp_fail(e, SP_E_FAILED, 0,
                       "Failed to read file to update %s: it is not a regular file", path);
    return sp_fail(e, SP_E_SYSTEM, err, "Failed to read file to update %s", path);
}

static int read_source(struct verifier *v, uint32_t i, struct sp_err *e)
{
    struct sp_patch_change *c = &v->store->items[i];
    struct sp_buf *text = &v->store->before[i];
    const uint64_t max = v->bytes < v->source->max_file ? v->bytes : v->source->max_file;
    const int r = v->source->read(v->source->user, c->full_path, max, text);

    if (r < 0)
        return unreadable(v, c->full_path, -r, e);
    c->before = sp_buf_str(text);
    v->bytes -= text->len;
    if (!sp_utf8_is_valid(c->before))
        return sp_fail(e, SP_E_FAILED, 0, "Failed to read file to update %s: it is not valid UTF-8",
                       c->full_path);
    return 0;
}

/* ---- each kind ---- */

static int check_target(const struct verifier *v, const char *path, struct sp_err *e)
{
    enum sp_patch_there there = SP_PATCH_THERE_DANGLING;

    if (v->source->stat(v->source->user, path, &there) == 0 &&
        (there == SP_PATCH_THERE_DIR || there == SP_PATCH_THERE_OTHER))
        return sp_fail(e, SP_E_FAILED, 0, "Failed to write file %s: %s", path,
                       there == SP_PATCH_THERE_DIR ? "Is a directory" : "it is not a regular file");
    return 0;
}

static int verify_update(struct verifier *v, uint32_t i, struct sp_err *e)
{
    struct sp_patch_change *c = &v->store->items[i];
    int r = read_source(v, i, e);

    if (r == 0)
        r = sp_patch_update(c->before, &v->patch->hunks[i], c->full_path, v->keeps_endings,
                            &v->steps, &v->store->after[i], v->why, e);
    if (r == 0 && c->full_target != NULL)
        r = check_target(v, c->full_target, e);
    if (r == 0)
        c->after = sp_buf_str(&v->store->after[i]);
    return r;
}

static int verify_delete(struct verifier *v, uint32_t i, struct sp_err *e)
{
    struct sp_patch_change *c = &v->store->items[i];
    struct sp_buf *text = &v->store->before[i];
    enum sp_patch_there there = SP_PATCH_THERE_DANGLING;
    const int r = v->source->stat(v->source->user, c->full_path, &there);

    if (r < 0)
        return sp_fail(e, SP_E_SYSTEM, -r, "Failed to delete file %s", c->full_path);
    if (there == SP_PATCH_THERE_DANGLING)
        return 0; /* a dangling link is deleted as a link */
    if (there == SP_PATCH_THERE_DIR)
        return sp_fail(e, SP_E_FAILED, 0, "Failed to delete file %s: path is a directory",
                       c->full_path);
    /* Only for the question, so a file that cannot be shown is no error. */
    const uint64_t max = v->bytes < SP_PATCH_SHOWN_BYTES ? v->bytes : SP_PATCH_SHOWN_BYTES;
    if (v->source->read(v->source->user, c->full_path, max, text) == 0 &&
        sp_utf8_is_valid(sp_buf_str(text))) {
        c->before = sp_buf_str(text);
        v->bytes -= text->len;
    } else {
        sp_buf_done(text);
    }
    return 0;
}

int sp_patch_verify(const struct sp_patch *p, const char *cwd, bool keeps_line_endings,
                    const struct sp_patch_source *source, struct sp_patch_changes *ret,
                    struct sp_buf *ret_why, struct sp_err *e)
{
    struct sp_patch_changes found = {0};
    int r = sp_patch_list(p, cwd, &found, e);
    struct verifier v = {
        .patch = p,
        .keeps_endings = keeps_line_endings,
        .source = source != NULL ? source : &disk,
        .store = found.impl,
        .why = ret_why,
    };
    v.steps = v.source->max_steps;
    v.bytes = v.source->max_all;
    for (uint32_t i = 0; r == 0 && i < found.count; i++) {
        switch (found.items[i].kind) {
        case SP_PATCH_ADD:
            r = check_target(&v, found.items[i].full_path, e);
            break;
        case SP_PATCH_DELETE:
            r = verify_delete(&v, i, e);
            break;
        case SP_PATCH_UPDATE:
            r = verify_update(&v, i, e);
            break;
        }
    }
    if (r < 0)
        sp_patch_changes_done(&found);
    else
        *ret = found;
    return r;
}
