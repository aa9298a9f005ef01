# SPDX-License-Identifier: Apache-2.0
"""Many live commands: what each holds, and that others do not pay for them."""

import os
import re
import resource
import shutil
import unittest

import tap
from server import SANITIZED, Case, cgroup_of, descendants, fd_names, is_alive, ours_only, stat_of
from wire import wait_until

PTY_MAX = '/proc/sys/kernel/pty/max'
# Two terminals in a devpts of its own, which the host's limit does not count.
FEW_TERMINALS = ['unshare', '--mount', '--', 'sh', '-c',
                 'mount -t devpts -o newinstance,ptmxmode=0666,max=2 devpts /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx && exec "$@"', 'sh']
as_root = unittest.skipUnless(os.geteuid() == 0, 'for root')


def mappings(pid):
    with open('/proc/%d/maps' % pid) as f:
        return sum(1 for _ in f)


def cpu_ms(pids):
    total = 0
    for pid in pids:
        with open('/proc/%d/schedstat' % pid) as f:
            total += int(f.read().split()[0])
    return total / 1e6


@ours_only
class ManyLive(Case):
    COUNT = 2000 if tap.IS_LONG else 700

    def sleepers(self, c, **how):
        for first in range(0, self.COUNT, 16):
            names = ['s%d' % i for i in range(first, min(first + 16, self.COUNT))]
            for start in [c.post_start(name, ['sleep', '1000'], **how) for name in names]:
                c.result(start)

    def held(self):
        """Descriptors of the cells, without the memory of the rings."""
        return sum(len([n for n in fd_names(p) if 'memfd' not in n]) for p in self.srv.program_pids() if p != self.srv.pid)

    def test_a_live_command_holds_two_descriptors(self):
        c = self.session('--cells', '1')
        c.sh('true')
        before = self.held()
        self.sleepers(c)
        # the directories of 256 cgroups are kept, and a few of their files
        self.assertLessEqual(self.held() - before, 2 * self.COUNT + 256 + 80)
        for i in range(self.COUNT):  # those without an open directory too
            c.post('process/terminate', {'processId': 's%d' % i})
        for i in range(self.COUNT):
            self.assertEqual(c.wait_closed('s%d' % i).exit_code, 137)
        wait_until(lambda: self.held() - before <= 32 * 2 + 8, 'the end of what they held')

    def test_the_end_of_a_session_does_not_depend_on_others(self):
        c = self.session('--session-ttl', '0.01', '--cells', '1')
        self.sleepers(c)
        other = self.srv.session()
        other.start('p', ['/bin/sh', '-c', 'echo $$; exec sleep 1000'])
        pid = int(other.wait_line('p'))
        ours = [self.srv.pid, stat_of(pid)[1]]
        before = cpu_ms(ours)
        other.abort()
        wait_until(lambda: not is_alive(pid), 'end of the session')
        self.assertLess(cpu_ms(ours) - before, 50)
        self.assertEqual(c.sh('echo on').stdout, b'on\n')

    def test_the_end_of_a_session_does_not_depend_on_the_number_of_sessions(self):
        srv = self.srv = self.server('--session-ttl', '600', '--cells', '1')
        for _ in range(10000 if tap.IS_LONG else 300):
            c = srv.session()
            c.abort()
            srv.clients.remove(c)
        c = srv.session()
        c.start('p', ['/bin/sh', '-c', 'echo $$; exec sleep 1000'])
        pid = int(c.wait_line('p'))
        ours = [srv.pid, stat_of(pid)[1]]
        before = cpu_ms(ours)
        c.request('session/end')
        wait_until(lambda: not is_alive(pid), 'end of the session')
        self.assertLess(cpu_ms(ours) - before, 50)

    def test_the_end_of_a_session_does_not_depend_on_what_others_have_left(self):
        count = 4000 if tap.IS_LONG else 800
        c = self.session('--cells', '1', '--closed-ttl', '0')
        script = 'setsid sleep 1000 < /dev/null > /dev/null 2>&1 & exit 0'
        for first in range(0, count, 50):
            names = ['p%d' % i for i in range(first, first + 50)]
            for start in [c.post_start(name, ['/bin/sh', '-c', script]) for name in names]:
                c.result(start)
            for name in names:
                c.wait_closed(name)
        other = self.srv.session()
        other.start('p', ['/bin/sh', '-c', 'echo $$; exec sleep 1000'])
        pid = int(other.wait_line('p'))
        cell = stat_of(pid)[1]
        if cgroup_of(pid) in (None, cgroup_of(self.srv.pid)):
            self.skipTest('this host lets us have no cgroups')
        before = cpu_ms([cell])
        other.request('session/end')
        wait_until(lambda: not is_alive(pid), 'end of the session')
        self.assertLess(cpu_ms([cell]) - before, 4)  # a look at each cgroup took 10 ms for 800
        c.request('session/end')
        wait_until(lambda: not descendants(cell), 'the end of what was left')

    @as_root
    def test_ended_commands_take_no_mapping(self):
        """vm.max_map_count is 65530: a mapping for each command would end a server that keeps that many."""
        count = 70000 if tap.IS_LONG and not SANITIZED else 600
        c = self.session('--cells', '1', '--max-processes', '100000', '--closed-ttl', '3600')
        c.sh('true')
        pids = self.srv.program_pids()
        before = [mappings(p) for p in pids]
        for first in range(0, count, 50):
            names = ['p%d' % i for i in range(first, first + 50)]
            for name in names:
                c.post_start(name, ['/bin/true'])
            for name in names:
                self.assertEqual(c.wait_closed(name).exit_code, 0)
                c.processes.pop(name)
        for pid, were in zip(pids, before):
            self.assertLessEqual(mappings(pid) - were, count // 64 + 30)


@ours_only
@as_root
class ManyTerminals(Case):
    def start_all(self, c, count):
        for first in range(0, count, 16):
            for request in [c.post_start('t%d' % i, ['cat'], tty=True) for i in range(first, min(first + 16, count))]:
                c.result(request)

    def test_a_start_without_a_terminal_names_the_limit(self):
        if shutil.which('unshare') is None:
            self.skipTest('no unshare')
        c = self.session(prefix=FEW_TERMINALS)
        self.start_all(c, 2)
        with open(PTY_MAX) as f:
            text = 'no terminal left (kernel.pty.max = %d): No space left on device (os error 28)' % int(f.read())
        self.assertError(c.start_error('more', ['cat'], tty=True), -32603, text)
        c.terminate('t0')
        c.wait_closed('t0')
        c.start('more', ['cat'], tty=True)

    @tap.long
    def test_ten_thousand(self):
        count, files = 10000, 20000
        with open(PTY_MAX) as f:
            was = f.read()
        if int(was) < 12000:
            def put(text):
                with open(PTY_MAX, 'w') as f:
                    f.write(text)
            put('12000')
            self.addCleanup(put, was)
        c = self.session('--max-processes', '20000', before_exec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
        self.start_all(c, count)
        text = self.srv.http(path='/metrics').body.decode()
        self.assertEqual(int(re.search(r'^sallyport_processes_live (\d+)$', text, re.M).group(1)), count)
        for i in range(0, count, 7):
            name = 't%d' % i
            c.request('process/resize', {'processId': name, 'rows': 40, 'cols': 100})
            c.write(name, b'x%d\n' % i)
            c.wait_output(name, 'x%d\r\nx%d\r\n' % (i, i))
        for i in range(count):
            c.post('process/terminate', {'processId': 't%d' % i})
        for i in range(count):
            self.assertEqual(c.wait_closed('t%d' % i).exit_code, 137)
        self.assertEqual(c.sh('echo on').stdout, b'on\n')


if __name__ == '__main__':
    tap.main()
