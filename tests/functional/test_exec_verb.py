# SPDX-License-Identifier: Apache-2.0
"""`sallyport exec`: one command, here or on a server; its streams, terminal, signals, time and end."""

import base64
import hashlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
import unittest
import unittest.mock

import tap
import wire
from server import PROGRAM, ours_only
from test_sandbox_verb import Screen, Verb
from wire import wait_until

# a setting that is warned of, with a control sequence in its name
PAINTING = 'permissions={"\\u001b[2J"={}}'
HOLD = 'while :; do sleep 0.05; done'


class Exec(Verb):
    where = ()  # the words that say where it runs

    def setUp(self):
        super().setUp()
        self.env['SALLYPORT_CONFIG'] = '/dev/null'

    def args(self, *words):
        return [PROGRAM, 'exec', *self.where, *words]

    def until_gone(self, pids):
        wait_until(lambda: not any(os.path.exists('/proc/%d' % p) for p in pids), 'end of the tree')


# --------------------------------------------------------------------------- what is so everywhere


class Everywhere:
    """Mixed into the class of each place."""

    def test_streams_are_apart_and_the_exit_code_is_the_commands(self):
        self.assertEqual(self.sh('echo out; echo err >&2; exit 7'), (7, b'out\n', b'err\n'))
        self.assertEqual(self.sh('exit 255')[0], 255)

    def test_death_by_signal_is_128_and_the_signal(self):
        for sig in (9, 15, 11):
            self.assertEqual(self.sh('kill -%d $$' % sig)[0], 128 + sig)

    def test_missing_and_forbidden_programs(self):
        code, out, err = self.run_verb('--', 'no-such-program')
        self.assertEqual((code, out, err), (127, b'', b'sallyport: no-such-program: command not found\n'))
        code, out, err = self.run_verb('--', '/etc/passwd')
        self.assertEqual((code, out, err), (126, b'', b'sallyport: /etc/passwd: Permission denied\n'))

    def test_arguments_environment_and_directory(self):
        code, out, _ = self.run_verb('--env', 'FRUIT=pear', '--env', 'EMPTY=', '--cwd', self.beside, '--', 'sh', '-c',
                                     'pwd; echo "$FRUIT${EMPTY-unset}"; printf "%s|" "$@"', 'x', '--json', 'a  b', '', '-v')
        self.assertEqual((code, out), (0, b'%s\npear\n--json|a  b||-v|' % self.beside.encode()))

    def test_every_byte_comes_through_as_it_is(self):
        data = bytes(range(256)) * 64 + os.urandom(self.much)
        code, out, err = self.run_verb('--', 'cat', input=data)
        self.assertEqual((code, err, len(out)), (0, b'', len(data)))
        self.assertEqual(hashlib.sha256(out).digest(), hashlib.sha256(data).digest())

    def test_end_of_stdin_is_told(self):
        self.assertEqual(self.run_verb('--', 'wc', '-c', input=b'x' * 70001)[:2], (0, b'70001\n'))
        self.assertEqual(self.run_verb('--', 'wc', '-c')[:2], (0, b'0\n'))

    def test_without_stdin(self):
        p = self.popen('--no-stdin', '--', 'cat', stdin=subprocess.PIPE)  # which we leave open
        self.assertEqual((p.wait(wire.DEADLINE), p.stdout.read()), (0, b''))

    def test_a_slow_reader_gets_everything_and_nobody_spins(self):
        p = self.popen('--', 'sh', '-c', 'head -c 3000000 /dev/zero; echo end', stderr=subprocess.DEVNULL)
        time.sleep(1)
        with open('/proc/%d/stat' % p.pid) as f:
            fields = f.read().rsplit(')', 1)[1].split()
        self.assertLess((int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK'), 0.5 * wire.SCALE)
        total = 0
        while True:
            part = os.read(p.stdout.fileno(), 100000)
            if not part:
                break
            total += len(part)
            if total < 1000000:
                time.sleep(0.02)
        self.assertEqual((p.wait(wire.DEADLINE), total), (0, 3000004))

    def test_an_endless_writer_is_held_back(self):
        p = self.popen('--', 'cat', '/dev/zero')
        time.sleep(1)
        with open('/proc/%d/status' % p.pid) as f:
            rss = int(next(line for line in f if line.startswith('VmRSS')).split()[1])
        self.assertLess(rss, 40000 * (8 if self.is_sanitized() else 1))
        self.assertEqual(len(os.read(p.stdout.fileno(), 65536)), 65536)
        p.terminate()
        p.stdout.close()
        self.assertIn(p.wait(wire.DEADLINE), (143, 141))

    def is_sanitized(self):
        with open(PROGRAM, 'rb') as f:
            return b'__asan_init' in f.read()

    def test_closed_stdout_ends_the_command(self):
        p = self.popen('--', 'sh', '-c', 'while :; do echo y; done; echo never >&2')
        self.assertEqual(os.read(p.stdout.fileno(), 2), b'y\n')
        p.stdout.close()
        self.assertEqual(p.wait(wire.DEADLINE), 141)
        self.assertEqual(p.stderr.read(), b'')

    def test_timeout_kills_the_tree(self):
        began = time.monotonic()
        code, out, err = self.sh('sleep 300 & echo $!; setsid sh -c "trap : HUP TERM; echo \\$\\$; exec sleep 300" & '
                                 'echo up >&2; wait', '--timeout', '0.8')
        self.assertEqual((code, err), (124, b'up\nsallyport: timed out after 0.8 s, the command was killed\n'))
        self.assertLess(time.monotonic() - began, 20 * wire.SCALE)
        pids = [int(line) for line in out.split()]
        self.assertEqual(len(pids), 2)
        self.until_gone(pids)

    def test_a_timeout_that_is_not_reached_changes_nothing(self):
        self.assertEqual(self.sh('echo x; exit 3', '--timeout', '60'), (3, b'x\n', b''))

    def test_a_timeout_does_not_wait_for_a_reader(self):
        p = self.popen('--timeout', '0.5', '--', 'cat', '/dev/zero')
        self.assertEqual(p.wait(wire.DEADLINE), 124)

    def test_signals_are_passed_on(self):
        for name in ('INT', 'TERM', 'HUP', 'QUIT', 'USR1', 'USR2'):
            with self.subTest(name):
                p = self.popen('--', 'sh', '-c', 'trap "echo got; exit 9" %s; echo up; %s' % (name, HOLD))
                self.assertEqual(p.stdout.read(3), b'up\n')
                p.send_signal(getattr(signal, 'SIG' + name))
                self.assertEqual((p.wait(wire.DEADLINE), p.stdout.read()), (9, b'got\n'))

    def test_a_terminal_of_its_own(self):
        s = Screen(self, self.args('--tty', '--cwd', self.work, '--', 'sh', '-c',
                                   'trap "stty size; exit 3" WINCH; test -t 0 && test -t 2 && stty size; %s' % HOLD))
        s.wait_for(rb'30 100\r\n')
        self.assertTrue(s.is_raw())
        s.resize(41, 111)
        s.wait_for(rb'41 111\r\n')
        self.assertEqual((s.wait(), s.is_restored()), (3, True))

    def test_keys_are_the_commands(self):
        s = Screen(self, self.args('--tty', '--cwd', self.work, '--', 'sh', '-c',
                                   'trap "echo interrupted; exit 5" INT; echo up; %s' % HOLD))
        s.wait_for(rb'up\r\n')
        wait_until(s.is_raw, 'raw mode')
        s.type(b'\x03')
        s.wait_for(rb'interrupted\r\n')
        self.assertEqual((s.wait(), s.is_restored()), (5, True))

    def test_what_it_leaves_has_two_seconds_and_ends(self):
        began = time.monotonic()
        code, out, _ = self.sh('(sleep 0.2; echo late) & setsid sleep 300 & echo $!')
        pid, late = out.split()
        self.assertEqual((code, late), (0, b'late'))
        self.assertTrue(1.5 < time.monotonic() - began < 15 * wire.SCALE)
        self.until_gone([int(pid)])

    def test_a_denial_is_told_and_the_code_is_the_commands(self):
        place = os.path.join(self.beside, 'x')
        code, _, err = self.sh('echo x > %s; exit 4' % place, '--sandbox', 'read-only', '--cwd', self.work)
        self.assertEqual(code, 4)
        self.assertIn(b'sallyport: the sandbox ', err)
        self.assertFalse(os.path.exists(place))
        code, _, err = self.sh('echo x > %s/x; exit 4' % self.work, '--sandbox', ':workspace', '--cwd', self.work)
        self.assertEqual((code, err, os.path.exists(self.work + '/x')), (4, b'', True))

    def test_events_as_json(self):
        data = os.urandom(50000)
        code, out, err = self.run_verb('--json', '--cwd', self.work, '--', 'sh', '-c', 'cat; echo e >&2; exit 3', input=data)
        events = [json.loads(line) for line in out.splitlines()]
        kinds = [e['type'] for e in events]
        self.assertEqual((code, err, kinds[0], kinds[-2], kinds[-1]),
                         (3, b'', 'exec_command_begin', 'exec_command_end', 'result'))
        self.assertEqual(set(kinds[1:-2]), {'exec_command_output_delta'})
        got = {'stdout': b'', 'stderr': b''}
        for e in events[1:-2]:
            part = base64.b64decode(e['chunk'], validate=True)
            self.assertTrue(0 < len(part) <= 8192)
            got[e['stream']] += part
        self.assertEqual(got, {'stdout': data, 'stderr': b'e\n'})
        self.assertEqual(events[0]['command'], ['sh', '-c', 'cat; echo e >&2; exit 3'])
        self.assertEqual(events[0]['cwd'], self.work)
        self.assertEqual((events[-2]['exit_code'], events[-2]['status'], events[-2]['stderr']), (3, 'failed', 'e\n'))
        self.assertEqual(len({e['call_id'] for e in events[:-1]}), 1)
        receipt = events[-1].pop('receipt')
        self.assertEqual((receipt['reason'], receipt['output']), ('exit', {'stdout': 50000, 'stderr': 2, 'dropped': 0}))
        self.assertEqual(events[-1], {'type': 'result', 'kind': 'exited', 'exit_code': 3, 'denials': []})

    def result(self, *words, **how):
        code, out, err = self.run_verb('--json', *words, **how)
        last = json.loads(out.splitlines()[-1])
        self.assertEqual((last.pop('type'), last['exit_code']), ('result', code))
        self.receipt = last.pop('receipt', None)
        return last, out, err

    def test_each_end_has_its_kind(self):
        self.assertEqual(self.result('--', 'sh', '-c', 'kill -9 $$')[0],
                         {'kind': 'signalled', 'exit_code': 137, 'signal': 9, 'denials': []})
        self.assertEqual((self.receipt['reason'], 'user_ms' in self.receipt), ('signal', True))
        self.assertEqual(self.result('--', 'sh', '-c', 'exit 137')[0], {'kind': 'exited', 'exit_code': 137, 'denials': []})
        self.assertEqual(self.receipt['reason'], 'exit')
        last = self.result('--timeout', '0.3', '--', 'sleep', '300')[0]
        last.pop('signal', None)
        self.assertEqual(last, {'kind': 'timed_out', 'exit_code': 124, 'denials': [],
                                'message': 'timed out after 0.3 s, the command was killed'})
        self.assertEqual(self.receipt['reason'], 'terminated')
        self.assertGreaterEqual(self.receipt['wall_ms'], 200)
        self.assertEqual(self.result('--', 'no-such-program'), (
            {'kind': 'error', 'exit_code': 127, 'denials': [], 'message': 'no-such-program: command not found'},
            unittest.mock.ANY, b''))


@ours_only
class Here(Everywhere, Exec):
    much = 64 << 20


# --------------------------------------------------------------------------------------- here alone


@ours_only
class Local(Exec):
    def test_stdin_is_read_no_faster_than_the_command_reads(self):
        p = self.popen('--', 'sleep', '300', stdin=subprocess.PIPE)
        os.set_blocking(p.stdin.fileno(), False)
        sent, end = 0, time.monotonic() + 1
        while time.monotonic() < end:
            try:
                sent += os.write(p.stdin.fileno(), b'x' * 65536)
            except BlockingIOError:
                time.sleep(0.02)
        self.assertLess(sent, 1 << 20)
        p.terminate()
        self.assertEqual(p.wait(wire.DEADLINE), 143)

    def test_who_writes_to_a_command_that_reads_no_more_is_told(self):
        script = 'yes | "$0" exec -- sh -c "exec <&-; sleep 0.2; echo done"; echo ${PIPESTATUS[*]}'
        out = subprocess.run(['bash', '-c', script, PROGRAM], capture_output=True, timeout=wire.DEADLINE, env=self.env,
                             cwd=self.work).stdout
        self.assertEqual(out, b'done\n141 0\n')

    def test_a_full_disk_is_said(self):
        with open('/dev/full', 'wb') as full:
            p = self.popen('--', 'echo', 'x', stdout=full)
            self.assertEqual(p.wait(wire.DEADLINE), 125)
            self.assertEqual(p.stderr.read(), b'sallyport: write stdout: No space left on device\n')
            p = self.popen('--json', '--', 'echo', 'x', stdout=full)
            self.assertEqual(p.wait(wire.DEADLINE), 125)
            self.assertEqual(p.stderr.read(), b'sallyport: write to stdout: No space left on device\n')

    def test_without_any_stream(self):
        out = os.path.join(self.beside, 'made')
        script = 'exec "$0" exec -- sh -c "echo x > %s" <&- >&- 2>&-' % out
        code = subprocess.run(['sh', '-c', script, PROGRAM], timeout=wire.DEADLINE, env=self.env, cwd=self.work).returncode
        with open(out) as f:
            self.assertEqual((code, f.read()), (0, 'x\n'))

    def test_our_death_is_everybodys(self):
        p = self.popen('--', 'sh', '-c', 'echo up; sleep 300')
        self.assertEqual(p.stdout.read(3), b'up\n')
        p.kill()
        p.wait()  # nothing_is_left looks for the rest

    def test_its_own_environment_less_our_secrets(self):
        code, out, _ = self.sh('echo "$FRUIT$SALLYPORT_TOKEN_FILE"; env | grep -c ^PATH=',
                               env={'FRUIT': 'pear', 'SALLYPORT_TOKEN_FILE': '/dev/null', 'NO_SUCH_TOKEN': 'kept'})
        self.assertEqual((code, out), (0, b'pear\n1\n'))

    def test_a_signal_after_the_exit_ends_the_wait_for_others(self):
        p = self.popen('--', 'sh', '-c', 'sleep 300 & echo up; exit 6')
        self.assertEqual(p.stdout.read(3), b'up\n')
        time.sleep(0.3)
        began = time.monotonic()
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(wire.DEADLINE), 6)
        self.assertLess(time.monotonic() - began, 1.2)

    def test_stop_and_continue(self):
        p = self.popen('--', 'sh', '-c', 'echo up; while :; do echo x; sleep 0.05; done')
        self.assertEqual(p.stdout.read(3), b'up\n')
        p.send_signal(signal.SIGTSTP)

        def is_stopped():
            with open('/proc/%d/stat' % p.pid) as f:
                return f.read().rsplit(')', 1)[1].split()[0] == 'T'
        wait_until(is_stopped, 'stop')
        while select.select([p.stdout], [], [], 0.3)[0]:
            os.read(p.stdout.fileno(), 65536)
        p.send_signal(signal.SIGCONT)
        self.assertTrue(select.select([p.stdout], [], [], wire.DEADLINE)[0])
        p.terminate()
        self.assertEqual(p.wait(wire.DEADLINE), 143)

    def test_pipes_unless_a_terminal_is_asked_for(self):
        s = Screen(self, self.args('--', 'sh', '-c', 'test -t 0 || test -t 1 || test -t 2 || echo pipes'))
        s.wait_for(rb'pipes\r\n')
        self.assertEqual((s.wait(), s.is_restored()), (0, True))

    def test_a_killed_cell_is_a_lost_command(self):
        p = self.popen('--', 'sh', '-c', 'echo up; exec sleep 300')
        self.assertEqual(p.stdout.read(3), b'up\n')
        with open('/proc/%d/task/%d/children' % (p.pid, p.pid)) as f:
            os.kill(int(f.read().split()[0]), signal.SIGKILL)
        self.assertEqual(p.wait(wire.DEADLINE), 123)
        self.assertIn(b'process cell ended', p.stderr.read())

    def test_bytes_that_are_no_text_in_json(self):
        code, out, _ = self.run_verb('--json', '--', 'printf', b'%s', b'\xff\xc3')
        events = [json.loads(line) for line in out.splitlines()]
        chunks = [base64.b64decode(e['chunk']) for e in events if e['type'].endswith('delta')]
        self.assertEqual((code, b''.join(chunks)), (0, b'\xff\xc3'))
        self.assertEqual(events[-2]['stdout'], '\ufffd\ufffd')

    def test_much_output_in_json_is_complete(self):
        p = self.popen('--json', '--', 'head', '-c', '100000000', '/dev/zero', stderr=subprocess.DEVNULL)
        total, rest = 0, b''
        for line in io.BufferedReader(p.stdout):
            rest += line
            if not rest.endswith(b'\n'):
                continue
            e, rest = json.loads(rest), b''
            if e['type'].endswith('delta'):
                total += len(base64.b64decode(e['chunk']))
        self.assertEqual((p.wait(wire.DEADLINE), total, e['kind']), (0, 100000000, 'exited'))

    def test_denials_in_json(self):
        place = os.path.join(self.beside, 'x')
        code, out, err = self.sh('echo x > %s' % place, '--json', '--sandbox', ':read-only')
        last = json.loads(out.splitlines()[-1])
        self.assertEqual((err, last['kind']), (b'', 'exited'))
        self.assertEqual(last['denials'][-1]['source'], 'heuristic')
        self.assertEqual(last['denials'][-1]['reason'], 'read_only_file_system')

    def test_attempts_by_ipv6_are_counted(self):
        code, out, err = self.run_verb('--json', '--sandbox', ':read-only', '--', 'python3', '-c',
                                       "import socket, sys\n"
                                       "for i in range(3):\n"
                                       "    s = socket.socket(socket.AF_INET6)\n"
                                       "    assert s.connect_ex(('2001:db8::1', 9)) != 0\n"
                                       "sys.exit(7)")
        last = json.loads(out.splitlines()[-1])
        self.assertEqual((code, err, last['kind']), (7, b'', 'exited'))
        self.assertIn(('network', 3), [(d['source'], d.get('count')) for d in last['denials']])

    def test_the_sandbox_of_the_configuration(self):
        script = 'echo x 2>/dev/null > %s/x || echo no' % self.beside
        self.assertEqual(self.sh(script)[1], b'')
        os.unlink(self.beside + '/x')
        self.assertEqual(self.sh(script, '--set', 'default_permissions=":read-only"')[1], b'no\n')
        self.assertEqual(self.sh(script, env={'SALLYPORT_DEFAULT_PERMISSIONS': ':read-only'})[1], b'no\n')
        self.assertEqual(self.sh(script, '--set', 'default_permissions=":read-only"', '--sandbox', 'danger-full-access')[1], b'')

    def test_a_warning_of_the_configuration_does_nothing_to_the_terminal(self):
        code, out, err = self.run_verb('--set', PAINTING, '--', 'echo', 'ran')
        self.assertEqual((code, out), (0, b'ran\n'))
        self.assertIn(b'sallyport: ', err)
        self.assertIn(b'`\\x1b[2J` has no file-system entries', err)

    def test_a_file_of_rules_that_commands_may_write_is_warned_of(self):
        rules = os.path.join(self.base, 'mine.rules')
        with open(rules, 'w') as f:
            f.write('prefix_rule(pattern=["echo"], decision="allow")\n')
        code, out, err = self.run_verb('--cwd', self.base, '--sandbox', ':workspace', '--rules', rules, '--', 'echo', 'ran')
        self.assertEqual((code, out), (0, b'ran\n'))
        self.assertEqual(err.decode().count(rules + ': commands in this sandbox may write it'), 1, err)

    def test_a_rule_that_takes_the_sandbox_away_is_told(self):
        rules = os.path.join(self.beside, 'mine.rules')
        with open(rules, 'w') as f:
            f.write('prefix_rule(pattern=["touch"], decision="allow")\n')
        words = ('--rules', rules, '--', 'touch', self.beside + '/made')
        code, out, err = self.run_verb('--sandbox', ':workspace', *words)
        self.assertEqual((code, out), (0, b''), err)
        self.assertEqual(err, b'sallyport: this runs without the sandbox :workspace: a rule allows it (see `sallyport rules explain`)\n')
        self.assertEqual(self.run_verb('--quiet', '--sandbox', ':workspace', *words), (0, b'', b''))
        self.assertEqual(self.run_verb('--sandbox', ':workspace', '--rules', rules, '--', 'true'), (0, b'', b''))

    def test_missing_programs_under_a_sandbox(self):
        for program, code in (('no-such-program', 127), ('/etc/passwd', 126)):
            self.assertEqual(self.run_verb('--sandbox', ':read-only', '--', program)[0], code)

    def test_bad_usage_is_said_and_is_125(self):
        for words, text in (((), b'no command'), (('--',), b'no command'), (('--', ''), b'name is empty'),
                            (('--timeout', '0', '--', 'true'), b'--timeout'), (('--timeout', '-1', '--', 'true'), b'--timeout'),
                            (('--timeout', 'inf', '--', 'true'), b'--timeout'), (('--timeout', '1e', '--', 'true'), b'--timeout'),
                            (('--timeout', '0x10', '--', 'true'), b'--timeout'),
                            (('--env', 'X', '--', 'true'), b'NAME=VALUE'), (('--env', '=x', '--', 'true'), b'NAME=VALUE'),
                            (('--cwd', '/nowhere', '--', 'true'), b'/nowhere'), (('--cwd', '/etc/passwd', '--', 'true'), b'passwd'),
                            (('--sandbox', 'no-such', '--', 'true'), b'no-such'), (('--nonsense', '--', 'true'), b'nonsense'),
                            (('--on', 'no-such-place', '--', 'true'), b'no-such-place'),
                            (('--on', 'http://x', '--', 'true'), b'http://x'),
                            (('--config', '/nowhere/x', '--', 'true'), b'/nowhere/x'),
                            (('--set', 'nonsense=1', '--', 'true'), b'nonsense'),
                            (('--approve', 'sometimes', '--', 'true'), b'sometimes'), (('--rules', '/nowhere/y', '--', 'true'), b'/nowhere/y'),
                            (('--approver', 'deny', '--', 'true'), b'--approver')):
            with self.subTest(words):
                code, out, err = self.run_verb(*words)
                self.assertEqual((code, out), (125, b''))
                self.assertIn(text, err)

    def test_an_error_before_the_start_in_json(self):
        code, out, err = self.run_verb('--json', '--cwd', '/nowhere', '--', 'true')
        self.assertEqual((code, err), (125, b''))
        last = json.loads(out)
        self.assertEqual((last['type'], last['kind'], last['exit_code']), ('result', 'error', 125))
        self.assertIn('/nowhere', last['message'])

    def test_help(self):
        code, out, err = self.run_verb('--help')
        self.assertEqual((code, err), (0, b''))
        self.assertTrue(out.startswith(b'Usage: sallyport exec '))


# -------------------------------------------------------------------------------------- on a server


class There(Everywhere):
    much = 8 << 20


@ours_only
class OverWebSocket(There, Exec):
    def setUp(self):
        super().setUp()
        self.srv = self.server('--session-ttl', '2')  # what a command leaves ends with its session
        self.where = ('--on', self.srv.url)

    def test_the_directory_is_the_servers_unless_said(self):
        self.assertEqual(self.run_verb('--', 'pwd')[:2], (0, self.srv.work.encode() + b'\n'))
        code, _, err = self.run_verb('--cwd', 'relative', '--', 'true')
        self.assertEqual((code, b'absolute' in err), (125, True))

    def test_a_server_that_goes_away_is_a_lost_command(self):
        p = self.popen('--', 'sh', '-c', 'echo up; sleep 300', env={})
        self.assertEqual(p.stdout.read(3), b'up\n')
        self.srv.kill()
        self.assertEqual(p.wait(wire.DEADLINE), 123)
        self.assertIn(b'lost', p.stderr.read())

    def test_a_server_that_is_not_there(self):
        self.srv.stop()
        code, out, err = self.run_verb('--', 'true')
        self.assertEqual((code, out), (123, b''))
        self.assertIn(b'cannot be reached', err)
        last = json.loads(self.run_verb('--json', '--', 'true')[1].splitlines()[-1])
        self.assertEqual((last['kind'], last['exit_code']), ('lost', 123))


@ours_only
class OverUnixSocket(There, Exec):
    def setUp(self):
        super().setUp()
        self.srv = self.server('--session-ttl', '2', listen='unix://' + os.path.join(self.base, 'socket'))
        self.where = ('--on', self.srv.url)


@ours_only
class OverAProgram(There, Exec):
    """A server that is started for the command, on stdin and stdout."""

    def setUp(self):
        super().setUp()
        conf = os.path.join(self.base, 'sallyport.conf')
        with open(conf, 'w') as f:
            f.write('default_environment = "helper"\n[environments.helper]\nprogram = "%s"\n'
                    'args = ["serve", "--listen", "stdio"]\nenv = { EXTRA = "more" }\ncwd = "%s"\n' % (PROGRAM, self.work))
        os.chmod(conf, 0o600)
        self.env['SALLYPORT_CONFIG'] = conf
        self.where = ()

    def test_names_of_the_configuration(self):
        for words in ((), ('--on', 'helper')):
            self.assertEqual(self.run_verb(*words, '--', 'sh', '-c', 'pwd; echo $EXTRA')[:2],
                             (0, self.work.encode() + b'\nmore\n'))
        self.assertEqual(self.run_verb('--on', 'local', '--', 'sh', '-c', 'echo "<$EXTRA>"')[:2], (0, b'<>\n'))


@ours_only
class PlainServer(Exec):
    """One that knows the old protocol alone: no end of stdin, no signals, no sizes."""

    SERVER = '''
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "initialize":
        r = {"sessionId": "11111111-1111-4111-8111-111111111111"}
    elif m["method"] == "environment/info":
        r = {"shell": {"name": "sh", "path": "/bin/sh"}, "cwd": "file:///tmp"}
    else:
        r = None
    a = {"id": m["id"]}
    if r is None:
        a["error"] = {"code": -32601, "message": "no: " + m["method"]}
    else:
        a["result"] = r
    print(json.dumps(a), flush=True)
'''

    def setUp(self):
        super().setUp()
        script = os.path.join(self.base, 'server.py')
        with open(script, 'w') as f:
            f.write(self.SERVER)
        self.where = ('--set', 'environments.plain.program="%s"' % sys.executable,
                      '--set', 'environments.plain.args=["%s"]' % script, '--on', 'plain')

    def test_stdin_that_could_not_end_is_refused(self):
        code, out, err = self.run_verb('--', 'cat', input=b'x')
        self.assertEqual((code, out), (125, b''))
        self.assertIn(b'--no-stdin', err)

    def test_what_the_server_refuses_is_said(self):
        code, out, err = self.run_verb('--no-stdin', '--', 'true')
        self.assertEqual((code, out), (125, b''))
        self.assertIn(b'no: process/start', err)
        p = self.popen('--', 'true')  # /dev/null has ended before it began
        self.assertEqual(p.wait(wire.DEADLINE), 125)
        self.assertIn(b'no: process/start', p.stderr.read())


if __name__ == '__main__':
    tap.main()
