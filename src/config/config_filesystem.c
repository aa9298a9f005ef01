/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_filesystem.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "sandbox/glob.h"
#include "sandbox/policy_words.h"

#define DEPTH_KEY     "glob_scan_max_depth"
#define PROJECT_GLOBS "codex-project-roots://" /* a pattern below each workspace root */
#define SUBTREE       "/**"

static const struct sp_word tokens[] = {
    {":root", SP_PLACE_ROOT, false},
    {":minimal", SP_PLACE_MINIMAL, false},
    {":workspace_roots", SP_PLACE_PROJECT, false},
    {":project_roots", SP_PLACE_PROJECT, true},
    {":tmpdir", SP_PLACE_TMPDIR, false},
    {":slash_tmp", SP_PLACE_SLASH_TMP, false},
    {0},
};

/* An entry while it is read. */
struct line {
    struct sp_config_loading *l;
    struct sp_profile *p;
    const struct sp_toml_value *v; /* the value of this line */
    enum sp_access access;
};

/* Whatever a part of the sandbox refuses is wrong at this line. */
static int place_error(const struct line *k, int r)
{
    struct sp_err why;

    if (r != -SP_E_INVALID || k->l->e == NULL)
        return r;
    why = *k->l->e;
    return sp_toml_refuse_key(k->v, k->l->e, "%s", why.msg);
}

static int add(const struct line *k, enum sp_place place, struct sp_str text, struct sp_str subpath)
{
    if (k->p->count == SP_POLICY_MAX_ENTRIES)
        return sp_toml_refuse_key(k->v, k->l->e, "more than %d entries", SP_POLICY_MAX_ENTRIES);
    return place_error(k, sp_profile_add(k->p, place, k->access, false, text, subpath, k->l->e));
}

/* ---- patterns ---- */

/* For what is denied, anything that could be one is one: too much is denied rather than too little.
 */
static bool is_glob(struct sp_str s, enum sp_access access)
{
    for (size_t i = 0; i < s.n; i++)
        if (strchr(access == SP_ACCESS_DENY ? "*?[{\\" : "*?[{", s.p[i]) != NULL)
            return true;
    return false;
}

/* pattern: as it is kept; below: the part of it that is a pattern. */
static int add_glob(const struct line *k, struct sp_str pattern, struct sp_str below)
{
    auto_glob struct sp_glob g = {0};

    if (k->access != SP_ACCESS_DENY)
        return sp_toml_refuse_key(k->v, k->l->e,
                                  "glob file system permissions only support deny-read entries, "
                                  "but for `/**` at the end");
    auto_free char *absolute = malloc(below.n + 2);
    if (absolute == NULL)
        return sp_config_no_memory(k->l->e);
    absolute[0] = '/';
    memcpy(absolute + 1, below.p, below.n);
    absolute[below.n + 1] = 0;
    const int r = sp_glob_read(absolute, &g, k->l->e);
    if (r < 0)
        return place_error(k, r);
    return add(k, SP_PLACE_GLOB, pattern, (struct sp_str){0});
}

/* The subtree of a place that may be read or written is the place itself. */
static struct sp_str without_subtree(const struct line *k, struct sp_str path)
{
    const size_t n = strlen(SUBTREE);

    if (k->access == SP_ACCESS_DENY)
        return path;
    if (sp_str_eq(path, SP_STR("**")))
        return SP_STR(".");
    if (path.n >= n && memcmp(path.p + path.n - n, SUBTREE, n) == 0)
        path.n -= path.n == n ? n - 1 : n; /* the slash of the root itself stays */
    return path;
}

/* ---- places ---- */

static int add_path(const struct line *k, struct sp_str path)
{
    char *full;

    path = without_subtree(k, path);
    if (is_glob(path, k->access)) {
        const size_t skipped = path.p[0] == '~' ? 2 : 1; /* ~ is known when the pattern is used */

        return add_glob(k, path, (struct sp_str){path.p + skipped, path.n - skipped});
    }
    const int r = sp_config_expand(k->l, k->v, path, &full);
    return r < 0 ? r : add(k, SP_PLACE_PATH, sp_str_of(full), (struct sp_str){0});
}

static int add_project(const struct line *k, struct sp_str below)
{
    below = without_subtree(k, below);
    if (below.p == NULL || sp_str_eq(below, SP_STR(".")))
        return add(k, SP_PLACE_PROJECT, (struct sp_str){0}, (struct sp_str){0});
    if (!is_glob(below, k->access))
        return add(k, SP_PLACE_PROJECT, below, (struct sp_str){0});

    auto_buf struct sp_buf pattern = {0};
    if (!sp_buf_add_str(&pattern, SP_STR(PROJECT_GLOBS)) || !sp_buf_add_str(&pattern, below))
        return sp_config_no_memory(k->l->e);
    return add_glob(k, (struct sp_str){pattern.data, pattern.len}, below);
}

static int add_token(const struct line *k, struct sp_str token, struct sp_str below)
{
    const struct sp_word *w = tokens;

    while (w->name != NULL && !sp_str_eq(token, sp_str_of(w->name)))
        w++;
    if (w->name == NULL) {
        const int r =
            sp_config_warn(k->l, k->v, "`%.60s` is not known here and means nothing", token.p);
        return r < 0 ? r : add(k, SP_PLACE_UNKNOWN, token, below);
    }
    if (w->value == SP_PLACE_PROJECT)
        return add_project(k, below);
    if (below.p != NULL && !sp_str_eq(below, SP_STR(".")))
        return sp_toml_refuse_key(k->v, k->l->e,
                                  "`%s` has no places below it; name an absolute path", w->name);
    return add(k, (enum sp_place)w->value, (struct sp_str){0}, (struct sp_str){0});
}

/* A path below an absolute one: no way up again. */
static bool is_below(struct sp_str s)
{
    size_t from = 0;

    if (s.n == 0 || s.p[0] == '/')
        return false;
    for (size_t i = 0; i <= s.n; i++)
        if (i == s.n || s.p[i] == '/') {
            if (sp_str_eq((struct sp_str){s.p + from, i - from}, SP_STR("..")))
                return false;
            from = i + 1;
        }
    return true;
}

static int add_below_path(const struct line *k, struct sp_str path, struct sp_str below)
{
    auto_buf struct sp_buf full = {0};

    if (sp_str_eq(below, SP_STR(".")))
        return add_path(k, path);
    if (!is_below(below))
        return sp_toml_refuse_key(k->v, k->l->e,
                                  "filesystem subpath `%.120s` must be a descendant path without "
                                  "`.` or `..` components",
                                  below.p);
    if (!sp_buf_add_str(&full, path) || !sp_buf_add(&full, "/", 1) || !sp_buf_add_str(&full, below))
        return sp_config_no_memory(k->l->e);
    return add_path(k, (struct sp_str){full.data, full.len});
}

/* below.p NULL: the place itself */
static int add_place(struct line *k, struct sp_str place, struct sp_str below)
{
    int access = SP_ACCESS_DENY;
    int r = sp_policy_check_text(k->v->key, "permission path", k->l->e);
    const struct sp_word *w = sp_words_access;

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
    access = w->value;
    k->access = (enum sp_access)access;
    if (place.n != 0 && place.p[0] == ':')
        return add_token(k, place, below);
    if (place.n == 0 || !(place.p[0] == '/' || sp_str_eq(place, SP_STR("~")) ||
                          (place.n > 1 && memcmp(place.p, "~/", 2) == 0)))
        return sp_toml_refuse_key(k->v, k->l->e,
                                  "`%.120s`: expected an absolute path, `~/...` or one of :root, "
                                  ":minimal, :workspace_roots, :tmpdir, :slash_tmp",
                                  place.p);
    return below.p == NULL ? add_path(k, place) : add_below_path(k, place, below);
}

/* ---- the table ---- */

static int read_depth(struct sp_config_loading *l, const struct sp_toml_value *v,
                      struct sp_profile *p)
{
    if (v->type != SP_TOML_INTEGER || v->integer < 1)
        return sp_toml_refuse(v, l->e, "`" DEPTH_KEY "`: expected an integer from 1");
    p->glob_depth = v->integer < UINT32_MAX ? (uint32_t)v->integer : UINT32_MAX;
    return 0;
}

static int read_below(struct line *k, const struct sp_toml_value *table)
{
    int r = sp_policy_check_text(table->key, "permission path", k->l->e);

    k->v = table;
    if (r < 0)
        return place_error(k, r);
    for (const struct sp_toml_value *v = table->first; r == 0 && v != NULL; v = v->next) {
        k->v = v;
        r = add_place(k, table->key, v->key);
    }
    return r;
}

int sp_config_read_filesystem(struct sp_config_loading *l, const struct sp_toml_value *table,
                              struct sp_profile *p)
{
    int r = 0;

    for (const struct sp_toml_value *v = table->first; r == 0 && v != NULL; v = v->next) {
        struct line k = {.l = l, .p = p, .v = v};

        if (sp_str_eq(v->key, SP_STR(DEPTH_KEY)))
            r = read_depth(l, v, p);
        else if (v->type == SP_TOML_TABLE)
            r = read_below(&k, v);
        else
            r = add_place(&k, v->key, (struct sp_str){0});
    }
    return r;
}
