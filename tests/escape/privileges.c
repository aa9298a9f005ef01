/* SPDX-License-Identifier: Apache-2.0 */
/*
 * privileges: limits, identities, descriptors that were forgotten, and the parent of commands.
 */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "escape.h"
#include "tries.h"

/* Whatever the calls say, the limit stays 1: with 0 the kernel would run the host's core handler.
 */
int try_set_core(const struct row *r)
{
    const struct rlimit wanted = {.rlim_cur = (rlim_t)r->n, .rlim_max = (rlim_t)r->n};
    struct rlimit now;

    (void)setrlimit(RLIMIT_CORE, &wanted);
    (void)prlimit(0, RLIMIT_CORE, &wanted, &now);
    (void)syscall(SYS_prlimit64, 0L, (long)RLIMIT_CORE, &wanted, NULL);
    (void)syscall(SYS_setrlimit, (long)RLIMIT_CORE, &wanted);
    if (getrlimit(RLIMIT_CORE, &now) < 0)
        return errno;
    return now.rlim_cur == 1 && now.rlim_max == 1 ? EPERM : 0;
}

/* As programs do that handle secrets, and give up if it fails. */
int try_no_core(const struct row *r)
{
    (void)r;
    return answer(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
}

int try_lower_limit(const struct row *r)
{
    struct rlimit limit;

    (void)r;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return errno;
    limit.rlim_cur = 32;
    return answer(setrlimit(RLIMIT_NOFILE, &limit));
}

int try_setuid(const struct row *r)
{
    return answer(syscall(SYS_setuid, r->n));
}

int try_setgid(const struct row *r)
{
    return answer(syscall(SYS_setgid, r->n));
}

int try_setgroups(const struct row *r)
{
    const gid_t group = (gid_t)r->n;

    return answer(syscall(SYS_setgroups, 1, &group));
}

/* ok: the program has no more than we have. */
int try_setuid_program(const struct row *r)
{
    const char *const words[] = {"euid", NULL};
    const int status = again(where(r->a), -1, words);

    return status == 1 ? ENOTUNIQ : status;
}

/* ok: no capability in any set, and none to come. */
int try_capabilities(const struct row *r)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};

    (void)r;
    if (syscall(SYS_capget, &head, data) < 0)
        return errno;
    for (int i = 0; i < 2; i++)
        if (data[i].effective != 0 || data[i].permitted != 0 || data[i].inheritable != 0)
            return ENOTUNIQ;
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) != 0)
            return EXFULL;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : ENOKEY;
}

/* Before any attempt has opened one: so in the first process. */
int try_inherited(const struct row *r)
{
    const char *number = told(r->a);

    return number == NULL ? EINVAL : answer(fcntl(atoi(number), F_GETFD));
}

/* ok: no descriptor but the first three (and that of the list). */
int try_only_three(const struct row *r)
{
    DIR *d = opendir("/proc/self/fd");
    int said = 0;

    (void)r;
    if (d == NULL)
        return errno;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && atoi(e->d_name) > 2 && atoi(e->d_name) != dirfd(d))
            said = EMFILE;
    (void)closedir(d);
    return said;
}

/* A descriptor of any process that is none of ours: ENXIO is a socket that we were let through to.
 */
int try_foreign_fds(const struct row *r)
{
    DIR *d = opendir("/proc");
    char path[64];
    int said = ENOENT;

    (void)r;
    if (d == NULL)
        return errno;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        const int pid = atoi(e->d_name);

        if (pid == 0 || pid == getpid() || pid == getppid())
            continue;
        for (int fd = 0; fd < 32; fd++) {
            (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
            const int one = answer_fd(open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));

            if (one == 0 || one == ENXIO)
                said = 0;
            else if (said != 0)
                said = one;
        }
    }
    (void)closedir(d);
    return said;
}
