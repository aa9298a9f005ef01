/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/attach.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/auto.h"
#include "cli/escape_text.h"

#define LINGER_MS 2000 /* for those who hold the streams of a process that has exited */

/* ---- saying, ending ---- */

void sp_attach_say(struct sp_attach *a, const char *fmt, ...)
{
    const char *nl = a->terminal.is_raw ? "\r\n" : "\n";
    char text[600];
    char line[640];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const int n = snprintf(line, sizeof line, "%s[sallyport: %s]%s", nl, text, nl);
    if (n > 0)
        sp_attach_output(a, true, sp_str_of(line));
}

void sp_attach_finish(struct sp_attach *a, int status)
{
    if (a->is_over)
        return;
    a->is_over = true;
    a->status = status;
    if (sp_attach_is_drained(a))
        sp_loop_stop(a->loop);
}

/* As its own end: the command's code. */
static void finish_with_command(struct sp_attach *a)
{
    if (a->has_exited && a->exit_code >= 0 && a->exit_code <= 255) {
        sp_attach_finish(a, (int)a->exit_code);
        return;
    }
    sp_attach_say(a, "the process is gone, and nobody knows how it ended");
    sp_attach_finish(a, SP_EXIT_UNREACHABLE);
}

static void on_linger(struct sp_timer *t)
{
    finish_with_command(SP_CONTAINER(t, struct sp_attach, linger));
}

/* ---- what the server says ---- */

static void on_note(struct sp_attach *a, const struct sp_note *n)
{
    char gap[160];

    if (n->missed_records != 0) {
        sp_note_say_gap(n, gap);
        sp_attach_say(a, "%s", gap);
    }
    switch (n->kind) {
    case SP_NOTE_OUTPUT:
        sp_attach_output(a, n->is_stderr, n->bytes);
        break;
    case SP_NOTE_EXITED:
        a->has_exited = true;
        a->exit_code = n->exit_code;
        if (!sp_loop_timer(a->loop, &a->linger, sp_loop_now(a->loop) + LINGER_MS, on_linger))
            finish_with_command(a);
        break;
    case SP_NOTE_CLOSED:
        finish_with_command(a);
        break;
    case SP_NOTE_INPUT_LOST:
        if (a->types)
            sp_attach_say(a, "somebody else types now; watching");
        a->types = false;
        break;
    case SP_NOTE_OTHER:
        break;
    }
}

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct sp_attach *a = user;
    struct sp_err e = {0};
    struct sp_note n;

    if (a->is_over)
        return;
    if (sp_note_read(a->proc, method, j, params, &n, &e) < 0) {
        sp_attach_say(a, "the server's word cannot be read: %s", e.msg);
        sp_attach_finish(a, SP_EXIT_FAILED);
        return;
    }
    if (n.kind == SP_NOTE_OTHER)
        return;
    if (n.kind != SP_NOTE_INPUT_LOST)
        a->last = n.seq;
    on_note(a, &n);
}

static void on_interrupted(void *user, const char *why)
{
    struct sp_attach *a = user;

    (void)why; /* told if it does not come again */
    sp_attach_say(a, "the connection is lost; trying again");
}

static void on_dead(void *user)
{
    struct sp_attach *a = user;

    sp_attach_finish(a, SP_EXIT_UNREACHABLE);
}

/* ---- attaching ---- */

static void ask(struct sp_attach *a, bool wants_input);

static void on_first_answer(struct sp_attach *a, struct sp_json *j, uint32_t result)
{
    uint64_t next = 1;

    a->is_attached = true;
    if (sp_json_type(j, result) == SP_JSON_OBJECT &&
        sp_json_opt_u64(j, result, "nextSeq", UINT64_MAX, &next, NULL) == 0 && next > 0)
        a->last = next - 1;
    sp_attach_begin_input(a);
    sp_attach_size(a, true);
}

static void read_end(struct sp_attach *a, struct sp_json *j, uint32_t result)
{
    bool is_closed = false;

    if (sp_json_type(j, result) != SP_JSON_OBJECT)
        return;
    const uint32_t code = sp_json_get(j, result, "exitCode");
    if (code != SP_JSON_NONE && sp_json_i64(j, code, &a->exit_code))
        a->has_exited = true;
    if (sp_json_def_bool(j, result, "closed", &is_closed, NULL) == 0 && is_closed) {
        sp_attach_say(a, "it has ended");
        finish_with_command(a);
    }
}

static void on_attached(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct sp_attach *a = SP_CONTAINER(r, struct sp_attach, ask);
    auto_buf struct sp_buf text = {0};

    switch (reply->fate) {
    case SP_CLIENT_RESULT:
        a->types = a->is_asking_input;
        if (!a->is_attached) {
            read_end(a, reply->j, reply->value);
            if (!a->is_over)
                on_first_answer(a, reply->j, reply->value);
        } else {
            sp_attach_size(a, true);
        }
        break;
    case SP_CLIENT_REFUSED:
        if (a->is_asking_input && reply->code == sp_code_wire(SP_E_ATTACHED)) {
            sp_attach_say(a, "somebody else types; watching (--steal takes over)");
            ask(a, false);
            break;
        }
        (void)sp_plain_add(&text, reply->message); /* no memory: less is said */
        sp_attach_say(a, "%.*s", (int)text.len, text.data != NULL ? text.data : "");
        sp_attach_finish(a, SP_EXIT_FAILED);
        break;
    case SP_CLIENT_LOST: /* dead is told, or we are back */
        break;
    }
}

/* The first time from the end of now on, then from where we were. */
static void ask(struct sp_attach *a, bool wants_input)
{
    const bool is_stealing = wants_input && a->options.is_stealing && !a->is_attached;
    auto_buf struct sp_buf params = {0};
    bool ok = sp_buf_printf(&params, "{") && sp_listed_add_place(&params, a->proc) &&
              sp_buf_printf(&params, ",\"input\":%s,\"steal\":%s", wants_input ? "true" : "false",
                            is_stealing ? "true" : "false");

    if (ok && a->is_attached)
        ok = sp_buf_printf(&params, ",\"afterSeq\":%" PRIu64, a->last);
    if (!ok || !sp_buf_printf(&params, "}")) {
        sp_attach_finish(a, SP_EXIT_FAILED);
        return;
    }
    a->is_asking_input = wants_input;
    a->ask = (struct sp_client_request){.fn = on_attached, .is_repeatable = true};
    sp_client_ask(a->client, &a->ask, "process/attach", (struct sp_str){params.data, params.len});
}

static void on_back(void *user)
{
    struct sp_attach *a = user;

    if (!a->is_over && a->is_attached && a->ask.client == NULL)
        ask(a, a->types);
}

static const struct sp_observe_ops ops = {
    .notified = on_notified, .interrupted = on_interrupted, .back = on_back, .dead = on_dead};

/* ---- beginning and end ---- */

/* What our writes are called: nobody else's, also not those of another of us before. */
static int make_tag(struct sp_attach *a, struct sp_err *e)
{
    uint64_t random[2];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a name");
    (void)snprintf(a->tag, sizeof a->tag, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    return 0;
}

static int begin(struct sp_attach *a, struct sp_err *e)
{
    int r = make_tag(a, e);

    if (r == 0)
        r = sp_attach_begin_signals(a, e);
    if (r < 0)
        return r;
    sp_attach_begin_output(a);
    sp_observe_set_ops(a->observe, &ops, a);
    ask(a, !a->options.is_read_only);
    while (r == 0 && !a->is_cut && !(a->is_over && sp_attach_is_drained(a)))
        r = sp_loop_run(a->loop, e);
    return r;
}

static void end(struct sp_attach *a)
{
    sp_observe_set_ops(a->observe, NULL, NULL);
    sp_client_forget(&a->ask);
    sp_loop_cancel(a->loop, &a->linger);
    sp_attach_end_input(a);
    sp_attach_end_signals(a);
    sp_terminal_restore(&a->terminal);
    sp_attach_end_output(a);
}

int sp_attach_run(struct sp_observe *o, const struct sp_listed *p,
                  const struct sp_attach_options *options)
{
    struct sp_err e = {0};
    struct sp_attach *a = calloc(1, sizeof *a);

    if (a == NULL) {
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "attach to a process");
        return sp_cli_complain(&e);
    }
    a->options = *options;
    a->observe = o;
    a->loop = sp_observe_loop(o);
    a->client = sp_observe_client(o);
    a->proc = p;
    a->signals = a->in.fd = a->outs[0].port.fd = a->outs[1].port.fd = -1;
    a->typed.max = SP_ATTACH_TYPED;
    const int r = begin(a, &e);
    end(a);
    int status = a->status;
    if (r < 0)
        status = sp_observe_complain(o, &e);
    else if (sp_observe_death(o) != NULL && status == SP_EXIT_UNREACHABLE)
        status = sp_observe_complain(o, sp_observe_death(o));
    free(a);
    return status;
}
