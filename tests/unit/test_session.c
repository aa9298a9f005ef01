/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heart of the front without its edges: a server, a session, a client that only listens, and
 * real commands in a real cell (the program in SALLYPORT).
 */
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/log.h"
#include "core/ended.h"
#include "core/held.h"
#include "core/session.h"
#include "os/spawn.h"
#include "process_fixture.h"

static const char *program;
static const char *puppet;
static struct sp_loop *loop;
static struct sp_front *server;
static struct sp_front_options options;
static int fds_before;

/* ---- a kernel that does otherwise ---- */

static int send_err;         /* of each sendmsg; 0: none */
static bool is_in_disk_wait; /* no child ends */

ssize_t __real_sendmsg(int socket, const struct msghdr *h, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *h, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *h, int flags)
{
    if (send_err == 0)
        return __real_sendmsg(socket, h, flags);
    errno = send_err;
    return -1;
}

int __real_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms)
{
    return is_in_disk_wait ? 0 : __real_poll(fds, count, ms);
}

int __real_waitid(idtype_t type, id_t id, siginfo_t *ret, int flags);
int __wrap_waitid(idtype_t type, id_t id, siginfo_t *ret, int flags);
int __wrap_waitid(idtype_t type, id_t id, siginfo_t *ret, int flags)
{
    if (!is_in_disk_wait)
        return __real_waitid(type, id, ret, flags);
    assert_true((flags & WNOHANG) != 0); /* or it waits for ever */
    *ret = (siginfo_t){0};
    return 0;
}

/* ---- a client that writes down what it hears ---- */

struct listener {
    struct sp_session_client client; /* first: they are one */
    char log[8192];                  /* "seq:what " for each record */
    char output[200000];
    size_t output_len, log_len;
    uint64_t last_seq;
    unsigned challenges, gone;
    bool is_deaf; /* takes nothing */
    bool is_late; /* confirms nothing */
};

static struct listener ear, other_ear;

static struct listener *listener_of(struct sp_session_client *c)
{
    return (struct listener *)(void *)c;
}

static void write_down(struct listener *l, const char *fmt, ...) SP_PRINTF(2, 3);
static void write_down(struct listener *l, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    l->log_len += (size_t)vsnprintf(l->log + l->log_len, sizeof l->log - l->log_len, fmt, ap);
    va_end(ap);
    assert_true(l->log_len < sizeof l->log);
}

static void listen_to(struct listener *l, struct sp_proc *p)
{
    struct sp_record r;

    while (sp_proc_next(p, &p->sent, &r) > 0) {
        const uint64_t seq = r.seq;

        if (r.type == SP_RECORD_EXITED) {
            struct sp_exit how;

            memcpy(&how, r.data, sizeof how);
            write_down(l, "%d:exited%d ", (int)seq, how.code);
        } else if (r.type == SP_RECORD_CLOSED) {
            write_down(l, "%d:closed ", (int)seq);
        } else if (l->output_len + r.len <= sizeof l->output) {
            memcpy(l->output + l->output_len, r.data, r.len);
            l->output_len += r.len;
        }
        l->last_seq = seq;
    }
    if (l->is_late)
        sp_proc_sent(p);
    else
        sp_proc_served(p);
}

static void on_news(struct sp_session_client *c, struct sp_proc *p)
{
    if (!listener_of(c)->is_deaf)
        listen_to(listener_of(c), p);
}

static void on_gone(struct sp_session_client *c, struct sp_proc *p)
{
    (void)p;
    listener_of(c)->gone++;
}

static void on_challenge(struct sp_session_client *c)
{
    listener_of(c)->challenges++;
}

static void clear(struct listener *l)
{
    *l = (struct listener){.client = {.news = on_news, .gone = on_gone, .challenge = on_challenge}};
}

/* ---- the server ---- */

static void on_drained(void *user)
{
    (void)user;
}

static void make_server(void)
{
    struct sp_err e = {0};

    if (sp_front_new(loop, &options, &server, &e) < 0)
        fail_msg("%s: %s", e.msg, strerror(e.sys));
}

static int begin(void **state)
{
    (void)state;
    fds_before = open_fds();
    if (sp_loop_new(&loop, NULL) < 0)
        return -1;
    options = (struct sp_front_options){.program = program,
                                        .max_processes = 50,
                                        .session_ttl_ms = 30000,
                                        .closed_ttl_ms = 30000,
                                        .use_cgroups = true,
                                        .nofile_soft = 256,
                                        .nofile_hard = 256,
                                        .drained = on_drained};
    clear(&ear);
    clear(&other_ear);
    make_server();
    return 0;
}

static int end(void **state)
{
    (void)state;
    sp_front_free(server);
    sp_front_free(NULL);
    server = NULL;
    sp_loop_free(loop);
    assert_no_children(); /* we are a subreaper: whoever got away would be ours */
    return open_fds() == fds_before ? 0 : -1;
}

/* ---- turns of the loop until something is so ---- */

static bool (*awaited)(const void *about);
static const void *awaited_about;
static uint64_t awaited_until;
static bool was_late;

static void on_look(struct sp_timer *t)
{
    was_late = test_now_ms() >= awaited_until;
    if (was_late || awaited(awaited_about))
        sp_loop_stop(loop);
    else
        assert_true(sp_loop_timer(loop, t, sp_loop_now(loop) + 1, on_look));
}

static void until(bool (*is_so)(const void *), const void *about)
{
    struct sp_timer look = {0};

    awaited = is_so;
    awaited_about = about;
    awaited_until = test_now_ms() + DEADLINE_MS;
    assert_true(sp_loop_timer(loop, &look, 0, on_look));
    assert_int_equal(sp_loop_run(loop, NULL), 0);
    sp_loop_cancel(loop, &look);
    if (was_late)
        fail_msg("it did not happen; heard: %s", ear.log);
}

static bool is_closed(const void *p)
{
    return ((const struct sp_proc *)p)->life == SP_PROC_CLOSED;
}

static bool is_exited(const void *p)
{
    return ((const struct sp_proc *)p)->life >=
           SP_PROC_EXITED; /* known to all, not only in the log */
}

static bool has_heard_close(const void *l)
{
    return strstr(((const struct listener *)l)->log, ":closed") != NULL;
}

static bool has_heard_line(const void *l)
{
    return memchr(((const struct listener *)l)->output, '\n',
                  ((const struct listener *)l)->output_len) != NULL;
}

static bool is_dead(const void *pidfd)
{
    return wait_fd(*(const int *)pidfd, POLLIN, 0);
}

static bool is_true(const void *flag)
{
    return *(const bool *)flag;
}

static bool has_come(const void *time_ms)
{
    return test_now_ms() >= *(const uint64_t *)time_ms;
}

/* ---- starting ---- */

struct wait {
    struct sp_start_wait base;
    struct sp_proc *proc;
    struct sp_err error;
    bool is_done;
};

static void on_start_done(struct sp_start_wait *w, struct sp_proc *p, const struct sp_err *e)
{
    struct wait *x = (struct wait *)(void *)w;

    assert_false(x->is_done);
    x->is_done = true;
    x->proc = p;
    if (e != NULL)
        x->error = *e;
}

static int ask(struct sp_session *s, struct wait *w, const char *id, bool is_tty, bool wants_stdin,
               const char *const *argv, struct sp_proc **ret, struct sp_err *e)
{
    struct sp_buf env = {0};
    struct sp_str list[16];
    uint32_t argc = 0;

    for (; argv[argc] != NULL; argc++)
        list[argc] = sp_str_of(argv[argc]);
    assert_true(sp_buf_add(&env, "PATH=/bin:/usr/bin", 19));
    const struct sp_start o = {.id = sp_str_of(id),
                               .label = sp_str_of(id),
                               .is_tty = is_tty,
                               .wants_stdin = wants_stdin,
                               .cwd = SP_STR("/"),
                               .argv = list,
                               .argc = argc,
                               .env = &env,
                               .envc = 1};
    *w = (struct wait){.base = {.done = on_start_done}};
    const int r = sp_proc_start(s, &o, &w->base, ret, e);
    if (r == 0)
        (*ret)->user = w; /* stays when it has closed */
    sp_buf_done(&env);
    return r;
}

static struct sp_proc *start(struct sp_session *s, const char *id, bool is_tty, bool wants_stdin,
                             const char *const *argv)
{
    struct sp_err e = {0};
    struct sp_proc *p = NULL;
    struct wait w;

    if (ask(s, &w, id, is_tty, wants_stdin, argv, &p, &e) < 0)
        fail_msg("%s", e.msg);
    assert_ptr_equal(sp_session_find(s, sp_str_of(id)), p);
    until(is_true, &w.is_done);
    if (w.proc == NULL)
        fail_msg("%s", w.error.msg);
    assert_ptr_equal(w.proc, p);
    return p;
}

#define START(s, id, ...) start(s, id, false, false, (const char *const[]){__VA_ARGS__, NULL})
#define SH(s, id, script) START(s, id, "sh", "-c", script)
#define SH_STDIN(s, id, script) \
    start(s, id, false, true, (const char *const[]){"sh", "-c", script, NULL})

static struct sp_session *new_session(struct listener *l)
{
    struct sp_session *s = NULL;

    assert_int_equal(sp_session_new(server, &l->client, &s, NULL), 0);
    return s;
}

static int pidfd_of(pid_t pid)
{
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    assert_true(fd >= 0);
    return fd;
}

static void dies(int pidfd)
{
    until(is_dead, &pidfd);
    (void)close(pidfd);
}

/* ---- lives ---- */

static void test_a_client_hears_output_exit_and_close(void **state)
{
    (void)state;
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p = SH(s, "p", "echo hello; exit 3");
    until(is_closed, p);
    assert_memory_equal(ear.output, "hello\n", 6);
    assert_string_equal(ear.log, "2:exited3 3:closed ");
    assert_int_equal(p->state.exit.code, 3);
    assert_int_equal(sp_proc_next_seq(p), 4);
    assert_int_equal(server->stats.started, 1);
    assert_int_equal(server->stats.finished_error, 1);
    assert_int_equal(server->stats.output_bytes, 6);
    assert_int_equal(server->stats.live, 0);
    assert_false(sp_proc_terminate(p)); /* it has ended */
    sp_session_detach(s, false);
}

static void test_a_start_that_fails_says_why_and_is_gone(void **state)
{
    static const struct {
        const char *file, *text;
    } c[] = {{"no-such-program", "No such file or directory (os error 2)"},
             {"/bin", "Permission denied (os error 13)"},
             {"/bin/true/x", "Not a directory (os error 20)"}};
    struct sp_session *s = new_session(&ear);

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        const char *const argv[] = {c[i].file, NULL};
        struct sp_proc *p = NULL;
        struct wait w;

        assert_int_equal(ask(s, &w, "p", false, false, argv, &p, NULL), 0);
        assert_int_equal(s->starting, 1);
        until(is_true, &w.is_done);
        assert_null(w.proc);
        assert_string_equal(w.error.msg, c[i].text);
        assert_int_equal(s->starting, 0);
        assert_null(sp_session_find(s, SP_STR("p")));
    }
    assert_int_equal(server->stats.failed_starts, 3);
    assert_int_equal(server->stats.live, 0);
    assert_string_equal(ear.log, "");
    sp_session_detach(s, false);
}

static void test_sessions_do_not_see_each_others_processes(void **state)
{
    struct sp_session *a = new_session(&ear);
    struct sp_session *b = new_session(&other_ear);

    (void)state;
    assert_string_not_equal(a->id, b->id);
    struct sp_proc *p = SH(a, "same", "echo a");
    struct sp_proc *q = SH(b, "same", "echo b");
    assert_ptr_equal(sp_session_find(a, SP_STR("same")), p);
    assert_ptr_equal(sp_session_find(b, SP_STR("same")), q);
    assert_null(sp_session_find(a, SP_STR("sam")));
    assert_null(sp_session_find(a, SP_STR("")));
    until(is_closed, p);
    until(is_closed, q);
    assert_memory_equal(ear.output, "a\n", 2);
    assert_memory_equal(other_ear.output, "b\n", 2);
    sp_session_detach(a, false);
    sp_session_detach(b, false);
}

static void test_a_closed_process_is_forgotten_after_its_time(void **state)
{
    (void)state;
    server->options.closed_ttl_ms = 40;
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p = SH(s, "p", "exit 0");
    until(has_heard_close, &ear);
    const uint64_t closed_at = test_now_ms();
    p->user = NULL;
    sp_proc_settle(p);
    while (sp_ended_find(s, SP_STR("p"), &p, NULL) == 0 && p != NULL) {
        bool is_so = true;

        assert_true(test_now_ms() < closed_at + DEADLINE_MS);
        until(is_true, &is_so);
    }
    assert_true(test_now_ms() + 5 >= closed_at + 40);
    p = SH(s, "p", "exit 1"); /* the name is free again */
    until(is_closed, p);
    sp_session_detach(s, false);
}

/* Exited and not closed: kept as long as it takes. */
static void test_a_process_with_a_held_stream_is_kept(void **state)
{
    (void)state;
    server->options.closed_ttl_ms = 1;
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p = SH(s, "p", "sleep 1000 & echo $!; exit 5");
    until(is_exited, p);
    assert_string_equal(ear.log, "2:exited5 ");
    assert_int_equal(p->life, SP_PROC_EXITED);
    const int holder = pidfd_of(atoi(ear.output));
    sp_session_detach(s, false); /* ends what it left behind, too */
    dies(holder);
}

static void test_no_more_processes_than_allowed(void **state)
{
    struct sp_session *s;
    struct sp_err e = {0};
    struct sp_proc *p = NULL;
    struct wait w;
    char id[16];
    const char *const argv[] = {"true", NULL};

    (void)state;
    sp_front_free(server);
    options.max_processes = 3;
    make_server();
    s = new_session(&ear);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(id, sizeof id, "p%d", i);
        until(is_closed, SH(s, id, "exit 0")); /* closed ones do not count */
        (void)snprintf(id, sizeof id, "q%d", i);
        (void)SH(s, id, "sleep 1000");
    }
    assert_int_equal(ask(s, &w, "p3", false, false, argv, &p, &e), -SP_E_LIMIT);
    assert_non_null(strstr(e.msg, "3"));
    assert_null(sp_session_find(s, SP_STR("p3")));
    assert_int_equal(server->stats.live, 3);
    sp_proc_free(sp_session_find(s, SP_STR("q1")));
    until(is_closed, SH(s, "p3", "exit 0"));
    sp_session_detach(s, false);
}

static void test_large_arguments_arrive_whole(void **state)
{
    const size_t size = 100000; /* more than a datagram; the kernel takes 128 KiB at once */
    char *big = malloc(size + 1);
    struct sp_session *s = new_session(&ear);

    (void)state;
    assert_non_null(big);
    memset(big, 'x', size);
    big[size] = 0;
    struct sp_proc *p = START(s, "p", "sh", "-c", "printf %s \"$1\"", "sh", big);
    until(is_closed, p);
    assert_int_equal(ear.output_len, size);
    assert_memory_equal(ear.output, big, size);
    sp_session_detach(s, false);
    free(big);
}

static void test_a_process_forgotten_while_it_starts_is_killed(void **state)
{
    const char *const argv[] = {"sleep", "1000", NULL};
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p = NULL;
    struct wait w;

    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ask(s, &w, "p", i % 2 == 0, true, argv, &p, NULL), 0);
        sp_proc_free(p);
        assert_false(w.is_done);
        assert_int_equal(s->starting, 0);
        assert_int_equal(server->stats.live, 0);
    }
    until(is_closed, SH(s, "p", "exit 0")); /* in order behind them */
    sp_session_detach(s, false);
}

/* ---- pages ---- */

/* Chunks "a", "bb", "ccc" ... as numbers 1, 2, 3 ..., each written once the one before was read. */
static struct sp_proc *say_chunks(struct sp_session *s, int count)
{
    struct sp_proc *p = SH_STDIN(s, "p", "while read x; do printf %s $x; done; exit 6");
    char line[32];

    for (int i = 1; i <= count; i++) {
        const uint64_t seq = (uint64_t)i;
        const uint64_t deadline = test_now_ms() + DEADLINE_MS;
        char id[12];

        memset(line, 'a' + i - 1, (size_t)i);
        line[i] = '\n';
        (void)snprintf(id, sizeof id, "%d", i);
        assert_int_equal(
            sp_input_write(&p->input, sp_str_of(id), (struct sp_str){line, (size_t)i + 1}),
            SP_INPUT_ACCEPTED);
        while (p->tail.seq < seq) {
            bool is_so = true;

            assert_true(test_now_ms() < deadline);
            until(is_true, &is_so);
        }
        assert_int_equal(p->tail.seq, seq);
    }
    return p;
}

static void page_is(struct sp_proc *p, uint64_t after, uint64_t max, const char *want,
                    uint64_t next_seq)
{
    struct sp_page page = {0};
    struct sp_record r;
    char text[256] = "";
    size_t n = 0;
    uint64_t bytes = 0;

    assert_int_equal(sp_proc_page(p, after, max, &page), 0);
    struct sp_ring_cursor at = page.from;
    while (page.chunks > 0 && at.seq < page.last_seq && sp_ring_next(&p->view.ring, &at, &r) > 0) {
        if (r.type != SP_RECORD_OUTPUT)
            continue;
        memcpy(text + n, r.data, r.len);
        n += r.len;
        bytes += r.len;
        text[n++] = ' ';
        text[n] = 0;
    }
    assert_string_equal(text, want);
    assert_int_equal(page.bytes, bytes);
    assert_int_equal(page.next_seq, next_seq);
}

static void test_pages_are_cut_as_promised(void **state)
{
    const uint64_t all = UINT64_MAX;
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p = say_chunks(s, 4);

    (void)state;
    page_is(p, 0, all, "a bb ccc dddd ", 5);
    page_is(p, 2, all, "ccc dddd ", 5);
    page_is(p, 4, all, "", 5);
    page_is(p, 1000, all, "", 5); /* beyond the end */
    page_is(p, all, all, "", 5);
    page_is(p, 0, 0, "a ", 2); /* one at a time */
    page_is(p, 1, 0, "bb ", 3);
    page_is(p, 3, 0, "dddd ", 5);
    page_is(p, 4, 0, "", 5);
    page_is(p, 0, 1, "a ", 2);
    page_is(p, 0, 2, "a ", 2); /* never split, never more than asked for but the first */
    page_is(p, 0, 3, "a bb ", 3);
    page_is(p, 0, 5, "a bb ", 3);
    page_is(p, 0, 6, "a bb ccc ", 4);
    page_is(p, 0, 10, "a bb ccc dddd ", 5);
    page_is(p, 0, 11, "a bb ccc dddd ", 5);
    page_is(p, 2, 1, "ccc ", 4);             /* larger than asked for */
    page_is(p, 0, all, "a bb ccc dddd ", 5); /* and back to the beginning */
    assert_int_equal(sp_input_close(&p->input), SP_INPUT_ACCEPTED);
    until(is_closed, p);
    page_is(p, 0, all, "a bb ccc dddd ", 7); /* exited 5, closed 6 */
    page_is(p, 0, 100, "a bb ccc dddd ", 5); /* with a bound: just past the last chunk */
    page_is(p, 4, 100, "", 7);
    page_is(p, 4, all, "", 7);
    page_is(p, 5, all, "", 7);
    page_is(p, 3, 0, "dddd ", 5);
    sp_session_detach(s, false);
}

static void test_pages_skip_what_was_forgotten(void **state)
{
    struct sp_session *s = new_session(&ear);
    struct sp_page page;
    uint64_t bytes = 0;
    uint64_t after = 0;
    uint64_t first = 0;

    (void)state;
    sp_session_detach(s, true); /* nobody attached: no flow control */
    struct sp_proc *p = SH(s, "p", "head -c 3000000 /dev/zero");
    until(is_closed, p);
    assert_int_equal(p->tail.bytes, 3000000);
    for (;;) {
        assert_int_equal(sp_proc_page(p, after, 100000, &page), 0);
        if (page.chunks == 0)
            break;
        struct sp_ring_cursor at = page.from;
        struct sp_record r;
        while (at.seq < page.last_seq && sp_ring_next(&p->view.ring, &at, &r) > 0) {
            if (r.type == SP_RECORD_OUTPUT && first == 0)
                first = r.seq;
            bytes += r.type == SP_RECORD_OUTPUT ? r.len : 0;
        }
        assert_true(page.next_seq > after + 1);
        after = page.next_seq - 1;
    }
    assert_int_equal(page.next_seq, sp_proc_next_seq(p));
    assert_true(first > 1);
    assert_true(bytes <= 1048576 && bytes + 65536 > 1048576);
    assert_int_equal(bytes + p->state.dropped_bytes, 3000000);
    assert_int_equal(server->stats.dropped_bytes, p->state.dropped_bytes);
    assert_int_equal(sp_session_resume(server, sp_str_of(s->id), &ear.client, &s, NULL), 0);
    sp_session_detach(s, false);
}

/* ---- asking the cell ---- */

struct call {
    struct sp_proc_call base;
    bool is_done;
};

static void on_call_done(struct sp_waiter *w)
{
    ((struct call *)(void *)w)->is_done = true;
}

static void test_signals_and_resizes_are_answered(void **state)
{
    struct call c = {.base = {.waiter = {.fn = on_call_done}}};
    struct call d = c;
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p = start(
        s, "p", true, false,
        (const char *const[]){
            "sh", "-c",
            "trap 'stty size' WINCH; trap 'exit 9' INT; echo ready; while :; do sleep 0.01; done",
            NULL});

    (void)state;
    until(has_heard_line, &ear);
    sp_proc_resize(p, &c.base, 30, 90);
    sp_proc_signal(p, &d.base, 999);
    until(is_true, &d.is_done);
    assert_true(c.is_done); /* in order */
    assert_int_equal(c.base.err, 0);
    assert_int_equal(d.base.err, EINVAL);
    d = (struct call){.base = {.waiter = {.fn = on_call_done}}};
    sp_proc_signal(p, &d.base, SIGINT);
    until(is_true, &d.is_done);
    assert_int_equal(d.base.err, 0);
    until(is_closed, p);
    assert_int_equal(p->state.exit.code, 9);
    sp_session_detach(s, false);
}

static void test_a_terminate_ends_the_tree_and_breaks_the_input(void **state)
{
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p =
        start(s, "p", false, true, (const char *const[]){puppet, "daemons", "5", NULL});

    (void)state;
    until(has_heard_line, &ear);
    assert_true(sp_proc_terminate(p));
    assert_int_equal(sp_input_write(&p->input, SP_STR("1"), SP_STR("x")), SP_INPUT_FAILED);
    until(is_closed, p);
    assert_string_equal(ear.log, "2:exited137 3:closed ");
    assert_int_equal(server->stats.finished_terminated, 1);
    assert_int_equal(sp_input_write(&p->input, SP_STR("1"), SP_STR("x")), SP_INPUT_FAILED);
    assert_false(sp_proc_terminate(p));
    sp_session_detach(s, false);
}

static void test_a_deaf_client_stops_its_process_and_loses_nothing(void **state)
{
    struct sp_session *s = new_session(&ear);

    (void)state;
    ear.is_deaf = true;
    struct sp_proc *p = SH(s, "p", "head -c 2000000 /dev/zero");
    while (!sp_ring_is_paused(&p->view.ring)) {
        bool is_so = true;

        until(is_true, &is_so);
    }
    assert_int_equal(p->life, SP_PROC_RUNNING);
    ear.is_deaf = false;
    listen_to(&ear, p);
    until(is_closed, p);
    until(has_heard_close, &ear);
    assert_int_equal(p->sent.missed_bytes, 0);
    assert_int_equal(p->sent.bytes, 2000000);
    sp_session_detach(s, false);
}

/* ---- attach, detach, resume ---- */

static bool is_paused(const void *p)
{
    return sp_ring_is_paused(&((const struct sp_proc *)p)->view.ring);
}

/* As a front finds it that has taken over: attached, and not resumed. */
static struct sp_proc *hold_flood(struct sp_session **ret)
{
    struct sp_session *s = new_session(&ear);

    ear.is_deaf = true;
    struct sp_proc *p = SH(s, "p", "head -c 3000000 /dev/zero; exit 5");
    until(is_paused, p);
    s->client = NULL;
    sp_session_hold(s);
    sp_proc_hold(p);
    sp_held_begin(server);
    assert_true(p->is_held);
    until(is_paused, p);
    assert_int_equal(p->confirmed_pos, 0);
    *ret = s;
    return p;
}

static void test_a_held_process_keeps_what_was_not_read(void **state)
{
    struct sp_session *s;
    struct sp_session *again = NULL;
    struct sp_proc *p = hold_flood(&s);
    struct sp_page page;

    (void)state;
    other_ear.is_late = true;
    assert_int_equal(sp_session_resume(server, sp_str_of(s->id), &other_ear.client, &again, NULL),
                     0);
    until(is_paused, p); /* the resume alone confirms nothing */
    assert_true(p->is_held);
    assert_int_equal(p->confirmed_pos, 0);
    assert_int_equal(sp_proc_page(p, 0, 100, &page), 0);
    assert_int_equal(page.last_seq, 1);
    sp_held_asked(p, &page.after);
    sp_held_read(p, page.end.seq, page.end.pos); /* the first page of some */
    assert_true(p->is_held);
    assert_int_equal(sp_proc_page(p, 1, UINT64_MAX, &page), 0);
    assert_true(page.next_seq > 2);
    sp_held_asked(p, &page.after);
    sp_held_read(p, page.end.seq, page.end.pos);
    assert_false(p->is_held || s->is_held);
    assert_int_equal(p->confirmed_seq, page.next_seq - 1);
    other_ear.is_late = false;
    until(is_closed, p);
    assert_int_equal(p->sent.missed_records, 0);
    assert_int_equal(other_ear.last_seq, p->tail.seq);
    assert_int_equal(sp_proc_page(p, p->tail.seq, UINT64_MAX, &page), 0);
    assert_int_equal(page.end.seq, p->tail.seq); /* a page without chunks goes up to the end, too */
    sp_session_detach(s, false);
}

static void test_a_held_process_is_let_go_in_time(void **state)
{
    struct sp_session *s;
    struct sp_session *again = NULL;
    struct sp_proc *p = hold_flood(&s);

    (void)state;
    assert_true(s->hold.due_ms > sp_loop_now(loop) + SP_HELD_MS / 2);
    assert_true(sp_loop_timer(loop, &s->hold, 0, s->hold.fn));
    until(is_closed, p); /* detached: the oldest output is forgotten */
    assert_false(p->is_held || s->is_held);
    assert_true(p->state.dropped_bytes > 0);
    sp_session_detach(s, false);

    /* Resumed, and nothing is read. */
    clear(&ear);
    p = hold_flood(&s);
    assert_int_equal(sp_session_resume(server, sp_str_of(s->id), &other_ear.client, &again, NULL),
                     0);
    const uint64_t held_end = p->held.end_seq;
    assert_true(sp_loop_timer(loop, &s->hold, 0, s->hold.fn));
    until(is_closed, p);
    assert_true(p->confirmed_seq >= held_end && !s->is_held);
    sp_session_detach(s, false);
}

static void test_a_session_outlives_its_connection(void **state)
{
    struct sp_session *s = new_session(&ear);
    struct sp_session *again = NULL;
    struct sp_err e = {0};
    char id[SP_SESSION_ID + 1];

    (void)state;
    strcpy(id, s->id);
    struct sp_proc *p = SH_STDIN(s, "p", "echo one; read x; echo two; read x; echo three");
    until(has_heard_line, &ear);
    assert_int_equal(sp_session_resume(server, sp_str_of(id), &other_ear.client, &again, &e),
                     -SP_E_ATTACHED);
    assert_int_equal(ear.challenges, 1); /* are you still there? */
    sp_session_detach(s, true);
    const size_t heard = ear.output_len;
    assert_int_equal(sp_input_write(&p->input, SP_STR("1"), SP_STR("\n")), SP_INPUT_ACCEPTED);
    const uint64_t deadline = test_now_ms() + DEADLINE_MS;
    while (p->tail.seq < 2) {
        bool is_so = true;

        assert_true(test_now_ms() < deadline);
        until(is_true, &is_so);
    }
    assert_int_equal(ear.output_len, heard); /* nobody was told */
    assert_int_equal(sp_session_resume(server, SP_STR("unknown"), &other_ear.client, &again, &e),
                     -SP_E_STATE);
    assert_string_equal(e.msg, "unknown session id unknown");
    assert_int_equal(sp_session_resume(server, sp_str_of(id), &other_ear.client, &again, &e), 0);
    assert_ptr_equal(again, s);
    page_is(p, 1, UINT64_MAX, "two\n ", 3); /* what was missed is there to be read */
    assert_int_equal(sp_input_write(&p->input, SP_STR("2"), SP_STR("\n")), SP_INPUT_ACCEPTED);
    until(is_closed, p);
    assert_memory_equal(other_ear.output, "three\n", 6); /* the push starts at the end of then */
    assert_string_equal(other_ear.log, "4:exited0 5:closed ");
    assert_int_equal(ear.output_len, heard);
    sp_session_detach(s, false);
}

static bool has_no_session(const void *about)
{
    (void)about;
    return server->session_count == 0;
}

static void test_a_detached_session_ends_after_its_time(void **state)
{
    (void)state;
    server->options.session_ttl_ms = 50;
    struct sp_session *s = new_session(&ear);
    struct sp_session *again = NULL;
    char id[SP_SESSION_ID + 1];

    strcpy(id, s->id);
    struct sp_proc *p = START(s, "p", puppet, "daemons", "3");
    until(has_heard_line, &ear);
    const int leader = pidfd_of(p->pid);
    const uint64_t before = test_now_ms();
    sp_session_detach(s, true);
    assert_int_equal(server->session_count, 1);
    until(has_no_session, NULL);
    assert_true(test_now_ms() + 5 >= before + 50);
    dies(leader);
    assert_int_equal(sp_session_resume(server, sp_str_of(id), &ear.client, &again, NULL),
                     -SP_E_STATE);
    assert_int_equal(server->stats.live, 0);
}

static void test_a_resumed_session_does_not_expire(void **state)
{
    (void)state;
    server->options.session_ttl_ms = 30;
    struct sp_session *s = new_session(&ear);
    struct sp_session *again = NULL;
    sp_session_detach(s, true);
    assert_int_equal(sp_session_resume(server, sp_str_of(s->id), &ear.client, &again, NULL), 0);
    const uint64_t later = test_now_ms() + 60;
    until(has_come, &later);
    assert_int_equal(server->session_count, 1);
    sp_session_detach(again, false);
    assert_int_equal(server->session_count, 0);
}

static void test_what_ran_detached_is_all_there_after_the_resume(void **state)
{
    struct sp_session *s = new_session(&ear);
    struct sp_session *again = NULL;

    (void)state;
    struct sp_proc *p = SH_STDIN(s, "p", "read x; echo done; exit 8");
    sp_session_detach(s, true);
    assert_int_equal(sp_input_write(&p->input, SP_STR("1"), SP_STR("\n")), SP_INPUT_ACCEPTED);
    until(is_closed, p);
    assert_int_equal(sp_session_resume(server, sp_str_of(s->id), &ear.client, &again, NULL), 0);
    page_is(p, 0, UINT64_MAX, "done\n ", 4);
    assert_int_equal(p->state.exit.code, 8);
    assert_string_equal(ear.log, ""); /* never replayed */
    sp_session_detach(again, false);
}

/* ---- a cell that dies ---- */

static void test_a_lost_cell_ends_its_processes_and_the_next_start_works(void **state)
{
    struct call c = {.base = {.waiter = {.fn = on_call_done}}};
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p = START(s, "p", puppet, "daemons", "3");
    const char *const argv[] = {"sleep", "1000", NULL};
    struct sp_proc *starting = NULL;
    struct wait w;

    (void)state;
    until(has_heard_line, &ear);
    const int leader = pidfd_of(p->pid);
    const pid_t first = server->open[0].cell->self.pid;
    assert_int_equal(kill(first, SIGSTOP), 0); /* it answers nothing more */
    assert_int_equal(ask(s, &w, "late", false, false, argv, &starting, NULL), 0);
    sp_proc_signal(p, &c.base, SIGINT);
    assert_int_equal(kill(first, SIGKILL), 0);
    until(is_closed, p);
    assert_string_equal(ear.log, "2:exited-1 3:closed ");
    assert_int_equal(p->state.exit.code, -1);
    assert_int_equal(server->stats.finished_lost, 1);
    until(is_true, &c.is_done);
    assert_int_equal(c.base.err, EIO);
    until(is_true, &w.is_done); /* who was starting hears that it failed */
    assert_null(w.proc);
    assert_null(sp_session_find(s, SP_STR("late")));
    dies(leader);
    page_is(p, 0, UINT64_MAX, "ready\n ", 4); /* its log can still be read */
    assert_int_equal(sp_input_write(&p->input, SP_STR("1"), SP_STR("x")), SP_INPUT_CLOSED);

    clear(&ear);
    struct sp_proc *q = SH(s, "q", "echo again; exit 2");
    assert_int_not_equal(server->open[0].cell->self.pid, first);
    until(is_closed, q);
    assert_memory_equal(ear.output, "again\n", 6);
    assert_string_equal(ear.log, "2:exited2 3:closed ");
    assert_false(sp_proc_terminate(p));
    assert_int_equal(server->stats.live, 0);
    sp_session_detach(s, false);
}

/* A queued message cannot be sent: without it, front and cell would disagree. */
static void test_a_cell_that_cannot_be_sent_a_message_is_lost(void **state)
{
    struct call c = {.base = {.waiter = {.fn = on_call_done}}};
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p = SH(s, "p", "exec sleep 1000");
    const pid_t first = server->open[0].cell->self.pid;
    const int leader = pidfd_of(p->pid);

    (void)state;
    send_err = EAGAIN;
    sp_proc_signal(p, &c.base, SIGUSR1);
    send_err = EPERM;
    until(is_true, &c.is_done);
    assert_int_equal(c.base.err, EIO);
    until(is_closed, p);
    assert_int_equal(p->state.exit.code, -1);
    send_err = 0;
    dies(leader);
    until(is_closed, SH(s, "q", "exit 2"));
    assert_int_not_equal(server->open[0].cell->self.pid, first);
    sp_session_detach(s, false);
}

static void test_a_cell_in_a_disk_wait_does_not_hold_up_the_end(void **state)
{
    struct sp_session *s = new_session(&ear);

    (void)state;
    until(is_closed, SH(s, "p", "true"));
    const int cell = pidfd_of(server->open[0].cell->self.pid);
    sp_session_detach(s, false);
    const uint64_t began = test_now_ms();
    is_in_disk_wait = true;
    sp_front_free(server);
    is_in_disk_wait = false;
    server = NULL;
    assert_true(test_now_ms() - began < DEADLINE_MS / 2);
    assert_true(wait_fd(cell, POLLIN, DEADLINE_MS)); /* it has been killed */
    (void)close(cell);
    assert_true(bury_children(DEADLINE_MS));
}

static void test_a_process_that_had_ended_keeps_its_exit_when_its_cell_is_lost(void **state)
{
    struct sp_session *s = new_session(&ear);
    struct sp_proc *closed = SH(s, "c", "exit 4");

    (void)state;
    until(is_closed, closed);
    struct sp_proc *held = SH(s, "h", "sleep 1000 & exit 5");
    until(is_exited, held);
    clear(&ear);
    assert_int_equal(kill(server->open[0].cell->self.pid, SIGKILL), 0);
    until(is_closed, held);
    assert_int_equal(held->state.exit.code, 5); /* as the kernel said */
    assert_string_equal(ear.log, "2:closed ");  /* only the close is made up */
    assert_int_equal(closed->state.exit.code, 4);
    assert_int_equal(sp_proc_next_seq(closed), 3);
    sp_session_detach(s, false);
}

static void test_a_session_may_end_after_its_cell(void **state)
{
    struct sp_session *s = new_session(&ear);
    struct sp_proc *p = START(s, "p", "sleep", "1000");

    (void)state;
    assert_int_equal(kill(server->open[0].cell->self.pid, SIGKILL), 0);
    until(is_closed, p);
    sp_session_detach(s, true);
    sp_front_free(server); /* with a lost cell and a detached session */
    make_server();
}

/* ---- the end ---- */

static void test_the_end_of_the_server_ends_everything(void **state)
{
    struct sp_session *s = new_session(&ear);
    struct sp_session *t = new_session(&other_ear);

    (void)state;
    (void)START(s, "a", puppet, "daemons", "5");
    (void)start(s, "b", true, true, (const char *const[]){puppet, "daemons", "5", NULL});
    struct sp_proc *c = SH(t, "c", "setsid sleep 1000 & exit 0");
    until(is_exited, c);
    until(has_heard_line, &ear);
    sp_session_detach(s, true);
    sp_session_detach(t, true);
    sp_front_free(server);
    server = NULL;
    assert_no_children();
}

static void test_a_program_that_is_no_cell_is_an_error(void **state)
{
    struct sp_loop *other = NULL;
    struct sp_front *none = NULL;
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_loop_new(&other, &e), 0);
    options.program = "/nowhere/sallyport";
    assert_int_equal(sp_front_new(other, &options, &none, &e), -SP_E_SYSTEM);
    assert_int_equal(e.sys, ENOENT);
    assert_string_not_equal(e.msg, "");
    assert_null(none);
    sp_loop_free(other);
}

static void test_a_loop_has_one_front(void **state)
{
    struct sp_front *none = NULL;
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_front_new(loop, &options, &none, &e), -SP_E_STATE);
    assert_null(none);
}

#define session_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

static const struct CMUnitTest tests[] = {
    session_test(test_a_client_hears_output_exit_and_close),
    session_test(test_a_start_that_fails_says_why_and_is_gone),
    session_test(test_sessions_do_not_see_each_others_processes),
    session_test(test_a_closed_process_is_forgotten_after_its_time),
    session_test(test_a_process_with_a_held_stream_is_kept),
    session_test(test_no_more_processes_than_allowed),
    session_test(test_large_arguments_arrive_whole),
    session_test(test_a_process_forgotten_while_it_starts_is_killed),
    session_test(test_pages_are_cut_as_promised),
    session_test(test_pages_skip_what_was_forgotten),
    session_test(test_signals_and_resizes_are_answered),
    session_test(test_a_terminate_ends_the_tree_and_breaks_the_input),
    session_test(test_a_deaf_client_stops_its_process_and_loses_nothing),
    session_test(test_a_held_process_keeps_what_was_not_read),
    session_test(test_a_held_process_is_let_go_in_time),
    session_test(test_a_session_outlives_its_connection),
    session_test(test_a_detached_session_ends_after_its_time),
    session_test(test_a_resumed_session_does_not_expire),
    session_test(test_what_ran_detached_is_all_there_after_the_resume),
    session_test(test_a_lost_cell_ends_its_processes_and_the_next_start_works),
    session_test(test_a_cell_that_cannot_be_sent_a_message_is_lost),
    session_test(test_a_cell_in_a_disk_wait_does_not_hold_up_the_end),
    session_test(test_a_process_that_had_ended_keeps_its_exit_when_its_cell_is_lost),
    session_test(test_a_session_may_end_after_its_cell),
    session_test(test_the_end_of_the_server_ends_everything),
    session_test(test_a_program_that_is_no_cell_is_an_error),
    session_test(test_a_loop_has_one_front),
};

int main(void)
{
    struct sp_err e = {0};

    program = getenv("SALLYPORT");
    puppet = getenv("PUPPET");
    if (program == NULL || puppet == NULL || sp_spawn_reserve(&e) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return 77;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sp_log_set_level("error");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
