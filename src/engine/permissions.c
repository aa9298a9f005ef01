/* SPDX-License-Identifier: Apache-2.0 */
/*
 * permissions: request_permissions, a call that asks for more than commands may do and starts
 * nothing. The grant is kept for the turn or for the session, and commands get it without further
 * questions.
 */
#include <errno.h>
#include <stdlib.h>

#include "approve/approvals_priv.h"
#include "base/auto.h"
#include "base/truncate.h"
#include "engine/manager_priv.h"

#define PREFIX         "request_permissions failed: "
#define BY_USER        "rejected by user"
#define BY_USER_LONG   "permission request rejected by user"
#define TOO_LATE       "approval request timed out"
#define REFUSAL_TOKENS 900

struct request {
    struct sp_call call;
    struct sp_permissions_request request; /* its strings live in call.keep */
    struct sp_grant asked;                 /* normalised; owned */
    struct sp_environment *environment;    /* a reference; NULL: none */
    struct sp_asking asking;
    struct sp_buf answer; /* JSON, or the refusal; valid once is_decided */
    bool is_begun, is_decided, is_granted, is_abort;
};

/* ---- the log ---- */

static bool audit(struct request *r, const char *requirement, const char *decision,
                  enum sp_decider by, struct sp_err *e)
{
    struct sp_approvals *a = r->call.m->approvals;
    auto_buf struct sp_buf what = {0};

    if (a->options.audit_log == NULL)
        return true;
    if (!sp_question_add_grant(&what, &r->asked)) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "audit log");
        return false;
    }
    const struct sp_str argv[] = {SP_STR("request_permissions"), sp_buf_str(&what)};
    const struct sp_audit_entry entry = {
        .call_id = r->request.call_id,
        .environment = sp_str_of(r->environment->id),
        .cwd = r->asking.question.cwd,
        .command = {argv, 2},
        .policy = sp_approvals_policy(a),
        .requirement = requirement,
        .decision = decision,
        .decided_by = sp_decider_name(by),
    };
    return sp_approvals_audit(a, &entry, e);
}

/* ---- the answer ---- */

static void decide(struct request *r, struct sp_str refusal)
{
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, REFUSAL_TOKENS};

    r->is_decided = true;
    r->answer.len = 0;
    if (!sp_buf_add_str(&r->answer, SP_STR(PREFIX)) || !sp_truncate_add(&r->answer, refusal, max))
        r->answer.len = 0; /* finish_request reports out of memory */
}

static void decide_by_error(struct request *r, const struct sp_err *why)
{
    char text[sizeof why->msg + 128];

    decide(r, sp_str_of(sp_error_text(why, text, sizeof text)));
}

static struct sp_str refusal(const struct sp_decision *d)
{
    if (d->rejection.n != 0 && !sp_str_eq(d->rejection, SP_STR(BY_USER)))
        return d->rejection;
    return d->kind == SP_DECISION_TIMED_OUT ? SP_STR(TOO_LATE) : SP_STR(BY_USER_LONG);
}

static void deny(struct request *r, const struct sp_decision *d)
{
    struct sp_err e = {0};

    r->is_abort = d->kind == SP_DECISION_ABORT && !r->asking.is_replaced;
    if (audit(r, "ask", sp_decision_name(d->kind), r->asking.decided_by, &e))
        decide(r, refusal(d));
    else
        decide_by_error(r, &e);
}

/* The granted part of the request. Fails if the grant cannot be kept. */
static int find_granted(const struct request *r, const struct sp_decision *d, struct sp_grant *ret,
                        struct sp_err *e)
{
    static const struct sp_policy nothing;

    if (d->wants_strict_review && r->call.m->approvals->options.reviewer == NULL)
        return sp_fail(e, SP_E_STATE, 0,
                       "the answer wants everything to be reviewed, and there is no `reviewer`: "
                       "nothing was granted");
    if (d->kind == SP_DECISION_APPROVED && r->request.turn_id.n == 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "it was granted for the turn, and the call names none: it can be granted "
                       "for the session alone");
    return sp_grant_intersect(&r->asked, d->permissions != NULL ? d->permissions : &r->asked,
                              r->environment->has_policy ? &r->environment->policy : &nothing, ret,
                              e);
}

static void grant(struct request *r, const struct sp_decision *d)
{
    const bool is_for_session = d->kind == SP_DECISION_APPROVED_FOR_SESSION;
    const struct sp_str turn_id = {r->request.turn_id.p, is_for_session ? 0 : r->request.turn_id.n};
    struct sp_grant granted __attribute__((cleanup(sp_grant_done))) = {0};
    struct sp_err e = {0};
    int result;

    if (find_granted(r, d, &granted, &e) < 0) {
        (void)audit(r, "ask", "denied", SP_DECIDER_CONFIG, NULL);
        decide_by_error(r, &e);
        return;
    }
    if (!audit(r, "ask", sp_decision_name(d->kind), r->asking.decided_by, &e)) {
        decide_by_error(r, &e);
        return;
    }
    r->answer.len = 0;
    if (!sp_buf_add_str(&r->answer, SP_STR("{\"permissions\":")) ||
        !sp_question_add_grant(&r->answer, &granted) ||
        !sp_buf_printf(&r->answer, ",\"scope\":\"%s\",\"strict_auto_review\":%s}",
                       is_for_session ? "session" : "turn",
                       d->wants_strict_review ? "true" : "false"))
        result = sp_fail(&e, SP_E_SYSTEM, ENOMEM, "answer a permission request");
    else /* the last step: it cannot be undone */
        result = sp_approvals_grant(r->call.m->approvals, sp_str_of(r->environment->id), turn_id,
                                    &granted, d->wants_strict_review, &e);
    if (result < 0)
        decide_by_error(r, &e);
    else
        r->is_decided = r->is_granted = true;
}

static void on_decision(struct sp_asking *q, const struct sp_decision *d)
{
    struct request *r = SP_CONTAINER(q, struct request, asking);

    if (d->kind == SP_DECISION_APPROVED || d->kind == SP_DECISION_APPROVED_FOR_SESSION)
        grant(r, d);
    else
        deny(r, d);
    sp_call_changed(&r->call);
}

/* ---- the question ---- */

static void refuse_by_policy(struct request *r)
{
    const struct sp_approval_policy *p = sp_approvals_policy(r->call.m->approvals);
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};

    if (!audit(r, "forbidden", "denied", SP_DECIDER_CONFIG, &e)) {
        decide_by_error(r, &e);
        return;
    }
    (void)(sp_buf_add_str(&text, SP_STR("approval policy is ")) && sp_approval_add_name(&text, p) &&
           sp_buf_add_str(&text, SP_STR("; reject request — you cannot request permissions if the "
                                        "approval policy is ")) &&
           sp_approval_add_name(&text, p)); /* out of memory: the text stays incomplete */
    decide(r, sp_buf_str(&text));
}

/* Whether invalid arguments have answered the call. */
static bool refuse_arguments(struct request *r)
{
    struct sp_manager *m = r->call.m;
    struct sp_err e = {0};

    r->environment = sp_manager_find_environment(m, r->request.environment_id);
    if (r->environment != NULL)
        (void)sp_environment_ref(r->environment);
    if (!m->options.has_additional_permissions)
        sp_call_fault(&r->call, SP_FAULT_ARGUMENTS,
                      "permission requests are disabled; enable "
                      "`features.exec_permission_approvals` before using `request_permissions`");
    else if (m->environment_count == 0)
        sp_call_fault(&r->call, SP_FAULT_ARGUMENTS, "unified exec is unavailable in this session");
    else if (r->environment == NULL)
        sp_call_fault(&r->call, SP_FAULT_ARGUMENTS, "unknown turn environment id `" SP_STR_FMT "`",
                      SP_STR_ARG(r->request.environment_id));
    else if (sp_grant_normalise(&r->asked, &e) < 0)
        sp_call_fault(&r->call, SP_FAULT_ARGUMENTS, "%s", e.msg);
    else if (r->asked.extra.count == 0 && !r->asked.extra.has_network)
        sp_call_fault(&r->call, SP_FAULT_ARGUMENTS,
                      "`permissions` must include at least one requested permission in `network` "
                      "or `file_system`");
    else if (m->call_count > SP_CALLS_MAX)
        sp_call_fault(&r->call, SP_FAULT_ARGUMENTS, "too many calls are waiting");
    return r->call.is_answered;
}

static void begin_request(struct request *r)
{
    struct sp_manager *m = r->call.m;
    const struct sp_approval_policy *p = sp_approvals_policy(m->approvals);

    r->is_begun = true;
    if (refuse_arguments(r))
        return;
    r->asking = (struct sp_asking){
        .question = {.kind = SP_QUESTION_PERMISSIONS,
                     .call_id = r->request.call_id,
                     .turn_id = r->request.turn_id,
                     .environment = sp_str_of(r->environment->id),
                     .cwd = {r->environment->cwd,
                             r->environment->cwd == NULL ? 0 : strlen(r->environment->cwd)},
                     .reason = r->request.reason,
                     .additional = &r->asked,
                     .profile = sp_environment_policy(r->environment),
                     .profile_name = r->environment->policy_name},
        .decided = on_decision,
    };
    if (p->kind == SP_APPROVAL_NEVER ||
        (p->kind == SP_APPROVAL_GRANULAR && !p->request_permissions))
        refuse_by_policy(r);
    else if (!sp_approvals_can_ask(m->approvals)) {
        r->asking.decided_by = SP_DECIDER_CONFIG;
        deny(r, &(struct sp_decision){.rejection = SP_STR(SP_NO_APPROVER)});
    } else
        sp_asking_begin(&r->asking, m->approvals);
}

/* ---- the call ---- */

static void step_request(struct sp_call *c)
{
    struct request *r = SP_CONTAINER(c, struct request, call);

    if (c->is_cancelled) {
        sp_call_abort(c);
        return;
    }
    if (!r->is_begun)
        begin_request(r);
    if (!r->is_decided || c->is_answered)
        return;
    struct sp_manager *m = r->call.m;
    const bool is_abort = r->is_abort;
    struct sp_str text = sp_buf_str(&r->answer);
    size_t prefix = sizeof PREFIX - 1;

    if (text.n == 0) { /* out of memory for answer and refusal */
        text = SP_STR(PREFIX "no memory for the answer");
        r->is_granted = false;
    }
    if (r->is_granted)
        prefix = 0;
    const struct sp_reply reply = {
        .fault = r->is_granted ? SP_FAULT_NONE : SP_FAULT_REJECTED,
        .text = text,
        .error = r->is_granted ? SP_STR("") : (struct sp_str){text.p + prefix, text.n - prefix},
        .woken_by = -1,
    };
    sp_call_finish(&r->call, &reply);
    if (is_abort)
        sp_manager_interrupt(m);
}

static void release_request(struct sp_call *c)
{
    struct request *r = SP_CONTAINER(c, struct request, call);
    const bool is_open = sp_asking_is_open(&r->asking);

    sp_asking_done(&r->asking);
    if (is_open)
        (void)audit(r, "ask", sp_decision_name(SP_DECISION_ABORT), r->asking.decided_by, NULL);
    sp_environment_unref(r->environment);
    sp_grant_done(&r->asked);
    sp_buf_done(&r->answer);
}

static bool copy_request(struct request *r, const struct sp_permissions_request *request)
{
    struct sp_arena *k = &r->call.keep;

    r->request = *request;
    r->request.permissions = NULL;
    return sp_profile_copy(&request->permissions->extra, &r->asked.extra) &&
           sp_arena_str(k, request->call_id, &r->request.call_id) &&
           sp_arena_str(k, request->turn_id, &r->request.turn_id) &&
           sp_arena_str(k, request->environment_id, &r->request.environment_id) &&
           sp_arena_str(k, request->reason, &r->request.reason);
}

int sp_manager_request_permissions(struct sp_manager *m,
                                   const struct sp_permissions_request *request, sp_reply_fn *fn,
                                   void *user, uint64_t *ret_call, struct sp_err *e)
{
    struct sp_call *call;
    const int admitted = sp_call_new(m, sizeof(struct request), &call, e);

    if (admitted < 0)
        return admitted;
    call->step = step_request;
    call->release = release_request;
    return sp_call_begin(call, copy_request(SP_CONTAINER(call, struct request, call), request), fn,
                         user, ret_call, e);
}
