/* SPDX-License-Identifier: Apache-2.0 */
#include "os/privilege.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAP_LIMIT 64 /* the sets are of this many bits */

#define WANTED_BITS                                                  \
    (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | \
     SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |   \
     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED | SECBIT_KEEP_CAPS_LOCKED)

/*
 * EPERM: we have no right to drop them, like every ordinary process. They are then of no use
 * either: what is in the bounding set can be had only by an execve that no_new_privs keeps plain.
 */
static int drop_bounding(void)
{
    for (int cap = 0; cap < CAP_LIMIT; cap++) {
        const int has = prctl(PR_CAPBSET_READ, cap);

        if (has < 0)
            return errno == EINVAL && cap > 0 ? 0 : -errno; /* beyond the last one */
        if (has > 0 && prctl(PR_CAPBSET_DROP, cap) < 0)
            return errno == EPERM ? 0 : -errno;
    }
    return 0;
}

/* EPERM: as above, or a bit of ours is locked in the other position. */
static int set_bits(void)
{
    const int now = prctl(PR_GET_SECUREBITS);

    if (now < 0)
        return -errno;
    unsigned long bits = (unsigned)now | WANTED_BITS; /* locked ones must stay as they are */
    if ((now & SECBIT_KEEP_CAPS_LOCKED) == 0)
        bits &= ~(unsigned long)SECBIT_KEEP_CAPS;
    if (prctl(PR_SET_SECUREBITS, bits) < 0 && errno != EPERM)
        return -errno;
    return 0;
}

static int clear_sets(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -errno;
    return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

static int check_sets(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct left[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (syscall(SYS_capget, &head, left) < 0)
        return -errno;
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        if ((left[i].effective | left[i].permitted | left[i].inheritable) != 0)
            return -EPERM;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -EPERM;
}

int sp_privilege_drop(void)
{
    int r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;

    if (r == 0)
        r = drop_bounding(); /* this and the next need CAP_SETPCAP, so the sets go last */
    if (r == 0)
        r = set_bits();
    if (r == 0)
        r = clear_sets();
    return r == 0 ? check_sets() : r;
}

/* With 0 the kernel still runs a core handler that it is told to pipe to, as root and outside of
 * any sandbox. With 1 it runs none, and a file of one byte is less than any core. */
int sp_privilege_no_core(void)
{
    return setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1}) < 0 ? -errno : 0;
}
