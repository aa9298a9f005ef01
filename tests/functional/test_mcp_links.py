# SPDX-License-Identifier: Apache-2.0
"""What becomes of a process when whoever started it goes away, and who may come back for it."""

import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest

import mcp
import server
import tap
import wire
from chaos import Proxy
from mcp_wire import call, call_modern
from wire import wait_until

PYTHON = server.PYTHON
TOKENS = ('the-first-token-of-this-test', 'the-second-token-of-this-test')
LINES = 400
COUNT = 'import time\nfor n in range(%d): print("line", n, flush=True); time.sleep(0.002)\ntime.sleep(%d)'
EXPECTED = ''.join('line %d\n' % n for n in range(LINES))
OPEN = ('--set', 'permissions.open={extends=":workspace", network={enabled=true}}', '--sandbox', 'open')
CONNECT = '''
import socket, sys
try:
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n')
    s.settimeout(20)
    print('got', s.recv(100))
except OSError as e:
    print('refused', e)
'''


class Link(mcp.Case):
    def socket(self, name='s'):
        return os.path.join(self.base, name)

    def unix(self, path):
        host = mcp.connect_unix(path)
        self.addCleanup(host.close)
        return host

    def begin(self, host, stays=0):
        """A process that has said something, and the place up to which that was answered."""
        r = host.exec(PYTHON, '-c', COUNT % (LINES, stays), until={'pattern': 'line 3\n'}, yield_time_ms=30000)
        self.assertIn('session_id', r.structured, r)
        self.assertEqual(r['output'], EXPECTED[:r['next_byte']])
        return r['session_id'], r['next_byte']

    def check(self, host, session, cursor):
        """Every byte from there, by read_output and by polls; and nothing twice."""
        polled = ''
        while True:
            r = host.type(session, until={'exit': True}, yield_time_ms=5000)
            self.assertFalse(r.failed, r)
            self.assertEqual(r['from_byte'], cursor + len(polled))
            polled += r['output']
            if 'exit_code' in r.structured:
                break
        self.assertEqual(polled, EXPECTED[cursor:])
        self.check_read(host, session, cursor)

    def check_read(self, host, session, cursor):
        read, at = '', cursor
        while True:
            r = host.read(session, from_byte=at, limit=997)
            self.assertEqual(r['from_byte'], at)
            read, at = read + r['output'], r['next_byte']
            if r['state'] == 'exited' and at == r['end_byte']:
                break
            time.sleep(0.01)
        self.assertEqual(read, EXPECTED[cursor:])


class Vanishing(Link):
    def test_on_a_unix_socket(self):
        path = self.socket()
        self.listening('unix://' + path)
        first = self.unix(path)
        session, cursor = self.begin(first)
        first.call_later('write_stdin', {'session_id': session, 'chars': '', 'yield_time_ms': 30000})
        first.close()
        self.check(self.unix(path), session, cursor)

    def test_while_it_starts(self):
        path = self.socket()
        self.listening('unix://' + path)
        for n in range(5):
            first = self.unix(path)
            first.call_later('exec_command', {'argv': ['sleep', '600'], 'key': 'k%d' % n, 'yield_time_ms': 30000})
            time.sleep(0.02 * n)
            first.close()
        second = self.unix(path)
        r = second.call('exec_command', {'argv': ['sleep', '600'], 'key': 'k4', 'yield_time_ms': 300})
        self.assertIn(r['session_id'], second.sessions())

    def test_through_a_relay(self):
        path = self.socket()
        self.listening('unix://' + path)

        def relay():
            p = subprocess.Popen([server.PROGRAM, 'mcp', '--connect', 'unix://' + path], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, env=self.environ())
            host = mcp.Lines(os.dup(p.stdout.fileno()), os.dup(p.stdin.fileno()))
            self.addCleanup(p.wait)
            self.addCleanup(host.close)
            p.stdin.close()
            p.stdout.close()
            return p, host
        p, first = relay()
        session, cursor = self.begin(first)
        first.call_later('write_stdin', {'session_id': session, 'chars': '', 'yield_time_ms': 30000})
        first.pump(0.05)
        p.kill()
        p.wait()
        second = relay()[1]
        self.check(second, session, cursor)
        big = 'x' * (3 << 20)
        self.assertEqual(second.ask('ping', {'x': big})['result'], {})

    def test_on_http(self):
        host, other = self.http(tokens=TOKENS)
        session, cursor = self.begin(host)
        message = call_modern('c', 'write_stdin', session_id=session, chars='', yield_time_ms=30000)
        s = socket.create_connection(host.where.split(':'), wire.DEADLINE)
        body = json.dumps(message)
        s.sendall(('POST /mcp HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s' % (
            host.where, ''.join('%s: %s\r\n' % i for i in host.heads(message).items()), len(body), body)).encode())
        time.sleep(0.05)
        s.close()
        self.assertTrue(other.read(session).failed)
        self.check(mcp.Http(host.url, TOKENS[0]), session, cursor)

    def test_on_http_of_the_legacy_era(self):
        """A drop is no cancellation there: the call goes on unheard, and what it took is still to be read."""
        host = self.http()
        host.open()
        session, cursor = self.begin(host)
        message = call('c', 'write_stdin', session_id=session, chars='', yield_time_ms=5000)
        c, heads = socket.create_connection(host.where.split(':'), wire.DEADLINE), host.heads(message)
        body = json.dumps(message)
        c.sendall(('POST /mcp HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s' % (
            host.where, ''.join('%s: %s\r\n' % i for i in heads.items()), len(body), body)).encode())
        time.sleep(0.05)
        c.close()
        self.check_read(host, session, cursor)

    def test_on_plain_stdio_nothing_is_left(self):
        host = self.mcp()
        for argv in (['sleep', '600'], ['sh', '-c', 'trap "" TERM HUP INT; sleep 600 & sleep 600'],
                     ['setsid', 'sh', '-c', 'trap "" TERM; setsid sleep 600 & sleep 600']):
            self.assertFalse(host.exec(*argv, yield_time_ms=250).failed)
        host.call_later('exec_command', {'argv': ['sleep', '600'], 'yield_time_ms': 30000})
        self.assertGreater(len(server.marked(self.mark.encode())), 4)
        began = time.monotonic()
        host.close()
        self.assertEqual(host.process.wait(wire.DEADLINE), 0)
        wait_until(lambda: not server.marked(self.mark.encode()), 'all to end')
        self.assertLess(time.monotonic() - began, 15)

    def test_a_server_that_is_killed_leaves_nothing(self):
        p = subprocess.Popen([server.PROGRAM, 'mcp'], cwd=self.work, env=self.environ(), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
        host = mcp.Lines(p.stdout.fileno(), p.stdin.fileno())
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.stdin.close)
        host.exec('sh', '-c', 'trap "" TERM HUP; setsid sleep 600 & sleep 600', yield_time_ms=250)
        p.kill()
        p.wait()
        wait_until(lambda: not server.marked(self.mark.encode()), 'all to end')


class Detached(Link):
    SET = ('--set', 'detached_ttl_s=1')

    def live(self):
        return [p for p in server.marked(self.mark.encode()) if server.name_of(p).startswith('sleep')]

    def test_on_a_unix_socket(self):
        path = self.socket()
        self.listening('unix://' + path, args=self.SET)
        first = self.unix(path)
        session = first.exec('sleep', '600', yield_time_ms=250)['session_id']
        time.sleep(1.5)
        self.assertIn(session, first.sessions())  # somebody is there
        second = self.unix(path)
        second.ask('ping')
        first.close()
        time.sleep(1.5)
        self.assertIn(session, second.sessions())
        second.close()
        wait_until(lambda: not self.live(), 'its end')
        self.assertEqual(self.unix(path).sessions(), {})

    def test_back_in_time(self):
        path = self.socket()
        self.listening('unix://' + path, args=('--set', 'detached_ttl_s=20'))
        first = self.unix(path)
        session = first.exec('sleep', '600', yield_time_ms=250)['session_id']
        first.close()
        time.sleep(0.3)
        self.assertIn(session, self.unix(path).sessions())

    def test_on_http(self):
        host = self.http(*self.SET)
        session = host.exec('sleep', '600', yield_time_ms=250)['session_id']
        self.assertEqual(len(self.live()), 1)
        wait_until(lambda: not self.live(), 'its end')
        self.assertEqual(host.sessions(), {})
        self.assertTrue(host.read(session).failed)

    def test_a_legacy_session_that_nobody_uses_keeps_nothing(self):
        host = self.http(*self.SET)
        host.open()
        self.assertIn('session_id', host.exec('sleep', '600', yield_time_ms=250).structured)
        wait_until(lambda: not self.live(), 'its end')
        self.assertEqual(host.sessions(), {})  # and the client need not begin anew

    def test_zero_is_never(self):
        path = self.socket()
        self.listening('unix://' + path, args=('--set', 'detached_ttl_s=0'))
        first = self.unix(path)
        session = first.exec('sleep', '600', yield_time_ms=250)['session_id']
        first.close()
        time.sleep(1)
        self.assertIn(session, self.unix(path).sessions())


class Doors(Link):
    def test_the_socket_is_its_owners_alone(self):
        path = self.socket()
        self.listening('unix://' + path)
        self.assertTrue(stat.S_ISSOCK(os.stat(path).st_mode))
        self.assertEqual(os.stat(path).st_mode & 0o077, 0)

    @unittest.skipIf(os.geteuid() != 0, 'only root can be somebody else')
    def test_another_user_is_refused(self):
        os.chmod(self.base, 0o755)
        path = self.socket()
        self.listening('unix://' + path)
        os.chmod(path, 0o666)  # only the kernel's word is left
        self.assertEqual(self.ping_as(0, path), b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        self.assertEqual(self.ping_as(pwd.getpwnam('nobody').pw_uid, path), b'')
        self.assertEqual(self.unix(path).ask('ping')['result'], {})

    def ping_as(self, uid, path):
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setresuid(uid, uid, uid)
                s = socket.socket(socket.AF_UNIX)
                s.settimeout(wire.DEADLINE)
                s.connect(path)
                try:
                    s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
                    os.write(writes, s.recv(4096))
                except (BrokenPipeError, ConnectionResetError):
                    pass
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writes)
        with open(reads, 'rb') as f:
            got = f.read()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        return got

    def test_a_relay_to_nothing(self):
        for path, why in ((self.socket('none'), 'running?'), (self.base, 'connect'), ('/' + 'x' * 200, 'longer')):
            p = subprocess.run([server.PROGRAM, 'mcp', '--connect', 'unix://' + path], stdin=subprocess.DEVNULL,
                               capture_output=True, timeout=wire.DEADLINE, env=self.environ())
            self.assertEqual((p.returncode, p.stdout), (1, b''))
            self.assertIn(why, p.stderr.decode())

    def test_a_relay_whose_server_ends_says_so(self):
        path = self.socket()
        p, _ = self.listening('unix://' + path)
        relay = subprocess.Popen([server.PROGRAM, 'mcp', '--connect', 'unix://' + path], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environ())
        relay.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        relay.stdin.flush()
        self.assertEqual(relay.stdout.readline(), b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        p.send_signal(signal.SIGTERM)
        self.assertEqual(relay.wait(wire.DEADLINE), 1)
        self.assertIn(b'has ended', relay.stderr.read())
        for f in (relay.stdin, relay.stdout, relay.stderr):
            f.close()

    def test_no_web_over_the_socket(self):
        path = self.socket()
        self.listening('unix://' + path)
        for data in (b'GET / HTTP/1.1\r\nHost: x\r\n\r\n', b'POST /mcp HTTP/1.1\r\n\r\n'):
            s = socket.socket(socket.AF_UNIX)
            self.addCleanup(s.close)
            s.settimeout(wire.DEADLINE)
            s.connect(path)
            s.sendall(data)
            got = b''.join(iter(lambda: s.recv(4096), b''))
            self.assertNotIn(b' 200 ', got)
        self.assertEqual(self.unix(path).ask('ping')['result'], {})


class Confined(Link):
    """Whoever could ask us could have an unconfined command started."""

    def reach(self, host, path):
        r = host.exec(PYTHON, '-c', CONNECT, path)
        self.assertEqual(r['exit_code'], 0, r)
        return r['output']

    def test_the_socket(self):
        real = os.path.join(self.work, 'real')
        os.mkdir(real)
        os.symlink(real, os.path.join(self.work, 'link'))
        for path, paths in ((os.path.join(self.base, 's'), ()), (os.path.join(self.work, 's'), ()),
                            (os.path.join(self.work, 'link', 's'), (os.path.join(real, 's'),))):
            self.listening('unix://' + path, args=OPEN if paths else ())
            host = self.unix(path)
            self.assertEqual(host.ask('ping')['result'], {})
            for other in (path, *paths):
                self.assertRegex(self.reach(host, other), '^refused', (path, other))
            program = host.exec(server.PROGRAM, 'mcp', '--connect', 'unix://' + path)
            self.assertNotEqual(program['exit_code'], 0)
            r = host.run('rm -f %s; mv %s moved; ls %s' % (path, path, path), login=False)
            self.assertEqual(self.unix(path).ask('ping')['result'], {}, r)

    def test_the_token_file(self):
        real = os.path.join(self.work, 'tokens')
        far = tempfile.mkdtemp(prefix='sallyport-token-', dir='/var/tmp')  # no policy here may write it
        self.addCleanup(shutil.rmtree, far, True)
        link = os.path.join(far, 'link')
        with open(os.open(real, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
            f.write(TOKENS[0] + '\n')
        os.symlink(real, link)
        p, (url,) = self.listening('http://127.0.0.1:0/mcp', args=('--token-file', link))
        host = mcp.Http(url, TOKENS[0])
        self.addCleanup(host.close)
        for path in (real, link, 'tokens', '/proc/%d/root%s' % (p.pid, real), '/proc/%d/mem' % p.pid, '/proc/%d/environ' % p.pid):
            r = host.exec('cat', path)
            self.assertNotEqual(r['exit_code'], 0, (path, r))
            self.assertNotIn(TOKENS[0], r.text)
        r = host.run('ln tokens other; cp tokens other; mv tokens other; cat other; grep -r %s .' % TOKENS[0][:12],
                     login=False)
        self.assertNotIn(TOKENS[0], r['output'])
        host.run('echo x > tokens; rm -f tokens %s; ln -sf /dev/null %s' % (link, link), login=False)
        self.assertEqual(os.readlink(link), real)
        with open(link) as f:
            self.assertEqual(f.read(), TOKENS[0] + '\n')

    def test_a_token_file_whose_link_a_command_could_replace(self):
        """The next server would take its tokens from another file."""
        real = os.path.join(self.base, 'tokens')
        link = os.path.join(self.work, 'link')
        with open(os.open(real, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
            f.write(TOKENS[0] + '\n')
        os.symlink(real, link)
        _, (url,) = self.listening('http://127.0.0.1:0/mcp', args=('--token-file', link))
        host = mcp.Http(url, TOKENS[0])
        self.addCleanup(host.close)
        r = host.exec('true')
        self.assertTrue(r.failed)
        self.assertIn('could replace the symlink ' + link, r.text)

    def test_the_port(self):
        ask = 'import http.client, sys\nc = http.client.HTTPConnection(sys.argv[1], timeout=20)\nc.request("POST", "/mcp")\n' \
              'print(c.getresponse().status)'
        for args, output in (((), ''), (OPEN, '401\n')):
            host = self.http(*args)
            r = host.exec(PYTHON, '-c', ask, host.where)
            self.assertEqual(r['output'] if output else r['exit_code'], output or 1, r)

    def test_what_is_inherited(self):
        """No descriptor of ours is open in a command."""
        path = self.socket()
        self.listening('unix://' + path)
        r = self.unix(path).exec('ls', '-l', '/proc/self/fd')
        names = [line.split(' -> ')[1] for line in r['output'].splitlines() if ' -> ' in line]
        self.assertLessEqual(len(names), 4, names)
        self.assertFalse([n for n in names if n.startswith('socket:')], names)


class Listeners(Link):
    def test_several_at_once(self):
        tokens = os.path.join(self.base, 'tokens')
        with open(os.open(tokens, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
            f.write('\n'.join(TOKENS))
        paths = [self.socket('one'), self.socket('two')]
        p, urls = self.listening('unix://' + paths[0], 'http://127.0.0.1:0/a', 'unix://' + paths[1], 'http://localhost:0/b',
                                 args=('--token-file', tokens))
        self.assertEqual([u.split('//')[0] for u in urls], ['unix:', 'http:', 'unix:', 'http:'])
        one, two = map(self.unix, paths)
        a, b, other = mcp.Http(urls[1], TOKENS[0]), mcp.Http(urls[3], TOKENS[0]), mcp.Http(urls[3], TOKENS[1])
        of_user = one.exec('sleep', '600', yield_time_ms=250)['session_id']
        of_token = a.exec('sleep', '600', yield_time_ms=250)['session_id']
        self.assertEqual(list(two.sessions()), [of_user])
        self.assertEqual(list(b.sessions()), [of_token])
        self.assertEqual(other.sessions(), {})
        # The end of all of it.
        one.notify('x')
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(wire.DEADLINE), 0)
        self.assertEqual([os.path.exists(path) for path in paths], [False, False])
        wait_until(lambda: not server.marked(self.mark.encode()), 'all to end')
        self.assertEqual([f for _, _, files in os.walk(self.runtime) for f in files if f != 'lock'], [])
        self.assertTrue(os.path.exists(tokens))  # which is not ours

    def test_one_that_fails_takes_all_with_it(self):
        path = self.socket()
        p = subprocess.run([server.PROGRAM, 'mcp', '--listen', 'unix://' + path, '--listen', 'http://127.0.0.1:0/mcp', '--listen',
                            'unix:///no/such/directory/s'], cwd=self.work, env=self.environ(), stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=wire.DEADLINE)
        self.assertEqual(p.returncode, 1)
        self.assertIn('/no/such/directory', p.stderr.decode())
        self.assertFalse(os.path.exists(path))
        self.assertEqual([n for n in os.listdir(self.runtime) if n.endswith('.token')], [])

    def test_a_socket_in_use_is_not_taken(self):
        path = self.socket()
        self.listening('unix://' + path)
        p = subprocess.run([server.PROGRAM, 'mcp', '--listen', 'unix://' + path], cwd=self.work, env=self.environ(),
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=wire.DEADLINE)
        self.assertEqual((p.returncode, p.stdout), (1, b''))
        self.assertEqual(self.unix(path).ask('ping')['result'], {})

    def test_many_connections_and_one_that_is_hostile(self):
        path = self.socket()
        self.listening('unix://' + path)
        hosts = [self.unix(path) for _ in range(100)]
        for h in hosts[1:]:
            h.call_later('exec_command', {'argv': ['echo', 'hi'], 'key': 'same'})
        hosts[0].send_raw(b'\xff{[\x00\n' * 100)
        for h in hosts[1:]:
            self.assertEqual(h.result(1)['exit_code'], 0)
        self.assertEqual(len(self.unix(path).sessions()), 1)


class Remote(Link):
    def setUp(self):
        super().setUp()
        self.serve = server.Server(listen='unix://' + self.socket('serve'))
        self.addCleanup(self.end_serve)

    def end_serve(self):
        if self.serve.popen.poll() is None:
            self.serve.stop()
            return
        self.serve.kill()  # the test has ended it
        wait_until(lambda: not self.serve.survivors(), 'what it ran to end')

    def at_work(self, **more):
        return self.mcp('--on', self.serve.url, '--cwd', self.serve.work, **more)

    def test_states_conditions_and_output(self):
        host = self.at_work()
        r = host.run('echo hello; exit 3', login=False)
        self.assertEqual((r['exit_code'], r['output'], r['state']), (3, 'hello\n', 'exited'))
        r = host.exec('sh', '-c', 'printf "name? "; read name; echo "hello $name"', tty=True, until={'pattern': 'name\\? $'},
                      yield_time_ms=30000)
        session = r['session_id']
        wait_until(lambda: host.glance(session).get('state') == 'reading_terminal', 'reading_terminal', step=0.1)
        r = host.type(session, 'you\n', until={'exit': True}, yield_time_ms=30000)
        self.assertEqual((r['exit_code'], r['output']), (0, 'you\r\nhello you\r\n'))
        self.assertEqual(host.read(session, line=2)['output'], 'hello you\r\n')
        session, cursor = self.begin(host)
        self.check(host, session, cursor)
        r = host.exec('sleep', '600', yield_time_ms=250)
        wait_until(lambda: host.glance(r['session_id']).get('state') == 'sleeping', 'sleeping', step=0.1)
        self.assertEqual(host.kill(r['session_id'])['state'], 'exited')

    def test_until_a_port(self):
        host = self.at_work()
        program = 'import socket, time\ns = socket.create_server(("127.0.0.1", 0))\nprint(s.getsockname()[1], flush=True)\ntime.sleep(600)'
        free = host.exec(PYTHON, '-c', 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
        port = int(free['output'])
        r = host.exec(PYTHON, '-c', program.replace(', 0)', ', %d)' % port), until={'port': port}, yield_time_ms=30000)
        self.assertEqual(r.get('woken_by'), {'port': port}, r)

    def test_the_connection_is_cut(self):
        """Nobody who asks notices: it is resumed, and no byte is lost."""
        with Proxy(self.serve.address) as proxy:
            host = self.mcp('--on', proxy.url(), '--cwd', self.serve.work)
            session, cursor = self.begin(host)
            for _ in range(3):
                proxy.cut_now()
                time.sleep(0.1)
            self.check(host, session, cursor)
            self.assertEqual(host.exec('echo', 'hi')['output'], 'hi\n')

    def test_the_server_is_lost(self):
        """What ran there is gone and said to be; the next command runs on the next server."""
        host = self.at_work()
        session = host.exec('sleep', '600', yield_time_ms=250)['session_id']
        waiting = host.call_later('write_stdin', {'session_id': session, 'chars': '', 'yield_time_ms': 30000})
        host.pump(0.2)
        self.serve.popen.kill()
        self.serve.popen.wait()
        second = server.Server(listen=self.serve.url, cwd=self.serve.work)
        self.addCleanup(second.stop)
        r = host.result(waiting)
        self.assertTrue(r.failed, r)
        self.assertRegex(r.text, 'write_stdin failed: .*' + self.serve.url)
        self.assertEqual(host.sessions()[session]['state'], 'exited')
        self.assertEqual(host.exec('echo', 'hi')['output'], 'hi\n')
        self.assertEqual(host.ask('ping')['result'], {})

    def test_a_server_that_is_not_there(self):
        p = subprocess.run([server.PROGRAM, 'mcp', '--on', 'unix://' + self.socket('none')], cwd=self.work, env=self.environ(),
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=wire.DEADLINE)
        self.assertEqual((p.returncode, p.stdout), (1, b''))
        self.assertIn('cannot be reached', p.stderr.decode())


if __name__ == '__main__':
    tap.main()
