/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve_env.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/program.h"
#include "base/auto.h"
#include "os/remote_mounts.h"

/* ---- names ---- */

static bool ends_with(struct sp_str s, const char *end)
{
    const size_t n = strlen(end);

    return s.n >= n && memcmp(s.p + s.n - n, end, n) == 0;
}

/* Variables that choose which code a program loads, which files a shell reads first, or which
 * program another one starts. The list cannot be complete: it has the common ones. */
static bool is_steering(struct sp_str name)
{
    static const char *const families[] = {
        "LD_",   "BASH_FUNC_", "GCONV_", "GIT_",     "PYTHON",   "PERL",      "RUBY",
        "NODE_", "RUSTC",      "CARGO_", "LUA_INIT", "LUA_PATH", "LUA_CPATH", "OPENSSL_",
    };
    static const char *const names[] = {
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "IFS",
        "PS4",
        "HOME",
        "ZDOTDIR",
        "XDG_CONFIG_HOME",
        "GLIBC_TUNABLES",
        "EDITOR",
        "VISUAL",
        "LESSOPEN",
        "LESSCLOSE",
        "BROWSER",
        "SHELL",
        "MAKEFLAGS",
        "_JAVA_OPTIONS",
        "MAKEFILES",
        "JAVA_TOOL_OPTIONS",
        "PHPRC",
        "CDPATH",
        "SSH_ASKPASS",
        "SUDO_ASKPASS",
        "RIPGREP_CONFIG_PATH",
        "GNUMAKEFLAGS",
        "GOFLAGS",
        "PHP_INI_SCAN_DIR",
        "KUBECONFIG",
        "DOTNET_STARTUP_HOOKS",
        "DOCKER_CONFIG",
        "CURL_HOME",
        "FPATH",
        "RUSTFLAGS",
        "PROMPT_COMMAND",
        "TAR_OPTIONS",
        "RSYNC_RSH",
        "MFLAGS",
        "GOENV",
        "WGETRC",
    };
    static const char npm[] = "npm_config_"; /* in any case */

    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const size_t n = strlen(families[i]);

        if (name.n >= n && memcmp(name.p, families[i], n) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (sp_str_eq(name, sp_str_of(names[i])))
            return true;
    return ends_with(name, "PAGER") ||
           (name.n >= sizeof npm - 1 && strncasecmp(name.p, npm, sizeof npm - 1) == 0);
}

/* Agents set PAGER=cat to get all output at once: harmless. */
static bool is_no_pager(struct sp_str name, struct sp_str value)
{
    return ends_with(name, "PAGER") && (value.n == 0 || sp_str_eq(value, SP_STR("cat")));
}

/* Whether the server has the same NAME=VALUE. */
static bool is_ours(struct sp_str word, char *const *ours)
{
    for (; ours != NULL && *ours != NULL; ours++)
        if (sp_str_eq(word, sp_str_of(*ours)))
            return true;
    return false;
}

static const char *our_path(char *const *ours)
{
    for (; ours != NULL && *ours != NULL; ours++)
        if (strncmp(*ours, "PATH=", 5) == 0)
            return *ours + 5;
    return "";
}

/* ---- PATH ---- */

enum found { FOUND, NOT_FOUND, NOT_KNOWN };

/* The program that this PATH finds. Relative entries are skipped: a PATH that has one is judged
 * with the command anyway. NOT_KNOWN: an earlier entry may be on a network file system, where
 * stat() could block the front, or has "..", "." or "//", so that its mount is not known. */
static enum found find_program(const struct sp_remote_mounts *remote, struct sp_str path,
                               struct sp_str name, struct stat *ret)
{
    char file[PATH_MAX];

    for (;;) {
        const char *colon = path.n == 0 ? NULL : memchr(path.p, ':', path.n);
        const struct sp_str entry = {path.p, colon == NULL ? path.n : (size_t)(colon - path.p)};
        struct sp_str dir = entry;

        while (dir.n > 1 && dir.p[dir.n - 1] == '/')
            dir.n--;
        const int n = snprintf(file, sizeof file, SP_STR_FMT "/" SP_STR_FMT, SP_STR_ARG(dir),
                               SP_STR_ARG(name));

        if (n > 0 && (size_t)n < sizeof file && file[0] == '/') {
            if (strstr(file, "//") != NULL || strstr(file, "/../") != NULL ||
                strstr(file, "/./") != NULL || sp_remote_mounts_have(remote, file))
                return NOT_KNOWN;
            if (stat(file, ret) == 0 && S_ISREG(ret->st_mode) && access(file, X_OK) == 0)
                return FOUND;
        }
        if (colon == NULL)
            return NOT_FOUND;
        path = (struct sp_str){colon + 1, path.n - entry.n - 1};
    }
}

/* Whether the client's PATH finds, or may find, another program than ours does. */
static bool is_other_program(const struct sp_remote_mounts *remote, struct sp_str name,
                             struct sp_str path, const char *ours)
{
    struct stat its;
    struct stat usual;

    if (name.n == 0 || memchr(name.p, '/', name.n) != NULL || sp_str_eq(path, sp_str_of(ours)))
        return false;
    const enum found found = find_program(remote, path, name, &its);
    if (found != FOUND)
        return found == NOT_KNOWN;
    return find_program(remote, sp_str_of(ours), name, &usual) != FOUND ||
           its.st_ino != usual.st_ino || its.st_dev != usual.st_dev;
}

/* Checks the program itself, and those that a script starts. */
static int is_path_steering(const struct sp_start_gate_case *c, struct sp_str path,
                            char *const *ours, bool *ret, struct sp_err *e)
{
    auto_segments struct sp_segments s = {0};
    struct sp_remote_mounts remote;
    const int r = sp_segments_read(&s, (struct sp_words){c->argv, c->argc}, e);

    if (r < 0)
        return r;
    sp_remote_mounts_open(&remote);
    *ret = c->argc != 0 && is_other_program(&remote, c->argv[0], path, our_path(ours));
    for (uint32_t i = 0; i < s.count && !*ret; i++)
        *ret = s.items[i].count != 0 &&
               is_other_program(&remote, s.items[i].items[0], path, our_path(ours));
    sp_remote_mounts_close(&remote);
    return 0;
}

/* ---- all variables of a client ---- */

/* Adds NAME=VALUE to the words if it steers and is not the server's own. */
static int add_variable(struct sp_serve_env *v, struct sp_str word,
                        const struct sp_start_gate_case *c, char *const *ours, struct sp_err *e)
{
    const char *equals = memchr(word.p, '=', word.n);
    const struct sp_str name = {word.p, equals == NULL ? word.n : (size_t)(equals - word.p)};
    const struct sp_str value = {equals == NULL ? word.p + word.n : equals + 1,
                                 equals == NULL ? 0 : word.n - name.n - 1};
    bool counts = is_steering(name) && !is_no_pager(name, value);
    bool is_relative = false;
    int r = 0;

    if (sp_str_eq(name, SP_STR("PATH"))) {
        v->path = value;
        /* Which program a name means changes with every `cd` of a script. */
        is_relative = sp_path_is_relative(value);
        r = is_path_steering(c, value, ours, &counts, e);
    }
    if (r == 0 && (is_relative || (counts && !is_ours(word, ours))))
        v->items[v->words.count++] = word;
    return r;
}

int sp_serve_env_read(struct sp_serve_env *ret, const struct sp_start_gate_case *c,
                      char *const *ours, struct sp_err *e)
{
    const char *at = c->env->data;
    int r = 0;

    *ret = (struct sp_serve_env){.items = calloc(c->envc + (size_t)1, sizeof *ret->items)};
    if (ret->items == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "judge a command");
    ret->words.items = ret->items;
    ret->items[ret->words.count++] = SP_STR("env");
    for (uint32_t i = 0; i < c->envc && r == 0; i++) {
        const struct sp_str word = sp_str_of(at);

        r = add_variable(ret, word, c, ours, e);
        at += word.n + 1;
    }
    if (ret->words.count == 1)
        ret->words.count = 0;
    return r;
}

void sp_serve_env_done(struct sp_serve_env *v)
{
    free(v->items);
    *v = (struct sp_serve_env){0};
}
