/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_priv: what the files behind local.h share.
 */
#ifndef SP_CLI_LOCAL_PRIV_H
#define SP_CLI_LOCAL_PRIV_H

#include <signal.h>

#include "cli/covers.h"
#include "cli/local.h"
#include "cli/port.h"
#include "cli/terminal.h"
#include "core/session.h"

/* From our stdin to the command's: one chunk on its way at a time, so that we take little more
 * than the command does. */
struct sp_local_input {
    struct sp_port port;
    struct sp_watch watch;
    struct sp_deferred again; /* a file is always ready: read it in parts */
    struct sp_timer retry;    /* we are a background job and must not read the terminal */
    struct sp_waiter on_room;
    uint64_t count; /* of writes */
    char chunk[65536];
};

/* From the log of the command to our stdout and stderr, in the order of the log. */
struct sp_local_output {
    struct sp_port ports[2];
    struct sp_watch watch;    /* of the one that is full */
    struct sp_deferred again; /* there is more, but others have their turn first */
    struct sp_record record;  /* being written */
    uint32_t at;              /* so much of it is */
    bool is_blocked;
    struct sp_timer quiet; /* the command has exited, and others hold its streams */
    uint64_t exited_ms;
};

struct sp_local_signals {
    int fd;
    struct sp_watch watch;
    sigset_t waiting; /* to be passed on, one after the other */
    struct sp_proc_call call, resize;
    bool is_calling, is_resizing, has_new_size, stops_us;
};

struct sp_local {
    const struct sp_local_options *options;
    struct sp_loop *loop;
    struct sp_server *server;
    struct sp_session *session;
    struct sp_client client;
    struct sp_start_wait start;
    struct sp_proc *proc; /* NULL before its start and after its end */
    struct sp_covers covers;
    char runtime_dir[512];
    struct sp_terminal terminal;
    struct sp_local_input input;
    struct sp_local_output output;
    struct sp_local_signals signals;
    bool has_exited;
    struct sp_local_result result;
    int failed; /* minus a code: error says why */
    struct sp_error *error;
};

/* The run is over: no callback comes after this turn of the loop. */
void sp_local_stop(struct sp_local *l);

void sp_local_begin_input(struct sp_local *l);
void sp_local_end_input(struct sp_local *l);

void sp_local_begin_output(struct sp_local *l);
void sp_local_end_output(struct sp_local *l);
void sp_local_pump_output(struct sp_local *l);

/* From here on our signals are the command's, also those that come before it runs. */
int sp_local_begin_signals(struct sp_local *l, struct sp_error *e);
void sp_local_end_signals(struct sp_local *l);
void sp_local_pass_signals(struct sp_local *l);
void sp_local_pass(struct sp_local *l, int signal);

#endif
