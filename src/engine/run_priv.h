/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_priv: what the files of a run share: its life (run.c), what it keeps and tells while it lives
 * (run_capture.c), and the texts made of its result (run_text.c).
 */
#ifndef SP_ENGINE_RUN_PRIV_H
#define SP_ENGINE_RUN_PRIV_H

#include "base/buf.h"
#include "engine/delta.h"
#include "engine/run.h"

struct sp_run_stream {
    struct sp_run_watcher *watcher;
    enum sp_stream stream;
    struct sp_buf kept; /* the first bytes */
    uint64_t total;
    struct sp_delta delta;
};

/* Who is told, and what every event says. */
struct sp_run_watcher {
    void (*event)(void *user, const struct sp_exec_event *e); /* NULL: nobody */
    void *user;
    struct sp_exec_event form; /* the members that all events share */
    struct sp_str *argv;       /* owned, as are the strings of the form */
    struct sp_buf strings;     /* theirs */
    bool has_begin_and_end, has_begun;
    int64_t started_at_ms;
    unsigned quota; /* of deltas, over both streams */
    struct sp_allowance allowance;
};

struct sp_run_capture_state {
    struct sp_run_watcher watcher;
    struct sp_run_stream out, err;
    size_t cap;               /* of each stream and of both together; SIZE_MAX: none */
    struct sp_buf aggregated; /* if it is neither stream alone */
};

/* Copies what the events say. false: no memory; sp_run_capture_done is fine then too. */
bool sp_run_capture_init(struct sp_run_capture_state *c, const struct sp_run_ask *ask, void *user);
void sp_run_capture_done(struct sp_run_capture_state *c);

/* false: no memory. What is over the cap is counted, told, and not kept. */
bool sp_run_capture_take(struct sp_run_capture_state *c, enum sp_stream stream,
                         struct sp_str bytes);
/* The streams have ended: fills the result's. false: no memory for both together. */
bool sp_run_capture_fill(struct sp_run_capture_state *c, struct sp_run_result *ret);

void sp_run_tell_begin(struct sp_run_watcher *w); /* once; again is fine */
void sp_run_tell_end(struct sp_run_watcher *w, const struct sp_run_result *r);

#endif
