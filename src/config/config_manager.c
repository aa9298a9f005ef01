/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_manager.h"

void sp_config_manager(const struct sp_config *c, struct sp_manager_options *ret)
{
    ret->poll_max_ms = c->poll_max_ms;
    ret->output_allowance =
        (struct sp_allowance){.unit = SP_ALLOWANCE_TOKENS, .limit = c->tool_output_token_limit};
    ret->notify_at = c->notify_at;
    ret->hides_denied_start = !c->report_denied_start;
    ret->exited_ttl_ms = c->exited_ttl_s * 1000;
    ret->idle_ttl_ms = c->idle_ttl_s * 1000;
    ret->refuses_login_shell = !c->allow_login_shell;
    ret->has_no_timeout = c->has_write_stdin_no_timeout;
    ret->has_additional_permissions = c->has_exec_permission_approvals;
    ret->keeps_line_endings = c->preserve_line_endings;
}
