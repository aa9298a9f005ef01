/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/ask.h"

#include "server/rpc/conn.h"
#include "server/rpc/text.h"

bool sp_ask_send(struct sp_ask *a, struct sp_conn *conn, const char *method, struct sp_str params,
                 void (*answered)(struct sp_ask *a, struct sp_str result))
{
    const struct sp_str name = sp_str_of(method);

    if (conn->is_closing || conn->ask_count >= SP_ASK_MAX)
        return false;
    char *const begin = sp_link_reserve(conn->link, 64 + SP_DECIMAL_MAX + name.n + params.n);
    if (begin == NULL)
        return false;
    *a = (struct sp_ask){
        .answered = answered, .conn = conn, .number = ++conn->last_ask, .next = conn->asks};
    if (a->next != NULL)
        a->next->prev = a;
    conn->asks = a;
    conn->ask_count++;
    char *o = sp_put_literal(begin, "{\"id\":");
    o = sp_put_u64(o, a->number);
    o = sp_put_literal(o, ",\"method\":\"");
    o = sp_put_str(o, name);
    o = sp_put_literal(o, "\",\"params\":");
    o = sp_put_str(o, params);
    *o++ = '}';
    sp_link_commit(conn->link, (size_t)(o - begin));
    return true;
}

void sp_ask_withdraw(struct sp_ask *a)
{
    struct sp_conn *conn = a->conn;

    if (conn == NULL)
        return;
    *(a->prev != NULL ? &a->prev->next : &conn->asks) = a->next;
    if (a->next != NULL)
        a->next->prev = a->prev;
    conn->ask_count--;
    a->conn = NULL;
    a->prev = a->next = NULL;
}

bool sp_ask_take(struct sp_conn *conn, struct sp_json *j, uint32_t id)
{
    const uint32_t token = sp_json_get(j, 0, "result");
    struct sp_str result = {0};
    struct sp_ask *a = conn->asks;
    int64_t number = 0;

    if (!sp_json_i64(j, id, &number) || number < 1 || (uint64_t)number > conn->last_ask)
        return false;
    while (a != NULL && a->number != (uint64_t)number)
        a = a->next;
    if (token != SP_JSON_NONE)
        result = sp_json_raw(j, token);
    if (a != NULL) {
        sp_ask_withdraw(a);
        a->answered(a, result);
    }
    return true;
}
