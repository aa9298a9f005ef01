/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_limits: limits of the kernel that bound how many commands can run at once.
 */
#ifndef SP_OS_HOST_LIMITS_H
#define SP_OS_HOST_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

enum sp_host_limit_kind {
    SP_HOST_LIMIT_TERMINALS,
    SP_HOST_LIMIT_PIDS,
    SP_HOST_LIMIT_FILES, /* RLIMIT_NOFILE: the hard one, to which servers raise theirs */
    SP_HOST_LIMIT_PIPES,
    SP_HOST_LIMIT_KINDS
};

struct sp_host_limit {
    const char *name; /* kernel.pty.max */
    const char *of;   /* what `allows` counts */
    bool is_known;
    bool is_endless; /* there is no limit */
    uint64_t value;
    uint64_t allows;
};

struct sp_host_limit sp_host_limit_read(enum sp_host_limit_kind kind);

#endif
