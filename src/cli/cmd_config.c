/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport config`: what the configuration says and where it says it; a first file. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "base/json.h"
#include "base/redact.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "config/config_keys.h"

#define MAX_OUTPUT (8U << 20)

struct config_options {
    struct sp_config_options config;
    bool is_json;
};

static const struct sp_option path_options[] = {
    SP_OPT_FLAG(struct config_options, is_json, "json", "print one JSON object"),
    SP_OPT_STRING(struct config_options, config.file, "config", "FILE",
                  "this file instead of those of the usual places"),
    SP_OPT_END,
};

static const struct sp_option options[] = {
    SP_OPT_FLAG(struct config_options, is_json, "json", "print one JSON object"),
    SP_OPT_TABLE(struct config_options, config, sp_config_options),
    SP_OPT_END,
};

/* With config.tree. Warnings are printed. */
static int load(const struct config_options *o, struct sp_config *ret, struct sp_err *e)
{
    const struct sp_config_request ask = {
        .file = o->config.file, .sets = o->config.sets.items, .env = environ, .keeps_tree = true};
    const int r = sp_config_load(&ask, ret, e);

    for (char *const *w = r < 0 ? NULL : ret->warnings; w != NULL && *w != NULL; w++)
        sp_plain_say("sallyport: warning", *w);
    return r;
}

/* ---- show ---- */

/* One answer of `config show`, while it is made. */
struct listing {
    const struct sp_config *config;
    const char *wanted; /* a key: only it, or what is below it; NULL: all */
    bool is_json, has_found;
    struct sp_buf out;
};

/* A value as TOML, which in JSON differs for tables, dates and floats that are no numbers. */
static bool add_value(struct sp_buf *out, const struct sp_toml_value *v, bool is_json)
{
    const bool is_table = v->type == SP_TOML_TABLE;
    bool ok;

    switch (v->type) {
    case SP_TOML_STRING: {
        auto_free char *copy = strndup(v->text.p, v->text.n); /* up to a NUL, which no key takes */

        if (copy == NULL)
            return false;
        sp_redact_in_place(copy);
        return sp_json_add_str(out, sp_str_of(copy));
    }
    case SP_TOML_INTEGER:
        return sp_buf_printf(out, "%lld", (long long)v->integer);
    case SP_TOML_FLOAT:
        return isfinite(v->real) ? sp_buf_printf(out, "%.17g", v->real)
                                 : sp_buf_printf(out, is_json ? "\"%g\"" : "%g", v->real);
    case SP_TOML_BOOLEAN:
        return sp_buf_printf(out, "%s", v->boolean ? "true" : "false");
    case SP_TOML_OFFSET_DATE_TIME:
    case SP_TOML_LOCAL_DATE_TIME:
    case SP_TOML_LOCAL_DATE:
    case SP_TOML_LOCAL_TIME:
        return is_json ? sp_json_add_str(out, v->text) : sp_buf_add_str(out, v->text);
    case SP_TOML_ARRAY:
    case SP_TOML_TABLE:
        break;
    }
    ok = sp_buf_add(out, is_table ? "{" : "[", 1);
    for (const struct sp_toml_value *c = v->first; ok && c != NULL; c = c->next) {
        ok = c == v->first || sp_buf_printf(out, ", ");
        if (is_table)
            ok = ok && sp_json_add_str(out, c->key) && sp_buf_printf(out, is_json ? ": " : " = ");
        ok = ok && add_value(out, c, is_json);
    }
    return ok && sp_buf_add(out, is_table ? "}" : "]", 1);
}

/* The file with its line, the variable, or the option. */
static bool add_origin(struct sp_buf *out, const struct listing *l, const struct sp_toml_value *v)
{
    const char *path = l->config->path;
    unsigned line = 1;

    if (path == NULL || strcmp(v->doc->name, path) != 0)
        return sp_buf_add_str(out, sp_str_of(v->doc->name));
    for (uint32_t i = 0; i < v->key_at; i++)
        line += v->doc->text.p[i] == '\n';
    return sp_buf_printf(out, "%s:%u", path, line);
}

static bool is_wanted(const struct listing *l, struct sp_str key)
{
    const size_t n = l->wanted == NULL ? 0 : strlen(l->wanted);

    return l->wanted == NULL ||
           (key.n >= n && memcmp(key.p, l->wanted, n) == 0 && (key.n == n || key.p[n] == '.'));
}

/* One line, or one member of `values`. `v` NULL: the default, in TOML that is JSON as well. */
static bool add_entry(struct listing *l, struct sp_str key, const struct sp_toml_value *v,
                      const char *fallback, bool is_secret)
{
    auto_buf struct sp_buf value = {.max = MAX_OUTPUT};
    auto_buf struct sp_buf origin = {.max = MAX_OUTPUT};
    struct sp_buf *out = &l->out;

    if (!is_wanted(l, key))
        return true;
    bool ok = v == NULL ? sp_buf_add_str(&value, sp_str_of(fallback)) &&
                              sp_buf_add_str(&origin, SP_STR("default"))
              : is_secret ? sp_json_add_str(&value, SP_STR("(hidden)")) && add_origin(&origin, l, v)
                          : add_value(&value, v, l->is_json) && add_origin(&origin, l, v);
    if (l->is_json)
        ok = ok && (!l->has_found || sp_buf_add(out, ",", 1)) && sp_buf_add(out, "{", 1) &&
             sp_json_add_member(out, "key", key) &&
             sp_json_add_value(out, "value", SP_STR_FMT, SP_STR_ARG(sp_buf_str(&value))) &&
             sp_json_add_member(out, "origin", sp_buf_str(&origin)) && sp_buf_add(out, "}", 1);
    else
        ok = ok && sp_plain_add(out, key) && sp_buf_printf(out, " = ") &&
             sp_plain_add(out, sp_buf_str(&value)) && sp_buf_printf(out, "  # ") &&
             sp_plain_add(out, sp_buf_str(&origin)) && sp_buf_add(out, "\n", 1);
    l->has_found = true;
    return ok;
}

/* `prefix.name`, the name in quotes if it needs them. */
static bool add_key(struct sp_buf *out, struct sp_str prefix, struct sp_str name)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    bool is_bare = name.n != 0;

    for (size_t i = 0; i < name.n; i++)
        is_bare = is_bare && name.p[i] != 0 && strchr(bare, name.p[i]) != NULL;
    return sp_buf_add_str(out, prefix) && (prefix.n == 0 || sp_buf_add(out, ".", 1)) &&
           (is_bare ? sp_buf_add_str(out, name) : sp_json_add_str(out, name));
}

/* All that is set in a table. Values of variables may be secrets. */
static bool add_table(struct listing *l, struct sp_str prefix, const struct sp_toml_value *table,
                      bool is_secret)
{
    bool ok = true;

    for (const struct sp_toml_value *v = table->first; ok && v != NULL; v = v->next) {
        auto_buf struct sp_buf key = {0};
        const bool is_env = sp_str_eq(v->key, SP_STR("env")) || sp_str_eq(v->key, SP_STR("set"));

        ok = add_key(&key, prefix, v->key) &&
             (v->type == SP_TOML_TABLE
                  ? add_table(l, sp_buf_str(&key), v, is_secret || is_env)
                  : add_entry(l, sp_buf_str(&key), v, NULL, is_secret || is_env));
    }
    return ok;
}

/* The keys of a section in the order of the manual, with defaults for those that are not set. */
static bool add_section(struct listing *l, const char *name, const struct sp_config_key *keys,
                        const struct sp_toml_value *table)
{
    bool ok = true;

    for (const struct sp_config_key *k = keys; ok && k->name != NULL; k++) {
        const struct sp_toml_value *v =
            table == NULL ? NULL : sp_toml_get(table, sp_str_of(k->name));
        const bool is_text = k->type == SP_KEY_STRING || k->type == SP_KEY_SOME_STRINGS;
        auto_buf struct sp_buf key = {0};
        auto_buf struct sp_buf fallback = {0};
        const struct sp_config_section *s = sp_config_sections;

        if (!add_key(&key, sp_str_of(name), sp_str_of(k->name)))
            return false;
        while (s->name != NULL && strcmp(s->name, k->name) != 0)
            s++;
        if (k->type == SP_KEY_TABLE && s->name != NULL)
            ok = add_section(l, s->name, s->keys, v);
        else if (v != NULL && v->type == SP_TOML_TABLE)
            ok = add_table(l, sp_buf_str(&key), v, strcmp(k->name, "set") == 0);
        else if (v != NULL)
            ok = add_entry(l, sp_buf_str(&key), v, NULL, false);
        else if (k->fallback[0] != 0)
            ok = (is_text ? sp_json_add_str(&fallback, sp_str_of(k->fallback))
                          : sp_buf_add_str(&fallback, sp_str_of(k->fallback))) &&
                 sp_buf_add(&fallback, "", 1) &&
                 add_entry(l, sp_buf_str(&key), NULL, fallback.data, false);
    }
    return ok;
}

static int run_show(void *values, char **operands)
{
    const struct config_options *o = values;
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    struct listing l = {
        .config = &config, .wanted = operands[0], .is_json = o->is_json, .out.max = MAX_OUTPUT};
    struct sp_err e = {0};

    if (load(o, &config, &e) < 0)
        return sp_cli_complain(&e);
    bool ok = true;
    if (l.is_json)
        ok = sp_buf_add(&l.out, "{", 1) &&
             (config.path == NULL ? sp_json_add_value(&l.out, "file", "null")
                                  : sp_json_add_member(&l.out, "file", sp_str_of(config.path))) &&
             sp_json_add_value(&l.out, "values", "[");
    ok = ok && add_section(&l, "", sp_config_top_keys, config.tree) &&
         (!l.is_json || sp_buf_printf(&l.out, "]}\n"));
    int status = SP_EXIT_OK;
    if (!ok) {
        (void)sp_config_no_memory(&e);
        status = sp_cli_complain(&e);
    } else if (!l.has_found && l.wanted != NULL) {
        struct sp_nearest near = sp_nearest_to(sp_str_of(l.wanted));

        for (const struct sp_config_key *k = sp_config_top_keys; k->name != NULL; k++)
            sp_nearest_offer(&near, k->name);
        if (near.best == NULL || strcmp(near.best, l.wanted) == 0)
            (void)sp_fail(&e, SP_E_INVALID, 0, "`%.200s` is not set, and has no default", l.wanted);
        else
            (void)sp_fail(&e, SP_E_INVALID, 0, "`%.200s` is not set; did you mean `%s`?", l.wanted,
                          near.best);
        status = sp_cli_complain(&e);
    } else if (sp_cli_print(sp_buf_str(&l.out), &e) < 0) {
        status = sp_cli_complain(&e);
    }
    sp_buf_done(&l.out);
    return status;
}

/* ---- path, check ---- */

/* {"file":"...","valid":true}; file NULL: there is none. error NULL: there is none. */
static int print_file(const char *file, const char *error)
{
    auto_buf struct sp_buf out = {0};
    struct sp_err e = {0};
    const bool ok = sp_buf_add(&out, "{", 1) &&
                    (file == NULL ? sp_json_add_value(&out, "file", "null")
                                  : sp_json_add_member(&out, "file", sp_str_of(file))) &&
                    sp_json_add_value(&out, "valid", "%s", error == NULL ? "true" : "false") &&
                    (error == NULL || sp_json_add_member(&out, "error", sp_str_of(error))) &&
                    sp_buf_printf(&out, "}\n");

    if (!ok)
        (void)sp_config_no_memory(&e);
    return !ok || sp_cli_print(sp_buf_str(&out), &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

/* The error of a configuration file that does not parse. */
static int report_invalid(const struct config_options *o, const struct sp_err *e)
{
    char text[640];

    if (o->is_json)
        (void)print_file(o->config.file, sp_error_text(e, text, sizeof text));
    return sp_cli_complain(e);
}

static int run_path(void *values, char **operands)
{
    const struct config_options *o = values;
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    struct sp_err e = {0};

    (void)operands;
    if (sp_cli_load_config(&o->config, NULL, &config, &e) < 0)
        return report_invalid(o, &e);
    if (o->is_json) {
        const int status = print_file(config.path, NULL);

        return status != SP_EXIT_OK || config.path != NULL ? status : SP_EXIT_FAILED;
    }
    if (config.path == NULL) {
        sp_plain_say("sallyport", "there is no configuration file, so every key has its default; "
                                  "`sallyport config init` writes one");
        return SP_EXIT_FAILED;
    }
    (void)printf("%s\n", config.path);
    return sp_cli_print(SP_STR(""), &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static int run_check(void *values, char **operands)
{
    struct config_options o = *(const struct config_options *)values;
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    struct sp_err e = {0};

    if (operands[0] != NULL)
        o.config.file = operands[0];
    if (load(&o, &config, &e) < 0)
        return report_invalid(&o, &e);
    if (o.is_json)
        return print_file(config.path, NULL);
    sp_plain_print(stdout, sp_str_of(config.path == NULL ? "no file" : config.path));
    (void)printf(": valid\n");
    return sp_cli_print(SP_STR(""), &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

/* ---- init ---- */

static const char first_file[] =
    "# The configuration of sallyport: sallyport.conf(5) explains every key, `sallyport config\n"
    "# show` prints what is in force. A line without its # is in force; --set KEY=VALUE and\n"
    "# variables SALLYPORT_KEY override it.\n"
    "\n"
    "# The sandbox of commands: :read-only, :workspace, :danger-full-access or a profile below.\n"
    "#default_permissions = \":workspace\"\n"
    "\n"
    "# Which commands are asked about: untrusted, on-failure, on-request or never.\n"
    "#approval_policy = \"on-request\"\n"
    "\n"
    "# Who answers: terminal, console (`sallyport approvals`), program:/PATH or deny.\n"
    "#approver = \"terminal\"\n"
    "\n"
    "# Projects whose own rules are read.\n"
    "#trusted_projects = [\"~/src/project\"]\n"
    "\n"
    "# A place to run commands: `sallyport exec --on builder -- make`.\n"
    "#[environments.builder]\n"
    "#url = \"ws://builder:8765\"\n"
    "#token_file = \"~/.sallyport/builder.token\"\n"
    "\n"
    "# A sandbox of your own: :workspace, and two hosts by name.\n"
    "#[permissions.web]\n"
    "#extends = \":workspace\"\n"
    "#[permissions.web.network]\n"
    "#enabled = true\n"
    "#domains = { \"packages.example.org\" = \"allow\", \"*.git.example.org\" = \"allow\" }\n";

static int run_init(void *values, char **operands)
{
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    const struct sp_config_request ask = {.file = "/dev/null", .env = environ};
    auto_buf struct sp_buf path = {0};
    struct sp_err e = {0};

    (void)values;
    (void)operands;
    if (sp_config_load(&ask, &config, &e) < 0)
        return sp_cli_complain(&e);
    if (config.home == NULL) {
        (void)sp_fail(&e, SP_E_INVALID, 0, "config init: HOME is not set to an absolute path");
        return sp_cli_complain(&e);
    }
    if (!sp_buf_printf(&path, "%s/" SP_CONFIG_FILE_NAME, config.home) ||
        !sp_buf_add(&path, "", 1)) {
        (void)sp_config_no_memory(&e);
        return sp_cli_complain(&e);
    }
    if (mkdir(config.home, 0700) < 0 && errno != EEXIST) {
        (void)sp_fail(&e, SP_E_SYSTEM, errno, "make the directory %s", config.home);
        return sp_cli_complain(&e);
    }
    auto_close int fd = open(path.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST) {
        (void)sp_fail(&e, SP_E_INVALID, 0, "%s exists already: nothing was written", path.data);
        return sp_cli_complain(&e);
    }
    const int err = fd < 0 ? errno : sp_write_all(fd, first_file, sizeof first_file - 1);
    if (err != 0) {
        (void)sp_fail(&e, SP_E_SYSTEM, err, "write %s", path.data);
        return sp_cli_complain(&e);
    }
    (void)printf("%s\n", path.data);
    return sp_cli_print(SP_STR(""), &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

/* ---- the commands ---- */

static const struct sp_option no_options[] = {SP_OPT_END};

static const struct sp_cli_command config_show = {
    .name = "config show",
    .summary = "print every key that is in force, and where it is set",
    .usage = "sallyport config show [OPTIONS] [KEY]\n"
             "\n"
             "Prints each key with its value, and the file and line, the variable or the option "
             "that sets it; keys that nothing sets have their default. With KEY, prints this key "
             "or table alone. Values of variables for commands are hidden.\n",
    .notes = "Example: sallyport config show approval_policy\n",
    .options = options,
    .max_operands = 1,
    .values_size = sizeof(struct config_options),
    .run = run_show,
};

static const struct sp_cli_command config_path = {
    .name = "config path",
    .summary = "print the path of the file that is read",
    .usage = "sallyport config path [OPTIONS]\n"
             "\n"
             "Exit status 1: there is none.\n",
    .options = path_options,
    .values_size = sizeof(struct config_options),
    .run = run_path,
};

static const struct sp_cli_command config_check = {
    .name = "config check",
    .summary = "check a configuration file",
    .usage = "sallyport config check [OPTIONS] [FILE]\n"
             "\n"
             "Reads the configuration, or FILE in place of the usual files, and says what is wrong "
             "with it, with line and column.\n",
    .options = path_options,
    .operand = "FILE",
    .max_operands = 1,
    .values_size = sizeof(struct config_options),
    .run = run_check,
};

static const struct sp_cli_command config_init = {
    .name = "config init",
    .summary = "write a first configuration file, with comments",
    .usage = "sallyport config init\n"
             "\n"
             "Writes sallyport.conf in $SALLYPORT_HOME (~/.sallyport), with the most common keys "
             "as comments, and prints its path. A file that exists is left alone.\n",
    .options = no_options,
    .run = run_init,
};

static const struct sp_cli_command *const subcommands[] = {&config_show, &config_path,
                                                           &config_check, &config_init, NULL};

const struct sp_cli_command sp_command_config = {
    .name = "config",
    .summary = "show, check or begin the configuration file",
    .usage = "sallyport config SUBCOMMAND [OPTIONS]\n",
    .notes = "Exit status: 0; 1 if the configuration is not valid; 2 for a wrong command line.\n"
             "Example: sallyport config show\n",
    .subcommands = subcommands,
};
