/* SPDX-License-Identifier: Apache-2.0 */
/*
 * danger: commands that look dangerous: a forced rm, also behind sudo, env and the like, in trap,
 * and in shells in shells. What is wrapped too often to be inspected counts as dangerous, too.
 */
#include "approve/judge.h"
#include "approve/script/script_priv.h"

#define MAX_WRAPPERS 8

static int search_words(struct sp_words argv, unsigned wrapped, enum sp_danger *ret,
                        struct sp_err *e);

static bool is(struct sp_str s, const char *text)
{
    return sp_str_eq(s, sp_str_of(text));
}

static struct sp_words from(struct sp_words w, uint32_t first)
{
    return (struct sp_words){w.items + first, w.count - first};
}

/* Whether rm has -f among its options. */
static bool forces(struct sp_words rm)
{
    for (uint32_t i = 1; i < rm.count && !is(rm.items[i], "--"); i++) {
        const struct sp_str s = rm.items[i];

        if (is(s, "--force"))
            return true;
        if (s.n > 1 && s.p[0] == '-' && s.p[1] != '-' && memchr(s.p, 'f', s.n) != NULL)
            return true;
    }
    return false;
}

/* ---- programs that start the one behind them ---- */

/* Codex knows `sudo X` and `env [-i|NAME=value]... [--] X` only. The other options of these
 * programs, and the other programs, hide a forced rm just as well (`sudo -n rm -rf x`, `... | xargs
 * rm -f`); knowing them can only add questions. Options are skipped as the program itself does; an
 * option that is not listed has no value. `env -S` is left to env. */
static const struct wrapper {
    const char *program;
    const char letters[16];      /* options with a value in the next word, unless attached */
    const char *const names[12]; /* the same as long options; "=" attaches the value */
    uint32_t words;              /* operands before the command */
    bool has_assignments;
} wrappers[] = {
    {.program = "sudo",
     .letters = "CDRTUghprtu",
     .names = {"--close-from", "--chdir", "--chroot", "--command-timeout", "--other-user",
               "--group", "--host", "--prompt", "--role", "--type", "--user"},
     .has_assignments = true},
    {.program = "doas", .letters = "Cu"},
    {.program = "env",
     .letters = "CSau",
     .names = {"--chdir", "--split-string", "--argv0", "--unset"},
     .has_assignments = true},
    {.program = "busybox"},
    {.program = "command"},
    {.program = "eval"},
    {.program = "exec", .letters = "a"},
    {.program = "nice", .letters = "n", .names = {"--adjustment"}},
    {.program = "nohup"},
    {.program = "timeout", .letters = "ks", .names = {"--kill-after", "--signal"}, .words = 1},
    {.program = "xargs",
     .letters = "EILPadns",
     .names = {"--arg-file", "--delimiter", "--max-args", "--max-chars", "--max-procs",
               "--process-slot-var"}},
};

static const struct wrapper *wrapper_of(struct sp_str program)
{
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (is(program, wrappers[i].program))
            return &wrappers[i];
    return NULL;
}

/* Whether the next word is the value of this option. */
static bool wants_value(const struct wrapper *w, struct sp_str option)
{
    if (option.n > 2 && option.p[1] == '-') {
        for (size_t i = 0; i < sizeof w->names / sizeof *w->names && w->names[i] != NULL; i++)
            if (is(option, w->names[i]))
                return true;
        return false;
    }
    for (size_t i = 1; i < option.n; i++)
        if (memchr(w->letters, option.p[i], strlen(w->letters)) != NULL)
            return i + 1 == option.n;
    return false;
}

/* The number of words that belong to the wrapper. *ret_value: index of the last option value or
 * operand; 0: none. */
static uint32_t words_of(const struct wrapper *w, struct sp_words argv, uint32_t *ret_value)
{
    uint64_t i = 1;
    uint64_t value = 0;
    bool is_end = false;

    for (; i < argv.count; i++) {
        const struct sp_str s = argv.items[i];

        if (w->has_assignments && s.n != 0 && s.p[0] != '-' && memchr(s.p, '=', s.n) != NULL)
            continue;
        if (is_end || s.n == 0 || s.p[0] != '-')
            break;
        is_end = is(s, "--");
        if (!is_end && wants_value(w, s))
            value = ++i;
    }
    i += w->words;
    if (w->words != 0)
        value = i - 1;
    *ret_value = value < argv.count ? (uint32_t)value : 0;
    return i < argv.count ? (uint32_t)i : argv.count;
}

/* ---- the search ---- */

static int search_script(struct sp_str script, unsigned wrapped, enum sp_danger *ret,
                         struct sp_err *e)
{
    auto_segments struct sp_segments commands = {0};
    int r = sp_script_literals(&commands, script, e);

    if (r < 0)
        return r;
    if (commands.is_opaque)
        *ret = SP_DANGER_OTHER; /* part of the script could not be parsed */
    for (uint32_t i = 0; i < commands.count && *ret != SP_DANGER_FORCED_RM && r == 0; i++) {
        enum sp_danger danger = SP_DANGER_NONE;

        r = search_words(commands.items[i], wrapped, &danger, e);
        if (danger != SP_DANGER_NONE)
            *ret = danger;
    }
    return r;
}

/* trap ACTION and eval SCRIPT are sh -c with that script. */
static int search_trap(struct sp_words trap, unsigned wrapped, enum sp_danger *ret,
                       struct sp_err *e)
{
    const uint32_t i = trap.count > 1 && is(trap.items[1], "--") ? 2 : 1;

    if (i >= trap.count || (trap.items[i].n != 0 && trap.items[i].p[0] == '-'))
        return 0;
    const struct sp_str shell[] = {SP_STR("sh"), SP_STR("-c"), trap.items[i]};
    return search_words((struct sp_words){shell, 3}, wrapped + 1, ret, e);
}

/* sp_script_literals leaves non-literal words out: of `timeout "$t" rm -f x` remains `timeout rm -f
 * x`. So the last value of a wrapper may be the command as well. */
static int search_wrapped(const struct wrapper *w, struct sp_words argv, unsigned wrapped,
                          enum sp_danger *ret, struct sp_err *e)
{
    uint32_t value;
    const uint32_t command = words_of(w, argv, &value);
    const int r = search_words(from(argv, command), wrapped + 1, ret, e);

    if (r < 0 || *ret != SP_DANGER_NONE || value == 0)
        return r;
    return search_words(from(argv, value), wrapped + 1, ret, e);
}

static int search_words(struct sp_words argv, unsigned wrapped, enum sp_danger *ret,
                        struct sp_err *e)
{
    struct sp_str script;

    if (argv.count == 0)
        return 0;
    const struct sp_str program = sp_base_name(argv.items[0]);
    const struct wrapper *w = wrapper_of(program);
    if (wrapped > MAX_WRAPPERS)
        *ret = SP_DANGER_OTHER;
    else if (is(program, "rm") && forces(argv))
        *ret = SP_DANGER_FORCED_RM;
    else if (is(program, "trap") || (is(program, "eval") && argv.count == 2))
        return search_trap(argv, wrapped, ret, e);
    else if (w != NULL)
        return search_wrapped(w, argv, wrapped, ret, e);
    else if (sp_script_is_wrapper(argv, &script))
        return search_script(script, wrapped + 1, ret, e);
    return 0;
}

int sp_judge_danger(struct sp_words argv, enum sp_danger *ret, struct sp_err *e)
{
    *ret = SP_DANGER_NONE;
    return search_words(argv, 0, ret, e);
}
