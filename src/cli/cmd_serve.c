/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport serve`: the options of the exec-server. */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "cli/serve_front.h"
#include "core/history.h"
#include "core/rings.h"
#include "core/session.h"
#include "keeper/keeper.h"
#include "server/net/listen.h"
#include "server/rpc/conn.h"

#define MAX_TTL_MS (365 * (uint64_t)86400000)

/* A number of bytes, or of KiB, MiB or GiB, from `least` to 1 TiB. */
static bool read_bytes(const char *argument, uint64_t least, uint64_t *ret)
{
    static const char units[] = "KMG";
    struct sp_str digits = sp_str_of(argument);
    const char *unit = digits.n > 0 ? strchr(units, argument[digits.n - 1]) : NULL;
    const int shift = unit == NULL ? 0 : (int)(unit - units + 1) * 10;
    uint64_t n;

    digits.n -= unit != NULL;
    if (!sp_str_to_u64(digits, ((uint64_t)1 << 40) >> shift, &n) || n << shift < least)
        return false;
    *ret = n << shift;
    return true;
}

static const char *read_output_memory(const char *argument, void *value)
{
    return read_bytes(argument, SP_OUTPUT_LEAST, value)
               ? NULL
               : "a number of bytes such as 512M, from 64M to 1024G";
}

static const char *read_kept_memory(const char *argument, void *value)
{
    return read_bytes(argument, SP_KEPT_LEAST, value)
               ? NULL
               : "a number of bytes such as 64M, from 1M to 1024G";
}

/* The verifier parses the number itself; here it is only checked. */
static const char *read_clock_skew(const char *argument, void *value)
{
    uint64_t seconds;

    *(const char **)value = argument;
    return sp_str_to_u64(sp_str_of(argument), UINT32_MAX, &seconds)
               ? NULL
               : "a number from 0 to 4294967295";
}

static const char *const auth_modes[] = {"capability-token", "signed-bearer-token", NULL};
static const char *const busy_poll_words[] = {"auto", "off", "on", NULL};
static const char *const log_levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const log_formats[] = {"human", "json", NULL};

static const struct sp_option options[] = {
    SP_OPT_HEADING("Where to listen:"),
    SP_OPT(LIST,
           SP_OPT_WORDS("listen", "URL",
                        "ws://IP:PORT, PORT of 127.0.0.1, unix:///PATH, user[:NAME] (the server of "
                        "this user, for "
                        "`sallyport connect`) or stdio (default ws://127.0.0.1:0); up to 4 times, "
                        "stdio only alone"),
           SP_OPT_AT(struct sp_serve_options, listen, struct sp_option_list),
           .max = SP_SERVE_MAX_LISTEN),
    SP_OPT(
        LIST,
        SP_OPT_WORDS("host-name", "NAME", "accept this name in the Host header, too (repeatable)"),
        SP_OPT_AT(struct sp_serve_options, hosts, struct sp_option_list),
        .max = SP_SERVE_MAX_HOSTS),
    SP_OPT(LIST, SP_OPT_WORDS("allow-host", "NAME", "--host-name"),
           SP_OPT_AT(struct sp_serve_options, hosts, struct sp_option_list),
           .max = SP_SERVE_MAX_HOSTS, .is_hidden = true),
    SP_OPT_NUMBER(struct sp_serve_options, max_connections, "max-connections", "N", 1, 1000000,
                  "limit of connections (default 1024)"),
    SP_OPT_FLAG(
        struct sp_serve_options, has_no_local_socket, "no-local-socket",
        "do not also listen for `sallyport ps`, `logs`, `attach` and `kill`, on a socket in "
        "the runtime directory of this user"),
    SP_OPT_HEADING(
        "Who may connect (ws://): clients that have the token, as `?token=TOKEN` in the "
        "URL or as `Authorization: Bearer TOKEN`. Without these options the server makes "
        "a token when it starts, and prints it as part of the URL."),
    SP_OPT_STRING(struct sp_serve_options, token_file, "token-file", "FILE",
                  "read the token from FILE, and print the URL without it"),
    SP_OPT_FLAG(struct sp_serve_options, has_no_auth, "no-auth",
                "no token: every user and program of this machine may run commands here"),
    SP_OPT_FLAG(struct sp_serve_options, is_anonymous_allowed, "allow-anonymous",
                "as --no-auth, also when listening beyond loopback"),
    SP_OPT_CHOICE(struct sp_serve_options, auth.mode, "ws-auth", "MODE", auth_modes,
                  "capability-token or signed-bearer-token"),
    SP_OPT_STRING(struct sp_serve_options, auth.token_file, "ws-token-file", "FILE",
                  "the capability token"),
    SP_OPT_STRING(struct sp_serve_options, auth.token_sha256, "ws-token-sha256", "HEX",
                  "or its SHA-256"),
    SP_OPT_STRING(struct sp_serve_options, auth.shared_secret_file, "ws-shared-secret-file", "FILE",
                  "the secret of signed tokens (HS256)"),
    SP_OPT_STRING(struct sp_serve_options, auth.issuer, "ws-issuer", "TEXT",
                  "the issuer that a signed token must have"),
    SP_OPT_STRING(struct sp_serve_options, auth.audience, "ws-audience", "TEXT",
                  "the audience that a signed token must have"),
    SP_OPT_READ(struct sp_serve_options, auth.max_clock_skew_seconds, "ws-max-clock-skew-seconds",
                "N", read_clock_skew, "tolerance for the times of a signed token (default 30)"),
    SP_OPT_HEADING("Limits:"),
    SP_OPT_NUMBER(struct sp_serve_options, max_processes, "max-processes", "N", 1, 1000000,
                  "limit of processes that run at once (default 10000)"),
    SP_OPT_NUMBER(struct sp_serve_options, max_session_processes, "max-session-processes", "N", 1,
                  1000000, "the same for the processes of one session (default: as for all)"),
    SP_OPT_NUMBER(struct sp_serve_options, cells, "cells", "N", 1, SP_OPEN_CELLS_MAX,
                  "how many processes start commands, made when needed (default: as many as there "
                  "are processors, at most 8)"),
    SP_OPT_READ(
        struct sp_serve_options, output_memory, "output-memory", "BYTES", read_output_memory,
        "memory for the output of all processes: 200000000, 512M, 2G (default: an eighth of "
        "the memory, from 64M to 1G)"),
    SP_OPT_READ(struct sp_serve_options, kept_memory, "kept-memory", "BYTES", read_kept_memory,
                "memory for closed processes, which are evicted above it (default 64M)"),
    SP_OPT_TABLE(struct sp_serve_options, limits, sp_limit_options),
    SP_OPT_TIME(
        struct sp_serve_options, session_ttl_ms, "session-ttl", "TIME", 0, MAX_TTL_MS,
        "how long the session of a lost connection is kept: 30 (seconds), 5m, 1h (default 30s)"),
    SP_OPT_TIME(
        struct sp_serve_options, closed_ttl_ms, "closed-ttl", "TIME", 0, MAX_TTL_MS,
        "how long a closed process can be read, as long as --kept-memory has room (default 30s)"),
    SP_OPT_NUMBER(struct sp_serve_options, history, "history", "N", 0, SP_HISTORY_MAX_ENTRIES,
                  "how many ended processes `logs` and `ps -a` still find (default 1000)"),
    SP_OPT_TIME(struct sp_serve_options, idle_exit_ms, "idle-exit", "TIME", 0, MAX_TTL_MS,
                "end after so long without a connection and without a live process; 0: never (the "
                "default)"),
    SP_OPT_FLAG(struct sp_serve_options, has_no_cgroups, "no-cgroups",
                "find the processes of a command by parentage, not by cgroup"),
    SP_OPT_FLAG(struct sp_serve_options, accepts_exposure, "expose-to-sandboxes",
                "with --no-auth: run confined commands with network, too, though they can reach "
                "this server and ask for a command without a sandbox"),
    SP_OPT_NUMBER(struct sp_serve_options, concurrent_requests, "concurrent-requests", "N", 1,
                  UINT64_MAX, "accepted for compatibility: no request ever stalls another"),
    SP_OPT_HEADING("Permission to run commands:"),
    SP_CLI_APPROVAL_OPTIONS(
        struct sp_serve_options, approval,
        "judge every start first: untrusted, on-failure, on-request, never, or the JSON "
        "of granular (default: every start is permitted)",
        "",
        "who answers questions: deny, program:PATH, console (`sallyport approvals`) or client; "
        "A,B: both are asked at once; given again: asked if those before gave no answer (default: "
        "approver of the configuration, else deny)"),
    SP_OPT_HEADING("Operation:"),
    SP_OPT_FLAG(struct sp_serve_options, has_metrics, "metrics",
                "answer GET /metrics also beyond loopback"),
    SP_OPT_CHOICE(struct sp_serve_options, busy_poll, "busy-poll", "WHEN", busy_poll_words,
                  "poll for output instead of sleeping: auto (a little, where waking up takes "
                  "long), off or on (default: busy_poll of the configuration, else auto)"),
    SP_OPT_CHOICE(struct sp_serve_options, log_level, "log-level", "LEVEL", log_levels,
                  "error, warn, info or debug (default warn)"),
    SP_OPT_CHOICE(struct sp_serve_options, log_format, "log-format", "FORMAT", log_formats,
                  "human or json (default human)"),
    SP_OPT(NUMBER, SP_OPT_WORDS("log-max", "BYTES", "of a file on stderr, which is emptied then"),
           SP_OPT_AT(struct sp_serve_options, log_max, uint64_t), .max = UINT64_MAX,
           .is_hidden = true),
    SP_OPT_FLAG(struct sp_serve_options, has_keeper, "keeper",
                "outlive the death of the process that serves: another one takes over its "
                "sessions and commands (not with stdio)"),
    SP_OPT_FLAG(struct sp_serve_options, has_no_keeper, "no-keeper",
                "end with that process (the default)"),
    SP_OPT_END,
};
/* NULL: the options fit together. */
static const char *find_misuse(const struct sp_serve_options *o)
{
    const bool has_token = o->token_file != NULL || o->auth.mode != NULL ||
                           o->auth.token_file != NULL || o->auth.token_sha256 != NULL ||
                           o->auth.shared_secret_file != NULL;

    if (has_token && o->has_no_auth)
        return "--no-auth cannot be combined with a token";
    if (has_token && o->is_anonymous_allowed)
        return "--allow-anonymous cannot be combined with a token";
    if (o->approval.policy == NULL &&
        (o->approval.rules.count > 0 || o->approval.approvers.count > 0))
        return "--rules and --approver judge nothing without --approve";
    return NULL;
}

/* A session on stdio is its connection: what a dead front had read of the pipe is lost. */
static bool wants_keeper(const struct sp_serve_options *o)
{
    struct sp_listen_url url;

    for (size_t i = 0; i < o->listen.count; i++)
        if (sp_listen_parse(o->listen.items[i], &url, NULL) == 0 && url.kind == SP_LISTEN_STDIO)
            return false;
    return o->has_keeper && !o->has_no_keeper;
}

/* Each front gets the options that we were given, and reads them itself. */
static int run_keeper(char *const *arguments)
{
    size_t count = 0;
    char program[] = "sallyport";
    char verb[] = "front";

    while (arguments[count] != NULL)
        count++;
    auto_free char **argv = calloc(count + 3, sizeof *argv);
    if (argv == NULL) {
        sp_cli_warn(NULL, "out of memory");
        return SP_EXIT_FAILED;
    }
    argv[0] = program;
    argv[1] = verb;
    memcpy(argv + 2, arguments, count * sizeof *argv);
    return sp_keeper_run(&(struct sp_keeper_options){.argv = argv});
}

static int run_serve(void *values, char **operands)
{
    struct sp_serve_options *o = values;
    const char *misuse = find_misuse(o);

    (void)operands;
    if (misuse != NULL)
        return sp_command_misused(&sp_command_serve, misuse);
    if (o->log_level != NULL)
        (void)sp_log_set_level(o->log_level);
    if (o->log_format != NULL)
        sp_log_set_json(strcmp(o->log_format, "json") == 0);
    sp_log_set_max(o->log_max);
    if (o->is_front)
        return sp_serve_front(o, STDIN_FILENO);
    return wants_keeper(o) ? run_keeper(o->arguments) : sp_serve_front(o, -1);
}

static const struct sp_serve_options defaults = {.max_connections = 1024,
                                                 .max_processes = 10000,
                                                 .session_ttl_ms = 30000,
                                                 .closed_ttl_ms = 30000,
                                                 .history = 1000};

static int serve_main(int argc, char **argv)
{
    struct sp_serve_options o = defaults;

    o.arguments = argv;
    return sp_command_run(&sp_command_serve, argc, argv, &o, run_serve);
}

/* The server itself, for a keeper. */
static int front_main(int argc, char **argv)
{
    struct sp_serve_options o = defaults;

    if (!sp_cli_has_parent("front", 0))
        return SP_EXIT_USAGE;
    (void)prctl(PR_SET_NAME, "sallyport-front");
    o.is_front = true;
    return sp_command_run(&sp_command_serve, argc, argv, &o, run_serve);
}

const struct sp_cli_command sp_command_front = {.name = "front", .main = front_main};

const struct sp_cli_command sp_command_serve = {
    .name = "serve",
    .summary = "run the exec-server, over WebSocket, a unix socket or stdio",
    .usage = "sallyport serve [OPTIONS]\n"
             "\n"
             "Runs processes for clients of the exec-server protocol. The first line of "
             "stdout is the URL.\n",
    .notes = "SIGTERM, SIGINT and SIGHUP end the server and every process it runs; exit "
             "status 0.\n"
             "Example: sallyport serve --listen ws://127.0.0.1:8765 --log-level info\n",
    .options = options,
    .main = serve_main,
};
