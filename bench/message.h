/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message: what a server's message says, found in one pass and without a tree.
 *
 * Order of members, white space and unknown members do not matter. Process ids are expected to be
 * decimal numbers, as this program chooses them. Views point into the text.
 */
#ifndef BENCH_MESSAGE_H
#define BENCH_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum bench_kind {
    BENCH_REPLY,
    BENCH_ERROR,
    BENCH_OUTPUT,
    BENCH_EXITED,
    BENCH_CLOSED,
    BENCH_OTHER,
};

struct bench_message {
    enum bench_kind kind;
    int64_t id;        /* REPLY, ERROR */
    uint64_t proc;     /* OUTPUT, EXITED, CLOSED; replies that name it */
    uint64_t seq;      /* OUTPUT, EXITED, CLOSED */
    uint64_t next_seq; /* reply of process/read */
    int64_t exit_code; /* EXITED */
    uint64_t files;    /* reply of fs/walk: entries that are files */
    struct sp_str
        chunk; /* OUTPUT: base64; reply of process/read: the last chunk's; of fs/readFile */
    struct sp_str reason; /* ERROR */
};

/* false: not a JSON object, as far as it was looked at. */
bool bench_message_scan(struct sp_str text, struct bench_message *ret);

#endif
