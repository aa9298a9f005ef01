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
#include "sandbox/resolve.h"

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

static bool is_program_on_disk(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool is_program(const struct sp_shell_places *places, const char *path)
{
    if (path[0] != '/')
        return false;
    return places->is_program != NULL ? places->is_program(path, places->context)
                                      : is_program_on_disk(path);
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

/* The first installed type, otherwise LAST_RESORT. */
static int locate_first(const struct sp_shell_places *places, const enum sp_shell_type *types,
                        size_t count, struct sp_shell *ret, struct sp_err *e)
{
    for (size_t i = 0; i < count; i++) {
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

int sp_shell_of_user(const struct sp_shell_places *places, struct sp_shell *ret, struct sp_err *e)
{
    const char *account = places->account_shell != NULL ? places->account_shell : "";
    const enum sp_shell_type type = sp_shell_type_of(sp_str_of(account));
    const enum sp_shell_type next[] = {SP_SHELL_BASH, SP_SHELL_ZSH};

    if (type != SP_SHELL_UNKNOWN && is_program(places, account))
        return set_shell(type, account, ret, e);
    return locate_first(places, next, 2, ret, e);
}

int sp_shell_of_name(const struct sp_shell_places *places, struct sp_str asked,
                     struct sp_shell *ret, struct sp_err *e)
{
    const enum sp_shell_type type = sp_shell_type_of(asked);

    return locate_first(places, &type, 1, ret, e);
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

/* ---- argv ---- */

int sp_shell_login(bool has_login, bool login, bool is_login_allowed, bool *ret, struct sp_err *e)
{
    if (has_login && login && !is_login_allowed)
        return sp_fail(e, SP_E_INVALID, 0,
                       "login shell is disabled by config; omit `login` or set it to false.");
    *ret = has_login ? login : is_login_allowed;
    return 0;
}

static void push_arg(struct sp_shell_argv *argv, struct sp_str item)
{
    argv->items[argv->count++] = item;
}

int sp_shell_argv(const struct sp_shell *s, bool is_login, struct sp_str script,
                  struct sp_shell_argv *ret, struct sp_err *e)
{
    struct sp_shell_argv argv = {0};

    if (sp_str_has_nul(script))
        return sp_fail(e, SP_E_FAILED, 0, "nul byte found in provided data");
    push_arg(&argv, sp_str_of(s->path));
    if (s->type == SP_SHELL_CMD) {
        push_arg(&argv, SP_STR("/c"));
    } else if (s->type == SP_SHELL_POWERSHELL) {
        if (!is_login)
            push_arg(&argv, SP_STR("-NoProfile"));
        push_arg(&argv, SP_STR("-Command"));
    } else {
        push_arg(&argv, is_login ? SP_STR("-lc") : SP_STR("-c"));
    }
    push_arg(&argv, script);
    *ret = argv;
    return 0;
}

/* ---- working directory ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool sp_shell_is_foreign_path(struct sp_str path)
{
    if (path.n >= 2 && path.p[0] == '\\' && path.p[1] == '\\')
        return true;
    return path.n >= 3 && is_letter(path.p[0]) && path.p[1] == ':' &&
           (path.p[2] == '\\' || path.p[2] == '/');
}

int sp_shell_workdir(struct sp_str workdir, const char *cwd, char **ret, struct sp_err *e)
{
    if (sp_str_has_nul(workdir))
        return sp_fail(e, SP_E_FAILED, 0, "nul byte found in provided data");
    if (sp_shell_is_foreign_path(workdir))
        return sp_fail(e, SP_E_INVALID, 0, SP_STR_FMT " is not valid on linux",
                       SP_STR_ARG(workdir));

    char *path = workdir.n == 0 ? strdup(cwd) : sp_str_dup(workdir);
    if (path != NULL && path[0] != '/') {
        char *joined = sp_path_normalise(path, cwd);

        free(path);
        path = joined;
    }
    if (path == NULL)
        return sp_fail(e, SP_E_SYSTEM, errno, "resolve the working directory");
    *ret = path;
    return 0;
}
