/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child: a helper program that this process starts, signals and reaps by itself, such as an
 * approver. The commands of clients start in the cell, with os/spawn.h.
 *
 * The child gets default signal dispositions, an empty signal mask and a process group of its own,
 * so that signals of our terminal do not reach it, and no descriptor above 2. Only this child is
 * waited for: a program that uses the library may have others.
 */
#ifndef SP_BASE_CHILD_H
#define SP_BASE_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

struct sp_child {
    pid_t pid;
    int pidfd; /* -1: reaped, also if another part of the program did it */
};

#define SP_CHILD_NULL (-1) /* /dev/null */
#define SP_CHILD_OURS (-2) /* the descriptor of this process with that number */

/* stdio: what becomes 0, 1 and 2: a descriptor, which the caller keeps, or one of the above. A file
 * without a slash is looked up in PATH. Returns 0 or the errno. */
int sp_child_start(struct sp_child *c, const char *file, const char *const *argv, char *const *envp,
                   const int stdio[3]);

/* Signals the child and its process group; neither id is reused before the child is reaped. */
void sp_child_signal(const struct sp_child *c, int number);

/* Reaps the child, and with is_waiting waits for its end. Closes pidfd and writes the exit status,
 * -1 if a signal killed the child. false: it still runs. If pidfd is -1 already, true, and
 * *ret_status stays as it is. */
bool sp_child_reap(struct sp_child *c, bool is_waiting, int *ret_status);

#endif
