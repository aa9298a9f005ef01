/* SPDX-License-Identifier: Apache-2.0 */
/* attach: from our stdin to the process. */
#include <errno.h>
#include <inttypes.h>

#include "base/auto.h"
#include "base/base64.h"
#include "cli/attach.h"

#define RETRY_MS  250
#define INTERRUPT 0x03 /* of somebody who only watches a raw terminal: they want to leave */

static void read_more(struct sp_attach *a);

static void on_readable(struct sp_watch *w, uint32_t events)
{
    (void)events; /* an end or an error is met by the read */
    read_more(SP_CONTAINER(w, struct sp_attach, in_watch));
}

static void on_again(struct sp_deferred *d)
{
    read_more(SP_CONTAINER(d, struct sp_attach, in_again));
}

static void stop_reading(struct sp_attach *a)
{
    sp_loop_unwatch(a->loop, &a->in_watch);
    sp_loop_undefer(a->loop, &a->in_again);
    sp_loop_cancel(a->loop, &a->in_retry);
}

/* A pipe waits for the process; a person must be able to leave. */
static bool may_read(const struct sp_attach *a)
{
    return a->in.fd >= 0 && !a->is_over &&
           (a->terminal.is_raw || a->typed.len + sizeof a->chunk <= SP_ATTACH_TYPED);
}

static void want_more(struct sp_attach *a)
{
    if (!may_read(a)) {
        stop_reading(a);
        return;
    }
    if (a->in_watch.fn != NULL)
        return;
    if (a->in.is_always_ready ||
        sp_loop_watch(a->loop, &a->in_watch, a->in.fd, EPOLLIN, on_readable, NULL) < 0)
        sp_loop_again(a->loop, &a->in_again, on_again);
}

/* ---- writing ---- */

static void send_typed(struct sp_attach *a);

static void stop_typing(struct sp_attach *a, const char *why)
{
    if (a->types)
        sp_attach_say(a, "%s", why);
    a->types = false;
    sp_buf_done(&a->typed);
}

static void on_written(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct sp_attach *a = SP_CONTAINER(r, struct sp_attach, write);
    struct sp_str status = {0};

    if (reply->fate == SP_CLIENT_REFUSED)
        stop_typing(a, reply->code == sp_code_wire(SP_E_ATTACHED)
                           ? "somebody else types now; watching"
                           : "its input cannot be written any more; watching");
    else if (reply->fate == SP_CLIENT_RESULT &&
             sp_json_type(reply->j, reply->value) == SP_JSON_OBJECT &&
             sp_json_opt_str(reply->j, reply->value, "status", &status, NULL) == 0 &&
             !sp_str_eq(status, SP_STR("accepted")))
        stop_typing(a, "it takes no input; watching");
    send_typed(a);
    want_more(a);
}

static void send_request(struct sp_attach *a, const char *method, struct sp_str rest)
{
    auto_buf struct sp_buf params = {0};

    if (!sp_buf_printf(&params, "{") || !sp_listed_add_place(&params, a->proc) ||
        !sp_buf_add_str(&params, rest) || !sp_buf_printf(&params, "}")) {
        sp_attach_finish(a, SP_EXIT_FAILED);
        return;
    }
    a->write = (struct sp_client_request){.fn = on_written, .is_repeatable = true};
    sp_client_ask(a->client, &a->write, method, (struct sp_str){params.data, params.len});
}

/* The next part, if none is on its way; behind the last one, the end. */
static void send_typed(struct sp_attach *a)
{
    char text[SP_BASE64_LEN(sizeof a->chunk) + 1];
    auto_buf struct sp_buf rest = {0};
    const size_t n = a->typed.len < sizeof a->chunk ? a->typed.len : sizeof a->chunk;

    if (!a->types || a->write.client != NULL)
        return;
    if (n == 0 && a->ends_input) {
        a->ends_input = false;
        send_request(a, "process/closeStdin", SP_STR(""));
    }
    if (n == 0)
        return;
    const char *end = sp_base64_encode(text, a->typed.data, n);
    sp_buf_drop(&a->typed, n);
    if (sp_buf_printf(&rest, ",\"chunk\":\"%.*s\",\"writeId\":\"%s-%" PRIu64 "\"",
                      (int)(end - text), text, a->tag, ++a->writes))
        send_request(a, "process/write", (struct sp_str){rest.data, rest.len});
    else
        sp_attach_finish(a, SP_EXIT_FAILED);
}

/* ---- reading ---- */

/* Where our own key is; n: it is not there. */
static size_t find_key(const struct sp_attach *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int c = (unsigned char)a->chunk[i];

        if (c == a->options.detach_key || (c == INTERRUPT && !a->types && a->terminal.is_raw))
            return i;
    }
    return n;
}

static void take(struct sp_attach *a, size_t n)
{
    const size_t key = find_key(a, n);

    if (a->types && sp_buf_add(&a->typed, a->chunk, key)) /* full: it is dropped */
        send_typed(a);
    if (key < n) {
        sp_attach_say(a, "detached");
        sp_attach_finish(a, SP_EXIT_OK);
    } else {
        want_more(a);
    }
}

/* A person's end of file is the process's; that of a file or a pipe only ends what we type. */
static void end_input(struct sp_attach *a)
{
    const bool is_person = isatty(STDIN_FILENO) && !a->terminal.is_raw;

    stop_reading(a);
    sp_port_close(&a->in);
    a->ends_input = is_person && !a->proc->is_tty;
    send_typed(a);
}

static void on_retry(struct sp_timer *t)
{
    struct sp_attach *a = SP_CONTAINER(t, struct sp_attach, in_retry);

    if (a->proc->is_tty)
        sp_terminal_make_raw(&a->terminal);
    read_more(a);
}

static void read_more(struct sp_attach *a)
{
    if (a->in.fd < 0 || a->is_over)
        return;
    if (isatty(STDIN_FILENO) && !sp_terminal_is_ours(STDIN_FILENO)) {
        stop_reading(a); /* the read would stop us */
        (void)sp_loop_timer(a->loop, &a->in_retry, sp_loop_now(a->loop) + RETRY_MS, on_retry);
        return;
    }
    const ssize_t n = sp_port_read(&a->in, a->chunk, sizeof a->chunk);
    if (n > 0)
        take(a, (size_t)n);
    else if (n == -EAGAIN)
        want_more(a);
    else
        end_input(a);
}

void sp_attach_begin_input(struct sp_attach *a)
{
    if (a->proc->is_tty)
        sp_terminal_make_raw(&a->terminal);
    sp_port_open(&a->in, STDIN_FILENO, true);
    want_more(a);
}

void sp_attach_end_input(struct sp_attach *a)
{
    stop_reading(a);
    sp_client_forget(&a->write);
    sp_buf_done(&a->typed);
    sp_port_close(&a->in);
}
