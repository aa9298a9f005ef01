/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   connect --nobody--> lock NAME.lock --> connect --nobody--> start --URL line--> connect
 *
 * The lock makes many at once start one server. The kernel gives it back when its holder ends, so a
 * killed process stops nobody; nor does the socket of a killed server, which the next one replaces.
 */
#include "cli/user_server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/env.h"
#include "server/net/own_sockets.h"

#define MAX_NAME   63
#define CONNECT_S  10
#define LOCK_MS    10000U /* for another process that starts the server */
#define READY_MS   10000U /* for the URL line of the server */
#define PAUSE_MS   10U    /* between tries of the lock, which has no event */
#define FIRST_FREE 3      /* closed before the server is executed, up to the highest */

/* The server ends after so many seconds without work; sessions of lost connections live so long. */
#define IDLE_EXIT   "900"
#define SESSION_TTL "3600"
#define LOG_MAX     "1048576" /* bytes of NAME.log */

int sp_user_server_path(const char *name, char *ret, size_t size, struct sp_err *e)
{
    const size_t n = strlen(name);

    if (n == 0 || n > MAX_NAME || strspn(name, "0123456789") == n ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != n)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "`%.80s` cannot name a server: want 1 to %d letters, digits, `-` or `_`, and "
            "not digits alone",
            name, MAX_NAME);
    return sp_own_socket_path(name, ret, size, e);
}

/* ---- connecting ---- */

/* Our own user id has to listen there: the bytes that follow are commands. */
static int try_connect(const char *path, int *ret_fd, struct sp_err *e)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = CONNECT_S}; /* a stopped server accepts nothing */
    struct ucred peer = {0};
    socklen_t len = sizeof peer;
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof un.sun_path)
        return sp_fail(e, SP_E_INVALID, 0, "the path %s is too long for a socket", path);
    memcpy(un.sun_path, path, strlen(path) + 1);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a socket");
    if (connect(fd, (const struct sockaddr *)&un, sizeof un) < 0) {
        const bool is_missing = errno == ENOENT || errno == ECONNREFUSED;

        return sp_fail(e, is_missing ? SP_E_NOT_FOUND : SP_E_SYSTEM, errno, "connect to %s", path);
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid())
        return sp_fail(e, SP_E_INVALID, 0, "the server at %s is another user's", path);
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "connect to %s", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* ---- starting ---- */

/* `path` ends in ".sock"; a neighbour of it, such as NAME.lock. */
static void name_neighbour(const char *path, const char *ending, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%.*s%s", (int)(strlen(path) - strlen(".sock")), path, ending);
}

static int take_lock(const char *path, int *ret_fd, struct sp_err *e)
{
    static const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    const uint64_t until = sp_clock_ms() + LOCK_MS;
    auto_close int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open %s", path);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return sp_fail(e, SP_E_SYSTEM, errno, "lock %s", path);
        if (sp_clock_ms() >= until)
            return sp_fail(e, SP_E_FAILED, 0,
                           "another process has been starting the server for %u s (it holds %s)",
                           LOCK_MS / 1000, path);
        (void)nanosleep(&pause, NULL);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The variables of this shell are not those of the commands that others will run there: without a
 * terminal, the session of ssh, and credentials. */
static bool is_passed(const char *variable)
{
    const struct sp_str name = {variable, strcspn(variable, "=")};

    if (sp_str_eq(name, SP_STR("TERM")) || strncmp(variable, "SSH_", 4) == 0 ||
        sp_env_is_private(name))
        return false;
    for (const struct sp_str *p = sp_env_secrets; p->p != NULL; p++)
        if (sp_env_matches(*p, name))
            return false;
    return true;
}

static char **server_env(void)
{
    size_t count = 0;
    size_t n = 0;

    while (environ[count] != NULL)
        count++;
    char **ret = calloc(count + 1, sizeof *ret);
    for (size_t i = 0; ret != NULL && i < count; i++)
        if (is_passed(environ[i]))
            ret[n++] = environ[i];
    return ret;
}

/* In the child: becomes the server, in a session of its own, with nothing of ours but its URL line.
 * The second fork leaves the session without a leader that could get a terminal. */
__attribute__((noreturn)) static void become_server(const char *name, char *const *env, int out,
                                                    int log)
{
    static const int reset[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGCHLD, SIGTSTP};
    char listen[MAX_NAME + 8];
    const char *const argv[] = {"sallyport",     "serve",     "--listen",    listen,
                                "--session-ttl", SESSION_TTL, "--idle-exit", IDLE_EXIT,
                                "--log-max",     LOG_MAX,     NULL};
    sigset_t none;
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (setsid() < 0 || null < 0)
        _exit(1);
    const pid_t server = fork();
    if (server != 0)
        _exit(server < 0);
    sigemptyset(&none);
    for (size_t i = 0; i < sizeof reset / sizeof reset[0]; i++)
        (void)signal(reset[i], SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)snprintf(listen, sizeof listen, "user:%s", name);
    if (chdir("/") < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0 || close_range(FIRST_FREE, ~0U, 0) < 0)
        _exit(1);
    (void)execve("/proc/self/exe", (char *const *)(uintptr_t)argv, env);
    _exit(1);
}

/* The last line that the server wrote in its log. */
static void read_reason(int log, char *ret, size_t size)
{
    char text[1024];
    struct stat st;

    ret[0] = 0;
    if (fstat(log, &st) < 0)
        return;
    const off_t from =
        st.st_size > (off_t)sizeof text - 1 ? st.st_size - (off_t)sizeof text + 1 : 0;
    const ssize_t n = pread(log, text, sizeof text - 1, from);
    if (n <= 0)
        return;
    text[n] = 0;
    if (text[n - 1] == '\n')
        text[n - 1] = 0;
    const char *line = strrchr(text, '\n');
    (void)snprintf(ret, size, "%.*s", (int)size - 1, line == NULL ? text : line + 1);
}

/* Waits for the URL line. false: the server ended, or says nothing. */
static bool is_ready(int out)
{
    const uint64_t until = sp_clock_ms() + READY_MS;
    char text[256];

    for (;;) {
        const uint64_t now = sp_clock_ms();
        struct pollfd at = {.fd = out, .events = POLLIN};

        if (now >= until)
            return false;
        if (poll(&at, 1, (int)(until - now)) <= 0)
            continue;
        const ssize_t n = read(out, text, sizeof text);
        if (n <= 0)
            return false;
        if (memchr(text, '\n', (size_t)n) != NULL)
            return true;
    }
}

static int start_server(const char *name, const char *path, struct sp_err *e)
{
    char log_path[600];
    char why[256];
    int ends[2];
    int status;

    name_neighbour(path, ".log", log_path, sizeof log_path);
    auto_close int log =
        open(log_path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);
    if (log < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open %s", log_path);
    auto_free char **env = server_env();
    if (env == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "start the server");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "start the server");
    auto_close int in = ends[0];
    auto_close int out = ends[1];
    const pid_t child = fork();
    if (child < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "start the server");
    if (child == 0)
        become_server(name, env, out, log);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    (void)close(TAKE_FD(out));
    if (is_ready(in))
        return 0;
    read_reason(log, why, sizeof why);
    return sp_fail(e, SP_E_FAILED, 0, "the server did not start%s%s (see %s)",
                   why[0] != 0 ? ": " : "", why, log_path);
}

int sp_user_server_connect(const char *name, bool spawns, int *ret_fd, struct sp_err *e)
{
    char path[512];
    char lock_path[600];
    auto_close int lock = -1;
    int r = sp_user_server_path(name, path, sizeof path, e);

    if (r == 0)
        r = try_connect(path, ret_fd, e);
    if (r != -SP_E_NOT_FOUND || !spawns)
        return r;
    name_neighbour(path, ".lock", lock_path, sizeof lock_path);
    r = take_lock(lock_path, &lock, e);
    if (r == 0)
        r = try_connect(path, ret_fd, e);
    if (r != -SP_E_NOT_FOUND)
        return r;
    r = start_server(name, path, e);
    return r < 0 ? r : try_connect(path, ret_fd, e);
}
