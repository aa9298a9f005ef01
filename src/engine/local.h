/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local: the backend that runs commands on this host, in cells.
 *
 * The program that uses it is the front (docs/ARCHITECTURE.md): it has the rings and the input
 * descriptors, and commands are not its children. It is made to be embedded in a foreign program:
 * it installs no signal handler, chooses no descriptor numbers, reaps no children but its cells,
 * and is no subreaper.
 */
#ifndef SP_ENGINE_LOCAL_H
#define SP_ENGINE_LOCAL_H

#include "engine/job.h"
#include "sandbox/survey.h"

struct sp_local_options {
    const char *program;    /* the sallyport binary, run as `PROGRAM cell` */
    uint32_t max_processes; /* 0: 1024 */
    bool use_cgroups;
    struct sp_fixed_places fixed; /* paths that no policy opens */
    const char *runtime_dir;      /* NULL: none */
    const char *cwd;              /* default directory of commands; absolute */
    bool owns_program; /* not embedded: what a killed cell leaves behind is reparented to us and
                          killed. An embedded backend does that only with use_cgroups */
};

/* Strings are copied. The first command creates the server and its cell. */
int sp_local_new(struct sp_loop *loop, const struct sp_local_options *o, struct sp_backend **ret,
                 struct sp_err *e);

#endif
