/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each layer is a TOML text of its own; their trees are merged first and understood after, so that
 * a layer may say a part of a table.
 */
#include "config/config_layers.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/json.h"
#include "base/utf8.h"
#include "config/config_keys.h"

#define FILE_NAME   "sallyport.conf"
#define SYSTEM_FILE "/etc/sallyport/sallyport.conf"
#define NO_FILE     "/dev/null" /* to say that there is none */
#define VARIABLE    "SALLYPORT_"
#define MAX_SETS    1024

void sp_config_layers_done(struct sp_config_layers *y)
{
    for (size_t i = 0; i < y->count; i++)
        sp_toml_done(&y->docs[i]);
    free(y->docs);
}

/* There is room. Over what is there already, unless it is the first. */
static int add_layer(struct sp_config_layers *y, const char *name, struct sp_str text,
                     struct sp_err *e)
{
    struct sp_toml *doc = &y->docs[y->count];
    const int r = sp_toml_parse(doc, name, text, e);

    if (r == 0)
        y->count++;
    return r;
}

static void lay(struct sp_config_layers *y)
{
    for (size_t i = 1; i < y->count; i++)
        sp_toml_merge(y->docs[0].root, y->docs[i].root);
}

/* ---- the environment ---- */

static const char *variable(char *const *environment, const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; environment != NULL && environment[i] != NULL; i++)
        if (strncmp(environment[i], name, n) == 0 && environment[i][n] == '=')
            return environment[i][n + 1] == 0 ? NULL : environment[i] + n + 1;
    return NULL;
}

/* $SALLYPORT_KEY_NAME */
static const char *variable_of(const char *key, char *room, size_t size)
{
    const int n = snprintf(room, size, "$" VARIABLE "%s", key);

    for (int i = 0; i < n && (size_t)i < size; i++)
        if (room[i] >= 'a' && room[i] <= 'z')
            room[i] = (char)(room[i] - 'a' + 'A');
    return room;
}

/* A value that is no TOML is a string; whoever wants something else will say so. */
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
        const int r = add_layer(y, name, (struct sp_str){text.data, text.len}, e);
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
    return add_layer(y, name, (struct sp_str){text.data, text.len}, e);
}

static int add_variables(struct sp_config_layers *y, char *const *environment, struct sp_err *e)
{
    int r = 0;

    for (const struct sp_config_key *k = sp_config_section("")->keys; r == 0 && k->name != NULL;
         k++) {
        char room[80];
        const char *name = variable_of(k->name, room, sizeof room);
        const char *value = sp_config_is_scalar(k) ? variable(environment, name + 1) : NULL;

        if (value == NULL)
            continue;
        r = add_variable(y, k, name, value, e);
        if (r == 0)
            y->docs[y->count - 1].has_no_places = true;
    }
    return r;
}

/* ---- --set ---- */

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

static size_t count_sets(const struct sp_config_ask *ask)
{
    size_t n = 0;

    while (ask->sets != NULL && ask->sets[n] != NULL)
        n++;
    return n;
}

/* ---- where the file is ---- */

/* Absolute, so that no working directory decides which file it is. */
static int check_absolute(const char *name, const char *path, struct sp_err *e)
{
    if (path == NULL || path[0] == '/')
        return 0;
    return sp_fail(e, SP_E_INVALID, 0, "$%s: expected an absolute path, not `%.120s`", name, path);
}

/* A relative one is none. false: no memory */
static bool keep_absolute(struct sp_config_loading *l, const char *path, const char **ret)
{
    if (path == NULL || path[0] != '/')
        return true;
    *ret = sp_arena_copy(&l->impl->arena, sp_str_of(path));
    return *ret != NULL;
}

int sp_config_find_home(struct sp_config_loading *l, char *const *environment)
{
    const char *own = variable(environment, VARIABLE "HOME");
    const char *home = variable(environment, "HOME");
    const char *tmpdir = variable(environment, "TMPDIR");
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
    l->config->home = sp_arena_copy(&l->impl->arena, (struct sp_str){path.data, path.len});
    return l->config->home == NULL ? sp_config_no_memory(l->e) : 0;
}

/* *ret_found: path is the one */
static int try_file(struct sp_config_loading *l, const char *path, struct sp_buf *text,
                    bool *ret_found)
{
    const int r = sp_config_read_file(path, text, ret_found, l->e);

    if (r < 0 || !*ret_found)
        return r;
    l->config->path = sp_arena_copy(&l->impl->arena, sp_str_of(path));
    return l->config->path == NULL ? sp_config_no_memory(l->e) : 0;
}

/* One that was asked for must be there. */
static int need_file(struct sp_config_loading *l, const char *who, const char *path,
                     struct sp_buf *text)
{
    bool is_found = true;
    const int r = strcmp(path, NO_FILE) == 0 ? 0 : try_file(l, path, text, &is_found);

    if (r < 0)
        return sp_wrap(l->e, "%s", who);
    return is_found ? 0 : sp_fail(l->e, SP_E_INVALID, 0, "%s: there is no file %s", who, path);
}

static int read_file(struct sp_config_loading *l, const struct sp_config_ask *ask,
                     struct sp_buf *text)
{
    const char *named = variable(ask->environment, VARIABLE "CONFIG");
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
    const size_t sets = count_sets(ask);
    auto_buf struct sp_buf text = {0};

    if (sets > MAX_SETS)
        return sp_fail(l->e, SP_E_INVALID, 0, "--set: at most %d of them", MAX_SETS);
    size_t keys = 0;
    while (sp_config_section("")->keys[keys].name != NULL)
        keys++;
    y->docs = calloc(1 + keys + sets, sizeof *y->docs);
    if (y->docs == NULL)
        return sp_config_no_memory(l->e);

    int r = read_file(l, ask, &text);
    if (r == 0)
        r = add_layer(y, l->config->path == NULL ? "" : l->config->path,
                      (struct sp_str){text.len == 0 ? "" : text.data, text.len}, l->e);
    if (r == 0)
        r = add_variables(y, ask->environment, l->e);
    for (size_t i = 0; r == 0 && i < sets; i++)
        r = add_set(y, ask->sets[i], l->e);
    if (r == 0)
        lay(y);
    return r;
}
