/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_call: the three functions of a rule file, and the examples of prefix_rule.
 *
 * Arguments are checked in the order in which Codex checks them, so that the first error is the
 * same. Errors are reported at the beginning of the call. Examples are tried after the whole file
 * was read: each against the rules of its own call, with the host executables of all files so far;
 * first what must not match, then what must.
 */
#include "approve/rules/rules_priv.h"
#include "approve/script/script_priv.h"
#include "base/auto.h"
#include "base/grow.h"
#include "base/hostname.h"
#include "base/json.h"
#include "base/utf8.h"

#define SHOWN_RULE     100 /* bytes of a rule in an error message */
#define SHOWN_EXAMPLES 200

struct parameter {
    const char *name;
    enum sp_rules_type type;
    bool is_needed, may_be_none;
};

static const struct {
    const char *name;
    struct parameter parameters[SP_RULES_MAX_PARAMETERS];
} functions[SP_RULES_FUNCTIONS] = {
    [SP_RULES_PREFIX] = {"prefix_rule",
                         {{"pattern", SP_RULES_LIST, true, false},
                          {"decision", SP_RULES_STRING, false, false},
                          {"match", SP_RULES_LIST, false, false},
                          {"not_match", SP_RULES_LIST, false, false},
                          {"justification", SP_RULES_STRING, false, true}}},
    [SP_RULES_NETWORK] = {"network_rule",
                          {{"host", SP_RULES_STRING, true, false},
                           {"protocol", SP_RULES_STRING, true, false},
                           {"decision", SP_RULES_STRING, true, false},
                           {"justification", SP_RULES_STRING, false, true}}},
    [SP_RULES_HOST] = {"host_executable",
                       {{"name", SP_RULES_STRING, true, false},
                        {"paths", SP_RULES_LIST, true, false}}},
};
enum { PATTERN, DECISION, MATCH, NOT_MATCH, JUSTIFICATION }; /* prefix_rule */
enum { HOST, PROTOCOL, HOST_DECISION, HOST_JUSTIFICATION };  /* network_rule */
enum { NAME, PATHS };                                        /* host_executable */

enum sp_rules_function sp_rules_function(struct sp_str name)
{
    for (int f = 0; f < SP_RULES_FUNCTIONS; f++)
        if (sp_str_eq(name, sp_str_of(functions[f].name)))
            return (enum sp_rules_function)f;
    return SP_RULES_FUNCTIONS;
}

uint32_t sp_rules_parameter(enum sp_rules_function f, struct sp_str name)
{
    for (uint32_t i = 0; i < SP_RULES_MAX_PARAMETERS; i++)
        if (functions[f].parameters[i].name != NULL &&
            sp_str_eq(name, sp_str_of(functions[f].parameters[i].name)))
            return i;
    return SP_RULES_MAX_PARAMETERS;
}

/* ---- arguments ---- */

/* Number, presence and type of the arguments, by the table above. */
static bool check_arguments(struct sp_rules_reader *r, const struct sp_rules_call *c)
{
    const struct parameter *known = functions[c->function].parameters;
    const char *function = functions[c->function].name;
    uint32_t count = 0;

    while (count < SP_RULES_MAX_PARAMETERS && known[count].name != NULL)
        count++;
    if (c->positional > count)
        return sp_rules_fail(r, c->at, "Found %u extra positional argument(s) for call to %s",
                             c->positional - count, function);
    for (uint32_t i = 0; i < count; i++)
        if (known[i].is_needed && !c->is_given[i])
            return sp_rules_fail(r, c->at, "Missing parameter `%s` for call to `%s`", known[i].name,
                                 function);
    for (uint32_t i = 0; i < count; i++) {
        const enum sp_rules_type type = c->values[i].type;

        if (!c->is_given[i] || type == known[i].type ||
            (known[i].may_be_none && type == SP_RULES_NOTHING))
            continue;
        return sp_rules_fail(r, c->at,
                             "Type of parameter `%s` doesn't match, expected `%s`, actual `%s`",
                             known[i].name, known[i].type == SP_RULES_LIST ? "list" : "str",
                             sp_rules_type_name(type));
    }
    return true;
}

/* Counts n more words of rules and examples. */
static bool count_words(struct sp_rules_reader *r, const char *at, size_t n)
{
    if (n > SP_RULES_MAX_WORDS - r->words)
        return sp_rules_fail(r, at, "the rules and examples of this file have more than %u words",
                             SP_RULES_MAX_WORDS);
    r->words += (uint32_t)n;
    return true;
}

/* Copies s into the part's memory. */
static bool keep(struct sp_rules_reader *r, struct sp_str s, struct sp_str *ret)
{
    char *copy = sp_rules_part_memory(r, s.n + 1, 1);

    if (copy == NULL)
        return false;
    if (s.n != 0)
        memcpy(copy, s.p, s.n);
    *ret = (struct sp_str){copy, s.n};
    return true;
}

static bool take_justification(struct sp_rules_reader *r, const struct sp_rules_call *c,
                               uint32_t index, struct sp_str *ret)
{
    *ret = (struct sp_str){NULL, 0};
    if (!c->is_given[index] || c->values[index].type == SP_RULES_NOTHING)
        return true;
    if (sp_utf8_trim(c->values[index].text).n == 0)
        return sp_rules_fail(r, c->at, "invalid rule: justification cannot be empty");
    return keep(r, c->values[index].text, ret);
}

/* ---- prefix_rule ---- */

/* The decision; allow if it is not given. */
static bool take_verdict(struct sp_rules_reader *r, const struct sp_rules_call *c,
                         enum sp_verdict *ret)
{
    const struct sp_str text = c->values[DECISION].text;

    *ret = SP_VERDICT_ALLOW;
    if (!c->is_given[DECISION])
        return true;
    for (int v = SP_VERDICT_ALLOW; v <= SP_VERDICT_FORBIDDEN; v++) {
        *ret = (enum sp_verdict)v;
        if (sp_str_eq(text, sp_str_of(sp_verdict_name(*ret))))
            return true;
    }
    return sp_rules_fail(r, c->at, "invalid decision: " SP_STR_FMT, SP_STR_ARG(text));
}

/* One element of a pattern: a word, or a list of alternatives. */
static bool take_element(struct sp_rules_reader *r, const char *at, const struct sp_rules_value *v,
                         struct sp_rules_element *ret)
{
    const struct sp_rules_value *items = v->type == SP_RULES_LIST ? v->items : v;
    const uint32_t count = v->type == SP_RULES_LIST ? v->count : 1;

    if (v->type != SP_RULES_STRING && v->type != SP_RULES_LIST)
        return sp_rules_fail(r, at,
                             "invalid pattern element: pattern element must be a string or list of "
                             "strings (got %s)",
                             sp_rules_type_name(v->type));
    for (uint32_t i = 0; i < count; i++)
        if (items[i].type != SP_RULES_STRING)
            return sp_rules_fail(
                r, at, "invalid pattern element: pattern alternative must be a string (got %s)",
                sp_rules_type_name(items[i].type));
    if (count == 0)
        return sp_rules_fail(r, at,
                             "invalid pattern element: pattern alternatives cannot be empty");
    if (!count_words(r, at, count))
        return false;
    struct sp_str *words = sp_rules_part_memory(r, count, sizeof *words);
    if (words == NULL)
        return false;
    *ret = (struct sp_rules_element){words, count};
    for (uint32_t i = 0; i < count; i++)
        if (!keep(r, items[i].text, &words[i]))
            return false;
    return true;
}

/* *ret_words: the words of one rule of this pattern, with all alternatives behind the first. */
static bool take_pattern(struct sp_rules_reader *r, const struct sp_rules_call *c,
                         struct sp_rules_element **ret, uint32_t *ret_words)
{
    const struct sp_rules_value *pattern = &c->values[PATTERN];

    struct sp_rules_element *all = sp_rules_part_memory(r, (size_t)pattern->count + 1, sizeof *all);
    if (all == NULL)
        return false;
    *ret_words = 0;
    for (uint32_t i = 0; i < pattern->count; i++) {
        if (!take_element(r, c->at, &pattern->items[i], &all[i]))
            return false;
        *ret_words += i == 0 ? 1 : all[i].count;
    }
    if (pattern->count == 0)
        return sp_rules_fail(r, c->at, "invalid pattern element: pattern cannot be empty");
    *ret = all;
    return true;
}

/* The words of an example, in the reader's memory. */
static bool keep_words(struct sp_rules_reader *r, const char *at, struct sp_words words,
                       struct sp_words *ret)
{
    if (!count_words(r, at, words.count))
        return false;
    struct sp_str *copy = sp_rules_memory(r, words.count, sizeof *copy);
    if (copy == NULL)
        return false;
    for (uint32_t i = 0; i < words.count; i++) {
        char *text = sp_rules_memory(r, words.items[i].n + 1, 1);

        if (text == NULL)
            return false;
        memcpy(text, words.items[i].p, words.items[i].n);
        copy[i] = (struct sp_str){text, words.items[i].n};
    }
    *ret = (struct sp_words){copy, words.count};
    return true;
}

/* An example as a shell command line. */
static bool take_text_example(struct sp_rules_reader *r, const char *at, struct sp_str text,
                              struct sp_words *ret)
{
    auto_segments struct sp_segments split = {0};
    struct sp_err e = {0};

    if (sp_words_split(&split, text, &e) < 0)
        return e.code == SP_E_INVALID
                   ? sp_rules_fail(r, at,
                                   "invalid example: example string has invalid shell syntax")
                   : sp_rules_no_memory(r);
    if (split.count == 0 || split.items[0].count == 0)
        return sp_rules_fail(r, at, "invalid example: example cannot be an empty string");
    return keep_words(r, at, split.items[0], ret);
}

/* An example as a list of words. */
static bool take_list_example(struct sp_rules_reader *r, const char *at,
                              const struct sp_rules_value *v, struct sp_words *ret)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (v->items[i].type != SP_RULES_STRING)
            return sp_rules_fail(r, at, "invalid example: example tokens must be strings (got %s)",
                                 sp_rules_type_name(v->items[i].type));
    if (v->count == 0)
        return sp_rules_fail(r, at, "invalid example: example cannot be an empty list");
    if (!count_words(r, at, v->count))
        return false;
    struct sp_str *words = sp_rules_memory(r, v->count, sizeof *words);
    if (words == NULL)
        return false;
    for (uint32_t i = 0; i < v->count; i++)
        words[i] = v->items[i].text;
    *ret = (struct sp_words){words, v->count};
    return true;
}

static bool take_examples(struct sp_rules_reader *r, const struct sp_rules_call *c, uint32_t index,
                          const struct sp_words **ret, uint32_t *ret_count)
{
    const struct sp_rules_value *list = &c->values[index];

    *ret = NULL;
    *ret_count = c->is_given[index] ? list->count : 0;
    if (*ret_count == 0)
        return true;
    struct sp_words *all = sp_rules_memory(r, list->count, sizeof *all);
    if (all == NULL)
        return false;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct sp_rules_value *v = &list->items[i];
        bool is_good = false;

        if (v->type == SP_RULES_STRING)
            is_good = take_text_example(r, c->at, v->text, &all[i]);
        else if (v->type == SP_RULES_LIST)
            is_good = take_list_example(r, c->at, v, &all[i]);
        else
            (void)sp_rules_fail(
                r, c->at, "invalid example: example must be a string or list of strings (got %s)",
                sp_rules_type_name(v->type));
        if (!is_good)
            return false;
    }
    *ret = all;
    return true;
}

/* Adds nothing to the part unless all arguments are valid. */
static bool execute_prefix(struct sp_rules_reader *r, const struct sp_rules_call *c)
{
    struct sp_rules_part *p = r->part;
    struct sp_rules_examples x = {.at = c->at, .first_rule = p->rule_count};
    struct sp_prefix_rule rule = {.rest_count = c->values[PATTERN].count - 1};
    struct sp_rules_element *pattern = NULL;
    uint32_t words = 0;

    if (!take_verdict(r, c, &rule.verdict) ||
        !take_justification(r, c, JUSTIFICATION, &rule.justification) ||
        !take_pattern(r, c, &pattern, &words) ||
        !take_examples(r, c, MATCH, &x.match, &x.match_count) ||
        !take_examples(r, c, NOT_MATCH, &x.not_match, &x.not_match_count) || pattern == NULL)
        return false;
    if (!count_words(r, c->at, (size_t)pattern[0].count * words))
        return false;
    /* One rule for each alternative of the first word; all share the rest of the pattern. */
    rule.rest = pattern + 1;
    for (uint32_t i = 0; i < pattern[0].count; i++) {
        if (!SP_GROW(p->rules, p->rule_count, p->rule_cap))
            return sp_rules_no_memory(r);
        rule.first = pattern[0].words[i];
        p->rules[p->rule_count++] = rule;
    }
    x.rule_count = p->rule_count - x.first_rule;
    if (x.match_count + x.not_match_count == 0)
        return true;
    if (!SP_GROW(r->examples, r->example_count, r->example_cap))
        return sp_rules_no_memory(r);
    r->examples[r->example_count++] = x;
    return true;
}

/* ---- network_rule ---- */

static bool take_protocol(struct sp_rules_reader *r, const struct sp_rules_call *c,
                          struct sp_str *ret)
{
    static const char *const known[][2] = {
        {"http", "http"},          {"https", "https"},           {"https_connect", "https"},
        {"http-connect", "https"}, {"socks5_tcp", "socks5_tcp"}, {"socks5_udp", "socks5_udp"},
    };
    const struct sp_str text = c->values[PROTOCOL].text;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (sp_str_eq(text, sp_str_of(known[i][0]))) {
            *ret = sp_str_of(known[i][1]);
            return true;
        }
    return sp_rules_fail(r, c->at,
                         "invalid rule: network_rule protocol must be one of http, https, "
                         "socks5_tcp, socks5_udp (got " SP_STR_FMT ")",
                         SP_STR_ARG(text));
}

static bool take_decision(struct sp_rules_reader *r, const struct sp_rules_call *c,
                          struct sp_str *ret)
{
    const struct sp_str text = c->values[HOST_DECISION].text;

    if (sp_str_eq(text, SP_STR("allow")))
        *ret = SP_STR("allow");
    else if (sp_str_eq(text, SP_STR("prompt")))
        *ret = SP_STR("prompt");
    else if (sp_str_eq(text, SP_STR("deny")) || sp_str_eq(text, SP_STR("forbidden")))
        *ret = SP_STR("deny");
    else
        return sp_rules_fail(r, c->at, "invalid decision: " SP_STR_FMT, SP_STR_ARG(text));
    return true;
}

/* The normalised host. Error texts that end in a blank want the host behind them. */
static bool take_host(struct sp_rules_reader *r, const struct sp_rules_call *c, struct sp_str *ret)
{
    const struct sp_str text = c->values[HOST].text;
    char *room = sp_rules_part_memory(r, text.n + 1, 1);

    if (room == NULL)
        return false;
    const char *wrong = sp_hostname_normal(text, room, ret);
    if (wrong == NULL)
        return true;
    const bool names_it = wrong[strlen(wrong) - 1] == ' ';
    return sp_rules_fail(r, c->at, "invalid rule: network_rule host %s" SP_STR_FMT, wrong,
                         SP_STR_ARG(names_it ? text : SP_STR("")));
}

static bool execute_network(struct sp_rules_reader *r, const struct sp_rules_call *c)
{
    struct sp_rules_part *p = r->part;
    struct sp_network_rule rule = {0};

    if (!take_protocol(r, c, &rule.protocol) || !take_decision(r, c, &rule.decision) ||
        !take_justification(r, c, HOST_JUSTIFICATION, &rule.justification) ||
        !take_host(r, c, &rule.host) || !count_words(r, c->at, 1))
        return false;
    if (!SP_GROW(p->network, p->network_count, p->network_cap))
        return sp_rules_no_memory(r);
    p->network[p->network_count++] = rule;
    return true;
}

/* ---- host_executable ---- */

/* A path of host_executable: absolute, with the name of the program as its last component. */
static bool take_path(struct sp_rules_reader *r, const char *at, struct sp_str name,
                      const struct sp_rules_value *v, struct sp_str *ret)
{
    bool climbs;

    if (v->type != SP_RULES_STRING)
        return sp_rules_fail(r, at, "invalid rule: host_executable paths must be strings (got %s)",
                             sp_rules_type_name(v->type));
    if (v->text.n == 0 || v->text.p[0] != '/')
        return sp_rules_fail(r, at,
                             "invalid rule: host_executable paths must be absolute "
                             "(got " SP_STR_FMT ")",
                             SP_STR_ARG(v->text));
    char *room = sp_rules_part_memory(r, v->text.n + 1, 1);
    if (room == NULL)
        return false;
    *ret = sp_rules_normal_path(v->text, room, &climbs);
    if (!sp_str_eq(sp_base_name(*ret), name))
        return sp_rules_fail(r, at,
                             "invalid rule: host_executable path `" SP_STR_FMT
                             "` must have basename `" SP_STR_FMT "`",
                             SP_STR_ARG(v->text), SP_STR_ARG(name));
    return true;
}

static bool execute_host(struct sp_rules_reader *r, const struct sp_rules_call *c)
{
    const struct sp_rules_value *list = &c->values[PATHS];
    const struct sp_str name = c->values[NAME].text;
    struct sp_host_executable host = {.count = list->count};
    struct sp_rules_part *p = r->part;

    if (name.n == 0)
        return sp_rules_fail(r, c->at, "invalid rule: host_executable name cannot be empty");
    if (memchr(name.p, '/', name.n) != NULL || sp_str_eq(name, SP_STR(".")) ||
        sp_str_eq(name, SP_STR("..")))
        return sp_rules_fail(r, c->at,
                             "invalid rule: host_executable name must be a bare executable name "
                             "(got " SP_STR_FMT ")",
                             SP_STR_ARG(name));
    if (!keep(r, name, &host.name) || !count_words(r, c->at, (size_t)list->count + 1))
        return false;
    struct sp_str *paths = sp_rules_part_memory(r, (size_t)list->count + 1, sizeof *paths);
    if (paths == NULL)
        return false;
    for (uint32_t i = 0; i < list->count; i++)
        if (!take_path(r, c->at, host.name, &list->items[i], &paths[i]))
            return false;
    host.paths = paths;
    if (!SP_GROW(p->hosts, p->host_count, p->host_cap))
        return sp_rules_no_memory(r);
    p->hosts[p->host_count++] = host;
    return true;
}

bool sp_rules_execute(struct sp_rules_reader *r, const struct sp_rules_call *c)
{
    if (!check_arguments(r, c))
        return false;
    switch (c->function) {
    case SP_RULES_PREFIX:
        return execute_prefix(r, c);
    case SP_RULES_NETWORK:
        return execute_network(r, c);
    case SP_RULES_HOST:
        return execute_host(r, c);
    case SP_RULES_FUNCTIONS:
        break;
    }
    return sp_rules_fail(r, c->at, "unsupported expression");
}

/* ---- examples: does one match ---- */

/* The rules of a call differ only in their first word. */
static bool matches_named(const struct sp_prefix_rule *rules, uint32_t count, struct sp_str name,
                          struct sp_words example)
{
    if (example.count < rules[0].rest_count + 1)
        return false;
    for (uint32_t i = 0; i < rules[0].rest_count; i++)
        if (!sp_rules_element_has(&rules[0].rest[i], example.items[i + 1]))
            return false;
    for (uint32_t i = 0; i < count; i++)
        if (sp_str_eq(rules[i].first, name))
            return true;
    return false;
}

static bool matches(struct sp_rules_reader *r, const struct sp_rules_hosts *hosts,
                    const struct sp_rules_examples *x, struct sp_words example, bool *ret)
{
    const struct sp_prefix_rule *rules = &r->part->rules[x->first_rule];
    const struct sp_str first = example.items[0];
    bool climbs;

    *ret = matches_named(rules, x->rule_count, first, example);
    if (*ret || first.n == 0 || first.p[0] != '/')
        return true;
    char *room = sp_rules_memory(r, first.n + 1, 1);
    if (room == NULL)
        return false;
    const struct sp_str path = sp_rules_normal_path(first, room, &climbs);
    if ((!climbs || rules[0].verdict != SP_VERDICT_ALLOW) && path.n > 1 &&
        sp_rules_hosts_allow(hosts, path))
        *ret = matches_named(rules, x->rule_count, sp_base_name(path), example);
    return true;
}

/* ---- examples: error messages ---- */

static bool add_element(struct sp_buf *out, const struct sp_str *words, uint32_t count)
{
    bool is_good = count == 1 || sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; is_good && i < count && out->len <= SHOWN_RULE; i++)
        is_good = (i == 0 || sp_buf_add(out, ", ", 2)) && sp_json_add_str(out, words[i]);
    return is_good && (count == 1 || sp_buf_add(out, "]", 1));
}

/* Truncates at a character boundary. */
static void cut(struct sp_buf *b, size_t max)
{
    if (b->len <= max)
        return;
    b->len = max;
    while (b->len > 0 && ((unsigned char)b->data[b->len] & 0xC0) == 0x80)
        b->len--;
    (void)sp_buf_add(b, "...", 3); /* cannot fail: the text was longer before */
}

/* Appends the pattern in the syntax of prefix_rule. */
static bool add_rule(struct sp_buf *out, const struct sp_prefix_rule *rules, uint32_t count)
{
    bool is_good = sp_buf_add_str(out, SP_STR("prefix_rule(["));

    if (count > 1)
        is_good = is_good && sp_buf_add(out, "[", 1);
    for (uint32_t i = 0; is_good && i < count && out->len <= SHOWN_RULE; i++)
        is_good = (i == 0 || sp_buf_add(out, ", ", 2)) && sp_json_add_str(out, rules[i].first);
    if (count > 1)
        is_good = is_good && sp_buf_add(out, "]", 1);
    for (uint32_t i = 0; is_good && i < rules[0].rest_count && out->len <= SHOWN_RULE; i++)
        is_good = sp_buf_add(out, ", ", 2) &&
                  add_element(out, rules[0].rest[i].words, rules[0].rest[i].count);
    is_good = is_good && sp_buf_add_str(out, SP_STR("])"));
    cut(out, SHOWN_RULE);
    return is_good;
}

static bool fail_matched(struct sp_rules_reader *r, const struct sp_rules_examples *x,
                         struct sp_words example)
{
    auto_buf struct sp_buf rule = {0};
    auto_buf struct sp_buf text = {0};

    if (!add_rule(&rule, &r->part->rules[x->first_rule], x->rule_count) ||
        !sp_words_add_quoted(&text, example))
        return sp_rules_no_memory(r);
    cut(&text, SHOWN_EXAMPLES);
    return sp_rules_fail(r, x->at, "expected example to not match rule `%.*s`: %.*s", (int)rule.len,
                         rule.data, (int)text.len, text.data);
}

static bool fail_unmatched(struct sp_rules_reader *r, const struct sp_rules_examples *x,
                           struct sp_buf *unmatched)
{
    auto_buf struct sp_buf rule = {0};

    if (!add_rule(&rule, &r->part->rules[x->first_rule], x->rule_count))
        return sp_rules_no_memory(r);
    cut(unmatched, SHOWN_EXAMPLES);
    return sp_rules_fail(r, x->at,
                         "expected every example to match at least one rule. rules: [%.*s]; "
                         "unmatched examples: [%.*s]",
                         (int)rule.len, rule.data, (int)unmatched->len, unmatched->data);
}

/* ---- examples: all calls ---- */

static bool check_not_match(struct sp_rules_reader *r, const struct sp_rules_hosts *hosts,
                            const struct sp_rules_examples *x)
{
    bool does;

    for (uint32_t i = 0; i < x->not_match_count; i++) {
        if (!matches(r, hosts, x, x->not_match[i], &does))
            return false;
        if (does && !fail_matched(r, x, x->not_match[i]) && r->tell == NULL)
            return false;
    }
    return true;
}

static bool check_match(struct sp_rules_reader *r, const struct sp_rules_hosts *hosts,
                        const struct sp_rules_examples *x)
{
    auto_buf struct sp_buf unmatched = {0};
    bool does;

    for (uint32_t i = 0; i < x->match_count; i++) {
        if (!matches(r, hosts, x, x->match[i], &does))
            return false;
        auto_buf struct sp_buf text = {0};
        if (!does && unmatched.len <= SHOWN_EXAMPLES &&
            ((unmatched.len != 0 && !sp_buf_add(&unmatched, ", ", 2)) ||
             !sp_words_add_quoted(&text, x->match[i]) ||
             !sp_json_add_str(&unmatched, sp_buf_str(&text))))
            return sp_rules_no_memory(r);
    }
    return unmatched.len == 0 || fail_unmatched(r, x, &unmatched) || r->tell != NULL;
}

/* Bounds the comparisons that the examples of a file cost. */
static bool count_work(struct sp_rules_reader *r, const struct sp_rules_examples *x, uint64_t *work)
{
    const struct sp_prefix_rule *rule = &r->part->rules[x->first_rule];
    uint64_t words = x->rule_count;

    for (uint32_t i = 0; i < rule->rest_count; i++)
        words += rule->rest[i].count;
    *work += words * ((uint64_t)x->match_count + x->not_match_count);
    return *work <= SP_RULES_MAX_WORK ||
           sp_rules_fail(r, x->at, "too many examples for so many alternatives");
}

bool sp_rules_check_examples(struct sp_rules_reader *r)
{
    struct sp_rules_hosts hosts = {0};
    uint64_t work = 0;
    bool is_good = true;

    for (uint32_t i = 0; is_good && i < r->before->count; i++)
        is_good = sp_rules_hosts_add(&hosts, r->before->items[i]);
    is_good = is_good && sp_rules_hosts_add(&hosts, r->part);
    if (!is_good)
        (void)sp_rules_no_memory(r);
    for (uint32_t i = 0; is_good && i < r->example_count; i++)
        is_good = count_work(r, &r->examples[i], &work) &&
                  check_not_match(r, &hosts, &r->examples[i]) &&
                  check_match(r, &hosts, &r->examples[i]);
    sp_rules_hosts_done(&hosts);
    return is_good;
}
