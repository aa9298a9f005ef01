/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_job: an ask of the proxy is a request of approve/network.h until it is answered or gone.
 * Callbacks of either side may end requests; a request is freed in one place, and never while it is
 * being judged.
 */
#include "engine/network_job.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "core/proc.h"
#include "sandbox/profile.h"

struct sp_network_job {
    struct sp_network_command command; /* its strings live in keep */
    struct sp_policy policy;
    struct sp_approvals *approvals;
    struct sp_str turn_id;
    void (*refused)(void *user, const struct sp_network_outcome *o);
    void *user;
    struct sp_proc *proc; /* NULL: not in a network */
    bool is_over;
    struct sp_arena keep;
    struct sp_network_receipt receipt;
    struct sp_arena receipt_keep; /* owns the strings of the receipt */
};

struct request {
    struct sp_network_request request;
    struct sp_net_ask *ask;
    bool is_judging; /* inside of sp_network_ask */
};

/* ---- verdicts ---- */

static void free_request(struct request *r)
{
    sp_network_request_done(&r->request);
    free(r);
}

/* What may be asked about again is not kept: a deadline passes, a person says yes the next time. */
static void answer_ask(struct request *r)
{
    const struct sp_network_request *q = &r->request;
    const struct sp_network_job *n = r->ask->proc->net.user;
    const bool is_allowed = q->state != SP_NETWORK_DENIED;
    struct sp_net_verdict v = {
        .is_allowed = is_allowed,
        .is_decided = !is_allowed && n->command.is_cancelled,
        .is_kept = is_allowed || q->reason != SP_NETWORK_REASON_NOT_ALLOWED,
        .reason = is_allowed                            ? SP_NETWORK_REASON_NONE
                  : q->reason == SP_NETWORK_REASON_NONE ? SP_NETWORK_REASON_OTHER
                                                        : q->reason,
    };

    if (!is_allowed)
        v.text = q->text;
    r->ask->user = NULL;
    sp_net_answer(r->ask, &v);
    free_request(r);
}

static void on_told(struct sp_network_request *q)
{
    struct request *r = SP_CONTAINER(q, struct request, request);

    if (!r->is_judging)
        answer_ask(r);
}

static enum sp_network_protocol protocol_of(enum sp_proxy_protocol p)
{
    return p == SP_PROXY_HTTP     ? SP_NETWORK_HTTP
           : p == SP_PROXY_TUNNEL ? SP_NETWORK_HTTPS
                                  : SP_NETWORK_SOCKS5_TCP;
}

static void judge(struct sp_proc *p, struct sp_net_ask *ask)
{
    struct sp_network_job *n = p->net.user;
    struct request *r = calloc(1, sizeof *r);
    const struct sp_network_ask question = {
        .command = &n->command,
        .turn_id = n->turn_id,
        .host = sp_str_of(ask->host.text),
        .port = ask->port,
        .protocol = protocol_of(ask->protocol),
        .standing = ask->standing,
    };

    if (r == NULL) {
        sp_net_answer(ask, &(struct sp_net_verdict){.reason = SP_NETWORK_REASON_OTHER});
        return;
    }
    r->ask = ask;
    ask->user = r;
    r->is_judging = true;
    sp_network_ask(&r->request, n->approvals, &question, on_told);
    r->is_judging = false;
    if (r->request.state != SP_NETWORK_ASKING)
        answer_ask(r);
}

static void on_gone(struct sp_proc *p, struct sp_net_ask *ask)
{
    struct request *r = ask->user;

    (void)p;
    ask->user = NULL;
    if (r == NULL)
        return;
    sp_network_hang_up(&r->request);
    free_request(r);
}

/* A name on the deny list is never looked up, whatever a rule says. */
static bool knows(struct sp_proc *p, const struct sp_hostname *host)
{
    const struct sp_network_job *n = p->net.user;
    const struct sp_domain *domain;

    return sp_network_policy_judge(n->policy.profile.managed, host, 0, SP_NETWORK_WAY_HTTP,
                                   SP_STR("GET"), &domain) != SP_STANDING_DENIED &&
           sp_network_knows(n->approvals, &n->command, host);
}

static bool forbids(struct sp_proc *p, const struct sp_hostname *host)
{
    const struct sp_network_job *n = p->net.user;
    enum sp_decider by;

    return sp_network_word(n->approvals, host, &by) == SP_NETWORK_DENY;
}

/* ---- decisions that change, and end the command ---- */

static void on_changed(struct sp_network_command *c, struct sp_str host)
{
    const struct sp_network_job *n = SP_CONTAINER(c, struct sp_network_job, command);

    if (n->proc != NULL)
        sp_managed_forget(n->proc, host);
}

static void on_outcome(struct sp_network_command *c, const struct sp_network_outcome *o)
{
    const struct sp_network_job *n = SP_CONTAINER(c, struct sp_network_job, command);

    if (o->is_cancelled)
        n->refused(n->user, o);
}

/* ---- receipts ---- */

static bool copy_denials(struct sp_arena *a, struct sp_network_receipt *r)
{
    for (uint32_t i = 0; i < r->denial_count; i++)
        if (!sp_arena_text(a, r->denials[i].host, &r->denials[i].host))
            return false;
    return true;
}

/* Without memory the receipt is empty. */
static void take_receipt(struct sp_network_job *n)
{
    struct sp_network_receipt *r = &n->receipt;
    auto_buf struct sp_buf json = {0};

    sp_arena_done(&n->receipt_keep);
    *r = (struct sp_network_receipt){0};
    while (r->denial_count < SP_MANAGED_RECEIPTS &&
           sp_managed_denial(n->proc, r->denial_count, &r->denials[r->denial_count]))
        r->denial_count++;
    if (!copy_denials(&n->receipt_keep, r) || !sp_managed_add_receipt(n->proc, &json) ||
        !sp_arena_str(&n->receipt_keep, sp_buf_str(&json), &r->json))
        *r = (struct sp_network_receipt){0};
}

const struct sp_network_receipt *sp_network_job_receipt(struct sp_network_job *n)
{
    if (n == NULL)
        return NULL;
    if (n->proc != NULL)
        take_receipt(n);
    return n->receipt.json.n == 0 ? NULL : &n->receipt;
}

bool sp_network_receipt_copy(struct sp_arena *a, const struct sp_network_receipt *from,
                             const struct sp_network_receipt **ret)
{
    struct sp_network_receipt *r = from == NULL ? NULL : sp_arena_new(a, sizeof *r);

    if (r == NULL) {
        *ret = NULL;
        return from == NULL;
    }
    *r = *from;
    if (!sp_arena_str(a, from->json, &r->json) || !copy_denials(a, r))
        return false;
    *ret = r;
    return true;
}

/* ---- a server that asks ---- */

/* The lists judge here, too, but for the method of a request, which the server does not tell. */
void sp_network_job_ask(struct sp_network_job *n, struct sp_network_request *r,
                        const struct sp_hostname *host, uint16_t port,
                        enum sp_proxy_protocol protocol,
                        void (*decided)(struct sp_network_request *r))
{
    const enum sp_network_way way = protocol == SP_PROXY_HTTP     ? SP_NETWORK_WAY_HTTP
                                    : protocol == SP_PROXY_TUNNEL ? SP_NETWORK_WAY_TUNNEL
                                                                  : SP_NETWORK_WAY_TCP;
    const struct sp_domain *domain;
    const struct sp_network_ask question = {
        .command = &n->command,
        .turn_id = n->turn_id,
        .host = sp_str_of(host->text),
        .port = port,
        .protocol = protocol_of(protocol),
        .standing = sp_network_policy_judge(n->policy.profile.managed, host, port, way,
                                            SP_STR("GET"), &domain),
    };

    sp_network_ask(r, n->approvals, &question, decided);
}

/* ---- a command ---- */

static void on_joined(struct sp_proc *p)
{
    struct sp_network_job *n = p->net.user;

    n->proc = p;
}

static void on_left(struct sp_proc *p)
{
    struct sp_network_job *n = p->net.user;

    take_receipt(n);
    n->proc = NULL;
}

static const struct sp_net_ops net_ops = {
    .judge = judge,
    .gone = on_gone,
    .knows = knows,
    .forbids = forbids,
    .joined = on_joined,
    .left = on_left,
};

int sp_network_job_new(const struct sp_network_job_options *o, struct sp_start *start,
                       struct sp_network_job **ret, struct sp_err *e)
{
    *ret = NULL;
    if (o->policy == NULL || sp_profile_managed(&o->policy->profile) == NULL)
        return 0;
    struct sp_network_job *n = calloc(1, sizeof *n);
    if (n == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "answer for the network of a command");
    struct sp_network_command *c = &n->command;
    *c = (struct sp_network_command){.policy = &n->policy,
                                     .approval = *sp_approvals_policy(o->approvals),
                                     .outcome = on_outcome,
                                     .changed = on_changed,
                                     .has_no_approver = o->has_no_approver};
    n->approvals = o->approvals;
    n->refused = o->refused;
    n->user = o->user;
    c->argv.count = o->argv.count;
    if (!sp_policy_copy(o->policy, &n->policy) ||
        !sp_arena_str(&n->keep, o->call_id, &c->call_id) ||
        !sp_arena_str(&n->keep, o->turn_id, &n->turn_id) ||
        !sp_arena_str(&n->keep, o->environment, &c->environment) ||
        !sp_arena_str(&n->keep, o->cwd, &c->cwd) ||
        !sp_arena_strs(&n->keep, o->argv.items, o->argv.count, &c->argv.items) ||
        !sp_arena_text(&n->keep, o->policy_name, &c->policy_name) ||
        !sp_network_command_begin(o->approvals, c)) {
        sp_network_job_free(n);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "answer for the network of a command");
    }
    start->net_ops = &net_ops;
    start->net_user = n;
    start->network = n;
    *ret = n;
    return 0;
}

/* Processes that the command left behind have what was allowed for good. */
void sp_network_job_end(struct sp_network_job *n)
{
    if (n == NULL || n->is_over)
        return;
    n->is_over = true;
    n->command.approval.kind = SP_APPROVAL_NEVER;
    sp_network_command_done(n->approvals, &n->command);
    if (n->proc != NULL) /* its once-answers end with it, also those that the proxy keeps */
        sp_managed_forget(n->proc, (struct sp_str){0});
}

void sp_network_job_free(struct sp_network_job *n)
{
    if (n == NULL)
        return;
    sp_network_job_end(n);
    if (n->proc != NULL) /* the lists alone answer for what it leaves behind */
        n->proc->net.ops = NULL;
    sp_policy_done(&n->policy);
    sp_arena_done(&n->keep);
    sp_arena_done(&n->receipt_keep);
    free(n);
}
