/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_server: a server that says what a test wants, on a unix socket, in lines. It greets by
 * itself; every other request is kept, newest last, and answered by the test.
 */
#ifndef SP_FAKE_SERVER_H
#define SP_FAKE_SERVER_H

#include <errno.h>
#include <stdarg.h>
#include <sys/un.h>

#include "base/json.h"
#include "remote_fixture.h"

#define HEARD 64

struct heard {
    int64_t id;
    char method[40];
    char text[2048]; /* the whole message */
};

static struct fake {
    int listener, fd;
    struct sp_watch watch, peer;
    struct sp_buf in;
    struct heard heard[HEARD];
    unsigned count;
    unsigned accepted, greeted;
    char url[80], path[64];
    const char *info;    /* what the greeting has besides the session */
    const char *session; /* the id it gives */
    unsigned refuse_greetings;
    int refuse_code;
    bool is_mute;     /* does not greet */
    bool may_hang_up; /* the client may close its end at any time: it gives up */
} fs;

static inline void hang_up(void)
{
    if (fs.fd < 0)
        return;
    sp_loop_unwatch(fx.loop, &fs.peer);
    (void)close(TAKE_FD(fs.fd));
    sp_buf_done(&fs.in);
}

SP_PRINTF(1, 2)
static inline void say(const char *fmt, ...)
{
    auto_buf struct sp_buf b = {0};
    char text[16384];
    va_list args;

    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert_true(n > 0 && n < (int)sizeof text);
    assert_true(sp_buf_add(&b, text, (size_t)n) && sp_buf_add(&b, "\n", 1));
    const ssize_t sent = send(fs.fd, b.data, b.len, MSG_NOSIGNAL);
    /* A client that may give up has perhaps closed its end by now. */
    if (!(fs.may_hang_up && sent < 0 && (errno == EPIPE || errno == ECONNRESET)))
        assert_int_equal(sent, (ssize_t)b.len);
}

static inline void greet(int64_t id)
{
    fs.greeted++;
    if (fs.is_mute)
        return;
    if (fs.refuse_greetings != 0) {
        fs.refuse_greetings--;
        say("{\"error\":{\"code\":%d,\"message\":\"not now\"},\"id\":%lld}", fs.refuse_code,
            (long long)id);
        return;
    }
    say("{\"id\":%lld,\"result\":{\"sessionId\":\"%s\"%s}}", (long long)id, fs.session, fs.info);
}

static inline void hear_line(const char *line, size_t n)
{
    auto_free char *copy = test_copy((struct sp_str){line, n});
    struct sp_json j = {0};
    struct heard h = {.id = -1};
    struct sp_str method = {0};
    struct sp_err e;

    assert_true(n < sizeof h.text);
    memcpy(h.text, line, n);
    assert_int_equal(sp_json_parse(&j, copy, n, &e), 0);
    const uint32_t id = sp_json_get(&j, 0, "id");
    if (id != SP_JSON_NONE)
        (void)sp_json_i64(&j, id, &h.id);
    (void)sp_json_opt_str(&j, 0, "method", &method, &e);
    (void)snprintf(h.method, sizeof h.method, SP_STR_FMT, SP_STR_ARG(method));
    sp_json_done(&j);
    assert_true(fs.count < HEARD);
    fs.heard[fs.count++] = h;
    if (strcmp(h.method, "initialize") == 0)
        greet(h.id);
}

static inline void fs_readable(struct sp_watch *w, uint32_t events)
{
    char block[65536];
    const ssize_t n = recv(fs.fd, block, sizeof block, MSG_DONTWAIT);

    (void)w;
    (void)events;
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        hang_up();
        return;
    }
    assert_true(sp_buf_add(&fs.in, block, (size_t)n));
    for (const char *lf; fs.in.len != 0 && (lf = memchr(fs.in.data, '\n', fs.in.len)) != NULL;) {
        const size_t len = (size_t)(lf - fs.in.data);

        hear_line(fs.in.data, len);
        if (fs.fd < 0)
            return;
        sp_buf_drop(&fs.in, len + 1);
    }
}

static inline void fs_accept(struct sp_watch *w, uint32_t events)
{
    struct sp_err e;

    (void)w;
    (void)events;
    hang_up();
    fs.fd = accept4(fs.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fs.fd >= 0);
    fs.accepted++;
    assert_int_equal(sp_loop_watch(fx.loop, &fs.peer, fs.fd, EPOLLIN, fs_readable, &e), 0);
}

#define INFO                                                                      \
    ",\"environmentInfo\":{\"shell\":{\"name\":\"bash\",\"path\":\"/bin/bash\"}," \
    "\"cwd\":\"file:///srv\",\"capabilities\":{\"processCloseStdin\":true}}"

static inline int fs_setup(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sp_err e;

    (void)fx_setup_bare(state);
    fs = (struct fake){.fd = -1, .info = INFO, .session = "s-1", .refuse_code = -32010};
    (void)snprintf(fs.path, sizeof fs.path, "/tmp/sp-fake-%d.sock", (int)getpid());
    (void)snprintf(fs.url, sizeof fs.url, "unix://%s", fs.path);
    (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", fs.path);
    (void)unlink(fs.path);
    fs.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fs.listener, (struct sockaddr *)&un, sizeof un), 0);
    assert_int_equal(listen(fs.listener, 8), 0);
    assert_int_equal(sp_loop_watch(fx.loop, &fs.watch, fs.listener, EPOLLIN, fs_accept, &e), 0);
    connect_backend(fs.url);
    return 0;
}

static inline int fs_teardown(void **state)
{
    sp_backend_free(TAKE_PTR(fx.backend));
    hang_up();
    sp_loop_unwatch(fx.loop, &fs.watch);
    (void)close(fs.listener);
    (void)unlink(fs.path);
    return fx_teardown(state);
}

/* It reads no more. */
static inline void fs_deafen(void)
{
    sp_loop_unwatch(fx.loop, &fs.peer);
}

/* ---- what was asked ---- */

/* The newest request of this method, which must be there. */
static inline struct heard *newest(const char *method)
{
    for (unsigned i = fs.count; i > 0; i--)
        if (strcmp(fs.heard[i - 1].method, method) == 0)
            return &fs.heard[i - 1];
    fail_msg("nobody asked for %s", method);
    return fs.heard;
}

static inline unsigned times(const char *method)
{
    unsigned n = 0;

    for (unsigned i = 0; i < fs.count; i++)
        n += strcmp(fs.heard[i].method, method) == 0;
    return n;
}

struct wish {
    const char *method;
    unsigned times;
};

static inline bool is_heard(void *what)
{
    const struct wish *w = what;

    return times(w->method) >= w->times;
}

static inline struct heard *await(const char *method, unsigned n)
{
    struct wish w = {method, n};

    until(is_heard, &w);
    return newest(method);
}

/* The processId of the newest start. */
static inline const char *wire_id(void)
{
    static char id[300];
    const char *at = strstr(newest("process/start")->text, "\"processId\":\"");

    if (at == NULL || sscanf(at, "\"processId\":\"%299[^\"]", id) != 1)
        fail();
    return id;
}

static inline void say_started(void)
{
    say("{\"id\":%lld,\"result\":{\"processId\":\"%s\",\"sandboxType\":\"linuxSeccomp\"}}",
        (long long)newest("process/start")->id, wire_id());
}

/* chunk: base64 */
static inline void say_output(unsigned seq, const char *chunk)
{
    say("{\"method\":\"process/output\",\"params\":{\"processId\":\"%s\",\"seq\":%u,"
        "\"stream\":\"stdout\",\"chunk\":\"%s\"}}",
        wire_id(), seq, chunk);
}

static inline void say_exited(unsigned seq, int code, const char *rest)
{
    say("{\"method\":\"process/exited\",\"params\":{\"processId\":\"%s\",\"seq\":%u,"
        "\"exitCode\":%d%s}}",
        wire_id(), seq, code, rest);
}

static inline void say_closed(unsigned seq)
{
    say("{\"method\":\"process/closed\",\"params\":{\"processId\":\"%s\",\"seq\":%u}}", wire_id(),
        seq);
}

static inline void say_result(const struct heard *h, const char *result)
{
    say("{\"id\":%lld,\"result\":%s}", (long long)h->id, result);
}

static inline void say_error(const struct heard *h, int code, const char *text)
{
    say("{\"error\":{\"code\":%d,\"message\":\"%s\"},\"id\":%lld}", code, text, (long long)h->id);
}

/* A job whose start is answered. */
static inline void start_fake(struct told *t)
{
    struct sp_str argv[3];
    struct sp_start l = script("script", argv);

    l.wants_stdin = true;
    start(t, &l);
    (void)await("process/start", times("process/start") + 1);
    say_started();
    until(is_started, t);
}

#endif
