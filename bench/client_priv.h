/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_priv: the connection itself, for the client's parts.
 */
#ifndef BENCH_CLIENT_PRIV_H
#define BENCH_CLIENT_PRIV_H

#include <stddef.h>

#include "client.h"

enum { BENCH_CLIENT_OUT = 16 << 10, BENCH_CLIENT_HEAD = 14 };

struct bench_client {
    int fd;
    bool is_tcp;
    enum bench_ack ack;
    uint64_t deadline;
    int64_t last_id;
    uint64_t last_write;
    char *in; /* [from, to) has been received and not yet been looked at */
    size_t cap;
    size_t from;
    size_t to;
    char out[BENCH_CLIENT_OUT];
};

struct bench_frame {
    int opcode;
    bool is_last;
    size_t head;
    size_t len;
};

int bench_client_send_all(struct bench_client *c, const char *p, size_t n, struct sp_err *e);

/* Waits for bytes and adds them; may move those that are there. */
int bench_client_receive(struct bench_client *c, struct sp_err *e);

/* The head of the frame at this place of the buffer; false if it is not there yet. */
bool bench_client_look(const struct bench_client *c, size_t at, struct bench_frame *ret);

#endif
