/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_verify: what a patch would do to its files. Nothing is written here.
 *
 * sp_patch_list makes the list of changes from the patch alone: kinds, absolute paths, contents of
 * new files. sp_patch_verify then reads the files and fills in the texts before and after.
 *
 * The chunks of a hunk are located one after the other, each behind the previous one. They give a
 * list of edits that do not overlap, and the new text is the old text with these applied in one
 * pass. Lines are compared at four levels: exact, end trimmed, both ends trimmed, folded to ASCII.
 * What is compared are keyed hashes, made once per file and level. A chunk with a line that does
 * not occur in the rest of the file costs only the hashes of its own lines; otherwise the
 * Knuth-Morris-Pratt search inspects each remaining line once.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/utf8.h"
#include "sandbox/resolve.h"

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "verify a patch");
}

/* ---- where a run of lines is in a file ---- */

/* The ASCII form of a typographic dash, quote or space; *ret_len is its length in bytes. 0:
 * keep. */
static char ascii_of(const unsigned char *p, size_t n, size_t *ret_len)
{
    *ret_len = 3;
    if (n >= 2 && p[0] == 0xC2 && p[1] == 0xA0) {
        *ret_len = 2;
        return ' ';
    }
    if (n < 3)
        return 0;
    if (p[0] == 0xE2 && p[1] == 0x80) {
        if (p[2] >= 0x90 && p[2] <= 0x95)
            return '-';
        if (p[2] >= 0x98 && p[2] <= 0x9B)
            return '\'';
        if (p[2] >= 0x9C && p[2] <= 0x9F)
            return '"';
        return (p[2] >= 0x82 && p[2] <= 0x8A) || p[2] == 0xAF ? ' ' : 0;
    }
    if (p[0] == 0xE2 && p[1] == 0x88 && p[2] == 0x92)
        return '-';
    if (p[0] == 0xE2 && p[1] == 0x81 && p[2] == 0x9F)
        return ' ';
    return p[0] == 0xE3 && p[1] == 0x80 && p[2] == 0x80 ? ' ' : 0;
}

bool sp_patch_add_folded(struct sp_buf *out, struct sp_str s)
{
    /* Folding never makes a text longer. */
    char *to = sp_buf_room(out, s.n);

    if (to == NULL && s.n > 0)
        return false;
    for (size_t i = 0; i < s.n;) {
        size_t len;
        const char c = ascii_of((const unsigned char *)s.p + i, s.n - i, &len);

        *to++ = c != 0 ? c : s.p[i];
        out->len++;
        i += c != 0 ? len : 1;
    }
    return true;
}

void sp_patch_lines_done(struct sp_patch_lines *l)
{
    for (int i = 0; i < SP_PATCH_LEVELS; i++) {
        free(l->levels[i].keys);
        free(l->levels[i].last);
        l->levels[i] = (struct sp_patch_level){0};
    }
    sp_buf_done(&l->scratch);
}

static bool is_same(struct sp_hash a, struct sp_hash b)
{
    return a.a == b.a && a.b == b.b;
}

static bool make_key(struct sp_patch_lines *l, int level, struct sp_str line, struct sp_hash *ret)
{
    if (level == 1)
        line = sp_utf8_trim_end(line);
    if (level >= 2)
        line = sp_utf8_trim(line);
    if (level == 3) {
        l->scratch.len = 0;
        if (!sp_patch_add_folded(&l->scratch, line))
            return false;
        line = (struct sp_str){l->scratch.data, l->scratch.len};
    }
    *ret = sp_hash(line.n == 0 ? SP_STR("") : line);
    return true;
}

static uint32_t *slot_of(const struct sp_patch_level *v, struct sp_hash key)
{
    uint32_t at = (uint32_t)key.a & v->mask;

    while (v->last[at] != 0 && !is_same(v->keys[v->last[at] - 1], key))
        at = (at + 1) & v->mask;
    return &v->last[at];
}

static bool make_level(struct sp_patch_lines *l, int level)
{
    struct sp_patch_level *v = &l->levels[level];
    uint32_t size = 16;

    if (v->keys != NULL)
        return true;
    while (size < 2 * l->count) /* no overflow: a file has at most SP_PATCH_MAX_LINES */
        size *= 2;
    auto_free struct sp_hash *keys = calloc((size_t)l->count + 1, sizeof *keys);
    auto_free uint32_t *last = calloc(size, sizeof *last);
    if (keys == NULL || last == NULL)
        return false;
    for (uint32_t i = 0; i < l->count; i++)
        if (!make_key(l, level, l->items[i], &keys[i]))
            return false;
    *v = (struct sp_patch_level){TAKE_PTR(keys), TAKE_PTR(last), size - 1};
    for (uint32_t i = 0; i < l->count; i++)
        *slot_of(v, v->keys[i]) = i + 1;
    return true;
}

/* The lines of a chunk, prepared for one search. */
struct pattern {
    struct sp_hash *keys;
    uint32_t *borders; /* the failure table of Knuth, Morris and Pratt: the longest proper border of
                          each prefix */
    uint32_t count;
};

/* Finds the lines at one level of likeness, with the algorithm of Knuth, Morris and Pratt. *ret
 * stays as it is if they are not there. */
static int find_at_level(struct sp_patch_lines *l, int level, const struct sp_str *lines,
                         struct pattern *p, uint32_t from, uint32_t *ret, struct sp_err *e)
{
    const struct sp_patch_level *v = &l->levels[level];
    uint32_t have = 0; /* lines of the pattern that match so far */
    uint32_t at = from;

    if (!make_level(l, level))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "compare lines");
    for (uint32_t i = 0; i < p->count; i++)
        if (!make_key(l, level, lines[i], &p->keys[i]))
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "compare lines");
    for (uint32_t i = 0; i < p->count; i++) /* a line that does not occur far enough behind */
        if (*slot_of(v, p->keys[i]) < from + i + 1)
            return 0;
    p->borders[0] = 0;
    for (uint32_t i = 1; i < p->count; i++) {
        while (have > 0 && !is_same(p->keys[i], p->keys[have]))
            have = p->borders[have - 1];
        have += is_same(p->keys[i], p->keys[have]);
        p->borders[i] = have;
    }
    for (have = 0; at < l->count && have < p->count; at++) {
        while (have > 0 && !is_same(v->keys[at], p->keys[have]))
            have = p->borders[have - 1];
        have += is_same(v->keys[at], p->keys[have]);
    }
    if (have == p->count)
        *ret = at - p->count;
    const uint64_t steps = (uint64_t)(at - from) + p->count;
    if (*l->steps < steps)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "the patch is too repetitive: make its chunks larger and fewer");
    *l->steps -= steps;
    return 0;
}

int sp_patch_find(struct sp_patch_lines *l, const struct sp_str *pattern, uint32_t count,
                  uint32_t start, bool is_at_end, uint32_t *ret, struct sp_err *e)
{
    *ret = count == 0 ? start : SP_PATCH_NOT_FOUND;
    if (count == 0 || count > l->count || start > l->count - count)
        return 0;

    const uint32_t from = is_at_end ? l->count - count : start;
    auto_free struct sp_hash *keys = calloc(count, sizeof *keys);
    auto_free uint32_t *borders = calloc(count, sizeof *borders);
    struct pattern p = {keys, borders, count};
    int r = keys == NULL || borders == NULL ? sp_fail(e, SP_E_SYSTEM, ENOMEM, "compare lines") : 0;

    for (int level = 0; r == 0 && *ret == SP_PATCH_NOT_FOUND && level < SP_PATCH_LEVELS; level++)
        r = find_at_level(l, level, pattern, &p, from, ret, e);
    return r;
}

/* ---- the lines of the file ---- */

/* Replace old_count lines from `start` on. */
struct edit {
    uint32_t start, old_count; /* lines of the file */
    const struct sp_str *lines;
    uint32_t new_count;
    uint32_t order;
};

struct update {
    struct sp_str before;
    const char *path;
    bool keeps_endings;
    struct sp_str *items;
    struct sp_patch_lines lines;
    struct edit *edits;
    uint32_t edit_count, edit_cap;
    struct sp_str ending; /* the line ending that new lines get */
    struct sp_buf *why;
};

/* The length of the line ending at p; 0: none. Only LF counts unless endings are kept. */
static size_t ending_at(const struct update *u, const char *p, const char *end)
{
    if (p == end)
        return 0;
    if (!u->keeps_endings || *p == '\n')
        return *p == '\n';
    return *p != '\r' ? 0 : p + 1 < end && p[1] == '\n' ? 2 : 1;
}

/* How often each line ending occurs, and the first: '\n', '\r' or '2' (CR LF). */
struct endings {
    uint32_t lf, crlf, cr;
    char first;
};

/* The ending that most lines have; on a tie the one that occurs first in the file. */
static struct sp_str majority(const struct endings *n)
{
    const uint32_t most = n->lf > n->crlf ? n->lf : n->crlf;
    const uint32_t top = most > n->cr ? most : n->cr;

    if (top == 0 || (n->lf == top && (n->first == '\n' || (n->crlf < top && n->cr < top))))
        return SP_STR("\n");
    if (n->crlf == top && (n->first == '2' || n->cr < top))
        return SP_STR("\r\n");
    return n->cr == top ? SP_STR("\r") : SP_STR("\n");
}

/* Returns the number of lines; fills items and endings unless they are NULL. */
static uint64_t split(struct update *u, struct sp_str *items, struct endings *endings)
{
    const char *p = u->before.p;
    const char *end = p + u->before.n;
    uint64_t count = 0;

    while (p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        const char *stop = lf == NULL ? end : lf;
        const char *cr = u->keeps_endings ? memchr(p, '\r', (size_t)(stop - p)) : NULL;

        stop = cr == NULL ? stop : cr;
        const size_t len = ending_at(u, stop, end);

        if (items != NULL)
            items[count] = (struct sp_str){p, (size_t)(stop - p)};
        if (endings != NULL && len > 0) {
            const char kind = len == 2 ? '2' : *stop;

            ++*(kind == '2' ? &endings->crlf : kind == '\r' ? &endings->cr : &endings->lf);
            if (endings->first == 0)
                endings->first = kind;
        }
        count++;
        p = stop + len;
    }
    return count;
}

static int read_lines(struct update *u, struct sp_err *e)
{
    struct endings endings = {0};
    const uint64_t count = split(u, NULL, &endings);

    if (count > SP_PATCH_MAX_LINES)
        return sp_fail(e, SP_E_LIMIT, 0, "Failed to read file to update %s: more than %u lines",
                       u->path, SP_PATCH_MAX_LINES);
    u->items = calloc(count + 1, sizeof *u->items);
    if (u->items == NULL)
        return no_memory(e);
    (void)split(u, u->items, NULL);
    u->lines.items = u->items;
    u->lines.count = (uint32_t)count;
    u->ending = u->keeps_endings ? majority(&endings) : SP_STR("\n");
    return 0;
}

/* ---- edits ---- */

static bool add_edit(struct update *u, struct edit edit)
{
    if (!SP_GROW(u->edits, u->edit_count, u->edit_cap))
        return false;
    edit.order = u->edit_count;
    u->edits[u->edit_count++] = edit;
    return true;
}

/* A chunk with its place in the file. */
struct found {
    uint32_t start;
    const struct sp_str *old_lines, *new_lines;
    uint32_t old_count, new_count;
};

/* One edit for each run between context lines, which stay as the file has them. A context line is
 * in both lists, with the same p. */
static bool add_between_context(struct update *u, const struct found *f)
{
    uint32_t old_at = 0;
    uint32_t new_at = 0;
    bool ok = true;

    while (ok && (old_at < f->old_count || new_at < f->new_count)) {
        uint32_t olds = old_at;
        uint32_t news = new_at;

        /* Both lists are in the order of the patch text, so comparing addresses finds the next line
         * that is in both. */
        while (olds < f->old_count || news < f->new_count) {
            const char *o = olds < f->old_count ? f->old_lines[olds].p : NULL;
            const char *n = news < f->new_count ? f->new_lines[news].p : NULL;

            if (o != NULL && o == n)
                break;
            if (n == NULL || (o != NULL && (uintptr_t)o < (uintptr_t)n))
                olds++;
            else
                news++;
        }
        if (olds > old_at || news > new_at)
            ok = add_edit(u, (struct edit){.start = f->start + old_at,
                                           .old_count = olds - old_at,
                                           .lines = f->new_lines + new_at,
                                           .new_count = news - new_at});
        old_at = olds + (olds < f->old_count);
        new_at = news + (news < f->new_count);
    }
    return ok;
}

static int lines_missing(const struct update *u, const struct sp_patch_chunk *c, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};
    bool ok = sp_buf_printf(&text, "Failed to find expected lines in %s:\n", u->path);

    for (uint32_t i = 0; ok && i < c->old_count; i++)
        ok = (i == 0 || sp_buf_add(&text, "\n", 1)) && sp_buf_add_str(&text, c->old_lines[i]);
    if (!ok || (u->why != NULL && !sp_buf_add(u->why, text.data, text.len)))
        return no_memory(e);
    return sp_fail(e, SP_E_FAILED, 0, SP_STR_FMT,
                   SP_STR_ARG(((struct sp_str){text.data, text.len})));
}

/* The old lines. If they are not found and the last is empty, try without it: it stood for the
 * newline at the end of the file. */
static int find_lines(struct update *u, const struct sp_patch_chunk *c, uint32_t position,
                      struct found *ret, struct sp_err *e)
{
    struct found f = {.old_lines = c->old_lines,
                      .new_lines = c->new_lines,
                      .old_count = c->old_count,
                      .new_count = c->new_count};
    int r = sp_patch_find(&u->lines, f.old_lines, f.old_count, position, c->is_at_end, &f.start, e);

    if (r == 0 && f.start == SP_PATCH_NOT_FOUND && f.old_lines[f.old_count - 1].n == 0) {
        f.old_count--;
        if (f.new_count > 0 && f.new_lines[f.new_count - 1].n == 0)
            f.new_count--;
        r = sp_patch_find(&u->lines, f.old_lines, f.old_count, position, c->is_at_end, &f.start, e);
    }
    *ret = f;
    return r;
}

static int place_chunk(struct update *u, const struct sp_patch_chunk *c, uint32_t *position,
                       struct sp_err *e)
{
    const uint32_t n = u->lines.count;
    struct found f = {0};
    uint32_t at;
    int r = 0;

    if (c->context.p != NULL) {
        r = sp_patch_find(&u->lines, &c->context, 1, *position, false, &at, e);
        if (r < 0)
            return r;
        if (at == SP_PATCH_NOT_FOUND) {
            if (u->why != NULL &&
                (!sp_buf_printf(u->why, "Failed to find context '") ||
                 !sp_buf_add_str(u->why, c->context) || !sp_buf_printf(u->why, "' in %s", u->path)))
                return no_memory(e);
            return sp_fail(e, SP_E_FAILED, 0, "Failed to find context '" SP_STR_FMT "' in %s",
                           SP_STR_ARG(sp_patch_cut(c->context, 200)), u->path);
        }
        *position = at + 1;
    }
    if (c->old_count == 0) {
        /* Goes to the end of the file, or before a final empty line that no chunk has used. */
        const bool is_before_last =
            !u->keeps_endings && n > 0 && u->items[n - 1].n == 0 && *position < n;
        const struct edit edit = {
            .start = is_before_last ? n - 1 : n, .lines = c->new_lines, .new_count = c->new_count};

        return add_edit(u, edit) ? 0 : no_memory(e);
    }
    r = find_lines(u, c, *position, &f, e);
    if (r < 0)
        return r;
    if (f.start == SP_PATCH_NOT_FOUND)
        return lines_missing(u, c, e);
    *position = f.start + f.old_count;
    const struct edit whole = {
        .start = f.start, .old_count = f.old_count, .lines = f.new_lines, .new_count = f.new_count};
    return (u->keeps_endings ? add_between_context(u, &f) : add_edit(u, whole)) ? 0 : no_memory(e);
}

static int by_place(const void *a, const void *b)
{
    const struct edit *x = a;
    const struct edit *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* ---- the new text ---- */

/* Copies lines [from, to) of the file; the last gets a line ending if it has none. */
static bool keep_lines(const struct update *u, struct sp_buf *out, uint32_t from, uint32_t to)
{
    const char *end = u->before.p + u->before.n;

    if (from >= to)
        return true;
    const struct sp_str last = u->items[to - 1];
    const char *stop = last.p + last.n;
    const size_t len = ending_at(u, stop, end);

    return sp_buf_add(out, u->items[from].p, (size_t)(stop + len - u->items[from].p)) &&
           (len > 0 || sp_buf_add_str(out, u->ending));
}

static bool write_text(const struct update *u, struct sp_buf *out)
{
    uint32_t at = 0;
    bool ok = true;

    for (uint32_t i = 0; ok && i < u->edit_count; i++) {
        const struct edit *edit = &u->edits[i];

        ok = keep_lines(u, out, at, edit->start);
        for (uint32_t k = 0; ok && k < edit->new_count; k++)
            ok = sp_buf_add_str(out, edit->lines[k]) && sp_buf_add_str(out, u->ending);
        at = edit->start + edit->old_count;
    }
    return ok && keep_lines(u, out, at, u->lines.count);
}

int sp_patch_update(struct sp_str before, const struct sp_patch_hunk *h, const char *full_path,
                    bool keeps_line_endings, uint64_t *steps, struct sp_buf *ret_after,
                    struct sp_buf *ret_why, struct sp_err *e)
{
    struct update u = {
        .before = before.n == 0 ? SP_STR("") : before,
        .path = full_path,
        .keeps_endings = keeps_line_endings,
        .lines = {.steps = steps},
        .why = ret_why,
    };
    uint32_t position = 0;
    int r = read_lines(&u, e);

    for (uint32_t i = 0; r == 0 && i < h->chunk_count; i++)
        r = place_chunk(&u, &h->chunks[i], &position, e);
    if (r == 0 && u.edit_count > 1)
        qsort(u.edits, u.edit_count, sizeof *u.edits, by_place);
    if (r == 0 && !write_text(&u, ret_after))
        r = no_memory(e);
    sp_patch_lines_done(&u.lines);
    free(u.edits);
    free(u.items);
    return r;
}

/* ---- the list of changes ---- */

static void store_free(struct sp_patch_store *s)
{
    for (uint32_t i = 0; s != NULL && i < s->count; i++) {
        sp_buf_done(&s->before[i]);
        sp_buf_done(&s->after[i]);
    }
    if (s != NULL)
        sp_arena_done(&s->arena);
    free(s);
}

void sp_patch_changes_done(struct sp_patch_changes *c)
{
    store_free(c->impl);
    *c = (struct sp_patch_changes){0};
}

/* Copies what the changes need of the patch, which may be freed before them. */
static struct sp_patch_store *store_new(const struct sp_patch *p)
{
    struct sp_patch_store *s = calloc(1, sizeof *s);
    const size_t room = (size_t)p->hunk_count + 1;

    if (s == NULL)
        return NULL;
    s->items = sp_arena_new(&s->arena, room * sizeof *s->items);
    s->before = sp_arena_new(&s->arena, room * sizeof *s->before);
    s->after = sp_arena_new(&s->arena, room * sizeof *s->after);
    bool ok = s->items != NULL && s->before != NULL && s->after != NULL;
    for (; ok && s->count < p->hunk_count; s->count++) {
        const struct sp_patch_hunk *h = &p->hunks[s->count];
        struct sp_patch_change *c = &s->items[s->count];

        c->kind = h->kind;
        ok = sp_arena_str(&s->arena, h->path, &c->path) &&
             sp_arena_str(&s->arena, h->move_to, &c->move_to) &&
             (h->kind != SP_PATCH_ADD || sp_arena_str(&s->arena, h->content, &c->after));
    }
    if (ok)
        return s;
    store_free(s);
    return NULL;
}

/* Absolute and lexically normal; NULL with the reason in e. */
static const char *resolve(struct sp_patch_store *s, const char *cwd, struct sp_str path,
                           struct sp_err *e)
{
    errno = 0;
    auto_free char *full = path.n < PATH_MAX ? sp_path_normalise(path.p, cwd) : NULL;
    const bool is_path = full != NULL && strlen(full) < PATH_MAX;
    const char *kept = is_path ? sp_arena_copy(&s->arena, sp_str_of(full)) : NULL;

    if (kept == NULL && (is_path || (full == NULL && errno == ENOMEM)))
        (void)no_memory(e);
    else if (kept == NULL)
        (void)sp_fail(e, SP_E_INVALID, 0,
                      "invalid patch: the path '" SP_STR_FMT
                      "' is too long or cannot be made absolute",
                      SP_STR_ARG(sp_patch_cut(path, 100)));
    return kept;
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
    int r = 0;

    if (e == NULL)
        e = &own;
    if (s == NULL)
        return no_memory(e);
    for (uint32_t i = 0; r == 0 && i < s->count; i++) {
        struct sp_patch_change *c = &s->items[i];

        c->full_path = resolve(s, cwd, c->path, e);
        if (c->full_path != NULL && c->move_to.p != NULL)
            c->full_target = resolve(s, cwd, c->move_to, e);
        if (c->full_path == NULL || (c->move_to.p != NULL && c->full_target == NULL))
            r = -(int)e->code;
        if (c->full_target != NULL && strcmp(c->full_target, c->full_path) == 0)
            c->full_target = NULL; /* the file itself: not a move */
    }
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
static int read_disk(void *user, const char *path, uint64_t max, struct sp_buf *out)
{
    struct stat st;
    int r = stat(path, &st) < 0 ? -errno : check_kind(&st, max);

    (void)user;
    if (r < 0)
        return r;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    r = check_kind(&st, max);
    return r < 0 ? r : -sp_read_all(fd, max, out);
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
    const struct sp_patch_source *source = v->source;
    struct sp_patch_change *c = &v->store->items[i];
    struct sp_buf *text = &v->store->before[i];
    const uint64_t max = v->bytes < source->max_file ? v->bytes : source->max_file;
    int r = source->read(source->user, c->full_path, max, text);

    if (r == -EFBIG)
        return sp_fail(
            e, SP_E_LIMIT, 0,
            "Failed to read file to update %s: it is larger than %u MiB, or all files of "
            "the patch are larger than %u MiB",
            c->full_path, (unsigned)(source->max_file >> 20), (unsigned)(source->max_all >> 20));
    if (r == -EINVAL)
        return sp_fail(e, SP_E_FAILED, 0,
                       "Failed to read file to update %s: it is not a regular file", c->full_path);
    if (r < 0)
        return sp_fail(e, SP_E_SYSTEM, -r, "Failed to read file to update %s", c->full_path);
    c->before = sp_buf_str(text);
    v->bytes -= text->len;
    if (!sp_utf8_is_valid(c->before))
        return sp_fail(e, SP_E_FAILED, 0, "Failed to read file to update %s: it is not valid UTF-8",
                       c->full_path);
    r = sp_patch_update(c->before, &v->patch->hunks[i], c->full_path, v->keeps_endings, &v->steps,
                        &v->store->after[i], v->why, e);
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
