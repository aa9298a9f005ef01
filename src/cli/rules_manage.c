/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rules_manage.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "approve/judge.h"
#include "base/auto.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/escape_text.h"
#include "cli/run_place.h"

/* ---- the rules in force ---- */

void sp_rules_setting_done(struct sp_rules_setting *s)
{
    sp_config_approvals_done(&s->approvals);
    sp_config_done(&s->config);
    free(s->cwd);
}

int sp_rules_setting_read(const struct sp_config_options *o, struct sp_rules_setting *ret,
                          void (*warn)(void *user, const char *text), void *user, struct sp_err *e)
{
    int r = sp_cli_load_config(o, NULL, &ret->config, e);

    if (r < 0)
        return r;
    ret->cwd = sp_place_dir(NULL, e);
    if (ret->cwd == NULL)
        return -(int)e->code;
    const struct sp_config_approvals_options want = {.cwd = ret->cwd, .warn = warn, .user = user};
    return sp_config_approvals(&ret->config, &want, &ret->approvals, e);
}

/* ---- one rule, for people ---- */

/* `git (status|log)` */
static bool add_pattern(struct sp_buf *out, const struct sp_rules_entry *x)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < x->count; i++) {
        const struct sp_words *any = &x->pattern[i];

        ok = (i == 0 || sp_buf_add(out, " ", 1)) && (any->count == 1 || sp_buf_add(out, "(", 1));
        for (uint32_t k = 0; ok && k < any->count; k++)
            ok = (k == 0 || sp_buf_add(out, "|", 1)) && sp_plain_add_word(out, any->items[k]);
        ok = ok && (any->count == 1 || sp_buf_add(out, ")", 1));
    }
    return ok;
}

static bool add_subject(struct sp_buf *out, const struct sp_rules_entry *x)
{
    bool ok;

    if (x->kind == SP_RULES_PREFIX)
        return add_pattern(out, x);
    if (x->kind == SP_RULES_NETWORK)
        return sp_plain_add(out, x->protocol) && sp_buf_add(out, "://", 3) &&
               sp_plain_add(out, x->host);
    ok = sp_plain_add_word(out, x->program) && sp_buf_add_str(out, SP_STR(" is"));
    for (uint32_t i = 0; ok && i < x->paths.count; i++)
        ok = sp_buf_add(out, " ", 1) && sp_plain_add_word(out, x->paths.items[i]);
    return ok;
}

/* FILE:LINE: DECISION WORDS: JUSTIFICATION */
static bool print_entry(FILE *to, const struct sp_rules_entry *x)
{
    auto_buf struct sp_buf out = {0};
    const struct sp_str decision =
        x->kind == SP_RULES_PROGRAM ? SP_STR("host_executable") : x->decision;
    const bool ok = sp_plain_add(&out, sp_str_of(x->name)) &&
                    sp_buf_printf(&out, ":%u: ", x->line) && sp_buf_add_str(&out, decision) &&
                    sp_buf_add(&out, " ", 1) && add_subject(&out, x) &&
                    (x->justification.p == NULL ||
                     (sp_buf_add(&out, ": ", 2) && sp_plain_add(&out, x->justification))) &&
                    sp_buf_add(&out, "\n", 1);

    return ok && fwrite(out.data, 1, out.len, to) == out.len;
}

/* ---- list ---- */

struct list_options {
    bool is_json;
    struct sp_config_options config;
};

static bool add_strings(struct sp_buf *out, struct sp_words words)
{
    bool ok = sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; ok && i < words.count; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, words.items[i]);
    return ok && sp_buf_add(out, "]", 1);
}

static bool add_json_pattern(struct sp_buf *out, const struct sp_rules_entry *x)
{
    bool ok = sp_buf_add_str(out, SP_STR("\"pattern\":["));

    for (uint32_t i = 0; ok && i < x->count; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) &&
             (x->pattern[i].count == 1 ? sp_json_add_str(out, x->pattern[i].items[0])
                                       : add_strings(out, x->pattern[i]));
    return ok && sp_buf_add(out, "]", 1);
}

static bool add_member(struct sp_buf *out, const char *before, struct sp_str value)
{
    return sp_buf_add_str(out, sp_str_of(before)) && sp_json_add_str(out, value);
}

static bool add_json_entry(struct sp_buf *out, const struct sp_rules_entry *x)
{
    static const char *const kinds[] = {
        [SP_RULES_PREFIX] = "prefix_rule",
        [SP_RULES_NETWORK] = "network_rule",
        [SP_RULES_PROGRAM] = "host_executable",
    };
    bool ok = add_member(out, "{\"file\":", sp_str_of(x->name)) &&
              sp_buf_printf(out, ",\"line\":%u,\"kind\":\"%s\",", x->line, kinds[x->kind]);

    if (x->kind == SP_RULES_PROGRAM)
        ok = ok && add_member(out, "\"name\":", x->program) &&
             sp_buf_add_str(out, SP_STR(",\"paths\":")) && add_strings(out, x->paths);
    else
        ok = ok && add_member(out, "\"decision\":", x->decision) && sp_buf_add(out, ",", 1) &&
             (x->kind == SP_RULES_PREFIX ? add_json_pattern(out, x)
                                         : add_member(out, "\"host\":", x->host) &&
                                               add_member(out, ",\"protocol\":", x->protocol));
    if (x->justification.p != NULL)
        ok = ok && add_member(out, ",\"justification\":", x->justification);
    return ok && sp_buf_printf(out, ",\"managed\":%s}", x->is_managed ? "true" : "false");
}

static int print_json(const struct sp_rules *rules, struct sp_err *e)
{
    auto_buf struct sp_buf out = {0};
    struct sp_rules_entry x;
    bool ok = sp_buf_add_str(&out, SP_STR("{\"rules\":["));

    for (uint32_t i = 0; ok && sp_rules_entry(rules, i, &x); i++)
        ok = (i == 0 || sp_buf_add(&out, ",", 1)) && add_json_entry(&out, &x);
    ok = ok && sp_buf_printf(&out, "],\"complete\":%s}\n",
                             sp_rules_are_complete(rules) ? "true" : "false");
    return ok ? sp_cli_print(sp_buf_str(&out), e)
              : sp_fail(e, SP_E_SYSTEM, ENOMEM, "list the rules");
}

/* On stderr: silence would look like a defect. */
static void report_no_rules(const struct sp_rules_setting *s)
{
    const char *home = s->config.home;

    (void)fprintf(stderr, "sallyport: there are no rules in /etc/sallyport/rules%s%s%s\n",
                  home != NULL ? " or " : "", home != NULL ? home : "",
                  home != NULL ? "/rules" : "");
}

static int run_list(void *values, char **operands)
{
    const struct list_options *o = values;
    auto_rules_setting struct sp_rules_setting s = {0};
    struct sp_rules_entry x;
    struct sp_err e = {0};
    uint32_t count = 0;

    (void)operands;
    if (sp_rules_setting_read(&o->config, &s, sp_cli_warn, NULL, &e) < 0)
        return sp_cli_complain(&e);
    const struct sp_rules *rules = s.approvals.options.rules;
    int r = 0;
    if (o->is_json) {
        r = print_json(rules, &e);
    } else {
        for (; sp_rules_entry(rules, count, &x) && print_entry(stdout, &x);)
            count++;
        if (count == 0 && sp_rules_are_complete(rules))
            report_no_rules(&s);
        r = sp_cli_print(SP_STR(""), &e);
    }
    if (r < 0)
        return sp_cli_complain(&e);
    return sp_rules_are_complete(rules) ? SP_EXIT_OK : SP_EXIT_FAILED;
}

/* ---- add ---- */

struct edit_options {
    const char *decision, *file, *justification, *host, *protocol;
    bool is_forced;
    struct sp_config_options config;
};

/* Programs that run any program that is named behind them; judge.c has shells and interpreters. */
static bool runs_programs(struct sp_words prefix)
{
    static const char *const programs[] = {"busybox", "chroot",  "command", "doas",    "exec",
                                           "find",    "nice",    "nohup",   "nsenter", "setsid",
                                           "ssh",     "stdbuf",  "strace",  "su",      "time",
                                           "timeout", "unshare", "watch",   "xargs",   NULL};

    return prefix.count == 1 && sp_str_is_any_of(prefix.items[0], programs);
}

/* Asks with the name of the program, whatever its path. */
static bool is_wide(struct sp_words words)
{
    struct sp_str first = sp_base_name(words.items[0]);
    auto_free struct sp_str *items = malloc(words.count * sizeof *items);

    if (items == NULL)
        return true;
    memcpy(items, words.items, words.count * sizeof *items);
    items[0] = first;
    words.items = items;
    return sp_judge_is_too_wide(words) || runs_programs(words);
}

/* NULL: the words are right. */
static const char *check_words(char **words, const struct edit_options *o)
{
    for (size_t i = 0; words[i] != NULL; i++)
        if (!sp_utf8_is_valid(sp_str_of(words[i])))
            return "the command is not valid UTF-8: no rule can match it";
    if (o->host == NULL)
        return words[0] == NULL      ? "a command or --host is missing"
               : words[0][0] == 0    ? "the command's name is empty"
               : o->protocol != NULL ? "--protocol is for rules with --host"
                                     : NULL;
    return words[0] != NULL ? "give --host or a command, not both" : NULL;
}

/* Fills *a from the options. NULL, or what is wrong. */
static const char *read_addition(const struct edit_options *o, struct sp_rules_addition *a)
{
    const struct sp_str decision = sp_str_of(o->decision == NULL ? "allow" : o->decision);
    const bool is_deny = sp_str_eq(decision, SP_STR("deny"));

    if (o->host != NULL && o->justification != NULL)
        return "a rule for a host gets its justification by itself";
    if (o->host != NULL && sp_str_eq(decision, SP_STR("prompt")))
        return "a rule for a host has the decision allow or deny";
    if (o->host == NULL && is_deny)
        return "a rule for commands has the decision allow, prompt or forbidden";
    a->verdict = is_deny || sp_str_eq(decision, SP_STR("forbidden")) ? SP_VERDICT_FORBIDDEN
                 : sp_str_eq(decision, SP_STR("prompt"))             ? SP_VERDICT_PROMPT
                                                                     : SP_VERDICT_ALLOW;
    if (o->justification != NULL)
        a->justification = sp_str_of(o->justification);
    if (o->host != NULL) {
        a->host = sp_str_of(o->host);
        a->protocol = sp_str_of(o->protocol == NULL ? "https" : o->protocol);
    }
    return NULL;
}

static int report_added(const char *path, uint32_t line, bool is_new)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};
    struct sp_rules *rules = NULL;
    struct sp_rules_entry x;
    int r = m == NULL ? sp_fail(&e, SP_E_SYSTEM, ENOMEM, "read %s", path)
                      : sp_rules_add_file(m, path, NULL, NULL, &e);

    if (r == 0 && (rules = sp_rules_make(m)) == NULL)
        r = sp_fail(&e, SP_E_SYSTEM, ENOMEM, "read %s", path);
    for (uint32_t i = 0; r == 0 && sp_rules_entry(rules, i, &x); i++)
        if (x.line == line)
            (void)print_entry(stdout, &x);
    sp_rules_unref(rules);
    sp_rules_maker_free(m);
    if (r == 0)
        r = sp_cli_print(SP_STR(""), &e);
    if (r == 0 && !is_new)
        (void)fputs("sallyport: the rule was there already\n", stderr);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static int refuse_wide(char **words)
{
    char text[300];

    (void)snprintf(text, sizeof text,
                   "`%.100s%s%.60s` alone would allow nearly everything without a sandbox: name "
                   "more words, or add --force if that is meant",
                   words[0], words[1] == NULL ? "" : " ", words[1] == NULL ? "" : words[1]);
    sp_plain_say("sallyport", text);
    return SP_EXIT_FAILED;
}

static int run_add(void *values, char **words)
{
    const struct edit_options *o = values;
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    struct sp_rules_addition a = {0};
    auto_free struct sp_str *items = sp_cli_words(words, &a.words.count);
    auto_free char *path = NULL;
    const char *misuse = check_words(words, o);
    struct sp_err e = {0};
    uint32_t line = 0;
    bool is_new = false;

    if (misuse == NULL)
        misuse = read_addition(o, &a);
    if (misuse != NULL)
        return sp_command_misused(&sp_command_rules_add, misuse);
    if (items == NULL || sp_cli_load_config(&o->config, "sallyport", &config, &e) < 0)
        return sp_cli_complain(&e);
    a.words.items = items;
    if (a.words.count > 0 && a.verdict == SP_VERDICT_ALLOW && !o->is_forced && is_wide(a.words))
        return refuse_wide(words);
    if (o->file == NULL && config.home == NULL) {
        (void)fputs("sallyport: HOME and SALLYPORT_HOME are not set: name a file with --file\n",
                    stderr);
        return SP_EXIT_FAILED;
    }
    if (sp_rules_edit_add(config.home, o->file, &a, &path, &line, &is_new, &e) < 0)
        return sp_cli_complain(&e);
    return report_added(path, line, is_new);
}

/* ---- remove ---- */

struct wanted {
    struct sp_words words;        /* count 0: by host, or by line */
    struct sp_str host, protocol; /* protocol p NULL: any */
    uint32_t line;
};

static bool has_words(const struct sp_rules_entry *x, struct sp_words words)
{
    bool is_same = x->kind == SP_RULES_PREFIX && x->count == words.count;

    for (uint32_t i = 0; is_same && i < words.count; i++)
        is_same = x->pattern[i].count == 1 && sp_str_eq(x->pattern[i].items[0], words.items[i]);
    return is_same;
}

static bool is_wanted(const void *user, const struct sp_rules_entry *x)
{
    const struct wanted *w = user;

    if (w->line != 0 && (w->line < x->line || w->line > x->last_line))
        return false;
    if (w->words.count > 0)
        return has_words(x, w->words);
    if (w->host.p != NULL)
        return x->kind == SP_RULES_NETWORK && sp_str_eq(x->host, w->host) &&
               (w->protocol.p == NULL || sp_str_eq(x->protocol, w->protocol));
    return true;
}

/* Prints the rule before it goes: its text belongs to the file. */
static int remove_entry(const char *file, struct wanted *w)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_rules *rules = NULL;
    struct sp_rules_entry x = {0};
    struct sp_err e = {0};
    bool is_found = false;
    int r = m == NULL ? sp_fail(&e, SP_E_SYSTEM, ENOMEM, "read %s", file)
                      : sp_rules_add_file(m, file, NULL, NULL, &e);

    if (r == 0 && (rules = sp_rules_make(m)) == NULL)
        r = sp_fail(&e, SP_E_SYSTEM, ENOMEM, "read %s", file);
    for (uint32_t i = 0; r == 0 && !is_found && sp_rules_entry(rules, i, &x); i++)
        is_found = is_wanted(w, &x);
    if (r == 0)
        r = sp_rules_edit_remove(file, is_wanted, w, &e);
    if (r == 0 && is_found) {
        (void)fputs("removed ", stdout);
        (void)print_entry(stdout, &x);
        r = sp_cli_print(SP_STR(""), &e);
    }
    sp_rules_unref(rules);
    sp_rules_maker_free(m);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

/* FILE:LINE with a file that is there. *ret_file: to be freed. */
static bool read_place(const char *word, char **ret_file, uint32_t *ret_line)
{
    const char *colon = strrchr(word, ':');
    uint64_t line;

    if (colon == NULL || colon == word || !sp_str_to_u64(sp_str_of(colon + 1), UINT32_MAX, &line) ||
        line == 0)
        return false;
    *ret_file = strndup(word, (size_t)(colon - word));
    *ret_line = (uint32_t)line;
    return *ret_file != NULL && access(*ret_file, F_OK) == 0;
}

/* Whether commands of the same program have rules: shown if none is exactly as wanted. */
static bool is_like(const struct wanted *w, const struct sp_rules_entry *x)
{
    const uint32_t count =
        x->kind == SP_RULES_PREFIX && w->words.count > 0 ? x->pattern[0].count : 0;
    bool is_same = false;

    for (uint32_t i = 0; i < count; i++)
        is_same |= sp_str_eq(x->pattern[0].items[i], w->words.items[0]);
    return is_same;
}

static int report_candidates(const struct sp_rules *rules, const struct wanted *w, uint32_t count)
{
    struct sp_rules_entry x;
    bool has_like = false;

    for (uint32_t i = 0; count == 0 && sp_rules_entry(rules, i, &x); i++)
        has_like |= is_like(w, &x);
    if (count > 1)
        (void)fputs("sallyport: several rules are like this; name one by FILE:LINE:\n", stderr);
    else
        (void)fprintf(stderr, "sallyport: no rule is exactly like this%s\n",
                      has_like ? "; name one of these by FILE:LINE:"
                               : " (see sallyport rules list)");
    for (uint32_t i = 0; sp_rules_entry(rules, i, &x); i++)
        if (count > 1 ? is_wanted(w, &x) : is_like(w, &x))
            (void)print_entry(stderr, &x);
    return SP_EXIT_FAILED;
}

/* The file of the one rule that is wanted. */
static int remove_by_words(const struct edit_options *o, struct wanted *w)
{
    auto_rules_setting struct sp_rules_setting s = {0};
    struct sp_rules_entry x;
    const char *file = NULL;
    struct sp_err e = {0};
    uint32_t count = 0;

    if (sp_rules_setting_read(&o->config, &s, sp_cli_warn, NULL, &e) < 0)
        return sp_cli_complain(&e);
    const struct sp_rules *rules = s.approvals.options.rules;
    for (uint32_t i = 0; sp_rules_entry(rules, i, &x); i++)
        if (is_wanted(w, &x)) {
            file = x.file;
            count++;
        }
    return count == 1 && file != NULL ? remove_entry(file, w) : report_candidates(rules, w, count);
}

static int run_remove(void *values, char **words)
{
    const struct edit_options *o = values;
    struct wanted w = {0};
    auto_free struct sp_str *items = sp_cli_words(words, &w.words.count);
    auto_free char *file = NULL;
    const char *misuse = check_words(words, o);
    struct sp_err e = {0};

    if (misuse != NULL)
        return sp_command_misused(&sp_command_rules_remove, misuse);
    if (items == NULL) {
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "remove a rule");
        return sp_cli_complain(&e);
    }
    if (w.words.count == 1 && read_place(words[0], &file, &w.line)) {
        w.words.count = 0;
        return remove_entry(file, &w);
    }
    if (file != NULL && strstr(words[0], ".rules:") != NULL) {
        (void)sp_fail(&e, SP_E_NOT_FOUND, 0,
                      "%.300s: there is no such file; give FILE:LINE as `sallyport rules list` "
                      "prints it",
                      file);
        return sp_cli_complain(&e);
    }
    w.words.items = items;
    if (o->host != NULL)
        w.host = sp_str_of(o->host);
    if (o->protocol != NULL)
        w.protocol = sp_str_of(o->protocol);
    return remove_by_words(o, &w);
}

/* ---- the command lines ---- */

static const struct sp_option list_options[] = {
    SP_OPT_FLAG(struct list_options, is_json, "json", "print one JSON object"),
    SP_OPT_TABLE(struct list_options, config, sp_config_options),
    SP_OPT_END,
};

static const char *const decisions[] = {"allow", "prompt", "forbidden", "deny", NULL};
static const char *const protocols[] = {"http", "https", "socks5_tcp", "socks5_udp", NULL};

static const struct sp_option add_options[] = {
    SP_OPT_CHOICE(struct edit_options, decision, "decision", "WHAT", decisions,
                  "allow (default), prompt or forbidden; for a host, allow or deny"),
    SP_OPT_STRING(struct edit_options, justification, "justification", "TEXT",
                  "why; shown in questions and refusals"),
    SP_OPT_STRING(struct edit_options, host, "host", "HOST",
                  "a rule for this host, not for a command"),
    SP_OPT_CHOICE(struct edit_options, protocol, "protocol", "NAME", protocols,
                  "how the host is reached: http, https (default), socks5_tcp or socks5_udp"),
    SP_OPT_STRING(struct edit_options, file, "file", "FILE",
                  "append it there (default: rules/default.rules in ~/.sallyport)"),
    SP_OPT_FLAG(struct edit_options, is_forced, "force",
                "also a rule that allows nearly everything, such as `bash`"),
    SP_OPT_TABLE(struct edit_options, config, sp_config_options),
    SP_OPT_END,
};

static const struct sp_option remove_options[] = {
    SP_OPT_STRING(struct edit_options, host, "host", "HOST", "the rule for this host"),
    SP_OPT_CHOICE(struct edit_options, protocol, "protocol", "NAME", protocols,
                  "the one for http, https, socks5_tcp or socks5_udp"),
    SP_OPT_TABLE(struct edit_options, config, sp_config_options),
    SP_OPT_END,
};

const struct sp_cli_command sp_command_rules_list = {
    .name = "rules list",
    .summary = "list the rules in force",
    .usage = "sallyport rules list [OPTIONS]\n"
             "\n"
             "Lists the rules that are in force in this directory, each with its file and line, "
             "decision, words and justification.\n",
    .options = list_options,
    .values_size = sizeof(struct list_options),
    .run = run_list,
};

const struct sp_cli_command sp_command_rules_add = {
    .name = "rules add",
    .summary = "add a rule for a command or a host",
    .usage = "sallyport rules add [OPTIONS] -- WORD ...\n"
             "       sallyport rules add [OPTIONS] --host HOST\n"
             "\n"
             "Appends a rule for commands that begin with these words, or for a host. Programs "
             "that run take it up by themselves. Nothing is written unless the file is valid with "
             "the rule.\n",
    .notes = "Example: sallyport rules add --decision prompt -- git push\n",
    .options = add_options,
    .runs_program = true,
    .max_operands = UINT_MAX,
    .values_size = sizeof(struct edit_options),
    .run = run_add,
};

const struct sp_cli_command sp_command_rules_remove = {
    .name = "rules remove",
    .summary = "remove a rule from its file",
    .usage = "sallyport rules remove [OPTIONS] FILE:LINE\n"
             "       sallyport rules remove [OPTIONS] -- WORD ...\n"
             "       sallyport rules remove [OPTIONS] --host HOST\n"
             "\n"
             "Removes the rule at this line, or the one rule with exactly these words, or for "
             "this host, from a file that belongs to you. All other lines stay as they are.\n",
    .notes = "Example: sallyport rules remove -- git push\n",
    .options = remove_options,
    .runs_program = true,
    .max_operands = UINT_MAX,
    .values_size = sizeof(struct edit_options),
    .run = run_remove,
};
