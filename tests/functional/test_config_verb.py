# SPDX-License-Identifier: Apache-2.0
"""`sallyport config`: show, path, check, init."""

import json
import os
import stat
import subprocess

import tap
import wire
from server import PROGRAM, Case, ours_only

FILE = '''approval_policy = "untrusted"
server = "ws://127.0.0.1:1/?token=secret"

[environments.box]
url = "ws://box:8765"
[permissions.web]
extends = ":workspace"
[permissions.web.network]
enabled = true
domains = { "*.example.org" = "allow" }
[shell_environment_policy]
set = { PASSWORD = "hunter2" }
'''


@ours_only
class Config(Case):
    def setUp(self):
        super().setUp()
        self.home = os.path.join(self.scratch(), 'home')
        self.path = os.path.join(self.home, 'sallyport.conf')
        self.env = {'PATH': os.environ['PATH'], 'HOME': self.home, 'SALLYPORT_HOME': self.home, 'LC_ALL': 'C'}

    def config(self, *words, **env):
        r = subprocess.run([PROGRAM, 'config', *words], capture_output=True, timeout=wire.DEADLINE, text=True,
                           env=dict(self.env, **env), stdin=subprocess.DEVNULL)
        return r.returncode, r.stdout, r.stderr

    def write(self, text, mode=0o600):
        os.makedirs(self.home, exist_ok=True)
        with open(self.path, 'w', encoding='utf-8') as f:
            f.write(text)
        os.chmod(self.path, mode)

    def shown(self, *words, **env):
        status, out, err = self.config('show', '--json', *words, **env)
        self.assertEqual((status, err), (0, ''))
        return {v['key']: (v['value'], v['origin']) for v in json.loads(out)['values']}

    def test_each_value_and_where_it_is_set(self):
        self.write(FILE)
        all_ = self.shown('--set', 'known_safe="off"', SALLYPORT_NOTIFY_AT='7')
        self.assertEqual(all_['approval_policy'], ('untrusted', self.path + ':1'))
        self.assertEqual(all_['known_safe'], ('off', '--set known_safe'))
        self.assertEqual(all_['notify_at'], (7, '$SALLYPORT_NOTIFY_AT'))
        self.assertEqual(all_['allow_login_shell'], (True, 'default'))
        self.assertEqual(all_['environments.box.url'], ('ws://box:8765', self.path + ':5'))
        self.assertEqual(all_['permissions.web.network.domains."*.example.org"'], ('allow', self.path + ':10'))

    def test_secrets_are_not_shown(self):
        self.write(FILE)
        for words in ((), ('--json',)):
            _, out, _ = self.config('show', *words)
            self.assertNotIn('hunter2', out)
            self.assertNotIn('secret', out)
            self.assertIn('(hidden)', out)

    def test_text_is_toml_with_comments(self):
        self.write(FILE)
        _, out, _ = self.config('show')
        self.assertIn('approval_policy = "untrusted"  # %s:1\n' % self.path, out)
        again = os.path.join(self.scratch(), 'again.conf')
        with open(again, 'w', encoding='utf-8') as f:
            # The audit log's default names a variable, which a file cannot.
            f.write(''.join(line for line in out.splitlines(True) if not line.startswith('audit_log')))
        self.assertEqual(self.config('check', again), (0, again + ': valid\n', ''))

    def test_one_key_or_table(self):
        self.write(FILE)
        self.assertEqual(self.config('show', 'approval_policy')[1], 'approval_policy = "untrusted"  # %s:1\n' % self.path)
        self.assertEqual(set(self.shown('permissions.web')), {
            'permissions.web.extends', 'permissions.web.network.enabled', 'permissions.web.network.domains."*.example.org"'})
        self.assertEqual(self.config('show', 'aproval_policy'),
                         (1, '', 'sallyport: `aproval_policy` is not set; did you mean `approval_policy`?\n'))

    def test_control_characters_stay_harmless(self):
        self.write('server = "unix:///\\u001b[2J\\u202e"\n')
        _, out, _ = self.config('show', 'server')
        self.assertNotIn('\x1b', out)
        self.assertNotIn('\u202e', out)

    def test_path(self):
        status, out, err = self.config('path')
        self.assertEqual((status, out), (1, ''))
        self.assertIn('sallyport config init', err)
        self.write('')
        self.assertEqual(self.config('path'), (0, self.path + '\n', ''))

    def test_check_says_where_it_is_wrong(self):
        self.write('approval_policy = "never"\nknown_saf = "off"\n')
        status, out, err = self.config('check')
        self.assertEqual((status, out), (1, ''))
        self.assertIn('%s: line 2, column 1: ' % self.path, err)
        self.assertIn('known_safe', err)
        for line, column, said in (('publish = ["80", "70000"]', 18, '`70000` is neither a port nor HOST:PORT'),
                                   ('publish = ["1:0"]', 12, '`1:0` is neither a port nor HOST:PORT'),
                                   ('permissions.x.filesystem.":home" = "deny"', 26, '`:home`: expected an absolute path, `~/...` or one of :root'),
                                   ('approver = "consle"', 12, '`console`')):
            self.write(line + '\n')
            status, _, err = self.config('check')
            self.assertEqual(status, 1)
            self.assertIn('line 1, column %d: ' % column, err)
            self.assertIn(said, err)
        self.write('publish = ["80", "8080:80"]\napprover = "console"\n')
        self.assertEqual(self.config('check')[0], 0)
        self.write('', mode=0o666)
        self.assertIn('chmod go-w', self.config('check')[2])

    def test_init_writes_once(self):
        self.assertEqual(self.config('init'), (0, self.path + '\n', ''))
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(self.config('check')[0], 0)
        self.assertTrue(all(origin == 'default' for _, origin in self.shown().values()))
        status, _, err = self.config('init')
        self.assertEqual(status, 1)
        self.assertIn('exists already', err)

    def test_every_line_of_the_first_file_is_valid(self):
        self.config('init')
        with open(self.path, encoding='utf-8') as f:
            text = f.read()
        self.write(''.join(line[1:] if line.startswith('#') and not line.startswith('# ') else line
                           for line in text.splitlines(True)))
        self.assertEqual(self.config('check'), (0, self.path + ': valid\n', ''))
        self.assertIn('environments.builder.url', self.shown())

    def test_init_follows_no_link(self):
        os.makedirs(self.home)
        target = os.path.join(self.scratch(), 'target')
        os.symlink(target, self.path)
        self.assertEqual(self.config('init')[0], 1)
        self.assertFalse(os.path.exists(target))

    def test_a_file_that_cannot_be_reached_is_no_absent_one(self):
        os.makedirs(self.home)
        os.symlink('/nonexistent/dotfiles', self.path)
        status, _, err = self.config('check')
        self.assertEqual((status, err), (1, 'sallyport: read %s: No such file or directory\n' % self.path))
        os.unlink(self.path)
        self.write('default_permissions = ":read-only"\n')
        run = {}
        if os.geteuid() == 0:  # root may search it
            os.chown(self.home, 65534, 65534)
            os.chmod(os.path.dirname(self.home), 0o755)
            run = {'user': 65534, 'group': 65534, 'extra_groups': []}
        os.chmod(self.home, 0)
        self.addCleanup(os.chmod, self.home, 0o700)
        r = subprocess.run([PROGRAM, 'exec', '--', 'true'], capture_output=True, text=True, env=self.env, timeout=wire.DEADLINE,
                           stdin=subprocess.DEVNULL, cwd='/', **run)
        self.assertEqual((r.returncode, r.stderr), (125, 'sallyport: read %s: Permission denied\n' % self.path))


if __name__ == '__main__':
    tap.main()
