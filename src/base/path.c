/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Appends "/component" to the `len` bytes at out for each component of `path`. */
static size_t add_components(char *out, size_t len, const char *path)
{
    while (*path != 0) {
        const size_t n = strcspn(path, "/");

        if (n == 2 && path[0] == '.' && path[1] == '.') {
            while (len > 0 && out[--len] != '/')
                ;
        } else if (n > 1 || (n == 1 && path[0] != '.')) {
            out[len++] = '/';
            memcpy(out + len, path, n);
            len += n;
        }
        path += n;
        path += strspn(path, "/");
    }
    return len;
}

char *sp_path_normalise(const char *path, const char *cwd)
{
    const bool is_absolute = *path == '/';

    if (*path == 0 || (!is_absolute && (cwd == NULL || *cwd != '/'))) {
        errno = EINVAL;
        return NULL;
    }
    char *out = malloc((is_absolute ? 0 : strlen(cwd)) + strlen(path) + 2);
    if (out == NULL)
        return NULL;
    size_t len = is_absolute ? 0 : add_components(out, 0, cwd);
    len = add_components(out, len, path);
    if (len == 0)
        out[len++] = '/';
    out[len] = 0;
    return out;
}

bool sp_path_is_in(const char *path, const char *dir)
{
    /* "/" is the only normalised directory that ends in a slash. */
    const size_t n = dir[1] == 0 ? 0 : strlen(dir);

    return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == 0);
}
