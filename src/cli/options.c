/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables are walked three times: collect_options() flattens them for the parser, find_width()
 * and print_options() lay out the help. getopt_long() does the parsing, so all commands agree about
 * abbreviations, `--name=value`, `--` and the wording of errors.
 */
#include "cli/options.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/str.h"
#include "cli/cli.h"

#define HELP_WIDTH      90 /* columns of --help */
#define HELP_MAX_INDENT 28 /* a longer option has a line of its own, above its text */
#define MAX_OPTIONS     64 /* of one command */

const struct sp_option sp_config_options[] = {
    SP_OPT_STRING(struct sp_config_options, file, "config", "FILE",
                  "read this configuration file and no other (default: those of the usual places)"),
    SP_OPT_LIST(struct sp_config_options, sets, "set", "KEY=TOML",
                "override one key of the configuration (repeatable)"),
    SP_OPT_END,
};

static const struct sp_option help_option = {
    .kind = SP_OPTION_FLAG, .name = "help", .help = "show this text"};

/* An option of a command's tables, and where its value is. */
struct found {
    const struct sp_option *option;
    char *value;
};

/* All options of a table and of those that it includes, in order. Returns their number. */
static size_t collect_options(const struct sp_option *table, void *values, struct found *ret,
                              size_t count)
{
    for (const struct sp_option *o = table; o->kind != SP_OPTION_END; o++) {
        char *value = (char *)values + o->offset;

        if (o->kind == SP_OPTION_TABLE) {
            count = collect_options(o->table, value, ret, count);
        } else if (o->kind != SP_OPTION_HEADING) {
            assert(count < MAX_OPTIONS);
            ret[count++] = (struct found){o, value};
        }
    }
    return count;
}

static int report_no_memory(const struct sp_cli_command *c)
{
    (void)fprintf(stderr, "sallyport %s: out of memory\n", c->name);
    return c->usage_status != 0 ? c->usage_status : SP_EXIT_FAILED;
}

int sp_command_misused(const struct sp_cli_command *c, const char *text)
{
    (void)fprintf(stderr, "sallyport %s: %s (see --help)\n", c->name, text);
    return c->usage_status != 0 ? c->usage_status : SP_EXIT_USAGE;
}

/* ---- values ---- */

/* false: the argument is bad, and that has been reported. */
static bool store(const struct sp_cli_command *c, const struct found *f, const char *arg)
{
    const struct sp_option *o = f->option;
    void *value = f->value;
    char wanted[200] = "";

    switch (o->kind) {
    case SP_OPTION_FLAG:
        *(bool *)value = true;
        return true;
    case SP_OPTION_STRING:
        *(const char **)value = arg;
        return true;
    case SP_OPTION_LIST: {
        struct sp_option_list *list = value;

        if (o->max != 0 && list->count == o->max) {
            (void)fprintf(stderr, "sallyport %s: --%s: at most %llu times\n", c->name, o->name,
                          (unsigned long long)o->max);
            return false;
        }
        /* There is always room for the NULL behind the last item. */
        const char **items = realloc(list->items, (list->count + 2) * sizeof *items);
        if (items == NULL) {
            (void)report_no_memory(c);
            return false;
        }
        items[list->count++] = arg;
        items[list->count] = NULL;
        list->items = items;
        return true;
    }
    case SP_OPTION_NUMBER: {
        uint64_t number;

        if (sp_str_to_u64(sp_str_of(arg), o->max, &number) && number >= o->min) {
            *(uint64_t *)value = number;
            return true;
        }
        (void)snprintf(wanted, sizeof wanted, "a number from %llu to %llu",
                       (unsigned long long)o->min, (unsigned long long)o->max);
        break;
    }
    case SP_OPTION_CHOICE: {
        size_t n = 0;

        for (size_t i = 0; o->choices[i] != NULL; i++) {
            const char *between = i == 0 ? "" : o->choices[i + 1] == NULL ? " or " : ", ";

            if (strcmp(arg, o->choices[i]) == 0) {
                *(const char **)value = arg;
                return true;
            }
            n += (size_t)snprintf(wanted + n, sizeof wanted - n, "%s%s", between, o->choices[i]);
            assert(n < sizeof wanted);
        }
        break;
    }
    case SP_OPTION_READ: {
        const char *is_not = o->read(arg, value);

        if (is_not == NULL)
            return true;
        (void)snprintf(wanted, sizeof wanted, "%s", is_not);
        break;
    }
    case SP_OPTION_END:
    case SP_OPTION_HEADING:
    case SP_OPTION_TABLE:
        return false;
    }
    (void)fprintf(stderr, "sallyport %s: --%s: `%s` is not %s (see --help)\n", c->name, o->name,
                  arg, wanted);
    return false;
}

/* ---- parsing ---- */

/* getopt_long parses: it accepts unambiguous beginnings of long options, and reports unknown
 * options itself, with args[0] in front. Long options are known to it by their index in `found` +
 * 256. */
static int parse_and_run(const struct sp_cli_command *c, const struct found *found, size_t count,
                         int argc, char **args, void *values,
                         int (*run)(void *values, char **operands))
{
    struct option longs[MAX_OPTIONS + 2] = {0};
    char shorts[2 * MAX_OPTIONS + 2] = "";
    char text[160];
    size_t n = 0;
    int opt;

    if (c->runs_program)
        shorts[n++] = '+';
    for (size_t i = 0; i < count; i++) {
        const struct sp_option *o = found[i].option;
        const int has_argument = o->argument == NULL ? no_argument
                                 : o->bare != NULL   ? optional_argument
                                                     : required_argument;

        assert(o->bare == NULL || o->short_name == 0);
        longs[i] = (struct option){o->name, has_argument, NULL, 256 + (int)i};
        if (o->short_name != 0) {
            shorts[n++] = o->short_name;
            if (o->argument != NULL)
                shorts[n++] = ':';
        }
    }
    longs[count] = (struct option){help_option.name, no_argument, NULL, 256 + (int)count};
    optind = 1;
    while ((opt = getopt_long(argc, args, shorts, longs, NULL)) != -1) {
        size_t i = opt >= 256 ? (size_t)(opt - 256) : 0;

        if (opt >= 256 && i == count) {
            sp_command_print_help(c);
            return SP_EXIT_OK;
        }
        while (opt != '?' && opt < 256 && i < count && found[i].option->short_name != (char)opt)
            i++;
        assert(i < count || opt == '?'); /* getopt_long knows no others */
        const char *arg = optarg;
        if (opt != '?' && arg == NULL && found[i].option->bare != NULL)
            arg = optind < argc && args[optind][0] != '-' ? args[optind++] : found[i].option->bare;
        if (opt == '?' || !store(c, &found[i], arg))
            return c->usage_status != 0 ? c->usage_status : SP_EXIT_USAGE;
    }
    char **operands = args + optind;
    const unsigned operand_count = (unsigned)(argc - optind);
    if (operand_count == 0 && c->missing != NULL)
        return sp_command_misused(c, c->missing);
    if (operand_count > c->max_operands) {
        (void)snprintf(text, sizeof text, "unexpected argument `%.100s`",
                       operands[c->max_operands]);
        return sp_command_misused(c, text);
    }
    return run(values, operands);
}

int sp_command_run(const struct sp_cli_command *c, int argc, char **argv, void *values,
                   int (*run)(void *values, char **operands))
{
    struct found found[MAX_OPTIONS];
    const size_t count = collect_options(c->options, values, found, 0);
    auto_free char **args = calloc((size_t)argc + 2, sizeof *args);
    char name[64];

    if (args == NULL)
        return report_no_memory(c);
    (void)snprintf(name, sizeof name, "sallyport %s", c->name);
    args[0] = name;
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    const int status = parse_and_run(c, found, count, argc + 1, args, values, run);
    for (size_t i = 0; i < count; i++)
        if (found[i].option->kind == SP_OPTION_LIST) {
            struct sp_option_list *list = (void *)found[i].value;

            free(list->items);
            list->items = NULL; /* an old spelling has the same list */
        }
    return status;
}

/* ---- help ---- */

/* "-v, --verbose", "--cwd DIR". Returns its length. */
static size_t spell(const struct sp_option *o, char *ret, size_t size)
{
    size_t n = 0;

    if (o->short_name != 0)
        n = (size_t)snprintf(ret, size, "-%c, ", o->short_name);
    n += (size_t)snprintf(ret + n, size - n, "--%s", o->name);
    if (o->argument != NULL)
        n += (size_t)snprintf(ret + n, size - n, o->bare != NULL ? " [%s]" : " %s", o->argument);
    assert(n < size);
    return n;
}

/* The widest option that has its text beside it. */
static size_t find_width(const struct sp_option *table, size_t width)
{
    char text[80];

    for (const struct sp_option *o = table; o->kind != SP_OPTION_END; o++) {
        const size_t n = o->kind == SP_OPTION_HEADING || o->kind == SP_OPTION_TABLE || o->is_hidden
                             ? 0
                             : spell(o, text, sizeof text);

        if (o->kind == SP_OPTION_TABLE)
            width = find_width(o->table, width);
        else if (n > width && n <= HELP_MAX_INDENT - 4)
            width = n;
    }
    return width;
}

/* Words up to HELP_WIDTH. The first line begins at column `at`, the others at `indent`. */
static void print_wrapped(const char *text, size_t at, size_t indent)
{
    while (*text != 0) {
        const size_t n = strcspn(text, " ");

        if (at > indent && at + 1 + n > HELP_WIDTH) {
            (void)printf("\n%*s", (int)indent, "");
            at = indent;
        }
        (void)printf("%s%.*s", at > indent ? " " : "", (int)n, text);
        at += n + (at > indent);
        text += n + (text[n] == ' ');
    }
    (void)putchar('\n');
}

/* An option that is wider than the column gets a line of its own. */
static void print_option(const struct sp_option *o, size_t indent)
{
    char text[80];
    const size_t n = spell(o, text, sizeof text);

    if (n + 4 <= indent)
        (void)printf("  %-*s", (int)indent - 2, text);
    else
        (void)printf("  %s\n%*s", text, (int)indent, "");
    print_wrapped(o->help, indent, indent);
}

/* Headings are set off by an empty line, but for the first line of the help. */
static void print_options(const struct sp_cli_command *c, const struct sp_option *table,
                          size_t indent)
{
    for (const struct sp_option *o = table; o->kind != SP_OPTION_END; o++) {
        if (o->kind == SP_OPTION_TABLE) {
            print_options(c, o->table, indent);
        } else if (o->kind == SP_OPTION_HEADING) {
            if (o != c->options)
                (void)putchar('\n');
            print_wrapped(o->help, 0, 0);
        } else if (!o->is_hidden) {
            print_option(o, indent);
        }
    }
}

void sp_command_print_help(const struct sp_cli_command *c)
{
    const size_t indent = find_width(c->options, strlen("--help")) + 4;

    (void)printf("Usage: %s\n", c->usage);
    print_options(c, c->options, indent);
    print_option(&help_option, indent);
    (void)printf("\n%s", c->notes);
}
