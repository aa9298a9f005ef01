# SPDX-License-Identifier: Apache-2.0
"""process/write: queue, order, ids, and what is no error."""

import hashlib
import os
import time

import tap
from server import PEER, PYTHON, Case, Gate, ours_only
from wire import MIB, b64, unb64

PIECE = 65536
READER = ('import sys, hashlib\n'
          'gate = sys.argv[1]\n'
          'if gate: open(gate).read()\n'
          'h, n = hashlib.sha256(), 0\n'
          'while n < int(sys.argv[2]):\n'
          '    data = sys.stdin.buffer.raw.read(1 << 20)\n'
          '    if not data: break\n'
          '    h.update(data); n += len(data)\n'
          'print(n, h.hexdigest())\n')


class Writing(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def test_bytes_arrive_in_order_and_exactly(self):
        data = bytes(range(256)) * 4096
        self.c.start('p', [PYTHON, '-S', '-c', READER, '', str(len(data))], pipeStdin=True)
        for at in range(0, len(data), 10007):
            self.assertEqual(self.c.write('p', data[at:at + 10007]), 'accepted')
        p = self.c.wait_closed('p')
        self.assertEqual(p.text.split(), [str(len(data)), hashlib.sha256(data).hexdigest()])

    def test_one_write_may_be_large(self):
        data = os.urandom(4 * MIB)
        self.c.start('p', [PYTHON, '-S', '-c', READER, '', str(len(data))], pipeStdin=True)
        self.assertEqual(self.c.write('p', data), 'accepted')
        p = self.c.wait_closed('p')
        self.assertEqual(p.text.split(), [str(len(data)), hashlib.sha256(data).hexdigest()])

    @ours_only
    def test_a_write_larger_than_the_queue_arrives(self):
        data = os.urandom(9 * MIB)
        self.c.start('p', [PYTHON, '-S', '-c', READER, '', str(len(data))], pipeStdin=True)
        reply = self.c.reply(self.c.post_write('p', data))
        if 'result' in reply:
            self.assertEqual(reply['result'], {'status': 'accepted'})
            p = self.c.wait_closed('p')
            self.assertEqual(p.text.split(), [str(len(data)), hashlib.sha256(data).hexdigest()])
        else:
            self.assertError(reply['error'], -32603)
            self.c.terminate('p')

    def test_an_empty_chunk_is_accepted(self):
        self.c.start('p', ['cat'], pipeStdin=True)
        self.assertEqual(self.c.write('p', b''), 'accepted')
        self.assertEqual(self.c.write('p', b'x\n'), 'accepted')
        self.c.wait_output('p', 'x\n')

    def test_outcomes_that_are_no_errors(self):
        self.assertEqual(self.c.write('nobody', b'x'), 'unknownProcess')
        self.c.start('p', ['sleep', '1000'])
        self.assertEqual(self.c.write('p', b'x'), 'stdinClosed')
        self.c.terminate('p')
        self.c.wait_closed('p')
        self.assertEqual(self.c.write('p', b'x'), 'stdinClosed')

    def test_a_write_id_must_not_be_empty(self):
        for name in ('nobody', 'p'):
            error = self.c.error('process/write', {'processId': name, 'chunk': 'eA==', 'writeId': ''})
            self.assertError(error, -32602, 'writeId must not be empty')

    def test_base64_is_strict(self):
        self.c.start('p', ['cat'], pipeStdin=True)
        for text in ('!', '!!!!', 'YQ', 'YQ=', 'YQ===', 'Y', 'YWJ', 'YQ==\n', ' YQ==', 'YQ== ', 'Y-_=', 'YR==', 'YW=J',
                     '====', '=', 'YQ==YQ==', 'é'):
            with self.subTest(text=text):
                error = self.c.error('process/write', {'processId': 'p', 'chunk': text, 'writeId': '1'})
                self.assertError(error, -32602)
        self.assertEqual(self.c.write('p', b'\xfb\xef\xff', '1'), 'accepted', 'a refused id is not remembered')
        self.c.wait_output('p', b'\xfb\xef\xff')

    def test_writes_to_a_dead_stdin_are_accepted(self):
        self.c.start('p', ['/bin/sh', '-c', 'exec <&-; echo closed; exec sleep 1000'], pipeStdin=True)
        self.c.wait_output('p', 'closed')
        for _ in range(3):
            self.assertEqual(self.c.write('p', b'x' * 1000), 'accepted')
        self.c.run(['true'], 'q', pipeStdin=True)
        self.assertEqual(self.c.write('q', b'x'), 'accepted')
        self.c.run(['true'], 't', tty=True)
        self.assertEqual(self.c.write('t', b'x'), 'accepted')

    def test_after_terminate_writes_fail(self):
        self.c.start('p', ['cat'], pipeStdin=True)
        self.c.terminate('p')
        self.c.wait_closed('p')
        self.assertError(self.c.error('process/write', {'processId': 'p', 'chunk': 'eA==', 'writeId': '1'}), -32603,
                         'failed to write to process stdin')

    def test_a_repeated_id_is_acknowledged_and_not_written(self):
        self.c.start('p', ['cat'], pipeStdin=True)
        for data in (b'one\n', b'two\n'):
            for _ in range(3):
                self.assertEqual(self.c.write('p', data, 'id of ' + data.decode()), 'accepted')
        self.assertEqual(self.c.write('p', b'end\n'), 'accepted')
        self.c.wait_output('p', 'end\n')
        self.assertEqual(self.c.process('p').stdout, b'one\ntwo\nend\n')

    def test_ids_belong_to_one_process(self):
        for name in ('p', 'q'):
            self.c.start(name, ['cat'], pipeStdin=True)
            self.assertEqual(self.c.write(name, b'x\n', '1'), 'accepted')
            self.c.wait_output(name, 'x\n')

    def test_ids_survive_a_new_connection(self):
        self.c.start('p', ['cat'], pipeStdin=True)
        self.assertEqual(self.c.write('p', b'once\n', 'w'), 'accepted')
        self.c.wait_output('p', 'once\n')
        self.c.close()
        c = self.srv.session(resume=self.c.session_id)
        self.assertEqual(c.write('p', b'once\n', 'w'), 'accepted')
        self.assertEqual(c.write('p', b'more\n', 'v'), 'accepted')
        c.wait_output('p', 'more\n')
        self.assertEqual(b''.join(unb64(x['chunk']) for x in c.read('p')['chunks']),
                         b'once\nmore\n')

    def test_the_newest_4096_ids_are_remembered(self):
        self.c.start('p', [PYTHON, '-S', '-c', READER, '', '4099'], pipeStdin=True)
        posts = [self.c.post_write('p', b'a', str(i)) for i in range(4097)]
        for post in posts:
            self.assertEqual(self.c.result(post), {'status': 'accepted'})
        self.assertEqual(self.c.write('p', b'X', '1'), 'accepted')      # remembered: 1 to 4096
        self.assertEqual(self.c.write('p', b'Y', '4096'), 'accepted')
        self.assertEqual(self.c.write('p', b'b', '0'), 'accepted')      # forgotten, so written
        self.assertEqual(self.c.write('p', b'c', 'last'), 'accepted')
        p = self.c.wait_closed('p')
        self.assertEqual(p.text.split()[1], hashlib.sha256(b'a' * 4097 + b'bc').hexdigest())


class Full(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()
        self.gate = Gate(self.srv.work)

    def stuck(self, total=0):
        """A child that reads nothing until the gate opens."""
        self.c.start('p', [PYTHON, '-S', '-c', READER, self.gate.path, str(total)], pipeStdin=True)

    def test_the_queue_holds_128_chunks_and_what_the_pipe_takes(self):
        total = 160 * PIECE
        self.stuck(total)
        data = [bytes([i]) * PIECE for i in range(160)]
        posts = [self.c.post_write('p', d) for d in data]
        other = self.srv.session()
        if PEER:
            time.sleep(1)
            while self.c.channel.readable():
                self.c.pump(1)
        else:
            self.c.fence()
        done = [p for p in posts if self.c.answered(p)]
        self.assertIn(len(done), range(128, 132))
        self.assertEqual(done, posts[:len(done)], 'accepted in order')
        self.assertEqual(other.fence(), {'status': 'ready'})
        self.gate.open()
        for post in posts:
            self.assertEqual(self.c.result(post), {'status': 'accepted'})
        p = self.c.wait_closed('p')
        self.assertEqual(p.text.split(), [str(total), hashlib.sha256(b''.join(data)).hexdigest()])

    @ours_only
    def test_small_chunks_count_as_chunks(self):
        self.stuck(PIECE + 300)
        self.assertEqual(self.c.write('p', b'x' * PIECE), 'accepted')  # fills the pipe
        posts = [self.c.post_write('p', b'y') for _ in range(300)]
        self.c.fence()
        done = [p for p in posts if self.c.answered(p)]
        self.assertIn(len(done), range(126, 131))
        self.gate.open()
        for post in posts:
            self.assertEqual(self.c.result(post), {'status': 'accepted'})
        p = self.c.wait_closed('p')
        self.assertEqual(p.text.split(), [str(PIECE + 300), hashlib.sha256(b'x' * PIECE + b'y' * 300).hexdigest()])

    @ours_only
    def test_the_queue_holds_8_mib(self):
        self.stuck(14 * MIB)
        data = [bytes([i]) * MIB for i in range(14)]
        posts = [self.c.post_write('p', d) for d in data]
        self.c.fence()
        done = [p for p in posts if self.c.answered(p)]
        self.assertIn(len(done), range(7, 11))
        self.gate.open()
        for post in posts:
            self.assertEqual(self.c.result(post), {'status': 'accepted'})
        p = self.c.wait_closed('p')
        self.assertEqual(p.text.split(), [str(14 * MIB), hashlib.sha256(b''.join(data)).hexdigest()])

    @ours_only
    def test_a_blocked_write_stalls_nobody(self):
        self.stuck(0)
        posts = [self.c.post_write('p', b'x' * PIECE) for _ in range(200)]
        self.assertEqual(self.c.fence(), {'status': 'ready'})
        self.assertEqual(self.c.sh('echo hi').stdout, b'hi\n')
        self.c.start('q', ['cat'], pipeStdin=True)
        self.assertEqual(self.c.write('q', b'free\n'), 'accepted')
        self.c.wait_output('q', 'free\n')
        self.assertFalse(self.c.answered(posts[-1]))

    @ours_only
    def test_terminate_releases_blocked_writes(self):
        self.stuck(0)
        posts = [self.c.post_write('p', b'x' * PIECE) for _ in range(200)]
        self.assertTrue(self.c.terminate('p'))
        self.assertEqual(self.c.wait_closed('p').exit_code, 137)
        replies = [self.c.reply(p) for p in posts]
        self.assertEqual(replies[0]['result'], {'status': 'accepted'})
        self.assertError(replies[-1]['error'], -32603, 'failed to write to process stdin')

    @ours_only
    def test_the_childs_end_releases_blocked_writes(self):
        self.stuck(0)  # reads nothing and ends when the gate opens
        posts = [self.c.post_write('p', b'x' * PIECE) for _ in range(200)]
        self.c.fence()
        self.gate.open()
        self.c.wait_closed('p')
        for post in posts:
            self.assertEqual(self.c.result(post), {'status': 'accepted'})

    @ours_only
    def test_a_repeat_of_a_queued_write_does_not_wait(self):
        self.stuck(0)
        first = self.c.post_write('p', b'x' * PIECE, 'first')
        posts = [self.c.post_write('p', b'x' * PIECE) for _ in range(200)]
        self.assertEqual(self.c.result(first), {'status': 'accepted'})
        self.assertEqual(self.c.write('p', b'x' * PIECE, 'first'), 'accepted')
        self.assertFalse(self.c.answered(posts[-1]))

    @ours_only
    def test_at_most_1024_writes_wait(self):
        self.stuck(0)
        self.c.write('p', b'x' * PIECE)
        posts = [self.c.post_write('p', b'y') for _ in range(1300)]
        self.c.fence()
        done = [p for p in posts if self.c.answered(p)]
        replies = [self.c.reply(p) for p in done]
        good = [r for r in replies if 'result' in r]
        bad = [r for r in replies if 'error' in r]
        self.assertIn(len(good), range(126, 131))
        self.assertEqual(len(posts) - len(done), 1024, 'so many wait')
        for reply in bad:
            self.assertError(reply['error'], -32603)
        self.assertEqual(self.c.sh('echo hi').stdout, b'hi\n')

    @ours_only
    def test_at_most_64_mib_wait(self):
        self.stuck(0)
        posts = [self.c.post_write('p', b'x' * (4 * MIB)) for _ in range(26)]
        self.c.fence()
        replies = [self.c.reply(p) for p in posts if self.c.answered(p)]
        bad = [r for r in replies if 'error' in r]
        self.assertGreaterEqual(len(bad), 1)
        for reply in bad:
            self.assertError(reply['error'], -32603)
        waiting = len(posts) - len(replies)
        self.assertLessEqual(waiting * 4, 64)
        self.assertGreaterEqual(waiting * 4, 32)
        self.assertEqual(self.c.fence(), {'status': 'ready'})

    @ours_only
    def test_a_connection_that_goes_leaves_its_accepted_writes(self):
        self.stuck(100 * PIECE)
        data = [bytes([i]) * PIECE for i in range(100)]
        posts = [self.c.post_write('p', d) for d in data]
        for post in posts:
            self.c.result(post)
        self.c.close()
        c = self.srv.session(resume=self.c.session_id)
        self.gate.open()
        c.wait_closed('p')
        chunks = c.read('p')['chunks']
        self.assertEqual(len(chunks), 1)
        self.assertEqual(chunks[0]['chunk'], b64(b'%d %s\n' % (
            100 * PIECE, hashlib.sha256(b''.join(data)).hexdigest().encode())))

    @ours_only
    def test_a_connection_that_goes_takes_its_waiting_writes(self):
        self.stuck(0)
        for _ in range(300):
            self.c.post_write('p', b'x' * PIECE)
        self.c.fence()
        self.c.abort()
        c = self.srv.session(resume=self.c.session_id)
        self.assertEqual(c.fence(), {'status': 'ready'})
        self.assertTrue(c.terminate('p'))
        c.wait_closed('p')

    @ours_only
    def test_a_terminal_that_is_not_read_blocks_writes_only(self):
        self.c.start('t', ['/bin/sh', '-c', 'stty raw -echo; echo ready; exec sleep 1000'], tty=True)
        self.c.wait_output('t', 'ready')
        posts = [self.c.post_write('t', b'x' * PIECE) for _ in range(300)]
        self.assertEqual(self.c.fence(), {'status': 'ready'})
        self.assertFalse(self.c.answered(posts[-1]))
        self.assertTrue(self.c.terminate('t'))
        self.c.wait_closed('t')


class Polls(Case):
    @ours_only
    def test_at_most_4096_reads_wait(self):
        c = self.session()
        c.start('p', ['sleep', '1000'])
        posts = [c.post_read('p', waitMs=600000) for _ in range(4200)]
        c.fence()
        done = [p for p in posts if c.answered(p)]
        self.assertEqual(len(done), 104)
        for post in done:
            self.assertError(c.reply(post)['error'], -32603)
        c.terminate('p')
        for post in posts:
            if post not in done:
                self.assertTrue(c.result(post)['exited'])


if __name__ == '__main__':
    tap.main()
