/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host: the process outside that a confined command of the same user must not reach.
 *
 *   host DIR
 *
 * Listens on 127.0.0.1, on a stream and a datagram socket in DIR and on an abstract socket; owns
 * SysV objects, a message queue and a shared memory object. Prints where they are, one word=value a
 * line and a line "ready". When stdin ends it prints how often each was touched, removes what it
 * made and ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOW_PIDS                                                                     \
    4096 /* a sandbox numbers its own processes from 1: ours is not to be among them \
          */

enum door { TCP, STREAM, ABSTRACT, DGRAM, DOORS };
static const char *const names[DOORS] = {"tcp", "stream", "abstract", "dgram"};

static struct {
    int fds[DOORS], counts[DOORS];
    char stream[108], dgram[108], abstract[64], object[64];
    key_t key;
    int shm, msg, sem;
} host = {.shm = -1, .msg = -1, .sem = -1};

static void remove_objects(void)
{
    (void)shmctl(host.shm, IPC_RMID, NULL);
    (void)msgctl(host.msg, IPC_RMID, NULL);
    (void)semctl(host.sem, 0, IPC_RMID);
    (void)mq_unlink(host.object);
    (void)shm_unlink(host.object);
    (void)unlink(host.stream);
    (void)unlink(host.dgram);
}

static _Noreturn void die(const char *what)
{
    perror(what);
    remove_objects();
    exit(1);
}

static int listen_at(const struct sockaddr *at, socklen_t size, int type)
{
    const int fd = socket(at->sa_family, type | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, at, size) < 0 || (type == SOCK_STREAM && listen(fd, 64) < 0))
        die("listen");
    return fd;
}

static int listen_unix(const char *path, int type)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    (void)snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    return listen_at((const struct sockaddr *)&at, sizeof at, type);
}

static int listen_abstract(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    memcpy(at.sun_path + 1, name, strlen(name));
    return listen_at((const struct sockaddr *)&at,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)),
                     SOCK_STREAM);
}

static int listen_tcp(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const int fd = listen_at((const struct sockaddr *)&at, size, SOCK_STREAM);

    if (getsockname(fd, (struct sockaddr *)&at, &size) < 0)
        die("getsockname");
    printf("port=%d\n", ntohs(at.sin_port));
    return fd;
}

static void make_doors(const char *dir)
{
    (void)snprintf(host.stream, sizeof host.stream, "%s/stream", dir);
    (void)snprintf(host.dgram, sizeof host.dgram, "%s/dgram", dir);
    (void)snprintf(host.abstract, sizeof host.abstract, "sallyport-escape-%d", (int)getpid());
    host.fds[TCP] = listen_tcp();
    host.fds[STREAM] = listen_unix(host.stream, SOCK_STREAM);
    host.fds[ABSTRACT] = listen_abstract(host.abstract);
    host.fds[DGRAM] = listen_unix(host.dgram, SOCK_DGRAM);
    printf("stream=%s\ndgram=%s\nabstract=%s\n", host.stream, host.dgram, host.abstract);
}

static void make_objects(void)
{
    host.key = (key_t)(0x5a000000 | getpid());
    (void)snprintf(host.object, sizeof host.object, "/sallyport-escape-%d", (int)getpid());
    host.shm = shmget(host.key, 4096, IPC_CREAT | IPC_EXCL | 0600);
    host.msg = msgget(host.key, IPC_CREAT | IPC_EXCL | 0600);
    host.sem = semget(host.key, 1, IPC_CREAT | IPC_EXCL | 0600);
    if (host.shm < 0 || host.msg < 0 || host.sem < 0)
        die("SysV objects");
    struct mq_attr small = {.mq_maxmsg = 1, .mq_msgsize = 64}; /* a user has not many bytes */
    const mqd_t mq = mq_open(host.object, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, &small);
    const int fd = shm_open(host.object, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (mq < 0 || fd < 0 || write(fd, "secret", 6) != 6)
        die("POSIX objects");
    (void)mq_close(mq);
    (void)close(fd);
    printf("key=%d\nshmid=%d\nmq=%s\nshm=%s\n", (int)host.key, host.shm, host.object + 1,
           host.object + 1);
}

static void answer_door(enum door d)
{
    char text[64];

    host.counts[d]++;
    if (d == DGRAM) {
        (void)!recv(host.fds[d], text, sizeof text, 0);
        return;
    }
    const int fd = accept4(host.fds[d], NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        (void)close(fd);
}

static void serve(void)
{
    struct pollfd fds[DOORS + 1] = {[DOORS] = {.fd = 0, .events = POLLIN}};

    for (int d = 0; d < DOORS; d++)
        fds[d] = (struct pollfd){.fd = host.fds[d], .events = POLLIN};
    while (fds[DOORS].revents == 0) {
        if (poll(fds, DOORS + 1, -1) < 0 && errno != EINTR)
            die("poll");
        for (int d = 0; d < DOORS; d++)
            if (fds[d].revents != 0)
                answer_door((enum door)d);
    }
}

static void report(void)
{
    struct shmid_ds shm = {0};
    struct msqid_ds msg = {0};

    (void)shmctl(host.shm, IPC_STAT, &shm);
    (void)msgctl(host.msg, IPC_STAT, &msg);
    for (int d = 0; d < DOORS; d++)
        printf("%s=%d\n", names[d], host.counts[d]);
    printf("attached=%d\nmessages=%d\n", shm.shm_lpid != 0, msg.msg_lspid != 0);
}

/* Goes on in a child whose pid is high enough; the parents wait for it and end as it did. */
static void take_high_pid(void)
{
    while (getpid() < LOW_PIDS) {
        int status = 0;
        const pid_t child = fork();

        if (child < 0)
            die("fork");
        if (child == 0 && getpid() < LOW_PIDS)
            _exit(255);
        if (child == 0)
            return;
        (void)waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 255)
            exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: host DIR\n");
        return 2;
    }
    take_high_pid();
    make_doors(argv[1]);
    make_objects();
    printf("host=%d\nready\n", (int)getpid());
    (void)fflush(stdout);
    serve();
    report();
    remove_objects();
    return 0;
}
