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

/* The condition of `until` that ended the wait; NULL: the deadline. */
static const struct sp_until *woken_by(const struct sp_mcp_run *r)
{
    static const struct sp_until exit = {.kind = SP_UNTIL_EXIT};
    const int i = r->reply.woken_by;

    if (i >= 0 && (uint32_t)i < r->until.count)
        return &r->until.items[i];
    return r->reply.answer.fate == SP_ANSWER_EXITED || r->reply.has_exited ? &exit : NULL;
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

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    uint64_t s;

    return __builtin_add_overflow(a, b, &s) ? UINT64_MAX : s;
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
    const uint64_t json_max =
        add_saturating(sp_allowance_bytes(sp_allowance_scale(max, 6, 5)), 256);
    uint64_t text_max = add_saturating(sp_allowance_bytes(max), HEADER_BYTES);

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

/* ---- the text ---- */

static bool add_fate(struct sp_buf *out, const struct sp_mcp_run *r)
{
    const char *reason = sp_mcp_end_reason_name(r->reply.end_reason);
    char room[16];

    if (is_alive(r))
        return sp_buf_printf(out, "Process running with session ID %d\n",
                             r->reply.answer.session_id);
    if (r->reply.answer.fate == SP_ANSWER_NO_PROCESS)
        return true;
    if (!sp_buf_printf(out, "Process exited with code %d\n", r->reply.answer.exit_code))
        return false;
    if (reason == NULL || r->reply.end_reason == SP_END_EXIT)
        return true;
    return sp_buf_printf(out, "Ended by: %s", reason) &&
           (r->reply.signal <= 0 ||
            sp_buf_printf(out, " (%s)", sp_mcp_signal_name(r->reply.signal, room))) &&
           sp_buf_add(out, "\n", 1);
}

static bool add_woken_by_text(struct sp_buf *out, const struct sp_mcp_run *r)
{
    const struct sp_until *by = woken_by(r);
    bool ok = sp_buf_add_str(out, SP_STR("Woken by: "));

    if (by == NULL)
        ok = ok && sp_buf_add_str(out, SP_STR("deadline"));
    else if (by->kind == SP_UNTIL_EXIT)
        ok = ok && sp_buf_add_str(out, SP_STR("exit"));
    else if (by->kind == SP_UNTIL_PATTERN)
        ok = ok && sp_buf_add_str(out, SP_STR("pattern ")) && sp_json_add_str(out, by->pattern);
    else if (by->kind == SP_UNTIL_QUIET)
        ok = ok && sp_buf_printf(out, "quiet_ms %" PRIu64, by->quiet_ms);
    else
        ok = ok && sp_buf_printf(out, "port %u", by->port);
    return ok && sp_buf_add(out, "\n", 1);
}

static bool add_header(struct sp_buf *out, const struct sp_mcp_run *r,
                       const struct sp_inspection *found)
{
    const uint64_t ns = r->reply.answer.wall_ns;

    /* printf's %f would use the decimal point of the locale. */
    if (!add_fate(out, r) ||
        !sp_buf_printf(out, "Wall time: %" PRIu64 ".%02u seconds\n", ns / 1000000000,
                       (unsigned)(ns % 1000000000 / 10000000)))
        return false;
    if ((is_alive(r) || sp_mcp_is_held(r->reply.is_output_held, found)) &&
        !sp_buf_printf(out, "State: %s\n", state_of(r, found)))
        return false;
    if (is_early(r) && !sp_buf_add_str(out, SP_STR("Answered early: " EARLY "\n")))
        return false;
    return (r->until.count == 0 || add_woken_by_text(out, r)) &&
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

/* ---- the structured form ---- */

static bool add_end(struct sp_buf *out, const struct sp_mcp_run *r, const struct body *b)
{
    const struct sp_exec_answer *a = &r->reply.answer;
    const char *reason = sp_mcp_end_reason_name(r->reply.end_reason);
    char room[16];

    if (a->fate == SP_ANSWER_EXITED && !sp_buf_printf(out, ",\"exit_code\":%d", a->exit_code))
        return false;
    if (a->fate == SP_ANSWER_RUNNING && !sp_buf_printf(out, ",\"session_id\":%d", a->session_id))
        return false;
    if (a->fate == SP_ANSWER_EXITED && b->omitted != 0 && r->reply.process_id != 0 &&
        !sp_buf_printf(out, ",\"ended_session_id\":%d", r->reply.process_id))
        return false;
    if (r->reply.signal > 0 &&
        !sp_buf_printf(out, ",\"signal\":\"%s\"", sp_mcp_signal_name(r->reply.signal, room)))
        return false;
    return reason == NULL || sp_buf_printf(out, ",\"end_reason\":\"%s\"", reason);
}

static bool add_woken_by_json(struct sp_buf *out, const struct sp_mcp_run *r)
{
    const struct sp_until *by = woken_by(r);

    if (!sp_buf_add_str(out, SP_STR(",\"woken_by\":")))
        return false;
    if (by == NULL)
        return sp_buf_add_str(out, SP_STR("{\"deadline\":true}"));
    if (by->kind == SP_UNTIL_EXIT)
        return sp_buf_add_str(out, SP_STR("{\"exit\":true}"));
    if (by->kind == SP_UNTIL_PATTERN)
        return sp_buf_add_str(out, SP_STR("{\"pattern\":")) && sp_json_add_str(out, by->pattern) &&
               sp_buf_add(out, "}", 1);
    if (by->kind == SP_UNTIL_QUIET)
        return sp_buf_printf(out, "{\"quiet_ms\":%" PRIu64 "}", by->quiet_ms);
    return sp_buf_printf(out, "{\"port\":%u}", by->port);
}

static bool add_holders(struct sp_buf *out, const struct sp_inspection *found)
{
    bool ok = sp_buf_add_str(out, SP_STR(",\"holders\":["));

    for (uint32_t i = 0; ok && i < found->holder_count && i < SP_INSPECT_HOLDERS; i++)
        ok = sp_buf_printf(out, "%s{\"pid\":%d,\"name\":", i == 0 ? "" : ",",
                           found->holders[i].pid) &&
             sp_json_add_str(out, sp_str_of(found->holders[i].name)) && sp_buf_add(out, "}", 1);
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

/* The output comes last: a host that cuts this form cuts there. */
static bool add_structured(struct sp_buf *out, const struct sp_mcp_run *r,
                           const struct sp_inspection *found, const struct body *b)
{
    if (!sp_buf_printf(out, "{\"state\":\"%s\"", state_of(r, found)) || !add_end(out, r, b) ||
        (is_early(r) && !sp_buf_add_str(out, SP_STR(",\"early\":\"" EARLY "\""))) ||
        (r->until.count != 0 && !add_woken_by_json(out, r)))
        return false;
    return sp_buf_printf(out,
                         ",\"from_byte\":%" PRIu64 ",\"next_byte\":%" PRIu64
                         ",\"omitted_bytes\":%" PRIu64,
                         r->reply.from, r->reply.to, b->omitted) &&
           (!b->is_cut || sp_buf_printf(out, ",\"omitted_from_byte\":%" PRIu64, b->from)) &&
           sp_buf_add(out, ",", 1) && sp_mcp_denials_add_json(out, &r->denials) &&
           (found == NULL || !sp_mcp_is_held(r->reply.is_output_held, found) ||
            add_holders(out, found)) &&
           add_measures(out, &r->reply.answer) &&
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

static void on_inspected(void *user, const struct sp_inspection *found)
{
    struct sp_mcp_run *r = user;

    r->inspection = NULL;
    compose(r, found);
}

/* Copies the reply; what it borrows and the answer needs is copied, the rest is dropped. */
static bool keep_reply(struct sp_mcp_run *r, const struct sp_reply *reply)
{
    const struct sp_str id = reply->answer.chunk_id;
    const size_t n = id.n < sizeof r->chunk_id ? id.n : sizeof r->chunk_id;

    r->reply = *reply;
    r->reply.text = r->reply.error = (struct sp_str){0};
    r->reply.denial = NULL;
    r->reply.kernel = NULL;
    r->reply.answer.more = (struct sp_str){0};
    if (n != 0)
        memcpy(r->chunk_id, id.p, n);
    r->reply.answer.chunk_id = (struct sp_str){r->chunk_id, n};
    r->output.len = 0;
    if (!sp_buf_add_str(&r->output, reply->answer.output))
        return false;
    r->reply.answer.output = sp_buf_str(&r->output);
    return true;
}

static bool find_denials(struct sp_mcp_run *r, const struct sp_reply *reply)
{
    struct sp_manager_view v = {0};
    struct sp_mcp_denied what = {.kernel = reply->kernel,
                                 .denial = reply->denial,
                                 .was_denied = reply->was_denied,
                                 .output = reply->answer.output,
                                 .exit_code = reply->answer.exit_code};

    if (sp_manager_view(r->caller->manager, reply->process_id, &v))
        what.cwd = v.cwd;
    what.environment = v.environment;
    return sp_mcp_denials_find(&r->denials, r->caller->mcp, &what);
}

void sp_mcp_answer_reply(struct sp_mcp_run *r, const struct sp_reply *reply)
{
    r->engine_call = 0;
    if (reply->fault != SP_FAULT_NONE) {
        struct sp_mcp_result result = {.is_error = true, .text = reply->text};
        struct sp_manager_view v;

        /* If its output can still be read, the manager's text says so already. */
        if (reply->fault == SP_FAULT_UNKNOWN &&
            !sp_manager_view(r->caller->manager, r->write.session_id, &v))
            result.note = SP_STR(SP_MCP_UNKNOWN_HINT);
        sp_mcp_run_done(r, &result);
        return;
    }
    if (!keep_reply(r, reply) || !find_denials(r, reply)) {
        sp_mcp_tool_no_memory(r);
        return;
    }
    if (reply->answer.fate == SP_ANSWER_RUNNING || reply->is_output_held)
        r->inspection =
            sp_mcp_inspect(r->caller, reply->process_id, SP_MCP_INSPECT_MS, on_inspected, r);
    if (r->inspection == NULL)
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
