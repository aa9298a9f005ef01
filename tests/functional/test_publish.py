# SPDX-License-Identifier: Apache-2.0
"""Published ports: servers inside a sandbox that are reached from outside, on loopback, through --publish."""

import errno
import hashlib
import os
import signal
import socket
import subprocess
import textwrap

import managed
import tap
import wire
from managed import helpers_of
from mcp_asking import Asking
from server import PASS_ON, PROGRAM, PYTHON, descendants

# Runs inside; answers each line that it receives with a word and the line. `ready` is its first output.
ECHO = textwrap.dedent('''
    import os, socket, sys, threading
    word, family, at = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((at, int(sys.argv[4])))
    s.listen(512)
    def serve(c):
        for line in c.makefile('rb'):
            c.sendall(word.encode() + b' ' + line)
        c.close()
    print('ready', flush=True)
    while True:
        threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
''')


def free_port():
    """Nothing listens there, inside or outside. Another program may take it: the caller sees that."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def connect(port):
    return socket.create_connection(('127.0.0.1', port), wire.DEADLINE)


def ask(port, text='hello', s=None):
    """The answer of ECHO; 'closed' without one."""
    try:
        with s or connect(port) as s:
            s.sendall(text.encode() + b'\n')
            return s.makefile().readline().rstrip('\n') or 'closed'
    except (ConnectionResetError, BrokenPipeError):
        return 'closed'


def is_refused(port):
    with socket.socket() as s:
        return s.connect_ex(('127.0.0.1', port)) == errno.ECONNREFUSED


class Published:
    """One running command with published ports."""

    def __init__(self, case, args, argv, verb='exec', program=PROGRAM):
        self.case = case
        self.popen = subprocess.Popen([program, verb, *args, '--', *argv], env=case.environment(), cwd=case.work,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        case.addCleanup(self.close)

    def ready(self):
        line = self.popen.stdout.readline()
        if line != b'ready\n':
            self.popen.kill()
            raise AssertionError((line, self.popen.stderr.read()))
        return self

    def proxies(self):
        return helpers_of(self.popen.pid, 'proxy')

    def end(self):
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(wire.DEADLINE)

    def close(self):
        left = descendants(self.popen.pid)
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(wire.DEADLINE)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        for f in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            f.close()
        wire.wait_until(lambda: not any(os.path.exists('/proc/%d' % p) for p in left), 'end of all its processes')


class PublishCase(managed.ManagedCase):
    def echo(self, word, at='127.0.0.1', port=5173):
        family = socket.AF_INET6 if ':' in at else socket.AF_INET
        return [PYTHON, '-c', ECHO, word, str(int(family)), at, str(port)]

    def start(self, word='in', args=('--sandbox', ':workspace'), host=None, at='127.0.0.1', port=5173, **how):
        """(port outside, the running echo server)."""
        host = host or free_port()
        return host, Published(self, [*args, '--publish', '%d:%d' % (host, port)], self.echo(word, at, port), **how).ready()

    def refusal(self, *args, verb='exec', argv=('/bin/true',), status=125, config=None):
        done = subprocess.run([PROGRAM, verb, *args, *(['--', *argv] if argv else [])], env=self.environment(), cwd=self.work,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=wire.DEADLINE)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr

    def configure(self, text):
        os.makedirs(self.home + '/.sallyport', exist_ok=True)
        path = self.home + '/.sallyport/sallyport.conf'
        with open(path, 'w') as f:
            f.write(text)
        os.chmod(path, 0o600)


class Reach(PublishCase):
    def test_a_web_server_in_a_sandbox_until_its_command_ends(self):
        with open(self.work + '/page', 'w') as f:
            f.write('a page')
        host = free_port()
        code = ("import http.server, sys\ns = http.server.ThreadingHTTPServer(('127.0.0.1', 8000), "
                "http.server.SimpleHTTPRequestHandler)\nprint('ready', flush=True)\ns.serve_forever()")
        one = Published(self, ['--sandbox', ':workspace', '--publish', '%d:8000' % host], [PYTHON, '-c', code]).ready()
        with connect(host) as s:
            s.sendall(b'GET /page HTTP/1.0\r\n\r\n')
            self.assertTrue(s.makefile('rb').read().endswith(b'\r\n\r\na page'))
        one.end()
        self.assertTrue(is_refused(host))

    def test_one_number_is_both(self):
        port = free_port()
        one = Published(self, ['--sandbox', ':workspace', '--publish', str(port)], self.echo('same', port=port)).ready()
        self.assertEqual(ask(port), 'same hello')
        one.end()
        self.assertTrue(is_refused(port))

    def test_each_kind_of_sandbox_and_command(self):
        for verb, args in (('exec', ['--sandbox', ':read-only']), ('sandbox', ['--no-tty', '--sandbox', ':workspace']),
                           ('exec', ['--sandbox', ':workspace', '--network', 'managed'])):
            with self.subTest(verb=verb, args=args):
                host, one = self.start(args=args, verb=verb)
                self.assertEqual(ask(host), 'in hello')
                one.end()

    def test_a_server_on_ipv6_alone(self):
        host, _ = self.start('six', at='::1')
        self.assertEqual(ask(host), 'six hello')

    def test_several_ports(self):
        first, second = free_port(), free_port()
        code = ECHO.replace("print('ready', flush=True)", "if os.fork() == 0:\n    s.close()\n    os.execv(sys.executable, "
                            "[sys.executable, '-c', sys.argv[5], 'two', '2', '127.0.0.1', '5002'])")
        argv = [PYTHON, '-c', code, 'one', '2', '127.0.0.1', '5001', ECHO]
        Published(self, ['--sandbox', ':workspace', '--publish', '%d:5001' % first, '--publish', '%d:5002' % second], argv).ready()
        self.assertEqual([ask(first), ask(second)], ['one hello', 'two hello'])

    def test_a_megabyte_each_way_and_half_closed(self):
        code = ('import socket, hashlib\ns = socket.create_server(("127.0.0.1", 5173))\nprint("ready", flush=True)\n'
                'while True:\n    c = s.accept()[0]\n    data = b"".join(iter(lambda: c.recv(65536), b""))\n'
                '    c.sendall(hashlib.sha256(data).digest() + data)\n    c.close()')
        host = free_port()
        Published(self, ['--sandbox', ':workspace', '--publish', '%d:5173' % host], [PYTHON, '-c', code]).ready()
        data = os.urandom(1 << 20)
        with connect(host) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            got = s.makefile('rb').read()
        self.assertEqual(got, hashlib.sha256(data).digest() + data)

    def test_200_connections_at_once(self):
        host, one = self.start()
        conns = [connect(host) for _ in range(200)]
        for i, s in enumerate(conns):
            s.sendall(b'%d\n' % i)
        self.assertEqual([s.makefile().readline() for s in conns], ['in %d\n' % i for i in range(200)])
        self.assertEqual(len(one.proxies()), 1)
        for s in conns:
            s.close()
        self.assertEqual(ask(host), 'in hello')

    def test_the_257th_waits_until_one_ends(self):
        host, _ = self.start()
        conns = [connect(host) for _ in range(256)]
        for s in conns:
            s.sendall(b'x\n')
            self.assertEqual(s.makefile().readline(), 'in x\n')
        with connect(host) as late:
            late.sendall(b'late\n')
            late.settimeout(0.2)
            with self.assertRaises(TimeoutError):
                late.recv(1)
            conns.pop().close()
            late.settimeout(wire.DEADLINE)
            self.assertEqual(late.makefile().readline(), 'in late\n')
        for s in conns:
            s.close()


class Nothing(PublishCase):
    def test_nothing_listens_inside(self):
        # The host has a listener with the number of the port inside: it must not be reached.
        with socket.create_server(('127.0.0.1', 0)) as outside:
            port, host = outside.getsockname()[1], free_port()
            one = Published(self, ['--sandbox', ':workspace', '--publish', '%d:%d' % (host, port)],
                            ['sh', '-c', 'echo ready; exec cat']).ready()
            self.assertEqual(ask(host), 'closed')
            outside.setblocking(False)
            with self.assertRaises(BlockingIOError):
                outside.accept()
            self.assertEqual(one.proxies(), [])

    def test_a_full_backlog_inside_stops_no_other_port(self):
        first, second = free_port(), free_port()
        code = ('import socket\ns = socket.socket()\ns.bind(("127.0.0.1", 5001))\ns.listen(0)\nfull = []\n'
                'for i in range(4):\n    c = socket.socket()\n    c.setblocking(False)\n'
                '    c.connect_ex(("127.0.0.1", 5001))\n    full.append(c)\n') + ECHO
        Published(self, ['--sandbox', ':workspace', '--publish', '%d:5001' % first, '--publish', '%d:5002' % second],
                  [PYTHON, '-c', code, 'in', '2', '127.0.0.1', '5002']).ready()
        try:
            stuck = connect(first)
        except ConnectionResetError:  # the system inside has refused it at once
            self.assertEqual(ask(second), 'in hello')
            return
        with stuck:
            self.assertEqual(ask(second), 'in hello')
            self.assertEqual(ask(first, s=stuck), 'closed')

    def test_the_proxy_is_killed(self):
        host, one = self.start()
        with connect(host) as s:
            s.sendall(b'x\n')
            self.assertEqual(s.makefile().readline(), 'in x\n')
            killed = one.proxies()
            self.assertEqual(len(killed), 1)
            os.kill(killed[0], signal.SIGKILL)
            self.assertEqual(ask(host, s=s), 'closed')
        # The kernel closes the connections of a dying process before its socket to the front.
        wire.wait_until(lambda: not os.path.exists('/proc/%d' % killed[0]), 'the end of the proxy')
        self.assertEqual(ask(host), 'in hello')

    def test_a_proxy_that_keeps_ending_is_not_started_for_ever(self):
        host, one = self.start()
        for _ in range(5):
            self.assertEqual(ask(host), 'in hello')
            pid = one.proxies()[0]
            os.kill(pid, signal.SIGKILL)
            # A dying process loses its arguments before its sockets: only once it is reaped has the front seen its end.
            wire.wait_until(lambda: not os.path.exists('/proc/%d' % pid), 'the end of the proxy')
        self.assertEqual(ask(host), 'closed')
        self.assertEqual(one.proxies(), [])


class Refused(PublishCase):
    def test_a_port_that_is_taken(self):
        with socket.create_server(('127.0.0.1', 0)) as s:
            port = s.getsockname()[1]
            text = self.refusal('--sandbox', ':workspace', '--publish', str(port))
            self.assertEqual(text, 'sallyport: --publish %d: port %d of 127.0.0.1 is taken: end the program that listens '
                                   'there, or publish at another port, as HOST:%d\n' % (port, port, port))
            self.configure('publish = ["%d"]\n' % port)
            self.assertIn('port %d of 127.0.0.1 is taken' % port, self.refusal('--sandbox', ':workspace', status=0))

    def test_words(self):
        for args, said in (
                (['x'], '`x` is neither a port nor HOST:PORT'), (['0'], '`0` is neither'), (['1:2:3'], '`1:2:3` is neither'),
                (['70000:1'], 'is neither'), ([':1'], 'is neither'), (['9:'], 'is neither'),
                (['9000:1', '9000:2'], 'port 9000 is given twice')):
            words = [w for a in args for w in ('--publish', a)]
            self.assertIn(said, self.refusal('--sandbox', ':workspace', *words))
        words = [w for i in range(17) for w in ('--publish', str(9000 + i))]
        self.assertIn('--publish', self.refusal('--sandbox', ':workspace', *words))

    def test_with_the_host_s_network_nothing_needs_publishing(self):
        for args in (['--sandbox', ':danger-full-access'], ['--sandbox', ':workspace', '--network', 'enabled'], []):
            self.assertIn('--publish: the command has the host\'s network and listens there itself',
                          self.refusal(*args, '--publish', str(free_port())))
        self.assertIn('only ports of our own sandboxes', self.refusal('--on', 'ws://127.0.0.1:1', '--publish', '1'))
        self.assertIn('or give --network, with which', self.refusal('--detach', '--publish', '1'))
        port = free_port()
        self.configure('publish = ["%d"]\n' % port)
        with socket.create_server(('127.0.0.1', port)):  # it is not listened there
            self.assertEqual(self.refusal(status=0), '')

    def test_the_configuration(self):
        port = free_port()
        self.configure('publish = ["%d:5173"]\n' % port)
        Published(self, ['--sandbox', ':workspace'], self.echo('set')).ready()
        self.assertEqual(ask(port), 'set hello')
        self.configure('publish = [5173]\n')
        self.assertIn('`publish`', self.refusal('--sandbox', ':workspace'))


class Walls(PublishCase):
    def test_a_managed_cell_does_not_reach_published_ports(self):
        mine = free_port()
        self.name('a.test', {80: type('At', (), {'port': mine})})
        said = self.python('''
            port = int(sys.argv[1])
            say([connect('127.0.0.1:%d' % port)[0].split()[1], ask('GET http://127.0.0.1:%d/ HTTP/1.1\\r\\nHost: 127.0.0.1:%d\\r\\n\\r\\n' % (port, port))[0].split()[1],
                 attempt(socket.create_connection, ('127.0.0.1', port)).split()[0]])
        ''', str(mine), allow=('a.test', '127.0.0.1'), args=('--allow-local', '--publish', '%d:5173' % mine))
        self.assertEqual(said, ['403', '403', 'ConnectionRefusedError'])

    def test_a_restricted_cell_does_not_either(self):
        host, _ = self.start()
        code = 'import socket, sys\nprint(socket.socket().connect_ex(("127.0.0.1", int(sys.argv[1]))))'
        done = subprocess.run([PROGRAM, 'exec', '--sandbox', ':workspace', '--', PYTHON, '-c', code, str(host)],
                              env=self.environment(), cwd=self.work, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=wire.DEADLINE)
        self.assertEqual(done.stdout, '%d\n' % errno.ECONNREFUSED, done.stderr)

    def test_commands_have_nothing_to_ask_pid_1_with(self):
        """No descriptor of pid 1 or the proxy is in reach, and pid 1 connects to nothing but its loopback."""
        host = free_port()
        code = ECHO.replace("print('ready', flush=True)", textwrap.dedent('''
            def attempt(fn):
                try:
                    return 'did it: %r' % (fn(),)
                except OSError as e:
                    return type(e).__name__
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            def call(*args):
                if libc.syscall(*args) < 0:
                    raise OSError(ctypes.get_errno(), 'refused')
            sockets = [os.readlink('/proc/self/fd/%s' % n) for n in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/%s' % n)]
            print(attempt(lambda: os.readlink('/proc/1/fd/3')), attempt(lambda: call(438, os.pidfd_open(1), 0, 0)),
                  attempt(lambda: call(101, 16, 1, 0, 0)), sum(s.startswith('socket:') for s in sockets), flush=True)
            print('ready', flush=True)'''))
        one = Published(self, ['--sandbox', ':workspace', '--publish', '%d:5173' % host],
                        [PYTHON, '-c', code, 'in', '2', '127.0.0.1', '5173'])
        said = one.popen.stdout.readline().decode().split()
        one.ready()
        # Its own listener is the only socket.
        self.assertEqual(said, ['PermissionError', 'PermissionError', 'PermissionError', '1'])
        self.assertEqual(ask(host), 'in hello')


class Mcp(Asking):
    def test_the_sandboxes_of_the_commands(self):
        if managed.probe():
            self.skipTest(managed.probe())
        port = free_port()
        host = self.mcp('--sandbox', ':workspace', '--publish', '%d:5173' % port, '--set', 'features.exec_permission_approvals=true')
        words = host.modern('server/discover')['result']['instructions']
        self.assertIn('127.0.0.1:%d leads to port 5173' % port, words)
        self.assertEqual(ask(port), 'closed')
        r = host.exec(PYTHON, '-c', ECHO, 'tool', '2', '127.0.0.1', '5173', until={'pattern': 'ready'})
        self.assertEqual(r['output'], 'ready\n', r)
        self.assertEqual(ask(port), 'tool hello')
        # Another permission means another sandbox: nothing listens there, the older one is asked next.
        cells = len(helpers_of(host.process.pid, 'cell'))
        arguments = {'argv': ['sleep', '60'], 'sandbox_permissions': 'with_additional_permissions', 'yield_time_ms': 250,
                     'justification': 'May I?', 'additional_permissions': {'file_system': {'write': [self.beside]}}}
        r = self.allow(host, arguments)
        self.assertIn('session_id', r.structured, r)
        self.assertEqual(len(helpers_of(host.process.pid, 'cell')), cells + 1)
        self.assertEqual(ask(port), 'tool hello')
        for tool in host.modern('tools/list')['result']['tools']:
            self.assertNotIn('publish', str(tool).lower())
        host.close()
        self.end(host.process)
        self.assertTrue(is_refused(port))


if __name__ == '__main__':
    tap.main()
