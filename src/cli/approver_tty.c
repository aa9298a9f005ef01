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

#include "base/auto.h"
#include "base/list.h"
#include "cli/own_stdio.h"

#define SILENCE_MS    150  /* required before and after a key that answers */
#define DRAIN_MS      500  /* of silence, from a terminal that does not identify itself */
#define BACKGROUND_MS 200  /* between looks whether we are in the foreground again */
#define WRITE_MS      2000 /* until a terminal with stopped output (Ctrl-S) is given up */
#define MAX_LINE      16   /* characters of an answer */
#define FIELD_MAX     4096 /* bytes of a field of the question; its middle is left out */

#define ESC         0x1b
#define BEL         0x07
#define INTERRUPT   3   /* Ctrl-C */
#define KEY_MORE    'm' /* shows the next page of what was left out */
#define MOUSE_BYTES 3   /* behind ESC [ M: button, column and row, which may be any bytes */

/* Ends modes that a command may have left on: invisible letters, another alphabet, VT52 and 8-bit
 * replies, a scrolling region; mouse, focus and paste reports. */
#define RESET    "\x1b<\x0f\x1b[!p\x1b(B\x1b[0m\x1b[?1000;1002;1003;1004;1005;1006;1015;2004l"
#define IDENTIFY "\x1b[c" /* the reply comes behind those to all earlier queries */

/* ---- the question as a person reads it ----
 *
 * Everything that could control the terminal or mislead the reader is escaped. A field of more than
 * FIELD_MAX bytes is shown without its middle. Until the person has paged through the middle too,
 * answers that keep anything, or that run a command without a sandbox, are not offered. Those
 * answers are words that end with Enter; the others are single keys.
 */

struct page {
    struct sp_buf *out;
    struct sp_buf *rest; /* the middles that were left out, for the key `m` */
};

/* The ends of a long field go on the page, its middle to the rest. */
static bool add_cut(const struct page *p, const char *label, struct sp_str text, bool keeps_lines)
{
    const struct sp_str middle = sp_question_middle(text, FIELD_MAX);

    return sp_question_add_ends(p->out, text, middle, keeps_lines) &&
           (middle.n == 0 ||
            (sp_buf_printf(p->rest, "%s the %zu bytes that were not shown:\n", label, middle.n) &&
             sp_question_add_whole(p->rest, middle, keeps_lines) && sp_buf_add(p->rest, "\n", 1)));
}

static bool add_line(const struct page *p, const char *label, struct sp_str text)
{
    return text.n == 0 || (sp_buf_printf(p->out, "  %-12s ", label) &&
                           add_cut(p, label, text, false) && sp_buf_add(p->out, "\n", 1));
}

/* A rule that is too long to be shown as a whole is not offered. */
static bool offers_rule(const struct sp_approval_question *q)
{
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return true;
    return sp_question_offers_amendment(q) && sp_words_add_quoted(&words, q->amendment) &&
           words.len <= FIELD_MAX;
}

static bool add_paths(const struct page *out, const struct sp_grant *g)
{
    static const char *const labels[] = {
        [SP_ACCESS_DENY] = "  not", [SP_ACCESS_READ] = "+ read", [SP_ACCESS_WRITE] = "+ write"};
    bool ok = true;

    for (size_t i = 0; ok && i < g->extra.count; i++) {
        const struct sp_entry *one = &g->extra.entries[i];

        ok = add_line(out, labels[one->access], sp_question_place(one));
    }
    return ok && (!g->extra.has_network || add_line(out, "+ network", SP_STR("all of it")));
}

static bool add_allowed(const struct page *out, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf text = {0};
    const bool is_confined = q->profile != NULL && !q->is_free;
    bool ok;

    if (q->kind == SP_QUESTION_NETWORK)
        return true; /* the host line says it */
    if (!is_confined)
        ok = sp_buf_printf(&text, "everything: no sandbox");
    else if (q->profile_name != NULL)
        ok = sp_buf_printf(&text, "what the sandbox %s allows", q->profile_name);
    else
        ok = sp_buf_printf(&text, "what its sandbox allows");
    return ok && add_line(out, "allowed:", sp_buf_str(&text)) &&
           (q->additional == NULL || add_paths(out, q->additional));
}

/* The rule that is offered, and that it holds for later commands, too. */
static bool add_rule(const struct page *out, const struct sp_approval_question *q)
{
    static const char free_from_now[] = "this, and all that begins with it, runs unasked and "
                                        "WITHOUT A SANDBOX";
    static const char unasked_from_now[] = "this, and all that begins with it, runs unasked";
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return sp_buf_add_str(&words, SP_STR("allow ")) && sp_buf_add_str(&words, q->host) &&
               add_line(out, "rule:", sp_buf_str(&words));
    return !offers_rule(q) ||
           (sp_words_add_quoted(&words, q->amendment) &&
            add_line(out, "rule:", sp_buf_str(&words)) &&
            add_line(
                out, "from then on:",
                sp_str_of(sp_judge_may_run_free(q->profile) ? free_from_now : unasked_from_now)));
}

static bool add_subject(const struct page *out, const struct sp_approval_question *q)
{
    static const char *const labels[] = {
        [SP_PATCH_ADD] = "add:", [SP_PATCH_DELETE] = "delete:", [SP_PATCH_UPDATE] = "update:"};

    switch (q->kind) {
    case SP_QUESTION_PERMISSIONS:
        return q->additional == NULL || add_paths(out, q->additional);
    case SP_QUESTION_PATCH:
        for (uint32_t i = 0; q->changes != NULL && i < q->changes->count; i++) {
            const struct sp_patch_change *c = &q->changes->items[i];
            auto_buf struct sp_buf diff = {0};

            if (!add_line(out, labels[c->kind], sp_str_of(c->full_path)) ||
                (c->full_target != NULL &&
                 !add_line(out, "  move to:", sp_str_of(c->full_target))) ||
                !sp_patch_add_diff(&diff, c) ||
                !add_cut(out, c->full_path, sp_buf_str(&diff), true))
                return false;
        }
        return true;
    case SP_QUESTION_NETWORK:
        return add_line(out, "host:", q->shown_host.n != 0 ? q->shown_host : q->host) &&
               add_line(out, "command:", q->asking_command);
    case SP_QUESTION_RUN:
    case SP_QUESTION_ESCALATE:
    case SP_QUESTION_ADDITIONAL:
    case SP_QUESTION_RETRY:
        break;
    }
    return add_line(out, "command:", q->command);
}

/* Appends the question to *out, and to *rest the parts that were left out. */
static bool add_question(struct sp_buf *out, const struct sp_approval_question *q,
                         struct sp_buf *rest)
{
    static const char *const headlines[] = {
        [SP_QUESTION_RUN] = "may this run?",
        [SP_QUESTION_ESCALATE] = "may this run without a sandbox?",
        [SP_QUESTION_ADDITIONAL] = "may this do more than its sandbox allows?",
        [SP_QUESTION_RETRY] = "the sandbox got in the way of this. Once more, without it?",
        [SP_QUESTION_PATCH] = "may these files be changed?",
        [SP_QUESTION_PERMISSIONS] = "may commands do this from now on?",
        [SP_QUESTION_NETWORK] = "may a command reach this host?",
    };
    const struct page page = {out, rest};
    const char *headline = q->kind == SP_QUESTION_RETRY && q->is_guess
                               ? "this says that its sandbox got in the way. Once more, without it?"
                               : headlines[q->kind];

    return sp_buf_printf(out, "\nsallyport: %s\n", headline) && add_subject(&page, q) &&
           add_line(&page, "in:", q->cwd) && add_line(&page, "environment:", q->environment) &&
           add_line(&page, "reason:", q->reason) &&
           (q->kind == SP_QUESTION_PERMISSIONS || (add_allowed(&page, q) && add_rule(&page, q)));
}

/* ---- answers ---- */

#define ALLOWS_ONCE    "yes"
#define ALLOWS_SESSION "session"
#define KEEPS_RULE     "always"

/* Appends the keys and words that are offered; the last line has no line feed. */
static bool add_answers(struct sp_buf *out, const struct sp_approval_question *q, bool is_all_shown)
{
    const bool is_free = sp_question_is_free(q);

    if (is_all_shown && is_free &&
        !sp_buf_printf(out, "  type " ALLOWS_ONCE " and Enter: yes, WITHOUT A SANDBOX\n"
                            "  type " ALLOWS_SESSION
                            " and Enter: yes for this session, WITHOUT A SANDBOX\n"))
        return false;
    if (is_all_shown && offers_rule(q) &&
        !sp_buf_printf(out, "  type " KEEPS_RULE " and Enter: yes and keep the rule\n"))
        return false;
    if (!is_all_shown &&
        !sp_buf_printf(out, "  NOT ALL IS SHOWN: m shows more%s\n",
                       is_free ? "; yes can be said after that"
                               : "; yes for more than this once can be said after that"))
        return false;
    if (is_free)
        return sp_buf_printf(out, "  n no, q no and stop: ");
    return sp_buf_printf(out, "  y yes%s, %sn no, q no and stop: ",
                         q->kind == SP_QUESTION_PERMISSIONS ? " for this turn" : "",
                         is_all_shown ? "a yes for this session, " : "");
}

static const struct word {
    struct sp_str text;
    enum sp_decision_kind kind;
} words[] = {
    {SP_STR(ALLOWS_ONCE), SP_DECISION_APPROVED},
    {SP_STR(ALLOWS_SESSION), SP_DECISION_APPROVED_FOR_SESSION},
    {SP_STR(KEEPS_RULE), SP_DECISION_AMENDMENT},
};

static bool is_offered(const struct sp_approval_question *q, const struct word *w)
{
    return w->kind != SP_DECISION_AMENDMENT || offers_rule(q);
}

/* The decision that a key, or a word with Enter, stands for; SP_DECISION_MAX: none. A free run is
 * never approved by a single key. */
static enum sp_decision_kind answer_of(const struct sp_approval_question *q, bool is_all_shown,
                                       struct sp_str text)
{
    switch (text.n == 1 ? text.p[0] : 0) {
    case 'y':
        return sp_question_is_free(q) ? SP_DECISION_MAX : SP_DECISION_APPROVED;
    case 'a':
        return sp_question_is_free(q) || !is_all_shown ? SP_DECISION_MAX
                                                       : SP_DECISION_APPROVED_FOR_SESSION;
    case 'n':
        return SP_DECISION_DENIED;
    case 'q':
        return SP_DECISION_ABORT;
    default:
        break;
    }
    for (size_t i = 0; is_all_shown && i < sizeof words / sizeof words[0]; i++)
        if (sp_str_eq(text, words[i].text) && is_offered(q, &words[i]))
            return words[i].kind == SP_DECISION_AMENDMENT && sp_question_offers_host(q)
                       ? SP_DECISION_NETWORK_AMENDMENT
                       : words[i].kind;
    return SP_DECISION_MAX;
}

/* Whether an offered word begins with `begun`. */
static bool may_become_word(const struct sp_approval_question *q, bool is_all_shown,
                            struct sp_str begun)
{
    for (size_t i = 0; is_all_shown && i < sizeof words / sizeof words[0]; i++)
        if (begun.n <= words[i].text.n && memcmp(begun.p, words[i].text.p, begun.n) == 0 &&
            is_offered(q, &words[i]))
            return true;
    return false;
}

/* The line that confirms an answer. */
static struct sp_str confirmation_of(enum sp_decision_kind kind)
{
    static const char *const texts[SP_DECISION_MAX] = {
        [SP_DECISION_APPROVED] = "yes\n",
        [SP_DECISION_APPROVED_FOR_SESSION] = "yes, for this session\n",
        [SP_DECISION_AMENDMENT] = "yes, and the rule is kept\n",
        [SP_DECISION_NETWORK_AMENDMENT] = "yes, and the rule is kept\n",
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
        else if (is_key && c >= 'a' && c <= 'z' && k->len < MAX_LINE && !k->is_entered)
            k->line[k->len++] = (char)c;
        else
            k->is_spoiled = true;
    }
}

static void clear_line(struct keys *k)
{
    k->is_spoiled = k->is_entered = false;
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

static bool is_all_shown(const struct approver_tty *t)
{
    return t->rest_shown == t->rest.len;
}

static void print_keys(struct approver_tty *t)
{
    auto_buf struct sp_buf text = {0};

    clear_line(&t->keys);
    t->echoed = 0;
    if (add_answers(&text, first_entry(t)->question, is_all_shown(t)))
        print(t, (struct sp_str){text.data, text.len});
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
    print_keys(t);
}

/* Echoes letters of a word as they arrive, but not a key that may be the whole answer. */
static void echo_line(struct approver_tty *t)
{
    const struct keys *k = &t->keys;

    if (k->len == 1 && t->echoed == 0 &&
        (k->line[0] == KEY_MORE || answer_of(first_entry(t)->question, is_all_shown(t),
                                             (struct sp_str){k->line, 1}) != SP_DECISION_MAX))
        return;
    for (; t->echoed > k->len; t->echoed--)
        print(t, SP_STR("\b \b"));
    print(t, (struct sp_str){k->line + t->echoed, k->len - t->echoed});
    t->echoed = k->len;
}

/* A key or a word answers; the beginning of a word waits for more; anything else is dropped. */
static void inspect_line(struct approver_tty *t)
{
    const struct sp_approval_question *q = first_entry(t)->question;
    enum sp_decision_kind kind = SP_DECISION_MAX;

    if (t->keys.is_spoiled)
        clear_line(&t->keys);
    const struct sp_str line = {t->keys.line, t->keys.len};
    if (line.n == 1 && line.p[0] == KEY_MORE && !is_all_shown(t)) {
        print_more(t);
        return;
    }
    if (t->keys.is_entered || line.n == 1)
        kind = answer_of(q, is_all_shown(t), line);
    if (kind != SP_DECISION_MAX) {
        answer_question(t, kind);
        return;
    }
    if (!t->keys.is_entered && line.n != 0 && may_become_word(q, is_all_shown(t), line))
        return;
    if (t->echoed != 0) {
        print(t, SP_STR("\n"));
        print_keys(t);
    }
    clear_line(&t->keys);
}

static void on_silence(struct sp_timer *timer)
{
    struct approver_tty *t = SP_CONTAINER(timer, struct approver_tty, silence);

    if (t->phase == READY) {
        inspect_line(t);
        return;
    }
    t->phase = READY;
    print_keys(t);
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
    if (t->phase == READY && !t->keys.is_spoiled)
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
    const bool ok = add_question(&text, first_entry(t)->question, &t->rest);
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

int sp_approver_tty_new(struct sp_loop *loop, struct sp_approver **ret, struct sp_err *e)
{
    static const struct sp_approver_ops ops = {
        .ask = ask_tty, .withdraw = withdraw_from_tty, .free = free_tty};
    auto_close int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno,
                       "approver: there is no terminal to ask on; give --approver program:PATH or "
                       "deny");
    struct approver_tty *t = calloc(1, sizeof *t);
    if (t == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    t->approver.ops = &ops;
    t->loop = loop;
    sp_list_init(&t->entries);
    t->fd = TAKE_FD(fd);
    *ret = &t->approver;
    return 0;
}
