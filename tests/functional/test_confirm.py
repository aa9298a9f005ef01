# SPDX-License-Identifier: Apache-2.0
"""Flow control by what the client has read, of a server with a keeper: pings and pongs, unix sockets, process/read."""

import hashlib
import os
import time

import tap
from server import PYTHON, Case, ours_only
from test_output import PATTERN, pattern, wait_blocked
from wire import MIB, PING, PONG, WebSocket, unb64, wait_until

HIGH_WATER = 786432  # unread bytes of a ring at which the command is paused
ROOM = HIGH_WATER + 256 * 1024 + 65536  # ... and what its pipe and one read of the cell hold
LATE = 2.0  # how long a pong may take


class Answering(WebSocket):
    """A peer that answers pings when it is told to, or the last of those that are there."""

    def __init__(self, channel):
        super().__init__(channel)
        self.auto_pong = self.answers_last = False

    def pong(self, payload):
        self.send_frame(PONG, payload)

    def receive_frame(self, end):
        got = super().receive_frame(end)
        if got is not None and got[1] == PING and self.answers_last and not self.channel.readable():
            self.pong(got[2])
        return got


class Flood(Case):
    def start(self, c, size):
        """A command that writes `size` bytes; returns its pid."""
        path = os.path.join(self.srv.work, 'pid')
        c.keep_output = False
        c.start('p', ['/bin/sh', '-c', 'echo $$ > "$2"; exec "$0" -S -c "$1" %d' % size, PYTHON, PATTERN, path])
        wait_until(lambda: os.path.exists(path) and open(path).read().endswith('\n'), 'pid')
        with open(path) as f:
            return self.srv.track(int(f.read()))

    def flood(self, size, **how):
        self.srv = self.server('--keeper')
        self.transport = Answering.connect(self.srv.address, **how)
        c = self.srv.client(self.transport).handshake()
        self.pid = self.start(c, size)
        return c

    def pings(self, c, count=1):
        """Waits for them: a fence brings what is before its reply."""
        wait_until(lambda: c.fence() and len(self.transport.pings) >= count, 'pings')
        return self.transport.pings


@ours_only
class Pongs(Flood):
    def whole(self, p, size):
        self.assertEqual((p.exit_code, p.sizes['stdout']), (0, size))
        self.assertEqual(p.hashes['stdout'].hexdigest(), hashlib.sha256(pattern(size)).hexdigest())

    def test_a_client_without_pongs_stalls_once(self):
        size = 24 * MIB
        began = time.monotonic()
        c = self.flood(size)
        self.whole(c.wait_closed('p'), size)
        self.assertGreater(len(self.transport.pings), 2)
        # The first mark is believed after LATE, and all later ones at once; with LATE for each window it were 60 s.
        self.assertGreater(time.monotonic() - began, LATE * 0.9)
        self.assertLess(time.monotonic() - began, LATE * 8)

    def test_nothing_unread_is_forgotten_while_pongs_are_late(self):
        c = self.flood(24 * MIB)
        p = c.process('p')
        self.pings(c)
        self.transport.pong(self.transport.pings[-1])  # a client that answers is given LATE each time
        c.wait_for(lambda: p.sizes['stdout'] > HIGH_WATER // 2)
        read = p.chunks[-1][0]
        other = self.srv.session()
        page = other.request('process/read', {'sessionId': c.session_id, 'processId': 'p', 'afterSeq': read})
        numbers = [x['seq'] for x in page['chunks']]
        self.assertEqual(numbers, list(range(read + 1, read + 1 + len(numbers))))
        self.assertLess(sum(len(unb64(x['chunk'])) for x in page['chunks']), ROOM)
        self.transport.auto_pong = True
        self.transport.pong(self.transport.pings[-1])
        self.whole(c.wait_closed('p'), 24 * MIB)

    def test_the_newest_pong_confirms_all_pings_before_it(self):
        size = 24 * MIB
        c = self.flood(size)
        self.transport.answers_last = True
        began = time.monotonic()
        self.whole(c.wait_closed('p'), size)
        self.assertGreater(len(self.transport.pings), 10)
        self.assertLess(time.monotonic() - began, size / HIGH_WATER * LATE / 2)

    def test_wrong_pongs_confirm_nothing(self):
        c = self.flood(24 * MIB)
        p = c.process('p')
        self.pings(c)
        good = self.transport.pings[0]
        self.assertEqual(len(good), 8)
        self.transport.pong(good)
        self.pings(c, 2)
        for wrong in (b'', good, b'\xff' * 8, b'\0' * 8, good + b'x', good[:7], b'x' * 125):
            self.transport.pong(wrong)
        began = time.monotonic()
        while time.monotonic() - began < LATE * 0.5:  # the next window is not opened
            try:
                c.pump(0.05)
            except AssertionError:
                pass
        self.assertLess(p.sizes['stdout'], 2 * ROOM)
        self.transport.auto_pong = True
        self.transport.pong(self.transport.pings[-1])
        self.whole(c.wait_closed('p'), 24 * MIB)

    def test_a_read_after_a_number_confirms(self):
        size = 12 * MIB
        c = self.flood(size)
        p = c.process('p')
        self.pings(c)
        self.transport.pong(self.transport.pings[0])
        asked, began = 0, time.monotonic()
        while not p.closed:
            c.pump()
            if p.sizes['stdout'] - asked > HIGH_WATER // 2:
                asked = p.sizes['stdout']
                c.post_read('p', afterSeq=p.chunks[-1][0], maxBytes=1)
        self.whole(p, size)
        self.assertLess(time.monotonic() - began, size / HIGH_WATER * LATE / 2)

    def test_quiet_processes_send_no_ping_before_they_end(self):
        c = self.flood(1000)
        c.wait_closed('p')
        c.start('q', ['/bin/sh', '-c', 'head -c 100000 /dev/zero; read x'], pipeStdin=True)
        c.wait_for(lambda: c.process('q').sizes['stdout'] == 100000)
        self.pings(c)  # the end of p, a second later
        c.fence()
        self.assertEqual(len(self.transport.pings), 1)

    def test_a_slow_reader_loses_nothing(self):
        size = 6 * MIB
        c = self.flood(size, rcvbuf=4096)
        self.transport.auto_pong = True
        self.assertLess(wait_blocked(self.pid), size)
        self.whole(c.wait_closed('p'), size)

    def test_many_chunks_of_a_byte(self):
        script = ('import os, fcntl, struct, termios\n'
                  'for i in range(50200):\n'
                  '    os.write(1, b"ab"[i & 1:][:1])\n'
                  '    while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, b"1234"))[0]: os.sched_yield()\n')
        c = self.flood(0)
        self.transport.auto_pong = True
        c.start('q', [PYTHON, '-S', '-c', script])
        q = c.process('q')
        c.wait_for(lambda: len(self.transport.pings) > 1)
        self.transport.auto_pong = False
        read = q.chunks[-1][0]
        # Nothing is confirmed for some time: what comes meanwhile can be read.
        c.wait_for(lambda: q.closed or q.chunks[-1][0] > read + 15000)
        page = c.read('q', afterSeq=read)
        numbers = [x['seq'] for x in page['chunks']]
        self.assertEqual(numbers, list(range(read + 1, read + 1 + len(numbers))))
        self.transport.auto_pong = True
        self.transport.pong(self.transport.pings[-1])
        self.assertEqual(c.wait_closed('q').sizes['stdout'], 50200)


@ours_only
class Lines(Flood):
    """Without pings the kernel tells what was read."""

    SIZE = 6 * MIB

    def check(self, c):
        self.assertLess(wait_blocked(self.start(c, self.SIZE)), self.SIZE)
        p = c.wait_closed('p')
        self.assertEqual((p.exit_code, p.sizes['stdout']), (0, self.SIZE))
        self.assertEqual(p.hashes['stdout'].hexdigest(), hashlib.sha256(pattern(self.SIZE)).hexdigest())

    def test_a_unix_socket(self):
        self.srv = self.server('--keeper', listen='unix://' + os.path.join(self.scratch(), 'socket'))
        self.check(self.srv.lines().handshake())

    def test_frames_on_a_unix_socket(self):
        self.srv = self.server('--keeper', listen='unix://' + os.path.join(self.scratch(), 'socket'))
        self.check(self.srv.client(WebSocket.connect(self.srv.address)).handshake())

    def test_stdio(self):
        self.srv = self.server(listen='stdio')
        self.check(self.srv.lines().handshake())

    def test_nothing_unread_is_forgotten(self):
        self.srv = self.server('--keeper', listen='unix://' + os.path.join(self.scratch(), 'socket'))
        c = self.srv.lines().handshake()
        other = self.srv.lines().handshake()
        pid = self.start(c, self.SIZE)
        p = c.process('p')
        c.wait_for(lambda: p.chunks)
        wait_blocked(pid)
        read = p.chunks[-1][0]
        page = other.request('process/read', {'sessionId': c.session_id, 'processId': 'p', 'afterSeq': read})
        numbers = [x['seq'] for x in page['chunks']]
        self.assertEqual(numbers, list(range(read + 1, read + 1 + len(numbers))))
        self.assertGreater(len(numbers), 1)
        self.assertEqual(c.wait_closed('p').sizes['stdout'], self.SIZE)


@ours_only
class Ends(Flood):
    def test_eviction_takes_no_end_that_was_not_read(self):
        # Their output is more than the budget: only those that were read may lose it.
        srv = self.server('--keeper', '--kept-memory', '1M', '--closed-ttl', '600')
        self.transport = Answering.connect(srv.address)
        c = srv.client(self.transport).handshake()
        c.run(['echo', 'first'], 'first')
        self.transport.pong(self.pings(c)[-1])  # after a second
        for i in range(90):
            c.sh('head -c 14000 /dev/zero | tr "\\0" x', 'p%d' % i)
        page = c.read('p0')
        self.assertEqual((len(page['chunks']) > 0, page['exitCode'], page['closed']), (True, 0, True))
        self.assertEqual(sum(len(unb64(x['chunk'])) for x in page['chunks']), 14000)


if __name__ == '__main__':
    tap.main()
