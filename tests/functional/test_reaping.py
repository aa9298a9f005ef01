# SPDX-License-Identifier: Apache-2.0
"""Reaping: each exit is told of the command that ended, whatever ends beside it, and no signal reaches a process that has got
the number of a dead one."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import tap
from server import MORE_ARGS, Case, ours_only, stat_of
from wire import wait_until

INSIDE = 'SALLYPORT_TEST_FEW_PIDS'  # set in the pid namespace of FewPids
BURN = 'import time\nwhile time.process_time() < 0.3: pass\n'


def is_zombie(pid):
    stat = stat_of(pid)
    return stat is None or stat[0] == 'Z'


@ours_only
class ManyAtOnce(Case):
    """Commands and strays that end while the cell stands still, so that it hears of all by one signal."""

    def crowd(self, *args, count=64):
        self.srv = self.server(*args)
        c = self.srv.connect()
        c.takes_receipts = True
        c.handshake()
        # A daemon of a command that has ended: without cgroups a child of the cell.
        p = c.sh('setsid sleep 1000 >&- 2>&- & echo $!')
        stray = int(p.stdout)
        for i in range(count):
            burn = '%s -I -S -c "%s"; ' % (sys.executable, BURN) if i == 7 else ''
            c.start('p%d' % i, ['/bin/sh', '-c', '%secho $$; read x; exit %d' % (burn, i + 1)], pipeStdin=True)
        pids = [int(c.wait_line('p%d' % i)) for i in range(count)]
        cell = stat_of(pids[0])[1]
        os.kill(cell, signal.SIGSTOP)
        try:
            for i in range(count):  # the front writes this, not the cell
                c.write('p%d' % i, b'go\n')
            os.kill(stray, signal.SIGKILL)
            wait_until(lambda: all(map(is_zombie, pids)), 'the ends of the commands')
        finally:
            os.kill(cell, signal.SIGCONT)
        for i in range(count):
            p = c.wait_closed('p%d' % i)
            self.assertEqual((p.exit_code, p.exit_seq, p.close_seq), (i + 1, 2, 3))
            self.assertEqual(p.receipt['userMs'] + p.receipt['systemMs'] >= 250, i == 7, (i, p.receipt))
        self.assertEqual(c.sh('echo on').stdout, b'on\n')

    def test_every_exit_is_told_of_its_command(self):
        self.crowd()

    def test_also_without_cgroups(self):
        self.crowd('--no-cgroups')


@ours_only
class FewPids(Case):
    """Numbers of processes are used again after a hundred starts."""

    def test_no_signal_reaches_a_foreign_process(self):
        self.run_inside(self.signal_and_start)

    @tap.long
    def test_a_start_without_a_pid_names_the_limit(self):
        self.run_inside(self.start_until_refused)

    def run_inside(self, work):
        if INSIDE in os.environ:
            work()
            return
        unshare = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc', '--']
        if shutil.which('unshare') is None or subprocess.call([*unshare, 'sh', '-c', 'echo 500 > /proc/sys/kernel/pid_max'],
                                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0:
            self.skipTest('a pid namespace cannot be made here, or has no pid_max of its own')
        with open('/proc/sys/kernel/pid_max') as f:
            self.assertGreater(int(f.read()), 500)
        # The first process of the namespace must not be ours: it would inherit orphans.
        done = subprocess.run([*unshare, 'sh', '-c', 'echo 500 > /proc/sys/kernel/pid_max; "$@"; exit $?', 'sh', sys.executable, __file__,
                               self._testMethodName], env={**os.environ, INSIDE: '1'}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout.decode())

    def start_until_refused(self):
        c = self.session('--cells', '1')
        for i in range(500):
            answer = c.reply(c.post_start('p%d' % i, ['sleep', '1000']))
            if 'error' in answer:
                break
        self.assertError(answer['error'], -32603, 'no process left (kernel.pid_max = 500, or a lower limit of the user or the cgroup): '
                                                  'Resource temporarily unavailable (os error 11)')
        for k in range(i - 9, i):  # the first 300 numbers are not given again
            c.terminate('p%d' % k)
            c.wait_closed('p%d' % k)
        c.start('again', ['sleep', '1000'])

    def signal_and_start(self):
        witnesses = [subprocess.Popen(['sleep', '1000']) for _ in range(50)]
        for w in witnesses:
            self.addCleanup(lambda w=w: (w.kill(), w.wait()))
        c = self.session()
        chance = random.Random(41)
        most = 200000 if tap.IS_LONG else 1500
        end = time.monotonic() + (400 if tap.IS_LONG else 8)
        ended, seen, n = [], set(), 0
        while n <= 600 or (n < most and time.monotonic() < end):  # so many that numbers are used again
            names = ['p%d' % (n + i) for i in range(8)]
            n += 8
            starts = [c.post_start(name, ['/bin/true'] if chance.random() < 0.6 else ['sleep', '1000']) for name in names]
            for name, start in zip(names, starts):
                c.result(start)
                what = chance.random()
                if what < 0.3:
                    c.post('process/signal', {'processId': name, 'signal': 'interrupt'})
                c.post('process/terminate', {'processId': name})
                if ended and what > 0.5:
                    c.post('process/terminate', {'processId': chance.choice(ended)})
            ended = names
            for name in names:
                c.wait_closed(name)
            for p in c.request('process/list')['processes']:
                seen.add(p.get('pid'))
        self.assertLess(len(seen), 500)  # the numbers are few
        self.assertGreater(n, 500)  # and were used again
        self.assertEqual([w.poll() for w in witnesses], [None] * len(witnesses))


if __name__ == '__main__':
    tap.main()
