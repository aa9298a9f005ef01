/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place: where commands run: --on NAME|URL.
 */
#ifndef SP_CONFIG_CONFIG_PLACE_H
#define SP_CONFIG_CONFIG_PLACE_H

#include "config/config.h"

/* Local, or what a connection needs to know; the strings are the configuration's or the caller's,
 * but for the token and own_name. */
struct sp_config_place {
    bool is_local;
    const char *name;           /* "local", the environment's, or the URL without its query */
    const char *url;            /* NULL: program, or local */
    const char *const *program; /* NULL: url, or local */
    const char *const *env;     /* NAME=VALUE for the program; NULL: none */
    const char *cwd;            /* default directory of commands there; NULL: none */
    char *token;                /* bearer; NULL: none */
    char *own_name;             /* owns `name` of a URL; NULL: the name is borrowed */
    uint64_t connect_timeout_ms;
};
void sp_config_place_done(struct sp_config_place *p);

/*
 * name_or_url: `local`, an environment of the configuration, or a URL; NULL: default_environment.
 * A token goes only where the configuration says: with an environment's token_file to its url, with
 * the one at the top to `server`.
 */
int sp_config_place(const struct sp_config *c, const char *name_or_url, struct sp_config_place *ret,
                    struct sp_err *e);

#endif
