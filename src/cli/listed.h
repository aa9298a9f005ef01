/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listed: the processes of servers as `ps`, `logs`, `attach`, `kill` and `wait` see them: the list,
 * and what a process that is attached tells.
 */
#ifndef SP_CLI_LISTED_H
#define SP_CLI_LISTED_H

#include <stdlib.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/receipt.h"

struct sp_observe;

struct sp_listed {
    struct sp_observe *server;
    size_t number;      /* in the list, from 1 */
    char *session, *id; /* the id may hold any byte: id_len */
    size_t id_len;
    char *name; /* NULL: none. Escaped for a terminal, as are: */
    char *state, *cwd, *command;
    char *network; /* none, host or managed; "?": the server does not tell. Escaped */
    int64_t pid, exit_code, started_ms;
    uint64_t next_seq;
    uint64_t history_id; /* of an entry of the history; 0: a process */
    bool is_tty, has_exited, is_output_evicted;
    bool is_removed;                   /* by sp_command_rm: no name finds the process any more */
    struct sp_command_receipt receipt; /* reason NONE: not known. Without strings */
};

/* The processes of all servers. */
struct sp_listed_all {
    struct sp_listed *items;
    size_t count;
    uint64_t omitted; /* processes that the servers left out of their answers */
};

/* Adds the processes of one server: the result of process/list, or of history/list; of the latter,
 * `state` is the reason of their end. */
int sp_listed_read(struct sp_listed_all *list, struct sp_observe *server, struct sp_json *j,
                   uint32_t result, struct sp_err *e);
static inline void sp_listed_done(struct sp_listed_all *l)
{
    for (size_t i = 0; i < l->count; i++) {
        struct sp_listed *p = &l->items[i];

        free(p->session);
        free(p->id);
        free(p->name);
        free(p->state);
        free(p->cwd);
        free(p->network);
        free(p->command);
    }
    free(l->items);
    *l = (struct sp_listed_all){0};
}

/* A copy that is safe for a terminal, to be freed; NULL: no memory. */
char *sp_listed_copy(struct sp_str text);

/* The two largest units: 3m07s, 2h05m. */
void sp_listed_write_age(int64_t age_ms, char *ret, size_t size);

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
