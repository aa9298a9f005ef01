/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "os/fd.h"

#define HEADERS ((size_t)SP_SEGMENT_RINGS * SP_RING_HEADER)
#define SEALS   (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Takes *fd on success. */
static int map_segment(int *fd, uint32_t rings, int protection, struct sp_segment **ret,
                       struct sp_err *e)
{
    const size_t size = HEADERS + (size_t)rings * SP_RING_AREA;
    struct sp_segment *s = malloc(sizeof *s);

    if (s == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "map output rings");
    *s = (struct sp_segment){.size = size, .rings = rings, .users = 1};
    s->map = mmap(NULL, size, protection, MAP_SHARED, *fd, 0);
    if (s->map == MAP_FAILED) {
        const int err = errno;

        free(s);
        return sp_fail(e, SP_E_SYSTEM, err, "map output rings");
    }
    s->fd = TAKE_FD(*fd);
    *ret = s;
    return 0;
}

int sp_segment_new(uint32_t rings, struct sp_segment **ret, struct sp_err *e)
{
    const size_t size = HEADERS + (size_t)rings * SP_RING_AREA;
    auto_close int fd = -1;
    struct rlimit most;

    /* Above the limit the kernel would send SIGXFSZ, which ends the process. */
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < size)
        return sp_fail(e, SP_E_SYSTEM, EFBIG, "make output rings (ulimit -f)");
    fd = sp_fd_lift(memfd_create("sallyport-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make output rings");
    return map_segment(&fd, rings, PROT_READ, ret, e);
}

int sp_segment_take(int *fd, bool is_writable, struct sp_segment **ret, struct sp_err *e)
{
    struct stat st;

    /* Without the seals the other side could truncate the file, and access would raise SIGBUS. */
    const int seals = fcntl(*fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return sp_fail(e, SP_E_MALFORMED, EINVAL, "output rings are not sealed");
    if (fstat(*fd, &st) < 0 || st.st_size < (off_t)(HEADERS + SP_RING_AREA) ||
        ((size_t)st.st_size - HEADERS) % SP_RING_AREA != 0 ||
        ((size_t)st.st_size - HEADERS) / SP_RING_AREA > SP_SEGMENT_RINGS)
        return sp_fail(e, SP_E_MALFORMED, EINVAL, "output rings have the wrong size");
    return map_segment(fd, (uint32_t)(((size_t)st.st_size - HEADERS) / SP_RING_AREA),
                       is_writable ? PROT_READ | PROT_WRITE : PROT_READ, ret, e);
}

void sp_segment_drop(struct sp_segment *s)
{
    if (s == NULL || --s->users > 0)
        return;
    (void)munmap(s->map, s->size);
    if (s->fd >= 0)
        (void)close(s->fd);
    free(s);
}
