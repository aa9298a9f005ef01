/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_plain: one engine with nothing special for each test, and a count of what it leaves open.
 */
#ifndef SP_LIB_PLAIN_H
#define SP_LIB_PLAIN_H

#include "lib_fixture.h"

static int fds_before;

static inline int set_up(void **state)
{
    const struct sp_engine_options o = default_options();

    (void)state;
    fds_before = open_fds();
    engine = make_engine(&o);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    if (open_fds() == fds_before)
        return 0;
    (void)fprintf(stderr, "# descriptors left behind: %d\n", open_fds() - fds_before);
    return -1;
}

#endif
