/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task: one request from its beginning to its end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "core/http_worker_priv.h"

#define SEALS       (F_SEAL_SHRINK | F_SEAL_WRITE)
#define URL_SHOWN   160 /* characters of an address in an error */
#define THREADS_MAX 1024
#define ROOM_ENOUGH (64U << 10)

/* ---- ends ---- */

void sp_web_task_free(struct sp_web_task *t)
{
    if (t->prev != NULL)
        t->prev->next = t->next;
    else if (t->worker->first == t)
        t->worker->first = t->next;
    if (t->next != NULL)
        t->next->prev = t->prev;
    sp_curl_end(t->worker->curl, &t->transfer);
    if (t->memory != NULL)
        (void)munmap(t->memory, t->memory_len);
    sp_buf_done(&t->fields);
    sp_buf_done(&t->head);
    sp_buf_done(&t->location);
    free(t->method);
    free(t->url);
    free(t->next_url);
    free(t->out);
    free(t);
}

static void say_done(struct sp_web_task *t, const char *why)
{
    const size_t n = why == NULL ? 0 : strnlen(why, SP_WEB_MAX_WHY);

    sp_web_say(t->worker, SP_WEB_DONE, t->number, why != NULL, (struct sp_str){why, n});
    sp_web_task_free(t);
}

static void fail(struct sp_web_task *t, const char *why)
{
    char text[SP_WEB_MAX_WHY];

    if (t->is_head_sent)
        (void)snprintf(text, sizeof text, "error decoding response body: %s", why);
    else
        (void)snprintf(text, sizeof text, "error sending request for url (%.*s%s): %s", URL_SHOWN,
                       t->url, strlen(t->url) > URL_SHOWN ? "..." : "", why);
    say_done(t, text);
}

/* ---- the body ---- */

void sp_web_task_flush(struct sp_web_task *t)
{
    if (t->out_len == 0)
        return;
    sp_web_say(t->worker, SP_WEB_BODY, t->number, 0, (struct sp_str){t->out, t->out_len});
    t->window -= t->out_len;
    t->out_len = 0;
}

static struct sp_web_task *task_of(struct sp_curl_transfer *transfer)
{
    return SP_CONTAINER(transfer, struct sp_web_task, transfer);
}

static enum sp_curl_taken on_body(struct sp_curl_transfer *transfer, struct sp_str bytes)
{
    struct sp_web_task *t = task_of(transfer);

    if (!t->is_head_sent || bytes.n > SP_WEB_PIECE)
        return SP_CURL_STOP; /* of a redirect */
    if (t->out == NULL && (t->out = malloc(SP_WEB_PIECE)) == NULL) {
        t->refusal = "no memory";
        return SP_CURL_STOP;
    }
    if (t->out_len + bytes.n > SP_WEB_PIECE)
        sp_web_task_flush(t);
    if (t->out_len + bytes.n > t->window) {
        sp_web_task_flush(t);
        t->is_paused = true;
        return SP_CURL_LATER;
    }
    memcpy(t->out + t->out_len, bytes.p, bytes.n);
    t->out_len += bytes.n;
    return SP_CURL_TAKEN;
}

void sp_web_task_take(struct sp_web_task *t, uint64_t bytes)
{
    t->window += bytes;
    if (t->window > SP_WEB_WINDOW)
        t->window = SP_WEB_WINDOW;
    if (t->is_paused && t->window >= ROOM_ENOUGH) {
        t->is_paused = false;
        sp_curl_resume(t->worker->curl, &t->transfer);
    }
}

/* ---- the request ---- */

static enum sp_curl_taken on_line(struct sp_curl_transfer *transfer, struct sp_str line)
{
    return sp_web_response_line(task_of(transfer), line);
}

static void begin_transfer(struct sp_web_task *t);

static void on_done(struct sp_curl_transfer *transfer, const char *why)
{
    struct sp_web_task *t = task_of(transfer);

    sp_web_task_flush(t);
    if (t->refusal != NULL && t->is_redirect_refused)
        say_done(t, t->refusal);
    else if (t->refusal != NULL)
        fail(t, t->refusal);
    else if (t->next_url != NULL && sp_web_redirect(t))
        begin_transfer(t);
    else if (t->next_url != NULL)
        fail(t, "no memory");
    else if (t->is_head_sent && (t->is_stopped || why == NULL))
        say_done(t, NULL);
    else
        fail(t, why == NULL ? "the server sent no response" : why);
}

static const struct sp_curl_ops ops = {.line = on_line, .body = on_body, .done = on_done};

static void begin_transfer(struct sp_web_task *t)
{
    const uint64_t now = sp_web_worker_now();
    const struct sp_curl_ask ask = {
        .method = t->method,
        .url = t->url,
        .fields = {t->fields.data, t->fields.len},
        .body = t->body,
        .timeout_ms = t->deadline_ms == UINT64_MAX ? SP_WEB_NO_TIMEOUT : t->deadline_ms - now,
    };
    struct sp_err e = {0};

    t->head_read = 0;
    t->status = 0;
    if (t->deadline_ms <= now)
        fail(t, "the time for it has passed");
    else if (sp_curl_begin(t->worker->curl, &t->transfer, &ask, &e) < 0)
        fail(t, e.msg);
}

static char *copy(const char *p, size_t n)
{
    return memchr(p, 0, n) != NULL ? NULL : strndup(p, n);
}

/* Nobody can change or cut it while we read. */
static bool map(struct sp_web_task *t, const struct sp_web_order *o, int fd)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    t->memory_len = sp_web_order_size(o);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 ||
        (uint64_t)st.st_size < t->memory_len)
        return false;
    void *p = mmap(NULL, t->memory_len, PROT_READ, MAP_PRIVATE, fd, 0);
    t->memory = p == MAP_FAILED ? NULL : p;
    return t->memory != NULL;
}

static bool read_order(struct sp_web_task *t, const struct sp_web_order *o)
{
    const char *p = t->memory;
    auto_free char *url = NULL;

    t->method = copy(p, o->method_len);
    p += o->method_len;
    url = copy(p, o->url_len);
    p += o->url_len;
    const struct sp_str fields = {p, o->fields_len};
    t->body = (struct sp_str){p + o->fields_len, o->body_len};
    if (t->method == NULL || url == NULL ||
        !sp_web_is_token((struct sp_str){t->method, o->method_len}) ||
        !sp_web_fields_are_whole(fields) || !sp_buf_add_str(&t->fields, fields))
        return false;
    t->url = sp_curl_join(t->worker->curl, url, url);
    if (t->url == NULL) /* it will say what is wrong with it */
        t->url = TAKE_PTR(url);
    return true;
}

/* A name that nobody waits for any more is looked up to its end, by a thread of its own. */
static bool has_too_many_threads(void)
{
    struct stat st;

    return stat("/proc/self/task", &st) == 0 && st.st_nlink > THREADS_MAX;
}

int sp_web_task_begin(struct sp_web_worker *w, const struct sp_web_order *o, int memory)
{
    struct sp_web_task *t = calloc(1, sizeof *t);
    const uint64_t now = sp_web_worker_now();

    if (t == NULL)
        return -ENOMEM;
    *t = (struct sp_web_task){.worker = w,
                              .next = w->first,
                              .transfer = {.ops = &ops},
                              .number = o->head.number,
                              .follows = (o->head.value & SP_WEB_FOLLOWS) != 0,
                              .deadline_ms = UINT64_MAX,
                              .window = SP_WEB_WINDOW};
    if (w->first != NULL)
        w->first->prev = t;
    w->first = t;
    if (o->timeout_ms < UINT64_MAX - now)
        t->deadline_ms = now + o->timeout_ms;
    if (!map(t, o, memory) || !read_order(t, o)) {
        say_done(t, "the request could not be read");
        return 0;
    }
    if (has_too_many_threads())
        fail(t, "too many names are being looked up; try it again in a minute");
    else
        begin_transfer(t);
    return 0;
}
