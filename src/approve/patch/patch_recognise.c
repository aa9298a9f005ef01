/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_recognise: whether a command is a call of apply_patch.
 *
 * A script is one if it is, as a whole, `apply_patch <<'EOF'` with its here-document, perhaps
 * behind `cd PATH &&`. Anything else in the script makes it an ordinary command.
 */
#include <errno.h>

#include "approve/patch/patch_priv.h"
#include "approve/script/script_priv.h"

static bool is_patch_program(struct sp_str name)
{
    return sp_str_eq(name, SP_STR("apply_patch")) || sp_str_eq(name, SP_STR("applypatch"));
}

/* ---- wrappers ---- */

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

/* ---- scripts ---- */

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
