/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvers: who answers questions, in an order: `--approver`, or `approver` in the configuration.
 *
 *   --approver client --approver terminal,program:/usr/local/bin/ask
 *
 * Each word is a round; the approvers of the next round are asked only if none of the round before
 * gave an answer. Approvers separated by a comma are asked at the same time, and the first answer
 * counts. An approver that fails, declines or does not answer in time gives no answer.
 *
 * A set holds the approvers of a process; a chain is an approver that asks all of a set, with a
 * `client` of its own: each connection has another one. The engine, the CLI and the MCP server all
 * use this chain.
 *
 * The console is whoever runs `sallyport approvals` at another terminal. Where it is not named it
 * may join each person who is asked (joins_console), and has no longer to answer than that person:
 * where no person can be asked nothing waits for it.
 */
#ifndef SP_APPROVE_APPROVERS_H
#define SP_APPROVE_APPROVERS_H

#include "approve/approver.h"
#include "os/loop.h"

#define SP_APPROVERS_MAX 8 /* in all rounds together */

struct sp_approvers;

struct sp_approvers_options {
    struct sp_loop *loop;
    const char *const *words; /* NULL at the end; NULL: none */
    /* The words are from the configuration, which is for all commands: an approver that this
     * command does not have is skipped, unless no other is left. */
    bool is_configured;
    const char *choices; /* for errors: the choices of this command, e.g. "deny or program:PATH" */
    bool has_client;     /* this command has a client ... */
    bool begins_with_client; /* ... which is asked first if no word names it */
    /* NULL: this command has no terminal, for the reason no_terminal. */
    int (*open_terminal)(struct sp_loop *loop, bool is_once, struct sp_approver **ret,
                         struct sp_err *e);
    bool is_once; /* for one command: answers for later ones mean nothing */
    const char *no_terminal;
    bool has_console;    /* this command has a console ... */
    bool joins_console;  /* ... which may answer what the client or the terminal is asked */
    uint64_t timeout_ms; /* of one round; 0: none */
};

/* *ret NULL: there is no approver. */
int sp_approvers_open(const struct sp_approvers_options *ask, struct sp_approvers **ret,
                      struct sp_err *e);
void sp_approvers_free(struct sp_approvers *a); /* after its chains; NULL is fine */
/* Adds an approver to this round (from 0); the set owns it if `owns`. NULL: the client of the
 * chain. */
int sp_approvers_add(struct sp_approvers **a, struct sp_loop *loop, unsigned round,
                     struct sp_approver *approver, bool owns, struct sp_err *e);

bool sp_approvers_has_client(const struct sp_approvers *a);
bool sp_approvers_has_others(const struct sp_approvers *a);
/* The sum over all rounds. */
uint64_t sp_approvers_timeout_ms(const struct sp_approvers *a);

/* For a question that only the console may answer, without timeout_ms. */
#define SP_CONSOLE_MS 900000

/* client and console are borrowed; NULL: their rounds are skipped. */
int sp_approvers_chain(struct sp_approvers *a, struct sp_approver *client,
                       struct sp_approver *console, struct sp_approver **ret, struct sp_err *e);

/* The length of the first approver in a word; behind it is the end, or a comma and the next one. */
size_t sp_approvers_first(const char *word);
/* Checks a word of `--approver`. is_absolute: paths must be absolute. */
int sp_approvers_check(const char *word, const char *choices, bool is_absolute, struct sp_err *e);

#endif
