/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch of the operations, and the ways to open a path.
 *
 * Where no symlink may be followed, a path is opened component by component, each with O_NOFOLLOW
 * below the directory that is already held. A symlink that a command puts there in the meantime is
 * refused by the kernel.
 */
#include "cell/file/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/auto.h"
#include "cell/file/file_priv.h"

#define HOLD (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

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

int sp_file_open_path(const struct sp_file_ask *ask, int flags)
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

/* ---- dispatch ---- */

bool sp_file_changes(enum sp_file_op op, bool is_replace)
{
    switch (op) {
    case SP_FILE_WRITE:
    case SP_FILE_MAKE:
    case SP_FILE_REMOVE:
    case SP_FILE_COPY:
    case SP_FILE_WRITE_BLOCK:
        return true;
    case SP_FILE_OPEN:
        return is_replace;
    case SP_FILE_READ:
    case SP_FILE_STAT:
    case SP_FILE_CANONICAL:
    case SP_FILE_LIST:
    case SP_FILE_WALK:
    case SP_FILE_READ_BLOCK:
    case SP_FILE_WATCH_MISSING:
    case SP_FILE_WATCH_PRESENT:
    case SP_FILE_OP_MAX:
        break;
    }
    return false;
}

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

static int (*const operations[SP_FILE_OP_MAX])(const struct sp_file_ask *,
                                               struct sp_file_answer *) = {
    [SP_FILE_READ] = sp_file_op_read,
    [SP_FILE_WRITE] = sp_file_op_write,
    [SP_FILE_MAKE] = sp_file_op_make,
    [SP_FILE_STAT] = sp_file_op_stat,
    [SP_FILE_CANONICAL] = sp_file_op_canonical,
    [SP_FILE_LIST] = sp_file_op_list,
    [SP_FILE_WALK] = sp_file_op_walk,
    [SP_FILE_REMOVE] = sp_file_op_remove,
    [SP_FILE_COPY] = sp_file_op_copy,
    [SP_FILE_OPEN] = sp_file_op_open,
    [SP_FILE_READ_BLOCK] = sp_file_op_read_block,
    [SP_FILE_WRITE_BLOCK] = sp_file_op_write_block,
    [SP_FILE_WATCH_MISSING] = sp_file_op_watch_missing,
    [SP_FILE_WATCH_PRESENT] = sp_file_op_watch_present,
};

static bool is_valid(const struct sp_file_ask *ask)
{
    if ((unsigned)ask->op >= SP_FILE_OP_MAX || operations[ask->op] == NULL)
        return false;
    if (ask->op == SP_FILE_READ_BLOCK || ask->op == SP_FILE_WRITE_BLOCK) /* by descriptor */
        return true;
    return ask->path != NULL && ask->path[0] == '/' &&
           (ask->op != SP_FILE_COPY || (ask->other != NULL && ask->other[0] == '/'));
}

void sp_file_do(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    *a = (struct sp_file_answer){
        .fd = -1, .memory = -1, .window = a->window, .window_size = a->window_size};
    const int r = is_valid(ask) ? operations[ask->op](ask, a) : -EINVAL;
    if (r < 0)
        a->err = -r;
    if (a->err == 0 && a->refusal == SP_FILE_NOT_REFUSED)
        return;
    a->data_len = 0;
    if (a->memory >= 0)
        (void)close(TAKE_FD(a->memory));
}
