/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config: the configuration: one file, with variables and --set over it.
 *
 * The file is the first of --config, $SALLYPORT_CONFIG, $SALLYPORT_HOME/sallyport.conf and
 * /etc/sallyport/sallyport.conf that exists; the first two must exist if they are given. An unknown
 * key or a wrong type is an error that names file, line and column. Variables SALLYPORT_KEY_NAME,
 * one for each key at the top that is no list, override the file; --set overrides both.
 */
#ifndef SP_CONFIG_CONFIG_H
#define SP_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/env.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "base/toml.h"
#include "sandbox/profile.h"

/* [environments.NAME], a place to run commands. Exactly one of url and program is set. */
struct sp_config_environment {
    char *name;
    char *url;
    char **program;         /* program and its args; NULL at the end */
    char **env;             /* NAME=VALUE; NULL at the end, or NULL */
    char *cwd, *token_file; /* NULL: none */
    uint64_t connect_timeout_ms;
};

struct sp_config_profile {
    char *name;
    struct sp_profile profile; /* [permissions.NAME] */
};

struct sp_config {
    char *path; /* of the file that was read; NULL: none */
    char *home; /* $SALLYPORT_HOME or ~/.sallyport; NULL: there is no home */

    char *default_permissions; /* NULL: each command has its own default */
    struct sp_config_profile *profiles;
    size_t profile_count;
    bool has_approval_policy; /* it is configured, not the default */
    char *approval_policy;    /* a name (docs/APPROVALS.md), or the JSON of `granular` */
    char **approvers; /* as --approver; NULL: `terminal` for exec on a terminal, else `deny` */
    char **permission_hooks; /* programs; NULL at the end, or NULL */
    char *reviewer;          /* program:PATH; NULL: none */
    char *audit_log;         /* NULL: audit.jsonl in home; "": none */
    uint64_t approval_timeout_s;
    char *known_safe;
    bool audit_receipts, retry_reuses_approval, retry_on_heuristic, ignore_user_and_project_rules,
        strict_review;
    bool preserve_line_endings; /* in files that a patch changes */
    char **trusted_projects;    /* NULL at the end, or NULL */
    char **publish;             /* ports, as --publish; NULL at the end, or NULL */

    char *server, *token_file;
    char *default_environment; /* "local" unless set */
    struct sp_config_environment *environments;
    size_t environment_count;

    struct sp_limit_levels limits; /* of commands that run here */

    struct sp_env_policy env_policy; /* borrows from impl */
    struct sp_env_vars env_set;
    bool allow_login_shell;
    uint64_t poll_max_ms, tool_output_token_limit, exited_ttl_s, detached_ttl_s, idle_ttl_s;
    uint32_t notify_at;
    char *mcp_structured_output; /* auto, always or never */
    char *busy_poll;             /* auto, off or on */
    bool mcp_keep_cancelled;
    bool report_denied_start;
    bool has_exec_permission_approvals, has_write_stdin_no_timeout, has_unified_exec,
        has_shell_snapshot;

    const struct sp_toml_value *tree; /* all keys that are set, by ask.keeps_tree; else NULL */
    char **warnings; /* valid settings that look like mistakes; NULL at the end, or NULL */
    void *impl;      /* owns all strings and lists above */
};

struct sp_config_request {
    const char *file;        /* --config; NULL: the usual places */
    const char *const *sets; /* --set KEY=TOML, in order; NULL at the end, or NULL */
    char *const *env;        /* usually environ: SALLYPORT_*, HOME and TMPDIR are used */
    bool keeps_tree;         /* for config.tree */
    /* Path, NUL and text of the file, for the next front of a server; NULL: not needed. If it is
     * filled already and loading fails, that text counts instead of the file, with a warning. */
    struct sp_buf *kept;
};

#define SP_CONFIG_FILE_NAME "sallyport.conf" /* in config.home */

/* Refusals are SP_E_INVALID; the text has file, line and column. A file that belongs neither to the
 * user nor to root, or that group or others may write, is refused. */
int sp_config_load(const struct sp_config_request *ask, struct sp_config *ret, struct sp_err *e);
void sp_config_done(struct sp_config *c);

/* NULL: unknown. */
const struct sp_config_environment *sp_config_find_environment(const struct sp_config *c,
                                                               const char *name);

/* PORT or HOST:PORT of --publish and `publish`, each from 1 to 65535. */
bool sp_config_read_ports(struct sp_str text, uint16_t *ret_host, uint16_t *ret_cell);

/* The bearer token in a file of mode 0600 or stricter: one line. The caller frees it. */
int sp_config_read_token(const char *path, char **ret, struct sp_err *e);

/* ---- where commands run, by --on NAME|URL ---- */

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
