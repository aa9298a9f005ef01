/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_relay: the bytes of a tunnel.
 *
 * A direction copies through the process's one scratch buffer, so that only bytes that the other
 * end has no room for are held. One that has moved SPLICE_FROM bytes gets a pipe and is spliced
 * from then on: that costs half the CPU time in bulk, and nothing is gained by it for a few bytes.
 *
 * On port 443 the client's bytes are held until they are known to begin no TLS ClientHello, or one
 * whose server name is the host or is listed. The server's bytes flow meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/hello.h"
#include "proxy/proxy_priv.h"

#define SPLICE_FROM (256U << 10)
#define TURN_MAX    (1U << 20)
#define PIPE_SIZE   (256U << 10) /* 128 of them are half of what a user may have */

/* ---- the server name ---- */

static void release_client(struct sp_proxy_conn *c)
{
    c->holds_client = false;
    c->active_ms = sp_loop_now(c->p->loop);
}

static void answer_name(void *owner, const struct sp_proxy_answer *a)
{
    struct sp_proxy_conn *c = owner;

    c->sni_asking = NULL;
    if (a->is_allowed)
        release_client(c);
    else
        sp_proxy_refuse_server_name(c, SP_NETWORK_REASON_SNI_MISMATCH);
    sp_proxy_conn_run(c);
}

static void check_name(struct sp_proxy_conn *c, struct sp_str text)
{
    struct sp_hostname name;
    struct sp_proxy_answer answer;

    if (sp_hostname_read(text, &name) != NULL ||
        (name.is_address && strcmp(name.text, c->host) != 0)) {
        sp_proxy_refuse_server_name(c, SP_NETWORK_REASON_SNI_MISMATCH);
    } else if (strcmp(name.text, c->host) == 0) {
        release_client(c);
    } else if (sp_proxy_kept(c->p, name.text, c->port, SP_PROXY_KNOWN, &answer)) {
        answer_name(c, &answer);
    } else {
        c->sni_asking = sp_proxy_know(c->p, name.text, c->port, answer_name, c);
        if (c->sni_asking == NULL)
            sp_proxy_conn_end(c, true);
    }
}

/* true: something changed. */
static bool hold_client(struct sp_proxy_conn *c)
{
    char name[256];
    size_t n = 0;

    if (c->sni_asking != NULL)
        return false;
    const bool has_changed = sp_proxy_end_fill(&c->client, SP_HELLO_MAX + 1);
    const enum sp_hello hello = c->client.in.len == 0
                                    ? SP_HELLO_PARTIAL
                                    : sp_hello_read(sp_buf_str(&c->client.in), name, &n);
    switch (hello) {
    case SP_HELLO_PARTIAL:
        if (!c->client.is_eof && !c->client.is_broken)
            return has_changed;
        release_client(c);
        return true;
    case SP_HELLO_OTHER:
    case SP_HELLO_NO_NAME:
        release_client(c);
        return true;
    case SP_HELLO_NAMED:
        check_name(c, (struct sp_str){name, n});
        return true;
    case SP_HELLO_TOO_LONG:
    case SP_HELLO_BROKEN:
        sp_proxy_refuse_server_name(c, SP_NETWORK_REASON_OTHER);
        return true;
    }
    return false;
}

/* ---- bytes ---- */

/* Bytes that were read before there was a tunnel. */
static bool move_held(struct sp_proxy_end *from, struct sp_proxy_end *to, uint64_t *count)
{
    if (from->in.len == 0)
        return true;
    if (!sp_buf_add_str(&to->out, sp_buf_str(&from->in)))
        return false;
    *count += from->in.len;
    to->moved += from->in.len;
    sp_buf_done(&from->in);
    return true;
}

static void take_result(struct sp_proxy_end *end, ssize_t n, bool is_reading)
{
    if (n == 0 && is_reading)
        end->is_eof = true;
    if (n >= 0 || errno == EINTR)
        return;
    if (errno != EAGAIN && is_reading)
        end->is_broken = true;
    else if (errno != EAGAIN)
        end->is_mute = true;
    else if (is_reading)
        end->can_read = false;
    else
        end->can_write = false;
}

/* Bytes moved; 0: nothing can move now. */
static size_t copy_some(struct sp_proxy *p, struct sp_proxy_end *from, struct sp_proxy_end *to)
{
    const ssize_t n = read(from->fd, p->scratch, SP_PROXY_COPY_MAX);
    size_t sent = 0;

    take_result(from, n, true);
    if (n <= 0)
        return 0;
    if ((size_t)n < SP_PROXY_COPY_MAX && !from->saw_hangup)
        from->can_read = false;
    while (sent < (size_t)n && to->can_write && !to->is_mute) {
        const ssize_t m = sp_proxy_send(to->fd, p->scratch + sent, (size_t)n - sent);

        take_result(to, m, false);
        sent += m > 0 ? (size_t)m : 0;
    }
    if (sent < (size_t)n && !sp_buf_add(&to->out, p->scratch + sent, (size_t)n - sent))
        to->is_mute = true;
    return (size_t)n;
}

static bool empty_pipe(struct sp_proxy_end *to)
{
    bool has_changed = false;

    while (to->piped != 0 && to->can_write && !to->is_mute) {
        const ssize_t n =
            splice(to->pipe[0], NULL, to->fd, NULL, to->piped, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

        take_result(to, n, false);
        if (n > 0)
            to->piped -= (size_t)n;
        has_changed = has_changed || n > 0;
    }
    return has_changed;
}

static size_t splice_some(struct sp_proxy_end *from, struct sp_proxy_end *to)
{
    const ssize_t n =
        splice(from->fd, NULL, to->pipe[1], NULL, PIPE_SIZE, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

    /* The pipe is empty here, so EAGAIN is about the socket. */
    take_result(from, n, true);
    if (n <= 0)
        return 0;
    to->piped = (size_t)n;
    (void)empty_pipe(to);
    return (size_t)n;
}

/* Without a free pipe, or without descriptors, the direction goes on copying. */
static void want_pipe(struct sp_proxy *p, struct sp_proxy_end *to)
{
    if (to->pipe[0] >= 0 || to->moved < SPLICE_FROM || p->pipes >= SP_PROXY_PIPES_MAX)
        return;
    if (pipe2(to->pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        to->pipe[0] = to->pipe[1] = -1;
        return;
    }
    p->pipes++;
    (void)fcntl(to->pipe[1], F_SETPIPE_SZ, PIPE_SIZE); /* a smaller pipe means more calls */
}

static bool move(struct sp_proxy_conn *c, struct sp_proxy_end *from, struct sp_proxy_end *to,
                 uint64_t *count, size_t *budget)
{
    bool has_changed = sp_proxy_end_flush(to);

    has_changed = empty_pipe(to) || has_changed;
    while (from->can_read && !from->is_eof && !from->is_broken && to->out.len == 0 &&
           to->piped == 0 && to->can_write && !to->is_mute && *budget != 0) {
        want_pipe(c->p, to);
        const size_t n = to->pipe[0] >= 0 ? splice_some(from, to) : copy_some(c->p, from, to);
        *count += n;
        to->moved += n;
        *budget -= n < *budget ? n : *budget;
        has_changed = has_changed || n != 0;
    }
    return has_changed;
}

/* The end of one direction is carried over when all its bytes are. */
static bool carry_end(struct sp_proxy_end *from, struct sp_proxy_end *to)
{
    if (!from->is_eof || to->is_shut || from->in.len != 0 || to->out.len != 0 || to->piped != 0)
        return false;
    to->is_shut = true;
    (void)shutdown(to->fd, SHUT_WR);
    return true;
}

static bool move_both(struct sp_proxy_conn *c)
{
    size_t budget = TURN_MAX;
    size_t back = TURN_MAX;
    bool has_changed = false;

    if (!c->holds_client) {
        if (!move_held(&c->client, &c->server, &c->sent))
            c->server.is_mute = true;
        has_changed = move(c, &c->client, &c->server, &c->sent, &budget);
        has_changed = carry_end(&c->client, &c->server) || has_changed;
    }
    if (!move_held(&c->server, &c->client, &c->received))
        c->client.is_mute = true;
    has_changed = move(c, &c->server, &c->client, &c->received, &back) || has_changed;
    has_changed = carry_end(&c->server, &c->client) || has_changed;
    if (has_changed)
        c->active_ms = sp_loop_now(c->p->loop);
    if (budget == 0 || back == 0)
        sp_proxy_conn_wake(c); /* others first */
    return has_changed;
}

bool sp_proxy_tunnel_step(struct sp_proxy_conn *c)
{
    if (c->holds_client && hold_client(c) && c->state != SP_PROXY_AT_TUNNEL)
        return true;
    (void)move_both(c);
    if (c->server.is_broken || c->client.is_broken || c->server.is_mute || c->client.is_mute) {
        sp_proxy_conn_end(c, true);
    } else if (c->server.is_shut && c->client.is_shut) {
        sp_proxy_conn_end(c, false);
    } else if ((c->server.is_shut || c->client.is_shut) && !c->is_half_closed) {
        c->is_half_closed = true;
        sp_proxy_conn_set_timer(c, SP_PROXY_HALF_CLOSED_MS);
    }
    return false;
}

void sp_proxy_tunnel_begin(struct sp_proxy_conn *c)
{
    c->state = SP_PROXY_AT_TUNNEL;
    c->active_ms = sp_loop_now(c->p->loop);
    c->holds_client = c->port == 443 && (c->p->flags & SP_PROXY_CHECK_SNI) != 0;
    sp_proxy_conn_set_timer(c, 0);
}
