/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_turn: which of a client's calls may begin: none before what has to be done first, and none
 * that there is no memory for.
 */
#include <string.h>

#include "core/files_priv.h"

/* ---- one thing after the other ---- */

static bool is_at_or_above(struct sp_str a, struct sp_str b)
{
    return a.n <= b.n && memcmp(a.p, b.p, a.n) == 0 &&
           (a.n == b.n || b.p[a.n] == '/' || a.p[a.n - 1] == '/');
}

static bool are_related(struct sp_str a, struct sp_str b)
{
    return a.n != 0 && b.n != 0 && (is_at_or_above(a, b) || is_at_or_above(b, a));
}

static struct sp_str path_of(const struct sp_files_parked *p)
{
    return (struct sp_str){p->paths, p->head.path_len};
}

static struct sp_str other_of(const struct sp_files_parked *p)
{
    return (struct sp_str){p->paths + p->head.path_len, p->head.other_len};
}

/* What is opened first has to be open. */
static bool is_opening(const struct sp_files_parked *a, const struct sp_files_parked *b)
{
    return a->handle != NULL && a->handle == b->handle && a->head.op == SP_FILE_OPEN;
}

static bool is_in_the_way(const struct sp_files_parked *a, const struct sp_files_parked *b)
{
    if (!a->changes && !b->changes)
        return false;
    if (a->handle != NULL && a->handle == b->handle)
        return true;
    return are_related(path_of(a), path_of(b)) || are_related(path_of(a), other_of(b)) ||
           are_related(other_of(a), path_of(b)) || are_related(other_of(a), other_of(b));
}

/* ---- room for what is read ---- */

static bool is_read(const struct sp_files_call *c)
{
    return c->parked->head.op == SP_FILE_READ;
}

/* A large one that waits is not to wait for ever behind small ones that come later. */
static bool waits_for_room(const struct sp_files_call *c)
{
    return is_read(c) && c->server == NULL && c->parked->head.length > SP_FILES_SMALL_READ;
}

bool sp_files_may_be_larger(const struct sp_files_call *c)
{
    return is_read(c) && c->parked->head.length < c->parked->limit;
}

bool sp_files_is_too_large(const struct sp_files_call *c, const struct sp_file_answer *a)
{
    return a != NULL && a->err == 0 && a->refusal == SP_FILE_TOO_LARGE && sp_files_may_be_larger(c);
}

void sp_files_count_read(struct sp_files_call *c, bool begins)
{
    const uint64_t bytes = is_read(c) ? c->parked->head.length : 0;

    c->client->reading = begins ? c->client->reading + bytes : c->client->reading - bytes;
}

/* ---- turns ---- */

/* Whether an earlier one of the same client has to be done first. */
static bool must_wait(const struct sp_files_call *c)
{
    for (const struct sp_files_call *i = c->client->first; i != c; i = i->next)
        if (is_opening(i->parked, c->parked) ||
            (!c->client->is_concurrent && is_in_the_way(i->parked, c->parked)) ||
            (is_read(c) && waits_for_room(i)))
            return true;
    return false;
}

bool sp_files_is_its_turn(const struct sp_files_call *c)
{
    const struct sp_files_client *client = c->client;

    return !client->is_held && client->working < SP_FILES_CLIENT_MAX &&
           (!is_read(c) || client->reading + c->parked->head.length <= SP_FILES_READING_MAX) &&
           !must_wait(c);
}
