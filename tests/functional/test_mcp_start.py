# SPDX-License-Identifier: Apache-2.0
"""How `sallyport mcp` begins: where, with which flags, and what it refuses."""

import os
import subprocess

import mcp
import server
import tap
import wire

REFUSED = b'sallyport: started in /, so everything would be the workspace'


class Start(mcp.Case):
    def begin(self, *args, cwd=None):
        p = subprocess.run([server.PROGRAM, 'mcp', *args], cwd=cwd or self.work, env=self.environ(), input=b'',
                           capture_output=True, timeout=wire.DEADLINE)
        return p.returncode, p.stdout, p.stderr

    def test_in_the_root_nothing_would_be_protected(self):
        code, out, err = self.begin(cwd='/')
        self.assertEqual((code, out), (1, b''))
        self.assertTrue(err.startswith(REFUSED), err)
        self.assertIn(b'give --cwd DIR', err)

    def test_in_the_root_with_a_word(self):
        for args in (('--cwd', self.work), ('--cwd', '/'), ('--sandbox', ':read-only'),
                     ('--sandbox', ':danger-full-access')):
            self.assertEqual(self.begin(*args, cwd='/'), (0, b'', b''), args)

    def test_in_the_home_directory(self):
        """By its path, by a link, and from above."""
        link = os.path.join(self.base, 'link')
        os.symlink(self.home, link)
        for home, cwd in ((self.home, self.home), (link, self.home), (self.home, self.base)):
            p = subprocess.run([server.PROGRAM, 'mcp'], cwd=cwd, env=self.environ(HOME=home), input=b'',
                               capture_output=True, timeout=wire.DEADLINE)
            self.assertEqual((p.returncode, p.stdout), (1, b''), (home, cwd))
            self.assertIn(b'started in %s, so your whole home directory' % cwd.encode(), p.stderr)
            self.assertIn(b'give --cwd DIR', p.stderr)
        for args in (('--cwd', self.work), ('--cwd', self.home), ('--sandbox', ':read-only')):
            self.assertEqual(self.begin(*args, cwd=self.home), (0, b'', b''), args)

    def test_the_home_directory_if_it_is_meant(self):
        """Names with a dot that are there stay as they are, all else is the workspace."""
        os.makedirs(os.path.join(self.home, '.ssh'))
        for name in ('.bashrc', '.ssh/authorized_keys', 'notes'):
            with open(os.path.join(self.home, name), 'w') as f:
                f.write('mine\n')
        host = self.mcp('--cwd', self.home, env={'SALLYPORT_HOME': os.path.join(self.base, 'own')})
        r = host.run('for f in .bashrc .ssh/authorized_keys .ssh/new notes new; do echo yours > $f; done; mv .ssh s; cat .bashrc')
        self.assertIn('mine', r.text)
        got = {name: open(os.path.join(self.home, name)).read() for name in ('.bashrc', '.ssh/authorized_keys', 'notes', 'new')}
        self.assertEqual(got, {'.bashrc': 'mine\n', '.ssh/authorized_keys': 'mine\n', 'notes': 'yours\n', 'new': 'yours\n'})
        self.assertEqual(os.listdir(os.path.join(self.home, '.ssh')), ['authorized_keys'])

    def test_a_profile_may_open_one(self):
        os.makedirs(os.path.join(self.home, '.cache'))
        config = os.path.join(self.base, 'conf')
        with open(config, 'w') as f:
            f.write('[permissions.mine]\nextends = ":workspace"\n[permissions.mine.filesystem]\n"~/.cache" = "write"\n')
            os.fchmod(f.fileno(), 0o600)
        host = self.mcp('--cwd', self.home, '--config', config, '--sandbox', 'mine',
                        env={'SALLYPORT_HOME': os.path.join(self.base, 'own')})
        self.assertEqual(host.run('echo x > .cache/f')['exit_code'], 0)

    def test_elsewhere(self):
        self.assertEqual(self.begin(), (0, b'', b''))

    def test_the_selftest_with_further_tools(self):
        code, out, err = self.begin('--selftest', '--set', 'features.unified_exec=true')
        self.assertEqual(code, 0, (out, err))
        self.assertNotIn(b'not ok', out)

    def test_flags_that_do_not_go_together(self):
        for args, word in ((('--connect', 'unix:///x', '--listen', 'unix:///y'), b'--connect'),
                           (('--connect', 'http://x'), b'want unix:///PATH'),
                           (('--selftest', '--listen', 'unix:///y'), b'--selftest'),
                           (('--token-file', 'f'), b'--token-file'), (('--allow-remote',), b'--allow-remote'),
                           (('word',), b'unexpected argument `word`'), (('--nothing',), b'--nothing')):
            code, out, err = self.begin(*args)
            self.assertEqual((code, out), (2, b''), args)
            self.assertIn(word, err)

    def test_what_cannot_be_had(self):
        for args, word in ((('--cwd', '/site/none'), b'/site/none'), (('--sandbox', 'none-such'), b'none-such'),
                           (('--approve', 'perhaps'), b'perhaps'), (('--approver', 'nobody'), b'nobody'),
                           (('--on', 'nowhere'), b'nowhere'), (('--listen', 'tcp://x'), b'tcp://x'),
                           (('--set', 'no_key=1'), b'no_key')):
            code, out, err = self.begin(*args)
            self.assertEqual((code, out), (1, b''), args)
            self.assertIn(word, err, args)


if __name__ == '__main__':
    tap.main()
