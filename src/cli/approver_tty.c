/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/approver_tty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/own_stdio.h"
#include "cli/question_text.h"
#include "cli/tty_input.h"

#define TTY      "/dev/tty"
#define AGAIN_MS 200  /* until a background job looks again whether it is one */
#define WRITE_MS 2000 /* for a terminal that takes nothing */
#define DRAIN_MS 500  /* of silence from a terminal that does not say what it is */

/* Ends what a command may have left switched on: invisible letters, another alphabet, VT52 and
 * 8-bit replies, a part of the screen; mouse, focus and paste reports. */
#define RESET   "\x1b<\x0f\x1b[!p\x1b(B\x1b[0m\x1b[?1000;1002;1003;1004;1005;1006;1015;2004l"
#define INQUIRE "\x1b[c" /* what are you? Replies come in the order of the queries */

/*
 *   none --show--> DRAINING --identity and silence, or DRAIN_MS of silence--> READY --> answered
 *
 * DRAINING: what a command asked of the terminal before is still being answered. Everything that
 * arrives is dropped, and the line with the keys is not shown yet.
 */
enum phase { NOT_SHOWN, DRAINING, READY };

struct sp_approver_tty {
    struct sp_approver approver;
    struct sp_loop *loop;
    int fd;
    struct sp_watch watch;
    struct sp_timer again;
    struct sp_timer silence;
    struct sp_deferred next; /* shows the first question */
    struct termios before;
    enum phase phase; /* of the first one; unless NOT_SHOWN the terminal is ours to read */
    struct sp_tty_input input;
    uint64_t heard_ms;  /* when something last arrived */
    size_t echoed;      /* bytes of the line that are on the screen */
    struct sp_buf rest; /* what was left out of the question, and ... */
    size_t rest_shown;  /* ... so much of it was shown since */
    struct entry *first;
};

struct entry {
    struct entry *next;
    const struct sp_approval_question *question;
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

/* false: it cannot be had, or another program reads it key by key: an editor, an agent with a
 * full-screen interface. What is typed there is for that program, not for us. */
static bool take_keys(struct sp_approver_tty *t)
{
    return tcgetattr(t->fd, &t->before) == 0 && (t->before.c_lflag & ICANON) != 0 && make_raw(t);
}

static bool understands_escapes(void)
{
    const char *kind = getenv("TERM");

    return kind != NULL && kind[0] != 0 && strcmp(kind, "dumb") != 0;
}

static void give_back(struct sp_approver_tty *t)
{
    if (t->phase == NOT_SHOWN)
        return;
    t->phase = NOT_SHOWN;
    sp_loop_unwatch(t->loop, &t->watch);
    sp_loop_cancel(t->loop, &t->silence);
    if (tcgetpgrp(t->fd) == getpgrp())
        (void)tcsetattr(t->fd, TCSAFLUSH, &t->before);
}

/* ---- answering ---- */

static void show_next(struct sp_deferred *d);

static void finish(struct sp_approver_tty *t, const struct sp_decision *d)
{
    struct entry *entry = t->first;

    give_back(t);
    t->first = entry->next;
    sp_loop_defer(t->loop, &t->next, show_next);
    entry->done(entry->user, entry->question->id, d);
    free(entry);
}

static void answer(struct sp_approver_tty *t, enum sp_decision_kind kind)
{
    const struct sp_approval_question *q = t->first->question;
    const struct sp_decision d = {
        .kind = kind,
        .amendment = kind == SP_DECISION_AMENDMENT ? q->amendment : (struct sp_words){0},
        .host = q->host,
        .allows_host = kind == SP_DECISION_NETWORK_AMENDMENT,
    };

    if (t->echoed != 0)
        print(t, SP_STR("\n  "));
    print(t, sp_question_text_of(kind));
    finish(t, &d);
}

static void give_up(struct sp_approver_tty *t, struct sp_str why)
{
    const struct sp_decision d = {.kind = SP_DECISION_FAILED, .rejection = why};

    finish(t, &d);
}

/* ---- what is typed ---- */

static bool is_all_shown(const struct sp_approver_tty *t)
{
    return t->rest_shown == t->rest.len;
}

static void print_keys(struct sp_approver_tty *t)
{
    auto_buf struct sp_buf text = {0};

    sp_tty_input_clear(&t->input);
    t->echoed = 0;
    if (sp_question_text_add_keys(&text, t->first->question, is_all_shown(t)))
        print(t, (struct sp_str){text.data, text.len});
}

/* One screen of what was left out. */
static void print_more(struct sp_approver_tty *t)
{
    struct winsize size = {0};
    size_t n = t->rest.len - t->rest_shown;

    if (ioctl(t->fd, TIOCGWINSZ, &size) < 0 || size.ws_row < 10 || size.ws_col < 40)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    const size_t page = (size_t)(size.ws_row - 6) * size.ws_col;
    if (n > page)
        n = page;
    while (t->rest_shown + n < t->rest.len &&
           ((unsigned char)t->rest.data[t->rest_shown + n] & 0xc0) == 0x80)
        n++;
    print(t, SP_STR("\n"));
    print(t, (struct sp_str){t->rest.data + t->rest_shown, n});
    print(t, SP_STR("\n"));
    t->rest_shown += n;
    print_keys(t);
}

/* Letters of a word are shown as they come; a key that may be the whole answer is not. */
static void echo(struct sp_approver_tty *t)
{
    const struct sp_tty_input *in = &t->input;

    if (in->len == 1 && t->echoed == 0 &&
        (in->line[0] == SP_QUESTION_TEXT_MORE ||
         sp_question_text_key(t->first->question, is_all_shown(t), in->line[0]) != SP_DECISION_MAX))
        return;
    for (; t->echoed > in->len; t->echoed--)
        print(t, SP_STR("\b \b"));
    print(t, (struct sp_str){in->line + t->echoed, in->len - t->echoed});
    t->echoed = in->len;
}

static void look_at_line(struct sp_approver_tty *t)
{
    const struct sp_str line = sp_tty_input_line(&t->input);
    enum sp_decision_kind kind = SP_DECISION_MAX;

    if (line.n == 1 && line.p[0] == SP_QUESTION_TEXT_MORE && !is_all_shown(t)) {
        print_more(t);
        return;
    }
    if (t->input.is_entered)
        kind = sp_question_text_word(t->first->question, is_all_shown(t), line);
    else if (line.n == 1)
        kind = sp_question_text_key(t->first->question, is_all_shown(t), line.p[0]);
    if (kind != SP_DECISION_MAX) {
        answer(t, kind);
        return;
    }
    if (!t->input.is_entered && line.n != 0 &&
        sp_question_text_may_become_word(t->first->question, is_all_shown(t), line))
        return;
    if (t->echoed != 0) {
        print(t, SP_STR("\n"));
        print_keys(t);
    }
    sp_tty_input_clear(&t->input);
}

static void on_silence(struct sp_timer *timer)
{
    struct sp_approver_tty *t = SP_CONTAINER(timer, struct sp_approver_tty, silence);

    if (t->phase == READY) {
        look_at_line(t);
        return;
    }
    t->phase = READY;
    print_keys(t);
}

static bool wait_for_silence(struct sp_approver_tty *t)
{
    const bool is_draining = t->phase == DRAINING && !t->input.has_identity;

    return sp_loop_timer(t->loop, &t->silence,
                         sp_loop_now(t->loop) + (is_draining ? DRAIN_MS : SP_TTY_SILENCE_MS),
                         on_silence);
}

/* A shell that stopped us and let us go on has set the terminal back to lines. */
static void see_to_mode(const struct sp_approver_tty *t)
{
    struct termios now;

    if (tcgetattr(t->fd, &now) == 0 && (now.c_lflag & ICANON) != 0)
        (void)make_raw(t);
}

static void on_readable(struct sp_watch *w, uint32_t events)
{
    struct sp_approver_tty *t = SP_CONTAINER(w, struct sp_approver_tty, watch);
    const uint64_t now = sp_loop_now(t->loop);
    char keys[256];
    const ssize_t n = read(t->fd, keys, sizeof keys);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        answer(t, SP_DECISION_ABORT); /* the terminal has gone */
        return;
    }
    see_to_mode(t);
    sp_tty_input_take(&t->input, (struct sp_str){keys, (size_t)n}, now - t->heard_ms);
    t->heard_ms = now;
    if (t->input.is_interrupted) {
        answer(t, SP_DECISION_ABORT);
        return;
    }
    if (t->phase == READY && !t->input.is_spoiled)
        echo(t);
    if (!wait_for_silence(t))
        give_up(t, SP_STR("no memory to wait for an answer"));
}

/* ---- asking ---- */

static void on_again(struct sp_timer *timer)
{
    struct sp_approver_tty *t = SP_CONTAINER(timer, struct sp_approver_tty, again);

    sp_loop_defer(t->loop, &t->next, show_next);
}

static bool print_question(struct sp_approver_tty *t)
{
    auto_buf struct sp_buf text = {0};

    t->rest.len = t->rest_shown = 0;
    if (!sp_question_text_add(&text, t->first->question, &t->rest))
        return false;
    if (understands_escapes())
        print(t, SP_STR(RESET));
    print(t, (struct sp_str){text.data, text.len});
    if (understands_escapes())
        print(t, SP_STR(INQUIRE));
    return true;
}

static void show_next(struct sp_deferred *d)
{
    struct sp_approver_tty *t = SP_CONTAINER(d, struct sp_approver_tty, next);

    if (t->first == NULL || t->phase != NOT_SHOWN)
        return;
    if (!sp_terminal_is_ours(t->fd) && /* a background job: when it is fetched */
        sp_loop_timer(t->loop, &t->again, sp_loop_now(t->loop) + AGAIN_MS, on_again))
        return;
    if (!take_keys(t)) {
        give_up(t, SP_STR("another program uses the terminal"));
        return;
    }
    t->phase = DRAINING;
    t->input = (struct sp_tty_input){0};
    t->heard_ms = sp_loop_now(t->loop);
    if (!print_question(t) || !wait_for_silence(t) ||
        sp_loop_watch(t->loop, &t->watch, t->fd, EPOLLIN, on_readable, NULL) < 0)
        give_up(t, SP_STR("no memory to ask at the terminal"));
}

static void ask(struct sp_approver *a, const struct sp_approval_question *q, sp_approver_fn *done,
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
        if (entry == t->first && t->phase != NOT_SHOWN) {
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
    sp_buf_done(&t->rest);
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

int sp_approver_tty_new(struct sp_loop *loop, struct sp_approver **ret, struct sp_err *e)
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
