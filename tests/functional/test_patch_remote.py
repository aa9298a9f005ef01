# SPDX-License-Identifier: Apache-2.0
"""apply_patch of an MCP server whose commands run on an exec-server: through the file methods there, confined as a command.

PATCH_PEER  path of the reference's program: its exec-server in place of ours
"""

import os
import shutil
import stat
import subprocess
import tempfile
import threading

import mcp
import server
import tap
from mcp import FORM

PEER = os.environ.get('PATCH_PEER')
FAILED = 'apply_patch verification failed: '
ONCE = {'action': 'accept', 'content': {'decision': 'once'}}
DENY = {'action': 'accept', 'content': {'decision': 'deny'}}


class peer:
    def __init__(self, base):
        env = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'HOME': base, 'CODEX_HOME': base}
        self.popen = subprocess.Popen([PEER, 'exec-server', '--listen', 'ws://127.0.0.1:0'], env=env, cwd=base,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.url = self.popen.stdout.readline().decode().strip()

    def stop(self):
        self.popen.terminate()
        self.popen.wait(20)
        self.popen.stdout.close()


class Remote(mcp.Case):
    def setUp(self):
        super().setUp()
        # Neither below /tmp nor TMPDIR, which the workspace mode makes writable.
        self.there = os.path.realpath(tempfile.mkdtemp(prefix='sallyport-remote-', dir='/var/tmp'))
        self.addCleanup(shutil.rmtree, self.there, True)
        self.files, self.beside = os.path.join(self.there, 'work'), os.path.join(self.there, 'beside')
        for d in (self.files, self.beside):
            os.mkdir(d)
        self.serve = peer(self.there) if PEER else server.Server(listen='unix://' + os.path.join(self.base, 'socket'))
        self.addCleanup(self.serve.stop)

    def begin(self, *flags):
        return self.mcp('--on', self.serve.url, '--cwd', self.files, *flags)

    def patch(self, host, *lines, **more):
        return host.call('apply_patch', {'input': '\n'.join(('*** Begin Patch', *lines, '*** End Patch', '')), **more})

    def put(self, name, text, where=None):
        path = os.path.join(where or self.files, name)
        with open(path, 'w') as f:
            f.write(text)
        return path

    def get(self, name, where=None):
        with open(os.path.join(where or self.files, name)) as f:
            return f.read()

    def ask(self, host, arguments):
        """(the form, what comes back with the answer)"""
        r = host.call('apply_patch', arguments, capabilities=FORM)
        self.assertEqual(r.kind, 'input_required', r)
        (key, asked), = r.result['inputRequests'].items()
        return asked['params'], lambda answer: host.call('apply_patch', arguments, capabilities=FORM, state=r.result['requestState'],
                                                         responses={key: answer})

    def refuse(self, r, *words):
        self.assertTrue(r.failed, r)
        for w in words:
            self.assertIn(w, r.text)


class Confined(Remote):
    def test_all_kinds(self):
        host = self.begin()
        r = self.patch(host, '*** Add File: a/b/new.sh', '+one', '+two')
        self.assertFalse(r.failed, r)
        self.assertEqual(r['changes'], [{'path': self.files + '/a/b/new.sh', 'kind': 'add'}])
        self.assertEqual(r['output'], 'Success. Updated the following files:\nA a/b/new.sh\n')
        self.assertEqual(self.get('a/b/new.sh'), 'one\ntwo\n')
        os.chmod(self.files + '/a/b/new.sh', 0o750)
        r = self.patch(host, '*** Update File: b/new.sh', '*** Move to: c/moved.sh', '@@', ' one', '-two', '+three', workdir='a')
        self.assertFalse(r.failed, r)
        self.assertEqual(r['changes'], [{'path': self.files + '/a/b/new.sh', 'kind': 'update', 'move_to': self.files + '/a/c/moved.sh'}])
        self.assertEqual(self.get('a/c/moved.sh'), 'one\nthree\n')
        self.assertEqual(stat.S_IMODE(os.stat(self.files + '/a/c/moved.sh').st_mode), 0o750)
        r = self.patch(host, '*** Update File: a/c/moved.sh', '@@', '-one', '+1', '*** Add File: d', '+x')
        self.assertFalse(r.failed, r)
        r = self.patch(host, '*** Delete File: a/c/moved.sh', '*** Delete File: d')
        self.assertFalse(r.failed, r)
        self.assertEqual([n for _, _, names in os.walk(self.files) for n in names], [])
        self.assertEqual(os.listdir(self.work), [])  # nothing was done here

    def test_it_is_verified_before_the_first_write(self):
        self.put('a', 'one\n')
        host = self.begin()
        for lines, words in ((['*** Update File: a', '@@', '-two', '+three'], 'Failed to find expected lines'),
                             (['*** Update File: none', '@@', '-two', '+three'], 'Failed to read file to update ' + self.files + '/none'),
                             (['*** Delete File: none'], 'Failed to delete file ' + self.files + '/none: No such file'),
                             (['*** Add File: dir', '+x'], 'Is a directory'),
                             (['*** Delete File: dir'], 'path is a directory')):
            os.makedirs(self.files + '/dir', exist_ok=True)
            self.refuse(self.patch(host, '*** Add File: good', '+x', *lines), FAILED, words)
            self.assertEqual(sorted(os.listdir(self.files)), ['a', 'dir'], lines)
        self.put('binary', 'x')
        with open(self.files + '/binary', 'wb') as f:
            f.write(b'\xff\xfe\n')
        self.refuse(self.patch(host, '*** Update File: binary', '@@', '-x', '+y'), FAILED, 'it is not valid UTF-8')

    def test_outside_of_the_workspace(self):
        """The same question as for a file here; nothing is written if nobody approves."""
        host = self.begin()
        made = self.beside + '/made'
        arguments = {'input': '*** Begin Patch\n*** Add File: %s\n+hello\n*** End Patch\n' % made}
        form, answer = self.ask(host, arguments)
        self.assertIn(made, form['message'])
        self.assertIn('hello', form['message'])
        self.refuse(answer(DENY), 'patch rejected by user')
        self.assertFalse(os.path.exists(made))
        _form, answer = self.ask(host, arguments)
        r = answer(ONCE)
        self.assertFalse(r.failed, r)
        self.assertEqual(self.get('made', self.beside), 'hello\n')
        old = self.put('old', 'one\ntwo\n', self.beside)
        form, answer = self.ask(host, {'input': '*** Begin Patch\n*** Update File: %s\n@@\n one\n-two\n+2\n*** End Patch\n' % old})
        for line in ('-two', '+2'):
            self.assertIn(line, form['message'])
        self.put('old', 'one\ntwo\nthree\n', self.beside)  # after it was shown
        self.refuse(answer(ONCE), 'has changed since the patch was verified: nothing was written')
        self.assertEqual(self.get('old', self.beside), 'one\ntwo\nthree\n')

    def test_nobody_to_ask(self):
        host = self.begin('--approve', 'never')
        self.refuse(self.patch(host, '*** Add File: %s/made' % self.beside, '+x'), 'writing outside of the project')
        os.mkdir(self.files + '/.git')
        self.refuse(self.patch(host, '*** Add File: .git/config', '+x'), 'patch rejected')
        self.assertEqual((os.listdir(self.beside), os.listdir(self.files + '/.git')), ([], []))

    def test_a_link_leads_no_further_than_the_sandbox(self):
        self.put('target', 'one\n', self.beside)
        os.symlink(self.beside + '/target', self.files + '/link')
        host = self.begin('--approve', 'never')
        self.refuse(self.patch(host, '*** Update File: link', '@@', '-one', '+two'), 'Failed to write file')
        self.assertEqual(self.get('target', self.beside), 'one\n')

    def test_read_only(self):
        host = self.begin('--approve', 'never', '--sandbox', ':read-only')
        self.put('a', 'one\n')
        self.refuse(self.patch(host, '*** Update File: a', '@@', '-one', '+two'), 'read-only sandbox')
        self.assertEqual(self.get('a'), 'one\n')

    def test_what_may_not_be_read_is_not_told(self):
        secret = self.put('secret', 'hunter2\n')
        with open(os.path.join(self.home, 'sallyport.conf'), 'w') as f:
            f.write('[permissions.careful]\n[permissions.careful.filesystem]\n":root" = "read"\n":workspace_roots" = "write"\n'
                    '"%s" = "deny"\n' % secret)
        os.chmod(os.path.join(self.home, 'sallyport.conf'), 0o600)
        host = self.begin('--sandbox', 'careful', '--approve', 'never')
        r = self.patch(host, '*** Update File: secret', '@@', '-guess', '+x')
        self.refuse(r, FAILED)
        self.assertNotIn('hunter2', r.text)
        self.assertEqual(self.get('secret'), 'hunter2\n')

    def test_an_environment_in_the_patch(self):
        host = self.begin()
        self.refuse(self.patch(host, '*** Environment ID: local', '*** Add File: x', '+x'), FAILED, 'the patch is for environment `local`')
        self.assertEqual(os.listdir(self.files), [])

    def test_too_much(self):
        host = self.begin()
        with open(self.files + '/large', 'wb') as f:
            f.truncate((8 << 20) + 1)
        self.refuse(self.patch(host, '*** Update File: large', '@@', '-x', '+y'), FAILED, 'larger than 8 MiB')
        many = [line for i in range(257) for line in ('*** Add File: f%d' % i, '+x')]
        self.refuse(self.patch(host, *many), FAILED, 'the patch changes 257 files')
        self.assertEqual(os.listdir(self.files), ['large'])

    def test_another_writer_at_the_same_time(self):
        host = self.begin()
        self.put('a', 'one\n')
        threads = [threading.Thread(target=lambda: [self.put('b', 'x\n') for _ in range(200)])]
        threads[0].start()
        r = self.patch(host, '*** Update File: a', '@@', '-one', '+two')
        threads[0].join()
        self.assertFalse(r.failed, r)
        self.assertEqual(self.get('a'), 'two\n')


class Free(Remote):
    """Without a sandbox: links are refused, as they are here."""

    def test_files(self):
        host = self.begin('--sandbox', ':danger-full-access')
        self.put('a', 'one\n')
        r = self.patch(host, '*** Update File: a', '@@', '-one', '+two', '*** Add File: %s/new/b' % self.beside, '+x')
        self.assertFalse(r.failed, r)
        self.assertEqual((self.get('a'), self.get('new/b', self.beside)), ('two\n', 'x\n'))
        r = self.patch(host, '*** Update File: a', '*** Move to: b', '@@', '-two', '+three')
        self.assertFalse(r.failed, r)
        self.assertEqual((os.listdir(self.files), self.get('b')), (['b'], 'three\n'))

    def test_links_are_refused(self):
        host = self.begin('--sandbox', ':danger-full-access')
        self.put('target', 'one\n', self.beside)
        os.symlink(self.beside + '/target', self.files + '/link')
        os.symlink(self.beside, self.files + '/dir')
        for lines in (['*** Update File: link', '@@', '-one', '+two'], ['*** Add File: dir/new', '+x'], ['*** Delete File: dir/target']):
            self.refuse(self.patch(host, *lines))
        self.assertEqual((os.listdir(self.beside), self.get('target', self.beside)), (['target'], 'one\n'))


if __name__ == '__main__':
    tap.main()
