/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods about paths. Each decodes everything, then asks; the answer comes as an event.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/base64.h"
#include "server/rpc/fs.h"
#include "server/rpc/methods.h"
#include "server/rpc/text.h"

static int begin_path(struct sp_rpc_call *c, struct sp_fs_ask *a, enum sp_file_op op,
                      struct sp_err *e)
{
    a->job.ask.op = op;
    a->job.ask.follows = true;
    const int r = sp_rpc_call_params(c, e);
    return r < 0 ? r : sp_fs_need_path(c, "path", &a->path, e);
}

/* ---- content ---- */

static void tell_content(struct sp_request *r, const struct sp_file_answer *a)
{
    if (sp_fs_failed(r, a))
        return;
    if (sp_fs_send_content(r, a)) {
        sp_request_end(r, true);
        return;
    }
    char *const begin = sp_reply_begin(r->conn, r->id, SP_BASE64_LEN(a->data_len) + 32);
    if (begin != NULL) {
        char *o = sp_put_literal(begin, "{\"dataBase64\":\"");

        o = sp_base64_encode(o, a->window, a->data_len);
        sp_reply_end(r->conn, r->id, begin, sp_put_literal(o, "\"}"));
    }
    sp_request_end(r, true);
}

int sp_m_fs_read_file(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    int r = begin_path(c, &a, SP_FILE_READ, e);

    if (r == 0)
        r = sp_fs_opt_bool(c, "followSymlinks", &a.job.ask.follows, e);
    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    return r < 0 ? r : sp_fs_begin(c, &a, tell_content, e);
}

/* Bad base64 is a wrong state here, not a wrong parameter: as the reference has it. It is read
 * where it goes, and read again (in place: the message is ours) if that failed for any such reason.
 */
static int begin_write(struct sp_rpc_call *c, struct sp_fs_ask *a, struct sp_err *e)
{
    const struct sp_str text = a->job.base64;
    struct sp_err why = {0};
    size_t n = 0;
    const int r = sp_fs_begin(c, a, sp_fs_answer_nothing, e);

    if (r == -(int)SP_E_INVALID && sp_base64_decode(text, (char *)(uintptr_t)text.p, &n, &why) < 0)
        return sp_fail(e, SP_E_STATE, 0, "fs/writeFile requires valid base64 dataBase64: %s",
                       why.msg);
    return r;
}

int sp_m_fs_write_file(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    int r = begin_path(c, &a, SP_FILE_WRITE, e);

    if (r == 0)
        r = sp_json_need_str(c->json, c->params, "dataBase64", &a.job.base64, e);
    if (r == 0)
        r = sp_fs_opt_bool(c, "followSymlinks", &a.job.ask.follows, e);
    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    return r < 0 ? r : begin_write(c, &a, e);
}

/* ---- names ---- */

int sp_m_fs_create_directory(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    int r = begin_path(c, &a, SP_FILE_MAKE, e);

    a.job.ask.is_recursive = true;
    if (r == 0)
        r = sp_fs_opt_bool(c, "recursive", &a.job.ask.is_recursive, e);
    if (r == 0)
        r = sp_fs_opt_bool(c, "followSymlinks", &a.job.ask.follows, e);
    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    return r < 0 ? r : sp_fs_begin(c, &a, sp_fs_answer_nothing, e);
}

int sp_m_fs_remove(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    int r = begin_path(c, &a, SP_FILE_REMOVE, e);

    a.job.ask.is_recursive = a.job.ask.is_forced = true;
    if (r == 0)
        r = sp_fs_opt_bool(c, "recursive", &a.job.ask.is_recursive, e);
    if (r == 0)
        r = sp_fs_opt_bool(c, "force", &a.job.ask.is_forced, e);
    if (r == 0)
        r = sp_fs_opt_bool(c, "followSymlinks", &a.job.ask.follows, e);
    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    return r < 0 ? r : sp_fs_begin(c, &a, sp_fs_answer_nothing, e);
}

int sp_m_fs_copy(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    int r = sp_rpc_call_params(c, e);

    a.job.ask.op = SP_FILE_COPY;
    a.job.ask.follows = true;
    if (r == 0)
        r = sp_fs_need_path(c, "sourcePath", &a.path, e);
    if (r == 0)
        r = sp_fs_need_path(c, "destinationPath", &a.other, e);
    if (r == 0)
        r = sp_json_need_bool(c->json, c->params, "recursive", &a.job.ask.is_recursive, e);
    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    return r < 0 ? r : sp_fs_begin(c, &a, sp_fs_answer_nothing, e);
}

/* ---- looking ---- */

static char *put_flag(char *o, const char *key, bool value)
{
    o = sp_put(o, key, strlen(key));
    return sp_put_bool(o, value);
}

static void tell_stat(struct sp_request *r, const struct sp_file_answer *a)
{
    char text[256];

    if (sp_fs_failed(r, a))
        return;
    char *o = put_flag(text, "{\"isDirectory\":", a->stat.is_directory);
    o = put_flag(o, ",\"isFile\":", a->stat.is_file);
    o = put_flag(o, ",\"isSymlink\":", a->stat.is_link);
    o = sp_put_u64(sp_put_literal(o, ",\"size\":"), a->stat.size);
    o = sp_put_i64(sp_put_literal(o, ",\"createdAtMs\":"), a->stat.created_ms);
    o = sp_put_i64(sp_put_literal(o, ",\"modifiedAtMs\":"), a->stat.modified_ms);
    *o++ = '}';
    sp_request_reply(r, (struct sp_str){text, (size_t)(o - text)});
}

int sp_m_fs_get_metadata(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    int r = begin_path(c, &a, SP_FILE_STAT, e);

    if (r == 0)
        r = sp_fs_opt_bool(c, "followSymlinks", &a.job.ask.follows, e);
    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    return r < 0 ? r : sp_fs_begin(c, &a, tell_stat, e);
}

static void fail_without_memory(struct sp_request *r)
{
    struct sp_err e;

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "answer");
    sp_request_fail(r, &e);
}

static bool add_uri(struct sp_buf *b, struct sp_str path)
{
    return sp_buf_add(b, "\"", 1) && sp_uri_add(b, path) && sp_buf_add(b, "\"", 1);
}

static void tell_path(struct sp_request *r, const struct sp_file_answer *a)
{
    auto_buf struct sp_buf copy = {0};
    auto_buf struct sp_buf b = {0};

    if (sp_fs_failed(r, a))
        return;
    if (a->data_len <= SP_FILE_MAX_PATH && sp_buf_add(&copy, a->window, a->data_len) &&
        sp_buf_printf(&b, "{\"path\":") && add_uri(&b, (struct sp_str){copy.data, copy.len}) &&
        sp_buf_add(&b, "}", 1))
        sp_request_reply(r, (struct sp_str){b.data, b.len});
    else
        fail_without_memory(r);
}

int sp_m_fs_canonicalize(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    int r = begin_path(c, &a, SP_FILE_CANONICAL, e);

    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    return r < 0 ? r : sp_fs_begin(c, &a, tell_path, e);
}

/* ---- lists: entries of another process, copied before they are read ---- */

static bool add_listed(struct sp_buf *b, const struct sp_file_entry *entry, struct sp_str name)
{
    return sp_buf_printf(b, "%s{\"fileName\":", b->data[b->len - 1] == '[' ? "" : ",") &&
           sp_json_add_str(b, name) &&
           sp_buf_printf(b, ",\"isDirectory\":%s,\"isFile\":%s}",
                         entry->kind == SP_FILE_ENTRY_DIRECTORY ? "true" : "false",
                         entry->kind == SP_FILE_ENTRY_FILE ? "true" : "false");
}

static bool add_list(struct sp_buf *b, struct sp_str in)
{
    struct sp_file_entry entry;
    struct sp_str name;
    bool ok = sp_buf_printf(b, "{\"entries\":[");

    while (ok && sp_file_next_entry(&in, &entry, &name))
        ok = add_listed(b, &entry, name);
    return ok && sp_buf_printf(b, "]}");
}

static bool add_walked(struct sp_buf *b, const struct sp_file_entry *entry, struct sp_str path)
{
    char text[128];

    if (!sp_buf_printf(b, "%s{\"path\":", b->data[b->len - 1] == '[' ? "" : ",") ||
        !add_uri(b, path))
        return false;
    if (entry->kind != SP_FILE_ENTRY_ERROR)
        return sp_buf_printf(b, ",\"kind\":\"%s\"}",
                             entry->kind == SP_FILE_ENTRY_FILE ? "file" : "directory");
    sp_fs_error_text(entry->err, text, sizeof text);
    return sp_buf_printf(b, ",\"message\":") && sp_json_add_str(b, sp_str_of(text)) &&
           sp_buf_add(b, "}", 1);
}

static bool add_walk(struct sp_buf *b, struct sp_str in, bool is_cut)
{
    bool ok = true;

    for (int is_error = 0; is_error < 2; is_error++) {
        struct sp_str pass = in;
        struct sp_file_entry entry;
        struct sp_str path;

        ok = ok && sp_buf_printf(b, is_error != 0 ? "],\"errors\":[" : "{\"entries\":[");
        while (ok && sp_file_next_entry(&pass, &entry, &path))
            if ((entry.kind == SP_FILE_ENTRY_ERROR) == (is_error != 0))
                ok = add_walked(b, &entry, path);
    }
    return ok && sp_buf_printf(b, "],\"truncated\":%s}", is_cut ? "true" : "false");
}

static void tell_entries(struct sp_request *r, const struct sp_file_answer *a, bool is_walk)
{
    auto_buf struct sp_buf copy = {0};
    auto_buf struct sp_buf b = {0};

    if (sp_fs_failed(r, a))
        return;
    const bool is_copied = sp_buf_add(&copy, a->window, a->data_len);
    const struct sp_str in = {copy.data, copy.len};
    if (is_copied && (is_walk ? add_walk(&b, in, a->is_cut) : add_list(&b, in)))
        sp_request_reply(r, (struct sp_str){b.data, b.len});
    else
        fail_without_memory(r);
}

static void tell_list(struct sp_request *r, const struct sp_file_answer *a)
{
    tell_entries(r, a, false);
}

static void tell_walk(struct sp_request *r, const struct sp_file_answer *a)
{
    tell_entries(r, a, true);
}

int sp_m_fs_read_directory(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    int r = begin_path(c, &a, SP_FILE_LIST, e);

    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    return r < 0 ? r : sp_fs_begin(c, &a, tell_list, e);
}

static int read_limit(struct sp_rpc_call *c, uint32_t options, const char *key, uint32_t *ret,
                      struct sp_err *e)
{
    uint64_t n = 0;
    const int r = sp_json_need_u64(c->json, options, key, UINT64_MAX, &n, e);

    *ret = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n; /* too much either way */
    return r;
}

int sp_m_fs_walk(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    struct sp_file_walk *walk = &a.job.ask.walk;
    uint32_t o = SP_JSON_NONE;
    int r = begin_path(c, &a, SP_FILE_WALK, e);

    if (r == 0)
        r = sp_json_need_object(c->json, c->params, "options", &o, e);
    if (r == 0)
        r = read_limit(c, o, "maxDepth", &walk->max_depth, e);
    if (r == 0)
        r = read_limit(c, o, "maxDirectories", &walk->max_directories, e);
    if (r == 0)
        r = read_limit(c, o, "maxEntries", &walk->max_entries, e);
    if (r == 0)
        r = sp_json_need_bool(c->json, o, "followDirectorySymlinks", &walk->follows_directories, e);
    if (r == 0)
        r = sp_json_def_bool(c->json, o, "pruneHiddenDirectories", &walk->prunes_hidden, e);
    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    return r < 0 ? r : sp_fs_begin(c, &a, tell_walk, e);
}
