/* SPDX-License-Identifier: Apache-2.0 */
/*
 * denied: whether a command failed because its sandbox denied it something.
 *
 * For runs and sessions alike: first the executor's verdict, then the kernel's evidence, and last
 * the words of the output, which are only a guess.
 */
#ifndef SP_ENGINE_DENIED_H
#define SP_ENGINE_DENIED_H

#include <stdbool.h>

#include "base/str.h"
#include "engine/job.h"

/* The guess alone, from both streams; output collected as one stream goes into `err`. false without
 * a sandbox or without an exit code (-1). */
bool sp_denied_is_likely(enum sp_job_sandbox sandbox, int exit_code, struct sp_str out,
                         struct sp_str err);

/* Verdict, evidence and guess. `sandbox` is that of the attempt that ran. */
bool sp_denied_judge(enum sp_job_sandbox sandbox, const struct sp_job_exit *how, struct sp_str out,
                     struct sp_str err);

/* Name of a system call; NULL: unknown. */
const char *sp_denied_call_name(int call);

#endif
