/* SPDX-License-Identifier: Apache-2.0 */
/*
 * managed: the networks of managed cells, as the front sees them: one proxy process for each cell,
 * the sockets that the cell made for it (cell/ports.h), verdicts, and what each command reached.
 *
 *   cell -- PORTS: sockets --> front -- LISTEN --> proxy -- ASK --> front: lists, then the owner of
 *   the command (struct sp_net_ops) -- VERDICT --> proxy -- DONE --> front: the receipt
 *
 * Messages of a proxy are hostile: one that breaks the protocol is killed and replaced. A proxy
 * that ends by itself is replaced, too; SP_MANAGED_DEATHS ends within SP_MANAGED_DEATHS_MS close
 * the network of the cell. The front keeps the sockets, so connections made meanwhile wait.
 */
#ifndef SP_CORE_MANAGED_H
#define SP_CORE_MANAGED_H

#include "base/buf.h"
#include "base/hostname.h"
#include "base/list.h"
#include "cell/wire.h"
#include "os/loop.h"
#include "proxy/proxy_message.h"
#include "sandbox/network_policy.h"

#define SP_MANAGED_DEATHS    5
#define SP_MANAGED_DEATHS_MS 60000
#define SP_MANAGED_LINGER_MS 60000 /* a question outlives its connection by this time */
#define SP_MANAGED_SETTLE_MS 1000  /* the end of a command waits for reports of its connections */
#define SP_MANAGED_RECEIPTS  32    /* hosts reached, and hosts denied, of one command */

struct sp_managed;
struct sp_managed_hub;
struct sp_net_ask;
struct sp_proc;

/* The answer to an ask. */
struct sp_net_verdict {
    bool is_allowed;
    bool is_decided;               /* by a person or program, not by lists and rules */
    bool is_kept;                  /* holds until sp_managed_forget */
    enum sp_network_reason reason; /* NONE if allowed */
    struct sp_str text;            /* refused: for the user of the command; n 0: the usual one */
};

/* The owner of a command answers for it. Without an owner the lists alone decide. */
struct sp_net_ops {
    /* Answers with sp_net_answer, at once or later. */
    void (*judge)(struct sp_proc *p, struct sp_net_ask *ask);
    /* No answer is wanted any more; the ask is freed. */
    void (*gone)(struct sp_proc *p, struct sp_net_ask *ask);
    /* Whether the host is allowed by a rule or an earlier decision, so that its name may be looked
     * up. May be NULL. */
    bool (*knows)(struct sp_proc *p, const struct sp_hostname *host);
    /* Whether a rule or an earlier decision denies the host; counts for every connection of the
     * cell. May be NULL. */
    bool (*forbids)(struct sp_proc *p, const struct sp_hostname *host);
    /* A verdict was given, or the proxy has refused a host that was allowed: its addresses are not
     * public, or a TLS client named another server. May be NULL. */
    void (*decided)(struct sp_proc *p, const struct sp_net_ask *ask,
                    const struct sp_net_verdict *v);
    /* The command joins the network of its cell, and leaves it: then its receipt is complete, and
     * no other function is called any more. A start that is tried again joins again. May be NULL.
     */
    void (*joined)(struct sp_proc *p);
    void (*left)(struct sp_proc *p);
};

struct sp_net_ask {
    struct sp_proc *proc; /* NULL: the command cannot be found; the lists alone decide */
    const struct sp_network_policy *policy;
    struct sp_hostname host;
    uint16_t port;
    enum sp_proxy_protocol protocol;
    enum sp_proxy_via via;
    char method[SP_PROXY_METHOD_MAX + 1]; /* "": none */
    enum sp_network_standing standing;    /* what the lists say */
    const struct sp_domain *domain;       /* the pattern that says so; NULL: none */
    char client[24];                      /* ADDRESS:PORT in the cell */
    uint64_t since_ms;
    void *user; /* of the owner */

    /* private */
    struct sp_managed *managed;
    struct sp_list link;
    uint64_t number;
    bool is_answered, is_allowed;
    bool is_owned; /* the command was found; proc NULL: it has left */
};

/* The verdict that the lists give. */
void sp_net_judge_by_lists(const struct sp_net_ask *ask, struct sp_net_verdict *ret);
/* Once for each ask. The ask may be freed by it. */
void sp_net_answer(struct sp_net_ask *ask, const struct sp_net_verdict *v);

/* ---- a front ---- */

struct sp_managed_stats {
    uint64_t allowed, denied, sent, received, restarts;
    uint64_t dns_name, dns_none, dns_failed, dns_dropped;
    uint64_t decisions, decision_us, resolves, resolve_us;
    uint32_t active, open_asks;
};

/* program, environ: as for sp_web_new. Nothing is started before the first managed cell. */
int sp_managed_hub_new(struct sp_loop *loop, const char *program, char *const *environ,
                       struct sp_managed_hub **ret, struct sp_err *e);
void sp_managed_hub_free(struct sp_managed_hub *h); /* after its networks; NULL is fine */
/* Rules of the server, which count before the lists of every network, for connections of unknown
 * commands as well. They may change at any time. */
void sp_managed_hub_set_rules(struct sp_managed_hub *h,
                              bool (*forbids)(void *user, const struct sp_hostname *host),
                              void *user);
/* A TCP port of this server, which no command may reach on this machine. */
void sp_managed_hub_add_port(struct sp_managed_hub *h, uint16_t port);
const struct sp_managed_stats *sp_managed_hub_stats(const struct sp_managed_hub *h);

/* ---- a cell ---- */

/* Starts a proxy. The policy is copied. names: the memory that an earlier front had for the cell
 * (sp_managed_names), taken; -1: a new one. */
int sp_managed_new(struct sp_managed_hub *h, const struct sp_network_policy *policy, int names,
                   struct sp_managed **ret, struct sp_err *e);
int sp_managed_names(const struct sp_managed *m); /* borrowed */
void sp_managed_free(struct sp_managed *m); /* closes the sockets, kills the proxy; NULL is fine */
/* Sockets of the cell; takes the descriptors. false: they are not what the plan says, and the cell
 * must be ended. */
bool sp_managed_take_ports(struct sp_managed *m, const struct sp_wire_ports *ports, int *fds,
                           int count);
bool sp_managed_has_ports(const struct sp_managed *m); /* all of them */
/* 0, or why no command can start: the proxy keeps ending. */
int sp_managed_check(const struct sp_managed *m, struct sp_err *e);

/* ---- a command; p->net is set before ---- */

/* Part of struct sp_proc. */
struct sp_net_proc {
    const struct sp_net_ops *ops; /* NULL: the lists alone decide */
    void *user;                   /* of the ops */
    struct sp_managed *managed;   /* NULL: not in a managed cell */
    struct sp_list link;
    struct sp_net_receipt *receipt; /* NULL: nothing was reached or denied */
    pid_t leader;                   /* first process, in the front's namespace; 0: unknown */
    struct sp_str kept_receipt;     /* of a process that reads its record: as JSON, in the record */
    bool is_settling;               /* it has exited; its last connections are not reported yet */
    bool is_closed;                 /* it leaves when it has settled */
    uint64_t settles_at;            /* number of the PING */
    struct sp_timer settle;
};
void sp_managed_join(struct sp_managed *m, struct sp_proc *p);
/* The command has exited. Its proxy may still have to report the last connections: until it has, or
 * SP_MANAGED_SETTLE_MS have passed, p->net.is_settling is set; then the client gets news. */
void sp_managed_exited(struct sp_proc *p);
/* Whether a command is settling: its receipt needs the proxy. */
bool sp_managed_is_settling(const struct sp_managed *m);
/* The command has closed: it leaves, at once or when it has settled. */
void sp_managed_closed(struct sp_proc *p);
/* Its open asks are refused. Fine if it has not joined. The receipt stays. */
void sp_managed_leave(struct sp_proc *p);
void sp_managed_done(struct sp_proc *p); /* frees the receipt, too */
/* Verdicts that proxies keep are asked for again, because rules or decisions have changed. host
 * (n 0: none): its open connections are closed. */
void sp_managed_forget(struct sp_proc *p, struct sp_str host);

/* A denial after which a person may want a rule. */
struct sp_net_denial {
    const char *host;
    uint16_t port;
    enum sp_network_reason reason;
    enum sp_proxy_protocol protocol;
    const char *rule; /* `HOST <rule>` says what denies it: "is not in the allowed_domains" */
};
/* That text for a reason. */
const char *sp_managed_rule(enum sp_network_reason reason);
/* The word for the protocol in a network_rule. */
static inline const char *sp_managed_rule_word(enum sp_proxy_protocol p)
{
    return p == SP_PROXY_HTTP ? "http" : p == SP_PROXY_TUNNEL ? "https" : "socks5_tcp";
}
/* The denials of a command, oldest first. false: there is no such one. */
bool sp_managed_denial(const struct sp_proc *p, uint32_t i, struct sp_net_denial *ret);
/* The receipt as JSON; "" if nothing was reached or denied. false: no memory. */
bool sp_managed_add_receipt(const struct sp_proc *p, struct sp_buf *out);

#endif
