/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands that sallyport runs of itself, with a SOCK_SEQPACKET socket to the parent as stdin:
 * `cell` runs commands for a server, `http` does its outgoing HTTP requests.
 */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/cell_child.h"
#include "core/http_worker.h"
#include "os/spawn.h"

/* false: a person typed the command. */
static bool has_parent_socket(const char *name, int argc)
{
    int type = 0;
    socklen_t len = sizeof type;

    if (argc == 0 && getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
        type == SOCK_SEQPACKET)
        return true;
    (void)fprintf(stderr, "sallyport %s is internal: `sallyport serve` starts it\n", name);
    return false;
}

static int cell_main(int argc, char **argv)
{
    struct sp_err e = {0};

    (void)argv;
    if (!has_parent_socket("cell", argc))
        return SP_EXIT_USAGE;
    (void)prctl(PR_SET_NAME, "sallyport-cell"); /* else it is a number: /proc/self/fd/N was run */
    if (sp_spawn_reserve(&e) < 0)
        return sp_cli_complain(&e);
    return sp_cell_child_run(STDIN_FILENO, &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static int http_main(int argc, char **argv)
{
    struct sp_err e = {0};
    sigset_t none;

    (void)argv;
    if (!has_parent_socket("http", argc))
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

const struct sp_cli_command sp_command_cell = {.name = "cell", .main = cell_main};
const struct sp_cli_command sp_command_http = {.name = "http", .main = http_main};
