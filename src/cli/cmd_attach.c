/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport attach`: connects our terminal to a process of a server, until it ends or we detach.
 *
 *   output:  server --> queue --> stdout, stderr    a full queue: nothing is read from the server
 *   input:   stdin --> queue --> one write in flight --> server    a full queue: a pipe is not
 * read; a terminal is, for the detach key, and other keys are dropped
 *
 * While we are its writer, all keys but the detach key go to the process. The terminal is restored
 * on every way out.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "cli/escape_text.h"
#include "cli/observe.h"
#include "cli/own_stdio.h"
#include "cli/screen_modes.h"
#include "cli/signals.h"

#define LINGER_MS 2000  /* for children that hold the streams of a process that has exited */
#define MAX_TYPED 65536 /* bytes that wait to be sent */
#define INTERRUPT 0x03  /* Ctrl-C, which detaches a person who only watches */
#define RETAKE_MS 1000  /* between requests for the input of another client */

struct attach_options {
    bool is_read_only, is_stealing, ends_input;
    int detach_key; /* -1: none */
    struct sp_observe_options server;
};

/* stdout or stderr. */
struct attach_out {
    struct sp_port port;
    struct sp_watch watch;
    struct sp_buf queue;
    struct attach *attach;
};

struct attach {
    const struct attach_options *options;
    const char *word; /* PROC */
    struct sp_observe *observe;
    struct sp_loop *loop;
    struct sp_client *client;
    const struct sp_listed *proc;
    struct sp_client_request request; /* process/attach */
    uint64_t last;                    /* number of the last record that arrived */
    bool is_attached;                 /* it was answered once */
    bool is_asking_input;             /* the request wants to write */
    bool is_writer;                   /* of the process's input, and its terminal has our size */
    bool is_displaced;                /* a different client had the input at the last request */
    struct sp_client_request retake;  /* process/detach, to attach as the writer */
    uint64_t retook_ms;

    bool is_over; /* ends when the queues are written */
    bool is_cut;  /* ends at once */
    bool has_exited;
    bool ends_input;   /* the end of stdin follows `typed` */
    bool has_new_size; /* to be sent after the resize in flight */
    int64_t exit_code;
    struct attach_out outs[2];
    struct sp_timer linger;
    int status; /* our exit status, if is_over */
    int signals;

    struct sp_terminal terminal;
    bool has_read;                 /* `screen` knows the output up to `last` */
    struct sp_screen_modes screen; /* of a process on a terminal */
    struct sp_stdin in;
    char chunk[4096];
    struct sp_buf typed; /* not sent yet */
    struct sp_client_request write;
    char write_tag[40];   /* random prefix of write ids, unique across attach processes */
    uint64_t write_count; /* the rest of the id */

    struct sp_watch on_signal;
    struct sp_client_request resize;
};

/* ---- output ---- */

static bool is_drained(const struct attach *a)
{
    return a->outs[0].queue.len == 0 && a->outs[1].queue.len == 0;
}

/* The loop stops when the queues are written. */
static void finish(struct attach *a, int status)
{
    if (a->is_over)
        return;
    a->is_over = true;
    a->status = status;
    sp_stdin_stop(&a->in);
    if (is_drained(a))
        sp_loop_stop(a->loop);
}

static void on_writable(struct sp_watch *w, uint32_t events);

/* Writes as much as the port takes. The server is not read while anything is queued. */
static void write_queue(struct attach_out *out)
{
    struct attach *a = out->attach;
    ssize_t n = 0;

    while (out->queue.len > 0 && out->port.fd >= 0 && n >= 0) {
        n = sp_port_write(&out->port, out->queue.data, out->queue.len);
        if (n > 0)
            sp_buf_drop(&out->queue, (size_t)n);
    }
    if (n == -EAGAIN && out->watch.fn == NULL &&
        sp_loop_watch(a->loop, &out->watch, out->port.fd, EPOLLOUT, on_writable, NULL) < 0)
        n = -EIO;
    if (n != -EAGAIN)
        sp_loop_unwatch(a->loop, &out->watch);
    if (n < 0 && n != -EAGAIN) {
        /* The reader of our output is gone: end as a filter in a pipeline does. */
        sp_buf_done(&out->queue);
        sp_port_close(&out->port);
        finish(a, 128 + SIGPIPE);
    }
    sp_client_pause(a->client, !is_drained(a));
    if (a->is_over && is_drained(a))
        sp_loop_stop(a->loop);
}

static void on_writable(struct sp_watch *w, uint32_t events)
{
    (void)events; /* an error is found by the write */
    write_queue(SP_CONTAINER(w, struct attach_out, watch));
}

/* Output of the process. It is queued even for a slow reader: write_queue() pauses the server. */
static void add_output(struct attach *a, bool is_stderr, struct sp_str bytes)
{
    struct attach_out *out = &a->outs[is_stderr];

    if (out->port.fd < 0)
        return;
    if (sp_buf_add_str(&out->queue, bytes))
        write_queue(out);
    else
        finish(a, SP_EXIT_FAILED);
}

/* A line of our own, on stderr. */
SP_PRINTF(2, 3) static void say(struct attach *a, const char *fmt, ...)
{
    const char *nl = a->terminal.is_raw ? "\r\n" : "\n";
    char text[600];
    char line[640];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (snprintf(line, sizeof line, "%s[sallyport: %s]%s", nl, text, nl) > 0)
        add_output(a, true, sp_str_of(line));
}

/* ---- the screen ---- */

static bool shows_screen(const struct attach *a)
{
    return a->proc != NULL && a->proc->is_tty && isatty(STDOUT_FILENO);
}

/* Puts our terminal into the modes that the process has switched on, or back. */
static void switch_screen(struct attach *a, bool enters)
{
    auto_buf struct sp_buf text = {0};

    if (shows_screen(a) && sp_screen_add(&text, &a->screen, enters))
        add_output(a, false, sp_buf_str(&text));
    if (!enters)
        a->screen = (struct sp_screen_modes){0};
}

/* The result of process/read: the output from before we came, for the modes only. */
static void on_read(void *user, struct sp_json *j, uint32_t result)
{
    struct attach *a = user;
    const uint32_t chunks =
        sp_json_type(j, result) == SP_JSON_OBJECT ? sp_json_get(j, result, "chunks") : SP_JSON_NONE;
    uint64_t next = 0;

    if (chunks == SP_JSON_NONE || sp_json_type(j, chunks) != SP_JSON_ARRAY ||
        sp_json_opt_u64(j, result, "nextSeq", UINT64_MAX, &next, NULL) < 0 || next == 0)
        return;
    sp_json_each(j, chunks, c) {
        struct sp_str text = {"", 0};

        if (sp_json_type(j, c) == SP_JSON_OBJECT &&
            sp_json_opt_str(j, c, "chunk", &text, NULL) == 0) {
            auto_free char *room = malloc(text.n + 1);
            size_t n = 0;

            if (room != NULL && sp_base64_decode(text, room, &n, NULL) == 0)
                sp_screen_feed(&a->screen, (struct sp_str){room, n});
        }
    }
    a->last = next - 1;
    a->has_read = true;
}

/* A full-screen program has entered the alternate screen before we came, and redraws without doing
 * so again. A server that refuses the read leaves the modes unknown. */
static void read_screen(struct attach *a)
{
    auto_buf struct sp_buf params = {0};
    struct sp_err e = {0};

    if (shows_screen(a) && sp_listed_add_params(&params, a->proc, ",\"afterSeq\":%d", 0))
        (void)sp_observe_ask(a->observe, "process/read", sp_buf_str(&params), on_read, a, &e);
}

/* ---- the size of the window ---- */

static void send_size(struct attach *a, bool redraws);

static void on_resized(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct attach *a = SP_CONTAINER(r, struct attach, resize);

    (void)reply; /* refused: another client is the writer, and its size counts */
    if (a->has_new_size)
        send_size(a, false);
}

/* Our size becomes that of the process. redraws: the process has to draw its screen again, which
 * programs do when the size changes, so another size is sent first. */
static void send_size(struct attach *a, bool redraws)
{
    auto_buf struct sp_buf params = {0};
    uint16_t rows;
    uint16_t cols;

    if (!a->is_writer || !a->proc->is_tty || a->is_over)
        return;
    sp_terminal_size(&rows, &cols);
    if (rows == 0)
        return;
    a->has_new_size = true;
    if (a->resize.client != NULL)
        return; /* on_resized sends it */
    a->has_new_size = redraws;
    if (!sp_listed_add_params(&params, a->proc, ",\"rows\":%u,\"cols\":%u",
                              redraws && rows > 1 ? rows - 1U : rows, cols))
        return; /* out of memory: the next change is sent */
    a->resize = (struct sp_client_request){.fn = on_resized};
    sp_client_ask(a->client, &a->resize, "process/resize", sp_buf_str(&params));
}

/* ---- input ---- */

static void send_typed(struct attach *a);

/* A pipe waits until there is room. A terminal is read in any case: the person may want to leave.
 */
static void want_input(struct attach *a)
{
    if (!a->is_over && (a->terminal.is_raw || a->typed.len + sizeof a->chunk <= MAX_TYPED))
        sp_stdin_want(&a->in);
    else
        sp_stdin_stop(&a->in);
}

/* A refused write means that another client took over the input, or that the input is closed. */
static void on_written(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct attach *a = SP_CONTAINER(r, struct attach, write);
    struct sp_str status = {0};
    const char *why = NULL;

    if (reply->fate == SP_CLIENT_REFUSED)
        why = reply->code == sp_code_wire(SP_E_ATTACHED)
                  ? "somebody else types now; watching"
                  : "its input cannot be written any more; watching";
    else if (reply->fate == SP_CLIENT_RESULT &&
             sp_json_type(reply->j, reply->value) == SP_JSON_OBJECT &&
             sp_json_opt_str(reply->j, reply->value, "status", &status, NULL) == 0 &&
             !sp_str_eq(status, SP_STR("accepted")))
        why = "it takes no input; watching";
    if (why != NULL) {
        if (a->is_writer)
            say(a, "%s", why);
        a->is_displaced = a->is_writer && reply->fate == SP_CLIENT_REFUSED &&
                          reply->code == sp_code_wire(SP_E_ATTACHED);
        a->is_writer = false;
        sp_buf_done(&a->typed);
    }
    send_typed(a);
    want_input(a);
}

/* Sends the next chunk unless a write is in flight; after the last one, the end of the input. */
static void send_typed(struct attach *a)
{
    char text[SP_BASE64_LEN(sizeof a->chunk) + 1];
    auto_buf struct sp_buf params = {0};
    const size_t n = a->typed.len < sizeof a->chunk ? a->typed.len : sizeof a->chunk;
    bool ok;

    if (!a->is_writer || a->write.client != NULL || (n == 0 && !a->ends_input))
        return;
    if (n == 0) {
        a->ends_input = false;
        ok = sp_listed_add_params(&params, a->proc, "%s", "");
    } else {
        const char *end = sp_base64_encode(text, a->typed.data, n);

        ok = sp_listed_add_params(&params, a->proc,
                                  ",\"chunk\":\"%.*s\",\"writeId\":\"%s-%" PRIu64 "\"",
                                  (int)(end - text), text, a->write_tag, ++a->write_count);
        sp_buf_drop(&a->typed, n);
    }
    if (!ok) {
        finish(a, SP_EXIT_FAILED);
        return;
    }
    a->write = (struct sp_client_request){.fn = on_written, .is_repeatable = true};
    sp_client_ask(a->client, &a->write, n == 0 ? "process/closeStdin" : "process/write",
                  sp_buf_str(&params));
}

/* At a terminal alone: a person has to know before the keys are another program's. */
static void say_how_to_leave(struct attach *a)
{
    const int key = a->options->detach_key;
    auto_buf struct sp_buf word = {0};

    if (key >= 0 && sp_plain_add_word(&word, sp_str_of(a->word))) /* out of memory: not said */
        say(a, "attached to %.*s; Ctrl-%c detaches", (int)(word.len < 200 ? word.len : 200),
            word.data, key + '@');
}

/* A command on a terminal gets each key, one on pipes gets lines; the detach key works in both. */
static void change_terminal(struct attach *a)
{
    if (a->proc->is_tty)
        sp_terminal_make_raw(&a->terminal);
    else
        sp_terminal_end_lines_at(&a->terminal, a->options->detach_key);
}

static void request_attach(struct attach *a, bool wants_input);

static void on_detached(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct attach *a = SP_CONTAINER(r, struct attach, retake);

    if (reply->fate != SP_CLIENT_LOST && !a->is_over)
        request_attach(a, true);
}

/* Asks for the input again after a key, since the client that typed may have left. No output is
 * lost: the attachment continues behind the last record. */
static void retake_input(struct attach *a)
{
    const uint64_t now = sp_loop_now(a->loop);
    auto_buf struct sp_buf params = {0};

    if (a->retake.client != NULL || a->request.client != NULL ||
        (a->retook_ms != 0 && now - a->retook_ms < RETAKE_MS) ||
        !sp_listed_add_params(&params, a->proc, "%s", ""))
        return;
    a->retook_ms = now;
    a->retake = (struct sp_client_request){.fn = on_detached};
    sp_client_ask(a->client, &a->retake, "process/detach", sp_buf_str(&params));
}

/* Keys before the detach key are sent; those behind it are dropped. */
static void on_stdin(struct sp_stdin *in, ssize_t n)
{
    struct attach *a = SP_CONTAINER(in, struct attach, in);
    size_t typed = 0;

    if (n <= 0) {
        /* The end of a person's input (Ctrl-D) is the end of the process's; that of a file or a
         * pipe is only if the option says so: else the process goes on, and so do we. */
        a->ends_input = !a->proc->is_tty &&
                        (isatty(STDIN_FILENO) ? !a->terminal.is_raw : a->options->ends_input);
        if (!a->ends_input && !isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
            say(a, "our stdin has ended, that of the process has not; watching");
        sp_stdin_close(in);
        send_typed(a);
        return;
    }
    for (; typed < (size_t)n; typed++) {
        const int c = (unsigned char)a->chunk[typed];

        if (c == a->options->detach_key || (c == INTERRUPT && !a->is_writer && a->terminal.is_raw))
            break;
    }
    if (a->is_writer && sp_buf_add(&a->typed, a->chunk, typed)) /* full: dropped */
        send_typed(a);
    else if (a->is_displaced && !a->options->is_read_only && typed == (size_t)n)
        retake_input(a); /* this key is dropped */
    if (typed < (size_t)n) {
        switch_screen(a, false);
        say(a, "detached");
        finish(a, SP_EXIT_OK);
    } else {
        want_input(a);
    }
}

/* ---- notifications ---- */

/* Ends with the exit code of the process. */
static void finish_with_process(struct attach *a)
{
    switch_screen(a, false); /* a program that was killed has left it as it was */
    if (a->has_exited && a->exit_code >= 0 && a->exit_code <= 255) {
        finish(a, (int)a->exit_code);
        return;
    }
    say(a, "the process is gone, and nobody knows how it ended");
    finish(a, SP_EXIT_UNREACHABLE);
}

static void on_linger(struct sp_timer *t)
{
    finish_with_process(SP_CONTAINER(t, struct attach, linger));
}

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct attach *a = user;
    struct sp_err e = {0};
    struct sp_note n;
    char gap[160];

    if (a->is_over)
        return;
    if (sp_note_read(a->proc, method, j, params, &n, &e) < 0) {
        say(a, "a message of the server cannot be read: %s", e.msg);
        finish(a, SP_EXIT_FAILED);
        return;
    }
    if (n.kind != SP_NOTE_OTHER && n.kind != SP_NOTE_INPUT_LOST)
        a->last = n.seq;
    if (n.missed_records != 0) {
        sp_note_say_gap(&n, gap);
        say(a, "%s", gap);
    }
    switch (n.kind) {
    case SP_NOTE_OUTPUT:
        if (shows_screen(a))
            sp_screen_feed(&a->screen, n.bytes);
        add_output(a, n.is_stderr, n.bytes);
        break;
    case SP_NOTE_EXITED:
        a->has_exited = true;
        a->exit_code = n.exit_code;
        if (!sp_loop_timer(a->loop, &a->linger, sp_loop_now(a->loop) + LINGER_MS, on_linger))
            finish_with_process(a);
        break;
    case SP_NOTE_CLOSED:
        finish_with_process(a);
        break;
    case SP_NOTE_INPUT_LOST:
        if (a->is_writer)
            say(a, "somebody else types now; watching");
        a->is_displaced = a->is_displaced || a->is_writer;
        a->is_writer = false;
        break;
    case SP_NOTE_OTHER:
        break;
    }
}

static void on_interrupted(void *user, const char *why)
{
    (void)why; /* reported if the connection does not come back */
    say(user, "the connection is lost; trying again");
}

static void on_dead(void *user)
{
    switch_screen(user, false); /* nothing that the process writes comes here any more */
    finish(user, SP_EXIT_UNREACHABLE);
}

/* ---- attaching ---- */

/* If another client is the writer, attach again as an observer. */
static void on_attached(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct attach *a = SP_CONTAINER(r, struct attach, request);
    struct sp_json *j = reply->j;
    const bool is_object =
        reply->fate == SP_CLIENT_RESULT && sp_json_type(j, reply->value) == SP_JSON_OBJECT;
    bool is_closed = false;
    uint64_t next = 1;
    auto_buf struct sp_buf text = {0};

    switch (reply->fate) {
    case SP_CLIENT_RESULT:
        a->is_writer = a->is_asking_input;
        if (a->is_writer && a->is_displaced)
            say(a, "nobody else types any more; type");
        a->is_displaced = a->is_displaced && !a->is_writer;
        if (!a->is_attached && is_object) {
            /* How far the output is, and whether the process has ended already. */
            const uint32_t code = sp_json_get(j, reply->value, "exitCode");

            a->has_exited |= code != SP_JSON_NONE && sp_json_i64(j, code, &a->exit_code);
            (void)sp_json_def_bool(j, reply->value, "closed", &is_closed, NULL);
            if (!is_closed &&
                sp_json_opt_u64(j, reply->value, "nextSeq", UINT64_MAX, &next, NULL) == 0 &&
                next > 0)
                a->last = next - 1;
        }
        if (is_closed) {
            say(a, "it has ended");
            finish_with_process(a);
        } else if (!a->is_attached) {
            a->is_attached = true;
            if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
                say_how_to_leave(a);
            change_terminal(a);
            switch_screen(a, true);
            sp_stdin_open(&a->in, a->loop);
            want_input(a);
        }
        send_size(a, true);
        break;
    case SP_CLIENT_REFUSED:
        if (a->is_asking_input && reply->code == sp_code_wire(SP_E_ATTACHED)) {
            say(a, "somebody else types; watching (--steal takes over)");
            a->is_displaced = true;
            request_attach(a, false);
            break;
        }
        (void)sp_plain_add(&text, reply->message); /* out of memory: an empty message */
        say(a, "%.*s", (int)text.len, sp_buf_str(&text).p);
        finish(a, SP_EXIT_FAILED);
        break;
    case SP_CLIENT_LOST: /* on_dead or on_back follows */
        break;
    }
}

/* The first time, output begins now; after a reconnect, behind the last record that arrived. */
static void request_attach(struct attach *a, bool wants_input)
{
    const bool is_stealing = wants_input && a->options->is_stealing && !a->is_attached;
    auto_buf struct sp_buf params = {0};
    char after[48] = "";

    if (a->is_attached || a->has_read)
        (void)snprintf(after, sizeof after, ",\"afterSeq\":%" PRIu64, a->last);
    if (!sp_listed_add_params(&params, a->proc, ",\"input\":%s,\"steal\":%s%s",
                              wants_input ? "true" : "false", is_stealing ? "true" : "false",
                              after)) {
        finish(a, SP_EXIT_FAILED);
        return;
    }
    a->is_asking_input = wants_input;
    a->request = (struct sp_client_request){.fn = on_attached, .is_repeatable = true};
    sp_client_ask(a->client, &a->request, "process/attach", sp_buf_str(&params));
}

static void on_back(void *user)
{
    struct attach *a = user;

    if (!a->is_over && a->is_attached && a->request.client == NULL)
        request_attach(a, a->is_writer);
}

/* ---- signals ---- */

static void on_signal(struct sp_watch *w, uint32_t events)
{
    struct attach *a = SP_CONTAINER(w, struct attach, on_signal);
    struct signalfd_siginfo info;

    (void)events;
    if (read(a->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    switch (info.ssi_signo) {
    case SIGWINCH:
        send_size(a, false);
        break;
    case SIGTSTP:
        sp_terminal_restore(&a->terminal);
        (void)kill(getpid(), SIGSTOP);
        break;
    case SIGCONT:
        if (a->is_attached && !a->is_over)
            change_terminal(a);
        send_size(a, true);
        break;
    default:
        switch_screen(a, false);
        if (info.ssi_signo == SIGINT && isatty(STDERR_FILENO))
            say(a, "detached; the process runs on");
        /* Do not wait until a slow terminal has taken the queued output */
        a->is_over = a->is_cut = true;
        a->status = 128 + (int)info.ssi_signo;
        sp_loop_stop(a->loop);
        break;
    }
}

/* ---- the command ---- */

static int attach_until_over(struct attach *a, struct sp_err *e)
{
    static const struct sp_observe_ops ops = {
        .notified = on_notified, .interrupted = on_interrupted, .back = on_back, .dead = on_dead};
    static const int unless_ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, 0};
    uint64_t random[2];
    sigset_t set;

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return sp_fail(e, SP_E_SYSTEM, errno, "get random bytes");
    (void)snprintf(a->write_tag, sizeof a->write_tag, "%016" PRIx64 "%016" PRIx64, random[0],
                   random[1]);
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGCONT);
    int r = sp_signals_open(&set, unless_ignored, &a->signals, e);
    if (r == 0)
        r = sp_loop_watch(a->loop, &a->on_signal, a->signals, EPOLLIN, on_signal, e);
    if (r < 0)
        return r;
    for (int i = 0; i < 2; i++) {
        a->outs[i].attach = a;
        sp_port_open(&a->outs[i].port, i == 0 ? STDOUT_FILENO : STDERR_FILENO, false);
    }
    read_screen(a);
    a->observe->all->only = a->observe; /* other servers may end meanwhile */
    a->observe->all->ops = &ops;
    a->observe->all->user = a;
    request_attach(a, !a->options->is_read_only);
    while (r == 0 && !a->is_cut && !(a->is_over && is_drained(a)))
        r = sp_loop_run(a->loop, e);
    return r;
}

/* Also after a failure in attach_until_over(). */
static void detach(struct attach *a)
{
    a->observe->all->ops = NULL;
    sp_client_forget(&a->request);
    sp_client_forget(&a->retake);
    sp_client_forget(&a->write);
    sp_client_forget(&a->resize);
    sp_loop_cancel(a->loop, &a->linger);
    sp_stdin_close(&a->in);
    sp_buf_done(&a->typed);
    sp_loop_unwatch(a->loop, &a->on_signal);
    if (a->signals >= 0)
        (void)close(a->signals);
    sp_terminal_restore(&a->terminal);
    for (int i = 0; i < 2; i++) {
        sp_loop_unwatch(a->loop, &a->outs[i].watch);
        sp_buf_done(&a->outs[i].queue);
        sp_port_close(&a->outs[i].port);
    }
}

static int attach_to(struct sp_observe_all *all, void *user, struct sp_err *e)
{
    struct attach *a = user;
    int r = sp_observe_find(all, a->word, &a->proc, e);

    if (r < 0)
        return r;
    struct sp_observe *o = a->observe = a->proc->server;
    a->loop = all->loop;
    a->client = o->client;
    a->in.raw = a->proc->is_tty ? &a->terminal : NULL;
    r = attach_until_over(a, e);
    detach(a);
    if (r == 0 && o->death.code != SP_E_NONE && a->status == SP_EXIT_UNREACHABLE) {
        *e = o->death;
        all->is_unreachable = true;
        return -(int)e->code;
    }
    return r < 0 ? r : a->status;
}

static int run_attach(void *values, char **operands)
{
    struct attach a = {
        .options = values,
        .word = operands[0],
        .outs = {{.port.fd = -1}, {.port.fd = -1}},
        .in = {.port.fd = -1, .chunk = a.chunk, .size = sizeof a.chunk, .fn = on_stdin},
        .typed.max = MAX_TYPED,
        .signals = -1,
    };

    if (a.options->is_read_only && a.options->is_stealing) {
        (void)fprintf(stderr, "sallyport: --steal is of no use with --read-only\n");
        return SP_EXIT_USAGE;
    }
    return sp_observe_run(&a.options->server, NULL, attach_to, &a);
}

/* C-X and ^X are the byte that a terminal sends for Control and X. */
static const char *read_key(const char *argument, void *value)
{
    const char *name = "";
    int *key = value;

    if (strcmp(argument, "none") == 0) {
        *key = -1;
        return NULL;
    }
    if (argument[0] == '^')
        name = argument + 1;
    else if (argument[0] != 0 && strchr("Cc", argument[0]) != NULL && argument[1] == '-')
        name = argument + 2;
    const char c = name[0] >= 'a' && name[0] <= 'z' ? (char)(name[0] - 'a' + 'A') : name[0];
    if (strlen(name) != 1 || c < '@' || c > '_')
        return "a key such as C-] or C-a";
    *key = c - '@';
    return NULL;
}

static const struct sp_option option_table[] = {
    SP_OPT_FLAG(struct attach_options, is_read_only, "read-only", "only watch"),
    SP_OPT_FLAG(struct attach_options, is_stealing, "steal",
                "type, even if another client does: that one goes on watching"),
    SP_OPT_FLAG(struct attach_options, ends_input, "end-input",
                "the end of our stdin, a pipe or a file, is the end of the input of the process"),
    SP_OPT_READ(struct attach_options, detach_key, "detach-key", "KEY", read_key,
                "leave with this key: C-X for Control and X, or none (default C-])"),
    SP_OPT_TABLE(struct attach_options, server, sp_observe_options),
    SP_OPT_END,
};

static const struct attach_options defaults = {.detach_key = ']' - '@'};

const struct sp_cli_command sp_command_attach = {
    .name = "attach",
    .summary = "watch a process of a server, and type into it",
    .usage = "sallyport attach [OPTIONS] PROC\n"
             "\n"
             "Shows what a process of a server writes from now on, and types into it. Any "
             "number of clients may watch; one types, and the process has the size of its "
             "terminal. PROC is a process id, a name or SESSION/PROCESS, or the beginning of an "
             "id if only one begins so.\n",
    .notes = "Exit status: that of the process if it ends, 0 on detach; 1 if it failed or "
             "there is no such process; 2 for a wrong command line; 123 if the server "
             "cannot be reached or is lost.\n"
             "Example: sallyport attach --read-only 4b1d/shell\n",
    .options = option_table,
    .operand = "PROC",
    .missing = "which process?",
    .max_operands = 1,
    .values_size = sizeof(struct attach_options),
    .defaults = &defaults,
    .run = run_attach,
};
