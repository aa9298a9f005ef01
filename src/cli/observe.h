/* SPDX-License-Identifier: Apache-2.0 */
/*
 * observe: what `ps`, `logs`, `attach` and `kill` have in common: finding the server, talking to
 * it, and the processes that run there.
 */
#ifndef SP_CLI_OBSERVE_H
#define SP_CLI_OBSERVE_H

#include "cli/cli.h"
#include "engine/remote/client.h"

/* --server, --token-file, --config and --set, with their heading. */
struct sp_observe_options {
    const char *server, *token_file;
    struct sp_config_options config;
};
extern const struct sp_option sp_observe_options[];

#define SP_OBSERVE_SERVERS_MAX 64 /* servers of this user that are looked at */

/* For `serve`: unix:///DIRECTORY/PID.sock, where these commands find this process. Makes the
 * directory, and removes the sockets of servers that are gone. */
int sp_observe_own_url(char *ret, size_t size, struct sp_err *e);

/* ---- the connection ---- */

struct sp_observe_ops {
    void (*notified)(void *user, struct sp_str method, struct sp_json *j, uint32_t params);
    void (*interrupted)(void *user, const char *why); /* the connection is lost; it is retried */
    void (*back)(void *user);                         /* connected again */
    void (*dead)(void *user); /* lost for good; `death` says why, and the loop stops */
};

struct sp_listed {
    char *session, *id; /* the id may hold any byte: id_len */
    size_t id_len;
    char *state, *cwd, *command; /* escaped for a terminal */
    char *network;               /* none, host or managed; "?": the server does not tell. Escaped */
    int64_t pid, exit_code, started_ms;
    uint64_t next_seq;
    bool is_tty, has_exited;
};

/* The processes of a server. */
struct sp_listed_all {
    struct sp_listed *items;
    size_t count;
    uint64_t omitted; /* processes of the server that its answer left out */
};

struct sp_observe {
    struct sp_loop *loop;
    struct sp_client *client;
    char *url;       /* of the server */
    char *shown_url; /* without its query, which may hold a token */
    char *token;     /* NULL: none */
    uint64_t connect_timeout_ms;
    const struct sp_observe_ops *ops; /* NULL: events are ignored */
    void *user;
    bool is_ready, can_observe;
    struct sp_listed_all all; /* after sp_observe_list */
    struct sp_err death;      /* code NONE: connected, or trying to be */
};

/* Connects to a server that can be observed, runs `run` and disconnects. `run` returns the exit
 * status, or a negative code. Returns the exit status; errors have been reported. */
int sp_observe_run(const struct sp_observe_options *options,
                   int (*run)(struct sp_observe *o, void *user, struct sp_err *e), void *user);

/* Sends a request and runs the loop until it is answered; not from within a callback. `fn` gets the
 * result; NULL: it is ignored. A refusal of the server is -SP_E_ATTACHED if it has that number,
 * else -SP_E_FAILED. */
int sp_observe_ask(struct sp_observe *o, const char *method, struct sp_str params,
                   void (*fn)(void *user, struct sp_json *j, uint32_t result), void *user,
                   struct sp_err *e);

/* ---- processes ---- */

int sp_observe_list(struct sp_observe *o, struct sp_err *e);
/* PROC: a process id or SESSION/PROCESS, or the beginning of either if it is unambiguous. Lists the
 * processes unless that was done. */
int sp_observe_find(struct sp_observe *o, const char *proc, const struct sp_listed **ret,
                    struct sp_err *e);

/* Appends {"sessionId":"...","processId":"..." and the rest of the members, which begins with a
 * comma if it is not empty. */
SP_PRINTF(3, 4)
bool sp_listed_add_params(struct sp_buf *b, const struct sp_listed *p, const char *rest, ...);

/* ---- notifications about an attached process ---- */

enum sp_note_kind {
    SP_NOTE_OTHER, /* about another process, or an unknown method */
    SP_NOTE_OUTPUT,
    SP_NOTE_EXITED,
    SP_NOTE_CLOSED,
    SP_NOTE_INPUT_LOST, /* another client writes its input now */
};

struct sp_note {
    enum sp_note_kind kind;
    uint64_t seq;
    bool is_stderr;       /* OUTPUT */
    struct sp_str stream; /* OUTPUT: stdout, stderr or pty */
    struct sp_str bytes;  /* OUTPUT; in the message, so valid as long as that */
    int64_t exit_code;
    uint64_t missed_records, missed_bytes; /* dropped before this one; 0 records: none */
    bool knows_missed_bytes;
};

/* Fails if the message breaks the protocol. */
int sp_note_read(const struct sp_listed *p, struct sp_str method, struct sp_json *j,
                 uint32_t params, struct sp_note *ret, struct sp_err *e);

/* "12 records (345 bytes) of its output are not there any more" */
void sp_note_say_gap(const struct sp_note *n, char ret[160]);

#endif
