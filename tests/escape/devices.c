/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices: terminals, disks, and the kernel's own files.
 */
#include <dirent.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>

#include "escape.h"
#include "tries.h"

/* ---- terminals ---- */

struct pair {
    int master, slave;
};

static struct pair open_pair(void)
{
    int zero = 0;
    int number = -1;
    char path[32];
    struct pair p = {.master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), .slave = -1};

    if (p.master < 0 || ioctl(p.master, TIOCSPTLCK, &zero) < 0 ||
        ioctl(p.master, TIOCGPTN, &number) < 0)
        return p;
    (void)snprintf(path, sizeof path, "/dev/pts/%d", number);
    p.slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return p;
}

int try_pair(const struct row *r)
{
    char text[8] = "";
    const struct pair p = open_pair();

    (void)r;
    if (p.slave < 0)
        return errno;
    if (write(p.slave, "hi", 2) != 2 || read(p.master, text, sizeof text - 1) < 2)
        return errno;
    return strncmp(text, "hi", 2) == 0 ? 0 : EPROTO;
}

/* n is an ioctl number on a terminal that controls us; where we cannot make one, it is judged on
 * whatever there is: the filter looks at the number alone. */
int try_terminal_ioctl(const struct row *r)
{
    char byte = 'x';
    const struct pair p = open_pair();

    (void)setsid();
    (void)ioctl(p.slave, TIOCSCTTY, 0);
    return answer(syscall(SYS_ioctl, p.slave, r->n, &byte));
}

/* On the terminal that we were started with. */
int try_stdin_ioctl(const struct row *r)
{
    char byte = '\n';

    return answer(syscall(SYS_ioctl, 0, r->n, &byte));
}

/* What terminals are for. */
int try_window_size(const struct row *r)
{
    struct winsize size;
    const struct pair p = open_pair();

    (void)r;
    return p.slave < 0 ? errno : answer(ioctl(p.slave, TIOCGWINSZ, &size));
}

int try_host_terminal(const struct row *r)
{
    char path[32];

    (void)snprintf(path, sizeof path, "/dev/pts/%ld", need_number(r->a));
    return answer_fd(open(path, O_RDWR | O_NOCTTY | O_CLOEXEC));
}

/* ok: stdin is the terminal that controls us, and it has a name here. */
int try_own_terminal(const struct row *r)
{
    struct stat a;
    struct stat b;
    const char *name = ttyname(0);

    (void)r;
    if (name == NULL || stat(name, &a) < 0 || fstat(0, &b) < 0)
        return errno;
    if (a.st_rdev != b.st_rdev || tcgetsid(0) != getsid(0))
        return ENOTTY;
    return 0;
}

/* ---- disks and nodes ---- */

int try_disk(const struct row *r)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/dev/%s", need(r->a));
    return answer_fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

/* A node of a kind that n says, and then through it. */
int try_mknod(const struct row *r)
{
    const char *path = where(r->a);
    const dev_t dev = (r->n & S_IFMT) == S_IFCHR ? makedev(1, 11) : makedev(7, 250);
    int said = answer(mknod(path, (mode_t)r->n, S_ISREG(r->n) || S_ISFIFO(r->n) ? 0 : dev));

    if (said == 0) {
        said = answer_fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        said = said == ENXIO ? 0 : said; /* it is there, and nothing behind it */
        (void)unlink(path);
    }
    return said;
}

int try_write_null(const struct row *r)
{
    const int fd = open(r->a, O_WRONLY | O_CLOEXEC);

    return fd < 0 ? errno : answer(write(fd, "x", 1));
}

/* ---- the kernel's files ---- */

struct walk {
    int left, said;
};

/* Opens what lies below for writing, and writes nothing. Links are not followed. */
static void walk_sys(const char *dir, struct walk *w, int depth)
{
    char path[8192];
    DIR *d = opendir(dir);

    for (const struct dirent *e; d != NULL && w->left > 0 && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%.4000s/%s", dir, e->d_name);
        if (e->d_type == DT_DIR && depth > 0)
            walk_sys(path, w, depth - 1);
        if (e->d_type != DT_REG)
            continue;
        w->left--;
        const int said = answer_fd(open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK));
        if (said == 0 || w->said == ENOENT)
            w->said = said;
        if (said == 0)
            w->left = 0;
    }
    if (d != NULL)
        (void)closedir(d);
}

int try_write_sys(const struct row *r)
{
    struct walk w = {.left = 3000, .said = ENOENT};

    walk_sys(r->a, &w, 4);
    if (w.said == ENOENT)
        skip("there is nothing below %s", r->a);
    return w.said;
}

/* Every cgroup tree: the first that lets us is the answer. */
static int each_cgroup(const char *name, int (*each)(const char *path))
{
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    char path[4096];
    int said = -1;

    for (const struct mntent *m; mounts != NULL && said != 0 && (m = getmntent(mounts)) != NULL;) {
        if (strncmp(m->mnt_type, "cgroup", 6) != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", m->mnt_dir, name);
        said = each(path);
    }
    if (mounts != NULL)
        (void)endmntent(mounts);
    if (said < 0)
        skip("no cgroup tree is mounted");
    return said;
}

static int make_group(const char *path)
{
    const int said = answer(mkdir(path, 0755));

    if (said == 0)
        (void)rmdir(path);
    return said;
}

static int open_group(const char *path)
{
    return answer_fd(open(path, O_WRONLY | O_CLOEXEC));
}

int try_cgroup_mkdir(const struct row *r)
{
    return each_cgroup(r->a, make_group);
}

int try_cgroup_procs(const struct row *r)
{
    return each_cgroup(r->a, open_group);
}
