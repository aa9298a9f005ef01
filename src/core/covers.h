/* SPDX-License-Identifier: Apache-2.0 */
/*
 * covers: what of this user's session no confined command may reach, whatever its policy says.
 */
#ifndef SP_CORE_COVERS_H
#define SP_CORE_COVERS_H

#include <stdbool.h>

#define SP_MAX_COVERS 32

struct sp_covers {
    char *paths[SP_MAX_COVERS + 1]; /* NULL at the end */
    unsigned count;
};

/* Our runtime directory and the sockets that the environment names: of agents, buses, engines. */
bool sp_covers_find(const char *runtime_dir, struct sp_covers *ret); /* false: no memory */
bool sp_covers_add(struct sp_covers *c, const char *path); /* NULL or not absolute: not added */
/* Where the path leads, as far as it exists; NULL: nothing is added. */
bool sp_covers_add_real(struct sp_covers *c, const char *path);
void sp_covers_done(struct sp_covers *c);

#endif
