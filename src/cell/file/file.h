/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: what a file method does to the disk. One call, one operation, which may take as long as the
 * disk does: only for processes that may wait (cell/cell_files.h). Knows no JSON, no URI but the
 * length of one, no client.
 *
 * Paths are absolute and not empty. Everything on the disk is hostile: links swapped meanwhile,
 * FIFOs, devices, directories without end, names of any bytes.
 */
#ifndef SP_CELL_FILE_FILE_H
#define SP_CELL_FILE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum sp_file_op {
    SP_FILE_READ = 1,   /* path: data is the whole file */
    SP_FILE_WRITE,      /* path, data */
    SP_FILE_MAKE,       /* path: a directory; is_recursive */
    SP_FILE_STAT,       /* path: stat */
    SP_FILE_CANONICAL,  /* path: data is the path without links */
    SP_FILE_LIST,       /* path: data is entries (struct sp_file_entry), in the directory's order */
    SP_FILE_WALK,       /* path, walk: data is entries, with whole paths */
    SP_FILE_REMOVE,     /* path; is_recursive, is_forced */
    SP_FILE_COPY,       /* path to other; is_recursive */
    SP_FILE_OPEN,       /* path: fd, a regular file to read or (is_replace) made empty to write */
    SP_FILE_READ_BLOCK, /* fd, offset, length: data */
    SP_FILE_WRITE_BLOCK, /* fd, offset, data */
    /* Both add to fd (os/notify.h). number: the watch of the directory in its lower half, and ...
     * Data: a struct sp_file_above for each directory above that one. */
    SP_FILE_WATCH_MISSING, /* path, which is not there (else EEXIST): the nearest directory above it
                              that is; ... how many bytes of the path that has */
    SP_FILE_WATCH_PRESENT, /* path, which is there: the directory it is in; ... its own watch */
    SP_FILE_OP_MAX
};

#define SP_FILE_MAX_READ    (512U << 20)
#define SP_FILE_MAX_BLOCK   (1U << 20)
#define SP_FILE_MAX_ENTRIES 50000 /* of one directory */
#define SP_FILE_MAX_WALK    (4U << 20)
#define SP_FILE_WALK_ITEM   64 /* what an entry counts for beside its URI and message */
#define SP_FILE_MAX_PATH    4096

struct sp_file_walk {
    uint32_t max_depth, max_directories, max_entries;
    bool follows_directories, prunes_hidden;
};

struct sp_file_ask {
    enum sp_file_op op;
    const char *path, *other; /* NULL: none */
    bool follows;             /* false: no component of the path may be a link */
    bool is_recursive, is_forced, is_replace;
    bool hides_placeholders; /* STAT, LIST, WALK: what stands in for a name that nobody may plant,
                                an empty directory of ours (core/placeholder.h), is not there */
    int fd;                  /* borrowed */
    uint64_t offset;
    uint32_t length; /* READ: no more than so many bytes; 0: SP_FILE_MAX_READ */
    struct sp_file_walk walk;
    const void *data;
    size_t data_len;
};

/* Refusals of our own, that no errno says; their texts are the wire's. */
enum sp_file_refusal {
    SP_FILE_NOT_REFUSED,
    SP_FILE_NOT_A_FILE,         /* to read: a directory, FIFO, device, socket */
    SP_FILE_HAS_LINK,           /* the last component is one, and no link may be followed */
    SP_FILE_TOO_LARGE,          /* to read: number is the limit */
    SP_FILE_TOO_MANY,           /* entries of a directory: number is how many there are at least */
    SP_FILE_TREE_WITHOUT_LINKS, /* recursive removal that follows no link is not offered */
    SP_FILE_COPY_TREE,          /* a directory, and the copy is not recursive */
    SP_FILE_COPY_INTO_ITSELF,
    SP_FILE_COPY_ONTO_ITSELF, /* a file: the same inode */
    SP_FILE_COPY_KIND,        /* neither file, directory nor link */
    SP_FILE_WALK_LIMITS_ZERO,
    SP_FILE_WALK_LIMITS_HIGH,
    SP_FILE_REFUSAL_MAX
};

struct sp_file_stat {
    bool is_directory, is_file, is_link;
    uint64_t size;
    int64_t created_ms, modified_ms; /* 0: unknown */
};

enum sp_file_entry_kind {
    SP_FILE_ENTRY_FILE = 1,
    SP_FILE_ENTRY_DIRECTORY,
    SP_FILE_ENTRY_OTHER, /* LIST alone */
    SP_FILE_ENTRY_ERROR, /* WALK alone: err is why this path could not be looked at */
};

/* Followed by name_len bytes (no NUL). Packed one after the other, not aligned: copy it out. */
struct sp_file_entry {
    uint32_t name_len;
    uint16_t kind;
    int16_t err;
};

/* A directory far above a path that is watched: it is told when that is moved or removed. */
struct sp_file_above {
    int32_t watch;
    uint32_t len; /* not 0: the next component, behind so many bytes of the path, is a link: its
                     names are told, too */
};

/* Where data goes that has no room in what the caller gave: memory of its own that can be handed
 * to another process. */
struct sp_file_answer {
    int err; /* errno; 0: done, or refused */
    enum sp_file_refusal refusal;
    uint64_t number;
    bool is_cut; /* WALK: truncated; READ_BLOCK: the end of the file came before length bytes */
    struct sp_file_stat stat;
    int fd; /* OPEN: the file; the caller's. -1: none */

    /* The caller gives room (window, window_size). On return the data is there, or, if that is too
     * small, in the sealed memory file `memory` (the caller's; -1: none). */
    char *window;
    size_t window_size;
    uint64_t data_len;
    int memory;
    /* In the front (core/files.h) alone. Not NULL: the data is a mapping of its own; who sets this
     * has it from then on and ends it (munmap of data_len bytes at window). Nobody can cut or
     * change it. */
    bool *is_kept;
};

/* The next entry of LIST or WALK out of *left, which gets shorter by it; the name points there. The
 * bytes are a copy that nobody changes. false: no whole one is left, or it is none of ours. */
bool sp_file_next_entry(struct sp_str *left, struct sp_file_entry *ret, struct sp_str *ret_name);

/* Does it. *a: window and window_size are set before, everything else is set here. */
void sp_file_do(const struct sp_file_ask *ask, struct sp_file_answer *a);

/* Whether it changes anything on the disk. */
bool sp_file_changes(enum sp_file_op op, bool is_replace);

#endif
