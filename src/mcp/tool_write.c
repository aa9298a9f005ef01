/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_stdin: types characters and keys, or polls. With a write id that was said before it types
 * nothing and polls: whoever did not hear the answer may ask again.
 */
#include <errno.h>
#include <string.h>

#include "mcp/tool_priv.h"

#define END_OF_FILE "\004" /* VEOF, unless somebody has changed it */

static void on_reply(void *user, const struct sp_reply *reply)
{
    struct sp_mcp_work *c = user;

    /* What was not typed may be typed by the next call. */
    if (c->item != NULL && reply->fault != SP_FAULT_NONE && !reply->has_typed)
        sp_mcp_memory_forget(c->run->caller, c->item);
    else if (c->item != NULL)
        c->item->run = NULL;
    c->item = NULL;
    sp_mcp_work_answer(c, reply);
}

/* ---- arguments ---- */

struct extra {
    uint32_t keys, until;
    bool eof;
};

/* Characters, then keys, then the end. */
static int add_typed(struct sp_mcp_work *c, const struct extra *x, struct sp_err *e)
{
    int r = sp_buf_add_str(&c->typed, c->write.chars) ? 0 : -1;

    if (r == 0 && x->keys != SP_JSON_NONE)
        r = sp_mcp_keys_add(&c->typed, &c->arguments.json, x->keys, e);
    else if (r < 0)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "type into a session");
    if (r == 0 && x->eof && !sp_buf_add_str(&c->typed, SP_STR(END_OF_FILE)))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "type into a session");
    c->write.chars = sp_mcp_view(&c->typed);
    return r;
}

/* Keys are a terminal's. That there is no such session any more is the manager's to say. */
static int check_terminal(const struct sp_mcp_work *c, const struct extra *x, struct sp_err *e)
{
    struct sp_manager_view v;

    if ((x->keys == SP_JSON_NONE && !x->eof) ||
        !sp_manager_view(c->run->caller->manager, c->write.session_id, &v) || v.is_tty ||
        v.is_answered)
        return 0;
    return sp_fail(e, SP_E_INVALID, 0,
                   "write_stdin failed: `keys` and `eof` need a terminal; rerun exec_command with "
                   "tty=true to keep stdin open");
}

static int read_arguments(struct sp_mcp_work *c, struct sp_str text, struct extra *x,
                          struct sp_err *e)
{
    const struct sp_mcp_options *o = sp_mcp_run_options(c->run);
    const struct sp_slot more[] = {
        {.name = "keys", .type = SP_SLOT_TOKEN, .to = &x->keys},
        {.name = "eof", .type = SP_SLOT_BOOL, .to = &x->eof},
        {.name = "until", .type = SP_SLOT_TOKEN, .to = &x->until},
        {.name = "write_id", .type = SP_SLOT_STRING, .to = &c->id},
    };
    int r = sp_arguments_write_with(&c->arguments, text.n == 0 ? SP_STR("{}") : text, &o->tools,
                                    (struct sp_slots){more, sizeof more / sizeof more[0], true},
                                    &c->write, e);

    if (r == 0)
        r = sp_mcp_until_read(&c->arguments.json, x->until, &c->until, e);
    if (r == 0)
        r = add_typed(c, x, e);
    c->write.until = c->until.items;
    c->write.until_count = c->until.count;
    return r;
}

/* ---- the beginning ---- */

/* A write that was made before is a poll. */
static int remember(struct sp_mcp_work *c, struct sp_err *e)
{
    struct sp_mcp_memory_item *i = NULL;
    bool is_new = false;

    if (c->id.p == NULL || c->write.chars.n == 0)
        return 0;
    const int r = sp_mcp_memory_take(c->run->caller, c->write.session_id, c->id, &i, &is_new, e);
    if (r < 0)
        return r;
    if (is_new) {
        i->run = c->run;
        c->item = i;
    } else {
        c->write.chars = SP_STR("");
    }
    return 0;
}

int sp_mcp_tool_write(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    struct extra x = {SP_JSON_NONE, SP_JSON_NONE, false};
    struct sp_mcp_work *c = sp_mcp_work_new(r);

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    if (read_arguments(c, arguments, &x, e) < 0)
        return sp_mcp_work_refuse(c, "failed to parse function arguments: ", e);
    if (check_terminal(c, &x, e) < 0 || remember(c, e) < 0)
        return sp_mcp_work_refuse(c, "", e);
    c->write.call_id = sp_str_of(r->call_id);
    r->session_id = c->write.session_id;
    return sp_manager_write(r->caller->manager, &c->write, on_reply, c, &r->engine_call, e);
}
