/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc: the shared memory, queues and semaphores of a process outside.
 */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "escape.h"
#include "tries.h"

int try_shmget(const struct row *r)
{
    return answer(shmget((key_t)need_number(r->a), 0, 0));
}

int try_msgget(const struct row *r)
{
    return answer(msgget((key_t)need_number(r->a), 0));
}

int try_semget(const struct row *r)
{
    return answer(semget((key_t)need_number(r->a), 0, 0));
}

/* By number and not by key: the numbers of a fresh namespace begin anew, so nothing may be there.
 */
int try_shm_number(const struct row *r)
{
    const void *at = shmat((int)need_number(r->a), NULL, SHM_RDONLY);

    return at == (const void *)-1 ? errno : answer(shmdt(at));
}

int try_own_shm(const struct row *r)
{
    const int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);

    (void)r;
    return id < 0 ? errno : answer(shmctl(id, IPC_RMID, NULL));
}

int try_own_msg(const struct row *r)
{
    const int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);

    (void)r;
    return id < 0 ? errno : answer(msgctl(id, IPC_RMID, NULL));
}

int try_own_sem(const struct row *r)
{
    const int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);

    (void)r;
    return id < 0 ? errno : answer(semctl(id, 0, IPC_RMID));
}

int try_mq_open(const struct row *r)
{
    char name[128];

    (void)snprintf(name, sizeof name, "/%s", need(r->a));
    return answer_fd(mq_open(name, O_RDWR | O_CLOEXEC));
}

int try_own_mq(const struct row *r)
{
    struct mq_attr small = {.mq_maxmsg = 1, .mq_msgsize = 64};
    char name[64];

    (void)snprintf(name, sizeof name, "%s-%d", r->a, (int)getpid());
    const mqd_t q = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, &small);

    if (q < 0)
        return errno;
    (void)mq_close(q);
    return answer(mq_unlink(name));
}

int try_shm_object(const struct row *r)
{
    char path[256];

    (void)snprintf(path, sizeof path, "/dev/shm/%s", need(r->a));
    return answer_fd(open(path, O_RDONLY | O_CLOEXEC));
}
