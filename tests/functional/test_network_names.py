# SPDX-License-Identifier: Apache-2.0
"""The managed network by name: real programs without any variable reach the hosts that are allowed, and no others."""

import base64
import hashlib
import importlib.util
import json
import os
import pwd
import shutil
import socket
import subprocess
import threading
import unittest

import tap
import wire
from managed import IS_ROOT, NameCase, needs
from proxy_front import echo, read_exactly, read_head, web
from server import PYTHON

MIB = 1 << 20
BULK = 1024 * MIB if tap.IS_LONG else 16 * MIB
SSHD = os.environ.get('SSHD') or shutil.which('sshd', path=os.environ['PATH'] + ':/usr/sbin')
HOST = 'a.test'
HAS_USER = any(u.pw_uid == os.getuid() for u in pwd.getpwall())
HAS_SHELL = HAS_USER and os.path.basename(pwd.getpwuid(os.getuid()).pw_shell) not in ('nologin', 'false')
NO_SSHD = 'this user has no shell' if not HAS_SHELL else os.environ.get('SSHD_MISSING', 'no sshd: tools/unpack-sshd')


def websocket(conn):
    """Accepts the upgrade, says a frame by itself, then echoes one."""
    text, _ = read_head(conn)
    key = [line.split(': ')[1] for line in text.split('\r\n') if line.lower().startswith('sec-websocket-key')][0]
    accept = base64.b64encode(hashlib.sha1((key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest())
    conn.sendall(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
                 b'Sec-WebSocket-Accept: ' + accept + b'\r\n\r\n\x81\x05hello')
    frame = read_exactly(conn, 2)
    mask = read_exactly(conn, 4)
    body = bytes(c ^ mask[i % 4] for i, c in enumerate(read_exactly(conn, frame[1] & 127)))
    conn.sendall(bytes([0x81, len(body)]) + body)
    conn.recv(1)


def greeter(conn):
    """A protocol in which the server speaks first."""
    conn.sendall(b'220 welcome\r\n')
    conn.sendall(b'you said ' + conn.recv(100))


class Surroundings(NameCase):
    """Files, addresses and ports that a command finds."""

    LOOK = '''
        families = {f: sorted({a[4][0] for a in socket.getaddrinfo(n, 80, f, socket.SOCK_STREAM, 0, flags)})
                    for n, f, flags in (('localhost', socket.AF_INET, socket.AI_ADDRCONFIG),)}
        at = socket.getaddrinfo('a.test', 80, socket.AF_INET, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)[0][4][0]
        s = socket.create_connection(('a.test', 80))
        s.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n')
        files = {p: open('/etc/' + p).read() if os.path.exists('/etc/' + p) else '' for p in
                 ('resolv.conf', 'hosts', 'nsswitch.conf')}
        say({'local': families[socket.AF_INET], 'at': at, 'answer': read_all(s)[:15].decode(), 'files': files})
    '''

    def look(self, **how):
        said = self.python(self.LOOK, **how)
        self.assertEqual((said['local'], said['answer']), (['127.0.0.1'], 'HTTP/1.1 200 OK'))
        self.assertRegex(said['at'], r'^127\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.')
        return said['files']

    def test_4_files_and_5_addresses(self):
        self.web()
        files = self.look()
        self.assertEqual(files['resolv.conf'], 'nameserver 127.0.0.1\noptions timeout:5 attempts:2\n')
        self.assertIn('127.0.0.1', files['hosts'])
        self.assertIn('localhost', files['hosts'])
        if files['nsswitch.conf']:
            self.assertRegex(files['nsswitch.conf'], r'(?m)^hosts: +files dns$')

    def profile(self, name, file_system):
        path = self.base + '/' + name
        with open(path, 'w') as f:
            json.dump({'type': 'managed', 'network': 'restricted', 'file_system': file_system}, f)
        return path

    def test_4_views(self):
        """The host's files read-only, as they are, and a view with little in it."""
        self.web()
        place = lambda p: {'path': {'type': 'path', 'path': p}, 'access': 'read'}
        minimal = [{'path': {'type': 'special', 'value': {'kind': 'minimal'}}, 'access': 'read'}]
        minimal += [place(p) for p in ('/usr', '/bin', '/lib', '/lib64', os.path.realpath(PYTHON + '/../..'), '/etc')
                    if os.path.isdir(p)]
        self.look(mode='read-only')
        for name, system in (('open', {'type': 'unrestricted'}), ('new', {'type': 'restricted', 'entries': minimal})):
            with self.subTest(name):
                self.args = lambda allow, mode, n=name, s=system: ['--profile', self.profile(n, s), '--allow-host', HOST]
                self.look()

    @needs('unshare', 'mount')
    def test_4_kinds_of_resolv_conf(self):
        """A file, a link, a link that leads nowhere, none: in a copy of /etc."""
        self.web()
        etc = self.base + '/etc'
        os.mkdir(etc)
        for name in ('passwd', 'group', 'ld.so.cache', 'nsswitch.conf', 'hosts', 'localtime'):
            if os.path.exists('/etc/' + name):
                shutil.copy('/etc/' + name, etc)
        command = 'mount --bind %s /etc && exec "$@"' % etc
        program = ['unshare', '-m' if IS_ROOT else '-rm', 'sh', '-c', command, 'sh']
        if subprocess.run([*program, 'true'], capture_output=True).returncode != 0:
            self.skipTest('no mounts here')
        for kind in ('file', 'link', 'dangling', 'missing'):
            with self.subTest(kind):
                if os.path.lexists(etc + '/resolv.conf'):
                    os.unlink(etc + '/resolv.conf')
                if kind == 'file':
                    with open(etc + '/resolv.conf', 'w') as f:
                        f.write('nameserver 192.0.2.1\n')
                elif kind != 'missing':
                    os.symlink('hosts' if kind == 'link' else '/run/none/of/these', etc + '/resolv.conf')
                done = subprocess.run(
                    [*program, self.program(), 'sandbox', '--allow-host', HOST, '--', *self.script(self.LOOK)],
                    env=self.environment(), cwd=self.work, capture_output=True, text=True, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(json.loads(done.stdout)['answer'], 'HTTP/1.1 200 OK')

    @staticmethod
    def program():
        from managed import TEST_PROGRAM
        return TEST_PROGRAM

    SOCKETS = '''
        def listening(kind, state):
            rows = [line.split() for line in open('/proc/self/net/' + kind).read().splitlines()[1:]]
            return sorted(row[1] for row in rows if row[3] == state)
        def bind(port):
            with socket.socket() as s:
                s.bind(('127.0.0.1', port))
            return 'ok'
        say([listening('tcp', '0A'), listening('udp', '07'), listening('tcp6', '0A'),
             open('/proc/sys/net/ipv4/ip_unprivileged_port_start').read().strip(),
             open('/proc/sys/net/ipv4/tcp_congestion_control').read().strip(),
             attempt(bind, 999), attempt(bind, 1024), os.readlink('/proc/self/ns/net')])
    '''

    def sockets(self, *ports):
        named = ['00000000:%04X' % p for p in sorted((22, 80, 443) + ports)]
        return [named + ['0100007F:0035', '0100007F:0328'], ['0100007F:0035'], [], '1024', 'reno', 'PermissionError 13', 'ok']

    def test_1_sockets(self):
        """The first command finds all of them, in a namespace of its own."""
        for ports in ((), (25, 853)):
            said = self.python(self.SOCKETS, args=[w for p in ports for w in ('--allow-port', str(p))])
            self.assertEqual(said[:-1], self.sockets(*ports))
            self.assertNotEqual(said[-1], os.readlink('/proc/self/ns/net'))

    @needs('unshare')
    def test_3_low_ports(self):
        """Also where the host lets everybody bind them."""
        command = 'echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start && exec "$@"'
        program = ['unshare', '-n' if IS_ROOT else '-rn', 'sh', '-c', command, 'sh']
        if subprocess.run([*program, 'true'], capture_output=True).returncode != 0:
            self.skipTest('no network namespace to open the ports in')
        done = subprocess.run([*program, self.program(), 'sandbox', '--allow-host', HOST, '--', *self.script(self.SOCKETS)],
                              env=self.environment(), cwd=self.work, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)[:-1], self.sockets())

    def test_8_two_cells(self):
        """Neither reaches the proxy, the names or the servers of the other."""
        self.web()
        self.name('b.test')
        first = self.cell(self.script('''
            s = socket.create_server(('127.0.0.1', 0))
            say([socket.gethostbyname('a.test'), s.getsockname()[1]])
            sys.stdin.readline()
        '''))
        address, port = first.line()
        said = self.python('''
            s = socket.socket()
            say([attempt(lambda: socket.create_connection((sys.argv[1], 80)).recv(1)),
                 attempt(socket.create_connection, ('127.0.0.1', int(sys.argv[2]))),
                 connect('a.test:80')[0].split()[1]])
        ''', address, str(port), allow=['b.test'])
        self.assertEqual(said, ['ConnectionResetError 104', 'ConnectionRefusedError 111', '403'])
        first.tell()
        self.assertEqual(first.wait().returncode, 0)

    def test_9_ports_are_free(self):
        """Servers of the command bind the usual ports, before and after traffic by name; those below 1024 are ours."""
        self.web()
        said = self.python('''
            def bind(family, address, port):
                with socket.socket(family) as s:
                    s.bind((address, port))
                    s.listen()
                return 'ok'
            def all_of():
                return [attempt(bind, f, a, p) for p in (3000, 8080, 8081, 3128, 9418)
                        for f, a in ((socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::'))]
            before = all_of()
            socket.create_connection(('a.test', 80)).close()
            say([before, all_of(), [attempt(bind, socket.AF_INET, '0.0.0.0', p) for p in (443, 80, 53, 808, 999)]])
        ''')
        self.assertEqual(said, [['ok'] * 10, ['ok'] * 10, ['PermissionError 13'] * 5])

    @needs('curl')
    def test_10_dev_server(self):
        """A server in the sandbox is reached by `localhost`, also with proxy variables."""
        with open(self.work + '/page', 'w') as f:
            f.write('dev server')
        door = 'http://127.0.0.1:808'
        done = self.run_inside('env', 'http_proxy=' + door, 'HTTP_PROXY=' + door, 'no_proxy=localhost,127.0.0.1,::1', 'sh',
                               '-c', '%s -m http.server 3000 >/dev/null 2>&1 & curl -sf --retry 40 --retry-delay 0 '
                               '--retry-connrefused --retry-max-time 30 http://localhost:3000/page; kill $!' % PYTHON)
        self.assertEqual(done.stdout, 'dev server')

    def test_name_is_looked_up_only_if_allowed(self):
        """48: a name that is not allowed gets an address, but no lookup: the resolver does not even start one."""
        self.name('hung.test', addresses='?')  # a lookup would never be answered
        said = self.python('''
            begin = time.monotonic()
            at = socket.gethostbyname('hung.test')
            say([at[:4], time.monotonic() - begin < 1.5, attempt(socket.gethostbyname, 'single')])
        ''')
        self.assertEqual(said[:2], ['127.', True])
        self.assertTrue(said[2].startswith('gaierror'), said)


class Programs(NameCase):
    """11 to 25: clients that know nothing of a proxy."""

    @needs('curl', 'openssl')
    def test_11_curl(self):
        cert = self.web()
        done = self.run_inside('curl', '-sS', '--cacert', cert, 'http://a.test/one', 'https://a.test/two')
        self.assertEqual(done.stdout, 'GET /one HTTP/1.1|a.test|0GET /two HTTP/1.1|a.test|0')
        done = self.run_inside('curl', '-sS', '--cacert', cert, 'http://b.test/', status=0)
        blocked = json.loads(done.stdout)
        self.assertEqual((blocked['status'], blocked['host'], blocked['reason'], blocked['port']),
                         ('blocked', 'b.test', 'not_allowed', 80))
        done = self.run_inside('curl', '-sS', '--cacert', cert, 'https://b.test/', status=35)
        self.assertIn('access denied', done.stderr)

    @needs('wget', 'openssl')
    def test_12_wget(self):
        cert = self.web()
        done = self.run_inside('wget', '-qO-', '--ca-certificate=' + cert, 'http://a.test/one', 'https://a.test/two')
        self.assertEqual(done.stdout, 'GET /one HTTP/1.1|a.test|0GET /two HTTP/1.1|a.test|0')
        done = self.run_inside('wget', '-S', '-O-', '-t1', 'http://b.test/', status=8)
        self.assertIn('403', done.stderr)

    @needs('node', 'openssl')
    def test_18_node(self):
        cert = self.web()
        self.name('b.test')
        self.env['NODE_EXTRA_CA_CERTS'] = cert
        code = '''
            const dns = require('dns'), https = require('https');
            const get = url => new Promise((yes, no) => https.get(url, r => {
                let t = ''; r.on('data', d => t += d).on('end', () => yes(t)); }).on('error', e => yes(/access denied/.test(e.message))));
            (async () => {
                const r = [await (await fetch('http://a.test/f')).text(), await (await fetch('https://a.test/f')).text(),
                           await get('https://a.test/g'), await get('https://b.test/')];
                const at = await dns.promises.lookup('a.test');
                const four = await dns.promises.resolve4('a.test');
                const six = await dns.promises.resolve6('a.test').catch(e => e.code);
                r.push(at.address === four[0], six);
                console.log(JSON.stringify(r));
            })();
        '''
        done = self.run_inside('node', '-e', code)
        self.assertEqual(json.loads(done.stdout), ['GET /f HTTP/1.1|a.test|0', 'GET /f HTTP/1.1|a.test|0',
                                                   'GET /g HTTP/1.1|a.test|0', True, True,
                                                   'ENODATA'])

    @needs('openssl')
    def test_19_python(self):
        cert = self.web()
        self.env['SSL_CERT_FILE'] = cert
        said = self.python('''
            import asyncio, urllib.request
            async def one():
                r, w = await asyncio.open_connection('a.test', 80)
                w.write(b'GET /async HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n')
                return (await r.read()).decode().splitlines()[0]
            say([urllib.request.urlopen(p + '://a.test/u').read().decode() for p in ('http', 'https')] + [asyncio.run(one())])
        ''')
        self.assertEqual(said, ['GET /u HTTP/1.1|a.test|0', 'GET /u HTTP/1.1|a.test|0', 'HTTP/1.1 200 OK'])

    @unittest.skipUnless(importlib.util.find_spec('requests'), 'not installed: requests of Python')
    @needs('openssl')
    def test_19_python_requests(self):
        self.env['REQUESTS_CA_BUNDLE'] = self.web()
        said = self.python('''
            import requests
            with requests.Session() as s:
                say([s.get(p + '://a.test/r', timeout=30).text for p in ('http', 'https')] +
                    [s.post('https://a.test/r', data=b'x' * 100000, timeout=30).text])
        ''')
        self.assertEqual(said, ['GET /r HTTP/1.1|a.test|0', 'GET /r HTTP/1.1|a.test|0', 'POST /r HTTP/1.1|a.test|100000'])

    @needs('openssl')
    def test_23_openssl(self):
        cert = self.web()
        done = self.run_inside('openssl', 's_client', '-brief', '-verify_return_error', '-CAfile', cert, '-servername',
                               'a.test', '-connect', 'a.test:443', input=b'Q\n')
        self.assertIn('Verification: OK', done.stderr)

    @needs('openssl')
    def test_24_websocket(self):
        secure, cert = self.tls(websocket, HOST)
        self.name(HOST, {80: self.serve(websocket), 443: secure})
        said = self.python('''
            def talk(s):
                s.sendall(b'GET /chat HTTP/1.1\\r\\nHost: a.test\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n'
                          b'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n')
                head = read_head(s)
                assert 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=' in head, head
                hello = s.recv(7, socket.MSG_WAITALL) if type(s) is socket.socket else s.recv(7)
                s.sendall(b'\\x81\\x84\\1\\2\\3\\4' + bytes(c ^ k for c, k in zip(b'ping', b'\\1\\2\\3\\4')))
                return [head.split()[1], hello[2:].decode(), s.recv(100)[2:].decode()]
            secure = ssl.create_default_context(cafile=sys.argv[1])
            say([talk(socket.create_connection(('a.test', 80))),
                 talk(secure.wrap_socket(socket.create_connection(('a.test', 443)), server_hostname='a.test'))])
        ''', cert)
        self.assertEqual(said, [['101', 'hello', 'ping']] * 2)


class Git(NameCase):
    def repository(self):
        """A bare repository with a commit, which takes pushes."""
        path = self.base + '/repos/r.git'
        tree = self.base + '/tree'
        git = ['git', '-c', 'user.name=t', '-c', 'user.email=t@a.test', '-c', 'init.defaultBranch=main']
        for words in (['init', '-q', '--bare', path], ['-C', path, 'config', 'http.receivepack', 'true'],
                      ['init', '-q', tree], ['-C', tree, 'commit', '-q', '--allow-empty', '-m', 'first'],
                      ['-C', tree, 'push', '-q', path, 'HEAD:main']):
            subprocess.run(git + words, check=True, capture_output=True, env={'PATH': os.environ['PATH'], 'HOME': self.home})
        return path

    CLONE = ('git clone -q "$0" clone && cd clone && git -c user.name=t -c user.email=t@a.test commit -q --allow-empty '
             '-m second && git push -q origin HEAD:main && git log --format=%s | tr "\\n" " "')

    def clone(self, url, **how):
        path = self.repository() if not os.path.isdir(self.base + '/repos') else self.base + '/repos/r.git'
        shutil.rmtree(self.work + '/clone', ignore_errors=True)
        done = self.run_inside('sh', '-c', self.CLONE, url, **how)
        self.assertEqual(done.stdout, 'second first ')
        log = subprocess.run(['git', '-C', path, 'log', '--format=%s', 'main'], capture_output=True, text=True, check=True)
        self.assertEqual(log.stdout.split(), ['second', 'first'])

    def backend(self, conn):
        """git http-backend as CGI, one request at a time."""
        rest = b''
        while True:
            text, rest = read_head(conn, rest)
            if text is None:
                return
            lines = text.split('\r\n')
            method, target, _ = lines[0].split()
            path, _, query = target.partition('?')
            fields = {k.lower(): v for k, v in (line.split(': ', 1) for line in lines[1:])}
            body = b''
            if fields.get('transfer-encoding') == 'chunked':
                while True:
                    while b'\r\n' not in rest:
                        rest += conn.recv(65536)
                    size, rest = rest.split(b'\r\n', 1)
                    while len(rest) < int(size, 16) + 2:
                        rest += conn.recv(65536)
                    body, rest = body + rest[:int(size, 16)], rest[int(size, 16) + 2:]
                    if int(size, 16) == 0:
                        break
            else:
                need = int(fields.get('content-length', 0))
                while len(rest) < need:
                    rest += conn.recv(65536)
                body, rest = rest[:need], rest[need:]
            env = {'PATH': os.environ['PATH'], 'GIT_PROJECT_ROOT': self.base + '/repos', 'GIT_HTTP_EXPORT_ALL': '1',
                   'REQUEST_METHOD': method, 'PATH_INFO': path, 'QUERY_STRING': query, 'CONTENT_LENGTH': str(len(body)),
                   'CONTENT_TYPE': fields.get('content-type', ''), 'HOME': self.home, 'REMOTE_USER': 't',
                   'HTTP_CONTENT_ENCODING': fields.get('content-encoding', ''),
                   'GIT_PROTOCOL': fields.get('git-protocol', '')}
            out = subprocess.run(['git', 'http-backend'], input=body, capture_output=True, env=env, check=True).stdout
            head, _, answer = out.partition(b'\r\n\r\n')
            status = b'200 OK'
            for line in head.split(b'\r\n'):
                if line.startswith(b'Status: '):
                    status = line[8:]
            conn.sendall(b'HTTP/1.1 %s\r\n%s\r\nContent-Length: %d\r\n\r\n%s' % (status, head, len(answer), answer))

    @needs('git', 'openssl')
    def test_13_https(self):
        server, cert = self.tls(self.backend, HOST)
        self.name(HOST, {443: server})
        self.env['GIT_SSL_CAINFO'] = cert
        self.clone('https://a.test/r.git')
        done = self.run_inside('git', 'ls-remote', 'https://b.test/r.git', status=128)
        self.assertRegex(done.stderr, '(?i)access (was )?denied')

    @needs('git', 'openssl')
    def test_36_with_variables(self):
        """Port 8443 has no listener: the repository is reached by the proxy of the variables only."""
        server, cert = self.tls(self.backend, HOST)
        self.name(HOST, {8443: server})
        self.env['GIT_SSL_CAINFO'] = cert
        self.run_inside('git', 'ls-remote', 'https://a.test:8443/r.git', status=128)
        self.WITHOUT = []
        self.clone('https://a.test:8443/r.git')

    def sshd(self):
        """A server of OpenSSH that runs as this user, with keys of its own."""
        place = self.base + '/ssh'
        os.mkdir(place, 0o700)
        for key in ('host', 'user'):
            subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', place + '/' + key], check=True)
        shutil.copy(place + '/user.pub', place + '/authorized')
        with socket.create_server(('127.0.0.1', 0)) as s:
            port = s.getsockname()[1]
        with open(place + '/config', 'w') as f:
            f.write('HostKey %s/host\nAuthorizedKeysFile %s/authorized\nPidFile none\nUsePAM no\nStrictModes no\n'
                    'ListenAddress 127.0.0.1:%d\nPermitRootLogin yes\nPasswordAuthentication no\n' % (place, place, port))
        argv = [SSHD, '-D', '-e', '-f', place + '/config']
        if IS_ROOT:  # as root it wants a directory and a user, which the package makes when it is installed
            shutil.copy('/etc/passwd', place + '/passwd')
            with open(place + '/passwd', 'a') as f:
                f.write('sshd:x:65534:65534::/run/sshd:/usr/sbin/nologin\n')
            setup = 'mount -t tmpfs none /run && mkdir /run/sshd && mount --bind "$0" /etc/passwd && exec "$@"'
            argv = ['unshare', '-m', 'sh', '-c', setup, place + '/passwd'] + argv
        log = open(place + '/log', 'wb')
        process = subprocess.Popen(argv, stderr=log, stdin=subprocess.DEVNULL)
        log.close()

        def stop():
            process.terminate()
            process.wait(wire.DEADLINE)
        self.addCleanup(stop)

        def is_up():
            if process.poll() is not None:
                with open(place + '/log') as f:
                    self.skipTest('sshd does not start here: ' + f.read().strip())
            try:
                socket.create_connection(('127.0.0.1', port)).close()
                return True
            except OSError:
                return False
        wire.wait_until(is_up, 'sshd')
        self.table += ['%s:%d=127.0.0.1:%d*' % (HOST, p, port) for p in (22, 443)] + ['%s=127.0.0.1*' % HOST]
        # ssh takes the home directory from passwd: the file of host keys is named.
        self.env['GIT_SSH_COMMAND'] = ('ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o '
                                       'UserKnownHostsFile=%s/known -o IdentityFile=%s/user' % (self.work, place))
        return pwd.getpwuid(os.getuid()).pw_name

    @unittest.skipUnless(SSHD and HAS_SHELL, NO_SSHD)
    @needs('git', 'ssh', 'ssh-keygen')
    def test_14_ssh(self):
        user = self.sshd()
        self.repository()
        self.clone('ssh://%s@a.test%s/repos/r.git' % (user, self.base))
        with open(self.work + '/known') as f:
            self.assertTrue(f.read().startswith('a.test '), 'the key is kept under the name')

    @unittest.skipUnless(SSHD and HAS_SHELL, NO_SSHD)
    @needs('ssh', 'ssh-keygen')
    def test_27_ssh_on_443(self):
        user = self.sshd()
        done = self.run_inside('sh', '-c', '$GIT_SSH_COMMAND -p 443 "$0"@a.test echo through', user)
        self.assertEqual(done.stdout, 'through\n')

    @unittest.skipUnless(HAS_USER, 'ssh needs a user with a name')
    @needs('ssh')
    def test_ssh_is_refused_in_words(self):
        done = self.run_inside('ssh', '-F', 'none', '-o', 'BatchMode=yes', '-o', 'UserKnownHostsFile=/dev/null', 'b.test',
                               'true', status=255)
        self.assertIn('Network access to "b.test" was blocked', done.stderr)

    @needs('git')
    def test_git_protocol_by_port(self):
        """A port that an entry names is reached by name; git's own port is above 1023, so 418 stands for it."""
        path = self.repository()

        def daemon(conn):
            subprocess.run(['git', 'daemon', '--inetd', '--export-all', '--enable=receive-pack', '--base-path=' +
                            os.path.dirname(path), os.path.dirname(path)], stdin=conn, stdout=conn, check=False,
                           env={'PATH': os.environ['PATH'], 'HOME': self.home}, stderr=subprocess.DEVNULL)
            conn.shutdown(socket.SHUT_RDWR)
        self.name(HOST, {418: self.serve(daemon)})
        self.clone('git://a.test:418/r.git', allow=['a.test:418'])
        done = self.run_inside('git', 'ls-remote', 'git://a.test:418/r.git', allow=['a.test:443'], status=128)
        self.assertIn('onnect', done.stderr)


class Streams(NameCase):
    def test_26_server_first(self):
        self.name(HOST, {443: self.serve(greeter), 22: self.serve(greeter)})
        said = self.python('''
            def talk(port):
                s = socket.create_connection(('a.test', port))
                hello = s.recv(100).decode()
                s.sendall(b'thanks')
                return [hello, read_all(s).decode()]
            say([talk(443), talk(22)])
        ''')
        self.assertEqual(said, [['220 welcome\r\n', 'you said thanks']] * 2)

    def test_28_half_close(self):
        """Either side may end its direction first; the other one goes on."""
        def client_first(conn):
            data = b''
            while more := conn.recv(65536):
                data += more
            conn.sendall(b'got %d' % len(data))

        def server_first(conn):
            conn.sendall(b'all of it')
            conn.shutdown(socket.SHUT_WR)
            data = b''
            while more := conn.recv(65536):
                data += more
            self.got = len(data)
        self.name(HOST, {22: self.serve(client_first), 443: self.serve(server_first)})
        said = self.python('''
            s = socket.create_connection(('a.test', 22))
            s.sendall(b'x' * 300000)
            s.shutdown(socket.SHUT_WR)
            t = socket.create_connection(('a.test', 443))
            t.sendall(b'y')
            all_of_it = read_all(t).decode()
            t.sendall(b'y' * 299999)
            t.close()
            say([read_all(s).decode(), all_of_it])
        ''')
        self.assertEqual(said, ['got 300000', 'all of it'])
        wire.wait_until(lambda: getattr(self, 'got', 0) == 300000, 'the rest at the server')

    def test_28_bulk(self):
        """Both directions at once; hashes of both ends are equal."""
        def serve(conn):
            digest, n = hashlib.sha256(), 0

            def send():
                block = bytes(range(256)) * 1024
                for _ in range(BULK // len(block)):
                    conn.sendall(block)
                conn.shutdown(socket.SHUT_WR)
            sender = threading.Thread(target=send, daemon=True)
            sender.start()
            while more := conn.recv(1 << 18):
                digest.update(more)
                n += len(more)
            sender.join()
            self.got = (n, digest.hexdigest())
        self.name(HOST, {22: self.serve(serve)})
        said = self.python('''
            size = int(sys.argv[1])
            s = socket.create_connection(('a.test', 22))
            sent, got, n = hashlib.sha256(), hashlib.sha256(), 0
            def send():
                block = os.urandom(1 << 18)
                for _ in range(size // len(block)):
                    s.sendall(block)
                    sent.update(block)
                s.shutdown(socket.SHUT_WR)
            t = threading.Thread(target=send)
            t.start()
            while more := s.recv(1 << 18):
                got.update(more)
                n += len(more)
            t.join()
            say([n, got.hexdigest(), sent.hexdigest()])
        ''', str(BULK))
        digest = hashlib.sha256()
        for _ in range(BULK // (1 << 18)):
            digest.update(bytes(range(256)) * 1024)
        self.assertEqual(said[:2], [BULK, digest.hexdigest()])
        wire.wait_until(lambda: hasattr(self, 'got'), 'the end at the server')
        self.assertEqual(self.got, (BULK, said[2]))

    def test_30_udp_is_refused_at_once(self):
        self.name(HOST)
        said = self.python('''
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.connect(('a.test', 443))
            begin = time.monotonic()
            s.send(b'x')
            say([attempt(s.recv, 1), time.monotonic() - begin < 2])
        ''')
        self.assertEqual(said, ['ConnectionRefusedError 111', True])

    def test_29_other_ports(self):
        """A port that is not among the `ports` has no listener. One that is leads to the host, and no server of the
        sandbox can take it; hosts on no list are refused there as elsewhere."""
        server = self.serve(echo)
        self.name(HOST, {5432: server})
        self.name('b.test', {5432: server})
        script = '''
            def bind(address):
                with socket.socket() as s:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                    s.bind((address, 5432))
                    s.listen()
                return 'ok'
            def talk(host):
                with socket.create_connection((host, 5432)) as s:
                    s.sendall(b'select')
                    return s.recv(6, socket.MSG_WAITALL).decode()
            say([attempt(talk, 'a.test'), attempt(talk, 'b.test'), attempt(talk, 'localhost'), attempt(bind, '0.0.0.0'),
                 attempt(bind, '127.0.0.1')])
        '''
        refused, reset, taken = 'ConnectionRefusedError 111', 'ConnectionResetError 104', 'OSError 98'
        self.assertEqual(self.python(script), [refused, refused, refused, 'ok', 'ok'])
        self.assertEqual(self.python(script, args=['--allow-port', '5432']), ['select', reset, reset, taken, taken])
        self.assertEqual(len(server.connections), 1)


if __name__ == '__main__':
    tap.main()
