/* SPDX-License-Identifier: Apache-2.0 */
/*
 * puppet: a program that does what its first argument says, for tests of how programs are started
 * and ended. Whatever it starts inherits its stdout: when that reads as ended, all of it is gone.
 *
 *   report             what it was born with, a line each
 *   strings            its arguments and environment, a line each
 *   pause              nothing, until it is killed
 *   wide N             N children that pause
 *   deep N             a chain of N generations that pause
 *   daemons N          N processes in sessions of their own that ignore every polite signal
 *   hop N K            N processes that replace themselves by a child K times, as daemons do
 *   bomb N             forks N processes, from every process that it has forked
 *   zombies N K        N dead children that nobody reaps, then hop 2 K
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void rest(void)
{
    for (;;)
        (void)pause();
}

static void say(const char *text)
{
    (void)!write(1, text, strlen(text));
}

static void report_status(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];

    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "SigBlk", 6) == 0 || strncmp(line, "SigIgn", 6) == 0 ||
            strncmp(line, "SigCgt", 6) == 0)
            printf("%.6s=%s", line, strrchr(line, '\t') + 1);
    if (f != NULL)
        (void)fclose(f);
}

static void report_fds(void)
{
    DIR *d = opendir("/proc/self/fd");

    printf("fds=");
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d))
            printf("%s,", e->d_name);
    printf("\n");
    if (d != NULL)
        (void)closedir(d);
}

static void report(void)
{
    char cwd[4096];
    struct rlimit limit;
    struct winsize size = {0};
    int death = 0;
    int reaper = 0;
    pid_t session = -1;

    report_fds(); /* before stdio opens anything */
    printf("pid=%d\nppid=%d\nsid=%d\npgid=%d\n", (int)getpid(), (int)getppid(), (int)getsid(0),
           (int)getpgid(0));
    printf("cwd=%s\n", getcwd(cwd, sizeof cwd) != NULL ? cwd : "?");
    (void)prctl(PR_GET_PDEATHSIG, &death);
    (void)prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    printf("pdeathsig=%d\nsubreaper=%d\nnofile=%llu,%llu\n", death, reaper,
           (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    report_status();
    (void)ioctl(0, TIOCGSID, &session);
    (void)ioctl(0, TIOCGWINSZ, &size);
    printf("tty=%d%d%d\nctty=%d\nforeground=%d\nsize=%ux%u\n", isatty(0), isatty(1), isatty(2),
           (int)session, (int)tcgetpgrp(0), size.ws_row, size.ws_col);
    printf("end\n");
}

static void strings(char **argv)
{
    for (; *argv != NULL; argv++)
        printf("arg=%s\n", *argv);
    for (char **e = environ; *e != NULL; e++)
        printf("env=%s\n", *e);
    printf("end\n");
}

static void wide(int n)
{
    for (int i = 0; i < n; i++)
        if (fork() == 0)
            rest();
}

/* A fork takes longer with each generation since the last execve, which takes longer than a fork:
 * every 32nd generation is a new program. */
static void deep(int n)
{
    char left[16];

    while (n > 0 && fork() == 0)
        if (--n % 32 == 0 && n > 0) {
            (void)snprintf(left, sizeof left, "%d", n);
            (void)execl("/proc/self/exe", "puppet", "deep", left, (char *)NULL);
            _exit(127);
        }
    if (n == 0)
        say("ready\n");
    rest();
}

static void deafen(void)
{
    for (int sig = 1; sig < 32; sig++)
        (void)signal(sig, SIG_IGN);
}

static void daemons(int n)
{
    for (int i = 0; i < n; i++)
        if (fork() == 0) {
            deafen();
            (void)setsid();
            if (fork() != 0)
                _exit(0);
            (void)setsid();
            rest();
        }
    while (n > 0 && wait(NULL) > 0)
        n--;
}

static void hop(int n, int k)
{
    for (int i = 0; i < n; i++)
        if (fork() == 0) {
            deafen();
            while (k-- > 0)
                if (fork() != 0)
                    _exit(0);
            rest();
        }
}

static void bomb(int n)
{
    _Atomic int *left = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    atomic_store(left, n);
    if (fork() != 0)
        return;
    while (atomic_fetch_sub(left, 1) > 0)
        if (fork() < 0)
            break;
    rest();
}

static int number(char **argv, int i)
{
    return argv[i] != NULL ? atoi(argv[i]) : 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "report") == 0) {
        report();
        return 0;
    }
    if (strcmp(what, "strings") == 0) {
        strings(argv);
        return 0;
    }
    if (strcmp(what, "wide") == 0)
        wide(number(argv, 2));
    else if (strcmp(what, "deep") == 0)
        deep(number(argv, 2));
    else if (strcmp(what, "daemons") == 0)
        daemons(number(argv, 2));
    else if (strcmp(what, "hop") == 0)
        hop(number(argv, 2), number(argv, 3));
    else if (strcmp(what, "bomb") == 0)
        bomb(number(argv, 2));
    else if (strcmp(what, "zombies") == 0) {
        for (int i = number(argv, 2); i > 0; i--)
            if (fork() == 0)
                _exit(0);
        hop(2, number(argv, 3));
    } else if (strcmp(what, "pause") != 0) {
        return 2;
    }
    say("ready\n");
    rest();
}
