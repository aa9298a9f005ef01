/* SPDX-License-Identifier: Apache-2.0 */
#include "core/outbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cell/wire.h"

struct sp_parcel {
    struct sp_parcel *next;
    int fds[SP_WIRE_FDS], fd_count;
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

static void free_parcel(struct sp_outbox *o, struct sp_parcel *p)
{
    while (p->fd_count > 0)
        (void)close(p->fds[--p->fd_count]);
    if (!p->is_reserve) {
        free(p);
        return;
    }
    p->next = o->reserve;
    o->reserve = p;
}

bool sp_outbox_add(struct sp_outbox *o, const void *msg, size_t len, const void *tail,
                   size_t tail_len, const int *fds, int fd_count)
{
    struct sp_parcel *p = malloc(sizeof *p + len + tail_len);
    const bool is_reserve = p == NULL;

    if (is_reserve && (o->reserve == NULL || len + tail_len > sizeof(struct sp_wire_call)))
        return false;
    if (is_reserve) {
        p = o->reserve;
        o->reserve = p->next;
    }
    *p = (struct sp_parcel){.is_reserve = is_reserve, .len = len + tail_len};
    for (; p->fd_count < fd_count; p->fd_count++) {
        p->fds[p->fd_count] = fcntl(fds[p->fd_count], F_DUPFD_CLOEXEC, 7);
        if (p->fds[p->fd_count] < 0) {
            free_parcel(o, p);
            return false;
        }
    }
    memcpy(p->bytes, msg, len);
    if (tail_len != 0)
        memcpy(p->bytes + len, tail, tail_len);
    *(o->first == NULL ? &o->first : &o->last->next) = p;
    o->last = p;
    o->bytes += p->len;
    o->was_full = o->was_full || o->bytes > SP_OUTBOX_FULL;
    return true;
}

static void drop_first(struct sp_outbox *o)
{
    struct sp_parcel *p = o->first;

    o->first = p->next;
    o->bytes -= p->len;
    free_parcel(o, p);
}

bool sp_outbox_send(struct sp_outbox *o, int socket)
{
    o->is_short = false;
    while (o->first != NULL) {
        const struct sp_parcel *p = o->first;
        const int r = sp_wire_send(socket, false, p->bytes, p->len, NULL, 0, p->fds, p->fd_count);

        o->is_short = sp_wire_is_short(r);
        if (r == -EAGAIN || o->is_short)
            break;
        if (r < 0) { /* the reader of the socket sees its end after the last messages */
            if (r != -EPIPE && r != -ECONNRESET)
                o->err = -r;
            while (o->first != NULL)
                drop_first(o);
            break;
        }
        drop_first(o);
    }
    if (!o->was_full || o->bytes >= SP_OUTBOX_FULL / 2)
        return false;
    o->was_full = false;
    return true;
}

void sp_outbox_free(struct sp_outbox *o)
{
    while (o->first != NULL)
        drop_first(o);
    while (o->reserve != NULL) {
        struct sp_parcel *p = o->reserve;

        o->reserve = p->next;
        free(p);
    }
}
