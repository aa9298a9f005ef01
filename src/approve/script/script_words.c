/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a text, and a text of words: both as a POSIX shell would have them. */
#include "approve/script/script_priv.h"

/* ---- splitting ---- */

struct split {
    const char *p, *end;
    char *out; /* never more bytes than the text has */
    bool is_broken;
};

static void skip_comment(struct split *s)
{
    const char *line_end = memchr(s->p, '\n', (size_t)(s->end - s->p));

    s->p = line_end == NULL ? s->end : line_end;
}

static void skip_space(struct split *s)
{
    while (s->p < s->end) {
        if (*s->p == '#')
            skip_comment(s);
        else if (sp_is_blank(*s->p) || *s->p == '\n')
            s->p++;
        else
            return;
    }
}

static void split_single(struct split *s)
{
    while (s->p < s->end && *s->p != '\'')
        *s->out++ = *s->p++;
    s->is_broken = s->p == s->end;
    s->p += !s->is_broken;
}

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

static void split_escape(struct split *s)
{
    s->is_broken = s->p == s->end;
    if (s->is_broken)
        return;
    if (*s->p != '\n')
        *s->out++ = *s->p;
    s->p++;
}

static void split_word(struct split *s)
{
    while (!s->is_broken && s->p < s->end && !sp_is_blank(*s->p) && *s->p != '\n') {
        const char c = *s->p++;

        if (c == '\'')
            split_single(s);
        else if (c == '"')
            split_double(s);
        else if (c == '\\')
            split_escape(s);
        else
            *s->out++ = c;
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

/* ---- quoting ---- */

enum way { BARE = 1, SINGLE = 2, DOUBLE = 4 };

/* The ways in which a byte may be written. ^ is not among them: it stands first in single quotes,
 * or nowhere. */
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

/* How many bytes can be written in one way, and that way. */
static size_t chunk(struct sp_str s, unsigned *ret_way)
{
    unsigned ways = s.p[0] == '^' ? SINGLE : BARE | SINGLE | DOUBLE;
    size_t n = s.p[0] == '^';

    for (; n < s.n && (ways & ways_of(s.p[n])) != 0; n++)
        ways &= ways_of(s.p[n]);
    *ret_way = (ways & BARE) != 0 ? BARE : (ways & SINGLE) != 0 ? SINGLE : DOUBLE;
    return n;
}

static bool add_double(struct sp_buf *out, struct sp_str s)
{
    bool is_good = sp_buf_add(out, "\"", 1);

    for (size_t i = 0; is_good && i < s.n; i++) {
        if (s.p[i] == '"' || s.p[i] == '\\')
            is_good = sp_buf_add(out, "\\", 1);
        is_good = is_good && sp_buf_add(out, s.p + i, 1);
    }
    return is_good && sp_buf_add(out, "\"", 1);
}

static bool add_chunk(struct sp_buf *out, struct sp_str s, unsigned way)
{
    if (way == BARE)
        return sp_buf_add_str(out, s);
    if (way == DOUBLE)
        return add_double(out, s);
    return sp_buf_add(out, "'", 1) && sp_buf_add_str(out, s) && sp_buf_add(out, "'", 1);
}

static bool add_quoted(struct sp_buf *out, struct sp_str word)
{
    if (word.n == 0)
        return sp_buf_add(out, "''", 2);
    while (word.n != 0) {
        unsigned way;
        const size_t n = chunk(word, &way);

        if (!add_chunk(out, (struct sp_str){word.p, n}, way))
            return false;
        word = (struct sp_str){word.p + n, word.n - n};
    }
    return true;
}

bool sp_words_add_quoted(struct sp_buf *out, struct sp_words words)
{
    for (uint32_t i = 0; i < words.count; i++)
        if (sp_str_has_nul(words.items[i])) /* no shell can be told such a word */
            return sp_buf_add_str(out, SP_STR("<command included NUL byte>"));
    for (uint32_t i = 0; i < words.count; i++)
        if ((i != 0 && !sp_buf_add(out, " ", 1)) || !add_quoted(out, words.items[i]))
            return false;
    return true;
}
