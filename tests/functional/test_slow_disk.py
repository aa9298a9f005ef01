# SPDX-License-Identifier: Apache-2.0
"""A disk that does not answer holds up those who asked for it, and nobody else."""

import os
import re
import signal
import time
import unittest

import slow_disk
import tap
from fs_ground import Calls, FsSandboxCase, workers
from sandbox_policy import ROOT, context, pattern, place, read_only, restricted, workspace_write
from server import descendants, name_of
from wire import RpcError, file_uri, unb64, wait_until


@unittest.skipUnless(slow_disk.is_possible(), 'no file system of our own can be mounted here')
class SlowDiskCase(FsSandboxCase):
    def setUp(self):
        super().setUp()
        self.disk = slow_disk.SlowDisk()
        self.addCleanup(self.disk.close)
        self.file = os.path.join(self.disk.path, 'f')
        self.other = self.srv.session()
        self.other_fs = Calls(self.other)

    def all_is_well(self):
        """Everything else is answered, and soon."""
        began = time.monotonic()
        self.assertEqual(self.other.sh('echo here').text, 'here\n')
        self.other_fs.write(os.path.join(self.w, 'x'), b'text')
        self.assertEqual(self.other_fs.read(os.path.join(self.w, 'x')), b'text')
        self.other_fs.open('o', os.path.join(self.w, 'x'))
        self.assertEqual(self.other_fs.ask('close', handleId='o'), {})
        self.assertLess(time.monotonic() - began, 10)

    def open(self, *handles):
        """Opened, and closed again by who opened them."""
        for handle in handles:
            self.fs.open(handle, self.file)
        wait_until(lambda: self.disk.seen.count(slow_disk.FLUSH) == len(handles), 'closed copies')

    def is_open(self, number):
        """No answer yet."""
        self.client.fence()
        return self.client.replies.get(number) is None


class Handles(SlowDiskCase):
    def test_a_close_that_hangs(self):
        self.open('h')
        self.assertEqual(self.fs.block('h')[0], b'content\n')
        self.disk.hold(slow_disk.FLUSH)
        closing = self.fs.post('close', handleId='h')
        self.disk.wait_kept()
        self.all_is_well()
        self.assertTrue(self.is_open(closing))
        self.fs.open('h', os.path.join(self.w, 'x'))  # the name is free
        self.assertEqual(self.fs.ask('close', handleId='h'), {})
        self.disk.release()
        self.assertEqual(self.client.result(closing), {})

    def test_a_connection_ends_and_its_files_hang(self):
        self.open(*('h%d' % i for i in range(5)))
        self.disk.hold(slow_disk.FLUSH)
        self.client.abort()
        self.disk.wait_kept()
        self.all_is_well()
        self.disk.release()
        wait_until(lambda: self.disk.seen.count(slow_disk.RELEASE) == 5, 'closed files')

    def test_new_cells_while_a_file_is_open(self):
        """What begins a process does not close our files on the way."""
        self.open('h')
        self.disk.hold(slow_disk.FLUSH)
        seen = len(self.disk.seen)
        policy = workspace_write(self.w)
        self.other_fs.write(os.path.join(self.w, 'y'), b'1', sandbox=policy)
        self.assertEqual(self.other_fs.read(os.path.join(self.w, 'y'), sandbox=read_only(self.w)), b'1')
        self.all_is_well()
        self.assertNotIn(slow_disk.FLUSH, self.disk.seen[seen:])
        self.disk.release()
        self.assertEqual(self.fs.ask('close', handleId='h'), {})

    def test_who_has_opened_closes_as_long_as_it_takes(self):
        self.disk.hold(slow_disk.FLUSH)
        for i in range(10):
            self.fs.open('h%d' % i, self.file)
            self.all_is_well()
        self.disk.wait_kept(10)
        self.disk.release()
        for i in range(10):
            self.assertEqual(self.fs.ask('close', handleId='h%d' % i), {})

    def test_a_read_that_hangs_and_is_dropped(self):
        self.fs.open('h', self.file)
        self.disk.hold(slow_disk.READ)
        self.fs.post('readBlock', handleId='h', offset=0, len=10)
        self.disk.wait_kept()
        self.all_is_well()
        self.client.abort()
        self.all_is_well()
        self.disk.release()
        wait_until(lambda: self.disk.seen.count(slow_disk.RELEASE) == 1, 'a closed file')

    def test_an_open_that_nobody_waits_for_any_more(self):
        self.disk.hold(slow_disk.OPEN)
        self.fs.post('open', self.file, handleId='h')
        self.disk.wait_kept()
        self.client.abort()
        self.all_is_well()
        self.disk.release()
        wait_until(lambda: slow_disk.RELEASE in self.disk.seen, 'a closed file')
        self.all_is_well()

    def test_a_block_that_fails_as_late_as_possible_is_told(self):
        self.fs.open('h', self.file, mode='replace')
        self.fs.put('h', 0, b'new')
        self.disk.fails = {slow_disk.FLUSH: 122}
        with self.assertRaises(RpcError) as caught:
            self.fs.put('h', 3, b'more')
        self.assertIn('Quota exceeded (os error 122)', str(caught.exception))
        self.disk.fails = {}
        self.assertEqual(self.fs.ask('close', handleId='h'), {})
        self.assertEqual(self.disk.content, b'newmore')


class Pieces(SlowDiskCase):
    """A file is encoded while it is read: its first pieces are there, and then the disk hangs."""

    def setUp(self):
        super().setUp()
        self.disk.content = bytearray(os.urandom(1 << 20))
        self.disk.held_from = 512 << 10
        self.number = self.fs.post('readFile', self.file)
        self.disk.wait_kept()
        self.client.fence()  # its answers and events are not held up
        self.assertEqual(self.client.sh('echo here').text, 'here\n')
        self.assertTrue(self.is_open(self.number))

    def content(self):
        return unb64(self.client.result(self.number)['dataBase64'])

    def test_the_rest_comes_late(self):
        self.all_is_well()
        self.disk.release()
        self.assertEqual(self.content(), self.disk.content)

    def test_others_are_read_meanwhile(self):
        texts = {name: os.urandom(size) for name, size in (('a', 100), ('b', 300 << 10), ('c', (2 << 20) - 1), ('d', 3 << 20))}
        for name, text in texts.items():
            self.fs.write(os.path.join(self.w, name), text)
        for name, text in texts.items():
            self.assertEqual(self.fs.read(os.path.join(self.w, name)), text, name)
        self.disk.release()
        self.assertEqual(self.content(), self.disk.content)

    def test_its_process_is_killed(self):
        self.fs.write(os.path.join(self.w, 'x'), b'text')
        for pid in workers(self.srv):
            with open('/proc/%d/syscall' % pid) as call:
                if call.read().startswith('0 '):  # in read(2)
                    os.kill(pid, signal.SIGKILL)
        self.all_is_well()
        self.disk.release()  # it dies when its system call ends
        self.assertError(self.client.reply(self.number)['error'], -32603,
                         'the process that did this file operation has ended; try it again')
        self.assertEqual(self.fs.read(self.file), self.disk.content)

    def test_the_client_goes(self):
        self.client.abort()
        self.all_is_well()
        self.disk.release()
        wait_until(lambda: slow_disk.RELEASE in self.disk.seen, 'a closed file')
        self.assertEqual(self.other_fs.read(self.file), self.disk.content)


class Copies(SlowDiskCase):
    args = ('--log-level', 'info')

    def test_a_copy_that_takes_long_is_logged(self):
        self.disk.content = bytearray(os.urandom(1 << 20))
        self.disk.held_from = 512 << 10
        target = os.path.join(self.w, 'copy')
        number = self.fs.post('copy', sourcePath=file_uri(self.file), destinationPath=file_uri(target), recursive=False)
        self.disk.wait_kept()
        says = r'info  copying %s to %s: \d\.\d MiB in [2-9]\d* s so far\n' % (self.file, target)
        wait_until(lambda: re.search(says, self.srv.stderr()), 'the line')
        self.all_is_well()
        self.disk.release()
        self.assertEqual(self.client.result(number), {})
        self.assertEqual(self.fs.read(target), self.disk.content)


class Starts(SlowDiskCase):
    """The child of a start waits for the disk, the cell that all sessions share does not."""

    args = ('--cells', '1')
    PENDING = 64     # starts that a cell lets wait
    DEADLINE = 10    # seconds after which a start fails

    def setUp(self):
        super().setUp()
        self.all_is_well()  # the cell and the process for files are there
        self.at_rest = sorted(map(name_of, descendants(self.srv.pid)))

    def at(self, name):
        return file_uri(os.path.join(self.disk.path, name))

    def nothing_is_left(self):
        wait_until(lambda: sorted(map(name_of, descendants(self.srv.pid))) == self.at_rest, 'the end of all children')

    def test_the_others_go_on_and_the_start_fails_at_its_deadline(self):
        self.other.start('cat', ['cat'], pipeStdin=True)
        self.disk.hold(slow_disk.LOOKUP)
        began = time.monotonic()
        hung = [self.client.post_start('cwd', ['/bin/true'], cwd=self.at('sub')),
                self.client.post_start('program', [self.file]),
                self.client.post_start('tty', ['/bin/true'], cwd=self.at('sub'), tty=True)]
        early = self.client.post_read('cwd', waitMs=0)  # waits for the start, as always
        self.disk.wait_kept()
        self.all_is_well()
        self.assertEqual(self.other.write('cat', b'text\n'), 'accepted')
        self.other.wait_output('cat', 'text\n')
        self.assertTrue(self.other.terminate('cat'))
        self.other.wait_closed('cat')
        self.assertEqual(self.client.sh('echo mine').text, 'mine\n')
        self.assertLess(time.monotonic() - began, self.DEADLINE, 'too slow to show anything')
        self.assertTrue(all(self.is_open(n) for n in hung))
        for number, what in zip(hung, ('working directory %s/sub' % self.disk.path, 'program %s' % self.file,
                                       'working directory %s/sub' % self.disk.path)):
            error = self.client.reply(number, 30)['error']
            self.assertEqual(error['code'], -32603, error)
            self.assertEqual(error['message'], what + ': its file system did not answer for 10 s (os error 110)')
        self.assertGreater(time.monotonic() - began, self.DEADLINE - 1)
        self.assertIn('error', self.client.reply(early))
        self.all_is_well()
        self.disk.release()  # what could not be killed ends now
        self.nothing_is_left()
        self.assertEqual(self.client.sh('pwd', 'cwd', cwd=self.at('sub')).text, self.disk.path + '/sub\n')

    def test_a_disk_that_answers_late(self):
        self.disk.hold(slow_disk.LOOKUP)
        ok = self.client.post_start('ok', ['/bin/sh', '-c', 'pwd; cat; exit 3'], cwd=self.at('sub'), pipeStdin=True)
        missing = self.client.post_start('missing', ['/bin/true'], cwd=self.at('nothing'))
        refused = self.client.post_start('refused', [self.file])
        typed = self.client.post_write('ok', b'typed early\n')
        self.disk.wait_kept()
        self.all_is_well()
        self.disk.release()
        self.assertEqual(self.client.result(ok)['processId'], 'ok')
        self.assertEqual(self.client.reply(missing)['error']['message'], 'No such file or directory (os error 2)')
        self.assertEqual(self.client.reply(refused)['error']['message'], 'Permission denied (os error 13)')
        self.assertEqual(self.client.result(typed)['status'], 'accepted')
        self.client.wait_output('ok', 'typed early\n')
        self.client.request('process/closeStdin', {'processId': 'ok'})
        process = self.client.wait_closed('ok')
        self.assertEqual((process.text, process.exit_code), (self.disk.path + '/sub\ntyped early\n', 3))
        self.nothing_is_left()

    def test_so_many_wait_and_no_more(self):
        self.disk.hold(slow_disk.LOOKUP)
        numbers = [self.client.post_start('p%d' % i, ['/bin/true'], cwd=self.at('sub')) for i in range(self.PENDING)]
        over = self.client.post_start('over', ['/bin/true'])
        self.assertEqual(self.client.reply(over)['error'], {
            'code': -32603, 'message': '64 earlier starts still wait for a file system that does not answer'})
        self.assertTrue(all(self.is_open(n) for n in numbers))
        self.disk.release()
        for number in numbers:
            self.client.result(number)
        for i in range(self.PENDING):
            self.assertEqual(self.client.wait_closed('p%d' % i).exit_code, 0)
        self.all_is_well()
        self.nothing_is_left()

    def test_the_session_ends_meanwhile(self):
        self.disk.hold(slow_disk.LOOKUP)
        for i in range(3):
            self.client.post_start('p%d' % i, ['/bin/true'], cwd=self.at('sub'), tty=i == 2)
        self.disk.wait_kept()
        self.assertEqual(self.client.request('session/end'), {})
        self.all_is_well()
        self.disk.release()
        self.nothing_is_left()
        self.all_is_well()


class Judged(SlowDiskCase):
    def test_a_path_on_the_disk_is_not_searched_by_the_server(self):
        srv = self.server('--approve', 'untrusted', '--approver', 'deny')
        asks, other = srv.session(), srv.session()
        path = os.path.join(self.disk.path, 'sub') + ':/usr/bin:/bin'
        self.disk.hold(slow_disk.LOOKUP, slow_disk.GETATTR)
        number = asks.post_start('p', ['ls'], env={'PATH': path})
        began = time.monotonic()
        self.assertEqual(other.run(['ls', '/'], env={'PATH': '/usr/bin:/bin'}).exit_code, 0)
        self.assertEqual(asks.reply(number)['error']['code'], -32600)  # may be another program: asked about
        self.assertLess(time.monotonic() - began, 10)
        self.disk.release()


class Surveys(SlowDiskCase):
    """A policy that names a path on the disk: the server looks at it in a thread."""

    SHARE = 8  # threads that may hang for one session

    def setUp(self):
        super().setUp()
        self.sub = os.path.join(self.disk.path, 'sub')
        self.plain = workspace_write(self.w)
        self.assertEqual(self.other.sh('echo here', sandbox=self.plain).text, 'here\n')

    def policy(self, *entries):
        return context(restricted([ROOT, place(self.sub, 'read'), *entries]), self.w)

    def confined_is_well(self):
        began = time.monotonic()
        self.assertEqual(self.other.sh('echo here', sandbox=self.plain).text, 'here\n')
        self.assertEqual(self.client.sh('echo here', sandbox=read_only(self.w)).text, 'here\n')
        self.all_is_well()
        self.assertLess(time.monotonic() - began, 10)

    def test_a_policy_is_new_when_the_disk_hangs(self):
        self.disk.hold(slow_disk.LOOKUP, slow_disk.GETATTR)
        began = time.monotonic()
        number = self.client.post_start('p', ['/bin/true'], sandbox=self.policy())
        typed = self.client.post_write('p', b'x')
        globs = self.client.post_start('g', ['/bin/true'], sandbox=self.policy(pattern(self.sub + '/**/*.env')))
        self.disk.wait_kept()
        self.confined_is_well()
        self.assertTrue(self.is_open(number) and self.is_open(typed))
        for n in (number, globs):
            self.assertEqual(self.client.reply(n, 30)['error'], {
                'code': -32603, 'message': 'failed to prepare process sandbox: a file system that its policy names '
                'did not answer for 10 s'})
        self.assertGreater(time.monotonic() - began, 9)
        self.assertEqual(self.client.result(typed)['status'], 'unknownProcess')
        self.confined_is_well()
        self.disk.release()
        self.assertEqual(self.client.sh('echo here', 'p', sandbox=self.policy()).text, 'here\n')

    def test_a_policy_was_surveyed_before(self):
        self.assertEqual(self.client.sh('echo here', sandbox=self.policy()).text, 'here\n')
        self.disk.hold(slow_disk.LOOKUP, slow_disk.GETATTR)
        number = self.client.post_start('p', ['/bin/echo', 'late'], sandbox=self.policy())
        self.disk.wait_kept()
        self.confined_is_well()
        self.assertTrue(self.is_open(number))
        self.disk.release()
        self.client.result(number)
        self.assertEqual(self.client.wait_closed('p').text, 'late\n')

    def test_a_session_has_its_share_of_threads(self):
        """The others' new policies are looked at while all that one session may have hang."""
        self.disk.hold(slow_disk.LOOKUP, slow_disk.GETATTR)
        numbers = [self.client.post_start('p%d' % i, ['/bin/echo', 'late'], sandbox=self.policy(place('/x%d' % i, 'read')))
                   for i in range(self.SHARE + 2)]
        self.disk.wait_kept()
        self.client.fence()
        began = time.monotonic()
        self.assertEqual(self.other.sh('echo here', sandbox=read_only(self.w)).text, 'here\n')
        self.assertEqual(self.srv.session().sh('echo here', sandbox=self.plain).text, 'here\n')
        self.assertLess(time.monotonic() - began, 8)
        self.assertTrue(all(self.is_open(n) for n in numbers))
        self.disk.release()
        for i, number in enumerate(numbers):
            self.client.result(number)
            self.assertEqual(self.client.wait_closed('p%d' % i).text, 'late\n')

    def test_the_session_and_the_server_end_meanwhile(self):
        self.disk.hold(slow_disk.LOOKUP, slow_disk.GETATTR)
        self.client.post_start('p', ['/bin/true'], sandbox=self.policy())
        self.disk.wait_kept()
        self.client.fence()
        self.assertEqual(self.client.request('session/end'), {})
        self.all_is_well()
        began = time.monotonic()
        self.disk.release()
        self.srv.stop()
        self.assertLess(time.monotonic() - began, 5)


if __name__ == '__main__':
    tap.main()
