/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole link over a socket pair: whatever the peer sends, in one piece or in many, is answered
 * with the same bytes, and the link closes once. The first byte: behind an upgrade or not, and how
 * large the pieces are.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "fuzz.h"
#include "server/net/frames.h"
#include "server/net/link_open.h"
#include "server/net/listen.h"

#define UPGRADE                                                       \
    "GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n" \
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

static struct run {
    struct sp_loop *loop;
    struct sp_link_host host;
    struct sp_deferred pump;
    struct sp_link *link;
    int fd;
    const char *bytes;
    size_t left, step;
    struct sp_buf got;
    unsigned opened, closed;
} run;

static char scratch[SP_INTAKE_SCRATCH + 1];

/* Echoes; a message that begins with c asks for the end. */
static void on_message(void *user, char *text, size_t len)
{
    (void)user;
    text[len] = '#';
    char *room = sp_link_reserve(run.link, len + 3);
    CHECK(room != NULL);
    memcpy(room, text, len);
    sp_link_commit(run.link, len);
    if (len != 0 && text[0] == 'c')
        sp_link_close(run.link, "asked to");
}

static void on_not_text(void *user)
{
    char text[] = "not text";

    on_message(user, text, sizeof text - 1);
}

static void on_drained(void *user)
{
    (void)user;
}

static void on_closed(void *user, const char *why)
{
    (void)user;
    CHECK(why != NULL);
    run.closed++;
}

static bool on_opened(void *user, struct sp_link *l)
{
    static const struct sp_link_ops ops = {
        .message = on_message, .not_text = on_not_text, .drained = on_drained, .closed = on_closed};

    (void)user;
    run.link = l;
    run.opened++;
    sp_link_serve(l, &ops, NULL);
    return true;
}

static bool on_request(void *user, struct sp_link *l, const struct sp_http_request *r,
                       struct sp_buf *out)
{
    struct sp_http_answer a;

    if (sp_http_gate_judge(&(struct sp_http_gate){.is_unix = true}, r, 0, &a) ==
        SP_HTTP_GATE_UPGRADE)
        return on_opened(user, l) && sp_http_gate_write_switch(out, r);
    CHECK(sp_http_write(out, &a));
    return false;
}

static void on_gone(void *user)
{
    (void)user;
    run.link = NULL;
}

static void pump(struct sp_deferred *d)
{
    char block[65536];
    ssize_t n = 0;

    if (run.left != 0) {
        const size_t part = run.left < run.step ? run.left : run.step;

        n = send(run.fd, run.bytes, part, MSG_DONTWAIT | MSG_NOSIGNAL);
        CHECK(n > 0 || errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
        if (n < 0 && errno != EAGAIN)
            run.left = 0;
        if (n > 0) {
            run.bytes += n;
            run.left -= (size_t)n;
        }
        if (run.left == 0)
            (void)shutdown(run.fd, SHUT_WR);
    }
    while ((n = recv(run.fd, block, sizeof block, MSG_DONTWAIT)) > 0)
        CHECK(sp_buf_add(&run.got, block, (size_t)n));
    if (run.host.total == 0)
        sp_loop_stop(run.loop);
    else
        sp_loop_again(run.loop, d, pump);
}

static struct sp_buf talk(const char *bytes, size_t n, size_t step)
{
    struct sp_err e;
    int pair[2];

    run = (struct run){.bytes = bytes, .left = n, .step = step};
    CHECK(sp_loop_new(&run.loop, &e) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    run.fd = pair[0];
    run.host = (struct sp_link_host){.loop = run.loop,
                                     .handshake_ms = 10000,
                                     .scratch = scratch,
                                     .request = on_request,
                                     .opened = on_opened,
                                     .gone = on_gone};
    CHECK(sp_link_new(&run.host, pair[1], SP_LINK_START_SNIFF, "peer", &e) == 0);
    sp_loop_again(run.loop, &run.pump, pump);
    CHECK(sp_loop_run(run.loop, &e) == 0);
    CHECK(run.opened == run.closed && run.opened <= 1);
    CHECK(run.host.open == 0 && run.host.first == NULL);
    sp_loop_free(run.loop);
    (void)close(run.fd);
    return run.got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_buf struct sp_buf bytes = {0};

    if (size < 2 || size > 32768)
        return 0;
    if ((data[0] & 1) != 0)
        CHECK(sp_buf_add_str(&bytes, SP_STR(UPGRADE)));
    CHECK(sp_buf_add(&bytes, data + 1, size - 1));

    auto_buf struct sp_buf whole = talk(bytes.data, bytes.len, SIZE_MAX);
    auto_buf struct sp_buf parts = talk(bytes.data, bytes.len, bytes.len / 50 + 1 + (data[0] >> 1));
    CHECK(whole.len == parts.len);
    CHECK(whole.len == 0 || memcmp(whole.data, parts.data, whole.len) == 0);
    return 0;
}
