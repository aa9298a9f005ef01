/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper: the process that `sallyport serve` is. It starts the front, which does all the work, and
 * starts another one when the front dies. It holds the descriptors without which the next front
 * could not go on (hold.h), and nothing else: it reads no options and no byte of a client.
 *
 *          +----------------------- delay <---------------- dies ---------------+
 *          v                                                                    |
 *   fork, execve --HELLO--> HELD ... GO --READY_MS at most--> READY --KEEP, DROP+--> ENDING, exits
 *
 * The death of a front that was killed because it was not ready in time is told to the next one as
 * one by SIGALRM.
 *
 * All that is below the front when it dies becomes a child of the keeper (PR_SET_CHILD_SUBREAPER).
 */
#ifndef SP_KEEPER_KEEPER_H
#define SP_KEEPER_KEEPER_H

#define SP_KEEPER_DELAYS    10
#define SP_KEEPER_GAVE_UP   70 /* exit status: EX_SOFTWARE */
#define SP_KEEPER_MAX_EARLY 12 /* deaths before READY in a row, then it gives up */

/* In milliseconds. */
struct sp_keeper_times {
    unsigned ready;     /* from the start of a front to READY, else it is killed */
    unsigned ending;    /* from a signal to the end of the front, else it is killed */
    unsigned long_life; /* after a longer life the next front starts at once */
    unsigned delays[SP_KEEPER_DELAYS]; /* after the n-th shorter life in a row; then the last one */
};

struct sp_keeper_options {
    char *const *argv;                   /* of each front */
    const struct sp_keeper_times *times; /* NULL: the usual ones */
};

/*
 * Runs fronts (of the program of this process) until the server ends. Returns its exit status:
 * that of the front, if it ended in order or if the first one ended before it was ready;
 * SP_KEEPER_GAVE_UP. SIGTERM, SIGINT and SIGHUP end the server in order.
 */
int sp_keeper_run(const struct sp_keeper_options *o);

#endif
