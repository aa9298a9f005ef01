/* SPDX-License-Identifier: Apache-2.0 */
#include "core/outbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cell/wire.h"

#define FULL_BYTES (1U << 20)

struct sp_parcel {
    struct sp_parcel *next;
    int fd; /* -1: none */
    size_t len;
    char bytes[];
};

bool sp_outbox_is_full(const struct sp_outbox *o)
{
    return o->bytes > FULL_BYTES;
}

bool sp_outbox_add(struct sp_outbox *o, const void *msg, size_t len, const void *tail,
                   size_t tail_len, int fd)
{
    struct sp_parcel *p = malloc(sizeof *p + len + tail_len);

    if (p == NULL)
        return false;
    *p = (struct sp_parcel){.fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 7),
                            .len = len + tail_len};
    if (fd >= 0 && p->fd < 0) {
        free(p);
        return false;
    }
    memcpy(p->bytes, msg, len);
    if (tail_len != 0)
        memcpy(p->bytes + len, tail, tail_len);
    *(o->first == NULL ? &o->first : &o->last->next) = p;
    o->last = p;
    o->bytes += p->len;
    o->was_full = o->was_full || sp_outbox_is_full(o);
    return true;
}

static void drop_first(struct sp_outbox *o)
{
    struct sp_parcel *p = o->first;

    o->first = p->next;
    o->bytes -= p->len;
    if (p->fd >= 0)
        (void)close(p->fd);
    free(p);
}

bool sp_outbox_send(struct sp_outbox *o, int socket)
{
    while (o->first != NULL) {
        const struct sp_parcel *p = o->first;
        const int r = sp_wire_send(socket, false, p->bytes, p->len, NULL, 0, &p->fd, p->fd >= 0);

        if (r == -EAGAIN || r == -ENOBUFS)
            break;
        if (r < 0) { /* it has ended: what it said last is read before that is dealt with */
            if (r != -EPIPE && r != -ECONNRESET)
                o->err = -r;
            sp_outbox_drop(o);
            break;
        }
        drop_first(o);
    }
    const bool has_drained = o->was_full && o->bytes < FULL_BYTES / 2;
    if (has_drained)
        o->was_full = false;
    return has_drained;
}

void sp_outbox_drop(struct sp_outbox *o)
{
    while (o->first != NULL)
        drop_first(o);
}
