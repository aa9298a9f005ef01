/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/command_env.h"

#include <errno.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { RANK_INHERITED, RANK_SET, RANK_RUNTIME, RANK_PLAIN, RANK_MARK };

#define LITERAL(text)            \
    {                            \
        (text), sizeof(text) - 1 \
    }
#define VAR(name, value)              \
    {                                 \
        LITERAL(name), LITERAL(value) \
    }

static const struct sp_env_var plain[] = {
    VAR("NO_COLOR", "1"),       VAR("TERM", "dumb"),      VAR("LANG", "C.UTF-8"),
    VAR("LC_CTYPE", "C.UTF-8"), VAR("LC_ALL", "C.UTF-8"), VAR("COLORTERM", ""),
    VAR("PAGER", "cat"),        VAR("GIT_PAGER", "cat"),  VAR("GH_PAGER", "cat"),
    VAR("CODEX_CI", "1"),       VAR("SALLYPORT", "1"),
};

const struct sp_env_vars sp_env_plain = {plain, COUNT(plain)};

/* Describe one attempt: an inherited value would be wrong. */
static const char *const told_of_this_attempt[] = {
    "CODEX_PERMISSION_PROFILE",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "SALLYPORT_SANDBOX",
};

/* ---- adding ---- */

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make environment");
}

static int add_checked(struct sp_env *env, struct sp_str name, struct sp_str value, int rank,
                       struct sp_err *e)
{
    if (sp_str_has_nul(name) || sp_str_has_nul(value))
        return sp_fail(e, SP_E_FAILED, 0, "data provided contains a nul byte");
    /* The name "A=" would set A and evade every rule about A. */
    if (name.n == 0 || memchr(name.p, '=', name.n) != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "`" SP_STR_FMT "` cannot name an environment variable",
                       SP_STR_ARG(name));
    return sp_env_add(env, name, value, rank) ? 0 : no_memory(e);
}

static int add_vars(struct sp_env *env, struct sp_env_vars vars, int rank, struct sp_err *e)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < vars.count; i++)
        r = add_checked(env, vars.items[i].name, vars.items[i].value, rank, e);
    return r;
}

static int add_policy(struct sp_env *env, const struct sp_env_request *ask, struct sp_err *e)
{
    struct sp_env_policy policy = ask->policy;
    int r;

    policy.hides_secrets = policy.hides_secrets || ask->is_confined;
    if (!sp_env_inherit(env, &policy, ask->own, RANK_INHERITED))
        return no_memory(e);
    for (uint32_t i = 0; i < ask->set.count; i++) {
        const struct sp_env_var *v = &ask->set.items[i];

        if (sp_env_is_included(&ask->policy, v->name) &&
            (r = add_checked(env, v->name, v->value, RANK_SET, e)) < 0)
            return r;
    }
    return 0;
}

static int add_runtime(struct sp_env *env, const struct sp_env_request *ask, struct sp_err *e)
{
    const struct sp_env_var known[] = {
        {SP_STR("CODEX_THREAD_ID"), ask->thread_id},
        {SP_STR("CODEX_SESSION_ID"), ask->session_id},
        {SP_STR("CODEX_TOOL_CALL_ID"), ask->call_id},
        {SP_STR("CODEX_PERMISSION_PROFILE"), ask->permission_profile},
    };

    int r = 0;

    for (size_t i = 0; r == 0 && i < COUNT(known); i++)
        if (known[i].value.p != NULL)
            r = add_checked(env, known[i].name, known[i].value, RANK_RUNTIME, e);
    return r;
}

static int add_sandbox(struct sp_env *env, const struct sp_env_request *ask, struct sp_err *e)
{
    int r = 0;

    if (ask->has_no_network)
        r = add_checked(env, SP_STR("CODEX_SANDBOX_NETWORK_DISABLED"), SP_STR("1"), RANK_MARK, e);
    if (r == 0 && ask->is_confined)
        r = add_checked(env, SP_STR("SALLYPORT_SANDBOX"), SP_STR("linux"), RANK_MARK, e);
    return r;
}

struct proxy_vars {
    struct sp_env *env;
    struct sp_err *e;
    int r;
};

static bool add_proxy_var(void *user, const char *name, const char *value)
{
    struct proxy_vars *v = user;

    if (value != NULL) /* write_out removes the others */
        v->r = add_checked(v->env, sp_str_of(name), sp_str_of(value), RANK_MARK, v->e);
    return v->r == 0;
}

static int add_proxy(struct sp_env *env, const struct sp_env_request *ask, struct sp_err *e)
{
    struct proxy_vars v = {env, e, 0};

    if (ask->network != NULL)
        (void)sp_network_policy_variables(ask->network, add_proxy_var, &v);
    return v.r;
}

/* ---- removing ---- */

struct proxy_name {
    struct sp_str name;
    bool is_removed;
};

static bool find_removed(void *user, const char *name, const char *value)
{
    struct proxy_name *n = user;

    n->is_removed = n->is_removed || (value == NULL && sp_str_eq(sp_str_of(name), n->name));
    return !n->is_removed;
}

static bool is_removed(const struct sp_network_policy *network, struct sp_str name)
{
    struct proxy_name n = {name, false};

    if (network != NULL)
        (void)sp_network_policy_variables(network, find_removed, &n);
    return n.is_removed;
}

/* Removes credentials of our own and values that describe another attempt, and writes the rest. */
static int write_out(struct sp_env *env, const struct sp_env_request *ask, struct sp_buf *out,
                     uint32_t *ret_count, struct sp_err *e)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < env->count; i++) {
        const struct sp_env_pair *p = &env->pairs[i];
        /* Names a file with a secret of ours; sp_env_is_private has the other variables. */
        bool is_out = sp_str_eq_nocase(SP_STR("SALLYPORT_TOKEN_FILE"), p->name);

        for (size_t k = 0; p->rank < RANK_RUNTIME && k < COUNT(told_of_this_attempt); k++)
            is_out |= sp_str_eq(sp_str_of(told_of_this_attempt[k]), p->name);
        for (uint32_t k = 0; k < ask->never_seen_count; k++)
            is_out |= sp_str_eq_nocase(ask->never_seen[k], p->name);
        is_out |= is_removed(ask->network, p->name);
        if (!is_out)
            env->pairs[kept++] = *p;
    }
    env->count = kept;
    return sp_env_write(env, RANK_RUNTIME, false, out, ret_count) ? 0 : no_memory(e);
}

/* ---- the whole ---- */

int sp_env_make(const struct sp_env_request *ask, struct sp_buf *out, uint32_t *ret_count,
                struct sp_err *e)
{
    struct sp_env env __attribute__((cleanup(sp_env_done))) = {0};
    int r;

    if ((r = add_policy(&env, ask, e)) < 0 || (r = add_runtime(&env, ask, e)) < 0 ||
        (r = add_vars(&env, ask->plain, RANK_PLAIN, e)) < 0 ||
        (r = add_vars(&env, ask->marks, RANK_MARK, e)) < 0 || (r = add_sandbox(&env, ask, e)) < 0 ||
        (r = add_proxy(&env, ask, e)) < 0)
        return r;
    return write_out(&env, ask, out, ret_count, e);
}

int sp_env_of_policy(const struct sp_env_request *ask, struct sp_buf *out, uint32_t *ret_count,
                     struct sp_err *e)
{
    struct sp_env env __attribute__((cleanup(sp_env_done))) = {0};
    const int r = add_policy(&env, ask, e);

    return r < 0 ? r : write_out(&env, ask, out, ret_count, e);
}

/* ---- overlay ---- */

/* Cuts the next NAME=VALUE off the front. */
static bool next_string(struct sp_str *rest, struct sp_str *ret)
{
    if (rest->n == 0)
        return false;
    *ret = (struct sp_str){rest->p, strnlen(rest->p, rest->n)};
    const size_t step = ret->n < rest->n ? ret->n + 1 : ret->n;
    rest->p += step;
    rest->n -= step;
    return true;
}

static bool contains(struct sp_str made, struct sp_str wanted)
{
    struct sp_str string;

    while (next_string(&made, &string))
        if (sp_str_eq(string, wanted))
            return true;
    return false;
}

static bool is_variable(struct sp_str string, struct sp_str name)
{
    return string.n > name.n && string.p[name.n] == '=' && memcmp(string.p, name.p, name.n) == 0;
}

bool sp_env_overlay(struct sp_str of_policy, struct sp_str made, bool leaves_path,
                    struct sp_buf *out, uint32_t *ret_count)
{
    struct sp_str string;
    uint32_t count = 0;

    while (next_string(&made, &string)) {
        if (leaves_path && is_variable(string, SP_STR("PATH")))
            continue;
        if (contains(of_policy, string) && !is_variable(string, SP_STR("CODEX_PERMISSION_PROFILE")))
            continue;
        if (!sp_buf_add_str(out, string) || !sp_buf_add(out, "", 1))
            return false;
        count++;
    }
    *ret_count = count;
    return true;
}

/* ---- copies ---- */

bool sp_env_copy_vars(struct sp_arena *a, struct sp_env_vars vars, struct sp_env_vars *ret)
{
    struct sp_env_var *copies = sp_arena_new(a, vars.count * sizeof *copies);

    if (copies == NULL)
        return false;
    for (uint32_t i = 0; i < vars.count; i++)
        if (!sp_arena_str(a, vars.items[i].name, &copies[i].name) ||
            !sp_arena_str(a, vars.items[i].value, &copies[i].value))
            return false;
    *ret = (struct sp_env_vars){copies, vars.count};
    return true;
}

static bool copy_own(struct sp_arena *a, char *const *own, char *const **ret)
{
    size_t count = 0;

    while (own[count] != NULL)
        count++;
    char **copies = sp_arena_new(a, (count + 1) * sizeof *copies);
    if (copies == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        copies[i] = sp_arena_copy(a, sp_str_of(own[i]));
        if (copies[i] == NULL)
            return false;
    }
    *ret = copies;
    return true;
}

bool sp_env_copy_request(struct sp_arena *a, const struct sp_env_request *ask,
                         struct sp_env_request *ret)
{
    struct sp_env_request copy = *ask;

    if ((ask->own != NULL && !copy_own(a, ask->own, &copy.own)) ||
        !sp_arena_strs(a, ask->policy.exclude, ask->policy.exclude_count, &copy.policy.exclude) ||
        !sp_arena_strs(a, ask->policy.include_only, ask->policy.include_only_count,
                       &copy.policy.include_only) ||
        !sp_arena_strs(a, ask->policy.keep, ask->policy.keep_count, &copy.policy.keep) ||
        !sp_env_copy_vars(a, ask->set, &copy.set) ||
        !sp_arena_strs(a, ask->never_seen, ask->never_seen_count, &copy.never_seen))
        return false;
    *ret = copy;
    return true;
}
