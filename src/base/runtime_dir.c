/* SPDX-License-Identifier: Apache-2.0 */
#include "base/runtime_dir.h"

#include <limits.h>
#include <stdbool.h>
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

const char *const *sp_runtime_candidates(void)
{
    static char run[64];
    static char xdg[PATH_MAX];
    static char tmp[64];
    static const char *const all[] = {"/run/sallyport", run, xdg, tmp, NULL};
    const char *named = getenv("XDG_RUNTIME_DIR");

    (void)snprintf(run, sizeof run, "/run/user/%u/sallyport", (unsigned)geteuid());
    tmp[0] = xdg[0] = 0;
    if (geteuid() != 0)
        (void)snprintf(tmp, sizeof tmp, "/tmp/sallyport-%u", (unsigned)geteuid());
    if (named != NULL && named[0] == '/' && strlen(named) < sizeof xdg - sizeof "/sallyport")
        (void)snprintf(xdg, sizeof xdg, "%s/sallyport", named);
    return all;
}
