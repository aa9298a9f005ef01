/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve_approve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "approve/approvers.h"
#include "approve/hooks.h"
#include "approve/run_plan.h"
#include "base/auto.h"
#include "base/log.h"
#include "cli/approver_client.h"
#include "cli/serve_environ.h"
#include "config/config_approvals.h"
#include "sandbox/policy_json.h"

#define TOO_MANY \
    "approval required, but too many questions of this session are open; wait for some answers"

struct sp_serve_approve {
    struct sp_start_gate gate;
    struct sp_loop *loop;
    struct sp_config config;
    struct sp_config_approvals found;
    const char *shell;
    char *const *environ;
    struct sp_hooks hooks;
    struct sp_approvers *approvers; /* NULL: nobody answers */
    struct desk *first;             /* the one that was busy last is in front */
};

/* What one session has. */
struct desk {
    struct sp_serve_approve *by;
    struct desk *prev, *next;
    uint64_t session;
    struct sp_approvals *approvals;
    struct sp_approver_client *client; /* if it is among those who answer; else NULL */
    struct sp_approver *approver;      /* all who answer; NULL: nobody */
    unsigned open;                     /* questions */
};

/* One start. */
struct trial {
    struct sp_start_gate_case *judged;
    struct desk *desk;
    struct sp_run_plan plan;
    struct sp_buf key;
    struct sp_serve_environ environ;
    struct sp_deferred later;
    bool is_beginning;
    bool is_open; /* its question is */
    char failure[sizeof(struct sp_err) + 128];
};

/* ---- sessions ---- */

static void unlink_desk(struct desk *d)
{
    *(d->prev != NULL ? &d->prev->next : &d->by->first) = d->next;
    if (d->next != NULL)
        d->next->prev = d->prev;
}

static void link_first(struct desk *d)
{
    d->prev = NULL;
    d->next = d->by->first;
    if (d->next != NULL)
        d->next->prev = d;
    d->by->first = d;
}

static void free_desk(struct desk *d)
{
    unlink_desk(d);
    sp_approvals_free(d->approvals);
    sp_approver_free(d->approver);
    if (d->client != NULL)
        sp_approver_free(sp_approver_client_approver(d->client));
    free(d);
}

/* NULL: e says why. */
static struct desk *make_desk(struct sp_serve_approve *a, uint64_t session, struct sp_err *e)
{
    struct desk *d = calloc(1, sizeof *d);
    struct sp_approvals_options o = a->found.options;
    int r = 0;

    if (d == NULL) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare approvals");
        return NULL;
    }
    d->by = a;
    d->session = session;
    link_first(d);
    if (sp_approvers_has_client(a->approvers))
        r = sp_approver_client_new(&d->client, e);
    if (r == 0 && a->approvers != NULL)
        r = sp_approvers_chain(a->approvers,
                               d->client == NULL ? NULL : sp_approver_client_approver(d->client),
                               &d->approver, e);
    o.approver = d->approver;
    if (r == 0)
        r = sp_approvals_new(&o, &d->approvals, e);
    if (r == 0)
        return d;
    free_desk(d);
    return NULL;
}

static struct desk *find_desk(const struct sp_serve_approve *a, uint64_t session)
{
    struct desk *d = a->first;

    while (d != NULL && d->session != session)
        d = d->next;
    return d;
}

/* NULL: e says why. */
static struct desk *need_desk(struct sp_serve_approve *a, const struct sp_start_gate_case *c,
                              struct sp_err *e)
{
    struct desk *d = find_desk(a, c->session);

    if (d != NULL) {
        unlink_desk(d);
        link_first(d);
    } else {
        d = make_desk(a, c->session, e);
    }
    if (d != NULL && d->client != NULL) {
        sp_approver_client_set_conn(d->client, c->conn);
        sp_approver_client_set_able(d->client, c->takes_approvals);
        sp_approvals_set_nobody_answers(d->approvals, !c->takes_approvals &&
                                                          !sp_approvers_has_others(a->approvers));
    }
    return d;
}

void sp_serve_approve_forget(struct sp_serve_approve *a, uint64_t session)
{
    struct desk *d = find_desk(a, session);

    if (d != NULL)
        free_desk(d);
}

/* The rules have changed: for starts from now on, in sessions old and new. */
static bool set_rules(void *user, struct sp_rules *rules, struct sp_str fingerprint)
{
    struct sp_serve_approve *a = user;
    struct sp_approvals_options *o = &a->found.options;
    struct sp_rules *before = o->rules;
    bool ok = true;

    o->rules = sp_rules_ref(rules);
    o->fingerprint = fingerprint; /* the watch has it, until it changes again */
    sp_rules_unref(before);
    for (struct desk *d = a->first; d != NULL; d = d->next)
        ok = sp_approvals_set_rules(d->approvals, rules, fingerprint) && ok;
    return ok;
}

/* ---- one start ---- */

static bool add_text(struct sp_buf *out, struct sp_str s)
{
    return sp_buf_printf(out, "%zu:", s.n) && sp_buf_add_str(out, s);
}

/* Where programs are found, and what else of the environment matters. */
static int add_environ(struct sp_buf *out, const struct sp_serve_environ *v, struct sp_err *e)
{
    bool ok = add_text(out, v->path) && sp_buf_printf(out, "%u,", v->words.count);

    for (uint32_t i = 0; ok && i < v->words.count; i++)
        ok = add_text(out, v->words.items[i]);
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "judge a command");
}

/* The sandbox in one fixed spelling: an approval for the session is for this one. */
static int add_policy(struct sp_buf *out, const struct sp_policy *p, struct sp_err *e)
{
    if (p == NULL)
        return 0;
    const int r = sp_profile_write(out, &p->profile, SP_PATH_URI, e);
    if (r < 0)
        return r;
    bool ok = sp_buf_printf(out, "%c%s%c%s%c%s%c%d", 0, p->cwd == NULL ? "" : p->cwd, 0,
                            p->tmpdir == NULL ? "" : p->tmpdir, 0, p->home == NULL ? "" : p->home,
                            0, p->cwd_is_root);
    for (size_t i = 0; ok && i < p->root_count; i++)
        ok = sp_buf_printf(out, "%c%s", 0, p->roots[i]);
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "judge a command");
}

static void say_no(struct trial *t, enum sp_code code, struct sp_str reason)
{
    t->judged->answer = SP_START_GATE_NO;
    t->judged->code = code;
    t->judged->reason = reason;
}

static void say_failed(struct trial *t, const struct sp_err *e)
{
    say_no(t, e->code, sp_str_of(sp_error_text(e, t->failure, sizeof t->failure)));
}

/* What the plan says by now. */
static void take_answer(struct trial *t)
{
    const struct sp_run_plan *p = &t->plan;
    const struct sp_str reason = {p->reason.len == 0 ? "" : p->reason.data, p->reason.len};

    switch (p->state) {
    case SP_RUN_PLAN_GO:
        t->judged->answer = SP_START_GATE_YES;
        return;
    case SP_RUN_PLAN_ASKING:
        t->judged->answer = SP_START_GATE_ASKING;
        return;
    case SP_RUN_PLAN_FAILED:
        say_failed(t, &p->error);
        return;
    case SP_RUN_PLAN_REFUSED:
        say_no(t,
               p->ask.cannot_ask.n != 0 && sp_str_eq(reason, p->ask.cannot_ask) ? SP_E_LIMIT
                                                                                : SP_E_STATE,
               reason);
        return;
    case SP_RUN_PLAN_NEW:
        break;
    }
    say_no(t, SP_E_FAILED, SP_STR("the command was not judged"));
}

static void close_question(struct trial *t)
{
    if (!t->is_open)
        return;
    t->desk->open--;
    t->is_open = false;
}

static void tell(struct sp_deferred *d)
{
    struct trial *t = SP_CONTAINER(d, struct trial, later);

    take_answer(t);
    t->judged->told(t->judged);
}

static void on_told(struct sp_run_plan *p)
{
    struct trial *t = SP_CONTAINER(p, struct trial, plan);

    if (t->is_beginning) /* answered at once: whoever began it looks itself */
        return;
    close_question(t);
    sp_loop_defer(t->desk->by->loop, &t->later, tell);
}

/* Hooks, the reviewer and the person work on so many at a time. */
static void begin(struct trial *t, const struct sp_start_gate_case *s)
{
    const bool is_one_too_many = t->desk->open >= SP_SERVE_MAX_QUESTIONS;
    const struct sp_run_plan_ask ask = {
        .call_id = s->id,
        .environment = SP_STR("local"),
        .argv = {s->argv, s->argc},
        .cwd = s->cwd,
        .is_tty = s->is_tty,
        .policy = s->policy,
        .keeps_policy = true,
        .key_more = {t->key.len == 0 ? "" : t->key.data, t->key.len},
        .shell = t->desk->by->shell,
        .environ = {s->envc == 0 ? "" : s->env->data, s->env->len},
        .preface = t->environ.words,
        .cannot_ask = is_one_too_many ? SP_STR(TOO_MANY) : (struct sp_str){0},
    };

    t->is_beginning = true;
    sp_run_plan_begin(&t->plan, t->desk->approvals, &ask, on_told);
    t->is_beginning = false;
    t->is_open = t->plan.state == SP_RUN_PLAN_ASKING;
    t->desk->open += t->is_open;
}

static void judge(struct sp_start_gate *g, struct sp_start_gate_case *c)
{
    struct sp_serve_approve *a = SP_CONTAINER(g, struct sp_serve_approve, gate);
    struct trial *t = calloc(1, sizeof *t);
    struct sp_err e = {0};

    c->impl = t;
    c->answer = SP_START_GATE_NO;
    c->code = SP_E_SYSTEM;
    c->reason = SP_STR("judge a command: out of memory");
    if (t == NULL)
        return;
    t->judged = c;
    t->desk = need_desk(a, c, &e);
    if (t->desk == NULL || sp_serve_environ_read(&t->environ, c, a->environ, &e) < 0 ||
        add_environ(&t->key, &t->environ, &e) < 0 || add_policy(&t->key, c->policy, &e) < 0) {
        say_failed(t, &e);
        return;
    }
    begin(t, c);
    take_answer(t);
}

static void done(struct sp_start_gate *g, struct sp_start_gate_case *c)
{
    struct sp_serve_approve *a = SP_CONTAINER(g, struct sp_serve_approve, gate);
    struct trial *t = c->impl;

    if (t == NULL)
        return;
    sp_loop_undefer(a->loop, &t->later);
    close_question(t);
    sp_run_plan_done(&t->plan);
    sp_buf_done(&t->key);
    sp_serve_environ_done(&t->environ);
    free(t);
}

/* ---- beginning and end ---- */

static void warn(void *user, const char *text)
{
    (void)user;
    sp_log(SP_LOG_WARN, "%s", text);
}

static int open_approvers(struct sp_serve_approve *a, const char *const *flags, struct sp_err *e)
{
    const struct sp_approvers_ask ask = {
        .loop = a->loop,
        .words = flags != NULL ? flags : (const char *const *)a->config.approvers,
        .is_configured = flags == NULL,
        .choices = "deny, program:PATH or client",
        .has_client = true,
        .no_terminal = "a server asks nobody at a terminal: give deny, program:PATH or client",
        .timeout_ms = a->found.options.timeout_ms,
    };

    if (sp_approvers_open(&ask, &a->approvers, e) < 0)
        return sp_wrap(e, ask.is_configured ? "`approver` of the configuration" : "--approver");
    a->found.options.timeout_ms = sp_approvers_timeout_ms(a->approvers);
    return 0;
}

static int find_rules(struct sp_serve_approve *a, const struct sp_serve_approve_ask *ask,
                      struct sp_err *e)
{
    const struct sp_config_ask config_ask = {.environment = ask->environ};
    const struct sp_config_approvals_ask rules_ask = {.policy = ask->policy,
                                                      .files = ask->rules,
                                                      .warn = warn,
                                                      .loop = ask->loop,
                                                      .changed = set_rules,
                                                      .user = a};
    int r = sp_config_load(&config_ask, &a->config, e);

    if (r < 0)
        return r;
    for (size_t i = 0; a->config.warnings != NULL && a->config.warnings[i] != NULL; i++)
        warn(NULL, a->config.warnings[i]);
    r = sp_config_approvals(&a->config, &rules_ask, &a->found, e);
    if (r == 0)
        r = open_approvers(a, ask->approvers, e);
    if (r == 0)
        r = sp_hooks_open(&a->hooks, ask->loop, a->config.permission_hooks, a->config.reviewer,
                          &a->found.options, e);
    a->found.options.loop = ask->loop;
    a->found.options.warn = warn;
    return r;
}

int sp_serve_approve_new(const struct sp_serve_approve_ask *ask, struct sp_serve_approve **ret,
                         struct sp_err *e)
{
    static const struct sp_start_gate_ops ops = {.judge = judge, .done = done};
    struct sp_serve_approve *a = calloc(1, sizeof *a);

    if (a == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare approvals");
    a->gate.ops = &ops;
    a->loop = ask->loop;
    a->shell = ask->shell;
    a->environ = ask->environ;
    const int r = find_rules(a, ask, e);
    if (r < 0) {
        sp_serve_approve_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void sp_serve_approve_free(struct sp_serve_approve *a)
{
    if (a == NULL)
        return;
    while (a->first != NULL)
        free_desk(a->first);
    sp_approvers_free(a->approvers);
    sp_hooks_done(&a->hooks);
    sp_config_approvals_done(&a->found);
    sp_config_done(&a->config);
    free(a);
}

struct sp_start_gate *sp_serve_approve_gate(struct sp_serve_approve *a)
{
    return &a->gate;
}

const struct sp_config *sp_serve_approve_config(const struct sp_serve_approve *a)
{
    return &a->config;
}
