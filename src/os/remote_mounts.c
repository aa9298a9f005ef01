/* SPDX-License-Identifier: Apache-2.0 */
#include "os/remote_mounts.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "os/fd.h"
#include "os/mount.h"

static bool is_remote_type(const char *type)
{
    static const char *const types[] = {"9p",   "afs",     "autofs", "ceph",    "cifs",
                                        "fuse", "fuseblk", "gfs2",   "lustre",  "nfs",
                                        "nfs4", "ocfs2",   "smb3",   "virtiofs"};

    if (strncmp(type, "fuse.", 5) == 0)
        return true;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

/* false: no memory. */
static bool add_line(struct sp_remote_mounts *m, char *line)
{
    const char *point;
    const char *type;

    if (!sp_mount_line(line, &point, &type) || !is_remote_type(type))
        return true;
    char **points = realloc(m->points, (m->count + 1) * sizeof *points);
    if (points == NULL)
        return false;
    m->points = points;
    points[m->count] = strdup(point);
    return points[m->count] != NULL && ++m->count != 0;
}

void sp_remote_mounts_open(struct sp_remote_mounts *m)
{
    auto_free char *line = NULL;
    size_t size = 0;

    *m = (struct sp_remote_mounts){
        .fd = sp_fd_lift(open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC))};
    FILE *f = m->fd < 0 ? NULL : fopen("/proc/self/mountinfo", "re");
    bool ok = f != NULL;
    while (ok && getline(&line, &size, f) > 0)
        ok = add_line(m, line);
    if (f != NULL)
        (void)fclose(f);
    if (!ok)
        sp_auto_close(&m->fd);
    m->fd = ok ? m->fd : -1;
}

void sp_remote_mounts_close(struct sp_remote_mounts *m)
{
    for (size_t i = 0; i < m->count; i++)
        free(m->points[i]);
    free(m->points);
    m->points = NULL;
    m->count = 0;
    if (m->fd >= 0)
        (void)close(m->fd);
    m->fd = -1;
}

void sp_remote_mounts_refresh(struct sp_remote_mounts *m)
{
    struct pollfd p = {.fd = m->fd, .events = POLLPRI};

    if (m->fd < 0 || poll(&p, 1, 0) <= 0 || (p.revents & (POLLPRI | POLLERR)) == 0)
        return;
    const uint64_t generation = m->generation + 1;
    sp_remote_mounts_close(m);
    sp_remote_mounts_open(m);
    m->generation = generation;
}

bool sp_remote_mounts_have(const struct sp_remote_mounts *m, const char *path)
{
    if (m->fd < 0)
        return true;
    for (size_t i = 0; i < m->count; i++) {
        const size_t n = strlen(m->points[i]);

        if (n == 1 || (strncmp(path, m->points[i], n) == 0 && (path[n] == 0 || path[n] == '/')))
            return true;
    }
    return false;
}
