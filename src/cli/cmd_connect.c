/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport connect`: carries bytes between stdin, stdout and the server of this user, and reads
 * none of them: the far end of ssh, or of any program that starts commands elsewhere.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/cli.h"
#include "cli/own_stdio.h"
#include "cli/user_server.h"

#define ROOM (64U << 10) /* bytes on their way in one direction */

struct connect_options {
    const char *name;
    bool spawns;
};

static const struct sp_option options[] = {
    SP_OPT_FLAG(struct connect_options, spawns, "spawn", "start the server if none runs"),
    SP_OPT_STRING(struct connect_options, name, "name", "NAME",
                  "which server of this user (default: default)"),
    SP_OPT_END,
};

struct carrier;

/* One way: what was read and not written yet. Reads when empty, so each side waits for the other's
 * pace and neither direction for the other direction. */
struct way {
    struct carrier *carrier;
    struct sp_port from, to;
    struct sp_watch in, out;
    struct sp_deferred again; /* a file is always ready */
    size_t at, len;
    bool has_ended; /* nothing more is read */
    bool is_over;   /* ... and all is written */
    char room[ROOM];
};

struct carrier {
    struct sp_loop *loop;
    struct way up, down; /* stdin to the server, the server to stdout */
    int socket;
    int failed; /* minus a code */
    struct sp_err *e;
};

static void on_readable(struct sp_watch *w, uint32_t events);
static void on_writable(struct sp_watch *w, uint32_t events);

static void fail_way(struct way *w, int err, const char *what)
{
    struct carrier *c = w->carrier;

    /* A reader of our stdout that leaves, or a server that closes while we write, is an end. */
    if (err != EPIPE && err != ECONNRESET)
        c->failed = sp_fail(c->e, SP_E_SYSTEM, err, "%s", what);
    w->has_ended = w->is_over = true;
    if (c->failed < 0 || w == &c->down)
        sp_loop_stop(c->loop);
}

/* All is written and no more will be read: half of the socket is shut down, or we end. */
static void end_way(struct way *w)
{
    struct carrier *c = w->carrier;

    w->is_over = true;
    if (w == &c->up)
        (void)shutdown(c->socket, SHUT_WR);
    else
        sp_loop_stop(c->loop);
}

static void watch_port(struct way *w, struct sp_watch *watch, const struct sp_port *port,
                       uint32_t events, void (*fn)(struct sp_watch *, uint32_t))
{
    struct carrier *c = w->carrier;

    if (watch->fn == NULL && sp_loop_watch(c->loop, watch, port->fd, events, fn, c->e) < 0) {
        c->failed = -(int)c->e->code;
        sp_loop_stop(c->loop);
    }
}

static void stop_watch(struct way *w, struct sp_watch *watch)
{
    if (watch->fn != NULL)
        sp_loop_unwatch(w->carrier->loop, watch);
    *watch = (struct sp_watch){.fd = -1};
}

static void on_again(struct sp_deferred *d);

/* Moves bytes until one side has none, or no room. */
static void pump(struct way *w)
{
    if (w->is_over)
        return;
    if (w->len == 0 && !w->has_ended) {
        const ssize_t n = sp_port_read(&w->from, w->room, sizeof w->room);

        if (n == -EAGAIN) {
            watch_port(w, &w->in, &w->from, EPOLLIN, on_readable);
            return;
        }
        if (n < 0 && n != -ECONNRESET && n != -EIO) { /* EIO: our terminal is gone */
            fail_way(w, (int)-n, w == &w->carrier->up ? "read stdin" : "read from the server");
            return;
        }
        w->has_ended = n <= 0;
        w->at = 0;
        w->len = n <= 0 ? 0 : (size_t)n;
    }
    while (w->at < w->len) {
        const ssize_t n = sp_port_write(&w->to, w->room + w->at, w->len - w->at);

        if (n == -EAGAIN) {
            stop_watch(w, &w->in);
            watch_port(w, &w->out, &w->to, EPOLLOUT, on_writable);
            return;
        }
        if (n < 0) {
            fail_way(w, (int)-n, w == &w->carrier->up ? "write to the server" : "write to stdout");
            return;
        }
        w->at += (size_t)n;
    }
    w->len = 0;
    if (w->has_ended) {
        stop_watch(w, &w->in);
        end_way(w);
        return;
    }
    if (w->from.is_always_ready)
        sp_loop_again(w->carrier->loop, &w->again, on_again);
    else
        watch_port(w, &w->in, &w->from, EPOLLIN, on_readable);
}

static void on_again(struct sp_deferred *d)
{
    pump(SP_CONTAINER(d, struct way, again));
}

static void on_readable(struct sp_watch *watch, uint32_t events)
{
    (void)events;
    pump(SP_CONTAINER(watch, struct way, in));
}

static void on_writable(struct sp_watch *watch, uint32_t events)
{
    struct way *w = SP_CONTAINER(watch, struct way, out);

    (void)events;
    stop_watch(w, watch);
    pump(w);
}

static int carry_bytes(int socket, struct sp_err *e)
{
    static struct carrier c; /* its rooms are too large for the stack */
    /* epoll takes a number once: one for each direction. */
    auto_close int twin = fcntl(socket, F_DUPFD_CLOEXEC, 0);

    if (twin < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "carry bytes");
    c = (struct carrier){.socket = socket, .e = e};
    c.up.carrier = c.down.carrier = &c;
    int r = sp_loop_new(&c.loop, e);
    if (r < 0)
        return r;
    sp_port_open(&c.up.from, STDIN_FILENO, true);
    c.up.to = (struct sp_port){.fd = twin, .is_socket = true};
    c.down.from = (struct sp_port){.fd = socket, .is_socket = true};
    sp_port_open(&c.down.to, STDOUT_FILENO, false);
    pump(&c.down);
    pump(&c.up);
    if (!c.down.is_over && c.failed == 0)
        r = sp_loop_run(c.loop, e);
    struct way *const ways[] = {&c.up, &c.down};
    for (size_t i = 0; i < 2; i++) {
        stop_watch(ways[i], &ways[i]->in);
        stop_watch(ways[i], &ways[i]->out);
        sp_loop_undefer(c.loop, &ways[i]->again);
    }
    sp_port_close(&c.up.from);
    sp_port_close(&c.down.to);
    sp_loop_free(c.loop);
    return r < 0 ? r : c.failed;
}

static int run_connect(void *values, char **operands)
{
    const struct connect_options *o = values;
    struct sp_err e = {0};
    int fd = -1;

    (void)operands;
    sp_port_fill_gaps();
    (void)signal(SIGPIPE, SIG_IGN);
    const char *name = o->name != NULL ? o->name : SP_USER_SERVER_DEFAULT;
    int r = sp_user_server_connect(name, o->spawns, &fd, &e);
    if (r == -SP_E_NOT_FOUND) {
        (void)fprintf(stderr,
                      "sallyport: no server of this user runs%s%s; start one: sallyport "
                      "connect --spawn%s%s, or sallyport serve --listen user%s%s\n",
                      o->name != NULL ? " as " : "", o->name != NULL ? name : "",
                      o->name != NULL ? " --name " : "", o->name != NULL ? name : "",
                      o->name != NULL ? ":" : "", o->name != NULL ? name : "");
        return SP_EXIT_UNREACHABLE;
    }
    auto_close int socket = fd;
    /* What a login shell prints before this line is not from the server. */
    if (r == 0)
        r = sp_cli_print(SP_STR("\nsallyport-connect 1 " SP_VERSION "\n"), &e);
    if (r == 0 && isatty(STDIN_FILENO))
        sp_cli_warn(NULL, "connected to the server of this user, which wants the protocol; Ctrl-D "
                          "ends it");
    if (r == 0)
        r = carry_bytes(socket, &e);
    return r < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

const struct sp_cli_command sp_command_connect = {
    .name = "connect",
    .summary = "carry bytes between stdin, stdout and the server of this user",
    .usage = "sallyport connect [OPTIONS]\n"
             "\n"
             "Connects stdin and stdout to the server of this user. Writes an empty line and "
             "`sallyport-connect 1 VERSION` first.\n",
    .notes = "Exit status: 0 after the end of the connection, 123 if no server runs.\n"
             "Example: ssh host sallyport connect --spawn\n",
    .options = options,
    .values_size = sizeof(struct connect_options),
    .run = run_connect,
};
