/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ending: the signals that end a server: its loop stops, and it takes its processes with it.
 */
#ifndef SP_CLI_ENDING_H
#define SP_CLI_ENDING_H

#include "os/loop.h"

struct sp_ending {
    struct sp_loop *loop; /* NULL: not begun */
    int fd;
    struct sp_watch watch;
};

/* SIGTERM, and SIGINT and SIGHUP unless whoever started us ignores them. SIGPIPE is ignored. *s is
 * zero. */
int sp_ending_begin(struct sp_ending *s, struct sp_loop *loop, struct sp_err *e);
void sp_ending_done(struct sp_ending *s); /* before the loop; zero is fine */

#endif
