/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain_denial: what the sandbox has denied a session, or would deny a path or a host; what in
 * the policy says so, and what to do about it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "mcp/tool_priv.h"

struct explaining {
    struct sp_buf text, structured;
    struct sp_buf verdict; /* members of the structured form, each with its comma */
    bool is_error;
};

static void free_explaining(struct sp_mcp_run *r)
{
    struct explaining *x = r->data;

    sp_buf_done(&x->text);
    sp_buf_done(&x->structured);
    sp_buf_done(&x->verdict);
    free(x);
}

static void tell(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);
    const struct explaining *x = r->data;
    const struct sp_mcp_result result = {.is_error = x->is_error,
                                         .text = sp_mcp_view(&x->text),
                                         .structured = x->is_error ? SP_STR("")
                                                                   : sp_mcp_view(&x->structured)};

    sp_mcp_run_done(r, &result);
}

/* ---- yes or no ---- */

static const char *word(bool b)
{
    return b ? "true" : "false";
}

/* rule: what says so. */
static bool add_verdict(struct explaining *x, bool is_allowed, struct sp_str target,
                        struct sp_str rule)
{
    return sp_buf_printf(&x->verdict, "\"allowed\":%s,\"target\":", word(is_allowed)) &&
           sp_json_add_str(&x->verdict, target) &&
           sp_buf_add_str(&x->verdict, SP_STR(",\"rule\":")) &&
           sp_json_add_str(&x->verdict, rule) && sp_buf_add(&x->verdict, ",", 1);
}

static bool add_path_verdict(struct explaining *x, bool can_read, bool can_write,
                             struct sp_str target, struct sp_str rule)
{
    return sp_buf_printf(&x->verdict, "\"read\":%s,\"write\":%s,", word(can_read),
                         word(can_write)) &&
           add_verdict(x, can_read && can_write, target, rule);
}

/* ---- what to do ---- */

static bool add_workspace(struct sp_buf *out, const struct sp_policy *p)
{
    bool ok = true;

    for (size_t i = 0; ok && p != NULL && i < p->root_count; i++)
        ok = sp_buf_add_str(out, i == 0 ? SP_STR(" (") : SP_STR(", ")) &&
             sp_question_add_visible(out, sp_str_of(p->roots[i]), false);
    return ok && (p == NULL || p->root_count == 0 || sp_buf_add(out, ")", 1));
}

static bool add_other_way(struct sp_buf *out, const struct sp_mcp_options *o,
                          const struct sp_mcp_denial *x)
{
    if (strcmp(x->layer, "network") == 0)
        return sp_buf_add_str(out, SP_STR("do without the network"));
    if (strcmp(x->layer, "seccomp") == 0)
        return sp_buf_printf(out, "do without %s", x->access);
    return sp_buf_add_str(out, SP_STR("work inside the workspace")) &&
           add_workspace(out, o->manager->policy);
}

static bool add_advice(struct sp_buf *out, const struct sp_mcp_run *r,
                       const struct sp_mcp_denials *d)
{
    const struct sp_mcp_options *o = sp_mcp_run_options(r);
    const struct sp_approval_policy *policy =
        sp_approvals_policy(sp_manager_approvals(r->caller->manager));
    const char *amendment = NULL;

    for (uint32_t i = 0; amendment == NULL && i < d->count; i++)
        amendment = d->items[i].amendment;
    if (!add_other_way(out, o, &d->items[0]))
        return false;
    if (policy->kind == SP_APPROVAL_NEVER)
        return sp_buf_add_str(out, SP_STR("; no person is asked under this approval policy, so "
                                          "anything else needs another configuration."));
    if (r->nobody_answers)
        return sp_buf_add_str(out, SP_STR("; this host cannot ask a person and no approver is "
                                          "configured (--approver), so anything else is refused."));
    if (amendment != NULL && o->tools.has_additional_permissions &&
        policy->kind == SP_APPROVAL_ON_REQUEST) /* no other asks for that */
        return sp_buf_printf(out,
                             ", or ask: repeat the command with sandbox_permissions "
                             "\"with_additional_permissions\" and additional_permissions %s.",
                             amendment);
    return sp_buf_add_str(out, SP_STR(", or ask: repeat the command with sandbox_permissions "
                                      "\"require_escalated\" and a justification."));
}

static bool say_what_to_do(struct explaining *x, const struct sp_mcp_run *r,
                           const struct sp_mcp_denials *d)
{
    auto_buf struct sp_buf advice = {0};

    return add_advice(&advice, r, d) && sp_buf_add_str(&x->text, SP_STR("What to do: ")) &&
           sp_buf_add_str(&x->text, sp_mcp_view(&advice)) && sp_buf_add(&x->text, "\n", 1) &&
           sp_buf_add_str(&x->structured, SP_STR(",\"what_to_do\":")) &&
           sp_json_add_str(&x->structured, sp_mcp_view(&advice));
}

static bool add_denials(struct explaining *x, const struct sp_mcp_run *r,
                        const struct sp_mcp_denials *d)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (!sp_buf_add_str(&x->text, SP_STR("Sandbox denied: ")) ||
            !sp_mcp_denial_add(&x->text, &d->items[i]) ||
            !sp_buf_printf(&x->text, " [%s; known by: %s]\n", d->items[i].layer,
                           d->items[i].evidence))
            return false;
    if (!sp_buf_add(&x->structured, "{", 1) ||
        !sp_buf_add_str(&x->structured, sp_mcp_view(&x->verdict)) ||
        !sp_mcp_denials_add_json(&x->structured, d))
        return false;
    return (d->count == 0 || say_what_to_do(x, r, d)) && sp_buf_add(&x->structured, "}", 1);
}

/* ---- of what ---- */

static bool explain_session(struct explaining *x, const struct sp_mcp_run *r, int id,
                            struct sp_mcp_denials *d)
{
    struct sp_manager_view v;

    if (!sp_manager_view(r->caller->manager, id, &v)) {
        x->is_error = true;
        return sp_buf_printf(&x->text, "Unknown process id %d. " SP_MCP_UNKNOWN_HINT, id);
    }
    const struct sp_mcp_denied what = {.kernel = v.kernel,
                                       .denial = v.denial,
                                       .was_denied = v.was_denied,
                                       .cwd = v.cwd,
                                       .environment = v.environment,
                                       .output = v.head,
                                       .exit_code = v.exit_code};
    if (!sp_mcp_denials_find(d, r->caller->mcp, &what))
        return false;
    if (d->count != 0)
        return true;
    if (!v.has_exited)
        return sp_buf_add_str(&x->text, SP_STR("It still runs: what it was denied is known when it "
                                               "has ended.\n"));
    return sp_buf_add_str(&x->text, SP_STR("Nothing points to the sandbox: what went wrong is in "
                                           "the command's own output (read_output).\n"));
}

static bool say_wrong(struct explaining *x, const char *why)
{
    x->is_error = true;
    return sp_buf_add_str(&x->text, sp_str_of(why));
}

static bool explain_path(struct explaining *x, const struct sp_mcp_run *r,
                         const struct sp_environment_spec *where, struct sp_str path,
                         struct sp_mcp_denials *d)
{
    const struct sp_mcp *m = r->caller->mcp;
    struct sp_explained found __attribute__((cleanup(sp_explained_done))) = {0};
    auto_free char *text = sp_mcp_tool_copy(path);
    struct sp_err e = {0};
    char why[512];

    if (text == NULL)
        return false;
    if (path.n == 0 || sp_str_has_nul(path))
        return say_wrong(x, "`path` is no path");
    if (sp_mcp_tool_policy(m, where) == NULL)
        return add_path_verdict(x, true, true, path, SP_STR("commands run without a sandbox")) &&
               sp_buf_add_str(&x->text, SP_STR("Commands run without a sandbox: nothing is denied "
                                               "to them.\n"));
    if (sp_mcp_tool_is_remote(m, where))
        return say_wrong(x, "the files are on another host, and only its sandbox knows; ask by "
                            "session_id about a command that was denied something");
    if (sp_mcp_denials_of_path(d, m, where, text, &found, &e) < 0)
        return !(e.code == SP_E_SYSTEM && e.sys == ENOMEM) &&
               say_wrong(x, sp_error_text(&e, why, sizeof why));
    return add_path_verdict(x, found.can_read, found.can_write, sp_str_of(found.path),
                            sp_str_of(found.reason.data)) &&
           sp_question_add_visible(&x->text, sp_str_of(found.path), false) &&
           sp_buf_printf(&x->text, "\nread: %s, write: %s, by ", found.can_read ? "yes" : "no",
                         found.can_write ? "yes" : "no") &&
           sp_question_add_visible(&x->text, sp_mcp_view(&found.reason), false) &&
           sp_buf_add(&x->text, "\n", 1);
}

/* The last rule of a host wins. */
static const char *rule_of_host(const struct sp_rules *rules, struct sp_str host,
                                struct sp_network_rule *ret)
{
    struct sp_network_rule one;
    const char *found = NULL;

    for (uint32_t i = 0; rules != NULL && sp_rules_network(rules, i, &one); i++)
        if (sp_str_eq(one.host, host)) {
            *ret = one;
            found = "";
        }
    return found;
}

static bool explain_host(struct explaining *x, const struct sp_mcp_run *r,
                         const struct sp_environment_spec *where, struct sp_str host,
                         struct sp_mcp_denials *d)
{
    const struct sp_mcp_options *o = sp_mcp_run_options(r);
    const struct sp_policy *policy = sp_mcp_tool_policy(r->caller->mcp, where);
    auto_free char *room = calloc(1, host.n + 1);
    auto_buf struct sp_buf rule = {0};
    struct sp_network_rule found;
    struct sp_str normal = {0};

    if (room == NULL)
        return false;
    const char *wrong = sp_rules_normal_host(host, room, &normal);
    if (wrong != NULL)
        return say_wrong(x, wrong);
    if (policy == NULL || policy->profile.has_network)
        return add_verdict(x, true, normal, SP_STR("commands may use the network")) &&
               sp_buf_add_str(&x->text, SP_STR("Commands may use the network: the sandbox denies "
                                               "them no host.\n"));
    room[normal.n] = 0;
    if (!sp_buf_add_str(&rule, SP_STR("the policy gives commands no network")) ||
        (rule_of_host(o->manager->approvals.rules, normal, &found) != NULL &&
         !sp_buf_printf(&rule, "; a rule for this host says " SP_STR_FMT,
                        SP_STR_ARG(found.decision))) ||
        !sp_buf_add(&rule, "", 1))
        return false;
    return add_verdict(x, false, normal, sp_str_of(rule.data)) &&
           sp_mcp_denials_of_host(d, r->caller->mcp, normal.p, rule.data);
}

/* ---- the beginning ---- */

struct asked {
    bool has_id;
    int id;
    struct sp_str path, host, environment_id;
};

static bool explain(struct explaining *x, const struct sp_mcp_run *r, const struct asked *a)
{
    struct sp_mcp_denials d __attribute__((cleanup(sp_mcp_denials_done))) = {0};
    const struct sp_environment_spec *where =
        sp_mcp_tool_environment(r->caller->mcp, a->environment_id);
    const bool ok = a->has_id           ? explain_session(x, r, a->id, &d)
                    : a->path.p != NULL ? explain_path(x, r, where, a->path, &d)
                                        : explain_host(x, r, where, a->host, &d);

    return ok && (x->is_error || add_denials(x, r, &d));
}

int sp_mcp_tool_explain(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct asked asked = {0};
    const struct sp_slot slots[] = {
        {.name = "session_id", .type = SP_SLOT_I32, .to = &asked.id, .has = &asked.has_id},
        {.name = "path", .type = SP_SLOT_STRING, .to = &asked.path},
        {.name = "host", .type = SP_SLOT_STRING, .to = &asked.host},
        {.name = "environment_id", .type = SP_SLOT_STRING, .to = &asked.environment_id},
    };
    const struct sp_slots all = {.items = slots, .count = sizeof slots / sizeof slots[0]};

    if (sp_mcp_tool_read_arguments(&a, arguments, all, e) < 0)
        return sp_mcp_tool_refuse_arguments(r, e);
    if (asked.has_id + (asked.path.p != NULL) + (asked.host.p != NULL) != 1)
        return sp_mcp_tool_refuse(r, e, "give one of `session_id`, `path` and `host`");
    if (sp_mcp_tool_environment(r->caller->mcp, asked.environment_id) == NULL)
        return sp_mcp_tool_refuse(r, e, "unknown turn environment id `" SP_STR_FMT "`",
                                  SP_STR_ARG(asked.environment_id));
    struct explaining *x = calloc(1, sizeof *x);
    if (x == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain a denial");
    r->data = x;
    r->free_data = free_explaining;
    if (!explain(x, r, &asked))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain a denial");
    sp_loop_defer(sp_mcp_run_options(r)->loop, &r->deferred, tell);
    return 0;
}
