/* SPDX-License-Identifier: Apache-2.0 */
#include "modes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void rest(void)
{
    for (;;)
        (void)pause();
}

/* A victim for its neighbours. */
static _Noreturn void victim(void)
{
    printf("%d\n", (int)getpid());
    rest();
}

/* n processes, each forked by the one before or by the first: they stay. */
static _Noreturn void bomb(int n)
{
    int made = 0;

    while (made < n) {
        const pid_t child = fork();

        if (child == 0)
            rest();
        if (child < 0)
            break;
        made++;
    }
    printf("%d\n", made);
    rest();
}

/* One that leaves its parent, its session and its group, and hears no polite signal. With `stays`
 * the first process stays as well. */
static int daemonise(bool stays)
{
    if (fork() == 0) {
        (void)setsid();
        if (fork() != 0)
            _exit(0);
        for (int sig = 1; sig < 32; sig++)
            (void)signal(sig, SIG_IGN);
        (void)setsid();
        printf("%d\n", (int)getpid());
        for (int fd = 0; fd < 3; fd++)
            (void)close(fd);
        rest();
    }
    (void)wait(NULL);
    if (stays)
        rest();
    (void)usleep(
        200000); /* it has spoken by then, or its words come after our end: both are well */
    return 0;
}

/* A child that keeps the terminal after we have gone. */
static int hold_terminal(void)
{
    if (fork() == 0) {
        (void)signal(SIGHUP, SIG_IGN);
        printf("%d\n", (int)getpid());
        rest();
    }
    (void)usleep(200000);
    return 0;
}

/* Exchanges two names as fast as half a core allows, until stdin ends. */
static int swap(const char *a, const char *b)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    const struct timespec nap = {.tv_nsec = 100000};
    long n = 0;

    for (;;) {
        if (renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0)
            n++;
        if (n % 8 == 0) {
            if (poll(&in, 1, 0) != 0)
                break;
            (void)nanosleep(&nap, NULL);
        }
    }
    printf("%ld\n", n);
    return 0;
}

/* Whether this host lets this user make the namespaces that a sandbox is built of. */
static int probe(void)
{
    return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC) == 0
               ? 0
               : errno;
}

int run_mode(const char *verb, char **args)
{
    const char *first = args[0] != NULL ? args[0] : "";

    if (strcmp(verb, "euid") == 0)
        return geteuid() != getuid() || getegid() != getgid();
    if (strcmp(verb, "pause") == 0)
        victim();
    if (strcmp(verb, "bomb") == 0)
        bomb(atoi(first));
    if (strcmp(verb, "daemon") == 0)
        return daemonise(strcmp(first, "stays") == 0);
    if (strcmp(verb, "hold") == 0)
        return hold_terminal();
    if (strcmp(verb, "probe") == 0)
        return probe();
    if (strcmp(verb, "swap") == 0 && args[0] != NULL && args[1] != NULL)
        return swap(args[0], args[1]);
    (void)fprintf(stderr,
                  "usage: escape try|list|again|euid|pause|bomb|daemon|hold|probe|swap ...\n");
    return 2;
}
