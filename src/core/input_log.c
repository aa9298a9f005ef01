/* SPDX-License-Identifier: Apache-2.0 */
#include "core/input_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "core/input.h"
#include "os/fd.h"

#define MAGIC     0x676f6c7475706e69ULL /* "inputlog" */
#define VERSION   1U
#define IDS_AT    128U
#define ID_SLOTS  ((SP_INPUT_LOG_DATA - IDS_AT) / sizeof(struct sp_hash))
#define PUNCH     (256U << 10)
#define PAGE      4096U
#define NOTE_MOST 4096U /* bytes of one write with a note */
#define SEALS     (F_SEAL_SHRINK | F_SEAL_SEAL)
#define MOST_SIZE ((uint64_t)1 << 40)

/* Id number N is in slot N % ID_SLOTS; the newest SP_INPUT_IDS are valid, so that a slot is written
 * before its id counts, and after the id before it counts no more. */
_Static_assert(ID_SLOTS > SP_INPUT_IDS, "the slot of the next id is none of those that count");

struct header {
    uint64_t magic;
    uint32_t version, data_at;
    _Atomic uint64_t turn; /* copies[turn % 2] holds */
    struct sp_input_log_end copies[2];
    _Atomic uint64_t note; /* a write up to this place has begun; 0: none */
};
_Static_assert(sizeof(struct header) <= IDS_AT, "the header has its place");

static struct header *header_of(const struct sp_input_log *l)
{
    return (struct header *)(void *)l->map;
}

static struct sp_hash *id_at(const struct sp_input_log *l, uint64_t number)
{
    return (struct sp_hash *)(void *)(l->map + IDS_AT) + number % ID_SLOTS;
}

static unsigned count_ids(const struct sp_input_log *l)
{
    return l->now.ids < SP_INPUT_IDS ? (unsigned)l->now.ids : SP_INPUT_IDS;
}

/* ---- making ---- */

/* Takes *fd on success. */
static struct sp_input_log *map_log(int *fd)
{
    struct sp_input_log *l = calloc(1, sizeof *l);
    struct rlimit most;

    if (l == NULL)
        return NULL;
    l->map = mmap(NULL, SP_INPUT_LOG_DATA, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (l->map == MAP_FAILED) {
        free(l);
        return NULL;
    }
    l->fd = TAKE_FD(*fd);
    l->punched = l->sent = SP_INPUT_LOG_DATA;
    l->most = MOST_SIZE;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < l->most)
        l->most = most.rlim_cur;
    return l;
}

struct sp_input_log *sp_input_log_new(void)
{
    auto_close int fd = -1;
    struct rlimit most;

    /* Above the limit the kernel would send SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < SP_INPUT_LOG_DATA) {
        errno = EFBIG;
        return NULL;
    }
    fd = sp_fd_lift(memfd_create("sallyport-input", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0 || ftruncate(fd, SP_INPUT_LOG_DATA) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0 ||
        lseek(fd, SP_INPUT_LOG_DATA, SEEK_SET) < 0)
        return NULL;
    struct sp_input_log *l = map_log(&fd);
    if (l == NULL)
        return NULL;
    l->now = (struct sp_input_log_end){
        .end = SP_INPUT_LOG_DATA, .state = SP_INPUT_LOG_OPEN, .last = '\n'};
    *header_of(l) = (struct header){
        .magic = MAGIC, .version = VERSION, .data_at = SP_INPUT_LOG_DATA, .copies = {l->now}};
    return l;
}

struct sp_input_log *sp_input_log_next(const struct sp_input_log *old)
{
    struct sp_input_log *l = sp_input_log_new();

    if (l == NULL)
        return NULL;
    const unsigned count = count_ids(old);
    for (unsigned i = 0; i < count; i++)
        *id_at(l, i) = *id_at(old, old->now.ids - count + i);
    l->now.ids = count;
    l->now.state = old->now.state;
    l->now.last = old->now.last;
    header_of(l)->copies[0] = l->now;
    return l;
}

static bool is_sound(const struct header *h, uint64_t sent, uint64_t size)
{
    const struct sp_input_log_end *c =
        &h->copies[atomic_load_explicit(&h->turn, memory_order_relaxed) % 2];

    return h->magic == MAGIC && h->version == VERSION && h->data_at == SP_INPUT_LOG_DATA &&
           sent >= SP_INPUT_LOG_DATA && sent <= c->end && c->end <= size && c->end <= MOST_SIZE &&
           c->ids <= UINT64_MAX / 2 && c->state > 0 && c->state < SP_INPUT_LOG_STATES &&
           c->last <= UINT8_MAX;
}

/* The header is copied before it is checked: a hostile cell may write there at any time. */
struct sp_input_log *sp_input_log_open(int fd)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    const off_t sent = lseek(fd, 0, SEEK_CUR);
    struct header h;
    struct stat st;

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || sent < 0 ||
        pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h ||
        !is_sound(&h, (uint64_t)sent, (uint64_t)st.st_size))
        return NULL;
    struct sp_input_log *l = map_log(&fd);
    if (l == NULL)
        return NULL;
    l->now = h.copies[h.turn % 2];
    l->sent = (uint64_t)sent;
    /* It may have been written: that is less harm than twice. */
    if (h.note > l->sent && h.note <= l->now.end && lseek(l->fd, (off_t)h.note, SEEK_SET) >= 0)
        l->sent = h.note;
    l->ends[0] = l->now.end;
    l->end_count = l->sent < l->now.end;
    l->punched = l->sent / PAGE * PAGE;
    return l;
}

void sp_input_log_free(struct sp_input_log *l)
{
    if (l == NULL)
        return;
    (void)munmap(l->map, SP_INPUT_LOG_DATA);
    (void)close(l->fd);
    free(l);
}

/* ---- what it knows ---- */

bool sp_input_log_knows(const struct sp_input_log *l, struct sp_hash id)
{
    const unsigned count = count_ids(l);

    for (unsigned i = 1; i <= count; i++) {
        const struct sp_hash *known = id_at(l, l->now.ids - i);

        if (known->a == id.a && known->b == id.b)
            return true;
    }
    return false;
}

unsigned sp_input_log_ids(const struct sp_input_log *l, struct sp_hash *ret, unsigned max)
{
    const unsigned count = count_ids(l) < max ? count_ids(l) : max;

    for (unsigned i = 0; i < count; i++)
        ret[i] = *id_at(l, l->now.ids - count + i);
    return count;
}

/* ---- accepting ---- */

static void commit(struct sp_input_log *l)
{
    struct header *h = header_of(l);
    const uint64_t turn = atomic_load_explicit(&h->turn, memory_order_relaxed) + 1;

    h->copies[turn % 2] = l->now;
    atomic_store_explicit(&h->turn, turn, memory_order_release);
}

static int copy_bytes(struct sp_input_log *l, struct sp_str bytes)
{
    for (size_t at = 0; at < bytes.n;) {
        const ssize_t n = pwrite(l->fd, bytes.p + at, bytes.n - at, (off_t)(l->now.end + at));

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return -EIO;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int sp_input_log_append(struct sp_input_log *l, struct sp_str bytes, const struct sp_hash *id,
                        enum sp_input_log_state state)
{
    if (!sp_input_log_has_room(l, bytes.n))
        return -EFBIG;
    const int r = copy_bytes(l, bytes);
    if (r < 0)
        return r;
    if (id != NULL)
        *id_at(l, l->now.ids++) = *id;
    if (bytes.n > 0) {
        l->now.end += bytes.n;
        l->now.last = (uint8_t)bytes.p[bytes.n - 1];
        l->end_count += l->end_count < SP_INPUT_CHUNKS;
        l->ends[(l->first_end + l->end_count - 1) % SP_INPUT_CHUNKS] = l->now.end;
    }
    l->now.state = state;
    commit(l);
    return 0;
}

void sp_input_log_set(struct sp_input_log *l, enum sp_input_log_state state)
{
    if (l->now.state == (uint32_t)state)
        return;
    l->now.state = state;
    commit(l);
}

/* ---- sending ---- */

static void note_sent(struct sp_input_log *l, uint64_t bytes)
{
    l->sent += bytes;
    while (l->end_count > 0 && l->ends[l->first_end] <= l->sent) {
        l->first_end = (l->first_end + 1) % SP_INPUT_CHUNKS;
        l->end_count--;
    }
    if (l->sent - l->punched < PUNCH)
        return;
    const uint64_t to = l->sent / PAGE * PAGE;
    (void)fallocate(l->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)l->punched,
                    (off_t)(to - l->punched)); /* refused: the memory stays until the end */
    l->punched = to;
}

/* Early 5.10 kernels refuse sendfile to a terminal. What is written while the note stands counts as
 * written for the next front. */
static ssize_t send_with_note(struct sp_input_log *l, int target)
{
    _Atomic uint64_t *note = &header_of(l)->note;
    char bytes[NOTE_MOST];
    const uint64_t left = sp_input_log_left(l);
    const ssize_t n =
        pread(l->fd, bytes, left < sizeof bytes ? left : sizeof bytes, (off_t)l->sent);

    if (n <= 0)
        return n == 0 ? -EIO : -errno;
    atomic_store_explicit(note, l->sent + (uint64_t)n, memory_order_release);
    const ssize_t written = write(target, bytes, (size_t)n);
    const int err = errno;
    if (written > 0)
        (void)lseek(l->fd, (off_t)l->sent + written, SEEK_SET);
    atomic_store_explicit(note, 0, memory_order_release);
    return written >= 0 ? written : -err;
}

ssize_t sp_input_log_send(struct sp_input_log *l, int target)
{
    ssize_t n = sendfile(target, l->fd, NULL, sp_input_log_left(l));

    if (n < 0)
        n = errno == EINVAL ? send_with_note(l, target) : -errno;
    if (n == 0 || (n > 0 && (uint64_t)n > sp_input_log_left(l)))
        return -EIO; /* another process has moved the position */
    if (n > 0)
        note_sent(l, (uint64_t)n);
    return n;
}

void sp_input_log_drop(struct sp_input_log *l)
{
    if (sp_input_log_left(l) == 0)
        return;
    (void)lseek(l->fd, (off_t)l->now.end, SEEK_SET);
    note_sent(l, sp_input_log_left(l));
}
