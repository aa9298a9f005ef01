/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "lib/engine_priv.h"

static struct sp_tools_options options_of(const struct sp_engine *engine)
{
    return (struct sp_tools_options){
        .has_login = engine->config.allow_login_shell,
        .has_additional_permissions = engine->config.has_exec_permission_approvals,
        .has_no_timeout = engine->config.has_write_stdin_no_timeout,
        .has_unified_exec = engine->config.has_unified_exec,
        .has_several_environments = engine->place_count > 1,
    };
}

int sp_engine_tools(struct sp_engine *engine, void (*fn)(void *user, const char *json, size_t n),
                    void *user, struct sp_error *e)
{
    auto_buf struct sp_buf json = {0};
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    const struct sp_tools_options o = options_of(engine);
    if (!sp_tools_add_schemas(&json, &o) || !sp_buf_add(&json, "", 1))
        return sp_lib_give(sp_fail(&why, SP_E_SYSTEM, ENOMEM, "describe the tools"), &why, e);
    fn(user, json.data, json.len - 1);
    return 0;
}

static int begin(struct sp_lib_call *c, const struct sp_tool_options *o, struct sp_err *e)
{
    const struct sp_tools_options tools = options_of(c->engine);
    const struct sp_str turn = {o->turn, o->turn == NULL ? 0 : strlen(o->turn)};
    struct sp_lib_id id = {0};

    if (o->tool == NULL || o->arguments == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "give a tool and its arguments");
    c->starts_nothing = strcmp(o->tool, "request_permissions") == 0;
    const int r =
        sp_tools_call(c->engine->manager, &tools, sp_str_of(o->tool), sp_lib_id_of(c->number, &id),
                      turn, sp_str_of(o->arguments), sp_lib_tell_tool, c, &c->manager_call, e);
    return r == -SP_E_NO_METHOD ? sp_fail(e, SP_E_NOT_FOUND, 0,
                                          "there is no tool `%s`, or the configuration does not "
                                          "switch it on (features)",
                                          o->tool)
                                : r;
}

int sp_engine_call_tool(struct sp_engine *engine, const struct sp_tool_options *options,
                        sp_answer_fn *fn, void *user, uint64_t *ret_call, struct sp_error *e)
{
    struct sp_tool_options o;
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    r = sp_lib_take(options, &o, sizeof o, SP_LIB_LEAST(struct sp_tool_options, turn),
                    "sp_tool_options", &why);
    if (r < 0)
        return sp_lib_give(r, &why, e);
    struct sp_lib_call *c = sp_lib_call_new(engine, SP_LIB_TOOL, fn, user, e);
    if (c == NULL)
        return -(int)SP_E_SYSTEM;
    r = begin(c, &o, &why);
    if (r < 0)
        sp_lib_call_free(c);
    else if (ret_call != NULL)
        *ret_call = c->number;
    return sp_lib_give(r, &why, e);
}
