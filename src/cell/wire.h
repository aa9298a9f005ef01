/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: the messages between front and cell, over a seqpacket socket.
 *
 * A datagram is one fixed struct (in START, strings follow), plus descriptors. Each side treats the
 * other as hostile: versions, sizes, slots and counts are checked before use. A process is named by
 * its slot, a small number that the front assigns and reuses, and by a number that is never reused.
 */
#ifndef SP_CELL_WIRE_H
#define SP_CELL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define SP_WIRE_VERSION  8
#define SP_WIRE_MAX      65536 /* the largest datagram; a larger START has its strings in a memfd */
#define SP_WIRE_FDS      6     /* descriptors with one datagram; with INVENTORY: */
#define SP_WIRE_ITEM_FDS 129   /* a segment, input and log of 64 processes */

/* Limits of starts whose disk hangs (cell.c); here, because the front's error texts name them. */
#define SP_MAX_PENDING       64
#define SP_START_DEADLINE_MS 10000

/* Bytes of strings of one START; execve takes at most 6 MiB. */
#define SP_WIRE_STRINGS (16U << 20)

enum sp_wire_op {
    SP_WIRE_HELLO = 1, /* front: struct sp_wire_hello + shared page, the cell's end of the bell, and
                          for a confined cell its plan */
    SP_WIRE_START,     /* front: struct sp_wire_start + strings, or + sealed memfd */
    SP_WIRE_SIGNAL,    /* front: struct sp_wire_call, a = signal; to the group of a live process */
    SP_WIRE_RESIZE,    /* front: struct sp_wire_call, a = rows, b = columns */
    SP_WIRE_TERMINATE, /* front: struct sp_wire_call; the tree of a live process is killed */
    SP_WIRE_FORGET,    /* front: struct sp_wire_call; the slot is free after this */
    SP_WIRE_END_SESSION, /* front: struct sp_wire_call, number = session; kills its strays, too */
    SP_WIRE_FILES,       /* front: struct sp_wire_call + a socket that a new file worker serves
                            (cell/cell_files.h) */
    SP_WIRE_HOLD,        /* front: struct sp_wire_call + a descriptor, which stays open (with its
                            locks) as long as the cell lives */
    SP_WIRE_CONNECT,     /* front: struct sp_wire_call, token = number of the request, a = port, b =
                            AF_INET or AF_INET6: a socket to this port of the cell's loopback */
    SP_WIRE_SEGMENT, /* front: struct sp_wire_call, a = index, b = 1: + the memory of the rings of
                        64 slots, before the first START in one of them; b = 0: it is used no
                        more. Cell, b = errno: it could not take that segment */
    SP_WIRE_PUNCH,   /* front: struct sp_wire_call; the ring gives back memory that holds no
                        log. number 0: the slot is free, all of its memory */
    SP_WIRE_ADOPT,   /* new front of a kept cell: struct sp_wire_call, token = generation, a = index
                        of a segment, or BEGIN: one INVENTORY is requested */
    SP_WIRE_INPUT, /* front: struct sp_wire_call + the log of what the process is to read; the cell
                      keeps it, in place of an earlier one */
    SP_WIRE_CLOSE_INPUT, /* front: struct sp_wire_call; a kept cell closes its copy of the stdin
                            pipe and the log */
    SP_WIRE_STARTED,     /* cell: struct sp_wire_started, + input if there is one */
    SP_WIRE_DONE,        /* cell: struct sp_wire_done, for SIGNAL and RESIZE */
    SP_WIRE_DENIED,      /* cell: struct sp_wire_call; the command has tried for the first time to
                            connect to an address outside of its network */
    SP_WIRE_BORN,        /* maker of a confined cell: struct sp_wire_born + the cell's pidfd */
    SP_WIRE_PORTS,       /* managed cell, before READY: struct sp_wire_ports + its sockets */
    SP_WIRE_SOCKET,      /* cell: struct sp_wire_done, for CONNECT; err 0: + the socket, which may
                            still be connecting */
    SP_WIRE_READY,       /* confined cell, as its first message: struct sp_wire_ready */
    SP_WIRE_INVENTORY,   /* cell, for ADOPT: struct sp_wire_inventory, items and descriptors */
    SP_WIRE_OP_MAX
};

struct sp_wire_head {
    uint16_t version;
    uint16_t op;
    uint32_t slot;
    uint64_t number;
};

#define SP_MAX_SLOTS (1U << 20) /* of a cell */
enum {
    /* A keeper has duplicates of the front's descriptors: the cell outlives the front, waits for no
     * answer of it, and keeps the stdin pipes of its commands open. */
    SP_HELLO_KEPT = 1,
};
struct sp_wire_hello {
    struct sp_wire_head head;
    uint32_t slots;
    uint32_t flags;
    char cgroup[48];                   /* name of the directory to make; "": no cgroups */
    uint64_t nofile_soft, nofile_hard; /* RLIMIT_NOFILE of commands */
};

enum {
    SP_START_TTY = 1,
    SP_START_STDIN = 2, /* a writable stdin; implied by TTY */
    SP_START_MEMFD = 4, /* the strings are in a memfd sent with the message */
    SP_START_NO_NEW_PRIVS = 8,
    SP_START_LEAF = 16, /* the directory of the cgroup to be born in is sent with the message */
};

/* The rlimits of a START, soft and hard. */
enum sp_wire_rlimit {
    SP_WIRE_RLIMIT_CPU, /* seconds; the hard one is a second more: SIGXCPU comes first */
    SP_WIRE_RLIMIT_FSIZE,
    SP_WIRE_RLIMIT_FILES,
    SP_WIRE_RLIMIT_DATA,
    SP_WIRE_RLIMIT_PIDS,
    SP_WIRE_RLIMITS
};

/* Followed by, or with a memfd of, NUL-terminated strings: cwd, file, argc × argv, envc × env. The
 * descriptors: the memfd, the directory of LEAF, `joins` files to which the child writes 0. */
struct sp_wire_start {
    struct sp_wire_head head;
    uint64_t session;
    uint32_t flags;
    uint16_t rows, cols;
    uint32_t argc, envc;
    uint32_t string_bytes;
    uint32_t joins;      /* cgroup.procs of further cgroups that the child enters */
    uint64_t dev, ino;   /* the inode that `file` must be; ino 0: not checked */
    uint64_t max_output; /* the tree is killed when it has written more bytes; 0: no limit */
    uint64_t rlimits[SP_WIRE_RLIMITS]; /* 0: the cell's */
};

struct sp_wire_call {
    struct sp_wire_head head;
    uint64_t token; /* echoed in DONE; 0: no answer wanted */
    int32_t a, b;
};

struct sp_wire_started {
    struct sp_wire_head head;
    int32_t pid;
    uint32_t step; /* enum sp_step: the step that failed; NONE: started */
    int32_t err;
    uint32_t has_input;
    uint32_t leaf_number; /* of its cgroup; 0: none */
    int32_t terminal;     /* the N of its /dev/pts/N; -1: none */
    uint64_t outputs[2];  /* the inodes of the pipes for its output; 0: none */
};

struct sp_wire_done {
    struct sp_wire_head head;
    uint64_t token;
    int32_t err; /* errno, 0: done */
    uint32_t zero;
};

struct sp_wire_born {
    struct sp_wire_head head;
    int32_t pid; /* in the front's pid namespace */
    uint32_t zero;
};

enum sp_port_kind {
    SP_PORT_DNS_UDP = 1, /* 127.0.0.1:53 */
    SP_PORT_DNS_TCP,
    SP_PORT_PROXY,   /* 127.0.0.1:808 */
    SP_PORT_BY_NAME, /* 0.0.0.0:PORT */
    SP_PORT_DIAG,    /* NETLINK_SOCK_DIAG: tells the front which command has a connection */
    SP_PORT_KIND_MAX
};

struct sp_wire_port {
    uint16_t kind, port;
};

struct sp_wire_ports {
    struct sp_wire_head head;
    uint32_t count; /* of the descriptors */
    uint32_t is_last;
    struct sp_wire_port ports[SP_WIRE_FDS];
};

struct sp_wire_ready {
    struct sp_wire_head head;
    uint32_t step; /* enum sp_build_step: the step that failed, and the cell exits; NONE: ready */
    int32_t err;
    char where[256]; /* the path concerned, perhaps truncated; "": none */
};

/*
 * What a kept cell tells a new front, one message for each ADOPT. The first one, with index BEGIN,
 * carries the pidfd of the cell (if the kernel has pidfds) and comes before the PORTS of a managed
 * cell; everything that arrives before it was meant for an earlier front. Each further one is about
 * a segment: its memory is the first descriptor, then come input and log of each item that has
 * them.
 */
#define SP_INVENTORY_BEGIN (-1)
#define SP_INVENTORY_END   (-2)
struct sp_wire_inventory {
    struct sp_wire_head head;
    uint64_t generation; /* as in ADOPT */
    int32_t index;       /* of the segment */
    int32_t next;        /* the next index to request; END: none */
    uint32_t count;      /* items, in the order of their slots */
    uint32_t zero;
};

enum sp_wire_life {
    SP_WIRE_LIFE_STARTING = 1, /* STARTED follows */
    SP_WIRE_LIFE_RUNNING,
    SP_WIRE_LIFE_EXITED,
    SP_WIRE_LIFE_CLOSED,
    SP_WIRE_LIFE_MAX
};

enum {
    SP_ITEM_TTY = 1,
    SP_ITEM_INPUT = 2, /* a descriptor to write stdin to comes with it */
    SP_ITEM_LOG = 4,   /* and the log that INPUT brought */
    SP_ITEM_MAX = 8,
};

/* A process, as in STARTED. The log in its ring ends here, or later. */
struct sp_wire_item {
    uint64_t number, session;
    uint32_t slot;
    uint32_t life;  /* enum sp_wire_life */
    uint32_t flags; /* SP_ITEM_... */
    int32_t pid;
    uint32_t leaf_number;
    int32_t terminal;
    uint64_t outputs[2];
    uint64_t end, seq, bytes; /* struct sp_ring_cursor */
};

/* One datagram. `bytes` is aligned for the structs above. */
struct sp_wire_message {
    _Alignas(8) char bytes[SP_WIRE_MAX];
    size_t len;
    int fds[SP_WIRE_ITEM_FDS];
    int fd_count;
    bool is_cut; /* descriptors were lost (EMFILE), or were too many */
};

/* 1: *m is filled, the caller owns its descriptors; 0: no message now; -SP_E_...: the other side is
 * gone (sys 0) or broken. Checks version, op and the op's minimal size. */
int sp_wire_recv(int socket, bool can_wait, struct sp_wire_message *m, struct sp_err *e);
void sp_wire_close_fds(struct sp_wire_message *m);

/* 0, or minus errno (-EAGAIN: full). tail may be NULL. With can_wait, a shortage of kernel memory
 * is waited out as well, for some seconds. */
int sp_wire_send(int socket, bool can_wait, const void *msg, size_t len, const void *tail,
                 size_t tail_len, const int *fds, int fd_count);
/* The error means a shortage of kernel memory: the message may be sent again later. */
bool sp_wire_is_short(int r);

/*
 * Checks a START's counts against its strings and fills argv and envp (argc + 1 and envc + 1
 * entries, the last one NULL) in `pointers`, which has room for argc + envc + 2. false: a string
 * without NUL, too few or too many strings.
 */
struct sp_wire_strings {
    const char *cwd, *file;
    char **argv, **envp;
};
bool sp_wire_read_strings(const struct sp_wire_start *s, char *strings, size_t len, char **pointers,
                          struct sp_wire_strings *ret);

#endif
