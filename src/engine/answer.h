/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer: what a call reports about its process, as text for a model or member by member.
 *
 * The collected bytes are decoded once and shown in either form. Functions that append return false
 * if out of memory, and have then appended nothing.
 */
#ifndef SP_ENGINE_ANSWER_H
#define SP_ENGINE_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/headtail.h"
#include "base/str.h"
#include "base/truncate.h"
#include "base/utf8.h"

#define SP_ANSWER_DEFAULT_TOKENS 10000

enum sp_answer_fate {
    SP_ANSWER_NO_PROCESS, /* a patch was applied, or refused, without a process */
    SP_ANSWER_EXITED,
    SP_ANSWER_RUNNING,
};

/* The members of the structured form. `output` is the whole collected text, borrowed;
 * sp_answer_add_output truncates it. */
struct sp_exec_answer {
    struct sp_str chunk_id; /* empty: none; borrowed */
    uint64_t wall_ns;
    enum sp_answer_fate fate;
    int exit_code;  /* EXITED: -1 if unknown; NO_PROCESS: 0 or 1 */
    int session_id; /* RUNNING only */
    bool has_token_count;
    uint64_t token_count; /* of everything received, omitted bytes included */
    uint64_t omitted;     /* bytes; `output` has a marker in their place */
    struct sp_str output;
};

/* Appends the text with its omission marker; each maximal ill-formed part becomes U+FFFD. */
static inline bool sp_answer_decode(struct sp_buf *out, const struct sp_headtail *collected)
{
    auto_buf struct sp_buf bytes = {0};

    return sp_headtail_add_marked(collected, &bytes) && sp_utf8_add_lossy(out, sp_buf_str(&bytes));
}

static inline struct sp_omission sp_answer_omission(const struct sp_exec_answer *a)
{
    return (struct sp_omission){.bytes = a->omitted, .token_count = a->token_count};
}

/* The member `output`, truncated to max_tokens if given. */
static inline bool sp_answer_add_output(struct sp_buf *out, const struct sp_exec_answer *a,
                                        bool has_max_tokens, uint64_t max_tokens)
{
    const struct sp_allowance asked = {SP_ALLOWANCE_TOKENS, max_tokens};

    return has_max_tokens ? sp_truncate_format(out, a->output, asked, sp_answer_omission(a))
                          : sp_buf_add_str(out, a->output);
}

#endif
