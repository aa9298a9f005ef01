/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox has denied a command, and what in the policy says so: from what the kernel told,
 * and from the words of its output, which are a guess.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "approve/explain.h"
#include "base/auto.h"
#include "base/utf8.h"
#include "engine/denied.h"
#include "mcp/tool_priv.h"
#include "sandbox/denial.h"

#define LINES_MAX   3
#define LAYER_FILES "landlock/mounts"

struct finder {
    struct sp_mcp_denials *d;
    const struct sp_policy *policy; /* of first attempts */
    const struct sp_fixed_places *fixed;
    bool is_remote;
};

void sp_mcp_denials_done(struct sp_mcp_denials *d)
{
    sp_keep_done(&d->keep);
    *d = (struct sp_mcp_denials){0};
}

/* Copies what is not a literal. `amendment` is the buffer's text; empty: none. */
static bool add(struct finder *f, struct sp_mcp_denial x, const struct sp_buf *amendment)
{
    struct sp_str kept = {0};

    if (f->d->count == SP_MCP_DENIALS_MAX)
        return true;
    if (!sp_keep_text(&f->d->keep, x.access, &x.access) ||
        !sp_keep_text(&f->d->keep, x.target, &x.target) ||
        !sp_keep_text(&f->d->keep, x.rule, &x.rule) ||
        (amendment != NULL && amendment->len != 0 &&
         !sp_keep_str(&f->d->keep, sp_mcp_view(amendment), &kept)))
        return false;
    x.amendment = kept.p;
    f->d->items[f->d->count++] = x;
    return true;
}

/* ---- what the kernel told ---- */

static bool is_about_network(const char *call)
{
    static const char *const calls[] = {"socket", "socketpair", "connect", "bind",    "listen",
                                        "accept", "accept4",    "sendto",  "sendmsg", "sendmmsg"};

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (strcmp(call, calls[i]) == 0)
            return true;
    return false;
}

static bool add_network_amendment(struct sp_buf *out)
{
    return sp_buf_add_str(out, SP_STR("{\"network\":{\"enabled\":true}}"));
}

static bool add_call(struct finder *f, const struct sp_refusal *refusal)
{
    const char *name = sp_denied_call_name(refusal->call);
    auto_buf struct sp_buf amendment = {0};
    char number[32];

    (void)snprintf(number, sizeof number, "system call %u", (unsigned)refusal->call);
    const bool is_network =
        name != NULL && is_about_network(name) && !f->policy->profile.has_network;
    if (is_network && !add_network_amendment(&amendment))
        return false;
    const struct sp_mcp_denial x = {
        .access = name != NULL ? name : number,
        .target = "",
        .rule = is_network ? "the policy gives commands no network"
                           : "the sandbox's filter refuses this system call to every command",
        .layer = "seccomp",
        .evidence = "kernel"};
    return add(f, x, &amendment);
}

static bool add_kernel(struct finder *f, const struct sp_exit *how)
{
    static const struct sp_mcp_denial left = {.access = "connect",
                                              .target = "",
                                              .rule = "the policy gives commands no network",
                                              .layer = "network",
                                              .evidence = "kernel"};
    static const struct sp_mcp_denial ended = {
        .access = "system call",
        .target = "",
        .rule = "the sandbox's filter ends whoever makes it (SIGSYS)",
        .layer = "seccomp",
        .evidence = "kernel"};
    auto_buf struct sp_buf amendment = {0};

    for (uint32_t i = 0; i < how->refusal_count && i < SP_EXIT_REFUSALS; i++)
        if (!add_call(f, &how->refusals[i]))
            return false;
    if (how->left_network != 0 && !(add_network_amendment(&amendment) && add(f, left, &amendment)))
        return false;
    return how->signal != SIGSYS || add(f, ended, NULL);
}

/* ---- a path ---- */

/* What is not there cannot be granted: who is to make it needs the directory. n 0: none but the
 * root, which nobody should be asked for. */
static struct sp_str nearest_there(const char *path)
{
    auto_free char *at = sp_mcp_tool_copy(sp_str_of(path));
    struct stat st;
    char *slash = NULL;

    while (at != NULL && at[0] != 0 && lstat(at, &st) < 0 && (slash = strrchr(at, '/')) != NULL)
        *slash = 0;
    const size_t n = at != NULL ? strlen(at) : 0;
    return (struct sp_str){path, n > 1 ? n : 0};
}

static bool add_path_amendment(struct sp_buf *out, const char *access, const char *path)
{
    const struct sp_str there = nearest_there(path);

    return there.n == 0 || (sp_buf_printf(out, "{\"file_system\":{\"%s\":[", access) &&
                            sp_json_add_str(out, there) && sp_buf_add_str(out, SP_STR("]}}")));
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

    return add_path_amendment(&amendment, access, x->real) && add(f, denial, &amendment);
}

static int explain(const struct finder *f, const char *cwd, const char *path,
                   struct sp_explained *ret, struct sp_err *e)
{
    struct sp_explainer *q = NULL;
    int r = sp_explainer_new(f->policy, f->fixed, &q, e);

    if (r == 0)
        r = sp_explain_path(q, cwd, path, ret, e);
    sp_explainer_free(q);
    return r;
}

/* ---- what its output says ---- */

/* Who runs it elsewhere tells that it was denied something, not what: there is only its output. */
static struct sp_denial_facts read_words(struct sp_str output, int exit_code)
{
    struct sp_denial_facts facts = {.has_words = true};
    struct sp_denial words;

    sp_denial_init(&words);
    sp_denial_feed(&words, SP_STREAM_STDOUT, output.p, output.n);
    facts.reason = sp_denial_reason(&words, exit_code);
    memcpy(facts.path, words.path, sizeof facts.path);
    return facts;
}

static bool add_rule(struct sp_buf *out, const char *reason)
{
    return (reason == NULL ? sp_buf_add_str(out, SP_STR("the executor says so"))
                           : sp_buf_printf(out, "the words of its output say so (%s)", reason)) &&
           sp_buf_add(out, "", 1);
}

static bool add_words(struct finder *f, const struct sp_mcp_denied *what,
                      const struct sp_denial_facts *facts)
{
    struct sp_explained x __attribute__((cleanup(sp_explained_done))) = {0};
    struct sp_mcp_denial denial = {
        .access = "access", .target = "", .layer = "words", .evidence = "words"};
    auto_free char *cwd = what->cwd.n == 0 ? NULL : sp_mcp_tool_copy(what->cwd);
    auto_buf struct sp_buf target = {0};
    auto_buf struct sp_buf rule = {0};
    struct sp_err e = {0};

    if (facts->path[0] != 0 && !f->is_remote && explain(f, cwd, facts->path, &x, &e) == 0)
        /* What the policy allows was refused by somebody else. */
        return (x.can_read && x.can_write) ||
               add_path(f, x.can_read ? "write" : "read", &x, "words");
    if (e.code == SP_E_SYSTEM && e.sys == ENOMEM)
        return false;
    if (facts->path[0] == 0 && f->d->count != 0)
        return true; /* the kernel has told what they are about */
    if (!sp_utf8_add_lossy(&target, sp_str_of(facts->path)) || !sp_buf_add(&target, "", 1) ||
        !add_rule(&rule, facts->reason))
        return false;
    denial.target = target.data;
    denial.rule = rule.data;
    return add(f, denial, NULL);
}

/* ---- all of it ---- */

static struct finder finder(struct sp_mcp_denials *d, const struct sp_mcp *m,
                            const struct sp_environment_spec *where)
{
    return (struct finder){d, sp_mcp_tool_policy(m, where), &sp_mcp_options(m)->fixed,
                           sp_mcp_tool_is_remote(m, where)};
}

bool sp_mcp_denials_find(struct sp_mcp_denials *d, const struct sp_mcp *m,
                         const struct sp_mcp_denied *what)
{
    const struct sp_str id = {what->environment,
                              what->environment == NULL ? 0 : strlen(what->environment)};
    struct finder f = finder(d, m, sp_mcp_tool_environment(m, id));

    if (f.policy == NULL)
        return true;
    if (what->kernel != NULL && !add_kernel(&f, what->kernel))
        return false;
    if (!what->was_denied)
        return true;
    if (what->denial != NULL)
        return !what->denial->has_words || add_words(&f, what, what->denial);
    const struct sp_denial_facts facts = read_words(what->output, what->exit_code);
    return add_words(&f, what, &facts);
}

int sp_mcp_denials_of_path(struct sp_mcp_denials *d, const struct sp_mcp *m,
                           const struct sp_environment_spec *where, const char *path,
                           struct sp_explained *ret, struct sp_err *e)
{
    struct finder f = finder(d, m, where);
    const int r = explain(&f, where != NULL && where->cwd != NULL ? where->cwd : sp_mcp_tool_cwd(m),
                          path, ret, e);

    if (r < 0)
        return r;
    if ((!ret->can_read && !add_path(&f, "read", ret, "policy")) ||
        (!ret->can_write && !add_path(&f, "write", ret, "policy")))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain a denial");
    return 0;
}

bool sp_mcp_denials_of_host(struct sp_mcp_denials *d, const struct sp_mcp *m, const char *host,
                            const char *rule)
{
    struct finder f = finder(d, m, NULL);
    auto_buf struct sp_buf amendment = {0};
    const struct sp_mcp_denial x = {.access = "connect",
                                    .target = host,
                                    .rule = rule,
                                    .layer = "network",
                                    .evidence = "policy"};

    return add_network_amendment(&amendment) && add(&f, x, &amendment);
}

/* ---- told ---- */

static bool add_member(struct sp_buf *out, const char *name, const char *value)
{
    return sp_buf_printf(out, "\"%s\":", name) && sp_json_add_str(out, sp_str_of(value));
}

static bool add_json(struct sp_buf *out, const struct sp_mcp_denial *x)
{
    return sp_buf_add(out, "{", 1) && add_member(out, "access", x->access) &&
           sp_buf_add(out, ",", 1) && add_member(out, "target", x->target) &&
           sp_buf_add(out, ",", 1) && add_member(out, "rule", x->rule) && sp_buf_add(out, ",", 1) &&
           add_member(out, "layer", x->layer) && sp_buf_add(out, ",", 1) &&
           add_member(out, "evidence", x->evidence) &&
           (x->amendment == NULL ||
            sp_buf_printf(out, ",\"proposed_amendment\":%s", x->amendment)) &&
           sp_buf_add(out, "}", 1);
}

bool sp_mcp_denials_add_json(struct sp_buf *out, const struct sp_mcp_denials *d)
{
    bool ok = sp_buf_add_str(out, SP_STR("\"denials\":["));

    for (uint32_t i = 0; ok && i < d->count; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) && add_json(out, &d->items[i]);
    return ok && sp_buf_add(out, "]", 1);
}

/* A line stays one, and valid UTF-8: paths may be anything. */
static bool add_visible(struct sp_buf *out, const char *text)
{
    return sp_question_add_visible(out, sp_str_of(text), false);
}

bool sp_mcp_denial_add(struct sp_buf *out, const struct sp_mcp_denial *x)
{
    return add_visible(out, x->access) &&
           (x->target[0] == 0 || (sp_buf_add(out, " ", 1) && add_visible(out, x->target))) &&
           sp_buf_add_str(out, SP_STR(": ")) && add_visible(out, x->rule);
}

bool sp_mcp_denials_add_lines(struct sp_buf *out, const struct sp_mcp_denials *d)
{
    for (uint32_t i = 0; i < d->count && i < LINES_MAX; i++)
        if (!sp_buf_add_str(out, SP_STR("Sandbox denied: ")) ||
            !sp_mcp_denial_add(out, &d->items[i]) || !sp_buf_add(out, "\n", 1))
            return false;
    return d->count <= LINES_MAX ||
           sp_buf_printf(out, "\xe2\x80\xa6 and %u more\n", (unsigned)(d->count - LINES_MAX));
}
