/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer: what a call says about its process, as one text for a model or member by member.
 *
 * The collected bytes become text once; then the same facts are told in either form. What appends
 * returns false if there is no room, and has then appended nothing.
 */
#ifndef SP_ENGINE_ANSWER_H
#define SP_ENGINE_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/headtail.h"
#include "base/str.h"
#include "base/truncate.h"

#define SP_ANSWER_DEFAULT_TOKENS 10000

enum sp_answer_fate {
    SP_ANSWER_NO_PROCESS, /* somebody else took the command over */
    SP_ANSWER_EXITED,
    SP_ANSWER_RUNNING,
};

/*
 * The members of the structured form. `output` is the whole collected text, borrowed; the form
 * shows what sp_answer_add_output makes of it.
 */
struct sp_exec_answer {
    struct sp_str chunk_id; /* empty: none; borrowed */
    uint64_t wall_ns;
    enum sp_answer_fate fate;
    int exit_code;  /* of SP_ANSWER_EXITED: -1: unknown; of SP_ANSWER_NO_PROCESS: 0 or 1 */
    int session_id; /* of SP_ANSWER_RUNNING */
    bool has_token_count;
    uint64_t token_count; /* of everything received, with what was omitted */
    uint64_t omitted;     /* bytes; the text has a marker where they were */
    struct sp_str output;
    struct sp_str more; /* lines of the header, each with its LF, before `Output:`; borrowed */
};

struct sp_answer_limits {
    bool has_max_tokens;
    uint64_t max_tokens;            /* what the caller asked for; 0 shows only a marker */
    struct sp_allowance configured; /* what it cannot raise */
};

/*
 * While the process lives, the beginning of a character at the end of the collected bytes belongs
 * to the next answer: it moves to `pending`, which is empty and of the same capacity. It stays if
 * memory is gone, and is then shown as a torn character is.
 */
void sp_answer_hold_back(struct sp_headtail *collected, struct sp_headtail *pending);

/* Appends the marked view as text: each maximal ill-formed part becomes U+FFFD. */
bool sp_answer_decode(struct sp_buf *out, const struct sp_headtail *collected);

/* Sets output, omitted and token_count; `text` is what sp_answer_decode made of the same bytes. */
void sp_answer_set_output(struct sp_exec_answer *a, const struct sp_headtail *collected,
                          struct sp_str text);

double sp_answer_wall_seconds(const struct sp_exec_answer *a);

/* The member `output`: within max_tokens if there is such a number, else all of it. */
bool sp_answer_add_output(struct sp_buf *out, const struct sp_exec_answer *a, bool has_max_tokens,
                          uint64_t max_tokens);

/* The text for a model: at most 1.2 times what is configured, so that nobody truncates it again. */
bool sp_answer_add_text(struct sp_buf *out, const struct sp_exec_answer *a,
                        const struct sp_answer_limits *limits);

/* The text for logs: all of it. */
bool sp_answer_add_full_text(struct sp_buf *out, const struct sp_exec_answer *a);

#endif
