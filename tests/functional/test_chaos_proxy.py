# SPDX-License-Identifier: Apache-2.0
"""The proxy of chaos.py cuts where it says, and a server lives through a cut at every message."""

import os
import socket
import threading
import unittest

import chaos
import tap
import wire
from chaos import AFTER, BEFORE, DOWN, INSIDE, UP, Cut, Frames, Lines, Proxy
from server import Case


class Echo:
    """A server that answers each line with the same line; it remembers what arrived."""

    def __init__(self):
        self.seen, self.ends = [], []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s):
        with s, s.makefile('rwb') as f:
            try:
                for line in f:
                    self.seen.append(line)
                    if line.endswith(b'\n'):
                        f.write(line)
                        f.flush()
            except OSError:
                pass
        self.ends.append(s)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def talk(address, lines):
    """Sends each line and waits for its echo; what came back until the end."""
    got = []
    with socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX) as s:
        s.settimeout(wire.DEADLINE)
        s.connect(address)
        with s.makefile('rwb') as f:
            try:
                for line in lines:
                    f.write(line)
                    f.flush()
                    answer = f.readline()
                    if answer:
                        got.append(answer)
                    if not answer.endswith(b'\n'):
                        break
            except OSError:
                pass
    return got


class Splitting(unittest.TestCase):
    def feed(self, splitter, data, step):
        parts = []
        for i in range(0, len(data), step):
            parts += list(splitter.split(data[i:i + step]))
        return parts

    def test_lines_are_found_however_they_come(self):
        for step in (1, 2, 3, 100):
            self.assertEqual(self.feed(Lines(), b'a\nbc\n\nd', step), [(b'a\n', True), (b'bc\n', True), (b'\n', True)])

    def test_frames_are_found_however_they_come(self):
        head = b'GET / HTTP/1.1\r\nA: b\r\n\r\n'
        first, ping, last = wire.frame(wire.TEXT, b'x' * 200, fin=False), wire.frame(wire.PING, b'p'), wire.frame(0, b'y' * 70000)
        whole = wire.frame(wire.BINARY, b'', mask=False)
        want = [(head, False), (ping, False), (first + last, True), (whole, True)]
        for step in (1, 7, 4096, 1 << 20):
            self.assertEqual(self.feed(Frames(), head + first + ping + last + whole, step), want)


class Cutting(unittest.TestCase):
    LINES = [b'one\n', b'two\n', b'three\n']

    def setUp(self):
        self.echo = Echo()
        self.addCleanup(self.echo.close)

    def run_with(self, *cuts, **how):
        with Proxy(self.echo.address, messages=Lines, cuts=cuts, **how) as proxy:
            got = talk(proxy.address, self.LINES)
            again = talk(proxy.address, [b'again\n'])
            return got, again, dict(proxy.counts)

    def test_without_a_cut_everything_passes(self):
        self.assertEqual(self.run_with(), (self.LINES, [b'again\n'], {UP: 4, DOWN: 4}))
        self.assertEqual(self.run_with(is_unix=True), (self.LINES, [b'again\n'], {UP: 4, DOWN: 4}))

    def test_a_cut_is_at_its_message_and_once(self):
        for cut in chaos.every_cut({UP: 3, DOWN: 3}, (BEFORE, INSIDE, AFTER)):
            with self.subTest(cut):
                self.echo.seen.clear()
                got, again, _ = self.run_with(cut)
                n, line = cut.number, self.LINES[cut.number - 1]
                arrived = {BEFORE: [], INSIDE: [line[:len(line) // 2]], AFTER: [line]}[cut.where]
                self.assertEqual(again, [b'again\n'])
                if cut.direction == UP:
                    self.assertEqual(got, self.LINES[:n - 1])
                    wire.wait_until(lambda: len(self.echo.seen) >= n - 1 + len(arrived) + 1, 'what was sent arrives')
                    self.assertEqual([x for x in self.echo.seen if x != b'again\n'], self.LINES[:n - 1] + arrived)
                else:
                    self.assertEqual(got, self.LINES[:n - 1] + arrived)

    def test_connections_can_be_refused(self):
        with Proxy(self.echo.address, messages=Lines, refuse_from=1) as proxy:
            self.assertEqual(talk(proxy.address, [b'x\n']), [b'x\n'])
            self.assertEqual(talk(proxy.address, [b'x\n']), [])

    def test_all_can_be_cut_at_any_time(self):
        with Proxy(self.echo.address, messages=Lines) as proxy, socket.create_connection(proxy.address) as s:
            s.settimeout(wire.DEADLINE)
            s.sendall(b'x\n')
            self.assertEqual(s.recv(10), b'x\n')
            proxy.cut_now()
            proxy.wait_cut()
            self.assertEqual(s.recv(10), b'')

    def test_nothing_is_left_behind(self):
        before = threading.active_count()
        fds = len(os.listdir('/proc/self/fd'))
        self.run_with(Cut(DOWN, 2, BEFORE))
        wire.wait_until(lambda: threading.active_count() <= before, 'threads end')
        wire.wait_until(lambda: len(os.listdir('/proc/self/fd')) <= fds, 'descriptors are closed')


class Server(Case):
    def script(self, srv, proxy):
        """A session with one process."""
        client = srv.client(wire.WebSocket.connect(proxy.address))
        try:
            client.handshake()
            client.start('p', ['/bin/cat'], pipeStdin=True)
            client.write('p', b'hello\n')
            client.wait_output('p', b'hello')
            client.terminate('p')
            client.wait_closed('p')
        finally:
            client.abort()

    def test_a_server_lives_through_a_cut_at_every_message(self):
        srv = self.server()
        with Proxy(srv.address) as proxy:
            self.script(srv, proxy)
            counts = dict(proxy.counts)
        self.assertGreaterEqual(counts[UP], 4)
        self.assertGreaterEqual(counts[DOWN], 5)
        for cut in chaos.every_cut(counts, (BEFORE, INSIDE, AFTER)):
            with self.subTest(cut), Proxy(srv.address, cuts=[cut]) as proxy:
                try:
                    self.script(srv, proxy)
                except (wire.Closed, wire.Timeout, OSError):
                    pass
                self.script(srv, proxy)  # another one has no trouble


if __name__ == '__main__':
    tap.main()
