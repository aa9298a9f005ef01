/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom: which processes the kernel kills first when memory runs out (oom_score_adj).
 */
#ifndef SP_OS_OOM_H
#define SP_OS_OOM_H

#include <stdbool.h>
#include <sys/types.h>

/* Sets the score of a process: a higher one than it has always may be set. It is that of all
 * processes which share its memory, as a child does before execve. false: errno. */
bool sp_oom_set(pid_t pid, int score);

#endif
