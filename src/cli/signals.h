/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals: those sent to us, as events of a loop; and telling of a long wait.
 */
#ifndef SP_CLI_SIGNALS_H
#define SP_CLI_SIGNALS_H

#include <signal.h>

#include "os/loop.h"

/* Blocks the signals of `set`, and of the list (0 at the end) those that our parent does not
 * ignore: under nohup, SIGHUP stays ignored. Ignores SIGPIPE, and sets SIGCHLD to its default: if
 * it were ignored, children could not be waited for. *ret is a signalfd. */
int sp_signals_open(sigset_t *set, const int *unless_ignored, int *ret, struct sp_err *e);

/* The signals that end a server: its loop stops. */
struct sp_ending {
    struct sp_loop *loop; /* NULL: not begun */
    int fd;
    struct sp_watch watch;
};

/* SIGTERM; SIGINT and SIGHUP unless our parent ignores them. *s is zero. */
int sp_ending_begin(struct sp_ending *s, struct sp_loop *loop, struct sp_err *e);
void sp_ending_done(struct sp_ending *s); /* before the loop; zero is fine */

/* Says on stderr what is being done if it takes more than a second and stderr is a terminal; NULL:
 * it is over. `doing` has to live until then. */
void sp_tell_if_slow(const char *doing);

#endif
