# SPDX-License-Identifier: Apache-2.0
"""How the Codex CLI reaches a server: connections that break and are resumed, stdio, tokens, a server that is lost."""

import base64
import hashlib
import hmac
import json
import os
import signal
import time

import codex
import server
import wire
from chaos import AFTER, BEFORE, DOWN, INSIDE, UP
from model import command, outcome, patch, said, say, told_all, type_into, until_said

import tap

NO_ENVIRONMENT = 'No usable execution environment'


class Nth:
    """Cuts at the n-th message of a direction that is so."""

    def __init__(self, direction, is_it, where, n=1):
        self.direction, self.is_it, self.where, self.left = direction, is_it, where, n

    def __call__(self, direction, message):
        if direction != self.direction or not self.is_it(message):
            return None
        self.left -= 1
        return self.where if self.left == 0 else None


def is_method(name):
    return lambda message: message.get('method') == name


class Cut(codex.Case):
    LINES = 'for i in $(seq 20); do echo line$i; sleep 0.1; done; exit 4'
    TOLD = ''.join('line%d\n' % i for i in range(1, 21))

    def resumed(self, times=1):
        """The connections after the first went on with its session."""
        tries = self.wire.sent('initialize')
        self.assertGreaterEqual(len(tries), 1 + times)
        self.assertIsNone(tries[0]['params']['resumeSessionId'])
        session = self.wire.answer(tries[0])['result']['sessionId']
        for m in tries[1:]:
            self.assertEqual(m['params']['resumeSessionId'], session)

    def lines_survive(self, cut, **how):
        self.wire_to(self.serve(), cut=cut, **how)
        m = self.play([command('c1', self.LINES)], [command('c2', 'echo after')], [say()])
        self.assertOutcome(m, 'c1', 4, self.TOLD)
        self.assertOutcome(m, 'c2', 0, 'after\n')
        self.resumed(how.get('times', 1))
        self.assertIn('process/read', self.wire.methods())

    def test_between_two_outputs(self):
        self.lines_survive(Nth(DOWN, is_method('process/output'), AFTER, 5))

    def test_inside_an_output(self):
        self.lines_survive(Nth(DOWN, is_method('process/output'), INSIDE, 5))

    def test_again_and_again(self):
        def cut(direction, message):
            return AFTER if direction == DOWN and message.get('params', {}).get('seq', 0) % 3 == 2 else None

        self.lines_survive(cut, times=4, pause=0.2)

    def test_the_command_ends_meanwhile(self):
        mark = os.path.join(self.base, 'ended')
        self.wire_to(self.serve(), cut=Nth(DOWN, is_method('process/output'), AFTER), pause=wire.DEADLINE)
        run = self.codex([[command('c1', 'echo one; sleep 0.5; echo two; touch %s; exit 9' % mark)], [say()]])
        self.wire.wait_cut()
        wire.wait_until(lambda: os.path.exists(mark), 'the end of the command')
        time.sleep(0.2)
        self.wire.open()
        self.assertOutcome(run.wait(), 'c1', 9, 'one\ntwo\n')
        self.resumed()

    def typed_once(self, cut):
        def script(m):
            yield [command('c1', 'stty -echo; echo ready; while read x; do echo got:$x; done', tty=True, yield_time_ms=500)]
            yield from until_said(m, 'c1', 'ready')
            yield from type_into(m, 'one', 'c1', 'first\n', until='got:first')
            yield from type_into(m, 'two', 'c1', 'second\n', until='got:second')
            yield [say()]

        self.wire_to(self.serve(), cut=cut)
        m = self.play(script)
        self.assertEqual((told_all(m, 'one')[1] + told_all(m, 'two')[1]).split(), ['got:first', 'got:second'])
        self.resumed()
        return [w['params']['writeId'] for w in self.wire.sent('process/write')]

    def test_what_is_typed_does_not_arrive(self):
        self.assertEqual(self.typed_once(Nth(UP, is_method('process/write'), BEFORE)), ['1', '1', '2'])

    def test_the_answer_to_what_is_typed_is_lost(self):
        def is_answer(message):
            return message.get('result') == {'status': 'accepted'}

        self.assertEqual(self.typed_once(Nth(DOWN, is_answer, BEFORE)), ['1', '1', '2'])

    def test_the_answer_to_a_start_is_lost(self):
        """The client gives such a command up; it ends it as soon as it is back."""
        pid = os.path.join(self.base, 'pid')
        self.wire_to(self.serve(), cut=Nth(DOWN, lambda m: 'processId' in m.get('result', {}), BEFORE))
        m = self.play([command('c1', 'echo $$ >%s; exec sleep 600' % pid, yield_time_ms=1000)], [command('c2', 'echo after')],
                      [say()])
        self.assertIn('exec_command failed', m.told('c1'))
        self.assertOutcome(m, 'c2', 0, 'after\n')
        if os.path.exists(pid) and open(pid).read():
            self.assertGone(int(open(pid).read()))


    def test_during_a_patch(self):
        """The call that was under way fails, and the next one works."""
        self.put(file='one\n')
        self.wire_to(self.serve(), cut=Nth(UP, is_method('fs/writeFile'), BEFORE))
        change = ('*** Update File: file', '@@', '-one', '+two')
        m = self.play([patch('c1', *change)], [patch('c2', *change)], [say()])
        self.assertNotIn('Success', m.told('c1'))
        self.assertIn('Success', m.told('c2'))
        self.assertTree({'file': 'two\n'})
        self.resumed()


class Lost(codex.Case):
    def test_a_server_that_is_killed_and_comes_back(self):
        def script(m):
            yield [command('c1', 'echo $$; sleep 600')]
            yield [command('c2', 'echo there again')]
            yield [say()]

        token, flags = '', []
        if not server.PEER:  # a token that is made is another one after a restart
            token, path = 'a-token-of-this-test-0123456789', os.path.join(self.base, 'secret')
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
                f.write(token)
            flags = ['--token-file', path]
        first = self.serve(*flags)
        self.wire_to(first)
        self.wire.address = wire.Address(self.wire.address, token)
        run = self.codex(script)
        wire.wait_until(lambda: self.wire.notes('process/output'), 'output')
        self.wire.shut()
        first.stop(signal.SIGKILL, -signal.SIGKILL)
        second = self.serve(*flags)
        self.wire.target = second.address
        self.wire.open()
        m = run.wait()
        self.assertIn('unknown session id', m.told('c1'))
        self.assertOutcome(m, 'c2', 0, 'there again\n')
        self.assertEqual([bool(i['params']['resumeSessionId']) for i in self.wire.sent('initialize')], [False, True, False])

    def test_no_server(self):
        srv = self.serve()
        self.wire_to(srv)
        self.wire.shut()
        m = self.play([command('c1', 'echo never')], [say()])
        self.assertIn(NO_ENVIRONMENT, m.told('c1'))


class Stdio(codex.Case):
    def toml(self):
        """The server's program, with its words of complaint in a file."""
        words = [server.PROGRAM, 'exec-server' if codex.PEER else 'serve', '--listen', 'stdio']
        line = 'exec %s 2>%s' % (' '.join("'%s'" % w for w in words), self.base + '/stderr')
        return '''
default = "box"
include_local = false
[[environments]]
id = "box"
program = "/bin/sh"
args = ["-c", "%s"]
cwd = "%s"
env = { ONLY_THERE = "yes", HOME = "%s" }
''' % (line, self.base, self.base)

    def quiet(self):
        with open(self.base + '/stderr') as f:
            text = f.read()
        self.assertTrue(codex.PEER or text == '', text)

    def test_commands(self):
        def script(m):
            yield [command('c1', 'echo $ONLY_THERE; pwd; exit 6')]
            yield [command('c2', 'stty -echo; echo ready; read x; echo got:$x', tty=True, yield_time_ms=500)]
            yield from until_said(m, 'c2', 'ready')
            yield from type_into(m, 'in', 'c2', 'word\n', until='never')
            yield [command('c3', 'echo $$; exec sleep 600', yield_time_ms=500)]
            yield from until_said(m, 'c3', '\n')
            yield [say()]

        m = self.play(script, environments=self.toml())
        self.assertOutcome(m, 'c1', 6, 'yes\n%s\n' % self.ws)
        self.assertEqual(told_all(m, 'in')[0], 0)
        self.assertIn('got:word', told_all(m, 'in')[1])
        self.assertGone(int(said(m, 'c3')))
        self.quiet()

    def test_confined(self):
        m = self.play([command('c1', 'echo $ONLY_THERE; echo in >in; echo out >../out')], [say()],
                      environments=self.toml(), sandbox='workspace-write')
        code, output = outcome(m.told('c1'))
        self.assertEqual(code, 1)
        self.assertRegex(output.lower(), r'\Ayes\n.*read-only file system.*\n\Z')
        self.assertTree({'in': 'in\n'})
        self.assertNotIn('out', os.listdir(self.base))
        self.quiet()


class Token(codex.Case):
    def environment(self, token):
        return '''
default = "box"
include_local = false
[[environments]]
id = "box"
url = "%s"
auth_bearer_token = "%s"
''' % (self.wire.url(), token)

    def secret(self, text):
        path = os.path.join(self.base, 'secret')
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
            f.write(text)
        return path

    def serve_with(self, *args):
        self.wire_to(self.serve(*args))

    def opens(self, token):
        m = self.play([command('c1', 'echo in')], [say()], environments=self.environment(token))
        self.assertOutcome(m, 'c1', 0, 'in\n')

    def stays_shut(self, token):
        m = self.play([command('c1', 'echo in')], [say()], environments=self.environment(token))
        self.assertIn(NO_ENVIRONMENT, m.told('c1'))
        self.assertEqual(self.wire.sent('process/start'), [])

    def test_capability(self):
        token = 'a-token-of-this-test-0123456789'
        self.serve_with('--ws-auth', 'capability-token', '--ws-token-file', self.secret(token + '\n'))
        self.stays_shut('another-token-entirely-0123456789')
        self.assertEqual(self.wire.sent(), [])
        self.opens(token)

    @server.ours_only
    def test_token_file(self):
        token = 'a-token-of-this-test-0123456789'
        self.serve_with('--token-file', self.secret(token))
        self.stays_shut('another-token-entirely-0123456789')
        self.opens(token)

    def test_a_client_without_a_token(self):
        self.serve_with('--ws-auth', 'capability-token', '--ws-token-file', self.secret('a-token-of-this-test-0123456789'))
        m = self.play([command('c1', 'echo in')], [say()])
        self.assertIn(NO_ENVIRONMENT, m.told('c1'))

    def test_signed(self):
        secret = '0123456789abcdef0123456789abcdef-of-this-test'

        def part(data):
            return base64.urlsafe_b64encode(data if isinstance(data, bytes) else json.dumps(data).encode()).rstrip(b'=')

        def signed(**claims):
            body = part({'alg': 'HS256', 'typ': 'JWT'}) + b'.' + part(claims)
            return (body + b'.' + part(hmac.new(secret.encode(), body, hashlib.sha256).digest())).decode()

        self.serve_with('--ws-auth', 'signed-bearer-token', '--ws-shared-secret-file', self.secret(secret))
        self.stays_shut(signed(exp=int(time.time()) - 3600))
        self.opens(signed(exp=int(time.time()) + 3600))


if __name__ == '__main__':
    tap.main()
