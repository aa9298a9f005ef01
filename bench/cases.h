/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: what is measured. A case fills its figures in the report; it opens and closes all it
 * needs.
 */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H

#include "seat.h"

/* name for --only, function */
#define BENCH_CASES(X)                                                                          \
    X(startup, "spawn the server until a client is initialized")                                \
    X(memory, "what all processes of an idle server use")                                       \
    X(connect, "connect, upgrade, initialize")                                                  \
    X(start, "start /bin/true until it is closed, a client that acknowledges at once")          \
    X(ordinary, "the same with an ordinary client")                                             \
    X(inflight, "the same with 16 at a time, per second")                                       \
    X(start_cpu, "processor time of a start, 16 at a time, with 1, 2, 4 and 8 cells")           \
    X(seq_cpu, "processor time of a start, one after another, with polling and without")        \
    X(receipt_cpu, "processor time of a start with a receipt, 16 at a time")                    \
    X(limits_start, "start /bin/true with limits of memory and pids, and without")              \
    X(pty, "the same on a terminal")                                                            \
    X(echo, "one byte to a terminal and back")                                                  \
    X(echo_raw2, "the same; raw has TCP and two processes, too")                                \
    X(output, "bytes from a pipe, all of them counted and looked at")                           \
    X(lines, "short lines, one write(2) each")                                                  \
    X(read, "a parked process/read until it answers")                                           \
    X(poll_raw1, "the same after 3 ms of rest; raw is one process")                             \
    X(poll_raw2, "the same after 3 ms of rest; raw is two processes")                           \
    X(idle_10k, "10,000 idle terminals (--quick: 1,000): memory and processor time")            \
    X(ptys, "500 idle terminals: time and memory")                                              \
    X(closed_bytes, "memory of each of 20,000 ended commands (--quick: 5,000)")                 \
    X(budget, "memory of 1,000 commands (--quick: 100), 4 MiB of output each, for 64 MiB")      \
    X(live, "start with 10, 100 and 1,000 processes alive")                                     \
    X(confined, "start /bin/true under a sandbox that is there; raw is ours without a sandbox") \
    X(sandbox_first, "start /bin/true under a policy that is new")                              \
    X(managed, "the same two in a managed network; raw is ours without a network")              \
    X(cells, "64 sandboxes at once: time and memory")                                           \
    X(files, "fs/readFile and fs/writeFile of 1 MiB and 32 MiB")                                \
    X(walk, "fs/walk of 10,000 files in 100 directories")                                       \
    X(confined_read, "fs/readFile of a small file under a sandbox; raw is ours without")        \
    X(stat, "fs/getMetadata of what is not there")                                              \
    X(exec, "exec_command of /bin/true by the engine in this program, beside the server's RPC") \
    X(mcp, "exec_command of /bin/true over MCP on stdio, in the default sandbox")               \
    X(poll, "the processor time of a poll of 5 seconds that nothing comes of")                  \
    X(judge, "judge a script of five commands with 1,000 rules")                                \
    X(network, "a managed network by name and by CONNECT; raw is loopback without one")         \
    X(size, "the stripped binary")

/* Only if --only names them: they take long. */
#define BENCH_LONG_CASES(X) \
    X(soak_1m, "1,000,000 commands, 16 at a time (--quick: 20,000): rate, growth of the memory")

#define X(name, text) void bench_case_##name(struct bench *b);
BENCH_CASES(X)
BENCH_LONG_CASES(X)
#undef X

#endif
