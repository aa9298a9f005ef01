/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock: the kernel's own rules on which files a process may touch and whom it may signal.
 */
#ifndef SP_OS_LANDLOCK_H
#define SP_OS_LANDLOCK_H

#include "base/error.h"

enum sp_landlock_rights {
    SP_LANDLOCK_READ,   /* execute, read, list */
    SP_LANDLOCK_WRITE,  /* all */
    SP_LANDLOCK_DEVICE, /* read, write, ioctl, truncate */
};

/* The kernel's level; 0: none (missing or off). */
int sp_landlock_abi(void);

/* A rule set that handles every right on files this kernel knows, and scopes signals and abstract
 * sockets where it can. The descriptor, or minus errno. */
int sp_landlock_new(int abi);
/* A rule set of scopes alone; -ENOTSUP if the kernel has none (before level 6). `root`: O_PATH of
 * the root, below which files may still be renamed: every rule set refuses that unless it says so.
 */
int sp_landlock_new_scope(int abi, int root);
/* Allows what lies at and below `fd` (an O_PATH descriptor). 0 or minus errno. */
int sp_landlock_allow(int ruleset, int abi, int fd, enum sp_landlock_rights rights);
/* For this thread and all it starts. 0 or minus errno. Async-signal-safe. */
int sp_landlock_enter(int ruleset);

#endif
