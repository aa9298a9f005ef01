/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files: changing what lies outside of the writable roots, by every name and every call.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "escape.h"
#include "tries.h"

int try_open(const struct row *r)
{
    return answer_fd(open(where(r->a), (int)r->n | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
}

/* Each name of a list with blanks; the answer is the first that is there. */
int try_open_any(const struct row *r)
{
    char list[256];
    char *rest = list;
    int said = ENOENT;

    (void)snprintf(list, sizeof list, "%s", r->a);
    for (const char *name; (name = strsep(&rest, " ")) != NULL;) {
        said = answer_fd(open(where(name), (int)r->n | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
        if (said != ENOENT)
            break;
    }
    return said;
}

static int write_path(const char *path)
{
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

    if (fd < 0)
        return errno;
    const int said = answer(write(fd, "escaped\n", 8));
    (void)close(fd);
    return said;
}

int try_write(const struct row *r)
{
    return write_path(where(r->a));
}

static int read_path(const char *path)
{
    char byte;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return errno;
    const ssize_t n = read(fd, &byte, 1);
    const int said = n == 0 ? ENODATA : answer(n);
    (void)close(fd);
    return said;
}

int try_read(const struct row *r)
{
    return read_path(where(r->a));
}

int try_read_by_root(const struct row *r)
{
    char path[4200];

    (void)snprintf(path, sizeof path, "/proc/self/root%s", where(r->a));
    return read_path(path);
}

int try_create(const struct row *r)
{
    const char *path = where(r->a);
    const int said = answer_fd(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));

    if (said == 0)
        (void)unlink(path);
    return said;
}

/* Through a symlink a, made here, which reads b. */
int try_write_linked(const struct row *r)
{
    const char *link = where(r->a);

    (void)unlink(link);
    if (symlink(where(r->b), link) < 0)
        skip("no symlink at %s: %s", link, strerror(errno));
    const int said = write_path(link);
    (void)unlink(link);
    return said;
}

/* Through a symlink W/g that reads .git. */
int try_write_linked_dir(const struct row *r)
{
    const char *link = where(r->a);

    (void)unlink(link);
    if (symlink(r->b, link) < 0)
        skip("no symlink at %s: %s", link, strerror(errno));
    const int said = write_path(where("w/g/HEAD"));
    (void)unlink(link);
    return said;
}

int try_write_by_root(const struct row *r)
{
    char path[4200];

    if (r->n != 0) /* of the process outside */
        (void)snprintf(path, sizeof path, "/proc/%s/root%s", need("host"), where(r->a));
    else
        (void)snprintf(path, sizeof path, "/proc/self/root%s", where(r->a));
    return write_path(path);
}

int try_write_by_cwd(const struct row *r)
{
    char path[4200];

    if (chdir(need("w")) < 0)
        return errno;
    (void)snprintf(path, sizeof path, "/proc/self/cwd/%s", r->a);
    return write_path(path);
}

int try_reopen(const struct row *r)
{
    char path[64];
    const int fd = open(where(r->a), (int)r->n | O_CLOEXEC);

    if (fd < 0)
        return errno;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return answer_fd(open(path, r->n & O_PATH ? O_RDONLY | O_CLOEXEC : O_RDWR | O_CLOEXEC));
}

int try_openat2(const struct row *r)
{
    struct open_how how = {.flags = O_WRONLY | O_CLOEXEC, .resolve = (unsigned long)r->n};
    const int dir = open(where(r->a), O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return errno;
    (void)close(openat(dir, "f", O_PATH | O_CLOEXEC)); /* RESOLVE_CACHED wants a known name */
    return answer_fd(syscall(SYS_openat2, dir, "f", &how, sizeof how));
}

int try_link(const struct row *r)
{
    const char *to = where(r->b);
    int said = answer(link(where(r->a), to));

    if (said == 0) {
        said = write_path(to);
        (void)unlink(to);
    }
    return said;
}

int try_rename(const struct row *r)
{
    const char *from = where(r->a);
    const char *to = where(r->b);
    const int said = answer(renameat2(AT_FDCWD, from, AT_FDCWD, to, (unsigned)r->n));

    if (said == 0)
        (void)renameat2(AT_FDCWD, to, AT_FDCWD, from, (unsigned)r->n);
    return said;
}

/* Moves the parent of a read-only place away and builds it anew. */
int try_rebuild(const struct row *r)
{
    const char *dir = where(r->a);
    const char *away = where(r->b);
    int said = answer(rename(dir, away));

    if (said != 0)
        return said;
    (void)mkdir(where("w/sub"), 0755);
    (void)mkdir(where("w/sub/ro"), 0755);
    said = answer_fd(open(where("w/sub/ro/f"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    (void)unlink(where("w/sub/ro/f"));
    (void)rmdir(where("w/sub/ro"));
    (void)rmdir(dir);
    (void)rename(away, dir);
    return said;
}

int try_truncate(const struct row *r)
{
    return answer(truncate(where(r->a), 0));
}

int try_unlink(const struct row *r)
{
    const char *path = where(r->a);

    (void)answer_fd(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    return answer(unlink(path));
}

int try_mkdir(const struct row *r)
{
    const char *path = where(r->a);
    const int said = answer(mkdir(path, 0755));

    if (said == 0)
        (void)rmdir(path);
    return said;
}

int try_rmdir(const struct row *r)
{
    return answer(rmdir(where(r->a)));
}

int try_symlink(const struct row *r)
{
    const char *path = where(r->a);
    const int said = answer(symlink("x", path));

    if (said == 0)
        (void)unlink(path);
    return said;
}

int try_mkfifo(const struct row *r)
{
    const char *path = where(r->a);
    const int said = answer(mkfifo(path, 0644));

    if (said == 0)
        (void)unlink(path);
    return said;
}

int try_chmod(const struct row *r)
{
    return answer(chmod(where(r->a), (mode_t)r->n));
}

int try_fchmod(const struct row *r)
{
    const int fd = open(where(r->a), O_RDONLY | O_CLOEXEC);

    return fd < 0 ? errno : answer(fchmod(fd, 0600));
}

/* To its own owner: whoever may change anything may do that. */
int try_chown(const struct row *r)
{
    return answer(lchown(where(r->a), getuid(), getgid()));
}

int try_times(const struct row *r)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

    return answer(utimensat(AT_FDCWD, where(r->a), times, 0));
}

int try_xattr(const struct row *r)
{
    const int said = answer(setxattr(where(r->a), "user.escape", "1", 1, 0));

    if (said == EOPNOTSUPP)
        skip("this file system has no attributes");
    return said;
}

int try_flags(const struct row *r)
{
    const int fd = open(where(r->a), O_RDONLY | O_CLOEXEC);
    int flags = 0;

    if (fd < 0)
        return errno;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
        skip("this file system has no flags");
    flags |= FS_NODUMP_FL;
    return answer(ioctl(fd, FS_IOC_SETFLAGS, &flags));
}

/* Newer ways to the same; kernels before them have nothing to refuse. */
static int answer_new(long result)
{
    if (result < 0 && errno == ENOSYS)
        skip("the kernel has no such call");
    return answer(result);
}

int try_fchmodat2(const struct row *r)
{
    return answer_new(syscall(452, AT_FDCWD, where(r->a), 0600, 0));
}

int try_setxattrat(const struct row *r)
{
    const char *value = "1";
    struct {
        const char *value;
        unsigned size, flags;
    } args = {.value = value, .size = 1};

    return answer_new(syscall(463, AT_FDCWD, where(r->a), 0, "user.escape", &args, sizeof args));
}

int try_file_setattr(const struct row *r)
{
    struct {
        unsigned long xflags;
        unsigned extsize, nextents, projid, cowextsize;
    } attr = {.xflags = 0x80}; /* FS_XFLAG_NODUMP */

    return answer_new(syscall(469, AT_FDCWD, where(r->a), &attr, sizeof attr, 0));
}

int try_tmpfile(const struct row *r)
{
    char path[64];
    const char *to = where(r->a);
    const int fd = open(need("w"), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);

    if (fd < 0)
        skip("this file system has no nameless files: %s", strerror(errno));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int said = answer(linkat(AT_FDCWD, path, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
    if (said == 0)
        (void)unlink(to);
    return said;
}

/* ---- what may not even be read ---- */

int try_sendfile(const struct row *r)
{
    const int in = open(where(r->a), O_RDONLY | O_CLOEXEC);

    if (in < 0)
        return errno;
    const int out = memfd_create("copy", MFD_CLOEXEC);
    const ssize_t n = sendfile(out, in, NULL, 4096);
    return n == 0 ? ENODATA : answer(n);
}

int try_mmap(const struct row *r)
{
    const int fd = open(where(r->a), O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return errno;
    return mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? errno : 0;
}

int try_exec(const struct row *r)
{
    const char *const words[] = {"euid", NULL};

    return again(where(r->a), -1, words); /* 0: it ran; else errno of execve */
}

/* ok: what is there is empty and closed. */
int try_cover(const struct row *r)
{
    struct stat st;

    if (lstat(where(r->a), &st) < 0)
        return errno;
    if (S_ISREG(st.st_mode) && st.st_size != 0)
        return EFBIG;
    return (st.st_mode & 0777) == 0 ? 0 : EUCLEAN;
}

int try_list(const struct row *r)
{
    return answer_fd(open(where(r->a), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

int try_stat(const struct row *r)
{
    struct stat st;

    return answer(stat(where(r->a), &st));
}
