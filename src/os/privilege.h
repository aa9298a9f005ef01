/* SPDX-License-Identifier: Apache-2.0 */
/*
 * privilege: giving up for good what a process could do beyond its user.
 */
#ifndef SP_OS_PRIVILEGE_H
#define SP_OS_PRIVILEGE_H

/* No capability is left, none comes back: not by execve, not by uid 0, not by a setuid file. For
 * this thread and all it starts. 0, or minus errno; -EPERM if something was left after all. */
int sp_privilege_drop(void);

/* No core file, and no way to ask for one again. 0 or minus errno. */
int sp_privilege_no_core(void);

#endif
