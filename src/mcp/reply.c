/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/reply.h"

#include "base/json.h"

/* Digits, not a double: a host's locale may have a comma where JSON wants a point. */
static bool add_seconds(struct sp_buf *out, uint64_t ns)
{
    const unsigned long long second = 1000000000;

    return sp_buf_printf(out, "\"wall_time_seconds\":%llu.%09llu", ns / second, ns % second);
}

static bool add_chunk_id(struct sp_buf *out, struct sp_str id)
{
    return id.n == 0 || (sp_buf_add_str(out, SP_STR("\"chunk_id\":")) && sp_json_add_str(out, id) &&
                         sp_buf_add(out, ",", 1));
}

static bool add_fate(struct sp_buf *out, const struct sp_exec_answer *a)
{
    switch (a->fate) {
    case SP_ANSWER_NO_PROCESS:
        return true;
    case SP_ANSWER_EXITED:
        return sp_buf_printf(out, ",\"exit_code\":%d", a->exit_code);
    case SP_ANSWER_RUNNING:
        return sp_buf_printf(out, ",\"session_id\":%d", a->session_id);
    }
    return true;
}

static bool add_token_count(struct sp_buf *out, const struct sp_exec_answer *a)
{
    return !a->has_token_count ||
           sp_buf_printf(out, ",\"original_token_count\":%llu", (unsigned long long)a->token_count);
}

static bool add_output(struct sp_buf *out, const struct sp_reply *r)
{
    auto_buf struct sp_buf text = {0};

    return sp_answer_add_output(&text, &r->answer, r->has_max_tokens, r->max_tokens) &&
           sp_buf_add_str(out, SP_STR(",\"output\":")) &&
           sp_json_add_str(out, (struct sp_str){text.data, text.len});
}

bool sp_tools_add_structured(struct sp_buf *out, const struct sp_reply *r)
{
    const size_t mark = out->len;
    const bool has_room = sp_buf_add(out, "{", 1) && add_chunk_id(out, r->answer.chunk_id) &&
                          add_seconds(out, r->answer.wall_ns) && add_fate(out, &r->answer) &&
                          add_token_count(out, &r->answer) && add_output(out, r) &&
                          sp_buf_add(out, "}", 1);

    if (!has_room)
        out->len = mark;
    return has_room;
}
