# SPDX-License-Identifier: Apache-2.0
"""serve --busy-poll: when the server polls for an event instead of sleeping."""

import os
import re
import signal
import shutil
import subprocess
import sys
import time

import tap
from server import PROGRAM, Case, ours_only
from wire import wait_until

SHARE = 0.05  # of a second, in which auto may poll


def cpu_s(pids):
    """Processor time of the processes."""
    total = 0
    for pid in pids:
        for task in os.listdir('/proc/%d/task' % pid):
            with open('/proc/%d/task/%s/schedstat' % (pid, task)) as f:
                total += int(f.read().split()[0])
    return total / 1e9


@ours_only
class BusyPoll(Case):
    def polled(self, srv):
        page = srv.http(path='/metrics').body.decode()
        return float(re.search(r'^sallyport_busy_poll_seconds_total (\S+)$', page, re.M).group(1))

    def terminal(self, *args, **how):
        c = self.session(*args, **how)
        c.start('cat', ['/bin/sh', '-c', 'stty raw -echo; echo up; exec cat'], tty=True)
        c.wait_output('cat', 'up')
        return c

    def echo(self, c):
        before = c.process('cat').sizes['pty']
        c.write('cat', b'x')
        c.wait_for(lambda: c.process('cat').sizes['pty'] > before, 'the echo')

    def echoes(self, c, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.echo(c)

    def yields(self, srv, work):
        """How often the server gives its processor away meanwhile."""
        if shutil.which('strace') is None:
            self.skipTest('no strace')
        log = os.path.join(self.scratch(), 'calls')
        tracer = subprocess.Popen(['strace', '-f', '-e', 'trace=sched_yield', '-o', log, '-p', str(srv.pid)], stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: b'TracerPid:\t%d\n' % tracer.pid in open('/proc/%d/status' % srv.pid, 'rb').read(), 'the tracer')
            work()
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
        with open(log) as f:
            return f.read().count('sched_yield(')

    def test_off_never_yields(self):
        c = self.terminal('--busy-poll', 'off')
        self.assertEqual(self.yields(self.srv, lambda: [self.echo(c) for _ in range(1000)]), 0)
        self.assertEqual(self.polled(self.srv), 0)

    def test_on_polls(self):
        c = self.terminal('--busy-poll', 'on')
        self.assertGreater(self.yields(self.srv, lambda: [self.echo(c) for _ in range(50)]), 0)
        self.assertGreater(self.polled(self.srv), 0)
        self.session('--busy-poll', 'on').sh('true')
        self.assertGreater(self.polled(self.srv), 0)

    def test_auto_does_not_poll_for_starts(self):
        c = self.session()
        for _ in range(100):
            c.sh('true')
        self.assertEqual(self.polled(self.srv), 0)

    def test_auto_polls_for_a_twentieth_of_the_time(self):
        c = self.terminal()
        began, before = time.monotonic(), self.polled(self.srv)
        self.echoes(c, 3)
        seconds = int(time.monotonic() - began) + 1
        self.assertLessEqual(self.polled(self.srv) - before, (seconds + 1) * (SHARE + 0.001))

    def test_a_busy_machine_is_not_polled(self):
        """Four loops that compete with the server for two or more processors."""
        c = self.terminal()
        processors = len(os.sched_getaffinity(0))
        loops = [subprocess.Popen([sys.executable, '-I', '-S', '-c', 'while True: pass']) for _ in range(2 * processors)]
        try:
            self.echoes(c, 1.5)
            before = self.polled(self.srv)
            self.echoes(c, 2)
            self.assertLess(self.polled(self.srv) - before, 0.004)  # a try of 0.1 ms for each pause
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()

    def test_the_configuration(self):
        home = os.path.join(self.scratch(), 'home')
        os.makedirs(os.path.join(home, '.sallyport'))
        with open(os.path.join(home, '.sallyport', 'sallyport.conf'), 'w') as f:
            f.write('busy_poll = "on"\n')
        for args, polls in (((), True), (('--busy-poll', 'off'), False)):
            c = self.terminal(*args, home=home)
            for _ in range(20):
                self.echo(c)
            self.assertEqual(self.polled(self.srv) > 0, polls)
            self.srv.stop()

    def test_other_words_are_refused(self):
        for bad in ('yes', '', 'ON'):
            r = subprocess.run([PROGRAM, 'serve', '--busy-poll', bad], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            self.assertEqual(r.returncode, 2, bad)
            self.assertIn('auto, off, on', r.stderr.replace(' or ', ', ').replace(',,', ','))

    def test_the_time_of_the_loop(self):
        c = self.session()
        def busy():
            return float(re.search(r'^sallyport_loop_busy_seconds_total (\S+)$', self.srv.http(path='/metrics').body.decode(), re.M).group(1))
        before = busy()
        for _ in range(50):
            c.request('process/list')
        self.assertTrue(before < busy() <= cpu_s([self.srv.pid]) + 0.01)


if __name__ == '__main__':
    tap.main()
