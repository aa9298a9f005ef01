/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/writable.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/grow.h"
#include "sandbox/resolve.h"

void sp_writable_done(struct sp_writable *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->roots[i]);
    free(w->roots);
    *w = (struct sp_writable){0};
}

/* ---- the places ---- */

static bool add_root(struct sp_writable *w, const char *path)
{
    char *copy = strdup(path);

    if (copy == NULL || !SP_GROW(w->roots, w->count, w->cap)) {
        free(copy);
        return false;
    }
    w->roots[w->count++] = copy;
    return true;
}

/* Adds the path as named and as resolved. For a missing path that is its first missing component:
 * commands may create the rest there. */
static bool add_place(struct sp_writable *w, const char *path)
{
    auto_canonical struct sp_canonical at = {0};

    return add_root(w, path) && sp_canonical_find(path, &at, NULL) == 0 && add_root(w, at.path);
}

void sp_writable_find(const struct sp_policy *p, struct sp_writable *ret)
{
    struct sp_resolved r = {0};
    bool ok = true;

    *ret = (struct sp_writable){0};
    sp_budget_begin(SP_DISK_BUDGET_MS); /* also for the following sp_writable_stays calls */
    if (p == NULL || !sp_profile_needs_sandbox(&p->profile))
        return;
    if (sp_resolve(p, &r, NULL) < 0) {
        ret->is_all = true;
        return;
    }
    for (size_t i = 0; ok && !r.is_open && i < r.count; i++)
        if (r.facts[i].access == SP_ACCESS_WRITE)
            ok = add_place(ret, r.facts[i].path);
    ret->is_all = !ok || r.is_open || r.is_full_write;
    sp_resolved_done(&r);
}

bool sp_writable_has(const struct sp_writable *w, const char *path)
{
    for (size_t i = 0; i < w->count; i++)
        if (sp_path_is_in(path, w->roots[i]))
            return true;
    return w->is_all;
}

/* ---- paths ---- */

/* Their contents depend on the process that looks. */
static bool is_of_kernel(const char *path)
{
    return sp_path_is_in(path, "/proc") || sp_path_is_in(path, "/dev") ||
           sp_path_is_in(path, "/sys");
}

/* Whether `..` follows a named component: that directory was on the way, too, but does not appear
 * in the resolved path. */
static bool turns_back(const char *text)
{
    bool has_name = *text == '/';

    for (const char *p = text; *p != 0;) {
        p += strspn(p, "/");
        const size_t n = strcspn(p, "/");

        if (n == 2 && p[0] == '.' && p[1] == '.') {
            if (has_name)
                return true;
        } else if (n != 0 && !(n == 1 && p[0] == '.')) {
            has_name = true;
        }
        p += n;
    }
    return false;
}

static bool stays(const struct sp_writable *w, const char *path, const struct sp_canonical *at)
{
    if (turns_back(path) || sp_writable_has(w, at->path) || is_of_kernel(at->path))
        return false;
    for (size_t i = 0; i < at->link_count; i++)
        if (turns_back(at->links[i].target) || sp_writable_has(w, at->links[i].path) ||
            is_of_kernel(at->links[i].path))
            return false;
    return true;
}

bool sp_writable_stays(const struct sp_writable *w, const char *path, struct sp_canonical *ret)
{
    *ret = (struct sp_canonical){0};
    if (path[0] != '/' || sp_canonical_find(path, ret, NULL) < 0)
        return false;
    if (stays(w, path, ret))
        return true;
    sp_canonical_done(ret);
    return false;
}

/* ---- files ---- */

/* Replaces the paths of facts by their resolved paths; missing ones stay as written. */
static bool make_canonical(struct sp_resolved *r)
{
    for (size_t i = 0; i < r->count; i++) {
        auto_canonical struct sp_canonical at = {0};

        if (sp_canonical_find(r->facts[i].path, &at, NULL) < 0)
            return false;
        if (at.way != SP_WAY_FOUND)
            continue;
        free(r->facts[i].path);
        r->facts[i].path = TAKE_PTR(at.path);
    }
    return true;
}

static bool can_write(const struct sp_resolved *r, const struct sp_canonical *at)
{
    bool can = sp_resolved_can_write(r, at->path, NULL, NULL);

    for (size_t i = 0; !can && i < at->link_count; i++)
        can = sp_resolved_can_write(r, at->links[i].path, NULL, NULL);
    return can;
}

bool sp_policy_may_write(const struct sp_policy *p, const char *path)
{
    struct sp_resolved r __attribute__((cleanup(sp_resolved_done))) = {0};
    auto_canonical struct sp_canonical at = {0};

    if (!sp_profile_needs_sandbox(&p->profile))
        return false;
    sp_budget_begin(SP_DISK_BUDGET_MS);
    if (path[0] != '/' || sp_resolve(p, &r, NULL) < 0)
        return true;
    if (r.is_open || sp_canonical_find(path, &at, NULL) < 0 || at.way != SP_WAY_FOUND)
        return true;
    return can_write(&r, &at) || !make_canonical(&r) || can_write(&r, &at);
}
