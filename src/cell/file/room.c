/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room: where the data of an answer goes: into the window that was given or, when that is too
 * small, into a memory file that is handed over.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "cell/file/file_priv.h"

#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)
#define PIECE      (1U << 20)
#define SEND_PIECE (1U << 30)

bool sp_room_is_apart(const struct sp_room *r)
{
    return r->answer->memory >= 0;
}

int sp_room_write(int fd, const char *data, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, data, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EIO;
        data += done;
        n -= (size_t)done;
    }
    return 0;
}

/* What the window has moves to a memory file; from then on it is only the way there. */
static int move_apart(struct sp_room *r)
{
    struct sp_file_answer *a = r->answer;

    a->memory = memfd_create("sallyport-file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return a->memory < 0 ? -errno : sp_room_write(a->memory, a->window, r->at);
}

static int flush(struct sp_room *r)
{
    const size_t n = r->staged;

    r->staged = 0;
    return sp_room_write(r->answer->memory, r->answer->window, n);
}

int sp_room_add(struct sp_room *r, const void *data, size_t n)
{
    struct sp_file_answer *a = r->answer;
    int err = 0;

    if (!sp_room_is_apart(r) && n <= a->window_size - r->at) {
        memcpy(a->window + r->at, data, n);
        r->at += n;
        return 0;
    }
    if (!sp_room_is_apart(r))
        err = move_apart(r);
    if (err == 0 && n > a->window_size - r->staged)
        err = flush(r);
    if (err < 0)
        return err;
    r->at += n;
    if (n > a->window_size)
        return sp_room_write(a->memory, data, n);
    memcpy(a->window + r->staged, data, n);
    r->staged += n;
    return 0;
}

/* One piece of the file, as far as this and the room go: bytes, 0 at its end, or minus errno. */
static ssize_t take_piece(struct sp_room *r, int fd, uint64_t max, bool *can_send)
{
    struct sp_file_answer *a = r->answer;
    char *to = sp_room_is_apart(r) ? a->window : a->window + r->at;
    const size_t room = sp_room_is_apart(r) ? PIECE : a->window_size - r->at;
    const size_t n = max < room ? (size_t)max : room;
    ssize_t got;

    if (sp_room_is_apart(r) && *can_send) {
        got = sendfile(a->memory, fd, NULL, max < SEND_PIECE ? (size_t)max : SEND_PIECE);
        if (got >= 0)
            return got;
        *can_send = false; /* not from every file system, nor under every filter */
    }
    got = read(fd, to, n < a->window_size ? n : a->window_size);
    if (got < 0)
        return -errno;
    const int err = sp_room_is_apart(r) ? sp_room_write(a->memory, to, (size_t)got) : 0;
    return err < 0 ? err : got;
}

int sp_room_take_file(struct sp_room *r, int fd, uint64_t max, bool *ret_is_more)
{
    bool can_send = true;
    char probe;

    *ret_is_more = false;
    while (r->at < max) {
        if (!sp_room_is_apart(r) && r->at == r->answer->window_size) {
            const int err = move_apart(r);

            if (err < 0)
                return err;
        }
        const ssize_t n = take_piece(r, fd, max - r->at, &can_send);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        r->at += (size_t)n;
    }
    const ssize_t n = read(fd, &probe, 1);
    *ret_is_more = n > 0;
    return n < 0 ? -errno : 0;
}

int sp_room_done(struct sp_room *r)
{
    const int err = sp_room_is_apart(r) ? flush(r) : 0;

    r->answer->data_len = r->at;
    if (err < 0)
        return err;
    return sp_room_is_apart(r) && fcntl(r->answer->memory, F_ADD_SEALS, SEALS) < 0 ? -errno : 0;
}
