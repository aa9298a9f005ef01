/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/socks.h"

#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#define VERSION   5
#define NO_METHOD 0 /* no authentication */
#define CONNECT   1
#define HEAD      4 /* version, command, a zero, type of address */

enum address { IPV4 = 1, NAME = 3, IPV6 = 4 };

ptrdiff_t sp_socks_read_greeting(struct sp_str bytes, bool *ret_accepts)
{
    const uint8_t *p = (const uint8_t *)bytes.p;

    if (bytes.n > 0 && p[0] != VERSION)
        return -1;
    if (bytes.n < 2 || bytes.n - 2 < p[1])
        return 0;
    *ret_accepts = memchr(p + 2, NO_METHOD, p[1]) != NULL;
    return 2 + (ptrdiff_t)p[1];
}

/* The length of a whole request; 0: more bytes are needed to tell; -1: malformed. */
static ptrdiff_t request_length(const uint8_t *p, size_t n)
{
    if ((n > 0 && p[0] != VERSION) || (n > 2 && p[2] != 0))
        return -1;
    if (n < HEAD)
        return 0;
    if (p[3] == IPV4)
        return HEAD + 4 + 2;
    if (p[3] == IPV6)
        return HEAD + 16 + 2;
    if (p[3] != NAME)
        return HEAD; /* the length of an unknown address is unknown, too */
    if (n == HEAD)
        return 0;
    return p[HEAD] == 0 ? -1 : HEAD + 1 + (ptrdiff_t)p[HEAD] + 2;
}

/* false: a name with a NUL in it. */
static bool read_host(const uint8_t *p, struct sp_socks_request *ret)
{
    if (p[3] == NAME) {
        const size_t n = p[HEAD];

        if (memchr(p + HEAD + 1, 0, n) != NULL)
            return false;
        memcpy(ret->host, p + HEAD + 1, n);
        ret->host[n] = 0;
        ret->host_len = n;
        return true;
    }
    const char *text =
        inet_ntop(p[3] == IPV4 ? AF_INET : AF_INET6, p + HEAD, ret->host, sizeof ret->host);
    assert(text != NULL); /* both families are known and fit */
    ret->host_len = strlen(text);
    return true;
}

ptrdiff_t sp_socks_read_request(struct sp_str bytes, struct sp_socks_request *ret,
                                enum sp_socks_reply *ret_reply)
{
    const uint8_t *p = (const uint8_t *)bytes.p;
    const ptrdiff_t length = request_length(p, bytes.n);
    struct sp_socks_request request = {0};

    if (length <= 0)
        return length;
    if (length == HEAD) {
        *ret_reply = SP_SOCKS_NO_TYPE;
        return length;
    }
    if (bytes.n < (size_t)length)
        return 0;
    if (!read_host(p, &request))
        return -1;
    request.port = (uint16_t)(p[length - 2] << 8 | p[length - 1]);
    *ret_reply = p[1] != CONNECT     ? SP_SOCKS_NO_COMMAND
                 : request.port == 0 ? SP_SOCKS_FAILED
                                     : SP_SOCKS_DONE;
    *ret = request;
    return length;
}

void sp_socks_write_reply(enum sp_socks_reply reply, uint8_t out[SP_SOCKS_REPLY_BYTES])
{
    /* The bound address is 0.0.0.0:0: the real one would tell a command about the host's network.
     */
    memset(out, 0, SP_SOCKS_REPLY_BYTES);
    out[0] = VERSION;
    out[1] = (uint8_t)reply;
    out[3] = IPV4;
}
