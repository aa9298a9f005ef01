/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capabilityRoots/discoverV1: ROOTS_AT_ONCE roots at a time, answered in the order of the request.
 * A root is inspected and walked, then its files are read in the order of enum step.
 *
 * capabilities/discoverV2 is not advertised, since it would have to read YAML; its answer is empty.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/auto.h"
#include "base/grow.h"
#include "base/uri.h"
#include "base/utf8.h"
#include "sandbox/policy_json.h"
#include "server/rpc/conn.h"
#include "server/rpc/fs.h"

#define MAX_ROOTS        128
#define ROOTS_AT_ONCE    8
#define WALK_DEPTH       6
#define WALK_DIRECTORIES 2000
#define WALK_ENTRIES     20000
#define MAX_FILE         (1U << 20)  /* bytes of one file */
#define MAX_BUNDLE       (16U << 20) /* bytes of the files of one root */
#define MAX_ANSWER       (48U << 20) /* bytes of a whole answer: no file is added beyond */

/* A file that the walk found. */
struct found {
    const char *path;
    const char *key; /* sort key: a URI */
    uint32_t rank;   /* order among those with the same key */
};

struct found_list {
    struct found *items;
    uint32_t count, cap;
};

enum step {
    STEP_ROOT_MANIFEST, /* in the root, else in a parent directory */
    STEP_MANIFESTS,     /* those that the walk found */
    STEP_SERVERS,       /* the files that the root's manifest names */
    STEP_APPS,
    STEP_SKILLS,   /* the instructions of a skill ... */
    STEP_METADATA, /* ... and its metadata */
};

/* One root: its plugin and its skills. Its files are found and read one at a time, under the root's
 * sandbox if it has one. What is wrong with a root goes into its own warnings and error and stops
 * no other root. */
struct root {
    struct sp_files_call call;
    struct discovery *all;
    struct sp_buf id; /* as JSON */
    struct sp_uri uri;
    struct sp_policy policy;
    bool has_policy, is_restricted;

    /* State of the walk through the steps. */
    struct sp_arena arena;
    struct found_list skills, manifests;
    enum step step;                   /* which file is under way */
    char path[SP_FILE_MAX_PATH + 64]; /* the file under way */
    char dir[SP_FILE_MAX_PATH + 1];   /* where a manifest is looked for now */
    uint32_t next;                    /* index of the next manifest name, manifest or skill */
    size_t bundle;                    /* bytes of its files so far */
    bool is_walked;
    bool has_inline_servers;              /* the manifest has the MCP servers itself, ... */
    const char *servers_path, *apps_path; /* ... or names files; NULL: none. In the arena */
    const char *plugin_root; /* URI of the directory with the first manifest found; NULL: none */
    struct sp_buf text;      /* contents of the last file; data NULL: not there or unusable */

    /* JSON of the answer */
    struct sp_buf manifest, mcp, apps; /* empty: null */
    struct sp_buf skills_out, namespaces, warnings, error;
};

struct discovery {
    struct sp_task task;
    struct sp_request *request;
    struct root *roots;
    uint32_t count, begun, ended;
    bool is_beginning; /* roots that end at once do not begin the next ones */
    size_t bytes;      /* of the answer so far */
};

static const char *const manifest_names[] = {
    ".codex-plugin/plugin.json", ".claude-plugin/plugin.json", ".cursor-plugin/plugin.json"};

static void root_ended(struct root *r);
static void on_file(struct root *r);

/* ---- warnings and errors ---- */

/* Counts bytes of the answer. false: there is no more room. */
static bool charge_answer(struct root *r, size_t bytes)
{
    struct discovery *all = r->all;
    struct sp_err e = {0};

    if (bytes > MAX_ANSWER - all->bytes || sp_request_charge(all->request, bytes, &e) < 0)
        return false;
    all->bytes += bytes;
    return true;
}

static void warn(struct root *r, struct sp_str text)
{
    const size_t before = r->warnings.len;

    if (!charge_answer(r, text.n + 8) || (before != 0 && !sp_buf_add(&r->warnings, ",", 1)) ||
        !sp_json_add_str(&r->warnings, text))
        r->warnings.len = before;
}

/* A warning: `before`, the URI of the path, `after`. */
static void warn_path(struct root *r, const char *before, const char *path, const char *after)
{
    auto_buf struct sp_buf text = {0};

    if (sp_buf_printf(&text, "%s", before) && sp_uri_add(&text, sp_str_of(path)) &&
        sp_buf_printf(&text, "%s", after))
        warn(r, sp_buf_str(&text));
}

#define REASON 192

/* ": WHY" from a failed answer or, without one, from *e. Returns ret. */
static const char *reason_of(const struct sp_file_answer *a, const struct sp_err *e,
                             char ret[REASON])
{
    char words[160];

    if (a == NULL)
        (void)sp_error_text(e, words, sizeof words);
    else if (a->err != 0)
        sp_fs_error_text(a->err, words, sizeof words);
    else
        (void)snprintf(words, sizeof words, "path is not a regular file");
    (void)snprintf(ret, REASON, ": %s", words);
    return ret;
}

/* Ends the root; the other roots go on. */
static void fail_root(struct root *r, const char *what, const char *why)
{
    auto_buf struct sp_buf text = {0};

    if (sp_buf_printf(&text, "failed to %s capability root %s%s", what, r->uri.text, why))
        (void)sp_json_add_str(&r->error, sp_buf_str(&text));
    root_ended(r);
}

#define OUT_OF_MEMORY ": out of memory"

/* ---- file operations ---- */

static void ask_file(struct root *r, enum sp_file_op op, const char *path,
                     void (*done)(struct sp_files_call *call, const struct sp_file_answer *a,
                                  const struct sp_err *e))
{
    struct sp_conn *conn = r->all->request->conn;
    struct sp_err e = {0};
    char why[REASON];
    const struct sp_files_job job = {
        .request = {.op = op,
                    .path = path,
                    .follows = true,
                    .hides_placeholders = !r->is_restricted,
                    .fd = -1,
                    .length = op == SP_FILE_READ ? MAX_FILE : 0,
                    .walk = {.max_depth = WALK_DEPTH,
                             .max_directories = WALK_DIRECTORIES,
                             .max_entries = WALK_ENTRIES,
                             .follows_directories = true}},
        .policy = r->is_restricted ? &r->policy : NULL,
        .session = conn->session->number,
    };

    r->call.done = done;
    if (sp_files_ask(conn->rpc->front->files, &conn->files, &job, &r->call, &e) < 0)
        fail_root(r, op == SP_FILE_STAT && !r->is_walked ? "inspect" : "scan",
                  reason_of(NULL, &e, why));
}

/* Rust's words for a UTF-8 error, which Codex reports. */
static void put_bad_utf8(struct sp_str s, size_t at, char *ret, size_t size)
{
    const unsigned char lead = (unsigned char)s.p[at];
    size_t n = 1;

    for (; n < 3 && at + n < s.n; n++) {
        auto_buf struct sp_buf b = {0};

        if (!sp_utf8_add_lossy(&b, (struct sp_str){s.p + at, n + 1}) || b.len != 3)
            break;
    }
    if (at + n == s.n && lead >= 0xC2 && lead <= 0xF4)
        (void)snprintf(ret, size, " is not UTF-8: incomplete utf-8 byte sequence from index %zu",
                       at);
    else
        (void)snprintf(ret, size,
                       " is not UTF-8: invalid utf-8 sequence of %zu bytes from index %zu", n, at);
}

/* Takes the contents if they are within the limits and valid UTF-8. */
static void on_text(struct sp_files_call *call, const struct sp_file_answer *a,
                    const struct sp_err *e)
{
    struct root *r = SP_CONTAINER(call, struct root, call);
    char why[REASON];

    if (a == NULL || a->err != 0 ||
        (a->refusal != SP_FILE_NOT_REFUSED && a->refusal != SP_FILE_TOO_LARGE)) {
        warn_path(r, "failed to read capability file ", r->path, reason_of(a, e, why));
    } else if (a->refusal == SP_FILE_TOO_LARGE || a->data_len > MAX_FILE ||
               a->data_len > MAX_BUNDLE - r->bundle) {
        warn_path(r, "capability file ", r->path, " exceeded its read limit");
    } else if (sp_buf_room(&r->text, a->data_len + 1) == NULL) {
        warn_path(r, "failed to read capability file ", r->path, ": out of memory");
    } else {
        (void)sp_buf_add(&r->text, a->window, a->data_len); /* a copy: the cell can change it */
        const struct sp_str s = {r->text.data, r->text.len};
        const size_t good = sp_utf8_valid_prefix(s);

        if (good == s.n) {
            r->bundle += s.n;
        } else {
            put_bad_utf8(s, good, why, sizeof why);
            warn_path(r, "capability file ", r->path, why);
            sp_buf_done(&r->text);
        }
    }
    on_file(r);
}

static void on_inspected_file(struct sp_files_call *call, const struct sp_file_answer *a,
                              const struct sp_err *e)
{
    struct root *r = SP_CONTAINER(call, struct root, call);
    char why[REASON];

    if (a == NULL || (a->err != 0 && a->err != ENOENT)) {
        warn_path(r, "failed to inspect capability file ", r->path, reason_of(a, e, why));
    } else if (a->err == 0 && a->stat.is_file && a->stat.size > MAX_FILE) {
        (void)snprintf(why, sizeof why, " exceeds the %u-byte limit", MAX_FILE);
        warn_path(r, "capability file ", r->path, why);
    } else if (a->err == 0 && a->stat.is_file && a->stat.size > MAX_BUNDLE - r->bundle) {
        (void)snprintf(why, sizeof why, "capability root bundle exceeds the %u-byte limit",
                       MAX_BUNDLE);
        warn(r, sp_str_of(why));
    } else if (a->err == 0 && a->stat.is_file) {
        ask_file(r, SP_FILE_READ, r->path, on_text);
        return;
    }
    on_file(r);
}

static bool add_content(struct root *r, struct sp_buf *to)
{
    const size_t before = to->len;
    bool ok = sp_buf_printf(to, "{\"path\":\"") && sp_uri_add(to, sp_str_of(r->path)) &&
              sp_buf_printf(to, "\",\"contents\":") && sp_json_add_str(to, sp_buf_str(&r->text)) &&
              sp_buf_add(to, "}", 1);

    ok = ok && charge_answer(r, to->len - before);
    if (!ok) {
        to->len = before;
        warn_path(r, "capability discovery exceeds the limit of one answer (file: ", r->path, ")");
    }
    return ok;
}

/* ---- files that the walk found ---- */

/* Whether the path ends in /NAME; *ret_dir is the length of what is before it. */
static bool ends_in(struct sp_str path, const char *name, size_t *ret_dir)
{
    const size_t n = strlen(name);

    if (path.n <= n || path.p[path.n - n - 1] != '/' || memcmp(path.p + path.n - n, name, n) != 0)
        return false;
    *ret_dir = path.n - n - 1;
    return true;
}

static bool add_found(struct root *r, struct found_list *to, struct sp_str path, struct sp_str key,
                      uint32_t rank)
{
    auto_buf struct sp_buf uri = {0};

    if (!SP_GROW(to->items, to->count, to->cap) ||
        !sp_uri_add(&uri, key.n == 0 ? SP_STR("/") : key))
        return false;
    const struct found found = {
        .path = sp_arena_copy(&r->arena, path),
        .key = sp_arena_copy(&r->arena, sp_buf_str(&uri)),
        .rank = rank,
    };
    if (found.path == NULL || found.key == NULL)
        return false;
    to->items[to->count++] = found;
    return true;
}

/* Sorts a path of the walk into skills or manifests; other files are ignored. */
static bool add_file(struct root *r, struct sp_str path)
{
    size_t dir = 0;

    if (path.n > SP_FILE_MAX_PATH || sp_str_has_nul(path))
        return true; /* no file operation accepts such a path */
    if (ends_in(path, "SKILL.md", &dir))
        return add_found(r, &r->skills, path, path, 0);
    for (uint32_t i = 0; i < 3; i++)
        if (ends_in(path, manifest_names[i], &dir))
            return add_found(r, &r->manifests, path, (struct sp_str){path.p, dir}, i);
    return true;
}

static int compare_found(const void *left, const void *right)
{
    const struct found *a = left;
    const struct found *b = right;
    const int by_key = strcmp(a->key, b->key);

    return by_key != 0 ? by_key : (a->rank > b->rank) - (a->rank < b->rank);
}

/* Returns 0, -ENOMEM, or -EBADMSG: the list is malformed. */
static int collect_found(struct root *r, struct sp_str entries, bool is_cut)
{
    struct found_list *const lists[] = {&r->skills, &r->manifests};
    struct sp_file_entry entry;
    struct sp_str path;
    char words[128];
    char after[136];
    bool ok = true;
    int left = 0;

    while (ok && (left = sp_file_next_entry(&entries, &entry, &path)) > 0) {
        if (entry.kind == SP_FILE_ENTRY_FILE)
            ok = add_file(r, path);
        if (entry.kind != SP_FILE_ENTRY_ERROR)
            continue;
        const char *name = sp_arena_copy(&r->arena, path);
        sp_fs_error_text(entry.err, words, sizeof words);
        (void)snprintf(after, sizeof after, ": %s", words);
        if (name != NULL)
            warn_path(r, "failed to scan capability path ", name, after);
    }
    if (is_cut) {
        auto_buf struct sp_buf text = {0};

        if (sp_buf_printf(&text, "capability scan reached its traversal limit (root: %s)",
                          r->uri.text))
            warn(r, sp_buf_str(&text));
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (lists[i]->count > 1)
            qsort(lists[i]->items, lists[i]->count, sizeof *lists[i]->items, compare_found);
    return left < 0 ? -EBADMSG : ok ? 0 : -ENOMEM;
}

/* ---- files that the manifest names ---- */

/* "a//b/./c" as a path below the root; NULL: not a relative path. */
static const char *path_below(struct root *r, struct sp_str below)
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
    return ok ? sp_arena_copy(&r->arena, sp_buf_str(&b)) : NULL;
}

/* Backslashes count too: the manifest may be used on Windows. */
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

/* A path below the root from a member "./..."; NULL, with a warning, for any other value. */
static const char *declared_path(struct root *r, const char *field, struct sp_str s)
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
        warn_path(r, before, r->path, why);
    }
    return path;
}

static void read_manifest(struct root *r)
{
    struct sp_json j = {0};
    struct sp_err e = {0};

    if (sp_json_parse(&j, r->text.data, r->text.len, &e) == 0 &&
        sp_json_type(&j, 0) == SP_JSON_OBJECT) {
        const uint32_t servers = sp_json_get(&j, 0, "mcpServers");
        const uint32_t apps = sp_json_get(&j, 0, "apps");

        if (servers != SP_JSON_NONE && sp_json_type(&j, servers) == SP_JSON_STRING)
            r->servers_path = declared_path(r, "mcpServers", sp_json_str(&j, servers));
        r->has_inline_servers =
            servers != SP_JSON_NONE && sp_json_type(&j, servers) == SP_JSON_OBJECT;
        if (apps != SP_JSON_NONE && sp_json_type(&j, apps) == SP_JSON_STRING)
            r->apps_path = declared_path(r, "apps", sp_json_str(&j, apps));
    }
    sp_json_done(&j);
}

/* DIR/NAME into r->path. */
static void set_path(struct root *r, const char *dir, size_t dir_len, const char *name)
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

/* ---- reading the files of a root ---- */

/* Begins to read the file that is next by r->step and r->next. Without one the root has ended. */
static void next_file(struct root *r)
{
    const char *path = NULL;

    switch (r->step) {
    case STEP_ROOT_MANIFEST:
        set_path(r, r->dir, strlen(r->dir), manifest_names[r->next]);
        break;
    case STEP_MANIFESTS:
        /* Only the first manifest of a directory counts, and not that of the root again. */
        for (; r->next < r->manifests.count; r->next++) {
            const struct found *m = &r->manifests.items[r->next];

            if ((r->plugin_root == NULL || strcmp(m->key, r->plugin_root) != 0) &&
                (r->next == 0 || strcmp(m->key, m[-1].key) != 0))
                break;
        }
        if (r->next < r->manifests.count) {
            path = r->manifests.items[r->next].path;
            break;
        }
        r->step = STEP_SERVERS;
        /* fall through */
    case STEP_SERVERS:
        if (r->manifest.len != 0 && !r->has_inline_servers) {
            set_path(r, r->uri.path, strlen(r->uri.path), ".mcp.json");
            path = r->servers_path;
            break;
        }
        r->step = STEP_APPS;
        /* fall through */
    case STEP_APPS:
        if (r->apps_path != NULL) {
            path = r->apps_path;
            break;
        }
        r->step = STEP_SKILLS;
        r->next = 0;
        /* fall through */
    case STEP_SKILLS:
        if (r->next == r->skills.count) {
            root_ended(r);
            return;
        }
        path = r->skills.items[r->next].path;
        break;
    case STEP_METADATA:
        path = r->skills.items[r->next].path;
        set_path(r, path, parent_len(path), "agents/openai.yaml");
        path = NULL;
        break;
    }
    if (path != NULL)
        (void)snprintf(r->path, sizeof r->path, "%s", path);
    sp_buf_done(&r->text); /* filled again, if the path is a regular file; then on_file */
    ask_file(r, SP_FILE_STAT, r->path, on_inspected_file);
}

/* The file under way was read, if it is there, into r->text. */
static void on_file(struct root *r)
{
    const bool is_there = r->text.data != NULL;
    struct sp_buf *b = &r->skills_out;
    const size_t before = b->len;
    struct sp_buf *namespaces = &r->namespaces;
    const size_t listed = namespaces->len;
    auto_buf struct sp_buf uri = {0};
    bool ok = true;

    switch (r->step) {
    case STEP_ROOT_MANIFEST:
        if (is_there || (r->next == 2 && strcmp(r->dir, "/") == 0)) {
            /* The root's manifest, or that of a directory above it, is the first namespace
             * manifest. In the root itself it is the plugin's, too. */
            if (is_there) {
                if (sp_uri_add(&uri, sp_str_of(r->dir)))
                    r->plugin_root = sp_arena_copy(&r->arena, sp_buf_str(&uri));
                ok = r->plugin_root != NULL;
                if (ok && add_content(r, namespaces) && strcmp(r->dir, r->uri.path) == 0 &&
                    add_content(r, &r->manifest))
                    read_manifest(r);
            }
            r->step = STEP_MANIFESTS;
            r->next = 0;
        } else if (++r->next == 3) { /* none of the names: look in the directory above */
            const size_t n = parent_len(r->dir);

            r->dir[n == 0 ? 1 : n] = 0;
            r->next = 0;
        }
        break;
    case STEP_MANIFESTS:
        r->next++;
        if (is_there && ((namespaces->len != 0 && !sp_buf_add(namespaces, ",", 1)) ||
                         !add_content(r, namespaces)))
            namespaces->len = listed;
        break;
    case STEP_SERVERS:
        if (is_there)
            (void)add_content(r, &r->mcp);
        r->step = STEP_APPS;
        break;
    case STEP_APPS:
        if (is_there)
            (void)add_content(r, &r->apps);
        r->step = STEP_SKILLS;
        r->next = 0;
        break;
    case STEP_SKILLS:
        if (is_there && sp_buf_printf(b, "%s{\"instructions\":", before == 0 ? "" : ",") &&
            add_content(r, b)) {
            r->step = STEP_METADATA;
        } else {
            b->len = before;
            r->next++;
        }
        break;
    case STEP_METADATA: /* optional */
        ok = sp_buf_printf(b, ",\"metadata\":") &&
             ((is_there && add_content(r, b)) || sp_buf_printf(b, "null")) && sp_buf_add(b, "}", 1);
        r->step = STEP_SKILLS;
        r->next++;
        break;
    }
    if (ok)
        next_file(r);
    else
        fail_root(r, "scan", OUT_OF_MEMORY);
}

/* ---- inspect and walk ---- */

/* The entries are copied before they are read: the worker can still change the window. */
static void on_walked(struct sp_files_call *call, const struct sp_file_answer *a,
                      const struct sp_err *e)
{
    struct root *r = SP_CONTAINER(call, struct root, call);
    auto_buf struct sp_buf copy = {0};
    char why[REASON];

    if (a == NULL || a->err != 0 || a->refusal != SP_FILE_NOT_REFUSED) {
        fail_root(r, "scan", reason_of(a, e, why));
        return;
    }
    const int err = !sp_buf_add(&copy, a->window, a->data_len)
                        ? -ENOMEM
                        : collect_found(r, sp_buf_str(&copy), a->is_cut);
    if (err < 0) {
        fail_root(r, "scan", err == -EBADMSG ? ": " SP_FS_MALFORMED : OUT_OF_MEMORY);
        return;
    }
    r->is_walked = true;
    (void)snprintf(r->dir, sizeof r->dir, "%s", r->uri.path);
    next_file(r);
}

static void on_inspected(struct sp_files_call *call, const struct sp_file_answer *a,
                         const struct sp_err *e)
{
    struct root *r = SP_CONTAINER(call, struct root, call);
    auto_buf struct sp_buf text = {0};
    char why[REASON];

    if (a == NULL || a->err != 0) {
        fail_root(r, "inspect", reason_of(a, e, why));
    } else if (!a->stat.is_directory) {
        if (sp_buf_printf(&text, "capability root %s is not a directory", r->uri.text))
            (void)sp_json_add_str(&r->error, sp_buf_str(&text));
        root_ended(r);
    } else {
        ask_file(r, SP_FILE_WALK, r->uri.path, on_walked);
    }
}

static void begin_root(struct root *r)
{
    struct sp_err e = {0};
    char why[REASON];

    if (r->uri.is_foreign || r->uri.path == NULL || strlen(r->uri.path) > SP_FILE_MAX_PATH) {
        (void)sp_fail(&e, SP_E_FAILED, 0, "'%s' is invalid on 'linux'", r->uri.text);
        fail_root(r, "inspect", reason_of(NULL, &e, why));
        return;
    }
    for (size_t n = strlen(r->uri.path); n > 1 && r->uri.path[n - 1] == '/'; n--)
        r->uri.path[n - 1] = 0;
    ask_file(r, SP_FILE_STAT, r->uri.path, on_inspected);
}

/* Frees what the answer does not need. */
static void trim_root(struct root *r)
{
    free(TAKE_PTR(r->skills.items));
    free(TAKE_PTR(r->manifests.items));
    sp_arena_done(&r->arena);
    sp_buf_done(&r->text);
}

static void root_done(struct root *r)
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

/* A value or null, or the elements of a list, behind `key`, which has its punctuation. */
static bool add_part(struct sp_buf *b, const char *key, const struct sp_buf *part)
{
    return sp_buf_printf(b, "%s", key) &&
           (part->len == 0 && b->data[b->len - 1] == ':' ? sp_buf_printf(b, "null")
                                                         : sp_buf_add(b, part->data, part->len));
}

static bool add_root(struct sp_buf *b, const struct root *r)
{
    bool ok = add_part(b, "{\"id\":", &r->id) && sp_buf_printf(b, ",\"path\":") &&
              sp_json_add_str(b, sp_str_of(r->uri.text)) && sp_buf_printf(b, ",\"plugin\":");

    if (r->manifest.len == 0)
        ok = ok && sp_buf_printf(b, "null");
    else
        ok = ok && add_part(b, "{\"manifest\":", &r->manifest) &&
             add_part(b, ",\"mcpConfig\":", &r->mcp) && add_part(b, ",\"appsConfig\":", &r->apps) &&
             sp_buf_add(b, "}", 1);
    return ok && add_part(b, ",\"skills\":[", &r->skills_out) &&
           add_part(b, "],\"namespaceManifests\":[", &r->namespaces) &&
           add_part(b, "],\"warnings\":[", &r->warnings) &&
           add_part(b, "],\"error\":", &r->error) && sp_buf_add(b, "}", 1);
}

static void free_discovery(struct sp_task *t)
{
    struct discovery *d = SP_CONTAINER(t, struct discovery, task);

    for (uint32_t i = 0; i < d->count; i++)
        root_done(&d->roots[i]);
    free(d->roots);
    free(d);
}

static void answer(struct discovery *d)
{
    auto_buf struct sp_buf b = {0};
    bool ok = sp_buf_printf(&b, "{\"roots\":[");

    for (uint32_t i = 0; ok && i < d->count; i++)
        ok = (i == 0 || sp_buf_add(&b, ",", 1)) && add_root(&b, &d->roots[i]);
    if (ok && sp_buf_printf(&b, "]}"))
        sp_request_reply(d->request, sp_buf_str(&b));
    else
        sp_request_fail_memory(d->request, "make the answer");
}

/* ---- the roots of a request ---- */

static void begin_roots(struct discovery *d)
{
    d->is_beginning = true;
    while (d->begun < d->count && d->begun - d->ended < ROOTS_AT_ONCE)
        begin_root(&d->roots[d->begun++]);
    d->is_beginning = false;
    if (d->ended == d->count)
        answer(d);
}

/* Called from within begin_root for a root that ends at once; then begin_roots goes on itself. */
static void root_ended(struct root *r)
{
    struct discovery *d = r->all;

    trim_root(r);
    d->ended++;
    if (!d->is_beginning)
        begin_roots(d);
}

static int decode_discovery(struct sp_rpc_call *c, struct discovery *d, struct sp_err *e)
{
    const struct sp_params p = sp_rpc_call_params(c, e);
    uint32_t roots = SP_JSON_NONE;

    sp_params_array(&p, "roots", &roots);
    if (!sp_params_ok(&p))
        return sp_params_result(&p);
    /* Of a request with too many roots, one is read: its errors come before the limit's. */
    const uint32_t count = p.json->tokens[roots].children;
    const uint32_t kept = count > MAX_ROOTS ? 1 : count;
    d->roots = calloc(kept + 1, sizeof *d->roots);
    if (d->roots == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at capability roots");
    sp_params_each(&p, roots, t) {
        if (d->count == kept)
            break;
        const struct sp_params item = {p.json, t, e};
        struct root *r = &d->roots[d->count++];
        struct sp_str text = {0};

        r->all = d;
        if (sp_json_type(p.json, t) != SP_JSON_OBJECT)
            return sp_json_wrong_type(p.json, t, "struct CapabilityRootDiscoverRequest", e);
        sp_params_str(&item, "id", &text);
        if (sp_params_ok(&item) && !sp_json_add_str(&r->id, text))
            (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a root's id");
        sp_params_str(&item, "path", &text);
        if (sp_params_ok(&item))
            (void)sp_uri_read(text, &r->uri, e);
        sp_fs_read_policy(&item, &r->policy, &r->has_policy, &r->is_restricted);
    }
    if (sp_params_ok(&p) && sp_rpc_call_check(c, e) == 0 && count > MAX_ROOTS)
        (void)sp_fail(e, SP_E_STATE, 0, "capability root discovery accepts at most %d roots",
                      MAX_ROOTS);
    return sp_params_result(&p);
}

static int capability_roots_discover(struct sp_rpc_call *c, struct sp_err *e)
{
    struct discovery *d = calloc(1, sizeof *d);

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
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct root r = {0};

    sp_fs_read_path(&p, "cwd", &r.uri);
    sp_fs_read_policy(&p, &r.policy, &r.has_policy, &r.is_restricted);
    root_done(&r);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0)
        return sp_params_result(&p);
    return sp_rpc_call_reply(c, SP_STR("{\"plugins\":[],\"skills\":[],\"warnings\":[]}"));
}

static const struct sp_method methods[] = {
    {"capabilityRoots/discoverV1", "capability discovery", .fn = capability_roots_discover},
    {"capabilities/discoverV2", "capability discovery", .fn = capabilities_discover},
    {0},
};

const struct sp_family sp_discover_family = {.methods = methods};
