/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_report: one process verifies the files of a patch and tells another what it found.
 *
 *   sallyport-patch 1 COUNT LF
 *   DIGEST " " LENGTH LF TEXT LF        for each hunk; "-" for LENGTH: no text
 *   end LF
 *
 * TEXT is the diff of an update, or the contents of a deleted file if they can be shown. The
 * reporting process has read files that commands may have written, so a report is untrusted input:
 * kinds and paths come from the patch itself, never from the report.
 */
#include <errno.h>
#include <inttypes.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"
#include "base/sha.h"
#include "base/utf8.h"

#define HEAD  "sallyport-patch 1 "
#define TAIL  "end\n"
#define HEX   64                          /* digits of a digest */
#define SHOWN (SP_PATCH_REPORT_BYTES / 2) /* deleted files beyond this are not shown */

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "tell what a patch changes");
}

/* ---- digests ---- */

/* Length and bytes, so that different lists of texts never encode alike. */
static bool add_counted(struct sp_buf *out, struct sp_str s)
{
    return (s.p == NULL ? sp_buf_add(out, "-\n", 2) : sp_buf_printf(out, "%zu\n", s.n)) &&
           (s.n == 0 || sp_buf_add_str(out, s));
}

static bool make_digest(const struct sp_patch_change *c, struct sp_patch_digest *ret)
{
    const struct sp_str target = {c->full_target,
                                  c->full_target == NULL ? 0 : strlen(c->full_target)};
    auto_buf struct sp_buf all = {0};

    if (!sp_buf_printf(&all, "%d\n", (int)c->kind) || !add_counted(&all, sp_str_of(c->full_path)) ||
        !add_counted(&all, target) || !add_counted(&all, c->before) || !add_counted(&all, c->after))
        return false;
    sp_sha256(sp_buf_str(&all), ret->bytes);
    return true;
}

static bool add_digest(struct sp_buf *out, const struct sp_patch_digest *d)
{
    char hex[HEX + 1];

    sp_hex(d->bytes, sizeof d->bytes, hex);
    return sp_buf_add(out, hex, HEX);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_digest(struct sp_str s, struct sp_patch_digest *ret)
{
    if (s.n < HEX)
        return false;
    for (size_t i = 0; i < sizeof ret->bytes; i++) {
        const int high = hex_value(s.p[2 * i]);
        const int low = hex_value(s.p[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        ret->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* ---- writing a report ---- */

static int too_large(struct sp_err *e)
{
    return sp_fail(e, SP_E_LIMIT, 0,
                   "invalid patch: what it changes, as a diff, is larger than %u MiB; make several "
                   "patches of it",
                   SP_PATCH_REPORT_BYTES >> 20);
}

static int add_text(struct sp_buf *out, struct sp_str s, struct sp_err *e)
{
    if (s.n >= SP_PATCH_REPORT_BYTES - out->len)
        return too_large(e);
    const bool ok = s.p == NULL ? sp_buf_add_str(out, SP_STR(" -\n"))
                                : sp_buf_printf(out, " %zu\n", s.n) && sp_buf_add_str(out, s) &&
                                      sp_buf_add(out, "\n", 1);
    return ok ? 0 : no_memory(e);
}

static int add_change(struct sp_buf *out, const struct sp_patch_change *c, struct sp_err *e)
{
    auto_buf struct sp_buf diff = {0};
    struct sp_patch_digest digest;

    if (!make_digest(c, &digest) || !add_digest(out, &digest))
        return no_memory(e);
    switch (c->kind) {
    case SP_PATCH_UPDATE:
        if (!sp_patch_add_diff(&diff, c))
            return no_memory(e);
        return add_text(out, sp_buf_str(&diff), e);
    case SP_PATCH_DELETE:
        return add_text(out, out->len + c->before.n < SHOWN ? c->before : (struct sp_str){0}, e);
    case SP_PATCH_ADD:
        break;
    }
    return add_text(out, (struct sp_str){0}, e);
}

int sp_patch_add_report(struct sp_buf *out, const struct sp_patch_changes *c, struct sp_err *e)
{
    int r = sp_buf_printf(out, HEAD "%" PRIu32 "\n", c->count) ? 0 : no_memory(e);

    for (uint32_t i = 0; r == 0 && i < c->count; i++) {
        r = add_change(out, &c->items[i], e);
        if (r == 0 && out->len > SP_PATCH_REPORT_BYTES - sizeof TAIL)
            r = too_large(e);
    }
    return r < 0 ? r : sp_buf_add_str(out, SP_STR(TAIL)) ? 0 : no_memory(e);
}

/* ---- reading a report ---- */

/* A line that is a decimal number without leading zeros. */
static bool take_number(struct sp_str *rest, uint64_t max, uint64_t *ret)
{
    struct sp_str line;

    return memchr(rest->p, '\n', rest->n < 24 ? rest->n : 24) != NULL &&
           sp_patch_next_line(rest, &line) && line.n > 0 && (line.n == 1 || line.p[0] != '0') &&
           sp_str_to_u64(line, max, ret);
}

/* An update always has a text, a new file never. */
static bool take_change(struct sp_str *rest, struct sp_patch_change *c, struct sp_buf *text)
{
    struct sp_str *to = c->kind == SP_PATCH_UPDATE ? &c->diff : &c->before;

    if (!read_digest(*rest, &c->digest))
        return false;
    *rest = (struct sp_str){rest->p + HEX, rest->n - HEX};
    if (c->kind != SP_PATCH_UPDATE && sp_str_skip_prefix(rest, SP_STR(" -\n")))
        return true;
    uint64_t n;
    if (c->kind == SP_PATCH_ADD || !sp_str_skip_prefix(rest, SP_STR(" ")) ||
        !take_number(rest, SP_PATCH_REPORT_BYTES, &n) || n >= rest->n || rest->p[n] != '\n')
        return false;
    const struct sp_str shown = {rest->p, (size_t)n};
    *rest = (struct sp_str){rest->p + n + 1, rest->n - (size_t)n - 1};
    if (!sp_utf8_is_valid(shown) || !sp_buf_add_str(text, shown) || !sp_buf_add(text, "", 1))
        return false;
    *to = (struct sp_str){text->data, text->len - 1};
    return true;
}

static bool take_all(struct sp_str rest, const struct sp_patch_changes *c)
{
    struct sp_patch_store *s = c->impl;
    uint64_t count;

    if (rest.n > SP_PATCH_REPORT_BYTES || !sp_str_skip_prefix(&rest, SP_STR(HEAD)) ||
        !take_number(&rest, UINT32_MAX, &count) || count != c->count)
        return false;
    for (uint32_t i = 0; i < c->count; i++)
        if (!take_change(&rest, &s->items[i], &s->before[i]))
            return false;
    return sp_str_eq(rest, SP_STR(TAIL));
}

int sp_patch_read_report(struct sp_str report, struct sp_patch_changes *c, struct sp_err *e)
{
    if (take_all(report, c))
        return 0;
    return sp_fail(e, SP_E_INVALID, 0,
                   "what the program that verifies patches says cannot be understood: is it the "
                   "sallyport that belongs to this one?");
}

/* ---- digests of an approved patch ---- */

bool sp_patch_add_approved(struct sp_buf *out, const struct sp_patch_changes *c,
                           struct sp_str patch)
{
    bool ok = sp_buf_printf(out, HEAD "%" PRIu32 "\n", c->count);

    for (uint32_t i = 0; ok && i < c->count; i++)
        ok = add_digest(out, &c->items[i].digest) && sp_buf_add(out, "\n", 1);
    return ok && sp_buf_add_str(out, patch);
}

int sp_patch_find_approved(struct sp_str text, struct sp_str *ret_digests, struct sp_str *ret_patch,
                           struct sp_err *e)
{
    struct sp_str rest = text;
    uint64_t count;

    if (!sp_str_skip_prefix(&rest, SP_STR(HEAD)) || !take_number(&rest, UINT32_MAX, &count) ||
        count > rest.n / (HEX + 1))
        return sp_fail(e, SP_E_INVALID, 0, "invalid patch: it does not say what was approved");
    const size_t n = (size_t)count * (HEX + 1);
    *ret_digests = (struct sp_str){rest.p, n};
    *ret_patch = (struct sp_str){rest.p + n, rest.n - n};
    return 0;
}

int sp_patch_check_approved(const struct sp_patch_changes *c, struct sp_str digests,
                            struct sp_err *e)
{
    if (digests.n != (size_t)c->count * (HEX + 1))
        return sp_fail(e, SP_E_INVALID, 0, "invalid patch: it is not the one that was approved");
    for (uint32_t i = 0; i < c->count; i++) {
        const struct sp_str line = {digests.p + (size_t)i * (HEX + 1), HEX};
        struct sp_patch_digest now;
        struct sp_patch_digest then;

        if (!make_digest(&c->items[i], &now))
            return no_memory(e);
        if (!read_digest(line, &then) || memcmp(&now, &then, sizeof now) != 0)
            return sp_fail(e, SP_E_FAILED, 0,
                           "%s has changed since the patch was verified: nothing was written; look "
                           "at the file and send the patch again",
                           c->items[i].full_path);
    }
    return 0;
}
