# SPDX-License-Identifier: Apache-2.0
"""Patches, ours against the reference's `apply_patch`: files, texts and exit codes on made-up ones.

PEER  path of the reference's program; without it nothing is compared, and that is said.

Both keep line endings here (the reference's release does, ours with --preserve-line-endings). What
differs on purpose is DEPARTURES: a case each, with what either does.
"""

import os
import random
import re
import shutil
import subprocess
import tempfile
import unittest

import tap
import wire
from server import PASS_ON, PROGRAM

PEER = os.environ.get('PEER')
COUNT = int(os.environ.get('PATCHES', '400'))
SEED = int(os.environ.get('SEED', '1'))
START, END = '*** Begin Patch\n', '*** End Patch\n'


def tree(base):
    found = {}
    for where, dirs, files in os.walk(base):
        for name in dirs:
            found[os.path.relpath(os.path.join(where, name), base) + '/'] = None
        for name in files:
            with open(os.path.join(where, name), 'rb') as f:
                found[os.path.relpath(os.path.join(where, name), base)] = f.read()
    return found


class Both(unittest.TestCase):
    def setUp(self):
        if not PEER:
            self.skipTest('PEER is not set: nothing to compare with')
        self.base = tempfile.mkdtemp(prefix='sallyport-patch-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, self.base, True)
        self.theirs = os.path.join(self.base, 'apply_patch')
        os.symlink(os.path.abspath(PEER), self.theirs)
        self.env = {'PATH': '/usr/bin:/bin', 'HOME': self.base, 'SALLYPORT_CONFIG': '/dev/null'}
        self.env.update({k: os.environ[k] for k in PASS_ON if k in os.environ})

    def run_one(self, words, files, patch):
        work = os.path.join(self.base, 'w')
        shutil.rmtree(work, True)
        os.mkdir(work)
        for name, data in files.items():
            path = os.path.join(work, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if data is None:
                os.mkdir(path)
                continue
            with open(path, 'wb') as f:
                f.write(data)
        r = subprocess.run(words, cwd=work, env=self.env, capture_output=True, timeout=wire.DEADLINE,
                           input=patch.encode() if isinstance(patch, str) else patch)
        return r.returncode, r.stdout.decode(), r.stderr.decode(errors='replace'), tree(work)

    def ours(self, files, patch):
        return self.run_one([PROGRAM, 'patch', '--preserve-line-endings', '--sandbox', ':danger-full-access'], files, patch)

    def peers(self, files, patch):
        return self.run_one([self.theirs], files, patch)

    def same(self, files, patch):
        """Alike, but that a patch of ours that fails changes nothing, and that ours says why."""
        code, out, err, after = self.ours(files, patch)
        peer_code, peer_out, peer_err, peer_after = self.peers(files, patch)
        story = 'patch:\n%s\nfiles: %r\nours: %r\npeer: %r' % (patch, files, (code, out, err), (peer_code, peer_out, peer_err))
        self.assertEqual(code, peer_code, story)
        self.assertEqual(out, peer_out, story)
        peer_err = re.sub(r' \(os error \d+\)', '', peer_err.rstrip('\n'))
        self.assertTrue(err.startswith(peer_err[:390]), story)
        if code == 0:  # the peer replaces files that are there without a word
            self.assertEqual(re.sub(r'(?m)^sallyport: .* is there already: `Add File` replaces it\n', '', err), '', story)
            self.assertEqual(after, peer_after, story)
        else:
            before = {n: d for n, d in after.items() if not n.endswith('/')}
            self.assertEqual(before, {n: d for n, d in files.items() if d is not None}, story)
        return code


# ---------------------------------------------------------------------------------- made-up ones


WORDS = ['a', 'b', 'c', 'x = 1', 'x  = 1', 'def f():', '    return “quoted”', "it's", 'a – b', 'a - b', '', ' ', '}', '{',
         'end\t', '  end', '\u3000wide', 'no\u00a0break', 'ümlaut', '+plus', '-minus', '@@ at', '*** star', 'zz zz']


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def text(self):
        n = self.r.choice([0, 1, 2, 3, 5, 8, 13, 40])
        pool = self.r.sample(WORDS, self.r.randint(1, len(WORDS)))
        lines = [self.r.choice(pool) for _ in range(n)]
        ending = self.r.choice(['\n', '\n', '\n', '\r\n'])
        text = ''.join(line + ending for line in lines)
        if text and self.r.random() < 0.2:
            text = text[:-len(ending)]
        return text

    def bend(self, line):
        """A line as somebody writes it who does not look closely."""
        c = self.r.random()
        if c < 0.8:
            return line
        if c < 0.85:
            return line + ' '
        if c < 0.9:
            return line.strip()
        if c < 0.95:
            return line.replace('–', '-').replace('“', '"').replace('”', '"').replace('\u3000', ' ')
        return line + 'x' if self.r.random() < 0.3 else '  ' + line

    def chunk(self, lines, at):
        """Some of the lines from `at` on, as a chunk; and where it ends."""
        out = []
        if self.r.random() < 0.7:
            context = self.r.choice(lines[max(0, at - 3):at] or ['']) if self.r.random() < 0.4 else ''
            out.append('@@ ' + context if context.strip() else '@@')
        n = self.r.randint(0, 5)
        for line in lines[at:at + n]:
            sign = self.r.choice('  --+')
            if sign == '+':
                out.append('+' + self.r.choice(WORDS))
                sign = ' '
            bent = self.bend(line)
            out.append('' if sign == ' ' and bent == '' and self.r.random() < 0.5 else sign + bent)
            if sign == '-' and self.r.random() < 0.7:
                out.append('+' + self.r.choice(WORDS))
        if n == 0 or self.r.random() < 0.1:
            out.append('+' + self.r.choice(WORDS))
        if self.r.random() < 0.1:
            out.append('*** End of File')
        return out, at + n + self.r.randint(0, 3)

    def update(self, name, text):
        lines = text.replace('\r\n', '\n').split('\n')
        if lines and lines[-1] == '':
            lines.pop()
        out = ['*** Update File: ' + name]
        if self.r.random() < 0.15:
            out.append('*** Move to: ' + self.r.choice(['moved', 'deep/er/moved']))
        at = self.r.randint(0, max(0, len(lines) - 1)) if self.r.random() < 0.7 else 0
        for _ in range(self.r.choice([1, 1, 2, 3])):
            more, at = self.chunk(lines, at)
            out += more
        return out

    def spoil(self, lines):
        """Something that is no patch any more, or just so."""
        if self.r.random() > 0.25:
            return lines
        at = self.r.randint(0, len(lines))
        junk = ['*** End of File', '@@', '@@ x', '', ' ', '\t', 'junk', '*** Move to: q', '*** Frob: x', '*** End Patch',
                '*** Begin Patch', '+x', '-x', ' x', '*** Add File: q', '  *** Add File: q  ', '*** Delete File: missing',
                '*** Update File: f0', '  *** End Patch', '*** Environment ID:', '*** Add File:']
        return lines[:at] + [self.r.choice(junk)] + lines[at:]

    def patch(self, files):
        lines = []
        names = [n for n in files if files[n] is not None]
        self.r.shuffle(names)
        for name in names[:self.r.choice([1, 1, 1, 2])]:
            c = self.r.random()
            if c < 0.8:
                lines += self.update(name, files[name].decode())
            elif c < 0.9:
                lines.append('*** Delete File: ' + name)
            else:
                lines += ['*** Add File: ' + name, '+new', '+']
        if self.r.random() < 0.2:
            lines += ['*** Add File: ' + self.r.choice(['new', 'n/e/w', 'dir'])] + ['+' + self.r.choice(WORDS) for _ in range(3)]
        lines = ['*** Begin Patch'] + self.spoil(lines) + ['*** End Patch']
        c = self.r.random()
        if c < 0.05:
            lines = [self.r.choice(['<<EOF', "<<'EOF'", '<<"EOF"'])] + lines + ['EOF']
        elif c < 0.08:
            lines[0] = '  ' + lines[0] + ' '
            lines[-1] = '\t' + lines[-1]
        return self.r.choice(['\n', '\n', '\n', '\r\n']).join(lines) + self.r.choice(['', '\n', '\n\n'])


def is_departure(patch):
    """Whether a made-up one is among what differs on purpose: one file touched twice."""
    paths = re.findall(r'^\s*\*\*\* (?:Add|Delete|Update) File: (.*?)\s*$|^\*\*\* Move to: (.*?)\s*$', patch, re.M)
    paths = [a or b for a, b in paths]
    return len(paths) != len(set(paths))


class MadeUp(Both):
    def test_hundreds_of_patches_come_out_alike(self):
        codes = {}
        for n in range(COUNT):
            m = Maker(SEED * 1000003 + n)
            files = {'f%d' % i: m.text().encode() for i in range(2)}
            files['dir'] = None
            patch = m.patch(files)
            if is_departure(patch):
                continue
            with self.subTest(n):
                code = self.same(files, patch)
                codes[code] = codes.get(code, 0) + 1
        self.assertGreater(codes.get(0, 0), COUNT / 4)
        self.assertGreater(codes.get(1, 0), COUNT / 20)


# -------------------------------------------------------------------------------- one by one


ALIKE = {
    'nothing to do': ({}, START + END),
    'a file that is missing': ({}, START + '*** Update File: x\n@@\n-a\n+b\n' + END),
    'an empty update': ({'x': b'a\n'}, START + '*** Update File: x\n' + END),
    'a chunk without lines': ({'x': b'a\n'}, START + '*** Update File: x\n@@\n' + END),
    'two markers in a row': ({'x': b'a\n'}, START + '*** Update File: x\n@@\n@@\n-a\n' + END),
    'a line of another kind': ({'x': b'a\n'}, START + '*** Update File: x\n@@\nfoo\n' + END),
    'a line of another kind behind others': ({'x': b'a\n'}, START + '*** Update File: x\n@@\n-a\nfoo\n' + END),
    'lines behind the end of the file': ({'x': b'a\n'}, START + '*** Update File: x\n@@\n-a\n+b\n*** End of File\n-c\n' + END),
    'the end of the file without lines': ({'x': b'a\n'}, START + '*** Update File: x\n@@\n*** End of File\n' + END),
    'no such header': ({}, START + '*** Frob File: x\n' + END),
    'no beginning': ({}, 'hello\n' + END),
    'no end': ({}, START + '*** Delete File: x\n'),
    'something behind the end': ({}, START + END + 'x\n' + END),
    'an empty environment': ({}, START + '*** Environment ID:  \n' + END),
    'two environments': ({}, START + '*** Environment ID: a\n*** Environment ID: b\n' + END),
    'a directory to delete': ({'d': None}, START + '*** Delete File: d\n' + END),
    'a directory to write': ({'d': None}, START + '*** Add File: d\n+x\n' + END),
    'an added file without lines': ({}, START + '*** Add File: d/e\n' + END),
    'the last lines of several': ({'x': b'a\nb\na\nb\n'}, START + '*** Update File: x\n@@\n a\n-b\n+c\n*** End of File\n' + END),
    'an insertion': ({'x': b'a\n\n'}, START + '*** Update File: x\n@@\n+b\n' + END),
    'an insertion behind a context': ({'x': b'a\nb\n'}, START + '*** Update File: x\n@@ a\n+c\n' + END),
    'a context that is missing': ({'x': b'a\nb\n'}, START + '*** Update File: x\n@@ q\n+c\n' + END),
    'a file without a last newline': ({'x': b'a\nb'}, START + '*** Update File: x\n@@\n-a\n+c\n' + END),
    'a file that gets empty': ({'x': b'a\n'}, START + '*** Update File: x\n@@\n-a\n' + END),
    'an empty line for the last newline': ({'x': b'a\n'}, START + '*** Update File: x\n@@\n-a\n-\n+b\n+\n' + END),
    'an empty line alone': ({'x': b'a\n'}, START + '*** Update File: x\n@@\n\n+b\n' + END),
    'old Macintosh lines': ({'x': b'a\rb\rc\r'}, START + '*** Update File: x\n@@\n-b\n+B\n' + END),
    'lines of two kinds': ({'x': b'a\r\nb\nc\r\n'}, START + '*** Update File: x\n@@\n a\n-b\n+B\n c\n' + END),
    'a move over a file': ({'x': b'a\n', 'y': b'z\n'}, START + '*** Update File: x\n*** Move to: y\n@@\n-a\n+b\n' + END),
    'a path with dots': ({'x': b'a\n'}, START + '*** Update File: ./d/../x\n@@\n-a\n+b\n' + END),
    'a path with blanks': ({'x y': b'a\n'}, START + '*** Update File: x y  \n@@\n-a\n+b\n' + END),
    'not quite UTF-8': ({}, b'*** Begin Patch\n*** Add File: x\n+\xff\n*** End Patch\n'),
}

# What the reference does: (exit code, files); what we do: (exit code, the beginning of stderr, files).
DEPARTURES = {
    'a file that two hunks touch': (
        {'x': b'a\nb\n'}, START + '*** Update File: x\n@@\n-a\n+A\n*** Update File: x\n@@\n-b\n+B\n' + END,
        (0, {'x': b'A\nB\n'}), (1, 'Invalid patch: multiple operations target ', {'x': b'a\nb\n'})),
    'a move to where the file is': (
        {'x': b'a\n'}, START + '*** Update File: x\n*** Move to: x\n@@\n-a\n+b\n' + END,
        (0, {}), (0, '', {'x': b'b\n'})),
    'a hunk that fails behind one that does not': (
        {'x': b'a\n'}, START + '*** Add File: y\n+y\n*** Update File: x\n@@\n-q\n+b\n' + END,
        (1, {'x': b'a\n', 'y': b'y\n'}), (1, 'Failed to find expected lines in ', {'x': b'a\n'})),
    'new lines end as most lines do, not as the first one': (
        {'x': b'a\nb\r\nc\r\n'}, START + '*** Update File: x\n@@\n-b\n+B\n' + END,
        (0, {'x': b'a\nB\nc\r\n'}), (0, '', {'x': b'a\nB\r\nc\r\n'})),
    'a file that is no text, in other words': (
        {'x': b'a\n\xff\n'}, START + '*** Update File: x\n@@\n-a\n+b\n' + END,
        (1, {'x': b'a\n\xff\n'}), (1, 'Failed to read file to update ', {'x': b'a\n\xff\n'})),
    'a patch for another place': (
        {}, START + '*** Environment ID: far\n*** Add File: x\n+x\n' + END,
        (0, {'x': b'x\n'}), (1, "Invalid patch: it is for the environment 'far'", {})),
}


class OneByOne(Both):
    def test_these_are_alike(self):
        for name, (files, patch) in ALIKE.items():
            with self.subTest(name):
                if isinstance(patch, bytes):  # it is refused in other words
                    self.assertEqual(self.ours(files, patch)[::3], self.peers(files, patch)[::3])
                else:
                    self.same(files, patch)

    def test_these_differ_on_purpose(self):
        for name, (files, patch, theirs, ours) in DEPARTURES.items():
            with self.subTest(name):
                code, _, _, after = self.peers(files, patch)
                self.assertEqual((code, after), theirs, 'the reference has changed')
                code, _, err, after = self.ours(files, patch)
                self.assertEqual((code, err[:len(ours[1])], after), ours)

    def test_a_moved_program_stays_one(self):
        files = {'x': b'a\n'}
        patch = START + '*** Update File: x\n*** Move to: y\n@@\n-a\n+b\n' + END
        modes = {}
        for who, words in (('peer', [self.theirs]), ('ours', [PROGRAM, 'patch', '--sandbox', ':danger-full-access'])):
            work = os.path.join(self.base, who)
            os.mkdir(work)
            with open(os.path.join(work, 'x'), 'wb') as f:
                f.write(files['x'])
            os.chmod(os.path.join(work, 'x'), 0o755)
            subprocess.run(words, cwd=work, env=self.env, input=patch.encode(), capture_output=True, timeout=wire.DEADLINE, check=True)
            modes[who] = os.stat(os.path.join(work, 'y')).st_mode & 0o111
        self.assertEqual(modes, {'peer': 0, 'ours': 0o111})


if __name__ == '__main__':
    tap.main()
