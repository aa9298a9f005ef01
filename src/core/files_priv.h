/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_priv: what the calls (files.c) and the processes that carry them out (files_server.c)
 * share.
 */
#ifndef SP_CORE_FILES_PRIV_H
#define SP_CORE_FILES_PRIV_H

#include "cell/cell_files.h"
#include "core/files.h"

/* A call's message, and what it needs while it waits. */
struct sp_files_parked {
    struct sp_files_call *call; /* while it waits */
    struct sp_files_parked *prev, *next;
    struct sp_files_ask head;
    bool changes, has_policy;
    int fd; /* borrowed; -1: none */
    const int *handle;
    uint32_t limit; /* READ: bytes that the caller takes; head.length may be less at first */
    int data;       /* a memory file; -1: in the window, or none */
    size_t kept;
    struct sp_policy policy;
    uint64_t session;
    char paths[]; /* as behind the head */
};

#define SP_FILES_SPARE_MAX (64U << 20)

struct sp_files {
    struct sp_server *server;
    struct sp_loop *loop;
    struct sp_files_server *servers;
    struct sp_files_server *spare; /* the one that keeps a memory file; NULL: none does */
    uint32_t server_count;         /* without orphans */
    uint32_t orphan_count, waiting;
    struct sp_files_parked *first_waiting, *last_waiting;
    struct sp_closer *closer; /* NULL: nothing was to be closed yet */
    struct sp_deferred more;
};

/* ---- files_turn.c ---- */

bool sp_files_is_its_turn(const struct sp_files_call *c);
/* READ: it was asked for as a small file, which it may turn out not to be. */
bool sp_files_may_be_larger(const struct sp_files_call *c);
bool sp_files_is_too_large(const struct sp_files_call *c, const struct sp_file_answer *a);
void sp_files_count_read(struct sp_files_call *c, bool begins);

/* ---- files.c ---- */

/* The call is over: it is released and told, or asked once more. */
void sp_files_finish(struct sp_files_call *c, const struct sp_file_answer *a,
                     const struct sp_err *e);
/* Something has become free: later in this turn those that wait are looked at. */
void sp_files_go_on(struct sp_files *f);

/* ---- files_server.c ---- */

/* Whether one is at rest, or there may be a new one. */
bool sp_files_can_begin(const struct sp_files *f);
/* One at rest in this cell, or a new one; *ret NULL: there are too many, all at work. */
int sp_files_find_server(struct sp_files *f, struct sp_cell *cell, bool is_confined,
                         struct sp_files_server **ret, struct sp_err *e);
int sp_files_server_ask(struct sp_files_server *s, struct sp_files_call *c, struct sp_err *e);
void sp_files_server_forget(struct sp_files_server *s); /* nobody wants its answer */
/* The same before there is one: it may hang for ever, and is in nobody's way. */
void sp_files_server_orphan(struct sp_files_server *s);
char *sp_files_window(struct sp_files_server *s);
/* A memory file for data, of any size and content; -1: errno. Pages cost more than what is done
 * with them, so the last that a process had and answered stays for its next one, unless it has more
 * than SP_FILES_SPARE_MAX bytes: one in all, until the process has rested, and never for another,
 * which may have another policy. s NULL: for one that is not known yet. */
int sp_files_take_memory(struct sp_files_server *s);
void sp_files_give_memory(struct sp_files_server *s, int fd, size_t size);
bool sp_files_server_is_working(const struct sp_files_server *s);
struct sp_files_server *sp_files_next_server(const struct sp_files_server *s);
void sp_files_end_servers(struct sp_files *f);

#endif
