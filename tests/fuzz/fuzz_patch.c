/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FILE NUL PATCH: what is read of the patch is whole and consistent, what is refused says so; held
 * against the file, lines are found where a plain search finds them, and the new text ends in a
 * line ending. Without a NUL the input is a script as well, of which a call is a part as it is.
 */
#include "approve/patch/patch_priv.h"
#include "base/auto.h"
#include "base/utf8.h"
#include "fuzz.h"

static bool is_alike(int level, struct sp_str a, struct sp_str b)
{
    auto_buf struct sp_buf x = {0};
    auto_buf struct sp_buf y = {0};

    if (level == 0)
        return sp_str_eq(a, b);
    if (level == 1)
        return sp_str_eq(sp_utf8_trim_end(a), sp_utf8_trim_end(b));
    if (level == 2)
        return sp_str_eq(sp_utf8_trim(a), sp_utf8_trim(b));
    CHECK(sp_patch_add_folded(&x, sp_utf8_trim(a)) && sp_patch_add_folded(&y, sp_utf8_trim(b)));
    return x.len == y.len && (x.len == 0 || memcmp(x.data, y.data, x.len) == 0);
}

static bool is_at(const struct sp_patch_lines *l, int level, const struct sp_str *pattern,
                  uint32_t count, uint32_t at)
{
    for (uint32_t i = 0; i < count; i++)
        if (!is_alike(level, l->items[at + i], pattern[i]))
            return false;
    return true;
}

static uint32_t plain_find(const struct sp_patch_lines *l, const struct sp_str *pattern,
                           uint32_t count, uint32_t start, bool is_at_end)
{
    if (count == 0)
        return start;
    if (count > l->count || start > l->count - count)
        return SP_PATCH_NOT_FOUND;
    for (int level = 0; level < SP_PATCH_LEVELS; level++)
        for (uint32_t at = is_at_end ? l->count - count : start; at <= l->count - count; at++)
            if (is_at(l, level, pattern, count, at))
                return at;
    return SP_PATCH_NOT_FOUND;
}

/* Small files only: the plain search is slow. */
static void check_find(struct sp_str file, const struct sp_patch_chunk *c)
{
    uint64_t steps = 1 << 24;
    struct sp_str items[200];
    struct sp_patch_lines l = {.items = items, .steps = &steps};
    struct sp_str line;
    struct sp_err e = {0};

    while (l.count < 200 && sp_patch_next_line(&file, &line))
        items[l.count++] = line;
    for (uint32_t start = 0; start <= l.count; start += 1 + l.count / 4) {
        uint32_t got;

        CHECK(sp_patch_find(&l, c->old_lines, c->old_count, start, c->is_at_end, &got, &e) == 0);
        CHECK(got == plain_find(&l, c->old_lines, c->old_count, start, c->is_at_end));
    }
    sp_patch_lines_done(&l);
}

static void check_diff(struct sp_str before, struct sp_str after)
{
    const struct sp_patch_change c = {.kind = SP_PATCH_UPDATE, .before = before, .after = after};
    auto_buf struct sp_buf out = {0};

    CHECK(sp_patch_add_diff(&out, &c));
    CHECK((out.len == 0) == sp_str_eq(before, after));
}

static void check_update(struct sp_str file, const struct sp_patch_hunk *h, bool keeps)
{
    uint64_t steps = 1 << 24;
    auto_buf struct sp_buf after = {0};
    auto_buf struct sp_buf why = {0};
    struct sp_err e = {0};
    const int r = sp_patch_update(file, h, "/x", keeps, &steps, &after, &why, &e);

    CHECK(r == 0 || r == -SP_E_FAILED || r == -SP_E_LIMIT);
    CHECK(sp_utf8_is_valid(sp_str_of(e.msg)));
    CHECK((why.len > 0) == (r == -SP_E_FAILED));
    if (r < 0 || after.len == 0)
        return;
    const struct sp_str text = {after.data, after.len};
    CHECK(sp_utf8_is_valid(text));
    CHECK(text.p[text.n - 1] == '\n' || (keeps && text.p[text.n - 1] == '\r'));
    check_diff(file, text);
}

static void check_chunk(const struct sp_patch_chunk *c)
{
    CHECK(c->old_count + c->new_count > 0);
    for (uint32_t i = 0; i < c->old_count; i++)
        CHECK(c->old_lines[i].n == 0 || memchr(c->old_lines[i].p, '\n', c->old_lines[i].n) == NULL);
    for (uint32_t i = 0; i < c->new_count; i++)
        CHECK(c->new_lines[i].n == 0 || memchr(c->new_lines[i].p, '\n', c->new_lines[i].n) == NULL);
    CHECK(c->context.p == NULL || c->context.n > 0);
}

static void check_hunk(const struct sp_patch_hunk *h)
{
    CHECK(h->path.n > 0 && !sp_str_has_nul(h->path) && sp_utf8_is_valid(h->path));
    CHECK(h->move_to.p == NULL || (h->kind == SP_PATCH_UPDATE && h->move_to.n > 0));
    CHECK((h->kind == SP_PATCH_UPDATE) == (h->chunk_count > 0));
    CHECK(h->content.n == 0 || (h->kind == SP_PATCH_ADD && h->content.p[h->content.n - 1] == '\n'));
    for (uint32_t i = 0; i < h->chunk_count; i++)
        check_chunk(&h->chunks[i]);
}

static void check_patch(struct sp_str file, struct sp_str text)
{
    struct sp_patch p = {0};
    struct sp_err e = {0};
    const int r = sp_patch_parse(text, &p, &e);

    CHECK(r == 0 || (r == -SP_E_INVALID && strncmp(e.msg, "invalid ", 8) == 0));
    CHECK(sp_utf8_is_valid(sp_str_of(e.msg)));
    for (uint32_t i = 0; i < p.hunk_count; i++) {
        const struct sp_patch_hunk *h = &p.hunks[i];

        check_hunk(h);
        if (h->kind != SP_PATCH_UPDATE || !sp_utf8_is_valid(file))
            continue;
        check_update(file, h, false);
        check_update(file, h, true);
        for (uint32_t k = 0; k < h->chunk_count && k < 8 && text.n < 4096; k++)
            check_find(file, &h->chunks[k]);
    }
    sp_patch_done(&p);
}

static bool is_part(const struct sp_buf *part, struct sp_str whole)
{
    return part->len == 0 || memmem(whole.p, whole.n, part->data, part->len) != NULL;
}

static void check_script(struct sp_str script)
{
    const struct sp_str words[] = {SP_STR("bash"), SP_STR("-lc"), script};
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf cd = {0};
    struct sp_err e = {0};
    enum sp_patch_call call;

    CHECK(sp_patch_recognise((struct sp_words){words, 3}, &call, &text, &cd, &e) == 0);
    CHECK(call == SP_PATCH_CALL_PATCH || (text.len == 0 && cd.len == 0));
    CHECK(is_part(&text, script) && is_part(&cd, script));
    if (call == SP_PATCH_CALL_PATCH)
        CHECK(memmem(script.p, script.n, "patch", 5) != NULL &&
              memmem(script.p, script.n, "<<", 2) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    const char *nul = size == 0 ? NULL : memchr(text, 0, size);

    if (size > 1 << 20)
        return 0;
    if (nul == NULL) {
        check_patch(SP_STR("a\nb\nc\n"), (struct sp_str){text, size});
        check_script((struct sp_str){text, size});
        return 0;
    }
    const size_t n = (size_t)(nul - text);
    check_patch((struct sp_str){text, n}, (struct sp_str){nul + 1, size - n - 1});
    return 0;
}
