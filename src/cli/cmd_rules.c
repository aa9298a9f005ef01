/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport rules`: which rules match a command, whether rule files are valid, what they lead to.
 * `list`, `add` and `remove` are in rules_manage.c.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "approve/judge.h"
#include "approve/program.h"
#include "base/auto.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "cli/rules_manage.h"
#include "cli/run_place.h"
#include "config/config_approvals.h"
#include "config/policy.h"
#include "engine/shell.h"

struct rules_options {
    struct sp_option_list files;
    bool is_pretty, resolves_hosts, is_json;
    const char *sandbox;
    struct sp_config_options config;
};

/* ---- common ---- */

static int report_no_memory(void)
{
    struct sp_err e;

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "read the rules");
    return sp_cli_complain(&e);
}

/* NULL: the error has been reported. */
static struct sp_rules *read_files(const struct rules_options *o)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_rules *rules = NULL;
    struct sp_err e = {0};
    bool is_good = m != NULL;

    for (size_t i = 0; is_good && i < o->files.count; i++) {
        is_good = sp_rules_add_file(m, o->files.items[i], NULL, NULL, &e) == 0;
        if (!is_good) /* the layout of `codex execpolicy check`, which scripts read */
            (void)fprintf(stderr, "Error: failed to %s policy at %s\n\nCaused by:\n    %s\n",
                          e.code == SP_E_INVALID ? "parse" : "read", o->files.items[i],
                          e.code == SP_E_INVALID ? e.msg : strerror(e.sys));
    }
    if (is_good)
        rules = sp_rules_make(m);
    if (m == NULL || (is_good && rules == NULL))
        (void)report_no_memory();
    sp_rules_maker_free(m);
    return rules;
}

/* ---- check ---- */

static int check_command(const struct rules_options *o, char **command)
{
    auto_buf struct sp_buf out = {0};
    struct sp_rules *rules = read_files(o);
    struct sp_err e = {0};
    uint32_t count;

    if (rules == NULL)
        return SP_EXIT_FAILED;
    auto_free struct sp_str *items = sp_cli_words(command, &count);
    struct sp_rule_matches found = {0};
    const bool ok =
        items != NULL &&
        sp_rules_match(rules, (struct sp_words){items, count}, o->resolves_hosts, &found) &&
        sp_rule_matches_add_json(&out, &found,
                                 o->is_pretty ? SP_MATCHES_CHECK_PRETTY : SP_MATCHES_CHECK) &&
        sp_buf_add(&out, "\n", 1);
    sp_rule_matches_done(&found);
    sp_rules_unref(rules);
    if (!ok)
        return report_no_memory();
    return sp_cli_print(sp_buf_str(&out), &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

/* ---- test ---- */

/* What `rules test` says: lines as it goes, or one object at the end. */
struct test_report {
    bool is_json, has_failed; /* out of memory */
    struct sp_buf files, errors;
};

/* One error in a file of rules. */
static void print_fault(void *user, const char *text)
{
    struct test_report *report = user;
    struct sp_str rest = sp_str_of(text);

    if (report != NULL && report->is_json) {
        report->has_failed = report->has_failed ||
                             (report->errors.len > 0 && !sp_buf_add(&report->errors, ",", 1)) ||
                             !sp_json_add_str(&report->errors, rest);
        return;
    }
    while (rest.n > 0) { /* one that helps has a second line */
        sp_plain_print(stdout, sp_str_cut(&rest, '\n'));
        (void)putchar('\n');
    }
}

static void print_file(struct test_report *report, const struct sp_rules_file *f)
{
    if (report->is_json) {
        report->has_failed = report->has_failed ||
                             (report->files.len > 0 && !sp_buf_add(&report->files, ",", 1)) ||
                             !sp_buf_printf(&report->files, "{\"file\":") ||
                             !sp_json_add_str(&report->files, sp_str_of(f->name)) ||
                             !sp_buf_printf(&report->files, ",\"rules\":%u}", f->count);
        return;
    }
    sp_plain_print(stdout, sp_str_of(f->name));
    (void)printf(": %u rule%s\n", f->count, f->count == 1 ? "" : "s");
}

/* Prints the object, or flushes the lines. */
static int end_report(struct test_report *report)
{
    auto_buf struct sp_buf json = {0};
    struct sp_err e = {0};
    const bool ok = !report->has_failed && sp_buf_printf(&json, "{\"files\":[") &&
                    sp_buf_add_str(&json, sp_buf_str(&report->files)) &&
                    sp_buf_printf(&json, "],\"errors\":[") &&
                    sp_buf_add_str(&json, sp_buf_str(&report->errors)) &&
                    sp_buf_printf(&json, "]}\n");

    sp_buf_done(&report->files);
    sp_buf_done(&report->errors);
    if (!ok)
        return report_no_memory();
    return sp_cli_print(report->is_json ? sp_buf_str(&json) : SP_STR(""), &e) < 0
               ? sp_cli_complain(&e)
               : SP_EXIT_OK;
}

/* Reads each file and tries its examples; prints all its errors, or its number of rules. */
static int test_files(const struct rules_options *o, struct test_report *report)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    int status = m == NULL ? report_no_memory() : SP_EXIT_OK;

    for (size_t i = 0; m != NULL && i < o->files.count; i++) {
        struct sp_rules_file file = {.name = ""};
        struct sp_err e = {0};
        char text[640];

        if (sp_rules_add_file(m, o->files.items[i], print_fault, report, &e) < 0) {
            if (e.code != SP_E_INVALID)
                print_fault(report, sp_error_text(&e, text, sizeof text));
            status = SP_EXIT_FAILED;
            continue;
        }
        struct sp_rules *rules = sp_rules_make(m);
        if (rules == NULL)
            status = report_no_memory();
        for (uint32_t k = 0; rules != NULL && sp_rules_file(rules, k, &file); k++)
            continue; /* m collects all files: the last one is this */
        if (rules != NULL)
            print_file(report, &file);
        sp_rules_unref(rules);
    }
    sp_rules_maker_free(m);
    return status;
}

static int test_configured(const struct rules_options *o, struct test_report *report)
{
    auto_rules_setting struct sp_rules_setting c = {0};
    struct sp_err e = {0};
    struct sp_rules_file file;

    if (sp_rules_setting_read(&o->config, &c, print_fault, report, &e) < 0)
        return sp_cli_complain(&e);
    const struct sp_rules *rules = c.approvals.options.rules;
    uint32_t files = 0;
    while (sp_rules_file(rules, files, &file)) {
        print_file(report, &file);
        files++;
    }
    if (files == 0 && sp_rules_are_complete(rules))
        (void)fprintf(stderr, /* silence would look like success */
                      "sallyport: there are no rules in /etc/sallyport/rules%s%s%s\n",
                      c.config.home != NULL ? " or " : "",
                      c.config.home != NULL ? c.config.home : "",
                      c.config.home != NULL ? "/rules" : "");
    return sp_rules_are_complete(rules) ? SP_EXIT_OK : SP_EXIT_FAILED;
}

/* What `explain` is asked about. */
struct explanation {
    struct sp_judge_request judge; /* its policy is set for each of them */
    const char *profile_name;
    struct sp_str environ; /* of the command: NAME=VALUE strings with their NULs */
    bool is_open;          /* the profile confines nothing */
};

/* `granular` is shown with everything switched on: each false member turns a question into a
 * refusal. */
static const struct sp_approval_policy policies[] = {
    {.kind = SP_APPROVAL_UNTRUSTED},
    {.kind = SP_APPROVAL_ON_FAILURE},
    {.kind = SP_APPROVAL_ON_REQUEST},
    {.kind = SP_APPROVAL_GRANULAR,
     .sandbox_approval = true,
     .rules = true,
     .skill_approval = true,
     .request_permissions = true,
     .mcp_elicitations = true},
    {.kind = SP_APPROVAL_NEVER},
};
#define POLICIES (sizeof policies / sizeof *policies)

static const char *policy_name(enum sp_approval_kind kind)
{
    static const char *const names[] = {
#define X(name, wire, text) wire,
        SP_APPROVALS(X)
#undef X
    };

    return names[kind];
}

/* ---- explain: as JSON ---- */

static void print_buf(const struct sp_buf *text)
{
    (void)fwrite(sp_buf_str(text).p, 1, text->len, stdout);
}

/* before: what stands in front of the string. */
static void print_json_str(const char *before, struct sp_str s)
{
    auto_buf struct sp_buf text = {0};

    if (!sp_json_add_str(&text, s))
        (void)sp_buf_printf(&text, "null");
    (void)fputs(before, stdout);
    print_buf(&text);
}

static void print_json_words(struct sp_words words)
{
    (void)putchar('[');
    for (uint32_t i = 0; i < words.count; i++)
        print_json_str(i == 0 ? "" : ",", words.items[i]);
    (void)putchar(']');
}

static void print_json(const struct explanation *ask, const struct sp_requirement *all)
{
    static const char *const requirements[] = {[SP_REQUIRE_NOTHING] = "skip",
                                               [SP_REQUIRE_ANSWER] = "ask",
                                               [SP_REQUIRE_REFUSAL] = "forbidden"};
    const struct sp_segments *s = &all[0].segments;
    auto_buf struct sp_buf matches = {0};

    (void)fputs("{\"command\":", stdout);
    print_json_words(ask->judge.argv);
    (void)printf(",\"opaque\":%s,\"segments\":[", s->is_opaque ? "true" : "false");
    for (uint32_t i = 0; i < s->count; i++) {
        (void)fputs(i == 0 ? "" : ",", stdout);
        print_json_words(s->items[i]);
    }
    (void)fputs("],\"matches\":", stdout);
    (void)sp_rule_matches_add_json(&matches, &all[0].matches, SP_MATCHES_LIST);
    print_buf(&matches);
    (void)printf(",\"complete\":%s", sp_rules_are_complete(ask->judge.rules) ? "true" : "false");
    print_json_str(",\"sandbox\":", sp_str_of(ask->profile_name));
    (void)fputs(",\"requirements\":{", stdout);
    for (size_t i = 0; i < POLICIES; i++) {
        const struct sp_requirement *r = &all[i];

        (void)printf("%s\"%s\":{\"requirement\":\"%s\"", i == 0 ? "" : ",",
                     policy_name(policies[i].kind), requirements[r->kind]);
        if (r->kind == SP_REQUIRE_NOTHING)
            (void)printf(",\"free\":%s", r->is_free ? "true" : "false");
        if (r->reason.len > 0)
            print_json_str(",\"reason\":", sp_buf_str(&r->reason));
        if (r->amendment.count > 0) {
            (void)fputs(",\"amendment\":", stdout);
            print_json_words(r->amendment);
        }
        (void)putchar('}');
    }
    (void)puts("}}");
}

/* ---- explain: as text ---- */

static void print_words(struct sp_words words)
{
    auto_buf struct sp_buf text = {0};

    for (uint32_t i = 0; i < words.count; i++)
        (void)((i == 0 || sp_buf_add(&text, " ", 1)) && sp_plain_add_word(&text, words.items[i]));
    print_buf(&text);
}

/* verdict, prefix, the program that host_executable resolved, and the justification. */
static void print_match(const struct sp_rule_match *m)
{
    (void)printf("  %-9s  ", sp_verdict_name(m->verdict));
    print_words(m->prefix);
    if (m->resolved_program.p != NULL) {
        (void)fputs(" (", stdout);
        sp_plain_print(stdout, m->resolved_program);
        (void)putchar(')');
    }
    if (m->justification.p != NULL) {
        (void)fputs(": ", stdout);
        sp_plain_print(stdout, m->justification);
    }
    if (m->is_doubtful) {
        (void)fputs("\n             in the sandbox, since commands may write ", stdout);
        sp_plain_print(stdout, sp_str_of(m->file));
    }
    (void)putchar('\n');
}

static void print_requirement(const struct sp_requirement *r, enum sp_approval_kind policy,
                              bool is_open)
{
    (void)printf("  %-10s  %s", policy_name(policy),
                 r->kind == SP_REQUIRE_ANSWER    ? "asks"
                 : r->kind == SP_REQUIRE_REFUSAL ? "refuses"
                 : r->is_free || is_open         ? "runs it without a sandbox"
                                                 : "runs it in the sandbox");
    if (r->reason.len > 0) {
        (void)fputs(": ", stdout);
        sp_plain_print(stdout, sp_judge_plain_reason(sp_buf_str(&r->reason)));
    }
    if (r->kind == SP_REQUIRE_ANSWER && r->amendment.count > 0) {
        (void)fputs("; offers the rule: ", stdout);
        print_words(r->amendment);
    }
    (void)putchar('\n');
}

static void print_explanation(const struct explanation *ask, const struct sp_requirement *all)
{
    const struct sp_segments *s = &all[0].segments;
    const struct sp_rule_matches *m = &all[0].matches;
    /* The first segment is then the shell alone, and is judged, too. */
    const bool is_strange_shell =
        s->is_wrapper && !s->is_opaque &&
        !sp_script_is_trusted_shell(ask->judge.argv.items[0], ask->judge.shell);

    (void)printf("Segments%s:\n",
                 s->is_opaque ? " (the script is more than plain commands: one, as a whole)" : "");
    for (uint32_t i = 0; i < s->count; i++) {
        (void)fputs("  ", stdout);
        print_words(s->items[i]);
        (void)puts(i == 0 && is_strange_shell ? "  (a shell that is not in /bin or /usr/bin by its "
                                                "path: it is judged, too)"
                                              : "");
    }
    (void)printf("Rules that match%s:\n%s",
                 sp_rules_are_complete(ask->judge.rules)
                     ? ""
                     : " (some files are broken: no rule takes the sandbox away)",
                 m->count == 0 ? "  none\n" : "");
    for (uint32_t i = 0; i < m->count; i++)
        print_match(&m->items[i]);
    (void)fputs("Under the sandbox ", stdout);
    sp_plain_print(stdout, sp_str_of(ask->profile_name));
    (void)puts(", the policy:");
    for (size_t i = 0; i < POLICIES; i++)
        print_requirement(&all[i], policies[i].kind, ask->is_open);
}

/* Judges the command under each policy. */
static int explain_to_stdout(const struct explanation *ask, bool is_json, struct sp_err *e)
{
    struct sp_requirement all[POLICIES] = {0};
    int r = 0;

    for (size_t i = 0; r == 0 && i < POLICIES; i++) {
        struct sp_judge_request one = ask->judge;
        const struct sp_program_request files = {
            .argv = one.argv, .judged = &all[i], .policy = one.profile, .environ = ask->environ};
        struct sp_program program = {0};

        one.policy = policies[i];
        r = sp_judge(&one, &all[i], e);
        /* A rule lets a command run without a sandbox only if the file that would run is trusted,
         * too. */
        if (r == 0 && all[i].is_free && !ask->is_open)
            all[i].is_free = sp_program_find(&files, &program);
        sp_program_done(&program);
    }
    if (r == 0) {
        (is_json ? print_json : print_explanation)(ask, all);
        r = sp_cli_print(SP_STR(""), e);
    }
    for (size_t i = 0; i < POLICIES; i++)
        sp_requirement_done(&all[i]);
    return r;
}

static void print_warning(void *user, const char *text)
{
    (void)user;
    sp_plain_say("sallyport", text);
}

/* With the rules of -r, or those of the configured directories. */
static int explain_with(const struct rules_options *o, char **command,
                        const struct sp_rules_setting *c, const struct sp_rules *rules,
                        struct sp_err *e)
{
    auto_buf struct sp_buf variables = {0};
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_shell shell __attribute__((cleanup(sp_shell_done))) = {0};
    struct explanation ask = {.judge = {.rules = rules,
                                        .profile = &policy,
                                        .known_safe = c->approvals.options.known_safe},
                              .profile_name = o->sandbox != NULL ? o->sandbox
                                              : c->config.default_permissions != NULL
                                                  ? c->config.default_permissions
                                                  : ":workspace"};
    auto_free struct sp_str *items = sp_cli_words(command, &ask.judge.argv.count);
    bool ok = items != NULL && sp_buf_add(&variables, "", 0);
    int r = sp_config_policy(&c->config, ask.profile_name, c->cwd, &policy, &ask.is_open, e);

    if (r == 0)
        r = sp_place_find_shell(&shell, e);
    if (r < 0)
        return r;
    /* `sallyport exec` would run the command with all of our variables. */
    for (char **word = environ; ok && *word != NULL; word++)
        ok = sp_buf_add(&variables, *word, strlen(*word) + 1);
    if (!ok)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain the command");
    ask.judge.argv.items = items;
    ask.judge.shell = shell.path;
    ask.environ = (struct sp_str){variables.data, variables.len};
    return explain_to_stdout(&ask, o->is_json, e);
}

static int explain_command(const struct rules_options *o, char **command)
{
    auto_rules_setting struct sp_rules_setting c = {0};
    struct sp_err e = {0};
    struct sp_rules *own = o->files.count > 0 ? read_files(o) : NULL;

    if (o->files.count > 0 && own == NULL)
        return SP_EXIT_FAILED;
    int r = sp_rules_setting_read(&o->config, &c, own == NULL ? print_warning : NULL, NULL, &e);
    if (r == 0)
        r = explain_with(o, command, &c, own != NULL ? own : c.approvals.options.rules, &e);
    sp_rules_unref(own);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

/* ---- the command line ---- */

/* NULL: it is right. */
static const char *find_misuse(char **command)
{
    for (size_t i = 0; command[i] != NULL; i++)
        if (!sp_utf8_is_valid(sp_str_of(command[i])))
            return "the command is not valid UTF-8: no rule can match it";
    return NULL;
}

#define FILES_OPTION                                                                          \
    SP_OPT_LIST(struct rules_options, files, "rules", "FILE", "a file of rules (repeatable)", \
                .short_name = 'r')

static const struct sp_option check_options[] = {
    FILES_OPTION,
    SP_OPT_FLAG(struct rules_options, is_pretty, "pretty", "indent the JSON"),
    SP_OPT_FLAG(struct rules_options, resolves_hosts, "resolve-host-executables",
                "an absolute program may stand for its base name"),
    SP_OPT_TABLE(struct rules_options, config, sp_config_options),
    SP_OPT_END,
};

static const struct sp_option test_options[] = {
    FILES_OPTION,
    SP_OPT_FLAG(struct rules_options, is_json, "json", "print one JSON object"),
    SP_OPT_TABLE(struct rules_options, config, sp_config_options),
    SP_OPT_END,
};

static const struct sp_option explain_options[] = {
    FILES_OPTION,
    SP_OPT_STRING(struct rules_options, sandbox, "sandbox", "MODE",
                  "under this policy (default: the configured one, else :workspace)"),
    SP_OPT_FLAG(struct rules_options, is_json, "json", "print one JSON object"),
    SP_OPT_TABLE(struct rules_options, config, sp_config_options),
    SP_OPT_END,
};

static const struct sp_cli_command rules_check, rules_test, rules_explain;

static int run_check(void *values, char **command)
{
    const struct rules_options *o = values;
    const char *misuse = find_misuse(command);

    if (misuse == NULL && o->files.count == 0)
        misuse = "check needs --rules FILE";
    return misuse != NULL ? sp_command_misused(&rules_check, misuse) : check_command(o, command);
}

static int run_explain(void *values, char **command)
{
    const char *misuse = find_misuse(command);

    return misuse != NULL ? sp_command_misused(&rules_explain, misuse)
                          : explain_command(values, command);
}

static int run_test(void *values, char **operands)
{
    const struct rules_options *o = values;
    struct test_report report = {.is_json = o->is_json};

    (void)operands;
    const int status = o->files.count > 0 ? test_files(o, &report) : test_configured(o, &report);
    const int written = end_report(&report);
    return status != SP_EXIT_OK ? status : written;
}

static const struct sp_cli_command rules_check = {
    .name = "rules check",
    .summary = "print as JSON which rules of the given files match a command",
    .usage =
        "sallyport rules check -r FILE ... [OPTIONS] -- COMMAND [ARGUMENT ...]\n"
        "\n"
        "Prints as JSON which rules of these files match a command. A script of a shell is not "
        "taken apart here: see `sallyport rules explain`.\n",
    .options = check_options,
    .runs_program = true,
    .missing = "a command is missing",
    .max_operands = UINT_MAX,
    .values_size = sizeof(struct rules_options),
    .run = run_check,
};

static const struct sp_cli_command rules_test = {
    .name = "rules test",
    .summary = "read rule files and try their examples",
    .usage =
        "sallyport rules test [OPTIONS]\n"
        "\n"
        "Reads these files, or those of the configured directories, tries all examples in them, "
        "and prints each file with its number of rules, and every error.\n",
    .options = test_options,
    .values_size = sizeof(struct rules_options),
    .run = run_test,
};

static const struct sp_cli_command rules_explain = {
    .name = "rules explain",
    .summary = "say what each approval policy makes of a command, and why",
    .usage = "sallyport rules explain [OPTIONS] -- COMMAND [ARGUMENT ...]\n"
             "\n"
             "Says what each approval policy makes of a command: its segments, the rules that "
             "match, and whether it runs, is asked about, or is refused.\n",
    .notes = "Example: sallyport rules explain -- bash -lc 'git status && rm -rf build'\n",
    .options = explain_options,
    .runs_program = true,
    .missing = "a command is missing",
    .max_operands = UINT_MAX,
    .values_size = sizeof(struct rules_options),
    .run = run_explain,
};

static const struct sp_cli_command *const subcommands[] = {&sp_command_rules_list,
                                                           &sp_command_rules_add,
                                                           &sp_command_rules_remove,
                                                           &rules_check,
                                                           &rules_test,
                                                           &rules_explain,
                                                           NULL};

const struct sp_cli_command sp_command_rules = {
    .name = "rules",
    .summary = "list, add, remove, test and explain the rules for commands and hosts",
    .usage = "sallyport rules SUBCOMMAND [OPTIONS]\n",
    .notes = "Exit status: 0; 1 if a file cannot be read, written or is not valid; 2 for a wrong "
             "command "
             "line.\n"
             "Example: sallyport rules explain -- bash -lc 'git status && rm -rf build'\n",
    .subcommands = subcommands,
};
