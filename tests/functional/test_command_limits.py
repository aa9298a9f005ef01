# SPDX-License-Identifier: Apache-2.0
"""What a command may consume: how limits are set, how they hold, and how it is told that one was reached."""

import json
import os
import subprocess
import tempfile

import mcp
import tap
import wire
from server import PROGRAM, Case, cgroup_of, cgroup_roots, ours_only

MIB = 1 << 20


def exec_verb(*words, env=None, **how):
    """`sallyport exec`, bounded from outside, too."""
    run = subprocess.run([PROGRAM, 'exec', '--no-local-socket', *words], capture_output=True, timeout=wire.DEADLINE,
                         env={**os.environ, 'SALLYPORT_CONFIG': '/dev/null', **(env or {})}, **how)
    return run.returncode, run.stdout, run.stderr.decode()


# One command for each limit that needs no controller: its limits, its program, its end, its hit.
ENDS = [
    ({'wallMs': 200}, 'sleep 600 & sleep 600', (137, 'wall_limit', 'wall', 200)),
    ({'outputBytes': MIB}, 'exec yes', (137, 'output_limit', 'output', MIB)),
    ({'cpuMs': 1000, 'enforcement': 'best'}, 'while :; do :; done', (None, 'cpu_limit', 'cpu', 1000)),
    ({'fileSizeBytes': 4096}, 'exec dd if=/dev/zero of=file bs=1M count=1 2>/dev/null', (153, 'signal', 'fsize', 4096)),
]


@ours_only
class Wire(Case):
    def start(self, c, name, program, limits, **more):
        return c.start(name, ['/bin/sh', '-c', program], cwd=wire.file_uri(self.srv.work), limits=limits, **more)

    def exited(self, c, name):
        return c.wait_closed(name).told

    def test_each_limit_ends_its_command_and_is_told(self):
        c = self.session()
        for i, (limits, program, (code, reason, limit, value)) in enumerate(ENDS):
            with self.subTest(limit):
                self.start(c, 'p%d' % i, program, limits)
                end = self.exited(c, 'p%d' % i)
                self.assertIn(end['exitCode'], (code,) if code else (152, 137), end)
                self.assertEqual(end.get('reason'), reason)
                self.assertEqual(end['limitsHit'], [{'limit': limit, 'value': value, 'count': 1, 'leader': True}])

    def test_the_receipt_has_the_limits_too(self):
        class Asking(wire.Client):
            takes_receipts = True
        self.srv = self.server()
        c = self.srv.connect()
        c.__class__ = Asking
        c.initialize()
        c.send({'method': 'initialized'})
        self.start(c, 'p', 'sleep 600', {'wallMs': 100})
        receipt = c.wait_closed('p').receipt
        self.assertEqual((receipt['reason'], receipt['limitsHit'][0]['limit']), ('wall_limit', 'wall'))

    def test_at_most_64_kib_more_than_the_limit_are_told(self):
        c = self.session()
        self.start(c, 'p', 'yes & yes >&2 & wait', {'outputBytes': MIB})
        p = c.wait_closed('p')
        self.assertGreater(len(p.stdout) + len(p.stderr), MIB)
        self.assertLessEqual(len(p.stdout) + len(p.stderr), MIB + 65536)

    def test_output_behind_the_exit_counts(self):
        c = self.session()
        self.start(c, 'p', 'yes & exit 3', {'outputBytes': MIB})
        p = c.wait_closed('p')
        self.assertEqual(p.exit_code, 3)
        self.assertLessEqual(len(p.stdout), MIB + 65536)

    def test_output_behind_the_exit_ends_what_ignores_a_closed_pipe(self):
        c = self.session()
        self.start(c, 'p', '(trap "" PIPE; yes; exec sleep 600) & echo $!; exit 3', {'outputBytes': MIB})
        pid = int(c.wait_line('p'))
        self.srv.track(pid)
        self.assertEqual(c.wait_closed('p').exit_code, 3)
        if not cgroup_roots() or cgroup_of(pid) in (None, cgroup_of(os.getpid())):
            self.skipTest('this host lets us have no cgroups')
        self.assertGone(pid)

    def test_a_command_below_its_limits_is_as_without(self):
        c = self.session()
        self.start(c, 'p', 'echo x; exit 3', {'wallMs': 600000, 'outputBytes': MIB, 'openFiles': 64})
        end = self.exited(c, 'p')
        self.assertEqual((end['exitCode'], end.get('reason'), end.get('limitsHit')), (3, 'exit', None))

    def test_a_wall_limit_holds_without_a_connection(self):
        c = self.session()
        self.start(c, 'p', 'echo $$; sleep 600', {'wallMs': 400})
        pid = int(c.wait_line('p'))
        self.srv.track(pid)
        c.abort()
        self.assertGone(pid)

    def test_ulimit_shows_open_files_and_file_size(self):
        c = self.session()
        self.start(c, 'p', 'ulimit -n; ulimit -f', {'openFiles': 50, 'fileSizeBytes': MIB})
        self.assertEqual(c.wait_closed('p').stdout, b'50\n2048\n')

    def test_mistakes_are_refused(self):
        c = self.session()
        for i, (limits, text) in enumerate([
                ({'wallMs': 0}, 'limits.wallMs must be an integer from 1 on'),
                ({'wallMs': 1.5}, 'limits.wallMs must be an integer from 1 on'),
                ({'wallMs': '1'}, 'limits.wallMs must be an integer from 1 on'),
                ({'wallMs': -1}, 'limits.wallMs must be an integer from 1 on'),
                ({'wallMs': 10 ** 30}, 'limits.wallMs must be an integer from 1 on'),
                ({'memoryBytes': 1024}, 'limits.memoryBytes must be an integer from 16777216 on'),
                ({'cpus': 0}, 'limits.cpus must be a number from 0.01 on'),
                ({'wall': 5}, 'unknown limit `wall`'),
                ({'enforcement': 'some'}, 'limits.enforcement must be `tree` or `best`')]):
            with self.subTest(limits):
                self.assertError(c.start_error('p%d' % i, ['true'], limits=limits), -32602, text)

    def test_a_request_lowers_the_limits_of_its_server_and_never_raises_them(self):
        c = self.session('--limit', 'wall=1h', '--limit', 'files=100')
        self.assertError(c.start_error('p', ['true'], limits={'wallMs': 3600001}), -32602,
                         'limits.wallMs: 3600001 is more than the 3600000 that --limit wall allows')
        self.start(c, 'low', 'ulimit -n; sleep 600', {'wallMs': 300, 'openFiles': 50})
        self.assertEqual(self.exited(c, 'low')['reason'], 'wall_limit')
        self.assertEqual(c.wait_closed('low').stdout, b'50\n')
        c.start('plain', ['/bin/sh', '-c', 'ulimit -n'])  # without limits of its own, and told nothing about them
        self.assertEqual(c.wait_closed('plain').stdout, b'100\n')

    def test_the_scopes_are_told(self):
        c = self.session()
        info = c.request('environment/info')
        self.assertTrue(info['capabilities']['processLimits'])
        self.assertEqual({k: info['limits'][k] for k in ('wallMs', 'outputBytes', 'openFiles', 'fileSizeBytes')},
                         {'wallMs': 'tree', 'outputBytes': 'tree', 'openFiles': 'process', 'fileSizeBytes': 'process'})
        p = self.start(c, 'p', 'true', {'wallMs': 60000, 'openFiles': 64})
        self.assertEqual(p.limits, {'wallMs': 'tree', 'openFiles': 'process'})


@ours_only
class Doors(Case):
    def test_large_values_are_in_force_here_and_on_a_server(self):
        srv = self.server()
        for where in ((), ('--on', srv.url)):
            for limit, shows in (('fsize=1M', '2048'), ('fsize=1000K', '2000'), ('fsize=6G', '12582912')):
                self.assertEqual(exec_verb(*where, '--limit', limit, '--', 'sh', '-c', 'ulimit -f'), (0, shows.encode() + b'\n', ''), where)
        code, out, err = exec_verb('--set', 'limits.command.fsize="1M"', '--', 'sh', '-c', 'ulimit -f')
        self.assertEqual((code, out, err), (0, b'2048\n', ''))
        # Of a memory limit for each process alone; with cgroups there is no other limit.
        self.assertIn(exec_verb('--limit', 'memory=5G', '--', 'sh', '-c', 'ulimit -d')[1], (b'unlimited\n', b'5242880\n'))

    def test_exec_here_and_on_a_server_tells_the_limit(self):
        srv = self.server()
        for where in ((), ('--on', srv.url)):
            with self.subTest(where):
                code, _, err = exec_verb(*where, '--limit', 'wall=200ms', '--', 'sleep', '600')
                self.assertEqual((code, err), (137, 'sallyport: wall limit 0.2 s reached: the command was killed\n'))
                _, out, _ = exec_verb(*where, '--json', '--limit', 'output=64K', '--', 'yes')
                end = json.loads(out.splitlines()[-1])
                self.assertEqual((end['receipt']['reason'], end['receipt']['limits_hit'][0]['limit']), ('output_limit', 'output'))
                _, out, _ = exec_verb(*where, '--json', '--limit', 'wall=100ms', '--', 'sleep', '600')
                self.assertEqual(json.loads(out.splitlines()[-1])['receipt']['reason'], 'wall_limit')
        _, out, _ = exec_verb('--json', '--limit', 'cpu=1s', '--', 'sh', '-c', 'while :; do :; done')
        self.assertEqual(json.loads(out.splitlines()[-1])['receipt']['reason'], 'cpu_limit')

    def test_values_reach_the_command_whole(self):
        srv = self.server()
        for where in ((), ('--on', srv.url)):
            with self.subTest(where):
                _, out, _ = exec_verb(*where, '--limit', 'fsize=1234567890', '--limit', 'files=200', '--limit', 'cpu=1h', '--',
                                      'cat', '/proc/self/limits')
                values = {line[:26].strip(): line[26:47].strip() for line in out.decode().splitlines()}
                self.assertEqual([values[k] for k in ('Max file size', 'Max open files', 'Max cpu time')],
                                 ['1234567890', '200', '3600'])

    def test_a_command_that_ended_before_was_not_killed(self):
        says = {137: 'the command was killed', 0: 'the command had ended before'}
        for _ in range(10):  # the last output and the end race with the cell: either is right
            code, _, err = exec_verb('--limit', 'output=10', '--', 'seq', '3000')
            self.assertEqual(err, 'sallyport: output limit 10 bytes reached: %s\n' % says.get(code))

    def test_exec_says_which_limit_it_runs_without(self):
        srv = self.server()
        run = subprocess.run([PROGRAM, 'doctor', '--json'], capture_output=True, timeout=wire.DEADLINE)
        doctor = json.loads(run.stdout)['limits']
        for where, place in (((), 'here'), (('--on', srv.url), 'on that server')):
            for name in ('memory', 'pids', 'cpus', 'cpu', 'wall', 'files'):
                with self.subTest((place, name)):
                    args = (*where, '--limit', name + ('=64M' if name == 'memory' else '=64'), '--', 'true')
                    code, _, err = exec_verb(*args)
                    self.assertEqual((code, f'--limit {name} cannot be enforced {place}: the command runs without it' in err),
                                     (0, doctor[name] is None), err)
                    self.assertEqual(exec_verb('-q', *args)[2], '')

    def test_a_memory_limit_for_each_process_alone_is_told(self):
        run = subprocess.run([PROGRAM, 'doctor', '--json'], capture_output=True, timeout=wire.DEADLINE)
        scope = json.loads(run.stdout)['limits']['memory']
        code, _, err = exec_verb('--limit', 'memory=64M', '--', 'true')
        self.assertEqual((code, 'memory holds for each process alone here, and below 1G as 1G' in err), (0, scope == 'process'), err)

    def test_a_server_without_its_limits_does_not_start(self):
        with tempfile.TemporaryDirectory() as base:
            path = os.path.join(base, 'sallyport.conf')
            with open(path, 'w') as f:
                f.write('[limits.command]\nwall = "1s"\nwal = "2s"\n')
            run = subprocess.run([PROGRAM, 'serve', '--listen', 'ws://127.0.0.1:0'], capture_output=True, timeout=wire.DEADLINE,
                                 env={**os.environ, 'SALLYPORT_CONFIG': path})
        self.assertEqual((run.returncode, run.stdout), (1, b''))
        self.assertIn(b'line 3', run.stderr)

    def test_a_limit_of_a_server_or_the_configuration_without_effect_is_told(self):
        srv = self.server('--limit', 'session:pids=4096', '--limit', 'wall=1h')
        scopes = srv.connect().initialize()['environmentInfo']['limits']
        self.assertEqual('the limit session:pids has no effect' in srv.stderr(), 'pids' not in scopes)
        self.assertNotIn('wall has no effect', srv.stderr())
        path = os.path.join(self.scratch(), 'sallyport.conf')
        with open(path, 'w') as f:
            f.write('[limits.command]\ncpus = 1.5\nwall = "1h"\n')
        code, _, err = exec_verb('--', 'true', env={'SALLYPORT_CONFIG': path})
        self.assertEqual((code, 'the configured limit cpus cannot be enforced here' in err), (0, 'cpus' not in scopes), err)
        self.assertNotIn('wall', err)

    def test_wrong_options_are_refused(self):
        for given, text in (('wall', 'NAME=VALUE'), ('wall=0', 'wall=TIME'), ('week:wall=1s', 'LEVEL'), ('files=2', 'files=N'),
                            ('cpus=1.2345', 'cpus=N'), ('session:wall=1s', 'memory, pids and cpus'), ('memory=1M', '16M')):
            with self.subTest(given):
                code, _, err = exec_verb('--limit', given, '--', 'true')
                self.assertEqual(code, 125)
                self.assertIn(text, err)

    def test_the_configuration_has_limits_and_the_option_comes_first(self):
        path = os.path.join(self.scratch(), 'sallyport.conf')
        with open(path, 'w') as f:
            f.write('[limits.command]\nfiles = 77\nwall = "1h"\ncpus = 1.5\n')
        env = {'SALLYPORT_CONFIG': path}
        self.assertEqual(exec_verb('--', 'sh', '-c', 'ulimit -n', env=env)[1], b'77\n')
        self.assertEqual(exec_verb('--limit', 'files=88', '--', 'sh', '-c', 'ulimit -n', env=env)[1], b'88\n')
        with open(path, 'a') as f:
            f.write('[limits.session]\nwall = "1h"\n')
        code, _, err = exec_verb('--', 'true', env=env)
        self.assertEqual(code, 125)
        self.assertIn('memory, pids and cpus', err)


@ours_only
class Tools(mcp.Case):
    def test_exec_command_takes_limits(self):
        host = self.mcp('--sandbox', 'danger-full-access', '--limit', 'wall=1h')
        r = host.exec('yes', limits={'output_bytes': 65536})
        self.assertEqual((r['end_reason'], r['exit_code'], r['receipt']['limits_hit'][0]['limit']), ('output_limit', 137, 'output'), r)
        text = host.exec('sleep', '600', limits={'wall_ms': 200}).text
        self.assertIn('Ended by: wall_limit (SIGKILL)\nwall limit 0.2 s reached: the command was killed\n', text)
        self.assertEqual(host.exec('sh', '-c', 'while :; do :; done', limits={'cpu_ms': 1000}, yield_time_ms=30000)['end_reason'], 'cpu_limit')
        for limits, why in (({'wall_ms': 3600001}, '--limit wall allows'), ({'wallMs': 5}, 'unknown limit'), (7, 'is an object')):
            with self.subTest(limits):
                self.assertIn(why, host.exec('true', limits=limits).text)


if __name__ == '__main__':
    tap.main()
