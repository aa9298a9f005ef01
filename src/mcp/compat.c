/* SPDX-License-Identifier: Apache-2.0 */
/* The old unified_exec, said in terms of the two tools that came after it (unified-exec.md 3.9). */
#include "base/json.h"
#include "mcp/arguments.h"
#include "mcp/reply.h"
#include "sandbox/policy_words.h"

#define FAILED "unified exec failed: "

/* ---- asking ---- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool sp_compat_add_input(struct sp_buf *out, const struct sp_str *input, uint32_t count)
{
    const size_t mark = out->len;

    for (uint32_t i = 0; i < count; i++) {
        if (input[i].n == 0)
            continue;
        const bool needs_space =
            out->len > mark && !is_space(out->data[out->len - 1]) && !is_space(input[i].p[0]);
        if ((needs_space && !sp_buf_add(out, " ", 1)) || !sp_buf_add_str(out, input[i])) {
            out->len = mark;
            return false;
        }
    }
    return true;
}

static const char *why_no_number(struct sp_str digits)
{
    if (digits.n == 0)
        return "cannot parse integer from empty string";
    for (size_t i = 0; i < digits.n; i++)
        if (digits.p[i] < '0' || digits.p[i] > '9')
            return "invalid digit found in string";
    return "number too large to fit in target type";
}

int sp_compat_read_id(struct sp_str text, int *ret, struct sp_err *e)
{
    struct sp_str digits = text;
    uint64_t v = 0;

    const bool has_sign = digits.n > 1 && (digits.p[0] == '-' || digits.p[0] == '+');
    const bool is_negative = has_sign && digits.p[0] == '-';
    digits.p += has_sign;
    digits.n -= has_sign;
    if (!sp_str_to_u64(digits, (uint64_t)INT32_MAX + is_negative, &v))
        return sp_fail(e, SP_E_INVALID, 0, "invalid session_id: " SP_STR_FMT " due to error %s",
                       SP_STR_ARG(sp_policy_shown(text)), why_no_number(digits));
    *ret = (int)(is_negative ? -(int64_t)v : (int64_t)v);
    return 0;
}

/* ---- answering ---- */

bool sp_compat_has_failed(const struct sp_reply *r)
{
    return r->fault != SP_FAULT_NONE || r->was_denied;
}

/* What follows `begin`, or all of it. */
static struct sp_str after(struct sp_str text, struct sp_str begin)
{
    if (text.n >= begin.n && memcmp(text.p, begin.p, begin.n) == 0)
        return (struct sp_str){text.p + begin.n, text.n - begin.n};
    return text;
}

static bool add_failure(struct sp_buf *out, const struct sp_reply *r,
                        const struct sp_compat_call *c)
{
    switch (r->fault) {
    case SP_FAULT_UNKNOWN:
        return sp_buf_add_str(out, SP_STR(FAILED "Unknown session id ")) &&
               sp_buf_add_str(out, c->session_id);
    case SP_FAULT_CREATE:
    case SP_FAULT_REJECTED:
        return sp_buf_add_str(out, SP_STR(FAILED "Failed to create unified exec session: ")) &&
               sp_buf_add_str(out,
                              after(r->error, SP_STR("Failed to create unified exec process: ")));
    case SP_FAULT_ARGUMENTS:
    case SP_FAULT_ABORTED:
        return sp_buf_add_str(out, r->text);
    case SP_FAULT_NONE:
    case SP_FAULT_STDIN_CLOSED:
    case SP_FAULT_WRITE:
    case SP_FAULT_FAILED:
        break;
    }
    return sp_buf_add_str(out, SP_STR(FAILED)) && sp_buf_add_str(out, r->error);
}

static bool add_denial(struct sp_buf *out, const struct sp_reply *r)
{
    if (!sp_buf_add_str(out, SP_STR(FAILED "Command denied by sandbox: ")))
        return false;
    if (r->answer.output.n != 0)
        return sp_buf_add_str(out, r->answer.output);
    return sp_buf_printf(out, "exit code %d", r->answer.exit_code);
}

/* What the common text shows of the output: it has been made short there. */
static struct sp_str shown_output(struct sp_str text)
{
    static const char before[] = "Output:\n";
    const char *p = text.n == 0 ? NULL : memmem(text.p, text.n, before, sizeof before - 1);

    if (p == NULL)
        return (struct sp_str){0};
    p += sizeof before - 1;
    return (struct sp_str){p, text.n - (size_t)(p - text.p)};
}

static bool add_warning(struct sp_buf *out, uint64_t asked_ms)
{
    return asked_ms == 0 ||
           sp_buf_printf(out,
                         "Warning: requested timeout %llums exceeds maximum of %dms; clamping to "
                         "%dms.\n",
                         (unsigned long long)asked_ms, SP_COMPAT_MAX_MS, SP_COMPAT_MAX_MS);
}

static bool add_result(struct sp_buf *out, const struct sp_reply *r, const struct sp_compat_call *c)
{
    auto_buf struct sp_buf output = {0};
    const bool is_alive = r->answer.fate == SP_ANSWER_RUNNING;

    return add_warning(&output, c->cut_ms) && sp_buf_add_str(&output, shown_output(r->text)) &&
           (is_alive ? sp_buf_printf(out, "{\"session_id\":\"%d\"", r->answer.session_id)
                     : sp_buf_add_str(out, SP_STR("{\"session_id\":null"))) &&
           sp_buf_add_str(out, SP_STR(",\"output\":")) &&
           sp_json_add_str(out, (struct sp_str){output.data, output.len}) &&
           sp_buf_add(out, "}", 1);
}

bool sp_compat_add_text(struct sp_buf *out, const struct sp_reply *r,
                        const struct sp_compat_call *c)
{
    const size_t mark = out->len;
    const bool has_room = r->fault != SP_FAULT_NONE ? add_failure(out, r, c)
                          : r->was_denied           ? add_denial(out, r)
                                                    : add_result(out, r, c);

    if (!has_room)
        out->len = mark;
    return has_room;
}
