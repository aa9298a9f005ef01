/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hidden_paths: collects the places that no policy opens to a confined command (struct
 * sp_fixed_places). The sockets and directories of the user's session are found here; sallyport's
 * own files are added by config/own_places.h.
 */
#ifndef SP_SANDBOX_HIDDEN_PATHS_H
#define SP_SANDBOX_HIDDEN_PATHS_H

#include <stdbool.h>

#include "sandbox/survey.h"

struct sp_path_list {
    char **paths; /* owned; NULL at the end, or NULL */
    size_t count, cap;
};

struct sp_hidden_paths {
    struct sp_path_list hidden, own_dirs, read_only, names;
};
void sp_hidden_paths_done(struct sp_hidden_paths *c);

/* Pointers into the lists: valid until a path is added. */
struct sp_fixed_places sp_hidden_paths_places(const struct sp_hidden_paths *c);

/* false: no memory. NULL, a relative path, "/" and repeated paths are ignored. */
bool sp_path_list_add(struct sp_path_list *l, const char *path);

/* Our runtime directory, and the sockets named by variables: SSH_AUTH_SOCK, DOCKER_HOST, D-Bus ...
 */
bool sp_hidden_paths_find(const char *runtime_dir,
                          struct sp_hidden_paths *ret);                /* false: no memory */
bool sp_hidden_paths_add(struct sp_hidden_paths *c, const char *path); /* to what is hidden */
/* Adds realpath(path); nothing if path is NULL or does not exist. */
bool sp_hidden_paths_add_real(struct sp_hidden_paths *c, const char *path);
/* false: no memory */
bool sp_hidden_paths_copy(const struct sp_fixed_places *from, struct sp_hidden_paths *ret);

#endif
