# SPDX-License-Identifier: Apache-2.0
"""The server under test: starts it, ends it by pid, and looks that nothing stays behind.

SALLYPORT       path of the program (default build/sallyport)
SALLYPORT_PEER  path of the reference server's program: run the tests against that instead
SALLYPORT_ARGS  more words for the command line of every server, such as --no-cgroups
SALLYPORT_PREFIX  words before the program, such as `refuse landlock=ENOSYS --` (tests/helpers)
"""

import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

import wire
from wire import Channel, Client, Lines, WebSocket, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.environ.get('SALLYPORT_PEER')
PROGRAM = PEER or os.path.abspath(os.environ.get(
    'SALLYPORT', os.path.join(HERE, '..', '..', 'build', 'sallyport')))
MARK = 'SALLYPORT_TEST_MARK'
PASS_ON = ('ASAN_OPTIONS', 'LSAN_OPTIONS', 'UBSAN_OPTIONS', 'TSAN_OPTIONS', 'MSAN_OPTIONS')
MORE_ARGS = os.environ.get('SALLYPORT_ARGS', '').split()
PREFIX = os.environ.get('SALLYPORT_PREFIX', '').split()
PYTHON = sys.executable or 'python3'
Client.strict = not PEER



def _is_sanitized():
    if PEER:
        return False
    try:
        with open(PROGRAM, 'rb') as f:
            return b'__asan_init' in f.read()
    except OSError:
        return False


SANITIZED = _is_sanitized()
ours_only = unittest.skipIf(PEER, 'the reference differs')


# ------------------------------------------------------------------------------------- /proc


def stat_of(pid):
    """(state, parent, group, session, start time) or None."""
    try:
        with open('/proc/%d/stat' % pid, 'rb') as f:
            fields = f.read().rsplit(b')', 1)[1].split()
    except (OSError, IndexError):
        return None
    return (fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def all_pids():
    return [int(name) for name in os.listdir('/proc') if name.isdigit()]


def is_alive(pid, born=None):
    """Whether a process runs (a zombie does not); born guards against a pid used again."""
    stat = stat_of(pid)
    return stat is not None and stat[0] not in 'ZX' and born in (None, stat[4])


def descendants(root):
    children = {}
    for pid in all_pids():
        stat = stat_of(pid)
        if stat:
            children.setdefault(stat[1], []).append(pid)
    found, todo = [], [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            found.append(child)
            todo.append(child)
    return found


def marked(mark):
    found = []
    for pid in all_pids():
        if pid == os.getpid():
            continue
        try:
            with open('/proc/%d/environ' % pid, 'rb') as f:
                if mark in f.read() and is_alive(pid):
                    found.append(pid)
        except OSError:
            pass
    return found


def status_of(pid):
    with open('/proc/%d/status' % pid) as f:
        return dict(line.rstrip('\n').split(':\t', 1) for line in f if ':\t' in line)


def fd_names(pid):
    """What the descriptors of a process point at."""
    names = []
    try:
        for fd in os.listdir('/proc/%d/fd' % pid):
            try:
                names.append(os.readlink('/proc/%d/fd/%s' % (pid, fd)))
            except OSError:
                pass
    except OSError:
        pass
    return names


def cgroup_of(pid):
    """The cgroup v2 path of a process, or None."""
    try:
        with open('/proc/%d/cgroup' % pid) as f:
            for line in f:
                if line.startswith('0::'):
                    return line[3:].strip()
    except OSError:
        pass
    return None


def cgroup_roots():
    roots = []
    with open('/proc/mounts') as f:
        for line in f:
            words = line.split()
            if words[2] == 'cgroup2':
                roots.append(words[1])
    return roots


def limit_groups(pid):
    """The cgroups that hold the limits of this server, in version 1."""
    found = []
    with open('/proc/self/mountinfo') as f:
        points = [line.split()[4] for line in f if ' - cgroup ' in line]
    with open('/proc/self/cgroup') as f:
        paths = {line.split(':')[2].strip() for line in f}
    for point in points:
        for path in paths | {''}:
            found += glob.glob('%s%s/sallyport-%d-*' % (point, path.rstrip('/'), pid))
    return sorted(set(found))


def words_of(pid):
    """Its command line."""
    try:
        with open('/proc/%d/cmdline' % pid, 'rb') as f:
            return f.read().decode('utf-8', 'replace').split('\0')[:-1]
    except OSError:
        return []


def name_of(pid):
    try:
        with open('/proc/%d/cmdline' % pid, 'rb') as f:
            return f.read().replace(b'\0', b' ').decode('utf-8', 'replace').strip()[:100]
    except OSError:
        return '?'


# ----------------------------------------------------------------------------------- the server


class Server:
    """One server process. `stop` is the judge of what it leaves behind."""

    def __init__(self, *args, listen='ws://127.0.0.1:0', env=None, replace_env=None, cwd=None,
                 before_exec=None, pass_fds=(), home=None, prefix=()):
        self.base = tempfile.mkdtemp(prefix='sallyport-test-')
        self.tmp = os.path.join(self.base, 'tmp')      # TMPDIR of the server: stays empty
        self.work = os.path.join(self.base, 'work')    # cwd of commands: belongs to the test
        self.home = home or os.path.join(self.base, 'home')
        for path in (self.tmp, self.work, self.home):
            os.makedirs(path, exist_ok=True)
        self.mark = uuid.uuid4().hex
        self.env = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'HOME': self.home, 'TMPDIR': self.tmp}
        if replace_env is not None:
            self.env = dict(replace_env)
        self.env.update({k: os.environ[k] for k in PASS_ON if k in os.environ})
        self.env[MARK] = self.mark
        if SANITIZED:  # freed memory is to go back, so that it can be measured
            self.env['ASAN_OPTIONS'] = ':'.join(filter(None, [
                self.env.get('ASAN_OPTIONS'), 'quarantine_size_mb=1:thread_local_quarantine_size_kb=64:allocator_release_to_os_interval_ms=50']))
        if PEER:
            self.env.setdefault('CODEX_HOME', os.path.join(self.base, 'codex'))
            os.makedirs(os.path.join(self.base, 'codex'), exist_ok=True)
        self.env.update(env or {})
        self.args = [*prefix, *PREFIX, PROGRAM, 'exec-server' if PEER else 'serve', '--listen', listen, *MORE_ARGS, *args]
        self.listen = listen
        self.tracked = {}
        self.cgroups = set()
        self.fronts = set()  # pids
        self.clients = []
        self.url = None  # with the token, as it was printed
        self.stopped = False
        self.stdout_rest = None
        self.err_path = os.path.join(self.base, 'stderr')
        self.stdio = listen.startswith('stdio')
        with open(self.err_path, 'wb') as err:
            self.popen = subprocess.Popen(
                self.args, stdin=subprocess.PIPE if self.stdio else subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=err, env=self.env, cwd=cwd or self.work,
                preexec_fn=before_exec, pass_fds=pass_fds, bufsize=0)
        self.pid = self.popen.pid
        self.out = None
        if self.stdio:
            self.out = Channel(os.dup(self.popen.stdout.fileno()), os.dup(self.popen.stdin.fileno()))
            self.popen.stdin.close()
        else:
            try:
                self.out = Channel(os.dup(self.popen.stdout.fileno()), os.dup(self.popen.stdout.fileno()))
                line = self.out.until(b'\n', wire.deadline())
                if line is None:
                    raise AssertionError('no URL line; exit status %r; %s' % (
                        self.popen.wait(10), self.stderr()[-2000:]))
                self.url = line.decode().rstrip('\n')
                self.address = self._address()
            except BaseException:
                self.kill()
                raise
        self.popen.stdout.close()

    def _address(self):
        if self.url.startswith('unix://'):
            return self.url[len('unix://'):]
        match = re.fullmatch(r'(ws://\[?([0-9a-f.:]+?)\]?:([0-9]+))(?:/\?token=([0-9a-f]{64}))?', self.url)
        if not match or match.group(3) == '0':
            raise AssertionError('the URL line is %r' % self.url)
        self.bare_url = match.group(1)
        return wire.Address((match.group(2), int(match.group(3))), match.group(4) or '')

    # -- connections

    def client(self, transport):
        c = Client(transport, self)
        c.cwd = wire.file_uri(self.work)
        self.clients.append(c)
        return c

    def connect(self, **how):
        """A WebSocket connection before the handshake of the protocol."""
        return self.client(WebSocket.connect(self.address, **how))

    def session(self, resume=None, **how):
        """A connection ready for use."""
        return self.connect(**how).handshake(resume)

    def lines(self):
        """JSON lines: over stdio, or over a unix socket."""
        if self.stdio:
            return self.client(Lines(self.out))
        return self.client(Lines.connect(self.address))

    def http(self, *args, **kw):
        return wire.http(self.address, *args, **kw)

    # -- what it is made of

    @property
    def front(self):
        """The process that serves, if this one is its keeper; else None."""
        for pid in descendants(self.pid):
            stat = stat_of(pid)
            if stat and stat[1] == self.pid and words_of(pid)[1:2] == ['front'] and is_alive(pid):
                self.fronts.add(pid)
                return pid
        return None

    def kill_front(self, how=signal.SIGKILL):
        """Kills it, and waits until it is gone."""
        pid = self.front
        born = stat_of(pid)[4]
        os.kill(pid, how)
        wait_until(lambda: not is_alive(pid, born), 'end of the front')
        return pid

    def program_pids(self):
        """The server's own processes: the first one and its cells, not the commands."""
        own = os.stat(PROGRAM)
        found = []
        for pid in [self.pid] + descendants(self.pid):
            try:
                exe = os.stat('/proc/%d/exe' % pid)
            except OSError:
                continue
            if (exe.st_dev, exe.st_ino) == (own.st_dev, own.st_ino):
                found.append(pid)
        return found

    def fds(self):
        """Open descriptors of each process, without the pool of empty cgroups."""
        roots = tuple(root + '/' for root in cgroup_roots())
        return {pid: len([n for n in fd_names(pid) if not n.startswith(roots or '\0')]) for pid in self.program_pids()}

    def cgroup_fds(self):
        roots = tuple(root + '/' for root in cgroup_roots())
        return len([n for pid in self.program_pids() for n in fd_names(pid) if n.startswith(roots or '\0')])

    def memory(self):
        """Resident bytes of the server's own processes, shared pages counted by share."""
        total = 0
        for pid in self.program_pids():
            try:
                with open('/proc/%d/smaps_rollup' % pid) as f:
                    for line in f:
                        if line.startswith('Pss:'):
                            total += int(line.split()[1]) * 1024
            except OSError:
                pass
        return total

    def track(self, *pids):
        """Processes that a command said it has: they must be gone when the server is."""
        for pid in pids:
            stat = stat_of(int(pid))
            if stat:
                self.tracked[int(pid)] = stat[4]
                self.note_cgroup(int(pid))
        return pids[0] if len(pids) == 1 else pids

    def note_cgroup(self, pid):
        path, mine = cgroup_of(pid), cgroup_of(os.getpid()) or '/'
        while path and path != '/' and not (mine + '/').startswith(path + '/'):
            self.cgroups.add(path)
            path = os.path.dirname(path)

    def stderr(self):
        with open(self.err_path, 'rb') as f:
            return f.read().decode('utf-8', 'replace')

    # -- the end

    def remember(self):
        """Everything that belongs to the server right now."""
        for pid in descendants(self.pid) + marked(self.mark.encode()):
            if pid != self.pid:
                self.track(pid)
        self.note_cgroup(self.pid)

    def survivors(self):
        found = {pid for pid, born in self.tracked.items() if is_alive(pid, born)}
        found.update(marked(self.mark.encode()))
        return found

    def stop(self, how=signal.SIGTERM, status=0):
        """Ends the server and judges it. how=None: it ends by itself."""
        if self.stopped:
            return
        self.stopped = True
        trouble = []
        code = None
        try:
            early = self.popen.poll()
            if early is not None and how is not None:
                trouble.append('the server had ended with status %r' % early)
            else:
                self.remember()
                if PEER and self.stdio:  # it does not listen to signals before stdin ends
                    self.out.close()
                if how is not None:
                    self.popen.send_signal(how)
                try:
                    code = self.popen.wait(wire.DEADLINE)
                    if code != status:
                        trouble.append('exit status %r, not %r' % (code, status))
                except subprocess.TimeoutExpired:
                    trouble.append('the server does not end')
                    self.popen.kill()
                    self.popen.wait()
            try:
                wait_until(lambda: not self.survivors(), 'end of all processes', 15 * wire.SCALE)
            except AssertionError:
                left = self.survivors()
                trouble.append('processes left: %s' % ['%d %s' % (p, name_of(p)) for p in left])
                for pid in left:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except OSError:
                        pass
            for c in self.clients:
                c.close()
            if not self.stdio:
                rest = self.out.end_of_stream(10)
                if rest:
                    trouble.append('more than the URL line on stdout: %r' % rest[:200])
            left = [os.path.join(d, f) for d, ds, fs in os.walk(self.tmp) for f in fs + ds]
            if left and not PEER:
                trouble.append('files left: %r' % left)
            if self.listen.startswith('unix://') and os.path.exists(self.listen[len('unix://'):]) and not PEER:
                if how != signal.SIGKILL:
                    trouble.append('the socket is left')
            groups = lambda: [r + g for r in cgroup_roots() for g in self.cgroups if os.path.isdir(r + g)]
            try:
                wait_until(lambda: not groups(), 'end of all cgroups', 5 * wire.SCALE)
            except AssertionError:
                trouble.append('cgroups left: %r' % groups())
            limits = [g for pid in {self.pid} | self.fronts for g in limit_groups(pid)]
            if how != signal.SIGKILL and code == status and limits:
                trouble.append('cgroups left: %r' % limits)
            err = self.stderr()
            if 'Sanitizer' in err or 'runtime error:' in err:
                trouble.append('a sanitizer speaks:\n' + err[-6000:])
        finally:
            self.clean()
        if trouble:
            raise AssertionError('; '.join(trouble))

    def kill(self):
        """The hard way out, for a fixture that could not start."""
        self.stopped = True
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self.clean()

    def clean(self):
        if self.out is not None:
            self.out.close()
        if self.popen.stdout and not self.popen.stdout.closed:
            self.popen.stdout.close()
        self.last_stderr = self.stderr() if os.path.exists(self.err_path) else ''
        shutil.rmtree(self.base, ignore_errors=True)


class Case(unittest.TestCase):
    """A test with servers of its own."""

    maxDiff = 4000

    def setUp(self):
        self._servers = []

    def server(self, *args, **how):
        s = Server(*args, **how)
        self._servers.append(s)
        self.addCleanup(s.stop)
        return s

    def session(self, *args, **how):
        """A server and one connection ready for use."""
        self.srv = self.server(*args, **how)
        return self.srv.session()

    def server_logs(self):
        text = ''
        for s in self._servers:
            err = getattr(s, 'last_stderr', None)
            if err is None and os.path.exists(s.err_path):
                err = s.stderr()
            if err:
                text += '--- stderr of the server\n' + err[-3000:] + '\n'
        return text

    def assertError(self, error, code, message=None):
        self.assertEqual(error['code'], code, error)
        if message is not None:
            self.assertEqual(error['message'], message)
        self.assertTrue(error['message'], 'an error needs a text')

    def assertGone(self, *pids):
        for pid in pids:
            wait_until(lambda p=int(pid): not is_alive(p), 'end of %s (%s)' % (pid, name_of(int(pid))))

    def scratch(self):
        path = tempfile.mkdtemp(prefix='sallyport-test-')
        self.addCleanup(shutil.rmtree, path, True)
        return path


class Gate:
    """A FIFO a command waits on: `sh` code that blocks until the test opens it."""

    def __init__(self, directory, name='gate'):
        self.path = os.path.join(directory, name)
        os.mkfifo(self.path)

    @property
    def wait(self):
        return 'read x < %s' % self.path

    def open(self):
        end = wire.deadline()
        while True:
            try:
                fd = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError:
                if time.monotonic() > end:
                    raise AssertionError('nobody waits at the gate') from None
                time.sleep(0.005)
        os.write(fd, b'go\n')
        os.close(fd)
