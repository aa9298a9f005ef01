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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "cli/escape_text.h"
#include "cli/observe.h"

#define MAX_KEPT (256U << 20) /* bytes that are collected; a server keeps far less */

#define MAX_SINCE_MS (100 * 365 * (uint64_t)86400000)

struct logs_options {
    bool follows, is_json, is_raw;
    uint64_t tail;     /* UINT64_MAX: all lines */
    uint64_t since_ms; /* age of the oldest output; 0: all */
    struct sp_observe_options server;
};

static const char *read_tail(const char *argument, void *value)
{
    return sp_str_to_u64(sp_str_of(argument), UINT64_MAX - 1, value) ? NULL : "a number of lines";
}

static const struct sp_option options[] = {
    SP_OPT_FLAG(struct logs_options, follows, "follow",
                "go on with what it writes, until it has ended", .short_name = 'f'),
    SP_OPT_READ(struct logs_options, tail, "tail", "LINES", read_tail,
                "of the output so far, only the last LINES lines", .short_name = 'n'),
    SP_OPT_TIME(struct logs_options, since_ms, "since", "TIME", 1, MAX_SINCE_MS,
                "of the output so far, only that of the last 30 (seconds), 5m, 1h"),
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
    const char *word; /* PROC */
    struct sp_observe_all *all;
    struct sp_observe *observe; /* its server */
    const struct sp_listed *proc;
    uint64_t target; /* number of the last record at the time of the list */
    uint64_t last;   /* number of the last record that arrived */
    bool is_attached, is_collecting, is_over;
    struct sp_buf items, bytes;     /* collected: struct kept, and output */
    struct sp_plain_rest rest[2];   /* unfinished characters for a terminal: stdout, stderr */
    struct sp_client_request again; /* process/attach after a reconnect */
    struct sp_watch reader;         /* stdout, with --follow: errors alone */
    struct sp_err error;
    int failed;
};

static void stop_logs(struct logs *l)
{
    l->is_over = true;
    sp_loop_stop(l->all->loop);
}

static void fail_logs(struct logs *l, int result)
{
    l->failed = result;
    stop_logs(l);
}

/* ---- writing ---- */

static bool write_json(const struct sp_note *n)
{
    auto_free char *text = malloc(SP_BASE64_LEN(n->bytes.n) + 1);

    if (n->missed_records != 0) {
        (void)printf("{\"type\":\"gap\",\"records\":%" PRIu64, n->missed_records);
        if (n->knows_missed_bytes)
            (void)printf(",\"bytes\":%" PRIu64, n->missed_bytes);
        (void)puts("}");
    }
    if (n->kind == SP_NOTE_OUTPUT && n->bytes.n > 0 && text != NULL) {
        const char *end = sp_base64_encode(text, n->bytes.p, n->bytes.n);

        (void)printf("{\"type\":\"output\",\"seq\":%" PRIu64
                     ",\"stream\":\"%.*s\",\"chunk\":\"%.*s\"}\n",
                     n->seq, (int)n->stream.n, n->stream.p, (int)(end - text), text);
    } else if (n->kind == SP_NOTE_EXITED) {
        (void)printf("{\"type\":\"exited\",\"seq\":%" PRIu64 ",\"exitCode\":%" PRId64 "}\n", n->seq,
                     n->exit_code);
    } else if (n->kind == SP_NOTE_CLOSED) {
        (void)printf("{\"type\":\"closed\",\"seq\":%" PRIu64 "}\n", n->seq);
    }
    return text != NULL && ferror(stdout) == 0;
}

/* Called before stderr is written, and after each notification of --follow. */
static void flush_output(struct logs *l)
{
    if (l->failed == 0 && fflush(stdout) != 0)
        fail_logs(l, sp_fail(&l->error, SP_E_SYSTEM, errno, "write the output"));
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

/* Gaps are reported where they are; as text, on stderr. */
static void write_note(struct logs *l, const struct sp_note *n)
{
    char gap[160];
    bool ok = true;

    if (l->options->is_json) {
        ok = write_json(n);
    } else {
        if (n->missed_records != 0 || n->is_stderr)
            flush_output(l); /* keep the order of the two streams */
        if (n->missed_records != 0) {
            sp_note_say_gap(n, gap);
            (void)fprintf(stderr, "sallyport: %s\n", gap);
        }
        if (n->kind == SP_NOTE_OUTPUT && n->bytes.n > 0)
            ok = write_bytes(l, n->is_stderr ? stderr : stdout, n->bytes, false);
    }
    if (!ok && l->failed == 0)
        fail_logs(l, sp_fail(&l->error, SP_E_SYSTEM, errno, "write the output"));
}

/* ---- the output so far ---- */

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

/* Of the output that was kept, the last --tail lines; an unfinished last line counts as one.
 * Notifications before them are skipped, and the first one may be cut. */
static void write_kept(struct logs *l)
{
    const struct sp_buf *b = &l->bytes;
    uint64_t left = l->options->tail;
    size_t from = left == UINT64_MAX ? 0 : b->len;
    struct kept k;

    if (from > 0 && left > 0) {
        from -= b->data[from - 1] == '\n';
        while (from > 0 && (b->data[from - 1] != '\n' || --left > 0))
            from--;
    }
    for (size_t i = 0; i < l->items.len && l->failed == 0; i += sizeof k) {
        memcpy(&k, l->items.data + i, sizeof k);
        const size_t before = k.at >= from ? 0 : from - k.at; /* bytes in front of the tail */
        const size_t skip = before < k.note.bytes.n ? before : k.note.bytes.n;

        k.note.bytes = (struct sp_str){b->data + k.at + skip, k.note.bytes.n - skip};
        if (before > 0)
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
    flush_output(l);
}

/* ---- following ---- */

/* The reader of the pipe has closed it: no write would fail while the process is silent. */
static void on_reader_gone(struct sp_watch *w, uint32_t events)
{
    struct logs *l = SP_CONTAINER(w, struct logs, reader);

    (void)events;
    sp_loop_unwatch(l->all->loop, w);
    fail_logs(l, 128 + SIGPIPE);
}

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
        flush_output(l);
    }
    if (n.kind == SP_NOTE_CLOSED)
        stop_logs(l);
}

/* With --since the first record may come after those that the list told of. */
static void on_attached(void *user, struct sp_json *j, uint32_t result)
{
    struct logs *l = user;
    struct sp_err e = {0};
    uint64_t next = 0;

    l->is_attached = true;
    if (sp_json_type(j, result) == SP_JSON_OBJECT &&
        sp_json_opt_u64(j, result, "nextSeq", UINT64_MAX, &next, &e) == 0 && next > l->target)
        l->target = 0;
}

static bool write_attach(const struct logs *l, struct sp_buf *b)
{
    if (l->options->since_ms != 0 && l->last == 0)
        return sp_listed_add_params(b, l->proc, ",\"afterSeq\":0,\"maxAgeMs\":%" PRIu64,
                                    l->options->since_ms);
    return sp_listed_add_params(b, l->proc, ",\"afterSeq\":%" PRIu64, l->last);
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
    sp_client_ask(l->observe->client, &l->again, "process/attach", sp_buf_str(&params));
}

static const struct sp_observe_ops ops = {.notified = on_notified, .back = on_back};

/* The whole output so far, then what follows. */
static int follow_process(struct logs *l, struct sp_err *e)
{
    struct sp_observe *o = l->observe;
    auto_buf struct sp_buf params = {0};

    if (!write_attach(l, &params))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    l->is_collecting = true;
    l->bytes.max = l->items.max = MAX_KEPT;
    l->all->ops = &ops; /* before the request: output may arrive together with its answer */
    l->all->user = l;
    int r = sp_observe_ask(o, "process/attach", sp_buf_str(&params), on_attached, l, e);
    if (r < 0)
        return r;
    if (l->target == 0 && l->is_collecting)
        end_collecting(l);
    if (l->options->follows) /* fails for a file, which has no reader */
        (void)sp_loop_watch(l->all->loop, &l->reader, STDOUT_FILENO, 0, on_reader_gone, NULL);
    while (r == 0 && !l->is_over && o->death.code == SP_E_NONE)
        r = sp_loop_run(l->all->loop, e);
    sp_loop_unwatch(l->all->loop, &l->reader);
    sp_client_forget(&l->again);
    l->all->ops = NULL;
    if (r < 0)
        return r;
    if (l->is_over && l->failed == 0 && l->items.len > 0)
        write_kept(l);
    if (!l->is_over || l->failed < 0)
        *e = l->is_over ? l->error : o->death;
    return l->is_over ? l->failed : -(int)e->code;
}

/* ---- the output of an ended process ---- */

/* A chunk as the note that a live process would have sent; decoded in place. */
static int read_chunk(struct sp_json *j, uint32_t at, struct sp_note *n, struct sp_err *e)
{
    if (sp_json_type(j, at) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, at, "a map", e);
    if (sp_json_need_u64(j, at, "seq", UINT64_MAX, &n->seq, e) < 0 ||
        sp_json_need_str(j, at, "stream", &n->stream, e) < 0 ||
        sp_json_need_str(j, at, "chunk", &n->bytes, e) < 0)
        return -(int)e->code;
    n->kind = SP_NOTE_OUTPUT;
    n->is_stderr = sp_str_eq(n->stream, SP_STR("stderr"));
    return sp_base64_decode(n->bytes, (char *)(uintptr_t)n->bytes.p, &n->bytes.n, e);
}

static void on_past_output(void *user, struct sp_json *j, uint32_t result)
{
    struct logs *l = user;
    struct sp_err *e = &l->error;
    struct sp_note n = {0};
    uint32_t chunks = SP_JSON_NONE;
    uint32_t gap = SP_JSON_NONE;
    int r =
        sp_json_type(j, result) == SP_JSON_OBJECT ? 0 : sp_json_wrong_type(j, result, "a map", e);

    if (r == 0)
        r = sp_json_need_array(j, result, "chunks", &chunks, e);
    if (r == 0)
        r = sp_json_opt_object(j, result, "gap", &gap, e);
    if (r == 0 && gap != SP_JSON_NONE &&
        (sp_json_need_u64(j, gap, "records", UINT64_MAX, &n.missed_records, e) < 0 ||
         sp_json_need_u64(j, gap, "bytes", UINT64_MAX, &n.missed_bytes, e) < 0))
        r = -(int)e->code;
    n.knows_missed_bytes = true;
    if (r == 0 && (l->options->since_ms != 0 || n.missed_records == 0))
        n.missed_records = 0; /* older than what was asked for */
    else if (r == 0 && sp_json_first(j, chunks) == SP_JSON_NONE)
        write_note(l, &n); /* no output left */
    for (uint32_t t = r < 0 ? SP_JSON_NONE : sp_json_first(j, chunks); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, chunks, t)) {
        r = read_chunk(j, t, &n, e);
        if (r == 0)
            keep_note(l, &n);
        n.missed_records = 0;
    }
    if (r < 0)
        l->failed = sp_wrap(e, "a message of the server cannot be read");
}

static int show_past(struct logs *l, struct sp_err *e)
{
    auto_buf struct sp_buf params = {0};
    const struct sp_listed *p = l->proc;

    l->bytes.max = l->items.max = MAX_KEPT;
    if (!sp_buf_printf(&params, "{\"historyId\":%" PRIu64, p->history_id) ||
        (l->options->since_ms != 0 &&
         !sp_buf_printf(&params, ",\"maxAgeMs\":%" PRIu64, l->options->since_ms)) ||
        !sp_buf_add(&params, "}", 1))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    const int r =
        sp_observe_ask(l->observe, "history/output", sp_buf_str(&params), on_past_output, l, e);
    if (r == 0 && l->failed == 0)
        write_kept(l);
    if (l->failed < 0)
        *e = l->error;
    else if (r == 0 && l->options->is_json && p->has_exited)
        (void)printf("{\"type\":\"exited\",\"exitCode\":%" PRId64 "}\n", p->exit_code);
    if (r == 0 && l->failed == 0 && l->options->is_json)
        (void)printf("{\"type\":\"closed\",\"seq\":%" PRIu64 "}\n", l->target);
    return r == 0 ? l->failed : r;
}

static int show_logs(struct sp_observe_all *a, void *user, struct sp_err *e)
{
    struct logs *l = user;

    l->all = a;
    int r = sp_observe_find_ended(a, l->word, &l->proc, e);
    if (r == 0) {
        l->observe = l->proc->server;
        l->target = l->proc->next_seq > 0 ? l->proc->next_seq - 1 : 0;
        r = l->proc->history_id != 0 ? show_past(l, e) : follow_process(l, e);
        a->is_unreachable = r < 0 && l->observe->death.code != SP_E_NONE;
    }
    if (r == 0 && l->proc->is_output_evicted && !l->options->is_json)
        (void)fputs("sallyport: its output was evicted for lack of memory (serve --kept-memory)\n",
                    stderr);
    if (!l->options->is_json)
        (void)(write_bytes(l, stderr, SP_STR(""), true) &&
               write_bytes(l, stdout, SP_STR(""), true));
    if (fflush(stdout) != 0 && r == 0)
        r = sp_fail(e, SP_E_SYSTEM, errno, "write the output");
    sp_buf_done(&l->items);
    sp_buf_done(&l->bytes);
    return r;
}

static int run_logs(void *values, char **operands)
{
    struct logs l = {.options = values, .word = operands[0]};

    return sp_observe_run(&l.options->server, NULL, show_logs, &l);
}

static const struct logs_options defaults = {.tail = UINT64_MAX};

const struct sp_cli_command sp_command_logs = {
    .name = "logs",
    .summary = "show what a process of a server has written",
    .usage = "sallyport logs [OPTIONS] PROC\n"
             "\n"
             "Writes the output of a process of a server as far as it is kept: the last "
             "mebibyte, or 64 KiB of a process that ended a while ago. PROC is a process id, a "
             "name or SESSION/PROCESS, or the beginning of an id if only one begins so.\n",
    .notes = "Its stdout and the output of a terminal go to stdout, its stderr to stderr; "
             "gaps are reported on stderr. On a terminal, control characters other than "
             "line ends and tabs are shown as escapes (\\x1b): output must not control "
             "the terminal of its reader.\n"
             "Exit status: 0; 1 if it failed or there is no such process; 2 for a wrong "
             "command line; 123 if the server cannot be reached.\n"
             "Example: sallyport logs --follow --tail 20 build\n",
    .options = options,
    .operand = "PROC",
    .missing = "which process?",
    .max_operands = 1,
    .values_size = sizeof(struct logs_options),
    .defaults = &defaults,
    .run = run_logs,
};
