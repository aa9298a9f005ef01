/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers: what a sandbox is made of, each layer tried for real and by itself where that can be.
 */
#ifndef SP_CLI_LAYERS_H
#define SP_CLI_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

/* name on the wire of `doctor --json`; what it is; what is lost without it */
#define SP_LAYERS(X)                                                                             \
    X(NAMESPACES, "namespaces", "user, mount, pid, ipc, uts and cgroup namespaces",              \
      "no view of the files, no processes of its own")                                           \
    X(ID_MAPS, "id_maps", "a user namespace in which we stay who we are",                        \
      "nothing can be mounted there")                                                            \
    X(MOUNTS, "mounts", "a view of the files of its own", "no place can be treated differently") \
    X(PROC, "proc", "a /proc that shows its own processes only", "programs miss their /proc")    \
    X(NETWORK, "network_namespace", "a network with nothing but loopback",                       \
      "without the network there is no loopback either: sockets are refused")                    \
    X(PRIVILEGES, "privileges", "giving up every capability", "uid 0 keeps what it could do")    \
    X(LANDLOCK, "landlock", "the kernel's own rules on files",                                   \
      "mounts alone protect files, and commands can signal their neighbours")                    \
    X(SECCOMP, "seccomp", "a filter of system calls", "nothing can be enforced")                 \
    X(NOTICES, "notifications", "word of every refused call",                                    \
      "denials are guessed from what a command prints")                                          \
    X(CGROUPS, "cgroups", "a cgroup for each open command",                                      \
      "a command's processes are found by parentage, which takes longer")                        \
    X(OPENAT2, "openat2", "opening paths without following symlinks",                            \
      "no view of the files can be made")                                                        \
    X(MOUNT_API, "mount_api", "open_tree, move_mount, mount_setattr",                            \
      "no view of the files can be made")

enum sp_layer_name {
#define X(name, word, is, without) SP_LAYER_##name,
    SP_LAYERS(X)
#undef X
        SP_LAYER_MAX
};

enum sp_layer_state { SP_LAYER_UNTESTED, SP_LAYER_OK, SP_LAYER_MISSING };

struct sp_layer {
    enum sp_layer_state state;
    int err;            /* MISSING: an errno; 0: none is known */
    const char *remedy; /* MISSING: how to get it; NULL: nobody knows */
};

#define SP_LANDLOCK_NEWEST 9 /* the newest level that we make use of or know */

/* What this level brought, and with it what is lost below it. */
const char *sp_landlock_level_means(int level);

const char *sp_layer_word(enum sp_layer_name n);
const char *sp_layer_is(enum sp_layer_name n);
const char *sp_layer_without(enum sp_layer_name n);

/* `program`: our own binary. ret has SP_LAYER_MAX places. Takes some tens of milliseconds. */
void sp_layers_try(const char *program, struct sp_layer *ret);

#endif
