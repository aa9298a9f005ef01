/* SPDX-License-Identifier: Apache-2.0 */
/*
 * response: the head of a response, read line by line, and what becomes of a redirect.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "core/http_worker_priv.h"

/* ---- where a redirect leads ---- */

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

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static enum sp_curl_taken refuse(struct sp_web_task *t, const char *why)
{
    t->refusal = why;
    return SP_CURL_STOP;
}

/* Into t->next_url if there is one; a Location that says nothing leaves the response as it is. */
static enum sp_curl_taken find_next(struct sp_web_task *t)
{
    if (!t->follows || !is_redirect(t->status) || !t->has_location ||
        !sp_buf_add(&t->location, "", 1))
        return SP_CURL_TAKEN;
    t->next_url = sp_curl_join(t->worker->curl, t->url, t->location.data);
    if (t->next_url == NULL)
        return SP_CURL_TAKEN;
    const struct sp_str scheme = scheme_of(t->next_url);
    if (!sp_str_eq(scheme, SP_STR("http")) && !sp_str_eq(scheme, SP_STR("https"))) {
        (void)snprintf(t->refusal_text, sizeof t->refusal_text,
                       "redirect target uses unsupported URL scheme: %.*s",
                       (int)(scheme.n > 40 ? 40 : scheme.n), scheme.p);
        t->is_redirect_refused = true;
        return refuse(t, t->refusal_text);
    }
    if (t->redirects == SP_WEB_REDIRECTS) {
        t->is_redirect_refused = true;
        return refuse(t, "too many redirects");
    }
    /* Its body is of no interest; what has none lets the connection be used again. */
    return t->is_empty ? SP_CURL_TAKEN : SP_CURL_STOP;
}

static bool is_about_body(struct sp_str name)
{
    return sp_str_eq(name, SP_STR("content-type")) || sp_str_eq(name, SP_STR("content-encoding")) ||
           sp_str_eq(name, SP_STR("content-length")) ||
           sp_str_eq(name, SP_STR("transfer-encoding"));
}

/* What was meant for one origin: what it lets one in with, and its name. */
static bool stays_behind(const struct sp_web_field *f)
{
    return f->is_private || sp_str_eq(f->name, SP_STR("authorization")) ||
           sp_str_eq(f->name, SP_STR("cookie")) || sp_str_eq(f->name, SP_STR("cookie2")) ||
           sp_str_eq(f->name, SP_STR("proxy-authorization")) ||
           sp_str_eq(f->name, SP_STR("www-authenticate")) || sp_str_eq(f->name, SP_STR("host"));
}

/* The page before, to another origin only as its origin, and never out of a secure one. */
static bool add_referer(struct sp_web_task *t, bool is_same_origin, struct sp_buf *fields)
{
    const struct sp_str origin = origin_of(t->url);
    auto_buf struct sp_buf text = {0};

    if (sp_str_eq(scheme_of(t->url), SP_STR("https")) &&
        !sp_str_eq(scheme_of(t->next_url), SP_STR("https")))
        return true;
    if (is_same_origin)
        return sp_web_field_add(fields, SP_STR("referer"), sp_str_of(t->url));
    return sp_buf_add_str(&text, origin) && sp_buf_add(&text, "/", 1) &&
           sp_web_field_add(fields, SP_STR("referer"), (struct sp_str){text.data, text.len});
}

bool sp_web_redirect(struct sp_web_task *t)
{
    const bool is_post = strcmp(t->method, "POST") == 0;
    const bool is_asked_anew = t->status == 303 || (t->status <= 302 && is_post);
    const bool is_same_origin = sp_str_eq_nocase(origin_of(t->url), origin_of(t->next_url));
    struct sp_str rest = {t->fields.data, t->fields.len};
    struct sp_web_field field;
    auto_buf struct sp_buf fields = {.max = SP_WEB_MAX_FIELDS + (size_t)SP_WEB_MAX_URL + 64};
    bool ok = true;

    while (ok && sp_web_field_take(&rest, &field))
        if (!(is_asked_anew && is_about_body(field.name)) &&
            (is_same_origin || !stays_behind(&field)) && !sp_str_eq(field.name, SP_STR("referer")))
            ok = sp_web_field_put(&fields, &field);
    ok = ok && add_referer(t, is_same_origin, &fields);
    if (ok && is_asked_anew) {
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

/* ---- the head ---- */

static struct sp_str trimmed(struct sp_str s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

static void send_head(struct sp_web_task *t)
{
    for (size_t at = 0; at < t->head.len; at += SP_WEB_PIECE) {
        const size_t left = t->head.len - at;

        sp_web_say(t->worker, SP_WEB_FIELDS, t->number, 0,
                   (struct sp_str){t->head.data + at, left < SP_WEB_PIECE ? left : SP_WEB_PIECE});
    }
    sp_web_say(t->worker, SP_WEB_HEAD, t->number, (uint64_t)t->status, SP_STR(""));
    t->is_head_sent = true;
}

static enum sp_curl_taken end_head(struct sp_web_task *t)
{
    if (t->status >= 100 && t->status < 200 && t->status != 101)
        return SP_CURL_TAKEN; /* there is another to come */
    const enum sp_curl_taken r = find_next(t);
    if (t->next_url != NULL || t->refusal != NULL)
        return r;
    send_head(t);
    /* Nothing we could carry comes behind these. */
    t->is_stopped = t->status == 101 || (strcmp(t->method, "HEAD") == 0 && t->body.n > 0);
    return t->is_stopped ? SP_CURL_STOP : SP_CURL_TAKEN;
}

/* "HTTP/1.1 200 OK", "HTTP/2 200" */
static enum sp_curl_taken begin_head(struct sp_web_task *t, struct sp_str line)
{
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
    return SP_CURL_TAKEN;
}

/* Two lengths would be two ways to read what follows. */
static bool note_length(struct sp_web_task *t, struct sp_str value)
{
    struct sp_str rest = {t->head.data, t->head.len};
    struct sp_str name;
    struct sp_str other;

    t->is_empty = sp_str_eq(value, SP_STR("0"));
    while (sp_web_field_next(&rest, &name, &other))
        if (sp_str_eq(name, SP_STR("content-length")) && !sp_str_eq(other, value)) {
            t->refusal = "the response has two lengths";
            return false;
        }
    return true;
}

static bool keep_field(struct sp_web_task *t, struct sp_str line, const char *colon)
{
    const struct sp_str given = {line.p, (size_t)(colon - line.p)};
    const struct sp_str value = trimmed((struct sp_str){colon + 1, line.n - given.n - 1});
    auto_buf struct sp_buf lower = {0};
    bool ok = true;

    if (!sp_web_is_token(given))
        return true;
    if (!sp_web_add_lower(&lower, given))
        return false;
    const struct sp_str name = {lower.data, lower.len};
    if (sp_str_eq(name, SP_STR("location")) && !t->has_location && !sp_str_has_nul(value)) {
        t->has_location = sp_buf_add_str(&t->location, value);
        ok = t->has_location;
    }
    if (sp_str_eq(name, SP_STR("content-length")) && !note_length(t, value))
        return true;
    return ok && (!sp_web_is_visible(value) || sp_web_field_add(&t->head, name, value));
}

enum sp_curl_taken sp_web_response_line(struct sp_web_task *t, struct sp_str line)
{
    if (t->is_head_sent || t->next_url != NULL) /* trailers */
        return SP_CURL_TAKEN;
    if (line.n == 0)
        return end_head(t);
    t->head_read += line.n + 16;
    if (t->head_read > SP_WEB_MAX_HEAD)
        return refuse(t, "the head of the response is larger than 262144 bytes");
    if (line.n >= 5 && memcmp(line.p, "HTTP/", 5) == 0)
        return begin_head(t, line);
    if (line.p[0] == ' ' || line.p[0] == '\t')
        return refuse(t, "a header line of the response begins with white space");
    const char *colon = memchr(line.p, ':', line.n);
    if (colon == NULL)
        return SP_CURL_TAKEN;
    if (!keep_field(t, line, colon))
        return refuse(t, "no memory");
    return t->refusal == NULL ? SP_CURL_TAKEN : SP_CURL_STOP;
}
