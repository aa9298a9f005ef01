/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_keys: what the files of src/config share while a configuration is read: the table of all
 * keys, the function that reads a section by it, and the memory that the values are copied to.
 */
#ifndef SP_CONFIG_CONFIG_KEYS_H
#define SP_CONFIG_CONFIG_KEYS_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/toml.h"
#include "config/config.h"

/* Memory of a configuration; freed by sp_config_done. */
struct sp_config_impl {
    struct sp_arena arena;
    char *user_home, *tmpdir; /* $HOME and $TMPDIR if absolute, else NULL */
    /* All parsed texts, freed at the end of loading unless ask.keeps_tree; later ones are merged
     * into docs[0]. */
    struct sp_toml *docs;
    size_t doc_count;
    size_t warning_count;
};

struct sp_config_loading {
    struct sp_config *config;
    struct sp_config_impl *impl;
    struct sp_err *e;
    struct sp_buf text; /* of the file */
    bool uses_kept;
};

int sp_config_no_memory(struct sp_err *e);

/* Copies into the arena. */
int sp_config_keep(struct sp_config_loading *l, struct sp_str text, char **ret);

/* Adds to config.warnings, with file, line and column of v. */
SP_PRINTF(3, 4)
int sp_config_warn(struct sp_config_loading *l, const struct sp_toml_value *v, const char *fmt,
                   ...);

/* Expands ~ and ~/...; any other path must be absolute. The result is in the arena; v is for the
 * position in messages. */
int sp_config_expand(struct sp_config_loading *l, const struct sp_toml_value *v, struct sp_str path,
                     char **ret);

/* [permissions] */
int sp_config_read_profiles(struct sp_config_loading *l, const struct sp_toml_value *table);

/* ---- keys ---- */

enum sp_key_type {
    SP_KEY_STRING,  /* char * */
    SP_KEY_PATH,    /* char *: absolute, or ~/... */
    SP_KEY_INTEGER, /* uint64_t, from 0 */
    SP_KEY_COUNT,   /* uint32_t */
    SP_KEY_SECONDS, /* uint64_t in milliseconds; the file has seconds, also as a float */
    SP_KEY_BOOLEAN, /* bool */
    SP_KEY_STRINGS, /* char **, NULL at the end */
    SP_KEY_PATHS,
    SP_KEY_SOME_PATHS,   /* an array, or one path */
    SP_KEY_SOME_STRINGS, /* an array, or one string */
    SP_KEY_TABLE,        /* const struct sp_toml_value *, for the reader of the section */
    SP_KEY_ANY,          /* the same, of any type */
    SP_KEY_UNUSED,       /* of Codex, without a meaning here: a warning */
    SP_KEY_REFUSED,      /* an error that names it */
};

struct sp_config_key {
    const char *name; /* with a * at the end: all keys that begin so */
    enum sp_key_type type;
    size_t offset;            /* in the struct that the section fills */
    const char *fallback;     /* the default, for the manual; "": none */
    const char *const *words; /* the strings that are allowed; NULL: any */
};

struct sp_config_section {
    const char *name;                 /* "", "features", "environments.NAME" ... */
    const struct sp_config_key *keys; /* ends with a name of NULL */
};

/* All sections; ends with a name of NULL. */
extern const struct sp_config_section sp_config_sections[];
extern const struct sp_config_key sp_config_top_keys[]; /* of the section "" */

/* What the section "" fills. */
struct sp_config_top {
    struct sp_config config;
    const struct sp_toml_value *permissions, *sandbox, *environments, *shell_environment_policy,
        *features, *limits;
};

struct sp_config_raw_environment {
    struct sp_config_environment
        is; /* without program and env, which come from the members below */
    char *program, **args;
    const struct sp_toml_value *env;
};

struct sp_config_raw_profile {
    char *extends, *description;
    const struct sp_toml_value *filesystem, *network;
};

/* The members hold the inherited values before the section is read; NULL: the key is not given. */
struct sp_config_raw_network {
    bool is_enabled, is_managed;
    bool asks, allows_local, has_socks, checks_sni, sets_env, uses_upstream;
    char *mode, *upstream_unresolved;
    const struct sp_toml_value *domains, *ports;
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

struct sp_config_raw_limits {
    const struct sp_toml_value *levels[SP_LIMIT_LEVELS];
};

/* [limits.command], the others; the values as numbers or strings. */
struct sp_config_raw_limit_level {
    const struct sp_toml_value *of[SP_LIMIT_COUNT];
};

/* Reads every value of the table into *target, the struct of the section. Refuses an unknown key, a
 * wrong type and a wrong word. table NULL: nothing to do. */
int sp_config_read_section(struct sp_config_loading *l, const char *section,
                           const struct sp_toml_value *table, void *target);

#endif
