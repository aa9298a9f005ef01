/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "engine/snapshot_priv.h"

#define PREFIX "snapshot-"
#define SUFFIX ".sh"
#define TRIES  4

bool sp_snapshot_random(char ret[SP_SNAPSHOT_NONCE + 1])
{
    uint64_t bits;

    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return false;
    (void)snprintf(ret, SP_SNAPSHOT_NONCE + 1, "%016llx", (unsigned long long)bits);
    return true;
}

/* ---- the directory ---- */

int sp_snapshot_open_directory(const char *path, int *ret_fd, struct sp_err *e)
{
    auto_close int fd = -1;
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "make the directory of shell snapshots %s", path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open the directory of shell snapshots %s", path);
    /* Whoever can write there decides what our shells read. */
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "the directory of shell snapshots %s must be ours alone: owner %u, mode 0700", path,
            (unsigned)geteuid());
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool is_our_name(const char *name)
{
    const size_t prefix = sizeof PREFIX - 1;

    if (strncmp(name, PREFIX, prefix) != 0)
        return false;
    for (size_t i = 0; i < SP_SNAPSHOT_NONCE; i++)
        if (!is_hex(name[prefix + i]))
            return false;
    return strcmp(name + prefix + SP_SNAPSHOT_NONCE, SUFFIX) == 0;
}

static void remove_if_old(int directory, const char *name)
{
    struct stat st;

    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        st.st_uid == geteuid() && time(NULL) - st.st_mtime > SP_SNAPSHOT_AGE_S)
        (void)unlinkat(directory, name, 0); /* the next run tries again */
}

void sp_snapshot_remove_leftovers(int directory)
{
    const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        if (is_our_name(entry->d_name))
            remove_if_old(directory, entry->d_name);
    (void)closedir(d);
}

/* ---- one file ---- */

static bool write_all(int fd, struct sp_str text)
{
    while (text.n != 0) {
        const ssize_t n = write(fd, text.p, text.n);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text = (struct sp_str){text.p + n, text.n - (size_t)n};
    }
    return true;
}

/* Under a name that nobody has: a link that waits there is not followed. */
static int create(int directory, char *name, size_t size)
{
    for (int i = 0; i < TRIES; i++) {
        char random[SP_SNAPSHOT_NONCE + 1];

        if (!sp_snapshot_random(random))
            return -1;
        (void)snprintf(name, size, PREFIX "%s" SUFFIX, random);
        const int fd =
            openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

int sp_snapshot_write(int directory, struct sp_str text, char **ret_name, struct sp_err *e)
{
    char name[sizeof PREFIX + SP_SNAPSHOT_NONCE + sizeof SUFFIX];
    auto_close int fd = create(directory, name, sizeof name);

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a shell snapshot");
    char *copy = strdup(name);
    if (copy == NULL || !write_all(fd, text)) {
        const int cause = copy == NULL ? ENOMEM : errno;

        (void)unlinkat(directory, name, 0); /* half of one is of no use */
        free(copy);
        return sp_fail(e, SP_E_SYSTEM, cause, "write a shell snapshot");
    }
    *ret_name = copy;
    return 0;
}

bool sp_snapshot_touch(int directory, const char *name)
{
    return utimensat(directory, name, NULL, AT_SYMLINK_NOFOLLOW) == 0;
}
