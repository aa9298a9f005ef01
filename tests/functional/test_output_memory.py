# SPDX-License-Identifier: Apache-2.0
"""The memory of output: 64 rings in a memory file, warm and given back; a budget for all, shared fairly."""

import ctypes
import hashlib
import os
import random
import re
import signal
import subprocess
import unittest

import tap
from server import PROGRAM, SANITIZED, Case, descendants, fd_names, is_alive, name_of, ours_only, stat_of
from wire import MIB, unb64, wait_until

RING = 2863104  # SP_RING_AREA
HEADERS = 64 * 512  # before the areas of a segment


def metric(srv, name):
    return int(re.search(r'^sallyport_%s (\d+)' % name, srv.http('GET', '/metrics').body.decode(), re.M).group(1))


def cells(srv):
    found = [p for p in descendants(srv.pid) if name_of(p) == 'sallyport cell']  # and children of theirs before execve
    return [p for p in found if (stat_of(p) or [None, None])[1] == srv.pid]


def segments(pid):
    return sum('memfd:sallyport-rings' in name for name in fd_names(pid))


def held(srv):
    """Bytes that the kernel holds for the rings; as root, who may look into the cells."""
    total = 0
    for pid in cells(srv):
        for fd in os.listdir('/proc/%d/fd' % pid):
            path = '/proc/%d/fd/%s' % (pid, fd)
            if 'memfd:sallyport-rings' in os.readlink(path):
                total += os.stat(path).st_blocks * 512
    return total


@ours_only
class Segments(Case):
    def test_many_commands_share_a_few_files(self):
        count = 300
        c = self.session('--cells', '1')
        for start in [c.post_start('p%d' % i, ['sleep', '1000']) for i in range(count)]:
            c.result(start)
        cell, = cells(self.srv)
        if fd_names(cell):
            self.assertEqual(segments(cell), (count + 63) // 64)
            for pid in (self.srv.pid, cell):
                with open('/proc/%d/maps' % pid) as f:
                    self.assertEqual(sum('memfd:sallyport-rings' in line for line in f), (count + 63) // 64)
        self.assertEqual(segments(self.srv.pid), 0)  # the cell has them
        self.assertEqual(metric(self.srv, 'ring_touched_bytes'), 0)

    def test_a_slot_tells_nothing_of_earlier_commands(self):
        rng = random.Random(11)
        c = self.session('--closed-ttl', '0', '--cells', '1')
        if tap.IS_LONG:
            signal.alarm(3600)
        for first in range(0, 208 if not tap.IS_LONG else 100000, 16):
            wanted = {'p%d' % i: (rng.choice([0, 0, 1, 100, 5000, 100000] if i % 4 == 0 else [0, 1, 50]), i, rng.randrange(200))
                      for i in range(first, first + 16)}
            for name, (size, i, code) in wanted.items():
                script = "head -c %d /dev/zero | tr '\\0' %c; exit %d" if size > 100 else "printf %%0%dd 0 | tr 0 %c; exit %d" if size else ": %d %c; exit %d"
                c.post_start(name, ['/bin/sh', '-c', script % (size, 97 + i % 26, code)])
            for name, (size, i, code) in wanted.items():
                p = c.wait_closed(name)
                self.assertEqual((bytes(p.stdout), p.exit_code), (bytes([97 + i % 26]) * size, code))
                c.processes.pop(name)
        cell, = cells(self.srv)
        if fd_names(cell):
            self.assertEqual(segments(cell), 1)

    def test_free_slots_keep_sixteen_mebibytes(self):
        c = self.session('--closed-ttl', '0', '--cells', '1')
        c.keep_output = False
        for i in range(20):
            c.post_start('p%d' % i, ['head', '-c', '4000000', '/dev/zero'])
        for i in range(20):
            c.wait_closed('p%d' % i)
        wait_until(lambda: metric(self.srv, 'processes_live') == 0, 'all are closed')
        wait_until(lambda: metric(self.srv, 'ring_touched_bytes') <= 16 * MIB, 'memory given back')
        self.assertGreater(metric(self.srv, 'ring_touched_bytes'), 16 * MIB - RING)  # and no more than that

    def test_a_silent_terminal_costs_little(self):
        count = 100 if not tap.IS_LONG else 500
        c = self.session('--cells', '1')

        def cost():
            total = 0
            for pid in [self.srv.pid] + cells(self.srv):
                with open('/proc/%d/status' % pid) as f:
                    kib = dict(re.findall(r'^(RssAnon|RssShmem|VmPTE):\s+(\d+) kB', f.read(), re.M))
                shared = int(kib['RssShmem']) if pid != self.srv.pid else 0  # the same pages in both
                total += int(kib['RssAnon']) + shared + int(kib['VmPTE'])
            return total * 1024

        def start(name, count):
            for first in range(0, count, 16):
                for request in [c.post_start('%s%d' % (name, i), ['sleep', '1000'], tty=True) for i in range(first, min(first + 16, count))]:
                    c.result(request)
        start('first', 30)
        before = cost()
        start('p', count)
        if not SANITIZED:
            self.assertLess((cost() - before) / count, 3800 if tap.IS_LONG else 4200)  # of 100 each page counts

    @tap.long
    def test_unused_files_go_after_a_minute(self):
        c = self.session('--closed-ttl', '0', '--cells', '1')
        for start in [c.post_start('p%d' % i, ['cat'], pipeStdin=True) for i in range(200)]:
            c.result(start)
        cell, = cells(self.srv)
        for i in range(200):
            c.terminate('p%d' % i)
        for i in range(200):
            c.wait_closed('p%d' % i)
        if fd_names(cell):
            self.assertEqual(segments(cell), 4)
            # The client answers pings meanwhile.
            wait_until(lambda: c.fence() and segments(cell) == 1, 'the files of 136 slots are closed', 90, step=1)
        self.assertEqual(c.sh('echo on').text, 'on\n')


@ours_only
@unittest.skipUnless(os.geteuid() == 0, 'for root, who may open the descriptors of the cell')
class Damage(Case):
    """What the cell or the front could do to the memory that both have, done from outside."""

    PUNCH, KEEP = 2, 1

    def setUp(self):
        super().setUp()
        self.c = self.session('--cells', '1')
        for name in ('p0', 'p1'):  # in slots 0 and 1
            self.c.start(name, ['/bin/sh', '-c', 'echo first; while read n; do head -c "$n" /dev/zero | tr "\\0" x; echo; done'], pipeStdin=True)
            self.c.wait_output(name, 'first\n')
        self.cell, = cells(self.srv)
        path, = ['/proc/%d/fd/%s' % (self.cell, fd) for fd in os.listdir('/proc/%d/fd' % self.cell)
                 if 'memfd:sallyport-rings' in os.readlink('/proc/%d/fd/%s' % (self.cell, fd))]
        self.fd = os.open(path, os.O_RDWR)
        self.addCleanup(os.close, self.fd)

    def check_other(self):
        self.assertEqual(unb64(self.c.read('p1')['chunks'][0]['chunk']), b'first\n')
        before = self.c.process('p1').sizes['stdout']
        self.c.write('p1', b'2000000\n')
        self.c.wait_for(lambda: self.c.process('p1').sizes['stdout'] == before + 2000001, 'two million bytes')
        self.assertEqual(self.c.sh('echo on').stdout, b'on\n')
        self.assertTrue(is_alive(self.cell))

    def test_the_size_is_fixed(self):
        size = os.fstat(self.fd).st_size
        for wrong in (0, size - 4096, size + 4096):
            with self.assertRaises(PermissionError):
                os.ftruncate(self.fd, wrong)
        self.check_other()

    def test_a_hole_fails_its_process_alone(self):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        self.assertEqual(libc.fallocate(self.fd, self.PUNCH | self.KEEP, HEADERS, RING), 0)
        self.assertError(self.c.error('process/read', {'processId': 'p0'}), -32603, 'the output of the process cannot be read any more')
        self.check_other()

    def test_records_that_are_not_true_harm_no_other(self):
        """The cell reads the lengths of old records again when it evicts them."""
        self.c.strict = False  # what p0 had is forgotten: its numbers jump

        def has_closed():
            return any(p['processId'] == 'p0' and p['state'] == 'closed' for p in self.c.request('process/list')['processes'])
        for n, damage in enumerate((b'\xff' * 64, b'\0' * 64, os.urandom(64)), 1):
            os.pwrite(self.fd, damage, HEADERS)
            if not has_closed():
                self.c.write('p0', b'1500000\n')
            self.c.wait_for(lambda n=n: has_closed() or metric(self.srv, 'output_bytes_total') >= n * 1500000, 'output, or the end')
        self.check_other()


@ours_only
class Budget(Case):
    """Detached commands with 4 MiB of output each have 64 MiB in all."""

    def setUp(self):
        super().setUp()
        self.count = 1000 if tap.IS_LONG else 40 if SANITIZED else 100
        self.dir = self.scratch()
        block = b''.join(hashlib.sha256(b'%d' % i).digest() for i in range(4096))
        self.output = b''.join(hashlib.sha256(b'%d' % i).digest() + block[:65504] for i in range(64))
        with open(self.path('output'), 'wb') as f:
            f.write(self.output)
        for name in ('begin', 'end', 'last'):
            os.mkfifo(self.path(name))
        self.srv = self.server('--output-memory', '64M', '--closed-ttl', '0', '--session-ttl', '120')

    def path(self, name):
        return os.path.join(self.dir, name)

    def open_gate(self, name):
        fd = os.open(self.path(name), os.O_RDWR)  # lets all in that wait, and that come later
        self.addCleanup(os.close, fd)

    def start_crowd(self):
        c = self.srv.session()
        script = 'exec 3< %s; cat %s; exec 3< %s' % tuple(map(self.path, ('begin', 'output', 'end')))
        for start in [c.post_start('p%d' % i, ['/bin/sh', '-c', script]) for i in range(self.count)]:
            c.result(start)
        c.close()
        wait_until(lambda: metric(self.srv, 'connections_active') == 0, 'it is detached')
        return c.session_id

    def wait_written(self, more=0):
        want = (self.count + more) * len(self.output)
        wait_until(lambda: metric(self.srv, 'output_bytes_total') >= want, 'all is written', 120)

    def check_kept(self, c, name, least):
        """What is kept is the end of the output, without a hole, and what is missing shows."""
        chunks = []
        while True:
            page = c.read(name, afterSeq=chunks[-1]['seq'] if chunks else 0, waitMs=0)
            if not page['chunks']:
                break
            chunks += page['chunks']
        data = b''.join(unb64(chunk['chunk']) for chunk in chunks)
        self.assertGreaterEqual(len(data), least)
        self.assertEqual(data, self.output[-len(data):])
        seqs = [chunk['seq'] for chunk in chunks]
        self.assertEqual(seqs, list(range(seqs[0], seqs[0] + len(seqs))))
        self.assertGreater(seqs[0], 1)

    def test_the_newest_of_each_is_kept(self):
        session = self.start_crowd()
        self.open_gate('begin')
        self.wait_written()
        wait_until(lambda: metric(self.srv, 'ring_touched_bytes') < 76 * MIB, 'memory given back')
        share = metric(self.srv, 'ring_keep_bytes')
        self.assertLess(share, RING)
        if os.geteuid() == 0:
            self.assertLess(held(self.srv), 80 * MIB)
        c = self.srv.session(resume=session)
        for i in range(self.count):
            self.check_kept(c, 'p%d' % i, 48 << 10)
        # When they have ended, output is kept as before.
        self.open_gate('end')
        for i in range(self.count):
            c.wait_closed('p%d' % i)
        wait_until(lambda: metric(self.srv, 'ring_touched_bytes') <= 16 * MIB, 'memory given back')
        wait_until(lambda: metric(self.srv, 'ring_keep_bytes') == RING, 'no share is needed', 60)
        before = metric(self.srv, 'output_bytes_total')
        c.start('again', ['/bin/sh', '-c', 'exec 3< %s; cat %s; exec 3< %s' % tuple(map(self.path, ('begin', 'output', 'last')))])
        c.close()
        wait_until(lambda: metric(self.srv, 'output_bytes_total') == before + len(self.output), 'all is written')
        self.check_kept(self.srv.session(resume=session), 'again', MIB - 65536)

    def test_an_attached_client_loses_nothing(self):
        self.start_crowd()
        slow = self.srv.session(rcvbuf=4096)
        slow.start('slow', ['cat', self.path('output')])
        self.open_gate('begin')
        wait_until(lambda: metric(self.srv, 'ring_keep_bytes') < RING, 'a share', 60)
        slow.start('later', ['cat', self.path('output')])
        for name in ('slow', 'later'):
            self.assertEqual(hashlib.sha256(slow.wait_closed(name).stdout).digest(), hashlib.sha256(self.output).digest())
        self.wait_written()
        wait_until(lambda: metric(self.srv, 'ring_touched_bytes') < 76 * MIB, 'memory given back')
        self.open_gate('end')

    def test_other_budgets_are_refused(self):
        for bad in ('63M', '0', '1K', 'M', '64X', '-1', '2000G', '99999999999999999999', ''):
            r = subprocess.run([PROGRAM, 'serve', '--output-memory', bad], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            self.assertEqual(r.returncode, 2, bad)
            self.assertIn('is not a number of bytes such as 512M, from 64M to 1024G', r.stderr)


if __name__ == '__main__':
    tap.main()
