/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/grow.h"

/* How long the cell blocks on a start: execve normally happens within 1 ms, later on a busy
 * machine. While another start is pending, a disk probably hangs, and starts must not block the
 * other commands one after the other. */
#define PATIENCE_MS   10
#define IMPATIENCE_MS 1

#define YOUNG_MS        50 /* a pending start is polled every YOUNG_POLL_MS for this long */
#define YOUNG_POLL_MS   1
#define PENDING_POLL_MS 10
#define DYING_POLL_MS   100

struct sp_start_room {
    struct sp_pending_start start; /* start.spawn.stack is owned by the room */
    struct sp_command *command;    /* NULL: abandoned, the child is not reaped yet */
    struct sp_wire_message *message;
    void *map; /* strings that came in a memfd; NULL: none */
    size_t map_len;
    char **pointers; /* argv and envp */
    size_t pointer_cap;
    uint64_t began_ms;
};

/* ---- rooms ---- */

static void free_room(struct sp_start_room *r)
{
    if (r == NULL)
        return;
    if (r->map != NULL)
        (void)munmap(r->map, r->map_len);
    sp_spawn_free_stack(r->start.spawn.stack);
    free(r->message);
    free(r->pointers);
    free(r);
}

static struct sp_start_room *new_room(void)
{
    struct sp_start_room *r = calloc(1, sizeof *r);

    if (r == NULL)
        return NULL;
    r->message = malloc(sizeof *r->message);
    r->start.spawn.stack = sp_spawn_new_stack();
    if (r->message == NULL || r->start.spawn.stack == NULL) {
        free_room(r);
        return NULL;
    }
    r->message->fd_count = 0;
    return r;
}

/* The child uses the room no more. */
static void give_back(struct sp_starts *s, struct sp_start_room *r)
{
    if (r->map != NULL)
        (void)munmap(r->map, r->map_len);
    r->map = NULL;
    r->command = NULL;
    if (s->ready == NULL)
        s->ready = r;
    else
        free_room(r);
}

/* ---- the strings ---- */

/* The strings in the message, or mapped from its memfd. NULL: *ret_err says why. */
static char *strings_of(struct sp_start_room *r, const struct sp_wire_message *m,
                        const struct sp_wire_start *s, size_t *ret_len, int *ret_err)
{
    const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat st;

    *ret_err = EINVAL;
    if ((s->flags & SP_START_MEMFD) == 0) {
        *ret_len = m->len - sizeof *s;
        return *ret_len == s->string_bytes ? (char *)(uintptr_t)m->bytes + sizeof *s : NULL;
    }
    if (m->fd_count != 1 || fstat(m->fds[0], &st) < 0 || st.st_size <= 0 ||
        st.st_size != (off_t)s->string_bytes || s->string_bytes > SP_WIRE_STRINGS)
        return NULL;
    /* Sealed: the front cannot change or truncate it between our check and the child's use. */
    const int seals = fcntl(m->fds[0], F_GET_SEALS);
    if (seals < 0 || (seals & want) != want)
        return NULL;
    void *map = mmap(NULL, s->string_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, m->fds[0], 0);
    if (map == MAP_FAILED) {
        *ret_err = errno;
        return NULL;
    }
    r->map = map;
    r->map_len = *ret_len = s->string_bytes;
    return map;
}

/* 0 or errno */
static int read_strings(struct sp_start_room *r, const struct sp_wire_message *m,
                        const struct sp_wire_start *s)
{
    size_t len = 0;
    int err = 0;
    char *text = strings_of(r, m, s, &len, &err);

    if (text == NULL)
        return err;
    const uint64_t n = (uint64_t)s->argc + s->envc + 2;
    if (n > SP_WIRE_STRINGS)
        return EINVAL;
    if (!SP_GROW(r->pointers, n, r->pointer_cap))
        return ENOMEM;
    return sp_wire_read_strings(s, text, len, r->pointers, &r->start.strings) ? 0 : EINVAL;
}

/* ---- the answer ---- */

static void send_started(struct sp_starts *s, const struct sp_wire_started *reply, int ring,
                         int input)
{
    const int fds[2] = {ring, input};
    const int fd_count = reply->step != SP_STEP_NONE ? 0 : input >= 0 ? 2 : 1;

    /* Blocking is safe: the front never waits for us, and if it is gone sendmsg fails. */
    (void)sp_wire_send(s->control, true, reply, sizeof *reply, NULL, 0, fds, fd_count);
}

static void answer_start(struct sp_starts *s, struct sp_command *c, struct sp_pending_start *p)
{
    if (p->reply.step == SP_STEP_CLONE)
        c->is_terminated = true; /* perhaps the leaf made clone fail: do not reuse it */
    if (p->reply.step != SP_STEP_NONE)
        sp_strays_leave_leaf(s->strays, c, true);
    send_started(s, &p->reply, c->ring.fd, p->input);
    if (p->input >= 0 && !c->is_tty)
        (void)close(p->input);
    p->input = -1;
}

/* ---- starting ---- */

/* Lists the room as pending, with the message, because the child may use its strings. */
static void keep_pending(struct sp_starts *s, struct sp_start_room *r,
                         struct sp_wire_message **message)
{
    struct sp_wire_message *fresh = r->message;

    r->message = *message;
    *message = fresh;
    fresh->fd_count = 0;
    sp_wire_close_fds(r->message);
    s->pending[s->count++] = r;
}

void sp_starts_begin(struct sp_starts *s, struct sp_wire_message **message)
{
    const struct sp_wire_start *m = (const void *)(*message)->bytes;
    struct sp_command *c = m->head.slot < s->slots ? &s->commands[m->head.slot] : NULL;
    struct sp_start_room *r = NULL;
    int err = c == NULL || c->life != SP_LIFE_NONE ? EINVAL : (*message)->is_cut ? EMFILE : 0;

    if (err == 0 && s->count == SP_MAX_PENDING)
        err = EBUSY;
    if (err == 0) {
        r = s->ready != NULL ? s->ready : new_room();
        s->ready = NULL;
        err = r == NULL ? ENOMEM : 0;
    }
    if (err == 0)
        err = read_strings(r, *message, m);
    if (err == 0) {
        c->slot = m->head.slot;
        if (c->slot >= s->slot_end)
            s->slot_end = c->slot + 1;
        err = sp_strays_take_leaf(s->strays, c) ? 0 : errno;
    }
    if (err != 0) {
        struct sp_wire_started reply = {.head = m->head, .step = SP_STEP_PREPARE, .err = err};

        reply.head.op = SP_WIRE_STARTED;
        send_started(s, &reply, -1, -1);
        if (r != NULL)
            give_back(s, r);
        return;
    }
    struct sp_pending_start *p = &r->start;
    p->reply = (struct sp_wire_started){.head = m->head};
    p->reply.head.op = SP_WIRE_STARTED;
    p->input = p->pidfd = -1;
    p->patience_ms = s->count > 0 ? IMPATIENCE_MS : PATIENCE_MS;
    if (sp_command_start(s->cell, c, m, p)) {
        answer_start(s, c, p);
        if (p->pidfd < 0) {
            give_back(s, r);
            return;
        }
        r->command = NULL;
    } else {
        r->command = c;
        r->began_ms = s->cell->now_ms;
    }
    keep_pending(s, r, message);
}

/* ---- afterwards ---- */

/* true: the room's child was reaped, here or by a sweep. */
static bool is_reaped(struct sp_starts *s, struct sp_start_room *r)
{
    struct sp_pending_start *p = &r->start;
    siginfo_t info = {0};

    if (waitid(P_PIDFD, (id_t)p->pidfd, &info, WEXITED | WNOHANG) == 0) {
        if (info.si_pid == 0)
            return false;
        sp_strays_note_reaped(s->strays, info.si_pid);
    }
    (void)close(p->pidfd);
    p->pidfd = -1;
    return true;
}

/* true: the room can be reused. */
static bool poll_room(struct sp_starts *s, struct sp_start_room *r)
{
    struct sp_command *c = r->command;

    if (c != NULL && c->pending != &r->start)
        c = r->command = NULL; /* forgotten */
    if (c == NULL)
        return is_reaped(s, r);
    if (sp_command_poll_start(s->cell, c)) {
        answer_start(s, c, &r->start);
        return true;
    }
    if (s->cell->now_ms - r->began_ms < SP_START_DEADLINE_MS)
        return false;
    sp_command_give_up(s->cell, c);
    answer_start(s, c, &r->start);
    r->command = NULL;
    return false;
}

void sp_starts_poll(struct sp_starts *s)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        if (poll_room(s, s->pending[i]))
            give_back(s, s->pending[i]);
        else
            s->pending[left++] = s->pending[i];
    }
    s->count = left;
}

int sp_starts_timeout(const struct sp_starts *s)
{
    int timeout = s->count > 0 ? DYING_POLL_MS : -1;

    for (uint32_t i = 0; i < s->count; i++) {
        const struct sp_start_room *r = s->pending[i];

        if (r->command != NULL && s->cell->now_ms - r->began_ms < YOUNG_MS)
            return YOUNG_POLL_MS;
        if (r->command != NULL)
            timeout = PENDING_POLL_MS;
    }
    return timeout;
}

void sp_starts_wipe(struct sp_starts *s)
{
    if (s->ready != NULL)
        explicit_bzero(s->ready->message->bytes, sizeof s->ready->message->bytes);
    for (uint32_t i = 0; i < s->count; i++) {
        struct sp_start_room *r = s->pending[i];

        explicit_bzero(r->message->bytes, sizeof r->message->bytes);
        if (r->map != NULL)
            (void)munmap(r->map, r->map_len);
    }
}

void sp_starts_free(struct sp_starts *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct sp_start_room *r = s->pending[i];
        const bool is_forgotten = r->command == NULL || r->command->pending != &r->start;

        if (is_forgotten && is_reaped(s, r))
            free_room(r); /* otherwise the child still uses it, and dies with us */
    }
    free_room(s->ready);
}
