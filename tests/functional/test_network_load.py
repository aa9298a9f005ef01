# SPDX-License-Identifier: Apache-2.0
"""Much of the managed network: cells, connections, commands. Processes, descriptors and memory come back afterwards."""

import os
import select
import socket
import threading
import time

import tap
import wire
from managed import helpers_of
from sandbox_policy import project_write
from server import PYTHON, SANITIZED, descendants, is_alive, ours_only, status_of
from test_network_wire import Wire
from wire import wait_until

PORTS = 8  # of the server: one port alone has too few local ports for 100,000 connections in a minute
NAMES = ['load%d.test' % i for i in range(PORTS)]

# argv: connections, seconds. Opens them by name, and echoes on all of them for so long; says how many bytes came back.
TRAFFIC = '''
import resource, select, socket, sys, time
count, seconds = int(sys.argv[1]), float(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
at = [socket.gethostbyname(h) for h in sys.argv[3:]]
socks = {}
poll = select.epoll()
for i in range(count):
    s = socket.create_connection((at[i % len(at)], 22), 60)
    s.setblocking(False)
    socks[s.fileno()] = s
    poll.register(s.fileno(), select.EPOLLIN)
block = b'x' * 1000
for s in socks.values():
    s.send(block)
waits = dict.fromkeys(socks, len(block))
served, total, end = set(), 0, time.monotonic() + seconds
while waits:
    events = poll.poll(60)
    if not events:
        sys.exit('silence')
    for fd, _ in events:
        n = len(socks[fd].recv(65536))
        if n == 0:
            sys.exit('a connection ended')
        total += n
        waits[fd] -= n
        if waits[fd]:
            continue
        served.add(fd)
        if time.monotonic() < end:
            socks[fd].send(block)
            waits[fd] = len(block)
        else:
            del waits[fd]
print(len(served), total)
'''


class Echo:
    """Echoes on any number of connections; keeps none that has ended."""

    def __init__(self):
        self.listeners = [socket.create_server(('127.0.0.1', 0), backlog=4096) for _ in range(PORTS)]
        self.ports = [s.getsockname()[1] for s in self.listeners]
        self.accepted, self.open, self.poll = 0, {}, select.epoll()
        for s in self.listeners:
            s.setblocking(False)
            self.poll.register(s, select.EPOLLIN)
        self.is_over = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        doors = {s.fileno(): s for s in self.listeners}
        while not self.is_over:
            for fd, _ in self.poll.poll(0.5):
                if fd in doors:
                    self.accept(doors[fd])
                else:
                    self.serve(fd)

    def accept(self, door):
        for _ in range(256):
            try:
                conn, _ = door.accept()
            except BlockingIOError:
                return
            conn.setblocking(True)
            self.accepted += 1
            self.open[conn.fileno()] = conn
            self.poll.register(conn, select.EPOLLIN)

    def serve(self, fd):
        try:
            data = self.open[fd].recv(65536)
            self.open[fd].sendall(data)
        except OSError:
            data = b''
        if not data:
            self.open.pop(fd).close()

    def close(self):
        self.is_over = True
        self.thread.join()
        for s in [*self.listeners, *self.open.values()]:
            s.close()
        self.poll.close()


@ours_only
class Load(Wire):
    def setUp(self):
        self.far = Echo()
        self.addCleanup(self.far.close)
        super().setUp()
        self.srv.stop()
        hosts = ['%s=127.0.0.1*,%s:22=127.0.0.1:%d*' % (n, n, p) for n, p in zip(NAMES, self.far.ports)]
        self.srv = self.server('--session-ttl', '1', '--closed-ttl', '1', env={'SALLYPORT_TEST_HOSTS': ','.join(hosts)})
        self.c = self.connect()

    def network(self, **more):
        return dict(sandbox=project_write(self.w), networkProxy=self.launch(domains=dict.fromkeys(NAMES, 'allow'), **more))

    def figures(self):
        """Descriptors, and KiB of private memory, of the front and the proxies."""
        found = {}
        for name, pids in (('front', [self.srv.pid]), ('proxy', helpers_of(self.srv.pid, 'proxy'))):
            try:
                fds = sum(len(os.listdir('/proc/%d/fd' % p)) for p in pids)
            except PermissionError:
                fds = None  # a proxy is not dumpable; root can look all the same
            found[name] = fds, sum(int(status_of(p)['RssAnon'].split()[0]) for p in pids)
        return found

    def back_to(self, before):
        growth = 65536 if SANITIZED else 2048  # KiB; freed memory is kept in quarantine

        def is_back():
            now = self.figures()
            # Fewer descriptors are fine: sessions may have ended only after `before`.
            return all((now[k][0] or 0) <= (before[k][0] or 0) and now[k][1] <= before[k][1] + growth for k in before)
        try:
            wait_until(is_back, 'descriptors and memory', step=0.1)
        except AssertionError as e:
            raise AssertionError('before %r, now %r' % (before, self.figures())) from e

    def test_7_cells(self):
        """Cells come and go, ten at a time: no process, no descriptor and no network namespace stays."""
        rounds = 20 if tap.IS_LONG else 1
        before = None
        for i in range(rounds + 1):  # the first round makes what is kept
            sessions = [self.connect() for _ in range(10)]
            for c in sessions:
                c.start('p', ['/bin/sh', '-c', 'echo runs; exec sleep 600'], **self.how(self.network()))
            for c in sessions:
                c.wait_output('p', 'runs')
            # A proxy that begins forks a child that tries its filter.
            wait_until(lambda: len(helpers_of(self.srv.pid, 'proxy')) == 10, 'ten proxies')
            for c in sessions:
                c.close()
            wait_until(lambda: not helpers_of(self.srv.pid, 'proxy'), 'the end of the proxies')
            wait_until(lambda: not self.foreign(), 'the end of the namespaces')
            if before is None:
                before = self.figures()
        self.back_to(before)

    def foreign(self):
        """Processes below the server in another network namespace than ours."""
        own, found = os.readlink('/proc/self/ns/net'), []
        for pid in descendants(self.srv.pid):
            try:
                if os.readlink('/proc/%d/ns/net' % pid) != own and is_alive(pid):
                    found.append(pid)
            except OSError:
                pass
        return found

    def keep(self):
        """A command that lives to the end: its cell and its proxy are kept."""
        self.c.start('keep', ['/bin/sleep', '600'], **self.how(self.network()))

    def traffic(self, count, seconds):
        how = self.how(self.network())
        name = 'for-%d' % seconds
        self.c.start(name, [PYTHON, '-S', '-c', TRAFFIC, str(count), str(seconds), *NAMES], **how)
        p = self.c.wait_closed(name, seconds + wire.DEADLINE)
        self.assertEqual(p.exit_code, 0, p.stderr)
        return [int(n) for n in p.text.split()]

    @tap.long
    def test_95_a_thousand_connections(self):
        """With traffic for a minute on all of them."""
        self.keep()
        self.traffic(1000, 1)
        wait_until(lambda: not self.far.open and (self.figures()['proxy'][0] or 0) < 32, 'the end of the first connections')
        before = self.figures()
        served, total = self.traffic(1000, 60)
        print('# 95: %d connections, %d MB there and back; before %r, after %r' % (served, total >> 20, before, self.figures()))
        self.assertEqual(served, 1000)
        if not SANITIZED:
            self.assertLess(self.figures()['proxy'][1], 40 * 1024)
        self.back_to(before)
        wait_until(lambda: not self.far.open, 'the end of all connections')

    @tap.long
    def test_98_a_hundred_thousand_connections(self):
        """Of 1,000 commands of one cell, eight at a time: front and proxy do not grow."""
        script = 'import socket, sys\n' \
                 'at = [socket.gethostbyname(h) for h in sys.argv[1:]]\n' \
                 'for i in range(100):\n' \
                 '    with socket.create_connection((at[i % len(at)], 22), 60) as s:\n' \
                 '        s.send(b"x")\n' \
                 '        assert s.recv(1) == b"x"\n'
        self.keep()
        began, before = time.monotonic(), None
        for i in range(0, 1000, 8):
            names = ['c%d' % k for k in range(i, min(i + 8, 1000))]
            for name in names:
                self.c.start(name, [PYTHON, '-S', '-c', script, *NAMES], **self.how(self.network()))
            for name in names:
                p = self.c.wait_closed(name)
                self.assertEqual(p.exit_code, 0, p.stderr)
            if i == 192:
                wait_until(lambda: not self.far.open, 'the end of the connections')
                time.sleep(2)  # commands that have closed are forgotten after 1 s
                before = self.figures()
        wait_until(lambda: not self.far.open, 'the end of all connections')
        print('# 98: %d connections in %d s; after 200 commands %r, at the end %r' % (
            self.far.accepted, time.monotonic() - began, before, self.figures()))
        self.assertEqual(self.far.accepted, 100000)
        self.back_to(before)


if __name__ == '__main__':
    tap.main()
