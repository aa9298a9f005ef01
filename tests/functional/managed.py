# SPDX-License-Identifier: Apache-2.0
"""Commands in managed cells of `sallyport sandbox`, and the servers that they reach: all on loopback, behind the names
of a table that only the program for tests reads (tests/helpers/test_hosts.c)."""

import json
import os
import shutil
import ssl
import subprocess
import tempfile
import textwrap
import unittest

import wire
from proxy_front import Server, web
from server import PASS_ON, PEER, PROGRAM, PYTHON, descendants, is_alive, name_of, stat_of

TEST_PROGRAM = os.path.join(os.path.dirname(PROGRAM), 'tests', 'sallyport-test-hosts')
CANNOT = 'cannot be enforced'
DOOR = 'http://127.0.0.1:808'
IS_ROOT = os.getuid() == 0

# Part of every Python script that runs inside; `say` is the answer to the test.
PRELUDE = '''
import hashlib, json, os, socket, ssl, struct, sys, threading, time
socket.setdefaulttimeout(%d)
def say(value):
    print(json.dumps(value), flush=True)
def read_all(s):
    data = b''
    while True:
        try:
            more = s.recv(65536)
        except ConnectionResetError:
            return data + b'RESET'
        if not more:
            return data
        data += more
def read_head(s):
    data = b''
    while b'\\r\\n\\r\\n' not in data:
        more = s.recv(1)
        if not more:
            break
        data += more
    return data.decode('latin-1')
def attempt(fn, *args):
    try:
        return fn(*args)
    except OSError as e:
        return '%%s %%s' %% (type(e).__name__, e.errno if e.errno is not None else e)
def door():
    return socket.create_connection(('127.0.0.1', 808))
def ask(text):
    """The first line of what the proxy answers to this head, and the body."""
    s = door()
    s.sendall(text if isinstance(text, bytes) else text.encode('latin-1'))
    head, _, body = read_all(s).partition(b'\\r\\n\\r\\n')
    return head.decode('latin-1'), body.decode('latin-1')
def connect(target):
    """CONNECT: (status line, socket)."""
    s = door()
    s.sendall(('CONNECT %%s HTTP/1.1\\r\\nHost: %%s\\r\\n\\r\\n' %% (target, target)).encode())
    return read_head(s), s
'''


def probe():
    """Why this host has no managed cells; '' if it has."""
    if PEER:
        return 'the reference differs'
    if not os.path.exists(TEST_PROGRAM):
        return '%s is not built' % TEST_PROGRAM
    done = subprocess.run([TEST_PROGRAM, 'sandbox', '--allow-host', 'a.test', '--', '/bin/true'], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, cwd='/')
    return done.stderr.strip() if done.returncode != 0 and CANNOT in done.stderr else ''


def needs(*programs):
    missing = [p for p in programs if shutil.which(p) is None]
    return unittest.skipIf(missing, 'not installed: %s' % ' '.join(missing))


def helpers_of(pid, verb):
    """Processes `sallyport VERB` below this one, without the children by which they try their filters."""
    found = {p: stat_of(p) for p in descendants(pid) if name_of(p).split()[1:2] == [verb]}
    return [p for p, stat in found.items() if stat and stat[1] not in found]


class Cell:
    """One running `sallyport sandbox`. `end` judges what is left."""

    def __init__(self, case, argv, args, **how):
        self.popen = subprocess.Popen([TEST_PROGRAM, 'sandbox', '--no-tty', *args, '--', *argv], env=case.environment(),
                                      cwd=case.work, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, **how)
        self.pid, self.tracked = self.popen.pid, {}

    def line(self):
        text = self.popen.stdout.readline()
        if not text:
            raise AssertionError('ended with %r: %s' % (self.popen.wait(wire.DEADLINE), self.popen.stderr.read().decode()))
        return json.loads(text)

    def tell(self, text='\n'):
        self.popen.stdin.write(text.encode())
        self.popen.stdin.flush()

    def helper(self, verb='proxy'):
        found = wire.wait_until(lambda: helpers_of(self.pid, verb), 'sallyport ' + verb)
        return found[0]

    def track(self):
        for pid in descendants(self.pid):
            stat = stat_of(pid)
            if stat:
                self.tracked[pid] = stat[4]

    def left(self):
        return [p for p, born in self.tracked.items() if is_alive(p, born)]

    def wait(self):
        self.track()
        out, err = self.popen.communicate(timeout=wire.DEADLINE)
        wire.wait_until(lambda: not self.left(), 'end of all processes of the sandbox')
        return subprocess.CompletedProcess(self.popen.args, self.popen.returncode, out.decode(errors='replace'),
                                           err.decode(errors='replace'))

    def close(self):
        if self.popen.poll() is None:
            self.track()
            self.popen.kill()
        self.popen.wait()
        for f in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            f.close()


class ManagedCase(unittest.TestCase):
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        reason = probe()
        if reason:
            raise unittest.SkipTest(reason)

    def setUp(self):
        self.base = tempfile.mkdtemp(prefix='sallyport-net-')
        self.addCleanup(shutil.rmtree, self.base, True)
        self.work, self.home = self.base + '/work', self.base + '/home'
        os.mkdir(self.work)
        os.mkdir(self.home)
        self.table, self.env = [], {}

    # ---- servers and names ----

    def serve(self, how):
        def serve(conn):
            how(conn)
            conn.close()
        server = Server(serve)
        self.addCleanup(server.close)
        return server

    def name(self, host, ports=(), addresses='127.0.0.1*'):
        """Puts a name into the table; ports: port -> the server behind it."""
        self.table.append('%s=%s' % (host, addresses))
        for port, server in dict(ports).items():
            self.table.append('%s:%d=127.0.0.1:%d*' % (host, port, server.port))
        return host

    def certificate(self, *names):
        """A certificate for these names that is its own authority: (its file, the file of the key)."""
        cert, key = self.base + '/%s.pem' % names[0], self.base + '/%s.key' % names[0]
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
                        '-days', '2', '-subj', '/CN=' + names[0], '-keyout', key, '-out', cert, '-addext',
                        'subjectAltName=' + ','.join('DNS:' + n for n in names)], check=True, capture_output=True)
        return cert, key

    def tls(self, how, *names):
        """`how` behind TLS, with a certificate for these names: (server, file of the certificate)."""
        cert, key = self.certificate(*names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)

        def serve(conn):
            with context.wrap_socket(conn, server_side=True) as secure:
                how(secure)
        return self.serve(serve), cert

    # ---- commands ----

    def environment(self):
        env = {'PATH': '/usr/local/bin:/usr/bin:/bin:/usr/sbin', 'HOME': self.home, 'LANG': 'C.UTF-8',
               'SALLYPORT_TEST_HOSTS': ','.join(self.table)}
        env.update({k: os.environ[k] for k in PASS_ON if k in os.environ})
        env.update(self.env)
        return env

    def args(self, allow, mode):
        return ['--mode', mode] + [word for host in allow for word in ('--allow-host', host)]

    def cell(self, argv, allow=('a.test',), mode='workspace-write', args=(), **how):
        cell = Cell(self, argv, [*self.args(allow, mode), *args], **how)
        self.addCleanup(cell.close)
        return cell

    def run_inside(self, *argv, allow=('a.test',), mode='workspace-write', status=0, args=(), **how):
        """Runs a command to its end."""
        done = subprocess.run([TEST_PROGRAM, 'sandbox', '--no-tty', *self.args(allow, mode), *args, '--', *argv],
                              env=self.environment(), cwd=self.work, capture_output=True,
                              **{'timeout': 3 * wire.DEADLINE, **({} if 'input' in how else {'stdin': subprocess.DEVNULL}), **how})
        done.stdout, done.stderr = done.stdout.decode(errors='replace'), done.stderr.decode(errors='replace')
        if status is not None:
            self.assertEqual(done.returncode, status, done.stdout[-3000:] + done.stderr[-3000:])
        return done

    @staticmethod
    def script(code):
        return [PYTHON, '-c', PRELUDE % wire.DEADLINE + textwrap.dedent(code)]

    def python(self, code, *words, **how):
        """Runs a script inside; returns what it says: a value, or a list of several."""
        done = self.run_inside(*self.script(code), *words, **how)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        return said[0] if len(said) == 1 else said


class NameCase(ManagedCase):
    """Commands without any variable that names a proxy."""

    WITHOUT = ['env'] + [word for name in ('HTTP_PROXY', 'HTTPS_PROXY', 'WS_PROXY', 'WSS_PROXY', 'ALL_PROXY', 'FTP_PROXY',
                                           'NO_PROXY', 'NPM_CONFIG_PROXY', 'NPM_CONFIG_HTTP_PROXY', 'NPM_CONFIG_HTTPS_PROXY',
                                           'NPM_CONFIG_NOPROXY', 'PIP_PROXY', 'NODE_USE_ENV_PROXY')
                         for word in ('-u', name, '-u', name.lower())]

    def run_inside(self, *argv, **how):
        return super().run_inside(*self.WITHOUT, *argv, **how)

    def web(self, host='a.test'):
        """HTTP on port 80 and HTTPS on port 443 of a name; returns the file of the certificate."""
        self.seen = []
        server, cert = self.tls(web(self.seen), host, 'b.test')
        self.name(host, {80: self.serve(web(self.seen)), 443: server})
        return cert
