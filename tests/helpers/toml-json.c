/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml-json: TOML texts on standard input, each after a line with its length in bytes; for each one
 * a line of JSON on standard output: {"value": TREE}, or {"error": "why"}. Every value of a tree is
 * {"type": T, "value": V}; all but booleans, arrays and tables are strings in V.
 *
 * toml-json --keys: the keys of the configuration, one a line, with their defaults after a tab.
 * toml-json --config FILE: reads it as one; what is wrong with it is said on standard error.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/toml.h"
#include "config/config_keys.h"

#define MAX_TEXT (16 << 20) /* more than the reader takes, so that its bound can be seen */

static const char *const names[] = {
    [SP_TOML_STRING] = "string",
    [SP_TOML_INTEGER] = "integer",
    [SP_TOML_FLOAT] = "float",
    [SP_TOML_BOOLEAN] = "boolean",
    [SP_TOML_OFFSET_DATE_TIME] = "offset-date-time",
    [SP_TOML_LOCAL_DATE_TIME] = "local-date-time",
    [SP_TOML_LOCAL_DATE] = "local-date",
    [SP_TOML_LOCAL_TIME] = "local-time",
    [SP_TOML_ARRAY] = "array",
    [SP_TOML_TABLE] = "table",
};

static void need(bool is_good)
{
    if (!is_good) {
        (void)fputs("toml-json: no memory\n", stderr);
        exit(2);
    }
}

static void add_value(struct sp_buf *out, const struct sp_toml_value *v);

static void add_children(struct sp_buf *out, const struct sp_toml_value *v)
{
    const bool is_table = v->type == SP_TOML_TABLE;

    need(sp_buf_printf(out, "%c", is_table ? '{' : '['));
    for (const struct sp_toml_value *c = v->first; c != NULL; c = c->next) {
        if (is_table)
            need(sp_json_add_str(out, c->key) && sp_buf_add(out, ":", 1));
        add_value(out, c);
        if (c->next != NULL)
            need(sp_buf_add(out, ",", 1));
    }
    need(sp_buf_printf(out, "%c", is_table ? '}' : ']'));
}

static void add_content(struct sp_buf *out, const struct sp_toml_value *v)
{
    switch (v->type) {
    case SP_TOML_INTEGER:
        need(sp_buf_printf(out, "\"%" PRId64 "\"", v->integer));
        return;
    case SP_TOML_FLOAT:
        need(sp_buf_printf(out, "\"%.17g\"", v->real));
        return;
    case SP_TOML_BOOLEAN:
        need(sp_buf_printf(out, "%s", v->boolean ? "true" : "false"));
        return;
    case SP_TOML_ARRAY:
    case SP_TOML_TABLE:
        add_children(out, v);
        return;
    case SP_TOML_STRING:
    case SP_TOML_OFFSET_DATE_TIME:
    case SP_TOML_LOCAL_DATE_TIME:
    case SP_TOML_LOCAL_DATE:
    case SP_TOML_LOCAL_TIME:
        need(sp_json_add_str(out, v->text));
        return;
    }
}

static void add_value(struct sp_buf *out, const struct sp_toml_value *v)
{
    need(sp_buf_printf(out, "{\"type\":\"%s\",\"value\":", names[v->type]));
    add_content(out, v);
    need(sp_buf_add(out, "}", 1));
}

static void answer(struct sp_str text)
{
    auto_toml struct sp_toml doc = {0};
    auto_buf struct sp_buf out = {0};
    struct sp_err e = {0};
    const bool is_read = sp_toml_parse(&doc, "text", text, &e) == 0;

    need(sp_buf_printf(&out, "{\"%s\":", is_read ? "value" : "error"));
    if (is_read)
        add_value(&out, doc.root);
    else
        need(sp_json_add_str(&out, sp_str_of(e.msg)));
    need(sp_buf_add(&out, "}\n", 2));
    (void)fwrite(out.data, 1, out.len, stdout);
    (void)fflush(stdout);
}

static int list_keys(void)
{
    for (const struct sp_config_section *s = sp_config_sections; s->name != NULL; s++)
        for (const struct sp_config_key *k = s->keys; k->name != NULL; k++)
            (void)printf("%s%s%s\t%s\n", s->name, s->name[0] == 0 ? "" : ".", k->name, k->fallback);
    return 0;
}

static int read_config(const char *path)
{
    char home[] = "HOME=/home/user";
    char *environment[] = {home, NULL};
    const struct sp_config_request ask = {.file = path, .env = environment};
    struct sp_config c = {0};
    struct sp_err e = {0};

    if (sp_config_load(&ask, &c, &e) < 0) {
        (void)fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    for (size_t i = 0; c.warnings != NULL && c.warnings[i] != NULL; i++)
        (void)fprintf(stderr, "%s\n", c.warnings[i]);
    sp_config_done(&c);
    return 0;
}

int main(int argc, char **argv)
{
    char line[32];

    if (argc == 2 && strcmp(argv[1], "--keys") == 0)
        return list_keys();
    if (argc == 3 && strcmp(argv[1], "--config") == 0)
        return read_config(argv[2]);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *end;
        const unsigned long n = strtoul(line, &end, 10);

        if (end == line || *end != '\n' || n > MAX_TEXT)
            return 2;
        auto_free char *text = malloc(n == 0 ? 1 : n);
        need(text != NULL);
        if (fread(text, 1, n, stdin) != n)
            return 2;
        answer((struct sp_str){text, n});
    }
    return 0;
}
