/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell: which shell runs a script.
 *
 * A model may name a type of shell, never a file: the file is found through the account, PATH and
 * the usual places. Only absolute paths are considered, so that the working directory cannot decide
 * what runs.
 */
#ifndef SP_ENGINE_SHELL_H
#define SP_ENGINE_SHELL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

#define SP_SHELL_TYPES(X)       \
    X(ZSH, "zsh")               \
    X(BASH, "bash")             \
    X(SH, "sh")                 \
    X(POWERSHELL, "powershell") \
    X(CMD, "cmd")

enum sp_shell_type {
    SP_SHELL_UNKNOWN,
#define X(type, name) SP_SHELL_##type,
    SP_SHELL_TYPES(X)
#undef X
        SP_SHELL_MAX
};

struct sp_shell {
    enum sp_shell_type type; /* not SP_SHELL_UNKNOWN */
    char *path;
};
void sp_shell_done(struct sp_shell *s);

/* Where shells are looked for. */
struct sp_shell_places {
    const char *account_shell; /* from the password database; NULL: none */
    const char *path;          /* PATH; NULL: none */
    bool (*is_program)(const char *path, void *context); /* for tests; NULL: inspects the file */
    void *context;
};

/* By the base name without its extension. */
enum sp_shell_type sp_shell_type_of(struct sp_str path);
const char *sp_shell_type_name(enum sp_shell_type type); /* "unknown" for an unknown one */

/* The account's shell from the password database, to be freed; NULL: none. */
int sp_shell_of_account(char **ret, struct sp_err *e);

/* The shell of the type that `asked` names, otherwise /bin/sh; if p is NULL, the account's shell,
 * otherwise bash, zsh or /bin/sh. Fails only without memory. */
int sp_shell_find(const struct sp_shell_places *places, struct sp_str asked, struct sp_shell *ret,
                  struct sp_err *e);

#endif
