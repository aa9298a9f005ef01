/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/cell_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/wire.h"
#include "os/landlock.h"

#define ANY_FILE_NUMBER 7 /* below it the spawner's numbers, which are not ours to use */

/* One datagram of the front's, and where its paths are. */
struct taken {
    struct sp_files_ask head;
    char paths[SP_FILES_PATHS];
    const char *path, *other;
    size_t len;
    int fd; /* -1: none came with it */
};

/* 1: *t is filled; 0: the front has ended, or it is no front. */
static int take(int socket, struct taken *t)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov[2] = {{.iov_base = &t->head, .iov_len = sizeof t->head},
                           {.iov_base = t->paths, .iov_len = sizeof t->paths}};
    struct msghdr h = {
        .msg_iov = iov, .msg_iovlen = 2, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n;

    do
        n = recvmsg(socket, &h, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    t->fd = n < 0 ? -1 : sp_files_take_fd(&h);
    if (n < (ssize_t)sizeof t->head || (h.msg_flags & MSG_TRUNC) != 0)
        return 0;
    t->len = (size_t)n - sizeof t->head;
    return 1;
}

static struct sp_file_ask ask_of(const struct taken *t, const char *window)
{
    const struct sp_files_ask *h = &t->head;

    return (struct sp_file_ask){
        .op = (enum sp_file_op)h->op,
        .path = t->path,
        .other = t->other,
        .follows = (h->flags & SP_FILES_FOLLOWS) != 0,
        .is_recursive = (h->flags & SP_FILES_RECURSIVE) != 0,
        .is_forced = (h->flags & SP_FILES_FORCED) != 0,
        .is_replace = (h->flags & SP_FILES_REPLACE) != 0,
        .hides_placeholders = (h->flags & SP_FILES_HIDES) != 0,
        .fd = t->fd,
        .offset = h->offset,
        .length = h->length,
        .walk = {.max_depth = h->max_depth,
                 .max_directories = h->max_directories,
                 .max_entries = h->max_entries,
                 .follows_directories = (h->flags & SP_FILES_WALK_FOLLOWS) != 0,
                 .prunes_hidden = (h->flags & SP_FILES_WALK_PRUNES) != 0},
        .data = window,
        .data_len = (size_t)h->data_len,
    };
}

/* Data that the window has no room for is mapped for as long as it takes. */
static void carry_out(const struct taken *t, char *window, struct sp_file_answer *a)
{
    struct sp_file_ask ask = ask_of(t, window);
    void *map = MAP_FAILED;

    *a = (struct sp_file_answer){
        .fd = -1, .memory = -1, .window = window, .window_size = SP_FILES_WINDOW, .err = EINVAL};
    if ((t->head.flags & SP_FILES_DATA_APART) != 0 && ask.data_len != 0) {
        map = mmap(NULL, ask.data_len, PROT_READ, MAP_SHARED | MAP_POPULATE, t->fd, 0);
        ask.data = map;
        a->err = map == MAP_FAILED ? errno : 0;
    } else if (ask.data_len <= SP_FILES_WINDOW) {
        a->err = 0;
    }
    if (a->err == 0)
        sp_file_do(&ask, a);
    if (map != MAP_FAILED)
        (void)munmap(map, ask.data_len);
}

/* false: nobody listens any more. */
static bool tell(int socket, uint64_t number, const struct sp_file_answer *a)
{
    const struct sp_files_answer m = {
        .number = number,
        .err = a->err,
        .refusal = a->refusal,
        .flags = (a->is_cut ? SP_FILES_CUT : 0U) | (a->memory >= 0 ? SP_FILES_APART : 0U) |
                 (a->fd >= 0 ? SP_FILES_OPENED : 0U) |
                 (a->stat.is_directory ? SP_FILES_IS_DIRECTORY : 0U) |
                 (a->stat.is_file ? SP_FILES_IS_FILE : 0U) |
                 (a->stat.is_link ? SP_FILES_IS_LINK : 0U),
        .data_len = a->data_len,
        .value = a->number,
        .size = a->stat.size,
        .created_ms = a->stat.created_ms,
        .modified_ms = a->stat.modified_ms,
    };
    const struct sp_files_answer back = {.number = number, .flags = SP_FILES_BACK};
    const int fd = a->memory >= 0 ? a->memory : a->fd;
    int r = sp_wire_send(socket, true, &m, sizeof m, NULL, 0, &fd, fd >= 0);

    if (fd >= 0)
        (void)close(fd);
    if (r == 0 && a->fd >= 0)
        r = sp_wire_send(socket, true, &back, sizeof back, NULL, 0, NULL, 0);
    return r == 0;
}

/* A block that was written may fail as late as here: on a network, at a quota. Nobody else is told
 * of it again. */
static void close_taken(struct taken *t, struct sp_file_answer *a)
{
    if (t->fd < 0)
        return;
    const int r = close(TAKE_FD(t->fd));
    if (r < 0 && errno != EINTR && t->head.op == SP_FILE_WRITE_BLOCK && a->err == 0)
        a->err = errno;
}

static void serve(int socket)
{
    static struct taken t;
    struct sp_file_answer a;

    if (take(socket, &t) == 0 || t.fd < 0)
        return;
    char *window = mmap(NULL, SP_FILES_WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, t.fd, 0);
    (void)close(t.fd);
    if (window == MAP_FAILED)
        return;
    while (take(socket, &t) != 0 &&
           sp_files_cut_paths(&t.head, t.paths, t.len, &t.path, &t.other)) {
        carry_out(&t, window, &a);
        close_taken(&t, &a);
        if (!tell(socket, t.head.number, &a))
            return;
    }
}

void sp_files_begin(int socket, int scope)
{
    sigset_t none;

    (void)setsid();
    (void)signal(SIGPIPE,
                 SIG_IGN); /* a FIFO whose reader goes, and a limit on the size of files: */
    (void)signal(SIGXFSZ, SIG_IGN); /* errors of the operation, not our end */
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)prctl(PR_SET_NAME, "sallyport-files");
    /* What we hold is for nobody who has our user id, nor in a core. */
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        (scope >= 0 && sp_landlock_enter(scope) < 0))
        _exit(1);
    if (dup3(socket, ANY_FILE_NUMBER, O_CLOEXEC) < 0 && socket != ANY_FILE_NUMBER)
        _exit(1);
    for (int i = 0; i < 3; i++) /* the cell's control is one of them */
        if (dup2(3, i) < 0)     /* which is /dev/null: os/spawn.h */
            _exit(1);
    if (close_range(ANY_FILE_NUMBER + 1, ~0U, 0) < 0)
        _exit(1);
    serve(ANY_FILE_NUMBER);
    _exit(0);
}
