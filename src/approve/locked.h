/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locked: a file to append to, by one at a time.
 */
#ifndef SP_APPROVE_LOCKED_H
#define SP_APPROVE_LOCKED_H

#define SP_LOCKED_WAIT_MS 2000 /* a lock that is held longer is not waited for */

/*
 * Opens the regular file `name` in the directory `dir` (or AT_FDCWD) to be read and appended to,
 * made with mode 0600 if it is not there, and locks it. No symbolic link in its place is followed.
 * The descriptor, or minus an errno: EAGAIN if somebody holds the lock, EINVAL if it is no file.
 */
int sp_locked_open(int dir, const char *name);

/* Keeps writers away from an open file that is read, if they make room in that time. */
void sp_locked_share(int fd);

#endif
