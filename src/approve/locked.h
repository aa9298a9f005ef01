/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locked: files that several processes append to, one at a time.
 */
#ifndef SP_APPROVE_LOCKED_H
#define SP_APPROVE_LOCKED_H

#define SP_LOCKED_WAIT_MS 2000 /* limit for waiting for a lock */

/* Opens the regular file `name` in the directory `dir` (or AT_FDCWD) for reading and appending,
 * creates it with mode 0600 if it is missing, and locks it. A symbolic link is not followed. The
 * descriptor, or -errno: EAGAIN if another process holds the lock, EINVAL if it is no regular
 * file. */
int sp_locked_open(int dir, const char *name);

/* Takes a shared lock on a file that is read, if it can be had in that time. */
void sp_locked_share(int fd);

#endif
