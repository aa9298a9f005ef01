/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport logs`: what a process has written, as far as its server still has it, and what it
 * writes from now on.
 *
 * The output so far is collected in memory and written after the connection is done with it: a slow
 * reader of ours (a pager) must not make the server drop us. With --follow the rest is written as
 * it arrives.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "cli/escape_text.h"
#include "cli/observe.h"

#define MAX_KEPT (256U << 20) /* bytes that are collected; a server keeps far less */

struct logs_options {
    bool follows, is_json, is_raw;
    uint64_t tail; /* UINT64_MAX: all lines */
    struct sp_observe_options server;
};

static const char *read_tail(const char *argument, void *value)
{
    return sp_str_to_u64(sp_str_of(argument), UINT64_MAX - 1, value) ? NULL : "a number of lines";
}

static const struct sp_option options[] = {
    SP_OPT_FLAG(struct logs_options, follows, "follow",
                "go on with what it writes, until it has ended"),
    SP_OPT_READ(struct logs_options, tail, "tail", "LINES", read_tail,
                "of the output so far, only the last LINES lines"),
    SP_OPT_FLAG(struct logs_options, is_json, "json",
                "one JSON object a line: output, gap, exited, closed"),
    SP_OPT_FLAG(struct logs_options, is_raw, "raw",
                "write every byte as it is, also to a terminal"),
    SP_OPT_TABLE(struct logs_options, server, sp_observe_options),
    SP_OPT_END,
};

/* A collected notification; its bytes are in logs.bytes, since the message is gone. */
struct kept {
    struct sp_note note;
    size_t at; /* offset of its bytes */
};

struct logs {
    const struct logs_options *options;
    struct sp_observe *observe;
    const struct sp_listed *proc;
    uint64_t target; /* number of the last record at the time of the list */
    uint64_t last;   /* number of the last record that arrived */
    bool is_attached, is_collecting, is_over;
    struct sp_buf items, bytes;     /* collected: struct kept, and output */
    struct sp_plain_rest rest[2];   /* unfinished characters for a terminal: stdout, stderr */
    struct sp_client_request again; /* process/attach after a reconnect */
    struct sp_err error;
    int failed;
};

static void stop_logs(struct logs *l)
{
    l->is_over = true;
    sp_loop_stop(l->observe->loop);
}

static void fail_logs(struct logs *l, int result)
{
    l->failed = result;
    stop_logs(l);
}

/* ---- writing ---- */

static bool write_json_output(const struct sp_note *n)
{
    auto_free char *text = malloc(SP_BASE64_LEN(n->bytes.n) + 1);

    if (text == NULL)
        return false;
    const char *end = sp_base64_encode(text, n->bytes.p, n->bytes.n);
    return printf("{\"type\":\"output\",\"seq\":%" PRIu64
                  ",\"stream\":\"%.*s\",\"chunk\":\"%.*s\"}\n",
                  n->seq, (int)n->stream.n, n->stream.p, (int)(end - text), text) >= 0;
}

static bool write_json(const struct sp_note *n)
{
    bool ok = true;

    if (n->missed_records != 0) {
        ok = printf("{\"type\":\"gap\",\"records\":%" PRIu64, n->missed_records) >= 0;
        if (n->knows_missed_bytes)
            ok = ok && printf(",\"bytes\":%" PRIu64, n->missed_bytes) >= 0;
        ok = ok && puts("}") >= 0;
    }
    if (n->kind == SP_NOTE_OUTPUT)
        return ok && (n->bytes.n == 0 || write_json_output(n));
    if (n->kind == SP_NOTE_EXITED)
        return ok && printf("{\"type\":\"exited\",\"seq\":%" PRIu64 ",\"exitCode\":%" PRId64 "}\n",
                            n->seq, n->exit_code) >= 0;
    return ok && printf("{\"type\":\"closed\",\"seq\":%" PRIu64 "}\n", n->seq) >= 0;
}

/* Control characters would be obeyed by a terminal: it gets escapes instead, unless --raw. */
static bool write_bytes(struct logs *l, FILE *out, struct sp_str bytes, bool is_end)
{
    auto_buf struct sp_buf plain = {0};

    if (l->options->is_raw || isatty(fileno(out)) == 0)
        return fwrite(bytes.p, 1, bytes.n, out) == bytes.n;
    return sp_plain_add_output(&plain, bytes, is_end, &l->rest[out == stderr]) &&
           (plain.len == 0 || fwrite(plain.data, 1, plain.len, out) == plain.len);
}

/* Gaps are reported where they are, on stderr. */
static bool write_text(struct logs *l, const struct sp_note *n)
{
    char gap[160];
    FILE *out = n->is_stderr ? stderr : stdout;

    if (n->missed_records != 0) {
        sp_note_say_gap(n, gap);
        (void)fflush(stdout);
        (void)fprintf(stderr, "sallyport logs: %s\n", gap);
    }
    if (n->kind != SP_NOTE_OUTPUT || n->bytes.n == 0)
        return true;
    if (n->is_stderr)
        (void)fflush(stdout); /* keep the order of the two streams */
    return write_bytes(l, out, n->bytes, false);
}

static void write_note(struct logs *l, const struct sp_note *n)
{
    if (!(l->options->is_json ? write_json(n) : write_text(l, n)))
        fail_logs(l, sp_fail(&l->error, SP_E_SYSTEM, errno, "write the output"));
}

/* ---- the output so far ---- */

static size_t count_kept(const struct logs *l)
{
    return l->items.len / sizeof(struct kept);
}

static struct kept kept_at(const struct logs *l, size_t i)
{
    struct kept k;

    memcpy(&k, l->items.data + i * sizeof k, sizeof k);
    k.note.bytes.p = l->bytes.data + k.at; /* the buffer may have moved since keep_note() */
    return k;
}

static void keep_note(struct logs *l, const struct sp_note *n)
{
    struct kept k = {.note = *n, .at = l->bytes.len};

    /* The stream of the note points into the message: constants replace it. */
    k.note.stream = n->is_stderr                          ? SP_STR("stderr")
                    : sp_str_eq(n->stream, SP_STR("pty")) ? SP_STR("pty")
                                                          : SP_STR("stdout");
    if (!sp_buf_add_str(&l->bytes, n->bytes) || !sp_buf_add(&l->items, &k, sizeof k))
        fail_logs(l, sp_fail(&l->error, SP_E_SYSTEM, ENOMEM, "keep the output"));
}

/* The offset at which the last --tail lines begin; an unfinished last line counts as one. */
static size_t find_tail(const struct logs *l)
{
    const struct sp_buf *b = &l->bytes;
    uint64_t left = l->options->tail;
    size_t at = b->len;

    if (left == UINT64_MAX)
        return 0;
    if (left == 0)
        return b->len;
    if (at > 0 && b->data[at - 1] == '\n')
        at--;
    while (at > 0 && (b->data[at - 1] != '\n' || --left > 0))
        at--;
    return at;
}

/* Notifications before the tail are skipped, and the first one may be cut. */
static void write_kept(struct logs *l)
{
    const size_t from = find_tail(l);

    for (size_t i = 0; i < count_kept(l) && l->failed == 0; i++) {
        struct kept k = kept_at(l, i);
        const size_t skip = k.at >= from ? 0 : from - k.at;

        if (skip >= k.note.bytes.n && skip > 0)
            k.note.bytes.n = 0;
        else
            k.note.bytes = (struct sp_str){k.note.bytes.p + skip, k.note.bytes.n - skip};
        if (from > 0 && k.at < from)
            k.note.missed_records = 0; /* a gap before the tail */
        write_note(l, &k.note);
    }
    sp_buf_done(&l->items);
    sp_buf_done(&l->bytes);
}

/* The output up to `target` has arrived. */
static void end_collecting(struct logs *l)
{
    l->is_collecting = false;
    if (!l->options->follows) {
        stop_logs(l); /* follow_process() writes it, after the server is done with us */
        return;
    }
    write_kept(l);
    (void)fflush(stdout);
}

/* ---- following ---- */

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct logs *l = user;
    struct sp_note n;
    const int r = l->is_over ? 0 : sp_note_read(l->proc, method, j, params, &n, &l->error);

    if (r < 0) {
        (void)sp_wrap(&l->error, "a message of the server cannot be read");
        fail_logs(l, r);
    }
    if (l->is_over || n.kind == SP_NOTE_OTHER || n.kind == SP_NOTE_INPUT_LOST)
        return;
    l->last = n.seq;
    if (l->is_collecting) {
        keep_note(l, &n);
        if (n.seq >= l->target || n.kind == SP_NOTE_CLOSED)
            end_collecting(l);
    } else {
        write_note(l, &n);
        (void)fflush(stdout);
    }
    if (n.kind == SP_NOTE_CLOSED)
        stop_logs(l);
}

static void on_attached(void *user, struct sp_json *j, uint32_t result)
{
    (void)j;
    (void)result;
    ((struct logs *)user)->is_attached = true;
}

static bool write_attach(const struct logs *l, struct sp_buf *b)
{
    return sp_buf_printf(b, "{") && sp_listed_add_place(b, l->proc) &&
           sp_buf_printf(b, ",\"afterSeq\":%" PRIu64 "}", l->last);
}

static void on_attached_again(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct logs *l = SP_CONTAINER(r, struct logs, again);

    if (reply->fate == SP_CLIENT_REFUSED)
        fail_logs(l, sp_fail(&l->error, SP_E_FAILED, 0, "the process is gone"));
}

static void on_back(void *user)
{
    struct logs *l = user;
    auto_buf struct sp_buf params = {0};

    /* The client repeats the first request itself. */
    if (!l->is_attached || l->again.client != NULL || !write_attach(l, &params))
        return;
    l->again.fn = on_attached_again;
    sp_client_ask(l->observe->client, &l->again, "process/attach",
                  (struct sp_str){params.data, params.len});
}

static const struct sp_observe_ops ops = {.notified = on_notified, .back = on_back};

static int follow_process(struct logs *l, struct sp_err *e)
{
    auto_buf struct sp_buf params = {0};

    if (!write_attach(l, &params))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    l->is_collecting = true;
    l->bytes.max = l->items.max = MAX_KEPT;
    l->observe->ops = &ops; /* before the request: output may arrive together with its answer */
    l->observe->user = l;
    int r = sp_observe_ask(l->observe, "process/attach", (struct sp_str){params.data, params.len},
                           on_attached, l, e);
    if (r < 0)
        return r;
    if (l->target == 0 && l->is_collecting)
        end_collecting(l);
    while (r == 0 && !l->is_over && l->observe->death.code == SP_E_NONE)
        r = sp_loop_run(l->observe->loop, e);
    sp_client_forget(&l->again);
    l->observe->ops = NULL;
    if (r == 0 && !l->is_over) {
        *e = l->observe->death;
        r = -(int)e->code;
    } else if (r == 0 && l->failed == 0 && count_kept(l) > 0) {
        write_kept(l);
    }
    if (r == 0 && l->failed < 0) {
        *e = l->error;
        r = l->failed;
    }
    return r;
}

static int show_logs(struct logs *l, const char *proc, struct sp_err *e)
{
    struct sp_process_list all = {0};
    int r = sp_observe_list(l->observe, &all, e);

    if (r == 0)
        r = sp_list_find(&all, proc, &l->proc, e);
    if (r == 0) {
        l->target = l->proc->next_seq > 0 ? l->proc->next_seq - 1 : 0;
        r = follow_process(l, e);
    }
    if (!l->options->is_json)
        (void)(write_bytes(l, stderr, SP_STR(""), true) &&
               write_bytes(l, stdout, SP_STR(""), true));
    if (fflush(stdout) != 0 && r == 0)
        r = sp_fail(e, SP_E_SYSTEM, errno, "write the output");
    sp_buf_done(&l->items);
    sp_buf_done(&l->bytes);
    sp_list_done(&all);
    return r;
}

static int run_logs(void *values, char **operands)
{
    const struct logs_options *o = values;
    struct logs l = {.options = o};
    struct sp_err e = {0};
    int status = sp_observe_open(&o->server, &l.observe);

    if (status == SP_EXIT_OK && show_logs(&l, operands[0], &e) < 0)
        status = sp_observe_complain(l.observe, &e);
    sp_observe_free(l.observe);
    return status;
}

static const struct logs_options defaults = {.tail = UINT64_MAX};

const struct sp_cli_command sp_command_logs = {
    .name = "logs",
    .summary = "show what a process of a server has written",
    .usage = "sallyport logs [OPTIONS] PROC\n"
             "\n"
             "Writes the output of a process of a server as far as it is kept: the last mebibyte.\n"
             "PROC is a process id or SESSION/PROCESS, or the beginning of one if only one begins\n"
             "so.\n",
    .notes =
        "Its stdout and the output of a terminal go to stdout, its stderr to stderr; gaps are\n"
        "reported on stderr. On a terminal, control characters other than line ends and tabs\n"
        "are shown as escapes (\\x1b): output must not control the terminal of its reader.\n"
        "Exit status: 0; 1 if it failed or there is no such process; 2 for a wrong command\n"
        "line; 123 if the server cannot be reached.\n"
        "Example: sallyport logs --follow --tail 20 build\n",
    .options = options,
    .missing = "which process?",
    .max_operands = 1,
    .values_size = sizeof(struct logs_options),
    .defaults = &defaults,
    .run = run_logs,
};
