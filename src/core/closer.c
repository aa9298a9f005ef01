/* SPDX-License-Identifier: Apache-2.0 */
#include "core/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"

#define STACK_BYTES (256U << 10)

struct sp_closer {
    struct sp_workers *workers;
    unsigned count; /* of files that are not closed yet */
};

/* In a thread. An error of close() is ignored: fsync is how a writer asks about its data. */
static void close_file(struct sp_work *j)
{
    (void)close(SP_CONTAINER(j, struct sp_closing, work)->fd);
}

static void on_closed(struct sp_work *j)
{
    struct sp_closing *c = SP_CONTAINER(j, struct sp_closing, work);

    c->closer->count--;
    c->done(c);
}

int sp_closer_new(struct sp_loop *loop, struct sp_closer **ret, struct sp_err *e)
{
    const struct sp_workers_options o = {
        .threads = SP_CLOSING_THREADS,
        .share = 1,
        .stack_bytes = STACK_BYTES,
        .run = close_file,
        .done = on_closed,
    };
    struct sp_closer *k = calloc(1, sizeof *k);

    if (k == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare to close files");
    const int r = sp_workers_new(loop, &o, &k->workers, e);
    if (r < 0)
        free(k);
    else
        *ret = k;
    return r;
}

void sp_closer_free(struct sp_closer *k)
{
    if (k == NULL)
        return;
    if (!sp_workers_free(k->workers))
        sp_log(SP_LOG_WARN, "files are left open: their disk does not answer");
    free(k);
}

void sp_closer_close(struct sp_closer *k, struct sp_closing *c, int fd)
{
    struct statx sx;

    c->closer = k;
    c->fd = fd;
    c->work.key = UINT64_MAX;
    /* AT_STATX_DONT_SYNC: the kernel's cached answer, without asking the disk. */
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &sx) == 0)
        c->work.key = (uint64_t)sx.stx_dev_major << 32 | sx.stx_dev_minor;
    k->count++;
    (void)sp_workers_add(k->workers, &c->work); /* tries again by itself */
}

bool sp_closer_is_full(const struct sp_closer *k)
{
    return k->count >= SP_CLOSING_MAX;
}
