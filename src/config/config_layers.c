/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_layers: finds and parses the texts of a configuration: the file, over it the variables
 * SALLYPORT_KEY, over them --set. Each is a TOML text of its own. Their trees are merged before any
 * value is checked, so that a layer may set one key of a table.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "base/json.h"
#include "base/utf8.h"
#include "config/config_keys.h"

#define FILE_NAME   "sallyport.conf"
#define SYSTEM_FILE "/etc/sallyport/sallyport.conf"
#define NO_FILE     "/dev/null" /* as --config: no file at all */
#define VARIABLE    "SALLYPORT_"
#define MAX_SETS    1024

void sp_config_layers_done(struct sp_config_layers *y)
{
    for (size_t i = 0; i < y->count; i++)
        sp_toml_done(&y->docs[i]);
    free(y->docs);
}

/* y->docs has room for all layers. */
static int add_layer(struct sp_config_layers *y, const char *name, struct sp_str text,
                     struct sp_err *e)
{
    struct sp_toml *doc = &y->docs[y->count];
    const int r = sp_toml_parse(doc, name, text, e);

    if (r == 0)
        y->count++;
    return r;
}

/* ---- variables ---- */

/* NULL: not set, or empty. */
static const char *variable(char *const *env, const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; env != NULL && env[i] != NULL; i++)
        if (strncmp(env[i], name, n) == 0 && env[i][n] == '=')
            return env[i][n + 1] == 0 ? NULL : env[i] + n + 1;
    return NULL;
}

/* "$SALLYPORT_KEY_NAME" for key_name */
static const char *variable_of(const char *key, char *room, size_t size)
{
    const int n = snprintf(room, size, "$" VARIABLE "%s", key);

    for (int i = 0; i < n && (size_t)i < size; i++)
        if (room[i] >= 'a' && room[i] <= 'z')
            room[i] = (char)(room[i] - 'a' + 'A');
    return room;
}

/* A value that does not parse as TOML is taken as a string; the type check refuses it if the key
 * wants another type. */
static int add_variable(struct sp_config_layers *y, const struct sp_config_key *key,
                        const char *name, const char *value, struct sp_err *e)
{
    const bool is_string =
        key->type == SP_KEY_STRING || key->type == SP_KEY_PATH || key->type == SP_KEY_SOME_STRINGS;
    auto_buf struct sp_buf text = {0};
    struct sp_toml *doc = &y->docs[y->count];

    if (!sp_utf8_is_valid(sp_str_of(value)))
        return sp_fail(e, SP_E_INVALID, 0, "%s is not UTF-8", name);
    if (!is_string) {
        if (!sp_buf_printf(&text, "%s = %s", key->name, value))
            return sp_config_no_memory(e);
        const int r = add_layer(y, name, sp_buf_str(&text), e);
        if (r == -SP_E_SYSTEM || (r == 0 && doc->root->count == 1))
            return r;
        if (r == 0) {
            sp_toml_done(doc);
            y->count--;
        }
        text.len = 0;
    }
    if (!sp_buf_printf(&text, "%s = ", key->name) || !sp_json_add_str(&text, sp_str_of(value)))
        return sp_config_no_memory(e);
    return add_layer(y, name, sp_buf_str(&text), e);
}

static int add_variables(struct sp_config_layers *y, char *const *env, struct sp_err *e)
{
    int r = 0;

    for (const struct sp_config_key *k = sp_config_section("")->keys; r == 0 && k->name != NULL;
         k++) {
        char room[80];
        const char *name = variable_of(k->name, room, sizeof room);
        const char *value = sp_config_is_scalar(k) ? variable(env, name + 1) : NULL;

        if (value == NULL)
            continue;
        r = add_variable(y, k, name, value, e);
        if (r == 0)
            y->docs[y->count - 1].has_no_places = true;
    }
    return r;
}

/* ---- --set ---- */

/* The key may be dotted, but there must be exactly one. */
static int add_set(struct sp_config_layers *y, const char *set, struct sp_err *e)
{
    auto_buf struct sp_buf name = {0};

    if (!sp_buf_printf(&name, "--set %.*s", (int)strcspn(set, "="), set) ||
        !sp_buf_add(&name, "", 1))
        return sp_config_no_memory(e);
    const int r = add_layer(y, name.data, sp_str_of(set), e);
    if (r < 0)
        return r;
    if (y->docs[y->count - 1].root->count != 1)
        return sp_fail(e, SP_E_INVALID, 0, "--set %.120s: expected one KEY=VALUE", set);
    return 0;
}

/* ---- the file ---- */

/* Whether the open failed because the file is missing, or may not be seen: a directory above it
 * cannot be searched. */
static bool is_missing(const char *path, int open_errno)
{
    struct stat st;

    if (open_errno == ENOENT || open_errno == ENOTDIR)
        return true;
    return open_errno == EACCES && lstat(path, &st) < 0;
}

int sp_config_check_owner(int fd, const char *path, struct stat *ret, struct sp_err *e)
{
    if (fstat(fd, ret) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "read %s", path);
    if (!S_ISREG(ret->st_mode))
        return sp_fail(e, SP_E_INVALID, 0, "%s: not a regular file", path);
    if (ret->st_uid != geteuid() && ret->st_uid != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s: belongs to user %u, so it is not trusted; it must belong to you or to "
                       "root",
                       path, (unsigned)ret->st_uid);
    return 0;
}

/* Appends a regular file that only its owner, the user or root, may write. *ret_exists false, and
 * 0: there is none. */
static int read_trusted_file(const char *path, struct sp_buf *out, bool *ret_exists,
                             struct sp_err *e)
{
    /* O_NONBLOCK: a FIFO in its place must not block. */
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;

    *ret_exists = fd >= 0 || !is_missing(path, errno);
    if (!*ret_exists)
        return 0;
    if (fd < 0)
        return sp_fail(e, SP_E_INVALID, errno, "read %s", path);
    const int r = sp_config_check_owner(fd, path, &st, e);
    if (r < 0)
        return r;
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s: others may write it (mode %04o), so it is not trusted; chmod go-w it",
                       path, (unsigned)st.st_mode & 07777);
    const int failed = sp_read_all(fd, SP_TOML_MAX_BYTES, out);
    if (failed == EFBIG)
        return sp_fail(e, SP_E_INVALID, 0, "%s: more than %d bytes", path, SP_TOML_MAX_BYTES);
    return failed == 0 ? 0 : sp_fail(e, SP_E_SYSTEM, failed, "read %s", path);
}

/* A relative path would depend on the working directory, which a project may choose. */
static int check_absolute(const char *name, const char *path, struct sp_err *e)
{
    if (path == NULL || path[0] == '/')
        return 0;
    return sp_fail(e, SP_E_INVALID, 0, "$%s: expected an absolute path, not `%.120s`", name, path);
}

/* Copies an absolute path; *ret stays NULL for any other. false: no memory. */
static bool keep_absolute(struct sp_config_loading *l, const char *path, const char **ret)
{
    if (path == NULL || path[0] != '/')
        return true;
    *ret = sp_arena_copy(&l->impl->arena, sp_str_of(path));
    return *ret != NULL;
}

int sp_config_find_home(struct sp_config_loading *l, char *const *env)
{
    const char *own = variable(env, VARIABLE "HOME");
    const char *home = variable(env, "HOME");
    const char *tmpdir = variable(env, "TMPDIR");
    auto_buf struct sp_buf path = {0};
    const int r = check_absolute(VARIABLE "HOME", own, l->e);

    if (r < 0)
        return r;
    if (!keep_absolute(l, home, &l->impl->user_home) || !keep_absolute(l, tmpdir, &l->impl->tmpdir))
        return sp_config_no_memory(l->e);
    if (own == NULL && l->impl->user_home == NULL)
        return 0;
    if (!(own != NULL ? sp_buf_add_str(&path, sp_str_of(own))
                      : sp_buf_printf(&path, "%s/.sallyport", l->impl->user_home)))
        return sp_config_no_memory(l->e);
    l->config->home = sp_arena_copy(&l->impl->arena, sp_buf_str(&path));
    return l->config->home == NULL ? sp_config_no_memory(l->e) : 0;
}

/* *ret_found: the file exists; then config.path names it. */
static int try_file(struct sp_config_loading *l, const char *path, struct sp_buf *text,
                    bool *ret_found)
{
    const int r = read_trusted_file(path, text, ret_found, l->e);

    if (r < 0 || !*ret_found)
        return r;
    l->config->path = sp_arena_copy(&l->impl->arena, sp_str_of(path));
    return l->config->path == NULL ? sp_config_no_memory(l->e) : 0;
}

/* A file that was named must exist. */
static int need_file(struct sp_config_loading *l, const char *option, const char *path,
                     struct sp_buf *text)
{
    bool is_found = true;
    const int r = strcmp(path, NO_FILE) == 0 ? 0 : try_file(l, path, text, &is_found);

    if (r < 0)
        return sp_wrap(l->e, "%s", option);
    return is_found ? 0 : sp_fail(l->e, SP_E_INVALID, 0, "%s: there is no file %s", option, path);
}

static int find_file(struct sp_config_loading *l, const struct sp_config_ask *ask,
                     struct sp_buf *text)
{
    const char *named = variable(ask->env, VARIABLE "CONFIG");
    auto_buf struct sp_buf path = {0};
    bool is_found = false;
    int r = 0;

    if (ask->file != NULL)
        return need_file(l, "--config", ask->file, text);
    if (named != NULL) {
        r = check_absolute(VARIABLE "CONFIG", named, l->e);
        return r < 0 ? r : need_file(l, "$" VARIABLE "CONFIG", named, text);
    }
    if (l->config->home != NULL) {
        if (!sp_buf_printf(&path, "%s/" FILE_NAME, l->config->home) || !sp_buf_add(&path, "", 1))
            return sp_config_no_memory(l->e);
        r = try_file(l, path.data, text, &is_found);
    }
    return r < 0 || is_found ? r : try_file(l, SYSTEM_FILE, text, &is_found);
}

int sp_config_read_layers(struct sp_config_loading *l, const struct sp_config_ask *ask,
                          struct sp_config_layers *y)
{
    auto_buf struct sp_buf text = {0};
    size_t sets = 0;
    size_t keys = 0;

    while (ask->sets != NULL && ask->sets[sets] != NULL)
        sets++;
    if (sets > MAX_SETS)
        return sp_fail(l->e, SP_E_INVALID, 0, "--set: at most %d of them", MAX_SETS);
    while (sp_config_section("")->keys[keys].name != NULL)
        keys++;
    y->docs = calloc(1 + keys + sets, sizeof *y->docs);
    if (y->docs == NULL)
        return sp_config_no_memory(l->e);

    int r = find_file(l, ask, &text);
    if (r == 0)
        r = add_layer(y, l->config->path == NULL ? "" : l->config->path,
                      (struct sp_str){text.len == 0 ? "" : text.data, text.len}, l->e);
    if (r == 0)
        r = add_variables(y, ask->env, l->e);
    for (size_t i = 0; r == 0 && i < sets; i++)
        r = add_set(y, ask->sets[i], l->e);
    for (size_t i = 1; r == 0 && i < y->count; i++)
        sp_toml_merge(y->docs[0].root, y->docs[i].root);
    return r;
}
