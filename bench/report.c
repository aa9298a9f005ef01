/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum unit { TIME, BYTES, RATE, FLOW };

static const struct metric {
    const char *json;
    const char *text;
    enum unit unit;
    bool more_is_better;
} metrics[BENCH_M_MAX] = {
#define X(name, json, text, unit, more) [BENCH_M_##name] = {json, text, unit, more},
    BENCH_METRICS(X)
#undef X
};

enum kind {
    OVER_RAW,    /* ours / raw at most */
    OF_RAW,      /* ours / raw at least */
    TIMES_PEER,  /* so many times better than the peer at least */
    AT_MOST,     /* ours at most */
    OVER_OTHER,  /* ours / ours of another metric at most */
    ABOVE_RAW,   /* ours - raw at most */
    ABOVE_OTHER, /* ours - ours of another metric at most */
};

static const struct limit {
    enum bench_metric metric;
    enum kind kind;
    double bound;
    enum bench_metric other;
    const char *text;
} limits[] = {
    {BENCH_M_START_P50, OVER_RAW, 1.15, 0, "start to closed p50 at most 1.15 x raw"},
    {BENCH_M_START_P50, TIMES_PEER, 5, 0, "start to closed p50 at least 5 x faster than the peer"},
    {BENCH_M_INFLIGHT, OF_RAW, 0.92, 0, "16 in flight at least 0.92 x raw"},
    {BENCH_M_CPU_FRONT, AT_MOST, 50e-6, 0, "processor time of a start, front, at most 50 us"},
    {BENCH_M_CPU_CELL, AT_MOST, 90e-6, 0, "processor time of a start, cell, at most 90 us"},
    {BENCH_M_CPU_2, OVER_OTHER, 1.1, BENCH_M_CPU_1, "the same with 2 cells at most 1.1 x with 1"},
    {BENCH_M_CPU_4, OVER_OTHER, 1.1, BENCH_M_CPU_1, "the same with 4 cells at most 1.1 x with 1"},
    {BENCH_M_CPU_8, OVER_OTHER, 1.1, BENCH_M_CPU_1, "the same with 8 cells at most 1.1 x with 1"},
    {BENCH_M_SEQ_CPU, AT_MOST, 260e-6, 0, "one after another at most 260 us each"},
    {BENCH_M_RECEIPT_CPU, ABOVE_OTHER, 5e-6, BENCH_M_RECEIPT_OFF, "a receipt at most 5 us more"},
    {BENCH_M_LIMITS_START, ABOVE_OTHER, 60e-6, BENCH_M_LIMITS_OFF, "limits at most 60 us more"},
    {BENCH_M_PTY_P50, OVER_RAW, 1.25, 0, "start on a PTY p50 at most 1.25 x raw"},
    {BENCH_M_OUTPUT, OF_RAW, 0.92, 0, "pipe output at least 0.92 x raw"},
    {BENCH_M_LINES, OF_RAW, 0.8, 0, "short lines, one write each, at least 0.8 x raw"},
    {BENCH_M_PRINT, OF_RAW, 0.75, 0, "short lines (4 KiB writes) at least 0.75 x raw"},
    {BENCH_M_OUTPUT, TIMES_PEER, 2.2, 0, "pipe output at least 2.2 x the peer"},
    /* Buffered ones: with a write for each line the command itself is the limit for everyone. */
    {BENCH_M_PRINT, TIMES_PEER, 2, 0, "short lines (4 KiB writes) at least 2 x the peer"},
    {BENCH_M_ECHO_RAW2, OVER_RAW, 1.15, 0, "PTY echo p50 at most 1.15 x two processes"},
    {BENCH_M_ECHO_P50, TIMES_PEER, 1.7, 0, "PTY echo p50 at least 1.7 x faster than the peer"},
    {BENCH_M_POLL_RAW2, OVER_RAW, 1.2, 0, "parked read p50 at most 1.2 x two processes"},
    {BENCH_M_READ_P50, TIMES_PEER, 1.5, 0, "parked read at least 1.5 x faster than the peer"},
    {BENCH_M_IDLE, AT_MOST, 6e6, 0, "idle memory at most 6 MB"},
    {BENCH_M_PTYS_PRIVATE, AT_MOST, 64e3, 0, "private memory of an idle process at most 64 kB"},
    {BENCH_M_STARTUP, AT_MOST, 8e-3, 0, "start-up to ready at most 8 ms"},
    {BENCH_M_SIZE, AT_MOST, 2.5e6, 0, "stripped binary at most 2.5 MB"},
    {BENCH_M_SOAK_GROWTH, AT_MOST, 1 << 20, 0, "growth after 300,000 commands at most 1 MiB"},
    {BENCH_M_CLOSED_BYTES, AT_MOST, 300, 0, "memory of an ended command at most 300 bytes"},
    {BENCH_M_BUDGET, AT_MOST, 80 << 20, 0, "memory of output at most 80 MiB for a budget of 64"},
    {BENCH_M_IDLE_10K, AT_MOST, 3 << 10, 0, "memory of an idle PTY at most 3 KiB"},
    {BENCH_M_LIVE_1000, OVER_OTHER, 1.3, BENCH_M_LIVE_10,
     "start with 1,000 live at most 1.3 x with 10"},
    {BENCH_M_CONFINED_P50, OVER_RAW, 1.08, 0, "confined start p50 at most 1.08 x unconfined"},
    {BENCH_M_CONFINED_P50, TIMES_PEER, 30, 0, "confined start at least 30 x faster than the peer"},
    {BENCH_M_FIRST_P50, AT_MOST, 15e-3, 0, "first command of a new policy at most 15 ms"},
    {BENCH_M_MANAGED_P50, OVER_RAW, 1.1, 0, "start in a managed cell at most 1.1 x restricted"},
    {BENCH_M_MANAGED_FIRST, ABOVE_RAW, 500e-6, 0, "new managed cell at most 0.5 ms more"},
    {BENCH_M_FILE_READ_1, TIMES_PEER, 3, 0, "reading 1 MiB at least 3 x the peer"},
    {BENCH_M_FILE_READ_1, OF_RAW, 0.82, 0, "reading 1 MiB at least 0.82 x raw"},
    {BENCH_M_FILE_READ_32, TIMES_PEER, 3, 0, "reading 32 MiB at least 3 x the peer"},
    {BENCH_M_FILE_READ_32, OF_RAW, 0.6, 0, "reading 32 MiB at least 0.6 x raw"},
    {BENCH_M_FILE_WRITE_1, TIMES_PEER, 3, 0, "writing 1 MiB at least 3 x the peer"},
    {BENCH_M_FILE_WRITE_1, OF_RAW, 0.6, 0, "writing 1 MiB at least 0.6 x raw"},
    {BENCH_M_FILE_WRITE_32, TIMES_PEER, 3, 0, "writing 32 MiB at least 3 x the peer"},
    {BENCH_M_FILE_WRITE_32, OF_RAW, 0.6, 0, "writing 32 MiB at least 0.6 x raw"},
    {BENCH_M_WALK, TIMES_PEER, 1, 0, "fs/walk of 10,000 files at least as fast as the peer"},
    {BENCH_M_CONFINED_READ, TIMES_PEER, 10, 0, "confined read at least 10 x faster than the peer"},
    {BENCH_M_EXEC_P50, OVER_OTHER, 1.3, BENCH_M_EXEC_RPC,
     "exec_command p50 at most 1.3 x the process RPC"},
    {BENCH_M_MCP_P50, OVER_RAW, 2, 0, "exec_command over MCP p50 at most 2 x raw"},
    {BENCH_M_POLL_CPU, AT_MOST, 5e-3, 0, "processor time of an idle poll at most 5 ms"},
    {BENCH_M_JUDGE_P50, AT_MOST, 50e-6, 0, "judging a command p50 at most 50 us"},
    {BENCH_M_NET_NAME, ABOVE_RAW, 150e-6, 0, "connect by name at most direct + 150 us"},
    {BENCH_M_NET_CONNECT, ABOVE_RAW, 200e-6, 0, "connect by CONNECT at most direct + 200 us"},
    {BENCH_M_NET_FIRST, ABOVE_OTHER, 60e-6, BENCH_M_NET_NAME,
     "first connection to a host at most 60 us more"},
    {BENCH_M_NET_ECHO, ABOVE_RAW, 30e-6, 0, "a byte through a tunnel at most direct + 30 us"},
    {BENCH_M_NET_STREAM, OF_RAW, 0.5, 0, "one stream at least 0.5 x direct"},
    {BENCH_M_NET_CPU, AT_MOST, 0.3, 0, "processor time of the proxy at most 0.3 s each GB"},
    {BENCH_M_NET_DNS, AT_MOST, 50e-6, 0, "DNS answer at most 50 us"},
    {BENCH_M_NET_RSS, AT_MOST, 40e6, 0, "proxy with 1,000 connections at most 40 MB"},
    {BENCH_M_NET_IDLE, AT_MOST, 3e6, 0, "idle proxy and resolver at most 3 MB"},
    {BENCH_M_CELLS_PRIVATE, AT_MOST, 1.5e6, 0, "private memory of a cell at most 1.5 MB"},
};

enum { LIMITS = sizeof limits / sizeof limits[0] };

void bench_report_init(struct bench_report *r)
{
    for (int m = 0; m < BENCH_M_MAX; m++)
        for (int s = 0; s < BENCH_SIDES; s++)
            r->v[m][s] = (double)NAN;
}

static const char *show(char *buf, size_t size, double v, enum unit unit)
{
    static const struct scale {
        double from;
        double by;
        const char *name;
    } scales[][4] = {
        [TIME] = {{1, 1, "s"}, {1e-3, 1e3, "ms"}, {-1e300, 1e6, "us"}, {0, 0, ""}},
        [BYTES] = {{1e6, 1e-6, "MB"}, {1e3, 1e-3, "kB"}, {-1e300, 1, "B"}, {0, 0, ""}},
        [RATE] = {{1e6, 1e-6, "M/s"}, {-1e300, 1, "/s"}, {0, 0, ""}, {0, 0, ""}},
        [FLOW] = {{-1e300, 1.0 / 1048576, "MiB/s"}, {0, 0, ""}, {0, 0, ""}, {0, 0, ""}},
    };
    const struct scale *s = scales[unit];

    if (isnan(v)) {
        (void)snprintf(buf, size, "-");
        return buf;
    }
    while (v < s->from)
        s++;
    v *= s->by;

    const double a = fabs(v);
    const int digits = a >= 1000 ? 0 : a >= 100 ? 1 : a >= 10 ? 2 : 3;

    (void)snprintf(buf, size, "%.*f %s", digits, v, s->name);
    return buf;
}

/* How many times better ours is than the peer, whichever way better lies. */
static double times_peer(const struct bench_report *r, enum bench_metric m)
{
    const double ours = r->v[m][BENCH_OURS];
    const double peer = r->v[m][BENCH_PEER];

    return metrics[m].more_is_better ? ours / peer : peer / ours;
}

static double over_raw(const struct bench_report *r, enum bench_metric m)
{
    return r->v[m][BENCH_OURS] / r->v[m][BENCH_RAW];
}

static void cell(FILE *to, const char *text)
{
    (void)fprintf(to, " %13s", text);
}

static void ratio(FILE *to, double v)
{
    if (isfinite(v))
        (void)fprintf(to, " %9.2f", v);
    else
        (void)fprintf(to, " %9s", "-");
}

static double judge(const struct bench_report *r, const struct limit *l, bool *ret_ok)
{
    double v = (double)NAN;

    switch (l->kind) {
    case OVER_RAW:
    case OF_RAW:
        v = over_raw(r, l->metric);
        break;
    case TIMES_PEER:
        v = times_peer(r, l->metric);
        break;
    case AT_MOST:
        v = r->v[l->metric][BENCH_OURS];
        break;
    case OVER_OTHER:
        v = r->v[l->metric][BENCH_OURS] / r->v[l->other][BENCH_OURS];
        break;
    case ABOVE_RAW:
        v = r->v[l->metric][BENCH_OURS] - r->v[l->metric][BENCH_RAW];
        break;
    case ABOVE_OTHER:
        v = r->v[l->metric][BENCH_OURS] - r->v[l->other][BENCH_OURS];
        break;
    }
    if (!isfinite(v))
        v = (double)NAN;
    *ret_ok = l->kind == OF_RAW || l->kind == TIMES_PEER ? v >= l->bound : v <= l->bound;
    return v;
}

/* What the metric has to reach by itself or beside raw, and whether it does. */
static void goal(FILE *to, const struct bench_report *r, enum bench_metric m)
{
    for (int i = 0; i < LIMITS; i++) {
        const struct limit *l = &limits[i];
        const bool is_ratio = l->kind == OVER_RAW || l->kind == OF_RAW || l->kind == OVER_OTHER;
        char bound[64];
        bool is_ok;

        if (l->metric != m || l->kind == TIMES_PEER || isnan(judge(r, l, &is_ok)))
            continue;
        if (is_ratio)
            (void)snprintf(bound, sizeof bound, "%.2f x", l->bound);
        else
            (void)show(bound, sizeof bound, l->bound, metrics[m].unit);
        (void)fprintf(to, "  %s %s%s: %s", l->kind == OF_RAW ? ">=" : "<=",
                      l->kind == ABOVE_RAW || l->kind == ABOVE_OTHER ? "+" : "", bound,
                      is_ok ? "met" : "NOT met");
    }
}

void bench_report_table(const struct bench_report *r, bool has_ours, bool has_peer, FILE *to)
{
    (void)fprintf(to, "%-38s", "");
    if (has_ours)
        cell(to, "ours");
    cell(to, "raw limit");
    if (has_ours)
        (void)fprintf(to, " %9s", "ours/raw");
    if (has_peer)
        cell(to, "peer");
    if (has_peer && has_ours)
        (void)fprintf(to, " %9s", "x peer");
    (void)fprintf(to, "%s\n", has_ours ? "  goal" : "");

    for (int m = 0; m < BENCH_M_MAX; m++) {
        const double *v = r->v[m];
        char buf[64];

        if (isnan(v[BENCH_OURS]) && isnan(v[BENCH_PEER]) && isnan(v[BENCH_RAW]))
            continue;
        (void)fprintf(to, "%-38s", metrics[m].text);
        if (has_ours)
            cell(to, show(buf, sizeof buf, v[BENCH_OURS], metrics[m].unit));
        cell(to, show(buf, sizeof buf, v[BENCH_RAW], metrics[m].unit));
        if (has_ours)
            ratio(to, over_raw(r, (enum bench_metric)m));
        if (has_peer)
            cell(to, show(buf, sizeof buf, v[BENCH_PEER], metrics[m].unit));
        if (has_peer && has_ours)
            ratio(to, times_peer(r, (enum bench_metric)m));
        if (has_ours)
            goal(to, r, (enum bench_metric)m);
        (void)fputc('\n', to);
    }
}

static const char *verdict(double v, bool is_ok)
{
    return isnan(v) ? "-" : is_ok ? "OK" : "MISS";
}

int bench_report_checks(const struct bench_report *r, bool has_peer, bool is_whole, FILE *to)
{
    int missed = 0;

    for (int i = 0; i < LIMITS; i++) {
        const struct limit *l = &limits[i];
        char buf[64];
        bool is_ok;
        const double v = judge(r, l, &is_ok);

        if ((l->kind == TIMES_PEER && !has_peer) || (isnan(v) && !is_whole))
            continue;
        missed += !isnan(v) && !is_ok;
        if (l->kind == AT_MOST || l->kind == ABOVE_RAW || l->kind == ABOVE_OTHER)
            (void)show(buf, sizeof buf, v, metrics[l->metric].unit);
        else
            (void)snprintf(buf, sizeof buf, "%.2f x", v);
        (void)fprintf(to, "%-5s %-56s %s\n", verdict(v, is_ok), l->text,
                      isnan(v) ? "not measured" : buf);
    }
    return missed;
}

static void json_number(FILE *to, const char *name, double v)
{
    if (isfinite(v))
        (void)fprintf(to, ",\"%s\":%.9g", name, v);
    else
        (void)fprintf(to, ",\"%s\":null", name);
}

int bench_report_json(const struct bench_report *r, FILE *to)
{
    static const char *const units[] = {
        [TIME] = "s", [BYTES] = "B", [RATE] = "1/s", [FLOW] = "B/s"};
    int missed = 0;

    (void)fprintf(to, "{\"metrics\":[");
    for (int m = 0; m < BENCH_M_MAX; m++) {
        (void)fprintf(to, "%s\n{\"name\":\"%s\",\"unit\":\"%s\",\"better\":\"%s\"",
                      m == 0 ? "" : ",", metrics[m].json, units[metrics[m].unit],
                      metrics[m].more_is_better ? "more" : "less");
        json_number(to, "ours", r->v[m][BENCH_OURS]);
        json_number(to, "raw", r->v[m][BENCH_RAW]);
        json_number(to, "peer", r->v[m][BENCH_PEER]);
        json_number(to, "over_raw", over_raw(r, (enum bench_metric)m));
        json_number(to, "times_peer", times_peer(r, (enum bench_metric)m));
        (void)fputc('}', to);
    }
    (void)fprintf(to, "],\n\"limits\":[");
    for (int i = 0; i < LIMITS; i++) {
        bool is_ok;
        const double v = judge(r, &limits[i], &is_ok);

        missed += !isnan(v) && !is_ok;
        (void)fprintf(to, "%s\n{\"limit\":\"%s\",\"ok\":%s", i == 0 ? "" : ",", limits[i].text,
                      isnan(v) ? "null"
                      : is_ok  ? "true"
                               : "false");
        json_number(to, "bound", limits[i].bound);
        json_number(to, "value", v);
        (void)fputc('}', to);
    }
    (void)fprintf(to, "]}\n");
    return missed;
}
