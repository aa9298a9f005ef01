/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "cli/cli.h"

static const char help[] =
    "Usage: sallyport serve [OPTIONS]\n"
    "\n"
    "Runs processes for clients of the exec-server protocol. The first line of stdout is the URL.\n"
    "\n"
    "Where to listen:\n"
    "  --listen URL              ws://IP:PORT, unix:///PATH or stdio (default ws://127.0.0.1:0)\n"
    "  --allow-host NAME         accept this name in the Host header too (repeatable)\n"
    "  --max-connections N       at most so many at once (default 1024)\n"
    "  --no-local-socket         do not listen for `sallyport ps`, `logs`, `attach` and `kill`\n"
    "                            in the runtime folder of this user, too\n"
    "\n"
    "Who may connect (ws://): clients that have the token, as `?token=TOKEN` in the URL or as\n"
    "`Authorization: Bearer TOKEN`. Without these flags a token is made at the start and is part\n"
    "of the URL that is printed.\n"
    "  --token-file FILE         the token is in FILE, and the URL is printed without it\n"
    "  --no-auth                 no token: every user and program of this machine may run\n"
    "                            commands here\n"
    "  --allow-anonymous         as --no-auth, also when listening beyond loopback\n"
    "  --ws-auth MODE            capability-token or signed-bearer-token\n"
    "  --ws-token-file FILE      the capability token\n"
    "  --ws-token-sha256 HEX     or its SHA-256\n"
    "  --ws-shared-secret-file FILE, --ws-issuer S, --ws-audience S,\n"
    "  --ws-max-clock-skew-seconds N\n"
    "                            verification of HS256 tokens\n"
    "\n"
    "Limits:\n"
    "  --max-processes N         at most so many, closed ones included (default 10000)\n"
    "  --session-ttl SECONDS     keep the session of a lost connection (default 30)\n"
    "  --closed-ttl SECONDS      keep a closed process readable (default 30)\n"
    "  --no-cgroups              find a command's processes by parentage, not by cgroup\n"
    "  --expose-to-sandboxes     with --no-auth: run confined commands with network, too,\n"
    "                            though they can reach this server and ask for anything\n"
    "  --concurrent-requests N   accepted for compatibility: no request ever stalls another\n"
    "\n"
    "Leave to run commands:\n"
    "  --approve POLICY          judge every start first: untrusted, on-failure, on-request, "
    "never,\n"
    "                            or the JSON of granular (default: the client has decided)\n"
    "  --rules FILE              rules besides those of the usual places (repeatable)\n"
    "  --approver WHO            who answers questions: deny, program:PATH or client; A,B: both "
    "are\n"
    "                            asked at once; given again: the next, if nobody answered\n"
    "                            (default: approver in the configuration, else deny)\n"
    "\n"
    "Operation:\n"
    "  --metrics                 answer GET /metrics also beyond loopback\n"
    "  --log-level LEVEL         error, warn, info or debug (default warn)\n"
    "  --log-format FORMAT       human or json (default human)\n"
    "  --help                    show this text\n"
    "\n"
    "SIGTERM, SIGINT and SIGHUP end the server and every process it runs; exit status 0.\n"
    "Example: sallyport serve --listen ws://127.0.0.1:8765 --log-level info\n";

enum {
    OPT_LISTEN = 256,
    OPT_ALLOW_HOST,
    OPT_MAX_CONNECTIONS,
    OPT_NO_LOCAL_SOCKET,
    OPT_TOKEN_FILE,
    OPT_NO_AUTH,
    OPT_ALLOW_ANONYMOUS,
    OPT_WS_AUTH,
    OPT_WS_TOKEN_FILE,
    OPT_WS_TOKEN_SHA256,
    OPT_WS_SECRET,
    OPT_WS_ISSUER,
    OPT_WS_AUDIENCE,
    OPT_WS_SKEW,
    OPT_MAX_PROCESSES,
    OPT_SESSION_TTL,
    OPT_CLOSED_TTL,
    OPT_NO_CGROUPS,
    OPT_EXPOSE,
    OPT_CONCURRENT,
    OPT_APPROVE,
    OPT_RULES,
    OPT_APPROVER,
    OPT_METRICS,
    OPT_LOG_LEVEL,
    OPT_LOG_FORMAT,
    OPT_HELP,
};

static const struct option known[] = {
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"allow-host", required_argument, NULL, OPT_ALLOW_HOST},
    {"max-connections", required_argument, NULL, OPT_MAX_CONNECTIONS},
    {"no-local-socket", no_argument, NULL, OPT_NO_LOCAL_SOCKET},
    {"token-file", required_argument, NULL, OPT_TOKEN_FILE},
    {"no-auth", no_argument, NULL, OPT_NO_AUTH},
    {"allow-anonymous", no_argument, NULL, OPT_ALLOW_ANONYMOUS},
    {"ws-auth", required_argument, NULL, OPT_WS_AUTH},
    {"ws-token-file", required_argument, NULL, OPT_WS_TOKEN_FILE},
    {"ws-token-sha256", required_argument, NULL, OPT_WS_TOKEN_SHA256},
    {"ws-shared-secret-file", required_argument, NULL, OPT_WS_SECRET},
    {"ws-issuer", required_argument, NULL, OPT_WS_ISSUER},
    {"ws-audience", required_argument, NULL, OPT_WS_AUDIENCE},
    {"ws-max-clock-skew-seconds", required_argument, NULL, OPT_WS_SKEW},
    {"max-processes", required_argument, NULL, OPT_MAX_PROCESSES},
    {"session-ttl", required_argument, NULL, OPT_SESSION_TTL},
    {"closed-ttl", required_argument, NULL, OPT_CLOSED_TTL},
    {"no-cgroups", no_argument, NULL, OPT_NO_CGROUPS},
    {"expose-to-sandboxes", no_argument, NULL, OPT_EXPOSE},
    {"concurrent-requests", required_argument, NULL, OPT_CONCURRENT},
    {"approve", required_argument, NULL, OPT_APPROVE},
    {"rules", required_argument, NULL, OPT_RULES},
    {"approver", required_argument, NULL, OPT_APPROVER},
    {"metrics", no_argument, NULL, OPT_METRICS},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"log-format", required_argument, NULL, OPT_LOG_FORMAT},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static bool number(const char *flag, uint64_t least, uint64_t most, uint64_t *ret)
{
    uint64_t v;

    if (sp_str_to_u64(sp_str_of(optarg), most, &v) && v >= least) {
        *ret = v;
        return true;
    }
    (void)fprintf(stderr, "sallyport serve: %s: `%s` is not a number from %llu to %llu\n", flag,
                  optarg, (unsigned long long)least, (unsigned long long)most);
    return false;
}

static bool one_of(const char *flag, const char *a, const char *b)
{
    if (strcmp(optarg, a) == 0 || strcmp(optarg, b) == 0)
        return true;
    (void)fprintf(stderr, "sallyport serve: %s: `%s` is neither `%s` nor `%s`\n", flag, optarg, a,
                  b);
    return false;
}

/* One option. false: it was bad and that was said. */
static bool take(struct sp_serve_options *o, int opt)
{
    switch (opt) {
    case OPT_LISTEN:
        o->listen = optarg;
        return true;
    case OPT_ALLOW_HOST:
        if (o->host_count == SP_SERVE_MAX_HOSTS) {
            (void)fprintf(stderr, "sallyport serve: --allow-host: at most %d names\n",
                          SP_SERVE_MAX_HOSTS);
            return false;
        }
        o->hosts[o->host_count++] = optarg;
        return true;
    case OPT_MAX_CONNECTIONS:
        return number("--max-connections", 1, 1000000, &o->max_connections);
    case OPT_NO_LOCAL_SOCKET:
        o->has_no_local_socket = true;
        return true;
    case OPT_TOKEN_FILE:
        o->own_token_file = optarg;
        return true;
    case OPT_NO_AUTH:
        o->has_no_auth = true;
        return true;
    case OPT_ALLOW_ANONYMOUS:
        o->is_anonymous_allowed = true;
        return true;
    case OPT_WS_AUTH:
        o->auth.mode = optarg;
        return one_of("--ws-auth", "capability-token", "signed-bearer-token");
    case OPT_WS_TOKEN_FILE:
        o->auth.token_file = optarg;
        return true;
    case OPT_WS_TOKEN_SHA256:
        o->auth.token_sha256 = optarg;
        return true;
    case OPT_WS_SECRET:
        o->auth.shared_secret_file = optarg;
        return true;
    case OPT_WS_ISSUER:
        o->auth.issuer = optarg;
        return true;
    case OPT_WS_AUDIENCE:
        o->auth.audience = optarg;
        return true;
    case OPT_WS_SKEW:
        o->auth.max_clock_skew_seconds = optarg;
        return number("--ws-max-clock-skew-seconds", 0, UINT32_MAX, &o->clock_skew_s);
    case OPT_MAX_PROCESSES:
        return number("--max-processes", 1, 1000000, &o->max_processes);
    case OPT_SESSION_TTL:
        return number("--session-ttl", 0, 31536000, &o->session_ttl_s);
    case OPT_CLOSED_TTL:
        return number("--closed-ttl", 0, 31536000, &o->closed_ttl_s);
    case OPT_EXPOSE:
        o->accepts_exposure = true;
        return true;
    case OPT_NO_CGROUPS:
        o->has_no_cgroups = true;
        return true;
    case OPT_CONCURRENT:
        return number("--concurrent-requests", 1, UINT64_MAX, &o->concurrent_requests);
    case OPT_APPROVE:
        o->approve = optarg;
        return true;
    case OPT_RULES:
        o->rules[o->rule_count++] = optarg;
        return true;
    case OPT_APPROVER:
        o->approvers[o->approver_count++] = optarg;
        return true;
    case OPT_METRICS:
        o->has_metrics = true;
        return true;
    case OPT_LOG_LEVEL:
        if (sp_log_set_level(optarg))
            return true;
        (void)fprintf(stderr,
                      "sallyport serve: --log-level: `%s` is not error, warn, info or debug\n",
                      optarg);
        return false;
    case OPT_LOG_FORMAT:
        sp_log_set_json(strcmp(optarg, "json") == 0);
        return one_of("--log-format", "human", "json");
    default: /* getopt has said what is wrong */
        return false;
    }
}

static bool fits_together(const struct sp_serve_options *o)
{
    const bool has_token = o->own_token_file != NULL || o->auth.mode != NULL ||
                           o->auth.token_file != NULL || o->auth.token_sha256 != NULL ||
                           o->auth.shared_secret_file != NULL;

    if (has_token && (o->has_no_auth || o->is_anonymous_allowed)) {
        (void)fprintf(stderr, "sallyport serve: %s cannot be combined with a token\n",
                      o->has_no_auth ? "--no-auth" : "--allow-anonymous");
        return false;
    }
    if (o->approve != NULL || (o->rule_count == 0 && o->approver_count == 0))
        return true;
    (void)fprintf(stderr,
                  "sallyport serve: --rules and --approver judge nothing without --approve\n");
    return false;
}

int sp_serve_options_read(int argc, char **argv, struct sp_serve_options *o)
{
    char **args = calloc((size_t)argc + 2, sizeof *args);
    int opt;
    int result = SP_EXIT_OK;

    *o = (struct sp_serve_options){.listen = "ws://127.0.0.1:0",
                                   .max_connections = 1024,
                                   .max_processes = 10000,
                                   .session_ttl_s = 30,
                                   .closed_ttl_s = 30};
    o->rules = calloc((size_t)argc + 1, sizeof *o->rules);
    o->approvers = calloc((size_t)argc + 1, sizeof *o->approvers);
    if (args == NULL || o->rules == NULL || o->approvers == NULL) {
        free(args);
        return SP_EXIT_FAILED;
    }
    args[0] = (char *)(uintptr_t) "sallyport serve"; /* what getopt's complaints begin with */
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    optind = 1;
    while (result == SP_EXIT_OK && (opt = getopt_long(argc + 1, args, "", known, NULL)) != -1) {
        if (opt == OPT_HELP) {
            (void)fputs(help, stdout);
            result = -1;
        } else if (!take(o, opt)) {
            result = SP_EXIT_USAGE;
        }
    }
    if (result == SP_EXIT_OK && optind <= argc) {
        (void)fprintf(stderr, "sallyport serve: unexpected argument `%s` (see --help)\n",
                      args[optind]);
        result = SP_EXIT_USAGE;
    }
    if (result == SP_EXIT_OK && !fits_together(o))
        result = SP_EXIT_USAGE;
    free(args);
    return result;
}

void sp_serve_options_done(struct sp_serve_options *o)
{
    free(o->rules);
    free(o->approvers);
}
