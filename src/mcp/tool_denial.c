/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_denial: what the sandbox denied a command and which part of the policy says so: from what
 * the kernel reported, and from the words of the output, which are only a guess. And
 * explain_denial, which answers the same for a session, a path or a host, with advice.
 */
#include "mcp/tool_denial.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "approve/explain.h"
#include "approve/network.h"
#include "base/auto.h"
#include "base/hostname.h"
#include "base/utf8.h"
#include "engine/job.h"
#include "engine/network_job.h"
#include "mcp/tool.h"
#include "sandbox/denial.h"

#define LINES_MAX         3
#define LAYER_FILES       "landlock/mounts"
#define NO_NETWORK        "the policy gives commands no network"
#define NO_ROUTE          "addresses have no route in a managed network: use a host name, or its proxy"
#define NETWORK_AMENDMENT SP_STR("{\"network\":{\"enabled\":true}}")

/* The environment with this id, or the first one if id.p is NULL; NULL: no such environment. */
static const struct sp_environment_spec *find_environment(const struct sp_mcp *m, struct sp_str id)
{
    const struct sp_manager_options *o = sp_mcp_options(m)->manager;

    for (uint32_t i = 0; i < o->environment_count; i++)
        if (id.p == NULL || sp_str_eq(sp_str_of(o->environments[i].id), id))
            return &o->environments[i];
    return NULL;
}

struct finder {
    struct sp_mcp_denials *d;
    const struct sp_policy *policy; /* of first attempts; NULL: no sandbox */
    const struct sp_fixed_places *fixed;
    bool is_remote;
};

static struct finder make_finder(struct sp_mcp_denials *d, const struct sp_mcp *m,
                                 const struct sp_environment_spec *where)
{
    const struct sp_mcp_options *o = sp_mcp_options(m);
    const bool has_several = where != NULL && o->manager->environment_count > 1;

    return (struct finder){
        d, where != NULL && where->has_own_policy ? where->policy : o->manager->policy, &o->fixed,
        has_several ? where->is_remote : o->is_remote};
}

/* ---- finding ---- */

/* Copies access, target and rule; layer and evidence are literals. amendment n 0: none. */
static bool add_denial(struct finder *f, struct sp_mcp_denial x, struct sp_str amendment)
{
    struct sp_str kept = {0};

    if (f->d->count == SP_MCP_DENIALS_MAX)
        return true;
    if (!sp_arena_text(&f->d->keep, x.access, &x.access) ||
        !sp_arena_text(&f->d->keep, x.target, &x.target) ||
        !sp_arena_text(&f->d->keep, x.rule, &x.rule) ||
        (amendment.n != 0 && !sp_arena_str(&f->d->keep, amendment, &kept)))
        return false;
    x.amendment = kept.p;
    f->d->items[f->d->count++] = x;
    return true;
}

/* The proxy's denials. A rule may allow what is merely not listed. */
static bool add_network_facts(struct finder *f, const struct sp_network_receipt *receipt)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < receipt->denial_count; i++) {
        const struct sp_net_denial *n = &receipt->denials[i];
        auto_buf struct sp_buf target = {0};
        auto_buf struct sp_buf rule = {0};
        auto_buf struct sp_buf amendment = {0};

        ok = sp_buf_printf(&target, "%s:%u", n->host, n->port) && sp_buf_add(&target, "", 1) &&
             sp_buf_printf(&rule, "%s %s", n->host, n->rule) && sp_buf_add(&rule, "", 1) &&
             (n->reason != SP_NETWORK_REASON_NOT_ALLOWED ||
              sp_buf_printf(&amendment,
                            "{\"network_rule\":{\"host\":\"%s\",\"protocol\":\"%s\","
                            "\"decision\":\"allow\"}}",
                            n->host, sp_managed_rule_word(n->protocol))) &&
             add_denial(f,
                        (struct sp_mcp_denial){.access = "connect",
                                               .target = target.data,
                                               .rule = rule.data,
                                               .layer = "network",
                                               .evidence = "proxy"},
                        sp_buf_str(&amendment));
    }
    return ok;
}

static bool add_kernel_facts(struct finder *f, const struct sp_exit *how)
{
    static const char *const network_calls[] = {"socket",  "socketpair", "connect", "bind",
                                                "listen",  "accept",     "accept4", "sendto",
                                                "sendmsg", "sendmmsg"};
    const bool is_managed = sp_profile_managed(&f->policy->profile) != NULL;
    const struct sp_mcp_denial network = {.access = "connect",
                                          .target = "",
                                          .rule = is_managed ? NO_ROUTE : NO_NETWORK,
                                          .layer = "network",
                                          .evidence = "kernel"};
    static const struct sp_mcp_denial killed = {
        .access = "system call",
        .target = "",
        .rule = "the sandbox's filter kills the process that makes it (SIGSYS)",
        .layer = "seccomp",
        .evidence = "kernel"};

    for (uint32_t i = 0; i < how->refusal_count && i < SP_EXIT_REFUSALS; i++) {
        const char *name = sp_denied_call_name(how->refusals[i].call);
        struct sp_mcp_denial x = {
            .access = name,
            .target = "",
            .rule = "the sandbox's filter refuses this system call to every command",
            .layer = "seccomp",
            .evidence = "kernel"};
        struct sp_str amendment = SP_STR("");
        char number[32];

        (void)snprintf(number, sizeof number, "system call %u", (unsigned)how->refusals[i].call);
        if (name == NULL)
            x.access = number;
        for (size_t k = 0; name != NULL && !is_managed && !f->policy->profile.has_network &&
                           k < sizeof network_calls / sizeof network_calls[0];
             k++)
            if (strcmp(name, network_calls[k]) == 0) {
                x.rule = NO_NETWORK;
                amendment = NETWORK_AMENDMENT;
            }
        if (!add_denial(f, x, amendment))
            return false;
    }
    if (how->left_network != 0 &&
        !add_denial(f, network, is_managed ? SP_STR("") : NETWORK_AMENDMENT))
        return false;
    return how->signal != SIGSYS || add_denial(f, killed, SP_STR(""));
}

static bool add_path(struct finder *f, const char *access, const struct sp_explained *x,
                     const char *evidence)
{
    const struct sp_mcp_denial denial = {.access = access,
                                         .target = x->path,
                                         .rule = x->reason.data,
                                         .layer = LAYER_FILES,
                                         .evidence = evidence};
    auto_buf struct sp_buf amendment = {0};
    auto_free char *at = sp_str_dup(sp_str_of(x->real));
    struct stat st;
    char *slash = NULL;

    /* The amendment names the path, or its nearest directory that exists: a missing path cannot be
     * granted, and creating it needs the directory. Never proposes the root. */
    while (at != NULL && at[0] != 0 && lstat(at, &st) < 0 && (slash = strrchr(at, '/')) != NULL)
        *slash = 0;
    const struct sp_str there = {x->real, at != NULL ? strlen(at) : 0};
    return (there.n <= 1 ||
            (sp_buf_printf(&amendment, "{\"file_system\":{\"%s\":[", access) &&
             sp_json_add_str(&amendment, there) && sp_buf_add_str(&amendment, SP_STR("]}}")))) &&
           add_denial(f, denial, sp_buf_str(&amendment));
}

static int explain_policy(const struct finder *f, const char *cwd, const char *path,
                          struct sp_explained *ret, struct sp_err *e)
{
    auto_explainer struct sp_explainer q = {0};
    const int r = sp_explainer_init(&q, f->policy, f->fixed, e);

    return r < 0 ? r : sp_explain_path(&q, cwd, path, ret, e);
}

/* A denial that is only known from the words of the output, or that an executor reported. */
static bool add_words(struct finder *f, const struct sp_mcp_denied *what,
                      const struct sp_denial_facts *facts)
{
    auto_explained struct sp_explained x = {0};
    struct sp_mcp_denial denial = {
        .access = "access", .target = "", .layer = "words", .evidence = "words"};
    auto_free char *cwd = what->cwd.n == 0 ? NULL : sp_str_dup(what->cwd);
    auto_buf struct sp_buf target = {0};
    auto_buf struct sp_buf rule = {0};
    struct sp_err e = {0};

    if (facts->path[0] != 0 && !f->is_remote && explain_policy(f, cwd, facts->path, &x, &e) == 0)
        /* A path that the policy allows was not refused by the sandbox. */
        return (x.can_read && x.can_write) ||
               add_path(f, x.can_read ? "write" : "read", &x, "words");
    if (e.code == SP_E_SYSTEM && e.sys == ENOMEM)
        return false;
    if (facts->path[0] == 0 && f->d->count != 0)
        return true; /* the kernel's report explains the words */
    if (!sp_utf8_add_lossy(&target, sp_str_of(facts->path)) || !sp_buf_add(&target, "", 1) ||
        !(facts->reason == NULL
              ? sp_buf_add_str(&rule, SP_STR("the executor says so"))
              : sp_buf_printf(&rule, "the words of its output say so (%s)", facts->reason)) ||
        !sp_buf_add(&rule, "", 1))
        return false;
    denial.target = target.data;
    denial.rule = rule.data;
    return add_denial(f, denial, SP_STR(""));
}

bool sp_mcp_denials_find(struct sp_mcp_denials *d, const struct sp_mcp *m,
                         const struct sp_mcp_denied *what)
{
    const struct sp_str id = {what->environment,
                              what->environment == NULL ? 0 : strlen(what->environment)};
    struct finder f = make_finder(d, m, find_environment(m, id));
    struct sp_denial_facts facts = {.has_words = true};
    struct sp_denial words;

    if (f.policy == NULL || !what->was_confined)
        return true;
    if (what->network != NULL && !add_network_facts(&f, what->network))
        return false;
    if (what->kernel != NULL && !add_kernel_facts(&f, what->kernel))
        return false;
    if (!what->was_denied)
        return true;
    if (what->denial != NULL)
        return !what->denial->has_words || add_words(&f, what, what->denial);
    /* A remote executor reports a denial without details: search the output. */
    sp_denial_init(&words);
    sp_denial_feed(&words, SP_STREAM_STDOUT, what->output.p, what->output.n);
    facts.reason = sp_denial_reason(&words, what->exit_code);
    memcpy(facts.path, words.path, sizeof facts.path);
    return add_words(&f, what, &facts);
}

/* ---- as text and JSON ---- */

/* Paths are escaped, so that a line stays one line of valid UTF-8. */
static bool add_denial_line(struct sp_buf *out, const struct sp_mcp_denial *x)
{
    return sp_buf_add_str(out, SP_STR("Sandbox denied: ")) &&
           sp_question_add_visible(out, sp_str_of(x->access), false) &&
           (x->target[0] == 0 || (sp_buf_add(out, " ", 1) &&
                                  sp_question_add_visible(out, sp_str_of(x->target), false))) &&
           sp_buf_add_str(out, SP_STR(": ")) &&
           sp_question_add_visible(out, sp_str_of(x->rule), false);
}

bool sp_mcp_denials_add(struct sp_buf *out, const struct sp_mcp_denials *d, bool is_json)
{
    bool ok = !is_json || sp_json_add_value(out, "denials", "[");

    for (uint32_t i = 0; ok && i < d->count && (is_json || i < LINES_MAX); i++) {
        const struct sp_mcp_denial *x = &d->items[i];

        if (!is_json) {
            ok = add_denial_line(out, x) && sp_buf_add(out, "\n", 1);
            continue;
        }
        ok = sp_buf_add_str(out, i == 0 ? SP_STR("{") : SP_STR(",{")) &&
             sp_json_add_member(out, "access", sp_str_of(x->access)) &&
             sp_json_add_member(out, "target", sp_str_of(x->target)) &&
             sp_json_add_member(out, "rule", sp_str_of(x->rule)) &&
             sp_json_add_member(out, "layer", sp_str_of(x->layer)) &&
             sp_json_add_member(out, "evidence", sp_str_of(x->evidence)) &&
             (x->amendment == NULL ||
              sp_json_add_value(out, "proposed_amendment", "%s", x->amendment)) &&
             sp_buf_add(out, "}", 1);
    }
    if (is_json)
        return ok && sp_buf_add(out, "]", 1);
    return ok && (d->count <= LINES_MAX || sp_buf_printf(out, "\xe2\x80\xa6 and %u more\n",
                                                         (unsigned)(d->count - LINES_MAX)));
}

/* ---- explain_denial ---- */

struct explaining {
    struct sp_buf text, structured;
    struct sp_buf verdict; /* members of the structured form */
    bool is_error;
    struct sp_mcp_denials denials;
};

static void free_explaining(struct sp_mcp_run *r)
{
    struct explaining *x = r->data;

    sp_buf_done(&x->text);
    sp_buf_done(&x->structured);
    sp_buf_done(&x->verdict);
    sp_mcp_denials_done(&x->denials);
    free(x);
}

static void tell_explained(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);
    const struct explaining *x = r->data;
    const struct sp_mcp_result result = {.is_error = x->is_error,
                                         .text = sp_buf_str(&x->text),
                                         .structured =
                                             x->is_error ? SP_STR("") : sp_buf_str(&x->structured)};

    sp_mcp_run_done(r, &result);
}

/* All explain functions: false means out of memory; an error for the model is is_error. */
static bool fail_explaining(struct explaining *x, const char *why)
{
    x->is_error = true;
    return sp_buf_add_str(&x->text, sp_str_of(why));
}

static bool add_verdict(struct explaining *x, bool is_allowed, struct sp_str target,
                        struct sp_str rule)
{
    return sp_json_add_value(&x->verdict, "allowed", "%s", is_allowed ? "true" : "false") &&
           sp_json_add_member(&x->verdict, "target", target) &&
           sp_json_add_member(&x->verdict, "rule", rule);
}

static bool add_path_verdict(struct explaining *x, bool can_read, bool can_write,
                             struct sp_str target, struct sp_str rule)
{
    return sp_json_add_value(&x->verdict, "read", "%s", can_read ? "true" : "false") &&
           sp_json_add_value(&x->verdict, "write", "%s", can_write ? "true" : "false") &&
           add_verdict(x, can_read && can_write, target, rule);
}

static bool explain_session(struct explaining *x, const struct sp_mcp_run *r, int id)
{
    struct sp_manager_view v;

    if (!sp_manager_view(r->caller->manager, id, &v)) {
        x->is_error = true;
        return sp_buf_printf(&x->text, "Unknown process id %d. " SP_MCP_UNKNOWN_HINT, id);
    }
    const struct sp_mcp_denied what = {.kernel = v.kernel,
                                       .denial = v.denial,
                                       .was_denied = v.was_denied,
                                       .was_confined = v.was_confined,
                                       .cwd = v.cwd,
                                       .environment = v.environment,
                                       .output = v.head,
                                       .exit_code = v.exit_code,
                                       .network = v.network};
    if (!sp_mcp_denials_find(&x->denials, r->caller->mcp, &what))
        return false;
    if (x->denials.count != 0)
        return true;
    if (!v.has_exited)
        return sp_buf_add_str(&x->text, SP_STR("It still runs: what it was denied is known when it "
                                               "has ended.\n"));
    return sp_buf_add_str(&x->text, SP_STR("Nothing points to the sandbox: what went wrong is in "
                                           "the command's own output (read_output).\n"));
}

/* Where commands of the environment run: absolute, or NULL if only the executor knows. */
static const char *cwd_of(const struct sp_mcp_options *o, const struct sp_environment_spec *where)
{
    if (where != NULL && where->cwd != NULL)
        return where->cwd;
    if (o->cwd != NULL)
        return o->cwd;
    if (o->manager->environment_count != 0 && o->manager->environments[0].cwd != NULL)
        return o->manager->environments[0].cwd;
    return o->manager->policy != NULL ? o->manager->policy->cwd : NULL;
}

static bool explain_path(struct explaining *x, const struct sp_mcp_run *r,
                         const struct sp_environment_spec *where, struct sp_str path)
{
    struct finder f = make_finder(&x->denials, r->caller->mcp, where);
    auto_explained struct sp_explained found = {0};
    auto_free char *text = sp_str_dup(path);
    struct sp_err e = {0};
    char why[512];

    if (text == NULL)
        return false;
    if (path.n == 0 || sp_str_has_nul(path))
        return fail_explaining(x, "`path` is no path");
    /* A shell would expand it, and the answer would be about another file. */
    if (path.p[0] == '~' && (path.n == 1 || path.p[1] == '/'))
        return fail_explaining(x, "`~` is not expanded in `path`: give an absolute path, or ./~ "
                                  "for a file of that name");
    if (f.policy == NULL)
        return add_path_verdict(x, true, true, path, SP_STR("commands run without a sandbox")) &&
               sp_buf_add_str(&x->text, SP_STR("Commands run without a sandbox: nothing is denied "
                                               "to them.\n"));
    if (f.is_remote)
        return fail_explaining(x, "the files are on another host, and only its sandbox knows; ask "
                                  "by session_id about a command that was denied something");
    if (explain_policy(&f, cwd_of(sp_mcp_run_options(r), where), text, &found, &e) < 0)
        return !(e.code == SP_E_SYSTEM && e.sys == ENOMEM) &&
               fail_explaining(x, sp_error_text(&e, why, sizeof why));
    return (found.can_read || add_path(&f, "read", &found, "policy")) &&
           (found.can_write || add_path(&f, "write", &found, "policy")) &&
           add_path_verdict(x, found.can_read, found.can_write, sp_str_of(found.path),
                            sp_str_of(found.reason.data)) &&
           sp_question_add_visible(&x->text, sp_str_of(found.path), false) &&
           sp_buf_printf(&x->text, "\nread: %s, write: %s, by ", found.can_read ? "yes" : "no",
                         found.can_write ? "yes" : "no") &&
           sp_question_add_visible(&x->text, sp_buf_str(&found.reason), false) &&
           sp_buf_add(&x->text, "\n", 1);
}

/* HOST or HOST:PORT; without a port it is 443. */
static const char *read_host_port(struct sp_str text, struct sp_hostname *ret, uint16_t *ret_port)
{
    const char *colon = text.p == NULL ? NULL : memrchr(text.p, ':', text.n);
    const bool is_bare_v6 =
        colon != NULL && memchr(text.p, ':', (size_t)(colon - text.p)) != NULL && colon[-1] != ']';
    uint64_t port = 443;

    if (text.n != 0 && memmem(text.p, text.n, "://", 3) != NULL)
        return "`host` is a name or an address, perhaps with :PORT, and no URL";
    if (colon != NULL && !is_bare_v6) {
        const struct sp_str digits = {colon + 1, (size_t)(text.p + text.n - colon - 1)};

        if (!sp_str_to_u64(digits, UINT16_MAX, &port) || port == 0)
            return "the port of `host` is no number from 1 to 65535";
        text.n = (size_t)(colon - text.p);
    }
    *ret_port = (uint16_t)port;
    return sp_hostname_read(text, ret);
}

/* The verdict of a managed network, without looking the name up. */
struct host_verdict {
    bool is_allowed, is_final; /* final: no person can allow it */
    const char *rule;          /* behind the name of the host */
    struct sp_buf pattern;     /* the pattern of the profile that says so; empty: none */
};

static bool judge_host(const struct sp_mcp_run *r, const struct sp_network_policy *lists,
                       const struct sp_hostname *host, uint16_t port, struct host_verdict *ret)
{
    static const char *const by_lists[] = {
        [SP_STANDING_UNLISTED] = "is not in the allowed_domains",
        [SP_STANDING_LISTED] = "is allowed by the domains of the profile",
        [SP_STANDING_LITERAL] = "is allowed by the domains of the profile",
        [SP_STANDING_DENIED] = "is denied by the domains of the profile",
        [SP_STANDING_LOCAL] = "is not a public address, and the profile does not list it itself",
        [SP_STANDING_METHOD] = "needs plain HTTP to read only, in mode limited",
        [SP_STANDING_MITM] = "needs HTTPS, which mode limited refuses",
    };
    const struct sp_domain *domain = NULL;
    enum sp_decider by = SP_DECIDER_NONE;
    const enum sp_network_word word =
        sp_network_word(sp_manager_approvals(r->caller->manager), host, &by);
    const enum sp_network_way way = port == 80    ? SP_NETWORK_WAY_HTTP
                                    : port == 443 ? SP_NETWORK_WAY_TUNNEL
                                                  : SP_NETWORK_WAY_TCP;
    const enum sp_network_standing standing =
        sp_network_policy_judge(lists, host, port, way, SP_STR("GET"), &domain);

    ret->is_allowed = standing == SP_STANDING_LISTED || standing == SP_STANDING_LITERAL;
    ret->is_final = !ret->is_allowed && standing != SP_STANDING_UNLISTED;
    ret->rule = by_lists[standing];
    if (word == SP_NETWORK_DENY) {
        ret->is_allowed = false;
        ret->is_final = true;
        ret->rule =
            by == SP_DECIDER_RULE ? "is denied by a network_rule" : "was denied in this session";
        return true;
    }
    if (word == SP_NETWORK_ALLOW && standing == SP_STANDING_UNLISTED) {
        ret->is_allowed = true;
        ret->rule =
            by == SP_DECIDER_RULE ? "is allowed by a network_rule" : "was allowed in this session";
        return true;
    }
    return domain == NULL || sp_domain_add_text(domain, &ret->pattern);
}

static bool explain_managed(struct explaining *x, const struct sp_mcp_run *r, struct finder *f,
                            const struct sp_hostname *host, uint16_t port)
{
    struct host_verdict v = {0};
    auto_buf struct sp_buf target = {0};
    auto_buf struct sp_buf rule = {0};
    auto_buf struct sp_buf amendment = {0};
    bool ok = judge_host(r, f->policy->profile.managed, host, port, &v) &&
              sp_buf_printf(&target, "%s:%u", host->text, port) && sp_buf_add(&target, "", 1) &&
              sp_buf_printf(&rule, "%s %s", host->text, v.rule) &&
              (v.pattern.len == 0 || (sp_buf_add_str(&rule, SP_STR(": ")) &&
                                      sp_buf_add_str(&rule, sp_buf_str(&v.pattern)))) &&
              sp_buf_add(&rule, "", 1) &&
              add_verdict(x, v.is_allowed, sp_str_of(target.data), sp_str_of(rule.data));

    sp_buf_done(&v.pattern);
    if (ok && v.is_allowed)
        return sp_buf_printf(&x->text, "Commands may reach %s: %s.\n", target.data, rule.data);
    ok =
        ok && (v.is_final || sp_buf_printf(&amendment,
                                           "{\"network_rule\":{\"host\":\"%s\",\"protocol\":\"%s\","
                                           "\"decision\":\"allow\"}}",
                                           host->text,
                                           port == 80    ? "http"
                                           : port == 443 ? "https"
                                                         : "socks5_tcp"));
    return ok && add_denial(f,
                            (struct sp_mcp_denial){.access = "connect",
                                                   .target = target.data,
                                                   .rule = rule.data,
                                                   .layer = "network",
                                                   .evidence = "policy"},
                            sp_buf_str(&amendment));
}

static bool explain_host(struct explaining *x, const struct sp_mcp_run *r,
                         const struct sp_environment_spec *where, struct sp_str text)
{
    struct finder f = make_finder(&x->denials, r->caller->mcp, where);
    struct sp_mcp_denial no_network = {
        .access = "connect", .rule = NO_NETWORK, .layer = "network", .evidence = "policy"};
    struct sp_hostname host;
    uint16_t port;
    const char *wrong = read_host_port(text, &host, &port);

    if (wrong != NULL)
        return fail_explaining(x, wrong);
    if (f.policy == NULL || f.policy->profile.has_network)
        return add_verdict(x, true, sp_str_of(host.text), SP_STR("commands may use the network")) &&
               sp_buf_add_str(&x->text, SP_STR("Commands may use the network: the sandbox denies "
                                               "them no host.\n"));
    if (sp_profile_managed(&f.policy->profile) != NULL)
        return explain_managed(x, r, &f, &host, port);
    no_network.target = host.text;
    return add_verdict(x, false, sp_str_of(host.text), SP_STR(NO_NETWORK)) &&
           add_denial(&f, no_network, NETWORK_AMENDMENT);
}

static bool add_other_way(struct sp_buf *out, const struct sp_policy *policy,
                          const struct sp_mcp_denial *x)
{
    bool ok = true;

    if (strcmp(x->layer, "network") == 0)
        return sp_buf_add_str(out, SP_STR("do without the network"));
    if (strcmp(x->layer, "seccomp") == 0)
        return sp_buf_printf(out, "do without %s", x->access);
    ok = sp_buf_add_str(out, SP_STR("work inside the workspace"));
    if (policy == NULL || policy->root_count == 0)
        return ok;
    for (size_t i = 0; ok && i < policy->root_count; i++)
        ok = sp_buf_add_str(out, i == 0 ? SP_STR(" (") : SP_STR(", ")) &&
             sp_question_add_visible(out, sp_str_of(policy->roots[i]), false);
    return ok && sp_buf_add(out, ")", 1);
}

/* About a host of a managed network: only what is merely not listed can be asked for. */
static bool add_host_advice(struct sp_buf *out, const struct sp_mcp_run *r,
                            const struct sp_mcp_denial *x)
{
    const struct sp_network_policy *lists = sp_mcp_run_options(r)->manager->policy->profile.managed;
    const bool asks =
        lists->asks && !r->has_no_approver &&
        sp_approvals_policy(sp_manager_approvals(r->caller->manager))->kind != SP_APPROVAL_NEVER;

    if (!sp_buf_add_str(out, SP_STR("use a host that is allowed")))
        return false;
    if (x->amendment == NULL)
        return sp_buf_add_str(out, SP_STR("; no person can allow this one from here: it takes "
                                          "another profile or rule in the configuration."));
    return sp_buf_printf(out,
                         asks
                             ? ", or repeat the command: a person is asked, and may allow the "
                               "host for good (%s)."
                             : "; nobody is asked here, so this one needs `domains` of the profile "
                               "or a rule in rules/default.rules: %s.",
                         x->amendment);
}

static bool add_advice(struct sp_buf *out, const struct sp_mcp_run *r,
                       const struct sp_mcp_denials *d)
{
    const struct sp_mcp_options *o = sp_mcp_run_options(r);
    const struct sp_approval_policy *policy =
        sp_approvals_policy(sp_manager_approvals(r->caller->manager));
    const char *amendment = NULL;

    if (strcmp(d->items[0].layer, "network") == 0 && o->manager->policy != NULL &&
        sp_profile_managed(&o->manager->policy->profile) != NULL)
        return add_host_advice(out, r, &d->items[0]);
    for (uint32_t i = 0; amendment == NULL && i < d->count; i++)
        amendment = d->items[i].amendment;
    if (!add_other_way(out, o->manager->policy, &d->items[0]))
        return false;
    if (policy->kind == SP_APPROVAL_NEVER)
        return sp_buf_add_str(out, SP_STR("; no person is asked under this approval policy, so "
                                          "anything else needs another configuration."));
    if (r->has_no_approver)
        return sp_buf_add_str(out, SP_STR("; this host cannot ask a person and no approver is "
                                          "configured (--approver), so anything else is refused."));
    if (amendment != NULL && o->tools.has_additional_permissions &&
        policy->kind == SP_APPROVAL_ON_REQUEST) /* the only policy that asks for permissions */
        return sp_buf_printf(out,
                             ", or ask: repeat the command with sandbox_permissions "
                             "\"with_additional_permissions\" and additional_permissions %s.",
                             amendment);
    return sp_buf_add_str(out, SP_STR(", or ask: repeat the command with sandbox_permissions "
                                      "\"require_escalated\" and a justification."));
}

static bool add_explanation(struct explaining *x, const struct sp_mcp_run *r)
{
    const struct sp_mcp_denials *d = &x->denials;
    auto_buf struct sp_buf advice = {0};

    for (uint32_t i = 0; i < d->count; i++)
        if (!add_denial_line(&x->text, &d->items[i]) ||
            !sp_buf_printf(&x->text, " [%s; known by: %s]\n", d->items[i].layer,
                           d->items[i].evidence))
            return false;
    if (!sp_buf_add(&x->structured, "{", 1) ||
        !sp_buf_add_str(&x->structured, sp_buf_str(&x->verdict)) ||
        !sp_mcp_denials_add(&x->structured, d, true))
        return false;
    if (d->count != 0 &&
        !(add_advice(&advice, r, d) && sp_buf_add_str(&x->text, SP_STR("What to do: ")) &&
          sp_buf_add_str(&x->text, sp_buf_str(&advice)) && sp_buf_add(&x->text, "\n", 1) &&
          sp_json_add_member(&x->structured, "what_to_do", sp_buf_str(&advice))))
        return false;
    return sp_buf_add(&x->structured, "}", 1);
}

static int start_explain_denial(struct sp_mcp_run *r, struct sp_err *e)
{
    bool has_id = false;
    int id = 0;
    struct sp_str path = {0};
    struct sp_str host = {0};
    struct sp_str environment_id = {0};
    const struct sp_slot slots[] = {
        SP_SLOT(I32, "session_id", .to = &id, .has = &has_id),
        SP_SLOT(STRING, "path", .to = &path),
        SP_SLOT(STRING, "host", .to = &host),
        SP_SLOT(STRING, "environment_id", .to = &environment_id),
    };

    if (sp_slots_read(&r->arguments, SP_SLOTS(slots), e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    if (has_id + (path.p != NULL) + (host.p != NULL) != 1)
        return sp_mcp_tool_refuse(r, e, "give one of `session_id`, `path` and `host`");
    const struct sp_environment_spec *where = find_environment(r->caller->mcp, environment_id);
    if (where == NULL)
        return sp_mcp_tool_refuse(r, e, "unknown turn environment id `" SP_STR_FMT "`",
                                  SP_STR_ARG(environment_id));
    struct explaining *x = calloc(1, sizeof *x);
    if (x == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain a denial");
    r->data = x;
    r->free_data = free_explaining;
    const bool ok = has_id           ? explain_session(x, r, id)
                    : path.p != NULL ? explain_path(x, r, where, path)
                                     : explain_host(x, r, where, host);
    if (!ok || !(x->is_error || add_explanation(x, r)))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain a denial");
    sp_loop_defer(r->caller->loop, &r->deferred, tell_explained);
    return 0;
}

static const struct sp_tool_parameter explain_parameters[] = {
    SP_PARAMETER("session_id", "integer", "What was this session denied?"),
    SP_PARAMETER("path", "string", "May commands read and write this path?"),
    SP_PARAMETER("host", "string", "May commands connect to this host?"),
    SP_MCP_ENVIRONMENT_ID,
    {0},
};

const struct sp_mcp_tool sp_mcp_tool_explain = {
    .name = "explain_denial",
    .start = start_explain_denial,
    .title = "Explain what the sandbox denies",
    .description = "Says what the sandbox denied a session, or whether commands may use a path or "
                   "a host; by which rule, and what to do. Give one argument.",
    .parameters = explain_parameters,
    .is_read_only = true,
    .is_idempotent = true,
    .result = "denials:array allowed:boolean read:boolean write:boolean target:string "
              "rule:string what_to_do:string note:string",
};
