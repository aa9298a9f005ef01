/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local: the backend that runs commands on this host, in cells.
 *
 * The program that uses it is the front (docs/ARCHITECTURE.md): it has the rings and the input
 * descriptors, and commands are not its children. It is made to be embedded in a foreign program:
 * it installs no signal handler, chooses no descriptor numbers, reaps no children but its cells,
 * and is no subreaper.
 */
#ifndef SP_ENGINE_LOCAL_H
#define SP_ENGINE_LOCAL_H

#include "core/session.h"
#include "engine/job.h"
#include "sandbox/survey.h"

struct sp_local_options {
    const char *program;    /* the sallyport binary, run as `PROGRAM cell` */
    uint32_t max_processes; /* 0: 1024 */
    uint32_t history;       /* see struct sp_front_options */
    bool use_cgroups;
    struct sp_limit_levels limits;
    uint32_t default_pids;        /* see struct sp_front_options */
    struct sp_fixed_places fixed; /* paths that no policy opens */
    const char *runtime_dir;      /* NULL: none */
    const char *cwd;              /* default directory of commands; absolute */
    bool owns_program; /* not embedded: what a killed cell leaves behind is reparented to us and
                          killed. An embedded backend does that only with use_cgroups */
};

/* Strings are copied. The first command creates the server and its cell. */
int sp_local_new(struct sp_loop *loop, const struct sp_local_options *o, struct sp_backend **ret,
                 struct sp_err *e);

/* A TCP port of this program, which no managed network reaches on this machine. Before the first
 * command. false: there are too many. */
bool sp_local_add_own_port(struct sp_backend *b, uint16_t port);

/* The front of this backend, for its local socket (local_socket.h); made now if no command was
 * started yet. `drained` is called when the socket of a cell has room again. */
int sp_local_front(struct sp_backend *b, void (*drained)(void *user), void *user,
                   struct sp_front **ret, struct sp_err *e);

/* Listens on 127.0.0.1:port->host for servers in confined cells (core/publish.h), until the backend
 * is freed. Before the first command. */
int sp_local_publish(struct sp_backend *b, const struct sp_published *port, struct sp_err *e);

/* The published port number i; NULL: there are fewer. */
const struct sp_published *sp_local_published(struct sp_backend *b, uint32_t i);
/* Listens no more: a command without a sandbox may want the port itself. */
void sp_local_unpublish(struct sp_backend *b);

/* ---- the impl of a job; private, except for tests ---- */

struct sp_local_task {
    struct sp_local *local;
    struct sp_job *job;
    struct sp_proc *proc; /* NULL: refused, closed or lost */
    struct sp_start_wait start;
    struct sp_deferred turn;
    struct sp_timer kill_timer; /* limit for the exit after a terminate */
    struct sp_waiter on_room;
    struct sp_err refusal;     /* why the start failed; code NONE: it did not */
    struct sp_list answered;   /* called back in the next turn */
    struct sp_list terminates; /* wait for the exit */
    struct sp_list flushes;    /* wait until the queued input is written */
    bool is_confined;
    bool is_terminating;   /* a terminate was requested */
    bool is_blocked;       /* the owner refused output; waits for go_on */
    bool is_telling;       /* inside take_turn, which frees a released task */
    bool is_released;      /* the owner released the job */
    bool has_told_started; /* started or refused was reported */
    bool has_told_exit;
    bool is_lost;
    uint32_t told_denials;
};

#endif
