/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real cell in a process of its own, spoken to as a front does. Every test runs twice: with
 * cgroups (where the host has them) and without. We are a subreaper: whoever outlives its cell
 * becomes our child, and is found.
 */
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "bell_fixture.h"
#include "cell/bell.h"
#include "cell/cell.h"
#include "cell/cell_files.h"
#include "cell/ring.h"
#include "cell/wire.h"
#include "os/cgroup.h"
#include "os/spawn.h"
#include "process_fixture.h"

#define SLOTS 16

static const char *puppet;
static pid_t cell_pid;
static int control;
static struct sp_bell bell;
static struct sp_segment *segment; /* ours of the cell's only one */
static struct sp_wire_message message;
static uint64_t next_number;
static int fds_before;
static bool with_cgroups[2] = {false, true};

static int *short_watches; /* so many EPOLL_CTL_ADD answer ENOMEM; shared with the cell */

int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    if (op != EPOLL_CTL_ADD || __atomic_load_n(short_watches, __ATOMIC_ACQUIRE) == 0)
        return __real_epoll_ctl(epoll, op, fd, event);
    __atomic_sub_fetch(short_watches, 1, __ATOMIC_ACQ_REL);
    errno = ENOMEM;
    return -1;
}

#define S(text) ((char *)(uintptr_t)(text))

/* ---- the cell ---- */

static void fork_cell(void)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    cell_pid = fork();
    assert_true(cell_pid >= 0);
    if (cell_pid == 0) {
        sigset_t some;
        struct sp_err e = {0};

        (void)close(pair[0]);
        /* What the cell was started with is not what its commands get. */
        (void)signal(SIGPIPE, SIG_IGN);
        (void)signal(SIGUSR2, SIG_IGN);
        sigemptyset(&some);
        sigaddset(&some, SIGUSR1);
        sigprocmask(SIG_BLOCK, &some, NULL);
        _exit(sp_cell_run(pair[1], &e) == 0 ? 0 : 1);
    }
    (void)close(pair[1]);
    control = pair[0];
}

static void greet(bool use_cgroups)
{
    struct sp_wire_hello hello = {
        .head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_HELLO},
        .slots = SLOTS,
        .nofile_soft = 123,
        .nofile_hard = 456,
    };
    const int fds[2] = {bell.page_fd, bell.wake[SP_SIDE_CELL]};

    if (use_cgroups)
        assert_true(sp_cgroup_name(hello.cgroup));
    assert_int_equal(sp_wire_send(control, true, &hello, sizeof hello, NULL, 0, fds, 2), 0);
    (void)close(bell.wake[SP_SIDE_CELL]);
    bell.wake[SP_SIDE_CELL] = -1;
}

/* Gives the cell the memory of its rings, or takes it back. */
static void send_segment(uint32_t index, int fd)
{
    const struct sp_wire_call m = {
        .head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_SEGMENT}, .a = (int)index, .b = fd >= 0};

    assert_int_equal(sp_wire_send(control, true, &m, sizeof m, NULL, 0, &fd, fd >= 0), 0);
}

static void give_rings(void)
{
    assert_int_equal(sp_segment_new(SLOTS, &segment, NULL), 0);
    send_segment(0, segment->fd);
    (void)close(TAKE_FD(segment->fd));
}

static int begin(void **state)
{
    fds_before = open_fds();
    next_number = 0;
    if (sp_bell_new(SLOTS, &bell, NULL) < 0)
        return -1;
    fork_cell();
    greet(**(bool **)state);
    give_rings();
    return 0;
}

/* The front goes: the cell ends, and all it holds. */
static void hang_up(void)
{
    if (control < 0)
        return;
    (void)close(control);
    control = -1;
    const int status = reap(cell_pid, DEADLINE_MS);
    const bool is_buried = bury_children(2000);
    assert_int_equal(status, 0);
    if (!is_buried)
        fail_msg("%s", "somebody outlived the cell");
}

static int end(void **state)
{
    (void)state;
    hang_up();
    sp_bell_free(&bell);
    sp_segment_drop(TAKE_PTR(segment));
    return open_fds() == fds_before ? 0 : -1;
}

/* ---- a process in it ---- */

struct proc {
    struct sp_wire_head head;
    struct sp_wire_started started;
    struct sp_ring_view view;
    struct sp_ring_cursor at;
    int input;          /* -1: none */
    char out[3][65536]; /* by stream */
    size_t len[3];
    uint64_t exit_seq, closed_seq;
    struct sp_exit exit;
};

static struct proc p1, p2;

static size_t lay(char *text, const char *const *strings)
{
    size_t n = 0;

    for (; *strings != NULL; strings++) {
        strcpy(text + n, *strings);
        n += strlen(*strings) + 1;
    }
    return n;
}

static void hear_started(struct proc *p)
{
    assert_true(wait_fd(control, POLLIN, DEADLINE_MS));
    assert_int_equal(sp_wire_recv(control, false, &message, NULL), 1);
    assert_true(message.len == sizeof p->started);
    memcpy(&p->started, message.bytes, sizeof p->started);
    assert_int_equal(p->started.head.op, SP_WIRE_STARTED);
    assert_int_equal(p->started.head.number, p->head.number);
    assert_int_equal(p->started.head.slot, p->head.slot);
    p->input = -1;
    if (p->started.step != SP_STEP_NONE) {
        assert_int_equal(message.fd_count, 0);
        return;
    }
    assert_int_equal(message.fd_count, p->started.has_input != 0);
    assert_int_equal(sp_ring_view_open(segment, p->head.slot, p->head.number, &p->view, NULL), 0);
    if (message.fd_count == 1)
        p->input = message.fds[0];
    message.fd_count = 0;
}

/* Sends a START as it is given, and hears the answer. */
static void ask(struct proc *p, struct sp_wire_start *m, const char *strings, size_t len, int fd)
{
    sp_ring_view_close(&p->view);
    memset(p, 0, sizeof *p);
    p->head = m->head;
    assert_int_equal(sp_wire_send(control, true, m, sizeof *m, strings, len, &fd, fd >= 0), 0);
    hear_started(p);
}

static struct sp_wire_start a_start(uint32_t slot, uint64_t session, uint32_t flags)
{
    return (struct sp_wire_start){
        .head = {.version = SP_WIRE_VERSION,
                 .op = SP_WIRE_START,
                 .slot = slot,
                 .number = ++next_number},
        .session = session,
        .flags = flags,
        .rows = 50,
        .cols = 132,
    };
}

/* argv: the program's file and its arguments. */
static void start_in(struct proc *p, uint32_t slot, uint64_t session, uint32_t flags,
                     const char *cwd, const char *const *argv)
{
    struct sp_wire_start m = a_start(slot, session, flags);
    const char *all[24] = {cwd, argv[0]};
    char text[4096];
    int n = 2;

    for (; argv[m.argc] != NULL; m.argc++)
        all[n++] = argv[m.argc];
    all[n++] = "PATH=/bin:/usr/bin";
    all[n] = NULL;
    m.envc = 1;
    const size_t len = lay(text, all);
    m.string_bytes = (uint32_t)len;
    ask(p, &m, text, len, -1);
}

#define START(p, slot, session, flags, ...) \
    start_in(p, slot, session, flags, "/", (const char *const[]){__VA_ARGS__, NULL})
#define SH(p, slot, session, flags, script) START(p, slot, session, flags, "sh", "-c", script)

static void runs(const struct proc *p)
{
    if (p->started.step != SP_STEP_NONE)
        fail_msg("%s: %s", sp_step_name((enum sp_step)p->started.step), strerror(p->started.err));
}

static void refused(const struct proc *p, enum sp_step step, int err)
{
    if (p->started.step != step || p->started.err != err)
        fail_msg("%s: %s", sp_step_name((enum sp_step)p->started.step),
                 strerrorname_np(p->started.err));
}

/* Takes what is in its log now. */
static void catch_up(struct proc *p)
{
    struct sp_record r;
    int more;

    while ((more = sp_ring_next(&p->view, &p->at, &r)) > 0) {
        assert_int_equal(p->closed_seq, 0); /* closed is the last */
        if (r.type == SP_RECORD_EXITED) {
            assert_int_equal(p->exit_seq, 0);
            p->exit_seq = r.seq;
            memcpy(&p->exit, r.data, sizeof p->exit);
        } else if (r.type == SP_RECORD_CLOSED) {
            p->closed_seq = r.seq;
        } else {
            const size_t room = sizeof p->out[0] - 1 - p->len[r.stream];
            const size_t n = r.len < room ? r.len : room;

            memcpy(p->out[r.stream] + p->len[r.stream], r.data, n);
            p->len[r.stream] += n;
        }
    }
    assert_int_equal(more, 0);
}

static void ignore_slot(void *user, uint32_t slot)
{
    (void)user;
    (void)slot;
}

/* Sleeps until the cell rings. */
static bool doze(int ms)
{
    bool is_rung = true;

    if (sp_bell_may_sleep(&bell)) {
        is_rung = wait_fd(bell.wake[SP_SIDE_FRONT], POLLIN, ms);
        sp_bell_drain(&bell);
    }
    sp_bell_awake(&bell);
    (void)sp_bell_answer(&bell, ignore_slot, NULL);
    return is_rung;
}

static bool has_exited(const struct proc *p)
{
    return p->exit_seq != 0;
}

static bool has_closed(const struct proc *p)
{
    return p->closed_seq != 0;
}

static bool has_line(const struct proc *p)
{
    return memchr(p->out[SP_STREAM_STDOUT], '\n', p->len[SP_STREAM_STDOUT]) != NULL ||
           memchr(p->out[SP_STREAM_PTY], '\n', p->len[SP_STREAM_PTY]) != NULL;
}

static void until(struct proc *p, bool (*is_so)(const struct proc *))
{
    for (catch_up(p); !is_so(p); catch_up(p))
        if (!doze(DEADLINE_MS))
            fail_msg("no news: seq %llu, exit %llu, closed %llu", (unsigned long long)p->at.seq,
                     (unsigned long long)p->exit_seq, (unsigned long long)p->closed_seq);
}

static void call(const struct proc *p, enum sp_wire_op op, uint64_t token, int a, int b)
{
    const struct sp_wire_call m = {
        .head = {SP_WIRE_VERSION, (uint16_t)op, p->head.slot, p->head.number},
        .token = token,
        .a = a,
        .b = b};

    assert_int_equal(sp_wire_send(control, true, &m, sizeof m, NULL, 0, NULL, 0), 0);
}

static int answer_to(uint64_t token)
{
    const struct sp_wire_done *done = (const void *)message.bytes;

    assert_true(wait_fd(control, POLLIN, DEADLINE_MS));
    assert_int_equal(sp_wire_recv(control, false, &message, NULL), 1);
    assert_int_equal(done->head.op, SP_WIRE_DONE);
    assert_int_equal(done->token, token);
    return done->err;
}

static void end_session(uint64_t session)
{
    const struct proc about = {.head = {.number = session}};

    call(&about, SP_WIRE_END_SESSION, 0, 0, 0);
}

static void forget(struct proc *p)
{
    call(p, SP_WIRE_FORGET, 0, 0, 0);
    if (p->input >= 0)
        (void)close(p->input);
    p->input = -1;
    sp_ring_view_close(&p->view);
}

static void ends_with(struct proc *p, int code)
{
    until(p, has_closed);
    assert_int_equal(p->exit.code, code);
    assert_int_equal(p->closed_seq, p->at.seq);
    assert_int_equal(p->at.missed_records, 0);
}

/* The pid that the process wrote on its first line, as something that can be waited for. */
static int pidfd_of_line(struct proc *p)
{
    until(p, has_line);
    const int fd =
        (int)syscall(SYS_pidfd_open, atoi(p->out[p->len[SP_STREAM_STDOUT] != 0 ? 0 : 2]), 0);

    assert_true(fd >= 0);
    return fd;
}

static void is_killed(int pidfd)
{
    assert_true(wait_fd(pidfd, POLLIN, DEADLINE_MS));
    (void)close(pidfd);
}

/* ---- lives ---- */

static void test_output_exit_and_close_are_told_in_order(void **state)
{
    (void)state;
    SH(&p1, 0, 1, 0, "echo out; echo err >&2; exit 3");
    runs(&p1);
    assert_int_equal(p1.input, -1);
    ends_with(&p1, 3);
    assert_string_equal(p1.out[SP_STREAM_STDOUT], "out\n");
    assert_string_equal(p1.out[SP_STREAM_STDERR], "err\n");
    assert_int_equal(p1.len[SP_STREAM_PTY], 0);
    assert_int_equal(p1.exit_seq, p1.closed_seq - 1); /* read first, then told of the exit */
    assert_int_equal(p1.exit.signal, 0);
    assert_true(p1.exit.max_rss_kb > 0);
    forget(&p1);
}

static void test_a_silent_process_is_two_records(void **state)
{
    (void)state;
    START(&p1, 5, 1, 0, "/bin/false");
    runs(&p1);
    ends_with(&p1, 1);
    assert_int_equal(p1.exit_seq, 1);
    assert_int_equal(p1.closed_seq, 2);
    forget(&p1);
}

static void test_stdin_is_nothing_unless_asked_for(void **state)
{
    (void)state;
    START(&p1, 0, 1, 0, "cat");
    runs(&p1);
    assert_int_equal(p1.started.has_input, 0);
    ends_with(&p1, 0);
    START(&p2, 1, 1, SP_START_STDIN, "cat");
    runs(&p2);
    assert_true(p2.input >= 0);
    assert_int_equal(fcntl(p2.input, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    assert_int_equal(write(p2.input, "to cat\n", 7), 7);
    until(&p2, has_line);
    assert_string_equal(p2.out[SP_STREAM_STDOUT], "to cat\n");
    (void)close(p2.input); /* the cell keeps no copy */
    p2.input = -1;
    ends_with(&p2, 0);
    forget(&p1);
    forget(&p2);
}

static void test_a_terminal_is_one_stream_of_the_asked_size(void **state)
{
    (void)state;
    START(&p1, 0, 1, SP_START_TTY, puppet, "report");
    runs(&p1);
    assert_true(p1.input >= 0);
    ends_with(&p1, 0);
    assert_non_null(strstr(p1.out[SP_STREAM_PTY], "tty=111\r\n"));
    assert_non_null(strstr(p1.out[SP_STREAM_PTY], "size=50x132\r\n"));
    assert_int_equal(p1.len[SP_STREAM_STDOUT] + p1.len[SP_STREAM_STDERR], 0);
    forget(&p1);
}

static void test_a_terminal_can_be_written_to_and_resized(void **state)
{
    (void)state;
    SH(&p1, 0, 1, SP_START_TTY, "stty -echo; echo go; read x; stty size; echo got $x");
    runs(&p1);
    until(&p1, has_line);
    call(&p1, SP_WIRE_RESIZE, 9, 33, 44);
    assert_int_equal(answer_to(9), 0);
    assert_int_equal(write(p1.input, "word\n", 5), 5);
    ends_with(&p1, 0);
    assert_non_null(strstr(p1.out[SP_STREAM_PTY], "33 44\r\ngot word\r\n"));
    call(&p1, SP_WIRE_RESIZE, 10, 1, 1); /* ended: fine */
    assert_int_equal(answer_to(10), 0);
    forget(&p1);
}

static void test_commands_are_born_as_promised(void **state)
{
    char want[64];

    (void)state;
    start_in(&p1, 3, 1, 0, "/usr", (const char *const[]){puppet, "report", NULL});
    runs(&p1);
    ends_with(&p1, 0);
    const char *said = p1.out[SP_STREAM_STDOUT];
    (void)snprintf(want, sizeof want, "pid=%d\n", (int)p1.started.pid);
    assert_non_null(strstr(said, want));
    (void)snprintf(want, sizeof want, "ppid=%d\n", (int)cell_pid);
    assert_non_null(strstr(said, want));
    (void)snprintf(want, sizeof want, "sid=%d\n", (int)p1.started.pid);
    assert_non_null(strstr(said, want));
    assert_non_null(strstr(said, "cwd=/usr\n"));
    assert_non_null(strstr(said, "fds=0,1,2,\n"));
    assert_non_null(strstr(said, "nofile=123,456\n"));
    assert_non_null(strstr(said, "SigBlk=0000000000000000\n"));
    assert_non_null(strstr(said, "SigIgn=0000000000000000\n"));
    assert_non_null(strstr(said, "SigCgt=0000000000000000\n"));
    (void)snprintf(want, sizeof want, "pdeathsig=%d\n", SIGKILL);
    assert_non_null(strstr(said, want));
    forget(&p1);
}

static void test_a_held_stream_delays_the_close_and_not_the_exit(void **state)
{
    (void)state;
    SH(&p1, 0, 1, 0, "sleep 1000 & echo $!; exit 7");
    const int pidfd = pidfd_of_line(&p1);
    until(&p1, has_exited);
    assert_int_equal(p1.exit.code, 7);
    assert_int_equal(p1.closed_seq, 0);
    call(&p1, SP_WIRE_TERMINATE, 0, 0, 0); /* it has exited: nothing happens */
    call(&p1, SP_WIRE_SIGNAL, 1, SIGTERM, 0);
    assert_int_equal(answer_to(1), 0);
    catch_up(&p1);
    assert_int_equal(p1.closed_seq, 0);
    assert_false(wait_fd(pidfd, POLLIN, 0));
    assert_int_equal(syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0), 0);
    ends_with(&p1, 7);
    is_killed(pidfd);
    forget(&p1);
}

static void test_many_at_once_have_their_own_logs(void **state)
{
    static struct proc many[SLOTS];
    char script[64];

    (void)state;
    for (uint32_t i = 0; i < SLOTS; i++) {
        (void)snprintf(script, sizeof script, "echo %u; exit %u", i, i);
        SH(&many[i], i, 1 + i % 3, i % 2 == 0 ? 0 : SP_START_TTY, script);
        runs(&many[i]);
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        ends_with(&many[i], (int)i);
        assert_int_equal(atoi(many[i].out[i % 2 == 0 ? SP_STREAM_STDOUT : SP_STREAM_PTY]), i);
        forget(&many[i]);
    }
    for (uint32_t i = 0; i < SLOTS; i++) { /* and every slot is free again */
        START(&many[i], i, 1, 0, "true");
        runs(&many[i]);
        ends_with(&many[i], 0);
        forget(&many[i]);
    }
}

/* ---- signals and ends ---- */

static void test_a_signal_reaches_the_group_and_is_answered(void **state)
{
    (void)state;
    START(&p1, 0, 1, 0, puppet, "wide", "3"); /* closed only when all have gone */
    until(&p1, has_line);
    call(&p1, SP_WIRE_SIGNAL, 5, 999, 0);
    assert_int_equal(answer_to(5), EINVAL);
    call(&p1, SP_WIRE_SIGNAL, 6, SIGINT, 0);
    assert_int_equal(answer_to(6), 0);
    ends_with(&p1, 128 + SIGINT);
    assert_int_equal(p1.exit.signal, SIGINT);
    call(&p1, SP_WIRE_SIGNAL, 7, SIGINT, 0); /* ended */
    assert_int_equal(answer_to(7), 0);
    forget(&p1);
    call(&p1, SP_WIRE_SIGNAL, 8, SIGINT, 0); /* and gone */
    assert_int_equal(answer_to(8), 0);
}

static void terminate_tree(const char *what, const char *n, const char *k, uint32_t flags)
{
    START(&p1, 0, 1, flags, puppet, what, n, k);
    runs(&p1);
    until(&p1, has_line);
    call(&p1, SP_WIRE_TERMINATE, 0, 0, 0);
    ends_with(&p1, 128 + SIGKILL);
    forget(&p1);
}

static void test_a_terminate_ends_the_tree(void **state)
{
    (void)state;
    terminate_tree("pause", "", "", 0);
    terminate_tree("pause", "", "", SP_START_TTY);
    terminate_tree("daemons", "10", "", 0);
    terminate_tree("daemons", "10", "", SP_START_TTY);
    terminate_tree("bomb", "500", "", 0);
    terminate_tree("hop", "2", "2000", 0);
    hang_up(); /* who got away from the tree would be our child now */
}

/* Somebody outside of the tree holds the stream: a terminate does not wait for him. */
static void test_after_a_terminate_a_held_stream_delays_nothing(void **state)
{
    char path[64];

    (void)state;
    SH(&p1, 0, 1, 0, "echo ready; sleep 1000");
    until(&p1, has_line);
    (void)snprintf(path, sizeof path, "/proc/%d/fd/1", (int)p1.started.pid);
    const int held = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(held >= 0);
    call(&p1, SP_WIRE_TERMINATE, 0, 0, 0);
    ends_with(&p1, 128 + SIGKILL);
    (void)close(held);
    forget(&p1);
}

static void test_what_is_forgotten_alive_is_killed(void **state)
{
    (void)state;
    SH(&p1, 0, 1, 0, "sleep 1000 & echo $!; wait");
    const int child = pidfd_of_line(&p1);
    const int leader = (int)syscall(SYS_pidfd_open, p1.started.pid, 0);
    assert_true(leader >= 0);
    forget(&p1);
    is_killed(child);
    is_killed(leader);
    SH(&p1, 0, 1, SP_START_TTY, "trap '' HUP; sleep 1000 & echo $!; wait"); /* the slot is free */
    runs(&p1);
    const int other = pidfd_of_line(&p1);
    forget(&p1);
    is_killed(other);
}

static void test_strays_live_until_their_session_ends(void **state)
{
    (void)state;
    SH(&p1, 0, 1, 0, "setsid sleep 1000 >/dev/null 2>&1 & echo $!");
    SH(&p2, 1, 2, 0, "exec sleep 1000");
    const int stray = pidfd_of_line(&p1);
    ends_with(&p1, 0);
    forget(&p1);
    end_session(3); /* none of ours */
    call(&p2, SP_WIRE_SIGNAL, 1, 0, 0);
    assert_int_equal(answer_to(1), 0);
    assert_false(wait_fd(stray, POLLIN, 0));
    end_session(1);
    is_killed(stray);
    catch_up(&p2);
    assert_int_equal(p2.exit_seq, 0); /* the other session's lives on */
    const int leader = (int)syscall(SYS_pidfd_open, p2.started.pid, 0);
    end_session(2);
    is_killed(leader);
    START(&p1, 1, 2, 0, "true"); /* its slot is free */
    runs(&p1);
    ends_with(&p1, 0);
    forget(&p1);
}

/* ---- processes for file operations ---- */

struct files {
    int socket;
    char *window;
    pid_t pid;
};

static void say_to_files(const struct files *f, const struct sp_file_wire_request *m,
                         const char *path, int fd)
{
    assert_int_equal(sp_wire_send(f->socket, true, m, sizeof *m, path, strlen(path), &fd, fd >= 0),
                     0);
}

static struct sp_file_wire_answer answer_of_files(const struct files *f)
{
    struct sp_file_wire_answer m = {0};

    assert_true(wait_fd(f->socket, POLLIN, DEADLINE_MS));
    assert_int_equal(recv(f->socket, &m, sizeof m, MSG_DONTWAIT), sizeof m);
    return m;
}

/* What a process of ours reads from this file. */
static struct sp_file_wire_answer file_reads(struct files *f, const char *path)
{
    const struct sp_file_wire_request m = {.op = SP_FILE_READ,
                                           .flags = SP_FILES_FOLLOWS,
                                           .number = ++next_number,
                                           .path_len = (uint16_t)strlen(path)};

    say_to_files(f, &m, path, -1);
    const struct sp_file_wire_answer a = answer_of_files(f);
    assert_int_equal(a.number, next_number);
    return a;
}

static void begin_files(struct files *f)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_FILES}};
    const struct sp_file_wire_request hello = {0};
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(sp_wire_send(control, true, &m, sizeof m, NULL, 0, &pair[1], 1), 0);
    (void)close(pair[1]);
    f->socket = pair[0];
    const int window = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(window, SP_FILES_WINDOW), 0);
    f->window = mmap(NULL, SP_FILES_WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, window, 0);
    assert_true(f->window != MAP_FAILED);
    say_to_files(f, &hello, "", window);
    (void)close(window);
    const struct sp_file_wire_answer a = file_reads(f, "/proc/self/stat");
    assert_int_equal(a.err, 0);
    f->pid = (pid_t)strtol(f->window, NULL, 10);
}

static void end_files(struct files *f)
{
    (void)close(f->socket);
    (void)munmap(f->window, SP_FILES_WINDOW);
}

static bool is_reaped(pid_t pid)
{
    for (int i = 0; i < DEADLINE_MS / 10; i++) {
        if (kill(pid, 0) < 0 && errno == ESRCH)
            return true;
        (void)poll(NULL, 0, 10);
    }
    return false;
}

/* It is no session's: not while commands come and go, nor at the end of any session, and it ends
 * with its socket. */
static void test_a_process_for_files_is_nobodys_stray(void **state)
{
    struct files f;

    (void)state;
    begin_files(&f);
    for (int i = 0; i < 3; i++) {
        SH(&p1, 0, 1, 0, "setsid sleep 1000 >/dev/null 2>&1 & echo $!");
        const int stray = pidfd_of_line(&p1);
        ends_with(&p1, 0);
        forget(&p1);
        end_session(1);
        is_killed(stray);
        assert_int_equal(file_reads(&f, "/proc/version").err, 0);
    }
    end_session(0);
    assert_int_equal(file_reads(&f, "/proc/version").err, 0);
    const pid_t pid = f.pid;
    end_files(&f);
    assert_true(is_reaped(pid));
    begin_files(&f); /* one that was killed is reaped, too */
    assert_int_equal(kill(f.pid, SIGKILL), 0);
    assert_true(is_reaped(f.pid));
    end_files(&f);
    begin_files(&f); /* and one that hangs ends with the cell */
    assert_int_equal(kill(f.pid, SIGSTOP), 0);
    hang_up();
    assert_true(is_reaped(f.pid));
    end_files(&f);
}

/* What the cell writes and others read is not there any more, nor are its descriptors. */
static void test_a_process_for_files_keeps_nothing_of_the_cell(void **state)
{
    static const char *const names[] = {"/proc/self/maps", "/proc/self/environ"};
    struct files f;

    (void)state;
    SH(&p1, 0, 1, SP_START_STDIN, "exec sleep 1000");
    runs(&p1);
    begin_files(&f);
    for (size_t i = 0; i < 2; i++) {
        const struct sp_file_wire_answer a = file_reads(&f, names[i]);

        assert_true(a.data_len < SP_FILES_WINDOW);
        f.window[a.data_len] = 0; /* what may be read alone is this test's */
        for (const char *line = f.window; (line = strstr(line, " rw-s ")) != NULL; line++)
            if (strncmp(line + strcspn(line, "/\n"), "/memfd:sallyport-ring", 21) == 0)
                fail_msg("%.200s", line);
    }
    const struct sp_file_wire_request list = {
        .op = SP_FILE_LIST, .flags = SP_FILES_FOLLOWS, .number = 1, .path_len = 13};
    say_to_files(&f, &list, "/proc/self/fd", -1);
    const struct sp_file_wire_answer a = answer_of_files(&f);
    assert_int_equal(a.data_len, 9 * (sizeof(struct sp_file_entry) + 1)); /* 0 to 8 */
    call(&p1, SP_WIRE_TERMINATE, 0, 0, 0);
    until(&p1, has_closed);
    forget(&p1);
    end_files(&f);
}

static void test_a_process_for_files_needs_its_socket(void **state)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_FILES}};
    const int two[2] = {0, 0};
    struct files f;

    (void)state;
    assert_int_equal(sp_wire_send(control, true, &m, sizeof m, NULL, 0, NULL, 0), 0);
    assert_int_equal(sp_wire_send(control, true, &m, sizeof m, NULL, 0, two, 2), 0);
    assert_int_equal(sp_wire_send(control, true, &m, sizeof m, NULL, 0, two, 1), 0); /* no socket */
    begin_files(&f); /* the cell is as well as before */
    /* Nor does it take what is no ask of the front's: then it ends. */
    const struct sp_file_wire_request lies = {.op = SP_FILE_STAT, .path_len = 9};
    say_to_files(&f, &lies, "/short", -1);
    assert_true(is_reaped(f.pid));
    end_files(&f);
    START(&p1, 0, 1, 0, "true");
    runs(&p1);
    ends_with(&p1, 0);
    forget(&p1);
}

static void test_the_end_of_the_front_ends_everything(void **state)
{
    static struct proc many[6];

    (void)state;
    START(&many[0], 0, 1, 0, puppet, "daemons", "10");
    START(&many[1], 1, 1, SP_START_TTY, puppet, "daemons", "10");
    START(&many[2], 2, 2, 0, puppet, "hop", "2", "3000");
    START(&many[3], 3, 2, 0, puppet, "deep", "50");
    START(&many[4], 4, 2, SP_START_STDIN, "cat");
    SH(&many[5], 5, 3, 0, "setsid sleep 1000 & exit 0");
    for (int i = 0; i < 4; i++)
        until(&many[i], has_line);
    hang_up(); /* checks that no child of ours is left: nobody got away */
    for (int i = 0; i < 6; i++) {
        if (many[i].input >= 0)
            (void)close(many[i].input);
        sp_ring_view_close(&many[i].view);
    }
}

/* ---- starts that fail ---- */

static void test_a_start_that_fails_says_why_and_frees_its_slot(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) { /* nothing runs out on the way */
        const uint32_t flags = round % 2 == 0 ? 0 : SP_START_TTY;

        START(&p1, 2, 1, flags | SP_START_STDIN, "no-such-program");
        refused(&p1, SP_STEP_EXEC, ENOENT);
        START(&p1, 2, 1, flags, "/");
        refused(&p1, SP_STEP_EXEC, EACCES);
        start_in(&p1, 2, 1, flags, "/nowhere", (const char *const[]){"true", NULL});
        refused(&p1, SP_STEP_CWD, ENOENT);
        start_in(&p1, 2, 1, flags, "/bin/true", (const char *const[]){"true", NULL});
        refused(&p1, SP_STEP_CWD, ENOTDIR);
    }
    START(&p1, 2, 1, 0, "true");
    runs(&p1);
    ends_with(&p1, 0);
    forget(&p1);
}

static void test_a_slot_that_is_busy_or_none_is_refused(void **state)
{
    (void)state;
    SH(&p1, 0, 1, 0, "echo ready; sleep 1000");
    until(&p1, has_line);
    START(&p2, 0, 1, 0, "true");
    refused(&p2, SP_STEP_PREPARE, EINVAL);
    START(&p2, SLOTS, 1, 0, "true");
    refused(&p2, SP_STEP_PREPARE, EINVAL);
    START(&p2, UINT32_MAX, 1, 0, "true");
    refused(&p2, SP_STEP_PREPARE, EINVAL);
    next_number--; /* the very same again */
    call(&p1, SP_WIRE_SIGNAL, 1, 0, 0);
    assert_int_equal(answer_to(1), 0);
    catch_up(&p1);
    assert_int_equal(p1.exit_seq, 0); /* the one that is there is not disturbed */
    call(&p1, SP_WIRE_TERMINATE, 0, 0, 0);
    ends_with(&p1, 128 + SIGKILL);
    START(&p2, 0, 1, 0, "true"); /* closed, and not forgotten */
    refused(&p2, SP_STEP_PREPARE, EINVAL);
    forget(&p1);
    START(&p2, 0, 1, 0, "true");
    runs(&p2);
    ends_with(&p2, 0);
    forget(&p2);
}

static void test_messages_to_nobody_are_ignored(void **state)
{
    const struct proc nobody = {.head = {.slot = 3, .number = 77}};
    const struct proc nowhere = {.head = {.slot = UINT32_MAX, .number = 1}};

    (void)state;
    SH(&p1, 0, 1, 0, "echo ready; sleep 1000");
    until(&p1, has_line);
    struct proc stale = p1;
    stale.head.number += 100;
    static const enum sp_wire_op ops[] = {SP_WIRE_TERMINATE, SP_WIRE_FORGET,  SP_WIRE_SIGNAL,
                                          SP_WIRE_RESIZE,    SP_WIRE_STARTED, SP_WIRE_DONE,
                                          SP_WIRE_HELLO};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct sp_wire_hello pad = {
            .head = {SP_WIRE_VERSION, (uint16_t)ops[i], 0, stale.head.number}};
        const bool is_longer = ops[i] == SP_WIRE_HELLO || ops[i] == SP_WIRE_STARTED;

        call(&nobody, is_longer ? SP_WIRE_SIGNAL : ops[i], 0, SIGKILL, 0);
        call(&nowhere, is_longer ? SP_WIRE_SIGNAL : ops[i], 0, SIGKILL, 0);
        assert_int_equal(sp_wire_send(control, true, &pad, sizeof pad, NULL, 0, NULL, 0), 0);
    }
    call(&p1, SP_WIRE_SIGNAL, 1, 0, 0);
    assert_int_equal(answer_to(1), 0);
    catch_up(&p1);
    assert_int_equal(p1.exit_seq, 0);
    forget(&p1);
}

static void asks(uint32_t argc, uint32_t envc, uint32_t string_bytes, struct sp_str text,
                 bool is_fine)
{
    struct sp_wire_start m = a_start(1, 1, 0);

    m.argc = argc;
    m.envc = envc;
    m.string_bytes = string_bytes;
    ask(&p1, &m, text.p, text.n, -1);
    if (is_fine)
        runs(&p1);
    else
        refused(&p1, SP_STEP_PREPARE, EINVAL);
}

static void test_counts_that_do_not_fit_the_strings_are_refused(void **state)
{
    const struct sp_str good = SP_STR("/\0/bin/true\0true\0A=1\0");
    const uint32_t n = (uint32_t)good.n;

    (void)state;
    asks(0, 2, n, good, false);
    asks(2, 1, n, good, false);
    asks(1, 0, n, good, false);
    asks(1, 1, n - 1, good, false);
    asks(1, 1, n + 1, good, false);
    asks(1, 1, 0, good, false);
    asks(UINT32_MAX, 1, n, good, false);
    asks(UINT32_MAX, UINT32_MAX, n, good, false);
    asks(1, 0, 0, SP_STR(""), false);
    asks(1, 1, n - 1, (struct sp_str){good.p, good.n - 1}, false);
    asks(1, 1, n, good, true);
    ends_with(&p1, 0);
    forget(&p1);
}

/* A START whose strings are in a memfd of this size and with these seals. */
static void ask_memfd(const char *text, size_t size, uint32_t string_bytes, int seals,
                      uint32_t argc)
{
    struct sp_wire_start m = a_start(1, 1, SP_START_MEMFD);
    auto_close int fd = memfd_create("sallyport-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    if (text != NULL)
        assert_int_equal(pwrite(fd, text, size, 0), (ssize_t)size);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    m.argc = argc;
    m.envc = 0;
    m.string_bytes = string_bytes;
    ask(&p1, &m, NULL, 0, fd);
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

static void test_strings_may_come_in_a_memfd(void **state)
{
    const size_t size = 120000;
    char *text = malloc(size);
    size_t n = 0;
    uint32_t argc = 2;

    (void)state;
    assert_non_null(text);
    n += (size_t)sprintf(text + n, "/") + 1;
    n += (size_t)sprintf(text + n, "%s", puppet) + 1;
    n += (size_t)sprintf(text + n, "puppet") + 1;
    n += (size_t)sprintf(text + n, "strings") + 1;
    for (; n + 1000 < size; argc++) {
        memset(text + n, 'x', 500);
        text[n + 500] = 0;
        n += 501;
    }
    ask_memfd(text, n, (uint32_t)n, SEALS, argc);
    runs(&p1);
    ends_with(&p1, 0);
    assert_memory_equal(p1.out[SP_STREAM_STDOUT], "arg=puppet\narg=strings\narg=xxx", 30);
    forget(&p1);
    free(text);
}

static void test_a_memfd_that_is_not_what_it_says_is_refused(void **state)
{
    static const char good[] = "/\0/bin/true\0true";
    const uint32_t n = sizeof good;
    struct sp_wire_start m = a_start(1, 1, SP_START_MEMFD);
    int fd[2];

    (void)state;
    ask_memfd(good, n, n, SEALS, 1);
    runs(&p1);
    ends_with(&p1, 0);
    forget(&p1);
    ask_memfd(good, n, n + 1, SEALS, 1); /* shorter than it says */
    refused(&p1, SP_STEP_PREPARE, EINVAL);
    ask_memfd(good, n, n - 1, SEALS, 1);
    refused(&p1, SP_STEP_PREPARE, EINVAL);
    ask_memfd(good, n, n, SEALS, 2);
    refused(&p1, SP_STEP_PREPARE, EINVAL);
    ask_memfd(NULL, 0, 0, SEALS, 1);
    refused(&p1, SP_STEP_PREPARE, EINVAL);
    ask_memfd(NULL, SP_WIRE_STRINGS + 1U, SP_WIRE_STRINGS + 1U, SEALS, 1); /* too large */
    refused(&p1, SP_STEP_PREPARE, EINVAL);
    m.argc = 1;
    m.string_bytes = n;
    ask(&p1, &m, NULL, 0, -1); /* none at all */
    refused(&p1, SP_STEP_PREPARE, EINVAL);
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    m.head.number = ++next_number;
    ask(&p1, &m, NULL, 0, fd[0]); /* something else */
    refused(&p1, SP_STEP_PREPARE, EINVAL);
    (void)close(fd[0]);
    (void)close(fd[1]);
}

/* What could change while it is read is not read. */
static void test_a_memfd_that_is_not_sealed_is_refused(void **state)
{
    static const char good[] = "/\0/bin/true\0true";

    (void)state;
    ask_memfd(good, sizeof good, sizeof good, 0, 1);
    if (p1.started.step == SP_STEP_NONE)
        forget(&p1);
    refused(&p1, SP_STEP_PREPARE, EINVAL);
}

/* The cell says why it cannot take the memory of rings, and so does every start in it. */
static void test_rings_that_are_not_what_they_should_be_are_refused(void **state)
{
    const struct sp_wire_call *reply = (const void *)message.bytes;

    (void)state;
    for (int what = 0; what < 3; what++) {
        const int want = what == 2 ? EMFILE : EINVAL;
        auto_close int fd = memfd_create("sallyport-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        const struct sp_wire_call m = {
            .head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_SEGMENT}, .a = 0, .b = 1};

        if (what == 1)
            assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
        assert_int_equal(sp_wire_send(control, true, &m, sizeof m, NULL, 0, &fd, what < 2), 0);
        assert_true(wait_fd(control, POLLIN, DEADLINE_MS));
        assert_int_equal(sp_wire_recv(control, false, &message, NULL), 1);
        assert_int_equal(reply->head.op, SP_WIRE_SEGMENT);
        assert_int_equal(reply->a, 0);
        assert_int_equal(reply->b, want);
        START(&p1, 3, 1, 0, "true");
        refused(&p1, SP_STEP_PREPARE, want);
    }
    send_segment(0, -1); /* taken back */
    START(&p1, 3, 1, 0, "true");
    refused(&p1, SP_STEP_PREPARE, EINVAL);
    sp_segment_drop(TAKE_PTR(segment));
    give_rings();
    START(&p1, 3, 1, 0, "true");
    runs(&p1);
    ends_with(&p1, 0);
    send_segment(0, -1); /* not while a slot is used */
    forget(&p1);
    SH(&p1, 3, 1, 0, "echo on");
    runs(&p1);
    ends_with(&p1, 0);
    forget(&p1);
    send_segment(1, -1); /* there are no such slots */
    send_segment(UINT32_MAX, -1);
}

static bool is_punched(const struct proc *p)
{
    return atomic_load(&p->view.head->touched) == 0;
}

static void test_the_memory_of_a_free_slot_can_be_taken(void **state)
{
    (void)state;
    SH(&p1, 2, 1, 0, "head -c 1000000 /dev/zero");
    runs(&p1);
    ends_with(&p1, 0);
    assert_true(atomic_load(&p1.view.head->touched) > 1000000);
    call(&p1, SP_WIRE_FORGET, 0, 0, 0);
    p1.head.number = 0;
    call(&p1, SP_WIRE_PUNCH, 0, 0, 0);
    while (!is_punched(&p1))
        assert_true(doze(DEADLINE_MS));
    p1.head.slot = SLOTS; /* none */
    call(&p1, SP_WIRE_PUNCH, 0, 0, 0);
    SH(&p1, 2, 1, 0, "echo on");
    runs(&p1);
    ends_with(&p1, 0);
    forget(&p1);
}

static void test_a_cell_ends_when_it_is_not_spoken_to_properly(void **state)
{
    (void)state;
    SH(&p1, 0, 1, 0, "setsid sleep 1000 & echo $!; wait");
    const int child = pidfd_of_line(&p1);
    assert_int_equal(send(control, "nonsense", 8, MSG_NOSIGNAL), 8);
    is_killed(child);
    sp_ring_view_close(&p1.view);
    hang_up();
}

/* ---- output that nobody takes, and output that somebody waits for ---- */

static void test_without_a_reader_the_oldest_is_forgotten_and_counted(void **state)
{
    (void)state;
    SH(&p1, 0, 1, 0, "head -c 5000000 /dev/zero");
    runs(&p1);
    struct sp_ring_cursor tail = {0};
    struct sp_ring_state s = {0};
    while (s.closed_seq == 0) {
        assert_int_equal(sp_ring_catch_up(&p1.view, &tail, &s), 0);
        if (s.closed_seq == 0)
            assert_true(doze(DEADLINE_MS));
    }
    assert_int_equal(tail.bytes, 5000000);
    struct sp_ring_cursor fresh = {0};
    struct sp_record r;
    uint64_t bytes = 0;
    while (sp_ring_next(&p1.view, &fresh, &r) > 0)
        bytes += r.type == SP_RECORD_OUTPUT ? r.len : 0;
    assert_int_equal(bytes + fresh.missed_bytes, 5000000);
    assert_int_equal(s.dropped_bytes, fresh.missed_bytes);
    assert_true(bytes <= SP_RING_RETAIN_BYTES && bytes + SP_RING_CHUNK > SP_RING_RETAIN_BYTES);
    forget(&p1);
}

static void until_paused(struct proc *p)
{
    while (!sp_ring_is_paused(&p->view))
        assert_true(doze(DEADLINE_MS));
}

static void serve_to_the_end(struct proc *p, uint64_t total)
{
    struct sp_record r;
    uint64_t bytes = 0;
    bool is_closed = false;

    while (!is_closed) {
        int more = 0;

        for (int i = 0; i < 3 && (more = sp_ring_next(&p->view, &p->at, &r)) > 0; i++) {
            bytes += r.type == SP_RECORD_OUTPUT ? r.len : 0;
            is_closed = r.type == SP_RECORD_CLOSED;
        }
        assert_true(more >= 0);
        sp_bell_serve(&bell, p->head.slot, true, (struct sp_served){p->at.pos, p->at.pos});
        if (sp_ring_is_paused(&p->view))
            ring_bell(&bell, p->head.slot);
        if (more == 0 && !is_closed)
            assert_true(doze(DEADLINE_MS));
    }
    assert_int_equal(p->at.missed_records, 0);
    assert_int_equal(bytes, total);
}

static void test_an_attached_reader_misses_nothing(void **state)
{
    (void)state;
    sp_bell_serve(&bell, 4, true, (struct sp_served){0});
    SH(&p1, 4, 1, 0, "head -c 4000000 /dev/zero; exit 4");
    runs(&p1);
    until_paused(&p1);
    struct sp_ring_cursor tail = {0};
    struct sp_ring_state s;
    assert_int_equal(sp_ring_catch_up(&p1.view, &tail, &s), 0);
    assert_true(tail.pos > SP_RING_HIGH_WATER &&
                tail.pos <= SP_RING_HIGH_WATER + 2 * SP_RING_CHUNK);
    serve_to_the_end(&p1, 4000000);
    forget(&p1);
}

/* The kernel has no memory to watch the streams of a paused process again. */
static void test_a_paused_process_goes_on_when_memory_comes_back(void **state)
{
    (void)state;
    sp_bell_serve(&bell, 4, true, (struct sp_served){0});
    SH(&p1, 4, 1, 0, "head -c 4000000 /dev/zero; exit 4");
    runs(&p1);
    until_paused(&p1);
    __atomic_store_n(short_watches, 5, __ATOMIC_RELEASE);
    serve_to_the_end(&p1, 4000000);
    assert_true(__atomic_load_n(short_watches, __ATOMIC_ACQUIRE) == 0);
    forget(&p1);
}

static void test_a_reader_who_leaves_lets_the_process_go_on(void **state)
{
    (void)state;
    sp_bell_serve(&bell, 4, true, (struct sp_served){0});
    SH(&p1, 4, 1, 0, "head -c 4000000 /dev/zero; exit 4");
    runs(&p1);
    until_paused(&p1);
    sp_bell_serve(&bell, 4, false, (struct sp_served){0});
    ring_bell(&bell, 4);
    until(&p1, has_closed);
    assert_int_equal(p1.at.bytes, 4000000);
    assert_int_equal(p1.exit.code, 4);
    forget(&p1);
}

static void test_exit_and_terminate_do_not_wait_for_the_reader(void **state)
{
    (void)state;
    sp_bell_serve(&bell, 4, true, (struct sp_served){0});
    SH(&p1, 4, 1, 0, "yes");
    runs(&p1);
    until_paused(&p1);
    call(&p1, SP_WIRE_TERMINATE, 0, 0, 0);
    ends_with(&p1, 128 + SIGKILL); /* though nothing was ever served */
    forget(&p1);
}

/* ---- greetings ---- */

static void test_a_cell_that_is_not_greeted_properly_ends(void **state)
{
    struct sp_wire_hello hello = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_HELLO},
                                  .slots = SLOTS};
    static const struct {
        uint16_t op;
        uint32_t slots;
        int fds;
    } bad[] = {{SP_WIRE_HELLO, SLOTS, 0},      {SP_WIRE_HELLO, SLOTS, 1},
               {SP_WIRE_HELLO, SLOTS, 3},      {SP_WIRE_HELLO, 0, 2},
               {SP_WIRE_HELLO, 100000, 2},     {SP_WIRE_HELLO, (1U << 20) + 1, 2},
               {SP_WIRE_END_SESSION, SLOTS, 2}};

    (void)state;
    fds_before = open_fds();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(sp_bell_new(SLOTS, &bell, NULL), 0);
        const int fds[3] = {bell.page_fd, bell.wake[SP_SIDE_CELL], bell.wake[SP_SIDE_CELL]};

        fork_cell();
        hello.head.op = bad[i].op;
        hello.slots = bad[i].slots;
        assert_int_equal(
            sp_wire_send(control, true, &hello, sizeof hello, NULL, 0, fds, bad[i].fds), 0);
        if (reap(cell_pid, DEADLINE_MS) != 1)
            fail_msg("greeting %zu was taken", i);
        (void)close(control);
        control = -1;
        sp_bell_free(&bell);
    }
    assert_int_equal(open_fds(), fds_before);
    assert_no_children();
}

#define cell_tests(f)                                                          \
    cmocka_unit_test_prestate_setup_teardown(f, begin, end, &with_cgroups[0]), \
    {                                                                          \
#f "_in_cgroups", f, begin, end, &with_cgroups[1]                      \
    }

static const struct CMUnitTest tests[] = {
    cell_tests(test_output_exit_and_close_are_told_in_order),
    cell_tests(test_a_silent_process_is_two_records),
    cell_tests(test_stdin_is_nothing_unless_asked_for),
    cell_tests(test_a_terminal_is_one_stream_of_the_asked_size),
    cell_tests(test_a_terminal_can_be_written_to_and_resized),
    cell_tests(test_commands_are_born_as_promised),
    cell_tests(test_a_held_stream_delays_the_close_and_not_the_exit),
    cell_tests(test_many_at_once_have_their_own_logs),
    cell_tests(test_a_signal_reaches_the_group_and_is_answered),
    cell_tests(test_a_terminate_ends_the_tree),
    cell_tests(test_after_a_terminate_a_held_stream_delays_nothing),
    cell_tests(test_what_is_forgotten_alive_is_killed),
    cell_tests(test_strays_live_until_their_session_ends),
    cell_tests(test_a_process_for_files_is_nobodys_stray),
    cell_tests(test_a_process_for_files_keeps_nothing_of_the_cell),
    cell_tests(test_a_process_for_files_needs_its_socket),
    cell_tests(test_the_end_of_the_front_ends_everything),
    cell_tests(test_a_start_that_fails_says_why_and_frees_its_slot),
    cell_tests(test_a_slot_that_is_busy_or_none_is_refused),
    cell_tests(test_messages_to_nobody_are_ignored),
    cell_tests(test_counts_that_do_not_fit_the_strings_are_refused),
    cell_tests(test_strings_may_come_in_a_memfd),
    cell_tests(test_a_memfd_that_is_not_what_it_says_is_refused),
    cell_tests(test_a_memfd_that_is_not_sealed_is_refused),
    cell_tests(test_rings_that_are_not_what_they_should_be_are_refused),
    cell_tests(test_the_memory_of_a_free_slot_can_be_taken),
    cell_tests(test_a_cell_ends_when_it_is_not_spoken_to_properly),
    cell_tests(test_without_a_reader_the_oldest_is_forgotten_and_counted),
    cell_tests(test_an_attached_reader_misses_nothing),
    cell_tests(test_a_paused_process_goes_on_when_memory_comes_back),
    cell_tests(test_a_reader_who_leaves_lets_the_process_go_on),
    cell_tests(test_exit_and_terminate_do_not_wait_for_the_reader),
    cmocka_unit_test(test_a_cell_that_is_not_greeted_properly_ends),
};

int main(void)
{
    struct sp_err e = {0};

    puppet = getenv("PUPPET");
    short_watches = mmap(NULL, sizeof *short_watches, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (short_watches == MAP_FAILED || puppet == NULL || sp_spawn_reserve(&e) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return 77;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
