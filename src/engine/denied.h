/* SPDX-License-Identifier: Apache-2.0 */
/*
 * denied: whether a command failed because its sandbox refused it something (unified-exec.md 7.7).
 *
 * One judgement for runs and sessions: what the executor said, what the kernel told, and last the
 * words of the output, which are a guess.
 */
#ifndef SP_ENGINE_DENIED_H
#define SP_ENGINE_DENIED_H

#include <stdbool.h>

#include "base/str.h"
#include "engine/job.h"

/*
 * The guess alone. Words count in `out`, in `err`, and in both joined. Output that was collected as
 * one goes into `err`. Without a sandbox, or without an exit code (-1), nothing was denied.
 */
bool sp_denied_is_likely(enum sp_job_sandbox sandbox, int exit_code, struct sp_str out,
                         struct sp_str err);

/* The guess and what is known besides. `sandbox` is that of the attempt that ran. */
bool sp_denied_judge(enum sp_job_sandbox sandbox, const struct sp_job_exit *how, struct sp_str out,
                     struct sp_str err);

/* The name of a system call that a filter refused; NULL: not in its table. */
const char *sp_denied_call_name(int call);

#endif
