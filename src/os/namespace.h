/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespace: new namespaces for a confined cell. All functions return 0 or minus errno.
 */
#ifndef SP_OS_NAMESPACE_H
#define SP_OS_NAMESPACE_H

#include <stdbool.h>
#include <sys/types.h>

/* Right after sp_namespaces_unshare: maps our uid and gid to themselves. */
int sp_namespaces_map_ids(uid_t uid, gid_t gid);
/* Brings up the loopback interface of our network namespace. */
int sp_namespaces_raise_loopback(void);

#endif
