/* SPDX-License-Identifier: Apache-2.0 */
#include "os/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/auto.h"

int sp_pty_open(uint16_t rows, uint16_t cols, struct sp_pty *ret, struct sp_err *e)
{
    auto_close int master = -1;
    auto_close int slave = -1;
    int unlocked = 0;

    master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (master < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open terminal");
    if (ioctl(master, TIOCSPTLCK, &unlocked) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "unlock terminal");
    /* By ioctl, not by path: /dev/pts may belong to another mount namespace. */
    slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open terminal peer");
    const int err = sp_pty_resize(master, rows, cols);
    if (err != 0)
        return sp_fail(e, SP_E_SYSTEM, err, "size terminal");
    *ret = (struct sp_pty){.master = TAKE_FD(master), .slave = TAKE_FD(slave)};
    return 0;
}
