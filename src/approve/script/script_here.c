/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Here-documents: the delimiter is read with its redirection, the lines when the line is over. They
 * are text, but with a bare delimiter what they substitute is commands.
 */
#include "approve/script/script_read.h"

/* Takes the quotes off a word of the source; nothing is expanded in a delimiter. */
static size_t remove_quotes(struct sp_str source, char *out, bool *ret_is_quoted)
{
    size_t n = 0;
    char quote = 0;

    for (size_t i = 0; i < source.n; i++) {
        const char c = source.p[i];

        if (quote == 0 ? c == '\'' || c == '"' : c == quote) {
            quote = quote == 0 ? c : 0;
            *ret_is_quoted = true;
        } else if (c == '\\' && quote != '\'' && i + 1 < source.n) {
            out[n++] = source.p[++i];
            *ret_is_quoted = true;
        } else {
            out[n++] = c;
        }
    }
    return n;
}

void sp_reader_here(struct sp_reader *r, bool strips_tabs)
{
    struct sp_reader_word word;

    sp_reader_skip_blanks(r);
    if (!sp_reader_is_at_word(r)) {
        r->has_failed = true;
        return;
    }
    sp_reader_word(r, &word);
    const struct sp_str source = {word.source, (size_t)(r->p - word.source)};
    struct sp_here_node *node = sp_arena_new(&r->list->arena, sizeof *node);
    char *text = sp_arena_new(&r->list->arena, source.n);
    if (node == NULL || text == NULL) {
        r->list->has_no_memory = r->has_failed = true;
        return;
    }
    node->strips_tabs = strips_tabs;
    node->delimiter.p = text;
    node->delimiter.n = remove_quotes(source, text, &node->is_quoted);
    if (r->here_first == NULL)
        r->here_first = node;
    else
        r->here_last->next = node;
    r->here_last = node;
}

/* The next line without its newline, and the reader behind it. Under a bare delimiter a line that
 * ends in a backslash goes on. */
static struct sp_str next_line(struct sp_reader *r, bool goes_on)
{
    const char *start = r->p;
    const char *p = start;

    for (; p < r->end && *p != '\n'; p++)
        if (goes_on && *p == '\\' && r->end - p > 1)
            p++;
    r->p = p < r->end ? p + 1 : p;
    return (struct sp_str){start, (size_t)(p - start)};
}

static const char *skip_joints(const char *p, const char *end)
{
    while (end - p > 1 && p[0] == '\\' && p[1] == '\n')
        p += 2;
    return p;
}

/* What is behind the delimiter in a line that begins with it; NULL: it does not. */
static const char *behind_delimiter(const struct sp_here_node *h, struct sp_str line)
{
    const char *p = line.p;
    const char *const end = line.p + line.n;

    while (h->strips_tabs && p < end && *p == '\t')
        p++;
    for (size_t i = 0; i < h->delimiter.n; i++) {
        if (!h->is_quoted)
            p = skip_joints(p, end);
        if (p == end || *p++ != h->delimiter.p[i])
            return NULL;
    }
    return h->is_quoted ? p : skip_joints(p, end);
}

/*
 * Whether this is the last line of a document. Inside of a substitution bash takes one that only
 * begins with the delimiter, if the parenthesis may be behind it: there the reader goes on.
 */
static bool is_last_line(struct sp_reader *r, const struct sp_here_node *h, struct sp_str line)
{
    const char *const rest = behind_delimiter(h, line);
    const char *const end = line.p + line.n;

    if (rest == NULL || rest == end)
        return rest == end;
    if (r->substitutions == 0 || memchr(rest, ')', (size_t)(end - rest)) == NULL)
        return false;
    r->p = rest;
    return true;
}

/* Without its last line a document goes to the end. What it substitutes is read by a shell when it
 * comes to it: errors in there end nothing out here. */
static void read_document(struct sp_reader *r, const struct sp_here_node *h)
{
    struct sp_reader inner = *r;

    while (r->p < r->end) {
        const struct sp_str line = next_line(r, !h->is_quoted);

        if (is_last_line(r, h, line)) {
            inner.end = line.p;
            break;
        }
    }
    if (h->is_quoted)
        return;
    sp_reader_quoted_text(&inner);
    r->used = inner.used;
    r->has_failed = *r->is_too_deep || r->list->has_no_memory;
}

void sp_reader_newline(struct sp_reader *r)
{
    struct sp_here_node *h = r->here_first;

    r->p++;
    r->here_first = r->here_last = NULL;
    for (; h != NULL && !r->has_failed; h = h->next)
        read_document(r, h);
}
