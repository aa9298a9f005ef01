/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program: the files that a command's words run, for a command that rules allow.
 *
 * A rule names a program; what runs is a file. A rule makes a run free, or takes a question away,
 * only if commands that were allowed less could not have put that file there. So each program is
 * looked up as the command will look it up, with its PATH, and has to stay (sandbox/writable.h):
 *
 *   - a relative path, a path through /proc or /dev, and a file that is not found never count;
 *   - the file, its links, its directories and, of a script, its interpreter are out of reach;
 *   - so is every directory of PATH that is searched before it;
 *   - in a script of the shell each name is such a file, or one of a few harmless builtins.
 *
 * Where this holds no confined command can change the answer between the judgement and the start.
 * The first word's file is started by its path, and the child compares its inode. What a shell or a
 * program starts in turn is found in the same PATH, which the run gets without the entries that
 * commands may write.
 */
#ifndef SP_APPROVE_PROGRAM_H
#define SP_APPROVE_PROGRAM_H

#include "approve/judge.h"
#include "sandbox/writable.h"

/* The file of a command's first word. */
struct sp_program {
    char *path; /* absolute, as the command or PATH names it: links keep their names in $0 */
    uint64_t dev, ino;
    char *search_path; /* the PATH of the run; NULL: as it is */
};
void sp_program_done(struct sp_program *p);

struct sp_program_ask {
    struct sp_words argv;
    const struct sp_requirement *judged; /* of argv: its segments and matches */
    const struct sp_policy *profile;     /* with all that was granted; NULL: no sandbox */
    struct sp_str environ; /* of the command: NAME=VALUE strings with their NULs; p NULL: it runs
                              elsewhere, or that is not known */
};

/* Whether the command may run free by its rules; *ret is then its program. */
bool sp_program_find(const struct sp_program_ask *ask, struct sp_program *ret);

/* Where no sandbox is: whether what the rules allow by name is what the names stand for. A path
 * that matched by its last component has to lead to the file that PATH has under that name. */
bool sp_program_is_named(const struct sp_program_ask *ask);

/* Whether PATH has an empty or relative entry: names are looked up in the working directory then.
 */
bool sp_path_is_relative(struct sp_str path);

/* The value of a variable; p NULL: it is not set. */
struct sp_str sp_environ_value(struct sp_str environ, const char *name);

/*
 * The environment of a program that decides about commands, and so runs without a sandbox: an
 * approver, a hook, a reviewer. It is that of the server, without the entries of PATH, and without
 * the variables, that lead to code which commands under the profile may have written.
 */
struct sp_decider_environ {
    char **items; /* NULL at the end; borrowed but for `path` */
    char *path;
};
bool sp_decider_environ_make(const struct sp_policy *profile, char *const *own,
                             struct sp_decider_environ *ret); /* false: no memory */
void sp_decider_environ_done(struct sp_decider_environ *v);

/* Whether a login shell, or any, would read a file of the user's that commands may write. */
bool sp_startup_is_writable(const struct sp_policy *profile, struct sp_str environ);

#endif
