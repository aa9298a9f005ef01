/* SPDX-License-Identifier: Apache-2.0 */
/* discover: asking for a file of a root, and what is said when it cannot be had. */
#include <errno.h>
#include <stdio.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "server/rpc/discover.h"
#include "server/rpc/fs.h"

/* ---- saying ---- */

bool sp_root_charge(struct sp_root *r, size_t bytes)
{
    struct sp_discovery *all = r->all;
    struct sp_err e = {0};

    if (bytes > SP_DISCOVER_ANSWER - all->bytes || sp_request_charge(all->request, bytes, &e) < 0)
        return false;
    all->bytes += bytes;
    return true;
}

/* What does not fit any more is not said: the one who reads 48 MiB of it knows. */
void sp_root_say(struct sp_root *r, struct sp_str text)
{
    const size_t before = r->warnings.len;

    if (!sp_root_charge(r, text.n + 8) || (before != 0 && !sp_buf_add(&r->warnings, ",", 1)) ||
        !sp_json_add_str(&r->warnings, text))
        r->warnings.len = before;
}

void sp_root_warn(struct sp_root *r, const char *before, const char *path, const char *after)
{
    auto_buf struct sp_buf text = {0};

    if (sp_buf_printf(&text, "%s", before) && sp_uri_add(&text, sp_str_of(path)) &&
        sp_buf_printf(&text, "%s", after))
        sp_root_say(r, (struct sp_str){text.data, text.len});
}

/* ": WHY", for an answer or a refusal to give one. */
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
        (void)sp_json_add_str(&r->error, (struct sp_str){text.data, text.len});
    sp_root_ended(r);
}

/* ---- asking ---- */

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

/* ---- one file ---- */

/* How the reference's library puts it. */
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

static void take_text(struct sp_root *r, const struct sp_file_answer *a)
{
    char why[96];

    if (a->data_len > SP_DISCOVER_FILE || a->data_len > SP_DISCOVER_BUNDLE - r->bundle) {
        sp_root_warn(r, "capability file ", r->path, " exceeded its read limit");
        return;
    }
    if (sp_buf_room(&r->text, a->data_len + 1) == NULL) {
        sp_root_warn(r, "failed to read capability file ", r->path, ": out of memory");
        return;
    }
    (void)sp_buf_add(&r->text, a->window, a->data_len); /* a copy, then it is judged */
    const struct sp_str s = {r->text.data, r->text.len};
    const size_t good = sp_utf8_valid_prefix(s);
    if (good != s.n) {
        put_bad_utf8(s, good, why, sizeof why);
        sp_root_warn(r, "capability file ", r->path, why);
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
        sp_root_warn(r, "capability file ", r->path, " exceeded its read limit");
    } else if (a == NULL || a->err != 0 || a->refusal != SP_FILE_NOT_REFUSED) {
        put_reason(a, e, why, sizeof why);
        sp_root_warn(r, "failed to read capability file ", r->path, why);
    } else {
        take_text(r, a);
    }
    r->then(r);
}

static void on_looked(struct sp_files_call *call, const struct sp_file_answer *a,
                      const struct sp_err *e)
{
    struct sp_root *r = SP_CONTAINER(call, struct sp_root, call);
    char why[192];

    if (a == NULL || (a->err != 0 && a->err != ENOENT)) {
        put_reason(a, e, why, sizeof why);
        sp_root_warn(r, "failed to inspect capability file ", r->path, why);
    } else if (a->err == 0 && a->stat.is_file && a->stat.size > SP_DISCOVER_FILE) {
        (void)snprintf(why, sizeof why, " exceeds the %u-byte limit", SP_DISCOVER_FILE);
        sp_root_warn(r, "capability file ", r->path, why);
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
    sp_root_ask(r, SP_FILE_STAT, r->path, on_looked);
}

bool sp_root_add_file(struct sp_root *r, struct sp_buf *to)
{
    const size_t before = to->len;
    bool ok = sp_buf_printf(to, "{\"path\":\"") && sp_uri_add(to, sp_str_of(r->path)) &&
              sp_buf_printf(to, "\",\"contents\":") &&
              sp_json_add_str(to, (struct sp_str){r->text.data, r->text.len}) &&
              sp_buf_add(to, "}", 1);

    ok = ok && sp_root_charge(r, to->len - before);
    if (!ok) {
        to->len = before;
        sp_root_warn(r, "capability discovery exceeds the limit of one answer (file: ", r->path,
                     ")");
    }
    return ok;
}
