/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call says at its end: the texts of unified-exec.md 3.5, 3.7 and 3.8.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "engine/manager_priv.h"

#define NS_PER_TENTH 100000000U

static struct sp_str view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

static struct sp_reply form(const struct sp_call *c)
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
    if (r.has_exited) {
        r.denial = p->exit.denial;
        r.kernel = p->exit.kernel;
    }
    return r;
}

/* ---- errors ---- */

/* What was being done, and what the kernel said to it, unless the story says that itself. */
static void add_cause(const struct sp_err *why, char *ret, size_t size)
{
    const char *text = why->sys != 0 ? strerrordesc_np(why->sys) : NULL;

    if (text == NULL || strstr(why->msg, "(os error ") != NULL)
        (void)snprintf(ret, size, "%s", why->msg);
    else
        (void)snprintf(ret, size, "%s%s%s (os error %d)", why->msg, why->msg[0] == 0 ? "" : ": ",
                       text, why->sys);
}

/* The arguments' errors speak for themselves, and so does whoever was interrupted. */
static const char *prefix_of(const struct sp_call *c, enum sp_fault fault)
{
    if (fault == SP_FAULT_ARGUMENTS || fault == SP_FAULT_ABORTED)
        return "";
    return c->is_exec ? "exec_command failed: " : "write_stdin failed: ";
}

/* Behind the fault, the attempt that has ended: its exit code and its output. */
static void add_attempt(struct sp_call *c, struct sp_buf *text, struct sp_buf *decoded,
                        struct sp_reply *r)
{
    const struct sp_answer_limits limits = {c->has_max_tokens, c->max_tokens, c->m->allowance};
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
    sp_answer_set_output(&r->answer, &p->pending, view(decoded));
    r->was_denied = true;
    if (!sp_buf_printf(text, "\n\nThe attempt in the sandbox:\n") ||
        !sp_answer_add_text(text, &r->answer, &limits))
        text->len = mark;
}

/* text is the prefix and the error. */
static void finish_with_fault(struct sp_call *c, enum sp_fault fault, struct sp_buf *text,
                              size_t prefix)
{
    auto_buf struct sp_buf decoded = {0};
    struct sp_reply r = form(c);
    const size_t n = text->len;

    r.fault = fault;
    add_attempt(c, text, &decoded, &r);
    r.text = view(text);
    r.error = (struct sp_str){r.text.p + prefix, n - prefix};
    sp_call_finish(c, &r);
}

void sp_call_fault(struct sp_call *c, enum sp_fault fault, const char *fmt, ...)
{
    const char *prefix = prefix_of(c, fault);
    auto_buf struct sp_buf text = {0};
    va_list args;
    char *body = NULL;

    va_start(args, fmt);
    const int n = vasprintf(&body, fmt, args);
    va_end(args);
    if (n >= 0 && sp_buf_add_str(&text, sp_str_of(prefix)) && sp_buf_add(&text, body, (size_t)n)) {
        free(body);
        finish_with_fault(c, fault, &text, strlen(prefix));
        return;
    }
    if (n >= 0)
        free(body);
    struct sp_reply r = form(c);
    r.fault = fault;
    r.text = r.error = SP_STR("Cannot allocate memory (os error 12)");
    sp_call_finish(c, &r);
}

void sp_call_fail_create(struct sp_call *c, const struct sp_err *why, uint32_t inherited_fds)
{
    char cause[sizeof why->msg + 128];

    if (inherited_fds != 0 && why->code == SP_E_INVALID)
        (void)snprintf(cause, sizeof cause,
                       "remote exec-server does not support inherited file descriptors");
    else
        add_cause(why, cause, sizeof cause);
    sp_call_fault(c, SP_FAULT_CREATE, "Failed to create unified exec process: %s", cause);
}

void sp_call_abort(struct sp_call *c)
{
    const uint64_t ns = sp_manager_clock_ns() - c->began_ns;
    uint64_t tenths = (ns + NS_PER_TENTH / 2) / NS_PER_TENTH;

    tenths = tenths == 0 ? 1 : tenths;
    if (c->is_exec)
        sp_call_fault(c, SP_FAULT_ABORTED, "Wall time: %" PRIu64 ".%u seconds\naborted by user",
                      tenths / 10, (unsigned)(tenths % 10));
    else
        sp_call_fault(c, SP_FAULT_ABORTED, "aborted by user after %" PRIu64 ".%us", tenths / 10,
                      (unsigned)(tenths % 10));
}

/* ---- answers ---- */

/* A label, no secret: any number will do. */
static void make_chunk_id(const struct sp_call *c, char ret[7])
{
    uint32_t number;

    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint32_t)(c->number * 2654435761U);
    (void)snprintf(ret, 7, "%06x", (unsigned)(number & 0xffffff));
}

/* What was collected goes back: the next call has it. */
static void give_back(struct sp_process *p, struct sp_headtail *out)
{
    if (!sp_headtail_merge(out, &p->pending)) {
        p->answered += sp_headtail_total(&p->pending);
        sp_headtail_done(&p->pending);
        p->owes_gap = true;
    }
    p->pending = sp_headtail_drain(out);
}

static bool was_denied(const struct sp_process *p, struct sp_str text)
{
    return p->is_code_known && !sp_process_has_failed(p) &&
           sp_denied_judge(p->sandbox, &p->exit, SP_STR(""), text);
}

bool sp_call_answer(struct sp_call *c, enum sp_answer_fate fate)
{
    struct sp_process *p = c->process;
    auto_headtail struct sp_headtail out = sp_headtail_drain(&p->pending);
    auto_buf struct sp_buf decoded = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_reply r = form(c);
    char chunk_id[7];

    make_chunk_id(c, chunk_id);
    r.answer = (struct sp_exec_answer){
        .chunk_id = sp_str_of(chunk_id),
        .wall_ns = sp_manager_clock_ns() - c->from_ns,
        .fate = fate,
        .exit_code = p->has_exit_code ? p->exit.code : -1,
        .session_id = p->id,
    };
    if (fate == SP_ANSWER_RUNNING)
        sp_answer_hold_back(&out, &p->pending);
    else
        r.signal = p->exit.signal;
    const struct sp_answer_limits limits = {c->has_max_tokens, c->max_tokens, c->m->allowance};
    if (sp_answer_decode(&decoded, &out)) {
        sp_answer_set_output(&r.answer, &out, view(&decoded));
        if (sp_answer_add_text(&text, &r.answer, &limits)) {
            r.text = view(&text);
            r.from = p->answered;
            r.to = p->answered += sp_headtail_total(&out);
            r.was_denied = fate == SP_ANSWER_EXITED && was_denied(p, view(&decoded));
            p->was_denied |= r.was_denied;
            r.woken_by = sp_until_woken_by(c);
            sp_until_forget(p, c);
            if (fate == SP_ANSWER_EXITED) /* its end has been observed */
                sp_manager_remove(p);
            sp_call_finish(c, &r);
            return true;
        }
    }
    give_back(p, &out);
    return false;
}

void sp_call_answer_hook(struct sp_call *c, struct sp_str output, int exit_code,
                         const struct sp_patch_changes *changes)
{
    const struct sp_answer_limits limits = {c->has_max_tokens, c->max_tokens, c->m->allowance};
    auto_buf struct sp_buf text = {0};
    struct sp_reply r = form(c);

    r.answer.fate = SP_ANSWER_NO_PROCESS;
    r.answer.exit_code = exit_code;
    r.changes = changes;
    r.answer.output = output;
    if (!sp_answer_add_text(&text, &r.answer, &limits)) {
        sp_call_fault(c, SP_FAULT_CREATE, "Failed to create unified exec process: %s",
                      "Cannot allocate memory (os error 12)");
        return;
    }
    r.text = view(&text);
    sp_call_finish(c, &r);
}
