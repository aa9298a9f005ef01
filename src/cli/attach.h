/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach: our terminal, attached to a process of a server until it ends or we leave.
 *
 *   output:  server --> queue --> stdout, stderr    a full queue: nothing is read from the server
 *   input:   stdin --> queue --> one write on its way --> server    a full queue: a pipe is left
 *            alone, a terminal is still read, for the key that leaves; what is typed is dropped
 *
 * Keys are the process's while we are its typist; one of them, the detach key, is ours. Whatever
 * ends us, the terminal is as it was.
 */
#ifndef SP_CLI_ATTACH_H
#define SP_CLI_ATTACH_H

#include <signal.h>

#include "cli/note.h"
#include "cli/port.h"
#include "cli/terminal.h"

#define SP_ATTACH_TAG   40
#define SP_ATTACH_TYPED 65536 /* bytes that wait to be sent */

struct sp_attach;

struct sp_attach_options {
    bool is_read_only, is_stealing;
    int detach_key; /* -1: none */
};

/* One of our two outputs. */
struct sp_attach_out {
    struct sp_port port;
    struct sp_watch watch;
    struct sp_buf queue;
    struct sp_attach *attach;
};

struct sp_attach {
    struct sp_attach_options options;
    struct sp_observe *observe;
    struct sp_loop *loop;
    struct sp_client *client;
    const struct sp_listed *proc;
    struct sp_client_request ask; /* process/attach, on its way */
    bool is_attached;             /* it was answered before */
    bool is_asking_input;
    bool types;
    uint64_t last; /* the last record that came */

    struct sp_attach_out outs[2];
    struct sp_timer linger;           /* it has exited, and others hold its streams */
    bool is_over, is_cut, has_exited; /* cut: at once, whatever is queued */
    int64_t exit_code;
    int status; /* ours, once it is over */

    struct sp_terminal terminal;
    struct sp_port in;
    struct sp_watch in_watch;
    struct sp_deferred in_again;
    struct sp_timer in_retry;
    struct sp_client_request write;
    uint64_t writes;
    char tag[SP_ATTACH_TAG];
    struct sp_buf typed; /* not sent yet */
    bool ends_input;     /* behind it, the end of the process's input */
    char chunk[4096];

    int signals;
    struct sp_watch on_signal;
    struct sp_client_request resize;
    bool has_new_size;
};

/* Returns the exit status; what was wrong has been said. */
int sp_attach_run(struct sp_observe *o, const struct sp_listed *p,
                  const struct sp_attach_options *options);

/* ---- among the files of it ---- */

/* It is over: with this status, as soon as what is queued has been written. */
void sp_attach_finish(struct sp_attach *a, int status);
/* A line of ours between the output. */
SP_PRINTF(2, 3) void sp_attach_say(struct sp_attach *a, const char *fmt, ...);
bool sp_attach_is_drained(const struct sp_attach *a);

/* attach_out.c */
void sp_attach_begin_output(struct sp_attach *a);
void sp_attach_end_output(struct sp_attach *a);
void sp_attach_output(struct sp_attach *a, bool is_stderr, struct sp_str bytes);

/* attach_in.c */
void sp_attach_begin_input(struct sp_attach *a);
void sp_attach_end_input(struct sp_attach *a);

/* attach_signals.c */
int sp_attach_begin_signals(struct sp_attach *a, struct sp_err *e);
void sp_attach_end_signals(struct sp_attach *a);
/* Our size becomes the process's; `redraws`: also if it has that already, so that it draws all. */
void sp_attach_size(struct sp_attach *a, bool redraws);

#endif
