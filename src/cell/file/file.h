/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: the file operations of the protocol, on the disk. A call carries out one operation and
 * blocks as long as the disk does, so only the file worker (cell/cell_files.h) may call sp_file_do.
 * There is no JSON here, and of URIs only their length.
 *
 * Paths are absolute and not empty. Everything on the disk is hostile: symlinks swapped at any
 * time, FIFOs, devices, directories without end, names of any bytes.
 */
#ifndef SP_CELL_FILE_FILE_H
#define SP_CELL_FILE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/str.h"

enum sp_file_op {
    SP_FILE_READ = 1,   /* path: data is the whole file */
    SP_FILE_WRITE,      /* path, data */
    SP_FILE_MAKE,       /* path: a directory; is_recursive */
    SP_FILE_STAT,       /* path: stat */
    SP_FILE_CANONICAL,  /* path: data is the path with symlinks resolved */
    SP_FILE_LIST,       /* path: data is entries (struct sp_file_entry), in the directory's order */
    SP_FILE_WALK,       /* path, walk: data is entries, with whole paths */
    SP_FILE_REMOVE,     /* path; is_recursive, is_forced */
    SP_FILE_COPY,       /* path to other; is_recursive */
    SP_FILE_OPEN,       /* path: fd, a regular file to read or (is_replace) made empty to write */
    SP_FILE_READ_BLOCK, /* fd, offset, length: data */
    SP_FILE_WRITE_BLOCK, /* fd, offset, data */
    /* Both add watches to fd (os/notify.h): one for a directory, and one for each of its ancestors
     * (data: a struct sp_file_above each). The lower half of number is the directory's watch. */
    SP_FILE_WATCH_MISSING, /* path must be missing (else EEXIST): watches its nearest existing
                              ancestor; upper half of number: the length of that path */
    SP_FILE_WATCH_PRESENT, /* path must exist: watches its directory; upper half: the watch of the
                              path itself */
    SP_FILE_OP_MAX
};

#define SP_FILE_MAX_READ    (512U << 20)
#define SP_FILE_MAX_BLOCK   (1U << 20)
#define SP_FILE_PIECE       (128U << 10) /* of a file that is encoded while it is read */
#define SP_FILE_MAX_ENTRIES 50000        /* of one directory */
#define SP_FILE_MAX_WALK    (4U << 20)
#define SP_FILE_WALK_ITEM   64 /* bytes that an entry of a walk costs beside URI and message */
#define SP_FILE_MAX_PATH    4096

/* A placeholder (core/placeholder.h) is an empty directory of this user with this mode. Under the
 * set-group-ID bit of its parent mkdir sets that bit, and fchmod may fail to clear it. */
#define SP_PLACEHOLDER_MODE  0500
#define SP_PLACEHOLDER_MASK  (07777 & ~S_ISGID)
#define SP_PLACEHOLDER_COVER 0555 /* of the empty directory that a cell mounts over it */

struct sp_file_walk {
    uint32_t max_depth, max_directories, max_entries;
    bool follows_directories, prunes_hidden;
};

struct sp_file_request {
    enum sp_file_op op;
    const char *path, *other; /* NULL: none */
    bool follows;             /* false: no component of the path may be a symlink */
    bool is_recursive, is_forced, is_replace;
    bool hides_placeholders; /* treat placeholder directories (core/placeholder.h) as missing,
                                except for WATCH_* */
    int fd;                  /* borrowed */
    uint64_t offset;
    uint32_t length; /* READ: at most this many bytes; 0: SP_FILE_MAX_READ */
    struct sp_file_walk walk;
    const void *data;
    size_t data_len;
};

/* Errors without an errno. server/rpc/ has the texts that clients see. */
enum sp_file_refusal {
    SP_FILE_NOT_REFUSED,
    SP_FILE_NOT_A_FILE,         /* to read: a directory, FIFO, device, socket */
    SP_FILE_HAS_LINK,           /* STAT, REMOVE without `follows`: the last component is a symlink.
                                   Others fail with ELOOP, and in the middle all with ENOTDIR */
    SP_FILE_TOO_LARGE,          /* to read: number is the limit */
    SP_FILE_TOO_MANY,           /* entries of a directory: number is how many there are at least */
    SP_FILE_TREE_WITHOUT_LINKS, /* recursive removal needs `follows` */
    SP_FILE_COPY_TREE,          /* a directory, and the copy is not recursive */
    SP_FILE_COPY_INTO_ITSELF,
    SP_FILE_COPY_ONTO_ITSELF, /* a file: the same inode */
    SP_FILE_COPY_KIND,        /* neither file, directory nor symlink */
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
    SP_FILE_ENTRY_OTHER, /* LIST only */
    SP_FILE_ENTRY_ERROR, /* WALK only: err says why the path could not be read */
};

/* Followed by name_len bytes without NUL. Entries are packed, not aligned: copy them out. */
struct sp_file_entry {
    uint32_t name_len;
    uint16_t kind;
    int16_t err;
};

/* The watch of an ancestor of a watched path, which reports that the ancestor is moved or removed.
 */
struct sp_file_above {
    int32_t watch;
    uint32_t len; /* not 0: the component behind this many bytes of the path is a symlink, and the
                     watch also reports changes of names */
};

struct sp_file_answer {
    int err; /* errno; 0: done, or refused */
    enum sp_file_refusal refusal;
    uint64_t number;
    bool is_cut; /* WALK: truncated; READ_BLOCK: the end of the file came before length bytes */
    struct sp_file_stat stat;
    int fd; /* OPEN: the file; the caller's. -1: none */

    /* The caller provides window and window_size. On return the data is in the window or, if that
     * is too small, in the sealed memory file `memory` (owned by the caller; -1: none), which can
     * be sent to another process. */
    char *window;
    size_t window_size;
    uint64_t data_len;
    int memory;
    /* Set by the caller. READ of a file that fits the window: so many bytes of `size` are in it,
     * and more follow. NULL: not called. */
    void (*read_some)(struct sp_file_answer *a, uint64_t bytes, uint64_t size);
    /* Set by the caller. COPY: so many bytes were copied so far, of all files. NULL: not called. */
    void (*copied_some)(struct sp_file_answer *a, uint64_t bytes);
    uint64_t copied; /* COPY: these bytes */
    /* Only in the front (core/files.h). Not NULL: window is a mapping of its own, of data_len
     * bytes. A callback that sets *is_kept takes it over and must munmap it. The memory behind it
     * is sealed.
     */
    bool *is_kept;
};

/* Takes the next entry of LIST or WALK off *left; *ret_name points into it. The caller must own the
 * bytes (not shared memory). 1: taken; 0: *left is empty; -1: it has bytes that are no entry, so
 * the worker is broken or under foreign control, and the list must not be used. */
int sp_file_next_entry(struct sp_str *left, struct sp_file_entry *ret, struct sp_str *ret_name);

/* Carries out the operation. The caller sets a->window, a->window_size and a->read_some; the rest
 * is set here. */
void sp_file_do(const struct sp_file_request *request, struct sp_file_answer *a);

/* Whether the operation changes the disk. */
bool sp_file_changes(enum sp_file_op op, bool is_replace);

#endif
