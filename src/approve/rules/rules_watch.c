/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_watch: inotify watches on everything that rules are read from, and the loads that follow.
 *
 * For each directory PLACE/rules: the directory itself for its files, PLACE for the name `rules`,
 * and the parent of PLACE for its name; if that is missing, the nearest ancestor that exists. For a
 * file that was named: the file, and its directory.
 */
#include "approve/rules/rules_watch.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "approve/rules/rules_priv.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/grow.h"
#include "os/notify.h"

#define WARNINGS_MAX 64   /* warnings that are remembered; of the rest only the number is told */
#define SETTLE_MS    50   /* from the first change of a burst to the load */
#define WRITE_MS     1000 /* for the creator of a file to write it */
#define REST_FACTOR  10   /* at most a tenth of the time is spent loading */
#define RETRY_MS     1000 /* out of memory or descriptors; doubles up to RETRY_MAX_MS */
#define RETRY_MAX_MS 60000
#define NEVER        (UINT64_MAX / 2)

struct point {
    int id;
    char *path;       /* the watched directory or file */
    char *name;       /* the entry that matters; NULL: all *.rules, or path is a file */
    bool was_there;   /* the entry existed when the watch was set */
    bool is_for_file; /* the entry is a rule file, which is read once it is written */
};

struct points {
    struct point *items;
    uint32_t count, cap;
    bool is_cut; /* SP_RULES_WATCH_MAX was reached */
};

struct texts {
    char *items[WARNINGS_MAX];
    uint32_t count, missing; /* missing: had no room */
};

/* Each warning is given once: again only if its file changed, or after a load without it. */
struct warnings {
    void (*warn)(void *user, const char *text); /* NULL: drop them */
    void *user;
    struct texts before, now; /* of the previous load, and of the current one */
    struct texts touched;     /* files that changed since the previous load */
};

struct sp_rules_watch {
    struct sp_loop *loop;
    struct sp_rules_places places; /* in the arena */
    struct sp_arena arena;
    bool (*changed)(void *user, struct sp_rules *rules, struct sp_str fingerprint);
    void *user;

    struct sp_rules *rules;
    struct sp_buf fingerprint;
    struct warnings warnings;

    int fd; /* inotify; -1: nothing is watched */
    struct sp_watch in;
    struct points points;
    bool has_told_cut;

    struct sp_timer timer; /* always armed, at NEVER if idle, so that re-arming cannot fail */
    uint64_t rested_at;    /* no load before this time */
    uint64_t retry_ms;     /* 0: the last load succeeded */
};

/* ---- watch points ---- */

struct taking {
    struct points *points;
    int fd;
    int error; /* -errno: no watches or no memory left */
};

static void point_done(struct point *p)
{
    free(p->path);
    free(p->name);
    *p = (struct point){0};
}

static void points_done(struct points *p)
{
    while (p->count > 0)
        point_done(&p->items[--p->count]);
    free(p->items);
    *p = (struct points){0};
}

/* Whether the entry exists, and is no empty directory with mode 0555: the placeholder that a
 * sandbox mounts where a protected name is missing, and which comes and goes with commands. */
static bool is_there(const char *folder, const char *name)
{
    auto_free char *path = NULL;
    const struct dirent *entry = NULL;
    struct stat st;

    if (asprintf(&path, "%s/%s", folder, name) < 0) {
        path = NULL;
        return true;
    }
    if (lstat(path, &st) < 0)
        return false;
    if (!S_ISDIR(st.st_mode) || (st.st_mode & ALLPERMS) != 0555)
        return true;
    DIR *d = opendir(path);
    if (d == NULL)
        return true;
    do
        entry = readdir(d);
    while (entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    (void)closedir(d);
    return entry != NULL;
}

/* Watches `path`, for the entry `name`. 0, or -errno: the path is missing or cannot be read, which
 * is no error of the whole (t->error is). */
static int add_point(struct taking *t, const char *path, const char *name, unsigned flags,
                     bool is_for_file)
{
    struct points *p = t->points;

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
    struct point point = {
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

/* Watches the parent of the first n bytes of the path, "/a/b", for the name in it. -EINVAL: the
 * path has no parent. */
static int add_above(struct taking *t, const char *path, size_t n, bool is_for_file)
{
    auto_free char *copy = strndup(path, n);
    const char *folder = ".";
    const char *name = copy;

    if (copy == NULL)
        return t->error = -ENOMEM;
    char *slash = strrchr(copy, '/');
    while (slash != NULL && slash > copy && slash[1] == 0) { /* "/a/" */
        *slash = 0;
        slash = strrchr(copy, '/');
    }
    if (slash != NULL) {
        *slash = 0;
        folder = slash == copy ? "/" : copy;
        name = slash + 1;
    }
    if (name[0] == 0 || (slash == NULL && strcmp(name, ".") == 0))
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

static void add_all(struct taking *t, const struct sp_rules_places *places)
{
    static const char *const names[] = {".sallyport", ".codex"}; /* in a project */

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
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            auto_buf struct sp_buf place = {0};

            if (!sp_buf_printf(&place, "%s/%s", strcmp(*i, "/") == 0 ? "" : *i, names[k]) ||
                !sp_buf_add(&place, "", 1)) {
                t->error = -ENOMEM;
                return;
            }
            (void)add_point(t, *i, names[k], SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER, false);
            add_folder(t, place.data, SP_NOTIFY_OWN_LINKS);
        }
}

/* Sets all watches again and removes those that are no longer needed. Missing paths are no error.
 * 0, or -errno: the kernel or memory is exhausted, and changes may be missed. */
static int renew_watches(struct points *p, int fd, const struct sp_rules_places *places)
{
    struct points before = *p;
    struct taking t = {.points = p, .fd = fd};

    *p = (struct points){0};
    add_all(&t, places);
    for (uint32_t i = 0; i < before.count; i++) {
        uint32_t k = 0;

        while (k < p->count && p->items[k].id != before.items[i].id)
            k++;
        if (k == p->count)
            sp_notify_remove(fd, before.items[i].id);
    }
    points_done(&before);
    return t.error;
}

/* ---- notices ---- */

/* Whether the notice concerns this point. The placeholders of sandboxes, which come and go all the
 * time, are ignored. */
static bool concerns(const struct point *point, const struct sp_file_notice *n)
{
    if (point->id != n->id)
        return false;
    if (n->name == NULL)
        return true;
    if (point->name == NULL)
        return sp_rules_is_file_name(n->name);
    if (strcmp(point->name, n->name) != 0)
        return false;
    /* If the directory was missing and still is, a sandbox placeholder came or went. */
    return point->is_for_file || point->was_there || is_there(point->path, point->name);
}

/* ---- warnings ---- */

static void texts_clear(struct texts *l)
{
    while (l->count > 0)
        free(l->items[--l->count]);
    l->missing = 0;
}

/* Takes over the text, from malloc or NULL. */
static void texts_add(struct texts *l, char *text)
{
    if (text != NULL && l->count < WARNINGS_MAX)
        l->items[l->count++] = text;
    else {
        l->missing++;
        free(text);
    }
}

static bool texts_has(const struct texts *l, const char *text)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i], text) == 0)
            return true;
    return false;
}

/* For sp_rules_load: a warning of the current load. */
static void add_warning(void *told, const char *text)
{
    struct warnings *t = told;

    texts_add(&t->now, strdup(text));
}

static void warn_now(struct warnings *t, const char *text)
{
    if (t->warn != NULL)
        t->warn(t->user, text);
}

/* The load is done: report what is new in it, and again what names a file that changed:
 * "...PATH:...". */
static void report_warnings(struct warnings *t)
{
    char more[80];

    for (uint32_t i = 0; i < t->now.count; i++) {
        const char *text = t->now.items[i];
        bool is_new = !texts_has(&t->before, text);

        for (uint32_t k = 0; !is_new && k < t->touched.count; k++) {
            const char *found = strstr(text, t->touched.items[k]);

            is_new = found != NULL && found[strlen(t->touched.items[k])] == ':';
        }
        if (is_new)
            warn_now(t, text);
    }
    if (t->now.missing != t->before.missing && t->now.missing > 0) {
        (void)snprintf(more, sizeof more, "rules: %u warnings more", t->now.missing);
        warn_now(t, more);
    }
    texts_clear(&t->before);
    texts_clear(&t->touched);
    t->before = t->now;
    t->now = (struct texts){0};
}

/* ---- inotify ---- */

static void stop_watching(struct sp_rules_watch *w)
{
    if (w->fd < 0)
        return;
    sp_loop_unwatch(w->loop, &w->in);
    (void)close(w->fd);
    w->fd = -1;
    points_done(&w->points);
}

/* Warns that files are not watched any more. */
static void complain(struct sp_rules_watch *w, int sys)
{
    const char *way_out = "";
    char text[320];

    if (sys == ENOSPC)
        way_out = "; raise fs.inotify.max_user_watches (sysctl)";
    else if (sys == EMFILE)
        way_out = "; raise fs.inotify.max_user_instances (sysctl) or the limit of open files";
    (void)snprintf(text, sizeof text,
                   "changes of rules files are not noticed, they are read once only: %s%s",
                   strerrordesc_np(sys), way_out);
    warn_now(&w->warnings, text);
}

/* ---- loading ---- */

/* Loads into w->rules. */
static int load(struct sp_rules_watch *w, struct sp_err *e)
{
    auto_buf struct sp_buf fingerprint = {0};
    struct sp_rules *rules = NULL;

    /* Watches first, so that changes during the load are noticed. */
    const int watched = w->fd < 0 ? 0 : renew_watches(&w->points, w->fd, &w->places);

    if (watched < 0) {
        stop_watching(w);
        complain(w, -watched);
    }
    if (w->points.is_cut && !w->has_told_cut) {
        char text[160];

        w->has_told_cut = true;
        (void)snprintf(text, sizeof text,
                       "rules are in more than %d places: changes in the last of them, those of "
                       "the project, are not noticed",
                       SP_RULES_WATCH_MAX);
        warn_now(&w->warnings, text);
    }
    texts_clear(&w->warnings.now);
    const int r = sp_rules_load(&w->places, w->rules, add_warning, &w->warnings, &rules, e);
    if (r < 0)
        return r;
    if (!sp_rules_add_fingerprint(&fingerprint, rules)) {
        sp_rules_unref(rules);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read rules again");
    }
    sp_rules_unref(w->rules);
    w->rules = rules;
    const struct sp_buf before = w->fingerprint;
    w->fingerprint = fingerprint;
    fingerprint = before; /* freed at the end of the scope */
    return 0;
}

/* Loads in in_ms, or earlier if a load is due before. */
static void arm(struct sp_rules_watch *w, uint64_t in_ms)
{
    uint64_t due = sp_loop_now(w->loop) + in_ms;

    if (due < w->rested_at)
        due = w->rested_at;
    if (due < w->timer.due_ms)
        (void)sp_loop_timer(w->loop, &w->timer, due, w->timer.fn);
}

static void read_again(struct sp_timer *t)
{
    struct sp_rules_watch *w = SP_CONTAINER(t, struct sp_rules_watch, timer);
    const uint64_t began = sp_clock_ms();
    struct sp_err e = {0};

    (void)sp_loop_timer(w->loop, t, NEVER, read_again); /* cannot fail: the timer just fired */
    const bool is_read = load(w, &e) == 0;
    if (!is_read) {
        /* There may be rules that we could not read, so the present set counts as incomplete.
         * Without memory for that, the retry is soon. */
        struct sp_rules *doubted = sp_rules_renew(w->rules, NULL, true, NULL);
        char text[sizeof e.msg + 128];

        add_warning(&w->warnings, sp_error_text(&e, text, sizeof text));
        if (doubted != NULL) {
            sp_rules_unref(w->rules);
            w->rules = doubted;
        }
    }
    const uint64_t ended = sp_clock_ms();
    const uint64_t rest = (ended - began) * REST_FACTOR;
    w->rested_at = ended + (rest < RETRY_MAX_MS ? rest : RETRY_MAX_MS);
    const bool is_taken = w->changed(w->user, w->rules, sp_buf_str(&w->fingerprint));
    report_warnings(&w->warnings);
    if (is_read && is_taken) {
        w->retry_ms = 0;
        return;
    }
    w->retry_ms = w->retry_ms == 0 ? RETRY_MS : w->retry_ms * 2;
    if (w->retry_ms > RETRY_MAX_MS)
        w->retry_ms = RETRY_MAX_MS;
    arm(w, w->retry_ms);
}

/* ---- notices ---- */

/* When to load after this notice. A new regular file is probably still being written, and its close
 * is another notice; in case that was already seen, load after WRITE_MS unless it is empty. A link
 * or a renamed file is complete. */
static uint64_t when_to_read(const struct point *point, const struct sp_file_notice *n)
{
    auto_buf struct sp_buf path = {0};
    struct stat st;

    if (!n->is_new || !point->is_for_file)
        return SETTLE_MS;
    if (!sp_buf_printf(&path, "%s/%s", point->path, n->name) || !sp_buf_add(&path, "", 1))
        return WRITE_MS;
    if (lstat(path.data, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1)
        return st.st_size == 0 ? NEVER : WRITE_MS;
    return SETTLE_MS;
}

/* One notice may concern several watch points: a directory and the file in it. */
static void on_notice(void *user, const struct sp_file_notice *n)
{
    struct sp_rules_watch *w = user;
    uint64_t in_ms = n->id < 0 ? SETTLE_MS : NEVER;

    for (uint32_t i = 0; i < w->points.count; i++) {
        const struct point *point = &w->points.items[i];

        if (!concerns(point, n))
            continue;
        const uint64_t when = when_to_read(point, n);
        if (point->is_for_file) {
            char *file = NULL;

            if (asprintf(&file, n->name == NULL ? "%s" : "%s/%s", point->path, n->name) < 0)
                file = NULL;
            if (file != NULL && texts_has(&w->warnings.touched, file))
                free(file);
            else
                texts_add(&w->warnings.touched, file);
        }
        if (when < in_ms)
            in_ms = when;
    }
    if (in_ms != NEVER)
        arm(w, in_ms);
}

static void on_readable(struct sp_watch *in, uint32_t events)
{
    struct sp_rules_watch *w = SP_CONTAINER(in, struct sp_rules_watch, in);
    const int r = sp_notify_read(w->fd, on_notice, w);

    (void)events;
    if (r < 0) {
        stop_watching(w);
        complain(w, -r);
    }
}

/* ---- begin and end ---- */

int sp_rules_watch_new(const struct sp_rules_watch_options *o, struct sp_rules_watch **ret,
                       struct sp_rules **ret_rules, struct sp_str *ret_fingerprint,
                       struct sp_err *e)
{
    struct sp_rules_watch *w = calloc(1, sizeof *w);
    int r = 0;

    if (w == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "watch rules");
    w->loop = o->loop;
    w->changed = o->changed;
    w->user = o->user;
    w->warnings = (struct warnings){.warn = o->warn, .user = o->user};
    w->places = *o->places;
    w->fd = -1;
    if (!sp_arena_text(&w->arena, o->places->system_dir, &w->places.system_dir) ||
        !sp_arena_text(&w->arena, o->places->user_dir, &w->places.user_dir) ||
        !sp_arena_list(&w->arena, o->places->projects, &w->places.projects) ||
        !sp_arena_list(&w->arena, o->places->files, &w->places.files) ||
        !sp_loop_timer(o->loop, &w->timer, NEVER, read_again))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "watch rules");
    if (r == 0) {
        struct sp_err why = {0};
        const int fd = sp_notify_open();

        if (fd < 0)
            complain(w, -fd);
        else if (sp_loop_watch(w->loop, &w->in, fd, EPOLLIN, on_readable, &why) == 0)
            w->fd = fd;
        else {
            (void)close(fd);
            complain(w, why.sys);
        }
        r = load(w, e);
    }
    if (r < 0) {
        sp_rules_watch_free(w);
        return r;
    }
    report_warnings(&w->warnings);
    *ret = w;
    *ret_rules = w->rules;
    *ret_fingerprint = sp_buf_str(&w->fingerprint);
    return 0;
}

void sp_rules_watch_free(struct sp_rules_watch *w)
{
    if (w == NULL)
        return;
    stop_watching(w);
    sp_loop_cancel(w->loop, &w->timer);
    sp_rules_unref(w->rules);
    sp_buf_done(&w->fingerprint);
    texts_clear(&w->warnings.before);
    texts_clear(&w->warnings.now);
    texts_clear(&w->warnings.touched);
    sp_arena_done(&w->arena);
    free(w);
}
