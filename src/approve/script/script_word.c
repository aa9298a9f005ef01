/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words: quotes, expansions, substitutions; and here-documents. A word is literal if nothing in it
 * is expanded; patterns and braces count as literal text.
 */
#include "approve/script/script_read.h"

static void add_byte(struct sp_reader *r, char c)
{
    if (r->used == r->size) {
        *r->is_too_deep = r->has_failed = true;
        return;
    }
    r->bytes[r->used++] = c;
}

/* Skips the n bytes that close a construct; it is a syntax error if the text ends before. */
static void skip_closing(struct sp_reader *r, size_t n)
{
    if (sp_reader_is_at_end(r))
        r->has_failed = true;
    else
        r->p += n;
}

static void read_dollar(struct sp_reader *r, struct sp_reader_word *w, bool is_in_quotes);
static void read_backquote(struct sp_reader *r, struct sp_reader_word *w, bool is_in_quotes);

/* ---- quotes ---- */

static void read_single(struct sp_reader *r)
{
    const char *start = r->p + 1;
    const char *quote = memchr(start, '\'', (size_t)(r->end - start));

    if (quote == NULL) {
        r->has_failed = true;
        return;
    }
    for (const char *p = start; p < quote; p++)
        add_byte(r, *p);
    r->p = quote + 1;
}

/* One byte, escape or expansion in double quotes. */
static void read_quoted_step(struct sp_reader *r, struct sp_reader_word *w)
{
    if (*r->p == '$') {
        read_dollar(r, w, true);
    } else if (*r->p == '`') {
        read_backquote(r, w, true);
    } else if (*r->p == '\\') {
        r->p++;
        if (sp_reader_is_at_end(r))
            return;
        if (!sp_is_one_of(*r->p, "$`\"\\\n"))
            add_byte(r, '\\');
        if (*r->p != '\n')
            add_byte(r, *r->p);
        r->p++;
    } else {
        add_byte(r, *r->p++);
    }
}

static void read_double(struct sp_reader *r, struct sp_reader_word *w)
{
    r->p++;
    while (!sp_reader_is_at_end(r) && *r->p != '"')
        read_quoted_step(r, w);
    skip_closing(r, 1);
}

void sp_reader_quoted_text(struct sp_reader *r)
{
    struct sp_reader_word ignored = {0};

    while (!sp_reader_is_at_end(r))
        read_quoted_step(r, &ignored);
}

/* $'...': literal only without escapes. */
static void read_ansi(struct sp_reader *r, struct sp_reader_word *w)
{
    for (r->p++; !sp_reader_is_at_end(r) && *r->p != '\''; r->p++) {
        if (*r->p != '\\') {
            add_byte(r, *r->p);
            continue;
        }
        w->is_literal = false;
        if (++r->p >= r->end)
            break;
    }
    skip_closing(r, 1);
}

/* ---- expansions ---- */

/* Parameter expansion: reads up to the closing brace. r->p is behind "${". */
static void read_parameter(struct sp_reader *r, bool is_in_quotes)
{
    struct sp_reader_word ignored = {0};

    if (!sp_reader_enter(r))
        return;
    while (!sp_reader_is_at_end(r) && *r->p != '}') {
        if (*r->p == '"')
            read_double(r, &ignored);
        else if (*r->p == '\'' && !is_in_quotes)
            read_single(r);
        else
            read_quoted_step(r, &ignored);
    }
    skip_closing(r, 1);
    sp_reader_leave(r);
}

static const char *skip_quotes(const char *p, const char *end)
{
    const char quote = *p;
    const char *q = p + 1;

    for (; q < end && *q != quote; q++)
        if (quote != '\'' && *q == '\\')
            q++;
    return q < end ? q : p; /* an unmatched quote is an ordinary byte */
}

/*
 * The closing parenthesis for an open one before p; NULL: none. Only looks ahead: nested text is
 * scanned again when it is read, at most once for each level of nesting, so that the time stays
 * linear in the text for a bounded depth.
 */
static const char *find_close(const char *p, const char *end)
{
    size_t open = 0;

    for (; p < end; p++) {
        if (*p == '\\')
            p++;
        else if (*p == '\'' || *p == '"' || *p == '`')
            p = skip_quotes(p, end);
        else if (*p == '(')
            open++;
        else if (*p == ')' && open-- == 0)
            return p;
    }
    return NULL;
}

bool sp_reader_is_arithmetic(const struct sp_reader *r)
{
    const char *close = find_close(r->p, r->end);

    return close != NULL && close + 1 < r->end && close[1] == ')';
}

void sp_reader_arithmetic(struct sp_reader *r)
{
    struct sp_reader_word ignored = {0};
    size_t open = 0;

    if (!sp_reader_enter(r))
        return;
    while (!sp_reader_is_at_end(r) && (open != 0 || !sp_reader_is_at(r, "))"))) {
        if (*r->p == '(')
            open++;
        else if (*r->p == ')' && open != 0)
            open--;
        if (*r->p == '"')
            read_double(r, &ignored);
        else
            read_quoted_step(r, &ignored);
    }
    skip_closing(r, 2);
    sp_reader_leave(r);
}

/* Command or process substitution: reads up to the closing parenthesis. r->p is behind the opening
 * one. */
static void read_commands(struct sp_reader *r)
{
    r->substitutions++;
    (void)sp_reader_list(r);
    r->substitutions--;
    if (sp_reader_peek(r, 0) == ')')
        r->p++;
    else
        r->has_failed = true;
}

/*
 * Commands behind a "$((" that is not arithmetic. A shell parses them only when it expands them, so
 * an error in there does not end the script.
 */
static void read_late_commands(struct sp_reader *r)
{
    struct sp_reader inner = *r;
    const char *close = find_close(r->p, r->end);

    read_commands(&inner);
    if (!inner.has_failed) {
        *r = inner;
        return;
    }
    if (r->here_last != NULL)
        r->here_last->next = NULL;
    r->used = inner.used;
    r->has_failed = close == NULL || *r->is_too_deep || r->list->has_no_memory;
    if (!r->has_failed)
        r->p = close + 1;
}

static bool is_name_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

/* $NAME, $1, $?; any other dollar stands for itself. */
static void read_variable(struct sp_reader *r, struct sp_reader_word *w)
{
    const char c = sp_reader_peek(r, 1);

    if (!is_name_byte(c) && !sp_is_one_of(c, "@*#?$!-")) {
        add_byte(r, *r->p++);
        return;
    }
    w->is_literal = false;
    r->p += 2;
    if (is_name_byte(c) && c > '9')
        while (is_name_byte(sp_reader_peek(r, 0)))
            r->p++;
}

static void read_dollar(struct sp_reader *r, struct sp_reader_word *w, bool is_in_quotes)
{
    size_t k = 1;

    /* Line continuations may stand between the dollar and its bracket. */
    while (sp_reader_peek(r, k) == '\\' && sp_reader_peek(r, k + 1) == '\n')
        k += 2;
    if (sp_reader_peek(r, k) == '(' || sp_reader_peek(r, k) == '{')
        r->p += k - 1;
    const char c = sp_reader_peek(r, 1);

    if (c == '{') {
        w->is_literal = false;
        r->p += 2;
        read_parameter(r, is_in_quotes);
    } else if (c == '(') {
        w->is_literal = false;
        r->p += 2;
        if (sp_reader_peek(r, 0) != '(') {
            read_commands(r);
            return;
        }
        r->p++;
        if (sp_reader_is_arithmetic(r)) {
            sp_reader_arithmetic(r);
            return;
        }
        r->p--;
        read_late_commands(r);
    } else if (!is_in_quotes && c == '\'') {
        r->p++;
        read_ansi(r, w);
    } else if (!is_in_quotes && c == '"') {
        r->p++;
        read_double(r, w);
    } else {
        read_variable(r, w);
    }
}

/* ---- backquotes ---- */

static void read_backquote(struct sp_reader *r, struct sp_reader_word *w, bool is_in_quotes)
{
    const char *end = r->p + 1;
    const char *const dropped = is_in_quotes ? "$`\\\"" : "$`\\";

    w->is_literal = false;
    while (end < r->end && *end != '`')
        end += *end == '\\' ? 2 : 1;
    if (end >= r->end) {
        r->has_failed = true;
        return;
    }
    char *text = sp_arena_new(&r->list->arena, (size_t)(end - r->p));
    size_t n = 0;
    if (text == NULL) {
        r->list->has_no_memory = r->has_failed = true;
        return;
    }
    for (const char *p = r->p + 1; p < end; p++) {
        if (*p == '\\' && sp_is_one_of(p[1], dropped))
            p++;
        text[n++] = *p;
    }
    r->p = end + 1;
    sp_reader_nested(r, (struct sp_str){text, n});
}

/* ---- words ---- */

/* ?(a|b) and other extended patterns: separators are part of the word. */
static void read_group(struct sp_reader *r, struct sp_reader_word *w);

static void read_step(struct sp_reader *r, struct sp_reader_word *w)
{
    const char c = *r->p;

    if (c == '\'' || c == '"' || (c == '\\' && sp_reader_peek(r, 1) != '\n'))
        w->is_quoted = true;
    if (c == '\'') {
        read_single(r);
    } else if (c == '"') {
        read_double(r, w);
    } else if (c == '$') {
        read_dollar(r, w, false);
    } else if (c == '`') {
        read_backquote(r, w, false);
    } else if (c == '\\') {
        r->p++;
        if (sp_reader_is_at_end(r))
            add_byte(r, c); /* at the end of the text: itself */
        else if (*r->p++ != '\n')
            add_byte(r, r->p[-1]);
    } else {
        add_byte(r, c);
        r->p++;
        if (sp_is_one_of(c, "?*+@!") && sp_reader_peek(r, 0) == '(')
            read_group(r, w);
    }
}

static void read_group(struct sp_reader *r, struct sp_reader_word *w)
{
    if (!sp_reader_enter(r))
        return;
    for (r->p++; !sp_reader_is_at_end(r) && *r->p != ')';) {
        if (*r->p == '(')
            read_group(r, w);
        else
            read_step(r, w);
    }
    skip_closing(r, 1);
    sp_reader_leave(r);
}

/* <(commands) and >(commands) */
static bool is_process(const struct sp_reader *r)
{
    const char c = sp_reader_peek(r, 0);

    return (c == '<' || c == '>') && sp_reader_peek(r, 1) == '(';
}

bool sp_reader_is_at_word(const struct sp_reader *r)
{
    return !sp_reader_is_at_end(r) && (!sp_is_meta(*r->p) || is_process(r));
}

void sp_reader_word(struct sp_reader *r, struct sp_reader_word *ret)
{
    const size_t start = r->used;

    *ret = (struct sp_reader_word){.source = r->p, .is_literal = true};
    while (sp_reader_is_at_word(r)) {
        if (!is_process(r)) {
            read_step(r, ret);
            continue;
        }
        ret->is_literal = false;
        r->p += 2;
        read_commands(r);
    }
    ret->text = (struct sp_str){r->bytes + start, r->used - start};
}

void sp_reader_skip_blanks(struct sp_reader *r)
{
    for (;;) {
        if (sp_is_blank(sp_reader_peek(r, 0)))
            r->p++;
        else if (sp_reader_is_at(r, "\\\n"))
            r->p += 2;
        else
            return;
    }
}

/* ---- here-documents ---- */

/* The delimiter is read with its redirection, the document behind the end of that line. Documents
 * are text, but without quotes around the delimiter their substitutions run. */

/* Removes the quotes of a delimiter; nothing is expanded in it. */
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

/* The next line without its newline. goes_on: a backslash at the end of a line continues it, as
 * under an unquoted delimiter. */
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

/* The rest of a line that begins with the delimiter; NULL: another line. */
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
 * Whether this is the last line of a document. Inside of a substitution bash also accepts a line
 * that begins with the delimiter and contains a parenthesis; the reader goes on behind the
 * delimiter.
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

/* A document without its last line extends to the end of the script. A shell parses the
 * substitutions of a document only when it expands it, so an error in there does not end the
 * script. */
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
