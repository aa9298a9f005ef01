/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are trusted: nobody else may have written them, and tokens nobody else may read. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "config/config_priv.h"

#define MAX_TOKEN 8192 /* bytes of a token's file */

/* Not seen: it is not there, or a directory on the way is not ours to search. */
static bool is_unseen(const char *path, int open_errno)
{
    struct stat st;

    if (open_errno == ENOENT || open_errno == ENOTDIR)
        return true;
    return open_errno == EACCES && lstat(path, &st) < 0;
}

static int check_owner(int fd, const char *path, struct stat *ret, struct sp_err *e)
{
    if (fstat(fd, ret) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "read %s", path);
    if (!S_ISREG(ret->st_mode))
        return sp_fail(e, SP_E_INVALID, 0, "%s: not a regular file", path);
    if (ret->st_uid != geteuid() && ret->st_uid != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s: belongs to user %u, so it is not trusted; it must belong to you or to "
                       "root",
                       path, (unsigned)ret->st_uid);
    return 0;
}

/* max: a file of more bytes is refused. */
static int read_all(int fd, const char *path, size_t max, struct sp_buf *out, struct sp_err *e)
{
    for (;;) {
        char *room = sp_buf_room(out, 4096);
        const ssize_t n = room == NULL ? -1 : read(fd, room, 4096);

        if (room == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", path);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "read %s", path);
        if (n == 0)
            return 0;
        out->len += (size_t)n;
        if (out->len > max)
            return sp_fail(e, SP_E_INVALID, 0, "%s: more than %zu bytes", path, max);
    }
}

int sp_config_read_file(const char *path, struct sp_buf *out, bool *ret_exists, struct sp_err *e)
{
    /* A pipe in its place must not keep us waiting. */
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;

    *ret_exists = fd >= 0 || !is_unseen(path, errno);
    if (!*ret_exists)
        return 0;
    if (fd < 0)
        return sp_fail(e, SP_E_INVALID, errno, "read %s", path);
    const int r = check_owner(fd, path, &st, e);
    if (r < 0)
        return r;
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s: others may write it (mode %04o), so it is not trusted; chmod go-w it",
                       path, (unsigned)st.st_mode & 07777);
    return read_all(fd, path, SP_TOML_MAX_BYTES, out, e);
}

/* ---- tokens ---- */

/* The one line; white space around it is not part of it. */
static int check_token(const char *path, struct sp_str s, struct sp_str *ret, struct sp_err *e)
{
    while (s.n != 0 && strchr(" \t\r\n", s.p[s.n - 1]) != NULL && s.p[s.n - 1] != 0)
        s.n--;
    if (s.n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "%s: there is no token in it", path);
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] >= 0x7F) /* a header carries nothing else; char may be signed */
            return sp_fail(e, SP_E_INVALID, 0,
                           "%s: a token is one line of visible ASCII characters", path);
    *ret = s;
    return 0;
}

static int read_token(int fd, const char *path, struct sp_buf *text, char **ret, struct sp_err *e)
{
    struct stat st;
    struct sp_str token = SP_STR("");
    int r = check_owner(fd, path, &st, e);

    if (r == 0 && (st.st_mode & (S_IRWXG | S_IRWXO | S_ISUID | S_ISGID)) != 0)
        r = sp_fail(e, SP_E_INVALID, 0,
                    "%s: others may read or write it (mode %04o); a token is for its owner alone: "
                    "chmod 600 it",
                    path, (unsigned)st.st_mode & 07777);
    if (r == 0)
        r = read_all(fd, path, MAX_TOKEN, text, e);
    if (r == 0)
        r = check_token(path, (struct sp_str){text->data, text->len}, &token, e);
    if (r < 0)
        return r;
    char *copy = strndup(token.p, token.n);
    if (copy == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", path);
    *ret = copy;
    return 0;
}

int sp_config_read_token(const char *path, char **ret, struct sp_err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    auto_buf struct sp_buf text = {0};

    if (fd < 0)
        return sp_fail(e, SP_E_INVALID, errno, "read the token in %s", path);
    /* All of it at once: a buffer that grows leaves copies behind. */
    if (sp_buf_room(&text, (size_t)2 * MAX_TOKEN) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", path);
    const int r = read_token(fd, path, &text, ret, e);
    if (text.len != 0)
        explicit_bzero(text.data, text.len);
    return r;
}
