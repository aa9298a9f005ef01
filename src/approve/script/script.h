/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script: shell scripts and words, read exactly enough to judge a command.
 *
 * A wrapper ([bash|zsh|sh, -c|-lc, SCRIPT]) with a plain script has one segment for each simple
 * command; any other command has one segment, the whole argv. Nothing is guessed: a script with
 * more than literal words joined by && || ; | and newlines is opaque. Reading is linear in the
 * text, and all results are in one arena.
 */
#ifndef SP_APPROVE_SCRIPT_SCRIPT_H
#define SP_APPROVE_SCRIPT_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct sp_words {
    const struct sp_str *items;
    uint32_t count;
};

struct sp_segments {
    const struct sp_words *items;
    uint32_t count;
    bool is_wrapper; /* a shell and its script */
    bool is_opaque;  /* a wrapper with a script that is not plain: one segment, the whole argv */
    void *impl;      /* the arena of items */
};
void sp_segments_done(struct sp_segments *s);
#define auto_segments __attribute__((cleanup(sp_segments_done)))

/* Fails only without memory. The segments point into argv. */
int sp_segments_read(struct sp_segments *ret, struct sp_words argv, struct sp_err *e);

/* Whether argv is [bash|zsh|sh, -c|-lc, SCRIPT]; *ret_script is the script. */
bool sp_script_is_wrapper(struct sp_words argv, struct sp_str *ret_script);

/*
 * Finds every simple command of a script, also in loops, functions and substitutions: its literal
 * words. Commands before a syntax error count. The result proves nothing about safety; it serves to
 * find dangerous commands. is_opaque: the script is too deep or too long, and a part was skipped.
 */
int sp_script_literals(struct sp_segments *ret, struct sp_str script, struct sp_err *e);

/* Whether argv[0] is the configured shell, or any path directly in /bin or /usr/bin. */
bool sp_script_is_trusted_shell(struct sp_str argv0, const char *configured_shell);

/* Splits as a POSIX shell does: quotes, backslash, comments; no expansion. SP_E_INVALID: a quote is
 * not closed. */
int sp_words_split(struct sp_segments *ret, struct sp_str text, struct sp_err *e);

/* Appends the words quoted for a shell, as Codex quotes them, separated by blanks. */
bool sp_words_add_quoted(struct sp_buf *out, struct sp_words words);

/* Appends the words as a JSON array. */
bool sp_words_add_json(struct sp_buf *out, struct sp_words words);

bool sp_words_equal(struct sp_words a, struct sp_words b);

/* Whether it is one of the names; NULL at the end. */
bool sp_str_is_any_of(struct sp_str s, const char *const *names);

/* Whether the set contains the byte; false for NUL. */
static inline bool sp_is_one_of(char c, const char *set)
{
    return c != 0 && strchr(set, c) != NULL;
}

#endif
