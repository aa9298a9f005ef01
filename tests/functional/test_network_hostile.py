# SPDX-License-Identifier: Apache-2.0
"""What a hostile command does to the network of its cell, and a proxy that was taken over to the front: floods of questions,
countless names, slow clients, forged messages. Others are not affected, and memory is bounded."""

import array
import ctypes
import os
import select
import signal
import socket
import struct
import time

import tap
import wire
from managed import ManagedCase, helpers_of
from proxy_front import (ASK, COUNTS, DONE, FORGET, GONE, HELLO, KNOW, LISTEN, PING, PONG, READY, RESOLVER, UNABLE, VERDICT,
                         echo, head, web)
from server import PYTHON, SANITIZED, ours_only
from test_network_proxy import DNS
from test_network_wire import Wire

FLOOD_S = 5 if tap.IS_LONG else 1
NAMES = 100000 if tap.IS_LONG else 2500
SYS_PIDFD_GETFD = 438

# `lookup` of test_network_proxy, again while the question was dropped: 2,000 a second are answered.
PATIENT = DNS + '''
def patient(name):
    while True:
        reply = exchange(question(name), 0.2)
        if reply:
            return socket.inet_ntoa(reply[-4:]) if code_of(reply) == 'ok' else code_of(reply)
'''


def rss_kib(pid):
    with open('/proc/%d/status' % pid) as f:
        return int([line for line in f if line.startswith('VmRSS')][0].split()[1])


class Floods(ManagedCase):
    def test_66_questions(self):
        """10,000 a second in one cell: each question of another cell is answered, and then those of this one, too."""
        self.name('a.test')
        flooding = self.cell(self.script(PATIENT + '''
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('127.0.0.1', 53))
s.setblocking(False)
say('ready')
sys.stdin.readline()
end, sent = time.monotonic() + float(sys.argv[1]), 0
begin = time.monotonic()
while time.monotonic() < end:
    if sent > (time.monotonic() - begin) * 10000:
        time.sleep(0.002)
        continue
    try:
        s.send(question('n%d.example' % sent))
        sent += 1
    except BlockingIOError:
        time.sleep(0.001)
say([sent, patient('a.test')[:7]])
''') + [str(FLOOD_S)])
        other = self.cell(self.script(PATIENT + '''
say(lookup('a.test'))
sys.stdin.readline()
end, answers = time.monotonic() + float(sys.argv[1]), []
while time.monotonic() < end:
    answers.append(lookup('a.test'))
    time.sleep(0.01)
say([len(answers), all(a == answers[0] for a in answers), answers[0]])
''') + [str(FLOOD_S)])
        first = other.line()
        self.assertEqual(flooding.line(), 'ready')
        flooding.tell()
        other.tell()
        count, are_equal, answer = other.line()
        sent, after = flooding.line()
        self.assertEqual((are_equal, answer), (True, first))
        self.assertGreater(count, 1)
        self.assertGreater(sent, 2000 * FLOOD_S, 'that many are more than are answered')
        self.assertEqual(after, '127.64.')
        for cell in (other, flooding):
            self.assertEqual(cell.wait().returncode, 0)

    def test_67_names(self):
        """More names than a cell keeps: a listed one keeps its address, the oldest others lose theirs for good."""
        self.name('a.test', {80: self.serve(web([]))})
        cell = self.cell(self.script(PATIENT + '''
def status(address):
    try:
        s = socket.create_connection((address, 80))
        s.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n')
    except ConnectionResetError:
        return 'RESET'
    return read_all(s)[:12].decode()
listed, first = patient('a.test'), patient('first.example')
say([status(listed), attempt(status, first)])
sys.stdin.readline()
seen = {patient('n%d.example' % i) for i in range(int(sys.argv[1]))}
say([len(seen), patient('a.test') == listed, status(listed), attempt(status, first), patient('first.example') in seen | {first}])
sys.stdin.readline()
''') + [str(NAMES)])
        # A name that is not allowed is refused at its own address; a dead address refuses everybody.
        self.assertEqual(cell.line(), ['HTTP/1.1 200', 'HTTP/1.1 400'])
        proxy = cell.helper()
        before = rss_kib(proxy)
        cell.tell()
        self.assertEqual(cell.line(), [NAMES, True, 'HTTP/1.1 200', 'RESET', False])
        if not SANITIZED:
            self.assertLess(rss_kib(proxy), before + 4096)
        cell.tell()
        self.assertEqual(cell.wait().returncode, 0)

    def test_63_slow_senders(self):
        """200 connections that send a byte a second: another one takes twice as long at most, or 50 ms on a busy machine."""
        self.name('a.test', {80: self.serve(web([])), 443: self.serve(echo)})
        said = self.python('''
            def usual(seconds):  # a quarter is faster: others use the machine, too
                end, times = time.monotonic() + seconds, []
                while time.monotonic() < end:
                    begin = time.monotonic()
                    head, s = connect('a.test:443')
                    s.sendall(b'x')
                    assert (head.split()[1], s.recv(1)) == ('200', b'x')
                    s.close()
                    times.append(time.monotonic() - begin)
                return sorted(times)[len(times) // 4]
            seconds = float(sys.argv[1])
            alone = usual(seconds)
            slow, text = [door() for _ in range(200)], b'GET http://a.test/ HTTP/1.1\\r\\nHost: a.test\\r\\n'
            is_over = threading.Event()
            def drip():
                for i in range(len(text)):
                    for s in slow:
                        s.sendall(text[i:i + 1])
                    if is_over.wait(1):
                        break
                return [s.sendall(text[i + 1:] + b'\\r\\n') for s in slow]
            t = threading.Thread(target=drip)
            t.start()
            beside = usual(seconds)
            is_over.set()
            t.join()
            say([alone, beside, sum(read_head(s).startswith('HTTP/1.1 200') for s in slow)])
        ''', str(10 if tap.IS_LONG else 1.5))
        alone, beside, served = said
        self.assertEqual(served, 200)
        self.assertLess(beside, max(2 * alone, 0.05))


# ---- connections whose commands are looked for ----

# Forks so many processes that sleep.
MANY = '''
import os, sys, time
for i in range(int(sys.argv[1])):
    if os.fork() == 0:
        break
else:
    print('up', flush=True)
time.sleep(600)
'''
# Connects to one host after the other, none of which is on a list; says how often every second.
KNOCK = '''
import itertools, socket, threading
numbers, told = itertools.count(), threading.Lock()
def work():
    for i in numbers:
        try:
            with socket.create_connection(('127.0.0.1', 808)) as s:
                s.sendall(b'CONNECT n%d.example:443 HTTP/1.1\\r\\nHost: n%d.example:443\\r\\n\\r\\n' % (i, i))
                s.recv(100)
        except OSError:
            pass
        if i % 50 == 0:
            print(i, flush=True)
for _ in range(8):
    threading.Thread(target=work).start()
'''


@ours_only
class Searches(Wire):
    def front_s(self):
        """Seconds that the server has been on a processor."""
        with open('/proc/%d/schedstat' % self.srv.pid) as f:
            return int(f.read().split()[0]) / 1e9

    def knocked(self):
        return int(bytes(self.c.process('knock').streams['stdout']).split()[-1])

    def test_many_processes(self):
        """The front looks for the command of each connection to a host on no list, among all processes of the sandbox: for
        a twentieth of the time, so that others are not delayed, and for 100 ms at once."""
        self.begin('knock', [PYTHON, '-S', '-c', KNOCK])
        self.c.wait_output('knock', '\n')
        for i in range(3):  # these are newer, so they are looked at first
            self.begin('many-%d' % i, [PYTHON, '-S', '-c', MANY, '200'])
            self.c.wait_output('many-%d' % i, 'up')
        self.c.pump(0.1)
        first, began, cpu = self.knocked(), time.monotonic(), self.front_s()
        self.c.wait_for(lambda: self.knocked() >= first + (5000 if tap.IS_LONG else 1000), 'connections')
        count, took, cpu = self.knocked() - first, time.monotonic() - began, self.front_s() - cpu
        print('# %d connections in %.1f s: the front worked %.2f s' % (count, took, cpu))
        self.assertLess(cpu, 0.15 + 0.1 * took + count * (0.002 if SANITIZED else 0.0003))
        for name in ('knock', 'many-0', 'many-1', 'many-2'):
            self.c.terminate(name)


# ---- forged messages ----

def ask(number=1 << 40, protocol=0, via=0, host=b'a.test', method=b'GET', port=80, zero=0, host_len=None, method_len=None):
    fixed = struct.pack('<BBBBHHHHII4x', protocol, via, len(host) if host_len is None else host_len,
                        len(method) if method_len is None else method_len, port, 1, 80, zero, 0, 0)
    return head(ASK, fixed + host + method, number)


def done(number=0, outcome=0, reason=0, host=b'a.test', port=80, family=0, zero=0):
    fixed = struct.pack('<BBBBHBB16sQQQHHIII4x', outcome, reason, 0, 0, port, len(host), family, b'', 1, 1, 1, 1, 80, 0, 0, zero)
    return head(DONE, fixed + host, number)


def with_version(message, version):
    return struct.pack('<H', version) + message[2:]


FATAL = {
    'too short': head(READY)[:8], 'another version': with_version(head(READY), 2), 'a length too large': head(READY)[:-12] +
    struct.pack('<IQ', 1, 0), 'too long': head(UNABLE, bytes(70000)), 'no operation': head(0), 'an unknown one': head(999),
    'HELLO': head(HELLO, bytes(144)), 'RESOLVER': head(RESOLVER), 'LISTEN': head(LISTEN, struct.pack('<BBHI', 1, 0, 53, 0)),
    'VERDICT': head(VERDICT, struct.pack('<BBB5x', 1, 0, 0), 1), 'FORGET': head(FORGET), 'PING': head(PING, number=1),
    'READY with a body': head(READY, b'x'), 'PONG with a body': head(PONG, b'x', 1), 'GONE 0': head(GONE),
    'UNABLE': head(UNABLE, b'\x1b[31mred\r\n'), 'KNOW 0': head(KNOW, b'a.test'), 'KNOW nothing': head(KNOW, b'', 1),
    'KNOW a host that is none': head(KNOW, b'a test', 1), 'KNOW a capital': head(KNOW, b'A.test', 1),
    'KNOW port 0': head(KNOW, b'a.test:0', 1), 'KNOW a port that is none': head(KNOW, b'a.test:', 1),
    'KNOW a large port': head(KNOW, b'a.test:65536', 1), 'KNOW an address': head(KNOW, b'127.0.0.1:443', 1),
    'ASK 0': ask(number=0), 'ASK port 0': ask(port=0), 'ASK protocol': ask(protocol=3), 'ASK via': ask(via=2),
    'ASK zero': ask(zero=1), 'ASK no host': ask(host=b''), 'ASK a long host': ask(host=b'x' * 254, host_len=254),
    'ASK a host beyond its end': ask(host_len=253), 'ASK a long method': ask(method=b'X' * 33), 'ASK CR LF': ask(host=b'a\r\nb'),
    'ASK NUL': ask(host=b'a.test\0'), 'ASK a hidden literal': ask(host=b'0x7f.1'), 'DONE without its ASK': done(number=7),
    'DONE outcome': done(outcome=99), 'DONE reason': done(reason=99), 'DONE family': done(family=5), 'DONE zero': done(zero=1),
    'DONE CR LF': done(host=b'a\r\nb'), 'DONE no host': done(host=b''), 'COUNTS': head(COUNTS, bytes(8)),
}
HARMLESS = [head(READY), head(PONG, number=1 << 50), head(GONE, number=1 << 50), head(COUNTS, b'\xff' * 56), done()]
A_CELL = 4  # the fifth death within a minute closes the network


class Forged(ManagedCase):
    """69: the test writes to the proxy's socket, as code in a taken-over proxy could."""

    def setUp(self):
        super().setUp()
        self.name('a.test', {80: self.serve(web([]))})

    def start(self):
        return self.cell(self.script('''
            for _ in sys.stdin:
                s = socket.create_connection(('a.test', 80))
                s.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n')
                say(read_all(s)[:12].decode())
        '''))

    def works(self, cell, name):
        cell.tell()
        self.assertEqual(cell.line(), 'HTTP/1.1 200', name)

    def socket_of(self, proxy):
        """A duplicate of its end of the front's socket. It is not dumpable: that takes CAP_SYS_PTRACE."""
        pidfd = os.pidfd_open(proxy)
        fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_PIDFD_GETFD, pidfd, 0, 0)
        os.close(pidfd)
        if fd < 0:
            self.skipTest('pidfd_getfd: ' + os.strerror(ctypes.get_errno()))
        return socket.socket(fileno=fd)

    def forge(self, cell, name, messages, fds=()):
        """Sends these as the proxy, which is stopped, so that it cannot end by itself: it is killed and replaced."""
        proxy = cell.helper()
        os.kill(proxy, signal.SIGSTOP)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else []
        with self.socket_of(proxy) as s:
            for message in messages:
                select.select([], [s], [], wire.DEADLINE)  # it does not block
                try:
                    s.sendmsg([message], rights)
                except ConnectionError:
                    break  # the front has read enough
        wire.wait_until(lambda: proxy not in helpers_of(cell.pid, 'proxy'), 'the end of the proxy: ' + name)
        self.works(cell, name)

    def finish(self, cell):
        end = cell.wait()
        self.assertEqual(end.returncode, 0)
        self.assertNotIn('\x1b', end.stderr)
        self.assertNotIn('keeps ending', end.stderr)

    def test_69_fatal(self):
        chosen = tap.thin(FATAL, 6)
        for i in range(0, len(chosen), A_CELL):
            cell = self.start()
            self.works(cell, 'before')
            for name in chosen[i:i + A_CELL]:
                self.forge(cell, name, [FATAL[name]])
            self.finish(cell)

    def test_69_more(self):
        """An ASK twice, more connections than may be open, a descriptor; and messages that are allowed change nothing."""
        cell = self.start()
        self.works(cell, 'before')
        proxy = cell.helper()
        with self.socket_of(proxy) as s:
            for message in HARMLESS:
                s.sendall(message)
        self.works(cell, 'harmless messages')
        self.forge(cell, 'the same ASK twice', [ask(), ask()])
        self.forge(cell, 'too many', [ask(number=n + (1 << 40)) for n in range(4097)])
        with open('/dev/null') as f:
            self.forge(cell, 'a descriptor', [head(READY)], [f.fileno()])
        self.finish(cell)


if __name__ == '__main__':
    tap.main()
