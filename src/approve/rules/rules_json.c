/* SPDX-License-Identifier: Apache-2.0 */
/* What `rules check` prints (5.5): compact, or laid out with two blanks a level. */
#include "approve/rules/rules.h"
#include "base/json.h"

/* A text under construction; each member or element is begun by `begin`. */
struct writer {
    struct sp_buf *out;
    bool is_pretty, is_good;
    unsigned depth;
    bool has_some; /* the innermost container has a child already */
};

static void add(struct writer *w, struct sp_str s)
{
    w->is_good = w->is_good && sp_buf_add_str(w->out, s);
}

static void break_line(struct writer *w)
{
    if (!w->is_pretty)
        return;
    add(w, SP_STR("\n"));
    for (unsigned i = 0; i < w->depth; i++)
        add(w, SP_STR("  "));
}

/* The next child; key NULL in an array. */
static void begin(struct writer *w, const char *key)
{
    if (w->has_some)
        add(w, SP_STR(","));
    break_line(w);
    w->has_some = true;
    if (key == NULL)
        return;
    w->is_good = w->is_good && sp_json_add_str(w->out, sp_str_of(key));
    add(w, w->is_pretty ? SP_STR(": ") : SP_STR(":"));
}

static void open_container(struct writer *w, struct sp_str bracket)
{
    add(w, bracket);
    w->depth++;
    w->has_some = false;
}

static void close_container(struct writer *w, struct sp_str bracket)
{
    w->depth--;
    if (w->has_some)
        break_line(w);
    add(w, bracket);
    w->has_some = true;
}

static void add_text(struct writer *w, const char *key, struct sp_str text)
{
    begin(w, key);
    w->is_good = w->is_good && sp_json_add_str(w->out, text);
}

static void add_match(struct writer *w, const struct sp_rule_match *m)
{
    begin(w, NULL);
    open_container(w, SP_STR("{"));
    begin(w, "prefixRuleMatch");
    open_container(w, SP_STR("{"));
    begin(w, "matchedPrefix");
    open_container(w, SP_STR("["));
    for (uint32_t i = 0; i < m->prefix.count; i++)
        add_text(w, NULL, m->prefix.items[i]);
    close_container(w, SP_STR("]"));
    add_text(w, "decision", sp_str_of(sp_verdict_name(m->verdict)));
    if (m->resolved_program.p != NULL)
        add_text(w, "resolvedProgram", m->resolved_program);
    if (m->justification.p != NULL)
        add_text(w, "justification", m->justification);
    close_container(w, SP_STR("}"));
    close_container(w, SP_STR("}"));
}

static void add_matches(struct writer *w, const struct sp_rule_matches *m)
{
    open_container(w, SP_STR("["));
    for (uint32_t i = 0; i < m->count; i++)
        add_match(w, &m->items[i]);
    close_container(w, SP_STR("]"));
}

bool sp_rule_matches_add_json(struct sp_buf *out, const struct sp_rule_matches *m)
{
    struct writer w = {.out = out, .is_good = true};

    add_matches(&w, m);
    return w.is_good;
}

bool sp_rules_add_check(struct sp_buf *out, const struct sp_rules *r, struct sp_words command,
                        bool resolves_hosts, bool is_pretty)
{
    struct writer w = {.out = out, .is_pretty = is_pretty, .is_good = true};
    struct sp_rule_matches m = {0};
    enum sp_verdict strictest = SP_VERDICT_ALLOW;

    w.is_good = sp_rules_match(r, command, resolves_hosts, &m);
    open_container(&w, SP_STR("{"));
    begin(&w, "matchedRules");
    add_matches(&w, &m);
    for (uint32_t i = 0; i < m.count; i++)
        if (m.items[i].verdict > strictest)
            strictest = m.items[i].verdict;
    if (m.count > 0)
        add_text(&w, "decision", sp_str_of(sp_verdict_name(strictest)));
    close_container(&w, SP_STR("}"));
    sp_rule_matches_done(&m);
    return w.is_good;
}
