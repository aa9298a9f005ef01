/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words: lists of words and segments while they grow; words split, quoted for a shell, and as JSON.
 */
#include <errno.h>

#include "approve/script/script_priv.h"
#include "base/json.h"

/* ---- lists that grow ---- */

void sp_segment_list_add_word(struct sp_segment_list *l, struct sp_word_list *words,
                              struct sp_str text)
{
    struct sp_word_node *node = l->has_no_memory ? NULL : sp_arena_new(&l->arena, sizeof *node);

    if (node == NULL || words->count == UINT32_MAX) {
        l->has_no_memory = true;
        return;
    }
    node->text = text;
    if (words->first == NULL)
        words->first = node;
    else
        words->last->next = node;
    words->last = node;
    words->count++;
}

void sp_segment_list_add(struct sp_segment_list *l, const struct sp_word_list *words)
{
    struct sp_segment_node *node = l->has_no_memory ? NULL : sp_arena_new(&l->arena, sizeof *node);
    struct sp_str *items = node == NULL || l->count == UINT32_MAX
                               ? NULL
                               : sp_arena_new(&l->arena, words->count * sizeof *items);
    uint32_t i = 0;

    if (items == NULL) {
        l->has_no_memory = true;
        return;
    }
    for (const struct sp_word_node *w = words->first; w != NULL; w = w->next)
        items[i++] = w->text;
    node->words = (struct sp_words){items, i};
    if (l->first == NULL)
        l->first = node;
    else
        l->last->next = node;
    l->last = node;
    l->count++;
}

int sp_segment_list_finish(struct sp_segment_list *l, struct sp_segments *ret, struct sp_err *e)
{
    struct sp_words *items =
        l->has_no_memory ? NULL : sp_arena_new(&l->arena, l->count * sizeof *items);
    uint32_t i = 0;

    if (items == NULL) {
        sp_arena_done(&l->arena);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to read a command");
    }
    for (const struct sp_segment_node *s = l->first; s != NULL; s = s->next)
        items[i++] = s->words;
    ret->items = items;
    ret->count = i;
    ret->impl = l->arena.newest;
    return 0;
}

void sp_segments_done(struct sp_segments *s)
{
    struct sp_arena arena = {s->impl};

    sp_arena_done(&arena);
    *s = (struct sp_segments){0};
}

/* ---- names ---- */

bool sp_str_is_any_of(struct sp_str s, const char *const *names)
{
    while (*names != NULL && !sp_str_eq(s, sp_str_of(*names)))
        names++;
    return *names != NULL;
}

/* ---- splitting and quoting words ---- */

struct split {
    const char *p, *end;
    char *out; /* room for as many bytes as the text has */
    bool is_broken;
};

static void skip_space(struct split *s)
{
    while (s->p < s->end) {
        if (*s->p == '#') {
            const char *line_end = memchr(s->p, '\n', (size_t)(s->end - s->p));

            s->p = line_end == NULL ? s->end : line_end;
        } else if (sp_is_blank(*s->p) || *s->p == '\n') {
            s->p++;
        } else {
            return;
        }
    }
}

/* Behind an opening double quote. */
static void split_double(struct split *s)
{
    while (s->p < s->end && *s->p != '"') {
        const char c = *s->p++;

        if (c != '\\') {
            *s->out++ = c;
            continue;
        }
        if (s->p == s->end)
            break;
        if (!sp_is_one_of(*s->p, "$`\"\\\n"))
            *s->out++ = c;
        if (*s->p != '\n')
            *s->out++ = *s->p;
        s->p++;
    }
    s->is_broken = s->p == s->end;
    s->p += !s->is_broken;
}

static void split_word(struct split *s)
{
    while (!s->is_broken && s->p < s->end && !sp_is_blank(*s->p) && *s->p != '\n') {
        const char c = *s->p++;

        if (c == '\'') {
            while (s->p < s->end && *s->p != '\'')
                *s->out++ = *s->p++;
            s->is_broken = s->p == s->end;
            s->p += !s->is_broken;
        } else if (c == '"') {
            split_double(s);
        } else if (c == '\\') {
            s->is_broken = s->p == s->end;
            if (!s->is_broken && *s->p != '\n')
                *s->out++ = *s->p;
            s->p += !s->is_broken;
        } else {
            *s->out++ = c;
        }
    }
}

int sp_words_split(struct sp_segments *ret, struct sp_str text, struct sp_err *e)
{
    struct sp_segment_list list = {0};
    struct sp_word_list words = {0};
    struct split s = {
        .p = text.p, .end = text.p + text.n, .out = sp_arena_new(&list.arena, text.n)};

    *ret = (struct sp_segments){0};
    list.has_no_memory = s.out == NULL;
    for (skip_space(&s); !list.has_no_memory && !s.is_broken && s.p < s.end; skip_space(&s)) {
        const char *start = s.out;

        split_word(&s);
        sp_segment_list_add_word(&list, &words, (struct sp_str){start, (size_t)(s.out - start)});
    }
    if (s.is_broken) {
        sp_arena_done(&list.arena);
        return sp_fail(e, SP_E_INVALID, 0, "a quote or a backslash has no end");
    }
    sp_segment_list_add(&list, &words);
    return sp_segment_list_finish(&list, ret, e);
}

enum way { BARE = 1, SINGLE = 2, DOUBLE = 4 };

/* The ways in which a byte may be quoted, as Codex does it. ^ may only be the first byte in single
 * quotes (add_quoted). */
static unsigned ways_of(char c)
{
    unsigned ways = 0;

    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
        sp_is_one_of(c, "+-./:@]_"))
        ways |= BARE;
    if (c != '\'' && c != '^' && c != '\\')
        ways |= SINGLE;
    if (c != '`' && c != '$' && c != '!' && c != '^')
        ways |= DOUBLE;
    return ways;
}

/* Writes the word in chunks, each as long as one way of quoting permits. */
static bool add_quoted(struct sp_buf *out, struct sp_str word)
{
    bool ok = word.n != 0 || sp_buf_add(out, "''", 2);

    while (ok && word.n != 0) {
        unsigned ways = word.p[0] == '^' ? SINGLE : BARE | SINGLE | DOUBLE;
        size_t n = word.p[0] == '^';

        for (; n < word.n && (ways & ways_of(word.p[n])) != 0; n++)
            ways &= ways_of(word.p[n]);
        const char *quote = (ways & BARE) != 0 ? "" : (ways & SINGLE) != 0 ? "'" : "\"";
        ok = sp_buf_add_str(out, sp_str_of(quote));
        if (*quote != '"')
            ok = ok && sp_buf_add(out, word.p, n);
        for (size_t i = 0; *quote == '"' && ok && i < n; i++)
            ok = ((word.p[i] != '"' && word.p[i] != '\\') || sp_buf_add(out, "\\", 1)) &&
                 sp_buf_add(out, word.p + i, 1);
        ok = ok && sp_buf_add_str(out, sp_str_of(quote));
        word = (struct sp_str){word.p + n, word.n - n};
    }
    return ok;
}

bool sp_words_add_quoted(struct sp_buf *out, struct sp_words words)
{
    for (uint32_t i = 0; i < words.count; i++)
        if (sp_str_has_nul(words.items[i])) /* cannot be written for a shell */
            return sp_buf_add_str(out, SP_STR("<command included NUL byte>"));
    for (uint32_t i = 0; i < words.count; i++)
        if ((i != 0 && !sp_buf_add(out, " ", 1)) || !add_quoted(out, words.items[i]))
            return false;
    return true;
}

bool sp_words_add_json(struct sp_buf *out, struct sp_words words)
{
    bool ok = sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; ok && i < words.count; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, words.items[i]);
    return ok && sp_buf_add(out, "]", 1);
}

bool sp_words_equal(struct sp_words a, struct sp_words b)
{
    if (a.count != b.count)
        return false;
    for (uint32_t i = 0; i < a.count; i++)
        if (!sp_str_eq(a.items[i], b.items[i]))
            return false;
    return true;
}
