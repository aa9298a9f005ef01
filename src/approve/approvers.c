/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/approvers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "approve/approver_program.h"
#include "base/auto.h"
#include "base/buf.h"

#define NO_ANSWER "approval required, but no person answered"
#define REMEDY \
    ". Name one more approver (--approver), allow it by a rule, or change the approval policy"

struct member {
    struct sp_approver *approver; /* NULL: the chain's client */
    unsigned turn;
    bool owns;
};

struct sp_approvers {
    struct sp_loop *loop;
    struct member members[SP_APPROVERS_MAX]; /* by their turns */
    size_t count;
    uint64_t timeout_ms;
};

/* ---- a chain ---- */

struct chain {
    struct sp_approver approver;
    struct sp_approvers *set;
    struct sp_approver *client;
    struct query *first;
};

/* What one member is asked: its `user`. */
struct slot {
    struct query *query;
    bool is_open;
};

struct query {
    struct chain *chain;
    struct query *prev, *next;
    const struct sp_approval_question *question;
    uint64_t id;
    sp_approver_fn *done; /* NULL: answered, or withdrawn */
    void *user;
    unsigned turn;
    bool is_asking; /* its members are being asked: it stays */
    struct sp_timer timer;
    struct sp_buf why; /* each that did not answer, and why not */
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
    if (q->is_asking) { /* whoever asks frees it */
        q->done = NULL;
        return;
    }
    *(q->prev != NULL ? &q->prev->next : &q->chain->first) = q->next;
    if (q->next != NULL)
        q->next->prev = q->prev;
    sp_buf_done(&q->why);
    free(q);
}

/* The last thing that is done to q. */
static void tell(struct query *q, const struct sp_decision *d)
{
    sp_approver_fn *done = q->done;

    q->done = NULL;
    withdraw_members(q);
    done(q->user, q->id, d);
    free_query(q);
}

static void tell_that_nobody_answered(struct query *q)
{
    struct sp_decision d = {.kind = SP_DECISION_FAILED, .rejection = SP_STR(SP_NOBODY_ANSWERS)};

    if (q->why.len != 0 && sp_buf_add_str(&q->why, SP_STR(REMEDY)))
        d.rejection = (struct sp_str){q->why.data, q->why.len};
    tell(q, &d);
}

/* "approval required, but no person answered: NAME: WHY; NAME: WHY". One that cannot be asked at
 * all is not worth a word. */
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

static unsigned turn_count(const struct sp_approvers *a)
{
    return a->count == 0 ? 0 : a->members[a->count - 1].turn + 1;
}

static void ask_turns(struct query *q);

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
        tell(q, d);
        return;
    }
    note_failure(q, approver_of(q, i)->name,
                 d->kind == SP_DECISION_FAILED ? d->rejection : SP_STR("it said nothing"));
    if (q->is_asking || is_open(q))
        return;
    q->turn++;
    ask_turns(q);
}

static void on_too_late(struct sp_timer *t)
{
    struct query *q = SP_CONTAINER(t, struct query, timer);

    for (size_t i = 0; i < q->chain->set->count; i++)
        if (q->slots[i].is_open)
            note_failure(q, approver_of(q, i)->name, SP_STR("no answer in time"));
    withdraw_members(q);
    q->turn++;
    ask_turns(q);
}

static void ask_members(struct query *q)
{
    const struct sp_approvers *set = q->chain->set;

    for (size_t i = 0; q->done != NULL && i < set->count; i++) {
        struct sp_approver *a = approver_of(q, i);

        if (set->members[i].turn != q->turn || a == NULL)
            continue;
        q->slots[i] = (struct slot){.query = q, .is_open = true};
        a->ops->ask(a, q->question, on_answer, &q->slots[i]);
    }
}

/* From q->turn on, until one is open or there is an answer. The last turn has no timer of its own:
 * the deadline of the whole question ends it. */
static void ask_turns(struct query *q)
{
    const struct sp_approvers *set = q->chain->set;

    sp_loop_cancel(set->loop, &q->timer);
    q->is_asking = true;
    for (; q->done != NULL && q->turn < turn_count(set); q->turn++) {
        ask_members(q);
        if (q->done != NULL && is_open(q))
            break;
    }
    q->is_asking = false;
    if (q->done == NULL)
        free_query(q);
    else if (q->turn == turn_count(set))
        tell_that_nobody_answered(q);
    else if (set->timeout_ms != 0 && q->turn + 1 < turn_count(set))
        (void)sp_loop_timer(set->loop, &q->timer, sp_loop_now(set->loop) + set->timeout_ms,
                            on_too_late); /* no memory: the whole question has a deadline */
}

static void ask(struct sp_approver *a, const struct sp_approval_question *question,
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
    *q = (struct query){.chain = c,
                        .next = c->first,
                        .question = question,
                        .id = question->id,
                        .done = done,
                        .user = user};
    if (q->next != NULL)
        q->next->prev = q;
    c->first = q;
    ask_turns(q);
}

static void withdraw(struct sp_approver *a, uint64_t question, void *user)
{
    struct query *q = SP_CONTAINER(a, struct chain, approver)->first;

    while (q != NULL && !(q->id == question && q->user == user && q->done != NULL))
        q = q->next;
    if (q != NULL)
        free_query(q);
}

static void free_chain(struct sp_approver *a)
{
    struct chain *c = SP_CONTAINER(a, struct chain, approver);

    while (c->first != NULL)
        free_query(c->first);
    free(c);
}

int sp_approvers_chain(struct sp_approvers *a, struct sp_approver *client, struct sp_approver **ret,
                       struct sp_err *e)
{
    static const struct sp_approver_ops ops = {
        .ask = ask, .withdraw = withdraw, .free = free_chain};
    struct chain *c = calloc(1, sizeof *c);

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    c->approver.ops = &ops;
    c->set = a;
    c->client = client;
    *ret = &c->approver;
    return 0;
}

/* ---- a set ---- */

int sp_approvers_add(struct sp_approvers **a, struct sp_loop *loop, unsigned turn,
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
        (struct member){.approver = approver, .turn = turn, .owns = owns};
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
    return a == NULL ? 0 : a->timeout_ms * turn_count(a);
}

/* ---- words ---- */

enum kind { DENY, TERMINAL, CLIENT, PROGRAM, KIND_MAX };

static const char *const names[KIND_MAX] = {
    [DENY] = "deny", [TERMINAL] = "terminal", [CLIENT] = "client", [PROGRAM] = "program:"};

/* How a text begins. Names end where the text does, or with a comma. */
static enum kind kind_of(const char *text)
{
    for (enum kind k = DENY; k < PROGRAM; k++) {
        const size_t n = strlen(names[k]);

        if (strncmp(text, names[k], n) == 0 && (text[n] == 0 || text[n] == ','))
            return k;
    }
    return strncmp(text, names[PROGRAM], strlen(names[PROGRAM])) == 0 ? PROGRAM : KIND_MAX;
}

/* The end of the first approver in the text: at a comma behind which another one begins. A path may
 * have commas. */
size_t sp_approvers_first(const char *text)
{
    for (const char *at = strchr(text, ','); at != NULL; at = strchr(at + 1, ','))
        if (kind_of(at + 1) != KIND_MAX)
            return (size_t)(at - text);
    return strlen(text);
}

static int refuse(const char *word, const char *choices, struct sp_err *e)
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
            return refuse(word, choices, e);
        at += n;
        if (*at == 0)
            return 0;
    }
}

struct opening {
    const struct sp_approvers_ask *ask;
    struct sp_approvers *set;
    unsigned turn;
    bool denies;
    struct sp_err skipped; /* the first approver that was, and why; code NONE: none was */
};

static int skip_or_fail(struct opening *o, const char *name, const char *why, struct sp_err *e)
{
    struct sp_err fault;

    if (why != NULL)
        (void)sp_fail(&fault, SP_E_INVALID, 0, "%s", why);
    else
        (void)refuse(name, o->ask->choices, &fault);
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
        return sp_approvers_add(&o->set, ask->loop, o->turn, NULL, false, e);
    case TERMINAL:
        if (ask->open_terminal == NULL)
            return skip_or_fail(o, text, ask->no_terminal, e);
        r = ask->open_terminal(ask->loop, &approver, e);
        break;
    case PROGRAM:
        r = sp_approver_program_new(ask->loop, text + strlen(names[PROGRAM]), &approver, e);
        break;
    case KIND_MAX:
        return refuse(text, ask->choices, e);
    }
    return r < 0 ? r : sp_approvers_add(&o->set, ask->loop, o->turn, approver, true, e);
}

/* One word: all that is asked at once. */
static int open_turn(struct opening *o, const char *word, struct sp_err *e)
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
        o->turn++;
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

static int check_deny(const struct opening *o, struct sp_err *e)
{
    if (o->denies && sp_approvers_has_others(o->set))
        return sp_fail(e, SP_E_INVALID, 0, "`deny` stands alone: no other approver beside it");
    /* Whatever was named, nothing of it is for this command. */
    if (o->skipped.code != SP_E_NONE && o->set == NULL && !o->denies) {
        if (e != NULL)
            *e = o->skipped;
        return -(int)o->skipped.code;
    }
    return 0;
}

int sp_approvers_open(const struct sp_approvers_ask *ask, struct sp_approvers **ret,
                      struct sp_err *e)
{
    struct opening o = {.ask = ask};
    int r = 0;

    if (ask->begins_with_client && !names_client(ask->words)) {
        r = sp_approvers_add(&o.set, ask->loop, 0, NULL, false, e);
        o.turn = 1;
    }
    for (size_t i = 0; r == 0 && ask->words != NULL && ask->words[i] != NULL; i++)
        r = open_turn(&o, ask->words[i], e);
    if (r == 0)
        r = check_deny(&o, e);
    if (r < 0) {
        sp_approvers_free(o.set);
        return r;
    }
    if (o.set != NULL)
        o.set->timeout_ms = ask->timeout_ms;
    *ret = o.set;
    return 0;
}
