/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/approvers.h"

#include <assert.h>
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

#define MEMBERS_MAX (2 * SP_APPROVERS_MAX)

struct member {
    struct sp_approver *approver; /* NULL: the chain's client or console */
    unsigned round;
    bool owns;
    bool is_console;
    bool is_companion; /* of the person before it: does not keep the round open */
};

struct sp_approvers {
    struct sp_loop *loop;
    struct member members[MEMBERS_MAX]; /* sorted by round */
    size_t count;
    size_t companions; /* of them */
    uint64_t timeout_ms;
};

/* ---- a chain ---- */

struct chain {
    struct sp_approver approver;
    struct sp_approvers *set;
    struct sp_approver *client, *console;
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
    uint64_t asked_ms;
    bool is_asking; /* ask_rounds is running and will free the query */
    struct sp_timer timer;
    struct sp_buf why; /* members without an answer, with their reasons */
    struct slot slots[MEMBERS_MAX];
};

static struct sp_approver *approver_of(const struct query *q, size_t i)
{
    const struct member *m = &q->chain->set->members[i];

    if (m->is_console)
        return q->chain->console;
    return m->approver != NULL ? m->approver : q->chain->client;
}

/* The name of a member for people at other places. */
static const char *via_of(const struct query *q, size_t i)
{
    const char *name = approver_of(q, i)->name;

    if (name != NULL)
        return name;
    return q->chain->set->members[i].approver != NULL ? "the terminal" : "the client";
}

/* answer: of another member, called `via`; NULL: there is none. */
static void withdraw_members(struct query *q, const struct sp_decision *answer, const char *via)
{
    for (size_t i = 0; i < q->chain->set->count; i++)
        if (q->slots[i].is_open) {
            q->slots[i].is_open = false;
            struct sp_approver *a = approver_of(q, i);

            if (answer != NULL && a->ops->outdone != NULL)
                a->ops->outdone(a, q->id, &q->slots[i], answer, via);
            else
                a->ops->withdraw(a, q->id, &q->slots[i]);
        }
}

static void free_query(struct query *q)
{
    withdraw_members(q, NULL, NULL);
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
static void answer_query(struct query *q, const struct sp_decision *d, const char *via)
{
    sp_approver_fn *done = q->done;

    q->done = NULL;
    withdraw_members(q, d, via);
    done(q->user, q->id, d);
    free_query(q);
}

/* Appends to "approval required, but no person answered: NAME: WHY; NAME: WHY". A member that
 * cannot be asked at all is not mentioned. */
static void note_failure(struct query *q, const char *name, struct sp_str why)
{
    const size_t mark = q->why.len;

    if (sp_str_eq(why, SP_STR(SP_NO_APPROVER)))
        return;
    if (!sp_buf_add_str(&q->why, mark == 0 ? SP_STR(NO_ANSWER ": ") : SP_STR("; ")) ||
        (name != NULL && !sp_buf_printf(&q->why, "%s: ", name)) || !sp_buf_add_str(&q->why, why))
        q->why.len = mark;
}

static bool is_open(const struct query *q)
{
    for (size_t i = 0; i < q->chain->set->count; i++)
        if (q->slots[i].is_open && !q->chain->set->members[i].is_companion)
            return true;
    return false;
}

static void on_too_late(struct sp_timer *t);

static bool waits_for_others(const struct query *q)
{
    const struct sp_approvers *set = q->chain->set;

    for (size_t i = 0; i < set->count; i++)
        if (q->slots[i].is_open && !set->members[i].is_console)
            return true;
    return false;
}

/* A question that waits for the console alone must end one day. */
static void limit_console(struct query *q)
{
    const struct sp_approvers *set = q->chain->set;

    if (set->timeout_ms == 0 && !waits_for_others(q))
        (void)sp_loop_timer(set->loop, &q->timer, sp_loop_now(set->loop) + SP_CONSOLE_MS,
                            on_too_late); /* without memory it ends with its caller */
}

static unsigned round_count(const struct sp_approvers *a)
{
    return a->count == 0 ? 0 : a->members[a->count - 1].round + 1;
}

/* How long the question may wait in this round; 0: no limit is known. */
static uint64_t limit_of(const struct query *q)
{
    const struct sp_approvers *set = q->chain->set;
    const uint64_t all_ms = sp_approvers_timeout_ms(set);
    const uint64_t gone_ms = sp_loop_now(set->loop) - q->asked_ms;

    if (set->timeout_ms == 0)
        return waits_for_others(q) ? 0 : SP_CONSOLE_MS;
    if (q->round + 1 < round_count(set))
        return set->timeout_ms;
    return gone_ms < all_ms ? all_ms - gone_ms : 1;
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
        answer_query(q, d, via_of(q, i));
        return;
    }
    note_failure(q, approver_of(q, i)->name,
                 d->kind == SP_DECISION_FAILED ? d->rejection : SP_STR("it said nothing"));
    if (q->is_asking)
        return;
    if (is_open(q)) {
        limit_console(q);
        return;
    }
    withdraw_members(q, NULL, NULL);
    q->round++;
    ask_rounds(q);
}

static void on_too_late(struct sp_timer *t)
{
    struct query *q = SP_CONTAINER(t, struct query, timer);

    for (size_t i = 0; i < q->chain->set->count; i++)
        if (q->slots[i].is_open)
            note_failure(q, approver_of(q, i)->name, SP_STR("no answer in time"));
    withdraw_members(q, NULL, NULL);
    q->round++;
    ask_rounds(q);
}

/* Asks the members of this round: the console last, when it is known whether it is alone. */
static void ask_members(struct query *q, bool wants_console)
{
    const struct sp_approvers *set = q->chain->set;

    for (size_t i = 0; q->done != NULL && i < set->count; i++) {
        const struct member *m = &set->members[i];
        struct sp_approver *a = approver_of(q, i);

        if (m->round != q->round || m->is_console != wants_console || a == NULL ||
            (m->is_companion && !is_open(q)))
            continue;
        q->slots[i] = (struct slot){.query = q, .is_open = true};
        a->limit_ms = m->is_console ? limit_of(q) : 0;
        a->ops->ask(a, q->question, on_answer, &q->slots[i]);
    }
}

/* Asks round after round, from q->round on, until a member is open or has answered. The last round
 * has no timer: the deadline of the whole question ends it. */
static void ask_rounds(struct query *q)
{
    const struct sp_approvers *set = q->chain->set;

    sp_loop_cancel(set->loop, &q->timer);
    q->is_asking = true;
    for (; q->done != NULL && q->round < round_count(set); q->round++) {
        ask_members(q, false);
        ask_members(q, true);
        if (q->done != NULL && is_open(q))
            break;
        withdraw_members(q, NULL, NULL);
    }
    q->is_asking = false;
    if (q->done == NULL)
        free_query(q);
    else if (q->round == round_count(set)) {
        struct sp_decision d = {.kind = SP_DECISION_FAILED, .rejection = SP_STR(SP_NO_APPROVER)};

        if (q->why.len != 0 && sp_buf_add_str(&q->why, SP_STR(REMEDY)))
            d.rejection = sp_buf_str(&q->why);
        answer_query(q, &d, NULL);
    } else if (set->timeout_ms != 0 && q->round + 1 < round_count(set))
        (void)sp_loop_timer(
            set->loop, &q->timer, sp_loop_now(set->loop) + set->timeout_ms,
            on_too_late); /* without memory the deadline of the question is the limit */
    else
        limit_console(q);
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
    *q = (struct query){.chain = c,
                        .question = question,
                        .id = question->id,
                        .done = done,
                        .user = user,
                        .asked_ms = sp_loop_now(c->set->loop)};
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

int sp_approvers_chain(struct sp_approvers *a, struct sp_approver *client,
                       struct sp_approver *console, struct sp_approver **ret, struct sp_err *e)
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
    c->console = console;
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
    if ((*a)->count - (*a)->companions == SP_APPROVERS_MAX) {
        if (owns)
            sp_approver_free(approver);
        return sp_fail(e, SP_E_INVALID, 0, "approver: more than %d of them", SP_APPROVERS_MAX);
    }
    (*a)->loop = loop;
    (*a)->members[(*a)->count++] =
        (struct member){.approver = approver, .round = round, .owns = owns};
    return 0;
}

static int add_console(struct sp_approvers **a, struct sp_loop *loop, unsigned round,
                       bool is_companion, struct sp_err *e)
{
    for (size_t i = 0; *a != NULL && i < (*a)->count; i++)
        if ((*a)->members[i].round == round && (*a)->members[i].is_console)
            return 0;
    const int r = sp_approvers_add(a, loop, round, NULL, false, e);
    if (r == 0) {
        assert(*a != NULL);
        (*a)->members[(*a)->count - 1].is_console = true;
        (*a)->members[(*a)->count - 1].is_companion = is_companion;
        (*a)->companions += is_companion;
    }
    return r;
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
        if (a->members[i].approver == NULL && !a->members[i].is_console)
            return true;
    return false;
}

bool sp_approvers_has_others(const struct sp_approvers *a)
{
    for (size_t i = 0; a != NULL && i < a->count; i++)
        if (a->members[i].approver != NULL ||
            (a->members[i].is_console && !a->members[i].is_companion))
            return true;
    return false;
}

uint64_t sp_approvers_timeout_ms(const struct sp_approvers *a)
{
    return a == NULL ? 0 : a->timeout_ms * round_count(a);
}

/* ---- the words of --approver ---- */

enum kind { DENY, TERMINAL, CLIENT, CONSOLE, PROGRAM, KIND_MAX };

static const char *const names[KIND_MAX] = {[DENY] = "deny",
                                            [TERMINAL] = "terminal",
                                            [CLIENT] = "client",
                                            [CONSOLE] = "console",
                                            [PROGRAM] = "program:"};

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
    const struct sp_approvers_options *ask;
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
    const struct sp_approvers_options *ask = o->ask;
    struct sp_approver *approver = NULL;
    int r = 0;

    switch (kind_of(text)) {
    case DENY:
        o->denies = true;
        return 0;
    case CLIENT:
        if (!ask->has_client)
            return skip_or_fail(o, text, NULL, e);
        r = sp_approvers_add(&o->set, ask->loop, o->round, NULL, false, e);
        return r == 0 && ask->joins_console ? add_console(&o->set, ask->loop, o->round, true, e)
                                            : r;
    case CONSOLE:
        if (!ask->has_console)
            return skip_or_fail(o, text, NULL, e);
        return add_console(&o->set, ask->loop, o->round, false, e);
    case TERMINAL:
        if (ask->open_terminal == NULL)
            return skip_or_fail(o, text, ask->no_terminal, e);
        r = ask->open_terminal(ask->loop, ask->is_once, &approver, e);
        break;
    case PROGRAM:
        r = sp_approver_program_new(ask->loop, text + strlen(names[PROGRAM]), &approver, e);
        break;
    case KIND_MAX:
        return refuse_word(text, ask->choices, e);
    }
    if (r == 0)
        r = sp_approvers_add(&o->set, ask->loop, o->round, approver, true, e);
    return r == 0 && kind_of(text) == TERMINAL && ask->joins_console
               ? add_console(&o->set, ask->loop, o->round, true, e)
               : r;
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

int sp_approvers_open(const struct sp_approvers_options *ask, struct sp_approvers **ret,
                      struct sp_err *e)
{
    struct opening o = {.ask = ask};
    int r = 0;

    if (ask->begins_with_client && !names_client(ask->words)) {
        r = sp_approvers_add(&o.set, ask->loop, 0, NULL, false, e);
        if (r == 0 && ask->joins_console)
            r = add_console(&o.set, ask->loop, 0, true, e);
        o.round = 1;
    }
    for (size_t i = 0; r == 0 && ask->words != NULL && ask->words[i] != NULL; i++) {
        /* The approvers of one word are asked at the same time: one round. */
        const size_t before = o.set == NULL ? 0 : o.set->count;

        r = sp_approvers_check(ask->words[i], ask->choices, false, e);
        for (const char *at = ask->words[i]; r == 0;) {
            const size_t n = sp_approvers_first(at);
            auto_free char *text = strndup(at, n);

            r = text == NULL ? sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver")
                             : open_one(&o, text, e);
            if (at[n] == 0)
                break;
            at += n + 1;
        }
        if (o.set != NULL && o.set->count != before)
            o.round++;
    }
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
