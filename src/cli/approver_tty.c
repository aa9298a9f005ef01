/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/approver_tty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/question_text.h"
#include "cli/terminal.h"

#define TTY       "/dev/tty"
#define AGAIN_MS  200  /* until a background job looks again whether it is one */
#define WRITE_MS  2000 /* for a terminal that takes nothing */
#define KEY_ABORT 3    /* Ctrl-C */

struct sp_approver_tty {
    struct sp_approver approver;
    struct sp_loop *loop;
    int fd;
    struct sp_watch watch;
    struct sp_timer again;
    struct sp_deferred next; /* shows the first question */
    struct termios before;
    bool is_shown; /* the first one: the terminal is ours to read */
    struct entry *first;
};

struct entry {
    struct entry *next;
    const struct sp_question *question;
    sp_approver_fn *done;
    void *user;
};

/* ---- the terminal ---- */

/* Bounded: somebody may have stopped its output. */
static void print(const struct sp_approver_tty *t, struct sp_str text)
{
    while (text.n != 0) {
        struct pollfd at = {.fd = t->fd, .events = POLLOUT};

        if (poll(&at, 1, WRITE_MS) <= 0)
            return;
        const ssize_t n = write(t->fd, text.p, text.n);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return;
        if (n > 0)
            text = (struct sp_str){text.p + n, text.n - (size_t)n};
    }
}

/* Keys as they are struck, Ctrl-C among them. */
static bool make_raw(const struct sp_approver_tty *t)
{
    struct termios raw = t->before;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)IXON;
    raw.c_oflag |= OPOST | ONLCR;
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    return tcsetattr(t->fd, TCSAFLUSH, &raw) == 0;
}

static bool take_keys(struct sp_approver_tty *t)
{
    return tcgetattr(t->fd, &t->before) == 0 && make_raw(t);
}

/* What a command has printed here before may have left the terminal writing in invisible letters,
 * in another alphabet, or on a part of the screen: the question is to be read. */
static void print_reset(const struct sp_approver_tty *t)
{
    const char *kind = getenv("TERM");

    if (kind != NULL && kind[0] != 0 && strcmp(kind, "dumb") != 0)
        print(t, SP_STR("\x0f\x1b[!p\x1b(B\x1b[0m"));
}

/* What was struck before the line with the keys was there is no answer. */
static void print_question(const struct sp_approver_tty *t, struct sp_str text)
{
    const char *last = memrchr(text.p, '\n', text.n);
    const size_t body = last == NULL ? 0 : (size_t)(last - text.p) + 1;

    print(t, (struct sp_str){text.p, body});
    (void)tcflush(t->fd, TCIFLUSH);
    print(t, (struct sp_str){text.p + body, text.n - body});
}

static void give_back(struct sp_approver_tty *t)
{
    if (!t->is_shown)
        return;
    t->is_shown = false;
    sp_loop_unwatch(t->loop, &t->watch);
    if (tcgetpgrp(t->fd) == getpgrp())
        (void)tcsetattr(t->fd, TCSAFLUSH, &t->before);
}

/* ---- answering ---- */

static void show_next(struct sp_deferred *d);

static void answer(struct sp_approver_tty *t, enum sp_decision_kind kind)
{
    struct entry *entry = t->first;
    const struct sp_decision d = {
        .kind = kind,
        .amendment =
            kind == SP_DECISION_AMENDMENT ? entry->question->amendment : (struct sp_words){0},
        .host = entry->question->host,
        .allows_host = kind == SP_DECISION_NETWORK_AMENDMENT,
    };
    const struct sp_str word = sp_question_text_of(kind);

    print(t, word);
    give_back(t);
    t->first = entry->next;
    sp_loop_defer(t->loop, &t->next, show_next);
    entry->done(entry->user, entry->question->id, &d);
    free(entry);
}

static void on_key(struct sp_approver_tty *t, char key)
{
    switch (key) {
    case 'y':
        answer(t, SP_DECISION_APPROVED);
        return;
    case 'a':
        answer(t, SP_DECISION_APPROVED_FOR_SESSION);
        return;
    case 'p':
        if (sp_question_text_offers_rule(t->first->question))
            answer(t, sp_question_offers_host(t->first->question) ? SP_DECISION_NETWORK_AMENDMENT
                                                                  : SP_DECISION_AMENDMENT);
        return;
    case 'n':
        answer(t, SP_DECISION_DENIED);
        return;
    case 'q':
    case KEY_ABORT:
        answer(t, SP_DECISION_ABORT);
        return;
    default:
        return;
    }
}

/* A shell that stopped us and let us go on has its own idea of the terminal: lines. A key and Enter
 * is the key then. */
static bool is_key_in_line(const struct sp_approver_tty *t, const char *keys, ssize_t n)
{
    struct termios now;

    if (n < 2 || tcgetattr(t->fd, &now) < 0 || (now.c_lflag & ICANON) == 0)
        return false;
    (void)make_raw(t);
    return n == 2 && keys[1] == '\n';
}

static void on_readable(struct sp_watch *w, uint32_t events)
{
    struct sp_approver_tty *t = SP_CONTAINER(w, struct sp_approver_tty, watch);
    char keys[256];
    const ssize_t n = read(t->fd, keys, sizeof keys);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        answer(t, SP_DECISION_ABORT); /* nobody is there any more */
    else if (n == 1 || is_key_in_line(t, keys, n))
        on_key(t, keys[0]);
}

/* ---- asking ---- */

static void on_again(struct sp_timer *timer)
{
    struct sp_approver_tty *t = SP_CONTAINER(timer, struct sp_approver_tty, again);

    sp_loop_defer(t->loop, &t->next, show_next);
}

static void show_next(struct sp_deferred *d)
{
    struct sp_approver_tty *t = SP_CONTAINER(d, struct sp_approver_tty, next);
    auto_buf struct sp_buf text = {0};

    if (t->first == NULL || t->is_shown)
        return;
    if (!sp_terminal_is_ours(t->fd) && /* a background job: when it is fetched */
        sp_loop_timer(t->loop, &t->again, sp_loop_now(t->loop) + AGAIN_MS, on_again))
        return;
    if (!sp_question_text_add(&text, t->first->question) || !take_keys(t)) {
        answer(t, SP_DECISION_DENIED);
        return;
    }
    t->is_shown = true;
    if (t->first->question->kind == SP_QUESTION_RETRY)
        print_reset(t);
    print_question(t, (struct sp_str){text.data, text.len});
    if (sp_loop_watch(t->loop, &t->watch, t->fd, EPOLLIN, on_readable, NULL) < 0)
        answer(t, SP_DECISION_DENIED);
}

static void ask(struct sp_approver *a, const struct sp_question *q, sp_approver_fn *done,
                void *user)
{
    struct sp_approver_tty *t = SP_CONTAINER(a, struct sp_approver_tty, approver);
    static const struct sp_decision denied = {.kind = SP_DECISION_DENIED};
    struct entry *entry = calloc(1, sizeof *entry);
    struct entry **at = &t->first;

    if (entry == NULL) {
        done(user, q->id, &denied);
        return;
    }
    *entry = (struct entry){.question = q, .done = done, .user = user};
    while (*at != NULL)
        at = &(*at)->next;
    *at = entry;
    sp_loop_defer(t->loop, &t->next, show_next);
}

static void withdraw(struct sp_approver *a, uint64_t question, void *user)
{
    struct sp_approver_tty *t = SP_CONTAINER(a, struct sp_approver_tty, approver);

    for (struct entry **at = &t->first; *at != NULL; at = &(*at)->next) {
        struct entry *entry = *at;

        if (entry->question->id != question || entry->user != user)
            continue;
        if (entry == t->first && t->is_shown) {
            print(t, SP_STR("(not asked any more)\n"));
            give_back(t);
        }
        *at = entry->next;
        free(entry);
        sp_loop_defer(t->loop, &t->next, show_next);
        return;
    }
}

static void free_approver(struct sp_approver *a)
{
    struct sp_approver_tty *t = SP_CONTAINER(a, struct sp_approver_tty, approver);

    give_back(t);
    sp_loop_cancel(t->loop, &t->again);
    sp_loop_undefer(t->loop, &t->next);
    while (t->first != NULL) {
        struct entry *entry = t->first;

        t->first = entry->next;
        free(entry);
    }
    (void)close(t->fd);
    free(t);
}

/* ---- beginning ---- */

static int open_tty(void)
{
    return open(TTY, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
}

bool sp_approver_tty_exists(void)
{
    auto_close int fd = open_tty();

    return fd >= 0;
}

int sp_approver_tty_new(struct sp_loop *loop, struct sp_approver **ret, struct sp_error *e)
{
    static const struct sp_approver_ops ops = {
        .ask = ask, .withdraw = withdraw, .free = free_approver};
    auto_close int fd = open_tty();

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno,
                       "approver: there is no terminal to ask on; give --approver program:PATH or "
                       "deny");
    struct sp_approver_tty *t = calloc(1, sizeof *t);
    if (t == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    t->approver.ops = &ops;
    t->loop = loop;
    t->fd = TAKE_FD(fd);
    *ret = &t->approver;
    return 0;
}
