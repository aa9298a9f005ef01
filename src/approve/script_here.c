/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Here-documents: the delimiter is read with its redirection, the lines when the line is over. They
 * are text, but with a bare delimiter what they substitute is commands.
 */
#include "approve/script_read.h"

/* Takes the quotes off; nothing is expanded in a delimiter. */
static struct sp_str read_delimiter(struct sp_reader *r, bool *ret_is_quoted)
{
    const size_t start = r->used;
    char quote = 0;

    for (; !sp_reader_is_at_end(r) && (quote != 0 || !sp_is_meta(*r->p)); r->p++) {
        if (quote == 0 ? *r->p == '\'' || *r->p == '"' : *r->p == quote) {
            quote = quote == 0 ? *r->p : 0;
            *ret_is_quoted = true;
        } else if (*r->p == '\\' && quote != '\'' && r->end - r->p > 1) {
            r->bytes[r->used++] = *++r->p;
            *ret_is_quoted = true;
        } else {
            r->bytes[r->used++] = *r->p;
        }
    }
    if (quote != 0)
        r->has_failed = true;
    return (struct sp_str){r->bytes + start, r->used - start};
}

void sp_reader_here(struct sp_reader *r, bool strips_tabs)
{
    const char *start;
    struct sp_here_node *node = sp_arena_new(&r->list->arena, sizeof *node);

    if (node == NULL) {
        r->list->has_no_memory = r->has_failed = true;
        return;
    }
    while (sp_is_blank(sp_reader_peek(r, 0)))
        r->p++;
    start = r->p;
    node->strips_tabs = strips_tabs;
    node->delimiter = read_delimiter(r, &node->is_quoted);
    if (r->p == start)
        r->has_failed = true; /* there is none */
    if (r->here_first == NULL)
        r->here_first = node;
    else
        r->here_last->next = node;
    r->here_last = node;
}

/* The next line without its newline, and the reader behind it. */
static struct sp_str next_line(struct sp_reader *r)
{
    const char *start = r->p;
    const char *newline = memchr(start, '\n', (size_t)(r->end - start));

    r->p = newline == NULL ? r->end : newline + 1;
    return (struct sp_str){start, (size_t)((newline == NULL ? r->end : newline) - start)};
}

static struct sp_str without_tabs(struct sp_str line)
{
    while (line.n != 0 && line.p[0] == '\t')
        line = (struct sp_str){line.p + 1, line.n - 1};
    return line;
}

/* Without its last line a document goes to the end. */
static void read_document(struct sp_reader *r, const struct sp_here_node *h)
{
    const char *start = r->p;
    const char *body_end = r->end;

    while (r->p < r->end) {
        const struct sp_str line = next_line(r);

        if (sp_str_eq(h->strips_tabs ? without_tabs(line) : line, h->delimiter)) {
            body_end = line.p;
            break;
        }
    }
    if (h->is_quoted)
        return;
    const char *const after = r->p;
    const char *const end = r->end;
    r->p = start;
    r->end = body_end;
    sp_reader_quoted_text(r);
    r->p = after;
    r->end = end;
}

void sp_reader_newline(struct sp_reader *r)
{
    struct sp_here_node *h = r->here_first;

    r->p++;
    r->here_first = r->here_last = NULL;
    for (; h != NULL && !r->has_failed; h = h->next)
        read_document(r, h);
}
