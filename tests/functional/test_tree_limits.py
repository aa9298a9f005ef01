# SPDX-License-Identifier: Apache-2.0
"""Limits that hold for all processes of a command, a session or a server together: memory, pids, cpus and CPU time.

They need cgroup controllers. A test is skipped where `sallyport doctor --json` says that one is missing.
"""

import json
import os
import re
import subprocess
import sys
import time
import unittest

import mcp
import tap
import wire
from sandbox_policy import read_only
from server import PROGRAM, Case, limit_groups, ours_only
from wire import wait_until

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


def python(script, program=sys.executable):
    return [program, '-I', '-S', '-c', script]


def hog(mib):
    return python(HOG % mib)


def shell_hog(mib):
    return '%s -I -S -c "x = bytearray(%d << 20)"' % (sys.executable, mib)


def groups_of(pid):
    """The directory of its cgroup in each hierarchy: {'memory': path, ..., 'v2': path}."""
    points, found = {}, {}
    with open('/proc/self/mountinfo') as f:
        for line in f:
            words, (kind, _, options) = line.split(' - ')[0].split(), line.split(' - ')[1].split()[:3]
            for name in ['v2'] if kind == 'cgroup2' else options.split(',') if kind == 'cgroup' else []:
                points[name] = words[4]
    with open('/proc/%s/cgroup' % pid) as f:
        for line in f:
            _, names, path = line.strip().split(':', 2)
            for name in names.split(',') if names else ['v2']:
                if name in points:
                    found[name] = points[name] + path.rstrip('/')
    return found


def v1_groups():
    """Of version 1, those that limits need."""
    return {name: path for name, path in groups_of('self').items() if name in ('memory', 'pids', 'cpu', 'cpuacct')}


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
        seconds, processes = (5, 1) if tap.IS_LONG else (2, 2)
        self.shell(c, 'p', ('timeout %d sh -c "%s" & ' % (seconds, BUSY)) * processes + 'wait', cpus=0.5, cpuMs=600000)
        receipt = c.wait_closed('p').receipt
        used = receipt['userMs'] + receipt['systemMs']
        self.assertEqual(receipt['cpuScope'], 'tree')
        # The quota of a period is there at once, and the kernel stops a process at a tick: two take some percent more.
        self.assertLessEqual(used, receipt['wallMs'] * (0.55 if processes == 1 else 0.65) + 100, receipt)
        if tap.IS_LONG:
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

    @unittest.skipUnless(os.geteuid() == 0, 'needs root, to make a cgroup')
    @needs('memory')
    def test_a_kill_while_the_host_kills_for_memory_is_suspected(self):
        groups = groups_of('self')
        path = '%s/small-%d' % (groups.get('memory', groups.get('v2')), os.getpid())
        os.mkdir(path)
        self.addCleanup(os.rmdir, path)
        for name in ('memory.limit_in_bytes', 'memory.max'):
            if os.path.exists('%s/%s' % (path, name)):
                with open('%s/%s' % (path, name), 'w') as f:
                    f.write(str(32 * MIB))

        def enter():
            with open(path + '/cgroup.procs', 'w') as f:
                f.write('0')
        c = self.session()
        self.shell(c, 'p', 'echo $$; exec sleep 600', wallMs=600000)
        pid = int(c.wait_line('p'))
        self.assertEqual(subprocess.run(hog(200), preexec_fn=enter, stdout=subprocess.DEVNULL, check=False).returncode, -9)
        os.kill(pid, 9)
        end = self.told(c, 'p')
        self.assertEqual((end['exitCode'], end['reason'], end.get('suspected')), (137, 'signal', 'host_out_of_memory'))
        self.assertNotIn('limitsHit', end)

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

    @needs('memory')
    def test_the_memory_of_a_server_is_that_of_all_of_its_sessions(self):
        one = self.session('--limit', 'server:memory=256M')
        two = self.srv.session()
        one.start('p', hog(100))
        one.wait_output('p', 'held')
        two.start('p', hog(200), limits={'wallMs': 600000})  # alone it has room, and it is the larger one
        end = self.told(two, 'p')
        self.assertEqual(end['reason'], 'memory_limit')
        self.assertEqual(end['limitsHit'], [{'limit': 'memory', 'level': 'server', 'value': 256 * MIB, 'count': 1, 'leader': True}])
        self.assertFalse(one.process('p').exited)

    @needs('memory')
    def test_what_commands_have_left_costs_nothing(self):
        count = 1000 if tap.IS_LONG else 200
        c = self.session('--cells', '1', '--closed-ttl', '0')
        for first in range(0, count, 20):
            for i in range(first, first + 20):
                self.shell(c, 'p%d' % i, 'setsid sleep 1000 < /dev/null > /dev/null 2>&1 & exit 0', memoryBytes=64 * MIB)
            for i in range(first, first + 20):
                c.wait_closed('p%d' % i)

        def cpu_ms():
            with open('/proc/%d/schedstat' % self.srv.pid) as f:
                return int(f.read().split()[0]) / 1e6
        before, began = cpu_ms(), time.monotonic()
        time.sleep(1)
        self.assertLess((cpu_ms() - before) / (time.monotonic() - began), 4)  # a look at each of 200 took 7 ms

        def groups():
            return ['%s/%s' % (g, d) for g in limit_groups(self.srv.pid) for d in os.listdir(g) if re.fullmatch(r's\d+', d)]
        if limit_groups(self.srv.pid):  # of version 1
            self.assertTrue(groups())
            c.request('session/end')
            wait_until(lambda: not groups(), 'the end of the cgroups of the session')

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
        run = subprocess.Popen([PROGRAM, 'exec', '--no-local-socket', '--', 'sh', '-c', 'echo $$; read x'], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env={**os.environ, 'SALLYPORT_CONFIG': '/dev/null'})
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.wait, wire.DEADLINE)
        self.addCleanup(run.stdin.close)
        leaf = groups_of(int(run.stdout.readline()))
        with open(os.path.dirname(leaf.get('pids', leaf.get('v2'))) + '/pids.max') as f:
            self.assertEqual(f.read(), '4096\n')
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
                               'for f in $(find %s -name cgroup.procs -o -name memory.limit_in_bytes -o -name memory.max 2> /dev/null); do '
                               '(echo 0 > $f) 2> /dev/null && echo "wrote $f"; done; echo done'
                               % ('/' if tap.IS_LONG else '/sys /run /dev /mnt /proc/self')], memoryBytes=64 * MIB, pids=20)
        self.assertEqual(c.wait_closed('p').stdout, b'0\ndone\n')


@ours_only
class AsUser(Limited):
    """A server that is not root, in cgroups of version 1 that were given to its user."""

    UID = 65534
    PYTHON = '/usr/bin/python3'  # that of the tests may be in root's home directory

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest('needs root, to become another user')
        for program in (PROGRAM, self.PYTHON):
            try:
                subprocess.run([program, '--version'], preexec_fn=lambda: os.setuid(self.UID), capture_output=True, check=True)
            except OSError as e:
                self.skipTest('another user cannot run %s: %s' % (program, e))

    def become(self, groups):
        def change():
            work = os.getcwd()
            for directory in (os.path.dirname(work), *(os.path.join(os.path.dirname(work), d) for d in os.listdir(os.path.dirname(work)))):
                os.chown(directory, self.UID, self.UID)
            for path in groups:
                with open(path + '/cgroup.procs', 'w') as f:
                    f.write('0')
            os.setgroups([])
            os.setgid(self.UID)
            os.setuid(self.UID)
        return change

    @unittest.skipUnless({'memory', 'pids'} <= set(v1_groups()), 'memory and pids are not in version 1 here')
    @needs('memory', 'pids')
    def test_limits_hold_in_cgroups_of_the_user(self):
        groups = []
        for path in sorted(set(v1_groups().values())):
            groups.append('%s/given-%d' % (path, os.getpid()))
            os.mkdir(groups[-1])
            self.addCleanup(os.rmdir, groups[-1])
            os.chown(groups[-1], self.UID, self.UID)
        c = self.session(before_exec=self.become(groups))
        for name, sandbox in (('open', None), ('confined', read_only())):
            more = {'sandbox': sandbox} if sandbox else {}
            with self.subTest(name):
                c.start(name + 'hog', python(HOG % 200, self.PYTHON), limits={'memoryBytes': 64 * MIB}, **more)
                self.assertEqual(self.told(c, name + 'hog')['reason'], 'memory_limit')
                c.start(name + 'forks', python(FORKS % (40, 1), self.PYTHON), limits={'pids': 20}, **more)
                self.assertEqual(self.told(c, name + 'forks')['limitsHit'], [{'limit': 'pids', 'value': 20, 'count': 21, 'leader': False}])
                self.assertEqual(c.sh('echo next', name, **more).stdout, b'next\n')

    def test_without_groups_of_its_own_best_counts_processes_in_a_sandbox(self):
        c = self.session(before_exec=self.become([]))
        if c.request('environment/info')['limits'].get('pids'):
            self.skipTest('this user has cgroups with a pids controller')
        p = c.start('p', python(FORKS % (40, 1), self.PYTHON), limits={'pids': 20, 'memoryBytes': 64 * MIB, 'enforcement': 'best'}, sandbox=read_only())
        self.assertEqual(p.limits, {'memoryBytes': 'process', 'pids': 'process'})
        self.assertGreater(int(c.wait_closed('p').stdout), 0)
        p = c.start('open', ['true'], limits={'pids': 20, 'enforcement': 'best'})
        self.assertEqual(p.limits, {})  # it would count all processes of the user


def controllers_of_v2():
    try:
        with open(groups_of('self').get('v2', '/none') + '/cgroup.controllers') as f:
            return set(f.read().split())
    except OSError:
        return set()


@ours_only
@unittest.skipUnless({'memory', 'pids'} <= controllers_of_v2() and os.geteuid() == 0, 'memory and pids are not in version 2 here, or not for us')
class Delegated(Limited):
    """A cgroup of version 2 that belongs to the server, as systemd gives with Delegate=yes."""

    def setUp(self):
        super().setUp()
        own = groups_of('self')['v2']
        with open(own + '/cgroup.subtree_control', 'w') as f:
            f.write('+memory +pids +cpu')
        self.path = '%s/given-%d' % (own, os.getpid())
        os.mkdir(self.path)
        self.addCleanup(os.rmdir, self.path)

    def session(self, *args, **how):
        c = super().session(*args, **how)
        self.srv.note_cgroup = lambda pid: None  # what is left is looked for here: the cgroup itself is the test's
        return c

    def enter(self):
        with open(self.path + '/cgroup.procs', 'w') as f:
            f.write('0')

    def group_of(self, pid):
        with open('/proc/%s/cgroup' % pid) as f:
            return [line.strip()[3:] for line in f if line.startswith('0::')][0]

    def test_a_server_that_is_alone_in_its_cgroup_moves_to_front(self):
        c = self.session('--limit', 'session:memory=1G', before_exec=self.enter)
        before = self.group_of(self.srv.pid)
        self.assertNotIn('front', before)
        self.start(c, 'hog', hog(200), memoryBytes=64 * MIB)
        self.assertEqual(self.told(c, 'hog')['reason'], 'memory_limit')
        self.assertRegex(self.group_of(self.srv.pid), '^%s/sallyport-%d-[0-9a-f]{16}/front$' % (before, self.srv.pid))
        self.start(c, 'forks', python('print(open("/proc/self/cgroup").read(), flush=True)\n' + FORKS % (40, 0) + 'time.sleep(600)'), pids=20, wallMs=2000)
        end = self.told(c, 'forks')  # ended with all that it has started
        self.assertEqual({h['limit'] for h in end['limitsHit']}, {'pids', 'wall'})
        self.assertRegex(c.process('forks').stdout.decode(), r'(?m)^0::%s/sallyport-[^/]*/s1/c[0-9]+$' % before)
        self.start(c, 'stray', ['/bin/sh', '-c', 'sleep 600 > /dev/null 2>&1 & echo $!'], pids=20)
        stray = int(c.wait_closed('stray').stdout)
        self.srv.stop()
        self.assertGone(stray)
        self.assertEqual([f for f in os.listdir(self.path) if os.path.isdir('%s/%s' % (self.path, f))], [])

    def test_where_other_processes_are_nothing_moves(self):
        other = subprocess.Popen(['sleep', '600'], preexec_fn=self.enter)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        c = self.session(before_exec=self.enter)
        self.assertError(c.start_error('p', ['true'], limits={'memoryBytes': 64 * MIB}), -32602,
                         'limit cannot be enforced on this executor: memory (no memory controller; see sallyport doctor)')
        p = c.start('p', ['true'], limits={'memoryBytes': 64 * MIB, 'pids': 9, 'enforcement': 'best'})
        self.assertEqual(p.limits, {'memoryBytes': 'process'})
        self.assertEqual(self.group_of(self.srv.pid), self.group_of(other.pid))
        self.assertNotIn('front', self.group_of(self.srv.pid))
        self.srv.stop()


@ours_only
class Neighbours(Limited):
    @needs('memory', 'pids')
    def test_a_bomb_a_hog_and_an_endless_writer_disturb_nobody(self):
        neighbour = self.session('--limit', 'session:pids=200', '--limit', 'session:memory=1G')
        neighbour.start('cat', ['cat'], pipeStdin=True)
        c = self.srv.session()
        self.shell(c, 'bomb', 'b() { b | b & }; b; sleep 600', pids=50, wallMs=3000)
        self.start(c, 'hog', hog(400), memoryBytes=64 * MIB)
        self.start(c, 'writer', ['yes'], outputBytes=16 * MIB)
        self.start(c, 'file', ['dd', 'if=/dev/zero', 'of=%s/file' % self.srv.work, 'bs=1M'], fileSizeBytes=8 * MIB)
        done = lambda: all(c.process(name).closed for name in ('bomb', 'hog', 'writer', 'file'))
        rounds = 0
        while not done() or rounds < 20:
            neighbour.write('cat', b'%d\n' % rounds)
            neighbour.wait_output('cat', '%d\n' % rounds)
            rounds += 1
            c.fence()
        ends = {name: c.process(name).told for name in ('bomb', 'hog', 'writer', 'file')}
        self.assertEqual([ends[n]['reason'] for n in ('bomb', 'hog', 'writer', 'file')], ['wall_limit', 'memory_limit', 'output_limit', 'signal'], ends)
        self.assertEqual({h['limit'] for h in ends['bomb']['limitsHit']}, {'pids', 'wall'})
        self.assertEqual(ends['file']['limitsHit'][0]['limit'], 'fsize')
        self.assertEqual(c.sh('echo next').stdout, b'next\n')


@ours_only
class Remains(Limited):
    @unittest.skipUnless(os.geteuid() == 0, 'needs root, to make cgroups')
    @needs('memory', 'pids')
    def test_empty_directories_of_dead_servers_are_removed_and_no_others(self):
        gone = subprocess.Popen(['true'])
        gone.wait()
        sleeper = subprocess.Popen(['sleep', '600'])
        self.addCleanup(sleeper.wait)
        self.addCleanup(sleeper.kill)
        names = {'dead': 'sallyport-%d-0123456789abcdef' % gone.pid, 'busy': 'sallyport-%d-fedcba9876543210' % gone.pid,
                 'alive': 'sallyport-%d-0123456789abcdef' % os.getpid(), 'other': 'sallyport-%d-short' % gone.pid, 'mine': 'test-%d' % os.getpid()}
        made = []
        groups = groups_of('self')
        for name in ('memory', 'pids'):
            path = groups.get(name, groups.get('v2'))
            for kind in names:
                where = '%s/%s/s1/c1' % (path, names[kind])
                if where in made:
                    continue
                os.makedirs(where)
                made.append(where)
                for level in (os.path.dirname(os.path.dirname(where)), os.path.dirname(where), where):
                    self.addCleanup(lambda d=level: os.path.isdir(d) and os.rmdir(d))
            with open('%s/%s/s1/c1/cgroup.procs' % (path, names['busy']), 'w') as f:
                f.write('%d' % sleeper.pid)
        self.addCleanup(lambda: (sleeper.kill(), sleeper.wait()))
        subprocess.run([PROGRAM, 'exec', '--no-local-socket', '--limit', 'memory=64M', '--limit', 'pids=9', '--', 'true'], check=True,
                       timeout=wire.DEADLINE, env={**os.environ, 'SALLYPORT_CONFIG': '/dev/null'})
        left = {kind for kind in names for where in made if '/%s/' % names[kind] in where and os.path.isdir(where)}
        self.assertEqual(left, set(names) - {'dead'})
        self.assertFalse([w for w in made if names['dead'] in w and os.path.isdir(os.path.dirname(os.path.dirname(w)))])

    @unittest.skipUnless(os.geteuid() == 0, 'needs root, to make a cgroup')
    @needs('memory')
    def test_a_server_lives_in_256_mib_whatever_its_commands_print(self):
        count, at_once = (10000 if tap.IS_LONG else 300), 16
        groups = groups_of('self')
        path = '%s/room-%d' % (groups.get('memory', groups.get('v2')), os.getpid())
        os.mkdir(path)
        self.addCleanup(os.rmdir, path)
        for name in ('memory.limit_in_bytes', 'memory.max'):
            if os.path.exists('%s/%s' % (path, name)):
                with open('%s/%s' % (path, name), 'w') as f:
                    f.write(str(256 * MIB))

        def enter():
            with open(path + '/cgroup.procs', 'w') as f:
                f.write('0')
        listen = os.path.join(self.scratch(), 'socket')
        self.srv = self.server(listen='unix://' + listen, before_exec=enter)
        c = self.srv.lines().handshake()
        channel, kept, closed, sent, output = c.transport.channel, b'', 0, 0, 0
        os.set_blocking(channel.rfd, True)
        while closed < count:
            while sent < count and sent - closed < at_once:
                params = c.start_params('w%d' % sent, ['head', '-c', '3000000', '/dev/zero'])
                message = json.dumps({'id': 100000 + sent, 'method': 'process/start', 'params': params}).encode() + b'\n'
                while message:
                    message = message[os.write(channel.wfd, message):]
                sent += 1
            data = os.read(channel.rfd, 1 << 20)
            self.assertTrue(data, 'the server closed the connection after %d commands' % closed)
            output += len(data)
            text = kept + data
            self.assertNotIn(b'"error"', text)
            closed += text.count(b'"method":"process/closed"')
            kept = text[-24:] if not text.endswith(b'\n') else b''
            kept = kept if b'"method":"process/closed"' not in kept else b''
        self.assertGreater(output, count * 4000000)
        other = self.srv.lines().handshake()
        self.assertEqual(other.sh('echo alive').stdout, b'alive\n')


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
        r = subprocess.run([PROGRAM, 'exec', '--no-local-socket', '--json', '--limit', 'memory=64M', '--', *hog(200)], capture_output=True,
                           timeout=wire.DEADLINE, env={**os.environ, 'SALLYPORT_CONFIG': '/dev/null'})
        receipt = json.loads(r.stdout.splitlines()[-1])['receipt']
        self.assertEqual((receipt['reason'], receipt['limits_hit']), ('memory_limit', [{'limit': 'memory', 'value': 64 * MIB, 'count': 1, 'leader': True}]))


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
