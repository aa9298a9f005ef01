/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve_env: the variables of a client that choose which program runs, or make a program run
 * others.
 *
 * `ls` may be known to be safe while `PATH=/site/evil ls` is not. A script with such an assignment
 * is not judged by its words; a client must not get further by setting the variable itself. So the
 * variables are put in front of the command as `env NAME=VALUE ...`, and judged and shown with it.
 */
#ifndef SP_CLI_SERVE_ENV_H
#define SP_CLI_SERVE_ENV_H

#include "approve/script/script.h"
#include "server/rpc/start_gate.h"

struct sp_serve_env {
    struct sp_words words; /* env NAME=VALUE ...; count 0: no such variable */
    struct sp_str path;    /* the client's PATH; n 0: none */
    struct sp_str *items;  /* of words; freed with this */
};

/* ours: the variables of the server; one that a client sets to the same value is not counted. The
 * words point into c->env. */
int sp_serve_env_read(struct sp_serve_env *ret, const struct sp_start_gate_case *c,
                      char *const *ours, struct sp_err *e);
void sp_serve_env_done(struct sp_serve_env *v);

#endif
