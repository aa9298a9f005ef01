/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport rules`: which rules match a command, whether rule files hold, what they lead to. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "cli/rules_explain.h"
#include "cli/run_place.h"
#include "config/config_approvals.h"
#include "config/policy.h"
#include "engine/shell.h"

static const char help[] =
    "Usage: sallyport rules check -r FILE [-r FILE ...] [OPTIONS] -- COMMAND [ARG ...]\n"
    "       sallyport rules test [-r FILE ...] [OPTIONS]\n"
    "       sallyport rules explain [-r FILE ...] [OPTIONS] -- COMMAND [ARG ...]\n"
    "\n"
    "check prints which rules of these files match a command, as JSON. No shell is read there.\n"
    "test reads these files, or those of the configured folders, tries all examples in them, and\n"
    "prints each file with its number of rules, and every error.\n"
    "explain says what each approval policy makes of a command: its segments, the rules that\n"
    "match, and whether it runs, is asked about, or is refused.\n"
    "\n"
    "  -r, --rules FILE            a file of rules; may be given several times\n"
    "      --pretty                check: lay the JSON out\n"
    "      --resolve-host-executables\n"
    "                              check: an absolute program may stand for its base name\n"
    "      --sandbox MODE          explain: under this policy (default: the configured one, else\n"
    "                              :workspace)\n"
    "      --json                  explain: one JSON object\n"
    "      --config FILE           this configuration file, and no other\n"
    "      --set KEY=TOML          lay a value over the configuration\n"
    "      --help                  show this text\n"
    "\n"
    "Exit status: 0; 1 if a file cannot be read or does not hold; 2 for a wrong command line.\n"
    "Example: sallyport rules explain -- bash -lc 'git status && rm -rf build'\n";

enum verb { CHECK, TEST, EXPLAIN };
static const char *const verbs[] = {"check", "test", "explain"};
/* What getopt's complaints begin with. */
static const char *const titles[] = {"sallyport rules check", "sallyport rules test",
                                     "sallyport rules explain"};

#define MAX_WORDS 64 /* of one flag that may be repeated */

struct options {
    enum verb verb;
    const char *files[MAX_WORDS + 1], *sets[MAX_WORDS + 1]; /* NULL at the end */
    size_t file_count, set_count;
    bool is_pretty, resolves_hosts, is_json;
    const char *sandbox, *config;
    char **command;
};

/* ---- the command line ---- */

enum { OPT_PRETTY = 256, OPT_RESOLVE, OPT_SANDBOX, OPT_JSON, OPT_CONFIG, OPT_SET, OPT_HELP };

static const struct option known[] = {
    {"rules", required_argument, NULL, 'r'},
    {"pretty", no_argument, NULL, OPT_PRETTY},
    {"resolve-host-executables", no_argument, NULL, OPT_RESOLVE},
    {"sandbox", required_argument, NULL, OPT_SANDBOX},
    {"json", no_argument, NULL, OPT_JSON},
    {"config", required_argument, NULL, OPT_CONFIG},
    {"set", required_argument, NULL, OPT_SET},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static bool complain(const char *what)
{
    (void)fprintf(stderr, "sallyport rules: %s (see --help)\n", what);
    return false;
}

static bool add(const char **list, size_t *count, const char *value)
{
    if (*count == MAX_WORDS)
        return complain("more than 64 of one flag");
    list[(*count)++] = value;
    return true;
}

static bool take(struct options *o, int opt)
{
    switch (opt) {
    case 'r':
        return add(o->files, &o->file_count, optarg);
    case OPT_SET:
        return add(o->sets, &o->set_count, optarg);
    case OPT_CONFIG:
        o->config = optarg;
        return true;
    case OPT_PRETTY:
        o->is_pretty = true;
        return o->verb == CHECK || complain("--pretty is for check");
    case OPT_RESOLVE:
        o->resolves_hosts = true;
        return o->verb == CHECK || complain("--resolve-host-executables is for check");
    case OPT_SANDBOX:
        o->sandbox = optarg;
        return o->verb == EXPLAIN || complain("--sandbox is for explain");
    case OPT_JSON:
        o->is_json = true;
        return o->verb == EXPLAIN || complain("--json is for explain");
    default: /* getopt has said what is wrong */
        return false;
    }
}

static bool check_command(const struct options *o)
{
    if (o->verb == TEST)
        return o->command[0] == NULL || complain("test takes no command");
    if (o->command[0] == NULL)
        return complain("a command is missing");
    for (size_t i = 0; o->command[i] != NULL; i++)
        if (!sp_utf8_is_valid(sp_str_of(o->command[i])))
            return complain("the command is not valid UTF-8: no rule can match it");
    return o->verb != CHECK || o->file_count > 0 || complain("check needs --rules FILE");
}

static bool find_verb(const char *word, enum verb *ret)
{
    for (int v = CHECK; v <= EXPLAIN; v++)
        if (strcmp(word, verbs[v]) == 0) {
            *ret = (enum verb)v;
            return true;
        }
    return false;
}

/* 0: go on. SP_EXIT_USAGE: it was said what is wrong. -1: help was asked for and given. argv[0] is
 * the verb's word. */
static int read_options(int argc, char **argv, struct options *o)
{
    int opt;

    argv[0] = (char *)(uintptr_t)titles[o->verb];
    optind = 1;
    while ((opt = getopt_long(argc, argv, "+r:", known, NULL)) != -1) {
        if (opt == OPT_HELP) {
            (void)fputs(help, stdout);
            return -1;
        }
        if (!take(o, opt))
            return SP_EXIT_USAGE;
    }
    o->command = argv + optind;
    return check_command(o) ? 0 : SP_EXIT_USAGE;
}

/* ---- what all need ---- */

static struct sp_words words_of(char **command, struct sp_str **ret_items)
{
    uint32_t n = 0;

    while (command[n] != NULL)
        n++;
    *ret_items = calloc(n + 1U, sizeof **ret_items);
    for (uint32_t i = 0; *ret_items != NULL && i < n; i++)
        (*ret_items)[i] = sp_str_of(command[i]);
    return (struct sp_words){*ret_items, *ret_items == NULL ? 0 : n};
}

static int write_out(const struct sp_buf *out)
{
    struct sp_err e;

    if ((out->len == 0 || fwrite(out->data, 1, out->len, stdout) == out->len) &&
        fflush(stdout) == 0)
        return SP_EXIT_OK;
    (void)sp_fail(&e, SP_E_SYSTEM, errno, "write the answer");
    return sp_cli_complain(&e);
}

static int no_memory(void)
{
    struct sp_err e;

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "read the rules");
    return sp_cli_complain(&e);
}

/* As the peer says it: what was done, and below it why it failed. */
static int complain_of_file(const char *path, const struct sp_err *e)
{
    if (e->code == SP_E_INVALID)
        (void)fprintf(stderr, "Error: failed to parse policy at %s\n\nCaused by:\n    %s\n", path,
                      e->msg);
    else
        (void)fprintf(stderr, "Error: failed to read policy at %s\n\nCaused by:\n    %s\n", path,
                      strerror(e->sys));
    return SP_EXIT_FAILED;
}

/* NULL: it was said why. */
static struct sp_rules *read_files(const struct options *o)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_rules *rules = NULL;
    struct sp_err e = {0};
    bool is_good = m != NULL;

    for (size_t i = 0; is_good && i < o->file_count; i++) {
        is_good = sp_rules_add_file(m, o->files[i], &e) == 0;
        if (!is_good)
            (void)complain_of_file(o->files[i], &e);
    }
    if (is_good)
        rules = sp_rules_make(m);
    if (m == NULL || (is_good && rules == NULL))
        (void)no_memory();
    sp_rules_maker_free(m);
    return rules;
}

/* ---- check ---- */

static int check(const struct options *o)
{
    auto_free struct sp_str *items = NULL;
    auto_buf struct sp_buf out = {0};
    struct sp_rules *rules = read_files(o);

    if (rules == NULL)
        return SP_EXIT_FAILED;
    const struct sp_words command = words_of(o->command, &items);
    const bool is_good =
        items != NULL &&
        sp_rules_add_check(&out, rules, command, o->resolves_hosts, o->is_pretty) &&
        sp_buf_add(&out, "\n", 1);
    sp_rules_unref(rules);
    return is_good ? write_out(&out) : no_memory();
}

/* ---- test ---- */

static void print_line(const char *text)
{
    auto_buf struct sp_buf line = {0};

    if (sp_plain_add(&line, sp_str_of(text)))
        (void)printf("%.*s\n", (int)line.len, line.data);
}

static void tell_fault(void *user, const char *text)
{
    (void)user;
    print_line(text);
}

static void print_file(const char *name, uint32_t count)
{
    auto_buf struct sp_buf line = {0};

    if (sp_plain_add(&line, sp_str_of(name)))
        (void)printf("%.*s: %u rule%s\n", (int)line.len, line.data, count, count == 1 ? "" : "s");
}

/* Each file by itself, and all that is wrong in it. */
static int test_file(struct sp_rules_maker *m, const char *path)
{
    const char *name = "";
    struct sp_err e = {0};
    uint32_t count = 0;

    if (sp_rules_test_file(m, path, tell_fault, NULL, &e) < 0) {
        char text[640];

        if (e.code != SP_E_INVALID)
            print_line(sp_error_text(&e, text, sizeof text));
        return SP_EXIT_FAILED;
    }
    struct sp_rules *rules = sp_rules_make(m);
    if (rules == NULL)
        return no_memory();
    for (uint32_t i = 0; sp_rules_file(rules, i, &name, &count); i++)
        continue; /* up to the last, which it is */
    print_file(name, count);
    sp_rules_unref(rules);
    return SP_EXIT_OK;
}

static int test_files(const struct options *o)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    int status = m == NULL ? no_memory() : SP_EXIT_OK;

    for (size_t i = 0; m != NULL && i < o->file_count; i++)
        if (test_file(m, o->files[i]) != SP_EXIT_OK)
            status = SP_EXIT_FAILED;
    sp_rules_maker_free(m);
    return status;
}

struct configured {
    struct sp_config config;
    struct sp_config_approvals approvals;
    char *cwd;
};

static void configured_done(struct configured *c)
{
    sp_config_approvals_done(&c->approvals);
    sp_config_done(&c->config);
    free(c->cwd);
}
#define auto_configured __attribute__((cleanup(configured_done)))

/* warn: of rules in the configured folders that do not hold; NULL: nobody wants to know. */
static int read_configuration(const struct options *o, struct configured *ret,
                              void (*warn)(void *user, const char *text), struct sp_err *e)
{
    const struct sp_config_ask ask = {.file = o->config, .sets = o->sets, .environment = environ};
    int r = sp_config_load(&ask, &ret->config, e);

    if (r < 0)
        return r;
    ret->cwd = sp_place_dir(NULL, e);
    if (ret->cwd == NULL)
        return -(int)e->code;
    const struct sp_config_approvals_ask want = {.cwd = ret->cwd, .warn = warn};
    return sp_config_approvals(&ret->config, &want, &ret->approvals, e);
}

/* Nothing to test looks like all is well. */
static void tell_of_no_files(const struct configured *c)
{
    (void)fprintf(stderr, "sallyport rules: there are no rules in /etc/sallyport/rules%s%s%s\n",
                  c->config.home != NULL ? " or " : "",
                  c->config.home != NULL ? c->config.home : "",
                  c->config.home != NULL ? "/rules" : "");
}

static int test_folders(const struct options *o)
{
    auto_configured struct configured c = {0};
    struct sp_err e = {0};
    const char *name;
    uint32_t count;

    if (read_configuration(o, &c, tell_fault, &e) < 0)
        return sp_cli_complain(&e);
    const struct sp_rules *rules = c.approvals.options.rules;
    uint32_t files = 0;
    while (sp_rules_file(rules, files, &name, &count)) {
        print_file(name, count);
        files++;
    }
    if (files == 0 && sp_rules_are_complete(rules))
        tell_of_no_files(&c);
    return sp_rules_are_complete(rules) ? SP_EXIT_OK : SP_EXIT_FAILED;
}

static int test(const struct options *o)
{
    const struct sp_buf nothing = {0};
    const int status = o->file_count > 0 ? test_files(o) : test_folders(o);
    const int written = write_out(&nothing);

    return status != SP_EXIT_OK ? status : written;
}

/* ---- explain ---- */

static void warn_aloud(void *user, const char *text)
{
    auto_buf struct sp_buf line = {0};

    (void)user;
    if (sp_plain_add(&line, sp_str_of(text)))
        (void)fprintf(stderr, "sallyport rules: %.*s\n", (int)line.len, line.data);
}

static int find_shell(struct sp_shell *ret, struct sp_err *e)
{
    auto_free char *account = NULL;
    const int r = sp_shell_of_account(&account, e);
    const struct sp_shell_places places = {.account_shell = account, .path = getenv("PATH")};

    return r < 0 ? r : sp_shell_of_user(&places, ret, e);
}

/* As `sallyport exec` would run it: with all of our environment. */
static bool add_environ(struct sp_buf *out)
{
    bool ok = sp_buf_add(out, "", 0);

    for (char **word = environ; ok && *word != NULL; word++)
        ok = sp_buf_add(out, *word, strlen(*word) + 1);
    return ok;
}

static int explain_under(const struct options *o, const struct configured *c,
                         const struct sp_rules *rules, struct sp_buf *out, struct sp_err *e)
{
    auto_free struct sp_str *items = NULL;
    auto_buf struct sp_buf variables = {0};
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_shell shell __attribute__((cleanup(sp_shell_done))) = {0};
    const char *configured = c->config.default_permissions;
    const char *name = o->sandbox != NULL   ? o->sandbox
                       : configured != NULL ? configured
                                            : ":workspace";
    bool is_open = false;
    int r = sp_config_policy(&c->config, name, c->cwd, &policy, &is_open, e);

    if (r == 0)
        r = find_shell(&shell, e);
    if (r == 0 && !add_environ(&variables))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain the command");
    if (r < 0)
        return r;
    const struct sp_explain_ask ask = {.argv = words_of(o->command, &items),
                                       .rules = rules,
                                       .profile = &policy,
                                       .profile_name = name,
                                       .shell = shell.path,
                                       .known_safe = c->approvals.options.known_safe,
                                       .environ = {variables.data, variables.len},
                                       .is_open = is_open,
                                       .is_json = o->is_json};
    if (items == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain the command");
    return sp_rules_explain(&ask, out, e);
}

static int explain(const struct options *o)
{
    auto_configured struct configured c = {0};
    auto_buf struct sp_buf out = {0};
    struct sp_err e = {0};
    struct sp_rules *own = o->file_count > 0 ? read_files(o) : NULL;

    if (o->file_count > 0 && own == NULL)
        return SP_EXIT_FAILED;
    int r = read_configuration(o, &c, own == NULL ? warn_aloud : NULL, &e);
    if (r == 0)
        r = explain_under(o, &c, own != NULL ? own : c.approvals.options.rules, &out, &e);
    sp_rules_unref(own);
    return r < 0 ? sp_cli_complain(&e) : write_out(&out);
}

int sp_cmd_rules(int argc, char **argv)
{
    struct options o = {0};

    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        (void)fputs(help, stdout);
        return SP_EXIT_OK;
    }
    if (argc == 0 || !find_verb(argv[0], &o.verb)) {
        (void)complain(argc == 0 ? "say check, test or explain"
                                 : "there are check, test and explain");
        return SP_EXIT_USAGE;
    }
    const int status = read_options(argc, argv, &o);
    if (status != 0)
        return status < 0 ? SP_EXIT_OK : status;
    if (o.verb == CHECK)
        return check(&o);
    return o.verb == TEST ? test(&o) : explain(&o);
}
