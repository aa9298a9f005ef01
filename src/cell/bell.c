/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/bell.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/fd.h"

struct slot {
    _Alignas(64) _Atomic uint64_t sent;
    _Atomic uint64_t confirmed;
    _Atomic uint32_t is_owned;
    _Atomic uint32_t share;
};

struct sp_bell_page {
    struct {
        _Alignas(64) _Atomic uint32_t is_asleep;
        _Atomic uint64_t woken_us; /* set by the other side right before is_asleep is cleared */
    } side[2];
    _Alignas(4096) char rest[]; /* marks for the front, for the cell; summaries; slots */
};

/* One bit for each slot. */
static size_t words(uint32_t slots)
{
    return ((size_t)slots + 511) / 512 * 8; /* whole cache lines */
}

/* One bit for each word of marks: without news a side looks at these alone. */
static size_t summary_words(uint32_t slots)
{
    return (words(slots) + 511) / 512 * 8;
}

static size_t page_size(uint32_t slots)
{
    const size_t bytes = sizeof(struct sp_bell_page) +
                         2 * (words(slots) + summary_words(slots)) * 8 +
                         (size_t)slots * sizeof(struct slot);

    return (bytes + 4095) & ~(size_t)4095;
}

static _Atomic uint64_t *marks(const struct sp_bell *b, enum sp_side side)
{
    return (_Atomic uint64_t *)(void *)b->page->rest +
           (side == SP_SIDE_FRONT ? 0 : words(b->slots));
}

static _Atomic uint64_t *summary(const struct sp_bell *b, enum sp_side side)
{
    return marks(b, SP_SIDE_FRONT) + 2 * words(b->slots) +
           (side == SP_SIDE_FRONT ? 0 : summary_words(b->slots));
}

static struct slot *slot_of(const struct sp_bell *b, uint32_t slot)
{
    const size_t before = 2 * (words(b->slots) + summary_words(b->slots)) * 8;

    return (struct slot *)(void *)(b->page->rest + before) + slot;
}

static int map_page(struct sp_bell *b, int fd, struct sp_err *e)
{
    void *map = mmap(NULL, page_size(b->slots), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED)
        return sp_fail(e, SP_E_SYSTEM, errno, "map shared page");
    b->page = map;
    return 0;
}

int sp_bell_new(uint32_t slots, struct sp_bell *ret, struct sp_err *e)
{
    struct sp_bell b = {.slots = slots, .side = SP_SIDE_FRONT, .wake = {-1, -1}};
    int r = 0;

    b.page_fd = sp_fd_lift(memfd_create("sallyport-bell", MFD_CLOEXEC));
    if (b.page_fd < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, b.wake) < 0 ||
        ftruncate(b.page_fd, (off_t)page_size(slots)) < 0)
        r = sp_fail(e, SP_E_SYSTEM, errno, "make shared page");
    else
        r = map_page(&b, b.page_fd, e);
    for (int i = 0; i < 2; i++)
        b.wake[i] = sp_fd_lift(b.wake[i]);
    if (r < 0) {
        sp_bell_free(&b);
        return r;
    }
    *ret = b;
    return 0;
}

static int join_as(enum sp_side side, int page_fd, uint32_t slots, const int wake[2],
                   struct sp_bell *ret, struct sp_err *e)
{
    struct sp_bell b = {.slots = slots, .side = side, .page_fd = -1, .wake = {wake[0], wake[1]}};
    struct stat st;

    if (fstat(page_fd, &st) < 0 || st.st_size != (off_t)page_size(slots))
        return sp_fail(e, SP_E_MALFORMED, 0, "shared page has the wrong size");
    const int r = map_page(&b, page_fd, e);
    if (r == 0)
        *ret = b;
    return r;
}

int sp_bell_join(int page_fd, uint32_t slots, int wake_front, int wake_cell, struct sp_bell *ret,
                 struct sp_err *e)
{
    const int wake[2] = {[SP_SIDE_FRONT] = wake_front, [SP_SIDE_CELL] = wake_cell};

    return join_as(SP_SIDE_CELL, page_fd, slots, wake, ret, e);
}

int sp_bell_take_over(int page_fd, uint32_t slots, int wake, struct sp_bell *ret, struct sp_err *e)
{
    return join_as(SP_SIDE_FRONT, page_fd, slots, (const int[2]){wake, -1}, ret, e);
}

void sp_bell_free(struct sp_bell *b)
{
    if (b->page != NULL)
        (void)munmap(b->page, page_size(b->slots));
    const int fds[] = {b->page_fd, b->wake[0], b->wake[1]};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    *b = (struct sp_bell){.page_fd = -1, .wake = {-1, -1}};
}

static enum sp_side other_side(const struct sp_bell *b)
{
    return b->side == SP_SIDE_FRONT ? SP_SIDE_CELL : SP_SIDE_FRONT;
}

void sp_bell_mark(struct sp_bell *b, uint32_t slot)
{
    const uint32_t w = slot / 64;

    /* In this order; the other side clears them in the opposite one. */
    atomic_fetch_or(&marks(b, other_side(b))[w], (uint64_t)1 << (slot % 64));
    atomic_fetch_or(&summary(b, other_side(b))[w / 64], (uint64_t)1 << (w % 64));
    b->has_marked = true;
}

void sp_bell_wake(struct sp_bell *b)
{
    /* Only sendmsg: the seccomp filter of a confined cell may refuse other calls. */
    static char byte = 1;
    static struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    static const struct msghdr wake_up = {.msg_iov = &iov, .msg_iovlen = 1};
    const enum sp_side other = other_side(b);
    _Atomic uint32_t *is_asleep = &b->page->side[other].is_asleep;

    if (!b->has_marked)
        return;
    b->has_marked = false;
    if (atomic_load(is_asleep) == 0)
        return;
    atomic_store(&b->page->side[other].woken_us, sp_clock_us());
    if (atomic_exchange(is_asleep, 0) != 0)
        (void)sendmsg(b->wake[b->side], &wake_up,
                      MSG_NOSIGNAL | MSG_DONTWAIT); /* EAGAIN: unread bytes wake it, too */
}

void sp_bell_drain(struct sp_bell *b)
{
    char bytes[256];

    (void)recv(b->wake[b->side], bytes, sizeof bytes, MSG_DONTWAIT);
}

static bool answer_word(struct sp_bell *b, size_t w, void (*fn)(void *user, uint32_t slot),
                        void *user)
{
    bool found = false;

    for (uint64_t bits = atomic_exchange(&marks(b, b->side)[w], 0); bits != 0; bits &= bits - 1) {
        const size_t slot = w * 64 + (size_t)__builtin_ctzll(bits);

        found = true;
        if (slot < b->slots)
            fn(user, (uint32_t)slot);
    }
    return found;
}

bool sp_bell_answer(struct sp_bell *b, void (*fn)(void *user, uint32_t slot), void *user)
{
    _Atomic uint64_t *m = summary(b, b->side);
    bool found = false;

    for (size_t i = 0; i < summary_words(b->slots); i++) {
        if (atomic_load_explicit(&m[i], memory_order_relaxed) == 0)
            continue;
        for (uint64_t bits = atomic_exchange(&m[i], 0); bits != 0; bits &= bits - 1) {
            const size_t w = i * 64 + (size_t)__builtin_ctzll(bits);

            if (w < words(b->slots)) /* the other side may have set any bit */
                found = answer_word(b, w, fn, user) || found;
        }
    }
    return found;
}

bool sp_bell_may_sleep(struct sp_bell *b)
{
    const _Atomic uint64_t *m = summary(b, b->side);

    atomic_store_explicit(&b->page->side[b->side].woken_us, 0, memory_order_relaxed);
    atomic_store(&b->page->side[b->side].is_asleep, 1);
    atomic_thread_fence(memory_order_seq_cst);
    for (size_t i = 0; i < summary_words(b->slots); i++)
        if (atomic_load_explicit(&m[i], memory_order_relaxed) != 0) {
            (void)sp_bell_awake(b);
            return false;
        }
    return true;
}

uint64_t sp_bell_awake(struct sp_bell *b)
{
    atomic_store_explicit(&b->page->side[b->side].is_asleep, 0, memory_order_relaxed);
    return atomic_load_explicit(&b->page->side[b->side].woken_us, memory_order_relaxed);
}

void sp_bell_serve(struct sp_bell *b, uint32_t slot, bool is_owned, struct sp_served served)
{
    struct slot *s = slot_of(b, slot);

    atomic_store_explicit(&s->sent, served.sent, memory_order_relaxed);
    atomic_store_explicit(&s->confirmed, served.confirmed, memory_order_relaxed);
    atomic_store(&s->is_owned, is_owned);
}

bool sp_bell_served(const struct sp_bell *b, uint32_t slot, struct sp_served *ret_served)
{
    struct slot *s = slot_of(b, slot);

    if (atomic_load(&s->is_owned) == 0)
        return false;
    *ret_served =
        (struct sp_served){.sent = atomic_load(&s->sent), .confirmed = atomic_load(&s->confirmed)};
    return true;
}

_Atomic uint32_t *sp_bell_share(const struct sp_bell *b, uint32_t slot)
{
    return &slot_of(b, slot)->share;
}
