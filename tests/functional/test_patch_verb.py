# SPDX-License-Identifier: Apache-2.0
"""`sallyport patch`: patches carried out, confined and free; what is refused, and in which words."""

import json
import os
import pty
import shutil
import stat
import subprocess
import threading

import tap
import wire
from server import PROGRAM
from test_sandbox_verb import Verb

BEGIN, END = '*** Begin Patch\n', '*** End Patch\n'
FREE = ('--sandbox', ':danger-full-access')
USAGE = (b'Usage: sallyport patch [--check] [--cwd DIR] [--sandbox MODE] PATCH|FILE\n'
         b'       echo PATCH | sallyport patch\n')


def done(*lines):
    return 'Success. Updated the following files:\n{}\n'.format('\n'.join(lines)).encode()


class Patch(Verb):
    where = ()  # the words that say how it is confined

    def setUp(self):
        super().setUp()
        self.env['SALLYPORT_CONFIG'] = '/dev/null'

    def args(self, *words):
        return [PROGRAM, 'patch', *self.where, *words]

    def path(self, name):
        return os.path.join(self.work, name)

    def put(self, name, text, mode=None):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), 'wb') as f:
            f.write(text)
        if mode is not None:
            os.chmod(self.path(name), mode)

    def has(self, name, text):
        with open(self.path(name), 'rb') as f:
            self.assertEqual(f.read(), text)

    def patch(self, hunks, *options, **how):
        return self.run_verb(*options, BEGIN + hunks + END, **how)

    def fails(self, hunks, text, *options):
        """Refused with this on stderr, and nothing is changed."""
        before = self.everything()
        code, out, err = self.patch(hunks, *options)
        self.assertEqual((code, out, err.decode()), (1, b'', text))
        self.assertEqual(self.everything(), before)

    def is_denied(self, hunks, front, *options):
        """Refused by the sandbox, which one error or another tells, and nothing is changed."""
        before = self.everything()
        code, out, err = self.patch(hunks, *options)
        self.assertEqual((code, out), (1, b''))
        self.assertIn(err.decode(), [
            front + ': Read-only file system\nIts sandbox keeps that read-only; --cwd and --sandbox choose what may be written\n',
            front + ': Permission denied\n'])
        self.assertEqual(self.everything(), before)

    def everything(self):
        found = {}
        for base in (self.work, self.beside):
            for where, dirs, files in os.walk(base):
                for name in dirs + files:
                    path = os.path.join(where, name)
                    st = os.lstat(path)
                    data = os.readlink(path) if stat.S_ISLNK(st.st_mode) else None
                    if stat.S_ISREG(st.st_mode):
                        with open(path, 'rb') as f:
                            data = f.read()
                    found[path] = (st.st_mode, data)
        return found


# --------------------------------------------------------------------------- what is so everywhere


class Everywhere:
    """Mixed into the class of each confinement."""

    def test_all_kinds_at_once(self):
        self.put('m', b'a\nb\n')
        self.put('d', b'd\n')
        self.put('from', b'1\n2\n')
        got = self.patch('*** Delete File: d\n*** Update File: m\n@@\n a\n-b\n+B\n*** Add File: n/e/w\n+new\n'
                         '*** Update File: from\n*** Move to: to/there\n-1\n+3\n')
        self.assertEqual(got, (0, done('A n/e/w', 'M m', 'M to/there', 'D d'), b''))
        self.has('m', b'a\nB\n')
        self.has('n/e/w', b'new\n')
        self.has('to/there', b'3\n2\n')
        self.assertEqual(sorted(os.listdir(self.work)), ['m', 'n', 'to'])

    def test_stdin_and_the_argument(self):
        text = (BEGIN + '*** Add File: x\n+x\n' + END).encode()
        self.assertEqual(self.run_verb(input=text), (0, done('A x'), b''))
        self.has('x', b'x\n')
        other = BEGIN + '*** Add File: y\n+y\n' + END
        self.assertEqual(self.run_verb(other, input=text.replace(b'x', b'z')), (0, done('A y'), b''))
        self.assertEqual(sorted(os.listdir(self.work)), ['x', 'y'])
        self.assertEqual(self.run_verb('--', other)[0], 0)

    def test_usage(self):
        self.assertEqual(self.run_verb(input=b''), (2, b'', USAGE))
        self.assertEqual(self.run_verb('a', 'b'), (2, b'', b'sallyport: one patch at most (see sallyport patch --help)\n'))
        self.assertEqual(self.run_verb('--frob')[0], 2)
        self.assertEqual(self.run_verb('')[::2], (1, b"Invalid patch: The first line of the patch must be '*** Begin Patch'\n"))
        code, out, err = self.run_verb('--help')
        self.assertEqual((code, err), (0, b''))
        self.assertIn(b'--check', out)
        code, _, err = self.run_verb('--cwd', '/no/such/dir', BEGIN + '*** Add File: x\n+x\n' + END)
        self.assertEqual((code, err), (1, b'sallyport: --cwd: /no/such/dir: No such file or directory\n'))
        code, _, err = self.run_verb('--sandbox', 'frob', BEGIN + '*** Add File: x\n+x\n' + END)
        self.assertEqual(code, 1)
        self.assertIn(b'there is no sandbox `frob`', err)

    def test_check_writes_nothing(self):
        self.put('x', b'a\n')
        before = self.everything()
        self.assertEqual(self.patch('*** Update File: x\n-a\n+b\n*** Add File: d/n\n+n\n*** Delete File: x2\n', '--check')[0], 1)
        self.assertEqual(self.patch('*** Update File: x\n-a\n+b\n*** Add File: d/n\n+n\n', '--check'),
                         (0, done('A d/n', 'M x').replace(b'Success. Updated', b'Would update'), b''))
        self.assertEqual(self.everything(), before)
        self.fails('*** Update File: x\n-q\n+b\n', 'Failed to find expected lines in %s:\nq\n' % self.path('x'), '--check')

    def test_an_added_file_that_is_there_is_told(self):
        self.put('x', b'a\n')
        hunk = '*** Add File: x\n+b\n*** Add File: y\n+c\n'
        line = b'sallyport: x is there already: `Add File` replaces it\n'
        self.assertEqual(json.loads(self.patch(hunk, '--check', '--json')[1])['replaced'], ['x'])
        self.assertEqual(self.patch(hunk, '--check'), (0, done('A x', 'A y').replace(b'Success. Updated', b'Would update'), line))
        self.has('x', b'a\n')
        self.assertEqual(self.patch(hunk), (0, done('A x', 'A y'), line))
        self.has('x', b'b\n')
        self.assertEqual(json.loads(self.patch(hunk, '--json')[1])['replaced'], ['x', 'y'])

    def test_cwd(self):
        self.put('sub/x', b'a\n')
        self.assertEqual(self.patch('*** Update File: x\n-a\n+b\n', '--cwd', 'sub'), (0, done('M x'), b''))
        self.has('sub/x', b'b\n')

    def test_refusals(self):
        self.put('x', b'a\n')
        self.put('bin', b'\xff\n')
        os.mkdir(self.path('d'))
        for hunks, text in (
                ('', 'No files were modified.\n'),
                ('*** Frob\n', "Invalid patch hunk on line 2: '*** Frob' is not a valid hunk header. Valid hunk headers: "
                 "'*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'\n"),
                ('*** Update File: x\n', "Invalid patch hunk on line 2: Update file hunk for path 'x' is empty\n"),
                ('*** Environment ID: far\n*** Add File: n\n+n\n',
                 "Invalid patch: it is for the environment 'far', and this command changes files here\n"),
                ('*** Add File: n\n+n\n*** Delete File: ./n\n', 'Invalid patch: multiple operations target %s\n' % self.path('n')),
                ('*** Update File: no\n-a\n', 'Failed to read file to update %s: No such file or directory\n' % self.path('no')),
                ('*** Update File: bin\n-a\n', 'Failed to read file to update %s: it is not valid UTF-8\n' % self.path('bin')),
                ('*** Add File: n\n+n\n*** Update File: x\n@@ f\n-a\n', "Failed to find context 'f' in %s\n" % self.path('x')),
                ('*** Add File: n\n+n\n*** Delete File: d\n', 'Failed to delete file %s: path is a directory\n' % self.path('d')),
                ('*** Add File: n\n+n\n*** Add File: d\n+d\n', 'Failed to write file %s: Is a directory\n' % self.path('d'))):
            with self.subTest(text):
                self.fails(hunks, text)

    def test_a_long_story_is_told_whole(self):
        self.put('x', b'a\n')
        lines = ['line %d that is not there' % i for i in range(200)]
        self.fails('*** Update File: x\n' + ''.join('-%s\n' % line for line in lines),
                   'Failed to find expected lines in %s:\n%s\n' % (self.path('x'), '\n'.join(lines)))

    def test_what_was_written_before_a_failure_is_told(self):
        self.put('x', b'a\n')
        code, out, err = self.patch('*** Add File: one\n+1\n*** Update File: x\n-a\n+b\n*** Add File: one/two\n+2\n'
                                    '*** Add File: three\n+3\n')
        self.assertEqual((code, out, err.decode()), (
            1, b'', 'Failed to create parent directories for %s: Not a directory\n'
            'These files were updated before that:\nA one\nM x\n' % self.path('one/two')))
        self.has('x', b'b\n')
        self.assertEqual(sorted(os.listdir(self.work)), ['one', 'x'])

    def test_line_endings(self):
        text = b'a\r\nb\r\nc\r\nd\r\n'
        self.put('x', text)
        self.put('y', text)
        self.assertEqual(self.patch('*** Update File: x\n a\n-b\n+B\n c\n')[0], 0)
        self.has('x', b'a\nB\nc\nd\r\n')
        self.assertEqual(self.patch('*** Update File: y\n a\n-b\n+B\n c\n', '--preserve-line-endings')[0], 0)
        self.has('y', b'a\r\nB\r\nc\r\nd\r\n')
        self.assertEqual(self.run_verb(input=(BEGIN + '*** Update File: y\n-d\n+D\n' + END).replace('\n', '\r\n').encode())[0], 0)
        self.has('y', b'a\r\nB\r\nc\r\nD\n')

    def test_line_endings_by_configuration(self):
        config = os.path.join(self.base, 'conf')
        for value, text in (('false', b'B\n'), ('true', b'B\r\n')):
            with open(config, 'w') as f:
                f.write('preserve_line_endings = %s\n' % value)
            self.put('x', b'a\r\nb\r\n')
            self.assertEqual(self.patch('*** Update File: x\n-b\n+B\n', env={'SALLYPORT_CONFIG': config})[0], 0)
            self.has('x', b'a\r\n' + text)

    def test_what_is_no_file_to_update(self):
        os.mkfifo(self.path('fifo'))
        os.symlink('/dev/zero', self.path('zero'))
        with open(self.path('sparse'), 'wb') as f:
            f.truncate(1 << 30)
        for name, why in (('fifo', 'it is not a regular file'), ('zero', 'it is not a regular file'),
                          ('sparse', 'it is larger than 64 MiB, or all files of the patch are larger than 256 MiB')):
            code, out, err = self.patch('*** Update File: %s\n-a\n+b\n' % name)
            self.assertEqual((code, out, err.decode()),
                             (1, b'', 'Failed to read file to update %s: %s\n' % (self.path(name), why)))
        os.unlink(self.path('sparse'))

    def test_modes(self):
        self.put('x', b'a\n', 0o750)
        self.put('y', b'a\n', 0o711)
        self.assertEqual(self.patch('*** Update File: x\n-a\n+b\n*** Update File: y\n*** Move to: z\n-a\n+b\n')[0], 0)
        self.assertEqual(os.stat(self.path('x')).st_mode & 0o7777, 0o750)
        self.assertEqual(os.stat(self.path('z')).st_mode & 0o7777, 0o711)

    def test_a_large_patch(self):
        self.put('x', b''.join(b'line %d\n' % i for i in range(100000)))
        hunks = '*** Update File: x\n' + ''.join('@@\n-line %d\n+new %d\n' % (i, i) for i in range(0, 100000, 2))
        hunks += '*** Add File: y\n' + '+%s\n' % ('x' * 99) * 50000
        code, out, err = self.run_verb(input=(BEGIN + hunks + END).encode())
        self.assertEqual((code, out, err), (0, done('A y', 'M x'), b''))
        self.has('x', b''.join(b'%s %d\n' % (b'line' if i % 2 else b'new', i) for i in range(100000)))
        self.assertEqual(os.path.getsize(self.path('y')), 5000000)

    def test_too_large_a_patch(self):
        self.assertEqual(self.run_verb(input=(BEGIN + '*** Add File: y\n' + '+%s\n' % ('x' * 1000) * 17000 + END).encode()),
                         (1, b'', b'Invalid patch: it is larger than 16 MiB\n'))
        self.assertEqual(os.listdir(self.work), [])

    def test_bytes_that_are_no_patch(self):
        self.assertEqual(self.run_verb(input=b'\xff\xfe')[::2], (1, b'Invalid patch: it is not valid UTF-8\n'))
        self.assertEqual(self.run_verb(input=b'*** Begin Patch\n*** Add File: a\0b\n+x\n*** End Patch\n'),
                         (1, b'', b'Invalid patch hunk on line 2: a path holds a NUL byte\n'))


# ------------------------------------------------------------------------------------- confined


class Confined(Everywhere, Patch):
    def setUp(self):
        super().setUp()
        # A sandbox refuses what the search for leaks needs; Free does the same work, and is searched.
        self.env['ASAN_OPTIONS'] = self.env.get('ASAN_OPTIONS', '') + ':detect_leaks=0'

    def test_outside_the_workspace_nothing_is_written(self):
        target = os.path.join(self.beside, 'x')
        self.is_denied('*** Add File: %s\n+x\n' % target, 'Failed to write file %s' % target)
        self.is_denied('*** Add File: a/../../beside/x\n+x\n', 'Failed to write file %s' % target)
        self.is_denied('*** Add File: %s/d/x\n+x\n' % self.beside,
                   'Failed to create parent directories for %s/d/x' % self.beside)

    def test_protected_names(self):
        os.mkdir(self.path('.git'))
        self.put('.git/config', b'a\n')
        code, _, err = self.patch('*** Update File: .git/config\n-a\n+b\n')
        self.assertEqual(code, 1)
        self.assertIn(b'Failed to write file %s/.git/config' % self.work.encode(), err)
        self.has('.git/config', b'a\n')
        self.put('.git/config', b'')
        os.unlink(self.path('.git/config'))
        os.rmdir(self.path('.git'))

    def test_read_only(self):
        self.put('x', b'a\n')
        for hunks, name in (('*** Add File: n\n+n\n', 'n'), ('*** Update File: x\n-a\n+b\n', 'x')):
            self.is_denied(hunks, 'Failed to write file %s' % self.path(name), '--sandbox', ':read-only')
        self.is_denied('*** Delete File: x\n', 'Failed to delete file %s' % self.path('x'),
                   '--sandbox', ':read-only')
        self.assertEqual(self.patch('*** Update File: x\n-a\n+b\n', '--sandbox', ':read-only', '--check')[0], 0)

    def test_a_denial_is_told_on_a_terminal(self):
        ours, theirs = pty.openpty()
        p = self.popen('--sandbox', ':read-only', BEGIN + '*** Add File: n\n+n\n' + END, stderr=theirs)
        os.close(theirs)
        text = b''
        while b'denied' not in text:
            piece = os.read(ours, 4096)
            self.assertTrue(piece)
            text += piece
        os.close(ours)
        self.assertEqual(p.wait(wire.DEADLINE), 1)
        self.assertIn(b'the sandbox may have denied this (guessed from its output): ', text)

    def test_a_link_out_of_the_workspace_leads_to_a_refusal(self):
        os.symlink(self.beside, self.path('way'))
        self.is_denied('*** Add File: way/x\n+x\n', 'Failed to write file %s' % self.path('way/x'))

    def test_links_within_the_workspace_are_followed(self):
        self.put('real', b'a\n')
        os.symlink('real', self.path('link'))
        self.assertEqual(self.patch('*** Update File: link\n-a\n+b\n'), (0, done('M link'), b''))
        self.assertTrue(os.path.islink(self.path('link')))
        self.has('real', b'b\n')

    def test_reads_are_made_under_the_policy(self):
        secret = os.path.join(self.home, 'secret')
        with open(secret, 'w') as f:
            f.write('a\n')
        config = os.path.join(self.base, 'conf')
        with open(config, 'w') as f:
            f.write('[permissions.tight.filesystem]\n"/" = "read"\n"%s" = "deny"\n"%s" = "write"\n' % (self.home, self.work))
        os.symlink(secret, self.path('link'))
        for name in (secret, 'link', '/proc/self/root' + secret):
            told = set()
            for old in ('a', 'not a'):
                for check in ((), ('--check',)):
                    code, out, err = self.patch('*** Update File: %s\n-%s\n+b\n' % (name, old), '--sandbox', 'tight', *check,
                                                env={'SALLYPORT_CONFIG': config})
                    self.assertEqual((code, out), (1, b''))
                    self.assertIn(b'Failed to read file to update ', err)
                    told.add(err)
            self.assertEqual(len(told), 1, told)  # whether it fits is not told
        with open(secret) as f:
            self.assertEqual(f.read(), 'a\n')

    def test_the_program_may_be_anywhere(self):
        """A profile that opens little, and not the place of the program, which is found all the same."""
        config = os.path.join(self.base, 'conf')
        with open(config, 'w') as f:
            f.write('[permissions.little.filesystem]\n":minimal" = "read"\n"%s" = "write"\n' % self.work)
        how = {'env': {'SALLYPORT_CONFIG': config}}
        self.assertEqual(self.patch('*** Add File: x\n+x\n', '--sandbox', 'little', **how), (0, done('A x'), b''))
        own = os.path.join(self.work, 'sallyport')
        shutil.copy(PROGRAM, own)  # but not where commands could have put another one
        r = subprocess.run([own, 'patch', '--sandbox', 'little', BEGIN + '*** Add File: y\n+y\n' + END], cwd=self.work,
                           env=dict(self.env, SALLYPORT_CONFIG=config), capture_output=True, timeout=wire.DEADLINE)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn(b'is where commands may write, so it is not run for them', r.stderr)
        self.assertFalse(os.path.exists(self.path('y')))

    def test_a_file_that_alone_may_be_written(self):
        self.put('x', b'a longer line\n')
        config = os.path.join(self.base, 'conf')
        with open(config, 'w') as f:
            f.write('[permissions.one.filesystem]\n"/" = "read"\n"%s" = "write"\n' % self.path('x'))
        how = {'env': {'SALLYPORT_CONFIG': config}}
        self.assertEqual(self.patch('*** Update File: x\n-a longer line\n+b\n', '--sandbox', 'one', **how), (0, done('M x'), b''))
        self.has('x', b'b\n')
        self.assertEqual(self.patch('*** Add File: y\n+y\n', '--sandbox', 'one', **how)[0], 1)
        self.assertEqual(os.listdir(self.work), ['x'])


# ---------------------------------------------------------------------------------------- free


class Free(Everywhere, Patch):
    where = FREE

    def test_it_goes_anywhere(self):
        target = os.path.join(self.beside, 'x')
        self.assertEqual(self.patch('*** Add File: %s\n+x\n' % target), (0, done('A ' + target), b''))
        self.assertTrue(os.path.exists(target))

    def test_no_link_is_followed(self):
        self.put('real', b'a\n')
        os.symlink('real', self.path('link'))
        os.symlink(self.beside, self.path('way'))
        os.symlink('nowhere', self.path('dangling'))
        for hunks, name in (('*** Update File: link\n-a\n+b\n', 'link'), ('*** Add File: way/x\n+x\n', 'way/x'),
                            ('*** Add File: way/d/x\n+x\n', 'way/d/x'), ('*** Add File: dangling\n+x\n', 'dangling'),
                            ('*** Update File: real\n*** Move to: way/x\n-a\n+b\n', 'way/x')):
            for options in ((), ('--check',)):
                self.fails('*** Add File: first\n+1\n' + hunks,
                           'Failed to write file %s: a symbolic link is in the way\n' % self.path(name), *options)
        self.fails('*** Delete File: link\n', 'Failed to delete file %s: a symbolic link is in the way\n' % self.path('link'))

    def test_the_way_to_the_directory_may_have_links(self):
        os.symlink(self.work, os.path.join(self.beside, 'way'))
        self.assertEqual(self.patch('*** Add File: x\n+x\n', '--cwd', os.path.join(self.beside, 'way')), (0, done('A x'), b''))
        self.has('x', b'x\n')

    def test_a_directory_that_becomes_a_link_again_and_again(self):
        """However it is timed, nothing is written outside."""
        os.mkdir(self.path('real'))
        os.symlink(self.beside, self.path('out'))
        os.mkdir(self.path('d'))
        stop = threading.Event()

        def swap():
            while not stop.is_set():
                try:
                    os.rename(self.path('d'), self.path('kept'))
                    os.symlink(self.beside, self.path('d'))
                    os.unlink(self.path('d'))
                    os.rename(self.path('kept'), self.path('d'))
                except OSError:
                    return
        t = threading.Thread(target=swap)
        t.start()
        try:
            for i in range(60):
                self.assertIn(self.patch('*** Add File: d/x%d\n+x\n' % i)[0], (0, 1))
                self.assertEqual(os.listdir(self.beside), [])
        finally:
            stop.set()
            t.join()


class Internal(Patch):
    def test_the_inner_verb_is_not_for_people(self):
        r = subprocess.run([PROGRAM, 'patch-inside'], capture_output=True, env=self.env, timeout=wire.DEADLINE)
        self.assertEqual(r.returncode, 2)

    def inside(self, what, text, *more):
        return subprocess.run([PROGRAM, 'patch-inside', what, 'lf', 'follow', self.work, *more], input=text.encode(),
                              capture_output=True, env=self.env, cwd=self.work, timeout=wire.DEADLINE)

    def test_nothing_is_written_that_was_not_approved(self):
        patch = BEGIN + '*** Add File: x\n+x\n' + END
        told = self.inside('report', patch)
        self.assertEqual(told.returncode, 0)
        head, digest, end = told.stdout.decode().splitlines()
        self.assertEqual((head, digest[64:], end), ('sallyport-patch 1 1', ' -', 'end'))
        forged = digest[:63] + ('0' if digest[63] != '0' else '1')
        for text in (patch, '', head + '\n' + patch, '\n'.join((head, forged, patch)), '\n'.join((head, digest[:64], digest[:64], patch)),
                     '\n'.join(('sallyport-patch 1 2', digest[:64], digest[:64], patch))):
            self.assertEqual(self.inside('approved', text).returncode, 1, text)
            self.assertEqual(os.listdir(self.work), [])
        self.assertEqual(self.inside('approved', '\n'.join((head, digest[:64], patch))).stdout, done('A x'))
        self.has('x', b'x\n')


if __name__ == '__main__':
    tap.main()
