/* SPDX-License-Identifier: Apache-2.0 */
/*
 * denied: see denied.h.
 */
#include "engine/denied.h"

#include "os/seccomp.h"
#include "sandbox/denial.h"

bool sp_denied_is_likely(enum sp_job_sandbox sandbox, int exit_code, struct sp_str out,
                         struct sp_str err)
{
    struct sp_denial d;

    if (sandbox != SP_JOB_SANDBOX_LINUX || exit_code <= 0)
        return false;
    sp_denial_init(&d);
    sp_denial_feed(&d, SP_STREAM_STDOUT, out.p, out.n);
    sp_denial_feed(&d, SP_STREAM_STDERR, err.p, err.n);
    return sp_denial_is_likely(true, exit_code, &d);
}

bool sp_denied_judge(enum sp_job_sandbox sandbox, const struct sp_job_exit *how, struct sp_str out,
                     struct sp_str err)
{
    /* A lost connection leaves the code -1: the output then says nothing about a sandbox. */
    if (sandbox == SP_JOB_SANDBOX_NONE || how->code <= 0)
        return false;
    if (how->denied == 1 || (how->denial != NULL && how->denial->has_evidence))
        return true;
    return sp_denied_is_likely(sandbox, how->code, out, err);
}

const char *sp_denied_call_name(int call)
{
    return sp_syscall_name(call);
}
