/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program: the files that an allowed command runs.
 *
 * A rule names a program, but what runs is a file. A rule sets a run free, or makes a question
 * unnecessary, only if confined commands could not have put that file there. So each program is
 * looked up as the command will look it up, with its PATH, and must not be replaceable
 * (sandbox/writable.h):
 *
 *   - a relative path, a path through /proc or /dev, and a missing file never qualify;
 *   - commands can write neither the file, its links and directories, nor, of a script, its
 * interpreter;
 *   - nor any directory of PATH that is searched before it;
 *   - in a shell script each name is such a file, or one of a few harmless builtins.
 *
 * Then no confined command can change the result between the judgement and the start. The file of
 * the first word is started by its path, and the child compares its inode. What a shell or a
 * program starts in turn is found in the same PATH, without the entries that commands may write.
 */
#ifndef SP_APPROVE_PROGRAM_H
#define SP_APPROVE_PROGRAM_H

#include "approve/judge.h"
#include "sandbox/writable.h"

/* The file of a command's first word. */
struct sp_program {
    char *path; /* absolute, as the command or PATH names it: links are not resolved, for $0 */
    uint64_t dev, ino;
    char *search_path; /* the PATH of the run; NULL: unchanged */
};
void sp_program_done(struct sp_program *p);

struct sp_program_request {
    struct sp_words argv;
    const struct sp_requirement *judged; /* the judgement of argv */
    const struct sp_policy *policy;      /* including grants; NULL: no sandbox */
    struct sp_str environ; /* of the command: NAME=VALUE strings with their NULs; p NULL: unknown,
                              or it runs elsewhere */
};

/* Whether the files are the ones that the rules allow, so that the command may run free; *ret is
 * then its program. Without a sandbox it is enough that each name means the expected file, and *ret
 * is empty. */
bool sp_program_find(const struct sp_program_request *request, struct sp_program *ret);

/* Whether PATH has an empty or relative entry, so that names are looked up in the working
 * directory. */
bool sp_path_is_relative(struct sp_str path);

/* The variables of a program that decides about commands and runs without a sandbox: an approver, a
 * hook, the reviewer. They are those of the server, without the entries of PATH and the variables
 * that lead to code which commands under the policy may write. NULL at the end; the caller frees
 * the array, which borrows from `own`. NULL: no memory. */
char **sp_decider_environ(const struct sp_policy *policy, char *const *own);

/* Whether a shell would read a startup file of the user that commands may write. */
bool sp_startup_is_writable(const struct sp_policy *policy, struct sp_str environ);

#endif
