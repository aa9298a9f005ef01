/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader: one pass over the text, no recursion and no stack. The token of a container that is
 * still open has fields that are not final yet; the reader keeps its state in them:
 *
 *   next        the container around it, SP_JSON_NONE for the root
 *   len         a Bloom filter with 32 bits over the keys seen: most keys prove to be new there
 *   is_escaped  too many keys to compare one by one: they are compared at the end of the object
 *
 * UTF-8 is checked in strings that have a byte above 127; outside of strings such a byte is an
 * error anyway.
 */
#include "base/json.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/json_priv.h"
#include "base/utf8.h"

#define FIRST_TOKENS 32    /* of a new tape */
#define KEPT_BYTES   65536 /* a larger tape is freed by sp_json_trim */
#define FEW_MEMBERS  16    /* small objects: compare a new key with all previous keys */

struct reader {
    struct sp_json *j;
    const char *start;
    const char *end;
    uint32_t values;
    uint32_t depth;
    uint32_t open; /* the innermost open container */
    /* After a failure: */
    const char *at;  /* its place; NULL: none yet */
    const char *why; /* NULL: no memory, or a duplicate key */
    uint32_t twin;   /* the second of two equal keys, else SP_JSON_NONE */
};

/* Reading functions return the place behind what they read, or NULL after fail(). */
static const char *fail(struct reader *r, const char *at, const char *why)
{
    r->at = at;
    r->why = why;
    return NULL;
}

/* ---- the tape ---- */

static bool reserve_tokens(struct sp_json *j, uint32_t n)
{
    uint32_t cap = j->cap < FIRST_TOKENS ? FIRST_TOKENS : j->cap;

    if (n <= j->cap)
        return true;
    while (cap < n)
        cap *= 2; /* no overflow: SP_JSON_MAX_VALUES bounds the tape to a million tokens */
    struct sp_json_token *tokens = realloc(j->tokens, cap * sizeof tokens[0]);
    if (tokens == NULL)
        return false;
    j->tokens = tokens;
    j->cap = cap;
    return true;
}

void sp_json_done(struct sp_json *j)
{
    free(j->tokens);
    *j = (struct sp_json){0};
}

void sp_json_trim(struct sp_json *j)
{
    if (j->cap * sizeof j->tokens[0] > KEPT_BYTES)
        sp_json_done(j);
}

static inline bool push_token(struct reader *r, enum sp_json_type type, const char *at, size_t len,
                              bool is_escaped)
{
    struct sp_json *j = r->j;

    if (j->count == j->cap && !reserve_tokens(j, j->count + 1)) {
        (void)fail(r, at, NULL);
        return false;
    }
    j->tokens[j->count] = (struct sp_json_token){.type = (uint8_t)type,
                                                 .is_escaped = is_escaped,
                                                 .off = (uint32_t)(at - r->start),
                                                 .len = (uint32_t)len,
                                                 .next = j->count + 1};
    j->count++;
    return true;
}

static inline bool push_value(struct reader *r, enum sp_json_type type, const char *at, size_t len,
                              bool is_escaped)
{
    if (r->values == SP_JSON_MAX_VALUES) {
        (void)fail(r, at, "more than 262144 JSON values");
        return false;
    }
    r->values++;
    return push_token(r, type, at, len, is_escaped);
}

/* ---- strings ---- */

/* Checks "uXXXX" at p. */
static const char *check_hex(struct reader *r, const char *p)
{
    for (int i = 1; i <= 4; i++) {
        if (r->end - p <= i)
            return fail(r, r->end, "EOF while parsing a string");
        if (sp_hex_digit(p[i]) < 0)
            return fail(r, p + i, "invalid escape");
    }
    return p + 5;
}

/* Checks an escape; p is at its backslash. */
static const char *check_escape(struct reader *r, const char *p)
{
    if (++p == r->end)
        return fail(r, p, "EOF while parsing a string");
    if (*p != 'u')
        return *p != 0 && strchr("\"\\/bfnrt", *p) != NULL ? p + 1 : fail(r, p, "invalid escape");

    const char *after = check_hex(r, p);
    const uint32_t unit = after == NULL ? 0 : sp_json_hex4(p + 1);
    if (unit < 0xD800 || unit > 0xDFFF)
        return after;
    if (unit > 0xDBFF)
        return fail(r, after - 1, "lone trailing surrogate in hex escape");
    if (after == r->end)
        return fail(r, after, "EOF while parsing a string");
    if (r->end - after < 2 || after[0] != '\\' || after[1] != 'u')
        return fail(r, after, "lone leading surrogate in hex escape");

    const char *second = check_hex(r, after + 1);
    if (second != NULL && (sp_json_hex4(after + 2) & 0xFC00) != 0xDC00)
        return fail(r, second - 1, "lone leading surrogate in hex escape");
    return second;
}

/* Checks a string; p is at its opening quote. Returns the place of its closing quote. */
static inline const char *check_string(struct reader *r, const char *p, bool *is_escaped)
{
    const char *first = p + 1;
    unsigned high = 0;

    p = sp_json_skip_plain(first, r->end, &high);
    while (p < r->end && *p == '\\') {
        *is_escaped = true;
        p = check_escape(r, p);
        if (p == NULL)
            return NULL;
        p = sp_json_skip_plain(p, r->end, &high);
    }
    if (high != 0) {
        const struct sp_str s = {first, (size_t)(p - first)};
        const size_t good = sp_utf8_valid_prefix(s);

        if (good != s.n)
            return fail(r, first + good, "invalid unicode code point");
    }
    if (p == r->end)
        return fail(r, p, "EOF while parsing a string");
    if (*p != '"')
        return fail(r, p, "control character (\\u0000-\\u001F) found while parsing a string");
    return p;
}

/* ---- keys ---- */

static bool same_key(const struct sp_json *j, const struct sp_json_token *a,
                     const struct sp_json_token *b)
{
    if (!a->is_escaped && !b->is_escaped)
        return a->len == b->len && memcmp(j->text + a->off, j->text + b->off, a->len) == 0;

    struct sp_json_bytes x = sp_json_bytes_of(j, a);
    struct sp_json_bytes y = sp_json_bytes_of(j, b);
    for (;;) {
        const int c = sp_json_next_byte(&x);

        if (c != sp_json_next_byte(&y))
            return false;
        if (c < 0)
            return true;
    }
}

/*
 * The hash of a key: a polynomial over the field of 2^61 - 1, evaluated at a secret random point,
 * so that a client cannot choose keys that collide; then mixed.
 */
#define FIELD ((1ULL << 61) - 1)

static uint64_t secret;
static pthread_once_t secret_once = PTHREAD_ONCE_INIT;

static void draw_secret(void)
{
    if (getentropy(&secret, sizeof secret) < 0) /* ENOSYS: Linux before 3.17 */
        secret = sp_clock_ns() ^ (uintptr_t)&secret;
    secret = secret % (FIELD - 2) + 2;
}

static uint64_t fold(uint64_t hash, uint64_t limb)
{
    const unsigned __int128 product = (unsigned __int128)((hash + limb) % FIELD) * secret;
    const uint64_t sum = (uint64_t)(product & FIELD) + (uint64_t)(product >> 61);

    return sum >= FIELD ? sum - FIELD : sum;
}

static uint32_t hash_key(const struct sp_json *j, const struct sp_json_token *t)
{
    struct sp_json_bytes b = sp_json_bytes_of(j, t);
    uint64_t hash = 0;
    uint64_t limb = 0;
    uint64_t n = 0;

    if (!t->is_escaped)
        for (; b.end - b.p >= 8; b.p += 7, n += 7) {
            memcpy(&limb, b.p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
            limb = __builtin_bswap64(limb);
#endif
            hash = fold(hash, limb & 0x00FFFFFFFFFFFFFF);
        }
    limb = 0;
    for (int c; (c = sp_json_next_byte(&b)) >= 0;) {
        limb |= (uint64_t)c << 8 * (n % 7);
        if (++n % 7 == 0) {
            hash = fold(hash, limb);
            limb = 0;
        }
    }
    hash = fold(fold(hash, limb), n);
    hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15U;
    return (uint32_t)(hash >> 32);
}

/* Whether the key, the last token, equals one before it in its object. */
static bool has_twin(const struct sp_json *j, uint32_t object, uint32_t key)
{
    const struct sp_json_token *t = &j->tokens[key];

    for (uint32_t k = object + 1; k < key; k = j->tokens[k + 1].next)
        if ((j->tokens[k].len == t->len || j->tokens[k].is_escaped || t->is_escaped) &&
            same_key(j, &j->tokens[k], t))
            return true;
    return false;
}

/*
 * Finds a key that occurs twice in the object; SP_JSON_NONE: none, or out of memory (then r->at is
 * set). The hash table lies behind the last token, in the unused part of the tape.
 */
static uint32_t find_twin(struct reader *r, uint32_t object)
{
    struct slot {
        uint32_t hash;
        uint32_t key; /* SP_JSON_NONE: free */
    };
    struct sp_json *j = r->j;
    uint32_t slots = 64;

    while (slots < 2 * j->tokens[object].children)
        slots *= 2;
    const size_t size = slots * sizeof(struct slot);
    if (!reserve_tokens(j, j->count + (uint32_t)(size / sizeof j->tokens[0]) + 1)) {
        (void)fail(r, r->end, NULL);
        return SP_JSON_NONE;
    }
    struct slot *table = (void *)(j->tokens + j->count);
    memset(table, 0xFF, size);
    (void)pthread_once(&secret_once, draw_secret); /* cannot fail with a static control */

    for (uint32_t key = object + 1; key < j->count; key = j->tokens[key + 1].next) {
        const uint32_t hash = hash_key(j, &j->tokens[key]);
        uint32_t i = hash & (slots - 1);

        for (; table[i].key != SP_JSON_NONE; i = (i + 1) & (slots - 1))
            if (table[i].hash == hash && same_key(j, &j->tokens[table[i].key], &j->tokens[key]))
                return key;
        table[i] = (struct slot){hash, key};
    }
    return SP_JSON_NONE;
}

static const char *fail_twin(struct reader *r, uint32_t key)
{
    const struct sp_json_token *t = &r->j->tokens[key];

    r->twin = key;
    return fail(r, r->start + t->off + t->len, NULL); /* the closing quote */
}

/* Checks the key that was pushed last; returns p unless it is a duplicate. */
static inline const char *check_key(struct reader *r, const char *p)
{
    struct sp_json *j = r->j;
    const uint32_t key = j->count - 1;
    const struct sp_json_token *t = &j->tokens[key];
    struct sp_json_token *object = &j->tokens[r->open];
    const char *text = j->text + t->off;
    const unsigned ends = t->len == 0 ? 0 : (unsigned)(text[0] + 5 * text[t->len - 1]);
    const uint32_t bit = t->is_escaped ? UINT32_MAX : 1U << ((ends + 11 * t->len) & 31);

    if ((object->len & bit) != 0) {
        if (object->children >= FEW_MEMBERS)
            object->is_escaped = true;
        else if (has_twin(j, r->open, key))
            return fail_twin(r, key);
    }
    object->len |= bit;
    object->children++;
    return p;
}

/* ---- values ---- */

static inline const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (unsigned char)*p <= ' ' &&
           (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

static inline bool is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

/* One digit or more. */
static const char *skip_digits(struct reader *r, const char *p)
{
    if (p == r->end)
        return fail(r, p, "EOF while parsing a value");
    if (!is_digit(p, r->end))
        return fail(r, p, "invalid number");
    while (is_digit(p, r->end))
        p++;
    return p;
}

static enum sp_json_type type_of_integer(bool is_negative, const char *digits, size_t n)
{
    uint64_t v = 0;

    if (n <= 18)
        return SP_JSON_INT;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(digits[i] - '0'), &v))
            return SP_JSON_REAL;
    if (is_negative)
        return v <= (uint64_t)INT64_MAX + 1 ? SP_JSON_INT : SP_JSON_REAL;
    return v <= INT64_MAX ? SP_JSON_INT : SP_JSON_UINT;
}

static const char *read_number(struct reader *r, const char *start)
{
    const bool is_negative = *start == '-';
    const char *digits = start + is_negative;
    const char *p = skip_digits(r, digits);

    if (p == NULL)
        return NULL;
    if (*digits == '0' && p - digits > 1)
        return fail(r, digits + 1, "invalid number");

    enum sp_json_type type = type_of_integer(is_negative, digits, (size_t)(p - digits));
    if (p < r->end && *p == '.') {
        type = SP_JSON_REAL;
        p = skip_digits(r, p + 1);
        if (p == NULL)
            return NULL;
    }
    if (p < r->end && (*p == 'e' || *p == 'E')) {
        type = SP_JSON_REAL;
        p++;
        if (p < r->end && (*p == '+' || *p == '-'))
            p++;
        p = skip_digits(r, p);
        if (p == NULL)
            return NULL;
    }
    return push_value(r, type, start, (size_t)(p - start), false) ? p : NULL;
}

static const char *read_word(struct reader *r, const char *start, enum sp_json_type type,
                             struct sp_str word)
{
    for (size_t i = 1; i < word.n; i++) {
        if (start + i == r->end)
            return fail(r, r->end, "EOF while parsing a value");
        if (start[i] != word.p[i])
            return fail(r, start + i, "expected ident");
    }
    return push_value(r, type, start, word.n, false) ? start + word.n : NULL;
}

static inline const char *read_string(struct reader *r, const char *p)
{
    bool is_escaped = false;
    const char *end = check_string(r, p, &is_escaped);

    if (end == NULL || !push_value(r, SP_JSON_STRING, p + 1, (size_t)(end - p - 1), is_escaped))
        return NULL;
    return end + 1;
}

static inline const char *read_scalar(struct reader *r, const char *p)
{
    switch (*p) {
    case '"':
        return read_string(r, p);
    case 'n':
        return read_word(r, p, SP_JSON_NULL, SP_STR("null"));
    case 'f':
        return read_word(r, p, SP_JSON_FALSE, SP_STR("false"));
    case 't':
        return read_word(r, p, SP_JSON_TRUE, SP_STR("true"));
    default:
        return *p == '-' || is_digit(p, r->end) ? read_number(r, p) : fail(r, p, "expected value");
    }
}

/* A key and its colon. */
static inline const char *read_key(struct reader *r, const char *p)
{
    bool is_escaped = false;

    if (p == r->end)
        return fail(r, p, "EOF while parsing an object");
    if (*p != '"')
        return fail(r, p, "key must be a string");
    const char *first = p + 1;
    p = check_string(r, p, &is_escaped);
    if (p == NULL)
        return NULL;

    if (!push_token(r, SP_JSON_STRING, first, (size_t)(p - first), is_escaped))
        return NULL;
    p = check_key(r, p);
    if (p == NULL)
        return NULL;

    p = skip_blanks(p + 1, r->end);
    if (p == r->end)
        return fail(r, p, "EOF while parsing an object");
    return *p == ':' ? p + 1 : fail(r, p, "expected `:`");
}

static inline const char *open_container(struct reader *r, const char *p)
{
    if (r->depth == SP_JSON_MAX_DEPTH)
        return fail(r, p, "recursion limit exceeded");
    if (!push_value(r, *p == '{' ? SP_JSON_OBJECT : SP_JSON_ARRAY, p, 0, false))
        return NULL;
    const uint32_t token = r->j->count - 1;
    r->j->tokens[token].next = r->open;
    r->open = token;
    r->depth++;
    return p + 1;
}

static inline const char *close_container(struct reader *r, const char *p)
{
    const uint32_t token = r->open;

    if (r->j->tokens[token].is_escaped) {
        const uint32_t twin = find_twin(r, token);

        if (twin != SP_JSON_NONE)
            return fail_twin(r, twin);
        if (r->at != NULL)
            return NULL;
    }
    struct sp_json_token *t = &r->j->tokens[token];
    r->open = t->next;
    r->depth--;
    t->is_escaped = false;
    t->len = (uint32_t)(p + 1 - r->start) - t->off;
    t->next = r->j->count;
    return p + 1;
}

static inline bool is_in_object(const struct reader *r)
{
    return r->j->tokens[r->open].type == SP_JSON_OBJECT;
}

/* From the end of a value to the next one: closes containers, steps over commas, reads a key. */
static const char *read_on(struct reader *r, const char *p)
{
    while (r->depth != 0) {
        const bool is_object = is_in_object(r);
        const char closing = is_object ? '}' : ']';

        p = skip_blanks(p, r->end);
        if (p == r->end)
            return fail(r, p,
                        is_object ? "EOF while parsing an object" : "EOF while parsing a list");
        if (*p == ',') {
            p = skip_blanks(p + 1, r->end);
            if (p < r->end && *p == closing)
                return fail(r, p, "trailing comma");
            if (is_object)
                return read_key(r, p);
            r->j->tokens[r->open].children++;
            return p;
        }
        if (*p != closing)
            return fail(r, p, is_object ? "expected `,` or `}`" : "expected `,` or `]`");
        p = close_container(r, p);
        if (p == NULL)
            return NULL;
    }
    return p;
}

static bool read_text(struct reader *r)
{
    const char *p = r->start;

    do {
        p = skip_blanks(p, r->end);
        if (p == r->end)
            return fail(r, p, "EOF while parsing a value") != NULL;
        if (*p != '{' && *p != '[') {
            p = read_scalar(r, p);
        } else {
            p = open_container(r, p);
            if (p == NULL)
                return false;
            p = skip_blanks(p, r->end);
            const bool is_object = is_in_object(r);
            if (p == r->end)
                return fail(r, p,
                            is_object ? "EOF while parsing an object"
                                      : "EOF while parsing a list") != NULL;
            if (*p != (is_object ? '}' : ']')) { /* an empty container is closed by read_on() */
                if (is_object)
                    p = read_key(r, p);
                else
                    r->j->tokens[r->open].children++;
                if (p == NULL)
                    return false;
                continue;
            }
        }
        if (p != NULL)
            p = read_on(r, p);
        if (p == NULL)
            return false;
    } while (r->depth != 0);

    p = skip_blanks(p, r->end);
    return p == r->end || fail(r, p, "trailing characters") != NULL;
}

/* ---- the whole text ---- */

static int refuse(const struct reader *r, struct sp_err *e)
{
    size_t line = 1;
    const char *begin = r->start;
    char shown[SP_JSON_SHOWN_ROOM];

    if (r->why == NULL && r->twin == SP_JSON_NONE)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a JSON text");
    for (const char *p; (p = memchr(begin, '\n', (size_t)(r->at - begin))) != NULL; line++)
        begin = p + 1;
    const size_t column = (size_t)(r->at - begin) + (r->at < r->end);
    if (r->why != NULL)
        return sp_fail(e, SP_E_MALFORMED, 0, "%s at line %zu column %zu", r->why, line, column);
    return sp_fail(e, SP_E_MALFORMED, 0, "duplicate JSON object key `%s` at line %zu column %zu",
                   sp_json_show(r->j, r->twin, shown), line, column);
}

int sp_json_parse(struct sp_json *j, char *text, size_t len, struct sp_err *e)
{
    struct reader r = {
        .j = j, .start = text, .end = text + len, .open = SP_JSON_NONE, .twin = SP_JSON_NONE};

    r.end = r.start + len;
    j->text = text;
    j->count = 0;
    if (len > UINT32_MAX)
        return sp_fail(e, SP_E_MALFORMED, 0, "more than 4 GiB of JSON at line 1 column 1");
    if (read_text(&r))
        return 0;
    const int code = refuse(&r, e);
    j->count = 0; /* callers must not see half a tape */
    return code;
}
