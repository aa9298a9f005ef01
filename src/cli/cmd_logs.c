/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logs: what a process has written, as far as its server still has it, and what comes.
 *
 * What is there is collected first and written when all of it is known: a pager may take its time
 * without anybody being called slow. With --follow the rest is written as it comes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "cli/escape_text.h"
#include "cli/note.h"

static const char help[] =
    "Usage: sallyport logs [OPTIONS] PROC\n"
    "\n"
    "Writes what a process of a server has written, as far as it is kept: the newest mebibyte.\n"
    "PROC is a process id or SESSION/PROCESS, or its beginning if only one begins so.\n"
    "\n"
    "  --follow            go on with what it writes, until it has ended\n"
    "  --tail LINES        of what is there, only so many lines from the end\n"
    "  --json              one JSON object a line: output, gap, exited, closed\n"
    "  --raw               also to a terminal, write every byte as it is\n"
    "\n" SP_OBSERVE_HELP_TEXT "\n"
    "Its stdout and a terminal's output go to stdout, its stderr to stderr; what is missing is\n"
    "told on stderr. Where these are a terminal, control characters but line ends and tabs are\n"
    "shown as escapes (\\x1b): output must not steer the terminal of its reader.\n"
    "Exit status: 0; 1 if it failed or there is no such process; 2 for a wrong flag; 123 if the\n"
    "server cannot be reached.\n"
    "Example: sallyport logs --follow --tail 20 build\n";

#define MAX_KEPT (256U << 20) /* bytes that are collected; a server keeps far less */

enum { OPT_FOLLOW = 256, OPT_TAIL, OPT_JSON, OPT_RAW };

static const struct option known[] = {
    SP_OBSERVE_OPTIONS,
    {"follow", no_argument, NULL, OPT_FOLLOW},
    {"tail", required_argument, NULL, OPT_TAIL},
    {"json", no_argument, NULL, OPT_JSON},
    {"raw", no_argument, NULL, OPT_RAW},
    {NULL, 0, NULL, 0},
};

struct options {
    bool follows, is_json, is_raw;
    uint64_t tail; /* UINT64_MAX: all of it */
};

/* Something that is collected, behind the bytes of those before. */
struct kept {
    struct sp_note note;
    size_t at; /* of its bytes */
};

struct logs {
    struct options options;
    struct sp_observe *observe;
    const struct sp_listed *proc;
    uint64_t target; /* the last record that was there when we looked */
    uint64_t last;   /* the last one that came */
    bool is_attached, is_collecting, is_over;
    struct sp_buf items, bytes;   /* struct kept; output */
    struct sp_plain_rest rest[2]; /* of stdout and stderr, where they are terminals */
    struct sp_client_request again;
    struct sp_err error;
    int failed;
};

static bool take(void *user, int opt)
{
    struct options *o = user;

    switch (opt) {
    case OPT_FOLLOW:
        o->follows = true;
        return true;
    case OPT_JSON:
        o->is_json = true;
        return true;
    case OPT_RAW:
        o->is_raw = true;
        return true;
    default:
        if (sp_str_to_u64(sp_str_of(optarg), UINT64_MAX - 1, &o->tail))
            return true;
        (void)fprintf(stderr, "sallyport logs: --tail: `%s` is not a number of lines\n", optarg);
        return false;
    }
}

static const struct sp_verb verb = {.name = "logs",
                                    .help = help,
                                    .options = known,
                                    .take = take,
                                    .least_words = 1,
                                    .most_words = 1};

static void stop(struct logs *l)
{
    l->is_over = true;
    sp_loop_stop(sp_observe_loop(l->observe));
}

static void fail(struct logs *l, int result)
{
    l->failed = result;
    stop(l);
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

/* A terminal obeys what it is sent: it gets escapes in place of control characters. */
static bool write_bytes(struct logs *l, FILE *out, struct sp_str bytes, bool is_end)
{
    auto_buf struct sp_buf plain = {0};

    if (l->options.is_raw || isatty(fileno(out)) == 0)
        return fwrite(bytes.p, 1, bytes.n, out) == bytes.n;
    return sp_plain_add_output(&plain, bytes, is_end, &l->rest[out == stderr]) &&
           (plain.len == 0 || fwrite(plain.data, 1, plain.len, out) == plain.len);
}

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
        (void)fflush(stdout); /* in the order in which it was written */
    return write_bytes(l, out, n->bytes, false);
}

static void write_note(struct logs *l, const struct sp_note *n)
{
    if (!(l->options.is_json ? write_json(n) : write_text(l, n)))
        fail(l, sp_fail(&l->error, SP_E_SYSTEM, errno, "write the output"));
}

/* ---- what is there ---- */

static size_t count_kept(const struct logs *l)
{
    return l->items.len / sizeof(struct kept);
}

static struct kept kept_at(const struct logs *l, size_t i)
{
    struct kept k;

    memcpy(&k, l->items.data + i * sizeof k, sizeof k);
    k.note.bytes.p = l->bytes.data + k.at; /* where they are by now */
    return k;
}

static void keep(struct logs *l, const struct sp_note *n)
{
    struct kept k = {.note = *n, .at = l->bytes.len};

    /* The names are ours, and live as long as we do. */
    k.note.stream = n->is_stderr                          ? SP_STR("stderr")
                    : sp_str_eq(n->stream, SP_STR("pty")) ? SP_STR("pty")
                                                          : SP_STR("stdout");
    if (!sp_buf_add_str(&l->bytes, n->bytes) || !sp_buf_add(&l->items, &k, sizeof k))
        fail(l, sp_fail(&l->error, SP_E_SYSTEM, ENOMEM, "keep the output"));
}

/* Where the last lines begin. A last line without its end is one. */
static size_t find_tail(const struct logs *l)
{
    const struct sp_buf *b = &l->bytes;
    uint64_t left = l->options.tail;
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
            k.note.missed_records = 0; /* it is before what was asked for */
        write_note(l, &k.note);
    }
    sp_buf_done(&l->items);
    sp_buf_done(&l->bytes);
}

/* All that was there has come. */
static void end_collecting(struct logs *l)
{
    l->is_collecting = false;
    if (!l->options.follows) {
        stop(l); /* it is written when the server need not wait for us */
        return;
    }
    write_kept(l);
    (void)fflush(stdout);
}

/* ---- what comes ---- */

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct logs *l = user;
    struct sp_note n;
    const int r = l->is_over ? 0 : sp_note_read(l->proc, method, j, params, &n, &l->error);

    if (r < 0) {
        (void)sp_wrap(&l->error, "the server's word cannot be read");
        fail(l, r);
    }
    if (l->is_over || n.kind == SP_NOTE_OTHER || n.kind == SP_NOTE_INPUT_LOST)
        return;
    l->last = n.seq;
    if (l->is_collecting) {
        keep(l, &n);
        if (n.seq >= l->target || n.kind == SP_NOTE_CLOSED)
            end_collecting(l);
    } else {
        write_note(l, &n);
        (void)fflush(stdout);
    }
    if (n.kind == SP_NOTE_CLOSED)
        stop(l);
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
        fail(l, sp_fail(&l->error, SP_E_FAILED, 0, "the process is gone"));
}

static void on_back(void *user)
{
    struct logs *l = user;
    auto_buf struct sp_buf params = {0};

    /* The first request is sent again by itself. */
    if (!l->is_attached || l->again.client != NULL || !write_attach(l, &params))
        return;
    l->again.fn = on_attached_again;
    sp_client_ask(sp_observe_client(l->observe), &l->again, "process/attach",
                  (struct sp_str){params.data, params.len});
}

static const struct sp_observe_ops ops = {.notified = on_notified, .back = on_back};

static int follow(struct logs *l, struct sp_err *e)
{
    auto_buf struct sp_buf params = {0};

    if (!write_attach(l, &params))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    l->is_collecting = true;
    l->bytes.max = l->items.max = MAX_KEPT;
    sp_observe_set_ops(l->observe, &ops, l); /* word may come together with the answer */
    int r = sp_observe_ask(l->observe, "process/attach", (struct sp_str){params.data, params.len},
                           on_attached, l, e);
    if (r < 0)
        return r;
    if (l->target == 0 && l->is_collecting)
        end_collecting(l);
    while (r == 0 && !l->is_over && sp_observe_death(l->observe) == NULL)
        r = sp_loop_run(sp_observe_loop(l->observe), e);
    sp_client_forget(&l->again);
    sp_observe_set_ops(l->observe, NULL, NULL);
    if (r == 0 && !l->is_over) {
        *e = *sp_observe_death(l->observe);
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

static int run(struct logs *l, const char *word, struct sp_err *e)
{
    struct sp_process_list all = {0};
    int r = sp_observe_list(l->observe, &all, e);

    if (r == 0)
        r = sp_list_find(&all, word, &l->proc, e);
    if (r == 0) {
        l->target = l->proc->next_seq > 0 ? l->proc->next_seq - 1 : 0;
        r = follow(l, e);
    }
    if (!l->options.is_json)
        (void)(write_bytes(l, stderr, SP_STR(""), true) &&
               write_bytes(l, stdout, SP_STR(""), true));
    if (fflush(stdout) != 0 && r == 0)
        r = sp_fail(e, SP_E_SYSTEM, errno, "write the output");
    sp_buf_done(&l->items);
    sp_buf_done(&l->bytes);
    sp_list_done(&all);
    return r;
}

int sp_cmd_logs(int argc, char **argv)
{
    struct sp_observe_flags flags = {0};
    struct logs l = {.options = {.tail = UINT64_MAX}};
    auto_free char **words = NULL;
    struct sp_err e = {0};
    int status = sp_observe_args(&verb, argc, argv, &l.options, &flags, &words);

    if (status != SP_EXIT_OK)
        return status < 0 ? SP_EXIT_OK : status;
    status = sp_observe_open(&flags, &l.observe);
    if (status != SP_EXIT_OK)
        return status;
    if (run(&l, words[0], &e) < 0)
        status = sp_observe_complain(l.observe, &e);
    sp_observe_free(l.observe);
    return status;
}
