/* SPDX-License-Identifier: Apache-2.0 */
/* answer: the replies of calls, with the output of their processes. */
#include "engine/answer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "engine/delta.h"
#include "engine/manager_priv.h"

#define NS_PER_TENTH 100000000U
#define NS_PER_DIGIT 100000U /* the fourth decimal */

/* While the process runs, an incomplete UTF-8 character at the end of the collected bytes moves to
 * `pending`, which must be empty and of the same capacity, for the next answer. Out of memory: it
 * stays and is shown as U+FFFD. */
static void hold_back(struct sp_headtail *collected, struct sp_headtail *pending)
{
    char end[SP_DELTA_CARRY_MAX];

    assert(sp_headtail_total(pending) == 0 && pending->capacity == collected->capacity);
    const size_t n = sp_headtail_peek_end(collected, end, sizeof end);
    const size_t from = sp_delta_boundary((struct sp_str){end, n});
    if (from == n)
        return;
    if (sp_headtail_push(pending, (struct sp_str){end + from, n - from}))
        sp_headtail_drop_end(collected, n - from);
}

/* `text` is the result of sp_answer_decode for the same bytes. */
static void set_output(struct sp_exec_answer *a, const struct sp_headtail *collected,
                       struct sp_str text)
{
    a->has_token_count = true;
    a->token_count = sp_allowance_tokens_of(sp_headtail_total(collected));
    a->omitted = collected->omitted;
    a->output = text;
}

struct limits {
    bool has_max_tokens;
    uint64_t max_tokens;            /* requested by the caller; 0 shows only a marker */
    struct sp_allowance configured; /* upper limit */
};

/* The text for a model, at most 1.2 times the configured limit, so that the host does not truncate
 * it again. false: out of memory, and nothing was appended. */
static bool add_text(struct sp_buf *out, const struct sp_exec_answer *a,
                     const struct limits *limits)
{
    const uint64_t max_tokens =
        limits->has_max_tokens ? limits->max_tokens : SP_ANSWER_DEFAULT_TOKENS;
    const struct sp_allowance requested = {SP_ALLOWANCE_TOKENS, max_tokens};
    const uint64_t whole = sp_allowance_bytes(sp_allowance_scale(limits->configured, 6, 5));
    const uint64_t digits =
        a->wall_ns / NS_PER_DIGIT + (a->wall_ns % NS_PER_DIGIT >= NS_PER_DIGIT / 2);
    const size_t mark = out->len;
    bool ok = a->chunk_id.n == 0 || (sp_buf_add_str(out, SP_STR("Chunk ID: ")) &&
                                     sp_buf_add_str(out, a->chunk_id) && sp_buf_add(out, "\n", 1));

    /* Not %f: the decimal point must not depend on the locale. */
    ok = ok && sp_buf_printf(out, "Wall time: %" PRIu64 ".%04u seconds\n", digits / 10000,
                             (unsigned)(digits % 10000));
    if (a->fate == SP_ANSWER_EXITED)
        ok = ok && sp_buf_printf(out, "Process exited with code %d\n", a->exit_code);
    else if (a->fate == SP_ANSWER_RUNNING)
        ok = ok && sp_buf_printf(out, "Process running with session ID %d\n", a->session_id);
    if (a->has_token_count)
        ok = ok && sp_buf_printf(out, "Original token count: %" PRIu64 "\n", a->token_count);
    ok = ok && sp_buf_add_str(out, SP_STR("Output:\n"));
    const uint64_t header = out->len - mark;
    if (ok && sp_truncate_fit(out, a->output, sp_allowance_effective(requested, limits->configured),
                              sp_answer_omission(a), whole > header ? whole - header : 0))
        return true;
    out->len = mark;
    return false;
}

/* ---- replies ---- */

static struct sp_reply new_reply(const struct sp_call *c)
{
    const struct sp_process *p = c->process;
    struct sp_reply r = {.has_max_tokens = c->has_max_tokens,
                         .max_tokens = c->max_tokens,
                         .woken_by = -1,
                         .has_typed = c->has_typed};

    if (p == NULL)
        return r;
    r.process_id = p->id;
    r.has_exited = sp_process_has_exited(p);
    r.is_output_held = sp_process_is_output_held(p);
    r.end_reason = sp_process_end_reason(p);
    r.was_confined = p->sandbox != SP_JOB_SANDBOX_NONE;
    r.network = sp_network_job_receipt(p->network);
    if (r.has_exited) {
        r.denial = p->exit.denial;
        r.kernel = p->exit.kernel;
        r.receipt = sp_process_receipt(p);
        r.limits = p->exit.limits;
    }
    return r;
}

/* Appends exit code and output of the attempt that ended before the fault. */
static void add_attempt(struct sp_call *c, struct sp_buf *text, struct sp_buf *decoded,
                        struct sp_reply *r)
{
    const struct limits limits = {c->has_max_tokens, c->max_tokens, c->m->allowance};
    struct sp_process *p = c->process;
    const size_t mark = text->len;

    if (!c->shows_attempt || p == NULL || !sp_process_has_exited(p))
        return;
    r->answer = (struct sp_exec_answer){
        .wall_ns = p->exited_ns - p->start_ns,
        .fate = SP_ANSWER_EXITED,
        .exit_code = p->exit.code,
    };
    r->signal = p->exit.signal;
    if (!sp_answer_decode(decoded, &p->pending))
        return;
    set_output(&r->answer, &p->pending, sp_buf_str(decoded));
    r->was_denied = true;
    if (!sp_buf_printf(text, "\n\nThe attempt in the sandbox:\n") ||
        !add_text(text, &r->answer, &limits))
        text->len = mark;
}

bool sp_call_fault(struct sp_call *c, enum sp_fault fault, const char *fmt, ...)
{
    /* Errors in the arguments and interruptions need no prefix. */
    const char *prefix = fault == SP_FAULT_ARGUMENTS || fault == SP_FAULT_ABORTED ? ""
                         : c->is_exec ? "exec_command failed: "
                                      : "write_stdin failed: ";
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf decoded = {0};
    struct sp_reply r = new_reply(c);
    auto_free char *body = NULL;
    va_list args;

    va_start(args, fmt);
    const int n = vasprintf(&body, fmt, args);
    va_end(args);
    if (n < 0)
        body = NULL;
    r.fault = fault;
    if (body != NULL && sp_buf_printf(&text, "%s%s", prefix, body)) {
        add_attempt(c, &text, &decoded, &r);
        r.text = sp_buf_str(&text);
        r.error = (struct sp_str){r.text.p + strlen(prefix), (size_t)n};
    } else {
        r.text = r.error = SP_STR("Cannot allocate memory (os error 12)");
    }
    sp_call_finish(c, &r);
    return false;
}

bool sp_call_fail_create(struct sp_call *c, const struct sp_err *why)
{
    const char *sys = why->sys != 0 ? strerrordesc_np(why->sys) : NULL;
    char cause[sizeof why->msg + 128];

    if (sys == NULL || strstr(why->msg, "(os error ") != NULL)
        (void)snprintf(cause, sizeof cause, "%s", why->msg);
    else
        (void)snprintf(cause, sizeof cause, "%s%s%s (os error %d)", why->msg,
                       why->msg[0] == 0 ? "" : ": ", sys, why->sys);
    return sp_call_fault(c, SP_FAULT_CREATE, "Failed to create unified exec process: %s", cause);
}

bool sp_call_fail_memory(struct sp_call *c)
{
    struct sp_err e;

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "begin a command");
    return sp_call_fail_create(c, &e);
}

void sp_call_abort(struct sp_call *c)
{
    const uint64_t ns = sp_clock_ns() - c->began_ns;
    uint64_t tenths = (ns + NS_PER_TENTH / 2) / NS_PER_TENTH;

    tenths = tenths == 0 ? 1 : tenths;
    if (c->is_exec)
        sp_call_fault(c, SP_FAULT_ABORTED, "Wall time: %" PRIu64 ".%u seconds\naborted by user",
                      tenths / 10, (unsigned)(tenths % 10));
    else
        sp_call_fault(c, SP_FAULT_ABORTED, "aborted by user after %" PRIu64 ".%us", tenths / 10,
                      (unsigned)(tenths % 10));
}

/* A label without meaning: it need not be unpredictable. */
static void make_chunk_id(const struct sp_call *c, char ret[7])
{
    uint32_t number;

    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint32_t)(c->number * 2654435761U);
    (void)snprintf(ret, 7, "%06x", (unsigned)(number & 0xffffff));
}

static bool was_denied(const struct sp_process *p, struct sp_str text)
{
    return p->is_code_known && !sp_process_has_failed(p) &&
           sp_denied_judge(p->sandbox, &p->exit, SP_STR(""), text);
}

void sp_call_fail_process(struct sp_call *c)
{
    struct sp_process *p = c->process;

    sp_manager_remove(p);
    sp_call_fault(c, SP_FAULT_FAILED, "Unified exec process failed: %s", p->failure.msg);
}

void sp_call_answer(struct sp_call *c, enum sp_answer_fate fate)
{
    struct sp_process *p = c->process;
    auto_headtail struct sp_headtail out = sp_headtail_drain(&p->pending);
    auto_buf struct sp_buf decoded = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_reply r = new_reply(c);
    char chunk_id[7];

    make_chunk_id(c, chunk_id);
    r.answer = (struct sp_exec_answer){
        .chunk_id = sp_str_of(chunk_id),
        .wall_ns = sp_clock_ns() - c->from_ns,
        .fate = fate,
        .exit_code = p->has_exit_code ? p->exit.code : -1,
        .session_id = p->id,
    };
    if (fate == SP_ANSWER_RUNNING)
        hold_back(&out, &p->pending);
    else
        r.signal = p->exit.signal;
    const struct limits limits = {c->has_max_tokens, c->max_tokens, c->m->allowance};
    if (sp_answer_decode(&decoded, &out)) {
        set_output(&r.answer, &out, sp_buf_str(&decoded));
        if (c->omits_text || add_text(&text, &r.answer, &limits)) {
            r.text = sp_buf_str(&text);
            r.from = p->answered;
            r.to = p->answered += sp_headtail_total(&out);
            r.was_denied = fate == SP_ANSWER_EXITED && was_denied(p, sp_buf_str(&decoded));
            p->was_denied |= r.was_denied;
            r.woken_by = sp_until_end(c);
            if (fate == SP_ANSWER_EXITED) /* the caller has seen the end */
                sp_manager_remove(p);
            sp_call_finish(c, &r);
            return;
        }
    }
    /* The drained output goes back to the process for the next call. Without memory it becomes a
     * gap. */
    if (!sp_headtail_merge(&out, &p->pending)) {
        p->answered += sp_headtail_total(&p->pending);
        sp_headtail_done(&p->pending);
        p->owes_gap = true;
    }
    p->pending = sp_headtail_drain(&out);
    sp_call_fault(c, SP_FAULT_FAILED,
                  "Unified exec process failed: no memory for the answer; poll again");
}

void sp_call_answer_patch(struct sp_call *c, struct sp_str output, int exit_code,
                          const struct sp_patch_changes *changes)
{
    const struct limits limits = {c->has_max_tokens, c->max_tokens, c->m->allowance};
    auto_buf struct sp_buf text = {0};
    struct sp_reply r = new_reply(c);

    r.answer.fate = SP_ANSWER_NO_PROCESS;
    r.answer.exit_code = exit_code;
    r.changes = changes;
    r.answer.output = output;
    if (!c->omits_text && !add_text(&text, &r.answer, &limits)) {
        sp_call_fault(c, SP_FAULT_CREATE, "Failed to create unified exec process: %s",
                      "Cannot allocate memory (os error 12)");
        return;
    }
    r.text = sp_buf_str(&text);
    sp_call_finish(c, &r);
}
