# SPDX-License-Identifier: Apache-2.0
"""A file system in user space that answers when it is told to: a disk that hangs, made to order."""

import ctypes
import errno
import os
import stat
import struct
import tempfile
import threading

LOOKUP, FORGET, GETATTR, SETATTR, READLINK, OPEN, READ, WRITE, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, \
    ACCESS, INTERRUPT, BATCH_FORGET = 1, 2, 3, 4, 5, 14, 15, 16, 17, 18, 25, 26, 27, 28, 29, 34, 36, 42
ROOT, FILE, SUB = 1, 2, 3
NAMES = {b'f': FILE, b'sub': SUB}

LIBC = ctypes.CDLL(None, use_errno=True)
DETACH = 2


def is_possible():
    try:
        os.close(os.open('/dev/fuse', os.O_RDWR))
    except OSError:
        return False
    return os.geteuid() == 0


class SlowDisk:
    """A directory `path` with a file `f` and a directory `sub`."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix='sallyport-disk-')
        self.content = bytearray(b'content\n')
        self.lock = threading.Condition()
        self.held = set()    # opcodes that get no answer for now
        self.held_from = None  # READ of this offset and above gets none either
        self.kept = []       # their answers
        self.seen = []       # opcodes, in order
        self.fails = {}      # opcode -> errno
        self.fuse = os.open('/dev/fuse', os.O_RDWR)
        options = 'fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other' % self.fuse
        if LIBC.mount(b'slow', self.path.encode(), b'fuse', 0, options.encode()) != 0:
            os.close(self.fuse)
            raise OSError(ctypes.get_errno(), 'mount')
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def close(self):
        self.release()
        LIBC.umount2(self.path.encode(), DETACH)
        os.close(self.fuse)  # whoever still waits is told
        os.rmdir(self.path)

    def hold(self, *opcodes):
        with self.lock:
            self.held.update(opcodes)

    def release(self):
        with self.lock:
            self.held.clear()
            self.held_from = None
            kept, self.kept = self.kept, []
        for message in kept:
            self._send(message)

    def wait_kept(self, count=1, timeout=20):
        """So many wait for an answer."""
        with self.lock:
            if not self.lock.wait_for(lambda: len(self.kept) >= count, timeout):
                raise AssertionError('nobody asked the disk')

    # ---- the kernel's questions ----

    def _serve(self):
        while True:
            try:
                message = os.read(self.fuse, 1 << 18)
            except OSError as e:
                if e.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                return
            _, opcode, unique, node = struct.unpack_from('<IIQQ', message)
            with self.lock:
                self.seen.append(opcode)
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            err, body = self._answer(opcode, node, message[40:])
            out = struct.pack('<IiQ', 16 + len(body), -err, unique) + body
            with self.lock:
                is_far = (opcode == READ and self.held_from is not None and
                          struct.unpack_from('<Q', message, 48)[0] >= self.held_from)
                if opcode in self.held or is_far:
                    self.kept.append(out)
                    self.lock.notify_all()
                    continue
            self._send(out)

    def _send(self, message):
        try:
            os.write(self.fuse, message)
        except OSError:
            pass  # who asked is gone

    def _attr(self, node):
        mode = stat.S_IFREG | 0o644 if node == FILE else stat.S_IFDIR | 0o755
        size = len(self.content) if node == FILE else 0
        return struct.pack('<6Q10I', node, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)

    def _answer(self, opcode, node, body):
        """(errno, bytes)"""
        if opcode in self.fails:
            return self.fails[opcode], b''
        if opcode == INIT:
            return 0, struct.pack('<IIIIHHIIHHI28x', 7, 31, 65536, 0, 16, 12, 1 << 17, 1, 32, 0, 0)
        if opcode == LOOKUP:
            found = NAMES.get(body.split(b'\0')[0]) if node == ROOT else None
            if found is None:
                return errno.ENOENT, b''
            return 0, struct.pack('<QQQQII', found, 0, 0, 0, 0, 0) + self._attr(found)
        if opcode in (GETATTR, SETATTR):
            if opcode == SETATTR and struct.unpack_from('<I', body)[0] & 8:  # its size
                size = struct.unpack_from('<Q', body, 16)[0]
                self.content = self.content[:size].ljust(size, b'\0')
            return 0, struct.pack('<QII', 0, 0, 0) + self._attr(node)
        if opcode in (OPEN, OPENDIR):
            return 0, struct.pack('<QII', 0, 0, 0)
        if opcode == READ:
            _, offset, size = struct.unpack_from('<QQI', body)
            return 0, bytes(self.content[offset:offset + size])
        if opcode == WRITE:
            _, offset, size = struct.unpack_from('<QQI', body)
            self.content[offset:offset + size] = body[40:40 + size]
            return 0, struct.pack('<II', size, 0)
        if opcode == READDIR:
            return 0, b''
        if opcode in (FLUSH, RELEASE, RELEASEDIR, ACCESS):
            return 0, b''
        return errno.ENOSYS, b''
