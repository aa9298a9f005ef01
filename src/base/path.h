/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path: paths as text; the file system is not asked.
 */
#ifndef SP_BASE_PATH_H
#define SP_BASE_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the path absolute against cwd (NULL: a relative path is refused), drops `.`, resolves `..`
 * lexically and merges slashes. NULL with errno EINVAL (no absolute path) or ENOMEM. To be freed. */
char *sp_path_normalise(const char *path, const char *cwd);
/* Whether `path` is `dir` or below it; both normalised. */
bool sp_path_is_in(const char *path, const char *dir);
/* The number of components: 0 for "/". */
size_t sp_path_depth(const char *path);

#endif
