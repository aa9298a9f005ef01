/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/approver_client.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "server/rpc/ask.h"

struct sp_approver_client {
    struct sp_approver approver;
    struct sp_conn *conn;
    bool is_able;
    struct query *first;
};

/* One question that the client has. */
struct query {
    struct sp_approver_client *by;
    struct query *prev, *next;
    struct sp_ask ask;
    uint64_t question;
    sp_approver_fn *done;
    void *user;
};

static void free_query(struct query *q)
{
    sp_ask_withdraw(&q->ask);
    *(q->prev != NULL ? &q->prev->next : &q->by->first) = q->next;
    if (q->next != NULL)
        q->next->prev = q->prev;
    free(q);
}

static void on_answered(struct sp_ask *a, struct sp_str result)
{
    struct query *q = SP_CONTAINER(a, struct query, ask);
    struct sp_decision_text d = {0};

    if (result.p == NULL) /* an error: it cannot answer */
        d.decision = (struct sp_decision){.kind = SP_DECISION_FAILED,
                                          .rejection = SP_STR(SP_NOBODY_ANSWERS)};
    else if (result.n <= SP_APPROVER_CLIENT_ANSWER_MAX)
        sp_decision_read_answer(result, &d);
    q->done(q->user, q->question, &d.decision);
    sp_decision_text_done(&d);
    free_query(q);
}

static bool send_it(struct query *q, const struct sp_approval_question *question)
{
    auto_buf struct sp_buf text = {.max = SP_APPROVER_CLIENT_QUESTION_MAX};

    return q->by->conn != NULL && sp_question_add_json(&text, question) &&
           sp_ask_send(&q->ask, q->by->conn, "approval/request",
                       (struct sp_str){text.data, text.len}, on_answered);
}

static void ask(struct sp_approver *a, const struct sp_approval_question *question,
                sp_approver_fn *done, void *user)
{
    static const struct sp_decision failed = {
        .kind = SP_DECISION_FAILED,
        .rejection = SP_STR("the question could not be sent to the client")};
    struct sp_approver_client *by = SP_CONTAINER(a, struct sp_approver_client, approver);
    static const struct sp_decision unable = {.kind = SP_DECISION_FAILED,
                                              .rejection = SP_STR(SP_NOBODY_ANSWERS)};
    struct query *q = by->is_able ? calloc(1, sizeof *q) : NULL;

    if (!by->is_able) {
        done(user, question->id, &unable);
        return;
    }
    if (q != NULL) {
        *q = (struct query){
            .by = by, .next = by->first, .question = question->id, .done = done, .user = user};
        if (q->next != NULL)
            q->next->prev = q;
        by->first = q;
        if (send_it(q, question))
            return;
        free_query(q);
    }
    done(user, question->id, &failed);
}

static void withdraw(struct sp_approver *a, uint64_t question, void *user)
{
    struct query *q = SP_CONTAINER(a, struct sp_approver_client, approver)->first;

    while (q != NULL && !(q->question == question && q->user == user))
        q = q->next;
    if (q != NULL)
        free_query(q);
}

static void free_approver(struct sp_approver *a)
{
    struct sp_approver_client *by = SP_CONTAINER(a, struct sp_approver_client, approver);

    while (by->first != NULL)
        free_query(by->first);
    free(by);
}

int sp_approver_client_new(struct sp_approver_client **ret, struct sp_err *e)
{
    static const struct sp_approver_ops ops = {
        .ask = ask, .withdraw = withdraw, .free = free_approver};
    struct sp_approver_client *by = calloc(1, sizeof *by);

    if (by == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    by->approver.ops = &ops;
    *ret = by;
    return 0;
}

struct sp_approver *sp_approver_client_approver(struct sp_approver_client *a)
{
    return &a->approver;
}

void sp_approver_client_set_able(struct sp_approver_client *a, bool is_able)
{
    a->is_able = is_able;
}

void sp_approver_client_set_conn(struct sp_approver_client *a, struct sp_conn *conn)
{
    a->conn = conn;
}
