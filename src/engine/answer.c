/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer: see answer.h.
 */
#include "engine/answer.h"

#include <assert.h>
#include <inttypes.h>

#include "base/utf8.h"
#include "engine/delta.h"

#define NS_PER_DIGIT 100000U /* the fourth decimal */

void sp_answer_hold_back(struct sp_headtail *collected, struct sp_headtail *pending)
{
    char end[SP_DELTA_CARRY_MAX];

    assert(sp_headtail_total(pending) == 0 && pending->capacity == collected->capacity);
    const size_t n = sp_headtail_peek_end(collected, end, sizeof end);
    const size_t from = sp_delta_boundary((struct sp_str){end, n});
    if (from == n)
        return;
    if (sp_headtail_push(pending, (struct sp_str){end + from, n - from}))
        sp_headtail_drop_end(collected, n - from);
}

bool sp_answer_decode(struct sp_buf *out, const struct sp_headtail *collected)
{
    auto_buf struct sp_buf bytes = {0};

    return sp_headtail_add_marked(collected, &bytes) && sp_utf8_add_lossy(out, sp_buf_str(&bytes));
}

void sp_answer_set_output(struct sp_exec_answer *a, const struct sp_headtail *collected,
                          struct sp_str text)
{
    a->has_token_count = true;
    a->token_count = sp_allowance_tokens_of(sp_headtail_total(collected));
    a->omitted = collected->omitted;
    a->output = text;
}

static struct sp_omission omission(const struct sp_exec_answer *a)
{
    return (struct sp_omission){.bytes = a->omitted, .token_count = a->token_count};
}

bool sp_answer_add_output(struct sp_buf *out, const struct sp_exec_answer *a, bool has_max_tokens,
                          uint64_t max_tokens)
{
    if (!has_max_tokens)
        return sp_buf_add_str(out, a->output);

    const struct sp_allowance asked = {SP_ALLOWANCE_TOKENS, max_tokens};
    return sp_truncate_format(out, a->output, asked, omission(a));
}

bool sp_answer_add_text(struct sp_buf *out, const struct sp_exec_answer *a,
                        const struct sp_answer_limits *limits)
{
    const uint64_t max_tokens =
        limits->has_max_tokens ? limits->max_tokens : SP_ANSWER_DEFAULT_TOKENS;
    const struct sp_allowance requested = {SP_ALLOWANCE_TOKENS, max_tokens};
    const uint64_t whole = sp_allowance_bytes(sp_allowance_scale(limits->configured, 6, 5));
    const uint64_t digits =
        a->wall_ns / NS_PER_DIGIT + (a->wall_ns % NS_PER_DIGIT >= NS_PER_DIGIT / 2);
    const size_t mark = out->len;
    bool ok = a->chunk_id.n == 0 || (sp_buf_add_str(out, SP_STR("Chunk ID: ")) &&
                                     sp_buf_add_str(out, a->chunk_id) && sp_buf_add(out, "\n", 1));

    /* Not %f: the decimal point must not depend on the locale. */
    ok = ok && sp_buf_printf(out, "Wall time: %" PRIu64 ".%04u seconds\n", digits / 10000,
                             (unsigned)(digits % 10000));
    if (a->fate == SP_ANSWER_EXITED)
        ok = ok && sp_buf_printf(out, "Process exited with code %d\n", a->exit_code);
    else if (a->fate == SP_ANSWER_RUNNING)
        ok = ok && sp_buf_printf(out, "Process running with session ID %d\n", a->session_id);
    if (a->has_token_count)
        ok = ok && sp_buf_printf(out, "Original token count: %" PRIu64 "\n", a->token_count);
    ok = ok && sp_buf_add_str(out, a->more) && sp_buf_add_str(out, SP_STR("Output:\n"));
    const uint64_t header = out->len - mark;
    if (ok && sp_truncate_fit(out, a->output, sp_allowance_effective(requested, limits->configured),
                              omission(a), whole > header ? whole - header : 0))
        return true;
    out->len = mark;
    return false;
}
