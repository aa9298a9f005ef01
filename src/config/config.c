/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading: the texts of a configuration are the file, over it the variables SALLYPORT_KEY, over
 * them --set. Each is a TOML text of its own; their trees are merged before any value is checked,
 * so that a layer may set one key of a table. Then the sections of the tree are read, all but
 * [permissions] here. At the end: where commands run, by --on.
 */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/redact.h"
#include "base/utf8.h"
#include "config/config_keys.h"
#include "config/policy.h"
#include "sandbox/resolve.h"

#define LEAST_POLL_MAX_MS 5000 /* an empty write_stdin waits at least this long */
#define SYSTEM_FILE       "/etc/sallyport/sallyport.conf"
#define NO_FILE           "/dev/null" /* as --config: no file at all */
#define VARIABLE          "SALLYPORT_"
#define MAX_SETS          1024
#define MAX_ENVIRONMENTS  256
#define MAX_NAME          64 /* of an environment */
#define CONNECT_MS        10000
#define MAX_TOKEN         8192 /* bytes of a token's file */

/* ---- for all sections ---- */

int sp_config_no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the configuration");
}

int sp_config_keep(struct sp_config_loading *l, struct sp_str text, char **ret)
{
    char *copy = sp_arena_copy(&l->impl->arena, text);

    if (copy == NULL)
        return sp_config_no_memory(l->e);
    *ret = copy;
    return 0;
}

int sp_config_expand(struct sp_config_loading *l, const struct sp_toml_value *v, struct sp_str path,
                     char **ret)
{
    const bool is_home = path.n != 0 && path.p[0] == '~' && (path.n == 1 || path.p[1] == '/');
    const char *home = is_home ? l->impl->user_home : "";
    auto_buf struct sp_buf full = {0};

    if (sp_str_has_nul(path))
        return sp_toml_refuse(v, l->e, "a path with a NUL in it cannot be used");
    if (!is_home && (path.n == 0 || path.p[0] != '/'))
        return sp_toml_refuse(v, l->e, "expected an absolute path or `~/...`, not `%.*s`",
                              (int)(path.n > 80 ? 80 : path.n), path.p);
    if (home == NULL)
        return sp_toml_refuse(v, l->e, "`~` needs HOME, which is not set to an absolute path");
    if (is_home)
        path = (struct sp_str){path.p + 1, path.n - 1};
    if (!sp_buf_add_str(&full, sp_str_of(home)) || !sp_buf_add_str(&full, path))
        return sp_config_no_memory(l->e);
    return sp_config_keep(l, sp_buf_str(&full), ret);
}

/* NAME=VALUE of an `env` or `set` table; `key` is for the message. */
static int check_variable(struct sp_config_loading *l, const struct sp_toml_value *v,
                          const char *key)
{
    if (v->key.n == 0 || memchr(v->key.p, '=', v->key.n) != NULL || sp_str_has_nul(v->key))
        return sp_toml_refuse_key(v, l->e, "`%s`: a variable's name has no `=` and no NUL in it",
                                  key);
    if (v->type != SP_TOML_STRING || sp_str_has_nul(v->text))
        return sp_toml_refuse(v, l->e, "`%s`: expected a string without NUL", key);
    return 0;
}

/* ---- the file ---- */

/* A regular file of the user or root. */
static int check_owner(int fd, const char *path, struct stat *ret, struct sp_err *e)
{
    if (fstat(fd, ret) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "read %s", path);
    if (!S_ISREG(ret->st_mode))
        return sp_fail(e, SP_E_INVALID, 0, "%s: not a regular file", path);
    return sp_check_owner(ret, path, e);
}

/* Whether open() failed with this errno although the file exists. A dangling symbolic link counts
 * as a file, and so does a file below a directory that exists and cannot be searched: policies must
 * not be lost in silence. In the home of another user, which is not searchable itself, no file
 * exists.
 */
static bool is_there(const char *path, int failed)
{
    auto_free char *directory = strdup(path);
    struct stat st;

    if (failed == ENOENT || failed == ENOTDIR)
        return lstat(path, &st) == 0;
    if (failed != EACCES || lstat(path, &st) == 0 || directory == NULL)
        return true;
    *strrchr(directory, '/') = 0;
    return stat(directory, &st) == 0;
}

/* Appends a regular file that only its owner, the user or root, may write; config.path names it
 * then. *ret_exists false, and 0: there is none (is_there). */
static int try_file(struct sp_config_loading *l, const char *path, struct sp_buf *out,
                    bool *ret_exists)
{
    /* O_NONBLOCK: a FIFO in its place must not block. */
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const int failed = fd < 0 ? errno : 0;
    struct stat st;

    *ret_exists = failed == 0 || is_there(path, failed);
    if (!*ret_exists)
        return 0;
    if (fd < 0)
        return sp_fail(l->e, SP_E_INVALID, failed, "read %s", path);
    int r = check_owner(fd, path, &st, l->e);
    if (r == 0)
        r = sp_check_trusted(&st, path, l->e);
    if (r < 0)
        return r;
    const int err = sp_read_all(fd, SP_TOML_MAX_BYTES, out);
    if (err == EFBIG)
        return sp_fail(l->e, SP_E_INVALID, 0, "%s: more than %d bytes", path, SP_TOML_MAX_BYTES);
    if (err != 0)
        return sp_fail(l->e, SP_E_SYSTEM, err, "read %s", path);
    return sp_config_keep(l, sp_str_of(path), &l->config->path);
}

/* NULL: not set, or empty. */
static const char *variable(char *const *env, const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; env != NULL && env[i] != NULL; i++)
        if (strncmp(env[i], name, n) == 0 && env[i][n] == '=')
            return env[i][n + 1] == 0 ? NULL : env[i] + n + 1;
    return NULL;
}

/* A relative path would depend on the working directory, which a project may choose. */
static int check_absolute(const char *name, const char *path, struct sp_err *e)
{
    if (path == NULL || path[0] == '/')
        return 0;
    return sp_fail(e, SP_E_INVALID, 0, "$%s: expected an absolute path, not `%.120s`", name, path);
}

/* Sets config.home, impl.user_home and impl.tmpdir. */
static int find_home(struct sp_config_loading *l, char *const *env)
{
    const char *own = variable(env, VARIABLE "HOME");
    const char *home = variable(env, "HOME");
    const char *tmpdir = variable(env, "TMPDIR");
    auto_buf struct sp_buf path = {0};
    int r = check_absolute(VARIABLE "HOME", own, l->e);

    if (r == 0 && home != NULL && home[0] == '/')
        r = sp_config_keep(l, sp_str_of(home), &l->impl->user_home);
    if (r == 0 && tmpdir != NULL && tmpdir[0] == '/')
        r = sp_config_keep(l, sp_str_of(tmpdir), &l->impl->tmpdir);
    if (r < 0 || (own == NULL && l->impl->user_home == NULL))
        return r;
    if (!(own != NULL ? sp_buf_add_str(&path, sp_str_of(own))
                      : sp_buf_printf(&path, "%s/.sallyport", l->impl->user_home)))
        return sp_config_no_memory(l->e);
    return sp_config_keep(l, sp_buf_str(&path), &l->config->home);
}

/* The first that exists; one that was named must exist. */
static int find_file(struct sp_config_loading *l, const struct sp_config_request *ask,
                     struct sp_buf *text)
{
    const char *named = ask->file != NULL ? ask->file : variable(ask->env, VARIABLE "CONFIG");
    const char *option = ask->file != NULL ? "--config" : "$" VARIABLE "CONFIG";
    auto_buf struct sp_buf path = {0};
    bool exists = false;
    int r = 0;

    if (l->uses_kept) {
        const struct sp_str kept = sp_buf_str(ask->kept);
        const size_t n = strnlen(kept.p, kept.n);

        if (n == kept.n || !sp_buf_add(text, kept.p + n + 1, kept.n - n - 1))
            return sp_config_no_memory(l->e);
        return n == 0 ? 0 : sp_config_keep(l, (struct sp_str){kept.p, n}, &l->config->path);
    }
    if (named != NULL) {
        r = ask->file != NULL ? 0 : check_absolute(VARIABLE "CONFIG", named, l->e);
        if (r < 0 || strcmp(named, NO_FILE) == 0)
            return r;
        if (try_file(l, named, text, &exists) < 0)
            return sp_wrap(l->e, "%s", option);
        return exists ? 0
                      : sp_fail(l->e, SP_E_INVALID, 0, "%s: there is no file %s", option, named);
    }
    if (l->config->home != NULL) {
        if (!sp_buf_printf(&path, "%s/" SP_CONFIG_FILE_NAME, l->config->home) ||
            !sp_buf_add(&path, "", 1))
            return sp_config_no_memory(l->e);
        r = try_file(l, path.data, text, &exists);
    }
    return r < 0 || exists ? r : try_file(l, SYSTEM_FILE, text, &exists);
}

/* ---- layers ---- */

static void drop_layers(struct sp_config_impl *y)
{
    for (size_t i = 0; i < y->doc_count; i++)
        sp_toml_done(&y->docs[i]);
    free(y->docs);
    y->docs = NULL;
    y->doc_count = 0;
}

/* y->docs has room for all layers. */
static int add_layer(struct sp_config_impl *y, const char *name, struct sp_str text,
                     struct sp_err *e)
{
    const int r = sp_toml_parse(&y->docs[y->doc_count], name, text, e);

    y->doc_count += r == 0;
    return r;
}

/* A value that does not parse as TOML is taken as a string; the type check refuses it if the key
 * wants another type. */
static int add_variable(struct sp_config_impl *y, const struct sp_config_key *key, const char *name,
                        const char *value, struct sp_err *e)
{
    const bool is_string =
        key->type == SP_KEY_STRING || key->type == SP_KEY_PATH || key->type == SP_KEY_SOME_STRINGS;
    auto_buf struct sp_buf text = {0};
    struct sp_toml *doc = &y->docs[y->doc_count];
    int r = -SP_E_INVALID;

    if (!sp_utf8_is_valid(sp_str_of(value)))
        return sp_fail(e, SP_E_INVALID, 0, "%s is not UTF-8", name);
    if (!is_string) {
        if (!sp_buf_printf(&text, "%s = %s", key->name, value))
            return sp_config_no_memory(e);
        r = add_layer(y, name, sp_buf_str(&text), e);
        if (r == 0 && doc->root->count != 1) {
            sp_toml_done(doc);
            y->doc_count--;
            r = -SP_E_INVALID;
        }
        text.len = 0;
    }
    if (r < 0 && r != -SP_E_SYSTEM) {
        if (!sp_buf_printf(&text, "%s = ", key->name) || !sp_json_add_str(&text, sp_str_of(value)))
            return sp_config_no_memory(e);
        r = add_layer(y, name, sp_buf_str(&text), e);
    }
    doc->has_no_places = r == 0;
    return r;
}

/* Whether a variable SALLYPORT_NAME may set the key. */
static bool is_scalar(const struct sp_config_key *key)
{
    return key->type != SP_KEY_TABLE && key->type != SP_KEY_STRINGS && key->type != SP_KEY_PATHS &&
           key->type != SP_KEY_SOME_PATHS;
}

static int read_layers(struct sp_config_loading *l, const struct sp_config_request *ask)
{
    const struct sp_config_key *keys = sp_config_top_keys;
    struct sp_config_impl *y = l->impl;
    size_t sets = 0;
    size_t key_count = 0;

    while (ask->sets != NULL && ask->sets[sets] != NULL)
        sets++;
    if (sets > MAX_SETS)
        return sp_fail(l->e, SP_E_INVALID, 0, "--set: at most %d of them", MAX_SETS);
    while (keys[key_count].name != NULL)
        key_count++;
    y->docs = calloc(1 + key_count + sets, sizeof *y->docs);
    if (y->docs == NULL)
        return sp_config_no_memory(l->e);

    int r = find_file(l, ask, &l->text);
    if (r == 0)
        r = add_layer(y, l->config->path == NULL ? "" : l->config->path, sp_buf_str(&l->text),
                      l->e);
    for (size_t i = 0; r == 0 && i < key_count; i++) {
        char name[80]; /* "$SALLYPORT_KEY_NAME" for key_name */

        (void)snprintf(name, sizeof name, "$" VARIABLE "%s", keys[i].name);
        for (char *p = name; *p != 0; p++)
            if (*p >= 'a' && *p <= 'z')
                *p = (char)(*p - 'a' + 'A');
        const char *value = is_scalar(&keys[i]) ? variable(ask->env, name + 1) : NULL;
        if (value != NULL)
            r = add_variable(y, &keys[i], name, value, l->e);
    }
    for (size_t i = 0; r == 0 && i < sets; i++) {
        const char *set = ask->sets[i];
        auto_buf struct sp_buf name = {0};

        if (!sp_buf_printf(&name, "--set %.*s", (int)strcspn(set, "="), set) ||
            !sp_buf_add(&name, "", 1))
            return sp_config_no_memory(l->e);
        r = add_layer(y, name.data, sp_str_of(set), l->e);
        /* The key may be dotted, but there must be exactly one. */
        if (r == 0 && y->docs[y->doc_count - 1].root->count != 1)
            r = sp_fail(l->e, SP_E_INVALID, 0, "--set %.120s: expected one KEY=VALUE", set);
    }
    for (size_t i = 1; r == 0 && i < y->doc_count; i++)
        sp_toml_merge(y->docs[0].root, y->docs[i].root);
    return r;
}

/* ---- [shell_environment_policy] and [sandbox] ---- */

static int read_shell_policy(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    struct sp_config_raw_shell_policy raw = {.ignores_default_excludes = true};
    struct sp_env_policy *p = &l->config->env_policy;
    const int r = sp_config_read_section(l, "shell_environment_policy", table, &raw);
    const struct {
        char *const *from;
        const struct sp_str **to;
        uint32_t *count;
    } lists[] = {{raw.exclude, &p->exclude, &p->exclude_count},
                 {raw.include_only, &p->include_only, &p->include_only_count},
                 {raw.keep, &p->keep, &p->keep_count}};

    if (r < 0)
        return r;
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        uint32_t n = 0;

        while (lists[k].from != NULL && lists[k].from[n] != NULL)
            n++;
        struct sp_str *patterns = sp_arena_new(&l->impl->arena, (n + 1) * sizeof *patterns);
        if (patterns == NULL)
            return sp_config_no_memory(l->e);
        for (uint32_t i = 0; i < n; i++)
            patterns[i] = sp_str_of(lists[k].from[i]); /* the strings stay in the arena */
        *lists[k].to = patterns;
        *lists[k].count = n;
    }
    const size_t set_count = raw.set == NULL ? 0 : raw.set->count;
    struct sp_env_var *vars = sp_arena_new(&l->impl->arena, (set_count + 1) * sizeof *vars);
    if (vars == NULL)
        return sp_config_no_memory(l->e);
    l->config->env_set = (struct sp_env_vars){.items = vars};
    for (const struct sp_toml_value *v = raw.set == NULL ? NULL : raw.set->first; v != NULL;
         v = v->next) {
        char *name = NULL;
        char *value = NULL;

        if (check_variable(l, v, "set") < 0 || sp_config_keep(l, v->key, &name) < 0 ||
            sp_config_keep(l, v->text, &value) < 0)
            return -(int)l->e->code;
        vars[l->config->env_set.count++] =
            (struct sp_env_var){.name = {name, v->key.n}, .value = {value, v->text.n}};
    }
    p->inherit = raw.inherit == NULL || strcmp(raw.inherit, "all") == 0 ? SP_ENV_ALL
                 : strcmp(raw.inherit, "core") == 0                     ? SP_ENV_CORE
                                                                        : SP_ENV_NONE;
    p->ignores_default_excludes = raw.ignores_default_excludes;
    return 0;
}

/* Refuses protection that this version does not offer, instead of ignoring the key. */
static int read_sandbox(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    struct sp_config_raw_sandbox raw = {0};
    const int r = sp_config_read_section(l, "sandbox", table, &raw);

    if (r < 0 || table == NULL)
        return r;
    const struct sp_toml_value *names = sp_toml_get(table, SP_STR("protected_names"));
    for (const struct sp_toml_value *v = names == NULL ? NULL : names->first; v != NULL;
         v = v->next) {
        size_t i = 0;

        while (i < SP_PROTECTED_COUNT && !sp_str_eq(v->text, sp_str_of(sp_protected_names[i])))
            i++;
        if (i == SP_PROTECTED_COUNT)
            return sp_toml_refuse(v, l->e,
                                  "`protected_names`: this version protects .git .agents .codex "
                                  ".aws .sallyport and no other name; use a `deny` or `read` entry "
                                  "of a profile");
    }
    if (raw.isolation != NULL && strcmp(raw.isolation, "session") != 0)
        return sp_toml_refuse(sp_toml_get(table, SP_STR("isolation")), l->e,
                              "`isolation`: this version has `session` alone");
    return 0;
}

/* ---- [environments.NAME]: places to run commands ---- */

/* HOST[:PORT] and what follows. HOST is a [IPv6] address, an IPv4 address or a name. */
static const char *check_authority(const char *p)
{
    static const char host[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    const bool is_ipv6 = *p == '[';
    const size_t len = is_ipv6 ? strspn(p + 1, "0123456789abcdefABCDEF:.") : strspn(p, host);
    uint64_t port = 1;

    if (len == 0 || (is_ipv6 && p[1 + len] != ']'))
        return "expected a host after `//`";
    p += is_ipv6 ? len + 2 : len;
    if (*p == ':') {
        const size_t n = strcspn(++p, "/?");

        if (!sp_str_to_u64((struct sp_str){p, n}, 65535, &port) || port == 0)
            return "expected a port from 1 to 65535 after the host's `:`";
        p += n;
    }
    return *p == 0 || *p == '/' || *p == '?' ? NULL : "a character that a host does not have";
}

/* ws://HOST[:PORT][/PATH], wss://..., unix:///PATH. NULL: it is one; else what is wrong. */
static const char *check_url(const char *url)
{
    const char *rest = strstr(url, "://");
    const struct sp_str scheme = {url, rest == NULL ? 0 : (size_t)(rest - url)};

    for (const char *p = url; *p != 0; p++)
        if (*p <= ' ' || *p >= 0x7F || *p == '#')
            return "blanks, control characters, `#` and what is not ASCII must be escaped";
    if (sp_str_eq(scheme, SP_STR("unix")))
        return rest[3] == '/' && rest[4] != 0 ? NULL : "expected unix:///PATH";
    if (!sp_str_eq(scheme, SP_STR("ws")) && !sp_str_eq(scheme, SP_STR("wss")))
        return "expected ws://HOST:PORT, wss://HOST:PORT or unix:///PATH";
    return check_authority(rest + 3);
}

static int check_environment_name(const struct sp_toml_value *v, struct sp_err *e)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

    if (v->key.n == 0 || v->key.n > MAX_NAME || strspn(v->key.p, letters) != v->key.n)
        return sp_toml_refuse_key(
            v, e, "the name of an environment is 1 to %d letters, digits, - and _", MAX_NAME);
    if (sp_str_eq(v->key, SP_STR("local")))
        return sp_toml_refuse_key(v, e, "`local` is this host: choose another name");
    if (v->type != SP_TOML_TABLE)
        return sp_toml_refuse(v, e, "environment `%s`: expected a table, not %s", v->key.p,
                              sp_toml_type_name(v->type));
    return 0;
}

/* A program is executed, so it must not depend on the working directory. */
static int check_environment(const struct sp_toml_value *v,
                             const struct sp_config_raw_environment *raw, struct sp_err *e)
{
    const char *trouble = raw->is.url == NULL ? NULL : check_url(raw->is.url);

    if ((raw->is.url == NULL) == (raw->program == NULL))
        return sp_toml_refuse_key(v, e, "environment `%s`: give `url` or `program`%s", v->key.p,
                                  raw->program == NULL ? "" : ", not both");
    if (raw->program == NULL && (raw->args != NULL || raw->env != NULL))
        return sp_toml_refuse_key(v, e, "environment `%s`: `args` and `env` go with `program`",
                                  v->key.p);
    if (raw->program != NULL && raw->is.token_file != NULL)
        return sp_toml_refuse_key(v, e, "environment `%s`: `token_file` goes with `url`", v->key.p);
    if (trouble != NULL)
        return sp_toml_refuse(sp_toml_get(v, SP_STR("url")), e, "`url`: %s", trouble);
    if (raw->is.cwd != NULL && raw->is.cwd[0] != '/')
        return sp_toml_refuse(sp_toml_get(v, SP_STR("cwd")), e, "`cwd`: expected an absolute path");
    if (raw->program != NULL &&
        (raw->program[0] == 0 || (raw->program[0] != '/' && strchr(raw->program, '/') != NULL)))
        return sp_toml_refuse(sp_toml_get(v, SP_STR("program")), e,
                              "`program`: expected an absolute path, or a name to find in PATH");
    return 0;
}

static int read_environment(struct sp_config_loading *l, const struct sp_toml_value *v,
                            struct sp_config_environment *ret)
{
    struct sp_config_raw_environment raw = {.is.connect_timeout_ms = CONNECT_MS};
    size_t n = 0;
    int r = check_environment_name(v, l->e);

    if (r == 0)
        r = sp_config_read_section(l, "environments.NAME", v, &raw);
    if (r == 0)
        r = check_environment(v, &raw, l->e);
    if (r == 0)
        r = sp_config_keep(l, v->key, &raw.is.name);
    if (r < 0)
        return r;
    if (raw.program != NULL) {
        while (raw.args != NULL && raw.args[n] != NULL)
            n++;
        raw.is.program = sp_arena_new(&l->impl->arena, (n + 2) * sizeof(char *));
        if (raw.is.program == NULL)
            return sp_config_no_memory(l->e);
        raw.is.program[0] = raw.program;
        if (n != 0)
            memcpy(raw.is.program + 1, raw.args, n * sizeof(char *));
    }
    if (raw.env != NULL) {
        raw.is.env = sp_arena_new(&l->impl->arena, (raw.env->count + 1) * sizeof(char *));
        if (raw.is.env == NULL)
            return sp_config_no_memory(l->e);
        n = 0;
        for (const struct sp_toml_value *w = raw.env->first; w != NULL; w = w->next) {
            auto_buf struct sp_buf text = {0};

            r = check_variable(l, w, "env");
            if (r == 0 && !(sp_buf_add_str(&text, w->key) && sp_buf_add(&text, "=", 1) &&
                            sp_buf_add_str(&text, w->text)))
                r = sp_config_no_memory(l->e);
            if (r == 0)
                r = sp_config_keep(l, sp_buf_str(&text), &raw.is.env[n++]);
            if (r < 0)
                return r;
        }
    }
    *ret = raw.is;
    return 0;
}

static int read_environments(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    struct sp_config *c = l->config;
    int r = 0;

    if (table == NULL)
        return 0;
    if (table->count > MAX_ENVIRONMENTS)
        return sp_toml_refuse_key(table, l->e, "more than %d environments", MAX_ENVIRONMENTS);
    c->environments = sp_arena_new(&l->impl->arena, (table->count + 1) * sizeof *c->environments);
    if (c->environments == NULL)
        return sp_config_no_memory(l->e);
    for (const struct sp_toml_value *v = table->first; r == 0 && v != NULL; v = v->next)
        r = read_environment(l, v, &c->environments[c->environment_count++]);
    return r;
}

const struct sp_config_environment *sp_config_find_environment(const struct sp_config *c,
                                                               const char *name)
{
    for (size_t i = 0; i < c->environment_count; i++)
        if (strcmp(c->environments[i].name, name) == 0)
            return &c->environments[i];
    return NULL;
}

/* ---- the keys at the top ---- */

/* As the table in config_keys.c has it for the manual. */
static struct sp_config defaults(void)
{
    static char on_request[] = "on-request";
    static char list[] = "list";
    static char local[] = "local";
    static char automatic[] = "auto";

    return (struct sp_config){
        .approval_policy = on_request,
        .known_safe = list,
        .default_environment = local,
        .retry_on_heuristic = true,
        .env_policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true},
        .allow_login_shell = true,
        .poll_max_ms = 300000,
        .tool_output_token_limit = 10000,
        .exited_ttl_s = 600,
        .detached_ttl_s = 600,
        .report_denied_start = true,
        .mcp_structured_output = automatic,
        .busy_poll = automatic,
    };
}

/* The members of `granular` are checked where the policy is used (approve/approvals.h). */
static int check_approval_policy(const struct sp_config_loading *l, const struct sp_toml_value *v)
{
    static const char *const names[] = {"untrusted", "on-failure", "on-request", "never"};
    struct sp_json j __attribute__((cleanup(sp_json_done))) = {0};
    struct sp_err why = {0};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (sp_str_eq(v->text, sp_str_of(names[i])))
            return 0;
    auto_free char *copy = sp_str_dup(v->text);
    if (copy == NULL)
        return sp_config_no_memory(l->e);
    if (v->text.n == 0 || copy[0] != '{')
        return sp_toml_refuse(v, l->e,
                              "`approval_policy`: expected `untrusted`, `on-failure`, "
                              "`on-request`, `never` or the JSON object {\"granular\":{...}}");
    if (sp_json_parse(&j, copy, v->text.n, &why) < 0)
        return sp_toml_refuse(v, l->e, "`approval_policy`: %s", why.msg);
    uint32_t granular;
    if (j.tokens[0].children != 1 || sp_json_need_object(&j, 0, "granular", &granular, &why) < 0)
        return sp_toml_refuse(v, l->e,
                              "`approval_policy`: expected {\"granular\":{...}} and nothing else");
    return 0;
}

static int check_approver(const struct sp_config_loading *l, const struct sp_toml_value *v)
{
    struct sp_err why = {0};

    if (v->type == SP_TOML_ARRAY) {
        int r = v->count == 0 ? sp_toml_refuse(v, l->e, "`approver`: it names nobody") : 0;

        for (const struct sp_toml_value *item = v->first; r == 0 && item != NULL; item = item->next)
            r = check_approver(l, item);
        return r;
    }
    if (sp_approvers_check(v->text.p, "`deny`, `terminal`, `client`, `console` or `program:/PATH`",
                           true, &why) < 0)
        return sp_toml_refuse(v, l->e, "`approver`: %s", why.msg);
    return 0;
}

bool sp_config_read_ports(struct sp_str text, uint16_t *ret_host, uint16_t *ret_cell)
{
    const bool has_both = memchr(text.p, ':', text.n) != NULL;
    struct sp_str rest = text;
    const struct sp_str host_text = has_both ? sp_str_cut(&rest, ':') : text;
    uint64_t host;
    uint64_t cell;

    if (!sp_str_to_u64(host_text, UINT16_MAX, &host) || !sp_str_to_u64(rest, UINT16_MAX, &cell) ||
        host == 0 || cell == 0)
        return false;
    *ret_host = (uint16_t)host;
    *ret_cell = (uint16_t)cell;
    return true;
}

static int check_publish(const struct sp_config_loading *l, const struct sp_toml_value *v)
{
    uint16_t host;
    uint16_t cell;

    for (const struct sp_toml_value *item = v->first; item != NULL; item = item->next)
        if (!sp_config_read_ports(item->text, &host, &cell))
            return sp_toml_refuse(item, l->e,
                                  "`publish`: `%.40s` is neither a port nor HOST:PORT, two ports "
                                  "from 1 to %d",
                                  item->text.p, UINT16_MAX);
    return 0;
}

/* Checks that need more than the type. The section was read, so strings have no NUL. */
static int check_top(struct sp_config_loading *l, const struct sp_toml_value *root)
{
    int r = 0;

    for (const struct sp_toml_value *v = root->first; r == 0 && v != NULL; v = v->next) {
        if (sp_str_eq(v->key, SP_STR("approval_policy"))) {
            r = check_approval_policy(l, v);
            l->config->has_approval_policy = true;
        } else if (sp_str_eq(v->key, SP_STR("approver")))
            r = check_approver(l, v);
        else if (sp_str_eq(v->key, SP_STR("publish")))
            r = check_publish(l, v);
        else if (sp_str_eq(v->key, SP_STR("reviewer")) &&
                 !(v->text.n > 9 && strncmp(v->text.p, "program:/", 9) == 0))
            r = sp_toml_refuse(v, l->e, "`reviewer`: expected `program:/PATH`");
        else if (sp_str_eq(v->key, SP_STR("strict_review")) && v->boolean &&
                 l->config->reviewer == NULL)
            r = sp_toml_refuse(v, l->e,
                               "`strict_review`: there is no `reviewer` to review anything");
        else if (sp_str_eq(v->key, SP_STR("default_permissions")) &&
                 !sp_config_has_sandbox(l->config, v->text.p))
            r = sp_toml_refuse(v, l->e,
                               "`default_permissions`: there is no profile `%.60s`; built in are "
                               ":read-only, :workspace and :danger-full-access",
                               v->text.p);
        else if (sp_str_eq(v->key, SP_STR("server")) ||
                 (sp_str_eq(v->key, SP_STR("default_environment")) &&
                  !sp_str_eq(v->text, SP_STR("local")))) {
            const bool is_url = strstr(v->text.p, "://") != NULL;
            const char *trouble = is_url ? check_url(v->text.p) : NULL;

            if (trouble != NULL)
                r = sp_toml_refuse(v, l->e, "`%s`: %s", v->key.p, trouble);
            else if (!is_url && sp_config_find_environment(l->config, v->text.p) == NULL)
                r = sp_toml_refuse(v, l->e,
                                   "`%s`: there is no environment `%.60s`, and it is no URL",
                                   v->key.p, v->text.p);
        } else if (sp_str_eq(v->key, SP_STR("audit_log")) && v->text.n != 0) /* "": no log */
            r = sp_config_expand(l, v, v->text, &l->config->audit_log);
    }
    return r;
}

/* A value is written as behind `--limit NAME=`; a number need not be a string. */
static int read_limit(struct sp_config_loading *l, const struct sp_toml_value *v, int level,
                      int limit)
{
    char text[160];
    const int n = snprintf(text, sizeof text, "%s:%s=", sp_limit_level_names[level],
                           sp_limit_kinds[limit].name);

    if (v->type == SP_TOML_INTEGER)
        (void)snprintf(text + n, sizeof text - (size_t)n, "%lld", (long long)v->integer);
    else if (v->type == SP_TOML_FLOAT)
        (void)snprintf(text + n, sizeof text - (size_t)n, "%.3f", v->real);
    else if (v->type == SP_TOML_STRING && v->text.n < 64 && !sp_str_has_nul(v->text))
        (void)snprintf(text + n, sizeof text - (size_t)n, SP_STR_FMT, SP_STR_ARG(v->text));
    const char *wanted = sp_limits_read(text, &l->config->limits);
    return wanted == NULL
               ? 0
               : sp_toml_refuse(v, l->e, "`%s`: expected %s", sp_limit_kinds[limit].name, wanted);
}

static int read_limits(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    struct sp_config_raw_limits raw = {0};
    int r = sp_config_read_section(l, "limits", table, &raw);

    for (int level = 0; r == 0 && level < SP_LIMIT_LEVELS; level++) {
        struct sp_config_raw_limit_level one = {0};

        r = sp_config_read_section(l, "limits.LEVEL", raw.levels[level], &one);
        for (int i = 0; r == 0 && i < SP_LIMIT_COUNT; i++)
            if (one.of[i] != NULL)
                r = read_limit(l, one.of[i], level, i);
    }
    return r;
}

/* Environments and profiles first: keys at the top refer to them by name. */
static int read_tree(struct sp_config_loading *l, const struct sp_toml_value *root)
{
    struct sp_config_top top = {.config = *l->config};
    int r = sp_config_read_section(l, "", root, &top);

    *l->config = top.config;
    if (r == 0)
        r = sp_config_read_section(l, "features", top.features, l->config);
    if (r == 0)
        r = read_shell_policy(l, top.shell_environment_policy);
    if (r == 0)
        r = read_sandbox(l, top.sandbox);
    if (r == 0)
        r = read_limits(l, top.limits);
    if (r == 0)
        r = read_environments(l, top.environments);
    if (r == 0)
        r = sp_config_read_profiles(l, top.permissions);
    if (r == 0)
        r = check_top(l, root);
    if (l->config->poll_max_ms < LEAST_POLL_MAX_MS)
        l->config->poll_max_ms = LEAST_POLL_MAX_MS;
    return r;
}

/* ---- load ---- */

/* The layers are freed at the end: all that is kept was copied into the arena. */
static int load_once(const struct sp_config_request *ask, bool uses_kept, struct sp_config *ret,
                     struct sp_err *e)
{
    struct sp_err own = {0};
    struct sp_config c = defaults();
    struct sp_config_loading l = {.config = &c, .e = e == NULL ? &own : e, .uses_kept = uses_kept};

    l.impl = calloc(1, sizeof *l.impl);
    if (l.impl == NULL)
        return sp_config_no_memory(e);
    c.impl = l.impl;
    int r = find_home(&l, ask->env);
    if (r == 0)
        r = read_layers(&l, ask);
    if (r == 0)
        r = read_tree(&l, l.impl->docs[0].root);
    const char *path = c.path == NULL ? "" : c.path;
    if (r == 0 && ask->kept != NULL && !uses_kept) {
        ask->kept->len = 0;
        if (!sp_buf_add(ask->kept, path, strlen(path) + 1) ||
            !sp_buf_add_str(ask->kept, sp_buf_str(&l.text)))
            r = sp_config_no_memory(e);
    }
    sp_buf_done(&l.text);
    if (r < 0) {
        sp_config_done(&c);
        return r;
    }
    if (ask->keeps_tree)
        c.tree = l.impl->docs[0].root;
    else
        drop_layers(l.impl);
    *ret = c;
    return 0;
}

int sp_config_load(const struct sp_config_request *ask, struct sp_config *ret, struct sp_err *e)
{
    const bool has_kept = ask->kept != NULL && ask->kept->len > 0;
    char why[640];
    int r = load_once(ask, false, ret, e);

    if (r < 0 && has_kept && e != NULL) {
        sp_log(SP_LOG_WARN, "%s; the configuration that this server started with counts",
               sp_error_text(e, why, sizeof why));
        r = load_once(ask, true, ret, e);
    }
    return r;
}

void sp_config_done(struct sp_config *c)
{
    struct sp_config_impl *impl = c->impl;

    for (size_t i = 0; i < c->profile_count; i++)
        sp_profile_done(&c->profiles[i].profile);
    if (impl != NULL) {
        drop_layers(impl);
        sp_arena_done(&impl->arena);
    }
    free(impl);
    *c = (struct sp_config){0};
}

/* ---- tokens ---- */

/* The token, in `text`. */
static int read_token(int fd, const char *path, struct sp_str *ret, char text[MAX_TOKEN + 1],
                      struct sp_err *e)
{
    struct stat st;
    size_t n = 0;
    ssize_t got = 1;
    const int r = check_owner(fd, path, &st, e);

    if (r < 0)
        return r;
    if ((st.st_mode & (S_IRWXG | S_IRWXO | S_ISUID | S_ISGID)) != 0)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "%s: others may read or write it (mode %04o); a token is for its owner alone: "
            "chmod 600 it",
            path, (unsigned)st.st_mode & 07777);
    while (n <= MAX_TOKEN && got != 0) {
        got = read(fd, text + n, MAX_TOKEN + 1 - n);
        if (got < 0 && errno != EINTR)
            return sp_fail(e, SP_E_SYSTEM, errno, "read %s", path);
        n += got > 0 ? (size_t)got : 0;
    }
    if (n > MAX_TOKEN)
        return sp_fail(e, SP_E_INVALID, 0, "%s: more than %d bytes", path, MAX_TOKEN);
    while (n != 0 && text[n - 1] != 0 && strchr(" \t\r\n", text[n - 1]) != NULL)
        n--;
    if (n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "%s: there is no token in it", path);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] >= 0x7F) /* what an HTTP header carries; char may be signed */
            return sp_fail(e, SP_E_INVALID, 0,
                           "%s: a token is one line of visible ASCII characters", path);
    *ret = (struct sp_str){text, n};
    return 0;
}

int sp_config_read_token(const char *path, char **ret, struct sp_err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char text[MAX_TOKEN + 1]; /* not a growing buffer, which would leave copies behind */
    struct sp_str token = SP_STR("");

    if (fd < 0)
        return sp_fail(e, SP_E_INVALID, errno, "read the token %s", path);
    int r = read_token(fd, path, &token, text, e);
    if (r == 0 && (*ret = strndup(token.p, token.n)) == NULL)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", path);
    explicit_bzero(text, sizeof text);
    return r;
}

/* ---- --on ---- */

void sp_config_place_done(struct sp_config_place *p)
{
    if (p->token != NULL)
        explicit_bzero(p->token, strlen(p->token));
    free(p->token);
    free(p->own_name);
    *p = (struct sp_config_place){0};
}

/* The name of a URL that is not configured is redacted: it may contain a password. */
int sp_config_place(const struct sp_config *c, const char *name_or_url, struct sp_config_place *ret,
                    struct sp_err *e)
{
    const char *name = name_or_url == NULL ? c->default_environment : name_or_url;
    const bool is_url = strstr(name, "://") != NULL;
    const struct sp_config_environment *env = is_url ? NULL : sp_config_find_environment(c, name);
    struct sp_config_place p = {.name = name, .url = name, .connect_timeout_ms = CONNECT_MS};
    auto_buf struct sp_buf names = {0};
    int r = 0;

    if (strcmp(name, "local") == 0) {
        *ret = (struct sp_config_place){.is_local = true, .name = name};
        return 0;
    }
    /* A configured URL gets the settings of its environment even if --on gives the URL. */
    for (size_t i = 0; is_url && env == NULL && i < c->environment_count; i++)
        if (c->environments[i].url != NULL && strcmp(c->environments[i].url, name) == 0)
            env = &c->environments[i];
    if (env == NULL && !is_url) {
        for (size_t i = 0; i < c->environment_count; i++)
            (void)sp_buf_printf(&names, ", %s", c->environments[i].name); /* ENOMEM: fewer names */
        return sp_fail(e, SP_E_NOT_FOUND, 0,
                       "there is no environment `%.80s`; there are local%.*s, and "
                       "[environments.%.80s] in the configuration would be one",
                       name, names.len > 160 ? 160 : (int)names.len, sp_buf_str(&names).p, name);
    }
    if (env != NULL)
        p = (struct sp_config_place){
            .name = env->name,
            .url = env->url,
            .program = (const char *const *)env->program,
            .env = (const char *const *)env->env,
            .cwd = env->cwd,
            .connect_timeout_ms = env->connect_timeout_ms,
        };
    const char *trouble = p.url == NULL ? NULL : check_url(p.url);
    char shown[128];
    if (trouble != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "`%s`: %s", sp_redact_url_to(p.url, shown, sizeof shown),
                       trouble);
    const char *token_file = env == NULL ? NULL : env->token_file;
    if (token_file == NULL && p.url != NULL && c->server != NULL &&
        (strcmp(c->server, p.url) == 0 || strcmp(c->server, p.name) == 0))
        token_file = c->token_file;
    if (token_file != NULL)
        r = sp_config_read_token(token_file, &p.token, e);
    if (r == 0 && env == NULL) {
        p.name = p.own_name = sp_redact_url(p.url);
        r = p.name == NULL ? sp_config_no_memory(e) : 0;
    }
    if (r < 0)
        sp_config_place_done(&p);
    else
        *ret = p;
    return r;
}
