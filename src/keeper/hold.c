/* SPDX-License-Identifier: Apache-2.0 */
#include "keeper/hold.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "keeper/message.h"
#include "os/fd.h"

#define LOWEST    64 /* of our socket: sp_spawn has the numbers below */
#define SILENCE_S 5  /* the keeper answers at once, unless it was stopped */

_Static_assert(SP_HOLD_FDS == SP_KEEPER_FDS && SP_HOLD_TEXT == SP_KEEPER_TEXT &&
                   SP_HOLD_KEYS == SP_KEEPER_KEYS,
               "one limit");

/* ---- the table ---- */

/* Index of the first entry with this key or a greater one. */
static unsigned find_place(const struct sp_hold *h, uint64_t key)
{
    unsigned i = 0;

    while (i < h->count && h->held[i].key < key)
        i++;
    return i;
}

static struct sp_hold_item *find_held(struct sp_hold *h, uint64_t key)
{
    const unsigned i = find_place(h, key);

    return i < h->count && h->held[i].key == key ? &h->held[i] : NULL;
}

/* NULL: too many. */
static struct sp_hold_item *add_held(struct sp_hold *h, uint64_t key)
{
    const unsigned i = find_place(h, key);

    if (i < h->count && h->held[i].key == key)
        return &h->held[i];
    if (h->count == SP_HOLD_KEYS)
        return NULL;
    memmove(&h->held[i + 1], &h->held[i], (h->count - i) * sizeof h->held[0]);
    h->count++;
    h->held[i] = (struct sp_hold_item){.key = key};
    return &h->held[i];
}

static void close_held(struct sp_hold_item *k)
{
    sp_keeper_close_fds(k->fds, k->count);
    k->count = 0;
}

/* ---- beginning ---- */

/* Our copy of the socket is above LOWEST, and stdin is /dev/null. */
static int move_socket(int socket, struct sp_err *e)
{
    const struct timeval patience = {.tv_sec = SILENCE_S};
    auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    auto_close int fd = fcntl(socket, F_DUPFD_CLOEXEC, LOWEST);

    if (fd < 0)
        fd = fcntl(socket, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* a low RLIMIT_NOFILE */
    if (null < 0 || fd < 0 || dup2(null, socket) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "take the keeper's socket");
    return TAKE_FD(fd);
}

static void note_held(struct sp_hold *h, const struct sp_keeper_message *m, const int *fds)
{
    struct sp_hold_item *k = m->count == 0 ? NULL : add_held(h, m->key);

    if (k == NULL) {
        sp_keeper_close_fds(fds, m->count);
        return;
    }
    close_held(k);
    k->count = m->count;
    memcpy(k->fds, fds, m->count * sizeof fds[0]);
    memcpy(k->text, m->text, sizeof m->text);
}

/* HELD ..., GO. */
static int receive_held(struct sp_hold *h, struct sp_err *e)
{
    struct sp_keeper_message m;
    int fds[SP_KEEPER_FDS];
    int r;

    while ((r = sp_keeper_recv(h->socket, true, &m, fds)) == 1 && m.op != SP_KEEPER_GO) {
        if (m.op == SP_KEEPER_HELD)
            note_held(h, &m, fds);
        else
            sp_keeper_close_fds(fds, m.count);
    }
    if (r < 0)
        return sp_fail(e, SP_E_SYSTEM, -r, "hear from the keeper");
    sp_keeper_close_fds(fds, m.count);
    h->generation = m.key;
    h->role = (enum sp_hold_role)(m.a >> 32);
    h->last_status = (int)(uint32_t)m.a;
    h->keeper = (pid_t)m.b;
    return 0;
}

int sp_hold_begin(int socket, struct sp_hold **ret, struct sp_err *e)
{
    static struct sp_hold hold; /* a process has one keeper at most */
    struct sp_keeper_message hello = {.op = SP_KEEPER_HELLO, .text = SP_VERSION};

    hold.socket = move_socket(socket, e);
    if (hold.socket < 0)
        return hold.socket;
    int r = sp_keeper_send(hold.socket, true, hello, NULL);
    if (r < 0)
        return sp_fail(e, SP_E_SYSTEM, -r, "speak to the keeper");
    r = receive_held(&hold, e);
    if (r == 0)
        *ret = &hold;
    return r;
}

/* ---- keeping ---- */

bool sp_hold_take(struct sp_hold *h, uint64_t key, int fds[SP_HOLD_FDS], unsigned *ret_count,
                  char text[SP_HOLD_TEXT + 1])
{
    struct sp_hold_item *k = h == NULL ? NULL : find_held(h, key);

    if (k == NULL || k->count == 0)
        return false;
    memcpy(fds, k->fds, k->count * sizeof fds[0]);
    *ret_count = k->count;
    if (text != NULL)
        memcpy(text, k->text, sizeof k->text);
    k->count = 0;
    return true;
}

bool sp_hold_next(const struct sp_hold *h, enum sp_hold_kind kind, uint64_t after,
                  uint64_t *ret_key)
{
    const uint64_t least = SP_HOLD_KEY(kind, 0);

    if (h == NULL)
        return false;
    for (unsigned i = find_place(h, after < least ? least : after + 1); i < h->count; i++) {
        if (h->held[i].key >> 32 != kind)
            return false;
        if (h->held[i].count > 0) {
            *ret_key = h->held[i].key;
            return true;
        }
    }
    return false;
}

int sp_hold_keep(struct sp_hold *h, uint64_t key, const int *fds, unsigned count, const char *text,
                 struct sp_err *e)
{
    struct sp_keeper_message m = {.op = SP_KEEPER_KEEP, .count = count, .key = key};

    if (h == NULL)
        return 0;
    struct sp_hold_item *k = add_held(h, key);
    if (k == NULL)
        return sp_fail(e, SP_E_LIMIT, 0, "the keeper holds %d keys already", SP_HOLD_KEYS);
    close_held(k);
    if (text != NULL)
        memcpy(m.text, text, strnlen(text, sizeof m.text));
    const int r = sp_keeper_send(h->socket, true, m, fds);
    return r < 0 ? sp_fail(e, SP_E_SYSTEM, -r, "hand descriptors to the keeper") : 0;
}

static void send_or_log(struct sp_hold *h, struct sp_keeper_message m)
{
    const int r = sp_keeper_send(h->socket, true, m, NULL);

    if (r < 0)
        sp_log(SP_LOG_WARN, "speak to the keeper: %s", sp_errno_text(-r));
}

void sp_hold_drop(struct sp_hold *h, uint64_t key)
{
    struct sp_hold_item *k = h == NULL ? NULL : find_held(h, key);

    if (k == NULL)
        return;
    close_held(k);
    h->count--;
    memmove(k, k + 1, (size_t)(&h->held[h->count] - k) * sizeof *k);
    send_or_log(h, (struct sp_keeper_message){.op = SP_KEEPER_DROP, .key = key});
}

void sp_hold_ready(struct sp_hold *h)
{
    if (h == NULL)
        return;
    for (unsigned i = h->count; i-- > 0;)
        if (h->held[i].count > 0)
            sp_hold_drop(h, h->held[i].key);
    send_or_log(h, (struct sp_keeper_message){.op = SP_KEEPER_READY});
}

void sp_hold_ending(struct sp_hold *h, int status)
{
    if (h != NULL)
        send_or_log(h, (struct sp_keeper_message){.op = SP_KEEPER_ENDING, .a = (uint64_t)status});
}
