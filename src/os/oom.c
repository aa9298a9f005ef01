/* SPDX-License-Identifier: Apache-2.0 */
#include "os/oom.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/auto.h"

#define MOST 1000

bool sp_oom_set(pid_t pid, int score)
{
    char path[48];
    char text[16];

    (void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    const int n = snprintf(text, sizeof text, "%d", score < MOST ? score : MOST);

    return fd >= 0 && write(fd, text, (size_t)n) == n;
}
