/* SPDX-License-Identifier: Apache-2.0 */
/* list_sessions, and resize_session. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "mcp/ended.h"
#include "mcp/tool_priv.h"

/* ---- list_sessions ---- */

struct list;

struct session {
    struct list *list;
    int id, exit_code;
    struct sp_str command, cwd;
    struct sp_str environment; /* n 0: there is only one */
    bool is_tty, has_exited, is_held;
    bool is_news; /* it has ended since the last list, and no call has told so */
    int64_t started_at_ms;
    struct sp_mcp_glance *glance; /* NULL: nobody is asked, or has answered */
    const char *state;
};

/* All are asked at once what they are doing: the list is told when the last one has said so. */
struct list {
    struct sp_mcp_run *run;
    struct session *sessions;
    uint32_t count, room;
    uint32_t awaited;
    bool is_out_of_memory;
    struct sp_keep keep;
};

static void free_list(struct sp_mcp_run *r)
{
    struct list *l = r->data;

    for (uint32_t i = 0; i < l->count; i++)
        sp_mcp_glance_forget(l->sessions[i].glance);
    sp_keep_done(&l->keep);
    free(l);
}

static bool add_json(struct sp_buf *out, const struct session *s)
{
    return sp_buf_printf(out, "{\"session_id\":%d,\"command\":", s->id) &&
           sp_json_add_str(out, s->command) && sp_buf_add_str(out, SP_STR(",\"cwd\":")) &&
           sp_json_add_str(out, s->cwd) &&
           (s->environment.n == 0 || (sp_buf_add_str(out, SP_STR(",\"environment_id\":")) &&
                                      sp_json_add_str(out, s->environment))) &&
           sp_buf_printf(out, ",\"tty\":%s,\"state\":\"%s\"", s->is_tty ? "true" : "false",
                         s->state) &&
           (!s->has_exited || sp_buf_printf(out, ",\"exit_code\":%d", s->exit_code)) &&
           (!s->is_news || sp_buf_add_str(out, SP_STR(",\"ended_since_last_list\":true"))) &&
           sp_buf_printf(out, ",\"started_at_ms\":%" PRId64 "}", s->started_at_ms);
}

static bool add_line(struct sp_buf *out, const struct session *s)
{
    return sp_buf_printf(out, "%d %s", s->id, s->state) &&
           (!s->has_exited || sp_buf_printf(out, " (code %d)", s->exit_code)) &&
           (s->environment.n == 0 ||
            sp_buf_printf(out, " in " SP_STR_FMT, SP_STR_ARG(s->environment))) &&
           sp_buf_printf(out, "%s: ", s->is_tty ? " tty" : "") &&
           sp_question_add_visible(out, s->command, false) &&
           (!s->is_news || sp_buf_add_str(out, SP_STR(" [ended since the last list]"))) &&
           sp_buf_add(out, "\n", 1);
}

static bool add_all(struct sp_buf *text, struct sp_buf *structured, const struct list *l)
{
    bool ok = sp_buf_add_str(structured, SP_STR("{\"sessions\":["));

    for (uint32_t i = 0; ok && i < l->count; i++)
        ok = add_line(text, &l->sessions[i]) && (i == 0 || sp_buf_add(structured, ",", 1)) &&
             add_json(structured, &l->sessions[i]);
    return ok && (l->count != 0 || sp_buf_add_str(text, SP_STR("There are no sessions.\n"))) &&
           sp_buf_add_str(structured, SP_STR("]}"));
}

static void tell_list(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);
    const struct list *l = r->data;
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf structured = {0};

    if (l->is_out_of_memory || !add_all(&text, &structured, l)) {
        sp_mcp_tool_no_memory(r);
        return;
    }
    const struct sp_mcp_result result = {.text = sp_mcp_view(&text),
                                         .structured = sp_mcp_view(&structured)};
    sp_mcp_run_done(r, &result);
}

static void on_look(void *user, const struct sp_look *look)
{
    struct session *s = user;
    struct list *l = s->list;

    s->glance = NULL;
    s->state = sp_mcp_state_name(s->has_exited, s->is_held, look);
    if (--l->awaited == 0)
        sp_loop_defer(sp_mcp_run_options(l->run)->loop, &l->run->deferred, tell_list);
}

static void count_one(void *user, const struct sp_manager_view *v)
{
    (void)v;
    (*(uint32_t *)user)++;
}

static void take_one(void *user, const struct sp_manager_view *v)
{
    struct list *l = user;

    if (l->count == l->room)
        return;
    struct session *s = &l->sessions[l->count];
    *s = (struct session){.list = l,
                          .id = v->process_id,
                          .exit_code = v->exit_code,
                          .is_tty = v->is_tty,
                          .has_exited = v->has_exited,
                          .is_held = v->is_output_held,
                          .is_news =
                              sp_mcp_ended_list(l->run->caller, v->process_id) && !v->is_answered,
                          .started_at_ms = v->started_at_ms,
                          .state = sp_mcp_state_name(v->has_exited, v->is_output_held, NULL)};
    if (sp_keep_str(&l->keep, v->command, &s->command) && sp_keep_str(&l->keep, v->cwd, &s->cwd) &&
        (sp_mcp_run_options(l->run)->manager->environment_count < 2 ||
         sp_keep_str(&l->keep, sp_str_of(v->environment), &s->environment)))
        l->count++;
    else
        l->is_out_of_memory = true;
}

/* Oldest first; ids are random. */
static int by_start(const void *a, const void *b)
{
    const struct session *x = a;
    const struct session *y = b;

    if (x->started_at_ms != y->started_at_ms)
        return x->started_at_ms < y->started_at_ms ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

int sp_mcp_tool_list(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct list *l;
    uint32_t count = 0;

    if (sp_mcp_tool_read_arguments(&a, arguments, (struct sp_slots){0}, e) < 0)
        return sp_mcp_tool_refuse_arguments(r, e);
    sp_manager_each(r->caller->manager, count_one, &count);
    l = calloc(1, sizeof *l);
    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "list sessions");
    l->run = r;
    r->data = l;
    r->free_data = free_list;
    l->sessions = sp_keep_alloc(&l->keep, count * sizeof *l->sessions);
    if (l->sessions == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "list sessions");
    l->room = count;
    sp_manager_each(r->caller->manager, take_one, l);
    if (l->count > 1)
        qsort(l->sessions, l->count, sizeof *l->sessions, by_start);
    for (uint32_t i = 0; i < l->count; i++) {
        struct session *s = &l->sessions[i];

        if (!s->has_exited || s->is_held)
            s->glance = sp_mcp_glance(r->caller, s->id, on_look, s);
        l->awaited += s->glance != NULL;
    }
    if (l->awaited == 0)
        sp_loop_defer(sp_mcp_run_options(r)->loop, &r->deferred, tell_list);
    return 0;
}

/* ---- resize_session ---- */

#define RESIZE_MS 2000 /* then nobody knows whether it was done */

/* Lives until the run is gone and the manager has answered. */
struct resizing {
    struct sp_mcp_run *run; /* NULL: gone */
    int id;
    uint16_t rows, cols;
    bool is_awaited, was_done;
    struct sp_timer deadline;
};

static void free_resizing(struct sp_mcp_run *r)
{
    struct resizing *x = r->data;

    sp_loop_cancel(sp_mcp_run_options(r)->loop, &x->deadline);
    x->run = NULL;
    if (!x->is_awaited)
        free(x);
}

static void tell_resized(struct sp_mcp_run *r)
{
    const struct resizing *x = r->data;
    auto_buf struct sp_buf text = {0};

    if (!x->was_done) {
        sp_mcp_run_fail(r,
                        "resize_session failed: the terminal of session %d could not be resized; "
                        "it may just have ended (list_sessions)",
                        x->id);
        return;
    }
    if (!sp_buf_printf(&text, "The terminal of session %d has %u rows and %u columns.", x->id,
                       x->rows, x->cols)) {
        sp_mcp_tool_no_memory(r);
        return;
    }
    const struct sp_mcp_result result = {.text = sp_mcp_view(&text)};
    sp_mcp_run_done(r, &result);
}

static void on_deadline(struct sp_timer *t)
{
    tell_resized(SP_CONTAINER(t, struct resizing, deadline)->run);
}

static void tell_soon(struct sp_deferred *d)
{
    tell_resized(SP_CONTAINER(d, struct sp_mcp_run, deferred));
}

/* Perhaps from within the question, for want of memory: the loop tells it. */
static void on_resized(void *user, bool was_done)
{
    struct resizing *x = user;

    x->is_awaited = false;
    x->was_done = was_done;
    if (x->run == NULL)
        free(x);
    else
        sp_loop_defer(sp_mcp_run_options(x->run)->loop, &x->run->deferred, tell_soon);
}

static int check(const struct sp_mcp_run *r, int id, char why[160])
{
    struct sp_manager_view v;

    if (!sp_manager_view(r->caller->manager, id, &v))
        return snprintf(why, 160, "Unknown process id %d", id);
    if (!v.is_tty)
        return snprintf(why, 160, "session %d has no terminal; start it with tty=true", id);
    return v.has_exited ? snprintf(why, 160, "session %d has ended", id) : 0;
}

int sp_mcp_tool_resize(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct resizing asked = {.run = r};
    const struct sp_slot slots[] = {
        {.name = "session_id", .type = SP_SLOT_I32, .to = &asked.id, .is_needed = true},
        {.name = "rows", .type = SP_SLOT_U16, .to = &asked.rows, .is_needed = true},
        {.name = "cols", .type = SP_SLOT_U16, .to = &asked.cols, .is_needed = true},
    };
    const struct sp_slots all = {.items = slots, .count = sizeof slots / sizeof slots[0]};
    char why[160];

    if (sp_mcp_tool_read_arguments(&a, arguments, all, e) < 0)
        return sp_mcp_tool_refuse_arguments(r, e);
    if (check(r, asked.id, why) != 0)
        return sp_mcp_tool_refuse(r, e, "resize_session failed: %s. " SP_MCP_UNKNOWN_HINT, why);
    struct resizing *x = malloc(sizeof *x);
    if (x == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "resize a terminal");
    *x = asked;
    r->data = x;
    r->free_data = free_resizing;
    r->session_id = x->id;
    struct sp_loop *loop = sp_mcp_run_options(r)->loop;
    if (!sp_loop_timer(loop, &x->deadline, sp_loop_now(loop) + RESIZE_MS, on_deadline))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "resize a terminal");
    x->is_awaited = true;
    sp_manager_resize(r->caller->manager, x->id, x->rows, x->cols, on_resized, x);
    return 0;
}
