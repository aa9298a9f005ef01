/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/local_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "core/session.h"
#include "engine/local.h"
#include "server/net/listen.h"
#include "server/net/own_sockets.h"
#include "server/rpc/conn.h"

#define LATE_MS         10 /* a command that lives longer can be seen; a shorter one costs nothing */
#define FLUSH_MS        20 /* a full socket is not waited for */
#define MAX_CONNECTIONS 64
#define MAX_UNFINISHED  (16U << 20) /* bytes of unfinished input of all connections */

struct sp_local_socket {
    struct sp_local_socket_options o;
    struct sp_rpc rpc;
    struct sp_rpc_door door;
    struct sp_front
        *own_front; /* without processes, if there is no backend; NULL: not needed yet */
    struct sp_listener *listener; /* NULL: not yet, or it failed */
    struct sp_timer timer;
    bool was_opened;
};

static void on_drained(void *user)
{
    sp_conn_resume_all(&((struct sp_local_socket *)user)->rpc);
}

/* A front that never has a process. */
static int open_front(struct sp_local_socket *l, struct sp_err *e)
{
    const struct sp_front_options o = {
        .program = "/proc/self/exe",
        .max_processes = 1,
        .is_embedded = true,
        .is_cell_late = true,
        .user = l,
        .drained = on_drained,
    };
    const int r = sp_front_new(l->o.loop, &o, &l->own_front, e);

    l->rpc.front = l->own_front;
    return r;
}

static bool on_opened(void *user, struct sp_link *link, const struct sp_link_ops **ret_ops,
                      void **ret_user)
{
    struct sp_local_socket *l = user;
    struct sp_err e = {0};
    char why[640];
    int r = 0;

    if (l->rpc.front == NULL)
        r = l->o.backend != NULL && *l->o.backend != NULL
                ? sp_local_front(*l->o.backend, on_drained, l, &l->rpc.front, &e)
                : open_front(l, &e);
    if (r < 0) {
        sp_log(SP_LOG_WARN, "local socket: %s", sp_error_text(&e, why, sizeof why));
        return false;
    }
    return sp_conn_opened(&l->door, link, ret_ops, ret_user);
}

int sp_local_socket_listen(struct sp_local_socket *l, struct sp_err *e)
{
    const struct sp_listen_options o = {
        .is_narrow = true,
        .max_unfinished = MAX_UNFINISHED,
        .max_connections = MAX_CONNECTIONS,
        .ping_every_ms = 30000,
        .silence_ms = 60000,
        .handshake_ms = 10000,
        .user = l,
        .opened = on_opened,
    };
    struct sp_listen_url url;
    char name[600];

    if (l->was_opened)
        return 0;
    l->was_opened = true;
    sp_host_detect(&l->rpc.host);
    sp_loop_cancel(l->o.loop, &l->timer);
    const int r = sp_own_socket_url(0, name, sizeof name, e);
    if (r < 0)
        return r;
    const int parsed = sp_listen_parse(name, &url, e);
    return parsed < 0 ? parsed : sp_listener_new(l->o.loop, &url, &o, &l->listener, e);
}

void sp_local_socket_open(struct sp_local_socket *l)
{
    struct sp_err e = {0};
    char why[640];

    if (sp_local_socket_listen(l, &e) < 0)
        sp_log(SP_LOG_WARN, "no local socket: %s", sp_error_text(&e, why, sizeof why));
}

static void on_timer(struct sp_timer *t)
{
    sp_local_socket_open(SP_CONTAINER(t, struct sp_local_socket, timer));
}

int sp_local_socket_new(const struct sp_local_socket_options *o, struct sp_local_socket **ret,
                        struct sp_err *e)
{
    struct sp_local_socket *l = calloc(1, sizeof *l);
    char path[600];

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the local socket");
    /* The directory is there before the first survey of a policy, which would be out of date. */
    (void)sp_own_socket_path("default", path, sizeof path, NULL);
    l->o = *o;
    l->door = (struct sp_rpc_door){&l->rpc, SP_DOOR_OVERSEER};
    l->rpc.env = environ;
    l->rpc.kind = o->kind;
    if (!sp_rpc_init(&l->rpc) ||
        !sp_loop_timer(o->loop, &l->timer, sp_loop_now(o->loop) + LATE_MS, on_timer)) {
        sp_local_socket_free(l);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the local socket");
    }
    *ret = l;
    return 0;
}

static void on_flushed(struct sp_timer *t)
{
    sp_loop_stop(SP_CONTAINER(t, struct sp_local_socket, timer)->o.loop);
}

void sp_local_socket_flush(struct sp_local_socket *l)
{
    if (l == NULL || sp_list_is_empty(&l->rpc.conns))
        return;
    sp_loop_cancel(l->o.loop, &l->timer);
    if (sp_loop_timer(l->o.loop, &l->timer, sp_loop_now(l->o.loop) + FLUSH_MS, on_flushed))
        (void)sp_loop_run(l->o.loop, NULL);
}

/* Connections first, since they use all the rest. */
void sp_local_socket_free(struct sp_local_socket *l)
{
    if (l == NULL)
        return;
    sp_loop_cancel(l->o.loop, &l->timer);
    sp_listener_free(l->listener);
    sp_rpc_done(&l->rpc);
    sp_front_free(l->own_front);
    free(l);
}

struct sp_rpc *sp_local_socket_rpc(struct sp_local_socket *l)
{
    return &l->rpc;
}
