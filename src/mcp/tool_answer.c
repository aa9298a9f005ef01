/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_answer: exec_command and write_stdin from the manager's reply to their result.
 *
 * The reply is copied while the kernel is asked what the process is doing. The result has two
 * forms, one text and facts for programs. Hosts show models one of them or both, so each starts
 * with how the process ended, and the output is within the budget in each.
 */
#include <inttypes.h>
#include <string.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "mcp/tool.h"

#define DEFAULT_TOKENS 4500 /* 18 kB: below the limit of every host that has one */
#define HEADER_BYTES   1536 /* allowed for the lines before the output, on top of the budget */
#define DEFAULT_LINES  1900 /* opencode cuts at 2,000 lines */
#define FIT_ROUNDS     8
#define REPLACEMENT    "\xEF\xBF\xBD" /* U+FFFD: stands for 1 to 3 bytes */
#define EARLY                                                                                     \
    "the host sent no progress token, so this call could wait no longer; call write_stdin again " \
    "to go on waiting"

/* ---- what is known ---- */

static bool is_alive(const struct sp_mcp_run *r)
{
    return r->reply.answer.fate == SP_ANSWER_RUNNING;
}

static const char *state_of(const struct sp_mcp_run *r, const struct sp_inspection *found)
{
    return sp_mcp_state_name(!is_alive(r) || r->reply.has_exited, r->reply.is_output_held, found);
}

/* The wait was cut short, and nothing that it waited for has happened. */
static bool is_early(const struct sp_mcp_run *r)
{
    return r->was_cut_short && is_alive(r) && !r->reply.has_exited && r->reply.woken_by < 0;
}

/* ---- the output within its budget ---- */

struct body {
    struct sp_buf text;
    bool is_cut;
    uint64_t omitted; /* bytes of the session that are not in the text */
    uint64_t from;    /* position of the first of them; only if is_cut */
};

/* Computes what the budget left out. A byte that is not UTF-8 became three bytes in the text, so
 * `from` is corrected by two each: it is never behind the first missing byte. */
static void note_gap(struct body *b, const struct sp_mcp_run *r, struct sp_allowance max)
{
    const struct sp_str text = r->reply.answer.output;
    const uint64_t total = r->reply.to - r->reply.from;
    size_t replaced = 0;

    b->omitted = r->reply.answer.omitted;
    b->is_cut = text.n > sp_allowance_bytes(max);
    if (!b->is_cut)
        return;
    const struct sp_split s = sp_truncate_gap(text, max);
    const uint64_t shown = s.prefix_end + (text.n - s.suffix_start);
    for (size_t i = 0; i + 3 <= s.prefix_end; i++)
        replaced += memcmp(text.p + i, REPLACEMENT, 3) == 0;
    b->omitted = total > shown ? total - shown : 0;
    b->from = r->reply.from + s.prefix_end - 2 * replaced;
}

/* The share of the body that fits, in 1/1024; 1024: all. */
static bool measure(const struct sp_mcp_run *r, const struct body *b, uint64_t text_max,
                    uint64_t json_max, uint64_t *ret)
{
    auto_buf struct sp_buf json = {0};

    *ret = 1024;
    if (b->text.len > text_max)
        *ret = text_max * 1024 / b->text.len;
    const size_t lines = r->reply.has_max_tokens ? 0 : sp_truncate_lines(sp_buf_str(&b->text));
    if (lines > DEFAULT_LINES && DEFAULT_LINES * UINT64_C(1024) / lines < *ret)
        *ret = DEFAULT_LINES * UINT64_C(1024) / lines;
    if (!r->repeats_output)
        return true;
    /* Hosts show the structured form as JSON, where a control character takes up to six bytes. */
    if (!sp_json_add_str(&json, sp_buf_str(&b->text)))
        return false;
    if (json.len > json_max && json_max * 1024 / json.len < *ret)
        *ret = json_max * 1024 / json.len;
    return true;
}

/*
 * Truncates the output, harder each round, until it fits the text and the JSON budget. Truncation
 * works on raw bytes, while both budgets count what a host shows: marks of omitted parts, escapes,
 * lines. The size after truncation cannot be computed, so it is measured and the allowance scaled
 * down by the excess. The last round allows nothing, which always fits.
 */
static bool make_body(const struct sp_mcp_run *r, size_t header, struct body *b)
{
    const struct sp_exec_answer *a = &r->reply.answer;
    const struct sp_omission gone = {.bytes = a->omitted, .token_count = a->token_count};
    struct sp_allowance configured = sp_mcp_run_options(r)->manager->output_allowance;
    uint64_t part = 0;

    if (configured.limit == 0 && configured.unit == SP_ALLOWANCE_BYTES)
        configured = (struct sp_allowance){SP_ALLOWANCE_TOKENS, SP_ANSWER_DEFAULT_TOKENS};
    struct sp_allowance max = sp_allowance_effective(
        (struct sp_allowance){SP_ALLOWANCE_TOKENS,
                              r->reply.has_max_tokens ? r->reply.max_tokens : DEFAULT_TOKENS},
        configured);
    const uint64_t most = sp_allowance_bytes(sp_allowance_scale(configured, 6, 5));
    uint64_t json_max = 0; /* both saturate: an allowance may be as large as u64 */
    uint64_t text_max = 0;

    if (__builtin_add_overflow(sp_allowance_bytes(sp_allowance_scale(max, 6, 5)), 256, &json_max))
        json_max = UINT64_MAX;
    if (__builtin_add_overflow(sp_allowance_bytes(max), HEADER_BYTES, &text_max))
        text_max = UINT64_MAX;

    text_max = text_max < most ? text_max : most;
    text_max = text_max > header ? text_max - header : 0;
    for (int i = 0; i < FIT_ROUNDS && part != 1024; i++) {
        b->text.len = 0;
        if (!sp_truncate_format(&b->text, a->output, max, gone) ||
            !measure(r, b, text_max, json_max, &part))
            return false;
        if (part == 1024 || max.limit == 0)
            break;
        max = i == FIT_ROUNDS - 2 ? (struct sp_allowance){max.unit, 0}
                                  : sp_allowance_scale(max, part * 31 / 32, 1024);
    }
    note_gap(b, r, max);
    return true;
}

/* ---- the two forms ---- */

/* Which condition of `until` ended the wait: a line of the text, or a member. */
static bool add_woken_by(struct sp_buf *out, const struct sp_mcp_run *r, bool is_json)
{
    static const char *const names[] = {[SP_UNTIL_EXIT] = "exit",
                                        [SP_UNTIL_PATTERN] = "pattern",
                                        [SP_UNTIL_QUIET] = "quiet_ms",
                                        [SP_UNTIL_PORT] = "port"};
    const bool has_exited = r->reply.answer.fate == SP_ANSWER_EXITED || r->reply.has_exited;
    const int i = r->reply.woken_by;
    const struct sp_until *by = i >= 0 && (uint32_t)i < r->until.count ? &r->until.items[i] : NULL;
    const char *name = by != NULL ? names[by->kind] : has_exited ? "exit" : "deadline";
    auto_buf struct sp_buf value = {0};
    bool ok = true;

    if (by != NULL && by->kind == SP_UNTIL_PATTERN)
        ok = sp_json_add_str(&value, by->pattern);
    else if (by != NULL && by->kind == SP_UNTIL_QUIET)
        ok = sp_buf_printf(&value, "%" PRIu64, by->quiet_ms);
    else if (by != NULL && by->kind == SP_UNTIL_PORT)
        ok = sp_buf_printf(&value, "%u", by->port);
    else if (is_json)
        ok = sp_buf_add_str(&value, SP_STR("true"));
    if (is_json)
        return ok && sp_json_add_value(out, "woken_by", "{\"%s\":" SP_STR_FMT "}", name,
                                       SP_STR_ARG(sp_buf_str(&value)));
    return ok && sp_buf_printf(out, "Woken by: %s%s" SP_STR_FMT "\n", name,
                               value.len != 0 ? " " : "", SP_STR_ARG(sp_buf_str(&value)));
}

static bool add_header(struct sp_buf *out, const struct sp_mcp_run *r,
                       const struct sp_inspection *found)
{
    const struct sp_reply *p = &r->reply;
    const uint64_t ns = p->answer.wall_ns;
    const char *reason = sp_mcp_end_reason_name(p->end_reason);
    char room[16];
    bool ok = true;

    if (is_alive(r)) {
        ok = sp_buf_printf(out, "Process running with session ID %d\n", p->answer.session_id);
    } else if (p->answer.fate != SP_ANSWER_NO_PROCESS) {
        ok = sp_buf_printf(out, "Process exited with code %d\n", p->answer.exit_code);
        if (ok && reason != NULL && p->end_reason != SP_END_EXIT)
            ok = sp_buf_printf(out, "Ended by: %s", reason) &&
                 (p->signal <= 0 ||
                  sp_buf_printf(out, " (%s)", sp_mcp_signal_name(p->signal, room))) &&
                 sp_buf_add(out, "\n", 1);
    }
    /* printf's %f would use the decimal point of the locale. */
    ok = ok && sp_buf_printf(out, "Wall time: %" PRIu64 ".%02u seconds\n", ns / 1000000000,
                             (unsigned)(ns % 1000000000 / 10000000));
    if (is_alive(r) || sp_mcp_is_held(p->is_output_held, found))
        ok = ok && sp_buf_printf(out, "State: %s\n", state_of(r, found));
    if (is_early(r))
        ok = ok && sp_buf_add_str(out, SP_STR("Answered early: " EARLY "\n"));
    return ok && (r->until.count == 0 || add_woken_by(out, r, false)) &&
           sp_mcp_denials_add_lines(out, &r->denials);
}

static bool add_text(struct sp_buf *out, const struct sp_mcp_run *r, const struct body *b)
{
    if (b->is_cut && r->reply.process_id != 0 &&
        !sp_buf_printf(out,
                       "Output truncated: %" PRIu64 " bytes left out; read_output with "
                       "session_id %d and from_byte %" PRIu64 " has %s\n",
                       b->omitted, r->reply.process_id, b->from,
                       r->reply.answer.omitted == 0 ? "them" : "what is still kept of them"))
        return false;
    return sp_buf_add_str(out, SP_STR("Output:\n")) && sp_buf_add_str(out, sp_buf_str(&b->text));
}

/* The output comes last: a host that cuts this form cuts there. */
static bool add_structured(struct sp_buf *out, const struct sp_mcp_run *r,
                           const struct sp_inspection *found, const struct body *b)
{
    const struct sp_reply *p = &r->reply;
    const struct sp_exec_answer *a = &p->answer;
    const bool has_exited = a->fate == SP_ANSWER_EXITED;
    const char *reason = sp_mcp_end_reason_name(p->end_reason);
    char room[16];
    bool ok = sp_buf_printf(out, "{\"state\":\"%s\"", state_of(r, found)) &&
              (!has_exited || sp_json_add_value(out, "exit_code", "%d", a->exit_code)) &&
              (!is_alive(r) || sp_json_add_value(out, "session_id", "%d", a->session_id)) &&
              (!has_exited || b->omitted == 0 || p->process_id == 0 ||
               sp_json_add_value(out, "ended_session_id", "%d", p->process_id)) &&
              (p->signal <= 0 ||
               sp_json_add_value(out, "signal", "\"%s\"", sp_mcp_signal_name(p->signal, room))) &&
              (reason == NULL || sp_json_add_value(out, "end_reason", "\"%s\"", reason)) &&
              (!is_early(r) || sp_json_add_member(out, "early", SP_STR(EARLY))) &&
              (r->until.count == 0 || add_woken_by(out, r, true)) &&
              sp_json_add_value(out, "from_byte", "%" PRIu64, p->from) &&
              sp_json_add_value(out, "next_byte", "%" PRIu64, p->to) &&
              sp_json_add_value(out, "omitted_bytes", "%" PRIu64, b->omitted) &&
              (!b->is_cut || sp_json_add_value(out, "omitted_from_byte", "%" PRIu64, b->from)) &&
              sp_mcp_denials_add_json(out, &r->denials);

    if (found != NULL && sp_mcp_is_held(p->is_output_held, found)) {
        ok = ok && sp_json_add_value(out, "holders", "[");
        for (uint32_t i = 0; ok && i < found->holder_count && i < SP_INSPECT_HOLDERS; i++)
            ok = sp_buf_printf(out, "%s{\"pid\":%d", i == 0 ? "" : ",", found->holders[i].pid) &&
                 sp_json_add_member(out, "name", sp_str_of(found->holders[i].name)) &&
                 sp_buf_add(out, "}", 1);
        ok = ok && sp_buf_add(out, "]", 1);
    }
    return ok && (a->chunk_id.n == 0 || sp_json_add_member(out, "chunk_id", a->chunk_id)) &&
           sp_json_add_value(out, "wall_time_seconds", "%" PRIu64 ".%09" PRIu64,
                             a->wall_ns / 1000000000, a->wall_ns % 1000000000) &&
           (!a->has_token_count ||
            sp_json_add_value(out, "original_token_count", "%" PRIu64, a->token_count)) &&
           sp_mcp_run_add_output(out, r, sp_buf_str(&b->text)) && sp_buf_add(out, "}", 1);
}

/* ---- from the reply to the result ---- */

static void compose(struct sp_mcp_run *r, const struct sp_inspection *found)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf structured = {0};
    struct body b = {0};
    const bool ok = add_header(&text, r, found) && make_body(r, text.len, &b) &&
                    add_text(&text, r, &b) && add_structured(&structured, r, found, &b);

    sp_buf_done(&b.text);
    if (ok)
        sp_mcp_tool_done(r, &text, &structured);
    else
        sp_mcp_tool_no_memory(r);
}

void sp_mcp_answer_reply(struct sp_mcp_run *r, const struct sp_reply *reply)
{
    const struct sp_str id = reply->answer.chunk_id;
    const size_t n = id.n < sizeof r->chunk_id ? id.n : sizeof r->chunk_id;
    struct sp_manager_view v = {0};

    r->engine_call = 0;
    if (reply->fault != SP_FAULT_NONE) {
        struct sp_mcp_result result = {.is_error = true, .text = reply->text};

        /* If its output can still be read, the manager's text says so already. */
        if (reply->fault == SP_FAULT_UNKNOWN &&
            !sp_manager_view(r->caller->manager, r->write.session_id, &v))
            result.note = SP_STR(SP_MCP_UNKNOWN_HINT);
        sp_mcp_run_done(r, &result);
        return;
    }
    const bool is_known = sp_manager_view(r->caller->manager, reply->process_id, &v);
    const struct sp_mcp_denied denied = {.kernel = reply->kernel,
                                         .denial = reply->denial,
                                         .was_denied = reply->was_denied,
                                         .output = reply->answer.output,
                                         .exit_code = reply->answer.exit_code,
                                         .cwd = is_known ? v.cwd : (struct sp_str){0},
                                         .environment = v.environment};

    /* What the reply borrows and the answer needs is copied, the rest is dropped. */
    r->output.len = 0;
    if (!sp_mcp_denials_find(&r->denials, r->caller->mcp, &denied) ||
        !sp_buf_add_str(&r->output, reply->answer.output)) {
        sp_mcp_tool_no_memory(r);
        return;
    }
    r->reply = *reply;
    r->reply.text = r->reply.error = r->reply.answer.more = (struct sp_str){0};
    r->reply.denial = NULL;
    r->reply.kernel = NULL;
    if (n != 0)
        memcpy(r->chunk_id, id.p, n);
    r->reply.answer.chunk_id = (struct sp_str){r->chunk_id, n};
    r->reply.answer.output = sp_buf_str(&r->output);
    if (!sp_mcp_tool_inspect(r, is_alive(r) || reply->is_output_held ? reply->process_id : 0,
                             compose))
        compose(r, NULL);
}

void sp_mcp_answer_view(struct sp_mcp_run *r, const struct sp_manager_view *v)
{
    auto_buf struct sp_buf bytes = {0};
    auto_buf struct sp_buf output = {0};

    if (!sp_buf_add_str(&bytes, v->head) ||
        (v->omitted != 0 && !sp_buf_printf(&bytes, "\n" SP_HEADTAIL_MARKER "\n", v->omitted)) ||
        !sp_buf_add_str(&bytes, v->tail[0]) || !sp_buf_add_str(&bytes, v->tail[1]) ||
        !sp_utf8_add_lossy(&output, sp_buf_str(&bytes))) {
        sp_mcp_tool_no_memory(r);
        return;
    }
    const struct sp_reply reply = {
        .answer = {.fate = SP_ANSWER_EXITED,
                   .exit_code = v->exit_code,
                   .has_token_count = true,
                   .token_count = sp_allowance_tokens_of(v->total),
                   .omitted = v->omitted,
                   .output = sp_buf_str(&output)},
        .has_max_tokens = r->exec.has_max_tokens,
        .max_tokens = r->exec.max_tokens,
        .was_denied = v->was_denied,
        .process_id = v->process_id,
        .signal = v->signal,
        .to = v->total,
        .woken_by = -1,
        .has_exited = true,
        .is_output_held = v->is_output_held,
        .end_reason = v->end_reason,
        .denial = v->denial,
        .kernel = v->kernel,
    };
    sp_mcp_answer_reply(r, &reply);
}
