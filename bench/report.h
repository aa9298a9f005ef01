/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report: the figures, the table, and the limits they are held against.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stdio.h>

enum bench_side { BENCH_OURS, BENCH_PEER, BENCH_RAW, BENCH_SIDES };

/* name in JSON, text in the table, unit, whether more is better */
#define BENCH_METRICS(X)                                                                        \
    X(STARTUP, "startup", "start-up to ready, p50", TIME, false)                                \
    X(IDLE_FRESH, "idle_fresh_pss", "idle memory when fresh, PSS", BYTES, false)                \
    X(IDLE, "idle_pss", "idle memory after a command, PSS", BYTES, false)                       \
    X(IDLE_PRIVATE, "idle_private", "idle memory after a command, private", BYTES, false)       \
    X(CONNECT, "connect", "connect, upgrade, initialize, p50", TIME, false)                     \
    X(START_P50, "start_p50", "/bin/true start to closed, p50", TIME, false)                    \
    X(START_P99, "start_p99", "/bin/true start to closed, p99", TIME, false)                    \
    X(ORDINARY, "start_ordinary_p50", "- with an ordinary client, p50", TIME, false)            \
    X(INFLIGHT, "inflight_16", "- 16 in flight", RATE, true)                                    \
    X(CPU_FRONT, "start_cpu_front", "- processor time of a start: front", TIME, false)          \
    X(CPU_CELL, "start_cpu_cell", "- the same: cells", TIME, false)                             \
    X(CPU_1, "start_cpu_1", "- the same: both, --cells 1", TIME, false)                         \
    X(CPU_2, "start_cpu_2", "- the same: both, --cells 2", TIME, false)                         \
    X(CPU_4, "start_cpu_4", "- the same: both, --cells 4", TIME, false)                         \
    X(CPU_8, "start_cpu_8", "- the same: both, --cells 8", TIME, false)                         \
    X(SEQ_CPU, "seq_cpu", "- one after another: processor time", TIME, false)                   \
    X(SEQ_CPU_OFF, "seq_cpu_off", "- the same with --busy-poll off", TIME, false)               \
    X(SEQ_CPU_ON, "seq_cpu_on", "- the same with --busy-poll on", TIME, false)                  \
    X(RECEIPT_CPU, "receipt_cpu", "- 16 in flight: the same with receipts", TIME, false)        \
    X(RECEIPT_OFF, "receipt_cpu_off", "- 16 in flight: without receipts", TIME, false)          \
    X(LIMITS_START, "limits_start", "start to closed with limits, p50", TIME, false)            \
    X(LIMITS_OFF, "limits_start_off", "- the same without limits", TIME, false)                 \
    X(PTY_P50, "pty_start_p50", "/bin/true on a PTY, p50", TIME, false)                         \
    X(ECHO_P50, "pty_echo_p50", "PTY echo, p50", TIME, false)                                   \
    X(ECHO_P99, "pty_echo_p99", "PTY echo, p99", TIME, false)                                   \
    X(ECHO_RAW2, "echo_raw2", "- raw: TCP and two processes, p50", TIME, false)                 \
    X(OUTPUT, "pipe_output", "output of a pipe", FLOW, true)                                    \
    X(LINES, "short_lines", "short lines, one write each", RATE, true)                          \
    X(PRINT, "short_lines_buffered", "short lines, 4 KiB each write", RATE, true)               \
    X(READ_P50, "parked_read_p50", "parked process/read, p50", TIME, false)                     \
    X(READ_P99, "parked_read_p99", "parked process/read, p99", TIME, false)                     \
    X(POLL_RAW1, "poll_raw1", "- after 3 ms; raw: one process, p50", TIME, false)               \
    X(POLL_RAW2, "poll_raw2", "- after 3 ms; raw: two processes, p50", TIME, false)             \
    X(IDLE_10K, "idle_10k_pss_each", "10,000 idle PTYs: PSS each", BYTES, false)                \
    X(IDLE_10K_CPU, "idle_10k_cpu", "10,000 idle PTYs: processor time in 1 s", TIME, false)     \
    X(PTYS_START, "ptys_start", "500 idle PTYs: start all", TIME, false)                        \
    X(PTYS_PRIVATE, "ptys_private_each", "500 idle PTYs: private memory each", BYTES, false)    \
    X(PTYS_PSS, "ptys_pss_each", "500 idle PTYs: PSS each", BYTES, false)                       \
    X(PTYS_END, "ptys_end", "500 idle PTYs: terminate all", TIME, false)                        \
    X(SOAK, "soak_1m", "1,000,000 commands, 16 at a time", RATE, true)                          \
    X(SOAK_GROWTH, "soak_1m_growth", "- growth of the memory after 300,000", BYTES, false)      \
    X(CLOSED_BYTES, "closed_bytes", "20,000 ended commands: PSS each", BYTES, false)            \
    X(BUDGET, "budget", "1,000 x 4 MiB of output, budget 64 MiB", BYTES, false)                 \
    X(LIVE_10, "start_10_live_p50", "start with 10 live, p50", TIME, false)                     \
    X(LIVE_100, "start_100_live_p50", "start with 100 live, p50", TIME, false)                  \
    X(LIVE_1000, "start_1000_live_p50", "start with 1,000 live, p50", TIME, false)              \
    X(CONFINED_P50, "confined_start_p50", "- under a sandbox (raw: without), p50", TIME, false) \
    X(FIRST_P50, "sandbox_first_p50", "- first of a new policy, p50", TIME, false)              \
    X(MANAGED_P50, "managed_start_p50", "- managed network (raw: none), p50", TIME, false)      \
    X(MANAGED_FIRST, "managed_first_p50", "- first of a new policy there, p50", TIME, false)    \
    X(CELLS_START, "cells_start", "64 sandboxes at once: start all", TIME, false)               \
    X(CELLS_PRIVATE, "cells_private_each", "64 sandboxes: private memory each", BYTES, false)   \
    X(FILE_READ_1, "file_read_1m", "fs/readFile of 1 MiB", FLOW, true)                          \
    X(FILE_READ_32, "file_read_32m", "fs/readFile of 32 MiB", FLOW, true)                       \
    X(FILE_WRITE_1, "file_write_1m", "fs/writeFile of 1 MiB", FLOW, true)                       \
    X(FILE_WRITE_32, "file_write_32m", "fs/writeFile of 32 MiB", FLOW, true)                    \
    X(WALK, "walk_10000_p50", "fs/walk of 10,000 files, p50", TIME, false)                      \
    X(CONFINED_READ, "confined_read_p50", "fs/readFile confined (raw: not), p50", TIME, false)  \
    X(STAT_P50, "stat_missing_p50", "fs/getMetadata of a gap, p50", TIME, false)                \
    X(STAT_RATE, "stat_missing_16", "- 16 in flight", RATE, true)                               \
    X(EXEC_P50, "exec_p50", "exec_command of /bin/true, p50", TIME, false)                      \
    X(EXEC_P99, "exec_p99", "exec_command of /bin/true, p99", TIME, false)                      \
    X(EXEC_RPC, "exec_rpc_p50", "- the same as process RPC, p50", TIME, false)                  \
    X(MCP_P50, "mcp_exec_p50", "- over MCP on stdio, confined, p50", TIME, false)               \
    X(MCP_P99, "mcp_exec_p99", "- over MCP on stdio, confined, p99", TIME, false)               \
    X(POLL_CPU, "poll_cpu", "processor time of an idle poll of 5 s", TIME, false)               \
    X(JUDGE_P50, "judge_p50", "judging a command with 1,000 rules, p50", TIME, false)           \
    X(NET_NAME, "net_name_p50", "connect by name, a byte and back, p50", TIME, false)           \
    X(NET_CONNECT, "net_connect_p50", "- by CONNECT, p50", TIME, false)                         \
    X(NET_FIRST, "net_first_p50", "- first one of a host, p50", TIME, false)                    \
    X(NET_ECHO, "net_echo_p50", "a byte and back, tunnel is open, p50", TIME, false)            \
    X(NET_STREAM, "net_stream", "one stream by name", FLOW, true)                               \
    X(NET_CPU, "net_cpu_per_gb", "- processor time of the proxy, each GB", TIME, false)         \
    X(NET_DNS, "net_dns_p50", "DNS answer, name on no list, p50", TIME, false)                  \
    X(NET_MANY, "net_many", "1,000 connections, 5 bytes each", TIME, false)                     \
    X(NET_RSS, "net_many_rss", "- resident memory of the proxy", BYTES, false)                  \
    X(NET_IDLE, "net_idle_private", "idle proxy and resolver, private", BYTES, false)           \
    X(NET_COLD, "net_cold_p50", "sandbox of /bin/true (raw: restricted), p50", TIME, false)     \
    X(SIZE, "binary_stripped", "stripped binary", BYTES, false)

enum bench_metric {
#define X(name, json, text, unit, more) BENCH_M_##name,
    BENCH_METRICS(X)
#undef X
        BENCH_M_MAX
};

struct bench_report {
    double v[BENCH_M_MAX][BENCH_SIDES]; /* seconds, bytes, per second; NAN: not measured */
};

void bench_report_init(struct bench_report *r);

/* Which columns there are: ours and peer only if there is one. */
void bench_report_table(const struct bench_report *r, bool has_ours, bool has_peer, FILE *to);

/*
 * Prints a line for every limit and returns how many were missed. One that was not measured gets a
 * "-" if the run was a whole one, and else no line.
 */
int bench_report_checks(const struct bench_report *r, bool has_peer, bool is_whole, FILE *to);

/* Both as one JSON object; returns how many limits were missed. */
int bench_report_json(const struct bench_report *r, FILE *to);

#endif
