/* SPDX-License-Identifier: Apache-2.0 */
/* read_output: what is kept of a session's output, by address; also after its end. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/auto.h"
#include "mcp/output.h"
#include "mcp/tool_priv.h"

struct reading {
    struct sp_mcp_run *run;
    struct sp_mcp_output found;
    bool has_exited, is_held;
    int exit_code;
    struct sp_mcp_glance *glance;
};

static void free_reading(struct sp_mcp_run *r)
{
    struct reading *x = r->data;

    sp_mcp_glance_forget(x->glance);
    sp_mcp_output_done(&x->found);
    free(x);
}

/* ---- told ---- */

static bool add_text(struct sp_buf *out, const struct reading *x, const char *state)
{
    const struct sp_mcp_output *o = &x->found;

    if (!sp_buf_printf(out, "Bytes: %" PRIu64 "-%" PRIu64 " of %" PRIu64 "\n", o->from_byte,
                       o->next_byte, o->end_byte))
        return false;
    if (o->omitted_bytes != 0 &&
        !sp_buf_printf(out, "Omitted: %" PRIu64 " bytes that are no longer kept\n",
                       o->omitted_bytes))
        return false;
    if (o->has_matches && !sp_buf_printf(out, "Matches: %" PRIu64 "\n", o->matches))
        return false;
    if (x->has_exited && !sp_buf_printf(out, "Process exited with code %d\n", x->exit_code))
        return false;
    return sp_buf_printf(out, "State: %s\nOutput:\n", state) &&
           sp_buf_add_str(out, sp_mcp_view(&o->text));
}

static bool add_structured(struct sp_buf *out, const struct reading *x, const char *state)
{
    const struct sp_mcp_output *o = &x->found;

    return sp_buf_printf(out, "{\"state\":\"%s\"", state) &&
           (!x->has_exited || sp_buf_printf(out, ",\"exit_code\":%d", x->exit_code)) &&
           sp_buf_printf(
               out,
               ",\"from_byte\":%" PRIu64 ",\"next_byte\":%" PRIu64 ",\"first_byte\":%" PRIu64
               ",\"end_byte\":%" PRIu64 ",\"omitted_bytes\":%" PRIu64,
               o->from_byte, o->next_byte, o->first_byte, o->end_byte, o->omitted_bytes) &&
           (!o->has_matches || sp_buf_printf(out, ",\"matches\":%" PRIu64, o->matches)) &&
           sp_mcp_run_add_output(out, x->run, sp_mcp_view(&o->text)) && sp_buf_add(out, "}", 1);
}

static void tell(struct reading *x, const struct sp_look *look)
{
    const char *state = sp_mcp_state_name(x->has_exited, x->is_held, look);
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf structured = {0};

    if (!add_text(&text, x, state) || !add_structured(&structured, x, state)) {
        sp_mcp_tool_no_memory(x->run);
        return;
    }
    const struct sp_mcp_result result = {.text = sp_mcp_view(&text),
                                         .structured = sp_mcp_view(&structured)};
    sp_mcp_run_done(x->run, &result);
}

static void on_look(void *user, const struct sp_look *look)
{
    struct reading *x = user;

    x->glance = NULL;
    tell(x, look);
}

static void tell_now(struct sp_deferred *d)
{
    tell(SP_CONTAINER(d, struct sp_mcp_run, deferred)->data, NULL);
}

/* ---- arguments ---- */

struct asked {
    int id;
    struct sp_mcp_output_ask ask;
    struct sp_str view;
};

static int check(struct asked *a, struct sp_err *e)
{
    struct sp_mcp_output_ask *ask = &a->ask;

    if (ask->has_line + ask->has_grep > 1 || (ask->has_line && ask->has_from_byte))
        return sp_fail(
            e, SP_E_INVALID, 0,
            "give one of `from_byte`, `line` and `grep` (and from_byte beside grep to go "
            "on with a search)");
    if (ask->limit == 0 || ask->limit > SP_MCP_OUTPUT_LIMIT_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "`limit` is a number from 1 to %d",
                       SP_MCP_OUTPUT_LIMIT_MAX);
    if (ask->context > SP_MCP_OUTPUT_CONTEXT_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "`context` is at most %d lines",
                       SP_MCP_OUTPUT_CONTEXT_MAX);
    if (a->view.p == NULL || sp_str_eq(a->view, SP_STR("raw")))
        return 0;
    ask->is_plain = true;
    return sp_str_eq(a->view, SP_STR("plain"))
               ? 0
               : sp_fail(e, SP_E_INVALID, 0, "`view` is `raw` or `plain`");
}

static int read_arguments(struct sp_arguments *a, struct sp_str text, struct asked *ret,
                          struct sp_err *e)
{
    struct sp_mcp_output_ask *ask = &ret->ask;
    const struct sp_slot slots[] = {
        {.name = "session_id", .type = SP_SLOT_I32, .to = &ret->id, .is_needed = true},
        {.name = "from_byte",
         .type = SP_SLOT_U64,
         .to = &ask->from_byte,
         .has = &ask->has_from_byte},
        {.name = "line", .type = SP_SLOT_U64, .to = &ask->line, .has = &ask->has_line},
        {.name = "grep", .type = SP_SLOT_STRING, .to = &ask->grep, .has = &ask->has_grep},
        {.name = "context", .type = SP_SLOT_U64, .to = &ask->context},
        {.name = "limit", .type = SP_SLOT_U64, .to = &ask->limit},
        {.name = "view", .type = SP_SLOT_STRING, .to = &ret->view},
    };
    const struct sp_slots all = {.items = slots, .count = sizeof slots / sizeof slots[0]};
    const int r = sp_mcp_tool_read_arguments(a, text, all, e);

    return r < 0 ? r : check(ret, e);
}

/* ---- the beginning ---- */

static int begin(struct reading *x, const struct sp_manager_view *v)
{
    struct sp_mcp_run *r = x->run;

    x->has_exited = v->has_exited;
    x->is_held = v->is_output_held;
    x->exit_code = v->exit_code;
    r->session_id = v->process_id;
    if (!v->has_exited || v->is_output_held)
        x->glance = sp_mcp_glance(r->caller, v->process_id, on_look, x);
    if (x->glance == NULL)
        sp_loop_defer(sp_mcp_run_options(r)->loop, &r->deferred, tell_now);
    return 0;
}

int sp_mcp_tool_read(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct asked asked = {.ask = {.context = SP_MCP_OUTPUT_CONTEXT, .limit = SP_MCP_OUTPUT_LIMIT}};
    struct sp_mcp_output found = {0};
    struct sp_manager_view v;

    if (read_arguments(&a, arguments, &asked, e) < 0)
        return sp_mcp_tool_refuse_arguments(r, e);
    if (!sp_manager_view(r->caller->manager, asked.id, &v))
        return sp_mcp_tool_refuse(
            r, e, "read_output failed: Unknown process id %d. " SP_MCP_UNKNOWN_HINT, asked.id);
    if (sp_mcp_output_read(&v, &asked.ask, &found, e) < 0) {
        const struct sp_err why = *e;

        return e->code == SP_E_SYSTEM ? -SP_E_SYSTEM
                                      : sp_mcp_tool_refuse(r, e, "read_output failed: %s", why.msg);
    }
    struct reading *x = calloc(1, sizeof *x);
    if (x == NULL) {
        sp_mcp_output_done(&found);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read output");
    }
    x->run = r;
    x->found = found;
    r->data = x;
    r->free_data = free_reading;
    return begin(x, &v);
}
