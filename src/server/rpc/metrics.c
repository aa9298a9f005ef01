/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/metrics.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "core/managed.h"

/* ---- counting ---- */

/* Upper bounds of the request duration histogram, in microseconds. */
static const uint64_t bucket_us[SP_RPC_BUCKETS] = {
    0,        5000,     10000,    25000,    50000,    75000,    100000,
    250000,   500000,   750000,   1000000,  2500000,  5000000,  7500000,
    10000000, 12000000, 15000000, 20000000, 30000000, 60000000, 120000000};

/* The histogram is not cumulative here; write_requests sums it up. */
void sp_metrics_count(struct sp_method_stats *s, uint64_t started_us, enum sp_rpc_outcome how)
{
    const uint64_t us = sp_clock_us() - started_us;
    int b = 0;

    s->ok += how == SP_RPC_OUTCOME_OK;
    s->error += how == SP_RPC_OUTCOME_ERROR;
    s->disconnected += how == SP_RPC_OUTCOME_DISCONNECTED;
    s->total_us += us;
    while (b < SP_RPC_BUCKETS && us > bucket_us[b])
        b++;
    s->buckets[b]++;
}

/* ---- the page ---- */

static void describe(struct sp_buf *b, const char *name, const char *type, const char *help)
{
    (void)sp_buf_printf(b, "# HELP sallyport_%s %s\n# TYPE sallyport_%s %s\n", name, help, name,
                        type);
}

static void single(struct sp_buf *b, const char *name, const char *type, const char *help,
                   uint64_t value)
{
    describe(b, name, type, help);
    (void)sp_buf_printf(b, "sallyport_%s %" PRIu64 "\n", name, value);
}

static void seconds(struct sp_buf *b, const char *name, const char *help, uint64_t us)
{
    describe(b, name, "counter", help);
    (void)sp_buf_printf(b, "sallyport_%s %.6f\n", name, (double)us / 1e6);
}

static const char *method_name(const struct sp_method_stats *s)
{
    return s->method != NULL ? s->method->name : "unknown";
}

static uint64_t total(const struct sp_method_stats *s)
{
    return s->ok + s->error + s->disconnected;
}

/* Methods without a request are left out, to keep the page short. */
static void write_requests(const struct sp_rpc *rpc, struct sp_buf *b)
{
    describe(b, "requests_total", "counter",
             "Requests answered or given up, by method and result.");
    for (size_t i = 0; i < rpc->stats_count; i++) {
        const struct sp_method_stats *s = &rpc->stats[i];
        const struct {
            const char *result;
            uint64_t n;
        } r[] = {{"success", s->ok}, {"error", s->error}, {"disconnected", s->disconnected}};

        for (size_t k = 0; k < 3; k++)
            if (r[k].n != 0)
                (void)sp_buf_printf(
                    b, "sallyport_requests_total{method=\"%s\",result=\"%s\"} %" PRIu64 "\n",
                    method_name(s), r[k].result, r[k].n);
    }
    describe(b, "request_duration_seconds", "histogram",
             "From the arrival of a request to its answer, waits included.");
    for (size_t i = 0; i < rpc->stats_count; i++) {
        const struct sp_method_stats *s = &rpc->stats[i];
        uint64_t sum = 0;

        if (total(s) == 0)
            continue;
        for (int k = 0; k < SP_RPC_BUCKETS; k++) {
            sum += s->buckets[k];
            (void)sp_buf_printf(
                b,
                "sallyport_request_duration_seconds_bucket{method=\"%s\",le=\"%g\"} %" PRIu64 "\n",
                method_name(s), (double)bucket_us[k] / 1e6, sum);
        }
        (void)sp_buf_printf(
            b,
            "sallyport_request_duration_seconds_bucket{method=\"%s\",le=\"+Inf\"} %" PRIu64 "\n"
            "sallyport_request_duration_seconds_sum{method=\"%s\"} %.6f\n"
            "sallyport_request_duration_seconds_count{method=\"%s\"} %" PRIu64 "\n",
            method_name(s), total(s), method_name(s), (double)s->total_us / 1e6, method_name(s),
            total(s));
    }
}

/* Ring and input sizes are summed on demand: nothing is counted on the path of the output. */
static void write_processes(const struct sp_front *front, struct sp_buf *b)
{
    const struct sp_front_stats *s = &front->stats;
    const struct {
        const char *result;
        uint64_t n;
    } r[] = {{"success", s->finished_ok},
             {"error", s->finished_error},
             {"terminated", s->finished_terminated},
             {"unknown", s->finished_lost}};
    uint64_t ring_bytes = 0;
    uint64_t input_bytes = 0;
    uint64_t kept = front->pasts.count;

    sp_list_each(i, &front->sessions)
        sp_list_each(k, &SP_CONTAINER(i, struct sp_session, link)->procs) {
            const struct sp_proc *p = SP_CONTAINER(k, struct sp_proc, link);

            ring_bytes += p->tail.bytes - p->state.dropped_bytes;
            input_bytes += p->input.bytes;
            kept++;
        }
    single(b, "sessions", "gauge", "Sessions, detached ones included.", front->session_count);
    single(b, "cells", "gauge", "Cells that run commands without a sandbox.", front->open_count);
    seconds(b, "loop_busy_seconds_total", "Processor time of the event loop.",
            sp_clock_cpu_ns() / 1000);
    seconds(b, "busy_poll_seconds_total",
            "The part of it in which the loop polled instead of sleeping.",
            sp_loop_busy_poll(front->loop)->total_us);
    single(b, "processes_started_total", "counter", "Processes that were started.", s->started);
    single(b, "process_start_failures_total", "counter", "Starts that the system refused.",
           s->failed_starts);
    single(b, "processes_live", "gauge", "Processes that have not closed.", s->live);
    single(b, "processes_kept", "gauge", "Processes in all sessions, closed ones included.", kept);
    describe(b, "limit_hits_total", "counter", "Closed processes that reached a limit, by limit.");
    for (int i = 0; i < SP_LIMIT_COUNT; i++)
        (void)sp_buf_printf(b, "sallyport_limit_hits_total{limit=\"%s\"} %" PRIu64 "\n",
                            sp_limit_kinds[i].name, s->limit_hits[i]);
    describe(b, "processes_finished_total", "counter", "Processes that have exited, by result.");
    for (size_t k = 0; k < 4; k++)
        (void)sp_buf_printf(b, "sallyport_processes_finished_total{result=\"%s\"} %" PRIu64 "\n",
                            r[k].result, r[k].n);
    single(b, "kept_bytes", "gauge", "Memory of the records of ended processes.",
           front->pasts.bytes);
    describe(b, "evicted_total", "counter",
             "Ended processes that lost their output, or their record, for lack of memory.");
    for (int k = 0; k < SP_PAST_STAGES; k++)
        (void)sp_buf_printf(b, "sallyport_evicted_total{stage=\"%s\"} %" PRIu64 "\n",
                            k == SP_PAST_OUTPUT ? "output" : "record", front->pasts.evicted[k]);
    single(b, "output_bytes_total", "counter", "Output read from processes.", s->output_bytes);
    single(b, "output_dropped_bytes_total", "counter", "Output that retention has forgotten.",
           s->dropped_bytes);
    single(b, "ring_bytes", "gauge", "Output retained in the rings.", ring_bytes);
    single(b, "ring_touched_bytes", "gauge", "Memory that the rings take.",
           front->cells->rings.touched);
    single(b, "ring_keep_bytes", "gauge", "Memory that one ring may take.",
           front->cells->rings.share != 0 ? front->cells->rings.share : SP_RING_AREA);
    single(b, "input_queue_bytes", "gauge", "Input that processes have not read yet.", input_bytes);
}

static void summary(struct sp_buf *b, const char *name, const char *help, uint64_t us,
                    uint64_t count)
{
    describe(b, name, "summary", help);
    (void)sp_buf_printf(b, "sallyport_%s_sum %.6f\nsallyport_%s_count %" PRIu64 "\n", name,
                        (double)us / 1e6, name, count);
}

/* Zeros before the first managed cell. Hosts are never labels: commands choose them. */
static void write_networks(const struct sp_front *front, struct sp_buf *b)
{
    static const struct sp_managed_stats none;
    const struct sp_managed_stats *s =
        front->cell_pool == NULL || front->cell_pool->networks == NULL
            ? &none
            : sp_managed_hub_stats(front->cell_pool->networks);
    const struct {
        const char *metric, *label, *value;
        uint64_t n;
    } r[] = {{"network_connections_total", "verdict", "allowed", s->allowed},
             {"network_connections_total", "verdict", "denied", s->denied},
             {"network_bytes_total", "direction", "sent", s->sent},
             {"network_bytes_total", "direction", "received", s->received},
             {"network_dns_total", "answer", "name", s->dns_name},
             {"network_dns_total", "answer", "none", s->dns_none},
             {"network_dns_total", "answer", "failed", s->dns_failed},
             {"network_dns_total", "answer", "dropped", s->dns_dropped}};
    static const char *const help[] = {
        "Verdicts about connections of managed networks.",
        "Bytes of closed connections of managed networks, seen from the command.",
        "Questions of commands to the DNS of managed networks."};

    for (size_t i = 0, family = 0; i < sizeof r / sizeof r[0]; i++) {
        if (i == 0 || strcmp(r[i].metric, r[i - 1].metric) != 0)
            describe(b, r[i].metric, "counter", help[family++]);
        (void)sp_buf_printf(b, "sallyport_%s{%s=\"%s\"} %" PRIu64 "\n", r[i].metric, r[i].label,
                            r[i].value, r[i].n);
    }
    single(b, "network_connections_active", "gauge", "Open connections of managed networks.",
           s->active);
    single(b, "network_questions_open", "gauge", "Connections that wait for a verdict.",
           s->open_asks);
    summary(b, "network_decision_seconds", "Time from a proxy's question to the verdict.",
            s->decision_us, s->decisions);
    summary(b, "network_resolve_seconds", "Time to look up a name of a host.", s->resolve_us,
            s->resolves);
    single(b, "network_proxy_restarts_total", "counter",
           "Proxies and resolvers that ended and were replaced.", s->restarts);
}

/* Out of memory: the page is cut off, since nothing depends on it. */
void sp_metrics_write(const struct sp_rpc *rpc, const struct sp_listener_stats *net,
                      struct sp_buf *out)
{
    single(out, "connections_active", "gauge", "Open connections.", net->active);
    single(out, "connections_total", "counter", "Connections that became a client's.",
           rpc->connections);
    single(out, "connections_refused_total", "counter", "Connections that were turned away.",
           net->refused);
    single(out, "received_bytes_total", "counter", "Bytes received.", net->bytes_in);
    single(out, "sent_bytes_total", "counter", "Bytes sent.", net->bytes_out);
    single(out, "queue_bytes", "gauge", "Bytes queued for clients.", net->queued_bytes);
    if (rpc->strikes.header != NULL) {
        single(out, "front_generation", "gauge", "Fronts that this server has had.",
               atomic_load(&rpc->strikes.header->generation));
        single(out, "sessions_held_back", "gauge",
               "Sessions and addresses that are refused because they crashed fronts.",
               sp_strikes_held(&rpc->strikes, sp_clock_ms()));
    }
    write_requests(rpc, out);
    write_processes(rpc->front, out);
    write_networks(rpc->front, out);
}
