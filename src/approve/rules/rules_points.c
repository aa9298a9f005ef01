/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/rules/rules_points.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/rules/rules_priv.h"
#include "approve/rules/rules_watch.h"
#include "base/auto.h"
#include "base/grow.h"

/* ---- one watch point ---- */

struct taking {
    struct sp_rules_points *points;
    int fd;
    int error; /* -errno: no watches or no memory left */
};

static void point_done(struct sp_rules_point *p)
{
    free(p->path);
    free(p->name);
    *p = (struct sp_rules_point){0};
}

void sp_rules_points_done(struct sp_rules_points *p)
{
    while (p->count > 0)
        point_done(&p->items[--p->count]);
    free(p->items);
    *p = (struct sp_rules_points){0};
}

static bool is_there(const char *folder, const char *name)
{
    auto_free char *path = NULL;

    if (asprintf(&path, "%s/%s", folder, name) < 0)
        path = NULL;
    return path == NULL || !sp_rules_is_nothing(path);
}

/* Watches `path`, for the entry `name`. 0, or -errno: the path is missing or cannot be read, which
 * is no error of the whole (t->error is). */
static int add_point(struct taking *t, const char *path, const char *name, unsigned flags,
                     bool is_for_file)
{
    struct sp_rules_points *p = t->points;

    if (t->error < 0)
        return t->error;
    if (p->count == SP_RULES_WATCH_MAX) {
        p->is_cut = true;
        return -EACCES;
    }
    const int id = sp_notify_add(t->fd, path, flags | SP_NOTIFY_MODES);
    if (id < 0) {
        if (id == -ENOSPC || id == -ENOMEM)
            t->error = id;
        return id;
    }
    struct sp_rules_point point = {
        .id = id,
        .is_for_file = is_for_file,
        .was_there = name != NULL && is_there(path, name),
        .path = strdup(path),
        .name = name == NULL ? NULL : strdup(name),
    };
    if (point.path == NULL || (name != NULL && point.name == NULL) ||
        !SP_GROW(p->items, p->count, p->cap)) {
        point_done(&point);
        return t->error = -ENOMEM;
    }
    p->items[p->count++] = point;
    return 0;
}

/* ---- the directories above a path ---- */

/* Splits "/a/b" into "/a" and "b". false: the path has no parent. */
static bool split(char *path, const char **ret_folder, const char **ret_name)
{
    char *slash = strrchr(path, '/');

    while (slash != NULL && slash > path && slash[1] == 0) { /* "/a/" */
        *slash = 0;
        slash = strrchr(path, '/');
    }
    if (slash == NULL) {
        *ret_folder = ".";
        *ret_name = path;
        return path[0] != 0 && strcmp(path, ".") != 0;
    }
    *slash = 0;
    *ret_folder = slash == path ? "/" : path;
    *ret_name = slash + 1;
    return slash[1] != 0;
}

static int add_above(struct taking *t, const char *path, size_t n, bool is_for_file)
{
    auto_free char *copy = strndup(path, n);
    const char *folder = NULL;
    const char *name = NULL;

    if (copy == NULL)
        return t->error = -ENOMEM;
    if (!split(copy, &folder, &name))
        return -EINVAL;
    return add_point(t, folder, name,
                     SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER | (is_for_file ? SP_NOTIFY_CONTENTS : 0U),
                     is_for_file);
}

/* Watches the parent of `path` for its name. If the parent is missing: the nearest ancestor that
 * exists, and then downwards again, since directories may have been created meanwhile. */
static void add_ancestors(struct taking *t, const char *path, bool is_for_file)
{
    const size_t whole = strlen(path);
    size_t n = whole;
    int r = add_above(t, path, n, is_for_file);

    while ((r == -ENOENT || r == -ENOTDIR) && n > 1) {
        do
            n--;
        while (n > 1 && path[n] != '/');
        r = add_above(t, path, n, false);
    }
    while (r == 0 && n < whole) {
        do
            n++;
        while (n < whole && path[n] != '/');
        r = add_above(t, path, n, n == whole && is_for_file);
    }
}

/* ---- all places ---- */

/* Watches PLACE for `rules`, and PLACE/rules for its files. In a project links are not followed,
 * since they lead outside of it. */
static void add_folder(struct taking *t, const char *place, unsigned links)
{
    auto_buf struct sp_buf path = {0};

    if (!sp_buf_printf(&path, "%s/rules", place) || !sp_buf_add(&path, "", 1)) {
        t->error = -ENOMEM;
        return;
    }
    if (add_point(t, place, "rules", SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER | links, false) == 0)
        (void)add_point(t, path.data, NULL,
                        SP_NOTIFY_NAMES | SP_NOTIFY_CONTENTS | SP_NOTIFY_FOLDER | links, true);
}

static void add_project(struct taking *t, const char *root)
{
    static const char *const names[] = {".sallyport", ".codex"};
    const char *dir = strcmp(root, "/") == 0 ? "" : root;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        auto_buf struct sp_buf place = {0};

        if (!sp_buf_printf(&place, "%s/%s", dir, names[i]) || !sp_buf_add(&place, "", 1)) {
            t->error = -ENOMEM;
            return;
        }
        (void)add_point(t, root, names[i], SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER, false);
        add_folder(t, place.data, SP_NOTIFY_OWN_LINKS);
    }
}

static void add_all(struct taking *t, const struct sp_rules_places *places)
{
    if (places->system_dir != NULL) {
        add_ancestors(t, places->system_dir, false);
        (void)add_point(t, places->system_dir, "managed.rules",
                        SP_NOTIFY_NAMES | SP_NOTIFY_CONTENTS | SP_NOTIFY_FOLDER, true);
        add_folder(t, places->system_dir, 0);
    }
    if (places->user_dir != NULL && !places->ignores_user_and_project) {
        add_ancestors(t, places->user_dir, false);
        add_folder(t, places->user_dir, 0);
    }
    for (size_t i = 0; places->files != NULL && places->files[i] != NULL; i++) {
        add_ancestors(t, places->files[i], true);
        (void)add_point(t, places->files[i], NULL, SP_NOTIFY_CONTENTS, true); /* a link's target */
    }
    for (const char *const *i = places->projects;
         !places->ignores_user_and_project && i != NULL && *i != NULL; i++)
        add_project(t, *i);
}

static bool has_id(const struct sp_rules_points *p, int id)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->items[i].id == id)
            return true;
    return false;
}

int sp_rules_points_renew(struct sp_rules_points *p, int fd, const struct sp_rules_places *places)
{
    struct sp_rules_points before = *p;
    struct taking t = {.points = p, .fd = fd};

    *p = (struct sp_rules_points){0};
    add_all(&t, places);
    for (uint32_t i = 0; i < before.count; i++)
        if (!has_id(p, before.items[i].id))
            sp_notify_remove(fd, before.items[i].id);
    sp_rules_points_done(&before);
    return t.error;
}

/* ---- notices ---- */

static bool concerns(const struct sp_rules_point *point, const struct sp_file_notice *n)
{
    if (n->name == NULL)
        return true;
    if (point->name == NULL)
        return sp_rules_is_file_name(n->name);
    if (strcmp(point->name, n->name) != 0)
        return false;
    /* If the directory was missing and still is, a sandbox placeholder came or went. */
    return point->is_for_file || point->was_there || is_there(point->path, point->name);
}

uint32_t sp_rules_points_find(const struct sp_rules_points *p, const struct sp_file_notice *n,
                              uint32_t from)
{
    for (uint32_t i = from; i < p->count; i++)
        if (p->items[i].id == n->id && concerns(&p->items[i], n))
            return i;
    return UINT32_MAX;
}
