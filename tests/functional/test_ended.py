# SPDX-License-Identifier: Apache-2.0
"""Ended processes: they hinder no start, stay readable for a while, and take a bounded memory."""

import collections
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import tap
import wire
from server import PROGRAM, SANITIZED, Case, descendants, name_of, ours_only, stat_of
from wire import MIB, read_all, unb64, wait_until

IN_FLIGHT = 16
MESSAGE = re.compile(rb'^\{"method":"process/(exited|closed)","params":\{"processId":"([^"]*)"')


def metric(srv, name):
    return int(re.search(r'^sallyport_%s (\d+)' % re.escape(name), srv.http('GET', '/metrics').body.decode(), re.M).group(1))


def cells(srv):
    found = [p for p in descendants(srv.pid) if name_of(p) == 'sallyport cell']
    return [p for p in found if (stat_of(p) or [None, None])[1] == srv.pid]


def own_memory(srv):
    """Anonymous and shared memory and page tables of the front and its cells."""
    total = 0
    for pid in [srv.pid] + cells(srv):
        with open('/proc/%d/status' % pid) as f:
            total += sum(int(n) for n in re.findall(r'^(?:RssAnon|RssShmem|VmPTE):\s+(\d+)', f.read(), re.M))
    return total * 1024


def text_of(chunks):
    return b''.join(unb64(c['chunk']) for c in chunks)


class Lean:
    """A client for many commands, over lines: it counts messages and parses only what it has to."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.rest = b''
        self.counts = collections.Counter()
        self.refused = []
        self.ends = collections.Counter()
        self.send({'id': 'init', 'method': 'initialize', 'params': {'clientName': 'lean'}})
        while b'\n' not in self.rest:
            self.rest += self.socket.recv(65536)
        first, self.rest = self.rest.split(b'\n', 1)
        self.session_id = json.loads(first)['result']['sessionId']
        self.send({'method': 'initialized'})

    def send(self, message):
        self.socket.sendall(json.dumps(message).encode() + b'\n')

    @staticmethod
    def start_message(process_id, argv=('/bin/true',)):
        return json.dumps({'id': process_id, 'method': 'process/start', 'params': {
            'processId': process_id, 'argv': list(argv), 'cwd': 'file:///', 'env': {}, 'tty': False, 'pipeStdin': False,
            'arg0': None}}).encode() + b'\n'

    def take(self):
        data = self.socket.recv(1 << 18)
        if not data:
            raise AssertionError('the server ended the connection')
        *lines, self.rest = (self.rest + data).split(b'\n')
        for line in lines:
            event = MESSAGE.match(line)
            if event:
                self.counts[event.group(1).decode()] += 1
                self.ends[event.group(1, 2)] += 1
            elif line.startswith(b'{"id":'):
                self.counts['replies'] += 1
            elif line.startswith(b'{"error":'):
                self.refused.append(line)

    def run_many(self, count, prefix, at=None, argv=('/bin/true',)):
        """Each process once, IN_FLIGHT at a time; at(closed) is called after each turn."""
        began = self.counts['closed']
        sent = 0
        while self.counts['closed'] - began + len(self.refused) < count:
            ended = self.counts['closed'] - began + len(self.refused)
            batch = range(sent, min(count, ended + IN_FLIGHT))
            if batch:
                self.socket.sendall(b''.join(self.start_message('%s%07d' % (prefix, i), argv) for i in batch))
                sent = batch.stop
            self.take()
            if at is not None:
                at(self.counts['closed'] - began)

    def close(self):
        self.socket.close()


class Both(Case):
    def both(self, *args):
        """A server with metrics that listens for lines, too: the server, and the path."""
        path = self.scratch() + '/socket'
        srv = self.server('--listen', 'unix://' + path, '--metrics', *args)
        self.assertEqual(srv.out.until(b'\n', wire.deadline()), b'unix://%s\n' % path.encode())
        return srv, path


@ours_only
class Many(Both):
    def test_no_start_is_refused_for_those_that_have_ended(self):
        count = 1000000 if tap.IS_LONG else 3000
        # With the default of 64 MiB the memory follows the rate: all that ended in the last 30 s is kept.
        srv, path = self.both('--kept-memory', '8M') if tap.IS_LONG else self.both('--max-processes', '100', '--kept-memory', '1M')
        c = Lean(path)
        seen = {}
        if tap.IS_LONG:
            signal.alarm(3 * 3600)

        def look(closed):
            for mark in (1000, count * 3 // 10, count):
                if closed >= mark and mark not in seen:
                    seen[mark] = (own_memory(srv), sum(srv.fds().values()))
            if tap.IS_LONG:
                c.ends.clear()

        c.run_many(count, 'soak-process-', look)
        self.assertEqual(c.refused, [])
        self.assertEqual(c.counts, {'replies': count, 'exited': count, 'closed': count})
        if not tap.IS_LONG:
            self.assertEqual(set(c.ends.values()), {1})
        first, middle, last = seen[1000], seen[count * 3 // 10], seen[count]
        if not SANITIZED:
            self.assertLess(last[0] - first[0], 80 * MIB)
            if tap.IS_LONG:
                self.assertLess(last[0] - middle[0], MIB)
        self.assertLessEqual(last[1] - first[1], 16)
        c.close()

    def test_a_closed_process_is_small(self):
        count = 20000 if tap.IS_LONG else 2000
        srv = self.server('--metrics')
        c = srv.session()
        posts = collections.deque()
        for i in range(count):
            posts.append(c.post_start('process-with-id-%04d' % i, ['/bin/true']))
            if len(posts) > 64:
                c.result(posts.popleft())
        for post in posts:
            c.result(post)
        for i in range(count):
            c.wait_closed('process-with-id-%04d' % i)
        wait_until(lambda: metric(srv, 'processes_kept') == count)
        self.assertLessEqual(metric(srv, 'kept_bytes'), 300 * count)
        for i in range(count):
            page = c.read('process-with-id-%04d' % i)
            self.assertEqual((page['chunks'], page['nextSeq'], page['exitCode'], page['closed']), ([], 3, 0, True))
        self.assertEqual(len(c.request('process/list')['processes']), count)

    def test_output_stays_while_others_come_and_go(self):
        srv = self.server()
        c = srv.session()
        c.run(['/bin/sh', '-c', 'head -c 15000 /dev/zero | tr "\\0" x'], 'kept')
        c.run(['/bin/sh', '-c', 'head -c 300000 /dev/zero | tr "\\0" y'], 'large')
        end = time.monotonic() + (28 if tap.IS_LONG else 1.5)
        n = 0
        while time.monotonic() < end:
            posts = [c.post_start('p%d' % (n + i), ['/bin/true']) for i in range(16)]
            n += 16
            for post in posts:
                c.result(post)
        self.assertEqual(text_of(read_all(c, 'kept')[0]), b'x' * 15000)
        self.assertEqual(text_of(read_all(c, 'large')[0]), b'y' * 300000)


@ours_only
class Memory(Both):
    def test_output_goes_first_then_the_process(self):
        srv = self.server('--kept-memory', '1M', '--closed-ttl', '600', '--metrics')
        c = srv.session()
        c.run(['/bin/sh', '-c', 'printf old; exit 7'], 'old')
        listed = lambda: {p['processId']: p for p in c.request('process/list')['processes']}
        self.assertNotIn('outputEvicted', listed()['old'])
        script = 'head -c 14000 /dev/zero | tr "\\0" x'
        for i in range(90):
            c.sh(script, 'p%d' % i)
        wait_until(lambda: 'outputEvicted' in listed()['old'], 'eviction')
        self.assertIs(listed()['old']['outputEvicted'], True)
        page = c.read('old', waitMs=60000)
        self.assertEqual((page['chunks'], page['nextSeq'], page['exited'], page['exitCode'], page['closed']), ([], 4, True, 7, True))
        self.assertNotIn('outputEvicted', listed()['p89'])
        self.assertEqual(len(text_of(read_all(c, 'p89')[0])), 14000)
        self.assertLessEqual(metric(srv, 'kept_bytes'), MIB)
        self.assertGreater(metric(srv, 'evicted_total{stage="output"}'), 0)
        self.assertEqual(metric(srv, 'evicted_total{stage="record"}'), 0)
        self.assertError(c.start_error('old', ['true']), -32600, 'process old already exists')
        # Without output of its own, the largest session is this one: it loses its first process.
        for n in range(0, 8000, 200):
            for post in [c.post_start('t%d' % i, ['/bin/true']) for i in range(n, n + 200)]:
                c.result(post)
            if 'error' in c.reply(c.post_read('old')):
                break
        self.assertError(c.error('process/read', {'processId': 'old'}), -32600, 'unknown process id old')
        self.assertGreater(metric(srv, 'evicted_total{stage="record"}'), 0)
        self.assertLessEqual(metric(srv, 'kept_bytes'), MIB)
        self.assertEqual(c.run(['echo', 'again'], 'old').stdout, b'again\n')

    def test_closed_processes_leave_their_rings_for_the_budget_of_output(self):
        srv = self.server('--output-memory', '64M', '--kept-memory', '8M', '--closed-ttl', '600', '--metrics')
        c = srv.session()
        c.keep_output = False
        count = 90
        for i in range(count):
            c.sh('head -c 1000000 /dev/zero', 'p%d' % i)
        wait_until(lambda: metric(srv, 'ring_touched_bytes') <= 64 * MIB, 'room')
        wait_until(lambda: metric(srv, 'kept_bytes') <= 8 * MIB, 'eviction')
        self.assertGreater(metric(srv, 'evicted_total{stage="output"}'), 0)
        self.assertEqual(metric(srv, 'evicted_total{stage="record"}'), 0)
        self.assertEqual(metric(srv, 'processes_kept'), count)
        self.assertEqual(len(text_of(read_all(c, 'p%d' % (count - 1))[0])), 1000000)
        first = c.read('p0')
        self.assertEqual((first['chunks'], first['exitCode'], first['closed']), ([], 0, True))

    def test_observers_that_do_not_read_hold_no_memory(self):
        srv = self.server('--kept-memory', '1M', '--closed-ttl', '600', '--metrics')
        owner, observer = srv.session(), srv.session(rcvbuf=4096)
        count, total = 200, 14000
        script = 'read x; head -c %d /dev/zero | tr "\\0" z' % total
        for i in range(count):
            owner.start('p%d' % i, ['/bin/sh', '-c', script], pipeStdin=True)
            observer.request('process/attach', {'sessionId': owner.session_id, 'processId': 'p%d' % i})
        for i in range(count):
            owner.post_write('p%d' % i, b'\n')
        for i in range(count):
            owner.wait_closed('p%d' % i)
        wait_until(lambda: metric(srv, 'kept_bytes') <= MIB, 'eviction')
        # Those that were too late are told so: what is missing, then the end, once.
        told, gaps, ends = collections.Counter(), collections.Counter(), collections.Counter()

        def note():
            for n in observer.take_notes():
                p = n['params']
                told[p['processId']] += len(unb64(p['chunk'])) if 'chunk' in p else 0
                gaps[p['processId']] += p.get('gap', {}).get('records', 0)
                ends[p['processId'], n['method']] += n['method'] != 'process/output'
            return sum(v for (_, method), v in ends.items() if method == 'process/closed') == count
        observer.wait_for(note, 'the end of all')
        self.assertEqual(set(ends.values()) - {0}, {1})
        self.assertGreater(sum(n == total for n in told.values()), 0)
        self.assertGreater(sum(n > 0 for n in gaps.values()), 0)
        for name, n in told.items():
            self.assertEqual(gaps[name] > 0, n < total, name)

    def test_a_session_with_little_keeps_it(self):
        srv, path = self.both('--kept-memory', '8M' if tap.IS_LONG else '1M', '--closed-ttl', '600')
        a = srv.session()
        for i in range(100):
            a.run(['echo', 'line %d' % i], 'a%d' % i)
        b = Lean(path)
        b.run_many(100000 if tap.IS_LONG else 7000, 'b')
        self.assertEqual(b.refused, [])
        for i in range(100):
            self.assertEqual(text_of(read_all(a, 'a%d' % i)[0]), b'line %d\n' % i)
        b.close()

    def test_no_session_below_its_share_loses_anything(self):
        sessions, budget = (50, 8) if tap.IS_LONG else (10, 1)
        srv, path = self.both('--kept-memory', '%dM' % budget, '--closed-ttl', '600')
        # A record of these has less than 1,600 bytes: the smaller half of the sessions is below the share.
        script = ('/bin/sh', '-c', 'printf "%01000d" 7')
        fits = budget * MIB // sessions // 1600
        counts = [fits if i % 2 == 0 else fits * (2 + i % 5) for i in range(sessions)]
        clients = [Lean(path) for _ in range(sessions)]
        threads = [threading.Thread(target=c.run_many, args=(n, 'p'), kwargs={'argv': script}) for c, n in zip(clients, counts)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(wire.deadline() - time.monotonic() + 200)
        looker = srv.session()
        for c, n in list(zip(clients, counts))[::2]:
            for i in range(n):
                page = looker.request('process/read', {'sessionId': c.session_id, 'processId': 'p%07d' % i})
                self.assertEqual(len(text_of(page['chunks'])), 1000)
        for c in clients:
            c.close()

    def test_a_client_that_does_not_read_has_to_wait(self):
        # The short form meets the bound for bytes, the long one that for processes.
        count, argument, most = (100000, '', 30000) if tap.IS_LONG else (6000, 'x' * 2000, 5000)
        srv, path = self.both('--kept-memory', '1M')
        before = own_memory(srv)
        c = Lean(path)
        c.socket.setblocking(False)
        sent, rest, still = 0, b'', time.monotonic()
        while (sent < count or rest) and time.monotonic() - still < 3:
            if not rest and sent < count:
                if sent % 100 == 0:  # starts are read faster than they can be made
                    wait_until(lambda: metric(srv, 'processes_live') < 300, 'starts')
                    still = time.monotonic()
                rest = c.start_message('p%07d' % sent, ('/bin/true', argument))
                sent += 1
            try:
                rest = rest[c.socket.send(rest):]
                still = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        wait_until(lambda: metric(srv, 'processes_live') == 0, 'the end of all that have started', timeout=120)
        started = metric(srv, 'processes_started_total')
        self.assertGreater(started, 1000)
        self.assertLess(started, most)  # the unsent ones, what was told before, and what the sockets hold
        if not SANITIZED:
            self.assertLess(own_memory(srv) - before, 32 * MIB)
        other = srv.session()
        self.assertEqual(other.run(['echo', 'x'], 'p').stdout, b'x\n')
        c.socket.setblocking(True)
        while c.counts['closed'] < sent:
            if rest:
                c.socket.setblocking(False)
                try:
                    rest = rest[c.socket.send(rest):]
                except BlockingIOError:
                    pass
                c.socket.setblocking(True)
            if c.counts['closed'] < sent:
                c.take()
        self.assertEqual(c.refused, [])
        self.assertEqual(c.counts, {'replies': sent, 'exited': sent, 'closed': sent})
        self.assertEqual(set(c.ends.values()), {1})
        c.close()


@ours_only
class Readers(Case):
    def test_an_observer_behind_at_the_close_learns_everything(self):
        srv = self.server('--max-processes', '4', '--closed-ttl', '600')
        owner = srv.session()
        total = 900000
        owner.start('p', ['/bin/sh', '-c', 'read x; head -c %d /dev/zero | tr "\\0" z' % total], pipeStdin=True)
        observer = srv.session(rcvbuf=4096)
        observer.request('process/attach', {'sessionId': owner.session_id, 'processId': 'p'})
        owner.write('p', b'\n')
        owner.wait_closed('p')
        self.squeeze(srv, owner)
        seen = []

        def there():
            seen.extend(n for n in observer.take_notes() if n['params'].get('sessionId') == owner.session_id)
            return seen and seen[-1]['method'] == 'process/closed'

        observer.wait_for(there, 'the end')
        told = sum(len(unb64(n['params']['chunk'])) for n in seen if n['method'] == 'process/output')
        gaps = sum(n['params'].get('gap', {}).get('bytes', 0) for n in seen)
        self.assertEqual(told + gaps, total)
        self.assertEqual([n['method'] for n in seen[-2:]], ['process/exited', 'process/closed'])
        last = 0
        for n in seen:
            self.assertEqual(n['params']['seq'] - n['params'].get('gap', {}).get('records', 0), last + 1)
            last = n['params']['seq']

    def squeeze(self, srv, client):
        """More output in closed processes than a cell of so few slots leaves in its rings."""
        for i in range(30):
            client.sh('head -c 20000 /dev/zero', 'squeeze%d' % i)
        self.assertEqual(client.fence(), {'status': 'ready'})

    def test_a_read_that_waits_at_the_close_is_answered(self):
        c = self.session()
        for i in range(20):
            name = 'p%d' % i
            c.start(name, ['/bin/sh', '-c', 'read x; echo last'], pipeStdin=True)
            first = c.post_read(name, waitMs=60000)
            c.write(name, b'\n')
            page = c.result(first)
            self.assertEqual(text_of(page['chunks']), b'last\n')
            rest = c.read(name, afterSeq=page['nextSeq'] - 1, waitMs=60000)
            while not rest['closed']:
                rest = c.read(name, afterSeq=rest['nextSeq'] - 1, waitMs=60000)
            self.assertEqual((rest['chunks'], rest['exitCode']), ([], 0))

    def test_paging_across_the_close_finds_every_byte_once(self):
        for squeezed in (False, True):
            srv = self.server('--max-processes', '4', '--closed-ttl', '600')
            c = srv.session()
            for size in (0, 15 << 10, 17 << 10, 1 << 20):
                name = 'p%d' % size
                want = bytes(b'0123456789abcdef'[i % 16] for i in range(size))
                script = 'yes 0123456789abcdef | tr -d "\\n" | head -c %d; read x; printf end; exit 3' % size
                c.start(name, ['/bin/sh', '-c', script], pipeStdin=True)
                c.wait_for(lambda: len(c.process(name).stdout) == size, 'the output')
                got, after = b'', 0
                while len(got) < size // 2:
                    page = c.read(name, afterSeq=after, maxBytes=5000)
                    got, after = got + text_of(page['chunks']), page['nextSeq'] - 1
                c.write(name, b'\n')
                c.wait_closed(name)
                if squeezed:
                    self.squeeze_once(srv, c)
                chunks, page = read_all(c, name, after, 7000)
                self.assertEqual(got + text_of(chunks), want + b'end')
                self.assertEqual((page['exitCode'], page['nextSeq'] > after), (3, True))
                whole, _ = read_all(c, name)
                self.assertTrue((want + b'end').endswith(text_of(whole)))
                self.assertGreaterEqual(len(text_of(whole)), min(size + 3, MIB - 65536))
            srv.stop()

    def squeeze_once(self, srv, client):
        for i in range(30):
            name = 'squeeze%d-%d' % (i, time.monotonic_ns())
            client.sh('head -c 20000 /dev/zero', name)
        self.assertEqual(client.fence(), {'status': 'ready'})

    def test_a_killed_cell_leaves_its_closed_processes_readable(self):
        srv = self.server('--cells', '1', '--closed-ttl', '600')
        c = srv.session()
        c.sh('head -c 900000 /dev/zero | tr "\\0" k; exit 4', 'large')
        c.sh('echo small', 'small')
        c.start('live', ['sleep', '1000'])
        cell, = cells(srv)
        os.kill(cell, signal.SIGKILL)
        self.assertEqual(c.wait_closed('live').exit_code, -1)
        chunks, page = read_all(c, 'large')
        self.assertEqual((text_of(chunks), page['exitCode']), (b'k' * 900000, 4))
        self.assertEqual(text_of(read_all(c, 'small')[0]), b'small\n')
        self.assertEqual(c.run(['echo', 'next'], 'next').stdout, b'next\n')

    def test_what_an_ended_process_answers_stays_the_same(self):
        c = self.session('--closed-ttl', '600')
        c.start('p', ['cat'], pipeStdin=True)
        self.assertEqual(c.write('p', b'x', 'first'), 'accepted')
        self.assertEqual(c.request('process/closeStdin', {'processId': 'p'})['status'], 'accepted')
        c.wait_closed('p')
        self.assertEqual(c.write('p', b'x', 'first'), 'accepted')
        self.assertEqual(c.write('p', b'x', 'second'), 'stdinClosed')
        self.assertEqual(c.request('process/terminate', {'processId': 'p'}), {'running': False})
        self.assertEqual(c.request('process/signal', {'processId': 'p', 'signal': 'KILL'}), {})
        self.assertError(c.error('process/resize', {'processId': 'p', 'rows': 1, 'cols': 1}), -32600, 'process p has no terminal')
        self.assertEqual(c.request('process/inspect', {'processId': 'p'}), {'state': 'exited', 'holders': []})
        self.assertError(c.start_error('p', ['true']), -32600, 'process p already exists')
        odd = 'q"\\\u00e9\u0000'
        c.run(['/bin/echo', 'a' * 5000, 'b'], odd)
        listed = c.request('process/list')['processes']
        self.assertEqual([p['processId'] for p in listed], ['p', odd])
        self.assertEqual(listed[1]['argv'], ['/bin/echo', 'a' * 4096])
        self.assertEqual(listed[1]['state'], 'closed')


@ours_only
class Verbs(Case):
    def verb(self, srv, *args):
        r = subprocess.run([PROGRAM, *args, '--on', srv.url], stdin=subprocess.DEVNULL, capture_output=True, timeout=wire.DEADLINE)
        return r.returncode, r.stdout, r.stderr

    def test_logs_ps_and_attach_of_closed_ones(self):
        srv = self.server('--kept-memory', '1M', '--closed-ttl', '600', '--max-processes', '4')
        c = srv.session()
        c.sh('echo hello; exit 5', 'small')
        c.sh('head -c 300000 /dev/zero | tr "\\0" l', 'large')

        def check(small, large):
            code, out, err = self.verb(srv, 'logs', 'small')
            self.assertEqual((code, out), (0, small))
            self.assertEqual(b'was evicted' in err, small == b'')
            self.assertEqual(self.verb(srv, 'logs', 'large')[1], large)
            code, out, _ = self.verb(srv, 'ps')
            self.assertEqual(code, 0)
            self.assertRegex(out, rb'small +\d+ +exited \(5\)')
            code, out, _ = self.verb(srv, 'attach', 'small')
            self.assertEqual(code, 5)

        check(b'hello\n', b'l' * 300000)
        for i in range(30):  # copies the output of `large`
            c.sh('head -c 20000 /dev/zero', 'squeeze%d' % i)
        check(b'hello\n', b'l' * 300000)
        for i in range(90):
            c.sh('head -c 14000 /dev/zero', 'p%d' % i)
        check(b'', b'')


if __name__ == '__main__':
    tap.main()
