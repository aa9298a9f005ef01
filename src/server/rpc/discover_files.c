/* SPDX-License-Identifier: Apache-2.0 */
/* discover_files: asks for the files of a root, reads them, and words the warnings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "server/rpc/discover.h"
#include "server/rpc/fs.h"

#define FIRST_FOUND 16

const char *const sp_manifest_names[3] = {".codex-plugin/plugin.json", ".claude-plugin/plugin.json",
                                          ".cursor-plugin/plugin.json"};

/* ---- warnings and errors ---- */

/* Counts bytes of the answer. false: there is no more room. */
static bool charge_answer(struct sp_root *r, size_t bytes)
{
    struct sp_discovery *all = r->all;
    struct sp_err e = {0};

    if (bytes > SP_DISCOVER_ANSWER - all->bytes || sp_request_charge(all->request, bytes, &e) < 0)
        return false;
    all->bytes += bytes;
    return true;
}

void sp_root_say(struct sp_root *r, struct sp_str text)
{
    const size_t before = r->warnings.len;

    if (!charge_answer(r, text.n + 8) || (before != 0 && !sp_buf_add(&r->warnings, ",", 1)) ||
        !sp_json_add_str(&r->warnings, text))
        r->warnings.len = before;
}

/* A warning: `before`, the URI of the path, `after`. */
static void warn_path(struct sp_root *r, const char *before, const char *path, const char *after)
{
    auto_buf struct sp_buf text = {0};

    if (sp_buf_printf(&text, "%s", before) && sp_uri_add(&text, sp_str_of(path)) &&
        sp_buf_printf(&text, "%s", after))
        sp_root_say(r, sp_buf_str(&text));
}

/* ": WHY" from a failed answer or, without one, from *e. */
static void put_reason(const struct sp_file_answer *a, const struct sp_err *e, char *ret,
                       size_t size)
{
    char words[160];

    if (a == NULL)
        (void)sp_error_text(e, words, sizeof words);
    else if (a->err != 0)
        sp_fs_error_text(a->err, words, sizeof words);
    else
        (void)snprintf(words, sizeof words, "path is not a regular file");
    (void)snprintf(ret, size, ": %s", words);
}

void sp_root_fail(struct sp_root *r, const char *what, const struct sp_file_answer *a,
                  const struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};
    char why[192];

    put_reason(a, e, why, sizeof why);
    if (sp_buf_printf(&text, "failed to %s capability root %s%s", what, r->uri.text, why))
        (void)sp_json_add_str(&r->error, sp_buf_str(&text));
    sp_root_ended(r);
}

/* ---- file operations ---- */

void sp_root_ask(struct sp_root *r, enum sp_file_op op, const char *path,
                 void (*done)(struct sp_files_call *call, const struct sp_file_answer *a,
                              const struct sp_err *e))
{
    struct sp_conn *conn = r->all->request->conn;
    struct sp_err e = {0};
    const struct sp_files_job job = {
        .ask = {.op = op,
                .path = path,
                .follows = true,
                .hides_placeholders = !r->is_restricted,
                .fd = -1,
                .length = op == SP_FILE_READ ? SP_DISCOVER_FILE : 0,
                .walk = {.max_depth = SP_DISCOVER_DEPTH,
                         .max_directories = SP_DISCOVER_DIRECTORIES,
                         .max_entries = SP_DISCOVER_ENTRIES,
                         .follows_directories = true}},
        .policy = r->is_restricted ? &r->policy : NULL,
        .session = conn->session->number,
    };

    r->call.done = done;
    if (sp_files_ask(conn->rpc->server->files, &conn->files, &job, &r->call, &e) < 0)
        sp_root_fail(r, op == SP_FILE_STAT && !r->is_walked ? "inspect" : "scan", NULL, &e);
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
static void keep_text(struct sp_root *r, const struct sp_file_answer *a)
{
    char why[96];

    if (a->data_len > SP_DISCOVER_FILE || a->data_len > SP_DISCOVER_BUNDLE - r->bundle) {
        warn_path(r, "capability file ", r->path, " exceeded its read limit");
        return;
    }
    if (sp_buf_room(&r->text, a->data_len + 1) == NULL) {
        warn_path(r, "failed to read capability file ", r->path, ": out of memory");
        return;
    }
    (void)sp_buf_add(&r->text, a->window, a->data_len); /* copied first: the cell can change it */
    const struct sp_str s = {r->text.data, r->text.len};
    const size_t good = sp_utf8_valid_prefix(s);
    if (good != s.n) {
        put_bad_utf8(s, good, why, sizeof why);
        warn_path(r, "capability file ", r->path, why);
        sp_buf_done(&r->text);
        return;
    }
    r->bundle += s.n;
}

static void on_text(struct sp_files_call *call, const struct sp_file_answer *a,
                    const struct sp_err *e)
{
    struct sp_root *r = SP_CONTAINER(call, struct sp_root, call);
    char why[192];

    if (a != NULL && a->refusal == SP_FILE_TOO_LARGE) {
        warn_path(r, "capability file ", r->path, " exceeded its read limit");
    } else if (a == NULL || a->err != 0 || a->refusal != SP_FILE_NOT_REFUSED) {
        put_reason(a, e, why, sizeof why);
        warn_path(r, "failed to read capability file ", r->path, why);
    } else {
        keep_text(r, a);
    }
    r->then(r);
}

static void on_inspected_file(struct sp_files_call *call, const struct sp_file_answer *a,
                              const struct sp_err *e)
{
    struct sp_root *r = SP_CONTAINER(call, struct sp_root, call);
    char why[192];

    if (a == NULL || (a->err != 0 && a->err != ENOENT)) {
        put_reason(a, e, why, sizeof why);
        warn_path(r, "failed to inspect capability file ", r->path, why);
    } else if (a->err == 0 && a->stat.is_file && a->stat.size > SP_DISCOVER_FILE) {
        (void)snprintf(why, sizeof why, " exceeds the %u-byte limit", SP_DISCOVER_FILE);
        warn_path(r, "capability file ", r->path, why);
    } else if (a->err == 0 && a->stat.is_file && a->stat.size > SP_DISCOVER_BUNDLE - r->bundle) {
        (void)snprintf(why, sizeof why, "capability root bundle exceeds the %u-byte limit",
                       SP_DISCOVER_BUNDLE);
        sp_root_say(r, sp_str_of(why));
    } else if (a->err == 0 && a->stat.is_file) {
        sp_root_ask(r, SP_FILE_READ, r->path, on_text);
        return;
    }
    r->then(r);
}

void sp_root_read(struct sp_root *r, void (*then)(struct sp_root *r))
{
    sp_buf_done(&r->text);
    r->then = then;
    sp_root_ask(r, SP_FILE_STAT, r->path, on_inspected_file);
}

bool sp_root_add_file(struct sp_root *r, struct sp_buf *to)
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

static bool add_found(struct sp_root *r, struct sp_found_list *to, struct sp_str path,
                      struct sp_str key, uint32_t rank)
{
    auto_buf struct sp_buf uri = {0};

    if (to->count == to->cap) {
        const uint32_t cap = to->cap == 0 ? FIRST_FOUND : to->cap * 2;
        struct sp_found *items = realloc(to->items, cap * sizeof *items);

        if (items == NULL)
            return false;
        to->items = items;
        to->cap = cap;
    }
    if (!sp_uri_add(&uri, key.n == 0 ? SP_STR("/") : key))
        return false;
    const struct sp_found found = {
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
static bool add_file(struct sp_root *r, struct sp_str path)
{
    size_t dir = 0;

    if (path.n > SP_FILE_MAX_PATH || sp_str_has_nul(path))
        return true; /* no file operation accepts such a path */
    if (ends_in(path, "SKILL.md", &dir))
        return add_found(r, &r->skills, path, path, 0);
    for (uint32_t i = 0; i < 3; i++)
        if (ends_in(path, sp_manifest_names[i], &dir))
            return add_found(r, &r->manifests, path, (struct sp_str){path.p, dir}, i);
    return true;
}

static void warn_scan(struct sp_root *r, struct sp_str path, int err)
{
    const char *name = sp_arena_copy(&r->arena, path);
    char words[128];
    char after[136];

    sp_fs_error_text(err, words, sizeof words);
    (void)snprintf(after, sizeof after, ": %s", words);
    if (name != NULL)
        warn_path(r, "failed to scan capability path ", name, after);
}

static int compare_found(const void *left, const void *right)
{
    const struct sp_found *a = left;
    const struct sp_found *b = right;
    const int by_key = strcmp(a->key, b->key);

    return by_key != 0 ? by_key : (a->rank > b->rank) - (a->rank < b->rank);
}

static void sort_found(struct sp_found_list *list)
{
    if (list->count > 1)
        qsort(list->items, list->count, sizeof *list->items, compare_found);
}

bool sp_root_collect(struct sp_root *r, struct sp_str entries, bool is_cut)
{
    struct sp_file_entry entry;
    struct sp_str path;
    bool ok = true;

    while (ok && sp_file_next_entry(&entries, &entry, &path)) {
        if (entry.kind == SP_FILE_ENTRY_FILE)
            ok = add_file(r, path);
        else if (entry.kind == SP_FILE_ENTRY_ERROR)
            warn_scan(r, path, entry.err);
    }
    if (is_cut) {
        auto_buf struct sp_buf text = {0};

        if (sp_buf_printf(&text, "capability scan reached its traversal limit (root: %s)",
                          r->uri.text))
            sp_root_say(r, sp_buf_str(&text));
    }
    sort_found(&r->skills);
    sort_found(&r->manifests);
    return ok;
}

/* ---- files that the manifest names ---- */

/* "a//b/./c" as a path below the root; NULL: not a relative path. */
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
        warn_path(r, before, r->path, why);
    }
    return path;
}

void sp_root_read_manifest(struct sp_root *r)
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
