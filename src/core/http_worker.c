/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_worker: the process that speaks HTTP: one task for each request of the front, from the order
 * to DONE, with all its redirects. libcurl calls back with lines of the head and pieces of the
 * body; redirects are followed here, because fields meant for one origin must not go to another.
 *
 * libcurl is loaded with dlopen: processes that never speak HTTP do not load it, and hosts without
 * it get an error message.
 */
#include "core/http_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef SP_HAVE_CURL
#include <curl/curl.h>
#include <dlfcn.h>
#include <limits.h>
#endif

#include "base/auto.h"
#include "base/clock.h"
#include "os/fd.h"

#define REDIRECTS_MAX 10
#define SEALS         (F_SEAL_SHRINK | F_SEAL_WRITE)
#define URL_SHOWN     160 /* characters of a URL in an error message */
#define THREADS_MAX   1024
#define ROOM_ENOUGH   (64U << 10)

/* ---- messages to the front ---- */

/* Blocks until the front has taken the message. */
static void send_message(struct sp_web_worker *w, enum sp_web_op op, uint64_t number,
                         uint64_t value, struct sp_str bytes)
{
    struct sp_web_message m = {.version = SP_WEB_VERSION,
                               .op = (uint16_t)op,
                               .len = (uint32_t)bytes.n,
                               .number = number,
                               .value = value};
    struct iovec iov[2] = {{.iov_base = &m, .iov_len = sizeof m},
                           {.iov_base = (void *)(uintptr_t)bytes.p, .iov_len = bytes.n}};
    struct msghdr h = {.msg_iov = iov, .msg_iovlen = bytes.n != 0 ? 2 : 1};

    while (sendmsg(w->socket, &h, MSG_NOSIGNAL) < 0)
        if (errno != EINTR) {
            w->is_over = true;
            return;
        }
}

static int refuse_all(struct sp_web_worker *w, const struct sp_err *e)
{
    send_message(w, SP_WEB_UNABLE, 0, 0, sp_str_of(e->msg));
    return -(int)e->code;
}

#ifndef SP_HAVE_CURL

int sp_web_worker_run(int socket, struct sp_err *e)
{
    struct sp_web_worker w = {.socket = socket};

    (void)sp_fail(e, SP_E_STATE, 0,
                  "this sallyport was built without it: build it where libcurl's headers are "
                  "(Debian: the package libcurl4-openssl-dev)");
    return refuse_all(&w, e);
}

#else

/* ---- libcurl ---- */

#define LIBRARY "libcurl.so.4"

/* clang-format off */
#define FUNCTIONS(X)                                                            \
    X(global_init) X(easy_init) X(easy_setopt) X(easy_getinfo)                  \
    X(easy_cleanup) X(easy_pause) X(easy_strerror) X(multi_init)                \
    X(multi_setopt) X(multi_add_handle) X(multi_remove_handle) X(multi_perform) \
    X(multi_poll) X(multi_info_read) X(slist_append) X(slist_free_all)          \
    X(url) X(url_cleanup) X(url_set) X(url_get)                                 \
    X(free)
/* clang-format on */

struct sp_curl {
    CURLM *multi;
#define X(name) __typeof__(curl_##name) *(name);
    FUNCTIONS(X)
#undef X
};

static bool find_all(struct sp_curl *c, void *library)
{
    void *symbol;

#define X(name)                             \
    symbol = dlsym(library, "curl_" #name); \
    if (symbol == NULL)                     \
        return false;                       \
    memcpy(&c->name, &symbol, sizeof c->name);
    FUNCTIONS(X)
#undef X
    return true;
}

static int open_curl(struct sp_curl **ret, struct sp_err *e)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    struct sp_curl *c = calloc(1, sizeof *c);

    *ret = c;
    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open " LIBRARY);
    if (library == NULL)
        return sp_fail(e, SP_E_STATE, 0, "%s; install libcurl (Debian: the package libcurl4)",
                       dlerror());
    if (!find_all(c, library))
        return sp_fail(e, SP_E_STATE, 0, "%s; install a newer libcurl", dlerror());
    if (c->global_init(CURL_GLOBAL_ALL) != CURLE_OK || (c->multi = c->multi_init()) == NULL)
        return sp_fail(e, SP_E_STATE, 0, LIBRARY " cannot be used");
    (void)c->multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, 64L); /* idle connections to keep */
    return 0;
}

#define READ_FLAGS (CURLU_URLENCODE | CURLU_NON_SUPPORT_SCHEME)

/* Resolves a reference against a base URL; drops user, fragment and default port. NULL: invalid.
 * The caller frees. */
static char *join_urls(struct sp_curl *c, const char *base, const char *reference)
{
    CURLU *u = c->url();
    char *text = NULL;
    char *joined = NULL;

    if (u != NULL && c->url_set(u, CURLUPART_URL, base, READ_FLAGS) == CURLUE_OK &&
        c->url_set(u, CURLUPART_URL, reference, READ_FLAGS) == CURLUE_OK) {
        (void)c->url_set(u, CURLUPART_FRAGMENT, NULL, 0);
        (void)c->url_set(u, CURLUPART_USER, NULL, 0);
        (void)c->url_set(u, CURLUPART_PASSWORD, NULL, 0);
        if (c->url_get(u, CURLUPART_URL, &text, CURLU_NO_DEFAULT_PORT) == CURLUE_OK)
            joined = strdup(text);
        c->free(text);
    }
    c->url_cleanup(u);
    return joined;
}

/* ---- redirects ---- */

static struct sp_str scheme_of(const char *url)
{
    return (struct sp_str){url, strcspn(url, ":")};
}

/* "http://host:port" */
static struct sp_str origin_of(const char *url)
{
    const char *colon = strstr(url, "://");
    const size_t before = colon == NULL ? 0 : (size_t)(colon - url) + 3;

    return (struct sp_str){url, before + strcspn(url + before, "/?#")};
}

/* Returns false: the transfer ends. */
static bool refuse(struct sp_web_task *t, const char *why)
{
    t->refusal = why;
    return false;
}

/* Sets t->next_url. A response without a usable Location is passed on as it is. false: the rest of
 * this response is not needed, or the redirect is refused. */
static bool find_next_url(struct sp_web_task *t)
{
    const bool is_redirect =
        (t->status >= 301 && t->status <= 303) || t->status == 307 || t->status == 308;

    if (!t->follows || !is_redirect || !t->has_location || !sp_buf_add(&t->location, "", 1))
        return true;
    t->next_url = join_urls(t->worker->curl, t->url, t->location.data);
    if (t->next_url == NULL)
        return true;
    const struct sp_str scheme = scheme_of(t->next_url);
    if (!sp_str_eq(scheme, SP_STR("http")) && !sp_str_eq(scheme, SP_STR("https"))) {
        (void)snprintf(t->refusal_text, sizeof t->refusal_text,
                       "redirect target uses unsupported URL scheme: %.*s",
                       (int)(scheme.n > 40 ? 40 : scheme.n), scheme.p);
        t->is_redirect_refused = true;
        return refuse(t, t->refusal_text);
    }
    if (t->redirects == REDIRECTS_MAX) {
        t->is_redirect_refused = true;
        return refuse(t, "too many redirects");
    }
    /* The body is not needed. An empty one is read to its end, so that the connection can be
     * reused. */
    return t->is_empty;
}

static bool is_about_body(struct sp_str name)
{
    return sp_str_eq(name, SP_STR("content-type")) || sp_str_eq(name, SP_STR("content-encoding")) ||
           sp_str_eq(name, SP_STR("content-length")) ||
           sp_str_eq(name, SP_STR("transfer-encoding"));
}

/* Credentials and Host are for one origin only. */
static bool stays_behind(const struct sp_web_field *f)
{
    return f->is_private || sp_str_eq(f->name, SP_STR("authorization")) ||
           sp_str_eq(f->name, SP_STR("cookie")) || sp_str_eq(f->name, SP_STR("cookie2")) ||
           sp_str_eq(f->name, SP_STR("proxy-authorization")) ||
           sp_str_eq(f->name, SP_STR("www-authenticate")) || sp_str_eq(f->name, SP_STR("host"));
}

/* Turns the request into the one for t->next_url. false: no memory. */
static bool follow_redirect(struct sp_web_task *t)
{
    const bool is_post = strcmp(t->method, "POST") == 0;
    const bool becomes_get = t->status == 303 || (t->status <= 302 && is_post);
    const bool is_same_origin = sp_str_eq_nocase(origin_of(t->url), origin_of(t->next_url));
    struct sp_str rest = sp_buf_str(&t->fields);
    struct sp_web_field field;
    auto_buf struct sp_buf fields = {.max = SP_WEB_MAX_FIELDS + (size_t)SP_WEB_MAX_URL + 64};
    bool ok = true;

    while (ok && sp_web_field_next(&rest, &field))
        if (!(becomes_get && is_about_body(field.name)) &&
            (is_same_origin || !stays_behind(&field)) && !sp_str_eq(field.name, SP_STR("referer")))
            ok = sp_web_field_put(&fields, &field);
    /* Another origin gets the origin alone; nothing goes from https to http. */
    if (!sp_str_eq(scheme_of(t->url), SP_STR("https")) ||
        sp_str_eq(scheme_of(t->next_url), SP_STR("https"))) {
        auto_buf struct sp_buf origin = {0};

        ok = ok && sp_buf_add_str(&origin, origin_of(t->url)) && sp_buf_add(&origin, "/", 1) &&
             sp_web_field_add(&fields, SP_STR("referer"),
                              is_same_origin ? sp_str_of(t->url) : sp_buf_str(&origin));
    }
    if (ok && becomes_get) {
        char *get = strdup(strcmp(t->method, "HEAD") == 0 ? "HEAD" : "GET");

        ok = get != NULL;
        free(t->method);
        t->method = get;
        t->body = (struct sp_str){0};
    }
    if (!ok)
        return false;
    const struct sp_buf old = t->fields;
    t->fields = fields;
    fields = old;
    free(t->url);
    t->url = TAKE_PTR(t->next_url);
    t->redirects++;
    return true;
}

/* ---- the head of a response ---- */

static bool end_head(struct sp_web_task *t)
{
    if (t->status >= 100 && t->status < 200 && t->status != 101)
        return true; /* the final response follows */
    const bool goes_on = find_next_url(t);
    if (t->next_url != NULL || t->refusal != NULL)
        return goes_on;
    for (size_t at = 0; at < t->head.len; at += SP_WEB_PIECE) {
        const size_t left = t->head.len - at;

        send_message(t->worker, SP_WEB_FIELDS, t->number, 0,
                     (struct sp_str){t->head.data + at, left < SP_WEB_PIECE ? left : SP_WEB_PIECE});
    }
    send_message(t->worker, SP_WEB_HEAD, t->number, (uint64_t)t->status, SP_STR(""));
    t->is_head_sent = true;
    /* After 101 another protocol follows; HEAD with a body has no response body. */
    t->is_stopped = t->status == 101 || (strcmp(t->method, "HEAD") == 0 && t->body.n > 0);
    return !t->is_stopped;
}

/* A field value in ASCII: others are left out. */
static bool is_visible(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] > 0x7e)
            return false;
    return sp_web_is_value(s);
}

static bool keep_field(struct sp_web_task *t, struct sp_str line, const char *colon)
{
    const struct sp_str given = {line.p, (size_t)(colon - line.p)};
    const struct sp_str value = sp_str_trim((struct sp_str){colon + 1, line.n - given.n - 1});
    auto_buf struct sp_buf lower = {0};
    bool ok = true;

    if (!sp_web_is_token(given))
        return true;
    if (!sp_web_add_lower(&lower, given))
        return false;
    const struct sp_str name = sp_buf_str(&lower);
    if (sp_str_eq(name, SP_STR("location")) && !t->has_location && !sp_str_has_nul(value)) {
        t->has_location = sp_buf_add_str(&t->location, value);
        ok = t->has_location;
    }
    if (sp_str_eq(name, SP_STR("content-length"))) {
        struct sp_str rest = sp_buf_str(&t->head);
        struct sp_web_field f;

        t->is_empty = sp_str_eq(value, SP_STR("0"));
        while (sp_web_field_next(&rest, &f))
            if (sp_str_eq(f.name, name) && !sp_str_eq(f.value, value)) {
                t->refusal = "the response has two lengths"; /* request smuggling */
                return true;
            }
    }
    return ok && (!is_visible(value) || sp_web_field_add(&t->head, name, value));
}

bool sp_web_response_line(struct sp_web_task *t, struct sp_str line)
{
    if (t->is_head_sent || t->next_url != NULL) /* a trailer */
        return true;
    if (line.n == 0)
        return end_head(t);
    t->head_read += line.n + 16;
    if (t->head_read > SP_WEB_MAX_HEAD)
        return refuse(t, "the head of the response is larger than 262144 bytes");
    if (line.n >= 5 && memcmp(line.p, "HTTP/", 5) == 0) { /* "HTTP/1.1 200 OK", "HTTP/2 200" */
        const char *space = memchr(line.p, ' ', line.n);
        const size_t at = space == NULL ? line.n : (size_t)(space - line.p) + 1;
        uint64_t status = 0;

        if (at + 3 > line.n || !sp_str_to_u64((struct sp_str){line.p + at, 3}, 999, &status) ||
            status < 100)
            return refuse(t, "the response has no status");
        t->status = (int)status;
        t->head.len = 0;
        t->location.len = 0;
        t->has_location = false;
        t->is_empty = false;
        return true;
    }
    if (line.p[0] == ' ' || line.p[0] == '\t')
        return refuse(t, "a header line of the response begins with white space");
    const char *colon = memchr(line.p, ':', line.n);
    if (colon == NULL)
        return true;
    if (!keep_field(t, line, colon))
        return refuse(t, "no memory");
    return t->refusal == NULL;
}

/* ---- the end of a task ---- */

/* Fine if not begun. Must not be called in libcurl's callbacks. */
static void end_transfer(struct sp_web_task *t)
{
    struct sp_curl *c = t->worker->curl;

    if (t->easy != NULL) {
        (void)c->multi_remove_handle(c->multi, t->easy); /* fails if it was not added */
        c->easy_cleanup(t->easy);
    }
    c->slist_free_all(t->lines);
    t->easy = NULL;
    t->lines = NULL;
}

static void free_task(struct sp_web_task *t)
{
    sp_list_remove(&t->link);
    end_transfer(t);
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

static void send_done(struct sp_web_task *t, const char *why)
{
    const size_t n = why == NULL ? 0 : strnlen(why, SP_WEB_MAX_WHY);

    send_message(t->worker, SP_WEB_DONE, t->number, why != NULL, (struct sp_str){why, n});
    free_task(t);
}

static void fail_task(struct sp_web_task *t, const char *why)
{
    char text[SP_WEB_MAX_WHY];

    if (t->is_head_sent)
        (void)snprintf(text, sizeof text, "error decoding response body: %s", why);
    else
        (void)snprintf(text, sizeof text, "error sending request for url (%.*s%s): %s", URL_SHOWN,
                       t->url, strlen(t->url) > URL_SHOWN ? "..." : "", why);
    send_done(t, text);
}

/* ---- the body of a response ---- */

static void flush_body(struct sp_web_task *t)
{
    if (t->out_len == 0)
        return;
    send_message(t->worker, SP_WEB_BODY, t->number, 0, (struct sp_str){t->out, t->out_len});
    t->window -= t->out_len;
    t->out_len = 0;
}

/* ---- callbacks of libcurl: `size` is always 1 ---- */

static size_t on_line(char *p, size_t size, size_t n, void *task)
{
    struct sp_str line = {p, n};

    (void)size;
    while (line.n > 0 && (p[line.n - 1] == '\n' || p[line.n - 1] == '\r'))
        line.n--;
    return sp_web_response_line(task, line) ? n : 0;
}

static size_t on_body(char *p, size_t size, size_t n, void *task)
{
    struct sp_web_task *t = task;

    (void)size;
    if (!t->is_head_sent || n > SP_WEB_PIECE)
        return CURL_WRITEFUNC_ERROR; /* the body of a redirect */
    if (t->out == NULL && (t->out = malloc(SP_WEB_PIECE)) == NULL) {
        t->refusal = "no memory";
        return CURL_WRITEFUNC_ERROR;
    }
    if (t->out_len + n > SP_WEB_PIECE)
        flush_body(t);
    if (t->out_len + n > t->window) {
        flush_body(t);
        t->is_paused = true;
        return CURL_WRITEFUNC_PAUSE; /* the same bytes again after easy_pause */
    }
    memcpy(t->out + t->out_len, p, n);
    t->out_len += n;
    return n;
}

static size_t on_upload(char *p, size_t size, size_t room, void *task)
{
    struct sp_web_task *t = task;
    const size_t left = t->body.n - t->body_at;
    const size_t n = left < room * size ? left : room * size;

    memcpy(p, t->body.p + t->body_at, n);
    t->body_at += n;
    return n;
}

/* If the server has closed an idle connection, libcurl sends the request again on a new one. */
static int on_seek(void *task, curl_off_t offset, int origin)
{
    struct sp_web_task *t = task;

    if (t->is_once || origin != SEEK_SET || offset < 0 || (size_t)offset > t->body.n)
        return CURL_SEEKFUNC_FAIL;
    t->body_at = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* ---- the request ---- */

static bool add_line(struct sp_web_task *t, const char *line)
{
    struct curl_slist *more = t->worker->curl->slist_append(t->lines, line);

    if (more != NULL)
        t->lines = more;
    return more != NULL;
}

/* In libcurl "name:" removes a field, and "name;" is a field without a value. */
static bool add_lines(struct sp_web_task *t)
{
    struct sp_str rest = sp_buf_str(&t->fields);
    struct sp_web_field f;
    bool has_expect = false;

    while (sp_web_field_next(&rest, &f)) {
        auto_buf struct sp_buf line = {0};

        f.value = sp_str_trim(f.value);
        has_expect = has_expect || sp_str_eq(f.name, SP_STR("expect"));
        if (sp_str_eq(f.name, SP_STR("content-length")) ||
            sp_str_eq(f.name, SP_STR("transfer-encoding")))
            continue; /* set by libcurl */
        if (!sp_buf_add_str(&line, f.name) || !sp_buf_add_str(&line, SP_STR(": ")) ||
            !sp_buf_add_str(&line, f.value) || !sp_buf_add(&line, "", 1))
            return false;
        if (f.value.n == 0)
            memcpy(line.data + f.name.n, ";", 2);
        if (!add_line(t, line.data))
            return false;
    }
    return (has_expect || add_line(t, "Expect:")) && add_line(t, "Proxy-Connection:");
}

#define SET(option, value) \
    r = r == CURLE_OK ? c->easy_setopt(t->easy, CURLOPT_##option, (value)) : r

/* Hands the current request to libcurl, with ms left (0: no limit). */
static CURLcode set_up(struct sp_web_task *t, long ms)
{
    static const char *const idempotent[] = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"};
    const char *certificates = getenv("SSL_CERT_FILE");
    const char *directory = getenv("SSL_CERT_DIR");
    struct sp_curl *c = t->worker->curl;

    t->body_at = 0;
    t->is_once = true;
    for (size_t i = 0; i < sizeof idempotent / sizeof idempotent[0]; i++)
        t->is_once = t->is_once && strcmp(t->method, idempotent[i]) != 0;
    t->why[0] = 0;
    t->easy = c->easy_init();
    CURLcode r = t->easy != NULL && add_lines(t) ? CURLE_OK : CURLE_OUT_OF_MEMORY;

    /* All requests: nothing but HTTP, no files of the user, no cookies. */
    SET(PROTOCOLS_STR, "http,https");
    SET(NOSIGNAL, 1L);
    /* Dropping a transfer does not wait for its name lookup. Unknown to older versions: ignored. */
    if (r == CURLE_OK)
        (void)c->easy_setopt(t->easy, CURLOPT_QUICK_EXIT, 1L);
    SET(SUPPRESS_CONNECT_HEADERS, 1L);
    SET(PRIVATE, t);
    SET(ERRORBUFFER, t->why);
    SET(HEADERFUNCTION, on_line);
    SET(HEADERDATA, t);
    SET(WRITEFUNCTION, on_body);
    SET(WRITEDATA, t);
    if (certificates != NULL && certificates[0] != 0)
        SET(CAINFO, certificates);
    if (directory != NULL && directory[0] != 0)
        SET(CAPATH, directory);

    SET(URL, t->url);
    SET(TIMEOUT_MS, ms);
    if (t->body.n > 0) { /* any method may have a body */
        SET(UPLOAD, 1L);
        SET(INFILESIZE_LARGE, (curl_off_t)t->body.n);
        SET(READFUNCTION, on_upload);
        SET(READDATA, t);
        SET(SEEKFUNCTION, on_seek);
        SET(SEEKDATA, t);
    } else if (strcmp(t->method, "HEAD") == 0) {
        SET(NOBODY, 1L);
    }
    if (t->is_once && t->body.n == 0)
        SET(FRESH_CONNECT, 1L);
    SET(CUSTOMREQUEST, t->method);
    SET(HTTPHEADER, (struct curl_slist *)t->lines);
    return r == CURLE_OK && c->multi_add_handle(c->multi, t->easy) != CURLM_OK ? CURLE_FAILED_INIT
                                                                               : r;
}

#undef SET

static void begin_transfer(struct sp_web_task *t)
{
    const uint64_t now = sp_clock_ms();

    t->head_read = 0;
    t->status = 0;
    if (t->deadline_ms <= now) {
        fail_task(t, "the time for it has passed");
        return;
    }
    const uint64_t left = t->deadline_ms == UINT64_MAX ? 0 : t->deadline_ms - now;
    const CURLcode r = set_up(t, left > INT_MAX ? INT_MAX : (long)left);
    if (r != CURLE_OK)
        fail_task(t, t->worker->curl->easy_strerror(r));
}

/* Waits until fd is readable or a transfer has an event, and handles the transfers. */
static void run_transfers(struct sp_curl *c, int fd)
{
    struct curl_waitfd extra = {.fd = fd, .events = CURL_WAIT_POLLIN};
    int running = 0;
    int left = 0;
    CURLMsg *m;

    (void)c->multi_poll(c->multi, &extra, 1, 60000, NULL);
    (void)c->multi_perform(c->multi, &running);
    while ((m = c->multi_info_read(c->multi, &left)) != NULL) {
        const CURLcode result = m->data.result;
        char *task = NULL;
        long err = 0;

        if (m->msg != CURLMSG_DONE ||
            c->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &task) != CURLE_OK || task == NULL)
            continue;
        struct sp_web_task *t = (void *)task;
        const char *why = t->why[0] != 0 ? t->why : c->easy_strerror(result);
        if (result == CURLE_COULDNT_CONNECT &&
            c->easy_getinfo(t->easy, CURLINFO_OS_ERRNO, &err) == CURLE_OK && err != 0)
            why = strerror((int)err);
        end_transfer(t);
        flush_body(t);
        /* The task ends with the transfer, or follows a redirect. */
        if (t->refusal != NULL && t->is_redirect_refused)
            send_done(t, t->refusal);
        else if (t->refusal != NULL)
            fail_task(t, t->refusal);
        else if (t->next_url != NULL && follow_redirect(t))
            begin_transfer(t);
        else if (t->next_url != NULL)
            fail_task(t, "no memory");
        else if (t->is_head_sent && (t->is_stopped || result == CURLE_OK))
            send_done(t, NULL);
        else
            fail_task(t, result == CURLE_OK ? "the server sent no response" : why);
    }
}

/* false: the order is malformed, or there is no memory. */
static bool read_order(struct sp_web_task *t, const struct sp_web_order *o, int fd)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    auto_free char *url = NULL;
    struct stat st;

    /* The seals keep the memory from being changed or truncated while it is mapped. */
    t->memory_len = (size_t)o->method_len + o->url_len + o->fields_len + o->body_len;
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 ||
        (uint64_t)st.st_size < t->memory_len)
        return false;
    void *memory = mmap(NULL, t->memory_len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED)
        return false;
    t->memory = memory;

    const struct sp_str method = {t->memory, o->method_len};
    const struct sp_str address = {method.p + method.n, o->url_len};
    const struct sp_str fields = {address.p + address.n, o->fields_len};
    t->body = (struct sp_str){fields.p + fields.n, o->body_len};
    if (!sp_web_is_token(method) || sp_str_has_nul(address) || !sp_web_fields_are_whole(fields))
        return false;
    t->method = sp_str_dup(method);
    url = sp_str_dup(address);
    if (t->method == NULL || url == NULL || !sp_buf_add_str(&t->fields, fields))
        return false;
    t->url = join_urls(t->worker->curl, url, url);
    if (t->url == NULL) /* libcurl reports what is wrong with the URL */
        t->url = TAKE_PTR(url);
    return true;
}

static int begin_task(struct sp_web_worker *w, const struct sp_web_order *o, int memory)
{
    struct sp_web_task *t = calloc(1, sizeof *t);
    const uint64_t now = sp_clock_ms();
    struct stat st;

    if (t == NULL)
        return -ENOMEM;
    *t = (struct sp_web_task){.worker = w,
                              .number = o->head.number,
                              .follows = (o->head.value & SP_WEB_FOLLOWS) != 0,
                              .deadline_ms = UINT64_MAX,
                              .window = SP_WEB_WINDOW};
    sp_list_prepend(&w->tasks, &t->link);
    if (o->timeout_ms < UINT64_MAX - now)
        t->deadline_ms = now + o->timeout_ms;
    if (!read_order(t, o, memory)) {
        send_done(t, "the request could not be read");
        return 0;
    }
    /* libcurl finishes each name lookup in a thread, also for requests that were dropped. */
    if (stat("/proc/self/task", &st) == 0 && st.st_nlink > THREADS_MAX)
        fail_task(t, "too many names are being looked up; try it again in a minute");
    else
        begin_transfer(t);
    return 0;
}

/* ---- messages of the front ---- */

union received {
    struct sp_web_message m;
    struct sp_web_order order;
};

static void obey(struct sp_web_worker *w, const union received *h, int fd)
{
    struct sp_web_task *t = NULL;

    sp_list_each(i, &w->tasks)
        if (SP_CONTAINER(i, struct sp_web_task, link)->number == h->m.number)
            t = SP_CONTAINER(i, struct sp_web_task, link);
    if (h->m.op == SP_WEB_PING) {
        send_message(w, SP_WEB_PONG, h->m.number, 0, SP_STR(""));
    } else if (h->m.op == SP_WEB_ASK) {
        if (t != NULL || begin_task(w, &h->order, fd) < 0)
            w->is_over = true;
    } else if (t != NULL && h->m.op == SP_WEB_TAKE) {
        t->window += h->m.value; /* checked: at most SP_WEB_WINDOW */
        if (t->window > SP_WEB_WINDOW)
            t->window = SP_WEB_WINDOW;
        if (t->is_paused && t->window >= ROOM_ENOUGH) {
            t->is_paused = false;
            (void)w->curl->easy_pause(t->easy, CURLPAUSE_CONT);
        }
    } else if (t != NULL) {
        free_task(t);
    }
}

int sp_web_worker_run(int socket, struct sp_err *e)
{
    struct sp_web_worker w = {.socket = socket};

    if (open_curl(&w.curl, e) < 0)
        return refuse_all(&w, e);
    sp_list_init(&w.tasks);
    while (!w.is_over) {
        while (!w.is_over) {
            auto_close int fd = -1;
            union received h;
            struct iovec iov = {.iov_base = &h, .iov_len = sizeof h};
            struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
            int fd_count;
            const ssize_t n = sp_fd_recv(socket, &msg, MSG_DONTWAIT, &fd, 1, &fd_count);

            fd = fd_count == 0 ? -1 : sp_fd_lift(fd);
            if (n < 0 && errno == EAGAIN)
                break;
            if (n > 0 && (msg.msg_flags & MSG_TRUNC) == 0 &&
                sp_web_check(&h, (size_t)n, false, fd >= 0))
                obey(&w, &h, fd);
            else
                w.is_over = true; /* the end, or an invalid message */
        }
        if (!w.is_over)
            run_transfers(w.curl, socket);
        sp_list_each(i, &w.tasks)
            flush_body(SP_CONTAINER(i, struct sp_web_task, link));
    }
    for (struct sp_list *i; (i = sp_list_first(&w.tasks)) != NULL;)
        free_task(SP_CONTAINER(i, struct sp_web_task, link));
    return 0;
}

#endif
