/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/denied_text.h"

#include <signal.h>
#include <unistd.h>

#include "base/io.h"
#include "os/seccomp.h"

/* A path from the output of a command must not control the terminal. */
static bool add_path(struct sp_buf *out, const char *path)
{
    bool ok = true;

    for (; ok && *path != 0; path++) {
        const unsigned char c = (unsigned char)*path;

        ok = sp_buf_add(out, c < 0x20 || c == 0x7F ? "?" : path, 1);
    }
    return ok;
}

static bool add_calls(struct sp_buf *out, const struct sp_exit *how)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < how->refusal_count && i < SP_EXIT_REFUSALS; i++) {
        const char *name = sp_syscall_name(how->refusals[i].call);
        const uint32_t n = how->refusals[i].count;

        ok = sp_buf_printf(out, "%s", i == 0 ? "" : ", ") &&
             (name != NULL ? sp_buf_printf(out, "%s", name)
                           : sp_buf_printf(out, "call %u", how->refusals[i].call)) &&
             (n < 2 || sp_buf_printf(out, " (%u times)", n));
    }
    return ok;
}

static bool has_calls(const struct sp_exit *how)
{
    return how->refusal_count > 0;
}

/* "mount (2 times), ptrace; a connection out of its network" */
static bool add_evidence(struct sp_buf *out, const struct sp_exit *how)
{
    const bool has_left = how->left_network > 0;
    bool ok = add_calls(out, how);

    if (has_left)
        ok = ok &&
             sp_buf_printf(out, "%sa connection out of its network", has_calls(how) ? "; " : "");
    if (how->signal == SIGSYS)
        ok = ok && sp_buf_printf(out, "%sa system call that killed it",
                                 has_left || has_calls(how) ? "; " : "");
    return ok;
}

static bool add_words(struct sp_buf *out, const struct sp_denial_facts *d)
{
    bool ok = sp_buf_printf(out, "%s", d->reason != NULL ? d->reason : "its exit code");

    if (d->path[0] != 0)
        ok = ok && sp_buf_printf(out, ", ") && add_path(out, d->path);
    return ok;
}

static bool write_long(const struct sp_carry_result *r, struct sp_buf *out)
{
    const struct sp_exit *how = &r->exit;
    bool ok = sp_buf_printf(out, "sallyport: the sandbox denied the command something:\n");

    if (has_calls(how))
        ok = ok && sp_buf_printf(out, "  refused system calls (reported by the kernel): ") &&
             add_calls(out, how) && sp_buf_printf(out, "\n");
    if (how->left_network > 0)
        ok = ok &&
             sp_buf_printf(out, "  attempts to leave its network (counted by the kernel): %u\n",
                           how->left_network);
    if (how->signal == SIGSYS)
        ok = ok && sp_buf_printf(out, "  killed by SIGSYS (reported by the kernel)\n");
    if (r->denial.has_words)
        ok = ok && sp_buf_printf(out, "  guessed from its output: ") &&
             add_words(out, &r->denial) && sp_buf_printf(out, "\n");
    return ok;
}

static bool write_short(const struct sp_carry_result *r, struct sp_buf *out)
{
    if (r->denial.has_evidence)
        return sp_buf_printf(out, "sallyport: the sandbox denied (reported by the kernel): ") &&
               add_evidence(out, &r->exit) && sp_buf_printf(out, "\n");
    if (!r->denial.has_words) /* the verdict of a server, which gives no reasons */
        return sp_buf_printf(out, "sallyport: the sandbox denied the command something\n");
    return sp_buf_printf(out, "sallyport: the sandbox may have denied this (guessed from its "
                              "output): ") &&
           add_words(out, &r->denial) && sp_buf_printf(out, "\n");
}

void sp_denied_print(const struct sp_carry_result *r, bool is_long)
{
    auto_buf struct sp_buf text = {0};

    if (r->was_denied && (is_long ? write_long(r, &text) : write_short(r, &text)))
        (void)sp_write_all(STDERR_FILENO, text.data, text.len);
}
