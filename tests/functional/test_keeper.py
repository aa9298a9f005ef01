# SPDX-License-Identifier: Apache-2.0
"""`serve --keeper`: the front dies, the server does not."""

import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import time
import unittest

import tap
from server import PROGRAM, SANITIZED, Case, fd_names
from wire import RpcError, upgrade_headers, wait_until

SANITIZERS = {k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}

ADOPTING, FLIGHT, PROC_RECORD = 88, 608, 2  # places in struct sp_ledger_header; SP_LEDGER_PROC


def peer_pid(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        return struct.unpack('3i', s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


class Keeper(Case):
    def setUp(self):
        super().setUp()
        self.runtime = os.path.realpath(self.scratch())
        os.chmod(self.runtime, 0o700)

    def kept(self, *args, **how):
        how.setdefault('env', {})['XDG_RUNTIME_DIR'] = self.runtime
        return self.server('--keeper', *args, **how)

    def program(self, *args):
        return subprocess.run([PROGRAM, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                              env={'PATH': '/usr/bin:/bin', 'HOME': self.scratch(), 'XDG_RUNTIME_DIR': self.runtime, **SANITIZERS})

    def status(self, srv, token):
        return srv.http('GET', '/', headers={**upgrade_headers(), 'Authorization': 'Bearer ' + token}, anonymous=True).status

    def says(self, srv, text='here'):
        c = srv.session()
        self.echo(c, text)
        return c

    def echo(self, c, text):
        def is_started():  # the cells of the last front may not have answered yet
            try:
                return c.start('echo', ['/bin/echo', text])
            except RpcError as e:
                if 'just taken' not in str(e):
                    raise
        wait_until(is_started, 'the start of a command')
        self.assertEqual(c.wait_closed('echo').stdout, text.encode() + b'\n')

    # -- the next front

    def test_a_killed_front_is_replaced(self):
        srv = self.kept()
        c = self.says(srv)
        for _ in range(2):
            old = srv.front
            srv.kill_front()
            c.wait_end()
            self.assertEqual(srv.http('GET', '/readyz').status, 200)  # waits in the backlog, is not refused
            self.assertNotEqual(srv.front, old)
            c = self.says(srv, 'again')

    def test_the_token_stays(self):
        srv = self.kept()
        srv.kill_front()
        self.says(srv)
        self.assertEqual(self.status(srv, '0' * 64), 401)

    def test_a_token_file_may_go(self):
        path = os.path.join(self.scratch(), 'token')
        with open(path, 'w', opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write('a secret of some length\n')
        srv = self.kept('--token-file', path)
        os.unlink(path)
        srv.kill_front()
        self.assertEqual(self.status(srv, 'a secret of some length'), 101)
        self.assertEqual(self.status(srv, 'another'), 401)

    def test_a_broken_configuration_does_not_count(self):
        home = self.scratch()
        path = os.path.join(home, '.sallyport', 'sallyport.conf')
        os.mkdir(os.path.dirname(path))
        for text in (None, 'busy_poll = "off"\n'):
            with self.subTest(text=text):
                if text:
                    with open(path, 'w') as f:
                        f.write(text)
                srv = self.kept(home=home)
                with open(path, 'w') as f:
                    f.write('no configuration')
                for _ in range(2):
                    srv.kill_front()
                    self.says(srv)
                self.assertIn('the configuration that this server started with counts', srv.stderr())
                srv.stop()
                os.unlink(path)

    def test_a_unix_socket_stays(self):
        path = os.path.join(self.scratch(), 'socket')
        srv = self.kept(listen='unix://' + path)
        before = os.stat(path).st_ino
        srv.kill_front()
        c = srv.lines().handshake()
        self.echo(c, 'here')
        self.assertEqual(os.stat(path).st_ino, before)
        # The end in order, which `stop` judges, removes it.

    def test_the_local_socket_is_the_keepers(self):
        srv = self.kept()
        path = os.path.join(self.runtime, 'sallyport', '%d.sock' % srv.pid)
        for _ in range(2):
            wait_until(lambda: peer_pid(path) == srv.pid, 'the keeper to have the socket')
            listed = self.program('ps')
            self.assertEqual(listed.returncode, 0, listed)
            old = srv.front
            srv.kill_front()
            wait_until(lambda: srv.front not in (None, old), 'the next front')
        srv.stop()
        self.assertFalse(os.path.exists(path))

    def test_the_journal_stays(self):
        srv = self.kept()
        journals = lambda: [n for n in fd_names(srv.pid) if '/placeholders.' in n]
        before = journals()
        self.assertEqual(len(before), 1)
        for _ in range(2):
            self.says(srv)
            srv.kill_front()
        self.says(srv)
        self.assertEqual(journals(), before)
        self.assertEqual([n for n in os.listdir(os.path.dirname(before[0])) if n.startswith('placeholders.%d' % srv.front)], [])
        srv.stop()
        self.assertFalse(os.path.exists(before[0]))

    @unittest.skipIf(SANITIZED, 'shadow memory')
    def test_little_address_space_is_enough(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
        srv = self.kept('--output-memory', '64M', before_exec=limit)
        self.says(srv)
        srv.kill_front()
        self.says(srv)

    def test_nothing_piles_up(self):
        srv = self.kept()
        self.says(srv)
        count = len(fd_names(srv.pid))
        for _ in range(4):
            srv.kill_front()
            self.says(srv)
        self.assertEqual(len(fd_names(srv.pid)), count)

    @unittest.skipIf(SANITIZED, 'shadow memory')
    def test_the_keeper_is_small(self):
        srv = self.kept()
        for _ in range(2):
            self.says(srv)
            srv.kill_front()
        self.says(srv)
        with open('/proc/%d/smaps_rollup' % srv.pid) as f:  # private pages of a program that was just linked may be dirty
            sizes = dict(line.split()[:2] for line in f if line.startswith('Anon'))
        self.assertLessEqual(int(sizes['Anonymous:']), 300, sizes)

    # -- crashes

    def ledger(self, srv):
        """The header of the server's ledger (core/ledger.h), and its index."""
        for fd in os.listdir('/proc/%d/fd' % srv.pid):
            if 'sallyport-ledger' in os.readlink('/proc/%d/fd/%s' % (srv.pid, fd)):
                with open('/proc/%d/fd/%s' % (srv.pid, fd), 'r+b') as f:
                    return mmap.mmap(f.fileno(), 8192 + 8 * (1 << 19))
        raise AssertionError('no ledger')

    def test_a_poisoned_record_costs_one_process(self):
        srv = self.kept()
        c = srv.session()
        for name in ('a', 'b'):
            c.start(name, ['/bin/cat'], pipeStdin=True)
        with self.ledger(srv) as m:
            words = [w for w in struct.unpack('<%dQ' % (1 << 19), m[8192:]) if w >> 43 & 31 == PROC_RECORD]
            self.assertEqual(len(words), 2)
            m[ADOPTING:ADOPTING + 8] = struct.pack('<Q', words[0])
            srv.kill_front(signal.SIGABRT)
        again = srv.session(c.session_id)
        left = [p['processId'] for p in again.request('process/list')['processes']]
        self.assertEqual(len(left), 1)
        self.assertEqual(again.write(left[0], b'here\n'), 'accepted')
        again.wait_output(left[0], 'here')

    def test_a_request_that_crashes_is_held_back(self):
        srv = self.kept()
        bad, good = srv.session(), srv.session()
        bad.fence()  # the front has nothing left to do: it would end the request that is made up here
        good.fence()
        for how in [signal.SIGKILL] * 4 + [signal.SIGABRT] * 3:
            with self.ledger(srv) as m:
                m[FLIGHT:FLIGHT + 16] = struct.pack('<QQ', 1, 1)  # a message of the first session
                srv.kill_front(how)
            if how == signal.SIGABRT:
                wait_until(lambda: srv.http('GET', '/readyz').status == 200, 'the next front')
            else:
                bad = srv.session(bad.session_id)
                bad.fence()
        refused = srv.connect()
        error = refused.error('initialize', {'clientName': 'test', 'resumeSessionId': bad.session_id})
        self.assertError(error, -32603)
        self.assertIn('sallyport_sessions_held_back 1\n', srv.http('GET', '/metrics').body.decode())
        self.assertIn('sallyport_front_generation 8\n', srv.http('GET', '/metrics').body.decode())
        self.assertRegex(error['message'], 'this session ended the server 3 times; it is held back for [56][0-9] s')
        self.echo(srv.session(good.session_id), 'fine')

    # -- ends

    def test_signals_end_both(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number=number):
                srv = self.kept()
                c = self.says(srv)
                srv.remember()
                srv.popen.send_signal(number)
                c.wait_end()
                self.assertEqual(c.transport.close_frame[:2], b'\x03\xe9')
                srv.stop(how=None)

    def test_sighup_is_ignored_as_before(self):
        srv = self.kept(before_exec=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        srv.popen.send_signal(signal.SIGHUP)
        os.kill(srv.front, signal.SIGHUP)
        self.says(srv)

    def test_it_ends_between_two_fronts(self):
        srv = self.kept()
        for _ in range(6):  # the later ones come after a delay
            wait_until(lambda: srv.http('GET', '/readyz').status == 200, 'a front')
            srv.kill_front()
        srv.stop()

    def test_it_ends_with_a_front_that_is_just_killed(self):
        for gap in (0, 0.001, 0.003):
            with self.subTest(gap=gap):
                srv = self.kept()
                c = srv.session()
                c.start('long', ['/bin/sleep', '600'])
                srv.remember()
                os.kill(srv.front, signal.SIGKILL)
                time.sleep(gap)
                srv.stop()

    def test_idle_servers_end(self):
        srv = self.kept('--idle-exit', '0.2')
        srv.stop(how=None)

    def test_the_keepers_death_ends_all(self):
        srv = self.kept()
        c = srv.session()
        c.start('long', ['/bin/sleep', '600'])
        srv.remember()
        srv.stop(signal.SIGKILL, status=-signal.SIGKILL)

    # -- what it is not

    def test_a_first_front_that_fails_says_why(self):
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            s.listen()
            for args in (['--listen', 'ws://127.0.0.1:%d' % s.getsockname()[1]], ['--listen', 'ws://nowhere'],
                         ['--max-connections', 'x'], ['--token-file', '/nowhere'], ['--no-auth', '--token-file', 'x'], ['extra']):
                with self.subTest(args=args):
                    alone, kept = self.program('serve', *args), self.program('serve', '--keeper', *args)
                    self.assertEqual((alone.returncode, alone.stdout, alone.stderr), (kept.returncode, kept.stdout, kept.stderr))
                    self.assertNotEqual(kept.returncode, 0)

    def test_stdio_and_no_keeper_have_none(self):
        for args, listen in ((['--no-keeper'], 'ws://127.0.0.1:0'), ([], 'stdio')):
            with self.subTest(args=args, listen=listen):
                srv = self.kept(*args, listen=listen)
                if listen == 'stdio':
                    srv.lines().handshake()
                self.assertIsNone(srv.front)
                srv.stop()

    def test_a_front_by_hand_is_refused(self):
        run = self.program('front', '--listen', 'ws://127.0.0.1:0')
        self.assertEqual(run.returncode, 2)
        self.assertIn(b'internal', run.stderr)


if __name__ == '__main__':
    tap.main()
