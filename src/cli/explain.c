/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "rpc/policy_words.h"
#include "sandbox/canonical.h"
#include "sandbox/compile.h"
#include "sandbox/glob.h"

#define FULL_LANDLOCK 9

struct question {
    const struct sp_policy *policy;
    struct sp_resolved resolved;
    struct sp_survey survey;
    struct sp_buf plan;
    struct sp_buf *out;
};

static int no_memory(struct sp_error *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain a policy");
}

/* ---- where a path leads ---- */

/* The real path of what there is of it, and the rest as it is written. */
static int find_real(const char *path, char **ret, struct sp_error *e)
{
    auto_free char *head = strdup(path);
    size_t n = strlen(path);

    for (;;) {
        auto_canonical struct sp_canonical at = {0};

        if (head == NULL)
            return no_memory(e);
        const int r = sp_canonical_find(n == 0 ? "/" : head, &at, e);
        if (r < 0)
            return sp_wrap(e, "%s", path);
        if (at.way == SP_WAY_FOUND || n == 0) {
            const bool is_root = strcmp(at.path, "/") == 0;

            if (asprintf(ret, "%s%s", is_root && path[n] != 0 ? "" : at.path, path + n) < 0)
                return no_memory(e);
            return 0;
        }
        while (n > 0 && head[n - 1] != '/')
            n--;
        n -= n > 0;
        head[n] = 0;
    }
}

/* ---- what decides ---- */

static const struct sp_spot *find_spot(const struct question *q, const char *path)
{
    const struct sp_spot *best = NULL;

    for (size_t i = 0; i < q->survey.count; i++) {
        const struct sp_spot *s = &q->survey.spots[i];

        if (sp_path_is_in(path, s->path) && (best == NULL || strlen(s->path) >= strlen(best->path)))
            best = s;
    }
    return best;
}

static bool has_spot_at(const struct question *q, const char *path)
{
    const struct sp_spot *s = find_spot(q, path);

    return s != NULL && strcmp(s->path, path) == 0;
}

/* A directory that every sandbox keeps empty, though no entry says so; NULL: not one. */
static const char *find_kept_empty(const struct question *q, const char *path)
{
    const struct sp_plan *p = (const void *)q->plan.data;
    const char *best = "";
    bool is_empty = false;

    for (uint32_t i = 0; i < p->op_count; i++) {
        const char *at = sp_plan_string(p, p->ops[i].path);

        if (p->ops[i].op == SP_OP_ALIAS || !sp_path_is_in(path, at) || strlen(at) < strlen(best))
            continue;
        best = at;
        is_empty = p->ops[i].op == SP_OP_EMPTY && !has_spot_at(q, at);
    }
    return is_empty ? best : NULL;
}

static const char *find_pattern(const struct question *q, const char *path)
{
    for (size_t i = 0; i < q->resolved.glob_count; i++)
        if (sp_glob_covers(q->resolved.globs[i], path))
            return q->resolved.globs[i];
    return NULL;
}

/* ---- in words ---- */

static bool say_entry(const struct question *q, size_t index)
{
    if (index >= q->policy->profile.count)
        return sp_buf_printf(q->out, "the policy");
    const struct sp_entry *en = &q->policy->profile.entries[index];
    const char *access = sp_word_name(sp_words_access, en->access);
    bool ok = sp_buf_printf(q->out, "entry %zu (", index);

    switch (en->place) {
    case SP_PLACE_PATH:
        ok = ok && sp_buf_printf(q->out, "path %s", en->text);
        break;
    case SP_PLACE_GLOB:
        ok = ok && sp_buf_printf(q->out, "glob_pattern %s", en->text);
        break;
    case SP_PLACE_ROOT:
    case SP_PLACE_MINIMAL:
    case SP_PLACE_PROJECT:
    case SP_PLACE_TMPDIR:
    case SP_PLACE_SLASH_TMP:
    case SP_PLACE_UNKNOWN:
        ok =
            ok && sp_buf_printf(q->out, "special %s%s%s", sp_word_name(sp_words_special, en->place),
                                en->text != NULL ? " " : "", en->text != NULL ? en->text : "");
        break;
    }
    return ok && sp_buf_printf(q->out, ": %s)", access);
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

static bool say_reason(const struct question *q, const struct sp_spot *s, const char *path)
{
    const char *pattern = find_pattern(q, path);

    switch (s->why) {
    case SP_WHY_ENTRY:
        return say_entry(q, s->entry);
    case SP_WHY_PROTECTED:
        return sp_buf_printf(q->out, "protected name %s below a writable root of ",
                             last_name(s->path)) &&
               say_entry(q, s->entry);
    case SP_WHY_GITDIR:
        return sp_buf_printf(q->out, "%s belongs to the repository of a writable root of ",
                             s->path) &&
               say_entry(q, s->entry);
    case SP_WHY_GLOB:
        return sp_buf_printf(q->out, "pattern %s matches %s", pattern != NULL ? pattern : "",
                             s->path);
    case SP_WHY_COVER:
        return sp_buf_printf(q->out, "%s is kept from every confined command", s->path);
    }
    return false;
}

static bool say_line(const struct question *q, const char *what, const char *answer)
{
    return sp_buf_printf(q->out, "  %s: %s, ", what, answer);
}

/* Both answers with one reason. */
static bool say_both(const struct question *q, bool can_read, bool can_write,
                     const struct sp_spot *s, const char *path)
{
    for (int i = 0; i < 2; i++) {
        const bool can = i == 0 ? can_read : can_write;

        if (!say_line(q, i == 0 ? "read" : "write", can ? "yes" : "no"))
            return false;
        if (!(s != NULL           ? say_reason(q, s, path)
              : q->survey.is_open ? sp_buf_printf(q->out, "the policy restricts no files")
                                  : sp_buf_printf(q->out, "no entry names it")) ||
            !sp_buf_printf(q->out, "\n"))
            return false;
    }
    return true;
}

static bool say_same(const struct question *q, const char *read, const char *write,
                     const char *reason)
{
    return sp_buf_printf(q->out, "  read: %s, %s\n  write: %s, %s\n", read, reason, write, reason);
}

/* A pattern denies what it matches when the sandbox is made. */
static bool say_future_match(const struct question *q, const struct sp_spot *s, const char *path)
{
    const char *pattern = find_pattern(q, path);

    if (pattern == NULL || (s != NULL && s->why == SP_WHY_GLOB))
        return true;
    return sp_buf_printf(q->out,
                         "  note: pattern %s matches it, but nothing is there: what appears while "
                         "a command runs is not denied to it\n",
                         pattern);
}

static bool say_answer(const struct question *q, const char *path)
{
    static const char *const own[] = {"/dev", "/proc"};
    const struct sp_spot *s = find_spot(q, path);
    const char *empty = find_kept_empty(q, path);
    char reason[128];

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!q->survey.is_open && sp_path_is_in(path, own[i])) {
            (void)snprintf(reason, sizeof reason, "commands get a %s of their own", own[i]);
            return say_same(q, "yes", i == 0 ? "yes" : "no", reason);
        }
    if (empty != NULL) {
        (void)snprintf(reason, sizeof reason, "%.64s is empty for confined commands", empty);
        return say_same(q, "no", "no", reason);
    }
    if (s == NULL)
        return say_both(q, q->survey.is_open, q->survey.is_open, NULL, path);
    if (s->kind == SP_SPOT_MISSING && s->access != SP_ACCESS_DENY)
        return say_both(q, true, false, s, path) && say_future_match(q, s, path) &&
               sp_buf_printf(q->out,
                             "  note: nothing is there: an empty directory stands at %s while "
                             "commands run\n",
                             s->path);
    return say_both(q, s->access != SP_ACCESS_DENY, s->access == SP_ACCESS_WRITE, s, path) &&
           say_future_match(q, s, path);
}

static int answer(const struct question *q, const char *cwd, const char *path, struct sp_error *e)
{
    auto_free char *written = sp_path_normalise(path, cwd);
    auto_free char *real = NULL;

    if (written == NULL)
        return errno == EINVAL ? sp_fail(e, SP_E_INVALID, 0, "%s: no such path", path)
                               : no_memory(e);
    const int r = find_real(written, &real, e);
    if (r < 0 || real == NULL)
        return r;
    bool ok = sp_buf_printf(q->out, "%s\n", written);
    if (strcmp(written, real) != 0)
        ok = ok && sp_buf_printf(q->out, "  leads to %s\n", real);
    return ok && say_answer(q, real) ? 0 : no_memory(e);
}

/* ---- the whole ---- */

static int ask(struct question *q, const char *const *covers, struct sp_error *e)
{
    static const struct sp_powers all = {.has_cells = true,
                                         .has_own_network = true,
                                         .has_filter = true,
                                         .has_notices = true,
                                         .landlock = FULL_LANDLOCK};
    /* Without a sandbox nothing is kept from anybody. */
    const bool is_disabled = q->policy->profile.kind == SP_PROFILE_DISABLED;
    int r = sp_resolve(q->policy, &q->resolved, e);

    if (r == 0)
        r = sp_survey_make(q->policy, &q->resolved, is_disabled ? NULL : covers, &q->survey, e);
    if (r == 0)
        r = sp_plan_compile(&q->survey, q->policy->profile.has_network, &all, &q->plan, e);
    return r;
}

int sp_explain(const struct sp_policy *p, const char *const *covers, const char *cwd,
               char *const *paths, struct sp_buf *out, struct sp_error *e)
{
    struct question q = {.policy = p, .out = out};
    int r = ask(&q, covers, e);

    for (; r == 0 && *paths != NULL; paths++)
        r = answer(&q, cwd, *paths, e);
    sp_buf_done(&q.plan);
    sp_survey_done(&q.survey);
    sp_resolved_done(&q.resolved);
    return r;
}
