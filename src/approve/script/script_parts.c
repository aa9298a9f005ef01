/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a word: quotes, expansions, substitutions. A word is literal if nothing in it is
 * expanded; patterns and braces count as they are written.
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

/* Behind a backslash inside of double quotes. */
static void read_quoted_escape(struct sp_reader *r)
{
    if (sp_reader_is_at_end(r))
        return;
    if (!sp_is_one_of(*r->p, "$`\"\\\n"))
        add_byte(r, '\\');
    if (*r->p != '\n')
        add_byte(r, *r->p);
    r->p++;
}

/* One step of what double quotes hold. */
static void read_quoted_step(struct sp_reader *r, struct sp_reader_word *w)
{
    if (*r->p == '$') {
        read_dollar(r, w, true);
    } else if (*r->p == '`') {
        read_backquote(r, w, true);
    } else if (*r->p == '\\') {
        r->p++;
        read_quoted_escape(r);
    } else {
        add_byte(r, *r->p++);
    }
}

static void read_double(struct sp_reader *r, struct sp_reader_word *w)
{
    r->p++;
    while (!sp_reader_is_at_end(r) && *r->p != '"')
        read_quoted_step(r, w);
    if (sp_reader_is_at_end(r))
        r->has_failed = true;
    else
        r->p++;
}

void sp_reader_quoted_text(struct sp_reader *r)
{
    struct sp_reader_word ignored = {0};

    while (!sp_reader_is_at_end(r))
        read_quoted_step(r, &ignored);
}

/* $'...': with escapes in it, it is not looked into. */
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
    if (sp_reader_is_at_end(r))
        r->has_failed = true;
    else
        r->p++;
}

/* ---- expansions ---- */

/* Behind "${", up to and with its brace. */
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
    if (sp_reader_is_at_end(r))
        r->has_failed = true;
    else
        r->p++;
    sp_reader_leave(r);
}

static const char *skip_quotes(const char *p, const char *end)
{
    const char quote = *p;
    const char *q = p + 1;

    for (; q < end && *q != quote; q++)
        if (quote != '\'' && *q == '\\')
            q++;
    return q < end ? q : p; /* alone it is only a byte */
}

/*
 * The parenthesis that closes what is open at p; NULL: there is none. Looks ahead and reads
 * nothing: what is nested is looked at again when it is its turn, as deep as nesting goes and no
 * deeper, so that the whole stays linear.
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
    if (sp_reader_is_at_end(r))
        r->has_failed = true;
    else
        r->p += 2;
    sp_reader_leave(r);
}

/* Behind "$(", "<(" or ">(", up to and with its parenthesis. */
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
 * Commands behind "$((", which might have been arithmetic: a shell finds out what they are only
 * when it comes to them, and so an error in there does not end the script.
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

/* $NAME, $1, $?; a dollar before anything else is one. */
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

static void read_bracketed(struct sp_reader *r, bool is_in_quotes)
{
    if (r->p[1] == '{') {
        r->p += 2;
        read_parameter(r, is_in_quotes);
        return;
    }
    r->p += 2;
    if (sp_reader_peek(r, 0) == '(') {
        r->p++;
        if (sp_reader_is_arithmetic(r)) {
            sp_reader_arithmetic(r);
            return;
        }
        r->p--;
        read_late_commands(r);
        return;
    }
    read_commands(r);
}

/* A line may end between the dollar and its bracket. */
static void skip_joints(struct sp_reader *r)
{
    size_t k = 1;

    while (sp_reader_peek(r, k) == '\\' && sp_reader_peek(r, k + 1) == '\n')
        k += 2;
    if (sp_reader_peek(r, k) == '(' || sp_reader_peek(r, k) == '{')
        r->p += k - 1;
}

static void read_dollar(struct sp_reader *r, struct sp_reader_word *w, bool is_in_quotes)
{
    skip_joints(r);
    const char c = sp_reader_peek(r, 1);

    if (c == '(' || c == '{') {
        w->is_literal = false;
        read_bracketed(r, is_in_quotes);
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

static const char *find_backquote(const struct sp_reader *r)
{
    const char *p = r->p + 1;

    for (; p < r->end && *p != '`'; p++)
        if (*p == '\\' && ++p >= r->end)
            break;
    return p < r->end ? p : NULL;
}

static void read_backquote(struct sp_reader *r, struct sp_reader_word *w, bool is_in_quotes)
{
    const char *end = find_backquote(r);
    const char *const dropped = is_in_quotes ? "$`\\\"" : "$`\\";

    w->is_literal = false;
    if (end == NULL) {
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

/* ?(a|b) and the like: separators are part of it. */
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
            add_byte(r, c); /* with nothing behind it, it is itself */
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
    if (sp_reader_is_at_end(r))
        r->has_failed = true;
    else
        r->p++;
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
