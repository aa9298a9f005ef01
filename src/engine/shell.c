/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell: see shell.h.
 */
#include "engine/shell.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"

#define LAST_RESORT "/bin/sh"
#define MAX_NAMES   2
#define MAX_ACCOUNT ((size_t)1 << 20)

/* The names of each type in PATH, and its usual paths. */
static const struct shell_names {
    const char *programs[MAX_NAMES];
    const char *usual[MAX_NAMES];
} shell_names[SP_SHELL_MAX] = {
    [SP_SHELL_ZSH] = {{"zsh"}, {"/bin/zsh"}},
    [SP_SHELL_BASH] = {{"bash"}, {"/bin/bash", "/usr/bin/bash"}},
    [SP_SHELL_SH] = {{"sh"}, {"/bin/sh"}},
    [SP_SHELL_POWERSHELL] = {{"pwsh", "powershell"}, {NULL}},
    [SP_SHELL_CMD] = {{"cmd"}, {NULL}},
};

void sp_shell_done(struct sp_shell *s)
{
    free(s->path);
    *s = (struct sp_shell){0};
}

/* ---- types ---- */

const char *sp_shell_type_name(enum sp_shell_type type)
{
    static const char *const names[SP_SHELL_MAX] = {[SP_SHELL_UNKNOWN] = "unknown",
#define X(type, name) [SP_SHELL_##type] = (name),
                                                    SP_SHELL_TYPES(X)
#undef X
    };
    return names[type < SP_SHELL_MAX ? type : SP_SHELL_UNKNOWN];
}

enum sp_shell_type sp_shell_type_of(struct sp_str path)
{
    if (path.p == NULL || path.n == 0)
        return SP_SHELL_UNKNOWN;
    const char *slash = memrchr(path.p, '/', path.n);
    struct sp_str name = path;
    if (slash != NULL)
        name = (struct sp_str){slash + 1, path.n - (size_t)(slash + 1 - path.p)};
    const char *dot = name.n == 0 ? NULL : memrchr(name.p, '.', name.n);
    if (dot != NULL)
        name.n = (size_t)(dot - name.p);
    for (int type = SP_SHELL_UNKNOWN + 1; type < SP_SHELL_MAX; type++)
        for (int i = 0; i < MAX_NAMES && shell_names[type].programs[i] != NULL; i++)
            if (sp_str_eq(name, sp_str_of(shell_names[type].programs[i])))
                return (enum sp_shell_type)type;
    return SP_SHELL_UNKNOWN;
}

/* ---- finding the file ---- */

static bool is_program(const struct sp_shell_places *places, const char *path)
{
    struct stat st;

    if (path[0] != '/')
        return false;
    if (places->is_program != NULL)
        return places->is_program(path, places->context);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "find a shell");
}

static int set_shell(enum sp_shell_type type, const char *path, struct sp_shell *ret,
                     struct sp_err *e)
{
    char *copy = strdup(path);

    if (copy == NULL)
        return no_memory(e);
    *ret = (struct sp_shell){.type = type, .path = copy};
    return 0;
}

/* *ret NULL: not in PATH. */
static int find_in_path(const struct sp_shell_places *places, const char *program, char **ret,
                        struct sp_err *e)
{
    const char *rest = places->path != NULL ? places->path : "";

    *ret = NULL;
    while (*rest != 0) {
        const size_t n = strcspn(rest, ":");
        auto_free char *path = malloc(n + strlen(program) + 2);

        if (path == NULL)
            return no_memory(e);
        memcpy(path, rest, n);
        path[n] = '/';
        memcpy(path + n + 1, program, strlen(program) + 1);
        /* An empty entry means the working directory and must not become "/program". */
        if (n != 0 && is_program(places, path)) {
            *ret = TAKE_PTR(path);
            return 0;
        }
        rest += n;
        rest += *rest == ':';
    }
    return 0;
}

/* 0 with ret->path NULL: not installed. */
static int locate(const struct sp_shell_places *places, enum sp_shell_type type,
                  struct sp_shell *ret, struct sp_err *e)
{
    const char *account = places->account_shell;

    *ret = (struct sp_shell){0};
    if (type == SP_SHELL_UNKNOWN)
        return 0;
    if (account != NULL && sp_shell_type_of(sp_str_of(account)) == type &&
        is_program(places, account))
        return set_shell(type, account, ret, e);
    for (int i = 0; i < MAX_NAMES && shell_names[type].programs[i] != NULL; i++) {
        const int r = find_in_path(places, shell_names[type].programs[i], &ret->path, e);

        if (r < 0 || ret->path != NULL) {
            ret->type = type;
            return r;
        }
    }
    for (int i = 0; i < MAX_NAMES && shell_names[type].usual[i] != NULL; i++)
        if (is_program(places, shell_names[type].usual[i]))
            return set_shell(type, shell_names[type].usual[i], ret, e);
    return 0;
}

int sp_shell_find(const struct sp_shell_places *places, struct sp_str asked, struct sp_shell *ret,
                  struct sp_err *e)
{
    const char *account = places->account_shell != NULL ? places->account_shell : "";
    const enum sp_shell_type own = sp_shell_type_of(sp_str_of(account));
    const bool is_asked = asked.p != NULL;
    const enum sp_shell_type types[] = {is_asked ? sp_shell_type_of(asked) : SP_SHELL_BASH,
                                        SP_SHELL_ZSH};

    if (!is_asked && own != SP_SHELL_UNKNOWN && is_program(places, account))
        return set_shell(own, account, ret, e);
    for (size_t i = 0; i < (is_asked ? 1 : 2); i++) {
        struct sp_shell found;
        const int r = locate(places, types[i], &found, e);

        if (r < 0)
            return r;
        if (found.path != NULL) {
            *ret = found;
            return 0;
        }
    }
    return set_shell(SP_SHELL_SH, LAST_RESORT, ret, e);
}

int sp_shell_of_account(char **ret, struct sp_err *e)
{
    for (size_t size = 1024; size <= MAX_ACCOUNT; size *= 2) {
        auto_free char *text = malloc(size);
        struct passwd entry;
        struct passwd *found = NULL;

        if (text == NULL)
            return no_memory(e);
        const int r = getpwuid_r(getuid(), &entry, text, size, &found);
        if (r == ERANGE)
            continue;
        char *shell = NULL;
        if (r == 0 && found != NULL && found->pw_shell != NULL && found->pw_shell[0] != 0) {
            shell = strdup(found->pw_shell);
            if (shell == NULL)
                return no_memory(e);
        }
        *ret = shell;
        return 0;
    }
    *ret = NULL; /* an entry larger than MAX_ACCOUNT is ignored */
    return 0;
}
