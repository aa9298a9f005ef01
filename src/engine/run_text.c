/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The result of a run in words: for a model, for older clients, for a conversation's record.
 */
#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/run_priv.h"

#define DEFAULT_TOKENS 10000

static size_t less(size_t a, size_t b)
{
    return a < b ? a : b;
}

void sp_run_share(size_t out, size_t err, size_t cap, size_t *ret_out, size_t *ret_err)
{
    if (out <= cap && err <= cap - out) {
        *ret_out = out;
        *ret_err = err;
        return;
    }
    const size_t first = less(out, cap / 3);
    const size_t errors = less(err, cap - first);

    *ret_out = first + less(cap - first - errors, out - first);
    *ret_err = errors;
}

static bool undo_unless(bool is_done, struct sp_buf *out, size_t mark)
{
    if (!is_done)
        out->len = mark;
    return is_done;
}

static struct sp_str text_of(const struct sp_buf *b)
{
    return (struct sp_str){b->data, b->len};
}

/* ---- parts ---- */

bool sp_run_add_error(struct sp_buf *out, const struct sp_run_result *r)
{
    const struct sp_err *e = r->error;

    if (e == NULL)
        return sp_buf_printf(out, "execution error: not known");
    /* A start that the kernel refused has its words and its number already. */
    if (e->sys == 0 || strstr(e->msg, "os error") != NULL)
        return sp_buf_printf(out, "execution error: %s", e->msg);
    return sp_buf_printf(out, "execution error: %s: %s (os error %d)", e->msg,
                         strerrordesc_np(e->sys), e->sys);
}

bool sp_run_add_content(struct sp_buf *out, const struct sp_run_result *r)
{
    if (r->kind == SP_RUN_TIMED_OUT &&
        !sp_buf_printf(out, "command timed out after %" PRIu64 " milliseconds\n", r->timeout_ms))
        return false;
    if (!sp_utf8_add_lossy(out, r->aggregated))
        return false;
    if (r->kind != SP_RUN_FAILED && r->kind != SP_RUN_REJECTED)
        return true;
    return (r->aggregated.n == 0 || sp_buf_add(out, "\n", 1)) && sp_run_add_error(out, r);
}

/* Rounded to a tenth, and no digit that says nothing: 0, 0.1, 12, 1.5. */
static bool add_seconds(struct sp_buf *out, uint64_t ns)
{
    const uint64_t tenths = ns / 100000000 + (ns % 100000000 >= 50000000);

    if (tenths % 10 == 0)
        return sp_buf_printf(out, "%" PRIu64, tenths / 10);
    return sp_buf_printf(out, "%" PRIu64 ".%" PRIu64, tenths / 10, tenths % 10);
}

/* Four digits behind the point, whatever our host's locale says of points. */
static bool add_exact_seconds(struct sp_buf *out, uint64_t ns)
{
    const uint64_t parts = ns / 100000 + (ns % 100000 >= 50000);

    return sp_buf_printf(out, "%" PRIu64 ".%04" PRIu64, parts / 10000, parts % 10000);
}

static bool add_lines_if_changed(struct sp_buf *out, struct sp_str whole, struct sp_str shown)
{
    const size_t lines = sp_truncate_lines(whole);

    return lines == sp_truncate_lines(shown) ||
           sp_buf_printf(out, "Total output lines: %zu\n", lines);
}

/* ---- the whole ---- */

bool sp_run_add_text(struct sp_buf *out, const struct sp_run_result *r, struct sp_allowance max)
{
    auto_buf struct sp_buf content = {0};
    auto_buf struct sp_buf shown = {0};
    const size_t mark = out->len;

    return undo_unless(sp_run_add_content(&content, r) &&
                           sp_truncate_add(&shown, text_of(&content), max) &&
                           sp_buf_printf(out, "Exit code: %d\nWall time: ", r->exit_code) &&
                           add_seconds(out, r->duration_ns) && sp_buf_printf(out, " seconds\n") &&
                           add_lines_if_changed(out, text_of(&content), text_of(&shown)) &&
                           sp_buf_printf(out, "Output:\n") && sp_buf_add_str(out, text_of(&shown)),
                       out, mark);
}

static bool is_blank(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (strchr(" \t\n\v\f\r", s.p[i]) == NULL || s.p[i] == 0)
            return false;
    return true;
}

static bool add_denied(struct sp_buf *out, const struct sp_run_result *r)
{
    if (!is_blank(r->aggregated))
        return sp_utf8_add_lossy(out, r->aggregated);
    if (is_blank(r->out) && is_blank(r->err))
        return sp_buf_printf(out, "command failed inside sandbox with exit code %d", r->exit_code);
    if (is_blank(r->out) || is_blank(r->err))
        return sp_utf8_add_lossy(out, is_blank(r->out) ? r->err : r->out);
    return sp_utf8_add_lossy(out, r->err) && sp_buf_add(out, "\n", 1) &&
           sp_utf8_add_lossy(out, r->out);
}

static bool add_formatted(struct sp_buf *out, const struct sp_run_result *r,
                          struct sp_allowance max)
{
    auto_buf struct sp_buf content = {0};

    return sp_run_add_content(&content, r) &&
           sp_truncate_format(out, text_of(&content), max, (struct sp_omission){0});
}

bool sp_run_add_message(struct sp_buf *out, const struct sp_run_result *r)
{
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, DEFAULT_TOKENS};
    const size_t mark = out->len;
    bool ok;

    if (r->class == SP_RUN_DENIED)
        ok = add_denied(out, r);
    else if (r->class == SP_RUN_TIMEOUT)
        ok = sp_buf_printf(out, "error: command timed out after %" PRIu64 " ms", r->timeout_ms);
    else
        ok = add_formatted(out, r, max);
    return undo_unless(ok, out, mark);
}

bool sp_run_add_user_record(struct sp_buf *out, struct sp_str command,
                            const struct sp_run_result *r, struct sp_allowance max)
{
    const bool is_aborted = r->kind == SP_RUN_CANCELLED;
    const size_t mark = out->len;

    return undo_unless(sp_buf_printf(out, "<user_shell_command>\n<command>\n") &&
                           sp_utf8_add_lossy(out, command) &&
                           sp_buf_printf(out, "\n</command>\n<result>\nExit code: %d\nDuration: ",
                                         is_aborted ? -1 : r->exit_code) &&
                           add_exact_seconds(out, is_aborted ? 0 : r->duration_ns) &&
                           sp_buf_printf(out, " seconds\nOutput:\n") &&
                           (is_aborted ? sp_buf_printf(out, "command aborted by user")
                                       : add_formatted(out, r, max)) &&
                           sp_buf_printf(out, "\n</result>\n</user_shell_command>"),
                       out, mark);
}
