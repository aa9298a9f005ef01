/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_exec: exec_command and write_stdin, from their arguments to their results.
 *
 * exec_command starts a command. With a `key` that was used before it starts nothing and answers
 * for the session that the first call started; if that call has not started its command yet, the
 * run waits for it. write_stdin types characters and keys, or polls; with a `write_id` that was
 * used before it only polls. So a client that missed an answer can repeat either call.
 *
 * The first run with a key owns its item (r->key_item, item->run == r) until the manager replies:
 *
 *   started        the item keeps the session id; waiting runs poll that session
 *   refused        the item is forgotten; waiting runs get the same refusal
 *   aborted early  the item is forgotten; the first waiting run starts the command
 *
 * The manager's reply is copied while the kernel is asked what the process is doing. The result has
 * two forms, one text and facts for programs. Hosts show models one of them or both, so each starts
 * with how the process ended, and the output is within the budget in each.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/ere.h"
#include "base/sha.h"
#include "base/utf8.h"
#include "engine/network_job.h"
#include "mcp/tool.h"

#define END_OF_FILE    "\004" /* the default VEOF character of a terminal */
#define DEFAULT_TOKENS 4500   /* 18 kB: below the limit of every host that has one */
#define HEADER_BYTES   1536   /* allowed for the lines before the output, on top of the budget */
#define DEFAULT_LINES  1900   /* opencode cuts at 2,000 lines */
#define FIT_ROUNDS     8
#define REPLACEMENT    "\xEF\xBF\xBD" /* U+FFFD: stands for 1 to 3 bytes */
#define EARLY                                                                                     \
    "the host sent no progress token, so this call could wait no longer; call write_stdin again " \
    "to go on waiting"

/* ---- what models are told ---- */

#define STRINGS "\"items\":{\"type\":\"string\"}"
#define MAX_OUTPUT_TOKENS                                                                  \
    SP_PARAMETER(                                                                          \
        "max_output_tokens", "integer",                                                    \
        "Most tokens of output in the answer. Default 4500; the configuration has a cap. " \
        "read_output has the rest.")
#define UNTIL                                                                                 \
    {                                                                                         \
        "until", "object",                                                                    \
            "End the wait early, at the first of these that happens (the end of the process " \
            "always ends it).",                                                               \
            "\"properties\":{\"exit\":{\"type\":\"boolean\",\"description\":\"The process "   \
            "ends.\"},\"pattern\":{\"type\":\"string\",\"description\":\"New output matches " \
            "this extended regular expression.\"},\"quiet_ms\":{\"type\":\"integer\","        \
            "\"description\":\"No output for this long.\"},\"port\":{\"type\":\"integer\","   \
            "\"description\":\"The process or a child listens on this TCP port.\"}},"         \
            "\"additionalProperties\":false",                                                 \
            SP_TOOL_ALWAYS                                                                    \
    }

static const char additional_permissions[] =
    "\"properties\":{\"network\":{\"type\":\"object\",\"description\":\"Network access.\","
    "\"properties\":{\"enabled\":{\"type\":\"boolean\",\"description\":\"true: wanted.\"}},"
    "\"additionalProperties\":false},\"file_system\":{\"type\":\"object\",\"description\":"
    "\"Access to files.\",\"properties\":{\"read\":{\"type\":\"array\"," STRINGS
    ",\"description\":\"Absolute paths to read.\"},\"write\":{\"type\":\"array\"," STRINGS
    ",\"description\":\"Absolute paths to write.\"}},\"additionalProperties\":false}},"
    "\"additionalProperties\":false";

static const struct sp_tool_parameter exec_parameters[] = {
    SP_PARAMETER("cmd", "string", "A script for the shell, for example `make test`."),
    {"argv", "array", "Instead of cmd: a program and its arguments, without a shell.", STRINGS,
     SP_TOOL_ALWAYS},
    SP_PARAMETER("workdir", "string", "Directory to run in. Default: the workspace."),
    {"env", "object", "Environment variables to set.",
     "\"additionalProperties\":{\"type\":\"string\"}", SP_TOOL_ALWAYS},
    SP_PARAMETER(
        "tty", "boolean",
        "true: in a terminal, needed to type into the command. Default: pipes, and its stdin "
        "is empty."),
    SP_PARAMETER("rows", "integer", "Height of the terminal. Default 24."),
    SP_PARAMETER("cols", "integer", "Width of the terminal. Default 80."),
    SP_PARAMETER("yield_time_ms", "integer",
                 "How long to wait for the command to end before answering: 250 to 30000. Default "
                 "10000."),
    UNTIL,
    SP_PARAMETER("timeout_ms", "integer",
                 "Kill the command and its children after this long. Default: never."),
    {"limits", "object",
     "What it may consume: memory_bytes, pids, cpus, cpu_ms, wall_ms, output_bytes, open_files, "
     "file_size_bytes.",
     NULL, SP_TOOL_ALWAYS},
    MAX_OUTPUT_TOKENS,
    {"shell", "string", "Shell for cmd. Default: the user's.", NULL, SP_TOOL_WITHOUT_FIXED_SHELL},
    {"login", "boolean", "false: the shell reads no login files, which is faster. Default true.",
     NULL, SP_TOOL_WITH_LOGIN},
    SP_MCP_ENVIRONMENT_ID,
    {"sandbox_permissions", "string",
     "`require_escalated`: ask for permission to run without a sandbox. Default `use_default`.",
     "\"enum\":[\"use_default\",\"require_escalated\"]", SP_TOOL_WITHOUT_ADDITIONAL_PERMISSIONS},
    {"sandbox_permissions", "string",
     "`with_additional_permissions`: ask for additional_permissions. `require_escalated`: ask for "
     "permission to run without a sandbox. Default `use_default`.",
     "\"enum\":[\"use_default\",\"with_additional_permissions\",\"require_escalated\"]",
     SP_TOOL_WITH_ADDITIONAL_PERMISSIONS},
    {"additional_permissions", "object", "What the command needs beyond its sandbox.",
     additional_permissions, SP_TOOL_WITH_ADDITIONAL_PERMISSIONS},
    SP_PARAMETER("justification", "string",
                 "When asking for permission: why, for the person asked."),
    {"prefix_rule", "array",
     "With require_escalated: offer to allow all commands that begin so, for example "
     "[\"git\",\"pull\"].",
     STRINGS, SP_TOOL_ALWAYS},
    SP_PARAMETER(
        "key", "string",
        "A name of your choice for this start. Repeating the call with the same key within 10 "
        "minutes starts nothing and answers for the same session."),
    {0},
};

static const struct sp_tool_parameter write_parameters[] = {
    SP_MCP_SESSION_ID,
    SP_PARAMETER("chars", "string", "Text to type, exactly; end a line with \\n."),
    {"keys", "array",
     "Keys to press after chars: Enter Tab Escape Backspace Delete Up Down Left Right Home "
     "End PageUp PageDown F1-F12 C-a-C-z. Needs a tty.",
     STRINGS, SP_TOOL_ALWAYS},
    SP_PARAMETER("eof", "boolean", "true: send end of file last. Needs a tty."),
    SP_PARAMETER("yield_time_ms", "integer",
                 "How long to wait. After typing: default 250, at most 30000. Otherwise 5000 to "
                 "300000, default 5000; a host that sends no progress token gets its answer after "
                 "47000 at the latest (`early` says so): call again."),
    UNTIL,
    MAX_OUTPUT_TOKENS,
    {"no_timeout", "boolean",
     "true: wait until the process has ended. Without chars and "
     "yield_time_ms only.",
     NULL, SP_TOOL_WITH_NO_TIMEOUT},
    SP_PARAMETER(
        "write_id", "string",
        "A name of your choice for this write. Repeating the call with it within 10 minutes "
        "types nothing and waits."),
    {0},
};

#define RESULT                                                                 \
    "state:string exit_code:integer signal:string end_reason:string "          \
    "session_id:integer ended_session_id:integer from_byte:integer "           \
    "next_byte:integer omitted_bytes:integer omitted_from_byte:integer "       \
    "woken_by:object early:string denials:array network:object holders:array " \
    "receipt:object chunk_id:string "                                          \
    "wall_time_seconds:number original_token_count:integer output:string "     \
    "note:string"

/* ---- `until`: what ends a wait ---- */

/* Each member of the object is a condition; null and unknown members are none. */
static int read_conditions(struct sp_json *j, uint32_t token, struct sp_mcp_until *ret,
                           struct sp_err *e)
{
    const uint32_t before = ret->count;

    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_fail(e, SP_E_INVALID, 0, "`until` is an object");
    for (uint32_t key = sp_json_first(j, token); key != SP_JSON_NONE;
         key = sp_json_next(j, token, key)) {
        const struct sp_str name = sp_json_str(j, key);
        const enum sp_json_type type = sp_json_type(j, key + 1);
        const bool is_port = sp_str_eq(name, SP_STR("port"));
        struct sp_until one = {0};

        if (type == SP_JSON_NULL)
            continue;
        if (sp_str_eq(name, SP_STR("exit"))) {
            if (type != SP_JSON_TRUE)
                return sp_fail(e, SP_E_INVALID, 0, "`until`: `exit` is true, or left out");
            one.kind = SP_UNTIL_EXIT;
        } else if (sp_str_eq(name, SP_STR("pattern"))) {
            struct sp_ere *x = NULL;

            if (type != SP_JSON_STRING)
                return sp_fail(e, SP_E_INVALID, 0,
                               "`until`: `pattern` is a regular expression, a string");
            one.kind = SP_UNTIL_PATTERN;
            one.pattern = sp_json_str(j, key + 1);
            /* Compiled here to report an error before a command is started for it. */
            if (sp_ere_new(one.pattern, &x, e) < 0)
                return sp_wrap(e, "`until`: `pattern`");
            sp_ere_free(x);
        } else if (is_port || sp_str_eq(name, SP_STR("quiet_ms"))) {
            const uint64_t max = is_port ? UINT16_MAX : INT32_MAX;
            struct sp_number n = {0};

            if ((type != SP_JSON_INT && type != SP_JSON_UINT && type != SP_JSON_REAL) ||
                sp_number_read(sp_json_raw(j, key + 1), &n) != SP_NUMBER_WHOLE || n.is_negative ||
                n.magnitude == 0 || n.magnitude > max)
                return sp_fail(e, SP_E_INVALID, 0, "`until`: `%s` is a number from 1 to %" PRIu64,
                               is_port ? "port" : "quiet_ms", max);
            one.kind = is_port ? SP_UNTIL_PORT : SP_UNTIL_QUIET;
            one.quiet_ms = is_port ? 0 : n.magnitude;
            one.port = is_port ? (uint16_t)n.magnitude : 0;
        } else {
            continue;
        }
        if (ret->count == SP_UNTIL_COUNT_MAX)
            return sp_fail(e, SP_E_INVALID, 0, "`until` has at most %d conditions",
                           SP_UNTIL_COUNT_MAX);
        ret->items[ret->count++] = one;
    }
    if (ret->count == before)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`until` has one or more of {\"exit\":true}, {\"pattern\":\"ERE\"}, "
                       "{\"quiet_ms\":2000}, {\"port\":3000}");
    return 0;
}

static int read_until(struct sp_json *j, uint32_t token, struct sp_mcp_until *ret, struct sp_err *e)
{
    int r = 0;

    if (token == SP_JSON_NONE)
        return 0;
    if (sp_json_type(j, token) != SP_JSON_ARRAY)
        return read_conditions(j, token, ret, e);
    /* A list of objects is accepted, too; the schema does not say so, because some hosts refuse
     * unions. */
    for (uint32_t t = sp_json_first(j, token); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, token, t))
        r = read_conditions(j, t, ret, e);
    return r;
}

/* ---- answers: what is known ---- */

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

/* ---- answers: the output within its budget ---- */

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

/* ---- answers: the two forms ---- */

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

/* NULL: it runs. */
static const char *reason_of(const struct sp_reply *p)
{
    return p->end_reason == SP_END_SIGNAL && p->limits.has_ended
               ? sp_end_reason_name(sp_limit_kinds[p->limits.ended_by].reason)
               : sp_end_reason_name(p->end_reason);
}

/* A line for each limit that was reached. */
static bool add_limit_lines(struct sp_buf *out, const struct sp_limit_hits *hits)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < hits->count; i++)
        ok = sp_limits_add_text(out, &hits->items[i]) && sp_buf_add(out, "\n", 1);
    return ok;
}

static bool add_header(struct sp_buf *out, const struct sp_mcp_run *r,
                       const struct sp_inspection *found)
{
    const struct sp_reply *p = &r->reply;
    const uint64_t ns = p->answer.wall_ns;
    const char *reason = reason_of(p);
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
        ok = ok && add_limit_lines(out, &p->limits);
    }
    /* printf's %f would use the decimal point of the locale. */
    ok = ok && sp_buf_printf(out, "Wall time: %" PRIu64 ".%02u seconds\n", ns / 1000000000,
                             (unsigned)(ns % 1000000000 / 10000000));
    if (is_alive(r) || sp_mcp_is_output_held(p->is_output_held, found))
        ok = ok && sp_buf_printf(out, "State: %s\n", state_of(r, found));
    if (is_early(r))
        ok = ok && sp_buf_add_str(out, SP_STR("Answered early: " EARLY "\n"));
    return ok && (r->until.count == 0 || add_woken_by(out, r, false)) &&
           sp_mcp_denials_add(out, &r->denials, false);
}

/* The output comes last: a host that cuts this form cuts there. */
static bool add_structured(struct sp_buf *out, const struct sp_mcp_run *r,
                           const struct sp_inspection *found, const struct body *b)
{
    const struct sp_reply *p = &r->reply;
    const struct sp_exec_answer *a = &p->answer;
    const bool has_exited = a->fate == SP_ANSWER_EXITED;
    const char *reason = reason_of(p);
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
              sp_mcp_denials_add(out, &r->denials, true) &&
              (r->network.len == 0 ||
               (sp_json_add_key(out, "network") && sp_buf_add_str(out, sp_buf_str(&r->network))));

    if (found != NULL && sp_mcp_is_output_held(p->is_output_held, found)) {
        ok = ok && sp_json_add_value(out, "holders", "[");
        for (uint32_t i = 0; ok && i < found->holder_count && i < SP_INSPECT_HOLDERS; i++)
            ok = sp_buf_printf(out, "%s{\"pid\":%d", i == 0 ? "" : ",", found->holders[i].pid) &&
                 sp_json_add_member(out, "name", sp_str_of(found->holders[i].name)) &&
                 sp_buf_add(out, "}", 1);
        ok = ok && sp_buf_add(out, "]", 1);
    }
    if (p->receipt != NULL)
        ok = ok && sp_json_add_key(out, "receipt") &&
             sp_receipt_add(out, p->receipt, SP_RECEIPT_SNAKE);
    return ok && (a->chunk_id.n == 0 || sp_json_add_member(out, "chunk_id", a->chunk_id)) &&
           sp_json_add_value(out, "wall_time_seconds", "%" PRIu64 ".%09" PRIu64,
                             a->wall_ns / 1000000000, a->wall_ns % 1000000000) &&
           (!a->has_token_count ||
            sp_json_add_value(out, "original_token_count", "%" PRIu64, a->token_count)) &&
           sp_mcp_run_add_output(out, r, sp_buf_str(&b->text)) && sp_buf_add(out, "}", 1);
}

/* ---- answers: from the reply to the result ---- */

static void compose(struct sp_mcp_run *r, const struct sp_inspection *found)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf structured = {0};
    struct body b = {0};
    bool ok = add_header(&text, r, found) && make_body(r, text.len, &b);

    if (b.is_cut && r->reply.process_id != 0)
        ok = ok &&
             sp_buf_printf(&text,
                           "Output truncated: %" PRIu64 " bytes left out; read_output with "
                           "session_id %d and from_byte %" PRIu64 " has %s\n",
                           b.omitted, r->reply.process_id, b.from,
                           r->reply.answer.omitted == 0 ? "them" : "what is still kept of them");
    ok = ok && sp_buf_add_str(&text, SP_STR("Output:\n")) &&
         sp_buf_add_str(&text, sp_buf_str(&b.text)) && add_structured(&structured, r, found, &b);
    sp_buf_done(&b.text);
    sp_mcp_tool_done(r, ok, &text, &structured);
}

/* The executor's text names no file. */
static bool is_about_a_missing_file(const struct sp_reply *reply)
{
    static const struct sp_str end = SP_STR("No such file or directory (os error 2)");
    const struct sp_str text = reply->text;

    return reply->fault == SP_FAULT_CREATE && text.n >= end.n &&
           memcmp(text.p + text.n - end.n, end.p, end.n) == 0;
}

/* Answers with the manager's reply, at once or after an inspection of the process. */
static void answer_reply(struct sp_mcp_run *r, const struct sp_reply *reply)
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
        else if (is_about_a_missing_file(reply))
            result.note = SP_STR("The directory `workdir` or the program, the first word of "
                                 "`argv`, is not there.");
        sp_mcp_run_done(r, &result);
        return;
    }
    const bool is_known = sp_manager_view(r->caller->manager, reply->process_id, &v);
    const struct sp_mcp_denied denied = {.kernel = reply->kernel,
                                         .denial = reply->denial,
                                         .was_denied = reply->was_denied,
                                         .was_confined = reply->was_confined,
                                         .output = reply->answer.output,
                                         .exit_code = reply->answer.exit_code,
                                         .cwd = is_known ? v.cwd : (struct sp_str){0},
                                         .environment = v.environment,
                                         .network = reply->network};

    /* What the reply borrows and the answer needs is copied, the rest is dropped. */
    r->output.len = r->network.len = 0;
    if (!sp_mcp_denials_find(&r->denials, r->caller->mcp, &denied) ||
        !sp_buf_add_str(&r->output, reply->answer.output) ||
        (reply->network != NULL && !sp_buf_add_str(&r->network, reply->network->json))) {
        sp_mcp_tool_no_memory(r);
        return;
    }
    r->reply = *reply;
    r->reply.text = r->reply.error = (struct sp_str){0};
    r->reply.denial = NULL;
    r->reply.kernel = NULL;
    r->receipt = reply->receipt != NULL ? *reply->receipt : (struct sp_command_receipt){0};
    r->reply.receipt = reply->receipt != NULL ? &r->receipt : NULL;
    r->reply.network = NULL;
    if (n != 0)
        memcpy(r->chunk_id, id.p, n);
    r->reply.answer.chunk_id = (struct sp_str){r->chunk_id, n};
    r->reply.answer.output = sp_buf_str(&r->output);
    r->omits_end = is_alive(r) && !reply->has_exited;
    if (!sp_mcp_tool_inspect(r, is_alive(r) || reply->is_output_held ? reply->process_id : 0,
                             compose))
        compose(r, NULL);
}

/* Answers with what is still known of a process that has been reported as ended. */
static void answer_view(struct sp_mcp_run *r, const struct sp_manager_view *v)
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
        .was_confined = v->was_confined,
        .process_id = v->process_id,
        .signal = v->signal,
        .to = v->total,
        .woken_by = -1,
        .has_exited = true,
        .is_output_held = v->is_output_held,
        .end_reason = v->end_reason,
        .limits = v->limits,
        .denial = v->denial,
        .kernel = v->kernel,
        .receipt = v->receipt,
        .network = v->network,
    };
    answer_reply(r, &reply);
}

/* ---- exec_command with a key ---- */

static int begin_exec(struct sp_mcp_run *r, struct sp_err *e);

static void begin_again(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);
    struct sp_err e = {0};

    if (r->is_cancelled)
        sp_mcp_run_fail(r, "aborted by user");
    else if (begin_exec(r, &e) < 0)
        sp_mcp_run_fail(r, "%s", e.msg);
}

static struct sp_mcp_run *take_waiting(struct sp_mcp_key *i)
{
    struct sp_list *link = sp_list_take_first(&i->waits);

    return link == NULL ? NULL : SP_CONTAINER(link, struct sp_mcp_run, key_wait);
}

/* The first call has started its command or was aborted: runs that wait for it try again. */
static void wake_waiting(struct sp_mcp_key *i)
{
    struct sp_mcp_run *r;

    while ((r = take_waiting(i)) != NULL) {
        r->hurry = NULL;
        sp_loop_defer(r->caller->loop, &r->deferred, begin_again);
    }
}

static void on_begun(struct sp_mcp_run *r)
{
    if (r->key_item != NULL)
        wake_waiting(r->key_item);
}

static void on_exec_reply(void *user, const struct sp_reply *reply)
{
    struct sp_mcp_run *r = user;
    struct sp_mcp_key *i = TAKE_PTR(r->key_item);
    const bool is_abort = reply->fault == SP_FAULT_ABORTED;
    const bool has_started = reply->fault == SP_FAULT_NONE || (is_abort && r->session_id != 0);
    const struct sp_mcp_result refusal = {.is_error = true, .text = reply->text};
    struct sp_mcp_run *waiting;

    r->begun = NULL;
    if (i != NULL && has_started) { /* an aborted call leaves its command running */
        i->run = NULL;
        i->session_id = reply->fault == SP_FAULT_NONE ? reply->process_id : r->session_id;
        wake_waiting(i);
    } else if (i != NULL) {
        i->run = NULL;
        if (is_abort)
            wake_waiting(i); /* the first of them starts the command */
        while ((waiting = take_waiting(i)) != NULL)
            sp_mcp_run_done(waiting, &refusal); /* do not ask a person the same again */
        sp_mcp_key_forget(i);
    }
    answer_reply(r, reply);
}

static void on_poll_reply(void *user, const struct sp_reply *reply)
{
    struct sp_mcp_run *r = user;
    struct sp_manager_view v;

    /* Another call may have been told of the end of the process meanwhile. */
    if (reply->fault == SP_FAULT_UNKNOWN &&
        sp_manager_view(r->caller->manager, r->write.session_id, &v))
        answer_view(r, &v);
    else
        answer_reply(r, reply);
}

static void answer_ended(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);
    struct sp_manager_view v;

    if (r->write.session_id == 0)
        sp_mcp_run_fail(r, "the first call with this key did its work without a session; nothing "
                           "was done again");
    else if (sp_manager_view(r->caller->manager, r->write.session_id, &v))
        answer_view(r, &v);
    else
        sp_mcp_run_fail(r,
                        "the command of this key has ended and its output is no longer kept; use "
                        "another key to run it again");
}

/* Answers for the session that the first call with this key started. 10 s is the default wait of
 * exec_command: a poll has another one. */
static int poll_session(struct sp_mcp_run *r, int session_id, struct sp_err *e)
{
    struct sp_manager_view v;

    r->write = (struct sp_write_request){
        .call_id = sp_str_of(r->call_id),
        .session_id = session_id,
        .yield = {true, r->exec.yield.has_yield_time ? r->exec.yield.yield_time_ms : 10000},
        .has_max_tokens = r->exec.has_max_tokens,
        .max_tokens = r->exec.max_tokens,
        .until = r->until.items,
        .until_count = r->until.count,
        .omits_text = true,
    };
    if (r->waits_for_end)
        r->write.yield.yield_time_ms = UINT64_MAX;
    r->session_id = session_id;
    if (session_id != 0 && sp_manager_view(r->caller->manager, session_id, &v) && !v.is_answered)
        return sp_manager_write(r->caller->manager, &r->write, on_poll_reply, r, &r->engine_call,
                                e);
    sp_loop_defer(r->caller->loop, &r->deferred, answer_ended);
    return 0;
}

static void stop_waiting(struct sp_mcp_run *r)
{
    sp_list_remove(&r->key_wait);
    r->hurry = NULL;
    sp_mcp_run_fail(r, "the first call with this key has not started its command yet; repeat the "
                       "same call");
}

/* Only a repetition of the call gets the session that its key has: the answer for another command
 * would look as if that command had run. */
static int check_command(struct sp_mcp_run *r, struct sp_mcp_key *i, bool is_new, struct sp_err *e)
{
    const struct sp_exec_request *x = &r->exec;
    auto_buf struct sp_buf text = {0};
    uint8_t command[sizeof i->command];

    if (!sp_buf_printf(&text, "%" PRIu32 " %zu ", x->argc, x->workdir.n) ||
        !sp_buf_add_str(&text, x->workdir) || !sp_buf_add_str(&text, x->cmd)) {
        if (is_new)
            sp_mcp_key_forget(i);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember a call");
    }
    sp_sha256(sp_buf_str(&text), command);
    if (is_new)
        memcpy(i->command, command, sizeof command);
    else if (memcmp(i->command, command, sizeof command) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the key `%.*s` belongs to an earlier call with another command or workdir, "
                       "and nothing was started; use another key",
                       (int)(r->key.n > 60 ? 60 : r->key.n), r->key.p);
    return 0;
}

static int begin_exec(struct sp_mcp_run *r, struct sp_err *e)
{
    struct sp_mcp_key *i = NULL;
    bool is_new = false;

    if (r->key.p != NULL && (sp_mcp_key_take(r->caller, 0, r->key, &i, &is_new, e) < 0 ||
                             check_command(r, i, is_new, e) < 0))
        return -(int)e->code;
    if (i == NULL || is_new) {
        if (i != NULL) {
            i->run = r;
            r->key_item = i;
            r->begun = on_begun;
        }
        r->owns_process = i == NULL; /* with a key the client can find the process again */
        return sp_manager_exec(r->caller->manager, &r->exec, on_exec_reply, r, &r->engine_call, e);
    }
    if (i->run == NULL || i->run->session_id != 0)
        return poll_session(r, i->run == NULL ? i->session_id : i->run->session_id, e);
    if (i->run->is_held)
        return sp_mcp_tool_refuse(r, e,
                                  "the first call with this key waits for an approval; repeat that "
                                  "call with its requestState, or use another key");
    sp_list_append(&i->waits, &r->key_wait);
    r->hurry = stop_waiting;
    return 0;
}

/* ---- exec_command: arguments ---- */

static int take_env(struct sp_mcp_run *r, uint32_t token, struct sp_err *e)
{
    struct sp_json *j = &r->arguments.json;
    uint32_t count = 0;

    if (token == SP_JSON_NONE)
        return 0;
    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_fail(e, SP_E_INVALID, 0, "`env` is an object of strings");
    struct sp_env_var *vars =
        sp_arena_new(&r->arguments.keep, ((size_t)j->tokens[token].children + 1) * sizeof *vars);
    if (vars == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read function arguments");
    for (uint32_t key = sp_json_first(j, token); key != SP_JSON_NONE;
         key = sp_json_next(j, token, key)) {
        const struct sp_str name = sp_json_str(j, key);
        const bool is_name = name.n != 0 && memchr(name.p, '=', name.n) == NULL;

        if (!is_name || sp_str_has_nul(name) || sp_json_type(j, key + 1) != SP_JSON_STRING ||
            sp_str_has_nul(sp_json_str(j, key + 1)))
            return sp_fail(e, SP_E_INVALID, 0,
                           "`env`: `%.*s`: want NAME: \"VALUE\"; the name must not be empty or "
                           "contain `=`, and neither may contain NUL",
                           (int)(name.n > 60 ? 60 : name.n), name.p);
        vars[count++] = (struct sp_env_var){name, sp_json_str(j, key + 1)};
    }
    r->exec.env = (struct sp_env_vars){vars, count};
    return 0;
}

/* What cannot be enforced for the whole tree is enforced as well as it can be, unless
 * `enforcement` says otherwise. */
static int take_limits(struct sp_mcp_run *r, uint32_t token, struct sp_err *e)
{
    struct sp_json *j = &r->arguments.json;

    if (token == SP_JSON_NONE)
        return 0;
    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_fail(e, SP_E_INVALID, 0, "`limits` is an object");
    return sp_limits_read_json(j, token, SP_LIMIT_SNAKE, &r->exec.limits, e);
}

static int start_exec_command(struct sp_mcp_run *r, struct sp_err *e)
{
    uint32_t env = SP_JSON_NONE;
    uint32_t until = SP_JSON_NONE;
    uint32_t limits = SP_JSON_NONE;
    bool has_argv = false;
    const struct sp_slot more[] = {
        SP_SLOT(WORDS, "argv", .to = &r->exec.argv, .count = &r->exec.argc, .has = &has_argv),
        SP_SLOT(TOKEN, "env", .to = &env),
        SP_SLOT(U16, "rows", .to = &r->exec.rows),
        SP_SLOT(U16, "cols", .to = &r->exec.cols),
        SP_SLOT(TOKEN, "until", .to = &until),
        SP_SLOT(U64, "timeout_ms", .to = &r->exec.timeout_ms),
        SP_SLOT(TOKEN, "limits", .to = &limits),
        SP_SLOT(STRING, "key", .to = &r->key),
    };

    if (sp_arguments_exec(&r->arguments, &sp_mcp_run_options(r)->tools, SP_SLOTS(more), &r->exec,
                          e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    if (!has_argv && r->exec.cmd.p == NULL)
        return sp_mcp_tool_refuse(
            r, e,
            SP_MCP_BAD_ARGUMENTS "give `cmd` (a script for the shell) or `argv` (a program and its "
                                 "arguments, without a shell)");
    if (has_argv && r->exec.cmd.p != NULL)
        return sp_mcp_tool_refuse(r, e, SP_MCP_BAD_ARGUMENTS "give `cmd` or `argv`, not both");
    if (has_argv && r->exec.argc == 0)
        return sp_mcp_tool_refuse(
            r, e, SP_MCP_BAD_ARGUMENTS "`argv` has at least one element, the program");
    if (has_argv) { /* for display: argv as a person would type it */
        if (!sp_words_add_quoted(&r->typed, (struct sp_words){r->exec.argv, r->exec.argc}))
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read function arguments");
        r->exec.cmd = sp_buf_str(&r->typed);
    }
    if (take_limits(r, limits, e) < 0 || take_env(r, env, e) < 0 ||
        read_until(&r->arguments.json, until, &r->until, e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    r->exec.until = r->until.items;
    r->exec.until_count = r->until.count;
    r->exec.call_id = r->exec.turn_id = sp_str_of(r->call_id);
    r->exec.waits_for_end = r->waits_for_end;
    r->exec.has_no_approver = r->has_no_approver;
    r->exec.omits_text = true;
    r->exec.needs_shell = true;
    return begin_exec(r, e) < 0 ? sp_mcp_tool_refuse_error(r, "", e) : 0;
}

const struct sp_mcp_tool sp_mcp_tool_exec = {
    .name = "exec_command",
    .start = start_exec_command,
    .title = "Run a command",
    .description = "Runs a command and returns its output and exit code. If it has not ended after "
                   "yield_time_ms, it runs on as a session: the answer has a session_id, "
                   "write_stdin types into it or waits for more output, and signal_session ends "
                   "it. Give cmd or argv.",
    .parameters = exec_parameters,
    .is_destructive = true,
    .is_open_world = true,
    .is_main = true,
    .result = RESULT,
};

/* ---- `keys`: what an xterm sends in its normal mode ---- */

static const struct {
    struct sp_str name, sends;
} known_keys[] = {
    {SP_STR("Enter"), SP_STR("\r")},         {SP_STR("Tab"), SP_STR("\t")},
    {SP_STR("Escape"), SP_STR("\033")},      {SP_STR("Backspace"), SP_STR("\177")},
    {SP_STR("Delete"), SP_STR("\033[3~")},   {SP_STR("Up"), SP_STR("\033[A")},
    {SP_STR("Down"), SP_STR("\033[B")},      {SP_STR("Right"), SP_STR("\033[C")},
    {SP_STR("Left"), SP_STR("\033[D")},      {SP_STR("Home"), SP_STR("\033[H")},
    {SP_STR("End"), SP_STR("\033[F")},       {SP_STR("PageUp"), SP_STR("\033[5~")},
    {SP_STR("PageDown"), SP_STR("\033[6~")}, {SP_STR("F1"), SP_STR("\033OP")},
    {SP_STR("F2"), SP_STR("\033OQ")},        {SP_STR("F3"), SP_STR("\033OR")},
    {SP_STR("F4"), SP_STR("\033OS")},        {SP_STR("F5"), SP_STR("\033[15~")},
    {SP_STR("F6"), SP_STR("\033[17~")},      {SP_STR("F7"), SP_STR("\033[18~")},
    {SP_STR("F8"), SP_STR("\033[19~")},      {SP_STR("F9"), SP_STR("\033[20~")},
    {SP_STR("F10"), SP_STR("\033[21~")},     {SP_STR("F11"), SP_STR("\033[23~")},
    {SP_STR("F12"), SP_STR("\033[24~")},
};

static int add_key(struct sp_buf *out, struct sp_str name, struct sp_err *e)
{
    const bool is_control =
        name.n == 3 && name.p[0] == 'C' && name.p[1] == '-' && name.p[2] >= 'a' && name.p[2] <= 'z';
    const char control = is_control ? (char)(name.p[2] - 'a' + 1) : 0;
    struct sp_str sends = {&control, is_control};

    for (size_t i = 0; sends.n == 0 && i < sizeof known_keys / sizeof known_keys[0]; i++)
        if (sp_str_eq(name, known_keys[i].name))
            sends = known_keys[i].sends;
    if (sends.n == 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "unknown key `%.*s`, expected one of Enter, Tab, Escape, Backspace, Delete, "
                       "Up, Down, Left, Right, Home, End, PageUp, PageDown, F1 to F12, C-a to C-z",
                       (int)(name.n > 40 ? 40 : name.n), name.p);
    return sp_buf_add_str(out, sends) ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "type a key");
}

/* The token is a string of names, or an array of them. */
static int add_keys(struct sp_buf *out, struct sp_json *j, uint32_t token, struct sp_err *e)
{
    const enum sp_json_type type = sp_json_type(j, token);
    struct sp_str names = type == SP_JSON_STRING ? sp_json_str(j, token) : (struct sp_str){0};
    int r = 0;

    if (type != SP_JSON_STRING && type != SP_JSON_ARRAY)
        return sp_fail(e, SP_E_INVALID, 0, "`keys` is a list of names of keys");
    while (r == 0 && names.n != 0) { /* names separated by blanks */
        const struct sp_str name = sp_str_cut(&names, ' ');

        if (name.n != 0)
            r = add_key(out, name, e);
    }
    for (uint32_t t = type == SP_JSON_ARRAY ? sp_json_first(j, token) : SP_JSON_NONE;
         r == 0 && t != SP_JSON_NONE; t = sp_json_next(j, token, t))
        r = sp_json_type(j, t) == SP_JSON_STRING
                ? add_key(out, sp_json_str(j, t), e)
                : sp_fail(e, SP_E_INVALID, 0, "`keys` is a list of names of keys");
    return r;
}

/* ---- write_stdin ---- */

static void on_write_reply(void *user, const struct sp_reply *reply)
{
    struct sp_mcp_run *r = user;
    struct sp_mcp_key *i = TAKE_PTR(r->key_item);

    /* Characters that were not typed may be typed by a repetition. */
    if (i != NULL && reply->fault != SP_FAULT_NONE && !reply->has_typed)
        sp_mcp_key_forget(i);
    else if (i != NULL)
        i->run = NULL;
    answer_reply(r, reply);
}

static int start_write_stdin(struct sp_mcp_run *r, struct sp_err *e)
{
    uint32_t keys = SP_JSON_NONE;
    uint32_t until = SP_JSON_NONE;
    bool eof = false;
    const struct sp_slot more[] = {
        SP_SLOT(TOKEN, "keys", .to = &keys),
        SP_SLOT(BOOL, "eof", .to = &eof),
        SP_SLOT(TOKEN, "until", .to = &until),
        SP_SLOT(STRING, "write_id", .to = &r->key),
    };
    struct sp_manager_view v;
    struct sp_mcp_key *i = NULL;
    bool is_new = false;

    if (sp_arguments_write(&r->arguments, &sp_mcp_run_options(r)->tools, SP_SLOTS(more), &r->write,
                           e) < 0 ||
        read_until(&r->arguments.json, until, &r->until, e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    bool ok = sp_buf_add_str(&r->typed, r->write.chars); /* then keys, then end of file */
    if (ok && keys != SP_JSON_NONE && add_keys(&r->typed, &r->arguments.json, keys, e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    ok = ok && (!eof || sp_buf_add_str(&r->typed, SP_STR(END_OF_FILE)));
    if (!ok)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "type into a session");
    r->write.chars = sp_buf_str(&r->typed);
    /* A session that is gone is reported by the manager. */
    if ((keys != SP_JSON_NONE || eof) &&
        sp_manager_view(r->caller->manager, r->write.session_id, &v) && !v.is_tty && !v.is_answered)
        return sp_mcp_tool_refuse(r, e,
                                  "write_stdin failed: `keys` and `eof` need a terminal; rerun "
                                  "exec_command with tty=true to keep stdin open");
    if (r->key.p != NULL && r->write.chars.n != 0) {
        if (sp_mcp_key_take(r->caller, r->write.session_id, r->key, &i, &is_new, e) < 0)
            return sp_mcp_tool_refuse_error(r, "", e);
        if (is_new) {
            i->run = r;
            r->key_item = i;
        } else {
            r->write.chars = SP_STR(""); /* a repeated write becomes a poll */
        }
    }
    r->write.until = r->until.items;
    r->write.until_count = r->until.count;
    r->write.call_id = sp_str_of(r->call_id);
    r->write.omits_text = true;
    r->session_id = r->write.session_id;
    return sp_manager_write(r->caller->manager, &r->write, on_write_reply, r, &r->engine_call, e);
}

const struct sp_mcp_tool sp_mcp_tool_write = {
    .name = "write_stdin",
    .start = start_write_stdin,
    .title = "Type into a session",
    .description = "Types into a running session, or, without chars, keys and eof, waits for its "
                   "output or end. Returns what it printed since the last answer, and its exit "
                   "code once it has ended.",
    .parameters = write_parameters,
    .required = "\"session_id\"",
    .is_destructive = true,
    .is_main = true,
    .result = RESULT,
};
