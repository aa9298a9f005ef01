# SPDX-License-Identifier: Apache-2.0
"""Runs inside: processes, threads, memory, terminals and local networks, as Python programs use them.

WORK_CONFINED=1: what the sandbox refuses by design is expected to be refused, and cleanly.
"""

import asyncio
import concurrent.futures
import http.server
import multiprocessing
import os
import pty
import resource
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from multiprocessing import shared_memory
from multiprocessing.managers import SyncManager

CONFINED = bool(os.environ.get('WORK_CONFINED'))
confined_only = unittest.skipUnless(CONFINED, 'not confined')


def square(x):
    return x * x


def count_up(lock, value, times):
    for _ in range(times):
        with lock:
            value.value += 1


def fill(queue, event):
    event.wait(20)
    for i in range(100):
        queue.put('x' * 1000)
    queue.put(None)


class Processes(unittest.TestCase):
    def use(self, how):
        context = multiprocessing.get_context(how)
        with context.Pool(2) as pool:
            self.assertEqual(pool.map(square, range(20)), [i * i for i in range(20)])
        lock, value = context.Lock(), context.Value('i', 0)
        workers = [context.Process(target=count_up, args=(lock, value, 200)) for _ in range(3)]
        for w in workers:
            w.start()
        for w in workers:
            w.join(30)
            self.assertEqual(w.exitcode, 0)
        self.assertEqual(value.value, 600)

    def test_fork(self):
        self.use('fork')

    def test_spawn(self):
        self.use('spawn')

    def test_queue_event_barrier(self):
        context = multiprocessing.get_context('fork')
        queue, event = context.Queue(), context.Event()
        worker = context.Process(target=fill, args=(queue, event))
        worker.start()
        event.set()
        got = sum(len(item) for item in iter(queue.get, None))
        worker.join()
        self.assertEqual(got, 100000)

    def test_executors(self):
        context = multiprocessing.get_context('fork')
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            self.assertEqual(list(pool.map(square, range(5))), [0, 1, 4, 9, 16])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(sum(pool.map(square, range(100))), 328350)

    def test_shared_memory(self):
        a = shared_memory.SharedMemory(create=True, size=1 << 20)
        try:
            b = shared_memory.SharedMemory(name=a.name)
            b.buf[:5] = b'hello'
            self.assertEqual(bytes(a.buf[:5]), b'hello')
            b.close()
        finally:
            a.close()
            a.unlink()

    def test_manager_over_tcp(self):
        manager = SyncManager(address=('127.0.0.1', 0), authkey=b'key', ctx=multiprocessing.get_context('fork'))
        manager.start()
        d = manager.dict()
        d['x'] = 1
        self.assertEqual(d['x'], 1)
        manager.shutdown()

    @confined_only
    def test_manager_over_unix_sockets_fails_cleanly(self):
        script = 'import multiprocessing as m; m.set_start_method("fork"); m.Manager()'
        done = subprocess.run([sys.executable, '-c', script], capture_output=True, timeout=30)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'Operation not permitted', done.stderr)

    def test_subprocess(self):
        data = os.urandom(1 << 20)
        self.assertEqual(subprocess.run(['cat'], input=data, stdout=subprocess.PIPE).stdout, data)
        self.assertEqual(subprocess.run('exit 7', shell=True).returncode, 7)
        with self.assertRaises(subprocess.TimeoutExpired):
            subprocess.run(['sleep', '60'], timeout=0.05)
        with self.assertRaises(FileNotFoundError):
            subprocess.run(['/no/such/program'])
        done = subprocess.run(['sh', '-c', 'kill -9 $$'], start_new_session=True)
        self.assertEqual(done.returncode, -9)

    def test_many_processes(self):
        children = [subprocess.Popen(['sleep', '0.1']) for _ in range(40)]
        self.assertEqual([c.wait(30) for c in children], [0] * 40)

    def test_signals(self):
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        signal.signal(signal.SIGALRM, lambda *_: seen.append(2))
        self.addCleanup(signal.signal, signal.SIGALRM, signal.SIG_DFL)
        while len(seen) < 2:
            time.sleep(0.005)
        self.assertEqual(seen, [1, 2])
        child = subprocess.Popen(['sleep', '60'])
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        os.kill(child.pid, signal.SIGCONT)
        handle = os.pidfd_open(child.pid)
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        self.assertTrue(select.select([handle], [], [], 20)[0])
        os.close(handle)
        self.assertEqual(child.wait(), -signal.SIGTERM)

    def test_own_group_and_session(self):
        child = subprocess.Popen(['sh', '-c', 'sleep 60 & sleep 60 & wait'], process_group=0) \
            if sys.version_info >= (3, 11) else subprocess.Popen(['sleep', '60'], preexec_fn=os.setpgrp)
        os.killpg(child.pid, signal.SIGKILL)
        self.assertEqual(child.wait(), -9)

    def test_threads(self):
        total, lock = [0], threading.Lock()

        def work():
            for _ in range(1000):
                with lock:
                    total[0] += 1
        threads = [threading.Thread(target=work) for _ in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(total, [20000])

    def test_processors_and_priority(self):
        self.assertGreaterEqual(len(os.sched_getaffinity(0)), 1)
        self.assertGreaterEqual(os.cpu_count(), 1)
        os.sched_setaffinity(0, os.sched_getaffinity(0))
        script = ('import os; before = os.nice(0); os.nice(5); os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); '
                  'print(os.nice(0) - before)')
        self.assertEqual(subprocess.check_output([sys.executable, '-c', script]), b'5\n')

    def test_limits(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE)[0], min(soft, 200))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assertGreater(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0)
        if CONFINED:
            self.assertEqual(resource.getrlimit(resource.RLIMIT_CORE), (1, 1))

    def test_no_core_is_left(self):
        with tempfile.TemporaryDirectory() as d:
            done = subprocess.run(['sh', '-c', 'kill -SEGV $$'], cwd=d)
            self.assertEqual(done.returncode, -signal.SIGSEGV)
            if CONFINED:
                self.assertEqual(os.listdir(d), [])

    def test_memory(self):
        fd = os.memfd_create('work')
        os.write(fd, b'#!/bin/sh\necho from memory\n')
        os.close(fd)
        self.assertEqual(len(bytearray(200 << 20)), 200 << 20)

    def test_terminal_of_its_own(self):
        pid, master = pty.fork()
        if pid == 0:
            os.execvp('sh', ['sh', '-c', 'tty && stty size && read line && echo got $line'])
        os.write(master, b'hello\n')
        said = b''
        try:
            while True:
                more = os.read(master, 1000)
                if not more:
                    break
                said += more
        except OSError:  # how a terminal ends
            pass
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertIn(b'/dev/pts/', said)
        self.assertIn(b'got hello', said)
        os.close(master)

    def test_devices(self):
        with open('/dev/null', 'w') as f:
            f.write('x')
        with open('/dev/zero', 'rb') as f:
            self.assertEqual(f.read(3), bytes(3))
        with open('/dev/urandom', 'rb') as f:
            self.assertEqual(len(f.read(100)), 100)
        with self.assertRaises(OSError), open('/dev/full', 'w') as f:
            f.write('x')
        self.assertEqual(subprocess.check_output('echo x > /dev/stdout; cat /dev/fd/0 < /dev/null', shell=True), b'x\n')

    def test_proc(self):
        with open('/proc/self/status') as f:
            self.assertIn('Name:', f.read())
        for name in ('cpuinfo', 'meminfo', 'stat', 'loadavg', 'uptime', 'version', 'filesystems', 'self/maps',
                     'self/mounts', 'sys/kernel/osrelease', 'sys/fs/file-max', 'self/net/dev'):
            with open('/proc/' + name) as f:
                self.assertTrue(f.read(), name)
        self.assertIn(str(os.getpid()), os.listdir('/proc'))


class Network(unittest.TestCase):
    def test_asyncio(self):
        async def work():
            cat = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)
            out, _err = await cat.communicate(b'y' * 300000)
            self.assertEqual(len(out), 300000)

            async def greet(_reader, writer):
                writer.write(b'hi')
                writer.close()
            server = await asyncio.start_server(greet, '127.0.0.1', 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            self.assertEqual(await reader.read(), b'hi')
            writer.close()
            server.close()
        asyncio.run(work())

    def test_http_over_loopback(self):
        class Hello(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'hello ' + self.path.encode())

            def log_message(self, *_args):
                pass
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Hello)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ('127.0.0.1', 'localhost'):
            url = 'http://%s:%d/there' % (name, server.server_port)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            self.assertEqual(opener.open(url, timeout=20).read(), b'hello /there')
        server.shutdown()
        server.server_close()

    def test_datagrams(self):
        a, b = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        with a, b:
            a.bind(('127.0.0.1', 0))
            b.sendto(b'x', a.getsockname())
            self.assertEqual(a.recv(10), b'x')

    def test_ipv6(self):
        try:
            server = socket.create_server(('::1', 0), family=socket.AF_INET6)
        except OSError as e:
            self.skipTest('no IPv6: %s' % e)
        with server, socket.create_connection(server.getsockname()[:2]) as c:
            peer, _address = server.accept()
            peer.sendall(b'six')
            peer.close()
            self.assertEqual(c.recv(10), b'six')

    def test_names(self):
        self.assertIn('127.0.0.1', [a[4][0] for a in socket.getaddrinfo('localhost', 80, socket.AF_INET)])
        self.assertTrue(socket.gethostname())

    def test_socketpair(self):
        a, b = socket.socketpair()
        with a, b:
            a.sendall(b'x')
            self.assertEqual(b.recv(1), b'x')
            read, write = os.pipe()
            socket.send_fds(a, [b'fd'], [write])
            _message, fds, _flags, _address = socket.recv_fds(b, 10, 1)
            os.write(fds[0], b'passed')
            self.assertEqual(os.read(read, 10), b'passed')
            for fd in (read, write, fds[0]):
                os.close(fd)

    @confined_only
    def test_unix_sockets_fail_cleanly(self):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            self.assertRaises(PermissionError, socket.socket, socket.AF_UNIX, kind)

    @confined_only
    def test_raw_sockets_fail_cleanly(self):
        self.assertRaises(PermissionError, socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)


class Databases(unittest.TestCase):
    def use(self, directory, mode):
        path = os.path.join(directory, mode + '.db')
        one = sqlite3.connect(path)
        one.execute('pragma journal_mode=' + mode)
        one.execute('create table t (x)')
        one.commit()
        two = sqlite3.connect(path, timeout=0.05)
        one.execute('begin immediate')
        one.executemany('insert into t values (?)', [(i,) for i in range(1000)])
        with self.assertRaises(sqlite3.OperationalError):
            two.execute('begin immediate')
        one.commit()
        self.assertEqual(two.execute('select count(*), sum(x) from t').fetchone(), (1000, 499500))
        one.close()
        two.close()

    def test_sqlite(self):
        for directory in (os.getcwd(), tempfile.gettempdir()):
            with tempfile.TemporaryDirectory(dir=directory) as d:
                for mode in ('delete', 'wal', 'truncate'):
                    self.use(d, mode)


if __name__ == '__main__':
    unittest.main()
