# SPDX-License-Identifier: Apache-2.0
"""Limits that hold for all processes of a command, a session or a server together: memory, pids, cpus and CPU time.

They need cgroup controllers. A test is skipped where `sallyport doctor --json` says that one is missing.
"""

import json
import os
import re
import subprocess
import sys
import unittest

import mcp
import tap
import wire
from sandbox_policy import read_only
from server import PROGRAM, Case, limit_groups, ours_only

MIB = 1 << 20
HOG = 'x = bytearray(%d << 20); print("held", flush=True); import time; time.sleep(600)'
BUSY = 'while :; do :; done'
# Starts that many processes at once, and goes on where the kernel refuses one.
FORKS = ('import os, time\n'
         'refused = 0\n'
         'for i in range(%d):\n'
         '    try:\n'
         '        if os.fork() == 0: time.sleep(600)\n'
         '    except OSError: refused += 1\n'
         'print(refused, flush=True)\n'
         'os.killpg(0, 9) if %d else None\n')


def python(script):
    return [sys.executable, '-I', '-S', '-c', script]


def hog(mib):
    return python(HOG % mib)


def shell_hog(mib):
    return '%s -I -S -c "x = bytearray(%d << 20)"' % (sys.executable, mib)


def missing_layers():
    run = subprocess.run([PROGRAM, 'doctor', '--json'], capture_output=True, timeout=wire.DEADLINE)
    return {x['name']: x['remedy'] for x in json.loads(run.stdout)['layers'] if x['state'] != 'ok'}


MISSING = missing_layers()


def needs(*names):
    lacking = [name for name in names if 'limit_' + name in MISSING]
    return unittest.skipIf(lacking, 'doctor: %s' % ', '.join('limit_%s is missing: %s' % (n, MISSING.get('limit_' + n)) for n in lacking))


class Limited(Case):
    def asking(self):
        c = self.srv.connect()
        c.takes_receipts = True
        return c.handshake()

    def told(self, c, name):
        """What `exited` says."""
        return c.wait_closed(name).told

    def start(self, c, name, argv, **limits):
        return c.start(name, argv, limits=limits)

    def shell(self, c, name, script, **limits):
        return self.start(c, name, ['/bin/sh', '-c', script], **limits)

    def metric(self, limit):
        text = self.srv.http(path='/metrics')[2].decode()
        return int(re.search(r'sallyport_limit_hits_total\{limit="%s"\} (\d+)' % limit, text).group(1))


@ours_only
class Commands(Limited):
    @needs('memory')
    def test_a_hog_ends_at_its_memory_limit(self):
        c = self.session()
        self.start(c, 'p', hog(200), memoryBytes=64 * MIB)
        end = self.told(c, 'p')
        self.assertEqual((end['exitCode'], end['reason']), (137, 'memory_limit'), end)
        self.assertEqual(end['limitsHit'], [{'limit': 'memory', 'value': 64 * MIB, 'count': 1, 'leader': True}])
        self.assertNotIn('suspected', end)

    @needs('memory')
    def test_a_shell_goes_on_after_its_hog(self):
        c = self.session()
        self.shell(c, 'p', shell_hog(200) + '; echo "status $?"; exit 5', memoryBytes=64 * MIB)
        end = self.told(c, 'p')
        self.assertEqual((end['exitCode'], end['reason']), (5, 'exit'))
        self.assertEqual(end['limitsHit'], [{'limit': 'memory', 'value': 64 * MIB, 'count': 1, 'leader': False}])
        self.assertEqual(c.process('p').stdout, b'status 137\n')

    @needs('memory')
    def test_a_leaf_that_is_used_again_tells_the_next_command_nothing(self):
        c = self.session()
        self.shell(c, 'one', shell_hog(200) + '; true', memoryBytes=64 * MIB)
        self.assertEqual(self.told(c, 'one')['limitsHit'][0]['count'], 1)
        self.shell(c, 'two', 'true', memoryBytes=128 * MIB)
        self.assertNotIn('limitsHit', self.told(c, 'two'))
        self.start(c, 'three', hog(200), memoryBytes=32 * MIB)
        self.assertEqual(self.told(c, 'three')['limitsHit'], [{'limit': 'memory', 'value': 32 * MIB, 'count': 1, 'leader': True}])

    @needs('pids')
    def test_forks_above_the_limit_are_refused_and_counted(self):
        c = self.session()
        other = self.srv.session()
        self.start(c, 'p', python(FORKS % (40, 1)), pids=20)
        end = self.told(c, 'p')
        refused = int(c.process('p').stdout)
        self.assertEqual(refused, 40 - 19)
        self.assertEqual(end['limitsHit'], [{'limit': 'pids', 'value': 20, 'count': refused, 'leader': False}])
        self.assertEqual(other.sh('for i in $(seq 40); do sleep 0 & done; wait; echo ok').stdout, b'ok\n')
        self.assertEqual(c.sh('for i in $(seq 40); do sleep 0 & done; wait; echo ok').stdout, b'ok\n')

    @needs('cpus', 'cpu')
    def test_a_share_of_the_processors(self):
        self.srv = self.server()
        c = self.asking()
        seconds = 5 if tap.IS_LONG else 2
        self.shell(c, 'p', 'timeout %d sh -c "%s" & timeout %d sh -c "%s" & wait' % (seconds, BUSY, seconds, BUSY), cpus=0.5, cpuMs=600000)
        receipt = c.wait_closed('p').receipt
        used = receipt['userMs'] + receipt['systemMs']
        self.assertEqual(receipt['cpuScope'], 'tree')
        self.assertLessEqual(used, receipt['wallMs'] * 0.55 + 50, receipt)
        if tap.IS_LONG:  # a busy machine may give less
            self.assertGreaterEqual(used, receipt['wallMs'] * 0.45, receipt)

    @needs('cpu')
    def test_cpu_time_counts_all_processes(self):
        self.srv = self.server()
        c = self.asking()
        seconds = 2 if tap.IS_LONG else 1
        self.shell(c, 'p', '(%s) & (%s) & wait' % (BUSY, BUSY), cpuMs=seconds * 1000)
        p = c.wait_closed('p')
        self.assertEqual(p.told['reason'], 'cpu_limit')
        self.assertEqual(p.told['limitsHit'], [{'limit': 'cpu', 'value': seconds * 1000, 'count': 1, 'leader': True}])
        used = p.receipt['userMs'] + p.receipt['systemMs']
        self.assertTrue(seconds * 1000 <= used <= seconds * 1000 + 1500, p.receipt)

    @needs('memory', 'pids')
    def test_receipts_have_the_peaks_of_the_tree(self):
        self.srv = self.server()
        c = self.asking()
        both = ('import os\n'
                'here, there = os.pipe(); end, hold = os.pipe()\n'
                'for i in range(2):\n'
                '    if os.fork() == 0: os.close(hold); x = b"x" * (40 << 20); os.write(there, b"1"); os.read(end, 1); os._exit(0)\n'
                'os.read(here, 1); os.read(here, 1); os.close(hold); os.wait(); os.wait()')
        self.start(c, 'p', python(both), memoryBytes=256 * MIB, pids=50)
        receipt = c.wait_closed('p').receipt
        self.assertTrue(80 * MIB <= receipt['peakMemoryBytes'] <= 150 * MIB, receipt)
        self.assertTrue(35 * MIB <= receipt['maxRssBytes'] <= 70 * MIB, receipt)
        if 'peakProcesses' in receipt:  # from Linux 6.11 on
            self.assertEqual(receipt['peakProcesses'], 3)

    @needs('memory', 'pids')
    def test_the_scopes_are_told(self):
        c = self.session()
        told = c.request('environment/info')['limits']
        self.assertEqual({told[k] for k in ('memoryBytes', 'pids', 'cpuMs', 'wallMs')}, {'tree'})
        p = self.start(c, 'p', ['true'], memoryBytes=64 * MIB, pids=10)
        self.assertEqual(p.limits, {'memoryBytes': 'tree', 'pids': 'tree'})

    @needs('memory')
    def test_a_request_lowers_the_memory_of_its_server_and_never_raises_it(self):
        c = self.session('--limit', 'memory=64M')
        self.assertError(c.start_error('p', ['true'], limits={'memoryBytes': 65 * MIB}), -32602,
                         'limits.memoryBytes: 68157440 is more than the 67108864 that --limit memory allows')
        self.start(c, 'low', hog(40), memoryBytes=32 * MIB)
        self.assertEqual(self.told(c, 'low')['reason'], 'memory_limit')
        self.assertEqual(c.run(hog(200), 'plain').exit_code, 137)
        self.assertEqual(self.metric('memory'), 2)

    @needs('memory')
    def test_a_kill_from_outside_is_no_limit(self):
        c = self.session()
        self.start(c, 'p', ['/bin/sh', '-c', 'echo $$; exec sleep 600'], memoryBytes=64 * MIB)
        os.kill(int(c.wait_line('p')), 9)
        end = self.told(c, 'p')
        self.assertEqual((end['reason'], end.get('limitsHit')), ('signal', None))

    def test_without_controllers_tree_is_refused_and_best_runs(self):
        c = self.session('--no-cgroups')
        for limits, text in (({'memoryBytes': 64 * MIB}, 'memory (no memory controller'), ({'pids': 5}, 'pids (no pids controller'),
                             ({'cpus': 1}, 'cpus (no cpu controller'), ({'cpuMs': 5}, 'cpu (no cpuacct controller')):
            self.assertError(c.start_error('p', ['true'], limits=limits), -32602,
                             'limit cannot be enforced on this executor: %s; see sallyport doctor)' % text)
        p = c.start('p', ['/bin/sh', '-c', 'ulimit -d; ulimit -t'],
                    limits={'memoryBytes': 64 * MIB, 'pids': 5, 'cpus': 1, 'cpuMs': 3000, 'enforcement': 'best'})
        self.assertEqual(p.limits, {'memoryBytes': 'process', 'cpuMs': 'process'})
        self.assertEqual(c.wait_closed('p').stdout, b'1048576\n3\n')
        told = c.request('environment/info')['limits']
        self.assertEqual((told.get('memoryBytes'), told.get('pids'), told.get('cpus'), told['cpuMs']), ('process', None, None, 'process'))


@ours_only
class Shared(Limited):
    @needs('memory')
    def test_the_memory_of_a_session_is_that_of_all_of_its_commands(self):
        c = self.session('--limit', 'session:memory=256M')
        for i in range(4):
            c.start('p%d' % i, hog(100), limits={'wallMs': 600000})
        c.wait_for(lambda: sum(c.process('p%d' % i).exited for i in range(4)) >= 2, 'the end of two hogs')
        ends = [c.process('p%d' % i).told for i in range(4) if c.process('p%d' % i).exited]
        for end in ends:
            self.assertEqual((end['reason'], end['limitsHit'][0]['level'], end['limitsHit'][0]['value']), ('memory_limit', 'session', 256 * MIB))
        other = self.srv.session()
        other.start('p', hog(100))  # has a session of its own
        other.wait_output('p', 'held')

    @needs('memory')
    def test_strays_count_for_their_session(self):
        c = self.session('--limit', 'session:memory=128M')
        c.run(['/bin/sh', '-c', '%s > out 2>&1 < /dev/null & while ! grep -q held out 2> /dev/null; do sleep 0.05; done'
               % ' '.join("'%s'" % w for w in hog(50))], 'parent', cwd=wire.file_uri(self.srv.work))
        c.start('p', hog(100), limits={'wallMs': 600000})  # alone it has room, and it is the larger one
        hit = self.told(c, 'p')['limitsHit'][0]
        self.assertEqual((hit['limit'], hit['level'], hit['value'], hit['leader']), ('memory', 'session', 128 * MIB, True))

    @needs('memory', 'pids')
    def test_the_limits_of_a_server_hold_over_its_sessions(self):
        one = self.session('--limit', 'server:pids=30', '--limit', 'server:memory=1G')
        two = self.srv.session()
        one.start('p', python(FORKS % (20, 0) + 'time.sleep(600)'))
        self.assertEqual(one.wait_line('p'), '0')
        two.start('p', python(FORKS % (20, 1)), limits={'wallMs': 600000})
        hit = two.wait_closed('p').told['limitsHit']
        self.assertEqual((hit[0]['limit'], hit[0]['level'], hit[0]['value']), ('pids', 'server', 30))

    @needs('pids')
    def test_commands_come_with_a_limit_of_their_session(self):
        """mcp and exec: 4,096 processes; serve: none, and no cgroups for limits."""
        show = 'cat /sys/fs/cgroup/pids$(sed -n "s/^[0-9]*:pids://p" /proc/self/cgroup)/../pids.max'
        if not os.path.exists('/sys/fs/cgroup/pids/pids.max') and not os.path.exists('/sys/fs/cgroup/pids/cgroup.procs'):
            self.skipTest('the pids controller is not in version 1 at /sys/fs/cgroup/pids')
        run = subprocess.run([PROGRAM, 'exec', '--no-local-socket', '--', 'sh', '-c', show], capture_output=True, timeout=wire.DEADLINE,
                             env={**os.environ, 'SALLYPORT_CONFIG': '/dev/null'})
        self.assertEqual(run.stdout, b'4096\n', run.stderr)
        c = self.session()
        c.sh('true')
        self.assertEqual(limit_groups(self.srv.pid), [])


@ours_only
class Confined(Limited):
    """Commands in a sandbox enter their cgroup by a file that the server has opened."""

    def confined(self, c, name, argv, **limits):
        return c.start(name, argv, limits=limits, sandbox=read_only())

    @needs('memory', 'pids')
    def test_limits_hold_and_the_cell_lives_on(self):
        c = self.session()
        self.confined(c, 'hog', hog(200), memoryBytes=64 * MIB)
        self.assertEqual(self.told(c, 'hog')['reason'], 'memory_limit')
        self.confined(c, 'shell', ['/bin/sh', '-c', shell_hog(200) + '; exit 5'], memoryBytes=64 * MIB)
        end = self.told(c, 'shell')
        self.assertEqual((end['exitCode'], end['limitsHit'][0]['leader']), (5, False))
        self.confined(c, 'forks', python(FORKS % (40, 1)), pids=20)
        self.assertEqual(self.told(c, 'forks')['limitsHit'], [{'limit': 'pids', 'value': 20, 'count': 21, 'leader': False}])
        self.assertEqual(c.sh('echo next', 'next', sandbox=read_only()).stdout, b'next\n')

    @needs('memory', 'pids')
    def test_a_command_cannot_leave_its_leaf_and_has_no_descriptor_of_it(self):
        c = self.session()
        self.confined(c, 'p', ['/bin/sh', '-c',
                               'ls -l /proc/self/fd | grep -c cgroup; '
                               'for f in $(find / -name cgroup.procs -o -name memory.limit_in_bytes -o -name memory.max 2> /dev/null); do '
                               '(echo 0 > $f) 2> /dev/null && echo "wrote $f"; done; echo done'], memoryBytes=64 * MIB, pids=20)
        self.assertEqual(c.wait_closed('p').stdout, b'0\ndone\n')


@ours_only
class Doors(Limited):
    @needs('memory', 'pids')
    def test_exec_tells_the_limits_that_were_reached(self):
        def run(*words):
            r = subprocess.run([PROGRAM, 'exec', '--no-local-socket', *words], capture_output=True, timeout=wire.DEADLINE,
                               env={**os.environ, 'SALLYPORT_CONFIG': '/dev/null'})
            return r.returncode, r.stderr.decode()
        self.assertEqual(run('--limit', 'memory=64M', '--', *hog(200)),
                         (137, 'sallyport: memory limit 64 MiB reached: 1 process was killed (the command itself)\n'))
        self.assertEqual(run('--limit', 'pids=20', '--', *python(FORKS % (32, 1))), (137, 'sallyport: pids limit 20: 13 forks were refused\n'))


@ours_only
class Tools(mcp.Case):
    @needs('memory')
    def test_exec_command_tells_the_limits_that_were_reached(self):
        host = self.mcp('--sandbox', 'danger-full-access')
        r = host.exec(*hog(200), limits={'memory_bytes': 64 * MIB}, yield_time_ms=30000)
        self.assertEqual((r['end_reason'], r['exit_code'], r['receipt']['limits_hit'][0]['limit']), ('memory_limit', 137, 'memory'), r)
        self.assertIn('memory limit 64 MiB reached: 1 process was killed (the command itself)\n', r.text)


if __name__ == '__main__':
    tap.main()
