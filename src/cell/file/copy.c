/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: a file or a link; what is in a tree is in copy_tree.c. A file is never copied onto itself,
 * whatever its names.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/file/file_priv.h"

#define BUFFER (128U << 10)
#define PIECE  (1U << 30)

/* ---- what is in it ---- */

/* With a buffer: where the kernel does not copy by itself. */
static int pour_by_hand(int from, int to, uint64_t max)
{
    static char buffer[BUFFER]; /* one operation at a time */
    int r = 0;

    while (r == 0 && max > 0) {
        const ssize_t n = read(from, buffer, max < BUFFER ? (size_t)max : BUFFER);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        r = sp_room_write(to, buffer, (size_t)n);
        max -= (uint64_t)n;
    }
    return r;
}

/* At most so many bytes, from where both are. */
static int pour(int from, int to, uint64_t max)
{
    bool has_some = false;
    ssize_t n = 0;

    while (max > 0 &&
           (n = copy_file_range(from, NULL, to, NULL, max < PIECE ? (size_t)max : PIECE, 0)) > 0) {
        max -= (uint64_t)n;
        has_some = true;
    }
    if (max == 0 || (n == 0 && has_some))
        return 0;
    /* Other file systems, old kernels and filters: what was copied so far stays. A file of /proc
     * says 0 at once, although there is something in it. */
    if (n < 0 && (errno == ENOSPC || errno == EIO || errno == EDQUOT || errno == EFBIG))
        return -errno;
    return pour_by_hand(from, to, max);
}

/* Piece by piece, over the holes: `to` is empty, so that they are holes there as well. */
static int pour_pieces(int from, int to)
{
    off_t data = 0;
    off_t hole = 0;
    int r = 0;

    while (r == 0 && (data = lseek(from, hole, SEEK_DATA)) >= 0) {
        hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0 || lseek(from, data, SEEK_SET) < 0 || lseek(to, data, SEEK_SET) < 0)
            return -errno;
        if (hole == data) /* cut meanwhile */
            break;
        r = pour(from, to, (uint64_t)(hole - data));
    }
    if (r == 0 && data < 0 && errno != ENXIO)
        return -errno;
    const off_t end = lseek(from, 0, SEEK_END);
    return r < 0 ? r : end < 0 || ftruncate(to, end) < 0 ? -errno : 0;
}

static bool has_holes(const struct stat *st)
{
    return (uint64_t)st->st_blocks * 512 < (uint64_t)st->st_size;
}

/* ---- one thing ---- */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int open_target(int dir, const char *name, bool follows, mode_t mode)
{
    const int flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

    if (follows)
        return sp_place_open_to_write(name, flags, mode);
    const int fd = openat(dir, name, flags | O_NOFOLLOW, mode);
    return fd < 0 ? -errno : fd;
}

/* The target is emptied only when it is known to be another file, and has the source's rights
 * before it has a byte of it. */
int sp_copy_file(int from, int to_dir, const char *to_name, bool follows, struct sp_file_answer *a)
{
    struct stat source;
    struct stat target;

    if (fstat(from, &source) < 0)
        return -errno;
    if (!S_ISREG(source.st_mode)) {
        a->refusal = SP_FILE_COPY_KIND;
        return 0;
    }
    const mode_t mode = source.st_mode & 0777;
    auto_close int to = open_target(to_dir, to_name, follows, mode);
    if (to < 0)
        return TAKE_FD(to);
    if (fstat(to, &target) < 0)
        return -errno;
    if (is_same(&source, &target)) {
        a->refusal = SP_FILE_COPY_ONTO_ITSELF;
        return 0;
    }
    if (!S_ISREG(target.st_mode))
        return pour(from, to, UINT64_MAX);
    if (((target.st_mode & 0777) != mode && fchmod(to, mode) < 0) ||
        (target.st_size != 0 && ftruncate(to, 0) < 0))
        return -errno;
    const int r = has_holes(&source) ? pour_pieces(from, to) : pour(from, to, UINT64_MAX);
    const int closed = sp_place_close(TAKE_FD(to));
    return r < 0 ? r : closed;
}

int sp_copy_link(int from_dir, const char *from_name, int to_dir, const char *to_name)
{
    char target[PATH_MAX];
    const ssize_t n = readlinkat(from_dir, from_name, target, sizeof target);

    if (n < 0)
        return -errno;
    if ((size_t)n == sizeof target)
        return -ENAMETOOLONG;
    target[n] = 0;
    return symlinkat(target, to_dir, to_name) < 0 ? -errno : 0;
}

int sp_copy(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct stat st;

    if (lstat(ask->path, &st) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode))
        return sp_copy_link(AT_FDCWD, ask->path, AT_FDCWD, ask->other);
    if (S_ISDIR(st.st_mode)) {
        if (ask->is_recursive)
            return sp_copy_tree(ask, a);
        a->refusal = SP_FILE_COPY_TREE;
        return 0;
    }
    if (!S_ISREG(st.st_mode)) {
        a->refusal = SP_FILE_COPY_KIND;
        return 0;
    }
    auto_close int from =
        open(ask->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
    return from < 0 ? -errno : sp_copy_file(from, AT_FDCWD, ask->other, true, a);
}
