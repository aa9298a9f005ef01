/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_conn: a connection from accept to its end: what the client speaks, which host it means, the
 * verdict, the dial; then proxy_http.c or proxy_relay.c carry its bytes.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/proxy_priv.h"
#include "proxy/socks.h"

#define FIRST_MS   30000 /* for the first byte, a SOCKS greeting or request, and a head */
#define HANGUP_MS  1000  /* a half-closed client waits this long for its verdict */
#define FIRST_READ 4096U
#define SOCKS_MAX  600U /* more than any greeting or request */

/* ---- the end ---- */

static void free_conn(struct sp_deferred *d)
{
    struct sp_proxy_conn *c = SP_CONTAINER(d, struct sp_proxy_conn, free);

    sp_loop_undefer(c->p->loop, &c->again);
    free(c->text);
    free(c);
}

static void wake_first(struct sp_list *waiting)
{
    struct sp_list *first = sp_list_take_first(waiting);

    if (first != NULL)
        sp_proxy_conn_wake(SP_CONTAINER(first, struct sp_proxy_conn, wait));
}

static void release_slot(struct sp_proxy_conn *c)
{
    if (!c->has_slot)
        return;
    c->has_slot = false;
    c->p->slots--;
    wake_first(&c->p->slot_waiters);
}

void sp_proxy_conn_release(struct sp_proxy_conn *c)
{
    struct sp_proxy_target *t = c->target;

    if (t == NULL)
        return;
    c->target = NULL;
    t->count--;
    wake_first(&t->waiting);
    if (t->count == 0 && sp_list_is_empty(&t->waiting)) {
        sp_list_remove(&t->link);
        free(t);
    }
}

static struct sp_proxy_done done_of(const struct sp_proxy_conn *c)
{
    struct sp_proxy_done done = {
        .head = {.op = SP_PROXY_DONE, .number = c->number},
        .outcome = c->outcome,
        .reason = c->outcome == SP_PROXY_BLOCKED ? c->reason : SP_NETWORK_REASON_NONE,
        .protocol = c->protocol,
        .via = c->via,
        .port = c->port,
        .host_len = (uint8_t)strlen(c->host),
        .family = c->family,
        .sent = c->sent,
        .received = c->received,
        .ms = sp_loop_now(c->p->loop) - c->began_ms,
        .client_port = ntohs(c->client_at.sin_port),
        .local_port = ntohs(c->local_at.sin_port),
        .client_address = c->client_at.sin_addr.s_addr,
        .local_address = c->local_at.sin_addr.s_addr,
    };

    memcpy(done.address, c->address, sizeof done.address);
    return done;
}

void sp_proxy_conn_done(struct sp_proxy_conn *c)
{
    if (!c->is_open)
        return;
    c->is_open = false;
    struct sp_proxy_done done = done_of(c);
    if (c->asking != NULL) { /* its question lingers, and with it the DONE */
        c->asking->done = done;
        sp_proxy_ask_abandon(c->asking);
        c->asking = NULL;
        return;
    }
    sp_proxy_tell(c->p, &done, sizeof done, sp_str_of(c->host), SP_STR(""));
}

static void tell_closed(struct sp_proxy *p, uint64_t number)
{
    struct sp_proxy_head closed = {.op = SP_PROXY_CLOSED, .number = number};

    sp_proxy_tell(p, &closed, sizeof closed, SP_STR(""), SP_STR(""));
}

void sp_proxy_conn_end(struct sp_proxy_conn *c, bool is_reset)
{
    struct sp_proxy *p = c->p;

    if (c->state == SP_PROXY_AT_END)
        return;
    sp_proxy_conn_done(c);
    if (c->relayed != 0)
        tell_closed(p, c->relayed);
    c->state = SP_PROXY_AT_END;
    sp_proxy_ask_abandon(c->sni_asking);
    sp_proxy_dial_free(c);
    sp_proxy_http_free(c);
    sp_proxy_end_close(c, &c->client, is_reset);
    sp_proxy_end_close(c, &c->server, is_reset);
    sp_list_remove(&c->wait);
    release_slot(c);
    sp_proxy_conn_release(c);
    sp_loop_cancel(p->loop, &c->timer);
    sp_list_remove(&c->link);
    if (c->name_address != 0)
        sp_names_hold(p->names, c->name_address, false);
    p->conn_count--;
    sp_proxy_count_changed(p);
    sp_proxy_conn_gone(p);
    sp_proxy_settle(p);
    sp_loop_defer(p->loop, &c->free, free_conn);
}

/* ---- time ---- */

/* What a state does when its time is over. */
static void on_time(struct sp_timer *t)
{
    struct sp_proxy_conn *c = SP_CONTAINER(t, struct sp_proxy_conn, timer);
    const uint64_t now = sp_loop_now(c->p->loop);

    if (c->state == SP_PROXY_AT_HEAD && c->client.in.len != 0) {
        sp_proxy_refuse_http(c, 408, "no complete request in time");
        sp_proxy_conn_run(c);
    } else if (c->state == SP_PROXY_AT_REFUSE) {
        sp_proxy_conn_run(c);
    } else if (c->state == SP_PROXY_AT_TUNNEL && now - c->active_ms < SP_PROXY_HALF_CLOSED_MS) {
        sp_proxy_conn_set_timer(c, (uint32_t)(SP_PROXY_HALF_CLOSED_MS - (now - c->active_ms)));
    } else {
        sp_proxy_conn_end(c, c->state == SP_PROXY_AT_TUNNEL);
    }
}

void sp_proxy_conn_set_timer(struct sp_proxy_conn *c, uint32_t ms)
{
    if (ms == 0)
        sp_loop_cancel(c->p->loop, &c->timer);
    else if (!sp_loop_timer(c->p->loop, &c->timer, sp_loop_now(c->p->loop) + ms, on_time))
        sp_proxy_conn_end(c, true);
}

/* ---- what the client speaks ---- */

static bool first_step(struct sp_proxy_conn *c)
{
    const bool has_changed = sp_proxy_end_fill(&c->client, FIRST_READ);

    if (c->client.in.len == 0) {
        if (c->client.is_eof || c->client.is_broken)
            sp_proxy_conn_end(c, false);
        return false;
    }
    const uint8_t first = (uint8_t)c->client.in.data[0];
    if (first == 5 && (c->p->flags & SP_PROXY_SOCKS) != 0) {
        c->state = SP_PROXY_AT_GREETING;
    } else if (first == 4 || first == 5) {
        /* Reply 91 of SOCKS4; a SOCKS5 client takes another version for a failure. */
        static const uint8_t refused[8] = {0, 91};

        if (!sp_buf_add(&c->client.out, refused, first == 4 ? sizeof refused : 0))
            sp_proxy_conn_end(c, true);
        else
            c->state = SP_PROXY_AT_FLUSH;
    } else {
        c->state = SP_PROXY_AT_HEAD;
    }
    return has_changed || c->state != SP_PROXY_AT_FIRST;
}

static bool greeting_step(struct sp_proxy_conn *c)
{
    bool is_accepted = false;

    (void)sp_proxy_end_fill(&c->client, SOCKS_MAX);
    const ptrdiff_t n = sp_socks_read_greeting(sp_buf_str(&c->client.in), &is_accepted);
    if (n < 0 || (n == 0 && (c->client.is_eof || c->client.is_broken))) {
        sp_proxy_conn_end(c, false);
        return false;
    }
    if (n == 0)
        return false;
    const uint8_t reply[2] = {5, is_accepted ? 0 : 0xff};
    sp_buf_drop(&c->client.in, (size_t)n);
    if (!sp_buf_add(&c->client.out, reply, sizeof reply)) {
        sp_proxy_conn_end(c, true);
        return false;
    }
    c->state = is_accepted ? SP_PROXY_AT_REQUEST : SP_PROXY_AT_FLUSH;
    return true;
}

static void answer_socks(struct sp_proxy_conn *c, enum sp_socks_reply code)
{
    uint8_t reply[SP_SOCKS_REPLY_BYTES];

    sp_socks_write_reply(code, reply);
    if (sp_buf_add(&c->client.out, reply, sizeof reply))
        c->state = SP_PROXY_AT_FLUSH;
    else
        sp_proxy_conn_end(c, true);
}

static bool request_step(struct sp_proxy_conn *c)
{
    struct sp_socks_request request = {0};
    enum sp_socks_reply code = SP_SOCKS_FAILED;

    (void)sp_proxy_end_flush(&c->client);
    (void)sp_proxy_end_fill(&c->client, SOCKS_MAX);
    const ptrdiff_t n = sp_socks_read_request(sp_buf_str(&c->client.in), &request, &code);
    if (n == 0 && (c->client.is_eof || c->client.is_broken))
        sp_proxy_conn_end(c, false);
    if (n == 0)
        return false;
    c->speech = SP_PROXY_SAYS_SOCKS;
    if (n < 0 || code != SP_SOCKS_DONE) {
        answer_socks(c, n < 0 && code == SP_SOCKS_DONE ? SP_SOCKS_FAILED : code);
        return true;
    }
    sp_buf_drop(&c->client.in, (size_t)n);
    const struct sp_str host = {request.host, request.host_len};
    if (sp_proxy_conn_target(c, host, request.port, SP_PROXY_TCP) != NULL)
        answer_socks(c, SP_SOCKS_FAILED);
    return true;
}

/* ---- which host ---- */

/* The name that an address of ours stands for. NULL: it stands for none; is_dead: it did once. */
static const char *name_of(struct sp_proxy *p, const struct sp_hostname *host, bool *ret_is_dead)
{
    uint32_t address;

    *ret_is_dead = false;
    if (!host->is_address || host->family != AF_INET)
        return NULL;
    memcpy(&address, host->address, sizeof address);
    address = ntohl(address);
    if (address < SP_NAMES_FIRST || address > SP_NAMES_LAST)
        return NULL;
    const char *name = sp_names_find(p->names, address);
    *ret_is_dead = name == NULL;
    return name;
}

const char *sp_proxy_conn_target(struct sp_proxy_conn *c, struct sp_str text, uint16_t port,
                                 enum sp_proxy_protocol protocol)
{
    struct sp_hostname host;
    bool is_dead = false;
    const char *why = sp_hostname_read(text, &host);

    if (why == NULL && host.has_scope)
        why = "an address with a scope";
    if (why == NULL && port == 0)
        why = "port 0";
    if (why != NULL)
        return why;
    const char *name = name_of(c->p, &host, &is_dead);
    if (is_dead)
        return "this address stands for no name any more";
    if (name == NULL)
        name = host.text;
    memcpy(c->host, name, strlen(name) + 1);
    c->port = port;
    c->protocol = (uint8_t)protocol;
    c->is_open = true;
    c->number = 0;
    c->began_ms = sp_loop_now(c->p->loop);
    c->sent = c->received = 0;
    c->outcome = SP_PROXY_ABANDONED;
    c->reason = SP_NETWORK_REASON_NONE;
    c->family = 0;
    c->upstream_status = 0;
    memset(c->address, 0, sizeof c->address);
    c->state = SP_PROXY_AT_SLOT;
    return NULL;
}

/* ---- the verdict ---- */

static bool is_safe(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 ||
           strcmp(method, "OPTIONS") == 0;
}

/* Kept verdicts are about host, port and protocol. In mode `limited` the method matters, too: the
 * front is asked about each request with another method, and its answer is not kept. */
static bool slot_step(struct sp_proxy_conn *c)
{
    struct sp_proxy *p = c->p;
    const char *method = c->http != NULL ? c->http->method : "";
    const bool is_kept_away =
        (p->flags & SP_PROXY_LIMITED) != 0 && c->speech == SP_PROXY_SAYS_HTTP && !is_safe(method);
    struct sp_proxy_answer answer;

    sp_list_remove(&c->wait);
    if (c->client.saw_error) {
        sp_proxy_conn_end(c, true);
        return false;
    }
    if (p->slots >= SP_PROXY_DIALS_MAX) {
        sp_list_append(&p->slot_waiters, &c->wait);
        sp_proxy_conn_set_timer(c, 0);
        return false;
    }
    p->slots++;
    c->has_slot = true;
    if (p->slots < SP_PROXY_DIALS_MAX)
        wake_first(&p->slot_waiters); /* one that was woken may have ended before it came here */
    sp_proxy_conn_set_timer(c, 0);
    if (!is_kept_away && sp_proxy_kept(p, c->host, c->port, c->protocol, &answer)) {
        sp_proxy_conn_verdict(c, &answer);
        return true;
    }
    c->asking = sp_proxy_ask(c, sp_str_of(method), is_kept_away);
    if (c->asking == NULL) {
        sp_proxy_conn_end(c, true);
        return false;
    }
    c->number = c->asking->number;
    c->state = SP_PROXY_AT_ASK;
    return true;
}

/* A client that hangs up is not waited for. One that has only said all it has to say looks the
 * same for a moment. */
static bool ask_step(struct sp_proxy_conn *c)
{
    if (c->client.saw_error)
        sp_proxy_conn_end(c, true);
    else if (c->client.saw_hangup && c->timer.slot == 0)
        sp_proxy_conn_set_timer(c, HANGUP_MS);
    return false;
}

void sp_proxy_conn_verdict(struct sp_proxy_conn *c, const struct sp_proxy_answer *a)
{
    free(c->text);
    c->text = a->text.n == 0 ? NULL : sp_str_dup(a->text); /* without memory: without detail */
    c->is_allowed = a->is_allowed;
    c->reason = a->reason;
    c->verdict_flags = a->flags;
    c->state = SP_PROXY_AT_VERDICT;
    sp_proxy_conn_set_timer(c, 0);
}

/* ---- the way to the server ---- */

static struct sp_proxy_target *find_target(struct sp_proxy_conn *c)
{
    char text[sizeof c->host + 2];
    const size_t n = strlen(c->host);

    memcpy(text, c->host, n);
    memcpy(text + n, &c->port, sizeof c->port);
    const struct sp_hash key = sp_hash((struct sp_str){text, n + sizeof c->port});
    struct sp_list *bucket = &c->p->targets[key.a % SP_PROXY_BUCKETS];
    sp_list_each(i, bucket) {
        struct sp_proxy_target *t = SP_CONTAINER(i, struct sp_proxy_target, link);

        if (t->key.a == key.a && t->key.b == key.b)
            return t;
    }
    struct sp_proxy_target *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->key = key;
    t->port = c->port;
    memcpy(t->host, c->host, n + 1);
    sp_list_init(&t->waiting);
    sp_list_append(bucket, &t->link);
    return t;
}

/* Whether the outward connection of the last exchange leads to the present target and is usable.
 * A byte or an end that came without a request makes it unusable. */
static bool can_reuse(struct sp_proxy_conn *c)
{
    if (c->server.fd < 0 || c->target == NULL || c->target->port != c->port ||
        strcmp(c->target->host, c->host) != 0 || (c->is_by_upstream && c->http->head.is_upgrade))
        return false;
    (void)sp_proxy_end_fill(&c->server, 1);
    return c->server.in.len == 0 && !c->server.is_eof && !c->server.is_broken;
}

static bool verdict_step(struct sp_proxy_conn *c)
{
    if (!c->is_allowed) {
        release_slot(c);
        c->outcome = SP_PROXY_BLOCKED;
        sp_proxy_refuse(c);
        return true;
    }
    if (c->speech == SP_PROXY_SAYS_HTTP && can_reuse(c)) {
        release_slot(c);
        c->outcome = SP_PROXY_REACHED;
        return sp_proxy_http_begin(c, true);
    }
    sp_proxy_end_close(c, &c->server, false);
    sp_proxy_conn_release(c);
    c->state = SP_PROXY_AT_TARGET;
    return true;
}

static bool target_step(struct sp_proxy_conn *c)
{
    struct sp_proxy_target *t = c->client.saw_error ? NULL : find_target(c);

    sp_list_remove(&c->wait);
    if (t == NULL) {
        sp_proxy_conn_end(c, true);
        return false;
    }
    if (t->count >= SP_PROXY_HOST_CONNECTIONS) {
        release_slot(c);
        if (c->via == SP_PROXY_VIA_NAME) {
            sp_list_append(&t->waiting, &c->wait);
            return false;
        }
        c->outcome = SP_PROXY_CROWDED;
        sp_proxy_fail(c);
        return true;
    }
    t->count++;
    c->target = t;
    if (t->count < SP_PROXY_HOST_CONNECTIONS)
        wake_first(&t->waiting); /* one that was woken may have ended before it came here */
    c->state = SP_PROXY_AT_DIAL;
    sp_proxy_dial(c); /* calls sp_proxy_conn_dialled, perhaps at once */
    return c->state != SP_PROXY_AT_DIAL;
}

static void say_connected(struct sp_proxy_conn *c)
{
    uint8_t reply[SP_SOCKS_REPLY_BYTES];
    bool is_said = true;

    sp_proxy_http_free(c);
    if (c->speech == SP_PROXY_SAYS_CONNECT) {
        is_said =
            sp_buf_add_str(&c->client.out, SP_STR("HTTP/1.1 200 Connection established\r\n\r\n"));
    } else if (c->speech == SP_PROXY_SAYS_SOCKS) {
        sp_socks_write_reply(SP_SOCKS_DONE, reply);
        is_said = sp_buf_add(&c->client.out, reply, sizeof reply);
    }
    if (is_said)
        sp_proxy_tunnel_begin(c);
    else
        sp_proxy_conn_end(c, true);
}

void sp_proxy_conn_dialled(struct sp_proxy_conn *c, int fd, enum sp_proxy_outcome outcome,
                           enum sp_network_reason reason)
{
    release_slot(c);
    c->outcome = (uint8_t)outcome;
    if (fd < 0) {
        sp_proxy_conn_release(c);
        if (outcome == SP_PROXY_BLOCKED) {
            c->reason = (uint8_t)reason;
            c->verdict_flags &= (uint8_t)~SP_PROXY_DECIDED;
            sp_proxy_refuse(c);
        } else {
            sp_proxy_fail(c);
        }
    } else if (!sp_proxy_end_open(c, &c->server, fd)) {
        sp_proxy_conn_end(c, true);
    } else if (c->speech == SP_PROXY_SAYS_HTTP) {
        (void)sp_proxy_http_begin(c, false);
    } else {
        say_connected(c);
    }
}

/* ---- the driver ---- */

static bool step(struct sp_proxy_conn *c)
{
    switch (c->state) {
    case SP_PROXY_AT_FIRST:
        return first_step(c);
    case SP_PROXY_AT_GREETING:
        return greeting_step(c);
    case SP_PROXY_AT_REQUEST:
        return request_step(c);
    case SP_PROXY_AT_HEAD:
        return sp_proxy_http_head_step(c);
    case SP_PROXY_AT_SLOT:
        return slot_step(c);
    case SP_PROXY_AT_ASK:
        return ask_step(c);
    case SP_PROXY_AT_VERDICT:
        return verdict_step(c);
    case SP_PROXY_AT_TARGET:
        return target_step(c);
    case SP_PROXY_AT_DIAL:
        if (c->client.saw_error)
            sp_proxy_conn_end(c, true);
        return false;
    case SP_PROXY_AT_EXCHANGE:
        return sp_proxy_http_step(c);
    case SP_PROXY_AT_TUNNEL:
        return sp_proxy_tunnel_step(c);
    case SP_PROXY_AT_REFUSE:
        return sp_proxy_refuse_step(c);
    case SP_PROXY_AT_FLUSH:
    case SP_PROXY_AT_DRAIN:
        return sp_proxy_last_step(c);
    case SP_PROXY_AT_END:
        break;
    }
    return false;
}

void sp_proxy_conn_run(struct sp_proxy_conn *c)
{
    if (c->is_running) /* the loop below sees what has changed */
        return;
    c->is_running = true;
    while (c->state != SP_PROXY_AT_END && step(c))
        ;
    c->is_running = false;
}

static void run_again(struct sp_deferred *d)
{
    sp_proxy_conn_run(SP_CONTAINER(d, struct sp_proxy_conn, again));
}

void sp_proxy_conn_wake(struct sp_proxy_conn *c)
{
    sp_loop_again(c->p->loop, &c->again, run_again);
}

/* ---- accept ---- */

/* false: the address the client connected to stands for no name. */
static bool accept_by_name(struct sp_proxy_conn *c, uint16_t port)
{
    const uint32_t address = ntohl(c->local_at.sin_addr.s_addr);
    const char *name = sp_names_find(c->p->names, address);
    char host[SP_PROXY_HOST_MAX + 1];

    if (name == NULL || strlen(name) > SP_PROXY_HOST_MAX)
        return false;
    memcpy(host, name, strlen(name) + 1);
    c->name_address = address;
    sp_names_hold(c->p->names, address, true);
    c->via = SP_PROXY_VIA_NAME;
    c->listen_port = port;
    if (port == 80) {
        c->state = SP_PROXY_AT_HEAD;
        return true;
    }
    c->speech = SP_PROXY_SAYS_ANY;
    return sp_proxy_conn_target(c, sp_str_of(host), port,
                                port == 443 ? SP_PROXY_TUNNEL : SP_PROXY_TCP) == NULL;
}

static struct sp_proxy_conn *new_conn(struct sp_proxy *p)
{
    struct sp_proxy_conn *c = calloc(1, sizeof *c);

    if (c == NULL)
        return NULL;
    c->p = p;
    c->client.fd = c->server.fd = -1;
    c->client.pipe[0] = c->client.pipe[1] = -1;
    c->server.pipe[0] = c->server.pipe[1] = -1;
    c->state = SP_PROXY_AT_FIRST;
    c->speech = SP_PROXY_SAYS_HTTP;
    sp_list_append(&p->conns, &c->link);
    p->conn_count++;
    sp_proxy_count_changed(p);
    return c;
}

static void reset_descriptor(int fd)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};

    if (fd < 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    (void)close(fd);
}

void sp_proxy_conn_accept(struct sp_proxy *p, int fd, uint8_t kind, uint16_t port)
{
    struct sockaddr_in client_at;
    struct sockaddr_in local_at;
    socklen_t n = sizeof client_at;
    socklen_t local_n = sizeof local_at;
    struct sp_proxy_conn *c = NULL;

    if (getpeername(fd, (struct sockaddr *)&client_at, &n) == 0 &&
        getsockname(fd, (struct sockaddr *)&local_at, &local_n) == 0)
        c = new_conn(p);
    if (c == NULL) {
        reset_descriptor(fd);
        return;
    }
    c->client_at = client_at;
    c->local_at = local_at;
    if (!sp_proxy_end_open(c, &c->client, fd) ||
        (kind == SP_PROXY_BY_NAME && !accept_by_name(c, port))) {
        sp_proxy_conn_end(c, true);
        return;
    }
    c->client.can_read = true;
    if (c->state != SP_PROXY_AT_SLOT)
        sp_proxy_conn_set_timer(c, FIRST_MS);
    sp_proxy_conn_run(c);
}

void sp_proxy_conn_relay(struct sp_proxy *p, int client, int server, uint64_t number)
{
    struct sp_proxy_conn *c = client < 0 || server < 0 ? NULL : new_conn(p);

    if (c == NULL) { /* no descriptors, or no memory */
        reset_descriptor(client);
        reset_descriptor(server);
        tell_closed(p, number);
        return;
    }
    c->relayed = number;
    if (!sp_proxy_end_open(c, &c->client, client)) {
        reset_descriptor(server);
        sp_proxy_conn_end(c, true);
    } else if (!sp_proxy_end_open(c, &c->server, server)) {
        sp_proxy_conn_end(c, true);
    } else {
        c->client.can_read = c->server.can_read = true;
        sp_proxy_tunnel_begin(c);
        sp_proxy_conn_run(c);
    }
}
