/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every simple command of a script, at any depth: a reader of shell grammar by recursive descent.
 * It only has to find the commands, not what the script means, so it accepts a little more than a
 * shell does; where no shell would go on, it stops.
 *
 * A word is literal if nothing in it is expanded; patterns and braces count as literal text.
 */
#include "approve/script/script_priv.h"

#define MAX_TWICE 8 /* levels of arithmetic that are read twice: see read_parenthesis */

/* A here-document that begins behind the end of this line. */
struct here {
    struct sp_str delimiter;
    bool strips_tabs, is_quoted;
    struct here *next;
};

struct reader {
    struct sp_segment_list *list;
    const char *p, *end;
    char *bytes; /* literal words; never longer than the text */
    size_t used, size;
    struct here *here_first, *here_last; /* documents behind the end of this line */
    unsigned depth;
    unsigned substitutions; /* number of open "$(" */
    bool *is_too_deep;      /* a part of the script was skipped */
    bool has_failed;        /* syntax error, or no memory: reading has ended */
};

struct word {
    const char *source; /* its first byte in the script */
    struct sp_str text; /* only valid if is_literal */
    bool is_literal;
    bool is_quoted; /* at least in part */
};

static bool is_at_end(const struct reader *r)
{
    return r->has_failed || r->p >= r->end;
}

/* The k-th byte from here; 0: behind the end. */
static char peek(const struct reader *r, size_t k)
{
    return !r->has_failed && (size_t)(r->end - r->p) > k ? r->p[k] : 0;
}

static bool is_at(const struct reader *r, const char *text)
{
    const size_t n = strlen(text);

    return !r->has_failed && (size_t)(r->end - r->p) >= n && memcmp(r->p, text, n) == 0;
}

/* Commands up to a closing keyword or byte. true: at least one, and no error. */
static bool read_list(struct reader *r);
/* Reads another text, such as the unescaped content of backquotes, for its commands. */
static void read_nested(struct reader *r, struct sp_str text);

/* One level of nesting. false: too deep, has_failed is set. After true, leave_level is due. */
static bool enter_level(struct reader *r)
{
    if (r->has_failed)
        return false;
    if (r->depth > SP_SCRIPT_MAX_DEPTH) {
        *r->is_too_deep = r->has_failed = true;
        return false;
    }
    r->depth++;
    return true;
}

static void leave_level(struct reader *r)
{
    r->depth--;
}

static void add_byte(struct reader *r, char c)
{
    if (r->used == r->size) {
        *r->is_too_deep = r->has_failed = true;
        return;
    }
    r->bytes[r->used++] = c;
}

/* Skips the n bytes that close a construct; it is a syntax error if the text ends before. */
static void skip_closing(struct reader *r, size_t n)
{
    if (is_at_end(r))
        r->has_failed = true;
    else
        r->p += n;
}

static void read_dollar(struct reader *r, struct word *w, bool is_in_quotes);
static void read_backquote(struct reader *r, struct word *w, bool is_in_quotes);

/* ---- quotes ---- */

static void read_single(struct reader *r)
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
static void read_quoted_step(struct reader *r, struct word *w)
{
    if (*r->p == '$') {
        read_dollar(r, w, true);
    } else if (*r->p == '`') {
        read_backquote(r, w, true);
    } else if (*r->p == '\\') {
        r->p++;
        if (is_at_end(r))
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

static void read_double(struct reader *r, struct word *w)
{
    r->p++;
    while (!is_at_end(r) && *r->p != '"')
        read_quoted_step(r, w);
    skip_closing(r, 1);
}

/* $'...': literal only without escapes. */
static void read_ansi(struct reader *r, struct word *w)
{
    for (r->p++; !is_at_end(r) && *r->p != '\''; r->p++) {
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
static void read_parameter(struct reader *r, bool is_in_quotes)
{
    struct word ignored = {0};

    if (!enter_level(r))
        return;
    while (!is_at_end(r) && *r->p != '}') {
        if (*r->p == '"')
            read_double(r, &ignored);
        else if (*r->p == '\'' && !is_in_quotes)
            read_single(r);
        else
            read_quoted_step(r, &ignored);
    }
    skip_closing(r, 1);
    leave_level(r);
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

static bool is_arithmetic(const struct reader *r)
{
    const char *close = find_close(r->p, r->end);

    return close != NULL && close + 1 < r->end && close[1] == ')';
}

static void read_arithmetic(struct reader *r)
{
    struct word ignored = {0};
    size_t open = 0;

    if (!enter_level(r))
        return;
    while (!is_at_end(r) && (open != 0 || !is_at(r, "))"))) {
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
    leave_level(r);
}

/* Command or process substitution: reads up to the closing parenthesis. r->p is behind the opening
 * one. */
static void read_substitution(struct reader *r)
{
    r->substitutions++;
    (void)read_list(r);
    r->substitutions--;
    if (peek(r, 0) == ')')
        r->p++;
    else
        r->has_failed = true;
}

static bool is_name_start(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static bool is_name_byte(char c)
{
    return is_name_start(c) || (c >= '0' && c <= '9');
}

/* "$" with the expansion behind it. A dollar that begins none stands for itself. */
static void read_dollar(struct reader *r, struct word *w, bool is_in_quotes)
{
    size_t k = 1;

    /* Line continuations may stand between the dollar and its bracket. */
    while (peek(r, k) == '\\' && peek(r, k + 1) == '\n')
        k += 2;
    if (peek(r, k) == '(' || peek(r, k) == '{')
        r->p += k - 1;
    const char c = peek(r, 1);
    const bool is_parameter = is_name_byte(c) || sp_is_one_of(c, "@*#?$!-");

    if (c == '{' || c == '(' || is_parameter)
        w->is_literal = false;
    if (c == '{') {
        r->p += 2;
        read_parameter(r, is_in_quotes);
    } else if (c == '(' && peek(r, 2) != '(') {
        r->p += 2;
        read_substitution(r);
    } else if (c == '(') {
        r->p += 3;
        if (is_arithmetic(r)) {
            read_arithmetic(r);
            return;
        }
        /* Commands in a subshell. A shell parses them only when it expands them, so an error in
         * there does not end the script. */
        r->p--;
        struct reader inner = *r;
        const char *close = find_close(r->p, r->end);
        read_substitution(&inner);
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
    } else if (!is_in_quotes && c == '\'') {
        r->p++;
        read_ansi(r, w);
    } else if (!is_in_quotes && c == '"') {
        r->p++;
        read_double(r, w);
    } else if (is_parameter) { /* $NAME, $1, $? */
        r->p += 2;
        while (c > '9' && is_name_byte(c) && is_name_byte(peek(r, 0)))
            r->p++;
    } else {
        add_byte(r, *r->p++);
    }
}

/* ---- backquotes ---- */

static void read_backquote(struct reader *r, struct word *w, bool is_in_quotes)
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
    read_nested(r, (struct sp_str){text, n});
}

/* ---- words ---- */

/* ?(a|b) and other extended patterns: separators are part of the word. */
static void read_pattern_group(struct reader *r, struct word *w);

static void read_step(struct reader *r, struct word *w)
{
    const char c = *r->p;

    if (c == '\'' || c == '"' || (c == '\\' && peek(r, 1) != '\n'))
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
        if (is_at_end(r))
            add_byte(r, c); /* at the end of the text: itself */
        else if (*r->p++ != '\n')
            add_byte(r, r->p[-1]);
    } else {
        add_byte(r, c);
        r->p++;
        if (sp_is_one_of(c, "?*+@!") && peek(r, 0) == '(')
            read_pattern_group(r, w);
    }
}

static void read_pattern_group(struct reader *r, struct word *w)
{
    if (!enter_level(r))
        return;
    for (r->p++; !is_at_end(r) && *r->p != ')';) {
        if (*r->p == '(')
            read_pattern_group(r, w);
        else
            read_step(r, w);
    }
    skip_closing(r, 1);
    leave_level(r);
}

/* <(commands) and >(commands) */
static bool is_process(const struct reader *r)
{
    const char c = peek(r, 0);

    return (c == '<' || c == '>') && peek(r, 1) == '(';
}

static bool is_at_word(const struct reader *r)
{
    return !is_at_end(r) && (!sp_is_meta(*r->p) || is_process(r));
}

static void read_word(struct reader *r, struct word *ret)
{
    const size_t start = r->used;

    *ret = (struct word){.source = r->p, .is_literal = true};
    while (is_at_word(r)) {
        if (!is_process(r)) {
            read_step(r, ret);
            continue;
        }
        ret->is_literal = false;
        r->p += 2;
        read_substitution(r);
    }
    ret->text = (struct sp_str){r->bytes + start, r->used - start};
}

static void skip_blanks(struct reader *r)
{
    for (;;) {
        if (sp_is_blank(peek(r, 0)))
            r->p++;
        else if (is_at(r, "\\\n"))
            r->p += 2;
        else
            return;
    }
}

/* ---- here-documents ---- */

/* The delimiter is read with its redirection, the document behind the end of that line. Documents
 * are text, but without quotes around the delimiter their substitutions run. */

static void read_here(struct reader *r, bool strips_tabs)
{
    struct word word;

    skip_blanks(r);
    if (!is_at_word(r)) {
        r->has_failed = true;
        return;
    }
    read_word(r, &word);
    const struct sp_str source = {word.source, (size_t)(r->p - word.source)};
    struct here *node = sp_arena_new(&r->list->arena, sizeof *node);
    char *text = sp_arena_new(&r->list->arena, source.n);
    if (node == NULL || text == NULL) {
        r->list->has_no_memory = r->has_failed = true;
        return;
    }
    node->strips_tabs = strips_tabs;
    node->delimiter.p = text;
    /* Nothing is expanded in a delimiter, but its quotes are removed. */
    char quote = 0;
    for (size_t i = 0; i < source.n; i++) {
        const char c = source.p[i];

        if (quote == 0 ? c == '\'' || c == '"' : c == quote) {
            quote = quote == 0 ? c : 0;
            node->is_quoted = true;
        } else if (c == '\\' && quote != '\'' && i + 1 < source.n) {
            text[node->delimiter.n++] = source.p[++i];
            node->is_quoted = true;
        } else {
            text[node->delimiter.n++] = c;
        }
    }
    if (r->here_first == NULL)
        r->here_first = node;
    else
        r->here_last->next = node;
    r->here_last = node;
}

/* The next line without its newline. goes_on: a backslash at the end of a line continues it, as
 * under an unquoted delimiter. */
static struct sp_str next_line(struct reader *r, bool goes_on)
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

/*
 * Whether this is the last line of a document. Inside of a substitution bash also accepts a line
 * that begins with the delimiter and contains a parenthesis; the reader goes on behind the
 * delimiter.
 */
static bool is_last_line(struct reader *r, const struct here *h, struct sp_str line)
{
    const char *p = line.p;
    const char *const end = line.p + line.n;

    while (h->strips_tabs && p < end && *p == '\t')
        p++;
    for (size_t i = 0; i < h->delimiter.n; i++) {
        if (!h->is_quoted)
            p = skip_joints(p, end);
        if (p == end || *p++ != h->delimiter.p[i])
            return false;
    }
    if (!h->is_quoted)
        p = skip_joints(p, end);
    if (p == end)
        return true;
    if (r->substitutions == 0 || memchr(p, ')', (size_t)(end - p)) == NULL)
        return false;
    r->p = p;
    return true;
}

/* A document without its last line extends to the end of the script. A shell parses the
 * substitutions of a document only when it expands it, so an error in there does not end the
 * script. */
static void read_document(struct reader *r, const struct here *h)
{
    struct reader inner = *r;
    struct word ignored = {0};

    while (r->p < r->end) {
        const struct sp_str line = next_line(r, !h->is_quoted);

        if (is_last_line(r, h, line)) {
            inner.end = line.p;
            break;
        }
    }
    if (h->is_quoted)
        return;
    while (!is_at_end(&inner))
        read_quoted_step(&inner, &ignored);
    r->used = inner.used;
    r->has_failed = *r->is_too_deep || r->list->has_no_memory;
}

static void read_newline(struct reader *r)
{
    struct here *h = r->here_first;

    r->p++;
    r->here_first = r->here_last = NULL;
    for (; h != NULL && !r->has_failed; h = h->next)
        read_document(r, h);
}

/* ---- keywords ---- */

static void skip_comment(struct reader *r)
{
    if (peek(r, 0) != '#')
        return;
    const char *newline = memchr(r->p, '\n', (size_t)(r->end - r->p));
    r->p = newline == NULL ? r->end : newline;
}

/* The unquoted word here if it is short enough for a keyword; n is 0 if not. */
static struct sp_str keyword_here(const struct reader *r)
{
    size_t n = 0;
    const size_t longest = sizeof "function" - 1;

    if (is_at_end(r))
        return (struct sp_str){NULL, 0};
    while (n <= longest && (size_t)(r->end - r->p) > n && !sp_is_meta(r->p[n]) && r->p[n] != '\\')
        n++;
    return (struct sp_str){r->p, n > longest ? 0 : n};
}

/* Skips the keyword. false: another word is here. */
static bool accept_keyword(struct reader *r, const char *keyword)
{
    const struct sp_str here = keyword_here(r);

    if (here.n == 0 || !sp_str_eq(here, sp_str_of(keyword)))
        return false;
    r->p += here.n;
    return true;
}

/* ---- what must come next; else it is a syntax error ---- */

static void expect_keyword(struct reader *r, const char *keyword)
{
    if (!accept_keyword(r, keyword))
        r->has_failed = true;
}

static void expect_byte(struct reader *r, char c)
{
    if (peek(r, 0) == c)
        r->p++;
    else
        r->has_failed = true;
}

static void need_word(struct reader *r)
{
    struct word ignored;

    skip_blanks(r);
    if (is_at_word(r))
        read_word(r, &ignored);
    else
        r->has_failed = true;
}

/* Blanks, comments, and newlines with their here-documents. */
static void skip_lines(struct reader *r)
{
    for (;;) {
        skip_blanks(r);
        skip_comment(r);
        if (peek(r, 0) != '\n')
            return;
        read_newline(r);
    }
}

/* ---- redirections ---- */

/* A redirection, without the number in front of it. */
static bool is_redirection(const struct reader *r)
{
    const char c = peek(r, 0);
    const char next = peek(r, 1);

    return ((c == '<' || c == '>') && next != '(') || (c == '&' && next == '>');
}

static void read_redirection(struct reader *r)
{
    if (is_at(r, "<<") && !is_at(r, "<<<")) {
        const bool strips_tabs = is_at(r, "<<-");

        r->p += strips_tabs ? 3 : 2;
        read_here(r, strips_tabs);
        return;
    }
    while (is_redirection(r)) /* <<< >> <> &> &>> */
        r->p++;
    if (peek(r, 0) == '&' || peek(r, 0) == '|')
        r->p++;
    need_word(r);
}

/* ---- simple commands ---- */

static void read_function_body(struct reader *r);

static bool is_digits(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n != 0;
}

/* NAME=, NAME+=, NAME[...]= */
static bool is_assignment(const struct reader *r, const struct word *w)
{
    const char *p = w->source;

    if (p >= r->p || !is_name_start(*p))
        return false;
    while (p < r->p && is_name_byte(*p))
        p++;
    if (p < r->p && *p == '[') {
        p = memchr(p, ']', (size_t)(r->p - p));
        if (p == NULL)
            return false;
        p++;
    }
    if (p < r->p && *p == '+')
        p++;
    return p < r->p && *p == '=';
}

static void read_simple(struct reader *r)
{
    struct sp_word_list literals = {0};
    uint32_t count = 0; /* all words except assignments */
    bool is_begun = false;
    struct word w;

    for (skip_blanks(r); !is_at_end(r) && *r->p != '#'; skip_blanks(r)) {
        if (is_redirection(r)) {
            read_redirection(r);
        } else if (is_at_word(r)) {
            read_word(r, &w);
            if (is_redirection(r) && *r->p != '&' && !w.is_quoted && is_digits(w.text)) {
                /* a descriptor number: 2>file */
            } else if (is_assignment(r, &w) && (count == 0 || peek(r, 0) == '(')) {
                if (r->p[-1] == '=' && peek(r, 0) == '(') { /* NAME=(...) */
                    r->p++;
                    for (skip_lines(r); is_at_word(r); skip_lines(r))
                        read_word(r, &w);
                    expect_byte(r, ')');
                }
            } else {
                count++;
                if (w.is_literal && !r->has_failed)
                    sp_segment_list_add_word(r->list, &literals, w.text);
            }
        } else if (*r->p == '(' && count == 1) { /* NAME (): a function, not a command */
            literals.count = 0;
            r->p++;
            read_function_body(r);
            is_begun = true;
            break;
        } else {
            break;
        }
        is_begun = true;
    }
    if (!is_begun)
        r->has_failed = true;
    if (literals.count != 0 && !r->has_failed)
        sp_segment_list_add(r->list, &literals);
}

/* ---- compound commands ---- */

static void read_command(struct reader *r);

static void need_list(struct reader *r)
{
    if (!read_list(r))
        r->has_failed = true;
}

static void read_if(struct reader *r)
{
    do {
        need_list(r);
        expect_keyword(r, "then");
        need_list(r);
    } while (accept_keyword(r, "elif"));
    if (accept_keyword(r, "else"))
        need_list(r);
    expect_keyword(r, "fi");
}

static void read_loop_body(struct reader *r)
{
    if (accept_keyword(r, "{")) {
        need_list(r);
        expect_keyword(r, "}");
        return;
    }
    expect_keyword(r, "do");
    need_list(r);
    expect_keyword(r, "done");
}

static void read_while(struct reader *r)
{
    need_list(r);
    read_loop_body(r);
}

static void read_for(struct reader *r)
{
    skip_blanks(r);
    if (is_at(r, "((")) {
        r->p += 2;
        read_arithmetic(r);
        skip_blanks(r);
    } else {
        need_word(r);
        skip_lines(r);
        if (accept_keyword(r, "in"))
            for (skip_blanks(r); is_at_word(r) && *r->p != '#'; skip_blanks(r))
                need_word(r);
    }
    if (peek(r, 0) == ';')
        r->p++;
    skip_lines(r);
    read_loop_body(r);
}

static void read_case(struct reader *r)
{
    bool goes_on = true;

    need_word(r);
    skip_lines(r);
    expect_keyword(r, "in");
    skip_lines(r);
    while (goes_on && !r->has_failed && !accept_keyword(r, "esac")) {
        if (peek(r, 0) == '(')
            r->p++;
        need_word(r);
        for (skip_blanks(r); peek(r, 0) == '|'; skip_blanks(r)) {
            r->p++;
            need_word(r);
        }
        expect_byte(r, ')');
        (void)read_list(r);
        goes_on = is_at(r, ";;") || is_at(r, ";&");
        if (goes_on) {
            r->p += is_at(r, ";;&") ? 3 : 2;
            skip_lines(r);
        } else {
            expect_keyword(r, "esac");
        }
    }
}

static void read_group(struct reader *r)
{
    need_list(r);
    expect_keyword(r, "}");
}

/* [[ ... ]]: only its substitutions contain commands. */
static void read_test(struct reader *r)
{
    while (!is_at_end(r) && !accept_keyword(r, "]]")) {
        if (is_at_word(r))
            need_word(r);
        else if (*r->p == '\n')
            read_newline(r);
        else
            r->p++;
    }
}

static void read_function(struct reader *r)
{
    need_word(r);
    skip_blanks(r);
    if (peek(r, 0) == '(')
        r->p++;
    else if (!is_at_end(r) && *r->p != '{' && *r->p != '\n')
        r->has_failed = true;
    read_function_body(r);
}

static void read_function_body(struct reader *r)
{
    skip_blanks(r);
    if (peek(r, 0) == ')')
        r->p++;
    skip_lines(r);
    if (is_at_end(r) || !enter_level(r))
        return;
    read_command(r);
    leave_level(r);
}

/*
 * A subshell, or "((" that may be arithmetic. In shells without arithmetic commands that is two
 * subshells, whose commands run, so it is read for commands as well. Each nesting level doubles the
 * work: beyond MAX_TWICE levels the rest is skipped, and is_too_deep is set.
 */
static void read_parenthesis(struct reader *r)
{
    struct reader inner = *r;

    r->p++;
    inner.p++;
    if (peek(r, 0) == '(') {
        r->p++;
        if (is_arithmetic(r)) {
            if (r->depth > MAX_TWICE) {
                *r->is_too_deep = r->has_failed = true;
                return;
            }
            (void)read_list(&inner);
            if (r->here_last != NULL)
                r->here_last->next = NULL;
            r->used = inner.used;
            read_arithmetic(r);
            return;
        }
        r->p--;
    }
    need_list(r);
    expect_byte(r, ')');
}

static bool read_compound(struct reader *r)
{
    static const struct {
        const char *keyword;
        void (*read)(struct reader *r);
    } kinds[] = {
        {"if", read_if},      {"while", read_while}, {"until", read_while},       {"for", read_for},
        {"select", read_for}, {"case", read_case},   {"function", read_function}, {"{", read_group},
        {"[[", read_test},
    };

    if (peek(r, 0) == '(') {
        read_parenthesis(r);
        return true;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (accept_keyword(r, kinds[i].keyword)) {
            kinds[i].read(r);
            return true;
        }
    return false;
}

/* ---- lists ---- */

static void read_command(struct reader *r)
{
    for (;;) { /* in front of a command */
        if (accept_keyword(r, "time")) {
            skip_blanks(r);
            (void)accept_keyword(r, "-p");
        } else if (!accept_keyword(r, "!") && !accept_keyword(r, "coproc")) {
            break;
        }
        skip_blanks(r);
    }
    if (!read_compound(r)) {
        read_simple(r);
        return;
    }
    for (;;) {
        struct word ignored;

        skip_blanks(r);
        if (peek(r, 0) >= '0' && peek(r, 0) <= '9')
            read_word(r, &ignored);
        if (!is_redirection(r))
            return;
        read_redirection(r);
    }
}

static bool is_list_end(const struct reader *r)
{
    static const char *const closers[] = {"then", "elif", "else", "fi", "do", "done", "esac", "}"};
    const struct sp_str here = keyword_here(r);

    if (is_at_end(r) || *r->p == ')' || is_at(r, ";;") || is_at(r, ";&"))
        return true;
    for (size_t i = 0; i < sizeof closers / sizeof *closers; i++)
        if (here.n != 0 && sp_str_eq(here, sp_str_of(closers[i])))
            return true;
    return false;
}

/* The separator behind a command. false: the end of the list. */
static bool read_separator(struct reader *r, bool *ret_needs_more)
{
    skip_blanks(r);
    skip_comment(r);
    const char *const start = r->p;
    const char c = peek(r, 0);

    *ret_needs_more = false;
    if (c == '\n') {
        read_newline(r);
        return true;
    }
    if (!sp_is_one_of(c, ";&|"))
        return false;
    r->p++;
    while (is_at(r, "\\\n")) /* "\\n" may split an operator */
        r->p += 2;
    const char next = peek(r, 0);
    if (c == ';' && (next == ';' || next == '&')) {
        r->p = start;
        return false;
    }
    *ret_needs_more = c == '|' || (c == '&' && next == '&');
    if ((c == '|' && (next == '|' || next == '&')) || (c == '&' && next == '&'))
        r->p++;
    return true;
}

static bool read_list(struct reader *r)
{
    bool has_any = false;
    bool needs_more = false;
    bool goes_on = true;

    if (!enter_level(r))
        return false;
    while (goes_on) {
        skip_lines(r);
        if (is_list_end(r))
            break;
        read_command(r);
        has_any = true;
        goes_on = read_separator(r, &needs_more);
    }
    if (needs_more)
        r->has_failed = true;
    leave_level(r);
    return has_any && !r->has_failed;
}

static void read_nested(struct reader *r, struct sp_str text)
{
    struct reader inner = {.list = r->list,
                           .p = text.p,
                           .end = text.p + text.n,
                           .bytes = sp_arena_new(&r->list->arena, text.n),
                           .size = text.n,
                           .depth = r->depth,
                           .is_too_deep = r->is_too_deep};

    if (inner.bytes == NULL)
        r->list->has_no_memory = r->has_failed = true;
    else
        (void)read_list(&inner);
}

int sp_script_literals(struct sp_segments *ret, struct sp_str script, struct sp_err *e)
{
    struct sp_segment_list list = {0};
    bool is_too_deep = script.n > SP_SCRIPT_MAX_BYTES;
    struct reader r = {.list = &list, .is_too_deep = &is_too_deep};

    *ret = (struct sp_segments){0};
    if (!is_too_deep)
        read_nested(&r, script);
    const int result = sp_segment_list_finish(&list, ret, e);
    ret->is_opaque = is_too_deep;
    return result;
}
