/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/denied.h"

#include "os/seccomp.h"
#include "sandbox/denial.h"

/* A lost connection leaves a code of -1: what it had printed says nothing about a sandbox then. */
static bool is_failure(int exit_code)
{
    return exit_code > 0;
}

bool sp_denied_is_likely(enum sp_job_sandbox sandbox, int exit_code, struct sp_str out,
                         struct sp_str err)
{
    struct sp_denial d;

    if (sandbox != SP_JOB_SANDBOX_LINUX || !is_failure(exit_code))
        return false;
    sp_denial_init(&d);
    sp_denial_feed(&d, SP_STREAM_STDOUT, out.p, out.n);
    sp_denial_feed(&d, SP_STREAM_STDERR, err.p, err.n);
    return sp_denial_is_likely(true, exit_code, &d);
}

bool sp_denied_judge(enum sp_job_sandbox sandbox, const struct sp_job_exit *how, struct sp_str out,
                     struct sp_str err)
{
    if (sandbox == SP_JOB_SANDBOX_NONE || !is_failure(how->code))
        return false;
    if (how->denied == 1 || (how->denial != NULL && how->denial->has_evidence))
        return true;
    return sp_denied_is_likely(sandbox, how->code, out, err);
}

const char *sp_denied_call_name(int call)
{
    return sp_syscall_name(call);
}
