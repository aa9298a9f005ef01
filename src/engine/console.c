/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/console.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "approve/question_text.h"
#include "approve/rules/rules.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/list.h"
#include "base/sha.h"
#include "engine/local_socket.h"
#include "server/rpc/conn.h"

#define QUESTION_MAX (16U << 20) /* bytes of a question as JSON */
#define SHOWN_MAX    (64U << 20) /* bytes of all open questions as consoles see them */
#define CLOSED_KEPT  64          /* closed questions whose outcome is remembered */
#define NAME_MAX_    128         /* bytes of who and via */

struct closed_question {
    uint64_t number; /* 0: none */
    char outcome[32];
    char who[NAME_MAX_ + 1], via[NAME_MAX_ + 1]; /* who "": nobody has answered */
};

struct sp_console {
    struct sp_questions questions;
    struct sp_rpc *rpc;
    struct sp_local_socket *local_socket;
    struct sp_list open; /* struct entry, the oldest first */
    unsigned count;
    size_t bytes; /* of the JSON of the open questions */
    uint64_t last;
    struct closed_question closed[CLOSED_KEPT];
    size_t next_closed;
};

struct console_approver {
    struct sp_approver approver;
    struct sp_console *console;
    struct sp_console_options ask;
};

struct entry {
    struct sp_list link;
    struct console_approver *by;
    uint64_t number;
    char digest[65];
    struct sp_buf json; /* the question as consoles see it */
    uint64_t question;
    sp_approver_fn *done;
    void *user;
};

/* ---- a question as JSON ---- */

static bool add_name(struct sp_buf *b, const char *member, const char *name)
{
    return name == NULL || name[0] == 0 ? sp_buf_printf(b, ",\"%s\":null", member)
                                        : sp_json_add_member(b, member, sp_str_of(name));
}

/* text and rest: the sentences of the terminal approver; rest has what text leaves out. */
static bool add_question(struct entry *n, const struct sp_approval_question *q)
{
    struct sp_buf *b = &n->json;
    auto_buf struct sp_buf json = {.max = QUESTION_MAX};
    auto_buf struct sp_buf text = {.max = QUESTION_MAX};
    auto_buf struct sp_buf rest = {.max = QUESTION_MAX};
    const struct sp_console_options *ask = &n->by->ask;
    const uint64_t limit_ms = n->by->approver.limit_ms;
    const int64_t opened_ms = (int64_t)sp_clock_unix_ms();

    if (!sp_question_add_json(&json, q) || !sp_question_add_text(&text, q, &rest, false))
        return false;
    sp_sha256_hex(sp_buf_str(&json), n->digest);
    b->max = SHOWN_MAX - n->by->console->bytes;
    bool ok = sp_buf_printf(b, "{\"number\":%" PRIu64 ",\"digest\":\"%s\"", n->number, n->digest) &&
              add_name(b, "sessionId", ask->session) &&
              sp_json_add_member(b, "processId", q->call_id) &&
              add_name(b, "clientName", ask->client_name) &&
              sp_buf_printf(b, ",\"openedAtMs\":%" PRId64, opened_ms);
    if (limit_ms != 0)
        ok = ok && sp_buf_printf(b, ",\"expiresAtMs\":%" PRId64, opened_ms + (int64_t)limit_ms);
    else
        ok = ok && sp_buf_printf(b, ",\"expiresAtMs\":null");
    return ok && sp_question_add_card(b, q, ask->user_dir) &&
           sp_json_add_member(b, "text", sp_buf_str(&text)) &&
           sp_json_add_member(b, "rest", sp_buf_str(&rest)) && sp_buf_printf(b, ",\"question\":") &&
           sp_buf_add_str(b, sp_buf_str(&json)) && sp_buf_add(b, "}", 1);
}

/* ---- the end of a question ---- */

static bool add_by(struct sp_buf *b, const struct closed_question *c)
{
    if (c->who[0] == 0)
        return sp_buf_printf(b, ",\"by\":null");
    return sp_buf_printf(b, ",\"by\":{\"who\":") && sp_json_add_str(b, sp_str_of(c->who)) &&
           sp_json_add_member(b, "via", sp_str_of(c->via)) && sp_buf_add(b, "}", 1);
}

static void copy_name(char ret[NAME_MAX_ + 1], struct sp_str name)
{
    const size_t n = name.n < NAME_MAX_ ? name.n : NAME_MAX_;

    if (n > 0)
        memcpy(ret, name.p, n);
    ret[n] = 0;
}

/* Tells the watchers and frees the entry. who: "": nobody has answered. */
static void close_entry(struct entry *n, const char *outcome, struct sp_str who, struct sp_str via)
{
    struct sp_console *c = n->by->console;
    struct closed_question *kept = &c->closed[c->next_closed++ % CLOSED_KEPT];
    auto_buf struct sp_buf b = {0};

    *kept = (struct closed_question){.number = n->number};
    (void)snprintf(kept->outcome, sizeof kept->outcome, "%s", outcome);
    copy_name(kept->who, who);
    copy_name(kept->via, via);
    sp_list_remove(&n->link);
    c->count--;
    c->bytes -= n->json.len;
    if (sp_buf_printf(&b, "{\"number\":%" PRIu64 ",\"outcome\":\"%s\"", n->number, outcome) &&
        add_by(&b, kept) &&
        sp_buf_printf(&b, ",\"note\":\"\",\"atMs\":%lld}", (long long)sp_clock_unix_ms()))
        sp_questions_tell(c->rpc, "approval/closed", sp_buf_str(&b));
    sp_buf_done(&n->json);
    free(n);
}

/* ---- as an approver ---- */

static void ask_console(struct sp_approver *a, const struct sp_approval_question *q,
                        sp_approver_fn *done, void *user)
{
    static const struct sp_decision failed = {
        .kind = SP_DECISION_FAILED,
        .rejection = SP_STR("the question could not be shown to consoles")};
    struct console_approver *by = SP_CONTAINER(a, struct console_approver, approver);
    struct sp_console *c = by->console;
    const bool has_room = c->count < SP_CONSOLE_QUESTIONS_MAX && c->bytes < SHOWN_MAX;
    struct entry *n = has_room ? calloc(1, sizeof *n) : NULL;

    if (n == NULL) {
        done(user, q->id, &failed);
        return;
    }
    *n = (struct entry){
        .by = by, .number = ++c->last, .question = q->id, .done = done, .user = user};
    if (!add_question(n, q)) {
        sp_buf_done(&n->json);
        free(n);
        done(user, q->id, &failed);
        return;
    }
    sp_list_append(&c->open, &n->link);
    c->count++;
    c->bytes += n->json.len;
    if (c->local_socket != NULL)
        sp_local_socket_open(c->local_socket);
    sp_questions_tell(c->rpc, "approval/opened", sp_buf_str(&n->json));
}

static struct entry *find_entry(const struct console_approver *by, uint64_t question,
                                const void *user)
{
    sp_list_each(i, &by->console->open) {
        struct entry *n = SP_CONTAINER(i, struct entry, link);

        if (n->by == by && n->question == question && n->user == user)
            return n;
    }
    return NULL;
}

static void withdraw_from_console(struct sp_approver *a, uint64_t question, void *user)
{
    struct entry *n =
        find_entry(SP_CONTAINER(a, struct console_approver, approver), question, user);

    if (n != NULL)
        close_entry(n, "withdrawn", (struct sp_str){0}, (struct sp_str){0});
}

static void outdo_console(struct sp_approver *a, uint64_t question, void *user,
                          const struct sp_decision *d, const char *via)
{
    struct entry *n =
        find_entry(SP_CONTAINER(a, struct console_approver, approver), question, user);

    if (n != NULL)
        close_entry(n, sp_decision_name(d->kind), sp_str_of(sp_decider_name(d->by)),
                    sp_str_of(via));
}

static void free_console_approver(struct sp_approver *a)
{
    free(SP_CONTAINER(a, struct console_approver, approver));
}

int sp_console_approver_new(struct sp_console *c, const struct sp_console_options *ask,
                            struct sp_approver **ret, struct sp_err *e)
{
    static const struct sp_approver_ops ops = {.ask = ask_console,
                                               .withdraw = withdraw_from_console,
                                               .outdone = outdo_console,
                                               .free = free_console_approver};
    struct console_approver *by = calloc(1, sizeof *by);

    if (by == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    by->approver = (struct sp_approver){.ops = &ops, .name = "console"};
    by->console = c;
    by->ask = *ask;
    *ret = &by->approver;
    return 0;
}

/* ---- for the connections ---- */

static bool add_open(struct sp_questions *q, struct sp_buf *out)
{
    const struct sp_console *c = SP_CONTAINER(q, struct sp_console, questions);
    const char *between = "";

    sp_list_each(i, &c->open) {
        if (!sp_buf_printf(out, "%s", between) ||
            !sp_buf_add_str(out, sp_buf_str(&SP_CONTAINER(i, struct entry, link)->json)))
            return false;
        between = ",";
    }
    return true;
}

static int answer_closed(const struct sp_console *c, uint64_t number, struct sp_buf *out,
                         struct sp_err *e)
{
    for (size_t i = 0; number != 0 && i < CLOSED_KEPT; i++)
        if (c->closed[i].number == number)
            return sp_buf_printf(out, "{\"status\":\"closed\",\"outcome\":\"%s\"",
                                 c->closed[i].outcome) &&
                           add_by(out, &c->closed[i]) && sp_buf_add(out, "}", 1)
                       ? 0
                       : sp_fail(e, SP_E_SYSTEM, ENOMEM, "answer");
    return sp_fail(e, SP_E_INVALID, 0, "there is no question %" PRIu64, number);
}

/* The answer is in *out before the approver hears it: that may end the program. */
static int decide(struct sp_questions *q, const struct sp_questions_answer *a, struct sp_buf *out,
                  struct sp_err *e)
{
    struct sp_console *c = SP_CONTAINER(q, struct sp_console, questions);
    struct entry *n = NULL;
    struct sp_decision_text d = {0};

    sp_list_each(i, &c->open)
        if (SP_CONTAINER(i, struct entry, link)->number == a->number)
            n = SP_CONTAINER(i, struct entry, link);
    if (n == NULL)
        return answer_closed(c, a->number, out, e);
    if (!sp_str_eq(a->digest, sp_str_of(n->digest)))
        return sp_fail(e, SP_E_INVALID, 0,
                       "the digest is not that of question %" PRIu64 ": look at it again",
                       a->number);
    sp_decision_read(a->decision, true, &d);
    if (d.decision.kind == SP_DECISION_FAILED || d.decision.kind == SP_DECISION_NO_OPINION ||
        d.decision.kind == SP_DECISION_TIMED_OUT) {
        sp_decision_text_done(&d);
        return sp_fail(e, SP_E_INVALID, 0, "decision: this is none");
    }
    if (!sp_buf_printf(out, "{\"status\":\"accepted\"}")) {
        sp_decision_text_done(&d);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "answer");
    }
    d.decision.by = SP_DECIDER_USER;
    sp_approver_fn *done = n->done;
    void *user = n->user;
    const uint64_t question = n->question;
    close_entry(n, sp_decision_name(d.decision.kind), a->who, a->via);
    done(user, question, &d.decision);
    sp_decision_text_done(&d);
    return 0;
}

/* ---- beginning and end ---- */

int sp_console_new(struct sp_rpc *rpc, struct sp_local_socket *local_socket,
                   struct sp_console **ret, struct sp_err *e)
{
    static const struct sp_questions_ops ops = {.add_open = add_open, .decide = decide};
    struct sp_console *c = calloc(1, sizeof *c);

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the console");
    c->questions.ops = &ops;
    c->rpc = rpc;
    c->local_socket = local_socket;
    /* Numbers of two programs seldom meet: a person types them without a pid. */
    (void)!getrandom(&c->last, 1, 0);
    c->last = 100 + c->last % 256 * 3;
    sp_list_init(&c->open);
    rpc->questions = &c->questions;
    *ret = c;
    return 0;
}

void sp_console_free(struct sp_console *c)
{
    if (c == NULL)
        return;
    c->rpc->questions = NULL;
    free(c);
}
