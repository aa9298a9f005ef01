# SPDX-License-Identifier: Apache-2.0
"""A unix socket carries WebSocket or JSON lines; the first byte tells which."""

import os
import shutil
import socket
import stat
import subprocess
import unittest

import tap
from sandbox_policy import IS_ROOT
from server import PROGRAM, PYTHON, Case, ours_only
from wire import Channel, Lines, WebSocket, http, upgrade_headers


@ours_only
class Unix(Case):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.scratch(), 'socket')
        self.srv = self.server(listen='unix://' + self.path)

    def test_the_first_line_is_the_url(self):
        self.assertEqual(self.srv.url, 'unix://' + self.path)
        self.assertTrue(stat.S_ISSOCK(os.stat(self.path).st_mode))

    def test_the_socket_is_its_owners_alone(self):
        self.assertEqual(os.stat(self.path).st_mode & 0o077, 0)

    def test_lines(self):
        c = self.srv.lines().handshake()
        self.assertEqual(c.sh('echo hi').stdout, b'hi\n')
        c.malformed(b'garbage')
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_websocket(self):
        c = self.srv.client(WebSocket.connect(self.path)).handshake()
        self.assertEqual(c.sh('echo hi').stdout, b'hi\n')
        c.malformed(b'garbage')
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_http(self):
        self.assertEqual(http(self.path, 'GET', '/readyz').status, 200)
        self.assertEqual(http(self.path, 'GET', '/nowhere').status, 404)
        self.assertEqual(http(self.path, 'GET', '/', upgrade_headers(Origin='http://x')).status, 403)

    def test_lines_may_begin_with_white_space(self):
        c = self.srv.lines()
        c.channel.write(b'\n \n')
        self.assertEqual(c.handshake().fence(), {'status': 'ready'})

    def test_a_session_moves_between_both_kinds(self):
        c = self.srv.lines().handshake()
        c.start('p', ['sh', '-c', 'echo one; read x; echo two'], pipeStdin=True)
        c.wait_output('p', 'one\n')
        c.close()
        again = self.srv.client(WebSocket.connect(self.path))
        again.initialize(c.session_id)
        again.send({'method': 'initialized'})
        self.assertEqual(len(again.read('p')['chunks']), 1)
        self.assertEqual(again.write('p', b'go\n'), 'accepted')
        again.wait_output('p', 'two\n')
        again.wait_closed('p')

    def test_the_end_of_one_connection_does_not_end_the_server(self):
        for _ in range(20):
            self.srv.lines().handshake().close()
            Channel.connect(self.path).close()
        self.assertEqual(self.srv.lines().handshake().fence(), {'status': 'ready'})

    def test_many_at_once(self):
        clients = [self.srv.lines().handshake() for _ in range(10)]
        clients += [self.srv.client(WebSocket.connect(self.path)).handshake() for _ in range(10)]
        for c in clients:
            c.start('p', ['sh', '-c', 'echo $0', c.session_id])
        for c in clients:
            self.assertEqual(c.wait_closed('p').text.strip(), c.session_id)

    def test_a_fatal_line_ends_that_connection_only(self):
        other = self.srv.lines().handshake()
        c = self.srv.lines().handshake()
        c.send({'method': 'no/such'})
        c.wait_end()
        self.assertEqual(other.fence(), {'status': 'ready'})

    def test_the_socket_is_gone_after_the_end(self):
        self.srv.stop()
        self.assertFalse(os.path.exists(self.path))


@ours_only
class Paths(Case):
    def run_server(self, listen):
        run = subprocess.run([PROGRAM, 'serve', '--listen', listen], stdin=subprocess.DEVNULL, capture_output=True,
                             timeout=60)
        self.assertEqual(run.stdout, b'')
        return run.returncode, run.stderr.decode()

    def test_bad_paths_are_refused(self):
        for listen in ('unix://', 'unix:', 'unix:x', 'unix:///' + 'x' * 200, 'unix:///no/such/directory/socket'):
            code, text = self.run_server(listen)
            self.assertEqual(code, 1, listen)
            self.assertTrue(text)

    def test_a_file_in_the_way_is_not_touched(self):
        path = os.path.join(self.scratch(), 'file')
        with open(path, 'w') as f:
            f.write('precious')
        self.assertEqual(self.run_server('unix://' + path)[0], 1)
        with open(path) as f:
            self.assertEqual(f.read(), 'precious')

    def test_a_socket_in_use_is_not_taken(self):
        path = os.path.join(self.scratch(), 'socket')
        srv = self.server(listen='unix://' + path)
        self.assertEqual(self.run_server('unix://' + path)[0], 1)
        self.assertEqual(srv.client(Lines.connect(path)).handshake().fence(), {'status': 'ready'})

    def test_a_dead_socket_is_replaced(self):
        path = os.path.join(self.scratch(), 'socket')
        s = socket.socket(socket.AF_UNIX)
        s.bind(path)
        s.close()
        srv = self.server(listen='unix://' + path)
        self.assertEqual(srv.lines().handshake().fence(), {'status': 'ready'})


@ours_only
@unittest.skipUnless(IS_ROOT, 'another user is needed')
class Strangers(Case):
    """A client looks who listens before it says a word."""

    STRANGER = 61790

    def listen(self, uid):
        """A socket of this user, which everybody may open; and what came in there."""
        folder = self.scratch()
        os.chmod(folder, 0o777)
        path = os.path.join(folder, 'socket')
        code = ('import os, socket, sys\nos.setresuid(%d, %d, %d)\ns = socket.socket(socket.AF_UNIX)\ns.bind(%r)\n'
                'os.chmod(%r, 0o666)\ns.listen()\nprint("up", flush=True)\nc = s.accept()[0]\nprint(c.recv(100))' % (
                    uid, uid, uid, path, path))
        listener = subprocess.Popen([PYTHON, '-c', code], stdout=subprocess.PIPE)
        self.addCleanup(listener.stdout.close)
        self.addCleanup(listener.wait)
        self.addCleanup(listener.kill)
        self.assertEqual(listener.stdout.readline(), b'up\n')
        return 'unix://' + path, listener.stdout

    def ask(self, url, *words, uid=0):
        def lead():
            os.setresuid(uid, uid, uid)
        return subprocess.run([PROGRAM, *words, url] + (['--', 'true'] if words[0] == 'exec' else []), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=60, preexec_fn=lead, cwd='/', env={'PATH': '/usr/bin:/bin', 'HOME': '/'})

    def test_a_server_of_another_user_is_not_trusted(self):
        for words in (['exec', '--on'], ['ps', '--server']):
            url, heard = self.listen(self.STRANGER)
            run = self.ask(url, *words)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn('runs as uid %d' % self.STRANGER, run.stderr.decode())
            self.assertIn(heard.readline(), (b"b''\n", b''))

    def test_a_server_of_root_is(self):
        url, heard = self.listen(0)
        program = shutil.copy(PROGRAM, self.scratch())
        os.chmod(os.path.dirname(program), 0o755)
        popen = subprocess.Popen(
            [program, 'ps', '--server', url], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd='/',
            preexec_fn=lambda: os.setresuid(self.STRANGER, self.STRANGER, self.STRANGER), env={'PATH': '/usr/bin:/bin', 'HOME': '/'})
        self.addCleanup(popen.wait)
        self.addCleanup(popen.kill)
        self.assertIn(b'initialize', heard.readline())


if __name__ == '__main__':
    tap.main()
