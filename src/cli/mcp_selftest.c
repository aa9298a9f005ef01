/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp_selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "mcp/mcp.h"

#define ANSWER_MS  30000
#define ANSWER_MAX (8U << 20)

/* The server that is tested, and its last answer. */
struct host {
    pid_t pid;
    int to, from; /* its stdin and stdout; -1: closed */
    struct sp_buf in;
    struct sp_json json;
    unsigned id;
    unsigned tried, failed;
};

/* ---- the server ---- */

/* With pipes as stdin and stdout, and our stderr. directory: the workspace, where none is asked
 * for: in a home directory the server would refuse to begin; NULL: as the arguments say. */
static int start_server(struct host *h, int argc, char **argv, char *directory)
{
    auto_free char **args = calloc((size_t)argc + 5, sizeof *args);
    posix_spawn_file_actions_t actions;
    int to[2];
    int from[2];
    int n = 0;

    if (args == NULL || pipe2(to, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(from, O_CLOEXEC) < 0) {
        (void)close(to[0]);
        (void)close(to[1]);
        return -1;
    }
    args[n++] = (char *)(uintptr_t) "sallyport";
    args[n++] = (char *)(uintptr_t) "mcp";
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--selftest") != 0)
            args[n++] = argv[i];
    if (directory != NULL) {
        args[n++] = (char *)(uintptr_t) "--cwd";
        args[n++] = directory;
    }
    int err = posix_spawn_file_actions_init(&actions);
    if (err == 0) {
        err = posix_spawn_file_actions_adddup2(&actions, to[0], 0);
        if (err == 0)
            err = posix_spawn_file_actions_adddup2(&actions, from[1], 1);
        if (err == 0)
            err = posix_spawn(&h->pid, "/proc/self/exe", &actions, NULL, args, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    h->to = to[1];
    h->from = from[0];
    errno = err;
    return err == 0 ? 0 : -1;
}

/* Closes its input; it has to exit with 0 then. */
static bool end_server(struct host *h)
{
    int status = 0;

    if (h->to >= 0)
        (void)close(TAKE_FD(h->to));
    for (int i = 0; h->pid > 0 && i < 100; i++) {
        if (waitpid(h->pid, &status, WNOHANG) == h->pid)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        (void)poll(NULL, 0, 100);
    }
    if (h->pid > 0) {
        (void)kill(h->pid, SIGKILL);
        (void)waitpid(h->pid, NULL, 0);
    }
    return false;
}

/* ---- requests ---- */

/* Reads a line into h->in and returns its length; 0: end, error or timeout. */
static size_t read_line(struct host *h)
{
    const int64_t deadline = (int64_t)sp_clock_ms() + ANSWER_MS;

    for (;;) {
        const char *end_of_line = h->in.len == 0 ? NULL : memchr(h->in.data, '\n', h->in.len);
        const int64_t left = deadline - (int64_t)sp_clock_ms();
        struct pollfd p = {.fd = h->from, .events = POLLIN};

        if (end_of_line != NULL)
            return (size_t)(end_of_line - h->in.data);
        char *room = sp_buf_room(&h->in, 65536);
        if (room == NULL || left <= 0 || poll(&p, 1, (int)left) <= 0)
            return 0;
        const ssize_t n = read(h->from, room, 65536);
        if (n <= 0)
            return 0;
        h->in.len += (size_t)n;
    }
}

/* Returns the token of the answer's `result`, or SP_JSON_NONE. `params` are the members of the
 * params object, without its braces. */
static uint32_t ask_host(struct host *h, const char *method, const char *params, bool is_modern)
{
    static const char modern[] =
        "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"" SP_MCP_MODERN "\","
        "\"io.modelcontextprotocol/clientCapabilities\":{},"
        "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"selftest\",\"version\":\"1\"}}";
    auto_buf struct sp_buf out = {0};
    const bool ok = sp_buf_printf(
        &out, "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"%s\",\"params\":{%s%s%s}}\n", ++h->id,
        method, params, is_modern && params[0] != 0 ? "," : "", is_modern ? modern : "");
    struct sp_err e = {0};

    h->in.len = 0; /* one request at a time: nothing of an earlier answer is needed */
    if (!ok || sp_write_all(h->to, out.data, out.len) != 0)
        return SP_JSON_NONE;
    const size_t n = read_line(h);
    if (n == 0 || sp_json_parse(&h->json, h->in.data, n, &e) < 0)
        return SP_JSON_NONE;
    return sp_json_get(&h->json, 0, "result");
}

static uint32_t call_tool(struct host *h, const char *tool, const char *arguments)
{
    auto_buf struct sp_buf params = {0};

    if (!sp_buf_printf(&params, "\"name\":\"%s\",\"arguments\":{%s}", tool, arguments) ||
        !sp_buf_add(&params, "", 1))
        return SP_JSON_NONE;
    const uint32_t result = ask_host(h, "tools/call", params.data, true);
    return result == SP_JSON_NONE ? SP_JSON_NONE
                                  : sp_json_get(&h->json, result, "structuredContent");
}

static bool get_number(struct host *h, uint32_t object, const char *key, int64_t *ret)
{
    const uint32_t token = object == SP_JSON_NONE ? object : sp_json_get(&h->json, object, key);

    return token != SP_JSON_NONE && sp_json_i64(&h->json, token, ret);
}

static bool has_text(struct host *h, uint32_t object, const char *key, const char *part)
{
    const uint32_t token = object == SP_JSON_NONE ? object : sp_json_get(&h->json, object, key);

    if (token == SP_JSON_NONE || sp_json_type(&h->json, token) != SP_JSON_STRING)
        return false;
    const struct sp_str text = sp_json_str(&h->json, token);
    return memmem(text.p, text.n, part, strlen(part)) != NULL;
}

/* ---- the tests ---- */

/* A TAP line; a failure shows the beginning of the last answer. */
static void report_test(struct host *h, bool is_good, const char *what)
{
    h->tried++;
    h->failed += !is_good;
    (void)printf("%s %u - %s\n", is_good ? "ok" : "not ok", h->tried, what);
    if (!is_good && h->in.len > 0) {
        const size_t n = strnlen(h->in.data, h->in.len < 600 ? h->in.len : 600);

        (void)fputs("# ", stdout);
        sp_plain_print(stdout, (struct sp_str){h->in.data, n});
        (void)putchar('\n');
    }
}

/* Whether the array has a tool of this name. Features add tools, so their number is no criterion.
 */
static bool has_tool(struct host *h, uint32_t tools, const char *name)
{
    for (uint32_t t = sp_json_first(&h->json, tools); t != SP_JSON_NONE;
         t = sp_json_next(&h->json, tools, t))
        if (has_text(h, t, "name", name))
            return true;
    return false;
}

static bool has_all_tools(struct host *h, uint32_t tools)
{
    static const char *const names[] = {"exec_command",   "write_stdin",    "read_output",
                                        "list_sessions",  "signal_session", "resize_session",
                                        "explain_denial", "apply_patch"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (tools == SP_JSON_NONE || !has_tool(h, tools, names[i]))
            return false;
    return true;
}

static void try_everything(struct host *h)
{
    char arguments[200];
    int64_t session = 0;
    int64_t code = -1;
    uint32_t r = ask_host(h, "server/discover", "", true);

    report_test(h,
                r != SP_JSON_NONE && sp_json_get(&h->json, r, "supportedVersions") != SP_JSON_NONE,
                "server/discover answers (" SP_MCP_MODERN ")");
    r = ask_host(h, "initialize",
                 "\"protocolVersion\":\"" SP_MCP_LEGACY_NEWEST
                 "\",\"capabilities\":{},\"clientInfo\":{\"name\":\"selftest\",\"version\":\"1\"}",
                 false);
    report_test(h, has_text(h, r, "protocolVersion", SP_MCP_LEGACY_NEWEST),
                "initialize answers (" SP_MCP_LEGACY_NEWEST ")");
    r = ask_host(h, "tools/list", "", true);
    const uint32_t tools = r == SP_JSON_NONE ? r : sp_json_get(&h->json, r, "tools");
    report_test(h, has_all_tools(h, tools), "tools/list has the eight tools");
    r = call_tool(h, "exec_command", "\"cmd\":\"echo it $((20 + 3)) runs\"");
    report_test(h,
                has_text(h, r, "output", "it 23 runs") && get_number(h, r, "exit_code", &code) &&
                    code == 0,
                "exec_command runs a command");
    r = call_tool(h, "exec_command",
                  "\"argv\":[\"cat\"],\"tty\":true,\"until\":{\"quiet_ms\":300}");
    (void)get_number(h, r, "session_id", &session);
    report_test(h, has_text(h, r, "state", "reading_terminal"),
                "a program that waits for input is seen to wait");
    (void)snprintf(arguments, sizeof arguments,
                   "\"session_id\":%lld,\"chars\":\"typed\\n\",\"yield_time_ms\":5000,"
                   "\"until\":{\"pattern\":\"typed[[:space:]]+typed\"}",
                   (long long)session);
    r = call_tool(h, "write_stdin", arguments);
    report_test(h, has_text(h, r, "output", "typed"), "write_stdin types, and waits for a pattern");
    (void)snprintf(arguments, sizeof arguments, "\"session_id\":%lld", (long long)session);
    r = call_tool(h, "signal_session", arguments);
    report_test(h, has_text(h, r, "state", "exited"), "signal_session ends it");
    r = call_tool(h, "read_output", arguments);
    report_test(h, has_text(h, r, "output", "typed"), "read_output has its output after its end");
}

int sp_mcp_selftest(int argc, char **argv)
{
    struct host h = {.to = -1, .from = -1, .in.max = ANSWER_MAX};
    char directory[] = "/tmp/sallyport-selftest-XXXXXX";

    (void)signal(SIGPIPE, SIG_IGN);
    const bool is_own = argc < 2 && mkdtemp(directory) != NULL;
    if (start_server(&h, argc, argv, is_own ? directory : NULL) < 0) {
        (void)fprintf(stderr, "sallyport: cannot start a server: %s\n", strerror(errno));
        return SP_EXIT_FAILED;
    }
    try_everything(&h);
    h.in.len = 0;
    report_test(&h, end_server(&h), "the server ends with its input");
    (void)printf("1..%u\n", h.tried);
    if (is_own)
        (void)rmdir(directory);
    if (h.from >= 0)
        (void)close(h.from);
    sp_buf_done(&h.in);
    sp_json_done(&h.json);
    return h.failed == 0 ? SP_EXIT_OK : SP_EXIT_FAILED;
}
