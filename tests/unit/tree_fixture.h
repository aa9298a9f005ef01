/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_fixture: a directory of one test's own, with what it needs in it, gone when the test is
 * over.
 */
#ifndef SP_TREE_FIXTURE_H
#define SP_TREE_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process_fixture.h"

static char tree[PATH_MAX]; /* canonical */
static int tree_fds;

static inline int tree_remove_one(const char *path, const struct stat *st, int what,
                                  struct FTW *where)
{
    (void)where;
    (void)st;
    return what == FTW_DP ? rmdir(path) : unlink(path);
}

/* A directory that may not be entered is opened up before what is in it is removed. */
static inline int tree_open_up(const char *path, const struct stat *st, int what, struct FTW *where)
{
    (void)where;
    (void)st;
    return what == FTW_D || what == FTW_DNR ? chmod(path, 0700) : 0;
}

static inline void tree_remove(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return;
    (void)nftw(path, tree_open_up, 16, FTW_PHYS);
    assert_int_equal(nftw(path, tree_remove_one, 16, FTW_PHYS | FTW_DEPTH), 0);
}

static inline int tree_begin(void **state)
{
    const char *tmp = getenv("TMPDIR");
    char name[PATH_MAX];

    (void)state;
    tree_fds = open_fds();
    (void)snprintf(name, sizeof name, "%s/sallyport-tree-XXXXXX",
                   tmp != NULL && tmp[0] == '/' ? tmp : "/tmp");
    assert_non_null(mkdtemp(name));
    assert_non_null(realpath(name, tree));
    return 0;
}

/* Until the test is over, somebody whom a directory's rights keep out: root would not be. */
static inline void be_an_ordinary_user(void)
{
    if (geteuid() != 0)
        return;
    assert_int_equal(chmod(tree, 0755), 0);
    assert_int_equal(seteuid(65534), 0);
}

static inline int tree_end(void **state)
{
    (void)state;
    assert_int_equal(seteuid(getuid()), 0);
    tree_remove(tree);
    return open_fds() == tree_fds ? 0 : -1;
}

/* A path in the tree; good until sixteen more were asked for. "" is the tree itself. */
static inline const char *at(const char *below)
{
    static char paths[16][2 * PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 16];

    (void)snprintf(path, sizeof paths[0], "%s%s%s", tree, below[0] != 0 ? "/" : "", below);
    return path;
}

static inline void make_parents(const char *below)
{
    char path[2 * PATH_MAX];

    (void)snprintf(path, sizeof path, "%s", at(below));
    for (char *slash = path + strlen(tree) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

static inline void make_dir(const char *below)
{
    make_parents(below);
    assert_int_equal(mkdir(at(below), 0777), 0);
}

static inline void make_file(const char *below, const char *text)
{
    make_parents(below);
    const int fd = open(at(below), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static inline void make_link(const char *target, const char *below)
{
    make_parents(below);
    assert_int_equal(symlink(target, at(below)), 0);
}

#endif
