/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input: what is on its way to one process's stdin, and which writes were accepted before.
 *
 * Bytes are written at once if the process takes them, else queued: at most 128 chunks and 8 MiB
 * (one chunk of any size always fits into an empty queue). A full queue refuses, and tells its
 * owner when there is room again. The newest 4096 write ids are remembered, as keyed hashes, so
 * that a repeated write is written once and a long id costs no memory. Once nobody reads the other
 * end the bytes go nowhere, without an error.
 */
#ifndef SP_CORE_INPUT_H
#define SP_CORE_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/str.h"
#include "os/loop.h"

#define SP_INPUT_CHUNKS 128
#define SP_INPUT_BYTES  (8U << 20)
#define SP_INPUT_IDS    4096

enum sp_input_state {
    SP_INPUT_NONE,    /* the process has no stdin of ours */
    SP_INPUT_OPEN,    /* takes bytes */
    SP_INPUT_GONE,    /* takes bytes and drops them: the process closed it or has exited */
    SP_INPUT_CLOSING, /* end of file after what is queued, or already told */
    SP_INPUT_BROKEN,  /* the process was terminated: writes fail */
};

struct sp_input_chunk;

struct sp_input {
    struct sp_loop *loop;
    enum sp_input_state state;
    bool is_tty;
    bool is_embedded; /* SIGPIPE is our host's business: none is raised */
    int fd;           /* -1: none */
    struct sp_watch watch;
    struct sp_timer retry; /* while the kernel has no memory for a write */
    bool is_short;         /* ... as the last one found */
    struct sp_input_chunk *first, **end;
    unsigned chunks;
    size_t bytes;
    char last;           /* the last byte that was accepted; a terminal's line may be unfinished */
    struct sp_hash *ids; /* a ring, grown up to SP_INPUT_IDS */
    unsigned id_count, id_cap, id_next;
    void (*has_room)(struct sp_input *in);
};

void sp_input_init(struct sp_input *in, struct sp_loop *loop, void (*has_room)(struct sp_input *));
void sp_input_open(struct sp_input *in, int fd,
                   bool is_tty); /* the descriptor is the input's now */
void sp_input_done(struct sp_input *in);

enum sp_input_result { SP_INPUT_ACCEPTED, SP_INPUT_FULL, SP_INPUT_CLOSED, SP_INPUT_FAILED };

/* Whether a write with this id was accepted before. An id without a pointer is none: the caller
 * writes everything once. */
bool sp_input_knows(const struct sp_input *in, struct sp_str id);
enum sp_input_result sp_input_write(struct sp_input *in, struct sp_str id, struct sp_str bytes);

/* End of file after what is queued. ACCEPTED or CLOSED. */
enum sp_input_result sp_input_close(struct sp_input *in);

/* The process is being terminated: nothing more is written, but its stdin does not end before it.
 */
void sp_input_break(struct sp_input *in);
void sp_input_process_ended(struct sp_input *in, bool was_terminated);

#endif
