/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ask lives from ASK to DONE or GONE of its proxy: first it waits for a verdict, then it says
 * whose connection it was. Callbacks of an owner may end commands and answer asks, but not free the
 * network.
 */
#include "core/managed.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "core/cell_child.h"
#include "core/ended.h"
#include "core/outbox.h"
#include "core/proc.h"
#include "core/session.h"
#include "os/fd.h"
#include "os/inspect.h"
#include "os/sockdiag.h"
#include "os/spawn.h"
#include "proxy/names.h"

#define PORTS_MAX         (4 + SP_NETWORK_PORTS_MAX)
#define BUCKETS           256
#define ASKS_MAX          4096 /* of one proxy, answered ones included */
#define PING_MS           15000
#define PINGS             4
#define RESOLVER_RETRY_MS 1000
#define MESSAGES_A_TURN   64
#define LINKS_MAX         512 /* descriptors searched for the owner of a connection */
#define PROCESSES_MAX     512 /* processes searched for it */
#define SEARCH_SHARE      20  /* searches for owners take 1/20 of the time, for each network; */
#define SEARCH_BURST_MS   100 /* at once */
#define OWNERS_MAX        16  /* kept answers about the owner of connections */
#define OWNER_MS          2000

struct port {
    struct sp_wire_port is;
    int fd;
};

/* The command that has connected to a host and port. */
struct owner {
    char host[SP_HOSTNAME_MAX + 1];
    uint16_t port;
    uint64_t until_ms;    /* 0: the entry is free */
    struct sp_proc *proc; /* NULL: not known */
};

struct sp_managed {
    struct sp_managed_hub *hub;
    struct sp_list link;
    struct sp_network_policy *policy;
    struct port ports[PORTS_MAX];
    uint32_t port_count;
    bool has_ports;
    uint64_t netns; /* cookie of the cell's network namespace; 0: not known */
    int names;      /* memory of proxy/names.h */
    struct sp_helper proxy;
    struct sp_timer restart, ping;
    uint32_t unanswered;
    uint64_t last_settle;               /* number of the newest PING for a command that exited */
    uint64_t deaths[SP_MANAGED_DEATHS]; /* ms, the newest last */
    bool is_broken;                     /* the proxy keeps ending */
    bool has_kept;                      /* the proxy may keep verdicts */
    uint32_t active;
    struct sp_proxy_counts counts; /* as last reported */
    struct sp_list procs;          /* newest first */
    uint32_t proc_count;
    bool has_left;                   /* a command has left, and processes of it may live on */
    struct owner owners[OWNERS_MAX]; /* of commands in procs */
    uint32_t next_owner;             /* is replaced next */
    uint64_t searched_us;            /* searching is paid up to this time */
    struct sp_list asks[BUCKETS];
    uint32_t ask_count;
};

struct sp_managed_hub {
    struct sp_loop *loop;
    char *program;
    char *const *environ;
    struct sp_list networks;
    struct sp_helper resolver;
    struct sp_timer restart;
    uint64_t resolver_ended_ms;
    uint32_t resolver_ends;
    uint16_t own_ports[SP_PROXY_PORTS_MAX];
    uint32_t own_port_count;
    bool (*forbids)(void *user, const struct sp_hostname *host); /* NULL: there are no rules */
    void *user;
    struct sp_managed_stats stats;
    _Alignas(8) char heard[SP_PROXY_MESSAGE_MAX];
};

static void start_proxy_soon(struct sp_managed *m);
static void lose_proxy(struct sp_managed *m);

/* ---- helper processes ---- */

static void watch_helper(struct sp_loop *loop, struct sp_helper *h)
{
    sp_loop_rewatch(loop, &h->watch, EPOLLIN | (h->outbox.first != NULL ? (uint32_t)EPOLLOUT : 0U));
}

static bool send_to(struct sp_loop *loop, struct sp_helper *h, const void *message, size_t n,
                    struct sp_str tail, int fd)
{
    if (h->socket < 0)
        return false;
    if (h->outbox.first == NULL) {
        const int r = sp_wire_send(h->socket, false, message, n, tail.n == 0 ? NULL : tail.p,
                                   tail.n, &fd, fd >= 0);

        if (r == 0 || (r != -EAGAIN && !sp_wire_is_short(r)))
            return r == 0;
    }
    if (h->outbox.bytes > SP_OUTBOX_FULL ||
        !sp_outbox_add(&h->outbox, message, n, tail.n == 0 ? NULL : tail.p, tail.n, &fd, fd >= 0))
        return false;
    watch_helper(loop, h);
    return true;
}

static struct sp_proxy_head head_of(enum sp_proxy_op op, uint64_t number, size_t len)
{
    return (struct sp_proxy_head){
        .version = SP_PROXY_VERSION, .op = (uint16_t)op, .len = (uint32_t)len, .number = number};
}

/* A proxy that does not take a message has its connections stuck anyway. */
static void send_to_proxy(struct sp_managed *m, const void *message, size_t n, struct sp_str tail,
                          int fd)
{
    /* Owners of asks may be on the stack, so the proxy is not lost here: on_proxy sees the end. */
    if (!send_to(m->hub->loop, &m->proxy, message, n, tail, fd) && m->proxy.socket >= 0)
        (void)shutdown(m->proxy.socket, SHUT_RDWR);
}

/* ---- receipts ---- */

struct reached {
    char host[SP_HOSTNAME_MAX + 1];
    uint16_t port;
    uint32_t connections;
    uint64_t sent, received;
};

struct denied {
    char host[SP_HOSTNAME_MAX + 1];
    uint16_t port;
    enum sp_network_reason reason;
    enum sp_proxy_via via;
    enum sp_proxy_protocol protocol;
    uint32_t count;
};

struct sp_net_receipt {
    struct reached reached[SP_MANAGED_RECEIPTS];
    struct denied denied[SP_MANAGED_RECEIPTS];
    uint32_t reached_count, denied_count;
    bool is_truncated, is_guessed; /* guessed: an unknown process of the cell made a connection */
};

static struct sp_proc *proc_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_proc, net.link);
}

static struct sp_net_receipt *receipt_of(struct sp_proc *p)
{
    if (p->net.receipt == NULL)
        p->net.receipt = calloc(1, sizeof *p->net.receipt);
    return p->net.receipt;
}

static void note_reached(struct sp_proc *p, const char *host, const struct sp_proxy_done *d)
{
    struct sp_net_receipt *r = receipt_of(p);
    uint32_t i = 0;

    if (r == NULL)
        return;
    while (i < r->reached_count &&
           (r->reached[i].port != d->port || strcmp(r->reached[i].host, host) != 0))
        i++;
    if (i == SP_MANAGED_RECEIPTS) {
        r->is_truncated = true;
        return;
    }
    if (i == r->reached_count) {
        r->reached[r->reached_count++] = (struct reached){.port = d->port};
        (void)snprintf(r->reached[i].host, sizeof r->reached[i].host, "%s", host);
    }
    r->reached[i].connections++;
    r->reached[i].sent += d->sent;
    r->reached[i].received += d->received;
}

static void note_denied(struct sp_proc *p, const char *host, uint16_t port,
                        enum sp_network_reason reason, enum sp_proxy_via via,
                        enum sp_proxy_protocol protocol)
{
    struct sp_net_receipt *r = receipt_of(p);
    uint32_t i = 0;

    if (r == NULL)
        return;
    while (i < r->denied_count && (r->denied[i].port != port || r->denied[i].reason != reason ||
                                   strcmp(r->denied[i].host, host) != 0))
        i++;
    if (i == SP_MANAGED_RECEIPTS) {
        r->is_truncated = true;
        return;
    }
    if (i == r->denied_count) {
        r->denied[r->denied_count++] =
            (struct denied){.port = port, .reason = reason, .via = via, .protocol = protocol};
        (void)snprintf(r->denied[i].host, sizeof r->denied[i].host, "%s", host);
        if (p->session->client != NULL)
            p->session->client->news(p->session->client, p);
    }
    r->denied[i].count++;
}

/* In the receipt of the command; of an unknown process, in those of all commands of the cell. */
static void count_reached(struct sp_managed *m, struct sp_proc *p, const char *host,
                          const struct sp_proxy_done *d)
{
    if (p != NULL) {
        note_reached(p, host, d);
        return;
    }
    sp_list_each(i, &m->procs) {
        struct sp_proc *each = proc_of(i);

        note_reached(each, host, d);
        if (each->net.receipt != NULL)
            each->net.receipt->is_guessed = true;
    }
}

const char *sp_managed_rule(enum sp_network_reason reason)
{
    static const char *const rules[SP_NETWORK_REASON_MAX] = {
        [SP_NETWORK_REASON_DENIED] = "is denied by a list, a rule or a decision",
        [SP_NETWORK_REASON_NOT_ALLOWED] = "is not in the allowed_domains",
        [SP_NETWORK_REASON_NOT_ALLOWED_LOCAL] = "is not a public address",
        [SP_NETWORK_REASON_METHOD_NOT_ALLOWED] = "may only be read from, in mode limited",
        [SP_NETWORK_REASON_MITM_REQUIRED] = "needs HTTPS, which mode limited refuses",
        [SP_NETWORK_REASON_SNI_MISMATCH] = "was asked for another TLS server name",
    };

    return rules[reason] != NULL ? rules[reason] : "is blocked by network policy";
}

bool sp_managed_denial(const struct sp_proc *p, uint32_t i, struct sp_net_denial *ret)
{
    const struct sp_net_receipt *r = p->net.receipt;

    if (r == NULL || i >= r->denied_count)
        return false;
    *ret = (struct sp_net_denial){.host = r->denied[i].host,
                                  .port = r->denied[i].port,
                                  .reason = r->denied[i].reason,
                                  .protocol = r->denied[i].protocol,
                                  .rule = sp_managed_rule(r->denied[i].reason)};
    return true;
}

static bool add_denied(const struct denied *d, struct sp_buf *out)
{
    bool ok = sp_buf_printf(out,
                            "{\"host\":\"%s\",\"port\":%u,\"via\":\"%s\",\"reason\":\"%s\","
                            "\"count\":%u,\"rule\":\"%s %s\"",
                            d->host, d->port, d->via == SP_PROXY_VIA_NAME ? "name" : "proxy",
                            sp_network_reason_text(d->reason)->wire, d->count, d->host,
                            sp_managed_rule(d->reason));

    if (d->reason == SP_NETWORK_REASON_NOT_ALLOWED)
        ok = ok && sp_buf_printf(out,
                                 ",\"proposed_amendment\":{\"network_rule\":{\"host\":\"%s\","
                                 "\"protocol\":\"%s\",\"decision\":\"allow\"}}",
                                 d->host, sp_managed_rule_word(d->protocol));
    return ok && sp_buf_add(out, "}", 1);
}

/* Hosts are canonical: no character of theirs needs an escape. */
bool sp_managed_add_receipt(const struct sp_proc *p, struct sp_buf *out)
{
    const struct sp_net_receipt *r = p->net.receipt;
    bool ok = true;

    if (r == NULL)
        return p->net.kept_receipt.n == 0 || sp_buf_add_str(out, p->net.kept_receipt);
    ok = sp_buf_add_str(out, SP_STR("{\"reached\":["));
    for (uint32_t i = 0; ok && i < r->reached_count; i++)
        ok = sp_buf_printf(out,
                           "%s{\"host\":\"%s\",\"port\":%u,\"connections\":%u,\"sent\":%" PRIu64
                           ",\"received\":%" PRIu64 "}",
                           i == 0 ? "" : ",", r->reached[i].host, r->reached[i].port,
                           r->reached[i].connections, r->reached[i].sent, r->reached[i].received);
    ok = ok && sp_buf_add_str(out, SP_STR("],\"denied\":["));
    for (uint32_t i = 0; ok && i < r->denied_count; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) && add_denied(&r->denied[i], out);
    return ok && sp_buf_printf(out, "],\"truncated\":%s%s}", r->is_truncated ? "true" : "false",
                               r->is_guessed ? ",\"attributed\":false" : "");
}

/* ---- whose connection it is ---- */

static int diag_of(const struct sp_managed *m)
{
    for (uint32_t i = 0; i < m->port_count; i++)
        if (m->ports[i].is.kind == SP_PORT_DIAG)
            return m->ports[i].fd;
    return -1;
}

static uint64_t inode_of(const struct sp_managed *m, const struct sp_proxy_ask *a)
{
    return sp_sockdiag_inode(diag_of(m), a->client_address, a->client_port, a->local_address,
                             a->local_port);
}

/* The command that has the client's socket; NULL: not known. */
static struct sp_proc *search_owner(struct sp_managed *m, const struct sp_proxy_ask *a)
{
    struct sp_inspect_budget budget = {.descriptors = LINKS_MAX, .processes = PROCESSES_MAX};
    const uint64_t inode = inode_of(m, a);

    if (inode == 0)
        return NULL;
    sp_list_each(i, &m->procs) {
        struct sp_proc *p = proc_of(i);
        const struct sp_inspect_command c = {
            .cell = p->seat.cell == NULL ? 0 : p->seat.cell->self.pid,
            .pid = p->pid,
            .has_exited = p->life == SP_PROC_EXITED,
            .cgroup = p->seat.cell == NULL ? "" : p->seat.cell->cgroup,
            .leaf = p->leaf,
            .terminal = -1,
        };

        if (c.cell > 0 && c.pid > 0 && sp_inspect_has_socket(&c, inode, &p->net.leader, &budget))
            return inode_of(m, a) == inode ? p : NULL; /* its process may have ended meanwhile */
        if (budget.processes <= 0)
            break;
    }
    return NULL;
}

/* The only command that the cell ever had, or the one that has the client's socket. NULL: not
 * known. A command with many processes could occupy the front with connections, each of which takes
 * a search: these are rationed. */
static struct sp_proc *find_owner(struct sp_managed *m, const struct sp_proxy_ask *a)
{
    if (m->proc_count == 0 || (m->proc_count == 1 && !m->has_left))
        return m->proc_count == 0 ? NULL : proc_of(m->procs.next);
    const uint64_t began = sp_clock_us();
    if (m->searched_us < began)
        m->searched_us = began;
    if (m->searched_us - began >= (uint64_t)SEARCH_BURST_MS * 1000 * SEARCH_SHARE)
        return NULL;
    struct sp_proc *found = search_owner(m, a);
    m->searched_us += (sp_clock_us() - began) * SEARCH_SHARE;
    return found;
}

static void forget_owners(struct sp_managed *m)
{
    for (uint32_t i = 0; i < OWNERS_MAX; i++)
        m->owners[i].until_ms = 0;
}

static struct sp_proc *find_kept_owner(struct sp_managed *m, const struct sp_proxy_ask *q,
                                       const char *host)
{
    const uint64_t now = sp_loop_now(m->hub->loop);
    struct owner *o = m->owners;

    while (o < m->owners + OWNERS_MAX &&
           (o->until_ms <= now || o->port != q->port || strcmp(o->host, host) != 0))
        o++;
    if (o < m->owners + OWNERS_MAX)
        return o->proc;
    o = &m->owners[m->next_owner++ % OWNERS_MAX];
    *o = (struct owner){.port = q->port, .until_ms = now + OWNER_MS, .proc = find_owner(m, q)};
    (void)snprintf(o->host, sizeof o->host, "%s", host);
    return o->proc;
}

/* A search takes up to 2 ms, so its answer is kept where it only decides whose receipt counts the
 * connection. It is not kept for hosts on no list: these are judged for the command, and another
 * command must not use its once-answers. */
static struct sp_proc *owner_of(struct sp_managed *m, const struct sp_proxy_ask *q,
                                const struct sp_net_ask *a)
{
    return (m->proc_count <= 1 && !m->has_left) || a->standing == SP_STANDING_UNLISTED
               ? find_owner(m, q)
               : find_kept_owner(m, q, a->host.text);
}

/* ---- asks ---- */

static struct sp_list *bucket_of(struct sp_managed *m, uint64_t number)
{
    return &m->asks[number % BUCKETS];
}

static struct sp_net_ask *find_ask(struct sp_managed *m, uint64_t number)
{
    sp_list_each(i, bucket_of(m, number)) {
        struct sp_net_ask *a = SP_CONTAINER(i, struct sp_net_ask, link);

        if (a->number == number)
            return a;
    }
    return NULL;
}

static void free_ask(struct sp_net_ask *a)
{
    sp_list_remove(&a->link);
    a->managed->ask_count--;
    if (!a->is_answered)
        a->managed->hub->stats.open_asks--;
    free(a);
}

/* No verdict is wanted any more. */
static void withdraw_ask(struct sp_net_ask *a)
{
    if (!a->is_answered && a->proc != NULL && a->proc->net.ops != NULL)
        a->proc->net.ops->gone(a->proc, a);
    free_ask(a);
}

void sp_net_judge_by_lists(const struct sp_net_ask *ask, struct sp_net_verdict *ret)
{
    *ret = (struct sp_net_verdict){.reason = sp_network_standing_reason(ask->standing),
                                   .is_kept = true};
    ret->is_allowed = ret->reason == SP_NETWORK_REASON_NONE;
}

/* By the server, or by the owner of any command of the cell: a command that hides which connection
 * is its own must not get past a denial. */
static bool is_forbidden(const struct sp_managed *m, const struct sp_hostname *host)
{
    if (m->hub->forbids != NULL && m->hub->forbids(m->hub->user, host))
        return true;
    sp_list_each(i, &m->procs) {
        struct sp_proc *p = proc_of(i);

        if (p->net.ops != NULL && p->net.ops->forbids != NULL && p->net.ops->forbids(p, host))
            return true;
    }
    return false;
}

/* Mode `limited` judges by method, which is not part of what the proxy keeps; rules may change. A
 * process that an earlier command has left behind must not use the answers to the present one. */
static bool may_keep(const struct sp_net_ask *a, const struct sp_net_verdict *v)
{
    return v->is_kept && a->managed->hub->forbids == NULL && a->managed->proc_count <= 1 &&
           (!a->managed->has_left || a->standing != SP_STANDING_UNLISTED) && !a->policy->is_limited;
}

void sp_net_answer(struct sp_net_ask *a, const struct sp_net_verdict *v)
{
    struct sp_managed *m = a->managed;
    struct sp_managed_stats *stats = &m->hub->stats;
    char usual[SP_HOSTNAME_MAX + 160];
    (void)snprintf(usual, sizeof usual, "Network access to \"%s\" was blocked: %s.", a->host.text,
                   sp_network_reason_text(v->reason)->sentence);
    const struct sp_str text = v->is_allowed                                     ? SP_STR("")
                               : v->text.n == 0 || v->text.n > SP_PROXY_TEXT_MAX ? sp_str_of(usual)
                                                                                 : v->text;
    struct sp_proxy_verdict message = {
        .head = head_of(SP_PROXY_VERDICT, a->number, sizeof message - sizeof message.head + text.n),
        .is_allowed = v->is_allowed,
        .reason = (uint8_t)(v->is_allowed ? SP_NETWORK_REASON_NONE : v->reason),
        .flags = (uint8_t)((may_keep(a, v) ? SP_PROXY_KEEP : 0) |
                           (a->policy->allows_local ? SP_PROXY_LOCAL : 0) |
                           (a->standing == SP_STANDING_LITERAL ? SP_PROXY_LITERAL : 0) |
                           (v->is_decided ? SP_PROXY_DECIDED : 0)),
    };

    assert(!a->is_answered);
    a->is_answered = true;
    a->is_allowed = v->is_allowed;
    stats->open_asks--;
    stats->decisions++;
    stats->decision_us += (sp_clock_ms() - a->since_ms) * 1000;
    *(v->is_allowed ? &stats->allowed : &stats->denied) += 1;
    m->has_kept |= (message.flags & SP_PROXY_KEEP) != 0;
    if (a->proc != NULL && !v->is_allowed)
        note_denied(a->proc, a->host.text, a->port, v->reason, a->via, a->protocol);
    if (a->proc != NULL && a->proc->net.ops != NULL && a->proc->net.ops->decided != NULL)
        a->proc->net.ops->decided(a->proc, a, v);
    send_to_proxy(m, &message, sizeof message, text, -1); /* last: it may free the ask */
}

static enum sp_network_way way_of(enum sp_proxy_protocol p)
{
    return p == SP_PROXY_HTTP     ? SP_NETWORK_WAY_HTTP
           : p == SP_PROXY_TUNNEL ? SP_NETWORK_WAY_TUNNEL
                                  : SP_NETWORK_WAY_TCP;
}

/* A host in its canonical form; the proxy has read it the same way. */
static bool read_host(struct sp_str text, struct sp_hostname *ret)
{
    return sp_hostname_read(text, ret) == NULL && sp_str_eq(text, sp_str_of(ret->text));
}

static bool on_ask(struct sp_managed *m, const struct sp_proxy_ask *q)
{
    const char *bytes = (const char *)(q + 1);
    struct sp_hostname host;

    if (q->head.number == 0 || m->ask_count == ASKS_MAX || q->port == 0 ||
        find_ask(m, q->head.number) != NULL ||
        !read_host((struct sp_str){bytes, q->host_len}, &host))
        return false;
    struct sp_net_ask *a = calloc(1, sizeof *a);
    if (a == NULL)
        return false;
    *a = (struct sp_net_ask){.policy = m->policy,
                             .host = host,
                             .port = q->port,
                             .protocol = (enum sp_proxy_protocol)q->protocol,
                             .via = (enum sp_proxy_via)q->via,
                             .since_ms = sp_clock_ms(),
                             .managed = m,
                             .number = q->head.number};
    memcpy(a->method, bytes + q->host_len, q->method_len);
    const struct in_addr from = {q->client_address};
    (void)inet_ntop(AF_INET, &from, a->client, sizeof a->client);
    (void)snprintf(a->client + strlen(a->client), sizeof a->client - strlen(a->client), ":%u",
                   q->client_port);
    a->standing = sp_network_policy_judge(m->policy, &a->host, a->port, way_of(a->protocol),
                                          sp_str_of(a->method), &a->domain);
    if (is_forbidden(m, &a->host)) {
        a->standing = SP_STANDING_DENIED;
        a->domain = NULL;
    }
    a->proc = owner_of(m, q, a);
    a->is_owned = a->proc != NULL;
    sp_list_append(bucket_of(m, a->number), &a->link);
    m->ask_count++;
    m->hub->stats.open_asks++;
    if (a->proc != NULL && a->proc->net.ops != NULL) {
        a->proc->net.ops->judge(a->proc, a);
        return true;
    }
    struct sp_net_verdict v;
    sp_net_judge_by_lists(a, &v);
    sp_net_answer(a, &v);
    return true;
}

/* HOST, or HOST:PORT. */
static bool read_know(const struct sp_proxy_head *q, struct sp_hostname *ret, uint64_t *ret_port)
{
    struct sp_str rest = sp_proxy_text(q, sizeof *q);
    const struct sp_str host = sp_str_cut(&rest, ':');
    const bool has_port = host.n + 1 + rest.n == q->len;

    *ret_port = 0;
    return q->number != 0 && read_host(host, ret) && !ret->is_address &&
           (!has_port || (sp_str_to_u64(rest, UINT16_MAX, ret_port) && *ret_port != 0));
}

/* What the lists say: at any port for DNS, at its port for a server name in TLS. */
static enum sp_network_standing find_known(const struct sp_managed *m,
                                           const struct sp_hostname *host, uint16_t port)
{
    const struct sp_domain *domain;

    if (port != 0)
        return sp_network_policy_judge(m->policy, host, port, SP_NETWORK_WAY_TUNNEL, SP_STR(""),
                                       &domain);
    return sp_network_policy_knows(m->policy, host) ? SP_STANDING_LISTED : SP_STANDING_UNLISTED;
}

static bool on_know(struct sp_managed *m, const struct sp_proxy_head *q)
{
    struct sp_hostname host;
    uint64_t port;

    if (!read_know(q, &host, &port))
        return false;
    const enum sp_network_standing standing = find_known(m, &host, (uint16_t)port);
    bool is_known = sp_network_standing_reason(standing) == SP_NETWORK_REASON_NONE;
    for (struct sp_list *i = m->procs.next;
         !is_known && standing != SP_STANDING_DENIED && i != &m->procs; i = i->next) {
        struct sp_proc *p = proc_of(i);

        is_known = p->net.ops != NULL && p->net.ops->knows != NULL && p->net.ops->knows(p, &host);
    }
    is_known = is_known && !is_forbidden(m, &host);
    const struct sp_proxy_verdict message = {
        .head = head_of(SP_PROXY_VERDICT, q->number, sizeof message - sizeof message.head),
        .is_allowed = is_known,
        .reason = is_known ? SP_NETWORK_REASON_NONE : SP_NETWORK_REASON_NOT_ALLOWED,
        .flags = m->hub->forbids == NULL ? SP_PROXY_KEEP : 0,
    };
    m->has_kept |= m->hub->forbids == NULL;
    send_to_proxy(m, &message, sizeof message, (struct sp_str){0}, -1);
    return true;
}

static bool on_done(struct sp_managed *m, const struct sp_proxy_done *d)
{
    struct sp_net_ask *a = d->head.number == 0 ? NULL : find_ask(m, d->head.number);
    struct sp_managed_stats *stats = &m->hub->stats;
    const char *bytes = (const char *)(d + 1);
    struct sp_hostname host;

    if ((d->head.number != 0 && (a == NULL || !a->is_answered)) ||
        !read_host((struct sp_str){bytes, d->host_len}, &host))
        return false;
    struct sp_proc *p = a != NULL ? a->proc : m->proc_count == 1 ? proc_of(m->procs.next) : NULL;
    stats->sent += d->sent;
    stats->received += d->received;
    if (d->outcome == SP_PROXY_REACHED && (p != NULL || a == NULL || !a->is_owned))
        count_reached(m, p, host.text, d);
    if (p != NULL && d->outcome == SP_PROXY_BLOCKED && d->reason != SP_NETWORK_REASON_NONE &&
        (a == NULL || a->is_allowed))
        note_denied(p, host.text, d->port, (enum sp_network_reason)d->reason,
                    (enum sp_proxy_via)d->via, (enum sp_proxy_protocol)d->protocol);
    if (p != NULL && a != NULL && a->is_allowed && d->outcome == SP_PROXY_BLOCKED &&
        p->net.ops != NULL && p->net.ops->decided != NULL)
        p->net.ops->decided(p, a,
                            &(struct sp_net_verdict){.reason = (enum sp_network_reason)d->reason});
    if (a != NULL)
        free_ask(a);
    return true;
}

static void on_counts(struct sp_managed *m, const struct sp_proxy_counts *c)
{
    struct sp_managed_stats *s = &m->hub->stats;

    /* Counters of a proxy only grow; one that lies can only make ours wrong. */
    s->dns_name += c->dns_name - m->counts.dns_name;
    s->dns_none += c->dns_none - m->counts.dns_none;
    s->dns_failed += c->dns_failed - m->counts.dns_failed;
    s->dns_dropped += c->dns_dropped - m->counts.dns_dropped;
    s->resolves += c->resolves - m->counts.resolves;
    s->resolve_us += c->resolve_us - m->counts.resolve_us;
    s->active += c->active - m->counts.active;
    m->counts = *c;
}

/* ---- the end of a command ---- */

static void settle(struct sp_proc *p)
{
    struct sp_session_client *client = p->session->client;

    if (!p->net.is_settling)
        return;
    p->net.is_settling = false;
    sp_loop_cancel(p->session->front->loop, &p->net.settle);
    if (p->net.is_closed)
        sp_managed_leave(p);
    if (client != NULL)
        client->news(client, p);
    sp_proc_settle(p);
}

/* Those that wait for this PONG, or an earlier one. */
static void settle_all(struct sp_managed *m, uint64_t number)
{
    sp_list_each_safe(i, &m->procs) {
        struct sp_proc *p = proc_of(i);

        if (p->net.is_settling && p->net.settles_at <= number)
            settle(p);
    }
}

static void on_settle_late(struct sp_timer *t)
{
    settle(SP_CONTAINER(t, struct sp_proc, net.settle));
}

void sp_managed_exited(struct sp_proc *p)
{
    struct sp_managed *m = p->net.managed;
    struct sp_loop *loop = p->session->front->loop;

    if (m == NULL || m->proxy.socket < 0 || p->net.is_settling ||
        !sp_loop_timer(loop, &p->net.settle, sp_loop_now(loop) + SP_MANAGED_SETTLE_MS,
                       on_settle_late))
        return;
    const struct sp_proxy_head ping = head_of(SP_PROXY_PING, ++m->last_settle, 0);
    p->net.is_settling = true;
    p->net.settles_at = ping.number;
    send_to_proxy(m, &ping, sizeof ping, (struct sp_str){0}, -1);
}

bool sp_managed_is_settling(const struct sp_managed *m)
{
    for (struct sp_list *i = m->procs.next; i != &m->procs; i = i->next)
        if (proc_of(i)->net.is_settling)
            return true;
    return false;
}

/* The questions about connections of a process that has ended are withdrawn; with `is_leaving` its
 * answered connections are no longer its own, either. */
static void end_asks_of(struct sp_managed *m, struct sp_proc *p, bool is_leaving)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct sp_list *k = m->asks[i].next; k != &m->asks[i];) {
            struct sp_net_ask *a = SP_CONTAINER(k, struct sp_net_ask, link);

            k = k->next;
            if (a->proc != p)
                continue;
            if (!a->is_answered && p->net.ops != NULL)
                p->net.ops->gone(p, a);
            if (is_leaving || !a->is_answered)
                a->proc = NULL;
            if (!a->is_answered) {
                sp_net_answer(a, &(struct sp_net_verdict){.reason = SP_NETWORK_REASON_NOT_ALLOWED});
                k = m->asks[i].next; /* callbacks may have changed the list */
            }
        }
}

void sp_managed_closed(struct sp_proc *p)
{
    p->net.is_closed = true;
    if (!p->net.is_settling)
        sp_managed_leave(p);
    else if (p->net.managed != NULL)
        end_asks_of(p->net.managed, p, false);
}

/* false: the proxy breaks the protocol. */
static bool on_message(struct sp_managed *m, const struct sp_proxy_head *h)
{
    struct sp_net_ask *a;

    m->unanswered = 0;
    switch ((enum sp_proxy_op)h->op) {
    case SP_PROXY_ASK:
        return on_ask(m, (const struct sp_proxy_ask *)(const void *)h);
    case SP_PROXY_KNOW:
        return on_know(m, h);
    case SP_PROXY_GONE:
        a = find_ask(m, h->number);
        if (a != NULL)
            withdraw_ask(a);
        return true;
    case SP_PROXY_DONE:
        return on_done(m, (const struct sp_proxy_done *)(const void *)h);
    case SP_PROXY_COUNTS:
        on_counts(m, (const struct sp_proxy_counts *)(const void *)h);
        return true;
    case SP_PROXY_UNABLE:
        sp_log(SP_LOG_ERROR, "network proxy: " SP_STR_FMT, SP_STR_ARG(sp_proxy_text(h, sizeof *h)));
        return false;
    case SP_PROXY_PONG:
        settle_all(m, h->number);
        return true;
    case SP_PROXY_READY:
        return true;
    case SP_PROXY_CLOSED: /* of published ports, whose proxy is another one */
    case SP_PROXY_HELLO:  /* sp_proxy_check lets none of these pass */
    case SP_PROXY_RESOLVER:
    case SP_PROXY_LISTEN:
    case SP_PROXY_VERDICT:
    case SP_PROXY_FORGET:
    case SP_PROXY_PING:
    case SP_PROXY_RELAY:
    case SP_PROXY_OP_MAX:
        break;
    }
    return false;
}

/* ---- the proxy of a cell ---- */

static void on_proxy(struct sp_watch *w, uint32_t events)
{
    struct sp_managed *m = SP_CONTAINER(w, struct sp_managed, proxy.watch);
    struct sp_managed_hub *h = m->hub;

    (void)events;
    if (m->proxy.outbox.first != NULL) {
        (void)sp_outbox_send(&m->proxy.outbox, m->proxy.socket);
        watch_helper(h->loop, &m->proxy);
    }
    for (int i = 0; i < MESSAGES_A_TURN && m->proxy.socket >= 0; i++) {
        struct iovec iov = {.iov_base = h->heard, .iov_len = sizeof h->heard};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1}; /* no room for descriptors */
        ssize_t n;

        do
            n = recvmsg(m->proxy.socket, &msg, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            lose_proxy(m);
        } else if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
                   !sp_proxy_check(h->heard, (size_t)n, true, 0) ||
                   !on_message(m, (const struct sp_proxy_head *)(const void *)h->heard)) {
            sp_log(SP_LOG_WARN, "a network proxy sent an invalid message and is replaced");
            lose_proxy(m);
        }
    }
}

static void on_ping(struct sp_timer *t)
{
    struct sp_managed *m = SP_CONTAINER(t, struct sp_managed, ping);
    const struct sp_proxy_head ping = head_of(SP_PROXY_PING, 1, 0);

    if (m->proxy.socket < 0)
        return;
    /* Pings are counted, not timed: if the front was stopped, answers may be unread. */
    if (m->unanswered++ >= PINGS) {
        sp_log(SP_LOG_WARN, "a network proxy does not answer and is replaced");
        lose_proxy(m);
        return;
    }
    send_to_proxy(m, &ping, sizeof ping, (struct sp_str){0}, -1);
    (void)sp_loop_timer(m->hub->loop, &m->ping, sp_loop_now(m->hub->loop) + PING_MS, on_ping);
}

static void end_asks(struct sp_managed *m)
{
    for (size_t i = 0; i < BUCKETS; i++)
        while (!sp_list_is_empty(&m->asks[i]))
            withdraw_ask(SP_CONTAINER(sp_list_first(&m->asks[i]), struct sp_net_ask, link));
}

static void end_proxy(struct sp_managed *m)
{
    const struct sp_proxy_counts none = m->counts;

    sp_helper_end(m->hub->loop, &m->proxy);
    sp_loop_cancel(m->hub->loop, &m->ping);
    m->hub->stats.active -= none.active;
    m->counts = (struct sp_proxy_counts){0};
    m->has_kept = false;
    end_asks(m);
    settle_all(m, UINT64_MAX);
}

/* The cell has the sockets, too: closing ours alone would leave commands waiting for a proxy that
 * never comes. A listener that is shut down refuses; a datagram socket that is connected to a port
 * that no command can have gets no questions. */
static void close_network(struct sp_managed *m)
{
    const struct sockaddr_in nobody = {.sin_family = AF_INET,
                                       .sin_port = htons(SP_NETWORK_PROXY_PORT),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    for (uint32_t i = 0; i < m->port_count; i++) {
        const struct port *p = &m->ports[i];

        if (p->is.kind == SP_PORT_DNS_UDP)
            (void)connect(p->fd, (const struct sockaddr *)&nobody, sizeof nobody);
        else if (p->is.kind != SP_PORT_DIAG)
            (void)shutdown(p->fd, SHUT_RDWR);
        (void)close(p->fd);
    }
    m->port_count = 0;
}

static void lose_proxy(struct sp_managed *m)
{
    const uint64_t now = sp_loop_now(m->hub->loop);

    end_proxy(m);
    m->hub->stats.restarts++;
    memmove(m->deaths, m->deaths + 1, sizeof m->deaths - sizeof m->deaths[0]);
    m->deaths[SP_MANAGED_DEATHS - 1] = now;
    if (m->deaths[0] != 0 && now - m->deaths[0] < SP_MANAGED_DEATHS_MS) {
        sp_log(SP_LOG_ERROR, "a network proxy keeps ending: the network of its sandbox is closed");
        m->is_broken = true;
        close_network(m);
        return;
    }
    start_proxy_soon(m);
}

/* ---- upstream proxies ---- */

static const char *find_variable(char *const *environ, const char *upper, const char *lower)
{
    const char *found = NULL;

    for (size_t i = 0; environ != NULL && environ[i] != NULL; i++) {
        const size_t n = strlen(upper);

        if (strncmp(environ[i], lower, n) == 0 && environ[i][n] == '=')
            return environ[i] + n + 1;
        if (strncmp(environ[i], upper, n) == 0 && environ[i][n] == '=')
            found = environ[i] + n + 1;
    }
    return found;
}

static const char *find_last(struct sp_str s, char c)
{
    return s.p == NULL || s.n == 0 ? NULL : memrchr(s.p, c, s.n);
}

/* http://[USER:PASSWORD@]HOST[:PORT][/] as "HOST:PORT" or "HOST:PORT CREDENTIALS". */
static bool add_upstream(const char *url, struct sp_buf *out)
{
    struct sp_str rest = sp_str_of(url == NULL ? "" : url);
    struct sp_str user = {0};

    if (rest.n == 0)
        return true;
    if (!sp_str_skip_prefix(&rest, SP_STR("http://")) && strstr(url, "://") != NULL) {
        sp_log(SP_LOG_WARN, "managed networks use no upstream proxy but http:// ones");
        return true;
    }
    rest = sp_str_cut(&rest, '/');
    const char *at = find_last(rest, '@');
    if (at != NULL) {
        user = (struct sp_str){rest.p, (size_t)(at - rest.p)};
        rest = (struct sp_str){at + 1, rest.n - user.n - 1};
    }
    const char *colon = find_last(rest, ':');
    struct sp_str port = SP_STR("80");
    struct sp_hostname host;
    uint64_t number = 0;
    if (colon != NULL && rest.p[rest.n - 1] != ']') {
        port = (struct sp_str){colon + 1, (size_t)(rest.p + rest.n - colon) - 1};
        rest.n = (size_t)(colon - rest.p);
    }
    if (sp_hostname_read(rest, &host) != NULL || !sp_str_to_u64(port, UINT16_MAX, &number) ||
        number == 0) {
        sp_log(SP_LOG_WARN, "managed networks use no upstream proxy: the variable for it has no "
                            "HOST:PORT");
        return true;
    }
    bool ok = sp_buf_printf(out, "%s:%u", host.text, (unsigned)number);
    if (user.n != 0) {
        char *room = ok && sp_buf_add(out, " ", 1) ? sp_buf_room(out, SP_BASE64_LEN(user.n)) : NULL;

        ok = room != NULL;
        if (ok)
            out->len += (size_t)(sp_base64_encode(room, user.p, user.n) - room);
    }
    return ok;
}

/* ---- starting a proxy ---- */

static int send_hello(struct sp_managed *m, int resolver, struct sp_err *e)
{
    const struct sp_managed_hub *h = m->hub;
    const struct sp_network_policy *p = m->policy;
    auto_buf struct sp_buf texts = {.max = 4096};
    struct sp_proxy_hello hello = {
        .flags = (p->has_socks ? SP_PROXY_SOCKS : 0U) | (p->checks_sni ? SP_PROXY_CHECK_SNI : 0U) |
                 (p->is_limited ? SP_PROXY_LIMITED : 0U) |
                 (p->upstream_strict ? SP_PROXY_UPSTREAM_STRICT : 0U),
        .linger_ms = SP_MANAGED_LINGER_MS,
        .port_count = (uint16_t)h->own_port_count,
    };
    const int fds[2] = {m->names, resolver};
    bool ok = true;

    memcpy(hello.own_ports, h->own_ports, sizeof hello.own_ports);
    if (p->uses_upstream) {
        const char *all = find_variable(h->environ, "ALL_PROXY", "all_proxy");
        const char *http = find_variable(h->environ, "HTTP_PROXY", "http_proxy");
        const char *https = find_variable(h->environ, "HTTPS_PROXY", "https_proxy");
        const char *none = find_variable(h->environ, "NO_PROXY", "no_proxy");

        ok = add_upstream(http != NULL ? http : all, &texts);
        hello.http_len = (uint16_t)texts.len;
        ok = ok && add_upstream(https != NULL ? https : all, &texts);
        hello.https_len = (uint16_t)(texts.len - hello.http_len);
        ok = ok && sp_buf_add_str(&texts, sp_str_of(none == NULL ? "" : none));
        hello.no_proxy_len = (uint16_t)(texts.len - hello.http_len - hello.https_len);
    }
    hello.head = head_of(SP_PROXY_HELLO, 0, sizeof hello - sizeof hello.head + texts.len);
    if (!ok)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the upstream proxies in the server's variables are too "
                       "long");
    const int r = sp_wire_send(m->proxy.socket, false, &hello, sizeof hello,
                               texts.len == 0 ? NULL : texts.data, texts.len, fds, 2);
    return r == 0 ? 0 : sp_fail(e, SP_E_SYSTEM, -r, "talk to the network proxy");
}

static void send_port(struct sp_managed *m, const struct port *p)
{
    static const uint8_t kinds[] = {[SP_PORT_DNS_UDP] = SP_PROXY_DNS_UDP,
                                    [SP_PORT_DNS_TCP] = SP_PROXY_DNS_TCP,
                                    [SP_PORT_PROXY] = SP_PROXY_FRONT_DOOR,
                                    [SP_PORT_BY_NAME] = SP_PROXY_BY_NAME};
    const struct sp_proxy_listen listen = {
        .head = head_of(SP_PROXY_LISTEN, 0, sizeof listen - sizeof listen.head),
        .kind = p->is.kind == SP_PORT_DIAG ? 0 : kinds[p->is.kind],
        .port = p->is.port,
    };

    if (listen.kind != 0 && m->proxy.socket >= 0)
        send_to_proxy(m, &listen, sizeof listen, (struct sp_str){0}, p->fd);
}

static void on_resolver_end(struct sp_watch *w, uint32_t events);

static int need_resolver(struct sp_managed_hub *h, struct sp_err *e)
{
    if (h->resolver.socket >= 0)
        return 0;
    int r = sp_helper_spawn(h->program, h->environ, "resolver", &h->resolver, e);
    if (r == 0)
        r = sp_loop_watch(h->loop, &h->resolver.watch, h->resolver.socket, EPOLLIN, on_resolver_end,
                          e);
    if (r < 0)
        sp_helper_end(h->loop, &h->resolver);
    return r;
}

/* A new connection to the resolver: one end goes there, the other one is the caller's. */
static int connect_resolver(struct sp_managed_hub *h, int *ret, struct sp_err *e)
{
    int pair[2];
    int r = need_resolver(h, e);

    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a socket for the resolver");
    *ret = sp_fd_lift(pair[0]);
    auto_close int theirs = sp_fd_lift(pair[1]);
    if (send_to(h->loop, &h->resolver, "", 1, (struct sp_str){0}, theirs))
        return 0;
    (void)close(*ret);
    return sp_fail(e, SP_E_FAILED, 0, "the resolver of managed networks takes no more sockets");
}

static int start_proxy(struct sp_managed *m, struct sp_err *e)
{
    struct sp_loop *loop = m->hub->loop;
    auto_close int resolver = -1;
    int r = connect_resolver(m->hub, &resolver, e);

    if (r == 0)
        r = sp_helper_spawn(m->hub->program, m->hub->environ, "proxy", &m->proxy, e);
    if (r == 0)
        r = sp_loop_watch(loop, &m->proxy.watch, m->proxy.socket, EPOLLIN, on_proxy, e);
    if (r == 0)
        r = send_hello(m, resolver, e);
    if (r < 0) {
        sp_helper_end(loop, &m->proxy);
        return r;
    }
    m->unanswered = 0;
    (void)sp_loop_timer(loop, &m->ping, sp_loop_now(loop) + PING_MS, on_ping);
    for (uint32_t i = 0; i < m->port_count; i++)
        send_port(m, &m->ports[i]);
    return 0;
}

static void on_restart(struct sp_timer *t)
{
    struct sp_managed *m = SP_CONTAINER(t, struct sp_managed, restart);
    struct sp_err e = {0};
    char text[256];

    if (start_proxy(m, &e) < 0) {
        (void)sp_error_text(&e, text, sizeof text);
        sp_log(SP_LOG_ERROR, "network proxy: %s", text);
        lose_proxy(m);
    }
}

static void start_proxy_soon(struct sp_managed *m)
{
    static const uint32_t delays[] = {0, 10, 100, 1000};
    const uint64_t now = sp_loop_now(m->hub->loop);
    uint32_t recent = 0;

    for (size_t i = 0; i < SP_MANAGED_DEATHS; i++)
        recent += m->deaths[i] != 0 && now - m->deaths[i] < SP_MANAGED_DEATHS_MS;
    (void)sp_loop_timer(m->hub->loop, &m->restart, now + delays[recent == 0 ? 0 : (recent - 1) % 4],
                        on_restart);
}

/* ---- the resolver ---- */

static void on_resolver_restart(struct sp_timer *t)
{
    struct sp_managed_hub *h = SP_CONTAINER(t, struct sp_managed_hub, restart);
    const struct sp_proxy_head message = head_of(SP_PROXY_RESOLVER, 0, 0);

    sp_list_each_safe(i, &h->networks) {
        struct sp_managed *m = SP_CONTAINER(i, struct sp_managed, link);
        auto_close int resolver = -1;
        struct sp_err e = {0};

        if (connect_resolver(h, &resolver, &e) < 0) {
            char text[256];

            (void)sp_error_text(&e, text, sizeof text);
            sp_log(SP_LOG_ERROR, "resolver of managed networks: %s", text);
            (void)sp_loop_timer(h->loop, &h->restart, sp_loop_now(h->loop) + RESOLVER_RETRY_MS,
                                on_resolver_restart);
            return;
        }
        if (m->proxy.socket >= 0)
            send_to_proxy(m, &message, sizeof message, (struct sp_str){0}, resolver);
    }
}

/* It says nothing on this socket: an event is its end, or room for queued messages. */
static void on_resolver_end(struct sp_watch *w, uint32_t events)
{
    struct sp_managed_hub *h = SP_CONTAINER(w, struct sp_managed_hub, resolver.watch);
    const uint64_t now = sp_loop_now(h->loop);

    if ((events & EPOLLOUT) != 0 && h->resolver.outbox.first != NULL) {
        (void)sp_outbox_send(&h->resolver.outbox, h->resolver.socket);
        watch_helper(h->loop, &h->resolver);
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0)
        return;
    sp_helper_end(h->loop, &h->resolver);
    h->stats.restarts++;
    if (now - h->resolver_ended_ms > SP_MANAGED_DEATHS_MS)
        h->resolver_ends = 0;
    h->resolver_ended_ms = now;
    const uint64_t delay = h->resolver_ends == 0 ? 0 : h->resolver_ends == 1 ? 10 : 1000;
    h->resolver_ends++;
    (void)sp_loop_timer(h->loop, &h->restart, now + delay, on_resolver_restart);
}

/* ---- a front ---- */

int sp_managed_hub_new(struct sp_loop *loop, const char *program, char *const *environ,
                       struct sp_managed_hub **ret, struct sp_err *e)
{
    struct sp_managed_hub *h = calloc(1, sizeof *h);

    if (h == NULL || (h->program = strdup(program)) == NULL) {
        free(h);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare managed networks");
    }
    h->loop = loop;
    h->environ = environ;
    h->resolver = (struct sp_helper){.socket = -1, .process = {.pidfd = -1}};
    sp_list_init(&h->networks);
    *ret = h;
    return 0;
}

void sp_managed_hub_free(struct sp_managed_hub *h)
{
    if (h == NULL)
        return;
    assert(sp_list_is_empty(&h->networks));
    sp_loop_cancel(h->loop, &h->restart);
    sp_helper_end(h->loop, &h->resolver);
    free(h->program);
    free(h);
}

void sp_managed_hub_set_rules(struct sp_managed_hub *h,
                              bool (*forbids)(void *user, const struct sp_hostname *host),
                              void *user)
{
    h->forbids = forbids;
    h->user = user;
}

void sp_managed_hub_add_port(struct sp_managed_hub *h, uint16_t port)
{
    if (h->own_port_count < SP_PROXY_PORTS_MAX)
        h->own_ports[h->own_port_count++] = port;
}

const struct sp_managed_stats *sp_managed_hub_stats(const struct sp_managed_hub *h)
{
    return &h->stats;
}

/* ---- a cell ---- */

int sp_managed_names(const struct sp_managed *m)
{
    return m->names;
}

int sp_managed_new(struct sp_managed_hub *h, const struct sp_network_policy *policy, int names,
                   struct sp_managed **ret, struct sp_err *e)
{
    auto_close int kept = names;
    struct sp_managed *m = calloc(1, sizeof *m);
    struct stat st;

    if (m == NULL || (m->policy = sp_network_policy_copy(policy)) == NULL) {
        free(m);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a managed network");
    }
    m->hub = h;
    m->last_settle = 1; /* 1: asks for a sign of life */
    m->proxy = (struct sp_helper){.socket = -1, .process = {.pidfd = -1}};
    sp_list_init(&m->procs);
    for (size_t i = 0; i < BUCKETS; i++)
        sp_list_init(&m->asks[i]);
    sp_list_append(&h->networks, &m->link);
    const bool is_kept =
        kept >= 0 && fstat(kept, &st) == 0 && st.st_size == (off_t)sp_names_bytes();
    m->names = is_kept
                   ? TAKE_FD(kept)
                   : sp_fd_lift(memfd_create("sallyport-names", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    int r = m->names < 0 || (!is_kept && ftruncate(m->names, (off_t)sp_names_bytes()) < 0)
                ? sp_fail(e, SP_E_SYSTEM, errno, "make a managed network")
                : start_proxy(m, e);
    if (r < 0) {
        sp_managed_free(m);
        return r;
    }
    *ret = m;
    return 0;
}

void sp_managed_free(struct sp_managed *m)
{
    if (m == NULL)
        return;
    end_proxy(m);
    sp_loop_cancel(m->hub->loop, &m->restart);
    while (!sp_list_is_empty(&m->procs))
        sp_managed_leave(proc_of(sp_list_first(&m->procs)));
    for (uint32_t i = 0; i < m->port_count; i++)
        (void)close(m->ports[i].fd);
    if (m->names >= 0)
        (void)close(m->names);
    sp_list_remove(&m->link);
    sp_network_policy_free(m->policy);
    free(m);
}

/* ---- the sockets of the cell ---- */

/* A cell that was taken over could send a socket of the host's namespace, or one of its own. */
static bool is_as_planned(const struct sp_managed *m, const struct sp_wire_port *p, int fd)
{
    const bool is_udp = p->kind == SP_PORT_DNS_UDP;
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;

    if (!sp_fd_is_of_netns(fd, m->netns))
        return false;
    if (p->kind == SP_PORT_DIAG)
        return sp_fd_option(fd, SO_DOMAIN) == AF_NETLINK &&
               sp_fd_option(fd, SO_PROTOCOL) == 4; /* NETLINK_SOCK_DIAG */
    return sp_fd_option(fd, SO_DOMAIN) == AF_INET &&
           sp_fd_option(fd, SO_TYPE) == (is_udp ? SOCK_DGRAM : SOCK_STREAM) &&
           sp_fd_option(fd, SO_PROTOCOL) == (is_udp ? IPPROTO_UDP : IPPROTO_TCP) &&
           (is_udp || sp_fd_option(fd, SO_ACCEPTCONN) == 1) &&
           getsockname(fd, (struct sockaddr *)&at, &len) == 0 && ntohs(at.sin_port) == p->port &&
           ntohl(at.sin_addr.s_addr) == (p->kind == SP_PORT_BY_NAME ? INADDR_ANY : INADDR_LOOPBACK);
}

/* Whether the plan has this port, and it did not come before. */
static bool is_expected(const struct sp_managed *m, const struct sp_wire_port *p)
{
    uint16_t ports[SP_NETWORK_PORTS_MAX];
    const size_t count = sp_network_policy_ports(m->policy, ports);
    bool is_listed = p->kind != SP_PORT_BY_NAME;

    for (size_t i = 0; i < count; i++)
        is_listed |= ports[i] == p->port;
    for (uint32_t i = 0; i < m->port_count; i++)
        if (m->ports[i].is.kind == p->kind && m->ports[i].is.port == p->port)
            return false;
    switch (p->kind) {
    case SP_PORT_DNS_UDP:
    case SP_PORT_DNS_TCP:
        return p->port == 53;
    case SP_PORT_PROXY:
        return p->port == SP_NETWORK_PROXY_PORT;
    case SP_PORT_DIAG:
        return p->port == 0;
    default:
        return p->kind == SP_PORT_BY_NAME && is_listed;
    }
}

bool sp_managed_take_ports(struct sp_managed *m, const struct sp_wire_ports *ports, int *fds,
                           int count)
{
    uint16_t planned[SP_NETWORK_PORTS_MAX];

    if (m->has_ports || count < 1 || ports->count != (uint32_t)count || m->is_broken)
        return false;
    for (int i = 0; i < count; i++) {
        fds[i] = sp_fd_lift(fds[i]);
        if (!is_expected(m, &ports->ports[i]) || m->port_count == PORTS_MAX ||
            !is_as_planned(m, &ports->ports[i], fds[i]))
            return false;
        m->netns = sp_fd_netns(fds[i]);
        m->ports[m->port_count++] = (struct port){.is = ports->ports[i], .fd = fds[i]};
        fds[i] = -1;
        send_port(m, &m->ports[m->port_count - 1]);
    }
    m->has_ports = ports->is_last != 0 &&
                   m->port_count == 4 + (uint32_t)sp_network_policy_ports(m->policy, planned);
    return ports->is_last == 0 || m->has_ports;
}

bool sp_managed_has_ports(const struct sp_managed *m)
{
    return m->has_ports;
}

int sp_managed_check(const struct sp_managed *m, struct sp_err *e)
{
    return m->is_broken ? sp_fail(e, SP_E_FAILED, 0, "the network proxy keeps ending") : 0;
}

/* ---- commands ---- */

static void forget(struct sp_managed *m, struct sp_str host)
{
    const struct sp_proxy_head message = head_of(SP_PROXY_FORGET, 0, host.n);

    if (m->proxy.socket < 0 || (!m->has_kept && host.n == 0))
        return;
    m->has_kept = false;
    send_to_proxy(m, &message, sizeof message, host, -1);
}

void sp_managed_join(struct sp_managed *m, struct sp_proc *p)
{
    p->net.managed = m;
    p->net.leader = 0;
    sp_list_prepend(&m->procs, &p->net.link);
    m->proc_count++;
    forget_owners(m);
    forget(m, (struct sp_str){0}); /* kept verdicts are those of other commands */
    if (p->net.ops != NULL && p->net.ops->joined != NULL)
        p->net.ops->joined(p);
}

void sp_managed_leave(struct sp_proc *p)
{
    struct sp_managed *m = p->net.managed;

    if (m == NULL)
        return;
    p->net.is_settling = p->net.is_closed = false;
    sp_loop_cancel(m->hub->loop, &p->net.settle);
    end_asks_of(m, p, true);
    sp_list_remove(&p->net.link);
    m->proc_count--;
    m->has_left = true;
    forget_owners(m);
    p->net.managed = NULL;
    forget(m, (struct sp_str){0}); /* decisions for this command end with it */
    if (p->net.ops != NULL && p->net.ops->left != NULL)
        p->net.ops->left(p);
}

void sp_managed_done(struct sp_proc *p)
{
    sp_managed_leave(p);
    free(p->net.receipt);
    p->net.receipt = NULL;
}

void sp_managed_forget(struct sp_proc *p, struct sp_str host)
{
    if (p->net.managed != NULL)
        forget(p->net.managed, host);
}
