/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs/open, fs/readBlock, fs/writeBlock, fs/close: the open files of a connection. A file is opened
 * under the sandbox of its fs/open; later blocks use the descriptor and are not checked again.
 *
 * A handle is in the connection's table from fs/open on, so that its id is taken while the file is
 * being opened. It has one reference of the table and one of each request that uses it; the last
 * one closes the descriptor.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/base64.h"
#include "server/rpc/conn.h"
#include "server/rpc/fs.h"
#include "server/rpc/text.h"

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

/* ---- the table ---- */

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

void sp_fs_free(struct sp_conn *conn)
{
    if (conn->fs == NULL)
        return;
    while (conn->fs->handle_count > 0)
        unref(conn->fs->handles[--conn->fs->handle_count], 1);
    free(conn->fs);
    conn->fs = NULL;
}

/* An open that failed has left the handle without a descriptor: it leaves the table, too. */
void sp_fs_release(struct sp_request *r)
{
    if (r->handle == NULL)
        return;
    struct sp_fs_handle *h = TAKE_PTR(r->handle);
    if (h->fd < 0) /* opening failed */
        remove_handle(r->conn, h, 1);
    else
        unref(h, 1);
}

static int add_handle(struct sp_conn *conn, struct sp_str id, const char *path,
                      struct sp_fs_handle **ret, struct sp_err *e)
{
    struct sp_fs *fs = conn->fs != NULL ? conn->fs : (conn->fs = calloc(1, sizeof *fs));
    struct sp_fs_handle *h = fs == NULL ? NULL : calloc(1, sizeof *h + strlen(path) + 1);

    if (h == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a file handle");
    memcpy(h->path, path, strlen(path) + 1);
    h->files = conn->rpc->server->files;
    h->fd = -1;
    h->refs = 2; /* the table's and the request's */
    h->id_len = id.n;
    memcpy(h->id, id.p, id.n);
    fs->handles[fs->handle_count++] = h;
    *ret = h;
    return 0;
}

/* ---- open ---- */

static void tell_opened(struct sp_request *r, const struct sp_file_answer *a)
{
    struct sp_fs_handle *h = r->handle;
    auto_buf struct sp_buf b = {0};
    const struct sp_str id = {h->id, h->id_len};

    if (sp_fs_failed(r, a))
        return;
    h->fd = a->fd;
    (void)(sp_buf_printf(&b, "{\"handleId\":") && sp_json_add_str(&b, id) &&
           sp_buf_add(&b, "}", 1));
    sp_request_reply(r, sp_buf_str(&b));
}

static void read_mode(const struct sp_params *p, bool *ret_is_replace)
{
    struct sp_str mode = SP_STR("read");

    sp_params_def_str(p, "mode", &mode);
    *ret_is_replace = sp_str_eq(mode, SP_STR("replace"));
    if (sp_params_ok(p) && !*ret_is_replace && !sp_str_eq(mode, SP_STR("read")))
        (void)sp_fail(p->err, SP_E_INVALID, 0,
                      "unknown variant `" SP_STR_FMT "`, expected `read` or `replace`",
                      SP_STR_ARG(mode));
}

static int check_id_length(struct sp_str id, struct sp_err *e)
{
    return id.n <= SP_FS_MAX_HANDLE_ID
               ? 0
               : sp_fail(e, SP_E_STATE, 0, "file handle ID must not exceed %d bytes",
                         SP_FS_MAX_HANDLE_ID);
}

static int check_new_id(const struct sp_rpc_call *c, struct sp_str id, struct sp_err *e)
{
    const int r = check_id_length(id, e);

    if (r < 0)
        return r;
    if (find_handle(c->conn, id) != NULL)
        return sp_fail(e, SP_E_STATE, 0, "file handle `" SP_STR_FMT "` already exists",
                       SP_STR_ARG(id));
    if (c->conn->fs != NULL && c->conn->fs->handle_count == SP_FS_MAX_HANDLES)
        return sp_fail(e, SP_E_STATE, 0, "at most %d file handles may be open per connection",
                       SP_FS_MAX_HANDLES);
    return sp_files_can_open(c->conn->rpc->server->files, e);
}

static int fs_open(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {.job.ask = {.op = SP_FILE_OPEN, .follows = true}};
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct sp_fs_handle *h = NULL;
    struct sp_str id = {0};

    sp_params_str(&p, "handleId", &id);
    sp_fs_read_path(&p, "path", &a.path);
    read_mode(&p, &a.job.ask.is_replace);
    sp_fs_read_sandbox(&p, &a);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0 || check_new_id(c, id, e) < 0 ||
        add_handle(c->conn, id, a.path.path == NULL ? "" : a.path.path, &h, e) < 0)
        return sp_params_result(&p);
    a.handle = h;
    a.job.handle = &h->fd;
    const int r = sp_fs_begin(c, &a, tell_opened, e);
    if (r < 0)
        remove_handle(c->conn, h, 1);
    return r;
}

/* ---- blocks ---- */

static int unknown_handle(struct sp_str id, struct sp_err *e)
{
    return sp_fail(e, SP_E_NOT_FOUND, 0, "unknown file handle `" SP_STR_FMT "`", SP_STR_ARG(id));
}

void sp_fs_fail_unknown(struct sp_request *r)
{
    struct sp_err e = {0};

    (void)unknown_handle((struct sp_str){r->handle->id, r->handle->id_len}, &e);
    sp_request_fail(r, &e);
}

/* If the file is still being opened, core/files waits for that. */
static int begin_block(struct sp_rpc_call *c, struct sp_fs_ask *a, struct sp_str id,
                       void (*done)(struct sp_request *r, const struct sp_file_answer *a),
                       struct sp_err *e)
{
    struct sp_fs_handle *h = find_handle(c->conn, id);

    if (h == NULL)
        return unknown_handle(id, e);
    a->job.ask.path = h->path;
    a->job.handle = &h->fd;
    a->handle = h;
    h->refs++;
    const int r = sp_fs_begin(c, a, done, e);
    if (r < 0)
        unref(h, 1);
    return r;
}

static void tell_block(struct sp_request *r, const struct sp_file_answer *a)
{
    if (a->err != 0)
        remove_handle(r->conn, r->handle, 0); /* as in Codex, a failed read closes the handle */
    if (sp_fs_failed(r, a))
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
    auto_fs_ask struct sp_fs_ask a = {.job.ask.op = SP_FILE_READ_BLOCK};
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct sp_str id = {0};
    uint64_t len = 0;

    sp_params_str(&p, "handleId", &id);
    sp_params_u64(&p, "offset", UINT64_MAX, &a.job.ask.offset);
    sp_params_u64(&p, "len", UINT64_MAX, &len);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0 || check_id_length(id, e) < 0)
        return sp_params_result(&p);
    if (len == 0 || len > SP_FILE_MAX_BLOCK)
        return sp_fail(e, SP_E_STATE, 0, "file read block length must be between 1 and %u",
                       SP_FILE_MAX_BLOCK);
    a.job.ask.length = (uint32_t)len;
    return begin_block(c, &a, id, tell_block, e);
}

static int fs_write_block(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {.job.ask.op = SP_FILE_WRITE_BLOCK};
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct sp_str id = {0};
    struct sp_str chunk = {0};
    size_t n = 0;

    sp_params_str(&p, "handleId", &id);
    sp_params_u64(&p, "offset", UINT64_MAX, &a.job.ask.offset);
    sp_params_str(&p, "chunk", &chunk);
    if (sp_params_ok(&p)) /* in place: the message is ours to write in */
        (void)sp_base64_decode(chunk, (char *)(uintptr_t)chunk.p, &n, e);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0 || check_id_length(id, e) < 0)
        return sp_params_result(&p);
    if (n == 0 || n > SP_FILE_MAX_BLOCK)
        return sp_fail(e, SP_E_STATE, 0, "file write block length must be between 1 and %u",
                       SP_FILE_MAX_BLOCK);
    a.job.raw = (struct sp_str){chunk.p, n};
    return begin_block(c, &a, id, sp_fs_answer_nothing, e);
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
        sp_rpc_call_reply(c, SP_STR("{}"));
        return 0;
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

const struct sp_method sp_handle_methods[] = {
    {"fs/open", "filesystem", .fn = fs_open},
    {"fs/readBlock", "filesystem", .fn = fs_read_block},
    {"fs/writeBlock", "filesystem", .fn = fs_write_block},
    {"fs/close", "filesystem", .fn = fs_close},
    {0},
};
