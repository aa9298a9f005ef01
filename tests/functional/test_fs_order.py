# SPDX-License-Identifier: Apache-2.0
"""File methods do not stand in each other's way, nor in anybody else's: what is slow, hung or cut off."""

import os
import signal
import time

import tap
from fs_ground import Calls, FsCase, wait_workers, workers
from server import descendants, fd_names, is_alive, ours_only, stat_of
from wire import b64, file_uri, unb64, wait_until

AT_WORK, WAITING = 8, 1024


@ours_only
class Order(FsCase):
    def test_what_is_about_one_path_is_done_in_order(self):
        for round_number in range(100):
            path, requests = self.at('f%d' % (round_number % 3)), []
            for i in range(5):
                requests.append(self.fs.post('writeFile', path, dataBase64=b64(b'%d' % i)))
                requests.append(self.fs.post('readFile', path))
            for i in range(5):
                self.client.result(requests[2 * i])
                self.assertEqual(unb64(self.client.result(requests[2 * i + 1])['dataBase64']), b'%d' % i)

    def test_what_is_above_or_below_counts_too(self):
        for i in range(30):
            d = self.at('d%d' % i)
            requests = [self.fs.post('createDirectory', d + '/e'), self.fs.post('writeFile', d + '/e/f', dataBase64='eA=='),
                        self.fs.post('copy', sourcePath=file_uri(d), destinationPath=file_uri(d + '.copy'), recursive=True),
                        self.fs.post('readFile', d + '.copy/e/f'), self.fs.post('remove', d), self.fs.post('readFile', d + '/e/f')]
            replies = [self.client.reply(r) for r in requests]
            self.assertEqual(['error' in r for r in replies], [False] * 5 + [True])
            self.assertEqual(replies[3]['result'], {'dataBase64': 'eA=='})

    def test_names_that_only_begin_alike_are_nobody(self):
        self.fs.stat(self.d)
        first, = workers(self.srv)
        os.kill(first, signal.SIGSTOP)
        slow = self.fs.post('writeFile', self.at('name'), dataBase64='eA==')
        self.fs.write(self.at('names'), b'1')
        waits = self.fs.post('readFile', self.at('name'))
        self.assertEqual(self.fs.read(self.at('names')), b'1')
        self.assertFalse(self.client.answered(waits), 'it reads what is being written')
        os.kill(first, signal.SIGCONT)
        self.client.result(slow)
        self.assertEqual(unb64(self.client.result(waits)['dataBase64']), b'x')

    def test_a_write_that_has_to_wait_is_written_whole(self):
        data = [os.urandom(size) for size in (0, 1, 100000, 3 << 20, 5 << 20, 7)]
        requests = [self.fs.post('writeFile', self.at('f'), dataBase64=b64(d)) for d in data]
        reads = self.fs.post('readFile', self.at('f'))
        for request in requests:
            self.client.result(request)
        self.assertEqual(unb64(self.client.result(reads)['dataBase64']), data[-1])
        requests = [self.fs.post('writeFile', self.at('g%d' % i), dataBase64=b64(d)) for i, d in enumerate(data * 3)]
        for i, request in enumerate(requests):
            self.client.result(request)
            self.assertEqual(self.content('g%d' % i), data[i % 6])

    def test_no_more_answers_are_made_than_are_read(self):
        data = os.urandom(1 << 20)
        self.fs.write(self.at('f'), data)
        before = self.srv.memory()
        requests = [self.fs.post('readFile', self.at('f')) for _ in range(200)]
        other = self.srv.session()
        end = time.monotonic() + 1.5  # the server has its time: it could read all of them
        while time.monotonic() < end:
            Calls(other).stat(self.at('f'))
        self.assertLess(self.srv.memory() - before, 100 << 20)
        for request in requests:
            self.assertEqual(unb64(self.client.result(request)['dataBase64']), data)


@ours_only
class Hung(FsCase):
    """Processes that do the work are stopped: as if a disk did not answer."""

    def setUp(self):
        super().setUp()
        self.stopped = set()

    def test_others_are_served(self):
        a = self.make('a')
        hung = self.srv.session()
        requests, pids = self.freeze(hung, AT_WORK)
        began = time.monotonic()
        self.assertEqual(self.fs.read(a), b'content')
        self.assertEqual(self.client.sh('echo still here').text, 'still here\n')
        self.assertEqual(hung.sh('echo me too').text, 'me too\n')
        hung.fence()
        self.assertLess(time.monotonic() - began, 20)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        for request in requests:
            hung.result(request, 60)

    def freeze(self, client, count):
        """So many operations at work that do not go on, each in a process of its own."""
        pids, requests, fs = set(), [], Calls(client)
        everything = {'maxDepth': 64, 'maxDirectories': 10000, 'maxEntries': 50000, 'followDirectorySymlinks': False}

        def stop_new():
            new = set(workers(self.srv)) - pids - self.stopped
            for pid in new:
                os.kill(pid, signal.SIGSTOP)
            pids.update(new)
            return new

        stop_new()
        while len(requests) < count or len(pids) < count:
            request = fs.post('walk', '/', options=everything)
            had = len(pids)
            wait_until(lambda n=had: stop_new() or len(pids) > n or n > len(requests) or client.fence() is None, 'a process')
            client.fence()
            if client.answered(request):  # it was quicker than we; its process takes the next one
                client.reply(request)
            else:
                requests.append(request)
        self.stopped |= pids
        return requests, pids

    def test_a_connection_bounds_itself(self):
        a = self.make('a')
        hung = self.srv.session()
        requests, pids = self.freeze(hung, AT_WORK)
        self.assertEqual(len(workers(self.srv)), len(pids))
        waiting = [hung.post('fs/getMetadata', {'path': file_uri(a)}) for _ in range(WAITING)]
        code, text = Calls(hung).refused('getMetadata', a)
        self.assertEqual(code, -32603)
        self.assertRegex(text, '^at most 1024 file operations of one connection may wait; ')
        self.assertFalse(any(hung.answered(w) for w in waiting))
        self.assertEqual(self.fs.read(a), b'content')
        self.assertEqual(hung.sh('echo fine').text, 'fine\n')
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        for request in requests + waiting:
            self.assertIn('result', hung.reply(request, 60))

    def test_data_that_waits_is_bounded(self):
        self.srv = self.server(listen='unix://' + self.at('socket'))
        hung = self.srv.lines().handshake()
        fs = Calls(hung)
        _requests, pids = self.freeze(hung, AT_WORK)
        data = b64(b'x' * (40 << 20))
        writes = [fs.post('writeFile', self.at('f%d' % i), dataBase64=data) for i in range(7)]
        refused = hung.reply(writes[-1])['error']
        self.assertEqual(refused['code'], -32603)
        self.assertRegex(refused['message'], '^at most 268435456 bytes of one connection may wait to be written; ')
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        for write in writes[:-1]:
            self.assertEqual(hung.reply(write, 60)['result'], {})
        self.assertEqual(os.stat(self.at('f5')).st_size, 40 << 20)
        fs.write(self.at('f0'), b'')

    def test_many_connections_that_hang(self):
        """64 processes in all: who comes after that waits, and commands go on."""
        everyone = [self.srv.session() for _ in range(3)]
        frozen = [self.freeze(client, AT_WORK) for client in everyone]
        self.assertEqual(self.client.sh('echo fine').text, 'fine\n')
        self.assertEqual(self.fs.read(self.make('a')), b'content')
        for _requests, pids in frozen:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        for client, (requests, _pids) in zip(everyone, frozen):
            for request in requests:
                client.result(request, 60)

    def test_a_process_that_is_killed_fails_its_operation_alone(self):
        a = self.make('a')
        requests, pids = self.freeze(self.client, 2)
        victim = sorted(pids)[0]
        os.kill(victim, signal.SIGKILL)
        self.client.wait_for(lambda: any(self.client.answered(r) for r in requests), 'an answer')
        dead = [r for r in requests if self.client.answered(r)][0]
        error = self.client.reply(dead)['error']
        self.assertEqual((error['code'], error['message']),
                         (-32603, 'the process that did this file operation has ended; try it again'))
        self.assertEqual(self.fs.read(a), b'content')
        for pid in pids - {victim}:
            os.kill(pid, signal.SIGCONT)
        self.client.result([r for r in requests if r != dead][0], 60)

    def test_a_connection_that_ends_leaves_nothing(self):
        hung = self.srv.session()
        before = len(fd_names(self.srv.pid))
        _requests, pids = self.freeze(hung, 4)
        for i in range(100):
            hung.post('fs/writeFile', {'path': file_uri(self.at('f')), 'dataBase64': b64(b'x' * 1000)})
        hung.fence()
        hung.abort()
        wait_until(lambda: len(fd_names(self.srv.pid)) <= before + 6, 'the data that waited is gone')
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.fs.read(self.make('a')), b'content')

    def test_a_server_that_ends_leaves_nothing(self):
        self.freeze(self.client, 3)
        for i in range(50):
            self.fs.post('writeFile', self.at('f'), dataBase64=b64(b'x' * 1000))
        self.client.fence()
        self.srv.stop()


@ours_only
class Processes(FsCase):
    """Who does the work."""

    def test_never_the_server_itself(self):
        self.fs.read(self.make('a'))
        worker, = workers(self.srv)
        self.assertNotEqual(stat_of(worker)[1], self.srv.pid, 'it belongs to a cell')
        for pid in (self.srv.pid, worker):
            self.assertNotIn(self.at('a'), fd_names(pid))

    def test_they_are_used_again_and_end_when_idle(self):
        for i in range(50):
            self.fs.write(self.at('f'), b'%d' % i)
        self.assertEqual(len(workers(self.srv)), 1)
        for _ in range(2):
            for request in [self.fs.post('readFile', self.at('f')) for _ in range(40)]:
                self.client.result(request)
        self.assertLessEqual(len(workers(self.srv)), AT_WORK)
        wait_workers(self.srv, 0)
        self.assertEqual(self.fs.read(self.at('f')), b'49')

    def test_nothing_of_the_server_is_open_in_them(self):
        self.fs.read(self.make('a'))
        worker, = workers(self.srv)
        names = fd_names(worker)
        self.assertLessEqual(len(names), 9, names)
        self.assertFalse([n for n in names if n.startswith(('anon_inode', '/tmp', self.srv.base))], names)

    def test_a_long_walk_and_others(self):
        self.use_memory()
        for i in range(100):
            os.mkdir(self.at('d%d' % i))
            for k in range(100):
                os.close(os.open(self.at('d%d' % i, '%d' % k), os.O_CREAT | os.O_WRONLY))
        other = Calls(self.srv.session())
        walks = [self.fs.post('walk', self.d, options={'maxDepth': 3, 'maxDirectories': 1000, 'maxEntries': 50000,
                                                       'followDirectorySymlinks': False}) for _ in range(8)]
        for i in range(50):
            self.assertTrue(other.stat(self.d)['isDirectory'])
        for walk in walks:
            self.assertEqual(len(self.client.result(walk)['entries']), 10100)

    def test_the_server_answers_while_it_reads_a_lot(self):
        with open(self.at('sparse'), 'wb') as f:
            f.truncate(40 << 20)
        request = self.fs.post('readFile', self.at('sparse'))
        other = self.srv.session()
        self.assertEqual(other.sh('echo fine').text, 'fine\n')
        self.assertEqual(unb64(self.client.result(request)['dataBase64']), bytes(40 << 20))

    def test_gone_when_the_server_is(self):
        self.fs.read(self.make('a'))
        worker, = workers(self.srv)
        self.assertIn(worker, descendants(self.srv.pid))
        self.srv.stop()
        self.assertFalse(is_alive(worker))


if __name__ == '__main__':
    tap.main()
