/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that are dangerous by the looks of them (approvals.md 6.2): a forced rm, behind sudo,
 * env, trap, and shells in shells. What is wrapped too often to be looked at is dangerous, too.
 */
#include "approve/judge_priv.h"

#define MAX_WRAPPERS 8

static int search(struct sp_words argv, unsigned wrappers, enum sp_danger *ret, struct sp_error *e);

static bool is(struct sp_str s, const char *text)
{
    return sp_str_eq(s, sp_str_of(text));
}

static struct sp_words from(struct sp_words w, uint32_t first)
{
    return (struct sp_words){w.items + first, w.count - first};
}

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

/* How many words env takes for itself before the command. */
static uint32_t words_of_env(struct sp_words env)
{
    uint32_t i = 1;

    while (i < env.count && (is(env.items[i], "-i") || is(env.items[i], "--ignore-environment") ||
                             (env.items[i].n != 0 && env.items[i].p[0] != '-' &&
                              memchr(env.items[i].p, '=', env.items[i].n) != NULL)))
        i++;
    return i < env.count && is(env.items[i], "--") ? i + 1 : i;
}

static int search_script(struct sp_str script, unsigned wrappers, enum sp_danger *ret,
                         struct sp_error *e)
{
    auto_segments struct sp_segments commands = {0};
    int r = sp_script_literals(&commands, script, e);

    if (r < 0)
        return r;
    if (commands.is_opaque)
        *ret = SP_DANGER_OTHER; /* some of it could not be looked at */
    for (uint32_t i = 0; i < commands.count && *ret != SP_DANGER_FORCED_RM && r == 0; i++) {
        enum sp_danger danger = SP_DANGER_NONE;

        r = search(commands.items[i], wrappers, &danger, e);
        if (danger != SP_DANGER_NONE)
            *ret = danger;
    }
    return r;
}

/* sh -c ACTION */
static int search_trap(struct sp_words trap, unsigned wrappers, enum sp_danger *ret,
                       struct sp_error *e)
{
    const uint32_t i = trap.count > 1 && is(trap.items[1], "--") ? 2 : 1;

    if (i >= trap.count || (trap.items[i].n != 0 && trap.items[i].p[0] == '-'))
        return 0;
    const struct sp_str shell[] = {SP_STR("sh"), SP_STR("-c"), trap.items[i]};
    return search((struct sp_words){shell, 3}, wrappers + 1, ret, e);
}

static int search_inside(struct sp_words argv, unsigned wrappers, enum sp_danger *ret,
                         struct sp_error *e)
{
    const struct sp_str program = sp_base_name(argv.items[0]);
    struct sp_str script;

    if (is(program, "sudo"))
        return search(from(argv, 1), wrappers + 1, ret, e);
    if (is(program, "env"))
        return search(from(argv, words_of_env(argv)), wrappers + 1, ret, e);
    if (is(program, "trap"))
        return search_trap(argv, wrappers, ret, e);
    if (sp_script_is_wrapper(argv, &script))
        return search_script(script, wrappers + 1, ret, e);
    return 0;
}

static int search(struct sp_words argv, unsigned wrappers, enum sp_danger *ret, struct sp_error *e)
{
    if (argv.count == 0)
        return 0;
    if (wrappers > MAX_WRAPPERS) {
        *ret = SP_DANGER_OTHER;
        return 0;
    }
    if (is(sp_base_name(argv.items[0]), "rm") && forces(argv)) {
        *ret = SP_DANGER_FORCED_RM;
        return 0;
    }
    return search_inside(argv, wrappers, ret, e);
}

int sp_judge_danger(struct sp_words argv, enum sp_danger *ret, struct sp_error *e)
{
    *ret = SP_DANGER_NONE;
    return search(argv, 0, ret, e);
}
