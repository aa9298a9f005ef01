/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approver_client: the client that wants to start a command is asked itself, by the request
 * `approval/request` on its connection (approvals.md 7.6).
 *
 * An error is as good as nobody there. What is no decision, or longer than 64 KiB, is a denial.
 */
#ifndef SP_CLI_APPROVER_CLIENT_H
#define SP_CLI_APPROVER_CLIENT_H

#include "approve/approver.h"

#define SP_APPROVER_CLIENT_ANSWER_MAX   65536
#define SP_APPROVER_CLIENT_QUESTION_MAX (16U << 20) /* bytes; a longer one is denied unasked */

struct sp_approver_client;
struct sp_conn;

int sp_approver_client_new(struct sp_approver_client **ret, struct sp_err *e);
struct sp_approver *sp_approver_client_approver(struct sp_approver_client *a);

/* Whether it has said that it answers; else it is not asked. */
void sp_approver_client_set_able(struct sp_approver_client *a, bool is_able);
/* Who is asked from now on. No question may outlive its connection: whoever asks withdraws it. */
void sp_approver_client_set_conn(struct sp_approver_client *a, struct sp_conn *conn);

#endif
