/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer: requests that are made before they are timed, and answers that are only received.
 *
 * For messages of many megabytes: a request's frame is sent as often as wanted without being made
 * again, and of an answer nothing is kept but its length and its first bytes. What comes is thrown
 * away in a buffer that stays in the cache, so that the client costs little more than recv(2).
 */
#ifndef BENCH_ANSWER_H
#define BENCH_ANSWER_H

#include "base/str.h"
#include "client.h"

struct bench_ready {
    char *frame; /* masked */
    size_t len;
    int64_t id;
};

/*
 * {"id":…,"method":METHOD,"params":{PARAMS}}, and "dataBase64" with these bytes among the params if
 * there are any (data.p is not NULL).
 */
int bench_ready_make(struct bench_client *c, const char *method, const char *params,
                     struct sp_str data, struct bench_ready *ret, struct sp_err *e);
void bench_ready_done(struct bench_ready *r);
int bench_ready_send(struct bench_client *c, const struct bench_ready *r, struct sp_err *e);

struct bench_answer {
    int64_t id; /* -1: it is not among the first bytes */
    bool is_error;
    size_t len;     /* of the whole message */
    char head[256]; /* its first bytes, and a NUL */
};

/* The next message. */
int bench_answer_skip(struct bench_client *c, struct bench_answer *ret, struct sp_err *e);

#endif
