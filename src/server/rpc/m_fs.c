/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fs/ methods. Each decodes its params, then asks core/files.h, which does the operation in
 * another process; the answer comes as an event.
 *
 * fs/open, readBlock, writeBlock and close are about the open files of a connection. A file is
 * opened under the sandbox of its fs/open; later blocks use the descriptor and are not checked
 * again.
 */
#include <assert.h>
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
static const struct {
    int err;
    const char *text;
} musl_texts[] = {
    {ELOOP, "Symbolic link loop"},
    {EXDEV, "Cross-device link"},
    {ENAMETOOLONG, "Filename too long"},
    {EBUSY, "Resource busy"},
    {EDQUOT, "Quota exceeded"},
    {EIO, "I/O error"},
    {EMFILE, "No file descriptors available"},
};

void sp_fs_error_text(int err, char *ret, size_t size)
{
    const char *text = sp_errno_text(err);

    for (size_t i = 0; i < sizeof musl_texts / sizeof musl_texts[0]; i++)
        if (musl_texts[i].err == err)
            text = musl_texts[i].text;
    (void)snprintf(ret, size, "%s (os error %d)", text, err);
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
static bool answer_failure(struct sp_request *r, const struct sp_file_answer *a)
{
    struct sp_err e = {0};
    char text[128];

    if (a->err == 0 && a->refusal == SP_FILE_NOT_REFUSED)
        return false;
    if (a->err != 0) {
        const bool is_state = a->err == EACCES || a->err == EPERM || a->err == EINVAL;
        const enum sp_code code = a->err == ENOENT ? SP_E_NOT_FOUND
                                  : is_state       ? SP_E_STATE
                                                   : SP_E_FAILED;

        sp_fs_error_text(a->err, text, sizeof text);
        (void)sp_fail(&e, code, 0, "%s", text); /* -32004, -32600 and -32603 on the wire */
    } else {
        set_refusal(r, a, &e);
    }
    sp_request_fail(r, &e);
    return true;
}

static void answer_nothing(struct sp_request *r, const struct sp_file_answer *a)
{
    if (!answer_failure(r, a))
        sp_request_reply(r, SP_STR("{}"));
}

/* ---- open files ---- */

/*
 * A handle is in the connection's table from fs/open on, so that its id is taken while the file is
 * being opened. It has one reference of the table and one of each request that uses it; the last
 * one closes the descriptor.
 */
struct sp_fs_handle {
    struct sp_task task;       /* of `closes` */
    struct sp_request *closes; /* fs/close, answered when the descriptor is closed; NULL: none */
    struct sp_files *files;
    struct sp_closing closing;
    char id[SP_FS_MAX_HANDLE_ID];
    size_t id_len;
    int fd; /* -1: not open yet, or opening failed */
    uint32_t refs;
    char path[]; /* as opened: orders blocks with other operations on the same path */
};

struct sp_fs {
    struct sp_fs_handle *handles[SP_FS_MAX_HANDLES];
    uint32_t handle_count;
};

static struct sp_fs_handle *find_handle(const struct sp_conn *conn, struct sp_str id)
{
    for (uint32_t i = 0; conn->fs != NULL && i < conn->fs->handle_count; i++) {
        struct sp_fs_handle *h = conn->fs->handles[i];

        if (sp_str_eq((struct sp_str){h->id, h->id_len}, id))
            return h;
    }
    return NULL;
}

/* The handle is freed here and nowhere else. */
static void on_closed(struct sp_closing *c)
{
    struct sp_fs_handle *h = SP_CONTAINER(c, struct sp_fs_handle, closing);

    if (h->closes != NULL)
        sp_request_reply(h->closes, SP_STR("{}"));
    free(h);
}

/* close() may wait for the disk, so a thread does it. */
static void unref(struct sp_fs_handle *h, uint32_t refs)
{
    assert(h->refs >= refs);
    h->refs -= refs;
    if (h->refs > 0)
        return;
    h->closing.done = on_closed;
    if (h->fd >= 0)
        sp_files_close(h->files, &h->closing, TAKE_FD(h->fd));
    else
        on_closed(&h->closing);
}

/* Takes the handle out of the table and drops the table's reference and `refs` more. Requests that
 * use the handle keep theirs. */
static void remove_handle(struct sp_conn *conn, struct sp_fs_handle *h, uint32_t refs)
{
    struct sp_fs *fs = conn->fs;

    for (uint32_t i = 0; i < fs->handle_count; i++)
        if (fs->handles[i] == h) {
            fs->handles[i] = fs->handles[--fs->handle_count];
            refs++;
            break;
        }
    if (refs > 0)
        unref(h, refs);
}

static void close_files(struct sp_conn *conn)
{
    if (conn->fs == NULL)
        return;
    while (conn->fs->handle_count > 0)
        unref(conn->fs->handles[--conn->fs->handle_count], 1);
    free(conn->fs);
    conn->fs = NULL;
}

/* An open that failed has left the handle without a descriptor: it leaves the table, too. */
static void release_handle(struct sp_task *t)
{
    struct sp_request *r = SP_CONTAINER(t, struct sp_request, file.task);

    if (r->file.handle->fd < 0) /* opening failed */
        remove_handle(r->conn, r->file.handle, 1);
    else
        unref(r->file.handle, 1);
}

static int add_handle(struct sp_conn *conn, struct sp_str id, const char *path,
                      struct sp_fs_handle **ret, struct sp_err *e)
{
    struct sp_fs *fs = conn->fs != NULL ? conn->fs : (conn->fs = calloc(1, sizeof *fs));
    struct sp_fs_handle *h = fs == NULL ? NULL : calloc(1, sizeof *h + strlen(path) + 1);

    if (h == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a file handle");
    memcpy(h->path, path, strlen(path) + 1);
    h->files = conn->rpc->front->files;
    h->fd = -1;
    h->refs = 2; /* the table's and the request's */
    h->id_len = id.n;
    memcpy(h->id, id.p, id.n);
    fs->handles[fs->handle_count++] = h;
    *ret = h;
    return 0;
}

static void use_some(struct sp_files_call *call, const char *window, const _Atomic uint64_t *filled,
                     uint64_t size);

#define UNKNOWN_HANDLE "unknown file handle `" SP_STR_FMT "`"

/* ---- params ---- */

/* A file operation while its params are read. Zero before, fs_request_done after. */
struct fs_request {
    struct sp_files_job job;
    struct sp_uri path, other;
    struct sp_policy policy;
    bool has_policy;
    struct sp_fs_handle *handle; /* the reference moves to the request; NULL: none */
};

static void fs_request_done(struct fs_request *a)
{
    sp_uri_done(&a->path);
    sp_uri_done(&a->other);
    if (a->has_policy)
        sp_policy_done(&a->policy);
}

#define auto_fs_request __attribute__((cleanup(fs_request_done)))

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
    sp_network_policy_free(ret->profile.managed);
    ret->profile.managed = NULL;
    if (sp_resolve(ret, &resolved, p->err) == 0)
        *ret_restricts = !resolved.is_open && !resolved.is_full_write;
    sp_resolved_done(&resolved);
}

static void read_sandbox(const struct sp_params *p, struct fs_request *a)
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
    if (a != NULL) {
        r->file.done(r, a);
    } else if (e->code == SP_E_NOT_FOUND && r->file.handle != NULL) {
        const struct sp_fs_handle *h = r->file.handle;

        sp_request_refuse(r, SP_E_NOT_FOUND, 0, UNKNOWN_HANDLE, (int)h->id_len, h->id);
    } else {
        sp_request_fail(r, e);
    }
    /* Answers may be large: begin no further operation until the client has read these. */
    conn->files.is_held = sp_link_is_full(conn->link);
}

/* *e may already hold the first error of the params (params.h): the methods do not look. */
static int begin_op(struct sp_rpc_call *c, struct fs_request *a,
                    void (*done)(struct sp_request *r, const struct sp_file_answer *a),
                    struct sp_err *e)
{
    if (e->code != SP_E_NONE || sp_rpc_call_check(c, e) < 0 || check_native(&a->path, e) < 0 ||
        check_native(&a->other, e) < 0)
        return -(int)e->code;
    /* A gate judges commands. A client that could write files would change the rules, or a program
     * that the rules allow; the sandbox of the request is the client's own choice. */
    if (c->conn->rpc->gate != NULL && sp_file_changes(a->job.request.op, a->job.request.is_replace))
        return sp_fail(e, SP_E_STATE, 0,
                       "this server judges what is done (--approve): %s is not offered, let a "
                       "command do it",
                       c->method->name);
    a->job.session = c->conn->session->number;
    if (a->path.path != NULL)
        a->job.request.path = a->path.path;
    a->job.request.other = a->other.path;
    /* Under a policy the client sees what commands see: an empty read-only directory. */
    a->job.request.hides_placeholders = a->job.policy == NULL;
    const struct sp_str name = a->path.path == NULL ? SP_STR("") : sp_str_of(a->path.path);
    struct sp_request *req = sp_rpc_call_park(c, name.n, e);
    if (req == NULL)
        return -(int)e->code;
    memcpy(sp_request_extra(req), name.p, name.n);
    req->file.name = (struct sp_str){sp_request_extra(req), name.n};
    req->file.follows = a->job.request.follows;
    req->file.done = done;
    req->file.call.done = on_file_done;
    req->file.call.some = a->job.request.op == SP_FILE_READ ? use_some : NULL;
    req->file.reply = NULL;
    req->file.encoded = req->file.room = 0;
    if (sp_files_ask(c->conn->rpc->front->files, &c->conn->files, &a->job, &req->file.call, e) <
        0) {
        sp_request_drop(req);
        return -(int)e->code;
    }
    req->is_file = true;
    if (a->handle != NULL) {
        req->file.handle = a->handle;
        req->file.task.free = release_handle;
        req->task = &req->file.task;
    }
    return 0;
}

/* Optional flags of the methods about a path. */
enum { FOLLOW = 1, RECURSIVE = 2, FORCE = 4 };

/* The params of these methods begin with a path. */
static struct sp_params read_path_params(struct sp_rpc_call *c, struct fs_request *a,
                                         enum sp_file_op op, struct sp_err *e)
{
    const struct sp_params p = sp_rpc_call_params(c, e);

    a->job.request.op = op;
    a->job.request.follows = true;
    sp_fs_read_path(&p, "path", &a->path);
    return p;
}

/* A method whose params are a path, some of the flags, which are true by default, and a sandbox. */
static int path_method(struct sp_rpc_call *c, enum sp_file_op op, unsigned flags,
                       void (*done)(struct sp_request *r, const struct sp_file_answer *a),
                       struct sp_err *e)
{
    auto_fs_request struct fs_request a = {0};
    const struct sp_params p = read_path_params(c, &a, op, e);

    a.job.request.is_recursive = (flags & RECURSIVE) != 0;
    a.job.request.is_forced = (flags & FORCE) != 0;
    if ((flags & RECURSIVE) != 0)
        sp_params_opt_bool(&p, "recursive", &a.job.request.is_recursive);
    if ((flags & FORCE) != 0)
        sp_params_opt_bool(&p, "force", &a.job.request.is_forced);
    if ((flags & FOLLOW) != 0)
        sp_params_opt_bool(&p, "followSymlinks", &a.job.request.follows);
    read_sandbox(&p, &a);
    return begin_op(c, &a, done, e);
}

/* ---- fs/readFile ---- */

/* A file that came in a memory file (larger than SP_FILES_WINDOW) as a reply. Its base64 is made
 * while it is sent, from the mapping that the file came in, so that it is never in memory as a
 * whole. */
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

/* ---- a file of some hundred KiB: its base64 is made while it is read ---- */

static void begin_content(struct sp_request *r, size_t room)
{
    r->file.reply = sp_reply_begin(r->conn, r->id, SP_BASE64_LEN(room) + 32);
    r->file.encoded = 0;
    r->file.room = room;
}

static void give_content_back(struct sp_request *r)
{
    if (r->file.reply != NULL)
        sp_link_commit(r->conn->link, 0);
    r->file.reply = NULL;
}

/* Up to `len` bytes of the file are there. */
static char *encode_content(struct sp_request *r, const char *bytes, size_t len)
{
    char *o = sp_put_literal(r->file.reply, "{\"dataBase64\":\"");

    o = sp_base64_encode(o + r->file.encoded / 3 * 4, bytes + r->file.encoded,
                         len - r->file.encoded);
    r->file.encoded = len;
    return o;
}

/* Nothing else is sent on the connection before the answer, or before `window` is NULL. Encoding
 * takes longer than reading from the page cache: what is read meanwhile is encoded here, too. */
static void use_some(struct sp_files_call *call, const char *window, const _Atomic uint64_t *filled,
                     uint64_t size)
{
    struct sp_request *r = SP_CONTAINER(call, struct sp_request, file.call);
    size_t there;

    give_content_back(r);
    if (window == NULL)
        return;
    begin_content(r, (size_t)size);
    while (r->file.reply != NULL) {
        const uint64_t n = atomic_load_explicit(filled, memory_order_acquire);

        there = n < size ? (size_t)n : (size_t)size;
        there -= there % 3; /* only the end is padded */
        if (there <= r->file.encoded)
            break;
        (void)encode_content(r, window, there);
    }
}

static void tell_content(struct sp_request *r, const struct sp_file_answer *a)
{
    if (answer_failure(r, a))
        return;
    if (send_content(r, a)) {
        sp_request_end(r, true);
        return;
    }
    if (a->data_len > r->file.room || a->data_len < r->file.encoded)
        give_content_back(r); /* the file has grown, or the worker counts wrong */
    if (r->file.reply == NULL)
        begin_content(r, (size_t)a->data_len);
    if (r->file.reply != NULL) {
        char *const end = encode_content(r, a->window, (size_t)a->data_len);

        sp_reply_end(r->conn, r->id, r->file.reply, sp_put_literal(end, "\"}"));
    }
    sp_request_end(r, true);
}

static int fs_read_file(struct sp_rpc_call *c, struct sp_err *e)
{
    return path_method(c, SP_FILE_READ, FOLLOW, tell_content, e);
}

/* ---- fs/writeFile ---- */

static int fs_write_file(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_request struct fs_request a = {0};
    const struct sp_params p = read_path_params(c, &a, SP_FILE_WRITE, e);
    struct sp_err why = {0};
    size_t n = 0;

    sp_params_str(&p, "dataBase64", &a.job.base64);
    sp_params_opt_bool(&p, "followSymlinks", &a.job.request.follows);
    read_sandbox(&p, &a);
    if (!sp_params_ok(&p))
        return sp_params_result(&p);
    const int r = begin_op(c, &a, answer_nothing, e);
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
    return path_method(c, SP_FILE_MAKE, RECURSIVE | FOLLOW, answer_nothing, e);
}

static int fs_remove(struct sp_rpc_call *c, struct sp_err *e)
{
    return path_method(c, SP_FILE_REMOVE, RECURSIVE | FORCE | FOLLOW, answer_nothing, e);
}

static int fs_copy(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_request struct fs_request a = {0};
    const struct sp_params p = sp_rpc_call_params(c, e);

    a.job.request.op = SP_FILE_COPY;
    sp_fs_read_path(&p, "sourcePath", &a.path);
    sp_fs_read_path(&p, "destinationPath", &a.other);
    sp_params_bool(&p, "recursive", &a.job.request.is_recursive);
    read_sandbox(&p, &a);
    return begin_op(c, &a, answer_nothing, e);
}

/* ---- getMetadata, canonicalize ---- */

static void tell_stat(struct sp_request *r, const struct sp_file_answer *a)
{
    char text[256];

    if (answer_failure(r, a))
        return;
    char *o = sp_put_bool(sp_put_literal(text, "{\"isDirectory\":"), a->stat.is_directory);
    o = sp_put_bool(sp_put_literal(o, ",\"isFile\":"), a->stat.is_file);
    o = sp_put_bool(sp_put_literal(o, ",\"isSymlink\":"), a->stat.is_link);
    o = sp_put_u64(sp_put_literal(o, ",\"size\":"), a->stat.size);
    o = sp_put_i64(sp_put_literal(o, ",\"createdAtMs\":"), a->stat.created_ms);
    o = sp_put_i64(sp_put_literal(o, ",\"modifiedAtMs\":"), a->stat.modified_ms);
    *o++ = '}';
    sp_request_reply(r, (struct sp_str){text, (size_t)(o - text)});
}

static int fs_get_metadata(struct sp_rpc_call *c, struct sp_err *e)
{
    return path_method(c, SP_FILE_STAT, FOLLOW, tell_stat, e);
}

bool sp_fs_add_uri(struct sp_buf *b, struct sp_str path)
{
    return sp_buf_add(b, "\"", 1) && sp_uri_add(b, path) && sp_buf_add(b, "\"", 1);
}

static void tell_path(struct sp_request *r, const struct sp_file_answer *a)
{
    auto_buf struct sp_buf copy = {0};
    auto_buf struct sp_buf b = {0};

    if (answer_failure(r, a))
        return;
    if (a->data_len > SP_FILE_MAX_PATH)
        sp_request_refuse(r, SP_E_FAILED, 0, SP_FS_MALFORMED);
    else if (sp_buf_add(&copy, a->window, a->data_len) && sp_buf_printf(&b, "{\"path\":") &&
             sp_fs_add_uri(&b, sp_buf_str(&copy)) && sp_buf_add(&b, "}", 1))
        sp_request_reply(r, sp_buf_str(&b));
    else
        sp_request_fail_memory(r, "make the answer");
}

static int fs_canonicalize(struct sp_rpc_call *c, struct sp_err *e)
{
    return path_method(c, SP_FILE_CANONICAL, 0, tell_path, e);
}

/* ---- readDirectory, walk ---- */

/* One list: entries in the directory's order, or, of a walk, the entries or the errors alone, which
 * come mixed. */
enum entry_list { LISTED, WALKED, WALK_ERRORS };

/* Returns 0, -ENOMEM, or -EBADMSG: the list is malformed. */
static int add_entries(struct sp_buf *b, struct sp_str in, enum entry_list which)
{
    struct sp_file_entry entry;
    struct sp_str name;
    char text[128];
    bool ok = true;
    int left = 0;

    while (ok && (left = sp_file_next_entry(&in, &entry, &name)) > 0) {
        const char *comma = b->data[b->len - 1] == '[' ? "" : ",";
        const bool is_file = entry.kind == SP_FILE_ENTRY_FILE;

        if (which == LISTED) {
            ok = sp_buf_printf(b, "%s{\"fileName\":", comma) && sp_json_add_str(b, name) &&
                 sp_buf_printf(b, ",\"isDirectory\":%s,\"isFile\":%s}",
                               entry.kind == SP_FILE_ENTRY_DIRECTORY ? "true" : "false",
                               is_file ? "true" : "false");
        } else if ((entry.kind == SP_FILE_ENTRY_ERROR) == (which == WALK_ERRORS)) {
            ok = sp_buf_printf(b, "%s{\"path\":", comma) && sp_fs_add_uri(b, name);
            if (which == WALKED) {
                ok = ok && sp_buf_printf(b, ",\"kind\":\"%s\"}", is_file ? "file" : "directory");
                continue;
            }
            sp_fs_error_text(entry.err, text, sizeof text);
            ok = ok && sp_buf_printf(b, ",\"message\":") && sp_json_add_str(b, sp_str_of(text)) &&
                 sp_buf_add(b, "}", 1);
        }
    }
    return left < 0 ? -EBADMSG : ok ? 0 : -ENOMEM;
}

static void tell_entries(struct sp_request *r, const struct sp_file_answer *a, bool is_walk)
{
    auto_buf struct sp_buf copy = {0};
    auto_buf struct sp_buf b = {0};

    if (answer_failure(r, a))
        return;
    /* The window is shared with the worker, which can still change it: copy before reading. */
    const bool is_copied = sp_buf_add(&copy, a->window, a->data_len);
    const struct sp_str in = {copy.data, copy.len};
    int err = is_copied && sp_buf_printf(&b, "{\"entries\":[")
                  ? add_entries(&b, in, is_walk ? WALKED : LISTED)
                  : -ENOMEM;
    if (err == 0 && is_walk)
        err = sp_buf_printf(&b, "],\"errors\":[") ? add_entries(&b, in, WALK_ERRORS) : -ENOMEM;
    if (err == 0 &&
        !(is_walk ? sp_buf_printf(&b, "],\"truncated\":%s}", a->is_cut ? "true" : "false")
                  : sp_buf_printf(&b, "]}")))
        err = -ENOMEM;
    if (err == 0)
        sp_request_reply(r, sp_buf_str(&b));
    else if (err == -EBADMSG)
        sp_request_refuse(r, SP_E_FAILED, 0, SP_FS_MALFORMED);
    else
        sp_request_fail_memory(r, "make the answer");
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
    return path_method(c, SP_FILE_LIST, 0, tell_list, e);
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
    auto_fs_request struct fs_request a = {0};
    struct sp_file_walk *walk = &a.job.request.walk;
    const struct sp_params p = read_path_params(c, &a, SP_FILE_WALK, e);
    struct sp_params options = {p.json, SP_JSON_NONE, e};

    sp_params_object(&p, "options", &options.object);
    read_limit(&options, "maxDepth", &walk->max_depth);
    read_limit(&options, "maxDirectories", &walk->max_directories);
    read_limit(&options, "maxEntries", &walk->max_entries);
    sp_params_bool(&options, "followDirectorySymlinks", &walk->follows_directories);
    sp_params_def_bool(&options, "pruneHiddenDirectories", &walk->prunes_hidden);
    read_sandbox(&p, &a);
    return begin_op(c, &a, tell_walk, e);
}

/* ---- open ---- */

static void tell_opened(struct sp_request *r, const struct sp_file_answer *a)
{
    struct sp_fs_handle *h = r->file.handle;
    auto_buf struct sp_buf b = {0};
    const struct sp_str id = {h->id, h->id_len};

    if (answer_failure(r, a))
        return;
    h->fd = a->fd;
    if (sp_buf_printf(&b, "{\"handleId\":") && sp_json_add_str(&b, id) && sp_buf_add(&b, "}", 1)) {
        sp_request_reply(r, sp_buf_str(&b));
    } else {
        remove_handle(r->conn, h, 0); /* the client does not know it */
        sp_request_fail_memory(r, "make the answer");
    }
}

static int check_id_length(struct sp_str id, struct sp_err *e)
{
    return id.n <= SP_FS_MAX_HANDLE_ID
               ? 0
               : sp_fail(e, SP_E_STATE, 0, "file handle ID must not exceed %d bytes",
                         SP_FS_MAX_HANDLE_ID);
}

static int fs_open(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_request struct fs_request a = {.job.request = {.op = SP_FILE_OPEN, .follows = true}};
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct sp_fs_handle *h = NULL;
    struct sp_str id = {0};
    struct sp_str mode = SP_STR("read");

    sp_params_str(&p, "handleId", &id);
    sp_fs_read_path(&p, "path", &a.path);
    sp_params_def_str(&p, "mode", &mode);
    a.job.request.is_replace = sp_str_eq(mode, SP_STR("replace"));
    if (sp_params_ok(&p) && !a.job.request.is_replace && !sp_str_eq(mode, SP_STR("read")))
        (void)sp_fail(e, SP_E_INVALID, 0,
                      "unknown variant `" SP_STR_FMT "`, expected `read` or `replace`",
                      SP_STR_ARG(mode));
    read_sandbox(&p, &a);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0 || check_id_length(id, e) < 0)
        return sp_params_result(&p);
    if (find_handle(c->conn, id) != NULL)
        return sp_fail(e, SP_E_STATE, 0, "file handle `" SP_STR_FMT "` already exists",
                       SP_STR_ARG(id));
    if (c->conn->fs != NULL && c->conn->fs->handle_count == SP_FS_MAX_HANDLES)
        return sp_fail(e, SP_E_STATE, 0, "at most %d file handles may be open per connection",
                       SP_FS_MAX_HANDLES);
    if (sp_files_can_open(c->conn->rpc->front->files, e) < 0 ||
        add_handle(c->conn, id, a.path.path == NULL ? "" : a.path.path, &h, e) < 0)
        return sp_params_result(&p);
    a.handle = h;
    a.job.handle = &h->fd;
    const int r = begin_op(c, &a, tell_opened, e);
    if (r < 0)
        remove_handle(c->conn, h, 1);
    return r;
}

/* ---- blocks ---- */

/* If the file is still being opened, core/files waits for that. */
static int begin_block(struct sp_rpc_call *c, struct fs_request *a, struct sp_str id,
                       void (*done)(struct sp_request *r, const struct sp_file_answer *a),
                       struct sp_err *e)
{
    struct sp_fs_handle *h = find_handle(c->conn, id);

    if (h == NULL)
        return sp_fail(e, SP_E_NOT_FOUND, 0, UNKNOWN_HANDLE, SP_STR_ARG(id));
    a->job.request.path = h->path;
    a->job.handle = &h->fd;
    a->handle = h;
    h->refs++;
    const int r = begin_op(c, a, done, e);
    if (r < 0)
        unref(h, 1);
    return r;
}

static void tell_block(struct sp_request *r, const struct sp_file_answer *a)
{
    if (a->err != 0)
        remove_handle(r->conn, r->file.handle,
                      0); /* as in Codex, a failed read closes the handle */
    if (answer_failure(r, a))
        return;
    char *const begin = sp_reply_begin(r->conn, r->id, SP_BASE64_LEN(a->data_len) + 48);
    if (begin != NULL) {
        char *o = sp_put_literal(begin, "{\"chunk\":\"");

        o = sp_base64_encode(o, a->window, a->data_len);
        o = sp_put_bool(sp_put_literal(o, "\",\"eof\":"), a->is_cut);
        sp_reply_end(r->conn, r->id, begin, sp_put_literal(o, "}"));
    }
    sp_request_end(r, true);
}

static int fs_read_block(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_request struct fs_request a = {.job.request.op = SP_FILE_READ_BLOCK};
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct sp_str id = {0};
    uint64_t len = 0;

    sp_params_str(&p, "handleId", &id);
    sp_params_u64(&p, "offset", UINT64_MAX, &a.job.request.offset);
    sp_params_u64(&p, "len", UINT64_MAX, &len);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0 || check_id_length(id, e) < 0)
        return sp_params_result(&p);
    if (len == 0 || len > SP_FILE_MAX_BLOCK)
        return sp_fail(e, SP_E_STATE, 0, "file read block length must be between 1 and %u",
                       SP_FILE_MAX_BLOCK);
    a.job.request.length = (uint32_t)len;
    return begin_block(c, &a, id, tell_block, e);
}

static int fs_write_block(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_request struct fs_request a = {.job.request.op = SP_FILE_WRITE_BLOCK};
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct sp_str id = {0};
    struct sp_str chunk = {0};
    size_t n = 0;

    sp_params_str(&p, "handleId", &id);
    sp_params_u64(&p, "offset", UINT64_MAX, &a.job.request.offset);
    sp_params_str(&p, "chunk", &chunk);
    if (sp_params_ok(&p)) /* in place: the message is ours to write in */
        (void)sp_base64_decode(chunk, (char *)(uintptr_t)chunk.p, &n, e);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0 || check_id_length(id, e) < 0)
        return sp_params_result(&p);
    if (n == 0 || n > SP_FILE_MAX_BLOCK)
        return sp_fail(e, SP_E_STATE, 0, "file write block length must be between 1 and %u",
                       SP_FILE_MAX_BLOCK);
    a.job.raw = (struct sp_str){chunk.p, n};
    return begin_block(c, &a, id, answer_nothing, e);
}

/* ---- close ---- */

/* The connection ended before close() returned: there is no request to answer any more. */
static void forget_close(struct sp_task *t)
{
    SP_CONTAINER(t, struct sp_fs_handle, task)->closes = NULL;
}

static int fs_close(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct sp_str id = {0};

    sp_params_str(&p, "handleId", &id);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0 || check_id_length(id, e) < 0)
        return sp_params_result(&p);
    struct sp_fs_handle *h = find_handle(c->conn, id);
    if (h == NULL || h->refs > 1) { /* requests that use the handle close it when they end */
        if (h != NULL)
            remove_handle(c->conn, h, 0);
        return sp_rpc_call_reply(c, SP_STR("{}"));
    }
    /* Answered after close(): a client that now executes the file must not get ETXTBSY. */
    struct sp_request *r = sp_rpc_call_park(c, 0, e);
    if (r == NULL)
        return -(int)e->code;
    h->task.free = forget_close;
    h->closes = r;
    r->task = &h->task;
    remove_handle(c->conn, h, 0);
    return 0;
}

static const struct sp_method methods[] = {
    {"fs/readFile", "filesystem", .fn = fs_read_file},
    {"fs/writeFile", "filesystem", .fn = fs_write_file},
    {"fs/createDirectory", "filesystem", .fn = fs_create_directory},
    {"fs/getMetadata", "filesystem", .fn = fs_get_metadata},
    {"fs/canonicalize", "filesystem", .fn = fs_canonicalize},
    {"fs/readDirectory", "filesystem", .fn = fs_read_directory},
    {"fs/walk", "filesystem", .fn = fs_walk},
    {"fs/remove", "filesystem", .fn = fs_remove},
    {"fs/copy", "filesystem", .fn = fs_copy},
    {"fs/open", "filesystem", .fn = fs_open},
    {"fs/readBlock", "filesystem", .fn = fs_read_block},
    {"fs/writeBlock", "filesystem", .fn = fs_write_block},
    {"fs/close", "filesystem", .fn = fs_close},
    {0},
};

const struct sp_family sp_fs_family = {.methods = methods, .closed = close_files};
