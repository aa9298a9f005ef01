/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Wu-Manber search: the last two bytes of a window as long as the shortest phrase select from a
 * table how far the window can move, so most bytes are never read. Phrases across the border of two
 * chunks are found by a second search in the few bytes around it.
 */
#include "sandbox/denial.h"

#include <signal.h>
#include <string.h>

#define WINDOW      7  /* length of the shortest phrase */
#define LONGEST     23 /* length of the longest */
#define SIGSYS_EXIT (128 + SIGSYS)

static const struct word {
    const char *text;
    size_t len;
} words[SP_DENIAL_MAX] = {
#define X(name, word, reason) [SP_DENIAL_##name] = {(word), sizeof(word) - 1},
    SP_DENIAL_WORDS(X)
#undef X
};
#define X(name, word, reason) \
    _Static_assert(sizeof(word) - 1 >= WINDOW && sizeof(word) - 1 <= LONGEST, word);
SP_DENIAL_WORDS(X)
#undef X

/* Offset of the window in each phrase, chosen so that its last two letters are rare. */
static const uint8_t anchors[SP_DENIAL_MAX] = {
    [SP_DENIAL_NOT_PERMITTED] = 14, /* permitt */
    [SP_DENIAL_READ_ONLY] = 1,      /* ead-onl */
    [SP_DENIAL_WRITE_FILE] = 5,     /* d to wr */
};

/* ---- the scanner ---- */

/* Hashes two bytes to ten bits, without letter case. is_word sorts out collisions. */
static unsigned pair(const char *p)
{
    return ((unsigned)p[0] & 31) << 5 | ((unsigned)p[1] & 31);
}

static bool is_word(const char *p, const struct word *w)
{
    for (size_t i = 0; i < w->len; i++) {
        const char c = p[i] >= 'A' && p[i] <= 'Z' ? (char)(p[i] | 32) : p[i];

        if (c != w->text[i])
            return false;
    }
    return true;
}

static void make_table(uint8_t shift[1024])
{
    memset(shift, WINDOW - 1, 1024);
    for (size_t w = 0; w < SP_DENIAL_MAX; w++)
        for (uint8_t i = 0; i < WINDOW - 1; i++) {
            uint8_t *s = &shift[pair(words[w].text + anchors[w] + i)];
            const uint8_t to_end = (uint8_t)(WINDOW - 2 - i);

            *s = to_end < *s ? to_end : *s;
        }
}

/* The phrase with its window at `at`, if it begins at `from` or later. */
static enum sp_denial_word word_around(const char *text, size_t len, size_t from, size_t at)
{
    for (size_t w = 0; w < SP_DENIAL_MAX; w++)
        if (at >= from + anchors[w] && at - anchors[w] + words[w].len <= len &&
            is_word(text + at - anchors[w], &words[w]))
            return (enum sp_denial_word)w;
    return SP_DENIAL_MAX;
}

/* The first phrase that begins at *at or later; *at becomes its offset. */
static enum sp_denial_word find_word(const struct sp_denial *d, const char *text, size_t len,
                                     size_t *at)
{
    for (size_t end = *at + WINDOW; end <= len;) {
        const uint8_t shift = d->shift[pair(text + end - 2)];

        if (shift != 0) {
            end += shift;
            continue;
        }
        const enum sp_denial_word w = word_around(text, len, *at, end - WINDOW);
        if (w != SP_DENIAL_MAX) {
            *at = end - WINDOW - anchors[w];
            return w;
        }
        end++;
    }
    return SP_DENIAL_MAX;
}

/* ---- text in chunks ---- */

/* The tail and the chunk as one text. */
struct view {
    const struct sp_denial_tail *tail;
    const char *chunk;
    size_t n;
};

static void copy_range(const struct view *v, size_t from, size_t to, char *ret)
{
    const size_t border = v->tail->len;

    if (from < border) {
        const size_t n = (to < border ? to : border) - from;

        memcpy(ret, v->tail->bytes + from, n);
        ret += n;
        from += n;
    }
    if (from < to)
        memcpy(ret, v->chunk + (from - border), to - from);
}

static void append(struct sp_denial_tail *t, const char *bytes, size_t n)
{
    if (n >= sizeof t->bytes) {
        memcpy(t->bytes, bytes + (n - sizeof t->bytes), sizeof t->bytes);
        t->len = sizeof t->bytes;
        return;
    }
    if (t->len + n > sizeof t->bytes) {
        const size_t keep = sizeof t->bytes - n;

        memmove(t->bytes, t->bytes + (t->len - keep), keep);
        t->len = keep;
    }
    memcpy(t->bytes + t->len, bytes, n);
    t->len += n;
}

/* ---- the path ---- */

static bool is_quote(char c)
{
    return c == '\'' || c == '"' || c == '`';
}

static bool begins_a_path(const char *p, size_t n)
{
    return (n >= 1 && p[0] == '/') || (n >= 2 && memcmp(p, "./", 2) == 0) ||
           (n >= 3 && memcmp(p, "../", 3) == 0);
}

static void take_path(struct sp_denial *d, const char *p, size_t n)
{
    static const char opening[] = " \xE2\x80\x98";
    static const char closing[] = "\xE2\x80\x99";
    static const char *const verbs[] = {"cannot create ", "cannot open "};
    const bool is_plain = n > 0 && is_quote(p[n - 1]);
    const bool is_curly = n > 3 && memcmp(p + n - 3, closing, 3) == 0;

    /* "cannot touch '/x'": narrows p, n to the quoted text at the end, if there is one. With a
     * UTF-8 locale the quotes are U+2018 and U+2019. */
    for (size_t i = n; (is_plain || is_curly) && i-- > 0;) {
        const bool is_here = is_plain ? i + 1 < n && p[i] == ' ' && is_quote(p[i + 1])
                                      : i + 4 < n && memcmp(p + i, opening, 4) == 0;

        if (is_here) {
            const size_t skipped = i + (is_plain ? 1 : 4);

            p += skipped;
            n -= skipped + (is_curly ? 3 : 0);
            break;
        }
    }
    /* "cannot create /x": a shell's message about a redirection, without quotes. */
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        const size_t len = strlen(verbs[i]);

        if (n > len && memcmp(p, verbs[i], len) == 0 && !is_quote(p[n - 1])) {
            p += len;
            n -= len;
            break;
        }
    }
    for (; n != 0 && is_quote(p[0]); n--)
        p++;
    while (n != 0 && is_quote(p[n - 1]))
        n--;
    if (n > SP_DENIAL_PATH || !begins_a_path(p, n) || memchr(p, 0, n) != NULL)
        return;
    memcpy(d->path, p, n);
    d->path[n] = 0;
}

/* The three phrases that strerror() prints, after a path. */
static bool names_errno(enum sp_denial_word w)
{
    return w <= SP_DENIAL_READ_ONLY;
}

static bool follows_colon(const struct view *v, size_t at)
{
    char two[2] = "";

    if (at >= 2)
        copy_range(v, at - 2, at, two);
    return memcmp(two, ": ", 2) == 0;
}

/* The phrase begins at `at`: takes the text between the previous ": " of its line and the phrase.
 */
static void find_path(struct sp_denial *d, const struct view *v, size_t at)
{
    char text[SP_DENIAL_PATH + 8] = ""; /* room for quotes and the ": " */
    _Static_assert(sizeof text + 2 + LONGEST < sizeof v->tail->bytes, "a full tail is longer");
    const size_t end = at - 2;
    const size_t len = end < sizeof text ? end : sizeof text;

    copy_range(v, end - len, end, text);
    for (size_t i = len; i-- > 0;)
        if (text[i] == '\n' || (i + 1 < len && memcmp(text + i, ": ", 2) == 0)) {
            const size_t begin = text[i] == '\n' ? i + 1 : i + 2;

            take_path(d, text + begin, len - begin);
            return;
        }
    if (len == end) /* the first line of the output */
        take_path(d, text, len);
}

/* ---- feeding ---- */

/* The phrase that begins in the tail and ends in the chunk; *ret_at: its offset in the view. */
static enum sp_denial_word find_torn(const struct sp_denial *d, const struct view *v,
                                     size_t *ret_at)
{
    char text[2 * (LONGEST - 1)] = "";
    const size_t before = v->tail->len < LONGEST - 1 ? v->tail->len : LONGEST - 1;
    const size_t after = v->n < LONGEST - 1 ? v->n : LONGEST - 1;
    const size_t first = v->tail->len - before;

    copy_range(v, first, first + before + after, text);
    for (size_t at = 0;; at++) {
        const enum sp_denial_word w = find_word(d, text, before + after, &at);

        if (w == SP_DENIAL_MAX || at >= before)
            return SP_DENIAL_MAX;
        if (at + words[w].len > before) {
            *ret_at = first + at;
            return w;
        }
    }
}

/* Phrases across the border, in this stream and in both joined; the one that ends first counts. */
static void search_border(struct sp_denial *d, const struct view *own, const struct view *joined)
{
    size_t own_at = 0;
    size_t joined_at = 0;
    const enum sp_denial_word o = find_torn(d, own, &own_at);
    const enum sp_denial_word j = find_torn(d, joined, &joined_at);

    if (d->path[0] == 0 && names_errno(o) && follows_colon(own, own_at))
        find_path(d, own, own_at);
    if (d->word != SP_DENIAL_MAX)
        return;
    d->word = o;
    if (j != SP_DENIAL_MAX && (o == SP_DENIAL_MAX || joined_at + words[j].len - joined->tail->len <
                                                         own_at + words[o].len - own->tail->len))
        d->word = j;
}

static void search_chunk(struct sp_denial *d, const struct view *own)
{
    for (size_t at = 0;; at++) {
        const enum sp_denial_word w = find_word(d, own->chunk, own->n, &at);

        if (w == SP_DENIAL_MAX)
            return;
        if (d->word == SP_DENIAL_MAX)
            d->word = w;
        if (names_errno(w) && follows_colon(own, own->tail->len + at))
            find_path(d, own, own->tail->len + at);
        if (d->path[0] != 0)
            return; /* phrase and path are both known */
    }
}

void sp_denial_init(struct sp_denial *d)
{
    memset(d, 0, sizeof *d);
    d->word = SP_DENIAL_MAX;
    make_table(d->shift);
}

void sp_denial_feed(struct sp_denial *d, enum sp_stream stream, const void *bytes, size_t n)
{
    struct sp_denial_tail *tail = &d->own[stream == SP_STREAM_STDERR];
    const struct view own = {tail, bytes, n};
    const struct view joined = {&d->joined, bytes, n};

    if (n == 0 || (d->word != SP_DENIAL_MAX && d->path[0] != 0))
        return;
    search_border(d, &own, &joined);
    if (d->path[0] == 0)
        search_chunk(d, &own);
    append(tail, bytes, n);
    append(&d->joined, bytes, n);
}

bool sp_denial_is_likely(bool is_confined, int exit_code, const struct sp_denial *d)
{
    return is_confined && exit_code != 0 && sp_denial_reason(d, exit_code) != NULL;
}

const char *sp_denial_reason(const struct sp_denial *d, int exit_code)
{
    static const char *const reasons[SP_DENIAL_MAX] = {
#define X(name, word, reason) [SP_DENIAL_##name] = (reason),
        SP_DENIAL_WORDS(X)
#undef X
    };

    if (d->word != SP_DENIAL_MAX)
        return reasons[d->word];
    return exit_code == SIGSYS_EXIT ? "sigsys" : NULL;
}
