/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content: what is in files. Opening never waits, whatever is there: a FIFO without a writer, a
 * terminal, a tape.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/file/file_priv.h"

#define CALMLY (O_NONBLOCK | O_NOCTTY)

/* A regular file to read; a refusal otherwise. */
static int open_to_read(const struct sp_file_ask *ask, struct sp_file_answer *a, struct stat *st)
{
    auto_close int fd = sp_place_open(ask, O_RDONLY | CALMLY);

    if (fd < 0)
        return TAKE_FD(fd);
    if (fstat(fd, st) < 0)
        return -errno;
    if (!S_ISREG(st->st_mode)) {
        a->refusal = SP_FILE_NOT_A_FILE;
        return -1;
    }
    return TAKE_FD(fd);
}

int sp_content_read(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    const uint32_t limit =
        ask->length != 0 && ask->length < SP_FILE_MAX_READ ? ask->length : SP_FILE_MAX_READ;
    struct sp_room room = {.answer = a};
    struct stat st;
    bool is_more = false;
    int r = 0;
    auto_close int fd = open_to_read(ask, a, &st);

    if (a->refusal != SP_FILE_NOT_REFUSED)
        return 0;
    if (fd < 0)
        return fd;
    if (st.st_size <= (off_t)limit)
        r = sp_room_take_file(&room, fd, limit, &is_more);
    if (r < 0)
        return r;
    if (is_more || st.st_size > (off_t)limit) {
        a->refusal = SP_FILE_TOO_LARGE;
        a->number = limit;
        return 0;
    }
    return sp_room_done(&room);
}

static int write_at(int fd, const char *data, size_t n, off_t at, bool is_placed)
{
    while (n > 0) {
        const ssize_t done = is_placed ? pwrite(fd, data, n, at) : write(fd, data, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EIO;
        data += done;
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

/* In what stands in for a directory that is not there, there is nothing either. */
static bool is_in_placeholder(const struct sp_file_ask *ask)
{
    const char *slash = strrchr(ask->path, '/');

    if (!ask->hides_placeholders || slash == NULL || slash == ask->path)
        return false;
    auto_free char *dir = strndup(ask->path, (size_t)(slash - ask->path));
    return dir != NULL && sp_look_is_placeholder(AT_FDCWD, dir, strrchr(dir, '/') + 1);
}

/* What was behind the new bytes goes, also if not all of them could be written. */
static int cut_off(int fd)
{
    const off_t end = lseek(fd, 0, SEEK_CUR);
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) && end >= 0 && st.st_size > end && ftruncate(fd, end) < 0 ? -errno
                                                                                         : 0;
}

/* Over what is there, and cut after that: pages that a file has need not be made again. */
int sp_content_write(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    (void)a;
    if (is_in_placeholder(ask))
        return -ENOENT;
    auto_close int fd = sp_place_open(ask, O_WRONLY | O_CREAT | CALMLY);
    if (fd < 0)
        return fd;
    const int written = write_at(fd, ask->data, ask->data_len, 0, false);
    const int cut = cut_off(fd);
    const int closed = sp_place_close(TAKE_FD(fd));
    return written < 0 ? written : cut < 0 ? cut : closed;
}

/* Made empty only once it is known to be a file. */
static int open_to_replace(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct stat st;

    if (is_in_placeholder(ask))
        return -ENOENT;
    auto_close int fd = sp_place_open(ask, O_WRONLY | O_CREAT | CALMLY);

    if (fd < 0)
        return TAKE_FD(fd);
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode)) {
        a->refusal = SP_FILE_NOT_A_FILE;
        return -1;
    }
    if (st.st_size != 0 && ftruncate(fd, 0) < 0)
        return -errno;
    return TAKE_FD(fd);
}

/* The memory of a process, perhaps our own: any place of it could be read and written. */
static bool is_memory(int fd)
{
    char path[64];
    char name[PATH_MAX];
    struct statfs fs;

    if (fd < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
        return false;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(path, name, sizeof name);
    return n < 4 || memcmp(name + n - 4, "/mem", 4) == 0;
}

int sp_content_open(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct stat st;
    int fd = ask->is_replace ? open_to_replace(ask, a) : open_to_read(ask, a, &st);

    if (is_memory(fd)) {
        (void)close(TAKE_FD(fd));
        a->refusal = SP_FILE_NOT_A_FILE;
    }

    if (a->refusal != SP_FILE_NOT_REFUSED)
        return 0;
    a->fd = fd < 0 ? -1 : fd;
    return fd < 0 ? fd : 0;
}

int sp_content_read_block(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    size_t at = 0;

    if (ask->length == 0 || ask->length > SP_FILE_MAX_BLOCK || ask->length > a->window_size ||
        ask->offset > INT64_MAX - SP_FILE_MAX_BLOCK)
        return -EINVAL;
    while (at < ask->length) {
        const ssize_t n =
            pread(ask->fd, a->window + at, ask->length - at, (off_t)(ask->offset + at));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        at += (size_t)n;
    }
    a->data_len = at;
    a->is_cut = at < ask->length;
    return 0;
}

int sp_content_write_block(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    (void)a;
    if (ask->data_len == 0 || ask->data_len > SP_FILE_MAX_BLOCK ||
        ask->offset > INT64_MAX - SP_FILE_MAX_BLOCK)
        return -EINVAL;
    return write_at(ask->fd, ask->data, ask->data_len, (off_t)ask->offset, true);
}
