/* SPDX-License-Identifier: Apache-2.0 */
#include "base/runtime_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_own_dir(const char *path)
{
    struct stat st;

    return path != NULL && path[0] == '/' && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid();
}

/* /run/user/UID has precedence over XDG_RUNTIME_DIR, so that two servers of one user agree also if
 * only one of them has the variable. */
void sp_runtime_dir(char *ret, size_t size)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    char run[64];

    (void)snprintf(run, sizeof run, "/run/user/%u", (unsigned)geteuid());
    if (geteuid() == 0)
        (void)snprintf(ret, size, "/run/sallyport");
    else if (is_own_dir(run))
        (void)snprintf(ret, size, "%s/sallyport", run);
    else if (is_own_dir(xdg))
        (void)snprintf(ret, size, "%s/sallyport", xdg);
    else
        (void)snprintf(ret, size, "/tmp/sallyport-%u", (unsigned)geteuid());
}

bool sp_runtime_candidate(unsigned number, char *ret, size_t size)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");

    ret[0] = 0;
    switch (number) {
    case 0:
        (void)snprintf(ret, size, "/run/sallyport");
        return true;
    case 1:
        (void)snprintf(ret, size, "/run/user/%u/sallyport", (unsigned)geteuid());
        return true;
    case 2:
        if (xdg != NULL && xdg[0] == '/' && strlen(xdg) + sizeof "/sallyport" <= size)
            (void)snprintf(ret, size, "%s/sallyport", xdg);
        return true;
    case 3:
        if (geteuid() != 0)
            (void)snprintf(ret, size, "/tmp/sallyport-%u", (unsigned)geteuid());
        return true;
    default:
        return false;
    }
}
