/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script: a command line read exactly enough to judge it (approvals.md 4).
 *
 * A wrapper ([bash|zsh|sh, -c|-lc, SCRIPT]) with a plain script is the list of its simple commands;
 * everything else is one segment, the whole argv. Nothing is ever guessed: what is beyond literal
 * words joined by && || ; | and newlines is opaque. One pass, linear time, all results in one
 * arena.
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
    bool is_opaque;  /* a wrapper whose script is not plain: the one segment is the whole argv */
    void *impl;      /* what the above points into */
};
void sp_segments_done(struct sp_segments *s);
#define auto_segments __attribute__((cleanup(sp_segments_done)))

/* The segments of a command. Fails only without memory. The argv is borrowed while they live. */
int sp_segments_read(struct sp_segments *ret, struct sp_words argv, struct sp_err *e);

/* Whether argv is [bash|zsh|sh, -c|-lc, SCRIPT]; *ret_script is the script. */
bool sp_script_is_wrapper(struct sp_words argv, struct sp_str *ret_script);

/*
 * Every simple command anywhere in a script, in lists, loops, functions, substitutions: its name
 * and those of its words that are literal. Commands before a syntax error count. It proves nothing
 * about safety and serves to find danger (4.3). is_opaque: some of it is nested too deep, or it
 * is too long for any kernel, and not all was looked at.
 */
int sp_script_literals(struct sp_segments *ret, struct sp_str script, struct sp_err *e);

/* Whether argv[0] is the shell that was configured, or one in /bin or /usr/bin, literally (4.4). */
bool sp_script_is_trusted_shell(struct sp_str argv0, const char *configured_shell);

/* Splits as a POSIX shell would: quotes, backslash, comments; no expansion. SP_E_INVALID: the
 * quoting is broken. */
int sp_words_split(struct sp_segments *ret, struct sp_str text, struct sp_err *e);

/* Appends the words quoted for a shell, with blanks between them, as the peer quotes them. */
bool sp_words_add_quoted(struct sp_buf *out, struct sp_words words);

bool sp_words_equal(struct sp_words a, struct sp_words b);

#endif
