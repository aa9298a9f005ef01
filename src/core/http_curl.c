/* SPDX-License-Identifier: Apache-2.0 */
#include "core/http_curl.h"

#ifdef SP_HAVE_CURL

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "core/http_message.h"

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

bool sp_curl_is_built_in(void)
{
    return true;
}

/* ---- opening ---- */

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

int sp_curl_open(struct sp_curl **ret, struct sp_err *e)
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

/* ---- callbacks ---- */

static struct sp_str trimmed_line(const char *p, size_t n)
{
    while (n > 0 && (p[n - 1] == '\n' || p[n - 1] == '\r'))
        n--;
    return (struct sp_str){p, n};
}

static size_t on_line(char *p, size_t size, size_t n, void *user)
{
    struct sp_curl_transfer *t = user;

    (void)size; /* 1 */
    return t->ops->line(t, trimmed_line(p, n)) == SP_CURL_TAKEN ? n : 0;
}

static size_t on_body(char *p, size_t size, size_t n, void *user)
{
    struct sp_curl_transfer *t = user;

    (void)size; /* 1 */
    switch (t->ops->body(t, (struct sp_str){p, n})) {
    case SP_CURL_TAKEN:
        return n;
    case SP_CURL_LATER:
        return CURL_WRITEFUNC_PAUSE;
    case SP_CURL_STOP:
        break;
    }
    return CURL_WRITEFUNC_ERROR;
}

static size_t on_upload(char *p, size_t size, size_t room, void *user)
{
    struct sp_curl_transfer *t = user;
    const size_t left = t->body.n - t->body_at;
    const size_t n = left < room * size ? left : room * size;

    memcpy(p, t->body.p + t->body_at, n);
    t->body_at += n;
    return n;
}

/* If the server has closed an idle connection, libcurl sends the request again on a new one. */
static int on_seek(void *user, curl_off_t offset, int origin)
{
    struct sp_curl_transfer *t = user;

    if (t->is_once || origin != SEEK_SET || offset < 0 || (size_t)offset > t->body.n)
        return CURL_SEEKFUNC_FAIL;
    t->body_at = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* ---- a transfer ---- */

static bool is_set_by_curl(struct sp_str name)
{
    return sp_str_eq(name, SP_STR("content-length")) ||
           sp_str_eq(name, SP_STR("transfer-encoding"));
}

static bool add_line(struct sp_curl *c, struct sp_curl_transfer *t, const char *line)
{
    struct curl_slist *more = c->slist_append(t->lines, line);

    if (more == NULL)
        return false;
    t->lines = more;
    return true;
}

/* In libcurl "name:" removes a field, and "name;" is a field without a value. */
static bool add_lines(struct sp_curl *c, struct sp_curl_transfer *t, struct sp_str fields)
{
    struct sp_str name;
    struct sp_str value;
    bool has_expect = false;

    while (sp_web_field_next(&fields, &name, &value)) {
        auto_buf struct sp_buf line = {0};

        value = sp_str_trim(value);
        has_expect = has_expect || sp_str_eq(name, SP_STR("expect"));
        if (is_set_by_curl(name))
            continue;
        if (!sp_buf_add_str(&line, name) || !sp_buf_add_str(&line, SP_STR(": ")) ||
            !sp_buf_add_str(&line, value) || !sp_buf_add(&line, "", 1))
            return false;
        if (value.n == 0)
            memcpy(line.data + name.n, ";", 2);
        if (!add_line(c, t, line.data))
            return false;
    }
    return (has_expect || add_line(c, t, "Expect:")) && add_line(c, t, "Proxy-Connection:");
}

static long milliseconds(uint64_t ms)
{
    if (ms == SP_WEB_NO_TIMEOUT)
        return 0;
    return ms > INT_MAX ? INT_MAX : ms == 0 ? 1 : (long)ms;
}

/* Idempotent methods. */
static bool is_repeatable(const char *method)
{
    static const char *const names[] = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(method, names[i]) == 0)
            return true;
    return false;
}

#define SET(option, value) \
    r = r == CURLE_OK ? c->easy_setopt(t->easy, CURLOPT_##option, (value)) : r

/* Options of all requests: nothing but HTTP, no files of the user, no cookies. */
static CURLcode set_common(struct sp_curl *c, struct sp_curl_transfer *t)
{
    const char *certificates = getenv("SSL_CERT_FILE");
    const char *directory = getenv("SSL_CERT_DIR");
    CURLcode r = CURLE_OK;

    SET(PROTOCOLS_STR, "http,https");
    SET(NOSIGNAL, 1L);
    /* Dropping a transfer does not wait for its name lookup. Unknown to older versions: ignored. */
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
    return r;
}

static CURLcode set_request(struct sp_curl *c, struct sp_curl_transfer *t,
                            const struct sp_curl_ask *ask)
{
    const bool has_body = ask->body.n > 0;
    CURLcode r = CURLE_OK;

    SET(URL, ask->url);
    SET(TIMEOUT_MS, milliseconds(ask->timeout_ms));
    if (has_body) { /* any method may have a body */
        SET(UPLOAD, 1L);
        SET(INFILESIZE_LARGE, (curl_off_t)ask->body.n);
        SET(READFUNCTION, on_upload);
        SET(READDATA, t);
        SET(SEEKFUNCTION, on_seek);
        SET(SEEKDATA, t);
    } else if (strcmp(ask->method, "HEAD") == 0) {
        SET(NOBODY, 1L);
    }
    if (t->is_once && !has_body)
        SET(FRESH_CONNECT, 1L);
    SET(CUSTOMREQUEST, ask->method);
    SET(HTTPHEADER, (struct curl_slist *)t->lines);
    return r;
}

#undef SET

int sp_curl_begin(struct sp_curl *c, struct sp_curl_transfer *t, const struct sp_curl_ask *ask,
                  struct sp_err *e)
{
    CURLcode r = CURLE_OUT_OF_MEMORY;

    t->body = ask->body;
    t->body_at = 0;
    t->is_once = !is_repeatable(ask->method);
    t->why[0] = 0;
    t->easy = c->easy_init();
    if (t->easy != NULL && add_lines(c, t, ask->fields))
        r = set_common(c, t);
    if (r == CURLE_OK)
        r = set_request(c, t, ask);
    if (r == CURLE_OK && c->multi_add_handle(c->multi, t->easy) == CURLM_OK)
        return 0;
    sp_curl_end(c, t);
    return sp_fail(e, SP_E_FAILED, 0, "%s",
                   c->easy_strerror(r == CURLE_OK ? CURLE_FAILED_INIT : r));
}

void sp_curl_resume(struct sp_curl *c, struct sp_curl_transfer *t)
{
    if (t->easy != NULL)
        (void)c->easy_pause(t->easy, CURLPAUSE_CONT);
}

void sp_curl_end(struct sp_curl *c, struct sp_curl_transfer *t)
{
    if (t->easy != NULL) {
        (void)c->multi_remove_handle(c->multi, t->easy); /* fails if it was not added */
        c->easy_cleanup(t->easy);
    }
    c->slist_free_all(t->lines);
    t->easy = NULL;
    t->lines = NULL;
}

/* ---- the loop ---- */

static const char *reason(struct sp_curl *c, const struct sp_curl_transfer *t, CURLcode result)
{
    long err = 0;

    if (result == CURLE_COULDNT_CONNECT &&
        c->easy_getinfo(t->easy, CURLINFO_OS_ERRNO, &err) == CURLE_OK && err != 0)
        return strerror((int)err);
    return t->why[0] != 0 ? t->why : c->easy_strerror(result);
}

static void finish(struct sp_curl *c, CURL *easy, CURLcode result)
{
    char why[sizeof((struct sp_curl_transfer *)NULL)->why];
    char *private = NULL;

    if (c->easy_getinfo(easy, CURLINFO_PRIVATE, &private) != CURLE_OK || private == NULL)
        return;
    struct sp_curl_transfer *t = (void *)private;
    (void)snprintf(why, sizeof why, "%s", reason(c, t, result));
    sp_curl_end(c, t);
    t->ops->done(t, result == CURLE_OK ? NULL : why);
}

void sp_curl_run(struct sp_curl *c, int fd)
{
    struct curl_waitfd extra = {.fd = fd, .events = CURL_WAIT_POLLIN};
    int running = 0;
    int left = 0;
    CURLMsg *m;

    (void)c->multi_poll(c->multi, &extra, 1, 60000, NULL);
    (void)c->multi_perform(c->multi, &running);
    while ((m = c->multi_info_read(c->multi, &left)) != NULL)
        if (m->msg == CURLMSG_DONE)
            finish(c, m->easy_handle, m->data.result);
}

/* ---- URLs ---- */

#define READ_FLAGS (CURLU_URLENCODE | CURLU_NON_SUPPORT_SCHEME)

char *sp_curl_join(struct sp_curl *c, const char *base, const char *reference)
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

#else

bool sp_curl_is_built_in(void)
{
    return false;
}

int sp_curl_open(struct sp_curl **ret, struct sp_err *e)
{
    *ret = NULL;
    return sp_fail(e, SP_E_STATE, 0,
                   "this sallyport was built without it: build it where libcurl's headers are "
                   "(Debian: the package libcurl4-openssl-dev)");
}

/* Never called: sp_curl_open fails. */
int sp_curl_begin(struct sp_curl *c, struct sp_curl_transfer *t, const struct sp_curl_ask *ask,
                  struct sp_err *e)
{
    (void)c;
    (void)t;
    (void)ask;
    return sp_fail(e, SP_E_STATE, 0, "built without libcurl");
}

void sp_curl_resume(struct sp_curl *c, struct sp_curl_transfer *t)
{
    (void)c;
    (void)t;
}

void sp_curl_end(struct sp_curl *c, struct sp_curl_transfer *t)
{
    (void)c;
    (void)t;
}

void sp_curl_run(struct sp_curl *c, int fd)
{
    (void)c;
    (void)fd;
}

char *sp_curl_join(struct sp_curl *c, const char *base, const char *reference)
{
    (void)c;
    (void)base;
    (void)reference;
    return NULL;
}

#endif
