/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model is told about the place before its first call.
 */
#include "base/auto.h"
#include "base/buf.h"
#include "cli/escape_text.h"
#include "cli/mcp_server.h"

static bool add_place(struct sp_buf *out, const struct sp_mcp_server *s)
{
    return sp_buf_printf(out, "Commands run in ") && sp_plain_add(out, sp_str_of(s->cwd)) &&
           (s->place.is_local ||
            (sp_buf_printf(out, " on ") && sp_plain_add(out, sp_str_of(s->place.name)))) &&
           sp_buf_printf(out, ".\n");
}

static bool add_environments(struct sp_buf *out, const struct sp_mcp_server *s)
{
    bool ok = s->place_count == 0 || (sp_buf_printf(out, "That is the environment ") &&
                                      sp_plain_add(out, sp_str_of(s->place.name)) &&
                                      sp_buf_printf(out, "; others, by environment_id:"));

    for (size_t i = 0; ok && i < s->place_count; i++)
        ok = sp_buf_printf(out, i == 0 ? " " : ", ") &&
             sp_plain_add(out, sp_str_of(s->places[i].place.name)) && sp_buf_printf(out, " (") &&
             sp_plain_add(out, sp_str_of(s->places[i].cwd)) && sp_buf_printf(out, ")");
    return ok && (s->place_count == 0 || sp_buf_printf(out, ".\n"));
}

static bool add_sandbox(struct sp_buf *out, const struct sp_mcp_server *s)
{
    const bool has_network = s->is_open || s->policy.profile.has_network;

    if (s->is_open)
        return sp_buf_printf(out, "They are not confined.\n");
    return sp_buf_printf(out, "They are confined by the sandbox ") &&
           sp_plain_add(out, sp_str_of(s->policy_name)) &&
           sp_buf_printf(
               out,
               "%s; the network is %s. What the sandbox denied is told in lines "
               "that begin with `Sandbox denied:`; explain_denial says which rule it was.\n",
               strcmp(s->policy_name, ":workspace") == 0
                   ? ": everything can be read, and what is below the directory above and the "
                     "temporary directories can be written, but for .git and the like"
                   : "",
               has_network ? "open" : "closed");
}

static bool add_approvals(struct sp_buf *out, const struct sp_mcp_server *s, bool host_asks)
{
    if (s->approvals.options.policy.kind == SP_APPROVAL_NEVER)
        return sp_buf_printf(out, "No permission can be asked for: what is not allowed is "
                                  "refused.\n");
    if (!host_asks && !sp_approvers_has_others(s->approvers))
        return sp_buf_printf(out, "This host cannot ask a person, and no approver is configured: "
                                  "what the sandbox and the rules do not allow is refused, so do "
                                  "not ask for it.\n");
    return sp_buf_printf(out,
                         "To run a command outside of the sandbox, call exec_command with "
                         "sandbox_permissions \"require_escalated\" and a justification: %s is "
                         "asked. An answer that approval is pending means: repeat the same call.\n",
                         host_asks ? "a person" : "the configured approver");
}

static bool add_sessions(struct sp_buf *out, const struct sp_mcp_server *s)
{
    bool ok = sp_buf_printf(
        out, "A command that has not ended when a call answers is a session: write_stdin types "
             "into it or, without characters, waits for more; `until` ends a wait at a pattern, "
             "after silence, or when a port is open. `State:` says what the process is doing: "
             "`reading_terminal` waits for input. A call of a host that sends no progress token "
             "waits 47 s at most, whatever yield_time_ms says; its answer says so, and write_stdin "
             "waits on.\n");

    ok = ok && (s->flags->keeps_cancelled || s->config.mcp_keep_cancelled ||
                sp_buf_printf(out, "An exec_command that is cancelled before its answer ends its "
                                   "process; a later call does not.\n"));
    if (s->config.exited_ttl_s > 0)
        ok = ok && sp_buf_printf(out,
                                 "The output of a session stays readable with read_output for "
                                 "%llu s after its end was told; then its id is unknown.\n",
                                 (unsigned long long)s->config.exited_ttl_s);
    if (s->config.idle_ttl_s > 0)
        ok = ok && sp_buf_printf(out, "A session that no call uses for %llu s is ended.\n",
                                 (unsigned long long)s->config.idle_ttl_s);
    if (s->flags->listen_count == 0)
        return ok && sp_buf_printf(out, "Sessions end with the connection.\n");
    return ok && s->config.detached_ttl_s > 0
               ? sp_buf_printf(out,
                               "Sessions outlive the connection; without one for %llu s they "
                               "end.\n",
                               (unsigned long long)s->config.detached_ttl_s)
               : ok;
}

char *sp_mcp_instructions(const struct sp_mcp_server *s, bool host_asks)
{
    auto_buf struct sp_buf out = {0};

    if (!add_place(&out, s) || !add_environments(&out, s) || !add_sandbox(&out, s) ||
        !add_approvals(&out, s, host_asks) || !add_sessions(&out, s))
        return NULL;
    return strndup(out.data, out.len);
}
