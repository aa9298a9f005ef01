# SPDX-License-Identifier: Apache-2.0
"""The ground for honest work: a workspace, a home that cannot be written, a server, a session.

WORKLOADS_OPEN=1 runs everything without a sandbox: what fails then as well is a fault of the test.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

import wire
from sandbox_policy import IS_ROOT, MINIMAL, PROTECTED, WORKSPACE, context, outside_of_tmp, restricted
from server import Case, HERE, PROGRAM, Server
from wire import file_uri

OPEN = bool(os.environ.get('WORKLOADS_OPEN'))
NOBODY = 65534
PATH = '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin'
PROGRAMS = os.path.join(HERE, 'workloads')  # what runs inside


def has(*names):
    return all(shutil.which(name, path=PATH) for name in names)


def needs(*names):
    missing = [name for name in names if not has(name)]
    return unittest.skipIf(missing, 'this machine has no %s' % ', '.join(missing))


confined_only = unittest.skipIf(OPEN, 'nothing is refused without a sandbox')


# Like WORKSPACE, which the Codex client sends; but only programs and the workspace can be seen.
RESTRICTED_READS = [MINIMAL] + [
    entry for entry in WORKSPACE if entry['path']['value']['kind'] in ('project_roots', 'tmpdir')]


# --------------------------------------------------------------------------------------- ground


class UserServer(Server):
    """A server that runs as another user."""

    def __init__(self, uid, *args, **how):
        self.uid = uid
        super().__init__(*args, before_exec=self.become_user, **how)

    def become_user(self):
        if self.uid is not None:
            for path in (self.base, self.tmp, self.work, self.home):
                os.chown(path, self.uid, self.uid)
            os.setgroups([])
            os.setgid(self.uid)
            os.setuid(self.uid)


class Workload(Case):
    """A workspace `w`, a home that is not writable, a directory for TMPDIR, and a session."""

    uid = None            # of the server; None: our own
    network = 'restricted'
    reads_all = True

    def entries(self):
        return WORKSPACE

    def setUp(self):
        super().setUp()
        self.base = tempfile.mkdtemp(prefix='sallyport-work-', dir=outside_of_tmp())
        self.addCleanup(self.remove_all)
        os.chmod(self.base, 0o755)
        self.w, self.home, self.t, self.o = [os.path.join(self.base, name) for name in ('w', 'home', 't', 'o')]
        for path in (self.w, self.home, self.t, self.o):
            os.mkdir(path)
            self.own(path)
        self.addCleanup(self.look_at_roots)
        self.srv = UserServer(self.uid)
        self._servers.append(self.srv)
        self.addCleanup(self.srv.stop)
        self.c = self.srv.session()

    def remove_all(self):
        shutil.rmtree(self.base, ignore_errors=True)

    def look_at_roots(self):
        """After the server: no placeholder may be left where there was none before."""
        left = [os.path.join(root, name) for root in (self.w, self.t) for name in PROTECTED + ('.sallyport',)
                if os.path.lexists(os.path.join(root, name)) and not self.is_ours(root, name)]
        if left:
            raise AssertionError('left behind: %r' % left)

    def is_ours(self, root, name):
        return name == '.git' and bool(os.listdir(os.path.join(root, name)))

    def own(self, path):
        if self.uid is not None:
            os.lchown(path, self.uid, self.uid)
            for directory, names, files in os.walk(path):
                for name in names + files:
                    os.lchown(os.path.join(directory, name), self.uid, self.uid)

    def path(self, name):
        return os.path.join(self.w, name)

    def put(self, name, text, mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as f:
            f.write(text)
        os.chmod(path, mode)
        self.own(path)
        return path

    def get(self, name):
        with open(self.path(name), errors='replace') as f:
            return f.read()

    def copy_in(self, name, to=None):
        """A program or project of tests/functional/workloads."""
        source, target = os.path.join(PROGRAMS, name), self.path(to or name)
        if os.path.isdir(source):
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        self.own(target)
        return target

    # -- running

    def environment(self, **more):
        return dict({
            'PATH': PATH, 'HOME': self.home, 'TMPDIR': self.t, 'LANG': 'C.UTF-8', 'TERM': 'xterm',
            'GIT_AUTHOR_NAME': 'A', 'GIT_AUTHOR_EMAIL': 'a@localhost', 'GIT_COMMITTER_NAME': 'A',
            'GIT_COMMITTER_EMAIL': 'a@localhost', 'GIT_CONFIG_NOSYSTEM': '1', 'PYTHONDONTWRITEBYTECODE': '1',
        }, **more)

    def how(self, entries=None, roots=None, cwd=None, env=None, **more):
        roots = roots or [self.w]
        if not OPEN:
            entries = self.entries() if entries is None else entries
            more['sandbox'] = context(restricted(entries, self.network), *roots)
        return dict(cwd=file_uri(cwd or roots[0]), env=self.environment(**(env or {})), **more)

    def run_in(self, command, timeout=None, **how):
        """command: a script for bash, or a list of words."""
        argv = ['bash', '-c', command] if isinstance(command, str) else command
        self.c.ids += 1
        process_id = 'work-%d' % self.c.ids
        self.c.start(process_id, argv, **self.how(**how))
        done = self.c.wait_closed(process_id, timeout)
        done.denied = self.was_denied(process_id)
        return done

    def was_denied(self, process_id):
        told = [n['params']['sandboxDenied'] for n in self.c.notes
                if n['method'] == 'process/exited' and n['params']['processId'] == process_id]
        return told[-1]

    @staticmethod
    def story(command, done):
        shown = command if isinstance(command, str) else ' '.join(command)
        return '%s\nexit %r, denied %r\n--- stdout\n%s\n--- stderr\n%s' % (
            shown[:300], done.exit_code, done.denied, done.text[-3000:], done.stderr.decode('utf-8', 'replace')[-3000:])

    def works(self, command, **how):
        """It must succeed; what it said on stdout (or on its terminal)."""
        done = self.run_in(command, **how)
        self.assertEqual(done.exit_code, 0, self.story(command, done))
        self.assertFalse(done.denied, self.story(command, done))
        return done.text

    def fails(self, command, *words, code=None, denied=None, **how):
        """It must fail, soon, and say one of the words."""
        done = self.run_in(command, **how)
        self.assertNotEqual(done.exit_code, 0, self.story(command, done))
        said = (done.text + done.stderr.decode('utf-8', 'replace')).lower()
        self.assertTrue(not words or any(word.lower() in said for word in words), self.story(command, done))
        if code is not None:
            self.assertEqual(done.exit_code, code, self.story(command, done))
        if denied is not None and not OPEN:
            self.assertEqual(done.denied, denied, self.story(command, done))
        return said

    def refused(self, command, *words, **how):
        """The sandbox stops it, and the client is told so."""
        if OPEN:
            return ''
        return self.fails(command, *words, denied=True, **how)


class HostServer:
    """A TCP server of the host on 127.0.0.1 that says one line to everybody."""

    def __init__(self, line=b'hello from the host\n'):
        self.socket = socket.create_server(('127.0.0.1', 0))
        self.port = self.socket.getsockname()[1]
        self.line, self.count = line, 0
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                peer, _address = self.socket.accept()
            except OSError:
                return
            with peer:
                self.count += 1
                peer.sendall(self.line)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(wire.DEADLINE)


def reaches(uid, path):
    """Whether a user can execute the program."""
    def become():
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
    try:
        return subprocess.run([path, '--version'], preexec_fn=become, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


NOBODY_REACHES = IS_ROOT and reaches(NOBODY, PROGRAM)
