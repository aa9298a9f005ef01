/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer of exec_command and write_stdin in its two forms. Hosts show models one of them or
 * both, so each begins with how the process ended, and the output is within the budget in each.
 */
#include "mcp/tool_answer.h"

#include <inttypes.h>

#include "base/auto.h"

#define DEFAULT_TOKENS 4500 /* 18 kB: fits the limit of every host that is known to have one */
#define HEADER_BYTES   1536 /* what the lines before the output may add to the budget */
#define DEFAULT_LINES  1900 /* opencode cuts at 2,000 lines */
#define FIT_ROUNDS     8
#define REPLACEMENT    "\xEF\xBF\xBD" /* U+FFFD: stands for 1 to 3 bytes */

/* ---- what is known ---- */

static bool is_alive(const struct sp_mcp_work *c)
{
    return c->reply.answer.fate == SP_ANSWER_RUNNING;
}

static bool is_held(const struct sp_mcp_work *c, const struct sp_look *look)
{
    return sp_mcp_is_held(c->reply.is_output_held, look);
}

static const char *state_of(const struct sp_mcp_work *c, const struct sp_look *look)
{
    const bool is_over = !is_alive(c) || c->reply.has_exited;

    return sp_mcp_state_name(is_over, c->reply.is_output_held, look);
}

static bool has_ended(const struct sp_mcp_work *c)
{
    return c->reply.answer.fate == SP_ANSWER_EXITED || c->reply.has_exited;
}

static bool is_early(const struct sp_mcp_work *c)
{
    return c->run->was_cut_short && is_alive(c) && !c->reply.has_exited && c->reply.woken_by < 0;
}

/* ---- the output ---- */

struct body {
    struct sp_buf text;
    bool is_cut;
    uint64_t omitted; /* bytes of the session that are not in the text */
    uint64_t from;    /* where those begin; only if is_cut */
};

static struct sp_allowance budget_of(const struct sp_mcp_work *c, struct sp_allowance configured)
{
    const struct sp_allowance asked = {
        SP_ALLOWANCE_TOKENS, c->reply.has_max_tokens ? c->reply.max_tokens : DEFAULT_TOKENS};

    return sp_allowance_effective(asked, configured);
}

static struct sp_allowance configured_budget(const struct sp_mcp_work *c)
{
    const struct sp_allowance configured = sp_mcp_run_options(c->run)->manager->output_allowance;
    const struct sp_allowance usual = {SP_ALLOWANCE_TOKENS, SP_ANSWER_DEFAULT_TOKENS};
    const bool is_given = configured.limit != 0 || configured.unit != SP_ALLOWANCE_BYTES;

    return is_given ? configured : usual;
}

static size_t count_replaced(struct sp_str text)
{
    size_t count = 0;

    for (size_t i = 0; i + 3 <= text.n; i++)
        count += memcmp(text.p + i, REPLACEMENT, 3) == 0;
    return count;
}

/* What the budget leaves out. Bytes that are no text count three each once they are decoded: `from`
 * is never behind the first byte that is missing. */
static void note_gap(struct body *b, const struct sp_mcp_work *c, struct sp_allowance max)
{
    const struct sp_str text = c->reply.answer.output;
    const uint64_t total = c->reply.to - c->reply.from;

    b->omitted = c->reply.answer.omitted;
    b->is_cut = text.n > sp_allowance_bytes(max);
    if (!b->is_cut)
        return;
    const struct sp_split s = sp_truncate_gap(text, max);
    const uint64_t shown = s.prefix_end + (text.n - s.suffix_start);
    const size_t replaced = count_replaced((struct sp_str){text.p, s.prefix_end});
    b->omitted = total > shown ? total - shown : 0;
    b->from = c->reply.from + s.prefix_end - 2 * replaced;
}

/* Hosts show the structured form as JSON, where a control character takes up to six bytes. */
static bool count_escaped(struct sp_str text, size_t *ret)
{
    auto_buf struct sp_buf json = {0};
    const bool ok = sp_json_add_str(&json, text);

    *ret = json.len;
    return ok;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t s;

    return __builtin_add_overflow(a, b, &s) ? UINT64_MAX : s;
}

/* By what part of its allowance a body is too large, in 1/1024; 1024: it is not. */
static bool measure(const struct sp_mcp_work *c, const struct body *b, uint64_t text_max,
                    uint64_t json_max, uint64_t *ret)
{
    size_t json = 0;

    *ret = 1024;
    if (b->text.len > text_max)
        *ret = text_max * 1024 / b->text.len;
    const size_t lines = c->reply.has_max_tokens ? 0 : sp_truncate_lines(sp_mcp_view(&b->text));
    if (lines > DEFAULT_LINES && DEFAULT_LINES * UINT64_C(1024) / lines < *ret)
        *ret = DEFAULT_LINES * UINT64_C(1024) / lines;
    if (!c->run->repeats_output)
        return true;
    if (!count_escaped(sp_mcp_view(&b->text), &json))
        return false;
    if (json > json_max && json_max * 1024 / json < *ret)
        *ret = json_max * 1024 / json;
    return true;
}

static bool make_body(const struct sp_mcp_work *c, size_t header, struct body *b)
{
    const struct sp_exec_answer *a = &c->reply.answer;
    const struct sp_omission gone = {.bytes = a->omitted, .token_count = a->token_count};
    const struct sp_allowance configured = configured_budget(c);
    struct sp_allowance max = budget_of(c, configured);
    const uint64_t most = sp_allowance_bytes(sp_allowance_scale(configured, 6, 5));
    const uint64_t json_max = sum(sp_allowance_bytes(sp_allowance_scale(max, 6, 5)), 256);
    uint64_t text_max = sum(sp_allowance_bytes(max), HEADER_BYTES);
    uint64_t part = 0;

    text_max = text_max < most ? text_max : most;
    text_max = text_max > header ? text_max - header : 0;
    for (int i = 0; i < FIT_ROUNDS && part != 1024; i++) {
        b->text.len = 0;
        if (!sp_truncate_format(&b->text, a->output, max, gone) ||
            !measure(c, b, text_max, json_max, &part))
            return false;
        if (part == 1024 || max.limit == 0)
            break;
        max = i == FIT_ROUNDS - 2 ? (struct sp_allowance){max.unit, 0}
                                  : sp_allowance_scale(max, part * 31 / 32, 1024);
    }
    note_gap(b, c, max);
    return true;
}

/* ---- the text ---- */

static bool add_fate(struct sp_buf *out, const struct sp_mcp_work *c)
{
    const char *reason = sp_mcp_end_reason_name(c->reply.end_reason);
    char room[16];

    switch (c->reply.answer.fate) {
    case SP_ANSWER_RUNNING:
        return sp_buf_printf(out, "Process running with session ID %d\n",
                             c->reply.answer.session_id);
    case SP_ANSWER_EXITED:
        break;
    case SP_ANSWER_NO_PROCESS:
        return true;
    }
    if (!sp_buf_printf(out, "Process exited with code %d\n", c->reply.answer.exit_code))
        return false;
    if (reason == NULL || c->reply.end_reason == SP_END_EXIT)
        return true;
    return sp_buf_printf(out, "Ended by: %s", reason) &&
           (c->reply.signal <= 0 ||
            sp_buf_printf(out, " (%s)", sp_mcp_signal_name(c->reply.signal, room))) &&
           sp_buf_add(out, "\n", 1);
}

static bool add_woken_by_text(struct sp_buf *out, const struct sp_mcp_work *c)
{
    return c->until.count == 0 ||
           (sp_buf_add_str(out, SP_STR("Woken by: ")) &&
            sp_mcp_until_add_text(out, &c->until, c->reply.woken_by, has_ended(c)) &&
            sp_buf_add(out, "\n", 1));
}

/* By hand: printf would take the decimal point of the locale. */
static bool add_wall_time(struct sp_buf *out, uint64_t ns)
{
    return sp_buf_printf(out, "Wall time: %" PRIu64 ".%02u seconds\n", ns / 1000000000,
                         (unsigned)(ns % 1000000000 / 10000000));
}

static bool add_header(struct sp_buf *out, const struct sp_mcp_work *c, const struct sp_look *look)
{
    if (!add_fate(out, c) || !add_wall_time(out, c->reply.answer.wall_ns))
        return false;
    if ((is_alive(c) || is_held(c, look)) && !sp_buf_printf(out, "State: %s\n", state_of(c, look)))
        return false;
    if (is_early(c) && !sp_buf_add_str(out, SP_STR("Answered early: " SP_MCP_EARLY "\n")))
        return false;
    return add_woken_by_text(out, c) && sp_mcp_denials_add_lines(out, &c->denials);
}

static bool add_gap(struct sp_buf *out, const struct sp_mcp_work *c, const struct body *b)
{
    if (!b->is_cut || c->reply.process_id == 0)
        return true;
    return sp_buf_printf(out,
                         "Output truncated: %" PRIu64 " bytes left out; read_output with "
                         "session_id %d and from_byte %" PRIu64 " has %s\n",
                         b->omitted, c->reply.process_id, b->from,
                         c->reply.answer.omitted == 0 ? "them" : "what is still kept of them");
}

/* ---- the structured form ---- */

static bool add_end(struct sp_buf *out, const struct sp_mcp_work *c, const struct body *b)
{
    const struct sp_exec_answer *a = &c->reply.answer;
    const char *reason = sp_mcp_end_reason_name(c->reply.end_reason);
    char room[16];

    if (a->fate == SP_ANSWER_EXITED && !sp_buf_printf(out, ",\"exit_code\":%d", a->exit_code))
        return false;
    if (a->fate == SP_ANSWER_RUNNING && !sp_buf_printf(out, ",\"session_id\":%d", a->session_id))
        return false;
    if (a->fate == SP_ANSWER_EXITED && b->omitted != 0 && c->reply.process_id != 0 &&
        !sp_buf_printf(out, ",\"ended_session_id\":%d", c->reply.process_id))
        return false;
    if (c->reply.signal > 0 &&
        !sp_buf_printf(out, ",\"signal\":\"%s\"", sp_mcp_signal_name(c->reply.signal, room)))
        return false;
    return reason == NULL || sp_buf_printf(out, ",\"end_reason\":\"%s\"", reason);
}

static bool add_woken_by(struct sp_buf *out, const struct sp_mcp_work *c)
{
    if (is_early(c) && !sp_buf_add_str(out, SP_STR(",\"early\":\"" SP_MCP_EARLY "\"")))
        return false;
    return c->until.count == 0 ||
           (sp_buf_add_str(out, SP_STR(",\"woken_by\":")) &&
            sp_mcp_until_add_json(out, &c->until, c->reply.woken_by, has_ended(c)));
}

static bool add_positions(struct sp_buf *out, const struct sp_mcp_work *c, const struct body *b)
{
    return sp_buf_printf(out,
                         ",\"from_byte\":%" PRIu64 ",\"next_byte\":%" PRIu64
                         ",\"omitted_bytes\":%" PRIu64,
                         c->reply.from, c->reply.to, b->omitted) &&
           (!b->is_cut || sp_buf_printf(out, ",\"omitted_from_byte\":%" PRIu64, b->from));
}

static bool add_holders(struct sp_buf *out, const struct sp_mcp_work *c, const struct sp_look *look)
{
    if (!is_held(c, look) || look == NULL)
        return true;
    bool ok = sp_buf_add_str(out, SP_STR(",\"holders\":["));
    for (uint32_t i = 0; ok && i < look->holder_count && i < SP_LOOK_HOLDERS; i++)
        ok = sp_buf_printf(out, "%s{\"pid\":%d,\"name\":", i == 0 ? "" : ",",
                           look->holders[i].pid) &&
             sp_json_add_str(out, sp_str_of(look->holders[i].name)) && sp_buf_add(out, "}", 1);
    return ok && sp_buf_add(out, "]", 1);
}

static bool add_measures(struct sp_buf *out, const struct sp_exec_answer *a)
{
    if (a->chunk_id.n != 0 &&
        !(sp_buf_add_str(out, SP_STR(",\"chunk_id\":")) && sp_json_add_str(out, a->chunk_id)))
        return false;
    return sp_buf_printf(out, ",\"wall_time_seconds\":%" PRIu64 ".%09" PRIu64,
                         a->wall_ns / 1000000000, a->wall_ns % 1000000000) &&
           (!a->has_token_count ||
            sp_buf_printf(out, ",\"original_token_count\":%" PRIu64, a->token_count));
}

/* The output is last: a host that cuts this form cuts there. */
static bool add_structured(struct sp_buf *out, const struct sp_mcp_work *c,
                           const struct sp_look *look, const struct body *b)
{
    return sp_buf_printf(out, "{\"state\":\"%s\"", state_of(c, look)) && add_end(out, c, b) &&
           add_woken_by(out, c) && add_positions(out, c, b) && sp_buf_add(out, ",", 1) &&
           sp_mcp_denials_add_json(out, &c->denials) && add_holders(out, c, look) &&
           add_measures(out, &c->reply.answer) &&
           sp_mcp_run_add_output(out, c->run, sp_mcp_view(&b->text)) && sp_buf_add(out, "}", 1);
}

bool sp_mcp_answer_add(struct sp_buf *text, struct sp_buf *structured, const struct sp_mcp_work *c,
                       const struct sp_look *look)
{
    struct body b = {0};
    const bool ok = add_header(text, c, look) && make_body(c, text->len, &b) &&
                    add_gap(text, c, &b) && sp_buf_add_str(text, SP_STR("Output:\n")) &&
                    sp_buf_add_str(text, sp_mcp_view(&b.text)) &&
                    add_structured(structured, c, look, &b);

    sp_buf_done(&b.text);
    return ok;
}
