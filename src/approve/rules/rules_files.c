/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_files: rules from files: directories from the system's to the project's, then the managed
 * rules.
 *
 * At the start a file that cannot be read or that others may write is an error, and so is a file
 * of --rules that does not parse; any other that does not parse is a warning.
 * When rules are loaded again, all are warnings, and the last good version of the file stays: a
 * running program goes on, but the set is incomplete, so nothing runs unconfined.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/rules/rules_priv.h"
#include "base/auto.h"
#include "base/io.h"

#define MAX_FOLDERS 256 /* directories remembered by their inode */

/* ---- one file ---- */

/* Sets `file`; a relative path is relative to the working directory. false: no memory, or that
 * directory is gone. */
static bool set_file(struct sp_rules_part *p, const char *path)
{
    auto_free char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);

    if (path[0] != '/' && here == NULL)
        return false;
    if (asprintf(&p->file, "%s%s%s", here == NULL ? "" : here, here == NULL ? "" : "/", path) < 0)
        p->file = NULL;
    return p->file != NULL;
}

/* The parser reports a file that is too large. */
static int accept_large(int sys)
{
    return sys == EFBIG ? 0 : sys;
}

static int fail_read(const char *path, int sys, struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, sys, "failed to read rules file %s", path);
}

int sp_rules_add_file(struct sp_rules_maker *m, const char *path,
                      void (*tell)(void *user, const char *text), void *user, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};
    /* Following links is what the user asked for. */
    const int sys = accept_large(sp_read_file(path, SP_RULES_MAX_BYTES, &text));
    int r = sys != 0 ? fail_read(path, sys, e)
                     : sp_rules_add_text(m, path, sp_buf_str(&text), tell, user, e);

    if (r == 0 && !set_file(m->parts.items[m->parts.count - 1], path))
        r = fail_read(path, ENOMEM, e);
    return r;
}

/* ---- loading: what to do about errors ---- */

struct identity {
    dev_t dev;
    ino_t ino;
};

struct loading {
    struct sp_rules_maker *maker;
    const struct sp_rules *before;
    void (*warn)(void *user, const char *text);
    void *user;
    struct sp_err *e;
    struct identity seen[MAX_FOLDERS]; /* directories that were read: none is read twice */
    size_t seen_count;
};

static void warn(struct loading *l, const char *text)
{
    if (l->warn != NULL)
        l->warn(l->user, text);
}

/* Keeps the last good version of a file, or of all files of a directory, if there is one; the set
 * is incomplete either way. */
static int keep_previous(struct loading *l, const char *path, bool is_folder, bool is_managed)
{
    const size_t n = strlen(path);

    l->maker->is_incomplete = true;
    for (uint32_t i = 0; l->before != NULL && i < l->before->parts.count; i++) {
        struct sp_rules_part *p = l->before->parts.items[i];
        const bool is_here = is_folder ? strncmp(p->name, path, n) == 0 && p->name[n] == '/' &&
                                             strchr(p->name + n + 1, '/') == NULL
                                       : strcmp(p->name, path) == 0;

        if (is_here && !p->is_amendment && p->is_managed == is_managed &&
            !sp_rules_parts_add(&l->maker->parts, p))
            return fail_read(path, ENOMEM, l->e);
    }
    return 0;
}

/* At the first load, an error ends it. Later the last good version stays, with a warning; but
 * running out of memory or descriptors passes, and is reported to the caller. */
static int refuse(struct loading *l, const char *path, bool is_folder, bool is_managed,
                  const struct sp_err *why)
{
    char text[sizeof why->msg + 128];

    if (l->before == NULL || why->sys == ENOMEM || why->sys == EMFILE || why->sys == ENFILE) {
        if (l->e != NULL)
            *l->e = *why;
        return -(int)why->code;
    }
    warn(l, sp_error_text(why, text, sizeof text));
    return keep_previous(l, path, is_folder, is_managed);
}

static int fail_folder(struct sp_err *e, const char *path, int sys)
{
    return sp_fail(e, SP_E_SYSTEM, sys, "failed to read rules files from %s", path);
}

static int refuse_read(struct loading *l, const char *path, bool is_managed, int sys)
{
    struct sp_err why = {0};

    (void)fail_read(path, sys, &why);
    return refuse(l, path, false, is_managed, &why);
}

static int refuse_folder(struct loading *l, const char *path, int sys)
{
    struct sp_err why = {0};

    (void)fail_folder(&why, path, sys);
    return refuse(l, path, true, false, &why);
}

/* is_named: by --rules. */
static int load_text(struct loading *l, const char *path, struct sp_str text, bool is_managed,
                     bool is_named)
{
    const struct sp_rules_parts *parts = &l->maker->parts;
    struct sp_err fault = {0};
    const int r = sp_rules_add_text(l->maker, path, text, NULL, NULL, &fault);

    if (r < 0 && fault.code == SP_E_INVALID && (!is_named || l->before != NULL)) {
        warn(l, fault.msg);
        return keep_previous(l, path, false, is_managed);
    }
    if (r < 0) {
        if (l->e != NULL)
            *l->e = fault;
        return r;
    }
    parts->items[parts->count - 1]->is_managed = is_managed;
    return set_file(parts->items[parts->count - 1], path) ? 0 : fail_read(path, ENOMEM, l->e);
}

static int is_rules_entry(const struct dirent *d)
{
    return sp_rules_is_file_name(d->d_name);
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* One entry of a directory. Links are skipped with a warning, anything else that is not a regular
 * file silently. */
static int load_entry(struct loading *l, int dir, const char *path, const char *name)
{
    auto_close int fd =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    auto_buf struct sp_buf text = {0};
    struct sp_err why = {0};
    struct stat st;

    if (fd < 0 && errno == ELOOP) {
        if (sp_buf_printf(&text, "%s: a symbolic link, skipped", path) && sp_buf_add(&text, "", 1))
            warn(l, text.data);
        return 0;
    }
    if (fd < 0 && (errno == ENOENT || errno == ENXIO))
        return 0; /* deleted meanwhile; a socket */
    if (fd < 0 || fstat(fd, &st) < 0)
        return refuse_read(l, path, false, errno);
    if (!S_ISREG(st.st_mode))
        return 0;
    if (sp_check_trusted(&st, path, &why) < 0)
        return refuse(l, path, false, false, &why);
    const int sys = accept_large(sp_read_all(fd, SP_RULES_MAX_BYTES, &text));
    return sys != 0 ? refuse_read(l, path, false, sys)
                    : load_text(l, path, sp_buf_str(&text), false, false);
}

/* A file of --rules. What it may be reached through is the caller's choice. */
static int load_named(struct loading *l, const char *path)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    auto_buf struct sp_buf text = {0};
    struct sp_err why = {0};
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return refuse_read(l, path, false, errno);
    if (!S_ISREG(st.st_mode))
        return refuse_read(l, path, false, S_ISDIR(st.st_mode) ? EISDIR : EINVAL);
    if (sp_check_trusted(&st, path, &why) < 0)
        return refuse(l, path, false, false, &why);
    const int sys = accept_large(sp_read_all(fd, SP_RULES_MAX_BYTES, &text));
    return sys != 0 ? refuse_read(l, path, false, sys)
                    : load_text(l, path, sp_buf_str(&text), false, true);
}

/* Refuses a directory in which others may replace files, or that they may replace itself. */
static int check_folder(int dir, const char *path, struct sp_err *e)
{
    char place[PATH_MAX];
    struct stat st;

    if (fstat(dir, &st) < 0)
        return fail_folder(e, path, errno);
    const int r = sp_check_trusted(&st, path, e);
    if (r < 0)
        return r;
    if (fstatat(dir, "..", &st, 0) < 0)
        return fail_folder(e, path, errno);
    if ((st.st_mode & S_ISVTX) != 0) /* sticky: entries of the user stay */
        return 0;
    (void)snprintf(place, sizeof place, "%.*s", (int)(strrchr(path, '/') - path), path);
    return sp_check_trusted(&st, place, e);
}

/* PLACE/rules; a missing directory is no error. */
static int load_folder(struct loading *l, const char *place, const char *sub)
{
    auto_buf struct sp_buf path = {0};
    struct dirent **names = NULL;
    struct sp_err why = {0};
    struct stat st;

    if (!sp_buf_printf(&path, "%s%s/rules", strcmp(place, "/") == 0 ? "" : place, sub) ||
        !sp_buf_add(&path, "", 1))
        return fail_folder(l->e, place, ENOMEM);
    auto_close int dir = open(path.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    if (dir < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (dir < 0 || fstat(dir, &st) < 0)
        return refuse_folder(l, path.data, errno);
    for (size_t i = 0; i < l->seen_count; i++)
        if (l->seen[i].dev == st.st_dev && l->seen[i].ino == st.st_ino)
            return 0; /* read before, e.g. as the place of another project */
    if (check_folder(dir, path.data, &why) < 0)
        return refuse(l, path.data, true, false, &why);
    if (l->seen_count < sizeof l->seen / sizeof *l->seen)
        l->seen[l->seen_count++] = (struct identity){st.st_dev, st.st_ino};
    const int count = scandirat(dir, ".", &names, is_rules_entry, by_bytes);
    if (count < 0)
        return refuse_folder(l, path.data, errno);
    auto_buf struct sp_buf full = {0};
    int r = 0;
    for (int i = 0; i < count; i++) {
        full.len = 0;
        if (r == 0 && (!sp_buf_printf(&full, "%s/%s", path.data, names[i]->d_name) ||
                       !sp_buf_add(&full, "", 1)))
            r = fail_folder(l->e, path.data, ENOMEM);
        if (r == 0)
            r = load_entry(l, dir, full.data, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return r;
}

/* ---- all places ---- */

/* From the least to the most important: the last rule of a host wins, managed rules are a layer. */
static int load_all(struct loading *l, const struct sp_rules_places *places)
{
    int r = places->system_dir == NULL ? 0 : load_folder(l, places->system_dir, "");

    if (r == 0 && places->user_dir != NULL && !places->ignores_user_and_project)
        r = load_folder(l, places->user_dir, "");
    for (const char *const *i = places->files; r == 0 && i != NULL && *i != NULL; i++)
        r = load_named(l, *i);
    for (const char *const *i = places->projects;
         r == 0 && !places->ignores_user_and_project && i != NULL && *i != NULL; i++) {
        r = load_folder(l, *i, "/.sallyport");
        if (r == 0)
            r = load_folder(l, *i, "/.codex");
    }
    if (r < 0 || places->system_dir == NULL)
        return r;

    /* Managed rules form a layer of their own. A file that another user could write is not the
     * administrator's, and going on without it would lift what it forbids: an error either way. */
    auto_buf struct sp_buf path = {0};
    struct sp_err why = {0};
    struct stat st;

    if (!sp_buf_printf(&path, "%s/managed.rules", places->system_dir) || !sp_buf_add(&path, "", 1))
        return fail_folder(l->e, places->system_dir, ENOMEM);
    auto_close int fd = open(path.data, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return refuse_read(l, path.data, true, errno);
    if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        (void)sp_fail(&why, SP_E_INVALID, 0,
                      "failed to read rules file %s: it must be a file that belongs to root and "
                      "that nobody else may write",
                      path.data);
        return refuse(l, path.data, false, true, &why);
    }
    auto_buf struct sp_buf text = {0};
    const int sys = accept_large(sp_read_all(fd, SP_RULES_MAX_BYTES, &text));
    return sys != 0 ? refuse_read(l, path.data, true, sys)
                    : load_text(l, path.data, sp_buf_str(&text), true, false);
}

int sp_rules_load(const struct sp_rules_places *places, struct sp_rules *before,
                  void (*warn_of)(void *user, const char *text), void *user, struct sp_rules **ret,
                  struct sp_err *e)
{
    struct loading l = {
        .maker = sp_rules_maker_new(), .before = before, .warn = warn_of, .user = user, .e = e};
    int r = l.maker == NULL ? sp_fail(e, SP_E_SYSTEM, ENOMEM, "load rules") : load_all(&l, places);

    if (r == 0) {
        struct sp_rules *made = sp_rules_make(l.maker);

        if (made == NULL)
            r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "load rules");
        else
            *ret = made;
    }
    sp_rules_maker_free(l.maker);
    return r;
}
