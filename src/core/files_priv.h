/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_priv: what the calls (files.c) and the processes that carry them out (files_server.c)
 * share.
 */
#ifndef SP_CORE_FILES_PRIV_H
#define SP_CORE_FILES_PRIV_H

#include "cell/cell_files.h"
#include "core/files.h"

/* The message of a call, and its data while it waits. */
struct sp_files_parked {
    struct sp_files_call *call; /* valid while it waits */
    struct sp_files_parked *prev, *next;
    struct sp_files_ask head;
    bool changes, has_policy;
    int fd; /* borrowed; -1: none */
    const int *handle;
    uint32_t limit; /* READ: the most bytes for the caller; head.length may be less at first */
    int data;       /* a memory file; -1: in the window, or none */
    size_t kept;
    struct sp_policy policy;
    uint64_t session;
    char paths[]; /* path and other, without NUL, as they follow the head */
};

#define SP_FILES_SPARE_MAX (64U << 20)

struct sp_files {
    struct sp_front *front;
    struct sp_loop *loop;
    struct sp_files_server *servers;
    struct sp_files_server *spare; /* the server that keeps a memory file; NULL: none */
    uint32_t server_count;         /* without orphans */
    uint32_t orphan_count, waiting;
    struct sp_files_parked *first_waiting, *last_waiting;
    struct sp_closer *closer; /* made for the first file to close; NULL: none yet */
    struct sp_deferred more;
};

/* ---- files.c ---- */

/* The answer (a), or why there is none (e): reports it, or repeats a read that needs more memory.
 */
void sp_files_finish(struct sp_files_call *c, const struct sp_file_answer *a,
                     const struct sp_err *e);
/* A server or memory has become free: waiting calls are tried later in this turn of the loop. */
void sp_files_go_on(struct sp_files *f);

/* ---- files_server.c ---- */

/* Whether a server is idle, or may be made. */
bool sp_files_can_begin(const struct sp_files *f);
/* An idle server of this cell, or a new one; *ret NULL: all are at work, and no more are allowed.
 */
int sp_files_find_server(struct sp_files *f, struct sp_cell *cell, bool is_confined,
                         struct sp_files_server **ret, struct sp_err *e);
int sp_files_server_ask(struct sp_files_server *s, struct sp_files_call *c, struct sp_err *e);
void sp_files_server_forget(struct sp_files_server *s); /* its answer is dropped */
/* The client of its call is gone; the server may hang, and counts as an orphan from now on. */
void sp_files_server_orphan(struct sp_files_server *s);
char *sp_files_window(struct sp_files_server *s);
/* A memory file for data, of any size and content; -1: errno. Allocating pages costs more than the
 * write itself, so one server keeps the file of its last call (up to SP_FILES_SPARE_MAX bytes) for
 * its next call. It never goes to another server, which may have another policy. s NULL: the call
 * has no server yet. */
int sp_files_take_memory(struct sp_files_server *s);
void sp_files_give_memory(struct sp_files_server *s, int fd, size_t size);
bool sp_files_server_is_working(const struct sp_files_server *s);
struct sp_files_server *sp_files_next_server(const struct sp_files_server *s);
void sp_files_end_servers(struct sp_files *f);

#endif
