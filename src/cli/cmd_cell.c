/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/cell_child.h"
#include "os/spawn.h"

int sp_cmd_cell(int argc, char **argv)
{
    struct sp_err e = {0};
    int type = 0;
    socklen_t len = sizeof type;

    (void)argv;
    if (argc != 0 || getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
        type != SOCK_SEQPACKET) {
        (void)fprintf(stderr, "sallyport cell is internal: `sallyport serve` starts it\n");
        return SP_EXIT_USAGE;
    }
    (void)prctl(PR_SET_NAME, "sallyport-cell"); /* it was run by its descriptor's name */
    if (sp_spawn_reserve(&e) < 0)
        return sp_cli_complain(&e);
    return sp_cell_child_run(STDIN_FILENO, &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}
