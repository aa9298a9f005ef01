/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path: lexical operations on paths, without access to the file system.
 */
#ifndef SP_BASE_PATH_H
#define SP_BASE_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the path absolute against cwd (NULL: relative paths are refused), drops `.`, resolves `..`
 * and merges slashes. The caller frees the result. NULL with errno: EINVAL (not absolute), ENOMEM.
 */
char *sp_path_normalise(const char *path, const char *cwd);
/* Whether `path` is `dir` or below it; both normalised. */
bool sp_path_is_in(const char *path, const char *dir);

#endif
