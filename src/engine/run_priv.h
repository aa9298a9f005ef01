/* SPDX-License-Identifier: Apache-2.0 */
/* run_priv: shared by run.c (the life of a run) and run_output.c (its captured output, events and
 * texts). */
#ifndef SP_ENGINE_RUN_PRIV_H
#define SP_ENGINE_RUN_PRIV_H

#include "base/buf.h"
#include "engine/delta.h"
#include "engine/run.h"

struct sp_run_stream {
    struct sp_run_watcher *watcher;
    enum sp_stream stream;
    struct sp_buf kept; /* the first bytes, up to the cap */
    uint64_t total;
    struct sp_delta delta;
};

/* Where events go, and the members they share. */
struct sp_run_watcher {
    void (*event)(void *user, const struct sp_exec_event *e); /* NULL: no events */
    void *user;
    struct sp_exec_event form; /* template of all events */
    struct sp_str *argv;       /* owned */
    struct sp_buf strings;     /* owns the strings of form and argv */
    bool has_begin_and_end, has_begun;
    int64_t started_at_ms;
    unsigned quota; /* deltas that may still be sent, over both streams */
    struct sp_allowance allowance;
};

struct sp_run_capture_state {
    struct sp_run_watcher watcher;
    struct sp_run_stream out, err;
    size_t cap;               /* bytes of each stream and of both together; SIZE_MAX: none */
    struct sp_buf aggregated; /* used if both streams have output */
};

/* Copies the strings of the events. false: out of memory; sp_run_capture_done is needed then, too.
 */
bool sp_run_capture_init(struct sp_run_capture_state *c, const struct sp_run_ask *ask, void *user);
void sp_run_capture_done(struct sp_run_capture_state *c);

/* false: out of memory. Bytes above the cap are counted and sent as deltas, but not kept. */
bool sp_run_capture_take(struct sp_run_capture_state *c, enum sp_stream stream,
                         struct sp_str bytes);
/* The streams have ended: fills the output members. false: out of memory for the aggregate. */
bool sp_run_capture_fill(struct sp_run_capture_state *c, struct sp_run_result *ret);

void sp_run_tell_begin(struct sp_run_watcher *w); /* only the first call sends it */
void sp_run_tell_end(struct sp_run_watcher *w, const struct sp_run_result *r);

#endif
