# SPDX-License-Identifier: Apache-2.0
"""Several open cells: which of them runs a command, and how one of them ends."""

import collections
import os
import re
import resource
import signal
import time

import tap
from server import Case, descendants, fd_names, is_alive, ours_only
from wire import deadline, wait_until

SLEEP = 'echo $PPID; exec sleep 1000'
# Leaves a process in a session of its own, which holds none of the streams.
STRAY = '(setsid sleep 1000 < /dev/null > /dev/null 2>&1 &); echo $PPID'
LEAVE = STRAY + '; exec sleep 1000'
IN_FLIGHT = 64


def limited(n):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))


@ours_only
class Cells(Case):
    bursts = 0

    def count(self):
        """Open cells, as the metrics tell."""
        return int(re.search(r'^sallyport_cells (\d+)$', self.srv.http(path='/metrics').body.decode(), re.M).group(1))

    def start_all(self, c, script, ids):
        """Starts all at once; the cell (the parent) of each."""
        posted = [c.post_start(i, ['/bin/sh', '-c', script]) for i in ids]
        for request in posted:
            c.result(request)
        return {i: int(c.wait_line(i)) for i in ids}

    def load(self, c, cells):
        """Starts until so many cells are there."""
        end = deadline()
        while self.count() < cells:
            self.assertLess(time.monotonic(), end, 'cells under load')
            self.bursts += 1
            self.start_all(c, 'echo $PPID', ['load-%d-%d' % (self.bursts, i) for i in range(IN_FLIGHT)])

    def spread(self, c, cells, script):
        """Commands in every cell, by the pid of the cell."""
        self.load(c, cells)
        where = self.start_all(c, script, ['p%d' % i for i in range(8 * cells)])
        found = collections.defaultdict(list)
        for name, cell in where.items():
            found[cell].append(name)
        self.assertEqual(len(found), cells, 'a burst uses all cells')
        return found

    def test_many_at_once_use_several_cells(self):
        c = self.session('--cells', '4')
        self.assertEqual(self.count(), 1)
        self.load(c, 3)

    def test_one_after_another_uses_the_first(self):
        c = self.session('--cells', '4')
        first = {int(c.sh('echo $PPID').stdout) for _ in range(40)}
        self.assertEqual((len(first), self.count()), (1, 1))
        self.load(c, 2)
        for i in range(IN_FLIGHT):  # the burst has closed before one goes on
            c.wait_closed('load-%d-%d' % (self.bursts, i))
        self.assertEqual({int(c.sh('echo $PPID').stdout) for _ in range(40)}, first)

    def test_loaded_cells_share_the_starts(self):
        c = self.session('--cells', '2')
        self.load(c, 2)
        shares = collections.Counter()
        for n in range(tap.IS_LONG * 40 + 5):
            shares.update(self.start_all(c, 'echo $PPID', ['s-%d-%d' % (n, i) for i in range(IN_FLIGHT)]).values())
        self.assertEqual(len(shares), 2)
        self.assertLessEqual(max(shares.values()) / sum(shares.values()), 0.6, shares)

    def test_one_cell_stays_alone(self):
        c = self.session('--cells', '1')
        for n in range(4):
            cells = self.start_all(c, 'echo $PPID', ['p-%d-%d' % (n, i) for i in range(IN_FLIGHT)])
            self.assertEqual(len(set(cells.values())), 1)
        self.assertEqual(self.count(), 1)

    def test_a_killed_cell_loses_its_own_commands_only(self):
        c = self.session('--cells', '3')
        found = self.spread(c, 3, SLEEP)
        victim = list(found)[-1]
        os.kill(victim, signal.SIGKILL)
        for name in found[victim]:
            self.assertEqual(c.wait_closed(name).exit_code, -1)
        self.assertNotEqual(int(c.sh('echo $PPID').stdout), victim)
        for cell, names in found.items():
            for name in names:
                self.assertEqual(c.process(name).closed, cell == victim, name)
        self.assertEqual(self.count(), 2)
        self.load(c, 3)  # another one takes its place

    def test_the_first_cell_is_made_again(self):
        c = self.session('--cells', '3')
        first = int(c.sh('echo $PPID').stdout)
        found = self.spread(c, 3, SLEEP)
        before = len(fd_names(self.srv.pid))
        os.kill(first, signal.SIGKILL)
        for name in found[first]:
            self.assertEqual(c.wait_closed(name).exit_code, -1)
        again = {int(c.sh('echo $PPID').stdout) for _ in range(10)}
        self.assertEqual(len(again), 1)
        self.assertNotIn(again.pop(), found)
        wait_until(lambda: len(fd_names(self.srv.pid)) <= before, 'the front to free what it had of the lost cell')
        self.assertEqual(c.request('fs/getMetadata', {'path': 'file:///etc'})['isDirectory'], True)

    def test_the_end_of_a_session_reaches_every_cell(self):
        for args in ((), ('--no-cgroups',)):
            with self.subTest(args=args):
                c = self.session('--cells', '4', '--session-ttl', '0', *args)
                other = self.srv.session()
                found = self.spread(c, 4, LEAVE)
                others = self.start_all(other, SLEEP, ['o%d' % i for i in range(8)])
                pids = {p for cell in found for p in descendants(cell)}
                c.close()
                wait_until(lambda: sum(map(is_alive, pids)) == len(others), 'end of all processes of the session')
                self.assertFalse(any(other.process(name).closed for name in others))
                self.srv.stop()

    def test_a_full_descriptor_table(self):
        """What one cell cannot hold another one does."""
        few = 160
        c = self.session('--cells', '1', before_exec=limited(few))
        one = 0
        while one < few:
            answer = c.reply(c.post_start('p%d' % one, ['/bin/sleep', '1000']))
            if 'error' in answer:
                self.assertError(answer['error'], -32603, 'no descriptor left (RLIMIT_NOFILE = %d): Too many open files (os error 24)' % few)
                break
            one += 1
        self.assertLess(one, few, 'the table of the cell is never full')
        c = self.session('--cells', '2', before_exec=limited(few))
        for i in range(one + one // 2):
            c.start('p%d' % i, ['/bin/sleep', '1000'])
        self.assertEqual(self.count(), 2)

    @tap.long
    def test_idle_cells_end(self):
        c = self.session('--cells', '3', '--session-ttl', '0')
        first = int(c.sh('echo $PPID').stdout)
        owner = self.srv.session()
        self.load(c, 3)
        where = self.start_all(owner, STRAY, ['stray-%d' % i for i in range(24)])
        for name in where:
            owner.wait_closed(name)
        kept = set(where.values()) - {first}
        self.assertTrue(kept, 'a burst uses all cells')
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 75, 'the time that idle cells have', 90, step=1)
        self.assertEqual([is_alive(cell) for cell in kept], [True] * len(kept), 'the cell of a stray has ended')
        owner.close()  # its session ends, and the strays with it
        wait_until(lambda: self.count() == 1, 'end of the idle cells', 90, step=1)
        self.assertGreaterEqual(time.monotonic() - began, 120)
        self.assertEqual(int(self.srv.session().sh('echo $PPID').stdout), first)


if __name__ == '__main__':
    tap.main()
