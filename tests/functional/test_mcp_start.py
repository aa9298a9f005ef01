# SPDX-License-Identifier: Apache-2.0
"""How `sallyport mcp` begins: where, with which flags, and what it refuses."""

import subprocess

import mcp
import server
import tap
import wire

REFUSED = b'Error: started in /, so everything would be the workspace'


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

    def test_elsewhere(self):
        self.assertEqual(self.begin(), (0, b'', b''))

    def test_flags_that_do_not_go_together(self):
        for args, word in ((('--connect', 'unix:///x', '--listen', 'unix:///y'), b'--connect'),
                           (('--connect', 'http://x'), b'want unix:///PATH'),
                           (('--selftest', '--listen', 'unix:///y'), b'--selftest'),
                           (('--token-file', 'f'), b'--token-file'), (('--allow-remote',), b'--allow-remote'),
                           (('word',), b'no arguments'), (('--nothing',), b'--nothing')):
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
