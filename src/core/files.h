/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files: file operations for the front, which does not wait for the disk: file workers, processes
 * of the cells, do them (cell/cell_files.h), under a policy in the cell of that policy. Answers
 * come as events.
 *
 * Each worker does one operation at a time. There are at most SP_FILE_WORKERS_MAX workers in all,
 * and SP_FILES_CLIENT_MAX at work for one client. Further calls wait, at most SP_FILES_WAITING_MAX
 * for a client, with at most SP_FILES_DATA_MAX bytes to write; then sp_files_ask refuses
 * (SP_E_LIMIT). There is no deadline: a call on a dead disk holds its worker and its place among
 * the client's, and later calls that must keep their order wait for it.
 *
 * At most SP_FILES_READING_MAX bytes are read for one client at a time. A file is first read as one
 * of at most SP_FILES_SMALL_READ bytes; a larger one is read again when nothing else is read for
 * that client. A client that does not read its answers is_held. Workers that
 * rest (have no call) end after SP_FILES_IDLE_MS, confined ones much sooner: until then their cell
 * is busy, and the pool hears options.idle when the last one leaves. A pool that needs the place
 * ends a cell with its resting workers.
 *
 * Order: two operations of one client, one of which changes something, run in the order they were
 * asked for if their paths are equal or one contains the other (as written), or if they use the
 * same handle. Others may overtake each other.
 */
#ifndef SP_CORE_FILES_H
#define SP_CORE_FILES_H

#include "base/str.h"
#include "cell/file/file.h"
#include "core/session.h"
#include "core/workers.h"

#define SP_FILE_WORKERS_MAX  64
#define SP_FILES_ORPHANS_MAX 192 /* workers that no call waits for; more count as workers */
#define SP_FILES_CLIENT_MAX  8
#define SP_FILES_WAITING_MAX 1024
#define SP_FILES_DATA_MAX    (256U << 20)
#define SP_FILES_SMALL_READ  (64U << 20)  /* a client has room for SP_FILES_CLIENT_MAX of these */
#define SP_FILES_READING_MAX (512U << 20) /* at least SP_FILE_MAX_READ */
#define SP_FILES_IDLE_MS     10000
#define SP_CLOSING_MAX       1024 /* files that are not closed yet */
#define SP_CLOSING_THREADS   64

struct sp_file_worker; /* private: one process */

struct sp_files {
    struct sp_front *front;
    struct sp_loop *loop;
    struct sp_list workers;       /* the newest first */
    struct sp_file_worker *spare; /* the worker that keeps a memory file; NULL: none */
    uint32_t worker_count;        /* without orphans */
    uint32_t orphan_count;        /* workers that no call waits for, and that may hang */
    uint32_t working; /* workers that have a call, or had one of a client that is gone */
    uint32_t waiting_count;
    struct sp_list waiting;     /* calls */
    struct sp_workers *closers; /* threads, made for the first file to close; NULL: none yet */
    unsigned closing;           /* files that are not closed yet */
    struct sp_deferred more;
};

struct sp_files_client {  /* embedded in a connection, zero before use */
    bool is_held;         /* does not read its answers: no call begins until sp_files_resume */
    struct sp_list calls; /* at work or waiting, in the order they were asked for */
    uint32_t working, waiting;
    uint64_t kept;    /* bytes in memory files, to be written */
    uint64_t reading; /* the most bytes that the reads at work may return */
};

struct sp_files_job {
    struct sp_file_request request; /* data and data_len are not used */
    struct sp_str raw;              /* WRITE, WRITE_BLOCK: the data, if base64.p is NULL */
    struct sp_str base64;           /* the data in base64 */
    const struct sp_policy *policy; /* NULL: no sandbox */
    uint64_t session;               /* selects the cell of the policy */
    /* OPEN and blocks: holds the descriptor of the handle; NULL: no handle. A block reads the
     * descriptor when its turn comes; -1 fails with SP_E_NOT_FOUND. */
    const int *handle;
};

/* One pending operation, embedded in its requester. */
struct sp_files_call {
    /* Called once; may free the call. With an error (the worker or its cell ended, or the policy
     * cannot be enforced) a is NULL. Data in *a->window is borrowed, hostile, and may change while
     * it is read: copy it before checking it. The callee closes the fd of OPEN. */
    void (*done)(struct sp_files_call *c, const struct sp_file_answer *a, const struct sp_err *e);
    /* READ: a file of about `size` bytes is being read; *filled of them are in the window, and more
     * come meanwhile. Either the answer with all of them follows at once, or a call with window
     * NULL: then it comes later, with everything. NULL: not called. */
    void (*some)(struct sp_files_call *c, const char *window, const _Atomic uint64_t *filled,
                 uint64_t size);

    /* private */
    struct sp_files *files;
    struct sp_files_client *client; /* NULL: not asked, or done */
    struct sp_list link;
    struct sp_file_worker *worker;    /* NULL: the call waits */
    struct sp_files_message *message; /* with its data */
};

int sp_files_new(struct sp_front *front, struct sp_files **ret, struct sp_err *e);
/* No call may be pending. Before the cells are freed. */
void sp_files_free(struct sp_files *f);

/*
 * done is called later, never from within. The job is borrowed for the call, but an fd and the
 * handle must stay valid until done. Refused at once: bad base64 (SP_E_INVALID), a limit
 * (SP_E_LIMIT), no memory, a policy that is wrong or cannot be enforced (as
 * sp_cell_pool_get).
 */
int sp_files_ask(struct sp_files *f, struct sp_files_client *client, const struct sp_files_job *job,
                 struct sp_files_call *call, struct sp_err *e);
/* Cancels: done is not called. An operation at work continues to its end. */
void sp_files_drop(struct sp_files_call *call);

/* Clears is_held. */
void sp_files_resume(struct sp_files *f, struct sp_files_client *client);

/*
 * ---- closing ----
 *
 * On a network or FUSE file system close() may write back data and wait for a server or a program
 * that never answers; the front must not wait. One thread closes the files of one file system, so a
 * file system that hangs delays its own files only. Closing is never refused: it waits for a
 * thread. Only if there is no memory for the threads at all, the front closes, which may block.
 */

/* Embedded in the owner of the file; stays valid until done. */
struct sp_closing {
    void (*done)(struct sp_closing *c); /* the file is closed; *c may be freed here */

    /* private */
    struct sp_files *files;
    struct sp_work work;
    int fd;
};

/* Whether one more handle may be opened. SP_E_LIMIT: SP_CLOSING_MAX files wait to be closed, on a
 * disk that does not answer. */
int sp_files_can_open(struct sp_files *f, struct sp_err *e);
/* Closes the file in a thread. done is called later (at once if the front closes), unless
 * sp_files_free comes first and the file hangs. */
void sp_files_close(struct sp_files *f, struct sp_closing *c, int fd);

#endif
