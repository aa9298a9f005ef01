/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec_json.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"
#include "engine/run.h"
#include "mcp/tools.h"
#include "os/seccomp.h"

/* ---- events ---- */

static struct sp_exec_event event_of(const struct sp_exec_json *j, enum sp_event_type type)
{
    return (struct sp_exec_event){
        .type = type,
        .call_id = sp_str_of(j->call_id),
        .turn_id = SP_STR(""),
        .at_ms = (int64_t)sp_clock_unix_ms(),
        .argv = j->launch->argv,
        .argc = j->launch->argc,
        .cwd = j->launch->cwd,
        .source = SP_SOURCE_USER_SHELL,
    };
}

static bool add_event(struct sp_buf *out, const struct sp_exec_event *e)
{
    return sp_tools_add_event(out, e) && sp_buf_add(out, "\n", 1);
}

static void on_frame(void *arg, struct sp_str frame);

static void forget_output(struct sp_exec_json *j)
{
    for (int i = 0; i < 2; i++) {
        sp_headtail_done(&j->kept[i]);
        sp_delta_init(&j->deltas[i], &j->quota, on_frame, j);
        sp_headtail_init(&j->kept[i], SP_HEADTAIL_CAPACITY);
    }
}

static bool on_started(void *user, struct sp_buf *out)
{
    struct sp_exec_json *j = user;
    const struct sp_exec_event e = event_of(j, SP_EVENT_BEGIN);

    if (j->has_begun)
        forget_output(j); /* that of the attempt that was denied */
    j->has_begun = true;
    return add_event(out, &e);
}

static void on_frame(void *arg, struct sp_str frame)
{
    struct sp_exec_json *j = arg;
    struct sp_exec_event e = event_of(j, SP_EVENT_DELTA);

    e.stream = j->stream;
    e.chunk = frame;
    j->ok = j->ok && add_event(j->out, &e);
}

static void select_stream(struct sp_exec_json *j, int which, struct sp_buf *out)
{
    j->out = out;
    j->stream = which == 1 ? SP_STREAM_STDERR : SP_STREAM_STDOUT;
    j->quota = UINT_MAX;
    j->ok = true;
}

static bool on_output(void *user, enum sp_stream stream, struct sp_str bytes, struct sp_buf *out)
{
    struct sp_exec_json *j = user;
    const int which = stream == SP_STREAM_STDERR ? 1 : 0;

    select_stream(j, which, out);
    sp_delta_push(&j->deltas[which], bytes);
    return sp_headtail_push(&j->kept[which], bytes) && j->ok;
}

static bool on_gap(void *user, uint64_t bytes, struct sp_buf *out)
{
    struct sp_exec_event e = event_of(user, SP_EVENT_WARNING);
    char text[64];

    if (bytes > 0)
        (void)snprintf(text, sizeof text, "%llu bytes of output were lost here",
                       (unsigned long long)bytes);
    else
        (void)snprintf(text, sizeof text, "some output was lost here");
    e.message = sp_str_of(text);
    return add_event(out, &e);
}

/* ---- the end ---- */

/* stdout and stderr share SP_RUN_CAP in the aggregated output. */
static bool add_end(struct sp_exec_json *j, const struct sp_carry_result *r, int status,
                    struct sp_buf *out)
{
    auto_buf struct sp_buf raw = {0};
    auto_buf struct sp_buf std = {0};
    auto_buf struct sp_buf err = {0};
    auto_buf struct sp_buf all = {0};
    struct sp_exec_event e = event_of(j, SP_EVENT_END);
    size_t n_out = 0;
    size_t n_err = 0;

    for (int i = 0; i < 2; i++) {
        raw.len = 0;
        if (!sp_headtail_add_marked(&j->kept[i], &raw) ||
            !sp_utf8_add_lossy(i == 0 ? &std : &err, sp_buf_str(&raw)))
            return false;
    }
    sp_run_share(std.len, err.len, SP_RUN_CAP, &n_out, &n_err);
    n_out = sp_delta_boundary((struct sp_str){sp_buf_str(&std).p, n_out});
    n_err = sp_delta_boundary((struct sp_str){sp_buf_str(&err).p, n_err});
    if (!sp_buf_add(&all, sp_buf_str(&std).p, n_out) ||
        !sp_buf_add(&all, sp_buf_str(&err).p, n_err))
        return false;
    e.out = sp_buf_str(&std);
    e.err = sp_buf_str(&err);
    e.aggregated = e.formatted = sp_buf_str(&all);
    e.exit_code = r->end == SP_CARRY_LOST ? -1 : status;
    e.duration_ns = r->duration_ns;
    e.status = status == 0 ? SP_STATUS_COMPLETED : SP_STATUS_FAILED;
    return add_event(out, &e);
}

/* ---- the result ---- */

/* `kind` of the result line. */
static const char *kind_of(const struct sp_carry_result *r)
{
    switch (r->end) {
    case SP_CARRY_EXITED:
        return r->exit.code < 0 ? "lost" : r->exit.signal != 0 ? "signalled" : "exited";
    case SP_CARRY_TIMED_OUT:
        return "timed_out";
    case SP_CARRY_ABANDONED:
    case SP_CARRY_OUTPUT_CLOSED:
        return "cancelled";
    case SP_CARRY_UNREACHABLE:
    case SP_CARRY_LOST:
        return "lost";
    case SP_CARRY_REJECTED:
        return "refused";
    case SP_CARRY_REFUSED:
        break;
    }
    return "error";
}

/* What the sandbox refused: the kernel's facts first, the guess from the output last. */
static bool add_denials(struct sp_buf *out, const struct sp_carry_result *r)
{
    const struct sp_exit *how = &r->exit;
    const size_t begin = out->len;
    bool ok = true;

    for (uint32_t i = 0; ok && i < how->refusal_count && i < SP_EXIT_REFUSALS; i++) {
        const char *name = sp_syscall_name(how->refusals[i].call);

        ok = sp_buf_printf(out, "%s{\"source\":\"seccomp\",\"call\":\"%s\",\"count\":%u}",
                           i == 0 ? "" : ",", name != NULL ? name : "unknown",
                           how->refusals[i].count);
    }
    if (how->left_network > 0)
        ok = ok &&
             sp_buf_printf(out, "%s{\"source\":\"network\",\"reason\":\"no_route\",\"count\":%u}",
                           out->len == begin ? "" : ",", how->left_network);
    if (r->denial.reason == NULL)
        return ok;
    ok = ok && sp_buf_printf(out, "%s{\"source\":\"heuristic\",\"reason\":\"%s\"",
                             out->len == begin ? "" : ",", r->denial.reason);
    if (r->denial.path[0] != 0)
        ok = ok && sp_buf_printf(out, ",\"path\":") &&
             sp_json_add_str(out, sp_str_of(r->denial.path));
    return ok && sp_buf_add(out, "}", 1);
}

/* The result line; r NULL: the command was never started. */
static bool add_result(struct sp_buf *out, const struct sp_carry_result *r, int status,
                       const char *message)
{
    bool ok = sp_buf_printf(out, "{\"type\":\"result\",\"kind\":\"%s\",\"exit_code\":%d",
                            r == NULL ? "error" : kind_of(r), status);

    if (r != NULL && r->exit.signal != 0)
        ok = ok && sp_buf_printf(out, ",\"signal\":%d", r->exit.signal);
    ok = ok && sp_buf_printf(out, ",\"denials\":[") &&
         (r == NULL || !r->was_denied || add_denials(out, r)) && sp_buf_add(out, "]", 1);
    if (message[0] != 0)
        ok = ok && sp_buf_printf(out, ",\"message\":") && sp_json_add_str(out, sp_str_of(message));
    return ok && sp_buf_printf(out, "}\n");
}

static bool on_ended(void *user, const struct sp_carry_result *r, struct sp_buf *out)
{
    struct sp_exec_json *j = user;
    char text[4096] = "";
    const int status = j->status(j->user, r, text, sizeof text);

    for (int i = 0; i < 2; i++) {
        select_stream(j, i, out);
        sp_delta_finish(&j->deltas[i]);
        if (!j->ok)
            return false;
    }
    return (!j->has_begun || add_end(j, r, status, out)) && add_result(out, r, status, text);
}

bool sp_exec_json_add_error(struct sp_buf *out, int status, const char *message)
{
    return add_result(out, NULL, status, message);
}

/* ---- beginning ---- */

void sp_exec_json_init(struct sp_exec_json *j)
{
    j->scribe = (struct sp_carry_scribe){
        .user = j, .started = on_started, .output = on_output, .gap = on_gap, .ended = on_ended};
    (void)snprintf(j->call_id, sizeof j->call_id, "exec-%d", (int)getpid());
    forget_output(j);
}

void sp_exec_json_done(struct sp_exec_json *j)
{
    for (int i = 0; i < 2; i++)
        sp_headtail_done(&j->kept[i]);
}
