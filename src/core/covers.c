/* SPDX-License-Identifier: Apache-2.0 */
#include "core/covers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"

bool sp_covers_add(struct sp_covers *c, const char *path)
{
    if (path == NULL || path[0] != '/' || path[1] == 0 || c->count == SP_MAX_COVERS)
        return true;
    c->paths[c->count] = strdup(path);
    return c->paths[c->count] != NULL && ++c->count > 0;
}

void sp_covers_done(struct sp_covers *c)
{
    for (unsigned i = 0; i < c->count; i++)
        free(c->paths[i]);
    c->count = 0;
}

/* The path in unix:path=/x, unix:///x, unix:/x; NULL: none. */
static const char *path_in_address(const char *address)
{
    const char *slash =
        address == NULL || strncmp(address, "unix:", 5) != 0 ? NULL : strchr(address, '/');

    while (slash != NULL && slash[0] == '/' && slash[1] == '/')
        slash++;
    return slash;
}

static bool add_address(struct sp_covers *c, const char *variable)
{
    char path[4096];
    const char *found = path_in_address(getenv(variable));

    if (found == NULL)
        return true;
    (void)snprintf(path, sizeof path, "%.*s", (int)strcspn(found, ",;"), found);
    return sp_covers_add(c, path);
}

bool sp_covers_find(const char *runtime_dir, struct sp_covers *ret)
{
    static const char *const gpg_sockets[] = {"S.gpg-agent", "S.gpg-agent.ssh", "S.gpg-agent.extra",
                                              "S.gpg-agent.browser"};
    const char *gpg = getenv("GNUPGHOME");
    bool ok = sp_covers_add(ret, runtime_dir) && sp_covers_add(ret, getenv("XDG_RUNTIME_DIR")) &&
              sp_covers_add(ret, getenv("SSH_AUTH_SOCK")) && add_address(ret, "DOCKER_HOST") &&
              add_address(ret, "DBUS_SESSION_BUS_ADDRESS");

    for (size_t i = 0; ok && gpg != NULL && i < sizeof gpg_sockets / sizeof gpg_sockets[0]; i++) {
        char path[4096];

        (void)snprintf(path, sizeof path, "%s/%s", gpg, gpg_sockets[i]);
        ok = sp_covers_add(ret, path);
    }
    return ok;
}

bool sp_covers_add_real(struct sp_covers *c, const char *path)
{
    auto_free char *real = path == NULL ? NULL : realpath(path, NULL);

    return sp_covers_add(c, real);
}
