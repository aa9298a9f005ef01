/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables are walked three times: collect_options() flattens them for the parser, find_width()
 * and print_options() lay out the help. getopt_long() does the parsing, so all commands agree about
 * `--name=value`, `--` and the wording of errors.
 */
#include "cli/options.h"

#include <assert.h>
#include <ctype.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/escape_text.h"

#define HELP_WIDTH      80 /* columns of --help */
#define HELP_MAX_INDENT 28 /* a longer option has a line of its own, above its text */
#define MAX_OPTIONS     64 /* of one command */

const struct sp_option sp_config_options[] = {
    SP_OPT_STRING(struct sp_config_options, file, "config", "FILE",
                  "read this configuration file and no other (default: those of the usual places)"),
    SP_OPT_LIST(struct sp_config_options, sets, "set", "KEY=TOML",
                "override one key of the configuration (repeatable)"),
    SP_OPT_END,
};

const struct sp_option sp_limit_options[] = {
    {.kind = SP_OPTION_READ,
     .name = "limit",
     .argument = "[LEVEL:]NAME=VALUE",
     .read = sp_limits_read,
     .help = "limit what a command may consume (repeatable): memory=512M, pids=512, cpus=1.5, "
             "cpu=60s, wall=10m, output=64M, files=N, fsize=1G; LEVEL is command (the default), "
             "session or server, the last two for memory, pids and cpus"},
    SP_OPT_END,
};

static const struct sp_option help_option = {
    .kind = SP_OPTION_FLAG, .short_name = 'h', .name = "help", .help = "show this text"};

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

static int wrong_usage(const struct sp_cli_command *c)
{
    return c->usage_status != 0 ? c->usage_status : SP_EXIT_USAGE;
}

static int report_no_memory(const struct sp_cli_command *c)
{
    (void)fputs("sallyport: out of memory\n", stderr);
    return c->usage_status != 0 ? c->usage_status : SP_EXIT_FAILED;
}

int sp_command_misused(const struct sp_cli_command *c, const char *text)
{
    auto_buf struct sp_buf line = {0};

    if (sp_buf_printf(&line, "%s (see sallyport %s --help)", text, c->name) &&
        sp_buf_add(&line, "", 1))
        sp_plain_say("sallyport", line.data);
    return wrong_usage(c);
}

/* The same, and the word that was probably meant, if any. */
SP_PRINTF(3, 4)
static int report_misuse(const struct sp_cli_command *c, const char *meant, const char *fmt, ...)
{
    char text[600];
    va_list args;

    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (meant != NULL && n >= 0 && (size_t)n < sizeof text)
        (void)snprintf(text + n, sizeof text - (size_t)n, "; did you mean `%s`?", meant);
    return sp_command_misused(c, text);
}

/* ---- values ---- */

/* 30 and 0.5 are seconds; 90s, 5m, 1h30m. false: not a time. */
static bool read_time(const char *text, uint64_t *ret)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
    const char *at = text;
    double sum = 0;

    do {
        const size_t digits = strspn(at, "0123456789.");
        char *end;
        const double number = strtod(at, &end);
        size_t i = 0;

        if (digits == 0 || end != at + digits) /* strtod also reads inf, 0x1p3 and 1e5 */
            return false;
        const size_t n = strcspn(end, "0123456789.");
        while (i < 5 && (strlen(units[i].name) != n || memcmp(units[i].name, end, n) != 0))
            i++;
        if (i == 5 && (n != 0 || at != text))
            return false;
        sum += number * (i == 5 ? 1e3 : units[i].ms);
        at = end + n;
    } while (*at != 0);
    if (!(sum < 1e15))
        return false;
    *ret = sum > 0 && sum < 1 ? 1 : (uint64_t)sum;
    return true;
}

/* "2h", "1500ms" */
static void write_time(uint64_t ms, char *ret, size_t size)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
    size_t i = 0;

    while (ms % units[i].ms != 0)
        i++;
    (void)snprintf(ret, size, "%llu%s", (unsigned long long)(ms / units[i].ms), units[i].name);
}

/* false: the argument is bad, and that has been reported. */
static bool store(const struct sp_cli_command *c, const struct found *f, const char *arg)
{
    const struct sp_option *o = f->option;
    void *value = f->value;
    char wanted[200] = "";

    if (o->kind == SP_OPTION_FLAG) {
        *(bool *)value = true;
        return true;
    }
    assert(arg != NULL); /* report_option refuses an option that lacks one */
    struct sp_nearest near = sp_nearest_to(sp_str_of(arg));
    switch (o->kind) {
    case SP_OPTION_STRING:
        *(const char **)value = arg;
        return true;
    case SP_OPTION_LIST: {
        struct sp_option_list *list = value;

        if (o->max != 0 && list->count == o->max) {
            (void)report_misuse(c, NULL, "--%s: at most %llu times", o->name,
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
    case SP_OPTION_TIME: {
        char least[32], most[32];
        uint64_t ms;

        if (read_time(arg, &ms) && ms >= o->min && ms <= o->max) {
            *(uint64_t *)value = ms;
            return true;
        }
        write_time(o->min, least, sizeof least);
        write_time(o->max, most, sizeof most);
        (void)snprintf(wanted, sizeof wanted,
                       "a time such as 30 (seconds), 5m or 1h, from %s to %s", least, most);
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
            sp_nearest_offer(&near, o->choices[i]);
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
    case SP_OPTION_FLAG:
        return false;
    }
    (void)report_misuse(c, near.best, "--%s: `%.100s` is not %s", o->name, arg, wanted);
    return false;
}

/* ---- parsing ---- */

/* getopt_long has returned '?' or ':' for `word`: an option that does not exist, several that begin
 * so, a missing argument, or one too many. `at` indexes `found` for the last two, else it is
 * SIZE_MAX. Returns the exit status. */
static int report_option(const struct sp_cli_command *c, const struct found *found, size_t count,
                         const char *word, bool lacks_argument, size_t at)
{
    const bool is_long = strncmp(word, "--", 2) == 0;
    const struct sp_str name = {word + 2, is_long ? strcspn(word + 2, "=") : 0};
    struct sp_nearest near = sp_nearest_to(name);
    char others[300] = "";
    size_t n = 0;

    for (size_t i = 0; lacks_argument && at == SIZE_MAX && i < count; i++)
        if (found[i].option->short_name == optopt)
            at = i;
    if (lacks_argument)
        return report_misuse(c, NULL, "option `%.100s` needs an argument: %s", word,
                             at < count ? found[at].option->argument : "");
    if (at != SIZE_MAX)
        return report_misuse(c, NULL, "option `--%.*s` takes no argument", (int)name.n, name.p);
    if (!is_long)
        return report_misuse(c, NULL, "unknown option `-%c`", optopt);
    for (size_t i = 0; i < count; i++) {
        const char *other = found[i].option->name;

        if (found[i].option->is_hidden)
            continue;
        sp_nearest_offer(&near, other);
        if (strncmp(other, name.p, name.n) == 0 && n < sizeof others)
            n += (size_t)snprintf(others + n, sizeof others - n, "%s--%s", n == 0 ? "" : ", ",
                                  other);
    }
    if (n != 0)
        return report_misuse(c, NULL, "option `--%.*s` may be %s", (int)name.n, name.p, others);
    char meant[80] = "";
    if (near.best != NULL)
        (void)snprintf(meant, sizeof meant, "--%s", near.best);
    return report_misuse(c, near.best != NULL ? meant : NULL, "unknown option `--%.*s`",
                         (int)(name.n < 100 ? name.n : 100), name.p);
}

/* Reports a long option that was shortened, which getopt_long accepts: --deny would mean
 * --deny-host, and --token would take a token for the name of a file. args[optind] is the next
 * word. 0: it was written in full. */
static int refuse_shortened(const struct sp_cli_command *c, const struct sp_option *o,
                            char *const *args)
{
    const char *word = args[optind - (optarg != NULL && optarg == args[optind - 1] ? 2 : 1)];
    const size_t n = strcspn(word, "=");
    char meant[80];

    if (n >= strlen(o->name) + 2)
        return 0;
    (void)snprintf(meant, sizeof meant, "--%s", o->name);
    return report_misuse(c, meant, "unknown option `%.*s`", (int)n, word);
}

/* getopt_long parses, and "-tn5". Long options are known to it by their index in `found` + 256. */
static int parse_and_run(const struct sp_cli_command *c, const struct found *found, size_t count,
                         int argc, char **args, void *values,
                         int (*run)(void *values, char **operands))
{
    struct option longs[MAX_OPTIONS + 2] = {0};
    char shorts[2 * MAX_OPTIONS + 4] = "";
    size_t n = 0;
    int opt;

    if (c->runs_program)
        shorts[n++] = '+';
    shorts[n++] = ':'; /* report missing arguments as such */
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
    longs[count] = (struct option){help_option.name, no_argument, NULL, help_option.short_name};
    shorts[n++] = help_option.short_name;
    optind = 1;
    opterr = 0;
    while ((opt = getopt_long(argc, args, shorts, longs, NULL)) != -1) {
        const bool is_wrong = opt == '?' || opt == ':';
        const int which = is_wrong ? optopt : opt;
        size_t i = which >= 256 ? (size_t)(which - 256) : 0;

        if (opt == help_option.short_name)
            return sp_command_print_help(c);
        while (which < 256 && i < count && (which == 0 || found[i].option->short_name != which))
            i++;
        if (is_wrong)
            return report_option(c, found, count, args[optind - 1], opt == ':',
                                 which >= 256 || which == help_option.short_name ? i : SIZE_MAX);
        assert(i < count); /* getopt_long knows no others */
        const int refused = opt < 256 ? 0 : refuse_shortened(c, found[i].option, args);
        if (refused != 0)
            return refused;
        const char *arg = optarg;
        if (arg == NULL && found[i].option->bare != NULL)
            arg = optind < argc && args[optind][0] != '-' ? args[optind++] : found[i].option->bare;
        if (!store(c, &found[i], arg))
            return wrong_usage(c);
    }
    char **operands = args + optind;
    const unsigned operand_count = (unsigned)(argc - optind);
    if (operand_count == 0 && c->missing != NULL)
        return sp_command_misused(c, c->missing);
    if (operand_count > c->max_operands)
        return report_misuse(c, NULL, "unexpected argument `%.100s`", operands[c->max_operands]);
    return run(values, operands);
}

/* -9, -TERM */
static bool is_signal(const char *word)
{
    return word[0] == '-' && (isdigit((unsigned char)word[1]) ||
                              (isupper((unsigned char)word[1]) && isupper((unsigned char)word[2])));
}

int sp_command_run(const struct sp_cli_command *c, int argc, char **argv, void *values,
                   int (*run)(void *values, char **operands))
{
    struct found found[MAX_OPTIONS];
    const size_t count = collect_options(c->options, values, found, 0);
    auto_free char **args = calloc((size_t)argc + 2, sizeof *args);
    auto_free char *signal = NULL;
    char name[] = "sallyport";

    if (args == NULL)
        return report_no_memory(c);
    args[0] = name;
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    if (c->signal_option != NULL && argc > 0 && is_signal(argv[0])) {
        if (asprintf(&signal, "--%s=%s", c->signal_option, argv[0] + 1) < 0)
            return report_no_memory(c);
        args[1] = signal;
    }
    const int status = parse_and_run(c, found, count, argc + 1, args, values, run);
    for (size_t i = 0; i < count; i++)
        if (found[i].option->kind == SP_OPTION_LIST) {
            struct sp_option_list *list = (void *)found[i].value;

            free(list->items);
            list->items = NULL; /* an old spelling has the same list */
        }
    return status;
}

/* ---- subcommands ---- */

/* What is typed behind the name of the command. */
static const char *last_word(const struct sp_cli_command *c)
{
    const char *space = strrchr(c->name, ' ');

    return space == NULL ? c->name : space + 1;
}

static int run_subcommand(const struct sp_cli_command *c, int argc, char **argv)
{
    const char *word = argc > 0 ? argv[0] : "";
    struct sp_nearest near = sp_nearest_to(sp_str_of(word));
    char names[200] = "";
    size_t n = 0;

    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return sp_command_print_help(c);
    for (const struct sp_cli_command *const *s = c->subcommands; *s != NULL; s++) {
        const char *between = n == 0 ? "" : s[1] == NULL ? " or " : ", ";

        if (strcmp(word, last_word(*s)) == 0)
            return sp_command_main(*s, argc - 1, argv + 1);
        sp_nearest_offer(&near, last_word(*s));
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", between, last_word(*s));
        assert(n < sizeof names);
    }
    if (argc == 0)
        return report_misuse(c, NULL, "which subcommand: %s?", names);
    return report_misuse(c, near.best, "no subcommand of %s is called `%.100s`: there is %s",
                         c->name, word, names);
}

int sp_command_main(const struct sp_cli_command *c, int argc, char **argv)
{
    if (c->subcommands != NULL)
        return run_subcommand(c, argc, argv);
    if (c->main != NULL)
        return c->main(argc, argv);
    auto_free void *values = calloc(1, c->values_size == 0 ? 1 : c->values_size);
    if (values == NULL)
        return report_no_memory(c);
    if (c->defaults != NULL)
        memcpy(values, c->defaults, c->values_size);
    return sp_command_run(c, argc, argv, values, c->run);
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

void sp_help_print_wrapped(FILE *to, const char *text, size_t at, size_t indent)
{
    while (*text != 0 && *text != '\n') {
        const size_t n = strcspn(text, " \n");

        if (at > indent && at + 1 + n > HELP_WIDTH) {
            (void)fprintf(to, "\n%*s", (int)indent, "");
            at = indent;
        }
        (void)fprintf(to, "%s%.*s", at > indent ? " " : "", (int)n, text);
        at += n + (at > indent);
        text += n + (text[n] == ' ');
    }
    (void)fputc('\n', to);
}

/* Lines that are already laid out, such as a synopsis, stay as they are. */
static void print_paragraphs(const char *text)
{
    for (; *text != 0; text += strcspn(text, "\n"), text += *text == '\n')
        if (strcspn(text, "\n") <= HELP_WIDTH)
            (void)printf("%.*s\n", (int)strcspn(text, "\n"), text);
        else
            sp_help_print_wrapped(stdout, text, 0, 0);
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
    sp_help_print_wrapped(stdout, o->help, indent, indent);
}

/* Headings are set off by an empty line. is_below: something was printed above, in this list. */
static void print_options(const struct sp_option *table, size_t indent, bool *is_below)
{
    for (const struct sp_option *o = table; o->kind != SP_OPTION_END; o++) {
        if (o->kind == SP_OPTION_TABLE) {
            print_options(o->table, indent, is_below);
        } else if (o->kind == SP_OPTION_HEADING) {
            if (*is_below)
                (void)putchar('\n');
            *is_below = true;
            sp_help_print_wrapped(stdout, o->help, 0, 0);
        } else if (!o->is_hidden) {
            print_option(o, indent);
            *is_below = true;
        }
    }
}

int sp_command_print_help(const struct sp_cli_command *c)
{
    static const struct sp_option none[] = {SP_OPT_END};
    const struct sp_option *table = c->options != NULL ? c->options : none;
    const size_t indent = find_width(table, strlen("-h, --help")) + 4;
    struct sp_err e = {0};
    bool is_below = false;

    (void)fputs("Usage: ", stdout);
    print_paragraphs(c->usage);
    (void)putchar('\n');
    for (const struct sp_cli_command *const *s = c->subcommands; s != NULL && *s != NULL; s++) {
        (void)printf("  %-*s", (int)indent - 2, last_word(*s));
        sp_help_print_wrapped(stdout, (*s)->summary, indent, indent);
    }
    if (c->subcommands != NULL)
        (void)printf("\n`sallyport %s SUBCOMMAND --help` tells more.\n\n", c->name);
    print_options(table, indent, &is_below);
    print_option(&help_option, indent);
    if (c->notes != NULL) {
        (void)putchar('\n');
        print_paragraphs(c->notes);
    }
    return sp_cli_print(SP_STR(""), &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}
