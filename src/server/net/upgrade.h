/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upgrade: the client's side of the WebSocket handshake: writes the request, parses the answer. No
 * I/O.
 */
#ifndef SP_SERVER_NET_UPGRADE_H
#define SP_SERVER_NET_UPGRADE_H

#include "base/buf.h"
#include "server/net/frames.h"

#define SP_UPGRADE_KEY_LEN 24

struct sp_upgrade {
    char host[264];               /* of the Host header, with its port */
    char path[1024];              /* with its query; "": / */
    const char *token;            /* a bearer; NULL: none. Borrowed for the call */
    char key[SP_UPGRADE_KEY_LEN]; /* random; made by sp_upgrade_write */
};

/* Makes a key and appends the request. false: no memory, or no random bytes. */
bool sp_upgrade_write(struct sp_upgrade *u, struct sp_buf *out);

enum sp_upgrade_result {
    SP_UPGRADE_MORE,
    SP_UPGRADE_DONE,
    SP_UPGRADE_REFUSED,
    SP_UPGRADE_ENDED, /* the connection ended before a complete answer */
};

/*
 * `bytes` are all bytes received so far; is_end: no more follow. DONE: the answer has *ret_len
 * bytes. REFUSED: `why` has the reason, with the server's text made printable.
 */
enum sp_upgrade_result sp_upgrade_read(const struct sp_upgrade *u, struct sp_str bytes, bool is_end,
                                       size_t *ret_len, char *why, size_t size);

#endif
