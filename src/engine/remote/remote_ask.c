/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_ask: answers network/policyRequest, by which a server asks whether a command may reach a
 * host on no list. The approvals of the command judge (engine/network_job.h): rules and earlier
 * decisions answer at once, and otherwise the approver is asked.
 *
 * The request and its host are hostile: the lists judge again, and whatever is not understood is
 * denied. Questions end with their command and with the connection, whose request ids mean nothing
 * on the next one.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/remote/remote_priv.h"

#define QUESTIONS_MAX 256 /* open at once; one more is denied */
#define ID_MAX        128 /* bytes of a request id of the server */

struct question {
    struct sp_list link;       /* job->questions */
    struct sp_remote_job *job; /* NULL: not answered any more */
    struct sp_network_request request;
    bool is_judging; /* inside of sp_network_job_ask */
    size_t id_len;
    char id[ID_MAX]; /* JSON */
};

static void answer(struct sp_remote *r, struct sp_str id, bool is_allowed,
                   enum sp_network_reason reason)
{
    auto_buf struct sp_buf b = {0};

    if (r->client == NULL)
        return;
    if (is_allowed ? sp_buf_add_str(&b, SP_STR("{\"decision\":{\"type\":\"allow\"}}"))
                   : sp_buf_printf(&b, "{\"decision\":{\"type\":\"deny\",\"reason\":\"%s\"}}",
                                   sp_network_reason_text(reason)->wire))
        sp_client_answer(r->client, id, sp_buf_str(&b));
}

/* ---- the end of a question ---- */

static void drop_question(struct question *q)
{
    if (q->job != NULL) {
        sp_list_remove(&q->link);
        q->job->remote->question_count--;
        q->job = NULL;
    }
    if (q->is_judging)
        return; /* sp_remote_asked frees it */
    sp_network_request_done(&q->request);
    free(q);
}

static void finish_question(struct question *q)
{
    const struct sp_network_request *n = &q->request;
    const enum sp_network_reason reason =
        n->reason == SP_NETWORK_REASON_NONE || n->reason == SP_NETWORK_REASON_OTHER
            ? SP_NETWORK_REASON_NOT_ALLOWED
            : n->reason;

    if (q->job != NULL)
        answer(q->job->remote, (struct sp_str){q->id, q->id_len}, n->state != SP_NETWORK_DENIED,
               reason);
    drop_question(q);
}

static void on_told(struct sp_network_request *n)
{
    struct question *q = SP_CONTAINER(n, struct question, request);

    if (!q->is_judging)
        finish_question(q);
}

void sp_remote_drop_questions(struct sp_remote_job *rj)
{
    struct sp_list *i;

    while ((i = sp_list_first(&rj->questions)) != NULL)
        drop_question(SP_CONTAINER(i, struct question, link));
}

/* ---- a new question ---- */

struct asked {
    struct sp_str process;
    struct sp_hostname host;
    uint16_t port;
    enum sp_proxy_protocol protocol;
};

static bool read_params(struct sp_json *j, uint32_t params, struct asked *ret)
{
    struct sp_str protocol = {0};
    struct sp_str host = {0};
    uint32_t request = SP_JSON_NONE;
    uint64_t port = 0;
    struct sp_err e;

    if (params == SP_JSON_NONE || sp_json_type(j, params) != SP_JSON_OBJECT ||
        sp_json_need_str(j, params, "processId", &ret->process, &e) < 0 ||
        sp_json_need_object(j, params, "request", &request, &e) < 0 ||
        sp_json_need_str(j, request, "protocol", &protocol, &e) < 0 ||
        sp_json_need_str(j, request, "host", &host, &e) < 0 ||
        sp_json_need_u64(j, request, "port", UINT16_MAX, &port, &e) < 0 || port == 0 ||
        sp_hostname_read(host, &ret->host) != NULL)
        return false;
    ret->port = (uint16_t)port;
    for (unsigned i = 0; i < SP_PROXY_PROTOCOL_MAX; i++)
        if (sp_str_eq(protocol, sp_str_of(sp_proxy_protocol_name((uint8_t)i)))) {
            ret->protocol = (enum sp_proxy_protocol)i;
            return true;
        }
    return false;
}

static struct question *new_question(struct sp_remote_job *rj, struct sp_str id)
{
    struct question *q = rj->remote->question_count < QUESTIONS_MAX ? calloc(1, sizeof *q) : NULL;

    if (q == NULL)
        return NULL;
    q->job = rj;
    q->id_len = id.n;
    memcpy(q->id, id.p, id.n);
    sp_list_append(&rj->questions, &q->link);
    rj->remote->question_count++;
    return q;
}

bool sp_remote_asked(struct sp_remote *r, struct sp_str method, struct sp_str id, struct sp_json *j,
                     uint32_t params)
{
    struct asked asked = {0};

    if (!sp_str_eq(method, SP_STR("network/policyRequest")) || id.n > ID_MAX)
        return false;
    struct sp_remote_job *rj =
        read_params(j, params, &asked) ? sp_remote_find_job(r, asked.process) : NULL;
    struct question *q = rj == NULL || rj->network == NULL ? NULL : new_question(rj, id);
    if (q == NULL) {
        answer(r, id, false, SP_NETWORK_REASON_NOT_ALLOWED);
        return true;
    }
    q->is_judging = true;
    sp_network_job_ask(rj->network, &q->request, &asked.host, asked.port, asked.protocol, on_told);
    q->is_judging = false;
    if (q->job == NULL || q->request.state != SP_NETWORK_ASKING)
        finish_question(q);
    return true;
}
