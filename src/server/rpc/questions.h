/* SPDX-License-Identifier: Apache-2.0 */
/*
 * questions: what a front asks a person, as consoles see it: a list of open questions, and answers.
 *
 *   approval/watch --> {"open":[Q...]}, then approval/opened, approval/closed
 *   approval/decide --> accepted, or closed by another answer
 */
#ifndef SP_SERVER_RPC_QUESTIONS_H
#define SP_SERVER_RPC_QUESTIONS_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct sp_questions;
struct sp_rpc;

struct sp_questions_answer {
    uint64_t number;
    struct sp_str digest;   /* of the question that the person has seen */
    struct sp_str decision; /* JSON: {"decision":...} */
    struct sp_str who, via;
};

struct sp_questions_ops {
    /* Appends the open questions as JSON, separated by commas. false: no memory. */
    bool (*add_open)(struct sp_questions *q, struct sp_buf *out);
    /* Appends the result of approval/decide. SP_E_INVALID: no such question, another digest, or no
     * decision. */
    int (*decide)(struct sp_questions *q, const struct sp_questions_answer *a, struct sp_buf *out,
                  struct sp_err *e);
};

struct sp_questions {
    const struct sp_questions_ops *ops;
};

/* Sends a notification to all connections that watch. */
void sp_questions_tell(struct sp_rpc *rpc, const char *method, struct sp_str params);

#endif
