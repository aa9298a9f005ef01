/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hidden_paths: what no policy opens to a confined command (struct sp_fixed_places), collected:
 * sockets and directories of this user's session here, our own files by config/own_places.h.
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

/* The lists as they are now: valid until something is added. */
struct sp_fixed_places sp_hidden_paths_places(const struct sp_hidden_paths *c);

/* false: no memory. NULL, a relative path or / is not added; nor is one that is there already. */
bool sp_path_list_add(struct sp_path_list *l, const char *path);

/* Our runtime directory and the sockets that the environment names: of agents, buses, engines. */
bool sp_hidden_paths_find(const char *runtime_dir,
                          struct sp_hidden_paths *ret);                /* false: no memory */
bool sp_hidden_paths_add(struct sp_hidden_paths *c, const char *path); /* to what is hidden */
/* Where the path leads, as far as it exists; NULL: nothing is added. */
bool sp_hidden_paths_add_real(struct sp_hidden_paths *c, const char *path);
/* A copy that is the caller's. false: no memory */
bool sp_hidden_paths_copy(const struct sp_fixed_places *from, struct sp_hidden_paths *ret);

#endif
