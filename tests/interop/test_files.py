# SPDX-License-Identifier: Apache-2.0
"""Files that the Codex CLI reads and writes through a server: patches, project documents, skills, images.

Each class names the methods that it needs.
"""

import base64
import json
import os
import random
import struct
import zlib

import codex
from model import call, command, custom, patch, patch_text, say

import tap

CONFINED = dict(sandbox='workspace-write')
PATCHING = ('fs/getMetadata', 'fs/readFile', 'fs/writeFile', 'fs/createDirectory', 'fs/remove')
READING = ('fs/getMetadata', 'fs/readFile')
DISCOVERY = ('fs/getMetadata', 'fs/readFile', 'fs/canonicalize', 'fs/walk')


class Patch(codex.Case):
    NEEDS = PATCHING

    def all_kinds(self, **how):
        self.put(old_txt='one\ntwo\nthree\n', gone_txt='x\n', from_txt='a\nb\n')
        m = self.play(
            [patch('c1', '*** Update File: old.txt', '@@', '-one', '+ONE', ' two',
                   '*** Add File: new/dir/file.txt', '+fresh', '+ünicode',
                   '*** Delete File: gone.txt',
                   '*** Update File: from.txt', '*** Move to: moved/to.txt', '@@', '-a', '+A', ' b')],
            [command('c2', 'cat old.txt new/dir/file.txt moved/to.txt')], [say()], **how)
        self.assertIn('Success. Updated the following files:', m.told('c1'))
        for line in ('A new/dir/file.txt', 'M old.txt', 'D gone.txt'):
            self.assertIn(line, m.told('c1'))
        self.assertOutcome(m, 'c2', 0, 'ONE\ntwo\nthree\nfresh\nünicode\nA\nb\n')
        self.assertTree({'old.txt': 'ONE\ntwo\nthree\n', 'new': None, 'new/dir': None, 'new/dir/file.txt': 'fresh\nünicode\n',
                         'moved': None, 'moved/to.txt': 'A\nb\n'})
        self.assertLessEqual({'fs/getMetadata', 'fs/readFile', 'fs/writeFile', 'fs/createDirectory', 'fs/remove'},
                             self.wire.methods())
        self.assertRanThere(1)
        return [w['params']['sandbox'] for w in self.wire.sent('fs/writeFile')]

    def test_all_kinds(self):
        self.assertEqual(set(self.all_kinds()), {None})

    def test_all_kinds_confined(self):
        self.assertNotIn(None, self.all_kinds(**CONFINED))

    def test_that_does_not_fit(self):
        self.put(old_txt='one\n')
        m = self.play([patch('c1', '*** Update File: old.txt', '@@', '-nothing like it', '+x')],
                      [patch('c2', '*** Update File: missing.txt', '@@', '-a', '+b')],
                      [patch('c3', '*** Delete File: missing.txt')], [say()])
        self.assertIn('Failed to find expected lines', m.told('c1'))
        self.assertIn('missing.txt', m.told('c2'))
        self.assertIn('No such file or directory (os error 2)', m.told('c2'))
        self.assertIn('missing.txt', m.told('c3'))
        self.assertTree({'old.txt': 'one\n'})
        self.assertNotIn('fs/writeFile', self.wire.methods())

    def test_through_the_shell(self):
        self.put(old_txt='one\n')
        script = "apply_patch <<'EOF'\n%sEOF\n" % patch_text('*** Update File: old.txt', '@@', '-one', '+ONE')
        m = self.play([command('c1', script)], [say()])
        self.assertIn('Success. Updated the following files:\nM old.txt', m.told('c1'))
        self.assertTree({'old.txt': 'ONE\n'})
        self.assertRanThere(0)

    def test_by_a_program(self):
        self.put(old_txt='one\n')
        text = patch_text('*** Update File: old.txt', '@@', '-one', '+ONE', '*** Add File: new.txt', '+two')
        program = 'await tools.apply_patch(%s); text("applied"); await tools.apply_patch(%s);' % (2 * (json.dumps(text),))
        m = self.play([custom('c1', 'exec', program)], [say()], model=codex.CODE_MODEL)
        self.assertIn('applied', m.told('c1'))
        self.assertIn('Failed to find expected lines', m.told('c1'))
        self.assertTree({'old.txt': 'ONE\n', 'new.txt': 'two\n'})

    def test_large_and_raw(self):
        """Every byte that the patch does not name stays."""
        lines = ['line %d é' % i for i in range(200000)]
        self.put(big_txt='\n'.join(lines) + '\n')
        change = ('*** Update File: big.txt', '@@', ' line 29999 é', '-line 30000 é', '+HERE', ' line 30001 é')
        m = self.play([patch('c1', *change)], [say()])
        self.assertIn('M big.txt', m.told('c1'))
        lines[30000] = 'HERE'
        self.assertTree({'big.txt': '\n'.join(lines) + '\n'})

    def test_outside_is_refused(self):
        os.symlink('..', os.path.join(self.ws, 'link'))
        m = self.play([patch('c1', '*** Add File: ../out.txt', '+x')], [patch('c2', '*** Add File: link/out.txt', '+x')],
                      [patch('c3', '*** Add File: fine.txt', '+x')], [say()], **CONFINED)
        self.assertNotIn('Success', m.told('c1'))
        self.assertNotIn('Success', m.told('c2'))
        self.assertIn('Failed to write file', m.told('c2'))
        refused = self.wire.answer(self.wire.sent('fs/writeFile')[0])
        self.assertEqual(refused['error']['message'], 'Read-only file system (os error 30)')
        self.assertIn('Success', m.told('c3'))
        self.assertNotIn('out.txt', os.listdir(self.base))
        self.assertTree({'fine.txt': 'x\n', 'link': '-> ..'})

    def test_protected_and_read_only(self):
        self.put(_git__config='[core]\n', file='one\n')
        change = ('*** Update File: .git/config', '@@', '-[core]', '+[evil]')
        m = self.play([patch('c1', *change)], [say()], **CONFINED)
        self.assertNotIn('Success', m.told('c1'))
        m = self.play([patch('c1', '*** Update File: file', '@@', '-one', '+two')], [say()], sandbox='read-only')
        self.assertNotIn('Success', m.told('c1'))
        self.assertTree({'.git': None, '.git/config': '[core]\n', 'file': 'one\n'})


class Documents(codex.Case):
    NEEDS = DISCOVERY

    def test_agents_of_the_project(self):
        os.mkdir(os.path.join(self.ws, '.git'))
        self.put(AGENTS_md='RULE OF THE ROOT 42\n', sub__AGENTS_md='RULE OF THE SUB 43\n', sub__deep__x='')
        m = self.play([command('c1', 'pwd')], [say()], cwd=self.ws + '/sub/deep')
        self.assertOutcome(m, 'c1', 0, self.ws + '/sub/deep\n')
        text = m.context()
        self.assertIn('RULE OF THE ROOT 42', text)
        self.assertIn('RULE OF THE SUB 43', text)

    def test_override(self):
        self.put(AGENTS_md='PLAIN RULE\n', AGENTS_override_md='OTHER RULE\n')
        text = self.play([say()]).context()
        self.assertIn('OTHER RULE', text)
        self.assertNotIn('PLAIN RULE', text)

    def test_skills(self):
        self.put(_agents__skills__demo__SKILL_md='---\nname: demo-skill\ndescription: does a demo of seven\n---\nDo it.\n')
        os.mkdir(os.path.join(self.ws, '.git'))
        m = self.play([command('c1', 'true')], [say()])
        self.assertIn('demo-skill', m.context())
        self.assertIn('does a demo of seven', m.context())
        self.assertIn('fs/walk', self.wire.methods())

    def test_after_a_confined_command(self):
        """Mount points of a sandbox are not taken for the root of a project."""
        os.mkdir(os.path.join(self.ws, '.git'))
        self.put(AGENTS_md='RULE OF THE ROOT 42\n', sub__x='')
        self.wire_to(self.serve())
        for _ in range(2):
            m = self.play([command('c1', 'echo in >in')], [say()], cwd=self.ws + '/sub', **CONFINED)
            self.assertOutcome(m, 'c1', 0, '')
            self.assertIn('RULE OF THE ROOT 42', m.context())


def png(width, height):
    """A picture that cannot be compressed, the same each time."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    noise = random.Random(1)
    rows = b''.join(b'\0' + noise.randbytes(width) for _ in range(height))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


class Image(codex.Case):
    NEEDS = READING

    def seen(self, **how):
        self.write('a picture.png', png(40, 30))
        m = self.play([call('c1', 'view_image', path=self.ws + '/a picture.png')],
                      [call('c2', 'view_image', path=self.ws + '/missing.png')], [say()], **how)
        (image,) = [part for part in m.raw('c1') if part['type'] == 'input_image']
        head, _, data = image['image_url'].partition(',')
        self.assertEqual(head, 'data:image/png;base64')
        self.assertEqual(base64.b64decode(data)[:24], png(40, 30)[:24])
        self.assertIn('unable to locate image at', m.told('c2'))

    def test_shown(self):
        self.seen()

    def test_shown_confined(self):
        self.seen(**CONFINED)

    def test_larger_than_a_frame(self):
        """Messages of several MiB, which a server may cut into frames."""
        data = png(1800, 1800)
        self.write('large.png', data)
        m = self.play([call('c1', 'view_image', path=self.ws + '/large.png', detail='original')], [say()])
        (image,) = [part for part in m.raw('c1') if part['type'] == 'input_image']
        self.assertTrue(base64.b64decode(image['image_url'].partition(',')[2]).startswith(b'\x89PNG'))
        (answer,) = [self.wire.answer(r) for r in self.wire.sent('fs/readFile') if 'large' in r['params']['path']]
        self.assertEqual(base64.b64decode(answer['result']['dataBase64']), data)


if __name__ == '__main__':
    tap.main()
