/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io: whole reads and writes.
 */
#ifndef SP_BASE_IO_H
#define SP_BASE_IO_H

#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"

/* Appends all bytes up to the end of the file. 0, or an errno: EFBIG if there are more than `max`,
 * ENOMEM. After a failure the buffer may hold a part of them. */
int sp_read_all(int fd, size_t max, struct sp_buf *ret);

/* The same for a regular file, opened without waiting: a FIFO or a device is refused with EINVAL, a
 * directory with EISDIR. A symlink is followed. */
int sp_read_file(const char *path, size_t max, struct sp_buf *ret);

/* For small files of /proc and /sys: up to size - 1 bytes, with a NUL behind them. The path is in
 * printf's words, at most 600 bytes. Returns the count; -1 with errno if nothing could be read. */
__attribute__((format(printf, 3, 4))) ssize_t sp_read_text(char *text, size_t size,
                                                           const char *path, ...);

/* 0, or an errno. The descriptor blocks. */
int sp_write_all(int fd, const void *bytes, size_t n);

/* write(2) that raises no SIGPIPE in this thread: for pipes, which have no MSG_NOSIGNAL, in a
 * program that is not ours. */
ssize_t sp_write_no_sigpipe(int fd, const void *bytes, size_t n);

/* Refuses a file or directory that belongs neither to the user nor to root. */
int sp_check_owner(const struct stat *st, const char *path, struct sp_err *e);
/* Also refuses mode bits that let the group or others write. */
int sp_check_trusted(const struct stat *st, const char *path, struct sp_err *e);

#endif
