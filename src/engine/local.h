/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local: the backend whose processes run here, in cells of ours.
 *
 * The program that uses it is the front (docs/ARCHITECTURE.md): it has the rings and the input
 * descriptors, and no command as its child. Made for a guest in somebody else's program: no signal
 * handler, no descriptor number of its own choosing, no child reaped but its cells, no subreaper.
 */
#ifndef SP_ENGINE_LOCAL_H
#define SP_ENGINE_LOCAL_H

#include "engine/job.h"
#include "sandbox/survey.h"

struct sp_local_options {
    const char *program;    /* the sallyport binary, run as `PROGRAM cell` */
    uint32_t max_processes; /* 0: 1024 */
    bool use_cgroups;
    struct sp_fixed_places fixed; /* what no policy opens */
    const char *runtime_dir;      /* NULL: none */
    const char *cwd;              /* the default one of commands; absolute */
    bool owns_program; /* the whole program is ours: what a killed cell leaves comes to us, and is
                          killed. For a guest, with use_cgroups alone */
};

/* Strings are copied. The cell is made when the first command needs it. */
int sp_local_new(struct sp_loop *loop, const struct sp_local_options *o, struct sp_backend **ret,
                 struct sp_err *e);

#endif
