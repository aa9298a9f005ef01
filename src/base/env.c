/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"

#include <errno.h>
#include <stdlib.h>

#include "base/grow.h"

static const char *const core_names[] = {"PATH", "SHELL",  "TMPDIR",   "TEMP",    "TMP", "HOME",
                                         "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"};

static const char *const default_excludes[] = {"*KEY*", "*SECRET*", "*TOKEN*"};

/* AUTH only as a word between underscores: GIT_AUTHOR_NAME is no credential. */
const struct sp_str sp_env_secrets[SP_ENV_SECRETS + 1] = {
    {"*KEY*", 5},    {"*SECRET*", 8},      {"*TOKEN*", 7}, {"*PASSWORD*", 10},
    {"*PASSWD*", 8}, {"*CREDENTIAL*", 12}, {"AUTH", 4},    {"AUTH_*", 6},
    {"*_AUTH", 6},   {"*_AUTH_*", 8},      {NULL, 0},
};

/* Secrets and settings of the executor itself; the URL of a server may contain its token. */
static const char *const never_inherited[] = {
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "NODE_REPL_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    "CODEX_GUARDIAN_DECISIONS_API_KEY",
    "CODEX_EXEC_SERVER_URL",
    "SALLYPORT_TOKEN",
    "SALLYPORT_SERVER",
    "SALLYPORT_DEFAULT_ENVIRONMENT",
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

void sp_env_done(struct sp_env *e)
{
    free(e->pairs);
    *e = (struct sp_env){0};
}

bool sp_env_add(struct sp_env *e, struct sp_str name, struct sp_str value, int rank)
{
    if (!SP_GROW(e->pairs, e->count, e->cap))
        return false;
    e->pairs[e->count] =
        (struct sp_env_pair){.name = name, .value = value, .rank = rank, .order = e->count};
    e->count++;
    return true;
}

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
}

/* Backtracks to the last star only, so the time is at most pattern × name. */
bool sp_env_matches(struct sp_str pattern, struct sp_str name)
{
    size_t p = 0;
    size_t n = 0;
    size_t star = SIZE_MAX;
    size_t after_star = 0;

    if (pattern.n == 0)
        return false;
    while (n < name.n) {
        if (p < pattern.n && pattern.p[p] == '*') {
            star = p++;
            after_star = n;
        } else if (p < pattern.n &&
                   (pattern.p[p] == '?' || upper(pattern.p[p]) == upper(name.p[n]))) {
            p++;
            n++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            n = ++after_star;
        } else {
            return false;
        }
    }
    while (p < pattern.n && pattern.p[p] == '*')
        p++;
    return p == pattern.n;
}

static bool matches_any(const struct sp_str *patterns, uint32_t count, struct sp_str name)
{
    for (uint32_t i = 0; i < count; i++)
        if (sp_env_matches(patterns[i], name))
            return true;
    return false;
}

static bool is_one_of(const char *const *names, size_t count, struct sp_str name)
{
    for (size_t i = 0; i < count; i++)
        if (sp_str_eq_nocase(sp_str_of(names[i]), name))
            return true;
    return false;
}

bool sp_env_is_included(const struct sp_env_policy *p, struct sp_str name)
{
    return p->include_only_count == 0 || matches_any(p->include_only, p->include_only_count, name);
}

static bool is_secret(struct sp_str name)
{
    for (const struct sp_str *i = sp_env_secrets; i->p != NULL; i++)
        if (sp_env_matches(*i, name))
            return true;
    return false;
}

/* Whether keep or include_only names the variable, so that a sandbox passes it. */
static bool is_kept(const struct sp_env_policy *p, struct sp_str name)
{
    for (uint32_t i = 0; i < p->include_only_count; i++)
        if (sp_str_eq_nocase(p->include_only[i], name))
            return true;
    return matches_any(p->keep, p->keep_count, name);
}

static bool passes(const struct sp_env_policy *p, struct sp_str name)
{
    if (p->inherit == SP_ENV_NONE)
        return false;
    if (p->inherit == SP_ENV_CORE && !is_one_of(core_names, COUNT(core_names), name))
        return false;
    if (!p->ignores_default_excludes)
        for (size_t i = 0; i < COUNT(default_excludes); i++)
            if (sp_env_matches(sp_str_of(default_excludes[i]), name))
                return false;
    if (p->hides_secrets && is_secret(name) && !is_kept(p, name))
        return false;
    return !matches_any(p->exclude, p->exclude_count, name) && sp_env_is_included(p, name);
}

bool sp_env_inherit(struct sp_env *e, const struct sp_env_policy *p, char *const *own, int rank)
{
    for (; *own != NULL; own++) {
        /* A name may begin with '=': search behind the first byte. */
        const char *sep = **own == 0 ? NULL : strchr(*own + 1, '=');

        if (sep == NULL)
            continue;
        const struct sp_str name = {*own, (size_t)(sep - *own)};
        if (passes(p, name) && !sp_env_add(e, name, sp_str_of(sep + 1), rank))
            return false;
    }
    return true;
}

bool sp_env_is_private(struct sp_str name)
{
    return is_one_of(never_inherited, COUNT(never_inherited), name);
}

bool sp_env_has(const struct sp_env *e, struct sp_str name)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (sp_str_eq(e->pairs[i].name, name))
            return true;
    return false;
}

static int by_name_and_rank(const void *a, const void *b)
{
    const struct sp_env_pair *x = a;
    const struct sp_env_pair *y = b;
    const size_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    const int c = n == 0 ? 0 : memcmp(x->name.p, y->name.p, n);

    if (c != 0)
        return c;
    if (x->name.n != y->name.n)
        return x->name.n < y->name.n ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

bool sp_env_write(struct sp_env *e, int metadata_rank, bool has_metadata, struct sp_buf *out,
                  uint32_t *ret_count)
{
    uint32_t written = 0;

    if (e->count != 0)
        qsort(e->pairs, e->count, sizeof *e->pairs, by_name_and_rank);
    for (uint32_t i = 0; i < e->count; i++) {
        const struct sp_env_pair *p = &e->pairs[i];

        if (i + 1 < e->count && sp_str_eq(p->name, e->pairs[i + 1].name))
            continue; /* overridden by a later layer */
        const bool is_metadata = sp_str_eq(p->name, SP_STR("CODEX_TOOL_CALL_ID")) ||
                                 (has_metadata && sp_str_eq(p->name, SP_STR("CODEX_THREAD_ID")));
        if (is_metadata ? p->rank != metadata_rank
                        : sp_env_is_private(p->name) ||
                              sp_str_eq(p->name, SP_STR("CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE")))
            continue;
        if (!sp_buf_add_str(out, p->name) || !sp_buf_add(out, "=", 1) ||
            !sp_buf_add_str(out, p->value) || !sp_buf_add(out, "", 1))
            return false;
        written++;
    }
    *ret_count = written;
    return true;
}

/* ==== the env of a command that a model runs ==== */

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

/* Name files with secrets of ours; never_inherited has further variables. */
static const char *const own_credentials[] = {"SALLYPORT_TOKEN_FILE"};

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

/* ---- removing ---- */

/* Removes credentials of our own and values that describe another attempt, and writes the rest. */
static int write_out(struct sp_env *env, const struct sp_env_request *ask, struct sp_buf *out,
                     uint32_t *ret_count, struct sp_err *e)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < env->count; i++) {
        const struct sp_env_pair *p = &env->pairs[i];
        bool is_out = is_one_of(own_credentials, COUNT(own_credentials), p->name);

        for (size_t k = 0; p->rank < RANK_RUNTIME && k < COUNT(told_of_this_attempt); k++)
            is_out |= sp_str_eq(sp_str_of(told_of_this_attempt[k]), p->name);
        for (uint32_t k = 0; k < ask->never_seen_count; k++)
            is_out |= sp_str_eq_nocase(ask->never_seen[k], p->name);
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
        (r = add_vars(&env, ask->marks, RANK_MARK, e)) < 0 || (r = add_sandbox(&env, ask, e)) < 0)
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

/* ---- what a sandbox does not pass ---- */

#define MAX_TOLD 20 /* names */

bool sp_env_add_left_out(const struct sp_env_request *ask, struct sp_buf *out)
{
    struct sp_env env __attribute__((cleanup(sp_env_done))) = {0};
    uint32_t count = 0;
    bool ok = sp_env_inherit(&env, &ask->policy, ask->own, RANK_INHERITED);

    for (uint32_t i = 0; ok && i < env.count; i++) {
        const struct sp_str name = env.pairs[i].name;

        /* SSH_AUTH_SOCK is not worth telling: a sandbox hides the socket anyway. */
        if (!is_secret(name) || is_kept(&ask->policy, name) || sp_env_is_private(name) ||
            sp_str_eq(name, SP_STR("SSH_AUTH_SOCK")) || ++count > MAX_TOLD)
            continue;
        ok = sp_buf_add_str(out, count == 1 ? SP_STR("not passed on to commands in the sandbox: ")
                                            : SP_STR(", ")) &&
             sp_buf_add_str(out, name);
    }
    if (ok && count > MAX_TOLD)
        ok = sp_buf_printf(out, " and %u more", count - MAX_TOLD);
    return ok && (count == 0 || sp_buf_add_str(out, SP_STR("; `keep` in "
                                                           "[shell_environment_policy] of the "
                                                           "configuration lets a name through")));
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
