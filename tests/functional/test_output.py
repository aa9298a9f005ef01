# SPDX-License-Identifier: Apache-2.0
"""Output: numbering, order, retention and eviction, process/read, long polls, and what happens to
children whose client does not read."""

import hashlib
import os
import time

import tap
from server import PEER, PROGRAM, PYTHON, Case, Gate, is_alive, ours_only, stat_of
from wire import MIB, Timeout, read_all, unb64, wait_until

REFUSE = os.environ.get('REFUSE') or os.path.join(os.path.dirname(PROGRAM), 'tests', 'unit', 'refuse')


def written(pid):
    """Bytes a process has written so far."""
    try:
        with open('/proc/%d/io' % pid) as f:
            return int(dict(line.split(': ') for line in f.read().splitlines())['wchar'])
    except (OSError, KeyError):
        return None


def wait_blocked(pid):
    """Waits until a process that writes for ever makes no progress; returns how far it came."""
    end = time.monotonic() + 60
    same, last = 0, -1
    while same < 10:
        now, stat = written(pid), stat_of(pid)
        same = same + 1 if now == last and stat and stat[0] == 'S' else 0
        last = now
        if time.monotonic() > end:
            raise Timeout('the writer is never blocked')
        time.sleep(0.05)
    return last


def pattern(size):
    """Bytes without a short period, so that a lost or doubled block shows."""
    block = b''.join(hashlib.sha256(b'%d' % i).digest() for i in range(1024))
    return (block * (size // len(block) + 1))[:size]


PATTERN = ("import hashlib, sys\n"
           "block = b''.join(hashlib.sha256(b'%d' % i).digest() for i in range(1024))\n"
           "size = int(sys.argv[1])\n"
           "data = (block * (size // len(block) + 1))[:size]\n"
           "sys.stdout.buffer.write(data)\n")


class Numbering(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def test_numbers_are_contiguous_over_both_streams(self):
        # the client checks every notification; here also the count and the bytes
        p = self.c.sh('i=0; while [ $i -lt 500 ]; do echo out$i; echo err$i >&2; i=$((i+1)); done')
        self.assertEqual(sorted([s for s, _, _ in p.chunks] + [p.exit_seq, p.close_seq]), list(range(1, len(p.chunks) + 3)))
        self.assertEqual(p.stdout, b''.join(b'out%d\n' % i for i in range(500)))
        self.assertEqual(p.stderr, b''.join(b'err%d\n' % i for i in range(500)))
        if not PEER:
            self.assertEqual(p.close_seq, p.exit_seq + 1)

    @ours_only
    def test_what_a_command_wrote_comes_before_its_exit(self):
        for _ in range(40):
            p = self.c.sh('printf x; printf y >&2')
            self.assertEqual((p.exit_seq, p.close_seq), (3, 4))

    @ours_only
    def test_a_full_pipe_at_exit_comes_before_the_exit(self):
        data = pattern(65536)
        p = self.c.run([PYTHON, '-S', '-c', PATTERN, '65536'])
        self.assertEqual(p.stdout, data)
        self.assertEqual(p.exit_seq, len(p.chunks) + 1)

    def test_many_at_once_keep_their_stories_apart(self):
        ids = ['p%d' % i for i in range(40)]
        starts = [self.c.post_start(i, ['/bin/sh', '-c', 'for n in 1 2 3 4 5; do echo $0 $n; echo $n >&2; done; exit ${0#p}', i]) for i in ids]
        for start in starts:
            self.c.result(start)
        for n, i in enumerate(ids):
            p = self.c.wait_closed(i)
            self.assertEqual(p.stdout, b''.join(b'%s %d\n' % (i.encode(), k) for k in range(1, 6)))
            self.assertEqual(p.stderr, b'1\n2\n3\n4\n5\n')
            self.assertEqual(p.exit_code, n)

    def test_a_grandchild_that_holds_the_pipe_delays_closed_but_not_exited(self):
        gate = Gate(self.srv.work)
        self.c.start('p', ['/bin/sh', '-c', '(%s; echo late) & echo now; exit 7' % gate.wait])
        p = self.c.wait_exited('p')
        self.assertEqual((p.exit_code, p.stdout), (7, b'now\n'))
        page = self.c.read('p')
        self.assertEqual((page['exited'], page['closed'], page['exitCode']), (True, False, 7))
        poll = self.c.post_read('p', afterSeq=p.exit_seq, waitMs=600000)
        gate.open()
        self.assertEqual(unb64(self.c.result(poll)['chunks'][0]['chunk']), b'late\n')
        self.assertEqual(self.c.wait_closed('p').stdout, b'now\nlate\n')

    def test_a_child_that_closes_its_streams_lives_on(self):
        self.c.start('p', ['/bin/sh', '-c', 'echo $$; exec >&- 2>&-; exec sleep 1000'])
        pid = int(self.c.wait_line('p'))
        page = self.c.read('p', afterSeq=1, waitMs=300)
        self.assertEqual((page['exited'], page['closed'], page['nextSeq']), (False, False, 2))
        self.assertTrue(is_alive(pid))
        self.assertTrue(self.c.terminate('p'))
        p = self.c.wait_closed('p')
        self.assertEqual((p.exit_code, p.exit_seq, p.close_seq), (137, 2, 3))

    def test_one_stream_may_end_before_the_other(self):
        p = self.c.sh('exec >&-; echo err >&2; exit 2')
        self.assertEqual((p.stdout, p.stderr, p.exit_code), (b'', b'err\n', 2))

    def test_binary_output_is_not_touched(self):
        data = bytes(range(256)) * 40
        path = os.path.join(self.srv.work, 'data')
        with open(path, 'wb') as f:
            f.write(data)
        self.assertEqual(self.c.run(['cat', path]).stdout, data)


class Reading(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def pieces(self, name='p', count=5, end=True):
        """A finished process whose output is `count` chunks of ten bytes."""
        script = 'for i in %s; do printf 012345678$i; read x; done' % ' '.join(map(str, range(count)))
        self.c.start(name, ['/bin/sh', '-c', script], pipeStdin=True)
        for i in range(count):
            self.c.wait_for(lambda n=i: len(self.c.process(name).chunks) == n + 1)
            if i + 1 < count or end:
                self.c.write(name, b'\n')
        return self.c.wait_closed(name) if end else self.c.process(name)

    def seqs(self, **params):
        page = self.c.read('p', **params)
        return [x['seq'] for x in page['chunks']], page['nextSeq']

    def test_paging(self):
        self.pieces()
        self.assertEqual(self.seqs(), ([1, 2, 3, 4, 5], 8))
        self.assertEqual(self.seqs(maxBytes=0), ([1], 2))
        self.assertEqual(self.seqs(maxBytes=1), ([1], 2))
        self.assertEqual(self.seqs(maxBytes=10), ([1], 2))
        self.assertEqual(self.seqs(maxBytes=19), ([1], 2))
        self.assertEqual(self.seqs(maxBytes=20), ([1, 2], 3))
        self.assertEqual(self.seqs(afterSeq=2, maxBytes=20), ([3, 4], 5))
        self.assertEqual(self.seqs(afterSeq=4, maxBytes=20), ([5], 6))
        self.assertEqual(self.seqs(afterSeq=5, maxBytes=20), ([], 8))
        self.assertEqual(self.seqs(afterSeq=5), ([], 8))
        self.assertEqual(self.seqs(maxBytes=1000), ([1, 2, 3, 4, 5], 6))
        self.assertEqual(self.seqs(afterSeq=100), ([], 8))
        self.assertEqual(self.seqs(afterSeq=2**64 - 1), ([], 8))
        self.assertEqual(self.seqs(maxBytes=2**63), ([1, 2, 3, 4, 5], 6))
        self.assertEqual(self.seqs(afterSeq=None, maxBytes=None, waitMs=None), ([1, 2, 3, 4, 5], 8))

    def test_paging_to_the_end_finds_everything_once(self):
        self.pieces()
        for size in (0, 7, 10, 25, 30, 1000, None):
            chunks, last = read_all(self.c, 'p', max_bytes=size)
            self.assertEqual([x['seq'] for x in chunks], [1, 2, 3, 4, 5])
            self.assertEqual((last['closed'], last['exitCode'], last['nextSeq']), (True, 0, 8))

    def test_the_state_is_of_now_and_not_of_the_page(self):
        self.pieces()
        page = self.c.read('p', maxBytes=0)
        self.assertEqual((page['exited'], page['exitCode'], page['closed']), (True, 0, True))
        self.assertEqual((page['failure'], page['sandboxDenied']), (None, False))

    def test_a_read_does_not_consume(self):
        self.pieces()
        self.assertEqual(self.c.read('p'), self.c.read('p'))

    def test_a_poll_ends_at_its_deadline(self):
        self.c.start('p', ['sleep', '1000'])
        began = time.monotonic()
        page = self.c.read('p', waitMs=300)
        self.assertGreaterEqual(time.monotonic() - began, 0.295)
        self.assertEqual(page, {'chunks': [], 'nextSeq': 1, 'exited': False, 'exitCode': None, 'closed': False,
                                'failure': None, 'sandboxDenied': False})
        self.assertEqual(self.c.read('p')['nextSeq'], 1)

    def test_a_poll_wakes_on_output(self):
        gate = Gate(self.srv.work)
        self.c.start('p', ['/bin/sh', '-c', '%s; echo hi; exec sleep 1000' % gate.wait])
        poll = self.c.post_read('p', waitMs=600000)
        gate.open()
        page = self.c.result(poll)
        self.assertEqual((unb64(page['chunks'][0]['chunk']), page['nextSeq'], page['exited']), (b'hi\n', 2, False))

    def test_a_poll_wakes_on_exit_and_close(self):
        gate = Gate(self.srv.work)
        self.c.start('p', ['/bin/sh', '-c', '%s; exit 9' % gate.wait])
        poll = self.c.post_read('p', waitMs=600000)
        gate.open()
        page = self.c.result(poll)
        self.assertEqual((page['chunks'], page['exited'], page['exitCode']), ([], True, 9))
        page = self.c.read('p', afterSeq=1, waitMs=600000)
        self.assertEqual((page['closed'], page['nextSeq']), (True, 3))
        page = self.c.read('p', afterSeq=50, waitMs=600000)
        self.assertTrue(page['closed'])

    def test_a_reader_who_saw_the_exit_sleeps_until_close(self):
        gate = Gate(self.srv.work)
        self.c.start('p', ['/bin/sh', '-c', '(%s) & exit 3' % gate.wait])
        self.c.wait_exited('p')
        page = self.c.read('p', afterSeq=0, waitMs=600000)
        self.assertEqual((page['nextSeq'], page['exited'], page['closed']), (2, True, False))
        began = time.monotonic()
        page = self.c.read('p', afterSeq=1, waitMs=300)
        self.assertGreaterEqual(time.monotonic() - began, 0.295)
        self.assertEqual((page['nextSeq'], page['closed']), (2, False))
        poll = self.c.post_read('p', afterSeq=1, waitMs=600000)
        gate.open()
        self.assertTrue(self.c.result(poll)['closed'])
        # A request looks at the ring itself, so its reply may come before the notification.
        self.assertEqual(self.c.wait_closed('p').close_seq, 2)

    def test_a_poll_beyond_the_end_waits(self):
        self.pieces(count=2, end=False)
        began = time.monotonic()
        page = self.c.read('p', afterSeq=77, waitMs=200)
        self.assertGreaterEqual(time.monotonic() - began, 0.195)
        self.assertEqual((page['chunks'], page['nextSeq']), ([], 3))

    def test_the_longest_wait_is_accepted(self):
        self.c.start('p', ['/bin/sh', '-c', 'read x; echo hi'], pipeStdin=True)
        other = self.srv.session()
        poll = self.c.post_read('p', waitMs=2**64 - 1)
        other.fence()
        self.assertFalse(self.c.answered(poll))
        if not PEER:
            self.c.write('p', b'\n')
            self.assertEqual(unb64(self.c.result(poll)['chunks'][0]['chunk']), b'hi\n')

    @ours_only
    def test_one_event_wakes_every_poll(self):
        self.c.start('p', ['/bin/sh', '-c', 'read x; echo hi; exec sleep 1000'], pipeStdin=True)
        polls = [self.c.post_read('p', waitMs=600000) for _ in range(200)]
        self.c.write('p', b'\n')
        for poll in polls:
            self.assertEqual(self.c.result(poll)['nextSeq'], 2)

    def test_unknown_processes(self):
        self.assertError(self.c.error('process/read', {'processId': 'x', 'waitMs': 600000}), -32600, 'unknown process id x')


class Retention(Case):
    def kept(self, p, limit=MIB, count=50000):
        """The newest chunks that fit, by the rule."""
        out, total = [], 0
        for seq, _stream, size in reversed(p.chunks):
            if total + size > limit or len(out) == count:
                break
            out.insert(0, seq)
            total += size
        return out

    def check(self, c, name, data):
        p = c.process(name)
        self.assertEqual(p.sizes['stdout'], len(data))
        self.assertEqual(p.hashes['stdout'].hexdigest(), hashlib.sha256(data).hexdigest())
        page = c.read(name)
        self.assertEqual([x['seq'] for x in page['chunks']], self.kept(p))
        got = b''.join(unb64(x['chunk']) for x in page['chunks'])
        self.assertEqual(got, data[-len(got):])
        self.assertEqual(page['nextSeq'], p.close_seq + 1)

    def test_the_newest_mebibyte_is_kept(self):
        c = self.session()
        c.keep_output = False
        c.run([PYTHON, '-S', '-c', PATTERN, '3000000'], 'p')
        self.check(c, 'p', pattern(3000000))

    def test_exactly_one_mebibyte_is_kept_whole(self):
        c = self.session()
        c.run([PYTHON, '-S', '-c', PATTERN, str(MIB)], 'p')
        self.assertEqual(b''.join(unb64(x['chunk']) for x in c.read('p')['chunks']), pattern(MIB))

    def test_retention_does_not_depend_on_reading(self):
        c = self.session()
        c.keep_output = False
        c.start('p', [PYTHON, '-S', '-c', PATTERN, '3000000'])
        while not c.read('p', waitMs=1000)['closed']:
            pass
        c.wait_closed('p')
        self.check(c, 'p', pattern(3000000))

    def test_paging_across_an_eviction_shows_the_gap(self):
        c = self.session()
        c.keep_output = False
        p = c.run([PYTHON, '-S', '-c', PATTERN, '3000000'], 'p')
        page = c.read('p', afterSeq=1, maxBytes=0)
        self.assertGreater(page['chunks'][0]['seq'], 2)
        self.assertEqual(page['chunks'][0]['seq'], self.kept(p)[0])
        chunks, _last = read_all(c, 'p', max_bytes=100000)
        self.assertEqual([x['seq'] for x in chunks], self.kept(p))

    @ours_only
    def test_fifty_thousand_chunks_are_kept(self):
        # One byte at a time, each read before the next is written.
        script = ('import os, fcntl, struct, termios\n'
                  'for i in range(50200):\n'
                  '    os.write(1, b"ab"[i & 1:][:1])\n'
                  '    while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, b"1234"))[0]: os.sched_yield()\n')
        c = self.session()
        c.run([PYTHON, '-S', '-c', script], 'p')
        p = c.process('p')
        self.assertEqual(p.sizes['stdout'], 50200)
        if len(p.chunks) <= 50000:
            self.skipTest('the chunks ran together')
        page = c.read('p')
        self.assertEqual([x['seq'] for x in page['chunks']], self.kept(p))
        self.assertEqual(len(page['chunks']), 50000)

    def test_detached_output_is_kept_and_forgotten_by_the_same_rule(self):
        c = self.session()
        gate = Gate(self.srv.work)
        c.start('p', ['/bin/sh', '-c', 'echo $$; %s; exec "$0" -S -c "$1" 3000000' % gate.wait, PYTHON, PATTERN])
        pid = int(c.wait_line('p'))
        c.close()
        gate.open()
        wait_until(lambda: not is_alive(pid), 'end of the writer, which nobody reads')
        c = self.srv.session(resume=c.session_id)
        # The last output may still be in the pipe; while it is read, older chunks are forgotten between two pages.
        self.assertTrue(c.read('p', afterSeq=2**53, waitMs=600000)['closed'])
        chunks, last = read_all(c, 'p')
        got = b''.join(unb64(x['chunk']) for x in chunks)
        self.assertLessEqual(len(got), MIB)
        self.assertGreater(len(got), MIB - 65536)
        self.assertEqual(got, pattern(3000000)[-len(got):])
        self.assertEqual(chunks[-1]['seq'] + 3, last['nextSeq'])


class Flow(Case):
    SIZE = 24000000

    def flood(self, c, name='p'):
        """A command that says its pid and writes a lot; the client reads only the pid."""
        c.keep_output = False
        c.start(name, ['/bin/sh', '-c', 'echo $$ > pid-%s; exec "$0" -S -c "$1" %d' % (name, self.SIZE), PYTHON, PATTERN])
        path = os.path.join(self.srv.work, 'pid-' + name)
        wait_until(lambda: os.path.exists(path) and open(path).read().endswith('\n'), 'pid')
        with open(path) as f:
            pid = int(f.read())
        self.srv.track(pid)
        return pid

    def whole(self, p):
        self.assertEqual((p.exit_code, p.sizes['stdout']), (0, self.SIZE))
        self.assertEqual(p.hashes['stdout'].hexdigest(), hashlib.sha256(pattern(self.SIZE)).hexdigest())

    def test_a_client_that_does_not_read_blocks_its_child_and_loses_nothing(self):
        c = self.session()
        pid = self.flood(c)
        self.assertLess(wait_blocked(pid), self.SIZE)
        other = self.srv.session()
        for _ in range(5):
            self.assertEqual(other.sh('echo hi').stdout, b'hi\n')
        self.assertTrue(is_alive(pid))
        self.whole(c.wait_closed('p'))

    @ours_only
    def test_the_server_holds_little_for_a_client_that_does_not_read(self):
        c = self.session()
        before = self.srv.memory()
        pid = self.flood(c)
        wait_blocked(pid)
        self.assertLess(self.srv.memory() - before, 48 * MIB)
        self.whole(c.wait_closed('p'))

    def test_when_the_silent_client_goes_its_child_runs_on(self):
        c = self.session()
        pid = self.flood(c)
        wait_blocked(pid)
        c.abort()
        wait_until(lambda: not is_alive(pid), 'end of the child')
        c = self.srv.session(resume=c.session_id)
        # The last output may still be in the pipe; while it is read, older chunks are forgotten between two pages.
        self.assertTrue(c.read('p', afterSeq=2**53, waitMs=600000)['closed'])
        chunks, last = read_all(c, 'p')
        got = b''.join(unb64(x['chunk']) for x in chunks)
        self.assertEqual(got, pattern(self.SIZE)[-len(got):])
        self.assertGreater(len(got), MIB - 65536)
        self.assertEqual((last['exitCode'], last['closed']), (0, True))

    @ours_only
    def test_a_blocked_child_can_be_terminated(self):
        c = self.session()
        pid = self.flood(c)
        wait_blocked(pid)
        end = c.post('process/terminate', {'processId': 'p'})
        wait_until(lambda: not is_alive(pid), 'end of the child')
        self.assertEqual(c.result(end), {'running': True})
        p = c.wait_closed('p')
        self.assertEqual(p.exit_code, 137)
        self.assertLess(p.sizes['stdout'], self.SIZE)

    @ours_only
    def test_several_floods_over_one_connection_arrive_whole(self):
        c = self.session()
        for i in range(4):
            self.flood(c, 'p%d' % i)
        for i in range(4):
            self.whole(c.wait_closed('p%d' % i))

    def test_a_child_that_writes_for_ever_is_ended_by_terminate(self):
        c = self.session()
        c.keep_output = False
        c.start('p', ['yes'])
        c.wait_for(lambda: c.process('p').sizes['stdout'] > 5 * MIB)
        end = c.post('process/terminate', {'processId': 'p'})
        self.assertEqual(c.result(end), {'running': True})
        self.assertEqual(c.wait_closed('p').exit_code, 137)

    @ours_only
    def test_requests_are_served_during_a_flood(self):
        c = self.session()
        c.keep_output = False
        c.start('p', ['yes'])
        c.wait_for(lambda: c.process('p').sizes['stdout'] > MIB)
        for _ in range(20):
            self.assertEqual(c.fence(), {'status': 'ready'})
        self.assertEqual(c.run(['echo', 'hi']).sizes['stdout'], 3)
        c.terminate('p')
        c.wait_closed('p')

    def test_short_lines_arrive_whole(self):
        c = self.session()
        p = c.run(['seq', '1', '200000'])
        self.assertEqual(hashlib.sha256(p.stdout).hexdigest(),
                         hashlib.sha256(b''.join(b'%d\n' % i for i in range(1, 200001))).hexdigest())


class Chatty(Case):
    """Commands whose pipes the cell enlarges, and which rest between reads."""

    WRITER = (
        "import fcntl, os, sys, time\n"
        "def put(fd, data):\n"
        "    while data:\n"
        "        data = data[os.write(fd, data):]\n"
        "lines = [b'%07d\\n' % i for i in range(int(sys.argv[2]))]\n"
        "def lines_one_by_one():\n"
        "    for line in lines: put(1, line)\n"
        "def lines_by_stdio():\n"
        "    data = b''.join(lines)\n"
        "    for i in range(0, len(data), 4096): put(1, data[i:i + 4096])\n"
        "def blocks():\n"
        "    data = b''.join(lines)\n"
        "    for i in range(0, len(data), 65536): put(1, data[i:i + 65536])\n"
        "def two_streams():\n"
        "    for i, line in enumerate(lines): put(1 + i % 2, line)\n"
        "def sizes(most=10):\n"
        "    blocks()\n"
        "    end = time.monotonic() + most\n"
        "    while fcntl.fcntl(1, 1032) < 262144 and time.monotonic() < end: time.sleep(0.001)\n"
        "    os.write(2, b'%d' % fcntl.fcntl(1, 1032))\n"
        "def soon(): sizes(0.2)\n"
        "def silences():\n"
        "    for i in range(20):\n"
        "        for line in lines: put(1, line)\n"
        "        time.sleep(0.02)\n"
        "        os.write(2, b'%d' % time.monotonic_ns())\n"
        "        time.sleep(0.02)\n"
        "globals()[sys.argv[1]]()\n")

    def write(self, c, how, count, process_id=None):
        return c.run([PYTHON, '-S', '-c', self.WRITER, how, str(count)], process_id)

    def check(self, c, count=60000):
        lines = [b'%07d\n' % i for i in range(count)]
        for how in ('lines_one_by_one', 'lines_by_stdio', 'blocks'):
            p = self.write(c, how, count)
            self.assertEqual((p.exit_code, p.stdout, p.stderr), (0, b''.join(lines), b''), how)
        p = self.write(c, 'two_streams', count)
        self.assertEqual((p.exit_code, p.stdout, p.stderr), (0, b''.join(lines[::2]), b''.join(lines[1::2])))

    @ours_only
    def test_every_writer_keeps_its_bytes_and_their_order(self):
        c = self.session()
        self.check(c)
        self.assertEqual(self.write(c, 'sizes', 40000).stderr, b'262144')
        self.assertEqual(self.write(c, 'soon', 10000).stderr, b'65536')  # 80 kB: not chatty

    @ours_only
    def test_a_pipe_that_cannot_be_enlarged_carries_the_same_bytes(self):
        c = self.session(prefix=[REFUSE, 'pipesize=EPERM', '--'])
        self.check(c)
        self.assertEqual(self.write(c, 'soon', 40000).stderr, b'65536')

    @ours_only
    def test_a_byte_after_a_chatty_phase_comes_soon(self):
        # the shortest of 20: a busy machine delays some, a rest that is too long delays all
        c = self.session()
        c.start('p', [PYTHON, '-S', '-c', self.WRITER, 'silences', '2000'])
        delays, seen = [], 0
        while not c.process('p').closed:
            c.pump()
            p = c.process('p')
            if len(p.stderr) > seen:
                delays.append(time.monotonic_ns() - int(p.stderr[seen:].decode()))
                seen = len(p.stderr)
        self.assertLess(min(delays), 2000000)
        self.assertEqual(p.stdout, b''.join(b'%07d\n' % i for i in range(2000)) * 20)

    @ours_only
    @tap.long
    def test_detached_and_slow_clients_get_the_same_bytes(self):
        count = 100000  # 800 kB: less than retention
        whole = b''.join(b'%07d\n' % i for i in range(count))
        c = self.session()
        c.start('p', [PYTHON, '-S', '-c', self.WRITER, 'lines_one_by_one', str(count)])
        c.abort()
        c = self.srv.session(resume=c.session_id)
        self.assertTrue(c.read('p', afterSeq=2**53, waitMs=600000)['closed'])
        self.assertEqual(b''.join(unb64(x['chunk']) for x in read_all(c, 'p')[0]), whole)
        slow = self.srv.session()
        slow.start('q', [PYTHON, '-S', '-c', self.WRITER, 'lines_one_by_one', str(count)])
        time.sleep(1)  # nothing is read meanwhile
        self.assertEqual(slow.wait_closed('q').stdout, whole)


if __name__ == '__main__':
    tap.main()
