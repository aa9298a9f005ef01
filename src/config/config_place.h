/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_place: where commands run, by --on NAME|URL.
 */
#ifndef SP_CONFIG_CONFIG_PLACE_H
#define SP_CONFIG_CONFIG_PLACE_H

#include "config/config.h"

/* The local host, or the parameters of a connection. token and own_name are owned; other strings
 * are borrowed from the configuration or the caller. */
struct sp_config_place {
    bool is_local;
    const char *name;           /* "local", the environment's name, or the URL without secrets */
    const char *url;            /* NULL: program, or local */
    const char *const *program; /* NULL: url, or local */
    const char *const *env;     /* NAME=VALUE for the program; NULL: none */
    const char *cwd;            /* default working directory there; NULL: none */
    char *token;                /* bearer; NULL: none */
    char *own_name;             /* owns `name` of a URL; NULL: the name is borrowed */
    uint64_t connect_timeout_ms;
};
void sp_config_place_done(struct sp_config_place *p);

/*
 * name_or_url: `local`, an environment of the configuration, or a URL; NULL: default_environment.
 * A token is sent only where the configuration says: that of an environment's token_file to its
 * url, that of the token_file at the top to `server`.
 */
int sp_config_place(const struct sp_config *c, const char *name_or_url, struct sp_config_place *ret,
                    struct sp_err *e);

#endif
