/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sallyport-bench: what an exec-server costs, beside what the kernel costs, in one run.
 */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/auto.h"
#include "cases.h"
#include "helper.h"
#include "spawn.h"

enum { CASE_LIMIT_S = 120, LONG_CASE_LIMIT_S = 3600 };

static const char help[] =
    "Usage: sallyport-bench [--server CMD | --url URL] [--peer CMD] [options]\n"
    "\n"
    "Measures an exec-server, with the raw kernel limit beside each figure.\n"
    "Without a server it measures the raw limits alone.\n"
    "\n"
    "  --server CMD     command line of the server; its first line of output is its URL\n"
    "  --url URL        a server that runs already (as it printed it, on loopback; unix:///PATH)\n"
    "  --peer CMD       another server, measured in turn with the first\n"
    "  --binary PATH    the server's file, for its stripped size (default: what runs)\n"
    "  --only NAME,…    these cases only:\n";

static const char help_end[] =
    "  --quick          fewer and shorter rounds\n"
    "  --json           print JSON instead of tables\n"
    "  --check          exit with 1 if a limit is missed, or a server failed\n"
    "  --help           this text\n"
    "\n"
    "Example: sallyport-bench --server 'build/sallyport serve --listen ws://127.0.0.1:0'\n";

static const struct one_case {
    const char *name;
    const char *text;
    void (*run)(struct bench *);
    bool is_long;
} cases[] = {
#define X(name, text) {#name, text, bench_case_##name, false},
    BENCH_CASES(X)
#undef X
#define X(name, text) {#name, text, bench_case_##name, true},
        BENCH_LONG_CASES(X)
#undef X
};

enum { CASES = sizeof cases / sizeof cases[0] };

struct options {
    struct bench bench;
    const char *only;
    double busy;
    bool is_json;
    bool is_check;
};

static void print_help(void)
{
    (void)fputs(help, stdout);
    for (int i = 0; i < CASES; i++)
        (void)printf("                     %-14s%s\n", cases[i].name, cases[i].text);
    (void)fputs(help_end, stdout);
}

/* Is the name one of the words of this list? */
static bool is_listed(const char *list, const char *name)
{
    const size_t n = strlen(name);

    for (const char *p = list; *p != 0; p += *p == ',') {
        const size_t word = strcspn(p, ",");

        if (word == n && memcmp(p, name, n) == 0)
            return true;
        p += word;
    }
    return false;
}

/* Every word of the list must be the name of a case. */
static bool check_list(const char *list)
{
    for (const char *p = list; *p != 0; p += *p == ',') {
        const size_t word = strcspn(p, ",");
        bool is_known = false;

        for (int i = 0; i < CASES; i++)
            is_known |= strlen(cases[i].name) == word && memcmp(p, cases[i].name, word) == 0;
        if (!is_known) {
            (void)fprintf(stderr, "sallyport-bench: no such case: %.*s (see --help)\n", (int)word,
                          p);
            return false;
        }
        p += word;
    }
    return true;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"server", required_argument, NULL, 's'}, {"url", required_argument, NULL, 'u'},
        {"peer", required_argument, NULL, 'p'},   {"binary", required_argument, NULL, 'b'},
        {"only", required_argument, NULL, 'o'},   {"quick", no_argument, NULL, 'q'},
        {"json", no_argument, NULL, 'j'},         {"check", no_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},         {0},
    };

    for (int c; (c = getopt_long(argc, argv, "h", known, NULL)) != -1;)
        switch (c) {
        case 's':
            o->bench.command[BENCH_OURS] = optarg;
            break;
        case 'u':
            o->bench.url = optarg;
            break;
        case 'p':
            o->bench.command[BENCH_PEER] = optarg;
            break;
        case 'b':
            o->bench.binary = optarg;
            break;
        case 'o':
            o->only = optarg;
            break;
        case 'q':
            o->bench.is_quick = true;
            break;
        case 'j':
            o->is_json = true;
            break;
        case 'c':
            o->is_check = true;
            break;
        case 'h':
            print_help();
            return 0;
        default:
            (void)fputs("Try 'sallyport-bench --help'.\n", stderr);
            return 2;
        }
    if (optind < argc) {
        (void)fprintf(stderr, "sallyport-bench: what is '%s'? (see --help)\n", argv[optind]);
        return 2;
    }
    if (o->bench.url != NULL && o->bench.command[BENCH_OURS] != NULL) {
        (void)fputs("sallyport-bench: give --server or --url, not both\n", stderr);
        return 2;
    }
    return o->only == NULL || check_list(o->only) ? -1 : 2;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    (void)remove(path); /* what cannot be removed is not ours */
    return 0;
}

/* Time the processors had work, and all time, in ticks. */
static void cpu_ticks(double *ret_busy, double *ret_all)
{
    double v[8] = {0};
    FILE *f = fopen("/proc/stat", "re");

    *ret_busy = *ret_all = 0;
    if (f == NULL)
        return;
    if (fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5],
               &v[6], &v[7]) == 8)
        for (int i = 0; i < 8; i++) {
            *ret_all += v[i];
            *ret_busy += i == 3 || i == 4 ? 0 : v[i]; /* idle, waiting for a disk */
        }
    (void)fclose(f);
}

/* The part of the machine that others use now; figures of a busy machine say little. */
static double others_use(void)
{
    double busy[2];
    double all[2];

    cpu_ticks(&busy[0], &all[0]);
    (void)poll(NULL, 0, 500);
    cpu_ticks(&busy[1], &all[1]);
    return all[1] > all[0] ? (busy[1] - busy[0]) / (all[1] - all[0]) : 0;
}

static void print_top(const struct bench *b, double busy)
{
    struct utsname u;

    if (uname(&u) == 0)
        (void)printf("%s %s, %ld processors, %.0f %% busy before the run%s\n", u.sysname, u.release,
                     sysconf(_SC_NPROCESSORS_ONLN), busy * 100, busy > 0.1 ? ": expect noise" : "");
    if (b->command[BENCH_OURS] != NULL || b->url != NULL)
        (void)printf("ours: %s\n",
                     b->url != NULL ? "a server that runs already" : b->command[BENCH_OURS]);
    if (b->command[BENCH_PEER] != NULL)
        (void)printf("peer: %s\n", b->command[BENCH_PEER]);
    (void)fputc('\n', stdout);
}

static void run_cases(struct options *o)
{
    const bool is_watched = isatty(STDERR_FILENO) == 1;

    for (int i = 0; i < CASES && !bench_is_stopped(); i++) {
        const int limit_s = cases[i].is_long ? LONG_CASE_LIMIT_S : CASE_LIMIT_S;

        if (o->only == NULL ? cases[i].is_long : !is_listed(o->only, cases[i].name))
            continue;
        if (is_watched)
            (void)fprintf(stderr, "\r\033[K%s…", cases[i].name);
        o->bench.case_name = cases[i].name;
        bench_spawn_limit((unsigned)limit_s);
        cases[i].run(&o->bench);
        bench_spawn_limit(0);
        if (bench_stop_signal() == SIGALRM)
            (void)fprintf(stderr, "sallyport-bench: %s took longer than %d s\n", cases[i].name,
                          limit_s);
    }
    if (is_watched)
        (void)fputs("\r\033[K", stderr);
}

static int print_all(struct options *o)
{
    const bool has_ours = o->bench.command[BENCH_OURS] != NULL || o->bench.url != NULL;
    const bool has_peer = o->bench.command[BENCH_PEER] != NULL;

    if (o->is_json)
        return bench_report_json(&o->bench.report, stdout);
    print_top(&o->bench, o->busy);
    bench_report_table(&o->bench.report, has_ours, has_peer, stdout);
    if (!has_ours)
        return 0;
    if (has_peer)
        (void)puts("\nx peer: how many times better ours is.");
    (void)puts("\nLimits");
    return bench_report_checks(&o->bench.report, has_peer, o->only == NULL, stdout);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    char self[4096];
    char scratch[4096];
    char memory[] = "/dev/shm/sallyport-bench.XXXXXX";
    const char *tmp = getenv("TMPDIR");

    if (argc > 1 && strcmp(argv[1], "--helper") == 0)
        return bench_helper_main(argc - 2, argv + 2);

    const int done = parse(argc, argv, &o);
    if (done >= 0)
        return done;

    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    bench_spawn_init();
    (void)snprintf(scratch, sizeof scratch, "%s/sallyport-bench.XXXXXX",
                   tmp != NULL && tmp[0] != 0 ? tmp : "/tmp");
    if (mkdtemp(scratch) == NULL || setenv("CODEX_HOME", scratch, 1) < 0) {
        (void)fprintf(stderr, "sallyport-bench: make %s: %s\n", scratch, strerror(errno));
        return 1;
    }
    o.bench.self = self;
    o.bench.scratch = scratch;
    o.bench.memory = mkdtemp(memory) != NULL ? memory : scratch;
    o.bench.turn_ns = (o.bench.is_quick ? 100 : 200) * BENCH_MS;
    o.bench.rounds = o.bench.is_quick ? 3 : 9;
    o.bench.max_starts = o.bench.url != NULL ? 1000 : 7500;
    bench_report_init(&o.bench.report);
    o.busy = others_use();
    run_cases(&o);
    (void)bench_spawn_sweep();
    (void)nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    (void)nftw(o.bench.memory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (bench_is_stopped())
        return bench_stop_signal() == SIGALRM ? 1 : 128 + bench_stop_signal();

    const int missed = print_all(&o);
    return o.is_check && (missed > 0 || o.bench.failures > 0) ? 1 : 0;
}
