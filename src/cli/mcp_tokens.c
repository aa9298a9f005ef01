/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp_tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"

#define FILE_MAX  65536
#define TOKEN_MIN 16

/* ---- of a file ---- */

static int read_text(const char *file, char **ret, struct sp_err *e)
{
    auto_close int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    auto_free char *text = malloc(FILE_MAX + 1);
    struct stat st;
    size_t n = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "--token-file %s", file);
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--token-file %s: want a file that nobody but its owner can read: chmod 600",
                       file);
    if (text == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", file);
    while (n <= FILE_MAX) {
        const ssize_t r = read(fd, text + n, FILE_MAX + 1 - n);

        if (r < 0 && errno != EINTR)
            return sp_fail(e, SP_E_SYSTEM, errno, "--token-file %s", file);
        if (r == 0)
            break;
        n += r < 0 ? 0 : (size_t)r;
    }
    if (n > FILE_MAX || memchr(text, 0, n) != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "--token-file %s: want lines of text, %d bytes at most",
                       file, FILE_MAX);
    text[n] = 0;
    *ret = TAKE_PTR(text);
    return 0;
}

/* What a header can carry: RFC 6750's b64token is within. */
static bool is_token(const char *word)
{
    for (const char *c = word; *c != 0; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return strlen(word) >= TOKEN_MIN;
}

static int read_file(const char *file, struct sp_mcp_tokens *ret, struct sp_err *e)
{
    size_t count = 0;
    unsigned line = 0;
    char *rest;
    const int r = read_text(file, &ret->text, e);

    if (r < 0)
        return r;
    rest = ret->text;
    for (char *word; (word = strsep(&rest, "\n")) != NULL;) {
        line++;
        word[strcspn(word, "\r")] = 0;
        if (word[0] == 0)
            continue;
        if (!is_token(word))
            return sp_fail(e, SP_E_INVALID, 0,
                           "--token-file %s: line %u: want at least %d visible characters and no "
                           "space",
                           file, line, TOKEN_MIN);
        if (count == SP_MCP_TOKENS_MAX)
            return sp_fail(e, SP_E_LIMIT, 0, "--token-file %s: more than %d tokens", file,
                           SP_MCP_TOKENS_MAX);
        ret->tokens[count++] = word;
    }
    return count > 0 ? 0 : sp_fail(e, SP_E_INVALID, 0, "--token-file %s: no token in it", file);
}

/* ---- one that is made ---- */

static bool make_token(char *ret, size_t size)
{
    uint8_t bytes[24];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes && 2 * i + 2 < size; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

static int make_file(const char *dir, struct sp_mcp_tokens *ret, struct sp_err *e)
{
    auto_close int fd = -1;
    char token[64] = "";
    char *path = NULL;

    if (!make_token(token, sizeof token))
        return sp_fail(e, SP_E_SYSTEM, errno, "make a token");
    (void)mkdir(dir, 0700); /* there as a rule; what is wrong with it is told below */
    if (asprintf(&path, "%s/mcp-%d.token", dir, (int)getpid()) < 0 ||
        (ret->text = strdup(token)) == NULL) {
        free(path);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a token");
    }
    ret->tokens[0] = ret->text;
    (void)unlink(path); /* of a server of this number that was killed */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || dprintf(fd, "%s\n", token) < 0) {
        (void)sp_fail(e, SP_E_SYSTEM, errno, "write the token to %s", path);
        free(path);
        return -SP_E_SYSTEM;
    }
    ret->made = path;
    return 0;
}

int sp_mcp_tokens_open(const char *file, const char *dir, struct sp_mcp_tokens *ret,
                       struct sp_err *e)
{
    return file != NULL ? read_file(file, ret, e) : make_file(dir, ret, e);
}

void sp_mcp_tokens_done(struct sp_mcp_tokens *t)
{
    if (t->made != NULL)
        (void)unlink(t->made);
    free(t->made);
    if (t->text != NULL)
        explicit_bzero(t->text, strlen(t->text));
    free(t->text);
}
