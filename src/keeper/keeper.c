/* SPDX-License-Identifier: Apache-2.0 */
#include "keeper/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "keeper/message.h"
#include "os/fd.h"

#define FIRST_STATUS 128  /* + the signal that killed the front, as shells have it */
#define DESCRIPTORS  1024 /* room for all keys */
#define RETRY_MS     2    /* after a message that the kernel had no room for */
#define BACKLOG      512  /* of listeners, as server/net/acceptor.c has it */

static const struct sp_keeper_times usual_times = {
    .ready = 5000,
    .ending = 8000,
    .long_life = 10000,
    .delays = {0, 0, 0, 50, 100, 200, 400, 800, 1600, 3000},
};

struct kept {
    uint64_t key;
    unsigned count;
    int fds[SP_KEEPER_FDS];
    char text[SP_KEEPER_TEXT];
};

enum stage {
    ABSENT,  /* no front */
    SILENT,  /* was started */
    GREETED, /* said HELLO; gets HELD ... */
    TOLD,    /* got GO */
    READY,
};

struct keeper {
    const struct sp_keeper_options *o;
    const struct sp_keeper_times *times;
    int program, signals;
    sigset_t front_mask;  /* of signals: what we were started with, and those that end a server */
    struct rlimit nofile; /* the limit at our start */
    int manager;          /* socket to the service manager (NOTIFY_SOCKET); -1: none */
    char oom_score[16];   /* of our start; "": not changed since */

    enum stage stage;
    pid_t front;
    int socket;        /* -1: none, or the front has closed its end */
    unsigned sent;     /* keys of which HELD was sent */
    uint64_t began_ms; /* the life of this front */
    uint64_t due_ms;   /* ABSENT: of its start; before READY: of its death; 0: none */
    bool is_late;      /* it was not ready in time */
    uint64_t generation;
    int last_status; /* of the last front, as of waitpid */

    unsigned short_lives, early_deaths; /* in a row */
    bool was_ready;                     /* a front */
    bool is_ending, is_over;
    int ender;              /* signal that each further front gets; 0: none */
    bool has_ended;         /* the front said ENDING */
    uint64_t ending_due_ms; /* the front is killed then; 0: at no time */
    int status;             /* exit status, once is_over is set */

    unsigned count;
    struct kept kept[SP_KEEPER_KEYS];
};

/* ---- keys ---- */

static struct kept *find_kept(struct keeper *k, uint64_t key)
{
    for (unsigned i = 0; i < k->count; i++)
        if (k->kept[i].key == key)
            return &k->kept[i];
    return NULL;
}

static void drop(struct keeper *k, uint64_t key)
{
    struct kept *gone = find_kept(k, key);

    if (gone == NULL)
        return;
    sp_keeper_close_fds(gone->fds, gone->count);
    *gone = k->kept[--k->count];
}

static void keep(struct keeper *k, const struct sp_keeper_message *m, const int *fds)
{
    drop(k, m->key);
    if (m->count == 0 || k->count == SP_KEEPER_KEYS) {
        sp_keeper_close_fds(fds, m->count);
        return;
    }
    struct kept *new = &k->kept[k->count++];
    *new = (struct kept){.key = m->key, .count = m->count};
    memcpy(new->fds, fds, m->count * sizeof fds[0]);
    memcpy(new->text, m->text, sizeof m->text);
    /* Clients learn the pid of a unix listener's server from the last listen (SO_PEERCRED). */
    for (unsigned i = 0; i < m->count; i++)
        if (sp_fd_option(fds[i], SO_ACCEPTCONN) == 1)
            (void)listen(fds[i], BACKLOG);
}

/* ---- starting a front ---- */

static void write_oom_score(const char *score)
{
    const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, score, strlen(score)); /* not permitted: it stays as it is */
        (void)close(fd);
    }
}

/* In the child. The signals that end a server stay blocked: a front gets those that were sent
 * before it was able to receive them. */
static SP_NORETURN void become_front(const struct keeper *k, int socket, pid_t keeper)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == keeper &&
        dup2(socket, STDIN_FILENO) >= 0 && setrlimit(RLIMIT_NOFILE, &k->nofile) == 0) {
        if (k->oom_score[0] != 0)
            write_oom_score(k->oom_score);
        (void)sigprocmask(SIG_SETMASK, &k->front_mask, NULL);
        (void)fexecve(k->program, k->o->argv, environ);
    }
    sp_log(SP_LOG_ERROR, "start the front: %s", sp_errno_text(errno));
    _exit(FIRST_STATUS - 1);
}

static void note_death(struct keeper *k, int status);

static void start_front(struct keeper *k)
{
    int pair[2] = {-1, -1};
    const pid_t self = getpid();
    pid_t pid = -1;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        pair[0] = sp_fd_lift(pair[0]);
        pair[1] = sp_fd_lift(pair[1]);
        pid = fork();
    }
    if (pid == 0)
        become_front(k, pair[1], self);
    const int err = errno;
    if (pair[1] >= 0)
        (void)close(pair[1]);
    k->socket = pair[0];
    k->front = pid;
    k->began_ms = sp_clock_ms();
    k->due_ms = k->began_ms + k->times->ready;
    k->stage = SILENT;
    k->sent = 0;
    k->is_late = false;
    k->generation++;
    if (pid > 0 && k->ender != 0)
        (void)kill(pid, k->ender);
    if (pid < 0) {
        sp_log(SP_LOG_ERROR, "start a front: %s", sp_errno_text(err));
        note_death(k, (FIRST_STATUS - 1) << 8);
    }
}

/* ---- the service manager (sd_notify(3)) ---- */

/* The address is not for commands: the variable is removed. */
static void open_manager(struct keeper *k)
{
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t n = path == NULL ? 0 : strlen(path);
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    if (n >= 2 && n < sizeof to.sun_path && (path[0] == '/' || path[0] == '@')) {
        memcpy(to.sun_path, path, n);
        if (path[0] == '@') /* an abstract address */
            to.sun_path[0] = 0;
        k->manager = sp_fd_lift(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        (void)connect(k->manager, (const struct sockaddr *)&to,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    }
    (void)unsetenv("NOTIFY_SOCKET");
}

static void tell_manager(const struct keeper *k, const char *lines)
{
    if (k->manager >= 0) /* one that does not listen misses it */
        (void)send(k->manager, lines, strlen(lines), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- messages ---- */

/* The rest of HELD, then GO. What the kernel has no room for is sent later. */
static void send_held(struct keeper *k)
{
    struct sp_keeper_message go = {
        .op = SP_KEEPER_GO,
        .key = k->generation,
        .a = (uint64_t)(k->generation > 1) << 32 | (uint32_t)k->last_status, /* enum sp_hold_role */
        .b = (uint64_t)getpid(),
    };
    int r = 0;

    for (; r == 0 && k->sent < k->count; k->sent += r == 0) {
        const struct kept *i = &k->kept[k->sent];
        struct sp_keeper_message m = {.op = SP_KEEPER_HELD, .count = i->count, .key = i->key};

        memcpy(m.text, i->text, sizeof m.text);
        r = sp_keeper_send(k->socket, false, m, i->fds);
    }
    if (r == 0 && sp_keeper_send(k->socket, false, go, NULL) == 0)
        k->stage = TOLD;
}

/* The present front is the last one. */
static void begin_ending(struct keeper *k)
{
    if (k->is_ending)
        return;
    k->is_ending = true;
    k->ending_due_ms = sp_clock_ms() + k->times->ending;
    tell_manager(k, "STOPPING=1");
}

static void on_message(struct keeper *k, const struct sp_keeper_message *m, const int *fds)
{
    if (m->op == SP_KEEPER_KEEP) {
        keep(k, m, fds);
        return;
    }
    sp_keeper_close_fds(fds, m->count);
    if (m->op == SP_KEEPER_HELLO && k->stage == SILENT) {
        k->stage = GREETED;
        send_held(k);
    } else if (m->op == SP_KEEPER_DROP) {
        drop(k, m->key);
    } else if (m->op == SP_KEEPER_READY && k->stage == TOLD) {
        k->stage = READY;
        k->due_ms = 0;
        k->early_deaths = 0;
        if (!k->was_ready)
            tell_manager(k, "READY=1");
        k->was_ready = true;
    } else if (m->op == SP_KEEPER_ENDING) {
        k->has_ended = true;
        k->status = (int)(m->a & 0xFF);
        begin_ending(k);
    }
}

static void read_messages(struct keeper *k)
{
    struct sp_keeper_message m;
    int fds[SP_KEEPER_FDS];
    int r = 0;

    while (k->socket >= 0 && (r = sp_keeper_recv(k->socket, false, &m, fds)) == 1)
        on_message(k, &m, fds);
    if (r < 0 && k->socket >= 0) { /* its death comes as a signal */
        (void)close(k->socket);
        k->socket = -1;
    }
}

/* ---- deaths ---- */

static void say_death(const struct keeper *k, int status, unsigned delay)
{
    const double age_s = (double)(sp_clock_ms() - k->began_ms) / 1000;
    const char *how = k->stage == READY ? "" : " before it was ready";
    char cause[60];

    if (WIFSIGNALED(status))
        (void)snprintf(cause, sizeof cause, "was killed by signal %d", WTERMSIG(status));
    else
        (void)snprintf(cause, sizeof cause, "ended with status %d", WEXITSTATUS(status));
    sp_log(SP_LOG_WARN, "front %llu %s after %.3f s%s; the next one starts in %u ms",
           (unsigned long long)k->generation, cause, age_s, how, delay);
}

/* Its messages have been read: what it had sent counts. */
static void note_death(struct keeper *k, int status)
{
    const uint64_t now = sp_clock_ms();
    const int code = WIFSIGNALED(status) ? FIRST_STATUS + WTERMSIG(status) : WEXITSTATUS(status);
    unsigned delay = 0;

    if (k->socket >= 0)
        (void)close(k->socket);
    k->socket = -1;
    k->front = -1;
    k->last_status = k->is_late ? SIGALRM : status;
    k->is_over = !k->was_ready ||
                 (k->is_ending && (WIFEXITED(status) || k->has_ended || k->ending_due_ms == 0));
    if (k->is_over) {
        k->status = k->has_ended && k->ending_due_ms != 0 ? k->status : code;
        return;
    }
    k->early_deaths = k->stage == READY ? 0 : k->early_deaths + 1;
    k->short_lives = now - k->began_ms >= k->times->long_life ? 0 : k->short_lives + 1;
    if (k->short_lives > 0)
        delay = k->times->delays[k->short_lives > SP_KEEPER_DELAYS ? SP_KEEPER_DELAYS - 1
                                                                   : k->short_lives - 1];
    if (k->is_ending)
        delay = 0;
    say_death(k, status, delay);
    k->stage = ABSENT;
    k->due_ms = now + delay;
    if (k->early_deaths == SP_KEEPER_MAX_EARLY) {
        sp_log(SP_LOG_ERROR, "%d fronts in a row have died before they were ready: giving up",
               SP_KEEPER_MAX_EARLY);
        k->is_over = true;
        k->status = SP_KEEPER_GAVE_UP;
    }
}

static void reap(struct keeper *k)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
        if (pid == k->front) {
            read_messages(k);
            note_death(k, status);
        }
}

/* ---- signals, deadlines ---- */

/* The terminal sends to both, which is harmless. Without a front, or if it is killed before it said
 * ENDING, another one is started to end what the last one has left. */
static void on_signal(struct keeper *k, int number)
{
    begin_ending(k);
    k->ender = number;
    if (k->stage == ABSENT)
        start_front(k);
    else if (k->front > 0)
        (void)kill(k->front, number);
}

static void read_signals(struct keeper *k)
{
    struct signalfd_siginfo info;

    while (!k->is_over && read(k->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGCHLD)
            reap(k);
        else
            on_signal(k, (int)info.ssi_signo);
}

static void watch_deadlines(struct keeper *k)
{
    const uint64_t now = sp_clock_ms();

    if (k->stage == ABSENT && now >= k->due_ms) {
        start_front(k);
    } else if (k->stage != ABSENT && k->due_ms != 0 && now >= k->due_ms) {
        sp_log(SP_LOG_ERROR, "the front is not ready after %u ms", k->times->ready);
        (void)kill(k->front, SIGKILL);
        k->due_ms = 0;
        k->is_late = true;
    }
    if (k->ending_due_ms != 0 && now >= k->ending_due_ms) {
        sp_log(SP_LOG_ERROR, "the front has not ended after %u ms", k->times->ending);
        if (k->front > 0)
            (void)kill(k->front, SIGKILL);
        k->ending_due_ms = 0;
    }
    if (k->stage == GREETED)
        send_held(k);
}

/* For poll: until the next deadline; -1: there is none. */
static int time_left(const struct keeper *k)
{
    const uint64_t now = sp_clock_ms();
    uint64_t due = UINT64_MAX;

    if (k->stage == ABSENT || k->due_ms != 0)
        due = k->due_ms;
    if (k->ending_due_ms != 0 && k->ending_due_ms < due)
        due = k->ending_due_ms;
    if (k->stage == GREETED && now + RETRY_MS < due)
        due = now + RETRY_MS;
    return due == UINT64_MAX ? -1 : due <= now ? 0 : (int)(due - now);
}

/* ---- life ---- */

/* Before anything is started. */
static int open_signals(struct keeper *k)
{
    static const int enders[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction now;
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN); /* stderr may be a pipe without a reader */
    (void)signal(SIGCHLD, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, NULL, &k->front_mask);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (unsigned i = 0; i < sizeof enders / sizeof enders[0]; i++) {
        const bool is_ignored = sigaction(enders[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN;

        if (is_ignored && enders[i] != SIGTERM) /* nohup */
            continue;
        sigaddset(&set, enders[i]);
        sigaddset(&k->front_mask, enders[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    k->signals = sp_fd_lift(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    return k->signals < 0 ? -1 : 0;
}

/* Commands and cells are killed for memory before the keeper. */
static void shield_from_oom(struct keeper *k)
{
    if (sp_read_text(k->oom_score, sizeof k->oom_score, "/proc/self/oom_score_adj") <= 0 ||
        atoi(k->oom_score) <= -900)
        k->oom_score[0] = 0;
    else
        write_oom_score("-900");
}

static int open_all(struct keeper *k)
{
    struct rlimit raised;

    open_manager(k);
    tzset(); /* what the log needs, while files may be opened */
    k->program = sp_fd_lift(open("/proc/self/exe", O_PATH | O_CLOEXEC));
    if (k->program < 0 || open_signals(k) < 0 || getrlimit(RLIMIT_NOFILE, &k->nofile) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return -1;
    raised = k->nofile;
    if (raised.rlim_cur < DESCRIPTORS)
        raised.rlim_cur = raised.rlim_max < DESCRIPTORS ? raised.rlim_max : DESCRIPTORS;
    (void)setrlimit(RLIMIT_NOFILE, &raised);
    shield_from_oom(k);
#ifndef __SANITIZE_ADDRESS__         /* LeakSanitizer attaches to the process at its end */
    (void)prctl(PR_SET_DUMPABLE, 0); /* we hold what reaches all commands */
#endif
    return 0;
}

int sp_keeper_run(const struct sp_keeper_options *o)
{
    struct keeper k = {
        .o = o, .socket = -1, .front = -1, .program = -1, .signals = -1, .manager = -1};

    k.times = o->times != NULL ? o->times : &usual_times;
    if (open_all(&k) < 0) {
        sp_log(SP_LOG_ERROR, "start the keeper: %s", sp_errno_text(errno));
        return EXIT_FAILURE;
    }
    for (;;) {
        watch_deadlines(&k);
        if (k.is_over)
            return k.status;
        struct pollfd waits[] = {{.fd = k.signals, .events = POLLIN},
                                 {.fd = k.socket, .events = POLLIN}};
        if (poll(waits, 2, time_left(&k)) < 0)
            continue;
        if (waits[1].revents != 0)
            read_messages(&k);
        read_signals(&k);
    }
}
