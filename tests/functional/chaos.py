# SPDX-License-Identifier: Apache-2.0
"""A proxy that cuts the connection at a chosen message.

It stands between a client and a server, TCP or unix sockets on either side, and knows where messages
begin and end: WebSocket messages after their upgrade, or lines. Messages are counted in each
direction over all connections; a cut names the n-th of a direction and where the connection breaks:

    before   the message does not arrive
    inside   half of its bytes do
    after    it arrives, and nothing after it

Connections after a cut pass until the next cut. So a script that is run once without cuts, and then
with a cut at each message that was counted, has seen a break at every boundary:

    with Proxy(srv.address) as proxy: script(proxy.address); total = dict(proxy.counts)
    for cut in every_cut(total):
        with Proxy(srv.address, cuts=[cut]) as proxy: script(proxy.address)
"""

import collections
import ctypes
import os
import socket
import struct
import tempfile
import threading

import wire

UP, DOWN = 'up', 'down'  # to the server, to the client
BEFORE, INSIDE, AFTER = 'before', 'inside', 'after'
MAX_MESSAGE = 128 << 20
LINGER = 5.0 * wire.SCALE  # how long a cut connection waits for its ends to notice

Cut = collections.namedtuple('Cut', 'direction number where')


def every_cut(counts, wheres=(BEFORE, AFTER)):
    """All cuts of a run that had so many messages in each direction."""
    return [Cut(direction, n, where) for direction in (UP, DOWN) for n in range(1, counts[direction] + 1) for where in wheres]


# ------------------------------------------------------------------------------ where messages end


class Lines:
    """Messages are lines. split() gives (bytes, is a message) for what is whole, and keeps the rest."""

    def __init__(self):
        self.buffer = bytearray()

    def split(self, data):
        self.buffer += data
        while True:
            end = self.buffer.find(b'\n') + 1
            if not end:
                return
            whole = bytes(self.buffer[:end])
            del self.buffer[:end]
            yield whole, True


class Frames:
    """An HTTP head, then WebSocket messages with all their frames; control frames are none."""

    def __init__(self):
        self.buffer = bytearray()
        self.has_head = False
        self.frames = bytearray()  # of the message that is not whole

    def _head(self):
        end = self.buffer.find(b'\r\n\r\n') + 4
        if end < 4:
            return None
        self.has_head = True
        return end

    def _frame(self):
        """(size, opcode, is final) of the frame at the front, or None."""
        b = self.buffer
        if len(b) < 2:
            return None
        length, at = b[1] & 0x7F, 2
        for code, form, size in ((126, '>H', 2), (127, '>Q', 8)):
            if b[1] & 0x7F == code:
                if len(b) < at + size:
                    return None
                length = struct.unpack_from(form, b, at)[0]
                at += size
        total = at + (4 if b[1] & 0x80 else 0) + length
        if total > MAX_MESSAGE:
            raise ValueError('a frame of %d bytes' % length)
        return (total, b[0] & 0x0F, bool(b[0] & 0x80)) if len(b) >= total else None

    def _take(self, n):
        whole = bytes(self.buffer[:n])
        del self.buffer[:n]
        return whole

    def split(self, data):
        self.buffer += data
        if not self.has_head:
            end = self._head()
            if end is None:
                return
            yield self._take(end), False
        while True:
            found = self._frame()
            if found is None:
                return
            size, opcode, is_final = found
            if opcode >= 8:
                yield self._take(size), False  # it may stand between two frames of a message
                continue
            self.frames += self._take(size)
            if is_final:
                message, self.frames = bytes(self.frames), bytearray()
                yield message, True


# ---------------------------------------------------------------------------------------- the proxy


def _connect(address):
    s = socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.settimeout(wire.DEADLINE)
        s.connect(address)
        s.settimeout(None)
    except BaseException:
        s.close()
        raise
    return s


class _Pair:
    """One connection: two sockets, and a thread for each direction."""

    def __init__(self, proxy, client, server):
        self.proxy, self.is_cut = proxy, False
        self.ends = {UP: (client, server), DOWN: (server, client)}
        self.left = 2
        self.threads = [threading.Thread(target=self._pump, args=(d,), daemon=True) for d in (UP, DOWN)]
        for t in self.threads:
            t.start()

    def _pump(self, direction):
        source, sink = self.ends[direction]
        messages = self.proxy.messages()
        try:
            while True:
                data = source.recv(1 << 16)
                if not data:
                    break
                if self.is_cut:
                    continue  # until the end notices: closing on unread bytes would destroy what was sent
                for part, is_message in messages.split(data):
                    if not self._pass(direction, part, is_message, sink):
                        break
        except (OSError, ValueError):
            pass
        self._ended(sink)

    def _pass(self, direction, part, is_message, sink):
        where = self.proxy.judge(direction, part) if is_message else None
        if self.is_cut:
            return False
        if where is None:
            sink.sendall(part)
            return True
        self.is_cut = True
        if where == AFTER:
            sink.sendall(part)
        elif where == INSIDE:
            sink.sendall(part[:len(part) // 2])
        self.cut()
        return False

    def cut(self):
        """Both ends read what was sent to them, then the end of the stream."""
        self.is_cut = True
        for s in self.ends[UP]:
            try:
                s.settimeout(LINGER)
                s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        self.proxy.has_cut.set()

    def _ended(self, sink):
        """A direction is over; with the second one the connection is."""
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        with self.proxy.lock:
            self.left -= 1
            is_last = self.left == 0
        if is_last:
            for s in self.ends[UP]:
                s.close()

    def stop(self):
        for s in self.ends[UP]:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for t in self.threads:
            t.join(LINGER)
        for s in self.ends[UP]:
            s.close()


class _ResetPair(_Pair):
    """A cut destroys what is under way, and both ends are told of an error."""

    def cut(self):
        self.is_cut = True
        for s in self.ends[UP]:
            ctypes.CDLL(None).connect(s.fileno(), struct.pack('=H14x', socket.AF_UNSPEC), 16)
        self.proxy.has_cut.set()


class Proxy:
    """target: (ip, port) or the path of a unix socket. is_unix: listen on a unix socket. Connections
    beyond the first `refuse_from` are closed at once, if it is given."""

    pair = _Pair

    def __init__(self, target, messages=Frames, cuts=(), is_unix=False, refuse_from=None):
        self.target, self.messages, self.cuts, self.refuse_from = target, messages, list(cuts), refuse_from
        self.lock = threading.Lock()
        self.counts = {UP: 0, DOWN: 0}
        self.log = []  # (direction, message), in the order in which they were judged
        self.connections = 0
        self.has_cut = threading.Event()
        self.pairs = []
        self.folder = tempfile.mkdtemp(prefix='chaos-') if is_unix else None
        self.listener = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET, socket.SOCK_STREAM)
        self.listener.bind(os.path.join(self.folder, 's') if is_unix else ('127.0.0.1', 0))
        self.listener.listen(64)
        self.address = self.listener.getsockname()
        if not is_unix:  # who goes through here shows the token of the server behind
            self.address = wire.Address(self.address, getattr(target, 'token', ''))
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def url(self, path=None):
        if self.folder:
            return 'unix://' + self.address
        return 'ws://%s:%d%s' % (*self.address, wire.query_of(self.address) if path is None else path)

    def judge(self, direction, message):
        """Counts a message; where it is cut, or None."""
        with self.lock:
            self.counts[direction] += 1
            self.log.append((direction, message))
            for cut in self.cuts:
                if cut.direction == direction and cut.number == self.counts[direction]:
                    return cut.where
        return None

    def cut_now(self):
        """All connections that are there."""
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            pair.cut()

    def wait_cut(self, timeout=None):
        if not self.has_cut.wait(wire.DEADLINE if timeout is None else timeout):
            raise wire.Timeout('no cut: %s messages' % self.counts)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.refuse_from is not None and self.connections > self.refuse_from:
                client.close()
                continue
            try:
                server = _connect(self.target)
            except OSError:
                client.close()
                continue
            for s in (client, server):
                if s.family != socket.AF_UNIX:
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.pairs.append(self.pair(self, client, server))

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        except OSError:
            pass
        self.thread.join(LINGER)
        self.listener.close()
        for pair in self.pairs:
            pair.stop()
        if self.folder:
            os.unlink(os.path.join(self.folder, 's'))
            os.rmdir(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class ResettingProxy(Proxy):
    """Cuts with a reset, TCP on both sides."""

    pair = _ResetPair
