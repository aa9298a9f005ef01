# SPDX-License-Identifier: Apache-2.0
"""The Codex CLI as an MCP host of `sallyport mcp`: the model uses its tools beside Codex's own, and is told what they give.

Codex speaks 2025-06-18, gives a progress token with every call, names the tools in a namespace of the server's, and tells
the model the structured result alone, or the text of one that failed. It runs here without an executor of its own.
"""

import json
import os
import subprocess
import time

import codex
import server
from model import call, command, say

import mcp
import tap

NAMESPACE = 'mcp__sallyport'
TOOLS = ['exec_command', 'write_stdin', 'read_output', 'list_sessions', 'signal_session', 'resize_session',
         'explain_denial', 'apply_patch']
PATCH = '*** Begin Patch\n*** Add File: new.txt\n+text\n*** End Patch\n'


def tool(call_id, name, **arguments):
    return dict(call(call_id, name, **arguments), namespace=NAMESPACE)


def output_of(model, call_id):
    """The text that the model was told, without Codex's own head."""
    return model.told(call_id).split('Output:\n', 1)[1]


def told(model, call_id):
    """The structured result that the model was told."""
    return json.loads(output_of(model, call_id))


class Case(codex.Case):
    def setUp(self):
        super().setUp()
        self.home = os.path.join(self.base, 'home')
        os.mkdir(self.home, 0o700)

    def sweep(self):
        """Codex leaves its servers a moment between SIGTERM and SIGKILL. What one of them could not clear away by then, the
        next that confines a command does."""
        env = dict(os.environ, SALLYPORT_HOME=self.home, XDG_RUNTIME_DIR=self.home)
        subprocess.run([server.PROGRAM, 'exec', '--on', 'local', '--sandbox', ':workspace', '--', 'true'], cwd=self.ws, env=env,
                       stdin=subprocess.DEVNULL, check=True)

    def table(self, *args):
        """Lines of config.toml: Codex asks nobody on its own account, and hands on what of its surroundings is named."""
        return '''
[mcp_servers.sallyport]
command = "%s"
args = %s
default_tools_approval_mode = "approve"
env = { SALLYPORT_HOME = "%s", XDG_RUNTIME_DIR = "%s" }
env_vars = %s
''' % (server.PROGRAM, json.dumps(['mcp', '--cwd', self.ws, *args]), self.home, self.home,
       json.dumps([server.MARK, *server.PASS_ON]))

    def host(self, *turns, args=(), **how):
        return self.play(*turns, tables=self.table(*args), url=None, **how)


@server.ours_only
class Exec(Case):
    """codex exec: nobody to answer questions."""

    def test_tools(self):
        def script(m):
            yield [tool('c1', 'exec_command', cmd='echo hello; exit 3', login=False)]
            yield [tool('c2', 'apply_patch', input=PATCH)]
            yield [tool('c3', 'exec_command', argv=['cat', 'new.txt']), tool('c4', 'explain_denial', path='/usr/denied')]
            yield [tool('c5', 'exec_command', argv=['touch', '/usr/denied'])]
            yield [command('c6', 'echo beside')]
            yield [say()]

        m = self.host(script, env=mcp.PATCHES)
        first = told(m, 'c1')
        self.assertEqual((first['exit_code'], first['output'], first['state']), (3, 'hello\n', 'exited'))
        self.assertEqual([c['kind'] for c in told(m, 'c2')['changes']], ['add'])
        self.assertEqual(told(m, 'c3')['output'], 'text\n')
        self.assertEqual([d['target'] for d in told(m, 'c4')['denials']], ['/usr/denied'])
        self.assertEqual([d['target'] for d in told(m, 'c5')['denials']], ['/usr/denied'])
        self.assertOutcome(m, 'c6', 0, 'beside\n')
        self.sweep()
        self.assertTree({'new.txt': 'text\n'})

    def test_a_session(self):
        """Typed into, polled, resized, read again, and ended."""
        def script(m):
            yield [tool('c1', 'exec_command', argv=['sh', '-c', 'printf "name? "; read n; echo hello $n; exec cat'], tty=True,
                        until={'pattern': 'name\\? $'}, yield_time_ms=30000)]
            session = told(m, 'c1')['session_id']
            yield [tool('c2', 'write_stdin', session_id=session, chars='world\n', until={'pattern': 'hello world'},
                        yield_time_ms=20000)]
            yield [tool('c3', 'write_stdin', session_id=session, until={'quiet_ms': 800}, yield_time_ms=20000)]
            yield [tool('c4', 'resize_session', session_id=session, rows=40, cols=100)]
            yield [tool('c5', 'read_output', session_id=session, grep='hello'), tool('c6', 'list_sessions')]
            yield [tool('c7', 'signal_session', session_id=session)]
            yield [tool('c8', 'write_stdin', session_id=session)]  # which tells of the end, once
            yield [tool('c9', 'write_stdin', session_id=session, chars='x')]
            yield [say()]

        m = self.host(script)
        session = told(m, 'c1')['session_id']
        self.assertEqual((told(m, 'c1')['output'], told(m, 'c1')['state']), ('name? ', 'reading_terminal'))
        self.assertIn('hello world', told(m, 'c2')['output'])
        self.assertEqual((told(m, 'c3')['session_id'], told(m, 'c3')['state']), (session, 'reading_terminal'))
        self.assertIn('40 rows', output_of(m, 'c4'))
        self.assertEqual(told(m, 'c5')['matches'], 1)
        self.assertEqual([s['session_id'] for s in told(m, 'c6')['sessions']], [session])
        self.assertEqual(told(m, 'c7')['state'], 'exited')
        self.assertEqual(told(m, 'c8')['exit_code'], 143)
        self.assertIn('read_output still has its output', m.told('c9'))

    def test_what_the_model_is_offered(self):
        """Where there is something to search for, with the server's instructions; the tools are what is found."""
        def script(m):
            yield [{'type': 'tool_search_call', 'call_id': 's1', 'execution': 'client',
                    'arguments': {'query': 'sallyport', 'limit': 20}}]
            yield [say()]

        m = self.host(script)
        self.assertIn('Commands run in %s.' % self.ws, json.dumps(m.requests[0]['tools']))
        (found,) = [item for item in m.requests[1]['input'] if item.get('type') == 'tool_search_output']
        (space,) = [t for t in found['tools'] if t.get('name') == NAMESPACE]
        self.assertEqual(sorted(t['name'] for t in space['tools']), sorted(TOOLS))
        for t in space['tools']:
            self.assertTrue(t['description'] and t['parameters']['type'] == 'object', t)

    def test_a_question(self):
        """Codex declines for a user that is not there. What needs no leave goes on."""
        ran = os.path.join(self.base, 'ran')
        m = self.host([tool('c1', 'exec_command', argv=['touch', ran], sandbox_permissions='require_escalated',
                            justification='May it?')],
                      [tool('c2', 'exec_command', argv=['echo', 'on'])], [say()])
        self.assertIn('no person answered', m.told('c1'))
        self.assertEqual(told(m, 'c2')['output'], 'on\n')
        self.assertFalse(os.path.exists(ran))

    def test_at_once(self):
        m = self.host([tool('c%d' % n, 'exec_command', argv=['sh', '-c', 'sleep 0.3; echo %d' % n]) for n in range(5)], [say()])
        self.assertEqual([told(m, 'c%d' % n)['output'] for n in range(5)], ['%d\n' % n for n in range(5)])

    def test_left_running(self):
        """The processes of a host that ends, end with it: `wait` of the run looks for them."""
        m = self.host([tool('c1', 'exec_command', argv=['sh', '-c', 'sleep 600 & sleep 600'], yield_time_ms=500)], [say()])
        self.assertIn('session_id', told(m, 'c1'))

    def test_elsewhere(self):
        """Its commands on a server of the other protocol."""
        srv = self.serve(env={'ONLY_THERE': 'yes'})
        m = self.host([tool('c1', 'exec_command', argv=['sh', '-c', 'echo $ONLY_THERE; pwd'])], [say()], args=('--on', srv.url))
        self.assertEqual(told(m, 'c1')['output'], 'yes\n%s\n' % self.ws)


class App:
    """codex app-server, which has a user: requests of ours, and answers to its questions, over two pipes."""

    def __init__(self, case, script, **how):
        ends = [os.path.join(case.base, name) for name in ('to', 'from')]
        for path in ends:
            os.mkfifo(path)
        self.run = case.codex(script, line='exec codex app-server <%s >%s' % tuple(ends), url=None, **how)
        self.to, self.heard = open(ends[0], 'w'), open(ends[1])
        case.addCleanup(self.heard.close)
        case.addCleanup(self.to.close)
        self.next = 0

    def send(self, **message):
        self.to.write(json.dumps(message) + '\n')
        self.to.flush()

    def until(self, is_it):
        for line in self.heard:
            message = json.loads(line)
            if is_it(message):
                return message
        raise AssertionError('the app server has ended')

    def ask(self, method, **params):
        self.next += 1
        self.send(id=self.next, method=method, params=params)
        answer = self.until(lambda m: 'method' not in m and m.get('id') == self.next)
        if 'error' in answer:
            raise AssertionError('%s: %s' % (method, answer['error']))
        return answer['result']

    def turn(self):
        """A thread and its turn, as far as the first question."""
        self.ask('initialize', clientInfo={'name': 'interop', 'title': 'interop', 'version': '1'})
        self.send(method='initialized')
        thread = self.ask('thread/start', approvalPolicy='on-request')['thread']['id']
        self.ask('turn/start', threadId=thread, input=[{'type': 'text', 'text': 'go'}])

    def question(self):
        return self.until(lambda m: m.get('method') == 'mcpServer/elicitation/request')

    def finish(self):
        self.until(lambda m: m.get('method') == 'turn/completed')
        self.to.close()
        return self.run.wait()


@server.ours_only
class Asked(Case):
    def ask(self, action, content, after=0):
        """A command that needs leave, the question as Codex puts it to its user, and what the model was told."""
        ran = os.path.join(self.base, 'ran')
        script = [[tool('c1', 'exec_command', argv=['touch', ran], sandbox_permissions='require_escalated',
                        justification='May it?')], [say()]]
        app = App(self, script, tables=self.table())
        app.turn()
        question = app.question()
        self.assertFalse(os.path.exists(ran))
        self.assertEqual(question['params']['serverName'], 'sallyport')
        self.assertIn('May it?', question['params']['message'])
        self.assertIn('once', json.dumps(question['params']['requestedSchema']))
        time.sleep(after)
        app.send(id=question['id'], result={'action': action, 'content': content})
        return app.finish(), os.path.exists(ran)

    def test_accepted(self):
        m, ran = self.ask('accept', {'decision': 'once'})
        self.assertEqual((told(m, 'c1')['exit_code'], ran), (0, True))

    def test_declined(self):
        m, ran = self.ask('decline', None, after=0.7)
        self.assertIn('rejected by user', m.told('c1'))
        self.assertFalse(ran)

    def test_declined_faster_than_a_person_reads(self):
        m, ran = self.ask('decline', None)
        self.assertIn('no person answered', m.told('c1'))
        self.assertFalse(ran)

    def test_cancelled(self):
        m, ran = self.ask('cancel', None)
        self.assertIn('no person answered', m.told('c1'))
        self.assertFalse(ran)


if __name__ == '__main__':
    tap.main()
