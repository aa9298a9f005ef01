/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve_environ: what of the environment that a client gives to a command decides which program
 * runs, or makes a program run others.
 *
 * `ls` is known, and `PATH=/site/evil ls` is not. A shell's script that begins so is not plain
 * (approvals.md 4.2); a client that says it by `env` shall not come further.
 */
#ifndef SP_CLI_SERVE_ENVIRON_H
#define SP_CLI_SERVE_ENVIRON_H

#include "approve/script/script.h"
#include "server/rpc/start_gate.h"

struct sp_serve_environ {
    struct sp_words words; /* env NAME=VALUE ...; count 0: it is harmless, as far as we know */
    struct sp_str path;    /* its PATH; n 0: none */
    struct sp_str *items;  /* of words; its own */
};

/* ours: the server's own environment; what is in there is no client's doing. The words point into
 * the case's environment. */
int sp_serve_environ_read(struct sp_serve_environ *ret, const struct sp_start_gate_case *c,
                          char *const *ours, struct sp_err *e);
void sp_serve_environ_done(struct sp_serve_environ *v);

#endif
