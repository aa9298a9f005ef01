/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process/list: the processes of this session, or of all of them.
 */
#include <errno.h>
#include <stdio.h>

#include "base/auto.h"
#include "base/uri.h"
#include "os/seccomp.h"
#include "sandbox/compile.h"
#include "server/rpc/methods.h"

/* What the sandbox refused it, as far as is known: facts first, the guess last. */
static bool add_denials(struct sp_buf *b, const struct sp_proc *p)
{
    const struct sp_exit *how = &p->state.exit;
    const uint32_t calls =
        how->refusal_count < SP_EXIT_REFUSALS ? how->refusal_count : SP_EXIT_REFUSALS;
    const char *between = "";
    bool ok = true;

    for (uint32_t i = 0; ok && i < calls; i++, between = ",") {
        const char *name = sp_syscall_name(how->refusals[i].call);

        ok = sp_buf_printf(b, "%s{\"source\":\"seccomp\",\"call\":\"%s\",\"count\":%u}", between,
                           name != NULL ? name : "unknown", how->refusals[i].count);
    }
    if (ok && how->left_network > 0) {
        ok = sp_buf_printf(b, "%s{\"source\":\"network\",\"reason\":\"no_route\",\"count\":%u}",
                           between, how->left_network);
        between = ",";
    }
    if (ok && p->denial != NULL && p->denial->reason != NULL) {
        ok = sp_buf_printf(b, "%s{\"source\":\"heuristic\",\"reason\":\"%s\"", between,
                           p->denial->reason);
        if (p->denial->path[0] != 0)
            ok = ok && sp_buf_printf(b, ",\"path\":") &&
                 sp_json_add_str(b, sp_str_of(p->denial->path));
        ok = ok && sp_buf_printf(b, "}");
    }
    return ok;
}

static bool add_sandbox(struct sp_buf *b, const struct sp_proc *p)
{
    return sp_buf_printf(b, ",\"sandbox\":{\"tier\":\"%s\",\"denied\":%s,\"denials\":[",
                         sp_tier_name(p->tier), p->was_denied ? "true" : "false") &&
           (p->state.exit_seq == 0 || add_denials(b, p)) && sp_buf_printf(b, "]}");
}

#define LISTED_BYTES 4096 /* of one process's arguments: a list is for a look */

static bool add_process(struct sp_buf *b, const struct sp_proc *p, bool has_session)
{
    static const char *const states[] = {"starting", "running", "exited", "closed"};
    const char *at = p->strings.data;
    const char *const cwd = at;
    char code[16] = "null";

    if (p->state.exit_seq != 0)
        (void)snprintf(code, sizeof code, "%d", (int)p->state.exit.code);
    bool ok =
        sp_buf_printf(b, "{") &&
        (!has_session || sp_buf_printf(b, "\"sessionId\":\"%s\",", p->session->id)) &&
        sp_buf_printf(b, "\"processId\":") && sp_buf_add_str(b, p->label) &&
        sp_buf_printf(b,
                      ",\"pid\":%d,\"state\":\"%s\",\"tty\":%s,\"exitCode\":%s,\"nextSeq\":%llu,"
                      "\"startedAtMs\":%lld,\"argv\":[",
                      (int)p->pid, states[p->life], p->is_tty ? "true" : "false", code,
                      (unsigned long long)sp_proc_next_seq(p), (long long)p->started_ms);
    at += strlen(at) + 1; /* the cwd */
    at += strlen(at) + 1; /* the file */
    const size_t mark = b->len;
    for (uint32_t i = 0; ok && i < p->argc && b->len - mark < LISTED_BYTES; i++) {
        const struct sp_str arg = sp_str_of(at);
        const size_t n = arg.n < LISTED_BYTES ? arg.n : LISTED_BYTES;

        ok = (i == 0 || sp_buf_add(b, ",", 1)) && sp_json_add_str(b, (struct sp_str){at, n});
        at += arg.n + 1;
    }
    return ok && sp_buf_printf(b, "],\"cwd\":\"") && sp_uri_add(b, sp_str_of(cwd)) &&
           sp_buf_printf(b, "\"") && (!p->is_confined || add_sandbox(b, p)) &&
           sp_buf_printf(b, "}");
}

/* A list of all sessions is read by our own verbs, too: it stays a message that they take. */
#define LIST_MAX_BYTES  (32U << 20)
#define LIST_MAX_VALUES 200000
#define VALUES_OF_ONE   32 /* JSON values of a process besides its arguments, at most */

struct room {
    uint64_t values;  /* so far, at most */
    uint32_t omitted; /* processes */
};

static bool has_room(struct room *room, const struct sp_buf *b, const struct sp_proc *p)
{
    const uint64_t argc = p->argc < LISTED_BYTES / 3 ? p->argc : LISTED_BYTES / 3;

    if (b->len > LIST_MAX_BYTES || room->values + VALUES_OF_ONE + argc > LIST_MAX_VALUES) {
        room->omitted++;
        return false;
    }
    room->values += VALUES_OF_ONE + argc;
    return true;
}

/* room NULL: of its own session a client is told everything. */
static bool add_session(struct sp_buf *b, const struct sp_session *s, struct room *room)
{
    bool ok = true;

    for (const struct sp_proc *p = s->first; ok && p != NULL; p = p->next)
        if (room == NULL || has_room(room, b, p))
            ok = (b->data[b->len - 1] == '[' || sp_buf_add(b, ",", 1)) &&
                 add_process(b, p, room != NULL);
    return ok;
}

/* The oldest first, with the end of the array. */
static bool add_sessions(struct sp_buf *b, const struct sp_server *server)
{
    const struct sp_session *s = server->first;
    struct room room = {0};
    bool ok = true;

    while (s != NULL && s->next != NULL)
        s = s->next;
    for (; ok && s != NULL; s = s->prev)
        ok = add_session(b, s, &room);
    ok = ok && sp_buf_add(b, "]", 1);
    return ok && (room.omitted == 0 || sp_buf_printf(b, ",\"omitted\":%u", room.omitted));
}

int sp_m_process_list(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_buf struct sp_buf b = {0};
    bool wants_all = false;
    int r = 0;

    if (c->params != SP_JSON_NONE) {
        r = sp_rpc_call_params(c, e);
        if (r == 0)
            r = sp_json_def_bool(c->json, c->params, "all", &wants_all, e);
    }
    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r < 0)
        return r;
    const bool ok =
        sp_buf_printf(&b, "{\"processes\":[") &&
        (wants_all ? add_sessions(&b, c->conn->rpc->server)
                   : add_session(&b, c->conn->session, NULL) && sp_buf_add(&b, "]", 1)) &&
        sp_buf_add(&b, "}", 1);
    if (!ok)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "list the processes");
    sp_rpc_call_reply(c, (struct sp_str){b.data, b.len});
    return 0;
}
