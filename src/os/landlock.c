/* SPDX-License-Identifier: Apache-2.0 */
#include "os/landlock.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

/* The kernel's ABI as of level 9; the headers of the build host may be older. */

#define NR_CREATE_RULESET 444 /* identical numbers on all architectures */
#define NR_ADD_RULE       445
#define NR_RESTRICT_SELF  446

#define ASK_FOR_VERSION   1U
#define RULE_PATH_BENEATH 1

struct ruleset_attr {
    uint64_t handled_access_fs;
    uint64_t handled_access_net; /* level 4; not used: seccomp and namespaces close the network */
    uint64_t scoped;             /* level 6 */
};

struct path_beneath_attr {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

enum {
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    REMOVE_DIR = 1 << 4,
    REMOVE_FILE = 1 << 5,
    MAKE_CHAR = 1 << 6,
    MAKE_DIR = 1 << 7,
    MAKE_REG = 1 << 8,
    MAKE_SOCK = 1 << 9,
    MAKE_FIFO = 1 << 10,
    MAKE_BLOCK = 1 << 11,
    MAKE_SYM = 1 << 12,
    REFER = 1 << 13,        /* level 2 */
    TRUNCATE = 1 << 14,     /* level 3 */
    IOCTL_DEV = 1 << 15,    /* level 5 */
    RESOLVE_UNIX = 1 << 16, /* level 9 */
};

#define LEVEL_1                                                                           \
    (EXECUTE | WRITE_FILE | READ_FILE | READ_DIR | REMOVE_DIR | REMOVE_FILE | MAKE_CHAR | \
     MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_BLOCK | MAKE_SYM)
/* The rights that a rule on a non-directory may have; any other is EINVAL. */
#define OF_FILES (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX)

#define SCOPE_ABSTRACT_UNIX 1U
#define SCOPE_SIGNAL        2U
#define SCOPE_LEVEL         6

/* All file rights of a level. */
static uint64_t handled_at(int abi)
{
    static const struct {
        int abi;
        uint64_t rights;
    } steps[] = {{1, LEVEL_1}, {2, REFER}, {3, TRUNCATE}, {5, IOCTL_DEV}, {9, RESOLVE_UNIX}};
    uint64_t all = 0;

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (abi >= steps[i].abi)
            all |= steps[i].rights;
    return all;
}

/* Masked by level and kind of file when a rule is made. */
static const uint64_t rights_of[] = {
    [SP_LANDLOCK_READ] = EXECUTE | READ_FILE | READ_DIR,
    [SP_LANDLOCK_WRITE] = UINT64_MAX,
    [SP_LANDLOCK_DEVICE] = READ_FILE | WRITE_FILE | IOCTL_DEV | TRUNCATE,
};

int sp_landlock_abi(void)
{
    const long abi = syscall(NR_CREATE_RULESET, NULL, 0, ASK_FOR_VERSION);

    return abi > 0 ? (int)abi : 0;
}

/* An older kernel with a shorter attribute accepts this one if the rest is zero. */
static int create(const struct ruleset_attr *attr)
{
    const long fd = syscall(NR_CREATE_RULESET, attr, sizeof *attr, 0);

    return fd < 0 ? -errno : (int)fd;
}

int sp_landlock_new(int abi)
{
    if (abi < 1)
        return -ENOTSUP;
    return create(&(struct ruleset_attr){
        .handled_access_fs = handled_at(abi),
        .scoped = abi >= SCOPE_LEVEL ? SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL : 0,
    });
}

int sp_landlock_new_scope(int abi, int root)
{
    const struct path_beneath_attr rule = {.allowed_access = REFER, .parent_fd = root};

    if (abi < SCOPE_LEVEL)
        return -ENOTSUP;
    auto_close int fd = create(&(struct ruleset_attr){
        .handled_access_fs = REFER, .scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL});
    if (fd >= 0 && syscall(NR_ADD_RULE, fd, RULE_PATH_BENEATH, &rule, 0) < 0)
        return -errno;
    return TAKE_FD(fd);
}

int sp_landlock_allow(int ruleset, int abi, int fd, enum sp_landlock_rights rights)
{
    struct path_beneath_attr rule = {
        .allowed_access = rights_of[rights] & handled_at(abi),
        .parent_fd = fd,
    };
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        rule.allowed_access &= OF_FILES;
    if (syscall(NR_ADD_RULE, ruleset, RULE_PATH_BENEATH, &rule, 0) < 0)
        return -errno;
    return 0;
}

int sp_landlock_enter(int ruleset)
{
    return syscall(NR_RESTRICT_SELF, ruleset, 0) < 0 ? -errno : 0;
}
