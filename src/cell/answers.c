/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/answers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/wire.h"

struct sp_queued_answer {
    struct sp_queued_answer *next;
    int fd; /* owned; -1: none, or the input of a command */
    size_t len;
    _Alignas(8) char bytes[];
};

/* 0: sent, or it never will be. Otherwise it may be sent later. */
static int send_now(struct sp_answers *a, const void *message, size_t len, int fd)
{
    const int r = sp_wire_send(a->socket, false, message, len, NULL, 0, &fd, fd >= 0);

    /* ETOOMANYREFS: too many descriptors of this user are in sockets. */
    a->is_short = sp_wire_is_short(r) || r == -ETOOMANYREFS;
    return r == -EAGAIN || a->is_short ? r : 0;
}

/* Out of memory: a start is not answered, and the front gives it up after its deadline. */
static void enqueue(struct sp_answers *a, const void *message, size_t len, int fd)
{
    const struct sp_wire_head *head = message;
    struct sp_queued_answer *new = malloc(sizeof *new + len);

    if (new == NULL)
        return;
    new->next = NULL;
    new->fd = fd < 0 || head->op == SP_WIRE_STARTED ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 7);
    new->len = len;
    memcpy(new->bytes, message, len);
    if (head->op == SP_WIRE_SOCKET && fd >= 0 && new->fd < 0)
        ((struct sp_wire_done *)(void *)new->bytes)->err = EMFILE;
    *a->end = new;
    a->end = &new->next;
    a->count++;
}

void sp_answers_send(struct sp_answers *a, const void *message, size_t len, int fd)
{
    if (!a->is_kept)
        (void)sp_wire_send(a->socket, true, message, len, NULL, 0, &fd, fd >= 0);
    else if (a->first != NULL || send_now(a, message, len, fd) != 0)
        enqueue(a, message, len, fd);
}

/* The command may have ended meanwhile, and its input with it. */
static int input_of(const struct sp_answers *a, struct sp_wire_started *m)
{
    const struct sp_command *c = &a->cell->commands[m->head.slot];
    const bool is_it = m->has_input != 0 && c->life != SP_LIFE_NONE && c->number == m->head.number;
    const int fd = !is_it ? -1 : c->is_tty ? c->stream[0] : c->input;

    m->has_input = fd >= 0;
    return fd;
}

static void pop(struct sp_answers *a)
{
    struct sp_queued_answer *first = a->first;

    a->first = first->next;
    if (a->first == NULL)
        a->end = &a->first;
    a->count--;
    if (first->fd >= 0)
        (void)close(first->fd);
    free(first);
}

bool sp_answers_flush(struct sp_answers *a)
{
    while (a->first != NULL) {
        struct sp_queued_answer *first = a->first;
        struct sp_wire_head *head = (void *)first->bytes;
        const int fd = head->op == SP_WIRE_STARTED ? input_of(a, (void *)head) : first->fd;

        if (send_now(a, first->bytes, first->len, fd) != 0)
            return false;
        pop(a);
    }
    return true;
}

void sp_answers_drop(struct sp_answers *a)
{
    while (a->first != NULL)
        pop(a);
}
