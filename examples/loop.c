/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Third lesson: an engine in a program that has an event loop of its own, with several commands at
 * once, here or on another machine.
 *
 *     loop [--on NAME|URL] SCRIPT...
 *
 * runs all scripts side by side and prints each line of output behind the number of its script. Our
 * own loop has something else to do as well: a clock that ticks ten times a second.
 *
 *     cc loop.c $(pkg-config --cflags --libs sallyport) -o loop
 *     ./loop 'for i in 1 2 3; do echo $i; sleep 0.2; done' 'uname -n' 'exit 4'
 *     ./loop --on ws://127.0.0.1:8765 'uname -n'
 */
#include <poll.h>
#include <sallyport.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int left;       /* commands that have not been answered */
static int worst_code; /* the highest exit code */

/* Output comes in pieces, which need not be lines. */
static void on_event(void *user, const struct sp_event *event)
{
    (void)user;
    if (event->kind == SP_EVENT_OUTPUT)
        (void)printf("%llu: %.*s", (unsigned long long)event->call, (int)event->byte_count,
                     event->bytes);
}

static void on_answer(void *user, const struct sp_answer *answer)
{
    const char *script = user;

    if (answer->outcome == SP_OUTCOME_FAILED)
        (void)fprintf(stderr, "loop: %s: %s\n", script, answer->error);
    else
        (void)printf("%llu: code %d after %.1f s\n", (unsigned long long)answer->call,
                     answer->exit_code, (double)answer->wall_ns / 1e9);
    if (answer->exit_code < 0 || answer->exit_code > worst_code)
        worst_code = answer->exit_code < 0 ? 125 : answer->exit_code;
    left--;
}

static int begin(struct sp_engine *engine, char *script, struct sp_error *error)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_run_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 60000};

    left++;
    return sp_engine_run(engine, &options, on_answer, script, NULL, error);
}

/* The loop that this program would have anyway, with one descriptor more. */
static int loop(struct sp_engine *engine, int clock_fd, struct sp_error *error)
{
    struct pollfd fds[] = {
        {.fd = clock_fd, .events = POLLIN},
        {.fd = sp_engine_fd(engine), .events = POLLIN},
    };
    uint64_t ticks = 0;
    uint64_t n;

    while (left > 0) {
        if (poll(fds, 2, -1) < 0)
            continue; /* a signal */
        if ((fds[0].revents & POLLIN) != 0 && read(clock_fd, &n, sizeof n) == (ssize_t)sizeof n)
            ticks += n;
        if ((fds[1].revents & POLLIN) != 0 && sp_engine_dispatch(engine, 0, error) < 0)
            return -1;
    }
    (void)fprintf(stderr, "loop: the clock ticked %llu times meanwhile\n",
                  (unsigned long long)ticks);
    return 0;
}

int main(int argc, char **argv)
{
    const struct itimerspec tenth = {.it_interval.tv_nsec = 100000000,
                                     .it_value.tv_nsec = 100000000};
    struct sp_engine_options options = {.size = sizeof options, .event = on_event};
    struct sp_engine *engine;
    struct sp_error error;
    int first = 1;
    int r = 0;

    if (argc > 2 && strcmp(argv[1], "--on") == 0) {
        options.on = argv[2];
        first = 3;
    }
    if (argc <= first) {
        (void)fprintf(stderr, "usage: loop [--on NAME|URL] SCRIPT...\n");
        return 2;
    }
    const int clock_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (clock_fd < 0 || timerfd_settime(clock_fd, 0, &tenth, NULL) < 0) {
        perror("loop: make a clock");
        return 125;
    }
    if (sp_engine_new(&options, &engine, &error) < 0) {
        (void)fprintf(stderr, "loop: %s\n", error.msg);
        return 125;
    }
    for (int i = first; i < argc && r == 0; i++)
        r = begin(engine, argv[i], &error);
    if (r == 0)
        r = loop(engine, clock_fd, &error);
    if (r < 0)
        (void)fprintf(stderr, "loop: %s\n", error.msg);
    sp_engine_free(engine);
    (void)close(clock_fd);
    return r < 0 ? 125 : worst_code;
}
