/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables that the caller of exec_command gives are judged with the command, as if it began
 * with `env NAME=VALUE ...`: which program a known command is, and what code it loads, depend on
 * them. A rule for the command alone is none for it with variables, whoever is asked sees them, and
 * an approval for the session is for these. A patch gets none of them.
 */
#include <string.h>

#include "engine/exec_priv.h"

/* NAME=VALUE, which the call keeps. */
static bool join(struct sp_exec *x, const struct sp_environ_var *v, struct sp_str *ret)
{
    const size_t n = v->name.n + 1 + v->value.n;
    char *text = sp_keep_alloc(&x->call.keep, n);

    if (text == NULL)
        return false;
    memcpy(text, v->name.p, v->name.n);
    text[v->name.n] = '=';
    if (v->value.n != 0)
        memcpy(text + v->name.n + 1, v->value.p, v->value.n);
    *ret = (struct sp_str){text, n};
    return true;
}

/* One after the other, each with its length: no two different lists look alike. */
static bool write_key(struct sp_exec *x, struct sp_words words, struct sp_str *ret)
{
    struct sp_buf key = {0};
    bool ok = true;

    for (uint32_t i = 0; ok && i < words.count; i++)
        ok = sp_buf_printf(&key, "%zu:", words.items[i].n) && sp_buf_add_str(&key, words.items[i]);
    ok = ok && sp_keep_str(&x->call.keep, (struct sp_str){key.data, key.len}, ret);
    sp_buf_done(&key);
    return ok;
}

bool sp_exec_say_env(struct sp_exec *x, struct sp_run_plan_ask *ask)
{
    const struct sp_environ_vars vars = x->ask.env;

    if (vars.count == 0 || x->patch.is_one)
        return true;
    struct sp_str *words = sp_keep_alloc(&x->call.keep, ((size_t)vars.count + 1) * sizeof *words);
    if (words == NULL)
        return false;
    words[0] = SP_STR("env");
    for (uint32_t i = 0; i < vars.count; i++)
        if (!join(x, &vars.items[i], &words[i + 1]))
            return false;
    ask->preface = (struct sp_words){words, vars.count + 1};
    return write_key(x, ask->preface, &ask->key_more);
}
