/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look: what is there: one thing's facts, a directory's names, and a path without links.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/file/file_priv.h"

#define MAX_COUNTED 10000000 /* names of one directory: it may have no end */
#define WANTED      (STATX_TYPE | STATX_MODE | STATX_SIZE | STATX_MTIME | STATX_BTIME)

static int64_t to_ms(const struct statx_timestamp *t)
{
    return t->tv_sec * 1000 + t->tv_nsec / 1000000;
}

static void tell(const struct statx *sx, bool is_link, struct sp_file_stat *ret)
{
    *ret = (struct sp_file_stat){
        .is_directory = S_ISDIR(sx->stx_mode),
        .is_file = S_ISREG(sx->stx_mode),
        .is_link = is_link,
        .size = sx->stx_size,
        .created_ms = (sx->stx_mask & STATX_BTIME) != 0 ? to_ms(&sx->stx_btime) : 0,
        .modified_ms = (sx->stx_mask & STATX_MTIME) != 0 ? to_ms(&sx->stx_mtime) : 0,
    };
}

static bool is_empty(int dir, const char *path)
{
    const int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *d;

    if (names == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    while ((d = readdir(names)) != NULL && sp_is_dots(d->d_name))
        continue;
    (void)closedir(names);
    return d == NULL;
}

bool sp_look_is_placeholder(int dir, const char *path, const char *name)
{
    struct stat st;

    if (name[0] != '.' || fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return false;
    /* As the host has it, and as a sandbox sees what is mounted over it. */
    return ((st.st_mode & 07777) == 0500 || (st.st_mode & 07777) == 0555) && is_empty(dir, path);
}

static const char *last_of(const char *path)
{
    const char *end = path + strlen(path);

    while (end > path && end[-1] == '/')
        end--;
    while (end > path && end[-1] != '/')
        end--;
    return end;
}

static int stat_without_links(const char *path, struct sp_file_answer *a)
{
    auto_close int dir = -1;
    struct statx sx;
    const char *name;
    const int r = sp_place_parent(AT_FDCWD, path, &dir, &name);

    if (r < 0)
        return r;
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, WANTED, &sx) < 0)
        return -errno;
    if (S_ISLNK(sx.stx_mode))
        a->refusal = SP_FILE_HAS_LINK;
    else
        tell(&sx, false, &a->stat);
    return 0;
}

int sp_look_stat(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct statx sx;

    if (ask->hides_placeholders && sp_look_is_placeholder(AT_FDCWD, ask->path, last_of(ask->path)))
        return -ENOENT;
    if (!ask->follows)
        return stat_without_links(ask->path, a);
    if (statx(AT_FDCWD, ask->path, AT_SYMLINK_NOFOLLOW, WANTED, &sx) < 0)
        return -errno;
    const bool is_link = S_ISLNK(sx.stx_mode);
    if (is_link && statx(AT_FDCWD, ask->path, 0, WANTED, &sx) < 0)
        return -errno;
    tell(&sx, is_link, &a->stat);
    return 0;
}

int sp_look_canonical(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct sp_room room = {.answer = a};
    char path[PATH_MAX];

    if (realpath(ask->path, path) == NULL)
        return -errno;
    const int r = sp_room_add(&room, path, strlen(path));
    return r < 0 ? r : sp_room_done(&room);
}

int sp_look_add_entry(struct sp_room *r, enum sp_file_entry_kind kind, int err, const char *name,
                      size_t name_len)
{
    const struct sp_file_entry entry = {
        .name_len = (uint32_t)name_len, .kind = (uint16_t)kind, .err = (int16_t)err};
    const int failed = sp_room_add(r, &entry, sizeof entry);

    return failed < 0 ? failed : sp_room_add(r, name, name_len);
}

/* What a name is, links followed; false: a link to nothing, or gone. */
static bool kind_of(int dir, const struct dirent *d, enum sp_file_entry_kind *ret)
{
    struct stat st;

    *ret = SP_FILE_ENTRY_OTHER;
    if (d->d_type == DT_REG || d->d_type == DT_DIR) {
        *ret = d->d_type == DT_REG ? SP_FILE_ENTRY_FILE : SP_FILE_ENTRY_DIRECTORY;
        return true;
    }
    if (d->d_type != DT_LNK && d->d_type != DT_UNKNOWN)
        return true;
    if (fstatat(dir, d->d_name, &st, 0) < 0)
        return errno != ENOENT && errno != ELOOP && errno != ENOTDIR;
    if (S_ISREG(st.st_mode))
        *ret = SP_FILE_ENTRY_FILE;
    else if (S_ISDIR(st.st_mode))
        *ret = SP_FILE_ENTRY_DIRECTORY;
    return true;
}

static int list(const struct sp_file_ask *ask, DIR *dir, struct sp_room *room, uint64_t *ret_count)
{
    enum sp_file_entry_kind kind;
    const struct dirent *d;

    while ((errno = 0, d = readdir(dir)) != NULL && *ret_count < MAX_COUNTED) {
        if (sp_is_dots(d->d_name) || !kind_of(dirfd(dir), d, &kind) ||
            (ask->hides_placeholders && kind == SP_FILE_ENTRY_DIRECTORY &&
             sp_look_is_placeholder(dirfd(dir), d->d_name, d->d_name)) ||
            ++*ret_count > SP_FILE_MAX_ENTRIES) /* the rest is only counted */
            continue;
        const int r = sp_look_add_entry(room, kind, 0, d->d_name, strlen(d->d_name));
        if (r < 0)
            return r;
    }
    return -errno;
}

int sp_look_list(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct sp_room room = {.answer = a};
    uint64_t count = 0;
    DIR *dir = opendir(ask->path);

    if (dir == NULL)
        return -errno;
    int r = list(ask, dir, &room, &count);
    (void)closedir(dir);
    if (r == 0)
        r = sp_room_done(&room);
    if (r == 0 && count > SP_FILE_MAX_ENTRIES) {
        a->refusal = SP_FILE_TOO_MANY;
        a->number = count;
    }
    return r;
}
