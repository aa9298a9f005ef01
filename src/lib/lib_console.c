/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_console: the local socket of an engine, for a host that sets has_local_socket: other
 * terminals reach its commands, and a console (`sallyport approvals`) its questions.
 *
 * A question goes to the host's `ask` and to the console at once. sp_engine_reply finds it here,
 * so that the console hears who was first; a reply that comes second does nothing.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/console.h"
#include "engine/local_socket.h"
#include "lib/engine_priv.h"

/* A question that the host was asked, until it or the console has answered. */
struct asked {
    struct sp_list link;
    uint64_t question;
    sp_approver_fn *done;
    void *user;
};

struct sp_lib_console {
    struct sp_engine *engine;
    struct sp_local_socket *local_socket;
    struct sp_console *console;
    struct sp_approver *approver; /* the console, as one of the approvers of the engine */
    struct sp_approver host;      /* the `ask` function */
    struct sp_list asked;
};

/* ---- the host as an approver ---- */

static void ask_host(struct sp_approver *a, const struct sp_approval_question *q,
                     sp_approver_fn *done, void *user)
{
    static const struct sp_decision failed = {.kind = SP_DECISION_FAILED,
                                              .rejection = SP_STR("no memory to ask")};
    struct sp_lib_console *c = SP_CONTAINER(a, struct sp_lib_console, host);
    struct asked *n = calloc(1, sizeof *n);

    if (n == NULL) {
        done(user, q->id, &failed);
        return;
    }
    *n = (struct asked){.question = q->id, .done = done, .user = user};
    sp_list_append(&c->asked, &n->link);
    sp_lib_tell_question(c->engine, q);
}

static struct asked *find_asked(struct sp_lib_console *c, uint64_t question)
{
    sp_list_each(i, &c->asked) {
        struct asked *n = SP_CONTAINER(i, struct asked, link);

        if (n->question == question)
            return n;
    }
    return NULL;
}

static void forget(struct asked *n)
{
    sp_list_remove(&n->link);
    free(n);
}

static void withdraw_from_host(struct sp_approver *a, uint64_t question, void *user)
{
    struct asked *n = find_asked(SP_CONTAINER(a, struct sp_lib_console, host), question);

    (void)user;
    if (n != NULL)
        forget(n);
}

int sp_lib_console_chain(struct sp_lib_console *c, struct sp_approvers *set, const char *user_dir,
                         struct sp_approver **ret, struct sp_err *e)
{
    const struct sp_console_options ask = {.session = c->engine->thread_id,
                                           .client_name = program_invocation_short_name,
                                           .user_dir = user_dir};
    struct sp_approver *host = c->engine->ask != NULL ? &c->host : NULL;
    const int r = sp_console_approver_new(c->console, &ask, &c->approver, e);

    return r < 0 ? r : sp_approvers_chain(set, host, c->approver, ret, e);
}

/* ---- the reply of the host ---- */

/* Answers the question of a console. false: the engine has no console, or the host no `ask`. */
static bool take_reply(struct sp_lib_console *c, uint64_t question, const struct sp_decision *d)
{
    if (c == NULL || c->engine->ask == NULL)
        return false;
    struct asked *n = find_asked(c, question);
    if (n != NULL) {
        const struct asked found = *n;

        forget(n);
        found.done(found.user, question, d);
    }
    return true;
}

/* The amendment is the one that the question offered; the host cannot make up a rule. */
int sp_engine_reply(struct sp_engine *engine, uint64_t question, enum sp_consent consent,
                    struct sp_error *e)
{
    static const enum sp_decision_kind decisions[] = {
        [SP_CONSENT_YES] = SP_DECISION_APPROVED,
        [SP_CONSENT_NO] = SP_DECISION_DENIED,
        [SP_CONSENT_ABORT] = SP_DECISION_ABORT,
        [SP_CONSENT_FOR_SESSION] = SP_DECISION_APPROVED_FOR_SESSION,
        [SP_CONSENT_RULE] = SP_DECISION_AMENDMENT,
    };
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    if ((unsigned)consent >= sizeof decisions / sizeof decisions[0]) {
        r = sp_fail(&why, SP_E_INVALID, 0, "%d is not an enum sp_consent", (int)consent);
        return sp_lib_give(r, &why, e);
    }
    struct sp_decision d = {.kind = decisions[consent], .by = SP_DECIDER_USER};
    if (d.kind == SP_DECISION_AMENDMENT) {
        const struct sp_approval_question *q =
            sp_approvals_question(sp_manager_approvals(engine->manager), question);

        d.amendment = q != NULL ? q->amendment : d.amendment; /* as offered */
    }
    if (!take_reply(engine->console, question, &d))
        sp_approvals_decide(sp_manager_approvals(engine->manager), question, &d);
    return 0;
}

/* ---- beginning and end ---- */

int sp_lib_console_new(struct sp_engine *engine, struct sp_lib_console **ret, struct sp_err *e)
{
    static const struct sp_approver_ops ops = {.ask = ask_host, .withdraw = withdraw_from_host};
    const struct sp_local_socket_options o = {
        .loop = engine->loop, .kind = "library", .backend = &engine->local};
    struct sp_lib_console *c = calloc(1, sizeof *c);

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the local socket");
    *ret = c;
    c->engine = engine;
    c->host = (struct sp_approver){.ops = &ops, .name = "the program"};
    sp_list_init(&c->asked);
    int r = sp_local_socket_new(&o, &c->local_socket, e);
    if (r == 0)
        r = sp_console_new(sp_local_socket_rpc(c->local_socket), c->local_socket, &c->console, e);
    if (r == 0)
        r = sp_local_socket_listen(c->local_socket, e);
    return r < 0 ? sp_wrap(e, "option has_local_socket, which one engine of a process can have")
                 : 0;
}

void sp_lib_console_free(struct sp_lib_console *c)
{
    if (c == NULL)
        return;
    sp_approver_free(c->approver);
    for (struct sp_list *i; (i = sp_list_first(&c->asked)) != NULL;)
        forget(SP_CONTAINER(i, struct asked, link));
    sp_console_free(c->console);
    sp_local_socket_free(c->local_socket);
    free(c);
}
