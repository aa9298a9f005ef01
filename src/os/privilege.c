/* SPDX-License-Identifier: Apache-2.0 */
#include "os/privilege.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAP_LIMIT 64 /* bits of a capability set */

#define WANTED_BITS                                                  \
    (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | \
     SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |   \
     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED | SECBIT_KEEP_CAPS_LOCKED)

/*
 * EPERM (no CAP_SETPCAP, as in every ordinary process) is fine: a capability of the bounding set
 * can only be gained by execve, and no_new_privs rules that out.
 */
static int drop_bounding(void)
{
    for (int cap = 0; cap < CAP_LIMIT; cap++) {
        const int has = prctl(PR_CAPBSET_READ, cap);

        if (has < 0)
            return errno == EINVAL && cap > 0 ? 0 : -errno; /* EINVAL: past the last capability */
        if (has > 0 && prctl(PR_CAPBSET_DROP, cap) < 0)
            return errno == EPERM ? 0 : -errno;
    }
    return 0;
}

/* EPERM is fine as above; or a bit is locked in the other position. */
static int set_bits(void)
{
    const int now = prctl(PR_GET_SECUREBITS);

    if (now < 0)
        return -errno;
    unsigned long bits = (unsigned)now | WANTED_BITS; /* a changed locked bit is EPERM */
    if ((now & SECBIT_KEEP_CAPS_LOCKED) == 0)
        bits &= ~(unsigned long)SECBIT_KEEP_CAPS;
    if (prctl(PR_SET_SECUREBITS, bits) < 0 && errno != EPERM)
        return -errno;
    return 0;
}

/* Clears all sets of capabilities and checks that none is left. */
static int clear_sets(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
        syscall(SYS_capset, &head, sets) < 0 || syscall(SYS_capget, &head, sets) < 0)
        return -errno;
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        if ((sets[i].effective | sets[i].permitted | sets[i].inheritable) != 0)
            return -EPERM;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -EPERM;
}

int sp_privilege_drop(void)
{
    int r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;

    if (r == 0)
        r = drop_bounding(); /* before clear_sets: this and set_bits need CAP_SETPCAP */
    if (r == 0)
        r = set_bits();
    return r == 0 ? clear_sets() : r;
}

/* With a limit of 0 the kernel still runs a core_pattern pipe handler, as root and outside of any
 * sandbox. With 1 it does not, and writes no file either, since every core is larger. */
int sp_privilege_no_core(void)
{
    return setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1}) < 0 ? -errno : 0;
}
