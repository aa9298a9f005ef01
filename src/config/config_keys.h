/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_keys: every key of the configuration, in one table, and the reading of values by it.
 */
#ifndef SP_CONFIG_CONFIG_KEYS_H
#define SP_CONFIG_CONFIG_KEYS_H

#include "config/config_priv.h"

enum sp_key_type {
    SP_KEY_STRING,  /* char * */
    SP_KEY_PATH,    /* char *: absolute, or ~/... */
    SP_KEY_INTEGER, /* uint64_t, from 0 */
    SP_KEY_COUNT,   /* uint32_t */
    SP_KEY_SECONDS, /* uint64_t, in milliseconds; a float will do */
    SP_KEY_BOOLEAN, /* bool */
    SP_KEY_STRINGS, /* char **, NULL at the end */
    SP_KEY_PATHS,
    SP_KEY_SOME_PATHS,   /* the same, or one alone */
    SP_KEY_SOME_STRINGS, /* strings, or one alone */
    SP_KEY_TABLE,        /* const struct sp_toml_value *: for a closer look */
};

struct sp_config_key {
    const char *name;
    enum sp_key_type type;
    size_t offset;            /* in what the section fills */
    const char *fallback;     /* as the manual has it; "": none */
    const char *const *words; /* the strings that it may be; NULL: any */
};

struct sp_config_section {
    const char *name;                 /* "", "features", "environments.NAME" ... */
    const struct sp_config_key *keys; /* a name of NULL at the end */
};

/* All of them; a name of NULL at the end. */
extern const struct sp_config_section sp_config_sections[];
const struct sp_config_section *sp_config_section(const char *name);

/* What the keys at the top fill. */
struct sp_config_top {
    struct sp_config config;
    const struct sp_toml_value *permissions, *sandbox, *environments, *shell_environment_policy,
        *features;
};

struct sp_config_raw_environment {
    struct sp_config_environment is; /* program and env are made of the rest */
    char *program, **args;
    const struct sp_toml_value *env;
};

struct sp_config_raw_profile {
    char *extends, *description;
    const struct sp_toml_value *filesystem, *network;
};

struct sp_config_raw_network {
    bool is_enabled;
};

struct sp_config_raw_shell_policy {
    char *inherit;
    bool ignores_default_excludes;
    char **exclude, **include_only, **keep;
    const struct sp_toml_value *set;
};

struct sp_config_raw_sandbox {
    char **protected_names, *isolation;
};

/* Every value of the table into `target`; an unknown key, a wrong type or word is refused. */
int sp_config_read_section(struct sp_config_loading *l, const char *section,
                           const struct sp_toml_value *table, void *target);

/* Whether the environment may say it, as SALLYPORT_NAME. */
bool sp_config_is_scalar(const struct sp_config_key *key);

#endif
