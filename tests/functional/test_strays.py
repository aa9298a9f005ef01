# SPDX-License-Identifier: Apache-2.0
"""Processes that commands leave behind, where there are no cgroups: none outlives its session, the
cell that held it, or the server, however those end."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import tap
import wire
from sandbox_policy import read_only
from server import PROGRAM, PYTHON, Case, cgroup_of, cgroup_roots, descendants, is_alive, name_of, ours_only, stat_of
from wire import wait_until

# 120 daemons: a third has a child of its own, a third ignores signals, a third is stopped.
CROWD = r'''
import os, signal, sys, time
for i in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(0); os.close(1); os.close(2)
        if i % 3 == 0 and os.fork() == 0:
            os.setsid()
        if i % 3 == 1:
            for n in (1, 2, 3, 13, 15): signal.signal(n, signal.SIG_IGN)
        if i % 3 == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
        os._exit(0)
    os.wait()
print('left')
'''

# Each generation starts the next one in a session of its own and ends: what has its number now may
# have another in a moment. It gives up after a minute.
COMET = r'''
import os, sys, time
end = time.monotonic() + 60
for i in range(2):
    if os.fork() == 0:
        os.close(0); os.close(1); os.close(2)
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            os.setsid()
        os._exit(0)
print('left')
'''


def having(mark):
    """Living processes with this word on their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/cmdline' % pid, 'rb') as f:
                words = f.read().split(b'\0')
        except OSError:
            continue
        if mark.encode() in words and is_alive(int(pid)):
            found.append(int(pid))
    return found


def children(pid):
    return [p for p in descendants(pid) if (stat_of(p) or ('', 0))[1] == pid]


def children_of_all_kinds(pid):
    """With those that are dead and not reaped."""
    with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
        return [int(p) for p in f.read().split()]


class Strays(Case):
    ARGS = ('--no-cgroups',)
    SIZE = 120

    def setUp(self):
        super().setUp()
        self.mark = 'mark-%d-%s' % (os.getpid(), self.id().rpartition('.')[2])
        self.addCleanup(self.end_all)

    def end_all(self):
        for pid in having(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    def leave(self, client, script, mark=None):
        name = 'p%s' % time.monotonic()
        client.start(name, [PYTHON, '-S', '-c', script, mark or self.mark, str(self.SIZE)])
        client.wait_output(name, 'left')
        client.wait_exited(name)
        if script == CROWD:  # a daemon forks its child after the command has exited
            size = self.SIZE + (self.SIZE + 2) // 3
            wait_until(lambda: len(having(mark or self.mark)) >= size, 'all %d daemons' % size)

    def open_cell(self):
        cells = []

        def is_there():
            cells[:] = [p for p in children(self.srv.pid) if name_of(p).startswith('sallyport') and p != self.srv.front]
            return len(cells) == 1
        wait_until(is_there, 'the open cell')  # it starts beside the server
        return cells[0]

    def assertNoneLeft(self, mark=None, what='end of all strays'):
        try:
            wait_until(lambda: not having(mark or self.mark), what, 15 * wire.SCALE)
        except AssertionError:
            self.fail('%d strays are left' % len(having(mark or self.mark)))

    def assertReaped(self):
        def reaped():
            return all((stat_of(p) or 'Z')[0] != 'Z' for p in children_of_all_kinds(self.srv.pid))
        wait_until(reaped, 'no zombie below the server')


@ours_only
class CellKilled(Strays):
    def test_none_outlives_the_open_cell(self):
        c = self.session(*self.ARGS)
        self.leave(c, CROWD)
        self.assertGreaterEqual(len(having(self.mark)), self.SIZE)
        os.kill(self.open_cell(), signal.SIGKILL)
        self.assertNoneLeft()
        self.assertReaped()
        self.assertEqual(c.sh('echo again').text, 'again\n')

    def test_none_that_goes_on_forking_outlives_the_open_cell(self):
        c = self.session(*self.ARGS)
        self.leave(c, COMET)
        wait_until(lambda: having(self.mark), 'strays')
        os.kill(self.open_cell(), signal.SIGKILL)
        self.assertNoneLeft()
        self.assertReaped()

    def test_the_server_ends_them_when_it_is_told_to_end_at_once(self):
        c = self.session(*self.ARGS)
        self.leave(c, CROWD)
        self.leave(c, COMET)
        os.kill(self.open_cell(), signal.SIGKILL)
        self.srv.stop()
        self.assertEqual(having(self.mark), [])

    def test_a_process_for_http_requests_is_spared(self):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header('Content-Length', '2')
                self.end_headers()
                self.wfile.write(b'ok')

            def log_message(self, *args):
                pass
        web = HTTPServer(('127.0.0.1', 0), Handler)
        self.addCleanup(web.server_close)
        threading.Thread(target=web.serve_forever, daemon=True).start()
        self.addCleanup(web.shutdown)
        c = self.session(*self.ARGS)
        url = 'http://127.0.0.1:%d/' % web.server_port
        request = {'requestId': 'r', 'method': 'GET', 'url': url, 'headers': [], 'streamResponse': False}
        self.assertEqual(c.request('http/request', request)['status'], 200)
        cell = self.open_cell_beside_http()
        before = set(children(self.srv.pid))
        self.leave(c, CROWD)
        os.kill(cell, signal.SIGKILL)
        self.assertNoneLeft()
        self.assertEqual(before - set(children(self.srv.pid)), {cell})
        self.assertEqual(c.request('http/request', dict(request, requestId='s'))['status'], 200)

    def open_cell_beside_http(self):
        cells = [p for p in children(self.srv.pid) if open('/proc/%d/cmdline' % p).read().split('\0')[1] == 'cell']
        self.assertEqual(len(cells), 1)
        return cells[0]

    def test_a_sandbox_is_spared(self):
        c = self.session(*self.ARGS)
        cell = self.open_cell()
        c.start('s', ['/bin/sh', '-c', 'echo ready; read x; echo $x'], sandbox=read_only(self.srv.work), pipeStdin=True)
        c.wait_output('s', 'ready')
        self.leave(c, CROWD)
        os.kill(cell, signal.SIGKILL)
        self.assertNoneLeft()
        c.write('s', b'alive\n')
        c.wait_output('s', 'alive')


@ours_only
class ServerEnds(Strays):
    def test_none_outlives_the_server(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            c = self.session(*self.ARGS)
            self.leave(c, CROWD)
            self.leave(c, COMET)
            self.srv.stop(how, status=0 if how == signal.SIGTERM else -how)
            self.assertNoneLeft()


@ours_only
class SessionEnds(Strays):
    def test_none_outlives_its_session(self):
        other_mark = self.mark + '-other'
        c = self.session(*self.ARGS)
        other = self.srv.session()
        self.addCleanup(lambda: [os.kill(p, signal.SIGKILL) for p in having(other_mark)])
        other.start('q', [PYTHON, '-S', '-c', 'import time; print("here", flush=True); time.sleep(600)', other_mark])
        other.wait_output('q', 'here')
        self.leave(c, CROWD)
        self.leave(c, COMET)
        self.assertEqual(c.request('session/end'), {})
        self.assertNoneLeft()
        self.assertEqual(len(having(other_mark)), 1)
        self.assertFalse(other.read('q')['exited'])


@ours_only
class BothKilled(Strays):
    """Front and cell get SIGKILL together: with cgroups the next server ends what they left."""

    ARGS = ()
    SIZE = 6

    def setUp(self):
        super().setUp()
        if os.getuid() != 0:
            self.skipTest('cgroups are made by root')
        self.ground = None
        if not cgroup_roots():
            self.ground = tempfile.mkdtemp(prefix='sallyport-cgroup-')
            self.addCleanup(os.rmdir, self.ground)
            if subprocess.run(['mount', '-t', 'cgroup2', 'none', self.ground], stderr=subprocess.DEVNULL).returncode != 0:
                self.skipTest('there is no cgroup version 2')
            self.addCleanup(subprocess.run, ['umount', self.ground])

    def begin_server(self):
        """A server whose journals are those of this test: others would clean up, too."""
        if not hasattr(self, 'run_dir'):
            self.run_dir = tempfile.mkdtemp(prefix='sallyport-run-')
            self.addCleanup(shutil.rmtree, self.run_dir, True)
        return self.session(*self.ARGS, prefix=(
            'unshare', '-m', '--propagation', 'private', 'sh', '-c', 'mount --bind "$0" /run && exec "$@"', self.run_dir))

    def begin(self):
        c = self.begin_server()
        self.leave(c, CROWD)
        group = cgroup_of(having(self.mark)[0])
        group = os.path.dirname(group)
        if not os.path.basename(group).startswith('sallyport-'):
            self.skipTest('this host lets us have no cgroups')
        path, = [root + group for root in cgroup_roots() if os.path.isdir(root + group)]
        return c, path

    def kill(self, *pids):
        """Together: none has the time to hear of the other's end."""
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.srv.popen.wait()
        self.srv.kill()

    def test_the_next_server_ends_what_is_left(self):
        c, path = self.begin()
        before = len(having(self.mark))
        self.kill(self.open_cell(), self.srv.pid)
        time.sleep(0.2)
        self.assertEqual(len(having(self.mark)), before)  # what it is about
        self.assertTrue(os.path.isdir(path))
        d = self.begin_server()
        self.assertNoneLeft()
        self.assertFalse(os.path.exists(path))
        self.assertEqual(d.sh('echo fine').text, 'fine\n')

    def test_what_a_living_server_has_is_left_alone(self):
        c, path = self.begin()
        first, before = self.srv, len(having(self.mark))
        d = self.begin_server()
        self.assertEqual(d.sh('echo fine').text, 'fine\n')
        self.assertEqual(len(having(self.mark)), before)
        self.assertTrue(os.path.isdir(path))
        self.srv.stop()
        self.srv = first
        self.assertEqual(c.sh('echo here').text, 'here\n')

    def test_the_cell_alone_still_has_the_lock(self):
        c, path = self.begin()
        cell, before = self.open_cell(), len(having(self.mark))
        os.kill(cell, signal.SIGSTOP)
        self.srv.popen.kill()
        self.srv.popen.wait()
        self.srv.kill()
        self.begin_server()
        self.assertEqual(len(having(self.mark)), before)
        self.assertTrue(os.path.isdir(path))
        os.kill(cell, signal.SIGCONT)  # reads that the front is gone, and ends all it has
        self.assertNoneLeft()
        wait_until(lambda: not os.path.exists(path), 'end of the cgroup')


def become_ordinary():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


@ours_only
class OrdinaryUser(Strays):
    """The same by somebody who may not make cgroups."""

    def test_none_outlives_the_open_cell(self):
        if os.getuid() != 0:
            self.skipTest('the other tests are this one')
        python = shutil.which('python3', path='/usr/bin:/bin')
        reachable = python and subprocess.run(['test', '-x', PROGRAM, '-a', '-r', __file__], preexec_fn=become_ordinary)
        if not reachable or reachable.returncode != 0:
            self.skipTest('an ordinary user cannot reach the program')
        done = subprocess.run([python, __file__, 'CellKilled.test_none'], preexec_fn=become_ordinary, cwd='/',
                              env=dict(os.environ, HOME='/nonexistent'), stdout=subprocess.PIPE, timeout=120 * wire.SCALE)
        self.assertIn(b'\nok 2', done.stdout)
        self.assertNotIn(b'not ok', done.stdout, done.stdout.decode())


if __name__ == '__main__':
    tap.main()
