/* SPDX-License-Identifier: Apache-2.0 */
#include "core/proc_receipt.h"

#include "os/seccomp.h"
#include "sandbox/compile.h"

/* ---- what the sandbox refused ---- */

/* A JSON array: facts of the kernel first, the guess by the output last. */
static bool add_denials(struct sp_buf *b, const struct sp_sandbox_facts *f)
{
    const struct sp_exit *how = f->exit;
    const char *between = "";
    bool ok = sp_buf_add(b, "[", 1);

    if (how == NULL)
        return ok && sp_buf_add(b, "]", 1);
    const uint32_t calls =
        how->refusal_count < SP_EXIT_REFUSALS ? how->refusal_count : SP_EXIT_REFUSALS;
    for (uint32_t i = 0; ok && i < calls; i++, between = ",") {
        const char *name = sp_syscall_name(how->refusals[i].call);

        ok = sp_buf_printf(b, "%s{\"source\":\"seccomp\",\"call\":\"%s\",\"count\":%u}", between,
                           name != NULL ? name : "unknown", how->refusals[i].count);
    }
    if (ok && how->left_network > 0) {
        ok = sp_buf_printf(b, "%s{\"source\":\"network\",\"reason\":\"no_route\",\"count\":%u}",
                           between, how->left_network);
        between = ",";
    }
    if (ok && f->reason.n > 0) {
        ok = sp_buf_printf(b, "%s{\"source\":\"heuristic\",\"reason\":", between) &&
             sp_json_add_str(b, f->reason);
        if (f->path.n > 0)
            ok = ok && sp_json_add_member(b, "path", f->path);
        ok = ok && sp_buf_add(b, "}", 1);
    }
    return ok && sp_buf_add(b, "]", 1);
}

bool sp_sandbox_add_member(struct sp_buf *b, const struct sp_sandbox_facts *f)
{
    static const char *const networks[] = {[SP_PROC_NETWORK_HOST] = "host",
                                           [SP_PROC_NETWORK_NONE] = "none",
                                           [SP_PROC_NETWORK_MANAGED] = "managed"};

    return sp_buf_printf(
               b, ",\"sandbox\":{\"tier\":\"%s\",\"network\":\"%s\",\"denied\":%s,\"denials\":",
               sp_tier_name(f->tier), networks[f->network], f->was_denied ? "true" : "false") &&
           add_denials(b, f) && sp_buf_add(b, "}", 1);
}

/* ---- receipts ---- */

static void set_if_known(struct sp_command_receipt *ret, enum sp_receipt_item i, uint64_t n)
{
    if (n != 0)
        sp_receipt_set(ret, i, n);
}

static struct sp_command_receipt begin_receipt(const struct sp_exit *how, bool is_tty,
                                               const uint64_t *output, uint64_t dropped)
{
    struct sp_command_receipt r = {.reason = (enum sp_end_reason)how->reason};

    sp_receipt_set(&r, SP_RECEIPT_WALL_MS, sp_receipt_ms(how->wall_us));
    if (how->has_usage != 0) {
        sp_receipt_set(&r, SP_RECEIPT_USER_MS, sp_receipt_ms(how->user_us));
        sp_receipt_set(&r, SP_RECEIPT_SYSTEM_MS, sp_receipt_ms(how->system_us));
        sp_receipt_set(&r, SP_RECEIPT_MAX_RSS, (uint64_t)how->max_rss_kb * 1024);
        sp_receipt_set(&r, SP_RECEIPT_READ, how->read_blocks * 512);
        sp_receipt_set(&r, SP_RECEIPT_WRITTEN, how->written_blocks * 512);
        sp_receipt_set(&r, SP_RECEIPT_VOLUNTARY, how->voluntary_switches);
        sp_receipt_set(&r, SP_RECEIPT_INVOLUNTARY, how->involuntary_switches);
        sp_receipt_set(&r, SP_RECEIPT_MAJOR_FAULTS, how->major_faults);
    }
    r.is_cpu_of_tree = how->has_usage == SP_USAGE_OF_TREE;
    set_if_known(&r, SP_RECEIPT_PEAK_MEMORY, how->peak_memory_bytes);
    set_if_known(&r, SP_RECEIPT_PEAK_PROCESSES, how->peak_processes);
    if (is_tty) {
        sp_receipt_set(&r, SP_RECEIPT_PTY, output[SP_STREAM_PTY]);
    } else {
        sp_receipt_set(&r, SP_RECEIPT_STDOUT, output[SP_STREAM_STDOUT]);
        sp_receipt_set(&r, SP_RECEIPT_STDERR, output[SP_STREAM_STDERR]);
    }
    sp_receipt_set(&r, SP_RECEIPT_DROPPED, dropped);
    return r;
}

static bool add_sandbox(struct sp_buf *keep, const struct sp_sandbox_facts *f)
{
    return sp_buf_printf(keep, "{\"tier\":\"%s\",\"denials\":", sp_tier_name(f->tier)) &&
           add_denials(keep, f) && sp_buf_add(keep, "}", 1);
}

static bool add_member(struct sp_buf *b, const struct sp_command_receipt *r)
{
    return sp_buf_add_str(b, SP_STR(",\"receipt\":")) && sp_receipt_add(b, r, SP_RECEIPT_CAMEL);
}

bool sp_proc_receipt(const struct sp_proc *p, struct sp_kept_receipt *ret)
{
    ret->text.len = 0;
    ret->is =
        begin_receipt(&p->state.exit, p->is_tty, p->state.output_bytes, p->state.dropped_bytes);
    ret->is_known = true;
    ret->is.limits = *sp_proc_hits(p);
    if (!p->is_confined)
        return true;
    const struct sp_sandbox_facts f = sp_proc_sandbox_facts(p);
    if (!add_sandbox(&ret->text, &f))
        return false;
    const size_t n = ret->text.len;
    if (!sp_managed_add_receipt(p, &ret->text))
        return false;
    ret->is.sandbox = (struct sp_str){ret->text.data, n};
    ret->is.network = (struct sp_str){ret->text.data + n, ret->text.len - n};
    return true;
}

bool sp_proc_add_receipt(struct sp_buf *b, const struct sp_proc *p)
{
    struct sp_kept_receipt r __attribute__((cleanup(sp_receipt_drop))) = {0};

    return sp_proc_receipt(p, &r) && add_member(b, &r.is);
}

bool sp_history_add_receipt(struct sp_buf *b, const struct sp_history_entry *p)
{
    struct sp_command_receipt r =
        begin_receipt(&p->exit, p->is_tty, p->output_bytes, p->dropped_bytes);
    auto_buf struct sp_buf keep = {0};

    if (p->is_confined) {
        const struct sp_sandbox_facts f = sp_history_sandbox_facts(p);

        if (!add_sandbox(&keep, &f))
            return false;
        r.sandbox = sp_buf_str(&keep);
    }
    return add_member(b, &r);
}
