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
    bool is_reserve;
    size_t len;
    char bytes[];
};

bool sp_outbox_reserve(struct sp_outbox *o)
{
    for (int i = 0; i < SP_OUTBOX_RESERVE; i++) {
        struct sp_parcel *p = malloc(sizeof *p + sizeof(struct sp_wire_call));

        if (p == NULL)
            return false;
        *p = (struct sp_parcel){.next = o->reserve, .is_reserve = true};
        o->reserve = p;
    }
    return true;
}

static struct sp_parcel *take_reserve(struct sp_outbox *o, size_t len)
{
    struct sp_parcel *p = len <= sizeof(struct sp_wire_call) ? o->reserve : NULL;

    if (p != NULL)
        o->reserve = p->next;
    return p;
}

static void free_parcel(struct sp_outbox *o, struct sp_parcel *p)
{
    if (!p->is_reserve) {
        free(p);
        return;
    }
    p->next = o->reserve;
    o->reserve = p;
}

bool sp_outbox_is_full(const struct sp_outbox *o)
{
    return o->bytes > FULL_BYTES;
}

bool sp_outbox_add(struct sp_outbox *o, const void *msg, size_t len, const void *tail,
                   size_t tail_len, int fd)
{
    struct sp_parcel *p = malloc(sizeof *p + len + tail_len);
    const bool is_reserve = p == NULL;

    if (p == NULL && (p = take_reserve(o, len + tail_len)) == NULL)
        return false;
    *p = (struct sp_parcel){.fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 7),
                            .is_reserve = is_reserve,
                            .len = len + tail_len};
    if (fd >= 0 && p->fd < 0) {
        free_parcel(o, p);
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
    free_parcel(o, p);
}

bool sp_outbox_send(struct sp_outbox *o, int socket)
{
    o->is_short = false;
    while (o->first != NULL) {
        const struct sp_parcel *p = o->first;
        const int r = sp_wire_send(socket, false, p->bytes, p->len, NULL, 0, &p->fd, p->fd >= 0);

        o->is_short = sp_wire_is_short(r);
        if (r == -EAGAIN || o->is_short)
            break;
        if (r < 0) { /* the reader of the socket sees its end after the last messages */
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

void sp_outbox_free(struct sp_outbox *o)
{
    sp_outbox_drop(o);
    while (o->reserve != NULL) {
        struct sp_parcel *p = o->reserve;

        o->reserve = p->next;
        free(p);
    }
}
