/* SPDX-License-Identifier: Apache-2.0 */
/*
 * console: the questions of a front, for people at other terminals (`sallyport approvals`). The
 * chain of approvers asks it like any other approver; connections of the local socket see the open
 * questions and answer them (server/rpc/questions.h). The first answer wins.
 */
#ifndef SP_ENGINE_CONSOLE_H
#define SP_ENGINE_CONSOLE_H

#include "approve/approver.h"
#include "server/rpc/questions.h"

struct sp_console;
struct sp_local_socket;

#define SP_CONSOLE_QUESTIONS_MAX 256 /* open at once; the next one is not asked here */

/* rpc: whose connections are told; outlives the console. local_socket: begins to listen with the
 * first question; NULL: rpc listens anyway. */
int sp_console_new(struct sp_rpc *rpc, struct sp_local_socket *local_socket,
                   struct sp_console **ret, struct sp_err *e);
void sp_console_free(struct sp_console *c); /* after its approvers; NULL is fine */

/* Shown with the questions of one conversation; NULL: unknown. The strings outlive the approver. */
struct sp_console_options {
    const char *session;
    const char *client_name; /* may change */
    const char *user_dir;    /* where rules are kept */
};
/* An approver for one conversation; sp_approver_free frees it. */
int sp_console_approver_new(struct sp_console *c, const struct sp_console_options *ask,
                            struct sp_approver **ret, struct sp_err *e);

#endif
