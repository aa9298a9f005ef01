/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"

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

static int by_name_and_rank(const void *a, const void *b)
{
    const struct sp_env_pair *x = a;
    const struct sp_env_pair *y = b;
    const int c = sp_str_compare(x->name, y->name);

    if (c != 0)
        return c;
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

/* ---- what a sandbox does not pass ---- */

#define MAX_TOLD 20 /* names */

bool sp_env_add_left_out(const struct sp_env_policy *p, char *const *own, struct sp_buf *out)
{
    struct sp_env env __attribute__((cleanup(sp_env_done))) = {0};
    uint32_t count = 0;
    bool ok = sp_env_inherit(&env, p, own, 0);

    for (uint32_t i = 0; ok && i < env.count; i++) {
        const struct sp_str name = env.pairs[i].name;

        /* SSH_AUTH_SOCK is not worth telling: a sandbox hides the socket anyway. */
        if (!is_secret(name) || is_kept(p, name) || sp_env_is_private(name) ||
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

struct sp_str sp_env_value(struct sp_str environ, const char *name)
{
    const size_t n = strlen(name);

    for (size_t at = 0; at < environ.n; at += strnlen(environ.p + at, environ.n - at) + 1) {
        const char *word = environ.p + at;
        const size_t left = environ.n - at;

        if (left > n && memcmp(word, name, n) == 0 && word[n] == '=')
            return (struct sp_str){word + n + 1, strnlen(word + n + 1, left - n - 1)};
    }
    return (struct sp_str){NULL, 0};
}
