/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upgrade: how a client turns an HTTP connection into a WebSocket: the request, and the answer to
 * it as it arrives. It does no I/O.
 */
#ifndef SP_SERVER_NET_UPGRADE_H
#define SP_SERVER_NET_UPGRADE_H

#include "base/buf.h"
#include "server/net/ws.h"

#define SP_UPGRADE_KEY_LEN 24

struct sp_upgrade {
    char host[264];               /* of the Host header, with its port */
    char path[1024];              /* with its query; "": / */
    const char *token;            /* a bearer; NULL: none. Borrowed for the call */
    char key[SP_UPGRADE_KEY_LEN]; /* random; made by sp_upgrade_write */
};

/* Makes a key and appends the request. false: no room, or no random bytes. */
bool sp_upgrade_write(struct sp_upgrade *u, struct sp_buf *out);

enum sp_upgrade_result {
    SP_UPGRADE_MORE,
    SP_UPGRADE_DONE,
    SP_UPGRADE_REFUSED,
    SP_UPGRADE_ENDED, /* there is no whole answer, and will be none */
};

/*
 * `bytes` are all that have arrived. is_end: no more will. Done: *ret_len bytes were the answer.
 * Refused: `why` says it, with what the server said, made printable.
 */
enum sp_upgrade_result sp_upgrade_read(const struct sp_upgrade *u, struct sp_str bytes, bool is_end,
                                       size_t *ret_len, char *why, size_t size);

#endif
