# SPDX-License-Identifier: Apache-2.0
"""The local sockets of `exec` and `mcp`: who may do what there, and questions answered from elsewhere."""

import json
import os
import signal
import socket
import subprocess

import mcp
import tap
from server import PROGRAM, Case, ours_only
from wire import wait_until

SANITIZERS = {k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}
CONSOLE = {'who': 'ada', 'roles': ['approver'], 'via': 'a test'}


def accepts(path):
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(path) == 0


class Wire:
    """One connection to a local socket: JSON lines."""

    def __init__(self, path, **more):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(40)
        self.socket.connect(path)
        self.stream = self.socket.makefile('rw', encoding='utf-8', newline='\n')
        self.ids, self.notes = 0, []
        self.hello = self.ask('initialize', {'clientName': 'test', **more})
        self.stream.write('{"method":"initialized"}\n')
        self.stream.flush()

    def ask(self, method, params=None):
        self.ids += 1
        self.stream.write(json.dumps({'id': self.ids, 'method': method, 'params': params or {}}) + '\n')
        self.stream.flush()
        while True:
            told = json.loads(self.stream.readline())
            if told.get('id') == self.ids:
                return told
            self.notes.append(told)

    def note(self, method):
        while not any(n['method'] == method for n in self.notes):
            self.notes.append(json.loads(self.stream.readline()))
        return next(n for n in self.notes if n['method'] == method)['params']

    def close(self):
        self.stream.close()
        self.socket.close()


class Own(Case):
    def setUp(self):
        super().setUp()
        self.runtime = os.path.realpath(self.scratch())
        self.env = dict(SANITIZERS, PATH='/usr/bin:/bin', HOME=self.scratch(), XDG_RUNTIME_DIR=self.runtime,
                        SALLYPORT_CONFIG='/dev/null')

    def begin(self, *words, **more):
        p = subprocess.Popen([PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=self.env, **more)

        def end():
            if p.poll() is None:
                p.kill()
            p.wait()
            for f in (p.stdin, p.stdout, p.stderr):
                f.close()
        self.addCleanup(end)
        return p

    def path(self, p):
        path = '%s/sallyport/%d.sock' % (self.runtime, p.pid)
        wait_until(lambda: accepts(path), 'the socket %s' % path)
        return path

    def wire(self, p, **more):
        w = Wire(self.path(p), **more)
        self.addCleanup(w.close)
        return w

    def verb(self, *words):
        return subprocess.run([PROGRAM, *words], capture_output=True, env=self.env, timeout=60)

    def questions(self):
        run = self.verb('approvals', '--json')
        return [json.loads(line) for line in run.stdout.splitlines()]

    def question(self):
        wait_until(self.questions, 'a question')
        return self.questions()[0]


@ours_only
class Sockets(Own):
    def test_nothing_is_started_there(self):
        p = self.begin('exec', '--', 'cat')
        w = self.wire(p)
        self.assertEqual((w.hello['result']['server']['kind'], w.hello['result']['server']['pid']), ('exec', p.pid))
        for method in ('process/start', 'fs/readFile', 'fs/writeFile', 'http/request', 'environment/config/read'):
            error = w.ask(method)['error']
            self.assertIn(error['code'], (-32600, -32601))
            if error['code'] == -32600:
                self.assertIn('would go around the approvals', error['message'])
        listed = w.ask('process/list', {'all': True})['result']['processes']
        self.assertEqual([x['argv'] for x in listed], [['cat']])

    def test_see_type_and_wait(self):
        p = self.begin('exec', '--', 'sh', '-c', 'echo up; read x; echo got $x; read y; exit 7')
        self.path(p)
        name = 'exec-%d.1' % p.pid
        wait_until(lambda: name.encode() in self.verb('ps').stdout, 'the process in the list')
        self.assertRegex(self.verb('ps').stdout.decode(), r'(?m)^exec/%d ' % p.pid)
        wait_until(lambda: self.verb('logs', name).stdout == b'up\n', 'its output')
        waiter = self.begin('wait', name)
        p.stdin.write(b'one\n')
        p.stdin.flush()
        wait_until(lambda: self.verb('logs', name).stdout == b'up\ngot one\n', 'its output')
        self.assertEqual(self.verb('wait', '--timeout', '0.1', name).returncode, 124)
        p.stdin.write(b'two\n')
        p.stdin.flush()
        self.assertEqual((waiter.wait(40), p.wait(40)), (7, 7))
        self.assertFalse(os.listdir(self.runtime + '/sallyport'))

    def test_kill_from_elsewhere(self):
        p = self.begin('exec', '--', 'sleep', '600')
        self.path(p)
        wait_until(lambda: b'sleep' in self.verb('ps').stdout, 'the process in the list')
        # 123: `exec` may have ended with its command before it answered.
        self.assertIn(self.verb('kill', 'exec').returncode, (0, 123))
        self.assertEqual(p.wait(40), 137)
        self.assertRegex(p.stderr.read(), rb'^sallyport: killed by process \d+ of user %d ' % os.getuid())

    def test_no_socket_if_not_wanted_and_none_is_left(self):
        for words in (['exec', '--no-local-socket', '--', 'cat'], ['mcp', '--no-local-socket', '--cwd', '/tmp']):
            quiet = self.begin(*words)
            loud = self.begin('mcp', '--cwd', '/tmp')
            path = self.path(loud)
            self.assertEqual(os.listdir(self.runtime + '/sallyport'), ['%d.sock' % loud.pid])
            loud.send_signal(signal.SIGKILL)
            loud.wait(40)
            self.assertTrue(os.path.exists(path))
            quiet.stdin.close()
            quiet.wait(40)
            other = self.begin('mcp', '--cwd', '/tmp')  # which removes it
            self.path(other)
            wait_until(lambda: not os.path.exists(path), 'the stale socket gone')
            other.stdin.close()
            self.assertEqual(other.wait(40), 0)
            self.assertFalse(os.listdir(self.runtime + '/sallyport'))

    def test_a_sandbox_does_not_see_them(self):
        for sandbox in (':read-only', ':workspace'):
            p = self.verb('exec', '--sandbox', sandbox, '--cwd', self.scratch(), '--', 'sh', '-c',
                          'sleep 0.3; ls %s/sallyport; test ! -S %s/sallyport/$PPID.sock' % ((self.runtime,) * 2))
            self.assertEqual((p.returncode, p.stdout), (0, b''), p.stderr)

    def test_without_a_server(self):
        run = self.verb('approvals')
        self.assertEqual((run.returncode, run.stderr), (
            123, b'sallyport: there is no question: no sallyport serve, mcp or exec of this user is running\n'))
        run = self.verb('ps', '--on', 'nowhere')
        self.assertEqual(run.returncode, 123)
        self.assertIn(b'no such server: nowhere is neither', run.stderr)
        run = self.verb('ps')
        self.assertEqual((run.returncode, run.stderr),
                         (123, b'sallyport: no server is running; start one: sallyport exec -d -- COMMAND, or sallyport serve\n'))


@ours_only
class Ended(Own):
    """Commands of an agent that have ended, seen from another terminal."""

    def setUp(self):
        super().setUp()
        self.work = self.scratch()

    def agent(self, *words):
        p = self.begin('mcp', '--cwd', self.work, '--sandbox', ':danger-full-access', '--approve', 'never', *words)
        host = mcp.Lines(os.dup(p.stdout.fileno()), os.dup(p.stdin.fileno()))
        self.addCleanup(host.close)
        host.open()
        return p, host

    def entries(self):
        run = self.verb('ps', '-a', '--json')
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)['history']

    def test_logs_of_a_command_of_an_agent(self):
        p, host = self.agent()
        self.path(p)
        r = host.exec('sh', '-c', 'echo first; echo bad >&2; exit 3')
        self.assertEqual(r['exit_code'], 3, r)
        wait_until(self.entries, 'the command in the history')
        (e,) = self.entries()
        self.assertEqual((e['reason'], e['exitCode'], e['argv'], e['outputBytes']),
                         ('exited', 3, ['sh', '-c', 'echo first; echo bad >&2; exit 3'], 10))
        self.assertRegex(self.verb('ps', '-a').stdout.decode(), r'(?m)%s +\d+ +exited \(3\) ' % e['processId'])
        self.assertNotIn(e['processId'], self.verb('ps').stdout.decode())
        logs = self.verb('logs', e['processId'])
        self.assertEqual((logs.returncode, logs.stdout, logs.stderr), (0, b'first\n', b'bad\n'))
        self.assertEqual(self.verb('wait', e['processId']).returncode, 3)
        self.assertEqual(self.verb('rm', e['processId']).returncode, 0)
        self.assertEqual(self.entries(), [])
        self.assertEqual(self.verb('logs', e['processId']).returncode, 1)

    def test_a_command_that_is_killed(self):
        p, host = self.agent()
        self.path(p)
        later = host.call_later('exec_command', {'argv': ['sh', '-c', 'echo up; exec sleep 600']})
        wait_until(lambda: b'sleep 600' in self.verb('ps').stdout, 'the command')
        (running,) = json.loads(self.verb('ps', '--json').stdout)['processes']
        wait_until(lambda: self.verb('logs', running['processId']).stdout == b'up\n', 'its output')
        self.assertEqual(self.verb('kill', running['processId']).returncode, 0)
        host.result(later)
        wait_until(self.entries, 'the command in the history')
        (e,) = self.entries()
        self.assertEqual((e['processId'], e['reason'], e['exitCode']), (running['processId'], 'terminated', 137))
        self.assertEqual(self.verb('logs', e['processId']).stdout, b'up\n')

    def test_a_snapshot_of_the_environment_is_not_remembered(self):
        self.env['SECRET_TOKEN'] = 'of the user'
        snapshots = os.path.join(self.env['HOME'], '.sallyport', 'snapshots')
        os.makedirs(snapshots, mode=0o700)
        p, host = self.agent('--set', 'features.shell_snapshot=true')
        self.path(p)
        self.assertEqual(host.run('echo hi', login=True)['exit_code'], 0)
        self.assertTrue(os.listdir(snapshots))
        wait_until(self.entries, 'the command in the history')
        self.assertEqual([e['outputBytes'] for e in self.entries()], [3], self.entries())

    def test_an_exec_remembers_nothing(self):
        p = self.begin('exec', '--', 'cat')
        w = self.wire(p)
        self.assertIs(w.hello['result']['environmentInfo']['capabilities']['history'], False)
        self.assertEqual(w.ask('history/list')['result'], {'entries': []})
        self.assertIn('unknown history id 1', w.ask('history/output', {'historyId': 1})['error']['message'])
        (running,) = w.ask('process/list', {'all': True})['result']['processes']
        named = {k: running[k] for k in ('sessionId', 'processId')}
        self.assertIn('has not ended', w.ask('history/remove', named)['error']['message'])
        self.assertIsNone(p.poll())


@ours_only
class Questions(Own):
    ASK = ('exec', '--approve', 'untrusted', '--approver', 'console', '--', 'sh', '-c', 'echo ran; touch /dev/null')

    def test_allow_and_deny(self):
        p = self.begin(*self.ASK)
        q = self.question()
        shown = self.verb('approvals').stdout.decode()
        self.assertIn("command:     sh -c 'echo ran; touch /dev/null'", shown)
        self.assertEqual(self.verb('approvals', 'list').stdout.decode(), shown)
        self.assertEqual(self.verb('approvals', 'allow', '%d-zz' % q['number']).returncode, 1)
        self.assertEqual(self.verb('approvals', 'allow', '%d-%s' % (q['number'], q['digest'][:8])).returncode, 0)
        self.assertEqual((p.communicate()[0], p.returncode), (b'ran\n', 0))
        p = self.begin(*self.ASK)
        run = self.verb('approvals', 'deny', str(self.question()['number']), '--reason', 'not today')
        self.assertEqual(run.returncode, 0, run.stderr)
        out, err = p.communicate()
        self.assertEqual((out, p.returncode), (b'', 122))
        self.assertIn(b'not today', err)

    def test_only_a_console_decides_and_only_what_it_saw(self):
        p = self.begin(*self.ASK)
        q = self.question()
        answer = {'number': q['number'], 'digest': q['digest'], 'decision': 'approved'}
        self.assertIn('for consoles', self.wire(p).ask('approval/decide', answer)['error']['message'])
        viewer = self.wire(p, console=dict(CONSOLE, roles=['viewer']))
        self.assertEqual(viewer.ask('approval/decide', answer)['error']['code'], -32011)
        ada = self.wire(p, console=CONSOLE)
        self.assertEqual(ada.ask('approval/watch')['result']['open'], [q])
        for wrong in ({'digest': '0' * 64}, {'number': q['number'] + 1}, {'decision': 'perhaps'},
                      {'decision': 'timed_out'}):
            self.assertEqual(ada.ask('approval/decide', dict(answer, **wrong))['error']['code'], -32602, wrong)
        self.assertIsNone(p.poll())
        eve = self.wire(p, console=dict(CONSOLE, who='eve'))
        eve.ask('approval/watch')
        self.assertEqual(ada.ask('approval/decide', dict(answer, decision='denied'))['result'], {'status': 'accepted'})
        told = eve.note('approval/closed')
        self.assertEqual((told['number'], told['outcome'], told['by']),
                         (q['number'], 'denied', {'who': 'ada', 'via': 'a test'}))
        self.assertEqual(p.wait(40), 122)

    def test_a_console_on_another_listener_is_refused(self):
        path = os.path.join(self.scratch(), 's')
        p = self.begin('serve', '--listen', 'unix://' + path)
        p.stdout.readline()
        w = Wire(path, console=CONSOLE)
        self.addCleanup(w.close)
        self.assertEqual(w.hello['error']['code'], -32602)

    def test_open_questions_hold_a_bounded_amount_of_memory(self):
        p = self.begin('mcp', '--cwd', '/tmp', '--approve', 'untrusted', '--approver', 'console')

        def send(**message):
            p.stdin.write(json.dumps(dict(message, jsonrpc='2.0')).encode() + b'\n')
            p.stdin.flush()

        def call(number):
            send(id=number, method='tools/call', params={'name': 'exec_command', 'arguments': {
                'cmd': 'touch /dev/null #%d' % number + 'x' * (3 << 20), 'login': False}})

        def opened():
            return self.verb('approvals', '--json').stdout.splitlines()
        send(id=1, method='initialize', params={'protocolVersion': '2025-06-18', 'capabilities': {},
                                                'clientInfo': {'name': 'test', 'version': '1'}})
        p.stdout.readline()
        send(method='notifications/initialized')
        for number in range(2, 7):
            call(number)
        told = json.loads(p.stdout.readline())  # of the one that has no room
        self.assertEqual(told['id'], 6)
        self.assertIn('could not be shown to consoles', told['result']['content'][0]['text'])
        first, *rest = opened()
        self.assertEqual(len(rest), 3)
        self.assertEqual(self.verb('approvals', 'deny', str(json.loads(first)['number'])).returncode, 0)
        self.assertEqual(json.loads(p.stdout.readline())['id'], 2)
        call(7)
        wait_until(lambda: len(opened()) == 4, 'the next question')
        p.stdin.close()
        self.assertEqual(p.wait(40), 0)

    def test_nothing_waits_for_a_console_that_is_not_named(self):
        p = self.begin('exec', '--approve', 'untrusted', '--', 'sh', '-c', 'touch /dev/null', start_new_session=True)
        self.assertEqual(p.wait(40), 122)


if __name__ == '__main__':
    tap.main()
