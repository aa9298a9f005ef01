/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content: reads and writes file data, and carries the data of an answer. Every open uses
 * O_NONBLOCK and O_NOCTTY: a FIFO without a writer, a terminal or a tape must not block this
 * process.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "cell/file/file_priv.h"

#define NO_WAIT    (O_NONBLOCK | O_NOCTTY)
#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)
#define PIECE      (1U << 20)
#define SEND_PIECE (1U << 30)

/* ---- the data of an answer ---- */

static bool has_memory(const struct sp_file_out *o)
{
    return o->answer->memory >= 0;
}

/* Moves the window's bytes to a new memory file. */
static int move_to_memory(struct sp_file_out *o)
{
    struct sp_file_answer *a = o->answer;

    a->memory = memfd_create("sallyport-file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return a->memory < 0 ? -errno : -sp_write_all(a->memory, a->window, o->at);
}

static int flush(struct sp_file_out *o)
{
    const size_t n = o->staged;

    o->staged = 0;
    return -sp_write_all(o->answer->memory, o->answer->window, n);
}

int sp_file_out_add(struct sp_file_out *o, const void *data, size_t n)
{
    struct sp_file_answer *a = o->answer;
    int err = 0;

    if (!has_memory(o) && n <= a->window_size - o->at) {
        memcpy(a->window + o->at, data, n);
        o->at += n;
        return 0;
    }
    if (!has_memory(o))
        err = move_to_memory(o);
    if (err == 0 && n > a->window_size - o->staged)
        err = flush(o);
    if (err < 0)
        return err;
    o->at += n;
    if (n > a->window_size)
        return -sp_write_all(a->memory, data, n);
    memcpy(a->window + o->staged, data, n);
    o->staged += n;
    return 0;
}

int sp_file_out_done(struct sp_file_out *o)
{
    const int err = has_memory(o) ? flush(o) : 0;

    o->answer->data_len = o->at;
    if (err < 0)
        return err;
    return has_memory(o) && fcntl(o->answer->memory, F_ADD_SEALS, SEALS) < 0 ? -errno : 0;
}

/* Copies one piece of the file: its size, 0 at the end of the file, or minus errno. */
static ssize_t take_piece(struct sp_file_out *o, int fd, uint64_t max, bool *can_send)
{
    struct sp_file_answer *a = o->answer;
    char *to = has_memory(o) ? a->window : a->window + o->at;
    const size_t room = has_memory(o) ? PIECE : a->window_size - o->at;
    const size_t n = max < room ? (size_t)max : room;
    ssize_t got;

    if (has_memory(o) && *can_send) {
        got = sendfile(a->memory, fd, NULL, max < SEND_PIECE ? (size_t)max : SEND_PIECE);
        if (got >= 0)
            return got;
        *can_send = false; /* not from every file system, nor under every seccomp filter */
    }
    got = read(fd, to, n < a->window_size ? n : a->window_size);
    if (got < 0)
        return -errno;
    const int err = has_memory(o) ? -sp_write_all(a->memory, to, (size_t)got) : 0;
    return err < 0 ? err : got;
}

/* Copies the rest of the file. *ret_is_more: the file has more than `max` bytes. */
static int take_file(struct sp_file_out *o, int fd, uint64_t max, bool *ret_is_more)
{
    bool can_send = true;
    char probe;

    *ret_is_more = false;
    while (o->at < max) {
        if (!has_memory(o) && o->at == o->answer->window_size) {
            const int err = move_to_memory(o);

            if (err < 0)
                return err;
        }
        const ssize_t n = take_piece(o, fd, max - o->at, &can_send);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        o->at += (size_t)n;
    }
    const ssize_t n = read(fd, &probe, 1);
    *ret_is_more = n > 0;
    return n < 0 ? -errno : 0;
}

/* ---- whole files ---- */

/* Opens a regular file; anything else is refused (-1, a->refusal set). */
static int open_to_read(const struct sp_file_ask *ask, struct sp_file_answer *a, struct stat *st)
{
    auto_close int fd = sp_file_open_path(ask, O_RDONLY | NO_WAIT);

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

int sp_file_op_read(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    const uint32_t limit =
        ask->length != 0 && ask->length < SP_FILE_MAX_READ ? ask->length : SP_FILE_MAX_READ;
    struct sp_file_out out = {.answer = a};
    struct stat st;
    bool is_more = false;
    int r = 0;
    auto_close int fd = open_to_read(ask, a, &st);

    if (a->refusal != SP_FILE_NOT_REFUSED)
        return 0;
    if (fd < 0)
        return fd;
    if (st.st_size <= (off_t)limit)
        r = take_file(&out, fd, limit, &is_more);
    if (r < 0)
        return r;
    if (is_more || st.st_size > (off_t)limit) {
        a->refusal = SP_FILE_TOO_LARGE;
        a->number = limit;
        return 0;
    }
    return sp_file_out_done(&out);
}

/* Paths inside a placeholder directory do not exist for clients. */
static bool is_in_placeholder(const struct sp_file_ask *ask)
{
    const char *slash = strrchr(ask->path, '/');

    if (!ask->hides_placeholders || slash == NULL || slash == ask->path)
        return false;
    auto_free char *dir = strndup(ask->path, (size_t)(slash - ask->path));
    return dir != NULL && sp_file_is_placeholder(AT_FDCWD, dir, strrchr(dir, '/') + 1);
}

/* Overwrites in place and truncates afterwards, so that the file keeps its page cache. Old bytes
 * behind the new ones go even after a short write. */
int sp_file_op_write(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct stat st;
    int r = 0;

    (void)a;
    if (is_in_placeholder(ask))
        return -ENOENT;
    auto_close int fd = sp_file_open_path(ask, O_WRONLY | O_CREAT | NO_WAIT);
    if (fd < 0)
        return fd;
    const int written = -sp_write_all(fd, ask->data, ask->data_len);
    const off_t end = lseek(fd, 0, SEEK_CUR);
    if (fstat(fd, &st) < 0 ||
        (S_ISREG(st.st_mode) && end >= 0 && st.st_size > end && ftruncate(fd, end) < 0))
        r = -errno;
    const int closed = sp_file_close(TAKE_FD(fd));
    return written < 0 ? written : r < 0 ? r : closed;
}

/* ---- open files and their blocks ---- */

/* Truncates only after fstat has shown a regular file. */
static int open_to_replace(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct stat st;

    if (is_in_placeholder(ask))
        return -ENOENT;
    auto_close int fd = sp_file_open_path(ask, O_WRONLY | O_CREAT | NO_WAIT);
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

/* /proc/PID/mem: a client could read and write any address, perhaps of this process. */
static bool is_process_memory(int fd)
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

int sp_file_op_open(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct stat st;
    int fd = ask->is_replace ? open_to_replace(ask, a) : open_to_read(ask, a, &st);

    if (is_process_memory(fd)) {
        (void)close(TAKE_FD(fd));
        a->refusal = SP_FILE_NOT_A_FILE;
    }
    if (a->refusal != SP_FILE_NOT_REFUSED)
        return 0;
    a->fd = fd < 0 ? -1 : fd;
    return fd < 0 ? fd : 0;
}

int sp_file_op_read_block(const struct sp_file_ask *ask, struct sp_file_answer *a)
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

int sp_file_op_write_block(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    const char *data = ask->data;
    size_t at = 0;

    (void)a;
    if (ask->data_len == 0 || ask->data_len > SP_FILE_MAX_BLOCK ||
        ask->offset > INT64_MAX - SP_FILE_MAX_BLOCK)
        return -EINVAL;
    while (at < ask->data_len) {
        const ssize_t n = pwrite(ask->fd, data + at, ask->data_len - at, (off_t)(ask->offset + at));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    return 0;
}
