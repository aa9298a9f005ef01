/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_log: the accepted input of one process in a memory file, so that a front that is killed
 * loses none of it, and the next one writes no byte twice.
 *
 *   header, write ids | bytes, append-only
 *
 * Bytes are accepted by one store of a counter, whose parity says which copy of the state holds.
 * They go to the pipe or terminal with sendfile, which advances the position of the file by what it
 * has moved, in one system call: SIGKILL cannot come between. The cell has a duplicate of the
 * descriptor, so that the position outlives the front.
 *
 * A pipe refers to the pages of the file: no place is written twice, and pages behind the position
 * are only ever punched out. A log that has become long is replaced by a new one when it is empty.
 */
#ifndef SP_CORE_INPUT_LOG_H
#define SP_CORE_INPUT_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/hash.h"
#include "base/str.h"
#include "core/input.h"

#define SP_INPUT_LOG_DATA 73728U      /* where the bytes begin */
#define SP_INPUT_LOG_LONG (64U << 20) /* bytes */

enum sp_input_log_state {
    SP_INPUT_LOG_OPEN = 1,
    SP_INPUT_LOG_GONE,    /* bytes are dropped */
    SP_INPUT_LOG_CLOSING, /* end of file follows */
    SP_INPUT_LOG_ENDED,   /* a terminal's end of file is part of the bytes */
    SP_INPUT_LOG_BROKEN,  /* writes fail */
    SP_INPUT_LOG_STATES
};

/* What holds now; in the file, twice. */
struct sp_input_log_end {
    uint64_t end, ids;
    uint32_t state, last;
};

/* Read by the functions here only. */
struct sp_input_log {
    int fd;
    uint8_t *map; /* SP_INPUT_LOG_DATA bytes */
    struct sp_input_log_end now;
    uint64_t sent, punched;
    uint64_t most;                  /* the limit of file sizes */
    uint64_t ends[SP_INPUT_CHUNKS]; /* of the chunks that are not sent, a ring */
    unsigned first_end, end_count;
};

/* NULL: errno says why. */
struct sp_input_log *sp_input_log_new(void);
/* An empty log with the ids and the state of this one. */
struct sp_input_log *sp_input_log_next(const struct sp_input_log *old);
/* That of an earlier front, from a cell that may be hostile. Takes fd on success. NULL: it is no
 * input log, or no memory. */
struct sp_input_log *sp_input_log_open(int fd);
void sp_input_log_free(struct sp_input_log *l); /* NULL is fine */

static inline int sp_input_log_fd(const struct sp_input_log *l)
{
    return l->fd;
}
static inline enum sp_input_log_state sp_input_log_state(const struct sp_input_log *l)
{
    return (enum sp_input_log_state)l->now.state;
}
/* The last accepted byte; a line feed at first. */
static inline char sp_input_log_last(const struct sp_input_log *l)
{
    return (char)l->now.last;
}
/* Bytes that were not sent. */
static inline uint64_t sp_input_log_left(const struct sp_input_log *l)
{
    return l->now.end - l->sent;
}
/* Chunks that were not sent as a whole, counted up to SP_INPUT_CHUNKS. */
static inline unsigned sp_input_log_chunks(const struct sp_input_log *l)
{
    return l->end_count;
}
/* It should be replaced when it is empty. */
static inline bool sp_input_log_is_long(const struct sp_input_log *l)
{
    return l->now.end - SP_INPUT_LOG_DATA >= SP_INPUT_LOG_LONG;
}
/* Whether the limit of file sizes allows so many more bytes. */
static inline bool sp_input_log_has_room(const struct sp_input_log *l, size_t bytes)
{
    return bytes <= l->most && l->now.end <= l->most - bytes;
}

bool sp_input_log_knows(const struct sp_input_log *l, struct sp_hash id);
/* The newest ids, the oldest of them first. Returns their number. */
unsigned sp_input_log_ids(const struct sp_input_log *l, struct sp_hash *ret, unsigned max);

/* Accepts bytes (there may be none) together with an id (NULL: none) and a new state. 0, or minus
 * errno: nothing was accepted. */
int sp_input_log_append(struct sp_input_log *l, struct sp_str bytes, const struct sp_hash *id,
                        enum sp_input_log_state state);
void sp_input_log_set(struct sp_input_log *l, enum sp_input_log_state state);
/* What is left is not sent any more. */
void sp_input_log_drop(struct sp_input_log *l);
/* Writes to a pipe or terminal, which does not block. The number of bytes, or minus errno. */
ssize_t sp_input_log_send(struct sp_input_log *l, int target);

#endif
