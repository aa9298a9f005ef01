/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request to a web server is made of: messages between the front and its worker, lists of
 * fields, addresses, and the lines of a response's head. The first byte says which.
 */
#include "core/http_url.h"
#include "core/http_worker.h"
#include "fuzz.h"

static void check_message(const char *bytes, size_t n)
{
    _Alignas(struct sp_web_order) char room[sizeof(struct sp_web_order) + SP_WEB_PIECE];

    if (n > sizeof room)
        return;
    memcpy(room, bytes, n);
    for (int i = 0; i < 4; i++) {
        const bool is_from_worker = (i & 1) != 0;

        if (!sp_web_check(room, n, is_from_worker, (i & 2) != 0))
            continue;
        const struct sp_web_message *m = (const void *)room;
        CHECK(n >= sizeof *m && m->len == n - sizeof *m && m->len <= SP_WEB_PIECE);
        CHECK(is_from_worker == (m->op >= SP_WEB_FIELDS));
        if (m->op == SP_WEB_ASK) {
            const struct sp_web_order *o = (const void *)room;

            CHECK((uint64_t)o->method_len + o->url_len + o->fields_len + o->body_len <=
                  (64U << 20));
        }
    }
}

static void check_fields(const char *bytes, size_t n)
{
    struct sp_str rest = {bytes, n};
    struct sp_web_field f;
    struct sp_buf again = {0};
    const bool is_whole = sp_web_fields_are_whole(rest);

    while (sp_web_field_next(&rest, &f)) {
        CHECK(f.name.p + f.name.n == f.value.p && f.value.p + f.value.n == rest.p);
        if (is_whole)
            CHECK(sp_web_field_put(&again, &f));
    }
    if (is_whole)
        CHECK(again.len == n && (n == 0 || memcmp(again.data, bytes, n) == 0));
    sp_buf_done(&again);
}

/* What was read once is read again as the same. */
static void check_url(const char *bytes, size_t n)
{
    struct sp_web_url u = {0};
    struct sp_web_url again = {0};
    struct sp_err e = {0};

    if (sp_web_url_read((struct sp_str){bytes, n}, &u, &e) == 0 && u.is_http) {
        CHECK(u.text.len <= SP_WEB_MAX_URL && u.text.data[u.text.len] == 0);
        CHECK(strlen(u.text.data) == u.text.len);
        for (size_t i = 0; i < u.text.len; i++)
            CHECK((unsigned char)u.text.data[i] > ' ' && u.text.data[i] != 0x7f);
        CHECK(sp_web_url_read((struct sp_str){u.text.data, u.text.len}, &again, &e) == 0);
        CHECK(again.text.len == u.text.len && strcmp(again.text.data, u.text.data) == 0);
        CHECK(!again.has_userinfo);
    }
    sp_web_url_done(&u);
    sp_web_url_done(&again);
}

#ifdef SP_HAVE_CURL
static void check_head(const char *bytes, size_t n)
{
    struct sp_web_worker w = {.socket = -1};
    struct sp_web_task t = {.worker = &w, .method = strdup("GET")};
    size_t at = 0;

    CHECK(t.method != NULL);
    while (at < n && t.refusal == NULL) {
        const char *end = memchr(bytes + at, '\n', n - at);
        const size_t len = end == NULL ? n - at : (size_t)(end - (bytes + at));
        char *line = fuzz_copy(bytes + at, len);
        const bool goes_on = sp_web_response_line(&t, (struct sp_str){line, len});

        free(line);
        if (!goes_on)
            break;
        at += len + 1;
    }
    CHECK(sp_web_fields_are_whole((struct sp_str){t.head.data, t.head.len}));
    CHECK(t.head.len <= SP_WEB_MAX_HEAD);
    CHECK(!t.is_head_sent || (t.status >= 100 && t.status <= 999) || t.status == 0);
    sp_buf_done(&t.head);
    sp_buf_done(&t.location);
    free(t.method);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *bytes = fuzz_copy(data + 1, size - 1);
    switch (data[0] % 4) {
    case 0:
        check_message(bytes, size - 1);
        break;
    case 1:
        check_fields(bytes, size - 1);
        break;
    case 2:
        check_url(bytes, size - 1);
        break;
    default:
#ifdef SP_HAVE_CURL
        check_head(bytes, size - 1);
#endif
        break;
    }
    free(bytes);
    return 0;
}
