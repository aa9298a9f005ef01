/* SPDX-License-Identifier: Apache-2.0 */
#include "message.h"

struct cursor {
    const char *p;
    const char *end;
};

struct facts {
    struct bench_message m;
    struct sp_str method;
    bool has_id;
    bool has_error;
    bool has_result;
};

static bool scan_value(struct cursor *c, struct sp_str key, struct facts *f, int depth);

/* The next character that is no white space, 0 at the end. It stays. */
static char peek(struct cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r'))
        c->p++;
    return c->p < c->end ? *c->p : 0;
}

static bool scan_string(struct cursor *c, struct sp_str *ret)
{
    const char *from = ++c->p;

    for (;;) {
        const char *quote = memchr(c->p, '"', (size_t)(c->end - c->p));
        const char *back = quote;

        if (quote == NULL)
            return false;
        c->p = quote + 1;
        while (back > from && back[-1] == '\\')
            back--;
        if ((quote - back) % 2 == 0) {
            *ret = (struct sp_str){from, (size_t)(quote - from)};
            return true;
        }
    }
}

static int64_t number(struct sp_str s)
{
    const bool is_negative = s.n > 0 && s.p[0] == '-';
    int64_t v = 0;

    for (size_t i = is_negative; i < s.n && i < 18 && s.p[i] >= '0' && s.p[i] <= '9'; i++)
        v = v * 10 + (s.p[i] - '0');
    return is_negative ? -v : v;
}

static bool is(struct sp_str key, const char *name, size_t n)
{
    return key.n == n && memcmp(key.p, name, n) == 0;
}

#define IS(key, literal) is(key, literal, sizeof(literal) - 1)

static void on_string(struct sp_str key, struct sp_str v, struct facts *f)
{
    if (IS(key, "chunk") || IS(key, "dataBase64"))
        f->m.chunk = v;
    else if (IS(key, "kind"))
        f->m.files += IS(v, "file");
    else if (IS(key, "processId"))
        f->m.proc = (uint64_t)number(v);
    else if (IS(key, "method"))
        f->method = v;
    else if (IS(key, "message"))
        f->m.reason = v;
}

static void on_scalar(struct sp_str key, struct sp_str v, struct facts *f)
{
    if (IS(key, "seq"))
        f->m.seq = (uint64_t)number(v);
    else if (IS(key, "exitCode"))
        f->m.exit_code = number(v);
    else if (IS(key, "nextSeq"))
        f->m.next_seq = (uint64_t)number(v);
    else if (IS(key, "id")) {
        f->m.id = number(v);
        f->has_id = true;
    }
}

/* An object or an array; the elements of an array carry its key. */
static bool scan_container(struct cursor *c, struct sp_str key, struct facts *f, int depth)
{
    const bool is_object = *c->p == '{';
    const char close = is_object ? '}' : ']';

    c->p++;
    if (peek(c) == close) {
        c->p++;
        return true;
    }
    for (;;) {
        if (is_object) {
            if (peek(c) != '"' || !scan_string(c, &key) || peek(c) != ':')
                return false;
            c->p++;
        }
        if (!scan_value(c, key, f, depth + 1))
            return false;

        const char next = peek(c);
        c->p++;
        if (next == close)
            return true;
        if (next != ',')
            return false;
    }
}

static bool scan_value(struct cursor *c, struct sp_str key, struct facts *f, int depth)
{
    const char first = peek(c);
    struct sp_str v;

    if (depth == 1 && IS(key, "error"))
        f->has_error = true;
    else if (depth == 1 && IS(key, "result"))
        f->has_result = true;
    if (first == '"') {
        if (!scan_string(c, &v))
            return false;
        on_string(key, v, f);
        return true;
    }
    if (first == '{' || first == '[')
        return depth < 64 && scan_container(c, key, f, depth);

    const char *from = c->p;
    while (c->p < c->end && *c->p != ',' && *c->p != '}' && *c->p != ']' && *c->p != ' ')
        c->p++;
    on_scalar(key, (struct sp_str){from, (size_t)(c->p - from)}, f);
    return c->p > from;
}

bool bench_message_scan(struct sp_str text, struct bench_message *ret)
{
    struct cursor c = {text.p, text.p + text.n};
    struct facts f = {.m.kind = BENCH_OTHER};

    if (peek(&c) != '{' || !scan_value(&c, SP_STR(""), &f, 0))
        return false;
    if (IS(f.method, "process/output"))
        f.m.kind = BENCH_OUTPUT;
    else if (IS(f.method, "process/exited"))
        f.m.kind = BENCH_EXITED;
    else if (IS(f.method, "process/closed"))
        f.m.kind = BENCH_CLOSED;
    else if (f.method.n == 0 && f.has_error)
        f.m.kind = BENCH_ERROR;
    else if (f.method.n == 0 && f.has_result && f.has_id)
        f.m.kind = BENCH_REPLY;
    *ret = f.m;
    return true;
}
