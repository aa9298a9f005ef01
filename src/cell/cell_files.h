/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell_files: the file worker, a process of the cell that carries out file operations for the
 * front, one at a time, so that neither front nor cell waits for the disk of an operation. It is
 * confined as the cell's commands are.
 *
 * The front makes a seqpacket socket pair and sends SP_WIRE_FILES with one end; the cell forks,
 * without execve, because a confined view may not contain our program. The child closes all
 * descriptors of the cell except that socket, enters the Landlock scope that commands enter, and
 * serves until the socket ends. The first datagram brings the window: a memory file of
 * SP_FILES_SHARED bytes that both sides map.
 *
 * A request is one datagram: struct sp_file_wire_request, its paths, and a descriptor if the
 * operation needs one (a file for blocks, an inotify descriptor, or a memory file with data that
 * exceeds the window). An answer is one datagram: struct sp_file_wire_answer and at most one
 * descriptor. After an OPEN a second datagram, SP_FILES_CLOSED, says that the child has closed its
 * copy of the file; it takes no request before. A READ of several pieces sends SP_FILES_BEGUN with
 * the size of the file after the first one, and counts the pieces in the window's head: the front
 * encodes them while the next ones are read, and sends nothing before the answer. The front treats
 * answers as hostile: commands in the cell have the worker's uid. It is not dumpable, but the front
 * does not rely on that.
 */
#ifndef SP_CELL_CELL_FILES_H
#define SP_CELL_CELL_FILES_H

#include <stdatomic.h>

#include "cell/file/file.h"

#define SP_FILES_WINDOW (2U << 20)
#define SP_FILES_SHARED (SP_FILES_WINDOW + 4096) /* the memory file: the window, and its head */

/* Behind the window. The front sets it to 0 before each request. */
struct sp_files_head {
    /* READ: bytes of the file that are in the window, and stay there; COPY: bytes copied so far */
    _Atomic uint64_t filled;
};

enum { /* flags of a request */
       SP_FILES_FOLLOWS = 1,
       SP_FILES_RECURSIVE = 2,
       SP_FILES_FORCED = 4,
       SP_FILES_REPLACE = 8,
       SP_FILES_DATA_APART =
           64, /* the data is in the memory file beside the request, not in the window */
       SP_FILES_HIDES_PLACEHOLDERS = 128,
};

struct sp_file_wire_request {
    uint32_t op, flags;
    uint64_t number; /* echoed in the answer */
    uint64_t offset, data_len;
    uint32_t length;
    struct sp_file_walk walk;
    uint16_t path_len, other_len; /* bytes behind this, without NUL; 0: none */
};

enum { /* flags of an answer */
       SP_FILES_CUT = 1,
       SP_FILES_APART = 2,  /* the data is in the memory file beside the answer */
       SP_FILES_OPENED = 4, /* the file is beside the answer */
       SP_FILES_IS_DIRECTORY = 8,
       SP_FILES_IS_FILE = 16,
       SP_FILES_IS_LINK = 32,
       SP_FILES_CLOSED = 64, /* not an answer: the child has closed the OPENED file */
       SP_FILES_BEGUN = 128, /* not an answer: a first piece of a file is in the window */
};

struct sp_file_wire_answer {
    uint64_t number;
    int32_t err;
    uint32_t refusal;
    uint32_t flags, zero;
    uint64_t data_len, value;
    uint64_t size;
    int64_t created_ms, modified_ms;
};

/* ---- the wire, checked by both sides ---- */

#define SP_FILES_PATHS     (2 * (SP_FILE_MAX_PATH + 1)) /* room for both, each with its NUL */
#define SP_FILES_ERRNO_MAX 4096                         /* the kernel's */

/* Splits the `len` bytes behind a request into its two paths, in place; NULL: none. false: the
 * lengths in the request do not match. */
bool sp_files_cut_paths(const struct sp_file_wire_request *m, char paths[SP_FILES_PATHS],
                        size_t len, const char **ret_path, const char **ret_other);

/* Whether the answer is plausible for a request with this op and length. Does not check the
 * descriptor itself. */
static inline bool sp_files_is_answer(enum sp_file_op op, uint32_t length,
                                      const struct sp_file_wire_answer *m, bool has_fd)
{
    const bool is_apart = (m->flags & SP_FILES_APART) != 0;
    const bool is_opened = (m->flags & SP_FILES_OPENED) != 0;

    if (m->err < 0 || m->err >= SP_FILES_ERRNO_MAX || m->refusal >= SP_FILE_REFUSAL_MAX ||
        m->zero != 0)
        return false;
    if (m->err != 0 || m->refusal != SP_FILE_NOT_REFUSED)
        return !has_fd && !is_apart && !is_opened && m->data_len == 0;
    if (op == SP_FILE_OPEN)
        return has_fd && is_opened && !is_apart && m->data_len == 0;
    const bool is_limited = op == SP_FILE_READ_BLOCK || (op == SP_FILE_READ && length != 0);
    const uint32_t room = is_apart ? SP_FILE_MAX_READ : SP_FILES_WINDOW;
    return !is_opened && is_apart == has_fd && (!is_apart || m->data_len != 0) &&
           m->data_len <= (is_limited && length < room ? length : room);
}

/* In the forked child: serves until the socket ends. scope: a Landlock ruleset; -1: none. */
_Noreturn void sp_files_begin(int socket, int scope);

#endif
