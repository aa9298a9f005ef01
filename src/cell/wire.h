/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: what front and cell say to each other over their seqpacket socket.
 *
 * Fixed structs, one per datagram, descriptors beside them. Both sides treat the other as hostile:
 * versions, sizes, slots and counts are checked before anything is used. A process is named by its
 * slot, a small number that the front gives and takes back, and by a number that never repeats.
 */
#ifndef SP_CELL_WIRE_H
#define SP_CELL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define SP_WIRE_VERSION 2
#define SP_WIRE_MAX     65536 /* the largest datagram; a larger START has its strings in a memfd */
#define SP_WIRE_FDS     4     /* the most descriptors with one */
#define SP_WIRE_STRINGS \
    (16U << 20) /* the most bytes of strings of one START; the kernel takes 6 MiB */

enum sp_wire_op {
    SP_WIRE_HELLO = 1, /* front: struct sp_wire_hello + shared page, the cell's end of the bell, and
                          for a confined cell its plan */
    SP_WIRE_START,     /* front: struct sp_wire_start + strings, or + sealed memfd */
    SP_WIRE_SIGNAL,    /* front: struct sp_wire_call, a = signal; to the group of a live process */
    SP_WIRE_RESIZE,    /* front: struct sp_wire_call, a = rows, b = columns */
    SP_WIRE_TERMINATE, /* front: struct sp_wire_call; the tree of a live process is killed */
    SP_WIRE_FORGET,    /* front: struct sp_wire_call; the slot is free after this */
    SP_WIRE_END_SESSION, /* front: struct sp_wire_call, number = session; also what its commands
                            left */
    SP_WIRE_FILES,       /* front: struct sp_wire_call + a socket; a process that does file
                            operations begins at its other end (cell/cell_files.h) */
    SP_WIRE_HOLD,        /* front: struct sp_wire_call + a descriptor, which stays open (and what it
                            locks, locked) for as long as the cell lives */
    SP_WIRE_STARTED,     /* cell: struct sp_wire_started + ring, + input if there is one */
    SP_WIRE_DONE,        /* cell: struct sp_wire_done, for SIGNAL and RESIZE */
    SP_WIRE_BORN,        /* who makes a confined cell: struct sp_wire_born + the cell's pidfd */
    SP_WIRE_READY,       /* cell: struct sp_wire_ready; a confined one, before anything else */
    SP_WIRE_OP_MAX
};

struct sp_wire_head {
    uint16_t version;
    uint16_t op;
    uint32_t slot;
    uint64_t number;
};

struct sp_wire_hello {
    struct sp_wire_head head;
    uint32_t slots;
    uint32_t zero;
    char cgroup[48];                   /* the name of the directory to make; "": use none */
    uint64_t nofile_soft, nofile_hard; /* what commands get */
};

enum {
    SP_START_TTY = 1,
    SP_START_STDIN = 2, /* a writable stdin; implied by TTY */
    SP_START_MEMFD = 4, /* the strings are in the memfd beside the message */
    SP_START_NO_NEW_PRIVS = 8,
};

/* Followed by, or with a memfd of, NUL-terminated strings: cwd, file, argc × argv, envc × env. */
struct sp_wire_start {
    struct sp_wire_head head;
    uint64_t session;
    uint32_t flags;
    uint16_t rows, cols;
    uint32_t argc, envc;
    uint32_t string_bytes;
    uint32_t zero;
    uint64_t dev, ino; /* of file; ino 0: any. Another one there does not start */
};

struct sp_wire_call {
    struct sp_wire_head head;
    uint64_t token; /* comes back in DONE; 0: no answer wanted */
    int32_t a, b;
};

struct sp_wire_started {
    struct sp_wire_head head;
    int32_t pid;
    uint32_t step; /* enum sp_step; not NONE: it did not start */
    int32_t err;
    uint32_t has_input;
    uint32_t leaf;       /* the number of its cgroup; 0: none */
    int32_t terminal;    /* the N of its /dev/pts/N; -1: none */
    uint64_t outputs[2]; /* the inodes of the pipes for its output; 0: none */
};

struct sp_wire_done {
    struct sp_wire_head head;
    uint64_t token;
    int32_t err; /* errno, 0: done */
    uint32_t zero;
};

struct sp_wire_born {
    struct sp_wire_head head;
    int32_t pid; /* as the front numbers it */
    uint32_t zero;
};

struct sp_wire_ready {
    struct sp_wire_head head;
    uint32_t step; /* enum sp_build_step; not NONE: it is not confined, runs nothing and ends */
    int32_t err;
    char where[256]; /* the path it is about, perhaps cut; "": none */
};

/* One datagram. `bytes` is aligned for the structs above. */
struct sp_wire_message {
    _Alignas(8) char bytes[SP_WIRE_MAX];
    size_t len;
    int fds[SP_WIRE_FDS];
    int fd_count;
    bool is_cut; /* descriptors were lost: no room in our table */
};

/* 1: *m is filled and its descriptors are the caller's; 0: nothing there now; -SP_E_...: the other
 * side is gone (sys 0) or broken. Checks version, op and the op's least size. */
int sp_wire_recv(int socket, bool can_wait, struct sp_wire_message *m, struct sp_err *e);
void sp_wire_close_fds(struct sp_wire_message *m);

/* 0, or minus errno (-EAGAIN: full). tail may be NULL. Can it wait, it waits for memory, too, some
 * seconds at most. */
int sp_wire_send(int socket, bool can_wait, const void *msg, size_t len, const void *tail,
                 size_t tail_len, const int *fds, int fd_count);
/* The kernel has no memory for a message now: the same one may be sent later. */
bool sp_wire_is_short(int r);

/*
 * Checks a START's counts against its strings and lays pointers to them: argv and envp (argc + 1
 * and envc + 1 entries, NULL at the end) into `pointers`, which has room for argc + envc + 2.
 * Refused: strings that do not end, too few or too many of them.
 */
struct sp_wire_strings {
    const char *cwd, *file;
    char **argv, **envp;
};
bool sp_wire_read_strings(const struct sp_wire_start *s, char *strings, size_t len, char **pointers,
                          struct sp_wire_strings *ret);

#endif
