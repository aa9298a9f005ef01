/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files: a process of the cell that does file operations, one at a time, for the front: confined as
 * the cell's commands are, and the only one that waits for a slow disk.
 *
 * The front makes a seqpacket socket pair and sends SP_WIRE_FILES with one end; the cell forks,
 * without execve: in a confined view there may be no program of ours. The child keeps nothing of
 * the cell's but that socket, enters the scope that a command enters, and serves until it ends. The
 * first datagram brings the window: a memory file of SP_FILES_WINDOW bytes that both sides map.
 *
 * One ask is one datagram: struct sp_files_ask, the paths behind it, and a descriptor if the
 * operation has one (a file for blocks, inotify, or a memory file with data that the window has no
 * room for). One answer is one datagram: struct sp_files_answer and perhaps one descriptor. After a
 * file that was opened comes one more, SP_FILES_BACK: the next ask would wait until then. The front
 * treats answers as hostile: a confined process may say anything.
 */
#ifndef SP_CELL_CELL_FILES_H
#define SP_CELL_CELL_FILES_H

#include "cell/file/file.h"

#define SP_FILES_WINDOW (2U << 20)

enum { /* flags of an ask */
       SP_FILES_FOLLOWS = 1,
       SP_FILES_RECURSIVE = 2,
       SP_FILES_FORCED = 4,
       SP_FILES_REPLACE = 8,
       SP_FILES_WALK_FOLLOWS = 16,
       SP_FILES_WALK_PRUNES = 32,
       SP_FILES_DATA_APART =
           64, /* the data is in the memory file beside the ask, not in the window */
       SP_FILES_HIDES = 128,
};

struct sp_files_ask {
    uint32_t op, flags;
    uint64_t number; /* comes back */
    uint64_t offset, data_len;
    uint32_t length;
    uint32_t max_depth, max_directories, max_entries;
    uint16_t path_len, other_len; /* bytes behind this, without NUL; 0: none */
};

enum { /* flags of an answer */
       SP_FILES_CUT = 1,
       SP_FILES_APART = 2,  /* the data is in the memory file beside the answer */
       SP_FILES_OPENED = 4, /* the file is beside the answer */
       SP_FILES_IS_DIRECTORY = 8,
       SP_FILES_IS_FILE = 16,
       SP_FILES_IS_LINK = 32,
       SP_FILES_BACK =
           64, /* no answer: what was OPENED is closed here, which may have taken long */
};

struct sp_files_answer {
    uint64_t number;
    int32_t err;
    uint32_t refusal;
    uint32_t flags, zero;
    uint64_t data_len, value;
    uint64_t size;
    int64_t created_ms, modified_ms;
};

/* ---- what both sides look at (files_wire.c) ---- */

#define SP_FILES_PATHS     (2 * (SP_FILE_MAX_PATH + 1)) /* room for both, each with its NUL */
#define SP_FILES_ERRNO_MAX 4096                         /* the kernel's */

struct msghdr;
/* The descriptor that came with a datagram, at most one; -1: none. Others are closed. */
int sp_files_take_fd(struct msghdr *h);

/* Two strings out of the `len` bytes behind an ask; NULL: none. false: they are not as long as it
 * says. */
bool sp_files_cut_paths(const struct sp_files_ask *m, char paths[SP_FILES_PATHS], size_t len,
                        const char **ret_path, const char **ret_other);

/* Whether a process of ours could say this to what it was asked. length: as asked. What the
 * descriptor is has yet to be seen. */
bool sp_files_is_answer(enum sp_file_op op, uint32_t length, const struct sp_files_answer *m,
                        bool has_fd);

/* In the child: serves until the socket ends. scope: a Landlock rule set to enter; -1: none. */
_Noreturn void sp_files_begin(int socket, int scope);

#endif
