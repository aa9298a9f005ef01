/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy: [permissions.NAME], the profiles of a sandbox, and the way from a name to a policy. A
 * profile that extends another one starts with all entries of its parent; an entry for the same
 * place replaces the parent's.
 */
#include "config/policy.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "config/config_keys.h"
#include "config/config_network.h"
#include "sandbox/glob.h"
#include "sandbox/policy_json.h"
#include "sandbox/resolve.h"

#define MAX_PROFILES  256
#define MAX_DOT_FILES 1024
#define DEPTH_KEY     "glob_scan_max_depth"
#define PROJECT_GLOBS "codex-project-roots://" /* a pattern below each workspace root */
#define SUBTREE       "/**"

/* ---- names of sandboxes ---- */

/* NULL: not :read-only, :workspace or :danger-full-access. */
static const struct sp_legacy *find_builtin(const char *name)
{
    static const struct {
        const char *name;
        struct sp_legacy is;
    } builtins[] = {
        {":read-only", {.mode = SP_MODE_READ_ONLY}},
        {":workspace", {.mode = SP_MODE_WORKSPACE_WRITE}},
        {":danger-full-access", {.mode = SP_MODE_FULL_ACCESS}},
    };

    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        if (strcmp(name, builtins[i].name) == 0)
            return &builtins[i].is;
    return NULL;
}

/* The index of a profile of the configuration; profile_count: there is none. */
static size_t find_profile(const struct sp_config *c, const char *name)
{
    size_t i = 0;

    while (i < c->profile_count && strcmp(c->profiles[i].name, name) != 0)
        i++;
    return i;
}

bool sp_config_has_sandbox(const struct sp_config *c, const char *name)
{
    enum sp_mode mode;

    return find_builtin(name) != NULL || sp_mode_read(sp_str_of(name), &mode) ||
           find_profile(c, name) < c->profile_count;
}

/* The name that was probably meant; NULL: none is similar. c may be NULL. */
static const char *nearest_sandbox(const struct sp_config *c, const char *name)
{
    static const char *const builtins[] = {":read-only", ":workspace", ":danger-full-access"};
    struct sp_nearest near = sp_nearest_to(sp_str_of(name));

    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        sp_nearest_offer(&near, builtins[i]);
    for (int m = SP_MODE_FULL_ACCESS; m <= SP_MODE_EXTERNAL; m++)
        sp_nearest_offer(&near, sp_mode_name((enum sp_mode)m));
    for (size_t i = 0; c != NULL && i < c->profile_count; i++)
        sp_nearest_offer(&near, c->profiles[i].name);
    return near.best;
}

static const struct sp_word tokens[] = {
    {":root", SP_PLACE_ROOT, false},
    {":minimal", SP_PLACE_MINIMAL, false},
    {":workspace_roots", SP_PLACE_PROJECT, false},
    {":project_roots", SP_PLACE_PROJECT, true},
    {":tmpdir", SP_PLACE_TMPDIR, false},
    {":slash_tmp", SP_PLACE_SLASH_TMP, false},
    {0},
};

/* ---- [permissions.NAME.filesystem]: paths, and the access that commands get ---- */

/* An entry while it is read. */
struct entry_line {
    struct sp_config_loading *l;
    struct sp_profile *p;
    const struct sp_toml_value *v; /* the value of this line */
    enum sp_access access;
};

/* Adds the position in the file to an error of src/sandbox. */
static int place_error(const struct entry_line *k, int r)
{
    struct sp_err why;

    if (r != -SP_E_INVALID || k->l->e == NULL)
        return r;
    why = *k->l->e;
    return sp_toml_refuse_key(k->v, k->l->e, "%s", why.msg);
}

static int add_line(const struct entry_line *k, enum sp_place place, struct sp_str text,
                    struct sp_str subpath)
{
    if (k->p->count == SP_POLICY_MAX_ENTRIES)
        return sp_toml_refuse_key(k->v, k->l->e, "more than %d entries", SP_POLICY_MAX_ENTRIES);
    return place_error(k, sp_profile_add(k->p, place, k->access, false, text, subpath, k->l->e));
}

/* In a deny entry a backslash makes a pattern, too: rather deny too much than too little. */
static bool is_glob(struct sp_str s, enum sp_access access)
{
    for (size_t i = 0; i < s.n; i++)
        if (strchr(access == SP_ACCESS_DENY ? "*?[{\\" : "*?[{", s.p[i]) != NULL)
            return true;
    return false;
}

/* pattern: the text of the entry; below: the part that is a glob, without its leading slash. */
static int add_glob(const struct entry_line *k, struct sp_str pattern, struct sp_str below)
{
    auto_glob struct sp_glob g = {0};

    if (k->access != SP_ACCESS_DENY)
        return sp_toml_refuse_key(k->v, k->l->e,
                                  "glob file system permissions only support deny-read entries, "
                                  "but for `/**` at the end");
    auto_free char *absolute = NULL;
    if (asprintf(&absolute, "/%.*s", (int)below.n, below.p) < 0) {
        absolute = NULL;
        return sp_config_no_memory(k->l->e);
    }
    const int r = sp_glob_read(absolute, &g, k->l->e);
    if (r < 0)
        return place_error(k, r);
    return add_line(k, SP_PLACE_GLOB, pattern, (struct sp_str){0});
}

/* read and write entries cover the subtree anyway, so SUBTREE at the end is dropped. */
static struct sp_str without_subtree(const struct entry_line *k, struct sp_str path)
{
    const size_t n = strlen(SUBTREE);

    if (k->access == SP_ACCESS_DENY)
        return path;
    if (sp_str_eq(path, SP_STR("**")))
        return SP_STR(".");
    if (path.n >= n && memcmp(path.p + path.n - n, SUBTREE, n) == 0)
        path.n -= path.n == n ? n - 1 : n; /* SUBTREE alone is the root: its slash stays */
    return path;
}

static int add_path(const struct entry_line *k, struct sp_str path)
{
    char *full;

    path = without_subtree(k, path);
    if (is_glob(path, k->access)) {
        const size_t skipped =
            path.p[0] == '~' ? 2 : 1; /* ~ is expanded when the pattern is used */

        return add_glob(k, path, (struct sp_str){path.p + skipped, path.n - skipped});
    }
    const int r = sp_config_expand(k->l, k->v, path, &full);
    return r < 0 ? r : add_line(k, SP_PLACE_PATH, sp_str_of(full), (struct sp_str){0});
}

/* A misspelled place with `deny` would leave files readable that the profile means to hide. */
static int refuse_place(const struct entry_line *k, struct sp_str place)
{
    return sp_toml_refuse_key(k->v, k->l->e,
                              "`%.120s`: expected an absolute path, `~/...` or one of :root, "
                              ":minimal, :workspace_roots, :tmpdir, :slash_tmp",
                              place.p);
}

static int add_token(const struct entry_line *k, struct sp_str token, struct sp_str below)
{
    const struct sp_str none = {0};
    const struct sp_word *w = tokens;
    auto_buf struct sp_buf pattern = {0};

    while (w->name != NULL && !sp_str_eq(token, sp_str_of(w->name)))
        w++;
    if (w->name == NULL)
        return refuse_place(k, token);
    if (w->value != SP_PLACE_PROJECT) {
        if (below.p != NULL && !sp_str_eq(below, SP_STR(".")))
            return sp_toml_refuse_key(
                k->v, k->l->e, "`%s` has no places below it; name an absolute path", w->name);
        return add_line(k, (enum sp_place)w->value, none, none);
    }
    below = without_subtree(k, below);
    if (below.p == NULL || sp_str_eq(below, SP_STR(".")))
        return add_line(k, SP_PLACE_PROJECT, none, none);
    if (!is_glob(below, k->access))
        return add_line(k, SP_PLACE_PROJECT, below, none);
    if (!sp_buf_add_str(&pattern, SP_STR(PROJECT_GLOBS)) || !sp_buf_add_str(&pattern, below))
        return sp_config_no_memory(k->l->e);
    return add_glob(k, sp_buf_str(&pattern), below);
}

/* One entry. below: the key inside of a table of the place; p NULL: the place itself. */
static int add_place(struct entry_line *k, struct sp_str place, struct sp_str below)
{
    const int r = sp_policy_check_text(k->v->key, "permission path", k->l->e);
    const struct sp_word *w = sp_words_access;
    auto_buf struct sp_buf full = {0};

    if (r < 0)
        return place_error(k, r);
    if (k->v->type != SP_TOML_STRING)
        return sp_toml_refuse(k->v, k->l->e, "expected `read`, `write` or `deny`%s, not %s",
                              below.p == NULL ? ", or a table of places below" : "",
                              sp_toml_type_name(k->v->type));
    while (w->name != NULL && !sp_str_eq(k->v->text, sp_str_of(w->name)))
        w++;
    if (w->name == NULL) {
        (void)sp_word_refuse("access", k->v->text, sp_words_access, k->l->e);
        return place_error(k, -SP_E_INVALID);
    }
    k->access = (enum sp_access)w->value;
    if (place.n != 0 && place.p[0] == ':')
        return add_token(k, place, below);
    if (place.n == 0 || !(place.p[0] == '/' || sp_str_eq(place, SP_STR("~")) ||
                          (place.n > 1 && memcmp(place.p, "~/", 2) == 0)))
        return refuse_place(k, place);
    if (below.p == NULL || sp_str_eq(below, SP_STR(".")))
        return add_path(k, place);
    bool is_descendant = below.n != 0 && below.p[0] != '/';
    for (struct sp_str rest = below; rest.n != 0;)
        is_descendant &= !sp_str_eq(sp_str_cut(&rest, '/'), SP_STR(".."));
    if (!is_descendant)
        return sp_toml_refuse_key(k->v, k->l->e,
                                  "filesystem subpath `%.120s` must be a descendant path without "
                                  "`.` or `..` components",
                                  below.p);
    if (!sp_buf_add_str(&full, place) || !sp_buf_add(&full, "/", 1) ||
        !sp_buf_add_str(&full, below))
        return sp_config_no_memory(k->l->e);
    return add_path(k, sp_buf_str(&full));
}

/* Adds the entries of the table to *p. */
static int read_filesystem(struct sp_config_loading *l, const struct sp_toml_value *table,
                           struct sp_profile *p)
{
    int r = 0;

    for (const struct sp_toml_value *v = table->first; r == 0 && v != NULL; v = v->next) {
        struct entry_line k = {.l = l, .p = p, .v = v};

        if (sp_str_eq(v->key, SP_STR(DEPTH_KEY))) {
            if (v->type != SP_TOML_INTEGER || v->integer < 1)
                return sp_toml_refuse(v, l->e, "`" DEPTH_KEY "`: expected an integer from 1");
            p->glob_depth = v->integer < UINT32_MAX ? (uint32_t)v->integer : UINT32_MAX;
        } else if (v->type == SP_TOML_TABLE) { /* places below v->key */
            r = place_error(&k, sp_policy_check_text(v->key, "permission path", l->e));
            for (const struct sp_toml_value *w = v->first; r == 0 && w != NULL; w = w->next) {
                k.v = w;
                r = add_place(&k, v->key, w->key);
            }
        } else {
            r = add_place(&k, v->key, (struct sp_str){0});
        }
    }
    return r;
}

/* ---- profiles while they are made ---- */

enum state { UNMADE, MAKING, MADE };

/* Parallel arrays, one element per profile. */
struct making {
    struct sp_config_loading *l;
    const struct sp_toml_value **tables;
    struct sp_config_raw_profile *raw;
    struct sp_config_network *networks;
    enum state *states;
};

static int make_profile(struct making *m, size_t i);

static int check_name(const struct sp_toml_value *v, struct sp_err *e)
{
    enum sp_mode mode;

    if (v->key.n != 0 && v->key.p[0] == ':')
        return sp_toml_refuse_key(v, e,
                                  "permissions profile `%.60s` uses a reserved built-in profile "
                                  "prefix",
                                  v->key.p);
    if (v->key.n == 0 || sp_str_has_nul(v->key) || sp_mode_read(v->key, &mode))
        return sp_toml_refuse_key(v, e, "`%.60s` cannot be the name of a profile: it is %s",
                                  v->key.p, v->key.n == 0 ? "empty" : "a mode, or has a NUL in it");
    if (v->type != SP_TOML_TABLE)
        return sp_toml_refuse(v, e, "permissions profile `%.60s`: expected a table, not %s",
                              v->key.p, sp_toml_type_name(v->type));
    return 0;
}

/* ---- `extends` ---- */

static const struct sp_toml_value *extends_of(const struct making *m, size_t i)
{
    return sp_toml_get(m->tables[i], SP_STR("extends"));
}

/* a -> b -> a */
static int refuse_cycle(const struct making *m, size_t first)
{
    char chain[240];
    size_t n = (size_t)snprintf(chain, sizeof chain, "%.60s", m->l->config->profiles[first].name);
    size_t i = first;

    do {
        i = find_profile(m->l->config, m->raw[i].extends);
        const int more =
            snprintf(chain + n, sizeof chain - n, " -> %.60s", m->l->config->profiles[i].name);
        if (more < 0 || (size_t)more >= sizeof chain - n)
            break; /* truncated */
        n += (size_t)more;
    } while (i != first);
    return sp_toml_refuse(extends_of(m, first), m->l->e,
                          "permissions profiles extend each other: %s", chain);
}

/* What `extends` names: another profile, which is made first, or a built-in one. *ret_network stays
 * as it is unless it is one of the file. */
static int copy_parent(struct making *m, size_t i, struct sp_profile *ret,
                       const struct sp_config_network **ret_network)
{
    const char *name = m->raw[i].extends;

    if (name == NULL)
        return 0;
    const size_t parent = find_profile(m->l->config, name);
    if (parent < m->l->config->profile_count) {
        if (m->states[parent] == MAKING)
            return refuse_cycle(m, parent);
        const int r = make_profile(m, parent);
        if (r < 0)
            return r;
        *ret_network = &m->networks[parent];
        return sp_profile_copy(&m->l->config->profiles[parent].profile, ret)
                   ? 0
                   : sp_config_no_memory(m->l->e);
    }
    const struct sp_legacy *builtin = find_builtin(name);
    if (builtin == NULL)
        return sp_toml_refuse(extends_of(m, i), m->l->e,
                              "`extends`: there is no profile `%.60s`; built in are :read-only and "
                              ":workspace",
                              name);
    const int r = sp_profile_from_legacy(builtin, ret, m->l->e);
    if (r < 0)
        return r;
    if (ret->kind != SP_PROFILE_MANAGED)
        return sp_toml_refuse(extends_of(m, i), m->l->e,
                              "`extends`: `%s` restricts nothing, so nothing can be changed in it",
                              name);
    return 0;
}

/* ---- its own entries ---- */

static bool is_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* The parent's entries for places that `own` has no entry for, then those of `own`. */
static int join_entries(const struct sp_profile *parent, const struct sp_profile *own,
                        struct sp_profile *ret, struct sp_err *e)
{
    const struct sp_str none = {0};
    int r = 0;

    for (size_t i = 0; r == 0 && i < parent->count + own->count; i++) {
        const bool is_own = i >= parent->count;
        const struct sp_entry *a = is_own ? &own->entries[i - parent->count] : &parent->entries[i];
        size_t k = is_own ? own->count : 0;

        for (; k < own->count; k++)
            if (own->entries[k].place == a->place && is_same_text(own->entries[k].text, a->text) &&
                is_same_text(own->entries[k].subpath, a->subpath))
                break;
        if (k < own->count)
            continue;
        if (ret->count == SP_POLICY_MAX_ENTRIES)
            return sp_fail(e, SP_E_INVALID, 0, "more than %d entries", SP_POLICY_MAX_ENTRIES);
        r = sp_profile_add(ret, a->place, a->access, a->skips_missing,
                           a->text == NULL ? none : sp_str_of(a->text),
                           a->subpath == NULL ? none : sp_str_of(a->subpath), e);
    }
    return r;
}

/* Depth-first: the parent is made before its children; MAKING marks the path, to find cycles. */
static int make_profile(struct making *m, size_t i)
{
    auto_profile struct sp_profile parent = {0};
    auto_profile struct sp_profile own = {0};
    struct sp_config_profile *p = &m->l->config->profiles[i];
    const struct sp_config_network *inherited = NULL;

    if (m->states[i] == MADE)
        return 0;
    m->states[i] = MAKING;
    int r = copy_parent(m, i, &parent, &inherited);
    if (r == 0)
        r = sp_config_network_read(m->l, m->raw[i].network, inherited, &m->networks[i]);
    own.glob_depth = parent.glob_depth;
    if (r == 0 && m->raw[i].filesystem != NULL)
        r = read_filesystem(m->l, m->raw[i].filesystem, &own);
    if (r < 0)
        return r;
    r = join_entries(&parent, &own, &p->profile, m->l->e);
    if (r < 0)
        return sp_wrap(m->l->e, "permissions profile `%.60s`", p->name);
    p->profile.glob_depth = own.glob_depth;
    r = sp_config_network_apply(&m->networks[i], &p->profile, m->l->e);
    if (r < 0)
        return r;
    m->states[i] = MADE;
    if (p->profile.count != 0)
        return 0;
    return sp_config_warn(m->l, m->tables[i],
                          "permissions profile `%.60s` has no file-system entries: nothing may be "
                          "read",
                          p->name);
}

/* ---- all profiles ---- */

int sp_config_read_profiles(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    struct making m = {.l = l};
    struct sp_config *c = l->config;

    if (table == NULL)
        return 0;
    if (table->count > MAX_PROFILES)
        return sp_toml_refuse_key(table, l->e, "more than %d permissions profiles", MAX_PROFILES);
    const size_t n = table->count + 1;
    c->profiles = sp_arena_new(&l->impl->arena, n * sizeof *c->profiles);
    m.tables = sp_arena_new(&l->impl->arena, n * sizeof(struct sp_toml_value *));
    m.raw = sp_arena_new(&l->impl->arena, n * sizeof *m.raw);
    m.states = sp_arena_new(&l->impl->arena, n * sizeof *m.states);
    m.networks = sp_arena_new(&l->impl->arena, n * sizeof *m.networks);
    if (c->profiles == NULL || m.tables == NULL || m.raw == NULL || m.states == NULL ||
        m.networks == NULL)
        return sp_config_no_memory(l->e);
    int r = 0;
    /* All tables are read before any profile is made, since `extends` may name a later one. */
    for (const struct sp_toml_value *v = table->first; r == 0 && v != NULL; v = v->next) {
        const size_t i = c->profile_count;

        r = check_name(v, l->e);
        if (r == 0)
            r = sp_config_read_section(l, "permissions.NAME", v, &m.raw[i]);
        if (r == 0)
            r = sp_config_keep(l, v->key, &c->profiles[i].name);
        m.tables[i] = v;
        c->profile_count += r == 0;
    }
    for (size_t i = 0; r == 0 && i < c->profile_count; i++)
        r = make_profile(&m, i);
    for (size_t i = 0; i < c->profile_count; i++)
        sp_config_network_done(&m.networks[i]);
    return r;
}

/* ---- from a name to a policy ---- */

/* Built-in names and modes win over profiles of the configuration. */
static int copy_profile(const struct sp_config *c, const char *name, struct sp_profile *ret,
                        struct sp_err *e)
{
    const struct sp_legacy *builtin = find_builtin(name);
    struct sp_legacy l = {0};
    const size_t i = c == NULL ? 0 : find_profile(c, name);

    if (builtin != NULL || sp_mode_read(sp_str_of(name), &l.mode))
        return sp_profile_from_legacy(builtin != NULL ? builtin : &l, ret, e);
    if (c == NULL || i == c->profile_count) {
        const char *near = nearest_sandbox(c, name);

        return near != NULL
                   ? sp_fail(e, SP_E_INVALID, 0,
                             "there is no sandbox `%.80s`; did you mean `%.80s`?", name, near)
                   : sp_fail(
                         e, SP_E_INVALID, 0,
                         "there is no sandbox `%.80s`; there are :read-only, :workspace, "
                         ":danger-full-access, the modes read-only, workspace-write, "
                         "danger-full-access, external-sandbox, and each [permissions.NAME] of the "
                         "configuration",
                         name);
    }
    return sp_profile_copy(&c->profiles[i].profile, ret) ? 0 : sp_config_no_memory(e);
}

static const char *absolute_or_none(const char *path)
{
    return path != NULL && path[0] == '/' ? path : NULL;
}

int sp_config_policy(const struct sp_config *c, const char *name, const char *cwd,
                     struct sp_policy *ret, bool *ret_is_open, struct sp_err *e)
{
    const struct sp_config_impl *impl = c == NULL ? NULL : c->impl;
    const char *tmpdir = impl == NULL ? absolute_or_none(getenv("TMPDIR")) : impl->tmpdir;
    const char *home = impl == NULL ? absolute_or_none(getenv("HOME")) : impl->user_home;
    auto_policy struct sp_policy p = {.cwd_is_root = true};

    if (name == NULL && c != NULL)
        name = c->default_permissions;
    if (name == NULL)
        name = ":read-only";
    p.cwd = sp_path_normalise(cwd, NULL);
    if (p.cwd == NULL)
        return errno != EINVAL ? sp_config_no_memory(e)
                               : sp_fail(e, SP_E_INVALID, 0,
                                         "a policy needs an absolute directory, not `%.120s`", cwd);
    const int r = copy_profile(c, name, &p.profile, e);
    if (r < 0)
        return r;
    p.tmpdir = tmpdir == NULL ? NULL : strdup(tmpdir);
    p.home = home == NULL ? NULL : strdup(home);
    if ((tmpdir != NULL && p.tmpdir == NULL) || (home != NULL && p.home == NULL) ||
        !sp_policy_add_root(&p, sp_str_of(p.cwd)))
        return sp_config_no_memory(e);
    *ret_is_open = p.profile.kind == SP_PROFILE_DISABLED;
    *ret = p;
    p = (struct sp_policy){0};
    return 0;
}

/* ---- the home directory as a workspace ---- */

/* The user has up to two homes: $HOME (i = 0), and the one of the account (i = 1), which $HOME may
 * hide. NULL: none. The caller frees it. */
static char *home_at(const struct sp_config *c, int i)
{
    const struct sp_config_impl *impl = c->impl;
    struct passwd *found = NULL;
    struct passwd entry;
    char text[4096];

    if (i != 0)
        (void)getpwuid_r(geteuid(), &entry, text, sizeof text, &found);
    const char *home = i == 0 ? impl->user_home : found == NULL ? NULL : found->pw_dir;
    return home == NULL || home[0] != '/' ? NULL : strdup(home);
}

/* Whether `dir` is `path` or a directory above it. */
static bool contains_path(const char *path, const struct stat *dir)
{
    auto_free char *real = realpath(path, NULL);
    struct stat st;

    while (real != NULL && real[0] != 0) {
        if (stat(real, &st) == 0 && st.st_dev == dir->st_dev && st.st_ino == dir->st_ino)
            return true;
        *strrchr(real, '/') = 0;
    }
    return real != NULL && stat("/", &st) == 0 && st.st_dev == dir->st_dev &&
           st.st_ino == dir->st_ino;
}

bool sp_config_holds_home(const struct sp_config *c, const char *dir)
{
    struct stat st;

    if (stat(dir, &st) < 0)
        return false;
    for (int i = 0; i < 2; i++) {
        auto_free char *home = home_at(c, i);

        if (home != NULL && contains_path(home, &st))
            return true;
    }
    return false;
}

static int protect_dot_files(struct sp_policy *p, const char *home, struct sp_err *e)
{
    auto_free char *real = realpath(home, NULL);
    struct sp_profile *f = &p->profile;
    DIR *dir = real == NULL ? NULL : opendir(real);
    int r = 0;

    if (dir == NULL)
        return real != NULL && errno == ENOMEM ? sp_config_no_memory(e) : 0;
    for (const struct dirent *d; r == 0 && (d = readdir(dir)) != NULL;) {
        auto_free char *path = NULL;
        struct stat st;
        size_t i = 0;

        if (d->d_name[0] != '.' || strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (asprintf(&path, "%s/%s", real, d->d_name) < 0) {
            path = NULL;
            r = sp_config_no_memory(e);
            break;
        }
        while (i < f->count &&
               !(f->entries[i].place == SP_PLACE_PATH && strcmp(f->entries[i].text, path) == 0))
            i++;
        if (lstat(path, &st) < 0 || S_ISLNK(st.st_mode) || i < f->count)
            continue;
        if (f->count > MAX_DOT_FILES)
            r = sp_fail(e, SP_E_LIMIT, 0,
                        "%.200s has too many names with a dot to be a workspace: use the directory "
                        "of a project",
                        real);
        else
            r = sp_profile_add(f, SP_PLACE_PATH, SP_ACCESS_READ, true, sp_str_of(path),
                               (struct sp_str){0}, e);
    }
    (void)closedir(dir);
    return r;
}

int sp_config_keep_dot_files(const struct sp_config *c, struct sp_policy *p, struct sp_err *e)
{
    int r = 0;

    if (p->profile.kind != SP_PROFILE_MANAGED || p->profile.is_unrestricted)
        return 0;
    for (size_t i = 0; r == 0 && i < p->root_count; i++)
        for (int k = 0; r == 0 && k < 2; k++) {
            auto_free char *home = home_at(c, k);
            struct sp_resolved resolved = {0};
            struct stat st;

            if (home == NULL || stat(p->roots[i], &st) < 0 || !contains_path(home, &st))
                continue;
            r = sp_resolve(p, &resolved, e);
            if (r == 0 && sp_resolved_can_write(&resolved, p->roots[i], NULL, NULL))
                r = protect_dot_files(p, home, e);
            sp_resolved_done(&resolved);
        }
    return r;
}
