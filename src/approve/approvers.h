/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvers: who answers questions, in an order: `--approver`, or `approver` of the configuration.
 *
 *   --approver client --approver terminal,program:/usr/local/bin/ask
 *
 * Each word is a turn; the next one's approvers are asked only if nobody of the one before gave an
 * answer. Approvers with a comma between them are asked at once, and the first answer counts. No
 * answer is: an approver that failed, that said nothing, or that was not heard of in time.
 *
 * A set has the approvers that a program opened; a chain is an approver that asks all of a set,
 * with a `client` of its own: each connection has another one.
 */
#ifndef SP_APPROVE_APPROVERS_H
#define SP_APPROVE_APPROVERS_H

#include "approve/approver.h"
#include "os/loop.h"

#define SP_APPROVERS_MAX 8 /* in all turns together */

struct sp_approvers;

struct sp_approvers_ask {
    struct sp_loop *loop;
    const char *const *words; /* NULL at the end; NULL: none */
    /* The words are of the configuration, which is for all commands: an approver that this one does
     * not have is skipped, unless no other is left. */
    bool is_configured;
    const char *choices;     /* for errors: what this command has, e.g. "deny or program:PATH" */
    bool has_client;         /* this command has one ... */
    bool begins_with_client; /* ... which is asked first if no word names it */
    /* NULL: this command has no terminal, and says why: */
    int (*open_terminal)(struct sp_loop *loop, struct sp_approver **ret, struct sp_err *e);
    const char *no_terminal;
    uint64_t timeout_ms; /* of one turn; 0: none */
};

/* *ret NULL: nobody answers. */
int sp_approvers_open(const struct sp_approvers_ask *ask, struct sp_approvers **ret,
                      struct sp_err *e);
void sp_approvers_free(struct sp_approvers *a); /* after its chains; NULL is fine */
/* One more, in this turn (from 0); owned from now on if `owns`. NULL: the chain's client. */
int sp_approvers_add(struct sp_approvers **a, struct sp_loop *loop, unsigned turn,
                     struct sp_approver *approver, bool owns, struct sp_err *e);

bool sp_approvers_has_client(const struct sp_approvers *a);
bool sp_approvers_has_others(const struct sp_approvers *a);
/* For all turns, one after the other. */
uint64_t sp_approvers_timeout_ms(const struct sp_approvers *a);

/* client is borrowed; NULL: there is none, and its turn is no answer. */
int sp_approvers_chain(struct sp_approvers *a, struct sp_approver *client, struct sp_approver **ret,
                       struct sp_err *e);

/* How long the first approver in a word is: behind it is the end, or a comma and the next one. */
size_t sp_approvers_first(const char *word);
/* Whether that is a word of `--approver`. choices as above; is_absolute: so must be the paths. */
int sp_approvers_check(const char *word, const char *choices, bool is_absolute, struct sp_err *e);

#endif
