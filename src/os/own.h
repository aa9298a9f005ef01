/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own: the children that this process has started itself and not reaped yet.
 *
 * A subreaper has other children, too: orphans that the kernel gave to it. The kernel does not
 * say which is which, so whoever starts a process notes it here and takes it off when it is reaped.
 */
#ifndef SP_OS_OWN_H
#define SP_OS_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

void sp_own_add(pid_t pid);
void sp_own_remove(pid_t pid); /* not noted: nothing happens */
bool sp_own_has(pid_t pid);

/*
 * SIGKILL to every orphan that was given to us and to everything below it, and reaps those that are
 * dead. `may_be_unknown`: a process that is not noted yet may be our own if it is the first of a
 * pid namespace; such processes are left alone this time. Returns how many orphans were found:
 * call again until there is none. Takes `budget_ms` at most, or a little more.
 */
size_t sp_own_kill_orphans(bool may_be_unknown, int budget_ms);

#endif
