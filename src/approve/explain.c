/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/explain.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "sandbox/canonical.h"
#include "sandbox/compile.h"
#include "sandbox/glob.h"
#include "sandbox/policy_json.h"

#define FULL_LANDLOCK 9

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain a policy");
}

/* ---- where a path leads ---- */

/* The real path of the part that exists, followed by the rest as written. */
static int find_real(const char *path, char **ret, struct sp_err *e)
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

/* The entry of the survey that decides about the path: the longest that contains it. */
static const struct sp_spot *find_spot(const struct sp_explainer *q, const char *path)
{
    const struct sp_spot *best = NULL;

    for (size_t i = 0; i < q->survey.count; i++) {
        const struct sp_spot *s = &q->survey.spots[i];

        if (sp_path_is_in(path, s->path) && (best == NULL || strlen(s->path) >= strlen(best->path)))
            best = s;
    }
    return best;
}

/* ---- paths through denied directories ---- */

#define LINKS_MAX 40

/* A walk along a path: `at` is resolved, `rest` is not yet. Longer paths are given up. */
struct walk {
    char at[PATH_MAX];
    char rest[2 * PATH_MAX];
};

/* Appends one name, or follows it if it is a link; *links counts those. false: too long. */
static bool go_on(struct walk *w, const char *name, const char *rest, int *links)
{
    char target[PATH_MAX];
    char next[sizeof w->rest];
    const size_t old = strlen(w->at);

    if (old + 1 + strlen(name) >= sizeof w->at)
        return false;
    (void)snprintf(w->at + old, sizeof w->at - old, "/%s", name);
    const ssize_t n = readlink(w->at, target, sizeof target - 1);
    if (n < 0) {
        (void)memmove(w->rest, rest, strlen(rest) + 1);
        return true;
    }
    target[n] = 0;
    ++*links;
    if ((size_t)snprintf(next, sizeof next, "%s%s", target, rest) >= sizeof next)
        return false;
    w->at[target[0] == '/' ? 0 : old] = 0;
    memcpy(w->rest, next, strlen(next) + 1);
    return true;
}

/* Whether a path leads through a directory that commands cannot read: its contents, and the targets
 * of its links, must not be revealed. w then ends there. */
static bool is_hidden(const struct sp_explainer *q, const char *path, struct walk *w)
{
    char name[NAME_MAX + 1];
    int links = 0;

    w->at[0] = 0;
    if ((size_t)snprintf(w->rest, sizeof w->rest, "%s", path) >= PATH_MAX)
        return false;
    while (links <= LINKS_MAX) {
        const struct sp_spot *s = find_spot(q, w->at[0] == 0 ? "/" : w->at);
        const char *from = w->rest + strspn(w->rest, "/");
        const size_t n = strcspn(from, "/");

        if (n == 0 || n > NAME_MAX)
            return false;
        if (s != NULL && s->access == SP_ACCESS_DENY)
            return true;
        memcpy(name, from, n);
        name[n] = 0;
        if (strcmp(name, "..") == 0)
            w->at[strrchr(w->at, '/') == NULL ? 0 : (size_t)(strrchr(w->at, '/') - w->at)] = 0;
        if (strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
            (void)memmove(w->rest, from + n, strlen(from + n) + 1);
        else if (!go_on(w, name, from + n, &links))
            return false;
    }
    return false;
}

/* A directory that every sandbox keeps empty although no entry says so; NULL: none. */
static const char *find_kept_empty(const struct sp_explainer *q, const char *path)
{
    const struct sp_plan *p = (const void *)q->plan.data;
    const char *best = "";
    bool is_empty = false;

    for (uint32_t i = 0; i < p->op_count; i++) {
        const char *at = sp_plan_string(p, p->ops[i].path);

        if (p->ops[i].op == SP_OP_ALIAS || !sp_path_is_in(path, at) || strlen(at) < strlen(best))
            continue;
        best = at;
        const struct sp_spot *s = find_spot(q, at);
        is_empty = p->ops[i].op == SP_OP_EMPTY && (s == NULL || strcmp(s->path, at) != 0);
    }
    return is_empty ? best : NULL;
}

static const char *find_pattern(const struct sp_explainer *q, const char *path)
{
    for (size_t i = 0; i < q->resolved.glob_count; i++)
        if (sp_glob_covers(q->resolved.globs[i], path))
            return q->resolved.globs[i];
    return NULL;
}

/* ---- texts ---- */

static bool say_entry(const struct sp_explainer *q, size_t index, struct sp_buf *out)
{
    if (index >= q->policy->profile.count)
        return sp_buf_printf(out, "the policy");
    const struct sp_entry *en = &q->policy->profile.entries[index];
    const char *access = sp_word_name(sp_words_access, en->access);
    bool ok = sp_buf_printf(out, "entry %zu (", index);

    switch (en->place) {
    case SP_PLACE_PATH:
        ok = ok && sp_buf_printf(out, "path %s", en->text);
        break;
    case SP_PLACE_GLOB:
        ok = ok && sp_buf_printf(out, "glob_pattern %s", en->text);
        break;
    case SP_PLACE_ROOT:
    case SP_PLACE_MINIMAL:
    case SP_PLACE_PROJECT:
    case SP_PLACE_TMPDIR:
    case SP_PLACE_SLASH_TMP:
    case SP_PLACE_UNKNOWN:
        ok = ok && sp_buf_printf(out, "special %s%s%s", sp_word_name(sp_words_special, en->place),
                                 en->text != NULL ? " " : "", en->text != NULL ? en->text : "");
        break;
    }
    return ok && sp_buf_printf(out, ": %s)", access);
}

static bool say_spot(const struct sp_explainer *q, const struct sp_spot *s, const char *path,
                     struct sp_buf *out)
{
    const char *pattern = find_pattern(q, path);

    switch (s->why) {
    case SP_WHY_ENTRY:
        return say_entry(q, s->entry, out);
    case SP_WHY_PROTECTED:
        return sp_buf_printf(out, "%s is protected in this sandbox, below a writable root of ",
                             strrchr(s->path, '/') == NULL ? s->path : strrchr(s->path, '/') + 1) &&
               say_entry(q, s->entry, out) &&
               sp_buf_printf(out, "; write access to exactly %s allows it", s->path);
    case SP_WHY_GITDIR:
        return sp_buf_printf(out, "%s belongs to the repository of a writable root of ", s->path) &&
               say_entry(q, s->entry, out);
    case SP_WHY_GLOB:
        return sp_buf_printf(out, "pattern %s matches %s", pattern != NULL ? pattern : "", s->path);
    case SP_WHY_OWN:
        return sp_buf_printf(out, "%s decides about commands, so no confined command writes it",
                             s->path);
    case SP_WHY_HIDDEN:
        return sp_buf_printf(out, "%s is kept from every confined command", s->path);
    }
    return false;
}

static bool answer_path(const struct sp_explainer *q, struct sp_explained *ret)
{
    static const char *const own[] = {"/dev", "/proc"};
    const char *empty = find_kept_empty(q, ret->real);

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!q->survey.is_open && sp_path_is_in(ret->real, own[i])) {
            ret->can_read = true;
            ret->can_write = i == 0;
            return sp_buf_printf(&ret->reason, "commands get a %s of their own", own[i]);
        }
    if (empty != NULL)
        return sp_buf_printf(&ret->reason, "%.64s is empty for confined commands", empty);
    const struct sp_spot *s = find_spot(q, ret->real);
    const char *pattern = find_pattern(q, ret->real);

    if (s == NULL) {
        ret->can_read = ret->can_write = q->survey.is_open;
        return sp_buf_printf(&ret->reason, "%s",
                             q->survey.is_open ? "the policy restricts no files"
                                               : "no entry names it");
    }
    const bool is_stand_in = s->kind == SP_SPOT_MISSING && s->access != SP_ACCESS_DENY;
    ret->can_read = s->access != SP_ACCESS_DENY;
    ret->can_write = !is_stand_in && s->access == SP_ACCESS_WRITE;
    if (!say_spot(q, s, ret->real, &ret->reason))
        return false;
    /* A pattern denies only what exists when the sandbox is made. */
    if (pattern != NULL && s->why != SP_WHY_GLOB &&
        !sp_buf_printf(&ret->notes,
                       "  note: pattern %s matches it, but nothing is there: what appears while "
                       "a command runs is not denied to it\n",
                       pattern))
        return false;
    return !is_stand_in || sp_buf_printf(&ret->notes,
                                         "  note: nothing is there: an empty directory stands at "
                                         "%s while commands run\n",
                                         s->path);
}

/* ---- answers ---- */

void sp_explained_done(struct sp_explained *x)
{
    free(x->path);
    free(x->real);
    sp_buf_done(&x->reason);
    sp_buf_done(&x->notes);
    *x = (struct sp_explained){0};
}

int sp_explain_path(const struct sp_explainer *q, const char *cwd, const char *path,
                    struct sp_explained *ret, struct sp_err *e)
{
    auto_explained struct sp_explained x = {.path = sp_path_normalise(path, cwd)};
    struct walk w;

    if (x.path == NULL)
        return errno == EINVAL ? sp_fail(e, SP_E_INVALID, 0, "%s: no such path", path)
                               : no_memory(e);
    if (!is_hidden(q, x.path, &w)) {
        const int r = find_real(x.path, &x.real, e);

        if (r < 0)
            return r;
    } else if (asprintf(&x.real, "%s/%s", w.at, w.rest + strspn(w.rest, "/")) < 0) {
        x.real = NULL; /* the path up to the denied directory, and the rest as written */
    }
    if (x.real == NULL || !answer_path(q, &x) || !sp_buf_add(&x.reason, "", 1) ||
        !sp_buf_add(&x.notes, "", 1))
        return no_memory(e);
    x.reason.len--; /* the NUL behind a text does not count */
    x.notes.len--;
    *ret = x;
    x = (struct sp_explained){0};
    return 0;
}

void sp_explainer_done(struct sp_explainer *q)
{
    sp_buf_done(&q->plan);
    sp_survey_done(&q->survey);
    sp_resolved_done(&q->resolved);
}

int sp_explainer_init(struct sp_explainer *q, const struct sp_policy *p,
                      const struct sp_fixed_places *fixed, struct sp_err *e)
{
    static const struct sp_host_features all = {.has_full_tier = true,
                                                .has_own_network = true,
                                                .has_filter = true,
                                                .has_notices = true,
                                                .landlock = FULL_LANDLOCK};
    /* Without a sandbox no place is hidden. */
    const bool is_disabled = p->profile.kind == SP_PROFILE_DISABLED;

    q->policy = p;
    int r = sp_resolve(p, &q->resolved, e);
    if (r == 0)
        r = sp_survey_make(p, &q->resolved, is_disabled ? NULL : fixed, &q->survey, e);
    if (r == 0)
        r = sp_plan_compile(&q->survey, &p->profile, &all, &q->plan, e);
    return r;
}
