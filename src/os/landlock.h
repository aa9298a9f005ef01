/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock: rule sets on files, signals and abstract sockets that a process imposes on itself.
 */
#ifndef SP_OS_LANDLOCK_H
#define SP_OS_LANDLOCK_H

#include "base/error.h"

enum sp_landlock_rights {
    SP_LANDLOCK_READ,   /* execute, read, list */
    SP_LANDLOCK_WRITE,  /* all */
    SP_LANDLOCK_DEVICE, /* read, write, ioctl, truncate */
};

/* The ABI level of the kernel; 0: Landlock is missing or disabled. */
int sp_landlock_abi(void);

/* A rule set that handles every file right this kernel knows, and scopes signals and abstract
 * sockets from level 6 on. Returns its descriptor, or minus errno. */
int sp_landlock_new(int abi);
/* A rule set of scopes only; -ENOTSUP before level 6. `root`: O_PATH of the root directory. Every
 * rule set refuses renames between directories (REFER) unless a rule allows them; one for root
 * does.
 */
int sp_landlock_new_scope(int abi, int root);
/* Allows `fd` (O_PATH) and everything below it. 0 or minus errno. */
int sp_landlock_allow(int ruleset, int abi, int fd, enum sp_landlock_rights rights);
/* Restricts this thread and its future children. 0 or minus errno. Async-signal-safe. */
int sp_landlock_enter(int ruleset);

#endif
