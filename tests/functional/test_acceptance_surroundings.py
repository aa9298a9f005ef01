# SPDX-License-Identifier: Apache-2.0
"""Acceptance cases 144 to 156: environment, shell, working directory, snapshots;
the old tool."""

import json
import os

import agent
from agent import Case


class Surroundings:
    def variables(self, answer):
        self.assertExited(answer)
        return dict(line.split('=', 1) for line in answer.body.splitlines() if '=' in line)

    def test_145_only_what_the_policy_includes(self):
        policy = {'inherit': 'none', 'set': {'KEEP': 'preserved', 'DROP': 'x'}, 'include_only': ['KEEP']}
        a = self.agent('--env-policy', json.dumps(policy), env={'OWNER_ONLY': 'mine'})
        answer = a.ec('echo "$KEEP:${DROP:-missing}:${OWNER_ONLY:-missing}"')
        self.assertEqual(answer.body, 'preserved:missing:missing\n')

    def test_146_names_that_no_command_sees(self):
        policy = {'set': {'node_repl_AUTH_token': 'x', 'OPENAI_IDENTITY_TOKEN_FILE': 'y', 'SEEN': 'z'}}
        a = self.agent('--env-policy', json.dumps(policy), env={'CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN': 'secret'})
        names = [name.upper() for name in self.variables(a.ec('env'))]
        self.assertIn('SEEN', names)
        for name in ('NODE_REPL_AUTH_TOKEN', 'OPENAI_IDENTITY_TOKEN_FILE', 'CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN'):
            self.assertNotIn(name, names)

    def test_149_how_the_shell_is_called(self):
        a = self.agent()
        for login, flag in ((None, '-lc'), (True, '-lc'), (False, '-c')):
            arguments = {} if login is None else {'login': login}
            answer = a.call('exec_command', {'cmd': 'echo "a b"', **arguments}, call_id='l%s' % login)
            self.assertExited(answer)
            begin = a.wait_begin('l%s' % login)
            self.assertEqual(begin['command'][1:], [flag, 'echo "a b"'])
            self.assertTrue(begin['command'][0].startswith('/'))

    def test_150_where_it_runs(self):
        a = self.agent()
        os.mkdir(a.path('sub'))
        real = os.path.realpath
        for workdir, want in (('sub', a.path('sub')), ('/', '/'), ('', a.work), ('nosuch/..', a.work), (None, a.work)):
            answer = a.ec('pwd -P', **({} if workdir is None else {'workdir': workdir}))
            self.assertEqual(answer.body, real(want) + '\n', workdir)

    def test_a_directory_of_another_kind_of_host(self):
        a = self.agent()
        for workdir in ('C:\\x', '\\\\host\\share'):
            answer = a.ec('pwd', workdir=workdir)
            self.assertTrue(answer.failed, answer)
            if not self.is_remote:
                self.assertEqual(answer.text, 'exec_command failed: %s is not valid on linux' % workdir)
        self.assertNothingLeft(a)
        self.assertEqual(a.events_of(), [])

    def test_what_no_host_can_start(self):
        a = self.agent()
        answer = a.ec('true ' + 'x' * 200000)
        self.assertFailed(answer, 'exec_command failed: Failed to create unified exec process: Argument list too long '
                          '(os error 7)')
        self.assertTrue(a.ec('echo a\0b').failed)
        self.assertFailed(a.ec('pwd', workdir='/etc/passwd'),
                          'exec_command failed: Failed to create unified exec process: Not a directory (os error 20)')
        self.assertNothingLeft(a)

    def test_the_plain_ones_and_who_runs_it(self):
        a = self.agent('--thread-id', '0195f9a2-3a5c-7000-8000-000000000001', '--session-id',
                       '0195f9a2-3a5c-7000-8000-000000000002', env={'TERM': 'xterm', 'PAGER': 'less'})
        answer = a.ec('env', call_id='the-call')
        got = self.variables(answer)
        want = {'NO_COLOR': '1', 'TERM': 'dumb', 'LANG': 'C.UTF-8', 'LC_CTYPE': 'C.UTF-8', 'LC_ALL': 'C.UTF-8',
                'COLORTERM': '', 'PAGER': 'cat', 'GIT_PAGER': 'cat', 'GH_PAGER': 'cat', 'CODEX_CI': '1', 'SALLYPORT': '1',
                'CODEX_THREAD_ID': '0195f9a2-3a5c-7000-8000-000000000001', 'CODEX_TOOL_CALL_ID': 'the-call'}
        self.assertEqual({k: got.get(k) for k in want}, want)


class LocalSurroundings(Surroundings, Case):
    def with_profile(self, text):
        """An agent whose shells start from a snapshot of this profile."""
        scratch = agent.tempfile.mkdtemp(prefix='sallyport-agent-')
        self.addCleanup(agent.shutil.rmtree, scratch, True)
        snapshots = os.path.join(scratch, 'snapshots')
        os.mkdir(snapshots, 0o700)
        with open(os.path.join(scratch, '.bash_profile'), 'w') as f:
            f.write(text)
        a = self.agent('--snapshots', snapshots, env={'HOME': scratch})
        return a, snapshots

    def login(self, a, cmd):
        return a.call('exec_command', {'cmd': cmd, 'login': True, 'shell': 'bash', 'yield_time_ms': 30000})

    def test_144_the_terminal_stays_dumb(self):
        a, _snapshots = self.with_profile('export TERM=xterm-256color\nexport FROM_PROFILE=1\n')
        self.assertEqual(self.variables(a.ec('env'))['TERM'], 'dumb')
        got = self.variables(self.login(a, 'env'))
        self.assertEqual((got['TERM'], got.get('FROM_PROFILE')), ('dumb', '1'))

    def test_148_a_type_of_shell_and_no_file(self):
        a = self.agent()
        for i, (shell, want) in enumerate((('/nonexistent/fish', '/bin/sh'), ('bash -x', '/bin/sh'),
                                           ('/usr/bin/bash', 'bash'), ('sh', 'sh'))):
            answer = a.ec('echo ok', shell=shell, call_id='s%d' % i)
            self.assertExited(answer)
            self.assertEqual(answer.body, 'ok\n')
            program = a.wait_begin('s%d' % i)['command'][0]
            self.assertEqual(program if want.startswith('/') else os.path.basename(program), want)

    def test_151_snapshots(self):
        a, snapshots = self.with_profile('greet() { echo "hello $1"; }\nalias shout="echo LOUD"\nexport COLOUR=blue\n'
                                         'echo x >> ~/times\necho noise\n')
        for _ in range(2):
            answer = self.login(a, 'greet you; echo $COLOUR; shopt -q login_shell && echo login || echo plain')
            self.assertExited(answer)
            self.assertEqual(answer.body, 'hello you\nblue\nplain\n')
        with open(os.path.join(os.path.dirname(snapshots), 'times')) as f:
            self.assertEqual(f.read(), 'x\n')  # the profile ran once
        files = os.listdir(snapshots)
        self.assertTrue(files)
        for name in files:
            with open(os.path.join(snapshots, name), 'w') as f:
                f.write('if then fi ) syntax\n')
        answer = self.login(a, 'echo still')
        self.assertExited(answer)
        self.assertTrue(answer.body.endswith('still\n'), answer)
        for name in files:
            os.unlink(os.path.join(snapshots, name))
        answer = self.login(a, 'echo again')
        self.assertExited(answer)
        self.assertTrue(answer.body.endswith('again\n'), answer)


class RemoteSurroundings(Surroundings, Case):
    backend = 'ws'


# --------------------------------------------------------------------------------- the old tool


class Compat:
    def bash(self, a):
        answer = a.ue(input=['bash', '--norc', '--noprofile', '-i'], timeout_ms=2500)
        self.assertFalse(answer.failed, answer)
        return json.loads(answer.text)

    def test_152_a_session(self):
        a = self.agent('--compat')
        result = self.bash(a)
        self.assertEqual(sorted(result), ['output', 'session_id'])
        self.assertEqual(result['session_id'], '1000')

    def test_153_what_is_typed(self):
        a = self.agent('--compat')
        result = json.loads(a.ue(input=['/bin/bash', '-c', 'stty -echo; echo READY; cat -A'], timeout_ms=1000).text)
        self.assertEqual(result['session_id'], '1000')
        for words, typed in ((['export', 'V=codex\n'], 'export V=codex'), (['a ', 'b', '\n'], 'a b'),
                             (['a', '', 'b\n'], 'a b')):
            output = json.loads(a.ue(input=words, session_id='1000', timeout_ms=700).text)['output']
            for _ in range(40):  # a busy machine takes longer
                if output.endswith('$\r\n'):
                    break
                output += json.loads(a.ue(input=[], session_id='1000', timeout_ms=500).text)['output']
            self.assertTrue(output.endswith(typed + '$\r\n'), output)
        self.assertEqual(json.loads(a.ue(input=[], session_id='1000', timeout_ms=300).text),
                         {'session_id': '1000', 'output': ''})

    def test_154_a_time_that_is_too_long(self):
        a = self.agent('--compat')
        answer = a.ue(input=['/bin/echo', 'x'], timeout_ms=120000)
        self.assertTrue(json.loads(answer.text)['output'].startswith(
            'Warning: requested timeout 120000ms exceeds maximum of 60000ms; clamping to 60000ms.\n'), answer)

    def test_155_a_command_that_ends(self):
        result = json.loads(self.agent('--compat').ue(input=['/bin/echo', 'codex'], timeout_ms=5000).text)
        self.assertIsNone(result['session_id'])
        self.assertIn('codex', result['output'])

    def test_156_a_session_that_has_ended(self):
        a = self.agent('--compat')
        self.bash(a)
        result = json.loads(a.ue(input=['echo last-$((1+1)); exit\n'], session_id='1000', timeout_ms=20000).text)
        self.assertIsNone(result['session_id'])
        self.assertIn('last-2', result['output'])
        self.assertFailed(a.ue(input=[], session_id='1000'), 'unified exec failed: Unknown session id 1000')
        self.assertNothingLeft(a)

    def test_the_old_tool_is_off_unless_it_is_on(self):
        a = self.agent()
        a.call_later('unified_exec', {'input': ['true']})
        agent.wire.wait_until(lambda: a.troubles, 'a refusal')
        self.assertIn('unified_exec', a.troubles.pop()['why'])


class LocalCompat(Compat, Case):
    pass


class RemoteCompat(Compat, Case):
    backend = 'ws'


if __name__ == '__main__':
    agent.main()
