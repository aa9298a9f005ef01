/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signal_session: one signal, or, without a name, TERM and after two seconds the end of the whole
 * tree. Answers when the process is gone, or a little later with what it is doing instead.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/auto.h"
#include "mcp/tool_priv.h"

#define TICK_MS     20   /* between two looks whether it is gone */
#define GRACE_MS    2000 /* between TERM and the end of the tree */
#define ENOUGH_MS   2500 /* for what must end */
#define COURTESY_MS 500  /* for what may */
#define PAUSE_MS    50   /* for what does not: a stop or a continuation takes effect */

struct signalling {
    struct sp_mcp_run *run;
    int id, number;
    bool kills; /* in the end */
    bool has_killed;
    uint64_t kill_ms, until_ms;
    struct sp_timer tick;
    struct sp_mcp_glance *glance;
};

static struct sp_loop *loop_of(const struct signalling *x)
{
    return sp_mcp_run_options(x->run)->loop;
}

static void free_signalling(struct sp_mcp_run *r)
{
    struct signalling *x = r->data;

    sp_loop_cancel(loop_of(x), &x->tick);
    sp_mcp_glance_forget(x->glance);
    free(x);
}

/* ---- told ---- */

static bool add_end(struct sp_buf *text, struct sp_buf *json, const struct sp_manager_view *v)
{
    const char *reason = sp_mcp_end_reason_name(v->end_reason);
    char room[16];

    if (!v->has_exited)
        return true;
    if (!sp_buf_printf(text, "Process exited with code %d\n", v->exit_code) ||
        !sp_buf_printf(json, ",\"exit_code\":%d", v->exit_code))
        return false;
    if (v->signal > 0 &&
        !sp_buf_printf(json, ",\"signal\":\"%s\"", sp_mcp_signal_name(v->signal, room)))
        return false;
    return reason == NULL || sp_buf_printf(json, ",\"end_reason\":\"%s\"", reason);
}

static void tell(struct signalling *x, const struct sp_look *look)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf json = {0};
    struct sp_manager_view v = {0};
    /* It may have been forgotten meanwhile: that it has ended is all there is to say. */
    const bool is_known = sp_manager_view(x->run->caller->manager, x->id, &v);
    const char *state =
        is_known ? sp_mcp_state_name(v.has_exited, v.is_output_held, look) : "exited";

    if (!sp_buf_printf(&text, "State: %s\n", state) ||
        !sp_buf_printf(&json, "{\"state\":\"%s\"", state) ||
        (is_known && !add_end(&text, &json, &v)) || !sp_buf_add(&json, "}", 1)) {
        sp_mcp_tool_no_memory(x->run);
        return;
    }
    const struct sp_mcp_result result = {.text = sp_mcp_view(&text),
                                         .structured = sp_mcp_view(&json)};
    sp_mcp_run_done(x->run, &result);
}

static void on_look(void *user, const struct sp_look *look)
{
    struct signalling *x = user;

    x->glance = NULL;
    tell(x, look);
}

static void finish(struct signalling *x)
{
    struct sp_manager_view v;

    if (sp_manager_view(x->run->caller->manager, x->id, &v) && (!v.has_exited || v.is_output_held))
        x->glance = sp_mcp_glance(x->run->caller, x->id, on_look, x);
    if (x->glance == NULL)
        tell(x, NULL);
}

/* ---- waiting ---- */

static bool is_gone(const struct signalling *x)
{
    struct sp_manager_view v;

    return !sp_manager_view(x->run->caller->manager, x->id, &v) || v.has_exited;
}

static void on_tick(struct sp_timer *t)
{
    struct signalling *x = SP_CONTAINER(t, struct signalling, tick);
    const uint64_t now = sp_loop_now(loop_of(x));

    if (is_gone(x) || now >= x->until_ms) {
        finish(x);
        return;
    }
    if (x->kills && !x->has_killed && now >= x->kill_ms) {
        x->has_killed = true;
        sp_manager_terminate(x->run->caller->manager, x->id, NULL, NULL);
    }
    if (!sp_loop_timer(loop_of(x), &x->tick, now + TICK_MS, on_tick))
        finish(x);
}

static uint64_t patience(const struct signalling *x)
{
    switch (x->number) {
    case SIGSTOP:
    case SIGTSTP:
    case SIGCONT:
    case SIGWINCH:
        return PAUSE_MS;
    default:
        return x->kills ? ENOUGH_MS : COURTESY_MS;
    }
}

/* ---- the beginning ---- */

/* TERM, SIGTERM, term. 0: no such signal. */
static int read_name(struct sp_str name)
{
    if (name.n > 3 && sp_str_eq_nocase((struct sp_str){name.p, 3}, SP_STR("SIG")))
        name = (struct sp_str){name.p + 3, name.n - 3};
    for (int i = 1; i < SIGRTMIN; i++) {
        const char *known = sigabbrev_np(i);

        if (known != NULL && sp_str_eq_nocase(name, sp_str_of(known)))
            return i;
    }
    return 0;
}

static void tell_ended(struct sp_deferred *d)
{
    finish(SP_CONTAINER(d, struct sp_mcp_run, deferred)->data);
}

static int begin(struct signalling *x, const struct sp_manager_view *v, struct sp_err *e)
{
    struct sp_manager *m = x->run->caller->manager;
    const uint64_t now = sp_loop_now(loop_of(x));

    if (v->has_exited) { /* saying it again changes nothing */
        sp_loop_defer(loop_of(x), &x->run->deferred, tell_ended);
        return 0;
    }
    x->kill_ms = now + GRACE_MS;
    x->until_ms = now + patience(x);
    if (!sp_loop_timer(loop_of(x), &x->tick, now + TICK_MS, on_tick))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "send a signal");
    if (x->number == SIGKILL) {
        x->has_killed = true;
        sp_manager_terminate(m, x->id, NULL, NULL);
    } else {
        sp_manager_signal(m, x->id, x->number, NULL, NULL);
        if (x->kills) /* one that is stopped hears it when it goes on */
            sp_manager_signal(m, x->id, SIGCONT, NULL, NULL);
    }
    return 0;
}

int sp_mcp_tool_signal(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_str name = {0};
    int id = 0;
    const struct sp_slot slots[] = {
        {.name = "session_id", .type = SP_SLOT_I32, .to = &id, .is_needed = true},
        {.name = "signal", .type = SP_SLOT_STRING, .to = &name},
    };
    const struct sp_slots all = {.items = slots, .count = sizeof slots / sizeof slots[0]};
    struct sp_manager_view v;

    if (sp_mcp_tool_read_arguments(&a, arguments, all, e) < 0)
        return sp_mcp_tool_refuse_arguments(r, e);
    const int number = name.p == NULL ? SIGTERM : read_name(name);
    if (number == 0)
        return sp_mcp_tool_refuse(
            r, e,
            "signal_session failed: there is no signal `%.*s`; names are TERM, "
            "INT, HUP, KILL, USR1 and so on",
            (int)(name.n > 40 ? 40 : name.n), name.p);
    if (!sp_manager_view(r->caller->manager, id, &v))
        return sp_mcp_tool_refuse(
            r, e, "signal_session failed: Unknown process id %d. " SP_MCP_UNKNOWN_HINT, id);
    struct signalling *x = calloc(1, sizeof *x);
    if (x == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "send a signal");
    *x = (struct signalling){
        .run = r, .id = id, .number = number, .kills = name.p == NULL || number == SIGKILL};
    r->data = x;
    r->free_data = free_signalling;
    r->session_id = id;
    return begin(x, &v, e);
}
