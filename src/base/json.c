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
#include <string.h>
#include <sys/random.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/clock.h"
#include "base/utf8.h"

#define FIRST_TOKENS 32    /* of a new tape */
#define KEPT_BYTES   65536 /* a larger tape is freed by sp_json_trim */
#define FEW_MEMBERS  16    /* small objects: compare a new key with all previous keys */
#define SHOWN_BYTES  120
#define SHOWN_ROOM   (SHOWN_BYTES + 16)

/* ---- the bytes of a string, unescaped ---- */

/* The value of four hexadecimal digits that were checked before. */
static inline uint32_t read_hex4(const char *p)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++)
        v = v << 4 | ((uint32_t)sp_hex_digit(p[i]) & 15);
    return v;
}

/*
 * Writes the character of the escape at *p, which the reader has checked, as UTF-8 and moves *p
 * behind it. Returns the bytes written: at most four, and fewer than the escape has.
 */
static size_t unescape(const char **p, char *out)
{
    static const char plain[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    const char *in = *p + 1;

    if (*in != 'u') {
        *out = meant[strchr(plain, *in) - plain];
        *p = in + 1;
        return 1;
    }
    uint32_t c = read_hex4(in + 1);
    in += 5;
    if (c >= 0xD800 && c <= 0xDFFF) {
        c = 0x10000 + ((c & 0x3FF) << 10) + (read_hex4(in + 2) & 0x3FF);
        in += 6;
    }
    *p = in;
    return sp_utf8_encode(c, out);
}

/* Iterates over the bytes of a string or key without changing the text. */
struct string_bytes {
    const char *p, *end;
    char held[4]; /* of the escape that p is behind */
    uint8_t held_count, held_next;
    bool is_escaped;
};

static inline struct string_bytes bytes_of(const struct sp_json *j, const struct sp_json_token *t)
{
    return (struct string_bytes){
        .p = j->text + t->off, .end = j->text + t->off + t->len, .is_escaped = t->is_escaped};
}

/* -1: the end. */
static inline int next_byte(struct string_bytes *b)
{
    if (b->held_next < b->held_count)
        return (unsigned char)b->held[b->held_next++];
    if (b->p == b->end)
        return -1;
    if (*b->p != '\\' || !b->is_escaped)
        return (unsigned char)*b->p++;
    b->held_count = (uint8_t)unescape(&b->p, b->held);
    b->held_next = 1;
    return (unsigned char)b->held[0];
}

/* The beginning of a string, for a message: control characters escaped, cut between characters. */
static const char *show_string(const struct sp_json *j, uint32_t token, char out[SHOWN_ROOM])
{
    struct string_bytes b = bytes_of(j, &j->tokens[token]);
    size_t n = 0;
    int c;

    while ((c = next_byte(&b)) >= 0) {
        if (n >= SHOWN_BYTES && (c & 0xC0) != 0x80) {
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

/* ---- scanning ---- */

#ifdef __SSE2__
/* 0xFF for each byte that needs an escape: a quote, a backslash, a control character. */
static inline __m128i special_bytes(__m128i v)
{
    const __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"'));
    const __m128i backslash = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));
    const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1F)), v);

    return _mm_or_si128(_mm_or_si128(quote, backslash), control);
}

static inline __m128i load16(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

#define SHORT_STEPS 16 /* steps of 16 bytes: most strings are shorter */
#define AHEAD       4096

/* skip_plain in steps of a cache line, for long strings. Prefetches explicitly, because the
 * processor's own prefetcher stops at the end of a page. */
static inline const char *skip_plain_lines(const char *p, const char *end, __m128i *seen)
{
    for (; end - p >= 64; p += 64) {
        const __m128i a = load16(p);
        const __m128i b = load16(p + 16);
        const __m128i c = load16(p + 32);
        const __m128i d = load16(p + 48);
        const __m128i hit = _mm_or_si128(_mm_or_si128(special_bytes(a), special_bytes(b)),
                                         _mm_or_si128(special_bytes(c), special_bytes(d)));

        if (_mm_movemask_epi8(hit) != 0)
            break;
        if (end - p > AHEAD)
            _mm_prefetch(p + AHEAD, _MM_HINT_T0);
        *seen = _mm_or_si128(*seen, _mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d)));
    }
    return p;
}
#endif

/* The first byte from p on that needs an escape. *high becomes nonzero if a byte before it is not
 * ASCII. */
static inline const char *skip_plain(const char *p, const char *end, unsigned *high)
{
#ifdef __SSE2__
    __m128i seen = _mm_setzero_si128();

    for (int step = 0; end - p >= 16; p += 16, step++) {
        if (step == SHORT_STEPS) {
            p = skip_plain_lines(p, end, &seen);
            if (end - p < 16)
                break;
        }
        const __m128i v = load16(p);
        const unsigned hits = (unsigned)_mm_movemask_epi8(special_bytes(v));

        if (hits != 0) {
            const unsigned before = (hits & -hits) - 1;

            *high |= (unsigned)_mm_movemask_epi8(seen) | ((unsigned)_mm_movemask_epi8(v) & before);
            return p + __builtin_ctz(hits);
        }
        seen = _mm_or_si128(seen, v);
    }
    *high |= (unsigned)_mm_movemask_epi8(seen);
#else
    const uint64_t ones = 0x0101010101010101U;
    const uint64_t tops = 0x80 * ones;

    for (; end - p >= 8; p += 8) {
        uint64_t v;

        memcpy(&v, p, 8);
        const uint64_t quote = v ^ '"' * ones;
        const uint64_t backslash = v ^ '\\' * ones;
        const uint64_t hit = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
                             ((v - 0x20 * ones) & ~v);

        if ((hit & tops) != 0) /* the loop below finds the byte */
            break;
        *high |= (v & tops) != 0;
    }
#endif
    for (; p < end; p++) {
        const unsigned char c = (unsigned char)*p;

        if (c == '"' || c == '\\' || c < 0x20)
            break;
        *high |= c & 0x80;
    }
    return p;
}

/* ---- reading ---- */

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
    const uint32_t unit = after == NULL ? 0 : read_hex4(p + 1);
    if (unit < 0xD800 || unit > 0xDFFF)
        return after;
    if (unit > 0xDBFF)
        return fail(r, after - 1, "lone trailing surrogate in hex escape");
    if (after == r->end)
        return fail(r, after, "EOF while parsing a string");
    if (r->end - after < 2 || after[0] != '\\' || after[1] != 'u')
        return fail(r, after, "lone leading surrogate in hex escape");

    const char *second = check_hex(r, after + 1);
    if (second != NULL && (read_hex4(after + 2) & 0xFC00) != 0xDC00)
        return fail(r, second - 1, "lone leading surrogate in hex escape");
    return second;
}

/* Checks a string; p is at its opening quote. Returns the place of its closing quote. */
static inline const char *check_string(struct reader *r, const char *p, bool *is_escaped)
{
    const char *first = p + 1;
    unsigned high = 0;

    p = skip_plain(first, r->end, &high);
    while (p < r->end && *p == '\\') {
        *is_escaped = true;
        p = check_escape(r, p);
        if (p == NULL)
            return NULL;
        p = skip_plain(p, r->end, &high);
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

    struct string_bytes x = bytes_of(j, a);
    struct string_bytes y = bytes_of(j, b);
    for (;;) {
        const int c = next_byte(&x);

        if (c != next_byte(&y))
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
    struct string_bytes b = bytes_of(j, t);
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
    for (int c; (c = next_byte(&b)) >= 0;) {
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
        p++;
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
    char shown[SHOWN_ROOM];

    if (r->why == NULL && r->twin == SP_JSON_NONE)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a JSON text");
    for (const char *p; (p = memchr(begin, '\n', (size_t)(r->at - begin))) != NULL; line++)
        begin = p + 1;
    const size_t column = (size_t)(r->at - begin) + (r->at < r->end);
    if (r->why != NULL)
        return sp_fail(e, SP_E_MALFORMED, 0, "%s at line %zu column %zu", r->why, line, column);
    return sp_fail(e, SP_E_MALFORMED, 0, "duplicate JSON object key `%s` at line %zu column %zu",
                   show_string(r->j, r->twin, shown), line, column);
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

/* ---- values of the tape ---- */

struct sp_str sp_json_str(struct sp_json *j, uint32_t token)
{
    struct sp_json_token *t = &j->tokens[token];
    char *first = j->text + t->off;

    if (t->is_escaped) {
        const char *end = first + t->len;
        const char *p = memchr(first, '\\', t->len);
        char *w = first + (p - first);

        while (p < end) {
            w += unescape(&p, w);
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

static bool key_is(const struct sp_json *j, const struct sp_json_token *t, struct sp_str key)
{
    if (!t->is_escaped)
        return t->len == key.n && memcmp(j->text + t->off, key.p, key.n) == 0;

    struct string_bytes b = bytes_of(j, t);
    for (size_t i = 0; i < key.n; i++)
        if (next_byte(&b) != (unsigned char)key.p[i])
            return false;
    return next_byte(&b) < 0;
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
        char shown[SHOWN_ROOM];

        return sp_fail(e, SP_E_INVALID, 0, "invalid type: string \"%s\", expected %s",
                       show_string(j, token, shown), expected);
    }
    return sp_fail(e, SP_E_INVALID, 0, "invalid type: %s, expected %s", kind[type], expected);
}

/* ---- members by type ---- */

enum presence {
    NEED, /* required, null is refused */
    OPT,  /* optional, null means absent */
    DEF,  /* optional, null is refused */
};

#define IS(type) (1U << SP_JSON_##type)

/* *ret_token is SP_JSON_NONE if the member is absent or null and may be; else its type is one of
 * `types`. */
static int find_member(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                       unsigned types, const char *expected, uint32_t *ret_token, struct sp_err *e)
{
    uint32_t t = sp_json_get(j, object, key);

    if (t == SP_JSON_NONE && presence == NEED)
        return sp_fail(e, SP_E_INVALID, 0, "missing field `%s`", key);
    if (t != SP_JSON_NONE && presence == OPT && sp_json_type(j, t) == SP_JSON_NULL)
        t = SP_JSON_NONE;
    if (t != SP_JSON_NONE && (types >> sp_json_type(j, t) & 1) == 0)
        return sp_json_wrong_type(j, t, expected, e);
    *ret_token = t;
    return 0;
}

static int read_str(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                    struct sp_str *ret, struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find_member(j, object, key, presence, IS(STRING), "a string", &t, e);

    if (t != SP_JSON_NONE)
        *ret = sp_json_str(j, t);
    return r;
}

static int read_bool(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                     bool *ret, struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find_member(j, object, key, presence, IS(TRUE) | IS(FALSE), "a boolean", &t, e);

    if (t != SP_JSON_NONE)
        *ret = sp_json_type(j, t) == SP_JSON_TRUE;
    return r;
}

static int read_u64(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                    uint64_t max, uint64_t *ret, struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r =
        find_member(j, object, key, presence, IS(INT) | IS(UINT) | IS(REAL), "u64", &t, e);

    /* Digits only: no sign, no fraction, no exponent, so "-0" and "1.0" are refused too. */
    if (t != SP_JSON_NONE && !sp_str_to_u64(sp_json_raw(j, t), max, ret))
        return sp_fail(e, SP_E_INVALID, 0, "invalid number");
    return r;
}

static int read_container(struct sp_json *j, uint32_t object, const char *key,
                          enum presence presence, enum sp_json_type type, uint32_t *ret,
                          struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find_member(j, object, key, presence, 1U << type,
                              type == SP_JSON_OBJECT ? "a map" : "a sequence", &t, e);

    if (t != SP_JSON_NONE)
        *ret = t;
    return r;
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
        const char *stop = skip_plain(s.p, end, &high);
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
