# SPDX-License-Identifier: Apache-2.0
"""The environment of commands in a sandbox: no credentials of ours, and what they are told of themselves."""

import os
import subprocess

import mcp
import tap
import wire
from server import ours_only
from test_library import EXAMPLES
from test_sandbox_verb import PROGRAM, Verb

SECRETS = {'OPENAI_API_KEY': 's1', 'GITHUB_TOKEN': 's2', 'AWS_SECRET_ACCESS_KEY': 's3', 'db_password': 's4', 'PASSWD': 's5',
           'GCP_CREDENTIALS': 's6', 'AUTH': 's7', 'NPM_AUTH': 's8', 'AUTH_HEADER': 's9', 'X_AUTH_Y': 's10'}
HARMLESS = {'GIT_AUTHOR_NAME': 'h1', 'AUTHOR': 'h2', 'PASSAGE': 'h3', 'EDITOR': 'h4'}
UUID = '[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}'


def variables(text):
    return dict(line.split('=', 1) for line in text.splitlines() if '=' in line)


class Checks:
    def check(self, got, kept=()):
        for name in SECRETS:
            self.assertEqual(got.get(name), SECRETS[name] if name in kept else None, name)
        for name in HARMLESS:
            self.assertEqual(got.get(name), HARMLESS[name], name)

    def check_told(self, text, kept=()):
        self.assertEqual(text.count('not passed on'), 1, text)
        for name, value in SECRETS.items():
            self.assertNotIn(value + ' ', text + ' ')
            (self.assertNotIn if name in kept else self.assertIn)(name, text)


@ours_only
class Verbs(Verb, Checks):
    def setUp(self):
        super().setUp()
        self.env.update(SECRETS, **HARMLESS)
        self.config = os.path.join(self.base, 'conf')
        self.env['SALLYPORT_CONFIG'] = self.config
        self.configure('')

    def configure(self, text):
        with open(self.config, 'w') as f:
            f.write(text)
            os.fchmod(f.fileno(), 0o600)

    def run_it(self, *words):
        r = subprocess.run([PROGRAM, *words], env=self.env, cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True,
                           timeout=wire.DEADLINE)
        self.assertEqual(r.returncode, 0, r.stderr)
        return variables(r.stdout.decode()), r.stderr.decode()

    DOORS = (('exec', '--sandbox', ':workspace', '--'), ('sandbox', '--'), ('exec', '--sandbox', ':read-only', '--approve', 'never',
                                                                        '--'))

    def test_credentials_are_left_out_and_told(self):
        for door in self.DOORS:
            got, told = self.run_it(*door, 'env')
            self.check(got)
            self.check_told(told)

    def test_what_the_configuration_names_is_passed_on(self):
        self.configure('[shell_environment_policy]\nkeep = ["GITHUB_TOKEN", "*_credentials"]\n')
        kept = ('GITHUB_TOKEN', 'GCP_CREDENTIALS')
        for door in self.DOORS:
            got, told = self.run_it(*door, 'env')
            self.check(got, kept)
            self.check_told(told, kept)

    def test_what_is_given_is_passed_on(self):
        got, _ = self.run_it('exec', '--sandbox', ':workspace', '--env', 'GITHUB_TOKEN=given', '--', 'env')
        self.assertEqual(got['GITHUB_TOKEN'], 'given')

    def test_without_a_sandbox_all_is_passed_on(self):
        for door in (('exec', '--'), ('sandbox', '--mode', 'danger-full-access', '--')):
            got, told = self.run_it(*door, 'env')
            self.check(got, SECRETS)
            self.assertEqual(told, '')

    def test_commands_are_told_of_their_sandbox(self):
        for door, want in ((('exec', '--sandbox', ':workspace'), ('1', 'linux')), (('sandbox',), ('1', 'linux')),
                           (('sandbox', '--network'), (None, 'linux')), (('exec',), (None, None)),
                           (('sandbox', '--mode', 'danger-full-access'), (None, None))):
            got, _ = self.run_it(*door, '--', 'env')
            self.assertEqual((got.get('CODEX_SANDBOX_NETWORK_DISABLED'), got.get('SALLYPORT_SANDBOX')), want, door)

    def test_the_library(self):
        self.configure('default_permissions = ":read-only"\n')
        self.env['SALLYPORT_PROGRAM'] = PROGRAM
        run = subprocess.run([os.path.join(EXAMPLES, 'example-run'), 'env'], env=self.env, cwd=self.work, capture_output=True,
                             stdin=subprocess.DEVNULL, timeout=wire.DEADLINE)
        got = variables(run.stdout.decode())
        self.check(got)
        self.assertRegex(got['CODEX_THREAD_ID'], '^%s$' % UUID)
        self.assertEqual(got['CODEX_SANDBOX_NETWORK_DISABLED'], '1')


@ours_only
class Mcp(mcp.Case, Checks):
    def test_credentials_and_the_thread(self):
        host = self.mcp(env={**SECRETS, **HARMLESS})
        first, second = (variables(host.run('env')['output']) for _ in range(2))
        self.check(first)
        self.assertRegex(first['CODEX_THREAD_ID'], '^%s$' % UUID)
        self.assertEqual(first['CODEX_THREAD_ID'], second['CODEX_THREAD_ID'])
        self.assertEqual(first['CODEX_SANDBOX_NETWORK_DISABLED'], '1')
        self.check_told(self.stderr())

    def test_the_caller_may_give_one(self):
        host = self.mcp(env=SECRETS)
        self.assertIn('given', host.run('echo $GITHUB_TOKEN', env={'GITHUB_TOKEN': 'given'}).text)

    def test_without_a_sandbox(self):
        host = self.mcp('--sandbox', ':danger-full-access', env={**SECRETS, **HARMLESS})
        self.check(variables(host.run('env')['output']), SECRETS)
        self.assertEqual(self.stderr(), '')


if __name__ == '__main__':
    tap.main()
