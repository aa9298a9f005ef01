/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known_safe: programs that only read, with arguments that keep it so.
 *
 * Where a program has options or operands that write or start something, any word that could be one
 * of them makes the command unknown, and the policy asks. The programs that may have any arguments
 * have none that do: those of GNU and busybox write only to standard output and start nothing.
 *
 * Stricter than Codex, which compares the base name: a program named by a path counts only if the
 * path is in a directory of the system, because a project may bring an ./ls of its own.
 */
#include "approve/judge.h"
#include "approve/script/script_priv.h"

static bool begins_with(struct sp_str s, const char *prefix)
{
    const size_t n = strlen(prefix);

    return s.n >= n && memcmp(s.p, prefix, n) == 0;
}

/* The option, perhaps with "=VALUE". */
static bool is_option(struct sp_str s, const char *option)
{
    return begins_with(s, option) && (s.n == strlen(option) || s.p[strlen(option)] == '=');
}

/* Whether a word of one-letter options has this one. */
static bool has_letter(struct sp_str s, char letter)
{
    return s.n > 1 && s.p[0] == '-' && s.p[1] != '-' && memchr(s.p, letter, s.n) != NULL;
}

static bool is_safe_base64(struct sp_words w)
{
    for (uint32_t i = 1; i < w.count; i++)
        if (has_letter(w.items[i], 'o') || begins_with(w.items[i], "--o"))
            return false;
    return true;
}

static bool is_safe_find(struct sp_words w)
{
    static const char *const unsafe[] = {"-exec", "-execdir", "-ok",      "-okdir",   "-delete",
                                         "-fls",  "-fprint",  "-fprint0", "-fprintf", NULL};

    for (uint32_t i = 1; i < w.count; i++)
        if (sp_str_is_any_of(w.items[i], unsafe))
            return false;
    return true;
}

static bool is_safe_rg(struct sp_words w)
{
    for (uint32_t i = 1; i < w.count; i++)
        if (has_letter(w.items[i], 'z') || is_option(w.items[i], "--pre") ||
            is_option(w.items[i], "--hostname-bin") || is_option(w.items[i], "--search-zip"))
            return false;
    return true;
}

/* 0: no option, 1: an option, 2: an option with its value in the next word, -1: unknown. */
static int take_uniq_option(struct sp_str s)
{
    static const char *const alone[] = {"--count",           "--repeated", "--all-repeated",
                                        "--ignore-case",     "--unique",   "--group",
                                        "--zero-terminated", NULL};

    if (s.n < 2 || s.p[0] != '-')
        return 0;
    if (s.p[1] == '-')
        return sp_str_is_any_of(s, alone) || begins_with(s, "--skip-fields=") ||
                       begins_with(s, "--skip-chars=") || begins_with(s, "--check-chars=") ||
                       begins_with(s, "--all-repeated=") || begins_with(s, "--group=")
                   ? 1
                   : -1;
    for (size_t i = 1; i < s.n; i++) {
        if (sp_is_one_of(s.p[i], "fsw"))
            return i + 1 == s.n ? 2 : 1;
        if (!sp_is_one_of(s.p[i], "cDdiuz0123456789"))
            return -1;
    }
    return 1;
}

/* The second operand of uniq is its output file. */
static bool is_safe_uniq(struct sp_words w)
{
    uint32_t operands = 0;
    bool is_end = false;

    for (uint64_t i = 1; i < w.count; i++) {
        const bool is_mark = !is_end && sp_str_eq(w.items[i], SP_STR("--"));
        const int how = is_end || is_mark ? 0 : take_uniq_option(w.items[i]);

        if (how < 0)
            return false;
        is_end = is_end || is_mark;
        operands += how == 0 && !is_mark;
        i += how == 2;
    }
    return operands <= 1;
}

/* 10p or 1,5p */
static bool is_print_of_lines(struct sp_str s)
{
    size_t i = 0;
    size_t digits = 0;

    for (; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
        digits++;
    if (i < s.n && s.p[i] == ',' && digits != 0) {
        digits = 0;
        for (i++; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
            digits++;
    }
    return digits != 0 && i + 1 == s.n && s.p[i] == 'p';
}

/* sed -n 1,5p [FILE]. The file must not be an option: -e and -f bring scripts, which may start
 * programs. */
static bool is_safe_sed(struct sp_words w)
{
    return (w.count == 3 || w.count == 4) && sp_str_eq(w.items[1], SP_STR("-n")) &&
           is_print_of_lines(w.items[2]) && (w.count == 3 || !begins_with(w.items[3], "-"));
}

/* ---- git ---- */

/* Before the subcommand only options without value that name no other repository or
 * configuration. */
static bool is_safe_git(struct sp_words w)
{
    static const char *const global[] = {"--no-pager",
                                         "-P",
                                         "--no-replace-objects",
                                         "--literal-pathspecs",
                                         "--glob-pathspecs",
                                         "--noglob-pathspecs",
                                         "--icase-pathspecs",
                                         "--no-optional-locks",
                                         "--no-lazy-fetch",
                                         "--no-advice",
                                         NULL};
    static const char *const looking[] = {"status", "log", "diff", "show", NULL};
    static const char *const unsafe[] = {"--output", "--ext-diff", "--textconv", "--exec"};
    static const char *const listing[] = {
        "--list", "-l",  "--show-current", "-a", "--all", "-r", "--remotes",
        "-v",     "-vv", "--verbose",      NULL};
    uint32_t i = 1;

    while (i < w.count && sp_str_is_any_of(w.items[i], global))
        i++;
    if (i == w.count)
        return false;
    const bool is_branch = sp_str_eq(w.items[i], SP_STR("branch"));
    if (!is_branch && !sp_str_is_any_of(w.items[i], looking))
        return false;
    for (i++; i < w.count; i++) {
        struct sp_str rest = w.items[i];
        const struct sp_str option = sp_str_cut(&rest, '=');

        /* Git accepts unique abbreviations, so any prefix of an unsafe option counts. */
        for (size_t k = 0; k < sizeof unsafe / sizeof *unsafe; k++)
            if (option.n > 2 && option.n <= strlen(unsafe[k]) &&
                memcmp(option.p, unsafe[k], option.n) == 0)
                return false;
        if (is_branch && !sp_str_is_any_of(w.items[i], listing) &&
            !begins_with(w.items[i], "--format="))
            return false;
    }
    return true;
}

/* ---- all programs ---- */

/* Base name if the program is looked up in PATH or is in /bin or /usr/bin; empty for any other
 * path. */
static struct sp_str name_of(struct sp_str program)
{
    const struct sp_str name = sp_base_name(program);
    const struct sp_str dir = {program.p, program.n - name.n};

    if (dir.n == 0 || sp_str_eq(dir, SP_STR("/bin/")) || sp_str_eq(dir, SP_STR("/usr/bin/")))
        return name;
    return (struct sp_str){0};
}

bool sp_judge_is_known_safe(struct sp_words segment, enum sp_known_safe how)
{
    static const char *const looking[] = {
        "cat",  "cd",    "cut",   "echo",  "expr",   "false",  "grep", "head", "id",
        "ls",   "nl",    "paste", "pwd",   "rev",    "seq",    "stat", "tail", "tr",
        "true", "uname", "wc",    "which", "whoami", "numfmt", "tac",  NULL};
    static const struct {
        const char *program;
        bool (*is_safe)(struct sp_words w);
    } picky[] = {
        {"base64", is_safe_base64}, {"find", is_safe_find}, {"rg", is_safe_rg},
        {"sed", is_safe_sed},       {"uniq", is_safe_uniq},
    };

    if (how == SP_KNOWN_SAFE_OFF || segment.count == 0)
        return false;
    const struct sp_str program = name_of(segment.items[0]);
    for (size_t i = 0; i < sizeof picky / sizeof *picky; i++)
        if (sp_str_eq(program, sp_str_of(picky[i].program)))
            return picky[i].is_safe(segment);
    if (sp_str_eq(program, SP_STR("git")))
        return how == SP_KNOWN_SAFE_LIST_GIT && is_safe_git(segment);
    return sp_str_is_any_of(program, looking);
}
