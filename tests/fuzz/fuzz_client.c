/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote job whose server says anything: what is told of it has its order, and ends once. Lines
 * are the server's messages; '@' in them is the process's id, '#' the id of the newest request, and
 * a line that begins with '!' hangs up. The server greets by itself.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "engine/remote/remote.h"
#include "fuzz.h"

static struct run {
    struct sp_loop *loop;
    struct sp_backend *backend;
    struct sp_job job;
    struct sp_job_call write;
    struct sp_deferred pump;
    struct sp_timer deadline;
    int listener, fd;
    struct sp_buf in;
    const char *bytes;
    size_t left;
    unsigned connections;
    char process[128];
    long long request; /* the newest one's id */
    unsigned started, exited, ended, answers;
    bool is_asked, is_late;
} run;

/* ---- the owner ---- */

static void on_started(struct sp_job *j, enum sp_job_sandbox sandbox)
{
    (void)j;
    (void)sandbox;
    CHECK(run.started++ == 0 && run.ended == 0);
}

static void on_refused(struct sp_job *j, const struct sp_err *e)
{
    (void)j;
    CHECK(e->msg[0] != 0);
    CHECK(run.started == 0 && run.ended++ == 0);
}

static bool on_output(struct sp_job *j, enum sp_stream stream, struct sp_str bytes)
{
    (void)j;
    CHECK(stream < SP_STREAM_MAX && bytes.n != 0);
    CHECK(run.started == 1 && run.ended == 0);
    return true;
}

static void on_gap(struct sp_job *j, uint64_t bytes)
{
    (void)j;
    (void)bytes;
    CHECK(run.started == 1 && run.ended == 0);
}

static void on_exited(struct sp_job *j, const struct sp_job_exit *how)
{
    (void)j;
    CHECK(how->code >= -1 && how->code <= 255 && how->denied >= -1 && how->denied <= 1);
    CHECK(run.started == 1 && run.exited++ == 0 && run.ended == 0);
}

static void on_closed(struct sp_job *j)
{
    (void)j;
    CHECK(run.exited == 1 && run.ended++ == 0);
}

static void on_failed(struct sp_job *j, const char *why)
{
    (void)j;
    CHECK(why[0] != 0);
    CHECK(run.started == 1 && run.ended++ == 0);
}

static void on_answer(struct sp_job_call *c)
{
    (void)c;
    CHECK(run.answers++ == 0);
}

/* ---- the server ---- */

static void hang_up(void)
{
    if (run.fd >= 0)
        (void)close(TAKE_FD(run.fd));
    sp_buf_done(&run.in);
}

static void send_text(struct sp_str text)
{
    if (run.fd >= 0)
        (void)!send(run.fd, text.p, text.n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void hear_line(const char *line)
{
    const char *process = strstr(line, "\"processId\":\"");
    char text[128];

    if (sscanf(line, "{\"id\":%lld", &run.request) != 1)
        return;
    if (process != NULL)
        (void)sscanf(process, "\"processId\":\"%127[^\"]", run.process);
    if (strstr(line, "\"initialize\"") != NULL) {
        const int n = snprintf(text, sizeof text,
                               "{\"id\":%lld,\"result\":{\"sessionId\":\"s\"}}\n", run.request);

        send_text((struct sp_str){text, (size_t)n});
    }
}

static void hear(void)
{
    char block[65536];
    const ssize_t n = run.fd < 0 ? -1 : recv(run.fd, block, sizeof block, MSG_DONTWAIT);

    if (n == 0)
        hang_up();
    if (n <= 0)
        return;
    CHECK(sp_buf_add(&run.in, block, (size_t)n));
    for (char *lf; run.in.len != 0 && (lf = memchr(run.in.data, '\n', run.in.len)) != NULL;) {
        *lf = 0;
        hear_line(run.in.data);
        sp_buf_drop(&run.in, (size_t)(lf - run.in.data) + 1);
    }
}

/* One line of the input, with the names it cannot know. */
static void say_line(void)
{
    auto_buf struct sp_buf line = {0};

    if (run.bytes[0] == '!') {
        hang_up();
        run.bytes++;
        run.left--;
        return;
    }
    while (run.left != 0) {
        const char c = *run.bytes++;

        run.left--;
        if (c == '@')
            CHECK(sp_buf_add_str(&line, sp_str_of(run.process)));
        else if (c == '#')
            CHECK(sp_buf_printf(&line, "%lld", run.request));
        else
            CHECK(sp_buf_add(&line, &c, 1));
        if (c == '\n')
            break;
    }
    send_text((struct sp_str){line.data, line.len});
}

static void on_deadline(struct sp_timer *t)
{
    (void)t;
    run.is_late = true;
    sp_loop_stop(run.loop);
}

static void pump(struct sp_deferred *d)
{
    if (run.fd < 0) {
        run.fd = accept4(run.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        run.connections += run.fd >= 0;
    }
    hear();
    if (run.started != 0 && !run.is_asked && run.ended == 0) {
        run.is_asked = true;
        sp_job_write(&run.job, &run.write, SP_STR("x"));
    }
    if (run.left == 0) {
        (void)shutdown(run.listener, SHUT_RDWR); /* nobody comes back */
        if (run.fd >= 0)
            (void)shutdown(run.fd, SHUT_WR);
    } else if (run.process[0] != 0 && run.fd >= 0) {
        say_line();
    }
    if (run.ended != 0)
        sp_loop_stop(run.loop);
    else
        sp_loop_again(run.loop, d, pump);
}

static int listen_at(const struct sockaddr_un *un)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)unlink(un->sun_path);
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)un, sizeof *un) == 0 && listen(fd, 8) == 0);
    return fd;
}

static void start(const char *url)
{
    static const struct sp_job_ops ops = {on_started, on_refused, on_output, on_gap, on_exited,
                                          on_closed,  NULL,       on_failed, NULL};
    /* Only those who hang up wait for a second connection. */
    const bool hangs_up = run.left != 0 && memchr(run.bytes, '!', run.left) != NULL;
    const struct sp_client_options o = {
        .url = url, .resume_ms = hangs_up ? 150 : 1, .connect_timeout_ms = 1000};
    const struct sp_str argv[] = {SP_STR("x")};
    const struct sp_start l = {
        .label = SP_STR("f"), .cwd = SP_STR("/"), .argv = argv, .argc = 1, .wants_stdin = true};
    struct sp_err e;

    CHECK(sp_remote_new(run.loop, &o, &run.backend, &e) == 0);
    CHECK(sp_job_start(run.backend, &run.job, &ops, &l, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char url[128];
    struct sp_err e;

    if (size > 16384)
        return 0;
    auto_free char *copy = fuzz_copy(data, size);
    run = (struct run){.fd = -1, .bytes = copy, .left = size, .write.fn = on_answer};
    (void)snprintf(un.sun_path, sizeof un.sun_path, "/tmp/sp-fuzz-client-%d.sock", (int)getpid());
    (void)snprintf(url, sizeof url, "unix://%s", un.sun_path);
    CHECK(sp_loop_new(&run.loop, &e) == 0);
    run.listener = listen_at(&un);
    start(url);
    CHECK(sp_loop_timer(run.loop, &run.deadline, sp_loop_now(run.loop) + 20000, on_deadline));
    sp_loop_again(run.loop, &run.pump, pump);
    CHECK(sp_loop_run(run.loop, &e) == 0);
    CHECK(!run.is_late);
    CHECK(run.ended == 1);
    sp_job_release(&run.job);
    sp_backend_free(run.backend);
    sp_loop_cancel(run.loop, &run.deadline);
    sp_loop_free(run.loop);
    hang_up();
    (void)close(run.listener);
    (void)unlink(un.sun_path);
    return 0;
}
