/* SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/http_worker.h"

int sp_cmd_http(int argc, char **argv)
{
    struct sp_err e = {0};
    sigset_t none;
    int type = 0;
    socklen_t len = sizeof type;

    (void)argv;
    if (argc != 0 || getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
        type != SOCK_SEQPACKET) {
        (void)fprintf(stderr, "sallyport http is internal: `sallyport serve` starts it\n");
        return SP_EXIT_USAGE;
    }
    (void)prctl(PR_SET_NAME, "sallyport-http"); /* it was run by its descriptor's name */
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
#ifndef __SANITIZE_ADDRESS__         /* which looks at itself from outside when it ends */
    (void)prctl(PR_SET_DUMPABLE, 0); /* tokens are in our memory */
#endif
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* international domain names come in it */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    return sp_web_worker_run(STDIN_FILENO, &e) < 0 ? SP_EXIT_FAILED : SP_EXIT_OK;
}
