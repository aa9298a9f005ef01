/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: an exec-server's client that is never the bottleneck.
 *
 * Blocking calls on one socket, frames looked at in the receive buffer, one send per request. What
 * a request answers comes through bench_client_next like everything else; a process is named by a
 * number of the caller's. Every call ends at the client's deadline at the latest.
 */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "message.h"

enum bench_ack {
    BENCH_ACK_NOW,   /* acknowledges what it receives at once (TCP_QUICKACK) */
    BENCH_ACK_LATER, /* leaves it to the kernel, as ordinary clients do */
};

struct bench_client;

/* Connects (ws://IP:PORT on loopback, unix:///PATH), upgrades, initializes. */
int bench_client_open(const char *url, enum bench_ack ack, struct bench_client **ret,
                      struct sp_err *e);
/* The same, asking for receipts. */
int bench_client_open_for_receipts(const char *url, enum bench_ack ack, struct bench_client **ret,
                                   struct sp_err *e);
void bench_client_free(struct bench_client *c);

/* From now until then; one wait in between lasts at most ten seconds. */
void bench_client_deadline(struct bench_client *c, uint64_t timeout_ns);

struct bench_command {
    const char *const *argv; /* ends with NULL */
    bool is_tty;
    bool has_stdin;
    const char *sandbox;       /* the object as JSON; NULL: none */
    const char *network_proxy; /* the same, of a managed network */
};

int bench_client_start(struct bench_client *c, uint64_t proc, const struct bench_command *cmd,
                       int64_t *ret_id, struct sp_err *e);
int bench_client_write(struct bench_client *c, uint64_t proc, const char *base64, int64_t *ret_id,
                       struct sp_err *e);
int bench_client_read(struct bench_client *c, uint64_t proc, uint64_t after_seq, unsigned wait_ms,
                      int64_t *ret_id, struct sp_err *e);
int bench_client_terminate(struct bench_client *c, uint64_t proc, int64_t *ret_id,
                           struct sp_err *e);
int bench_client_status(struct bench_client *c, int64_t *ret_id, struct sp_err *e);

/* The next message. Its views hold until the next call. An error from the server is an error. */
int bench_client_next(struct bench_client *c, struct bench_message *ret, struct sp_err *e);

#endif
