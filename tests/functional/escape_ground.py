# SPDX-License-Identifier: Apache-2.0
"""The ground that escapes are tried on: a workspace W, a directory O outside, a process H outside
with sockets and objects, a server, and pictures of everything that must not change.

ESCAPE, ESCAPE_HOST  paths of the programs of tests/escape (default: beside the server)
"""

import atexit
import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

import wire
from sandbox_policy import IS_ROOT, outside_of_tmp
from server import PROGRAM, Server, marked
from wire import file_uri

BESIDE = os.path.join(os.path.dirname(PROGRAM), 'tests', 'escape')
ORDINARY = 61789  # a uid that nothing else runs under
CANNOT = 'sandbox intent cannot be enforced on this executor'
INHERITED = 700   # a descriptor of a file in O that the server is started with


class Refused(Exception):
    """A start that the server refused."""

    def __init__(self, error):
        super().__init__('%d %s' % (error['code'], error['message']))
        self.code, self.message = error['code'], error['message']


def become(uid):
    """For preexec_fn: this user and no group besides."""
    if IS_ROOT and uid != 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


def remove(path):
    for directory, names, _files in os.walk(path):
        for name in names:
            sub = os.path.join(directory, name)
            if not os.path.islink(sub):
                os.chmod(sub, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def _install_programs():
    """Copies that every user can execute."""
    place = tempfile.mkdtemp(prefix='sallyport-escape-', dir=outside_of_tmp())
    atexit.register(remove, place)
    os.chmod(place, 0o755)
    for name, variable in (('escape', 'ESCAPE'), ('escape_host', 'ESCAPE_HOST')):
        source = os.environ.get(variable) or os.path.join(BESIDE, name)
        shutil.copy(source, os.path.join(place, name))
        os.chmod(os.path.join(place, name), 0o755)
    return place


PROGRAMS = _install_programs()
ESCAPE = os.path.join(PROGRAMS, 'escape')


def run_as(uid, argv, **how):
    return subprocess.run(argv, preexec_fn=lambda: become(uid), capture_output=True, text=True, **how)


def rows_of(suite, uid, net='restricted', tty=False):
    """(number, kind, name) of every attempt that would be made."""
    done = run_as(uid, [ESCAPE, 'list', suite, 'net=' + net, 'tty=%d' % tty])
    if done.returncode != 0:
        raise AssertionError('escape list %s: %r' % (suite, done))
    return [tuple(line.split('\t')) for line in done.stdout.splitlines()]


class Line:
    """What the program said about one attempt."""

    def __init__(self, text):
        fields = text.split('\t') + ['']
        self.number, self.kind, self.name, self.answer, self.verdict, self.reason = fields[:6]

    def __str__(self):
        return '%s %s: the kernel said %s, %s' % (self.number, self.name, self.answer, self.reason)


def lines_of(text):
    """name -> Line; the program must have come to its end."""
    lines = [line for line in text.replace('\r', '').split('\n') if line]
    if not lines or not lines[-1].startswith('end\t'):
        raise AssertionError('the program did not come to its end: %r' % '\n'.join(lines[-3:]))
    said = [Line(line) for line in lines[:-1]]
    return {line.name: line for line in said}


def has_route(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        try:
            s.connect((address, 53))
            return 1
        except OSError:
            return 0


def resolver():
    try:
        with open('/etc/resolv.conf') as f:
            for line in f:
                words = line.split()
                if len(words) > 1 and words[0] == 'nameserver':
                    return words[1].split('%')[0]
    except OSError:
        pass
    return ''


def disk():
    """The name of a disk in /dev: that of / if it is on one."""
    dev = os.stat('/').st_dev
    try:
        with open('/sys/dev/block/%d:%d/uevent' % (os.major(dev), os.minor(dev))) as f:
            for line in f:
                if line.startswith('DEVNAME='):
                    return line.split('=')[1].strip()
    except OSError:
        pass
    there = [n for n in os.listdir('/dev') if n[:2] in ('vd', 'sd', 'nv', 'xv', 'lo')]
    return there[0] if there else ''


def name_in_run():
    reopened = {'systemd', 'NetworkManager', 'resolvconf', 'user', 'netns'}
    names = sorted(set(os.listdir('/run')) - reopened) if os.path.isdir('/run') else []
    return '/run/' + names[0] if names else ''


def picture(*roots):
    """Everything about every file below: whatever changed, it shows."""
    seen = {}
    for root in roots:
        for directory, names, files in os.walk(root):
            for path in [directory] + [os.path.join(directory, n) for n in names + files]:
                st = os.lstat(path)
                data = None
                if stat.S_ISREG(st.st_mode):
                    with open(path, 'rb') as f:
                        data = f.read()
                elif stat.S_ISLNK(st.st_mode):
                    data = os.readlink(path)
                attributes = os.listxattr(path, follow_symlinks=False)
                seen[path] = (oct(st.st_mode), st.st_uid, st.st_gid, st.st_ino, st.st_nlink, st.st_size,
                              st.st_mtime_ns, st.st_ctime_ns, data, attributes)
    return seen


def differences(before, after):
    out = ['%s has appeared' % p for p in after if p not in before]
    out += ['%s has gone' % p for p in before if p not in after]
    out += ['%s has changed: %r, %r' % (p, before[p], after[p])
            for p in before if p in after and before[p] != after[p]]
    return out


class UserServer(Server):
    """A server that runs as another user."""

    def __init__(self, uid, *args, **how):
        self.uid = uid
        super().__init__(*args, before_exec=self.become_user, **how)

    def become_user(self):
        if IS_ROOT and self.uid != 0:
            for path in (self.base, self.tmp, self.work, self.home):
                if path.startswith(self.base):
                    os.chown(path, self.uid, self.uid)
            become(self.uid)


class Ground:
    """One W, one O, one H; `serve` starts a server on it. To be closed."""

    def __init__(self, uid, place=None):
        self.uid = uid
        self.base = tempfile.mkdtemp(prefix='sallyport-escape-', dir=place or outside_of_tmp())
        self.tmp = tempfile.mkdtemp(prefix='sallyport-escape-', dir='/tmp')
        self.closers = []
        self.host = self.server = None
        os.chmod(self.base, 0o755)
        for name in ('w', 'o', 't', 'run', 'runtime', 'agent', 'home', 'bin'):
            os.mkdir(self.path(name))
        self.w, self.o, self.t = self.path('w'), self.path('o'), self.path('t')
        for name in ('o/f', 'o/g', 'o/h', 'o/e', 'w/x', 'w/e', 'w/f', 'w/.git/HEAD', 'w/sub/f', 'w/sub/ro/f', 'o/ro/f',
                     'runtime/secret'):
            self.put(name, 'content of %s\n' % name)
        for name in ('w/d', 'w/evil', 'w/mnt', 'w/.git/hooks', 'o/empty'):
            os.makedirs(self.path(name), exist_ok=True)
        with socket.socket(socket.AF_UNIX) as agent:
            agent.bind(self.path('agent/sock'))
        self.words = {}
        self.own()

    def path(self, name):
        return os.path.join(self.base, name)

    def put(self, name, text, mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def own(self):
        """Everything belongs to the user; a program with the set-user-id bit does not."""
        if IS_ROOT:
            for root in (self.base, self.tmp):
                os.chown(root, self.uid, self.uid)
                for directory, names, files in os.walk(root):
                    for name in names + files:
                        os.lchown(os.path.join(directory, name), self.uid, self.uid)
            program = self.path('bin/setuid')
            shutil.copy(ESCAPE, program)
            os.chown(program, 0 if self.uid else 65534, 0 if self.uid else 65534)
            os.chmod(program, 0o6755)
            if not os.statvfs(self.base).f_flag & os.ST_NOSUID:
                self.words['setuid'] = program

    def start_host(self):
        secret = dict(os.environ, ESCAPE_SECRET='nobody knows')
        self.host = subprocess.Popen([os.path.join(PROGRAMS, 'escape_host'), self.o], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True, env=secret,
                                     preexec_fn=lambda: become(self.uid))
        self.closers.append(self.stop_host)
        for line in self.host.stdout:
            if line == 'ready\n':
                return
            word, value = line.rstrip('\n').split('=', 1)
            self.words[word] = value
        raise AssertionError('the host process ended with %r' % self.host.wait())

    def stop_host(self):
        """What was touched: name -> how often."""
        if self.host is None or self.host.returncode is not None:
            return None
        text = self.host.communicate(timeout=wire.DEADLINE)[0]
        return dict(line.split('=') for line in text.splitlines())

    def open_terminal(self):
        """A terminal of the host with a number that a fresh instance does not have."""
        while True:
            master, slave = os.openpty()
            self.closers += [lambda fd=fd: os.close(fd) for fd in (master, slave)]
            number = int(os.ttyname(slave).rsplit('/', 1)[1])
            if number >= 8:
                return number

    def tell(self, net, tty):
        """The words that a suite is started with."""
        words = dict(self.words, net=net, tty=int(tty), w=self.w, w2=self.path('w2'), o=self.o, o2=self.path('o2'),
                     base=self.base, base2=self.base + '-2', cwd='.', t=self.t, tmp=self.tmp,
                     fd=INHERITED, init=1, program=ESCAPE, socket=self.path('run/socket'),
                     runtime=self.path('runtime'), agent=self.path('agent'), resolver=resolver(), disk=disk(),
                     run=name_in_run(), route=has_route(socket.AF_INET, '192.0.2.1'),
                     route6=has_route(socket.AF_INET6, '2001:db8::1'))
        return ['%s=%s' % item for item in words.items()]

    def serve(self, runtime='runtime'):
        fd = os.open(self.path('o/f'), os.O_RDWR)
        extra = fcntl.fcntl(fd, fcntl.F_DUPFD, INHERITED)
        os.close(fd)
        if extra != INHERITED:
            raise AssertionError('descriptor %d is taken' % INHERITED)
        os.set_inheritable(extra, True)
        try:
            self.server = UserServer(
                self.uid, listen='unix://' + self.path('run/socket'), pass_fds=(extra,), home=self.path('home'),
                env={'XDG_RUNTIME_DIR': self.path(runtime), 'SSH_AUTH_SOCK': self.path('agent/sock')})
        finally:
            os.close(extra)
        return self.server

    def connect(self):
        return self.server.lines().handshake()

    # -- policies

    def entries(self):
        """Workspace-write as the reference's client says it, and a carve-out."""
        special = lambda access, kind, **more: {
            'path': {'type': 'special', 'value': dict({'kind': kind}, **more)}, 'access': access}
        entries = [special('read', 'root'), special('write', 'project_roots'), special('write', 'slash_tmp'),
                   special('write', 'tmpdir')]
        entries += [dict(special('read', 'project_roots', subpath=name), missing_path_behavior='skip')
                    for name in ('.git', '.agents', '.codex', '.aws')]
        return entries + [self.entry('w/sub/ro', 'read')]

    def entry(self, name, access):
        return {'path': {'type': 'path', 'path': file_uri(self.path(name))}, 'access': access}

    def sandbox(self, entries=None, net='restricted', **more):
        return dict({'permissions': {'type': 'managed', 'network': net, 'file_system': dict(
            {'type': 'restricted', 'entries': self.entries() if entries is None else entries}, **more)},
            'cwd': file_uri(self.w), 'workspaceRoots': [file_uri(self.w)], 'windowsSandboxLevel': 'disabled',
            'windowsSandboxProxySettingsMode': 'reconcile', 'useLegacyLandlock': False})

    def start(self, client, process_id, argv, sandbox, mark='', **how):
        env = {'PATH': '/usr/bin:/bin', 'TMPDIR': self.t, 'ESCAPE_MARK': mark}
        params = client.start_params(process_id, argv, cwd=file_uri(self.w), env=env, sandbox=sandbox, **how)
        message = client.reply(client.post('process/start', params))
        if 'error' in message:
            raise Refused(message['error'])
        if message['result'] != {'processId': process_id, 'sandboxType': 'linuxSeccomp'}:
            raise AssertionError('start: %r' % (message['result'],))

    def run(self, client, argv, sandbox, **how):
        client.ids += 1
        process_id = 'escape-%d' % client.ids
        self.start(client, process_id, argv, sandbox, **how)
        return client.wait_closed(process_id)

    def run_managed(self, argv):
        """The output of a command of `sallyport sandbox` with a managed network."""
        profile = self.put('home/profile.json', json.dumps(self.sandbox()['permissions']).replace('file://', ''))
        env = {'PATH': '/usr/bin:/bin', 'TMPDIR': self.t, 'HOME': self.path('home'), 'ESCAPE_MARK': '',
               'XDG_RUNTIME_DIR': self.path('runtime'), 'SSH_AUTH_SOCK': self.path('agent/sock')}
        done = run_as(self.uid, [PROGRAM, 'sandbox', '--no-tty', '--profile', profile, '--allow-host', 'allowed.example', '--',
                                 *argv], cwd=self.w, env=env, stdin=subprocess.DEVNULL, timeout=3 * wire.DEADLINE)
        if done.returncode not in (0, 1):  # 1: an attempt was not answered as expected
            raise AssertionError('exit status %d: %s' % (done.returncode, done.stderr))
        return done.stdout

    # -- the end

    def close(self):
        try:
            for closer in reversed(self.closers):
                closer()
        finally:
            self.closers = []
            remove(self.base)
            remove(self.tmp)


def kill_marked(mark):
    """Whatever carries this mark in its environment; for a test that has failed."""
    for pid in marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
