/* SPDX-License-Identifier: Apache-2.0 */
/*
 * escape: a program that tries to get out of the sandbox it is started in.
 *
 * One row is one attempt: an operation, and what the kernel must answer. An attempt either must be
 * refused, or it is a twin: the same operation where it is allowed, so that a sandbox which merely
 * breaks everything does not pass. Whatever succeeds is undone or harmless, also outside of any
 * sandbox and as root: calls that would change the machine are made with arguments that the kernel
 * refuses only after it has looked at the caller's rights.
 */
#ifndef ESCAPE_H
#define ESCAPE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum row_flags {
    TWIN = 1,  /* has to work */
    HERE = 2,  /* in the first process: a second one would change the answer */
    USER = 4,  /* for an ordinary user alone */
    ROOT = 8,  /* for uid 0 alone */
    TTY = 16,  /* for a command with a terminal alone */
    PIPE = 32, /* for a command without one alone */
};

struct row {
    const char *number; /* of the list of attempts in the sandbox's specification */
    const char *name;
    /* Names of errno, or "ok", with slashes in between; "restricted:X enabled:Y none:Z" where it
     * depends on the network ("managed:X": if it differs from restricted there). */
    const char *expect;
    /* 0: it worked; else errno. */
    int (*run)(const struct row *);
    const char *a, *b; /* places, see where() */
    long n;
    unsigned flags;
};

struct suite {
    const char *name;
    const struct row *rows; /* the last one has no number */
};
extern const struct row workspace_rows[];
extern const struct suite suites[];
extern const size_t suite_count;

/* What the command line says: word=value. NULL: nothing. */
const char *told(const char *word);
/* The same, where the attempt cannot be made without it. */
const char *need(const char *word);
long need_number(const char *word);

/* A path: "o/f" is f below the directory that the command line calls o; "/dev/null" is itself.
 * The text is valid until it has been called sixteen more times. */
const char *where(const char *place);

/* Ends this attempt: this machine cannot make it. */
_Noreturn void skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* errno if a call said -1, else 0. */
int answer(long result);
/* The same for a descriptor, which is closed. */
int answer_fd(long fd);

/* Starts this program again with the words given (the last one NULL) and those of the command
 * line; fd >= 0: from this descriptor, else from `program`. The exit status, or 128 + signal. */
int again(const char *program, int fd, const char *const *words);

/* A child that pauses; to be ended with end_child. */
pid_t start_child(void);
void end_child(pid_t child);

#endif
