/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files: file operations for the front, which does not wait for them: they are done by processes of
 * the cells (cell/cell_files.h), under a policy in the cell of that policy, and come back as
 * events.
 *
 * Each such process does one thing at a time. There are at most SP_FILES_SERVERS_MAX in all and
 * SP_FILES_CLIENT_MAX at work for one client; what is beyond waits, at most SP_FILES_WAITING_MAX
 * for a client and with at most SP_FILES_DATA_MAX bytes to be written, then sp_files_ask refuses
 * (SP_E_LIMIT). One that hangs on a dead disk hangs alone.
 * What is read for one client, and not yet taken by it, is at most SP_FILES_READING_MAX bytes: a
 * file is asked for as one of SP_FILES_SMALL_READ bytes at the most and, should it be larger, once
 * more when nothing else is read for that client. Who does not read its answers is_held. Idle ones
 * end after SP_FILES_IDLE_MS; they never keep a cell alive, but one at work does.
 *
 * Order: two operations of one client, one of which changes something, are done in the order they
 * were asked for if their paths are the same or one is above the other (as written), or if they are
 * about the same handle; unless the client is_concurrent. Others may overtake each other.
 */
#ifndef SP_CORE_FILES_H
#define SP_CORE_FILES_H

#include "base/str.h"
#include "cell/file/file.h"
#include "core/closer.h"
#include "core/session.h"

#define SP_FILES_SERVERS_MAX 64
#define SP_FILES_ORPHANS_MAX \
    192 /* at work for a client that is gone; beyond, they count as others */
#define SP_FILES_CLIENT_MAX  8
#define SP_FILES_WAITING_MAX 1024
#define SP_FILES_DATA_MAX    (256U << 20)
#define SP_FILES_SMALL_READ  (64U << 20)  /* a client has room for SP_FILES_CLIENT_MAX of these */
#define SP_FILES_READING_MAX (512U << 20) /* at least SP_FILE_MAX_READ */
#define SP_FILES_IDLE_MS     10000

struct sp_files;
struct sp_files_server; /* private: one process */

struct sp_files_client { /* embedded in a connection, zero before use */
    bool is_concurrent;
    bool is_held; /* it does not read its answers: nothing more begins until sp_files_resume */
    struct sp_files_call *first, *last; /* at work or waiting, in the order they were asked for */
    uint32_t working, waiting;
    uint64_t kept;    /* bytes in memory files, to be written */
    uint64_t reading; /* bytes that files may have which are being read */
};

struct sp_files_job {
    struct sp_file_ask ask; /* data and data_len are not used: */
    struct sp_str raw;      /* the same as bytes, if base64 is none */
    struct sp_str base64;   /* WRITE, WRITE_BLOCK: the data; the window or a memory file gets it */
    const struct sp_policy *policy; /* NULL: no sandbox */
    uint64_t session;               /* whose cell */
    /* OPEN and blocks: where the file of a handle is or will be; NULL: none. A block takes its fd
     * from here when its turn has come, SP_E_NOT_FOUND if that is none (-1) then. */
    const int *handle;
};

/* One operation under way, embedded in whoever waits for it. */
struct sp_files_call {
    /* The last that is heard of it; it may be freed in here. With an error (no answer: the process
     * or its cell ended, or the policy cannot be enforced) *a is NULL. Data in *a->window is
     * borrowed for the call, hostile, and may change while it is read: copy before you judge. The
     * fd of OPEN is the callee's. */
    void (*done)(struct sp_files_call *c, const struct sp_file_answer *a, const struct sp_err *e);

    /* its own */
    struct sp_files *files;
    struct sp_files_client *client; /* NULL: not asked, or done */
    struct sp_files_call *prev, *next;
    struct sp_files_server *server; /* NULL: it waits */
    struct sp_files_parked *parked; /* what is kept of the job while it waits */
};

int sp_files_new(struct sp_server *server, struct sp_files **ret, struct sp_err *e);
/* Nobody waits any more; before the cells end. */
void sp_files_free(struct sp_files *f);

/*
 * Asks; done comes later, never from within. Everything in the job is borrowed for the call but an
 * fd and the handle, which must stay until done. Refused at once: bad base64 (SP_E_INVALID), a
 * limit (SP_E_LIMIT), no memory, a policy that is wrong or cannot be enforced (as
 * sp_cell_pool_get).
 */
int sp_files_ask(struct sp_files *f, struct sp_files_client *client, const struct sp_files_job *job,
                 struct sp_files_call *call, struct sp_err *e);
/* Nobody wants to know: done is not called. What is at work goes on to its end. */
void sp_files_drop(struct sp_files_call *call);

/* A client is held no more. */
void sp_files_resume(struct sp_files *f, struct sp_files_client *client);

/* For the file of a handle: whether one more may be opened, so that it can be closed, too.
 * SP_E_LIMIT: a disk does not answer, and too many of its files are not closed yet. */
int sp_files_can_open(struct sp_files *f, struct sp_err *e);
/* Closes it where nobody waits for it (core/closer.h). */
void sp_files_close(struct sp_files *f, struct sp_closing *c, int fd);

/* For those who look from outside: processes, calls at work, calls that wait. */
struct sp_files_counts {
    uint32_t servers, working, waiting;
};
struct sp_files_counts sp_files_counts(const struct sp_files *f);

#endif
