/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_file: file operations on the server, one fs/ request each, under the sandbox that a
 * command there would have. Requests that change something are never repeated.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "engine/remote/remote_priv.h"

#define ANSWER_MS 30000U

struct sp_remote_file {
    struct sp_client_request request;
    struct sp_remote *remote;
    struct sp_backend_file *file;
    struct sp_remote_file *prev, *next;
    struct sp_timer timer; /* limit for the answer */
};

static void free_file(struct sp_remote_file *rf)
{
    sp_client_forget(&rf->request);
    sp_loop_cancel(rf->remote->backend.loop, &rf->timer);
    rf->file->impl = NULL;
    rf->file->backend = NULL;
    if (rf->prev != NULL)
        rf->prev->next = rf->next;
    else
        rf->remote->files = rf->next;
    if (rf->next != NULL)
        rf->next->prev = rf->prev;
    free(rf);
}

void sp_remote_drop_files(struct sp_remote *r)
{
    while (r->files != NULL)
        free_file(r->files);
}

void sp_remote_forget_file(struct sp_backend_file *f)
{
    if (f->impl != NULL)
        free_file(f->impl);
}

static void finish_file(struct sp_remote_file *rf)
{
    struct sp_remote *r = rf->remote;
    struct sp_backend_file *f = rf->file;

    free_file(rf);
    sp_remote_enter(r);
    f->fn(f);
    sp_remote_leave(r);
}

/* ---- answers ---- */

/* Servers send an errno at the end of a text: "Read-only file system (os error 30)". */
static int errno_of(struct sp_str message)
{
    static const char mark[] = "(os error ";
    const char *at =
        message.n < sizeof mark ? NULL : memmem(message.p, message.n, mark, sizeof mark - 1);
    int number = 0;

    if (at == NULL)
        return 0;
    for (at += sizeof mark - 1; at < message.p + message.n && *at >= '0' && *at <= '9'; at++)
        number = number < 4096 ? number * 10 + (*at - '0') : number;
    return number > 0 && number < 4096 ? number : 0;
}

static void take_refusal(struct sp_backend_file *f, const struct sp_client_reply *reply)
{
    const int err = reply->fate == SP_CLIENT_REFUSED ? errno_of(reply->message) : 0;

    if (err != 0)
        (void)sp_fail(&f->error, SP_E_SYSTEM, err, "the server refused it");
    else
        (void)sp_fail(&f->error, SP_E_FAILED, 0, SP_STR_FMT, SP_STR_ARG(reply->message));
}

static int take_stat(struct sp_backend_file *f, struct sp_json *j, uint32_t value, struct sp_err *e)
{
    int r = sp_json_need_bool(j, value, "isFile", &f->is_file, e);

    if (r == 0)
        r = sp_json_need_bool(j, value, "isDirectory", &f->is_dir, e);
    return r < 0 ? r : sp_json_need_u64(j, value, "size", INT64_MAX, &f->size, e);
}

static int take_text(struct sp_backend_file *f, struct sp_json *j, uint32_t value, struct sp_err *e)
{
    struct sp_str text = {0};
    size_t n = 0;
    int r = sp_json_need_str(j, value, "dataBase64", &text, e);

    if (r < 0)
        return r;
    f->text.len = 0;
    char *room = sp_buf_room(&f->text, text.n / 4 * 3 + 1);
    if (room == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a file");
    r = sp_base64_decode(text, room, &n, e);
    if (r == 0)
        f->text.len = n;
    return r;
}

static void take_result(struct sp_backend_file *f, const struct sp_client_reply *reply)
{
    int r = 0;

    if (sp_json_type(reply->j, reply->value) != SP_JSON_OBJECT)
        r = sp_json_wrong_type(reply->j, reply->value, "the answer", &f->error);
    else if (f->op == SP_BACKEND_STAT)
        r = take_stat(f, reply->j, reply->value, &f->error);
    else if (f->op == SP_BACKEND_READ)
        r = take_text(f, reply->j, reply->value, &f->error);
    if (r < 0)
        (void)sp_wrap(&f->error, "the exec-server's answer makes no sense");
}

static void on_file_answer(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct sp_remote_file *rf = SP_CONTAINER(q, struct sp_remote_file, request);

    if (reply->fate == SP_CLIENT_RESULT)
        take_result(rf->file, reply);
    else
        take_refusal(rf->file, reply);
    finish_file(rf);
}

static void on_file_late(struct sp_timer *t)
{
    struct sp_remote_file *rf = SP_CONTAINER(t, struct sp_remote_file, timer);

    (void)sp_fail(&rf->file->error, SP_E_SYSTEM, ETIMEDOUT, "the exec-server gave no answer");
    finish_file(rf);
}

/* ---- asking ---- */

static bool add_data(struct sp_buf *b, struct sp_str data)
{
    char *room;

    if (!sp_buf_printf(b, ",\"dataBase64\":\""))
        return false;
    room = sp_buf_room(b, SP_BASE64_LEN(data.n) + 1);
    if (room == NULL)
        return false;
    b->len += (size_t)(sp_base64_encode(room, data.p, data.n) - room);
    return sp_buf_add(b, "\"", 1);
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask for a file");
}

static int write_params(struct sp_buf *b, const struct sp_backend_file *f, struct sp_err *e)
{
    const bool is_copy = f->op == SP_BACKEND_COPY;
    bool ok = sp_buf_printf(b, is_copy ? "{\"sourcePath\":" : "{\"path\":");
    int r = ok ? sp_remote_add_uri(b, sp_str_of(f->path), e) : no_memory(e);

    if (r == 0 && is_copy) {
        r = sp_buf_printf(b, ",\"destinationPath\":")
                ? sp_remote_add_uri(b, sp_str_of(f->target), e)
                : no_memory(e);
    }
    if (r < 0)
        return r;
    if (f->op == SP_BACKEND_MAKE_DIR)
        ok = sp_buf_printf(b, ",\"recursive\":true");
    else if (is_copy)
        ok = sp_buf_printf(b, ",\"recursive\":false");
    else if (f->op == SP_BACKEND_REMOVE)
        ok = sp_buf_printf(b, ",\"recursive\":false,\"force\":false");
    else if (f->op == SP_BACKEND_WRITE)
        ok = add_data(b, f->data);
    if (ok && f->refuses_links && !is_copy)
        ok = sp_buf_printf(b, ",\"followSymlinks\":false");
    if (!ok || !sp_buf_printf(b, ",\"sandbox\":"))
        return no_memory(e);
    r = sp_remote_add_sandbox(b, f->policy, e);
    return r < 0 ? r : sp_buf_add(b, "}", 1) ? 0 : no_memory(e);
}

static const char *method_of(enum sp_backend_file_op op)
{
    static const char *const names[] = {
        [SP_BACKEND_STAT] = "fs/getMetadata",         [SP_BACKEND_READ] = "fs/readFile",
        [SP_BACKEND_WRITE] = "fs/writeFile",          [SP_BACKEND_COPY] = "fs/copy",
        [SP_BACKEND_MAKE_DIR] = "fs/createDirectory", [SP_BACKEND_REMOVE] = "fs/remove",
    };

    return names[op];
}

int sp_remote_ask_file(struct sp_backend *b, struct sp_backend_file *f, struct sp_err *e)
{
    struct sp_remote *r = SP_CONTAINER(b, struct sp_remote, backend);
    auto_buf struct sp_buf params = {0};
    int err = write_params(&params, f, e);

    if (err == 0)
        err = sp_remote_need_client(r, e);
    if (err < 0)
        return err;
    struct sp_remote_file *rf = calloc(1, sizeof *rf);
    if (rf == NULL)
        return no_memory(e);
    *rf = (struct sp_remote_file){.remote = r, .file = f, .next = r->files};
    if (r->files != NULL)
        r->files->prev = rf;
    r->files = rf;
    f->impl = rf;
    rf->request.fn = on_file_answer;
    rf->request.is_repeatable = f->op == SP_BACKEND_STAT || f->op == SP_BACKEND_READ;
    if (!sp_loop_timer(b->loop, &rf->timer, sp_loop_now(b->loop) + ANSWER_MS, on_file_late)) {
        free_file(rf);
        return no_memory(e);
    }
    sp_client_ask(r->client, &rf->request, method_of(f->op), sp_buf_str(&params));
    return 0;
}
