/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/hidden_paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/grow.h"
#include "base/runtime_dir.h"

/* ---- lists ---- */

bool sp_path_list_add(struct sp_path_list *l, const char *path)
{
    if (path == NULL || path[0] != '/' || path[1] == 0)
        return true;
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->paths[i], path) == 0)
            return true;
    if (!SP_GROW(l->paths, l->count + 1, l->cap)) /* with the NULL */
        return false;
    l->paths[l->count] = strdup(path);
    if (l->paths[l->count] == NULL)
        return false;
    l->paths[++l->count] = NULL;
    return true;
}

static void list_done(struct sp_path_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->paths[i]);
    free(l->paths);
    *l = (struct sp_path_list){0};
}

static bool copy_list(const char *const *from, struct sp_path_list *to)
{
    for (; from != NULL && *from != NULL; from++)
        if (!sp_path_list_add(to, *from))
            return false;
    return true;
}

/* ---- all of them ---- */

void sp_hidden_paths_done(struct sp_hidden_paths *c)
{
    list_done(&c->hidden);
    list_done(&c->own_dirs);
    list_done(&c->read_only);
    list_done(&c->names);
}

struct sp_fixed_places sp_hidden_paths_places(const struct sp_hidden_paths *c)
{
    return (struct sp_fixed_places){.hidden = (const char *const *)c->hidden.paths,
                                    .own_dirs = (const char *const *)c->own_dirs.paths,
                                    .read_only = (const char *const *)c->read_only.paths,
                                    .names = (const char *const *)c->names.paths};
}

bool sp_hidden_paths_copy(const struct sp_fixed_places *from, struct sp_hidden_paths *ret)
{
    return copy_list(from->hidden, &ret->hidden) && copy_list(from->own_dirs, &ret->own_dirs) &&
           copy_list(from->read_only, &ret->read_only) && copy_list(from->names, &ret->names);
}

bool sp_hidden_paths_add(struct sp_hidden_paths *c, const char *path)
{
    return sp_path_list_add(&c->hidden, path);
}

/* ---- the session's ---- */

/* The path in unix:path=/x, unix:///x, unix:/x; NULL: none. */
static const char *path_in_address(const char *address)
{
    const char *slash =
        address == NULL || strncmp(address, "unix:", 5) != 0 ? NULL : strchr(address, '/');

    while (slash != NULL && slash[0] == '/' && slash[1] == '/')
        slash++;
    return slash;
}

static bool add_address(struct sp_hidden_paths *c, const char *variable)
{
    char path[4096];
    const char *found = path_in_address(getenv(variable));

    if (found == NULL)
        return true;
    (void)snprintf(path, sizeof path, "%.*s", (int)strcspn(found, ",;"), found);
    return sp_hidden_paths_add(c, path);
}

bool sp_hidden_paths_find(const char *runtime_dir, struct sp_hidden_paths *ret)
{
    static const char *const gpg_sockets[] = {"S.gpg-agent", "S.gpg-agent.ssh", "S.gpg-agent.extra",
                                              "S.gpg-agent.browser"};
    const char *gpg = getenv("GNUPGHOME");
    char path[4096];
    bool ok = sp_hidden_paths_add(ret, runtime_dir) &&
              sp_hidden_paths_add(ret, getenv("XDG_RUNTIME_DIR")) &&
              sp_hidden_paths_add(ret, getenv("SSH_AUTH_SOCK")) &&
              add_address(ret, "DOCKER_HOST") && add_address(ret, "DBUS_SESSION_BUS_ADDRESS");

    /* Also the runtime directories that another server of this user may choose, with other
     * variables: a command that made such a directory first would get that server's tokens, sockets
     * and journal. */
    for (unsigned i = 0; ok && sp_runtime_candidate(i, path, sizeof path); i++)
        ok = sp_hidden_paths_add(ret, path) && sp_path_list_add(&ret->own_dirs, path);
    for (size_t i = 0; ok && gpg != NULL && i < sizeof gpg_sockets / sizeof gpg_sockets[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", gpg, gpg_sockets[i]);
        ok = sp_hidden_paths_add(ret, path);
    }
    return ok;
}

bool sp_hidden_paths_add_real(struct sp_hidden_paths *c, const char *path)
{
    auto_free char *real = path == NULL ? NULL : realpath(path, NULL);

    return sp_hidden_paths_add(c, real);
}
