/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_command: starts a command; or, with a key that was said before, answers for the session that
 * it started then. A key whose call has not come so far is waited for.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "mcp/tool_priv.h"

static int begin(struct sp_mcp_work *c, struct sp_err *e);

/* ---- a key ---- */

/* The call of a key says what came of it; its item is nobody's any more. */
static void settle(struct sp_mcp_work *c, int session_id)
{
    struct sp_mcp_memory_item *i = c->item;

    c->item = NULL;
    if (i != NULL) {
        i->run = NULL;
        i->session_id = session_id;
    }
}

static void begin_again(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);
    struct sp_err e = {0};

    if (r->is_cancelled) /* meanwhile: it starts nothing */
        sp_mcp_run_fail(r, "aborted by user");
    else if (begin(r->data, &e) < 0)
        sp_mcp_run_fail(r, "%s", e.msg);
}

/* Those who wait for it look again. */
static void wake(struct sp_mcp_memory_item *i)
{
    while (i != NULL && i->waits != NULL) {
        struct sp_mcp_run *r = i->waits->run;

        sp_mcp_memory_unwait(i->waits);
        r->hurry = NULL;
        sp_loop_defer(sp_mcp_run_options(r)->loop, &r->deferred, begin_again);
    }
}

/* They get the same refusal: nobody is asked the same again. */
static void refuse_all(struct sp_mcp_memory_item *i, struct sp_str text)
{
    const struct sp_mcp_result result = {.is_error = true, .text = text};

    while (i != NULL && i->waits != NULL) {
        struct sp_mcp_run *r = i->waits->run;

        sp_mcp_memory_unwait(i->waits);
        sp_mcp_run_done(r, &result);
    }
}

static void on_begun(struct sp_mcp_run *r)
{
    const struct sp_mcp_work *c = r->data;

    wake(c->item);
}

static void on_hurry(struct sp_mcp_run *r)
{
    struct sp_mcp_work *c = r->data;

    sp_mcp_memory_unwait(&c->wait);
    r->hurry = NULL;
    sp_mcp_run_fail(r, "the first call with this key has not started its command yet; repeat the "
                       "same call");
}

/* ---- what came of it ---- */

static void on_reply(void *user, const struct sp_reply *reply)
{
    struct sp_mcp_work *c = user;
    struct sp_mcp_memory_item *i = c->item;

    c->run->begun = NULL;
    if (i != NULL && reply->fault == SP_FAULT_NONE) {
        settle(c, reply->process_id);
        wake(i);
    } else if (i != NULL && reply->fault == SP_FAULT_ABORTED && c->run->session_id != 0) {
        settle(c, c->run->session_id); /* the command goes on */
        wake(i);
    } else if (i != NULL) {
        settle(c, 0);
        if (reply->fault == SP_FAULT_ABORTED)
            wake(i); /* one of them begins in its place */
        else
            refuse_all(i, reply->text);
        sp_mcp_memory_forget(c->run->caller, i);
    }
    sp_mcp_work_answer(c, reply);
}

static void on_poll(void *user, const struct sp_reply *reply)
{
    struct sp_mcp_work *c = user;
    struct sp_manager_view v;

    /* Another call may have heard of its end meanwhile. */
    if (reply->fault == SP_FAULT_UNKNOWN &&
        sp_manager_view(c->run->caller->manager, c->write.session_id, &v))
        sp_mcp_work_answer_view(c, &v);
    else
        sp_mcp_work_answer(c, reply);
}

/* ---- the session that a key has started ---- */

static void answer_known(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);
    struct sp_mcp_work *c = r->data;
    struct sp_manager_view v;

    if (c->write.session_id == 0)
        sp_mcp_run_fail(r, "the first call with this key did its work without a session; nothing "
                           "was done again");
    else if (sp_manager_view(r->caller->manager, c->write.session_id, &v))
        sp_mcp_work_answer_view(c, &v);
    else
        sp_mcp_run_fail(r,
                        "the command of this key has ended and its output is no longer kept; use "
                        "another key to run it again");
}

static int poll_session(struct sp_mcp_work *c, int session_id, struct sp_err *e)
{
    struct sp_mcp_run *r = c->run;
    struct sp_manager_view v;

    c->write = (struct sp_write_ask){
        .call_id = sp_str_of(r->call_id),
        .session_id = session_id,
        .yield = {true, c->exec.yield.has_yield_time ? c->exec.yield.yield_time_ms : 10000},
        .has_max_tokens = c->exec.has_max_tokens,
        .max_tokens = c->exec.max_tokens,
        .until = c->until.items,
        .until_count = c->until.count,
    };
    if (r->waits_for_end)
        c->write.yield.yield_time_ms = UINT64_MAX;
    r->session_id = session_id;
    if (session_id != 0 && sp_manager_view(r->caller->manager, session_id, &v) && !v.is_answered)
        return sp_manager_write(r->caller->manager, &c->write, on_poll, c, &r->engine_call, e);
    sp_loop_defer(sp_mcp_run_options(r)->loop, &r->deferred, answer_known);
    return 0;
}

/* ---- the beginning ---- */

static void refuse_parked(struct sp_deferred *d)
{
    sp_mcp_run_fail(SP_CONTAINER(d, struct sp_mcp_run, deferred),
                    "the first call with this key waits for an approval; repeat that call with its "
                    "requestState, or use another key");
}

static int start(struct sp_mcp_work *c, struct sp_err *e)
{
    struct sp_mcp_run *r = c->run;

    if (c->item != NULL)
        r->begun = on_begun;
    r->owns_process = c->item == NULL; /* with a key its caller can find the process again */
    return sp_manager_exec(r->caller->manager, &c->exec, on_reply, c, &r->engine_call, e);
}

static int begin_with_key(struct sp_mcp_work *c, struct sp_err *e)
{
    struct sp_mcp_memory_item *i = NULL;
    bool is_new = false;

    if (sp_mcp_memory_take(c->run->caller, 0, c->id, &i, &is_new, e) < 0)
        return -(int)e->code;
    if (is_new) {
        i->run = c->run;
        c->item = i;
        return start(c, e);
    }
    if (i->run == NULL || i->run->session_id != 0)
        return poll_session(c, i->run == NULL ? i->session_id : i->run->session_id, e);
    if (i->run->is_held) {
        sp_loop_defer(sp_mcp_run_options(c->run)->loop, &c->run->deferred, refuse_parked);
        return 0;
    }
    sp_mcp_memory_wait(i, &c->wait);
    c->run->hurry = on_hurry;
    return 0;
}

static int begin(struct sp_mcp_work *c, struct sp_err *e)
{
    return c->id.p != NULL ? begin_with_key(c, e) : start(c, e);
}

/* ---- arguments ---- */

static bool is_name(struct sp_str s)
{
    return s.n != 0 && memchr(s.p, '=', s.n) == NULL && !sp_str_has_nul(s);
}

static int take_env(struct sp_mcp_work *c, uint32_t token, struct sp_err *e)
{
    struct sp_json *j = &c->arguments.json;
    uint32_t count = 0;

    if (token == SP_JSON_NONE)
        return 0;
    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_fail(e, SP_E_INVALID, 0, "`env` is an object of strings");
    struct sp_environ_var *vars =
        sp_keep_alloc(&c->arguments.keep, ((size_t)j->tokens[token].children + 1) * sizeof *vars);
    if (vars == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read function arguments");
    for (uint32_t key = sp_json_first(j, token); key != SP_JSON_NONE;
         key = sp_json_next(j, token, key)) {
        const struct sp_str name = sp_json_str(j, key);

        if (!is_name(name) || sp_json_type(j, key + 1) != SP_JSON_STRING ||
            sp_str_has_nul(sp_json_str(j, key + 1)))
            return sp_fail(e, SP_E_INVALID, 0,
                           "`env`: `%.*s` is no variable with a text; names have no `=`, and "
                           "neither has a NUL",
                           (int)(name.n > 60 ? 60 : name.n), name.p);
        vars[count++] = (struct sp_environ_var){name, sp_json_str(j, key + 1)};
    }
    c->exec.env = (struct sp_environ_vars){vars, count};
    return 0;
}

static int check_command(const struct sp_mcp_work *c, bool has_argv, struct sp_err *e)
{
    if (!has_argv && c->exec.cmd.p == NULL)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "give `cmd` (a script for the shell) or `argv` (a program and its arguments, "
            "without a shell)");
    if (has_argv && c->exec.cmd.p != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "give `cmd` or `argv`, not both");
    if (has_argv && c->exec.argc == 0)
        return sp_fail(e, SP_E_INVALID, 0, "`argv` has at least one element, the program");
    return 0;
}

/* How it is shown: as a person would type it. */
static int name_command(struct sp_mcp_work *c, struct sp_err *e)
{
    if (c->exec.argc == 0)
        return 0;
    if (!sp_words_add_quoted(&c->typed, (struct sp_words){c->exec.argv, c->exec.argc}))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read function arguments");
    c->exec.cmd = sp_mcp_view(&c->typed);
    return 0;
}

static int read_arguments(struct sp_mcp_work *c, struct sp_str text, struct sp_err *e)
{
    const struct sp_mcp_options *o = sp_mcp_run_options(c->run);
    uint32_t env = SP_JSON_NONE;
    uint32_t until = SP_JSON_NONE;
    bool has_argv = false;
    const struct sp_slot more[] = {
        {.name = "argv",
         .type = SP_SLOT_WORDS,
         .to = &c->exec.argv,
         .count = &c->exec.argc,
         .has = &has_argv},
        {.name = "env", .type = SP_SLOT_TOKEN, .to = &env},
        {.name = "rows", .type = SP_SLOT_U16, .to = &c->exec.rows},
        {.name = "cols", .type = SP_SLOT_U16, .to = &c->exec.cols},
        {.name = "until", .type = SP_SLOT_TOKEN, .to = &until},
        {.name = "timeout_ms", .type = SP_SLOT_U64, .to = &c->exec.timeout_ms},
        {.name = "key", .type = SP_SLOT_STRING, .to = &c->id},
    };
    int r = sp_arguments_exec_with(&c->arguments, text.n == 0 ? SP_STR("{}") : text, &o->tools,
                                   (struct sp_slots){more, sizeof more / sizeof more[0], true},
                                   &c->exec, e);

    if (r == 0)
        r = check_command(c, has_argv, e);
    if (r == 0)
        r = name_command(c, e);
    if (r == 0)
        r = take_env(c, env, e);
    if (r == 0)
        r = sp_mcp_until_read(&c->arguments.json, until, &c->until, e);
    c->exec.until = c->until.items;
    c->exec.until_count = c->until.count;
    return r;
}

int sp_mcp_tool_exec(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    struct sp_mcp_work *c = sp_mcp_work_new(r);

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    if (read_arguments(c, arguments, e) < 0)
        return sp_mcp_work_refuse(c, "failed to parse function arguments: ", e);
    c->exec.call_id = c->exec.turn_id = sp_str_of(r->call_id);
    c->exec.waits_for_end = r->waits_for_end;
    c->exec.nobody_answers = r->nobody_answers;
    return begin(c, e) < 0 ? sp_mcp_work_refuse(c, "", e) : 0;
}
