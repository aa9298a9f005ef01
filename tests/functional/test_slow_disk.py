# SPDX-License-Identifier: Apache-2.0
"""A disk that does not answer holds up those who asked for it, and nobody else."""

import os
import time
import unittest

import slow_disk
import tap
from fs_ground import Calls, FsSandboxCase
from sandbox_policy import read_only, workspace_write
from wire import RpcError, wait_until


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


if __name__ == '__main__':
    tap.main()
