# SPDX-License-Identifier: Apache-2.0
"""fs/open, fs/readBlock, fs/writeBlock, fs/close: files that stay open, of one connection."""

import os
import signal
import stat

import tap
from fs_ground import IS_DIR, NO_FILE, Calls, FsCase, workers
from server import ours_only
from wire import b64, unb64, wait_until

BLOCK = 1 << 20


def unknown(handle):
    return (-32004, 'unknown file handle `%s`' % handle)


class Handles(FsCase):
    def test_ids(self):
        a = self.make('a')
        for handle in ('', 'x', 'h' * 32, '\u00e9' * 16, 'with "quotes" and \\'):
            self.fs.open(handle, a)
            self.assertEqual(self.fs.block(handle), (b'content', True))
            self.assertEqual(self.fs.refused('open', a, handleId=handle), (-32600, 'file handle `%s` already exists' % handle))
        too_long = (-32600, 'file handle ID must not exceed 32 bytes')
        self.assertEqual(self.fs.refused('open', a, handleId='h' * 33), too_long)
        self.assertEqual(self.fs.refused('open', a, handleId='\u00e9' * 16 + 'x'), too_long)
        for method, more in (('readBlock', {'offset': 0, 'len': 1}), ('writeBlock', {'offset': 0, 'chunk': 'YQ=='}), ('close', {})):
            error = self.client.error('fs/' + method, dict(more, handleId='h' * 33))
            self.assertEqual((error['code'], error['message']), too_long)
        for bad in (None, 5, ['x']):
            self.assertEqual(self.fs.refused('open', a, handleId=bad)[0], -32602)
        self.assertEqual(self.client.error('fs/open', {'path': Calls.path(a)})['code'], -32602)

    def test_128_are_open_at_most(self):
        a = self.make('a')
        for i in range(128):
            self.fs.open('h%d' % i, a)
        full = (-32600, 'at most 128 file handles may be open per connection')
        self.assertEqual(self.fs.refused('open', a, handleId='more'), full)
        self.assertEqual(self.fs.refused('open', self.at('new'), handleId='more', mode='replace'), full)
        self.assertFalse(os.path.exists(self.at('new')))
        other = Calls(self.srv.session())
        other.open('more', a)
        self.fs.ask('close', handleId='h77')
        self.fs.open('more', a)
        self.assertEqual(self.fs.refused('open', a, handleId='again'), full)

    def test_one_that_could_not_be_opened_takes_no_place(self):
        self.make('dir', None)
        for _ in range(130):
            self.assertEqual(self.fs.refused('open', self.at('nothing'), handleId='h'), NO_FILE)
        self.assertEqual(self.fs.refused('open', self.at('dir'), handleId='h'),
                         (-32600, 'path `%s` is not a file' % self.at('dir')))
        self.assertEqual(self.fs.refused('open', '/dev/null', handleId='h'), (-32600, 'path `/dev/null` is not a file'))
        self.assertEqual(self.fs.refused('open', self.at('dir'), handleId='h', mode='replace')[0], IS_DIR[0])
        self.assertEqual(self.fs.refused('open', self.at('no/x'), handleId='h', mode='replace'), NO_FILE)
        self.assertEqual(self.fs.refused('readBlock', handleId='h', offset=0, len=1), unknown('h'))
        self.fs.open('h', self.make('a'))

    def test_modes(self):
        a = self.make('a')
        for bad in (None, 'append', '', 5):
            self.assertEqual(self.fs.refused('open', a, handleId='h', mode=bad)[0], -32602, bad)
        self.fs.open('h', a, mode='read')
        self.assertEqual(self.content('a'), b'content')

    def test_close(self):
        self.fs.open('h', self.make('a'))
        self.assertEqual(self.fs.ask('close', handleId='h'), {})
        self.assertEqual(self.fs.ask('close', handleId='h'), {}, 'also an unknown one')
        self.assertEqual(self.fs.refused('readBlock', handleId='h', offset=0, len=1), unknown('h'))
        self.assertEqual(self.fs.refused('writeBlock', handleId='h', offset=0, chunk='eA=='), unknown('h'))
        self.assertEqual(self.fs.refused('close')[0], -32602)
        self.assertEqual(self.fs.refused('close', handleId=5)[0], -32602)

    def test_a_handle_belongs_to_its_connection(self):
        self.fs.open('h', self.make('a'))
        other = Calls(self.srv.session())
        self.assertEqual(other.refused('readBlock', handleId='h', offset=0, len=1), unknown('h'))
        other.ask('close', handleId='h')
        self.assertEqual(self.fs.block('h'), (b'content', True))

    def test_handles_die_with_their_connection(self):
        self.look_into(self.srv.pid)
        path = self.make('watched-file')
        held = lambda: [n for pid in self.srv.program_pids() for n in self.fds_of(pid) if n == path]
        for handle in range(20):
            self.fs.open('r%d' % handle, path)
        wait_until(lambda: len(held()) == 20, '20 open files')
        session = self.client.session_id
        self.client.close()
        wait_until(lambda: held() == [], 'closed files')
        again = Calls(self.srv.session(resume=session))
        self.assertEqual(again.refused('readBlock', handleId='r0', offset=0, len=1), unknown('r0'))

    @staticmethod
    def fds_of(pid):
        try:
            return [os.readlink('/proc/%d/fd/%s' % (pid, fd)) for fd in os.listdir('/proc/%d/fd' % pid)]
        except OSError:
            return []


class Blocks(FsCase):
    def test_reading(self):
        data = os.urandom(2 * BLOCK + 5)
        self.fs.open('h', self.make('a', data))
        self.assertEqual(self.fs.block('h', 0, BLOCK), (data[:BLOCK], False))
        self.assertEqual(self.fs.block('h', BLOCK, BLOCK), (data[BLOCK:2 * BLOCK], False))
        self.assertEqual(self.fs.block('h', 2 * BLOCK, BLOCK), (data[2 * BLOCK:], True))
        self.assertEqual(self.fs.block('h', 2 * BLOCK, 5), (data[2 * BLOCK:], False), 'exactly len bytes')
        self.assertEqual(self.fs.block('h', 2 * BLOCK + 5, 5), (b'', True))
        self.assertEqual(self.fs.block('h', 1 << 40, 1), (b'', True))
        self.assertEqual(self.fs.block('h', 7, 1), (data[7:8], False))

    def test_a_file_that_grows_and_shrinks(self):
        path = self.make('a', b'12345')
        self.fs.open('h', path)
        self.assertEqual(self.fs.block('h', 0, 5), (b'12345', False))
        with open(path, 'ab') as f:
            f.write(b'678')
        self.assertEqual(self.fs.block('h', 5, 100), (b'678', True))
        os.truncate(path, 2)
        self.assertEqual(self.fs.block('h', 0, 100), (b'12', True))
        os.remove(path)
        self.assertEqual(self.fs.block('h', 0, 100), (b'12', True))

    def test_lengths(self):
        wrong = (-32600, 'file read block length must be between 1 and 1048576')
        self.fs.open('h', self.make('a'))
        for length in (0, BLOCK + 1, 1 << 40):
            self.assertEqual(self.fs.refused('readBlock', handleId='h', offset=0, len=length), wrong)
        self.assertEqual(self.fs.block('h'), (b'content', True), 'that did not close it')
        for bad in ({'offset': -1, 'len': 1}, {'offset': 0, 'len': -1}, {'offset': 0, 'len': 1.5}, {'offset': 0}, {'len': 1},
                    {'offset': None, 'len': 1}, {'offset': '0', 'len': 1}, {'offset': 1 << 64, 'len': 1}):
            self.assertEqual(self.fs.refused('readBlock', handleId='h', **bad)[0], -32602, bad)
        self.assertEqual(self.fs.block('h'), (b'content', True))

    def test_a_failed_read_closes(self):
        self.fs.open('w', self.at('new'), mode='replace')
        self.assertEqual(self.fs.refused('readBlock', handleId='w', offset=0, len=1), (-32603, 'Bad file descriptor (os error 9)'))
        self.assertEqual(self.fs.refused('readBlock', handleId='w', offset=0, len=1), unknown('w'))
        self.fs.open('h', self.make('a'))
        code, text = self.fs.refused('readBlock', handleId='h', offset=(1 << 64) - 1, len=1)
        self.assertEqual((code, text), (-32600, 'Invalid argument (os error 22)'))
        self.assertEqual(self.fs.refused('readBlock', handleId='h', offset=0, len=1), unknown('h'))

    def test_the_wrong_kind(self):
        self.fs.open('r', self.make('a'))
        self.assertEqual(self.fs.refused('writeBlock', handleId='r', offset=0, chunk='eA=='), (-32603, 'Bad file descriptor (os error 9)'))
        self.assertEqual(self.content('a'), b'content')
        self.assertEqual(self.fs.block('r'), (b'content', True), 'a failed write does not close')

    def test_replace(self):
        path = self.make('a', b'old and long')
        os.chmod(path, 0o741)
        inode = os.stat(path).st_ino
        self.make('link', 'a')
        self.fs.open('w', self.at('link'), mode='replace')
        self.assertEqual(self.content('a'), b'', 'made empty when opened')
        self.fs.put('w', 6, b'world')
        self.fs.put('w', 0, b'hello')
        self.fs.put('w', 3, b'LO')
        self.assertEqual(self.content('a'), b'helLO\0world')
        self.assertEqual((os.stat(path).st_ino, stat.S_IMODE(os.stat(path).st_mode)), (inode, 0o741))
        mask = os.umask(0)
        os.umask(mask)
        self.make('dangling', 'made')
        self.fs.open('n', self.at('dangling'), mode='replace')
        self.assertEqual(stat.S_IMODE(os.stat(self.at('made')).st_mode), 0o666 & ~mask)

    def test_what_was_written_stays(self):
        self.fs.open('w', self.at('a'), mode='replace')
        self.fs.put('w', 0, b'half')
        self.client.abort()
        wait_until(lambda: self.content('a') == b'half')

    def test_lengths_of_writes(self):
        wrong = (-32600, 'file write block length must be between 1 and 1048576')
        self.fs.open('w', self.at('a'), mode='replace')
        self.assertEqual(self.fs.refused('writeBlock', handleId='w', offset=0, chunk=''), wrong)
        self.assertEqual(self.fs.refused('writeBlock', handleId='w', offset=0, chunk=b64(b'x' * (BLOCK + 1))), wrong)
        self.assertEqual(self.fs.put('w', 0, b'y' * BLOCK), {})
        for bad in ({'chunk': '!!!!'}, {'chunk': 'A'}, {'chunk': None}, {'chunk': 5}, {}, {'chunk': 'eA==', 'offset': -1}):
            self.assertEqual(self.fs.refused('writeBlock', handleId='w', **dict({'offset': 0}, **bad))[0], -32602, bad)
        self.assertEqual(self.content('a'), b'y' * BLOCK)

    @ours_only
    def test_far_away(self):
        self.fs.open('w', self.at('a'), mode='replace')
        code, text = self.fs.refused('writeBlock', handleId='w', offset=(1 << 64) - 1, chunk='eA==')
        self.assertEqual((code, text), (-32600, 'Invalid argument (os error 22)'))
        self.assertIn(self.fs.refused('writeBlock', handleId='w', offset=1 << 62, chunk='eA==')[0], (-32603, -32600))
        self.fs.put('w', 1 << 33, b'x')
        self.assertEqual(os.stat(self.at('a')).st_size, (1 << 33) + 1)

    def test_all_at_once(self):
        """A client that does not wait for answers gets what it would have got."""
        data = os.urandom(64 * 1000)
        requests = [self.fs.post('open', self.at('a'), handleId='w', mode='replace')]
        requests += [self.fs.post('writeBlock', handleId='w', offset=i, chunk=b64(data[i:i + 1000])) for i in range(0, 64000, 1000)]
        requests.append(self.fs.post('close', handleId='w'))
        read = self.fs.post('readFile', self.at('a'))
        late = self.fs.post('writeBlock', handleId='w', offset=0, chunk='eA==')
        for request in requests:
            self.client.result(request)
        self.assertEqual(unb64(self.client.result(read)['dataBase64']), data)
        self.assertEqual(self.client.reply(late)['error']['code'], -32004)

    def test_reads_all_at_once(self):
        data = os.urandom(100 * 500)
        self.make('a', data)
        opened = self.fs.post('open', self.at('a'), handleId='r')
        reads = [self.fs.post('readBlock', handleId='r', offset=i, len=500) for i in range(0, 50000, 500)]
        closed = self.fs.post('close', handleId='r')
        self.client.result(opened)
        self.assertEqual(b''.join(unb64(self.client.result(r)['chunk']) for r in reads), data)
        self.client.result(closed)

    def test_asked_of_one_that_cannot_be_opened(self):
        opened = self.fs.post('open', self.at('nothing'), handleId='r')
        read = self.fs.post('readBlock', handleId='r', offset=0, len=5)
        written = self.fs.post('writeBlock', handleId='r', offset=0, chunk='eA==')
        self.assertEqual(self.client.reply(opened)['error']['code'], -32004)
        for request in (read, written):
            self.assertEqual(self.client.reply(request)['error'], {'code': -32004, 'message': unknown('r')[1]})
        self.fs.open('r', self.make('a'))


@ours_only
class WhileSomethingHangs(FsCase):
    """The process that does the work stands still."""

    def stop_worker(self):
        """Stops all of them: there is a second one if the first was not at rest yet when the next request came."""
        self.fs.stat(self.d)
        pids = workers(self.srv)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    @staticmethod
    def go_on(pids):
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def test_an_id_is_taken_while_its_file_is_being_opened(self):
        a = self.make('a')
        pids = self.stop_worker()
        opened = self.fs.post('open', a, handleId='h')
        again = self.fs.post('open', a, handleId='h')
        self.assertEqual(self.client.reply(again)['error']['message'], 'file handle `h` already exists')
        self.go_on(pids)
        self.assertEqual(self.client.result(opened), {'handleId': 'h'})
        self.assertEqual(self.fs.block('h'), (b'content', True))

    def test_those_being_opened_count(self):
        a = self.make('a')
        pids = self.stop_worker()
        opened = [self.fs.post('open', a, handleId='h%d' % i, mode='replace') for i in range(128)]
        self.assertEqual(self.fs.refused('open', a, handleId='more')[1], 'at most 128 file handles may be open per connection')
        self.go_on(pids)
        for request in opened:
            self.client.result(request)

    def test_closed_while_it_is_being_opened(self):
        a = self.make('a')
        pids = self.stop_worker()
        opened = self.fs.post('open', a, handleId='h')
        self.assertEqual(self.fs.ask('close', handleId='h'), {})
        self.assertEqual(self.fs.refused('readBlock', handleId='h', offset=0, len=1), unknown('h'))
        self.go_on(pids)
        self.assertEqual(self.client.result(opened), {'handleId': 'h'})
        self.assertEqual(self.fs.refused('readBlock', handleId='h', offset=0, len=1), unknown('h'))
        wait_until(lambda: a not in Handles.fds_of(self.srv.pid), 'the file is closed')

    def test_closed_while_it_is_read(self):
        a = self.make('a')
        self.fs.open('h', a)
        pids = self.stop_worker()
        read = self.fs.post('readBlock', handleId='h', offset=0, len=100)
        self.assertEqual(self.fs.ask('close', handleId='h'), {})
        self.go_on(pids)
        self.assertEqual(self.client.result(read), {'chunk': b64(b'content'), 'eof': True})
        wait_until(lambda: a not in Handles.fds_of(self.srv.pid), 'the file is closed')

    def test_the_connection_ends_while_a_file_is_being_opened(self):
        self.look_into(self.srv.pid)
        a = self.make('a')
        other = self.srv.session()
        pids = self.stop_worker()
        before = self.srv.fds()[self.srv.pid]
        for i in range(10):
            other.post('fs/open', {'path': Calls.path(a), 'handleId': 'h%d' % i})
        other.fence()
        other.abort()
        wait_until(lambda: self.client.fence() is not None and len(Handles.fds_of(self.srv.pid)) <= before + 40)
        self.go_on(pids)
        wait_until(lambda: a not in Handles.fds_of(self.srv.pid), 'the files are closed')
        self.assertEqual(self.fs.read(a), b'content')


if __name__ == '__main__':
    tap.main()
