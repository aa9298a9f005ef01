/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/approvers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "approve/approver_program.h"
#include "base/auto.h"
#include "base/buf.h"
#include "base/list.h"

#define NO_ANSWER "approval required, but no person answered"
#define REMEDY \
    ". Name one more approver (--approver), allow it by a rule, or change the approval policy"

struct member {
    struct sp_approver *approver; /* NULL: the chain's client */
    unsigned round;
    bool owns;
};

struct sp_approvers {
    struct sp_loop *loop;
    struct member members[SP_APPROVERS_MAX]; /* sorted by round */
    size_t count;
    uint64_t timeout_ms;
};

/* ---- a chain ---- */

struct chain {
    struct sp_approver approver;
    struct sp_approvers *set;
    struct sp_approver *client;
    struct sp_list queries;
};

/* One member of the set for one query; the `user` that the member is asked with. */
struct slot {
    struct query *query;
    bool is_open;
};

struct query {
    struct chain *chain;
    struct sp_list link;
    const struct sp_approval_question *question;
    uint64_t id;
    sp_approver_fn *done; /* NULL: answered, or withdrawn */
    void *user;
    unsigned round;
    bool is_asking; /* ask_rounds is running and will free the query */
    struct sp_timer timer;
    struct sp_buf why; /* members without an answer, with their reasons */
    struct slot slots[SP_APPROVERS_MAX];
};

static struct sp_approver *approver_of(const struct query *q, size_t i)
{
    const struct member *m = &q->chain->set->members[i];

    return m->approver != NULL ? m->approver : q->chain->client;
}

static void withdraw_members(struct query *q)
{
    for (size_t i = 0; i < q->chain->set->count; i++)
        if (q->slots[i].is_open) {
            q->slots[i].is_open = false;
            approver_of(q, i)->ops->withdraw(approver_of(q, i), q->id, &q->slots[i]);
        }
}

static void free_query(struct query *q)
{
    withdraw_members(q);
    sp_loop_cancel(q->chain->set->loop, &q->timer);
    if (q->is_asking) { /* ask_rounds frees it */
        q->done = NULL;
        return;
    }
    sp_list_remove(&q->link);
    sp_buf_done(&q->why);
    free(q);
}

/* Answers and frees the query (or lets ask_rounds free it). */
static void answer_query(struct query *q, const struct sp_decision *d)
{
    sp_approver_fn *done = q->done;

    q->done = NULL;
    withdraw_members(q);
    done(q->user, q->id, d);
    free_query(q);
}

/* Appends to "approval required, but no person answered: NAME: WHY; NAME: WHY". A member that
 * cannot be asked at all is not mentioned. */
static void note_failure(struct query *q, const char *name, struct sp_str why)
{
    const size_t mark = q->why.len;

    if (sp_str_eq(why, SP_STR(SP_NOBODY_ANSWERS)))
        return;
    if (!sp_buf_add_str(&q->why, mark == 0 ? SP_STR(NO_ANSWER ": ") : SP_STR("; ")) ||
        (name != NULL && !sp_buf_printf(&q->why, "%s: ", name)) || !sp_buf_add_str(&q->why, why))
        q->why.len = mark;
}

static bool is_open(const struct query *q)
{
    for (size_t i = 0; i < q->chain->set->count; i++)
        if (q->slots[i].is_open)
            return true;
    return false;
}

static unsigned round_count(const struct sp_approvers *a)
{
    return a->count == 0 ? 0 : a->members[a->count - 1].round + 1;
}

static void ask_rounds(struct query *q);

static void on_answer(void *user, uint64_t question, const struct sp_decision *d)
{
    struct slot *s = user;
    struct query *q = s->query;
    const size_t i = (size_t)(s - q->slots);

    (void)question;
    if (!s->is_open || q->done == NULL)
        return;
    s->is_open = false;
    if (d->kind != SP_DECISION_FAILED && d->kind != SP_DECISION_NO_OPINION) {
        answer_query(q, d);
        return;
    }
    note_failure(q, approver_of(q, i)->name,
                 d->kind == SP_DECISION_FAILED ? d->rejection : SP_STR("it said nothing"));
    if (q->is_asking || is_open(q))
        return;
    q->round++;
    ask_rounds(q);
}

static void on_too_late(struct sp_timer *t)
{
    struct query *q = SP_CONTAINER(t, struct query, timer);

    for (size_t i = 0; i < q->chain->set->count; i++)
        if (q->slots[i].is_open)
            note_failure(q, approver_of(q, i)->name, SP_STR("no answer in time"));
    withdraw_members(q);
    q->round++;
    ask_rounds(q);
}

/* Asks round after round, from q->round on, until a member is open or has answered. The last round
 * has no timer: the deadline of the whole question ends it. */
static void ask_rounds(struct query *q)
{
    const struct sp_approvers *set = q->chain->set;

    sp_loop_cancel(set->loop, &q->timer);
    q->is_asking = true;
    for (; q->done != NULL && q->round < round_count(set); q->round++) {
        for (size_t i = 0; q->done != NULL && i < set->count; i++) {
            struct sp_approver *a = approver_of(q, i);

            if (set->members[i].round != q->round || a == NULL)
                continue;
            q->slots[i] = (struct slot){.query = q, .is_open = true};
            a->ops->ask(a, q->question, on_answer, &q->slots[i]);
        }
        if (q->done != NULL && is_open(q))
            break;
    }
    q->is_asking = false;
    if (q->done == NULL)
        free_query(q);
    else if (q->round == round_count(set)) {
        struct sp_decision d = {.kind = SP_DECISION_FAILED, .rejection = SP_STR(SP_NOBODY_ANSWERS)};

        if (q->why.len != 0 && sp_buf_add_str(&q->why, SP_STR(REMEDY)))
            d.rejection = sp_buf_str(&q->why);
        answer_query(q, &d);
    } else if (set->timeout_ms != 0 && q->round + 1 < round_count(set))
        (void)sp_loop_timer(
            set->loop, &q->timer, sp_loop_now(set->loop) + set->timeout_ms,
            on_too_late); /* without memory the deadline of the question is the limit */
}

static void ask_chain(struct sp_approver *a, const struct sp_approval_question *question,
                      sp_approver_fn *done, void *user)
{
    static const struct sp_decision failed = {.kind = SP_DECISION_FAILED,
                                              .rejection = SP_STR("no memory to ask")};
    struct chain *c = SP_CONTAINER(a, struct chain, approver);
    struct query *q = calloc(1, sizeof *q);

    if (q == NULL) {
        done(user, question->id, &failed);
        return;
    }
    *q = (struct query){
        .chain = c, .question = question, .id = question->id, .done = done, .user = user};
    sp_list_prepend(&c->queries, &q->link);
    ask_rounds(q);
}

static void withdraw_chain(struct sp_approver *a, uint64_t question, void *user)
{
    sp_list_each(i, &SP_CONTAINER(a, struct chain, approver)->queries) {
        struct query *q = SP_CONTAINER(i, struct query, link);

        if (q->id == question && q->user == user && q->done != NULL) {
            free_query(q);
            return;
        }
    }
}

static void free_chain(struct sp_approver *a)
{
    struct chain *c = SP_CONTAINER(a, struct chain, approver);

    while (!sp_list_is_empty(&c->queries))
        free_query(SP_CONTAINER(sp_list_first(&c->queries), struct query, link));
    free(c);
}

int sp_approvers_chain(struct sp_approvers *a, struct sp_approver *client, struct sp_approver **ret,
                       struct sp_err *e)
{
    static const struct sp_approver_ops ops = {
        .ask = ask_chain, .withdraw = withdraw_chain, .free = free_chain};
    struct chain *c = calloc(1, sizeof *c);

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    c->approver.ops = &ops;
    sp_list_init(&c->queries);
    c->set = a;
    c->client = client;
    *ret = &c->approver;
    return 0;
}

/* ---- a set ---- */

int sp_approvers_add(struct sp_approvers **a, struct sp_loop *loop, unsigned round,
                     struct sp_approver *approver, bool owns, struct sp_err *e)
{
    if (*a == NULL && (*a = calloc(1, sizeof **a)) == NULL) {
        if (owns)
            sp_approver_free(approver);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    }
    if ((*a)->count == SP_APPROVERS_MAX) {
        if (owns)
            sp_approver_free(approver);
        return sp_fail(e, SP_E_INVALID, 0, "approver: more than %d of them", SP_APPROVERS_MAX);
    }
    (*a)->loop = loop;
    (*a)->members[(*a)->count++] =
        (struct member){.approver = approver, .round = round, .owns = owns};
    return 0;
}

void sp_approvers_free(struct sp_approvers *a)
{
    if (a == NULL)
        return;
    for (size_t i = 0; i < a->count; i++)
        if (a->members[i].owns)
            sp_approver_free(a->members[i].approver);
    free(a);
}

bool sp_approvers_has_client(const struct sp_approvers *a)
{
    for (size_t i = 0; a != NULL && i < a->count; i++)
        if (a->members[i].approver == NULL)
            return true;
    return false;
}

bool sp_approvers_has_others(const struct sp_approvers *a)
{
    for (size_t i = 0; a != NULL && i < a->count; i++)
        if (a->members[i].approver != NULL)
            return true;
    return false;
}

uint64_t sp_approvers_timeout_ms(const struct sp_approvers *a)
{
    return a == NULL ? 0 : a->timeout_ms * round_count(a);
}

/* ---- the words of --approver ---- */

enum kind { DENY, TERMINAL, CLIENT, PROGRAM, KIND_MAX };

static const char *const names[KIND_MAX] = {
    [DENY] = "deny", [TERMINAL] = "terminal", [CLIENT] = "client", [PROGRAM] = "program:"};

/* The kind of the first approver in the text. A name ends at a comma or at the end. */
static enum kind kind_of(const char *text)
{
    for (enum kind k = DENY; k < PROGRAM; k++) {
        const size_t n = strlen(names[k]);

        if (strncmp(text, names[k], n) == 0 && (text[n] == 0 || text[n] == ','))
            return k;
    }
    return strncmp(text, names[PROGRAM], strlen(names[PROGRAM])) == 0 ? PROGRAM : KIND_MAX;
}

/* The first approver ends at a comma behind which another one begins: a path may contain commas. */
size_t sp_approvers_first(const char *text)
{
    for (const char *at = strchr(text, ','); at != NULL; at = strchr(at + 1, ','))
        if (kind_of(at + 1) != KIND_MAX)
            return (size_t)(at - text);
    return strlen(text);
}

static int refuse_word(const char *word, const char *choices, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0, "`%s` is not %s", word, choices);
}

int sp_approvers_check(const char *word, const char *choices, bool is_absolute, struct sp_err *e)
{
    for (const char *at = word;; at++) {
        const enum kind k = kind_of(at);
        const size_t n = sp_approvers_first(at);

        if (k == KIND_MAX || (k != PROGRAM && n != strlen(names[k])) ||
            (k == PROGRAM &&
             (n == strlen(names[PROGRAM]) || (is_absolute && at[strlen(names[PROGRAM])] != '/'))))
            return refuse_word(word, choices, e);
        at += n;
        if (*at == 0)
            return 0;
    }
}

struct opening {
    const struct sp_approvers_ask *ask;
    struct sp_approvers *set;
    unsigned round;
    bool denies;
    struct sp_err skipped; /* the first approver that was skipped; code NONE: none was */
};

/* An approver that this command does not have: skipped if it is from the configuration. */
static int skip_or_fail(struct opening *o, const char *name, const char *why, struct sp_err *e)
{
    struct sp_err fault;

    if (why != NULL)
        (void)sp_fail(&fault, SP_E_INVALID, 0, "%s", why);
    else
        (void)refuse_word(name, o->ask->choices, &fault);
    if (!o->ask->is_configured) {
        if (e != NULL)
            *e = fault;
        return -(int)fault.code;
    }
    if (o->skipped.code == SP_E_NONE)
        o->skipped = fault;
    return 0;
}

static int open_one(struct opening *o, char *text, struct sp_err *e)
{
    const struct sp_approvers_ask *ask = o->ask;
    struct sp_approver *approver = NULL;
    int r = 0;

    switch (kind_of(text)) {
    case DENY:
        o->denies = true;
        return 0;
    case CLIENT:
        if (!ask->has_client)
            return skip_or_fail(o, text, NULL, e);
        return sp_approvers_add(&o->set, ask->loop, o->round, NULL, false, e);
    case TERMINAL:
        if (ask->open_terminal == NULL)
            return skip_or_fail(o, text, ask->no_terminal, e);
        r = ask->open_terminal(ask->loop, &approver, e);
        break;
    case PROGRAM:
        r = sp_approver_program_new(ask->loop, text + strlen(names[PROGRAM]), &approver, e);
        break;
    case KIND_MAX:
        return refuse_word(text, ask->choices, e);
    }
    return r < 0 ? r : sp_approvers_add(&o->set, ask->loop, o->round, approver, true, e);
}

/* One word: the approvers of one round, asked at the same time. */
static int open_round(struct opening *o, const char *word, struct sp_err *e)
{
    const size_t before = o->set == NULL ? 0 : o->set->count;
    int r = sp_approvers_check(word, o->ask->choices, false, e);

    for (const char *at = word; r == 0;) {
        const size_t n = sp_approvers_first(at);
        auto_free char *text = strndup(at, n);

        r = text == NULL ? sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver")
                         : open_one(o, text, e);
        if (at[n] == 0)
            break;
        at += n + 1;
    }
    if (o->set != NULL && o->set->count != before)
        o->round++;
    return r;
}

static bool names_client(const char *const *words)
{
    for (size_t i = 0; words != NULL && words[i] != NULL; i++)
        for (const char *at = words[i]; *at != 0; at += at[0] == ',') {
            if (kind_of(at) == CLIENT)
                return true;
            at += sp_approvers_first(at);
        }
    return false;
}

int sp_approvers_open(const struct sp_approvers_ask *ask, struct sp_approvers **ret,
                      struct sp_err *e)
{
    struct opening o = {.ask = ask};
    int r = 0;

    if (ask->begins_with_client && !names_client(ask->words)) {
        r = sp_approvers_add(&o.set, ask->loop, 0, NULL, false, e);
        o.round = 1;
    }
    for (size_t i = 0; r == 0 && ask->words != NULL && ask->words[i] != NULL; i++)
        r = open_round(&o, ask->words[i], e);
    if (r == 0 && o.denies && sp_approvers_has_others(o.set))
        r = sp_fail(e, SP_E_INVALID, 0, "`deny` stands alone: no other approver beside it");
    if (r == 0 && o.skipped.code != SP_E_NONE && o.set == NULL && !o.denies) {
        /* Approvers are configured, but this command has none of them. */
        if (e != NULL)
            *e = o.skipped;
        r = -(int)o.skipped.code;
    }
    if (r < 0) {
        sp_approvers_free(o.set);
        return r;
    }
    if (o.set != NULL)
        o.set->timeout_ms = ask->timeout_ms;
    *ret = o.set;
    return 0;
}
