/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_priv: shared by the files of cell/file/. Functions that can fail return 0 or minus errno. A
 * refusal (enum sp_file_refusal) is stored in the answer, and the function returns 0.
 */
#ifndef SP_CELL_FILE_FILE_PRIV_H
#define SP_CELL_FILE_FILE_PRIV_H

#include <dirent.h>
#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

#include "cell/file/file.h"

/* ---- paths (file_path.c) ---- */

/*
 * Opens the directory that holds the last component, starting at `dir` (AT_FDCWD: at "/") and
 * following no symlink. *ret_name points to that component within `path`; it is "" if the path is
 * the starting directory itself.
 */
int sp_file_open_parent(int dir, const char *path, int *ret_dir, const char **ret_name);

/*
 * Follows symlinks, except the magic ones of /proc: /proc/self/exe leads to our own program even
 * where the view hides that file. Reading may follow them: they lead to the worker's view and
 * descriptors, or to our program.
 */
int sp_file_open_to_write(const char *path, int flags, mode_t mode);

/* For readdir(). flags: O_NOFOLLOW if the last component must not be a symlink, or 0. NULL: errno.
 */
DIR *sp_file_read_dir(int dir, const char *path, int flags);
/* The same below `dir`, without a symlink on the way ("": dir itself). */
DIR *sp_file_read_dir_below(int dir, const char *path);

/* close() reports delayed write errors: NFS, quotas. */
static inline int sp_file_close(int fd)
{
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

/* Whether path is a placeholder directory (core/placeholder.h). name: its last component. */
bool sp_file_is_placeholder(int dir, const char *path, const char *name);

/* /proc/PID/mem: a client could read and write any address, perhaps of this process. */
bool sp_file_is_process_memory(int fd);

static inline bool sp_is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

/* ---- operations (directory.c) ---- */

int sp_file_op_make(const struct sp_file_request *request, struct sp_file_answer *a);
int sp_file_op_remove(const struct sp_file_request *request, struct sp_file_answer *a);
int sp_file_op_copy(const struct sp_file_request *request, struct sp_file_answer *a);

#endif
