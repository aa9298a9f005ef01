# SPDX-License-Identifier: Apache-2.0
"""`sallyport approvals` and the questions of `mcp` and `serve --approve`: what they say, who may answer, and when they
end; and what confined commands see of the local sockets."""

import hashlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import unittest

import mcp
import server
import tap
import wire
from asked import Judged
from mcp_asking import ONCE, Asking, note
from server import PROGRAM, ours_only
from wire import wait_until


def is_listening(path):
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(path) == 0


class Approvals:
    """For a test case with `environ`."""

    def approvals(self, *words, code=0):
        run = self.try_approvals(*words)
        self.assertEqual(run.returncode, code, run.stderr)
        return run.stderr if code else run.stdout

    def try_approvals(self, *words):
        return subprocess.run([PROGRAM, 'approvals', *words], capture_output=True, env=self.environ(), timeout=60,
                              encoding='utf-8')

    def open(self):
        run = self.try_approvals('--json')
        self.assertIn(run.returncode, (0, 123), run.stderr)  # 123: nobody listens yet
        return [json.loads(line) for line in run.stdout.splitlines()]

    def opened(self):
        wait_until(self.open, 'a question')
        q, = self.open()
        return q

    def closed(self):
        wait_until(lambda: not self.open(), 'no question')

    def name(self, q):
        """NUMBER-DIGEST, as `show` prints it."""
        last = self.approvals('show', str(q['number'])).split()[-1]
        self.assertEqual(last, '%d-%s' % (q['number'], q['digest'][:8]))
        return last


@ours_only
class Mcp(Approvals, Asking):
    def connection(self, host):
        """A connection to the local socket, which watches."""
        s = socket.socket(socket.AF_UNIX)
        self.addCleanup(s.close)
        s.settimeout(wire.DEADLINE)
        s.connect('%s/sallyport/%d.sock' % (self.runtime, host.process.pid))
        f = s.makefile('rw', encoding='utf-8', newline='\n')
        self.addCleanup(f.close)
        for message in ({'id': 1, 'method': 'initialize', 'params': {'clientName': 'test'}}, {'method': 'initialized'},
                        {'id': 2, 'method': 'approval/watch'}):
            f.write(json.dumps(message) + '\n')
        f.flush()
        self.assertEqual([json.loads(f.readline())['id'] for _ in range(2)], [1, 2])
        return f

    def legacy(self):
        host = self.wary()
        host.open(capabilities={'elicitation': {}})
        id = host.call_later('exec_command', note('a'))
        return host, id, host.question()

    def follow(self, *words):
        p = subprocess.Popen([PROGRAM, 'approvals', '-f', '--json', *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=self.environ())
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        return p

    def told(self, p):
        """The next question that is shown, within the deadline."""
        self.assertTrue(select.select([p.stdout], [], [], wire.DEADLINE)[0], 'no question is shown')
        return json.loads(p.stdout.readline())

    def asking_exec(self, word):
        p = subprocess.Popen([PROGRAM, 'exec', '--approve', 'untrusted', '--approver', 'console', '--cwd', self.work, '--',
                              './note', word], env=self.environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        return p

    def test_following_ends_with_the_server_that_is_named(self):
        host, _, _ = self.legacy()
        q = self.opened()
        p = self.follow('--on', str(host.process.pid))
        self.assertEqual(self.told(p)['number'], q['number'])
        host.process.terminate()
        _, err = p.communicate(timeout=wire.DEADLINE)
        self.assertEqual(p.returncode, 123, err)

    def test_following_finds_what_starts_later(self):
        """Also after the directory of sockets was removed; it shows each question once, and ends at Ctrl-C."""
        follower = self.follow()
        for word in ('one', 'two'):
            run = self.asking_exec(word)
            q = self.told(follower)
            self.assertEqual(q['question']['command'], ['./note', word])
            self.approvals('allow', self.name(q))
            self.assertEqual(run.wait(wire.DEADLINE), 0)
        self.assertEqual(self.runs(), ['one', 'two'])
        os.rename(self.runtime + '/sallyport', self.runtime + '/before')
        host = self.wary('--approver', 'console')
        id = host.call_later('exec_command', note('three'))
        q = self.told(follower)
        self.assertEqual(q['question']['command'], ['./note', 'three'])
        self.approvals('allow', self.name(q))
        self.assertRan(host.result(id))
        self.assertIsNone(follower.poll())
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=wire.DEADLINE)
        self.assertEqual((out, err, follower.returncode), (b'', b'', -signal.SIGINT))

    def test_following_does_not_wait_for_silent_servers(self):
        """One accepts and does not answer, one does not accept: the questions of others are shown meanwhile."""
        os.mkdir(self.runtime + '/sallyport', 0o700)
        for name in ('accepts', 'full'):
            s = socket.socket(socket.AF_UNIX)
            self.addCleanup(s.close)
            s.bind('%s/sallyport/%s.sock' % (self.runtime, name))
            s.listen(64 if name == 'accepts' else 0)
        first = self.asking_exec('first')
        follower = self.follow()
        self.assertEqual(self.told(follower)['question']['command'], ['./note', 'first'])
        second = self.asking_exec('second')
        q = self.told(follower)
        self.assertEqual(q['question']['command'], ['./note', 'second'])
        self.assertEqual([p.poll() for p in (first, second, follower)], [None] * 3)
        self.assertTrue(select.select([follower.stderr], [], [], wire.DEADLINE)[0], 'nothing is said of the silent server')
        self.assertIn(b'accepts.sock does not answer', follower.stderr.readline())

    def test_an_open_elicitation_is_withdrawn_when_a_console_answers(self):
        host, id, form = self.legacy()
        q = self.opened()
        self.approvals('allow', self.name(q))
        self.assertRan(host.result(id))
        self.assertEqual(self.runs(), ['a'])
        self.assertIn(('notifications/cancelled', form['id']),
                      [(n['method'], n['params'].get('requestId')) for n in host.notifications])
        host.answer(form, ONCE)  # too late
        self.assertEqual(host.ask('ping')['result'], {})
        self.assertEqual(self.runs(), ['a'])

    def test_the_question_of_a_console_is_withdrawn_when_the_host_answers(self):
        host, id, form = self.legacy()
        q = self.opened()
        watcher = self.connection(host)
        host.answer(form, ONCE)
        self.assertRan(host.result(id))
        told = json.loads(watcher.readline())
        self.assertEqual(told['method'], 'approval/closed')
        told = told['params']
        self.assertEqual((told['number'], told['outcome'], told['by']),
                         (q['number'], 'approved', {'who': 'user', 'via': 'the host'}))
        self.closed()
        self.approvals('deny', str(q['number']), code=1)

    def test_a_modern_call_comes_back_to_the_answer_of_a_console(self):
        host = self.wary()
        for answer in ('allow', 'deny'):
            arguments = note(answer)
            asked = self.ask(host, arguments)
            q = self.opened()
            self.assertEqual((q['clientName'], q['question']['command']), ('test', ['./note', answer]))
            self.approvals(answer, self.name(q))
            self.closed()
            r = self.come_back(host, arguments, asked, ONCE)  # which is too late
            if answer == 'allow':
                self.assertRan(r)
            else:
                self.assertRefused(r, 'rejected by user')
        self.assertEqual(self.runs(), ['allow'])

    def test_what_a_question_says(self):
        host, id, form = self.legacy()
        q = self.opened()
        self.assertEqual(set(q), {'number', 'digest', 'sessionId', 'processId', 'clientName', 'openedAtMs', 'expiresAtMs',
                                  'headline', 'effect', 'rule', 'decisions', 'text', 'rest', 'question'})
        self.assertEqual((q['clientName'], q['sessionId'], q['expiresAtMs']), ('test', None, None))
        self.assertIn(q['headline'], q['text'])
        self.assertEqual(set(q['effect']), {'sandbox', 'network', 'writable', 'text'})
        self.assertEqual(q['rule']['words'], ['./note', 'a'])
        self.assertEqual((q['rule']['text'], q['rule']['file']),
                         ('prefix_rule(pattern=["./note", "a"], decision="allow")', self.home + '/rules/default.rules'))
        self.assertIn('runs unasked', q['rule']['effect'])
        self.assertIn({'approved_execpolicy_amendment': {'proposed_execpolicy_amendment': ['./note', 'a']}},
                      q['decisions'])
        compact = json.dumps(q['question'], separators=(',', ':'), ensure_ascii=False)
        self.assertEqual(hashlib.sha256(compact.encode()).hexdigest(), q['digest'])
        self.assertIn('--always keeps a rule', self.approvals('allow', str(q['number']), '--always', code=1))
        self.approvals('allow', self.name(q), '--always')
        self.assertRan(host.result(id))
        with open(q['rule']['file']) as f:
            self.assertIn(q['rule']['text'] + '\n', f.read())

    def test_the_end_of_a_question_that_only_a_console_answers(self):
        host = self.wary('--approver', 'console')
        id = host.call_later('exec_command', note('a'))
        q = self.opened()
        self.assertEqual(q['expiresAtMs'] - q['openedAtMs'], 900000)
        self.approvals('allow', self.name(q))
        self.assertRan(host.result(id))
        host = self.wary('--approver', 'console', '--set', 'approval_timeout_s=3')
        id = host.call_later('exec_command', note('b'))
        wait_until(self.open, 'a question')
        for q in self.open():  # none, if this machine took longer than the question
            self.assertLessEqual(q['expiresAtMs'] - q['openedAtMs'], 6000)
        self.assertRefused(host.result(id), 'approval')
        self.closed()
        self.assertEqual(self.runs(), ['a'])

    def patch(self, path):
        return {'argv': ['apply_patch', '*** Begin Patch\n*** Add File: %s\n+text\n*** End Patch\n' % path]}

    def test_a_patch_that_leaves_the_sandbox(self):
        """Each door says so, names the directory that a yes opens, and a number alone does not allow it."""
        hooks = os.path.join(self.work, '.git', 'hooks')
        os.makedirs(hooks)
        form = self.wary('--sandbox', ':workspace')
        form.open(capabilities={'elicitation': {}})
        for host, place in ((form, hooks), (form, self.beside), (self.wary('--sandbox', ':workspace', '--approver', 'console'), hooks)):
            made = os.path.join(place, 'pre-push-%d' % host.process.pid)
            id = host.call_later('exec_command', self.patch(made))
            if host is form:
                message = host.question()['params']['message']
                self.assertEqual(message.splitlines()[:2], [
                    'Change these files outside of what the sandbox :workspace allows?', 'also allowed to write: ' + place])
            q = self.opened()
            self.assertEqual((q['headline'], q['effect']['sandbox'], q['effect']['outside'], q['effect']['writable'][0]), (
                'may these files be changed, outside of what the sandbox allows?', ':workspace', [place], place))
            for text in (self.approvals(), self.approvals('show', str(q['number']))):
                self.assertIn('may these files be changed, outside of what the sandbox allows?\n', text)
                self.assertIn('what the sandbox :workspace allows, and to write outside of what the sandbox allows\n', text)
                self.assertRegex(text, r'\+ write +%s\n' % re.escape(place))
            self.assertNotIn(q['digest'][:8], self.approvals())
            for more in ([], ['--session']):
                self.assertIn('outside of what the sandbox allows', self.approvals('allow', str(q['number']), *more, code=1))
            self.assertFalse(os.path.exists(made))
            self.approvals('allow', self.name(q))
            self.assertFalse(host.result(id).failed)
            self.assertTrue(os.path.exists(made))
            self.closed()

    def test_a_patch_inside_the_sandbox_is_allowed_by_its_number(self):
        host = self.wary('--sandbox', ':workspace')
        host.open(capabilities={'elicitation': {}})
        id = host.call_later('exec_command', self.patch('new'))
        self.assertTrue(host.question()['params']['message'].startswith('Change these files?\nadd: '))
        q = self.opened()
        self.assertEqual((q['headline'], q['effect']['text'], 'outside' in q['effect']),
                         ('may these files be changed?', 'what the sandbox :workspace allows', False))
        self.assertNotIn('+ write', self.approvals())
        self.approvals('allow', str(q['number']))
        self.assertFalse(host.result(id).failed)
        self.assertTrue(os.path.exists(os.path.join(self.work, 'new')))

    def test_cells_do_not_see_the_sockets(self):
        """Neither when the directory was there before the cell, nor when it came later."""
        for when in ('it came later', 'it was there'):
            host = self.mcp('--sandbox', ':workspace')
            path = '%s/sallyport/%d.sock' % (self.runtime, host.process.pid)
            shell = host.call('exec_command', {'argv': ['sh'], 'tty': True, 'yield_time_ms': 250})['session_id']
            wait_until(lambda: is_listening(path), 'the socket')
            look = 'ls -a %s/sallyport; test -e %s || echo un""seen; exit' % (self.runtime, path)
            said = host.call('write_stdin', {'session_id': shell, 'chars': look + '\n', 'yield_time_ms': 10000})
            self.assertIn('\nunseen', said.text.replace('\r', '').replace('\\r', '').replace('\\n', '\n'), when)
            self.assertNotIn('%d.sock\n' % host.process.pid, said.text, when)


@ours_only
class Serve(Approvals, Judged):
    APPROVER = 'console'

    def setUp(self):
        super().setUp()
        self.runtime = os.path.realpath(self.scratch())

    def server(self, *args, env=None, **how):
        return super().server(*args, env={**(env or {}), 'XDG_RUNTIME_DIR': self.runtime}, **how)

    def environ(self):
        return {**{k: v for k, v in os.environ.items() if k in server.PASS_ON + ('PATH',)}, 'HOME': self.home,
                'XDG_RUNTIME_DIR': self.runtime, 'SALLYPORT_CONFIG': '/dev/null'}

    def test_a_start_is_answered(self):
        c = self.asked()
        for name, answer in (('one', 'allow'), ('two', 'deny')):
            request = c.post_start(name, ['printf', 'ran'])
            q = self.opened()
            self.assertEqual((q['processId'], q['sessionId'], q['effect']['sandbox'], q['effect']['network'],
                              q['effect']['writable']), (name, c.session_id, None, 'host', ['/']))
            if answer == 'allow':
                shown = self.approvals()
                self.assertNotIn(q['digest'][:8], shown)
                self.assertIn('show %d' % q['number'], shown)
                self.assertIn('without a sandbox', self.approvals('allow', str(q['number']), code=1))
                self.assertIn('another digest', self.approvals('allow', '%d-%s' % (q['number'], q['digest'][:7]), code=1))
                self.assertIn('give one of them', self.approvals('allow', self.name(q), '--session', '--always', code=2))
                self.assertFalse(c.answered(request))
                self.approvals('allow', self.name(q))
                self.assertStarted(c.reply(request), name)
                self.assertEqual(c.wait_closed(name).stdout, b'ran')
            else:
                self.approvals('deny', str(q['number']), '--reason', 'not now')
                self.assertIn('not now', c.reply(request)['error']['message'])
        self.assertEqual([d[2:4] for d in self.decisions()], [('approved', 'user'), ('denied', 'user')])


@ours_only
class Long(Approvals, Asking):
    def test_a_long_question_is_allowed_after_all_of_it_was_shown(self):
        host = self.wary('--sandbox', ':workspace')
        middle = 'x' * 6000 + 'MIDDLE' + 'y' * 6000
        asked = self.ask(host, note(middle))
        q = self.opened()
        listed = self.approvals()
        self.assertNotIn('MIDDLE', listed)
        self.assertNotIn(q['digest'][:8], listed)
        for more in ([], ['--session']):
            self.assertIn('longer than the list shows', self.approvals('allow', str(q['number']), *more, code=1))
        shown = self.approvals('show', str(q['number']))
        self.assertLess(shown.index('MIDDLE'), shown.index(q['digest'][:8]))
        self.approvals('allow', self.name(q))
        self.closed()
        self.assertRan(self.come_back(host, note(middle), asked, ONCE))


@ours_only
@unittest.skipIf(os.getuid() != 0, 'only root can be another user')
class OtherUsers(Asking):
    def test_another_user_is_refused_at_the_socket(self):
        """Also one who gets past the permissions of the directory and of the socket."""
        host = self.mcp()
        path = '%s/sallyport/%d.sock' % (self.runtime, host.process.pid)
        wait_until(lambda: is_listening(path), 'the socket')
        try_it = ('import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(40)\n'
                  'try:\n    s.connect(sys.argv[1])\nexcept PermissionError:\n    sys.exit("closed")\n'
                  'try:\n    s.sendall(b\'{"id":1,"method":"initialize","params":{"clientName":"x"}}\\n\')\n'
                  '    sys.exit(repr(s.recv(100)))\nexcept ConnectionError:\n    sys.exit("b\'\'")\n')

        def connect():
            return subprocess.run(['python3', '-c', try_it, path], user=65534, group=65534, extra_groups=[],
                                  stderr=subprocess.PIPE, encoding='utf-8', cwd='/').stderr.strip()
        self.assertEqual(connect(), 'closed')
        for at in (self.base, self.runtime, os.path.dirname(path)):
            os.chmod(at, 0o755)
        os.chmod(path, 0o666)
        self.assertEqual(connect(), "b''")
        with socket.socket(socket.AF_UNIX) as s:  # while root is served
            s.settimeout(wire.DEADLINE)
            s.connect(path)
            s.sendall(b'{"id":1,"method":"initialize","params":{"clientName":"x"}}\n')
            self.assertIn(b'"result"', s.recv(10000))

    def test_the_directory_in_tmp(self):
        """Of a user without XDG_RUNTIME_DIR and /run/user: cells do not see it either."""
        user = next(u for u in range(60001, 60999) if not os.path.exists('/tmp/sallyport-%d' % u))
        directory = '/tmp/sallyport-%d' % user
        self.addCleanup(shutil.rmtree, directory, True)
        for path in (self.base, self.work, self.home):
            os.chown(path, user, user)
        env = self.environ()
        del env['XDG_RUNTIME_DIR']
        p = subprocess.Popen([PROGRAM, 'exec', '--sandbox', ':workspace', '--cwd', self.work, '--', 'sh', '-c',
                              'echo up; read x; ls -a %s; test -e %s/*.sock || echo unseen' % (directory, directory)],
                             env=env, cwd=self.work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             user=user, group=user, extra_groups=[])
        path = '%s/%d.sock' % (directory, p.pid)
        wait_until(lambda: p.poll() is not None or is_listening(path), 'the socket')
        out, err = p.communicate(b'\n', timeout=wire.DEADLINE)
        self.assertEqual((p.returncode, out.splitlines()[-1:]), (0, [b'unseen']), err)
        self.assertNotIn(b'.sock', out)


if __name__ == '__main__':
    tap.main()
