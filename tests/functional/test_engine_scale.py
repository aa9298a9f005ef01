# SPDX-License-Identifier: Apache-2.0
"""The engine and numbers: many commands leave nothing behind, many that talk do not delay each other, waiting is free.

SALLYPORT_SCALE=full  10,000 commands in place of 2,000"""

import os
import threading
import time

import agent
import server
import tap
import wire

FULL = os.environ.get('SALLYPORT_SCALE') == 'full'
COMMANDS = 10000 if FULL else 2000
SETTLED = 500      # so many commands, and everything has been used once
AT_ONCE = 8
KIB_MORE = 512     # allocators and caches: a third of a KiB for each command would be more
LIVE = 64          # as many as there may be
LATE = 0.25 if server.SANITIZED else 0.05
IDLE_US = 200000 if server.SANITIZED else 20000


def cells(a):
    """The driver's own children that are our program."""
    own, found = os.stat(server.PROGRAM), []
    for pid in server.descendants(a.pid):
        try:
            exe = os.stat('/proc/%d/exe' % pid)
        except OSError:
            continue
        if (exe.st_dev, exe.st_ino) == (own.st_dev, own.st_ino):
            found.append(pid)
    return found


def rss_kb(pid):
    return int(server.status_of(pid)['VmRSS'].split()[0])


def ticks(pid):
    """CPU time of a process, in hundredths of a second."""
    with open('/proc/%d/stat' % pid, 'rb') as f:
        fields = f.read().rsplit(b')', 1)[1].split()
    return int(fields[11]) + int(fields[12])


class Clock:
    """How late this machine wakes a thread that does nothing but sleep."""

    def __init__(self):
        self.late, self.is_over = 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self):
        while not self.is_over.is_set():
            before = time.monotonic()
            time.sleep(0.02)
            self.late = max(self.late, time.monotonic() - before - 0.02)

    def stop(self):
        self.is_over.set()
        self.thread.join()
        return self.late


class Scale(agent.Case):
    def use(self, a):
        """What the driver and its cells hold, in kilobytes and in descriptors."""
        stats, own = a.stats(), cells(a)
        fds = sum(len(server.fd_names(p)) for p in own)
        return stats['rss_kb'], sum(map(rss_kb, own)), stats['fds'], fds, len(own)

    def run_commands(self, a, first, last):
        """A few at a time; each says who it is."""
        going = []
        for n in range(first, last + 1):
            going.append((n, a.ec_later('echo %d; exit %d' % (n, n % 200), call_id='n%d' % n, tty=n % 16 == 0)))
            if len(going) == AT_ONCE or n == last:
                for m, pending in going:
                    answer = pending.wait()
                    self.assertExited(answer, m % 200)
                    self.assertEqual(answer.body.split(), [str(m)])
                    a.wait_end('n%d' % m)
                going = []
                with a.changed:  # ours is not to grow either
                    a.answers.clear()
                    a.events.clear()

    def frugal(self):
        """With a sanitizer: freed memory is to go back, so that it can be measured."""
        more = 'quarantine_size_mb=1:thread_local_quarantine_size_kb=64:allocator_release_to_os_interval_ms=50'
        options = [os.environ.get('ASAN_OPTIONS'), more]
        return {'ASAN_OPTIONS': ':'.join(filter(None, options))} if server.SANITIZED else {}

    def test_many_commands_leave_nothing(self):
        a = self.agent(deterministic=False, env=self.frugal())
        self.run_commands(a, 1, SETTLED)
        before = self.use(a)
        self.run_commands(a, SETTLED + 1, COMMANDS)
        self.assertNothingLeft(a)
        is_back = lambda: all(x <= y for x, y in zip(self.use(a)[2:], before[2:]))
        wire.wait_until(is_back, 'no more descriptors than %r; %r' % (before, self.use(a)), 10 * wire.SCALE, 0.1)
        after = self.use(a)
        room = KIB_MORE * (8 if server.SANITIZED else 1)
        self.assertLess(after[0], before[0] + room, (before, after))
        if not server.SANITIZED:  # a cell has an environment of its own, and keeps what it freed
            self.assertLess(after[1], before[1] + room, (before, after))

    def round(self, a, sessions):
        """Everybody is typed to and waited for; the latest answer, and the same of a mere sleep."""
        clock = Clock()
        going = [a.ws_later(s, 'x', yield_time_ms=1000) for s in sessions]
        walls = [p.wait().wall for p in going]
        self.assertGreaterEqual(min(walls), 1.0)
        return max(walls) - 1.0, clock.stop()

    def test_sixty_four_that_talk_keep_every_deadline(self):
        a = self.agent()
        os.mkfifo(a.path('never'))
        cmd = 'exec 3<>never; stty -echo; while :; do echo a line of output; read -r -t 0.03 -u 3 x; done'
        going = [a.ec_later(cmd, tty=True, yield_time_ms=1000) for _ in range(LIVE)]
        sessions = [p.wait().session for p in going]
        self.assertEqual(len(set(sessions) - {None}), LIVE, sessions)
        rounds = []
        for _ in range(3):
            rounds.append(self.round(a, sessions))
            if rounds[-1][0] < LATE:
                break
        # A machine that wakes nobody in time is no fault of ours.
        self.assertTrue(any(late < LATE + 2 * machine for late, machine in rounds), 'so late, and a sleep: %r' % rounds)
        self.assertEqual(a.stats()['stored'], LIVE)
        a.send(op='terminate_all')
        wire.wait_until(lambda: a.stats()['stored'] == 0, 'the end of all')

    def test_waiting_costs_nothing(self):
        a = self.agent()
        answer = a.ec('exec sleep 100', yield_time_ms=250)
        self.assertRunning(answer)
        own = cells(a)
        before, cell_before = a.stats()['cpu_us'], sum(map(ticks, own))
        poll = a.ws(answer.session)
        used, cell_used = a.stats()['cpu_us'] - before, sum(map(ticks, own)) - cell_before
        self.assertRunning(poll)
        self.assertGreaterEqual(poll.wall, 5.0)
        self.assertLess(used, IDLE_US)
        self.assertLess(cell_used, IDLE_US / 10000)


if __name__ == '__main__':
    tap.main()
