/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_parse: from text to hunks, and whether a command is a call of apply_patch.
 *
 * The parser is a state machine over lines. All lists are sized by the number of lines before the
 * first line is parsed, and the text is copied once, so no pointer moves while hunks are collected.
 *
 * A script is a call if it is, as a whole, `apply_patch <<'EOF'` with its here-document, perhaps
 * behind `cd PATH &&`. Anything else in the script makes it an ordinary command.
 */
#include <errno.h>

#include "approve/patch/patch_priv.h"
#include "approve/script/script_priv.h"
#include "base/auto.h"
#include "base/utf8.h"

/* ---- lines ---- */

bool sp_patch_next_line(struct sp_str *rest, struct sp_str *ret)
{
    if (rest->n == 0)
        return false;
    *ret = sp_str_cut(rest, '\n');
    return true;
}

#define SHOWN 160 /* bytes of a line or path that an error message quotes */

enum state { NOT_STARTED, STARTED, IN_ADD, IN_DELETE, IN_UPDATE, ENDED };

struct reader {
    struct sp_arena arena; /* what the members of a struct sp_patch point into */
    char *text;
    char *contents; /* of all new files, concatenated */
    struct sp_str *olds, *news;
    struct sp_patch_chunk *chunks;
    struct sp_patch_hunk *hunks;
    enum state state;
    uint32_t line;      /* number of the current line, from 1 */
    uint32_t hunk_line; /* line of the update hunk's header */
    struct sp_patch_hunk *hunk;
    struct sp_patch_chunk *chunk; /* the last chunk of the update hunk; NULL: none yet */
    uint32_t hunk_count, chunk_count, old_count, new_count;
    size_t added;
    struct sp_str environment_id;
};

void sp_patch_done(struct sp_patch *p)
{
    struct sp_arena arena = {p->impl};

    sp_arena_done(&arena);
    *p = (struct sp_patch){0};
}

static int invalid(struct sp_err *e, const char *text)
{
    return sp_fail(e, SP_E_INVALID, 0, "invalid patch: %s", text);
}

#define QUOTED(s) SP_STR_ARG(sp_patch_cut(s, SHOWN))

static int bad_header(const struct reader *r, struct sp_str line, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0,
                   "invalid hunk at line %u, '" SP_STR_FMT
                   "' is not a valid hunk header. Valid hunk headers: '*** Add File: {path}', "
                   "'*** Delete File: {path}', '*** Update File: {path}'",
                   r->line, QUOTED(line));
}

static int unexpected(const struct reader *r, struct sp_str line, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0,
                   "invalid hunk at line %u, Unexpected line found in update hunk: '" SP_STR_FMT
                   "'. Every line should start with ' ' (context line), '+' (added line), or '-' "
                   "(removed line)",
                   r->line, QUOTED(line));
}

static int no_marker(const struct reader *r, struct sp_str line, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0,
                   "invalid hunk at line %u, Expected update hunk to start with a @@ context "
                   "marker, got: '" SP_STR_FMT "'",
                   r->line, QUOTED(line));
}

static int no_lines(const struct reader *r, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0,
                   "invalid hunk at line %u, Update hunk does not contain any lines", r->line);
}

/* ---- headers ---- */

static const struct sp_str begin_marker = SP_STR("*** Begin Patch");
static const struct sp_str end_marker = SP_STR("*** End Patch");

static bool is_empty_chunk(const struct sp_patch_chunk *c)
{
    return c != NULL && c->old_count == 0 && c->new_count == 0;
}

/* Fails if the open hunk may not end before this line: an update needs at least one change. */
static int end_hunk(const struct reader *r, struct sp_str line, struct sp_err *e)
{
    if (r->state != IN_UPDATE)
        return 0;
    if (r->chunk == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid hunk at line %u, Update file hunk for path '" SP_STR_FMT
                       "' is empty",
                       r->hunk_line, QUOTED(r->hunk->path));
    if (!is_empty_chunk(r->chunk))
        return 0;
    return sp_str_eq(line, end_marker) ? no_lines(r, e) : unexpected(r, line, e);
}

static int check_path(const struct reader *r, struct sp_str path, struct sp_err *e)
{
    return sp_str_has_nul(path)
               ? sp_fail(e, SP_E_INVALID, 0, "invalid hunk at line %u, a path holds a NUL byte",
                         r->line)
               : 0;
}

/* *ret_taken: the line was a header or the end. */
static int take_header(struct reader *r, struct sp_str line, bool *ret_taken, struct sp_err *e)
{
    static const struct {
        struct sp_str marker;
        enum state state;
    } kinds[] = {
        [SP_PATCH_ADD] = {SP_STR("*** Add File: "), IN_ADD},
        [SP_PATCH_DELETE] = {SP_STR("*** Delete File: "), IN_DELETE},
        [SP_PATCH_UPDATE] = {SP_STR("*** Update File: "), IN_UPDATE},
    };
    struct sp_str rest = line;
    int kind = SP_PATCH_ADD;
    int ret;

    *ret_taken = true;
    if (r->state == STARTED && sp_str_skip_prefix(&rest, SP_STR("*** Environment ID:"))) {
        if (r->environment_id.p != NULL)
            return invalid(e, "apply_patch environment_id cannot be specified more than once");
        rest = sp_utf8_trim(rest);
        if (rest.n == 0)
            return invalid(e, "apply_patch environment_id cannot be empty");
        r->environment_id = rest;
        return 0;
    }
    if (sp_str_eq(line, end_marker)) {
        ret = end_hunk(r, line, e);
        r->state = ENDED;
        return ret;
    }
    while (kind <= SP_PATCH_UPDATE && !sp_str_skip_prefix(&rest, kinds[kind].marker))
        kind++;
    *ret_taken = kind <= SP_PATCH_UPDATE;
    if (!*ret_taken)
        return 0;
    ret = end_hunk(r, line, e);
    if (ret == 0)
        ret = check_path(r, rest, e);
    if (ret < 0)
        return ret;
    r->hunk = &r->hunks[r->hunk_count++];
    *r->hunk = (struct sp_patch_hunk){.kind = (enum sp_patch_kind)kind,
                                      .path = rest,
                                      .content = {r->contents + r->added, 0},
                                      .chunks = &r->chunks[r->chunk_count]};
    r->chunk = NULL;
    r->hunk_line = r->line;
    r->state = kinds[kind].state;
    return 0;
}

/* ---- the lines of an update ---- */

static void begin_chunk(struct reader *r, struct sp_str context)
{
    r->chunk = &r->chunks[r->chunk_count++];
    *r->chunk = (struct sp_patch_chunk){.context = context,
                                        .old_lines = &r->olds[r->old_count],
                                        .new_lines = &r->news[r->new_count]};
    r->hunk->chunk_count++;
}

/* " text", "+text", "-text", or nothing at all. false: some other line. */
static bool take_change(struct reader *r, struct sp_str line)
{
    const char sign = line.n == 0 ? ' ' : line.p[0];
    const struct sp_str text = line.n == 0 ? line : (struct sp_str){line.p + 1, line.n - 1};

    if (sign != ' ' && sign != '+' && sign != '-')
        return false;
    if (r->chunk == NULL)
        begin_chunk(r, (struct sp_str){0});
    if (sign != '+') {
        r->olds[r->old_count++] = text;
        r->chunk->old_count++;
    }
    if (sign != '-') {
        r->news[r->new_count++] = text;
        r->chunk->new_count++;
    }
    return true;
}

static int take_update(struct reader *r, struct sp_str line, struct sp_err *e)
{
    const struct sp_str end_trimmed = sp_utf8_trim_end(line);
    struct sp_str context = end_trimmed;
    struct sp_str path = end_trimmed;
    const bool is_bare = sp_str_eq(end_trimmed, SP_STR("@@"));
    const bool is_context = is_bare || sp_str_skip_prefix(&context, SP_STR("@@ "));

    if (r->chunk != NULL && r->chunk->is_at_end && !is_context)
        return end_trimmed.n == 0 ? 0 : no_marker(r, line, e);
    if (r->chunk == NULL && r->hunk->move_to.p == NULL &&
        sp_str_skip_prefix(&path, SP_STR("*** Move to: "))) {
        r->hunk->move_to = path;
        return check_path(r, path, e);
    }
    if (is_context) {
        const struct sp_str none = {0};

        if (is_empty_chunk(r->chunk))
            return unexpected(r, line, e);
        begin_chunk(r, is_bare ? none : context);
        return 0;
    }
    if (sp_str_eq(end_trimmed, SP_STR("*** End of File"))) {
        if (is_empty_chunk(r->chunk))
            return no_lines(r, e);
        if (r->chunk != NULL)
            r->chunk->is_at_end = true;
        return 0;
    }
    if (take_change(r, line))
        return 0;
    return r->chunk == NULL || is_empty_chunk(r->chunk) ? unexpected(r, line, e)
                                                        : no_marker(r, line, e);
}

/* ---- lines ---- */

static int take_line(struct reader *r, struct sp_str line, bool is_last, struct sp_err *e)
{
    const struct sp_str trimmed = sp_utf8_trim(line);
    bool is_taken = false;
    int ret;

    switch (r->state) {
    case NOT_STARTED: /* find_body checked the first line */
        r->state = STARTED;
        return 0;
    case ENDED: /* the last line is the end marker, which may be repeated */
        return trimmed.n == 0 || is_last
                   ? 0
                   : invalid(e, "The last line of the patch must be '*** End Patch'");
    case IN_UPDATE:
        ret = take_header(r, sp_utf8_trim_end(line), &is_taken, e);
        return ret < 0 || is_taken ? ret : take_update(r, line, e);
    case STARTED:
    case IN_DELETE:
    case IN_ADD:
        ret = take_header(r, trimmed, &is_taken, e);
        if (ret < 0 || is_taken)
            return ret;
        if (r->state != IN_ADD || line.n == 0 || line.p[0] != '+')
            return bad_header(r, trimmed, e);
        memcpy(r->contents + r->added, line.p + 1, line.n - 1);
        r->added += line.n - 1;
        r->contents[r->added++] = '\n';
        r->hunk->content.n += line.n;
        return 0;
    }
    return bad_header(r, trimmed, e);
}

/* ---- the text as a whole ---- */

static struct sp_str first_line(struct sp_str text)
{
    struct sp_str line = {text.p, 0};

    (void)sp_patch_next_line(&text, &line);
    return line;
}

static struct sp_str last_line(struct sp_str text)
{
    const char *lf = text.n == 0 ? NULL : memrchr(text.p, '\n', text.n);

    return lf == NULL ? text : (struct sp_str){lf + 1, text.n - (size_t)(lf + 1 - text.p)};
}

static int check_borders(struct sp_str text, struct sp_err *e)
{
    if (!sp_str_eq(sp_utf8_trim(first_line(text)), begin_marker))
        return invalid(e, "The first line of the patch must be '*** Begin Patch'");
    if (!sp_str_eq(sp_utf8_trim(last_line(text)), end_marker))
        return invalid(e, "The last line of the patch must be '*** End Patch'");
    return 0;
}

static uint64_t count_lines(struct sp_str text)
{
    uint64_t count = 0;
    struct sp_str line;

    while (sp_patch_next_line(&text, &line))
        count++;
    return count;
}

/* "<<EOF ... EOF" passed as the argument itself: the here-document markers were never parsed by a
 * shell. */
static bool is_wrapped(struct sp_str text, struct sp_str *ret_inner)
{
    struct sp_str first = first_line(text);
    const struct sp_str last = last_line(text);

    while (first.n > 0 && first.p[first.n - 1] == '\r')
        first.n--;
    if (!sp_str_eq(first, SP_STR("<<EOF")) && !sp_str_eq(first, SP_STR("<<'EOF'")) &&
        !sp_str_eq(first, SP_STR("<<\"EOF\"")))
        return false;
    if (last.n < 3 || memcmp(last.p + last.n - 3, "EOF", 3) != 0 || count_lines(text) < 4)
        return false;
    const char *begin = memchr(text.p, '\n', text.n);
    *ret_inner = (struct sp_str){begin + 1, (size_t)(last.p - 1 - (begin + 1))};
    return true;
}

/* The text from "*** Begin Patch" to "*** End Patch", without here-document markers. */
static int find_body(struct sp_str text, struct sp_str *ret, struct sp_err *e)
{
    struct sp_str inner;
    int r;

    *ret = sp_utf8_trim(text);
    r = check_borders(*ret, e);
    if (r < 0 && is_wrapped(*ret, &inner)) {
        *ret = inner;
        r = check_borders(inner, e);
    }
    return r;
}

/* No list is longer than the patch. */
static bool make_room(struct reader *r, struct sp_str text, uint64_t lines)
{
    r->text = sp_arena_copy(&r->arena, text);
    r->contents = sp_arena_new(&r->arena, text.n + 1);
    r->olds = sp_arena_new(&r->arena, (lines + 1) * sizeof *r->olds);
    r->news = sp_arena_new(&r->arena, (lines + 1) * sizeof *r->news);
    r->chunks = sp_arena_new(&r->arena, (lines + 1) * sizeof *r->chunks);
    r->hunks = sp_arena_new(&r->arena, (lines + 1) * sizeof *r->hunks);
    return r->text != NULL && r->contents != NULL && r->olds != NULL && r->news != NULL &&
           r->chunks != NULL && r->hunks != NULL;
}

int sp_patch_parse(struct sp_str text, struct sp_patch *ret, struct sp_err *e)
{
    struct reader r = {0};
    struct sp_str body;
    struct sp_str line;
    int code = 0;

    if (text.n > SP_PATCH_MAX_BYTES)
        return invalid(e, "it is larger than 16 MiB");
    if (text.n == 0)
        text = SP_STR("");
    if (!sp_utf8_is_valid(text))
        return invalid(e, "it is not valid UTF-8");
    if (find_body(text, &body, e) < 0)
        return -SP_E_INVALID;
    const uint64_t lines = count_lines(body);
    if (lines > SP_PATCH_MAX_LINES)
        return invalid(e, "it has more than 4194304 lines");
    if (!make_room(&r, body, lines))
        code = sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a patch");
    struct sp_str rest = {r.text, body.n};
    while (code == 0 && sp_patch_next_line(&rest, &line)) {
        while (line.n > 0 && line.p[line.n - 1] == '\r')
            line.n--;
        r.line++;
        /* In an update an indented line is context, but the end marker may be indented. */
        if (rest.n == 0 && r.state == IN_UPDATE)
            line = sp_utf8_trim(line);
        code = take_line(&r, line, rest.n == 0, e);
    }
    if (code < 0) {
        sp_arena_done(&r.arena);
        return code;
    }
    *ret = (struct sp_patch){.hunks = r.hunks,
                             .hunk_count = r.hunk_count,
                             .environment_id = r.environment_id,
                             .impl = r.arena.newest};
    return 0;
}

/* ---- calls of apply_patch ---- */

static bool is_patch_program(struct sp_str name)
{
    return sp_str_eq(name, SP_STR("apply_patch")) || sp_str_eq(name, SP_STR("applypatch"));
}

/* pwsh [-NoProfile] -Command SCRIPT, cmd /c SCRIPT */
static bool is_foreign_wrapper(struct sp_words argv, struct sp_str *ret)
{
    const struct sp_str name = argv.count > 0 ? sp_base_name(argv.items[0]) : SP_STR("");
    const bool is_powershell =
        sp_str_eq(name, SP_STR("pwsh")) || sp_str_eq(name, SP_STR("powershell"));
    const bool has_more =
        argv.count == 4 && is_powershell && sp_str_eq_nocase(argv.items[1], SP_STR("-NoProfile"));
    const uint32_t flag = has_more ? 2 : 1;

    if (argv.count != flag + 2)
        return false;
    *ret = argv.items[flag + 1];
    return (is_powershell && sp_str_eq_nocase(argv.items[flag], SP_STR("-Command"))) ||
           (sp_str_eq(name, SP_STR("cmd")) && sp_str_eq_nocase(argv.items[flag], SP_STR("/c")));
}

static void drop(struct sp_str *s, size_t n)
{
    s->p += n;
    s->n -= n;
}

static void skip(struct sp_str *s, const char *set)
{
    while (s->n > 0 && *s->p != 0 && strchr(set, *s->p) != NULL)
        drop(s, 1);
}

/* A run of characters without a meaning to the shell. */
static struct sp_str take_bare(struct sp_str *s)
{
    static const char special[] = " \t\r\n\v\f{}*?[]\\~^#$`()<>&;|'\"!";
    struct sp_str word = {s->p, 0};

    while (s->n > 0 && *s->p != 0 && strchr(special, *s->p) == NULL) {
        word.n++;
        drop(s, 1);
    }
    return word;
}

/* 'TEXT' or "TEXT" in which the shell would expand nothing. */
static bool take_quoted(struct sp_str *s, struct sp_str *ret)
{
    const char quote = s->n > 0 ? *s->p : 0;

    if (quote != '\'' && quote != '"')
        return false;
    const char *end = memchr(s->p + 1, quote, s->n - 1);
    if (end == NULL)
        return false;
    *ret = (struct sp_str){s->p + 1, (size_t)(end - s->p - 1)};
    for (size_t i = 0; quote == '"' && i < ret->n; i++)
        if (ret->p[i] == '$' || ret->p[i] == '`' || ret->p[i] == '\\')
            return false;
    drop(s, ret->n + 2);
    return true;
}

/* One word: bare or in one pair of quotes, not empty. */
static bool take_word(struct sp_str *s, struct sp_str *ret)
{
    if (!take_quoted(s, ret))
        *ret = take_bare(s);
    return ret->n > 0 && !sp_str_has_nul(*ret);
}

/* "cd PATH && "; *ret has p NULL without one. false: a cd that goes on in another way. */
static bool take_cd(struct sp_str *s, struct sp_str *ret)
{
    struct sp_str rest = *s;

    *ret = (struct sp_str){0};
    if (!sp_str_skip_prefix(&rest, SP_STR("cd")) || rest.n == 0 ||
        (*rest.p != ' ' && *rest.p != '\t'))
        return true;
    skip(&rest, " \t");
    if (!take_word(&rest, ret) || ret->p[0] == '-')
        return false;
    skip(&rest, " \t");
    if (!sp_str_skip_prefix(&rest, SP_STR("&&")))
        return false;
    skip(&rest, " \t\n");
    *s = rest;
    return true;
}

/* The lines up to the delimiter, which must be the end of the script. */
static bool take_document(struct sp_str rest, struct sp_str delimiter, struct sp_str *ret)
{
    struct sp_str line;
    const char *begin = rest.p;

    while (sp_patch_next_line(&rest, &line)) {
        if (!sp_str_eq(line, delimiter))
            continue;
        *ret = (struct sp_str){begin, (size_t)(line.p - begin)};
        skip(&rest, " \t\n");
        return rest.n == 0;
    }
    return false;
}

static bool is_patch_script(struct sp_str script, struct sp_str *ret_text, struct sp_str *ret_cd)
{
    struct sp_str delimiter;

    skip(&script, " \t\n");
    if (!take_cd(&script, ret_cd) || !is_patch_program(take_bare(&script)))
        return false;
    skip(&script, " \t");
    if (!sp_str_skip_prefix(&script, SP_STR("<<")))
        return false;
    skip(&script, " \t");
    /* <<- and <<< mean something else. */
    if (!take_word(&script, &delimiter) || memchr(delimiter.p, '\n', delimiter.n) != NULL ||
        (delimiter.p[0] == '-' && delimiter.p[-1] == '<'))
        return false;
    skip(&script, " \t");
    return sp_str_skip_prefix(&script, SP_STR("\n")) && take_document(script, delimiter, ret_text);
}

int sp_patch_recognise(struct sp_words argv, enum sp_patch_call *ret, struct sp_buf *ret_text,
                       struct sp_buf *ret_cd, struct sp_err *e)
{
    struct sp_str text = {0};
    struct sp_str cd = {0};

    *ret = SP_PATCH_CALL_NONE;
    if (argv.count == 2 && is_patch_program(argv.items[0])) {
        text = argv.items[1];
    } else if (argv.count == 1 || sp_script_is_wrapper(argv, &text) ||
               is_foreign_wrapper(argv, &text)) {
        if (argv.count == 1)
            text = argv.items[0];
        struct sp_patch parsed = {0};
        const int r = sp_patch_parse(text, &parsed, e);
        sp_patch_done(&parsed);
        if (r < 0 && r != -SP_E_INVALID)
            return r;
        const bool is_patch = r == 0;
        *ret = is_patch ? SP_PATCH_CALL_BARE : SP_PATCH_CALL_NONE;
        if (is_patch || argv.count == 1 || !is_patch_script(text, &text, &cd))
            return 0;
    } else {
        return 0;
    }
    if (!sp_buf_add_str(ret_text, text) || (cd.p != NULL && !sp_buf_add_str(ret_cd, cd)))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy a patch");
    *ret = SP_PATCH_CALL_PATCH;
    return 0;
}
