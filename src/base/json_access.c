/* SPDX-License-Identifier: Apache-2.0 */
/* Reading values from the tape, and writing strings. */
#include "base/json.h"
#include "base/json_priv.h"
#include "base/utf8.h"

/* ---- strings ---- */

size_t sp_json_unescape(const char **p, char *out)
{
    static const char plain[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    const char *in = *p + 1;

    if (*in != 'u') {
        *out = meant[strchr(plain, *in) - plain];
        *p = in + 1;
        return 1;
    }
    uint32_t c = sp_json_hex4(in + 1);
    in += 5;
    if (c >= 0xD800 && c <= 0xDFFF) {
        c = 0x10000 + ((c & 0x3FF) << 10) + (sp_json_hex4(in + 2) & 0x3FF);
        in += 6;
    }
    *p = in;
    return sp_utf8_encode(c, out);
}

struct sp_str sp_json_str(struct sp_json *j, uint32_t token)
{
    struct sp_json_token *t = &j->tokens[token];
    char *first = j->text + t->off;

    if (t->is_escaped) {
        const char *end = first + t->len;
        const char *p = memchr(first, '\\', t->len);
        char *w = first + (p - first);

        while (p < end) {
            w += sp_json_unescape(&p, w);
            const char *stop = memchr(p, '\\', (size_t)(end - p));
            const size_t run = (size_t)((stop != NULL ? stop : end) - p);

            memmove(w, p, run);
            w += run;
            p += run;
        }
        t->len = (uint32_t)(w - first);
        t->is_escaped = false;
    }
    return (struct sp_str){first, t->len};
}

const char *sp_json_show(const struct sp_json *j, uint32_t token, char out[SP_JSON_SHOWN_ROOM])
{
    struct sp_json_bytes b = sp_json_bytes_of(j, &j->tokens[token]);
    size_t n = 0;
    int c;

    while ((c = sp_json_next_byte(&b)) >= 0) {
        if (n >= SP_JSON_SHOWN_BYTES && (c & 0xC0) != 0x80) {
            memcpy(out + n, "…", sizeof "…");
            return out;
        }
        if (c < 0x20) {
            static const char digit[] = "0123456789abcdef";

            memcpy(out + n, "\\u00", 4);
            out[n + 4] = digit[c >> 4];
            out[n + 5] = digit[c & 15];
            n += 6;
        } else {
            out[n++] = (char)c;
        }
    }
    out[n] = 0;
    return out;
}

/* ---- values ---- */

static bool key_is(const struct sp_json *j, const struct sp_json_token *t, struct sp_str key)
{
    if (!t->is_escaped)
        return t->len == key.n && memcmp(j->text + t->off, key.p, key.n) == 0;

    struct sp_json_bytes b = sp_json_bytes_of(j, t);
    for (size_t i = 0; i < key.n; i++)
        if (sp_json_next_byte(&b) != (unsigned char)key.p[i])
            return false;
    return sp_json_next_byte(&b) < 0;
}

uint32_t sp_json_get(struct sp_json *j, uint32_t object, const char *key)
{
    const struct sp_str wanted = sp_str_of(key);

    if (object >= j->count || j->tokens[object].type != SP_JSON_OBJECT)
        return SP_JSON_NONE;
    const uint32_t end = j->tokens[object].next;
    for (uint32_t t = object + 1; t < end; t = j->tokens[t + 1].next)
        if (key_is(j, &j->tokens[t], wanted))
            return t + 1;
    return SP_JSON_NONE;
}

uint32_t sp_json_first(const struct sp_json *j, uint32_t parent)
{
    return j->tokens[parent].children != 0 ? parent + 1 : SP_JSON_NONE;
}

uint32_t sp_json_next(const struct sp_json *j, uint32_t parent, uint32_t child)
{
    const bool is_object = j->tokens[parent].type == SP_JSON_OBJECT;
    const uint32_t next = j->tokens[is_object ? child + 1 : child].next;

    return next < j->tokens[parent].next ? next : SP_JSON_NONE;
}

struct sp_str sp_json_raw(const struct sp_json *j, uint32_t token)
{
    const struct sp_json_token *t = &j->tokens[token];

    if (t->type == SP_JSON_STRING)
        return (struct sp_str){j->text + t->off - 1, (size_t)t->len + 2};
    return (struct sp_str){j->text + t->off, t->len};
}

bool sp_json_i64(const struct sp_json *j, uint32_t token, int64_t *ret)
{
    const struct sp_json_token *t = &j->tokens[token];
    struct sp_str digits = {j->text + t->off, t->len};
    uint64_t v = 0;

    if (t->type != SP_JSON_INT)
        return false;
    const bool is_negative = digits.p[0] == '-';
    digits.p += is_negative;
    digits.n -= is_negative;
    if (!sp_str_to_u64(digits, (uint64_t)INT64_MAX + is_negative, &v))
        return false;
    *ret = (int64_t)(is_negative ? -v : v);
    return true;
}

int sp_json_wrong_type(struct sp_json *j, uint32_t token, const char *expected, struct sp_err *e)
{
    static const char *const kind[] = {
        [SP_JSON_NULL] = "null",           [SP_JSON_FALSE] = "boolean `false`",
        [SP_JSON_TRUE] = "boolean `true`", [SP_JSON_INT] = "number",
        [SP_JSON_UINT] = "number",         [SP_JSON_REAL] = "number",
        [SP_JSON_ARRAY] = "sequence",      [SP_JSON_OBJECT] = "map",
    };
    const enum sp_json_type type = sp_json_type(j, token);

    if (type == SP_JSON_STRING) {
        char shown[SP_JSON_SHOWN_ROOM];

        return sp_fail(e, SP_E_INVALID, 0, "invalid type: string \"%s\", expected %s",
                       sp_json_show(j, token, shown), expected);
    }
    return sp_fail(e, SP_E_INVALID, 0, "invalid type: %s, expected %s", kind[type], expected);
}

/* ---- members by type ---- */

enum presence {
    NEED, /* required, null is refused */
    OPT,  /* optional, null means absent */
    DEF,  /* optional, null is refused */
};

/* *ret_token is SP_JSON_NONE if the member is absent or null and may be. */
static int find_member(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                       uint32_t *ret_token, struct sp_err *e)
{
    uint32_t t = sp_json_get(j, object, key);

    if (t == SP_JSON_NONE && presence == NEED)
        return sp_fail(e, SP_E_INVALID, 0, "missing field `%s`", key);
    if (t != SP_JSON_NONE && presence == OPT && sp_json_type(j, t) == SP_JSON_NULL)
        t = SP_JSON_NONE;
    *ret_token = t;
    return 0;
}

static int read_str(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                    struct sp_str *ret, struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find_member(j, object, key, presence, &t, e);

    if (r < 0 || t == SP_JSON_NONE)
        return r;
    if (sp_json_type(j, t) != SP_JSON_STRING)
        return sp_json_wrong_type(j, t, "a string", e);
    *ret = sp_json_str(j, t);
    return 0;
}

static int read_bool(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                     bool *ret, struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find_member(j, object, key, presence, &t, e);

    if (r < 0 || t == SP_JSON_NONE)
        return r;
    if (sp_json_type(j, t) != SP_JSON_TRUE && sp_json_type(j, t) != SP_JSON_FALSE)
        return sp_json_wrong_type(j, t, "a boolean", e);
    *ret = sp_json_type(j, t) == SP_JSON_TRUE;
    return 0;
}

static int read_u64(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                    uint64_t max, uint64_t *ret, struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find_member(j, object, key, presence, &t, e);

    if (r < 0 || t == SP_JSON_NONE)
        return r;
    const enum sp_json_type type = sp_json_type(j, t);
    if (type != SP_JSON_INT && type != SP_JSON_UINT && type != SP_JSON_REAL)
        return sp_json_wrong_type(j, t, "u64", e);
    /* Digits only: no sign, no fraction, no exponent, so "-0" and "1.0" are refused too. */
    if (!sp_str_to_u64(sp_json_raw(j, t), max, ret))
        return sp_fail(e, SP_E_INVALID, 0, "invalid number");
    return 0;
}

static int read_container(struct sp_json *j, uint32_t object, const char *key,
                          enum presence presence, enum sp_json_type type, uint32_t *ret,
                          struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find_member(j, object, key, presence, &t, e);

    if (r < 0 || t == SP_JSON_NONE)
        return r;
    if (sp_json_type(j, t) != type)
        return sp_json_wrong_type(j, t, type == SP_JSON_OBJECT ? "a map" : "a sequence", e);
    *ret = t;
    return 0;
}

int sp_json_need_str(struct sp_json *j, uint32_t object, const char *key, struct sp_str *ret,
                     struct sp_err *e)
{
    return read_str(j, object, key, NEED, ret, e);
}

int sp_json_opt_str(struct sp_json *j, uint32_t object, const char *key, struct sp_str *ret,
                    struct sp_err *e)
{
    return read_str(j, object, key, OPT, ret, e);
}

int sp_json_need_bool(struct sp_json *j, uint32_t object, const char *key, bool *ret,
                      struct sp_err *e)
{
    return read_bool(j, object, key, NEED, ret, e);
}

int sp_json_def_bool(struct sp_json *j, uint32_t object, const char *key, bool *ret,
                     struct sp_err *e)
{
    return read_bool(j, object, key, DEF, ret, e);
}

int sp_json_opt_u64(struct sp_json *j, uint32_t object, const char *key, uint64_t max,
                    uint64_t *ret, struct sp_err *e)
{
    return read_u64(j, object, key, OPT, max, ret, e);
}

int sp_json_need_u64(struct sp_json *j, uint32_t object, const char *key, uint64_t max,
                     uint64_t *ret, struct sp_err *e)
{
    return read_u64(j, object, key, NEED, max, ret, e);
}

int sp_json_need_object(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                        struct sp_err *e)
{
    return read_container(j, object, key, NEED, SP_JSON_OBJECT, ret, e);
}

int sp_json_need_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                       struct sp_err *e)
{
    return read_container(j, object, key, NEED, SP_JSON_ARRAY, ret, e);
}

int sp_json_opt_object(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                       struct sp_err *e)
{
    return read_container(j, object, key, OPT, SP_JSON_OBJECT, ret, e);
}

int sp_json_opt_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                      struct sp_err *e)
{
    return read_container(j, object, key, OPT, SP_JSON_ARRAY, ret, e);
}

/* ---- writing ---- */

static bool add_escape(struct sp_buf *out, char c)
{
    static const char plain[] = "\"\\\b\f\n\r\t";
    static const char meant[] = "\"\\bfnrt";
    const char *known = c != 0 ? strchr(plain, c) : NULL;

    if (known != NULL)
        return sp_buf_add(out, (const char[2]){'\\', meant[known - plain]}, 2);
    return sp_buf_printf(out, "\\u%04x", (unsigned)c);
}

bool sp_json_add_str(struct sp_buf *out, struct sp_str s)
{
    const size_t mark = out->len;
    const char *end = s.n != 0 ? s.p + s.n : s.p; /* no arithmetic on NULL */
    bool has_room = sp_buf_add(out, "\"", 1);

    while (has_room && s.p < end) {
        unsigned high = 0;
        const char *stop = sp_json_skip_plain(s.p, end, &high);
        const struct sp_str run = {s.p, (size_t)(stop - s.p)};

        has_room = high != 0 ? sp_utf8_add_lossy(out, run) : sp_buf_add_str(out, run);
        if (has_room && stop < end)
            has_room = add_escape(out, *stop++);
        s.p = stop;
    }
    has_room = has_room && sp_buf_add(out, "\"", 1);
    if (!has_room)
        out->len = mark;
    return has_room;
}

bool sp_json_add_key(struct sp_buf *out, const char *name)
{
    const bool is_first = out->len == 0 || out->data[out->len - 1] == '{';

    return sp_buf_printf(out, "%s\"%s\":", is_first ? "" : ",", name);
}

bool sp_json_add_member(struct sp_buf *out, const char *name, struct sp_str value)
{
    return sp_json_add_key(out, name) && sp_json_add_str(out, value);
}
