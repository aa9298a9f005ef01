/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: files, by the megabyte and by the thousand.
 *
 * Requests are made before they are timed; of the answers the first of each side is looked at whole
 * and the others by their length. Rates are in bytes of the file, not of the wire.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer.h"
#include "base/auto.h"
#include "base/base64.h"
#include "cases.h"
#include "pattern.h"

enum {
    MIB = 1 << 20,
    LARGE = 32 << 20,
    WARM = 20,
    WINDOW = 16,
    DIRECTORIES = 100,
    FILES = 100, /* in each */
    PARAMS = 4096,
};

/* What a side asks again and again. */
struct errand {
    struct bench_ready ready;
    size_t bytes;      /* of the file that is read or written */
    bool is_write;     /* else the answer has the file's bytes */
    bool may_fail;     /* what is asked for is not there */
    size_t answer_len; /* of the first: all are alike. 0: there was none yet */
    char path[512];
};

static struct errand errands[BENCH_SIDES];

static int save(const char *path, const char *bytes, size_t n, struct sp_err *e)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    return fd < 0 || write(fd, bytes, n) != (ssize_t)n
               ? sp_fail(e, SP_E_SYSTEM, errno, "write %s", path)
               : 0;
}

static char *pattern_of(size_t n)
{
    char *p = malloc(n);

    for (size_t at = 0; p != NULL && at < n; at += BENCH_BLOCK)
        memcpy(p + at, bench_pattern_at(at), n - at < BENCH_BLOCK ? n - at : BENCH_BLOCK);
    return p;
}

static bool file_holds(const char *path, size_t bytes)
{
    char block[BENCH_BLOCK];
    size_t at = 0;
    ssize_t n = 0;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

    while (fd >= 0 && (n = read(fd, block, sizeof block)) > 0) {
        if (memcmp(block, bench_pattern_at(at), (size_t)n) != 0)
            return false;
        at += (size_t)n;
    }
    return n == 0 && at == bytes;
}

/* ---- one request and its answer ---- */

static int check(struct errand *w, const struct bench_answer *a, struct sp_err *e)
{
    if (a->is_error && !w->may_fail)
        return sp_fail(e, SP_E_FAILED, 0, "the server refused: %.200s", a->head);
    if (a->id != w->ready.id)
        return sp_fail(e, SP_E_FAILED, 0, "an answer to something else: %.100s", a->head);
    if (w->answer_len == 0)
        w->answer_len = a->len;
    if (a->len != w->answer_len)
        return sp_fail(e, SP_E_FAILED, 0, "an answer of %zu bytes where %zu are right", a->len,
                       w->answer_len);
    return 0;
}

static int ask(struct bench_seat *s, double *ret_seconds, struct sp_err *e)
{
    struct errand *w = s->raw;
    struct bench_answer a = {0};
    const uint64_t begin = bench_now();
    int r = bench_ready_send(s->client, &w->ready, e);

    if (r == 0)
        r = bench_answer_skip(s->client, &a, e);
    *ret_seconds = bench_seconds_since(begin);
    return r < 0 ? r : check(w, &a, e);
}

/* The first time: every byte of the file is where it should be. */
static int ask_and_look(struct bench_seat *s, struct sp_err *e)
{
    const struct errand *w = s->raw;
    struct bench_message m = {.kind = BENCH_OTHER};
    size_t n = 0;
    int r = bench_ready_send(s->client, &w->ready, e);

    if (r == 0)
        r = bench_client_next(s->client, &m, e);
    if (r < 0)
        return r;
    if (w->is_write ? !file_holds(w->path, w->bytes)
                    : !bench_pattern_holds(0, m.chunk, true, &n) || n != w->bytes)
        return sp_fail(e, SP_E_FAILED, 0, "wrong bytes in %s", w->path);
    return 0;
}

static void drop_errands(void)
{
    for (int i = 0; i < BENCH_SIDES; i++)
        bench_ready_done(&errands[i].ready);
}

/* ---- megabytes ---- */

static int turn_bytes(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const struct errand *w = s->raw;
    double took = 1;
    int r = 0;

    if (w->answer_len == 0) {
        r = ask_and_look(s, e);
        return r < 0 ? r : ask(s, &took, e);
    }
    const uint64_t end = bench_now() + b->turn_ns;
    do {
        r = ask(s, &took, e);
        if (r == 0)
            bench_samples_add(&s->samples, (double)w->bytes / took);
    } while (r == 0 && bench_now() < end);
    return r;
}

static int prepare_bytes(struct bench *b, struct bench_seat *s, size_t bytes, bool is_write,
                         const char *text, struct sp_err *e)
{
    struct errand *w = &errands[s->side];
    char params[PARAMS];

    bench_ready_done(&w->ready);
    *w = (struct errand){.bytes = bytes, .is_write = is_write};
    s->raw = w;
    (void)snprintf(w->path, sizeof w->path, "%s/%s-%d", b->memory, is_write ? "written" : "read",
                   (int)s->side);
    (void)snprintf(params, sizeof params, "\"path\":\"file://%s\"", w->path);
    const int r = is_write ? 0 : save(w->path, text, bytes, e);
    return r < 0 ? r
                 : bench_ready_make(s->client, is_write ? "fs/writeFile" : "fs/readFile", params,
                                    (struct sp_str){is_write ? text : NULL, is_write ? bytes : 0},
                                    &w->ready, e);
}

static void measure_bytes(struct bench *b, struct bench_seat seats[BENCH_SIDES], size_t bytes,
                          bool is_write, enum bench_metric m)
{
    char *text = pattern_of(bytes);

    for (int i = 0; i < BENCH_SIDES; i++) {
        struct sp_err e = {0};

        bench_samples_done(&seats[i].samples);
        if (seats[i].is_on && text != NULL &&
            prepare_bytes(b, &seats[i], bytes, is_write, text, &e) < 0)
            bench_seat_drop(b, &seats[i], &e);
    }
    free(text);
    bench_take_turns(b, seats, 1 + b->rounds, turn_bytes);
    bench_seats_report(b, seats, m);
    for (int i = 0; i < BENCH_SIDES; i++)
        (void)unlink(errands[i].path);
}

void bench_case_files(struct bench *b)
{
    const struct bench_case_options o = {
        .ack = BENCH_ACK_LATER, .raw_helper = "files", .raw_has_client = true};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    measure_bytes(b, seats, MIB, false, BENCH_M_FILE_READ_1);
    measure_bytes(b, seats, LARGE, false, BENCH_M_FILE_READ_32);
    measure_bytes(b, seats, MIB, true, BENCH_M_FILE_WRITE_1);
    measure_bytes(b, seats, LARGE, true, BENCH_M_FILE_WRITE_32);
    bench_seats_close(seats);
    drop_errands();
}

/* ---- times ---- */

static int turn_times(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const uint64_t end = bench_now() + b->turn_ns;
    double took = 0;
    int r = 0;

    for (int i = 0; r == 0 && s->samples.n == 0 && i < WARM && bench_now() < end; i++)
        r = ask(s, &took, e);
    do {
        r = r < 0 ? r : ask(s, &took, e);
        if (r == 0)
            bench_samples_add(&s->samples, took);
    } while (r == 0 && bench_now() < end);
    return r;
}

static void prepare_all(struct bench *b, struct bench_seat seats[BENCH_SIDES], const char *method,
                        const char *params, bool may_fail)
{
    const struct sp_str none = {0};

    for (int i = 0; i < BENCH_SIDES; i++) {
        struct errand *w = &errands[i];
        struct sp_err e = {0};

        *w = (struct errand){.may_fail = may_fail};
        seats[i].raw = w;
        if (seats[i].is_on &&
            bench_ready_make(seats[i].client, method, params, none, &w->ready, &e) < 0)
            bench_seat_drop(b, &seats[i], &e);
    }
}

/* ---- many names ---- */

static int make_tree(const struct bench *b, struct sp_err *e)
{
    char path[600];

    for (int i = -1; i < DIRECTORIES; i++) {
        const int n = i < 0 ? snprintf(path, sizeof path, "%s/tree", b->scratch)
                            : snprintf(path, sizeof path, "%s/tree/d%d", b->scratch, i);

        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return sp_fail(e, SP_E_SYSTEM, errno, "make %s", path);
        for (int k = 0; i >= 0 && k < FILES; k++) {
            (void)snprintf(path + n, sizeof path - (size_t)n, "/file%d.txt", k);
            const int r = save(path, "", 0, e);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* Every name is there: a server that leaves some out is fast. */
static int look_at_walk(struct bench_seat *s, struct sp_err *e)
{
    const struct errand *w = s->raw;
    struct bench_message m = {.kind = BENCH_OTHER};
    int r = bench_ready_send(s->client, &w->ready, e);

    if (r == 0)
        r = bench_client_next(s->client, &m, e);
    if (r == 0 && m.files != (uint64_t)DIRECTORIES * FILES)
        r = sp_fail(e, SP_E_FAILED, 0, "%llu files in the answer, not %d",
                    (unsigned long long)m.files, DIRECTORIES * FILES);
    return r;
}

static int turn_walk(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const int r = s->samples.n == 0 ? look_at_walk(s, e) : 0;

    return r < 0 ? r : turn_times(b, s, e);
}

void bench_case_walk(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_LATER, .no_raw = true};
    struct bench_seat seats[BENCH_SIDES];
    struct sp_err e = {0};
    char params[PARAMS];

    bench_seats_open(b, seats, &o);
    if (make_tree(b, &e) < 0)
        for (int i = 0; i < BENCH_SIDES; i++)
            bench_seat_drop(b, &seats[i], &e);
    (void)snprintf(params, sizeof params,
                   "\"path\":\"file://%s/tree\",\"options\":{\"maxDepth\":8,"
                   "\"maxDirectories\":1000,\"maxEntries\":50000,"
                   "\"followDirectorySymlinks\":false}",
                   b->scratch);
    prepare_all(b, seats, "fs/walk", params, false);
    bench_take_turns(b, seats, b->rounds, turn_walk);
    bench_seats_report(b, seats, BENCH_M_WALK);
    bench_seats_close(seats);
    drop_errands();
}

/* ---- under a sandbox ---- */

/* A policy that closes something to reading: all but the system's own and one directory. */
static void confined_params(const struct bench *b, char *out, size_t size)
{
    (void)snprintf(
        out, size,
        "\"path\":\"file://%s/closed/small\",\"sandbox\":{\"permissions\":{\"type\":\"managed\","
        "\"network\":\"restricted\",\"file_system\":{\"type\":\"restricted\",\"entries\":["
        "{\"path\":{\"type\":\"special\",\"value\":{\"kind\":\"minimal\"}},\"access\":\"read\"},"
        "{\"path\":{\"type\":\"path\",\"path\":\"file://%s/closed\"},\"access\":\"read\"}]}},"
        "\"cwd\":\"file://%s/closed\",\"workspaceRoots\":[\"file://%s/closed\"],"
        "\"windowsSandboxLevel\":\"disabled\"}",
        b->scratch, b->scratch, b->scratch, b->scratch);
}

static int make_closed(const struct bench *b, struct sp_err *e)
{
    char path[600];

    (void)snprintf(path, sizeof path, "%s/closed", b->scratch);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "make %s", path);
    (void)snprintf(path, sizeof path, "%s/closed/small", b->scratch);
    return save(path, bench_pattern_at(0), 1000, e);
}

/* The raw column is a second server of ours, which reads the same file without a sandbox. */
void bench_case_confined_read(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .no_raw = true};
    const struct sp_str none = {0};
    struct bench_seat seats[BENCH_SIDES];
    struct sp_err e = {0};
    char params[PARAMS];

    bench_seats_open(b, seats, &o);
    if (make_closed(b, &e) < 0)
        for (int i = 0; i < BENCH_SIDES; i++)
            bench_seat_drop(b, &seats[i], &e);
    confined_params(b, params, sizeof params);
    prepare_all(b, seats, "fs/readFile", params, false);
    if (seats[BENCH_OURS].is_on) {
        int r = bench_seat_open(b, &seats[BENCH_RAW], BENCH_OURS, &o, &e);

        (void)snprintf(params, sizeof params, "\"path\":\"file://%s/closed/small\"", b->scratch);
        seats[BENCH_RAW].side = BENCH_RAW;
        seats[BENCH_RAW].raw = &errands[BENCH_RAW];
        if (r == 0)
            r = bench_ready_make(seats[BENCH_RAW].client, "fs/readFile", params, none,
                                 &errands[BENCH_RAW].ready, &e);
        if (r < 0)
            bench_seat_drop(b, &seats[BENCH_RAW], &e);
    }
    bench_take_turns(b, seats, b->rounds, turn_times);
    bench_seats_report(b, seats, BENCH_M_CONFINED_READ);
    bench_seats_close(seats);
    drop_errands();
}

/* ---- what is not there ---- */

static int turn_many(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    struct errand *w = s->raw;
    const uint64_t begin = bench_now();
    uint64_t done = 0;
    int under_way = 0;
    bool is_over = false;
    int r = 0;

    while (r == 0 && (under_way > 0 || !is_over)) {
        struct bench_answer a = {0};

        if (under_way < WINDOW && !is_over) {
            r = bench_ready_send(s->client, &w->ready, e);
            under_way++;
            continue;
        }
        r = bench_answer_skip(s->client, &a, e);
        if (r == 0)
            r = check(w, &a, e);
        under_way--;
        done++;
        is_over = is_over || bench_now() - begin >= b->turn_ns;
    }
    if (r == 0)
        bench_samples_add(&s->samples, (double)done / bench_seconds_since(begin));
    return r;
}

void bench_case_stat(struct bench *b)
{
    const struct bench_case_options o = {
        .ack = BENCH_ACK_NOW, .raw_helper = "files", .raw_has_client = true};
    struct bench_seat seats[BENCH_SIDES];
    char params[PARAMS];

    bench_seats_open(b, seats, &o);
    (void)snprintf(params, sizeof params, "\"path\":\"file://%s/missing\"", b->scratch);
    prepare_all(b, seats, "fs/getMetadata", params, true);
    bench_take_turns(b, seats, b->rounds, turn_times);
    bench_seats_report(b, seats, BENCH_M_STAT_P50);
    for (int i = 0; i < BENCH_SIDES; i++)
        bench_samples_done(&seats[i].samples);
    bench_take_turns(b, seats, b->rounds, turn_many);
    bench_seats_report(b, seats, BENCH_M_STAT_RATE);
    bench_seats_close(seats);
    drop_errands();
}
