/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/approver_tty.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "approve/question_text.h"
#include "base/auto.h"
#include "base/list.h"
#include "cli/escape_text.h"
#include "cli/own_stdio.h"

#define SILENCE_MS    150  /* required before and after a key that answers */
#define DRAIN_MS      500  /* of silence, from a terminal that does not identify itself */
#define BACKGROUND_MS 200  /* between looks whether we are in the foreground again */
#define WRITE_MS      2000 /* until a terminal with stopped output (Ctrl-S) is given up */
#define MAX_LINE      16   /* characters of an answer */

#define ESC         0x1b
#define BEL         0x07
#define INTERRUPT   3   /* Ctrl-C */
#define KEY_MORE    'm' /* shows the next page of what was left out */
#define KEY_EXPLAIN '?'
#define MOUSE_BYTES 3 /* behind ESC [ M: button, column and row, which may be any bytes */

/* Ends modes that a command may have left on: invisible letters, another alphabet, VT52 and 8-bit
 * replies, a scrolling region; mouse, focus and paste reports. */
#define RESET    "\x1b<\x0f\x1b[!p\x1b(B\x1b[0m\x1b[?1000;1002;1003;1004;1005;1006;1015;2004l"
#define IDENTIFY "\x1b[c" /* the reply comes behind those to all earlier queries */

/* ---- answers ----
 *
 * Until the person has paged through the middles that were left out, answers that keep anything, or
 * that run a command without a sandbox, are not offered. Those answers are words that end with
 * Enter; the others are single keys.
 */

/* What is asked, and what may be answered to it. */
struct offer {
    const struct sp_approval_question *question;
    bool is_all_shown;
    bool is_once; /* the session ends with the command */
};

struct answer {
    const char *typed;   /* a key, or a word and Enter */
    const char *effect;  /* of the answer, behind the key */
    const char *explain; /* more of it, for `?` */
    enum sp_decision_kind kind;
    bool is_free; /* the effect ends with WITHOUT A SANDBOX */
};

#define ANSWERS_MAX 6
#define KEYS_WIDTH  19 /* of the column "session and Enter" */

/* What a yes allows, by the kind of the question. */
struct consent {
    const char *once, *session, *explain;
};

static const struct consent *consent_of(const struct sp_approval_question *q)
{
    static const struct consent in_sandbox = {
        "yes, this once, in its sandbox",
        "yes, and the same command unasked until this session ends",
        "The command runs in its sandbox. The next one like it is a question again."};
    static const struct consent unconfined = {
        "yes, this once, ", "yes, for this session, ",
        "The command may do whatever you may do: read your keys, delete your files, use the "
        "network."};
    static const struct consent more = {
        "yes, this once, with what is added above",
        "yes, and the same command unasked until this session ends",
        "The command runs in its sandbox, which allows what is added above."};
    static const struct consent patch = {
        "yes, change these files", "yes, and these files unasked until this session ends",
        "The files are changed. The next change is a question again."};
    static const struct consent permissions = {"yes, for this turn", "yes, until this session ends",
                                               "Commands may do this until the agent's turn ends."};
    static const struct consent network = {
        "yes, for this command", "yes, for all commands until this session ends",
        "The command reaches this host by this protocol until the command ends."};

    if (sp_question_is_free(q))
        return &unconfined;
    switch (q->kind) {
    case SP_QUESTION_ADDITIONAL:
        return &more;
    case SP_QUESTION_PATCH:
        return &patch;
    case SP_QUESTION_PERMISSIONS:
        return &permissions;
    case SP_QUESTION_NETWORK:
        return &network;
    case SP_QUESTION_RUN:
    case SP_QUESTION_ESCALATE:
    case SP_QUESTION_RETRY:
        break;
    }
    return &in_sandbox;
}

/* Fills `all`, in the order in which they are shown. Returns how many there are. */
static size_t collect_answers(const struct offer *o, struct answer all[ANSWERS_MAX])
{
    const struct sp_approval_question *q = o->question;
    const bool is_free = sp_question_is_free(q);
    const struct consent *yes = consent_of(q);
    size_t n = 0;

    if (!is_free || o->is_all_shown)
        all[n++] = (struct answer){is_free ? "yes" : "y", yes->once, yes->explain,
                                   SP_DECISION_APPROVED, is_free};
    if (o->is_all_shown && !o->is_once)
        all[n++] = (struct answer){is_free ? "session" : "a", yes->session,
                                   "The same question is not asked again in this session.",
                                   SP_DECISION_APPROVED_FOR_SESSION, is_free};
    if (o->is_all_shown && sp_question_shows_rule(q))
        all[n++] = (struct answer){
            "always", "yes, and keep the rule",
            "The rule is added to rules/default.rules in ~/.sallyport and holds for all later "
            "commands. `sallyport rules list` shows it, `sallyport rules remove` removes it.",
            sp_question_offers_host(q) ? SP_DECISION_NETWORK_AMENDMENT : SP_DECISION_AMENDMENT,
            false};
    all[n++] = (struct answer){"n", "no", "It is refused. An agent is told so, and goes on.",
                               SP_DECISION_DENIED, false};
    all[n++] = (struct answer){"q", "no, and stop",
                               "It is refused, and an agent's turn ends. Ctrl-C does the same.",
                               SP_DECISION_ABORT, false};
    return n;
}

static bool is_word(const struct answer *a)
{
    return a->typed[1] != 0;
}

/* Words up to 80 columns, on lines that begin at the seventh. */
static bool add_wrapped(struct sp_buf *out, const char *text)
{
    const size_t room = 80 - 6;
    bool ok = true;

    while (ok && *text != 0) {
        size_t n = strlen(text);

        for (n = n > room ? room : n; text[n] != 0 && text[n] != ' ' && n > 0; n--)
            continue;
        n = n == 0 ? strlen(text) : n; /* one long word */
        ok = sp_buf_printf(out, "      %.*s\n", (int)n, text);
        text += n + (text[n] == ' ');
    }
    return ok;
}

/* One line for each key and word. explains: with what it does in full. */
static bool add_answers(struct sp_buf *out, const struct offer *o, bool explains, bool is_bold)
{
    const char *bold = is_bold ? SP_BOLD : "";
    const char *plain = is_bold ? SP_NOT_BOLD : "";
    struct answer all[ANSWERS_MAX];
    const size_t n = collect_answers(o, all);
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++) {
        const struct answer *a = &all[i];

        ok = sp_buf_printf(out, "  %s%s%s%-*s%s%s%s%s\n", bold, a->typed, plain,
                           (int)(KEYS_WIDTH - strlen(a->typed)), is_word(a) ? " and Enter" : "",
                           a->effect, a->is_free ? bold : "", a->is_free ? SP_FREE_WARNING : "",
                           a->is_free ? plain : "") &&
             (!explains || add_wrapped(out, a->explain));
    }
    if (ok && !o->is_all_shown)
        ok = sp_buf_printf(out, "  %sm%s%-*sNOT ALL IS SHOWN: show more%s\n", bold, plain,
                           KEYS_WIDTH - 1, "",
                           sp_question_is_free(o->question)
                               ? "; yes can be said after that"
                               : "; yes for more than this once can be said after that");
    return ok && sp_buf_printf(out, "  %s?%s%-*sexplain%s\n", bold, plain, KEYS_WIDTH - 1, "",
                               explains ? " again" : " these answers");
}

/* The keys and words that count, for a person who typed another one. */
static bool add_choices(struct sp_buf *out, const struct offer *o)
{
    struct answer all[ANSWERS_MAX];
    const size_t n = collect_answers(o, all);
    bool ok = sp_buf_printf(out, "  no answer. Keys:");
    size_t words = 0;

    for (size_t i = 0; ok && i < n; i++) {
        words += is_word(&all[i]);
        ok = is_word(&all[i]) || sp_buf_printf(out, " %s", all[i].typed);
    }
    ok = ok && sp_buf_printf(out, o->is_all_shown ? " ?" : " m ?");
    if (ok && words > 0)
        ok = sp_buf_printf(out, "; words, with Enter:");
    for (size_t i = 0; ok && i < n; i++)
        ok = !is_word(&all[i]) || sp_buf_printf(out, " %s", all[i].typed);
    return ok && sp_buf_add(out, "\n", 1);
}

/* The decision that a key, or a word with Enter, stands for; SP_DECISION_MAX: none. A free run is
 * never approved by a single key. */
static enum sp_decision_kind answer_of(const struct offer *o, struct sp_str text)
{
    struct answer all[ANSWERS_MAX];
    const size_t n = collect_answers(o, all);

    for (size_t i = 0; i < n; i++)
        if (sp_str_eq(text, sp_str_of(all[i].typed)))
            return all[i].kind;
    return SP_DECISION_MAX;
}

/* Whether an offered word begins with `begun`. */
static bool may_become_word(const struct offer *o, struct sp_str begun)
{
    struct answer all[ANSWERS_MAX];
    const size_t n = collect_answers(o, all);

    for (size_t i = 0; i < n; i++)
        if (is_word(&all[i]) && begun.n <= strlen(all[i].typed) &&
            memcmp(begun.p, all[i].typed, begun.n) == 0)
            return true;
    return false;
}

/* The line that confirms an answer. */
static struct sp_str confirmation_of(enum sp_decision_kind kind)
{
    static const char *const texts[SP_DECISION_MAX] = {
        [SP_DECISION_APPROVED] = "yes\n",
        [SP_DECISION_APPROVED_FOR_SESSION] = "yes, for this session\n",
        [SP_DECISION_AMENDMENT] = "yes, and keep the rule\n",
        [SP_DECISION_NETWORK_AMENDMENT] = "yes, and keep the rule\n",
        [SP_DECISION_ABORT] = "no, stop\n",
    };

    return sp_str_of(texts[kind] != NULL ? texts[kind] : "no\n");
}

/* ---- the state of the dialogue ---- */

/*
 * The keys of a person, at a terminal that hostile programs have used before.
 *
 * A program can make a terminal type: it sends queries (DECRQM, a title report, a cursor report),
 * and the replies arrive as input, late, in bursts or byte by byte. Replies are escape sequences,
 * so the bytes of escape sequences never count. Plain bytes make a line, which is looked at after
 * SILENCE_MS without input.
 */
enum sequence {
    SEQUENCE_NONE,
    SEQUENCE_ESCAPE,        /* behind ESC */
    SEQUENCE_CONTROL,       /* behind ESC [ */
    SEQUENCE_STRING,        /* behind ESC P, ], X, ^ or _: up to BEL or ESC \\ */
    SEQUENCE_STRING_ESCAPE, /* behind an ESC in a string */
};

struct keys {
    enum sequence state;
    unsigned skip;       /* bytes that follow a finished sequence: a mouse report */
    bool is_first;       /* CONTROL: no parameter so far */
    bool is_device;      /* CONTROL: the first parameter byte is `?` */
    bool has_identity;   /* the reply to IDENTIFY has arrived */
    bool is_spoiled;     /* a sequence or junk arrived: the line is dropped at the next silence */
    bool is_wrong;       /* so does a key that stands for nothing: the person is told */
    bool is_entered;     /* the line was ended by Enter */
    bool is_interrupted; /* Ctrl-C, which counts at any time */
    char line[MAX_LINE];
    size_t len;
};

/*
 *   NOT_SHOWN --show--> DRAINING --identity and silence, or DRAIN_MS of silence--> READY -->
 * answered
 *
 * DRAINING: replies to queries of earlier commands may still arrive. All input is dropped, and the
 * line with the keys is not shown yet.
 */
enum phase { NOT_SHOWN, DRAINING, READY };

struct approver_tty {
    struct sp_approver approver;
    struct sp_loop *loop;
    int fd;
    struct sp_watch watch;
    struct sp_timer background;
    struct sp_timer silence;
    struct sp_deferred next; /* shows the first question */
    struct termios before;
    bool is_once;     /* see sp_approver_tty_new */
    bool is_bold;     /* the terminal takes escape codes */
    enum phase phase; /* of the first question; unless NOT_SHOWN the terminal is raw */
    struct keys keys;
    uint64_t heard_ms;      /* time of the last input */
    size_t echoed;          /* bytes of the line that are on the screen */
    struct sp_buf rest;     /* the part of the question that was left out */
    size_t rest_shown;      /* bytes of it that were shown since */
    struct sp_list entries; /* struct entry; the first one is shown */
};

struct entry {
    struct sp_list link;
    const struct sp_approval_question *question;
    sp_approver_fn *done;
    void *user;
};

/* The question on the screen. */
static struct entry *first_entry(const struct approver_tty *t)
{
    assert(!sp_list_is_empty(&t->entries));
    return SP_CONTAINER(t->entries.next, struct entry, link);
}

/* ---- keys ---- */

/* Follows escape sequences (ECMA-48). Whether the byte belongs to none. */
static bool is_plain(struct keys *k, unsigned char c)
{
    bool begins_control = false;

    if (k->skip != 0) {
        k->skip--;
        return false;
    }
    switch (k->state) {
    case SEQUENCE_ESCAPE:
        begins_control = c == '[';
        if (c == 'P' || c == ']' || c == 'X' || c == '^' || c == '_') {
            k->state = SEQUENCE_STRING;
        } else if (c != ESC && (c < 0x20 || c > 0x2f)) { /* an intermediate byte: more follow */
            k->state = SEQUENCE_NONE;
            k->skip = c == 'O'; /* a function key: one byte follows */
        }
        break;
    case SEQUENCE_CONTROL:
        if (c == ESC) {
            k->state = SEQUENCE_ESCAPE;
        } else if (c >= 0x40 && c <= 0x7e) {
            k->state = SEQUENCE_NONE;
            k->skip = c == 'M' && k->is_first ? MOUSE_BYTES : 0;
            k->has_identity |= c == 'c' && k->is_device;
        } else {
            k->is_device = k->is_first ? c == '?' : k->is_device;
            k->is_first = false;
        }
        break;
    case SEQUENCE_STRING:
    case SEQUENCE_STRING_ESCAPE:
        if (c == BEL || c == 0x9c || (k->state == SEQUENCE_STRING_ESCAPE && c == '\\'))
            k->state = SEQUENCE_NONE;
        else
            k->state = c == ESC ? SEQUENCE_STRING_ESCAPE : SEQUENCE_STRING;
        break;
    case SEQUENCE_NONE: /* also the one-byte forms of ESC [ and so on: programs can switch them on
                         */
        begins_control = c == 0x9b;
        if (c == 0x90 || c == 0x98 || (c >= 0x9d && c <= 0x9f))
            k->state = SEQUENCE_STRING;
        else if (c == ESC)
            k->state = SEQUENCE_ESCAPE;
        else if (!begins_control)
            return true;
        break;
    }
    if (begins_control) {
        k->state = SEQUENCE_CONTROL;
        k->is_first = true;
        k->is_device = false;
    }
    return false;
}

/* What was read, `since_ms` after the input before it. */
static void take_keys(struct keys *k, struct sp_str bytes, uint64_t since_ms)
{
    if (k->len == 0 && since_ms < SILENCE_MS)
        k->is_spoiled = true;
    for (size_t i = 0; i < bytes.n; i++) {
        const unsigned char c = (unsigned char)bytes.p[i];

        const bool is_key = is_plain(k, c);

        k->is_interrupted |= c == INTERRUPT;
        if (is_key && (c == 0x7f || c == '\b'))
            k->len -= k->len > 0;
        else if (is_key && (c == '\r' || c == '\n') && k->len > 0 && !k->is_entered)
            k->is_entered = true;
        else if (is_key && ((c >= 'a' && c <= 'z') || c == KEY_EXPLAIN) && k->len < MAX_LINE &&
                 !k->is_entered)
            k->line[k->len++] = (char)c;
        else if (is_key)
            k->is_wrong = true;
        else
            k->is_spoiled = true;
    }
}

static void clear_line(struct keys *k)
{
    k->is_spoiled = k->is_wrong = k->is_entered = false;
    k->len = 0;
}

/* ---- the terminal ---- */

/* Gives up after WRITE_MS: Ctrl-S stops the output of a terminal. */
static void print(const struct approver_tty *t, struct sp_str text)
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

/* Input byte by byte, without echo and signals. */
static bool make_raw(const struct approver_tty *t)
{
    struct termios raw = t->before;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)IXON;
    raw.c_oflag |= OPOST | ONLCR;
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    return tcsetattr(t->fd, TCSAFLUSH, &raw) == 0;
}

static void release_terminal(struct approver_tty *t)
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

/* The next question is shown from the loop: `done` may start a command that uses the terminal. */
static void finish_question(struct approver_tty *t, const struct sp_decision *d)
{
    struct entry *entry = first_entry(t);

    release_terminal(t);
    sp_list_remove(&entry->link);
    sp_loop_defer(t->loop, &t->next, show_next);
    entry->done(entry->user, entry->question->id, d);
    free(entry);
}

static void answer_question(struct approver_tty *t, enum sp_decision_kind kind)
{
    const struct sp_approval_question *q = first_entry(t)->question;
    const struct sp_decision d = {
        .kind = kind,
        .by = SP_DECIDER_USER,
        .amendment = kind == SP_DECISION_AMENDMENT ? q->amendment : (struct sp_words){0},
        .host = q->host,
        .allows_host = kind == SP_DECISION_NETWORK_AMENDMENT,
    };

    if (t->echoed != 0)
        print(t, SP_STR("\n  "));
    print(t, confirmation_of(kind));
    finish_question(t, &d);
}

static void give_up(struct approver_tty *t, struct sp_str why)
{
    const struct sp_decision d = {.kind = SP_DECISION_FAILED, .rejection = why};

    finish_question(t, &d);
}

/* ---- the dialogue ---- */

static struct offer offer_of(const struct approver_tty *t)
{
    return (struct offer){first_entry(t)->question, t->rest_shown == t->rest.len, t->is_once};
}

/* Behind this, keys count. */
static void print_prompt(struct approver_tty *t)
{
    clear_line(&t->keys);
    t->echoed = 0;
    print(t, SP_STR("  answer: "));
}

static void print_keys(struct approver_tty *t, bool explains)
{
    const struct offer o = offer_of(t);
    auto_buf struct sp_buf text = {0};

    if (add_answers(&text, &o, explains, t->is_bold))
        print(t, sp_buf_str(&text));
    print_prompt(t);
}

static void print_choices(struct approver_tty *t)
{
    const struct offer o = offer_of(t);
    auto_buf struct sp_buf text = {0};

    print(t, SP_STR("\n"));
    if (add_choices(&text, &o))
        print(t, sp_buf_str(&text));
    print_prompt(t);
}

/* One screen of the part that was left out. */
static void print_more(struct approver_tty *t)
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
    print_keys(t, false);
}

/* Echoes letters of a word as they arrive, but not a key that may be the whole answer. */
static void echo_line(struct approver_tty *t)
{
    const struct keys *k = &t->keys;
    const struct offer o = offer_of(t);

    if (k->len == 1 && t->echoed == 0 &&
        (k->line[0] == KEY_MORE || k->line[0] == KEY_EXPLAIN ||
         answer_of(&o, (struct sp_str){k->line, 1}) != SP_DECISION_MAX))
        return;
    for (; t->echoed > k->len; t->echoed--)
        print(t, SP_STR("\b \b"));
    print(t, (struct sp_str){k->line + t->echoed, k->len - t->echoed});
    t->echoed = k->len;
}

/* A key or a word answers; the beginning of a word waits for more; another key is told which ones
 * count; what a terminal sent by itself is dropped. */
static void take_line(struct approver_tty *t)
{
    const struct offer o = offer_of(t);
    const struct sp_str line = {t->keys.line, t->keys.len};
    const bool is_key = line.n == 1 && !t->keys.is_wrong;
    const enum sp_decision_kind kind =
        (is_key || t->keys.is_entered) && !t->keys.is_wrong ? answer_of(&o, line) : SP_DECISION_MAX;

    if (kind != SP_DECISION_MAX) {
        answer_question(t, kind);
    } else if (is_key && line.p[0] == KEY_MORE && !o.is_all_shown) {
        print_more(t);
    } else if (is_key && line.p[0] == KEY_EXPLAIN) {
        print(t, SP_STR("?\n"));
        print_keys(t, true);
    } else if (t->keys.is_wrong || t->keys.is_entered ||
               (line.n != 0 && !may_become_word(&o, line))) {
        print_choices(t);
    }
}

static void on_silence(struct sp_timer *timer)
{
    struct approver_tty *t = SP_CONTAINER(timer, struct approver_tty, silence);

    if (t->phase != READY) {
        t->phase = READY;
        print_keys(t, false);
        return;
    }
    if (!t->keys.is_spoiled) {
        take_line(t);
        return;
    }
    if (t->echoed != 0) {
        print(t, SP_STR("\n"));
        print_prompt(t);
    }
    clear_line(&t->keys);
}

static bool wait_for_silence(struct approver_tty *t)
{
    const bool is_draining = t->phase == DRAINING && !t->keys.has_identity;

    return sp_loop_timer(t->loop, &t->silence,
                         sp_loop_now(t->loop) + (is_draining ? DRAIN_MS : SILENCE_MS), on_silence);
}

/* Nothing is decided here: an answer counts only after a silence. */
static void on_readable(struct sp_watch *w, uint32_t events)
{
    struct approver_tty *t = SP_CONTAINER(w, struct approver_tty, watch);
    const uint64_t now = sp_loop_now(t->loop);
    struct termios mode;
    char bytes[256];
    const ssize_t n = read(t->fd, bytes, sizeof bytes);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* the terminal is gone */
        finish_question(t, &(struct sp_decision){.kind = SP_DECISION_ABORT});
        return;
    }
    /* A shell that stopped us and continued us has restored its own mode. */
    if (tcgetattr(t->fd, &mode) == 0 && (mode.c_lflag & ICANON) != 0)
        (void)make_raw(t);
    take_keys(&t->keys, (struct sp_str){bytes, (size_t)n}, now - t->heard_ms);
    t->heard_ms = now;
    if (t->keys.is_interrupted) {
        answer_question(t, SP_DECISION_ABORT);
        return;
    }
    if (t->phase == READY && !t->keys.is_spoiled && !t->keys.is_wrong)
        echo_line(t);
    if (!wait_for_silence(t))
        give_up(t, SP_STR("no memory to wait for an answer"));
}

/* ---- asking ---- */

static void on_background_timer(struct sp_timer *timer)
{
    struct approver_tty *t = SP_CONTAINER(timer, struct approver_tty, background);

    sp_loop_defer(t->loop, &t->next, show_next);
}

static void show_next(struct sp_deferred *d)
{
    struct approver_tty *t = SP_CONTAINER(d, struct approver_tty, next);
    const char *kind = getenv("TERM");
    const bool has_escapes = kind != NULL && kind[0] != 0 && strcmp(kind, "dumb") != 0;
    auto_buf struct sp_buf text = {0};

    if (sp_list_is_empty(&t->entries) || t->phase != NOT_SHOWN)
        return;
    if (!sp_terminal_is_ours(t->fd) && /* a background job waits */
        sp_loop_timer(t->loop, &t->background, sp_loop_now(t->loop) + BACKGROUND_MS,
                      on_background_timer))
        return;
    /* Keys at a terminal that another program reads key by key (an editor, an agent with a
     * full-screen interface) are meant for that program. */
    if (tcgetattr(t->fd, &t->before) < 0 || (t->before.c_lflag & ICANON) == 0 || !make_raw(t)) {
        give_up(t, SP_STR("another program uses the terminal"));
        return;
    }
    t->phase = DRAINING;
    t->keys = (struct keys){0};
    t->heard_ms = sp_loop_now(t->loop);
    t->rest.len = t->rest_shown = 0;
    t->is_bold = sp_plain_has_color(t->fd);
    const bool ok = sp_question_add_text(&text, first_entry(t)->question, &t->rest, t->is_bold);
    if (ok && has_escapes)
        print(t, SP_STR(RESET));
    if (ok)
        print(t, sp_buf_str(&text));
    if (ok && has_escapes)
        print(t, SP_STR(IDENTIFY));
    if (!ok || !wait_for_silence(t) ||
        sp_loop_watch(t->loop, &t->watch, t->fd, EPOLLIN, on_readable, NULL) < 0)
        give_up(t, SP_STR("no memory to ask at the terminal"));
}

static void ask_tty(struct sp_approver *a, const struct sp_approval_question *q,
                    sp_approver_fn *done, void *user)
{
    static const struct sp_decision failed = {
        .kind = SP_DECISION_FAILED, .rejection = SP_STR("no memory to ask at the terminal")};
    struct approver_tty *t = SP_CONTAINER(a, struct approver_tty, approver);
    struct entry *entry = calloc(1, sizeof *entry);

    if (entry == NULL) {
        done(user, q->id, &failed);
        return;
    }
    *entry = (struct entry){.question = q, .done = done, .user = user};
    sp_list_append(&t->entries, &entry->link);
    sp_loop_defer(t->loop, &t->next, show_next);
}

static void withdraw_from_tty(struct sp_approver *a, uint64_t question, void *user)
{
    struct approver_tty *t = SP_CONTAINER(a, struct approver_tty, approver);

    sp_list_each(i, &t->entries) {
        struct entry *entry = SP_CONTAINER(i, struct entry, link);

        if (entry->question->id != question || entry->user != user)
            continue;
        if (i == sp_list_first(&t->entries) && t->phase != NOT_SHOWN) {
            print(t, SP_STR("(not asked any more)\n"));
            release_terminal(t);
        }
        sp_list_remove(&entry->link);
        free(entry);
        sp_loop_defer(t->loop, &t->next, show_next);
        return;
    }
}

static void free_tty(struct sp_approver *a)
{
    struct approver_tty *t = SP_CONTAINER(a, struct approver_tty, approver);

    release_terminal(t);
    sp_loop_cancel(t->loop, &t->background);
    sp_loop_undefer(t->loop, &t->next);
    sp_list_each_safe(i, &t->entries)
        free(SP_CONTAINER(i, struct entry, link));
    (void)close(t->fd);
    sp_buf_done(&t->rest);
    free(t);
}

/* ---- opening ---- */

int sp_approver_tty_new(struct sp_loop *loop, bool is_once, struct sp_approver **ret,
                        struct sp_err *e)
{
    static const struct sp_approver_ops ops = {
        .ask = ask_tty, .withdraw = withdraw_from_tty, .free = free_tty};
    auto_close int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return sp_fail(e, SP_E_NOT_FOUND, 0,
                       "there is no terminal to ask on; give --approver program:PATH or deny");
    struct approver_tty *t = calloc(1, sizeof *t);
    if (t == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    t->approver.ops = &ops;
    t->loop = loop;
    t->is_once = is_once;
    sp_list_init(&t->entries);
    t->fd = TAKE_FD(fd);
    *ret = &t->approver;
    return 0;
}
