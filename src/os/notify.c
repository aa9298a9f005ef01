/* SPDX-License-Identifier: Apache-2.0 */
#include "os/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "os/fd.h"

#define BUFFER 16384 /* fits at least one event with the longest name */

int sp_notify_open(void)
{
    const int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    return fd < 0 ? -errno : sp_fd_lift(fd);
}

int sp_notify_add(int fd, const char *path, unsigned flags)
{
    uint32_t mask = IN_MASK_ADD | IN_DELETE_SELF | IN_MOVE_SELF;

    if ((flags & SP_NOTIFY_NAMES) != 0)
        mask |= IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;
    if ((flags & SP_NOTIFY_CONTENTS) != 0)
        mask |= IN_CLOSE_WRITE | IN_ATTRIB;
    if ((flags & SP_NOTIFY_MODES) != 0)
        mask |= IN_ATTRIB;
    if ((flags & SP_NOTIFY_FOLDER) != 0)
        mask |= IN_ONLYDIR;
    if ((flags & SP_NOTIFY_OWN_LINKS) != 0)
        mask |= IN_DONT_FOLLOW;
    const int id = inotify_add_watch(fd, path, mask);
    return id < 0 ? -errno : id;
}

void sp_notify_remove(int fd, int id)
{
    (void)inotify_rm_watch(fd, id); /* EINVAL: it has ended with its file */
}

int sp_notify_read(int fd, void (*tell)(void *user, const struct sp_file_notice *n), void *user)
{
    char bytes[BUFFER];
    const ssize_t n = read(fd, bytes, sizeof bytes);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    for (size_t at = 0; at + sizeof(struct inotify_event) <= (size_t)n;) {
        struct inotify_event ev;

        memcpy(&ev, bytes + at, sizeof ev);
        at += sizeof ev;
        const struct sp_file_notice notice = {
            .id = (ev.mask & IN_Q_OVERFLOW) != 0 ? -1 : ev.wd,
            .name = ev.len == 0 || bytes[at] == 0 ? NULL : bytes + at,
            .is_new = (ev.mask & IN_CREATE) != 0,
            .is_gone = (ev.mask & (IN_DELETE | IN_MOVED_FROM)) != 0,
            .is_over = (ev.mask & IN_IGNORED) != 0,
        };
        at += ev.len;
        tell(user, &notice);
    }
    return 0;
}
