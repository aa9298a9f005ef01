/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_wire: what front and file process say to each other, looked at before anything of it is
 * used.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cell/cell_files.h"

int sp_files_take_fd(struct msghdr *h)
{
    int taken = -1;

    /* The kernel rounds up: there is room for more than was meant. */
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (taken < 0)
                taken = fd;
            else
                (void)close(fd);
        }
    }
    return taken;
}

bool sp_files_cut_paths(const struct sp_files_ask *m, char paths[SP_FILES_PATHS], size_t len,
                        const char **ret_path, const char **ret_other)
{
    const size_t a = m->path_len;
    const size_t b = m->other_len;

    if (a > SP_FILE_MAX_PATH || b > SP_FILE_MAX_PATH || a + b != len)
        return false;
    memmove(paths + a + 1, paths + a, b);
    paths[a] = paths[a + 1 + b] = 0;
    *ret_path = a != 0 ? paths : NULL;
    *ret_other = b != 0 ? paths + a + 1 : NULL;
    return true;
}

bool sp_files_is_answer(enum sp_file_op op, uint32_t length, const struct sp_files_answer *m,
                        bool has_fd)
{
    const bool is_apart = (m->flags & SP_FILES_APART) != 0;
    const bool is_opened = (m->flags & SP_FILES_OPENED) != 0;

    if (m->err < 0 || m->err >= SP_FILES_ERRNO_MAX || m->refusal >= SP_FILE_REFUSAL_MAX ||
        m->zero != 0)
        return false;
    if (m->err != 0 || m->refusal != SP_FILE_NOT_REFUSED)
        return !has_fd && !is_apart && !is_opened && m->data_len == 0;
    if (op == SP_FILE_OPEN)
        return has_fd && is_opened && !is_apart && m->data_len == 0;
    const bool is_limited = op == SP_FILE_READ_BLOCK || (op == SP_FILE_READ && length != 0);
    const uint32_t room = is_apart ? SP_FILE_MAX_READ : SP_FILES_WINDOW;
    return !is_opened && is_apart == has_fd && (!is_apart || m->data_len != 0) &&
           m->data_len <= (is_limited && length < room ? length : room);
}
