/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve_approve: `sallyport serve --approve`: every process/start is judged before it starts. The
 * server has one policy and one set of rules, read again when their files change; each session has
 * its own memory of approvals.
 *
 * The sandbox is the client's choice: no rule removes it, and an approval in one sandbox does not
 * count in another.
 */
#ifndef SP_CLI_SERVE_APPROVE_H
#define SP_CLI_SERVE_APPROVE_H

#include "base/list.h"
#include "cli/approval.h"
#include "os/loop.h"
#include "server/rpc/start_gate.h"

#define SP_SERVE_MAX_QUESTIONS 64 /* of a session, open at once; the next start fails */

/* Of questions to the client of a session, by `approval/request`. A longer question or answer is a
 * denial. */
#define SP_APPROVER_CLIENT_QUESTION_MAX (16U << 20) /* bytes */
#define SP_APPROVER_CLIENT_ANSWER_MAX   65536       /* bytes */

struct sp_console;
struct sp_ledger;

struct sp_serve_approve {
    struct sp_start_gate gate;
    struct sp_loop *loop;
    struct sp_config config;
    struct sp_cli_approval setup;
    struct sp_console *console;
    const char *shell;
    char *const *environ;
    struct sp_ledger *ledger; /* NULL: no keeper */
    struct sp_list sessions;  /* struct approval_session, the latest used first */
    bool cannot_audit;        /* the last entry for a mandatory log could not be written */
};

struct sp_serve_approve_options {
    struct sp_loop *loop;
    const struct sp_cli_approval_flags *flags;
    const char *shell;          /* that clients are told; outlives this */
    struct sp_console *console; /* outlives this */
    char *const *environ;
    struct sp_ledger *ledger;   /* NULL: none; outlives this */
    struct sp_buf *kept_config; /* sp_config_request.kept */
};

int sp_serve_approve_new(const struct sp_serve_approve_options *ask, struct sp_serve_approve **ret,
                         struct sp_err *e);
/* Whether a network_rule denies the host to all commands. */
bool sp_serve_approve_forbids_host(const struct sp_serve_approve *a,
                                   const struct sp_hostname *host);
void sp_serve_approve_free(struct sp_serve_approve *a); /* after all connections; NULL is fine */

#endif
