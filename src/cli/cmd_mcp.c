/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "cli/cli.h"
#include "cli/mcp_selftest.h"
#include "cli/mcp_server.h"
#include "mcp/lines.h"

static int serve(const struct sp_mcp_flags *flags)
{
    struct sp_mcp_server s = {.flags = flags};
    struct sp_err e = {0};
    int r = sp_mcp_server_begin(&s, &e);

    if (r == 0)
        r = sp_mcp_server_listen(&s, &e);
    if (r == 0)
        r = sp_loop_run(s.loop, &e);
    sp_mcp_server_end(&s);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static int relay(const char *path)
{
    struct sp_err e = {0};
    const int r = sp_mcp_relay(path, &e);

    return r != 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

int sp_cmd_mcp(int argc, char **argv)
{
    struct sp_mcp_flags flags = {0};
    int status = sp_mcp_flags_read(argc, argv, &flags);

    if (status == SP_EXIT_OK) {
        (void)sp_log_set_level("error");
        if (flags.connect != NULL)
            status = relay(flags.connect + 7);
        else if (flags.is_selftest)
            status = sp_mcp_selftest(argc, argv);
        else
            status = serve(&flags);
    }
    sp_mcp_flags_done(&flags);
    return status < 0 ? SP_EXIT_OK : status;
}
