/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport mcp`: the transports (stdio, unix sockets, HTTP) and the bearer tokens of HTTP. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "base/runtime_dir.h"
#include "cli/mcp_server.h"
#include "mcp/lines.h"
#include "mcp/mcp_http.h"

#define MAX_CONNECTIONS 256
#define MAX_TOKEN_FILE  65536 /* bytes */
#define MIN_TOKEN       16    /* characters */

/* ---- tokens ---- */

/* A file that only its owner can read. */
static int read_token_file(const char *file, char **ret, struct sp_err *e)
{
    auto_close int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    auto_buf struct sp_buf text = {0};
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "--token-file %s", file);
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--token-file %s: want a file that nobody but its owner can read: chmod 600",
                       file);
    const int err = sp_read_all(fd, MAX_TOKEN_FILE, &text);
    if (err == EFBIG || (err == 0 && sp_str_has_nul(sp_buf_str(&text))))
        return sp_fail(e, SP_E_INVALID, 0, "--token-file %s: want lines of text, %d bytes at most",
                       file, MAX_TOKEN_FILE);
    if (err != 0)
        return sp_fail(e, SP_E_SYSTEM, err, "--token-file %s", file);
    *ret = strndup(sp_buf_str(&text).p, text.len);
    if (text.len > 0)
        explicit_bzero(text.data, text.len);
    return *ret != NULL ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", file);
}

/* One token a line; empty lines are skipped. */
static int read_tokens(const char *file, struct sp_mcp_tokens *ret, struct sp_err *e)
{
    size_t count = 0;
    unsigned line = 0;
    char *rest;
    const int r = read_token_file(file, &ret->text, e);

    if (r < 0)
        return r;
    rest = ret->text;
    for (char *word; (word = strsep(&rest, "\n")) != NULL;) {
        line++;
        word[strcspn(word, "\r")] = 0;
        if (word[0] == 0)
            continue;
        /* Visible ASCII, which includes the b64token of RFC 6750. */
        bool is_token = strlen(word) >= MIN_TOKEN;
        for (const char *c = word; *c != 0; c++)
            is_token &= *c > ' ' && *c <= '~';
        if (!is_token)
            return sp_fail(e, SP_E_INVALID, 0,
                           "--token-file %s: line %u: want at least %d visible characters and no "
                           "space",
                           file, line, MIN_TOKEN);
        if (count == SP_MCP_TOKENS_MAX)
            return sp_fail(e, SP_E_LIMIT, 0, "--token-file %s: more than %d tokens", file,
                           SP_MCP_TOKENS_MAX);
        ret->tokens[count++] = word;
    }
    return count > 0 ? 0 : sp_fail(e, SP_E_INVALID, 0, "--token-file %s: no token in it", file);
}

/* A token of our own, in a file of the runtime directory. */
static int make_token(struct sp_mcp_tokens *ret, struct sp_err *e)
{
    auto_free char *path = NULL;
    auto_close int fd = -1;
    uint8_t bytes[24];
    char token[2 * sizeof bytes + 1] = "";
    char dir[512];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a token");
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    sp_runtime_dir(dir, sizeof dir);
    (void)mkdir(dir, 0700); /* usually there; another error shows when the file is opened */
    if (asprintf(&path, "%s/mcp-%d.token", dir, (int)getpid()) < 0 ||
        (ret->text = strdup(token)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a token");
    ret->tokens[0] = ret->text;
    (void)unlink(path); /* left by a killed server that had our pid */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || dprintf(fd, "%s\n", token) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "write the token to %s", path);
    ret->made = TAKE_PTR(path);
    return 0;
}

/* ---- transports ---- */

static void on_finished(void *user)
{
    sp_loop_stop(((struct sp_mcp_server *)user)->loop);
}

static int open_lines(struct sp_mcp_server *s, const char *path, struct sp_mcp_lines **ret,
                      struct sp_err *e)
{
    const struct sp_mcp_lines_options o = {
        .path = path,
        .max_connections = MAX_CONNECTIONS,
        .user = s,
        .finished = on_finished,
    };

    return sp_mcp_lines_new(s->mcp, &o, ret, e);
}

/* --listen number i. The tokens are read or made once, for all HTTP transports. */
static int listen_at(struct sp_mcp_server *s, size_t i, struct sp_err *e)
{
    const char *url = s->flags->listen.items[i];
    const struct sp_mcp_http_options http = {
        .url = url,
        .tokens = s->tokens.tokens,
        .origins = s->flags->origins.items,
        .allows_remote = s->flags->allows_remote,
        .max_connections = MAX_CONNECTIONS,
    };
    const bool is_unix = strncmp(url, "unix:///", 8) == 0;
    int r = 0;

    if (!is_unix && strncmp(url, "http://", 7) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--listen: `%s` is neither unix:///PATH nor http://ADDRESS:PORT/PATH", url);
    if (!is_unix && s->tokens.tokens[0] == NULL) {
        r = s->flags->token_file != NULL ? read_tokens(s->flags->token_file, &s->tokens, e)
                                         : make_token(&s->tokens, e);
        if (r == 0 && s->tokens.made != NULL)
            (void)fprintf(stderr, "sallyport: the bearer token is in %s\n", s->tokens.made);
    }
    if (r == 0)
        r = is_unix ? open_lines(s, url + 7, &s->lines[i], e)
                    : sp_mcp_http_new(s->mcp, &http, &s->https[i], e);
    if (r < 0)
        return r;
    (void)printf("%s\n", is_unix ? sp_mcp_lines_url(s->lines[i]) : sp_mcp_http_url(s->https[i]));
    return fflush(stdout) == 0 ? 0 : sp_fail(e, SP_E_SYSTEM, errno, "print the URL on stdout");
}

int sp_mcp_open_transports(struct sp_mcp_server *s, struct sp_err *e)
{
    const size_t count = s->flags->listen.count;
    int r = 0;

    s->lines = calloc(count + 1, sizeof(struct sp_mcp_lines *));
    s->https = calloc(count + 1, sizeof(struct sp_mcp_http *));
    if (s->lines == NULL || s->https == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "listen");
    if (count == 0)
        return open_lines(s, NULL, &s->lines[0], e);
    for (size_t i = 0; r == 0 && i < count; i++)
        r = listen_at(s, i, e);
    return r;
}

void sp_mcp_close_transports(struct sp_mcp_server *s)
{
    const size_t count = s->flags->listen.count + 1;
    struct sp_mcp_tokens *t = &s->tokens;

    for (size_t i = 0; s->lines != NULL && i < count; i++)
        sp_mcp_lines_free(s->lines[i]);
    for (size_t i = 0; s->https != NULL && i < count; i++)
        sp_mcp_http_free(s->https[i]);
    free(s->lines);
    free(s->https);
    if (t->made != NULL)
        (void)unlink(t->made);
    free(t->made);
    if (t->text != NULL)
        explicit_bzero(t->text, strlen(t->text));
    free(t->text);
}
