# SPDX-License-Identifier: Apache-2.0
"""A program on a pseudo terminal: the driver of all tests that need one."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

import wire
from wire import wait_until

DETACH = b'\x1d'


class Screen:
    """A program that leads the session of a terminal of its own, as a person has it."""

    def __init__(self, argv, env, rows=24, cols=80, stdin=None, cwd=None):
        self.master, slave = pty.openpty()
        self.resize(rows, cols)
        self.slave = slave  # kept: its modes are looked at
        self.before = termios.tcgetattr(slave)
        self.seen = b''

        def lead():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        self.popen = subprocess.Popen(argv, stdin=slave if stdin is None else stdin, stdout=slave, stderr=slave,
                                      env=env, cwd=cwd, preexec_fn=lead)

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, cols, 0, 0))

    def type(self, data):
        os.write(self.master, data if isinstance(data, bytes) else data.encode())

    def take(self, timeout):
        if select.select([self.master], [], [], timeout)[0]:
            self.seen += os.read(self.master, 65536)

    def wait(self, text, count=1):
        text = text if isinstance(text, bytes) else text.encode()
        end = wire.deadline()
        while self.seen.count(text) < count:
            if time.monotonic() > end:
                raise AssertionError('no %r on the screen: %r' % (text, self.seen))
            if self.popen.poll() is not None:
                self.take(0.2)
                if self.seen.count(text) < count:
                    raise AssertionError('ended with %r without %r: %r' % (self.popen.returncode, text, self.seen))
            self.take(0.1)
        return self.seen

    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def wait_raw(self):
        wait_until(lambda: self.is_raw() or self.popen.poll() is not None, 'a raw terminal')

    def end(self):
        """Its exit status; the terminal has to be as it was."""
        end = wire.deadline()
        while self.popen.poll() is None:
            if time.monotonic() > end:
                raise AssertionError('does not end: %r' % self.seen)
            self.take(0.05)
        self.take(0)
        if not self.is_restored():
            raise AssertionError('the terminal was left as %r' % (termios.tcgetattr(self.slave),))
        return self.popen.returncode

    def close(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for fd in (self.master, self.slave):
            if fd >= 0:
                os.close(fd)
