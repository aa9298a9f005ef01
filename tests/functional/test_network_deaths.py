# SPDX-License-Identifier: Apache-2.0
"""Deaths and load in the managed network: proxy, resolver, cell and front are killed by their pids. A command sees
resets at worst, the next connection works, and nothing becomes reachable that was not."""

import os
import random
import resource
import select
import signal
import socket
import threading
import time

import tap
import wire
from managed import ManagedCase, helpers_of
from proxy_front import echo, web
from server import SANITIZED, fd_names, is_alive, stat_of, status_of

# Asks for pages by name and by proxy, in a loop, until stdin ends; at the end says what came.
LOAD = '''
    results, lock, stop = {}, threading.Lock(), threading.Event()
    def count(word):
        with lock:
            results[word] = results.get(word, 0) + 1
    def one(kind, host):
        try:
            if kind == 'name':
                s = socket.create_connection((host, 80))
                s.sendall(('GET /x HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' % host).encode())
            else:
                s = door()
                s.sendall(('GET http://%s/x HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' % (host, host)).encode())
            data = read_all(s)
            s.close()
            if data.endswith(b'RESET') or not data:
                return 'reset'
            return data.split()[1].decode()
        except socket.timeout:
            return 'hung'
        except ConnectionError:
            return 'reset'
        except socket.gaierror:
            return 'no name'
    def work(kind, host):
        while not stop.is_set():
            count(host + ' ' + one(kind, host))
    threads = [threading.Thread(target=work, args=(k, h)) for k in ('name', 'proxy') for h in ('a.test', 'a.test', 'b.test')]
    for t in threads:
        t.start()
    say('working')
    sys.stdin.readline()
    stop.set()
    for t in threads:
        t.join()
    say([results, one('name', 'a.test'), one('proxy', 'a.test')])
'''


class DeathCase(ManagedCase):
    def web(self):
        self.seen = []
        server = self.serve(web(self.seen))
        self.name('a.test', {80: server})
        self.forbidden = self.serve(web(self.seen))
        self.name('b.test', {80: self.forbidden})

    def load(self):
        cell = self.cell(self.script(LOAD))
        self.assertEqual(cell.line(), 'working')
        return cell

    def finish(self, cell):
        cell.tell()
        results, by_name, by_proxy = cell.line()
        self.assertEqual(cell.wait().returncode, 0)
        self.assertEqual((by_name, by_proxy), ('200', '200'), 'the next connection')
        self.assertEqual({k for k in results if k.startswith('b.test')} - {'b.test 403', 'b.test reset', 'b.test no name'}, set())
        self.assertEqual({k for k in results if k.startswith('a.test')} - {'a.test 200', 'a.test reset', 'a.test no name',
                                                                           'a.test 502'}, set(), results)
        self.assertGreater(results.get('a.test 200', 0), 0)
        self.assertEqual(self.forbidden.connections, [])
        return results

    @staticmethod
    def kill(pid):
        os.kill(pid, signal.SIGKILL)


class Proxy(DeathCase):
    def test_77_killed_under_load(self):
        """Four times in one cell, which is the most within a minute; names keep their addresses (73)."""
        self.web()
        for round_ in range(10 if tap.IS_LONG else 2):
            cell = self.load()
            for i in range(4):
                if i % 2 == 0:
                    time.sleep(random.uniform(0, 0.15))  # the others are killed before they are ready
                pid = cell.helper()
                self.kill(pid)
                wire.wait_until(lambda: [p for p in helpers_of(cell.pid, 'proxy') if p != pid and is_alive(p)], 'another proxy')
            with self.subTest(round_):
                self.finish(cell)

    def test_77_killed_in_each_state(self):
        """While it looks up a name, for a connection or for DNS, dials, carries a tunnel: a reset, and the next connection
        works."""
        self.web()
        self.name('echo.test', {22: self.serve(echo)})
        self.table += ['hung.test=?']
        silent = socket.socket()  # never accepts: its backlog is full after one connection
        silent.bind(('127.0.0.1', 0))
        silent.listen(0)
        self.addCleanup(silent.close)
        fillers = []
        for _ in range(3):
            f = socket.socket()
            f.setblocking(False)
            f.connect_ex(silent.getsockname())
            fillers.append(f)
            self.addCleanup(f.close)
        self.table += ['deaf.test=127.0.0.1*', 'deaf.test:22=127.0.0.1:%d*' % silent.getsockname()[1]]
        cell = self.cell(self.script('''
            def tunnel():
                s = socket.create_connection(('echo.test', 22))
                s.sendall(b'x')
                assert s.recv(1) == b'x'
                return s
            before = socket.gethostbyname('a.test')
            question = struct.pack('>HHHHHH', 7, 0x0100, 1, 0, 0, 0) + b'\\4hung\\4test\\0' + struct.pack('>HH', 1, 1)
            for state, begin in (('tunnel', tunnel), ('dial', lambda: socket.create_connection(('deaf.test', 22))),
                                 ('lookup', lambda: door()), ('dns', lambda: socket.create_connection(('127.0.0.1', 53)))):
                s = begin()
                if state == 'lookup':
                    s.sendall(b'CONNECT hung.test:443 HTTP/1.1\\r\\nHost: hung.test:443\\r\\n\\r\\n')
                if state == 'dns':
                    s.sendall(struct.pack('>H', len(question)) + question)
                say(state)
                data = attempt(read_all, s)
                t = socket.create_connection(('echo.test', 22))
                t.sendall(b'again')
                say([data if isinstance(data, str) else data.decode(), t.recv(5, socket.MSG_WAITALL).decode(),
                     socket.gethostbyname('a.test') == before])
        '''), allow=['a.test', 'echo.test', 'hung.test', 'deaf.test'])
        for state in ('tunnel', 'dial', 'lookup', 'dns'):
            self.assertEqual(cell.line(), state)
            time.sleep(0.05)
            self.kill(cell.helper())
            data, back, is_same = cell.line()
            self.assertIn(data, ('', 'RESET'), state)
            self.assertEqual((back, is_same), ('again', True), state)
        self.assertEqual(cell.wait().returncode, 0)

    def test_77_killed_while_it_waits_for_a_verdict(self):
        """The front is stopped meanwhile: it reads the question of a proxy that is gone."""
        self.name('echo.test', {22: self.serve(echo)})
        cell = self.cell(self.script('''
            at = socket.gethostbyname('echo.test')
            say('ready')
            while not os.path.exists('go'):
                time.sleep(0.01)
            s = socket.create_connection((at, 22))
            s.sendall(b'x')
            open('gone', 'w').close()
            first = attempt(s.recv, 1)
            t = socket.create_connection((at, 22))
            t.sendall(b'again')
            say([first if isinstance(first, str) else first.decode(), t.recv(5, socket.MSG_WAITALL).decode()])
        '''), allow=['echo.test'])
        self.assertEqual(cell.line(), 'ready')
        proxy = cell.helper()
        os.kill(cell.pid, signal.SIGSTOP)
        try:
            open(self.work + '/go', 'w').close()
            wire.wait_until(lambda: os.path.exists(self.work + '/gone'), 'the connection')
            time.sleep(0.05)
            self.kill(proxy)
            wire.wait_until(lambda: not is_alive(proxy), 'the end of the proxy')
        finally:
            os.kill(cell.pid, signal.SIGCONT)
        first, again = cell.line()
        self.assertIn(first, ('', 'ConnectionResetError 104', 'x'))  # x: it was not accepted yet
        self.assertEqual(again, 'again')
        self.assertEqual(cell.wait().returncode, 0)

    def test_78_connect_within_the_gap(self):
        """The sockets of the cell stay: a connection without a proxy waits for the next one."""
        self.web()
        cell = self.cell(self.script('''
            at = socket.gethostbyname('a.test')
            for _ in range(3):
                say('ready')
                sys.stdin.readline()
                s = socket.create_connection((at, 80))
                s.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n')
                say(read_all(s).split()[1].decode())
        '''))
        for _ in range(3):  # the third one waits 100 ms
            self.assertEqual(cell.line(), 'ready')
            self.kill(cell.helper())
            cell.tell()
            self.assertEqual(cell.line(), '200')
        self.assertEqual(cell.wait().returncode, 0)

    def test_79_five_deaths(self):
        """The network is closed: connections are refused at once, and people are told why."""
        self.web()
        cell = self.cell(self.script('''
            at = socket.gethostbyname('a.test')
            def connect_and_read():
                return attempt(lambda: socket.create_connection((at, 80)).recv(1).decode())
            for _ in range(5):
                sys.stdin.readline()
                with socket.create_connection((at, 80)) as s:
                    s.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n')
                    say(read_all(s)[:12].decode())
            sys.stdin.readline()
            waiting = connect_and_read()  # from before the end
            begin = time.monotonic()
            said = [connect_and_read(), attempt(door), attempt(socket.gethostbyname, 'a.test')]
            say([waiting, said, time.monotonic() - begin < 4])
        '''))
        for i in range(5):
            cell.tell()  # a proxy that answers has ended its self-test, whose process looks like it
            self.assertEqual(cell.line(), 'HTTP/1.1 200')
            pid = cell.helper()
            self.kill(pid)
            if i == 4:
                cell.tell()
            wire.wait_until(lambda: not is_alive(pid), 'the end of the proxy')
        waiting, said, is_quick = cell.line()
        self.assertIn(waiting, ('ConnectionRefusedError 111', 'ConnectionResetError 104'))
        self.assertEqual(said[:2], ['ConnectionRefusedError 111'] * 2)
        self.assertTrue(said[2].startswith('gaierror'), said)
        self.assertTrue(is_quick)
        self.assertEqual(helpers_of(cell.pid, 'proxy'), [])
        done = cell.wait()
        self.assertIn('keeps ending', done.stderr)


class Resolver(DeathCase):
    def test_80_killed(self):
        """Tunnels live, new lookups work after it was replaced."""
        self.web()
        self.name('echo.test', {22: self.serve(echo)})
        self.name('late.test', {22: self.serve(echo)})
        cell = self.cell(self.script('''
            s = socket.create_connection(('echo.test', 22))
            s.sendall(b'1')
            s.recv(1)
            say('ready')
            sys.stdin.readline()
            s.sendall(b'2')
            alive = s.recv(1).decode()
            end = time.monotonic() + 30
            while time.monotonic() < end:
                try:
                    t = socket.create_connection(('late.test', 22))
                    t.sendall(b'3')
                    late = t.recv(1).decode()
                    if late:
                        break
                except OSError:
                    pass
            say([alive, late])
        '''), allow=['echo.test', 'late.test'])
        self.assertEqual(cell.line(), 'ready')
        for _ in range(2):
            pid = cell.helper('resolver')
            self.kill(pid)
            wire.wait_until(lambda: [p for p in helpers_of(cell.pid, 'resolver') if p != pid], 'another resolver')
        cell.tell()
        self.assertEqual(cell.line(), ['2', '3'])
        self.assertEqual(cell.wait().returncode, 0)

    def test_80_killed_under_load(self):
        self.web()
        cell = self.load()
        for _ in range(6 if tap.IS_LONG else 2):
            time.sleep(random.uniform(0, 0.1))
            pid = cell.helper('resolver')
            self.kill(pid)
            wire.wait_until(lambda: [p for p in helpers_of(cell.pid, 'resolver') if p != pid], 'another resolver')
        self.finish(cell)

    def test_77_80_both_killed_under_load(self):
        """In any order, the next one while the last one is being replaced."""
        self.web()
        for round_ in range(10 if tap.IS_LONG else 1):
            cell, killed = self.load(), set()
            for verb in random.sample(['proxy', 'resolver'] * 3, 6):
                time.sleep(random.uniform(0, 0.05))
                pid = wire.wait_until(lambda: [p for p in helpers_of(cell.pid, verb) if p not in killed], verb)[0]
                killed.add(pid)
                self.kill(pid)
            # Until there is a resolver again, lookups fail.
            wire.wait_until(lambda: set(helpers_of(cell.pid, 'resolver')) - killed, 'another resolver')
            with self.subTest(round_):
                self.finish(cell)

    def test_80_stopped(self):
        """A resolver that does not answer: 502 after its time, tunnels live."""
        self.name('echo.test', {22: self.serve(echo)})
        self.name('late.test')
        cell = self.cell(self.script('''
            s = socket.create_connection(('echo.test', 22))
            s.sendall(b'1')
            s.recv(1)
            say('ready')
            sys.stdin.readline()
            begin = time.monotonic()
            status = connect('late.test:443')[0].split()[1]
            took = time.monotonic() - begin
            s.sendall(b'2')
            say([status, took < 10, s.recv(1).decode()])
        '''), allow=['echo.test', 'late.test'])
        self.assertEqual(cell.line(), 'ready')
        pid = cell.helper('resolver')
        os.kill(pid, signal.SIGSTOP)
        try:
            cell.tell()
            self.assertEqual(cell.line(), ['502', True, '2'])
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(cell.wait().returncode, 0)


    def test_80_cannot_be_started(self):
        """It is tried again until there are descriptors."""
        self.name('echo.test', {22: self.serve(echo)})
        cell = self.cell(self.script('''
            say('ready')
            sys.stdin.readline()
            s = socket.create_connection(('echo.test', 22))
            s.sendall(b'1')
            say(s.recv(1).decode())
        '''), allow=['echo.test'])
        self.assertEqual(cell.line(), 'ready')
        pid = cell.helper('resolver')
        soft, hard = resource.prlimit(cell.pid, resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        self.kill(pid)
        ready, _, _ = select.select([cell.popen.stderr], [], [], wire.DEADLINE)
        self.assertTrue(ready, 'no word of the failure')
        said = os.read(cell.popen.stderr.fileno(), 4096).decode()
        self.assertIn('Too many open files', said)
        resource.prlimit(cell.pid, resource.RLIMIT_NOFILE, (soft, hard))
        wire.wait_until(lambda: helpers_of(cell.pid, 'resolver'), 'another resolver')
        cell.tell()
        self.assertEqual(cell.line(), '1')
        self.assertEqual(cell.wait().returncode, 0)


class Ends(DeathCase):
    def test_81_cell_is_killed(self):
        """The proxy is gone within 100 ms."""
        self.web()
        cell = self.load()
        cell.track()
        proxy = cell.helper()
        born = stat_of(proxy)[4]
        cells = helpers_of(cell.pid, 'cell')
        confined = [p for p in cells if len(status_of(p)['NSpid'].split()) > len(status_of(os.getpid())['NSpid'].split())]
        self.assertTrue(confined, cells)
        began = time.monotonic()
        self.kill(confined[0])
        wire.wait_until(lambda: not is_alive(proxy, born), 'the end of the proxy', step=0.002)
        took = time.monotonic() - began
        self.assertLess(took, 0.1 * wire.SCALE * (10 if SANITIZED else 3))  # a busy machine
        self.assertNotEqual(cell.wait().returncode, 0)

    def test_82_front_is_killed(self):
        """Without a keeper nothing stays."""
        self.web()
        cell = self.load()
        cell.track()
        self.assertTrue([p for p in cell.tracked if p in helpers_of(cell.pid, 'proxy') + helpers_of(cell.pid, 'resolver')])
        self.kill(cell.pid)
        wire.wait_until(lambda: not cell.left(), 'the end of all processes')


class Walls(DeathCase):
    def test_92_no_descriptor_of_the_proxy(self):
        """A command inherits none of the sockets, and sees no process of the proxy."""
        self.web()
        said = self.python('''
            own = sorted(int(f) for f in os.listdir('/proc/self/fd'))
            names = []
            for pid in (p for p in os.listdir('/proc') if p.isdigit()):
                try:
                    names.append(open('/proc/%s/cmdline' % pid).read().split('\\0'))
                except OSError:
                    pass
            foreign = {attempt(os.open, '/proc/1/fd/%d' % fd, os.O_RDONLY) for fd in range(64)}
            foreign |= {attempt(os.readlink, '/proc/1/fd/%d' % fd) for fd in range(64)}
            say([own, [n for n in names if n[1:2] in (['proxy'], ['resolver'])], sorted(foreign)])
        ''')
        self.assertLessEqual(len(said[0]), 4, said[0])  # 0, 1, 2 and the directory
        self.assertEqual(said[1], [])
        self.assertEqual([f for f in said[2] if not str(f).startswith(('PermissionError', 'FileNotFoundError'))], [])

    def test_93_proxy_and_resolver_are_confined(self):
        """Filter, no privileges, no new ones, no descriptor of a file. What each call is answered with is in the unit
        test of the filter, and both processes try one themselves before they begin."""
        self.web()
        cell = self.load()
        for verb in ('proxy', 'resolver'):
            pid = cell.helper(verb)
            s = status_of(pid)
            self.assertEqual((s['Seccomp'], s['NoNewPrivs'], int(s['CapEff'], 16), int(s['CapPrm'], 16)), ('2', '1', 0, 0), verb)
            files = [n for n in fd_names(pid) if not n.startswith(('socket:', 'anon_inode:', 'pipe:', '/dev/null', '/memfd:'))]
            self.assertEqual([n for n in files if not os.path.samestat(os.stat(n), os.fstat(2))] if files else [], [], verb)
        self.finish(cell)

    def test_94_one_connection_too_many(self):
        """1,024 connections and one more, which waits until one of them ends."""
        server = self.serve(echo)
        for i in range(5):  # 256 connections to one host and port at most
            self.name('h%d.test' % i, {22: server})
        said = self.python('''
            import resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
            at = [socket.gethostbyname('h%d.test' % i) for i in range(5)]  # once: questions are limited, too
            def open_one(i):
                return socket.create_connection((at[i % 5], 22))
            def talk(s, wait=None):
                s.settimeout(wait)
                try:
                    s.sendall(b'x')
                    return s.recv(1) == b'x'
                except socket.timeout:
                    return 'waits'
            sockets = [open_one(i) for i in range(1024)]
            works = sum(talk(s, 30) is True for s in sockets)
            more = open_one(0)
            waits = talk(more, 0.3)
            sockets.pop().close()
            more.settimeout(30)
            say([works, waits, more.recv(1).decode()])
        ''', allow=['h%d.test' % i for i in range(5)])
        self.assertEqual(said, [1024, 'waits', 'x'])


if __name__ == '__main__':
    tap.main()
