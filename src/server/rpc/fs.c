/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/fs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "sandbox/policy_json.h"
#include "sandbox/resolve.h"
#include "server/rpc/conn_priv.h"
#include "server/rpc/fs_priv.h"
#include "server/rpc/methods.h"

/* ---- errors ---- */

/* Where the reference's C library has other words than ours. */
static const char *words_for(int err)
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
    const char *words = words_for(err);

    (void)snprintf(ret, size, "%s (os error %d)", words == NULL ? "Unknown error" : words, err);
}

static enum sp_code code_of(int err)
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

static void refusal(const struct sp_request *r, const struct sp_file_answer *a, struct sp_err *e)
{
    switch (a->refusal) {
    case SP_FILE_NOT_A_FILE:
        if (r->file.follows)
            (void)sp_fail(e, SP_E_STATE, 0, "path `" SP_STR_FMT "` is not a file",
                          SP_STR_ARG(r->file.name));
        else
            (void)sp_fail(e, SP_E_STATE, 0, "path is not a regular file");
        return;
    case SP_FILE_HAS_LINK:
        (void)sp_fail(e, SP_E_STATE, 0, "path contains a symbolic link");
        return;
    case SP_FILE_TOO_LARGE:
        (void)sp_fail(e, SP_E_STATE, 0, "file is too large to read: limit is %u bytes",
                      SP_FILE_MAX_READ);
        return;
    case SP_FILE_TOO_MANY:
        (void)sp_fail(e, SP_E_FAILED, 0, "fs/readDirectory returned %llu entries; limit is %d",
                      (unsigned long long)a->number, SP_FILE_MAX_ENTRIES);
        return;
    case SP_FILE_TREE_WITHOUT_LINKS:
        (void)sp_fail(e, SP_E_FAILED, 0, "recursive no-follow removal is unsupported");
        return;
    case SP_FILE_COPY_TREE:
        (void)sp_fail(e, SP_E_STATE, 0,
                      "fs/copy requires recursive: true when sourcePath is a directory");
        return;
    case SP_FILE_COPY_INTO_ITSELF:
        (void)sp_fail(e, SP_E_STATE, 0,
                      "fs/copy cannot copy a directory to itself or one of its descendants");
        return;
    case SP_FILE_COPY_ONTO_ITSELF:
        (void)sp_fail(e, SP_E_STATE, 0, "fs/copy cannot copy a file to itself");
        return;
    case SP_FILE_COPY_KIND:
        (void)sp_fail(e, SP_E_STATE, 0,
                      "fs/copy only supports regular files, directories, and symlinks");
        return;
    case SP_FILE_WALK_LIMITS_ZERO:
        (void)sp_fail(e, SP_E_STATE, 0, "filesystem walk limits must be greater than zero");
        return;
    case SP_FILE_WALK_LIMITS_HIGH:
        (void)sp_fail(e, SP_E_STATE, 0,
                      "filesystem walk limits exceed maximums: depth=64, directories=10000, "
                      "entries=50000");
        return;
    case SP_FILE_NOT_REFUSED:
    case SP_FILE_REFUSAL_MAX:
        break;
    }
    (void)sp_fail(e, SP_E_FAILED, 0, "the file operation was refused");
}

bool sp_fs_failed(struct sp_request *r, const struct sp_file_answer *a)
{
    struct sp_err e = {0};
    char text[128];

    if (a->err == 0 && a->refusal == SP_FILE_NOT_REFUSED)
        return false;
    if (a->err != 0) {
        sp_fs_error_text(a->err, text, sizeof text);
        (void)sp_fail(&e, code_of(a->err), 0, "%s", text);
    } else {
        refusal(r, a, &e);
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

int sp_fs_need_path(struct sp_rpc_call *c, const char *key, struct sp_uri *ret, struct sp_err *e)
{
    struct sp_str text;
    int r = sp_json_need_str(c->json, c->params, key, &text, e);

    if (r == 0)
        r = sp_uri_read(text, ret, e);
    /* Slashes at the end do not matter: not even behind a file or a link. */
    for (size_t n = r == 0 && ret->path != NULL ? strlen(ret->path) : 0;
         n > 1 && ret->path[n - 1] == '/'; n--)
        ret->path[n - 1] = 0;
    return r;
}

int sp_fs_opt_bool(struct sp_rpc_call *c, const char *key, bool *ret, struct sp_err *e)
{
    const uint32_t t = sp_json_get(c->json, c->params, key);

    if (t == SP_JSON_NONE || sp_json_type(c->json, t) == SP_JSON_NULL)
        return 0;
    return sp_json_need_bool(c->json, c->params, key, ret, e);
}

/* A policy that restricts nothing on the disk is none: what a file operation cannot do anyway, like
 * talk to the network, does not count. */
static int restricts_files(const struct sp_policy *p, bool *ret, struct sp_err *e)
{
    struct sp_resolved r = {0};
    const int failed = sp_resolve(p, &r, e);

    if (failed == 0)
        *ret = !r.is_open && !r.is_full_write;
    sp_resolved_done(&r);
    return failed;
}

int sp_fs_read_policy(struct sp_json *j, uint32_t sandbox, struct sp_policy *ret, bool *ret_has,
                      bool *ret_restricts, struct sp_err *e)
{
    const int r = sp_policy_read(j, sandbox, NULL, getenv("TMPDIR"), ret, e);

    if (r < 0)
        return r;
    *ret_has = true;
    ret->profile.has_network = false;
    return restricts_files(ret, ret_restricts, e);
}

int sp_fs_read_sandbox(struct sp_rpc_call *c, struct sp_fs_ask *a, struct sp_err *e)
{
    uint32_t sandbox = SP_JSON_NONE;
    bool is_needed = false;
    int r = sp_json_opt_object(c->json, c->params, "sandbox", &sandbox, e);

    if (r < 0 || sandbox == SP_JSON_NONE)
        return r;
    r = sp_fs_read_policy(c->json, sandbox, &a->policy, &a->has_policy, &is_needed, e);
    a->job.policy = is_needed ? &a->policy : NULL;
    return r;
}

/* ---- asking ---- */

static int check_native(const struct sp_uri *u, struct sp_err *e)
{
    if (u->text == NULL || (!u->is_foreign && u->path != NULL))
        return 0;
    return sp_fail(e, SP_E_STATE, 0, "'%s' is invalid on 'linux'", u->text);
}

static void on_done(struct sp_files_call *call, const struct sp_file_answer *a,
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
    /* Answers may be large: no more of them are made than the client takes. */
    conn->files.is_held = sp_link_is_full(conn->link);
}

int sp_fs_begin(struct sp_rpc_call *c, struct sp_fs_ask *a,
                void (*done)(struct sp_request *r, const struct sp_file_answer *a),
                struct sp_err *e)
{
    int r = sp_rpc_call_check(c, e);

    if (r == 0)
        r = check_native(&a->path, e);
    if (r == 0)
        r = check_native(&a->other, e);
    /* Where commands are judged, nobody writes past that: not into the rules, nor over a program. A
     * sandbox of the client's own choice is no reason to. */
    if (r == 0 && c->conn->rpc->gate != NULL &&
        sp_file_changes(a->job.ask.op, a->job.ask.is_replace))
        r = sp_fail(e, SP_E_STATE, 0,
                    "this server judges what is done (--approve): %s is not offered, let a command "
                    "do it",
                    c->method->name);
    if (r < 0)
        return r;
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
    req->file.call.done = on_done;
    r = sp_files_ask(c->conn->rpc->server->files, &c->conn->files, &a->job, &req->file.call, e);
    if (r < 0) {
        sp_request_drop(req);
        return r;
    }
    req->is_file = true;
    req->handle = a->handle;
    return 0;
}

void sp_fs_free(struct sp_conn *conn)
{
    if (conn->fs == NULL)
        return;
    sp_fs_close_handles(conn->fs);
    free(conn->fs);
    conn->fs = NULL;
}
