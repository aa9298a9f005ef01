/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_events: one engine for each test whose events are written down, and a look at what it leaves.
 */
#ifndef SP_LIB_EVENTS_H
#define SP_LIB_EVENTS_H

#include "lib_fixture.h"

static int fds_before;

struct watched {
    enum sp_event_kind kind;
    int session;
    uint64_t call;
    int exit_code;
    bool is_failed;
    enum sp_output_stream stream;
    char bytes[512], first[64], cwd[512];
    const char *reason;
};

static struct watched events[256];
static int event_count;

static inline void on_event(void *user, const struct sp_event *ev)
{
    struct watched *w = &events[event_count];

    assert_ptr_equal(user, &event_count);
    assert_int_equal(ev->size, sizeof *ev);
    assert_true(event_count < 256);
    *w = (struct watched){.kind = ev->kind,
                          .session = ev->session,
                          .call = ev->call,
                          .exit_code = ev->exit_code,
                          .is_failed = ev->is_failed,
                          .stream = ev->stream};
    copy_text(w->bytes, sizeof w->bytes, ev->bytes, ev->byte_count);
    if (ev->kind == SP_EVENT_STARTED || ev->kind == SP_EVENT_ENDED) {
        assert_true(ev->at_ms > 1600000000000);
        assert_true(ev->kind == SP_EVENT_ENDED || ev->receipt == NULL);
        w->reason = ev->receipt == NULL ? "" : ev->receipt->reason;
        copy_text(w->first, sizeof w->first, ev->argv[0], strlen(ev->argv[0]));
        copy_text(w->cwd, sizeof w->cwd, ev->cwd, strlen(ev->cwd));
    }
    event_count++;
}

static inline int event_of(uint64_t call, enum sp_event_kind kind, int from)
{
    for (int i = from; i < event_count; i++)
        if (events[i].call == call && events[i].kind == kind)
            return i;
    return -1;
}

/* Dispatches until the call's command has told its end. */
static inline int until_ended(uint64_t call)
{
    const uint64_t end = now_ms() + DEADLINE_MS;

    while (event_of(call, SP_EVENT_ENDED, 0) < 0) {
        if (now_ms() > end)
            fail_msg("no end event");
        dispatch_once(engine, 100);
    }
    return event_of(call, SP_EVENT_ENDED, 0);
}

static inline int set_up(void **state)
{
    struct sp_engine_options o = default_options();

    (void)state;
    event_count = 0;
    fds_before = open_fds();
    o.event = on_event;
    o.user = &event_count;
    engine = make_engine(&o);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    if (open_fds() != fds_before || waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
        (void)fprintf(stderr, "# left behind: %d descriptors, or a child\n",
                      open_fds() - fds_before);
        return -1;
    }
    return 0;
}

#endif
