/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/rules/rules_posts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/rules/rules_watch.h"
#include "base/auto.h"
#include "base/buf.h"

/* ---- a post ---- */

struct taking {
    struct sp_rules_posts *posts;
    int fd;
    int error; /* no room, no memory: minus an errno */
};

static void forget(struct sp_rules_post *p)
{
    free(p->path);
    free(p->name);
    *p = (struct sp_rules_post){0};
}

void sp_rules_posts_done(struct sp_rules_posts *p)
{
    while (p->count > 0)
        forget(&p->items[--p->count]);
    free(p->items);
    *p = (struct sp_rules_posts){0};
}

static bool grow(struct sp_rules_posts *p)
{
    const uint32_t cap = p->cap == 0 ? 16 : p->cap * 2;
    struct sp_rules_post *more;

    if (p->count < p->cap)
        return true;
    more = reallocarray(p->items, cap, sizeof *more);
    if (more == NULL)
        return false;
    p->items = more;
    p->cap = cap;
    return true;
}

static bool is_there(const char *folder, const char *name)
{
    auto_free char *path = NULL;

    if (asprintf(&path, "%s/%s", folder, name) < 0)
        path = NULL;
    return path == NULL || !sp_rules_is_nothing(path);
}

static int keep(struct sp_rules_posts *p, struct sp_rules_post post, const char *path,
                const char *name)
{
    post.was_there = name != NULL && is_there(path, name);
    post.path = strdup(path);
    post.name = name == NULL ? NULL : strdup(name);
    if (post.path == NULL || (name != NULL && post.name == NULL) || !grow(p)) {
        forget(&post);
        return -ENOMEM;
    }
    p->items[p->count++] = post;
    return 0;
}

/* 0, or minus an errno that says that the thing is not there, or not ours to see. */
static int stand(struct taking *t, const char *path, const char *name, unsigned flags,
                 bool is_for_file)
{
    if (t->error < 0)
        return t->error;
    if (t->posts->count == SP_RULES_WATCH_MAX) {
        t->posts->is_cut = true;
        return -EACCES;
    }
    const int id = sp_notify_add(t->fd, path, flags | SP_NOTIFY_MODES);
    if (id == -ENOSPC || id == -ENOMEM) {
        t->error = id;
        return id;
    }
    if (id < 0)
        return id;
    t->error =
        keep(t->posts, (struct sp_rules_post){.id = id, .is_for_file = is_for_file}, path, name);
    return t->error;
}

/* ---- the way to a thing ---- */

/* Cuts the last name off: "/a/b" becomes "/a" and "b". false: nothing is above it. */
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

static int stand_above(struct taking *t, const char *path, size_t n, bool is_for_file)
{
    auto_free char *copy = strndup(path, n);
    const char *folder = NULL;
    const char *name = NULL;

    if (copy == NULL)
        return t->error = -ENOMEM;
    if (!split(copy, &folder, &name))
        return -EINVAL;
    return stand(t, folder, name,
                 SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER | (is_for_file ? SP_NOTIFY_CONTENTS : 0U),
                 is_for_file);
}

static bool is_missing(int r)
{
    return r == -ENOENT || r == -ENOTDIR;
}

/* Above `path`, where its name comes and goes. Nothing is there: above that, and so on; and then
 * down again, for it may have come meanwhile. */
static void follow(struct taking *t, const char *path, bool is_for_file)
{
    const size_t whole = strlen(path);
    size_t n = whole;
    int r = stand_above(t, path, n, is_for_file);

    while (is_missing(r) && n > 1) {
        do
            n--;
        while (n > 1 && path[n] != '/');
        r = stand_above(t, path, n, false);
    }
    while (r == 0 && n < whole) {
        do
            n++;
        while (n < whole && path[n] != '/');
        r = stand_above(t, path, n, n == whole && is_for_file);
    }
}

/* ---- the places ---- */

/* PLACE, PLACE/rules and its files. Of what a project has links are not followed: they lead to
 * what is not the project's. */
static void take_folder(struct taking *t, const char *place, unsigned links)
{
    auto_buf struct sp_buf path = {0};

    if (!sp_buf_printf(&path, "%s/rules", place) || !sp_buf_add(&path, "", 1)) {
        t->error = -ENOMEM;
        return;
    }
    if (stand(t, place, "rules", SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER | links, false) == 0)
        (void)stand(t, path.data, NULL,
                    SP_NOTIFY_NAMES | SP_NOTIFY_CONTENTS | SP_NOTIFY_FOLDER | links, true);
}

static void take_system(struct taking *t, const char *place)
{
    follow(t, place, false);
    (void)stand(t, place, "managed.rules", SP_NOTIFY_NAMES | SP_NOTIFY_CONTENTS | SP_NOTIFY_FOLDER,
                true);
    take_folder(t, place, 0);
}

static void take_file(struct taking *t, const char *path)
{
    follow(t, path, true);
    (void)stand(t, path, NULL, SP_NOTIFY_CONTENTS, true); /* where a link leads, too */
}

static void take_project(struct taking *t, const char *root)
{
    static const char *const names[] = {".sallyport", ".codex"};
    const char *dir = strcmp(root, "/") == 0 ? "" : root;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        auto_buf struct sp_buf place = {0};

        if (!sp_buf_printf(&place, "%s/%s", dir, names[i]) || !sp_buf_add(&place, "", 1)) {
            t->error = -ENOMEM;
            return;
        }
        (void)stand(t, root, names[i], SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER, false);
        take_folder(t, place.data, SP_NOTIFY_OWN_LINKS);
    }
}

static void take_all(struct taking *t, const struct sp_rules_places *places)
{
    if (places->system_dir != NULL)
        take_system(t, places->system_dir);
    if (places->user_dir != NULL && !places->ignores_user_and_project) {
        follow(t, places->user_dir, false);
        take_folder(t, places->user_dir, 0);
    }
    for (size_t i = 0; places->files != NULL && places->files[i] != NULL; i++)
        take_file(t, places->files[i]);
    for (const char *const *i = places->projects;
         !places->ignores_user_and_project && i != NULL && *i != NULL; i++)
        take_project(t, *i);
}

static bool has_id(const struct sp_rules_posts *p, int id)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->items[i].id == id)
            return true;
    return false;
}

int sp_rules_posts_take(struct sp_rules_posts *p, int fd, const struct sp_rules_places *places)
{
    struct sp_rules_posts before = *p;
    struct taking t = {.posts = p, .fd = fd};

    *p = (struct sp_rules_posts){0};
    take_all(&t, places);
    for (uint32_t i = 0; i < before.count; i++)
        if (!has_id(p, before.items[i].id))
            sp_notify_remove(fd, before.items[i].id);
    sp_rules_posts_done(&before);
    return t.error;
}

/* ---- what a notice is about ---- */

static bool is_rules_name(const char *name)
{
    const size_t n = strlen(name);

    return n > strlen(".rules") && strcmp(name + n - strlen(".rules"), ".rules") == 0;
}

/* There was nothing, and there is nothing: a placeholder came or went. */
static bool is_nothing(const struct sp_rules_post *post)
{
    return !post->is_for_file && !post->was_there && !is_there(post->path, post->name);
}

static bool concerns(const struct sp_rules_post *post, const struct sp_file_notice *n)
{
    if (n->name == NULL)
        return true;
    if (post->name == NULL)
        return is_rules_name(n->name);
    return strcmp(post->name, n->name) == 0 && !is_nothing(post);
}

uint32_t sp_rules_posts_find(const struct sp_rules_posts *p, const struct sp_file_notice *n,
                             uint32_t from)
{
    for (uint32_t i = from; i < p->count; i++)
        if (p->items[i].id == n->id && concerns(&p->items[i], n))
            return i;
    return UINT32_MAX;
}
