/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: a managed network, beside loopback without one. The command is this program
 * (network_load.h) in `sallyport sandbox`; names lead to loopback by the table of the program for
 * tests, which is built beside the server. At the peer it is a command of its server, and reaches
 * 127.0.0.1, which is on the list, by the proxy that its variables name.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "cases.h"
#include "memory.h"
#include "network_load.h"
#include "spawn.h"

enum { TABLE_BYTES = 8192, COLD_STARTS = 40, ROUNDS = 5, ROUND_LIMIT_S = 120 };

/* A figure of each round; the report gets the middle one. */
static struct bench_samples figures[BENCH_M_MAX][BENCH_SIDES];

static void note(enum bench_metric m, enum bench_side side, double value)
{
    if (m != BENCH_M_MAX && isfinite(value))
        bench_samples_add(&figures[m][side], value);
}

/* A helper of ours, in a cell or outside. */
struct load {
    struct bench_kid kid;
    pid_t peer; /* the server that runs it; 0: the kid does */
    int to;
    FILE *from;
};

static void end_load(struct load *l)
{
    if (l->to >= 0)
        (void)close(TAKE_FD(l->to));
    if (l->from != NULL)
        (void)fclose(TAKE_PTR(l->from));
    if (l->kid.pid != 0)
        bench_kid_end(&l->kid, SIGTERM);
}

static int start_load(struct load *l, const char *const *argv, char *const *envp, struct sp_err *e)
{
    int to[2];
    int from[2];

    *l = (struct load){.to = -1};
    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
        return sp_fail(e, SP_E_SYSTEM, 0, "make a pipe");
    const struct bench_spawn s = {.argv = (char *const *)(uintptr_t)argv,
                                  .envp = envp,
                                  .stdio = {to[0], from[1], -1},
                                  .death_signal = SIGTERM};
    const int r = bench_spawn(&s, &l->kid, e);
    (void)close(to[0]);
    (void)close(from[1]);
    l->to = to[1];
    l->from = fdopen(from[0], "re");
    if (r == 0)
        bench_kid_enlist(&l->kid, SIGTERM);
    return r;
}

/* ---- the processes of the network ---- */

/* The child of the front that runs this command of sallyport; 0: none. */
static pid_t find_helper(pid_t front, const char *verb)
{
    char path[64];
    int pid = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)front, (int)front);
    FILE *children = fopen(path, "re");
    while (children != NULL && fscanf(children, "%d", &pid) == 1) {
        char words[128] = "";

        (void)snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
        const ssize_t n = fd < 0 ? -1 : read(fd, words, sizeof words - 1);
        const char *second = n > 0 ? words + strlen(words) + 1 : words;
        if (n > 0 && strcmp(second, verb) == 0)
            break;
        pid = 0;
    }
    if (children != NULL)
        (void)fclose(children);
    return pid;
}

/* Seconds on a processor. */
static double cpu_of(pid_t pid)
{
    char path[64];
    double ns = (double)NAN;

    (void)snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f != NULL && fscanf(f, "%lf", &ns) != 1)
        ns = (double)NAN;
    if (f != NULL)
        (void)fclose(f);
    return ns / 1e9;
}

/* Sum of these lines of its status, in bytes. Unlike smaps it can be read of any process. */
static double memory_of(pid_t pid, const char *first, const char *second)
{
    char line[256];
    char path[64];
    double sum = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return (double)NAN;
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, first, strlen(first)) == 0 || strncmp(line, second, strlen(second)) == 0)
            sum += strtod(strchr(line, ':') + 1, NULL) * 1024;
    (void)fclose(f);
    return sum;
}

/* ---- one run of the load ---- */

struct rows {
    enum bench_metric connect, echo, stream, many;
};

static void keep(enum bench_side side, const struct rows *rows, const char *name, double value)
{
    const struct {
        const char *name;
        enum bench_metric m;
    } known[] = {{"connect", rows->connect},   {"echo", rows->echo},
                 {"stream", rows->stream},     {"many", rows->many},
                 {"first", BENCH_M_NET_FIRST}, {"dns", BENCH_M_NET_DNS}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i].name) == 0)
            note(known[i].m, side, value);
}

/* Its proxy is part of its server, and of a process in each sandbox. */
static void look_at_peer(const struct load *l, const char *name, double bytes, double *cpu)
{
    struct bench_memory m = {0};
    struct sp_err e = {0};

    if (bench_memory_of(l->peer, &m, &e) < 0)
        return;
    if (strcmp(name, "stream") == 0)
        *cpu = m.cpu_seconds;
    if (strcmp(name, "streamed") == 0)
        note(BENCH_M_NET_CPU, BENCH_PEER, (m.cpu_seconds - *cpu) / bytes * 1e9);
}

/* Looks at the proxy while the load waits. */
static void look(const struct load *l, const char *name, double bytes, double *cpu)
{
    const pid_t proxy = find_helper(l->kid.pid, "proxy");

    if (l->peer != 0)
        look_at_peer(l, name, bytes, cpu);
    if (proxy == 0)
        return;
    if (strcmp(name, "idle") == 0)
        note(BENCH_M_NET_IDLE, BENCH_OURS,
             memory_of(proxy, "RssAnon", "RssShmem") +
                 memory_of(find_helper(l->kid.pid, "resolver"), "RssAnon", "RssShmem"));
    if (strcmp(name, "stream") == 0)
        *cpu = cpu_of(proxy);
    if (strcmp(name, "streamed") == 0)
        note(BENCH_M_NET_CPU, BENCH_OURS, (cpu_of(proxy) - *cpu) / bytes * 1e9);
    if (strcmp(name, "many") == 0)
        note(BENCH_M_NET_RSS, BENCH_OURS, memory_of(proxy, "VmRSS", "VmRSS"));
}

static int run_load(struct load *l, enum bench_side side, const struct rows *rows, double bytes,
                    struct sp_err *e)
{
    char name[64];
    char value[64];
    double cpu = 0;

    while (fscanf(l->from, "%63s %63s", name, value) == 2) {
        if (strcmp(name, "end") == 0)
            return strcmp(value, "1") == 0
                       ? 0
                       : sp_fail(e, SP_E_FAILED, 0, "a connection failed, or a byte was lost");
        if (strcmp(name, "mark") != 0) {
            keep(side, rows, name, strtod(value, NULL));
            continue;
        }
        look(l, value, bytes, &cpu);
        if (write(l->to, "\n", 1) != 1)
            break;
    }
    return sp_fail(e, SP_E_FAILED, 0, "the load in the sandbox ended early");
}

/* ---- the case ---- */

static void make_table(unsigned port, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size,
                                "SALLYPORT_TEST_HOSTS=bench.test=127.0.0.1*,"
                                "bench.test:22=127.0.0.1:%u*",
                                port);

    for (int i = 0; i < BENCH_NET_FIRST && n < size; i++)
        n += (size_t)snprintf(out + n, size - n,
                              ",n%d.bench.test=127.0.0.1*,n%d.bench.test:22=127.0.0.1:%u*", i, i,
                              port);
}

/* way NULL: `/bin/true`, with the network or (raw) without one. */
static int start_inside(struct bench *b, const char *program, const char *way, unsigned port,
                        const char *bytes, bool is_managed, struct load *ret, struct sp_err *e)
{
    static char table[TABLE_BYTES];
    char home[4200];
    char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
    char number[16];
    char *const envp[] = {path, home, table, NULL};
    const char *argv[16] = {program, "sandbox", "--no-tty", "--cwd", b->scratch};
    size_t n = 5;

    (void)snprintf(home, sizeof home, "HOME=%s", b->scratch);
    (void)snprintf(number, sizeof number, "%u", port);
    make_table(port, table, sizeof table);
    if (is_managed) {
        argv[n++] = "--allow-host";
        argv[n++] = "**.bench.test";
    }
    argv[n++] = "--";
    if (way == NULL) {
        argv[n++] = "/bin/true";
    } else {
        argv[n++] = b->self;
        argv[n++] = "--helper";
        argv[n++] = "network";
        argv[n++] = way;
        argv[n++] = number;
        argv[n++] = bytes;
    }
    return start_load(ret, argv, envp, e);
}

/* ---- at the peer ---- */

static void make_start(const struct bench *b, char *policy, size_t size)
{
    (void)snprintf(
        policy, size,
        "{\"permissions\":{\"type\":\"managed\",\"network\":\"enabled\",\"file_system\":{"
        "\"type\":\"restricted\",\"entries\":["
        "{\"path\":{\"type\":\"special\",\"value\":{\"kind\":\"root\"}},\"access\":\"read\"},"
        "{\"path\":{\"type\":\"special\",\"value\":{\"kind\":\"project_roots\"}},"
        "\"access\":\"write\"}]}},"
        "\"cwd\":\"file://%s\",\"workspaceRoots\":[\"file://%s\"],"
        "\"windowsSandboxLevel\":\"disabled\"}",
        b->scratch, b->scratch);
}

/* Waits for the first bytes of a command that has yet to be started; blocks from then on. */
static int await_load(struct load *l, int fd, struct sp_err *e)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const int flags = fcntl(fd, F_GETFL);

    l->from = fdopen(fd, "re");
    return poll(&p, 1, 20000) == 1 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0
               ? 0
               : sp_fail(e, SP_E_FAILED, 0, "the load at the peer says nothing");
}

/* Over two named pipes in the workspace. */
static int start_at_peer(struct bench *b, struct bench_seat *s, unsigned port, const char *bytes,
                         struct load *ret, struct sp_err *e)
{
    static const char network_proxy[] =
        "{\"proxy\":{\"enabled\":true,\"enableSocks5\":true,\"enableSocks5Udp\":false,"
        "\"allowUpstreamProxy\":false,\"dangerouslyAllowAllUnixSockets\":false,\"mode\":\"full\","
        "\"domains\":{\"127.0.0.1\":\"allow\"},\"unixSockets\":null,\"allowLocalBinding\":true},"
        "\"environmentId\":\"bench\",\"executionId\":\"bench\"}";
    char in[4200];
    char out[4200];
    char number[16];
    char policy[10240];
    int64_t id;

    *ret = (struct load){.to = -1, .peer = s->server.kid.pid};
    (void)snprintf(number, sizeof number, "%u", port);
    (void)snprintf(in, sizeof in, "%s/peer.in", b->scratch);
    (void)snprintf(out, sizeof out, "%s/peer.out", b->scratch);
    make_start(b, policy, sizeof policy);
    if ((mkfifo(in, 0600) < 0 && errno != EEXIST) || (mkfifo(out, 0600) < 0 && errno != EEXIST))
        return sp_fail(e, SP_E_SYSTEM, errno, "make %s", in);
    ret->to = open(in, O_RDWR | O_CLOEXEC);
    auto_close int from = open(out, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (ret->to < 0 || from < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open %s", in);
    const char *const argv[] = {"/bin/sh", "-c",       "exec \"$@\" <\"$0\" >\"${0%.in}.out\"",
                                in,        b->self,    "--helper",
                                "network", "variable", number,
                                bytes,     NULL};
    const struct bench_command cmd = {
        .argv = argv, .sandbox = policy, .network_proxy = network_proxy};
    int r = bench_client_start(s->client, ++s->procs, &cmd, &id, e);
    if (r == 0)
        r = bench_seat_await(s, id, e);
    return r < 0 ? r : await_load(ret, TAKE_FD(from), e);
}

/* A peer that fails leaves; the others go on. */
static void take_round_of_peer(struct bench *b, struct bench_seat *s, unsigned port)
{
    static const struct rows rows = {BENCH_M_NET_CONNECT, BENCH_M_NET_ECHO, BENCH_M_NET_STREAM,
                                     BENCH_M_NET_MANY};
    const char *bytes = b->is_quick ? "268435456" : "4294967296";
    struct load l = {.to = -1};
    struct sp_err e = {0};

    bench_client_deadline(s->client, 60 * BENCH_S);
    int r = start_at_peer(b, s, port, bytes, &l, &e);
    if (r == 0)
        r = run_load(&l, BENCH_PEER, &rows, strtod(bytes, NULL), &e);
    end_load(&l);
    if (r < 0)
        bench_seat_drop(b, s, &e);
}

/* A whole `sallyport sandbox` of /bin/true: cell, and with a network its processes, are new. */
static int cold_starts(struct bench *b, const char *program, struct sp_err *e)
{
    struct bench_samples s[2] = {0};
    int r = 0;

    for (int i = 0; r == 0 && i < 2 * COLD_STARTS && !bench_is_stopped(); i++) {
        struct load l;
        const uint64_t begin = bench_now();

        r = start_inside(b, program, NULL, 0, NULL, i % 2 == 0, &l, e);
        if (r == 0)
            r = bench_kid_reap(&l.kid, 10 * BENCH_S, NULL, e);
        bench_samples_add(&s[i % 2], bench_seconds_since(begin));
        end_load(&l);
    }
    note(BENCH_M_NET_COLD, BENCH_OURS, bench_samples_at(&s[0], 0.5));
    note(BENCH_M_NET_COLD, BENCH_RAW, bench_samples_at(&s[1], 0.5));
    bench_samples_done(&s[0]);
    bench_samples_done(&s[1]);
    return r;
}

static int take_round(struct bench *b, const char *program, unsigned port, struct sp_err *e)
{
    static const struct rows by_name = {BENCH_M_NET_NAME, BENCH_M_NET_ECHO, BENCH_M_NET_STREAM,
                                        BENCH_M_NET_MANY};
    static const struct rows by_connect = {BENCH_M_NET_CONNECT, BENCH_M_MAX, BENCH_M_MAX,
                                           BENCH_M_MAX};
    const char *bytes = b->is_quick ? "268435456" : "4294967296";
    char number[16];
    const char *const direct[] = {b->self, "--helper", "network", "direct", number, bytes, NULL};
    struct load l;

    (void)snprintf(number, sizeof number, "%u", port);
    int r = start_load(&l, direct, NULL, e);
    if (r == 0)
        r = run_load(&l, BENCH_RAW, &by_name, strtod(bytes, NULL), e);
    end_load(&l);
    if (program == NULL)
        return r;
    if (r == 0)
        r = start_inside(b, program, "connect", port, "1048576", true, &l, e);
    if (r == 0) {
        r = run_load(&l, BENCH_OURS, &by_connect, 1048576, e);
        end_load(&l);
    }
    if (r == 0)
        r = start_inside(b, program, "name", port, bytes, true, &l, e);
    if (r == 0) {
        r = run_load(&l, BENCH_OURS, &by_name, strtod(bytes, NULL), e);
        end_load(&l);
    }
    return r;
}

static void report_figures(struct bench *b)
{
    for (int m = BENCH_M_NET_NAME; m <= BENCH_M_NET_COLD; m++)
        for (int side = 0; side < BENCH_SIDES; side++)
            if (figures[m][side].n != 0) {
                b->report.v[m][side] = bench_samples_at(&figures[m][side], 0.5);
                bench_samples_done(&figures[m][side]);
            }
    b->report.v[BENCH_M_NET_CONNECT][BENCH_RAW] = b->report.v[BENCH_M_NET_NAME][BENCH_RAW];
    b->report.v[BENCH_M_NET_FIRST][BENCH_RAW] = b->report.v[BENCH_M_NET_NAME][BENCH_RAW];
}

/* The program for tests lies in tests/ beside the server's file. */
static bool find_program(struct bench *b, char *ret, size_t size, struct sp_err *e)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .no_raw = true};
    struct bench_seat seat = {0};
    char server[4096];
    bool is_there = false;

    if (b->command[BENCH_OURS] == NULL || bench_seat_open(b, &seat, BENCH_OURS, &o, e) < 0)
        return false;
    if (bench_seat_program(&seat, server, sizeof server, e) == 0) {
        char *slash = strrchr(server, '/');

        *slash = 0;
        (void)snprintf(ret, size, "%s/tests/sallyport-test-hosts", server);
        is_there = access(ret, X_OK) == 0;
        if (!is_there)
            (void)fprintf(stderr, "sallyport-bench: network: %s is not built\n", ret);
    }
    bench_seat_close(&seat);
    return is_there;
}

void bench_case_network(struct bench *b)
{
    const char *const argv[] = {b->self, "--helper", "network-server", NULL};
    char program[4200];
    struct load server;
    struct sp_err e = {0};
    unsigned port = 0;
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .no_raw = true};
    struct bench_seat peer = {.side = BENCH_PEER, .server = {.out = -1, .err = -1}};
    const bool has_ours = find_program(b, program, sizeof program, &e);
    int r = start_load(&server, argv, NULL, &e);

    if (r == 0 && fscanf(server.from, "%u", &port) != 1)
        r = sp_fail(&e, SP_E_FAILED, 0, "the server of the load does not start");
    if (b->command[BENCH_PEER] != NULL && bench_seat_open(b, &peer, BENCH_PEER, &o, &e) < 0)
        bench_seat_drop(b, &peer, &e);
    for (int i = 0; r == 0 && i < ROUNDS && !bench_is_stopped(); i++) {
        bench_spawn_limit(ROUND_LIMIT_S); /* the case as a whole takes longer on a busy machine */
        r = take_round(b, has_ours ? program : NULL, port, &e);
        if (r == 0 && peer.is_on)
            take_round_of_peer(b, &peer, port);
    }
    bench_seat_close(&peer);
    if (r == 0 && has_ours)
        r = cold_starts(b, program, &e);
    report_figures(b);
    if (r < 0) {
        (void)fprintf(stderr, "sallyport-bench: network: %s\n", e.msg);
        b->failures++;
    }
    end_load(&server);
}
