/* SPDX-License-Identifier: Apache-2.0 */
/*
 * privilege: giving up capabilities and core files, for good.
 */
#ifndef SP_OS_PRIVILEGE_H
#define SP_OS_PRIVILEGE_H

/* Drops all capabilities of this thread and its children; no execve, uid 0 or setuid file brings
 * one back. 0, or minus errno; -EPERM if a capability is left. */
int sp_privilege_drop(void);

/* No core file or core handler, irrevocably. 0 or minus errno. */
int sp_privilege_no_core(void);

#endif
