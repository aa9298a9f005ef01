/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capabilityRoots/discoverV1: SP_DISCOVER_AT_ONCE roots at a time, answered in the order of the
 * request. Each step of a root begins one file operation and names the step that goes on with it:
 *
 *   inspect -> walk -> manifest of the root, else of a directory above it -> manifests that the
 *   walk found -> files that the root's manifest names -> every skill and its metadata -> the end
 *
 * capabilities/discoverV2 is not advertised, since it would have to read YAML; its answer is empty.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "server/rpc/conn.h"
#include "server/rpc/discover.h"
#include "server/rpc/fs.h"

#define METADATA "agents/openai.yaml"

/* Ends the root; the other roots go on. */
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

static size_t parent_len(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? 0 : (size_t)(slash - path);
}

/* ---- skills ---- */

static void next_skill(struct sp_root *r);

/* The metadata of a skill is optional. */
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
    set_path(r, skill->path, parent_len(skill->path), METADATA);
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

/* ---- files that the root's manifest names ---- */

static void on_apps(struct sp_root *r)
{
    if (r->text.data != NULL)
        (void)sp_root_add_file(r, &r->apps);
    begin_skills(r);
}

static void begin_apps(struct sp_root *r)
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
    begin_apps(r);
}

static void begin_servers(struct sp_root *r)
{
    if (r->manifest.len == 0) {
        begin_skills(r);
    } else if (r->has_inline_servers) {
        begin_apps(r);
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

/* Only the first manifest of a directory counts, and the one that was already found for the root.
 */
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
        begin_servers(r);
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

/* ---- the manifest of the root, or of a directory above it ---- */

static void next_name(struct sp_root *r);

/* The first namespace manifest; also the plugin's, if it is in the root itself. */
static void take_manifest(struct sp_root *r)
{
    const bool is_own = strcmp(r->dir, r->uri.path) == 0;
    auto_buf struct sp_buf uri = {0};

    if (sp_uri_add(&uri, sp_str_of(r->dir)))
        r->plugin_root = sp_arena_copy(&r->arena, sp_buf_str(&uri));
    if (r->plugin_root == NULL) {
        fail_memory(r);
        return;
    }
    if (sp_root_add_file(r, &r->namespaces) && is_own && sp_root_add_file(r, &r->manifest))
        sp_root_read_manifest(r);
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
        const size_t n = parent_len(r->dir);
        r->dir[n == 0 ? 1 : n] = 0;
    }
    next_name(r);
}

static void next_name(struct sp_root *r)
{
    set_path(r, r->dir, strlen(r->dir), sp_manifest_names[r->next]);
    sp_root_read(r, on_manifest);
}

/* ---- inspect and walk ---- */

/* The entries are copied before they are read: the cell can change the window. */
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
        !sp_root_collect(r, sp_buf_str(&copy), a->is_cut)) {
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
            (void)sp_json_add_str(&r->error, sp_buf_str(&text));
        sp_root_ended(r);
    } else {
        sp_root_ask(r, SP_FILE_WALK, r->uri.path, on_walked);
    }
}

static void begin_root(struct sp_root *r)
{
    struct sp_err e = {0};

    if (r->uri.is_foreign || r->uri.path == NULL || strlen(r->uri.path) > SP_FILE_MAX_PATH) {
        (void)sp_fail(&e, SP_E_FAILED, 0, "'%s' is invalid on 'linux'", r->uri.text);
        sp_root_fail(r, "inspect", NULL, &e);
        return;
    }
    for (size_t n = strlen(r->uri.path); n > 1 && r->uri.path[n - 1] == '/'; n--)
        r->uri.path[n - 1] = 0;
    sp_root_ask(r, SP_FILE_STAT, r->uri.path, on_inspected);
}

/* Frees what the answer does not need. */
static void trim_root(struct sp_root *r)
{
    free(TAKE_PTR(r->skills.items));
    free(TAKE_PTR(r->manifests.items));
    sp_arena_done(&r->arena);
    sp_buf_done(&r->text);
}

static void root_done(struct sp_root *r)
{
    struct sp_buf *const all[] = {&r->manifest,   &r->mcp,      &r->apps,  &r->skills_out,
                                  &r->namespaces, &r->warnings, &r->error, &r->id};

    sp_files_drop(&r->call);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        sp_buf_done(all[i]);
    trim_root(r);
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

static bool add_root(struct sp_buf *b, const struct sp_root *r)
{
    return sp_buf_printf(b, "{\"id\":") && sp_buf_add(b, r->id.data, r->id.len) &&
           sp_buf_printf(b, ",\"path\":") && sp_json_add_str(b, sp_str_of(r->uri.text)) &&
           add_plugin(b, r) && add_list(b, "skills", &r->skills_out) &&
           add_list(b, "namespaceManifests", &r->namespaces) &&
           add_list(b, "warnings", &r->warnings) && sp_buf_printf(b, ",\"error\":") &&
           add_or_null(b, &r->error) && sp_buf_add(b, "}", 1);
}

static void free_discovery(struct sp_task *t)
{
    struct sp_discovery *d = SP_CONTAINER(t, struct sp_discovery, task);

    for (uint32_t i = 0; i < d->count; i++)
        root_done(&d->roots[i]);
    free(d->roots);
    free(d);
}

static void answer(struct sp_discovery *d)
{
    auto_buf struct sp_buf b = {0};
    bool ok = sp_buf_printf(&b, "{\"roots\":[");

    for (uint32_t i = 0; ok && i < d->count; i++)
        ok = (i == 0 || sp_buf_add(&b, ",", 1)) && add_root(&b, &d->roots[i]);
    if (ok && sp_buf_printf(&b, "]}"))
        sp_request_reply(d->request, sp_buf_str(&b));
    else
        sp_request_fail_memory(d->request, "answer");
}

/* ---- the roots of a request ---- */

static void begin_roots(struct sp_discovery *d)
{
    d->is_beginning = true;
    while (d->begun < d->count && d->begun - d->ended < SP_DISCOVER_AT_ONCE)
        begin_root(&d->roots[d->begun++]);
    d->is_beginning = false;
    if (d->ended == d->count)
        answer(d);
}

/* Called from within begin_root for a root that ends at once; then begin_roots goes on itself. */
void sp_root_ended(struct sp_root *r)
{
    struct sp_discovery *d = r->all;

    trim_root(r);
    d->ended++;
    if (!d->is_beginning)
        begin_roots(d);
}

static void read_root(const struct sp_params *roots, uint32_t token, struct sp_root *r)
{
    const struct sp_params p = {roots->json, token, roots->err};
    struct sp_str text = {0};

    if (sp_json_type(p.json, token) != SP_JSON_OBJECT) {
        (void)sp_json_wrong_type(p.json, token, "struct CapabilityRootDiscoverRequest", p.err);
        return;
    }
    sp_params_str(&p, "id", &text);
    if (sp_params_ok(&p) && !sp_json_add_str(&r->id, text))
        (void)sp_fail(p.err, SP_E_SYSTEM, ENOMEM, "keep a root's id");
    sp_params_str(&p, "path", &text);
    if (sp_params_ok(&p))
        (void)sp_uri_read(text, &r->uri, p.err);
    sp_fs_read_policy(&p, &r->policy, &r->has_policy, &r->is_restricted);
}

static int decode_discovery(struct sp_rpc_call *c, struct sp_discovery *d, struct sp_err *e)
{
    const struct sp_params p = sp_rpc_call_params(c, e);
    uint32_t roots = SP_JSON_NONE;

    sp_params_array(&p, "roots", &roots);
    if (!sp_params_ok(&p))
        return sp_params_result(&p);
    /* Of a request with too many roots, one is read: its errors come before the limit's. */
    const uint32_t count = p.json->tokens[roots].children;
    const uint32_t kept = count > SP_DISCOVER_ROOTS ? 1 : count;
    d->roots = calloc(kept + 1, sizeof *d->roots);
    if (d->roots == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at capability roots");
    for (uint32_t t = sp_json_first(p.json, roots);
         sp_params_ok(&p) && d->count < kept && t != SP_JSON_NONE;
         t = sp_json_next(p.json, roots, t)) {
        d->roots[d->count].all = d;
        read_root(&p, t, &d->roots[d->count++]);
    }
    if (sp_params_ok(&p) && sp_rpc_call_check(c, e) == 0 && count > SP_DISCOVER_ROOTS)
        (void)sp_fail(e, SP_E_STATE, 0, "capability root discovery accepts at most %d roots",
                      SP_DISCOVER_ROOTS);
    return sp_params_result(&p);
}

static int capability_roots_discover(struct sp_rpc_call *c, struct sp_err *e)
{
    struct sp_discovery *d = calloc(1, sizeof *d);

    if (d == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at capability roots");
    d->task.free = free_discovery;
    if (decode_discovery(c, d, e) == 0)
        d->request = sp_rpc_call_park(c, 0, e);
    if (d->request == NULL) {
        free_discovery(&d->task);
        return -(int)e->code;
    }
    d->request->task = &d->task;
    if (sp_request_charge(d->request,
                          d->count * sizeof *d->roots + sp_json_raw(c->json, c->params).n, e) < 0) {
        sp_request_drop(d->request);
        return -(int)e->code;
    }
    begin_roots(d);
    return 0;
}

static int capabilities_discover(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    const struct sp_params p = sp_rpc_call_params(c, e);

    sp_fs_read_path(&p, "cwd", &a.path);
    sp_fs_read_sandbox(&p, &a);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0)
        return sp_params_result(&p);
    sp_rpc_call_reply(c, SP_STR("{\"plugins\":[],\"skills\":[],\"warnings\":[]}"));
    return 0;
}

const struct sp_method sp_discover_methods[] = {
    {"capabilityRoots/discoverV1", "capability discovery", .fn = capability_roots_discover},
    {"capabilities/discoverV2", "capability discovery", .fn = capabilities_discover},
    {0},
};
