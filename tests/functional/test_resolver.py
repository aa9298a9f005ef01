# SPDX-License-Identifier: Apache-2.0
"""`sallyport resolver`, over the sockets that the front and the proxies use."""

import array
import os
import resource
import socket
import struct
import subprocess
import time
import unittest

import tap
import wire
from server import PASS_ON, PROGRAM, SANITIZED, ours_only

TEST_PROGRAM = os.path.join(os.path.dirname(PROGRAM), 'tests', 'sallyport-test-hosts')
FOUND, NONE, FAILED = range(3)
WORKING, WAITING, THREADS = 4, 32, 8
ASK = struct.Struct('=Q254sH')
ANSWER_HEAD = struct.Struct('=QBB6x')
ADDRESS = struct.Struct('=BBH16sI')
ANSWER_BYTES = ANSWER_HEAD.size + 16 * ADDRESS.size
TABLE = ('one.example=127.0.0.1:8443*,two.example=192.0.2.1+[2001:db8::1]:99*+::1,port.example:80=127.0.0.2,'
         'port.example=127.0.0.3,none.example=-,hung.example=?,turns.example=192.0.2.1*>10.0.0.1>-,port.turns.example:80=192.0.2.1>192.0.2.2')


class Proxy:
    """The proxy's end of a socket to the resolver."""

    def __init__(self, front):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(wire.DEADLINE)
        front.sendmsg([b'\0'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [theirs.fileno()]))])
        theirs.close()
        self.number = 0

    def ask(self, host, port=443):
        self.number += 1
        self.sock.send(ASK.pack(self.number, host.encode(), port))
        return self.number

    def answer(self):
        """(number, status, [(address, port, is public)])"""
        data = self.sock.recv(4096)
        if not data:
            return None
        assert len(data) == ANSWER_BYTES, len(data)
        number, status, count = ANSWER_HEAD.unpack_from(data)
        addresses = []
        for i in range(count):
            family, is_public, port, raw, zero = ADDRESS.unpack_from(data, ANSWER_HEAD.size + i * ADDRESS.size)
            assert zero == 0
            text = socket.inet_ntop(socket.AF_INET, raw[:4]) if family == 4 else socket.inet_ntop(socket.AF_INET6, raw)
            addresses.append((text, port, is_public))
        return number, status, addresses

    def look_up(self, host, port=443):
        number = self.ask(host, port)
        answered, status, addresses = self.answer()
        assert answered == number
        return status, addresses


@ours_only
class ResolverCase(unittest.TestCase):
    program, env = PROGRAM, {}

    def setUp(self):
        self.front, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {k: os.environ[k] for k in PASS_ON if k in os.environ}
        self.process = subprocess.Popen([self.program, 'resolver'], stdin=theirs, stderr=subprocess.PIPE,
                                        env={**env, **self.env}, preexec_fn=self.limit)
        theirs.close()
        self.addCleanup(self.stop)

    @staticmethod
    def limit():
        """The process is not dumpable: its descriptors cannot be counted, but bounded."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    def stop(self):
        self.front.close()
        try:
            _, err = self.process.communicate(timeout=wire.DEADLINE)
        finally:
            self.process.kill()
        self.assertEqual((self.process.returncode, err), (0, b''))

    def proxy(self):
        p = Proxy(self.front)
        self.addCleanup(p.sock.close)
        return p

    def status(self):
        with open('/proc/%d/status' % self.process.pid, encoding='ascii') as f:
            return dict(line.rstrip('\n').split(':\t', 1) for line in f if ':\t' in line)


class Library(ResolverCase):
    """Names of this machine; nothing is sent to a DNS server."""

    def test_localhost(self):
        status, addresses = self.proxy().look_up('localhost')
        self.assertEqual(status, FOUND)
        self.assertTrue(addresses)
        self.assertTrue(set(addresses) <= {('127.0.0.1', 0, 0), ('::1', 0, 0)}, addresses)

    def test_literals(self):
        p = self.proxy()
        self.assertEqual(p.look_up('192.0.2.7'), (FOUND, [('192.0.2.7', 0, 0)]))
        self.assertEqual(p.look_up('2001:db8::7'), (FOUND, [('2001:db8::7', 0, 0)]))

    def test_it_is_confined(self):
        self.proxy().look_up('localhost')
        s = self.status()
        self.assertEqual((s['Seccomp'], s['NoNewPrivs'], int(s['CapEff'], 16), int(s['CapPrm'], 16)), ('2', '1', 0, 0))
        threads = os.listdir('/proc/%d/task' % self.process.pid)
        self.assertEqual(len(threads), THREADS + 1)
        for thread in threads:
            with open('/proc/%d/task/%s/status' % (self.process.pid, thread), encoding='ascii') as f:
                text = f.read()
            self.assertIn('Seccomp:\t2\n', text)
            self.assertIn('NoNewPrivs:\t1\n', text)

    @unittest.skipIf(SANITIZED, 'a sanitizer needs memory')
    def test_memory(self):
        p = self.proxy()
        for _ in range(100):
            p.look_up('localhost')
        rss = sum(int(self.status()[k].split()[0]) for k in ('RssAnon', 'RssShmem'))
        self.assertLess(rss, 1500, 'kB, private')

    def test_it_ends_with_the_control_socket(self):
        self.proxy()
        self.front.close()
        self.assertEqual(self.process.wait(wire.DEADLINE), 0)

    def test_a_hundred_proxies_come_and_go(self):
        for _ in range(100):
            p = Proxy(self.front)
            self.assertEqual(p.look_up('localhost')[0], FOUND)
            p.sock.close()
        self.assertEqual(self.proxy().look_up('localhost')[0], FOUND)


class Hostile(ResolverCase):
    def closes(self, data):
        p, q = self.proxy(), self.proxy()
        p.sock.send(data)
        try:
            self.assertIsNone(p.answer())
        except ConnectionResetError:
            pass
        self.assertEqual(q.look_up('localhost')[0], FOUND)

    def test_messages_of_another_length(self):
        whole = ASK.pack(1, b'localhost', 80)
        for data in (b'x', whole[:-1], whole + b'x', whole * 300):
            with self.subTest(len(data)):
                self.closes(data)

    def test_hosts_that_are_not_canonical(self):
        for host in (b'', b'LOCALHOST', b'a..b', b'a b', b'a\nb', b'x' * 254, b'localhost.', b'127.1', b'[::1]', b'a/b'):
            with self.subTest(host):
                self.closes(ASK.pack(1, host, 80))

    def test_a_proxy_that_takes_no_answer(self):
        slow, quick = self.proxy(), self.proxy()
        slow.sock.settimeout(0.2)
        sent = 0
        try:
            while sent < 20000:
                slow.ask('192.0.2.1')
                sent += 1
        except (TimeoutError, BlockingIOError):
            pass
        self.assertLess(sent, 20000)  # it is not read from any more
        self.assertEqual(quick.look_up('localhost')[0], FOUND)
        slow.sock.settimeout(wire.DEADLINE)
        self.assertEqual(sorted(slow.answer()[0] for _ in range(sent)), list(range(1, sent + 1)))
        self.assertEqual(slow.look_up('192.0.2.2'), (FOUND, [('192.0.2.2', 0, 0)]))


class Front(unittest.TestCase):
    """What the front never does."""

    def run_it(self, *words, stdin):
        r = subprocess.run([PROGRAM, *words], stdin=stdin, capture_output=True, timeout=wire.DEADLINE)
        return r.returncode, r.stderr.decode()

    def test_a_person_is_told(self):
        for words in (['proxy'], ['resolver'], ['resolver', 'x'], ['proxy', 'x']):
            code, text = self.run_it(*words, stdin=subprocess.DEVNULL)
            self.assertEqual((code, text),
                             (2, f'sallyport {words[0]} is internal: `sallyport serve` starts it\n'))

    def test_messages_without_a_socket(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.send(b'x')
        code, text = self.run_it('resolver', stdin=theirs)
        self.assertEqual((code, text), (1, 'sallyport: the front sent no socket of a proxy\n'))
        ours.close()
        theirs.close()


class Table(ResolverCase):
    program, env = TEST_PROGRAM, {'SALLYPORT_TEST_HOSTS': TABLE}

    def test_names_of_the_table(self):
        p = self.proxy()
        self.assertEqual(p.look_up('one.example'), (FOUND, [('127.0.0.1', 8443, 1)]))
        self.assertEqual(p.look_up('two.example'),
                         (FOUND, [('192.0.2.1', 0, 0), ('2001:db8::1', 99, 1), ('::1', 0, 0)]))
        self.assertEqual(p.look_up('port.example', 80), (FOUND, [('127.0.0.2', 0, 0)]))
        self.assertEqual(p.look_up('port.example', 81), (FOUND, [('127.0.0.3', 0, 0)]))
        self.assertEqual(p.look_up('none.example'), (NONE, []))
        self.assertEqual(p.look_up('other.example'), (NONE, []))
        self.assertEqual(p.look_up('localhost'), (NONE, []))

    def test_answers_that_change(self):
        p = self.proxy()
        turns = [p.look_up('turns.example') for _ in range(4)]
        self.assertEqual(turns, [(FOUND, [('192.0.2.1', 0, 1)]), (FOUND, [('10.0.0.1', 0, 0)]), (NONE, []), (NONE, [])])
        self.assertEqual([p.look_up('port.turns.example', 80)[1][0][0] for _ in range(3)], ['192.0.2.1', '192.0.2.2', '192.0.2.2'])

    def test_a_hung_name_delays_no_other(self):
        p = self.proxy()
        for _ in range(WORKING - 1):
            p.ask('hung.example')
        began = time.monotonic()
        for _ in range(50):
            self.assertEqual(p.look_up('one.example')[0], FOUND)
        self.assertLess(time.monotonic() - began, wire.DEADLINE / 4)

    def test_hung_names_of_a_proxy_leave_threads_for_others(self):
        p, q = self.proxy(), self.proxy()
        for _ in range(WORKING + WAITING):
            p.ask('hung.example')
        self.assertEqual(q.look_up('one.example')[0], FOUND)

    def test_one_too_many_fails_at_once(self):
        p = self.proxy()
        for _ in range(WORKING + WAITING):
            p.ask('hung.example')
        for _ in range(3):
            self.assertEqual(p.look_up('one.example'), (FAILED, []))

    def test_threads_of_a_proxy_that_is_gone_are_free_again(self):
        for _ in range(THREADS // WORKING + 1):
            p = Proxy(self.front)
            for _ in range(WORKING):
                p.ask('hung.example')
            p.sock.close()
        self.assertEqual(self.proxy().look_up('one.example')[0], FOUND)

    def test_it_ends_while_threads_hang(self):
        p = self.proxy()
        p.ask('hung.example')
        self.front.close()
        self.assertEqual(self.process.wait(wire.DEADLINE), 0)


class Release(ResolverCase):
    env = {'SALLYPORT_TEST_HOSTS': 'localhost=192.0.2.1'}

    def test_the_variable_of_tests_is_ignored(self):
        status, addresses = self.proxy().look_up('localhost')
        self.assertEqual(status, FOUND)
        self.assertNotIn('192.0.2.1', [a[0] for a in addresses])


if __name__ == '__main__':
    tap.main()
