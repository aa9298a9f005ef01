/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history: the processes that have left the table, with the end of their output.
 *
 * All of it is one memory file of fixed layout, without pointers, so that another process can map
 * it and take over: a header page, entries, output blocks. Its memory is committed when it is first
 * written.
 *
 * An entry is complete before one release-store publishes its id, so a reader never sees half of
 * it. Every field is checked when it is read: an entry that breaks a rule is skipped.
 *
 * The newest N entries are kept. Output has 16 MiB in all: the oldest output is evicted first, and
 * its entry stays.
 */
#ifndef SP_CORE_HISTORY_H
#define SP_CORE_HISTORY_H

#include "cell/ring.h"
#include "core/proc.h"

#define SP_HISTORY_MAX_ENTRIES 100000
#define SP_HISTORY_OUTPUT      65536U      /* the most output bytes kept of one process */
#define SP_HISTORY_ALL_OUTPUT  (16U << 20) /* of all processes */
#define SP_HISTORY_TEXT        1760        /* bytes of the ids, the directory, the arguments ... */

enum sp_history_reason {
    SP_HISTORY_EXITED,
    SP_HISTORY_SIGNALED,      /* killed by a signal or a limit */
    SP_HISTORY_TERMINATED,    /* by process/terminate */
    SP_HISTORY_SESSION_ENDED, /* it was killed when its session ended */
    SP_HISTORY_LOST,          /* its cell was lost */
    SP_HISTORY_REASON_MAX,
};

/* A copy of one entry. Strings point into `text`; long ones are truncated. */
struct sp_history_entry {
    uint64_t id; /* counts up from 1 */
    int64_t started_ms, ended_ms;
    uint64_t next_seq;
    uint64_t kept_records, kept_bytes;     /* output that can still be read */
    uint64_t missed_records, missed_bytes; /* output before that */
    enum sp_history_reason reason;
    bool is_tty, is_confined, was_denied, has_exited;
    uint32_t pid, tier;
    enum sp_proc_network network;
    struct sp_exit exit; /* without has_exited: made up, with its reason and wall time */
    uint64_t dropped_bytes, output_bytes[SP_STREAM_MAX]; /* as in struct sp_ring_state */
    struct sp_str session, process, name, client, cwd;
    struct sp_str denial_reason, denial_path; /* empty: none */
    struct sp_str argv;                       /* words, each with its NUL */
    char text[SP_HISTORY_TEXT];
};

struct sp_history;

int sp_history_new(uint32_t entries, struct sp_history **ret, struct sp_err *e);
/* What an earlier front left: takes fd on success. Entries and output that break a rule are left
 * out. SP_E_MALFORMED: it is no history of this version. */
int sp_history_open(int fd, struct sp_history **ret, struct sp_err *e);
int sp_history_fd(const struct sp_history *h);
void sp_history_free(struct sp_history *h); /* accepts NULL */

/* p has started. Its log must have been read to the end. */
void sp_history_remember(struct sp_history *h, const struct sp_proc *p);

/* The newest entry with an id below `before`; false: none. */
bool sp_history_before(const struct sp_history *h, uint64_t before, struct sp_history_entry *ret);
static inline bool sp_history_get(const struct sp_history *h, uint64_t id,
                                  struct sp_history_entry *ret)
{
    return id < UINT64_MAX && sp_history_before(h, id + 1, ret) && ret->id == id;
}
/* Wipes the entry and its output. false: there is none. */
bool sp_history_remove(struct sp_history *h, uint64_t id);

/* ---- output ---- */

struct sp_history_chunk {
    uint64_t seq;  /* of its last record */
    int64_t at_ms; /* its last record came no later */
    enum sp_stream stream;
    struct sp_str bytes;
};

/* Appends the output in a form that sp_history_chunk_next reads. false: no memory. */
bool sp_history_output(const struct sp_history *h, const struct sp_history_entry *p,
                       struct sp_buf *out);
/* Moves *rest past the next chunk; false: the end. */
bool sp_history_chunk_next(struct sp_str *rest, struct sp_history_chunk *ret);

#endif
