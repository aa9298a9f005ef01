/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp_fixture: children under the filter.
 */
#ifndef SP_SECCOMP_FIXTURE_H
#define SP_SECCOMP_FIXTURE_H

#include <sys/prctl.h>
#include <sys/socket.h>

#include "os/seccomp.h"
#include "process_fixture.h"

static int fds_before;

static inline int begin(void **state)
{
    (void)state;
    fds_before = open_fds();
    return 0;
}

static inline int end(void **state)
{
    (void)state;
    assert_no_children();
    return open_fds() == fds_before ? 0 : -1;
}

static inline void enter(const struct sp_filter_options *o, int *ret_listener)
{
    static struct sp_filter f;

    sp_filter_make(o, &f);
    CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHILD_CHECK(sp_filter_install(&f, o->notifies, ret_listener) == 0);
}

static inline int error_of(long r)
{
    return r < 0 ? errno : 0;
}

static inline int socket_error(int family, int type, int protocol)
{
    const int fd = socket(family, type | SOCK_CLOEXEC, protocol);
    const int err = error_of(fd);

    if (fd >= 0)
        (void)close(fd);
    return err;
}

#endif
