/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message: what keeper and front say to each other, over a SOCK_SEQPACKET pair.
 *
 * Each message has 64 bytes and carries up to four descriptors. Ops are only ever added: a front
 * may be newer or older than its keeper.
 */
#ifndef SP_KEEPER_MESSAGE_H
#define SP_KEEPER_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#define SP_KEEPER_VERSION 1
#define SP_KEEPER_FDS     4   /* descriptors of a message */
#define SP_KEEPER_KEYS    160 /* that a keeper holds */
#define SP_KEEPER_TEXT    32  /* bytes of text; no NUL is needed behind them */

enum sp_keeper_op {
    /* from the front */
    SP_KEEPER_HELLO = 1, /* the first message; text: the front's version */
    SP_KEEPER_KEEP,      /* key and descriptors; replaces what the key had */
    SP_KEEPER_DROP,      /* key */
    SP_KEEPER_READY,     /* it serves */
    SP_KEEPER_ENDING,    /* the server ends with this front; a: its exit status */
    /* to the front */
    SP_KEEPER_HELD, /* key and descriptors of an earlier front, each before GO */
    SP_KEEPER_GO,   /* key: generation; a: role << 32 | wait status of the last front; b: our pid */
    SP_KEEPER_OP_MAX
};

struct sp_keeper_message {
    uint16_t version, op;
    uint32_t count; /* of the descriptors */
    uint64_t key, a, b;
    char text[SP_KEEPER_TEXT];
};
_Static_assert(sizeof(struct sp_keeper_message) == 64, "no padding");

/* Sets the version, and sends. 0, or minus errno (-EAGAIN: full, without can_wait). */
int sp_keeper_send(int socket, bool can_wait, struct sp_keeper_message m, const int *fds);
/* 1: *ret and its descriptors, which the caller owns; 0: none now; minus errno: the other side is
 * gone (-EPIPE) or does not answer. Messages of another form are dropped. */
int sp_keeper_recv(int socket, bool can_wait, struct sp_keeper_message *ret,
                   int fds[SP_KEEPER_FDS]);
void sp_keeper_close_fds(const int *fds, unsigned count);

#endif
