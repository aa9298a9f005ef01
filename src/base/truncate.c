/* SPDX-License-Identifier: Apache-2.0 */
#include "base/truncate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/headtail.h"

#define BYTES_PER_TOKEN 4
#define ELLIPSIS        "\xE2\x80\xA6"

static uint64_t divide_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by != 0);
}

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t p;

    return __builtin_mul_overflow(a, b, &p) ? UINT64_MAX : p;
}

static uint64_t difference(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

uint64_t sp_allowance_tokens_of(uint64_t bytes)
{
    return divide_up(bytes, BYTES_PER_TOKEN);
}

uint64_t sp_allowance_bytes(struct sp_allowance max)
{
    return max.unit == SP_ALLOWANCE_BYTES ? max.limit : product(max.limit, BYTES_PER_TOKEN);
}

struct sp_allowance sp_allowance_scale(struct sp_allowance max, uint64_t num, uint64_t den)
{
    const uint64_t whole = product(max.limit / den, num);
    const uint64_t rest = divide_up(product(max.limit % den, num), den);

    if (__builtin_add_overflow(whole, rest, &max.limit))
        max.limit = UINT64_MAX;
    return max;
}

struct sp_allowance sp_allowance_effective(struct sp_allowance requested,
                                           struct sp_allowance configured)
{
    return sp_allowance_bytes(requested) < sp_allowance_bytes(configured) ? requested : configured;
}

/* Reduced by `bytes`, or by the tokens that cover them. */
static struct sp_allowance shrunk(struct sp_allowance max, uint64_t bytes)
{
    max.limit = difference(max.limit,
                           max.unit == SP_ALLOWANCE_BYTES ? bytes : sp_allowance_tokens_of(bytes));
    return max;
}

static bool continues_character(struct sp_str text, size_t at)
{
    return at < text.n && ((unsigned char)text.p[at] & 0xC0) == 0x80;
}

struct sp_split sp_truncate_split(struct sp_str text, uint64_t left, uint64_t right)
{
    struct sp_split s = {left < text.n ? (size_t)left : text.n,
                         right < text.n ? text.n - (size_t)right : 0, 0};

    while (s.prefix_end > 0 && continues_character(text, s.prefix_end))
        s.prefix_end--;
    while (continues_character(text, s.suffix_start))
        s.suffix_start++;
    if (s.suffix_start < s.prefix_end)
        s.suffix_start = s.prefix_end;
    for (size_t i = s.prefix_end; i < s.suffix_start; i++)
        s.removed += !continues_character(text, i);
    return s;
}

size_t sp_truncate_lines(struct sp_str text)
{
    size_t lines = text.n != 0 && text.p[text.n - 1] != '\n';

    for (size_t i = 0; i < text.n; i++)
        lines += text.p[i] == '\n';
    return lines;
}

/* For tokens: the excess over the allowance, not what was really removed. Codex does the same. */
static bool add_marker(struct sp_buf *out, struct sp_str text, struct sp_allowance max,
                       size_t removed)
{
    if (max.unit == SP_ALLOWANCE_TOKENS)
        return sp_buf_printf(out, ELLIPSIS "%" PRIu64 " tokens truncated" ELLIPSIS,
                             sp_allowance_tokens_of(text.n - sp_allowance_bytes(max)));
    return sp_buf_printf(out, ELLIPSIS "%zu chars truncated" ELLIPSIS, removed);
}

static bool add_split(struct sp_buf *out, struct sp_str text, struct sp_allowance max,
                      struct sp_split s)
{
    return sp_buf_add(out, text.p, s.prefix_end) && add_marker(out, text, max, s.removed) &&
           sp_buf_add(out, text.p + s.suffix_start, text.n - s.suffix_start);
}

/* Removes what was added since mark if it was not all. */
static bool undo_unless(bool is_done, struct sp_buf *out, size_t mark)
{
    if (!is_done)
        out->len = mark;
    return is_done;
}

bool sp_truncate_add(struct sp_buf *out, struct sp_str text, struct sp_allowance max)
{
    const size_t mark = out->len;

    if (text.n <= sp_allowance_bytes(max))
        return sp_buf_add_str(out, text);
    return undo_unless(add_split(out, text, max, sp_truncate_gap(text, max)), out, mark);
}

static bool add_warning(struct sp_buf *out, uint64_t tokens)
{
    return sp_buf_printf(out, "Warning: truncated output (original token count: %" PRIu64 ")\n",
                         tokens);
}

static bool add_complete(struct sp_buf *out, struct sp_str text, struct sp_allowance max)
{
    if (text.n <= sp_allowance_bytes(max))
        return sp_buf_add_str(out, text);
    return add_warning(out, sp_allowance_tokens_of(text.n)) &&
           sp_buf_printf(out, "Total output lines: %zu\n\n", sp_truncate_lines(text)) &&
           add_split(out, text, max, sp_truncate_gap(text, max));
}

struct gap_line {
    char text[64]; /* with its LF */
    size_t n;
};

static struct gap_line gap_line(uint64_t omitted)
{
    struct gap_line line;

    line.n = (size_t)snprintf(line.text, sizeof line.text, SP_HEADTAIL_MARKER "\n", omitted);
    return line;
}

static bool has_gap(const char *p, size_t n, const struct gap_line *line)
{
    return n != 0 && memmem(p, n, line->text, line->n - 1) != NULL;
}

/* Without a line count, because the omitted lines are not known. */
static bool add_gapped(struct sp_buf *out, struct sp_str text, struct sp_allowance max,
                       struct sp_omission gone)
{
    const struct gap_line line = gap_line(gone.bytes);

    if (text.n <= sp_allowance_bytes(max))
        return (has_gap(text.p, text.n, &line) || sp_buf_add(out, line.text, line.n)) &&
               sp_buf_add_str(out, text);

    const struct sp_split s = sp_truncate_gap(text, max);
    /* A marker that the cut splits is found in neither part. */
    const bool survives = has_gap(text.p, s.prefix_end, &line) ||
                          has_gap(text.p + s.suffix_start, text.n - s.suffix_start, &line);
    return add_warning(out, gone.token_count) && (survives || sp_buf_add(out, line.text, line.n)) &&
           sp_buf_add(out, "\n", 1) && add_split(out, text, max, s);
}

bool sp_truncate_format(struct sp_buf *out, struct sp_str text, struct sp_allowance max,
                        struct sp_omission gone)
{
    const size_t mark = out->len;

    if (gone.bytes == 0)
        return undo_unless(add_complete(out, text, max), out, mark);
    return undo_unless(add_gapped(out, text, max, gone), out, mark);
}

bool sp_truncate_fit(struct sp_buf *out, struct sp_str text, struct sp_allowance max,
                     struct sp_omission gone, uint64_t allowed)
{
    const size_t mark = out->len;

    for (;;) {
        if (!sp_truncate_format(out, text, max, gone))
            return false;
        const uint64_t excess = difference(out->len - mark, allowed);
        if (excess == 0 || sp_allowance_bytes(max) == 0)
            return true;
        max = shrunk(max, excess);
        out->len = mark;
    }
}
