/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/ended.h"

#include <string.h>

#include "engine/manager.h"

#define COMMAND_MAX 80 /* bytes of a command that a note shows */

static struct sp_mcp_ended *find(struct sp_mcp_caller *c, int session_id)
{
    for (uint32_t i = 0; i < c->ended_count; i++)
        if (c->ended[i].session_id == session_id)
            return &c->ended[i];
    return NULL;
}

static void forget(struct sp_mcp_caller *c, struct sp_mcp_ended *e)
{
    const size_t behind = (size_t)(&c->ended[c->ended_count] - (e + 1));

    memmove(e, e + 1, behind * sizeof *e);
    c->ended_count--;
}

void sp_mcp_ended_add(struct sp_mcp_caller *c, int session_id)
{
    if (c->ended_count == SP_MCP_ENDED_MAX)
        forget(c, &c->ended[0]);
    c->ended[c->ended_count++] = (struct sp_mcp_ended){.session_id = session_id};
}

bool sp_mcp_ended_list(struct sp_mcp_caller *c, int session_id)
{
    struct sp_mcp_ended *e = find(c, session_id);

    if (e == NULL)
        return false;
    forget(c, e);
    return true;
}

static bool add_line(struct sp_buf *out, const struct sp_manager_view *v)
{
    struct sp_str command = v->command;

    if (command.n > COMMAND_MAX)
        command.n = COMMAND_MAX;
    return (out->len == 0 || sp_buf_add(out, "\n", 1)) &&
           sp_buf_printf(out, "Session %d has ended with code %d: ", v->process_id, v->exit_code) &&
           sp_question_add_visible(out, command, false) &&
           (command.n == v->command.n || sp_buf_add_str(out, SP_STR(" ...")));
}

bool sp_mcp_ended_add_note(struct sp_mcp_caller *c, int told, struct sp_buf *out)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < c->ended_count; i++) {
        struct sp_mcp_ended *e = &c->ended[i];
        struct sp_manager_view v;

        if (!e->is_noted && e->session_id != told &&
            sp_manager_view(c->manager, e->session_id, &v) && v.has_exited && !v.is_answered)
            ok = add_line(out, &v);
        e->is_noted = true;
    }
    return ok;
}
