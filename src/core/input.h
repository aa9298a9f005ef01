/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input: queue of bytes for the stdin of one process, and the ids of accepted writes.
 *
 * Bytes are written at once if the pipe or terminal has room, else queued: at most SP_INPUT_CHUNKS
 * chunks and SP_INPUT_BYTES bytes (an empty queue accepts one chunk of any size). A full queue
 * refuses, and calls has_room later. The newest SP_INPUT_IDS write ids are kept as keyed hashes, so
 * that a repeated write is written once and a long id costs no memory. After the process has closed
 * its stdin, bytes are dropped without an error.
 *
 * With log_made the queue and the ids are in a log (core/input_log.h), which the next front goes on
 * writing: each byte that was accepted is written once.
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
    SP_INPUT_NONE,    /* no stdin, or STARTING */
    SP_INPUT_OPEN,    /* takes bytes */
    SP_INPUT_GONE,    /* drops bytes: the process has closed its stdin or has exited */
    SP_INPUT_CLOSING, /* end of file follows the queue, or was sent */
    SP_INPUT_BROKEN,  /* the process was terminated, or a write failed halfway: writes fail */
};

struct sp_input_chunk;
struct sp_input_log;

struct sp_input {
    struct sp_loop *loop;
    enum sp_input_state state;
    bool is_tty;
    bool is_embedded; /* in a host program: must not raise SIGPIPE */
    int fd;           /* -1: none; owned. Set with state OPEN when the process has started */
    struct sp_watch watch;
    struct sp_timer retry; /* while the kernel has no memory for a write */
    bool is_short;         /* the last write failed for lack of memory */
    struct sp_input_chunk *first, **end;
    unsigned chunks;
    size_t bytes;
    char last;           /* last accepted byte: tells whether a terminal's line is unfinished */
    struct sp_hash *ids; /* a ring, grown up to SP_INPUT_IDS */
    unsigned id_count, id_cap, id_next;
    struct sp_input_log *log; /* NULL: nothing was accepted yet, or there is no keeper */
    bool has_ended;           /* a terminal's end of file was queued */
    /* Keeps a new log for the next front, before anything is accepted. false: it cannot be kept.
     * NULL: there is no keeper. */
    bool (*log_made)(struct sp_input *in, int log_fd);
    void (*has_room)(struct sp_input *in);
    void (*closed)(struct sp_input *in); /* our end of it is; may be NULL */
};

void sp_input_init(struct sp_input *in, struct sp_loop *loop, void (*has_room)(struct sp_input *));
void sp_input_done(struct sp_input *in);

/* The newest ids, the oldest of them first. Returns their number. */
unsigned sp_input_ids(const struct sp_input *in, struct sp_hash *ret, unsigned max);

enum sp_input_result { SP_INPUT_ACCEPTED, SP_INPUT_FULL, SP_INPUT_CLOSED, SP_INPUT_FAILED };

/* Whether a write with this id was accepted before. id.p NULL: no id, never a repetition. */
bool sp_input_knows(const struct sp_input *in, struct sp_str id);
enum sp_input_result sp_input_write(struct sp_input *in, struct sp_str id, struct sp_str bytes);

/* Goes on with the stdin of a process that an earlier front has started. Takes the descriptors; -1:
 * there is none. */
void sp_input_adopt(struct sp_input *in, int target_fd, int log_fd);

/* End of file after the queue. ACCEPTED or CLOSED. */
enum sp_input_result sp_input_close(struct sp_input *in);

/* The process is being terminated: drops the queue, but keeps stdin open until the process ends. */
void sp_input_break(struct sp_input *in);
void sp_input_process_ended(struct sp_input *in, bool was_terminated);

#endif
