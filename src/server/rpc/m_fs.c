/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fs/ methods about paths. Each decodes its params, then asks core/files.h, which does the
 * operation in another process; the answer comes as an event. fs/open and what follows it is in
 * m_handle.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/auto.h"
#include "base/base64.h"
#include "sandbox/policy_json.h"
#include "sandbox/resolve.h"
#include "server/rpc/conn.h"
#include "server/rpc/fs.h"
#include "server/rpc/text.h"

/* ---- errors ---- */

/* Codex is built with musl, which has other texts than glibc for these. */
static const char *musl_text(int err)
{
    switch (err) {
    case ELOOP:
        return "Symbolic link loop";
    case EXDEV:
        return "Cross-device link";
    case ENAMETOOLONG:
        return "Filename too long";
    case EBUSY:
        return "Resource busy";
    case EDQUOT:
        return "Quota exceeded";
    case EIO:
        return "I/O error";
    case EMFILE:
        return "No file descriptors available";
    default:
        return strerrordesc_np(err);
    }
}

void sp_fs_error_text(int err, char *ret, size_t size)
{
    const char *text = musl_text(err);

    (void)snprintf(ret, size, "%s (os error %d)", text == NULL ? "Unknown error" : text, err);
}

/* -32004, -32600 and -32603 on the wire. */
static enum sp_code code_of_errno(int err)
{
    switch (err) {
    case ENOENT:
        return SP_E_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EINVAL:
        return SP_E_STATE; /* -32600 */
    default:
        return SP_E_FAILED;
    }
}

/* Why the cell refused the operation without an errno. */
static void set_refusal(const struct sp_request *r, const struct sp_file_answer *a,
                        struct sp_err *e)
{
    static const struct {
        enum sp_code code;
        const char *text;
    } refusals[SP_FILE_REFUSAL_MAX] = {
        [SP_FILE_HAS_LINK] = {SP_E_STATE, "path contains a symbolic link"},
        [SP_FILE_TREE_WITHOUT_LINKS] = {SP_E_FAILED, "recursive no-follow removal is unsupported"},
        [SP_FILE_COPY_TREE] = {SP_E_STATE,
                               "fs/copy requires recursive: true when sourcePath is a directory"},
        [SP_FILE_COPY_INTO_ITSELF] =
            {SP_E_STATE, "fs/copy cannot copy a directory to itself or one of its descendants"},
        [SP_FILE_COPY_ONTO_ITSELF] = {SP_E_STATE, "fs/copy cannot copy a file to itself"},
        [SP_FILE_COPY_KIND] = {SP_E_STATE,
                               "fs/copy only supports regular files, directories, and symlinks"},
        [SP_FILE_WALK_LIMITS_ZERO] = {SP_E_STATE,
                                      "filesystem walk limits must be greater than zero"},
        [SP_FILE_WALK_LIMITS_HIGH] = {SP_E_STATE,
                                      "filesystem walk limits exceed maximums: depth=64, "
                                      "directories=10000, entries=50000"},
    };

    if (a->refusal == SP_FILE_NOT_A_FILE && r->file.follows)
        (void)sp_fail(e, SP_E_STATE, 0, "path `" SP_STR_FMT "` is not a file",
                      SP_STR_ARG(r->file.name));
    else if (a->refusal == SP_FILE_NOT_A_FILE)
        (void)sp_fail(e, SP_E_STATE, 0, "path is not a regular file");
    else if (a->refusal == SP_FILE_TOO_LARGE)
        (void)sp_fail(e, SP_E_STATE, 0, "file is too large to read: limit is %u bytes",
                      SP_FILE_MAX_READ);
    else if (a->refusal == SP_FILE_TOO_MANY)
        (void)sp_fail(e, SP_E_FAILED, 0, "fs/readDirectory returned %llu entries; limit is %d",
                      (unsigned long long)a->number, SP_FILE_MAX_ENTRIES);
    else if (a->refusal < SP_FILE_REFUSAL_MAX && refusals[a->refusal].text != NULL)
        (void)sp_fail(e, refusals[a->refusal].code, 0, "%s", refusals[a->refusal].text);
    else
        (void)sp_fail(e, SP_E_FAILED, 0, "the file operation was refused");
}

/* Frees the request if it was answered. */
bool sp_fs_failed(struct sp_request *r, const struct sp_file_answer *a)
{
    struct sp_err e = {0};
    char text[128];

    if (a->err == 0 && a->refusal == SP_FILE_NOT_REFUSED)
        return false;
    if (a->err != 0) {
        sp_fs_error_text(a->err, text, sizeof text);
        (void)sp_fail(&e, code_of_errno(a->err), 0, "%s", text);
    } else {
        set_refusal(r, a, &e);
    }
    sp_request_fail(r, &e);
    return true;
}

void sp_fs_answer_nothing(struct sp_request *r, const struct sp_file_answer *a)
{
    if (!sp_fs_failed(r, a))
        sp_request_reply(r, SP_STR("{}"));
}

/* ---- params ---- */

void sp_fs_ask_done(struct sp_fs_ask *a)
{
    sp_uri_done(&a->path);
    sp_uri_done(&a->other);
    if (a->has_policy)
        sp_policy_done(&a->policy);
}

void sp_fs_read_path(const struct sp_params *p, const char *key, struct sp_uri *ret)
{
    struct sp_str text = {0};

    sp_params_str(p, key, &text);
    if (!sp_params_ok(p) || sp_uri_read(text, ret, p->err) < 0 || ret->path == NULL)
        return;
    /* As Codex: "file/" is the file, and "link/" the link. */
    for (size_t n = strlen(ret->path); n > 1 && ret->path[n - 1] == '/'; n--)
        ret->path[n - 1] = 0;
}

void sp_fs_read_policy(const struct sp_params *p, struct sp_policy *ret, bool *ret_has,
                       bool *ret_restricts)
{
    struct sp_resolved resolved = {0};
    uint32_t sandbox = SP_JSON_NONE;

    sp_params_opt_object(p, "sandbox", &sandbox);
    if (sandbox == SP_JSON_NONE ||
        sp_policy_read(p->json, sandbox, NULL, getenv("TMPDIR"), ret, p->err) < 0)
        return;
    *ret_has = true;
    ret->profile.has_network = false; /* a file operation uses none */
    if (sp_resolve(ret, &resolved, p->err) == 0)
        *ret_restricts = !resolved.is_open && !resolved.is_full_write;
    sp_resolved_done(&resolved);
}

void sp_fs_read_sandbox(const struct sp_params *p, struct sp_fs_ask *a)
{
    bool restricts = false;

    sp_fs_read_policy(p, &a->policy, &a->has_policy, &restricts);
    a->job.policy = restricts ? &a->policy : NULL;
}

/* ---- asking ---- */

static int check_native(const struct sp_uri *u, struct sp_err *e)
{
    if (u->text == NULL || (!u->is_foreign && u->path != NULL))
        return 0;
    return sp_fail(e, SP_E_STATE, 0, "'%s' is invalid on 'linux'", u->text);
}

/* Without an answer *e says why: the process for file operations ended, or the policy cannot be
 * enforced. SP_E_NOT_FOUND: the handle of a block was never opened. */
static void on_file_done(struct sp_files_call *call, const struct sp_file_answer *a,
                         const struct sp_err *e)
{
    struct sp_request *r = SP_CONTAINER(call, struct sp_request, file.call);
    struct sp_conn *conn = r->conn;

    r->is_file = false;
    if (a != NULL)
        r->file.done(r, a);
    else if (e->code == SP_E_NOT_FOUND && r->handle != NULL)
        sp_fs_fail_unknown(r);
    else
        sp_request_fail(r, e);
    /* Answers may be large: begin no further operation until the client has read these. */
    conn->files.is_held = sp_link_is_full(conn->link);
}

int sp_fs_begin(struct sp_rpc_call *c, struct sp_fs_ask *a,
                void (*done)(struct sp_request *r, const struct sp_file_answer *a),
                struct sp_err *e)
{
    if (e->code != SP_E_NONE || sp_rpc_call_check(c, e) < 0 || check_native(&a->path, e) < 0 ||
        check_native(&a->other, e) < 0)
        return -(int)e->code;
    /* A gate judges commands. A client that could write files would change the rules, or a program
     * that the rules allow; the sandbox of the request is the client's own choice. */
    if (c->conn->rpc->gate != NULL && sp_file_changes(a->job.ask.op, a->job.ask.is_replace))
        return sp_fail(e, SP_E_STATE, 0,
                       "this server judges what is done (--approve): %s is not offered, let a "
                       "command do it",
                       c->method->name);
    a->job.session = c->conn->session->number;
    if (a->path.path != NULL)
        a->job.ask.path = a->path.path;
    a->job.ask.other = a->other.path;
    a->job.ask.hides_placeholders = a->job.policy == NULL;
    const struct sp_str name = a->path.path == NULL ? SP_STR("") : sp_str_of(a->path.path);
    struct sp_request *req = sp_rpc_call_park(c, name.n, e);
    if (req == NULL)
        return -(int)e->code;
    memcpy(sp_request_extra(req), name.p, name.n);
    req->file.name = (struct sp_str){sp_request_extra(req), name.n};
    req->file.follows = a->job.ask.follows;
    req->file.done = done;
    req->file.call.done = on_file_done;
    if (sp_files_ask(c->conn->rpc->server->files, &c->conn->files, &a->job, &req->file.call, e) <
        0) {
        sp_request_drop(req);
        return -(int)e->code;
    }
    req->is_file = true;
    req->handle = a->handle;
    return 0;
}

/* The params of all of these begin with a path. */
static struct sp_params begin_path(struct sp_rpc_call *c, struct sp_fs_ask *a, enum sp_file_op op,
                                   struct sp_err *e)
{
    const struct sp_params p = sp_rpc_call_params(c, e);

    a->job.ask.op = op;
    a->job.ask.follows = true;
    sp_fs_read_path(&p, "path", &a->path);
    return p;
}

/* ---- fs/readFile ---- */

/* A large file as a reply. Its base64 is made while it is sent, from the mapping that the file came
 * in, so that it is never in memory as a whole. */
static const char head_begin[] = "{\"id\":";
static const char head_end[] = ",\"result\":{\"dataBase64\":\"";
static const char tail[] = "\"}}";

struct content {
    struct sp_link_source source;
    char *bytes; /* a mapping */
    size_t len, at;
    size_t head_len; /* 0: sent */
    char head[];
};

/* Encodes whole triples, so that only the end is padded. */
static size_t write_content(struct sp_link_source *s, char *out, size_t max)
{
    struct content *c = SP_CONTAINER(s, struct content, source);
    char *o = sp_put(out, c->head, c->head_len);
    size_t n = (max - c->head_len) / 4 * 3;

    if (n > c->len - c->at)
        n = c->len - c->at;
    o = sp_base64_encode(o, c->bytes + c->at, n);
    c->at += n;
    c->head_len = 0;
    if (c->at == c->len && max - (size_t)(o - out) >= sizeof tail - 1)
        o = sp_put_literal(o, tail);
    return (size_t)(o - out);
}

static void free_content(struct sp_link_source *s)
{
    struct content *c = SP_CONTAINER(s, struct content, source);

    (void)munmap(c->bytes, c->len);
    free(c);
}

static bool send_content(struct sp_request *r, const struct sp_file_answer *a)
{
    const size_t head = sizeof head_begin - 1 + r->id.n + sizeof head_end - 1;

    /* The head must fit the first fragment; the client chooses the length of the id. */
    if (a->is_kept == NULL || head > SP_LINK_FRAGMENT / 2)
        return false;
    struct content *c = malloc(sizeof *c + head);
    if (c == NULL)
        return false;
    *c = (struct content){
        .source = {.write = write_content,
                   .done = free_content,
                   .left = head + SP_BASE64_LEN((size_t)a->data_len) + sizeof tail - 1},
        .bytes = a->window,
        .len = (size_t)a->data_len,
        .head_len = head,
    };
    char *o = sp_put_str(sp_put_literal(c->head, head_begin), r->id);
    (void)sp_put_literal(o, head_end);
    *a->is_kept = true;
    sp_link_send(r->conn->link, &c->source);
    return true;
}

static void tell_content(struct sp_request *r, const struct sp_file_answer *a)
{
    if (sp_fs_failed(r, a))
        return;
    if (send_content(r, a)) {
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

static int fs_read_file(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    const struct sp_params p = begin_path(c, &a, SP_FILE_READ, e);

    sp_params_opt_bool(&p, "followSymlinks", &a.job.ask.follows);
    sp_fs_read_sandbox(&p, &a);
    return sp_fs_begin(c, &a, tell_content, e);
}

/* ---- fs/writeFile ---- */

static int fs_write_file(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    const struct sp_params p = begin_path(c, &a, SP_FILE_WRITE, e);
    struct sp_err why = {0};
    size_t n = 0;

    sp_params_str(&p, "dataBase64", &a.job.base64);
    sp_params_opt_bool(&p, "followSymlinks", &a.job.ask.follows);
    sp_fs_read_sandbox(&p, &a);
    if (!sp_params_ok(&p))
        return sp_params_result(&p);
    const int r = sp_fs_begin(c, &a, sp_fs_answer_nothing, e);
    /* core/files decodes straight into the memory of the operation and refuses bad base64 as a
     * wrong parameter. Codex calls it a wrong state, with a text that a second decoding finds (in
     * place: the message is ours to write in). */
    if (r == -(int)SP_E_INVALID &&
        sp_base64_decode(a.job.base64, (char *)(uintptr_t)a.job.base64.p, &n, &why) < 0)
        return sp_fail(e, SP_E_STATE, 0, "fs/writeFile requires valid base64 dataBase64: %s",
                       why.msg);
    return r;
}

/* ---- createDirectory, remove, copy ---- */

static int fs_create_directory(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    const struct sp_params p = begin_path(c, &a, SP_FILE_MAKE, e);

    a.job.ask.is_recursive = true;
    sp_params_opt_bool(&p, "recursive", &a.job.ask.is_recursive);
    sp_params_opt_bool(&p, "followSymlinks", &a.job.ask.follows);
    sp_fs_read_sandbox(&p, &a);
    return sp_fs_begin(c, &a, sp_fs_answer_nothing, e);
}

static int fs_remove(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    const struct sp_params p = begin_path(c, &a, SP_FILE_REMOVE, e);

    a.job.ask.is_recursive = a.job.ask.is_forced = true;
    sp_params_opt_bool(&p, "recursive", &a.job.ask.is_recursive);
    sp_params_opt_bool(&p, "force", &a.job.ask.is_forced);
    sp_params_opt_bool(&p, "followSymlinks", &a.job.ask.follows);
    sp_fs_read_sandbox(&p, &a);
    return sp_fs_begin(c, &a, sp_fs_answer_nothing, e);
}

static int fs_copy(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    const struct sp_params p = sp_rpc_call_params(c, e);

    a.job.ask.op = SP_FILE_COPY;
    a.job.ask.follows = true;
    sp_fs_read_path(&p, "sourcePath", &a.path);
    sp_fs_read_path(&p, "destinationPath", &a.other);
    sp_params_bool(&p, "recursive", &a.job.ask.is_recursive);
    sp_fs_read_sandbox(&p, &a);
    return sp_fs_begin(c, &a, sp_fs_answer_nothing, e);
}

/* ---- getMetadata, canonicalize ---- */

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

static int fs_get_metadata(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    const struct sp_params p = begin_path(c, &a, SP_FILE_STAT, e);

    sp_params_opt_bool(&p, "followSymlinks", &a.job.ask.follows);
    sp_fs_read_sandbox(&p, &a);
    return sp_fs_begin(c, &a, tell_stat, e);
}

bool sp_fs_add_uri(struct sp_buf *b, struct sp_str path)
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
        sp_buf_printf(&b, "{\"path\":") && sp_fs_add_uri(&b, sp_buf_str(&copy)) &&
        sp_buf_add(&b, "}", 1))
        sp_request_reply(r, sp_buf_str(&b));
    else
        sp_request_fail_memory(r, "answer");
}

static int fs_canonicalize(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    const struct sp_params p = begin_path(c, &a, SP_FILE_CANONICAL, e);

    sp_fs_read_sandbox(&p, &a);
    return sp_fs_begin(c, &a, tell_path, e);
}

/* ---- readDirectory, walk ---- */

static bool add_listed(struct sp_buf *b, const struct sp_file_entry *entry, struct sp_str name)
{
    return sp_buf_printf(b, "%s{\"fileName\":", b->data[b->len - 1] == '[' ? "" : ",") &&
           sp_json_add_str(b, name) &&
           sp_buf_printf(b, ",\"isDirectory\":%s,\"isFile\":%s}",
                         entry->kind == SP_FILE_ENTRY_DIRECTORY ? "true" : "false",
                         entry->kind == SP_FILE_ENTRY_FILE ? "true" : "false");
}

/* The order is the directory's. */
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
        !sp_fs_add_uri(b, path))
        return false;
    if (entry->kind != SP_FILE_ENTRY_ERROR)
        return sp_buf_printf(b, ",\"kind\":\"%s\"}",
                             entry->kind == SP_FILE_ENTRY_FILE ? "file" : "directory");
    sp_fs_error_text(entry->err, text, sizeof text);
    return sp_buf_printf(b, ",\"message\":") && sp_json_add_str(b, sp_str_of(text)) &&
           sp_buf_add(b, "}", 1);
}

/* Entries and errors come mixed; the answer has them in two lists, so the data is read twice. */
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
    /* The window is memory that the cell can still change: copy before reading. */
    const bool is_copied = sp_buf_add(&copy, a->window, a->data_len);
    const struct sp_str in = {copy.data, copy.len};
    if (is_copied && (is_walk ? add_walk(&b, in, a->is_cut) : add_list(&b, in)))
        sp_request_reply(r, sp_buf_str(&b));
    else
        sp_request_fail_memory(r, "answer");
}

static void tell_list(struct sp_request *r, const struct sp_file_answer *a)
{
    tell_entries(r, a, false);
}

static void tell_walk(struct sp_request *r, const struct sp_file_answer *a)
{
    tell_entries(r, a, true);
}

static int fs_read_directory(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    const struct sp_params p = begin_path(c, &a, SP_FILE_LIST, e);

    sp_fs_read_sandbox(&p, &a);
    return sp_fs_begin(c, &a, tell_list, e);
}

/* Above 32 bits the limit is out of range anyway: the cell refuses UINT32_MAX. */
static void read_limit(const struct sp_params *options, const char *key, uint32_t *ret)
{
    uint64_t n = 0;

    sp_params_u64(options, key, UINT64_MAX, &n);
    *ret = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static int fs_walk(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    struct sp_file_walk *walk = &a.job.ask.walk;
    const struct sp_params p = begin_path(c, &a, SP_FILE_WALK, e);
    struct sp_params options = {p.json, SP_JSON_NONE, e};

    sp_params_object(&p, "options", &options.object);
    read_limit(&options, "maxDepth", &walk->max_depth);
    read_limit(&options, "maxDirectories", &walk->max_directories);
    read_limit(&options, "maxEntries", &walk->max_entries);
    sp_params_bool(&options, "followDirectorySymlinks", &walk->follows_directories);
    sp_params_def_bool(&options, "pruneHiddenDirectories", &walk->prunes_hidden);
    sp_fs_read_sandbox(&p, &a);
    return sp_fs_begin(c, &a, tell_walk, e);
}

const struct sp_method sp_fs_methods[] = {
    {"fs/readFile", "filesystem", .fn = fs_read_file},
    {"fs/writeFile", "filesystem", .fn = fs_write_file},
    {"fs/createDirectory", "filesystem", .fn = fs_create_directory},
    {"fs/getMetadata", "filesystem", .fn = fs_get_metadata},
    {"fs/canonicalize", "filesystem", .fn = fs_canonicalize},
    {"fs/readDirectory", "filesystem", .fn = fs_read_directory},
    {"fs/walk", "filesystem", .fn = fs_walk},
    {"fs/remove", "filesystem", .fn = fs_remove},
    {"fs/copy", "filesystem", .fn = fs_copy},
    {0},
};
