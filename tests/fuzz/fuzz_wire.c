/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams between front and cell: whatever one side sends, the other takes it whole or refuses
 * it, keeps no descriptor of what it refused, and lays out strings only inside of them. The first
 * byte says how many descriptors come along, the rest is the datagram.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "cell/wire.h"
#include "fuzz.h"

#define MOST_FDS 7

static void put(int socket, const uint8_t *data, size_t size, int fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MOST_FDS * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        for (int i = 0; i < fd_count; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &socket, sizeof(int));
    }
    CHECK(sendmsg(socket, &h, MSG_NOSIGNAL) == (ssize_t)size);
}

static int next_fd(void)
{
    const int fd = dup(0);

    (void)close(fd);
    return fd;
}

static void check_strings(const struct sp_wire_message *m)
{
    const struct sp_wire_start *s = (const void *)m->bytes;
    const size_t len = m->len - sizeof *s;
    struct sp_wire_strings found;

    if ((uint64_t)s->argc + s->envc > 100000)
        return; /* the cell has no room for so many */
    char *text = fuzz_copy(m->bytes + sizeof *s, len);
    char **pointers = calloc((size_t)s->argc + s->envc + 2, sizeof(char *));
    CHECK(pointers != NULL);
    if (sp_wire_read_strings(s, text, len, pointers, &found)) {
        CHECK(s->argc > 0 && len >= (size_t)s->argc + s->envc + 2);
        CHECK(found.cwd == text && found.argv[s->argc] == NULL && found.envp[s->envc] == NULL);
        const char *at = found.file;
        for (uint32_t i = 0; i < s->argc + s->envc; i++) {
            const char *next = i < s->argc ? found.argv[i] : found.envp[i - s->argc];

            CHECK(next == at + strlen(at) + 1);
            at = next;
        }
        CHECK(at + strlen(at) + 1 == text + len);
    }
    free((void *)pointers);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sp_wire_message m;
    struct sp_err e;
    int pair[2];

    if (size < 2 || size > SP_WIRE_MAX + 100)
        return 0;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    const int before = next_fd();
    put(pair[0], data + 1, size - 1, data[0] % (MOST_FDS + 1));
    const int r = sp_wire_recv(pair[1], false, &m, &e);
    CHECK(r == 1 || r == -SP_E_MALFORMED);
    if (r == 1) {
        const struct sp_wire_head *h = (const void *)m.bytes;

        CHECK(m.len == size - 1 && memcmp(m.bytes, data + 1, m.len) == 0);
        CHECK(h->version == SP_WIRE_VERSION && h->op > 0 && h->op < SP_WIRE_OP_MAX);
        CHECK(m.is_cut == (h->op != SP_WIRE_INVENTORY && data[0] % (MOST_FDS + 1) > SP_WIRE_FDS));
        if (h->op == SP_WIRE_START)
            check_strings(&m);
        sp_wire_close_fds(&m);
    }
    CHECK(next_fd() == before);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return 0;
}
