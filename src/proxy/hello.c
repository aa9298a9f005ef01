/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/hello.h"

#include <stdint.h>
#include <string.h>

#define FIRST_TYPE   20 /* of records */
#define HANDSHAKE    22
#define LAST_TYPE    24
#define MAJOR        3
#define RECORD_HEAD  5
#define RECORD_MAX   (16U << 10)
#define CLIENT_HELLO 1
#define HELLO_HEAD   4
#define SERVER_NAME  0 /* of extensions */
#define HOST_NAME    0 /* of server names */
#define NAME_BYTES   255U

/* ---- bytes ---- */

struct span {
    const uint8_t *p;
    size_t n;
};

/* Cuts the first n bytes off. false: there are fewer. */
static bool cut(struct span *from, size_t n, struct span *ret)
{
    if (from->n < n)
        return false;
    *ret = (struct span){from->p, n};
    *from = (struct span){from->p + n, from->n - n};
    return true;
}

static bool cut_number(struct span *from, size_t width, size_t *ret)
{
    struct span bytes;

    if (!cut(from, width, &bytes))
        return false;
    *ret = 0;
    for (size_t i = 0; i < width; i++)
        *ret = *ret << 8 | bytes.p[i];
    return true;
}

/* A vector of TLS: its length in `width` bytes, then its bytes. */
static bool cut_vector(struct span *from, size_t width, struct span *ret)
{
    size_t n = 0;

    return cut_number(from, width, &n) && cut(from, n, ret);
}

/* ---- the message ---- */

/* The list of a server_name extension. Exactly one host name: with two of them, two readers may
 * take different ones. */
static enum sp_hello read_names(struct span extension, char name[256], size_t *ret_len)
{
    struct span list;
    struct span host;
    size_t type = 0;

    if (!cut_vector(&extension, 2, &list) || extension.n != 0 || !cut_number(&list, 1, &type) ||
        type != HOST_NAME || !cut_vector(&list, 2, &host) || list.n != 0)
        return SP_HELLO_BROKEN;
    if (host.n == 0 || host.n > NAME_BYTES || memchr(host.p, 0, host.n) != NULL)
        return SP_HELLO_BROKEN;
    memcpy(name, host.p, host.n);
    name[host.n] = 0;
    *ret_len = host.n;
    return SP_HELLO_NAMED;
}

static enum sp_hello read_extensions(struct span all, char name[256], size_t *ret_len)
{
    enum sp_hello result = SP_HELLO_NO_NAME;

    while (all.n != 0) {
        struct span extension;
        size_t type = 0;

        if (!cut_number(&all, 2, &type) || !cut_vector(&all, 2, &extension))
            return SP_HELLO_BROKEN;
        if (type != SERVER_NAME)
            continue;
        if (result != SP_HELLO_NO_NAME)
            return SP_HELLO_BROKEN;
        result = read_names(extension, name, ret_len);
        if (result != SP_HELLO_NAMED)
            return result;
    }
    return result;
}

static enum sp_hello read_message(struct span hello, char name[256], size_t *ret_len)
{
    struct span version_random;
    struct span session;
    struct span ciphers;
    struct span compressions;
    struct span extensions;

    if (!cut(&hello, 2 + 32, &version_random) || !cut_vector(&hello, 1, &session) ||
        session.n > 32 || !cut_vector(&hello, 2, &ciphers) || ciphers.n < 2 || ciphers.n % 2 != 0 ||
        !cut_vector(&hello, 1, &compressions) || compressions.n == 0)
        return SP_HELLO_BROKEN;
    if (hello.n == 0) /* TLS 1.2 and older may leave the extensions out */
        return SP_HELLO_NO_NAME;
    if (!cut_vector(&hello, 2, &extensions) || hello.n != 0)
        return SP_HELLO_BROKEN;
    return read_extensions(extensions, name, ret_len);
}

/* ---- the records ---- */

/* What the bytes of the message so far say. *ret_size: of the whole message, once PARTIAL is due to
 * its missing end alone; 0: not known yet. */
static enum sp_hello check_head(struct span message, size_t *ret_size)
{
    size_t type = 0;
    size_t n = 0;

    *ret_size = 0;
    if (message.n > 0 && message.p[0] != CLIENT_HELLO)
        return SP_HELLO_BROKEN;
    if (!cut_number(&message, 1, &type) || !cut_number(&message, 3, &n))
        return SP_HELLO_PARTIAL;
    if (RECORD_HEAD + HELLO_HEAD + n > SP_HELLO_MAX)
        return SP_HELLO_TOO_LONG;
    *ret_size = HELLO_HEAD + n;
    return SP_HELLO_PARTIAL;
}

/* Whether the bytes can begin a record of a handshake. A record of another type before it is
 * refused: a server that ignores it would read a server name that was not compared. */
static enum sp_hello check_record(struct span bytes, bool is_first)
{
    const bool is_record = bytes.n > 0 && bytes.p[0] >= FIRST_TYPE && bytes.p[0] <= LAST_TYPE;
    const enum sp_hello wrong = is_first ? SP_HELLO_OTHER : SP_HELLO_BROKEN;

    if (is_first && is_record && bytes.p[0] != HANDSHAKE && (bytes.n == 1 || bytes.p[1] == MAJOR))
        return bytes.n == 1 ? SP_HELLO_PARTIAL : SP_HELLO_BROKEN;
    if ((bytes.n > 0 && bytes.p[0] != HANDSHAKE) || (bytes.n > 1 && bytes.p[1] != MAJOR))
        return wrong;
    if (bytes.n < RECORD_HEAD)
        return SP_HELLO_PARTIAL;
    const size_t n = (size_t)bytes.p[3] << 8 | bytes.p[4];
    return n == 0 || n > RECORD_MAX ? SP_HELLO_BROKEN : SP_HELLO_PARTIAL;
}

/* The result depends on the first bytes that decide it, so that it is the same in any pieces. */
static enum sp_hello read_records(struct span bytes, char name[256], size_t *ret_len)
{
    uint8_t joined[SP_HELLO_MAX];
    size_t len = 0;

    for (bool is_first = true;; is_first = false) {
        enum sp_hello so_far = check_record(bytes, is_first);
        struct span head;
        size_t size = 0;

        if (so_far != SP_HELLO_PARTIAL || !cut(&bytes, RECORD_HEAD, &head))
            return so_far;
        const size_t whole = (size_t)head.p[3] << 8 | head.p[4];
        const size_t n = whole < bytes.n ? whole : bytes.n;
        memcpy(joined + len, bytes.p, n); /* fits: all bytes together are at most SP_HELLO_MAX */
        len += n;
        bytes = (struct span){bytes.p + n, bytes.n - n};
        so_far = check_head((struct span){joined, len}, &size);
        if (so_far != SP_HELLO_PARTIAL)
            return so_far;
        if (size != 0 && len >= size)
            return read_message((struct span){joined + HELLO_HEAD, size - HELLO_HEAD}, name,
                                ret_len);
        if (n < whole)
            return SP_HELLO_PARTIAL;
    }
}

enum sp_hello sp_hello_read(struct sp_str bytes, char name[256], size_t *ret_len)
{
    const bool is_longer = bytes.n > SP_HELLO_MAX;
    const struct span seen = {(const uint8_t *)bytes.p, is_longer ? SP_HELLO_MAX : bytes.n};
    const enum sp_hello result = read_records(seen, name, ret_len);

    return result == SP_HELLO_PARTIAL && is_longer ? SP_HELLO_TOO_LONG : result;
}
