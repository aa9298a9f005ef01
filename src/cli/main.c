/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main(), what all commands use, and the commands that sallyport runs of itself, with a
 * SOCK_SEQPACKET socket to the parent as stdin: `cell`, `http`, `proxy` and `resolver`.
 */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/redact.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "core/cell_child.h"
#include "core/http_worker.h"
#include "os/spawn.h"
#include "proxy/proxy.h"
#include "proxy/resolver.h"

/* ---- internal commands ---- */

bool sp_cli_has_parent(const char *name, int argc)
{
    int type = 0;
    socklen_t len = sizeof type;

    if (argc == 0 && getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
        type == SOCK_SEQPACKET)
        return true;
    (void)fprintf(stderr, "sallyport %s is internal: `sallyport serve` starts it\n", name);
    return false;
}

/* Runs commands for a server. */
static int cell_main(int argc, char **argv)
{
    struct sp_err e = {0};

    (void)argv;
    if (!sp_cli_has_parent("cell", argc))
        return SP_EXIT_USAGE;
    (void)prctl(PR_SET_NAME, "sallyport-cell"); /* else it is a number: /proc/self/fd/N was run */
    if (sp_spawn_reserve(&e) < 0)
        return sp_cli_complain(&e);
    return sp_cell_child_run(STDIN_FILENO, &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

/* Does the outgoing HTTP requests of a server. */
static int http_main(int argc, char **argv)
{
    struct sp_err e = {0};
    sigset_t none;

    (void)argv;
    if (!sp_cli_has_parent("http", argc))
        return SP_EXIT_USAGE;
    (void)prctl(PR_SET_NAME, "sallyport-http");
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
#ifndef __SANITIZE_ADDRESS__         /* LeakSanitizer attaches to the process at its end */
    (void)prctl(PR_SET_DUMPABLE, 0); /* tokens are in our memory */
#endif
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* libcurl reads international domain names in it */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    return sp_web_worker_run(STDIN_FILENO, &e) < 0 ? SP_EXIT_FAILED : SP_EXIT_OK;
}

/* A process of the managed network, which confines itself. */
static int run_network_process(const char *name, const char *comm, int argc,
                               int (*run)(int socket, struct sp_err *e))
{
    struct sp_err e = {0};
    sigset_t none;

    if (!sp_cli_has_parent(name, argc))
        return SP_EXIT_USAGE;
    (void)prctl(PR_SET_NAME, comm);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    /* Not exit(): threads may be inside getaddrinfo, and LeakSanitizer needs calls that the process
     * has given up. */
    _exit(run(STDIN_FILENO, &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK);
}

/* Carries the connections of one managed cell. */
static int proxy_main(int argc, char **argv)
{
    (void)argv;
    return run_network_process("proxy", "sallyport-proxy", argc, sp_proxy_run);
}

/* Looks up names for all of them. */
static int resolver_main(int argc, char **argv)
{
    (void)argv;
    return run_network_process("resolver", "sallyport-dns", argc, sp_resolver_run);
}

const struct sp_cli_command sp_command_cell = {.name = "cell", .main = cell_main};
const struct sp_cli_command sp_command_http = {.name = "http", .main = http_main};
const struct sp_cli_command sp_command_proxy = {.name = "proxy", .main = proxy_main};
const struct sp_cli_command sp_command_resolver = {.name = "resolver", .main = resolver_main};

/* ---- for all commands ---- */

int sp_cli_complain(const struct sp_err *e)
{
    char text[640];

    sp_plain_say("sallyport", sp_error_text(e, text, sizeof text)); /* may quote a server */
    return SP_EXIT_FAILED;
}

void sp_cli_warn(void *user, const char *text)
{
    (void)user;
    sp_plain_say("sallyport", text);
}

int sp_cli_print(struct sp_str text, struct sp_err *e)
{
    return fwrite(text.p, 1, text.n, stdout) == text.n && fflush(stdout) == 0 && ferror(stdout) == 0
               ? 0
               : sp_fail(e, SP_E_SYSTEM, errno, "write to stdout");
}

struct sp_str *sp_cli_words(char *const *words, uint32_t *ret_count)
{
    uint32_t count = 0;

    while (words[count] != NULL)
        count++;
    struct sp_str *all = calloc((size_t)count + 1, sizeof *all);
    for (uint32_t i = 0; all != NULL && i < count; i++)
        all[i] = sp_str_of(words[i]);
    *ret_count = count;
    return all;
}

int sp_cli_load_config(const struct sp_config_options *o, const char *before, struct sp_config *ret,
                       struct sp_err *e)
{
    const struct sp_config_request ask = {.file = o == NULL ? NULL : o->file,
                                          .sets = o == NULL ? NULL : o->sets.items,
                                          .env = environ};
    const int r = sp_config_load(&ask, ret, e);

    for (char *const *w = r < 0 || before == NULL ? NULL : ret->warnings; w != NULL && *w != NULL;
         w++)
        sp_plain_say(before, *w);
    return r;
}

/* ---- main ---- */

/* Other users can read /proc/PID/cmdline: each URL there loses its query, which may hold a token.
 * The copies that argv points to instead live as long as the process. */
static bool hide_tokens(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!sp_redact_is_needed(argv[i]))
            continue;
        char *copy = strdup(argv[i]);
        if (copy == NULL)
            return false;
        sp_redact_in_place(argv[i]);
        argv[i] = copy;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!hide_tokens(argc, argv)) {
        (void)fputs("sallyport: out of memory\n", stderr);
        return SP_EXIT_FAILED;
    }
    return sp_verbs_run(argc - 1, argv + 1);
}
