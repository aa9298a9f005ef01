/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways to open a path, the data of an answer, reading and writing, and the table of operations.
 *
 * Where no symlink may be followed, a path is opened component by component, each with O_NOFOLLOW
 * below the directory that is already held. A symlink that a command puts there in the meantime is
 * refused by the kernel.
 *
 * Files are opened with O_NONBLOCK and O_NOCTTY: a FIFO without a writer, a terminal or a tape must
 * not block this process.
 */
#include "cell/file/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "cell/file/file_priv.h"

#define HOLD (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

#define NO_WAIT    (O_NONBLOCK | O_NOCTTY)
#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)
#define PIECE      (1U << 20)
#define SEND_PIECE (1U << 30)

/* ---- paths ---- */

/* Over slashes and components that are a single dot. */
static const char *skip_empty_components(const char *at)
{
    while (*at == '/' || (at[0] == '.' && (at[1] == '/' || at[1] == 0)))
        at++;
    return at;
}

int sp_file_open_parent(int dir, const char *path, int *ret_dir, const char **ret_name)
{
    auto_close int held = dir == AT_FDCWD ? open("/", HOLD) : openat(dir, ".", HOLD);
    const char *at = skip_empty_components(path);
    char component[NAME_MAX + 1];

    if (held < 0)
        return -errno;
    for (;;) {
        const size_t n = strcspn(at, "/");
        const char *rest = skip_empty_components(at + n);

        if (*rest == 0 && (n == 0 || at[n] == 0))
            break;
        if (n > NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(component, at, n);
        component[n] = 0;
        const int next = openat(held, component, HOLD);
        if (next < 0)
            return -errno;
        (void)close(held);
        held = next;
        at = rest;
        if (*rest == 0) /* a trailing slash: the last component had to be a directory */
            break;
    }
    *ret_name = at;
    *ret_dir = TAKE_FD(held);
    return 0;
}

/* -ENOSYS: the kernel or a seccomp filter (EPERM) does not allow openat2. */
static int try_openat2(int dir, const char *path, int flags, mode_t mode, uint64_t resolve)
{
    const struct open_how how = {
        .flags = (uint64_t)(unsigned)flags, .mode = mode, .resolve = resolve};
    const long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);

    return fd >= 0 ? (int)fd : errno == EPERM ? -ENOSYS : -errno;
}

int sp_file_open_to_write(const char *path, int flags, mode_t mode)
{
    int fd = try_openat2(AT_FDCWD, path, flags, mode & 0777, RESOLVE_NO_MAGICLINKS);

    if (fd != -ENOSYS)
        return fd;
    fd = open(path, flags, mode);
    return fd < 0 ? -errno : fd;
}

static int open_path(const struct sp_file_ask *ask, int flags)
{
    auto_close int dir = -1;
    const char *name = "";
    int fd;

    if (ask->follows && (flags & O_CREAT) != 0)
        return sp_file_open_to_write(ask->path, flags | O_CLOEXEC, 0666);
    if (ask->follows) {
        fd = open(ask->path, flags | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
    }
    const int r = sp_file_open_parent(AT_FDCWD, ask->path, &dir, &name);
    if (r < 0)
        return r;
    fd = openat(dir, name[0] == 0 ? "." : name, flags | O_CLOEXEC | O_NOFOLLOW, 0666);
    return fd < 0 ? -errno : fd;
}

int sp_file_open_dir(int dir, const char *path)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const char *relative = skip_empty_components(path);
    auto_close int parent = -1;
    const char *name = "";
    int fd = try_openat2(dir, *relative == 0 ? "." : relative, flags, 0, RESOLVE_NO_SYMLINKS);

    if (fd != -ENOSYS && fd != -ENAMETOOLONG)
        return fd;
    const int r = sp_file_open_parent(dir, path, &parent, &name);
    if (r < 0)
        return r;
    fd = openat(parent, name[0] == 0 ? "." : name, flags);
    return fd < 0 ? -errno : fd;
}

int sp_file_close(int fd)
{
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

DIR *sp_file_read_dir(int dir, const char *path)
{
    auto_close int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);

    if (names != NULL)
        (void)TAKE_FD(fd); /* closedir closes it */
    return names;
}

bool sp_file_is_placeholder(int dir, const char *path, const char *name)
{
    const struct dirent *d;
    struct stat st;

    if (name[0] != '.' || fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return false;
    /* 0500 on the host; 0555 is the empty directory that a sandbox mounts over it. */
    if ((st.st_mode & 07777) != 0500 && (st.st_mode & 07777) != 0555)
        return false;
    DIR *names = sp_file_read_dir(dir, path);
    if (names == NULL)
        return false;
    while ((d = readdir(names)) != NULL && sp_is_dots(d->d_name))
        continue;
    (void)closedir(names);
    return d == NULL;
}

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

/* Paths inside a placeholder directory do not exist for clients. */
static bool is_in_placeholder(const struct sp_file_ask *ask)
{
    const char *slash = strrchr(ask->path, '/');

    if (!ask->hides_placeholders || slash == NULL || slash == ask->path)
        return false;
    auto_free char *dir = strndup(ask->path, (size_t)(slash - ask->path));
    return dir != NULL && sp_file_is_placeholder(AT_FDCWD, dir, strrchr(dir, '/') + 1);
}

/* Opens a regular file, or makes it to be written; anything else is refused (-1, a->refusal set).
 */
static int open_regular(const struct sp_file_ask *ask, bool is_to_write, struct sp_file_answer *a,
                        struct stat *st)
{
    if (is_to_write && is_in_placeholder(ask))
        return -ENOENT;
    auto_close int fd = open_path(ask, (is_to_write ? O_WRONLY | O_CREAT : O_RDONLY) | NO_WAIT);
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

static int op_read(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    const uint32_t limit =
        ask->length != 0 && ask->length < SP_FILE_MAX_READ ? ask->length : SP_FILE_MAX_READ;
    struct sp_file_out out = {.answer = a};
    struct stat st;
    bool is_more = false;
    int r = 0;
    auto_close int fd = open_regular(ask, false, a, &st);

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

/* Overwrites in place and truncates afterwards, so that the file keeps its page cache. Old bytes
 * behind the new ones go even after a short write. */
static int op_write(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct stat st;
    int r = 0;

    (void)a;
    if (is_in_placeholder(ask))
        return -ENOENT;
    auto_close int fd = open_path(ask, O_WRONLY | O_CREAT | NO_WAIT);
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

/* /proc/PID/mem: a client could read and write any address, perhaps of this process. */
static bool is_process_memory(int fd)
{
    char path[64];
    char name[PATH_MAX];
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
        return false;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(path, name, sizeof name);
    return n < 4 || memcmp(name + n - 4, "/mem", 4) == 0;
}

static int op_open(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct stat st;
    auto_close int fd = open_regular(ask, ask->is_replace, a, &st);

    if (a->refusal != SP_FILE_NOT_REFUSED)
        return 0;
    if (fd < 0)
        return TAKE_FD(fd);
    if (ask->is_replace && st.st_size != 0 && ftruncate(fd, 0) < 0)
        return -errno;
    if (is_process_memory(fd))
        a->refusal = SP_FILE_NOT_A_FILE;
    else
        a->fd = TAKE_FD(fd);
    return 0;
}

static int op_read_block(const struct sp_file_ask *ask, struct sp_file_answer *a)
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

static int op_write_block(const struct sp_file_ask *ask, struct sp_file_answer *a)
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

/* ---- dispatch ---- */

bool sp_file_next_entry(struct sp_str *left, struct sp_file_entry *ret, struct sp_str *ret_name)
{
    struct sp_file_entry e;

    if (left->n < sizeof e)
        return false;
    memcpy(&e, left->p, sizeof e);
    if (e.name_len > left->n - sizeof e || e.kind < SP_FILE_ENTRY_FILE ||
        e.kind > SP_FILE_ENTRY_ERROR || e.err < 0 ||
        (e.err != 0) != (e.kind == SP_FILE_ENTRY_ERROR))
        return false;
    *ret = e;
    *ret_name = (struct sp_str){left->p + sizeof e, e.name_len};
    *left = (struct sp_str){left->p + sizeof e + e.name_len, left->n - sizeof e - e.name_len};
    return true;
}

static const struct operation {
    int (*run)(const struct sp_file_ask *, struct sp_file_answer *);
    unsigned path_count; /* of path and other, how many the ask must have; 0: it has a descriptor */
    bool changes;        /* the disk */
} operations[SP_FILE_OP_MAX] = {
    [SP_FILE_READ] = {op_read, 1, false},
    [SP_FILE_WRITE] = {op_write, 1, true},
    [SP_FILE_MAKE] = {sp_file_op_make, 1, true},
    [SP_FILE_STAT] = {sp_file_op_stat, 1, false},
    [SP_FILE_CANONICAL] = {sp_file_op_canonical, 1, false},
    [SP_FILE_LIST] = {sp_file_op_list, 1, false},
    [SP_FILE_WALK] = {sp_file_op_walk, 1, false},
    [SP_FILE_REMOVE] = {sp_file_op_remove, 1, true},
    [SP_FILE_COPY] = {sp_file_op_copy, 2, true},
    [SP_FILE_OPEN] = {op_open, 1, false},
    [SP_FILE_READ_BLOCK] = {op_read_block, 0, false},
    [SP_FILE_WRITE_BLOCK] = {op_write_block, 0, true},
    [SP_FILE_WATCH_MISSING] = {sp_file_op_watch_missing, 1, false},
    [SP_FILE_WATCH_PRESENT] = {sp_file_op_watch_present, 1, false},
};

bool sp_file_changes(enum sp_file_op op, bool is_replace)
{
    return (unsigned)op < SP_FILE_OP_MAX &&
           (operations[op].changes || (op == SP_FILE_OPEN && is_replace));
}

void sp_file_do(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    const struct operation *o =
        (unsigned)ask->op < SP_FILE_OP_MAX ? &operations[ask->op] : &operations[0];
    const bool is_valid = o->run != NULL &&
                          (o->path_count < 1 || (ask->path != NULL && ask->path[0] == '/')) &&
                          (o->path_count < 2 || (ask->other != NULL && ask->other[0] == '/'));

    *a = (struct sp_file_answer){
        .fd = -1, .memory = -1, .window = a->window, .window_size = a->window_size};
    const int r = is_valid ? o->run(ask, a) : -EINVAL;
    if (r < 0)
        a->err = -r;
    if (a->err == 0 && a->refusal == SP_FILE_NOT_REFUSED)
        return;
    a->data_len = 0;
    if (a->memory >= 0)
        (void)close(TAKE_FD(a->memory));
}
