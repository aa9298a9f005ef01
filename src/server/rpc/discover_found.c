/* SPDX-License-Identifier: Apache-2.0 */
/* discover: what a walk found, and what a manifest names. */
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "server/rpc/discover.h"
#include "server/rpc/fs.h"

#define FIRST_FOUND 16

const char *const sp_manifest_names[3] = {".codex-plugin/plugin.json", ".claude-plugin/plugin.json",
                                          ".cursor-plugin/plugin.json"};

/* ---- the walk ---- */

/* Whether the path is NAME below some directory; *ret_dir is how long that directory's path is. */
static bool is_below(struct sp_str path, const char *name, size_t *ret_dir)
{
    const size_t n = strlen(name);

    if (path.n <= n || path.p[path.n - n - 1] != '/' || memcmp(path.p + path.n - n, name, n) != 0)
        return false;
    *ret_dir = path.n - n - 1;
    return true;
}

static const char *uri_of(struct sp_root *r, struct sp_str path)
{
    auto_buf struct sp_buf b = {0};

    if (!sp_uri_add(&b, path.n == 0 ? SP_STR("/") : path))
        return NULL;
    return sp_arena_copy(&r->arena, (struct sp_str){b.data, b.len});
}

static bool add_found(struct sp_root *r, struct sp_found_list *to, struct sp_str path,
                      struct sp_str key, uint32_t rank)
{
    if (to->count == to->cap) {
        const uint32_t cap = to->cap == 0 ? FIRST_FOUND : to->cap * 2;
        struct sp_found *items = realloc(to->items, cap * sizeof *items);

        if (items == NULL)
            return false;
        to->items = items;
        to->cap = cap;
    }
    const struct sp_found found = {sp_arena_copy(&r->arena, path), uri_of(r, key), rank};
    if (found.path == NULL || found.key == NULL)
        return false;
    to->items[to->count++] = found;
    return true;
}

static bool take_file(struct sp_root *r, struct sp_str path)
{
    size_t dir = 0;

    if (path.n > SP_FILE_MAX_PATH || sp_str_has_nul(path))
        return true; /* nobody could read it */
    if (is_below(path, "SKILL.md", &dir))
        return add_found(r, &r->skills, path, path, 0);
    for (uint32_t i = 0; i < 3; i++)
        if (is_below(path, sp_manifest_names[i], &dir))
            return add_found(r, &r->manifests, path, (struct sp_str){path.p, dir}, i);
    return true;
}

static void take_error(struct sp_root *r, struct sp_str path, int err)
{
    const char *name = sp_arena_copy(&r->arena, path);
    char words[128];
    char after[136];

    sp_fs_error_text(err, words, sizeof words);
    (void)snprintf(after, sizeof after, ": %s", words);
    if (name != NULL)
        sp_root_warn(r, "failed to scan capability path ", name, after);
}

static int compare(const void *left, const void *right)
{
    const struct sp_found *a = left;
    const struct sp_found *b = right;
    const int by_key = strcmp(a->key, b->key);

    return by_key != 0 ? by_key : (a->rank > b->rank) - (a->rank < b->rank);
}

static void sort(struct sp_found_list *list)
{
    if (list->count > 1)
        qsort(list->items, list->count, sizeof *list->items, compare);
}

bool sp_root_collect(struct sp_root *r, struct sp_str entries, bool is_cut)
{
    struct sp_file_entry entry;
    bool ok = true;

    while (ok && entries.n >= sizeof entry) {
        memcpy(&entry, entries.p, sizeof entry);
        entries = (struct sp_str){entries.p + sizeof entry, entries.n - sizeof entry};
        if (entry.name_len > entries.n)
            break;
        const struct sp_str path = {entries.p, entry.name_len};
        if (entry.kind == SP_FILE_ENTRY_FILE)
            ok = take_file(r, path);
        else if (entry.kind == SP_FILE_ENTRY_ERROR)
            take_error(r, path, entry.err);
        entries = (struct sp_str){entries.p + path.n, entries.n - path.n};
    }
    if (is_cut) {
        auto_buf struct sp_buf text = {0};

        if (sp_buf_printf(&text, "capability scan reached its traversal limit (root: %s)",
                          r->uri.text))
            sp_root_say(r, (struct sp_str){text.data, text.len});
    }
    sort(&r->skills);
    sort(&r->manifests);
    return ok;
}

/* ---- the manifest ---- */

/* "./a//b/./c" as a path below the root; NULL: it is none. */
static const char *path_below(struct sp_root *r, struct sp_str below)
{
    auto_buf struct sp_buf b = {.max = SP_FILE_MAX_PATH};
    const char *end = below.p + below.n;
    bool ok = below.n != 0 && below.p[0] != '/' && !sp_str_has_nul(below) &&
              sp_buf_printf(&b, "%s", r->uri.path);

    for (const char *p = below.p; ok && p < end;) {
        const char *slash = memchr(p, '/', (size_t)(end - p));
        const struct sp_str part = {p, (size_t)((slash == NULL ? end : slash) - p)};

        if (part.n != 0 && !sp_str_eq(part, SP_STR(".")))
            ok = (b.data[b.len - 1] == '/' || sp_buf_add(&b, "/", 1)) && sp_buf_add_str(&b, part);
        p += part.n + 1;
    }
    return ok ? sp_arena_copy(&r->arena, (struct sp_str){b.data, b.len}) : NULL;
}

/* Both kinds of slashes count here: what the file is for may be read elsewhere. */
static bool goes_up(struct sp_str s)
{
    size_t from = 0;

    for (size_t i = 0; i <= s.n; i++) {
        if (i < s.n && s.p[i] != '/' && s.p[i] != '\\')
            continue;
        if (sp_str_eq((struct sp_str){s.p + from, i - from}, SP_STR("..")))
            return true;
        from = i + 1;
    }
    return false;
}

static const char *declared_path(struct sp_root *r, const char *field, struct sp_str s)
{
    const char *why = ": path must remain below the capability root";
    const char *path = NULL;
    char before[48];

    if (s.n < 2 || s.p[0] != '.' || s.p[1] != '/') {
        why = ": path must start with `./`";
    } else {
        s = (struct sp_str){s.p + 2, s.n - 2};
        if (!goes_up(s))
            path = path_below(r, s);
    }
    if (path == NULL) {
        (void)snprintf(before, sizeof before, "ignoring %s in ", field);
        sp_root_warn(r, before, r->path, why);
    }
    return path;
}

struct sp_declared sp_root_declared(struct sp_root *r)
{
    struct sp_json j = {0};
    struct sp_err e = {0};
    struct sp_declared d = {0};

    if (sp_json_parse(&j, r->text.data, r->text.len, &e) == 0 &&
        sp_json_type(&j, 0) == SP_JSON_OBJECT) {
        const uint32_t servers = sp_json_get(&j, 0, "mcpServers");
        const uint32_t apps = sp_json_get(&j, 0, "apps");

        if (servers != SP_JSON_NONE && sp_json_type(&j, servers) == SP_JSON_STRING)
            d.servers = declared_path(r, "mcpServers", sp_json_str(&j, servers));
        d.has_inline_servers =
            servers != SP_JSON_NONE && sp_json_type(&j, servers) == SP_JSON_OBJECT;
        if (apps != SP_JSON_NONE && sp_json_type(&j, apps) == SP_JSON_STRING)
            d.apps = declared_path(r, "apps", sp_json_str(&j, apps));
    }
    sp_json_done(&j);
    return d;
}
