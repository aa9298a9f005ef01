/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/gitdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/str.h"

#define BLANKS " \t\n\v\f\r"

static struct sp_str trim(struct sp_str s)
{
    while (s.n != 0 && strchr(BLANKS, s.p[0]) != NULL) {
        s.p++;
        s.n--;
    }
    while (s.n != 0 && strchr(BLANKS, s.p[s.n - 1]) != NULL)
        s.n--;
    return s;
}

/* ---- core.worktree ---- */

static struct sp_str next_line(const char **text)
{
    const struct sp_str line = {*text, strcspn(*text, "\n")};

    *text += line.n + ((*text)[line.n] != 0);
    return trim(line);
}

/* The value behind a key's `=`, without quotes, escapes and a comment; at most its own length. */
static size_t read_value(struct sp_str s, char *out)
{
    bool is_quoted = false;
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '"')
            is_quoted = !is_quoted;
        else if (!is_quoted && (s.p[i] == '#' || s.p[i] == ';'))
            break;
        else if (s.p[i] == '\\' && i + 1 < s.n)
            out[n++] = s.p[++i];
        else
            out[n++] = s.p[i];
    }
    return trim((struct sp_str){out, n}).n;
}

/* The last one counts, as for Git. Returns false if there is none. */
static bool find_worktree(const char *text, char *out, size_t *ret)
{
    bool is_core = false;
    bool is_found = false;

    while (*text != 0) {
        const struct sp_str line = next_line(&text);
        const char *is = line.n == 0 ? NULL : memchr(line.p, '=', line.n);
        const size_t key = is == NULL ? 0 : (size_t)(is - line.p);

        if (line.n != 0 && line.p[0] == '[')
            is_core = sp_str_eq_nocase(line, SP_STR("[core]"));
        else if (is_core && is != NULL &&
                 sp_str_eq_nocase(trim((struct sp_str){line.p, key}), SP_STR("worktree"))) {
            *ret = read_value(trim((struct sp_str){is + 1, line.n - key - 1}), out);
            is_found = true;
        }
    }
    return is_found;
}

/* ---- all of them ---- */

char *sp_gitdir_parse(const char *text, enum sp_gitdir_file file, const char *base)
{
    struct sp_str named = trim(sp_str_of(text));
    auto_free char *value = file == SP_GITDIR_WORKTREE ? malloc(strlen(text) + 1) : NULL;
    char *path = NULL;

    errno = 0;
    if (file == SP_GITDIR_WORKTREE) {
        size_t n = 0;

        if (value == NULL) {
            errno = ENOMEM;
            return NULL;
        }
        if (!find_worktree(text, value, &n))
            return NULL;
        named = (struct sp_str){value, n};
    }
    if (file == SP_GITDIR_DOT_GIT) {
        const char *colon = memchr(named.p, ':', named.n);
        const size_t n = colon == NULL ? 0 : (size_t)(colon - named.p);

        if (!sp_str_eq(trim((struct sp_str){named.p, n}), SP_STR("gitdir")))
            return NULL;
        named = trim((struct sp_str){colon + 1, named.n - n - 1});
    }
    if (named.n == 0)
        return NULL;
    const bool is_absolute = named.p[0] == '/';
    if (asprintf(&path, "%s%s%.*s", is_absolute ? "" : base, is_absolute ? "" : "/", (int)named.n,
                 named.p) < 0) {
        errno = ENOMEM;
        return NULL;
    }
    return path;
}

/* As much of it as counts, with a NUL behind; minus errno. */
static ssize_t read_start(int fd, char *text, size_t max)
{
    size_t len = 0;

    while (len < max) {
        const ssize_t n = read(fd, text + len, max - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    text[len] = 0;
    return (ssize_t)len;
}

int sp_gitdir_read(const char *path, enum sp_gitdir_file file, const char *base,
                   struct sp_identity *who, char **ret_path, struct sp_err *e)
{
    /* Without waiting: a FIFO may stand there by now. */
    auto_close int fd = sp_open_strictly(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    char text[SP_GITDIR_MAX + 1] = "";
    struct sp_identity now;

    *ret_path = NULL;
    if (fd < 0 && (errno == EACCES || errno == EPERM))
        return 0;
    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open %.300s", path);
    int err = sp_identity_get(fd, "", false, &now);
    if (err == 0 && (!S_ISREG(now.mode) || !sp_identity_equal(&now, who)))
        return sp_fail(e, SP_E_STATE, 0, "%.300s changed while it was looked at", path);
    *who = now; /* from before the reading: what is written meanwhile makes it another */
    const ssize_t n = err != 0 ? -err : read_start(fd, text, SP_GITDIR_MAX);
    if (n < 0)
        return sp_fail(e, SP_E_SYSTEM, (int)-n, "read %.300s", path);
    *ret_path = sp_gitdir_parse(text, file, base);
    if (*ret_path == NULL && errno == ENOMEM)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %.300s", path);
    return 0;
}
