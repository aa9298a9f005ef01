/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discover: the steps of one root. Each asks for one thing and names the step that goes on with it:
 *
 *   inspect -> walk -> manifest of the root, else of a directory above it -> manifests that the
 *   walk found -> what the root's manifest names -> every skill and its metadata -> the end
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "server/rpc/discover.h"

#define METADATA "agents/openai.yaml"

static void fail_memory(struct sp_root *r)
{
    struct sp_err e = {0};

    (void)sp_fail(&e, SP_E_FAILED, 0, "out of memory");
    sp_root_fail(r, "scan", NULL, &e);
}

/* DIR/NAME into r->path. */
static void set_path(struct sp_root *r, const char *dir, size_t dir_len, const char *name)
{
    if (dir_len != 0 && dir[dir_len - 1] == '/')
        dir_len--;
    (void)snprintf(r->path, sizeof r->path, "%.*s/%s", (int)dir_len, dir, name);
}

static size_t dir_len(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? 0 : (size_t)(slash - path);
}

/* ---- skills ---- */

static void next_skill(struct sp_root *r);

static void on_metadata(struct sp_root *r)
{
    struct sp_buf *b = &r->skills_out;

    if (!sp_buf_printf(b, ",\"metadata\":") ||
        !((r->text.data != NULL && sp_root_add_file(r, b)) || sp_buf_printf(b, "null")) ||
        !sp_buf_add(b, "}", 1)) {
        fail_memory(r);
        return;
    }
    next_skill(r);
}

static void on_instructions(struct sp_root *r)
{
    const struct sp_found *skill = &r->skills.items[r->next++];
    struct sp_buf *b = &r->skills_out;
    const size_t before = b->len;

    if (r->text.data == NULL || !sp_buf_printf(b, "%s{\"instructions\":", b->len == 0 ? "" : ",") ||
        !sp_root_add_file(r, b)) {
        b->len = before;
        next_skill(r);
        return;
    }
    set_path(r, skill->path, dir_len(skill->path), METADATA);
    sp_root_read(r, on_metadata);
}

static void next_skill(struct sp_root *r)
{
    if (r->next == r->skills.count) {
        sp_root_ended(r);
        return;
    }
    (void)snprintf(r->path, sizeof r->path, "%s", r->skills.items[r->next].path);
    sp_root_read(r, on_instructions);
}

static void begin_skills(struct sp_root *r)
{
    r->next = 0;
    next_skill(r);
}

/* ---- what the plugin names ---- */

static void on_apps(struct sp_root *r)
{
    if (r->text.data != NULL)
        (void)sp_root_add_file(r, &r->apps);
    begin_skills(r);
}

static void read_apps(struct sp_root *r)
{
    if (r->apps_path == NULL) {
        begin_skills(r);
        return;
    }
    (void)snprintf(r->path, sizeof r->path, "%s", r->apps_path);
    sp_root_read(r, on_apps);
}

static void on_servers(struct sp_root *r)
{
    if (r->text.data != NULL)
        (void)sp_root_add_file(r, &r->mcp);
    read_apps(r);
}

static void read_servers(struct sp_root *r)
{
    if (r->manifest.len == 0) {
        begin_skills(r);
    } else if (r->has_inline_servers) {
        read_apps(r);
    } else {
        if (r->servers_path != NULL)
            (void)snprintf(r->path, sizeof r->path, "%s", r->servers_path);
        else
            set_path(r, r->uri.path, strlen(r->uri.path), ".mcp.json");
        sp_root_read(r, on_servers);
    }
}

/* ---- manifests that the walk found ---- */

static void next_manifest(struct sp_root *r);

static void on_namespace(struct sp_root *r)
{
    struct sp_buf *b = &r->namespaces;
    const size_t before = b->len;

    r->next++;
    if (r->text.data != NULL &&
        ((b->len != 0 && !sp_buf_add(b, ",", 1)) || !sp_root_add_file(r, b)))
        b->len = before;
    next_manifest(r);
}

/* One for a plugin: the first by rank, and none where the root's own is about the same place. */
static bool is_seen(const struct sp_root *r, const struct sp_found *m)
{
    return (r->plugin_root != NULL && strcmp(m->key, r->plugin_root) == 0) ||
           (r->next != 0 && strcmp(m->key, m[-1].key) == 0);
}

static void next_manifest(struct sp_root *r)
{
    while (r->next < r->manifests.count && is_seen(r, &r->manifests.items[r->next]))
        r->next++;
    if (r->next == r->manifests.count) {
        read_servers(r);
        return;
    }
    (void)snprintf(r->path, sizeof r->path, "%s", r->manifests.items[r->next].path);
    sp_root_read(r, on_namespace);
}

static void begin_manifests(struct sp_root *r)
{
    r->next = 0;
    next_manifest(r);
}

/* ---- the manifest of the root, or of what is above it ---- */

static void next_name(struct sp_root *r);

/* The first of the namespaces; the plugin's own if it is the root's. */
static void take_manifest(struct sp_root *r)
{
    const bool is_own = strcmp(r->dir, r->uri.path) == 0;
    auto_buf struct sp_buf uri = {0};

    if (sp_uri_add(&uri, sp_str_of(r->dir)))
        r->plugin_root = sp_arena_copy(&r->arena, (struct sp_str){uri.data, uri.len});
    if (r->plugin_root == NULL) {
        fail_memory(r);
        return;
    }
    if (sp_root_add_file(r, &r->namespaces) && is_own && sp_root_add_file(r, &r->manifest)) {
        const struct sp_declared d = sp_root_declared(r);

        r->has_inline_servers = d.has_inline_servers;
        r->servers_path = d.servers;
        r->apps_path = d.apps;
    }
    begin_manifests(r);
}

static void on_manifest(struct sp_root *r)
{
    if (r->text.data != NULL) {
        take_manifest(r);
        return;
    }
    r->next++;
    if (r->next == 3) {
        r->next = 0;
        if (strcmp(r->dir, "/") == 0) {
            begin_manifests(r);
            return;
        }
        const size_t n = dir_len(r->dir);
        r->dir[n == 0 ? 1 : n] = 0;
    }
    next_name(r);
}

static void next_name(struct sp_root *r)
{
    set_path(r, r->dir, strlen(r->dir), sp_manifest_names[r->next]);
    sp_root_read(r, on_manifest);
}

/* ---- the beginning ---- */

static void on_walked(struct sp_files_call *call, const struct sp_file_answer *a,
                      const struct sp_err *e)
{
    struct sp_root *r = SP_CONTAINER(call, struct sp_root, call);
    auto_buf struct sp_buf copy = {0};

    if (a == NULL || a->err != 0 || a->refusal != SP_FILE_NOT_REFUSED) {
        sp_root_fail(r, "scan", a, e);
        return;
    }
    if (!sp_buf_add(&copy, a->window, a->data_len) ||
        !sp_root_collect(r, (struct sp_str){copy.data, copy.len}, a->is_cut)) {
        fail_memory(r);
        return;
    }
    r->is_walked = true;
    r->next = 0;
    (void)snprintf(r->dir, sizeof r->dir, "%s", r->uri.path);
    next_name(r);
}

static void on_inspected(struct sp_files_call *call, const struct sp_file_answer *a,
                         const struct sp_err *e)
{
    struct sp_root *r = SP_CONTAINER(call, struct sp_root, call);
    auto_buf struct sp_buf text = {0};

    if (a == NULL || a->err != 0) {
        sp_root_fail(r, "inspect", a, e);
    } else if (!a->stat.is_directory) {
        if (sp_buf_printf(&text, "capability root %s is not a directory", r->uri.text))
            (void)sp_json_add_str(&r->error, (struct sp_str){text.data, text.len});
        sp_root_ended(r);
    } else {
        sp_root_ask(r, SP_FILE_WALK, r->uri.path, on_walked);
    }
}

/* "/a/b//" as "/a/b": what is joined to it has one slash. */
static void trim(char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        path[--n] = 0;
}

void sp_root_begin(struct sp_root *r)
{
    struct sp_err e = {0};

    if (r->uri.is_foreign || r->uri.path == NULL || strlen(r->uri.path) > SP_FILE_MAX_PATH) {
        (void)sp_fail(&e, SP_E_FAILED, 0, "'%s' is invalid on 'linux'", r->uri.text);
        sp_root_fail(r, "inspect", NULL, &e);
        return;
    }
    trim(r->uri.path);
    sp_root_ask(r, SP_FILE_STAT, r->uri.path, on_inspected);
}

void sp_root_rest(struct sp_root *r)
{
    free(TAKE_PTR(r->skills.items));
    free(TAKE_PTR(r->manifests.items));
    sp_arena_done(&r->arena);
    sp_buf_done(&r->text);
}

void sp_root_done(struct sp_root *r)
{
    struct sp_buf *const all[] = {&r->manifest,   &r->mcp,      &r->apps, &r->skills_out,
                                  &r->namespaces, &r->warnings, &r->error};

    sp_files_drop(&r->call);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        sp_buf_done(all[i]);
    sp_root_rest(r);
    sp_uri_done(&r->uri);
    if (r->has_policy)
        sp_policy_done(&r->policy);
}

/* ---- the answer ---- */

static bool add_or_null(struct sp_buf *b, const struct sp_buf *value)
{
    return value->len == 0 ? sp_buf_printf(b, "null") : sp_buf_add(b, value->data, value->len);
}

static bool add_list(struct sp_buf *b, const char *key, const struct sp_buf *items)
{
    return sp_buf_printf(b, ",\"%s\":[", key) && sp_buf_add(b, items->data, items->len) &&
           sp_buf_add(b, "]", 1);
}

static bool add_plugin(struct sp_buf *b, const struct sp_root *r)
{
    if (r->manifest.len == 0)
        return sp_buf_printf(b, ",\"plugin\":null");
    return sp_buf_printf(b, ",\"plugin\":{\"manifest\":") && add_or_null(b, &r->manifest) &&
           sp_buf_printf(b, ",\"mcpConfig\":") && add_or_null(b, &r->mcp) &&
           sp_buf_printf(b, ",\"appsConfig\":") && add_or_null(b, &r->apps) &&
           sp_buf_add(b, "}", 1);
}

bool sp_root_add(struct sp_buf *b, const struct sp_root *r)
{
    return sp_buf_printf(b, "{\"id\":") && sp_buf_add_str(b, r->id) &&
           sp_buf_printf(b, ",\"path\":") && sp_json_add_str(b, sp_str_of(r->uri.text)) &&
           add_plugin(b, r) && add_list(b, "skills", &r->skills_out) &&
           add_list(b, "namespaceManifests", &r->namespaces) &&
           add_list(b, "warnings", &r->warnings) && sp_buf_printf(b, ",\"error\":") &&
           add_or_null(b, &r->error) && sp_buf_add(b, "}", 1);
}
