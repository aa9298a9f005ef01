/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_text: the scripts of a snapshot and the file made of a shell's output.
 *
 * The shell prints its state in parts. Variables come from the environment of a program that it
 * starts, NUL-separated, and are quoted here. Options are validated names. Functions and aliases
 * are taken as the shell prints them, in a form it can read again.
 *
 * In the file, options that affect the parsing of functions come first, and options that could
 * break the rest, such as errexit, last.
 */
#include <stdio.h>

#include "engine/snapshot_priv.h"

#define MAX_SCRIPT ((size_t)128 * 1024 - 1) /* longest argument of a program, MAX_ARG_STRLEN */
#define COMMAND    "__sallyport_command"    /* holds the command in the script */

enum part { OPTIONS, EARLY, FUNCTIONS, ALIASES, VARIABLES, END, PART_MAX };

static const char *const part_names[PART_MAX] = {
    [OPTIONS] = "options", [EARLY] = "early",         [FUNCTIONS] = "functions",
    [ALIASES] = "aliases", [VARIABLES] = "variables", [END] = "end",
};

/* The commands that print each part. OPTIONS also resets options of the profile that would end the
 * capture. */
static const struct teller {
    const char *word; /* prefix that bypasses functions and aliases of the profile */
    const char *commands[PART_MAX];
} tellers[SP_SHELL_MAX] = {
    [SP_SHELL_BASH] = {"builtin",
                       {[OPTIONS] = "\\builtin set +o\n\\builtin set +eux\n",
                        [EARLY] = "\\builtin shopt -p\n",
                        [FUNCTIONS] = "\\builtin declare -f\n",
                        [ALIASES] = "\\builtin alias -p\n"}},
    [SP_SHELL_ZSH] = {"builtin",
                      {[OPTIONS] = "\\builtin setopt\n\\builtin set +eux\n",
                       [FUNCTIONS] = "\\builtin typeset -f\n",
                       [ALIASES] = "\\builtin alias -L\n"}},
    [SP_SHELL_SH] = {"command",
                     {[OPTIONS] = "\\command set +o\n\\command set +eux\n",
                      [FUNCTIONS] =
                          "\\command typeset -f 2>/dev/null\n", /* dash cannot print functions */
                      [ALIASES] = "\\command alias\n"}},
};

static bool add_text(struct sp_buf *out, const char *text)
{
    return sp_buf_add_str(out, sp_str_of(text));
}

static bool add_quoted(struct sp_buf *out, struct sp_str s)
{
    bool ok = sp_buf_add(out, "'", 1);

    while (ok && s.n != 0) {
        const char *quote = memchr(s.p, '\'', s.n);
        const size_t n = quote != NULL ? (size_t)(quote - s.p) : s.n;

        ok = sp_buf_add(out, s.p, n) && (quote == NULL || add_text(out, "'\\''"));
        s = (struct sp_str){s.p + n + (quote != NULL), s.n - n - (quote != NULL)};
    }
    return ok && sp_buf_add(out, "'", 1);
}

bool sp_snapshot_add_capture(struct sp_buf *out, enum sp_shell_type type, const char *nonce)
{
    const struct teller *t = &tellers[type];
    bool ok = t->word != NULL;

    for (int i = 0; ok && i < PART_MAX; i++) {
        const char *command = t->commands[i] != NULL ? t->commands[i] : "";

        if (i == VARIABLES)
            command = "\\command /bin/cat /proc/self/environ\n";
        ok = sp_buf_printf(out, "\\%s printf '\\n# %s %s\\n'\n%s", t->word, nonce, part_names[i],
                           command);
    }
    return ok && add_text(out, "\\exit 0\n");
}

bool sp_snapshot_add_check(struct sp_buf *out, const char *path)
{
    return add_text(out, "set -e\n. ") && add_quoted(out, sp_str_of(path)) && add_text(out, "\n");
}

/* ---- the printed parts ---- */

/* The text behind the mark of this part; NULL: missing. */
static const char *find_part(struct sp_str printed, const char *nonce, enum part part,
                             const char **ret_mark)
{
    char mark[64];
    const int n = snprintf(mark, sizeof mark, "\n# %s %s\n", nonce, part_names[part]);
    const char *at = printed.n == 0 ? NULL : memmem(printed.p, printed.n, mark, (size_t)n);

    *ret_mark = at;
    return at == NULL ? NULL : at + n;
}

/* Finds all parts, in order. Text before the first is output of the profile. */
static bool find_parts(struct sp_str printed, const char *nonce, struct sp_str ret[PART_MAX])
{
    const char *end = printed.p + printed.n;
    const char *mark;

    for (int i = 0; i < PART_MAX; i++) {
        const char *begin = find_part(printed, nonce, (enum part)i, &mark);

        if (begin == NULL)
            return false;
        if (i != 0)
            ret[i - 1].n = (size_t)(mark - ret[i - 1].p);
        ret[i] = (struct sp_str){begin, 0};
        printed = (struct sp_str){begin, (size_t)(end - begin)};
    }
    return true;
}

static bool next_piece(struct sp_str *rest, char separator, struct sp_str *ret)
{
    if (rest->n == 0)
        return false;
    const char *at = memchr(rest->p, separator, rest->n);
    const size_t n = at != NULL ? (size_t)(at - rest->p) : rest->n;
    *ret = (struct sp_str){rest->p, n};
    *rest = (struct sp_str){rest->p + n + (at != NULL), rest->n - n - (at != NULL)};
    return true;
}

/* ---- options ---- */

/* Options that describe the shell or belong to interactive ones: not set by the snapshot. */
static const char *const fixed_options[] = {"login_shell",
                                            "restricted_shell",
                                            "expand_aliases",
                                            "interactive",
                                            "stdin",
                                            "privileged",
                                            "restricted",
                                            "noexec",
                                            "monitor",
                                            "login",
                                            "shinstdin",
                                            "singlecommand",
                                            "zle",
                                            "nointeractive",
                                            "nomonitor",
                                            "nozle",
                                            "noshinstdin",
                                            "nologin",
                                            "nosinglecommand"};

static bool is_fixed(struct sp_str name)
{
    for (size_t i = 0; i < sizeof fixed_options / sizeof fixed_options[0]; i++)
        if (sp_str_eq(name, sp_str_of(fixed_options[i])))
            return true;
    return false;
}

static bool is_option_name(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyz0123456789_-", s.p[i]) == NULL || s.p[i] == 0)
            return false;
    return s.n != 0 && s.p[0] != '-';
}

static bool take_prefix(struct sp_str *s, const char *prefix)
{
    const size_t n = strlen(prefix);

    if (s->n < n || memcmp(s->p, prefix, n) != 0)
        return false;
    *s = (struct sp_str){s->p + n, s->n - n};
    return true;
}

/* Adds lines of the form ON NAME or OFF NAME with a valid name. */
static bool add_options(struct sp_buf *out, struct sp_str part, const char *on, const char *off,
                        const char *command)
{
    struct sp_str line;
    bool ok = true;

    while (ok && next_piece(&part, '\n', &line)) {
        struct sp_str name = line;

        if ((take_prefix(&name, on) || take_prefix(&name, off)) && is_option_name(name) &&
            !is_fixed(name))
            ok = add_text(out, command) && sp_buf_add_str(out, line) && sp_buf_add(out, "\n", 1);
    }
    return ok;
}

static bool add_late_options(struct sp_buf *out, enum sp_shell_type type, struct sp_str part)
{
    if (type == SP_SHELL_ZSH)
        return add_options(out, part, "", "", "\\setopt ");
    return add_options(out, part, "set -o ", "set +o ", "\\");
}

/* ---- aliases ---- */

/* End of the alias definition that begins at `at`: the first newline outside of quotes. */
static size_t end_of_alias(struct sp_str part, size_t at)
{
    char quote = 0;

    for (; at < part.n; at++) {
        const char c = part.p[at];

        if (c == '\\' && quote != '\'')
            at++;
        else if (quote == 0 && c == '\n')
            return at;
        else if (quote == 0 && (c == '\'' || c == '"'))
            quote = c;
        else if (c == quote)
            quote = 0;
    }
    return part.n;
}

/* Some shells print "alias " before each definition. */
static bool add_aliases(struct sp_buf *out, struct sp_str part)
{
    bool ok = true;

    for (size_t at = 0; ok && at < part.n;) {
        const size_t end = end_of_alias(part, at);
        struct sp_str one = {part.p + at, end - at};

        (void)take_prefix(&one, "alias ");
        if (one.n != 0)
            ok = add_text(out, "\\alias ") && sp_buf_add_str(out, one) && sp_buf_add(out, "\n", 1);
        at = end + 1;
    }
    return ok;
}

/* ---- variables ---- */

/* Variables of the shell itself, of the moment, or of our script. */
static const char *const own_variables[] = {
    "PWD",       "OLDPWD",        "_",   "SHLVL", "UID",  "EUID", "PPID", "BASHOPTS",
    "SHELLOPTS", "BASH_VERSINFO", "GID", "EGID",  COMMAND};

static bool is_own(enum sp_shell_type type, struct sp_str name)
{
    for (size_t i = 0; i < sizeof own_variables / sizeof own_variables[0]; i++)
        if (sp_str_eq(name, sp_str_of(own_variables[i])))
            return true;
    /* In zsh, setting USERNAME changes the user. */
    return type == SP_SHELL_ZSH && sp_str_eq(name, SP_STR("USERNAME"));
}

static bool is_variable_name(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        const char c = s.p[i];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

        if (!is_letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return s.n != 0;
}

static bool split_pair(struct sp_str string, struct sp_str *ret_name, struct sp_str *ret_value)
{
    const char *equals = string.n == 0 ? NULL : memchr(string.p, '=', string.n);

    if (equals == NULL)
        return false;
    const size_t n = (size_t)(equals - string.p);
    *ret_name = (struct sp_str){string.p, n};
    *ret_value = (struct sp_str){equals + 1, string.n - n - 1};
    return true;
}

static bool add_export(struct sp_buf *out, struct sp_str name, struct sp_str value)
{
    return add_text(out, "\\export ") && sp_buf_add_str(out, name) && sp_buf_add(out, "=", 1) &&
           add_quoted(out, value) && sp_buf_add(out, "\n", 1);
}

static bool add_variables(struct sp_buf *out, enum sp_shell_type type, struct sp_str part)
{
    struct sp_str string, name, value;
    bool ok = true;

    while (ok && next_piece(&part, 0, &string))
        if (split_pair(string, &name, &value) && is_variable_name(name) && !is_own(type, name) &&
            value.n <= SP_SNAPSHOT_VALUE_BYTES)
            ok = add_export(out, name, value);
    return ok;
}

/* ---- file and script ---- */

bool sp_snapshot_compose(struct sp_buf *out, enum sp_shell_type type, const char *nonce,
                         struct sp_str printed)
{
    struct sp_str parts[PART_MAX];
    const bool expands = type == SP_SHELL_BASH; /* non-interactive bash needs expand_aliases */

    if (!find_parts(printed, nonce, parts))
        return false;
    out->max = SP_SNAPSHOT_BYTES;
    return add_text(out, "# Snapshot file\n") &&
           add_options(out, parts[EARLY], "shopt -s ", "shopt -u ", "\\") &&
           sp_buf_add_str(out, parts[FUNCTIONS]) && sp_buf_add(out, "\n", 1) &&
           add_aliases(out, parts[ALIASES]) && add_variables(out, type, parts[VARIABLES]) &&
           add_late_options(out, type, parts[OPTIONS]) &&
           (!expands || add_text(out, "\\shopt -s expand_aliases\n")) && add_text(out, ":\n");
}

static bool find_variable(struct sp_str made, struct sp_str wanted, struct sp_str *ret_value)
{
    struct sp_str string, name;

    while (next_piece(&made, 0, &string))
        if (split_pair(string, &name, ret_value) && sp_str_eq(name, wanted))
            return true;
    return false;
}

static bool add_restored(struct sp_buf *out, struct sp_str made, struct sp_str name)
{
    struct sp_str value;

    if (!is_variable_name(name) || sp_str_eq(name, SP_STR(COMMAND)))
        return true; /* not a shell variable, or our own */
    if (find_variable(made, name, &value))
        return add_export(out, name, value);
    return add_text(out, "\\unset ") && sp_buf_add_str(out, name) && sp_buf_add(out, "\n", 1);
}

/* eval, because another shell would not know the functions; the helper variable is unset first. If
 * the snapshot cannot be sourced, the script executes the original command line. */
bool sp_snapshot_script(struct sp_buf *out, const struct sp_shell *shell, const char *path,
                        struct sp_str cmd, struct sp_str made, const struct sp_str *restored,
                        uint32_t restored_count)
{
    const size_t mark = out->len;
    bool ok = add_text(out, COMMAND "=") && add_quoted(out, cmd) && add_text(out, "\nif [ -r ") &&
              add_quoted(out, sp_str_of(path)) && add_text(out, " ] && ") &&
              add_text(out, shell->type == SP_SHELL_ZSH ? ". " : "command . ") &&
              add_quoted(out, sp_str_of(path)) &&
              add_text(out, " </dev/null >/dev/null 2>&1; then :; else exec ") &&
              add_quoted(out, sp_str_of(shell->path)) &&
              add_text(out, " -lc \"$" COMMAND "\"; fi\n");

    for (uint32_t i = 0; ok && i < restored_count; i++)
        ok = add_restored(out, made, restored[i]);
    ok = ok && add_text(out, "\\eval \"\\\\unset " COMMAND "; $" COMMAND "\"\n") &&
         out->len - mark <= MAX_SCRIPT;
    if (!ok)
        out->len = mark;
    return ok;
}
