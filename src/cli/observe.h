/* SPDX-License-Identifier: Apache-2.0 */
/*
 * observe: what `ps`, `logs`, `attach`, `kill`, `wait` and `approvals` have in common: finding the
 * servers of this user, or the one that is named, and talking to them.
 */
#ifndef SP_CLI_OBSERVE_H
#define SP_CLI_OBSERVE_H

#include <stdio.h>
#include <sys/types.h>

#include "cli/cli.h"
#include "cli/listed.h"
#include "engine/remote/client.h"

/* --on, --token-file, --config and --set, with their heading. */
struct sp_observe_options {
    const char *server, *token_file;
    struct sp_config_options config;
    bool
        follows; /* no option: the command calls sp_observe_follow, and may begin without servers */
};
extern const struct sp_option sp_observe_options[];

/* ---- the connections ---- */

struct following;

/* One server. */
struct sp_observe {
    struct sp_observe_all *all;
    struct sp_client *client;
    char *url;
    char *shown_url; /* without its query, which may hold a token */
    char *token;     /* NULL: none */
    uint64_t connect_timeout_ms;
    bool is_ready, can_observe, can_watch, has_history;
    struct sp_err death; /* code NONE: connected, or trying to be */
    /* What a server of this user says about itself. */
    char kind[16]; /* serve, user, mcp, exec, library; "": it does not say */
    pid_t pid;
    int64_t started_ms;
    char *directory; /* escaped; NULL: unknown */

    uint64_t last_shown; /* of approvals -f: the highest number of a question that was printed */

    /* private, for sp_observe_follow */
    struct sp_client_request request;
    pid_t listener; /* of the socket; 0: unknown */
    uint64_t since_ms;
    bool is_fresh; /* connected or reconnected, and the request is not sent yet */
};

struct sp_observe_ops {
    void (*notified)(void *user, struct sp_str method, struct sp_json *j, uint32_t params);
    /* The same, with the server; of the two, one is set. */
    void (*notified_by)(void *user, const struct sp_observe *o, struct sp_str method,
                        struct sp_json *j, uint32_t params);
    void (*interrupted)(void *user, const char *why); /* the connection is lost; it is retried */
    void (*back)(void *user);                         /* connected again */
    void (*dead)(void *user); /* lost for good; `death` says why, and the loop stops */
};

struct sp_observe_all {
    struct sp_loop *loop;
    const char *console;        /* for initialize: JSON; NULL: we are no console */
    struct sp_observe *servers; /* all that were tried */
    size_t count;
    struct sp_observe **order; /* those that answered */
    size_t order_count;
    const struct sp_observe_ops *ops; /* NULL: events are ignored */
    void *user;
    const struct sp_observe *only; /* the ops get the events of this server; NULL: of each */
    struct sp_listed_all all;      /* after sp_observe_list */
    bool has_list, has_history;
    bool is_local;            /* all servers of this user, not one that was named */
    bool is_unreachable;      /* the exit status says so */
    bool is_over;             /* set by the command: sp_observe_follow returns */
    struct sp_buf candidates; /* lines behind the error of an ambiguous name */

    /* private */
    const char *unknown; /* --on names no server; NULL: it does */
    struct sp_timer timer;
    bool is_late;
    struct following *following;
    bool follows; /* the loop also stops at reconnects */
};

/* Connects to the servers, runs `run` and disconnects. console: as in struct sp_client_options.
 * `run` returns the exit status, or a negative code. Returns the exit status; errors have been
 * reported. */
int sp_observe_run(const struct sp_observe_options *options, const char *console,
                   int (*run)(struct sp_observe_all *a, void *user, struct sp_err *e), void *user);

/* Sends a request and runs the loop until it is answered; not from within a callback. `fn` gets the
 * result; NULL: it is ignored. A refusal of the server is -SP_E_ATTACHED if it has that number,
 * else -SP_E_FAILED. */
int sp_observe_ask(struct sp_observe *o, const char *method, struct sp_str params,
                   void (*fn)(void *user, struct sp_json *j, uint32_t result), void *user,
                   struct sp_err *e);

/* Sends a request without parameters to each server that lets approvals be watched: to those that
 * run, those that start later if no server was named, and again after a reconnect. `fn` gets the
 * results, the ops get the notifications. Runs until is_over, or until the named server has ended,
 * which is an error. */
int sp_observe_follow(struct sp_observe_all *a, const char *method,
                      void (*fn)(void *user, struct sp_observe *o, struct sp_json *j,
                                 uint32_t result),
                      void *user, struct sp_err *e);

/* Reports an error, and the candidates of an ambiguous name. Returns SP_EXIT_FAILED. */
int sp_observe_complain(struct sp_observe_all *a, const struct sp_err *e);

/* A table: pid, kind, age, directory and URL. */
void sp_observe_print_servers(const struct sp_observe_all *a, FILE *to);

/* ---- processes ---- */

/* Of all servers. */
int sp_observe_list(struct sp_observe_all *a, struct sp_err *e);
/* PROC: a process id, a name, or SESSION/PROCESS, or the beginning of an id or of both if it is
 * unambiguous, begins no name, and has 4 bytes for a process with a name. Lists the processes
 * unless that was done. */
int sp_observe_find(struct sp_observe_all *a, const char *proc, const struct sp_listed **ret,
                    struct sp_err *e);

/* Adds the processes of the histories to `all`, once; those of a server the newest first. */
int sp_observe_add_history(struct sp_observe_all *a, struct sp_err *e);
/* sp_observe_find, and if it finds none, the same with the histories; of several with one id or
 * name, the last. What was found before by either may be gone when this adds the histories. */
int sp_observe_find_ended(struct sp_observe_all *a, const char *proc, const struct sp_listed **ret,
                          struct sp_err *e);

#endif
