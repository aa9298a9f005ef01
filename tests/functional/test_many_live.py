# SPDX-License-Identifier: Apache-2.0
"""Many live commands: what each holds, and that others do not pay for them."""


import tap
from server import Case, fd_names, is_alive, ours_only, stat_of
from wire import wait_until


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


if __name__ == '__main__':
    tap.main()
