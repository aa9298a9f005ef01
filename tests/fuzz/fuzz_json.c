/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read is whole and consistent, is found again by key, and written out and read again is
 * the same; what is refused says why and where. Where jansson is there, it must agree.
 */
#include "base/auto.h"
#include "base/json.h"
#include "base/utf8.h"
#include "fuzz.h"

#ifdef SP_HAVE_JANSSON
#include <jansson.h>
#endif

#define auto_json __attribute__((cleanup(sp_json_done)))

/* Checks one value, with what is inside, and appends it in another spelling: strings rewritten. */
static void rewrite(struct sp_json *j, uint32_t token, uint32_t depth, struct sp_buf *out)
{
    const struct sp_json_token t = j->tokens[token];
    const struct sp_str raw = sp_json_raw(j, token);
    uint32_t n = 0;
    uint32_t after = token + 1;

    CHECK(depth <= SP_JSON_MAX_DEPTH && t.next > token && t.next <= j->count && raw.n != 0);
    if (t.type == SP_JSON_STRING) {
        CHECK(raw.p[0] == '"' && raw.p[raw.n - 1] == '"' && t.next == token + 1);
        const struct sp_str s = sp_json_str(j, token);
        CHECK(sp_utf8_is_valid(s) && sp_json_add_str(out, s));
        return;
    }
    if (t.type != SP_JSON_ARRAY && t.type != SP_JSON_OBJECT) {
        int64_t v;

        CHECK(t.next == token + 1 && sp_json_i64(j, token, &v) == (t.type == SP_JSON_INT));
        CHECK(sp_buf_add_str(out, raw));
        return;
    }
    const bool is_object = t.type == SP_JSON_OBJECT;
    CHECK(raw.p[0] == (is_object ? '{' : '[') && raw.p[raw.n - 1] == (is_object ? '}' : ']'));
    CHECK(sp_buf_add(out, is_object ? "{" : "[", 1));
    for (uint32_t c = sp_json_first(j, token); c != SP_JSON_NONE;
         c = sp_json_next(j, token, c), n++) {
        CHECK(c == after && (n == 0 || sp_buf_add(out, ",", 1)));
        if (is_object) {
            rewrite(j, c, depth, out);
            CHECK(sp_buf_add(out, ":", 1));
        }
        rewrite(j, is_object ? c + 1 : c, depth + 1, out);
        after = j->tokens[is_object ? c + 1 : c].next;
    }
    CHECK(n == t.children && after == t.next);
    CHECK(sp_buf_add(out, is_object ? "}" : "]", 1));
}

/* Every key finds its own value: so no two of an object are equal. */
static void check_keys(struct sp_json *j)
{
    if (j->count > 2000)
        return; /* looking up is linear */
    for (uint32_t t = 0; t < j->count; t++)
        if (j->tokens[t].type == SP_JSON_OBJECT)
            for (uint32_t c = sp_json_first(j, t); c != SP_JSON_NONE; c = sp_json_next(j, t, c)) {
                const struct sp_str s = sp_json_str(j, c);
                auto_free char *key = malloc(s.n + 1);

                CHECK(key != NULL);
                memcpy(key, s.p, s.n);
                key[s.n] = 0;
                if (!sp_str_has_nul(s))
                    CHECK(sp_json_get(j, t, key) == c + 1);
            }
}

static void check_refusal(const struct sp_err *e, int r)
{
    unsigned long line;
    char *end;
    const char *place = NULL;

    for (const char *p = e->msg; (p = strstr(p, " at line ")) != NULL; p++)
        place = p;
    CHECK(r == -SP_E_MALFORMED && place != NULL && place != e->msg);
    line = strtoul(place + strlen(" at line "), &end, 10);
    CHECK(line >= 1 && strncmp(end, " column ", 8) == 0);
    (void)strtoul(end + 8, &end, 10);
    CHECK(*end == 0);
    CHECK(sp_utf8_is_valid(sp_str_of(e->msg)));
}

/* What only the limits refuse, another reader takes. */
static bool is_limit(const struct sp_err *e)
{
    return strncmp(e->msg, "recursion limit", 15) == 0 || strncmp(e->msg, "more than", 9) == 0;
}

static void ask_another(const uint8_t *data, size_t size, bool is_read, bool is_beyond_limits)
{
#ifdef SP_HAVE_JANSSON
    json_error_t error;

    if (memchr(data, 0, size) != NULL)
        return; /* it takes a NUL for the end of the text */
    json_t *other = json_loadb((const char *)data, size,
                               JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    const enum json_error_code code = other == NULL ? json_error_code(&error) : json_error_unknown;

    /* It refuses numbers that do not fit and NUL in keys. */
    if (!is_beyond_limits && code != json_error_numeric_overflow &&
        code != json_error_null_byte_in_key)
        CHECK(is_read == (other != NULL));
    json_decref(other);
#else
    (void)data;
    (void)size;
    (void)is_read;
    (void)is_beyond_limits;
#endif
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    auto_json struct sp_json j = {0};
    auto_json struct sp_json k = {0};
    auto_buf struct sp_buf out = {0};
    auto_buf struct sp_buf again = {0};
    struct sp_err e = {0};

    const int r = sp_json_parse(&j, text, size, &e);
    CHECK(size == 0 || memcmp(text, data, size) == 0); /* reading alone changes nothing */
    ask_another(data, size, r == 0, r < 0 && is_limit(&e));
    if (r < 0) {
        check_refusal(&e, r);
        return 0;
    }
    CHECK(j.tokens[0].next == j.count);
    rewrite(&j, 0, 0, &out);
    check_keys(&j);

    CHECK(sp_json_parse(&k, out.data, out.len, &e) == 0);
    CHECK(k.count == j.count);
    for (uint32_t t = 0; t < j.count; t++)
        CHECK(j.tokens[t].type == k.tokens[t].type && j.tokens[t].next == k.tokens[t].next &&
              j.tokens[t].children == k.tokens[t].children);
    auto_free char *written = fuzz_copy(out.data, out.len);
    rewrite(&k, 0, 0, &again);
    CHECK(again.len == out.len && memcmp(again.data, written, out.len) == 0);
    return 0;
}
