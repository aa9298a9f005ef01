# SPDX-License-Identifier: Apache-2.0
"""The environment of a command: exactly what was asked for, step by step."""

import tap
from server import MARK, PASS_ON, PEER, Case, ours_only
from wire import unb64

URLS = ['CODEX_EXEC_SERVER_URL', 'SALLYPORT_SERVER', 'SALLYPORT_DEFAULT_ENVIRONMENT', 'SALLYPORT_TOKEN']
SERVER = {'PATH': '/usr/bin:/bin', 'HOME': '/h', 'LANG': 'C', 'USER': 'u', 'FOO': 'bar', 'MY_API_KEY': 'k',
          'GITHUB_TOKEN': 't', 'DB_SECRET': 's', 'MONKEY': 'm', 'secretive': 'x', 'Path2': 'p', 'home': 'lower',
          'LC_ALL': 'C', 'LC_CTYPE': 'C', 'LC_TIME': 'C', 'TMP': '/t', 'TEMP': '/t', 'LOGNAME': 'l', 'SHELL': '/bin/sh',
          'EMPTY': '', 'EQUALS': 'a=b=c', 'CODEX_TOOL_CALL_ID': 'inherited', 'CODEX_THREAD_ID': 'inherited',
          'CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE': 'false', 'CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN': '1',
          'NODE_REPL_AUTH_TOKEN': '1', 'OPENAI_FEDERATION_RULE_ID': '1', 'OPENAI_IDENTITY_TOKEN_FILE': '1',
          'OPENAI_WORKLOAD_IDENTITY_CONTEXT': '1', 'CODEX_GUARDIAN_DECISIONS_API_KEY': '1',
          **{name: 'ws://127.0.0.1:1/?token=x' for name in URLS}}
NEVER = ['CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE', 'CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN', 'NODE_REPL_AUTH_TOKEN',
         'OPENAI_FEDERATION_RULE_ID', 'OPENAI_IDENTITY_TOKEN_FILE', 'OPENAI_WORKLOAD_IDENTITY_CONTEXT',
         'CODEX_GUARDIAN_DECISIONS_API_KEY'] + (URLS if not PEER else [])
CORE = ['PATH', 'SHELL', 'TMPDIR', 'TEMP', 'TMP', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'LOGNAME', 'USER']
THREAD = '0190f0d0-0000-7000-8000-000000000000'


def policy(inherit='none', ignore=True, exclude=(), set_=None, only=()):
    return {'inherit': inherit, 'ignoreDefaultExcludes': ignore, 'exclude': list(exclude), 'set': set_ or {},
            'includeOnly': list(only)}


class Environment(Case):
    def setUp(self):
        super().setUp()
        self.srv = self.server(replace_env=SERVER)
        self.c = self.srv.session()

    def env(self, **how):
        """The environment a command sees, as strings in a set."""
        p = self.c.run(['/bin/cat', '/proc/self/environ'], **how)
        self.assertEqual(p.exit_code, 0)
        strings = [s.decode('utf-8', 'surrogateescape') for s in (p.stdout or p.pty).split(b'\0')[:-1]]
        strings = [s for s in strings if s.split('=')[0] not in (MARK, 'CODEX_HOME') + PASS_ON]
        if PEER:
            strings = ['PATH=/usr/bin:/bin' if s.startswith('PATH=') and s.endswith(':/usr/bin:/bin') else s for s in strings]
        self.assertEqual(len(strings), len(set(strings)), 'no variable twice')
        return set(strings)

    def names(self, **how):
        return {s.split('=')[0] for s in self.env(**how)}

    def inherited(self, *names):
        return {'%s=%s' % (n, SERVER[n]) for n in names}

    def everything(self):
        return set(SERVER) - set(NEVER) - {'CODEX_TOOL_CALL_ID'}

    def test_without_a_policy_env_is_exact(self):
        self.assertEqual(self.env(env={}), set())
        self.assertEqual(self.env(env={'A': '1', 'é': 'ü', 'EMPTY': '', 'B': 'x=y'}),
                         {'A=1', 'é=ü', 'EMPTY=', 'B=x=y'})

    def test_odd_names_are_passed_on(self):
        self.assertEqual(self.env(env={'': 'x', 'A=B': 'c', 'a b': 'd', 'X\nY': 'z'}), {'=x', 'A=B=c', 'a b=d', 'X\nY=z'})

    def test_inherit_all_none_core(self):
        self.assertEqual(self.env(env={}, envPolicy=policy('none')), set())
        self.assertEqual(self.env(env={}, envPolicy=policy('all')), self.inherited(*self.everything()))
        core = {n for n in SERVER if n.upper() in CORE}
        self.assertIn('home', core)
        self.assertEqual(self.env(env={}, envPolicy=policy('core')), self.inherited(*core))

    def test_default_excludes(self):
        got = self.names(env={}, envPolicy=policy('all', ignore=False))
        words = ('KEY', 'SECRET', 'TOKEN')
        self.assertEqual(got, {n for n in self.everything() if not any(w in n.upper() for w in words)})

    def test_exclude_patterns(self):
        all_names = self.everything()
        for pattern, keep in (('HOME', lambda n: n.upper() != 'HOME'), ('l*', lambda n: not n.upper().startswith('L')),
                              ('F?O', lambda n: n != 'FOO'), ('F??O', lambda n: True), ('*', lambda n: False),
                              ('', lambda n: True), ('*e*', lambda n: 'E' not in n.upper()), ('[F]OO', lambda n: True),
                              ('FOO*', lambda n: n != 'FOO'), ('*FOO', lambda n: n != 'FOO'), ('F*O*O*', lambda n: n != 'FOO'),
                              ('FO', lambda n: True), ('OO', lambda n: True), ('\\FOO', lambda n: True)):
            got = self.names(env={}, envPolicy=policy('all', exclude=[pattern]))
            self.assertEqual(got, {n for n in all_names if keep(n)}, pattern)

    def test_set_comes_after_exclude_and_before_include_only(self):
        self.assertEqual(self.env(env={}, envPolicy=policy('core', exclude=['*'], set_={'HOME': '/new', 'A_TOKEN': '1'}, ignore=False)),
                         {'HOME=/new', 'A_TOKEN=1'})
        self.assertEqual(self.env(env={}, envPolicy=policy('all', set_={'FOO': 'new', 'X': '1'}, only=['foo', 'h*'])),
                         {'FOO=new', 'HOME=/h', 'home=lower'})
        self.assertEqual(self.env(env={}, envPolicy=policy('none', set_={'A': '1', 'B': '2'}, only=['a'])), {'A=1'})
        self.assertEqual(self.env(env={}, envPolicy=policy('all', only=[''])), set())

    def test_env_is_laid_over_and_never_filtered(self):
        self.assertEqual(self.env(env={'MY_TOKEN': 'x', 'FOO': 'mine'},
                                  envPolicy=policy('all', ignore=False, exclude=['*'], only=['nothing'])),
                         {'MY_TOKEN=x', 'FOO=mine'})

    def test_some_variables_are_never_passed(self):
        self.assertEqual(self.env(env={n: '1' for n in NEVER}), set())
        self.assertEqual(self.env(env={n.lower(): '1' for n in NEVER[1:]}), set())
        self.assertEqual(self.env(env={}, envPolicy=policy('none', set_={n: '1' for n in NEVER})), set())
        self.assertEqual(self.env(env={'codex_exec_server_exit_on_stdin_close': '1'}), {'codex_exec_server_exit_on_stdin_close=1'})

    def test_metadata_sets_its_variables(self):
        self.assertEqual(self.env(env={}, metadata={'threadId': THREAD, 'toolCallId': 'call_1'}),
                         {'CODEX_THREAD_ID=' + THREAD, 'CODEX_TOOL_CALL_ID=call_1'})
        self.assertEqual(self.env(env={'CODEX_TOOL_CALL_ID': 'x', 'CODEX_THREAD_ID': 'y'}), {'CODEX_THREAD_ID=y'})
        self.assertEqual(self.env(env={'CODEX_THREAD_ID': 'y'}, metadata={'threadId': THREAD}), {'CODEX_THREAD_ID=' + THREAD})
        self.assertEqual(self.env(env={'A': '1'}, metadata={}), {'A=1'})
        self.assertEqual(self.env(env={'A': '1'}, metadata={'threadId': None, 'toolCallId': None, 'more': 1}), {'A=1'})
        self.assertEqual(self.env(env={}, metadata={'toolCallId': ''}), {'CODEX_TOOL_CALL_ID='})
        self.assertEqual(self.names(env={}, envPolicy=policy('all'), metadata={'toolCallId': 'c'}) - {'CODEX_THREAD_ID'},
                         (self.everything() | {'CODEX_TOOL_CALL_ID'}) - {'CODEX_THREAD_ID'})

    def test_metadata_is_checked(self):
        for value in ({'threadId': 'x'}, {'threadId': ''}, {'threadId': 5}, {'toolCallId': 5}, 5, 'x',
                      {'threadId': THREAD + '0'}, {'threadId': THREAD.replace('-', '_')}):
            self.assertError(self.c.start_error('p', ['true'], metadata=value), -32602)

    def test_a_policy_must_be_complete(self):
        for name in policy():
            bad = policy()
            del bad[name]
            self.assertError(self.c.start_error('p', ['true'], envPolicy=bad), -32602)
            self.assertError(self.c.start_error('p', ['true'], envPolicy=dict(policy(), **{name: None})), -32602)
        for name, value in (('inherit', 'some'), ('inherit', 'ALL'), ('ignoreDefaultExcludes', 'yes'), ('exclude', 'x'),
                            ('exclude', [5]), ('set', []), ('set', {'A': 1}), ('set', {'A': None}), ('includeOnly', {})):
            self.assertError(self.c.start_error('p', ['true'], envPolicy=dict(policy(), **{name: value})), -32602)
        for value in ('all', 5, True):
            self.assertError(self.c.start_error('p', ['true'], envPolicy=value), -32602)
        self.assertError(self.c.start_error('p', ['true'], env={'A': 5}), -32602)
        self.assertError(self.c.start_error('p', ['true'], env=['A=5']), -32602)

    def test_a_terminal_gets_the_same_and_a_shell(self):
        self.assertEqual(self.env(env={'SHELL': 's', 'A': '1'}, tty=True), {'SHELL=s', 'A=1'})
        self.assertEqual(self.env(env={}, envPolicy=policy('all'), tty=True), self.inherited(*self.everything()))

    def test_path_of_the_result_finds_the_program(self):
        p = self.c.run(['sh', '-c', 'echo $PATH'], env={'PATH': '/bin:/nowhere'}, envPolicy=policy('all'))
        self.assertEqual(p.text, '/bin:/nowhere\n')


class Bytes(Case):
    @ours_only
    def test_variables_that_are_not_utf8_pass_through(self):
        raw = {b'PATH': b'/usr/bin:/bin', b'RAW': b'\xff\xfe', b'N\xffME': b'x', b'HOME': b'/h\xe9'}
        srv = self.server(replace_env={k.decode('utf-8', 'surrogateescape'): v.decode('utf-8', 'surrogateescape')
                                       for k, v in raw.items()})
        c = srv.session()
        for how in ({}, {'tty': True}):
            p = c.run(['/bin/cat', '/proc/self/environ'], env={'MORE': 'é'}, envPolicy=policy('all'), **how)
            got = set((p.stdout or p.pty).split(b'\0'))
            for name, value in raw.items():
                self.assertIn(name + b'=' + value, got)
            self.assertIn('MORE=é'.encode(), got)
        p = c.run(['/bin/cat', '/proc/self/environ'], env={}, envPolicy=policy('all', exclude=['R?W', 'n*']))
        self.assertNotIn(b'RAW', p.stdout)
        self.assertEqual(unb64(c.read(p.id)['chunks'][0]['chunk']), p.stdout)


if __name__ == '__main__':
    tap.main()
