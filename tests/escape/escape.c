/* SPDX-License-Identifier: Apache-2.0 */
/*
 * escape: the frame around the attempts.
 *
 *   escape try SUITE word=value ...    makes the attempts of a suite and prints a line for each:
 *                                      number, kind, name, answer, verdict, reason; tabs in between
 *   escape list SUITE word=value ...   prints the lines that `try` would print, without answers
 *   escape again NAME word=value ...   makes one attempt; the exit status is the errno
 *   escape euid                        exit status 0 if the effective uid is the real one
 *   escape pause | bomb N | daemon     a victim; N processes; one that has left its session
 *   escape swap A B                    exchanges two names until stdin ends; prints how often
 *
 * Words: net=restricted|managed|enabled|none, tty=0|1, and where things are (see table.c).
 */
#include "escape.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "modes.h"

#define NO_STATUS 255 /* of `again`: skipped */

struct report {
    bool is_skipped;
    int answer;
    char reason[200];
};

static char **words;  /* word=value, NULL at the end */
static int report_fd; /* where a child says how it went; -1: by its exit status */
static int counts[3]; /* by enum verdict */
enum verdict { PASS, FAIL, SKIP };
static const char *const verdicts[] = {"pass", "FAIL", "skip"};

/* ---- the command line ---- */

const char *told(const char *word)
{
    const size_t n = strlen(word);

    for (char **w = words; *w != NULL; w++)
        if (strncmp(*w, word, n) == 0 && (*w)[n] == '=')
            return *w + n + 1;
    return NULL;
}

const char *need(const char *word)
{
    const char *value = told(word);

    if (value == NULL || *value == '\0')
        skip("there is no %s here", word);
    return value;
}

long need_number(const char *word)
{
    return strtol(need(word), NULL, 0);
}

const char *where(const char *place)
{
    static char paths[16][4096];
    static unsigned next;
    char *path = paths[next++ % 16];
    char word[32];
    const size_t n = strcspn(place, "/");

    if (n == 0)
        return place;
    (void)snprintf(word, sizeof word, "%.*s", (int)n, place);
    (void)snprintf(path, sizeof paths[0], "%s%s", need(word), place + n);
    return path;
}

/* ---- one attempt ---- */

static _Noreturn void say(const struct report *r)
{
    if (report_fd >= 0)
        (void)!write(report_fd, r, sizeof *r);
    _exit(r->is_skipped ? NO_STATUS : r->answer);
}

void skip(const char *fmt, ...)
{
    struct report r = {.is_skipped = true};
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(r.reason, sizeof r.reason, fmt, ap);
    va_end(ap);
    say(&r);
}

int answer(long result)
{
    return result < 0 ? errno : 0;
}

int answer_fd(long fd)
{
    if (fd < 0)
        return errno;
    (void)close((int)fd);
    return 0;
}

/* In a child, so that no attempt changes what the next one finds. */
static struct report make(const struct row *row)
{
    struct report r = {0};
    int fds[2];
    int status = 0;
    pid_t child;

    if (row->flags & HERE) {
        r.answer = row->run(row);
        return r;
    }
    if (pipe2(fds, O_CLOEXEC) < 0 || (child = fork()) < 0) {
        r.is_skipped = true;
        (void)snprintf(r.reason, sizeof r.reason, "cannot start a process: %s", strerror(errno));
        return r;
    }
    if (child == 0) {
        (void)close(fds[0]);
        report_fd = fds[1];
        (void)alarm(20);
        r.answer = row->run(row);
        say(&r);
    }
    (void)close(fds[1]);
    const ssize_t n = read(fds[0], &r, sizeof r);
    (void)close(fds[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (n != (ssize_t)sizeof r) {
        r.answer = -(WIFSIGNALED(status) ? WTERMSIG(status) : 1);
        r.is_skipped = false;
    }
    return r;
}

static void name_answer(const struct report *r, char *text, size_t size)
{
    const char *name = r->answer > 0 ? strerrorname_np(r->answer) : NULL;

    if (r->is_skipped)
        (void)snprintf(text, size, "-");
    else if (r->answer == 0)
        (void)snprintf(text, size, "ok");
    else if (r->answer < 0)
        (void)snprintf(text, size, "signal-%d", -r->answer);
    else if (name != NULL)
        (void)snprintf(text, size, "%s", name);
    else
        (void)snprintf(text, size, "errno-%d", r->answer);
}

static void expected_for(const struct row *row, const char *net, char *text, size_t size)
{
    const size_t n = strlen(net);

    for (const char *p = row->expect; *p != '\0'; p += strcspn(p, " "), p += strspn(p, " "))
        if (n > 0 && strncmp(p, net, n) == 0 && p[n] == ':')
            (void)snprintf(text, size, "%.*s", (int)strcspn(p + n + 1, " "), p + n + 1);
}

/* The part of `expect` that holds for this network. A managed one answers as a restricted one where
 * the row does not say otherwise. */
static void expected(const struct row *row, char *text, size_t size)
{
    const char *net = told("net") != NULL ? told("net") : "";

    (void)snprintf(text, size, "%s", row->expect);
    if (strchr(row->expect, ':') == NULL)
        return;
    *text = '\0';
    if (strcmp(net, "managed") == 0)
        expected_for(row, "restricted", text, size);
    expected_for(row, net, text, size);
}

static bool is_expected(const char *list, const char *name)
{
    const size_t n = strlen(name);

    for (const char *p = list; p != NULL; p = strchr(p, '/')) {
        p += *p == '/';
        if (strncmp(p, name, n) == 0 && (p[n] == '\0' || p[n] == '/'))
            return true;
    }
    return false;
}

static bool applies(const struct row *row)
{
    const char *tty = told("tty");
    const bool has_tty = tty != NULL && *tty == '1';
    char list[128];

    if ((row->flags & USER && getuid() == 0) || (row->flags & ROOT && getuid() != 0))
        return false;
    if ((row->flags & TTY && !has_tty) || (row->flags & PIPE && has_tty))
        return false;
    expected(row, list, sizeof list);
    return *list != '\0';
}

static const char *kind(const struct row *row)
{
    return row->flags & TWIN ? "twin" : "attempt";
}

static void judge(const struct row *row)
{
    char name[32];
    char list[128];
    char line[600];
    enum verdict v = SKIP;
    const struct report r = make(row);

    name_answer(&r, name, sizeof name);
    expected(row, list, sizeof list);
    if (!r.is_skipped)
        v = is_expected(list, name) ? PASS : FAIL;
    counts[v]++;
    const int n =
        snprintf(line, sizeof line, "%s\t%s\t%s\t%s\t%s\t%s%s\n", row->number, kind(row), row->name,
                 name, verdicts[v], v == FAIL ? "expected " : r.reason, v == FAIL ? list : "");
    (void)!write(1, line, (size_t)n);
}

/* ---- the verbs ---- */

static const struct suite *find_suite(const char *name)
{
    for (size_t i = 0; i < suite_count; i++)
        if (strcmp(suites[i].name, name) == 0)
            return &suites[i];
    return NULL;
}

static int verb_try(const char *name)
{
    const struct suite *s = find_suite(name);

    if (s == NULL)
        return 2;
    for (const struct row *row = s->rows; row->number != NULL; row++)
        if (applies(row))
            judge(row);
    printf("end\tpass=%d\tfail=%d\tskip=%d\n", counts[PASS], counts[FAIL], counts[SKIP]);
    return counts[FAIL] > 0;
}

static int verb_list(const char *name)
{
    const struct suite *s = find_suite(name);

    if (s == NULL)
        return 2;
    for (const struct row *row = s->rows; row->number != NULL; row++)
        if (applies(row))
            printf("%s\t%s\t%s\n", row->number, kind(row), row->name);
    return 0;
}

static int verb_again(const char *name)
{
    report_fd = -1;
    for (size_t i = 0; i < suite_count; i++)
        for (const struct row *row = suites[i].rows; row->number != NULL; row++)
            if (strcmp(row->name, name) == 0)
                return row->run(row);
    return NO_STATUS;
}

int again(const char *program, int fd, const char *const *first)
{
    const char *argv[64] = {"escape"};
    size_t n = 1;
    int status = 0;
    const pid_t child = fork();

    if (child < 0)
        return NO_STATUS;
    if (child == 0) {
        for (; *first != NULL && n < 32; first++)
            argv[n++] = *first;
        for (char **w = words; *w != NULL && n < 63; w++)
            argv[n++] = *w;
        char *const *args = (char *const *)(const void *)argv;
        if (fd >= 0)
            (void)execveat(fd, "", args, environ, AT_EMPTY_PATH);
        else
            (void)execv(program, args);
        _exit(errno);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

pid_t start_child(void)
{
    const pid_t child = fork();

    if (child < 0)
        skip("cannot start a process: %s", strerror(errno));
    if (child == 0)
        for (;;)
            (void)pause();
    return child;
}

void end_child(pid_t child)
{
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    const char *what = argc > 2 ? argv[2] : "";

    words = argv + (argc > 2 ? 3 : argc);
    report_fd = -1;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(verb, "try") == 0)
        return verb_try(what);
    if (strcmp(verb, "list") == 0)
        return verb_list(what);
    if (strcmp(verb, "again") == 0)
        return verb_again(what);
    return run_mode(verb, argv + (argc > 1 ? 2 : argc));
}
