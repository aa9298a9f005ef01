/* SPDX-License-Identifier: Apache-2.0 */
/*
 * denial: guesses from a failed command's output whether the sandbox has denied something.
 *
 * The guess searches for seven phrases, because clients expect the same guess as Codex makes: a
 * program that merely prints "permission denied" counts as denied. A phrase counts in stdout, in
 * stderr, and in both joined in the order of arrival, also across chunks. ASCII case is ignored.
 * State is bounded; nothing is allocated.
 */
#ifndef SP_SANDBOX_DENIAL_H
#define SP_SANDBOX_DENIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/stream.h"

/* name, word, reason for logs and reports */
#define SP_DENIAL_WORDS(X)                                                 \
    X(NOT_PERMITTED, "operation not permitted", "operation_not_permitted") \
    X(PERMISSION, "permission denied", "permission_denied")                \
    X(READ_ONLY, "read-only file system", "read_only_file_system")         \
    X(SECCOMP, "seccomp", "policy_denied")                                 \
    X(SANDBOX, "sandbox", "policy_denied")                                 \
    X(LANDLOCK, "landlock", "policy_denied")                               \
    X(WRITE_FILE, "failed to write file", "failed_to_write_file")

enum sp_denial_word {
#define X(name, word, reason) SP_DENIAL_##name,
    SP_DENIAL_WORDS(X)
#undef X
        SP_DENIAL_MAX /* also: no phrase found */
};

#define SP_DENIAL_PATH 512

/* The end of the text so far. */
struct sp_denial_tail {
    char bytes[SP_DENIAL_PATH + 48]; /* a path with quotes, and the start of a phrase */
    size_t len;
};

struct sp_denial {
    enum sp_denial_word word;      /* the first phrase to be complete */
    char path[SP_DENIAL_PATH + 1]; /* from the first line "<path>: permission denied"; else "" */
    struct sp_denial_tail own[2], joined;
    uint8_t shift[1024]; /* the scanner's table */
};

void sp_denial_init(struct sp_denial *d);
/* A terminal's output counts as stdout. */
void sp_denial_feed(struct sp_denial *d, enum sp_stream stream, const void *bytes, size_t n);

bool sp_denial_is_likely(bool is_confined, int exit_code, const struct sp_denial *d);
/* "permission_denied", "sigsys", ...; NULL: no sign of a denial. */
const char *sp_denial_reason(const struct sp_denial *d, int exit_code);

#endif
