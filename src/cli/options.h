/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options: one table of options for each command; parsing and --help come from it.
 *
 * A table says how an option is spelled, what its argument is called, where the value goes and what
 * the help says. The values are members of one struct of the command's, so that the tables are
 * constant data:
 *
 *   struct values { const char *cwd; bool is_json; };
 *
 *   static const struct sp_option table[] = {
 *       SP_OPT_STRING(struct values, cwd, "cwd", "DIR", "run it there"),
 *       SP_OPT_FLAG(struct values, is_json, "json", "print one JSON object"),
 *       SP_OPT_END,
 *   };
 *
 * -h, --help is an option of every command and is in no table. The man page of a command lists the
 * same options with the same argument names: tests/functional/test_docs.py compares them. The name
 * of an argument also says what completion offers for it: see `values` in verbs.c.
 */
#ifndef SP_CLI_OPTIONS_H
#define SP_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum sp_option_kind {
    SP_OPTION_END,     /* behind the last option */
    SP_OPTION_HEADING, /* not an option: `help` is a paragraph above the options that follow */
    SP_OPTION_TABLE,   /* not an option: `table` belongs here, its values begin at `offset` */
    SP_OPTION_FLAG,    /* bool: set to true */
    SP_OPTION_STRING,  /* const char *: the argument; the last one given counts */
    SP_OPTION_LIST,    /* struct sp_option_list: repeatable, up to `max` times unless that is 0 */
    SP_OPTION_NUMBER,  /* uint64_t: decimal, `min` to `max` */
    SP_OPTION_TIME,    /* uint64_t, milliseconds, `min` to `max`: 30 and 0.5 (seconds), 5m, 1h30m */
    SP_OPTION_CHOICE,  /* const char *: one of `choices`, or `bare` */
    SP_OPTION_READ,    /* `read` stores the value */
};

/* The arguments of an option that may be repeated. They point into argv. */
struct sp_option_list {
    const char **items; /* NULL at the end; NULL: not given */
    size_t count;
};

struct sp_option {
    enum sp_option_kind kind;
    char short_name;      /* 0: none */
    bool is_hidden;       /* an old spelling: in no help */
    const char *name;     /* without the two dashes */
    const char *argument; /* its name in the help; NULL: the option takes none */
    /* The value if no argument follows, because another option, `--` or nothing does; NULL: the
     * argument is needed. */
    const char *bare;
    size_t offset;    /* of the value */
    const char *help; /* one paragraph without line ends */
    uint64_t min, max;
    const char *const *choices; /* NULL at the end */
    const struct sp_option *table;
    /* Returns NULL, or what the argument has to be ("a number of lines"). */
    const char *(*read)(const char *argument, void *value);
};

/* The entries of a table. `member` of the struct `type` gets the value, and has to be of the type
 * that the kind stores. Further members may follow: `.short_name = 'f'`, `.is_hidden = true`. */
/* Parts of initialisers: NOLINTBEGIN(bugprone-macro-parentheses) */
#define SP_OPT(kind_, ...)                     \
    {                                          \
        .kind = SP_OPTION_##kind_, __VA_ARGS__ \
    }
#define SP_OPT_AT(type, member, as) \
    .offset = offsetof(type, member) + 0 * sizeof((as *)0 == &((type *)0)->member)
#define SP_OPT_WORDS(name_, argument_, help_) \
    .name = (name_), .argument = (argument_), .help = (help_)

#define SP_OPT_END           SP_OPT(END, .name = NULL)
#define SP_OPT_HEADING(text) SP_OPT(HEADING, .help = (text))
#define SP_OPT_TABLE(type, member, table_) \
    SP_OPT(TABLE, .table = (table_), .offset = offsetof(type, member))
#define SP_OPT_FLAG(type, member, name, help, ...) \
    SP_OPT(FLAG, SP_OPT_WORDS(name, NULL, help), SP_OPT_AT(type, member, bool), __VA_ARGS__)
#define SP_OPT_STRING(type, member, name, argument, help, ...)                                \
    SP_OPT(STRING, SP_OPT_WORDS(name, argument, help), SP_OPT_AT(type, member, const char *), \
           __VA_ARGS__)
#define SP_OPT_LIST(type, member, name, argument, help, ...) \
    SP_OPT(LIST, SP_OPT_WORDS(name, argument, help),         \
           SP_OPT_AT(type, member, struct sp_option_list), __VA_ARGS__)
#define SP_OPT_NUMBER(type, member, name, argument, min_, max_, help, ...)                \
    SP_OPT(NUMBER, SP_OPT_WORDS(name, argument, help), SP_OPT_AT(type, member, uint64_t), \
           .min = (min_), .max = (max_), __VA_ARGS__)
#define SP_OPT_TIME(type, member, name, argument, min_, max_, help, ...)                \
    SP_OPT(TIME, SP_OPT_WORDS(name, argument, help), SP_OPT_AT(type, member, uint64_t), \
           .min = (min_), .max = (max_), __VA_ARGS__)
#define SP_OPT_CHOICE(type, member, name, argument, choices_, help, ...)                      \
    SP_OPT(CHOICE, SP_OPT_WORDS(name, argument, help), SP_OPT_AT(type, member, const char *), \
           .choices = (choices_), __VA_ARGS__)
#define SP_OPT_READ(type, member, name, argument, read_, help, ...)                    \
    SP_OPT(READ, SP_OPT_WORDS(name, argument, help), .offset = offsetof(type, member), \
           .read = (read_), __VA_ARGS__)
/* NOLINTEND(bugprone-macro-parentheses) */

struct sp_cli_command {
    /* As it is typed behind `sallyport`; of a subcommand with its command: "rules check". */
    const char *name;
    const char *summary; /* for `sallyport help`; NULL: internal, not listed */
    const char *usage;   /* --help, above the options: synopsis and description */
    const char *notes;   /* --help, below the options: exit status and an example; NULL: none */
    const struct sp_option *options;
    /* NULL at the end. The command then has no options and no code of its own. */
    const struct sp_cli_command *const *subcommands;
    const char *operand; /* what its operands are, for completion: PROC, FILE; NULL: any text */
    bool runs_program;   /* options end at the first operand, which is a program to run */
    unsigned max_operands;
    const char *missing;       /* said if there is no operand; NULL: none is needed */
    const char *signal_option; /* `kill`: the option that -9 and -TERM are short for */
    int usage_status;          /* exit status of a wrong command line; 0: SP_EXIT_USAGE */
    size_t values_size;        /* of the struct that the tables fill */
    const void *defaults;      /* its first contents; NULL: zeros */
    int (*run)(void *values, char **operands); /* returns the exit status */
    /* Instead of `run`: gets all arguments. */
    int (*main)(int argc, char **argv);
};

/* Runs a command with the arguments behind its name. Returns the exit status. */
int sp_command_main(const struct sp_cli_command *c, int argc, char **argv);

/* Parses, and calls `run` with the values and the operands (NULL at the end). Returns the exit
 * status: that of `run`, 0 after --help, or that of a wrong command line, which has been reported.
 * *values holds the defaults; the lists in it are freed at the end. */
int sp_command_run(const struct sp_cli_command *c, int argc, char **argv, void *values,
                   int (*run)(void *values, char **operands));

/* "sallyport: text (see sallyport NAME --help)" on stderr. Returns the exit status of a wrong
 * command line. */
int sp_command_misused(const struct sp_cli_command *c, const char *text);

/* The help on stdout. Returns the exit status. In `usage` and `notes` a line end ends a paragraph;
 * longer lines are wrapped. */
int sp_command_print_help(const struct sp_cli_command *c);

/* Words up to 80 columns, then a line end. The first line begins at column `at`, the others at
 * `indent`. */
void sp_help_print_wrapped(FILE *to, const char *text, size_t at, size_t indent);

/* --limit, of several commands; fills a struct sp_limit_levels. */
extern const struct sp_option sp_limit_options[];

/* --config and --set, of several commands. */
struct sp_config_options {
    const char *file;
    struct sp_option_list sets;
};
extern const struct sp_option sp_config_options[];

#endif
